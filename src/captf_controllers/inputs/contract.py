"""The inputs side of the module contract: what each role's module receives, and from where. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import labels, reasons
from captf_controllers.api.canonical import Json
from captf_controllers.api.hashes import CONTRACT
from captf_controllers.api.kinds import Role
from captf_controllers.api.owner import Owner
from captf_controllers.observability.observation import Observation
from captf_runtime.objects import annotations_of, labels_of, name_of, namespace_of


@dataclass(frozen=True, slots=True)
class InputVariable:
    """A contract input as the root module declares it."""

    type: str
    nullable: bool = False
    sensitive: bool = False


_COMMON: Final[Mapping[str, InputVariable]] = {
    "captf_contract": InputVariable("string"),
    "captf_cluster": InputVariable("any"),
    "captf_object": InputVariable("any"),
    "captf_tags": InputVariable("map(string)"),
}
_VERSION: Final = InputVariable("string", nullable=True)
_BOOTSTRAP: Final[Mapping[str, InputVariable]] = {
    "bootstrap_data": InputVariable("string", sensitive=True),
    "bootstrap_format": InputVariable("string"),
}

CONTRACT_INPUTS: Final[Mapping[Role, Mapping[str, InputVariable]]] = MappingProxyType(
    {
        "cluster": {
            **_COMMON,
            "control_plane_endpoint": InputVariable("object({host=string, port=number})", nullable=True),
            "kubernetes_version": _VERSION,
            "control_plane_initialized": InputVariable("bool"),
            "cluster_network": InputVariable(
                "object({pods=list(string), services=list(string), service_domain=string, "
                "api_server_port=number})",
                nullable=True,
            ),
        },
        "machine": {
            **_COMMON,
            "captf_cluster_outputs": InputVariable("any"),
            "machine_name": InputVariable("string"),
            **_BOOTSTRAP,
            "failure_domain": InputVariable("string", nullable=True),
            "kubernetes_version": _VERSION,
            "control_plane": InputVariable("bool"),
        },
        "machinepool": {
            **_COMMON,
            "captf_cluster_outputs": InputVariable("any"),
            "machinepool_name": InputVariable("string"),
            "replicas": InputVariable("number"),
            **_BOOTSTRAP,
            "failure_domains": InputVariable("list(string)"),
            "cluster_failure_domains": InputVariable("list(string)"),
            "kubernetes_version": _VERSION,
            "node_labels": InputVariable("map(string)"),
            "autoscaling": InputVariable("object({enabled=bool, min=number, max=number})"),
        },
    }
)
"""Contract inputs by role, in the order in which they are declared."""

CONTRACT_OUTPUTS: Final[Mapping[Role, tuple[str, ...]]] = MappingProxyType(
    {
        "cluster": ("control_plane_endpoint", "failure_domains", "exports", "health"),
        "machine": ("provider_id", "addresses", "failure_domain", "interruptible", "health"),
        "machinepool": ("provider_id", "provider_id_list", "replicas", "instances", "health"),
    }
)
"""Outputs that a module of each role declares."""

DEFAULT_BOOTSTRAP_FORMAT: Final = "cloud-config"
MAX_INT32: Final = 2**31 - 1


def common_inputs(owner: Owner, obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Json]:
    """Return the inputs that every role receives.

    Args:
        owner: identity of the object.
        obj: the object.
        cluster: the owning Cluster.
    """
    template = annotations_of(obj).get(keys.CLONED_FROM_NAME, "")
    return {
        "captf_contract": CONTRACT,
        "captf_cluster": {"name": name_of(cluster), "namespace": namespace_of(cluster)},
        "captf_object": {"kind": owner.kind, "name": owner.name, "namespace": owner.namespace},
        "captf_tags": dict(
            sorted(
                {
                    "captf.io/cluster": name_of(cluster),
                    "captf.io/namespace": owner.namespace,
                    "captf.io/kind": owner.kind,
                    "captf.io/name": owner.name,
                    "captf.io/managed-by": "captf",
                    "captf.io/template": template,
                }.items()
            )
        ),
    }


# Reading objects -----------------------------------------------------------------------------------


def at(obj: Mapping[str, Any], *path: str) -> Any:
    """Return the value at a path of an object, None when any part of the path is absent."""
    found: Any = obj
    for part in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def text_at(obj: Mapping[str, Any], *path: str) -> str | None:
    """Return the non-empty string at a path, None when there is none."""
    found = at(obj, *path)
    return found if isinstance(found, str) and found else None


def strings_at(obj: Mapping[str, Any], *path: str) -> list[str]:
    """Return the list of strings at a path, empty when there is none."""
    found = at(obj, *path)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def integer_at(obj: Mapping[str, Any], *path: str) -> int | None:
    """Return the integer at a path, None when there is none."""
    found = at(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


# Cluster -------------------------------------------------------------------------------------------


def cluster_inputs(
    owner: Owner,
    obj: Mapping[str, Any],
    cluster: Mapping[str, Any],
    *,
    endpoint: Json,
    was_initialized: bool,
) -> dict[str, Json]:
    """Return the inputs of a cluster module.

    Args:
        owner: identity of the object.
        obj: the TerraformCluster.
        cluster: the owning Cluster.
        endpoint: the endpoint input, decided by `endpoint_input`.
        was_initialized: whether an earlier apply rendered `control_plane_initialized` true; it then stays
            true, because status does not survive a move and the module would destroy what it gates.
    """
    initialized = at(cluster, "status", "initialization", "controlPlaneInitialized") is True
    return {
        **common_inputs(owner, obj, cluster),
        "control_plane_endpoint": endpoint,
        "kubernetes_version": text_at(cluster, "spec", "topology", "version"),
        "control_plane_initialized": initialized or was_initialized,
        "cluster_network": cluster_network(cluster),
    }


def cluster_network(cluster: Mapping[str, Any]) -> Json:
    """Return the input `cluster_network`: null when the Cluster sets none of its four parts."""
    network = ("spec", "clusterNetwork")
    pods = strings_at(cluster, *network, "pods", "cidrBlocks")
    services = strings_at(cluster, *network, "services", "cidrBlocks")
    domain = text_at(cluster, *network, "serviceDomain")
    port = integer_at(cluster, *network, "apiServerPort") or None
    if not pods and not services and domain is None and port is None:
        return None
    return {"pods": pods, "services": services, "service_domain": domain, "api_server_port": port}


@dataclass(frozen=True, slots=True)
class EndpointInput:
    """Where the endpoint of a cluster comes from.

    Args:
        value: the input, None for null.
        record: what becomes of the annotation `captf.io/endpoint-source`: "user" to write it, "remove" to
            take it off, "" to leave it.
    """

    value: Json
    record: str = ""


def valid_endpoint(found: Any) -> dict[str, Json] | None:
    """Return the endpoint when it has a host and a port, else None."""
    if not isinstance(found, Mapping):
        return None
    host, port = found.get("host"), found.get("port")
    if (
        not isinstance(host, str)
        or not host
        or not isinstance(port, int)
        or isinstance(port, bool)
        or not port
    ):
        return None
    return {"host": host, "port": port}


def endpoint_input(obj: Mapping[str, Any], cluster: Mapping[str, Any], *, recorded: bool) -> EndpointInput:
    """Decide the endpoint input of a cluster module.

    An endpoint that the module made stays out of its inputs for ever, also after Cluster API copied it to
    the Cluster: otherwise the module would be told that somebody else owns what it owns.

    Args:
        obj: the TerraformCluster.
        cluster: the owning Cluster.
        recorded: whether the object has an inputs record, so that an apply was made before.
    """
    source = annotations_of(obj).get(keys.ENDPOINT_SOURCE, "")
    if source == "module":
        return EndpointInput(None)
    value = valid_endpoint(at(cluster, "spec", "controlPlaneEndpoint")) or valid_endpoint(
        at(obj, "spec", "controlPlaneEndpoint")
    )
    if not recorded and value is not None and not source:
        return EndpointInput(value, "user")
    if not recorded and value is None and source == "user":
        return EndpointInput(None, "remove")
    return EndpointInput(value)


# Machine and pool ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Bootstrap data as the module receives it."""

    data: str = field(repr=False)
    format: str


