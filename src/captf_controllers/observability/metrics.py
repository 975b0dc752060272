"""CAPTF's own series: declared once in `SERIES`, every collector built from it.

Label values are bounded: whatever comes from outside (a runner's result, a condition's reason) is mapped to
the values that the table knows, or dropped, so that no Job can mint a series. Counters of failures count
transitions, never passes. Only the eight per-object gauges name an object, and `remove_object` takes them
away when it is gone; what a pass records, it records before that.

No call raises or blocks. Code that has no use for metrics (a test, a tool) passes `Metrics()`, whose registry
nobody scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from captf_controllers.api.kinds import WORKLOAD_KINDS
from captf_controllers.api.workspace import OPERATIONS
from captf_runtime.metrics import Series

__all__ = [
    "JOB_RESULTS",
    "PER_OBJECT",
    "SERIES",
    "STEPS",
    "Changes",
    "Drifted",
    "JobSample",
    "Metrics",
    "ObjectGauges",
]

KINDS: Final = tuple(kind.kind for kind in WORKLOAD_KINDS)

JobResult = Literal["succeeded", "blocked", "plan_changed", "deadline", "interrupted", "failed"]
JOB_RESULTS: Final[tuple[JobResult, ...]] = (
    "succeeded",
    "blocked",
    "plan_changed",
    "deadline",
    "interrupted",
    "failed",
)
STEPS: Final = (
    "init",
    "force-unlock",
    "validate",
    "plan",
    "show-json",
    "apply",
    "apply-refresh-only",
    "destroy",
    "state-push",
    "state-list",
    "prepare",
)
"""Steps with a label value of their own; any other is `other`."""

ERROR_KINDS: Final = ("step", "image-layout", "interrupted", "blocked", "plan-changed")
LEASE_WAITS: Final[Mapping[str, str]] = {
    "WaitingForRunLease": "run_lease",
    "WaitingForClusterOperation": "cluster_operation",
    "WaitingForMachineOperations": "machine_operations",
    "WaitingForJobSlot": "job_slot",
}
STATE_READ_ERRORS: Final[Mapping[str, str]] = {
    "StateLost": "lost",
    "ApplyOutcomeUnknown": "lost",
    "StateCorrupt": "corrupt",
    "StateEncrypted": "encrypted",
    "StateInconsistent": "inconsistent",
    "StateLocked": "locked",
}
OUTPUT_PROBLEMS: Final = ("OutputsMissing", "OutputsInvalid", "FailureDomainMismatch", "ProviderIDChanged")
IDENTITY_DENIALS: Final[Mapping[str, str]] = {
    "IdentityNotFound": "notfound",
    "SecretNotFound": "notfound",
    "CredentialsIncomplete": "notfound",
    "NamespaceNotAllowed": "namespace",
}
BACKUP_RESULTS: Final = ("taken", "pruned", "skipped")
RESTORE_RESULTS: Final = ("succeeded", "failed", "not_found")
PLAN_RESULTS: Final = ("created", "approved", "applied", "superseded", "failed")
LAST_SUCCESS_OPS: Final = ("apply", "destroy", "refresh", "drift")


def exponential_buckets(low: float, high: float, count: int) -> tuple[float, ...]:
    """Bounds from `low` to `high` that grow by the same factor: low * (high / low) ** (i / (count - 1))."""
    return tuple(low * (high / low) ** (i / (count - 1)) for i in range(count))


_OBJECT: Final = ("kind", "namespace", "name")


def _series(
    name: str,
    type_: Literal["counter", "gauge", "histogram"],
    labels: tuple[str, ...],
    help_: str,
    buckets: tuple[float, ...] = (),
) -> Series:
    return Series(name, type_, labels, f"[ALPHA] {help_}", buckets)


SERIES: Final = (
    _series("captf_jobs_total", "counter", ("kind", "op", "result"), "Jobs that finished, by result."),
    _series(
        "captf_job_duration_seconds",
        "histogram",
        ("kind", "op", "result"),
        "From the start of a Job to its end.",
        exponential_buckets(15, 7200, 10),
    ),
    _series(
        "captf_job_step_duration_seconds",
        "histogram",
        ("kind", "op", "step"),
        "Duration of the steps of finished Jobs.",
        exponential_buckets(1, 7200, 12),
    ),
    _series(
        "captf_job_queue_seconds",
        "histogram",
        ("kind", "op"),
        "From the creation of a Job to the start of its module container.",
        (5, 10, 20, 30, 60, 120, 180, 300, 600, 900, 1800),
    ),
    _series(
        "captf_job_errors_total",
        "counter",
        ("kind", "op", "error_kind", "step"),
        "Jobs that did not succeed, by class of the error and failed step.",
    ),
    _series(
        "captf_jobs_active",
        "gauge",
        ("kind", "op"),
        "Unfinished Jobs of existing objects, at the moment of the scrape.",
    ),
    _series(
        "captf_job_attempts",
        "histogram",
        ("kind", "op"),
        "How many tries a succeeded Job took since its operation last succeeded.",
        tuple(float(n) for n in range(1, 11)),
    ),
    _series(
        "captf_resources_changed_total",
        "counter",
        ("kind", "op", "action"),
        "Resources that finished Jobs changed, by action.",
    ),
    _series(
        "captf_drift_resources_total",
        "counter",
        ("kind", "action"),
        "Resources that drift checks found changed, by the action that would mend them.",
    ),
    _series(
        "captf_reconcile_op_decisions_total",
        "counter",
        ("kind", "op", "reason"),
        "Decisions of passes: the operation wanted, and why.",
    ),
    _series(
        "captf_state_read_errors_total",
        "counter",
        ("kind", "reason"),
        "Times that a state became lost, unreadable or locked.",
    ),
    _series("captf_state_resources", "gauge", _OBJECT, "Managed resources in the state."),
    _series("captf_state_bytes", "gauge", _OBJECT, "Compressed size of the state over all its Secrets."),
    _series("captf_inputs_bytes", "gauge", _OBJECT, "Size of the rendered inputs."),
    _series(
        "captf_inputs_hash_changes_total", "counter", ("kind",), "Applies that started for changed inputs."
    ),
    _series(
        "captf_outputs_invalid_total",
        "counter",
        ("kind", "reason"),
        "Times that a module's outputs became invalid.",
    ),
    _series("captf_state_backups_total", "counter", ("kind", "result"), "Backups taken, pruned and skipped."),
    _series("captf_state_restores_total", "counter", ("kind", "result"), "Restores, by result."),
    _series("captf_ready", "gauge", _OBJECT, "Condition Ready: 1 True, 0 False, -1 Unknown or absent."),
    _series(
        "captf_infrastructure_healthy",
        "gauge",
        _OBJECT,
        "Condition InfrastructureHealthy: 1 True, 0 False, -1 Unknown or absent.",
    ),
    _series("captf_drift_detected", "gauge", _OBJECT, "1 while DriftDetected is True, else 0."),
    _series(
        "captf_last_success_timestamp_seconds",
        "gauge",
        (*_OBJECT, "op"),
        "When an operation of the object last succeeded, in Unix seconds.",
    ),
    _series(
        "captf_unhealthy_samples",
        "gauge",
        ("namespace", "name"),
        "Consecutive unhealthy samples of a TerraformMachine.",
    ),
    _series(
        "captf_remediation_requests_total",
        "counter",
        ("action",),
        "Requests to replace a Machine, made and withdrawn.",
    ),
    _series(
        "captf_lock_force_unlocks_total", "counter", ("kind",), "Jobs started with a stale lock to remove."
    ),
    _series(
        "captf_lease_waits_total", "counter", ("kind", "reason"), "Waits for a lease or slot that began."
    ),
    _series(
        "captf_plan_approvals_total", "counter", ("kind", "result"), "TerraformPlans that changed phase."
    ),
    _series("captf_identity_denied_total", "counter", ("reason",), "Times that an object lost its identity."),
    _series("captf_build_info", "gauge", ("version", "commit", "contract"), "Constant 1."),
)
"""Every `captf_*` series but the library's own."""

