from __future__ import annotations

import threading

import pytest

from captf_runtime.client import (
    ApiError,
    Conflict,
    ConnectionFailed,
    InternalError,
    NotFound,
    RequestTimeout,
    ServiceUnavailable,
    Stopped,
    Timeout,
    TooManyRequests,
    TransportError,
    retry_on_conflict,
)
from captf_runtime.client.retry import delay_before, may_repeat, repeat


@pytest.mark.requirement("CL15")
@pytest.mark.parametrize(
    ("error", "read", "write"),
    [
        (ConnectionFailed("x", refused=True), True, True),
        (TransportError("x", ambiguous=True), True, False),
        (TransportError("x", ambiguous=False), True, True),
        (RequestTimeout("x", ambiguous=True), True, False),
        (TooManyRequests("x", code=429), True, False),
        (TooManyRequests("x", code=429, retry_after=1), True, True),
        (ServiceUnavailable("x", code=503), True, False),
        (ServiceUnavailable("x", code=503, retry_after=1), True, True),
        (ServiceUnavailable("x", code=502, retry_after=1), True, False),
        (InternalError("x", code=500), True, False),
        (InternalError("x", code=500, retry_after=1), True, False),
        (Timeout("x", code=504), True, False),
        (NotFound("x", code=404), False, False),
        (Conflict("x", code=409), False, False),
        (Stopped("x", ambiguous=False), False, False),
        (KeyError("x"), False, False),
    ],
)
def test_what_may_be_repeated(error: BaseException, read: bool, write: bool) -> None:
    assert may_repeat(error, write=False) is read
    assert may_repeat(error, write=True) is write


@pytest.mark.requirement("CL15")
def test_pauses_double_with_full_jitter_and_honour_retry_after() -> None:
    error = InternalError("x")
    longest = [delay_before(n, error, lambda low, high: high) for n in range(1, 9)]
    assert longest == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert delay_before(1_000_000, error, lambda low, high: high) == 5.0
    assert delay_before(3, error, lambda low, high: low) == 0.0
    assert delay_before(1, TooManyRequests("x", retry_after=3), lambda low, high: high) == 3.0
    assert delay_before(1, TooManyRequests("x", retry_after=3600), lambda low, high: high) == 30.0


class Attempts:
    def __init__(self, *errors: ApiError) -> None:
        self.errors = list(errors)
        self.pauses: list[float] = []
        self.retries: list[ApiError] = []
        self.left: float | None = None
        self.stopped = False

    def attempt(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return self.stopped

    def run(self, *, write: bool = False) -> str:
        return repeat(
            self.attempt,
            write=write,
            pause=self.pause,
            remaining=lambda: self.left,
            before_retry=self.retries.append,
            draw=lambda low, high: high,
        )


@pytest.mark.requirement("CL15")
def test_at_most_five_tries() -> None:
    attempts = Attempts(*[InternalError(str(n)) for n in range(9)])
    with pytest.raises(InternalError, match="4"):
        attempts.run()
    assert attempts.pauses == [0.2, 0.4, 0.8, 1.6]
    assert len(attempts.retries) == 4
    assert Attempts(*[InternalError("x")] * 4).run() == "done"


@pytest.mark.requirement("CL15")
def test_no_pause_longer_than_the_time_that_is_left() -> None:
    attempts = Attempts(InternalError("x"), InternalError("y"))
    attempts.left = 0.3
    with pytest.raises(InternalError, match="y"):
        attempts.run()
    assert attempts.pauses == [0.2]


@pytest.mark.requirement("CL15")
def test_a_stop_during_the_pause_raises_what_happened() -> None:
    attempts = Attempts(InternalError("x"), InternalError("y"))
    attempts.stopped = True
    with pytest.raises(InternalError, match="x"):
        attempts.run()


@pytest.mark.requirement("CL15")
def test_an_ambiguous_write_is_raised_at_once() -> None:
    attempts = Attempts(TransportError("x", ambiguous=True))
    with pytest.raises(TransportError):
        attempts.run(write=True)
    assert attempts.pauses == []


class SleepLog:
    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> bool:
        self.slept.append(seconds)
        return False


def stale() -> Conflict:
    return Conflict("stale", code=409, reason="Conflict", method="PUT")


@pytest.mark.requirement("CL16")
def test_conflicts_are_retried_five_times_ten_milliseconds_apart() -> None:
    calls: list[int] = []

    def always() -> None:
        calls.append(1)
        raise stale()

    clock = SleepLog()
    with pytest.raises(Conflict):
        retry_on_conflict(always, clock=clock)  # type: ignore[arg-type]
    assert len(calls) == 5
    assert len(clock.slept) == 4
    assert all(0.01 <= seconds <= 0.011 for seconds in clock.slept)


@pytest.mark.requirement("CL16")
def test_other_errors_pass_through() -> None:
    errors: list[Exception] = [stale(), NotFound("gone", code=404)]

    def fn() -> None:
        raise errors.pop(0)

    with pytest.raises(NotFound):
        retry_on_conflict(fn)
    precondition = Conflict("other uid", code=409, reason="Conflict", method="DELETE")
    errors.extend([precondition, stale()])
    with pytest.raises(Conflict) as raised:
        retry_on_conflict(fn)
    assert raised.value is precondition
