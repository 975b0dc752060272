"""The cache: the informers of a process, and the reads from them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from captf_runtime.cache.errors import CacheError, NotCached, NotSynced, SyncTimeout
from captf_runtime.cache.informer import RESYNC_PERIOD, Informer
from captf_runtime.cache.reflector import StreamingLists, Transform
from captf_runtime.cache.scope import Scope
from captf_runtime.cache.store import IndexFunction, Store
from captf_runtime.cache.stored import Header, StoredObject
from captf_runtime.client import Client, NotFound
from captf_runtime.client.verbs import collection_path
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.log import get_logger
from captf_runtime.metrics import Metrics
from captf_runtime.objects import (
    Kind,
    Object,
    ObjectKey,
    check_kind,
    compare_resource_versions,
    parse_label_selector,
)
from captf_runtime.threads import ManagedThread, join_all, start_thread

_logger = get_logger(__name__)

JOIN_TIMEOUT = 2.0
STOP_PERIOD = 0.2
_WRITES = frozenset({"create", "create_subresource", "update", "patch", "delete", "delete_collection"})

ListOf = list  # the class below has a method of that name


class Cache:
    """A registry of informers with the reader's interface. Thread-safe.

    Flow: ask for informers (with indexes and handlers), `start`, `wait_for_sync`, then read. `get` and
    `list` return fresh copies, which the caller may change.

    Guarantees: one informer per kind, shared by all who ask; a read costs no request; a handler that is told
    of a change finds it in the store.

    Caveat: what is read may be older than what the caller has just written. `wait_for` closes that gap.

    Args:
        client: for lists and watches, which go over its watch connections.
        resync_period: seconds between resyncs of an informer, 0 for none.
        streaming_lists: ask the server for lists as streams where it can.
        name: tells several caches of a process apart in logs.
        draw: source of randomness, like `random.uniform`.
    """

    def __init__(
        self,
        client: Client,
        *,
        resync_period: float = RESYNC_PERIOD,
        streaming_lists: bool = False,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        name: str = "cache",
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.name = name
        self._client = client
        self._resync_period = resync_period
        self._streaming = StreamingLists.of(client) if streaming_lists else StreamingLists()
        self._metrics = metrics if metrics is not None else Metrics()
        self._clock = clock
        self._draw = draw
        self._lock = threading.Lock()
        self._informers: dict[Kind, Informer] = {}
        self._started = False
        self._stopped = False
        self._supervisor: ManagedThread | None = None
        self._synced = threading.Condition()

    if not TYPE_CHECKING:  # to a type checker a cache simply has no such methods

        def __getattr__(self, name: str) -> object:
            if name in _WRITES:
                raise AttributeError(f"a cache only reads: {name} with the client that it was made with")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # Informers --------------------------------------------------------------------------------------

    def informer(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        transform: Transform | None = None,
        indexes: Mapping[str, IndexFunction] | None = None,
    ) -> Informer:
        """Return the informer of a kind, made on the first call and then shared.

        In a cache that has started, a new informer starts at once.

        Args:
            namespace: "" for all namespaces.
            metadata_only: fetch and keep nothing but metadata.
            transform: changes each object before it is stored.
            indexes: added before the informer starts, by name.

        Raises:
            ValueError: the kind is followed already with another namespace, selector, form or transform; or
                a namespace or selector makes no sense.
            CacheError: the cache was stopped.
        """
        check_kind(kind)
        if namespace and not kind.namespaced:
            raise ValueError(f"namespace: {kind.resource} are in no namespace, got {namespace!r}")
        collection_path(kind, namespace)  # refuses what is no name
        parse_label_selector(label_selector)
        scope = Scope(kind, namespace, label_selector, field_selector, metadata_only)
        with self._lock:
            if self._stopped:
                raise CacheError(f"the cache was stopped: no informer for {scope}")
            present = self._informers.get(kind)
            if present is not None:
                if present.scope != scope or present.transform is not transform:
                    raise ValueError(
                        f"this cache follows {present.scope} already and cannot also follow {scope}: "
                        "use the same settings everywhere, or another cache"
                    )
                for name, function in (indexes or {}).items():
                    present.add_index(name, function)
                return present
            made = Informer(
                self._client,
                scope,
                transform=transform,
                streaming=self._streaming,
                resync_period=self._resync_period,
                metrics=self._metrics,
                clock=self._clock,
                draw=self._draw,
                on_synced=self._note_synced,
            )
            for name, function in (indexes or {}).items():
                made.add_index(name, function)
            self._informers[kind] = made
            started = self._started
        if started:
            made.start()
        return made

    @property
    def informers(self) -> list[Informer]:
        """All informers."""
        with self._lock:
            return list(self._informers.values())

    # Life -------------------------------------------------------------------------------------------

    def start(self, stop: threading.Event) -> None:
        """Start all informers and return; they end when `stop` is set (or by `shutdown`).

        Raises:
            CacheError: it was started before.
        """
        with self._lock:
            if self._started:
                raise CacheError(f"the cache {self.name} was started already")
            self._started = True
            informers = list(self._informers.values())
        for informer in informers:
            informer.start()
        self._supervisor = start_thread(
            "cache", lambda: self._supervise(stop), metrics=self._metrics, clock=self._clock
        )

    def run(self, stop: threading.Event) -> None:
        """Start and block until `stop`: the form in which a manager runs it."""
        self.start(stop)
        if self._supervisor is not None:
            self._supervisor.ended.wait()

    def shutdown(self, timeout: float = JOIN_TIMEOUT) -> ListOf[ManagedThread]:
        """End all informers and wait for their threads, at most `timeout` seconds. May be called twice.

        What is stored stays readable. Returns the threads that have not ended, such as one in a handler that
        hangs.
        """
        with self._lock:
            self._stopped = True
            informers = list(self._informers.values())
        for informer in informers:
            informer.stop()
        with self._synced:
            self._synced.notify_all()
        deadline = self._clock.monotonic() + timeout
        left: ListOf[ManagedThread] = []
        for informer in informers:
            late = informer.join(max(0.0, deadline - self._clock.monotonic()))
            left += late
            if late:
                _logger.warning(
                    "an informer did not end in time",
                    kind=str(informer.scope),
                    threads=[thread.name for thread in late],
                )
        if self._supervisor is not None:
            join_all([self._supervisor], max(0.0, deadline - self._clock.monotonic()), self._clock)
        return left

    def _supervise(self, stop: threading.Event) -> None:
        while not stop.wait(STOP_PERIOD):
            if self._stopped:
                return
        self.shutdown()

    def has_synced(self) -> bool:
        """True when every informer has its first list and its handlers have handled it."""
        return all(informer.has_synced for informer in self.informers)

    def wait_for_sync(self, timeout: float) -> None:
        """Block until every informer is synced.

        Raises:
            SyncTimeout: not in time, or the cache was stopped; the message names each informer that is not
                synced, with its last error.
        """
        deadline = self._clock.monotonic() + timeout
        with self._synced:
            while not self.has_synced():
                left = deadline - self._clock.monotonic()
                if left <= 0 or self._stopped:
                    raise SyncTimeout(self._not_synced(timeout))
                self._clock.wait_condition(self._synced, left)

    def _not_synced(self, timeout: float) -> str:
        parts = []
        for informer in self.informers:
            if informer.has_synced:
                continue
            if informer.last_error is not None:
                reason = str(informer.last_error)
            elif informer.has_listed:
                reason = "handlers are still busy with the first list"
            else:
                reason = "the first list is not complete"
            parts.append(f"{informer.scope}: {reason}")
        what = "stopped before it was synced" if self._stopped else f"not synced within {timeout:g} s"
        return f"cache {self.name} {what}: " + "; ".join(parts)

    def _note_synced(self) -> None:
        with self._synced:
            self._synced.notify_all()

    # Reads ------------------------------------------------------------------------------------------

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return a fresh copy of one object.

        Raises:
            NotFound: it is not stored.
            NotCached: the kind has no informer, or one of another namespace.
            NotSynced: its first list is not complete.
        """
        found = self._store(kind, namespace).get(namespace if kind.namespaced else "", name)
        if found is None:
            hint = (
                ": the kind is namespaced, and no namespace was given"
                if kind.namespaced and not namespace
                else ""
            )
            raise NotFound(f'{kind.resource} "{name}" not found{hint}', code=404, reason="NotFound")
        return found.decode()

    def header(self, kind: Kind, name: str, namespace: str = "") -> Header | None:
        """Return the header of one object, None when it is not stored. Otherwise raises like `get`."""
        found = self._store(kind, namespace).get(namespace if kind.namespaced else "", name)
        return None if found is None else found.header

    def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        index: tuple[str, str] | None = None,
        field_selector: str = "",
        resource_version: str | None = None,
        continue_token: str = "",
    ) -> ListOf[Object]:
        """Return fresh copies, in the order of namespace and name.

        Args:
            namespace: "" for all.
            label_selector: as in the API.
            index: name of an index and the value to look up.
            field_selector: `field=value`, where an index has the name of the field.

        Raises:
            NotCached, NotSynced: as `get`.
            ValueError: a selector that the cache cannot answer, an unknown index, or a question that only
                the server can answer (a version, a page).
        """
        return [
            obj.decode()
            for obj in self._select(
                kind, namespace, label_selector, index, field_selector, resource_version, continue_token
            )
        ]

    def headers(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        index: tuple[str, str] | None = None,
    ) -> ListOf[Header]:
        """Return the headers of what `list` would return, without decoding anything. Raises like `list`."""
        return [obj.header for obj in self._select(kind, namespace, label_selector, index)]

    def count(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        index: tuple[str, str] | None = None,
    ) -> int:
        """Return how many objects `list` would return, without decoding anything. Raises like `list`."""
        return len(self._select(kind, namespace, label_selector, index))

    def index_values(self, kind: Kind, index: str) -> set[str]:
        """Return the values of an index that hold at least one object. Raises like `list`."""
        store = self._store(kind)
        if not store.has_index(index):
            raise ValueError(f"{kind.resource}: there is no index named {index!r}")
        return store.index_values(index)

    def _select(
        self,
        kind: Kind,
        namespace: str,
        label_selector: str,
        index: tuple[str, str] | None,
        field_selector: str = "",
        resource_version: str | None = None,
        continue_token: str = "",
    ) -> ListOf[StoredObject]:
        store = self._store(kind, namespace)
        if resource_version is not None or continue_token:
            raise ValueError(
                f"{kind.resource}: the cache knows neither versions nor pages: ask the uncached client"
            )
        if field_selector:
            if index is not None:
                raise ValueError(f"{kind.resource}: give a field selector or an index, not both")
            index = _index_of(kind, store, field_selector)
        if index is not None and not store.has_index(index[0]):
            raise ValueError(f"{kind.resource}: there is no index named {index[0]!r}")
        matches: Callable[[Header], bool] | None = None
        if label_selector:
            selector = parse_label_selector(label_selector)

            def matches(header: Header) -> bool:
                return selector.matches(header.labels)

        return store.select(namespace if kind.namespaced else "", index=index, matches=matches)

    def wait_for(self, kind: Kind, key: ObjectKey, resource_version: str, timeout: float) -> bool:
        """Block until the cache has seen an own write: returns False when it has not in `timeout` seconds.

        True when the stored object has this version or a higher one, or when the cache has seen everything
        up to this version and the object is gone. A version that is not decimal is compared for equality
        only.

        Raises:
            NotCached: the kind has no informer, or one of another namespace.
        """

        def seen(store: Store) -> bool:
            found = store.peek(key.namespace, key.name)
            stored = store.version if found is None else found.header.resource_version
            if stored == resource_version:
                return True
            order = compare_resource_versions(stored, resource_version)
            return order is not None and order >= 0

        return self._covering(kind, key.namespace).store.wait_for(seen, timeout)

    def wait_for_deleted(self, kind: Kind, key: ObjectKey, uid: str, timeout: float) -> bool:
        """Block until the object of this uid is gone from the cache; False after `timeout` seconds.

        Raises:
            NotCached: the kind has no informer, or one of another namespace.
            NotSynced: its first list is not complete, so that nothing is there yet.
        """

        def gone(store: Store) -> bool:
            found = store.peek(key.namespace, key.name)
            return found is None or found.header.uid != uid

        return self._store(kind, key.namespace).wait_for(gone, timeout)

    def _informer(self, kind: Kind) -> Informer:
        with self._lock:
            found = self._informers.get(kind)
        if found is None:
            check_kind(kind)
            raise NotCached(f"{kind.resource} is not cached: request an informer for it, or read uncached")
        return found

    def _covering(self, kind: Kind, namespace: str) -> Informer:
        informer = self._informer(kind)
        if namespace and kind.namespaced and informer.scope.namespace not in ("", namespace):
            raise NotCached(
                f"{kind.resource} of namespace {namespace} are not cached: this cache follows {informer.scope}"
            )
        return informer

    def _store(self, kind: Kind, namespace: str = "") -> Store:
        informer = self._covering(kind, namespace)
        if not informer.has_listed:
            if not self._started:
                reason = (
                    "the cache was not started: start it, or run it with a manager, and wait for its sync"
                )
            else:
                reason = str(informer.last_error or "wait for its sync before reading")
            raise NotSynced(f"{informer.scope} is not synced yet: {reason}")
        return informer.store


def _index_of(kind: Kind, store: Store, field_selector: str) -> tuple[str, str]:
    name, equals, value = field_selector.partition("=")
    value = value.removeprefix("=")
    if not equals or name.endswith("!") or "," in value or not store.has_index(name):
        raise ValueError(
            f"{kind.resource}: the cache cannot select by {field_selector!r}: add an index named like the "
            "field and select field=value, or ask the uncached client"
        )
    return name, value
