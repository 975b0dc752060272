"""Growing pauses between tries, bounded and with jitter.

Everything takes its random source and its clock, so a test sees exact numbers. Delays are in seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .clock import SYSTEM_CLOCK, Clock

__all__ = ["Backoff", "exponential", "full_jitter", "spread"]

# 2.0 ** 1024 overflows a float; every cap in use is reached long before.
_MAX_DOUBLINGS = 1000


def exponential(failures: int, *, base: float, cap: float, factor: float = 2.0) -> float:
    """min(base * factor^failures, cap), for any number of failures without overflow.

    Args:
        failures: failures so far, 0 for the first delay.
        base: the first delay.
        cap: the longest delay.
        factor: growth per failure, at least 1.
    """
    if base >= cap:
        return cap
    delay = base
    try:
        delay = base * factor ** min(failures, _MAX_DOUBLINGS)
    except OverflowError:
        return cap
    return min(delay, cap)


def full_jitter(delay: float, draw: Callable[[], float] = random.random) -> float:
    """A delay drawn evenly from [0, delay): best against many clients that failed at the same moment."""
    return delay * draw()


def spread(delay: float, draw: Callable[[], float] = random.random) -> float:
    """A delay drawn evenly from [delay, 2 * delay): never shorter than asked."""
    return delay * (1.0 + draw())


class Backoff:
    """The pauses of one loop that keeps trying: each longer than the last, until it has gone well a while.

    Expected flow: after a failed try, wait `next()`; after a good one call nothing, the row starts anew by
    itself when `reset_after` seconds have passed without a failure (or at once with `reset()`). Not shared
    between threads.

    Args:
        base: first delay before jitter.
        cap: longest delay before jitter.
        factor: growth per failure.
        reset_after: seconds without failure after which the row starts anew; None: only by `reset()`.
        jitter: maps a delay to the one used; default `spread`.
    """

    def __init__(
        self,
        *,
        base: float,
        cap: float,
        factor: float = 2.0,
        reset_after: float | None = None,
        jitter: Callable[[float], float] = spread,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._base = base
        self._cap = cap
        self._factor = factor
        self._reset_after = reset_after
        self._jitter = jitter
        self._clock = clock
        self._failures = 0
        self._last: float | None = None

    def next(self) -> float:
        """Count a failure and return the seconds to wait before the next try."""
        now = self._clock.monotonic()
        if self._reset_after is not None and self._last is not None and now - self._last > self._reset_after:
            self._failures = 0
        delay = self._jitter(exponential(self._failures, base=self._base, cap=self._cap, factor=self._factor))
        self._failures += 1
        # The pause itself is no time that went well.
        self._last = now + delay
        return delay

    def reset(self) -> None:
        """Start the row anew."""
        self._failures = 0
        self._last = None
