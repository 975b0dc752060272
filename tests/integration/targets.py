"""The API servers that the library's tests run against: the embedded one, and a real one if there is one."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from captf_runtime.client import AlreadyExists, Client
from captf_runtime.objects import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, Kind, Object
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.waiting import eventually

WIDGET = Kind("things.example.test", "v1", "Widget", "widgets")
WIDGETS: Object = {
    "metadata": {"name": "widgets.things.example.test"},
    "spec": {
        "group": "things.example.test",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


@dataclass(frozen=True)
class Target:
    """A running server with the widgets' definition, a kubeconfig for its administrator, and what it is."""

    kubeconfig: str
    server: ApiServer | None

    @property
    def embedded(self) -> ApiServer:
        """The embedded server; a test that needs its faults or its log runs against no other."""
        if self.server is None:
            pytest.skip("needs faults or the request log of the embedded server")
        return self.server


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real_apiserver)])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Each kind of server in turn."""
    if request.param == "embedded":
        with ApiServer() as server:
            found = Target(str(server.kubeconfig()), server)
            _define(found)
            yield found
        return
    kubeconfig = os.environ.get("CAPTF_CONFORMANCE_KUBECONFIG")
    if not kubeconfig:
        kubeconfig = str(request.getfixturevalue("real_control_plane").kubeconfig)
    found = Target(kubeconfig, None)
    _define(found)
    yield found


def _define(target: Target) -> None:
    with Client.from_config(kubeconfig=target.kubeconfig) as client:
        with contextlib.suppress(AlreadyExists):
            client.create(CUSTOM_RESOURCE_DEFINITION, WIDGETS)
        # Not when the definition is called established: the real server serves the kind a moment later.
        eventually(lambda: client.list(WIDGET) is not None, timeout=120)


@pytest.fixture
def client(target: Target) -> Iterator[Client]:
    """A client of the target."""
    with Client.from_config(kubeconfig=target.kubeconfig) as made:
        yield made


@pytest.fixture
def namespace(client: Client) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    client.create(NAMESPACE, {"metadata": {"name": name}})
    yield name
    client.delete(NAMESPACE, name, propagation_policy="Background")
