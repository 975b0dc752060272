"""What follows once an object's finalizer is off the server: its series, its events, its namespace."""

from __future__ import annotations

from collections.abc import Iterable

from captf_controllers.identity.sweep import sweep_namespace
from captf_controllers.observability.events import DELETE
from captf_controllers.reconcile import report
from captf_controllers.reconcile.scope import PendingEvent, Scope
from captf_runtime.client.errors import ApiError


def after_removal(scope: Scope, events: Iterable[PendingEvent]) -> None:
    """Remove the object's metric series, say what happened, sweep the namespace. Never fails the pass.

    Called only after the patch that removed the finalizer succeeded, so a repeated pass never says it twice.
    """
    scope.env.metrics.remove_object(scope.kind.kind, scope.namespace, scope.name)
    for event in events:
        report.emit(scope, event, DELETE)
    try:
        sweep_namespace(scope.env.api, scope.namespace)
    except (ApiError, ExceptionGroup) as error:
        scope.ctx.logger.warning("namespace sweep failed; the periodic sweep repeats it", err=error)
