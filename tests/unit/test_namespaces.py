"""Namespace lifecycle on a store: content goes, what stays is reported, then the namespace goes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.unit.object_store import MemoryStore

from captf_runtime.objects import CONFIG_MAP, NAMESPACE, SECRET
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.testing.controllers import NamespaceLifecycle
from captf_runtime.testing.controllers.namespaces import namespace_conditions

pytestmark = pytest.mark.requirement("AS22")

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    for name in ("a", "b"):
        store.add(NAMESPACE, name, spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
        store.add(SECRET, "secret", name)
    return store


def test_a_deleted_namespace_takes_its_content_with_it(store: MemoryStore) -> None:
    lifecycle = NamespaceLifecycle(store, VirtualClock(START))
    assert lifecycle.step() is False
    store.remove(NAMESPACE, "a")
    assert lifecycle.step() is True
    assert store.names(NAMESPACE) == ["b"]
    assert [obj["metadata"]["namespace"] for obj in store.items(SECRET)] == ["b"]
    lifecycle.stop()


def test_content_with_finalizers_is_reported_and_waited_for(store: MemoryStore) -> None:
    clock = VirtualClock(START)
    lifecycle = NamespaceLifecycle(store, clock)
    store.add(CONFIG_MAP, "held", "a", finalizers=["x.io/hold", "x.io/other"])
    store.add(CONFIG_MAP, "held-too", "a", finalizers=["x.io/hold"])
    store.remove(NAMESPACE, "a")
    lifecycle.step()
    namespace = store.get(NAMESPACE, "", "a")
    assert namespace is not None
    conditions = {condition["type"]: condition for condition in namespace["status"]["conditions"]}
    assert {name: condition["status"] for name, condition in conditions.items()} == {
        "NamespaceDeletionDiscoveryFailure": "False",
        "NamespaceDeletionGroupVersionParsingFailure": "False",
        "NamespaceDeletionContentFailure": "False",
        "NamespaceContentRemaining": "True",
        "NamespaceFinalizersRemaining": "True",
    }
    remaining = conditions["NamespaceContentRemaining"]
    assert remaining["reason"] == "SomeResourcesRemain"
    assert remaining["message"] == "Some resources are remaining: configmaps. has 2 resource instances"
    finalizers = conditions["NamespaceFinalizersRemaining"]
    assert finalizers["reason"] == "SomeFinalizersRemain"
    assert finalizers["message"] == (
        "Some content in the namespace has finalizers remaining: "
        "x.io/hold in 2 resource instances, x.io/other in 1 resource instances"
    )

    clock.advance(60)
    store.update(CONFIG_MAP, "a", "held", lambda obj: obj["metadata"].update(finalizers=[]) is None)
    lifecycle.step()
    namespace = store.get(NAMESPACE, "", "a")
    assert namespace is not None
    assert {c["lastTransitionTime"] for c in namespace["status"]["conditions"]} == {"2026-01-01T00:00:00Z"}
    store.update(CONFIG_MAP, "a", "held-too", lambda obj: obj["metadata"].update(finalizers=[]) is None)
    lifecycle.step()
    assert store.names(NAMESPACE) == ["b"]
    lifecycle.stop()


def test_a_finalizer_of_the_namespace_itself_outlives_the_content(store: MemoryStore) -> None:
    lifecycle = NamespaceLifecycle(store, VirtualClock(START))
    store.update(NAMESPACE, "", "a", lambda obj: obj["metadata"].update(finalizers=["x.io/hold"]) is None)
    store.remove(NAMESPACE, "a")
    lifecycle.step()
    namespace = store.get(NAMESPACE, "", "a")
    assert namespace is not None
    assert namespace["spec"]["finalizers"] == []
    assert lifecycle.step() is False
    store.update(NAMESPACE, "", "a", lambda obj: obj["metadata"].update(finalizers=[]) is None)
    assert store.names(NAMESPACE) == ["b"]
    lifecycle.stop()


def test_conditions_keep_their_time_until_their_status_changes() -> None:
    first = namespace_conditions([], {"secrets.": 1}, {}, START)
    later = datetime(2026, 1, 2, tzinfo=UTC)
    second = namespace_conditions(first, {}, {}, later)
    times = {condition["type"]: condition["lastTransitionTime"] for condition in second}
    assert times["NamespaceContentRemaining"] == "2026-01-02T00:00:00Z"
    assert times["NamespaceFinalizersRemaining"] == "2026-01-01T00:00:00Z"
    assert namespace_conditions(second, {}, {}, later) == second
