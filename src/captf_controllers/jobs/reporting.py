"""What a finished Job says on its object: conditions and `status.lastRun`. Pure."""

from __future__ import annotations

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.conditions import FALSE, TRUE, UNKNOWN
from captf_controllers.api.plan import counts_text
from captf_controllers.api.workspace import DriftCounts, LastRun, Operation, RunError, RunStep
from captf_controllers.jobs.operations import condition_type
from captf_controllers.jobs.outcomes import FinishedJob
from captf_controllers.jobs.result import PlanSummary
from captf_controllers.observability.conditions import job_message
from captf_controllers.observability.observation import Observation

__all__ = [
    "RETAIN_HINT",
    "apply_observation",
    "cannot_start_observation",
    "drift_observation",
    "last_run",
    "plan_counts",
    "pull_failed_observation",
    "restore_observation",
]

RETAIN_HINT = "to delete the object without a destroy, set spec.deletionPolicy: Retain"
"""The way out that every failure of a destroy names."""


def apply_observation(job: FinishedJob, *, deleting: bool = False) -> Observation | None:
    """`ApplyJobSucceeded` after an apply, a destroy, or a plan that failed.

    None leaves the condition as it is: after a plan that succeeded, which says nothing about an apply, and
    after a destroy that was stopped from outside, which is retried at once and is no cause for an abandon.
    """
    if job.blocked:
        return _apply(job, FALSE, reasons.DESTRUCTIVE_PLAN_BLOCKED, _blocked_detail(job, deleting))
    if job.plan_changed:
        return _apply(job, UNKNOWN, reasons.PLAN_CHANGED, _plan_changed_detail(job, deleting))
    if job.succeeded:
        if job.op == "plan":
            return None
        reason = reasons.DESTROY_SUCCEEDED if job.op == "destroy" else reasons.APPLY_SUCCEEDED
        return _apply(job, TRUE, reason, "")
    if job.interrupted and job.op == "destroy":
        return None
    # A Job whose image cannot be pulled ends at its deadline, which would be the less useful thing to say.
    if job.pull_failed:
        reason, detail = reasons.IMAGE_PULL_FAILED, f"image {job.job.image} cannot be pulled"
    elif job.deadline:
        reason, detail = reasons.JOB_DEADLINE_EXCEEDED, "stopped at its activeDeadlineSeconds"
    elif job.image_invalid:
        reason, detail = reasons.IMAGE_INVALID, _failure_detail(job)
    else:
        reason = reasons.DESTROY_FAILED if job.op == "destroy" else reasons.APPLY_FAILED
        detail = _failure_detail(job)
    if job.op == "destroy":
        detail = f"{detail}; {RETAIN_HINT}"
    return _apply(job, FALSE, reason, detail)


def drift_observation(job: FinishedJob) -> Observation:
    """`DriftJobSucceeded` after a refresh or a drift check."""
    type_ = types.DRIFT_JOB_SUCCEEDED
    if job.succeeded:
        return Observation(type_, TRUE, reasons.DRIFT_CHECKED, job_message(job.name))
    if job.deadline:
        return Observation(
            type_,
            FALSE,
            reasons.DRIFT_JOB_DEADLINE_EXCEEDED,
            job_message(job.name, "stopped at its activeDeadlineSeconds"),
        )
    return Observation(type_, FALSE, reasons.DRIFT_JOB_FAILED, job_message(job.name, _failure_detail(job)))


def restore_observation(job: FinishedJob) -> Observation:
    """`RestoreJobSucceeded` after a restore."""
    type_ = types.RESTORE_JOB_SUCCEEDED
    serial = job.job.annotations.get(keys.RESTORE_SERIAL, "?")
    if job.succeeded:
        return Observation(
            type_, TRUE, reasons.STATE_RESTORED, job_message(job.name, f"restored serial {serial}")
        )
    detail = "exceeded activeDeadlineSeconds" if job.deadline else _failure_detail(job)
    detail = (
        f"{detail}; serial {serial} is not restored again while {keys.RESTORE_STATE} names it: to try again "
        "name another serial of status.stateBackups, or remove the annotation and, once "
        "status.lastRestoredSerial is gone, set it anew"
    )
    return Observation(type_, FALSE, reasons.RESTORE_FAILED, job_message(job.name, detail))


