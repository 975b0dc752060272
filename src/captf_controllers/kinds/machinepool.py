"""TerraformMachinePool: membership, replicas, and the write-back in autoscaling mode."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.kinds import MACHINE_POOL, TERRAFORM_MACHINE_POOL
from captf_controllers.api.machinepool import TerraformMachinePoolSpec, TerraformMachinePoolStatus
from captf_controllers.decide import Schedule
from captf_controllers.deletion.facts import Dependent
from captf_controllers.kinds.narrow import narrow
from captf_controllers.kinds.replicas import write_back
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
from captf_runtime.objects import Object, name_of

#: Reasons of ``AutoscalingActive`` with valid size annotations; a foreign claim stops only the write-back.
_AUTOSCALING = frozenset({reasons.REPLICAS_MANAGED_BY_MODULE, reasons.REPLICAS_MANAGED_EXTERNALLY})


class MachinePoolAdapter:
    """The TerraformMachinePool's part of the shared pass."""

    kind = TERRAFORM_MACHINE_POOL
    spec_type = TerraformMachinePoolSpec
    status_type = TerraformMachinePoolStatus

    def output_facts(self, scope: Scope, *, applied: bool) -> OutputFacts:
        return OutputFacts(applied=applied)

    def publish(self, scope: Scope, outputs: OutputsResult, view: StateView) -> None:
        pool = outputs.pool
        if pool is None or not view.inputs_hash:
            return
        if pool.provider_id and pool.provider_id != narrow(scope.spec, TerraformMachinePoolSpec).provider_id:
            scope.obj["spec"]["providerID"] = pool.provider_id
            scope.spec = msgspec.structs.replace(scope.spec, provider_id=pool.provider_id)
            scope.say("Normal", reasons.EVENT_PROVIDER_ID_SET, f"Set spec.providerID to {pool.provider_id}")
        if (
            pool.provider_id_list is not None
            and pool.provider_id_list != narrow(scope.spec, TerraformMachinePoolSpec).provider_id_list
        ):
            scope.obj["spec"]["providerIDList"] = list(pool.provider_id_list)
            scope.spec = msgspec.structs.replace(scope.spec, provider_id_list=pool.provider_id_list)
        if pool.replicas is not None:
            scope.update(replicas=pool.replicas)
        if pool.instances is not None:
            scope.update(instances=pool.instances or None)

    def provisioned(self, scope: Scope) -> None:
        scope.update(ready=True)

    def health(self, scope: Scope, outputs: OutputsResult) -> Observation:
        return health_observation(outputs.health)

    def sampled(self, scope: Scope, health: Observation) -> None:
        return

    def dependents(self, scope: Scope) -> Sequence[Dependent]:
        return ()

    def schedule(self, scope: Scope, config: EffectiveConfig, books: Books) -> Schedule:
        members = len(narrow(scope.spec, TerraformMachinePoolSpec).provider_id_list or ())
        replicas = narrow(scope.status, TerraformMachinePoolStatus).replicas
        converging = scope.provisioned and replicas is not None and members != replicas
        return base_schedule(scope, config, books, refresh_after_apply=True, converging=converging)

    def after(self, scope: Scope, config: EffectiveConfig) -> None:
        """Write the observed count to the MachinePool while the module scales by itself."""
        pool = scope.owners.owner
        if pool is None:
            return
        try:
            self._write_back(scope, pool)
        except Conflict:
            # Somebody wrote the MachinePool meanwhile: look at it as it is and decide once more.
            self._write_back(scope, scope.client.get(MACHINE_POOL, name_of(pool), scope.namespace))

    def _write_back(self, scope: Scope, pool: Object) -> None:
        active = scope.conditions.get(types.AUTOSCALING_ACTIVE)
        autoscaling = active is not None and active.reason in _AUTOSCALING
        replicas = narrow(scope.status, TerraformMachinePoolStatus).replicas
        patch = write_back(pool, autoscaling=autoscaling, replicas=replicas)
        if patch is None:
            return
        before = (pool.get("spec") or {}).get("replicas")
        scope.client.patch(MACHINE_POOL, name_of(pool), patch, scope.namespace)
        if "spec" in patch:
            note = f"Wrote the observed replicas of MachinePool {name_of(pool)}: {before} → {replicas}"
            report.emit(scope, PendingEvent("Normal", reasons.EVENT_REPLICAS_WRITTEN_BACK, note))