PER_OBJECT: Final = (
    "captf_ready",
    "captf_drift_detected",
    "captf_infrastructure_healthy",
    "captf_state_resources",
    "captf_state_bytes",
    "captf_inputs_bytes",
    "captf_last_success_timestamp_seconds",
    "captf_unhealthy_samples",
)
"""The series that name an object, and so end with it."""

_BY_NAME: Final = {series.name: series for series in SERIES}


@dataclass(frozen=True, slots=True)
class Changes:
    """Resources that a Job changed."""

    create: int = 0
    update: int = 0
    delete: int = 0
    imported: int = 0


@dataclass(frozen=True, slots=True)
class Drifted:
    """Resources that a drift check found changed."""

    create: int = 0
    update: int = 0
    replace: int = 0
    delete: int = 0


@dataclass(frozen=True, slots=True)
class JobSample:
    """One finished Job, as far as it is measured.

    Durations in seconds, None when unknown. `error_kind` is "" when the result reported no error.
    """

    op: str
    result: JobResult
    duration: float | None = None
    queued: float | None = None
    steps: tuple[tuple[str, float], ...] = ()
    retry_number: int | None = None
    error_kind: str = ""
    error_step: str = ""
    deadline: bool = False
    changes: Changes | None = None
    drifted: Drifted | None = None


