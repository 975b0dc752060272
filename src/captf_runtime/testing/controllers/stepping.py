"""A controller that works either in a thread of its own or only when it is told to."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from captf_runtime.log import get_logger

__all__ = ["RETRY_SECONDS", "SteppedController"]

RETRY_SECONDS = 0.5
"""Pause after a failure before the same work is tried again."""

_logger = get_logger(__name__)


class SteppedController(ABC):
    """Work that is due after changes, done by `step()` or in background.

    A subclass implements `step` and calls `wake` (from any thread; cheap) when there may be work. In
    background a change is acted upon at once. `step()` in a test does the same work in the caller's thread,
    for tests that look at the states in between; the two may be mixed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        #: Set by a subclass that is told of changes; ends that.
        self._unsubscribe: Callable[[], None] | None = None

    @abstractmethod
    def step(self) -> bool:
        """Do all that is due now. True when anything was done."""

    def wake(self) -> None:
        """Say that there may be something to do."""
        self._wake.set()

    def start(self) -> None:
        """Work in background until `stop`. Starting twice is an error."""
        with self._lock:
            if self._thread is not None:
                raise RuntimeError(f"{self._name}: already started")
            self._stop.clear()
            self._wake.set()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the background thread, wait for it, and be told of no change any more."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            self._wake.set()
            thread.join()
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self.step()
            except Exception:
                _logger.exception("a step failed and will be tried again", component=self._name)
                self._stop.wait(RETRY_SECONDS)
                self._wake.set()
