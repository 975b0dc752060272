"""A clock that moves only when told to, for tests that must not wait for real time.

Expected flow::

    clock = VirtualClock()
    start_the_thing_under_test(clock=clock)
    clock.wait_for_waiters(1)      # it is asleep now
    clock.advance(30)              # half a minute passes; sleepers whose time has come wake

Guarantees: `now()` and `monotonic()` move together and only by `advance` or `set`; everything that waits
through the clock for a moment that has been reached is woken at once; a waiter whose event is set is woken
within `POLL_SECONDS` of real time. Assumes that waiters test their predicate after a condition wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

__all__ = ["POLL_SECONDS", "VirtualClock"]

POLL_SECONDS = 0.005
"""Real seconds between looks at an event that is waited for: setting one tells the clock nothing."""

_START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """A `Clock` whose time a test moves by hand.

    Args:
        start: the wall time at the beginning, aware; default 2026-01-01T00:00:00Z.
    """

    def __init__(self, start: datetime = _START) -> None:
        if start.tzinfo is None:
            raise ValueError("start: needs a time zone, for example datetime(2026, 1, 1, tzinfo=UTC)")
        self._moved = threading.Condition()
        self._wall = start.astimezone(UTC)
        self._monotonic = 1000.0
        # What blocked threads wait for: a token per wait, with its deadline (None: no limit) and, for a
        # condition wait, the condition to notify.
        self._waiters: dict[object, tuple[float | None, threading.Condition | None]] = {}

    def now(self) -> datetime:
        """The virtual wall time, aware and in UTC."""
        with self._moved:
            return self._wall

    def monotonic(self) -> float:
        """Virtual seconds; starts at 1000 so that a forgotten zero shows up in tests."""
        with self._moved:
            return self._monotonic

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block until `event` is set or time has moved by `timeout` seconds; True when it is set."""
        with self._moved:
            deadline = None if timeout is None else self._monotonic + timeout
            with self._waiting(deadline, None):
                while not event.is_set():
                    if deadline is not None and self._monotonic >= deadline:
                        return event.is_set()
                    self._moved.wait(POLL_SECONDS)
        return True

    def wait_condition(self, condition: threading.Condition, timeout: float | None) -> None:
        """Block on `condition` until notified or the clock has been moved by `timeout` seconds."""
        with self._moved:
            deadline = None if timeout is None else self._monotonic + timeout
            if deadline is not None and self._monotonic >= deadline:
                return
            token = object()
            self._waiters[token] = (deadline, condition)
            self._moved.notify_all()
        try:
            # The caller holds the condition's lock from before the registration until wait() gives it up, and
            # advance() takes that lock to notify: a move of the clock cannot slip in between unseen.
            condition.wait()
        finally:
            with self._moved:
                del self._waiters[token]

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> bool:
        """Pause until the clock has been moved by `seconds`, or `stop` is set. True when `stop` ended it."""
        return self.wait(stop if stop is not None else threading.Event(), seconds)

    def advance(self, seconds: float) -> None:
        """Move time forward by `seconds` and wake whoever waited for a moment up to then."""
        if seconds < 0:
            raise ValueError(f"seconds: time does not go back, got {seconds}")
        with self._moved:
            self._monotonic += seconds
            self._wall += timedelta(seconds=seconds)
            self._moved.notify_all()
            due = {
                id(condition): condition
                for deadline, condition in self._waiters.values()
                if condition is not None and deadline is not None and deadline <= self._monotonic
            }
        # Outside the own lock: a waiter holds its condition's lock while it asks the clock for the time.
        for condition in due.values():
            with condition:
                condition.notify_all()

    def set(self, wall: datetime) -> None:
        """Set the wall time alone, as an administrator might; durations are not touched."""
        with self._moved:
            self._wall = wall.astimezone(UTC)

    @property
    def waiters(self) -> int:
        """How many threads wait through this clock for a moment to come."""
        with self._moved:
            return self._limited()

    def wait_for_waiters(self, count: int, real_timeout: float = 60.0) -> None:
        """Block (for real) until at least `count` threads wait through this clock with a time limit.

        Raises:
            TimeoutError: after `real_timeout` seconds of real time, with the number seen.
        """
        deadline = time.monotonic() + real_timeout
        with self._moved:
            while self._limited() < count:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{self._limited()} threads wait on the clock, not {count}")
                self._moved.wait(left)

    def _limited(self) -> int:
        # One whose time has come is on its way out, though it may not have run yet.
        return sum(
            1 for deadline, _ in self._waiters.values() if deadline is not None and deadline > self._monotonic
        )

    @contextmanager
    def _waiting(self, deadline: float | None, condition: threading.Condition | None) -> Iterator[None]:
        token = object()
        self._waiters[token] = (deadline, condition)
        self._moved.notify_all()
        try:
            yield
        finally:
            del self._waiters[token]
