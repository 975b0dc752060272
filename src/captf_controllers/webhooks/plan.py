"""The rules of TerraformPlan: who may create one, approve one, end one. Pure."""

from __future__ import annotations

from captf_controllers.api.labels import PLAN_PHASE
from captf_controllers.api.plan import TERMINAL_PHASES
from captf_controllers.webhooks.policy import forbidden, required
from captf_runtime.objects import Object, labels_of
from captf_runtime.webhook import Violation

IMMUTABLE = ("targetRef", "planHash", "inputsHash", "reason", "summary")
PHASE_PATH = f"metadata.labels[{PLAN_PHASE}]"
LIVE = frozenset({"", "Pending", "Approved"})


def check_plan(new: Object, old: Object | None, *, requester: str, by_manager: bool) -> list[Violation]:
    """Every violation of a create or update by ``requester``."""
    spec = new.get("spec") or {}
    approved, approver = spec.get("approved") is True, spec.get("approvedBy") or ""
    found: list[Violation] = []
    if approved and not approver:
        found.append(required("spec.approvedBy", "put your own user name there to approve"))
    if approver and not approved:
        found.append(forbidden("spec.approvedBy", "is set exactly when approved is true"))
    if old is None:
        return found + _check_create(new, approved, approver, requester=requester, by_manager=by_manager)
    return found + _check_update(new, old, approved, approver, requester=requester, by_manager=by_manager)


def _check_create(
    new: Object, approved: bool, approver: str, *, requester: str, by_manager: bool
) -> list[Violation]:
    phase = labels_of(new).get(PLAN_PHASE, "")
    if by_manager or phase in TERMINAL_PHASES:
        return []
    if approved:
        if phase not in LIVE:
            return [forbidden(PHASE_PATH, "is the manager's to set")]
        if approver != requester:
            return [forbidden("spec.approvedBy", "must be the user name that creates an approved plan")]
        return []
    return [] if phase in ("", "Pending") else [forbidden(PHASE_PATH, "is the manager's to set")]


def _check_update(
    new: Object, old: Object, approved: bool, approver: str, *, requester: str, by_manager: bool
) -> list[Violation]:
    now, before = new.get("spec") or {}, old.get("spec") or {}
    found = [
        forbidden(f"spec.{name}", "is immutable") for name in IMMUTABLE if now.get(name) != before.get(name)
    ]
    stored_phase, phase = labels_of(old).get(PLAN_PHASE, ""), labels_of(new).get(PLAN_PHASE, "")
    if before.get("approved") is True:
        if not approved or approver != (before.get("approvedBy") or ""):
            found.append(forbidden("spec.approved", "an approval is neither withdrawn nor changed"))
    elif approved:
        if stored_phase in TERMINAL_PHASES:
            found.append(forbidden("spec.approved", f"the plan is {stored_phase} and cannot be approved"))
        if approver and approver != requester:
            found.append(forbidden("spec.approvedBy", "must be your own user name"))
    if stored_phase != phase and not by_manager:
        found.append(forbidden(PHASE_PATH, "is the manager's to set"))
    return found
