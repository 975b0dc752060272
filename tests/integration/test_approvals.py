"""Approvals: a destructive or reviewed change waits as a TerraformPlan, and the message names the way on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.world import IMAGE, TEAM, World

from captf_controllers.api import names
from captf_controllers.api.kinds import TERRAFORM_PLAN
from captf_controllers.jobs.result import EMPTY_PLAN_HASH
from captf_runtime.objects import Object, annotations_of, labels_of, name_of

KIND, NAME = "TerraformCluster", "prod"
PLAN: dict[str, Any] = {
    "hash": "p2:" + "1" * 64,
    "create": 0,
    "update": 0,
    "replace": 1,
    "delete": 0,
    "resources": ["module.role.terraform_data.network (replace)"],
}
OTHER = {**PLAN, "hash": "p2:" + "2" * 64, "delete": 1}


@pytest.fixture
def world(world: World) -> World:
    world.stage(f"{KIND} {NAME} provisioned", lambda: world.provisioned(KIND, NAME))
    return world


def plans(world: World) -> list[Object]:
    return world.client.list(TERRAFORM_PLAN, TEAM).items


def only_plan(world: World, phase: str) -> Object:
    found = [plan for plan in plans(world) if labels_of(plan)["captf.io/plan-phase"] == phase]
    assert len(found) == 1, [(name_of(plan), labels_of(plan)["captf.io/plan-phase"]) for plan in plans(world)]
    assert found[0]["status"]["phase"] == phase
    return found[0]


def change(world: World, image: str = "example.com/modules/x:v2") -> Object:
    """Edit the spec; the Job that follows."""
    world.patch(KIND, NAME, {"spec": {"source": {"image": image}}})
    world.settle(KIND, NAME)
    return world.running_job(NAME)


def approve(world: World, plan: Object, who: str = "alice") -> None:
    world.client.patch(TERRAFORM_PLAN, name_of(plan), {"spec": {"approved": True, "approvedBy": who}}, TEAM)


def older(world: World, plan: Object) -> None:
    """The plan as an earlier version would have made it, approved."""
    metadata = {key: plan["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    spec = {**plan["spec"], "planHash": "p1:" + "1" * 64, "approved": True, "approvedBy": "alice"}
    world.create(TERRAFORM_PLAN, {"metadata": metadata, "spec": spec}, TEAM)


def arguments(job: Object) -> list[str]:
    args: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


def asj(world: World) -> Object:
    return world.condition(KIND, NAME, "ApplyJobSucceeded")


def asks_for_no_approval(world: World) -> None:
    """No condition does, whichever told of the plan before the deletion."""
    for condition in world.get(KIND, NAME)["status"]["conditions"]:
        message = condition.get("message", "")
        assert "approv" not in message.replace("no approval is needed", ""), condition


class TestGuard:
    """``applyPolicy: Automatic``: only deletions wait."""

    def blocked(self, world: World) -> Object:
        job = change(world)
        assert any(argument == "--guard-deletes" for argument in arguments(job))
        world.finish_job(job, "blocked", plan=PLAN, steps=("init", "validate", "plan"))
        world.settle(KIND, NAME)
        return only_plan(world, "Pending")

    def test_a_blocked_apply_makes_a_plan_and_names_the_command(self, world: World) -> None:
        plan = self.blocked(world)
        assert (plan["spec"]["reason"], plan["spec"]["planHash"]) == ("Destructive", PLAN["hash"])
        assert plan["spec"]["summary"]["replace"] == 1
        assert labels_of(plan)["captf.io/destructive"] == "true"
        condition = asj(world)
        assert (condition["status"], condition["reason"]) == ("False", "DestructivePlanBlocked")
        assert f"kubectl patch terraformplan -n {TEAM} {name_of(plan)}" in condition["message"]
        assert "module.role.terraform_data.network (replace)" in condition["message"]
        assert len(world.events.of("DestructivePlanBlocked", NAME)) == 1
        assert world.get(KIND, NAME)["status"]["pendingPlanRef"] == {"name": name_of(plan)}

    def test_it_waits_ten_minutes_at_most_and_starts_nothing(self, world: World) -> None:
        self.blocked(world)
        jobs = len(world.jobs(NAME))
        assert world.reconcile(KIND, NAME) == 600.0
        world.advance(7200)
        world.reconcile(KIND, NAME)
        assert len(world.jobs(NAME)) == jobs
        assert asj(world)["reason"] == "DestructivePlanBlocked"

    def test_approval_applies_exactly_that_plan(self, world: World) -> None:
        plan = self.blocked(world)
        approve(world, plan)
        world.settle(KIND, NAME)
        job = world.running_job(NAME, op="apply")
        assert f"--expect-plan={PLAN['hash']}" in arguments(job)
        assert annotations_of(job)["captf.io/plan"] == name_of(plan)
        assert [event["note"] for event in world.events.of("PlanApproved")] == [
            f"Plan {name_of(plan)} was approved by alice"
        ]
        world.finish_job(job)
        world.settle(KIND, NAME)
        only_plan(world, "Applied")
        assert asj(world)["reason"] == "ApplySucceeded"
        assert "pendingPlanRef" not in world.get(KIND, NAME)["status"]
        assert len(world.events.of("PlanApplied")) == 1

    def test_an_apply_that_ends_while_paused_settles_its_plan(self, world: World) -> None:
        plan = self.blocked(world)
        approve(world, plan)
        world.settle(KIND, NAME)
        paused = {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}
        world.patch(KIND, NAME, paused)
        world.finish_job(world.running_job(NAME, op="apply"))
        world.settle(KIND, NAME)
        only_plan(world, "Applied")
        world.patch(KIND, NAME, {"metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}})
        world.settle(KIND, NAME)
        only_plan(world, "Applied")
        assert world.events.of("PlanSuperseded") == []

    def test_an_apply_that_is_blocked_while_paused_leaves_its_plan(self, world: World) -> None:
        job = change(world)
        world.patch(KIND, NAME, {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
        world.finish_job(job, "blocked", plan=PLAN, steps=("init", "validate", "plan"))
        world.settle(KIND, NAME)
        only_plan(world, "Pending")

    def test_a_changed_world_fails_the_plan_and_guards_anew(self, world: World) -> None:
        plan = self.blocked(world)
        approve(world, plan)
        world.settle(KIND, NAME)
        world.finish_job(world.running_job(NAME), "plan-changed", plan=OTHER, steps=("init", "plan"))
        world.settle(KIND, NAME)
        only_plan(world, "Failed")
        again = world.running_job(NAME, op="apply")
        assert not any(argument.startswith("--expect-plan") for argument in arguments(again))

    def test_new_inputs_make_the_plan_moot(self, world: World) -> None:
        plan = self.blocked(world)
        job = change(world, "example.com/modules/x:v3")
        only_plan(world, "Superseded")
        assert labels_of(job)["captf.infrastructure.cluster.x-k8s.io/op"] == "apply"
        assert [event["type"] for event in world.events.of("PlanSuperseded")] == ["Normal"]
        assert name_of(plan) in world.events.of("PlanSuperseded")[0]["note"]

    def test_a_change_that_was_taken_back_asks_for_no_approval(self, world: World) -> None:
        self.blocked(world)
        world.patch(KIND, NAME, {"spec": {"source": {"image": IMAGE}}})
        world.settle(KIND, NAME)
        only_plan(world, "Superseded")
        assert asj(world)["reason"] == "ApplySucceeded"

    def test_a_hash_of_another_version_is_planned_again(self, world: World) -> None:
        plan = self.blocked(world)
        world.client.delete(TERRAFORM_PLAN, name_of(plan), TEAM, propagation_policy="Background")
        older(world, plan)
        world.settle(KIND, NAME)
        only_plan(world, "Superseded")
        world.advance(600)
        world.settle(KIND, NAME)
        assert "--guard-deletes" in arguments(world.running_job(NAME, op="apply"))

    def test_a_forged_plan_approves_nothing(self, world: World) -> None:
        plan = self.blocked(world)
        forged = {
            "metadata": {"name": "forged", "labels": {"captf.io/plan-phase": "Approved"}},
            "spec": {**plan["spec"], "approved": True, "approvedBy": "mallory"},
        }
        world.create(TERRAFORM_PLAN, forged, TEAM)
        assert world.reconcile(KIND, NAME) == 600.0
        assert [job for job in world.jobs(NAME) if not job["status"].get("conditions")] == []

    def test_a_plan_that_somebody_made_under_the_coming_name_approves_nothing(self, world: World) -> None:
        job = change(world)
        approved = {"approved": True, "approvedBy": "mallory"}
        forged = {
            "metadata": {"name": names.plan_name(NAME, name_of(job), PLAN["hash"])},
            "spec": {
                "targetRef": {"kind": KIND, "name": NAME},
                "planHash": PLAN["hash"],
                "inputsHash": annotations_of(job)["captf.io/inputs-hash"],
                "reason": "Destructive",
                "summary": {"create": 0, "update": 0, "replace": 1, "delete": 0},
                **approved,
            },
        }
        world.create(TERRAFORM_PLAN, forged, TEAM)
        world.finish_job(job, "blocked", plan=PLAN, steps=("init", "validate", "plan"))
        world.settle(KIND, NAME)
        assert [job for job in world.jobs(NAME) if not job["status"].get("conditions")] == []

    def test_a_deletion_leaves_the_plan_alone_and_needs_no_approval(self, world: World) -> None:
        plan = self.blocked(world)
        version = plan["metadata"]["resourceVersion"]
        world.delete(KIND, NAME)
        world.settle(KIND, NAME)
        destroy = world.running_job(NAME, op="destroy")
        assert not any(argument.startswith("--guard") for argument in arguments(destroy))
        assert only_plan(world, "Pending")["metadata"]["resourceVersion"] == version
        asks_for_no_approval(world)


class TestManual:
    """``applyPolicy: Manual``: every change after the first apply is reviewed."""

    @pytest.fixture
    def manual(self, world: World) -> World:
        world.patch(KIND, NAME, {"spec": {"applyPolicy": "Manual"}})
        world.settle(KIND, NAME)
        return world

    def planned(self, world: World) -> Object:
        job = change(world)
        assert labels_of(job)["captf.infrastructure.cluster.x-k8s.io/op"] == "plan"
        world.finish_job(job, plan=PLAN, steps=("init", "validate", "plan"))
        world.settle(KIND, NAME)
        return only_plan(world, "Pending")

    def test_a_change_is_planned_and_waits_for_approval(self, manual: World) -> None:
        plan = self.planned(manual)
        condition = asj(manual)
        assert (condition["status"], condition["reason"]) == ("Unknown", "PlanAwaitingApproval")
        assert name_of(plan) in condition["message"]
        assert len(manual.events.of("PlanReady")) == 1
        assert manual.reconcile(KIND, NAME) == 600.0
        assert manual.says(KIND, NAME, "Ready") == "True/Ready"

    def test_a_deletion_needs_no_approval(self, manual: World) -> None:
        plan = self.planned(manual)
        manual.delete(KIND, NAME)
        manual.settle(KIND, NAME)
        manual.running_job(NAME, op="destroy")
        assert manual.says(KIND, NAME, "InputsApplied") == "False/AwaitingApproval"
        asks_for_no_approval(manual)
        assert (
            only_plan(manual, "Pending")["metadata"]["resourceVersion"] == plan["metadata"]["resourceVersion"]
        )

    def test_a_plan_that_ends_after_the_deletion_began_asks_for_no_approval(self, manual: World) -> None:
        job = change(manual)
        manual.delete(KIND, NAME)
        manual.settle(KIND, NAME)
        manual.finish_job(job, plan=PLAN, steps=("init", "validate", "plan"))
        manual.settle(KIND, NAME)
        manual.running_job(NAME, op="destroy")
        asks_for_no_approval(manual)
        assert manual.events.of("PlanReady") == []

    def test_the_approved_plan_is_applied(self, manual: World) -> None:
        approve(manual, self.planned(manual))
        manual.settle(KIND, NAME)
        job = manual.running_job(NAME, op="apply")
        assert f"--expect-plan={PLAN['hash']}" in arguments(job)
        manual.finish_job(job)
        manual.settle(KIND, NAME)
        only_plan(manual, "Applied")

    def test_a_plan_without_changes_is_applied_at_once(self, manual: World) -> None:
        manual.finish_job(change(manual), plan={"hash": EMPTY_PLAN_HASH}, steps=("init", "plan"))
        manual.settle(KIND, NAME)
        job = manual.running_job(NAME, op="apply")
        assert f"--expect-plan={EMPTY_PLAN_HASH}" in arguments(job)
        assert plans(manual) == []

    def test_a_changed_plan_waits_as_a_new_one(self, manual: World) -> None:
        approve(manual, self.planned(manual))
        manual.settle(KIND, NAME)
        manual.finish_job(manual.running_job(NAME), "plan-changed", plan=OTHER, steps=("init", "plan"))
        manual.settle(KIND, NAME)
        only_plan(manual, "Failed")
        fresh = only_plan(manual, "Pending")
        assert fresh["spec"]["planHash"] == OTHER["hash"]
        assert asj(manual)["reason"] in ("PlanChanged", "PlanAwaitingApproval")
        assert name_of(fresh) in asj(manual)["message"]

    def test_a_hash_of_another_version_is_planned_again(self, manual: World) -> None:
        plan = self.planned(manual)
        manual.client.delete(TERRAFORM_PLAN, name_of(plan), TEAM, propagation_policy="Background")
        older(manual, plan)
        manual.settle(KIND, NAME)
        only_plan(manual, "Superseded")
        assert manual.running_job(NAME, op="plan")

    def test_going_back_to_automatic_supersedes_it(self, manual: World) -> None:
        self.planned(manual)
        manual.patch(KIND, NAME, {"spec": {"applyPolicy": "Automatic"}})
        manual.settle(KIND, NAME)
        only_plan(manual, "Superseded")
        assert manual.running_job(NAME, op="apply")
