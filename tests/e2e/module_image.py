"""An example module with the machine's Terraform, laid out as in a pod, and runs of the runner on it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples" / "modules"

BOOTSTRAP = "#cloud-config\nruncmd:\n- kubeadm join --token abcdef.0123456789abcdef\n"

_ENDPOINT = "object({host=string, port=number})"
_NETWORK = "object({pods=list(string), services=list(string), service_domain=string, api_server_port=number})"
_COMMON = {
    "captf_contract": "string",
    "captf_cluster": "any",
    "captf_object": "any",
    "captf_tags": "map(string)",
}
# Type of each contract input by role; a leading "?" means that it may be null.
INPUTS: Mapping[str, Mapping[str, str]] = {
    "cluster": {
        **_COMMON,
        "control_plane_endpoint": "?" + _ENDPOINT,
        "kubernetes_version": "?string",
        "control_plane_initialized": "bool",
        "cluster_network": "?" + _NETWORK,
    },
    "machine": {
        **_COMMON,
        "captf_cluster_outputs": "any",
        "machine_name": "string",
        "bootstrap_data": "string",
        "bootstrap_format": "string",
        "failure_domain": "?string",
        "kubernetes_version": "?string",
        "control_plane": "bool",
    },
    "machinepool": {
        **_COMMON,
        "captf_cluster_outputs": "any",
        "machinepool_name": "string",
        "replicas": "number",
        "bootstrap_data": "string",
        "bootstrap_format": "string",
        "failure_domains": "list(string)",
        "cluster_failure_domains": "list(string)",
        "kubernetes_version": "?string",
        "node_labels": "map(string)",
        "autoscaling": "object({enabled=bool, min=number, max=number})",
    },
}
OUTPUTS: Mapping[str, Sequence[str]] = {
    "cluster": ("control_plane_endpoint", "failure_domains", "exports", "health"),
    "machine": ("provider_id", "addresses", "failure_domain", "interruptible", "health"),
    "machinepool": ("provider_id", "provider_id_list", "replicas", "instances", "health"),
}
_KINDS = {"cluster": "TerraformCluster", "machine": "TerraformMachine", "machinepool": "TerraformMachinePool"}


def contract_inputs(role: str) -> dict[str, Any]:
    """Values for all contract inputs of a role."""
    name = f"my-{role}"
    values: dict[str, Any] = {
        "captf_contract": "v1alpha1",
        "captf_cluster": {"name": "prod", "namespace": "team-a"},
        "captf_object": {"kind": _KINDS[role], "name": name, "namespace": "team-a"},
        "captf_tags": {
            "captf.io/cluster": "prod",
            "captf.io/namespace": "team-a",
            "captf.io/kind": _KINDS[role],
            "captf.io/name": name,
            "captf.io/managed-by": "captf",
            "captf.io/template": "",
        },
        "captf_cluster_outputs": {"backend_id": "noop-backend-1"},
        "control_plane_endpoint": None,
        "kubernetes_version": "v1.33.0",
        "control_plane_initialized": False,
        "cluster_network": None,
        "machine_name": "web",
        "machinepool_name": "pool",
        "bootstrap_data": base64.b64encode(BOOTSTRAP.encode()).decode(),
        "bootstrap_format": "cloud-config",
        "failure_domain": "fd1",
        "control_plane": False,
        "replicas": 2,
        "failure_domains": [],
        "cluster_failure_domains": ["fd1"],
        "node_labels": {"pool": "a"},
        "autoscaling": {"enabled": False, "min": 0, "max": 0},
    }
    return {key: values[key] for key in INPUTS[role]}


def render(role: str, values: Mapping[str, Any], backend: Mapping[str, Any]) -> dict[str, Any]:
    """A root module like the one that the manager renders."""
    variables: dict[str, Any] = {}
    for name in values:
        kind = INPUTS[role].get(name)
        variables[name] = {} if kind is None else {"type": kind.removeprefix("?")}
        if kind is not None and kind.startswith("?"):
            variables[name]["default"] = None
        if name == "bootstrap_data":
            variables[name]["sensitive"] = True
    call = {"source": "../../module"} | {name: f"${{var.{name}}}" for name in values}
    outputs = {name: {"value": f"${{module.role.{name}}}", "sensitive": True} for name in OUTPUTS[role]}
    return {
        "terraform": {"backend": backend},
        "variable": variables,
        "module": {"role": call},
        "output": outputs,
    }


@dataclass(slots=True)
class ModuleImage:
    """A module image and the directory that its pods mount their volumes in.

    Args:
        directory: takes the place of the pod's root directory.
        role: which example module.
        backend: the backend block; a state file beside the working directory unless set.
        backend_config: values for `--backend-config`.
        environ: further environment variables of the runner.
        runner: argv prefix that starts the runner.
    """

    directory: Path
    role: str = "cluster"
    backend: Mapping[str, Any] = field(default_factory=dict)
    backend_config: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    runner: Sequence[str] = (sys.executable, "-m", "captf_controllers.runner")

    def __post_init__(self) -> None:
        captf = self.directory / "captf"
        (captf / "config").mkdir(parents=True)
        (captf / "plan-key").mkdir()
        (captf / "plan-key" / "key").write_bytes(bytes(range(32)))
        (captf / "module").symlink_to(EXAMPLES / self.role)
        (captf / "runtime").symlink_to(EXAMPLES / "local-runtime")
        if not self.backend:
            self.backend = {"local": {"path": str(self.state_file)}}
        self.configure()

    @property
    def state_file(self) -> Path:
        return self.directory / "state"

    @property
    def root(self) -> Path:
        return self.directory / "captf" / "work" / "root"

    def configure(self, **values: Any) -> None:
        """Renders the root for the contract inputs and further values."""
        merged = contract_inputs(self.role) | values
        self.write_root(render(self.role, merged, self.backend), merged)

    def write_root(self, main: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        config = self.directory / "captf" / "config"
        (config / "main.tf.json").write_text(json.dumps(main))
        (config / "terraform.tfvars.json").write_text(json.dumps(values))

    def start(self, op: str, *flags: str) -> subprocess.Popen[str]:
        """Starts a run in a fresh working directory, as a pod has one."""
        captf = self.directory / "captf"
        work = captf / "work"
        if work.exists():
            work.rename(self.directory / f"work-{len(list(self.directory.iterdir()))}")
        arguments = [
            *self.runner,
            "run",
            f"--op={op}",
            f"--bin={captf}/runtime",
            "--image=registry.invalid/module:1",
            f"--module={captf}/module",
            f"--providers={captf}/providers",
            f"--workdir={work}",
            f"--config={captf}/config",
            f"--plan-key-file={captf}/plan-key/key",
            f"--result={self.directory}/result",
            *(f"--backend-config={value}" for value in self.backend_config),
            *flags,
        ]
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY / "src"),
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
            "CHECKPOINT_DISABLE": "1",
            **self.environ,
        }
        return subprocess.Popen(
            arguments,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
        )

    def run(self, op: str, *flags: str) -> Outcome:
        """Runs to the end."""
        process = self.start(op, *flags)
        stdout, stderr = process.communicate(timeout=300)
        return self.outcome(process.returncode, stdout, stderr)

    def outcome(self, exit: int, stdout: str, stderr: str) -> Outcome:
        return Outcome(exit, stdout, stderr, json.loads((self.directory / "result").read_bytes()))

    def outputs(self) -> dict[str, Any]:
        """Output values in the state file."""
        state = json.loads(self.state_file.read_bytes())
        return {name: output["value"] for name, output in state["outputs"].items()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    exit: int
    stdout: str
    stderr: str
    result: dict[str, Any]

    @property
    def log(self) -> str:
        return self.stdout + self.stderr

    @property
    def steps(self) -> list[tuple[str, int]]:
        return [(step["name"], step["exit"]) for step in self.result["steps"]]

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.result["error"]
        return error
