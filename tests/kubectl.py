"""The real kubectl, and captf beside it, against a world's server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.world import World


def require_kubectl() -> str:
    """The path of kubectl. Without it the test is skipped, visibly; in CI it fails."""
    found = shutil.which("kubectl")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("needs kubectl on the PATH, which must be there in CI")
        pytest.skip("needs kubectl on the PATH")
    return found


@dataclass
class Ran:
    """What a script printed and how it ended."""

    code: int
    text: str


@dataclass
class Shell:
    """A shell of a person who has kubectl and captf, in a directory and a home of its own.

    Args:
        directory: where scripts run and what they write ends up.
        between: what happens beside a script again and again; stands for the manager.
    """

    world: World
    directory: Path
    between: Callable[[], object] = lambda: None
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_kubectl()
        # One home for the tests of a session: kubectl keeps there what it discovered of the one server.
        self.home = self.directory.parent / "home-of-kubectl"
        commands = self.home / "bin"
        commands.mkdir(parents=True, exist_ok=True)
        for name in ("captf", "kubectl-captf"):
            command = commands / name
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m captf_controllers.cli.captf "$@"\n')
            command.chmod(0o755)
        self.kubeconfig = self.world.server.kubeconfig(self.directory / "kubeconfig")
        self.environment = os.environ | {
            "HOME": str(self.home),
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    def run(self, script: str, *, timeout: float = 120) -> Ran:
        """Run a script as a careful shell does: the first command that fails ends it."""
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.directory,
            env=self.environment | dict(self.variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        waited = 0.0
        while True:
            try:
                printed, _ = process.communicate(timeout=0.1)
            except subprocess.TimeoutExpired:
                waited += 0.1
                if waited > timeout:
                    process.kill()
                    printed, _ = process.communicate()
                    pytest.fail(f"still runs after {timeout} s: {script}\n{printed}")
                self.between()
            else:
                return Ran(process.returncode, printed)
