"""Who owns a Terraform object, and whether that owner is really its owner.

Cluster API writes the owner reference; a machine or pool finds its Cluster by its own cluster-name label and
the TerraformCluster through that Cluster's infrastructureRef. The owner must point back at the object, or a
forged reference could steer somebody else's infrastructure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from captf_controllers.api.kinds import (
    CLUSTER,
    GROUP,
    OWNER_KINDS,
    TERRAFORM_CLUSTER,
)
from captf_controllers.api.labels import CLUSTER_NAME
from captf_controllers.api.references import infrastructure_reference, reference_group
from captf_controllers.observability.observation import Observation
from captf_runtime.client import Reader
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import (
    Kind,
    Object,
    OwnerReference,
    group_of,
    labels_of,
    name_of,
    namespace_of,
    owner_references,
    uid_of,
)
from captf_runtime.queue import policies


@dataclass(frozen=True, slots=True)
class Gate:
    """Why a live object goes no further, as ``DependenciesReady`` shows it.

    ``requeue_after`` 0 means that an event of the owner starts the next pass.
    """

    status: Literal["False", "Unknown"]
    reason: str
    message: str
    requeue_after: float = 0.0

    @property
    def condition(self) -> Observation:
        return Observation("DependenciesReady", self.status, self.reason, self.message)


@dataclass(frozen=True, slots=True)
class Owners:
    """What the lookup found.

    ``owner`` is the Cluster, Machine or MachinePool that the owner reference names; ``cluster`` the Cluster
    and ``terraform_cluster`` its TerraformCluster (the object itself for a TerraformCluster). An absent one
    is None. ``has_reference`` tells a reference of the expected kind, ``owner_gone`` that its target does
    not exist. ``labelled_cluster`` is the Cluster that the object's own label names, whatever its owner says:
    it can only pause the object, so a forged label gains nothing by it. ``gone_cluster`` is the name of a
    TerraformCluster's Cluster that does not exist any more; its machines may still be there.
    """

    owner: Object | None = None
    cluster: Object | None = None
    terraform_cluster: Object | None = None
    has_reference: bool = False
    owner_gone: bool = False
    gate: Gate | None = None
    labelled_cluster: Object | None = None
    gone_cluster: str = ""

    @property
    def pausing_cluster(self) -> Object | None:
        """The Cluster whose ``spec.paused`` pauses the object: its own, or the one it is labelled with."""
        found = (cluster for cluster in (self.cluster, self.labelled_cluster) if cluster is not None)
        return next((cluster for cluster in found if (cluster.get("spec") or {}).get("paused") is True), None)

    @property
    def pausing_cluster_name(self) -> str:
        return name_of(self.pausing_cluster) if self.pausing_cluster is not None else ""

    @property
    def cluster_name(self) -> str:
        return name_of(self.cluster) if self.cluster is not None else self.gone_cluster


def find_owners(reader: Reader, kind: Kind, obj: Object) -> Owners:
    """Look the owners of ``obj`` up and check that they point back.

    Guarantees that ``owner`` and ``cluster`` are set only when the back-reference agrees, so that nothing is
    ever read from or written to an object that a forged reference names. The TerraformCluster of a machine
    or pool is resolved by the cluster-name label even when the owner is gated, because a deleting object
    still inherits from it. Errors other than NotFound pass through.
    """
    label = labels_of(obj).get(CLUSTER_NAME, "")
    labelled = _get(reader, CLUSTER, label, namespace_of(obj)) if label else None
    return replace(_find(reader, kind, obj, labelled), labelled_cluster=labelled)


def _find(reader: Reader, kind: Kind, obj: Object, cluster: Object | None) -> Owners:
    expected = OWNER_KINDS[kind.kind]
    references = owner_references(obj)
    reference = _expected_reference(references, expected)
    infra = _infrastructure(reader, kind, obj, cluster)
    if reference is None:
        gate = _missing_reference(kind, expected, references)
        return Owners(terraform_cluster=infra, gate=gate)
    owner = _get(reader, expected, reference.name, namespace_of(obj))
    if owner is None or uid_of(owner) != reference.uid:
        gone = Gate("False", "OwnerNotFound", f"{expected.kind} {reference.name} does not exist any more")
        return Owners(
            terraform_cluster=infra,
            has_reference=True,
            owner_gone=True,
            gate=gone,
            gone_cluster=reference.name if kind == TERRAFORM_CLUSTER else "",
        )
    mismatch = _mismatch(kind, obj, owner, expected)
    if mismatch:
        gate = Gate("False", "OwnerMismatch", mismatch)
        return Owners(terraform_cluster=infra, has_reference=True, gate=gate)
    if kind == TERRAFORM_CLUSTER:
        return Owners(owner=owner, cluster=owner, terraform_cluster=obj, has_reference=True)
    if cluster is None:
        label = labels_of(obj).get(CLUSTER_NAME, "")
        detail = f"Cluster {label} is not found" if label else f"the object has no label {CLUSTER_NAME}"
        waiting = Gate("Unknown", "WaitingForOwner", detail, policies.GATE.delay())
        return Owners(owner=owner, terraform_cluster=infra, has_reference=True, gate=waiting)
    foreign = _not_terraform(cluster)
    if foreign:
        gate = Gate("False", "ClusterNotTerraform", foreign)
        return Owners(owner=owner, cluster=cluster, has_reference=True, gate=gate)
    return Owners(owner=owner, cluster=cluster, terraform_cluster=infra, has_reference=True)


def _expected_reference(references: list[OwnerReference], expected: Kind) -> OwnerReference | None:
    for reference in references:
        if group_of(reference.api_version) == expected.group and reference.kind == expected.kind:
            return reference
    return None


def _missing_reference(kind: Kind, expected: Kind, references: list[OwnerReference]) -> Gate:
    if references and kind != TERRAFORM_CLUSTER:
        others = ", ".join(sorted({reference.kind for reference in references}))
        return Gate(
            "False",
            f"WaitingForOwner{expected.kind}",
            f"the owner references name {others}, none a {expected.kind}; Cluster API sets it",
            policies.GATE.delay(),
        )
    message = f"Cluster API has not set the owner reference to a {expected.kind} yet"
    return Gate("Unknown", "WaitingForOwner", message, policies.GATE.delay())


def _infrastructure(reader: Reader, kind: Kind, obj: Object, cluster: Object | None) -> Object | None:
    """The TerraformCluster of an object: itself, or the one of the Cluster that its label names.

    A Cluster that went by force may have left its TerraformCluster behind, waiting for this very object. Then it is
    the one that Cluster owned, if there is exactly one.
    """
    if kind == TERRAFORM_CLUSTER:
        return obj
    if cluster is None:
        return _left_behind(reader, obj)
    if _not_terraform(cluster):
        return None
    name = str(infrastructure_reference(cluster, CLUSTER).get("name", ""))
    return _get(reader, TERRAFORM_CLUSTER, name, namespace_of(obj)) if name else None


def _left_behind(reader: Reader, obj: Object) -> Object | None:
    label = labels_of(obj).get(CLUSTER_NAME, "")
    if not label:
        return None
    found = [
        cluster
        for cluster in reader.list(TERRAFORM_CLUSTER, namespace_of(obj))
        if (reference := _expected_reference(owner_references(cluster), CLUSTER)) is not None
        and reference.name == label
    ]
    return found[0] if len(found) == 1 else None


def _not_terraform(cluster: Object) -> str:
    reference = infrastructure_reference(cluster, CLUSTER)
    if not reference:
        return ""
    if reference_group(reference) == GROUP and reference.get("kind") == TERRAFORM_CLUSTER.kind:
        return ""
    return (
        f"the infrastructureRef of Cluster {name_of(cluster)} is a {reference.get('kind')}, "
        f"not a {TERRAFORM_CLUSTER.kind}"
    )


def _mismatch(kind: Kind, obj: Object, owner: Object, expected: Kind) -> str:
    reference = infrastructure_reference(owner, expected)
    named = f"{expected.kind} {name_of(owner)}"
    if not reference:
        return f"{named} has no infrastructureRef"
    if reference_group(reference) != GROUP or reference.get("kind") != kind.kind:
        return f"the infrastructureRef of {named} is of another kind ({reference.get('kind')})"
    if reference.get("name") != name_of(obj):
        return f"the infrastructureRef of {named} names {reference.get('name')}, not this object"
    uid = reference.get("uid")
    if uid and uid != uid_of(obj):
        return f"the infrastructureRef of {named} names another UID than this object's"
    label = labels_of(obj).get(CLUSTER_NAME, "")
    if not label:
        return ""
    if kind == TERRAFORM_CLUSTER:
        agreed = name_of(owner)
    else:
        agreed = str((owner.get("spec") or {}).get("clusterName") or labels_of(owner).get(CLUSTER_NAME, ""))
    if agreed and label != agreed:
        return f"label {CLUSTER_NAME} says {label} but {named} belongs to Cluster {agreed}"
    return ""


def _get(reader: Reader, kind: Kind, name: str, namespace: str) -> Object | None:
    try:
        return reader.get(kind, name, namespace)
    except NotFound:
        return None