def bootstrap_of(secret: Mapping[str, Any]) -> Bootstrap | None:
    """Return the bootstrap data of a Secret, None while its key `value` is empty.

    The data is passed on as base64 of the raw bytes, whatever the provider.
    """
    encoded = at(secret, "data", "value")
    if not isinstance(encoded, str) or not encoded:
        return None
    raw = base64.b64decode(encoded)
    if not raw:
        return None
    declared = at(secret, "data", "format")
    text = base64.b64decode(declared).decode("utf-8", "replace") if isinstance(declared, str) else ""
    return Bootstrap(base64.b64encode(raw).decode(), text or DEFAULT_BOOTSTRAP_FORMAT)


def machine_inputs(
    owner: Owner,
    obj: Mapping[str, Any],
    cluster: Mapping[str, Any],
    machine: Mapping[str, Any],
    *,
    exports: Json,
    bootstrap: Bootstrap,
) -> dict[str, Json]:
    """Return the inputs of a machine module.

    Args:
        owner: identity of the object.
        obj: the TerraformMachine.
        cluster: the Cluster of the machine.
        machine: the owning Machine.
        exports: the cluster's exports.
        bootstrap: the bootstrap data.
    """
    return {
        **common_inputs(owner, obj, cluster),
        "captf_cluster_outputs": exports,
        "machine_name": name_of(machine),
        "bootstrap_data": bootstrap.data,
        "bootstrap_format": bootstrap.format,
        "failure_domain": text_at(machine, "spec", "failureDomain"),
        "kubernetes_version": text_at(machine, "spec", "version"),
        "control_plane": labels.CONTROL_PLANE in labels_of(machine),
    }


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """What the size annotations of a MachinePool say."""

    enabled: bool
    min: int
    max: int
    observation: Observation

    def to_input(self) -> dict[str, Json]:
        """Return the input `autoscaling`."""
        return {"enabled": self.enabled, "min": self.min, "max": self.max}


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


