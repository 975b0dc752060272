"""The recorder against an API server, which checks every field of an event."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.unit.runtime.fakes import DEADLINE, eventually

from captf_runtime.client import Client
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.events import Recorder
from captf_runtime.metrics import Metrics
from captf_runtime.objects import CONFIG_MAP, EVENT, EVENTS_V1, NAMESPACE, Object
from captf_runtime.testing import faults
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.clock import VirtualClock


class Running:
    """A recorder that runs; on a clock that stands still, so that its stop never gives up on an event."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self.metrics = Metrics()
        self.recorder = Recorder(
            client,
            controller="example.test/widgets",
            instance="host_1",
            metrics=self.metrics,
            clock=clock if clock is not None else VirtualClock(),
        )
        self.stop = threading.Event()
        self.thread = threading.Thread(target=lambda: self.recorder.run(self.stop), daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.stop.set()
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()

    def dropped(self, reason: str) -> float | None:
        name = "captf_runtime_events_dropped_total"
        return self.metrics.registry.get_sample_value(name, {"reason": reason})


@pytest.fixture
def running(client: Client) -> Iterator[Running]:
    running = Running(client)
    yield running
    running.end()


def make(client: Client, namespace: str, name: str = "m") -> Object:
    made = client.create(CONFIG_MAP, {"metadata": {"name": name}}, namespace)
    return {**made, "apiVersion": "v1", "kind": "ConfigMap"}


@pytest.mark.requirement("EV1", "EV3")
def test_events_and_series_pass_the_servers_check(client: Client, namespace: str, running: Running) -> None:
    obj = make(client, namespace)
    related = make(client, namespace, "other")
    for _ in range(3):
        running.recorder.emit(obj, "Warning", "Broken", "Repair", "ä" * 1000, related=related)
    running.end()
    events = client.list(EVENTS_V1, namespace).items
    assert len(events) == 1
    event = events[0]
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "Broken", "Repair")
    assert event["reportingController"] == "example.test/widgets"
    assert event["reportingInstance"] == "host_1"
    assert event["regarding"]["uid"] == obj["metadata"]["uid"]
    assert event["related"]["name"] == "other"
    assert event["note"] == "ä" * 512
    assert event["series"]["count"] == 3
    assert [running.dropped(reason) for reason in ("rejected", "unavailable", "invalid")] == [0, 0, 0]
    # The same object by the older group, as kubectl describe reads it.
    core = client.list(EVENT, namespace, field_selector="involvedObject.name=m").items
    assert [item["message"] for item in core] == ["ä" * 512]


@pytest.mark.requirement("EV1")
def test_an_event_of_a_cluster_scoped_object_finds_a_namespace(
    client: Client, namespace: str, running: Running
) -> None:
    obj = {**client.get(NAMESPACE, namespace), "apiVersion": "v1", "kind": "Namespace"}
    running.recorder.emit(obj, "Normal", "Seen", "Look", f"saw {namespace}")
    running.end()
    places = ("default", "kube-system")  # the second on old servers, which refuse the first
    notes = [event.get("note") for place in places for event in client.list(EVENTS_V1, place).items]
    assert f"saw {namespace}" in notes


@pytest.mark.requirement("EV6")
def test_no_namespace_no_event(client: Client, running: Running) -> None:
    gone = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "gone", "name": "m", "uid": "u"},
    }
    running.recorder.emit(gone, "Normal", "Seen", "Look", "note")
    eventually(lambda: running.dropped("rejected") == 1)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as made:
        yield made


@pytest.mark.requirement("EV6")
def test_a_lost_answer_leads_to_one_event(server: ApiServer) -> None:
    with Client.from_config(kubeconfig=str(server.kubeconfig())) as client:
        obj = make(client, "default")
        server.faults.add(
            faults.Match(verb="create", resource="events"), faults.reset(after_commit=True), times=1
        )
        running = Running(client, SYSTEM_CLOCK)
        running.recorder.emit(obj, "Normal", "Seen", "Look", "note")
        eventually(lambda: len(client.list(EVENTS_V1, "default").items) == 1)
        running.end()
        assert len(client.list(EVENTS_V1, "default").items) == 1


@pytest.mark.requirement("EV1")
def test_a_server_without_the_group_gets_core_events(server: ApiServer) -> None:
    missing = faults.error(404, reason="", message="404 page not found")
    fault = server.faults.add(faults.Match(resource="events", group="events.k8s.io"), missing)
    with Client.from_config(kubeconfig=str(server.kubeconfig())) as client:
        obj = make(client, "default")
        running = Running(client)
        for _ in range(2):
            running.recorder.emit(obj, "Normal", "Seen", "Look", "note")
        running.end()
        assert fault.hits == 1
        events = client.list(EVENT, "default").items
        assert len(events) == 1
        assert events[0]["message"] == "note"
        assert events[0]["series"]["count"] == 2
        assert events[0]["reportingComponent"] == "example.test/widgets"


@pytest.mark.requirement("EV6")
def test_a_namespace_that_is_going_gets_no_events(server: ApiServer) -> None:
    with Client.from_config(kubeconfig=str(server.kubeconfig())) as client:
        client.create(NAMESPACE, {"metadata": {"name": "going"}})
        held = {"metadata": {"name": "m", "finalizers": ["example.test/hold"]}}
        made = client.create(CONFIG_MAP, held, "going")
        client.delete(NAMESPACE, "going", propagation_policy="Background")
        running = Running(client)
        obj = {**made, "apiVersion": "v1", "kind": "ConfigMap"}
        running.recorder.emit(obj, "Normal", "Seen", "Look", "note")
        eventually(lambda: running.dropped("rejected") == 1)
        running.end()
