"""Deleting an object that somebody else manages (``cluster.x-k8s.io/managed-by``).

CAPTF destroys nothing there: what it knows is left to the manager as a Retain leaves it, and its finalizer
comes off.
"""

from __future__ import annotations

import copy

from captf_controllers.api import conditions as types
from captf_controllers.api import labels, reasons
from captf_controllers.deletion.cleanup import Cleaned, Kept, RunLeaseLive, Target, clean_up
from captf_controllers.jobs.views import active_job, list_jobs
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile import guards, release
from captf_controllers.reconcile.scope import Outcome, PendingEvent, Scope
from captf_runtime.client.errors import Conflict
from captf_runtime.client.patches import merge_from, remove_finalizer
from captf_runtime.queue import policies


def release_object(scope: Scope) -> Outcome:
    """Wait for a running Job, then keep everything as Retain does and take the finalizer off."""
    views = list_jobs(scope.env.cache, scope.namespace, scope.kind.kind, scope.name, uid=scope.uid)
    active = active_job(views)
    if active is not None:
        return _wait(scope, f"The release waits for {active.op} Job {active.name} to end")
    unseen = guards.lags(scope, views)
    if unseen is not None:
        return _wait(scope, f"The release waits for {unseen.op} Job {unseen.name} to end")
    target = Target(names=scope.names, uid=scope.uid, cluster_name=scope.lease_owner.cluster_name)
    result = clean_up(scope.client, target, "retained", scope.now, scope.env.lease_memory)
    if isinstance(result, RunLeaseLive):
        return _wait(scope, f"The release waits for Job {result.lease.holder}, which holds the run lease")
    try:
        remove_finalizer(scope.client, scope.kind, scope.obj, scope.finalizer)
    except Conflict:
        return Outcome(requeue_after=policies.SHORT.delay())
    kept = result.kept if isinstance(result, Cleaned) else Kept()
    counts = f"kept {kept.states} state, {kept.backups} backup and {kept.inputs} inputs Secrets"
    note = (
        f"Removed finalizer {scope.finalizer} from an externally managed object without a destroy: {counts}, "
        f"labelled {labels.RETAINED_FROM_UID}={scope.uid}"
    )
    release.after_removal(scope, [PendingEvent("Normal", reasons.EVENT_EXTERNALLY_MANAGED_RELEASED, note)])
    return Outcome(release=True)


def _wait(scope: Scope, message: str) -> Outcome:
    scope.observe(Observation(types.DELETING, types.TRUE, "Deleting", message))
    after = copy.deepcopy(scope.before)
    after["status"] = scope.render()["status"]
    patch = merge_from(scope.before, after)
    if patch:
        scope.client.patch(scope.kind, scope.name, patch, scope.namespace, subresource="status")
    return Outcome(requeue_after=policies.GATE.delay())
