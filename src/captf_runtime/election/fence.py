"""The fence: what keeps a process that is no longer the leader from writing."""

from __future__ import annotations

import math

from ..clock import SYSTEM_CLOCK, Clock

__all__ = ["Fence", "NotLeader"]


class NotLeader(Exception):
    """This process is not, or no longer, the leader; what it was about to do is the leader's to do."""


class Fence:
    """Says up to which moment this process may act as the leader.

    The moment is on the monotonic clock and is only ever moved by a renewal that is known to have succeeded,
    so a process that was suspended finds the fence closed when it wakes, before it has learnt anything else.
    Reads and writes are single assignments: safe from every thread.

    Args:
        leading_until: monotonic second from which on the fence is closed; default: closed from the start.
    """

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, leading_until: float = -math.inf) -> None:
        self._clock = clock
        self._until = leading_until

    @classmethod
    def open(cls) -> Fence:
        """A fence that never closes, for programs without leader election."""
        return cls(leading_until=math.inf)

    @property
    def leading_until(self) -> float:
        """Monotonic second from which on the fence is closed."""
        return self._until

    @property
    def is_open(self) -> bool:
        """Whether this process may act as the leader now."""
        return self._clock.monotonic() < self._until

    def check(self) -> None:
        """Return if this process may act as the leader now.

        Raises:
            NotLeader: it may not.
        """
        if not self.is_open:
            raise NotLeader("this process is not the leader (any more)")

    def extend(self, leading_until: float) -> None:
        """Keep the fence open until then."""
        self._until = leading_until

    def close(self) -> None:
        """Close the fence now."""
        self._until = -math.inf
