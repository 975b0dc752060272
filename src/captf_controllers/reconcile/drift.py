"""``DriftDetected``: what the newest drift check found, and what becomes of it.

The finding stays until another check succeeds; where drift is remediated, an apply that succeeded after the
check ends it as well. What the remediation does is appended to the finding's message and replaced, never
piled up.
"""

from __future__ import annotations

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.jobs.outcomes import FinishedJob
from captf_controllers.observability.observation import Observation
from captf_controllers.observability.transitions import drift_summary
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.scope import Scope

SEPARATOR = "; remediation "


def show(scope: Scope, books: Books, config: EffectiveConfig) -> None:
    """Set ``DriftDetected`` from the Jobs that this pass read."""
    remediate = config.drift_action == "Remediate" and scope.mutable
    check = books.newest_success("drift")
    # A check that left no result says nothing about drift: what the one before found stays.
    if check is not None and check.newly and check.result is not None:
        _show_check(scope, check, remediate=remediate)
    present = scope.conditions.get(types.DRIFT_DETECTED)
    if present is None or present.status != types.TRUE:
        return
    if not remediate:
        if present.reason != reasons.DRIFT_REPORTED:
            _set(scope, types.TRUE, reasons.DRIFT_REPORTED, drift_summary(present.message))
        return
    since = scope.status.last_drift_check
    applied = books.newest_success("apply")
    if applied is not None and since is not None and applied.finished_at > since:
        _set(scope, types.FALSE, reasons.NO_DRIFT, f"Job {applied.name} applied after the drift was found")
        return
    doing = _doing(books, present.message)
    _set(scope, types.TRUE, reasons.DRIFT_PENDING, drift_summary(present.message) + doing)


def _show_check(scope: Scope, check: FinishedJob, *, remediate: bool) -> None:
    found = check.result.drift if check.result is not None else None
    if found is None or not found.detected:
        _set(scope, types.FALSE, reasons.NO_DRIFT, f"Job {check.name} found no drift")
        return
    counts = (
        f"{found.create} to create, {found.update} to update, "
        f"{found.replace} to replace, {found.delete} to delete"
    )
    reason = reasons.DRIFT_PENDING if remediate else reasons.DRIFT_REPORTED
    _set(scope, types.TRUE, reason, f"Job {check.name} found drift: {counts}")


def _doing(books: Books, message: str) -> str:
    """What the last remediation came to, for the end of the message."""
    newest = books.newest("apply")
    if newest is None or newest.succeeded or not newest.job.marked(keys.DRIFT_REMEDIATION):
        return ""
    if newest.blocked:
        outcome = "was blocked (see ApplyJobSucceeded)"
    elif newest.plan_changed:
        outcome = "planned something else than what was approved"
    else:
        outcome = "failed"
    return f"{SEPARATOR}Job {newest.name} {outcome}"


def _set(scope: Scope, status: types.Status, reason: str, message: str) -> None:
    scope.observe(Observation(types.DRIFT_DETECTED, status, reason, message))
