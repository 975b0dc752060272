"""How long a failing item waits before it is tried again, by its own failures and by the whole queue's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..backoff import exponential

__all__ = ["RateLimiter", "RateLimits"]

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The numbers of a queue's rate limiter.

    Args:
        base: delay after the first failure, seconds; it doubles with every further one.
        cap: longest delay, seconds.
        forget_after: seconds without a failure after which an item's failures are forgotten.
        rate: retries per second over the whole queue; None: no such limit.
        burst: retries that may happen at once before `rate` counts.
    """

    base: float = 0.005
    cap: float = 1000.0
    forget_after: float = 7200.0
    rate: float | None = None
    burst: int = 100

    def __post_init__(self) -> None:
        if self.base <= 0 or self.cap < self.base:
            raise ValueError(f"base, cap: need 0 < base <= cap, got {self.base} and {self.cap}")
        if self.rate is not None and (self.rate <= 0 or self.burst < 1):
            raise ValueError(f"rate, burst: need rate > 0 and burst >= 1, got {self.rate} and {self.burst}")


class RateLimiter(Generic[K]):
    """The rate limiter of one queue. Not thread-safe: the queue calls it under its lock.

    Guarantees: the delay of an item depends on its own failures and, when a rate is set, on the number of
    retries of the whole queue; it is the longer of both. Counters are bounded in time, not in number.
    """

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        # Failures and the time of the last one; in the order of that time.
        self._failures: OrderedDict[K, tuple[int, float]] = OrderedDict()
        self._tokens = float(limits.burst)
        self._refilled: float | None = None

    def when(self, key: K, now: float) -> float:
        """Count a failure of `key`; seconds until it may be tried again."""
        self._expire(now)
        failures = self._failures.pop(key, (0, 0.0))[0]
        self._failures[key] = (failures + 1, now)
        delay = exponential(failures, base=self._limits.base, cap=self._limits.cap)
        return max(delay, self._reserve(now))

    def forget(self, key: K) -> None:
        """Drop the failures of `key`."""
        self._failures.pop(key, None)

    def failures(self, key: K, now: float) -> int:
        """Failures of `key` in a row."""
        self._expire(now)
        return self._failures.get(key, (0, 0.0))[0]

    def _expire(self, now: float) -> None:
        while self._failures:
            key, (_, last) = next(iter(self._failures.items()))
            if now - last <= self._limits.forget_after:
                return
            del self._failures[key]

    def _reserve(self, now: float) -> float:
        # A token bucket that may go into debt: whoever finds it empty waits for the token it has been
        # promised.
        if self._limits.rate is None:
            return 0.0
        if self._refilled is not None:
            earned = (now - self._refilled) * self._limits.rate
            self._tokens = min(self._tokens + earned, float(self._limits.burst))
        self._refilled = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._limits.rate)
