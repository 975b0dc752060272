from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.runtime.fakes import DEADLINE, FakeCache, MemoryClient, eventually, stored

from captf_runtime import log
from captf_runtime.cache import Cache
from captf_runtime.client import Client, ClientConfig
from captf_runtime.client.errors import TransportError
from captf_runtime.controller import Context, Controller, NotLeader, Request
from captf_runtime.events import Recorder
from captf_runtime.manager import Group, LeaderElectionConfig, Manager
from captf_runtime.metrics import Metrics
from captf_runtime.objects import EVENTS_V1, LEASE, Kind, ObjectKey
from captf_runtime.testing.clock import VirtualClock

MACHINE = Kind("example.com", "v1", "Machine", "machines")
LEASE_KEY = (LEASE, ObjectKey("system", "leader"))


class Gate(threading.Event):
    """An event that tells when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.reached.set()
        return super().wait(timeout)


class Part:
    """A runnable that notes when it starts and ends."""

    def __init__(self, name: str, events: list[str], *, until: threading.Event | None = None) -> None:
        self.name = name
        self.events = events
        self.until = until
        self.ready = threading.Event()

    def run(self, stop: threading.Event) -> None:
        self.events.append(f"+{self.name}")
        self.ready.set()
        stop.wait(DEADLINE)
        if self.until is not None:
            self.until.wait(DEADLINE)
        self.events.append(f"-{self.name}")


class PartCache:
    def __init__(self, name: str, events: list[str], *, error: Exception | None = None) -> None:
        self.name = name
        self.events = events
        self.error = error
        self.stop: threading.Event | None = None

    def start(self, stop: threading.Event) -> None:
        self.events.append(f"+{self.name}")
        self.stop = stop

    def wait_for_sync(self, timeout: float) -> None:
        if self.error is not None:
            raise self.error
        self.events.append(f"={self.name}")


class Runner:
    """Runs a manager in a thread."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.stop = threading.Event()
        self.codes: list[int] = []
        self.exits: list[int] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.codes.append(self.manager.run(self.stop, hard_exit=self.exits.append))

    def end(self) -> int:
        self.stop.set()
        return self.wait()

    def wait(self) -> int:
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()
        return self.codes[0]


