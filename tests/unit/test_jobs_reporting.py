"""What a finished Job says in conditions, in status.lastRun and to the metrics."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.unit.job_objects import at, finished, job, pod, result

from captf_controllers.api.workspace import LastRun
from captf_controllers.jobs.measures import last_successes, sample_of
from captf_controllers.jobs.outcomes import classify
from captf_controllers.jobs.reporting import (
    apply_observation,
    drift_observation,
    last_run,
    plan_counts,
    pull_failed_observation,
    restore_observation,
)
from captf_controllers.jobs.result import PlanSummary
from captf_controllers.observability.metrics import Changes, Drifted

NAME = "captf-m-web-apply-a1-abc123"
DEADLINE = {"reason": "DeadlineExceeded"}
PULL = {"phase": "Pending", "waiting": "ImagePullBackOff"}


def ended(op, outcome, *, message="", pod_fields=None, **fields):
    view = job(op=op, outcome=outcome, finished=60, **fields)
    phase = "Succeeded" if outcome == "Complete" else "Failed"
    return classify(view, [pod(**{"phase": phase, "message": message, **(pod_fields or {})})])


def failure(kind="step", step="apply", resources=(), tail="Error: boom", **more):
    document = json.loads(result(kind=kind, step=step, **more))
    document["error"] |= {"resources": list(resources), "tail": tail}
    return json.dumps(document)


def said(job, *, deleting=False):
    """What a finished Job says on the condition of its operation."""
    if job.op in ("refresh", "drift"):
        return drift_observation(job)
    return restore_observation(job) if job.op == "restore" else apply_observation(job, deleting=deleting)


@pytest.mark.parametrize(
    ("finished_job", "status", "reason"),
    [
        (ended("apply", "Complete"), "True", "ApplySucceeded"),
        (ended("destroy", "Complete"), "True", "DestroySucceeded"),
        (ended("apply", "Failed", message=failure()), "False", "ApplyFailed"),
        (ended("destroy", "Failed", message=failure()), "False", "DestroyFailed"),
        (ended("plan", "Failed", message=failure()), "False", "ApplyFailed"),
        (ended("plan", "Complete"), "False", "ApplyFailed"),
        (ended("apply", "Failed"), "False", "ApplyFailed"),
        (ended("apply", "Failed", message=failure("blocked")), "False", "DestructivePlanBlocked"),
        (ended("apply", "Failed", message=failure("plan-changed")), "Unknown", "PlanChanged"),
        (ended("apply", "Failed", **DEADLINE), "False", "JobDeadlineExceeded"),
        (
            ended("destroy", "Failed", message=failure("interrupted"), **DEADLINE),
            "False",
            "JobDeadlineExceeded",
        ),
        (ended("apply", "Failed", pod_fields=PULL, **DEADLINE), "False", "ImagePullFailed"),
        (ended("apply", "Failed", message=failure("image-layout")), "False", "ImageInvalid"),
        (ended("apply", "Failed", message=failure("interrupted")), "False", "ApplyFailed"),
        (ended("refresh", "Complete"), "True", "DriftChecked"),
        (ended("drift", "Failed", message=failure()), "False", "DriftJobFailed"),
        (ended("drift", "Failed", **DEADLINE), "False", "DriftJobDeadlineExceeded"),
        (ended("refresh", "Failed", pod_fields=PULL, **DEADLINE), "False", "DriftJobDeadlineExceeded"),
        (ended("restore", "Complete"), "True", "StateRestored"),
        (ended("restore", "Failed", **DEADLINE), "False", "RestoreFailed"),
        (ended("restore", "Failed", message=failure()), "False", "RestoreFailed"),
    ],
)
def test_condition(finished_job, status, reason):
    found = said(finished_job)
    assert (found.status, found.reason) == (status, reason)
    assert found.message == f"Job {NAME}" or found.message.startswith(f"Job {NAME}: ")


@pytest.mark.parametrize(
    "finished_job",
    [
        ended("destroy", "Failed", message=failure("interrupted")),
        ended("plan", "Complete", message=result(op="plan", plan={"hash": "p2:ab"})),
    ],
)
def test_what_leaves_the_condition_as_it_was(finished_job):
    assert said(finished_job) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"message": failure()},
        {"message": failure("image-layout")},
        {"pod_fields": PULL},
        DEADLINE,
        {"message": ""},
    ],
)
def test_every_failure_of_a_destroy_names_retain(fields):
    assert "spec.deletionPolicy: Retain" in said(ended("destroy", "Failed", **fields)).message
    assert "Retain" not in said(ended("apply", "Failed", **fields)).message


def test_a_failed_step_names_itself_its_first_failing_resource_and_what_the_runtime_said():
    message = failure(step="apply", resources=["aws_vpc.a: quota reached", "aws_vpc.b: no"])
    found = said(ended("apply", "Failed", message=message))
    assert found.message == f"Job {NAME}: step apply failed: aws_vpc.a: quota reached; Error: boom"
    without = said(ended("apply", "Failed", message=failure(step="init", tail="Error: x\nmore")))
    assert without.message == f"Job {NAME}: step init failed: Error: x; more"


@pytest.mark.parametrize("kind", ["blocked", "plan-changed"])
def test_while_deleting_no_approval_is_asked_for(kind):
    found = said(ended("apply", "Failed", message=failure(kind)), deleting=True)
    assert "no approval is needed any more" in found.message
    assert (
        "no approval is needed any more" not in said(ended("apply", "Failed", message=failure(kind))).message
    )


def test_pull_failure_of_a_running_job():
    assert pull_failed_observation("drift", "Job x: y").type == "DriftJobSucceeded"
    assert pull_failed_observation("restore", "Job x: y").type == "RestoreJobSucceeded"
    destroy = pull_failed_observation("destroy", "Job x: y")
    assert (destroy.type, destroy.reason) == ("ApplyJobSucceeded", "ImagePullFailed")
    assert "Retain" in destroy.message


def test_plan_counts_show_the_rarer_kinds_only_when_there_are_any():
    assert plan_counts(PlanSummary(hash="p2:a", create=1, delete=2)) == (
        "1 to create, 0 to update, 0 to replace, 2 to delete"
    )
    assert plan_counts(PlanSummary(hash="p2:a", imported=1, move=2, forget=3, output_changes=4)).endswith(
        "1 to import, 2 to move, 3 to forget, 4 outputs to change"
    )


class TestLastRun:
    def wire(self, run: LastRun):
        return json.loads(msgspec.json.encode(run))

    def test_a_failure(self):
        message = failure(step="apply", resources=["a: b"], steps=("init", "apply"))
        assert self.wire(last_run(ended("apply", "Failed", message=message))) == {
            "job": NAME,
            "operation": "apply",
            "steps": [
                {"name": "init", "exitCode": 0, "durationMilliseconds": 1200},
                {"name": "apply", "exitCode": 0, "durationMilliseconds": 1200},
            ],
            "error": {"kind": "step", "step": "apply", "summary": "Error: boom", "resources": ["a: b"]},
        }

    def test_an_unknown_kind_is_a_step(self):
        run = last_run(ended("apply", "Failed", message=failure("exploded")))
        assert run.error.kind == "step"

    def test_drift_is_there_only_when_it_was_found(self):
        drift = {"detected": True, "update": 1, "resources": ["a.b"]}
        found = last_run(ended("drift", "Complete", message=result(op="drift", drift=drift)))
        assert (found.drift.update, found.drift.resources) == (1, ("a.b",))
        none = {"detected": False}
        assert last_run(ended("drift", "Complete", message=result(op="drift", drift=none))).drift is None

    def test_without_a_result_only_the_job_is_known(self):
        assert self.wire(last_run(ended("apply", "Failed"))) == {"job": NAME, "operation": "apply"}

    def test_an_unknown_op_has_no_last_run(self):
        assert last_run(ended("bogus", "Failed")) is None


class TestSample:
    def test_a_success(self):
        changes = {"add": 2, "change": 0, "destroy": 1, "import": 3}
        message = result(steps=("init", "apply"), changes=changes)
        done = ended("apply", "Complete", message=message, created=-20)
        sample = sample_of(done, [done])
        assert (sample.op, sample.result, sample.retry_number) == ("apply", "succeeded", 1)
        assert sample.duration == 80
        assert sample.queued == 25
        assert sample.steps == (("init", 1.2), ("apply", 1.2))
        assert sample.changes == Changes(create=2, update=0, delete=1, imported=3)

    @pytest.mark.parametrize(
        ("fields", "label", "kind", "step"),
        [
            ({"message": failure()}, "failed", "step", "apply"),
            ({"message": failure("blocked", step=None)}, "blocked", "blocked", ""),
            ({"message": failure("interrupted")}, "interrupted", "interrupted", "apply"),
            ({"message": failure("interrupted"), **DEADLINE}, "deadline", "interrupted", "apply"),
            ({"message": failure("exploded")}, "failed", "exploded", "apply"),
            ({"message": ""}, "failed", "", ""),
            (DEADLINE, "deadline", "", ""),
        ],
    )
    def test_failures(self, fields, label, kind, step):
        done = ended("apply", "Failed", **fields)
        sample = sample_of(done, [done])
        assert (sample.result, sample.error_kind, sample.error_step) == (label, kind, step)
        assert sample.retry_number is None

    def test_drift(self):
        drift = {"detected": True, "create": 1, "replace": 2}
        done = ended("drift", "Complete", message=result(op="drift", drift=drift))
        assert sample_of(done, [done]).drifted == Drifted(create=1, replace=2)


def test_last_successes():
    jobs = [
        finished("a", "ok", 10),
        finished("b", "ok", 20),
        finished("c", "failed", 30),
        finished("d", "ok", 15, op="drift"),
    ]
    assert last_successes(jobs) == {"apply": at(20), "drift": at(15)}
    assert last_successes(jobs, at(50))["drift"] == at(50)
    assert last_successes(jobs, at(5))["drift"] == at(15)
