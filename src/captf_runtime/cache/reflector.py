"""Keeps a store equal to what the server has: one list, then its changes, for ever.

The loop is a small state machine. Its state is the last good version: with one, the next step is a watch from
there; without, a list. What went wrong decides which state follows and after which pause:

=====================================  ==========================  =======================================
what happened                          next step                   pause
=====================================  ==========================  =======================================
the watch ended normally               watch                       none
the watch broke off after changes      watch                       none
... within a second, without an event  watch                       backoff
410 in any form                        list, without a version     none; backoff if the version was fresh
version too large (of a list)          list, without a version     and the same happened just before
nothing came for too long              watch                       none
an undecodable line                    watch; the third: list      backoff
429                                    as before                   backoff, at least `Retry-After`
anything else                          as before                   backoff
=====================================  ==========================  =======================================

A change that a watch brings is progress: until ten seconds after the last one every pause is a first one. A
server that does its work between its failures, however many, is thus followed closely; one that only fails is
asked ever less often.

Beside that, at most five requests are sent in any second, pages with content apart, so that no answer of a
server can turn this loop into a burden for it.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from captf_runtime.backoff import Backoff, spread
from captf_runtime.cache.scope import Scope
from captf_runtime.cache.stored import StoredObject, store_header, store_object, store_raw
from captf_runtime.client import (
    ApiError,
    Cancellation,
    Client,
    ConnectionFailed,
    Gone,
    RequestTimeout,
    ResourceVersionTooLarge,
    Stopped,
    TooManyRequests,
    TransportError,
    WatchDecodeError,
    WatchEvent,
    WatchStream,
)
from captf_runtime.client.nesting import TooDeep
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.log import get_logger
from captf_runtime.metrics import Metrics
from captf_runtime.objects import Object, compare_resource_versions

_logger = get_logger(__name__)

FIRST_DELAY, LONGEST_DELAY, RESET_AFTER = 0.8, 30.0, 120.0
WATCH_SECONDS = (300, 600)
BOOKMARK_SILENCE = 90.0
TIMEOUT_MARGIN = 30.0
SHORT_WATCH = 1.0
REQUESTS_PER_SECOND = 5
DECODE_FAILURES = 3
OUTDATED_PERIOD = 10.0
PROGRESS_PERIOD = 10.0
FRESH_VERSION = 1.0

STREAM_SILENCE = 60.0
STREAM_TOTAL = 300.0
STREAM_FAILURES = 2

_END_OF_INITIAL_EVENTS = "k8s.io/initial-events-end"

Transform = Callable[[Object], Object | None]
"""Changes an object before it is stored; None leaves it out."""


@dataclass(frozen=True, slots=True)
class LastError:
    """What keeps a reflector from working.

    Args:
        message: the error's text.
        time: when it last happened.
        count: how many times in a row.
    """

    message: str
    time: datetime
    count: int

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.message}{times}"


class Sink(Protocol):
    """Where a reflector puts what it sees."""

    def stored(self, namespace: str, name: str) -> StoredObject | None:
        """What is stored now under this name."""
        ...

    def replace(self, objects: Iterable[StoredObject], version: str) -> None:
        """A complete list."""
        ...

    def put(self, obj: StoredObject, version: str) -> None:
        """An object was added or has changed."""
        ...

    def remove(self, last: StoredObject, version: str) -> None:
        """An object was deleted; its last content."""
        ...

    def advance(self, version: str) -> None:
        """Everything up to this version has been seen."""
        ...


class StreamingLists:
    """Whether the server answers lists as streams; learned once, shared by the reflectors of a client.

    Args:
        enabled: try it at all.
    """

    def __init__(self, *, enabled: bool = False) -> None:
        self._lock = threading.Lock()
        self._usable = enabled
        self._failures = 0

    @property
    def usable(self) -> bool:
        """False once it was found not to work, for the rest of the process."""
        return self._usable

    def give_up(self, reason: str) -> None:
        """Use ordinary lists from now on."""
        with self._lock:
            if self._usable:
                self._usable = False
                _logger.info("lists are not streamed: using ordinary lists", reason=reason)

    def ended_early(self) -> None:
        """A stream ended before its end marker; the second time this is given up."""
        with self._lock:
            self._failures += 1
            enough = self._failures >= STREAM_FAILURES
        if enough:
            self.give_up("streams ended before their end marker")

    @classmethod
    def of(cls, client: Client) -> StreamingLists:
        """The shared, enabled instance of a client."""
        with _streaming_lock:
            found = _streaming_by_client.get(client)
            if found is None:
                found = _streaming_by_client[client] = cls(enabled=True)
            return found


_streaming_by_client: weakref.WeakKeyDictionary[Client, StreamingLists] = weakref.WeakKeyDictionary()
_streaming_lock = threading.Lock()


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str | None = None
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode
_decode_object: Callable[[bytes], Object] = msgspec.json.Decoder(dict).decode


class _StreamUnusable(Exception):
    """The server does not stream lists, or not to their end."""


class Reflector:
    """Lists and watches one scope into a sink, on the thread that calls `run`.

    Guarantees: the sink gets one complete list, then each later change once and in order, as long as the
    server keeps them; after a gap, another complete list. `stop` ends a blocked read at once.

    Args:
        transform: changes each object before it is stored; one that raises is counted, and the object is
            stored as it came.
        streaming: whether to ask for lists as streams.
        draw: source of randomness, like `random.uniform`.
    """

    def __init__(
        self,
        client: Client,
        scope: Scope,
        sink: Sink,
        *,
        transform: Transform | None = None,
        streaming: StreamingLists | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._client = client
        self._scope = scope
        self._form = scope.form
        self._sink = sink
        self._transform = transform
        self._streaming = streaming or StreamingLists()
        self._clock = clock
        self._draw = draw
        self._stop = threading.Event()
        self._cancellation = Cancellation()
        self._stream_lock = threading.Lock()
        self._stream: WatchStream | None = None
        self._backoff = Backoff(
            base=FIRST_DELAY,
            cap=LONGEST_DELAY,
            reset_after=RESET_AFTER,
            jitter=lambda delay: spread(delay, lambda: draw(0.0, 1.0)),
            clock=clock,
        )
        self._requests: deque[float] = deque(maxlen=REQUESTS_PER_SECOND)

        self._version = ""
        self._listed = False
        self._list_version: str | None = "0"
        self._lists = 0
        self._watches = 0
        self._bookmarked = False
        self._outdated_at = float("-inf")
        self._progress = False  # this step has brought a change
        self._progress_at = float("-inf")
        self._completed_at = float("-inf")
        self._decode_failures = 0
        self._last_error: LastError | None = None

        kind = scope.kind.kind
        numbers = metrics if metrics is not None else Metrics()
        self._relists = numbers.informer_relists.labels(kind)
        self._reconnects = numbers.informer_reconnects.labels(kind)
        self._decode_errors = numbers.informer_decode_errors.labels(kind)
        self._idle = numbers.watch_idle.labels(kind)
        self._transform_failures = numbers.handler_failures.labels(kind)
        self._last_event = numbers.informer_last_event.labels(kind)

    @property
    def last_error(self) -> LastError | None:
        """What keeps it from working now; None while all is well."""
        return self._last_error

    @property
    def version(self) -> str:
        """The last good version, "" before the first list."""
        return self._version

    def stop(self) -> None:
        """Make `run` return soon; ends a blocked read. Any thread may call it."""
        self._stop.set()
        self._cancellation.cancel()
        with self._stream_lock:
            stream = self._stream
        if stream is not None:
            stream.close()

    def run(self) -> None:
        """List and watch until `stop`."""
        while not self._stop.is_set():
            delay = self._step()
            if delay > 0:
                self._clock.sleep(delay, self._stop)

    def _step(self) -> float:
        """List or watch once; return the pause before the next step."""
        self._progress = False
        try:
            if not self._listed:
                self._list()
            return self._watch()
        except Stopped:
            return self._failed(self._stopped_client())
        except (Gone, ResourceVersionTooLarge) as error:
            return self._outdated(error)
        except WatchDecodeError as error:
            return self._undecodable(error)
        except TooManyRequests as error:
            return max(self._failed(error), float(error.retry_after or 0))
        except TransportError as error:
            if not self._progress:
                return self._failed(error)
            _logger.debug("a watch broke off: opening it again", kind=str(self._scope), err=error)
            return 0.0
        except ApiError as error:
            return self._failed(error)

    def _stopped_client(self) -> ApiError:
        return ConnectionFailed("the client was closed under a running informer")

    # List -------------------------------------------------------------------------------------------

    def _list(self) -> None:
        if self._lists > 0:
            self._relists.inc()
        self._lists += 1
        if self._streaming.usable:
            try:
                self._stream_list()
                return
            except _StreamUnusable as error:
                _logger.debug("streamed list failed", kind=self._scope.kind.kind, reason=str(error))
        objects: list[StoredObject] = []
        version = ""
        self._pace()
        pages = self._client.raw_pages(
            self._scope.kind,
            self._scope.namespace,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            metadata_only=self._scope.metadata_only,
            resource_version=self._list_version,
            repeat=False,
            cancellation=self._cancellation,
        )
        for page in pages:
            if page.restarted:
                objects.clear()
            version = page.resource_version
            items, more = page.items, bool(page.continue_token)
            del page  # nothing of a page may stay while the next one arrives
            objects.extend(self._convert_all(items))
            empty = not items
            del items
            if more and empty:
                self._pace()
        self._complete(objects, version)

    def _convert_all(self, items: list[msgspec.Raw]) -> Iterable[StoredObject]:
        for raw in items:
            obj = self._convert(raw)
            if obj is None:
                continue
            # An object that has not changed keeps its place in memory.
            known = self._sink.stored(obj.header.namespace, obj.header.name)
            if (
                known is not None
                and known.header.uid == obj.header.uid
                and known.header.resource_version == obj.header.resource_version != ""
            ):
                yield known
            else:
                yield obj

    def _complete(self, objects: Iterable[StoredObject], version: str) -> None:
        self._sink.replace(objects, version)
        self._version = version
        self._listed = True
        self._completed_at = self._clock.monotonic()
        # From now on a relist need not be older than what has been seen.
        self._list_version = version or None
        self._decode_failures = 0
        self._last_error = None

    def _convert(self, raw: msgspec.Raw | bytes) -> StoredObject | None:
        """Return what is to be stored, None for nothing."""
        try:
            if self._transform is None:
                return store_raw(raw, self._form)
            return self._transformed(self._transform, bytes(raw))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._decode_errors.inc()
            _logger.warning("an object cannot be read and is left out", kind=str(self._scope), err=error)
            return None

    def _transformed(self, transform: Transform, raw: bytes) -> StoredObject | None:
        try:
            obj = _decode_object(raw)
        except RecursionError:
            raise TooDeep("the object is nested too deeply") from None
        metadata = obj.get("metadata")
        if isinstance(metadata, dict):
            metadata.pop("managedFields", None)
        try:
            changed = transform(obj)
            return None if changed is None else store_object(changed, self._form)
        except BaseException as error:  # noqa: BLE001 - a foreign function must not stop the cache
            self._transform_failures.inc()
            _logger.warning(
                "a transform failed: the object is kept as it is", kind=str(self._scope), err=error
            )
            return store_raw(raw, self._form)

    # Streamed list ----------------------------------------------------------------------------------

    def _stream_list(self) -> None:
        """List through a watch that begins with all objects, and go on with the same watch.

        Raises:
            _StreamUnusable: an ordinary list has to do it.
        """
        started = self._clock.monotonic()
        initial: dict[tuple[str, str], StoredObject] = {}
        try:
            stream = self._open(None, read_timeout=STREAM_SILENCE, send_initial_events=True)
        except (Gone, TooManyRequests):
            raise
        except ApiError as error:
            if 400 <= error.code < 500 and error.code not in (401, 403, 404):
                self._streaming.give_up(f"the server answers {error.code}")
                raise _StreamUnusable(str(error)) from error
            raise
        last_event = started
        try:
            for event in stream:
                now = self._clock.monotonic()
                if event.type == "BOOKMARK":
                    version, ended = self._bookmark(event)
                    if ended and version:
                        self._complete(initial.values(), version)
                        self._bookmarked = True
                        stream.set_read_timeout(BOOKMARK_SILENCE)
                        self._follow(stream, started)
                        return
                    if now - last_event > STREAM_SILENCE:
                        break
                else:
                    last_event = now
                    self._collect(initial, event)
                if now - started > STREAM_TOTAL:
                    break
            else:
                if self._stop.is_set():
                    raise Stopped("the informer is stopped", ambiguous=False)
                self._streaming.ended_early()
                raise _StreamUnusable("the stream ended before its end marker")
            self._streaming.give_up("no end marker came")
            raise _StreamUnusable("no end marker came")
        except RequestTimeout as error:
            if self._listed:
                raise
            self._streaming.give_up("no end marker came")
            raise _StreamUnusable("no end marker came") from error
        except TransportError as error:
            if self._listed or isinstance(error, Stopped):
                raise
            self._streaming.ended_early()
            raise _StreamUnusable(str(error)) from error
        finally:
            self._close(stream)

    def _collect(self, initial: dict[tuple[str, str], StoredObject], event: WatchEvent) -> None:
        obj = self._convert(event.raw)
        if obj is None:
            return
        key = (obj.header.namespace, obj.header.name)
        if event.type == "DELETED":
            initial.pop(key, None)
        else:
            initial[key] = obj

    # Watch ------------------------------------------------------------------------------------------

    def _watch(self) -> float:
        """Watch from the last good version until the server ends it; return the pause before the next."""
        if not self._listed:
            return 0.0
        started = self._clock.monotonic()
        seconds = int(self._draw(*WATCH_SECONDS))
        silence = BOOKMARK_SILENCE if self._bookmarked else seconds + TIMEOUT_MARGIN
        if self._watches > 0:
            self._reconnects.inc()
        self._watches += 1
        stream = self._open(self._version or None, read_timeout=silence, seconds=seconds)
        try:
            return self._follow(stream, started)
        finally:
            self._close(stream)

    def _follow(self, stream: WatchStream, started: float) -> float:
        # Without a version to start from, the server first repeats what there is, in the order of names.
        repeating = self._version == ""
        events = 0
        try:
            for event in stream:
                events += 1
                self._last_error = None
                if event.type == "BOOKMARK":
                    version, _ = self._bookmark(event)
                    if not self._bookmarked:
                        self._bookmarked = True
                        stream.set_read_timeout(BOOKMARK_SILENCE)
                    self._advance(version)
                    repeating = False
                else:
                    repeating = repeating and event.type == "ADDED"
                    self._apply(event, repeating)
                self._decode_failures = 0
        except RequestTimeout:
            # A connection whose other end is gone looks just like this.
            self._idle.inc()
            _logger.info("a watch was silent for too long: opening it again", kind=str(self._scope))
            return 0.0
        if self._stop.is_set():
            return 0.0
        if events == 0 and self._clock.monotonic() - started < SHORT_WATCH:
            return self._failed(TransportError("the watch ended at once", ambiguous=False))
        self._last_error = None
        return 0.0

    def _apply(self, event: WatchEvent, repeating: bool) -> None:
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise WatchDecodeError(f"unknown type of event {event.type[:32]!r}")
        try:
            obj: StoredObject | None
            try:
                seen = store_raw(event.raw, self._form)
                obj = seen if self._transform is None else self._transformed(self._transform, event.raw)
            except TooDeep as error:
                # One object that nobody can read must not keep the others from being seen.
                seen, obj = store_header(event.raw, self._form), None
                self._decode_errors.inc()
                _logger.warning("an object cannot be read and is left out", kind=str(self._scope), err=error)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise WatchDecodeError("the object of an event cannot be read") from error
        version = "" if repeating else self._newer(seen.header.resource_version)
        self._last_event.set(self._clock.now().timestamp())
        if version and version != self._version:
            self._progress = True
            self._progress_at = self._clock.monotonic()
        if obj is None:
            # Left out, by the transform or for its depth; an earlier state of it may have been let in.
            self._sink.remove(seen, version)
        elif event.type == "DELETED":
            self._sink.remove(obj, version)
        else:
            self._sink.put(obj, version)
        if version:
            self._version = version
            self._list_version = version

    def _bookmark(self, event: WatchEvent) -> tuple[str, bool]:
        try:
            meta = _decode_bookmark(event.raw).metadata
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise WatchDecodeError("a bookmark cannot be read") from error
        ended = (meta.annotations or {}).get(_END_OF_INITIAL_EVENTS) == "true"
        return meta.resource_version or "", ended

    def _advance(self, version: str) -> None:
        version = self._newer(version)
        if version:
            self._version = version
            self._list_version = version
            self._sink.advance(version)

    def _newer(self, version: str) -> str:
        """Return the version unless the last good one is known to be higher; then ""."""
        order = compare_resource_versions(version, self._version)
        return "" if order is not None and order < 0 else version

    def _open(
        self,
        version: str | None,
        *,
        read_timeout: float,
        seconds: int = WATCH_SECONDS[1],
        send_initial_events: bool = False,
    ) -> WatchStream:
        self._pace()
        stream = self._client.watch(
            self._scope.kind,
            self._scope.namespace,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            resource_version=version,
            timeout_seconds=seconds,
            metadata_only=self._scope.metadata_only,
            send_initial_events=send_initial_events,
            read_timeout=read_timeout,
            cancellation=self._cancellation,
        )
        with self._stream_lock:
            self._stream = stream
        if self._stop.is_set():
            stream.close()
        return stream

    def _close(self, stream: WatchStream) -> None:
        with self._stream_lock:
            self._stream = None
        stream.close()

    # What went wrong --------------------------------------------------------------------------------

    def _outdated(self, error: ApiError) -> float:
        """The version is not served any more (or not yet): list again, without one."""
        now = self._clock.monotonic()
        # A server that says this of every version must not be asked without a pause. But one that forgets what
        # is a second old, or has brought changes since, is merely busy.
        unchanged = self._progress_at < self._completed_at
        fresh = not self._listed or (unchanged and now - self._completed_at < FRESH_VERSION)
        again = fresh and now - self._outdated_at < OUTDATED_PERIOD
        self._outdated_at = now
        self._listed = False
        self._list_version = None
        return self._failed(error) if again else 0.0

    def _undecodable(self, error: WatchDecodeError) -> float:
        self._decode_errors.inc()
        self._decode_failures += 1
        if self._decode_failures >= DECODE_FAILURES:
            self._decode_failures = 0
            self._listed = False
        return self._failed(error)

    def _failed(self, error: ApiError) -> float:
        if self._stop.is_set():
            return 0.0  # `stop` cut the connection: nothing failed
        count = self._last_error.count + 1 if self._last_error is not None else 1
        self._last_error = LastError(str(error), self._clock.now(), count)
        log = _logger.warning if count == 1 else _logger.debug
        log("cannot list or watch: trying again", kind=str(self._scope), err=error)
        if self._clock.monotonic() - self._progress_at < PROGRESS_PERIOD:
            self._backoff.reset()
        return self._backoff.next()

    def _pace(self) -> None:
        """Wait until the next request is at most the fifth within a second."""
        now = self._clock.monotonic()
        if len(self._requests) == REQUESTS_PER_SECOND:
            wait = self._requests[0] + 1.0 - now
            if wait > 0:
                self._clock.sleep(wait, self._stop)
        self._requests.append(self._clock.monotonic())
