"""Which occurrences become Events, and which only move the count of one: a pure data structure.

It is asked with the time and touches neither clock nor network, so every rule can be tested in isolation.

* The same thing happening again within `SERIES_SECONDS` continues a series: one Event, whose count and
  time of last observation move, written at most every `SERIES_WRITE_SECONDS`.
* More than `DIFFERENT_NOTES` notes about one object for one reason within `NOTES_SECONDS`: the rest is one
  series.
* New Events about one object are limited to a burst of `BURST` and then one per `REFILL_SECONDS`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from cachetools import LRUCache

__all__ = [
    "BURST",
    "COMBINED_PREFIX",
    "DIFFERENT_NOTES",
    "MAX_ENTRIES",
    "NOTES_SECONDS",
    "REFILL_SECONDS",
    "SERIES_SECONDS",
    "SERIES_WRITE_SECONDS",
    "Correlator",
    "Decision",
    "Occurrence",
    "Reference",
    "Series",
]

SERIES_SECONDS: Final = 360.0
SERIES_WRITE_SECONDS: Final = 30.0
DIFFERENT_NOTES: Final = 10
NOTES_SECONDS: Final = 600.0
BURST: Final = 25
REFILL_SECONDS: Final = 300.0
MAX_ENTRIES: Final = 4096
COMBINED_PREFIX: Final = "(combined from similar events): "


class Reference(NamedTuple):
    """The object that an event is about, or related to."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened: what an Event will say, before it is one."""

    type: str
    reason: str
    action: str
    note: str
    controller: str
    instance: str
    regarding: Reference
    related: Reference | None
    time: datetime
    important: bool = False


_Key: TypeAlias = tuple[str, str, str, str, str, Reference, Reference | None, str | None]


@dataclass(slots=True)
class Series:
    """One Event in the cluster and how often its occurrence has been observed.

    Args:
        occurrence: the first one, with the note as written.
        count: observations, the first one included.
        last: when the last observation happened, as wall time.
        name, namespace: of the Event object; set by whoever creates it.
        written: count in the cluster; less than `count` while an update is outstanding.
    """

    occurrence: Occurrence
    count: int = 1
    last: datetime = field(default=datetime.min)
    name: str = ""
    namespace: str = ""
    written: int = 0
    seen_at: float = 0.0
    updated_at: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about an occurrence.

    Args:
        create: a new Event to create.
        updates: series to write now, also some that the bounded state has no room for any more.
        dropped: why nothing will be written of this occurrence, else empty.
    """

    create: Series | None = None
    updates: tuple[Series, ...] = ()
    dropped: str = ""


class Correlator:
    """Keeps the series, the notes and the budgets; not thread-safe. Times are monotonic seconds."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._series: OrderedDict[_Key, Series] = OrderedDict()  # least recently observed first
        self._outstanding: dict[_Key, float] = {}  # when a series is to be written
        self._notes: LRUCache[tuple[str, str, Reference, str, str], OrderedDict[str, float]]
        self._notes = LRUCache(max_entries)
        self._budgets: LRUCache[tuple[str, str, Reference], tuple[float, float]] = LRUCache(max_entries)

    def observe(self, occurrence: Occurrence, now: float) -> Decision:
        """Take note of an occurrence and say what follows from it."""
        key = _key(occurrence, occurrence.note)
        continued = self._continue(key, occurrence, now)
        if continued is not None:
            self._remember_note(occurrence, now)
            return Decision(updates=continued)
        if self._remember_note(occurrence, now) >= DIFFERENT_NOTES:
            key = _key(occurrence, None)
            continued = self._continue(key, occurrence, now)
            if continued is not None:
                return Decision(updates=continued)
            occurrence = _combined(occurrence)
        if not self._spend(occurrence, now) and not occurrence.important:
            return Decision(dropped="rate_limited")
        series = Series(occurrence, last=occurrence.time, written=1, seen_at=now)
        evicted = self._store(key, series)
        return Decision(create=series, updates=evicted)

    def due(self, now: float) -> list[Series]:
        """The series to write now."""
        keys = [key for key, at in self._outstanding.items() if at <= now]
        return [self._write(key, now) for key in keys]

    def next_due(self) -> float | None:
        """When the next series is to be written; None when all are."""
        return min(self._outstanding.values(), default=None)

    def outstanding(self, now: float) -> list[Series]:
        """Every series whose last observations have not been written, to be written now."""
        return [self._write(key, now) for key in list(self._outstanding)]

    def _continue(self, key: _Key, occurrence: Occurrence, now: float) -> tuple[Series, ...] | None:
        series = self._series.get(key)
        if series is None or now - series.seen_at > SERIES_SECONDS:
            return None
        series.count += 1
        series.last = occurrence.time
        series.seen_at = now
        self._series.move_to_end(key)
        due = now if series.updated_at is None else series.updated_at + SERIES_WRITE_SECONDS
        if due <= now:
            return (self._write(key, now),)
        self._outstanding.setdefault(key, due)
        return ()

    def _write(self, key: _Key, now: float) -> Series:
        self._outstanding.pop(key, None)
        series = self._series[key]
        series.updated_at = now
        return series

    def _store(self, key: _Key, series: Series) -> tuple[Series, ...]:
        evicted: list[Series] = []
        for old_key in (key, None):
            if old_key is None:
                if len(self._series) < self._max_entries:
                    continue
                old_key = next(iter(self._series))
            old = self._series.pop(old_key, None)
            if old is not None and self._outstanding.pop(old_key, None) is not None:
                evicted.append(old)
        self._series[key] = series
        return tuple(evicted)

    def _remember_note(self, occurrence: Occurrence, now: float) -> int:
        """Record the note; how many others there were within the window."""
        source = (
            occurrence.controller,
            occurrence.instance,
            occurrence.regarding,
            occurrence.type,
            occurrence.reason,
        )
        notes = self._notes.get(source)
        if notes is None:
            notes = self._notes[source] = OrderedDict()
        notes.pop(occurrence.note, None)
        while notes and now - next(iter(notes.values())) > NOTES_SECONDS:
            notes.popitem(last=False)
        others = len(notes)
        notes[occurrence.note] = now
        if len(notes) > DIFFERENT_NOTES + 1:
            notes.popitem(last=False)
        return others

    def _spend(self, occurrence: Occurrence, now: float) -> bool:
        """Take one new Event from the object's budget; False when there is none left."""
        source = (occurrence.controller, occurrence.instance, occurrence.regarding)
        tokens, since = self._budgets.get(source, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - since) / REFILL_SECONDS)
        enough = tokens >= 1.0
        self._budgets[source] = (max(0.0, tokens - 1.0) if enough else tokens, now)
        return enough


def _key(occurrence: Occurrence, note: str | None) -> _Key:
    return (
        occurrence.type,
        occurrence.action,
        occurrence.reason,
        occurrence.controller,
        occurrence.instance,
        occurrence.regarding,
        occurrence.related,
        note,
    )


def _combined(occurrence: Occurrence) -> Occurrence:
    return Occurrence(
        type=occurrence.type,
        reason=occurrence.reason,
        action=occurrence.action,
        note=COMBINED_PREFIX + occurrence.note,
        controller=occurrence.controller,
        instance=occurrence.instance,
        regarding=occurrence.regarding,
        related=occurrence.related,
        time=occurrence.time,
        important=occurrence.important,
    )
