"""The rendered root runs the example modules, and the state that comes out reads and maps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.state_secrets import SUFFIX, payload, state_secrets
from tests.unit.test_api_hashes import CLUSTER, MACHINE, POOL

from captf_controllers.inputs.rendering import MAIN_FILE, TFVARS_FILE, render
from captf_controllers.state.outputs import OutputFacts, map_outputs
from captf_controllers.state.reading import State, classify

pytestmark = pytest.mark.terraform

MODULES = Path(__file__).resolve().parents[2] / "examples" / "modules"
RUNTIME = shutil.which("terraform") or shutil.which("tofu")
ROLES: dict[Any, tuple[str, dict[str, Any]]] = {
    "cluster": ("TerraformCluster", CLUSTER),
    "machine": ("TerraformMachine", MACHINE),
    "machinepool": ("TerraformMachinePool", POOL),
}


def applied(
    directory: Path, role: Any, inputs: dict[str, Any], variables: dict[str, Any] | None = None
) -> State:
    """Apply a role's example module from a rendered root, with the state in a file, and read the state."""
    if RUNTIME is None:
        pytest.skip("neither terraform nor tofu is on the PATH")
    root = directory / "work" / "root"
    root.mkdir(parents=True)
    shutil.copytree(MODULES / role, directory / "module")
    for name in variables or {}:
        (directory / "module" / f"{name}.tf").write_text(f'variable "{name}" {{}}\n', encoding="utf-8")
    files = render(role, inputs, variables, [])
    (root / MAIN_FILE).write_bytes(files.main)
    (root / TFVARS_FILE).write_bytes(files.tfvars)
    # An override file takes the place of the cluster's backend.
    (root / "override.tf.json").write_text(
        json.dumps({"terraform": {"backend": {"local": {"path": "state.json"}}}}), encoding="utf-8"
    )
    environment = {**os.environ, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
    for arguments in (["init", "-input=false"], ["validate"], ["apply", "-input=false", "-auto-approve"]):
        done = subprocess.run(
            [RUNTIME, *arguments, "-no-color"],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    state = classify(SUFFIX, state_secrets([payload((root / "state.json").read_bytes())])).state
    assert state is not None
    return state


@pytest.mark.parametrize("role", ROLES)
def test_an_example_module_keeps_the_contract(tmp_path: Path, role: Any) -> None:
    kind, inputs = ROLES[role]
    state = applied(tmp_path, role, inputs)
    assert state.managed_resources == 1
    assert all(output.sensitive for output in state.outputs.values())
    result = map_outputs(kind, state.outputs, OutputFacts())
    assert result.condition[1:3] == ("True", "OutputsValid"), result.condition
    assert result.provisions
    if role == "cluster":
        assert result.cluster is not None
        assert result.cluster.endpoint is not None
        assert result.cluster.exports_valid
    elif role == "machine":
        assert result.machine is not None
        assert result.machine.provider_id == "noop:///team-a/m1-x"
        # The Machine asked for no failure domain: the null output is not in the state at all.
        assert "failure_domain" not in state.outputs
        assert result.machine.failure_domain == ""
    else:
        assert result.pool is not None
        assert result.pool.replicas == 3
        assert result.pool.provider_id_list is not None
        assert len(result.pool.provider_id_list) == 3


def test_every_value_arrives_in_its_variable(tmp_path: Path) -> None:
    inputs = {
        **CLUSTER,
        "control_plane_endpoint": {"host": "api.example.com", "port": 6443},
        "kubernetes_version": "v1.31.0+rke2r1",
        "control_plane_initialized": True,
        "cluster_network": {
            "pods": ["10.0.0.0/8"],
            "services": [],
            "service_domain": None,
            "api_server_port": 6443,
        },
    }
    state = applied(tmp_path, "cluster", inputs, {"ratio": 1.5, "free": {"a": [1, "x", None]}})
    result = map_outputs("TerraformCluster", state.outputs, OutputFacts())
    assert result.cluster is not None
    assert result.cluster.endpoint is not None
    assert result.cluster.endpoint.host == "api.example.com"
