"""The life of the embedded API server: start, stop, speed, snapshots, the request log, extensions."""

from __future__ import annotations

import copy
import gc
import http.client
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.raw_http import Raw
from tests.integration.widgets import DEFINITION, RESOURCE, widget

from captf_runtime.testing import faults
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.apiserver.http_server import _Connection
from captf_runtime.testing.faults import Match
from captf_runtime.testing.waiting import eventually

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def raw(server: ApiServer) -> Raw:
    return Raw(server)


@pytest.mark.requirement("AS30")
def test_the_request_log_tells_what_was_asked_and_answered(server: ApiServer, raw: Raw) -> None:
    raw.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"secret": "hush"}})
    raw.get(f"{CONFIG_MAPS}/b")
    first, second = server.requests
    assert (first.verb, first.resource, first.namespace, first.code) == (
        "create",
        "configmaps",
        "default",
        201,
    )
    assert (first.user, first.user_agent) == ("admin", "raw/1.0")
    assert first.is_write
    assert (second.verb, second.name, second.code, second.is_write) == ("get", "b", 404, False)
    assert "hush" not in repr(list(server.requests))
    assert raw.token not in repr(list(server.requests))
    assert server.requests.select(verb="create", resource="configmaps") == [first]
    assert server.requests.counts()["get", "configmaps"] == 1
    server.requests.clear()
    assert (len(server.requests), server.requests.total) == (0, 2)


