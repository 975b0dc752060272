"""Failures in a row, backoff and history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.job_objects import at, finished, job, job_object, pod, result
from tests.unit.memory_api import MemoryApi

from captf_controllers.jobs.failures import (
    Failures,
    backoff_remaining,
    count_failures,
    count_remediation_failures,
    retry_delay,
    retry_note,
    retry_number,
)
from captf_controllers.jobs.history import prune, prune_choice
from captf_controllers.jobs.outcomes import classify
from captf_runtime.objects import JOB
from captf_runtime.testing.clock import VirtualClock

MINUTE = 60


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [
        (0, [10, 10, 10, 10, 10]),
        (1, [10, 10, 10, 10, 10]),
        (3, [1, 2, 10, 10, 10]),
        (None, [1, 2, 10, 10, 10]),
        (5, [1, 2, 4, 8, 10]),
        (10, [1, 2, 4, 8, 10]),
    ],
)
def test_backoff_table(limit, minutes):
    assert [retry_delay(n, limit) / MINUTE for n in range(1, 6)] == minutes


def failed(name, second, error="step", **fields):
    return finished(name, "failed", second, error=error, **fields)


def test_counts_until_the_newest_success_of_the_op():
    jobs = [
        failed("a1", 10),
        finished("a2", "ok", 20),
        failed("a3", 30),
        failed("a4", 40),
        failed("d1", 50, op="destroy"),
    ]
    assert count_failures(jobs, "apply") == Failures(2, at(40))
    assert count_failures(jobs, "destroy") == Failures(1, at(50))
    assert count_failures(jobs, "plan") == Failures(0, None)


@pytest.mark.parametrize("error", ["interrupted", "blocked", "plan-changed"])
def test_what_waits_for_a_person_or_was_stopped_neither_counts_nor_ends_the_walk(error):
    jobs = [failed("a1", 10), failed("a2", 20, error=error), failed("a3", 30)]
    assert count_failures(jobs, "apply").n == 2
    newest_is_skipped = [failed("a1", 10), failed("a2", 20, error=error)]
    assert count_failures(newest_is_skipped, "apply") == Failures(1, at(10))


def test_a_kill_at_the_deadline_counts_even_when_the_runner_says_interrupted():
    job_ = failed("a1", 10, error="interrupted", reason="DeadlineExceeded")
    assert count_failures([job_], "apply").n == 1


@pytest.mark.parametrize("pods", [[], [pod("p", phase="Pending", waiting="ErrImagePull")], [pod("p")]])
def test_no_result_and_no_image_count(pods):
    assert count_failures([classify(job("a1", outcome="Failed", finished=5), pods)], "apply").n == 1


def test_an_unreadable_plan_counts_as_a_failure():
    unreadable = classify(job("p1", op="plan", outcome="Complete", finished=5), [])
    assert count_failures([unreadable], "plan").n == 1


def test_the_wait_is_counted_from_the_newest_counted_failure():
    failures = Failures(2, at(100))
    assert backoff_remaining(failures, 3, at(100)) == 120
    assert backoff_remaining(failures, 3, at(150)) == 70
    assert backoff_remaining(failures, 3, at(220)) == 0
    assert backoff_remaining(Failures(0, None), 3, at(0)) == 0


@given(st.integers(1, 200), st.none() | st.integers(0, 100))
def test_the_delay_never_exceeds_ten_minutes_nor_shrinks_with_more_failures(n, limit):
    assert 60 <= retry_delay(n, limit) <= 600
    assert retry_delay(n, limit) <= retry_delay(n + 1, limit)


def test_retry_number():
    jobs = [
        failed("a1", 10),
        finished("a2", "ok", 20),
        failed("a3", 30),
        failed("a4", 40, error="interrupted"),
        finished("a5", "ok", 50),
        finished("a6", "ok", 60),
    ]
    assert [retry_number(jobs, job_) for job_ in jobs] == [None, 2, None, None, 2, 1]


def test_remediation_failures_count_from_the_last_drift_check():
    jobs = [
        failed("a1", 10),
        failed("a2", 30),
        failed("a3", 40, error="blocked"),
        failed("a4", 50, error="interrupted"),
    ]
    assert count_remediation_failures(jobs, at(20)) == 2
    assert count_remediation_failures(jobs, None) == 3
    assert count_remediation_failures([*jobs, finished("a5", "ok", 60)], at(20)) == 0


def test_the_note_tells_when_the_next_try_is_due():
    assert retry_note(Failures(0, None), 3) == ""
    one = retry_note(Failures(1, at(0)), 3)
    assert "2026-09-25T12:01:00Z" in one
    assert "1 failure" in one
    assert "2 consecutive failures" in retry_note(Failures(2, at(0)), 3)


class TestPruning:
    def kept(self, outcomes, ok_limit, failed_limit):
        """`outcomes`: oldest first, "s" success, "f" failure, "r" running."""
        phases = {"s": "Complete", "f": "Failed", "r": ""}
        views = [
            job(f"j{i}", created=i, outcome=phases[letter], finished=i) for i, letter in enumerate(outcomes)
        ]
        dropped = {view.name for view in prune_choice(views, ok_limit, failed_limit)}
        return "".join(
            letter if view.name not in dropped else "." for view, letter in zip(views, outcomes, strict=True)
        )

    @pytest.mark.parametrize(
        ("outcomes", "ok_limit", "failed_limit", "kept"),
        [
            ("sssss", 3, 3, "..sss"),
            ("fffff", 3, 3, "..fff"),
            ("sfsfsf", 1, 1, "....sf"),
            ("ssss", 0, 3, "...s"),
            ("ffff", 3, 0, "...f"),
            ("ffs", 0, 0, "..s"),
            ("sff", 0, 0, "s.f"),
            ("frr", 0, 0, "frr"),
            ("sr", 0, 0, "sr"),
            ("fs", 3, 0, ".s"),
            ("ssss", None, None, ".sss"),
        ],
    )
    def test_choice(self, outcomes, ok_limit, failed_limit, kept):
        assert self.kept(outcomes, ok_limit, failed_limit) == kept

    def test_each_op_has_a_history_of_its_own(self):
        views = [
            job(f"{op}{i}", op=op, created=i, outcome="Complete", finished=i)
            for op in ("apply", "refresh")
            for i in range(2)
        ]
        assert {view.name for view in prune_choice(views, 1, 1)} == {"apply0", "refresh0"}

    def test_equal_creation_times_go_by_name(self):
        views = [job(name, outcome="Complete", finished=1) for name in ("b", "a", "c")]
        assert [view.name for view in prune_choice(views, 1, 1)] == ["b", "c"]

    @given(st.text("sfr", max_size=12), st.integers(0, 4), st.integers(0, 4))
    def test_the_newest_success_and_a_failure_that_nothing_followed_always_stay(self, outcomes, ok, failed_):
        kept = self.kept(outcomes, ok, failed_)
        finished_ = outcomes.replace("r", "")
        if "s" in finished_:
            assert kept[outcomes.rindex("s")] == "s"
        if finished_.endswith("f"):
            assert kept[outcomes.rindex("f")] == "f"
        assert kept.count("r") == outcomes.count("r")

    def test_deletes_in_the_background_and_ignores_what_is_gone(self):
        api = MemoryApi(VirtualClock())
        api.put(JOB, job_object("a"))
        api.put(JOB, job_object("of-another-uid", uid="new"))
        prune(api, [job("a"), job("gone"), job("of-another-uid", uid="old")])
        assert [obj["metadata"]["name"] for obj in api.all(JOB)] == ["of-another-uid"]


def test_a_result_without_error_of_a_failed_job_counts():
    assert (
        count_failures([classify(job("a", outcome="Failed"), [pod("a", message=result())])], "apply").n == 1
    )
