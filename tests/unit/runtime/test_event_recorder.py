from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.runtime.fakes import DEADLINE, MemoryClient, eventually

from captf_runtime.client.errors import (
    ApiError,
    Cause,
    Forbidden,
    InternalError,
    Invalid,
    NamespaceTerminating,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    TransportError,
)
from captf_runtime.events import DROP_REASONS, Recorder
from captf_runtime.events import correlation as correlation_module
from captf_runtime.events import recorder as recorder_module
from captf_runtime.events.recorder import QUEUE_SIZE
from captf_runtime.metrics import Metrics
from captf_runtime.objects import EVENT, EVENTS_V1, Kind, Object
from captf_runtime.testing.clock import VirtualClock

POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"namespace": "ns", "name": "p", "uid": "uid-p"},
}


class Harness:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.client = MemoryClient()
        self.metrics = Metrics()
        self.stop = threading.Event()
        self.recorder = Recorder(
            self.client,
            controller="machines",
            instance="host_" + "x" * 200,
            metrics=self.metrics,
            clock=self.clock,
            draw=lambda: 0.5,
        )
        self.thread = threading.Thread(target=lambda: self.recorder.run(self.stop), daemon=True)

    def start(self) -> None:
        self.thread.start()

    def end(self) -> None:
        self.stop.set()
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()

    def emit(self, note: str = "it happened", **options: Any) -> None:
        self.recorder.emit(POD, "Normal", options.pop("reason", "Happened"), "Happen", note, **options)

    def events(self, kind: Kind = EVENTS_V1) -> list[Object]:
        return [obj for (found, _), obj in self.client.objects.items() if found == kind]

    def dropped(self) -> dict[str, float]:
        name = "captf_runtime_events_dropped_total"
        values = {
            reason: self.metrics.registry.get_sample_value(name, {"reason": reason})
            for reason in DROP_REASONS
        }
        return {reason: value for reason, value in values.items() if value}


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    if harness.thread.is_alive():
        harness.end()


def fail_first(harness: Harness, *errors: ApiError, verb: str = "create", kind: Kind = EVENTS_V1) -> None:
    left = list(errors)

    def before(called: str, on: Kind) -> None:
        if left and called == verb and on == kind:
            raise left.pop(0)

    harness.client.before = before


@pytest.mark.requirement("EV1")
def test_an_event_is_written_beside_its_object(harness: Harness) -> None:
    harness.start()
    harness.recorder.emit(POD, "Warning", "Failed", "Apply", "it broke", related=POD)
    eventually(lambda: len(harness.events()) == 1)
    event = harness.events()[0]
    assert event["metadata"]["namespace"] == "ns"
    assert event["metadata"]["name"].startswith("p.")
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "Failed", "Apply")
    assert event["note"] == "it broke"
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert event["reportingController"] == "machines"
    assert len(event["reportingInstance"]) == 128
    assert event["related"]["name"] == "p"


@pytest.mark.requirement("EV1")
def test_what_is_cut_off_a_note_is_not_remembered_and_makes_no_difference(harness: Harness) -> None:
    harness.start()
    tracemalloc.start()
    try:
        for number in range(20):
            harness.emit("a" * 2000 + str(number) * 200_000)
        eventually(lambda: [event.get("series", {}).get("count") for event in harness.events()] == [2])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert harness.events()[0]["note"] == "a" * 1024
    assert held < 1_000_000


@pytest.mark.requirement("EV1")
def test_events_of_cluster_scoped_objects_live_in_default(harness: Harness) -> None:
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}}
    harness.start()
    harness.recorder.emit(node, "Normal", "Happened", "Happen", "note")
    eventually(lambda: len(harness.events()) == 1)
    assert harness.events()[0]["metadata"]["namespace"] == "default"


@pytest.mark.requirement("EV1")
def test_old_servers_get_them_in_kube_system(harness: Harness) -> None:
    refusal = Invalid("does not match", code=422, causes=(Cause(field="involvedObject.namespace"),))
    fail_first(harness, refusal)
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}}
    harness.start()
    for note in ("first", "first", "second"):
        harness.recorder.emit(node, "Normal", "Happened", "Happen", note)
    eventually(lambda: len(harness.events()) == 2)
    assert {event["metadata"]["namespace"] for event in harness.events()} == {"kube-system"}
    assert harness.dropped() == {}


def test_one_recorder_speaks_for_many_controllers(harness: Harness) -> None:
    harness.start()
    harness.recorder.named("pools").emit(POD, "Normal", "Happened", "Happen", "note")
    eventually(lambda: len(harness.events()) == 1)
    assert harness.events()[0]["reportingController"] == "pools"


