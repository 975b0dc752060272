"""How a Job ended."""

from __future__ import annotations

import pytest
from tests.unit.job_objects import BOOKKEPT, at, job, job_object, pod, pod_object, result
from tests.unit.memory_api import MemoryApi

from captf_controllers.api import annotations
from captf_controllers.jobs.outcomes import (
    classify,
    collect_finished,
    delete_run_secret,
    from_marks,
    marks_of,
    newest_finished,
    pinned_digest,
    write_marks,
)
from captf_controllers.jobs.views import JobPhase, active_job, list_jobs, view_job
from captf_runtime.objects import JOB, POD, SECRET
from captf_runtime.testing.clock import VirtualClock

PLAN = {"hash": "p2:ab", "delete": 1}


@pytest.fixture
def api():
    return MemoryApi(VirtualClock(at(1000)))


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ([], JobPhase.RUNNING),
        ([("Complete", "True")], JobPhase.SUCCEEDED),
        ([("Failed", "True")], JobPhase.FAILED),
        ([("Complete", "False")], JobPhase.RUNNING),
        ([("FailureTarget", "True")], JobPhase.RUNNING),
        ([("SuccessCriteriaMet", "True"), ("Complete", "True")], JobPhase.SUCCEEDED),
        ([("Suspended", "True")], JobPhase.RUNNING),
        ([("Complete", "Unknown"), ("Failed", "True")], JobPhase.FAILED),
    ],
)
def test_phase_is_the_first_terminal_condition_that_is_true(conditions, phase):
    obj = job_object()
    obj["status"]["conditions"] = [{"type": kind, "status": status} for kind, status in conditions]
    assert view_job(obj).phase is phase


def test_finish_time_falls_back_to_completion_and_then_to_creation():
    obj = job_object(outcome="Complete", finished=90, created=10)
    assert view_job(obj).finished == at(90)
    obj["status"]["conditions"][0].pop("lastTransitionTime")
    obj["status"]["completionTime"] = "2026-09-25T12:00:50Z"
    assert view_job(obj).finished == at(50)
    obj["status"].pop("completionTime")
    assert view_job(obj).finished == at(10)


def flags(finished):
    return {
        name
        for name in (
            "succeeded",
            "interrupted",
            "blocked",
            "plan_changed",
            "plan_unreadable",
            "pull_failed",
            "image_invalid",
            "deadline",
        )
        if getattr(finished, name)
    }


@pytest.mark.parametrize(
    ("job_fields", "pod_fields", "expected"),
    [
        ({"outcome": "Complete"}, {"phase": "Succeeded", "message": result()}, {"succeeded"}),
        ({"outcome": "Complete"}, None, {"succeeded"}),
        ({"outcome": "Failed"}, {"message": result(kind="step", step="apply")}, set()),
        ({"outcome": "Failed"}, {"message": result(kind="interrupted")}, {"interrupted"}),
        (
            {"outcome": "Failed", "reason": "DeadlineExceeded"},
            {"message": result(kind="interrupted")},
            {"deadline"},
        ),
        ({"outcome": "Failed"}, {"message": result(kind="blocked", plan=PLAN)}, {"blocked"}),
        ({"outcome": "Failed"}, {"message": result(kind="plan-changed", plan=PLAN)}, {"plan_changed"}),
        ({"outcome": "Failed", "op": "destroy"}, {"message": result(op="destroy", kind="blocked")}, set()),
        ({"outcome": "Failed"}, {"message": result(kind="image-layout")}, {"image_invalid"}),
        (
            {"outcome": "Complete", "op": "plan"},
            {"phase": "Succeeded", "message": result(op="plan", plan=PLAN)},
            {"succeeded"},
        ),
        (
            {"outcome": "Complete", "op": "plan"},
            {"phase": "Succeeded", "message": result(op="plan")},
            {"plan_unreadable"},
        ),
        ({"outcome": "Complete", "op": "plan"}, None, {"plan_unreadable"}),
        (
            {"outcome": "Failed", "reason": "DeadlineExceeded"},
            {"phase": "Pending", "waiting": "ImagePullBackOff"},
            {"deadline", "pull_failed"},
        ),
        (
            {"outcome": "Failed", "reason": "DeadlineExceeded"},
            {"phase": "Pending", "waiting": "ErrImagePull", "waiting_in": "runner"},
            {"deadline", "pull_failed"},
        ),
        (
            {"outcome": "Failed"},
            {"phase": "Pending", "waiting": "InvalidImageName"},
            {"pull_failed"},
        ),
        ({"outcome": "Failed"}, {"phase": "Pending", "waiting": "ContainerCreating"}, set()),
        ({"outcome": "Failed"}, {"message": "", "disruption": "EvictionByEvictionAPI"}, {"interrupted"}),
        ({"outcome": "Failed"}, {"message": "", "disruption": "TerminationByKubelet"}, set()),
        (
            {"outcome": "Failed"},
            {"message": result(kind="step"), "disruption": "EvictionByEvictionAPI"},
            set(),
        ),
        (
            {"outcome": "Failed", "reason": "DeadlineExceeded"},
            {"message": "", "disruption": "DeletionByTaintManager"},
            {"deadline"},
        ),
        ({"outcome": "Failed"}, {"message": "garbage"}, set()),
        ({"outcome": "Failed"}, None, set()),
    ],
)
def test_flags(job_fields, pod_fields, expected):
    view = job(finished=60, **job_fields)
    pods = [] if pod_fields is None else [pod(**pod_fields)]
    assert flags(classify(view, pods)) == expected


