"""One pass over one object, as a list of named phases.

Gather, decide, act, one status patch. Every phase either ends the pass with an :class:`Outcome` or hands on.
"""

from __future__ import annotations

from dataclasses import dataclass

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.annotations import BLOCK_MOVE
from captf_controllers.api.cluster import TerraformClusterSpec
from captf_controllers.api.kinds import TERRAFORM_CLUSTER, TERRAFORM_MACHINE_POOL
from captf_controllers.api.owner import Owner
from captf_controllers.api.typed import spec_of
from captf_controllers.api.workspace import ActiveJob, SourceStatus
from captf_controllers.deletion import progress
from captf_controllers.deletion.retain import retained_finding
from captf_controllers.inputs import records as inputs_records
from captf_controllers.inputs.exports import record_vanished_pool_apply
from captf_controllers.inputs.records import Records, choose_record, read_records
from captf_controllers.jobs.operations import condition_type
from captf_controllers.jobs.reporting import cannot_start_observation, pull_failed_observation
from captf_controllers.jobs.stuck import (
    STUCK_JOB_AGE,
    KnownImages,
    NoPod,
    PullFailed,
    StuckCause,
    StuckJob,
    check_stuck,
    delete_stuck,
)
from captf_controllers.jobs.unconfirmed import find_vanished
from captf_controllers.jobs.views import JobView, list_jobs
from captf_controllers.observability import conditions as condition_rules
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile import config as configuration
from captf_controllers.reconcile import (
    credentials,
    drift,
    ending,
    guards,
    living,
    plan_step,
    refused_starts,
    report,
    unconfirmed_apply,
)
from captf_controllers.reconcile.bookkeeping import Books, keep_books, tell_outcomes_again
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.scope import Outcome, PendingEvent, Scope
from captf_controllers.state.lock import Lock, read_lock
from captf_runtime.objects import generation_of
from captf_runtime.queue import policies


@dataclass(slots=True)
class Gathered:
    """What setup and bookkeeping found."""

    config: EffectiveConfig
    books: Books
    lock: Lock | None = None


def run(scope: Scope, *, paused: bool, gathered_into: list[Books]) -> Outcome:
    """Run the phases. ``gathered_into`` receives the books as soon as they exist, also when a later phase
    fails: their marks belong to the end of the pass whatever way it ends."""
    config = _set_up(scope)
    scope.failed_jobs_limit = config.jobs.failed_limit
    scope.config = config
    views = list_jobs(scope.env.cache, scope.namespace, scope.kind.kind, scope.name, uid=scope.uid)
    records = read_records(scope.client, Owner.of(scope.obj))
    _mirror_digest(scope, records)
    if scope.deleting and paused:
        scope.observe(progress.paused())
    books = keep_books(scope, views, records, config)
    gathered_into.append(books)
    if books.suppress_marks:
        return Outcome(requeue_after=policies.LAG.delay())
    # Also while paused: what a Job did to a plan is told by its result, and the marks end that for good.
    plan_step.keep_plans(scope, books, config)
    drift.show(scope, books, config)
    _mirror_digest(scope, books.records)
    if paused:
        return _paused(scope, books)
    config = _with_recorded_identity(scope, config, books)
    if books.active is not None:
        return _job_active(scope, books, config, books.active)
    unseen = guards.lags(scope, books.views)
    if unseen is not None:
        if scope.deleting:
            scope.observe(progress.job_runs(unseen.op, unseen.name))
        return Outcome(requeue_after=policies.LAG.delay())
    lock = read_lock(scope.client, Owner.of(scope.obj))
    _record_vanished(scope, books)
    _clear_activity(scope)
    gathered = Gathered(config, books, lock)
    outcome = ending.run(scope, gathered) if scope.deleting else living.run(scope, gathered)
    if books.requeue_lag:
        return Outcome(requeue_after=policies.LAG.delay(), release=outcome.release)
    return outcome