@pytest.mark.requirement("EV1")
def test_a_server_without_the_group_gets_core_events_for_good(harness: Harness) -> None:
    fail_first(harness, *[NotFound("404 page not found", code=404)] * 5)
    harness.start()
    harness.emit("first")
    harness.emit("second")
    harness.emit("second")
    eventually(lambda: len(harness.events(EVENT)) == 2)
    eventually(lambda: any("series" in event for event in harness.events(EVENT)))
    assert {event["message"] for event in harness.events(EVENT)} == {"first", "second"}
    assert [kind for verb, kind, _ in harness.client.requests] == [EVENT] * 3
    assert harness.dropped() == {}


@pytest.mark.requirement("EV2")
def test_emit_never_blocks_and_counts_what_does_not_fit(harness: Harness) -> None:
    for number in range(QUEUE_SIZE + 3):
        harness.emit(str(number))
    assert harness.dropped() == {"queue_full": 3}


@pytest.mark.requirement("EV2")
@pytest.mark.parametrize(
    "arguments",
    [
        ({}, "Normal", "Reason", "Action", "note"),
        (None, "Normal", "Reason", "Action", "note"),
        (POD, "Strange", "Reason", "Action", "note"),
        (POD, "Normal", "", "Action", "note"),
        (POD, "Normal", "Reason", "", "note"),
        (POD, "Normal", None, "Action", "note"),
    ],
)
def test_emit_never_raises(harness: Harness, arguments: tuple[Any, ...]) -> None:
    harness.recorder.emit(*arguments)
    assert harness.dropped() == {"invalid": 1}


@pytest.mark.requirement("EV3")
def test_repetitions_move_the_count_of_one_event(harness: Harness) -> None:
    harness.start()
    for _ in range(5):
        harness.emit()
    eventually(lambda: any("series" in event for event in harness.events()))
    assert len(harness.events()) == 1
    harness.clock.wait_for_waiters(1)
    harness.clock.advance(30)
    eventually(lambda: harness.events()[0]["series"]["count"] == 5)
    assert harness.events()[0]["series"]["lastObservedTime"] == "2026-01-01T00:00:00.000000Z"
    assert [verb for verb, _, _ in harness.client.requests] == ["create", "patch", "patch"]


@pytest.mark.requirement("EV3")
def test_a_series_whose_event_is_gone_goes_on_in_a_new_one(harness: Harness) -> None:
    harness.start()
    harness.emit()
    eventually(lambda: len(harness.events()) == 1)
    harness.client.objects.clear()
    harness.emit()
    eventually(lambda: len(harness.events()) == 1)
    assert harness.events()[0]["series"]["count"] == 2


@pytest.mark.requirement("EV6")
@pytest.mark.parametrize(
    "error",
    [
        TransportError("reset", ambiguous=True),
        TooManyRequests("x", code=429),
        InternalError("x", code=500),
        ServiceUnavailable("x", code=503),
    ],
)
def test_passing_failures_are_tried_again_after_a_pause(harness: Harness, error: ApiError) -> None:
    fail_first(harness, error, error)
    harness.start()
    harness.emit()
    for _ in range(2):
        harness.clock.wait_for_waiters(1)
        assert harness.events() == []
        harness.clock.advance(10)
    eventually(lambda: len(harness.events()) == 1)
    assert harness.dropped() == {}


@pytest.mark.requirement("EV6")
def test_after_twelve_tries_an_event_is_dropped(harness: Harness) -> None:
    tries: list[str] = []

    def before(verb: str, kind: Kind) -> None:
        tries.append(verb)
        raise InternalError("x", code=500)

    harness.client.before = before
    harness.start()
    harness.emit()
    for _ in range(11):
        harness.clock.wait_for_waiters(1)
        harness.clock.advance(10)
    eventually(lambda: harness.dropped() == {"unavailable": 1})
    assert len(tries) == 12


@pytest.mark.requirement("EV6")
@pytest.mark.parametrize(
    "error",
    [
        Forbidden("x", code=403),
        NamespaceTerminating("x", code=403),
        Invalid("x", code=422),
        NotFound('namespaces "ns" not found', code=404, details={"kind": "namespaces", "name": "ns"}),
    ],
)
def test_what_no_retry_can_mend_is_dropped_at_once(harness: Harness, error: ApiError) -> None:
    fail_first(harness, error)
    harness.start()
    harness.emit("first")
    harness.emit("second")
    eventually(lambda: len(harness.events()) == 1)
    assert harness.dropped() == {"rejected": 1}
    assert harness.events()[0]["note"] == "second"


