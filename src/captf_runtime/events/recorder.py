"""The recorder: says what happened, without ever holding up or failing the one who says it.

`emit` puts an occurrence into a bounded queue; one thread takes them out, decides what is new (see
`correlation`), and writes. Guarantees: nothing is written twice (a repeated create that finds the Event
there is a success); what cannot be written is dropped and counted, by reason.
"""

from __future__ import annotations

import random
import secrets
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, Protocol

from ..client.errors import (
    AlreadyExists,
    ApiError,
    InternalError,
    Invalid,
    NotFound,
    ServiceUnavailable,
    Stopped,
    Timeout,
    TooManyRequests,
    TransportError,
)
from ..clock import SYSTEM_CLOCK, Clock
from ..log import get_logger
from ..metrics import Metrics
from ..objects import EVENT, EVENTS_V1, Kind, Object, name_of, namespace_of, uid_of
from ..threads import start_thread
from .correlation import Correlator, Occurrence, Reference, Series
from .rendering import MAX_NOTE_BYTES, core_event, cut, event_name, events_v1_event, series_of

__all__ = ["DROP_REASONS", "EventClient", "EventType", "NamedRecorder", "Recorder"]

EventType = Literal["Normal", "Warning"]

QUEUE_SIZE: Final = 1000
TRIES: Final = 12
PAUSE_SECONDS: Final = 10.0
PAUSE_SPREAD: Final = 0.25
FLUSH_SECONDS: Final = 5.0
WRITE_TIMEOUT: Final = 10.0
MAX_IDENTITY: Final = 128
CLUSTER_NAMESPACE: Final = "default"
OLD_CLUSTER_NAMESPACE: Final = "kube-system"

DROP_REASONS: Final = ("queue_full", "rate_limited", "invalid", "rejected", "unavailable", "stopped")
"""Values of the label `reason` of `captf_runtime_events_dropped_total`."""

_TRANSIENT: Final = (TransportError, TooManyRequests, InternalError, ServiceUnavailable, Timeout)
_logger = get_logger(__name__)


class EventClient(Protocol):
    """What a recorder needs of a client."""

    def create(
        self, kind: Kind, obj: Object, namespace: str = "", *, timeout: float | None = None
    ) -> Object: ...

    def patch(
        self, kind: Kind, name: str, patch: Object, namespace: str = "", *, timeout: float | None = None
    ) -> Object: ...


