"""Reading the result document: whatever a module's pod may have written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.job_objects import result

from captf_controllers.jobs.result import EMPTY_PLAN_HASH, parse_result

EXAMPLE = {
    "version": 1,
    "op": "apply",
    "image": {"ref": "registry/x:1", "providersMirror": True},
    "runtime": {"command": ["/captf/runtime"], "version": "1.11.4"},
    "steps": [{"name": "init", "exit": 0, "seconds": 1.2}],
    "drift": None,
    "error": None,
    "changes": {"add": 1, "change": 0, "destroy": 0, "import": 1},
    "plan": {
        "hash": "p2:00ff",
        "create": 1,
        "update": 0,
        "replace": 0,
        "delete": 0,
        "import": 1,
        "move": 1,
        "forget": 1,
        "outputChanges": 1,
        "resources": ["a.b (create)"],
        "truncated": True,
    },
}


def test_the_example_of_the_contract():
    found = parse_result(json.dumps(EXAMPLE))
    assert found is not None
    assert (found.op, found.image, found.runtime_version) == ("apply", "registry/x:1", "1.11.4")
    assert found.reached("init")
    assert not found.reached("apply")
    assert found.changes is not None
    assert found.changes.imported == 1
    assert found.plan is not None
    assert (found.plan.hash, found.plan.output_changes, found.plan.truncated) == ("p2:00ff", 1, True)
    assert not found.plan.is_empty


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        json.dumps({**EXAMPLE, "version": 2}),
        json.dumps({key: value for key, value in EXAMPLE.items() if key != "version"}),
        json.dumps(EXAMPLE)[:-1],
        json.dumps({**EXAMPLE, "steps": "none"}),
        json.dumps({**EXAMPLE, "changes": {"add": -1}}),
        json.dumps({**EXAMPLE, "plan": {"hash": "not a hash"}}),
        json.dumps({**EXAMPLE, "padding": "x" * 5000}),
        json.dumps(EXAMPLE) + " trailing",
    ],
)
def test_what_is_not_a_whole_document_of_version_1_is_no_result(text):
    assert parse_result(text) is None


def test_an_unknown_field_is_no_reason_to_drop_the_document():
    assert parse_result(json.dumps({**EXAMPLE, "new": True})) is not None


def test_an_unknown_error_kind_reads_as_a_failed_step_but_stays_visible():
    found = parse_result(result(kind="exploded", step="apply"))
    assert found is not None
    assert found.error is not None
    assert (found.error.kind, found.error.known_kind) == ("exploded", "step")


def test_strings_are_bounded_and_lose_control_characters():
    error = {
        "kind": "step",
        "step": "s" * 100,
        "tail": "\x1b[31mé" + "é" * 400,
        "resources": [f"a{i}: {'x' * 90}" for i in range(12)],
    }
    found = parse_result(json.dumps({**EXAMPLE, "error": error, "plan": None}, ensure_ascii=False))
    assert found is not None
    assert found.error is not None
    assert len(found.error.step.encode()) <= 64
    assert len(found.error.tail.encode()) <= 512
    assert "\x1b" not in found.error.tail
    assert len(found.error.resources) == 10


def test_an_address_too_long_is_left_out_rather_than_cut():
    drift = {"detected": True, "update": 2, "resources": ["a" * 513, "b"]}
    found = parse_result(result(op="drift", drift=drift))
    assert found is not None
    assert found.drift is not None
    assert found.drift.resources == ("b",)
    assert found.drift.update == 2


def test_a_line_of_a_plan_that_is_too_long_is_left_out_and_said_to_be():
    fits = "c" * 600
    plan = {"hash": "p2:ab", "delete": 3, "resources": ["a (delete)", "b" * 601, fits]}
    found = parse_result(result(op="plan", plan=plan))
    assert found is not None
    assert found.plan is not None
    assert found.plan.resources == ("a (delete)", fits)
    assert found.plan.truncated


def test_the_empty_plan():
    found = parse_result(result(op="plan", plan={"hash": EMPTY_PLAN_HASH}))
    assert found is not None
    assert found.plan is not None
    assert found.plan.is_empty


@given(
    st.text(max_size=300) | st.binary(max_size=300).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)
def test_nothing_a_pod_writes_makes_reading_fail(text):
    parse_result(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {"version": st.just(1)},
        optional={
            "steps": _JSON,
            "error": _JSON,
            "drift": _JSON,
            "plan": _JSON,
            "changes": _JSON,
            "op": _JSON,
        },
    )
)
def test_no_shape_of_a_document_makes_reading_fail(document):
    parse_result(json.dumps(document))
