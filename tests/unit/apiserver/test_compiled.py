"""Properties of pruning, defaulting and validation; the texts are proven by the conformance cases."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captf_runtime.testing.apiserver.schema import compile_schema, default_crd, validate_crd

pytestmark = pytest.mark.requirement("AS16")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "a": {"type": "string", "default": "x", "maxLength": 3},
                "b": {"type": "integer", "minimum": 0},
                "c": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"d": {"type": "boolean", "default": True}}},
                },
                "m": {"type": "object", "additionalProperties": {"type": "string", "nullable": True}},
                "k": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["n"],
                    "items": {
                        "type": "object",
                        "required": ["n"],
                        "properties": {"n": {"type": "string"}, "v": {"type": "integer", "maximum": 5}},
                    },
                },
                "free": {"x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text("ab", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdkmnv"), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.fixed_dictionaries({"metadata": st.just({"name": "o"}), "spec": JSON, "other": JSON})


@pytest.mark.parametrize("mode", ["modern", "1.20"])
@given(OBJECTS)
@settings(max_examples=150, deadline=None)
def test_pruning_and_defaulting_settle(mode: str, obj: dict[str, Any]) -> None:
    compiled = compile_schema(SCHEMA, mode="1.20" if mode == "1.20" else "modern")
    compiled.prune(obj)
    compiled.apply_defaults(obj)
    once = copy.deepcopy(obj)
    assert compiled.prune(obj) == []
    compiled.apply_defaults(obj)
    assert obj == once
    assert obj["metadata"] == {"name": "o"}


@given(OBJECTS)
@settings(max_examples=150, deadline=None)
def test_validation_changes_nothing_and_forgives_what_did_not_change(obj: dict[str, Any]) -> None:
    compiled = compile_schema(SCHEMA)
    before = copy.deepcopy(obj)
    compiled.validate(obj)
    assert obj == before
    assert [
        cause for cause in compiled.validate(obj, copy.deepcopy(obj)) if cause.reason != "FieldValueDuplicate"
    ] == []


def test_pruned_paths() -> None:
    obj = {"spec": {"zz": 1, "c": [{"d": True, "q": 1}], "k": [{"n": "a", "w": {}}]}, "top": 1}
    assert compile_schema(SCHEMA).prune(obj) == ["spec.c[0].q", "spec.k[0].w", "spec.zz", "top"]
    assert obj == {"spec": {"c": [{"d": True}], "k": [{"n": "a"}]}}


def test_unchanged_items_are_forgiven_by_key() -> None:
    compiled = compile_schema(SCHEMA)
    old = {"spec": {"k": [{"n": "bad", "v": 9}, {"n": "good", "v": 1}]}}
    moved = {"spec": {"k": [{"n": "good", "v": 2}, {"n": "bad", "v": 9}]}}
    assert compiled.validate(moved, old) == []
    worse = {"spec": {"k": [{"n": "good", "v": 7}, {"n": "bad", "v": 9}]}}
    assert [cause.field for cause in compiled.validate(worse, old)] == ["spec.k[0].v"]
    assert [cause.field for cause in compile_schema(SCHEMA, mode="1.20").validate(moved, old)] == ["spec.k.v"]


def test_required_at_the_root() -> None:
    [cause] = compile_schema(SCHEMA).validate({"metadata": {}})
    assert str(cause) == "spec: Required value"


def definition(**changes: Any) -> dict[str, Any]:
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
        **changes,
    }
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


@pytest.mark.requirement("AS15")
def test_defaults_of_a_definition() -> None:
    crd = definition()
    default_crd(crd)
    assert crd["spec"]["names"] == {
        "plural": "things",
        "kind": "Thing",
        "singular": "thing",
        "listKind": "ThingList",
    }
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert crd["status"]["storedVersions"] == ["v1"]
    assert validate_crd(crd) == []


@pytest.mark.requirement("AS15")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"group": "other.com"}, "spec.group"),
        ({"scope": "Cluster"}, "spec.scope"),
        ({"names": {"plural": "things", "kind": "Other"}}, "spec.names.kind"),
    ],
)
def test_what_identifies_a_definition_is_immutable(changes: dict[str, Any], field: str) -> None:
    old, new = definition(), definition(**changes)
    for crd in (old, new):
        default_crd(crd)
    old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    assert field in [cause.field for cause in validate_crd(new, old) if "immutable" in cause.message]
    del old["status"]["conditions"]
    if field != "spec.group":
        assert field not in [cause.field for cause in validate_crd(new, old)]


@pytest.mark.requirement("AS15")
def test_versions_with_schemas_of_their_own_are_named() -> None:
    crd = definition()
    second = {"name": "v2", "served": True, "storage": False}
    second["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}
    crd["spec"]["versions"].append(second)
    default_crd(crd)
    [cause] = validate_crd(crd)
    assert cause.field == "spec.versions[1].schema.openAPIV3Schema.properties[a].type"
