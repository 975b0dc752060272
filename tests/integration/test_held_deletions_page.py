"""The runbook of held deletions, and the commands of messages, carried out by kubectl as they stand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.deletion_case import Case
from tests.world import ROOT, TEAM

from captf_runtime.objects import JOB, name_of

PAGE = ROOT / "docs" / "held-deletions.md"
Shell = Callable[[str], str]


@pytest.fixture
def shell(case: Case, tmp_path: Path) -> Shell:
    """Runs a piece of shell text in an empty directory; what it printed."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(case.world.server.kubeconfig()),
    }

    def run(text: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        return done.stdout

    return run


def blocks(heading: str, case: Case, **values: str) -> list[str]:
    """The shell blocks under a heading of the page ("" is what comes before the first), filled in."""
    sections = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.M)
    chosen = sections[0] if not heading else sections[sections.index(heading) + 1]
    known = {"kind": case.kind.lower(), "namespace": TEAM, "name": case.name, **values}
    found = re.findall(r"```sh\n(.*?)```", chosen, flags=re.S)
    assert found, heading
    return [re.sub(r"<(\w+)>", lambda match: known[match[1]], text) for text in found]


def hold(case: Case) -> None:
    case.provision()
    case.remove_secrets(case.states())
    case.delete()
    assert case.reconcile() == 60


def commands(message: str) -> list[str]:
    """Every kubectl command of a message."""
    found = re.findall(r"kubectl \w+ [^;()]*?(?:--overwrite|-p '[^']*')", message)
    assert found, message
    return [str(command) for command in found]


def command_with(message: str, part: str) -> str:
    (found,) = [command for command in commands(message) if part in command]
    return found


@pytest.mark.acceptance("HD35")
def test_the_state_is_saved_and_the_object_abandoned_as_printed(
    case: Case, shell: Shell, tmp_path: Path
) -> None:
    case.destroying()
    assert case.fail(1) == [60]
    saved = case.files_of(name_of(case.states()[0]))["tfstate"]
    assert "StateReadable=True/StateRead: \n" in shell(blocks("", case)[0])
    shell("\n".join(blocks("Save the state first", case)))
    (kept,) = yaml.safe_load((tmp_path / "state.yaml").read_text())["items"]
    assert kept["data"]["tfstate"]
    assert len(yaml.safe_load((tmp_path / "backups.yaml").read_text())["items"]) == len(case.backups()) > 0
    state = json.loads((tmp_path / "terraform.tfstate").read_text())
    assert state["serial"] == case.status["observedStateSerial"]
    assert saved
    shell(blocks("Abandon: give the infrastructure up", case)[0])
    assert case.reconcile() == 0
    assert case.released
    assert case.states() == []
    assert len(case.notes("InfrastructureAbandoned")) == 1


def test_a_backup_is_restored_as_printed(case: Case, shell: Shell) -> None:
    hold(case)
    listing = shell(blocks("Restore a backup", case, serial="1")[0])
    assert json.loads(listing.splitlines()[0].partition("}]")[0] + "}]")[0]["serial"] == 1
    assert case.reconcile() == 60
    assert case.job("restore")


def test_nothing_created_is_confirmed_as_printed(case: Case, shell: Shell) -> None:
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    case.world.client.delete(JOB, job, TEAM, propagation_policy="Background")
    case.world.step()
    case.advance(61)
    case.delete()
    assert case.reconcile() == 60
    shell(blocks("Confirm that nothing was created", case, job=job)[0])
    assert case.reconcile() == 0
    assert case.released


def test_an_object_is_retained_as_printed(case: Case, shell: Shell) -> None:
    hold(case)
    shell(blocks("Retain: let the object go and keep its state", case)[0])
    assert case.reconcile() == 0
    assert case.notes("InfrastructureRetained")


def test_the_finalizer_is_stripped_as_printed(case: Case, shell: Shell) -> None:
    hold(case)
    shell(blocks("The last resort", case)[0])
    assert case.world.find(case.kind, case.name) is None


@pytest.mark.acceptance("HD14", "HD35")
@pytest.mark.parametrize("way", ["restore-state", "abandon-infrastructure", "Retain"])
def test_each_command_of_a_hold_works_as_printed(case: Case, shell: Shell, way: str) -> None:
    hold(case)
    case.abandon("some other value")
    case.restore(77)
    assert case.reconcile() == 60
    shell(command_with(case.message("StateReadable"), way).replace("<serial>", "1"))
    requeue = case.reconcile()
    if way == "restore-state":
        assert requeue == 60
        assert case.job("restore")
    else:
        assert requeue == 0
        assert case.released


@pytest.mark.parametrize("way", ["abandon-infrastructure", "Retain"])
def test_each_command_of_a_failed_destroy_works_as_printed(case: Case, shell: Shell, way: str) -> None:
    case.destroying()
    assert case.fail(2) == [60, 120]
    shell(command_with(case.message("ApplyJobSucceeded"), way))
    assert case.reconcile() == 0
    assert case.released
