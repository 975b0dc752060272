"""A finished Job as its metrics see it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from captf_controllers.jobs.failures import retry_number
from captf_controllers.jobs.outcomes import FinishedJob
from captf_controllers.observability.metrics import Changes, Drifted, JobSample

__all__ = ["last_successes", "sample_of"]


def sample_of(job: FinishedJob, finished: Sequence[FinishedJob]) -> JobSample:
    """What to record of a Job that this pass counts.

    Args:
        job: the Job.
        finished: every finished Job of the object, for the number of the retry.
    """
    result = job.result
    error = result.error if result is not None else None
    changes = result.changes if result is not None else None
    drift = result.drift if result is not None else None
    started = job.pod.source_started if job.pod is not None else None
    return JobSample(
        op=job.op,
        result=job.result_label,
        duration=(job.finished_at - (job.job.started or job.job.created)).total_seconds(),
        queued=None if started is None else (started - job.job.created).total_seconds(),
        steps=tuple((step.name, step.seconds) for step in result.steps) if result is not None else (),
        retry_number=retry_number(finished, job),
        error_kind=(error.kind or "unknown") if error is not None else "",
        error_step=(error.step or "") if error is not None else "",
        deadline=job.deadline,
        changes=None
        if changes is None
        else Changes(
            create=changes.add, update=changes.change, delete=changes.destroy, imported=changes.imported
        ),
        drifted=None
        if drift is None or not drift.detected
        else Drifted(create=drift.create, update=drift.update, replace=drift.replace, delete=drift.delete),
    )


def last_successes(
    finished: Sequence[FinishedJob], last_drift_check: datetime | None = None
) -> dict[str, datetime]:
    """When each op last succeeded among the retained Jobs; a drift check also by what the status says."""
    found: dict[str, datetime] = {}
    for job in finished:
        if job.succeeded and job.op:
            found[job.op] = max(job.finished_at, found.get(job.op, job.finished_at))
    if last_drift_check is not None:
        found["drift"] = max(last_drift_check, found.get("drift", last_drift_check))
    return found
