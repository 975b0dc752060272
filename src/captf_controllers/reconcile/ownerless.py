"""A deleting object that nobody owns and that never applied goes at once.

Cluster API sets the owner reference only when it takes an object up; one that it never took up has nothing
to destroy. Everything that could speak against that is asked first, live.
"""

from __future__ import annotations

from captf_controllers.api import reasons
from captf_controllers.api.owner import Owner
from captf_controllers.deletion.ever_applied import ever_applied
from captf_controllers.deletion.retain import retained_finding
from captf_controllers.inputs.records import read_records
from captf_controllers.jobs.leases import live_run_lease
from captf_controllers.jobs.views import active_job, list_jobs
from captf_controllers.reconcile import guards, release
from captf_controllers.reconcile.scope import Outcome, PendingEvent, Scope
from captf_controllers.reconcile.state_step import backup_exists, signals
from captf_controllers.state.reader import read_state
from captf_runtime.client.errors import ApiError, Conflict
from captf_runtime.client.patches import remove_finalizer
from captf_runtime.queue import policies


def may_release(scope: Scope) -> bool:
    """Whether an object without an owner reference may go at once.

    No state (a state that cannot be read counts as one), no Job, no lag, no live lease, no dependents, never
    applied, no apply of unknown outcome and nothing that an earlier object retained. Leaves no trace in the scope:
    the full pass asks again.
    """
    views = list_jobs(scope.env.cache, scope.namespace, scope.kind.kind, scope.name, uid=scope.uid)
    # A Job that the status still names and that is gone may have applied: the full pass takes note of it.
    if active_job(views) is not None or scope.status.active_job is not None:
        return False
    if guards.lags(scope, views) is not None:
        return False
    if live_run_lease(scope.client, scope.lease_owner, scope.now, scope.env.lease_memory) is not None:
        return False
    if scope.adapter.dependents(scope):
        return False
    try:
        reading = read_state(scope.client, scope.namespace, scope.names.suffix, scope.env.states)
    except ApiError as error:
        scope.ctx.logger.warning("state not read; it counts as one that exists", err=error)
        return False
    if not reading.no_state:
        return False
    records = read_records(scope.client, Owner.of(scope.obj))
    if retained_finding(records.secrets, scope.uid).foreign_uid:
        # An earlier object's inputs: the full pass lets the object go as well, and says whose they are.
        return False
    known = signals(scope, records)
    return ever_applied(known, lambda: backup_exists(scope)) is None and not known.unconfirmed_job


def release_now(scope: Scope) -> Outcome:
    """Take the finalizer off, then say so and sweep the namespace."""
    try:
        remove_finalizer(scope.client, scope.kind, scope.obj, scope.finalizer)
    except Conflict:
        return Outcome(requeue_after=policies.SHORT.delay())
    release.after_removal(
        scope,
        [
            PendingEvent(
                "Normal",
                reasons.EVENT_FINALIZER_REMOVED,
                f"Removed finalizer {scope.finalizer}: the object has no owner and nothing to destroy",
            )
        ],
    )
    return Outcome(release=True)
