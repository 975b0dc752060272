"""Everything that can be found out about an object without changing anything.

The facts of a deletion are gathered as the pass gathers them, live, and go to the same decision. A read that
the user may not do leaves its part out and is named, so that an answer never rests on a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar, cast

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.api.cluster import TerraformClusterSpec
from captf_controllers.api.finalizers import finalizer_of
from captf_controllers.api.kinds import TERRAFORM_CLUSTER, is_mutable, workload_kind
from captf_controllers.api.labels import CLUSTER_NAME
from captf_controllers.api.owner import Owner
from captf_controllers.api.typed import SPEC_TYPES, STATUS_TYPES, spec_of, status_of
from captf_controllers.api.workspace import WorkspaceSpec, WorkspaceStatus
from captf_controllers.approvals.plans import live_plan
from captf_controllers.approvals.store import list_plans
from captf_controllers.cli.connection import Connection, permission
from captf_controllers.deletion import dependents, destroys, retain
from captf_controllers.deletion.ever_applied import (
    Signals,
    empty_state,
    ever_applied,
    missing_state,
)
from captf_controllers.deletion.facts import (
    Dependent,
    EarlyFacts,
    Facts,
    Hold,
    HoldReason,
    RestoreFinding,
    RetainedFinding,
    Subject,
)
from captf_controllers.deletion.secrets import KeptSecrets, ObjectNames, find_kept
from captf_controllers.inputs.records import Records, choose_record, read_records
from captf_controllers.jobs.leases import LeaseOwner, LiveLease, live_run_lease
from captf_controllers.jobs.outcomes import FinishedJob, collect_finished
from captf_controllers.jobs.pods import PodFacts, list_pods, newest_pod
from captf_controllers.jobs.views import JobView, active_job, list_jobs
from captf_controllers.observability.conditions import Conditions
from captf_controllers.reconcile import config as configuration
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.owners import Owners, find_owners
from captf_controllers.reconcile.state_step import known_lineages
from captf_controllers.state.backups import BackupSet, list_backups, verify_backup
from captf_controllers.state.lock import Lock, read_lock
from captf_controllers.state.reader import read_state
from captf_controllers.state.reading import StateReading
from captf_controllers.state.restore import RestoreFacts, evaluate_restore
from captf_runtime.client import Client
from captf_runtime.client.errors import Forbidden, NotFound
from captf_runtime.objects import (
    LEASE,
    NAMESPACE,
    Object,
    annotations_of,
    has_finalizer,
    is_deleting,
    kind_name_of,
    labels_of,
    name_of,
    namespace_of,
    parse_time,
    uid_of,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ManagerLease:
    """The election Lease of a manager: who leads and when it last said so."""

    namespace: str
    holder: str
    renewed: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found. A part that could not be read is None and its permission is in ``not_read``.

    ``facts`` are the facts of a deletion, of a live object those that one would be decided from now; None
    when one of them could not be read. ``paused_by`` names what pauses the object, ``pending_plan`` the live
    TerraformPlan of it that nobody approved. ``pod`` is the newest pod
    of the active Job. ``reading`` is the state without anything of it that is secret but its outputs.
    ``damaged`` names the complete backups that do not have the digest that they were taken with; they are read
    only when there is no state that reads.
    """

    obj: Object
    now: datetime
    subject: Subject
    spec: WorkspaceSpec
    status: WorkspaceStatus
    owners: Owners
    config: EffectiveConfig
    paused_by: tuple[str, ...]
    cluster_name: str
    views: tuple[JobView, ...]
    finished: tuple[FinishedJob, ...]
    active: JobView | None
    pod: PodFacts | None
    lease: LiveLease | None
    records: Records | None
    lock: Lock | None
    reading: StateReading | None
    kept: KeptSecrets | None
    backups: tuple[BackupSet, ...] | None
    facts: Facts | None
    pending_plan: str
    namespace_terminating: bool
    not_read: tuple[str, ...] = ()
    damaged: frozenset[str] = frozenset()

    @property
    def conditions(self) -> Conditions:
        """The conditions as the manager left them."""
        return Conditions.of(self.status.conditions)

    @property
    def deleting(self) -> bool:
        return is_deleting(self.obj)

    @property
    def held_by_captf(self) -> bool:
        """CAPTF's finalizer is on the object."""
        return has_finalizer(self.obj, self.subject.finalizer)

    @property
    def unconfirmed_apply(self) -> str:
        """The apply Job of which nobody knows what it did, as its record or the object names it."""
        recorded = self.records.unconfirmed_apply if self.records is not None else ""
        noted = annotations_of(self.obj).get(keys.UNCONFIRMED_APPLY, "")
        if names.job_op(self.subject.kind, self.subject.name, noted) != "apply":
            noted = ""
        return recorded or noted

    @property
    def suffix(self) -> str:
        return names.state_suffix(self.subject.namespace, self.subject.kind, self.subject.name)

    @property
    def mutable(self) -> bool:
        return is_mutable(self.subject.kind)

    @property
    def complete_serials(self) -> tuple[int, ...]:
        """The serials that have a complete backup, newest backup first, each once; no damaged one."""
        whole = [item for item in self.backups or () if item.complete and item.name not in self.damaged]
        found = [item.serial for item in whole]
        return tuple(dict.fromkeys(found))


