"""A change of a cluster's exports reaches a pool only past the guard, and what became of it is remembered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.world import OUTPUTS, TEAM, World

from captf_controllers.api.kinds import TERRAFORM_PLAN
from captf_runtime.objects import Object, annotations_of, labels_of, name_of

KIND, NAME = "TerraformMachinePool", "workers"
PLAN: dict[str, Any] = {
    "hash": "p2:" + "1" * 64,
    "create": 0,
    "update": 0,
    "replace": 1,
    "delete": 0,
    "resources": ["module.role.terraform_data.group (replace)"],
}


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        made.provisioned(KIND, NAME)
        yield made


def export(world: World, network: str) -> None:
    """What the cluster exports from now on."""
    outputs = {**OUTPUTS["TerraformCluster"], "exports": {"network_id": network}}
    world.write_state("TerraformCluster", "prod", outputs=outputs)


def guarded(world: World) -> Object:
    """The Job that wants to apply a change of the exports."""
    export(world, "net-2")
    world.settle(KIND, NAME)
    job = world.running_job(NAME, op="apply")
    assert "--guard-deletes" in arguments(job)
    return job


def blocked(world: World) -> Object:
    """The plan of a change that would have replaced something."""
    world.finish_job(guarded(world), "blocked", plan=PLAN, steps=("init", "validate", "plan"))
    world.settle(KIND, NAME)
    (plan,) = plans(world)
    assert (plan["spec"]["reason"], phase(plan)) == ("ExportsChange", "Pending")
    return plan


def plans(world: World) -> list[Object]:
    return world.client.list(TERRAFORM_PLAN, TEAM).items


def phase(plan: Object) -> str:
    return labels_of(plan)["captf.io/plan-phase"]


def arguments(job: Object) -> list[str]:
    found: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def test_an_approved_change_is_applied_and_its_plan_says_so(world: World) -> None:
    plan = blocked(world)
    approval = {"spec": {"approved": True, "approvedBy": "alice"}}
    world.client.patch(TERRAFORM_PLAN, name_of(plan), approval, TEAM)
    world.settle(KIND, NAME)
    job = world.running_job(NAME, op="apply")
    assert f"--allow-deletes-hash={plan['spec']['inputsHash']}" in arguments(job)
    assert annotations_of(job)["captf.io/plan"] == name_of(plan)
    assert "captf.io/approved-plan" not in annotations_of(job)
    world.finish_job(job)
    world.settle(KIND, NAME)
    (plan,) = plans(world)
    assert phase(plan) == "Applied"
    assert len(world.events.of("PlanApplied", NAME)) == 1
    assert "pendingPlanRef" not in world.get(KIND, NAME)["status"]
