"""What chaos found once, told again as plain stories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.chaos.cloud import Site, finished
from tests.chaos.witness import Fault, WitnessedWorld
from tests.world import TEAM

from captf_controllers.api import annotations as keys
from captf_runtime.objects import JOB, NAMESPACE, SECRET, Object, annotations_of, name_of
from captf_runtime.testing import faults

CLUSTER = Site("TerraformCluster", "prod")
MACHINE = Site("TerraformMachine", "m1")
POOL = Site("TerraformMachinePool", "p1")
SITES = (CLUSTER, MACHINE, POOL)


@pytest.fixture(scope="module")
def shared() -> Iterator[WitnessedWorld]:
    with WitnessedWorld() as world:
        yield world


@pytest.fixture
def world(shared: WitnessedWorld) -> WitnessedWorld:
    shared.stage_cloud("the beginning", lambda: None)
    shared.runners_look = True
    return shared


def provision(world: WitnessedWorld, site: Site) -> None:
    world.add(site.kind, site.name)
    world.provision(site.kind, site.name)


def applying(world: WitnessedWorld, site: Site) -> None:
    """The first apply of an object runs."""
    if site != CLUSTER:
        provision(world, CLUSTER)
    world.add(site.kind, site.name)
    for _ in range(3):
        world.witness(site)
    for job in world.unfinished(site):
        world.begin(job)


def test_a_failed_drift_check_is_told_once(world: WitnessedWorld) -> None:
    """A later pass no longer has the runner's result, and must not tell another story than the first."""
    provision(world, CLUSTER)
    world.advance(2000)
    world.witness(CLUSTER)
    for job in world.unfinished(CLUSTER):
        world.finish(job, "failed")
    lost = Fault(faults.internal_error(after_commit=True), "create,update,patch,delete", after=2)
    world.witness(CLUSTER, fault=lost)
    for _ in range(3):
        world.witness(CLUSTER)
    told = [event for event in world.events.of("JobFailed") if "drift" in event["related"]]
    assert len(told) == 1
    assert "step validate failed" in world.condition(*place(CLUSTER), "DriftJobSucceeded")["message"]


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.kind)
def test_a_namespace_deleted_while_the_first_apply_runs_holds_the_object(
    world: WitnessedWorld, site: Site
) -> None:
    """State, records and Job go at once: only the object itself can remember that an apply ran."""
    applying(world, site)
    world.client.delete(NAMESPACE, TEAM, propagation_policy="Background")
    for job in world.unfinished():
        world.kill(job, "done-unwritten")
    world.step()
    assert not world.secrets_of(site)
    for _ in range(3):
        world.witness(site)
    obj = world.object_at(site)
    assert obj is not None
    assert world.says(*place(site), "StateReadable") == "False/ApplyOutcomeUnknown"
    recorded = annotations_of(obj)[keys.UNCONFIRMED_APPLY]
    assert recorded in world.condition(*place(site), "StateReadable")["message"]
    # The one who looked at the provider says that nothing is left there.
    world.cloud.excuse(site, "removed by hand")
    world.annotate(*place(site), confirm_no_resources=recorded)
    world.witness(site)
    assert not world.guarded(site)


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.kind)
def test_a_first_apply_that_vanished_with_its_records_is_not_repeated(
    world: WitnessedWorld, site: Site
) -> None:
    applying(world, site)
    for secret in world.secrets_of(site):
        world.remove(SECRET, name_of(secret))
    for job in world.unfinished(site):
        world.kill(job, "done-unwritten")
    for _ in range(3):
        world.witness(site)
    assert world.says(*place(site), "StateReadable") == "False/ApplyOutcomeUnknown"
    assert not world.unfinished(site)


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.kind)
def test_a_namespace_deleted_right_after_the_first_apply_holds_the_object(
    world: WitnessedWorld, site: Site
) -> None:
    """The apply succeeded, no pass has seen that, and every Secret is gone; its Job still is there."""
    applying(world, site)
    for job in world.unfinished(site):
        world.finish(job, "succeeded")
    for secret in world.secrets_of(site):
        world.remove(SECRET, name_of(secret))
    world.delete(*place(site))
    for _ in range(3):
        world.witness(site)
    assert world.says(*place(site), "StateReadable") == "False/StateLost"


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.kind)
@pytest.mark.parametrize("runner", ["looks", "does not look"])
def test_a_destroy_that_found_no_state_destroyed_nothing(
    world: WitnessedWorld, site: Site, runner: str
) -> None:
    """Terraform takes a missing state for an empty one and is content; the object is held until a restore."""
    world.runners_look = runner == "looks"
    destroy = destroying(world, site)
    for name in world.state_of(site).secrets:
        world.remove(SECRET, name)
    world.finish(destroy, "succeeded")
    for _ in range(3):
        world.witness(site)
    assert world.says(*place(site), "StateReadable") == "False/StateLost"
    message = world.condition(*place(site), "StateReadable")["message"]
    assert "captf.io/restore-state" in message
    if runner == "does not look":
        assert name_of(destroy) in message
    # Without the Job that told, the object still says that it applied before.
    world.remove(JOB, name_of(destroy))
    world.witness(site)
    assert world.says(*place(site), "StateReadable") == "False/StateLost"
    restored_and_destroyed(world, site)


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.kind)
@pytest.mark.parametrize("when", ["before it began", "while it ran"])
def test_what_a_destroy_left_of_a_lost_state_may_go_too(world: WitnessedWorld, site: Site, when: str) -> None:
    """The state goes, and then the empty one that the runtime made in its place, before any pass looks."""
    destroy = destroying(world, site)
    if when == "while it ran":
        world.begin(destroy)
    for _ in range(2):
        for name in world.state_of(site).secrets:
            world.remove(SECRET, name)
        if not finished(world.client.get(JOB, name_of(destroy), TEAM)):
            world.finish(destroy, "succeeded")
    for _ in range(3):
        world.witness(site)
    assert world.says(*place(site), "StateReadable") == "False/StateLost"
    restored_and_destroyed(world, site)


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.kind)
@pytest.mark.parametrize(
    ("runner", "when"), [("looks", "while it ran"), ("does not look", "before it began")]
)
def test_a_refresh_that_found_no_state_makes_none_that_counts(
    world: WitnessedWorld, site: Site, runner: str, when: str
) -> None:
    """It stores a state with outputs and without resources; a destroy of that would remove nothing."""
    world.runners_look = runner == "looks"
    if site != CLUSTER:
        provision(world, CLUSTER)
    provision(world, site)
    world.advance(2000)
    world.witness(site)
    (check,) = world.unfinished(site)
    if when == "while it ran":
        world.begin(check)
    for name in world.state_of(site).secrets:
        world.remove(SECRET, name)
    world.finish(check, "succeeded")
    for _ in range(3):
        world.witness(site)
    assert world.says(*place(site), "StateReadable") == "False/StateLost"
    assert not world.unfinished(site)
    world.delete(*place(site))
    for _ in range(3):
        world.witness(site)
    assert world.says(*place(site), "StateReadable") == "False/StateLost"
    assert not world.unfinished(site)
    # Without the Job that told, the backups still do.
    world.remove(JOB, name_of(check))
    world.witness(site)
    assert world.says(*place(site), "StateReadable") == "False/StateLost"
    restored_and_destroyed(world, site)


def destroying(world: WitnessedWorld, site: Site) -> Object:
    """The destroy Job of the object, which has not begun."""
    if site != CLUSTER:
        provision(world, CLUSTER)
    provision(world, site)
    world.delete(*place(site))
    world.witness(site)
    (destroy,) = world.unfinished(site)
    return destroy


def restored_and_destroyed(world: WitnessedWorld, site: Site) -> None:
    """The newest backup is asked for, and the object ends with nothing left."""
    serial = world.get(*place(site))["status"]["stateBackups"][0]["serial"]
    world.annotate(*place(site), restore_state=str(serial))
    for _ in range(8):
        world.witness(site)
        for job in world.unfinished(site):
            world.finish(job, "succeeded")
        world.advance(120)
    assert not world.guarded(site)
    assert not world.cloud.tracked(site)


def place(site: Site) -> tuple[str, str]:
    return site.kind, site.name
