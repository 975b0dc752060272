"""Watches: the stream of changes of one table as one client sees it.

Guarantees: from a start version every later change that concerns the selection comes once and in order; a
change that leaves the selection is DELETED, one that enters it ADDED. A watcher that falls behind is cut and
never slows a write down.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.http_server import Stream
from captf_runtime.testing.apiserver.selectors import FieldSelector, LabelSelector
from captf_runtime.testing.apiserver.storage import Change, Compacted, Record, Store
from captf_runtime.testing.apiserver.views import View

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records a list or watch is about."""

    namespace: str
    labels: LabelSelector
    fields: FieldSelector
    values: Callable[[Record], dict[str, str]]

    def holds(self, record: Record) -> bool:
        """Whether the record is selected."""
        if self.namespace and record.namespace != self.namespace:
            return False
        if self.labels.requirements and not self.labels.matches(
            record.object["metadata"].get("labels") or {}
        ):
            return False
        return not self.fields.terms or self.fields.matches(self.values(record))

    @property
    def everything(self) -> bool:
        """Whether no selector narrows it inside its namespace."""
        return not self.labels.requirements and not self.fields.terms


@dataclass(slots=True)
class WatchOptions:
    """How long a watch lasts and what it tells besides changes; times are in seconds."""

    timeout: float
    bookmarks: bool = False
    bookmark_interval: float = 60.0
    initial_events: bool = False
    buffer: int = 10_000
    dismissals: int = 0


class Watcher:
    """Collects changes for one stream; `notify` runs under the store's lock."""

    def __init__(self, selection: Selection, stream: Stream, buffer: int) -> None:
        self.selection = selection
        self.stream = stream
        self.pending: deque[Change] = deque()
        self.overflowed = False
        self.dismissed = False
        self.after = 0
        self._buffer = buffer

    def notify(self, change: Change) -> None:
        """Queue a change, or cut the stream when too many wait."""
        if change.version <= self.after or self.overflowed:
            return
        namespace = self.selection.namespace
        if namespace and change.record.namespace != namespace:
            return
        if len(self.pending) >= self._buffer:
            self.overflowed = True
            self.stream.abort()
            return
        self.pending.append(change)
        self.stream.waker.wake()

    def dismiss(self) -> None:
        """End the stream after what is pending."""
        self.dismissed = True
        self.stream.waker.wake()

    def cut(self) -> None:
        """Break the stream off where it is."""
        self.stream.abort()


def translate(selection: Selection, change: Change) -> tuple[str, Record] | None:
    """The event that a watcher of the selection sees for a change, if any."""
    before = change.previous is not None and selection.holds(change.previous)
    if change.type == "DELETED":
        return ("DELETED", change.record) if before else None
    after = selection.holds(change.record)
    if after:
        return ("MODIFIED" if before else "ADDED", change.record)
    if before and change.previous is not None:
        return ("DELETED", _departed(change.previous, change.version))
    return None


def _departed(previous: Record, version: int) -> Record:
    """The last state that was selected, under the version of the change that ended it."""
    obj = previous.copy()
    obj["metadata"]["resourceVersion"] = str(version)
    return Record(previous.key, previous.namespace, previous.name, version, obj, msgspec.json.encode(obj))


def event_line(kind: str, obj: bytes) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"' + kind.encode() + b'","object":' + obj + b"}\n"


def error_line(failure: status.ApiStatus) -> bytes:
    """An ERROR event."""
    return event_line("ERROR", msgspec.json.encode(failure.to_object()))


def serve(
    store: Store,
    table: str,
    view: View,
    selection: Selection,
    start: int | None,
    options: WatchOptions,
    stream: Stream,
    send: Callable[[str, bytes], bool],
) -> None:
    """Write a watch to `stream` until its timeout, the client's end, or the server's stop.

    `start` is the version after which changes are told; None means: first ADDED for everything present, in key
    order. `send(type, line)` writes one line and says whether to go on; it is the place of fault injection.
    """
    watcher = Watcher(selection, stream, options.buffer)
    with store.lock:
        initial: list[Record] = []
        revision = store.revision
        if start is None:
            initial = store.list(table, selection.namespace)
            watcher.after = revision
        else:
            watcher.after = start
            try:
                for change in store.changes_since(table, start):
                    if not selection.namespace or change.record.namespace == selection.namespace:
                        watcher.pending.append(change)
            except Compacted as gone:
                message = f"too old resource version: {start} ({gone.oldest})"
                send("ERROR", error_line(status.expired(message)))
                stream.finish()
                return
        store.subscribe(table, watcher)
        if store.dismissals(table) != options.dismissals:
            # What it would watch was defined anew while it was being opened.
            watcher.dismiss()
    try:
        for record in initial:
            if selection.holds(record) and not send("ADDED", event_line("ADDED", view.event(record))):
                return
        if options.initial_events:
            marker: Object = {INITIAL_EVENTS_END: "true"}
            if not send("END", event_line("BOOKMARK", view.bookmark(revision, marker))):
                return
        _follow(store, watcher, view, options, stream, send)
    finally:
        store.unsubscribe(table, watcher)


def _follow(
    store: Store,
    watcher: Watcher,
    view: View,
    options: WatchOptions,
    stream: Stream,
    send: Callable[[str, bytes], bool],
) -> None:
    end = time.monotonic() + options.timeout
    bookmark_at = time.monotonic() + options.bookmark_interval
    # A client that is about to be sent away learns how far it got.
    last_bookmark = end - min(2.0, options.timeout / 4)
    final_sent = False
    while not watcher.overflowed:
        while watcher.pending:
            change = watcher.pending.popleft()
            event = translate(watcher.selection, change)
            if event is not None and not send(event[0], event_line(event[0], view.event(event[1]))):
                return
        now = time.monotonic()
        if watcher.dismissed and not watcher.pending:
            stream.finish()
            return
        # Also at the end, when this thread comes to it late.
        closing = not final_sent and now >= last_bookmark
        if options.bookmarks and (now >= bookmark_at or closing):
            with store.lock:
                quiet = not watcher.pending
                revision = max(store.revision, watcher.after if watcher.after <= store.revision else 0)
            if not quiet and now < end:
                continue
            if quiet:
                final_sent = final_sent or closing
                bookmark_at = now + options.bookmark_interval
                if not send("BOOKMARK", event_line("BOOKMARK", view.bookmark(revision))):
                    return
        if now >= end:
            stream.finish()
            return
        limits = [end]
        if options.bookmarks:
            limits.append(bookmark_at)
            if not final_sent:
                limits.append(last_bookmark)
        if not stream.wait(min(limits) - time.monotonic()):
            return
