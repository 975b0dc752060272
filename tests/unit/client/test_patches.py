from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_runtime.client import merge_from
from captf_runtime.objects import Object

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text("ab", max_size=2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(["spec", "status", "data", "x"]), values, max_size=4)


def apply(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply(result.get(key), value)
    return result


def without_nulls(value: Any) -> Any:
    """What a server that drops nulls of maps stores; nulls inside lists stay."""
    if not isinstance(value, dict):
        return value
    return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}


@pytest.mark.requirement("CL8")
@given(objects, objects)
def test_the_patch_turns_before_into_after(before: Object, after: Object) -> None:
    kept = copy.deepcopy((before, after))
    patch = merge_from(before, after)
    assert without_nulls(apply(before, patch)) == without_nulls(after)
    assert (before, after) == kept
    if without_nulls(before) == before and before == after:
        assert patch == {}


@pytest.mark.requirement("CL8")
def test_the_patch_is_minimal_and_nulls_what_is_gone_or_none() -> None:
    before = {"spec": {"a": 1, "b": {"c": [1], "d": 2}, "e": 3}, "data": {"x": "1"}}
    after = {"spec": {"a": 1, "b": {"c": [1, 2], "d": 2}, "e": None}}
    assert merge_from(before, after) == {"spec": {"b": {"c": [1, 2]}, "e": None}, "data": None}


@pytest.mark.requirement("CL8")
def test_booleans_and_numbers_differ() -> None:
    assert merge_from({"spec": {"a": 1}}, {"spec": {"a": True}}) == {"spec": {"a": True}}
    assert merge_from({"spec": {"a": [0]}}, {"spec": {"a": [False]}}) == {"spec": {"a": [False]}}


@pytest.mark.requirement("CL8")
def test_the_lock_carries_the_version_of_before_and_only_with_a_change() -> None:
    before = {"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"a": 1}}
    after = {"metadata": {"name": "a", "resourceVersion": "9"}, "spec": {"a": 2}}
    assert merge_from(before, after) == {"spec": {"a": 2}}
    assert merge_from(before, after, optimistic_lock=True) == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"a": 2},
    }
    assert merge_from(before, {**before}, optimistic_lock=True) == {}
    with pytest.raises(ValueError, match="resourceVersion"):
        merge_from({"spec": {"a": 1}}, after, optimistic_lock=True)
