from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.runtime.fakes import DEADLINE, FakeCache, eventually, stored

from captf_runtime import log
from captf_runtime.cache import Added, Deleted, Updated
from captf_runtime.client.errors import Conflict
from captf_runtime.controller import (
    Channel,
    Context,
    Controller,
    NotLeader,
    ReconcileError,
    ReconcileTimeout,
    Request,
    Result,
    Stopping,
    SyncTimeout,
    TerminalError,
    Watch,
    enqueue_mapped,
    generation_changed,
)
from captf_runtime.election import Fence
from captf_runtime.metrics import Metrics
from captf_runtime.objects import JOB, Kind
from captf_runtime.queue import LOW
from captf_runtime.testing.clock import VirtualClock

MACHINE = Kind("example.com", "v1", "Machine", "machines")
ONE = Request("ns", "one")
TWO = Request("ns", "two")

Reconcile = Callable[[Context, Request], Result | None]


def machine(name: str = "one", version: str = "1", generation: int = 1) -> Any:
    metadata = {"namespace": "ns", "name": name, "resourceVersion": version, "generation": generation}
    return stored(MACHINE, {"metadata": metadata})


class Harness:
    """A controller on fakes, running in a thread."""

    def __init__(self, reconcile: Reconcile, **options: Any) -> None:
        self.clock = options.pop("clock", None) or VirtualClock()
        self.metrics = Metrics()
        self.cache = options.pop("cache", None) or FakeCache()
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        options.setdefault("fence", Fence.open())
        self.controller = Controller(
            "machines",
            for_=MACHINE,
            reconciler=reconcile,
            cache=self.cache,
            clock=self.clock,
            **options,
        )
        self.controller.attach(metrics=self.metrics, fence=Fence.open())
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.controller.run(self.stop)
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.errors.append(error)

    def __enter__(self) -> Harness:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("controller-machines")]

    def value(self, series: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(series, {"controller": "machines", **labels})

    def results(self) -> dict[str, float | None]:
        return {
            result: self.value("controller_runtime_reconcile_total", result=result)
            for result in ("error", "requeue", "requeue_after", "success")
        }

    def count(self, series: str) -> float | None:
        return self.value(f"controller_runtime_{series}_total")


@pytest.fixture
def logs() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    level = log.get_level()
    stream = io.StringIO()
    log.configure("debug", "json", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log.configure(level, "text", None)


def ends(*steps: Result | BaseException | None) -> tuple[Reconcile, list[Request]]:
    """A reconciler that ends in these ways, one after another, and then well."""
    calls: list[Request] = []
    left = list(steps)

    def reconcile(ctx: Context, request: Request) -> Result | None:
        calls.append(request)
        step = left.pop(0) if left else None
        if isinstance(step, BaseException):
            raise step
        return step

    return reconcile, calls


@pytest.mark.requirement("CT1")
def test_a_controller_needs_a_name_and_a_worker() -> None:
    with pytest.raises(ValueError, match="concurrency: must be at least 1, got 0"):
        Harness(ends()[0], concurrency=0)
    with pytest.raises(ValueError, match="reconcile_timeout"):
        Harness(ends()[0], reconcile_timeout=0.0)
    with pytest.raises(ValueError, match="name"):
        Controller("", for_=MACHINE, reconciler=ends()[0], cache=FakeCache())  # type: ignore[arg-type]


@pytest.mark.requirement("CT1")
def test_a_name_is_taken_once_and_a_start_happens_once() -> None:
    with Harness(ends()[0]) as harness:
        other = Controller("machines", for_=MACHINE, reconciler=ends()[0], cache=FakeCache())  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="'machines': another controller of this manager"):
            other.attach(metrics=harness.metrics, fence=Fence.open())
        eventually(lambda: harness.controller._started)
        with pytest.raises(RuntimeError, match="started before"):
            harness.controller.run(threading.Event())


@pytest.mark.requirement("CT1", "CT2")
def test_own_owned_mapped_and_channel_events_lead_to_requests() -> None:
    reconcile, calls = ends()
    channel = Channel()
    config = Kind("", "v1", "ConfigMap", "configmaps")
    watch = Watch(config, enqueue_mapped(lambda obj: [Request("ns", obj["metadata"]["name"])]))
    with Harness(reconcile, owns=[JOB], watches=[watch], channels=[channel]) as harness:
        eventually(lambda: all(informer.registrations for informer in harness.cache.informers))
        harness.cache.by_kind[MACHINE].deliver(Added(machine("own")))
        reference = {"apiVersion": "example.com/v1", "kind": "Machine", "name": "owner", "uid": "u"}
        job = {
            "metadata": {
                "namespace": "ns",
                "name": "j",
                "ownerReferences": [{**reference, "controller": True}],
            }
        }
        harness.cache.by_kind[JOB].deliver(Deleted(stored(JOB, job)))
        harness.cache.by_kind[config].deliver(
            Added(stored(config, {"metadata": {"namespace": "x", "name": "mapped"}}))
        )
        channel.send(Request("ns", "channel"))
        harness.controller.enqueue(Request("ns", "by-hand"))
        eventually(lambda: len(calls) == 5)
    assert {request.name for request in calls} == {"own", "owner", "mapped", "channel", "by-hand"}


@pytest.mark.requirement("CT3")
@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3)])
def test_a_predicate_that_raises_lets_the_event_pass(error: BaseException) -> None:
    reconcile, calls = ends()

    def broken(event: object) -> bool:
        raise error

    with Harness(reconcile, predicates=[broken, generation_changed()]) as harness:
        eventually(lambda: bool(harness.cache.by_kind[MACHINE].registrations))
        deliver = harness.cache.by_kind[MACHINE].deliver
        deliver(Updated(machine(), machine(version="2")))
        deliver(Updated(machine(), machine(version="2", generation=2)))
        eventually(lambda: len(calls) == 1)
        labels = {"kind": "Machine"}
        name = "captf_runtime_handler_failures_total"
        assert harness.metrics.registry.get_sample_value(name, labels) == 2


