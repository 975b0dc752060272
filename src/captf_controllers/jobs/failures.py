"""Failures in a row and the backoff that follows from them: pure functions over finished Jobs.

Nothing is remembered in memory: the number of failures is counted anew from the retained Jobs, so a restart
neither shortens nor lengthens a wait. Because history pruning keeps only so many failures, a count that
reaches the retained-failure limit can no longer tell how many there were, and the delay is the cap at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from captf_controllers.jobs.outcomes import FinishedJob, newest_finished
from captf_runtime.objects import format_time
from captf_runtime.queue.policies import RETRY

__all__ = [
    "DEFAULT_HISTORY_LIMIT",
    "Failures",
    "backoff_remaining",
    "count_failures",
    "count_remediation_failures",
    "effective_failure_limit",
    "retry_delay",
    "retry_note",
    "retry_number",
]

DEFAULT_HISTORY_LIMIT = 3
"""Finished Jobs kept for each operation and outcome when the policy sets no limit."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Counted failures of one operation since its last success, and when the newest of them ended."""

    n: int
    newest_finish: datetime | None


def effective_failure_limit(limit: int | None) -> int:
    """The retained-failure limit as the backoff reads it: 3 when unset, at least 1."""
    return max(DEFAULT_HISTORY_LIMIT if limit is None else limit, 1)


def count_failures(finished: Sequence[FinishedJob], op: str) -> Failures:
    """Walk the op's finished Jobs newest first and count the failures until a success.

    Interrupted, blocked and plan-changed Jobs neither count nor stop the walk.
    """
    n, newest = 0, None
    for job in newest_finished(item for item in finished if item.op == op):
        if job.succeeded:
            break
        if job.counts_as_failure:
            n += 1
            newest = newest or job.finished_at
    return Failures(n, newest)


def retry_delay(n: int, limit: int | None) -> float:
    """Seconds from the newest counted failure to the next try; 0 without a failure.

    600 s from the retained-failure limit on, else min(60 s x 2^(n-1), 600 s). No jitter.
    """
    return RETRY.delay(n, effective_failure_limit(limit)) if n > 0 else 0.0


def backoff_remaining(failures: Failures, limit: int | None, now: datetime) -> float:
    """Seconds until the operation may start again, 0 when it may now."""
    if failures.n < 1 or failures.newest_finish is None:
        return 0.0
    return RETRY.remaining(failures.n, failures.newest_finish, now, effective_failure_limit(limit))


def retry_number(finished: Sequence[FinishedJob], job: FinishedJob) -> int | None:
    """Which try a succeeded Job was: 1 + the counted failures of its op between it and the success before it.

    None for a Job that did not succeed.
    """
    if not job.succeeded:
        return None
    ordered = newest_finished(item for item in finished if item.op == job.op)
    older = ordered[next((i for i, item in enumerate(ordered) if item.name == job.name), len(ordered)) + 1 :]
    return 1 + count_failures(older, job.op).n


def count_remediation_failures(finished: Sequence[FinishedJob], since: datetime | None) -> int:
    """Failed applies that finished after the last drift check, newest first, up to an apply that succeeded.

    Blocked and plan-changed applies are skipped: they wait for a person. An interrupted one counts here,
    though not for the backoff. `since` None counts them all.
    """
    n = 0
    for job in newest_finished(item for item in finished if item.op == "apply"):
        if job.succeeded or (since is not None and job.finished_at <= since):
            break
        if not (job.blocked or job.plan_changed):
            n += 1
    return n


def retry_note(failures: Failures, limit: int | None) -> str:
    """What an event says about the next try; "" when nothing is backed off.

    Computed from the time of the failure, so the text does not depend on when it is written.
    """
    if failures.n < 1 or failures.newest_finish is None:
        return ""
    delay = retry_delay(failures.n, limit)
    at = format_time(failures.newest_finish + timedelta(seconds=delay))
    count = "1 failure" if failures.n == 1 else f"{failures.n} consecutive failures"
    return f"retried not before {at}, a backoff of {int(delay)} s after {count}"
