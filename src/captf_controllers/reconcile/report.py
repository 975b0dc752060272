"""Saying what happened: events of a pass, once each.

Events of condition changes go out after the patch that wrote them, so a pass that could not write says
nothing and the next one says it once.
"""

from __future__ import annotations

from collections.abc import Mapping

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.workspace import Condition
from captf_controllers.observability.conditions import Conditions, changed
from captf_controllers.observability.events import RECONCILE, Action, Events
from captf_controllers.observability.transitions import JobReport, transition_events
from captf_controllers.reconcile.scope import PendingEvent, Scope
from captf_runtime.objects import Object


def emit(scope: Scope, event: PendingEvent, action: Action = RECONCILE) -> None:
    """Hand one event to the recorder. Never raises; a lost event never fails a pass."""
    Events(scope.env.recorder, scope.obj).emit(
        event.type, event.reason, event.note, job=event.related, action=action
    )


def job_reference(namespace: str, name: str, uid: str = "") -> Object:
    """A Job as the related object of an event."""
    metadata = {"namespace": namespace, "name": name} | ({"uid": uid} if uid else {})
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}


def transitions(scope: Scope, before: Conditions, jobs: Mapping[str, JobReport] | None = None) -> None:
    """Emit the events of what changed between ``before`` and the scope's conditions."""
    _measure(scope, before)
    for condition in scope.conditions:
        if changed(before.get(condition.type), condition):
            scope.ctx.logger.info(
                "condition changed", type=condition.type, status=condition.status, reason=condition.reason
            )
    for spec in transition_events(before, scope.conditions, jobs or {}):
        related = job_reference(scope.namespace, spec.job) if spec.job else None
        emit(scope, PendingEvent(spec.type, spec.reason, spec.note, related))


def pause(scope: Scope, before: Condition | None, paused: bool, message: str) -> None:
    """Emit the event of a pause that began or ended; the first look at an unpaused object says nothing."""
    if paused:
        emit(scope, PendingEvent("Normal", reasons.PAUSED, message))
    elif before is not None:
        emit(scope, PendingEvent("Normal", reasons.EVENT_RESUMED, "The object is reconciled again"))


def _measure(scope: Scope, before: Conditions) -> None:
    """Count what a condition entered: a reason that is new while it is False, or a wait that began."""
    metrics, kind = scope.env.metrics, scope.kind.kind
    for condition in scope.conditions:
        if not changed(before.get(condition.type), condition):
            continue
        if condition.reason in reasons.WAITS:
            metrics.wait_began(kind, condition.reason)
        elif condition.status == types.FALSE and condition.type == types.STATE_READABLE:
            metrics.state_unreadable(kind, condition.reason)
        elif condition.status == types.FALSE and condition.type == types.OUTPUTS_VALID:
            metrics.outputs_invalid(kind, condition.reason)
        elif condition.status == types.FALSE and condition.type == types.IDENTITY_ALLOWED:
            metrics.identity_denied(condition.reason)
