from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import pytest

from captf_runtime.clock import SystemClock, clamp_timeout
from captf_runtime.election import Fence, NotLeader
from captf_runtime.testing.clock import VirtualClock


@pytest.mark.requirement("G3")
def test_timeouts_are_clamped_to_what_threading_accepts() -> None:
    assert clamp_timeout(None) is None
    assert clamp_timeout(-1) == 0
    assert clamp_timeout(1e30) == threading.TIMEOUT_MAX
    stop = threading.Event()
    stop.set()
    assert SystemClock().sleep(1e30, stop)
    assert SystemClock().wait(stop, 1e30)


def test_system_clock_is_aware_utc_and_monotonic() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()
    assert not clock.sleep(0.001)


@pytest.mark.requirement("LE7")
@pytest.mark.skipif(
    not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no clock that counts suspension"
)
def test_time_in_which_the_machine_was_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    fence = Fence(clock)
    fence.extend(clock.monotonic() + 10.0)
    fence.check()
    now = {which: time.clock_gettime(which) for which in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)}
    now[time.CLOCK_BOOTTIME] += 60.0
    monkeypatch.setattr(time, "clock_gettime", now.__getitem__)
    with pytest.raises(NotLeader):
        fence.check()


@pytest.mark.requirement("G2")
def test_virtual_time_moves_only_by_hand() -> None:
    clock = VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))
    before = clock.monotonic()
    clock.advance(90)
    assert clock.monotonic() == before + 90
    assert clock.now() == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)
    clock.set(datetime(2025, 1, 1, tzinfo=UTC))
    assert clock.monotonic() == before + 90
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="time zone"):
        VirtualClock(datetime(2026, 1, 1))


@pytest.mark.requirement("G2")
def test_advance_wakes_sleepers_whose_time_has_come() -> None:
    clock = VirtualClock()
    woken: list[str] = []
    short = threading.Thread(target=lambda: (clock.sleep(10), woken.append("short")))
    long = threading.Thread(target=lambda: (clock.sleep(20), woken.append("long")))
    short.start()
    long.start()
    clock.wait_for_waiters(2)
    clock.advance(10)
    short.join(30)
    assert woken == ["short"]
    clock.advance(10)
    long.join(30)
    assert woken == ["short", "long"]
    assert clock.waiters == 0


def test_an_event_ends_a_virtual_wait() -> None:
    clock = VirtualClock()
    stop = threading.Event()
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(clock.sleep(3600, stop)))
    thread.start()
    clock.wait_for_waiters(1)
    stop.set()
    thread.join(30)
    assert results == [True]


def test_advance_wakes_condition_waits() -> None:
    clock = VirtualClock()
    condition = threading.Condition()
    woken = threading.Event()

    def wait() -> None:
        deadline = clock.monotonic() + 5
        with condition:
            while clock.monotonic() < deadline:
                clock.wait_condition(condition, deadline - clock.monotonic())
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    clock.wait_for_waiters(1)
    clock.advance(4)
    assert not woken.is_set()
    clock.wait_for_waiters(1)
    clock.advance(1)
    assert woken.wait(30)
    thread.join(30)


def test_waiting_for_waiters_gives_up() -> None:
    with pytest.raises(TimeoutError, match="0 threads"):
        VirtualClock().wait_for_waiters(1, real_timeout=0.01)
