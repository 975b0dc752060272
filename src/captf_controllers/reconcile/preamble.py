"""What comes before the pass proper, in fixed order, with its own early writes.

Foreground deletion, external management, owner, finalizer, pause. Each may end the pass; what it then wrote
is all that this pass writes.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from captf_controllers.api import conditions as types
from captf_controllers.api import finalizers, reasons
from captf_controllers.api.annotations import DELETE_FOR_MOVE, MANAGED_BY, PAUSED
from captf_controllers.observability import conditions as condition_rules
from captf_controllers.reconcile import externally_managed, ownerless, report
from captf_controllers.reconcile.owners import find_owners
from captf_controllers.reconcile.scope import Outcome, PendingEvent, Scope
from captf_runtime.client.errors import Conflict
from captf_runtime.client.patches import add_finalizer, merge_from, remove_finalizer
from captf_runtime.objects import annotations_of, generation_of, has_finalizer, name_of
from captf_runtime.queue import policies


@dataclass(frozen=True, slots=True)
class Entered:
    """The pass goes on; ``paused`` picks its branch."""

    paused: bool


def enter(scope: Scope) -> Outcome | Entered:
    """Run the preamble. The object is deleting with CAPTF's finalizer, or not deleting."""
    if scope.deleting and has_finalizer(scope.obj, finalizers.FOREGROUND_DELETION):
        stopped = _convert_foreground(scope)
        if stopped is not None:
            return stopped
    if MANAGED_BY in annotations_of(scope.obj):
        return externally_managed.release_object(scope) if scope.deleting else Outcome()
    scope.owners = find_owners(scope.env.cache, scope.kind, scope.obj)
    if scope.deleting:
        if not scope.owners.has_reference and ownerless.may_release(scope):
            return ownerless.release_now(scope)
    elif scope.owners.gate is not None and not scope.owners.owner_gone:
        return _stop_at_gate(scope)
    if not scope.deleting and not has_finalizer(scope.obj, scope.finalizer):
        if _moved_away(scope):
            return Outcome()
        try:
            scope.rebase(add_finalizer(scope.client, scope.kind, scope.obj, scope.finalizer))
        except Conflict:
            return Outcome(requeue_after=policies.SHORT.delay())
        return Outcome()
    return _pause(scope)


def is_paused(scope: Scope) -> bool:
    """Whether the Cluster's ``spec.paused`` or the object's annotation pauses it."""
    return scope.owners.pausing_cluster is not None or PAUSED in annotations_of(scope.obj)


def _moved_away(scope: Scope) -> bool:
    """Whether clusterctl has just stripped the finalizer, to delete the object that another cluster has now.

    With the finalizer back on, that deletion would stay behind; and once the mover has deleted the Cluster, nothing
    would pause it any more and it would destroy what the other cluster manages.
    """
    return DELETE_FOR_MOVE in annotations_of(scope.obj) and is_paused(scope)


def _convert_foreground(scope: Scope) -> Outcome | None:
    """Take ``foregroundDeletion`` off: with it the collector would delete Jobs and state before the destroy."""
    try:
        stored = remove_finalizer(scope.client, scope.kind, scope.obj, finalizers.FOREGROUND_DELETION)
    except Conflict:
        return Outcome(requeue_after=policies.SHORT.delay())
    scope.rebase(stored)
    report.emit(
        scope,
        PendingEvent(
            "Normal",
            reasons.EVENT_FOREGROUND_DELETION_CONVERTED,
            "Removed the foregroundDeletion finalizer: with it the garbage collector would delete the Jobs and "
            "the state before the destroy; the deletion goes on in the background",
        ),
    )
    return None


def _stop_at_gate(scope: Scope) -> Outcome:
    gate = scope.owners.gate
    assert gate is not None
    before = scope.conditions
    scope.conditions = condition_rules.set_gate_stop(
        before,
        gate.status,
        gate.reason,
        gate.message,
        provisioned=scope.provisioned,
        now=scope.now,
        generation=generation_of(scope.obj),
    )
    _write_status(scope)
    report.transitions(scope, before)
    return Outcome(requeue_after=gate.requeue_after)


def _pause(scope: Scope) -> Outcome | Entered:
    paused = is_paused(scope)
    before = scope.conditions
    current = before.get(types.PAUSED)
    wanted = (types.TRUE, reasons.PAUSED) if paused else (types.FALSE, reasons.NOT_PAUSED)
    if current is None and not paused:
        return Entered(paused)  # set with the other conditions of a first visit, by the pass's own patch
    if current is None or (current.status, current.reason) != wanted:
        message = _pause_message(scope) if paused else ""
        scope.conditions = before.set(
            types.PAUSED, *wanted, message, now=scope.now, generation=generation_of(scope.obj)
        )
        _write_status(scope)
        report.pause(scope, current, paused, message)
        if not paused:
            return Outcome()
    return Entered(paused)


def _pause_message(scope: Scope) -> str:
    cluster = scope.owners.pausing_cluster
    if cluster is not None:
        return f"Cluster {name_of(cluster)} has spec.paused: true; no Job starts"
    return f"The annotation {PAUSED} is set; no Job starts"


def _write_status(scope: Scope) -> None:
    """An early status write of the preamble; what the server returns is the pass's new ground."""
    after = copy.deepcopy(scope.before)
    after["status"] = scope.render()["status"]
    patch = merge_from(scope.before, after)
    if not patch:
        return
    stored = scope.client.patch(scope.kind, scope.name, patch, scope.namespace, subresource="status")
    scope.rebase(stored)
