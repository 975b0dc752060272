"""A TerraformCluster goes last: the wait for its machines and pools."""

from __future__ import annotations

from collections.abc import Sequence

from captf_controllers.api.kinds import TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL
from captf_controllers.deletion.facts import Dependent

NAMES_SHOWN = 3


def message(dependents: Sequence[Dependent], cluster_name: str) -> str:
    """What ``DeletionBlocked`` says. The order of the list never changes the text."""
    groups: list[str] = []
    for kind in (TERRAFORM_MACHINE.kind, TERRAFORM_MACHINE_POOL.kind):
        names = sorted(dependent.name for dependent in dependents if dependent.kind == kind)
        if not names:
            continue
        shown = ", ".join(names[:NAMES_SHOWN])
        if len(names) > NAMES_SHOWN:
            shown += f" and {len(names) - NAMES_SHOWN} more"
        groups.append(f"{len(names)} {kind} ({shown})")
    return (
        f"{' and '.join(groups)} of Cluster {cluster_name} must go first; they go when their Machine or "
        "MachinePool is deleted"
    )
