"""TerraformCluster: endpoint, failure domains, exports, and the wait for its machines and pools."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.cluster import (
    MAX_EXPORTS_BYTES,
    Endpoint,
    TerraformClusterSpec,
    TerraformClusterStatus,
)
from captf_controllers.api.kinds import TERRAFORM_CLUSTER
from captf_controllers.api.owner import Owner
from captf_controllers.decide import Schedule
from captf_controllers.deletion import dependents
from captf_controllers.deletion.facts import Dependent
from captf_controllers.inputs.records import read_records
from captf_controllers.kinds.narrow import narrow
from captf_controllers.kinds.schedule import base_schedule
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.outputs import health_observation
from captf_controllers.reconcile.scope import Scope
from captf_controllers.reconcile.state_step import StateView
from captf_controllers.state.outputs import ClusterOutputs, OutputFacts, OutputsResult
from captf_runtime.objects import annotations_of


class ClusterAdapter:
    """The TerraformCluster's part of the shared pass."""

    kind = TERRAFORM_CLUSTER
    spec_type = TerraformClusterSpec
    status_type = TerraformClusterStatus

    def output_facts(self, scope: Scope, *, applied: bool) -> OutputFacts:
        return OutputFacts(applied=applied)

    def publish(self, scope: Scope, outputs: OutputsResult, view: StateView) -> None:
        cluster = outputs.cluster
        if cluster is None:
            return
        if cluster.failure_domains is not None:
            domains = cluster.failure_domains or None
            if domains != narrow(scope.status, TerraformClusterStatus).failure_domains:
                scope.update(failure_domains=domains)
                listed = ", ".join(domain.name for domain in domains or ())
                scope.say(
                    "Normal",
                    reasons.EVENT_FAILURE_DOMAINS_CHANGED,
                    f"Failure domains: {listed}"
                    if listed
                    else "The module offers no failure domains any more",
                )
        self._publish_exports(scope, view, cluster)
        if outputs.contract_kept and view.inputs_hash:
            self._take_endpoint(scope, cluster.endpoint)
        self._show_endpoint(scope, provisioned=scope.provisioned)

    def provisioned(self, scope: Scope) -> None:
        self._show_endpoint(scope, provisioned=True)

    def health(self, scope: Scope, outputs: OutputsResult) -> Observation:
        return health_observation(outputs.health)

    def sampled(self, scope: Scope, health: Observation) -> None:
        return

    def dependents(self, scope: Scope) -> Sequence[Dependent]:
        return dependents.find(scope.client, scope.namespace, scope.lease_owner.cluster_name)

    def schedule(self, scope: Scope, config: EffectiveConfig, books: Books) -> Schedule:
        return base_schedule(scope, config, books)

    def after(self, scope: Scope, config: EffectiveConfig) -> None:
        return

    def _publish_exports(self, scope: Scope, view: StateView, outputs: ClusterOutputs) -> None:
        if not outputs.exports_valid:
            return
        if not outputs.exports_too_large:
            scope.update(exports=outputs.exports)
            return
        published = narrow(scope.status, TerraformClusterStatus).exports is not None
        first = view.new_serial and not scope.provisioned
        if published or first:
            scope.say(
                "Warning",
                reasons.EVENT_EXPORTS_NOT_PUBLISHED,
                f"The exports have {outputs.exports_size} bytes, more than the {MAX_EXPORTS_BYTES} that "
                "status.exports holds; machines and pools receive them all the same",
            )
        scope.update(exports=None)

    def _take_endpoint(self, scope: Scope, endpoint: Endpoint | None) -> None:
        """Write the module's endpoint into the spec, once: when nobody else owns it and none was rendered."""
        present = narrow(scope.spec, TerraformClusterSpec).control_plane_endpoint
        if endpoint is None or (present is not None and present.complete):
            return
        if annotations_of(scope.obj).get(keys.ENDPOINT_SOURCE):
            return
        records = read_records(scope.client, Owner.of(scope.obj))
        rendered = records.applied.tfvars() if records.applied is not None else None
        if rendered is None or rendered.get("control_plane_endpoint") is not None:
            return
        scope.obj["spec"]["controlPlaneEndpoint"] = {"host": endpoint.host, "port": endpoint.port}
        scope.spec = msgspec.structs.replace(scope.spec, control_plane_endpoint=endpoint)
        scope.annotate(keys.ENDPOINT_SOURCE, "module")
        scope.say(
            "Normal",
            reasons.EVENT_CONTROL_PLANE_ENDPOINT_SET,
            f"Set spec.controlPlaneEndpoint to {endpoint.host}:{endpoint.port}, the module's output",
        )

    def _show_endpoint(self, scope: Scope, *, provisioned: bool) -> None:
        if not provisioned:
            return
        own = narrow(scope.spec, TerraformClusterSpec).control_plane_endpoint
        cluster_spec = (scope.owners.cluster or {}).get("spec") or {}
        of_cluster = cluster_spec.get("controlPlaneEndpoint") or {}
        available = (own is not None and own.complete) or bool(
            of_cluster.get("host") and of_cluster.get("port")
        )
        if available:
            seen = Observation(types.ENDPOINT_AVAILABLE, types.TRUE, reasons.ENDPOINT_AVAILABLE)
        else:
            seen = Observation(
                types.ENDPOINT_AVAILABLE,
                types.FALSE,
                reasons.WAITING_FOR_ENDPOINT,
                "No valid endpoint in the TerraformCluster, the Cluster or the module's outputs yet",
            )
        scope.observe(seen)
