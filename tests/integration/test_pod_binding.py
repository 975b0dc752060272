"""pods/binding of the embedded API server: how a pod gets its node, and what that means for its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from captf_runtime.client import Client, Conflict, NotFound
from captf_runtime.objects import POD, Object
from captf_runtime.testing.apiserver import ApiServer

NS = "default"


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as server:
        made = Client.from_config(kubeconfig=str(server.kubeconfig()))
        try:
            made.create(
                POD,
                {
                    "metadata": {"name": "p", "namespace": NS},
                    "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 7},
                },
            )
            yield made
        finally:
            made.close()


def bind(client: Client, node: str, *, uid: str = "") -> None:
    body: Object = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", **({"uid": uid} if uid else {})},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    client.create_subresource(POD, "p", "binding", body, NS)


def test_a_bound_pod_has_its_grace_period(client: Client) -> None:
    bind(client, "local", uid=client.get(POD, "p", NS)["metadata"]["uid"])
    pod = client.get(POD, "p", NS)
    assert pod["spec"]["nodeName"] == "local"
    assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [("PodScheduled", "True")]
    client.delete(POD, "p", NS, propagation_policy="Background")
    assert client.get(POD, "p", NS)["metadata"]["deletionGracePeriodSeconds"] == 7


def test_a_pod_without_a_node_goes_at_once(client: Client) -> None:
    client.delete(POD, "p", NS, propagation_policy="Background")
    with pytest.raises(NotFound):
        client.get(POD, "p", NS)


def test_a_pod_is_bound_once(client: Client) -> None:
    with pytest.raises(Conflict, match="Precondition failed"):
        bind(client, "local", uid="another")
    bind(client, "local")
    with pytest.raises(Conflict, match='already assigned to node "local"'):
        bind(client, "other")


def test_a_pod_that_ends_is_not_bound(client: Client) -> None:
    pod = client.get(POD, "p", NS)
    client.update(POD, {**pod, "metadata": {**pod["metadata"], "finalizers": ["test.io/keep"]}})
    client.delete(POD, "p", NS, propagation_policy="Background")
    with pytest.raises(Conflict, match="is being deleted"):
        bind(client, "local")
