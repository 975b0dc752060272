"""When a request is repeated, and after which pause.

Reads are repeated whenever another try may help. A write is repeated only when it certainly was not
executed; an ambiguous one is the caller's to judge, who knows how to look whether it took effect.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception

from captf_runtime.client.errors import (
    ApiError,
    Conflict,
    InternalError,
    ServiceUnavailable,
    Stopped,
    Timeout,
    TooManyRequests,
    TransportError,
)
from captf_runtime.clock import SYSTEM_CLOCK, Clock

T = TypeVar("T")

ATTEMPTS = 5
FIRST_DELAY, LONGEST_DELAY = 0.2, 5.0
LONGEST_RETRY_AFTER = 30.0

CONFLICT_ATTEMPTS = 5
CONFLICT_DELAY, CONFLICT_JITTER = 0.01, 0.1


def may_repeat(error: BaseException, *, write: bool) -> bool:
    """Say whether a request that failed like this may be sent again."""
    if isinstance(error, Stopped):
        return False
    if isinstance(error, TransportError):
        return not (write and error.ambiguous)
    if isinstance(error, TooManyRequests | ServiceUnavailable):
        # 502 is the word of a proxy: the server behind it may have executed the request.
        return not write or (error.retry_after is not None and error.code in (429, 503))
    return not write and isinstance(error, InternalError | Timeout)


def delay_before(attempt: int, error: BaseException | None, draw: Callable[[float, float], float]) -> float:
    """Return the pause in seconds after the `attempt`-th failure (from 1).

    Full jitter: uniform between 0 and 0.2 s doubled per attempt, at most 5 s; never less than the
    `Retry-After` of the answer, of which at most 30 s are honoured.
    """
    backoff = draw(0.0, min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** (min(attempt, 32) - 1)))
    if isinstance(error, ApiError) and error.retry_after is not None:
        return max(backoff, min(float(error.retry_after), LONGEST_RETRY_AFTER))
    return backoff


def repeat(
    attempt: Callable[[], T],
    *,
    write: bool,
    pause: Callable[[float], bool],
    remaining: Callable[[], float | None],
    before_retry: Callable[[ApiError], None],
    draw: Callable[[float, float], float] = random.uniform,
) -> T:
    """Call `attempt` up to five times.

    Args:
        pause: waits so many seconds; True when a stop ended the wait.
        remaining: seconds left for the whole call, None without limit.
        before_retry: told the error that is about to be retried.

    Raises:
        The last error: when it may not be repeated, when the tries or the time are used up, and when the
        stop signal ends a pause.
    """
    last: list[ApiError] = []

    def error_of(state: RetryCallState) -> BaseException | None:
        return state.outcome.exception() if state.outcome is not None else None

    def wait(state: RetryCallState) -> float:
        return delay_before(state.attempt_number, error_of(state), draw)

    def stop(state: RetryCallState) -> bool:
        left = remaining()
        return state.attempt_number >= ATTEMPTS or (left is not None and state.upcoming_sleep >= left)

    def note(state: RetryCallState) -> None:
        error = error_of(state)
        if isinstance(error, ApiError):
            last[:] = [error]
            before_retry(error)

    def sleep(seconds: float) -> None:
        if pause(seconds):
            raise last[0]

    retrying = Retrying(
        stop=stop,
        wait=wait,
        retry=retry_if_exception(lambda error: may_repeat(error, write=write)),
        before_sleep=note,
        sleep=sleep,
        reraise=True,
    )
    return retrying(attempt)


def retry_on_conflict(
    fn: Callable[[], T],
    *,
    clock: Clock = SYSTEM_CLOCK,
    draw: Callable[[float, float], float] = random.uniform,
) -> T:
    """Call `fn` again when it fails because the object was changed meanwhile.

    Flow: `fn` reads the object through the *uncached* client, changes it and writes it. Five tries, 10 ms
    apart with up to a tenth more.

    Raises:
        Conflict: also the fifth try met one.
        Any other error of `fn`, at once; so does a conflict that reading again cannot cure (a failed
        precondition, another field manager).
    """
    for _ in range(CONFLICT_ATTEMPTS - 1):
        try:
            return fn()
        except Conflict as error:
            if error.kind != "resource-version":
                raise
        clock.sleep(CONFLICT_DELAY + draw(0.0, CONFLICT_JITTER * CONFLICT_DELAY))
    return fn()