def _set_up(scope: Scope) -> EffectiveConfig:
    scope.conditions = condition_rules.first_visit(
        scope.conditions, scope.kind.kind, now=scope.now, generation=generation_of(scope.obj)
    )
    if scope.deleting:
        scope.observe(Observation(types.DELETING, types.TRUE, "Deleting"))
    cluster = scope.owners.terraform_cluster
    cluster_spec = (
        spec_of(cluster, TerraformClusterSpec)
        if cluster is not None and scope.kind != TERRAFORM_CLUSTER
        else None
    )
    config = configuration.resolve(
        scope.spec,
        cluster_spec,
        remembered_policy=scope.status.effective_deletion_policy,
        drift_default_seconds=scope.env.options.drift_default_interval,
    )
    if config.remember_policy:
        scope.update(effective_deletion_policy=config.deletion_policy)
    scope.update(state_secret_suffix=scope.names.suffix)
    return config


def _mirror_digest(scope: Scope, records: Records) -> None:
    """Show the pinned digest, unless the records are an earlier object's: nothing of those is shown."""
    foreign = retained_finding(records.secrets, scope.uid).foreign_uid
    digest = "" if foreign else records.pinned_digest
    source = scope.status.source or SourceStatus()
    if (source.image_digest or "") != digest:
        scope.update(
            source=SourceStatus(
                image=source.image, image_digest=digest or None, runtime_version=source.runtime_version
            )
        )


def _with_recorded_identity(scope: Scope, config: EffectiveConfig, books: Books) -> EffectiveConfig:
    """A machine runs with the identity its record names, never with one the spec or cluster names since."""
    choice = choose_record(books.records, "")
    if choice is None:
        return config
    return configuration.as_recorded(config, choice.record, mutable=scope.mutable, deleting=scope.deleting)


def _paused(scope: Scope, books: Books) -> Outcome:
    """The paused branch: nothing new starts; what ``clusterctl move`` waits for is cleared."""
    active = books.active
    if active is not None and _delete_if_stuck(scope, books, active):
        active = None
        scope.update(active_job=None)
    if active is not None:
        _show_active(scope, active)
        return Outcome()
    if guards.lags(scope, books.views) is not None:
        return Outcome(requeue_after=policies.LAG.delay())
    _record_vanished(scope, books)
    _clear_activity(scope)
    return Outcome()


def _job_active(scope: Scope, books: Books, config: EffectiveConfig, active: JobView) -> Outcome:
    """A Job runs: it is shown and waited for; the state is not read and nothing is decided."""
    if not refused_starts.stands(scope.conditions.get(types.DRIFT_JOB_SUCCEEDED), active):
        _show_drift_check(scope, active)
    if _delete_if_stuck(scope, books, active):
        scope.update(active_job=None)
        return Outcome(requeue_after=policies.SHORT.delay())
    scope.env.metrics.decision(scope.kind.kind, "none", "JobActive")
    scope.annotate(BLOCK_MOVE, "")
    _show_active(scope, active)
    if scope.deleting:
        scope.observe(progress.job_runs(active.op, active.name))
    else:
        living.while_active(scope, active)
        credentials.prepare(scope, config, job_running=True)
    return Outcome(requeue_after=policies.ACTIVE.delay())


def _show_active(scope: Scope, active: JobView) -> None:
    scope.update(
        active_job=ActiveJob(
            name=active.name,
            operation=active.op,  # type: ignore[arg-type]
            attempt=active.attempt or 1,
            start_time=(active.started or active.created).replace(microsecond=0),
        )
    )


def _clear_activity(scope: Scope) -> None:
    scope.annotate(BLOCK_MOVE, None)
    scope.update(active_job=None)