class _Unwritable(Exception):
    """The event will not be written; the reason is one of `DROP_REASONS`."""

    def __init__(self, reason: str, error: BaseException | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error


class Recorder:
    """Writes Events about objects; a runnable of the manager.

    Expected flow: `emit` from any thread, at any time; `run(stop)` in a thread of the manager. What is
    emitted before it runs waits in the queue; at the stop signal what is left is written, for at most five
    seconds.

    Args:
        client: should have a connection pool of its own.
        controller: who reports, such as "machines" or "example.com/machines".
        instance: which process of it, such as the election identity; cut at 128 characters.
        draw: random number in [0, 1), for the pauses between tries.
        token: something unique for the name of an Event.
    """

    def __init__(
        self,
        client: EventClient,
        *,
        controller: str,
        instance: str,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        draw: Callable[[], float] = random.random,
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = instance[:MAX_IDENTITY]
        self._metrics = metrics if metrics is not None else Metrics()
        self._clock = clock
        self._draw = draw
        self._token = token
        self._queue: deque[Occurrence] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._correlator = Correlator()
        self._core = False
        self._cluster_namespace = CLUSTER_NAMESPACE
        self._stopping = False
        self._flush_until = 0.0
        for reason in DROP_REASONS:
            self._metrics.events_dropped.labels(reason)

    def named(self, controller: str) -> NamedRecorder:
        """The same recorder, speaking for another controller."""
        return NamedRecorder(self, controller)

    def emit(
        self,
        obj: Object,
        type: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        related: Object | None = None,
        important: bool = False,
        controller: str = "",
    ) -> None:
        """Report that something happened to an object. Never blocks, never raises.

        Args:
            obj: the object, with apiVersion, kind and metadata.
            type: "Normal", or "Warning" for what someone should look at.
            reason: why, in one CamelCase word; at most 128 characters.
            action: what was done or tried, in one CamelCase word.
            note: a sentence for people; cut at 1,024 bytes.
            related: a second object that has to do with it.
            important: written even when there are many events about the object.
            controller: who reports; default the recorder's.
        """
        try:
            occurrence = Occurrence(
                type=type,
                reason=reason[:MAX_IDENTITY],
                action=action[:MAX_IDENTITY],
                # Cut here, not when it is written: what is remembered of thousands of objects is this text.
                note=cut(note, MAX_NOTE_BYTES),
                controller=controller or self._controller,
                instance=self._instance,
                regarding=_refer(obj),
                related=None if related is None else _refer(related),
                time=self._clock.now(),
                important=important,
            )
            if type not in ("Normal", "Warning") or not reason or not action:
                raise ValueError(f"type, reason, action: got {type!r}, {reason!r}, {action!r}")
        except Exception as error:  # noqa: BLE001 - reporting must never fail the one who reports
            self._drop("invalid")
            _logger.warning("an event was not valid", err=error, reason=reason)
            return
        with self._changed:
            if self._closed:
                dropped = "stopped"
            elif len(self._queue) >= QUEUE_SIZE:
                dropped = "queue_full"
            else:
                self._queue.append(occurrence)
                self._changed.notify()
                return
        self._drop(dropped)

    def run(self, stop: threading.Event) -> None:
        """Write until `stop` is set, then write what is left, for at most `FLUSH_SECONDS`."""
        watcher = start_thread(
            "event-recorder-stop", lambda: self._wake_at(stop), metrics=self._metrics, clock=self._clock
        )
        while not stop.is_set():
            occurrence = self._next(stop)
            if occurrence is not None:
                self._observe(occurrence, stop)
            for series in self._correlator.due(self._clock.monotonic()):
                self._update(series, stop)
        self._flush(stop)
        watcher.join()

    def _wake_at(self, stop: threading.Event) -> None:
        # The writer waits on a condition; this thread turns the stop signal into a notification.
        self._clock.wait(stop, None)
        with self._changed:
            self._changed.notify_all()

    def _next(self, stop: threading.Event) -> Occurrence | None:
        """The next occurrence, or None when a series is due or the stop signal came."""
        with self._changed:
            while not self._queue:
                if stop.is_set():
                    return None
                due = self._correlator.next_due()
                left = None if due is None else due - self._clock.monotonic()
                if left is not None and left <= 0:
                    return None
                self._clock.wait_condition(self._changed, left)
            return self._queue.popleft()

    def _flush(self, stop: threading.Event) -> None:
        self._flush_until = self._clock.monotonic() + FLUSH_SECONDS
        while True:
            with self._changed:
                # Whoever goes on reporting must not keep the process from ending.
                if not self._queue or self._clock.monotonic() >= self._flush_until:
                    self._closed = True
                    break
                occurrence = self._queue.popleft()
            self._observe(occurrence, stop)
        for _ in self._queue:
            self._drop("stopped")
        self._queue.clear()
        for series in self._correlator.outstanding(self._clock.monotonic()):
            self._update(series, stop)

    def _observe(self, occurrence: Occurrence, stop: threading.Event) -> None:
        try:
            decision = self._correlator.observe(occurrence, self._clock.monotonic())
        except TypeError as error:  # a name that is a list, say: it cannot be told from others
            self._drop("invalid")
            _logger.warning("an event was not valid", err=error, reason=occurrence.reason)
            return
        if decision.dropped:
            self._drop(decision.dropped)
        if decision.create is not None:
            self._create(decision.create, stop)
        for series in decision.updates:
            self._update(series, stop)

    def _create(self, series: Series, stop: threading.Event) -> None:
        self._name(series)
        self._write(lambda timeout: self._create_once(series, timeout), series, stop)

    def _name(self, series: Series) -> None:
        regarding = series.occurrence.regarding
        series.name = event_name(regarding.name, self._token())
        series.namespace = regarding.namespace or self._cluster_namespace

    def _create_once(self, series: Series, timeout: float) -> None:
        try:
            self._create_in_group(series, timeout)
        except AlreadyExists:
            return  # an earlier try got through, though its answer did not
        except Invalid as error:
            # Servers of version 1.20 refuse events of cluster-scoped objects anywhere but in kube-system.
            if series.occurrence.regarding.namespace or series.namespace == OLD_CLUSTER_NAMESPACE:
                raise
            if not any(cause.field == "involvedObject.namespace" for cause in error.causes):
                raise
            self._cluster_namespace = series.namespace = OLD_CLUSTER_NAMESPACE
            self._create_once(series, timeout)

    def _create_in_group(self, series: Series, timeout: float) -> None:
        if not self._core:
            try:
                self._client.create(EVENTS_V1, events_v1_event(series), series.namespace, timeout=timeout)
                return
            except NotFound as error:
                if error.details.get("kind") == "namespaces":
                    raise
                self._core = True
                _logger.info("the server has no events.k8s.io/v1, events are written as core v1")
        self._client.create(EVENT, core_event(series), series.namespace, timeout=timeout)

    def _update(self, series: Series, stop: threading.Event) -> None:
        def write(timeout: float) -> None:
            kind = EVENT if self._core else EVENTS_V1
            patch: Object = {"series": series_of(series)}
            if self._core:
                patch["lastTimestamp"] = core_event(series)["lastTimestamp"]
            try:
                self._client.patch(kind, series.name, patch, series.namespace, timeout=timeout)
            except NotFound:
                # The cluster has forgotten the Event (they live for an hour): the series goes on in a new
                # one.
                self._name(series)
                self._create_once(series, timeout)

        self._write(write, series, stop)

    def _write(self, write: Callable[[float], None], series: Series, stop: threading.Event) -> None:
        try:
            self._with_tries(write, stop)
            series.written = series.count
        except _Unwritable as unwritable:
            self._drop(unwritable.reason)
            _logger.debug("an event was not written", err=unwritable.error, why=unwritable.reason)
        except Exception as error:  # noqa: BLE001 - one event that makes no sense must not end all reporting
            self._drop("invalid")
            _logger.warning("an event was not valid", err=error, reason=series.occurrence.reason)

    def _with_tries(self, write: Callable[[float], None], stop: threading.Event) -> None:
        for number in range(1, TRIES + 1):
            timeout = WRITE_TIMEOUT
            if stop.is_set():
                timeout = self._time_to_flush()
            try:
                write(timeout)
                return
            except Stopped as error:
                raise _Unwritable("stopped", error) from error
            except _TRANSIENT as error:
                if number == TRIES:
                    raise _Unwritable("unavailable", error) from error
            except ApiError as error:
                raise _Unwritable("rejected", error) from error
            pause = PAUSE_SECONDS * (1.0 + PAUSE_SPREAD * (2.0 * self._draw() - 1.0))
            if stop.is_set():
                # No time for a pause that long: one more try at the end of what is left is not worth a wait.
                raise _Unwritable("stopped")
            self._clock.sleep(pause, stop)

    def _time_to_flush(self) -> float:
        if self._flush_until == 0.0:
            self._flush_until = self._clock.monotonic() + FLUSH_SECONDS
        left = self._flush_until - self._clock.monotonic()
        if left <= 0:
            raise _Unwritable("stopped")
        return min(WRITE_TIMEOUT, left)

    def _drop(self, reason: str) -> None:
        self._metrics.events_dropped.labels(reason).inc()


class NamedRecorder:
    """A recorder that speaks for one controller; all of them write through one `Recorder`."""

    __slots__ = ("_controller", "_recorder")

    def __init__(self, recorder: Recorder, controller: str) -> None:
        self._recorder = recorder
        self._controller = controller

    def emit(
        self,
        obj: Object,
        type: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        related: Object | None = None,
        important: bool = False,
    ) -> None:
        """Report that something happened to an object; see `Recorder.emit`."""
        self._recorder.emit(
            obj,
            type,
            reason,
            action,
            note,
            related=related,
            important=important,
            controller=self._controller,
        )


def _refer(obj: Object) -> Reference:
    reference = Reference(
        api_version=str(obj.get("apiVersion", "")),
        kind=str(obj.get("kind", "")),
        namespace=namespace_of(obj),
        name=name_of(obj),
        uid=uid_of(obj),
    )
    if not reference.kind or not reference.name:
        raise ValueError("obj: an event needs an object with kind and metadata.name")
    return reference
