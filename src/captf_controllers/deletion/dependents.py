"""A TerraformCluster goes last: the wait for its machines and pools."""

from __future__ import annotations

from collections.abc import Sequence

from captf_controllers.api.kinds import TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL
from captf_controllers.api.labels import CLUSTER_NAME
from captf_controllers.api.names import label_value
from captf_controllers.deletion.facts import Dependent
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import name_of

NAMES_SHOWN = 3


def find(client: Verbs, namespace: str, cluster_name: str) -> tuple[Dependent, ...]:
    """Every machine and pool of the cluster, live and whatever their watch filter; deleting ones count.

    Without a cluster name nothing is found: nothing then says what belongs together.
    """
    if not cluster_name:
        return ()
    selector = f"{CLUSTER_NAME}={label_value(cluster_name)}"
    return tuple(
        Dependent(kind.kind, name_of(item))
        for kind in (TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL)
        for item in client.list(kind, namespace, label_selector=selector, metadata_only=True)
    )


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
