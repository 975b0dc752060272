"""What happens on its own: drift checks and their remediation, health samples, replacement, write-back."""

from __future__ import annotations

from typing import Any

from tests.world import HEALTHY, OUTPUTS, TEAM, World

from captf_controllers.api import names
from captf_controllers.api.kinds import MACHINE, MACHINE_POOL
from captf_runtime.objects import LEASE, annotations_of, labels_of, name_of
from captf_runtime.testing.faults import Match, conflict

DRIFT: dict[str, Any] = {"create": 0, "update": 2, "replace": 0, "delete": 1, "resources": ["module.role.x"]}


def op(job: dict[str, Any]) -> str:
    return labels_of(job)["captf.infrastructure.cluster.x-k8s.io/op"]


def until_job(world: World, kind: str, name: str, wanted: str) -> dict[str, Any]:
    """Let time pass as the object asks for it until a Job of ``wanted`` runs."""
    for _ in range(6):
        requeue = world.settle(kind, name)
        running = [
            job for job in world.jobs(name, op=wanted) if not (job.get("status") or {}).get("conditions")
        ]
        if running:
            return running[0]
        world.advance(requeue)
    raise AssertionError(f"no {wanted} Job after {requeue} s more")


def test_drift_is_checked_when_it_is_due_and_reported(world: World) -> None:
    world.provisioned("TerraformCluster", "prod")
    requeue = world.settle("TerraformCluster", "prod")
    assert 1800 < requeue < 1980
    check = until_job(world, "TerraformCluster", "prod", "drift")
    assert world.says("TerraformCluster", "prod", "DriftJobSucceeded") == "Unknown/DriftJobRunning"
    world.finish_job(check, drift=DRIFT, steps=("init", "plan"))
    world.settle("TerraformCluster", "prod")
    found = world.condition("TerraformCluster", "prod", "DriftDetected")
    assert (found["status"], found["reason"]) == ("True", "DriftReported")
    assert "2 to update" in found["message"]
    assert "1 to delete" in found["message"]
    assert len(world.events.of("DriftDetected", "prod")) == 1
    assert world.get("TerraformCluster", "prod")["status"]["lastDriftCheck"]
    assert world.says("TerraformCluster", "prod", "Ready") == "True/Ready"


def test_found_drift_is_gone_with_the_next_clean_check(world: World) -> None:
    world.provisioned("TerraformCluster", "prod")
    world.finish_job(until_job(world, "TerraformCluster", "prod", "drift"), drift=DRIFT)
    world.settle("TerraformCluster", "prod")
    world.advance(1)
    world.finish_job(until_job(world, "TerraformCluster", "prod", "drift"))
    world.settle("TerraformCluster", "prod")
    assert world.says("TerraformCluster", "prod", "DriftDetected") == "False/NoDrift"
    assert len(world.events.of("DriftResolved", "prod")) == 1


def test_a_check_without_a_result_finds_nothing_out(world: World) -> None:
    world.provisioned("TerraformCluster", "prod")
    world.finish_job(until_job(world, "TerraformCluster", "prod", "drift"), drift=DRIFT)
    world.settle("TerraformCluster", "prod")
    world.advance(1)
    world.end_job(until_job(world, "TerraformCluster", "prod", "drift"), succeeded=True)
    world.settle("TerraformCluster", "prod")
    assert world.says("TerraformCluster", "prod", "DriftDetected") == "True/DriftReported"
    assert world.events.of("DriftResolved", "prod") == []


def test_drift_is_remediated_by_a_guarded_apply(world: World) -> None:
    world.provisioned("TerraformCluster", "prod", drift={"action": "Remediate"})
    world.finish_job(until_job(world, "TerraformCluster", "prod", "drift"), drift=DRIFT)
    world.settle("TerraformCluster", "prod")
    job = world.running_job("prod", op="apply")
    assert annotations_of(job)["captf.io/drift-remediation"] == "true"
    assert "--guard-deletes" in job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert world.says("TerraformCluster", "prod", "DriftDetected") == "True/DriftRemediating"
    world.advance(30)
    world.finish_job(job)
    world.settle("TerraformCluster", "prod")
    assert world.says("TerraformCluster", "prod", "DriftDetected") == "False/NoDrift"


def test_a_failing_remediation_backs_off_and_stops_at_the_limit(world: World) -> None:
    world.provisioned("TerraformCluster", "prod", drift={"action": "Remediate"})
    world.finish_job(until_job(world, "TerraformCluster", "prod", "drift"), drift=DRIFT)
    for _ in range(3):
        job = until_job(world, "TerraformCluster", "prod", "apply")
        world.advance(1)
        world.finish_job(job, "failed")
        world.settle("TerraformCluster", "prod")
    requeue = world.settle("TerraformCluster", "prod")
    assert requeue > 600
    found = world.condition("TerraformCluster", "prod", "DriftDetected")
    assert found["reason"] == "DriftPending"
    assert found["message"].count("; remediation ") == 1


