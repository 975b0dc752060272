"""Condition lists and the Ready summary."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_controllers.api import conditions as types
from captf_controllers.api.workspace import Condition
from captf_controllers.observability.conditions import (
    MAX_MESSAGE_BYTES,
    Conditions,
    before_next_attempt,
    changed,
    clamp,
    first_visit,
    job_in_message,
    job_message,
    next_attempt,
    ready_inputs,
    set_gate_stop,
    set_ready,
    summarize_ready,
    without_next_attempt,
)

NOW = datetime(2026, 9, 25, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
KINDS = ("TerraformCluster", "TerraformMachine", "TerraformMachinePool")


def good(kind: str, provisioned: bool) -> Conditions:
    conditions = Conditions()
    for type_ in ready_inputs(kind, provisioned):
        status = types.FALSE if type_ == types.DELETING else types.TRUE
        conditions = conditions.set(type_, status, "Fine", now=NOW)
    return conditions


@pytest.mark.parametrize("at", ["2026-01-01T00:01:00Z", ""])
def test_only_the_managers_own_sentence_on_the_next_attempt_is_left_out(at: str) -> None:
    said = "Job x: step destroy failed: throttled. Next attempt in 5s. Next attempt after that in 9s."
    message = f"{said}{next_attempt(at)} Ways out: two."
    assert without_next_attempt(message) == f"{said} Ways out: two."
    assert before_next_attempt(message) == said
    assert without_next_attempt(said) == said


def test_the_transition_time_follows_the_status_alone() -> None:
    first = Conditions().set("Ready", "False", "A", "m", now=NOW, generation=3)
    assert first.get("Ready") == Condition(
        type="Ready",
        status="False",
        reason="A",
        message="m",
        last_transition_time=NOW.replace(microsecond=0),
        observed_generation=3,
    )
    same = first.set("Ready", "False", "B", "n", now=LATER)
    assert same.get("Ready").last_transition_time == NOW.replace(microsecond=0)  # type: ignore[union-attr]
    other = same.set("Ready", "True", "C", now=LATER)
    assert other.get("Ready").last_transition_time == LATER.replace(microsecond=0)  # type: ignore[union-attr]
    assert len(other.items) == 1


def test_a_reason_is_never_empty() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Conditions().set("Ready", "True", "", now=NOW)


def test_foreign_conditions_stay() -> None:
    foreign = Condition(type="Custom/Thing", status="True", reason="X", last_transition_time=NOW)
    conditions = Conditions((foreign,)).set("Ready", "True", "Ready", now=NOW).observed(7)
    assert conditions.get("Custom/Thing") == foreign
    assert conditions.get("Ready").observed_generation == 7  # type: ignore[union-attr]
    assert conditions.without("Ready").items == (foreign,)


def test_order() -> None:
    conditions = Conditions()
    for type_ in ("Deleting", "Paused", "StateReadable", "Ready", "ApplyJobSucceeded"):
        conditions = conditions.set(type_, "True", "X", now=NOW)
    assert [item.type for item in conditions.sorted()] == [
        "Ready",
        "ApplyJobSucceeded",
        "StateReadable",
        "Paused",
        "Deleting",
    ]


@given(st.text(min_size=1, max_size=60), st.integers(8, 80))
def test_a_clamped_text_fits_and_is_whole_characters(text: str, limit: int) -> None:
    cut = clamp(text, limit)
    assert len(cut.encode(errors="replace")) <= limit
    assert cut == text or text.startswith(cut.removesuffix("…"))


def test_a_long_message_is_cut_on_a_character() -> None:
    conditions = Conditions().set("Ready", "True", "X", "é" * MAX_MESSAGE_BYTES, now=NOW)
    message = conditions.get("Ready").message  # type: ignore[union-attr]
    assert len(message.encode()) <= MAX_MESSAGE_BYTES
    assert message.endswith("é…")
    long = Condition(type="Ready", status="True", reason="X", message="x" * 40000, last_transition_time=NOW)
    assert len(Conditions((long,)).clamped().items[0].message.encode()) == MAX_MESSAGE_BYTES


@pytest.mark.parametrize("kind", KINDS)
def test_first_visit_sets_what_is_missing_and_no_more(kind: str) -> None:
    paused = Conditions().set("Paused", "True", "Paused", now=NOW)
    visited = first_visit(paused, kind, now=LATER, generation=1)
    found = {item.type: (item.status, item.reason) for item in visited}
    expected = {
        "Paused": ("True", "Paused"),
        "Deleting": ("False", "NotDeleting"),
        "DriftDetected": ("Unknown", "DriftNotChecked"),
    }
    if kind == "TerraformCluster":
        expected["DeletionBlocked"] = ("False", "NotBlocked")
    assert found == expected
    assert "No drift check has completed" in visited.get("DriftDetected").message  # type: ignore[union-attr]
    assert first_visit(visited, kind, now=LATER, generation=2) == visited


@pytest.mark.parametrize(
    ("message", "job"),
    [
        ("Job captf-c-a", "captf-c-a"),
        ("Job captf-c-a: failed: again", "captf-c-a"),
        ("Job two words: x", None),
        ("Job ", None),
        ("Job : x", None),
        ("job a", None),
        ("", None),
    ],
)
def test_the_job_of_a_message(message: str, job: str | None) -> None:
    assert job_in_message(message) == job


def test_a_job_message_names_its_job() -> None:
    assert job_message("a") == "Job a"
    assert job_message("a", "b: c") == "Job a: b: c"
    assert job_in_message(job_message("a", "b")) == "a"


def test_changed_looks_at_status_and_reason() -> None:
    before = Condition(type="A", status="True", reason="X", message="m", last_transition_time=NOW)
    assert changed(None, before)
    assert not changed(before, Condition(type="A", status="True", reason="X", last_transition_time=LATER))
    assert changed(before, Condition(type="A", status="True", reason="Y", last_transition_time=NOW))


# Ready ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_object_is_unknown(kind: str) -> None:
    summary = summarize_ready(first_visit(Conditions(), kind, now=NOW, generation=1), kind, provisioned=False)
    assert (summary.status, summary.reason) == ("Unknown", "ReadyUnknown")
    assert (
        summary.message.split("\n")[0]
        == "* DependenciesReady: Condition DependenciesReady is not yet reported"
    )
    assert "Deleting" not in summary.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("provisioned", [False, True])
def test_all_good_is_ready(kind: str, provisioned: bool) -> None:
    summary = summarize_ready(good(kind, provisioned), kind, provisioned=provisioned)
    assert (summary.status, summary.reason, summary.message) == ("True", "Ready", "")


@pytest.mark.parametrize("kind", KINDS)
def test_an_issue_outranks_an_unknown_and_both_are_listed(kind: str) -> None:
    conditions = good(kind, False)
    conditions = conditions.set("StateReadable", "False", "StateLost", "gone", now=NOW)
    conditions = conditions.set("OutputsValid", "Unknown", "OutputsPending", now=NOW)
    summary = summarize_ready(conditions, kind, provisioned=False)
    assert (summary.status, summary.reason) == ("False", "NotReady")
    assert summary.message == "* StateReadable: gone\n* OutputsValid: OutputsPending"


def test_deleting_is_an_issue_when_true() -> None:
    conditions = good("TerraformMachine", True).set("Deleting", "True", "Deleting", now=NOW)
    assert summarize_ready(conditions, "TerraformMachine", provisioned=True).message == "* Deleting: Deleting"
    absent = good("TerraformMachine", True).without("Deleting")
    assert summarize_ready(absent, "TerraformMachine", provisioned=True).status == "True"


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_apply_moves_only_a_provisioned_pool(kind: str) -> None:
    conditions = good(kind, True).set("ApplyJobSucceeded", "False", "ApplyFailed", "Job x: no", now=NOW)
    summary = summarize_ready(conditions, kind, provisioned=True)
    assert (summary.status == "False") is (kind == "TerraformMachinePool")
    assert (
        summarize_ready(
            good(kind, False).set("ApplyJobSucceeded", "False", "ApplyFailed", now=NOW),
            kind,
            provisioned=False,
        ).status
        == "False"
    )


def test_lost_state_does_not_move_a_provisioned_machine() -> None:
    conditions = good("TerraformMachine", True).set("StateReadable", "False", "StateLost", now=NOW)
    assert summarize_ready(conditions, "TerraformMachine", provisioned=True).status == "True"


def test_messages_of_several_lines_are_indented() -> None:
    conditions = good("TerraformMachine", True).set("InfrastructureHealthy", "False", "X", "a\nb", now=NOW)
    assert summarize_ready(conditions, "TerraformMachine", provisioned=True).message == (
        "* InfrastructureHealthy:\n  a\n  b"
    )
    nested = conditions.set("InfrastructureHealthy", "False", "X", "* y: z", now=NOW)
    assert summarize_ready(nested, "TerraformMachine", provisioned=True).message == (
        "* InfrastructureHealthy:\n  * y: z"
    )


def test_a_true_summary_lists_what_is_said() -> None:
    conditions = good("TerraformMachine", True).set("InfrastructureHealthy", "True", "Healthy", "ok", now=NOW)
    assert (
        summarize_ready(conditions, "TerraformMachine", provisioned=True).message
        == "* InfrastructureHealthy: ok"
    )


def test_set_ready() -> None:
    conditions = set_ready(
        good("TerraformMachine", True), "TerraformMachine", provisioned=True, now=NOW, generation=2
    )
    assert conditions.is_true("Ready")
    assert conditions.reason("Ready") == "Ready"


@pytest.mark.parametrize(
    ("status", "ready"), [("False", ("False", "NotReady")), ("Unknown", ("Unknown", "ReadyUnknown"))]
)
def test_a_gate_stop_sets_ready_until_provisioned(status: types.Status, ready: tuple[str, str]) -> None:
    stopped = set_gate_stop(
        Conditions(), status, "OwnerMismatch", "m", provisioned=False, now=NOW, generation=1
    )
    assert stopped.status("DependenciesReady") == status
    found = stopped.get("Ready")
    assert found is not None
    assert (found.status, found.reason, found.message) == (*ready, "OwnerMismatch: m")
    kept = set_gate_stop(Conditions(), status, "OwnerMismatch", "m", provisioned=True, now=NOW, generation=1)
    assert kept.get("Ready") is None


@given(
    st.dictionaries(
        st.sampled_from(sorted(types.OWNED_TYPES)),
        st.tuples(st.sampled_from(["True", "False", "Unknown"]), st.text()),
    ),
    st.sampled_from(KINDS),
    st.booleans(),
)
def test_ready_is_true_only_when_nothing_is_bad_or_open(
    found: dict[str, tuple[types.Status, str]], kind: str, provisioned: bool
) -> None:
    conditions = Conditions()
    for type_, (status, message) in found.items():
        conditions = conditions.set(type_, status, "X", message, now=NOW)
    summary = summarize_ready(conditions, kind, provisioned=provisioned)
    fine = all(
        (type_ == "Deleting" and found.get(type_, ("False", ""))[0] == "False")
        or (type_ != "Deleting" and found.get(type_, ("", ""))[0] == "True")
        for type_ in ready_inputs(kind, provisioned)
    )
    assert (summary.status == "True") is fine
