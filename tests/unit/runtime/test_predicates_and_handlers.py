from __future__ import annotations

from typing import Any

import pytest
from tests.unit.runtime.fakes import stored

from captf_runtime.cache import Added, Deleted, Event, StoredObject, Updated
from captf_runtime.controller import (
    Predicate,
    Request,
    all_of,
    annotations_changed,
    any_of,
    deleting_changed,
    enqueue_mapped,
    enqueue_own,
    enqueue_owner,
    generation_changed,
    label_selector,
    labels_changed,
    negate,
    resource_version_changed,
)
from captf_runtime.objects import JOB, NODE, SECRET, Kind

MACHINE = Kind("example.com", "v1", "Machine", "machines")


def machine(**metadata: Any) -> StoredObject:
    base = {"namespace": "ns", "name": "m", "uid": "u", "resourceVersion": "1", "generation": 1}
    return stored(MACHINE, {"metadata": {**base, **metadata}})


def update(old: dict[str, Any], new: dict[str, Any]) -> Updated:
    return Updated(machine(**old), machine(**{"resourceVersion": "2", **new}))


SAME = machine()
RESYNC = Updated(SAME, SAME, resync=True)
RELIST = Updated(machine(), machine())
TOUCHED = update({}, {})
NEW_SPEC = update({}, {"generation": 2})
DELETING = update({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"})
STILL_DELETING = update(
    {"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}
)
LABELLED = update({}, {"labels": {"a": "b"}})
UNLABELLED = update({"labels": {"a": "b"}}, {})
ANNOTATED = update({}, {"annotations": {"a": "b"}})
NO_GENERATION = update({"generation": None}, {"generation": None})


@pytest.mark.requirement("CT3")
@pytest.mark.parametrize(
    ("predicate", "event", "passes"),
    [
        (resource_version_changed(), TOUCHED, True),
        (resource_version_changed(), RELIST, False),
        (resource_version_changed(), RESYNC, False),
        (resource_version_changed(resyncs=True), RESYNC, True),
        (generation_changed(), TOUCHED, False),
        (generation_changed(), NEW_SPEC, True),
        (generation_changed(), DELETING, True),
        (generation_changed(), STILL_DELETING, False),
        (generation_changed(), NO_GENERATION, True),
        (generation_changed(), RESYNC, False),
        (generation_changed(resyncs=True), RESYNC, True),
        (labels_changed(), LABELLED, True),
        (labels_changed(), UNLABELLED, True),
        (labels_changed(), ANNOTATED, False),
        (labels_changed(), RESYNC, False),
        (annotations_changed(), ANNOTATED, True),
        (annotations_changed(), LABELLED, False),
        (annotations_changed(), RESYNC, False),
        (annotations_changed(), RELIST, False),
        (deleting_changed(), DELETING, True),
        (deleting_changed(), STILL_DELETING, False),
        (deleting_changed(), TOUCHED, False),
        (label_selector("a=b"), LABELLED, True),
        (label_selector("a=b"), UNLABELLED, True),
        (label_selector("a=b"), TOUCHED, False),
        (label_selector("a=b"), Added(machine(labels={"a": "b"})), True),
        (label_selector("a=b"), Deleted(machine(labels={"a": "c"})), False),
        (all_of(generation_changed(), labels_changed()), NEW_SPEC, False),
        (all_of(), TOUCHED, True),
        (any_of(generation_changed(), labels_changed()), NEW_SPEC, True),
        (any_of(), TOUCHED, False),
        (negate(generation_changed()), TOUCHED, True),
    ],
)
def test_predicates(predicate: Predicate, event: Event, passes: bool) -> None:
    assert predicate(event) is passes


@pytest.mark.requirement("CT3")
@pytest.mark.parametrize("event", [Added(SAME), Deleted(SAME)])
@pytest.mark.parametrize(
    "predicate",
    [
        resource_version_changed(),
        generation_changed(),
        labels_changed(),
        annotations_changed(),
        deleting_changed(),
    ],
)
def test_adds_and_deletes_pass_what_compares(predicate: Predicate, event: Event) -> None:
    assert predicate(event)


def test_an_unreadable_selector_is_refused() -> None:
    with pytest.raises(ValueError):
        label_selector("a in")


def owner(kind: str, name: str, *, group: str = "example.com", controller: bool = False) -> dict[str, Any]:
    reference: dict[str, Any] = {"apiVersion": f"{group}/v9", "kind": kind, "name": name, "uid": name}
    return {**reference, "controller": True} if controller else reference


def secret(*owners: dict[str, Any]) -> StoredObject:
    return stored(SECRET, {"metadata": {"namespace": "ns", "name": "s", "ownerReferences": list(owners)}})


@pytest.mark.requirement("CT2")
def test_own_object() -> None:
    handler = enqueue_own()
    for event in (Added(SAME), TOUCHED, Deleted(SAME, final_unknown=True)):
        assert list(handler(event)) == [Request("ns", "m")]


@pytest.mark.requirement("CT2")
def test_owner_matches_group_and_kind_in_any_version() -> None:
    event = Added(
        secret(
            owner("Machine", "mine", controller=True),
            owner("Machine", "another"),
            owner("Machine", "foreign", group="other.com"),
            owner("Cluster", "c"),
        )
    )
    assert list(enqueue_owner(MACHINE)(event)) == [Request("ns", "mine")]
    anyone = enqueue_owner(MACHINE, controller_only=False)
    assert list(anyone(event)) == [Request("ns", "mine"), Request("ns", "another")]


@pytest.mark.requirement("CT2")
def test_owner_of_cluster_scope_and_change_of_hands() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n", "controller": True}
    assert list(enqueue_owner(NODE)(Deleted(secret(node)))) == [Request("", "n")]
    moved = Updated(
        secret(owner("Machine", "old", controller=True)), secret(owner("Machine", "new", controller=True))
    )
    assert list(enqueue_owner(MACHINE)(moved)) == [Request("ns", "old"), Request("ns", "new")]


@pytest.mark.requirement("CT2")
def test_mapped_runs_for_old_and_new_and_merges() -> None:
    def mapping(obj: dict[str, Any]) -> list[Request]:
        return [Request("ns", name) for name in obj.get("spec", {}).get("uses", [])]

    def job(*uses: str) -> StoredObject:
        return stored(JOB, {"metadata": {"namespace": "ns", "name": "j"}, "spec": {"uses": list(uses)}})

    handler = enqueue_mapped(mapping)
    assert list(handler(Updated(job("a", "b"), job("b", "c")))) == [
        Request("ns", "a"),
        Request("ns", "b"),
        Request("ns", "c"),
    ]
    assert list(handler(Deleted(job("a")))) == [Request("ns", "a")]
