"""Time as a parameter: the clock that every waiting part of the library takes.

Durations are measured on the monotonic clock; wall time appears only where it is written into an object.
Production code passes a `SystemClock`; tests pass `captf_runtime.testing.clock.VirtualClock`, on which time
moves only when the test says so.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "clamp_timeout"]


def clamp_timeout(seconds: float | None) -> float | None:
    """Bring a timeout into the range that `threading` accepts: 0 to `threading.TIMEOUT_MAX`.

    None stays None (wait without limit). Without the clamp a very long delay, which is legal for a caller,
    would raise `OverflowError` in the middle of a wait.
    """
    if seconds is None:
        return None
    return min(max(seconds, 0.0), threading.TIMEOUT_MAX)


class Clock(Protocol):
    """What the library needs to know about time. Implementations are thread-safe."""

    def now(self) -> datetime:
        """The wall time, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block until `event` is set or `timeout` seconds have passed; True when the event is set."""
        ...

    def wait_condition(self, condition: threading.Condition, timeout: float | None) -> None:
        """Block on `condition` (whose lock the caller holds) until notified or `timeout` seconds have passed.

        May return early, as every condition wait may: callers test their predicate in a loop.
        """
        ...

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> bool:
        """Pause for `seconds`, or until `stop` is set. True when `stop` ended the pause."""
        ...


# On Linux the usual monotonic clock stands still while the machine is suspended, and a leader that wakes would
# believe that no time has passed. This one goes on.
_STEADY = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The clock of the machine. Time in which the machine was suspended counts, where the system tells it."""

    __slots__ = ()

    def now(self) -> datetime:
        """The wall time, aware and in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block until `event` is set or `timeout` seconds have passed; True when the event is set."""
        return event.wait(clamp_timeout(timeout))

    def wait_condition(self, condition: threading.Condition, timeout: float | None) -> None:
        """Block on `condition` until notified or `timeout` seconds have passed."""
        condition.wait(clamp_timeout(timeout))

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> bool:
        """Pause for `seconds`, or until `stop` is set. True when `stop` ended the pause."""
        if stop is None:
            stop = threading.Event()
        return stop.wait(clamp_timeout(seconds))


SYSTEM_CLOCK = SystemClock()
"""The one system clock; it holds no state, so sharing it is free."""
