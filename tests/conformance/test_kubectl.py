"""kubectl, unchanged, against both servers."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import config_map, widget
from tests.conformance.target import Case

pytestmark = [
    pytest.mark.requirement("AS4"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH"),
]

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(k: Case, tmp_path: Path) -> Kubectl:
    """Run kubectl in the namespace of the case; `stdin` is a manifest, and any `code` will do if it is None."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(k.server.kubeconfig()))

    def run(*arguments: str, stdin: object = None, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "--kubeconfig", str(kubeconfig), "--namespace", k.namespace]
        command += ["--cache-dir", str(tmp_path / "cache"), *arguments]
        text = json.dumps(stdin) if stdin is not None else None
        result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
        assert code is None or result.returncode == code, result.stdout + result.stderr
        return result

    return run


def manifest(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", **config_map(name, data)}


def test_create_get_delete(k: Case, kubectl: Kubectl) -> None:
    assert kubectl("create", "-f", "-", stdin=manifest("a", {"x": "1"})).stdout == "configmap/a created\n"
    lines = kubectl("get", "configmap", "a").stdout.splitlines()
    assert lines[0].split() == ["NAME", "DATA", "AGE"]
    assert lines[1].split()[:2] == ["a", "1"]
    assert kubectl("delete", "configmap", "a").stdout.startswith('configmap "a" deleted')
    missing = kubectl("get", "configmap", "a", code=1)
    assert missing.stderr == 'Error from server (NotFound): configmaps "a" not found\n'


def test_apply(k: Case, kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=manifest("a", {"x": "1"})).stdout == "configmap/a created\n"
    assert kubectl("apply", "-f", "-", stdin=manifest("a", {"x": "1"})).stdout == "configmap/a unchanged\n"
    assert kubectl("apply", "-f", "-", stdin=manifest("a", {"y": "2"})).stdout == "configmap/a configured\n"
    assert k.get(k.path("configmaps", "a"), record=False).body["data"] == {"y": "2"}


def test_server_side_apply(k: Case, kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    assert kubectl(*apply, stdin=manifest("a", {"x": "1"})).stdout == "configmap/a serverside-applied\n"
    other = kubectl(*apply, "--field-manager", "other", stdin=manifest("a", {"x": "2"}), code=1)
    assert 'conflict with "kubectl": .data.x' in other.stderr
    kubectl(*apply, "--field-manager", "other", "--force-conflicts", stdin=manifest("a", {"x": "2"}))
    assert k.get(k.path("configmaps", "a"), record=False).body["data"] == {"x": "2"}


@pytest.mark.usefixtures("custom_resources")
def test_custom_resource(k: Case, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=widget(GROUP, "a", {"size": 7, "color": "red"}))
    lines = kubectl("get", "widgets", "a").stdout.splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "PHASE", "AGE"]
    assert lines[1].split()[:2] == ["a", "7"]
    wide = kubectl("get", "wd", "a", "-o", "wide").stdout.splitlines()
    assert wide[0].split() == ["NAME", "SIZE", "COLOR", "PHASE", "AGE"]
    assert "Size:" in kubectl("describe", "widget", "a").stdout
    refused = kubectl("apply", "-f", "-", stdin=widget(GROUP, "a", {"size": 70}), code=1)
    assert "should be less than or equal to 10" in refused.stderr
    kubectl("delete", "wd", "a", "--wait=true")


def test_patch_and_annotate(k: Case, kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a", "--from-literal=x=1")
    kubectl("annotate", "configmap", "a", "note=yes")
    kubectl("label", "configmap", "a", "t=1")
    kubectl("patch", "configmap", "a", "-p", '{"data":{"y":"2"}}')
    kubectl("patch", "configmap", "a", "--type=json", "-p", '[{"op":"remove","path":"/data/x"}]')
    found = k.get(k.path("configmaps", "a"), record=False)
    assert found.body["data"] == {"y": "2"}
    assert (found.metadata["annotations"], found.metadata["labels"]) == ({"note": "yes"}, {"t": "1"})
    assert kubectl("get", "configmap", "-l", "t=1", "-o", "name").stdout == "configmap/a\n"


def test_wait(k: Case, kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a", "--from-literal=x=1")
    kubectl("wait", "configmap/a", "--for=jsonpath={.data.x}=1", "--timeout=60s")
    late = kubectl("wait", "configmap/a", "--for=jsonpath={.data.x}=2", "--timeout=1s", code=1)
    assert "timed out" in late.stderr
    kubectl("delete", "configmap", "a", "--wait=false")
    kubectl("wait", "configmap/a", "--for=delete", "--timeout=60s")


def test_secret(k: Case, kubectl: Kubectl) -> None:
    kubectl("create", "secret", "generic", "a", "--from-literal=x=1")
    lines = kubectl("get", "secret", "a").stdout.splitlines()
    assert lines[0].split() == ["NAME", "TYPE", "DATA", "AGE"]
    assert lines[1].split()[:3] == ["a", "Opaque", "1"]


def test_can_i(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "configmaps").stdout == "yes\n"
    assert kubectl("auth", "can-i", "create", "configmaps", "--as=nobody", code=1).stdout == "no\n"


@pytest.mark.usefixtures("custom_resources")
def test_explain(k: Case, kubectl: Kubectl) -> None:
    # The real server takes up a definition in its OpenAPI document some time after it serves it.
    k.eventually(lambda: "color" in kubectl("explain", "widget.spec", code=None).stdout, "the description")
    assert "data" in kubectl("explain", "configmap").stdout