@pytest.mark.requirement("CT2")
@pytest.mark.parametrize("nonsense", [[("ns", "one")], ["ns/one"], "ns/one", [None], [[]], None])
def test_a_mapping_that_returns_no_requests_is_counted_and_leaves_the_workers_alone(nonsense: Any) -> None:
    reconcile, calls = ends()
    with Harness(reconcile, watches=[Watch(JOB, lambda event: nonsense)]) as harness:
        eventually(lambda: bool(harness.cache.by_kind[JOB].registrations))
        harness.cache.by_kind[JOB].deliver(Added(stored(JOB, {"metadata": {"name": "j"}})))
        name = "captf_runtime_handler_failures_total"
        assert harness.metrics.registry.get_sample_value(name, {"kind": "Job"}) == 1
        harness.cache.by_kind[MACHINE].deliver(Added(machine()))
        eventually(lambda: calls == [ONE])
        name = "captf_runtime_thread_failures_total"
        labels = {"component": "controller-machines"}
        assert harness.metrics.registry.get_sample_value(name, labels) == 0


def test_what_is_no_request_is_refused_where_it_is_handed_in() -> None:
    channel = Channel()
    wrong: Any = ("ns", "one")
    with Harness(ends()[0], channels=[channel]) as harness:
        with pytest.raises(TypeError, match=r"request: must be a Request\(namespace, name\)"):
            channel.send(wrong)
        with pytest.raises(TypeError, match="request: must be a Request"):
            harness.controller.enqueue(wrong)
        with pytest.raises(ValueError, match="seconds: must be a number"):
            harness.controller.enqueue(ONE, after=float("nan"))


def test_a_channel_forgets_a_controller_that_has_ended() -> None:
    channel = Channel()
    with Harness(ends()[0], channels=[channel]):
        eventually(lambda: len(channel._listeners) == 1)
    assert channel._listeners == []


@pytest.mark.requirement("CT2")
@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3)])
def test_a_mapping_that_raises_leads_to_nothing_and_is_counted(error: BaseException) -> None:
    def broken(obj: object) -> list[Request]:
        raise error

    with Harness(ends()[0], watches=[Watch(JOB, enqueue_mapped(broken))]) as harness:
        eventually(lambda: bool(harness.cache.by_kind[JOB].registrations))
        harness.cache.by_kind[JOB].deliver(Added(stored(JOB, {"metadata": {"name": "j"}})))
        name = "captf_runtime_handler_failures_total"
        assert harness.metrics.registry.get_sample_value(name, {"kind": "Job"}) == 1


