"""The manager's own servers, and a whole manager with caches and controllers against an API server."""

from __future__ import annotations

import gc
import threading
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.targets import WIDGET, Target
from tests.unit.runtime.fakes import DEADLINE, eventually

from captf_runtime.cache import Cache
from captf_runtime.client import AlreadyExists, Client
from captf_runtime.controller import Channel, Context, Controller, Request, Result
from captf_runtime.events import Recorder
from captf_runtime.manager import ElectionTimes, LeaderElectionConfig, Manager
from captf_runtime.objects import CONFIG_MAP, EVENTS_V1, LEASE, Object, is_deleting
from captf_runtime.serving import HttpServer, parse_bind_address
from captf_runtime.serving.server import text_answer

FAST = ElectionTimes(lease_duration=60.0, renew_deadline=40.0, retry_period=0.25)


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Runner:
    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.stop = threading.Event()
        self.codes: list[int] = []
        self.thread = threading.Thread(target=lambda: self.codes.append(manager.run(self.stop)), daemon=True)
        self.thread.start()

    def end(self) -> int:
        self.stop.set()
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()
        return self.codes[0]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("0", None),
        (":9440", ("0.0.0.0", 9440)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_bind_addresses(text: str, address: tuple[str, int] | None) -> None:
    assert parse_bind_address(text) == address


@pytest.mark.parametrize("text", ["9440", "host", ":x", ":70000", "1.2.3.4:-1"])
def test_bind_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="bind address"):
        parse_bind_address(text)


@pytest.mark.requirement("MG5", "MG6", "MX1")
def test_probes_and_metrics_are_served() -> None:
    managers = [
        Manager(metrics_bind_address="127.0.0.1:0", health_probe_bind_address="127.0.0.1:0") for _ in range(2)
    ]

    def broken() -> None:
        raise OSError("not yet")

    managers[0].add_ready_check("broken", broken)
    runners = [Runner(manager) for manager in managers]
    for manager in managers:
        assert manager.health_server is not None
        assert manager.metrics_server is not None
        assert manager.health_server.ready.wait(DEADLINE)
        assert manager.metrics_server.ready.wait(DEADLINE)
        assert fetch(f"{manager.health_server.url}/healthz") == (200, "ok")
        code, text = fetch(f"{manager.metrics_server.url}/metrics")
        assert code == 200
        assert "process_resident_memory_bytes" in text
        assert fetch(f"{manager.metrics_server.url}/debug")[0] == 404
    assert managers[0].health_server is not None
    code, text = fetch(f"{managers[0].health_server.url}/readyz?verbose")
    assert (code, text) == (500, "[-]broken failed: reason withheld\nreadyz check failed\n")
    assert [runner.end() for runner in runners] == [0, 0]
    for manager in managers:
        assert manager.health_server is not None
        with pytest.raises(OSError):
            fetch(f"{manager.health_server.url}/healthz")


