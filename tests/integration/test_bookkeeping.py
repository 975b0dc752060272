"""What a finished Job leaves on record, also where the record itself is refused."""

from __future__ import annotations

import pytest
from tests.world import TEAM, World

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_runtime.objects import NAMESPACE, SECRET, annotations_of, name_of

KIND, NAME = "TerraformMachine", "m1"


@pytest.fixture
def world(world: World) -> World:
    world.ensure_cluster()
    return world


def test_a_success_is_remembered_where_its_inputs_cannot_be_recorded(world: World) -> None:
    """A terminating namespace refuses the applied record, and has already taken state and inputs."""
    world.add(KIND, NAME)
    world.settle(KIND, NAME)
    world.finish_job(world.running_job(NAME, op="apply"))
    world.client.delete(NAMESPACE, TEAM, propagation_policy="Background")
    for secret in (*world.state_secrets(KIND, NAME), {"metadata": {"name": f"captf-inputs-m-{NAME}"}}):
        world.client.delete(SECRET, name_of(secret), TEAM, propagation_policy="Background")
    world.delete(KIND, NAME)
    world.reconcile(KIND, NAME)
    assert len(world.events.of("AppliedInputsUnknown", NAME)) == 1
    assert not world.released(KIND, NAME)
    assert world.says(KIND, NAME, "StateReadable") == "False/StateLost"
    suffix = names.state_suffix(TEAM, KIND, NAME)
    assert annotations_of(world.get(KIND, NAME))[keys.APPLIED_AS] == suffix


def test_an_older_state_restored_in_the_second_of_an_apply_is_applied_again(world: World) -> None:
    """Kubernetes records whole seconds; of two Jobs that ended in the same one, the later one wrote the state."""
    world.patch("TerraformCluster", "prod", {"spec": {"variables": {"size": 2}}})
    world.settle("TerraformCluster", "prod")
    second = world.running_job("prod", op="apply")
    world.advance(1)
    world.annotate("TerraformCluster", "prod", restore_state="1")
    world.finish_job(second)
    world.settle("TerraformCluster", "prod")
    restore = world.running_job("prod", op="restore")
    world.finish_job(restore)
    world.settle("TerraformCluster", "prod")
    third = world.running_job("prod", op="apply")
    assert name_of(third) != name_of(second)
    world.finish_job(third)
    world.settle("TerraformCluster", "prod")
    assert world.says("TerraformCluster", "prod", "InputsApplied") == "True/InputsApplied"
