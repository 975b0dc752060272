"""The named requeue policies: how long a pass waits before it looks again, by reason.

Every delay in seconds; all policies are immutable and pure, so the same inputs give the same delay in every
process. A controller names a policy instead of a number, and this module is the only place with the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

__all__ = [
    "ACTIVE",
    "GATE",
    "LAG",
    "RETRY",
    "SHORT",
    "SLOT",
    "STATE",
    "FixedPolicy",
    "JitterPolicy",
    "RetryPolicy",
    "jitter_ns",
    "shortest",
]

_FNV_OFFSET_BASIS: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_UINT64: Final = 0xFFFFFFFFFFFFFFFF
_NS_PER_SECOND: Final = 1_000_000_000


def jitter_ns(uid: str, interval_ns: int) -> int:
    """Spread of an interval by identity: 0 up to (not including) a tenth of it, always the same for one uid.

    The FNV-1a-64 hash of the uid's UTF-8 bytes, modulo a tenth of the interval. Objects made at the same
    moment thus come due at different moments, and a restart changes nothing. (Hash: Fowler, Noll, Vo; offset
    basis and prime of the 64-bit variant.)

    Args:
        uid: identity of the object; an empty one gives 0.
        interval_ns: interval in nanoseconds; under 10 gives 0.

    Returns:
        Nanoseconds.
    """
    spread = interval_ns // 10
    if not uid or spread <= 0:
        return 0
    digest = _FNV_OFFSET_BASIS
    for byte in uid.encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & _UINT64
    return digest % spread


def shortest(delays: Iterable[float]) -> float:
    """The shortest positive delay, or 0 when there is none: what a pass with several waits asks for."""
    return min((delay for delay in delays if delay > 0), default=0.0)


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """Always the same delay."""

    name: str
    seconds: float

    def delay(self) -> float:
        """Seconds to wait."""
        return self.seconds


@dataclass(frozen=True, slots=True)
class JitterPolicy:
    """A delay lengthened by up to a tenth, by the object's identity (see `jitter_ns`)."""

    name: str
    seconds: int

    def delay(self, uid: str) -> float:
        """Seconds to wait for the object with this uid."""
        return self.delay_ns(uid) / _NS_PER_SECOND

    def delay_ns(self, uid: str) -> int:
        """The same in nanoseconds, exactly."""
        interval = self.seconds * _NS_PER_SECOND
        return interval + jitter_ns(uid, interval)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A delay that doubles with every failure in a row, up to a cap.

    The number of failures and the time of the last are read from objects, not kept in memory: a restart of
    the process neither shortens nor lengthens the wait.
    """

    name: str
    first: float
    cap: float

    def delay(self, n: int, limit: int | None = None) -> float:
        """Seconds between the n-th failure in a row and the next try: min(first * 2^(n-1), cap).

        Args:
            n: failures in a row, at least 1.
            limit: how many failures are kept on record; from that many on (at least one) the delay is the
                cap, because the record can no longer tell how many there were. None: no such limit.

        Raises:
            ValueError: n is less than 1.
        """
        if n < 1:
            raise ValueError(f"n: the number of failures in a row must be at least 1, got {n}")
        if limit is not None and n >= max(limit, 1):
            return self.cap
        # From 64 doublings on every cap is reached; without the bound 2 ** 10**9 would be computed.
        return min(self.first * 2.0 ** min(n - 1, 64), self.cap)

    def remaining(self, n: int, last_failure: datetime, now: datetime, limit: int | None = None) -> float:
        """Seconds from `now` until the next try is due: 0 when it is, else at least 1 and at most `delay`.

        The upper bound holds also when another machine's clock puts `last_failure` into the future.

        Args:
            n, limit: as for `delay`.
            last_failure: when the n-th failure happened; aware.
            now: wall time; aware.

        Raises:
            ValueError: n is less than 1.
        """
        delay = self.delay(n, limit)
        left = delay - (now - last_failure).total_seconds()
        if left <= 0:
            return 0.0
        return min(max(left, 1.0), delay)


GATE: Final = FixedPolicy("GATE", 30.0)
"""A missing owner, dependency or credential; deletion order; a lease held by another."""

STATE: Final = FixedPolicy("STATE", 60.0)
"""State that is lost or unreadable; a deletion that is held."""

RETRY: Final = RetryPolicy("RETRY", first=60.0, cap=600.0)
"""Failed work: 60, 120, 240, 480, 600, 600 … seconds."""

LAG: Final = FixedPolicy("LAG", 5.0)
"""The cache has not caught up yet."""

ACTIVE: Final = FixedPolicy("ACTIVE", 60.0)
"""Work is running, and its end will be seen by a watch; this is the fallback."""

SHORT: Final = FixedPolicy("SHORT", 1.0)
"""A lost race, or an obstacle just removed."""

SLOT: Final = JitterPolicy("SLOT", 15)
"""All slots for work are taken; the jitter keeps the waiters from coming back all at once."""