@pytest.mark.parametrize(
    ("ended", "pod_fields", "expected"),
    [
        (3600, {"message": result(kind="interrupted")}, {"deadline"}),
        (3601, {"message": "", "disruption": "EvictionByEvictionAPI"}, {"deadline"}),
        (3599, {"message": result(kind="interrupted")}, {"interrupted"}),
        (3600, {"message": result(kind="step")}, set()),
        (3600, {"message": ""}, set()),
    ],
)
def test_a_run_stopped_no_sooner_than_the_deadline_was_stopped_at_it(ended, pod_fields, expected):
    """The Job controller looked twice, and the second time it saw the pod that it had stopped as a failed one."""
    raw = job_object(outcome="Failed", reason="BackoffLimitExceeded", finished=ended)
    raw.setdefault("spec", {})["activeDeadlineSeconds"] = 3600
    assert flags(classify(view_job(raw), [pod(**pod_fields)])) == expected


def test_a_success_reported_by_a_failed_job_is_not_trusted():
    assert not classify(job(outcome="Failed"), [pod(message=result())]).succeeded


def test_the_result_is_that_of_the_newest_pod():
    old = pod(created=0, suffix="aaaaa", message=result(kind="interrupted"))
    new = pod(created=10, suffix="bbbbb", message=result(kind="step"))
    assert not classify(job(outcome="Failed"), [new, old]).interrupted


def test_a_pod_of_an_earlier_job_of_the_name_says_nothing():
    mine = pod(created=0, suffix="aaaaa", message=result(kind="step"))
    other = pod(created=10, suffix="bbbbb", message=result(kind="interrupted"), job_uid="earlier")
    assert not classify(job(outcome="Failed"), [mine, other]).interrupted


@pytest.mark.parametrize(
    ("marks", "fields", "expected"),
    [
        ({}, {"outcome": "Complete"}, {"succeeded"}),
        ({annotations.INTERRUPTED: "true"}, {"outcome": "Failed"}, {"interrupted"}),
        (
            {annotations.INTERRUPTED: "true"},
            {"outcome": "Failed", "reason": "DeadlineExceeded"},
            {"deadline"},
        ),
        ({annotations.DESTRUCTIVE_PLAN_BLOCKED: "true"}, {"outcome": "Failed"}, {"blocked"}),
        ({annotations.PLAN_CHANGED: "true"}, {"outcome": "Failed"}, {"plan_changed"}),
        ({annotations.PLAN_UNREADABLE: "true"}, {"outcome": "Complete", "op": "plan"}, {"plan_unreadable"}),
        ({annotations.INTERRUPTED: "yes"}, {"outcome": "Failed"}, set()),
    ],
)
def test_a_counted_job_speaks_through_its_marks(api, marks, fields, expected):
    view = job(marks={**BOOKKEPT, **marks}, finished=60, **fields)
    assert flags(from_marks(view)) == expected
    assert [flags(item) for item in collect_finished(api, [view])] == [expected]
    assert api.requests == []


