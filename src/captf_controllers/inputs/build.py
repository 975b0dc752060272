"""Building an object's current inputs: the gates in their order, then contract, variables, files and hash.

Everything is read live, and read in the order of the gates, so that an object that waits for its cluster
costs one or two requests and not ten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from captf_controllers.api import conditions as types
from captf_controllers.api import labels, reasons
from captf_controllers.api.canonical import Json
from captf_controllers.api.hashes import approval_hash, exports_hash, inputs_hash
from captf_controllers.api.kinds import OWNER_KINDS, Role
from captf_controllers.api.owner import Owner
from captf_controllers.api.workspace import WorkspaceSpec
from captf_controllers.observability.observation import Observation
from captf_controllers.state.cache import StateCache
from captf_runtime.client.errors import NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import CONFIG_MAP, SECRET, Object, labels_of, name_of, namespace_of

from .contract import (
    Autoscaling,
    Bootstrap,
    at,
    autoscaling_of,
    bootstrap_of,
    cluster_inputs,
    endpoint_input,
    machine_inputs,
    pool_inputs,
    text_at,
)
from .exports import ClusterExports, decide_exports, read_cluster_exports
from .gate import Gate
from .records import Records
from .rendering import Files, render
from .variables import Variables, merge_variables, source_refs

_BOOTSTRAP_PATH: Mapping[str, tuple[str, ...]] = {
    "machine": ("spec", "bootstrap", "dataSecretName"),
    "machinepool": ("spec", "template", "spec", "bootstrap", "dataSecretName"),
}


@dataclass(frozen=True, slots=True)
class InputsRequest:
    """What the inputs of an object are built from.

    Args:
        obj: the object.
        spec: its typed spec.
        cluster: the owning Cluster, None when it was not found.
        owner_object: the owning Machine or MachinePool, None for a cluster or when it was not found.
        terraform_cluster: the TerraformCluster of a machine or pool, None when it does not exist.
        owner_gate: the gate that the owner lookup closed, None when the owners are in order.
        records: the object's inputs records; `Records()` builds as if nothing was ever applied.
        provisioned: `status.initialization.provisioned`.
        approved_hashes: approval hashes that live, approved plans of a pool name.
        planned_hashes: approval hashes that its live plans name, approved or not; None when they are not known.
    """

    obj: Object = field(repr=False)
    spec: WorkspaceSpec = field(repr=False)
    cluster: Object | None = field(repr=False)
    owner_object: Object | None = field(repr=False)
    terraform_cluster: Object | None = field(repr=False)
    owner_gate: Gate | None
    records: Records
    provisioned: bool = False
    approved_hashes: Collection[str] = ()
    planned_hashes: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class InputsResult:
    """Inputs that were built.

    Args:
        role: the module's role.
        image: `spec.source.image` as written.
        inputs: contract inputs by name.
        variables: user variables by name.
        sensitive: names of the sensitive ones.
        hash: the inputs hash of what is rendered.
        approval_hash: what an approval covers; for a pool with the cluster's own exports.
        files: the rendered files.
        exports_hash: hash of the rendered exports, "" for a cluster.
        held_exports: whether a pool renders the recorded exports in place of the cluster's own.
        guarded: whether a pool's apply must stop before a destructive plan.
        endpoint_record: what becomes of `captf.io/endpoint-source`: "user" to write it, "remove" to take
            it off, "" to leave it.
    """

    role: Role
    image: str
    inputs: Mapping[str, Json] = field(repr=False)
    variables: Mapping[str, Json] = field(repr=False)
    sensitive: frozenset[str]
    hash: str
    approval_hash: str
    files: Files
    exports_hash: str = ""
    held_exports: bool = False
    guarded: bool = False
    endpoint_record: str = ""

    @property
    def size(self) -> int:
        """Bytes of the rendered files."""
        return self.files.size


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of this pass, or the gate that keeps them from being built.

    Args:
        result: the inputs, None while a gate is closed.
        gate: the first closed gate, None when the inputs were built.
        autoscaling: what `AutoscalingActive` of a pool says, None when it was not looked at.
    """

    result: InputsResult | None
    gate: Gate | None
    autoscaling: Observation | None = None

    def dependencies(self) -> Observation:
        """Return what `DependenciesReady` says."""
        if self.gate is not None:
            return self.gate.observation()
        return Observation(
            types.DEPENDENCIES_READY, types.TRUE, reasons.DEPENDENCIES_READY, reasons.DEPENDENCIES_READY
        )


