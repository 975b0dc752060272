"""From the outputs of a state to the object: validity, health, the kind's fields, the provisioned latch."""

from __future__ import annotations

from datetime import datetime

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.workspace import Initialization
from captf_controllers.jobs.views import JobView
from captf_controllers.observability.observation import Observation
from captf_controllers.observability.transitions import drift_summary
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.scope import Scope
from captf_controllers.reconcile.state_step import StateView
from captf_controllers.state.outputs import Health, OutputsResult, map_outputs

HEALTH_REASONS = {
    "pending": reasons.INSTANCE_PENDING,
    "degraded": reasons.INSTANCE_DEGRADED,
    "stopped": reasons.INSTANCE_STOPPED,
    "terminated": reasons.INSTANCE_TERMINATED,
}
#: Readings that say something definite about the instance: an apply's own reading of one is a sample.
DEFINITE = frozenset(
    {
        reasons.HEALTHY,
        reasons.INSTANCE_UNHEALTHY,
        reasons.INSTANCE_DEGRADED,
        reasons.INSTANCE_STOPPED,
        reasons.INSTANCE_TERMINATED,
    }
)


def map_state(scope: Scope, books: Books, view: StateView) -> None:
    """Map what was read. Without a state only the first-visit readings are set.

    A destroy takes the outputs out of the state before the last resource is gone: that breaks no contract, and
    what was published stays as long as the object.
    """
    if view.state is None or view.hold is not None:
        if view.hold is None:
            _nothing_yet(scope)
        return
    if scope.deleting and not view.state.outputs:
        return
    facts = scope.adapter.output_facts(scope, applied=bool(view.inputs_hash))
    outputs = map_outputs(scope.kind.kind, view.state.outputs, facts)
    scope.observe(outputs.condition)
    scope.adapter.publish(scope, outputs, view)
    _latch(scope, view, outputs)
    _show_health(scope, books, outputs)


def apply_started(scope: Scope) -> None:
    """Health of an object whose first apply runs."""
    scope.observe(
        Observation(
            types.INFRASTRUCTURE_HEALTHY,
            types.FALSE,
            reasons.PROVISIONING,
            "The infrastructure is being provisioned",
        )
    )


def remediating(scope: Scope, active: JobView) -> None:
    """Drift that an apply is about to remove."""
    present = scope.conditions.get(types.DRIFT_DETECTED)
    if present is None or present.reason not in {reasons.DRIFT_PENDING, reasons.DRIFT_REMEDIATING}:
        return
    summary = drift_summary(present.message)
    scope.observe(
        Observation(
            types.DRIFT_DETECTED,
            types.TRUE,
            reasons.DRIFT_REMEDIATING,
            f"{summary}; remediation Job {active.name} runs",
        )
    )


def health_observation(health: Health | None) -> Observation:
    """What ``InfrastructureHealthy`` says about a reading of the module's ``health`` output."""
    type_ = types.INFRASTRUCTURE_HEALTHY
    if health is None:
        return Observation(type_, types.UNKNOWN, reasons.HEALTH_UNKNOWN, reasons.HEALTH_UNKNOWN)
    parts = [health.message] if health.message else []
    if health.reasons:
        parts.append(f"reasons: {', '.join(health.reasons)}")
    if health.state == "running":
        reason = reasons.HEALTHY if health.healthy else reasons.INSTANCE_UNHEALTHY
        status = types.TRUE if health.healthy else types.FALSE
    elif health.state in HEALTH_REASONS:
        reason, status = HEALTH_REASONS[health.state], types.FALSE
    else:
        reason, status = reasons.HEALTH_UNKNOWN, types.UNKNOWN
    return Observation(type_, status, reason, "; ".join(parts) or reason)


def _nothing_yet(scope: Scope) -> None:
    if scope.conditions.get(types.OUTPUTS_VALID) is None:
        scope.observe(
            Observation(
                types.OUTPUTS_VALID,
                types.UNKNOWN,
                reasons.OUTPUTS_PENDING,
                "No apply has written outputs yet",
            )
        )
    if scope.conditions.get(types.INFRASTRUCTURE_HEALTHY) is None:
        scope.observe(
            Observation(
                types.INFRASTRUCTURE_HEALTHY,
                types.UNKNOWN,
                reasons.WAITING_FOR_PROVISIONING,
                "No apply has started yet",
            )
        )


def _latch(scope: Scope, view: StateView, outputs: OutputsResult) -> None:
    """``provisioned`` becomes true once and stays: a state of a successful apply with usable outputs."""
    if scope.provisioned or not view.inputs_hash or not outputs.provisions:
        return
    scope.update(initialization=Initialization(provisioned=True))
    scope.adapter.provisioned(scope)
    scope.say("Normal", reasons.EVENT_PROVISIONED, "The infrastructure is provisioned")


def _show_health(scope: Scope, books: Books, outputs: OutputsResult) -> None:
    if not scope.provisioned:
        apply_started(scope)
        return
    seen = scope.adapter.health(scope, outputs)
    sample = _take_sample(scope, books, outputs, seen)
    scope.observe(seen)
    _count_pending(scope, books, seen, sample)
    if sample:
        scope.adapter.sampled(scope, seen)


def _take_sample(scope: Scope, books: Books, outputs: OutputsResult, seen: Observation) -> bool:
    """Whether this pass holds a new reading: a refresh that advanced, or an apply's own definite one."""
    stored = scope.stored_last_refresh
    apply = books.newest_success("apply")
    if (
        apply is not None
        and outputs.contract_kept
        and seen.reason in DEFINITE
        and _later(apply.finished_at, scope.status.last_refresh)
    ):
        scope.update(last_refresh=apply.finished_at)
    refreshed = scope.status.last_refresh
    return refreshed is not None and _later(refreshed, stored)


def _later(time: datetime, than: datetime | None) -> bool:
    return than is None or time > than


def _count_pending(scope: Scope, books: Books, seen: Observation, sample: bool) -> None:
    """``status.pendingRefreshes`` spaces the refreshes of an object whose health reads pending."""
    apply = books.newest_success("apply")
    applied_since = apply is not None and _later(apply.finished_at, scope.stored_last_refresh)
    if not sample:
        if applied_since and apply is not None and apply.newly:
            scope.update(pending_refreshes=None)
        return
    if seen.reason != reasons.INSTANCE_PENDING:
        scope.update(pending_refreshes=None)
    else:
        previous = 0 if applied_since else scope.status.pending_refreshes or 0
        scope.update(pending_refreshes=previous + 1)
