"""Modules that make nothing: the state of their applies lists no resources, and is the object's own all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.world import OUTPUTS, World

NAME = "prod"
KINDS = ("TerraformCluster", "TerraformMachine", "TerraformMachinePool")
pytestmark = pytest.mark.parametrize("kind", KINDS)


def apply(world: World, kind: str, outputs: Mapping[str, Any]) -> None:
    if kind != "TerraformCluster":
        world.ensure_cluster()
    world.add(kind, NAME, cluster="prod")
    world.settle(kind, NAME)
    world.finish_job(world.running_job(NAME, op="apply"), state=outputs, resources=0)
    world.settle(kind, NAME)


def test_outputs_alone_are_a_state(world: World, kind: str) -> None:
    apply(world, kind, OUTPUTS[kind])
    assert world.says(kind, NAME, "StateReadable") == "True/StateRead"
    assert world.says(kind, NAME, "Ready") == "True/Ready"


def test_a_module_without_outputs_is_told_what_it_lacks(world: World, kind: str) -> None:
    apply(world, kind, {})
    assert world.says(kind, NAME, "StateReadable") == "True/StateRead"
    assert world.says(kind, NAME, "OutputsValid") == "False/OutputsMissing"


def test_it_is_destroyed(world: World, kind: str) -> None:
    apply(world, kind, {})
    world.finish_job(world.running_job(NAME, op="refresh"))
    world.settle(kind, NAME)
    world.delete(kind, NAME)
    world.settle(kind, NAME)
    world.finish_job(world.running_job(NAME, op="destroy"))
    world.settle(kind, NAME)
    assert world.released(kind, NAME)
