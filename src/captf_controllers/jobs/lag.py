"""The guard against a Job cache that trails the API server.

"No Job is active", read from a stale list, could clear the block on a move while a Job runs, clear
`status.activeJob`, or drop a finalizer over running infrastructure. So before a pass believes it, what the
object itself and its run lease claim is compared with the API server.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from captf_controllers.api import names
from captf_controllers.jobs.leases import LeaseOwner, live_run_lease
from captf_controllers.jobs.views import JobView, view_job
from captf_runtime.client.errors import NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import JOB

__all__ = ["cache_lags"]


def cache_lags(
    client: Verbs,
    views: Sequence[JobView],
    owner: LeaseOwner,
    *,
    active_name: str,
    lease_matters: bool,
    now: datetime,
) -> bool:
    """Whether the API server has a Job of this object that the list does not show.

    Expected flow: called when the list shows no active Job; True means that the pass changes nothing and
    looks again after the cache-lag delay.

    Args:
        views: the object's Jobs as listed from the cache.
        owner: the object.
        active_name: the Job that `status.activeJob` names, "" for none.
        lease_matters: whether the cached object bears block-move, names an active Job, or is being deleted.
            An idle object reads neither lease nor Job.

    Raises:
        ApiError: a read failed.
    """
    listed = {view.name for view in views}
    if active_name and active_name not in listed and _live_job(client, owner, active_name) is not None:
        return True
    if not (lease_matters or active_name):
        return False
    lease = live_run_lease(client, owner, now)
    if lease is None or lease.holder in listed:
        return False
    job = _live_job(client, owner, lease.holder)
    # Another object's Job is no lag: to wait for that is the lease gate's business.
    return (
        job is not None and job.owner_kind == owner.kind and job.owner_name == names.label_value(owner.name)
    )


def _live_job(client: Verbs, owner: LeaseOwner, name: str) -> JobView | None:
    try:
        return view_job(client.get(JOB, name, owner.namespace))
    except NotFound:
        return None
