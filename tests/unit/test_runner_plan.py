from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.fake_runtime import change

from captf_controllers.runner.plan import (
    EMPTY_PLAN_HASH,
    Number,
    PlanError,
    canonical,
    effect,
    normalise_marker,
    parse_plan,
)
from captf_controllers.runner.redaction import Redactor, add_plan

KEY = bytes(range(32))

CREATED = """{"address": "module.role.terraform_data.a", "change": {"actions": ["create"], "before": null,
 "after": {"input": "x", "n": 1.50}, "after_unknown": {"id": true, "output": true, "tags": {}},
 "after_sensitive": {"tags": {}}}}"""
UPDATED = """{"address": "module.role.lb", "change": {"actions": ["update"],
 "before": {"size": 1, "desired": 3, "rv": "7", "tags": {"a": "x"}},
 "after": {"size": 2, "desired": 3, "tags": {"a": "x"}}, "after_unknown": {"rv": true}}}"""


def document(*resources: str, outputs: str = "{}") -> bytes:
    joined = ",".join(resources)
    text = f'{{"format_version":"1.2","resource_changes":[{joined}],"output_changes":{outputs}}}'
    return text.encode()


def effect_text(**details: Any) -> str:
    previous = details.pop("previous_address", None)
    resource = change("a", *details.pop("actions", ["update"]), previous_address=previous, **details)
    plan = parse_plan(document(json.dumps(resource)))
    return canonical(effect(plan.resources[0])).decode()


@pytest.mark.parametrize(
    ("resource", "effects", "hash"),
    [
        (
            CREATED,
            '{"after":{"input":"x","n":1.50},"after_unknown":{"id":true,"output":true}}',
            "p2:88cbdcb078b7e7222f6b3b5bfa59550d616fbe50d532919cf8429520de15ad74",
        ),
        (
            UPDATED,
            '{"paths":[{"path":["rv"],"before":null,"after":null,"unknown":true},'
            '{"path":["size"],"before":1,"after":2}]}',
            "p2:449c4dc030bd11ae3be483da905cf43d62da79c27755f563554b675c795cf50d",
        ),
    ],
)
def test_fingerprint_vectors(resource: str, effects: str, hash: str) -> None:
    plan = parse_plan(document(resource))
    assert canonical(effect(plan.resources[0])).decode() == effects
    assert plan.summarise(KEY).hash == hash


def test_a_plan_without_effects_has_the_empty_hash() -> None:
    noop = json.dumps(change("a", "no-op", before={"x": 1}, after={"x": 1}))
    nothing = json.dumps(change("b"))
    plan = parse_plan(document(noop, nothing, outputs='{"o":{"actions":["no-op"]}}'))
    assert plan.summarise(KEY).hash == EMPTY_PLAN_HASH
    assert plan.summarise(b"k" * 40).hash == EMPTY_PLAN_HASH


def test_the_hash_depends_on_the_key_and_not_on_the_order() -> None:
    forward = parse_plan(document(CREATED, UPDATED)).summarise(KEY).hash
    assert forward == parse_plan(document(UPDATED, CREATED)).summarise(KEY).hash
    assert forward != parse_plan(document(CREATED, UPDATED)).summarise(KEY[::-1]).hash


def test_a_number_is_bound_by_its_literal() -> None:
    other = CREATED.replace("1.50", "1.5")
    assert (
        parse_plan(document(CREATED)).summarise(KEY).hash != parse_plan(document(other)).summarise(KEY).hash
    )


