"""Reading, making, settling and pruning TerraformPlans."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from captf_controllers.api import conditions as types
from captf_controllers.api import labels, names
from captf_controllers.api.kinds import API_VERSION, TERRAFORM_PLAN
from captf_controllers.api.owner import Owner
from captf_controllers.api.plan import PlanPhase, PlanTarget, TerraformPlanSpec, TerraformPlanStatus
from captf_controllers.api.typed import to_object
from captf_controllers.approvals.changes import Make
from captf_controllers.approvals.plans import PlanView, plans_of, surplus, view_plan
from captf_controllers.observability.conditions import Conditions
from captf_runtime.client import Reader
from captf_runtime.client.errors import AlreadyExists, Conflict, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import Object, controller_of

TargetKind = Literal["TerraformCluster", "TerraformMachinePool"]

#: What ``Ready`` and ``Approved`` of a plan say, by phase: (ready, approved), each status and reason.
_CONDITIONS: dict[PlanPhase, tuple[tuple[types.Status, str], tuple[types.Status, str]]] = {
    "Pending": ((types.TRUE, "Pending"), (types.FALSE, "Pending")),
    "Approved": ((types.TRUE, "Approved"), (types.TRUE, "Approved")),
    "Applied": ((types.TRUE, "Applied"), (types.TRUE, "Approved")),
    "Failed": ((types.FALSE, "Failed"), (types.TRUE, "Approved")),
    "Superseded": ((types.FALSE, "Superseded"), (types.FALSE, "NotApproved")),
}


@dataclass(frozen=True, slots=True)
class PlanOwner:
    """The object that the plans are for. Only clusters and pools have plans."""

    owner: Owner
    kind: TargetKind
    cluster_name: str


def list_plans(cache: Reader, owner: Owner) -> list[PlanView]:
    """The object's plans from the cache, newest first."""
    return plans_of(cache.list(TERRAFORM_PLAN, owner.namespace), owner.uid)


def make_plan(client: Verbs, target: PlanOwner, made: Make, now: datetime) -> PlanView | None:
    """Create the plan; one that is there already is the same plan, its name being derived from the Job's."""
    spec = TerraformPlanSpec(
        target_ref=PlanTarget(kind=target.kind, name=target.owner.name),
        plan_hash=made.plan_hash,
        inputs_hash=made.inputs_hash,
        reason=made.reason,
        summary=made.summary,
    )
    destructive = bool((made.summary.replace or 0) + (made.summary.delete or 0))
    obj: Object = {
        "apiVersion": API_VERSION,
        "kind": TERRAFORM_PLAN.kind,
        "metadata": {
            "name": made.name,
            "namespace": target.owner.namespace,
            "labels": {
                labels.CLUSTER_NAME: names.label_value(target.cluster_name),
                labels.PLAN_DESTRUCTIVE: "true" if destructive else "false",
                labels.PLAN_PHASE: "Pending",
                labels.PLAN_REASON: made.reason,
            },
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": target.kind,
                    "name": target.owner.name,
                    "uid": target.owner.uid,
                    "controller": True,
                }
            ],
        },
        "spec": to_object(spec),
    }
    try:
        stored = client.create(TERRAFORM_PLAN, obj, target.owner.namespace)
    except AlreadyExists:
        stored = client.get(TERRAFORM_PLAN, made.name, target.owner.namespace)
        controller = controller_of(stored)
        if controller is None or controller.uid != target.owner.uid:
            # Somebody else's, whatever it is called: an approval in it is none of this object's.
            return None
    view = view_plan(stored)
    if view is not None and view.recorded == "Pending":
        _write_status(client, target.owner.namespace, view, "Pending", now)
        return view.moved_to("Pending")
    return view


def settle_plan(client: Verbs, namespace: str, plan: PlanView, phase: PlanPhase, now: datetime) -> bool:
    """Move a plan to ``phase``: the label first, which survives a move, then the status. False when it is gone."""
    patch: Object = {"metadata": {"labels": {labels.PLAN_PHASE: phase}}}
    try:
        client.patch(TERRAFORM_PLAN, plan.name, patch, namespace)
        _write_status(client, namespace, plan, phase, now)
    except NotFound:
        return False
    return True


def show_phase(client: Verbs, namespace: str, plan: PlanView, now: datetime) -> None:
    """Write the status of a plan that does not show its phase."""
    try:
        _write_status(client, namespace, plan, plan.phase, now)
    except NotFound:
        return


def prune_plans(client: Verbs, namespace: str, plans: list[PlanView]) -> None:
    """Delete the ended plans beyond those kept."""
    for plan in surplus(plans):
        try:
            client.delete(TERRAFORM_PLAN, plan.name, namespace, propagation_policy="Background", uid=plan.uid)
        except (NotFound, Conflict):
            continue


def _write_status(client: Verbs, namespace: str, plan: PlanView, phase: PlanPhase, now: datetime) -> None:
    ready, approved = _CONDITIONS[phase]
    if phase == "Superseded" and plan.approved:
        approved = (types.FALSE, "ApprovalIgnored")
    conditions = Conditions().set(types.READY, *ready, now=now).set(types.APPROVED, *approved, now=now)
    status = to_object(TerraformPlanStatus(phase=phase, conditions=conditions.items))
    client.patch(TERRAFORM_PLAN, plan.name, {"status": status}, namespace, subresource="status")
