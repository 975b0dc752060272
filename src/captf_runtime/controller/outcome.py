"""What becomes of a request after its reconcile: a pure function of how the reconcile ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..client.errors import ApiError, Conflict, Stopped
from ..election.fence import NotLeader
from .context import ReconcileTimeout, Stopping
from .reconciler import ReconcileError, Result, TerminalError

__all__ = ["CONFLICTS_IN_A_ROW", "Outcome", "outcome_of"]

CONFLICTS_IN_A_ROW: Final = 10
"""From this many on, conflicts are no race any more but an error."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to do with a request.

    Args:
        queue: "drop" it (the process is stopping), "forget" its failures, "after" a delay (failures
            forgotten), or "limit": again after a delay that grows with its failures.
        label: value of the label `result`; None: not counted.
        delay: seconds, for "after".
        terminal, panic: also counted as such.
        conflict: it was a conflict of versions; these are counted in a row.
    """

    queue: Literal["drop", "forget", "after", "limit"]
    label: Literal["error", "requeue", "requeue_after", "success"] | None
    delay: float = 0.0
    terminal: bool = False
    panic: bool = False
    conflict: bool = False


_SUCCESS: Final = Outcome("forget", "success")
_REQUEUE: Final = Outcome("limit", "requeue")
_ERROR: Final = Outcome("limit", "error")
_PANIC: Final = Outcome("limit", "error", panic=True)
_TERMINAL: Final = Outcome("forget", "error", terminal=True)
_DROP: Final = Outcome("drop", None)


def outcome_of(end: Result | BaseException | None, *, stopping: bool, conflicts: int) -> Outcome:
    """Decide what becomes of a request.

    Args:
        end: what the reconcile returned or raised.
        stopping: whether the stop signal has been given.
        conflicts: conflicts of versions of this request in a row before this one.
    """
    if end is None:
        return _SUCCESS
    if isinstance(end, Result):
        if end.requeue_after > 0:
            return Outcome("after", "requeue_after", delay=end.requeue_after)
        return _REQUEUE if end.requeue else _SUCCESS
    if isinstance(end, (Stopping, NotLeader)) or (stopping and isinstance(end, Stopped)):
        return _DROP
    if isinstance(end, TerminalError):
        return _TERMINAL
    if isinstance(end, Conflict) and end.kind == "resource-version":
        label: Literal["error", "requeue"] = "error" if conflicts + 1 >= CONFLICTS_IN_A_ROW else "requeue"
        return Outcome("limit", label, conflict=True)
    if isinstance(end, (ReconcileError, ReconcileTimeout, ApiError)):
        return _ERROR
    return _PANIC