@pytest.mark.requirement("WQ4")
def test_what_tells_of_nothing_new_has_low_priority() -> None:
    release = threading.Event()
    priorities: list[int] = []

    class Recording(Controller):
        def _handle(self, item: Any, stop: threading.Event) -> None:
            priorities.append(item.priority)

    cache = FakeCache(synced=False)
    controller = Recording("machines", for_=MACHINE, reconciler=ends()[0], cache=cache)  # type: ignore[arg-type]
    stop = threading.Event()
    thread = threading.Thread(target=lambda: controller.run(stop), daemon=True)
    thread.start()
    informer = cache.by_kind[MACHINE]
    eventually(lambda: bool(informer.registrations))
    same = machine("resynced")
    informer.deliver(Added(machine("listed"), initial=True))
    informer.deliver(Updated(same, same, resync=True))
    informer.deliver(Updated(machine("same"), machine("same")))
    informer.deliver(Added(machine("new")))
    informer.deliver(Updated(machine("changed"), machine("changed", version="2")))
    informer.deliver(Deleted(machine("gone")))
    informer.registrations[0].has_synced = True
    eventually(lambda: len(priorities) == 6)
    assert priorities == [0, 0, 0, LOW, LOW, LOW]
    stop.set()
    release.set()
    thread.join(DEADLINE)
    assert informer.registrations[0].removed


@pytest.mark.requirement("CT4")
def test_workers_wait_for_the_caches() -> None:
    reconcile, calls = ends()
    cache = FakeCache(synced=False)
    with Harness(reconcile, cache=cache) as harness:
        informer = cache.by_kind[MACHINE]
        eventually(lambda: bool(informer.registrations))
        informer.deliver(Added(machine(), initial=True))
        assert calls == []
        assert not harness.controller.threads()
        informer.registrations[0].has_synced = True
        eventually(lambda: calls == [ONE])


@pytest.mark.requirement("CT4")
def test_caches_that_do_not_fill_are_named() -> None:
    cache = FakeCache(synced=False)
    harness = Harness(ends()[0], cache=cache, owns=[JOB])
    cache.by_kind[JOB].last_error = SimpleNamespace(message="jobs is forbidden")
    with harness:
        # The time that it waits has begun when it asks the first time.
        eventually(lambda: any(registration.asked for registration in cache.by_kind[JOB].registrations))
        cache.by_kind[MACHINE].registrations[0].has_synced = True
        harness.clock.advance(119)
        assert harness.thread.is_alive()
        harness.clock.advance(1)
        harness.thread.join(DEADLINE)
    assert len(harness.errors) == 1
    assert isinstance(harness.errors[0], SyncTimeout)
    text = str(harness.errors[0])
    assert text == (
        "controller machines: waited 120 s for the cache of jobs.batch (last error: jobs is forbidden)"
    )


@pytest.mark.requirement("CT5")
def test_success_and_errors_are_counted_and_requeued() -> None:
    boom = KeyError("boom")
    reconcile, calls = ends(ReconcileError("known"), boom, TerminalError("never"))
    with Harness(reconcile) as harness:
        harness.controller.enqueue(ONE)
        eventually(lambda: harness.results()["error"] == 1)
        eventually(lambda: harness.controller.queue.failures(ONE) == 1)
        harness.clock.wait_for_waiters(1)
        harness.clock.advance(0.005)
        eventually(lambda: harness.count("reconcile_panics") == 1)
        assert harness.results()["error"] == 2
        harness.clock.wait_for_waiters(1)
        harness.clock.advance(0.01)
        eventually(lambda: harness.count("terminal_reconcile_errors") == 1)
        assert harness.results()["error"] == 3
        eventually(lambda: harness.controller.queue.failures(ONE) == 0)
        harness.clock.advance(10_000)
        assert len(calls) == 3
        harness.controller.enqueue(ONE)
        eventually(lambda: harness.results()["success"] == 1)
        assert harness.count("reconcile_errors") == 3
        assert harness.count("reconcile_panics") == 1


@pytest.mark.requirement("CT5")
def test_requeue_after_is_exact_and_resets_failures() -> None:
    reconcile, calls = ends(ReconcileError("x"), Result(requeue_after=30.0), Result(requeue=True))
    with Harness(reconcile) as harness:
        harness.controller.enqueue(ONE)
        harness.clock.wait_for_waiters(1)
        harness.clock.advance(0.005)
        eventually(lambda: harness.results()["requeue_after"] == 1)
        eventually(lambda: harness.controller.queue.failures(ONE) == 0)
        harness.clock.wait_for_waiters(1)
        harness.clock.advance(29.99)
        assert len(calls) == 2
        harness.clock.advance(0.02)
        eventually(lambda: harness.results()["requeue"] == 1)
        eventually(lambda: harness.controller.queue.failures(ONE) == 1)