@dataclass(frozen=True, slots=True)
class ObjectGauges:
    """What a pass knows about its object at its end; None leaves a series as it is.

    Args:
        ready, healthy: status of the condition; "" when it is absent.
        drift_detected: whether DriftDetected is True.
        last_success: finish of the newest success by op; an op in `unscheduled` loses its series instead.
        unscheduled: ops that are not scheduled now, so that no alert fires for what nobody runs.
        unhealthy_samples: of a TerraformMachine.
    """

    ready: str = ""
    healthy: str = ""
    drift_detected: bool = False
    state_resources: int | None = None
    state_bytes: int | None = None
    inputs_bytes: int | None = None
    last_success: Mapping[str, datetime] = field(default_factory=dict)
    unscheduled: frozenset[str] = frozenset()
    unhealthy_samples: int | None = None


ActiveJobs = Mapping[tuple[str, str], int]


class Metrics:
    """Records into the series of `SERIES`. Thread-safe.

    Args:
        registry: where the series are registered, the one that the manager serves; a private one by default.

    Raises:
        ValueError: the registry already has them.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry: Final = registry if registry is not None else CollectorRegistry(auto_describe=False)
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._active = _ActiveJobs()
        for series in SERIES:
            if series.name == "captf_jobs_active":
                self.registry.register(self._active)
            elif series.type == "counter":
                self._counters[series.name] = Counter(
                    series.name, series.help, series.labels, registry=self.registry
                )
            elif series.type == "gauge":
                self._gauges[series.name] = Gauge(
                    series.name, series.help, series.labels, registry=self.registry
                )
            else:
                self._histograms[series.name] = Histogram(
                    series.name, series.help, series.labels, registry=self.registry, buckets=series.buckets
                )
        self._create_at_zero()

    def _create_at_zero(self) -> None:
        # increase() does not see the step from "no series" to 1, which is the first failure after a start.
        for kind in KINDS:
            for op in OPERATIONS:
                for result in JOB_RESULTS:
                    self._counters["captf_jobs_total"].labels(kind, op, result)
            for reason in sorted(set(STATE_READ_ERRORS.values())):
                self._counters["captf_state_read_errors_total"].labels(kind, reason)
            for reason in LEASE_WAITS.values():
                self._counters["captf_lease_waits_total"].labels(kind, reason)
            self._counters["captf_lock_force_unlocks_total"].labels(kind)
        for reason in sorted(set(IDENTITY_DENIALS.values())):
            self._counters["captf_identity_denied_total"].labels(reason)

    # Jobs -----------------------------------------------------------------------------------------

    def serve_active_jobs(self, read: Callable[[], ActiveJobs | None]) -> None:
        """Compute `captf_jobs_active` from `read` at every scrape: counts by (kind, op).

        `read` answers None before the Job cache has synced; then, and for unknown kinds and ops, nothing is
        exposed.
        """
        self._active.read = read

    def job_finished(self, kind: str, sample: JobSample) -> None:
        """Record a Job, once, in the pass that counts it."""
        if kind not in KINDS or sample.op not in OPERATIONS:
            return
        op = sample.op
        self._counters["captf_jobs_total"].labels(kind, op, sample.result).inc()
        if sample.duration is not None and sample.duration > 0:
            self._histograms["captf_job_duration_seconds"].labels(kind, op, sample.result).observe(
                sample.duration
            )
        if sample.queued is not None and sample.queued > 0:
            self._histograms["captf_job_queue_seconds"].labels(kind, op).observe(sample.queued)
        for step, seconds in sample.steps:
            if seconds >= 0:
                label = _step_label(step)
                self._histograms["captf_job_step_duration_seconds"].labels(kind, op, label).observe(seconds)
        if sample.result == "succeeded":
            if sample.retry_number is not None:
                self._histograms["captf_job_attempts"].labels(kind, op).observe(sample.retry_number)
        else:
            self._job_failed(kind, sample)
        if sample.changes is not None:
            changes = sample.changes
            self._add(
                "captf_resources_changed_total",
                (kind, op),
                {
                    "create": changes.create,
                    "update": changes.update,
                    "delete": changes.delete,
                    "import": changes.imported,
                },
            )
        if op == "drift" and sample.drifted is not None:
            drifted = sample.drifted
            self._add(
                "captf_drift_resources_total",
                (kind,),
                {
                    "create": drifted.create,
                    "update": drifted.update,
                    "replace": drifted.replace,
                    "delete": drifted.delete,
                },
            )

    def _job_failed(self, kind: str, sample: JobSample) -> None:
        if sample.error_kind:
            error_kind = sample.error_kind if sample.error_kind in ERROR_KINDS else "unknown"
            step = _step_label(sample.error_step) if sample.error_step else "none"
        else:
            error_kind, step = ("deadline" if sample.deadline else "unknown"), "none"
        self._counters["captf_job_errors_total"].labels(kind, sample.op, error_kind, step).inc()

    # Decisions, state, inputs ---------------------------------------------------------------------

    def decision(self, kind: str, op: str, reason: str) -> None:
        """A pass decided: `op` is an operation, `finalizer` or `none`; `reason` a constant of the code."""
        if op not in (*OPERATIONS, "finalizer", "none"):
            op = "none"
        self._inc("captf_reconcile_op_decisions_total", kind, op, reason)

    def state_unreadable(self, kind: str, reason: str) -> None:
        """`StateReadable` became False, or changed its reason. A hold on retained state is no read error."""
        if reason in STATE_READ_ERRORS:
            self._inc("captf_state_read_errors_total", kind, STATE_READ_ERRORS[reason])

    def inputs_changed(self, kind: str) -> None:
        """An apply of a mutable kind started because its inputs changed."""
        self._inc("captf_inputs_hash_changes_total", kind)

    def outputs_invalid(self, kind: str, reason: str) -> None:
        """`OutputsValid` became False, or changed its reason."""
        if reason in OUTPUT_PROBLEMS:
            self._inc("captf_outputs_invalid_total", kind, reason)

    def backups(self, kind: str, result: str, count: int = 1) -> None:
        """Backups were taken, pruned or skipped."""
        if result in BACKUP_RESULTS and count > 0:
            self._counters["captf_state_backups_total"].labels(kind, result).inc(count)

    def restore(self, kind: str, result: str) -> None:
        """A restore succeeded or failed, or its request named no backup."""
        if result in RESTORE_RESULTS:
            self._inc("captf_state_restores_total", kind, result)

    # Locks, leases, approvals, identity, remediation ----------------------------------------------

    def force_unlock(self, kind: str) -> None:
        """A Job was started with a stale lock to remove."""
        self._inc("captf_lock_force_unlocks_total", kind)

    def wait_began(self, kind: str, reason: str) -> None:
        """A wait for a lease or slot began, or changed its reason; `reason` is the condition's."""
        if reason in LEASE_WAITS:
            self._inc("captf_lease_waits_total", kind, LEASE_WAITS[reason])

    def plan(self, kind: str, result: str) -> None:
        """A TerraformPlan of a target of this kind was created or changed its phase."""
        if result in PLAN_RESULTS:
            self._inc("captf_plan_approvals_total", kind, result)

    def identity_denied(self, reason: str) -> None:
        """`IdentityAllowed` became False, or changed its reason; `reason` is the condition's."""
        if reason in IDENTITY_DENIALS:
            self._inc("captf_identity_denied_total", IDENTITY_DENIALS[reason])

    def remediation(self, action: str) -> None:
        """A Machine's replacement was `requested` or the request `withdrawn`."""
        if action in ("requested", "withdrawn"):
            self._inc("captf_remediation_requests_total", action)

    def build_info(self, version: str, commit: str, contract: str) -> None:
        """Expose what is running; called once at start."""
        self._gauges["captf_build_info"].labels(version, commit, contract).set(1)

    # Per object -----------------------------------------------------------------------------------

    def record_object(self, kind: str, namespace: str, name: str, gauges: ObjectGauges) -> None:
        """Set the per-object gauges at the end of a pass that keeps its object."""
        labels = (kind, namespace, name)
        self._set("captf_ready", labels, _tristate(gauges.ready))
        self._set("captf_infrastructure_healthy", labels, _tristate(gauges.healthy))
        self._set("captf_drift_detected", labels, 1 if gauges.drift_detected else 0)
        self._set("captf_state_resources", labels, gauges.state_resources)
        self._set("captf_state_bytes", labels, gauges.state_bytes)
        self._set("captf_inputs_bytes", labels, gauges.inputs_bytes or None)
        for op in LAST_SUCCESS_OPS:
            if op in gauges.unscheduled:
                self._gauges["captf_last_success_timestamp_seconds"].remove(*labels, op)
            elif op in gauges.last_success:
                self._set(
                    "captf_last_success_timestamp_seconds",
                    (*labels, op),
                    gauges.last_success[op].timestamp(),
                )
        if kind == "TerraformMachine":
            if gauges.unhealthy_samples:
                self._set("captf_unhealthy_samples", (namespace, name), gauges.unhealthy_samples)
            else:
                self._gauges["captf_unhealthy_samples"].remove(namespace, name)

    def remove_object(self, kind: str, namespace: str, name: str) -> None:
        """Remove every series of the object: it is gone, released, or left the watch filter."""
        for series in PER_OBJECT:
            gauge = self._gauges[series]
            if series == "captf_unhealthy_samples":
                # It has no kind label: a cluster of the same name must not take a machine's series.
                if kind == "TerraformMachine":
                    gauge.remove(namespace, name)
            elif series == "captf_last_success_timestamp_seconds":
                for op in LAST_SUCCESS_OPS:
                    gauge.remove(kind, namespace, name, op)
            else:
                gauge.remove(kind, namespace, name)

    def _inc(self, series: str, *labels: str) -> None:
        self._counters[series].labels(*labels).inc()

    def _add(self, series: str, labels: tuple[str, ...], counts: Mapping[str, int]) -> None:
        for action, count in counts.items():
            if count > 0:
                self._counters[series].labels(*labels, action).inc(count)

    def _set(self, series: str, labels: tuple[str, ...], value: float | None) -> None:
        if value is not None:
            self._gauges[series].labels(*labels).set(value)


class _ActiveJobs(Collector):
    """Computes `captf_jobs_active` at the moment of the scrape."""

    def __init__(self) -> None:
        self.read: Callable[[], ActiveJobs | None] = lambda: None

    def describe(self) -> Iterable[Metric]:
        yield self._family()

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for (kind, op), count in sorted((self.read() or {}).items()):
            if kind in KINDS and op in OPERATIONS and count > 0:
                family.add_metric((kind, op), count)
        yield family

    @staticmethod
    def _family() -> GaugeMetricFamily:
        series = _BY_NAME["captf_jobs_active"]
        return GaugeMetricFamily(series.name, series.help, labels=series.labels)


def _step_label(step: str) -> str:
    return step if step in STEPS else "other"


def _tristate(status: str) -> int:
    return {"True": 1, "False": 0}.get(status, -1)
