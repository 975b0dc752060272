"""Names, ticks and attempts of Jobs."""

from __future__ import annotations

import pytest
from tests.unit.job_objects import NOON, job

from captf_controllers.api import names
from captf_controllers.jobs.naming import stamp, tick_for
from captf_controllers.jobs.operations import BACKGROUND, MUTATING, condition_type
from captf_controllers.jobs.views import next_attempt

TICK = "2026-09-25T12:00:00Z"


@pytest.mark.parametrize(
    ("op", "attempt", "tick", "hash6"),
    [
        ("apply", 2, "", "3489af"),
        ("restore", 1, "restore/captf-state-backup-0123456789abcdef-m-7", "158d59"),
        ("refresh", 1, "", "432193"),
        ("refresh", 1, TICK, "a3bf3c"),
        ("drift", 1, TICK, "092531"),
        ("apply", 2, f"remediate/{TICK}", "71f800"),
    ],
)
def test_hash_of_a_job(op, attempt, tick, hash6):
    assert names.job_hash("h1:abc", op, attempt, tick) == hash6


def test_job_name():
    assert names.job_name("TerraformCluster", "prod", "apply", 2, "h1:abc") == "captf-c-prod-apply-a2-3489af"


def test_a_long_object_name_is_hashed_where_the_pod_name_would_not_fit_a_hostname():
    kept = names.job_name("TerraformMachine", "n" * 33, "apply", 1, "h1:abc")
    assert len(kept) == 57
    assert "n" * 33 in kept
    hashed = names.job_name("TerraformMachine", "n" * 34, "apply", 1, "h1:abc")
    assert hashed.startswith("captf-m-cf103f4d499e6dd3-apply-a1-")


@pytest.mark.parametrize(
    ("op", "more", "tick"),
    [
        ("apply", {}, ""),
        ("plan", {}, ""),
        ("destroy", {"last_refresh": NOON, "last_drift_check": NOON}, ""),
        ("apply", {"remediation": True, "last_drift_check": NOON}, f"remediate/{TICK}"),
        ("plan", {"remediation": True}, "remediate/"),
        ("refresh", {"last_refresh": NOON}, TICK),
        ("refresh", {"last_drift_check": NOON}, ""),
        ("drift", {"last_drift_check": NOON}, TICK),
        ("restore", {"backup": "captf-state-backup-x-7"}, "restore/captf-state-backup-x-7"),
    ],
)
def test_tick(op, more, tick):
    assert tick_for(op, **more) == tick


def test_a_stamp_has_whole_seconds_and_is_empty_when_unset():
    assert stamp(NOON.replace(microsecond=999_999)) == TICK
    assert stamp(None) == ""


@pytest.mark.parametrize(
    ("attempts", "following"),
    [
        ([], 1),
        (["1"], 2),
        (["3", "7", "2"], 8),
        (["x", "-4", "", "2.0", "99999999999"], 1),
        (["5", "bogus"], 6),
    ],
)
def test_next_attempt_is_one_above_the_highest_label_and_ignores_what_is_no_number(attempts, following):
    jobs = [job(f"j{i}", attempt=attempt) for i, attempt in enumerate(attempts)]
    jobs.append(job("other-op", op="destroy", attempt="50"))
    assert next_attempt(jobs, "apply") == following


def test_every_op_reports_on_a_condition():
    assert {op: condition_type(op) for op in ("apply", "destroy", "plan")} == dict.fromkeys(
        ("apply", "destroy", "plan"), "ApplyJobSucceeded"
    )
    assert condition_type("refresh") == condition_type("drift") == "DriftJobSucceeded"
    assert condition_type("restore") == "RestoreJobSucceeded"
    assert not MUTATING & BACKGROUND


@pytest.mark.parametrize(
    ("host", "owned"),
    [
        ("captf-m-web-apply-a1-abc123-x7k2p", True),
        ("captf-m-web-plan-a1-abc123-x7k2p", True),
        ("captf-m-web-restore-a2-abc123-x7k2p", True),
        ("captf-c-web-apply-a1-abc123-x7k2p", False),
        ("captf-m-web-1-apply-a1-abc123-x7k2p", False),
        ("captf-m-web-apply-a1-abc123", False),
        ("captf-m-web-bogus-a1-abc123-x7k2p", False),
        ("captf-m-web-apply-1-abc123-x7k2p", False),
        ("captf-m-web-apply-ax-abc123-x7k2p", False),
        ("laptop", False),
        ("", False),
    ],
)
def test_pods_of_a_machine(host, owned):
    assert (names.job_of_pod("TerraformMachine", "web", host) is not None) is owned
