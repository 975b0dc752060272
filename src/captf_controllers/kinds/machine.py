"""TerraformMachine: provider ID, addresses, health samples, and the request to replace its Machine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.kinds import MACHINE, TERRAFORM_MACHINE
from captf_controllers.api.machine import TerraformMachineSpec, TerraformMachineStatus
from captf_controllers.decide import Schedule
from captf_controllers.deletion.facts import Dependent
from captf_controllers.kinds import remediation
from captf_controllers.kinds.narrow import narrow
from captf_controllers.kinds.schedule import base_schedule
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile import report
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.outputs import health_observation
from captf_controllers.reconcile.scope import PendingEvent, Scope
from captf_controllers.reconcile.state_step import StateView
from captf_controllers.state.outputs import OutputFacts, OutputsResult
from captf_runtime.client.errors import Conflict
from captf_runtime.objects import Object, name_of, resource_version_of

_COUNTED = frozenset({reasons.INSTANCE_UNHEALTHY, reasons.INSTANCE_DEGRADED, reasons.INSTANCE_STOPPED})


class MachineAdapter:
    """The TerraformMachine's part of the shared pass."""

    kind = TERRAFORM_MACHINE
    spec_type = TerraformMachineSpec
    status_type = TerraformMachineStatus

    def output_facts(self, scope: Scope, *, applied: bool) -> OutputFacts:
        machine = (scope.owners.owner or {}).get("spec") or {}
        return OutputFacts(
            provider_id=narrow(scope.spec, TerraformMachineSpec).provider_id or "",
            failure_domain=str(machine.get("failureDomain") or ""),
            applied=applied,
        )

    def publish(self, scope: Scope, outputs: OutputsResult, view: StateView) -> None:
        machine = outputs.machine
        if machine is None or not view.inputs_hash:
            return
        if machine.addresses is not None:
            scope.update(addresses=machine.addresses or None)
        if machine.failure_domain is not None:
            scope.update(failure_domain=machine.failure_domain or None)
        if machine.interruptible is not None:
            scope.update(interruptible=machine.interruptible)
        if (
            machine.provider_id
            and not narrow(scope.spec, TerraformMachineSpec).provider_id
            and outputs.contract_kept
        ):
            scope.obj["spec"]["providerID"] = machine.provider_id
            scope.spec = msgspec.structs.replace(scope.spec, provider_id=machine.provider_id)
            scope.say(
                "Normal", reasons.EVENT_PROVIDER_ID_SET, f"Set spec.providerID to {machine.provider_id}"
            )

    def provisioned(self, scope: Scope) -> None:
        return

    def health(self, scope: Scope, outputs: OutputsResult) -> Observation:
        """The module's reading; a provider ID that vanished twice in a row means a terminated instance."""
        machine = outputs.machine
        if machine is None or machine.provider_id != "" or not outputs.contract_kept:
            return health_observation(outputs.health)
        type_ = types.INFRASTRUCTURE_HEALTHY
        before = scope.conditions.get(type_)
        missing_before = before is not None and before.reason in {
            reasons.PROVIDER_ID_MISSING,
            reasons.INSTANCE_TERMINATED,
        }
        sampled = (
            scope.status.last_refresh is not None and scope.status.last_refresh != scope.stored_last_refresh
        )
        if missing_before and (
            sampled or (before is not None and before.reason == reasons.INSTANCE_TERMINATED)
        ):
            return Observation(
                type_,
                types.FALSE,
                reasons.INSTANCE_TERMINATED,
                "The module reports no provider ID any more: the instance is gone",
            )
        return Observation(
            type_,
            types.UNKNOWN,
            reasons.PROVIDER_ID_MISSING,
            "The module reports no provider ID; the next sample decides whether the instance is gone",
        )

    def sampled(self, scope: Scope, health: Observation) -> None:
        if health.reason == reasons.HEALTHY:
            scope.update(unhealthy_samples=None)
        elif health.reason in _COUNTED:
            scope.update(
                unhealthy_samples=(narrow(scope.status, TerraformMachineStatus).unhealthy_samples or 0) + 1
            )

    def dependents(self, scope: Scope) -> Sequence[Dependent]:
        return ()

    def schedule(self, scope: Scope, config: EffectiveConfig, books: Books) -> Schedule:
        return base_schedule(scope, config, books, refresh_after_apply=True)

    def after(self, scope: Scope, config: EffectiveConfig) -> None:
        """Keep the request to replace the owning Machine in step with the instance's health."""
        machine = scope.owners.owner
        if machine is None:
            return
        try:
            self._remediate(scope, config, machine)
        except Conflict:
            # Somebody wrote the Machine meanwhile: look at it as it is and decide once more.
            live = scope.client.get(MACHINE, name_of(machine), scope.namespace)
            self._remediate(scope, config, live)

    def _remediate(self, scope: Scope, config: EffectiveConfig, machine: Object) -> None:
        action = remediation.decide(
            machine,
            config.remediation,
            reason=scope.conditions.reason(types.INFRASTRUCTURE_HEALTHY),
            unhealthy_samples=narrow(scope.status, TerraformMachineStatus).unhealthy_samples or 0,
        )
        if action is None:
            return
        patch = remediation.patch_of(action, resource_version_of(machine))
        scope.client.patch(MACHINE, name_of(machine), patch, scope.namespace)
        if isinstance(action, remediation.Request):
            scope.env.metrics.remediation("requested")
            note = f"Asked for Machine {name_of(machine)} to be replaced: {action.why}"
            report.emit(scope, PendingEvent("Warning", reasons.EVENT_REMEDIATION_REQUESTED, note))
        else:
            scope.env.metrics.remediation("withdrawn")
            note = f"Withdrew the request to replace Machine {name_of(machine)}: the instance is healthy"
            report.emit(scope, PendingEvent("Normal", reasons.EVENT_REMEDIATION_WITHDRAWN, note))
