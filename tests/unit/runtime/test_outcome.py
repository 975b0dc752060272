from __future__ import annotations

import pytest

from captf_runtime.client.errors import ApiError, Conflict, Forbidden, Stopped, TransportError
from captf_runtime.controller import (
    NotLeader,
    ReconcileError,
    ReconcileTimeout,
    Result,
    Stopping,
    TerminalError,
)
from captf_runtime.controller.outcome import CONFLICTS_IN_A_ROW, Outcome, outcome_of

VERSION_CONFLICT = Conflict("changed", code=409, reason="Conflict", method="PUT")
PRECONDITION = Conflict("another uid", code=409, reason="Conflict", method="DELETE")


@pytest.mark.requirement("CT5")
@pytest.mark.parametrize(
    ("end", "stopping", "expected"),
    [
        (Stopping(), True, Outcome("drop", None)),
        (Stopped("stopped", ambiguous=False), True, Outcome("drop", None)),
        (Stopped("closed", ambiguous=False), False, Outcome("limit", "error")),
        (NotLeader(), False, Outcome("drop", None)),
        (TerminalError(), False, Outcome("forget", "error", terminal=True)),
        (VERSION_CONFLICT, False, Outcome("limit", "requeue", conflict=True)),
        (PRECONDITION, False, Outcome("limit", "error")),
        (ReconcileError(), False, Outcome("limit", "error")),
        (ReconcileTimeout(), False, Outcome("limit", "error")),
        (ApiError("x"), False, Outcome("limit", "error")),
        (Forbidden("x", code=403), False, Outcome("limit", "error")),
        (TransportError("x", ambiguous=True), True, Outcome("limit", "error")),
        (KeyError("x"), False, Outcome("limit", "error", panic=True)),
        (Result(requeue_after=30.0), False, Outcome("after", "requeue_after", delay=30.0)),
        (Result(requeue_after=30.0, requeue=True), False, Outcome("after", "requeue_after", delay=30.0)),
        (Result(requeue=True), False, Outcome("limit", "requeue")),
        (Result(), False, Outcome("forget", "success")),
        (None, False, Outcome("forget", "success")),
    ],
)
def test_outcomes(end: Result | BaseException | None, stopping: bool, expected: Outcome) -> None:
    assert outcome_of(end, stopping=stopping, conflicts=0) == expected


@pytest.mark.requirement("CT6")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError()])
def test_whatever_else_is_raised_is_an_unexpected_error(error: BaseException) -> None:
    assert outcome_of(error, stopping=False, conflicts=0) == Outcome("limit", "error", panic=True)


@pytest.mark.requirement("CT5")
def test_conflicts_become_errors_from_the_tenth_in_a_row() -> None:
    assert CONFLICTS_IN_A_ROW == 10
    assert outcome_of(VERSION_CONFLICT, stopping=False, conflicts=8).label == "requeue"
    assert outcome_of(VERSION_CONFLICT, stopping=False, conflicts=9).label == "error"
    assert outcome_of(VERSION_CONFLICT, stopping=False, conflicts=500).label == "error"


@pytest.mark.requirement("CT5")
@pytest.mark.parametrize("delay", [-1.0, -1e-9, float("nan")])
def test_a_negative_delay_is_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="requeue_after: must be 0 or more"):
        Result(requeue_after=delay)