@dataclass(frozen=True, slots=True)
class Material:
    """Everything that an object's inputs are made of, read and in order.

    Args:
        bootstrap: bootstrap data of a machine or pool.
        exports: what a machine or pool takes from its cluster.
        variables: merged user variables.
        autoscaling: what the size annotations of a pool's MachinePool say.
    """

    cluster: Object = field(repr=False)
    owner_object: Object | None = field(repr=False)
    variables: Variables
    bootstrap: Bootstrap | None = None
    exports: ClusterExports | None = None
    autoscaling: Autoscaling | None = None


def gather(client: Verbs, request: InputsRequest, cache: StateCache | None = None) -> Inputs:
    """Read what the inputs need and build them, or say which gate is closed.

    Run for a live object only, with no Job active and not held on retained state; for a machine until it
    is provisioned.

    Args:
        client: a live client.
        request: the object and what is known of its owners.
        cache: parsed states.

    Raises:
        ApiError: a read failed other than by absence.
    """
    owner = Owner.of(request.obj)
    autoscaling = (
        autoscaling_of(request.owner_object)
        if owner.role == "machinepool" and request.owner_object is not None
        else None
    )
    observation = autoscaling.observation if autoscaling is not None else None
    material = _read(client, request, owner, cache, autoscaling)
    if isinstance(material, Gate):
        return Inputs(None, material, observation)
    return Inputs(build_inputs(owner, request, material), None, observation)


def _read(
    client: Verbs,
    request: InputsRequest,
    owner: Owner,
    cache: StateCache | None,
    autoscaling: Autoscaling | None,
) -> Material | Gate:
    gate = owner_gate(request, owner)
    if gate is not None:
        return gate
    cluster = request.cluster
    assert cluster is not None  # owner_gate answers a missing Cluster
    bootstrap: Bootstrap | None = None
    exports: ClusterExports | None = None
    if owner.role != "cluster":
        gate = cluster_gate(cluster, request.terraform_cluster)
        if gate is not None:
            return gate
        assert request.terraform_cluster is not None  # cluster_gate answers a missing one
        assert request.owner_object is not None  # so does owner_gate
        read = read_cluster_exports(
            client, request.terraform_cluster, cache, with_domains=owner.role == "machinepool"
        )
        if isinstance(read, Gate):
            return read
        exports = read
        data = _read_bootstrap(client, request.owner_object, owner.role)
        if isinstance(data, Gate):
            return data
        bootstrap = data
    variables = _read_variables(client, request, owner)
    if isinstance(variables, Gate):
        return variables
    return Material(cluster, request.owner_object, variables, bootstrap, exports, autoscaling)


# Gates ---------------------------------------------------------------------------------------------


def owner_gate(request: InputsRequest, owner: Owner) -> Gate | None:
    """Return the gate that the owners close, None when they are in order. Pure."""
    if request.owner_gate is not None:
        return request.owner_gate
    if owner.role != "cluster" and request.owner_object is None:
        kind = OWNER_KINDS[owner.kind].kind
        return Gate(types.FALSE, reasons.OWNER_NOT_FOUND, f"The owning {kind} does not exist")
    if request.cluster is None:
        name = labels_of(request.obj).get(labels.CLUSTER_NAME)
        message = f"Cluster {name} does not exist" if name else f"No label {labels.CLUSTER_NAME} yet"
        return Gate(types.UNKNOWN, reasons.WAITING_FOR_OWNER, message)
    return None


def cluster_gate(cluster: Object, terraform_cluster: Object | None) -> Gate | None:
    """Return the gate of a cluster whose infrastructure is not there yet, None when it is. Pure."""
    if at(cluster, "status", "initialization", "infrastructureProvisioned") is not True:
        return Gate(
            types.UNKNOWN,
            reasons.WAITING_FOR_CLUSTER_INFRASTRUCTURE,
            f"The infrastructure of Cluster {name_of(cluster)} is not provisioned yet",
        )
    if terraform_cluster is None:
        return Gate(
            types.UNKNOWN,
            reasons.WAITING_FOR_CLUSTER_INFRASTRUCTURE,
            f"The TerraformCluster of Cluster {name_of(cluster)} does not exist",
        )
    return None


