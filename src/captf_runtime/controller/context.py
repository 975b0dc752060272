"""What a reconcile may know about its own run: time left, stop signal, leadership, logger."""

from __future__ import annotations

import threading

from ..clock import Clock
from ..election.fence import Fence
from ..log import Logger

__all__ = ["Context", "ReconcileTimeout", "Stopping"]


class Stopping(Exception):
    """The manager is stopping, and what was being waited for will not happen in this process."""


class ReconcileTimeout(Exception):
    """The reconcile has used up its time."""


class Context:
    """One run of a reconciler.

    A thread cannot be ended from outside, so a reconciler that takes long asks: `check()` before each step
    that matters (a client bound to the context does so before each request), `sleep` for pauses.

    A stop does not make `check` raise: a run that has begun is given the grace period to come to its end. One
    that could go on for long looks at `stopping`.

    Attributes:
        logger: carries controller, object and reconcile id (as does every other logger during the run).
        reconcile_id: identity of this run.
        deadline: monotonic second at which the time is used up; None without limit.
    """

    __slots__ = ("_clock", "_fence", "_stop", "deadline", "logger", "reconcile_id", "timed_out")

    def __init__(
        self,
        *,
        stop: threading.Event,
        fence: Fence,
        clock: Clock,
        logger: Logger,
        reconcile_id: str = "",
        timeout: float | None = None,
    ) -> None:
        self._stop = stop
        self._fence = fence
        self._clock = clock
        self.logger = logger
        self.reconcile_id = reconcile_id
        self.deadline: float | None = None if timeout is None else clock.monotonic() + timeout
        self.timed_out = False

    @property
    def stopping(self) -> bool:
        """Whether the manager is stopping."""
        return self._stop.is_set()

    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self._clock.monotonic())

    def check(self) -> None:
        """Return if this run may go on.

        Raises:
            NotLeader: another process may be the leader by now.
            ReconcileTimeout: the deadline has passed.
        """
        self._fence.check()
        if self.deadline is not None and self._clock.monotonic() >= self.deadline:
            self.timed_out = True
            raise ReconcileTimeout("the reconcile ran past its time limit")

    def sleep(self, seconds: float) -> None:
        """Pause, but not past the deadline.

        Raises:
            Stopping: the manager is stopping.
            NotLeader, ReconcileTimeout: as `check`.
        """
        left = self.remaining()
        if self._clock.sleep(seconds if left is None else min(seconds, left), self._stop):
            raise Stopping("the manager is stopping")
        self.check()
