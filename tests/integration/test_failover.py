"""Two managers take turns through many failures, and never work at the same time."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess

import pytest
from tests.integration.failover_manager import LEASE_NAME, RECORD, TIMES, run

from captf_runtime.client import Client
from captf_runtime.objects import CONFIG_MAP, LEASE, NAMESPACE
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.waiting import eventually

SEED = 20260712
FAILOVERS = 50
PAIRS = 5
"""Pairs of managers, each with a Lease of its own, that fail at the same time: a failover takes two seconds."""

PATIENCE = 180.0
HOUR = 3600.0


class Pair:
    """Two managers of one Lease. A manager that has ended is replaced by a new process.

    Each has an identity of its own, which no later one bears. The clock of every other one is an hour ahead,
    that of every fourth one an hour behind.
    """

    def __init__(self, client: Client, kubeconfig: str, namespace: str, seed: int) -> None:
        self.client = client
        self.namespace = namespace
        self.failures: list[str] = []
        self._kubeconfig = kubeconfig
        self._draw = random.Random(seed)
        # Forked from a process that has everything imported, which is a hundred times quicker than a new one.
        self._processes = multiprocessing.get_context("forkserver")
        self._numbers = itertools.count(1)
        self._running: dict[str, BaseProcess] = {}

    def start(self) -> None:
        """Make the record and start both managers."""
        self.client.create(NAMESPACE, {"metadata": {"name": self.namespace}})
        self.client.create(CONFIG_MAP, {"metadata": {"name": RECORD}}, self.namespace)
        self.fill_up()

    def fill_up(self) -> None:
        """See to it that two managers run."""
        for identity, process in list(self._running.items()):
            if not process.is_alive():
                process.join()
                del self._running[identity]
        while len(self._running) < 2:
            number = next(self._numbers)
            identity = f"{self.namespace}-{number}"
            shift = HOUR * (0, 1, 0, -1)[number % 4]
            process = self._processes.Process(
                target=run, args=(self._kubeconfig, self.namespace, identity, shift), daemon=True
            )
            process.start()
            self._running[identity] = process

    def worker(self) -> str:
        """Which manager has written into the record last; empty before the first."""
        record = self.client.get(CONFIG_MAP, RECORD, self.namespace)
        return str((record.get("data") or {}).get("manager", ""))

    def fail(self) -> None:
        """Make the manager that works now fail, wait until the other one works, and replace the first."""
        victim = eventually(self._worker, timeout=PATIENCE)
        process = self._running.get(victim)
        kind = self._draw.choice(["kill", "pause"])
        if process is not None and process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        eventually(lambda: self._worker(victim), timeout=PATIENCE)
        if kind == "pause" and process is not None and process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGCONT)
            process.join(PATIENCE)
            assert process.exitcode == 1, f"{victim} has not ended by itself: {process.exitcode}"
        self.failures.append(kind)
        self.fill_up()

    def _worker(self, victim: str = "") -> str:
        """Who works now, if it is not `victim`."""
        # On a busy machine a manager may lose leadership unprovoked; it is replaced like any that has ended.
        if not any(process.is_alive() for name, process in self._running.items() if name != victim):
            self.fill_up()
        worker = self.worker()
        return worker if worker != victim else ""

    def end(self) -> None:
        """End all processes."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.join(PATIENCE)


class Witness:
    """Sees every version of every record, in the order in which the server stored them."""

    def __init__(self, client: Client) -> None:
        self.writes: dict[str, list[tuple[str, str]]] = {}
        self._stream = client.watch(
            CONFIG_MAP,
            field_selector=f"metadata.name={RECORD}",
            resource_version=client.list(CONFIG_MAP).resource_version,
            timeout_seconds=600,
            read_timeout=600,
        )
        self._thread = threading.Thread(target=self._read, name="witness", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for event in self._stream:
            if event.type not in ("ADDED", "MODIFIED"):
                continue
            obj = event.decode()
            data = obj.get("data") or {}
            if data:
                seen = self.writes.setdefault(obj["metadata"]["namespace"], [])
                seen.append((data["manager"], data["phase"]))

    def end(self) -> None:
        """Stop looking."""
        self._stream.close()
        self._thread.join(PATIENCE)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(controllers=False, history_limit=100_000) as made:
        yield made


@pytest.mark.slow
@pytest.mark.requirement("LE2", "LE6", "LE7", "CT8")
def test_managers_never_work_at_the_same_time(server: ApiServer) -> None:
    kubeconfig = str(server.kubeconfig())
    multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.integration.failover_manager"])
    with Client.from_config(kubeconfig=kubeconfig) as client:
        witness = Witness(client)
        pairs = [Pair(client, kubeconfig, f"pair-{number}", SEED + number) for number in range(PAIRS)]
        try:
            for pair in pairs:
                pair.start()

            def fail_over(pair: Pair) -> None:
                for _ in range(FAILOVERS // PAIRS):
                    pair.fail()

            with ThreadPoolExecutor(PAIRS, thread_name_prefix="pair") as pool:
                for _ in pool.map(fail_over, pairs):
                    continue
        finally:
            for pair in pairs:
                pair.end()
        last = {pair.namespace: pair.worker() for pair in pairs}
        eventually(lambda: all(witness.writes[pair][-1][0] == worker for pair, worker in last.items()))
        witness.end()
        assert sum(len(pair.failures) for pair in pairs) == FAILOVERS
        assert {kind for pair in pairs for kind in pair.failures} == {"kill", "pause"}
        for pair in pairs:
            check(witness.writes[pair.namespace], len(pair.failures))
            lease = client.get(LEASE, LEASE_NAME, pair.namespace)["spec"]
            assert lease["leaseDurationSeconds"] == TIMES.lease_duration
            assert lease["leaseTransitions"] >= len(pair.failures)


def check(writes: list[tuple[str, str]], failovers: int) -> None:
    """Each manager has one uninterrupted time of work: whoever has been followed by another never writes again.

    Within that time beginnings and ends alternate, and only its very last reconcile may be without an end.
    """
    terms = [
        (manager, [phase for _, phase in group]) for manager, group in itertools.groupby(writes, _manager)
    ]
    assert len({manager for manager, _ in terms}) == len(terms), "a manager wrote after its successor"
    assert len(terms) >= failovers + 1
    for manager, phases in terms:
        expected = list(itertools.islice(itertools.cycle(["begin", "end"]), len(phases)))
        assert phases == expected, f"reconciles of {manager} overlap"


def _manager(write: tuple[str, str]) -> str:
    return write[0]
