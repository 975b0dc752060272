from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.unit.fake_runtime import SOURCE

from captf_controllers.runner import artefact


def copied(destination: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "captf_controllers.runner", "copy", str(destination)],
        env={"PYTHONPATH": str(SOURCE)},
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_copy_runs_by_itself(tmp_path: Path) -> None:
    destination = tmp_path / "bin dir" / "runner"
    destination.parent.mkdir()
    assert copied(destination).returncode == 0
    assert destination.stat().st_mode & 0o777 == 0o755
    assert os.listdir(destination.parent) == ["runner"]
    process = subprocess.run([destination, "--version"], env={}, check=True, capture_output=True, text=True)
    assert process.stdout.strip() == artefact.describe()


def test_a_copy_replaces_what_is_there(tmp_path: Path) -> None:
    destination = tmp_path / "runner"
    destination.write_text("old")
    assert copied(destination).returncode == 0
    assert destination.read_bytes().startswith(b"#!/bin/sh")


def test_a_destination_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    process = copied(tmp_path / "missing" / "runner")
    assert process.returncode == 1
    assert "missing" in process.stderr


def test_a_frozen_runner_copies_its_outer_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = tmp_path / "outer"
    outer.write_bytes(b"the whole executable")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    artefact.copy_to(str(tmp_path / "copy"), {"STATICX_PROG_PATH": str(outer)})
    assert (tmp_path / "copy").read_bytes() == b"the whole executable"
    monkeypatch.setattr(sys, "executable", str(outer))
    artefact.copy_to(str(tmp_path / "second"), {})
    assert (tmp_path / "second").read_bytes() == b"the whole executable"


def test_it_needs_the_standard_library_only() -> None:
    allowed = sys.stdlib_module_names | {"captf_controllers"}
    for source in sorted((SOURCE / "captf_controllers" / "runner").glob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            else:
                continue
            for name in imported:
                assert name.partition(".")[0] in allowed, f"{source.name} imports {name}"
                if name.startswith("captf_controllers"):
                    assert name.startswith("captf_controllers.runner"), f"{source.name} imports {name}"


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())
    assert project["project"]["version"] == artefact.VERSION
