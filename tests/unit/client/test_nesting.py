"""JSON nested deeper than the decoder goes: one object of a tenant must not stop the reading of the others."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_runtime.cache import Form, store_raw
from captf_runtime.cache.stored import store_header
from captf_runtime.client.lists import decode_page, split_page
from captf_runtime.client.nesting import MAX_DEPTH, TooDeep, cut, is_deep
from captf_runtime.objects import SECRET

FORM = Form(SECRET)
OTHER = b'{"metadata":{"name":"other","labels":{"a":"]}"}}}'

values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(alphabet='a"\\[]{}\n', max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(alphabet='k"[}', max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


def deep(levels: int, where: str = "spec") -> bytes:
    """An object with one value of so many levels, in its spec or among its managed fields."""
    value = b'{"f:a":' * levels + b"1" + b"}" * levels
    meta = b'"name":"deep","namespace":"t","uid":"u","resourceVersion":"5","labels":{"l":"1"}'
    if where == "spec":
        return b'{"metadata":{' + meta + b'},"spec":{"variables":' + value + b"}}"
    return b'{"metadata":{' + meta + b',"managedFields":[{"fieldsV1":' + value + b"}]}}"


def page_of(*items: bytes) -> bytes:
    return b'{"metadata":{"resourceVersion":"9","continue":"c"},"items":[' + b",".join(items) + b"]}"


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(value=values, limit=st.integers(0, 4))
def test_depth_is_that_of_the_value(value: object, limit: int) -> None:
    assert is_deep(json.dumps(value).encode(), limit) == (depth_of(value) > limit)


@given(value=values, depth=st.integers(0, 4))
def test_a_cut_takes_off_what_is_below_and_nothing_else(value: object, depth: int) -> None:
    text, parts = cut(json.dumps(value).encode(), depth)
    assert depth_of(json.loads(text)) == min(depth_of(value), depth)

    def expected(part: object, level: int) -> object:
        if level > depth and isinstance(part, (dict, list)):
            found.append(part)
            return len(found) - 1
        if isinstance(part, dict):
            return {key: expected(item, level + 1) for key, item in part.items()}
        return [expected(item, level + 1) for item in part] if isinstance(part, list) else part

    found: list[object] = []
    assert json.loads(text) == expected(value, 1)
    assert [json.loads(part) for part in parts] == found


@pytest.mark.parametrize("data", [b"[[[", b"]", b"[]]", b"{[}{", b'["]'])
def test_brackets_that_do_not_match(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(cut(data, 1)[0])


@pytest.mark.parametrize("where", ["spec", "managedFields"])
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1500, 9_000])
def test_a_page_keeps_its_other_items(levels: int, where: str) -> None:
    page = split_page(page_of(deep(levels, where), OTHER), False)
    assert [bytes(item) for item in page.items] == [deep(levels, where), OTHER]
    assert (page.resource_version, page.continue_token) == ("9", "c")


@pytest.mark.parametrize("where", ["spec", "managedFields"])
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1500, 9_000])
def test_the_metadata_of_a_deep_object_is_read(levels: int, where: str) -> None:
    page = decode_page(page_of(deep(levels, where), OTHER), SECRET, metadata_only=True, restarted=False)
    assert [(item["metadata"]["name"], item["metadata"]["labels"]) for item in page.items] == [
        ("deep", {"l": "1"}),
        ("other", {"a": "]}"}),
    ]


def test_a_whole_object_is_never_told_without_its_depths() -> None:
    with pytest.raises(TooDeep):
        decode_page(page_of(deep(1500), OTHER), SECRET, metadata_only=False, restarted=False)


@pytest.mark.parametrize("where", ["spec", "managedFields"])
@pytest.mark.parametrize("levels", [1000, 1500, 9_000])
def test_the_store_refuses_it_and_knows_its_header(levels: int, where: str) -> None:
    with pytest.raises(TooDeep):
        store_raw(deep(levels, where), FORM)
    header = store_header(deep(levels, where), FORM).header
    assert (header.namespace, header.name, header.uid, header.resource_version) == ("t", "deep", "u", "5")
    assert header.labels == {"l": "1"}


def test_the_store_takes_what_every_reader_can_decode() -> None:
    def decoded(frames: int) -> str:
        return decoded(frames - 1) if frames else str(found.decode()["metadata"]["name"])

    levels = 1
    while True:
        try:
            found = store_raw(deep(levels), FORM)
        except TooDeep:
            break
        assert decoded(80) == "deep"
        levels += 37
    assert levels > MAX_DEPTH
