"""A controller under faults: whatever goes wrong on the way, the end is right."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
from tests.unit.runtime.fakes import DEADLINE, eventually

from captf_runtime.cache import Cache
from captf_runtime.client import ApiError, Client
from captf_runtime.controller import Context, Controller, Request
from captf_runtime.events import Recorder
from captf_runtime.manager import ElectionTimes, LeaderElectionConfig, Manager
from captf_runtime.objects import CONFIG_MAP, Object, ObjectKey, key_of, resource_version_of
from captf_runtime.testing import faults
from captf_runtime.testing.apiserver import ApiServer

SEED = 20260301
OBJECTS = 150
SECONDS = 4.0


class Mirror:
    """Writes into each ConfigMap what its data was when it was last seen; counts two workers on one key."""

    def __init__(self, client: Client, cache: Cache) -> None:
        self.client = client
        self.cache = cache
        self.seen: dict[ObjectKey, str] = {}
        self.busy: set[Request] = set()
        self.faults: list[str] = []

    def reconcile(self, ctx: Context, request: Request) -> None:
        if request in self.busy:
            self.faults.append(f"{request} was with two workers")
        self.busy.add(request)
        try:
            found = {key_of(obj): obj for obj in self.cache.list(CONFIG_MAP, request.namespace)}
            obj = found.get(ObjectKey(*request))
            if obj is None:
                self.seen.pop(ObjectKey(*request), None)
                return
            data = obj.get("data", {})
            if data.get("mirror") != data.get("value"):
                api = self.client.bind(ctx)
                api.patch(
                    CONFIG_MAP, request.name, {"data": {"mirror": data.get("value")}}, request.namespace
                )
            self.seen[ObjectKey(*request)] = resource_version_of(obj)
        finally:
            self.busy.discard(request)


def inject(server: ApiServer) -> list[faults.Fault]:
    maps: dict[str, Any] = {"resource": "configmaps", "user": "controller"}
    return [
        server.faults.add(faults.Match(verb="patch", **maps), faults.internal_error(), probability=0.05),
        server.faults.add(
            faults.Match(verb="patch", **maps), faults.reset(after_commit=True), probability=0.05
        ),
        server.faults.add(faults.Match(verb="patch", **maps), faults.conflict(), probability=0.05),
        server.faults.add(
            faults.Match(verb="patch", **maps), faults.too_many_requests(retry_after=1), probability=0.02
        ),
        server.faults.add(faults.Match(verb="watch", **maps), faults.drop_watch(after_events=40)),
        server.faults.add(
            faults.Match(resource="leases", user="controller"), faults.unavailable(), probability=0.1
        ),
    ]


@pytest.mark.requirement("CF5", "WQ1", "CT5", "IN9", "G3", "G4")
def test_faults_on_the_way_do_not_change_the_end() -> None:
    before = {thread.name for thread in threading.enumerate()}
    draw = random.Random(SEED)
    with ApiServer(seed=SEED) as server:
        user = Client.from_config(kubeconfig=str(server.kubeconfig()))
        client = Client.from_config(kubeconfig=str(server.kubeconfig(user="controller")))
        cache = Cache(client)
        cache.informer(CONFIG_MAP, namespace="default")
        manager = Manager(
            client=client,
            caches=[cache],
            leader_election=LeaderElectionConfig("default", "soak", times=ElectionTimes(60.0, 40.0, 0.2)),
            recorder=Recorder(client, controller="soak", instance="soak"),
        )
        mirror = Mirror(client, cache)
        manager.add(Controller("soak", for_=CONFIG_MAP, reconciler=mirror, cache=cache, concurrency=10))
        stop = threading.Event()
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(manager.run(stop)), daemon=True)
        thread.start()
        eventually(lambda: manager.is_leader)
        injected = inject(server)

        def strikes() -> int:
            return sum(fault.hits for fault in injected)

        until = time.monotonic() + SECONDS
        number = 0
        # Longer on a machine that is too slow for faults to strike in that time.
        while time.monotonic() < until or (strikes() <= 10 and number < 20_000):
            number += 1
            _change(user, f"m-{draw.randrange(OBJECTS)}", str(number), draw.random())
        for fault in injected:
            fault.remove()

        def settled() -> bool:
            items = user.list(CONFIG_MAP, "default").items
            versions = {key_of(obj): resource_version_of(obj) for obj in items}
            mirrored = all(obj["data"].get("mirror") == obj["data"].get("value") for obj in items)
            cached = {key_of(obj): resource_version_of(obj) for obj in cache.list(CONFIG_MAP, "default")}
            return mirrored and cached == versions and mirror.seen == versions

        deadline = time.monotonic() + 120
        while not settled() and time.monotonic() < deadline:
            threading.Event().wait(0.05)
        assert settled()
        assert mirror.faults == []
        assert strikes() > 10
        stop.set()
        thread.join(DEADLINE)
        assert codes == [0]
        user.close()
        client.close()
    eventually(lambda: {thread.name for thread in threading.enumerate()} <= before, "the end of all threads")


def _change(client: Client, name: str, value: str, choice: float) -> None:
    fresh: Object = {"metadata": {"name": name}, "data": {"value": value}}
    try:
        if choice < 0.1:
            client.delete(CONFIG_MAP, name, "default", propagation_policy="Background")
        elif choice < 0.4:
            client.create(CONFIG_MAP, fresh, "default")
        else:
            client.patch(CONFIG_MAP, name, {"data": {"value": value}}, "default")
    except ApiError:
        return  # it is there already, or gone already
