"""API servers that serve CAPTF's kinds: the embedded one, and a real one where its binaries are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

import pytest
from hack.crds import definitions

from captf_runtime.client import Client
from captf_runtime.objects import CUSTOM_RESOURCE_DEFINITION, Object
from captf_runtime.testing.apiserver.server import ApiServer
from captf_runtime.testing.real_control_plane import RealControlPlane, assets_directory
from captf_runtime.testing.waiting import eventually

EMBEDDED_AND_REAL = ["embedded", pytest.param("real", marks=pytest.mark.real_apiserver)]
"""Parameters of a fixture whose tests run against both."""


@contextmanager
def captf_api(server: Literal["embedded", "real"]) -> Iterator[str]:
    """Start a server without controllers, define CAPTF's kinds on it, and give an administrator's kubeconfig.

    Skips the test when the real one is asked for and `KUBEBUILDER_ASSETS` names no binaries.
    """
    if server == "embedded":
        with ApiServer(controllers=False) as embedded:
            yield define(str(embedded.kubeconfig()))
        return
    if assets_directory() is None:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    with RealControlPlane(controllers=False) as control_plane:
        yield define(str(control_plane.kubeconfig))


def define(kubeconfig: str) -> str:
    """Define CAPTF's kinds and wait until they are served."""
    with Client.from_config(kubeconfig=kubeconfig) as client:
        for definition in definitions():
            client.create(CUSTOM_RESOURCE_DEFINITION, copy.deepcopy(definition))
        for definition in definitions():
            eventually(partial(_established, client, definition), timeout=120)
            # The real server serves a kind a moment after it has called it established.
            eventually(partial(client.raw, "GET", _path(definition)), timeout=120)
    return kubeconfig


def _path(definition: Object) -> str:
    spec = definition["spec"]
    version = next(version["name"] for version in spec["versions"] if version["served"])
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


def _established(client: Client, definition: Object) -> bool:
    found = client.get(CUSTOM_RESOURCE_DEFINITION, definition["metadata"]["name"])
    conditions = {item["type"]: item["status"] for item in found.get("status", {}).get("conditions", ())}
    assert conditions.get("NonStructuralSchema", "False") == "False", found["status"]
    return conditions.get("Established") == "True" and conditions.get("NamesAccepted") == "True"
