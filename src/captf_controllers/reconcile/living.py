"""The live branch of the pass: read the state, build the inputs, decide, start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.cluster import ApplyPolicy
from captf_controllers.api.workspace import Operation
from captf_controllers.approvals.changes import empty_plan_hash
from captf_controllers.decide import (
    Approval,
    Decision,
    Remediation,
    RestoreTarget,
    Snapshot,
    apply_reason,
    decide,
)
from captf_controllers.deletion.facts import (
    CredentialsObstacle,
    NoInputsObstacle,
    Obstacle,
    RefusedObstacle,
    TooLargeObstacle,
    WaitObstacle,
)
from captf_controllers.identity.credentials import Credentials
from captf_controllers.inputs.build import Inputs
from captf_controllers.inputs.gate import Gate
from captf_controllers.jobs.failures import backoff_remaining, count_remediation_failures
from captf_controllers.jobs.operations import UNCHECKED_POLICY, condition_type
from captf_controllers.jobs.policy import policy_problem
from captf_controllers.jobs.views import JobView
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile import credentials as credential_step
from captf_controllers.reconcile import (
    material,
    ownership,
    plan_step,
    refused_starts,
    restoring,
    state_step,
)
from captf_controllers.reconcile import outputs as outputs_step
from captf_controllers.reconcile.bookkeeping import Books, apply_stays_due
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.scope import Outcome, Scope
from captf_controllers.reconcile.start import (
    StartRequest,
    Stopped,
    live_credentials_obstacle,
    start,
)
from captf_controllers.reconcile.state_step import StateView
from captf_controllers.state.restore import RestoreRequest
from captf_runtime.queue import policies

if TYPE_CHECKING:
    from captf_controllers.reconcile.passes import Gathered

BACKED_OFF: tuple[Operation, ...] = ("apply", "plan", "refresh", "drift")


def while_active(scope: Scope, active: JobView) -> None:
    """What a live object shows while a Job runs."""
    if active.op == "apply":
        scope.observe(
            Observation(types.INPUTS_APPLIED, types.FALSE, reasons.APPLY_RUNNING, f"Job {active.name}")
        )
        if not scope.provisioned:
            outputs_step.apply_started(scope)
    if active.op == "apply" and scope.conditions.is_true(types.DRIFT_DETECTED):
        outputs_step.remediating(scope, active)


def run(scope: Scope, gathered: Gathered) -> Outcome:
    """One pass of a live object without an active Job."""
    books, config = gathered.books, gathered.config
    view = state_step.read(scope, books)
    foreign = view.retained.foreign_uid
    if foreign and scope.spec.adopt_retained_state:
        state_step.adopt_retained(scope, foreign)
        return Outcome(requeue_after=policies.LAG.delay())
    if foreign:
        state_step.hold_on_retained(scope, foreign)
        return Outcome(requeue_after=policies.STATE.delay())
    if view.retained.own:
        view = state_step.undo_own_retain(scope, books)
    state_step.classify(scope, books, view)
    state_step.follow_up(scope, books, view)
    outputs_step.map_state(scope, books, view)
    prepared = credential_step.prepare(scope, config)
    scope.deferred_error = prepared.error
    ownership.repair(scope, books, view)
    ownership.show_foreign_lock(scope, view, gathered.lock)
    lost = _lost_machine_hash(scope, books, view)
    inputs = _build_inputs(scope, books)
    restore = restoring.requested(scope, books, view, config)
    if (lost or view.hold is not None) and restore is None:
        _show_inputs_applied(scope, books, view, inputs, Decision(reason="StateHeld"))
        return Outcome(requeue_after=policies.STATE.delay())
    snapshot = _snapshot(scope, books, config, view, inputs, restore)
    if inputs is not None and inputs.result is not None:
        plan_step.settle_moot(
            scope, books, config, inputs.result, apply_due=apply_reason(snapshot) is not None
        )
        snapshot = _snapshot(scope, books, config, view, inputs, restore)
    decision = decide(snapshot)
    held = inputs is not None and inputs.result is not None and inputs.result.held_exports
    plan_step.report_wait(scope, books, decision.waiting_reason, held=held)
    if snapshot.current_hash is not None and not held and apply_reason(snapshot) is None:
        plan_step.report_end_of_wait(scope, books)
    scope.env.metrics.decision(scope.kind.kind, decision.operation or "none", decision.reason)
    try:
        return _act(scope, gathered, view, inputs, restore, prepared, decision)
    finally:
        # Also when the start was refused: a change that cannot be applied must not pass for applied.
        _show_inputs_applied(scope, books, view, inputs, decision)


def _lost_machine_hash(scope: Scope, books: Books, view: StateView) -> bool:
    """A provisioned machine whose state records no apply and that has no record to apply again from."""
    if scope.mutable or not scope.provisioned or view.state is None or view.inputs_hash:
        return False
    if books.records.to_apply_again is not None:
        return False
    scope.observe(
        Observation(
            types.STATE_READABLE,
            types.FALSE,
            reasons.STATE_LOST,
            "The state records no successful apply and no inputs record is left to apply again; no Job runs "
            f"until a backup of status.stateBackups is restored with {keys.RESTORE_STATE}",
        )
    )
    return True


def _build_inputs(scope: Scope, books: Books) -> Inputs | None:
    """Build the current inputs of an object whose inputs still count, and show the gates."""
    if not scope.mutable and scope.provisioned:
        return None
    gate = scope.owners.gate
    built = material.build_inputs(
        scope,
        books.records,
        owner_gate=Gate(gate.status, gate.reason, gate.message) if gate is not None else None,
        provisioned=scope.provisioned,
        approved_hashes=plan_step.approved_exports(books),
        planned_hashes=plan_step.planned_exports(books),
    )
    scope.observe(built.dependencies())
    _record_endpoint_source(scope, built)
    if built.autoscaling is not None:
        scope.observe(built.autoscaling)
    return built


def _record_endpoint_source(scope: Scope, built: Inputs) -> None:
    if built.result is None or not built.result.endpoint_record:
        return
    source = built.result.endpoint_record
    scope.annotate(keys.ENDPOINT_SOURCE, None if source == "remove" else source)


def _snapshot(
    scope: Scope,
    books: Books,
    config: EffectiveConfig,
    view: StateView,
    inputs: Inputs | None,
    restore: RestoreRequest | None,
) -> Snapshot:
    result = inputs.result if inputs is not None else None
    limit = config.jobs.failed_limit
    backoff = {op: backoff_remaining(books.failures(op), limit, scope.now) for op in BACKED_OFF}
    return Snapshot(
        now=scope.now,
        uid=scope.uid,
        created=scope.created,
        mutable=scope.mutable,
        held=view.hold is not None,
        has_state=view.state is not None,
        state_hash=view.inputs_hash,
        current_hash=result.hash if result is not None else None,
        restore=RestoreTarget(restore.serial, restore.backup.name) if restore is not None else None,
        last_apply_failed=apply_stays_due(scope, books),
        backoff=backoff,
        approval=_approval(books, config.apply_policy, inputs),
        schedule=scope.adapter.schedule(scope, config, books),
        remediation=Remediation(
            enabled=config.drift_action == "Remediate" and scope.mutable,
            drift_detected=scope.conditions.is_true(types.DRIFT_DETECTED),
            failures=count_remediation_failures(books.finished, scope.status.last_drift_check),
            limit=limit,
        ),
    )


def _approval(books: Books, policy: ApplyPolicy, inputs: Inputs | None) -> Approval:
    """What the guard of the newest apply left to a person."""
    result = inputs.result if inputs is not None else None
    wanted = None
    if result is not None:
        wanted = result.approval_hash if result.guarded else result.hash
    newest = books.newest("apply")
    blocked = newest if newest is not None and newest.blocked else None
    blocked_hash = None
    if blocked is not None:
        blocked_hash = blocked.job.annotations.get(keys.APPROVAL_HASH) or blocked.job.inputs_hash
    return Approval(
        policy=policy,
        wanted_hash=wanted,
        plan=plan_step.live_for_decision(books),
        empty_plan_hash=empty_plan_hash(books.finished, result.hash) if result is not None else None,
        blocked_hash=blocked_hash,
        blocked_at=blocked.finished_at if blocked is not None else None,
    )


def _act(
    scope: Scope,
    gathered: Gathered,
    view: StateView,
    inputs: Inputs | None,
    restore: RestoreRequest | None,
    prepared: Credentials,
    decision: Decision,
) -> Outcome:
    operation = decision.operation
    if operation is None:
        return Outcome(requeue_after=decision.requeue_after)
    stopped = _check(scope, gathered.config, inputs, prepared, operation, view)
    if stopped is not None:
        return stopped
    chosen = material.choose(
        scope,
        operation,
        gathered.books.records,
        view,
        inputs=inputs,
        backup=restore.backup if restore is not None else None,
    )
    request = StartRequest(
        operation=operation,
        reason=decision.reason,
        books=gathered.books,
        config=gathered.config,
        credentials=prepared,
        lock=gathered.lock,
        state_lineage=view.state.lineage if view.state is not None else "",
        decision=decision,
    )
    ended = start(scope, request, chosen)
    if not isinstance(ended, Stopped):
        if (
            decision.reason == "InputsChanged"
            and operation == "apply"
            and scope.status.active_job is not None
        ):
            scope.say(
                "Normal",
                reasons.EVENT_INPUTS_CHANGED,
                f"The inputs changed from {view.inputs_hash} to "
                f"{inputs.result.hash if inputs is not None and inputs.result is not None else '?'}",
            )
            scope.env.metrics.inputs_changed(scope.kind.kind)
        return ended
    if ended.error is not None:
        refused_starts.tell(scope, operation, ended.error)
        raise ended.error
    return _live_stop(scope, operation, ended.obstacle)


def _check(
    scope: Scope,
    config: EffectiveConfig,
    inputs: Inputs | None,
    prepared: Credentials,
    operation: Operation,
    view: StateView,
) -> Outcome | None:
    """The checks before a start that are a live object's alone."""
    if live_credentials_obstacle(prepared) is not None or not prepared.ready:
        return Outcome(requeue_after=policies.GATE.delay())
    if operation in ("apply", "plan") and inputs is not None and inputs.result is None:
        return Outcome(requeue_after=policies.GATE.delay())
    if operation in UNCHECKED_POLICY:
        return None
    problem = policy_problem(config.jobs)
    if problem is None:
        return None
    scope.observe(Observation(types.APPLY_JOB_SUCCEEDED, types.FALSE, reasons.JOB_POLICY_INVALID, problem))
    return Outcome(requeue_after=policies.RETRY.cap)


