"""A live object whose state is lost: what its message names as the way out is a way out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.world import TEAM, World

from captf_controllers.api import names
from captf_runtime.objects import JOB, SECRET, name_of

KIND, NAME = "TerraformMachine", "m1"


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        made.provisioned(KIND, NAME)
        yield made


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
