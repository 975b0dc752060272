"""Owner lookup: who owns an object, and whether that owner points back."""

from __future__ import annotations

import copy

import pytest

from captf_controllers.api.kinds import (
    CLUSTER,
    GROUP,
    MACHINE,
    TERRAFORM_CLUSTER,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
)
from captf_controllers.reconcile.owners import find_owners
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import Kind, Object


class Objects:
    """A reader over a dictionary."""

    def __init__(self, *objects: Object) -> None:
        self.objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        try:
            return copy.deepcopy(self.objects[kind.kind, name])
        except KeyError:
            raise NotFound(f"{kind.plural} {name} not found") from None

    def list(self, kind: Kind, namespace: str = "", *, label_selector: str = "") -> list[Object]:
        return [copy.deepcopy(item) for (named, _), item in self.objects.items() if named == kind.kind]


def obj(kind: Kind, name: str, **changes: object) -> Object:
    made: Object = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{kind.kind}-{name}"},
        "spec": {},
    }
    for path, value in changes.items():
        head, _, tail = path.partition("__")
        made[head] = {**made[head], tail: value}
    return made


def reference(kind: Kind, name: str, **changes: str) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": f"uid-{kind.kind}-{name}",
        **changes,
    }


def infra(kind: Kind, name: str, **changes: str) -> Object:
    return {"apiGroup": GROUP, "kind": kind.kind, "name": name, **changes}


CAPI_CLUSTER = obj(CLUSTER, "prod", spec__infrastructureRef=infra(TERRAFORM_CLUSTER, "prod"))
CAPI_MACHINE = obj(MACHINE, "m1-x", spec__infrastructureRef=infra(TERRAFORM_MACHINE, "m1"))
CAPI_MACHINE["spec"]["clusterName"] = "prod"
TF_CLUSTER = obj(TERRAFORM_CLUSTER, "prod", metadata__ownerReferences=[reference(CLUSTER, "prod")])
LABEL = {"cluster.x-k8s.io/cluster-name": "prod"}
TF_MACHINE = obj(
    TERRAFORM_MACHINE, "m1", metadata__ownerReferences=[reference(MACHINE, "m1-x")], metadata__labels=LABEL
)
WORLD = Objects(CAPI_CLUSTER, CAPI_MACHINE, TF_CLUSTER)


def test_a_cluster_finds_its_cluster() -> None:
    owners = find_owners(WORLD, TERRAFORM_CLUSTER, TF_CLUSTER)
    assert owners.gate is None
    assert (owners.cluster_name, owners.terraform_cluster) == ("prod", TF_CLUSTER)


def test_a_machine_finds_machine_cluster_and_terraform_cluster() -> None:
    owners = find_owners(WORLD, TERRAFORM_MACHINE, TF_MACHINE)
    assert owners.gate is None
    assert owners.owner == CAPI_MACHINE
    assert owners.cluster == CAPI_CLUSTER
    assert owners.terraform_cluster == TF_CLUSTER


def without(value: Object, *path: str) -> Object:
    changed = copy.deepcopy(value)
    target = changed
    for part in path[:-1]:
        target = target[part]
    del target[path[-1]]
    return changed


def having(value: Object, new: object, *path: str) -> Object:
    changed = copy.deepcopy(value)
    target = changed
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = new
    return changed


GATES = [
    (
        "no owner reference",
        WORLD,
        without(TF_MACHINE, "metadata", "ownerReferences"),
        "WaitingForOwner",
        30.0,
    ),
    (
        "a control plane provider's reference alone",
        WORLD,
        having(
            TF_MACHINE,
            [{**reference(MACHINE, "x"), "kind": "KubeadmControlPlane"}],
            "metadata",
            "ownerReferences",
        ),
        "WaitingForOwnerMachine",
        30.0,
    ),
    ("the owner is gone", Objects(CAPI_CLUSTER, TF_CLUSTER), TF_MACHINE, "OwnerNotFound", 0.0),
    (
        "another object of the owner's name",
        WORLD,
        having(TF_MACHINE, [reference(MACHINE, "m1-x", uid="earlier")], "metadata", "ownerReferences"),
        "OwnerNotFound",
        0.0,
    ),
    (
        "the owner names another object",
        Objects(CAPI_CLUSTER, TF_CLUSTER, having(CAPI_MACHINE, "m2", "spec", "infrastructureRef", "name")),
        TF_MACHINE,
        "OwnerMismatch",
        0.0,
    ),
    (
        "the owner names another UID",
        Objects(
            CAPI_CLUSTER,
            TF_CLUSTER,
            having(CAPI_MACHINE, infra(TERRAFORM_MACHINE, "m1", uid="other"), "spec", "infrastructureRef"),
        ),
        TF_MACHINE,
        "OwnerMismatch",
        0.0,
    ),
    (
        "the label names another cluster",
        WORLD,
        having(TF_MACHINE, {"cluster.x-k8s.io/cluster-name": "victim"}, "metadata", "labels"),
        "OwnerMismatch",
        0.0,
    ),
    ("no cluster-name label", WORLD, without(TF_MACHINE, "metadata", "labels"), "WaitingForOwner", 30.0),
    ("the Cluster is not there", Objects(CAPI_MACHINE), TF_MACHINE, "WaitingForOwner", 30.0),
    (
        "the Cluster is of another provider",
        Objects(
            CAPI_MACHINE,
            having(
                CAPI_CLUSTER,
                {"apiGroup": GROUP, "kind": "AWSCluster", "name": "p"},
                "spec",
                "infrastructureRef",
            ),
        ),
        TF_MACHINE,
        "ClusterNotTerraform",
        0.0,
    ),
]


