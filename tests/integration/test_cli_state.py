"""``captf state``: what it reads, what it never prints, and restoring from a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import state_secrets
from tests.command_line import CommandLine
from tests.deletion_case import Case
from tests.situations import DELETIONS, LIVE, LOCK_HOLDER
from tests.world import OUTPUTS, TEAM, Outcome, World

from captf_controllers.api import names
from captf_runtime.objects import JOB, SECRET, name_of
from captf_runtime.testing.faults import Match, forbidden

MARKER = "m4rker-of-a-secret"


@pytest.fixture
def captf(world: World, tmp_path: Path) -> CommandLine:
    return CommandLine(world, world.server.kubeconfig(tmp_path / "config"))


def write_outputs(case: Case, **outputs: object) -> None:
    case.world.write_state(
        case.kind, case.name, cluster=case.cluster, outputs={**OUTPUTS[case.kind], **outputs}, resources=2
    )


class TestReading:
    def test_addresses(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        write_outputs(case)
        assert captf.run("state", "list", case.kind, case.name).text == "x.r0\nx.r1\n"
        assert captf.run("state", "list", case.kind, case.name, "-o", "json").json == ["x.r0", "x.r1"]

    def test_what_a_state_is(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        document = captf.run("state", "show", case.kind, case.name, "-o", "json").json
        assert document["serial"] == 1
        assert document["terraformVersion"] == "1.11.4"
        assert document["managedResources"] == document["resourceInstances"] == 1
        assert document["secrets"] == [names.state_secret(case.suffix)]
        assert document["inputsHash"].startswith("h2:")
        assert document["lock"]["state"] == "free"
        assert [output["name"] for output in document["outputs"]] == sorted(OUTPUTS[case.kind])
        text = captf.run("state", "show", case.kind, case.name).text
        assert "Serial:            1\n" in text
        assert "  health: dynamic\n" in text

    @pytest.mark.parametrize("form", [[], ["-o", "json"]])
    def test_values_are_printed_only_when_asked_for(
        self, captf: CommandLine, case: Case, form: list[str]
    ) -> None:
        case.provision()
        write_outputs(case, password=MARKER)
        shown = captf.run("state", "show", case.kind, case.name, *form)
        assert "password" in shown.text
        asked = captf.run("state", "show", case.kind, case.name, *form, "--show-sensitive")
        assert MARKER in asked.text
        for command in (["state", "list"], ["state", "backups"], ["why"]):
            assert MARKER not in captf.run(*command, case.kind, case.name, *form).text
        assert MARKER not in shown.text
        assert "s3cret" not in asked.text, "attributes of resources are never printed"

    def test_who_holds_the_lock(self, captf: CommandLine, case: Case) -> None:
        LIVE["locked"](case)
        assert (
            f"held by somebody else ({LOCK_HOLDER}" in captf.run("state", "show", case.kind, case.name).text
        )

    def test_whose_state_it_is(self, captf: CommandLine, case: Case) -> None:
        LIVE["found retained"](case)
        text = captf.run("state", "show", case.kind, case.name).text
        assert "Retained:          from an earlier object of this name, UID " in text

    @pytest.mark.parametrize(
        ("situation", "says"),
        [
            ("state lost", "has no state: there is no Secret tfstate-default-"),
            ("state corrupt", "the state cannot be read (StateCorrupt)"),
            ("state encrypted", "the state cannot be read (StateEncrypted)"),
            ("state inconsistent", "the state cannot be read (StateInconsistent)"),
        ],
    )
    def test_a_state_that_does_not_read(
        self, captf: CommandLine, case: Case, situation: str, says: str
    ) -> None:
        DELETIONS[situation](case)
        for command in ("list", "show"):
            answer = captf.run("state", command, case.kind, case.name)
            assert answer.code == 1
            assert answer.text.startswith("Error: ")
            assert says in answer.text
            assert answer.text.count("\n") == 1

    def test_a_state_in_chunks(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        content = state_secrets.document(serial=9, resources=300)
        pieces = state_secrets.chunks_of(state_secrets.payload(content), 200)
        case.remove_secrets(case.states())
        labels = names.state_labels(case.kind, case.name, case.cluster)
        for secret in state_secrets.state_secrets(pieces, suffix=case.suffix, labels=labels):
            case.world.client.create(SECRET, secret, TEAM)
        assert len(captf.run("state", "list", case.kind, case.name).text.split()) == 300

    def test_forbidden_names_verb_and_resource(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.world.server.faults.add(Match(resource="secrets"), forbidden())
        answer = captf.run("state", "list", case.kind, case.name)
        assert answer.code == 1
        assert f"forbidden: you may not list secrets in namespace {TEAM}." in answer.text


class TestBackups:
    def test_newest_first_and_checked(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.advance(60)
        write_outputs(case)
        case.settle()
        listed = captf.run("state", "backups", case.kind, case.name, "-o", "json").json
        assert [(item["serial"], item["check"], item["complete"]) for item in listed] == [
            (2, "ok", True),
            (1, "ok", True),
        ]
        text = captf.run("state", "backups", case.kind, case.name).text.splitlines()
        assert text[0].split() == ["SERIAL", "TAKEN", "AGE", "BYTES", "RESOURCES", "CHECK", "NAME"]
        assert text[1].split()[0] == "2"

    def test_a_damaged_one(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        damage(case)
        (item,) = captf.run("state", "backups", case.kind, case.name, "-o", "json").json
        assert item["check"] == "damaged"

    def test_an_incomplete_one(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        (backup,) = case.backups()
        patch = {"metadata": {"annotations": {"captf.io/state-backup-chunks": "2"}}}
        case.world.client.patch(SECRET, name_of(backup), patch, TEAM)
        (item,) = captf.run("state", "backups", case.kind, case.name, "-o", "json").json
        assert (item["check"], item["complete"]) == ("incomplete", False)

    def test_none(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.remove_secrets(case.backups())
        assert "has no backup of its state" in captf.run("state", "backups", case.kind, case.name).text
        assert captf.run("state", "backups", case.kind, case.name, "-o", "json").json == []


class TestRestore:
    def test_a_live_object(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.advance(60)
        write_outputs(case)
        case.settle()
        answer = captf.run(
            "state", "restore", case.kind, case.name, "--serial", "1", "--yes", between=manager(case)
        )
        assert answer.code == 0, answer.text
        assert "its state becomes the backup of serial 1, taken 2026-01-01T00:00:00Z (1m)." in answer.text
        assert "no longer known after the restore: 1\n    x.r1\n" in answer.text
        assert "known again after the restore: none" in answer.text
        assert answer.text.endswith("Serial 1 is restored.\n")
        case.settle()
        assert captf.run("state", "list", case.kind, case.name).text == "x.r0\n"

    def test_a_held_deletion(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        answer = captf.run(
            "state", "restore", case.kind, case.name, "--serial", "1", "-y", between=manager(case)
        )
        assert answer.code == 0, answer.text
        assert "There is no state that reads now." in answer.text
        assert "Serial 1 is restored.\nThe destroy follows" in answer.text

    def test_a_failure_is_reported(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        answer = captf.run(
            "state", "restore", case.kind, case.name, "--serial", "1", "-y", between=manager(case, "failed")
        )
        assert answer.code == 1
        assert "serial 1 is not restored again while captf.io/restore-state names it" in answer.text

    def test_the_same_serial_again(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["restore failed"](case)
        answer = captf.run(
            "state", "restore", case.kind, case.name, "--serial", "1", "-y", between=manager(case)
        )
        assert answer.code == 0, answer.text
        assert "that request is withdrawn first" in answer.text
        assert "Serial 1 is restored." in answer.text

    def test_what_is_said_of_an_earlier_request_is_no_answer(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["restore not found"](case)
        answer = captf.run(
            "state", "restore", case.kind, case.name, "--serial", "1", "-y", between=manager(case)
        )
        assert answer.code == 0, answer.text
        assert "Serial 1 is restored." in answer.text

    def test_an_earlier_restore_whose_job_is_gone_is_no_answer(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.restore(1)
        case.settle()
        case.end()
        case.settle()
        for job in case.jobs("restore"):
            case.world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
        assert case.says("RestoreJobSucceeded") == "True/StateRestored"
        answer = captf.run(
            "state", "restore", case.kind, case.name, "--serial", "1", "-y", between=manager(case, "failed")
        )
        assert answer.code == 1
        assert "is not restored again" in answer.text

    def test_without_waiting(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        answer = captf.run("state", "restore", case.kind, case.name, "--serial", "1", "-y", "--no-wait")
        assert answer.code == 0
        assert answer.text.endswith("captf.io/restore-state=1 is set.\n")

    def test_it_asks(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        answer = captf.run("state", "restore", case.kind, case.name, "--serial", "1")
        assert answer.code == 1
        assert "there is no terminal to ask at" in answer.text
        assert "captf.io/restore-state" not in case.annotations

    def test_a_serial_that_is_not_there(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        answer = captf.run("state", "restore", case.kind, case.name, "--serial", "9", "-y")
        assert answer.code == 1
        assert "serial 9: there is no backup of that serial; complete backups: 1" in answer.text

    def test_a_damaged_backup(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        damage(case)
        answer = captf.run("state", "restore", case.kind, case.name, "--serial", "1", "-y")
        assert answer.code == 1
        assert "does not have the digest that it was taken with" in answer.text

    @pytest.mark.parametrize(
        ("situation", "says"),
        [
            ("deleted", "its deletion is not held: a restore would be ignored"),
            ("retained", "deletionPolicy Retain: nothing is restored"),
            ("abandoned", "remove the annotation captf.io/abandon-infrastructure first"),
            ("foreign state", "found the state of an earlier object"),
        ],
    )
    def test_where_it_would_be_ignored(
        self, captf: CommandLine, case: Case, situation: str, says: str
    ) -> None:
        DELETIONS[situation](case)
        answer = captf.run("state", "restore", case.kind, case.name, "--serial", "1", "-y")
        assert answer.code == 1
        assert says in answer.text
        assert "captf.io/restore-state" not in case.annotations

    def test_a_paused_object(self, captf: CommandLine, case: Case) -> None:
        LIVE["paused by annotation"](case)
        answer = captf.run("state", "restore", case.kind, case.name, "--serial", "1", "-y")
        assert answer.code == 1
        assert "no restore starts until it is unpaused" in answer.text


def manager(case: Case, outcome: Outcome = "succeeded") -> Callable[[float], None]:
    """A manager that makes one pass between two looks, and Jobs that end then."""

    def between(seconds: float) -> None:
        case.advance(seconds)
        case.reconcile()
        running = [job for job in case.jobs("restore") if not (job.get("status") or {}).get("conditions")]
        if running:
            case.end(outcome)

    return between


def damage(case: Case) -> None:
    """Change the payload of the one backup."""
    (backup,) = case.backups()
    other = state_secrets.secret("x", state_secrets.payload(state_secrets.document(serial=1, resources=9)))
    case.world.client.patch(SECRET, name_of(backup), {"data": other["data"]}, TEAM)


def test_json_is_one_document(captf: CommandLine, case: Case) -> None:
    case.provision()
    for command in (["why"], ["state", "show"], ["state", "list"], ["state", "backups"]):
        answer = captf.run(*command, case.kind, case.name, "-o", "json")
        json.loads(answer.text)