@pytest.mark.requirement("CT5")
def test_ten_conflicts_in_a_row_are_an_error() -> None:
    conflict = Conflict("changed", code=409, reason="Conflict", method="PUT")
    reconcile, calls = ends(*[conflict] * 9, None, *[conflict] * 10)
    with Harness(reconcile) as harness:
        for number in range(1, 11):
            harness.controller.enqueue(ONE)
            eventually(lambda number=number: len(calls) == number)  # type: ignore[misc]
        eventually(lambda: harness.results()["success"] == 1)
        assert harness.results() == {"error": 0, "requeue": 9, "requeue_after": 0, "success": 1}
        for number in range(11, 21):
            harness.controller.enqueue(ONE)
            eventually(lambda number=number: len(calls) == number)  # type: ignore[misc]
        eventually(lambda: harness.results()["error"] == 1)
        assert harness.results()["requeue"] == 18


@pytest.mark.requirement("CT5")
def test_a_lost_leader_drops_its_requests_uncounted() -> None:
    reconcile, calls = ends(NotLeader())
    with Harness(reconcile) as harness:
        harness.controller.enqueue(ONE)
        eventually(lambda: len(calls) == 1)
        eventually(lambda: harness.value("controller_runtime_active_workers") == 0)
        assert set(harness.results().values()) == {0}
        assert harness.controller.queue.stats().retries == 0


@pytest.mark.requirement("CT5", "WQ4")
def test_a_requeue_keeps_its_priority_unless_the_result_names_one() -> None:
    seen: list[int] = []
    steps = [Result(requeue_after=1.0), Result(requeue_after=1.0, priority=7), None]

    class Recording(Controller):
        def _handle(self, item: Any, stop: threading.Event) -> None:
            seen.append(item.priority)
            super()._handle(item, stop)

    clock = VirtualClock()
    controller = Recording(
        "machines",
        for_=MACHINE,
        reconciler=lambda ctx, request: steps.pop(0),
        cache=FakeCache(),  # type: ignore[arg-type]
        clock=clock,
    )
    stop = threading.Event()
    thread = threading.Thread(target=lambda: controller.run(stop), daemon=True)
    thread.start()
    controller.enqueue(ONE, priority=LOW)
    for _ in range(2):
        clock.wait_for_waiters(1)
        clock.advance(1)
    eventually(lambda: len(seen) == 3)
    assert seen == [LOW, LOW, 7]
    stop.set()
    thread.join(DEADLINE)


@pytest.mark.requirement("CT6")
@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_no_exception_ends_a_worker(error: BaseException) -> None:
    reconcile, calls = ends(error)
    with Harness(reconcile) as harness:
        harness.controller.enqueue(ONE)
        eventually(lambda: harness.count("reconcile_panics") == 1)
        harness.controller.enqueue(TWO)
        eventually(lambda: TWO in calls)
        eventually(lambda: harness.results()["success"] == 1)


@pytest.mark.requirement("CT5")
def test_an_answer_that_is_no_result_is_an_error() -> None:
    with Harness(lambda ctx, request: 30) as harness:  # type: ignore[arg-type, return-value]
        harness.controller.enqueue(ONE)
        eventually(lambda: harness.count("reconcile_panics") == 1)


@pytest.mark.requirement("CT7")
def test_the_context_knows_the_time_left() -> None:
    checked: list[object] = []
    clock = VirtualClock()

    def reconcile(ctx: Context, request: Request) -> None:
        checked.append(ctx.remaining())
        ctx.check()
        clock.advance(4)
        checked.append(ctx.remaining())
        clock.advance(6)
        checked.append(ctx.remaining())
        with pytest.raises(ReconcileTimeout):
            ctx.check()
        with pytest.raises(ReconcileTimeout):
            ctx.sleep(1)
        ctx.check()

    with Harness(reconcile, reconcile_timeout=10.0, clock=clock) as harness:
        harness.controller.enqueue(ONE)
        eventually(lambda: harness.results()["error"] == 1)
        assert checked == [10.0, 6.0, 0.0]
        assert harness.count("reconcile_timeouts") == 1
        assert harness.count("reconcile_panics") == 0


@pytest.mark.requirement("CT7")
def test_without_a_limit_there_is_no_deadline() -> None:
    seen: list[object] = []
    with Harness(lambda ctx, request: seen.append((ctx.deadline, ctx.remaining()))) as harness:
        harness.controller.enqueue(ONE)
        eventually(lambda: bool(seen))
    assert seen == [(None, None)]


