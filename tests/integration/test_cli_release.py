"""``captf abandon`` and ``captf retain``: what they show, when they say they act, and that they ask."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests import state_secrets
from tests.command_line import CommandLine
from tests.deletion_case import Case
from tests.situations import DELETIONS, LIVE, dependents, paused_deletion
from tests.world import TEAM, World

from captf_controllers.cli import release_commands
from captf_runtime.objects import labels_of, name_of
from captf_runtime.testing.faults import Match, forbidden


@pytest.fixture
def captf(world: World, tmp_path: Path) -> CommandLine:
    return CommandLine(world, world.server.kubeconfig(tmp_path / "config"))


def acts(text: str) -> str:
    """What the command says about when it acts."""
    (line,) = [line for line in text.splitlines() if line.startswith("When it acts: ")]
    return line.removeprefix("When it acts: ")


class TestAbandon:
    @pytest.mark.parametrize(
        "situation",
        [
            "state lost",
            "state corrupt",
            "state encrypted",
            "state inconsistent",
            "outcome unknown",
            "destroy failed",
            "identity refused",
            "credentials missing",
            "restore failed",
            "namespace terminating",
        ],
    )
    def test_it_says_that_it_acts_at_once_and_the_next_pass_does(
        self, captf: CommandLine, case: Case, situation: str
    ) -> None:
        DELETIONS[situation](case)
        answer = captf.run("abandon", case.kind, case.name, "--yes")
        assert answer.code == 0, answer.text
        assert acts(answer.text).startswith("at once, with the manager's next pass (")
        cause = acts(answer.text).partition("(")[2].removesuffix(").")
        case.reconcile()
        assert case.released
        (note,) = case.notes("InfrastructureAbandoned")
        assert cause[:60] in note

    @pytest.mark.parametrize(
        "situation", ["deleted", "run lease held", "slots taken", "destroy failed, due again"]
    )
    def test_it_says_so_when_a_destroy_comes_first(
        self, captf: CommandLine, case: Case, situation: str
    ) -> None:
        DELETIONS[situation](case)
        answer = captf.run("abandon", case.kind, case.name, "--yes")
        due_again = situation == "destroy failed, due again"
        assert acts(answer.text).startswith(
            "at once" if due_again else "not now: the state reads and a destroy"
        )
        case.reconcile()
        assert case.released is due_again

    @pytest.mark.parametrize(
        ("situation", "expected"),
        [
            ("never applied", "never: the deletion ends without it (no-state)"),
            ("destroyed", "never: the deletion ends without it (destroyed)"),
            ("retained", "never: spec.deletionPolicy is Retain"),
            ("foreign state", "never: the deletion ends without it (released)"),
            ("foreign state adopted", "not yet: the state of an earlier object is taken over first"),
        ],
    )
    def test_where_it_has_nothing_to_do(
        self, captf: CommandLine, case: Case, situation: str, expected: str
    ) -> None:
        DELETIONS[situation](case)
        assert acts(captf.run("abandon", case.kind, case.name).text).startswith(expected)

    def test_where_something_stands_before_it(self, captf: CommandLine, cluster_case: Case) -> None:
        case = cluster_case
        dependents(case)
        assert acts(captf.run("abandon", "tfc", "c1").text).startswith("not before the machines and pools")

    def test_a_job_that_runs(self, captf: CommandLine, case: Case) -> None:
        case.destroying()
        said = acts(captf.run("abandon", case.kind, case.name).text)
        assert said.startswith("not before destroy Job captf-")

    def test_a_pause(self, captf: CommandLine, case: Case) -> None:
        paused_deletion(case)
        assert acts(captf.run("abandon", case.kind, case.name).text) == "not while the object is paused."

    def test_a_live_object_is_warned_about(self, captf: CommandLine, case: Case) -> None:
        LIVE["healthy"](case)
        answer = captf.run("abandon", case.kind, case.name, "--yes", "--wait")
        assert acts(answer.text).startswith("not before the object is deleted, and then only when")
        assert "set ahead of time" in answer.text
        assert answer.text.endswith("The object is not being deleted: there is nothing to wait for.\n")

    def test_it_shows_what_is_left_running_and_what_is_lost(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["destroy failed"](case)
        text = captf.run("abandon", case.kind, case.name).text
        assert "Left running, by the state of serial 1:\n  x.r0\n  1 resource instance in all\n" in text
        assert "Lost: 1 state, 1 backup (serials: 1) and 2 inputs Secrets. Save them first" in text
        assert f"kubectl get secrets -n {TEAM} -l tfstate=true,tfstateSecretSuffix={case.suffix}" in text
        assert "s3cret" not in text

    def test_a_lost_state_is_told_from_its_backup(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        text = captf.run("abandon", case.kind, case.name).text
        assert "by the backup of serial 1, taken 2026-01-01T00:00:00Z, as the state does not read:" in text
        assert "  x.r0\n" in text

    def test_without_any_state_only_the_provider_knows(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost, no backup"](case)
        text = captf.run("abandon", case.kind, case.name).text
        assert "no state and no backup reads: only the provider can tell:\n  (unknown)\n" in text

    def test_a_long_list_is_cut_and_counted(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.world.write_state(case.kind, case.name, cluster=case.cluster, resources=60)
        case.delete()
        text = captf.run("abandon", case.kind, case.name).text
        assert "… and 20 more (captf state list shows all)" in text
        assert "60 resource instances in all" in text

    def test_set_already_nothing_is_asked(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["abandoned too early"](case)
        answer = captf.run("abandon", case.kind, case.name)
        assert answer.code == 0
        assert "is set already" in answer.text

    def test_waiting_until_it_is_gone(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        case.patch({"metadata": {"finalizers": [case.finalizer]}})
        answer = captf.run(
            "abandon", case.kind, case.name, "--yes", "--wait", between=lambda _: case.reconcile()
        )
        assert answer.code == 0, answer.text
        assert "it is abandoned: let go without a destroy" in answer.text
        assert answer.text.endswith(f"{case.kind.lower()} {case.name} is gone.\n")

    def test_waiting_ends_with_what_it_still_waits_for(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["run lease held"](case)

        def between(seconds: float) -> None:
            case.advance(seconds)

        answer = captf.run(
            "abandon", case.kind, case.name, "--yes", "--wait", "--timeout", "5s", between=between
        )
        assert answer.code == 1
        assert "the next Job waits for another one" in answer.text
        assert "still waits after 5 seconds (--timeout)" in answer.text

    def test_an_object_made_anew_meanwhile_is_left_alone(
        self, captf: CommandLine, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The question was about the object that was shown."""
        case.add()

        def make_anew(yes: bool, question: str) -> None:
            case.world.delete(case.kind, case.name)
            case.world.add(case.kind, case.name, cluster=case.cluster)

        monkeypatch.setattr(release_commands, "ask", make_anew)
        answer = captf.run("abandon", case.kind, case.name)
        assert answer.code == 1
        assert "captf.io/abandon-infrastructure" not in case.annotations

    def test_what_the_state_holds_may_be_unknown(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        case.world.server.faults.add(Match(resource="secrets"), forbidden())
        text = captf.run("abandon", case.kind, case.name).text
        assert "(unknown)" in text
        assert "that cannot be told without the permission to get secrets" in text
        assert "list secrets in namespace team-a" in text


class TestRetain:
    @pytest.mark.parametrize(
        "situation",
        ["deleted", "state lost", "destroy failed", "inputs gone", "identity refused", "outcome unknown"],
    )
    def test_it_says_that_it_acts_at_once_and_the_next_pass_does(
        self, captf: CommandLine, machine_case: Case, situation: str
    ) -> None:
        case = machine_case
        DELETIONS[situation](case)
        answer = captf.run("retain", case.kind, case.name, "--yes")
        assert answer.code == 0, answer.text
        assert acts(answer.text) == "at once, with the manager's next pass."
        case.reconcile()
        assert case.released
        assert case.notes("InfrastructureRetained")

    def test_it_shows_what_is_kept(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["destroy failed"](case)
        text = captf.run("retain", case.kind, case.name).text
        assert (
            f"Kept: 1 state, 1 backup (serials: 1) and 2 inputs Secrets, labelled captf.io/retained-from-uid={case.uid}"
            in text
        )
        assert "spec.adoptRetainedState: true" in text

    def test_a_succeeded_destroy_cannot_be_retained(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["destroyed"](case)
        assert (
            acts(captf.run("retain", case.kind, case.name).text)
            == "never: the destroy has succeeded already."
        )

    def test_dependents_come_first(self, captf: CommandLine, cluster_case: Case) -> None:
        dependents(cluster_case)
        said = acts(captf.run("retain", "tfc", "c1").text)
        assert said == "not before the machines and pools of the cluster are gone."

    def test_a_terminating_namespace_takes_it_all(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["namespace terminating"](case)
        text = captf.run("retain", case.kind, case.name).text
        assert "The namespace is being deleted and takes them with it: save them first." in text

    def test_waiting_until_it_is_gone(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.delete(keep=False)
        answer = captf.run(
            "retain", f"{case.kind}/{case.name}", "-y", "--wait", between=lambda _: case.reconcile()
        )
        assert answer.code == 0, answer.text
        assert answer.text.endswith("is gone.\n")


class TestNothingOfItsOwn:
    @pytest.mark.parametrize("verb", ["abandon", "retain"])
    def test_the_state_of_an_earlier_object_is_not_promised_anything(
        self, captf: CommandLine, case: Case, verb: str
    ) -> None:
        LIVE["found retained"](case)
        (earlier,) = {labels_of(secret)["captf.io/retained-from-uid"] for secret in case.states()}
        text = captf.run(verb, case.kind, case.name).text
        assert "the state found under its name is that of an earlier object" in text
        assert f"they bear captf.io/retained-from-uid={earlier}." in text
        assert "Kept:" not in text
        assert "Lost:" not in text
        case.delete()
        case.reconcile()
        assert case.released
        assert {labels_of(secret)["captf.io/retained-from-uid"] for secret in case.states()} == {earlier}

    @pytest.mark.parametrize("verb", ["abandon", "retain"])
    def test_an_empty_state_does_not_say_that_nothing_runs_while_an_apply_is_unknown(
        self, captf: CommandLine, machine_case: Case, verb: str
    ) -> None:
        case = machine_case
        case.add()
        case.settle()
        job = case.job("apply")
        case.world.start_pod(job)
        empty = state_secrets.payload(state_secrets.document(serial=1, resources=0))
        case.world.write_state(case.kind, case.name, cluster=case.cluster, payload=empty)
        case.end("no-result")
        case.reconcile()
        case.delete()
        case.reconcile()
        assert case.says("StateReadable") == "False/ApplyOutcomeUnknown"
        text = captf.run(verb, case.kind, case.name).text
        assert f"and whatever Job {name_of(job)} created without a word:\n  (unknown)" in text

    @pytest.mark.parametrize(("verb", "word"), [("abandon", "Lost"), ("retain", "Kept")])
    def test_it_says_when_no_secret_is_left(
        self, captf: CommandLine, case: Case, verb: str, word: str
    ) -> None:
        case.provision()
        case.remove_secrets([*case.states(), *case.backups()])
        for name in case.inputs_secrets:
            case.remove_secret(name)
        case.delete()
        case.reconcile()
        text = captf.run(verb, case.kind, case.name).text
        assert f"{word}: nothing; no state, backup or inputs Secret of it is left." in text
        assert "takes them over" not in text


class TestAsking:
    def test_without_a_terminal_and_without_yes_nothing_is_done(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        for verb in ("abandon", "retain"):
            answer = captf.run(verb, case.kind, case.name)
            assert answer.code == 1
            assert "there is no terminal to ask at: give --yes" in answer.text
        assert "captf.io/abandon-infrastructure" not in case.annotations
        assert "deletionPolicy" not in case.object["spec"]

    @pytest.mark.parametrize(("reply", "done"), [("n", False), ("", False), ("y", True)])
    def test_at_a_terminal_it_asks(
        self, captf: CommandLine, machine_case: Case, reply: str, done: bool
    ) -> None:
        case = machine_case
        DELETIONS["state lost"](case)
        outer, inner = pty.openpty()
        try:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "captf_controllers.cli.captf",
                    "abandon",
                    "tfm",
                    case.name,
                    "-n",
                    TEAM,
                    "--kubeconfig",
                    str(captf.kubeconfig),
                ],
                stdin=inner,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )
            os.write(outer, f"{reply}\n".encode())
            printed, _ = process.communicate(timeout=180)
        finally:
            os.close(outer)
            os.close(inner)
        assert f"Set captf.io/abandon-infrastructure={case.uid}? [y/N]" in printed
        assert process.returncode == (0 if done else 1)
        assert (case.annotations.get("captf.io/abandon-infrastructure") == case.uid) is done

    def test_what_may_not_be_written_is_named(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        case.world.server.faults.add(Match(verb="patch"), forbidden())
        answer = captf.run("retain", case.kind, case.name, "--yes")
        assert answer.code == 1
        assert f"you may not patch terraform{case.kind.removeprefix('Terraform').lower()}s." in answer.text

    @pytest.mark.parametrize("verb", ["abandon", "retain"])
    def test_objects_that_it_cannot_help(self, captf: CommandLine, case: Case, verb: str) -> None:
        case.provision()
        case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": "else"}}})
        answer = captf.run(verb, case.kind, case.name, "--yes")
        assert answer.code == 1
        assert "is externally managed" in answer.text

    @pytest.mark.parametrize("verb", ["abandon", "retain"])
    def test_objects_that_captf_has_let_go(self, captf: CommandLine, case: Case, verb: str) -> None:
        DELETIONS["never applied"](case)
        case.reconcile()
        answer = captf.run(verb, case.kind, case.name, "--yes")
        assert answer.code == 1
        assert "CAPTF has let" in answer.text
