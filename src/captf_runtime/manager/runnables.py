"""What a manager runs, and in which order."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from ..clock import Clock
from ..log import get_logger
from ..metrics import Metrics
from ..threads import ManagedThread, stack_of, start_thread

__all__ = ["Group", "Runnable", "Running"]

_logger = get_logger(__name__)


class Group(enum.IntEnum):
    """The groups in the order in which they start; they stop the other way round.

    Every group runs before the next starts. Between OTHERS and LEADERS leadership is won.
    """

    HTTP = 0
    WEBHOOKS = 1
    CACHES = 2
    OTHERS = 3
    LEADERS = 4


@runtime_checkable
class Runnable(Protocol):
    """Something that works until it is told to stop.

    It may have an attribute `ready`, a `threading.Event` that is set once others can rely on it: the next
    group waits for that. It may have a method `threads()`, the threads that keep `run` from returning:
    they are named when it does not end in time.
    """

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set. Returning early is fine; raising stops the manager."""
        ...


class Running:
    """A runnable in its thread."""

    def __init__(
        self,
        runnable: Runnable,
        name: str,
        group: Group,
        *,
        metrics: Metrics,
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self.runnable = runnable
        self.name = name
        self.group = group
        self.stop = threading.Event()
        self.thread: ManagedThread = start_thread(
            "runnable",
            lambda: runnable.run(self.stop),
            metrics=metrics,
            clock=clock,
            on_failure=lambda error: on_failure(name, error),
            name=f"runnable-{name}",
        )

    @property
    def is_ready(self) -> bool:
        """Whether the next group need not wait for it (any more)."""
        ready = getattr(self.runnable, "ready", None)
        return not isinstance(ready, threading.Event) or ready.is_set() or self.thread.ended.is_set()

    def stacks(self) -> str:
        """What it is doing: the stacks of its threads."""
        threads: Sequence[ManagedThread] = getattr(self.runnable, "threads", lambda: ())()
        return "\n".join(f"{thread.name}:\n{stack_of(thread)}" for thread in [self.thread, *threads])