def test_outputs_are_bound_by_name() -> None:
    output = '{"o": {"actions": ["create"], "before": null, "after": "v", "after_unknown": false}}'
    plan = parse_plan(document(outputs=output))
    mac = hmac.new(KEY, b'{"after":"v"}', hashlib.sha256).hexdigest()
    line = f"output.o|create|{mac}".encode()
    assert plan.summarise(KEY).hash == "p2:" + hashlib.sha256(line).hexdigest()
    assert plan.summarise(KEY).output_changes == 1


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        pytest.param({"actions": ["create"], "after": {}}, '{"after":{}}', id="an empty after stays"),
        pytest.param({"actions": ["create"], "after": None}, "{}", id="a null after is left out"),
        pytest.param(
            {"actions": ["read"], "after": {"a": 1}, "after_sensitive": {"a": True, "b": False}},
            '{"after":{"a":1},"after_sensitive":{"a":true}}',
            id="a read is bound like a create",
        ),
        pytest.param(
            {"actions": ["delete"], "before": {"a": 1}, "after": None}, "{}", id="delete binds no value"
        ),
        pytest.param({"actions": ["forget"], "before": {"a": 1}}, "{}", id="forget binds no value"),
        pytest.param(
            {"actions": ["no-op"], "importing": {"id": "i"}, "before": {"a": 1}, "after": {"a": 1}},
            '{"importing":{"id":"i"}}',
            id="an import without a change",
        ),
        pytest.param(
            {"actions": ["no-op"], "previous_address": "old.x", "before": {}, "after": {}},
            '{"previous_address":"old.x"}',
            id="a move without a change",
        ),
        pytest.param(
            {"actions": ["delete", "create"], "before": {"a": "1"}, "after": {"a": "2"}},
            '{"paths":[{"path":["a"],"before":"1","after":"2"}]}',
            id="a replacement is bound by its differences",
        ),
        pytest.param(
            {"before": {"a": None}, "after": {}},
            '{"paths":[{"path":["a"],"before":null,"after":null,"after_absent":true}]}',
            id="absent is not null",
        ),
        pytest.param(
            {"before": {}, "after": {"a": None}},
            '{"paths":[{"path":["a"],"before":null,"after":null,"before_absent":true}]}',
            id="null is not absent",
        ),
        pytest.param(
            {"before": {"a": 1}, "after": {"a": 1.0}},
            '{"paths":[{"path":["a"],"before":1,"after":1.0}]}',
            id="numbers differ by literal",
        ),
        pytest.param(
            {"before": {"a": True}, "after": {"a": 1}},
            '{"paths":[{"path":["a"],"before":true,"after":1}]}',
            id="a boolean is no number",
        ),
        pytest.param(
            {"before": {"l": [1, 2]}, "after": {"l": [1, 3, 4]}},
            '{"paths":[{"path":["l",1],"before":2,"after":3},'
            '{"path":["l",2],"before":null,"after":4,"before_absent":true}]}',
            id="lists by index",
        ),
        pytest.param(
            {"before": {"l": ["a"]}, "after": {"l": ["a"]}, "after_unknown": {"l": [False, True]}},
            '{"paths":[{"path":["l",1],"before":null,"after":null,"unknown":true}]}',
            id="an unknown item beyond both lists",
        ),
        pytest.param(
            {"before": {"l": []}, "after": {"l": []}, "after_unknown": {"l": []}},
            "{}",
            id="two empty lists are the same leaf",
        ),
        pytest.param(
            {"before": {"o": {}}, "after": {"o": {}}, "after_unknown": {"o": {"k": True}}},
            '{"paths":[{"path":["o"],"before":{},"after":{},"unknown":{"k":true}}]}',
            id="a marker within an empty object",
        ),
        pytest.param(
            {"before": {"a": {"x": 1}}, "after": {"a": [1]}},
            '{"paths":[{"path":["a"],"before":{"x":1},"after":[1]}]}',
            id="another type is a leaf",
        ),
        pytest.param(
            {
                "before": {"a": "s"},
                "after": {"a": "s"},
                "before_sensitive": {},
                "after_sensitive": {"a": True},
            },
            '{"paths":[{"path":["a"],"before":"s","after":"s","after_sensitive":true}]}',
            id="becoming sensitive is a difference",
        ),
        pytest.param(
            {
                "before": {"a": {"b": 1}},
                "after": {"a": {"b": 2}},
                "before_sensitive": True,
                "after_sensitive": True,
            },
            '{"paths":[{"path":["a","b"],"before":1,"after":2,"before_sensitive":true,"after_sensitive":true}]}',
            id="a boolean marker applies to everything beneath",
        ),
        pytest.param(
            {"before": {"a": 1}, "after": {}, "after_unknown": True, "before_sensitive": {"a": True}},
            '{"paths":[{"path":[],"before":null,"after":null,"unknown":true,"before_sensitive":{"a":true}}]}',
            id="all unknown binds no old value",
        ),
    ],
)
def test_effects(details: dict[str, Any], expected: str) -> None:
    assert effect_text(**details) == expected


@pytest.mark.parametrize(
    ("marker", "normal"),
    [
        (True, True),
        (False, None),
        (None, None),
        ({}, None),
        ([False], None),
        ({"a": False, "b": {"c": True}, "d": []}, {"b": {"c": True}}),
        ([False, {"a": True}, {}], [None, {"a": True}, None]),
    ],
)
def test_markers_keep_what_they_mark(marker: object, normal: object) -> None:
    assert normalise_marker(marker) == normal


