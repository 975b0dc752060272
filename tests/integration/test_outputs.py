"""What becomes of a module's outputs on the object that Cluster API reads."""

from __future__ import annotations

from typing import Any

import pytest
from tests.world import OUTPUTS, TEAM, World

from captf_controllers.api.kinds import CLUSTER
from captf_runtime.objects import annotations_of

CLUSTER_KIND, MACHINE_KIND, POOL_KIND = "TerraformCluster", "TerraformMachine", "TerraformMachinePool"
ENDPOINT = {"host": "api.example.com", "port": 6443}
OWN = {"host": "mine.example.com", "port": 443}
SOURCE = "captf.io/endpoint-source"


@pytest.fixture
def beside_a_cluster(world: World) -> World:
    world.stage("a cluster", world.ensure_cluster)
    return world


def apply_with(world: World, kind: str, name: str, **outputs: Any) -> dict[str, Any]:
    """Settle the object, let its apply leave these outputs, and settle it once more."""
    world.settle(kind, name)
    world.finish_job(world.running_job(name, op="apply"), state={**OUTPUTS[kind], **outputs})
    world.settle(kind, name)
    return world.get(kind, name)


def sample_with(world: World, kind: str, name: str, **outputs: Any) -> dict[str, Any]:
    """The next look at the infrastructure finds these outputs: a refresh that is under way, or somebody's own."""
    world.write_state(kind, name, outputs={**OUTPUTS[kind], **outputs})
    for job in world.jobs(name, op="refresh"):
        if not (job.get("status") or {}).get("conditions"):
            world.finish_job(job, steps=("init", "apply-refresh-only"))
    world.settle(kind, name)
    return world.get(kind, name)


# The control plane's endpoint


def endpoint_of(obj: dict[str, Any]) -> Any:
    return obj["spec"].get("controlPlaneEndpoint")


def test_the_modules_endpoint_becomes_the_clusters_once(world: World) -> None:
    world.add(CLUSTER_KIND, "prod")
    made = apply_with(world, CLUSTER_KIND, "prod")
    assert (endpoint_of(made), annotations_of(made)[SOURCE]) == (ENDPOINT, "module")
    assert len(world.events.of("ControlPlaneEndpointSet", "prod")) == 1
    assert world.says(CLUSTER_KIND, "prod", "EndpointAvailable") == "True/EndpointAvailable"
    assert len(world.jobs("prod", op="apply")) == 1, "the module's own endpoint is no new input"
    moved = sample_with(world, CLUSTER_KIND, "prod", control_plane_endpoint=OWN)
    assert endpoint_of(moved) == ENDPOINT, "an endpoint that machines may have joined by stays"
    assert len(world.events.of("ControlPlaneEndpointSet", "prod")) == 1


@pytest.mark.parametrize("whose", ["the object's", "the Cluster's"])
def test_a_users_endpoint_is_an_input_and_stays(world: World, whose: str) -> None:
    if whose == "the object's":
        world.add(CLUSTER_KIND, "prod", controlPlaneEndpoint=OWN)
    else:
        world.add(CLUSTER_KIND, "prod")
        world.client.patch(CLUSTER, "prod", {"spec": {"controlPlaneEndpoint": OWN}}, TEAM)
        world.step()
    made = apply_with(world, CLUSTER_KIND, "prod")
    assert annotations_of(made)[SOURCE] == "user"
    assert endpoint_of(made) == (OWN if whose == "the object's" else None)
    assert world.events.of("ControlPlaneEndpointSet", "prod") == []
    assert world.says(CLUSTER_KIND, "prod", "EndpointAvailable") == "True/EndpointAvailable"


def test_half_an_endpoint_is_none(world: World) -> None:
    world.add(CLUSTER_KIND, "prod", controlPlaneEndpoint={"host": "half.example.com"})
    assert endpoint_of(apply_with(world, CLUSTER_KIND, "prod")) == ENDPOINT


