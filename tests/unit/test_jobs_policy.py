"""Merging and checking the Job policy."""

from __future__ import annotations

import msgspec
import pytest

from captf_controllers.api.workspace import JobPolicy
from captf_controllers.jobs.policy import is_reserved_env, merge_policies, policy_problem


def policy(**fields):
    return msgspec.convert(fields, JobPolicy)


def test_built_ins():
    merged = merge_policies(None)
    assert (merged.deadline_seconds, merged.lock_timeout_seconds) == (3600, 300)
    assert (merged.successful_limit, merged.failed_limit) == (3, 3)
    assert merged.service_account == "captf-runner"
    assert merged.resources is merged.security_context is merged.pod_security_context is None
    assert merged.env == merged.image_pull_secrets == merged.dropped_env == ()


def test_each_scalar_comes_from_the_nearest_level_that_sets_it():
    merged = merge_policies(
        policy(lockTimeoutSeconds=0, failedJobsHistoryLimit=0),
        policy(activeDeadlineSeconds=600, lockTimeoutSeconds=60, serviceAccountName="deployer"),
        policy(activeDeadlineSeconds=900, successfulJobsHistoryLimit=7, failedJobsHistoryLimit=9),
    )
    assert merged.lock_timeout_seconds == 0
    assert merged.deadline_seconds == 600
    assert merged.failed_limit == 0
    assert merged.successful_limit == 7
    assert merged.service_account == "deployer"


def test_a_stored_zero_deadline_and_an_empty_account_are_unset():
    stored = JobPolicy(active_deadline_seconds=0, service_account_name="")
    merged = merge_policies(stored, policy(activeDeadlineSeconds=60))
    assert merged.deadline_seconds == 60
    assert merged.service_account == "captf-runner"


def test_resources_and_contexts_are_taken_whole():
    merged = merge_policies(
        policy(resources={"limits": {"cpu": "1"}}),
        policy(resources={"requests": {"memory": "1Gi"}}, securityContext={"runAsUser": 1000}),
    )
    assert merged.resources == {"limits": {"cpu": "1"}}
    assert merged.security_context == {"runAsUser": 1000}


def test_env_merges_by_name_and_pull_secrets_as_a_union_nearer_first():
    merged = merge_policies(
        policy(env=[{"name": "A", "value": "own"}], imagePullSecrets=[{"name": "own"}, {"name": "both"}]),
        policy(
            env=[{"name": "B", "value": "2"}, {"name": "A", "value": "far"}],
            imagePullSecrets=[{"name": "both"}, {"name": "far"}],
        ),
    )
    assert [(entry["name"], entry["value"]) for entry in merged.env] == [("A", "own"), ("B", "2")]
    assert merged.image_pull_secrets == ("own", "both", "far")


RESERVED = [
    "TF_LOG",
    "TF_VAR_x",
    "KUBE_HOST",
    "KUBERNETES_SERVICE_HOST",
    "HOME",
    "TMPDIR",
    "CHECKPOINT_DISABLE",
]


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names_of_a_stored_policy_are_dropped_and_named(name):
    assert is_reserved_env(name)
    merged = merge_policies(policy(env=[{"name": name, "value": "secret"}, {"name": "OK", "value": "1"}]))
    assert merged.env == ({"name": "OK", "value": "1"},)
    assert merged.dropped_env == (name,)


@pytest.mark.parametrize("name", ["TFX", "KUBECONFIG", "HOMEDIR", "HTTP_PROXY", "tf_log"])
def test_other_names_are_free(name):
    assert not is_reserved_env(name)


def test_the_merge_shares_nothing_with_the_spec():
    own = policy(resources={"limits": {"cpu": "1"}}, env=[{"name": "A", "value": "1"}])
    merged = merge_policies(own)
    merged.resources["limits"]["cpu"] = "9"
    merged.env[0]["value"] = "9"
    assert own.resources == {"limits": {"cpu": "1"}}
    assert own.env[0]["value"] == "1"


@pytest.mark.parametrize(
    ("levels", "lock", "deadline", "wrong"),
    [
        ([{}], "300 (built-in default)", "3600 (built-in default)", False),
        ([{"activeDeadlineSeconds": 300}], "300 (built-in default)", "300 (configured)", True),
        ([{"activeDeadlineSeconds": 301}], "", "", False),
        ([{"lockTimeoutSeconds": 3600}], "3600 (configured)", "3600 (built-in default)", True),
        ([{"lockTimeoutSeconds": 3599}], "", "", False),
        ([{"lockTimeoutSeconds": 0, "activeDeadlineSeconds": 1}], "", "", False),
        (
            [{"lockTimeoutSeconds": 900}, {"activeDeadlineSeconds": 600}],
            "900 (configured)",
            "600 (configured)",
            True,
        ),
    ],
)
def test_the_effective_lock_timeout_must_be_below_the_effective_deadline(levels, lock, deadline, wrong):
    problem = policy_problem(merge_policies(*(policy(**level) for level in levels)))
    assert (problem is not None) is wrong
    if problem is not None:
        assert lock in problem
        assert deadline in problem