def examine(connection: Connection, obj: Object) -> Examination:
    """Look at an object and at everything of it. Only reads.

    Raises:
        ApiError: a read failed otherwise than by a missing permission.
        ObjectShapeError: the object has not the shape of its kind.
    """
    return _Examiner(connection, obj).run()


@dataclass(slots=True)
class _Examiner:
    connection: Connection
    obj: Object
    denied: dict[str, None] = field(default_factory=dict)

    @property
    def client(self) -> Client:
        return self.connection.client

    def run(self) -> Examination:
        obj, now = self.obj, self.connection.clock.now()
        kind, namespace, name, uid = kind_name_of(obj), namespace_of(obj), name_of(obj), uid_of(obj)
        owner = Owner.of(obj)
        spec = cast(WorkspaceSpec, spec_of(obj, SPEC_TYPES[kind]))
        status = cast(WorkspaceStatus, status_of(obj, STATUS_TYPES[kind] or WorkspaceStatus))
        owners = self.attempt(lambda: find_owners(self.client, workload_kind(kind), obj)) or Owners()
        config = _config(spec, status, owners, kind)
        cluster_name = labels_of(obj).get(CLUSTER_NAME, "") or owners.cluster_name
        lease_owner = LeaseOwner(namespace, kind, name, cluster_name)
        views = self.attempt(lambda: list_jobs(self.client, namespace, kind, name, uid=uid))
        finished = self.attempt(lambda: collect_finished(self.client, views or ()))
        active = active_job(views or ())
        pods = self.attempt(lambda: list_pods(self.client, namespace, active.name)) if active else None
        records = self.attempt(lambda: read_records(self.client, owner))
        reading = self.attempt(lambda: read_state(self.client, namespace, owner.suffix))
        config = _as_recorded(config, records, reading, obj)
        kept = self.attempt(lambda: find_kept(self.client, ObjectNames(kind, namespace, name)))
        backups = self.attempt(lambda: list_backups(self.client, namespace, owner.suffix))
        examination = Examination(
            obj=obj,
            now=now,
            subject=Subject(kind, kind.lower(), namespace, name, uid, finalizer_of(kind)),
            spec=spec,
            status=status,
            owners=owners,
            config=config,
            paused_by=_paused_by(obj, owners),
            cluster_name=cluster_name,
            views=tuple(views or ()),
            finished=tuple(finished or ()),
            active=active,
            pod=newest_pod(pods) if pods else None,
            lease=self.attempt(lambda: live_run_lease(self.client, lease_owner, now)),
            records=records,
            lock=self.attempt(lambda: read_lock(self.client, owner)),
            reading=reading,
            kept=kept,
            backups=backups,
            facts=None,
            pending_plan=self.attempt(lambda: self._pending_plan(owner), quiet=True) or "",
            namespace_terminating=bool(self.attempt(lambda: self._terminating(namespace), quiet=True)),
            damaged=self._damaged(namespace, reading, backups),
        )
        facts = None
        if not self.denied:
            facts = self.attempt(lambda: self._facts(examination))
        return replace(examination, facts=facts, not_read=tuple(self.denied))

    def attempt(self, read: Callable[[], T], *, quiet: bool = False) -> T | None:
        """What ``read`` gives; None, and a note of the permission, when the user may not.

        ``quiet`` leaves the note out, for what an answer can do without.
        """
        try:
            return read()
        except Forbidden as error:
            if not quiet:
                self.denied[permission(error)] = None
            return None

    def _damaged(
        self, namespace: str, reading: StateReading | None, backups: tuple[BackupSet, ...] | None
    ) -> frozenset[str]:
        if reading is None or reading.state is not None:
            return frozenset()
        sets = [item for item in backups or () if item.complete and item.digest]
        checked = self.attempt(
            lambda: [item.name for item in sets if not verify_backup(self.client, namespace, item)]
        )
        return frozenset(checked or ())

    def _terminating(self, namespace: str) -> bool:
        try:
            return is_deleting(self.client.get(NAMESPACE, namespace, metadata_only=True))
        except NotFound:
            return False

    def _pending_plan(self, owner: Owner) -> str:
        plan = live_plan(list_plans(self.client, owner))
        return plan.name if plan is not None and not plan.approved else ""

    def _facts(self, found: Examination) -> Facts:
        """The facts of the deletion of the object, in the order and with the reads of the pass."""
        subject, status = found.subject, found.status
        assert found.records is not None
        assert found.reading is not None
        assert found.kept is not None
        early = EarlyFacts(
            subject=subject,
            destroy_succeeded=found.deleting
            and destroys.succeeded(found.finished, found.conditions)
            and destroys.ran_on_another_state(found.finished, found.reading.state) is None,
            cluster_name=found.cluster_name,
            dependents=self._dependents(found),
        )
        retained = _retained(found.records, found.reading, found.kept, subject.uid)
        hold = None if retained.foreign_uid else self._hold(found)
        last = destroys.last_destroy(
            subject.kind,
            subject.name,
            finished=found.finished,
            conditions=found.conditions,
            last_run=status.last_run,
            failed_limit=found.config.jobs.failed_limit,
            now=found.now,
        )
        return Facts(
            early=early,
            policy=found.config.deletion_policy,
            adopt_retained=bool(found.spec.adopt_retained_state),
            retained=retained,
            has_state=found.reading.state is not None,
            hold=hold,
            abandon=annotations_of(found.obj).get(keys.ABANDON_INFRASTRUCTURE),
            restore=self._restore(found, hold),
            last_destroy_failure=last.failure,
            last_destroy_message=last.message,
            destroy_backoff=last.backoff,
            next_attempt=last.next_attempt,
        )

    def _dependents(self, found: Examination) -> tuple[Dependent, ...]:
        if found.subject.kind != TERRAFORM_CLUSTER.kind:
            return ()
        return dependents.find(self.client, found.subject.namespace, found.cluster_name)

    def _hold(self, found: Examination) -> Hold | None:
        records, reading = found.records, found.reading
        assert records is not None
        assert reading is not None
        if reading.state is not None and not reading.state.tells_nothing:
            return None
        if reading.problem is not None:
            return Hold(cast(HoldReason, reading.problem.reason), reading.message)
        initialization = found.status.initialization
        newest = next((job for job in found.finished if job.op == "apply"), None)
        signals = Signals(
            provisioned=bool(initialization and initialization.provisioned),
            marker=records.ever_applied_marker,
            digest=bool(records.any_digest),
            deleting=True,
            applied_as=annotations_of(found.obj).get(keys.APPLIED_AS, ""),
            suffix=found.suffix,
            unconfirmed_job=found.unconfirmed_apply,
            apply_succeeded=newest is not None and newest.succeeded,
        )
        kept = found.kept
        if reading.state is not None:
            destroy = destroys.ran_on_another_state(found.finished, reading.state)
            hold = empty_state(
                signals,
                names.state_secret(found.suffix),
                reading.state,
                lambda: known_lineages(found.backups or (), found.finished),
                destroy.name if destroy is not None else "",
            )
        else:
            signal = ever_applied(signals, lambda: kept is not None and bool(kept.backups))
            hold = missing_state(signals, signal, names.state_secret(found.suffix))
        confirmed = annotations_of(found.obj).get(keys.CONFIRM_NO_RESOURCES)
        if hold is not None and hold.reason == "ApplyOutcomeUnknown" and confirmed == hold.job:
            return None
        return hold

    def _restore(self, found: Examination, hold: Hold | None) -> RestoreFinding:
        value = annotations_of(found.obj).get(keys.RESTORE_STATE, "").strip()
        if not value or hold is None:
            return RestoreFinding()
        evaluation = evaluate_restore(
            self.client,
            Owner.of(found.obj),
            RestoreFacts(
                annotation=annotations_of(found.obj).get(keys.RESTORE_STATE),
                last_restored_serial=found.status.last_restored_serial or 0,
                deleting=True,
                held=True,
                retain=found.config.deletion_policy == "Retain",
            ),
        )
        if evaluation.start is not None:
            return RestoreFinding("startable", value, evaluation.start.serial)
        if evaluation.not_found:
            return RestoreFinding("not-found", value, message=evaluation.not_found)
        return RestoreFinding("consumed", value)


