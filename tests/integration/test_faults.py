"""A day of faults in seconds: whatever goes wrong on the way, soon after its end everything is as it should be."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from captf_runtime import Cache, Client, Context, Controller, Object, Request
from captf_runtime.client import NotFound
from captf_runtime.objects import CONFIG_MAP, ObjectKey, key_of, resource_version_of
from captf_runtime.testing import faults
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.running_manager import RunningManager
from captf_runtime.testing.waiting import eventually

SEED = 20260815
OBJECTS = 500
WORKERS = 10
SECONDS = 20.0
SECONDS_VARIABLE = "CAPTF_FAULT_SECONDS"
"""Names another duration of the faults, in seconds: 60 for a thorough run."""

DROP_PERIOD = 0.2
COMPACTION_PERIOD = 1.0
SHARE = 0.05
SETTLED_WITHIN = 30.0
"""Seconds: on a busy machine; long before anything that is lost would be found by a relist or a resync."""

WARM_UP = 4.0
MEMORY_MIB = 6.0
CHANGES_PER_SECOND = 100.0
NAMESPACE_NAME = "default"


class Mirror:
    """Writes into each ConfigMap what its value was when it was looked at, and remembers which version that was."""

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client = client
        self._cache = cache
        self.seen: dict[ObjectKey, str] = {}
        self.mistakes: list[str] = []
        self._busy: set[Request] = set()

    def reconcile(self, ctx: Context, request: Request) -> None:
        """Bring the mirrored value in line."""
        if request in self._busy:
            self.mistakes.append(f"two workers had {request}")
        self._busy.add(request)
        try:
            obj = self._cache.get(CONFIG_MAP, request.name, request.namespace)
            data = obj["data"]
            if data.get("mirror") != data["value"]:
                patch = {"data": {"mirror": data["value"]}}
                self._client.bind(ctx).patch(CONFIG_MAP, request.name, patch, request.namespace)
            self.seen[ObjectKey(*request)] = resource_version_of(obj)
        except NotFound:
            self.seen.pop(ObjectKey(*request), None)
        finally:
            self._busy.discard(request)


class Every:
    """Calls a function every so many seconds until it is stopped."""

    def __init__(self, period: float, function: Callable[[], object]) -> None:
        self._period = period
        self._function = function
        self._stop = threading.Event()
        self.calls = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            self._function()
            self.calls += 1

    def stop(self) -> None:
        """Wait for the call that runs, and make no other."""
        self._stop.set()
        self._thread.join()


class Trouble:
    """All the faults, while the block lasts."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def __enter__(self) -> Trouble:
        add, everything = self._server.faults.add, faults.Match(user="controller")
        self.faults = [
            add(everything, faults.internal_error(), probability=SHARE),
            add(everything, faults.too_many_requests(retry_after=1), probability=SHARE),
        ]
        self.drops = Every(DROP_PERIOD, self._server.drop_watches)
        self.compactions = Every(COMPACTION_PERIOD, self._server.compact)
        return self

    def __exit__(self, *_: object) -> None:
        self.drops.stop()
        self.compactions.stop()
        for fault in self.faults:
            fault.remove()


def resident_mib(server: ApiServer) -> float:
    """Memory of the process, which is also the server's, without what the server keeps of the past."""
    server.requests.clear()
    server.compact()
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def fault_seconds() -> float:
    return float(os.environ.get(SECONDS_VARIABLE, SECONDS))


@pytest.mark.slow
@pytest.mark.requirement("RF3", "RF5", "RF6", "IN9", "WQ1", "CL15", "G3", "G4", "CF5")
def test_every_last_state_is_reconciled_soon_after_the_faults_end() -> None:
    with ApiServer(seed=SEED) as server:
        user = Client.from_config(kubeconfig=server.kubeconfig())
        client = Client.from_config(kubeconfig=server.kubeconfig(user="controller"))
        for number in range(OBJECTS):
            user.create(CONFIG_MAP, config_map(number), NAMESPACE_NAME)
        threads_before = own_threads()
        manager = RunningManager(client)
        manager.cache.informer(CONFIG_MAP, namespace=NAMESPACE_NAME)
        mirror = Mirror(client, manager.cache)
        manager.add(
            Controller("mirror", for_=CONFIG_MAP, reconciler=mirror, cache=manager.cache, concurrency=WORKERS)
        )
        manager.start()
        eventually(lambda: settled(user, manager.cache, mirror), timeout=180)
        with Trouble(server):
            change_for(user, WARM_UP)  # what is made once, like connections and buffers, is there now
        eventually(lambda: settled(user, manager.cache, mirror), timeout=180)
        threads_running = own_threads()
        memory_before = resident_mib(server)

        with Trouble(server) as trouble:
            change_for(user, fault_seconds())
        end = time.monotonic()
        eventually(lambda: settled(user, manager.cache, mirror), timeout=SETTLED_WITHIN, pause=0.05)
        took = time.monotonic() - end

        assert mirror.mistakes == []
        assert all(fault.hits for fault in trouble.faults)
        assert trouble.drops.calls > trouble.compactions.calls > 0
        assert value(manager, "captf_runtime_informer_reconnects_total") >= trouble.compactions.calls
        assert value(manager, "captf_runtime_informer_relists_total") > 0
        assert value(manager, "captf_runtime_thread_failures_total", component="reflector") == 0
        eventually(lambda: own_threads() == threads_running)
        memory_after = resident_mib(server)
        assert memory_after - memory_before < MEMORY_MIB, (
            f"{memory_before:.0f} MiB have become {memory_after:.0f}"
        )
        assert manager.stop() == 0
        client.close()
        eventually(lambda: own_threads() == threads_before)
        print(
            value(manager, "captf_runtime_informer_reconnects_total"),
            trouble.compactions.calls,
            trouble.drops.calls,
            value(manager, "captf_runtime_informer_relists_total"),
        )
        print(f"settled {took:.2f} s after the faults, memory {memory_before:.0f} -> {memory_after:.0f} MiB")
        user.close()


def config_map(number: int) -> Object:
    return {"metadata": {"name": f"item-{number}"}, "data": {"value": "0"}}


def change_for(user: Client, seconds: float) -> None:
    """Change objects, at a steady pace and at random, for so long."""
    draw = random.Random(SEED)
    pause = threading.Event()
    start = time.monotonic()
    changes = 0
    while (passed := time.monotonic() - start) < seconds:
        changes += 1
        name = f"item-{draw.randrange(OBJECTS)}"
        user.patch(CONFIG_MAP, name, {"data": {"value": str(changes)}}, NAMESPACE_NAME)
        pause.wait(max(0.0, changes / CHANGES_PER_SECOND - passed))


def settled(user: Client, cache: Cache, mirror: Mirror) -> bool:
    """Whether every object's last state is in the cache and has been reconciled."""
    stored = user.list(CONFIG_MAP, NAMESPACE_NAME).items
    versions = {key_of(obj): resource_version_of(obj) for obj in stored}
    cached = {header.key: header.resource_version for header in cache.headers(CONFIG_MAP)}
    in_line = all(obj["data"].get("mirror") == obj["data"]["value"] for obj in stored)
    return in_line and cached == versions and mirror.seen == versions


def own_threads() -> set[str]:
    """The threads that run, less those of the server's connections."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("apiserver")}


def value(manager: RunningManager, series: str, **labels: str) -> float:
    registry = manager.manager.metrics.registry
    found = registry.get_sample_value(series, labels or {"kind": "ConfigMap"})
    return -1.0 if found is None else found