def _delete_if_stuck(scope: Scope, books: Books, active: JobView) -> bool:
    """Delete an active Job that can never start. True when it was deleted."""
    records = books.records
    images = KnownImages(
        scope.spec.source.image if scope.mutable else "",
        records.unpullable_images if records.durable is not None else None,
    )
    found = check_stuck(scope.client, active, scope.now, images)
    if not isinstance(found, StuckJob):
        _show_waiting(scope, books, active, found)
        return False
    if found.cause is StuckCause.IMAGE_NOT_PULLED:
        inputs_records.add_unpullable(scope.client, Owner.of(scope.obj), active.image)
    delete_stuck(scope.client, scope.kind, scope.obj, active)
    if found.cause is StuckCause.IMAGE_NOT_PULLED:
        event = PendingEvent(
            "Warning",
            reasons.EVENT_IMAGE_PULL_FALLBACK,
            f"Deleted Job {active.name}: {found.detail}; the next one runs {found.next_image}",
            active.reference,
        )
    else:
        event = PendingEvent(
            "Warning",
            reasons.EVENT_STUCK_JOB_DELETED,
            f"Deleted Job {active.name}, which could never start: {found.detail}",
            active.reference,
        )
    report.emit(scope, event)
    return True


def _show_waiting(scope: Scope, books: Books, active: JobView, found: PullFailed | NoPod | None) -> None:
    """Show what keeps the active Job from running, or take back what an earlier pass told of that."""
    operation = active.op
    if operation == "":
        return
    if isinstance(found, PullFailed):
        scope.observe(pull_failed_observation(operation, found.message))
    elif isinstance(found, NoPod):
        scope.observe(cannot_start_observation(operation, active.name, found.detail))
    elif scope.now - active.created >= STUCK_JOB_AGE:
        # A younger one was not looked at.
        told = scope.conditions.get(condition_type(operation))
        if refused_starts.stands(told, active):
            tell_outcomes_again(scope, books, operation)
            _show_drift_check(scope, active)


def _show_drift_check(scope: Scope, active: JobView) -> None:
    """A drift check that runs is shown; a refresh is not, or the condition would change with each of them."""
    if active.op == "drift":
        scope.observe(
            Observation(
                types.DRIFT_JOB_SUCCEEDED, types.UNKNOWN, reasons.DRIFT_JOB_RUNNING, f"Job {active.name}"
            )
        )


def _record_vanished(scope: Scope, books: Books) -> None:
    """An apply that the status names and that is nowhere to be found may have changed something."""
    named = scope.status.active_job
    if named is None:
        return
    if named.operation == "destroy" and not any(view.name == named.name for view in books.views):
        scope.say(
            "Warning",
            reasons.EVENT_JOB_INTERRUPTED,
            f"destroy Job {named.name} was deleted while it ran; it is retried without backoff",
            report.job_reference(scope.namespace, named.name),
        )
    vanished = find_vanished(scope.client, scope.kind, scope.obj, named.name, named.operation, books.views)
    if vanished is None:
        return
    owner = Owner.of(scope.obj)
    if books.records.durable is not None and books.records.durable.job == vanished:
        inputs_records.mark_may_have_applied(scope.client, owner)
    if scope.kind == TERRAFORM_MACHINE_POOL:
        applied = scope.provisioned or books.records.ever_applied_marker or bool(books.records.any_digest)
        record_vanished_pool_apply(scope.client, owner, books.records, vanished, ever_applied=applied)
    unconfirmed_apply.record(scope, books.records, vanished)
    books.records = read_records(scope.client, owner)
    books.vanished = vanished
    if scope.deleting:
        return
    guarded = scope.kind == TERRAFORM_CLUSTER or books.exports_partly_applied
    scope.observe(
        Observation(
            types.APPLY_JOB_SUCCEEDED,
            types.FALSE,
            reasons.APPLY_FAILED,
            f"Job {vanished}: it disappeared while it ran and may have applied a part; an apply of the current "
            "inputs is due" + (", guarded against deletions" if guarded else ""),
        )
    )
