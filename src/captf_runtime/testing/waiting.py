"""Wait, in a test, for what something else brings about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from captf_runtime.client import NotFound

__all__ = ["eventually"]

T = TypeVar("T")


def eventually(check: Callable[[], T], *, timeout: float = 60.0, pause: float = 0.01) -> T:
    """Repeat a check until it passes, and return its value.

    A check passes when it returns something true. It has not passed yet when it returns something false, raises
    an AssertionError, or raises NotFound; any other exception ends the wait.

    Args:
        check: looks at what is to become true; called on this thread.
        timeout: seconds after which the wait fails: it says how long something broken may hold up a test, not how
            quick anything is, so by default it has room for a machine that is busy or pauses.
        pause: seconds between two checks.

    Raises:
        AssertionError: the check has not passed in time; the cause is what it raised last.
    """
    deadline = time.monotonic() + timeout
    pauses = threading.Event()
    while True:
        reason: Exception | None = None
        seen: T | None = None
        try:
            seen = check()
            if seen:
                return seen
        except (AssertionError, NotFound) as error:
            reason = error
        if time.monotonic() >= deadline:
            found = f"it raised {reason!r}" if reason is not None else f"it returned {seen!r}"
            raise AssertionError(f"not true within {timeout:g} s: {found} the last time") from reason
        pauses.wait(pause)
