"""A Job, or what it needs to run, that the API server refuses: the object says so, whatever the operation."""

from __future__ import annotations

import pytest
from tests.deletion_case import Case
from tests.world import IDENTITY, TEAM

from captf_controllers.api import names
from captf_runtime.client.errors import ApiError
from captf_runtime.objects import JOB, ROLE_BINDING, SECRET, SERVICE_ACCOUNT, Kind, Object, name_of
from captf_runtime.testing.faults import Action, Match, error, forbidden

QUOTA = 'jobs.batch "x" is forbidden: exceeded quota: team, requested: count/jobs.batch=1'
CALLING = 'Internal error occurred: failed calling webhook "v.example.com": connection refused'
DENIED = 'admission webhook "v.example.com" denied the request: '
QUOTED = "hunter2-of-the-module"

ANSWERS: dict[str, tuple[Action, str]] = {
    "quota": (forbidden(QUOTA), "exceeded quota: team"),
    "webhook": (forbidden(f"{DENIED}no Jobs on Mondays"), "no Jobs on Mondays"),
    "webhook unreachable": (error(500, "InternalError", CALLING), "failed calling webhook"),
    "invalid": (error(422, "Invalid", "spec.template.spec is wrong"), "spec.template.spec is wrong"),
    "bad request": (error(400, "BadRequest", "no such field"), "no such field"),
    "too large": (error(413, "RequestEntityTooLarge", "limit is 3145728"), "limit is 3145728"),
}


def fails(case: Case) -> None:
    with pytest.raises((ApiError, ExceptionGroup)):
        case.reconcile()


def refuse(case: Case, resource: str, answer: Action) -> None:
    case.world.server.faults.add(Match(verb="create", resource=resource), answer)


def let_through(case: Case) -> None:
    case.world.server.faults.clear()


def on_its_way(case: Case) -> None:
    """Created, looked at, and about to be applied for the first time."""
    case.add()
    case.reconcile()


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_refused_apply_is_told_once_until_it_gets_through(machine_case: Case, answer: str) -> None:
    case = machine_case
    refusal, said = ANSWERS[answer]
    on_its_way(case)
    refuse(case, "jobs", refusal)
    for _ in range(3):
        fails(case)
        assert case.says("ApplyJobSucceeded") == "False/JobCannotStart"
        message = case.message("ApplyJobSucceeded")
        assert message.startswith("The apply Job cannot be started: ")
        assert said in message
        assert "change what refuses it (a quota, a policy, an admission webhook" in message
        assert case.says("Ready") == "False/NotReady"
        assert said in case.message("Ready")
    assert len(case.notes("JobFailed")) == 1
    let_through(case)
    assert case.reconcile() == 60
    assert case.says("ApplyJobSucceeded") == "Unknown/NoApplyYet"
    case.end()
    case.settle()
    assert case.says("ApplyJobSucceeded") == "True/ApplySucceeded"


def test_an_apply_of_each_kind_is_told(case: Case) -> None:
    on_its_way(case)
    refuse(case, "jobs", forbidden(QUOTA))
    fails(case)
    assert case.says("ApplyJobSucceeded") == "False/JobCannotStart"


def test_what_came_of_the_apply_before_is_told_again(mutable_case: Case) -> None:
    case = mutable_case
    case.provision()
    case.spec(variables={"size": 2})
    refuse(case, "jobs", forbidden(QUOTA))
    fails(case)
    assert case.says("ApplyJobSucceeded") == "False/JobCannotStart"
    let_through(case)
    assert case.reconcile() == 60
    assert case.says("ApplyJobSucceeded") == "True/ApplySucceeded"


def test_a_change_that_cannot_be_applied_does_not_pass_for_applied(mutable_case: Case) -> None:
    case = mutable_case
    case.provision()
    assert case.says("InputsApplied") == "True/InputsApplied"
    case.spec(variables={"size": 2})
    refuse(case, "jobs", forbidden(QUOTA))
    fails(case)
    assert case.says("InputsApplied") == "False/ApplyPending"


@pytest.mark.parametrize("resource", ["leases", "jobs"])
def test_every_step_of_a_start_is_told(machine_case: Case, resource: str) -> None:
    case = machine_case
    on_its_way(case)
    refuse(case, resource, forbidden(f"{resource}: exceeded quota: team"))
    fails(case)
    assert f"{resource}: exceeded quota: team" in case.message("ApplyJobSucceeded")


