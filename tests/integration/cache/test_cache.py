"""The cache as its users see it, over the embedded server and over a real one."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.scripted_server import Received, Reply, ScriptedServer, status
from tests.integration.targets import WIDGET, Target

from captf_runtime.cache import (
    Added,
    Cache,
    CacheError,
    Deleted,
    Event,
    Header,
    NotCached,
    NotSynced,
    SyncTimeout,
    Updated,
)
from captf_runtime.client import AlreadyExists, Client, NotFound, TransportError
from captf_runtime.metrics import Metrics
from captf_runtime.objects import (
    CONFIG_MAP,
    JOB,
    NAMESPACE,
    SECRET,
    Object,
    ObjectKey,
    key_of,
    name_of,
    resource_version_of,
    uid_of,
)
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.testing.faults import Match, compaction, drop_watch, duplicate_events

DEADLINE = 60.0


def label(header: Header) -> list[str]:
    return [header.labels["l"]] if "l" in header.labels else []


@pytest.fixture
def cache(client: Client) -> Iterator[Cache]:
    """A cache that has not started; it is shut down at the end."""
    made = Cache(client, resync_period=0)
    yield made
    made.shutdown(DEADLINE)


def start(cache: Cache) -> None:
    cache.start(threading.Event())
    cache.wait_for_sync(DEADLINE)


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def eventually(predicate: Callable[[], bool], what: object = "") -> None:
    deadline = time.monotonic() + DEADLINE
    pause = threading.Event()
    while not predicate():
        assert time.monotonic() < deadline, what
        pause.wait(0.01)


# Readers ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("RD1", "RD3", "IN3", "CL13")
def test_reads_by_namespace_labels_and_index_are_ordered_fresh_and_complete(
    client: Client, namespace: str, cache: Cache
) -> None:
    for name, value in (("c", "1"), ("a", "1"), ("b", "2")):
        client.create(CONFIG_MAP, config_map(name, {"l": value}, x=name), namespace)
    cache.informer(CONFIG_MAP, indexes={"label": label})
    start(cache)
    assert cache.get(CONFIG_MAP, "a", namespace) == without_managed_fields(
        client.get(CONFIG_MAP, "a", namespace)
    )

    def names(**options: Any) -> list[str]:
        return [name_of(obj) for obj in cache.list(CONFIG_MAP, namespace, **options)]

    assert names(label_selector="l") == ["a", "b", "c"]
    assert names(label_selector="l in (1,3)") == ["a", "c"]
    assert names(index=("label", "1")) == ["a", "c"]
    assert names(index=("label", "1"), label_selector="l!=1") == []
    assert names(field_selector="label=2") == ["b"]
    assert names(index=("label", "9")) == []
    assert cache.count(CONFIG_MAP, namespace, label_selector="l") == 3
    assert [header.name for header in cache.headers(CONFIG_MAP, namespace, index=("label", "2"))] == ["b"]
    assert {"1", "2"} <= cache.index_values(CONFIG_MAP, "label")
    everywhere = [(obj["metadata"]["namespace"], name_of(obj)) for obj in cache.list(CONFIG_MAP)]
    assert everywhere == sorted(everywhere)
    cache.get(CONFIG_MAP, "a", namespace)["data"]["x"] = "spoilt"
    cache.list(CONFIG_MAP, namespace)[0]["metadata"]["name"] = "spoilt"
    assert cache.get(CONFIG_MAP, "a", namespace)["data"] == {"x": "a"}
    header = cache.header(CONFIG_MAP, "a", namespace)
    assert header is not None
    assert header.labels == {"l": "1"}
    assert cache.header(CONFIG_MAP, "none", namespace) is None


def without_managed_fields(obj: Object) -> Object:
    obj["metadata"].pop("managedFields", None)
    return obj


@pytest.mark.requirement("RD1", "RD2")
def test_what_the_cache_cannot_answer_is_refused(client: Client, namespace: str, cache: Cache) -> None:
    with pytest.raises(NotCached, match=r"jobs\.batch"):
        cache.get(JOB, "a", namespace)
    with pytest.raises(NotCached):
        cache.wait_for(JOB, ObjectKey(namespace, "a"), "1", 0)
    cache.informer(CONFIG_MAP, indexes={"label": label})
    for read in (lambda: cache.get(CONFIG_MAP, "a", namespace), lambda: cache.list(CONFIG_MAP)):
        with pytest.raises(NotSynced):
            read()
    start(cache)
    with pytest.raises(NotFound):
        cache.get(CONFIG_MAP, "none", namespace)
    for options in (
        {"resource_version": "0"},
        {"continue_token": "x"},
        {"field_selector": "metadata.name=a"},
        {"field_selector": "label!=1"},
        {"field_selector": "label=1,label=2"},
        {"field_selector": "label=1", "index": ("label", "1")},
        {"index": ("none", "1")},
        {"label_selector": "a b"},
    ):
        with pytest.raises(ValueError):
            cache.list(CONFIG_MAP, **options)
    with pytest.raises(ValueError, match="no index"):
        cache.index_values(CONFIG_MAP, "none")
    scoped = Cache(client)
    scoped.informer(CONFIG_MAP, namespace=namespace)
    start(scoped)
    with pytest.raises(NotCached, match="namespace elsewhere"):
        scoped.list(CONFIG_MAP, "elsewhere")
    with pytest.raises(NotCached, match="namespace elsewhere"):
        scoped.get(CONFIG_MAP, "a", "elsewhere")
    scoped.shutdown(DEADLINE)
    client.list(JOB, namespace)
    assert [informer.scope.kind for informer in cache.informers] == [CONFIG_MAP]


@pytest.mark.requirement("RD4")
def test_own_writes_can_be_waited_for(client: Client, namespace: str, cache: Cache) -> None:
    cache.informer(CONFIG_MAP)
    start(cache)
    created = client.create(CONFIG_MAP, config_map("a"), namespace)
    key = key_of(created)
    assert cache.wait_for(CONFIG_MAP, key, resource_version_of(created), DEADLINE)
    changed = client.patch(CONFIG_MAP, "a", {"data": {"x": "1"}}, namespace)
    assert cache.wait_for(CONFIG_MAP, key, resource_version_of(changed), DEADLINE)
    assert cache.get(CONFIG_MAP, "a", namespace)["data"] == {"x": "1"}
    assert cache.wait_for(CONFIG_MAP, key, resource_version_of(created), 0)
    assert not cache.wait_for(CONFIG_MAP, key, str(int(resource_version_of(changed)) + 10**30), 0.05)
    assert not cache.wait_for(CONFIG_MAP, key, "not a version", 0.05)
    assert not cache.wait_for_deleted(CONFIG_MAP, key, uid_of(created), 0.05)
    client.delete(CONFIG_MAP, "a", namespace, propagation_policy="Background")
    assert cache.wait_for_deleted(CONFIG_MAP, key, uid_of(created), DEADLINE)
    again = client.create(CONFIG_MAP, config_map("a"), namespace)
    assert cache.wait_for(CONFIG_MAP, key, resource_version_of(again), DEADLINE)
    assert cache.wait_for_deleted(CONFIG_MAP, key, uid_of(created), 0)
    client.delete(CONFIG_MAP, "a", namespace, propagation_policy="Background")
    later = client.create(CONFIG_MAP, config_map("b"), namespace)
    assert cache.wait_for(CONFIG_MAP, key_of(later), resource_version_of(later), DEADLINE)
    assert cache.wait_for(CONFIG_MAP, key, resource_version_of(again), 0), (
        "gone, and all up to there was seen"
    )


# Informers -------------------------------------------------------------------------------------------


@pytest.mark.requirement("IN1")
def test_one_informer_per_kind_is_shared_and_other_settings_are_an_error(cache: Cache) -> None:
    def keep(obj: Object) -> Object:
        return obj

    first = cache.informer(SECRET, namespace="t", label_selector="a=1", metadata_only=True)
    assert cache.informer(SECRET, namespace="t", label_selector="a=1", metadata_only=True) is first
    for other in (
        {},
        {"namespace": "u", "label_selector": "a=1", "metadata_only": True},
        {"namespace": "t", "label_selector": "a=2", "metadata_only": True},
        {"namespace": "t", "label_selector": "a=1"},
        {"namespace": "t", "label_selector": "a=1", "metadata_only": True, "field_selector": "type=x"},
        {"namespace": "t", "label_selector": "a=1", "metadata_only": True, "transform": keep},
    ):
        with pytest.raises(ValueError, match="follows secrets in namespace t"):
            cache.informer(SECRET, **other)
    with pytest.raises(ValueError, match="label selector"):
        cache.informer(CONFIG_MAP, label_selector="a b")


@pytest.mark.requirement("IN5")
def test_synced_means_that_every_earlier_handler_has_handled_the_first_list(
    client: Client, namespace: str, cache: Cache
) -> None:
    for name in "abc":
        client.create(WIDGET, {"metadata": {"name": name}}, namespace)
    informer = cache.informer(WIDGET, namespace=namespace)
    gate = threading.Event()
    seen: list[Event] = []

    def slow(event: Event) -> None:
        gate.wait(DEADLINE)
        seen.append(event)

    registration = informer.add_handler(slow, name="slow")
    cache.start(threading.Event())
    eventually(lambda: informer.has_listed)
    assert not informer.has_synced
    with pytest.raises(SyncTimeout, match="handlers are still busy"):
        cache.wait_for_sync(0.05)
    assert len(cache.list(WIDGET)) == 3, "reads do not wait for handlers"
    gate.set()
    cache.wait_for_sync(DEADLINE)
    assert registration.has_synced
    assert sorted(event.obj.header.name for event in seen) == ["a", "b", "c"]
    late: list[Event] = []
    other = informer.add_handler(late.append, name="late")
    eventually(lambda: other.has_synced)
    assert all(isinstance(event, Added) and event.initial for event in late)
    assert len(late) == 3


@pytest.mark.requirement("IN5", "RF7")
def test_what_is_not_synced_is_named_with_its_last_error() -> None:
    message = "secrets is forbidden: User cannot list"

    def script(request: Received, reply: Reply) -> None:
        reply.send(403, status(403, "Forbidden", message))

    with ScriptedServer(script) as server, server.client() as client:
        cache = Cache(client, name="main")
        cache.informer(SECRET, label_selector="a=1")
        cache.start(threading.Event())
        eventually(lambda: cache.informers[0].last_error is not None)
        with pytest.raises(
            SyncTimeout, match=r"cache main .*secrets with labels a=1: .*forbidden: User cannot list"
        ):
            cache.wait_for_sync(0.05)
        with pytest.raises(NotSynced, match="forbidden"):
            cache.list(SECRET)
        cache.shutdown(DEADLINE)
        with pytest.raises(SyncTimeout, match="stopped"):
            cache.wait_for_sync(DEADLINE)


@pytest.mark.requirement("IN4")
def test_the_store_is_changed_before_handlers_are_told(client: Client, namespace: str, cache: Cache) -> None:
    told: list[tuple[str, object]] = []
    done = threading.Event()

    def handler(event: Event) -> None:
        header = event.obj.header
        stored = cache.header(WIDGET, header.name, header.namespace)
        if isinstance(event, Deleted):
            told.append(("deleted", stored))
            done.set()
        else:
            told.append(
                ("there", stored is not None and int(stored.resource_version) >= int(header.resource_version))
            )

    cache.informer(WIDGET, namespace=namespace).add_handler(handler, name="check")
    start(cache)
    client.create(WIDGET, {"metadata": {"name": "a"}}, namespace)
    client.patch(WIDGET, "a", {"spec": {"x": 1}}, namespace)
    client.delete(WIDGET, "a", namespace, propagation_policy="Background")
    assert done.wait(DEADLINE)
    assert told[-1] == ("deleted", None)
    assert all(entry == ("there", True) for entry in told[:-1])


@pytest.mark.requirement("IN9", "IN4")
def test_label_changes_move_objects_in_and_out_of_a_selector(
    client: Client, namespace: str, cache: Cache
) -> None:
    events: list[Event] = []
    cache.informer(CONFIG_MAP, namespace=namespace, label_selector="l=1").add_handler(
        events.append, name="all"
    )
    start(cache)
    client.create(CONFIG_MAP, config_map("a", {"l": "0"}), namespace)
    entered = client.patch(CONFIG_MAP, "a", {"metadata": {"labels": {"l": "1"}}}, namespace)
    assert cache.wait_for(CONFIG_MAP, key_of(entered), resource_version_of(entered), DEADLINE)
    client.patch(CONFIG_MAP, "a", {"metadata": {"labels": {"l": "2"}}}, namespace)
    assert cache.wait_for_deleted(CONFIG_MAP, key_of(entered), uid_of(entered), DEADLINE)
    eventually(lambda: isinstance(events[-1:][0] if events else None, Deleted), events)


@pytest.mark.requirement("IN8")
def test_resyncs_are_updates_of_the_same_without_a_request() -> None:
    clock = VirtualClock()
    metrics = Metrics()

    def script(request: Received, reply: Reply) -> None:
        if "watch" in request.query:
            reply.start_stream()
            reply.hang()
        else:
            items = [{"metadata": {"name": name, "resourceVersion": "1", "uid": name}} for name in "ab"]
            reply.send(200, {"metadata": {"resourceVersion": "5"}, "items": items})

    with ScriptedServer(script) as server, server.client() as client:
        cache = Cache(client, resync_period=600, clock=clock, metrics=metrics, draw=lambda low, high: high)
        events: list[Event] = []

        def handler(event: Event) -> None:
            events.append(event)
            if len(events) == 3:
                raise RuntimeError("an exception never ends the schedule")

        informer = cache.informer(NAMESPACE)
        informer.add_handler(handler, name="all")
        cache.start(threading.Event())
        eventually(lambda: informer.has_synced)
        server.wait_for(lambda: len(server.requests) == 2)
        for turn in (1, 2):
            clock.wait_for_waiters(1)
            clock.advance(659)
            assert len(events) == 2 * turn
            clock.advance(1)
            eventually(lambda turn=turn: len(events) == 2 * turn + 2, events)  # type: ignore[misc]
        assert all(
            isinstance(event, Updated) and event.resync and event.old is event.new for event in events[2:]
        )
        assert len(server.requests) == 2
        cache.shutdown(DEADLINE)


@pytest.mark.requirement("IN7")
def test_a_failing_handler_is_counted() -> None:
    def script(request: Received, reply: Reply) -> None:
        if "watch" in request.query:
            reply.start_stream()
            reply.hang()
        else:
            items = [{"metadata": {"name": name}} for name in "ab"]
            reply.send(200, {"metadata": {"resourceVersion": "5"}, "items": items})

    metrics = Metrics()
    value = metrics.registry.get_sample_value
    with ScriptedServer(script) as server, server.client() as client:
        cache = Cache(client, metrics=metrics)
        seen: list[str] = []

        def bad(event: Event) -> None:
            seen.append(event.obj.header.name)
            raise RuntimeError("no")

        cache.informer(NAMESPACE).add_handler(bad, name="bad")
        assert value("captf_runtime_informer_synced", {"kind": "Namespace"}) == 0
        start(cache)
        assert seen == ["a", "b"]
        assert value("captf_runtime_handler_failures_total", {"kind": "Namespace"}) == 2
        assert value("captf_runtime_informer_objects", {"kind": "Namespace"}) == 2
        eventually(lambda: value("captf_runtime_informer_synced", {"kind": "Namespace"}) == 1)
        cache.shutdown(DEADLINE)


def test_life_of_a_cache(client: Client) -> None:
    cache = Cache(client)
    early = cache.informer(NAMESPACE)
    stop = threading.Event()
    running = threading.Thread(target=cache.run, args=(stop,))
    running.start()
    eventually(lambda: early.has_synced)
    with pytest.raises(CacheError, match="started"):
        cache.start(stop)
    late = cache.informer(CONFIG_MAP)
    cache.wait_for_sync(DEADLINE)
    assert late.has_synced
    stop.set()
    running.join(DEADLINE)
    assert not running.is_alive()
    assert cache.list(NAMESPACE), "what is stored stays readable"
    with pytest.raises(CacheError, match="stopped"):
        cache.informer(SECRET)
    cache.shutdown()


# Convergence -----------------------------------------------------------------------------------------


@pytest.mark.requirement("IN9", "RF4", "RF5")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("streaming", [False, True])
def test_the_store_ends_equal_to_a_fresh_list_whatever_breaks(
    target: Target, client: Client, namespace: str, seed: int, streaming: bool
) -> None:
    draw = random.Random(seed)
    server = target.embedded
    selector = "l in (0,1)"
    cache = Cache(client, resync_period=0, streaming_lists=streaming, draw=lambda low, high: low)
    view: dict[str, str] = {}

    def handler(event: Event) -> None:
        header = event.obj.header
        if isinstance(event, Deleted):
            view.pop(header.name, None)
        else:
            view[header.name] = header.resource_version

    informer = cache.informer(CONFIG_MAP, namespace=namespace, label_selector=selector)
    informer.add_handler(handler, name="view")
    start(cache)
    faults = [
        server.faults.add(Match(verb="watch", resource="configmaps"), action, probability=0.5, times=6)
        for action in (drop_watch(2), drop_watch(1, mid_line=True), duplicate_events(), compaction(2))
    ]
    last: Object = {}
    for _ in range(150):
        name = draw.choice("abcdef")
        step = draw.choice(["create", "label", "data", "delete", "recreate", "disconnect"])
        try:
            if step in ("delete", "recreate"):
                client.delete(CONFIG_MAP, name, namespace, propagation_policy="Background")
            if step in ("create", "recreate"):
                last = client.create(CONFIG_MAP, config_map(name, {"l": draw.choice("0123")}), namespace)
            elif step == "label":
                patch = {"metadata": {"labels": {"l": draw.choice("0123")}}}
                last = client.patch(CONFIG_MAP, name, patch, namespace)
            elif step == "data":
                last = client.patch(CONFIG_MAP, name, {"data": {"x": str(draw.random())}}, namespace)
            elif step == "disconnect" and draw.random() < 0.2:
                server.drop_connections()
        except (NotFound, AlreadyExists, TransportError):
            continue
    for fault in faults:
        fault.remove()
    marker = client.create(CONFIG_MAP, config_map("marker", {"l": "1"}), namespace)
    assert last
    assert cache.wait_for(CONFIG_MAP, key_of(marker), resource_version_of(marker), 60)
    fresh = client.list(CONFIG_MAP, namespace, label_selector=selector)
    expected = {name_of(obj): resource_version_of(obj) for obj in fresh}

    def stored() -> dict[str, str]:
        return {header.name: header.resource_version for header in cache.headers(CONFIG_MAP)}

    eventually(lambda: stored() == expected, (stored(), expected))
    eventually(lambda: informer.pending == 0 and view == expected, (view, expected))
    cache.shutdown(DEADLINE)


# Memory ----------------------------------------------------------------------------------------------

MEMORY = """
import json, os, sys, threading
from captf_runtime.cache import Cache
from captf_runtime.client import Client, ClientConfig
from captf_runtime.clock import SystemClock
from captf_runtime.objects import SECRET

