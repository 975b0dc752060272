from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.runtime.fakes import DEADLINE, MemoryClient, eventually

from captf_runtime.client.errors import Conflict, TransportError
from captf_runtime.clock import SystemClock
from captf_runtime.election import (
    ElectionTimes,
    Fence,
    LeaderElector,
    LeadershipLost,
    NotLeader,
    default_identity,
)
from captf_runtime.election.record import Observation, new_lease, released, renewed, taken_over
from captf_runtime.metrics import Metrics
from captf_runtime.objects import LEASE, Kind, Object, ObjectKey, parse_time
from captf_runtime.testing.clock import VirtualClock

KEY = (LEASE, ObjectKey("system", "leader"))
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Candidate:
    """An elector that runs in a thread, and everything that happens to it."""

    def __init__(self, client: MemoryClient, clock: VirtualClock, identity: str, **options: Any) -> None:
        self.clock = clock
        self.stop = threading.Event()
        self.metrics = Metrics()
        self.started = threading.Event()
        self.lost: list[float] = []
        self.exits: list[int] = []
        self.said: list[str] = []
        self.errors: list[BaseException] = []
        self.elector = LeaderElector(
            client,
            namespace="system",
            name="leader",
            identity=identity,
            on_started=options.pop("on_started", self._lead),
            on_lost=lambda: self.lost.append(clock.monotonic()),
            announce=lambda lease, note: self.said.append(note),
            hard_exit=self.exits.append,
            metrics=self.metrics,
            clock=clock,
            draw=options.pop("draw", lambda: 1.0),
            **options,
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _lead(self, stop: threading.Event) -> None:
        self.started.set()
        self.clock.wait(stop, None)

    def _run(self) -> None:
        try:
            self.elector.run(self.stop)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.errors.append(error)

    def end(self) -> None:
        self.stop.set()
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()

    @property
    def gauge(self) -> float | None:
        return self.metrics.registry.get_sample_value("leader_election_master_status", {"name": "leader"})


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def client() -> MemoryClient:
    return MemoryClient()


def spec(client: MemoryClient) -> dict[str, Any]:
    found = client.objects[KEY]["spec"]
    assert isinstance(found, dict)
    return found


def put(client: MemoryClient, **fields: Any) -> None:
    """Another process writes the record."""
    metadata = {"namespace": "system", "name": "leader", "labels": {"keep": "me"}}
    base = client.objects.get(
        KEY, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    )
    client.objects[KEY] = client._stamp({**base, "spec": {**base.get("spec", {}), **fields}})


def writes(client: MemoryClient) -> list[str]:
    return [verb for verb, _, _ in client.requests if verb != "get"]


# Configuration


@pytest.mark.requirement("LE1")
@pytest.mark.parametrize(
    ("times", "named"),
    [
        ((10.0, 10.0, 2.0), "lease_duration, renew_deadline"),
        ((15.0, 2.4, 2.0), "renew_deadline, retry_period"),
        ((15.0, 10.0, 0.0), "retry_period"),
        ((5.0, 10.0, 2.0), "lease_duration, renew_deadline"),
    ],
)
def test_durations_that_do_not_fit_are_named(times: tuple[float, float, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        ElectionTimes(*times)


@pytest.mark.requirement("LE1")
def test_defaults_and_identity() -> None:
    times = ElectionTimes()
    assert (times.lease_duration, times.renew_deadline, times.retry_period) == (15.0, 10.0, 2.0)
    uuid4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert re.fullmatch(rf".+_{uuid4}", default_identity())
    assert default_identity() != default_identity()


@pytest.mark.requirement("LE1", "MX5")
def test_a_lease_needs_a_name_and_the_gauge_is_there_from_the_start(client: MemoryClient) -> None:
    for missing in ({"namespace": ""}, {"name": ""}):
        with pytest.raises(ValueError, match="namespace, name"):
            LeaderElector(
                client, **{"namespace": "system", "name": "leader", **missing}, on_started=lambda stop: None
            )
    metrics = Metrics()
    LeaderElector(client, namespace="system", name="x", on_started=lambda stop: None, metrics=metrics)
    assert metrics.registry.get_sample_value("leader_election_master_status", {"name": "x"}) == 0


# The record


@pytest.mark.requirement("LE3")
def test_taking_over_changes_what_it_must_and_nothing_else(clock: VirtualClock) -> None:
    lease = new_lease("system", "leader", "a", 15.0, clock.now())
    lease["metadata"]["labels"] = {"keep": "me"}
    lease["spec"]["strategy"] = "of the future"
    clock.advance(60)
    taken = taken_over(lease, "b", 14.2, clock.now())
    assert taken["metadata"] == lease["metadata"]
    assert taken["spec"] == {
        "holderIdentity": "b",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:01:00.000000Z",
        "renewTime": "2026-01-01T00:01:00.000000Z",
        "leaseTransitions": 1,
        "strategy": "of the future",
    }
    assert lease["spec"]["holderIdentity"] == "a"


@pytest.mark.requirement("LE3")
@pytest.mark.parametrize("transitions", [None, "many"])
def test_transitions_that_nobody_counted_count_from_zero(clock: VirtualClock, transitions: object) -> None:
    lease = {"metadata": {"name": "leader"}, "spec": {"leaseTransitions": transitions}}
    assert taken_over(lease, "b", 15.0, clock.now())["spec"]["leaseTransitions"] == 1


@pytest.mark.requirement("LE7")
def test_a_fence_closes_at_its_moment_and_when_told(clock: VirtualClock) -> None:
    fence = Fence(clock)
    assert not fence.is_open
    fence.extend(clock.monotonic() + 10)
    clock.advance(9.5)
    fence.check()
    clock.advance(0.5)
    with pytest.raises(NotLeader):
        fence.check()
    fence.extend(clock.monotonic() + 10)
    fence.check()
    fence.close()
    with pytest.raises(NotLeader):
        fence.check()
    Fence.open().check()


@pytest.mark.requirement("LE3")
def test_the_same_identity_coming_back_keeps_transitions_and_acquire_time(clock: VirtualClock) -> None:
    lease = new_lease("system", "leader", "a", 15.0, clock.now())
    clock.advance(60)
    back = taken_over(lease, "a", 15.0, clock.now())
    assert back["spec"]["leaseTransitions"] == 0
    assert back["spec"]["acquireTime"] == lease["spec"]["acquireTime"]
    assert back["spec"]["renewTime"] != lease["spec"]["renewTime"]


@pytest.mark.requirement("LE3")
def test_a_renewal_changes_the_renew_time_only(clock: VirtualClock) -> None:
    lease = new_lease("system", "leader", "a", 15.0, clock.now())
    clock.advance(2)
    after = renewed(lease, clock.now())
    changed = {name for name in after["spec"] if after["spec"][name] != lease["spec"][name]}
    assert changed == {"renewTime"}


@pytest.mark.requirement("LE3", "LE9")
def test_times_have_six_digits(clock: VirtualClock) -> None:
    clock.advance(0.5)
    for lease in (
        new_lease("system", "leader", "a", 15.0, clock.now()),
        released(new_lease("system", "leader", "a", 15.0, clock.now()), clock.now()),
    ):
        for name in ("acquireTime", "renewTime"):
            assert MICRO_TIME.fullmatch(lease["spec"][name])
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["spec"]["leaseDurationSeconds"] == 1


@pytest.mark.requirement("LE2")
@pytest.mark.parametrize(
    ("duration", "expires"), [(60, 160.0), (1, 101.0), (None, 115.0), (0, 115.0), ("x", 115.0), (True, 115.0)]
)
def test_a_record_expires_by_the_duration_that_it_names(duration: object, expires: float) -> None:
    observation = Observation()
    observation.see({"spec": {"holderIdentity": "a", "leaseDurationSeconds": duration}}, 100.0)
    assert observation.expires(15.0) == expires


@pytest.mark.requirement("LE2")
def test_any_change_of_the_record_starts_the_time_anew() -> None:
    observation = Observation()
    lease: Object = {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    observation.see(lease, 100.0)
    observation.see(lease, 105.0)
    assert observation.expires(15.0) == 115.0
    lease["spec"]["unknown"] = 1
    observation.see(lease, 110.0)
    assert observation.expires(15.0) == 125.0


# Becoming the leader


@pytest.mark.requirement("LE2", "MX5")
def test_a_lease_that_does_not_exist_is_created(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    assert candidate.elector.is_leader
    assert candidate.gauge == 1
    assert spec(client)["holderIdentity"] == "a"
    assert spec(client)["leaseTransitions"] == 0
    assert candidate.said == ["a became leader"]
    candidate.end()
    assert candidate.gauge == 0


@pytest.mark.requirement("LE2")
def test_a_lease_that_nobody_holds_is_taken_at_once(client: MemoryClient, clock: VirtualClock) -> None:
    put(client, holderIdentity="", leaseDurationSeconds=1, leaseTransitions=4, strange=[1])
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    assert spec(client)["leaseTransitions"] == 5
    assert spec(client)["strange"] == [1]
    assert client.objects[KEY]["metadata"]["labels"] == {"keep": "me"}
    candidate.end()


@pytest.mark.requirement("LE2")
@pytest.mark.parametrize("hours", [-5, 0, 5])
def test_a_silent_holder_is_replaced_by_the_candidates_own_clock(
    client: MemoryClient, clock: VirtualClock, hours: int
) -> None:
    then = (clock.now() + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    put(client, holderIdentity="b", leaseDurationSeconds=30, renewTime=then, acquireTime=then)
    candidate = Candidate(client, clock, "a")
    start = clock.monotonic()
    while clock.monotonic() < start + 29.5:
        clock.wait_for_waiters(1)
        clock.advance(0.5)
        assert spec(client)["holderIdentity"] == "b"
    clock.wait_for_waiters(1)
    clock.advance(0.5)
    assert candidate.started.wait(DEADLINE)
    # A kill right after a renewal is thus noticed within the duration and one retry period.
    assert clock.monotonic() - start <= 30 + 2
    candidate.end()


@pytest.mark.requirement("LE2")
def test_a_holder_that_renews_is_left_alone(client: MemoryClient, clock: VirtualClock) -> None:
    put(client, holderIdentity="b", leaseDurationSeconds=15, renewTime="0")
    candidate = Candidate(client, clock, "a")
    for number in range(60):
        clock.wait_for_waiters(1)
        put(client, renewTime=str(number))
        clock.advance(2)
    assert not candidate.started.is_set()
    assert writes(client) == []
    candidate.end()


@pytest.mark.requirement("LE2")
@pytest.mark.parametrize(("draw", "pause"), [(0.0, 1.2), (0.5, 1.5), (0.999999, 1.8)])
def test_tries_are_spread(client: MemoryClient, clock: VirtualClock, draw: float, pause: float) -> None:
    put(client, holderIdentity="b", leaseDurationSeconds=3600)
    candidate = Candidate(client, clock, "a", draw=lambda: draw)
    clock.wait_for_waiters(1)
    clock.advance(pause - 0.01)
    clock.wait_for_waiters(1)
    assert len(client.requests) == 1
    clock.advance(0.02)
    eventually(lambda: len(client.requests) == 2)
    candidate.end()


@pytest.mark.requirement("LE2")
def test_a_try_is_due_when_the_record_expires(client: MemoryClient, clock: VirtualClock) -> None:
    put(client, holderIdentity="b", leaseDurationSeconds=15)
    candidate = Candidate(client, clock, "a", draw=lambda: 0.999999)
    for _ in range(8):  # tries 1.8 s apart: the last of these is 0.6 s before the end
        clock.wait_for_waiters(1)
        clock.advance(1.8)
    clock.wait_for_waiters(1)
    assert writes(client) == []
    clock.advance(0.601)
    assert candidate.started.wait(DEADLINE)
    candidate.end()


@pytest.mark.requirement("LE2", "LE5")
def test_a_candidate_that_cannot_write_does_not_hurry(client: MemoryClient, clock: VirtualClock) -> None:
    put(client, holderIdentity="b", leaseDurationSeconds=1)

    def refuse(verb: str, kind: Kind) -> None:
        if verb == "update":
            raise TransportError("refused", ambiguous=False)

    client.before = refuse
    candidate = Candidate(client, clock, "a")
    clock.wait_for_waiters(1)
    clock.advance(1)  # the record has expired
    eventually(lambda: len(client.requests) == 2)
    clock.wait_for_waiters(1)
    clock.advance(1.7)
    clock.wait_for_waiters(1)
    assert [verb for verb, _, _ in client.requests] == ["get", "get"]
    candidate.end()


@pytest.mark.requirement("LE2")
def test_of_two_candidates_one_wins(client: MemoryClient, clock: VirtualClock) -> None:
    put(client, holderIdentity="", leaseDurationSeconds=1)
    both_read = threading.Barrier(2)

    def meet(verb: str, kind: Kind) -> None:
        if verb == "get" and not both_read.broken:
            try:
                both_read.wait(DEADLINE)
            except threading.BrokenBarrierError:
                return

    client.after = meet
    candidates = [Candidate(client, clock, name) for name in ("a", "b")]
    eventually(lambda: any(candidate.started.is_set() for candidate in candidates))
    both_read.abort()
    clock.wait_for_waiters(3)
    assert sum(candidate.elector.is_leader for candidate in candidates) == 1
    for candidate in candidates:
        candidate.end()


@pytest.mark.requirement("LE5", "LE2")
@pytest.mark.parametrize(
    "error", [TransportError("reset", ambiguous=True), OSError("x"), ValueError("y"), KeyError("z")]
)
def test_any_exception_is_one_failed_try(client: MemoryClient, clock: VirtualClock, error: Exception) -> None:
    failures = [error, error]

    def fail(verb: str, kind: Kind) -> None:
        if failures:
            raise failures.pop()

    client.before = fail
    candidate = Candidate(client, clock, "a")
    for _ in range(2):
        clock.wait_for_waiters(1)
        clock.advance(2)
    assert candidate.started.wait(DEADLINE)
    candidate.end()


@pytest.mark.requirement("LE5")
@pytest.mark.parametrize(("times", "timeout"), [((15.0, 10.0, 2.0), 5.0), ((3.0, 1.5, 0.5), 1.0)])
def test_requests_have_a_timeout(
    client: MemoryClient, clock: VirtualClock, times: tuple[float, float, float], timeout: float
) -> None:
    candidate = Candidate(client, clock, "a", times=ElectionTimes(*times))
    assert candidate.elector.call_timeout == timeout
    candidate.end()


@pytest.mark.requirement("G3")
def test_stop_ends_a_candidate(client: MemoryClient, clock: VirtualClock) -> None:
    put(client, holderIdentity="b", leaseDurationSeconds=3600)
    candidate = Candidate(client, clock, "a")
    clock.wait_for_waiters(1)
    candidate.end()
    assert candidate.errors == []
    assert writes(client) == []


# Leading


@pytest.mark.requirement("LE4")
def test_renewals_happen_every_retry_period_without_a_read(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    client.forget_requests()
    for number in range(1, 11):
        clock.wait_for_waiters(2)
        clock.advance(2)
        eventually(lambda number=number: len(client.requests) == number)  # type: ignore[misc]
    assert [verb for verb, _, _ in client.requests] == ["update"] * 10
    assert parse_time(spec(client)["renewTime"]) == clock.now()
    assert spec(client)["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert candidate.elector.is_leader
    candidate.end()


@pytest.mark.requirement("LE4")
def test_a_renewal_counts_from_before_it_was_sent(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    clock.wait_for_waiters(2)

    def slow(verb: str, kind: Kind) -> None:
        if verb == "update":
            clock.advance(4)

    client.after = slow
    sent = clock.monotonic() + 2
    clock.advance(2)
    eventually(lambda: candidate.elector.fence.leading_until == sent + 10)
    client.after = lambda verb, kind: None
    candidate.end()


@pytest.mark.requirement("LE4")
def test_a_conflict_is_read_and_written_again(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    clock.wait_for_waiters(2)
    put(client, strange=1)  # someone else touches the Lease, but not its holder
    client.forget_requests()
    clock.advance(2)
    eventually(lambda: len(client.requests) == 3)
    assert [verb for verb, _, _ in client.requests] == ["update", "get", "update"]
    assert spec(client)["strange"] == 1
    assert candidate.elector.is_leader
    candidate.end()


@pytest.mark.requirement("LE4")
def test_a_deleted_lease_is_made_again(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    clock.wait_for_waiters(2)
    del client.objects[KEY]
    clock.advance(2)
    eventually(lambda: KEY in client.objects)
    assert candidate.elector.is_leader
    candidate.end()


@pytest.mark.requirement("LE5", "LE6", "MX5")
def test_leadership_is_lost_at_the_renew_deadline(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    start = clock.monotonic()

    def fail(verb: str, kind: Kind) -> None:
        raise TransportError("reset", ambiguous=True)

    client.before = fail
    for _ in range(4):
        clock.wait_for_waiters(2)
        clock.advance(2)
    clock.wait_for_waiters(2)
    assert candidate.elector.is_leader
    clock.advance(1.99)
    clock.wait_for_waiters(2)
    assert candidate.elector.is_leader
    clock.advance(0.01)
    eventually(lambda: bool(candidate.lost))
    assert candidate.lost == [pytest.approx(start + 10)]
    assert not candidate.elector.is_leader
    assert candidate.gauge == 0
    assert candidate.said == ["a became leader", "a stopped leading"]
    with pytest.raises(NotLeader):
        candidate.elector.fence.check()
    # The watchdog waits for the hard exit, and the renewals for their next turn, if they have not ended already.
    eventually(lambda: clock.waiters == (2 if candidate.thread.is_alive() else 1))
    clock.advance(2)
    candidate.thread.join(DEADLINE)
    assert isinstance(candidate.errors[0], LeadershipLost)
    assert str(candidate.errors[0]) == "leader election lost"
    # No release, and never a candidate again.
    assert spec(client)["holderIdentity"] == "a"
    with pytest.raises(RuntimeError, match="only once"):
        candidate.elector.run(threading.Event())
    # A hard exit follows a second before another may take over.
    clock.wait_for_waiters(1)
    assert candidate.exits == []
    clock.advance(1.99)
    clock.wait_for_waiters(1)
    assert candidate.exits == []
    clock.advance(0.02)
    eventually(lambda: candidate.exits == [1])


@pytest.mark.requirement("LE6")
def test_another_holder_ends_leadership_at_once(client: MemoryClient, clock: VirtualClock) -> None:
    told: list[threading.Event] = []
    candidate = Candidate(
        client, clock, "a", on_started=lambda stop: (told.append(stop), stop.wait(DEADLINE))
    )
    eventually(lambda: bool(told))
    clock.wait_for_waiters(2)
    put(client, holderIdentity="b")
    clock.advance(2)
    eventually(lambda: bool(candidate.lost))
    assert not candidate.elector.fence.is_open  # although its time was not over
    candidate.thread.join(DEADLINE)
    assert isinstance(candidate.errors[0], LeadershipLost)
    assert spec(client)["holderIdentity"] == "b"
    assert told[0].is_set()
    clock.wait_for_waiters(1)
    clock.advance(60)
    eventually(lambda: candidate.exits == [1])
    assert len(candidate.lost) == 1


@pytest.mark.requirement("LE6", "LE7")
def test_a_process_that_wakes_late_sends_no_renewal(client: MemoryClient) -> None:
    """Even if the thread that renews wakes before the one that watches the time."""
    watch = threading.Event()

    class LateWatch(VirtualClock):
        def wait(self, event: threading.Event, timeout: float | None) -> bool:
            over = super().wait(event, timeout)
            if threading.current_thread().name.startswith("leader-election-watchdog"):
                watch.wait(DEADLINE)
            return over

    clock = LateWatch()
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    clock.wait_for_waiters(2)
    client.forget_requests()
    clock.advance(60)
    clock.wait_for_waiters(1)  # the renewing thread is on its next round
    assert client.requests == []
    assert not candidate.elector.is_leader
    watch.set()
    eventually(lambda: bool(candidate.lost))
    clock.advance(2)
    candidate.thread.join(DEADLINE)
    assert isinstance(candidate.errors[0], LeadershipLost)
    eventually(lambda: candidate.exits == [1])


@pytest.mark.requirement("LE6")
def test_a_renewal_that_hangs_does_not_keep_leadership(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    hanging, release = threading.Event(), threading.Event()

    def hang(verb: str, kind: Kind) -> None:
        hanging.set()
        release.wait(DEADLINE)

    client.before = hang
    clock.wait_for_waiters(2)
    clock.advance(2)
    assert hanging.wait(DEADLINE)
    clock.advance(8)
    eventually(lambda: bool(candidate.lost))
    release.set()
    candidate.thread.join(DEADLINE)
    assert not candidate.thread.is_alive()
    # What came back late does not open the fence again.
    assert not candidate.elector.fence.is_open
    clock.wait_for_waiters(1)
    clock.advance(60)


@pytest.mark.requirement("LE7")
def test_a_process_that_was_suspended_writes_nothing(clock: VirtualClock) -> None:
    fence = Fence(clock)
    with pytest.raises(NotLeader):
        fence.check()
    fence.extend(clock.monotonic() + 10)
    fence.check()
    clock.advance(9.99)
    fence.check()
    clock.advance(60)
    assert not fence.is_open
    with pytest.raises(NotLeader):
        fence.check()
    Fence.open().check()


@pytest.mark.requirement("LE8", "LE9")
@pytest.mark.parametrize("error", [None, ValueError("broken")])
def test_the_end_of_the_leaders_work_ends_leadership(
    client: MemoryClient, clock: VirtualClock, error: Exception | None
) -> None:
    threads: list[str] = []

    def work(stop: threading.Event) -> None:
        threads.append(threading.current_thread().name)
        if error is not None:
            raise error

    candidate = Candidate(client, clock, "a", on_started=work)
    eventually(lambda: bool(threads))
    while candidate.thread.is_alive():
        # Time moves only while renewal and watchdog both wait for it: a busy machine must not look like a lost lease.
        with contextlib.suppress(TimeoutError):
            clock.wait_for_waiters(2, real_timeout=0.01)
            clock.advance(1)
    assert threads[0].startswith("leader-")
    assert candidate.errors == ([] if error is None else [error])
    assert spec(client)["holderIdentity"] == ""
    assert candidate.lost == []


# Releasing


@pytest.mark.requirement("LE9")
def test_release_happens_after_the_work_has_ended(client: MemoryClient, clock: VirtualClock) -> None:
    finish = threading.Event()
    stopping = threading.Event()

    def work(stop: threading.Event) -> None:
        stop.wait(DEADLINE)
        stopping.set()
        finish.wait(DEADLINE)

    put(client, holderIdentity="", leaseDurationSeconds=1, leaseTransitions=7, strange=1)
    candidate = Candidate(client, clock, "a", on_started=work)
    eventually(lambda: candidate.elector.is_leader)
    candidate.stop.set()
    assert stopping.wait(DEADLINE)
    for _ in range(8):  # renewals go on for as long as the work does
        clock.wait_for_waiters(2)
        clock.advance(2)
    assert candidate.elector.is_leader
    assert spec(client)["holderIdentity"] == "a"
    finish.set()
    candidate.thread.join(DEADLINE)
    assert spec(client) == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": spec(client)["renewTime"],
        "renewTime": spec(client)["renewTime"],
        "leaseTransitions": 7 + 1,
        "strange": 1,
    }
    assert MICRO_TIME.fullmatch(spec(client)["renewTime"])
    assert not candidate.elector.is_leader


@pytest.mark.requirement("LE7", "LE9")
def test_the_fence_is_closed_before_the_lease_is_released(client: MemoryClient, clock: VirtualClock) -> None:
    """From the moment at which the server has the release, another process may lead."""
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    open_at: list[bool] = []
    client.before = lambda verb, kind: open_at.append(candidate.elector.fence.is_open)
    candidate.end()
    assert spec(client)["holderIdentity"] == ""
    assert open_at == [False, False]
    assert candidate.lost == []
    assert candidate.errors == []


@pytest.mark.requirement("LE9")
def test_a_lease_of_another_is_not_released(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    put(client, holderIdentity="b")
    candidate.end()
    assert spec(client)["holderIdentity"] == "b"


@pytest.mark.requirement("LE9")
def test_a_conflict_of_the_release_is_retried(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)
    conflicts = [1, 1, 1]

    def conflict(verb: str, kind: Kind) -> None:
        if verb == "update" and conflicts:
            conflicts.pop()
            raise Conflict("changed", code=409, reason="Conflict", method="PUT")

    client.before = conflict
    candidate.end()
    assert spec(client)["holderIdentity"] == ""


@pytest.mark.requirement("LE9")
def test_a_release_ends_with_the_renew_deadline(client: MemoryClient, clock: VirtualClock) -> None:
    candidate = Candidate(client, clock, "a")
    assert candidate.started.wait(DEADLINE)

    def fail(verb: str, kind: Kind) -> None:
        raise TransportError("reset", ambiguous=True)

    client.before = fail
    candidate.stop.set()
    deadline = time.monotonic() + DEADLINE
    while candidate.thread.is_alive() and time.monotonic() < deadline:
        clock.advance(0.5)
        candidate.thread.join(0.005)
    assert not candidate.thread.is_alive()


@pytest.mark.requirement("LE9")
def test_abandoned_leadership_is_not_released(client: MemoryClient, clock: VirtualClock) -> None:
    release = threading.Event()
    candidate = Candidate(client, clock, "a", on_started=lambda stop: release.wait(DEADLINE))
    eventually(lambda: candidate.elector.is_leader)
    assert candidate.gauge == 1
    candidate.elector.abandon()
    assert not candidate.elector.is_leader
    assert not candidate.elector.fence.is_open
    assert candidate.gauge == 0
    candidate.stop.set()
    while candidate.thread.is_alive():
        clock.advance(1)
        candidate.thread.join(0.01)
    release.set()
    assert spec(client)["holderIdentity"] == "a"
    assert candidate.errors == []


@pytest.mark.requirement("LE2", "LE9")
def test_a_release_is_noticed_within_one_retry_period(client: MemoryClient, clock: VirtualClock) -> None:
    first = Candidate(client, clock, "a")
    assert first.started.wait(DEADLINE)
    second = Candidate(client, clock, "b")
    eventually(lambda: second.elector._observed.spec is not None)
    first.end()
    clock.wait_for_waiters(1)
    clock.advance(2)
    assert second.started.wait(DEADLINE)
    assert spec(client)["leaseTransitions"] == 1
    second.end()


@pytest.mark.requirement("LE10")
def test_renewals_are_in_time_while_all_workers_compute() -> None:
    """On a clock of processor time, so that it is the threads of this process that compete, not others with it."""

    class ProcessorClock(SystemClock):
        def monotonic(self) -> float:
            return time.process_time()

        def wait(self, event: threading.Event, timeout: float | None) -> bool:
            end = math.inf if timeout is None else self.monotonic() + timeout
            while not event.is_set() and self.monotonic() < end:
                event.wait(min(0.1, end - self.monotonic()))
            return event.is_set()

    client = MemoryClient()
    clock = ProcessorClock()
    over = threading.Event()
    lost: list[int] = []

    def work(stop: threading.Event) -> None:
        stop.wait()

    elector = LeaderElector(
        client,
        namespace="system",
        name="leader",
        times=ElectionTimes(lease_duration=4.5, renew_deadline=3.0, retry_period=0.3),
        on_started=work,
        on_lost=lambda: lost.append(1),
        clock=clock,
    )

    def compute() -> None:
        number = 0
        while not over.is_set():
            for _ in range(10_000):
                number += 1

    stop = threading.Event()
    thread = threading.Thread(target=lambda: elector.run(stop), daemon=True)
    thread.start()
    eventually(lambda: elector.is_leader)
    workers = [threading.Thread(target=compute, daemon=True) for _ in range(6)]
    for worker in workers:
        worker.start()
    # Computing, not sleeping: the main thread takes part for longer than the renew deadline.
    until = clock.monotonic() + 3.5
    checks: list[Callable[[], None]] = []
    while clock.monotonic() < until:
        checks.append(elector.fence.check)
        checks[-1]()
    over.set()
    stop.set()
    thread.join(DEADLINE)
    assert lost == []
    assert client.objects[KEY]["spec"]["holderIdentity"] == ""
