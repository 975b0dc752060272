"""How an object is kept: the bytes that the server sent, beside a small header.

Decoded, an object of two kilobytes takes ten times that much memory, and whoever gets the decoded object can
spoil it for everyone else. So the cache decodes the few metadata fields that selectors, indexes and
predicates need, and keeps the rest as it came.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import msgspec

from captf_runtime.client.lists import fill_kind
from captf_runtime.client.nesting import TooDeep, cut
from captf_runtime.objects import Kind, Object, ObjectKey, OwnerReference

_MANAGED_FIELDS = b'"managedFields":'
_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_SHARED_LABEL_SETS = 1024
_label_sets: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}


class Header(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The part of an object's metadata that is kept decoded.

    Args:
        namespace: "" for cluster-scoped kinds.
        generation: 0 for kinds without one.
        labels: cannot be changed; objects with equal labels share them.
        deletion_timestamp: RFC 3339 text, "" while the object is not being deleted.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    labels: Mapping[str, str]
    owner_references: tuple[OwnerReference, ...]
    deletion_timestamp: str

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def is_deleting(self) -> bool:
        """True once the object bears a deletionTimestamp."""
        return self.deletion_timestamp != ""

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference whose `controller` is true, if there is one."""
        return next((reference for reference in self.owner_references if reference.controller), None)


@dataclass(frozen=True, slots=True)
class Form:
    """In which form the objects of an informer are kept; one instance is shared by all of them."""

    kind: Kind
    metadata_only: bool = False


class StoredObject(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One object of the cache. Immutable; a change of the object makes a new one.

    Args:
        header: the decoded metadata.
        data: the object's JSON without `managedFields`; may lack `kind` and `apiVersion`.
        form: the real kind.
    """

    header: Header
    data: bytes
    form: Form

    def __repr__(self) -> str:
        # Without the content, which may be a Secret's.
        header = self.header
        return f"<{self.form.kind} {header.key} version {header.resource_version} uid {header.uid}>"

    @property
    def kind(self) -> Kind:
        """The real kind."""
        return self.form.kind

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return self.header.key

    def decode(self) -> Object:
        """Return a fresh copy, which the caller may change."""
        return fill_kind(_decode_object(self.data), self.form.kind, metadata_only=self.form.metadata_only)


class _Owner(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None
    managed_fields: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Item(msgspec.Struct):
    metadata: _Metadata


class _Skipped(msgspec.Struct):
    pass


# How many levels the decoder takes depends on the stack above it. What is stored under so many more can also be
# decoded by a reader whose stack is that much deeper than the reflector's.
_RESERVE = 100
_RESERVE_HEAD = b'{"":' + b"[" * (_RESERVE - 1)
_RESERVE_TAIL = b"]" * (_RESERVE - 1) + b"}"
_skip = msgspec.json.Decoder(_Skipped).decode


_HEADER_LEVELS = 4
"""Levels of an object down to the fields of its owner references."""

_decode_item = msgspec.json.Decoder(_Item).decode
_decode_object = cast("Callable[[bytes], Object]", msgspec.json.Decoder(dict).decode)
_encode = msgspec.json.Encoder().encode


def store_raw(raw: msgspec.Raw | bytes, form: Form) -> StoredObject:
    """Make the stored form of an object from its JSON: header, and bytes less `managedFields`.

    The result keeps nothing of what `raw` is a part of.

    Raises:
        TooDeep: the object is nested so deeply that not every reader could decode it.
        msgspec.DecodeError: not an object with a name, or a metadata field of a wrong type.
    """
    data = bytes(raw)
    try:
        metadata = _decode_item(data).metadata
        _skip(_RESERVE_HEAD + data + _RESERVE_TAIL)
    except RecursionError:
        raise TooDeep("the object is nested too deeply") from None
    managed = bytes(metadata.managed_fields)
    if managed:
        data = _without_managed_fields(data, managed)
    return StoredObject(_header(metadata), data, form)


def store_object(obj: Object, form: Form) -> StoredObject:
    """Make the stored form of a decoded object. Raises like `store_raw`."""
    return store_raw(_encode(obj), form)


def store_header(raw: bytes, form: Form) -> StoredObject:
    """Make a stored form that is good for its header alone, of an object that is nested too deeply.

    Raises:
        msgspec.DecodeError: not an object with a name, or a metadata field of a wrong type.
    """
    data, _ = cut(raw, _HEADER_LEVELS)
    return StoredObject(_header(_decode_item(data).metadata), data, form)


def _header(metadata: _Metadata) -> Header:
    owners: tuple[OwnerReference, ...] = ()
    if metadata.owner_references:
        owners = tuple(
            OwnerReference(
                owner.api_version,
                owner.kind,
                owner.name,
                owner.uid,
                owner.controller is True,
                owner.block_owner_deletion is True,
            )
            for owner in metadata.owner_references
        )
    return Header(
        # Thousands of objects share few namespaces: one text for all.
        sys.intern(metadata.namespace) if metadata.namespace else "",
        metadata.name,
        metadata.uid or "",
        metadata.resource_version or "",
        metadata.generation or 0,
        _shared(metadata.labels) if metadata.labels else _NO_LABELS,
        owners,
        metadata.deletion_timestamp or "",
    )


def _shared(labels: dict[str, str]) -> Mapping[str, str]:
    """Return one mapping for all objects with these labels: one for each would cost more than the rest."""
    items = tuple(labels.items())
    found = _label_sets.get(items)
    if found is None:
        if len(_label_sets) >= _SHARED_LABEL_SETS:
            _label_sets.clear()
        found = _label_sets[items] = MappingProxyType(labels)
    return found


def _without_managed_fields(data: bytes, managed: bytes) -> bytes:
    """Cut the entry out of the text, which is ten times quicker than decoding and encoding it.

    The entry is found by its full text. Should that occur twice (an object may hold another object's text
    only escaped, but a key of the same name elsewhere may hold an equal value), the long way is taken.
    """
    entry = _MANAGED_FIELDS + managed
    start = data.find(entry)
    if start >= 0 and data.find(entry, start + 1) < 0:
        end = start + len(entry)
        if data[start - 1 : start] == b",":
            return data[: start - 1] + data[end:]
        if data[start - 1 : start] == b"{":
            if data[end : end + 1] == b",":
                return data[:start] + data[end + 1 :]
            if data[end : end + 1] == b"}":
                return data[:start] + data[end:]
    obj = _decode_object(data)
    del obj["metadata"]["managedFields"]
    return _encode(obj)
