"""The real control plane for tests: found, started, and gone without a trace."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from captf_runtime.testing.real_control_plane import (
    ControlPlaneError,
    RealControlPlane,
    TokenUser,
    assets_directory,
    reserved_port,
)

pytestmark = pytest.mark.requirement("CF1")


def binary(directory: Path, name: str, script: str = "exit 3") -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_assets_are_named_by_the_environment(tmp_path: Path) -> None:
    assert assets_directory({}) is None
    assert assets_directory({"KUBEBUILDER_ASSETS": str(tmp_path)}) is None
    for name in ("etcd", "kube-apiserver"):
        binary(tmp_path, name)
    assert assets_directory({"KUBEBUILDER_ASSETS": str(tmp_path)}) == tmp_path


def test_absence_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(
        ControlPlaneError, match="set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver"
    ):
        RealControlPlane()


def test_a_part_that_ends_is_shown_with_its_log(tmp_path: Path) -> None:
    for name in ("etcd", "kube-apiserver"):
        binary(tmp_path, name, "echo cannot bind; exit 3")
    plane = RealControlPlane(assets=tmp_path)
    with pytest.raises(ControlPlaneError, match=r"(?s)ended while waiting.*cannot bind"), plane:
        pass
    assert not plane.directory.exists()


def test_a_reserved_port_is_for_the_server_that_names_it() -> None:
    with reserved_port() as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        # As a server does that may be started again at once.
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port), 60):
            pass
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


@pytest.mark.real_apiserver
@pytest.mark.skipif(assets_directory() is None, reason="no KUBEBUILDER_ASSETS")
def test_life() -> None:
    robot = TokenUser("robot", "robot-token", ("robots",))
    with RealControlPlane(users=[robot]) as plane:
        config = json.loads(plane.kubeconfig.read_text())
        assert config["current-context"] == "admin"
        assert [user["name"] for user in config["users"]] == ["admin", "robot"]
        assert oct(plane.kubeconfig.stat().st_mode & 0o777) == "0o600"
        assert _get(plane, "/api/v1/namespaces/default", plane.admin.token) == 200
        assert _get(plane, "/api/v1/namespaces/default", robot.token) == 403
        assert _get(plane, "/version", "nonsense") == 401
        directory = plane.directory
        assert _mentions(str(directory))
    assert not directory.exists()
    assert not _mentions(str(directory))
    plane.close()


def _get(plane: RealControlPlane, path: str, token: str) -> int:
    port = int(plane.url.rpartition(":")[2])
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=plane.ssl_context(), timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


def _mentions(text: str) -> list[str]:
    """Command lines of other processes that contain a text."""
    listed = subprocess.run(["ps", "-wweo", "pid,args"], capture_output=True, text=True, check=True).stdout
    own = str(os.getpid())
    return [line for line in listed.splitlines() if text in line and line.split()[0] != own]
