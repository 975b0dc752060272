"""A live object whose state is lost: what its message names as the way out is a way out."""

from __future__ import annotations

import pytest
from tests.world import TEAM, World

from captf_controllers.api import names
from captf_runtime.objects import JOB, SECRET, annotations_of, name_of

KIND, NAME = "TerraformMachine", "m1"


@pytest.fixture
def world(world: World) -> World:
    world.stage(f"{KIND} {NAME} provisioned", lambda: world.provisioned(KIND, NAME))
    return world


def remove(world: World, *secrets: str) -> None:
    for secret in secrets:
        world.client.delete(SECRET, secret, TEAM, propagation_policy="Background")


def test_a_machine_whose_state_records_no_apply_is_restored_on_request(world: World) -> None:
    serial = world.serial(KIND, NAME)
    state = names.state_secret(names.state_suffix(TEAM, KIND, NAME))
    forget = {"metadata": {"annotations": {"captf.io/inputs-hash": None}}}
    world.client.patch(SECRET, state, forget, TEAM)
    remove(world, f"captf-inputs-m-{NAME}", f"captf-applied-m-{NAME}")
    for job in world.jobs(NAME):
        world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
    assert world.settle(KIND, NAME) == 60.0
    condition = world.condition(KIND, NAME, "StateReadable")
    assert (condition["status"], condition["reason"]) == ("False", "StateLost")
    assert "captf.io/restore-state" in condition["message"]

    world.annotate(KIND, NAME, restore_state=str(serial))
    world.settle(KIND, NAME)
    world.finish_job(world.running_job(NAME, op="restore"))
    world.settle(KIND, NAME)
    assert world.says(KIND, NAME, "StateReadable") == "True/StateRead"
    assert world.says(KIND, NAME, "RestoreJobSucceeded") == "True/StateRestored"


def test_a_machine_whose_state_is_gone_is_restored_on_request(world: World) -> None:
    serial = world.serial(KIND, NAME)
    remove(world, names.state_secret(names.state_suffix(TEAM, KIND, NAME)))
    assert world.settle(KIND, NAME) == 60.0
    assert world.says(KIND, NAME, "StateReadable") == "False/StateLost"
    world.annotate(KIND, NAME, restore_state=str(serial))
    world.settle(KIND, NAME)
    world.finish_job(world.running_job(NAME, op="restore"))
    world.settle(KIND, NAME)
    assert world.says(KIND, NAME, "StateReadable") == "True/StateRead"


def test_a_state_that_goes_while_it_is_adopted_is_lost_and_not_absent(world: World) -> None:
    """Taken for absent it would be applied anew, beside what there is."""
    world.add(KIND, "m2")
    world.settle(KIND, "m2")
    world.finish_job(world.running_job("m2", op="apply"))
    state = names.state_secret(names.state_suffix(TEAM, KIND, "m2"))

    def lose_when_adopted(_: int) -> None:
        if world.exists(SECRET, state) and "captf.io/inputs-hash" in annotations_of(
            world.client.get(SECRET, state, TEAM)
        ):
            remove(world, state)

    world.write_watch.watch(lose_when_adopted)
    world.reconcile(KIND, "m2")
    world.write_watch.watch(None)
    assert not world.exists(SECRET, state)
    assert len(world.jobs("m2", op="apply")) == 1
    world.settle(KIND, "m2")
    assert world.says(KIND, "m2", "StateReadable") == "False/StateLost"
    assert len(world.jobs("m2", op="apply")) == 1


def test_a_restore_ends_what_the_object_notes_of_an_unknown_apply(world: World) -> None:
    world.add(KIND, "m2")
    world.settle(KIND, "m2")
    world.write_state(KIND, "m2", outputs={})
    world.finish_job(world.running_job("m2", op="apply"), "failed")
    world.settle(KIND, "m2")
    serial = world.serial(KIND, "m2")
    remove(world, names.state_secret(names.state_suffix(TEAM, KIND, "m2")), "captf-inputs-m-m2")
    world.annotate(KIND, "m2", unconfirmed_apply="captf-m-m2-apply-a1-abcdef", restore_state=str(serial))
    world.settle(KIND, "m2")
    world.finish_job(world.running_job("m2", op="restore"))
    world.reconcile(KIND, "m2")
    assert "captf.io/unconfirmed-apply" not in annotations_of(world.get(KIND, "m2"))


def test_a_record_without_its_files_is_nothing_to_apply_again(world: World) -> None:
    """An empty root in their place would be a plan to destroy what there is."""
    state = names.state_secret(names.state_suffix(TEAM, KIND, NAME))
    forget = {"metadata": {"annotations": {"captf.io/inputs-hash": None}}}
    world.client.patch(SECRET, state, forget, TEAM)
    for job in world.jobs(NAME):
        world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
    for record in (f"captf-inputs-m-{NAME}", f"captf-applied-m-{NAME}"):
        world.client.patch(SECRET, record, {"data": {"main.tf.json": None}}, TEAM)
    assert world.settle(KIND, NAME) == 60.0
    assert world.jobs(NAME) == []
    assert world.says(KIND, NAME, "StateReadable") == "False/StateLost"


def test_chunks_keep_their_owner_while_a_job_may_be_writing_them(world: World) -> None:
    """Of a Job that no cache shows yet there is the run lease; a runtime whose state changed cannot store its own."""
    state = names.state_secret(names.state_suffix(TEAM, KIND, NAME))
    world.client.patch(SECRET, state, {"metadata": {"ownerReferences": None}}, TEAM)
    version = world.client.get(SECRET, state, TEAM)["metadata"]["resourceVersion"]
    world.hold_run_lease(KIND, NAME, "captf-m-m1-refresh-a1-abcdef", op="refresh")
    world.reconcile(KIND, NAME)
    assert world.client.get(SECRET, state, TEAM)["metadata"]["resourceVersion"] == version
    world.advance(61)
    world.reconcile(KIND, NAME)
    assert world.client.get(SECRET, state, TEAM)["metadata"]["ownerReferences"]
    assert len(world.events.of("OwnerReferencesRepaired", NAME)) == 1
