"""The versioned store: one counter, a gapless history, the past as a list."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captf_runtime.testing.apiserver.storage import Change, Compacted, Exists, Missing, Stale, Store


def obj(name: str, **content: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **content}


def test_versions_come_from_one_counter_over_all_tables() -> None:
    store = Store()
    versions = [store.create(table, "n", "a", obj("a")).version for table in ("x", "y", "z")]
    assert versions == [2, 3, 4]
    assert store.revision == 4


def test_a_stored_object_is_not_shared_with_its_copy() -> None:
    store = Store()
    record = store.create("t", "n", "a", obj("a", data={"k": "v"}))
    record.copy()["data"]["k"] = "changed"
    assert record.object["data"] == {"k": "v"}


def test_equal_content_changes_nothing_but_one_is_not_true() -> None:
    store = Store()
    first = store.create("t", "n", "a", obj("a", data=1))
    assert store.replace("t", first, obj("a", data=1)) is first
    assert store.replace("t", first, obj("a", data=True)).version == 3


def test_writes_over_something_else_are_refused() -> None:
    store = Store()
    first = store.create("t", "n", "a", obj("a"))
    with pytest.raises(Exists):
        store.create("t", "n", "a", obj("a"))
    store.replace("t", first, obj("a", data=1))
    with pytest.raises(Stale):
        store.replace("t", first, obj("a", data=2))
    with pytest.raises(Stale):
        store.remove("t", first)
    current = store.get("t", "n", "a")
    assert current is not None
    store.remove("t", current)
    with pytest.raises(Missing):
        store.replace("t", current, obj("a"))


def test_lists_are_in_the_order_of_keys_as_texts() -> None:
    store = Store()
    for namespace, name in (("a", "z"), ("a-b", "a"), ("a", "b"), ("b", "a")):
        store.create("t", namespace, name, obj(name))
    assert [record.key for record in store.list("t")] == ["a-b/a", "a/b", "a/z", "b/a"]
    assert [record.key for record in store.list("t", "a")] == ["a/b", "a/z"]


def test_history_is_bounded_and_says_from_where_it_starts() -> None:
    store = Store(history_limit=3)
    for index in range(6):
        store.create("t", "", f"o{index}", obj(f"o{index}"))
    with store.lock:
        assert [change.version for change in store.changes_since("t", 4)] == [5, 6, 7]
        with pytest.raises(Compacted) as gone:
            store.changes_since("t", 3)
    assert gone.value.oldest == 4
    assert store.compact() == 7
    with pytest.raises(Compacted):
        store.list("t", revision=6)


def test_history_is_bounded_in_bytes_over_all_tables_and_the_oldest_goes_first() -> None:
    size = len(Store().create("t", "", "o0", obj("o0", data="x" * 100)).raw)
    store = Store(history_bytes=3 * size)
    for index in range(3):
        store.create("busy", "", f"o{index}", obj(f"o{index}", data="x" * 100))
    store.create("rare", "", "o3", obj("o3", data="x" * 100))
    with store.lock:
        assert [change.version for change in store.changes_since("busy", 2)] == [3, 4]
        assert [change.version for change in store.changes_since("rare", 1)] == [5]
        with pytest.raises(Compacted):
            store.changes_since("busy", 1)
        store.create("busy", "", "big", obj("big", data="x" * 1000))
        with pytest.raises(Compacted):
            store.changes_since("busy", 5)
        with pytest.raises(Compacted):
            store.changes_since("rare", 4)
        assert list(store.changes_since("busy", 6)) == []
    assert [record.name for record in store.list("busy")] == ["big", "o0", "o1", "o2"]


def test_history_takes_hardly_more_memory_than_its_json() -> None:
    """An object decoded takes ten times its JSON and more: 10,000 changes would be gigabytes."""
    store = Store()
    data = {f"key-{index}": {"value": index} for index in range(100)}
    current = store.create("t", "", "a", obj("a", data={**data, "write": 0}))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for write in range(1, 201):
            changed = current.copy()
            changed["data"]["write"] = write
            current = store.replace("t", current, changed)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    with store.lock:
        changes = list(store.changes_since("t", 2))
    written = sum(len(change.record.raw) for change in changes)
    assert len(changes) == 200
    assert after - before < 1.5 * written + 100_000
    assert [change.record.object["data"]["write"] for change in changes] == list(range(1, 201))
    assert [change.previous.object["data"]["write"] for change in changes if change.previous] == [*range(200)]


class Listener:
    def __init__(self) -> None:
        self.changes: list[Change] = []

    def notify(self, change: Change) -> None:
        self.changes.append(change)


def test_listeners_see_every_change_once_and_in_order_whoever_writes() -> None:
    store, listener = Store(), Listener()
    store.subscribe("t", listener)

    def write(worker: int) -> None:
        for index in range(50):
            record = store.create("t", "", f"w{worker}-{index}", obj("x"))
            store.remove("t", record)

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    versions = [change.version for change in listener.changes]
    assert versions == list(range(2, 402))
    store.unsubscribe("t", listener)
    store.create("t", "", "late", obj("late"))
    assert len(listener.changes) == 400


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "n/a", "n/b"]), st.sampled_from(["put", "delete"]), st.integers(0, 2)
    ),
    max_size=25,
)


def _state(store: Store, revision: int | None = None) -> dict[str, Any]:
    return {record.key: record.object for record in store.list("t", revision=revision)}


def _apply(store: Store, key: str, operation: str, value: int) -> None:
    namespace, _, name = key.rpartition("/")
    present = store.get("t", namespace, name)
    if operation == "put" and present is None:
        store.create("t", namespace, name, obj(name, data=value))
    elif operation == "put" and present is not None:
        store.replace("t", present, obj(name, data=value))
    elif present is not None:
        store.remove("t", present)


@settings(deadline=None)
@given(OPERATIONS)
def test_every_past_state_can_be_listed(operations: list[tuple[str, str, int]]) -> None:
    store = Store()
    states = {store.revision: _state(store)}
    for operation in operations:
        _apply(store, *operation)
        states[store.revision] = _state(store)
    for revision, state in states.items():
        assert _state(store, revision) == state


@settings(deadline=None)
@given(OPERATIONS, OPERATIONS)
def test_restoring_a_snapshot_brings_its_content_back(
    before: list[tuple[str, str, int]], after: list[tuple[str, str, int]]
) -> None:
    def content(store: Store) -> dict[str, Any]:
        return {key: found.get("data") for key, found in _state(store).items()}

    store = Store()
    for operation in before:
        _apply(store, *operation)
    snapshot, expected = store.snapshot(), content(store)
    for operation in after:
        _apply(store, *operation)
    revision = store.revision
    store.restore(snapshot)
    assert content(store) == expected
    assert store.revision >= revision