def pull_failed_observation(op: Operation, message: str) -> Observation:
    """The condition of the op while its Job still waits for an image that nothing is left to replace."""
    if op == "destroy":
        message = f"{message}; {RETAIN_HINT}"
    return Observation(condition_type(op), FALSE, reasons.IMAGE_PULL_FAILED, message)


def cannot_start_observation(op: Operation, job: str, detail: str) -> Observation:
    """The condition of the op while its Job is there and something keeps it from running."""
    if op == "destroy":
        detail = f"{detail}; {RETAIN_HINT}"
    return Observation(condition_type(op), FALSE, reasons.JOB_CANNOT_START, job_message(job, detail))


def last_run(job: FinishedJob) -> LastRun | None:
    """`status.lastRun` for the newest finished Job; None for a Job whose op label makes no sense."""
    operation = _operation(job.op)
    if operation is None:
        return None
    result = job.result
    if result is None:
        return LastRun(job=job.name, operation=operation)
    error, drift = result.error, result.drift
    return LastRun(
        job=job.name,
        operation=operation,
        steps=tuple(
            RunStep(
                name=step.name,
                exit_code=step.exit,
                duration_milliseconds=round(step.seconds * 1000) if 0 <= step.seconds < 1e9 else None,
            )
            for step in result.steps
        )
        or None,
        error=None
        if error is None or job.succeeded
        else RunError(
            kind=error.known_kind,
            step=error.step,
            summary=error.tail or None,
            resources=error.resources or None,
        ),
        drift=None
        if drift is None or not drift.detected
        else DriftCounts(
            create=drift.create,
            update=drift.update,
            replace=drift.replace,
            delete=drift.delete,
            resources=drift.resources or None,
        ),
    )


def plan_counts(plan: PlanSummary) -> str:
    """The counts of a plan: the four that matter always, the others when there are any."""
    return counts_text(
        create=plan.create,
        update=plan.update,
        replace=plan.replace,
        delete=plan.delete,
        imported=plan.imported,
        move=plan.move,
        forget=plan.forget,
        output_changes=plan.output_changes,
    )


def _apply(job: FinishedJob, status: types.Status, reason: str, detail: str) -> Observation:
    return Observation(types.APPLY_JOB_SUCCEEDED, status, reason, job_message(job.name, detail))


def _blocked_detail(job: FinishedJob, deleting: bool) -> str:
    if deleting:
        return "stopped before a plan nobody approved; no approval is needed any more, as the object goes"
    plan = job.result.plan if job.result is not None else None
    counts = f" ({plan_counts(plan)})" if plan is not None else ""
    return f"stopped before a plan that deletes or replaces resources without approval{counts}"


def _plan_changed_detail(job: FinishedJob, deleting: bool) -> str:
    if deleting:
        return (
            "planned something else than what was approved and applied nothing; no approval is needed any "
            "more, as the object is being deleted"
        )
    plan = job.result.plan if job.result is not None else None
    counts = f" ({plan_counts(plan)})" if plan is not None else ""
    return f"planned something else{counts} than what was approved, and applied nothing"


def _failure_detail(job: FinishedJob) -> str:
    if job.plan_unreadable:
        return "left no plan that could be read"
    error = job.result.error if job.result is not None else None
    if error is None:
        return "interrupted" if job.interrupted else "failed without a result"
    if error.known_kind == "interrupted":
        return f"interrupted in step {error.step}" if error.step else "interrupted"
    what = f"step {error.step} failed" if error.step else "failed"
    # The resource first: the runtime's own words may be cut.
    cause = "; ".join([*error.resources[:1], *(line for line in error.tail.splitlines() if line)])
    return f"{what}: {cause}" if cause else what


def _operation(op: str) -> Operation | None:
    match op:
        case "apply" | "destroy" | "drift" | "refresh" | "restore" | "plan":
            return op
        case _:
            return None
