"""The plans of a cluster or pool in one pass: settle, see, make, supersede, report.

Machines have no plans: their applies are never guarded.
"""

from __future__ import annotations

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.kinds import TERRAFORM_CLUSTER, TERRAFORM_MACHINE_POOL
from captf_controllers.api.owner import Owner
from captf_controllers.api.plan import PlanPhase
from captf_controllers.api.workspace import ObjectName
from captf_controllers.approvals import changes, store
from captf_controllers.approvals.changes import Settle
from captf_controllers.approvals.plans import PlanView, live_plan
from captf_controllers.approvals.store import PlanOwner
from captf_controllers.decide import LivePlan
from captf_controllers.inputs.build import InputsResult
from captf_controllers.jobs import reporting
from captf_controllers.observability.conditions import job_in_message
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.scope import Scope

_RESULTS: dict[PlanPhase, str] = {
    "Approved": "approved",
    "Applied": "applied",
    "Superseded": "superseded",
    "Failed": "failed",
}


def has_plans(scope: Scope) -> bool:
    """Whether the kind takes part in approvals."""
    return scope.kind in (TERRAFORM_CLUSTER, TERRAFORM_MACHINE_POOL)


def keep_plans(scope: Scope, books: Books, config: EffectiveConfig) -> None:
    """Part of bookkeeping: what finished Jobs and people did to the plans. ``books.plans`` holds the result."""
    if not has_plans(scope):
        return
    books.plans = store.list_plans(scope.env.cache, Owner.of(scope.obj))
    if scope.deleting:
        return
    _settle(scope, books, changes.settle_finished(books.plans, books.finished))
    _settle(scope, books, changes.see_approvals(books.plans))
    _show_phases(scope, books)
    target = _target(scope)
    pool = scope.kind == TERRAFORM_MACHINE_POOL
    for made in changes.made_by(books.finished, target=scope.name, pool=pool, policy=config.apply_policy):
        _settle(scope, books, changes.superseded_by(books.plans, made))
        known = any(plan.name == made.name for plan in books.plans)
        view = store.make_plan(scope.client, target, made, scope.now)
        if view is None or known:
            continue
        books.plans = [view, *books.plans]
        scope.env.metrics.plan(scope.kind.kind, "created")
        if made.reason == "Manual":
            scope.say("Normal", reasons.EVENT_PLAN_READY, changes.awaiting_message(view, scope.namespace))


def settle_moot(
    scope: Scope, books: Books, config: EffectiveConfig, inputs: InputsResult, *, apply_due: bool
) -> None:
    """End the plans that nothing waits for any more, and prune. Only with the inputs built and no Job running.

    A pool's plan is for its approval hash and stays while the pool holds the exports applied before, although
    no apply is due meanwhile.
    """
    if not has_plans(scope):
        return
    pool = scope.kind == TERRAFORM_MACHINE_POOL
    wanted = inputs.approval_hash if pool else inputs.hash
    _settle(
        scope,
        books,
        changes.moot(
            books.plans, wanted_hash=wanted, apply_due=apply_due or pool, policy=config.apply_policy
        ),
    )
    store.prune_plans(scope.client, scope.namespace, books.plans)


def live_for_decision(books: Books) -> LivePlan | None:
    """The live plan as the operation decision takes it."""
    plan = live_plan(books.plans)
    if plan is None:
        return None
    return LivePlan(plan.name, plan.reason, plan.plan_hash, plan.inputs_hash, plan.approved)


def planned_exports(books: Books) -> frozenset[str]:
    """The approval hashes of a pool that a person has approved or still may."""
    return frozenset(plan.inputs_hash for plan in books.plans if plan.live and plan.reason == "ExportsChange")


def approved_exports(books: Books) -> frozenset[str]:
    """The approval hashes of a pool that a person approved."""
    return frozenset(
        plan.inputs_hash
        for plan in books.plans
        if plan.live and plan.approved and plan.reason == "ExportsChange"
    )


def report_wait(scope: Scope, books: Books, waiting: str | None, *, held: bool = False) -> None:
    """Keep a wait for approval reported, whatever else the pass does, and point at the plan.

    ``held``: a pool goes on with the exports applied before, while a change of them waits.
    """
    plan = live_plan(books.plans)
    if held and plan is not None and not plan.approved:
        waiting = waiting or reasons.DESTRUCTIVE_PLAN_BLOCKED
    if has_plans(scope):
        scope.update(pending_plan_ref=ObjectName(name=plan.name) if plan is not None else None)
    if waiting is None:
        return
    if waiting == reasons.PLAN_AWAITING_APPROVAL and plan is not None:
        present = scope.conditions.get(types.APPLY_JOB_SUCCEEDED)
        changed = (
            present is not None and present.reason == reasons.PLAN_CHANGED and plan.name in present.message
        )
        if not changed:
            message = changes.awaiting_message(plan, scope.namespace)
            scope.observe(
                Observation(types.APPLY_JOB_SUCCEEDED, types.UNKNOWN, reasons.PLAN_AWAITING_APPROVAL, message)
            )
        return
    blocked = books.newest("apply")
    job = blocked if blocked is not None and blocked.blocked else None
    scope.observe(
        Observation(
            types.APPLY_JOB_SUCCEEDED,
            types.FALSE,
            reasons.DESTRUCTIVE_PLAN_BLOCKED,
            changes.blocked_message(job, plan, scope.namespace),
        )
    )


def report_end_of_wait(scope: Scope, books: Books) -> None:
    """No apply is due: what stopped for an approval was taken back, so the apply before it is what counts."""
    newest = books.newest("apply", "destroy")
    if newest is None or not newest.waits_for_approval:
        return
    ended = next((job for job in books.finished if job.op == "apply" and not job.waits_for_approval), None)
    if ended is None:
        return
    present = scope.conditions.get(types.APPLY_JOB_SUCCEEDED)
    if present is not None and job_in_message(present.message) == ended.name:
        return
    observation = reporting.apply_observation(ended)
    if observation is not None:
        scope.observe(observation)


def _show_phases(scope: Scope, books: Books) -> None:
    """Give a plan the status that its phase asks for: a move, or a pass cut short, leaves it without."""
    shown = []
    for plan in books.plans:
        if plan.shown != plan.phase:
            store.show_phase(scope.client, scope.namespace, plan, scope.now)
            plan = plan.moved_to(plan.phase)
        shown.append(plan)
    books.plans = shown


def _settle(scope: Scope, books: Books, settled: list[Settle]) -> None:
    for change in settled:
        if not store.settle_plan(scope.client, scope.namespace, change.plan, change.phase, scope.now):
            continue
        scope.env.metrics.plan(scope.kind.kind, _RESULTS[change.phase])
        if change.event:
            scope.say("Warning" if change.warning else "Normal", change.event, change.note)
        books.plans = [_after(plan, change) for plan in books.plans]


def _after(plan: PlanView, change: Settle) -> PlanView:
    return plan.moved_to(change.phase) if plan.name == change.plan.name else plan


def _target(scope: Scope) -> PlanOwner:
    kind = "TerraformCluster" if scope.kind == TERRAFORM_CLUSTER else "TerraformMachinePool"
    return PlanOwner(Owner.of(scope.obj), kind, scope.lease_owner.cluster_name)  # type: ignore[arg-type]
