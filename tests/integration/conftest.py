"""The objects under test, in the world that the tests of a session share."""

from __future__ import annotations

import pytest
from tests.deletion_case import KINDS, Case
from tests.world import World


@pytest.fixture(params=sorted(KINDS))
def case(world: World, request: pytest.FixtureRequest) -> Case:
    """An object of each kind in turn."""
    return Case(world, request.param)


@pytest.fixture(params=["TerraformCluster", "TerraformMachinePool"])
def mutable_case(world: World, request: pytest.FixtureRequest) -> Case:
    """An object of each kind whose changed spec is applied again."""
    return Case(world, request.param)


@pytest.fixture
def cluster_case(world: World) -> Case:
    """A TerraformCluster."""
    return Case(world, "TerraformCluster")


@pytest.fixture
def machine_case(world: World) -> Case:
    """A TerraformMachine."""
    return Case(world, "TerraformMachine")
