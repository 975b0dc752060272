from __future__ import annotations

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.cache.objects import stored

from captf_runtime.cache import Header, Store, StoredObject
from captf_runtime.cache.store import Change


def by_label(header: Header) -> list[str]:
    return [header.labels["l"]] if "l" in header.labels else []


def everything(header: Header) -> list[str]:
    return ["all", *header.labels.values()]


class StoreMachine(RuleBasedStateMachine):
    """The store against a dictionary, with changes as a watch and as lists bring them."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.store.add_index("label", by_label)
        self.store.add_index("all", everything)
        self.model: dict[tuple[str, str], StoredObject] = {}
        self.version = 0

    def make(self, namespace: str, name: str, label: str, new_uid: bool) -> StoredObject:
        self.version += 1
        old = self.model.get((namespace, name))
        uid = f"u{self.version}" if new_uid or old is None else old.header.uid
        labels = {"l": label} if label else {}
        return stored(name, self.version, uid=uid, namespace=namespace, **labels)

    @rule(
        namespace=st.sampled_from("xy"),
        name=st.sampled_from("abc"),
        label=st.sampled_from(["", "1", "2"]),
        new_uid=st.booleans(),
    )
    def put(self, namespace: str, name: str, label: str, new_uid: bool) -> None:
        obj = self.make(namespace, name, label, new_uid)
        change = self.store.put(obj, str(self.version))
        assert change == Change(self.model.get((namespace, name)), obj)
        self.model[(namespace, name)] = obj

    @rule(namespace=st.sampled_from("xy"), name=st.sampled_from("abc"))
    def put_an_old_state(self, namespace: str, name: str) -> None:
        old = self.model.get((namespace, name))
        if old is not None:
            assert self.store.put(old) is None
            assert self.store.put(stored(name, 0, uid=old.header.uid, namespace=namespace)) is None

    @rule(namespace=st.sampled_from("xy"), name=st.sampled_from("abc"))
    def remove(self, namespace: str, name: str) -> None:
        old = self.model.pop((namespace, name), None)
        self.version += 1
        last = stored(name, self.version, uid=old.header.uid if old else "", namespace=namespace)
        change = self.store.remove(last, str(self.version))
        assert change == (None if old is None else Change(old, None, last))

    @rule(namespace=st.sampled_from("xy"), name=st.sampled_from("abc"))
    def remove_an_earlier_object_of_the_name(self, namespace: str, name: str) -> None:
        if (namespace, name) in self.model:
            assert self.store.remove(stored(name, 0, uid="earlier", namespace=namespace)) is None

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        fresh: dict[tuple[str, str], StoredObject] = {}
        for key in [(namespace, name) for namespace in "xy" for name in "abc"]:
            choice = data.draw(st.sampled_from(["gone", "same", "changed", "recreated"]))
            if choice == "same" and key in self.model:
                old = self.model[key].header
                fresh[key] = stored(
                    old.name, old.resource_version, uid=old.uid, namespace=old.namespace, **old.labels
                )
            elif choice in ("changed", "recreated"):
                fresh[key] = self.make(*key, "1", choice == "recreated")
        changes = self.store.replace(fresh.values(), str(self.version))
        expected = {}
        for key in {*fresh, *self.model}:
            old_obj, new_obj = self.model.get(key), fresh.get(key)
            if old_obj and new_obj and old_obj.header.resource_version == new_obj.header.resource_version:
                continue
            expected[key] = (old_obj, new_obj)
        assert {tuple(change.key): (change.old, change.new) for change in changes} == expected
        self.model = {key: self.model[key] if key not in expected else fresh[key] for key in fresh}

    @invariant()
    def reads_agree(self) -> None:
        ordered = [self.model[key] for key in sorted(self.model)]
        assert self.store.select() == ordered
        assert len(self.store) == len(ordered)
        for namespace in "xyz":
            assert self.store.select(namespace) == [o for o in ordered if o.header.namespace == namespace]
        for name, function in (("label", by_label), ("all", everything)):
            values = {value for obj in ordered for value in function(obj.header)}
            assert self.store.index_values(name) == values  # no empty bucket is left
            for value in values | {"none"}:
                found = self.store.select(index=(name, value))
                assert found == [obj for obj in ordered if value in function(obj.header)]


StoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestStore = pytest.mark.requirement("IN2", "IN4", "RD3")(StoreMachine.TestCase)


@pytest.mark.requirement("IN2")
@pytest.mark.parametrize("error", [RuntimeError("bad mood"), SystemExit(3)])
def test_an_index_function_that_raises_is_told_and_indexes_under_nothing(error: BaseException) -> None:
    told: list[tuple[str, str]] = []
    moods = iter([True, False, True])

    def moody(header: Header) -> list[str]:
        if not next(moods):
            raise error
        return ["v"]

    store = Store(on_index_failure=lambda name, header, error: told.append((name, header.name)))
    store.add_index("moody", moody)
    store.put(stored("a", 1))
    assert store.index_values("moody") == {"v"}
    store.put(stored("a", 2))
    assert store.index_values("moody") == set()
    assert told == [("moody", "a")]
    store.put(stored("a", 3))
    store.remove(stored("a", 4))
    assert store.index_values("moody") == set()


@pytest.mark.requirement("IN2")
def test_indexes_come_before_objects() -> None:
    store = Store()
    store.add_index("label", by_label)
    store.add_index("label", by_label)
    with pytest.raises(ValueError, match="another function"):
        store.add_index("label", everything)
    store.put(stored("a"))
    with pytest.raises(ValueError, match="before the informer starts"):
        store.add_index("all", everything)


@pytest.mark.requirement("IN2")
def test_readers_never_see_an_object_under_another_value_than_its_own() -> None:
    store = Store()
    store.add_index("label", by_label)
    store.put(stored("a", 1, l="0"))
    stop = threading.Event()
    wrong: list[str] = []

    def read() -> None:
        while not stop.is_set():
            for value in "01":
                wrong.extend(
                    obj.header.labels["l"]
                    for obj in store.select(index=("label", value))
                    if obj.header.labels["l"] != value
                )

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for version in range(2, 1500):
        store.put(stored("a", version, l=str(version % 2)))
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_versions_that_are_not_decimal_count_as_new() -> None:
    store = Store()
    store.put(stored("a", "x"))
    assert store.put(stored("a", "y")) is not None
    assert store.put(stored("a", "y")) is None
