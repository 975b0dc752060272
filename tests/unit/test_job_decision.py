"""What the Job controller decides, given how the pods stand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from captf_runtime.objects import Object
from captf_runtime.testing.controllers.jobs import JobDecision, PodCounts, decide_job, is_finished, pod_for

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
NO_PODS = PodCounts()


def job(status: Object | None = None, **spec: object) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": "ns", "uid": "u1"},
        "spec": {"backoffLimit": 0, "template": {"spec": {}}, **spec},
        "status": status or {},
    }


def decide(
    found: Object, counts: PodCounts = NO_PODS, seconds: float = 0.0, *, modern: bool = True
) -> JobDecision:
    return decide_job(found, counts, START + timedelta(seconds=seconds), modern=modern)


def true_conditions(decision: JobDecision) -> dict[str, str]:
    return {c["type"]: c.get("reason", "") for c in decision.status.get("conditions", ())}


def test_a_new_job_starts_one_pod() -> None:
    decision = decide(job())
    assert decision.create == 1
    assert decision.status["startTime"] == "2026-01-01T12:00:00Z"
    assert decision.status["active"] == 1


def test_a_running_pod_is_left_alone() -> None:
    decision = decide(job(), PodCounts(active=1, ready=1))
    assert (decision.create, decision.delete_active, decision.look_again_after) == (0, False, None)
    assert decision.status["ready"] == 1


def test_success_completes_the_job() -> None:
    decision = decide(job(), PodCounts(succeeded=1))
    assert true_conditions(decision) == {
        "SuccessCriteriaMet": "CompletionsReached",
        "Complete": "CompletionsReached",
    }
    assert decision.status["completionTime"] == "2026-01-01T12:00:00Z"
    assert decision.status["succeeded"] == 1
    assert "active" not in decision.status
    assert true_conditions(decide(job(), PodCounts(succeeded=1), modern=False)) == {"Complete": ""}


@pytest.mark.parametrize("modern", [True, False])
def test_the_first_failure_fails_a_job_without_retries(modern: bool) -> None:
    decision = decide(job(), PodCounts(failed=1), modern=modern)
    assert decision.create == 0
    assert true_conditions(decision)["Failed"] == "BackoffLimitExceeded"
    assert decision.status["failed"] == 1
    assert "completionTime" not in decision.status
    assert ("FailureTarget" in true_conditions(decision)) is modern


def test_a_failing_job_is_failed_only_when_its_pods_have_ended() -> None:
    started = {"startTime": "2026-01-01T12:00:00Z"}
    first = decide(job(started, activeDeadlineSeconds=10), PodCounts(active=1), 10)
    assert true_conditions(first) == {"FailureTarget": "DeadlineExceeded"}
    assert first.delete_active
    second = decide(job(first.status, activeDeadlineSeconds=10), PodCounts(terminating=1, failed=1), 11)
    assert true_conditions(second) == {"FailureTarget": "DeadlineExceeded"}
    assert not second.delete_active
    third = decide(job(second.status, activeDeadlineSeconds=10), PodCounts(failed=1), 40)
    assert true_conditions(third) == {"FailureTarget": "DeadlineExceeded", "Failed": "DeadlineExceeded"}
    failed = next(c for c in third.status["conditions"] if c["type"] == "Failed")
    assert failed["lastTransitionTime"] == "2026-01-01T12:00:40Z"
    assert failed["message"] == "Job was active longer than specified deadline"


def test_1_20_fails_the_job_at_the_deadline_while_the_pod_still_ends() -> None:
    decision = decide(job(activeDeadlineSeconds=0), PodCounts(active=1), 0, modern=False)
    assert true_conditions(decision) == {"Failed": "DeadlineExceeded"}
    assert decision.delete_active
    assert decision.status["failed"] == 1
    assert "active" not in decision.status


def test_the_deadline_is_waited_for() -> None:
    started = {"startTime": "2026-01-01T12:00:00Z"}
    decision = decide(job(started, activeDeadlineSeconds=30), PodCounts(active=1), 10)
    assert decision.look_again_after == 20


def test_retries_back_off_and_double() -> None:
    once = PodCounts(failed=1, last_failure=START)
    twice = PodCounts(failed=2, last_failure=START)
    assert decide(job(backoffLimit=6), once, 4).look_again_after == 6
    assert decide(job(backoffLimit=6), twice, 0).look_again_after == 20
    assert decide(job(backoffLimit=6), once, 10).create == 1
    assert true_conditions(decide(job(backoffLimit=1), twice, 60))["Failed"] == "BackoffLimitExceeded"


def test_parallel_pods_up_to_what_is_missing() -> None:
    found = job(parallelism=3, completions=4)
    assert decide(found).create == 3
    assert decide(found, PodCounts(active=1, succeeded=3)).create == 0
    assert decide(found, PodCounts(succeeded=3)).create == 1
    assert decide(job(suspend=True)).create == 0


def test_a_pod_bears_the_template_the_job_labels_and_the_owner() -> None:
    template = {
        "metadata": {"labels": {"own": "x"}, "annotations": {"note": "y"}},
        "spec": {"restartPolicy": "Never"},
    }
    pod = pod_for(job(template=template))
    assert pod["metadata"]["generateName"] == "job-"
    assert pod["metadata"]["labels"] == {
        "own": "x",
        "job-name": "job",
        "controller-uid": "u1",
        "batch.kubernetes.io/job-name": "job",
        "batch.kubernetes.io/controller-uid": "u1",
    }
    assert pod["metadata"]["annotations"] == {"note": "y"}
    assert pod["spec"] == {"restartPolicy": "Never"}
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("u1", True, True)
    old = pod_for(job(template=template), modern=False)
    assert set(old["metadata"]["labels"]) == {"own", "job-name", "controller-uid"}


def test_only_complete_and_failed_finish_a_job() -> None:
    def with_condition(kind: str, status: str = "True") -> Object:
        return job({"conditions": [{"type": kind, "status": status}]})

    assert is_finished(with_condition("Complete"))
    assert is_finished(with_condition("Failed"))
    assert not is_finished(with_condition("FailureTarget"))
    assert not is_finished(with_condition("Failed", "False"))
