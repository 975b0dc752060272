from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_runtime.queue import policies
from captf_runtime.queue.policies import ACTIVE, GATE, LAG, RETRY, SHORT, SLOT, STATE, jitter_ns, shortest

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SECOND = 1_000_000_000

VECTORS = [
    ("uid-1", (401775683, 401775683, 3401775683, 21401775683, 51401775683)),
    ("uid-2", (413403894, 1913403894, 4913403894, 10913403894, 70913403894)),
    (
        "5f1d3c2a-0000-4000-8000-00000000000a",
        (656988671, 2156988671, 5156988671, 5156988671, 95156988671),
    ),
]


@pytest.mark.parametrize(("uid", "expected"), VECTORS)
def test_jitter_vectors(uid: str, expected: tuple[int, ...]) -> None:
    intervals = (15, 30, 60, 300, 1800)
    assert tuple(jitter_ns(uid, seconds * SECOND) for seconds in intervals) == expected


@pytest.mark.parametrize(("uid", "interval"), [("", 15 * SECOND), ("uid-1", 0), ("uid-1", 9), ("uid-1", -1)])
def test_jitter_is_zero_without_uid_or_spread(uid: str, interval: int) -> None:
    assert jitter_ns(uid, interval) == 0


@given(st.text(), st.integers(min_value=-10, max_value=10**15))
def test_jitter_stays_under_a_tenth(uid: str, interval: int) -> None:
    assert 0 <= jitter_ns(uid, interval) <= max(interval // 10, 0)


def test_fixed_policies() -> None:
    delays = [policy.delay() for policy in (GATE, STATE, LAG, ACTIVE, SHORT)]
    assert delays == [30.0, 60.0, 5.0, 60.0, 1.0]


def test_slot_is_fifteen_seconds_and_jitter() -> None:
    assert SLOT.delay_ns("uid-1") == 15_401_775_683
    assert SLOT.delay("uid-1") == 15.401775683
    assert SLOT.delay("") == 15.0


def test_policies_are_immutable_and_bear_their_names() -> None:
    for name in ("GATE", "STATE", "RETRY", "LAG", "ACTIVE", "SHORT", "SLOT"):
        policy = getattr(policies, name)
        assert policy.name == name
        with pytest.raises(dataclasses.FrozenInstanceError):
            policy.name = "other"


@pytest.mark.requirement("RP1")
def test_retry_doubles_to_the_cap() -> None:
    assert [RETRY.delay(n) for n in range(1, 8)] == [60, 120, 240, 480, 600, 600, 600]


@pytest.mark.requirement("RP1")
@pytest.mark.parametrize(
    ("n", "limit", "delay"), [(1, 0, 600), (1, 1, 600), (1, 3, 60), (2, 3, 120), (3, 3, 600), (4, 3, 600)]
)
def test_retry_is_the_cap_from_the_limit_on(n: int, limit: int, delay: float) -> None:
    assert RETRY.delay(n, limit) == delay


@pytest.mark.requirement("RP1")
@pytest.mark.parametrize(
    ("passed", "left"), [(0, 60), (0.5, 59.5), (58, 2), (59.5, 1), (60, 0), (61, 0), (10**6, 0), (-30, 60)]
)
def test_retry_remaining(passed: float, left: float) -> None:
    assert RETRY.remaining(1, NOW - timedelta(seconds=passed), NOW) == left


@pytest.mark.requirement("RP2")
def test_the_shortest_positive_wait_wins() -> None:
    assert shortest([60.0, 0.0, 5.0, -1.0, 30.0]) == 5.0
    assert shortest([0.0, -1.0]) == 0.0
    assert shortest([]) == 0.0


@pytest.mark.requirement("RP3")
def test_retry_bounds() -> None:
    assert RETRY.delay(10**9) == 600.0
    with pytest.raises(ValueError, match="at least 1, got 0"):
        RETRY.delay(0)
    with pytest.raises(ValueError, match="at least 1"):
        RETRY.remaining(0, NOW, NOW)
