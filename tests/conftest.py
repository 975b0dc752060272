"""One world for every test of a session that wants a fresh one, brought back to its beginning before each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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
