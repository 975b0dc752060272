from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cache.objects import stored

from captf_runtime.cache import Added, Deleted, Event, StoredObject, Updated
from captf_runtime.cache.delivery import Delivery
from captf_runtime.cache.store import Change
from captf_runtime.objects import ObjectKey


class Bench:
    """A delivery without its thread: `run` delivers what waits, in this thread."""

    def __init__(self) -> None:
        self.now: dict[ObjectKey, StoredObject] = {}
        self.failures: list[str] = []
        self.synced = 0
        self.delivery = Delivery(
            lookup=self.now.get,
            on_failure=lambda name, error: self.failures.append(name),
            on_synced=self._note_synced,
        )
        self.seen: list[Event] = []

    def _note_synced(self) -> None:
        self.synced += 1

    def handler(self, *, listed: bool = True) -> Any:
        return self.delivery.add(
            self.seen.append, "seen", lambda: list(self.now.values()) if listed else None
        )

    def change(self, old: StoredObject | None, new: StoredObject | None, **options: Any) -> None:
        key = Change(old, new).key
        if new is None:
            self.now.pop(key, None)
        else:
            self.now[key] = new
        self.delivery.publish(lambda: [Change(old, new)], **options)

    def run(self) -> list[Event]:
        """Deliver everything and return what was delivered."""
        self.seen.clear()
        while (taken := self.take()) is not None:
            registration, events, initial = taken
            for event in events:
                self.delivery._call(registration, event)
            if initial:
                self.delivery._handled_initial(registration)
        return list(self.seen)

    def take(self) -> Any:
        with self.delivery._ready:
            return self.delivery._take()


A1, A2, A3 = stored("a", 1), stored("a", 2), stored("a", 3)
B1 = stored("a", 4, uid="other")
B2 = stored("a", 5, uid="other")


@pytest.mark.requirement("IN4", "IN6")
@pytest.mark.parametrize(
    ("changes", "events"),
    [
        ([(None, A1)], [Added(A1)]),
        ([(A1, A2), (A2, A3)], [Updated(A1, A3)]),
        ([(None, A1), (A1, A2)], [Added(A2)]),
        ([(None, A1), (A1, None)], [Deleted(A1)]),
        ([(A1, A2), (A2, None)], [Deleted(A2)]),
        ([(A1, None), (None, B1)], [Deleted(A1), Added(B1)]),
        ([(A1, None), (None, B1), (B1, B2)], [Deleted(A1), Added(B2)]),
        ([(A1, None), (None, B1), (B1, None)], [Deleted(A1), Deleted(B1)]),
        ([(A1, B1)], [Deleted(A1, final_unknown=True), Added(B1)]),
        ([(A1, A2), (A2, B1), (B1, B2)], [Deleted(A2, final_unknown=True), Added(B2)]),
    ],
)
def test_what_waits_is_merged_per_key(
    changes: list[tuple[StoredObject | None, StoredObject | None]], events: list[Event]
) -> None:
    bench = Bench()
    bench.handler()
    for old, new in changes:
        bench.change(old, new)
    assert bench.delivery.pending == 1
    assert bench.run() == events


@pytest.mark.requirement("IN6")
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "delete", "recreate", "deliver"])),
        max_size=40,
    )
)
def test_a_handler_s_view_follows_the_store_and_no_deletion_is_lost(steps: list[tuple[str, str]]) -> None:
    bench = Bench()
    bench.handler()
    view: dict[str, StoredObject] = {}
    deleted: list[str] = []
    uids: list[str] = []

    def deliver() -> None:
        for event in bench.run():
            name = event.obj.header.name
            if isinstance(event, Deleted):
                deleted.append(event.obj.header.uid)
                view.pop(name, None)
            elif isinstance(event, Added):
                assert name not in view
                view[name] = event.obj
            else:
                assert view[name] is event.old
                view[name] = event.new

    for version, (name, step) in enumerate(steps, 1):
        key = ObjectKey("t", name)
        old = bench.now.get(key)
        if step == "put":
            bench.change(old, stored(name, version, uid=old.header.uid if old else f"u{version}"))
        elif step == "recreate":
            if old is not None:
                uids.append(old.header.uid)
            bench.change(old, stored(name, version, uid=f"u{version}"))
        elif step == "delete" and old is not None:
            uids.append(old.header.uid)
            bench.change(old, None)
        elif step == "deliver":
            deliver()
        assert bench.delivery.pending <= 3
    deliver()
    assert view == {key.name: obj for key, obj in bench.now.items()}
    assert sorted(deleted) == sorted(uids)


@pytest.mark.requirement("IN5")
def test_a_handler_has_synced_when_it_has_handled_its_first_list() -> None:
    bench = Bench()
    early = bench.handler(listed=False)
    assert not early.has_synced
    bench.delivery.publish_first(lambda: [Change(None, stored("a")), Change(None, stored("b"))])
    assert not early.has_synced
    assert bench.run() == [Added(event.obj, initial=True) for event in bench.seen]
    assert early.has_synced
    assert bench.synced == 1


