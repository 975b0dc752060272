"""What becomes of an object's plans in one pass. Pure.

The order matters: first the plans that finished applies settle, so that an old plan fails or is applied
before a new one supersedes it; then approvals that were not seen before; then the plans that finished Jobs
made; at last, once the inputs are known, the plans that have become moot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.api.cluster import ApplyPolicy
from captf_controllers.api.plan import PlanPhase, PlanReason, PlanSummary
from captf_controllers.approvals.plans import PlanView, approve_command, counts
from captf_controllers.jobs.outcomes import FinishedJob
from captf_controllers.jobs.result import PlanSummary as ResultPlan

MAX_RESOURCES = 50
MAX_RESOURCE_CHARACTERS = 600
HASH_PREFIX = "p2:"


@dataclass(frozen=True, slots=True)
class Settle:
    """An existing plan moves to another phase; ``reason`` names the event, empty for none."""

    plan: PlanView
    phase: PlanPhase
    event: Literal["", "PlanApproved", "PlanApplied", "PlanChanged", "PlanSuperseded"]
    warning: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Make:
    """A finished Job made a new plan."""

    name: str
    job: str
    reason: PlanReason
    plan_hash: str
    inputs_hash: str
    summary: PlanSummary


def settle_finished(plans: Sequence[PlanView], finished: Sequence[FinishedJob]) -> list[Settle]:
    """The plans that newly finished applies applied, or found changed."""
    by_name = {plan.name: plan for plan in plans if plan.live}
    settled = []
    for job in finished:
        plan = by_name.get(job.job.annotations.get(keys.PLAN, ""))
        if plan is None or job.op != "apply" or not job.newly:
            continue
        if job.succeeded:
            settled.append(
                Settle(plan, "Applied", "PlanApplied", note=f"Job {job.name} applied plan {plan.name}")
            )
        elif job.plan_changed:
            note = f"Job {job.name} planned something else than plan {plan.name}, which was approved"
            settled.append(Settle(plan, "Failed", "PlanChanged", warning=True, note=note))
    return settled


def see_approvals(plans: Sequence[PlanView]) -> list[Settle]:
    """Plans whose approval no pass has recorded yet."""
    return [
        Settle(plan, "Approved", "PlanApproved", note=f"Plan {plan.name} was approved by {plan.approved_by}")
        for plan in plans
        if plan.phase == "Approved" and plan.recorded != "Approved"
    ]


def made_by(finished: Sequence[FinishedJob], *, target: str, pool: bool, policy: ApplyPolicy) -> list[Make]:
    """The plans that newly finished Jobs made, oldest Job first, so that the newest one stays."""
    made = []
    for job in reversed(finished):
        plan = job.result.plan if job.result is not None else None
        if not job.newly or plan is None or plan.is_empty or not plan.hash.startswith(HASH_PREFIX):
            continue
        reason = _reason(job, pool=pool, policy=policy)
        if reason is None:
            continue
        hashed = job.job.annotations.get(keys.APPROVAL_HASH) or job.job.inputs_hash
        made.append(
            Make(
                names.plan_name(target, job.name, plan.hash),
                job.name,
                reason,
                plan.hash,
                hashed,
                summarise(plan),
            )
        )
    return made


def _reason(job: FinishedJob, *, pool: bool, policy: ApplyPolicy) -> PlanReason | None:
    if job.op == "plan" and job.succeeded:
        return "Manual"
    if job.op == "apply" and job.blocked:
        return "ExportsChange" if pool else "Destructive"
    if job.op == "apply" and job.plan_changed and policy == "Manual":
        return "Manual"
    return None


def superseded_by(plans: Sequence[PlanView], made: Make) -> list[Settle]:
    """Every other live plan: at most one lives."""
    return [
        _supersede(plan, f"plan {made.name} is newer")
        for plan in plans
        if plan.live and plan.name != made.name
    ]


def moot(
    plans: Sequence[PlanView], *, wanted_hash: str | None, apply_due: bool, policy: ApplyPolicy
) -> list[Settle]:
    """The live plans that nothing waits for any more.

    Called only for a live, unpaused object without a running Job whose inputs could be built.
    """
    if wanted_hash is None:
        return []
    ended = []
    for plan in plans:
        if not plan.live:
            continue
        if (plan.reason == "Manual") != (policy == "Manual"):
            ended.append(_supersede(plan, f"applyPolicy is {policy} now"))
        elif plan.reason != "ExportsChange" and not plan.plan_hash.startswith(HASH_PREFIX):
            ended.append(_supersede(plan, "no plan made now can be compared with its hash"))
        elif plan.inputs_hash != wanted_hash:
            ended.append(_supersede(plan, "the inputs changed since"))
        elif not apply_due:
            ended.append(_supersede(plan, "no apply is due any more"))
    return ended


def _supersede(plan: PlanView, why: str) -> Settle:
    note = f"Plan {plan.name} is superseded: {why}"
    if plan.approved:
        note += "; its approval is ignored"
    return Settle(plan, "Superseded", "PlanSuperseded", warning=plan.approved, note=note)


def empty_plan_hash(finished: Sequence[FinishedJob], current_hash: str | None) -> str | None:
    """The hash of the newest plan of the current inputs when it found nothing to change.

    None when it found something, when an apply finished after it, or when there is none.
    """
    newest_apply = next((job for job in finished if job.op == "apply"), None)
    newest = next((job for job in finished if job.op == "plan" and job.succeeded), None)
    changed = newest_apply is not None and newest_apply.plan_changed
    if changed and newest_apply is not None and newest_apply.job.inputs_hash == current_hash:
        plan = newest_apply.plan_hash
        return plan if _is_empty(plan) else None
    if newest is None or current_hash is None or newest.job.inputs_hash != current_hash:
        return None
    if newest_apply is not None and newest_apply.order > newest.order:
        return None
    return newest.plan_hash if _is_empty(newest.plan_hash) else None


def _is_empty(plan_hash: str) -> bool:
    return bool(plan_hash) and ResultPlan(hash=plan_hash).is_empty


def summarise(plan: ResultPlan) -> PlanSummary:
    """The summary that a TerraformPlan shows: counts and addresses, never a value."""
    resources = [line for line in plan.resources if len(line) <= MAX_RESOURCE_CHARACTERS]
    shown = tuple(resources[:MAX_RESOURCES])
    cut = plan.truncated or len(shown) < len(plan.resources)
    return PlanSummary(
        create=plan.create,
        update=plan.update,
        replace=plan.replace,
        delete=plan.delete,
        import_=plan.imported or None,
        move=plan.move or None,
        forget=plan.forget or None,
        output_changes=plan.output_changes or None,
        resources=shown or None,
        truncated=cut or None,
    )


def awaiting_message(plan: PlanView, namespace: str) -> str:
    """What an object says while its plan waits for a person."""
    return (
        f"TerraformPlan {plan.name} of inputs {plan.inputs_hash} waits for approval ({counts(plan.summary)}); "
        f"nothing is applied before. To approve: {approve_command(namespace, plan.name)}"
    )


def blocked_message(job: FinishedJob | None, plan: PlanView | None, namespace: str) -> str:
    """What an object says whose apply stopped before deletions nobody approved."""
    who = f"Job {job.name}: " if job is not None else ""
    if plan is None:
        return (
            f"{who}stopped before a plan that deletes or replaces resources; nothing was applied and the plan "
            "could not be recorded, so the apply runs again in ten minutes"
        )
    subject = (
        "stopped"
        if job is not None
        else f"TerraformPlan {plan.name}: an apply of inputs {plan.inputs_hash} stopped"
    )
    text = (
        f"{who}{subject} before a plan that deletes or replaces resources ({counts(plan.summary)}); nothing was "
        f"applied. To approve TerraformPlan {plan.name}: {approve_command(namespace, plan.name)}"
    )
    affected = ", ".join(plan.summary.resources or ())
    return f"{text}. Affected: {affected}" if affected else text
