"""The choice of faults: pure but for its counters."""

from __future__ import annotations

import pytest

from captf_runtime.testing.faults import Faults, Match, Subject, conflict, latency, reset

GET = Subject("get", "", "secrets", "", "n", "a", "joe")


@pytest.mark.requirement("AS29")
@pytest.mark.parametrize(
    ("match", "strikes"),
    [
        (Match(), True),
        (Match(verb="get"), True),
        (Match(verb="list,get"), True),
        (Match(verb="list"), False),
        (Match(resource="secrets", namespace="n", name="a", user="joe", group="", subresource=""), True),
        (Match(name="b"), False),
        (Match(user="eve"), False),
        (Match(subresource="status"), False),
    ],
)
def test_matching(match: Match, strikes: bool) -> None:
    faults = Faults()
    fault = faults.add(match, reset())
    assert bool(faults.strike(GET)) is strikes
    assert fault.hits == int(strikes)


@pytest.mark.requirement("AS29")
def test_several_strike_in_the_order_in_which_they_were_added() -> None:
    faults = Faults()
    faults.add(Match(), latency(1))
    faults.add(Match(), conflict())
    assert [action.kind for action in faults.strike(GET)] == ["latency", "answer"]


@pytest.mark.requirement("AS29")
def test_after_is_counted_by_matching_requests_only() -> None:
    faults = Faults()
    fault = faults.add(Match(name="a"), reset(), after=1, times=1)
    other = Subject("get", "", "secrets", "", "n", "b", "joe")
    hits = [len(faults.strike(subject)) for subject in (other, GET, other, GET, GET)]
    assert hits == [0, 0, 0, 1, 0]
    assert fault.exhausted


@pytest.mark.requirement("AS29")
def test_the_same_seed_gives_the_same_draws() -> None:
    def run(seed: int) -> list[int]:
        faults = Faults(seed)
        faults.add(Match(), reset(), probability=0.5)
        return [len(faults.strike(GET)) for _ in range(50)]

    assert run(3) == run(3)
    assert run(3) != run(4)
    assert 10 < sum(run(3)) < 40
