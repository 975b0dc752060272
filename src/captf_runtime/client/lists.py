"""What a list answers: decoded objects, or the raw bytes of each item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

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


_decode_list = msgspec.json.Decoder(_DecodedList).decode
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

    Raises:
        msgspec.DecodeError: it is not a list.
    """
    decoded = _decode_list(data)
    items = decoded.items or []
    for item in items:
        fill_kind(item, kind, metadata_only=metadata_only)
    meta = decoded.metadata
    return ObjectList(
        items, meta.resource_version or "", meta.continue_ or "", meta.remaining_item_count, restarted
    )


def split_page(data: bytes, restarted: bool) -> RawPage:
    """Split a list answer into the raw JSON of its items.

    Raises:
        msgspec.DecodeError: it is not a list.
    """
    decoded = _decode_raw(data)
    meta = decoded.metadata
    return RawPage(decoded.items or [], meta.resource_version or "", meta.continue_ or "", restarted)