def manager_leases(client: Client) -> tuple[ManagerLease, ...] | None:
    """The election Leases of the managers that run in the cluster; None when they may not be listed."""
    try:
        listed = client.list(LEASE, field_selector=f"metadata.name={names.ELECTION_LEASE}")
    except Forbidden:
        return None
    found = []
    for lease in listed:
        spec = lease.get("spec") or {}
        renewed = spec.get("renewTime")
        found.append(
            ManagerLease(
                namespace_of(lease),
                str(spec.get("holderIdentity") or ""),
                parse_time(renewed) if isinstance(renewed, str) else None,
            )
        )
    return tuple(found)


def _retained(records: Records, reading: StateReading, kept: KeptSecrets, uid: str) -> RetainedFinding:
    secrets: list[Object] = list(records.secrets)
    if reading.state is not None:
        secrets += reading.state.secrets
    else:
        secrets += [*kept.states, *kept.backups]
    return retain.retained_finding(secrets, uid)


def _config(spec: WorkspaceSpec, status: WorkspaceStatus, owners: Owners, kind: str) -> EffectiveConfig:
    cluster = owners.terraform_cluster if kind != TERRAFORM_CLUSTER.kind else None
    return configuration.resolve(
        spec,
        spec_of(cluster, TerraformClusterSpec) if cluster is not None else None,
        remembered_policy=status.effective_deletion_policy,
        drift_default_seconds=0.0,
    )


def _as_recorded(
    config: EffectiveConfig, records: Records | None, reading: StateReading | None, obj: Object
) -> EffectiveConfig:
    """The configuration with the identity that the object's Jobs run with, as its records name it."""
    state = reading.state if reading is not None and is_deleting(obj) else None
    choice = choose_record(records, state.inputs_hash if state is not None else "") if records else None
    if choice is None:
        return config
    return configuration.as_recorded(
        config, choice.record, mutable=is_mutable(kind_name_of(obj)), deleting=is_deleting(obj)
    )


def _paused_by(obj: Object, owners: Owners) -> tuple[str, ...]:
    found = []
    if owners.pausing_cluster is not None:
        found.append("cluster")
    if keys.PAUSED in annotations_of(obj):
        found.append("annotation")
    return tuple(found)
