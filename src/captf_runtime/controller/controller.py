"""A controller: sources that fill a queue, and workers that hand its requests to a reconciler.

Order of events: `run` connects the sources and waits until the caches, and this controller's own handlers,
have seen every object that exists; only then workers start. At the stop signal no further request is
handed out, and `run` returns when the last worker has come to its end.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..cache import Added, Cache, Event, HandlerRegistration, Informer, Updated
from ..clock import SYSTEM_CLOCK, Clock
from ..election.fence import Fence
from ..log import bound, get_logger
from ..metrics import RESULTS, Metrics
from ..objects import Kind, check_kind
from ..queue import DEFAULT, LOW, Item, RateLimits, WorkQueue
from ..threads import ManagedThread, stack_of, start_thread
from .channel import Channel
from .context import Context
from .handlers import EventHandler, enqueue_own, enqueue_owner
from .outcome import Outcome, outcome_of
from .predicates import Predicate
from .reconciler import (
    FunctionReconciler,
    Reconciler,
    Request,
    Result,
    check_reconciler,
    check_request,
    check_result,
)

__all__ = ["SYNC_TIMEOUT", "Controller", "SyncTimeout", "Watch"]

SYNC_TIMEOUT: Final = 120.0
"""Seconds that a controller waits for its caches before it gives up."""

_SYNC_POLL: Final = 0.02
_STACK_PERIOD: Final = 60.0
_logger = get_logger(__name__)


class SyncTimeout(Exception):
    """The caches of a controller did not fill in time; the message names the kinds and their last errors."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A further kind whose events lead to requests.

    Args:
        kind: what to watch.
        handler: maps its events to requests.
        predicates: all of them must let an event pass.
        cache: where the kind is watched; None: the controller's own cache.
        options: arguments for `Cache.informer` (selectors, namespace, metadata_only); none: those of the
            informer that the cache has already, if it has one.
    """

    kind: Kind
    handler: EventHandler
    predicates: Sequence[Predicate] = ()
    cache: Cache | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kind(self.kind)
        if not callable(self.handler):
            raise TypeError(
                f"handler: must map an event to requests, as enqueue_own() and its like do, got {self.handler!r}"
            )
        if not isinstance(self.predicates, Sequence) or not all(map(callable, self.predicates)):
            raise TypeError(
                f"predicates: must be a list of functions of an event, such as [generation_changed()], "
                f"got {self.predicates!r}"
            )


@dataclass(slots=True)
class _Run:
    """A reconcile that is going on, for the watch over those that take too long."""

    request: Request
    reconcile_id: str
    since: float
    thread: threading.Thread
    reported: float | None = None


class _Series:
    """The series of one controller, all of them there from the start, looked up once."""

    def __init__(self, metrics: Metrics, controller: str) -> None:
        self.results = {result: metrics.reconciles.labels(controller, result) for result in RESULTS}
        self.errors = metrics.reconcile_errors.labels(controller)
        self.terminal = metrics.terminal_errors.labels(controller)
        self.panics = metrics.panics.labels(controller)
        self.timeouts = metrics.reconcile_timeouts.labels(controller)
        self.time = metrics.reconcile_time.labels(controller)
        self.active = metrics.active_workers.labels(controller)
        self.active.set(0)

    def count(self, outcome: Outcome) -> None:
        if outcome.label is not None:
            self.results[outcome.label].inc()
        if outcome.label == "error":
            self.errors.inc()
        if outcome.terminal:
            self.terminal.inc()
        if outcome.panic:
            self.panics.inc()


class Controller:
    """Keeps the objects of one kind as their specs ask, by calling a reconciler for each.

    Args:
        name: unique within a manager; label of all series of this controller.
        for_: the kind that requests name.
        reconciler: an object with `reconcile(ctx, request)`, or such a function.
        cache: where `for_`, `owns` and `watches` are watched.
        owns: kinds whose objects lead to the `for_` object that is their controller.
        watches: further kinds.
        predicates: for events of `for_` only.
        channels: sources inside the process.
        concurrency: number of workers, at least 1.
        reconcile_timeout: seconds that one reconcile may take; None: no limit.
        sync_timeout: seconds to wait for the caches.
        needs_leader: whether only the leader may run it.
        limits: rate limits of the queue.
        options: arguments for `Cache.informer` for `for_`; see `Watch`.
        metrics, clock, fence: default to the manager's.

    Raises:
        ValueError: a number out of range.
    """

    def __init__(
        self,
        name: str,
        *,
        for_: Kind,
        reconciler: Reconciler | Callable[[Context, Request], Result | None],
        cache: Cache,
        owns: Iterable[Kind] = (),
        watches: Iterable[Watch] = (),
        predicates: Sequence[Predicate] = (),
        channels: Iterable[Channel] = (),
        concurrency: int = 1,
        reconcile_timeout: float | None = None,
        sync_timeout: float = SYNC_TIMEOUT,
        needs_leader: bool = True,
        limits: RateLimits | None = None,
        options: Mapping[str, Any] | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        fence: Fence | None = None,
    ) -> None:
        if not name:
            raise ValueError("name: a controller needs a name")
        if concurrency < 1:
            raise ValueError(f"concurrency: must be at least 1, got {concurrency}")
        check_kind(for_)
        check_reconciler(reconciler)
        if not callable(getattr(cache, "informer", None)):
            raise TypeError(f"cache: must be a Cache, such as Cache(client), got {cache!r}")
        if reconcile_timeout is not None and reconcile_timeout <= 0:
            raise ValueError(f"reconcile_timeout: must be greater than 0 seconds, got {reconcile_timeout}")
        self.name: Final = name
        self.kind: Final = for_
        self.concurrency: Final = concurrency
        self.needs_leader: Final = needs_leader
        self.queue: Final[WorkQueue[Request]] = WorkQueue(limits=limits, clock=clock)
        self._reconciler: Reconciler = (
            reconciler if hasattr(reconciler, "reconcile") else FunctionReconciler(reconciler)
        )
        self._cache = cache
        self._watches = [
            Watch(for_, enqueue_own(), predicates, options=dict(options or {})),
            *(Watch(kind, enqueue_owner(for_)) for kind in owns),
            *watches,
        ]
        self._channels = list(channels)
        self._timeout = reconcile_timeout
        self._sync_timeout = sync_timeout
        self._clock = clock
        self._metrics = metrics
        self._series: _Series | None = None
        self._fence = fence
        self._logger = get_logger(name)
        self._started = False
        self._workers: list[ManagedThread] = []
        self._unlisten: list[Callable[[], None]] = []
        self._registrations: list[tuple[Watch, Informer, HandlerRegistration]] = []
        self._conflicts: dict[Request, int] = {}
        self._running: dict[int, _Run] = {}
        # Informers are asked for now, so that the caches fill before leadership is won.
        self._informers = [(watch, _informer_for(watch, watch.cache or cache)) for watch in self._watches]

    def attach(self, *, metrics: Metrics, fence: Fence) -> None:
        """Take over what the manager provides, where nothing else was given; called by the manager."""
        if self._metrics is None:
            self._metrics = metrics
        if self._fence is None:
            self._fence = fence
        self._expose()

    def enqueue(self, request: Request, *, after: float = 0.0, priority: int = DEFAULT) -> None:
        """Have an object reconciled, now or in `after` seconds.

        Raises:
            TypeError: not a Request.
            ValueError: a delay that is not a number.
        """
        self.queue.add_after(check_request(request), after, priority=priority)

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set and every reconcile has ended.

        Raises:
            RuntimeError: it has been started before.
            SyncTimeout: the caches did not fill in time.
        """
        if self._started:
            raise RuntimeError(f"controller {self.name} has been started before")
        self._started = True
        if self._series is None:
            self._metrics = self._metrics if self._metrics is not None else Metrics()
            self._expose()
        try:
            self._connect()
            if not self._wait_for_sync(stop):
                return
            self._start_workers(stop)
            self._clock.wait(stop, None)
        finally:
            self.queue.shutdown()
            for unlisten in self._unlisten:
                unlisten()
            for _, _, registration in self._registrations:
                registration.remove()
            for worker in self._workers:
                worker.join()

    def threads(self) -> list[ManagedThread]:
        """The threads that keep `run` from returning."""
        return [worker for worker in self._workers if worker.is_alive()]

    # Sources

    def _connect(self) -> None:
        self._unlisten = [
            channel.listen(lambda request, priority: self.queue.add(request, priority=priority))
            for channel in self._channels
        ]
        self._registrations = [
            (watch, informer, self._subscribe(watch, informer)) for watch, informer in self._informers
        ]

    def _subscribe(self, watch: Watch, informer: Informer) -> HandlerRegistration:
        def on_event(event: Event) -> None:
            if not self._passes(watch, event):
                return
            priority = LOW if _can_wait(event) else DEFAULT
            for request in self._requests(watch, event):
                self.queue.add(request, priority=priority)

        return informer.add_handler(on_event, name=self.name)

    def _passes(self, watch: Watch, event: Event) -> bool:
        for predicate in watch.predicates:
            try:
                if not predicate(event):
                    return False
            except BaseException:  # noqa: BLE001 - logged with its stack by what follows
                self._count_failure(watch, "predicate failed, the event passes")
        return True

    def _requests(self, watch: Watch, event: Event) -> Iterable[Request]:
        try:
            return [check_request(request) for request in watch.handler(event)]
        except BaseException:  # noqa: BLE001 - logged with its stack by what follows
            self._count_failure(watch, "event handler failed, the event leads to nothing")
            return ()

    def _count_failure(self, watch: Watch, message: str) -> None:
        _logger.exception(message, controller=self.name, kind=watch.kind.kind)
        self._known_metrics.handler_failures.labels(watch.kind.kind).inc()

    def _wait_for_sync(self, stop: threading.Event) -> bool:
        deadline = self._clock.monotonic() + self._sync_timeout
        while True:
            waiting = [
                (watch, informer)
                for watch, informer, registration in self._registrations
                if not registration.has_synced
            ]
            if not waiting:
                return True
            if self._clock.monotonic() >= deadline:
                raise SyncTimeout(
                    f"controller {self.name}: waited {self._sync_timeout:g} s for the cache of "
                    + "; ".join(_describe(watch.kind, informer) for watch, informer in waiting)
                )
            if stop.wait(_SYNC_POLL):
                return False

    # Workers

    @property
    def _known_metrics(self) -> Metrics:
        assert self._metrics is not None
        return self._metrics

    def _expose(self) -> None:
        metrics = self._known_metrics
        try:
            metrics.add_queue(self.name, self.queue.stats)
        except ValueError:
            raise ValueError(
                f"controller {self.name!r}: another controller of this manager has the name already: "
                "give each one a name of its own"
            ) from None
        self._series = _Series(metrics, self.name)
        metrics.max_concurrent.labels(self.name).set(self.concurrency)
        for watch in self._watches:
            metrics.handler_failures.labels(watch.kind.kind)

    def _start_workers(self, stop: threading.Event) -> None:
        _logger.info("starting workers", controller=self.name, workers=self.concurrency)
        for number in range(self.concurrency):
            self._workers.append(
                start_thread(
                    f"controller-{self.name}",
                    lambda: self._work(stop),
                    metrics=self._known_metrics,
                    stop=stop,
                    restart=True,
                    clock=self._clock,
                    name=f"controller-{self.name}-{number}",
                )
            )
        if self._timeout is not None:
            self._workers.append(
                start_thread(
                    f"controller-{self.name}-watchdog",
                    lambda: self._watch_over(stop),
                    metrics=self._known_metrics,
                    stop=stop,
                    restart=True,
                    clock=self._clock,
                )
            )

    def _work(self, stop: threading.Event) -> None:
        while True:
            with self.queue.process() as item:
                # The stop signal may be a moment ahead of the queue's shutdown.
                if item is None or stop.is_set():
                    return
                self._handle(item, stop)

    def _handle(self, item: Item[Request], stop: threading.Event) -> None:
        request = item.key
        series = self._series
        assert series is not None
        reconcile_id = _random_id()
        with bound(
            controller=self.name,
            controllerGroup=self.kind.group,
            controllerKind=self.kind.kind,
            kind=self.kind.kind,
            namespace=request.namespace,
            name=request.name,
            reconcileID=reconcile_id,
            **{self.kind.kind: {"namespace": request.namespace, "name": request.name}},
        ):
            ctx = Context(
                stop=stop,
                fence=self._fence if self._fence is not None else Fence.open(),
                clock=self._clock,
                logger=self._logger,
                reconcile_id=reconcile_id,
                timeout=self._timeout,
            )
            start = self._clock.monotonic()
            me = threading.current_thread()
            self._running[id(me)] = _Run(request, reconcile_id, start, me)
            series.active.inc()
            end: Result | BaseException | None
            try:
                end = self._reconciler.reconcile(ctx, request)
                check_result(end)
            except BaseException as error:  # noqa: BLE001 - whatever a reconciler raises, its worker goes on
                end = error
            finally:
                series.active.dec()
                del self._running[id(me)]
            series.time.observe(self._clock.monotonic() - start)
            if ctx.timed_out or ctx.remaining() == 0:
                series.timeouts.inc()
            outcome = outcome_of(end, stopping=stop.is_set(), conflicts=self._conflicts.get(request, 0))
            self._log(outcome, end, ctx)
            series.count(outcome)
            self._requeue(outcome, item, end)

    def _requeue(self, outcome: Outcome, item: Item[Request], end: Result | BaseException | None) -> None:
        request = item.key
        if outcome.conflict:
            self._conflicts[request] = self._conflicts.get(request, 0) + 1
        else:
            self._conflicts.pop(request, None)
        priority = item.priority
        if isinstance(end, Result) and end.priority is not None:
            priority = end.priority
        if outcome.queue == "limit":
            self.queue.add_rate_limited(request, priority=priority)
        elif outcome.queue == "forget":
            self.queue.forget(request)
        elif outcome.queue == "after":
            self.queue.forget(request)
            self.queue.add_after(request, outcome.delay, priority=priority)

    def _log(self, outcome: Outcome, end: Result | BaseException | None, ctx: Context) -> None:
        if not isinstance(end, BaseException):
            ctx.logger.debug("reconciled", result=outcome.label, requeue_after=outcome.delay or None)
        elif outcome.panic:
            ctx.logger.exception("reconcile failed unexpectedly", err=end)
        elif outcome.label == "error":
            ctx.logger.error("reconcile failed for good" if outcome.terminal else "reconcile failed", err=end)
        else:
            ctx.logger.debug("reconcile did not finish", err=end)

    # Reconciles that take too long

    def _watch_over(self, stop: threading.Event) -> None:
        assert self._timeout is not None
        while not self._clock.sleep(min(self._timeout, _STACK_PERIOD), stop):
            now = self._clock.monotonic()
            for run in list(self._running.values()):
                if now - run.since <= 2 * self._timeout:
                    continue
                if run.reported is not None and now - run.reported < _STACK_PERIOD:
                    continue
                run.reported = now
                _logger.error(
                    "reconcile runs far past its time limit",
                    controller=self.name,
                    namespace=run.request.namespace,
                    name=run.request.name,
                    reconcileID=run.reconcile_id,
                    seconds=round(now - run.since, 3),
                    stack=stack_of(run.thread),
                )


def _random_id() -> str:
    """A random UUID (version 4) as text. Half the price of `uuid.uuid4`: this runs for every reconcile."""
    bits = random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _can_wait(event: Event) -> bool:
    """Whether an event tells of nothing new: it is part of the first list, a resync, or changed nothing."""
    if isinstance(event, Added):
        return event.initial
    if isinstance(event, Updated):
        return event.resync or event.old.header.resource_version == event.new.header.resource_version
    return False


def _informer_for(watch: Watch, cache: Cache) -> Informer:
    if not watch.options:
        for informer in cache.informers:
            if informer.scope.kind == watch.kind:
                return informer
    return cache.informer(watch.kind, **watch.options)


def _describe(kind: Kind, informer: Informer) -> str:
    error = informer.last_error
    return f"{kind.resource} (last error: {error.message})" if error is not None else kind.resource