@pytest.mark.requirement("EV6")
def test_a_create_whose_answer_was_lost_is_not_repeated(harness: Harness) -> None:
    lost = [1]

    def after(verb: str, kind: Kind) -> None:
        if verb == "create" and lost:
            lost.pop()
            raise TransportError("reset", ambiguous=True)

    harness.client.after = after
    harness.start()
    harness.emit()
    harness.clock.wait_for_waiters(1)
    harness.clock.advance(10)
    eventually(lambda: len(harness.client.requests) == 2)
    harness.end()
    assert len(harness.events()) == 1
    assert harness.dropped() == {}


@pytest.mark.requirement("EV5")
def test_important_events_pass_the_limit(harness: Harness) -> None:
    harness.start()
    for number in range(30):
        harness.emit(reason=f"Reason{number}")
    harness.emit(reason="Important", important=True)
    eventually(lambda: len(harness.events()) == 26)
    assert harness.dropped() == {"rate_limited": 5}


@pytest.mark.requirement("EV7")
def test_stop_writes_what_is_left(harness: Harness) -> None:
    harness.emit("one")
    harness.emit("two")
    harness.emit("two")
    harness.emit("two")
    harness.stop.set()
    harness.start()
    harness.thread.join(DEADLINE)
    assert not harness.thread.is_alive()
    assert {event["note"]: event.get("series", {}).get("count") for event in harness.events()} == {
        "one": None,
        "two": 3,
    }
    harness.emit("too late")
    assert harness.dropped() == {"stopped": 1}


@pytest.mark.requirement("EV7", "G3")
def test_stop_waits_five_seconds_at_most(harness: Harness) -> None:
    def before(verb: str, kind: Kind) -> None:
        harness.clock.advance(2)
        raise TransportError("timed out", ambiguous=True)

    harness.client.before = before
    for number in range(10):
        harness.emit(f"note {number}")
    harness.stop.set()
    harness.start()
    harness.thread.join(DEADLINE)
    assert not harness.thread.is_alive()
    assert harness.clock.monotonic() <= 1000 + 6
    assert harness.dropped() == {"stopped": 10}


@pytest.mark.requirement("EV7", "G3")
def test_what_is_written_slowly_at_the_stop_shares_the_five_seconds(harness: Harness) -> None:
    create = harness.client.create
    timeouts: list[float | None] = []

    def slowly(kind: Kind, obj: Object, namespace: str = "", *, timeout: float | None = None) -> Object:
        timeouts.append(timeout)
        harness.clock.advance(2)
        return create(kind, obj, namespace, timeout=timeout)

    harness.client.create = slowly  # type: ignore[method-assign]
    for number in range(10):
        harness.emit(f"note {number}")
    harness.stop.set()
    harness.start()
    harness.thread.join(DEADLINE)
    assert not harness.thread.is_alive()
    assert timeouts == [5.0, 3.0, 1.0]
    assert len(harness.events()) == 3
    assert harness.dropped() == {"stopped": 7}


@pytest.mark.requirement("EV7", "G3")
def test_stop_ends_a_pause_between_tries(harness: Harness) -> None:
    fail_first(harness, *[InternalError("x", code=500)] * 2)
    harness.start()
    harness.emit()
    harness.clock.wait_for_waiters(1)
    harness.end()
    assert harness.dropped() == {"stopped": 1}


@pytest.mark.requirement("EV1", "EV2")
def test_an_event_that_cannot_be_written_does_not_end_the_others(harness: Harness) -> None:
    def before(verb: str, kind: Kind) -> None:
        if bad:
            raise bad.pop()

    bad: list[Exception] = [ValueError("no such name")]
    harness.client.before = before
    harness.start()
    harness.emit("one that no client would send")
    harness.recorder.emit(POD, "Normal", "Happened", "Happen", "odd", controller=["x"])  # type: ignore[arg-type]
    harness.emit("file caf\udce9")
    eventually(lambda: len(harness.events()) == 1)
    assert harness.events()[0]["note"] == "file caf?"
    assert harness.dropped() == {"invalid": 2}


@pytest.mark.requirement("EV2", "EV6", "EV7")
def test_the_numbers_of_the_recorder() -> None:
    assert recorder_module.QUEUE_SIZE == 1000
    assert (recorder_module.TRIES, recorder_module.PAUSE_SECONDS, recorder_module.PAUSE_SPREAD) == (
        12,
        10.0,
        0.25,
    )
    assert recorder_module.FLUSH_SECONDS == 5.0
    assert correlation_module.MAX_ENTRIES == 4096
