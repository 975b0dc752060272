"""Pytest fixtures: a Kubernetes to test controllers against.

`api_server` is an embedded API server of the test's own, with garbage collection and namespace lifecycle;
options go through the marker of the same name::

    @pytest.mark.api_server(tls=True, rbac=True)
    def test_something(api_server): ...

`real_control_plane` is a real etcd, kube-apiserver and kube-controller-manager, shared by the session; tests
that ask for it are skipped, with the reason, where `KUBEBUILDER_ASSETS` names no folder with the binaries.

`client` is a client of `api_server` with all rights. `manager` is a manager on it: add controllers, which read
from `manager.cache`, then start it::

    def test_copies(client, manager):
        manager.add(Controller("copies", for_=SECRET, reconciler=Copies(client), cache=manager.cache))
        manager.start()
        client.create(SECRET, secret, "default")
        ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from captf_runtime.client import Client
    from captf_runtime.testing.apiserver import ApiServer
    from captf_runtime.testing.real_control_plane import RealControlPlane
    from captf_runtime.testing.running_manager import RunningManager

# The imports inside the fixtures keep the plugin free for the test runs that do not use it.


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "api_server(**options): options of ApiServer for the fixture `api_server` of the test"
    )


@pytest.fixture
def api_server(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """An embedded API server, running for the time of the test."""
    from captf_runtime.testing.apiserver import ApiServer

    marker = request.node.get_closest_marker("api_server")
    with ApiServer(**(marker.kwargs if marker is not None else {})) as server:
        yield server


@pytest.fixture
def client(api_server: ApiServer) -> Iterator[Client]:
    """A client of `api_server` that may do everything."""
    from captf_runtime.client import Client

    with Client.from_config(kubeconfig=api_server.kubeconfig()) as found:
        yield found


@pytest.fixture
def manager(client: Client) -> Iterator[RunningManager]:
    """A manager on `api_server`; the test fails when one of its controllers or runnables failed."""
    from captf_runtime.testing.running_manager import RunningManager

    running = RunningManager(client)
    yield running
    status = running.stop()
    if status != 0:
        failures = "; ".join(f"{name}: {error!r}" for name, error in running.manager.failures)
        pytest.fail(f"the manager ended with status {status}: {failures or 'it did not stop in time'}")


@pytest.fixture(scope="session")
def real_control_plane() -> Iterator[RealControlPlane]:
    """A real control plane with its controllers, for the whole session; tests use namespaces of their own."""
    from captf_runtime.testing.real_control_plane import ControlPlaneError, RealControlPlane

    try:
        plane = RealControlPlane()
    except ControlPlaneError as error:
        pytest.skip(str(error))
    with plane:
        yield plane
