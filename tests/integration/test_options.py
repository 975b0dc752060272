"""The life of each kind under each option that changes how deletions work."""

from __future__ import annotations

from typing import Any

import pytest
from tests.world import World

from captf_controllers.identity.sweep import sweep_all
from captf_runtime.objects import SECRET, SERVICE_ACCOUNT

OPTIONS: dict[str, dict[str, Any]] = {
    "no backups": {"state_backups": 0},
    "watch filter": {"watch_filter": "mine"},
    "no operation gate": {"cluster_operation_gate": False},
}
LABEL = "cluster.x-k8s.io/watch-filter"


@pytest.fixture(params=OPTIONS, ids=list(OPTIONS))
def world(world: World, request: pytest.FixtureRequest) -> World:
    world.restart(**OPTIONS[request.param])
    return world


def provisioned(world: World, kind: str, name: str) -> None:
    """Create, label and apply; an unlabelled object is left alone under a watch filter."""
    if kind != "TerraformCluster" and world.find("TerraformCluster", "prod") is None:
        provisioned(world, "TerraformCluster", "prod")
    world.add(kind, name)
    if world.env.options.watch_filter:
        world.reconcile(kind, name)
        assert world.get(kind, name)["metadata"].get("finalizers") is None
        world.patch(kind, name, {"metadata": {"labels": {LABEL: "mine"}}})
    world.provision(kind, name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("TerraformCluster", "prod"), ("TerraformMachine", "m1"), ("TerraformMachinePool", "p1")],
)
class TestLife:
    def test_destroyed(self, world: World, kind: str, name: str) -> None:
        provisioned(world, kind, name)
        assert len(world.backups(kind, name)) == (0 if world.env.options.state_backups == 0 else 1)
        world.delete(kind, name)
        world.settle(kind, name)
        world.finish_job(world.running_job(name, op="destroy"))
        world.settle(kind, name)
        assert world.find(kind, name) is None
        assert world.events.reasons(name)[-2:] == ["Destroyed", "FinalizerRemoved"]

    def test_held_then_abandoned(self, world: World, kind: str, name: str) -> None:
        provisioned(world, kind, name)
        for secret in world.state_secrets(kind, name):
            world.client.delete(
                SECRET,
                secret["metadata"]["name"],
                secret["metadata"]["namespace"],
                propagation_policy="Background",
            )
        world.delete(kind, name)
        assert world.settle(kind, name) == 60.0
        assert world.says(kind, name, "StateReadable") == "False/StateLost"
        world.annotate(kind, name, abandon_infrastructure=world.get(kind, name)["metadata"]["uid"])
        world.settle(kind, name)
        assert world.find(kind, name) is None
        assert world.events.reasons(name)[-1] == "InfrastructureAbandoned"

    def test_retained_and_adopted(self, world: World, kind: str, name: str) -> None:
        provisioned(world, kind, name)
        world.patch(kind, name, {"spec": {"deletionPolicy": "Retain"}})
        world.delete(kind, name)
        world.settle(kind, name)
        assert world.find(kind, name) is None
        assert len(world.state_secrets(kind, name)) == 1
        jobs = len(world.jobs(name))
        world.add(kind, name, adoptRetainedState=True)
        if world.env.options.watch_filter:
            world.patch(kind, name, {"metadata": {"labels": {LABEL: "mine"}}})
        world.settle(kind, name)
        assert world.get(kind, name)["status"]["initialization"]["provisioned"] is True
        assert len(world.jobs(name)) == jobs


def test_the_periodic_sweep_counts_objects_of_every_watch_filter(world: World) -> None:
    provisioned(world, "TerraformCluster", "prod")
    world.patch("TerraformCluster", "prod", {"metadata": {"labels": {LABEL: "another-manager"}}})
    sweep_all(world.manager_client)
    assert world.exists(SERVICE_ACCOUNT, "captf-runner")