def _read_bootstrap(client: Verbs, owner_object: Object, role: Role) -> Bootstrap | Gate:
    what = f"{'Machine' if role == 'machine' else 'MachinePool'} {name_of(owner_object)}"
    name = text_at(owner_object, *_BOOTSTRAP_PATH[role])
    if name is None:
        return _bootstrap_gate(f"{what} has no bootstrap data Secret yet")
    try:
        secret = client.get(SECRET, name, namespace_of(owner_object))
    except NotFound:
        return _bootstrap_gate(f"Bootstrap data Secret {name} of {what} does not exist")
    return bootstrap_of(secret) or _bootstrap_gate(
        f"Bootstrap data Secret {name} of {what} has an empty key value"
    )


def _bootstrap_gate(message: str) -> Gate:
    return Gate(types.UNKNOWN, reasons.WAITING_FOR_BOOTSTRAP_DATA, message)


def _read_variables(client: Verbs, request: InputsRequest, owner: Owner) -> Variables | Gate:
    try:
        refs = source_refs(request.spec.variables_from)
    except ValueError as error:
        return Gate(types.FALSE, reasons.VARIABLES_INVALID, str(error))
    found: list[tuple[Any, Object | None]] = []
    for ref in refs:
        kind = SECRET if ref.kind == "Secret" else CONFIG_MAP
        try:
            found.append((ref, client.get(kind, ref.name, owner.namespace)))
        except NotFound:
            found.append((ref, None))
    spec = request.obj.get("spec")
    inline = spec.get("variables", msgspec.UNSET) if isinstance(spec, Mapping) else msgspec.UNSET
    return merge_variables(owner.role, inline, found)


# Building ------------------------------------------------------------------------------------------


def build_inputs(owner: Owner, request: InputsRequest, material: Material) -> InputsResult:
    """Build inputs, hash and files. Pure: equal material gives equal bytes and an equal hash.

    Raises:
        RenderError: the material does not keep the contract, which the gates rule out.
    """
    image = request.spec.source.image
    values, sensitive = material.variables.values, material.variables.sensitive

    def result(inputs: Mapping[str, Json], **more: Any) -> InputsResult:
        digest = inputs_hash(owner.role, image, inputs, values, sensitive)
        return InputsResult(
            role=owner.role,
            image=image,
            inputs=inputs,
            variables=values,
            sensitive=sensitive,
            hash=digest,
            approval_hash=more.pop("approval", digest),
            files=render(owner.role, inputs, values, sensitive),
            **more,
        )

    if owner.role == "cluster":
        endpoint = endpoint_input(request.obj, material.cluster, recorded=request.records.any)
        inputs = cluster_inputs(
            owner,
            request.obj,
            material.cluster,
            endpoint=endpoint.value,
            was_initialized=was_initialized(request.records),
        )
        return result(inputs, endpoint_record=endpoint.record)
    assert material.exports is not None
    assert material.bootstrap is not None
    assert material.owner_object is not None
    exports = material.exports.exports
    if owner.role == "machine":
        inputs = machine_inputs(
            owner,
            request.obj,
            material.cluster,
            material.owner_object,
            exports=exports,
            bootstrap=material.bootstrap,
        )
        return result(inputs, exports_hash=exports_hash(exports))
    assert material.autoscaling is not None
    own = pool_inputs(
        owner,
        request.obj,
        material.cluster,
        material.owner_object,
        exports=exports,
        cluster_domains=material.exports.failure_domains,
        bootstrap=material.bootstrap,
        autoscaling=material.autoscaling,
    )
    approval = approval_hash("machinepool", image, own, values, sensitive)
    decision = decide_exports(
        request.records,
        exports,
        approval_hash=approval,
        ever_applied=(
            request.provisioned or request.records.ever_applied_marker or bool(request.records.any_digest)
        ),
        approved_hashes=request.approved_hashes,
        planned_hashes=request.planned_hashes,
    )
    rendered = {**own, "captf_cluster_outputs": decision.exports}
    return result(
        rendered,
        approval=approval,
        exports_hash=exports_hash(decision.exports),
        held_exports=decision.held,
        guarded=decision.guarded,
    )


def was_initialized(records: Records) -> bool:
    """Say whether an earlier apply of a cluster rendered `control_plane_initialized` true.

    Either record may say so: one that cannot be read, or that was made again, never takes it back.
    """
    return any(
        (record.tfvars() or {}).get("control_plane_initialized") is True
        for record in (records.durable, records.applied)
        if record is not None
    )
