"""A TerraformPlan as the pass sees it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from captf_controllers.api import labels
from captf_controllers.api.plan import (
    TERMINAL_PHASES,
    PlanPhase,
    PlanReason,
    PlanSummary,
    TerraformPlanSpec,
    counts_text,
)
from captf_controllers.api.typed import ObjectShapeError, spec_of
from captf_runtime.objects import (
    Object,
    controller_of,
    creation_timestamp_of,
    labels_of,
    name_of,
    resource_version_of,
    uid_of,
)

KEPT_TERMINAL = 10
"""Plans that have ended and are kept for each target."""

_PHASES: tuple[PlanPhase, ...] = ("Pending", "Approved", "Applied", "Superseded", "Failed")
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class PlanView:
    """One plan of the object.

    ``phase`` is the effective one: a terminal label wins, because status does not survive a move; a live
    plan is what its approval says. ``recorded`` is the phase that the label shows, ``shown`` that of the status.
    """

    name: str
    uid: str
    resource_version: str
    created: datetime
    phase: PlanPhase
    recorded: str
    shown: str
    reason: PlanReason
    plan_hash: str
    inputs_hash: str
    approved: bool
    approved_by: str
    summary: PlanSummary

    @property
    def live(self) -> bool:
        return self.phase not in TERMINAL_PHASES

    def moved_to(self, phase: PlanPhase) -> PlanView:
        """The same plan in another phase, told everywhere."""
        return replace(self, phase=phase, recorded=phase, shown=phase)


def view_plan(obj: Object) -> PlanView | None:
    """Read a plan; None for one whose shape is not a plan's."""
    try:
        spec = spec_of(obj, TerraformPlanSpec)
    except ObjectShapeError:
        return None
    recorded = labels_of(obj).get(labels.PLAN_PHASE, "")
    phase: PlanPhase = "Approved" if spec.approved else "Pending"
    if recorded in TERMINAL_PHASES:
        phase = next(known for known in _PHASES if known == recorded)
    return PlanView(
        name=name_of(obj),
        uid=uid_of(obj),
        resource_version=resource_version_of(obj),
        created=creation_timestamp_of(obj) or _EPOCH,
        phase=phase,
        recorded=recorded,
        shown=_shown(obj),
        reason=spec.reason,
        plan_hash=spec.plan_hash,
        inputs_hash=spec.inputs_hash,
        approved=bool(spec.approved),
        approved_by=spec.approved_by or "",
        summary=spec.summary,
    )


def _shown(obj: Object) -> str:
    status = obj.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    return phase if isinstance(phase, str) else ""


def plans_of(objects: Iterable[Object], uid: str) -> list[PlanView]:
    """The plans that the object with this UID controls, newest first.

    A plan of an earlier object of the same name, or one that a tenant wrote by hand without that reference,
    approves nothing.
    """
    found = []
    for obj in objects:
        owner = controller_of(obj)
        view = view_plan(obj) if owner is not None and owner.uid == uid else None
        if view is not None:
            found.append(view)
    return newest_first(found)


def newest_first(plans: Iterable[PlanView]) -> list[PlanView]:
    """Newest first; equal times by name."""
    return sorted(plans, key=lambda plan: (plan.created, plan.name), reverse=True)


def live_plan(plans: Sequence[PlanView]) -> PlanView | None:
    """The live plan: the newest one, should there be several."""
    return next((plan for plan in plans if plan.live), None)


def surplus(plans: Sequence[PlanView]) -> list[PlanView]:
    """The ended plans beyond those kept, ``plans`` being newest first."""
    return [plan for plan in plans if not plan.live][KEPT_TERMINAL:]


def counts(summary: PlanSummary) -> str:
    """The counts of a plan: the four that matter always, the others when there are any."""
    return counts_text(
        create=summary.create,
        update=summary.update,
        replace=summary.replace,
        delete=summary.delete,
        imported=summary.import_,
        move=summary.move,
        forget=summary.forget,
        output_changes=summary.output_changes,
    )


def approve_own_command(namespace: str, name: str) -> str:
    """The command that approves a plan as whoever runs it, for a shell; too long for a message."""
    whoami = "$(kubectl auth whoami -o jsonpath='{.status.userInfo.username}')"
    return (
        f"kubectl patch terraformplan -n {namespace} {name} --type merge "
        rf'''-p "{{\"spec\":{{\"approved\":true,\"approvedBy\":\"{whoami}\"}}}}"'''
    )


def approve_command(namespace: str, name: str) -> str:
    """The command that approves a plan, with the approver's own user name to fill in."""
    return (
        f"kubectl patch terraformplan -n {namespace} {name} --type merge "
        """-p '{"spec":{"approved":true,"approvedBy":"<your user name>"}}'"""
    )
