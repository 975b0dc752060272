"""The finalizers of the workload kinds."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

CLUSTER: Final = "terraformcluster.infrastructure.cluster.x-k8s.io"
MACHINE: Final = "terraformmachine.infrastructure.cluster.x-k8s.io"
MACHINE_POOL: Final = "terraformmachinepool.infrastructure.cluster.x-k8s.io"

FOREGROUND_DELETION: Final = "foregroundDeletion"
"""Kubernetes' own; CAPTF takes it off so that dependents are not collected before the destroy."""

_BY_KIND: Final = MappingProxyType(
    {"TerraformCluster": CLUSTER, "TerraformMachine": MACHINE, "TerraformMachinePool": MACHINE_POOL}
)


def finalizer_of(kind: str) -> str:
    """Return CAPTF's finalizer for a workload kind.

    Raises:
        ValueError: the kind is not one of the three that run Jobs; no other kind has a finalizer.
    """
    try:
        return _BY_KIND[kind]
    except KeyError:
        raise ValueError(f"unknown kind {kind!r}: expected one of {', '.join(_BY_KIND)}") from None