def test_without_an_endpoint_the_cluster_is_provisioned_and_says_so(world: World) -> None:
    world.add(CLUSTER_KIND, "prod")
    made = apply_with(world, CLUSTER_KIND, "prod", control_plane_endpoint=None)
    assert made["status"]["initialization"]["provisioned"] is True
    assert world.says(CLUSTER_KIND, "prod", "EndpointAvailable") == "False/WaitingForEndpoint"
    assert world.says(CLUSTER_KIND, "prod", "Ready") == "True/Ready"
    assert SOURCE not in annotations_of(made)
    later = sample_with(world, CLUSTER_KIND, "prod")
    assert (endpoint_of(later), annotations_of(later)[SOURCE]) == (ENDPOINT, "module")


def test_an_endpoint_that_a_control_plane_sets_later_is_applied_once(world: World) -> None:
    world.add(CLUSTER_KIND, "prod")
    apply_with(world, CLUSTER_KIND, "prod", control_plane_endpoint=None)
    world.patch(CLUSTER_KIND, "prod", {"spec": {"controlPlaneEndpoint": OWN}})
    made = apply_with(world, CLUSTER_KIND, "prod")
    assert endpoint_of(made) == OWN
    assert SOURCE not in annotations_of(made)
    assert len(world.jobs("prod", op="apply")) == 2


# Failure domains and exports


def test_failure_domains_follow_the_module(world: World) -> None:
    world.add(CLUSTER_KIND, "prod")
    domains = [{"name": "b", "control_plane": False}, {"name": "a", "attributes": {"rack": "7"}}]
    made = apply_with(world, CLUSTER_KIND, "prod", failure_domains=domains)
    assert made["status"]["failureDomains"] == [
        {"name": "b", "controlPlane": False},
        {"name": "a", "controlPlane": True, "attributes": {"rack": "7"}},
    ]
    assert "b, a" in world.events.of("FailureDomainsChanged", "prod")[0]["note"]
    gone = sample_with(world, CLUSTER_KIND, "prod", failure_domains=None)
    assert "failureDomains" not in gone["status"]
    assert len(world.events.of("FailureDomainsChanged", "prod")) == 2


def test_exports_that_are_too_large_are_not_published(world: World) -> None:
    world.add(CLUSTER_KIND, "prod")
    assert apply_with(world, CLUSTER_KIND, "prod")["status"]["exports"] == {"network_id": "net-1"}
    large = sample_with(world, CLUSTER_KIND, "prod", exports={"blob": "x" * 70_000})
    assert "exports" not in large["status"]
    assert len(world.events.of("ExportsNotPublished", "prod")) == 1
    world.settle(CLUSTER_KIND, "prod")
    assert len(world.events.of("ExportsNotPublished", "prod")) == 1
    assert world.says(CLUSTER_KIND, "prod", "Ready") == "True/Ready"


# Machines


def test_a_machines_outputs(beside_a_cluster: World) -> None:
    world = beside_a_cluster
    world.add(MACHINE_KIND, "m1")
    addresses = [
        {"type": "Hostname", "address": "m1"},
        {"type": "ExternalIP", "address": "192.0.2.7"},
        {"type": "InternalIP", "address": "10.0.0.9"},
        {"type": "InternalIP", "address": "10.0.0.10"},
    ]
    made = apply_with(
        world, MACHINE_KIND, "m1", addresses=addresses, failure_domain="fd1", interruptible=True
    )
    assert made["spec"]["providerID"] == "noop:///m1"
    assert made["status"]["addresses"] == [addresses[3], addresses[2], addresses[1], addresses[0]]
    assert made["status"]["failureDomain"] == "fd1"
    assert made["status"]["interruptible"] is True
    assert made["status"]["initialization"]["provisioned"] is True
    assert len(world.events.of("ProviderIDSet", "m1")) == 1


def test_a_machine_is_provisioned_once_its_provider_id_is_known(beside_a_cluster: World) -> None:
    world = beside_a_cluster
    world.add(MACHINE_KIND, "m1")
    unknown = apply_with(world, MACHINE_KIND, "m1", provider_id=None)
    assert not (unknown["status"].get("initialization") or {}).get("provisioned")
    assert "providerID" not in unknown["spec"]
    known = sample_with(world, MACHINE_KIND, "m1")
    assert known["status"]["initialization"]["provisioned"] is True
    assert known["spec"]["providerID"] == "noop:///m1"