def _live_stop(scope: Scope, operation: Operation, obstacle: Obstacle) -> Outcome:
    """What a live object shows when its start stopped."""
    type_ = condition_type(operation)
    match obstacle:
        case WaitObstacle(reason, message, requeue_after):
            scope.observe(Observation(type_, types.UNKNOWN, reason, message))
            return Outcome(requeue_after=requeue_after)
        case TooLargeObstacle(detail):
            scope.observe(
                Observation(types.APPLY_JOB_SUCCEEDED, types.FALSE, reasons.INPUTS_TOO_LARGE, detail)
            )
        case NoInputsObstacle(secrets):
            scope.observe(
                Observation(
                    type_,
                    types.UNKNOWN,
                    reasons.DURABLE_INPUTS_MISSING,
                    f"The {operation} Job cannot start: no inputs record is left ({', '.join(secrets)})",
                )
            )
        case CredentialsObstacle() | RefusedObstacle():
            return Outcome(requeue_after=policies.GATE.delay())
    return Outcome(requeue_after=policies.RETRY.cap)


def _show_inputs_applied(
    scope: Scope, books: Books, view: StateView, inputs: Inputs | None, decision: Decision
) -> None:
    """``InputsApplied``: whether what the spec asks for is what was applied. First match wins."""
    type_ = types.INPUTS_APPLIED
    active = scope.status.active_job
    if active is not None and active.operation == "apply":
        scope.observe(Observation(type_, types.FALSE, reasons.APPLY_RUNNING, f"Job {active.name}"))
        return
    result = inputs.result if inputs is not None else None
    applied = bool(view.inputs_hash) and (
        not scope.mutable or (result is not None and result.hash == view.inputs_hash)
    )
    newest = books.newest("apply")
    if decision.waiting_reason is not None:
        waiting = scope.conditions.get(types.APPLY_JOB_SUCCEEDED)
        text = waiting.message if waiting is not None else decision.waiting_reason
        scope.observe(Observation(type_, types.FALSE, reasons.AWAITING_APPROVAL, text))
    elif not applied and inputs is not None and inputs.gate is not None:
        text = f"{inputs.gate.reason}: {inputs.gate.message}"
        scope.observe(Observation(type_, types.UNKNOWN, reasons.INPUTS_UNAVAILABLE, text))
    elif newest is not None and not newest.succeeded and not newest.blocked:
        scope.observe(
            Observation(type_, types.FALSE, reasons.INPUTS_APPLY_FAILED, f"Job {newest.name} failed")
        )
    elif not applied:
        scope.observe(Observation(type_, types.FALSE, reasons.APPLY_PENDING))
    else:
        scope.observe(Observation(type_, types.TRUE, reasons.INPUTS_APPLIED))
