"""What a finished Job leaves on record, also where the record itself is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.world import TEAM, World

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_runtime.objects import NAMESPACE, SECRET, annotations_of, name_of

KIND, NAME = "TerraformMachine", "m1"


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        made.ensure_cluster()
        made.add(KIND, NAME)
        made.settle(KIND, NAME)
        yield made


def test_a_success_is_remembered_where_its_inputs_cannot_be_recorded(world: World) -> None:
    """A terminating namespace refuses the applied record, and has already taken state and inputs."""
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
