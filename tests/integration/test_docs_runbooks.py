"""Every command of the runbooks in docs/deletion.md works as it is printed, with the real kubectl."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.deletion_case import Case
from tests.kubectl import Shell
from tests.situations import (
    DELETIONS,
    LIVE,
    Situation,
    dependents,
    found_retained,
    paused_deletion,
    refuse_identity,
)
from tests.world import IDENTITY, TEAM, World

from captf_controllers.api.kinds import CLUSTER, TERRAFORM_CLUSTER_IDENTITY
from captf_runtime.objects import LEASE, labels_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deletion.md"
RUNBOOK = re.compile(r"^<!-- runbook: ([a-z-]+) -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

RUNBOOKS: dict[str, str] = dict(RUNBOOK.findall(PAGE.read_text()))


@dataclass(frozen=True)
class Runbook:
    """A runbook's situation, and what must be true in the end."""

    situation: Situation
    check: Callable[[Case, str], None]
    kind: str = "TerraformMachine"


def released(case: Case, _: str) -> None:
    assert case.released


def destroy_starts(case: Case, _: str) -> None:
    assert case.created_jobs()[-1].startswith(f"captf-{case.short}-{case.name}-destroy-a")


def says(*texts: str) -> Callable[[Case, str], None]:
    def check(_: Case, printed: str) -> None:
        for text in texts:
            assert text in printed

    return check


def is_unlocked(case: Case, _: str) -> None:
    lease = case.world.client.get(LEASE, f"lock-tfstate-default-{case.suffix}", TEAM)
    assert "holderIdentity" not in lease["spec"]


def is_adopted(case: Case, _: str) -> None:
    assert case.says("StateReadable") == "True/StateRead"
    assert not any("captf.io/retained-from-uid" in labels_of(item) for item in case.states())


def starts_afresh(case: Case, _: str) -> None:
    assert case.jobs("apply")


def is_unpaused(case: Case, _: str) -> None:
    assert case.world.client.get(CLUSTER, case.cluster, TEAM)["spec"]["paused"] is False
    destroy_starts(case, _)


def is_withdrawn(case: Case, _: str) -> None:
    assert "captf.io/abandon-infrastructure" not in case.annotations


def is_let_in_beside_the_others(case: Case, _: str) -> None:
    identity = case.world.client.get(TERRAFORM_CLUSTER_IDENTITY, IDENTITY)
    assert identity["spec"]["allowedNamespaces"]["list"] == ["elsewhere", TEAM]
    destroy_starts(case, _)


def identity_refused(case: Case) -> None:
    case.provision()
    refuse_identity(case.world)
    case.delete()
    case.reconcile()


WITH = {
    "look": Runbook(
        DELETIONS["state lost"], says("the deletion is held", "StateReadable=False/StateLost", "SERIAL")
    ),
    "save": Runbook(LIVE["healthy"], says()),
    "bring-back": Runbook(DELETIONS["state lost"], destroy_starts),
    "state-lost": Runbook(DELETIONS["state lost"], destroy_starts),
    "state-lost-annotation": Runbook(DELETIONS["state lost"], destroy_starts),
    "state-unreadable-look": Runbook(DELETIONS["state corrupt"], says("tfstate-default-")),
    "state-inconsistent": Runbook(DELETIONS["state inconsistent"], destroy_starts),
    "state-corrupt": Runbook(DELETIONS["state corrupt"], destroy_starts),
    "outcome-unknown": Runbook(DELETIONS["outcome unknown"], released),
    "destroy-fails": Runbook(DELETIONS["destroy failed"], says("boom", "x.r0")),
    "inputs-gone": Runbook(DELETIONS["inputs gone"], released),
    "identity-look": Runbook(identity_refused, says("IdentityAllowed=False/NamespaceNotAllowed", "cloud")),
    "identity-refused": Runbook(identity_refused, is_let_in_beside_the_others),
    "lease": Runbook(DELETIONS["run lease held"], says("captf-of-another")),
    "locked": Runbook(DELETIONS["state locked"], is_unlocked),
    "dependents": Runbook(dependents, says("terraformmachine", "/a", "/b"), "TerraformCluster"),
    "paused": Runbook(paused_deletion, is_unpaused),
    "namespace": Runbook(DELETIONS["namespace terminating"], released),
    "adopt": Runbook(found_retained, is_adopted),
    "discard": Runbook(found_retained, starts_afresh),
    "retain": Runbook(DELETIONS["state lost"], released),
    "retain-patch": Runbook(DELETIONS["state lost"], released),
    "abandon": Runbook(DELETIONS["state lost"], released),
    "abandon-annotation": Runbook(DELETIONS["state lost"], released),
    "abandon-withdraw": Runbook(DELETIONS["abandoned too early"], is_withdrawn),
    "unattended": Runbook(DELETIONS["deleted"], says("cluster.x-k8s.io/cluster-name")),
    "strip": Runbook(DELETIONS["state lost"], released),
}


