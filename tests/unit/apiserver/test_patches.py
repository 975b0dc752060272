"""Merge patch by the cases of RFC 7386, JSON patch by those of RFC 6902, strategic merge patch by its directives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_runtime.testing.apiserver.patches import apply_json_patch, merge
from captf_runtime.testing.apiserver.shapes import kind_schema
from captf_runtime.testing.apiserver.status import ApiStatus
from captf_runtime.testing.apiserver.strategic import merge as strategic


@pytest.mark.requirement("AS13")
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert merge(target, patch) == result


@pytest.mark.requirement("AS13")
@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        (
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "qux"}],
            {"foo": ["bar", "qux", "baz"]},
        ),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        (
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
            {"baz": "qux", "foo": ["a", 2, "c"]},
        ),
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/child", "value": {"g": {}}}],
            {"foo": "bar", "child": {"g": {}}},
        ),
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
            {"foo": "bar", "baz": "qux"},
        ),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ],
)
def test_json_patch(document: Any, operations: Any, result: Any) -> None:
    before = repr(document)
    assert apply_json_patch(document, operations) == result
    assert repr(document) == before


@pytest.mark.requirement("AS13")
@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/baz", "value": "bar"},
        {"op": "test", "path": "/one", "value": True},
        {"op": "add", "path": "/absent/bat", "value": "qux"},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "remove", "path": "/absent"},
        {"op": "replace", "path": "/absent", "value": 1},
        {"op": "move", "from": "/absent", "path": "/x"},
        {"op": "spam", "path": "/a"},
        {"op": "add", "path": "no-pointer", "value": 1},
        {"op": "add", "path": "/x"},
        "no object",
    ],
)
def test_json_patches_that_cannot_be_applied(operation: Any) -> None:
    with pytest.raises(ApiStatus) as refused:
        apply_json_patch({"baz": "qux", "one": 1, "list": [1]}, [operation])
    assert refused.value.code == 422


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=4))
def test_a_merge_patch_is_idempotent(patch: dict[str, int]) -> None:
    once = merge({"a": 1, "b": {"c": 2}}, patch)
    assert merge(once, patch) == once


POD = kind_schema("v1", "Pod") or {}


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(containers)}}


def container_names(found: dict[str, Any]) -> list[str]:
    return [c["name"] for c in found["spec"]["containers"]]


@pytest.mark.requirement("AS13")
def test_items_merge_by_key_and_new_ones_come_first() -> None:
    current = pod({"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "1"})
    found = strategic(POD, current, pod({"name": "a", "image": "2"}, {"name": "c", "image": "3"}))
    assert container_names(found) == ["a", "c", "b"]
    assert found["spec"]["containers"][0] == {"name": "a", "image": "2", "args": ["x"]}
    assert container_names(current) == ["a", "b"]


@pytest.mark.requirement("AS13")
def test_directives() -> None:
    current = pod({"name": "a", "image": "1"}, {"name": "b", "image": "1"})
    assert container_names(strategic(POD, current, pod({"name": "a", "$patch": "delete"}))) == ["b"]
    assert container_names(strategic(POD, current, pod({"$patch": "replace"}, {"name": "z"}))) == ["z"]
    ordered = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert container_names(strategic(POD, current, ordered)) == ["b", "a"]
    volume = {"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}}
    replaced = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}}
    assert strategic(POD, volume, replaced)["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
    sets = {"metadata": {"finalizers": ["a/x", "a/y"]}}
    patch = {"metadata": {"finalizers": ["a/z"], "$deleteFromPrimitiveList/finalizers": ["a/x"]}}
    assert sorted(strategic(POD, sets, patch)["metadata"]["finalizers"]) == ["a/y", "a/z"]
    assert strategic(POD, current, {"spec": {"$patch": "replace", "x": 1}}) == {"spec": {"x": 1}}


@pytest.mark.requirement("AS13")
def test_lists_without_a_key_are_replaced_and_nulls_delete() -> None:
    current = pod({"name": "a", "args": ["x", "y"]})
    found = strategic(POD, current, pod({"name": "a", "args": ["z"]}))
    assert found["spec"]["containers"][0]["args"] == ["z"]
    assert strategic(POD, current, {"spec": None}) == {}


@pytest.mark.requirement("AS13")
def test_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(ApiStatus, match="does not contain declared merge key: name"):
        strategic(POD, pod(), pod({"image": "x"}))
