"""What a list answers: decoded objects, or the raw bytes of each item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from captf_runtime.client.nesting import TooDeep, cut, is_deep
from captf_runtime.objects import Kind, Object


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A list or one page of it.

    Args:
        items: the objects, each with `kind` and `apiVersion`.
        resource_version: the version of the whole list, the same on every page.
        continue_token: names the next page; "" on the last one and on a complete list.
        remaining: how many items the server says are left, None when it does not.
        restarted: the pages before this one expired and must be dropped; this one holds everything.
    """

    items: list[Object] = field(repr=False)
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None
    restarted: bool = False

    def __iter__(self) -> Iterator[Object]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, obj: object) -> bool:
        return obj in self.items


@dataclass(frozen=True, slots=True)
class RawPage:
    """One page of a list whose items were not decoded.

    Args:
        items: the JSON of each item, as views into the page: they keep the whole page in memory, so copy
            what is to stay.

    The other fields are those of `ObjectList`.
    """

    items: list[msgspec.Raw] = field(repr=False)
    resource_version: str
    continue_token: str = ""
    restarted: bool = False


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None


class _DecodedList(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[dict[str, Any]] | None = None


class _RawList(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Skeleton(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[int] | None = None


_LIST_LEVELS = 2
"""Levels above the items of a list."""
_METADATA_LEVELS = 4
"""Levels of an object down to the fields of its owner references."""

_decode_list = msgspec.json.Decoder(_DecodedList).decode
_decode_skeleton = msgspec.json.Decoder(_Skeleton).decode
_decode_item = cast("Callable[[bytes], Object]", msgspec.json.Decoder(dict).decode)
_decode_raw = msgspec.json.Decoder(_RawList).decode


def fill_kind(obj: Object, kind: Kind, *, metadata_only: bool = False) -> Object:
    """Give an object the kind that it was asked for under.

    Items of lists of built-in kinds come without `kind` and `apiVersion`; metadata-only objects come as
    `PartialObjectMetadata`.
    """
    if metadata_only or not obj.get("kind"):
        obj["kind"] = kind.kind
    if metadata_only or not obj.get("apiVersion"):
        obj["apiVersion"] = kind.api_version
    return obj


def decode_page(data: bytes, kind: Kind, *, metadata_only: bool, restarted: bool) -> ObjectList:
    """Decode a list answer.

    Of an object that is nested too deeply (see `nesting`) only metadata can be had; then `managedFields` and
    whatever else is that deep holds numbers that mean nothing.

    Raises:
        msgspec.DecodeError: it is not a list, or holds a whole object that is nested too deeply.
    """
    try:
        decoded = _decode_list(data)
        meta, items = decoded.metadata, decoded.items or []
    except RecursionError:
        meta, parts = _items_apart(data)
        items = [_decode_item(_metadata_of(part) if metadata_only else _shallow(part)) for part in parts]
    for item in items:
        fill_kind(item, kind, metadata_only=metadata_only)
    return ObjectList(
        items, meta.resource_version or "", meta.continue_ or "", meta.remaining_item_count, restarted
    )


def split_page(data: bytes, restarted: bool) -> RawPage:
    """Split a list answer into the raw JSON of its items.

    An item that is nested too deeply is one of them all the same.

    Raises:
        msgspec.DecodeError: it is not a list.
    """
    try:
        decoded = _decode_raw(data)
        meta, items = decoded.metadata, decoded.items or []
    except RecursionError:
        meta, parts = _items_apart(data)
        items = [msgspec.Raw(part) for part in parts]
    return RawPage(items, meta.resource_version or "", meta.continue_ or "", restarted)


def _items_apart(data: bytes) -> tuple[_ListMeta, list[bytes]]:
    text, parts = cut(data, _LIST_LEVELS)
    skeleton = _decode_skeleton(text)
    return skeleton.metadata, [parts[place] for place in skeleton.items or ()]


def _metadata_of(item: bytes) -> bytes:
    return cut(item, _METADATA_LEVELS)[0] if is_deep(item) else item


def _shallow(item: bytes) -> bytes:
    if is_deep(item):
        raise TooDeep("an object of the list is nested too deeply")
    return item
