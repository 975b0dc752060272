"""``clusterctl move``: objects and Secrets carried between two API servers, then deleted on the target."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.world import TEAM, World

from captf_controllers.api.kinds import (
    CLUSTER,
    MACHINE,
    MACHINE_POOL,
    TERRAFORM_CLUSTER,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
    TERRAFORM_PLAN,
)
from captf_controllers.identity.sweep import sweep_all
from captf_runtime.objects import (
    CONFIG_MAP,
    NAMESPACE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
    Object,
    annotations_of,
    labels_of,
    name_of,
    owner_references,
    uid_of,
)

OBJECTS = (("TerraformCluster", "prod"), ("TerraformMachine", "m1"), ("TerraformMachinePool", "p1"))
MOVED_KINDS = (
    CLUSTER,
    MACHINE,
    MACHINE_POOL,
    TERRAFORM_CLUSTER,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
    TERRAFORM_PLAN,
)


@dataclass
class Mover:
    """What clusterctl does, in its order: pause, wait, copy owners first, strip and delete, unpause."""

    source: World
    target: World
    uids: dict[str, str] = field(default_factory=dict)

    def pause(self, world: World, paused: bool) -> None:
        world.client.patch(CLUSTER, "prod", {"spec": {"paused": paused}}, TEAM)
        for kind, name in OBJECTS:
            if world.find(kind, name) is not None:
                world.settle(kind, name)

    def blocked(self) -> list[str]:
        return [
            name
            for kind, name in OBJECTS
            if "clusterctl.cluster.x-k8s.io/block-move" in annotations_of(self.source.get(kind, name))
        ]

    def copy_all(self) -> None:
        for kind in MOVED_KINDS:
            for obj in self.source.client.list(kind, TEAM).items:
                self._copy(kind, obj)
        for kind in (SECRET, CONFIG_MAP):
            for obj in self.source.client.list(kind, TEAM).items:
                owned = any(reference.uid in self.uids for reference in owner_references(obj))
                if (
                    owned
                    or "clusterctl.cluster.x-k8s.io/move" in labels_of(obj)
                    or name_of(obj).endswith("-bootstrap")
                ):
                    self._copy(kind, obj)

    def _copy(self, kind: Kind, obj: Object) -> None:
        moved = copy.deepcopy(obj)
        moved.pop("status", None)
        metadata = moved["metadata"]
        for key in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
            metadata.pop(key, None)
        references = metadata.pop("ownerReferences", [])
        kept = [{**item, "uid": self.uids[item["uid"]]} for item in references if item["uid"] in self.uids]
        if kept:
            metadata["ownerReferences"] = kept
        self.uids[uid_of(obj)] = uid_of(self.target.client.create(kind, moved, TEAM))

    def delete_source(self) -> None:
        for kind, name in reversed(OBJECTS):
            self.source.patch(
                kind,
                name,
                {
                    "metadata": {
                        "annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""},
                        "finalizers": None,
                    }
                },
            )
            self.source.delete(kind, name)
        self.source.step()

    def run(self) -> None:
        self.pause(self.source, True)
        assert self.blocked() == []
        self.copy_all()
        # Only the copies of paused objects arrive; Cluster API reports its progress on the target anew.
        self.target.client.patch(
            CLUSTER,
            "prod",
            {"status": {"initialization": {"infrastructureProvisioned": True}}},
            TEAM,
            subresource="status",
        )
        self.delete_source()
        self.pause(self.target, False)


@pytest.fixture
def mover() -> Iterator[Mover]:
    with World() as source, World() as target:
        for kind, name in OBJECTS:
            source.provisioned(kind, name)
        yield Mover(source, target)


def test_the_target_takes_over_without_an_apply_and_destroys(mover: Mover) -> None:
    mover.run()
    source, target = mover.source, mover.target
    assert [
        entry.name for entry in source.server.requests if entry.verb == "create" and "destroy" in entry.name
    ] == []
    for kind, name in OBJECTS:
        target.settle(kind, name)
        assert target.jobs(name, op="apply") == []
        status = target.get(kind, name)["status"]
        assert status["initialization"]["provisioned"] is True
        assert status["observedStateSerial"] == 1
        assert target.says(kind, name, "StateReadable") == "True/StateRead"
        secrets = target.state_secrets(kind, name)
        assert [ref.uid for ref in owner_references(secrets[0])] == [uid_of(target.get(kind, name))]
    for kind, name in reversed(OBJECTS):
        target.delete(kind, name)
        target.settle(kind, name)
        target.finish_job(target.running_job(name, op="destroy"))
        target.settle(kind, name)
        assert target.find(kind, name) is None


def test_the_sweep_clears_what_the_move_left_on_the_source(mover: Mover) -> None:
    mover.run()
    sweep_all(mover.source.client)
    for kind in (SERVICE_ACCOUNT, ROLE_BINDING):
        assert [name_of(item) for item in mover.source.client.list(kind, TEAM).items] == []
    assert mover.source.leases() == []


def test_block_move_stays_while_a_job_runs(mover: Mover) -> None:
    source = mover.source
    source.patch("TerraformCluster", "prod", {"spec": {"source": {"image": "example.com/modules/x:v2"}}})
    source.settle("TerraformCluster", "prod")
    job = source.running_job("prod")
    mover.pause(source, True)
    assert mover.blocked() == ["prod"]
    source.finish_job(job)
    source.settle("TerraformCluster", "prod")
    assert mover.blocked() == []
    assert source.says("TerraformCluster", "prod", "ApplyJobSucceeded") == "True/ApplySucceeded"


@pytest.mark.acceptance("TN16")
@pytest.mark.parametrize(("kind", "name"), OBJECTS)
def test_a_moved_object_is_held_when_its_namespace_goes_before_its_status_came_back(
    mover: Mover, kind: str, name: str
) -> None:
    """The annotation on the object outlives every Secret: nothing is dropped over running infrastructure."""
    mover.pause(mover.source, True)
    mover.copy_all()
    mover.delete_source()
    target = mover.target
    assert "initialization" not in target.get(kind, name).get("status", {})
    target.client.patch(CLUSTER, "prod", {"spec": {"paused": False}}, TEAM)
    target.client.delete(NAMESPACE, TEAM, propagation_policy="Background")
    for other, other_name in OBJECTS:
        if other != kind:
            target.patch(other, other_name, {"metadata": {"finalizers": None}})
    target.step()
    assert target.state_secrets(kind, name) == []
    target.settle(kind, name)
    assert target.says(kind, name, "StateReadable") == "False/StateLost"
    assert "captf.io/applied-as" in target.condition(kind, name, "StateReadable")["message"]
    target.annotate(kind, name, applied_as=None)
    target.settle(kind, name)
    assert target.released(kind, name)


def test_a_state_that_did_not_move_is_lost_not_applied_again(mover: Mover) -> None:
    mover.pause(mover.source, True)
    mover.copy_all()
    target = mover.target
    for secret in target.state_secrets("TerraformMachine", "m1"):
        target.client.delete(SECRET, name_of(secret), TEAM, propagation_policy="Background")
    mover.delete_source()
    mover.pause(target, False)
    assert target.says("TerraformMachine", "m1", "StateReadable") == "False/StateLost"
    assert target.jobs("m1") == []