def test_every_command_of_the_page_is_run() -> None:
    assert set(RUNBOOKS) == set(WITH)
    marked = set(RUNBOOKS.values())
    rest = [block for block in BLOCK.findall(PAGE.read_text()) if block not in marked]
    assert [block.splitlines()[0] for block in rest] == [
        'captf why "$kind" "$name" -n "$namespace"',
        "kind=terraformmachine",
    ], "a block of commands needs a runbook mark and a test, but for the setting of the variables"


def manage(case: Case) -> None:
    """The manager and the Jobs, beside the reader's shell: a pass, and Jobs of restores that succeed."""
    case.advance(2)
    if case.world.find(case.kind, case.name) is None:
        return
    case.reconcile()
    for job in case.jobs("restore"):
        if not (job.get("status") or {}).get("conditions"):
            case.world.finish_job(job)


@pytest.mark.parametrize("name", sorted(WITH))
def test_runbook(name: str, case_of: Callable[[str], Case], tmp_path: Path) -> None:
    runbook = WITH[name]
    case = case_of(runbook.kind)
    shell = Shell(case.world, tmp_path)
    shell.variables = {
        "kind": case.kind.lower(),
        "namespace": TEAM,
        "name": case.name,
        "suffix": case.suffix,
    }
    if name == "bring-back":
        case.provision()
        copy = case.states()
        assert shell.run(RUNBOOKS["save"]).code == 0
        case.remove_secrets(copy)
        case.delete()
        case.reconcile()
    else:
        runbook.situation(case)
    if name in ("abandon", "retain"):
        case.patch({"metadata": {"finalizers": [case.finalizer]}})
    shell.between = lambda: None if name in ("unattended", "strip") else manage(case)
    ran = shell.run(RUNBOOKS[name])
    assert ran.code == 0, ran.text
    for _ in range(4):
        shell.between()
    runbook.check(case, ran.text)
    for file in re.findall(r"> (\S+\.yaml)", RUNBOOKS[name]):
        assert "kind: List" in (tmp_path / file).read_text()


def test_the_variables_are_set_by_the_commands_that_the_page_gives(
    case_of: Callable[[str], Case], tmp_path: Path
) -> None:
    case = case_of("TerraformMachine")
    case.provision()
    (setting,) = [block for block in BLOCK.findall(PAGE.read_text()) if block.startswith("kind=")]
    ran = Shell(case.world, tmp_path).run(setting + 'echo "$kind/$namespace/$name/$suffix"')
    assert ran.text.strip() == f"terraformmachine/{TEAM}/m1/{case.suffix}"


def test_what_an_object_without_a_state_left_is_discarded_too(
    case_of: Callable[[str], Case], tmp_path: Path
) -> None:
    case = case_of("TerraformMachine")
    case.provision()
    case.remove_secrets([*case.states(), *case.backups()])
    case.spec(deletionPolicy="Retain")
    case.delete(keep=False)
    case.reconcile()
    case.world.add(case.kind, case.name, cluster=case.cluster)
    case.settle()
    assert case.says("StateReadable") == "False/RetainedStateFound"
    shell = Shell(case.world, tmp_path, between=lambda: manage(case))
    shell.variables = {"kind": case.kind.lower(), "namespace": TEAM, "name": case.name, "suffix": case.suffix}
    ran = shell.run(RUNBOOKS["discard"])
    assert ran.code == 0, ran.text
    for _ in range(4):
        manage(case)
    starts_afresh(case, ran.text)


@pytest.fixture
def case_of(world: World) -> Callable[[str], Case]:
    """A case of a kind that the test chooses."""
    return lambda kind: Case(world, kind)
