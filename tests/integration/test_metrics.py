"""The series that passes move: each once for what it counts, the gauges with their object's life."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.world import IDENTITY, OUTPUTS, TEAM, World

from captf_controllers.api import names
from captf_controllers.api.kinds import TERRAFORM_CLUSTER_IDENTITY, TERRAFORM_PLAN
from captf_controllers.api.labels import WATCH_FILTER
from captf_controllers.observability.metrics import PER_OBJECT, SERIES
from captf_runtime.objects import LEASE, SECRET, name_of

MACHINE, CLUSTER = "TerraformMachine", "TerraformCluster"


def value(world: World, series: str, **labels: str) -> float | None:
    """The series' value; None while it does not exist."""
    for family in text_string_to_metric_families(world.scrape()):
        for sample in family.samples:
            if sample.name == series and sample.labels == labels:
                return sample.value
    return None


def of_object(world: World, name: str) -> set[str]:
    """The series that name the object."""
    return {
        sample.name
        for family in text_string_to_metric_families(world.scrape())
        for sample in family.samples
        if sample.labels.get("name") == name
    }


def settle(world: World, kind: str, name: str) -> None:
    """Passes until nothing moves, and again: what is counted once must not be counted by them."""
    for _ in range(3):
        world.settle(kind, name)


def begin(world: World, kind: str, name: str) -> dict[str, Any]:
    world.settle(kind, name)
    return world.running_job(name)


def test_a_job_is_counted_once_with_its_steps_and_tries(world: World) -> None:
    world.ensure_cluster()
    world.add(MACHINE, "m1")
    apply = {"kind": MACHINE, "op": "apply"}
    job = begin(world, MACHINE, "m1")
    world.start_pod(job)
    world.advance(40)
    world.finish_job(job, "failed")
    settle(world, MACHINE, "m1")
    assert value(world, "captf_jobs_total", **apply, result="failed") == 1
    assert value(world, "captf_job_errors_total", **apply, error_kind="step", step="apply") == 1
    assert value(world, "captf_job_duration_seconds_sum", **apply, result="failed") == 40
    assert value(world, "captf_job_queue_seconds_count", **apply) == 1
    world.advance(601)
    job = begin(world, MACHINE, "m1")
    world.advance(20)
    world.finish_job(job)
    settle(world, MACHINE, "m1")
    assert value(world, "captf_jobs_total", **apply, result="succeeded") == 1
    assert value(world, "captf_job_attempts_sum", **apply) == 2
    for step in ("init", "validate", "apply"):
        counted = value(world, "captf_job_step_duration_seconds_count", **apply, step=step)
        assert counted is not None
        assert counted >= 1
    of = {"kind": MACHINE, "namespace": TEAM, "name": "m1"}
    assert value(world, "captf_ready", **of) == 1
    assert value(world, "captf_infrastructure_healthy", **of) == 1
    assert value(world, "captf_drift_detected", **of) == 0
    for series in ("captf_state_resources", "captf_state_bytes", "captf_inputs_bytes"):
        assert (value(world, series, **of) or 0) > 0, series
    assert (
        value(world, "captf_last_success_timestamp_seconds", **of, op="apply")
        == world.clock.now().timestamp()
    )


def test_decisions(world: World) -> None:
    def decided(op: str, reason: str) -> float:
        return value(world, "captf_reconcile_op_decisions_total", kind=MACHINE, op=op, reason=reason) or 0

    world.provisioned(MACHINE, "m1")
    assert decided("apply", "NoState") == 1
    assert decided("none", "UpToDate") >= 1
    world.delete(MACHINE, "m1")
    world.settle(MACHINE, "m1")
    assert decided("destroy", "Deleting") == 1
    world.reconcile(MACHINE, "m1")
    assert decided("none", "JobActive") >= 1
    assert decided("destroy", "Deleting") == 1
    world.finish_job(world.running_job("m1", op="destroy"))
    world.settle(MACHINE, "m1")
    assert decided("finalizer", "Destroyed") == 1
    world.provisioned(MACHINE, "m2", deletionPolicy="Retain")
    world.delete(MACHINE, "m2")
    world.settle(MACHINE, "m2")
    assert decided("finalizer", "Retained") == 1


