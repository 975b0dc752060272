"""What came of the destroys so far, from the Jobs that are retained and the condition that outlives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import names, reasons
from captf_controllers.api.workspace import LastRun
from captf_controllers.jobs.failures import backoff_remaining, count_failures, retry_delay
from captf_controllers.jobs.outcomes import FinishedJob
from captf_controllers.jobs.reporting import RETAIN_HINT
from captf_controllers.observability.conditions import Conditions, job_in_message
from captf_controllers.state.reading import State
from captf_runtime.objects import format_time


@dataclass(frozen=True, slots=True)
class LastDestroy:
    """The last destroy, when it failed; every field is empty when it did not.

    ``failure`` is the reason of ``ApplyJobSucceeded`` and ``message`` what it says about the Job. ``backoff``
    is the number of seconds until the next attempt and ``next_attempt`` that time in RFC 3339.
    """

    failure: str = ""
    message: str = ""
    backoff: float = 0.0
    next_attempt: str = ""


def succeeded(finished: Sequence[FinishedJob], conditions: Conditions) -> bool:
    """Whether the newest finished apply or destroy is a destroy that succeeded.

    Also when no such Job is retained and ``ApplyJobSucceeded`` says so: a cleanup whose last patch was lost.
    ``finished`` is newest first.
    """
    newest = _newest(finished)
    if newest is not None:
        return newest.op == "destroy" and newest.succeeded
    return (
        conditions.is_true(types.APPLY_JOB_SUCCEEDED)
        and conditions.reason(types.APPLY_JOB_SUCCEEDED) == reasons.DESTROY_SUCCEEDED
    )


def ran_on_another_state(finished: Sequence[FinishedJob], state: State | None) -> FinishedJob | None:
    """The destroy that succeeded on another state than it was started for, None when there is none.

    Terraform takes a missing state for an empty one, destroys nothing and is content. So does a destroy whose
    state was removed before it was read, and the state that it leaves has a new lineage. A state that lists
    resources was brought back since. No state at all says nothing: a cleanup may have been cut short.
    """
    destroy = _newest(finished)
    if destroy is None or state is None or not (destroy.op == "destroy" and destroy.succeeded):
        return None
    recorded = destroy.job.annotations.get(keys.STATE_LINEAGE, "")
    if not recorded or (state.lineage == recorded and not state.managed_resources):
        return None
    return destroy


def last_destroy(
    kind: str,
    name: str,
    *,
    finished: Sequence[FinishedJob],
    conditions: Conditions,
    last_run: LastRun | None,
    failed_limit: int,
    now: datetime,
) -> LastDestroy:
    """What the last destroy of the object failed with and when the next one is due.

    ``finished`` is newest first; ``failed_limit`` is how many failed Jobs are retained.
    """
    failures = count_failures(finished, "destroy")
    next_attempt = ""
    if failures.newest_finish is not None:
        delay = timedelta(seconds=retry_delay(failures.n, failed_limit))
        next_attempt = format_time(failures.newest_finish + delay)
    failure = _failure(kind, name, finished, conditions, last_run)
    present = conditions.get(types.APPLY_JOB_SUCCEEDED)
    message = present.message if failure and present is not None else ""
    return LastDestroy(
        failure=failure,
        message=message.removesuffix(f"; {RETAIN_HINT}"),
        backoff=backoff_remaining(failures, failed_limit, now),
        next_attempt=next_attempt,
    )


def _failure(
    kind: str,
    name: str,
    finished: Sequence[FinishedJob],
    conditions: Conditions,
    last_run: LastRun | None,
) -> str:
    """The reason of ``ApplyJobSucceeded`` when the last destroy failed, else empty.

    The condition must be about a destroy Job: one that an earlier pass left when a destroy could not start,
    or that a failed apply left, is no failed destroy. A restore that ran since does not end the case; an
    interrupted destroy changes no condition and so never makes one.
    """
    condition = conditions.get(types.APPLY_JOB_SUCCEEDED)
    if condition is None or condition.status != types.FALSE or last_run is None:
        return ""
    if last_run.operation not in {"destroy", "restore"}:
        return ""
    job = job_in_message(condition.message)
    if job is None or names.job_op(kind, name, job) != "destroy":
        return ""
    newest = _newest(finished)
    if newest is not None and newest.op != "destroy":
        return ""
    return condition.reason


def _newest(finished: Sequence[FinishedJob]) -> FinishedJob | None:
    return next((job for job in finished if job.op in {"apply", "destroy"}), None)
