"""The truth table of a deletion, its overlays and its order rules."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from captf_controllers.deletion import abandon, decision, holds
from captf_controllers.deletion.decision import AdoptRetained, Cleanup, Start, Step, Wait
from captf_controllers.deletion.facts import (
    CredentialsObstacle,
    Dependent,
    EarlyFacts,
    Facts,
    Hold,
    NoInputsObstacle,
    Obstacle,
    RefusedObstacle,
    RestoreFinding,
    RetainedFinding,
    Subject,
    TooLargeObstacle,
    WaitObstacle,
)

UID = "5f1d3c2a-0000-4000-8000-00000000000a"
SUBJECT = Subject(
    kind="TerraformMachine",
    resource="terraformmachine",
    namespace="team-a",
    name="m1",
    uid=UID,
    finalizer="terraformmachine.infrastructure.cluster.x-k8s.io",
)
HELD_REASONS = ("StateLost", "StateCorrupt", "StateEncrypted", "StateInconsistent")
IDN = CredentialsObstacle("IdentityAllowed", "False", "NamespaceNotAllowed", "team-a is not listed")
CRD = CredentialsObstacle("CredentialsMirrored", "False", "MirrorFailed", "a foreign Secret has the name")
NOI = NoInputsObstacle(("captf-inputs-m-m1", "captf-applied-m-m1"))

STATES: dict[str, dict[str, object]] = {
    "none": {},
    "readable": {"has_state": True},
    "failed": {"has_state": True, "last_destroy_failure": "DestroyFailed", "destroy_backoff": 60.0},
    "failed, due again": {"has_state": True, "last_destroy_failure": "DestroyFailed"},
    "no inputs": {"has_state": True},
    "unknown": {"hold": Hold("ApplyOutcomeUnknown", "Job j ended without a result", job="j")},
    **{reason: {"hold": Hold(reason, f"cause of {reason}")} for reason in HELD_REASONS},  # type: ignore[arg-type]
}
ANNOTATIONS: dict[str, dict[str, object]] = {
    "none": {},
    "abandon ok": {"abandon": UID},
    "abandon wrong": {"abandon": "yes"},
    "restore ok": {"restore": RestoreFinding("startable", "7", 7)},
    "restore bad": {"restore": RestoreFinding("not-found", "seven")},
    "abandon ok, restore ok": {"abandon": UID, "restore": RestoreFinding("startable", "7", 7)},
    "abandon wrong, restore ok": {"abandon": "yes", "restore": RestoreFinding("startable", "7", 7)},
}


def facts(**changes: object) -> Facts:
    early = {
        key: changes.pop(key) for key in ("destroy_succeeded", "dependents", "cluster_name") if key in changes
    }
    return Facts(early=EarlyFacts(subject=SUBJECT, **early), **changes)  # type: ignore[arg-type]


def resolve(given: Facts, *obstacles: Obstacle) -> Step:
    """The step, and, when it starts a Job, what the first obstacle in the way makes of it."""
    step = decision.decide(given)
    if isinstance(step, Start) and obstacles:
        return decision.at_obstacle(given, step.operation, obstacles[0])
    return step


def code(step: Step) -> str:
    match step:
        case Cleanup("no-state"):
            return "FIN"
        case Cleanup("retained"):
            return "RET"
        case Cleanup("abandoned", cause):
            if cause.startswith("StateReadable "):
                return "ABN:s"
            if cause.startswith("the last destroy failed: ApplyJobSucceeded "):
                return "ABN:f"
            if cause.startswith("the destroy cannot start: it waits for its credentials: "):
                return "ABN:c"
            return "ABN:i" if cause.endswith("the durable inputs Secret is missing") else "ABN:?"
        case Start("destroy"):
            return "DST"
        case Start("restore"):
            return "RST"
        case Wait("DeletingBackoff"):
            return "BKO"
        case Wait("IdentityNotAllowed"):
            return "IDN"
        case Wait("WaitingForCredentials", _, conditions):
            return "CRDr" if conditions[-1].message.startswith("The restore Job") else "CRD"
        case Wait("DestroyFailed"):
            return "NOI"
        case Wait("DeletionHeld", _, conditions):
            if any(condition.reason == "RestoreBackupNotFound" for condition in conditions):
                return "HLDr"
            return "HLD+" if "is ignored" in conditions[0].message else "HLD"
        case _:
            return repr(step)


def rows() -> list[tuple[str, str, str, str, str]]:
    """(state, annotation, code with credentials, code when refused, code when not prepared)."""
    table: list[tuple[str, str, str, str, str]] = []

    def row(state: str, notes: str, ok: str, refused: str, missing: str) -> None:
        table.extend((state, note, ok, refused, missing) for note in notes.split("|"))

    row("none", "none|abandon ok|abandon wrong|restore bad", "FIN", "FIN", "FIN")
    row("readable", "none|abandon wrong|restore ok|restore bad", "DST", "IDN", "CRD")
    row("readable", "abandon ok", "DST", "ABN:c", "ABN:c")
    row("failed", "none|abandon wrong|restore ok|restore bad", "BKO", "BKO", "BKO")
    row("failed, due again", "none|abandon wrong|restore ok|restore bad", "DST", "IDN", "CRD")
    row("failed", "abandon ok", "ABN:f", "ABN:f", "ABN:f")
    row("failed, due again", "abandon ok", "ABN:f", "ABN:f", "ABN:f")
    row("no inputs", "none|abandon wrong|restore ok|restore bad", "NOI", "IDN", "CRD")
    row("no inputs", "abandon ok", "ABN:i", "ABN:c", "ABN:c")
    for state in (*HELD_REASONS, "unknown"):
        row(state, "none", "HLD", "HLD", "HLD")
        row(state, "abandon ok|abandon ok, restore ok", "ABN:s", "ABN:s", "ABN:s")
        row(state, "abandon wrong", "HLD+", "HLD+", "HLD+")
        row(state, "restore ok|abandon wrong, restore ok", "RST", "CRDr", "CRDr")
        row(state, "restore bad", "HLDr", "HLDr", "HLDr")
    return table


@pytest.mark.parametrize("policy", ["Destroy", "Retain"])
@pytest.mark.parametrize(("state", "annotation", "ok", "refused", "missing"), rows())
def test_truth_table(state: str, annotation: str, ok: str, refused: str, missing: str, policy: str) -> None:
    given = facts(**STATES[state], **ANNOTATIONS[annotation], policy=policy)
    inputs = (NOI,) if state == "no inputs" else ()
    answers = [code(resolve(given, *inputs)), code(resolve(given, IDN)), code(resolve(given, CRD))]
    assert answers == (["RET"] * 3 if policy == "Retain" else [ok, refused, missing])


class TestOrder:
    """Each rule about what beats what."""

    everything: ClassVar[dict[str, Any]] = {
        "hold": Hold("StateLost", "gone"),
        "abandon": UID,
        "restore": RestoreFinding("startable", "7", 7),
        "retained": RetainedFinding("other-uid"),
        "policy": "Retain",
    }

    def test_a_succeeded_destroy_beats_everything(self) -> None:
        given = facts(
            **self.everything, destroy_succeeded=True, dependents=(Dependent("TerraformMachine", "a"),)
        )
        assert decision.decide(given) == Cleanup("destroyed")

    def test_dependents_beat_retained_state_retain_and_abandon(self) -> None:
        given = facts(**self.everything, dependents=(Dependent("TerraformMachine", "a"),), cluster_name="c")
        step = decision.decide(given)
        assert isinstance(step, Wait)
        assert (step.reason, step.requeue_after) == ("DependentsExist", 30.0)

    def test_retained_state_of_another_object_is_never_cleaned(self) -> None:
        assert decision.decide(facts(**self.everything)) == Cleanup("released", retaining_uid="other-uid")

    def test_adoption_comes_before_everything_that_reads_the_state(self) -> None:
        given = facts(**self.everything, adopt_retained=True)
        assert decision.decide(given) == AdoptRetained("other-uid")

    def test_retain_beats_abandon(self) -> None:
        given = facts(**{**self.everything, "retained": RetainedFinding()})
        assert decision.decide(given) == Cleanup("retained")

    def test_retain_and_abandon_beat_the_backoff(self) -> None:
        failed = STATES["failed"]
        assert code(decision.decide(facts(**failed, policy="Retain"))) == "RET"
        assert code(decision.decide(facts(**failed, abandon=UID))) == "ABN:f"


class TestMessages:
    """Nobody is left without a way out, named in full."""

    def held(self, **changes: object) -> str:
        step = decision.decide(facts(hold=Hold("StateLost", "the state Secret x is missing"), **changes))
        assert isinstance(step, Wait)
        return step.conditions[0].message

    def test_a_hold_names_cause_and_every_exit(self) -> None:
        message = self.held()
        for part in (
            "Deletion is held",
            "the state Secret x is missing",
            "kubectl annotate terraformmachine -n team-a m1 captf.io/restore-state=<serial>",
            "status.stateBackups",
            f"kubectl annotate terraformmachine -n team-a m1 captf.io/abandon-infrastructure={UID}",
            "spec.deletionPolicy: Retain",
            """kubectl patch terraformmachine -n team-a m1 --type merge -p '{"spec":""",
        ):
            assert part in message

    @pytest.mark.parametrize("value", ["yes", f" {UID}", f"{UID} ", UID.upper(), ""])
    def test_any_other_abandon_value_is_ignored_and_answered(self, value: str) -> None:
        message = self.held(abandon=value)
        assert holds.quoted(value) in message
        assert f"is ignored: it is not this object's UID {UID}" in message

    def test_an_unknown_outcome_offers_the_confirmation_and_claims_no_apply(self) -> None:
        step = decision.decide(facts(**STATES["unknown"]))
        assert isinstance(step, Wait)
        message = step.conditions[0].message
        assert "captf.io/confirm-no-resources=j" in message
        assert "applied before" not in message
        assert "captf.io/restore-state" not in message

    def test_refusals_start_with_the_exact_words(self) -> None:
        refused = resolve(facts(has_state=True), IDN)
        missing = resolve(facts(has_state=True), CRD)
        assert isinstance(refused, Wait)
        assert isinstance(missing, Wait)
        assert refused.conditions[0].message.startswith(
            "Destroy waits until the identity allows this namespace again"
        )
        assert missing.conditions[0].message.startswith(
            "The destroy Job waits for its credentials: CredentialsMirrored is False (MirrorFailed)"
        )
        assert {refused.requeue_after, missing.requeue_after} == {30.0}

    @pytest.mark.parametrize(
        "obstacle",
        [
            IDN,
            CRD,
            NOI,
            RefusedObstacle('jobs.batch "x" is forbidden'),
            TooLargeObstacle("the rendered inputs have 1200000 bytes"),
            WaitObstacle("WaitingForRunLease", "Job other runs", 30.0),
        ],
    )
    def test_every_stop_names_retain(self, obstacle: Obstacle) -> None:
        step = resolve(facts(has_state=True), obstacle)
        assert isinstance(step, Wait)
        assert "spec.deletionPolicy: Retain" in step.conditions[-1].message

    @pytest.mark.parametrize(
        "obstacle", [TooLargeObstacle("big"), WaitObstacle("WaitingForJobSlot", "m", 15.0)]
    )
    def test_a_slot_a_lease_and_large_inputs_are_no_cause_for_abandon(self, obstacle: Obstacle) -> None:
        assert isinstance(resolve(facts(has_state=True, abandon=UID), obstacle), Wait)

    def test_a_refused_create_is_a_cause(self) -> None:
        step = resolve(facts(has_state=True, abandon=UID), RefusedObstacle("leases is forbidden"))
        assert step == Cleanup(
            "abandoned",
            cause="the destroy cannot start: it waits for its credentials: leases is forbidden",
        )

    def test_a_failed_destroy_says_when_it_is_tried_again_and_stays_the_same(self) -> None:
        failed = facts(
            **STATES["failed"],
            last_destroy_message="Job captf-m-m1-destroy-a1-abc123: boom",
            next_attempt="2026-09-25T12:01:00Z",
        )
        first = decision.failed_destroy(failed)
        again = decision.failed_destroy(
            facts(
                **STATES["failed"],
                last_destroy_message=first.message,
                next_attempt="2026-09-25T12:01:00Z",
            )
        )
        assert first == again
        assert first.message.startswith("Job captf-m-m1-destroy-a1-abc123: boom. Next attempt not before")

    @pytest.mark.parametrize("said", ["exit status 1. Output:", "it is used.", "no"])
    def test_what_a_runtime_said_ends_in_one_full_stop(self, said: str) -> None:
        failed = facts(**STATES["failed"], last_destroy_message=f"Job captf-m-m1-destroy-a1-abc123: {said}")
        message = decision.failed_destroy(failed).message
        assert f": {said.rstrip('.:')}. Next attempt after the backoff. Ways out: " in message

    def test_the_abandon_note_is_exact(self) -> None:
        assert abandon.note(SUBJECT, "StateReadable StateLost") == (
            "Removed finalizer terraformmachine.infrastructure.cluster.x-k8s.io without a destroy "
            "(StateReadable StateLost): captf.io/abandon-infrastructure names this object's uid. Whatever "
            "the module created keeps running and is no longer managed; the state backups go with the object"
        )

    def test_a_long_cause_is_cut_and_the_tail_stays(self) -> None:
        note = abandon.note(SUBJECT, "x" * 2000)
        assert len(note.encode()) <= abandon.NOTE_LIMIT_BYTES
        assert note.endswith("the state backups go with the object")

    def test_dependents_are_named_in_one_order(self) -> None:
        dependents = [
            Dependent("TerraformMachinePool", "p"),
            *(Dependent("TerraformMachine", name) for name in ("d", "b", "c", "a")),
        ]
        texts = set()
        for order in (dependents, dependents[::-1]):
            step = decision.decide(facts(dependents=tuple(order), cluster_name="prod"))
            assert isinstance(step, Wait)
            texts.add(step.conditions[0].message)
        assert len(texts) == 1
        assert texts.pop().startswith(
            "4 TerraformMachine (a, b, c and 1 more) and 1 TerraformMachinePool (p) of Cluster prod"
        )