@pytest.mark.requirement("AS30")
@pytest.mark.parametrize("answer", ["respond", "respond_partly", "reset"])
def test_a_request_is_in_the_log_before_its_answer_is_sent(
    server: ApiServer, raw: Raw, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    logged: list[int] = []
    send = getattr(_Connection, answer)

    def note(self: _Connection, *arguments: Any) -> None:
        logged.append(len(server.requests))
        send(self, *arguments)

    monkeypatch.setattr(_Connection, answer, note)
    if answer == "respond":
        raw.get(CONFIG_MAPS)
    else:
        server.faults.add(
            Match(), faults.truncate(1) if answer == "respond_partly" else faults.reset(), times=1
        )
        with pytest.raises((OSError, http.client.HTTPException)):
            raw.get(CONFIG_MAPS)
    assert logged == [1]
    assert len(server.requests) == 1


@pytest.mark.requirement("AS30")
def test_a_snapshot_comes_back_as_changes(server: ApiServer, raw: Raw) -> None:
    raw.create(CONFIG_MAPS, {"metadata": {"name": "kept"}, "data": {"a": "1"}})
    raw.create(CONFIG_MAPS, {"metadata": {"name": "lost"}})
    snapshot = server.snapshot()
    uid = raw.get(f"{CONFIG_MAPS}/lost")["metadata"]["uid"]
    raw.patch(f"{CONFIG_MAPS}/kept", {"data": {"a": "2"}})
    raw.delete(f"{CONFIG_MAPS}/lost")
    before = raw.create(CONFIG_MAPS, {"metadata": {"name": "new"}}).version
    watch = raw.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion={before}")
    server.restore(snapshot)
    assert sorted(watch.events(3)) == [("ADDED", "lost"), ("DELETED", "new"), ("MODIFIED", "kept")]
    watch.close()
    assert raw.get(f"{CONFIG_MAPS}/kept")["data"] == {"a": "1"}
    assert raw.get(f"{CONFIG_MAPS}/lost")["metadata"]["uid"] == uid
    assert raw.get(f"{CONFIG_MAPS}/new").code == 404


@pytest.mark.requirement("AS30")
def test_a_snapshot_remembers_definitions() -> None:
    with ApiServer() as server:
        raw = Raw(server)
        empty = server.snapshot()
        server.apply_definition(DEFINITION)
        raw.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        assert raw.create(RESOURCE, widget("w")).code == 201
        full = server.snapshot()
        server.restore(empty)
        assert raw.get(RESOURCE).code == 404
        server.restore(full)
        assert [item["metadata"]["name"] for item in raw.get(RESOURCE)["items"]] == ["w"]


def growth(work: Callable[[int], None], times: int) -> int:
    """The bytes that are held after `times` rounds of work and were not held after a few."""
    for number in range(10):
        work(number)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(times):
            work(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.requirement("AS30")
@pytest.mark.parametrize("controllers", [False, True])
def test_a_server_that_is_rewound_again_and_again_does_not_grow(controllers: bool) -> None:
    """Neither does its history, nor what waits for controllers that nobody lets work."""
    with ApiServer(controllers=controllers, history_bytes=100_000) as server:
        raw = Raw(server)
        content = {f"key-{index}": "x" * 100 for index in range(50)}
        beginning = server.snapshot()

        def test(number: int) -> None:
            name = f"a{number}-{'x' * 200}"
            raw.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": content})
            raw.patch(f"{CONFIG_MAPS}/{name}", {"data": {"number": str(number)}})
            server.restore(beginning)
            server.requests.clear()

        assert growth(test, 150) < 500_000


@pytest.mark.requirement("AS15")
def test_a_definition_that_changes_again_and_again_leaves_nothing_behind() -> None:
    with ApiServer(controllers=False, history_bytes=100_000) as server:
        raw = Raw(server)
        raw.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        server.apply_definition(DEFINITION)
        raw.create(RESOURCE, widget("w"))

        def define(number: int) -> None:
            changed = copy.deepcopy(DEFINITION)
            schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            schema["description"] = f"the {number}th"
            server.apply_definition(changed)
            raw.patch(f"{RESOURCE}/w", {"spec": {"size": number % 10}})
            server.requests.clear()

        assert growth(define, 40) < 400_000


class Recorder:
    """A driver that notes when it is started and stopped."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, server: ApiServer) -> None:
        self.calls.append(f"start {Raw(server).get('/healthz').code}")

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.mark.requirement("AS30")
def test_drivers_live_with_the_server() -> None:
    early, late = Recorder(), Recorder()
    server = ApiServer()
    server.add_driver(early)
    assert early.calls == []
    with server:
        assert early.calls == ["start 200"]
        server.add_driver(late)
        assert late.calls == ["start 200"]
    assert early.calls[-1] == late.calls[-1] == "stop"
    server.stop()
    assert early.calls.count("stop") == 1


@pytest.mark.requirement("AS30")
def test_logs_come_from_registered_providers(server: ApiServer, raw: Raw) -> None:
    pods = "/api/v1/namespaces/default/pods"
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}
    raw.create(pods, {"metadata": {"name": "p"}, "spec": spec})
    asked = []

    def provide(namespace: str, pod: str, options: object) -> Iterator[bytes]:
        asked.append((namespace, pod, options))
        return iter([b"one\n", b"two\n"])

    assert "a container name must be specified for pod p" in raw.get(f"{pods}/p/log").message
    assert "is waiting to start" in raw.get(f"{pods}/p/log?container=c").message
    server.register_log_provider(provide)
    answer = raw.get(f"{pods}/p/log?container=c&tailLines=2&limitBytes=9&follow=true&previous=true")
    assert (answer.code, answer.raw) == (200, b"one\ntwo\n")
    namespace, pod, options = asked[0]
    assert (namespace, pod) == ("default", "p")
    assert options == type(options)("c", True, True, 2, 9)
    assert raw.get(f"{pods}/absent/log").code == 404
    assert "container x is not valid for pod p" in raw.get(f"{pods}/p/log?container=x").message


@pytest.mark.requirement("AS30")
def test_it_starts_fast_and_writes_fast() -> None:
    """In processor time, which server and client spend in this process: how busy the machine is does not count."""
    started = time.process_time()
    with ApiServer(crds=[DEFINITION], rbac=True) as server:
        raw = Raw(server)
        assert raw.get("/readyz").code == 200
        assert time.process_time() - started < 0.3
        rounds = []
        for number in range(3):
            begun = time.process_time()
            for index in range(100):
                raw.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}-{index}"}, "data": {"a": "b"}})
            rounds.append(time.process_time() - begun)
        assert min(rounds) < 1 / 3


@pytest.mark.requirement("AS30")
def test_five_thousand_custom_resources_are_listed_in_two_seconds() -> None:
    with ApiServer(crds=[DEFINITION]) as server:
        raw = Raw(server)
        raw.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        resource = server.registry.find("example.io", "v1", "widgets")
        assert resource is not None
        for index in range(5000):
            server.backend.create(resource, "t", widget(f"w{index}", index % 10, free={"a": "x" * 500}))
        begun = time.process_time()
        listed = raw.get(RESOURCE)
        elapsed = time.process_time() - begun
        assert len(listed["items"]) == 5000
        assert elapsed < 2.0


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.requirement("AS30")
def test_a_hundred_starts_and_stops_leak_nothing() -> None:
    def once() -> None:
        with ApiServer() as server:
            raw = Raw(server)
            raw.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
            watch = raw.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=600")
            watch.events(1)
            server.kubeconfig()
        watch.close()
        raw.close()

    before = set(threading.enumerate())
    once()
    eventually(lambda: set(threading.enumerate()) <= before)
    files = descriptors()
    for _ in range(100):
        once()
    eventually(lambda: set(threading.enumerate()) <= before)
    eventually(lambda: descriptors() <= files)


@pytest.mark.requirement("AS30")
def test_stop_ends_watches_and_refuses_new_connections(server: ApiServer, raw: Raw) -> None:
    watch = raw.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=600")
    begun = time.monotonic()
    server.stop()
    assert time.monotonic() - begun < 60
    assert watch.line() == b""
    with pytest.raises(OSError, match="refused"):
        Raw(server).get("/version")


@pytest.mark.requirement("AS30")
def test_parallel_writers_lose_nothing(server: ApiServer, raw: Raw) -> None:
    raw.create(CONFIG_MAPS, {"metadata": {"name": "shared"}})

    def write(worker: int) -> None:
        own = Raw(server)
        for index in range(25):
            assert own.patch(f"{CONFIG_MAPS}/shared", {"data": {f"w{worker}-{index}": "x"}}).code == 200

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(raw.get(f"{CONFIG_MAPS}/shared")["data"]) == 200


class Broken:
    """A driver that cannot start."""

    def start(self, server: ApiServer) -> None:
        raise OSError("no node here")

    def stop(self) -> None:
        raise AssertionError("what never started is not stopped")


@pytest.mark.requirement("AS30")
def test_a_driver_that_cannot_start_leaves_nothing_running() -> None:
    threads = threading.active_count()
    fine = Recorder()
    server = ApiServer()
    server.add_driver(fine)
    server.add_driver(Broken())
    with pytest.raises(OSError, match="no node here"):
        server.start()
    assert fine.calls == ["start 200", "stop"]
    eventually(lambda: threading.active_count() == threads)


@pytest.mark.requirement("AS30")
def test_a_server_has_one_life() -> None:
    server = ApiServer()
    with pytest.raises(RuntimeError, match="start it first"):
        server.kubeconfig()
    server.stop()
    with server, pytest.raises(RuntimeError, match="started before"):
        server.start()
    with pytest.raises(RuntimeError, match="started before"):
        server.start()
