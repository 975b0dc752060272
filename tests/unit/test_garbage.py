"""Garbage collection on a store: who goes, who stays, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.object_store import MemoryStore

from captf_runtime.objects import CLUSTER_ROLE, CONFIG_MAP, JOB, NAMESPACE, POD, SECRET, Kind
from captf_runtime.testing.controllers import GarbageCollector

pytestmark = pytest.mark.requirement("AS21")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def collector(store: MemoryStore) -> Iterator[GarbageCollector]:
    collector = GarbageCollector(store)
    yield collector
    collector.stop()


def test_a_dependent_goes_after_its_only_owner(store: MemoryStore, collector: GarbageCollector) -> None:
    job = store.add(JOB, "job", "a")
    store.add(POD, "pod", "a", owners=[job])
    assert collector.step() is False
    store.remove(JOB, "job", "a")
    assert store.names(POD) == ["pod"]
    assert collector.step() is True
    assert store.names(POD) == []


def test_deletion_runs_down_a_chain(store: MemoryStore, collector: GarbageCollector) -> None:
    owner = store.add(CONFIG_MAP, "top", "a")
    job = store.add(JOB, "job", "a", owners=[owner])
    store.add(POD, "pod", "a", owners=[job])
    store.remove(CONFIG_MAP, "top", "a")
    collector.step()
    assert store.names(JOB) == store.names(POD) == []


def test_one_living_owner_keeps_the_dependent_and_the_dangling_reference_goes(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    first, second = store.add(CONFIG_MAP, "first", "a"), store.add(CONFIG_MAP, "second", "a")
    store.add(SECRET, "secret", "a", owners=[first, second])
    store.remove(CONFIG_MAP, "first", "a")
    collector.step()
    secret = store.get(SECRET, "a", "secret")
    assert secret is not None
    assert [reference["name"] for reference in secret["metadata"]["ownerReferences"]] == ["second"]
    store.remove(CONFIG_MAP, "second", "a")
    collector.step()
    assert store.names(SECRET) == []


def test_an_owner_of_the_same_name_but_another_uid_counts_as_absent(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    owner = store.add(CONFIG_MAP, "owner", "a")
    store.remove(CONFIG_MAP, "owner", "a")
    store.add(CONFIG_MAP, "owner", "a")
    store.add(SECRET, "late", "a", owners=[owner])
    collector.step()
    assert store.names(SECRET) == []


def test_an_owner_replaced_between_two_looks_leaves_its_dependents_behind(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    owner = store.add(CONFIG_MAP, "owner", "a")
    store.add(SECRET, "of-the-first", "a", owners=[owner])
    collector.step()
    store.remove(CONFIG_MAP, "owner", "a")
    second = store.add(CONFIG_MAP, "owner", "a")
    store.add(SECRET, "of-the-second", "a", owners=[second])
    assert collector.step() is True
    assert store.names(SECRET) == ["of-the-second"]


def test_an_owner_in_another_namespace_counts_as_absent(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    owner = store.add(CONFIG_MAP, "owner", "a")
    store.add(SECRET, "secret", "b", owners=[owner])
    collector.step()
    assert store.names(SECRET) == []


def test_a_cluster_scoped_owner_collects_namespaced_dependents(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    role = store.add(CLUSTER_ROLE, "role")
    store.add(SECRET, "secret", "b", owners=[role])
    collector.step()
    assert store.names(SECRET) == ["secret"]
    store.remove(CLUSTER_ROLE, "role")
    collector.step()
    assert store.names(SECRET) == []


def test_a_cluster_scoped_child_of_a_namespaced_owner_is_untouched(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    owner = store.add(CONFIG_MAP, "owner", "a")
    store.add(CLUSTER_ROLE, "role", owners=[owner])
    store.remove(CONFIG_MAP, "owner", "a")
    assert collector.step() is False
    assert store.names(CLUSTER_ROLE) == ["role"]


def test_an_owner_of_unknown_kind_protects_the_dependent(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    unknown = {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t", "uid": "u"}}
    store.add(SECRET, "secret", "a", owners=[unknown])
    assert collector.step() is False
    assert store.names(SECRET) == ["secret"]


def test_foreground_waits_for_blocking_dependents_only(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    owner = store.add(CONFIG_MAP, "owner", "a")
    store.add(SECRET, "blocking", "a", owners=[owner], block=True, finalizers=["x.io/hold"])
    store.add(SECRET, "other", "a", owners=[owner], finalizers=["x.io/hold"])
    store.remove(CONFIG_MAP, "owner", "a", policy="Foreground")
    collector.step()
    for name in ("blocking", "other"):
        secret = store.get(SECRET, "a", name)
        assert secret is not None
        assert secret["metadata"]["deletionTimestamp"], "dependents are deleted while the owner waits"
    assert store.names(CONFIG_MAP) == ["owner"]

    def release(obj: dict[str, object]) -> bool:
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        metadata["finalizers"] = []
        return True

    store.update(SECRET, "a", "blocking", release)
    collector.step()
    assert store.names(SECRET) == ["other"]
    assert store.names(CONFIG_MAP) == []


def test_foreground_goes_on_when_a_dependent_stops_blocking(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    owner = store.add(CONFIG_MAP, "owner", "a")
    store.add(SECRET, "blocking", "a", owners=[owner], block=True, finalizers=["x.io/hold"])
    store.remove(CONFIG_MAP, "owner", "a", policy="Foreground")
    collector.step()
    assert store.names(CONFIG_MAP) == ["owner"]

    def unblock(obj: dict[str, object]) -> bool:
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        metadata["ownerReferences"][0]["blockOwnerDeletion"] = False
        return True

    store.update(SECRET, "a", "blocking", unblock)
    collector.step()
    assert store.names(CONFIG_MAP) == []


def test_foreground_reaches_the_dependents_of_dependents_first(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    owner = store.add(CONFIG_MAP, "owner", "a")
    job = store.add(JOB, "job", "a", owners=[owner], block=True)
    store.add(POD, "pod", "a", owners=[job], block=True, finalizers=["x.io/hold"])
    store.remove(CONFIG_MAP, "owner", "a", policy="Foreground")
    collector.step()
    assert (store.names(CONFIG_MAP), store.names(JOB), store.names(POD)) == (["owner"], ["job"], ["pod"])
    store.update(POD, "a", "pod", lambda obj: obj["metadata"].update(finalizers=[]) is None)
    collector.step()
    assert (store.names(CONFIG_MAP), store.names(JOB), store.names(POD)) == ([], [], [])


@pytest.mark.parametrize("block", [False, True])
def test_foreground_takes_the_dependents_along_that_were_never_looked_at(
    store: MemoryStore, collector: GarbageCollector, block: bool
) -> None:
    """Owner, dependent and deletion in one look; an owner whose finalizer holds it stays, its dependent goes."""
    owner = store.add(CONFIG_MAP, "owner", "a", finalizers=["x.io/hold"])
    store.add(SECRET, "secret", "a", owners=[owner], block=block)
    store.remove(CONFIG_MAP, "owner", "a", policy="Foreground")
    collector.step()
    assert (store.names(CONFIG_MAP), store.names(SECRET)) == (["owner"], [])


def test_foreground_of_owners_that_wait_for_each_other_ends(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    first = store.add(CONFIG_MAP, "first", "a")
    second = store.add(SECRET, "second", "a", owners=[first], block=True)

    def own(obj: dict[str, object]) -> bool:
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        metadata["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "name": "second",
                "uid": second["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
        ]
        return True

    store.update(CONFIG_MAP, "a", "first", own)
    collector.step()
    store.remove(CONFIG_MAP, "first", "a", policy="Foreground")
    collector.step()
    assert store.names(CONFIG_MAP) == store.names(SECRET) == []


def test_orphan_strips_the_references_and_lets_the_owner_go(
    store: MemoryStore, collector: GarbageCollector
) -> None:
    other = store.add(CONFIG_MAP, "other", "a")
    owner = store.add(CONFIG_MAP, "owner", "a")
    store.add(SECRET, "alone", "a", owners=[owner])
    store.add(SECRET, "shared", "a", owners=[owner, other])
    store.remove(CONFIG_MAP, "owner", "a", policy="Orphan")
    collector.step()
    assert store.names(CONFIG_MAP) == ["other"]
    assert store.names(SECRET) == ["alone", "shared"]
    alone, shared = store.get(SECRET, "a", "alone"), store.get(SECRET, "a", "shared")
    assert alone is not None
    assert shared is not None
    assert "ownerReferences" not in alone["metadata"]
    assert [reference["name"] for reference in shared["metadata"]["ownerReferences"]] == ["other"]


def test_objects_from_before_the_start_are_considered(store: MemoryStore) -> None:
    owner = store.add(CONFIG_MAP, "owner", "a")
    store.add(SECRET, "secret", "a", owners=[owner])
    store.remove(CONFIG_MAP, "owner", "a")
    collector = GarbageCollector(store)
    collector.step()
    collector.stop()
    assert store.names(SECRET) == []


def test_kinds_that_appear_later_are_followed(store: MemoryStore, collector: GarbageCollector) -> None:
    thing = Kind("x.io", "v1", "Thing", "things")
    store._kinds.append(thing)
    owner = store.add(thing, "owner", "a")
    store.add(SECRET, "secret", "a", owners=[owner])
    store.remove(thing, "owner", "a")
    collector.step()
    assert store.names(SECRET) == []


@given(
    edges=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans()), max_size=20),
    deletions=st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(["Background", "Foreground"])), max_size=4
    ),
)
def test_what_stays_has_a_living_owner_or_never_had_one(
    edges: list[tuple[int, int, bool]], deletions: list[tuple[int, str]]
) -> None:
    """For any graph (cycles too) the collector comes to rest, and with a state that the rules allow."""
    store = MemoryStore()
    collector = GarbageCollector(store)
    objects = [store.add(SECRET, f"s{index}", "a") for index in range(8)]
    owned: set[int] = set()
    for child, parent, block in edges:
        if child == parent:
            continue
        owned.add(child)

        def own(obj: dict[str, object], parent: int = parent, block: bool = block) -> bool:
            metadata = obj["metadata"]
            assert isinstance(metadata, dict)
            references = metadata.setdefault("ownerReferences", [])
            references.append(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "name": f"s{parent}",
                    "uid": objects[parent]["metadata"]["uid"],
                    "blockOwnerDeletion": block,
                }
            )
            return True

        store.update(SECRET, "a", f"s{child}", own)
    for index, policy in deletions:
        if store.get(SECRET, "a", f"s{index}") is not None:
            store.remove(SECRET, f"s{index}", "a", policy=policy)
        collector.step()
    collector.step()
    deleted = {index for index, _ in deletions}
    living = {obj["metadata"]["uid"] for obj in store.items(SECRET, "a")}
    for obj in store.items(SECRET, "a"):
        assert not obj["metadata"].get("deletionTimestamp")
        assert all(reference["uid"] in living for reference in obj["metadata"].get("ownerReferences", ()))
        assert int(obj["metadata"]["name"][1:]) not in deleted
    assert all(store.get(SECRET, "a", f"s{index}") for index in range(8) if index not in owned | deleted)
    collector.stop()


def test_background_collects_without_being_told(store: MemoryStore) -> None:
    import threading

    collector = GarbageCollector(store)
    collector.start()
    gone = threading.Event()
    store.subscribe(lambda kind, before, after: gone.set() if kind == POD and after is None else None)
    job = store.add(JOB, "job", "a")
    store.add(POD, "pod", "a", owners=[job])
    store.remove(JOB, "job", "a")
    assert gone.wait(30)
    collector.stop()
    assert NAMESPACE not in {kind for kind, _, _ in store._objects}