@pytest.fixture
def logs() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    level = log.get_level()
    stream = io.StringIO()
    log.configure("info", "json", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log.configure(level, "text", None)


def all_groups(manager: Manager, events: list[str], **options: Any) -> dict[Group, Part]:
    parts = {group: Part(group.name.lower(), events, **options.get(group.name, {})) for group in Group}
    for group in reversed(Group):
        manager.add(parts[group], group=group)
    return parts


@pytest.mark.requirement("MG1", "MG4", "MG8")
@pytest.mark.parametrize("election", [False, True])
def test_groups_start_in_order_and_stop_the_other_way_round(election: bool) -> None:
    events: list[str] = []
    client = MemoryClient()

    def note(verb: str, kind: Kind) -> None:
        if kind == LEASE:
            holder = client.objects[LEASE_KEY]["spec"]["holderIdentity"] if verb == "update" else ""
            events.append("release" if verb == "update" and not holder else verb)

    client.after = note
    caches = {name: PartCache(name, events) for name in ("main", "variables")}
    manager = Manager(
        client=client,
        caches=caches,
        leader_election=LeaderElectionConfig("system", "leader") if election else None,
    )
    all_groups(manager, events)
    runner = Runner(manager)
    eventually(lambda: "+leaders" in events)
    assert manager.is_leader
    started = [*events]
    assert runner.end() == 0
    assert [event for event in started if event not in ("get", "create")] == [
        *("+http", "+webhooks", "+main", "+variables", "=main", "=variables", "+caches"),
        *("+others", "+leaders"),
    ]
    if election:
        assert started.index("create") in range(started.index("+others"), started.index("+leaders"))
    ended = [event for event in events[len(started) :] if event not in ("get", "update")]
    release = ["release"] if election else []
    assert ended == ["-leaders", "-others", "-caches", "-webhooks", "-http", *release]
    assert all(cache.stop is not None and cache.stop.is_set() for cache in caches.values())


@pytest.mark.requirement("MG1")
def test_a_group_waits_until_the_one_before_is_ready() -> None:
    events: list[str] = []

    class Slow(Part):
        def run(self, stop: threading.Event) -> None:
            self.events.append(f"+{self.name}")
            stop.wait(DEADLINE)

    manager = Manager()
    slow = Slow("webhook", events)
    manager.add(slow, group=Group.WEBHOOKS)
    manager.add(Part("other", events))
    runner = Runner(manager)
    eventually(lambda: "+webhook" in events)
    assert events == ["+webhook"]
    slow.ready.set()
    eventually(lambda: "+other" in events)
    assert runner.end() == 0


@pytest.mark.requirement("MG2")
def test_what_is_added_later_starts_at_once_and_nothing_while_stopping() -> None:
    events: list[str] = []
    manager = Manager()
    hold = threading.Event()
    manager.add(Part("first", events, until=hold), group=Group.OTHERS)
    runner = Runner(manager)
    eventually(lambda: Group.LEADERS in manager._started)
    manager.add(Part("late", events), group=Group.OTHERS)
    manager.add(Part("leader", events), needs_leader=True)
    eventually(lambda: {"+late", "+leader"} <= set(events))
    runner.stop.set()
    eventually(lambda: "-leader" in events)
    with pytest.raises(RuntimeError, match="is stopping"):
        manager.add(Part("too late", events))
    hold.set()
    assert runner.wait() == 0
    with pytest.raises(RuntimeError, match="only once"):
        manager.run(threading.Event())


@pytest.mark.requirement("MG2")
def test_controllers_need_leadership_unless_they_say_otherwise() -> None:
    client = MemoryClient()
    manager = Manager(client=client, leader_election=LeaderElectionConfig("system", "leader"))
    seen: dict[str, bool] = {}

    def reconcile(name: str) -> Callable[[Context, Request], None]:
        def function(ctx: Context, request: Request) -> None:
            ctx.check()
            seen[name] = manager.is_leader

        return function

    def controller(name: str, **options: Any) -> Controller:
        made = Controller(name, for_=MACHINE, reconciler=reconcile(name), cache=FakeCache(), **options)  # type: ignore[arg-type]
        made.enqueue(Request("ns", "one"))
        manager.add(made)
        return made

    controller("leads")
    controller("anyone", needs_leader=False)

    def fail(verb: str, kind: Kind) -> None:
        raise TransportError("refused", ambiguous=False)

    client.before = fail
    runner = Runner(manager)
    eventually(lambda: "anyone" in seen)
    assert seen == {"anyone": False}
    client.before = lambda verb, kind: None
    eventually(lambda: "leads" in seen)
    assert seen["leads"]
    with pytest.raises(ValueError, match="another controller of this manager has the name"):
        controller("leads")
    assert runner.end() == 0


@pytest.mark.requirement("LE7", "MG2")
def test_only_controllers_that_need_leadership_are_held_by_its_fence() -> None:
    client = MemoryClient()
    manager = Manager(client=client, leader_election=LeaderElectionConfig("system", "leader"))
    fenced = threading.Event()
    running: dict[str, threading.Event] = {"leads": threading.Event(), "anyone": threading.Event()}
    ended: dict[str, bool] = {}

    def reconcile(name: str) -> Callable[[Context, Request], None]:
        def function(ctx: Context, request: Request) -> None:
            ctx.check()
            running[name].set()
            fenced.wait(DEADLINE)
            try:
                ctx.check()
                ended[name] = True
            except NotLeader:
                ended[name] = False
                raise

        return function

    for name, needs_leader in (("leads", True), ("anyone", False)):
        controller = Controller(
            name,
            for_=MACHINE,
            reconciler=reconcile(name),
            cache=FakeCache(),  # type: ignore[arg-type]
            needs_leader=needs_leader,
        )
        controller.enqueue(Request("ns", "one"))
        manager.add(controller)
    runner = Runner(manager)
    for event in running.values():
        assert event.wait(DEADLINE)
    manager.fence.close()
    fenced.set()
    eventually(lambda: ended == {"leads": False, "anyone": True})
    value = manager.metrics.registry.get_sample_value
    runner.stop.set()
    runner.wait()
    # What ended for want of leadership is no outcome, and no failure of a worker.
    labels = {"controller": "leads", "result": "error"}
    assert value("controller_runtime_reconcile_total", labels) == 0
    assert value("captf_runtime_thread_failures_total", {"component": "controller-leads"}) == 0


@pytest.mark.requirement("MG3")
def test_a_runnable_that_raises_stops_the_manager() -> None:
    events: list[str] = []
    manager = Manager()
    all_groups(manager, events)

    class Broken:
        def run(self, stop: threading.Event) -> None:
            raise ValueError("broken")

    class Finished:
        def run(self, stop: threading.Event) -> None:
            events.append("finished")

    manager.add(Finished())
    runner = Runner(manager)
    eventually(lambda: "+leaders" in events and "finished" in events)
    assert runner.thread.is_alive()
    manager.add(Broken(), name="broken")
    assert runner.wait() == 1
    assert [(name, str(error)) for name, error in manager.failures] == [("broken", "broken")]
    assert events[-5:] == ["-leaders", "-others", "-caches", "-webhooks", "-http"]


@pytest.mark.requirement("MG3", "CT4")
def test_caches_that_do_not_fill_stop_the_manager() -> None:
    events: list[str] = []
    manager = Manager(caches=[PartCache("c", events, error=TimeoutError("jobs is forbidden"))])
    manager.add(Part("other", events))
    assert Runner(manager).wait() == 1
    assert "jobs is forbidden" in str(manager.failures[0][1])
    assert "+other" not in events


@pytest.mark.requirement("MG3")
def test_a_cache_that_cannot_start_stops_the_manager() -> None:
    class Broken(PartCache):
        def start(self, stop: threading.Event) -> None:
            raise RuntimeError("was started already")

    events: list[str] = []
    manager = Manager(caches=[Broken("cache", events)])
    all_groups(manager, events)
    assert Runner(manager).wait() == 1
    assert [(name, str(error)) for name, error in manager.failures] == [("start", "was started already")]
    assert events == ["+http", "+webhooks", "-webhooks", "-http"]


@pytest.mark.requirement("MG4", "LE9")
def test_past_the_grace_period_the_rest_is_named_and_nothing_released(
    logs: Callable[[], list[dict[str, Any]]],
) -> None:
    clock = VirtualClock()
    client = MemoryClient()
    events: list[str] = []
    stuck = Gate()
    manager = Manager(
        client=client, leader_election=LeaderElectionConfig("system", "leader"), clock=clock, grace_period=20
    )
    all_groups(manager, events, LEADERS={"until": stuck})
    runner = Runner(manager)
    eventually(lambda: "+leaders" in events)
    runner.stop.set()
    assert stuck.reached.wait(DEADLINE)
    for _ in range(10):
        clock.wait_for_waiters(3)  # renewal and its watchdog, and the end of the leader's group
        assert manager.is_leader
        clock.advance(2)
    assert runner.wait() == 1
    line = next(line for line in logs() if line["msg"] == "did not end within the grace period")
    assert line["runnable"] == "leaders"
    assert "self.until.wait" in line["stack"]
    assert client.objects[LEASE_KEY]["spec"]["holderIdentity"] == manager.identity
    with pytest.raises(NotLeader):
        manager.fence.check()
    # The other groups were told to stop nevertheless.
    eventually(lambda: {"-others", "-caches", "-webhooks", "-http"} <= set(events))
    stuck.set()


@pytest.mark.requirement("MG4", "LE9")
@pytest.mark.parametrize("stuck_group", [Group.OTHERS, Group.CACHES, Group.WEBHOOKS, Group.HTTP])
def test_whatever_is_stuck_nothing_is_released(stuck_group: Group) -> None:
    client = MemoryClient()
    events: list[str] = []
    stuck = threading.Event()
    before = set(threading.enumerate())
    manager = Manager(
        client=client, leader_election=LeaderElectionConfig("system", "leader"), grace_period=0.3
    )
    all_groups(manager, events, **{stuck_group.name: {"until": stuck}})
    runner = Runner(manager)
    eventually(lambda: "+leaders" in events)
    assert runner.end() == 1
    electing = [thread for thread in set(threading.enumerate()) - before if "election" in thread.name]
    for thread in electing:
        thread.join(DEADLINE)
    assert client.objects[LEASE_KEY]["spec"]["holderIdentity"] == manager.identity
    assert not manager.is_leader
    stuck.set()


@pytest.mark.requirement("MG4", "LE9")
def test_a_release_that_hangs_is_no_clean_end() -> None:
    client = MemoryClient()
    release = threading.Event()
    manager = Manager(
        client=client, leader_election=LeaderElectionConfig("system", "leader"), grace_period=0.3
    )
    runner = Runner(manager)
    eventually(lambda: manager.is_leader)

    def hang(verb: str, kind: Kind) -> None:
        release.wait(DEADLINE)

    client.before = hang
    assert runner.end() == 1
    assert not manager.is_leader
    release.set()


@pytest.mark.requirement("MG4", "G3")
def test_one_that_is_not_the_leader_stops_at_once() -> None:
    client = MemoryClient()
    tried = threading.Event()

    def fail(verb: str, kind: Kind) -> None:
        tried.set()
        raise TransportError("refused", ambiguous=False)

    client.before = fail
    # Far longer than this test waits.
    manager = Manager(
        client=client, leader_election=LeaderElectionConfig("system", "leader"), grace_period=1000
    )
    runner = Runner(manager)
    assert tried.wait(DEADLINE)
    assert runner.end() == 0


@pytest.mark.requirement("MG1", "MG4", "G3")
@pytest.mark.parametrize("waits_for", ["webhooks", "cache", "others"])
def test_a_stop_while_starting_starts_nothing_more(waits_for: str) -> None:
    events: list[str] = []

    class NeverReady(Part):
        def run(self, stop: threading.Event) -> None:
            self.events.append(f"+{self.name}")
            stop.wait(DEADLINE)
            self.events.append(f"-{self.name}")

    class NeverFull(PartCache):
        def wait_for_sync(self, timeout: float) -> None:
            assert self.stop is not None
            self.events.append("+cache")
            self.stop.wait(DEADLINE)
            raise TimeoutError("stopped before it was full")

    caches = [NeverFull("filling", events)] if waits_for == "cache" else []
    manager = Manager(caches=caches)
    for group in Group:
        part = NeverReady if group.name.lower() == waits_for else Part
        manager.add(part(group.name.lower(), events), group=group)
    runner = Runner(manager)
    eventually(lambda: f"+{waits_for}" in events)
    assert runner.end() == 0
    assert manager.failures == []
    order = ["http", "webhooks", "caches", "others", "leaders"]
    reached = order.index("webhooks" if waits_for == "cache" else waits_for)
    started = [event[1:] for event in events if event[0] == "+" and event[1:] in order]
    assert started == order[: reached + 1]


@pytest.mark.requirement("MG4")
def test_caches_answer_until_the_leaders_have_ended() -> None:
    events: list[str] = []
    hold = threading.Event()
    cache = PartCache("cache", events)
    manager = Manager(caches=[cache])
    all_groups(manager, events, LEADERS={"until": hold})
    runner = Runner(manager)
    eventually(lambda: "+leaders" in events)
    runner.stop.set()
    eventually(lambda: manager._stopping)
    assert cache.stop is not None
    assert not cache.stop.is_set()
    hold.set()
    assert runner.wait() == 0
    assert cache.stop.is_set()


@pytest.mark.requirement("MG4", "LE9")
def test_a_handler_that_hangs_is_named_and_nothing_released(
    logs: Callable[[], list[dict[str, Any]]],
) -> None:
    lease_client = MemoryClient()
    release = Gate()

    def hang(event: object) -> None:
        release.wait(DEADLINE)

    with Client(ClientConfig(server="http://127.0.0.1:9")) as client:
        cache = Cache(client)
        informer = cache.informer(MACHINE)
        informer.replace([stored(MACHINE, {"metadata": {"namespace": "ns", "name": "one"}})], "1")
        manager = Manager(
            client=lease_client,
            caches=[cache],
            leader_election=LeaderElectionConfig("system", "leader"),
            grace_period=0.2,
        )
        before = set(threading.enumerate())
        runner = Runner(manager)
        eventually(lambda: manager.is_leader)
        informer.add_handler(hang, name="hang")
        assert release.reached.wait(DEADLINE)
        assert runner.end() == 1
        electing = [thread for thread in set(threading.enumerate()) - before if "election" in thread.name]
        for thread in electing:
            thread.join(DEADLINE)  # what it has to say to the server has been said
        # On a busy machine other threads may be late too.
        late = [line for line in logs() if line["msg"] == "did not end within the grace period"]
        assert any("release.wait" in line["stack"] for line in late if line["runnable"] == "cache-0")
        assert lease_client.objects[LEASE_KEY]["spec"]["holderIdentity"] == manager.identity
        release.set()


@pytest.mark.requirement("LE6")
def test_lost_leadership_ends_the_manager_without_waiting(logs: Callable[[], list[dict[str, Any]]]) -> None:
    clock = VirtualClock()
    client = MemoryClient()
    events: list[str] = []
    never = threading.Event()
    before = set(threading.enumerate())
    cache = PartCache("cache", events)
    manager = Manager(
        client=client, caches=[cache], leader_election=LeaderElectionConfig("system", "leader"), clock=clock
    )
    manager.add(Part("leader", events, until=never), needs_leader=True)
    manager.add(Part("other", events))
    runner = Runner(manager)
    eventually(lambda: "+leader" in events)

    def fail(verb: str, kind: Kind) -> None:
        raise TransportError("refused", ambiguous=False)

    client.before = fail
    for _ in range(5):
        clock.wait_for_waiters(2)
        clock.advance(2)
    assert runner.wait() == 1
    assert not manager.is_leader
    assert "-leader" not in events
    # Everything has been told to end, for the time that the process is still there.
    eventually(lambda: "-other" in events)
    assert cache.stop is not None
    assert cache.stop.is_set()
    assert [line["msg"] for line in logs() if line["level"] == "error"][-1] == "leader election lost"
    # A process that is still there a second before another may take over is ended.
    clock.wait_for_waiters(1)
    assert runner.exits == []
    clock.advance(4)
    eventually(lambda: runner.exits == [1])
    never.set()
    eventually(
        lambda: set(threading.enumerate()) <= before,
        lambda: f"the end of {[thread.name for thread in set(threading.enumerate()) - before]}",
    )


@pytest.mark.requirement("MG2")
def test_what_is_said_when_adding_goes_before_what_a_runnable_says() -> None:
    events: list[str] = []
    client = MemoryClient()

    class Leading(Part):
        needs_leader = True

    def fail(verb: str, kind: Kind) -> None:
        raise TransportError("refused", ambiguous=False)

    client.before = fail
    manager = Manager(client=client, leader_election=LeaderElectionConfig("system", "leader"))
    manager.add(Leading("anyone", events), needs_leader=False)
    manager.add(Part("leader", events), needs_leader=True)
    manager.add(Leading("leader too", events))
    runner = Runner(manager)
    eventually(lambda: events == ["+anyone"])
    client.before = lambda verb, kind: None
    eventually(lambda: {"+leader", "+leader too"} <= set(events))
    assert runner.end() == 0


@pytest.mark.requirement("LE5")
def test_the_election_has_connections_of_its_own_and_closes_them() -> None:
    class Shared(MemoryClient):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[tuple[int, str]] = []
            self.own = Own()

        def dedicated(self, *, pool_size: int, suffix: str = "") -> Own:
            self.asked.append((pool_size, suffix))
            return self.own

    class Own(MemoryClient):
        closed = False

        def close(self) -> None:
            assert self.objects[LEASE_KEY]["spec"]["holderIdentity"] == ""  # after the release
            self.closed = True

    client = Shared()
    manager = Manager(client=client, leader_election=LeaderElectionConfig("system", "leader"))
    runner = Runner(manager)
    eventually(lambda: manager.is_leader)
    assert runner.end() == 0
    assert client.asked == [(2, "leader-election")]
    assert client.requests == []
    assert client.own.closed


@pytest.mark.requirement("MG4", "CT4")
def test_default_times() -> None:
    manager = Manager()
    assert (manager._grace_period, manager._sync_timeout) == (20.0, 120.0)


@pytest.mark.requirement("MG6")
def test_each_manager_has_a_registry_of_its_own() -> None:
    first, second = Manager(), Manager()
    for manager in (first, second):
        manager.add(Controller("machines", for_=MACHINE, reconciler=lambda c, r: None, cache=FakeCache()))  # type: ignore[arg-type]
    assert first.metrics.registry is not second.metrics.registry
    assert b"process_resident_memory_bytes" in first.metrics.exposition()
    registry = CollectorRegistry()
    assert Manager(registry=registry).metrics.registry is registry
    metrics = Metrics()
    assert Manager(metrics=metrics).metrics is metrics
    with pytest.raises(ValueError, match="one of the two"):
        Manager(metrics=metrics, registry=registry)


@pytest.mark.requirement("MG7")
def test_signals_need_the_main_thread() -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            Manager().run()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(DEADLINE)
    assert "main thread only" in str(errors[0])


PROGRAM = """
    import sys, threading
    from captf_runtime import log
    from captf_runtime.manager import Manager

    class Part:
        def run(self, stop):
            print("running", flush=True)
            stop.wait()
            print("stopping", flush=True)
            if sys.argv[1] == "stuck":
                threading.Event().wait()

    log.configure("info", "json", sys.stderr)
    manager = Manager()
    manager.add(Part())
    sys.exit(manager.run())
"""


@pytest.mark.requirement("MG7", "MG4")
@pytest.mark.parametrize(
    ("how", "number", "code"),
    [("clean", signal.SIGTERM, 0), ("clean", signal.SIGINT, 0), ("stuck", signal.SIGTERM, 1)],
)
def test_signals_stop_a_program_and_a_second_one_ends_it(
    tmp_path: Path, how: str, number: signal.Signals, code: int
) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    source = Path(__file__).parents[3] / "src"
    process = subprocess.Popen(
        [sys.executable, str(program), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(number)
        assert process.stdout.readline() == "stopping\n"
        if how == "stuck":
            process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == code
    finally:
        process.kill()
        process.communicate()


@pytest.mark.requirement("LE6", "LE9")
def test_winning_and_leaving_are_events_on_the_lease() -> None:
    client = MemoryClient()
    recorder = Recorder(client, controller="manager", instance="me")
    manager = Manager(
        client=client,
        leader_election=LeaderElectionConfig("system", "leader", identity="me"),
        recorder=recorder,
    )
    runner = Runner(manager)
    eventually(lambda: manager.is_leader)
    assert runner.end() == 0
    events = [obj for (kind, _), obj in client.objects.items() if kind == EVENTS_V1]
    assert {event["note"] for event in events} == {"me became leader", "me stopped leading"}
    assert {event["reason"] for event in events} == {"LeaderElection"}
    assert {event["regarding"]["kind"] for event in events} == {"Lease"}


@pytest.mark.requirement("G4")
def test_all_threads_end_with_the_manager() -> None:
    before = set(threading.enumerate())
    client = MemoryClient()
    manager = Manager(
        client=client,
        leader_election=LeaderElectionConfig("system", "leader"),
        recorder=Recorder(client, controller="manager", instance="me"),
    )
    controller = Controller(
        "machines",
        for_=MACHINE,
        reconciler=lambda ctx, request: None,
        cache=FakeCache(),  # type: ignore[arg-type]
        concurrency=4,
        reconcile_timeout=60.0,
    )
    manager.add(controller)
    runner = Runner(manager)
    eventually(lambda: len(controller.threads()) == 5)
    assert runner.end() == 0
    eventually(
        lambda: set(threading.enumerate()) <= before,
        lambda: f"the end of {[thread.name for thread in set(threading.enumerate()) - before]}",
    )


def test_an_election_needs_a_client() -> None:
    with pytest.raises(ValueError, match="needs a client"):
        Manager(leader_election=LeaderElectionConfig("system", "leader"))
