from __future__ import annotations

import pytest

from captf_runtime.backoff import Backoff, exponential, full_jitter, spread
from captf_runtime.testing.clock import VirtualClock


def test_exponential_grows_to_its_cap_without_overflow() -> None:
    assert [exponential(n, base=0.8, cap=30.0) for n in range(7)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert exponential(10**6, base=0.005, cap=1000.0) == 1000.0
    assert exponential(10**6, base=0.005, cap=1000.0, factor=1e300) == 1000.0
    assert exponential(0, base=5.0, cap=1.0) == 1.0


@pytest.mark.parametrize(("draw", "full", "spreaded"), [(0.0, 0.0, 2.0), (0.5, 1.0, 3.0), (0.99, 1.98, 3.98)])
def test_jitter(draw: float, full: float, spreaded: float) -> None:
    assert full_jitter(2.0, lambda: draw) == full
    assert spread(2.0, lambda: draw) == spreaded


def test_a_row_of_failures_starts_anew_after_a_good_while() -> None:
    clock = VirtualClock()
    backoff = Backoff(base=1.0, cap=8.0, reset_after=120.0, jitter=lambda delay: delay, clock=clock)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    clock.advance(8 + 120)
    assert backoff.next() == 8.0
    clock.advance(8 + 121)
    assert backoff.next() == 1.0
    backoff.next()
    backoff.reset()
    assert backoff.next() == 1.0
