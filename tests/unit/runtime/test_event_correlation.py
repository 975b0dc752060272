from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from captf_runtime.events.correlation import COMBINED_PREFIX, Correlator, Decision, Occurrence, Reference
from captf_runtime.events.rendering import core_event, cut, event_name, events_v1_event

START = datetime(2026, 1, 1, tzinfo=UTC)
POD = Reference("v1", "Pod", "ns", "p", "uid-p")


class Feed:
    """Feeds occurrences to a correlator at times of the test's choice."""

    def __init__(self, **options: Any) -> None:
        self.correlator = Correlator(**options)
        self.now = 1000.0

    def __call__(self, note: str = "it happened", after: float = 0.0, **fields: Any) -> Decision:
        self.now += after
        base: dict[str, Any] = {
            "type": "Normal",
            "reason": "Happened",
            "action": "Happen",
            "controller": "machines",
            "instance": "host_1",
            "regarding": POD,
            "related": None,
        }
        occurrence = Occurrence(
            **{**base, **fields}, note=note, time=START + timedelta(seconds=self.now - 1000.0)
        )
        return self.correlator.observe(occurrence, self.now)


@pytest.mark.requirement("EV3")
def test_the_first_is_single_and_the_second_begins_a_series() -> None:
    feed = Feed()
    first = feed()
    assert first.create is not None
    assert "series" not in events_v1_event(first.create)
    second = feed(after=5)
    assert second.create is None
    assert [series.count for series in second.updates] == [2]
    assert second.updates[0] is first.create
    assert events_v1_event(second.updates[0])["series"] == {
        "count": 2,
        "lastObservedTime": "2026-01-01T00:00:05.000000Z",
    }


@pytest.mark.requirement("EV3")
@pytest.mark.parametrize(
    "other",
    [
        {"type": "Warning"},
        {"action": "Other"},
        {"reason": "Other"},
        {"controller": "other"},
        {"instance": "host_2"},
        {"regarding": POD._replace(uid="uid-q")},
        {"related": POD},
        {"note": "something else happened"},
    ],
)
def test_whatever_differs_is_another_event(other: dict[str, Any]) -> None:
    feed = Feed()
    assert feed().create is not None
    assert feed(**other).create is not None


@pytest.mark.requirement("EV3")
def test_a_series_is_written_at_most_every_thirty_seconds() -> None:
    feed = Feed()
    feed()
    written = []
    for _ in range(120):
        decision = feed(after=1)
        written += [(feed.now, series.count) for series in decision.updates]
        written += [(feed.now, series.count) for series in feed.correlator.due(feed.now)]
    assert written == [(1001.0, 2), (1031.0, 32), (1061.0, 62), (1091.0, 92)]
    # The rest is written when its time comes, also if nothing more happens.
    assert feed.correlator.next_due() == 1121.0
    assert [series.count for series in feed.correlator.due(1121.0)] == [121]
    assert feed.correlator.next_due() is None


@pytest.mark.requirement("EV3")
def test_six_minutes_of_silence_close_a_series() -> None:
    feed = Feed()
    first = feed().create
    assert feed(after=360).updates == (first,)
    again = feed(after=360.1).create
    assert again is not None
    assert again is not first
    assert again.count == 1


@pytest.mark.requirement("EV3")
def test_a_series_that_goes_on_stays_open() -> None:
    feed = Feed()
    first = feed().create
    for _ in range(5):
        assert feed(after=350).updates == (first,)
    assert first is not None
    assert first.count == 6


@pytest.mark.requirement("EV7")
def test_what_was_seen_last_is_forgotten_last() -> None:
    feed = Feed(max_entries=2)
    first = feed("a").create
    feed("b")
    assert feed("a", after=1).updates == (first,)
    feed("c")
    assert feed("a", after=60).updates == (first,)
    assert feed("b").create is not None


@pytest.mark.requirement("EV3")
def test_what_is_outstanding_is_written_at_the_end() -> None:
    feed = Feed()
    feed()
    feed(after=1)
    feed(after=1)
    assert [series.count for series in feed.correlator.outstanding(feed.now)] == [3]
    assert feed.correlator.outstanding(feed.now) == []


@pytest.mark.requirement("EV4")
def test_many_different_notes_become_one_series() -> None:
    feed = Feed()
    for number in range(10):
        assert feed(f"note {number}", after=1).create is not None
    eleventh = feed("note 10", after=1).create
    assert eleventh is not None
    assert eleventh.occurrence.note == COMBINED_PREFIX + "note 10"
    for number in range(11, 30):
        decision = feed(f"note {number}", after=1)
        assert decision.create is None
    assert eleventh.count == 20
    # Neither other reasons nor other objects nor notes that have a series are affected.
    assert feed("note x", reason="Other").create is not None
    assert feed("note x", regarding=POD._replace(name="q")).create is not None


@pytest.mark.requirement("EV4")
def test_notes_count_for_ten_minutes() -> None:
    feed = Feed()
    for number in range(10):
        feed(f"note {number}")
    feed.now += 601
    later = feed("note 10").create
    assert later is not None
    assert later.occurrence.note == "note 10"


