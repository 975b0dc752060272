"""The commands that ``captf why`` prints do what they say when pasted, and captf is a kubectl plugin."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command_line import CommandLine
from tests.deletion_case import Case
from tests.kubectl import Shell
from tests.situations import DELETIONS, LIVE, dependents, paused_deletion
from tests.world import TEAM, World

from captf_controllers.api.kinds import TERRAFORM_PLAN
from captf_runtime.objects import name_of

#: What needs a node: the output of a pod.
NOT_HERE = ("kubectl logs ",)

SITUATIONS: dict[str, Callable[[Case], None]] = {
    **{f"deleting: {name}": DELETIONS[name] for name in DELETIONS},
    **{f"live: {name}": LIVE[name] for name in LIVE},
    "deleting: paused": paused_deletion,
}


@pytest.fixture
def shell(world: World, tmp_path: Path) -> Shell:
    return Shell(world, tmp_path)


@pytest.fixture
def captf(world: World, shell: Shell) -> CommandLine:
    return CommandLine(world, shell.kubeconfig)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_printed_command_runs(
    machine_case: Case, captf: CommandLine, shell: Shell, situation: str
) -> None:
    case = machine_case
    SITUATIONS[situation](case)
    for command in captf.commands(case):
        if any(text in command for text in NOT_HERE):
            continue
        ran = shell.run(command)
        assert ran.code == 0, f"{command}\n{ran.text}"


def test_the_commands_of_a_cluster_with_dependents_run(
    cluster_case: Case, captf: CommandLine, shell: Shell
) -> None:
    dependents(cluster_case)
    for command in captf.commands(cluster_case):
        ran = shell.run(command)
        assert ran.code == 0, f"{command}\n{ran.text}"


def test_what_an_abandon_loses_is_saved_by_the_commands_that_it_prints(
    machine_case: Case, captf: CommandLine, shell: Shell, tmp_path: Path
) -> None:
    case = machine_case
    DELETIONS["destroy failed"](case)
    printed = captf.run("abandon", case.kind, case.name).text
    commands = [line.strip() for line in printed.splitlines() if line.startswith("  kubectl ")]
    assert len(commands) == 3
    for command in commands:
        assert shell.run(command).code == 0
    saved = "".join(file.read_text() for file in tmp_path.glob(f"{case.name}-*.yaml"))
    for name in (*map(name_of, case.states()), *map(name_of, case.backups()), *case.inputs_secrets):
        assert f"  name: {name}\n" in saved


def test_a_plan_is_approved_in_the_name_of_whoever_pastes_the_command(
    cluster_case: Case, captf: CommandLine, shell: Shell
) -> None:
    case = cluster_case
    case.provision(applyPolicy="Manual")
    case.spec(source={"image": "example.com/modules/x:v2"})
    case.settle()
    plan = {
        "hash": "p2:" + "1" * 64,
        **dict.fromkeys(("create", "update", "delete"), 0),
        "replace": 1,
        "resources": ["module.role.terraform_data.network (replace)"],
    }
    case.world.finish_job(case.world.running_job(case.name), plan=plan, steps=("init", "validate", "plan"))
    case.settle()
    (command,) = [command for command in captf.commands(case) if "approvedBy" in command]
    ran = shell.run(command)
    assert ran.code == 0, ran.text
    reader = shell.run("kubectl auth whoami -o jsonpath='{.status.userInfo.username}'").text
    (approved,) = case.world.client.list(TERRAFORM_PLAN, TEAM).items
    assert approved["spec"]["approved"] is True
    assert approved["spec"]["approvedBy"] == reader != ""


@pytest.mark.parametrize(
    ("situation", "way", "ends"),
    [
        ("state lost", "captf.io/restore-state=", "restore Job"),
        ("state lost", "captf.io/abandon-infrastructure=", "gone"),
        ("state corrupt", '"deletionPolicy":"Retain"', "gone"),
        ("outcome unknown", "captf.io/confirm-no-resources=", "gone"),
        ("destroy failed", "captf.io/abandon-infrastructure=", "gone"),
        ("inputs gone", "captf.io/abandon-infrastructure=", "gone"),
        ("credentials missing", "captf.io/abandon-infrastructure=", "gone"),
        ("namespace terminating", "captf.io/abandon-infrastructure=", "gone"),
        ("run lease held", '"deletionPolicy":"Retain"', "waits"),
    ],
)
def test_a_pasted_way_out_is_taken(
    machine_case: Case, captf: CommandLine, shell: Shell, situation: str, way: str, ends: str
) -> None:
    case = machine_case
    DELETIONS[situation](case)
    (command,) = [command for command in captf.commands(case) if way in command]
    assert shell.run(command).code == 0
    case.reconcile()
    if ends == "gone":
        assert case.released
    elif ends == "restore Job":
        assert case.job("restore")
    else:
        assert captf.why(case)["findings"][0]["code"] == "RunLeaseLive"


@pytest.mark.parametrize(
    ("situation", "way"),
    [("found retained", "adoptRetainedState"), ("found retained", "kubectl delete secrets")],
)
def test_a_pasted_exit_of_a_live_object_is_taken(
    machine_case: Case, captf: CommandLine, shell: Shell, situation: str, way: str
) -> None:
    case = machine_case
    LIVE[situation](case)
    (command,) = [command for command in captf.commands(case) if way in command]
    assert shell.run(command).code == 0
    case.reconcile()
    case.settle()
    assert case.says("StateReadable") != "False/RetainedStateFound"


def test_a_secret_of_variables_is_read_after_the_printed_command(
    machine_case: Case, captf: CommandLine, shell: Shell
) -> None:
    case = machine_case
    LIVE["variables unlabelled"](case)
    (command,) = captf.commands(case)
    assert shell.run(command).code == 0
    case.reconcile()
    case.settle()
    assert case.job("apply")


def test_drift_is_corrected_after_the_printed_command(
    cluster_case: Case, captf: CommandLine, shell: Shell
) -> None:
    case = cluster_case
    case.provision(drift={"intervalSeconds": 300})
    drifted(case)
    (command,) = [command for command in captf.commands(case) if "kubectl logs" not in command]
    assert shell.run(command).code == 0
    case.settle()
    assert case.job("apply")
    assert "Remediate" not in " ".join(captf.commands(case))


def test_drift_of_a_machine_is_only_reported(machine_case: Case, captf: CommandLine) -> None:
    case = machine_case
    case.provision(drift={"intervalSeconds": 300})
    drifted(case)
    assert "Remediate" not in " ".join(captf.commands(case))


def drifted(case: Case) -> None:
    """The next drift check finds something."""
    for _ in range(6):
        due = case.settle()
        running = [job for job in case.jobs("drift") if not (job.get("status") or {}).get("conditions")]
        if running:
            break
        case.advance(due)
    found = {"create": 0, "update": 1, "replace": 0, "delete": 0, "resources": ["module.role.x.a"]}
    case.world.finish_job(running[0], drift=found)
    case.settle()


def test_captf_is_a_kubectl_plugin(machine_case: Case, shell: Shell) -> None:
    case = machine_case
    DELETIONS["state lost"](case)
    for words in ("kubectl captf", "captf"):
        ran = shell.run(f"{words} why tfm/{case.name} -n {TEAM} -o json")
        assert ran.code == 0, ran.text
        assert json.loads(ran.text)["findings"][0]["code"] == "StateLost"


def test_the_namespace_of_the_context_is_the_default(machine_case: Case, shell: Shell) -> None:
    case = machine_case
    case.provision()
    missing = shell.run(f"captf why tfm {case.name}")
    assert missing.code == 1
    assert "not found in namespace default" in missing.text
    assert shell.run(f"kubectl config set-context --current --namespace={TEAM}").code == 0
    assert shell.run(f"captf why tfm {case.name}").code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--kubeconfig /nowhere", "kubeconfig /nowhere does not exist"),
        ("--context nowhere", "it has no context nowhere: kubectl config get-contexts lists them"),
    ],
)
def test_a_configuration_that_is_not_there(shell: Shell, options: str, says: str) -> None:
    ran = shell.run(f"captf why tfm m1 {options}")
    assert ran.code == 1
    assert ran.text.startswith("Error: ")
    assert says in ran.text
    assert ran.text.count("\n") == 1
