"""Apply Jobs that vanish or crash: whether they may have changed something that nobody recorded.

What cannot be known is not assumed: an apply counts as possibly applied unless something proves that it never
got to run. That proof is a result document without an apply step, a pod whose container never started, or,
with neither left, a state lock that nobody touched since the Job was created.
"""

from __future__ import annotations

from collections.abc import Iterable

from captf_controllers.api import annotations as keys
from captf_controllers.jobs.outcomes import FinishedJob
from captf_controllers.jobs.views import JobView, view_job
from captf_controllers.state.lock import lock_unchanged, lock_version
from captf_runtime.client.errors import ApiError, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.log import get_logger
from captf_runtime.objects import JOB, Kind, Object, name_of, namespace_of, uid_of

__all__ = [
    "crashed",
    "find_vanished",
    "may_have_applied",
    "may_have_applied_now",
]

logger = get_logger(__name__)


def may_have_applied(job: FinishedJob, lock_now: str | None) -> bool:
    """Whether a failed apply may have changed resources.

    Args:
        job: the finished Job, as the pass that counts it read it.
        lock_now: the version of the state lock now, None when it could not be read; only looked at when neither
            pod nor result is left.
    """
    if job.op != "apply" or job.succeeded or job.blocked or job.plan_changed:
        return False
    if job.result is not None:
        return job.result.reached("apply")
    if job.pod is not None:
        return job.pod.source_ever_started
    recorded = job.job.annotations.get(keys.STATE_LOCK_VERSION, "")
    return lock_now is None or not lock_unchanged(recorded, lock_now)


def crashed(client: Verbs, job: FinishedJob, suffix: str) -> bool:
    """Whether a newly finished apply ended without a word after it may have applied.

    One live read of the state lock, and only when neither pod nor result is left. A read that fails proves
    nothing.
    """
    if not job.newly or job.result is not None:
        return False
    return may_have_applied(job, _lock_version_if_needed(client, job, suffix))


def may_have_applied_now(client: Verbs, job: FinishedJob, suffix: str) -> bool:
    """`may_have_applied`, with the state lock read when the answer depends on it."""
    return may_have_applied(job, _lock_version_if_needed(client, job, suffix))


def _lock_version_if_needed(client: Verbs, job: FinishedJob, suffix: str) -> str | None:
    if job.result is not None or job.pod is not None or job.op != "apply" or job.succeeded:
        return None
    try:
        return lock_version(client, job.job.namespace, suffix)
    except ApiError as error:
        logger.warning("state lock not read", namespace=job.job.namespace, job=job.name, err=error)
        return None


def find_vanished(
    client: Verbs, kind: Kind, obj: Object, active_name: str, active_op: str, views: Iterable[JobView]
) -> str | None:
    """The apply Job that `status.activeJob` names and that is nowhere to be found, None when there is none.

    A Job of that name that another object controls is not it.

    Expected flow: called when no Job is active, after the cache-lag guard, and only for an object that has an
    inputs record. The object is read live once more: a lagging cache must not bring a stuck Job back that the
    controller deleted itself.

    Raises:
        ApiError: a read failed.
    """
    if active_op != "apply" or not active_name or any(view.name == active_name for view in views):
        return None
    namespace = namespace_of(obj)
    try:
        found = view_job(client.get(JOB, active_name, namespace, metadata_only=True))
    except NotFound:
        pass
    else:
        if found.owner_uid in ("", uid_of(obj)):
            return None
    try:
        live = client.get(kind, name_of(obj), namespace)
    except NotFound:
        return None
    if uid_of(live) != uid_of(obj):
        return None
    return active_name if _active_job_name(live) == active_name else None


def _active_job_name(obj: Object) -> str:
    status = obj.get("status")
    active = status.get("activeJob") if isinstance(status, dict) else None
    name = active.get("name") if isinstance(active, dict) else None
    return name if isinstance(name, str) else ""