@pytest.mark.requirement("IN5", "IN6")
@pytest.mark.parametrize("late", [False, True])
def test_what_changes_before_the_first_list_is_handled_is_merged_with_it(late: bool) -> None:
    bench = Bench()
    a, b, c, d = (stored(name) for name in "abcd")
    if late:
        bench.now = {obj.key: obj for obj in (a, b, c, d)}
    registration = bench.handler(listed=late)
    if not late:
        bench.delivery.publish_first(lambda: [Change(None, obj) for obj in (a, b, c, d)])
    changed, last = stored("a", 2), stored("b", 3)
    replaced = stored("c", 4, uid="other")
    bench.change(a, changed)
    bench.delivery.publish(lambda: [Change(b, None, last)])
    bench.change(c, replaced)
    assert bench.delivery.pending == 4
    assert not registration.has_synced
    assert bench.run() == [
        Added(d, initial=True),
        Added(changed, initial=True),
        Deleted(last),
        Deleted(c, final_unknown=True),
        Added(replaced),
    ]
    assert registration.has_synced
    assert bench.synced == 1


@pytest.mark.requirement("IN5")
def test_an_empty_first_list_syncs_at_once() -> None:
    bench = Bench()
    registration = bench.handler(listed=False)
    bench.delivery.publish_first(list)
    assert registration.has_synced


@pytest.mark.requirement("IN5")
def test_a_late_handler_first_sees_the_store_and_has_its_own_flag() -> None:
    bench = Bench()
    first = bench.handler(listed=False)
    bench.delivery.publish_first(list)
    bench.change(None, A1)
    bench.run()
    late: list[Event] = []
    registration = bench.delivery.add(late.append, "late", lambda: list(bench.now.values()))
    assert first.has_synced
    assert not registration.has_synced
    bench.change(A1, A2)
    assert bench.run() == [Updated(A1, A2)]
    assert late == [Added(A2, initial=True)]
    assert registration.has_synced


@pytest.mark.requirement("IN7", "IN5")
@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3)])
def test_a_handler_that_raises_is_told_and_the_next_event_proceeds(error: BaseException) -> None:
    bench = Bench()

    def bad(event: Event) -> None:
        raise error

    bench.delivery.add(bad, "bad", list)
    bench.handler()
    bench.change(None, A1)
    bench.change(None, stored("b"))
    assert len(bench.run()) == 2
    assert bench.failures == ["bad", "bad"]


@pytest.mark.requirement("IN8")
def test_a_resync_comes_after_everything_else_with_what_is_stored_then() -> None:
    bench = Bench()
    bench.handler()
    for obj in (A1, b := stored("b"), stored("c")):
        bench.change(None, obj)
    bench.run()
    assert bench.delivery.resync(bench.now.values())
    bench.change(A1, A2)
    bench.change(stored("c"), None)
    events = bench.run()
    assert events == [
        Updated(A1, A2),
        Deleted(events[1].obj),
        Updated(A2, A2, resync=True),
        Updated(b, b, resync=True),
    ]


@pytest.mark.requirement("IN8")
def test_resyncs_never_overlap_and_a_late_handler_takes_part_in_the_next() -> None:
    bench = Bench()
    bench.handler()
    bench.change(None, A1)
    bench.run()
    assert bench.delivery.resync([A1])
    late: list[Event] = []
    bench.delivery.add(late.append, "late", list)
    assert bench.delivery.resync([A1])
    assert not bench.delivery.resync([A1])
    assert bench.run() == [Updated(A1, A1, resync=True)]
    assert late == [Updated(A1, A1, resync=True)]


def test_a_removed_handler_gets_nothing_more() -> None:
    bench = Bench()
    registration = bench.handler()
    bench.change(None, A1)
    registration.remove()
    bench.change(A1, A2)
    assert bench.run() == []


@pytest.mark.requirement("IN6")
def test_a_slow_handler_delays_no_publishing() -> None:
    bench = Bench()
    entered, release = threading.Event(), threading.Event()

    def slow(event: Event) -> None:
        entered.set()
        release.wait(30)

    bench.delivery.add(slow, "slow", list)
    thread = threading.Thread(target=bench.delivery.run, args=(lambda: None, lambda: None))
    thread.start()
    bench.change(None, stored("first"))
    assert entered.wait(30)
    previous: StoredObject | None = None
    for version in range(1, 1000):
        obj = stored("a", version)
        bench.change(previous, obj)
        previous = obj
    assert bench.delivery.pending == 1
    bench.delivery.stop()
    release.set()
    thread.join(30)
    assert not thread.is_alive()


def test_publishing_wakes_the_thread() -> None:
    bench = Bench()
    got = threading.Event()
    done: list[Callable[[], object]] = [got.set]
    bench.delivery.add(lambda event: done[0](), "one", list)  # type: ignore[arg-type,return-value]
    thread = threading.Thread(target=bench.delivery.run, args=(lambda: None, lambda: None))
    thread.start()
    bench.change(None, A1)
    assert got.wait(30)
    bench.delivery.stop()
    thread.join(30)
    assert not thread.is_alive()
