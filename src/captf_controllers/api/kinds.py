"""The kinds that CAPTF owns and the Cluster API kinds that it reads."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from captf_runtime.objects import Kind

GROUP: Final = "infrastructure.cluster.x-k8s.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

TERRAFORM_CLUSTER: Final = Kind(GROUP, VERSION, "TerraformCluster", "terraformclusters")
TERRAFORM_MACHINE: Final = Kind(GROUP, VERSION, "TerraformMachine", "terraformmachines")
TERRAFORM_MACHINE_POOL: Final = Kind(GROUP, VERSION, "TerraformMachinePool", "terraformmachinepools")
TERRAFORM_CLUSTER_TEMPLATE: Final = Kind(
    GROUP, VERSION, "TerraformClusterTemplate", "terraformclustertemplates"
)
TERRAFORM_MACHINE_TEMPLATE: Final = Kind(
    GROUP, VERSION, "TerraformMachineTemplate", "terraformmachinetemplates"
)
TERRAFORM_MACHINE_POOL_TEMPLATE: Final = Kind(
    GROUP, VERSION, "TerraformMachinePoolTemplate", "terraformmachinepooltemplates"
)
TERRAFORM_CLUSTER_IDENTITY: Final = Kind(
    GROUP, VERSION, "TerraformClusterIdentity", "terraformclusteridentities", namespaced=False
)
TERRAFORM_PLAN: Final = Kind(GROUP, VERSION, "TerraformPlan", "terraformplans")

WORKLOAD_KINDS: Final = (TERRAFORM_CLUSTER, TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL)
"""The kinds that run Jobs and keep a state."""

ALL_KINDS: Final = (
    *WORKLOAD_KINDS,
    TERRAFORM_CLUSTER_TEMPLATE,
    TERRAFORM_MACHINE_TEMPLATE,
    TERRAFORM_MACHINE_POOL_TEMPLATE,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_PLAN,
)

MUTABLE_KINDS: Final = frozenset({"TerraformCluster", "TerraformMachinePool"})
"""Names of the workload kinds of which a changed spec is applied again; a TerraformMachine is not one."""

CAPI_GROUP: Final = "cluster.x-k8s.io"
CAPI_VERSION: Final = "v1beta2"
CLUSTER: Final = Kind(CAPI_GROUP, CAPI_VERSION, "Cluster", "clusters")
MACHINE: Final = Kind(CAPI_GROUP, CAPI_VERSION, "Machine", "machines")
MACHINE_POOL: Final = Kind(CAPI_GROUP, CAPI_VERSION, "MachinePool", "machinepools")

OWNER_KINDS: Final = MappingProxyType(
    {"TerraformCluster": CLUSTER, "TerraformMachine": MACHINE, "TerraformMachinePool": MACHINE_POOL}
)
"""The Cluster API kind that owns an object of each workload kind, by the workload kind's name."""

Role: TypeAlias = Literal["cluster", "machine", "machinepool"]
"""What a module stands for in the module contract."""

KindShort: TypeAlias = Literal["c", "m", "mp"]

_SHORT: Final = MappingProxyType[str, KindShort](
    {"TerraformCluster": "c", "TerraformMachine": "m", "TerraformMachinePool": "mp"}
)
_ROLE: Final = MappingProxyType[str, Role](
    {"TerraformCluster": "cluster", "TerraformMachine": "machine", "TerraformMachinePool": "machinepool"}
)


def kind_short(kind: str) -> KindShort:
    """Return the short code of a workload kind, as it enters object names.

    Args:
        kind: name of the kind in CamelCase.

    Raises:
        ValueError: the kind is not one of the three that run Jobs.
    """
    try:
        return _SHORT[kind]
    except KeyError:
        raise ValueError(f"unknown kind {kind!r}: expected one of {', '.join(_SHORT)}") from None


def role_of(kind: str) -> Role:
    """Return the module role of a workload kind.

    Raises:
        ValueError: the kind is not one of the three that run Jobs.
    """
    try:
        return _ROLE[kind]
    except KeyError:
        raise ValueError(f"unknown kind {kind!r}: expected one of {', '.join(_ROLE)}") from None


def workload_kind(name: str) -> Kind:
    """Return the registered kind of a workload kind's name.

    Raises:
        ValueError: the kind is not one of the three that run Jobs.
    """
    for kind in WORKLOAD_KINDS:
        if kind.kind == name:
            return kind
    raise ValueError(f"unknown kind {name!r}: expected one of {', '.join(_SHORT)}")


def is_mutable(kind: str) -> bool:
    """Say whether a changed spec of this workload kind is applied again."""
    return kind in MUTABLE_KINDS
