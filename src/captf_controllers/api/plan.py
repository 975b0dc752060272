"""Spec and status of a TerraformPlan."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from .schema import Wire, doc, integer, items, text
from .workspace import Condition

PlanTargetKind: TypeAlias = Literal["TerraformCluster", "TerraformMachinePool"]
PlanReason: TypeAlias = Literal["Manual", "Destructive", "ExportsChange"]
PlanPhase: TypeAlias = Literal["Pending", "Approved", "Applied", "Superseded", "Failed"]

TERMINAL_PHASES: frozenset[str] = frozenset({"Applied", "Superseded", "Failed"})


class PlanTarget(Wire, frozen=True):
    """The object that the plan is for."""

    kind: Annotated[PlanTargetKind, doc("Kind of the object.")]
    name: Annotated[str, text("Name of the object.", 1, 253)]


class PlanSummary(Wire, frozen=True):
    """What the plan would change."""

    create: Annotated[int | None, integer("Resources to create.", 0)] = None
    update: Annotated[int | None, integer("Resources to update.", 0)] = None
    replace: Annotated[int | None, integer("Resources to replace.", 0)] = None
    delete: Annotated[int | None, integer("Resources to delete.", 0)] = None
    import_: Annotated[int | None, integer("Resources to import.", 0)] = None
    move: Annotated[int | None, integer("Resources to move.", 0)] = None
    forget: Annotated[int | None, integer("Resources to forget.", 0)] = None
    output_changes: Annotated[int | None, integer("Outputs that change.", 0)] = None
    resources: Annotated[
        tuple[Annotated[str, text("Address and what happens to it.", 1, 600)], ...] | None,
        items("Changed resources as <address> (<labels>), sorted by address.", None, 50),
    ] = None
    truncated: Annotated[bool | None, doc("Whether resources are left out.")] = None


def counts_text(
    *,
    create: int | None,
    update: int | None,
    replace: int | None,
    delete: int | None,
    imported: int | None,
    move: int | None,
    forget: int | None,
    output_changes: int | None,
) -> str:
    """The counts of a plan for people: the four that matter always, the others when there are any."""
    text = f"{create or 0} to create, {update or 0} to update, {replace or 0} to replace, {delete or 0} to delete"
    for count, what in (
        (imported, "to import"),
        (move, "to move"),
        (forget, "to forget"),
        (output_changes, "outputs to change"),
    ):
        if count:
            text += f", {count} {what}"
    return text


class TerraformPlanSpec(Wire, frozen=True):
    """A plan, and whether someone approved it."""

    target_ref: Annotated[PlanTarget, doc("The object that the plan is for.")]
    plan_hash: Annotated[str, text("Hash of the planned changes.", 1, 128)]
    inputs_hash: Annotated[str, text("Hash of the inputs that were planned.", 1, 128)]
    reason: Annotated[PlanReason, doc("Why an approval is needed.")]
    summary: Annotated[PlanSummary, doc("What the plan would change.", minProperties=1)]
    approved: Annotated[bool | None, doc("Set to true to approve the plan; permanent.")] = None
    approved_by: Annotated[
        str | None, text("User name of the one who approves; must be the requester's own.", 1, 512)
    ] = None


class TerraformPlanStatus(Wire, frozen=True):
    """How far a plan has come."""

    conditions: Annotated[
        tuple[Condition, ...] | None, items("What is observed of the plan.", None, 32, keys=("type",))
    ] = None
    phase: Annotated[PlanPhase | None, doc("How far the plan has come.")] = None
    observed_generation: Annotated[
        int | None, integer("Generation of the spec that was looked at.", 1, bits=64)
    ] = None
