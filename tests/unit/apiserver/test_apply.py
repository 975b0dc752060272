"""Sets of fields and server-side apply; the real server's results are proven by the conformance cases."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captf_runtime.testing.apiserver.apply import TypedError, apply, conflict_message, track_update
from captf_runtime.testing.apiserver.field_sets import Comparison, decode, encode, fields_of, shown
from captf_runtime.testing.apiserver.topology import DEDUCED, builtin_topology, schema_topology

pytestmark = pytest.mark.requirement("AS14")

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC)
MAPS = builtin_topology("v1", "ConfigMap")
WIDGET = schema_topology(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "ports": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name", "protocol"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": {"type": "string"},
                                "protocol": {"type": "string", "default": "TCP"},
                                "port": {"type": "integer"},
                            },
                        },
                    },
                    "plain": {"type": "array", "items": {"type": "string"}},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
)


def config_map(data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return body | ({"data": data} if data is not None else {})


def widget(spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "a"}, **more}
    return body | ({"spec": spec} if spec is not None else {})


def applied(live: Any, body: Any, manager: str, schema: Any = MAPS, **options: Any) -> Any:
    """The object after an apply that must not conflict."""
    settings: dict[str, Any] = {"force": False, "subresource": "", "now": NOW, **options}
    obj, conflicts = apply(live, body, manager, schema=schema, **settings)
    assert conflicts == []
    return obj


def owners(obj: Any) -> dict[str, Any]:
    return {
        entry["manager"] + ("/" + entry["subresource"] if "subresource" in entry else ""): entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", [])
    }


def test_wire_form() -> None:
    fields = fields_of(
        WIDGET, {"spec": {"tags": ["a"], "ports": [{"name": "x", "port": 1}], "free": {"y": {"z": 1}}}}
    )
    assert encode(fields) == {
        "f:spec": {
            "f:tags": {'v:"a"': {}},
            "f:ports": {'k:{"name":"x","protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}}},
            "f:free": {"f:y": {".": {}, "f:z": {}}},
        }
    }
    assert decode(encode(fields)) == fields


PATHS = st.frozensets(
    st.lists(st.sampled_from(["f:a", "f:b", 'k:{"n":"x"}', 'v:"s"']), min_size=1, max_size=4).map(tuple),
    max_size=8,
)


@given(PATHS)
def test_sets_survive_the_wire(fields: frozenset[tuple[str, ...]]) -> None:
    assert decode(encode(fields)) == fields


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:data", "f:x"), ".data.x"),
        (("f:spec", "f:ports", 'k:{"name":"a","port":80}', "f:y"), '.spec.ports[name="a",port=80].y'),
        (("f:spec", "f:tags", 'v:"a"'), '.spec.tags[="a"]'),
        (("f:spec", "i:3"), ".spec[3]"),
    ],
)
def test_shown_paths(path: tuple[str, ...], text: str) -> None:
    assert shown(path) == text


def test_comparison() -> None:
    before = {"spec": {"size": 1, "tags": ["a", "b"], "plain": ["x"]}}
    after = {"spec": {"size": 2, "tags": ["b", "c"], "plain": ["y"], "free": {"k": 1}}}
    change = Comparison(WIDGET, before, after)
    assert {shown(path) for path in change.modified} == {".spec.size", ".spec.plain"}
    assert {shown(path) for path in change.added} == {'.spec.tags[="c"]', ".spec.free", ".spec.free.k"}
    assert {shown(path) for path in change.removed} == {'.spec.tags[="a"]'}


def test_first_apply() -> None:
    obj = applied(None, config_map({"x": "1"}), "m1")
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "m1",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }
    ]


def test_nothing_new_changes_nothing() -> None:
    first = applied(None, config_map({"x": "1"}), "m1")
    assert applied(first, config_map({"x": "1"}), "m1", now=LATER) == first


def test_conflict_and_force() -> None:
    live = applied(None, config_map({"x": "1", "y": "1"}), "m1")
    before = copy.deepcopy(live)
    _, conflicts = apply(
        live, config_map({"x": "2"}), "m2", force=False, subresource="", schema=MAPS, now=NOW
    )
    assert conflict_message(conflicts) == 'Apply failed with 1 conflict: conflict with "m1": .data.x'
    assert live == before
    forced = applied(live, config_map({"x": "2"}), "m2", force=True)
    assert owners(forced) == {"m1": {"f:data": {"f:y": {}}}, "m2": {"f:data": {"f:x": {}}}}


def test_new_items_stand_where_they_were_applied() -> None:
    live = applied(None, widget({"tags": ["a", "b", "c"]}), "m1", WIDGET)
    body = widget({"tags": ["x", "b", "y"]})
    assert applied(live, body, "m2", WIDGET)["spec"]["tags"] == ["a", "x", "b", "c", "y"]
    old = applied(live, body, "m2", WIDGET, mode="1.20")
    assert old["spec"]["tags"] == ["a", "b", "c", "x", "y"]


def test_status_is_owned_apart() -> None:
    live = applied(None, widget({"size": 1}, status={"phase": "ignored"}), "m1", WIDGET)
    assert "status" not in live
    both = applied(live, widget({"size": 9}, status={"phase": "Ready"}), "m1", WIDGET, subresource="status")
    assert both["spec"] == {"size": 1}
    assert owners(both) == {"m1": {"f:spec": {"f:size": {}}}, "m1/status": {"f:status": {"f:phase": {}}}}
    assert applied(both, widget({"size": 1}), "m1", WIDGET) == both


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"zone": 1}, ".spec.zone: field not declared in schema"),
        (
            {"size": "x"},
            '.spec.size: expected numeric (int or float), got &value.valueUnstructured{Value:"x"}',
        ),
        ({"plain": "x"}, ".spec.plain: expected list, got &{x}"),
        ({"tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
    ],
)
def test_what_does_not_fit(spec: dict[str, Any], text: str) -> None:
    with pytest.raises(TypedError) as caught:
        applied(None, widget(spec), "m1", WIDGET)
    assert str(caught.value) == text


def test_updates_take_over() -> None:
    live = applied(None, config_map({"x": "1", "y": "1"}), "m1")
    after = {**live, "data": {"x": "2", "z": "3"}}
    tracked = track_update(live, after, "hand", "", LATER, schema=MAPS)
    assert owners(tracked) == {"hand": {"f:data": {"f:x": {}, "f:z": {}}}}
    assert tracked["metadata"]["managedFields"][0]["time"] == "2026-01-02T03:05:05Z"


def test_updates_without_effect() -> None:
    live = track_update(None, config_map({"x": "1"}), "maker", "", NOW, schema=MAPS)
    same = copy.deepcopy(live)
    assert track_update(live, same, "hand", "", LATER, schema=MAPS) == live


def test_owners_are_kept_without_being_sent_and_can_be_reset() -> None:
    live = applied(None, config_map({"x": "1"}), "m1")
    assert owners(track_update(live, config_map({"x": "1"}), "hand", "", LATER, schema=MAPS)) == owners(live)
    reset = track_update(live, config_map({"x": "2"}, managedFields=[{}]), "hand", "", LATER, schema=MAPS)
    assert "managedFields" not in reset["metadata"]
    untracked = track_update(reset, config_map({"x": "3"}), "hand", "", LATER, schema=MAPS)
    assert "managedFields" not in untracked["metadata"]


def test_owners_do_not_grow_without_end() -> None:
    obj = track_update(None, config_map({"k0": "0"}), "m0", "", NOW, schema=MAPS)
    for number in range(1, 30):
        after = {**obj, "data": {**obj["data"], f"k{number}": "1"}}
        obj = track_update(obj, after, f"m{number}", "", NOW.replace(minute=number), schema=MAPS)
    assert len(obj["metadata"]["managedFields"]) <= 11
    assert "ancient-changes" in owners(obj)
    owned = [path for entry in obj["metadata"]["managedFields"] for path in entry["fieldsV1"]["f:data"]]
    assert {f"f:k{number}" for number in range(30)} <= set(owned)


def test_an_old_version_trusts_no_schema_with_int_or_string() -> None:
    schema = {"type": "object", "properties": {"spec": {"x-kubernetes-int-or-string": True}}}
    assert schema_topology(schema, legacy=True) is DEDUCED
    assert schema_topology(schema).form == "struct"


DATA = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)
STEPS = st.lists(st.tuples(st.sampled_from(["m1", "m2", "up"]), DATA), min_size=1, max_size=6)


@given(STEPS)
@settings(deadline=None)
def test_every_field_of_an_applier_is_there_and_only_owned_fields_are(
    steps: list[tuple[str, dict[str, str]]],
) -> None:
    live: Any = None
    for manager, data in steps:
        if manager == "up" and live is not None:
            live = track_update(live, {**live, "data": data}, "up", "", NOW, schema=MAPS)
            continue
        live = applied(live, config_map(data), manager, force=True)
        assert data.items() <= (live.get("data") or {}).items()
        assert applied(live, config_map(data), manager, force=True) == live
    if not owners(live):
        # An object that nobody owns anything of any more is not tracked until it is applied again.
        return
    sets = [entry["fieldsV1"].get("f:data", {}) for entry in live["metadata"]["managedFields"]]
    owned = {name for fields in sets for name in fields if name != "."}
    assert owned == {f"f:{key}" for key in (live.get("data") or {})}
