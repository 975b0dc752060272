"""A manager whose objects come and go: nothing is left of those that are gone."""

from __future__ import annotations

import gc
import tracemalloc
from functools import partial

import pytest

from captf_runtime.client import Client
from captf_runtime.client.errors import NotFound
from captf_runtime.controller import Context, Controller, Request, Result
from captf_runtime.objects import CONFIG_MAP, name_of
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.running_manager import RunningManager
from captf_runtime.testing.waiting import eventually

AT_ONCE = 20
TEXT = "x" * 2000


class Visitor:
    """Fails once for some objects, wants to come back to some in an hour, and notes who is gone."""

    def __init__(self, manager: RunningManager) -> None:
        self._manager = manager
        self._failed: set[str] = set()
        self.present: set[str] = set()

    def has_seen(self, names: set[str]) -> bool:
        """Whether these objects and no others are there, and each was handled."""
        return self.present == names

    def reconcile(self, ctx: Context, request: Request) -> Result | None:
        try:
            obj = self._manager.cache.get(CONFIG_MAP, request.name, request.namespace)
        except NotFound:
            self._failed.discard(request.name)
            self.present.discard(request.name)
            return None
        number = int(name_of(obj).removeprefix("o"))
        if number % 5 == 0 and request.name not in self._failed:
            self._failed.add(request.name)
            raise ConnectionError("the outside world is away")
        self.present.add(request.name)
        return Result(requeue_after=3600.0) if number % 2 else None


@pytest.mark.requirement("IN9", "WQ1")
def test_objects_that_are_gone_leave_nothing_in_caches_and_queues() -> None:
    with (
        ApiServer(controllers=False, history_bytes=50_000) as server,
        Client.from_config(kubeconfig=server.kubeconfig()) as client,
        RunningManager(client) as manager,
    ):
        visitor = Visitor(manager)
        manager.add(Controller("visitor", for_=CONFIG_MAP, reconciler=visitor, cache=manager.cache))
        manager.start()
        numbers = iter(range(10_000))

        def come_and_go(rounds: int) -> int:
            """The bytes that are held after so many rounds."""
            for _ in range(rounds):
                names = {f"o{next(numbers)}" for _ in range(AT_ONCE)}
                for name in names:
                    obj = {"metadata": {"name": name, "labels": {"app": "churn"}}, "data": {"text": TEXT}}
                    client.create(CONFIG_MAP, obj, "default")
                eventually(partial(visitor.has_seen, names), timeout=60)
                for name in names:
                    client.delete(CONFIG_MAP, name, "default", propagation_policy="Background")
                eventually(lambda: not visitor.present, timeout=60)
            server.requests.clear()
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
            return held

        tracemalloc.start()
        try:
            before = come_and_go(10)
            after = come_and_go(20)
        finally:
            tracemalloc.stop()
    assert after - before < 20 * AT_ONCE * 150  # less than the key of each would take
