from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import pytest

from captf_runtime import log
from captf_runtime.metrics import Metrics
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.threads import join_all, stack_of, start_thread


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    level = log.get_level()
    stream = io.StringIO()
    log.configure("info", "json", stream)
    yield stream
    log.configure(level, "text", None)


def failures(metrics: Metrics, component: str) -> float | None:
    return metrics.registry.get_sample_value("captf_runtime_thread_failures_total", {"component": component})


@pytest.mark.requirement("G4")
def test_threads_are_numbered_daemons() -> None:
    metrics = Metrics()
    threads = [start_thread("numbered", lambda: None, metrics=metrics) for _ in range(3)]
    assert [thread.name for thread in threads] == ["numbered-0", "numbered-1", "numbered-2"]
    assert all(thread.daemon for thread in threads)
    assert join_all(threads, 30) == []
    assert failures(metrics, "numbered") == 0


@pytest.mark.requirement("G4")
def test_a_failed_worker_is_logged_counted_and_restarted(logs: io.StringIO) -> None:
    metrics = Metrics()
    clock = VirtualClock()
    runs: list[int] = []

    def main() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise SystemExit("broken")

    thread = start_thread("worker", main, metrics=metrics, restart=True, clock=clock)
    clock.wait_for_waiters(1)
    clock.advance(1)
    assert join_all([thread], 30) == []
    assert len(runs) == 2
    assert failures(metrics, "worker") == 1
    assert "SystemExit: broken" in logs.getvalue()
    assert '"stack"' in logs.getvalue()


@pytest.mark.requirement("G4")
def test_another_failed_thread_is_reported(logs: io.StringIO) -> None:
    reported: list[BaseException] = []

    def main() -> None:
        raise ValueError("broken")

    metrics = Metrics()
    thread = start_thread("other", main, metrics=metrics, on_failure=reported.append)
    assert join_all([thread], 30) == []
    assert [str(error) for error in reported] == ["broken"]
    assert failures(metrics, "other") == 1


@pytest.mark.requirement("G3")
def test_stop_ends_the_pause_before_a_restart(logs: io.StringIO) -> None:
    stop = threading.Event()

    def main() -> None:
        raise ValueError("broken")

    clock = VirtualClock()
    thread = start_thread("stopped", main, metrics=Metrics(), restart=True, stop=stop, clock=clock)
    clock.wait_for_waiters(1)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_joining_names_what_is_left_and_what_it_does() -> None:
    release = threading.Event()
    clock = VirtualClock()

    def dig() -> None:
        release.wait(30)

    thread = start_thread("digger", dig, metrics=Metrics(), clock=clock)
    left: list[object] = []
    joiner = threading.Thread(target=lambda: left.extend(join_all([thread], 20, clock)))
    joiner.start()
    clock.wait_for_waiters(1)
    clock.advance(20)
    joiner.join(30)
    assert left == [thread]
    assert "in dig" in stack_of(thread)
    release.set()
    assert join_all([thread], 30) == []
    assert stack_of(thread) == ""
