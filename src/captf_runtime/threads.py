"""Threads that are named, cannot keep the process alive, and never die unnoticed.

Every thread of the library is started here. An exception that leaves a thread's main function is logged with
its stack and counted; then the main function is run again (workers, handlers), or whoever started the thread
is told (everything else), which is how a manager comes to stop.
"""

from __future__ import annotations

import itertools
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable

from .backoff import Backoff
from .clock import SYSTEM_CLOCK, Clock
from .log import get_logger
from .metrics import Metrics

__all__ = ["ManagedThread", "join_all", "stack_of", "start_thread"]

_logger = get_logger(__name__)
_numbers: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
_numbers_lock = threading.Lock()


def start_thread(
    component: str,
    main: Callable[[], object],
    *,
    metrics: Metrics,
    stop: threading.Event | None = None,
    restart: bool = False,
    on_failure: Callable[[BaseException], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    name: str = "",
) -> ManagedThread:
    """Start a daemon thread named `<component>-<n>` that runs `main`.

    Args:
        component: bounded name of what the thread is part of; label of
            `captf_runtime_thread_failures_total`.
        main: the main function; the thread ends when it returns.
        stop: when set, a failed main function is not run again.
        restart: run `main` again after an exception (at once the first time, then with growing pauses up to
            ten seconds, so that a main function that cannot work does not burn the processor).
        on_failure: called in the thread with the exception, when it is not run again.
        name: the full name of the thread, where `<component>-<n>` will not do.
    """
    if not name:
        with _numbers_lock:
            name = f"{component}-{next(_numbers[component])}"
    # Made here, so that the series exists with 0 before anything fails.
    failures = metrics.thread_failures.labels(component)

    def run() -> None:
        backoff = Backoff(base=0.1, cap=10.0, reset_after=60.0, clock=clock)
        while True:
            try:
                main()
            except BaseException as error:  # a thread's last line of defence: nothing may pass
                _logger.exception("thread failed", component=component, thread=name)
                failures.inc()
                if restart and not (stop is not None and stop.is_set()):
                    if clock.sleep(backoff.next(), stop):
                        return
                    continue
                if on_failure is not None:
                    on_failure(error)
            return

    thread = ManagedThread(run, name)
    thread.start()
    return thread


class ManagedThread(threading.Thread):
    """A daemon thread whose end can be waited for on any clock.

    Attributes:
        ended: set as the last act of the thread.
    """

    def __init__(self, main: Callable[[], object], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._main = main
        self.ended = threading.Event()

    def run(self) -> None:
        """Run the main function, then tell those who wait."""
        try:
            self._main()
        finally:
            self.ended.set()


def join_all(
    threads: Iterable[ManagedThread], timeout: float, clock: Clock = SYSTEM_CLOCK
) -> list[ManagedThread]:
    """Wait for threads to end, `timeout` seconds in all; returns those that have not ended.

    A thread that joins a set with itself in it does not wait for itself.
    """
    deadline = clock.monotonic() + timeout
    left = []
    for thread in threads:
        if thread is threading.current_thread():
            continue
        if clock.wait(thread.ended, max(0.0, deadline - clock.monotonic())):
            thread.join()
        else:
            left.append(thread)
    return left


def stack_of(thread: threading.Thread) -> str:
    """What a running thread is doing: its stack as text, empty when it has ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame)).rstrip()