class FastClock(SystemClock):
    "A thousand times as fast, so that pauses between lists are short."
    __slots__ = ()
    def monotonic(self):
        return 1000 * super().monotonic()
    def sleep(self, seconds, stop=None):
        return super().sleep(seconds / 1000, stop)

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

client = Client(ClientConfig(sys.argv[1]))
client.raw("GET", "/warm")
cache = Cache(client, resync_period=0, clock=FastClock())
informer = cache.informer(SECRET)
base = resident()
seen = []
cache.start(threading.Event())
cache.wait_for_sync(60_000)
print(json.dumps({"count": cache.count(SECRET), "grown": resident() - base}), flush=True)
for line in sys.stdin:
    version = line.strip()
    informer.store.wait_for(lambda store: store.version == version, 60_000)
    print(json.dumps({"count": cache.count(SECRET), "grown": resident() - base}), flush=True)
os._exit(0)
"""


@pytest.mark.requirement("IN10")
def test_memory_of_five_thousand_objects_and_of_twenty_relists(tmp_path: Path) -> None:
    objects = 5000
    relist = threading.Semaphore(0)
    version = 10

    def page(names: range, token: str) -> bytes:
        items = [
            {
                "metadata": {
                    "name": f"secret-{n:05}",
                    "namespace": f"ns-{n % 10}",
                    "uid": f"00000000-0000-0000-0000-{n:012}",
                    # A tenth changes from list to list.
                    "resourceVersion": str(version if n % 10 == version % 10 else 1000 + n),
                    "labels": {"app": f"a{n % 7}"},
                    "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {}}}],
                },
                "data": {"v": "x" * 2048},
            }
            for n in names
        ]
        meta = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
        return json.dumps({"metadata": meta, "items": items}, separators=(",", ":")).encode()

    def script(request: Received, reply: Reply) -> None:
        query = request.query
        if "watch" in query:
            reply.start_stream()
            while not relist.acquire(timeout=0.05):
                if reply.stopped.is_set():
                    return
            reply.event("ERROR", status(410, "Expired"))
            reply.end_stream()
        elif "limit" in query:
            first = int(query.get("continue", "0"))
            last = min(first + int(query["limit"]), objects)
            reply.send(200, page(range(first, last), str(last) if last < objects else ""))
        elif request.path.endswith("/warm"):
            reply.send(200, {})
        else:
            reply.send(200, page(range(objects), ""))

    program = tmp_path / "program.py"
    program.write_text(MEMORY)
    source = Path(__file__).parents[3] / "src"
    with ScriptedServer(script) as server:
        process = subprocess.Popen(
            [sys.executable, str(program), server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(source)},
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            assert first["count"] == objects
            assert first["grown"] <= 60
            grown = []
            for _ in range(20):
                version += 1
                relist.release()
                process.stdin.write(f"{version}\n")
                process.stdin.flush()
                grown.append(json.loads(process.stdout.readline())["grown"])
            # The first relist is the first that holds pages and a second copy of what changed.
            assert grown[-1] <= grown[0] * 1.05, grown
            assert grown[-1] <= 60, grown
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