def test_canonical_text_is_escaped_and_sorted() -> None:
    value = [{"é": None, "a": "<>&\u2028\u2029", "z": '"\\\n\r\t\b\f\x01/'}, Number("1e+2"), True]
    assert canonical(value) == (
        b'[{"a":"\\u003c\\u003e\\u0026\\u2028\\u2029","z":"\\"\\\\\\n\\r\\t\\b\\f\\u0001/",'
        b'"\xc3\xa9":null},1e+2,true]'
    )


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
def test_canonical_text_is_json_of_the_same_value(value: Any) -> None:
    assert json.loads(canonical([value])) == [json.loads(json.dumps(value))]


def test_counts_and_listed_resources() -> None:
    plan = parse_plan(
        document(
            *map(
                json.dumps,
                [
                    change("z", "create"),
                    change("y", "update"),
                    change("x", "delete", "create"),
                    change("w", "create", "delete"),
                    change("v", "delete"),
                    change("u", "forget"),
                    change("t", "read"),
                    change("s", "no-op", importing={"id": "1"}),
                    change("r", "update", previous_address="q"),
                    change("p", "no-op"),
                    change("o", "create", "forget"),
                ],
            ),
            outputs='{"a":{"actions":["create"]},"b":{"actions":["no-op"]}}',
        )
    )
    summary = plan.summarise(KEY)
    assert (summary.create, summary.update, summary.replace, summary.delete) == (1, 2, 2, 1)
    assert (summary.forget, summary.imported, summary.moved, summary.output_changes) == (1, 1, 1, 1)
    assert summary.resources == (
        "o (create,forget)",
        "r (update, move)",
        "s (import)",
        "t (read)",
        "u (forget)",
        "v (delete)",
        "w (replace)",
        "x (replace)",
        "y (update)",
        "z (create)",
    )
    assert not summary.truncated
    assert plan.destructive_changes() == [("x", "replace"), ("w", "replace"), ("v", "delete")]
    drift = plan.drift()
    assert (drift.create, drift.update, drift.replace, drift.delete) == (1, 2, 2, 1)
    assert drift.resources == ("z", "y", "x", "w", "v", "r")
    assert drift.detected


def test_long_lists_are_cut() -> None:
    plan = parse_plan(document(*(json.dumps(change(f"r{i:03}", "create")) for i in range(51))))
    summary = plan.summarise(KEY)
    assert len(summary.resources) == 50
    assert summary.truncated
    assert plan.drift().resources == tuple(f"r{i:03}" for i in range(20))


@pytest.mark.parametrize(
    "quiet",
    [
        change("a", "read"),
        change("a", "forget"),
        change("a", "no-op", importing={"id": "1"}),
        change("a", "no-op", previous_address="b"),
    ],
)
def test_what_is_no_drift(quiet: dict[str, Any]) -> None:
    plan = parse_plan(document(json.dumps(quiet), outputs='{"a":{"actions":["create"]}}'))
    assert not plan.drift().detected
    assert plan.drift().resources == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format_version":"1.2","resource_changes":{}}',
        '{"format_version":"1.2","resource_changes":[{}]}',
        '{"format_version":"1.2","resource_changes":[{"address":"a"}]}',
        '{"format_version":"1.2","resource_changes":[{"address":"a","change":{"actions":"create"}}]}',
        '{"format_version":"1.2","output_changes":[1]}',
        '{"format_version":"1.2","x":NaN}',
        "[" * 100_000,
    ],
)
def test_a_document_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        parse_plan(text.encode())


PLAN_NAMES = ["format_version", "resource_changes", "output_changes", "address", "previous_address", "change"]
PLAN_NAMES += [
    "actions",
    "before",
    "after",
    "after_unknown",
    "before_sensitive",
    "after_sensitive",
    "importing",
]
PLAN_WORDS = ["create", "update", "delete", "no-op", "read", "forget", "1.2", ""]
PLAN_PARTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(PLAN_WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(PLAN_NAMES), inner, max_size=6)
    ),
    max_leaves=20,
)
CHANGES = st.fixed_dictionaries(
    {
        "address": st.sampled_from(["a", "b"]),
        "change": st.dictionaries(st.sampled_from(PLAN_NAMES), PLAN_PARTS),
    }
)


@settings(deadline=None, max_examples=50)
@given(PLAN_PARTS | st.lists(CHANGES).map(lambda listed: {"format_version": "1", "resource_changes": listed}))
def test_no_document_breaks_the_reader(document: Any) -> None:
    try:
        plan = parse_plan(json.dumps(document).encode())
    except PlanError:
        return
    plan.summarise(KEY)
    plan.drift()
    add_plan(Redactor(), plan.document)
