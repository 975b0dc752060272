"""What a pass that fails leaves of what an earlier one told."""

from __future__ import annotations

import pytest
from tests.world import World

from captf_runtime.client.errors import ApiError
from captf_runtime.objects import name_of
from captf_runtime.testing.faults import Match, internal_error


def test_what_a_deletion_waits_for_stays_told(world: World) -> None:
    kind = "TerraformMachine"
    world.ensure_cluster()
    world.provisioned(kind, "m1")
    world.delete(kind, "m1")
    world.settle(kind, "m1")
    job = world.running_job("m1")
    told = world.condition(kind, "m1", "Deleting")
    assert name_of(job) in told["message"]
    fault = world.server.faults.add(Match(resource="secrets", verb="get,list"), internal_error())
    with pytest.raises((ApiError, ExceptionGroup)):
        world.reconcile(kind, "m1")
    fault.remove()
    assert world.condition(kind, "m1", "Deleting") == told
    world.finish_job(job)
    world.settle(kind, "m1")
    assert world.find(kind, "m1") is None
