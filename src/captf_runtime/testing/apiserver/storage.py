"""The versioned store: every stored change takes the next number of one counter.

Invariants:

* A `Record` and the object in it are never changed once stored; who wants to change one decodes a copy.
* The counter grows by one with every stored change, whatever the table; versions are never reused.
* `Table.history` holds, in order and without gaps, every change whose version is over `Table.compacted`. A list
  at an older version is therefore the present, taken back change by change.
* Watchers are told under the lock, so that each sees every change once, in order.
* What no longer stands is kept as JSON alone, and of that at most `history_bytes`: the decoded form of an object
  takes many times the memory of its JSON, and history is rarely asked for.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from captf_runtime.objects import Object

HISTORY_BYTES = 64 * 2**20

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_canonical = msgspec.json.Encoder(order="deterministic").encode  # tells 1 from True, unlike ==


class Missing(Exception):
    """There is nothing under the key."""


class Exists(Exception):
    """The key is taken; `record` is what stands there."""

    def __init__(self, record: Record) -> None:
        super().__init__(record.key)
        self.record = record


class Stale(Exception):
    """The stored version is not the expected one."""


class Compacted(Exception):
    """History no longer reaches back to the version; `oldest` is the first version that a watch may name."""

    def __init__(self, oldest: int) -> None:
        super().__init__(oldest)
        self.oldest = oldest


class Record:
    """One stored object, read only; `raw` is its JSON, without kind and apiVersion."""

    __slots__ = ("_object", "_views", "key", "name", "namespace", "raw", "version")

    def __init__(self, key: str, namespace: str, name: str, version: int, object: Object, raw: bytes) -> None:
        self.key = key
        self.namespace = namespace
        self.name = name
        self.version = version
        self.raw = raw
        self._object: Object | None = object
        self._views: dict[tuple[str, int], bytes] = {}

    @property
    def object(self) -> Object:
        """The object without kind and apiVersion, read only; decoded at each look once it has been retired."""
        found = self._object
        return found if found is not None else self.copy()

    def view(self, form: tuple[str, int], render: Callable[[], bytes]) -> bytes:
        """The object in another form, which is rendered once as long as the record stands."""
        found = self._views.get(form)
        if found is None:
            found = render()
            if self._object is not None:
                self._views[form] = found
        return found

    def retire(self) -> None:
        """Keep the JSON alone: the record is history."""
        self._object = None
        self._views = {}

    def copy(self) -> Object:
        """A fresh copy of the object that the caller may change."""
        decoded: Object = _decode(self.raw)
        return decoded


@dataclass(frozen=True, slots=True)
class Change:
    """One stored change. `record` is the new state (for DELETED the last one, with the version of the delete)."""

    type: ChangeType
    version: int
    record: Record
    previous: Record | None


class Listener(Protocol):
    """What is told about changes, under the store's lock: it must neither block nor call back."""

    def notify(self, change: Change) -> None: ...
    def dismiss(self) -> None: ...
    def cut(self) -> None: ...


