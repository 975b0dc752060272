"""A change of a cluster's exports reaches a pool only past the guard, and what became of it is remembered."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.world import OUTPUTS, TEAM, World

from captf_controllers.api.kinds import TERRAFORM_PLAN
from captf_runtime.objects import JOB, SECRET, Object, annotations_of, labels_of, name_of

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
def world(world: World) -> World:
    world.stage(f"{KIND} {NAME} provisioned", lambda: world.provisioned(KIND, NAME))
    return world


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


def record(world: World) -> dict[str, str]:
    """The annotations of the attempt record."""
    return annotations_of(world.client.get(SECRET, f"captf-inputs-mp-{NAME}", TEAM))


def lose_jobs(world: World) -> None:
    for job in world.jobs(NAME):
        world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")


def test_a_blocked_change_is_remembered_with_what_it_would_destroy(world: World) -> None:
    plan = blocked(world)
    pending = json.loads(record(world)["captf.io/pending-cluster-outputs"])
    assert pending["approvalHash"] == plan["spec"]["inputsHash"]
    assert pending["summary"] == "module.role.terraform_data.group (replace)"


def test_a_change_that_was_withdrawn_waits_for_nobody(world: World) -> None:
    blocked(world)
    assert world.says(KIND, NAME, "ApplyJobSucceeded") == "False/DestructivePlanBlocked"
    assert world.says(KIND, NAME, "Ready") == "False/NotReady"
    export(world, "net-1")
    world.settle(KIND, NAME)
    (plan,) = plans(world)
    assert phase(plan) == "Superseded"
    assert world.says(KIND, NAME, "ApplyJobSucceeded") == "True/ApplySucceeded"
    assert world.says(KIND, NAME, "Ready") == "True/Ready"
    # Passes that look at nothing but a running Job say the same.
    world.advance(120)
    world.reconcile(KIND, NAME)
    assert world.running_job(NAME, op="refresh")
    world.reconcile(KIND, NAME)
    assert world.says(KIND, NAME, "ApplyJobSucceeded") == "True/ApplySucceeded"
    assert len(world.events.of("DestructivePlanBlocked", NAME)) == 1


def test_a_withdrawn_change_that_comes_again_needs_a_plan_of_its_own(world: World) -> None:
    blocked(world)
    export(world, "net-1")
    world.settle(KIND, NAME)
    export(world, "net-2")
    world.advance(600)
    world.settle(KIND, NAME)
    world.finish_job(world.running_job(NAME, op="apply"), "blocked", plan=PLAN, steps=("init", "plan"))
    world.settle(KIND, NAME)
    assert sorted(map(phase, plans(world))) == ["Pending", "Superseded"]
    assert world.says(KIND, NAME, "ApplyJobSucceeded") == "False/DestructivePlanBlocked"


def test_a_plan_gets_the_status_back_that_a_move_loses(world: World) -> None:
    plan = blocked(world)
    world.client.patch(TERRAFORM_PLAN, name_of(plan), {"status": None}, TEAM, subresource="status")
    world.settle(KIND, NAME)
    (plan,) = plans(world)
    assert plan["status"]["phase"] == "Pending"
    shown = {item["type"]: (item["status"], item["reason"]) for item in plan["status"]["conditions"]}
    assert shown == {"Ready": ("True", "Pending"), "Approved": ("False", "Pending")}
    version = plan["metadata"]["resourceVersion"]
    world.reconcile(KIND, NAME)
    assert plans(world)[0]["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("lost", [False, True], ids=["its-job-is-there", "after-a-move"])
def test_a_change_that_may_be_half_applied_stays_guarded(world: World, lost: bool) -> None:
    """Also when the exports are what they were: what was half applied has to be taken back."""
    world.finish_job(guarded(world), "failed")
    world.settle(KIND, NAME)
    assert "captf.io/partial-cluster-outputs" in record(world)
    if lost:
        lose_jobs(world)
    export(world, "net-1")
    world.advance(600)
    world.settle(KIND, NAME)
    job = world.running_job(NAME, op="apply")
    assert "--guard-deletes" in arguments(job)
    world.finish_job(job)
    world.settle(KIND, NAME)
    assert "captf.io/partial-cluster-outputs" not in record(world)
    assert [item for item in world.jobs(NAME, op="apply") if not item["status"].get("conditions")] == []


def test_a_guarded_apply_that_vanished_may_be_half_applied(world: World) -> None:
    job = guarded(world)
    world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
    world.reconcile(KIND, NAME)
    assert json.loads(record(world)["captf.io/partial-cluster-outputs"]) == {
        "exportsHash": annotations_of(job)["captf.io/cluster-outputs-hash"],
        "job": name_of(job),
    }
    assert "guarded against deletions" in world.condition(KIND, NAME, "ApplyJobSucceeded")["message"]
    export(world, "net-1")
    world.settle(KIND, NAME)
    assert "--guard-deletes" in arguments(world.running_job(NAME, op="apply"))


def test_an_apply_of_the_same_exports_that_vanished_is_not_guarded(world: World) -> None:
    world.patch(KIND, NAME, {"spec": {"source": {"image": "example.com/modules/x:v2"}}})
    world.settle(KIND, NAME)
    job = world.running_job(NAME, op="apply")
    world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
    world.reconcile(KIND, NAME)
    assert "captf.io/partial-cluster-outputs" not in record(world)
    assert "guarded" not in world.condition(KIND, NAME, "ApplyJobSucceeded")["message"]


def test_a_spec_edit_needs_a_plan_of_its_own(world: World) -> None:
    """The approval was for the inputs of before; without a new plan the change would be held for ever."""
    blocked(world)
    world.patch(KIND, NAME, {"spec": {"source": {"image": "example.com/modules/x:v2"}}})
    world.settle(KIND, NAME)
    job = world.running_job(NAME, op="apply")
    assert "--guard-deletes" in arguments(job)
    world.finish_job(job, "blocked", plan=PLAN, steps=("init", "validate", "plan"))
    world.settle(KIND, NAME)
    assert sorted(map(phase, plans(world))) == ["Pending", "Superseded"]


@pytest.mark.parametrize("gone", ["never-made", "deleted"])
def test_a_blocked_change_without_a_plan_is_tried_again(world: World, gone: str) -> None:
    plan = PLAN if gone == "deleted" else None
    world.finish_job(guarded(world), "blocked", plan=plan, steps=("init", "validate", "plan"))
    world.settle(KIND, NAME)
    for made in plans(world):
        world.client.delete(TERRAFORM_PLAN, name_of(made), TEAM, propagation_policy="Background")
    world.settle(KIND, NAME)
    waiting = world.condition(KIND, NAME, "ApplyJobSucceeded")
    assert waiting["reason"] == "DestructivePlanBlocked"
    assert "runs again in ten minutes" in waiting["message"]
    world.advance(601)
    world.settle(KIND, NAME)
    world.finish_job(world.running_job(NAME), steps=("init", "plan"))
    world.advance(60)
    world.settle(KIND, NAME)
    assert [item for item in world.jobs(NAME, op="apply") if "--guard-deletes" in arguments(item)][1:]


def test_meanwhile_the_pool_goes_on_with_the_exports_of_before(world: World) -> None:
    blocked(world)
    rotated = base64.b64encode(b"#cloud-config rotated\n").decode()
    world.client.patch(SECRET, f"{NAME}-bootstrap", {"data": {"value": rotated}}, TEAM)
    world.settle(KIND, NAME)
    job = world.running_job(NAME, op="apply")
    assert "--guard-deletes" not in arguments(job)
    assert annotations_of(job)["captf.io/held-cluster-outputs"] == "true"
    world.finish_job(job)
    world.settle(KIND, NAME)
    assert world.says(KIND, NAME, "ApplyJobSucceeded") == "False/DestructivePlanBlocked"
    assert [phase(plan) for plan in plans(world)] == ["Pending"]
    export(world, "net-1")
    world.settle(KIND, NAME)
    assert world.says(KIND, NAME, "ApplyJobSucceeded") == "True/ApplySucceeded"
