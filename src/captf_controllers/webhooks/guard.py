"""Whether a TerraformMachine may be deleted: the rule that the delete webhook calls.

Deleting the infrastructure object of a living Machine would skip the drain and the deletion hooks, so it is
refused; the way is to delete the Machine. A ``clusterctl move`` deletes the objects that it copied and is
let through, but only while the Cluster is paused.
"""

from __future__ import annotations

from collections.abc import Iterable

from captf_controllers.api.annotations import DELETE_FOR_MOVE
from captf_controllers.api.kinds import GROUP, MACHINE, TERRAFORM_MACHINE
from captf_controllers.api.references import infrastructure_reference, reference_group
from captf_runtime.objects import Object, annotations_of, is_deleting, name_of


def announces_move(machine: Object) -> bool:
    """The delete says of itself that it belongs to a move. Anybody who may update the object can say so."""
    return DELETE_FOR_MOVE in annotations_of(machine)


def moving(machine: Object, cluster: Object | None) -> bool:
    """The delete belongs to a ``clusterctl move``: annotated, and the machine's Cluster exists and is paused.

    ``cluster`` is the Cluster that the machine's cluster-name label names, None when there is none.
    """
    if not announces_move(machine) or cluster is None:
        return False
    return (cluster.get("spec") or {}).get("paused") is True


def refusal(machine: Object, machines: Iterable[Object]) -> str | None:
    """Why the delete is refused, or None. ``machines`` are the Machines of the namespace.

    Only the infrastructureRef counts; owner references and labels are not consulted, because anybody who
    may write the object may forge them.
    """
    for owner in machines:
        if is_deleting(owner):
            continue
        reference = infrastructure_reference(owner, MACHINE)
        if (
            reference_group(reference) == GROUP
            and reference.get("kind") == TERRAFORM_MACHINE.kind
            and reference.get("name") == name_of(machine)
        ):
            return (
                f"it is the infrastructure of a Machine that is not being deleted; delete the Machine "
                f"{name_of(owner)} instead: deleting this object would skip the node drain and the "
                "deletion hooks"
            )
    return None
