"""Leader election against an API server: what it writes is accepted, and races are decided by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.integration.targets import Target
from tests.unit.runtime.fakes import DEADLINE, eventually

from captf_runtime.client import Client
from captf_runtime.election import ElectionTimes, LeaderElector, LeadershipLost
from captf_runtime.objects import LEASE, parse_time
from captf_runtime.testing import faults
from captf_runtime.testing.apiserver import ApiServer

STEADY = ElectionTimes(lease_duration=60.0, renew_deadline=40.0, retry_period=0.1)
BRIEF = ElectionTimes(lease_duration=1.5, renew_deadline=1.0, retry_period=0.1)


class Candidate:
    def __init__(
        self,
        client: Client,
        namespace: str,
        identity: str,
        times: ElectionTimes = STEADY,
        on_lead: Callable[[], None] = lambda: None,
    ) -> None:
        self.errors: list[BaseException] = []
        self.on_lead = on_lead
        self.led = threading.Event()
        self.lost = threading.Event()
        self.stop = threading.Event()
        self.elector = LeaderElector(
            client,
            namespace=namespace,
            name="leader",
            identity=identity,
            times=times,
            on_started=self._lead,
            on_lost=self.lost.set,
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _lead(self, stop: threading.Event) -> None:
        self.on_lead()
        self.led.set()
        stop.wait()

    def _run(self) -> None:
        try:
            self.elector.run(self.stop)
        except LeadershipLost as error:
            self.errors.append(error)

    def end(self) -> None:
        self.stop.set()
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()


@pytest.mark.requirement("LE2", "LE3", "LE4", "LE9")
def test_acquire_renew_release(client: Client, namespace: str) -> None:
    first = Candidate(client, namespace, "first")
    eventually(lambda: first.elector.is_leader)
    acquired = client.get(LEASE, "leader", namespace)
    assert acquired["spec"]["holderIdentity"] == "first"
    assert acquired["spec"]["leaseTransitions"] == 0
    client.patch(LEASE, "leader", {"metadata": {"labels": {"keep": "me"}}}, namespace)

    def renewed() -> bool:
        spec = client.get(LEASE, "leader", namespace)["spec"]
        return parse_time(spec["renewTime"]) > parse_time(acquired["spec"]["renewTime"])

    eventually(renewed)
    first.end()
    left = client.get(LEASE, "leader", namespace)
    assert left["spec"]["holderIdentity"] == ""
    assert left["spec"]["leaseDurationSeconds"] == 1
    assert left["metadata"]["labels"] == {"keep": "me"}
    second = Candidate(client, namespace, "second")
    eventually(lambda: second.elector.is_leader)
    assert client.get(LEASE, "leader", namespace)["spec"]["leaseTransitions"] == 1
    second.end()


@pytest.mark.requirement("LE2")
def test_of_many_candidates_one_leads_at_a_time(client: Client, namespace: str) -> None:
    candidates = [Candidate(client, namespace, f"c{number}") for number in range(5)]
    leaders = []
    for _ in range(len(candidates)):
        eventually(lambda: any(candidate.elector.is_leader for candidate in candidates))
        leading = [candidate for candidate in candidates if candidate.elector.is_leader]
        assert len(leading) == 1
        leaders.append(leading[0].elector.identity)
        leading[0].end()
        candidates.remove(leading[0])
    assert len(set(leaders)) == 5
    assert client.get(LEASE, "leader", namespace)["spec"]["leaseTransitions"] == 4


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as made:
        yield made


@pytest.mark.requirement("LE2", "LE6")
def test_a_leader_that_is_cut_off_is_replaced(server: ApiServer) -> None:
    with (
        Client.from_config(kubeconfig=str(server.kubeconfig(user="one"))) as one,
        Client.from_config(kubeconfig=str(server.kubeconfig(user="two"))) as two,
    ):
        first = Candidate(one, "default", "first", BRIEF)
        assert first.led.wait(DEADLINE)
        # On a machine that was held up it may lose its lease without the fault; what is seen is the same.
        open_then: list[bool] = []
        second = Candidate(
            two, "default", "second", BRIEF, lambda: open_then.append(first.elector.fence.is_open)
        )
        fault = server.faults.add(faults.Match(resource="leases", user="one"), faults.unavailable())
        assert first.lost.wait(DEADLINE)
        assert not first.elector.fence.is_open
        assert second.led.wait(DEADLINE)
        assert open_then == [False]  # the first one may do nothing more before another takes over
        fault.remove()
        second.end()
        first.thread.join(DEADLINE)
        assert [str(error) for error in first.errors] == ["leader election lost"]


@pytest.mark.requirement("LE4", "LE5")
def test_a_renewal_whose_answer_is_lost_is_no_loss(server: ApiServer) -> None:
    with Client.from_config(kubeconfig=str(server.kubeconfig())) as client:
        candidate = Candidate(client, "default", "first")
        eventually(lambda: candidate.elector.is_leader)
        fault = server.faults.add(
            faults.Match(verb="update", resource="leases"), faults.reset(after_commit=True), times=2
        )
        eventually(lambda: fault.hits == 2)
        version = client.get(LEASE, "leader", "default")["metadata"]["resourceVersion"]
        eventually(lambda: client.get(LEASE, "leader", "default")["metadata"]["resourceVersion"] != version)
        assert candidate.elector.is_leader
        candidate.end()
        assert candidate.errors == []


@pytest.mark.requirement("LE3")
def test_its_times_pass_the_servers_check(client: Client, namespace: str, target: Target) -> None:
    candidate = Candidate(client, namespace, "first", ElectionTimes(150.0, 100.0, 80.0))
    eventually(lambda: candidate.elector.is_leader)
    spec = client.get(LEASE, "leader", namespace)["spec"]
    assert spec["leaseDurationSeconds"] == 150
    assert spec["acquireTime"] == spec["renewTime"]
    candidate.end()
