"""An object with a name too long for a label beside one that is named like the hash that stands there for it.

Both bear the same owner labels, and their Jobs of one operation, attempt and inputs hash have the same name.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.world import TEAM, World

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_runtime.objects import JOB, LEASE, SECRET, Object, controller_of, name_of

KIND = "TerraformMachine"
LONG = "n" * 64
SHORT = names.label_value(LONG)
ORDERS = [pytest.param((LONG, SHORT), id="long first"), pytest.param((SHORT, LONG), id="short first")]


def jobs_of(world: World, name: str) -> list[Object]:
    """The unfinished Jobs that the object controls."""
    found = [job for job in world.jobs() if (controller := controller_of(job)) and controller.name == name]
    return [job for job in found if not (job.get("status") or {}).get("conditions")]


def job_of(world: World, name: str) -> Object:
    (job,) = jobs_of(world, name)
    return job


def belongings(world: World, name: str) -> set[str]:
    """What CAPTF keeps for the object, by name."""
    suffix = names.state_suffix(TEAM, KIND, name)
    leases = {name_of(lease) for lease in world.client.list(LEASE, TEAM).items}
    found = {lease for lease in leases if lease.endswith(suffix)}
    found |= {name_of(secret) for secret in world.state_secrets(KIND, name)}
    inputs = (names.durable_inputs_secret(KIND, name), names.applied_inputs_secret(KIND, name))
    return found | {secret for secret in inputs if world.exists(SECRET, secret)}


def provision(world: World, order: Sequence[str]) -> None:
    world.ensure_cluster()
    for name in order:
        world.add(KIND, name)
        world.settle(KIND, name)
    for name in order:
        world.finish_job(job_of(world, name))
    for name in order:
        world.settle(KIND, name)
        assert world.says(KIND, name, "Ready") == "True/Ready"


def same_hash(world: World) -> None:
    """The states of both record the same inputs, and no apply says otherwise: their destroy Jobs share a name."""
    for job in world.jobs():
        world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
    for name in (LONG, SHORT):
        base = names.state_secret(names.state_suffix(TEAM, KIND, name))
        patch: Object = {"metadata": {"annotations": {keys.INPUTS_HASH: "h1:same"}}}
        world.client.patch(SECRET, base, patch, TEAM)


@pytest.mark.parametrize("order", ORDERS)
def test_both_live_and_die_side_by_side(world: World, order: tuple[str, str]) -> None:
    first, second = order
    provision(world, order)
    same_hash(world)
    for name in order:
        world.delete(KIND, name)
    assert world.reconcile(KIND, first) == 60
    destroy = name_of(job_of(world, first))
    assert world.reconcile(KIND, second) == 60
    assert name_of(job_of(world, second)) != destroy
    world.finish_job(job_of(world, first))
    assert world.reconcile(KIND, second) == 60
    kept = belongings(world, second)
    assert len(kept) == 4
    world.settle(KIND, first)
    assert world.find(KIND, first) is None
    assert belongings(world, first) == set()
    assert belongings(world, second) == kept
    assert world.events.of("Destroyed", first)
    world.finish_job(job_of(world, second))
    world.settle(KIND, second)
    assert world.find(KIND, second) is None
    assert belongings(world, second) == set()
    assert [event["related"] for event in world.events.of("JobSucceeded", second)].count(destroy) == 0


@pytest.mark.parametrize("order", ORDERS)
def test_a_job_of_the_other_that_the_cache_does_not_show_is_left_alone(
    world: World, order: tuple[str, str]
) -> None:
    first, second = order
    provision(world, order)
    same_hash(world)
    for name in order:
        world.delete(KIND, name)
    assert world.reconcile(KIND, first) == 60
    job = job_of(world, first)
    world.cache.hidden.add(name_of(job))
    assert world.reconcile(KIND, second) == 5
    assert jobs_of(world, second) == []
    world.finish_job(job)
    # Finished, and not counted yet: what came of it is the first one's.
    assert world.reconcile(KIND, second) == 5
    assert world.exists(JOB, name_of(job))
    world.cache.hidden.clear()
    world.settle(KIND, first)
    assert world.find(KIND, first) is None
    world.step()
    assert world.reconcile(KIND, second) == 60
    world.finish_job(job_of(world, second))
    world.settle(KIND, second)
    assert world.find(KIND, second) is None