def is_combined(decision: Decision) -> bool:
    return decision.create is None or decision.create.occurrence.note.startswith(COMBINED_PREFIX)


@pytest.mark.requirement("EV4")
def test_only_notes_older_than_ten_minutes_count_no_more() -> None:
    feed = Feed()
    feed("old")
    for number in range(9):
        assert not is_combined(feed(f"n{number}", after=500 if number == 0 else 0))
    assert not is_combined(feed("tenth", after=101))  # the first has just gone
    assert is_combined(feed("eleventh"))


@pytest.mark.requirement("EV4")
def test_the_latest_notes_are_the_ones_that_count() -> None:
    feed = Feed()
    for number in range(11):
        feed(f"early {number}")
    for number in range(11):
        feed(f"late {number}", after=300 if number == 0 else 0)
    assert is_combined(feed("another", after=301))


@pytest.mark.requirement("EV4")
def test_a_note_that_comes_again_counts_from_then_on_and_holds_no_other() -> None:
    feed = Feed()
    feed("again")
    for number in range(9):
        feed(f"n{number}")
    feed("again", after=300)
    feed("again", after=295)
    assert not is_combined(feed("after ten minutes", after=7))  # of the others none counts
    feed = Feed()
    for after in (0, 300, 290):
        feed("again", after=after)
    for number in range(9):
        assert not is_combined(feed(f"n{number}", after=12 if number == 0 else 0))
    assert is_combined(feed("eleventh"))


@pytest.mark.requirement("EV5")
def test_new_events_of_an_object_are_limited() -> None:
    feed = Feed()
    created = [feed(reason=f"Reason{number}").create is not None for number in range(30)]
    assert created == [True] * 25 + [False] * 5
    assert feed(reason="Reason29").dropped == "rate_limited"
    assert feed(reason="Reason3").updates != ()  # a series goes on for free
    assert feed(reason="Important", important=True).create is not None
    assert feed(reason="Elsewhere", regarding=POD._replace(name="q")).create is not None
    assert feed(reason="Later", after=299).dropped == "rate_limited"
    assert feed(reason="Later", after=1).create is not None
    assert feed(reason="Later2").dropped == "rate_limited"


@pytest.mark.requirement("EV5")
def test_what_was_dropped_is_not_taken_for_written() -> None:
    feed = Feed()
    for number in range(25):
        feed(reason=f"Reason{number}")
    assert feed(reason="Dropped").dropped == "rate_limited"
    assert feed(reason="Dropped").updates == ()


@pytest.mark.requirement("EV7")
def test_the_memory_is_bounded_and_nothing_outstanding_is_forgotten() -> None:
    feed = Feed(max_entries=10)
    feed("busy", reason="Busy")
    feed("busy", reason="Busy")
    feed("busy", reason="Busy")
    evicted = []
    for number in range(50):
        evicted += feed(regarding=POD._replace(name=f"p{number}")).updates
        assert len(feed.correlator._series) <= 10
        assert len(feed.correlator._notes) <= 10
        assert len(feed.correlator._budgets) <= 10
    assert [(series.occurrence.reason, series.count) for series in evicted] == [("Busy", 3)]


@pytest.mark.requirement("EV1")
def test_forms() -> None:
    series = Feed()(related=POD._replace(kind="Job", api_version="batch/v1", name="j", uid="")).create
    assert series is not None
    series.name, series.namespace = "p.abc", "ns"
    assert events_v1_event(series) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "p.abc", "namespace": "ns"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "machines",
        "reportingInstance": "host_1",
        "action": "Happen",
        "reason": "Happened",
        "type": "Normal",
        "note": "it happened",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid-p"},
        "related": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": "j"},
    }
    core = core_event(series)
    assert core["apiVersion"] == "v1"
    assert core["message"] == "it happened"
    assert core["involvedObject"] == events_v1_event(series)["regarding"]
    assert (core["reportingComponent"], core["reportingInstance"]) == ("machines", "host_1")
    assert core["eventTime"] == "2026-01-01T00:00:00.000000Z"


@pytest.mark.requirement("EV1")
def test_notes_are_cut_on_a_character_border() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("äöü", 4) == "äö"
    assert cut("äöü", 5) == "äö"
    long = cut("ä" * 1000, 1024)
    assert len(long.encode()) == 1024
    assert cut("🙂" * 400, 1023).encode().decode() == "🙂" * 255


def test_names_fit() -> None:
    assert event_name("p", "0123456789abcdef") == "p.0123456789abcdef"
    name = event_name("a" * 235 + "-" + "b" * 20, "0123456789abcdef")
    assert len(name) <= 253
    assert name.endswith("a.0123456789abcdef")


@pytest.mark.requirement("EV7")
def test_notes_are_remembered_no_further_than_they_count() -> None:
    feed = Feed()
    for number in range(1000):
        feed(note=f"note {number}")
    assert [len(notes) for notes in feed.correlator._notes.values()] == [11]
