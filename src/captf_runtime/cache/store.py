"""The store of one informer: objects and indexes under one lock.

Invariants:

* a reader sees an object under exactly the index values of its stored content;
* an index holds no empty bucket;
* a change is complete before anyone is told of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from captf_runtime.cache.stored import Header, StoredObject
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.objects import ObjectKey, compare_resource_versions

_SHARED_VALUES = 1024

IndexFunction = Callable[[Header], Iterable[str]]
"""Names the values under which an object is to be found. Pure; sees the header only."""


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one key.

    Args:
        old: what was stored, None for an addition.
        new: what is stored, None for a removal.
        last: the content that came with the removal, which may be newer than `old`.
    """

    old: StoredObject | None
    new: StoredObject | None
    last: StoredObject | None = None

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the object."""
        obj = self.new or self.old
        if obj is None:
            raise ValueError("a change is about an object, before or after")
        return obj.header.key


@dataclass(slots=True)
class _Index:
    function: IndexFunction
    buckets: dict[str, set[StoredObject]] = field(default_factory=dict)
    # Remembered, not computed again: a function that answers differently later must leave no remains.
    values: dict[StoredObject, tuple[str, ...]] = field(default_factory=dict)
    # Many objects have the same few values: one tuple for all.
    shared: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)


class Store:
    """Objects by namespace and name. Thread-safe.

    Args:
        on_index_failure: is told the name of an index whose function raised, and the object's header; the
            object is then indexed under nothing.
        clock: for `wait_for`.
    """

    def __init__(
        self,
        *,
        on_index_failure: Callable[[str, Header, BaseException], None] = lambda name, header, error: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._on_index_failure = on_index_failure
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0
        self._namespaces: dict[str, dict[str, StoredObject]] = {}
        self._count = 0
        self._indexes: dict[str, _Index] = {}
        self._version = ""

    def __len__(self) -> int:
        return self._count

    @property
    def version(self) -> str:
        """The version up to which the store has seen everything, "" before the first list."""
        return self._version

    # Changes ----------------------------------------------------------------------------------------

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Add an index; only while the store is empty.

        Raises:
            ValueError: the name is taken by another function, or there are objects already.
        """
        with self._changed:
            present = self._indexes.get(name)
            if present is not None:
                if present.function is function:
                    return
                raise ValueError(f"an index named {name!r} exists with another function")
            if self._count:
                raise ValueError(f"index {name!r}: indexes are added before the informer starts")
            self._indexes[name] = _Index(function)

    def put(self, obj: StoredObject, version: str = "") -> Change | None:
        """Store an object that the watch reported; None when it is not newer than what is stored."""
        with self._changed:
            header = obj.header
            old = self._find(header.namespace, header.name)
            if old is not None and not _newer(header, old.header):
                self._seen(version)
                return None
            self._put(obj, old)
            self._seen(version)
            return Change(old, obj)

    def remove(self, last: StoredObject, version: str = "") -> Change | None:
        """Remove an object that the watch reported as deleted, with its last content.

        Returns None when it is not stored, or when what is stored under its name is a later object.
        """
        with self._changed:
            header = last.header
            old = self._find(header.namespace, header.name)
            if old is not None and old.header.uid != header.uid and not _newer(header, old.header):
                old = None
            if old is not None:
                self._drop(old)
            self._seen(version)
            if old is None:
                return None
            return Change(old, None, last if last.header.uid == old.header.uid else None)

    def replace(self, objects: Iterable[StoredObject], version: str) -> list[Change]:
        """Make the store equal to a complete list, in one step; returns what that changed."""
        with self._changed:
            fresh: dict[str, dict[str, StoredObject]] = {}
            for obj in objects:
                fresh.setdefault(obj.header.namespace, {})[obj.header.name] = obj
            changes: list[Change] = []
            for namespace, names in list(self._namespaces.items()):
                kept = fresh.get(namespace, {})
                for name, old in list(names.items()):
                    if name not in kept:
                        self._drop(old)
                        changes.append(Change(old, None))
            for names in fresh.values():
                for obj in names.values():
                    found = self._find(obj.header.namespace, obj.header.name)
                    if found is obj or (found is not None and _same(found.header, obj.header)):
                        continue
                    self._put(obj, found)
                    changes.append(Change(found, obj))
            self._seen(version)
            return changes

    def advance(self, version: str) -> None:
        """Note that everything up to this version has been seen."""
        with self._changed:
            self._seen(version)

    # Reads ------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> StoredObject | None:
        """Return an object, None when there is none."""
        with self._changed:
            return self._find(namespace, name)

    def select(
        self,
        namespace: str = "",
        *,
        index: tuple[str, str] | None = None,
        matches: Callable[[Header], bool] | None = None,
    ) -> list[StoredObject]:
        """Return objects in the order of namespace and name.

        Args:
            namespace: "" for all.
            index: name of an index and the value to look up.
            matches: a further condition on the header.

        Raises:
            KeyError: there is no such index.
        """
        with self._changed:
            found: Iterable[StoredObject]
            if index is not None:
                found = list(self._indexes[index[0]].buckets.get(index[1], ()))
                if namespace:
                    found = [obj for obj in found if obj.header.namespace == namespace]
            elif namespace:
                found = list(self._namespaces.get(namespace, {}).values())
            else:
                found = [obj for names in self._namespaces.values() for obj in names.values()]
        if matches is not None:
            found = [obj for obj in found if matches(obj.header)]
        return sorted(found, key=lambda obj: (obj.header.namespace, obj.header.name))

    def snapshot(self) -> list[StoredObject]:
        """Return all objects, in no particular order."""
        with self._changed:
            return [obj for names in self._namespaces.values() for obj in names.values()]

    def has_index(self, name: str) -> bool:
        """Say whether there is an index of this name."""
        with self._changed:
            return name in self._indexes

    def index_values(self, name: str) -> set[str]:
        """Return the values of an index that hold at least one object. Raises KeyError without the index."""
        with self._changed:
            return set(self._indexes[name].buckets)

    def wait_for(self, predicate: Callable[[Store], bool], timeout: float) -> bool:
        """Block until `predicate` holds; it is called under the lock after changes. False at the timeout."""
        deadline = self._clock.monotonic() + timeout
        with self._changed:
            self._waiting += 1
            try:
                while not predicate(self):
                    left = deadline - self._clock.monotonic()
                    if left <= 0:
                        return False
                    self._clock.wait_condition(self._changed, left)
                return True
            finally:
                self._waiting -= 1

    def peek(self, namespace: str, name: str) -> StoredObject | None:
        """Like `get`, for a predicate of `wait_for`, which already holds the lock."""
        return self._find(namespace, name)

    # Under the lock ---------------------------------------------------------------------------------

    def _find(self, namespace: str, name: str) -> StoredObject | None:
        names = self._namespaces.get(namespace)
        return None if names is None else names.get(name)

    def _put(self, obj: StoredObject, old: StoredObject | None) -> None:
        if old is not None:
            self._unindex(old)
        else:
            self._count += 1
        self._namespaces.setdefault(obj.header.namespace, {})[obj.header.name] = obj
        for name, index in self._indexes.items():
            values = self._values(name, index, obj)
            if values:
                if len(index.shared) >= _SHARED_VALUES:
                    index.shared.clear()
                values = index.shared.setdefault(values, values)
                index.values[obj] = values
                for value in values:
                    index.buckets.setdefault(value, set()).add(obj)

    def _drop(self, old: StoredObject) -> None:
        names = self._namespaces[old.header.namespace]
        del names[old.header.name]
        if not names:
            del self._namespaces[old.header.namespace]
        self._count -= 1
        self._unindex(old)

    def _unindex(self, old: StoredObject) -> None:
        for index in self._indexes.values():
            for value in index.values.pop(old, ()):
                bucket = index.buckets[value]
                bucket.discard(old)
                if not bucket:
                    del index.buckets[value]

    def _values(self, name: str, index: _Index, obj: StoredObject) -> tuple[str, ...]:
        try:
            return tuple(dict.fromkeys(index.function(obj.header)))
        except BaseException as error:  # noqa: BLE001 - a foreign function must not stop the cache
            self._on_index_failure(name, obj.header, error)
            return ()

    def _seen(self, version: str) -> None:
        if version:
            self._version = version
        if self._waiting:
            self._changed.notify_all()


def _same(old: Header, new: Header) -> bool:
    return old.uid == new.uid and old.resource_version == new.resource_version and old.resource_version != ""


def _newer(new: Header, old: Header) -> bool:
    """Say whether a reported object is to take the place of the stored one.

    A watch that was opened again may repeat events; an older state must not come back. What cannot be
    compared counts as newer.
    """
    order = compare_resource_versions(new.resource_version, old.resource_version)
    if order is None:
        return not _same(old, new)
    return order > 0
