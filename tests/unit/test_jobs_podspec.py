"""The Job of every operation, against golden files; `UPDATE_GOLDEN=1` writes them anew."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from captf_controllers.api import annotations, names
from captf_controllers.api.workspace import OPERATIONS, JobPolicy
from captf_controllers.jobs.podspec import (
    Approval,
    Guard,
    JobRequest,
    JobTarget,
    Restore,
    build_job,
    runner_arguments,
)
from captf_controllers.jobs.policy import merge_policies
from captf_controllers.jobs.views import view_job

GOLDEN = Path(__file__).parent / "golden"

CLUSTER = JobTarget("TerraformCluster", "team-a", "prod", "0a1b2c3d-0000-4000-8000-000000000001", "prod")
MACHINE = JobTarget("TerraformMachine", "team-a", "web-0", "0a1b2c3d-0000-4000-8000-000000000002", "prod")
POOL = JobTarget("TerraformMachinePool", "team-a", "workers", "0a1b2c3d-0000-4000-8000-000000000003", "prod")

POLICY = {
    "activeDeadlineSeconds": 1800,
    "lockTimeoutSeconds": 120,
    "serviceAccountName": "deployer",
    "imagePullSecrets": [{"name": "regcred"}],
    "resources": {"limits": {"memory": "4Gi"}},
    "env": [
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
        {"name": "TF_LOG", "value": "TRACE"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "extra", "key": "token"}}},
    ],
    "securityContext": {"runAsUser": 1000, "capabilities": {"drop": ["NET_RAW"]}},
    "podSecurityContext": {"fsGroup": 2000, "supplementalGroups": [3000]},
}


def merged(**fields):
    return merge_policies(msgspec.convert(fields, JobPolicy))


def request(target=MACHINE, op="apply", **more):
    fields = {
        "attempt": 1,
        "inputs_hash": "h2:" + "0" * 64,
        "tick": "",
        "policy": merged(),
        "image": "registry.example/module:1.2.0",
        "runner_image": "registry.example/captf:0.1.0",
        "credentials_secret": "captf-creds-aws",
        "service_account": "captf-runner",
        **more,
    }
    if op == "restore" and "restore" not in more:
        fields["restore"] = Restore(7, ("captf-state-backup-x-m-7", "captf-state-backup-x-m-7-part-1"), 12)
    return JobRequest(target=target, op=op, **fields)


CASES = {
    "machine-apply": request(state_lock_version="none"),
    "cluster-apply-guarded": request(
        CLUSTER,
        guard=Guard("h2:" + "0" * 64),
        force_unlock="6f1c",
        after_failed_apply=True,
        state_lock_version="4711",
    ),
    "cluster-apply-approved": request(
        CLUSTER,
        attempt=2,
        guard=Guard("h2:" + "0" * 64),
        approval=Approval("p2:ab", "prod-0123456789"),
        drift_remediation=True,
        tick="remediate/2026-09-25T12:00:00Z",
    ),
    "cluster-plan": request(CLUSTER, "plan"),
    "pool-apply-exports": request(
        POOL,
        guard=Guard("h2:app", approval_hash="h2:app", allow_deletes_hash="h2:app"),
        cluster_outputs_hash="h2:exports",
        after_interrupted_apply="captf-mp-workers-apply-a1-000000",
    ),
    "pool-apply-held": request(POOL, cluster_outputs_hash="h2:exports", held_cluster_outputs=True),
    "machine-destroy": request(
        op="destroy",
        image="registry.example/module@sha256:" + "a" * 64,
        image_fallbacks=("registry.example/module:1.2.0",),
        state_lineage="6e1f0c5a-1f0b-4f0a-8f8e-2f6f0a1b9c3d",
    ),
    "machine-refresh": request(op="refresh", tick="2026-09-25T12:00:00Z"),
    "cluster-drift": request(CLUSTER, "drift", tick="2026-09-25T12:00:00Z", runner_events=False),
    "machine-restore": request(op="restore", tick="restore/captf-state-backup-x-m-7"),
    "machine-apply-full-policy": request(
        policy=merged(**POLICY), service_account="deployer", image_pull_policy="Always"
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_golden(case):
    built = json.dumps(build_job(CASES[case]), indent=2) + "\n"
    path = GOLDEN / f"job-{case}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(built)
    assert built == path.read_text()


def pod_of(job):
    return job["spec"]["template"]["spec"]


def source_of(job):
    return pod_of(job)["containers"][0]


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_job_is_run_once_and_kept(op):
    job = build_job(request(op=op))
    assert set(job["spec"]) == {"backoffLimit", "activeDeadlineSeconds", "template"}
    assert job["spec"]["backoffLimit"] == 0
    assert pod_of(job)["restartPolicy"] == "Never"
    assert pod_of(job)["terminationGracePeriodSeconds"] == 600
    assert job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"]
    assert job["metadata"]["ownerReferences"][0]["controller"] is True
    assert "blockOwnerDeletion" not in job["metadata"]["ownerReferences"][0]


@pytest.mark.parametrize("op", OPERATIONS)
def test_only_what_changes_infrastructure_or_state_holds_its_node(op):
    template = build_job(request(op=op))["spec"]["template"]["metadata"]
    held = template.get("annotations", {}).get("cluster-autoscaler.kubernetes.io/safe-to-evict")
    assert held == ("false" if op in ("apply", "destroy", "restore") else None)


@pytest.mark.parametrize("case", CASES)
def test_a_job_reads_back_as_what_was_asked_for(case):
    asked = CASES[case]
    view = view_job(build_job(asked))
    assert (view.op, view.attempt, view.image) == (asked.op, asked.attempt, asked.image)
    assert view.service_account == asked.service_account
    assert view.owner_uid == asked.target.uid
    assert view.name == asked.name
    assert names.job_of_pod(asked.target.kind, asked.target.name, f"{view.name}-x7k2p") == view.name


@pytest.mark.parametrize("op", OPERATIONS)
def test_inputs_hash_is_recorded_where_a_success_adopts_it(op):
    found = build_job(request(op=op, inputs_hash=""))["metadata"].get("annotations", {})
    assert (annotations.INPUTS_HASH in found) is (op in ("apply", "plan", "restore"))


PLAN_KEY_CASES = [
    (request(CLUSTER, "plan"), True),
    (request(CLUSTER, guard=Guard("h2:x")), True),
    (request(CLUSTER, approval=Approval("p2:ab")), True),
    (request(MACHINE), False),
    (request(POOL), False),
    (request(CLUSTER, "destroy"), False),
    (request(CLUSTER, "drift"), False),
    (request(CLUSTER, "restore"), False),
]


@pytest.mark.parametrize(("asked", "mounted"), PLAN_KEY_CASES)
def test_the_plan_key_is_mounted_where_a_fingerprint_is_made_and_nowhere_else(asked, mounted):
    job = build_job(asked)
    volumes = {volume["name"]: volume for volume in pod_of(job)["volumes"]}
    assert ("plan-key" in volumes) is mounted
    assert ("--plan-key-file=/captf/plan-key/key" in source_of(job)["args"]) is mounted
    if mounted:
        secret = volumes["plan-key"]["secret"]
        assert secret["secretName"] == names.plan_key_secret(asked.target.kind, asked.target.name)
        assert secret["items"] == [{"key": "key", "path": "key"}]


@pytest.mark.parametrize("op", OPERATIONS)
def test_a_machine_has_no_guard_flags(op):
    arguments = runner_arguments(request(op=op))
    assert not [flag for flag in arguments if flag.startswith(("--guard", "--inputs-hash", "--expect"))]


def test_arguments_come_in_the_order_of_the_contract():
    everything = request(
        CLUSTER,
        guard=Guard("h2:x", allow_deletes_hash="h2:x"),
        approval=Approval("p2:ab"),
        force_unlock="lock",
    )
    flags = [argument.partition("=")[0] for argument in runner_arguments(everything)]
    assert flags == [
        "--op",
        "--bin",
        "--image",
        "--module",
        "--providers",
        "--workdir",
        "--config",
        "--lock-timeout",
        "--stop-timeout",
        *["--backend-config"] * 4,
        "--force-unlock",
        "--guard-deletes",
        "--inputs-hash",
        "--allow-deletes-hash",
        "--expect-plan",
        "--plan-key-file",
        "--event-object",
        "--job-name",
    ]
    restoring = [argument.partition("=")[0] for argument in runner_arguments(request(op="restore"))]
    assert restoring[13:15] == ["--restore-chunks", "--restore-resources"]


def test_the_label_map_is_hcl_with_sorted_keys():
    labels = next(a for a in runner_arguments(request()) if a.startswith("--backend-config=labels="))
    assert labels == (
        '--backend-config=labels={"captf.infrastructure.cluster.x-k8s.io/owner-kind"="TerraformMachine",'
        '"captf.infrastructure.cluster.x-k8s.io/owner-name"="web-0","captf.io/managed"="true",'
        '"cluster.x-k8s.io/cluster-name"="prod","clusterctl.cluster.x-k8s.io/move"=""}'
    )


def test_a_lock_id_is_not_expanded_by_the_kubelet():
    assert "--force-unlock=$$(TOKEN)" in runner_arguments(request(force_unlock="$(TOKEN)"))


def test_without_a_uid_or_with_events_off_there_is_no_event_object():
    for asked in (request(replace(MACHINE, uid="")), request(runner_events=False)):
        assert not [a for a in runner_arguments(asked) if a.startswith(("--event-object", "--job-name"))]


def test_the_reference_of_events_splits_from_the_right():
    reference = next(a for a in runner_arguments(request()) if a.startswith("--event-object="))
    assert reference == (
        "--event-object=infrastructure.cluster.x-k8s.io/v1alpha1/TerraformMachine/team-a/web-0/" + MACHINE.uid
    )


@pytest.mark.parametrize(
    ("configured", "dropped"),
    [
        (None, ["ALL"]),
        ({"capabilities": {"drop": ["NET_RAW"]}}, ["ALL", "NET_RAW"]),
        ({"capabilities": {"drop": ["NET_RAW", "ALL"]}}, ["NET_RAW", "ALL"]),
        ({"capabilities": {}}, ["ALL"]),
        ({"capabilities": None}, ["ALL"]),
    ],
)
def test_all_capabilities_are_always_dropped(configured, dropped):
    policy = merged() if configured is None else merged(securityContext=configured)
    context = source_of(build_job(request(policy=policy)))["securityContext"]
    assert context["capabilities"]["drop"] == dropped
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True


def test_a_user_field_wins_over_a_default():
    policy = merged(
        securityContext={"readOnlyRootFilesystem": False},
        podSecurityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}},
    )
    job = build_job(request(policy=policy))
    assert source_of(job)["securityContext"]["readOnlyRootFilesystem"] is False
    assert pod_of(job)["securityContext"]["seccompProfile"]["type"] == "Localhost"
    assert pod_of(job)["securityContext"]["fsGroup"] == 65532
    assert "runAsNonRoot" not in source_of(job)["securityContext"]


def test_an_explicit_lock_timeout_of_zero_is_passed_on():
    assert "--lock-timeout=0s" in runner_arguments(request(policy=merged(lockTimeoutSeconds=0)))


def test_building_neither_changes_nor_shares_the_policy():
    policy = merged(**POLICY)
    before = copy.deepcopy(policy)
    job = build_job(request(policy=policy))
    source_of(job)["env"][-1]["valueFrom"] = None
    source_of(job)["resources"]["limits"]["memory"] = "1"
    assert policy == before


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"image": ""}, "image"),
        ({"runner_image": ""}, "runner_image"),
        ({"credentials_secret": ""}, "credentials_secret"),
        ({"op": "destroy", "guard": Guard("h2:x")}, "guard"),
        ({"guard": Guard("")}, "guard.hash"),
        ({"restore": Restore(1, ("a",), 1)}, "restore"),
        ({"op": "bogus"}, "op"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused_by_field(change, field):
    with pytest.raises(ValueError, match=field):
        build_job(replace(request(), **change))


@pytest.mark.parametrize("op", sorted(set(OPERATIONS) - {"restore"}))
def test_a_run_is_held_to_the_lineage_of_its_state(op):
    job = build_job(request(op=op, state_lineage="6e1f0c5a-1f0b"))
    assert "--state-lineage=6e1f0c5a-1f0b" in source_of(job)["args"]
    assert job["metadata"]["annotations"][annotations.STATE_LINEAGE] == "6e1f0c5a-1f0b"


@pytest.mark.parametrize("lineage", ["", "$(CLOUD_TOKEN)", "-x", "a b", "a\n", "x" * 129, "é"])
def test_a_lineage_that_no_runtime_writes_is_not_passed_on(lineage):
    job = build_job(request(op="destroy", state_lineage=lineage))
    assert not [argument for argument in source_of(job)["args"] if "lineage" in argument]
    assert annotations.STATE_LINEAGE not in job["metadata"].get("annotations", {})


def test_a_restore_is_not_since_it_brings_its_own():
    job = build_job(request(op="restore", state_lineage="6e1f0c5a-1f0b"))
    assert not [argument for argument in source_of(job)["args"] if "lineage" in argument]
    assert annotations.STATE_LINEAGE not in job["metadata"]["annotations"]