def autoscaling_of(pool: Mapping[str, Any]) -> Autoscaling:
    """Read the size annotations of a MachinePool.

    A broken pair switches autoscaling off and says so; it never stops the pool.
    """
    notes = annotations_of(pool)
    low, high = notes.get(keys.AUTOSCALER_MIN_SIZE), notes.get(keys.AUTOSCALER_MAX_SIZE)
    if low is None and high is None:
        return _no_autoscaling(
            reasons.AUTOSCALING_DISABLED, "The MachinePool has no autoscaler size annotations"
        )
    for name, other in (
        (keys.AUTOSCALER_MIN_SIZE, keys.AUTOSCALER_MAX_SIZE),
        (keys.AUTOSCALER_MAX_SIZE, keys.AUTOSCALER_MIN_SIZE),
    ):
        if name not in notes:
            return _no_autoscaling(
                reasons.AUTOSCALING_ANNOTATIONS_INVALID,
                f"Annotation {name} of the MachinePool is missing, while {other} is set",
            )
    sizes: list[int] = []
    for name in (keys.AUTOSCALER_MIN_SIZE, keys.AUTOSCALER_MAX_SIZE):
        size = _size(notes[name])
        if size is None:
            return _no_autoscaling(
                reasons.AUTOSCALING_ANNOTATIONS_INVALID,
                f"Annotation {name} of the MachinePool is not a whole number from 0 to {MAX_INT32}",
            )
        sizes.append(size)
    if sizes[0] > sizes[1]:
        return _no_autoscaling(
            reasons.AUTOSCALING_ANNOTATIONS_INVALID,
            f"Annotation {keys.AUTOSCALER_MIN_SIZE} of the MachinePool ({sizes[0]}) is above "
            f"{keys.AUTOSCALER_MAX_SIZE} ({sizes[1]})",
        )
    manager = notes.get(keys.REPLICAS_MANAGED_BY)
    if manager is not None and manager != keys.REPLICAS_MANAGED_BY_CAPTF:
        shown = f"{manager[:64]}…" if len(manager) > 64 else manager
        observation = Observation(
            types.AUTOSCALING_ACTIVE,
            types.FALSE,
            reasons.REPLICAS_MANAGED_EXTERNALLY,
            f'Annotation {keys.REPLICAS_MANAGED_BY} of the MachinePool names "{shown}"; the observed '
            "replicas are not written back",
        )
    else:
        observation = Observation(
            types.AUTOSCALING_ACTIVE,
            types.TRUE,
            reasons.REPLICAS_MANAGED_BY_MODULE,
            f"The module scales between {sizes[0]} and {sizes[1]} replicas",
        )
    return Autoscaling(True, sizes[0], sizes[1], observation)


def _no_autoscaling(reason: str, message: str) -> Autoscaling:
    return Autoscaling(False, 0, 0, Observation(types.AUTOSCALING_ACTIVE, types.FALSE, reason, message))


def _size(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    size = int(text)
    return size if 0 <= size <= MAX_INT32 else None


def pool_replicas(obj: Mapping[str, Any], pool: Mapping[str, Any], autoscaling: Autoscaling) -> int:
    """Return the input `replicas`.

    With autoscaling the observed number is passed on, clamped to the limits, so that an apply for another
    reason does not undo what the provider scaled.
    """
    wanted = integer_at(pool, "spec", "replicas")
    if not autoscaling.enabled:
        return 1 if wanted is None else wanted
    observed = integer_at(obj, "status", "replicas")
    replicas = observed if observed is not None else (1 if wanted is None else wanted)
    return max(autoscaling.min, min(autoscaling.max, replicas))


def pool_inputs(
    owner: Owner,
    obj: Mapping[str, Any],
    cluster: Mapping[str, Any],
    pool: Mapping[str, Any],
    *,
    exports: Json,
    cluster_domains: Sequence[str],
    bootstrap: Bootstrap,
    autoscaling: Autoscaling,
) -> dict[str, Json]:
    """Return the inputs of a pool module.

    Args:
        owner: identity of the object.
        obj: the TerraformMachinePool.
        cluster: the Cluster of the pool.
        pool: the owning MachinePool.
        exports: the cluster's exports, or those that were applied last.
        cluster_domains: names of the cluster's failure domains.
        bootstrap: the bootstrap data.
        autoscaling: what the size annotations say.
    """
    node_labels = at(pool, "spec", "template", "metadata", "labels")
    return {
        **common_inputs(owner, obj, cluster),
        "captf_cluster_outputs": exports,
        "machinepool_name": name_of(pool),
        "replicas": pool_replicas(obj, pool, autoscaling),
        "bootstrap_data": bootstrap.data,
        "bootstrap_format": bootstrap.format,
        "failure_domains": strings_at(pool, "spec", "failureDomains"),
        "cluster_failure_domains": sorted(cluster_domains),
        "kubernetes_version": text_at(pool, "spec", "template", "spec", "version"),
        "node_labels": {
            key: value
            for key, value in sorted(node_labels.items() if isinstance(node_labels, Mapping) else ())
            if isinstance(value, str)
        },
        "autoscaling": autoscaling.to_input(),
    }