@pytest.mark.requirement("MG3")
def test_an_address_that_is_taken_stops_the_manager() -> None:
    def app(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        return text_answer(start_response, "200 OK", b"first")

    first = HttpServer(app, "127.0.0.1:0", component="first")
    stop = threading.Event()
    thread = threading.Thread(target=lambda: first.run(stop), daemon=True)
    thread.start()
    assert first.ready.wait(DEADLINE)
    host, port = first.address
    manager = Manager(health_probe_bind_address=f"{host}:{port}")
    runner = Runner(manager)
    runner.thread.join(DEADLINE)
    assert runner.codes == [1]
    assert [name for name, _ in manager.failures] == ["health"]
    assert fetch(first.url) == (200, "first")
    stop.set()
    thread.join(DEADLINE)


class Widgets:
    """Makes a ConfigMap for every widget, repairs it, and takes it away before the widget goes."""

    FINALIZER = "example.test/config"

    def __init__(self, client: Client, cache: Cache, recorder: Recorder | None = None) -> None:
        self.client = client
        self.cache = cache
        self.recorder = recorder
        self.runs: list[str] = []

    def reconcile(self, ctx: Context, request: Request) -> Result | None:
        self.runs.append(request.name)
        found = self.cache.list(WIDGET, request.namespace)
        widget = next((obj for obj in found if obj["metadata"]["name"] == request.name), None)
        if widget is None or is_deleting(widget):
            return None
        ctx.check()
        wanted: Object = {
            "metadata": {
                "name": request.name,
                "ownerReferences": [
                    {
                        "apiVersion": WIDGET.api_version,
                        "kind": WIDGET.kind,
                        "name": request.name,
                        "uid": widget["metadata"]["uid"],
                        "controller": True,
                    }
                ],
            },
            "data": {"size": str(widget["spec"]["size"])},
        }
        maps = {obj["metadata"]["name"]: obj for obj in self.cache.list(CONFIG_MAP, request.namespace)}
        current = maps.get(request.name)
        if current is None:
            try:
                self.client.create(CONFIG_MAP, wanted, request.namespace)
            except AlreadyExists:
                return (
                    None  # The cache is a moment behind; the ConfigMap's own event brings the request back.
                )
            if self.recorder is not None:
                self.recorder.emit(widget, "Normal", "Configured", "Create", f"made {request.name}")
        elif current.get("data") != wanted["data"]:
            patch = {"data": wanted["data"]}
            self.client.patch(CONFIG_MAP, request.name, patch, request.namespace)
        return None


@pytest.fixture
def second_client(target: Target) -> Iterator[Client]:
    with Client.from_config(kubeconfig=target.kubeconfig) as made:
        yield made


def widget(name: str, size: int = 1) -> Object:
    return {
        "apiVersion": WIDGET.api_version,
        "kind": WIDGET.kind,
        "metadata": {"name": name},
        "spec": {"size": size},
    }


def sizes(client: Client, namespace: str) -> dict[str, str]:
    items = client.list(CONFIG_MAP, namespace).items
    return {obj["metadata"]["name"]: obj["data"]["size"] for obj in items if "size" in obj.get("data", {})}


@pytest.mark.requirement("CT1", "CT2", "MG1", "EV1")
def test_a_controller_from_create_to_repair(client: Client, second_client: Client, namespace: str) -> None:
    for number in range(20):
        client.create(WIDGET, widget(f"early-{number}", number), namespace)
    cache = Cache(second_client)
    cache.informer(WIDGET, namespace=namespace)
    cache.informer(CONFIG_MAP, namespace=namespace)
    recorder = Recorder(second_client, controller="widgets", instance="test")
    manager = Manager(client=second_client, caches=[cache], recorder=recorder)
    reconciler = Widgets(second_client, cache, recorder)
    controller = Controller(
        "widgets", for_=WIDGET, reconciler=reconciler, cache=cache, owns=[CONFIG_MAP], concurrency=4
    )
    manager.add(controller)
    runner = Runner(manager)
    eventually(lambda: len(sizes(client, namespace)) == 20)
    client.create(WIDGET, widget("late", 7), namespace)
    eventually(lambda: sizes(client, namespace).get("late") == "7")
    client.patch(WIDGET, "late", {"spec": {"size": 8}}, namespace)
    eventually(lambda: sizes(client, namespace).get("late") == "8")
    client.delete(CONFIG_MAP, "late", namespace, propagation_policy="Background")
    eventually(lambda: sizes(client, namespace).get("late") == "8")
    # Before the stop, which waits a few seconds for events and no longer.
    notes = {f"made early-{number}" for number in range(20)} | {"made late"}
    eventually(lambda: notes <= {event["note"] for event in client.list(EVENTS_V1, namespace).items})
    assert runner.end() == 0
    value = manager.metrics.registry.get_sample_value
    assert value("controller_runtime_reconcile_errors_total", {"controller": "widgets"}) == 0


@pytest.mark.requirement("LE9", "LE2", "MG4")
def test_a_standby_takes_over_after_a_clean_stop(
    client: Client, second_client: Client, namespace: str
) -> None:
    def manager_for(own: Client) -> tuple[Manager, Widgets]:
        cache = Cache(own)
        cache.informer(WIDGET, namespace=namespace)
        cache.informer(CONFIG_MAP, namespace=namespace)
        manager = Manager(
            client=own,
            caches=[cache],
            leader_election=LeaderElectionConfig(namespace, "widgets", times=FAST),
        )
        reconciler = Widgets(own, cache)
        manager.add(Controller("widgets", for_=WIDGET, reconciler=reconciler, cache=cache, owns=[CONFIG_MAP]))
        return manager, reconciler

    first, _ = manager_for(client)
    leader = Runner(first)
    eventually(lambda: first.is_leader)
    second, standby_reconciler = manager_for(second_client)
    standby = Runner(second)
    client.create(WIDGET, widget("one", 1), namespace)
    eventually(lambda: sizes(client, namespace) == {"one": "1"})
    assert standby_reconciler.runs == []
    assert leader.end() == 0
    eventually(lambda: second.is_leader)
    client.patch(WIDGET, "one", {"spec": {"size": 2}}, namespace)
    eventually(lambda: sizes(client, namespace) == {"one": "2"})
    lease = client.get(LEASE, "widgets", namespace)
    assert lease["spec"]["holderIdentity"] == second.identity
    assert lease["spec"]["leaseTransitions"] == 1
    assert standby.end() == 0
    assert client.get(LEASE, "widgets", namespace)["spec"]["holderIdentity"] == ""


@pytest.mark.requirement("MG6", "RF10")
def test_nothing_is_left_of_a_manager_that_has_ended(client: Client, namespace: str) -> None:
    client.create(CONFIG_MAP, {"metadata": {"name": "one"}}, namespace)
    channel = Channel()  # outlives the managers, as the client does

    def life() -> weakref.ref[Manager]:
        seen = threading.Event()
        cache = Cache(client)
        manager = Manager(
            client=client,
            caches=[cache],
            leader_election=LeaderElectionConfig(namespace, "leader", times=FAST),
            metrics_bind_address="127.0.0.1:0",
            health_probe_bind_address="127.0.0.1:0",
            recorder=Recorder(client, controller="brief", instance="x"),
        )

        def reconcile(ctx: Context, request: Request) -> None:
            seen.set()

        manager.add(
            Controller("brief", for_=CONFIG_MAP, reconciler=reconcile, cache=cache, channels=[channel])
        )
        runner = Runner(manager)
        assert seen.wait(DEADLINE)
        assert manager.health_server is not None
        assert fetch(f"{manager.health_server.url}/healthz") == (200, "ok")
        assert runner.end() == 0
        return weakref.ref(manager)

    ended = [life() for _ in range(3)]

    def gone() -> bool:
        gc.collect()
        return [each() for each in ended] == [None] * 3

    eventually(gone)  # a thread that was told to end may still be on its way
    assert [each for each in client._dedicated if not each.stopped] == []
