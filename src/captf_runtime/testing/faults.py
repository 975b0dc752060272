"""Faults that the embedded API server injects when told to.

Expected flow::

    fault = server.faults.add(Match(verb="update", resource="secrets"), conflict(after_commit=True), times=2)
    ...                       # the next two updates are stored and yet answered with 409
    assert fault.hits == 2
    fault.remove()

Guarantees: the same seed and the same order of requests give the same faults; every fault counts its hits; a
removed one never strikes again. Several faults may strike one request: latency adds up, of the others the one
added first wins.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Action",
    "Fault",
    "Faults",
    "Match",
    "Subject",
    "compaction",
    "conflict",
    "drop_watch",
    "duplicate_events",
    "error",
    "forbidden",
    "internal_error",
    "invalid_json",
    "latency",
    "no_bookmarks",
    "no_end_marker",
    "reset",
    "silence",
    "too_many_requests",
    "truncate",
    "unavailable",
    "watch_error",
]

ActionKind = Literal[
    "answer",
    "reset",
    "latency",
    "truncate",
    "invalid-json",
    "drop",
    "silence",
    "no-bookmarks",
    "no-end-marker",
    "duplicates",
    "watch-error",
    "compaction",
]
_WATCH_KINDS = frozenset(
    {"drop", "silence", "no-bookmarks", "no-end-marker", "duplicates", "watch-error", "compaction"}
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a fault is matched against: one request."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a fault may strike; None matches anything. `verb` may be one or several, joined by commas.

    Verbs are get, list, watch, create, update, patch, delete and deletecollection. Without a `subresource`
    requests on the object and on all its subresources match; "" matches the object itself only.
    """

    verb: str | None = None
    resource: str | None = None
    name: str | None = None
    user: str | None = None
    namespace: str | None = None
    subresource: str | None = None
    group: str | None = None

    def matches(self, subject: Subject) -> bool:
        """Whether the request is one of those."""
        if self.verb is not None and subject.verb not in self.verb.split(","):
            return False
        pairs = (
            (self.resource, subject.resource),
            (self.name, subject.name),
            (self.user, subject.user),
            (self.namespace, subject.namespace),
            (self.subresource, subject.subresource),
            (self.group, subject.group),
        )
        return all(wanted is None or wanted == found for wanted, found in pairs)


@dataclass(frozen=True, slots=True)
class Action:
    """What happens to a request; made by the functions of this module.

    `events` counts the watch events that pass before a watch fault strikes.
    """

    kind: ActionKind
    after_commit: bool = False
    code: int = 0
    reason: str = ""
    message: str = ""
    retry_after: int | None = None
    seconds: float = 0.0
    events: int = 0
    mid_line: bool = False
    keep: int = 0

    @property
    def on_watch(self) -> bool:
        """Whether it changes a running watch instead of an answer."""
        return self.kind in _WATCH_KINDS


def error(
    code: int, reason: str = "", message: str = "injected fault", *, after_commit: bool = False
) -> Action:
    """Answer with a failure Status; `after_commit` lets the write happen first."""
    return Action("answer", after_commit, code, reason, message)


def conflict(*, after_commit: bool = False) -> Action:
    """409 as for a stale version."""
    return error(409, "Conflict", "", after_commit=after_commit)


def forbidden(message: str = "injected fault") -> Action:
    """403."""
    return error(403, "Forbidden", message)


def internal_error(*, after_commit: bool = False) -> Action:
    """500."""
    return error(500, "InternalError", "Internal error occurred: injected fault", after_commit=after_commit)


def unavailable(*, retry_after: int | None = None) -> Action:
    """503, with a Retry-After in whole seconds when given."""
    text = "the server is currently unable to handle the request"
    return Action("answer", False, 503, "ServiceUnavailable", text, retry_after)


def too_many_requests(retry_after: int | None = 1) -> Action:
    """429, with a Retry-After in whole seconds unless None."""
    text = "Too many requests, please try again later."
    return Action("answer", False, 429, "TooManyRequests", text, retry_after)


def reset(*, after_commit: bool = False) -> Action:
    """Cut the connection without an answer, before or after the request was carried out."""
    return Action("reset", after_commit)


