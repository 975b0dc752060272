"""One world for every test of a session, brought back to its beginning before each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.deletion_case import KINDS, Case
from tests.world import World


@pytest.fixture(scope="session")
def shared_world() -> Iterator[World]:
    """The world that tests share; take ``world`` instead."""
    with World() as world:
        yield world


@pytest.fixture
def world(shared_world: World) -> World:
    """A world as it is at its beginning: definitions, namespaces, an identity and nothing else."""
    shared_world.stage("the beginning", lambda: None)
    return shared_world


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