@pytest.mark.requirement("CT7")
def test_a_reconcile_far_past_its_limit_has_its_stack_logged(
    logs: Callable[[], list[dict[str, Any]]],
) -> None:
    release = threading.Event()

    def stuck_in_here(ctx: Context, request: Request) -> None:
        release.wait(DEADLINE)

    def reported() -> list[dict[str, Any]]:
        return [line for line in logs() if line["msg"] == "reconcile runs far past its time limit"]

    with Harness(stuck_in_here, reconcile_timeout=10.0) as harness:
        harness.controller.enqueue(ONE)
        eventually(lambda: harness.value("controller_runtime_active_workers") == 1)
        for _ in range(2):
            harness.clock.wait_for_waiters(1)
            harness.clock.advance(10)
        assert reported() == []
        harness.clock.wait_for_waiters(1)
        harness.clock.advance(10)
        eventually(lambda: len(reported()) == 1)
        assert "stuck_in_here" in reported()[0]["stack"]
        longest = "workqueue_longest_running_processor_seconds"
        assert harness.value(longest, name="machines") == 30
        for _ in range(5):
            harness.clock.wait_for_waiters(1)
            harness.clock.advance(10)
        assert len(reported()) == 1
        harness.clock.wait_for_waiters(1)
        harness.clock.advance(10)
        eventually(lambda: len(reported()) == 2)
        harness.controller.enqueue(ONE)
        assert harness.value("controller_runtime_active_workers") == 1  # single-flight, also now
        release.set()


@pytest.mark.requirement("CT8", "G3")
def test_stop_hands_out_nothing_more_and_waits_for_what_runs() -> None:
    started = threading.Event()
    events: list[str] = []

    def reconcile(ctx: Context, request: Request) -> None:
        started.set()
        events.append(f"began {request.name}")
        assert not ctx.stopping
        with pytest.raises(Stopping):
            ctx.sleep(3600)
        assert ctx.stopping
        ctx.check()
        events.append(f"ended {request.name}")
        raise Stopping

    harness = Harness(reconcile)
    with harness:
        harness.controller.enqueue(ONE)
        harness.controller.enqueue(TWO)
        assert started.wait(DEADLINE)
    assert events == ["began one", "ended one"]
    assert set(harness.results().values()) == {0}


@pytest.mark.requirement("LE7")
def test_the_context_minds_the_fence() -> None:
    clock = VirtualClock()
    fence = Fence(clock, leading_until=clock.monotonic() + 10)
    seen: list[str] = []

    def reconcile(ctx: Context, request: Request) -> None:
        ctx.check()
        seen.append("leading")
        clock.advance(60)  # the process was suspended
        try:
            ctx.check()
        except NotLeader:
            seen.append("not leading")
            raise

    with Harness(reconcile, clock=clock, fence=fence) as harness:
        harness.controller.enqueue(ONE)
        eventually(lambda: len(seen) == 2)
        assert seen == ["leading", "not leading"]
        assert set(harness.results().values()) == {0}


@pytest.mark.requirement("G5")
def test_lines_of_a_reconcile_name_their_object(logs: Callable[[], list[dict[str, Any]]]) -> None:
    def reconcile(ctx: Context, request: Request) -> None:
        log.get_logger("elsewhere").info("working", id=ctx.reconcile_id)

    with Harness(reconcile) as harness:
        harness.controller.enqueue(ONE)
        eventually(lambda: harness.results()["success"] == 1)
    line = next(line for line in logs() if line["msg"] == "working")
    assert line["controller"] == "machines"
    assert (line["controllerGroup"], line["controllerKind"]) == ("example.com", "Machine")
    assert (line["kind"], line["namespace"], line["name"]) == ("Machine", "ns", "one")
    assert line["Machine"] == {"namespace": "ns", "name": "one"}
    assert line["reconcileID"] == line["id"] != ""


@pytest.mark.requirement("MX1")
def test_all_series_exist_before_anything_happens() -> None:
    harness = Harness(ends()[0], concurrency=3)
    assert harness.results() == {"error": 0, "requeue": 0, "requeue_after": 0, "success": 0}
    for series in (
        "reconcile_errors",
        "terminal_reconcile_errors",
        "reconcile_panics",
        "reconcile_timeouts",
    ):
        assert harness.count(series) == 0
    assert harness.value("controller_runtime_max_concurrent_reconciles") == 3
    assert harness.value("controller_runtime_active_workers") == 0
    assert harness.value("controller_runtime_reconcile_time_seconds_count") == 0
    assert harness.value("workqueue_depth", name="machines") == 0
    assert harness.value("captf_runtime_workqueue_depth", priority="0") == 0


@pytest.mark.requirement("G4")
def test_workers_are_named_daemons() -> None:
    with Harness(ends()[0], concurrency=2) as harness:
        eventually(lambda: len(harness.controller.threads()) == 2)
        workers = harness.controller.threads()
        assert [worker.name for worker in workers] == ["controller-machines-0", "controller-machines-1"]
        assert all(worker.daemon for worker in workers)