def latency(seconds: float) -> Action:
    """Wait before the request is looked at."""
    return Action("latency", seconds=seconds)


def truncate(keep: int = 20) -> Action:
    """Send only the first `keep` bytes of the body that was announced, then close."""
    return Action("truncate", True, keep=keep)


def invalid_json() -> Action:
    """Answer 200 with a body that is no JSON."""
    return Action("invalid-json", True)


def drop_watch(after_events: int = 0, *, mid_line: bool = False) -> Action:
    """Cut a watch after that many events; `mid_line` leaves half of the next line behind."""
    return Action("drop", events=after_events, mid_line=mid_line)


def silence(after_events: int = 0) -> Action:
    """Send nothing more on a watch, but keep its connection open."""
    return Action("silence", events=after_events)


def no_bookmarks() -> Action:
    """Leave all bookmarks out of a watch."""
    return Action("no-bookmarks")


def no_end_marker() -> Action:
    """Leave the bookmark that ends the initial events out of a watch."""
    return Action("no-end-marker")


def duplicate_events() -> Action:
    """Send every event of a watch twice."""
    return Action("duplicates")


def watch_error(
    code: int, reason: str = "", message: str = "injected fault", *, after_events: int = 0
) -> Action:
    """Send an ERROR event after that many events and end the watch."""
    return Action("watch-error", code=code, reason=reason, message=message, events=after_events)


def compaction(after_events: int = 0) -> Action:
    """Forget all history and end the watch with a 410, as a watch that fell behind a compaction ends."""
    return Action("compaction", events=after_events)


class Fault:
    """A fault that was added; `hits` counts the requests that it struck."""

    def __init__(
        self,
        owner: Faults,
        match: Match,
        action: Action,
        *,
        times: int | None,
        probability: float,
        after: int,
    ) -> None:
        self.match = match
        self.action = action
        self.hits = 0
        self._owner = owner
        self._times = times
        self._probability = probability
        self._after = after

    def remove(self) -> None:
        """Never strike again; removing twice does nothing."""
        self._owner.discard(self)

    @property
    def exhausted(self) -> bool:
        """Whether all its `times` are over."""
        return self._times is not None and self.hits >= self._times

    def strikes(self, subject: Subject, draw: Callable[[], float]) -> bool:
        """Decide about one request and count it; called by `Faults` under its lock."""
        if self.exhausted or not self.match.matches(subject):
            return False
        if self._after > 0:
            self._after -= 1
            return False
        if self._probability < 1.0 and draw() >= self._probability:
            return False
        self.hits += 1
        return True


class Faults:
    """The faults of one server. Thread-safe; empty it costs one look for each request."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._faults: tuple[Fault, ...] = ()

    def add(
        self,
        match: Match,
        action: Action,
        *,
        times: int | None = None,
        probability: float = 1.0,
        after: int = 0,
    ) -> Fault:
        """Strike requests that `match`.

        Args:
            times: how often in all; None means until it is removed.
            probability: of each matching request, from 0 to 1.
            after: matching requests that pass first.
        """
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"probability must be between 0 and 1, not {probability}")
        if times is not None and times < 1:
            raise ValueError(f"times must be at least 1, not {times}")
        if after < 0:
            raise ValueError(f"after must not be negative, not {after}")
        fault = Fault(self, match, action, times=times, probability=probability, after=after)
        with self._lock:
            self._faults = (*self._faults, fault)
        return fault

    def discard(self, fault: Fault) -> None:
        """Remove one fault."""
        with self._lock:
            self._faults = tuple(present for present in self._faults if present is not fault)

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults = ()

    def __len__(self) -> int:
        return len(self._faults)

    def seed(self, seed: int) -> None:
        """Start the random draws anew."""
        with self._lock:
            self._random = random.Random(seed)

    def strike(self, subject: Subject) -> list[Action]:
        """The actions that strike this request, in the order in which they were added."""
        if not self._faults:
            return []
        with self._lock:
            return [fault.action for fault in self._faults if fault.strikes(subject, self._random.random)]
