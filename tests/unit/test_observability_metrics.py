"""The captf_* series: the table, what changes them, and when they go."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.job_objects import at
from tests.unit.test_identity_credentials import Sink

from captf_controllers.observability.events import Events
from captf_controllers.observability.metrics import (
    PER_OBJECT,
    SERIES,
    Changes,
    Drifted,
    JobSample,
    Metrics,
    ObjectGauges,
    exponential_buckets,
)
from captf_runtime.metrics import Metrics as RuntimeMetrics

MACHINE = ("TerraformMachine", "ns", "web")
LABELS = dict(zip(("kind", "namespace", "name"), MACHINE, strict=True))

APPLY = {"kind": "TerraformMachine", "op": "apply"}


@pytest.fixture
def metrics():
    return Metrics()


def value(metrics, series, **labels):
    return metrics.registry.get_sample_value(series, labels)


def exposed(metrics):
    found = {}
    for family in metrics.registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = family
    return found


def test_exposed_is_what_the_table_declares(metrics):
    metrics.serve_active_jobs(lambda: {("TerraformCluster", "apply"): 1})
    families = exposed(metrics)
    assert set(families) == {series.name for series in SERIES}
    for series in SERIES:
        assert families[series.name].type == series.type
        assert series.help.startswith("[ALPHA] ")
        assert families[series.name].documentation == series.help


def test_registering_twice_is_an_error():
    registry = CollectorRegistry()
    Metrics(registry)
    with pytest.raises(ValueError):
        Metrics(registry)


def test_they_live_beside_the_librarys_own():
    runtime = RuntimeMetrics()
    Metrics(runtime.registry).build_info("1.0", "abc", "v1alpha1")
    text = runtime.exposition().decode()
    assert 'captf_build_info{commit="abc",contract="v1alpha1",version="1.0"} 1.0' in text
    assert 'captf_jobs_total{kind="TerraformCluster",op="apply",result="failed"} 0.0' in text


@pytest.mark.parametrize(
    ("name", "count", "low", "second"),
    [("captf_job_duration_seconds", 10, 15, 29.7856), ("captf_job_step_duration_seconds", 12, 1, 2.24216)],
)
def test_exponential_buckets(name, count, low, second):
    buckets = next(series.buckets for series in SERIES if series.name == name)
    assert len(buckets) == count
    assert buckets[0] == low
    assert math.isclose(buckets[1], second, rel_tol=1e-5)
    assert math.isclose(buckets[-1], 7200)
    assert buckets == exponential_buckets(low, 7200, count)


class TestJobs:
    def record(self, metrics, **sample):
        metrics.job_finished(
            "TerraformMachine", JobSample(**{"op": "apply", "result": "succeeded", **sample})
        )

    def test_a_success(self, metrics):
        self.record(
            metrics,
            duration=30.0,
            queued=7.0,
            steps=(("init", 2.0), ("made up", 3.0), ("apply", -1.0)),
            retry_number=3,
            changes=Changes(create=2, imported=1),
        )
        assert value(metrics, "captf_jobs_total", **APPLY, result="succeeded") == 1
        assert value(metrics, "captf_job_duration_seconds_sum", **APPLY, result="succeeded") == 30
        assert value(metrics, "captf_job_queue_seconds_count", **APPLY) == 1
        assert value(metrics, "captf_job_step_duration_seconds_sum", **APPLY, step="init") == 2
        assert value(metrics, "captf_job_step_duration_seconds_sum", **APPLY, step="other") == 3
        assert value(metrics, "captf_job_step_duration_seconds_count", **APPLY, step="apply") is None
        assert value(metrics, "captf_job_attempts_sum", **APPLY) == 3
        assert value(metrics, "captf_resources_changed_total", **APPLY, action="create") == 2
        assert value(metrics, "captf_resources_changed_total", **APPLY, action="import") == 1
        assert value(metrics, "captf_resources_changed_total", **APPLY, action="update") is None
        assert value(metrics, "captf_job_errors_total", **APPLY, error_kind="unknown", step="none") is None

    @pytest.mark.parametrize(
        ("sample", "error_kind", "step"),
        [
            ({"result": "failed", "error_kind": "step", "error_step": "apply"}, "step", "apply"),
            ({"result": "failed", "error_kind": "step", "error_step": "nonsense"}, "step", "other"),
            ({"result": "failed", "error_kind": "exploded"}, "unknown", "none"),
            ({"result": "blocked", "error_kind": "blocked"}, "blocked", "none"),
            ({"result": "plan_changed", "error_kind": "plan-changed"}, "plan-changed", "none"),
            ({"result": "deadline", "deadline": True}, "deadline", "none"),
            ({"result": "failed"}, "unknown", "none"),
        ],
    )
    def test_errors(self, metrics, sample, error_kind, step):
        self.record(metrics, retry_number=9, **sample)
        assert value(metrics, "captf_job_errors_total", **APPLY, error_kind=error_kind, step=step) == 1
        assert value(metrics, "captf_job_attempts_count", **APPLY) is None

    def test_unknown_and_impossible_times_are_not_observed(self, metrics):
        self.record(metrics, duration=-5.0, queued=0.0)
        self.record(metrics)
        assert value(metrics, "captf_job_duration_seconds_count", **APPLY, result="succeeded") is None
        assert value(metrics, "captf_job_queue_seconds_count", **APPLY) is None

    def test_drift(self, metrics):
        drifted = Drifted(create=1, replace=2)
        self.record(metrics, op="drift", drifted=drifted)
        self.record(metrics, op="apply", drifted=drifted)
        assert value(metrics, "captf_drift_resources_total", kind=MACHINE[0], action="replace") == 2
        assert value(metrics, "captf_drift_resources_total", kind=MACHINE[0], action="update") is None

    def test_no_job_mints_a_label(self, metrics):
        before = set(exposed(metrics))
        metrics.job_finished("Evil", JobSample(op="apply", result="failed"))
        self.record(metrics, op="evil")
        assert not any(
            "vil" in str(sample.labels) for family in metrics.registry.collect() for sample in family.samples
        )
        assert set(exposed(metrics)) == before

    def test_active_jobs_are_computed_at_the_scrape(self, metrics):
        assert value(metrics, "captf_jobs_active", **APPLY) is None
        counts = Counter(
            {("TerraformMachine", "apply"): 2, ("Evil", "apply"): 1, ("TerraformMachine", "x"): 1}
        )
        metrics.serve_active_jobs(lambda: counts)
        assert value(metrics, "captf_jobs_active", **APPLY) == 2
        assert len(exposed(metrics)["captf_jobs_active"].samples) == 1
        metrics.serve_active_jobs(lambda: None)
        assert value(metrics, "captf_jobs_active", **APPLY) is None


@pytest.mark.parametrize(
    ("call", "series", "labels"),
    [
        (
            lambda m: m.state_unreadable("TerraformCluster", "StateLost"),
            "captf_state_read_errors_total",
            {"reason": "lost"},
        ),
        (
            lambda m: m.state_unreadable("TerraformCluster", "ApplyOutcomeUnknown"),
            "captf_state_read_errors_total",
            {"reason": "lost"},
        ),
        (
            lambda m: m.state_unreadable("TerraformCluster", "StateLocked"),
            "captf_state_read_errors_total",
            {"reason": "locked"},
        ),
        (
            lambda m: m.outputs_invalid("TerraformCluster", "OutputsMissing"),
            "captf_outputs_invalid_total",
            {"reason": "OutputsMissing"},
        ),
        (
            lambda m: m.wait_began("TerraformCluster", "WaitingForJobSlot"),
            "captf_lease_waits_total",
            {"reason": "job_slot"},
        ),
        (
            lambda m: m.wait_began("TerraformCluster", "WaitingForMachineOperations"),
            "captf_lease_waits_total",
            {"reason": "machine_operations"},
        ),
        (lambda m: m.backups("TerraformCluster", "taken"), "captf_state_backups_total", {"result": "taken"}),
        (
            lambda m: m.restore("TerraformCluster", "not_found"),
            "captf_state_restores_total",
            {"result": "not_found"},
        ),
        (lambda m: m.force_unlock("TerraformCluster"), "captf_lock_force_unlocks_total", {}),
        (lambda m: m.inputs_changed("TerraformCluster"), "captf_inputs_hash_changes_total", {}),
        (
            lambda m: m.plan("TerraformCluster", "approved"),
            "captf_plan_approvals_total",
            {"result": "approved"},
        ),
        (
            lambda m: m.decision("TerraformCluster", "finalizer", "DeletingWithoutState"),
            "captf_reconcile_op_decisions_total",
            {"op": "finalizer", "reason": "DeletingWithoutState"},
        ),
    ],
)
def test_counters_by_kind(metrics, call, series, labels):
    call(metrics)
    assert value(metrics, series, kind="TerraformCluster", **labels) == 1


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("IdentityNotFound", "notfound"),
        ("SecretNotFound", "notfound"),
        ("CredentialsIncomplete", "notfound"),
        ("NamespaceNotAllowed", "namespace"),
        ("IdentityCheckFailed", None),
    ],
)
def test_identity_denials(metrics, reason, label):
    metrics.identity_denied(reason)
    counts = {
        name: value(metrics, "captf_identity_denied_total", reason=name) for name in ("notfound", "namespace")
    }
    assert counts == {name: float(name == label) for name in counts}


def test_what_is_not_in_the_enum_is_dropped(metrics):
    metrics.state_unreadable("TerraformCluster", "RetainedStateFound")
    metrics.outputs_invalid("TerraformCluster", "OutputsPending")
    metrics.wait_began("TerraformCluster", "PlanAwaitingApproval")
    metrics.backups("TerraformCluster", "exploded")
    metrics.backups("TerraformCluster", "taken", 0)
    metrics.restore("TerraformCluster", "exploded")
    metrics.plan("TerraformCluster", "exploded")
    metrics.remediation("exploded")
    for series in SERIES:
        for sample in exposed(metrics)[series.name].samples:
            assert sample.value == 0 or sample.name.endswith("_created")


class TestPerObject:
    def record(self, metrics, target=MACHINE, **gauges):
        metrics.record_object(*target, ObjectGauges(**gauges))

    @pytest.mark.parametrize(("status", "number"), [("True", 1), ("False", 0), ("Unknown", -1), ("", -1)])
    def test_conditions(self, metrics, status, number):
        self.record(metrics, ready=status, healthy=status, drift_detected=status == "True")
        assert value(metrics, "captf_ready", **LABELS) == number
        assert value(metrics, "captf_infrastructure_healthy", **LABELS) == number
        assert value(metrics, "captf_drift_detected", **LABELS) == (status == "True")

    def test_what_was_not_looked_at_keeps_its_value(self, metrics):
        self.record(metrics, state_resources=3, state_bytes=100, inputs_bytes=50)
        self.record(metrics, inputs_bytes=0)
        assert value(metrics, "captf_state_resources", **LABELS) == 3
        assert value(metrics, "captf_state_bytes", **LABELS) == 100
        assert value(metrics, "captf_inputs_bytes", **LABELS) == 50

    def test_last_success_goes_while_nothing_is_scheduled(self, metrics):
        self.record(metrics, last_success={"apply": at(1), "drift": at(2)})
        series = "captf_last_success_timestamp_seconds"
        assert value(metrics, series, **LABELS, op="drift") == at(2).timestamp()
        assert value(metrics, series, **LABELS, op="refresh") is None
        self.record(metrics, last_success={"drift": at(3)}, unscheduled=frozenset({"drift", "refresh"}))
        assert value(metrics, series, **LABELS, op="drift") is None
        assert value(metrics, series, **LABELS, op="apply") == at(1).timestamp()

    def test_unhealthy_samples_are_a_machines(self, metrics):
        where = {"namespace": "ns", "name": "web"}
        self.record(metrics, unhealthy_samples=2)
        self.record(metrics, ("TerraformCluster", "ns", "web"))
        assert value(metrics, "captf_unhealthy_samples", **where) == 2
        metrics.remove_object("TerraformCluster", "ns", "web")
        assert value(metrics, "captf_unhealthy_samples", **where) == 2
        self.record(metrics)
        assert value(metrics, "captf_unhealthy_samples", **where) is None

    def test_they_end_with_the_object_and_with_no_other(self, metrics):
        for target in (MACHINE, ("TerraformMachine", "ns", "db")):
            self.record(
                metrics,
                target,
                ready="True",
                state_resources=1,
                state_bytes=1,
                inputs_bytes=1,
                last_success=dict.fromkeys(("apply", "destroy", "refresh", "drift"), at(1)),
                unhealthy_samples=1,
            )
        metrics.remove_object(*MACHINE)
        metrics.remove_object(*MACHINE)
        samples = [s for name in PER_OBJECT for s in exposed(metrics)[name].samples]
        assert {sample.labels["name"] for sample in samples} == {"db"}
        assert {sample.name for sample in samples} == set(PER_OBJECT)


class TestEvents:
    def test_notes_are_cut_on_a_character(self):
        sink = Sink()
        Events(sink, {}).warning("JobFailed", "é" * 600)
        ((type_, reason, note),) = sink
        assert (type_, reason) == ("Warning", "JobFailed")
        assert len(note.encode()) <= 512

    def test_without_a_sink_nothing_happens(self):
        Events(None, {}).normal("JobCreated", "note")
