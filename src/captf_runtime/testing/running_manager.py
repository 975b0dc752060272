"""A manager that runs beside a test, in a thread of its own."""

from __future__ import annotations

import threading

from captf_runtime.cache import Cache
from captf_runtime.client import Client
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.manager import Group, Manager, Runnable
from captf_runtime.metrics import Metrics

__all__ = ["RunningManager"]


class _LastStarted:
    """Starts with the last group of a manager, and tells when that group has started."""

    name = "test-start"

    def __init__(self) -> None:
        self.started = threading.Event()

    def run(self, stop: threading.Event) -> None:
        self.started.set()
        stop.wait()


class RunningManager:
    """A `Manager` without election, with one cache, for controllers under test.

    Expected flow::

        with RunningManager(client) as manager:
            manager.add(Controller("copies", for_=SECRET, reconciler=Copies(client), cache=manager.cache))
            manager.start()
            ...

    Guarantees: when `start` returns the cache holds what existed and the controllers run; after `stop` no
    thread of the manager is left.

    Args:
        client: for the cache; the manager does not close it.
        clock: of the manager and the cache.

    Attributes:
        client, cache, manager: what controllers are built with.
    """

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.client = client
        metrics = Metrics()
        self.cache = Cache(client, metrics=metrics, clock=clock)
        self.manager = Manager(client=client, caches=[self.cache], metrics=metrics, clock=clock)
        self._stop = threading.Event()
        self._last = _LastStarted()
        self._status: int | None = None
        self._thread = threading.Thread(target=self._run, name="test-manager", daemon=True)

    def __enter__(self) -> RunningManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def add(self, runnable: Runnable, *, group: Group | None = None, name: str = "") -> None:
        """Have something run with the manager, as `Manager.add` does; before or after `start`."""
        self.manager.add(runnable, group=group, name=name)

    def start(self, timeout: float = 60.0) -> None:
        """Run the manager and wait until everything added runs.

        Raises:
            TimeoutError: it did not within `timeout` seconds.
            RuntimeError: it stopped instead; the cause is the first failure.
        """
        self.manager.add(self._last, group=Group.LEADERS)
        self._thread.start()
        waited = 0.0
        while not self._last.started.wait(0.02):
            waited += 0.02
            if not self._thread.is_alive():
                failures = self.manager.failures
                cause = failures[0][1] if failures else None
                raise RuntimeError("the manager stopped while it started") from cause
            if waited >= timeout:
                raise TimeoutError(f"the manager has not started within {timeout:g} s")

    def stop(self) -> int:
        """Stop the manager, if it runs; return its exit status, 0 when it never ran."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        return self._status or 0

    def _run(self) -> None:
        self._status = self.manager.run(self._stop)
