"""The API server is out of reach for a while: the manager goes on by itself and loses nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from hack.tour import manifests
from hack.tour.stage import Stage, find_runtime
from hack.tour.story import MACHINES, Story
from hack.tour.waiting import wait_until
from tests.e2e.gateway import Gateway
from tests.e2e.scene import PATIENCE

from captf_controllers.api.kinds import CLUSTER, MACHINE, TERRAFORM_CLUSTER, TERRAFORM_MACHINE
from captf_controllers.jobs.views import view_job
from captf_runtime.objects import JOB

pytestmark = [pytest.mark.terraform, pytest.mark.slow]

#: Seconds without an API server; five minutes with CAPTF_OUTAGE_SECONDS=300.
OUTAGE = float(os.environ.get("CAPTF_OUTAGE_SECONDS", "20"))


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(runtime=find_runtime()) as stage:
        yield stage


@pytest.mark.timeout(900 + OUTAGE)
def test_the_manager_outlives_an_outage_and_does_what_came_in_the_meantime(stage: Stage) -> None:
    with Gateway(stage.kubeconfig) as gateway:
        manager = stage.start_manager(f"--kubeconfig={gateway.kubeconfig(stage.folder)}")
        story = Story(stage.client, namespace="outage", patience=PATIENCE, alive=stage.check_manager)
        story.prepare()
        story.create_cluster()
        story.wait_ready(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
        story.report_infrastructure()
        first, second = MACHINES
        story.create_machine(first)
        story.wait_ready(TERRAFORM_MACHINE, first)
        with gateway.cut():
            story.delete(TERRAFORM_MACHINE, first)
            story.create_machine(second)
            threading.Event().wait(OUTAGE)
            wait_until(lambda: gateway.refused, "the manager tries to reach the API server")
            assert manager.process.poll() is None
            operations = [view_job(job).op for job in stage.client.list(JOB, story.namespace).items]
            assert "destroy" not in operations, "it acted without an API server"
        story.wait_gone(TERRAFORM_MACHINE, first)
        story.wait_ready(TERRAFORM_MACHINE, second)
        story.delete(MACHINE, first)
        story.delete(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
        story.delete(TERRAFORM_MACHINE, second)
        story.wait_gone(TERRAFORM_MACHINE, second)
        story.delete(MACHINE, second)
        story.wait_gone(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
        story.delete(CLUSTER, manifests.CLUSTER_NAME)
        assert story.wait_clean(seconds=PATIENCE) == []
        assert manager.process.poll() is None
        assert stage.stop_manager() == 0


ELECTION = (
    "--leader-elect",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=1s",
)


class Deployment:
    """Starts a manager with short leases, and another when that one has lost its lease, as in a cluster.

    On a machine that stands still for a moment a leader loses its lease also while nothing is wrong.
    """

    def __init__(self, stage: Stage, *flags: str) -> None:
        self._stage, self._flags = stage, (*flags, *ELECTION)
        self._manager = stage.start_manager(*self._flags)

    def lost(self) -> bool:
        """Whether the manager has ended because it lost its lease; fails when it ended otherwise."""
        status = self._manager.process.poll()
        if status is None:
            return False
        log = self._manager.log.read_text()
        assert status == 1, log
        assert "leader election lost" in log
        return True

    def keep(self) -> None:
        """See to it that a manager runs."""
        if self.lost():
            self._manager = self._stage.start_manager(*self._flags)

    def leads(self) -> bool:
        """Whether the manager that runs has become the leader."""
        self.keep()
        return "became the leader" in self._manager.log.read_text()

    def stop(self) -> int:
        """Stop the leader, and if it lost its lease just then the next one; the status."""
        while True:
            wait_until(self.leads, "a manager leads", seconds=PATIENCE)
            status = self._stage.stop_manager()
            if status != 1:
                return status or 0


def test_a_leader_that_lost_its_lease_ends_and_the_next_one_goes_on(stage: Stage) -> None:
    """With leader election a manager that cannot renew ends with status 1: the Deployment starts another."""
    with Gateway(stage.kubeconfig) as gateway:
        deployment = Deployment(stage, f"--kubeconfig={gateway.kubeconfig(stage.folder)}")
        story = Story(stage.client, namespace="outage-leader", patience=PATIENCE, alive=deployment.keep)
        story.prepare()
        story.create_cluster()
        story.wait_ready(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
        wait_until(deployment.leads, "a manager leads", seconds=PATIENCE)
        with gateway.cut():
            story.delete(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
            wait_until(deployment.lost, "the leader ends", seconds=PATIENCE)
            operations = [view_job(job).op for job in stage.client.list(JOB, story.namespace).items]
            assert "destroy" not in operations, "it acted without an API server"
        story.wait_gone(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
        assert story.wait_clean(seconds=PATIENCE) == []
        assert deployment.stop() == 0
