"""Guards against a stale Job cache and a Job that may still run.

Jobs are listed from a cache that can trail the API server. "No Job" from a stale list could let a move
start mid-run, or drop a finalizer over a running Job; so whenever the list shows none, the pass asks live.
"""

from __future__ import annotations

from captf_controllers.api.annotations import BLOCK_MOVE
from captf_controllers.jobs.lag import cache_lags
from captf_controllers.jobs.views import JobView
from captf_controllers.reconcile.scope import Scope
from captf_runtime.objects import annotations_of


def lags(scope: Scope, views: list[JobView]) -> bool:
    """Whether the Job cache has not shown a Job that the API server has.

    An idle live object makes no request here: the lease is read only when the object carries block-move,
    names an active Job, or is deleting.
    """
    active = scope.status.active_job.name if scope.status.active_job else ""
    return cache_lags(
        scope.client,
        views,
        scope.lease_owner,
        active_name=active,
        lease_matters=scope.deleting or BLOCK_MOVE in annotations_of(scope.obj),
        now=scope.now,
    )