def test_what_is_wrong_is_counted_when_it_begins(world: World) -> None:
    world.provisioned(MACHINE, "m1")
    broken = {**OUTPUTS[MACHINE], "provider_id": "noop:///another"}
    world.write_state(MACHINE, "m1", outputs=broken, serial=50)
    settle(world, MACHINE, "m1")
    assert value(world, "captf_outputs_invalid_total", kind=MACHINE, reason="ProviderIDChanged") == 1
    for secret in world.state_secrets(MACHINE, "m1"):
        world.client.delete(SECRET, name_of(secret), TEAM, propagation_policy="Background")
    settle(world, MACHINE, "m1")
    assert value(world, "captf_state_read_errors_total", kind=MACHINE, reason="lost") == 1
    world.client.patch(
        TERRAFORM_CLUSTER_IDENTITY,
        IDENTITY,
        {"spec": {"allowedNamespaces": {"list": ["x"], "selector": None}}},
    )
    settle(world, MACHINE, "m1")
    assert value(world, "captf_identity_denied_total", reason="namespace") == 1
    world.client.delete(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, propagation_policy="Background")
    settle(world, MACHINE, "m1")
    assert value(world, "captf_identity_denied_total", reason="notfound") == 1


@pytest.mark.parametrize("reason", ["run_lease", "cluster_operation", "machine_operations", "job_slot"])
def test_a_wait_is_counted_when_it_begins(world: World, reason: str) -> None:
    kind, name = (CLUSTER, "prod") if reason == "machine_operations" else (MACHINE, "m1")
    if kind == MACHINE:
        world.ensure_cluster()
    world.add(kind, name)
    world.add_job("somebody-elses")
    if reason == "run_lease":
        world.hold_run_lease(kind, name, "somebody-elses")
    elif reason == "cluster_operation":
        world.hold_write_lease("prod", "somebody-elses")
    elif reason == "machine_operations":
        world.hold_run_lease(MACHINE, "m9", "somebody-elses", cluster="prod", op="apply")
    else:
        world.restart(max_active_jobs=1)
        world.take_slot("somebody-elses")
    for _ in range(3):
        world.settle(kind, name)
        world.advance(31)
    assert value(world, "captf_lease_waits_total", kind=kind, reason=reason) == 1
    assert world.jobs(name) == []


def test_changed_inputs_drift_and_resources(world: World) -> None:
    world.provisioned(CLUSTER, "prod")
    world.patch(CLUSTER, "prod", {"spec": {"variables": {"size": 2}}})
    job = begin(world, CLUSTER, "prod")
    assert value(world, "captf_inputs_hash_changes_total", kind=CLUSTER) == 1
    world.finish_job(job)
    settle(world, CLUSTER, "prod")
    assert value(world, "captf_inputs_hash_changes_total", kind=CLUSTER) == 1
    world.advance(world.settle(CLUSTER, "prod"))
    job = begin(world, CLUSTER, "prod")
    world.finish_job(job, drift={"create": 0, "update": 2, "replace": 0, "delete": 1, "resources": ["a.b"]})
    settle(world, CLUSTER, "prod")
    assert value(world, "captf_drift_resources_total", kind=CLUSTER, action="update") == 2
    assert value(world, "captf_drift_resources_total", kind=CLUSTER, action="delete") == 1
    assert value(world, "captf_drift_resources_total", kind=CLUSTER, action="create") is None
    assert value(world, "captf_drift_detected", kind=CLUSTER, namespace=TEAM, name="prod") == 1


def test_backups_and_restores(world: World) -> None:
    world.provisioned(MACHINE, "m1")
    assert value(world, "captf_state_backups_total", kind=MACHINE, result="taken") == 1
    serial = world.serial(MACHINE, "m1")
    for number in range(serial + 1, serial + 7):
        world.write_state(MACHINE, "m1", outputs=OUTPUTS[MACHINE], serial=number)
        settle(world, MACHINE, "m1")
    assert value(world, "captf_state_backups_total", kind=MACHINE, result="taken") == 7
    assert value(world, "captf_state_backups_total", kind=MACHINE, result="pruned") == 2
    world.annotate(MACHINE, "m1", restore_state="999")
    settle(world, MACHINE, "m1")
    assert value(world, "captf_state_restores_total", kind=MACHINE, result="not_found") == 1
    world.annotate(MACHINE, "m1", restore_state=str(serial + 5))
    job = begin(world, MACHINE, "m1")
    world.advance(1)
    world.finish_job(job)
    settle(world, MACHINE, "m1")
    assert value(world, "captf_state_restores_total", kind=MACHINE, result="succeeded") == 1


def test_a_stale_lock_that_a_job_removes(world: World) -> None:
    world.provisioned(CLUSTER, "prod")
    suffix = names.state_suffix(TEAM, CLUSTER, "prod")
    pod = f"{names.job_name(CLUSTER, 'prod', 'apply', 1, 'h', '')}-x7k2p"
    info = f'{{"ID":"4711","Who":"root@{pod}","Operation":"OperationTypeApply"}}'
    metadata = {
        "name": names.state_lock_lease(suffix),
        "annotations": {"app.terraform.io/lock-info": info},
    }
    world.create(LEASE, {"metadata": metadata, "spec": {"holderIdentity": "4711"}}, TEAM)
    world.patch(CLUSTER, "prod", {"spec": {"variables": {"size": 2}}})
    job = begin(world, CLUSTER, "prod")
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    unlocked = any(argument.startswith("--force-unlock") for argument in arguments)
    assert unlocked, "the pod that held the lock is gone"
    settle(world, CLUSTER, "prod")
    assert value(world, "captf_lock_force_unlocks_total", kind=CLUSTER) == 1


