"""What a Job's name depends on beside the object, the op and the attempt: the tick.

The names themselves are in `captf_controllers.api.names`; the attempt is `views.next_attempt`. The same start
derives the same name in every process, so a create that was repeated finds the Job that is already there.
"""

from __future__ import annotations

from datetime import datetime

from captf_controllers.api.workspace import Operation
from captf_runtime.objects import format_time

__all__ = ["stamp", "tick_for"]


def stamp(time: datetime | None) -> str:
    """UTC with whole seconds, `2026-09-25T12:00:00Z`; "" when unset."""
    return "" if time is None else format_time(time)


def tick_for(
    op: Operation,
    *,
    last_refresh: datetime | None = None,
    last_drift_check: datetime | None = None,
    backup: str = "",
    remediation: bool = False,
) -> str:
    """What tells this start apart from an earlier one of the same inputs, op and attempt.

    A refresh or drift check keeps its name until one succeeds and its time moves on.

    Args:
        op: the operation.
        last_refresh, last_drift_check: as in the object's status.
        backup: restore only: name of the backup's base Secret.
        remediation: whether an apply or plan starts for drift.
    """
    if op == "refresh":
        return stamp(last_refresh)
    if op == "drift":
        return stamp(last_drift_check)
    if op == "restore":
        return f"restore/{backup}"
    if remediation and op in ("apply", "plan"):
        return f"remediate/{stamp(last_drift_check)}"
    return ""
