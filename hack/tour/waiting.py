"""Waiting for something observable, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TimedOut(Exception):
    """What was waited for did not come."""


def wait_until(check: Callable[[], T], what: str, *, seconds: float = 60.0, every: float = 0.1) -> T:
    """The first true answer of ``check``, asked every ``every`` seconds.

    Raises TimedOut naming ``what`` after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise TimedOut(f"not within {seconds:g} seconds: {what}")
        time.sleep(every)
