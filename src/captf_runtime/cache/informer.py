"""One informer: a store that follows the server, and handlers that are told of its changes."""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable, Iterable

from captf_runtime.cache.delivery import Delivery, Handler, HandlerRegistration
from captf_runtime.cache.reflector import LastError, Reflector, StreamingLists, Transform
from captf_runtime.cache.scope import Scope
from captf_runtime.cache.store import Change, IndexFunction, Store
from captf_runtime.cache.stored import Header, StoredObject
from captf_runtime.client import Client
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.log import get_logger
from captf_runtime.metrics import Metrics
from captf_runtime.objects import ObjectKey
from captf_runtime.threads import ManagedThread, join_all, start_thread

_logger = get_logger(__name__)

RESYNC_PERIOD = 36000.0
RESYNC_SPREAD = 0.1


class Informer:
    """A store of one scope, kept equal to the server's, with handlers. Made by `Cache.informer`.

    Flow: add indexes, then handlers; the cache starts it. Handlers added later first see the whole store as
    additions.

    Guarantees: the store is changed before handlers are told; handlers run on one thread of the informer's
    own, so a slow one delays no reading; a handler that raises is logged and counted, and the next event
    proceeds.

    Args:
        resync_period: seconds between resyncs; a tenth more or less is drawn once. 0 for none.
        on_synced: called when the informer or one of its handlers has become synced.
    """

    def __init__(
        self,
        client: Client,
        scope: Scope,
        *,
        transform: Transform | None = None,
        streaming: StreamingLists | None = None,
        resync_period: float = RESYNC_PERIOD,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        draw: Callable[[float, float], float] = random.uniform,
        on_synced: Callable[[], None] = lambda: None,
    ) -> None:
        if resync_period < 0:
            raise ValueError(f"resync_period must not be negative, got {resync_period}")
        self.scope = scope
        self.transform = transform
        self._metrics = metrics if metrics is not None else Metrics()
        self._clock = clock
        self._on_synced = on_synced
        kind = scope.kind.kind
        self._handler_failures = self._metrics.handler_failures.labels(kind)
        self._objects_gauge = self._metrics.informer_objects.labels(kind)
        self._synced_gauge = self._metrics.informer_synced.labels(kind)
        self._objects_gauge.set(0)
        self._synced_gauge.set(0)
        self.store = Store(on_index_failure=self._index_failed, clock=clock)
        self._delivery = Delivery(
            lookup=lambda key: self.store.get(key.namespace, key.name),
            on_failure=self._handler_failed,
            on_synced=self._note_synced,
            clock=clock,
        )
        self._reflector = Reflector(
            client,
            scope,
            self,
            transform=transform,
            streaming=streaming,
            metrics=self._metrics,
            clock=clock,
            draw=draw,
        )
        self._resync_period = resync_period * (1.0 + draw(-RESYNC_SPREAD, RESYNC_SPREAD))
        self._next_resync: float | None = None
        self._first_handlers: list[HandlerRegistration] = []
        self._listed = False
        self._lock = threading.Lock()
        self._threads: list[ManagedThread] = []
        self._stop = threading.Event()

    # For users --------------------------------------------------------------------------------------

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Index objects by what `function` returns for their header; before the informer starts.

        Raises:
            ValueError: the informer has objects already, or the name is taken by another function.
        """
        self.store.add_index(name, function)

    def add_handler(self, handler: Handler, *, name: str) -> HandlerRegistration:
        """Call `handler` with each `Added`, `Updated` and `Deleted`, beginning with what is stored now.

        Args:
            name: for logs.
        """
        return self._delivery.add(handler, name, lambda: self.store.snapshot() if self._listed else None)

    @property
    def has_listed(self) -> bool:
        """True once the first complete list is stored; handlers may still be busy with it."""
        return self._listed

    @property
    def has_synced(self) -> bool:
        """True once the first complete list is stored and every handler added before has handled it."""
        return self._listed and all(item.has_synced or item._removed for item in self._first_handlers)

    @property
    def last_error(self) -> LastError | None:
        """What keeps the informer from following the server now, None while all is well."""
        return self._reflector.last_error

    @property
    def version(self) -> str:
        """The version up to which the store has seen everything."""
        return self.store.version

    @property
    def pending(self) -> int:
        """How many deliveries wait for handlers, resyncs apart."""
        return self._delivery.pending

    # Life -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start reading and delivering; a second call does nothing."""
        with self._lock:
            if self._threads or self._stop.is_set():
                return
            if self._resync_period > 0:
                self._next_resync = self._clock.monotonic() + self._resync_period
            for component, main in (("reflector", self._reflector.run), ("informer", self._deliver)):
                self._threads.append(
                    start_thread(
                        component,
                        main,
                        metrics=self._metrics,
                        stop=self._stop,
                        restart=True,
                        clock=self._clock,
                    )
                )

    def stop(self) -> None:
        """End reading and delivering soon; the store stays readable. Does not wait, see `join`."""
        self._stop.set()
        self._reflector.stop()
        self._delivery.stop()

    def join(self, timeout: float) -> list[ManagedThread]:
        """Wait for the threads to end, in all at most so many seconds; returns those that have not."""
        with self._lock:
            threads = list(self._threads)
        return join_all(threads, timeout, self._clock)

    def _deliver(self) -> None:
        self._delivery.run(lambda: self._next_resync, self._resync)

    def _resync(self) -> None:
        assert self._next_resync is not None
        self._next_resync = self._clock.monotonic() + self._resync_period
        if self._listed:
            self._delivery.resync(self.store.snapshot())

    # What the reflector reports ---------------------------------------------------------------------

    def stored(self, namespace: str, name: str) -> StoredObject | None:
        """See `Sink`."""
        return self.store.get(namespace, name)

    def replace(self, objects: Iterable[StoredObject], version: str) -> None:
        """See `Sink`."""
        if self._listed:
            self._delivery.publish(lambda: self.store.replace(objects, version), final_unknown=True)
        else:
            self._delivery.publish_first(lambda: self._first_list(objects, version))
            self._note_synced()
        self._objects_gauge.set(len(self.store))

    def _first_list(self, objects: Iterable[StoredObject], version: str) -> list[Change]:
        changes = self.store.replace(objects, version)
        # Under the delivery's lock: a handler is either here or sees the store as it is now.
        self._first_handlers = list(self._delivery.registrations_locked())
        self._listed = True
        return changes

    def put(self, obj: StoredObject, version: str) -> None:
        """See `Sink`."""
        self._delivery.publish(lambda: _listed(self.store.put(obj, version)))
        self._objects_gauge.set(len(self.store))

    def remove(self, last: StoredObject, version: str) -> None:
        """See `Sink`."""
        self._delivery.publish(lambda: _listed(self.store.remove(last, version)))
        self._objects_gauge.set(len(self.store))

    def advance(self, version: str) -> None:
        """See `Sink`."""
        self.store.advance(version)

    # Failures of foreign code -----------------------------------------------------------------------

    def _handler_failed(self, name: str, error: BaseException) -> None:
        self._handler_failures.inc()
        _logger.error("a handler failed", handler=name, kind=str(self.scope), err=error, stack=_stack(error))

    def _index_failed(self, name: str, header: Header, error: BaseException) -> None:
        self._handler_failures.inc()
        _logger.error(
            "an index function failed: the object is not in the index",
            index=name,
            kind=str(self.scope),
            object=str(ObjectKey(header.namespace, header.name)),
            err=error,
        )

    def _note_synced(self) -> None:
        if self.has_synced:
            self._synced_gauge.set(1)
        self._on_synced()


def _listed(change: Change | None) -> list[Change]:
    return [] if change is None else [change]


def _stack(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