def test_a_provider_id_never_changes(beside_a_cluster: World) -> None:
    world = beside_a_cluster
    world.add(MACHINE_KIND, "m1")
    apply_with(world, MACHINE_KIND, "m1")
    changed = sample_with(world, MACHINE_KIND, "m1", provider_id="noop:///another", addresses=[])
    assert changed["spec"]["providerID"] == "noop:///m1"
    assert world.says(MACHINE_KIND, "m1", "OutputsValid") == "False/ProviderIDChanged"
    assert changed["status"]["initialization"]["provisioned"] is True, "it is latched"
    sample_with(world, MACHINE_KIND, "m1")
    assert world.says(MACHINE_KIND, "m1", "OutputsValid").startswith("True/")


# Pools


def test_a_pools_outputs(beside_a_cluster: World) -> None:
    world = beside_a_cluster
    world.add(POOL_KIND, "p1")
    members = ["noop:///pool/2", "noop:///pool/0", "noop:///pool/2"]
    instances = [{"provider_id": "noop:///pool/0", "instance_id": "i-0", "state": "running"}]
    made = apply_with(world, POOL_KIND, "p1", provider_id_list=members, instances=instances, replicas=2)
    assert made["spec"]["providerID"] == "noop:///pool"
    assert made["spec"]["providerIDList"] == ["noop:///pool/0", "noop:///pool/2"]
    assert made["status"]["replicas"] == 2
    assert [entry["providerID"] for entry in made["status"]["instances"]] == ["noop:///pool/0"]
    assert (made["status"]["ready"], made["status"]["initialization"]["provisioned"]) == (True, True)


def test_a_pool_without_members_says_zero(beside_a_cluster: World) -> None:
    world = beside_a_cluster
    world.add(POOL_KIND, "p1")
    made = apply_with(world, POOL_KIND, "p1", provider_id=None, provider_id_list=[], instances=[], replicas=0)
    assert made["status"]["replicas"] == 0
    assert made["status"]["initialization"]["provisioned"] is True
    grown = sample_with(world, POOL_KIND, "p1")
    assert (grown["spec"]["providerIDList"], grown["status"]["replicas"]) == (["noop:///pool/0"], 1)
    shrunk = sample_with(world, POOL_KIND, "p1", provider_id_list=[], instances=[], replicas=0)
    assert (shrunk["spec"].get("providerIDList"), shrunk["status"]["replicas"]) == ([], 0)
    assert "instances" not in shrunk["status"]


def test_a_thousand_instances_are_listed_of_more(beside_a_cluster: World) -> None:
    world = beside_a_cluster
    world.add(POOL_KIND, "p1")
    ids = [f"noop:///pool/{number:04}" for number in range(1001)]
    made = apply_with(
        world,
        POOL_KIND,
        "p1",
        provider_id_list=ids,
        instances=[{"provider_id": name} for name in ids],
        replicas=1001,
    )
    assert len(made["spec"]["providerIDList"]) == 1001
    assert len(made["status"]["instances"]) == 1000
    assert world.says(POOL_KIND, "p1", "OutputsValid") == "True/InstancesTruncated"
    assert world.says(POOL_KIND, "p1", "Ready") == "True/Ready"


# What breaks the contract


@pytest.mark.parametrize(
    ("kind", "name", "outputs"),
    [
        (CLUSTER_KIND, "prod", {"control_plane_endpoint": {"host": "half.example.com"}}),
        (MACHINE_KIND, "m1", {"addresses": [{"type": "Postal", "address": "x"}]}),
        (POOL_KIND, "p1", {"replicas": -1}),
    ],
)
def test_outputs_that_break_the_contract_are_not_taken(
    world: World, kind: str, name: str, outputs: dict[str, Any]
) -> None:
    if kind != CLUSTER_KIND:
        world.ensure_cluster()
    world.add(kind, name)
    made = apply_with(world, kind, name, **outputs)
    assert world.says(kind, name, "OutputsValid") == "False/OutputsInvalid"
    assert next(iter(outputs)) in world.condition(kind, name, "OutputsValid")["message"]
    assert not (made["status"].get("initialization") or {}).get("provisioned")
    assert len(world.events.of("OutputsInvalid", name)) == 1
    assert world.says(kind, name, "Ready").startswith("False/")
    repaired = sample_with(world, kind, name)
    assert repaired["status"]["initialization"]["provisioned"] is True