def test_an_answer_that_is_no_refusal_says_nothing(machine_case: Case) -> None:
    case = machine_case
    on_its_way(case)
    refuse(case, "jobs", error(500, "ServerTimeout", "try again"))
    fails(case)
    assert case.says("ApplyJobSucceeded") == "Unknown/NoApplyYet"


@pytest.mark.parametrize("earlier", [False, True])
def test_a_refused_drift_check_is_told(cluster_case: Case, earlier: bool) -> None:
    case = cluster_case
    case.provision()
    if earlier:
        case.advance(2000)
        assert case.reconcile() == 60
        case.end()
        case.settle()
    shown = case.says("DriftJobSucceeded")
    case.advance(2000)
    refuse(case, "jobs", forbidden(QUOTA))
    fails(case)
    fails(case)
    assert case.says("DriftJobSucceeded") == "False/JobCannotStart"
    assert "exceeded quota: team" in case.message("DriftJobSucceeded")
    assert case.says("ApplyJobSucceeded") == "True/ApplySucceeded"
    assert case.says("Ready") == "True/Ready"
    assert len([note for note in case.notes("ConditionChanged") if "JobCannotStart" in note]) == 1
    let_through(case)
    assert case.reconcile() == 60
    assert case.says("DriftJobSucceeded") in (shown, "Unknown/DriftJobRunning")


def test_a_refused_restore_is_told(machine_case: Case) -> None:
    case = machine_case
    case.provision()
    case.restore(1)
    refuse(case, "jobs", forbidden(QUOTA))
    fails(case)
    fails(case)
    assert case.says("RestoreJobSucceeded") == "False/JobCannotStart"
    assert case.message("RestoreJobSucceeded").startswith("The restore Job cannot be started: ")
    assert len([note for note in case.notes("ConditionChanged") if "JobCannotStart" in note]) == 1
    let_through(case)
    assert case.reconcile() == 60
    assert case.says("RestoreJobSucceeded") == ""
    assert case.job("restore")


def test_a_deletion_tells_it_where_the_ways_out_are(machine_case: Case) -> None:
    case = machine_case
    case.provision()
    case.delete()
    refuse(case, "jobs", forbidden(QUOTA))
    fails(case)
    assert "exceeded quota: team" in case.message("Deleting")
    assert case.says("ApplyJobSucceeded") == "True/ApplySucceeded"


# What a Job needs to run


@pytest.mark.parametrize("record", ["per-run", "attempt"])
def test_a_job_whose_inputs_are_refused_is_told_as_long_as_it_waits(machine_case: Case, record: str) -> None:
    """The Job is there by then, and shown as the active one; it is made anew until its Secret is let through."""
    case = machine_case
    on_its_way(case)
    secrets = f"captf-run-captf-{case.short}-*" if record == "per-run" else "captf-inputs-*"
    refused = f'secrets "x" is forbidden: exceeded quota: {secrets}'
    # The mirror is there from the first pass on: what is created now are the records of the start.
    refuse(case, "jobs", forbidden("not yet"))
    fails(case)
    let_through(case)
    refuse(case, "secrets", forbidden(refused))
    fails(case)
    job = name_of(case.job("apply"))
    told = case.message("ApplyJobSucceeded")
    assert told.startswith(f"Job {job}: ")
    assert "exceeded quota" in told
    failures = len(case.notes("JobFailed"))
    for _ in range(2):
        assert case.reconcile() == 60
        assert case.message("ApplyJobSucceeded") == told
        case.advance(61)
        assert case.reconcile() == 1
        assert case.says("ApplyJobSucceeded") == "False/JobCannotStart"
        case.world.step()
        fails(case)
        assert case.message("ApplyJobSucceeded") == told
    assert len(case.notes("JobFailed")) == failures
    let_through(case)
    case.advance(61)
    assert case.reconcile() == 1
    case.world.step()
    assert case.reconcile() == 60
    assert case.says("ApplyJobSucceeded") == "Unknown/NoApplyYet"


def test_a_destroy_whose_inputs_are_refused_is_no_failed_destroy(machine_case: Case) -> None:
    case = machine_case
    case.provision()
    case.abandon()
    case.delete()
    refuse(case, "secrets", forbidden("exceeded quota: team"))
    fails(case)
    assert "exceeded quota: team" in case.message("Deleting")
    for _ in range(2):
        assert case.reconcile() == 60
        assert case.says("ApplyJobSucceeded") == "False/JobCannotStart"
        assert "exceeded quota: team" in case.message("ApplyJobSucceeded")
        assert "spec.deletionPolicy: Retain" in case.message("ApplyJobSucceeded")
        case.advance(61)
        assert case.reconcile() == 1
        case.world.step()
        fails(case)
        assert not case.released
    let_through(case)
    case.advance(61)
    assert case.reconcile() == 1
    case.world.step()
    assert case.reconcile() == 60
    assert case.says("ApplyJobSucceeded") == "True/ApplySucceeded"
    case.end()
    case.reconcile()
    assert case.released