@pytest.mark.parametrize(
    ("outcome", "op", "message", "more"),
    [
        ("Complete", "apply", result(), {}),
        ("Failed", "apply", result(kind="interrupted"), {annotations.INTERRUPTED: "true"}),
        (
            "Failed",
            "apply",
            result(kind="blocked", plan=PLAN),
            {annotations.DESTRUCTIVE_PLAN_BLOCKED: "true", annotations.PLAN_HASH: "p2:ab"},
        ),
        (
            "Failed",
            "apply",
            result(kind="plan-changed", plan=PLAN),
            {annotations.PLAN_CHANGED: "true", annotations.PLAN_HASH: "p2:ab"},
        ),
        ("Complete", "plan", result(op="plan"), {annotations.PLAN_UNREADABLE: "true"}),
        ("Complete", "plan", result(op="plan", plan=PLAN), {annotations.PLAN_HASH: "p2:ab"}),
    ],
)
def test_marks_keep_what_a_later_pass_needs(api, outcome, op, message, more):
    api.put(JOB, job_object(op=op, outcome=outcome, finished=60))
    api.put(POD, pod_object(phase="Failed", message=message))
    before = collect_finished(api, [view_job(obj) for obj in api.all(JOB)])[0]
    assert marks_of(before) == {annotations.BOOKKEPT: "true", **more}
    assert write_marks(api, before)
    after = collect_finished(api, [view_job(obj) for obj in api.all(JOB)])[0]
    assert not after.newly
    assert flags(after) == flags(before)
    assert after.plan_hash == before.plan_hash


def test_a_job_that_is_gone_or_another_needs_no_mark(api):
    finished = classify(job(outcome="Failed"), [])
    assert not write_marks(api, finished)
    api.put(JOB, job_object(uid="of-a-later-one"))
    assert not write_marks(api, finished)
    assert api.all(JOB)[0]["metadata"]["annotations"] == {}


def test_finished_jobs_come_newest_first_and_ties_by_name_descending():
    jobs = [
        classify(job(name, outcome="Failed", finished=second), [])
        for name, second in (("b", 10), ("a", 10), ("c", 5), ("d", 20))
    ]
    assert [item.name for item in newest_finished(jobs)] == ["d", "b", "a", "c"]


def test_only_jobs_that_the_object_itself_controls_are_listed(api):
    api.put(JOB, job_object("mine", created=1))
    api.put(JOB, job_object("newer", created=2))
    api.put(JOB, job_object("of-an-earlier-object", owner_uid="other"))
    api.put(JOB, job_object("of-another-machine", owner="api"))
    found = list_jobs(api, "ns", "TerraformMachine", "web", uid="owner-uid")
    assert [view.name for view in found] == ["newer", "mine"]
    assert active_job(found).name == "newer"


class TestPerRunSecret:
    def secret(self, uid):
        return {
            "metadata": {
                "name": "captf-run-captf-m-web-apply-a1-abc123",
                "namespace": "ns",
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": uid}],
            }
        }

    def test_the_pass_that_removes_it_counts_the_job_and_no_other(self, api):
        view = job(outcome="Complete")
        api.put(SECRET, self.secret(view.uid))
        assert [delete_run_secret(api, view) for _ in range(3)] == [True, False, False]

    def test_the_secret_of_another_job_of_the_name_is_left_alone(self, api):
        api.put(SECRET, self.secret("another"))
        assert not delete_run_secret(api, job(outcome="Complete"))
        assert len(api.all(SECRET)) == 1


SHA = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("spec", "image_id", "pinned"),
    [
        ("registry.example/x:1", f"registry.example/x@{SHA}", f"registry.example/x@{SHA}"),
        ("registry.example/x:1", f"docker-pullable://mirror/x@{SHA}", f"registry.example/x@{SHA}"),
        ("registry.example:5000/team/x", f"x@{SHA}", f"registry.example:5000/team/x@{SHA}"),
        ("x@sha256:" + "b" * 64, f"containerd://x@{SHA}", f"x@{SHA}"),
        ("registry.example/x:1@sha256:" + "b" * 64, f"x@{SHA}", f"registry.example/x@{SHA}"),
        ("registry.example/x:1", "sha256:" + "a" * 64, ""),
        ("registry.example/x:1", "", ""),
        ("registry.example/x:1", f"x@{SHA.upper()}", ""),
        ("registry.example/x:1", f"x@{SHA}0", ""),
    ],
)
def test_the_digest_is_pinned_in_the_repository_of_the_spec(spec, image_id, pinned):
    assert pinned_digest(spec, image_id) == pinned


@pytest.mark.parametrize("label", ["apply", "bogus", ""])
def test_an_unknown_op_label_is_no_op(label):
    assert job(op=label).op == ("apply" if label == "apply" else "")
