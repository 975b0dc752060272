"""What patching an object and its finalizers sends, and what comes of it."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from tests.integration.targets import WIDGET

from captf_runtime.client import (
    Client,
    Conflict,
    NotFound,
    ReadWriter,
    add_finalizer,
    patch_object,
    remove_finalizer,
)
from captf_runtime.objects import Object, annotations_of, finalizers_of, resource_version_of

HOLD = "example.test/hold"
OTHER = "example.test/other"


@pytest.fixture
def widget(client: Client, namespace: str) -> Object:
    client.create(WIDGET, {"metadata": {"name": "w", "finalizers": [HOLD]}, "spec": {"a": 1}}, namespace)
    return client.patch(WIDGET, "w", {"status": {"phase": "New"}}, namespace, subresource="status")


def release(client: Client, namespace: str) -> None:
    try:
        client.patch(WIDGET, "w", {"metadata": {"finalizers": None}}, namespace)
    except NotFound:
        pass


class Counting:
    """Hands patches on and notes which subresource each was for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.patched: list[str] = []

    def patch(self, *args: Any, **options: Any) -> Object:
        self.patched.append(options.get("subresource", ""))
        return self._client.patch(*args, **options)


@pytest.mark.requirement("CL9")
def test_one_request_for_the_object_and_one_for_its_status(
    client: Client, namespace: str, widget: Object
) -> None:
    writer = cast("ReadWriter", counting := Counting(client))
    changed = copy.deepcopy(widget)
    assert patch_object(writer, WIDGET, widget, changed) == widget
    assert counting.patched == []

    changed["spec"]["a"] = 2
    stored = patch_object(writer, WIDGET, widget, changed)
    assert counting.patched == [""]
    assert stored["spec"] == {"a": 2}

    changed = copy.deepcopy(stored)
    changed["status"]["phase"] = "Ready"
    assert patch_object(writer, WIDGET, stored, changed)["status"] == {"phase": "Ready"}
    assert counting.patched == ["", "status"]

    stored = client.get(WIDGET, "w", namespace)
    changed = copy.deepcopy(stored)
    changed["metadata"]["labels"] = {"l": "1"}
    changed["status"]["phase"] = "Done"
    patch_object(writer, WIDGET, stored, changed, optimistic_lock=True)
    found = client.get(WIDGET, "w", namespace)
    assert (found["metadata"]["labels"], found["status"]) == ({"l": "1"}, {"phase": "Done"})
    assert counting.patched == ["", "status", "", "status"]
    release(client, namespace)


@pytest.mark.requirement("CL9")
def test_a_lock_refuses_what_was_made_from_an_old_state(
    client: Client, namespace: str, widget: Object
) -> None:
    client.patch(WIDGET, "w", {"metadata": {"labels": {"l": "1"}}}, namespace)
    for section in ("spec", "status"):
        changed = copy.deepcopy(widget)
        changed[section]["mine"] = True
        with pytest.raises(Conflict) as raised:
            patch_object(client, WIDGET, widget, changed, optimistic_lock=True)
        assert raised.value.kind == "resource-version"
        patch_object(client, WIDGET, widget, changed)
    release(client, namespace)


@pytest.mark.requirement("CL9")
def test_the_last_finalizer_of_a_deleting_object_may_end_it_before_its_status(
    client: Client, namespace: str, widget: Object
) -> None:
    client.delete(WIDGET, "w", namespace, propagation_policy="Background")
    deleting = client.get(WIDGET, "w", namespace)
    changed = copy.deepcopy(deleting)
    changed["metadata"]["finalizers"] = []
    changed["status"]["phase"] = "Gone"
    patch_object(client, WIDGET, deleting, changed)
    with pytest.raises(NotFound):
        client.get(WIDGET, "w", namespace)
    with pytest.raises(NotFound):
        patch_object(client, WIDGET, deleting, {**deleting, "status": {"phase": "Late"}})


@pytest.mark.requirement("CL9", "CL10")
def test_a_finalizer_set_meanwhile_is_never_lost(client: Client, namespace: str, widget: Object) -> None:
    client.patch(WIDGET, "w", {"metadata": {"finalizers": [HOLD, OTHER]}}, namespace)
    changed = copy.deepcopy(widget)
    changed["metadata"]["finalizers"] = []
    with pytest.raises(Conflict):
        patch_object(client, WIDGET, widget, changed)
    with pytest.raises(Conflict):
        remove_finalizer(client, WIDGET, widget, HOLD)
    with pytest.raises(Conflict):
        add_finalizer(client, WIDGET, widget, "example.test/third")
    assert finalizers_of(client.get(WIDGET, "w", namespace)) == [HOLD, OTHER]
    release(client, namespace)


@pytest.mark.requirement("CL10")
def test_finalizers_are_added_and_removed_and_nothing_is_sent_for_nothing(
    client: Client, namespace: str, widget: Object
) -> None:
    assert add_finalizer(client, WIDGET, widget, HOLD) is widget
    assert remove_finalizer(client, WIDGET, widget, OTHER) is widget
    added = add_finalizer(client, WIDGET, widget, OTHER)
    assert finalizers_of(added) == [HOLD, OTHER]
    removed = remove_finalizer(client, WIDGET, added, HOLD)
    assert finalizers_of(removed) == [OTHER]
    removed = remove_finalizer(client, WIDGET, removed, OTHER)
    assert finalizers_of(removed) == []
    assert resource_version_of(client.get(WIDGET, "w", namespace)) == resource_version_of(removed)
    bare = {"metadata": {"name": "w", "namespace": namespace}}
    with pytest.raises(ValueError, match="resourceVersion"):
        add_finalizer(client, WIDGET, bare, HOLD)


def test_patches_without_a_version_never_conflict_with_each_other(
    client: Client, namespace: str, widget: Object
) -> None:
    """The server applies such a patch to whatever it finds, as often as another write comes between."""
    name = str(widget["metadata"]["name"])

    def annotate(worker: int) -> None:
        for turn in range(20):
            patch = {"metadata": {"annotations": {f"example.com/of-{worker}": str(turn)}}}
            client.patch(WIDGET, name, patch, namespace)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(annotate, range(4)))
    found = annotations_of(client.get(WIDGET, name, namespace))
    assert [found[f"example.com/of-{worker}"] for worker in range(4)] == ["19"] * 4