def test_an_unhealthy_machine_is_asked_to_be_replaced_and_the_request_withdrawn(world: World) -> None:
    world.provisioned(
        "TerraformMachine", "m1", remediation={"annotateMachine": True, "unhealthyThreshold": 2}
    )

    def sample(**health: Any) -> None:
        job = until_job(world, "TerraformMachine", "m1", "refresh")
        world.advance(1)
        outputs = {**OUTPUTS["TerraformMachine"], "health": {**HEALTHY, **health}}
        world.write_state("TerraformMachine", "m1", outputs=outputs)
        world.finish_job(job)
        world.settle("TerraformMachine", "m1")

    def requested() -> str | None:
        return annotations_of(world.client.get(MACHINE, "m1", TEAM)).get("captf.io/remediation-requested")

    sample(healthy=False)
    assert world.says("TerraformMachine", "m1", "InfrastructureHealthy") == "False/InstanceUnhealthy"
    assert requested() is None
    sample(healthy=False)
    assert requested() == "InstanceUnhealthy for 2 consecutive samples"
    assert len(world.events.of("RemediationRequested", "m1")) == 1
    assert 'captf_remediation_requests_total{action="requested"} 1.0' in world.scrape()
    assert f'captf_unhealthy_samples{{name="m1",namespace="{TEAM}"}} 2.0' in world.scrape()
    sample()
    assert requested() is None
    assert len(world.events.of("RemediationWithdrawn", "m1")) == 1
    assert 'captf_remediation_requests_total{action="withdrawn"} 1.0' in world.scrape()
    assert "captf_unhealthy_samples{" not in world.scrape()
    assert "unhealthySamples" not in world.get("TerraformMachine", "m1")["status"]


def test_a_pool_that_scales_itself_writes_its_count_back(world: World) -> None:
    world.provisioned("TerraformMachinePool", "p1")
    prefix = "cluster.x-k8s.io/cluster-api-autoscaler-node-group"
    world.client.patch(
        MACHINE_POOL,
        "p1",
        {
            "metadata": {"annotations": {f"{prefix}-min-size": "1", f"{prefix}-max-size": "5"}},
            "spec": {"replicas": 4},
        },
        TEAM,
    )
    world.settle("TerraformMachinePool", "p1")
    pool = world.client.get(MACHINE_POOL, "p1", TEAM)
    assert annotations_of(pool)["cluster.x-k8s.io/replicas-managed-by"] == "captf"
    assert pool["spec"]["replicas"] == 1
    assert [event["note"] for event in world.events.of("ReplicasWrittenBack")] == [
        f"Wrote the observed replicas of MachinePool {name_of(pool)}: 4 → 1"
    ]


def test_a_count_is_written_over_no_other_that_came_meanwhile(world: World) -> None:
    world.provisioned("TerraformMachinePool", "p1")
    prefix = "cluster.x-k8s.io/cluster-api-autoscaler-node-group"
    sizes = {f"{prefix}-min-size": "1", f"{prefix}-max-size": "5"}
    world.client.patch(
        MACHINE_POOL, "p1", {"metadata": {"annotations": sizes}, "spec": {"replicas": 4}}, TEAM
    )
    world.server.faults.add(Match(verb="patch", resource="machinepools", name="p1"), conflict(), times=1)
    world.forget_requests()
    world.reconcile("TerraformMachinePool", "p1")
    asked = [entry.verb for entry in world.requests() if entry.resource == "machinepools"]
    assert asked == ["patch", "get", "patch"]
    assert world.client.get(MACHINE_POOL, "p1", TEAM)["spec"]["replicas"] == 1


def test_a_waiting_cluster_hands_its_leases_to_its_next_job_at_once(world: World) -> None:
    """The inputs change while a cluster waits for a machine: the lease of the Job that never was is no obstacle."""
    world.provisioned("TerraformCluster", "prod")
    world.provisioned("TerraformMachine", "m1")
    world.hold_run_lease("TerraformMachine", "m2", "captf-m-m2-apply-a1-000000")
    world.client.patch(
        LEASE,
        names.run_lease(names.state_suffix(TEAM, "TerraformMachine", "m2")),
        {
            "metadata": {
                "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
                "annotations": {"captf.io/lease-op": "apply"},
            }
        },
        TEAM,
    )
    for image in ("v2", "v3"):
        world.patch(
            "TerraformCluster", "prod", {"spec": {"source": {"image": f"example.com/modules/x:{image}"}}}
        )
        world.settle("TerraformCluster", "prod")
        assert (
            world.says("TerraformCluster", "prod", "ApplyJobSucceeded")
            == "Unknown/WaitingForMachineOperations"
        )
    world.advance(61)
    world.settle("TerraformCluster", "prod")
    assert op(world.running_job("prod")) == "apply"