@pytest.mark.parametrize(
    ("world", "machine", "reason", "requeue"), [g[1:] for g in GATES], ids=[g[0] for g in GATES]
)
def test_gates(world: Objects, machine: Object, reason: str, requeue: float) -> None:
    gate = find_owners(world, TERRAFORM_MACHINE, machine).gate
    assert gate is not None
    assert (gate.reason, gate.requeue_after) == (reason, requeue)
    assert gate.message


def test_a_forged_reference_leads_nowhere() -> None:
    """Nothing is read from, or written to, an owner that does not point back."""
    forged = having(TF_MACHINE, "m9", "metadata", "name")
    owners = find_owners(WORLD, TERRAFORM_MACHINE, forged)
    assert owners.gate is not None
    assert (owners.owner, owners.cluster) == (None, None)


def test_a_gated_machine_still_finds_what_it_inherits_from() -> None:
    owners = find_owners(Objects(CAPI_CLUSTER, TF_CLUSTER), TERRAFORM_MACHINE, TF_MACHINE)
    assert owners.owner_gone
    assert owners.terraform_cluster == TF_CLUSTER


def test_a_pool_reads_its_reference_from_the_template() -> None:
    pool = obj(
        TERRAFORM_MACHINE_POOL,
        "p1",
        metadata__labels=LABEL,
        metadata__ownerReferences=[
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "p1", "uid": "u"}
        ],
    )
    owner: Object = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachinePool",
        "metadata": {"name": "p1", "namespace": "team-a", "uid": "u"},
        "spec": {
            "clusterName": "prod",
            "template": {"spec": {"infrastructureRef": infra(TERRAFORM_MACHINE_POOL, "p1")}},
        },
    }
    owners = find_owners(Objects(CAPI_CLUSTER, TF_CLUSTER, owner), TERRAFORM_MACHINE_POOL, pool)
    assert owners.gate is None
    assert owners.owner == owner


@pytest.mark.parametrize("world", [Objects(TF_CLUSTER), Objects(CAPI_MACHINE, TF_CLUSTER)])
def test_a_paused_cluster_pauses_whatever_became_of_the_owner(world: Objects) -> None:
    """A machine whose Machine went during a move must not be destroyed because its owner is gone."""
    paused = having(CAPI_CLUSTER, True, "spec", "paused")
    world.objects["Cluster", "prod"] = paused
    owners = find_owners(world, TERRAFORM_MACHINE, TF_MACHINE)
    assert owners.pausing_cluster == paused
    world.objects["Cluster", "prod"] = CAPI_CLUSTER
    assert find_owners(world, TERRAFORM_MACHINE, TF_MACHINE).pausing_cluster is None


def test_a_cluster_that_went_by_force_leaves_its_terraform_cluster_to_inherit_from() -> None:
    owners = find_owners(Objects(CAPI_MACHINE, TF_CLUSTER), TERRAFORM_MACHINE, TF_MACHINE)
    assert owners.cluster is None
    assert owners.terraform_cluster == TF_CLUSTER
    other = obj(TERRAFORM_CLUSTER, "other", metadata__ownerReferences=[reference(CLUSTER, "other")])
    assert find_owners(Objects(other), TERRAFORM_MACHINE, TF_MACHINE).terraform_cluster is None


def test_of_two_that_a_cluster_left_behind_neither_is_taken() -> None:
    second = obj(TERRAFORM_CLUSTER, "second", metadata__ownerReferences=[reference(CLUSTER, "prod")])
    assert find_owners(Objects(TF_CLUSTER, second), TERRAFORM_MACHINE, TF_MACHINE).terraform_cluster is None
