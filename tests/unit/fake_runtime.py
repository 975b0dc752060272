"""A runtime for tests: a shell script that records how it was called and plays scripted steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"

_SCRIPT = """#!/bin/sh
name=$1
[ "$1" = state ] && name=state-$2
[ "$1" = show ] && name=show-json
case "$*" in *-refresh-only*) name=apply-refresh-only ;; esac
{ for argument; do printf '%s\\037' "$argument"; done; printf '\\n'; } >>"$FAKE/calls"
env >"$FAKE/environment-$name"
if [ -f "$FAKE/$name.sh" ]; then . "$FAKE/$name.sh"; exit 0; fi
[ "$name" = version ] && echo '{"terraform_version": "1.99.0"}'
[ "$name" = validate ] && echo '{"valid": true, "diagnostics": []}'
exit 0
"""


@dataclass(slots=True)
class FakeImage:
    """A module image in a directory, with the fake runtime, and what a pod mounts.

    `runner` is the command that starts the runner, without its arguments.
    """

    directory: Path
    environ: dict[str, str] = field(default_factory=dict)
    runner: Sequence[str] = (sys.executable, "-m", "captf_controllers.runner")

    def __post_init__(self) -> None:
        for name in ("fake", "module", "config"):
            (self.directory / name).mkdir()
        (self.directory / "module" / "main.tf").write_text("")
        self.configure()
        self.runtime.write_text(_SCRIPT)
        self.runtime.chmod(0o755)
        self.key.write_bytes(bytes(range(32)))
        self.environ = {"PATH": os.environ["PATH"], "FAKE": str(self.directory / "fake")}

    @property
    def runtime(self) -> Path:
        return self.directory / "runtime"

    @property
    def key(self) -> Path:
        return self.directory / "key"

    @property
    def config(self) -> Path:
        return self.directory / "config"

    @property
    def result_path(self) -> Path:
        return self.directory / "result"

    def configure(
        self, main: Mapping[str, Any] | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        (self.config / "main.tf.json").write_text(json.dumps(main or {}))
        (self.config / "terraform.tfvars.json").write_text(json.dumps(values or {}))

    def script(self, step: str, body: str) -> None:
        """What the runtime does at a step, as shell."""
        (self.directory / "fake" / f"{step}.sh").write_text(body)

    def plan(self, *resources: Mapping[str, Any], exit: int = 2, **document: Any) -> None:
        """What `plan` finds."""
        self.script("plan", f"exit {exit}")
        text = json.dumps({"format_version": "1.2", "resource_changes": list(resources), **document})
        (self.directory / "fake" / "plan.json").write_text(text)
        self.script("show-json", 'cat "$FAKE/plan.json"')

    def arguments(self, op: str, *flags: str) -> list[str]:
        return [
            *self.runner,
            "run",
            f"--op={op}",
            f"--bin={self.runtime}",
            f"--module={self.directory / 'module'}",
            f"--providers={self.directory / 'providers'}",
            f"--workdir={self.directory / 'work'}",
            f"--config={self.config}",
            f"--result={self.result_path}",
            f"--plan-key-file={self.key}",
            *flags,
        ]

    def start(self, op: str, *flags: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.arguments(op, *flags),
            env={**self.environ, "PYTHONPATH": str(SOURCE)},
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, op: str, *flags: str) -> Ran:
        """Runs the runner to its end."""
        process = self.start(op, *flags)
        stdout, stderr = process.communicate(timeout=200)
        return self.ran(process.returncode, stdout, stderr)

    def ran(self, exit: int, stdout: str, stderr: str) -> Ran:
        text = self.result_path.read_bytes()
        assert len(text) <= 4096
        calls = self.directory / "fake" / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return Ran(exit, stdout, stderr, json.loads(text), [line.split("\037")[:-1] for line in lines])

    def environment_of(self, step: str) -> dict[str, str]:
        """The environment that the runtime had at a step."""
        lines = (self.directory / "fake" / f"environment-{step}").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended."""

    exit: int
    stdout: str
    stderr: str
    result: dict[str, Any]
    calls: Sequence[list[str]]

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


def change(address: str, *actions: str, **details: Any) -> dict[str, Any]:
    """A resource change of a plan document; `previous_address` goes beside the change."""
    previous = details.pop("previous_address", None)
    resource: dict[str, Any] = {"address": address, "change": {"actions": list(actions), **details}}
    if previous is not None:
        resource["previous_address"] = previous
    return resource