def test_approvals(world: World) -> None:
    def counted(result: str) -> float:
        return value(world, "captf_plan_approvals_total", kind=CLUSTER, result=result) or 0

    plan = {
        "hash": "p2:" + "1" * 64,
        "create": 0,
        "update": 1,
        "replace": 0,
        "delete": 0,
        "resources": ["a.b"],
    }
    world.provisioned(CLUSTER, "prod", applyPolicy="Manual")
    if not world.client.list(TERRAFORM_PLAN, TEAM).items:
        world.patch(CLUSTER, "prod", {"spec": {"variables": {"size": 2}}})
        world.settle(CLUSTER, "prod")
    before = {result: counted(result) for result in ("created", "approved", "applied")}
    job = world.running_job("prod", op="plan")
    world.finish_job(job, plan=plan)
    settle(world, CLUSTER, "prod")
    assert counted("created") == before["created"] + 1
    (pending,) = world.client.list(TERRAFORM_PLAN, TEAM).items
    approval = {"spec": {"approved": True, "approvedBy": "alice"}}
    world.client.patch(TERRAFORM_PLAN, name_of(pending), approval, TEAM)
    world.settle(CLUSTER, "prod")
    assert counted("approved") == before["approved"] + 1
    world.advance(1)
    world.finish_job(world.running_job("prod", op="apply"))
    settle(world, CLUSTER, "prod")
    assert counted("applied") == before["applied"] + 1


def test_checks_that_nothing_runs_have_no_last_success(world: World) -> None:
    """Else the alert about a check without success fires for objects that have none."""
    world.provisioned(CLUSTER, "prod")
    of = {"kind": CLUSTER, "namespace": TEAM, "name": "prod"}

    def last(op: str) -> float | None:
        return value(world, "captf_last_success_timestamp_seconds", **of, op=op)

    def check() -> None:
        world.advance(world.settle(CLUSTER, "prod"))
        world.finish_job(begin(world, CLUSTER, "prod"))
        settle(world, CLUSTER, "prod")

    check()
    checked = last("drift")
    assert checked == int(world.clock.now().timestamp())
    assert last("refresh") is None, "a cluster is never sampled on a schedule"
    world.patch(CLUSTER, "prod", {"spec": {"drift": {"intervalSeconds": 0}}})
    settle(world, CLUSTER, "prod")
    assert last("drift") is None
    assert last("apply") is not None
    world.patch(CLUSTER, "prod", {"spec": {"drift": None}})
    settle(world, CLUSTER, "prod")
    assert last("drift") == checked
    world.patch(CLUSTER, "prod", {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    settle(world, CLUSTER, "prod")
    assert last("drift") is None
    world.patch(CLUSTER, "prod", {"metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}})
    settle(world, CLUSTER, "prod")
    assert last("drift") == checked
    world.delete(CLUSTER, "prod")
    world.settle(CLUSTER, "prod")
    assert last("drift") is None


def test_the_series_of_an_object_end_with_it(world: World) -> None:
    world.provisioned(MACHINE, "m1")
    assert of_object(world, "m1") >= set(PER_OBJECT) - {"captf_unhealthy_samples"}
    world.delete(MACHINE, "m1")
    world.settle(MACHINE, "m1")
    world.finish_job(world.running_job("m1", op="destroy"))
    world.settle(MACHINE, "m1")
    assert of_object(world, "m1") == set()


def test_the_series_of_an_object_end_when_it_leaves_the_watch_filter(world: World) -> None:
    world.provisioned(MACHINE, "m1")
    labelled = {"metadata": {"labels": {WATCH_FILTER: "mine"}}}
    world.patch(MACHINE, "m1", labelled)
    world.restart(watch_filter="mine")
    world.settle(MACHINE, "m1")
    assert "captf_ready" in of_object(world, "m1")
    labelled["metadata"]["labels"][WATCH_FILTER] = "others"
    world.patch(MACHINE, "m1", labelled)
    world.settle(MACHINE, "m1")
    assert of_object(world, "m1") == set()


def test_only_the_per_object_gauges_name_an_object() -> None:
    assert {series.name for series in SERIES if "name" in series.labels} == set(PER_OBJECT)
