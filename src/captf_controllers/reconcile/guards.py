"""Guards against a stale Job cache and a Job that may still run.

Jobs are listed from a cache that can trail the API server. "No Job" from a stale list could let a move
start mid-run, or drop a finalizer over a running Job; so whenever the list shows none, the pass asks live.
"""

from __future__ import annotations

from captf_controllers.api import reasons
from captf_controllers.api.annotations import BLOCK_MOVE
from captf_controllers.api.owner import Owner
from captf_controllers.jobs.lag import lost, take_back, unseen_job
from captf_controllers.jobs.views import JobView
from captf_controllers.reconcile import report
from captf_controllers.reconcile.scope import PendingEvent, Scope
from captf_runtime.objects import annotations_of


def lags(scope: Scope, views: list[JobView]) -> JobView | None:
    """The Job that the API server has and the Job cache has not shown, None when the cache does not lag.

    An idle live object makes no request here: the lease is read only when the object carries block-move,
    names an active Job, or is deleting. A Job that the cache can never show, because its owner reference or its
    labels are gone, gets them back.
    """
    active = scope.status.active_job.name if scope.status.active_job else ""
    unseen = unseen_job(
        scope.client,
        views,
        scope.lease_owner,
        uid=scope.uid,
        created=scope.created,
        active_name=active,
        lease_matters=scope.deleting or BLOCK_MOVE in annotations_of(scope.obj),
        now=scope.now,
        memory=scope.env.lease_memory,
    )
    if unseen is not None and lost(unseen, scope.lease_owner, scope.uid, scope.created):
        _take_back(scope, unseen)
    return unseen


def _take_back(scope: Scope, job: JobView) -> None:
    if take_back(scope.client, Owner.of(scope.obj), job.name):
        report.emit(
            scope,
            PendingEvent(
                "Normal",
                reasons.EVENT_OWNER_REFERENCES_REPAIRED,
                f"The object owns its Job {job.name} again",
                job.reference,
            ),
        )