def test_what_a_webhook_quotes_of_a_secret_is_not_shown(machine_case: Case) -> None:
    case = machine_case
    on_its_way(case)
    refuse(case, "jobs", forbidden("not yet"))
    fails(case)
    let_through(case)
    refuse(case, "secrets", forbidden(f"{DENIED}tfvars hold {QUOTED}"))
    fails(case)
    assert DENIED.rstrip(": ") in case.message("ApplyJobSucceeded")
    assert QUOTED not in str(case.object)
    assert QUOTED not in str(case.world.events.events)


@pytest.mark.parametrize(
    ("resource", "kind", "name", "condition", "reason"),
    [
        ("secrets", SECRET, names.credential_mirror(IDENTITY), "CredentialsMirrored", "MirrorFailed"),
        ("serviceaccounts", SERVICE_ACCOUNT, "captf-runner", "RunnerRBACReady", "RBACFailed"),
        ("rolebindings", ROLE_BINDING, "captf-runner", "RunnerRBACReady", "RBACFailed"),
    ],
)
def test_refused_credentials_are_told_and_taken_back(
    machine_case: Case, resource: str, kind: Kind, name: str, condition: str, reason: str
) -> None:
    case = machine_case
    case.provision()
    case.world.client.delete(kind, name, TEAM, propagation_policy="Background")
    refuse(case, resource, forbidden(f"{DENIED}it holds {QUOTED}"))
    for _ in range(2):
        fails(case)
        assert case.says(condition) == f"False/{reason}"
        message = case.message(condition)
        assert DENIED.rstrip(": ") in message
        assert "change what refuses it" in message
        assert resource != "secrets" or QUOTED not in str(case.object)
    let_through(case)
    case.settle()
    assert case.says(condition).startswith("True/")


# A Job that gets no pod


@pytest.mark.parametrize("deleting", [False, True])
def test_a_job_without_a_pod_is_told_until_it_has_one(machine_case: Case, deleting: bool) -> None:
    """Limits, quotas of pods and pod security refuse the pod and not the Job: only the Job's events say so."""
    case = machine_case
    case.provision()
    if deleting:
        case.delete()
        op, type_ = "destroy", "ApplyJobSucceeded"
    else:
        case.advance(2000)
        op, type_ = "drift", "DriftJobSucceeded"
    assert case.reconcile() == 60
    job = case.job(op)
    case.advance(119)
    case.reconcile()
    assert case.says(type_) != "False/JobCannotStart"
    case.advance(1)
    for _ in range(2):
        assert case.reconcile() == 60
        assert case.says(type_) == "False/JobCannotStart"
        assert case.message(type_).startswith(f"Job {name_of(job)}: no pod of it was made")
        assert f"kubectl describe job -n {TEAM} {name_of(job)}" in case.message(type_)
    case.world.start_pod(job)
    assert case.reconcile() == 60
    assert case.says(type_) == ("True/ApplySucceeded" if deleting else "Unknown/DriftJobRunning")
    case.end()
    case.reconcile()
    assert case.says(type_) == ("True/DestroySucceeded" if deleting else "True/DriftChecked")
    assert case.released is deleting


def test_a_pod_that_is_gone_is_not_a_pod_that_was_never_made(machine_case: Case) -> None:
    """Between the loss of its pod and the Job's end nothing refuses anything."""
    case = machine_case
    case.provision()
    case.advance(2000)
    assert case.reconcile() == 60
    job = case.job("drift")
    status: Object = {"status": {"active": 1}}
    case.world.client.patch(JOB, name_of(job), status, TEAM, subresource="status")
    case.advance(300)
    assert case.reconcile() == 60
    assert case.says("DriftJobSucceeded") == "Unknown/DriftJobRunning"


def test_the_next_attempt_follows_what_the_runtime_said(machine_case: Case) -> None:
    """In one sentence, however the runtime ended its own."""
    case = machine_case
    case.add()
    case.settle()
    case.end("failed", tail="Error: The quota is used up.")
    case.reconcile()
    (note,) = case.notes("JobFailed")
    assert "Error: The quota is used up; retried not before " in note
