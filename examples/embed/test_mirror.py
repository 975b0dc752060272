"""The mirror against an embedded API server, with the fixtures that captf_runtime brings along."""

from __future__ import annotations

from typing import Any

import pytest
from mirror import FROM, ROLE, TARGET, mirror

from captf_runtime import Client, Object
from captf_runtime.objects import CONFIG_MAP, NAMESPACE, labels_of
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.running_manager import RunningManager
from captf_runtime.testing.waiting import eventually


def target(name: str) -> Object:
    return {"metadata": {"name": name, "labels": {TARGET: "true"}}}


def source(**data: str) -> Object:
    return {"metadata": {"name": "settings", "labels": {ROLE: "source"}}, "data": data}


def test_a_source_is_copied(client: Client, manager: RunningManager) -> None:
    manager.add(mirror(client, manager.cache))
    manager.start()
    client.create(NAMESPACE, target("blue"))
    client.create(CONFIG_MAP, source(color="red"), "default")
    assert eventually(lambda: client.get(CONFIG_MAP, "settings", "blue"))["data"] == {"color": "red"}


@pytest.fixture
def copied(client: Client, manager: RunningManager) -> Client:
    """A client of a cluster with a source in `default` and a copy of it in `blue`; the mirror runs."""
    client.create(NAMESPACE, target("blue"))
    client.create(CONFIG_MAP, source(color="red"), "default")
    manager.add(mirror(client, manager.cache))
    manager.start()
    eventually(lambda: client.get(CONFIG_MAP, "settings", "blue"))
    return client


def data_of_copy(client: Client, namespace: str = "blue") -> Any:
    return client.get(CONFIG_MAP, "settings", namespace).get("data")


def test_a_copy_follows_its_source(copied: Client) -> None:
    copied.patch(CONFIG_MAP, "settings", {"data": {"color": None, "size": "9"}}, "default")
    eventually(lambda: data_of_copy(copied) == {"size": "9"})
    assert labels_of(copied.get(CONFIG_MAP, "settings", "blue")) == {ROLE: "copy", FROM: "default"}


def test_a_copy_that_was_changed_or_deleted_is_put_right(copied: Client) -> None:
    copied.patch(CONFIG_MAP, "settings", {"data": {"color": "green"}}, "blue")
    eventually(lambda: data_of_copy(copied) == {"color": "red"})
    copied.delete(CONFIG_MAP, "settings", "blue", propagation_policy="Background")
    eventually(lambda: data_of_copy(copied) == {"color": "red"})


def test_copies_go_with_their_source(copied: Client) -> None:
    copied.delete(CONFIG_MAP, "settings", "default", propagation_policy="Background")
    eventually(lambda: not copied.list(CONFIG_MAP, "blue", label_selector=ROLE))


def test_a_source_that_is_none_any_more_loses_its_copies(copied: Client) -> None:
    copied.patch(CONFIG_MAP, "settings", {"metadata": {"labels": {ROLE: None}}}, "default")
    eventually(lambda: not copied.list(CONFIG_MAP, "blue", label_selector=ROLE))
    assert data_of_copy(copied, "default") == {"color": "red"}


def test_a_namespace_joins_and_leaves(copied: Client) -> None:
    copied.create(NAMESPACE, {"metadata": {"name": "green"}})
    copied.patch(NAMESPACE, "green", {"metadata": {"labels": {TARGET: "true"}}})
    eventually(lambda: data_of_copy(copied, "green") == {"color": "red"})
    copied.patch(NAMESPACE, "green", {"metadata": {"labels": {TARGET: None}}})
    eventually(lambda: not copied.list(CONFIG_MAP, "green", label_selector=ROLE))


def test_what_is_there_already_is_left_alone(client: Client, manager: RunningManager) -> None:
    client.create(NAMESPACE, target("blue"))
    client.create(CONFIG_MAP, {"metadata": {"name": "settings"}, "data": {"mine": "1"}}, "blue")
    client.create(CONFIG_MAP, source(color="red"), "default")
    manager.add(mirror(client, manager.cache))
    manager.start()
    client.create(NAMESPACE, target("green"))
    eventually(lambda: data_of_copy(client, "green") == {"color": "red"})
    assert data_of_copy(client, "blue") == {"mine": "1"}


def test_a_copy_that_is_right_is_not_written(
    api_server: ApiServer, copied: Client, manager: RunningManager
) -> None:
    # A request is logged a moment after its effect can be seen.
    eventually(lambda: api_server.requests.select(verb="create", namespace="blue"))
    api_server.requests.clear()
    copied.create(NAMESPACE, target("green"))
    eventually(lambda: data_of_copy(copied, "green") == {"color": "red"})
    assert not api_server.requests.select(writes=True, namespace="blue")