@dataclass(slots=True)
class Table:
    """All objects of one stored resource."""

    records: dict[str, Record] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    history: deque[Change] = field(default_factory=deque)
    compacted: int = 0
    listeners: list[Listener] = field(default_factory=list)
    dismissals: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a store at one moment; records are shared, never copied."""

    revision: int
    tables: dict[str, dict[str, Record]]


def make_key(namespace: str, name: str) -> str:
    """The key of an object inside its table; its order is the order of lists."""
    return f"{namespace}/{name}" if namespace else name


class Store:
    """Tables of records under one lock and one version counter.

    `history_limit` bounds the changes kept for each table and `history_bytes` the JSON in the changes of all
    tables together, of which the oldest go first. Observers registered with `observe` are told of every change of
    any table after it is stored, under the lock.
    """

    def __init__(
        self, *, history_limit: int = 10_000, history_bytes: int = HISTORY_BYTES, first_revision: int = 1
    ) -> None:
        self.lock = threading.RLock()
        self._revision = first_revision
        self._tables: dict[str, Table] = {}
        self._history_limit = history_limit
        self._history_bytes = history_bytes
        self._history_size = 0
        self._compacted = 0
        self._observers: list[Callable[[str, Change], None]] = []

    @property
    def revision(self) -> int:
        """The version of the latest stored change."""
        return self._revision

    def observe(self, observer: Callable[[str, Change], None]) -> None:
        """Call `observer(table, change)` for every change from now on, under the lock."""
        self._observers.append(observer)

    def table(self, name: str) -> Table:
        """The table of that name, empty when nothing was ever stored in it."""
        with self.lock:
            found = self._tables.get(name)
            if found is None:
                found = self._tables[name] = Table(compacted=self._compacted)
            return found

    def tables(self) -> list[str]:
        """Names of the tables that exist."""
        with self.lock:
            return list(self._tables)

    def get(self, table: str, namespace: str, name: str) -> Record | None:
        """The record, or None."""
        found = self._tables.get(table)
        return None if found is None else found.records.get(make_key(namespace, name))

    def list(self, table: str, namespace: str = "", *, revision: int | None = None) -> list[Record]:
        """Records in key order, of one namespace or of all; `revision` asks for the state at that version.

        Raises `Compacted` when history does not reach back to `revision`.
        """
        with self.lock:
            target = self.table(table)
            if revision is None or revision >= self._revision:
                keys = target.keys
                if namespace:
                    prefix = f"{namespace}/"
                    keys = keys[bisect_left(keys, prefix) : bisect_left(keys, prefix + "\U0010ffff")]
                return [target.records[key] for key in keys]
            if revision < target.compacted:
                raise Compacted(target.compacted)
            past = dict(target.records)
            for change in reversed(target.history):
                if change.version <= revision:
                    break
                if change.previous is None:
                    past.pop(change.record.key, None)
                else:
                    past[change.record.key] = change.previous
            return [past[key] for key in sorted(past) if not namespace or past[key].namespace == namespace]

    def create(self, table: str, namespace: str, name: str, obj: Object) -> Record:
        """Store a new object; its resourceVersion is set. Raises `Exists`."""
        with self.lock:
            target = self.table(table)
            key = make_key(namespace, name)
            present = target.records.get(key)
            if present is not None:
                raise Exists(present)
            record = self._record(key, namespace, name, obj)
            insort(target.keys, key)
            target.records[key] = record
            self._commit(table, target, Change("ADDED", record.version, record, None))
            return record

    def replace(self, table: str, current: Record, obj: Object) -> Record:
        """Store a new state over `current`. Raises `Missing` or `Stale` when that is no longer what stands there.

        An object equal to the stored one changes nothing: the present record comes back.
        """
        with self.lock:
            target = self.table(table)
            self._expect(target, current)
            obj["metadata"]["resourceVersion"] = str(current.version)
            if obj == current.object and _canonical(obj) == _canonical(current.object):
                return current
            record = self._record(current.key, current.namespace, current.name, obj)
            target.records[current.key] = record
            self._commit(table, target, Change("MODIFIED", record.version, record, current))
            return record

    def remove(self, table: str, current: Record, final: Object | None = None) -> Record:
        """Take `current` away; `final` is the last state that watchers see (default: the stored one)."""
        with self.lock:
            target = self.table(table)
            self._expect(target, current)
            record = self._record(
                current.key, current.namespace, current.name, current.copy() if final is None else final
            )
            del target.records[current.key]
            del target.keys[bisect_left(target.keys, current.key)]
            self._commit(table, target, Change("DELETED", record.version, record, current))
            return record

    def changes_since(self, table: str, revision: int) -> Iterator[Change]:
        """Changes of a table after `revision`, oldest first; call it under the lock.

        Raises `Compacted` when some of them are no longer held.
        """
        target = self.table(table)
        if revision < target.compacted:
            raise Compacted(target.compacted)
        newer: list[Change] = []
        for change in reversed(target.history):
            if change.version <= revision:
                break
            newer.append(change)
        return reversed(newer)

    def subscribe(self, table: str, listener: Listener) -> None:
        """Tell `listener` of every later change of the table."""
        with self.lock:
            self.table(table).listeners.append(listener)

    def unsubscribe(self, table: str, listener: Listener) -> None:
        """Stop telling `listener`; an unknown one is ignored."""
        with self.lock:
            listeners = self.table(table).listeners
            if listener in listeners:
                listeners.remove(listener)

    def dismiss(self, table: str) -> None:
        """Tell the listeners of a table that there will be no more: what it holds is served no longer, or otherwise."""
        with self.lock:
            found = self.table(table)
            found.dismissals += 1
            for listener in found.listeners:
                listener.dismiss()

    def dismissals(self, table: str) -> int:
        """How often the listeners of a table have been dismissed."""
        with self.lock:
            return self.table(table).dismissals

    def cut_listeners(self) -> int:
        """Cut every listener off, as a network that fails does; returns how many there were."""
        with self.lock:
            listeners = [listener for table in self._tables.values() for listener in table.listeners]
            for listener in listeners:
                listener.cut()
        return len(listeners)

    def compact(self) -> int:
        """Forget all history; returns the version from which watches may start."""
        with self.lock:
            for target in self._tables.values():
                target.history.clear()
                target.compacted = self._revision
            self._history_size = 0
            self._compacted = self._revision
            return self._revision

    def snapshot(self) -> Snapshot:
        """The present content, for `restore`."""
        with self.lock:
            return Snapshot(
                self._revision, {name: dict(table.records) for name, table in self._tables.items()}
            )

    def restore(self, snapshot: Snapshot) -> None:
        """Bring the content of `snapshot` back, as changes with new versions that watchers see."""
        with self.lock:
            for name in {*self._tables, *snapshot.tables}:
                target = self.table(name)
                wanted = snapshot.tables.get(name, {})
                for record in [r for key, r in target.records.items() if key not in wanted]:
                    self.remove(name, record)
                for key, record in wanted.items():
                    present = target.records.get(key)
                    if present is None:
                        self.create(name, record.namespace, record.name, record.copy())
                    elif present is not record:
                        self.replace(name, present, record.copy())

    def _expect(self, target: Table, current: Record) -> None:
        present = target.records.get(current.key)
        if present is None:
            raise Missing(current.key)
        if present is not current:
            raise Stale(current.key)

    def _record(self, key: str, namespace: str, name: str, obj: Object) -> Record:
        self._revision += 1
        obj["metadata"]["resourceVersion"] = str(self._revision)
        return Record(key, namespace, name, self._revision, obj, _encode(obj))

    def _commit(self, name: str, target: Table, change: Change) -> None:
        target.history.append(change)
        self._history_size += len(change.record.raw)
        if len(target.history) > self._history_limit:
            self._forget_oldest(target)
        while self._history_size > self._history_bytes:
            held = (table for table in self._tables.values() if table.history)
            self._forget_oldest(min(held, key=lambda table: table.history[0].version))
        for listener in target.listeners:
            listener.notify(change)
        for observer in self._observers:
            observer(name, change)
        if change.previous is not None:
            change.previous.retire()
        if change.type == "DELETED":
            change.record.retire()

    def _forget_oldest(self, target: Table) -> None:
        change = target.history.popleft()
        target.compacted = change.version
        self._history_size -= len(change.record.raw)
