"""Whether the user asked for a restore that may start, and what to say when it may not."""

from __future__ import annotations

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.owner import Owner
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.scope import Scope
from captf_controllers.reconcile.state_step import StateView, show_backups
from captf_controllers.state.restore import (
    RestoreEvaluation,
    RestoreFacts,
    RestoreRequest,
    evaluate_restore,
)


def evaluate(scope: Scope, books: Books, view: StateView, config: EffectiveConfig) -> RestoreEvaluation:
    """Look at the restore annotation; what it changes in the status is changed in memory."""
    evaluation = evaluate_restore(
        scope.client,
        Owner.of(scope.obj),
        RestoreFacts(
            annotation=scope.annotation(keys.RESTORE_STATE),
            last_restored_serial=scope.status.last_restored_serial or 0,
            removed_now=keys.RESTORE_STATE in scope.consumed_annotations,
            deleting=scope.deleting,
            held=view.hold is not None,
            retain=config.deletion_policy == "Retain",
        ),
    )
    if evaluation.backups is not None:
        show_backups(scope, evaluation.backups)
    if evaluation.forget:
        if not evaluation.keep_serial:
            scope.update(last_restored_serial=None)
        if scope.conditions.reason(types.RESTORE_JOB_SUCCEEDED) == reasons.RESTORE_BACKUP_NOT_FOUND:
            scope.conditions = scope.conditions.without(types.RESTORE_JOB_SUCCEEDED)
    if evaluation.not_found:
        _not_found(scope, evaluation.not_found)
    return evaluation


def requested(scope: Scope, books: Books, view: StateView, config: EffectiveConfig) -> RestoreRequest | None:
    """The restore that may start now, if any."""
    return evaluate(scope, books, view, config).start


def _not_found(scope: Scope, message: str) -> None:
    before = scope.conditions.get(types.RESTORE_JOB_SUCCEEDED)
    if before is None or before.message != message:
        scope.env.metrics.restore(scope.kind.kind, "not_found")
    scope.observe(
        Observation(types.RESTORE_JOB_SUCCEEDED, types.FALSE, reasons.RESTORE_BACKUP_NOT_FOUND, message)
    )
