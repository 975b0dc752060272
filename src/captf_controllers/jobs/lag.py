"""The guard against a Job cache that trails the API server.

"No Job is active", read from a stale list, could clear the block on a move while a Job runs, clear
`status.activeJob`, or drop a finalizer over running infrastructure. So before a pass believes it, what the
object itself and its run lease claim is compared with the API server.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from captf_controllers.api import names
from captf_controllers.api.owner import Owner
from captf_controllers.jobs.lease_memory import LeaseMemory
from captf_controllers.jobs.leases import LeaseOwner, live_run_lease
from captf_controllers.jobs.podspec import controller_reference
from captf_controllers.jobs.views import JobView, view_job
from captf_runtime.client.errors import Conflict, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import JOB, Object, controller_of, metadata, resource_version_of

__all__ = ["lost", "take_back", "unseen_job"]


def unseen_job(
    client: Verbs,
    views: Sequence[JobView],
    owner: LeaseOwner,
    *,
    uid: str,
    created: datetime,
    active_name: str,
    lease_matters: bool,
    now: datetime,
    memory: LeaseMemory | None = None,
) -> JobView | None:
    """The Job of this object that the API server has and the list does not show, None when there is none.

    Expected flow: called when the list shows no active Job; a Job means that the pass changes nothing and looks
    again after the cache-lag delay.

    Args:
        views: the object's Jobs as listed from the cache.
        owner: the object.
        uid: the object's UID. What `status.activeJob` names is no Job of the object when another one controls it.
        created: when the object was created.
        active_name: the Job that `status.activeJob` names, "" for none.
        lease_matters: whether the cached object bears block-move, names an active Job, or is being deleted.
            An idle object reads neither lease nor Job.
        memory: see `jobs.leases.is_free`.

    Raises:
        ApiError: a read failed.
    """
    listed = {view.name for view in views}
    if active_name and active_name not in listed:
        named = _live_job(client, owner, active_name)
        if named is not None and (named.owner_uid == uid or lost(named, owner, uid, created)):
            return named
    if not (lease_matters or active_name):
        return None
    lease = live_run_lease(client, owner, now, memory)
    if lease is None or lease.holder in listed:
        return None
    job = _live_job(client, owner, lease.holder)
    if job is None or not job.is_of(owner.kind, owner.name):
        # Another object's Job is no lag: to wait for that is the lease gate's business.
        return None
    return job


def lost(job: JobView, owner: LeaseOwner, uid: str, created: datetime) -> bool:
    """Whether an unseen Job is the object's own and stays unseen for want of its owner reference or labels. Pure.

    A deletion with `--cascade=orphan` takes the owner references off everything that the object owns, its running
    Job included. The name must be one that this object gives its Jobs, and the Job no older than the object.
    """
    if job.owner_uid not in ("", uid) or not names.job_op(owner.kind, owner.name, job.name):
        return False
    labelled = (job.owner_kind, job.owner_name) == (owner.kind, names.label_value(owner.name))
    return not (job.owner_uid and labelled) and job.created >= created.replace(microsecond=0)


def take_back(client: Verbs, owner: Owner, name: str) -> bool:
    """Give a Job that was lost back to the object. False when somebody was faster.

    Without it no list would ever show the Job, what came of it would not be counted, and the object would wait
    for it for ever.

    Raises:
        ApiError: another failure than a lost race.
    """
    try:
        job = client.get(JOB, name, owner.namespace)
        controller = controller_of(job)
        if controller is not None and controller.uid != owner.uid:
            return False
        patch: Object = {
            "resourceVersion": resource_version_of(job),
            "labels": names.owner_labels(owner.kind, owner.name),
        }
        if controller is None:
            others = metadata(job).get("ownerReferences") or []
            mine = controller_reference(owner.kind, owner.name, owner.uid)
            patch["ownerReferences"] = [*(item for item in others if item.get("uid") != owner.uid), mine]
        client.patch(JOB, name, {"metadata": patch}, owner.namespace)
    except (NotFound, Conflict):
        return False
    return True


def _live_job(client: Verbs, owner: LeaseOwner, name: str) -> JobView | None:
    try:
        return view_job(client.get(JOB, name, owner.namespace))
    except NotFound:
        return None
