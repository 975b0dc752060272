"""A cluster and its machines change at the same time, and the manager dies: judged by the API's own history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hack.tour.story import condition, provisioned
from tests.e2e.conftest import QUICK_CLUSTER, QUICK_MACHINE
from tests.e2e.history import History
from tests.e2e.scene import CLOUD_CLUSTER, CLOUD_MACHINE, Scene, Subject

from captf_controllers.api.kinds import TERRAFORM_CLUSTER, TERRAFORM_MACHINE
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import Object, name_of

pytestmark = [pytest.mark.terraform, pytest.mark.slow]

SEED = 20260925
KILLS = 6


def change_together(
    scene: Scene, history: History, images: tuple[str, str], machines: int, disturb: Callable[[], None]
) -> None:
    """Machines come and go, and each time the cluster's variables change before they are done.

    ``disturb`` is called again and again meanwhile.
    """
    cluster_image, machine_image = images

    def in_the_way() -> set[str]:
        disturb()
        return waits(scene)

    cluster = scene.cluster(image=cluster_image, variables={"generation": 0})
    cluster.wait_ready()
    scene.report_infrastructure()
    if machine_image == CLOUD_MACHINE:
        scene.cloud.hold("create")
    made = [scene.machine(f"m{index}", image=machine_image) for index in range(machines)]
    cluster.set_variables(generation=1)
    if machine_image == CLOUD_MACHINE:
        # Else they might be done before the cluster gets to its change.
        scene.wait(in_the_way, "one is in the other's way")
        scene.cloud.release("create")
    wait_all(scene, cluster, made, disturb, gone=False)
    history.catch_up()
    assert len(of_kind(history, "TerraformCluster", "apply")) == 2
    for machine in made:
        machine.delete()
    cluster.set_variables(generation=2)
    wait_all(scene, cluster, made, disturb, gone=True)


def wait_all(
    scene: Scene, cluster: Subject, machines: Sequence[Subject], disturb: Callable[[], None], *, gone: bool
) -> None:
    """Until the cluster has applied what it says, and the machines are there or gone.

    What waits for another's Job is made to look again at once: the more passes, the better the test.
    """

    def settled() -> bool:
        disturb()
        present = scene.client.list(TERRAFORM_MACHINE, scene.namespace).items
        found = {name_of(obj): obj for obj in present}
        left = [machine for machine in machines if not done(found.get(machine.name), gone)]
        waiting = [cluster] if not applied(cluster) else []
        for subject in [*waiting, *left]:
            touch_if_waiting(subject)
        return not left and not waiting

    # A manager that is killed between a Job and its Secret costs a minute.
    scene.wait(settled, "all have settled", seconds=600, every=0.5)


def done(machine: Object | None, gone: bool) -> bool:
    if machine is None or gone:
        return machine is None
    return provisioned(machine) and condition(machine, "Ready").get("status") == "True"


def applied(cluster: Subject) -> bool:
    found = condition(cluster.object, "InputsApplied")
    return found.get("status") == "True" and (
        found.get("observedGeneration") == cluster.object["metadata"]["generation"]
    )


def touch_if_waiting(subject: Subject) -> None:
    try:
        if condition(subject.object, "ApplyJobSucceeded").get("reason", "").startswith("WaitingFor"):
            subject.touch()
    except NotFound:
        return  # gone meanwhile


def of_kind(history: History, kind: str, op: str) -> list[str]:
    """The objects of that kind whose Jobs of that operation ran, one for each Job."""
    return [
        operation.job.owner_name
        for operation in history.operations()
        if (operation.job.owner_kind, operation.job.op) == (kind, op) and operation.ran
    ]


def waits(scene: Scene) -> set[str]:
    """What objects said, or say, that they wait for of each other's: a manager that is killed takes events along."""
    said = {str(event["reason"]) for event in scene.events()}
    for kind in (TERRAFORM_CLUSTER, TERRAFORM_MACHINE):
        for obj in scene.client.list(kind, scene.namespace).items:
            said.add(str(condition(obj, "ApplyJobSucceeded").get("reason")))
    return said & {"WaitingForMachineOperations", "WaitingForClusterOperation"}


def check(history: History, machines: int) -> None:
    assert history.violations() == []
    once = Counter(f"m{index}" for index in range(machines))
    assert Counter(of_kind(history, "TerraformMachine", "apply")) == once
    assert Counter(of_kind(history, "TerraformMachine", "destroy")) == once
    assert len(of_kind(history, "TerraformCluster", "apply")) == 3


def test_forty_machines_and_their_cluster_change_at_the_same_time(local_scene: Scene) -> None:
    """With a runtime that is quick: what is tested is the manager, forty times at once."""
    scene = local_scene
    with History(scene.client, scene.namespace) as history:
        change_together(scene, history, (QUICK_CLUSTER, QUICK_MACHINE), 40, lambda: None)
    check(history, 40)
    assert waits(scene), "they were in each other's way"


def test_machines_and_their_cluster_change_at_the_same_time(scene: Scene) -> None:
    with History(scene.client, scene.namespace) as history:
        change_together(scene, history, (CLOUD_CLUSTER, CLOUD_MACHINE), 3, lambda: None)
    check(history, 3)
    assert scene.cloud.servers("m0") == []


def test_the_manager_is_killed_at_random_moments_meanwhile(local_scene: Scene) -> None:
    """SIGKILL after a random number of events, over and over: nothing runs twice, nothing is left."""
    scene, chance = local_scene, random.Random(SEED)
    moments = sorted(chance.sample(range(4, 70), KILLS))

    def kill() -> None:
        if moments and history.count >= moments[0]:
            while moments and history.count >= moments[0]:
                moments.pop(0)
            scene.stage.kill_manager()
            scene.stage.start_manager()

    with History(scene.client, scene.namespace) as history:
        change_together(scene, history, (CLOUD_CLUSTER, CLOUD_MACHINE), 3, kill)
    assert moments == [], "every kill took place"
    check(history, 3)
    for index in range(3):
        servers = [f"{scene.namespace}.m{index}.{number}" for number in range(2)]
        for call in ("create", "destroy"):
            made = [name for name in scene.cloud.calls(call) if name in servers]
            assert sorted(made) == servers, "each server was made and removed once"
