"""What runs next for a live object: a pure function over a snapshot.

The pass (``captf_controllers.reconcile``) gathers the facts, calls :func:`decide` once and carries out its
answer. Nothing here reads the API server, a cache or a clock, so the whole truth table is a plain test.
A deleting object never comes here; ``captf_controllers.deletion`` decides for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from captf_controllers.api.workspace import Operation
from captf_runtime.queue import policies

ApplyPolicy = Literal["Automatic", "Manual"]
PlanReason = Literal["Manual", "Destructive", "ExportsChange"]

#: How long a wait for a person lasts before the pass looks again. Approvals arrive as events; this is the
#: fallback.
APPROVAL_RECHECK_SECONDS = 600.0
PENDING_REFRESH_SECONDS = 30.0
PENDING_REFRESH_CEILING_SECONDS = 300.0
MEMBERSHIP_CONVERGING_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """A restore that the user asked for and that may start: a complete backup, not consumed yet."""

    serial: int
    set_name: str


@dataclass(frozen=True, slots=True)
class LivePlan:
    """The live TerraformPlan for the inputs at hand."""

    name: str
    reason: PlanReason
    plan_hash: str
    inputs_hash: str
    approved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What stands between an apply that is due and its Job.

    ``wanted_hash`` is the approval hash of a guarded pool apply, else the current inputs hash.
    ``blocked_hash`` and ``blocked_at`` describe the newest finished apply when the destructive guard
    stopped it. ``empty_plan_hash`` is set when the newest plan of the current hash found nothing to change
    and no apply finished since.
    """

    policy: ApplyPolicy = "Automatic"
    wanted_hash: str | None = None
    plan: LivePlan | None = None
    blocked_hash: str | None = None
    blocked_at: datetime | None = None
    empty_plan_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The facts behind refresh and drift. Intervals are seconds; 0 switches a check off."""

    refresh_after_apply: bool = False
    converging: bool = False
    health_pending: bool = False
    pending_refreshes: int = 0
    membership_interval: float = 0.0
    health_interval: float = 0.0
    drift_interval: float = 0.0
    last_refresh: datetime | None = None
    last_drift_check: datetime | None = None
    newest_successful_apply: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remediation:
    """Whether drift may be remediated by an apply."""

    enabled: bool = False
    drift_detected: bool = False
    failures: int = 0
    limit: int = 3

    @property
    def due(self) -> bool:
        return self.enabled and self.drift_detected and self.failures < max(self.limit, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything :func:`decide` looks at.

    ``current_hash`` is None while the inputs cannot be built (a gate) or need not be (a provisioned
    machine). ``state_hash`` is empty when the state records no successful apply. ``backoff`` maps an
    operation to the seconds until its next attempt; an absent or zero entry means that it may run.
    """

    now: datetime
    uid: str
    created: datetime
    mutable: bool
    job_active: bool = False
    held: bool = False
    has_state: bool = False
    state_hash: str = ""
    current_hash: str | None = None
    restore: RestoreTarget | None = None
    last_apply_failed: bool = False
    backoff: Mapping[Operation, float] = field(default_factory=dict)
    approval: Approval = Approval()
    schedule: Schedule = Schedule()
    remediation: Remediation = Remediation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Run ``operation`` now, or (when it is None) come back after ``requeue_after`` seconds.

    ``requeue_after`` 0 with no operation means that nothing is due until an event arrives.
    ``waiting_reason`` names a wait for approval that must stay reported whatever else this pass starts.
    """

    reason: str
    operation: Operation | None = None
    requeue_after: float = 0.0
    waiting_reason: str | None = None
    expect_plan: str | None = None
    plan: str | None = None
    allow_deletes: bool = False


def decide(snapshot: Snapshot) -> Decision:
    """The next operation of a live object (spec: the operation decision of the reconcile pass).

    First matching rule wins: an active Job; a restore; a held state; no state; a state without an inputs
    hash; changed inputs; a failed apply; drift to remediate; then the refresh and drift schedule. An apply
    in backoff ends the evaluation, so that a schedule Job never renders inputs that failed to apply.
    """
    if snapshot.job_active:
        return Decision(reason="JobActive", requeue_after=policies.ACTIVE.delay())
    if snapshot.restore is not None:
        return Decision(reason="RestoreRequested", operation="restore")
    if snapshot.held:
        return Decision(reason="StateHeld", requeue_after=policies.STATE.delay())
    reason = apply_reason(snapshot)
    if reason is None:
        return _schedule(snapshot)
    return _apply(snapshot, reason)


def apply_reason(snapshot: Snapshot) -> str | None:
    if not snapshot.has_state:
        return "NoState"
    if not snapshot.state_hash:
        return "StateWithoutInputsHash"
    if not snapshot.mutable:
        return None
    if snapshot.current_hash is not None and snapshot.current_hash != snapshot.state_hash:
        return "InputsChanged"
    if snapshot.last_apply_failed:
        return "LastApplyFailed"
    if snapshot.remediation.due:
        return "DriftRemediation"
    return None


def _apply(snapshot: Snapshot, reason: str) -> Decision:
    if snapshot.approval.policy == "Manual" and reason != "NoState":
        return _apply_manual(snapshot, reason)
    return _apply_automatic(snapshot, reason)


def _apply_manual(snapshot: Snapshot, reason: str) -> Decision:
    approval = snapshot.approval
    if approval.empty_plan_hash is not None:
        return _job(snapshot, "apply", reason, expect_plan=approval.empty_plan_hash)
    plan = approval.plan
    if plan is not None and plan.reason == "Manual" and plan.inputs_hash == approval.wanted_hash:
        if plan.approved:
            return _job(snapshot, "apply", reason, expect_plan=plan.plan_hash, plan=plan.name)
        return _await_approval(snapshot, "PlanAwaitingApproval", APPROVAL_RECHECK_SECONDS)
    return _job(snapshot, "plan", reason)


def _apply_automatic(snapshot: Snapshot, reason: str) -> Decision:
    approval = snapshot.approval
    plan = approval.plan
    if plan is not None and plan.reason != "Manual" and plan.inputs_hash == approval.wanted_hash:
        if not plan.approved:
            return _await_approval(snapshot, "DestructivePlanBlocked", APPROVAL_RECHECK_SECONDS)
        if plan.reason == "Destructive":
            return _job(snapshot, "apply", reason, expect_plan=plan.plan_hash, plan=plan.name)
        return _job(snapshot, "apply", reason, allow_deletes=True, plan=plan.name)
    if (
        approval.blocked_hash is not None
        and approval.blocked_hash == approval.wanted_hash
        and approval.blocked_at is not None
    ):
        waited = (snapshot.now - approval.blocked_at).total_seconds()
        if waited < APPROVAL_RECHECK_SECONDS:
            return _await_approval(snapshot, "DestructivePlanBlocked", APPROVAL_RECHECK_SECONDS - waited)
    return _job(snapshot, "apply", reason)


def _await_approval(snapshot: Snapshot, reason: str, remaining: float) -> Decision:
    """Wait for a person. Only a remediation (equal hashes) leaves the schedule running meanwhile."""
    if not snapshot.has_state or snapshot.current_hash != snapshot.state_hash:
        return Decision(reason=reason, requeue_after=remaining, waiting_reason=reason)
    scheduled = _schedule(snapshot)
    if scheduled.operation is not None:
        return Decision(reason=scheduled.reason, operation=scheduled.operation, waiting_reason=reason)
    return Decision(
        reason=reason,
        requeue_after=_shortest(remaining, scheduled.requeue_after),
        waiting_reason=reason,
    )


def _job(
    snapshot: Snapshot,
    operation: Operation,
    reason: str,
    *,
    expect_plan: str | None = None,
    plan: str | None = None,
    allow_deletes: bool = False,
) -> Decision:
    remaining = snapshot.backoff.get(operation, 0.0)
    if remaining > 0:
        return Decision(reason=f"{reason}Backoff", requeue_after=remaining)
    return Decision(
        reason=reason, operation=operation, expect_plan=expect_plan, plan=plan, allow_deletes=allow_deletes
    )


@dataclass(frozen=True, slots=True)
class _Due:
    operation: Operation
    reason: str
    at: datetime


def _schedule(snapshot: Snapshot) -> Decision:
    """The first refresh or drift check that is due, else the soonest deadline.

    A check in backoff does not hide the rows below it: the evaluation goes on and remembers when the
    backoff ends.
    """
    deadlines: list[float] = []
    held_back: str | None = None
    for check in _checks(snapshot):
        remaining = (check.at - snapshot.now).total_seconds()
        if remaining <= 0:
            remaining = snapshot.backoff.get(check.operation, 0.0)
            if remaining <= 0:
                return Decision(reason=check.reason, operation=check.operation)
            held_back = held_back or f"{check.reason}Backoff"
        deadlines.append(remaining)
    if not deadlines:
        return Decision(reason="UpToDate")
    return Decision(reason=held_back or "UpToDate", requeue_after=max(min(deadlines), 1.0))


def _checks(snapshot: Snapshot) -> list[_Due]:
    schedule = snapshot.schedule
    uid, now = snapshot.uid, snapshot.now
    checks: list[_Due] = []
    if schedule.refresh_after_apply:
        checks.append(_Due("refresh", "RefreshAfterApply", now))
    if schedule.converging:
        at = _after(schedule.last_refresh, MEMBERSHIP_CONVERGING_SECONDS, now)
        checks.append(_Due("refresh", "MembershipConverging", at))
    elif schedule.health_pending:
        at = _after(schedule.last_refresh, pending_refresh_delay(schedule.pending_refreshes), now)
        checks.append(_Due("refresh", "HealthPending", at))
    periodic: tuple[tuple[Operation, str, float, datetime | None], ...] = (
        ("refresh", "MembershipRefreshDue", schedule.membership_interval, schedule.last_refresh),
        ("refresh", "HealthCheckDue", schedule.health_interval, schedule.last_refresh),
        ("drift", "DriftDue", schedule.drift_interval, schedule.last_drift_check),
    )
    for operation, reason, interval, last in periodic:
        if interval <= 0:
            continue
        base = last or schedule.newest_successful_apply or snapshot.created
        jitter = policies.jitter_ns(uid, int(interval * 1_000_000_000)) / 1e9
        checks.append(_Due(operation, reason, base + timedelta(seconds=interval + jitter)))
    return checks


def pending_refresh_delay(pending_refreshes: int) -> float:
    """Seconds between refreshes while health reads pending: 30, 30, 60, 120, 240, then 300.

    ``pending_refreshes`` is ``status.pendingRefreshes``, the count of consecutive pending samples.
    """
    doublings = min(max(pending_refreshes - 1, 0), 4)
    return min(PENDING_REFRESH_SECONDS * (1 << doublings), PENDING_REFRESH_CEILING_SECONDS)


def _after(base: datetime | None, seconds: float, now: datetime) -> datetime:
    return now if base is None else base + timedelta(seconds=seconds)


def _shortest(*delays: float) -> float:
    positive = [delay for delay in delays if delay > 0]
    return min(positive) if positive else 0.0
