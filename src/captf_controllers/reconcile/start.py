"""Starting a Job: the checks in order, the leases, the pause handshake, the create.

Every check that fails ends the start without a Job and without a trace, apart from the leases that a waiting
cluster keeps. What a stop means is decided by the caller: a deleting object may be abandoned there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from captf_controllers.api import reasons
from captf_controllers.api.kinds import TERRAFORM_CLUSTER, TERRAFORM_MACHINE_POOL
from captf_controllers.api.owner import Owner
from captf_controllers.api.workspace import ActiveJob, Operation
from captf_controllers.decide import Decision
from captf_controllers.deletion import obstacles
from captf_controllers.deletion.facts import (
    CredentialsObstacle,
    NoInputsObstacle,
    Obstacle,
    RefusedObstacle,
    TooLargeObstacle,
    WaitObstacle,
)
from captf_controllers.identity.credentials import Credentials
from captf_controllers.inputs import records as inputs_records
from captf_controllers.inputs.plan_key import ensure_plan_key
from captf_controllers.inputs.records import Attempt
from captf_controllers.inputs.rendering import MAX_INPUTS_BYTES, too_large
from captf_controllers.jobs import launch as job_launch
from captf_controllers.jobs.launch import Adopted, Created, LaunchRequest
from captf_controllers.jobs.leases import Acquired, LeaseRequest, Wait, acquire_leases, give_back_if_no_job
from captf_controllers.jobs.naming import tick_for
from captf_controllers.jobs.podspec import Approval, Guard, JobRequest, JobTarget, Restore, build_job
from captf_controllers.jobs.views import next_attempt, view_job
from captf_controllers.reconcile import early_writes, last_look, refused_starts, report, unconfirmed_apply
from captf_controllers.reconcile.bookkeeping import Books, apply_stays_due
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.material import Material
from captf_controllers.reconcile.scope import EventType, Outcome, PendingEvent, Scope
from captf_controllers.state.lock import Lock, lock_version
from captf_runtime.client.errors import ApiError, Forbidden, NamespaceTerminating, NotFound
from captf_runtime.objects import JOB, NAMESPACE, Object, is_deleting, name_of
from captf_runtime.queue import policies


@dataclass(frozen=True, slots=True)
class Stopped:
    """The start ended at an obstacle. ``error`` is what the pass reports when nothing else is made of it."""

    obstacle: Obstacle
    error: ApiError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What a start needs beside the scope. ``abandonable``: an abandon of the deletion acts whatever stops it."""

    operation: Operation
    reason: str
    books: Books
    config: EffectiveConfig
    credentials: Credentials
    lock: Lock | None
    state_lineage: str = ""
    decision: Decision | None = None
    abandonable: bool = False


def start(scope: Scope, request: StartRequest, material: Material | NoInputsObstacle) -> Outcome | Stopped:
    """Start a Job of ``request.operation``, or say what stopped it.

    The caller has tested credentials, gates and the Job policy. Here: Job slot, size, files, leases, then
    block-move, the last look at what is wanted, and the create. A start that was deferred is no error: five
    seconds. One that ended in an error is told on the object, and the error is raised.
    """
    made: list[str] = []
    try:
        return _start(scope, request, material, made)
    except ApiError as error:
        refused_starts.tell(
            scope,
            request.operation,
            error,
            job=made[0] if made else "",
            abandonable=request.abandonable,
        )
        raise


def _start(
    scope: Scope, request: StartRequest, material: Material | NoInputsObstacle, made: list[str]
) -> Outcome | Stopped:
    """Start the Job. ``made`` takes its name in as soon as it exists, also when what follows fails."""
    slot = _slot(scope, request)
    if slot is not None:
        return Stopped(slot)
    if isinstance(material, NoInputsObstacle):
        return Stopped(material)
    size = material.files.size
    scope.inputs_bytes = size
    if too_large(material.files):
        return Stopped(
            TooLargeObstacle(
                f"The rendered inputs of the {request.operation} have {size} bytes, more than the "
                f"{MAX_INPUTS_BYTES} that fit a Secret: shrink bootstrap data, exports or variables"
            )
        )
    job_request = _job_request(scope, request, material)
    lease = LeaseRequest(
        owner=scope.lease_owner,
        op=request.operation,
        job_name=job_request.name,
        deadline_seconds=request.config.jobs.deadline_seconds,
        operation_gate=scope.env.options.cluster_operation_gate,
        memory=scope.env.lease_memory,
    )
    try:
        acquired = acquire_leases(scope.client, lease, scope.env.clock)
    except Forbidden as error:
        return _refused(scope, error)
    if isinstance(acquired, Wait):
        return Stopped(WaitObstacle(acquired.reason, acquired.message, policies.GATE.delay()))
    if acquired.took_over_from:
        scope.ctx.logger.info("lease taken over", job=job_request.name, holders=acquired.took_over_from)
    early_writes.set_block_move(scope)
    if last_look.start_unwanted(scope):
        early_writes.clear_block_move(scope)
        give_back_if_no_job(scope.client, lease, acquired.leases)
        return Outcome(requeue_after=policies.LAG.delay())
    return _create(scope, request, material, job_request, lease, acquired, made)


def live_credentials_obstacle(credentials: Credentials) -> CredentialsObstacle | None:
    """The first credential condition that is not True, as an obstacle."""
    for seen in credentials.observations:
        if seen.status != "True":
            return CredentialsObstacle(seen.type, seen.status, seen.reason, seen.message)
    return None


def _slot(scope: Scope, request: StartRequest) -> WaitObstacle | None:
    options = scope.env.options
    limit = request.config.max_active_jobs
    wait = scope.env.slots.check(
        request.operation,
        scope.namespace,
        scope.lease_owner.cluster_name,
        limit=options.max_active_jobs,
        cluster_limit=options.cluster_max_active_jobs if limit is None else limit,
    )
    if wait is None:
        return None
    return WaitObstacle(
        reasons.WAITING_FOR_JOB_SLOT,
        f"The {request.operation} Job {wait.message}",
        policies.SLOT.delay(scope.uid),
    )


def _job_request(scope: Scope, request: StartRequest, material: Material) -> JobRequest:
    op, books, credentials = request.operation, request.books, request.credentials
    remediation = request.reason == "DriftRemediation"
    inputs = material.inputs.result if material.inputs is not None else None
    decision = request.decision
    apply = op == "apply"
    backup = material.backup
    job_request = JobRequest(
        target=JobTarget(
            scope.kind.kind, scope.namespace, scope.name, scope.uid, scope.lease_owner.cluster_name
        ),
        op=op,
        attempt=next_attempt(books.views, op),
        inputs_hash=material.inputs_hash,
        tick=tick_for(
            op,
            last_refresh=scope.status.last_refresh,
            last_drift_check=scope.status.last_drift_check,
            backup=backup.name if backup is not None else "",
            remediation=remediation,
        ),
        policy=request.config.jobs,
        image=material.image,
        image_pull_policy=scope.spec.source.image_pull_policy,
        runner_image=scope.env.options.runner_image,
        credentials_secret=credentials.secret_name,
        service_account=credentials.service_account,
        force_unlock=request.lock.id if request.lock is not None and request.lock.kind == "stale" else "",
        guard=_guard(scope, request, material) if apply else None,
        approval=_approval(decision) if apply else None,
        restore=Restore(backup.serial, backup.chunks, backup.resources) if backup is not None else None,
        runner_events=scope.env.options.runner_events,
        image_fallbacks=material.fallbacks,
        drift_remediation=apply and remediation,
        after_failed_apply=apply and apply_stays_due(scope, books),
        after_interrupted_apply=unconfirmed_apply.recorded(scope, books.records) if apply else "",
        cluster_outputs_hash=inputs.exports_hash if apply and inputs is not None else "",
        state_lineage=request.state_lineage,
        held_cluster_outputs=apply and inputs is not None and inputs.held_exports,
        state_lock_version=(lock_version(scope.client, scope.namespace, scope.names.suffix) if apply else ""),
    )
    while _name_is_taken(scope, job_request.name):
        job_request = replace(job_request, attempt=job_request.attempt + 1)
    if job_request.needs_plan_key:
        ensure_plan_key(scope.client, Owner.of(scope.obj))
    return job_request


def _name_is_taken(scope: Scope, job: str) -> bool:
    """Whether the Job of that name is another object's: then the next attempt's name is the next one to try.

    The Jobs of a long name bear its hash, which another object may have for a name.
    """
    try:
        found = view_job(scope.env.cache.get(JOB, job, scope.namespace))
    except NotFound:
        return False
    return found.of_workload and not found.is_of(scope.kind.kind, scope.name)


def _guard(scope: Scope, request: StartRequest, material: Material) -> Guard | None:
    inputs = material.inputs.result if material.inputs is not None else None
    if scope.kind == TERRAFORM_CLUSTER:
        return Guard(material.inputs_hash)
    if scope.kind == TERRAFORM_MACHINE_POOL and inputs is not None and inputs.guarded:
        if request.decision is None or not request.decision.allow_deletes:
            return Guard(inputs.approval_hash, inputs.approval_hash)
        plan = request.decision.plan or ""
        return Guard(inputs.approval_hash, inputs.approval_hash, inputs.approval_hash, plan)
    return None


def _approval(decision: Decision | None) -> Approval | None:
    if decision is None or decision.expect_plan is None:
        return None
    return Approval(decision.expect_plan, decision.plan or "")


def _create(
    scope: Scope,
    request: StartRequest,
    material: Material,
    job_request: JobRequest,
    lease: LeaseRequest,
    acquired: Acquired,
    made: list[str],
) -> Outcome | Stopped:
    job = build_job(job_request)
    name = job_request.name

    def record(created: Object) -> None:
        made.append(name)
        _record_attempt(scope, request, material, created)

    scope.env.slots.reserve(scope.namespace, name, scope.lease_owner.cluster_name)
    launch_request = LaunchRequest(
        job=job,
        owner_uid=scope.uid,
        leases=lease,
        acquired=acquired,
        record=record,
        create_run_secret=lambda created: inputs_records.create_per_run(
            scope.client, created, _attempt(request, material, name)
        ),
    )
    try:
        launched = job_launch.launch(scope.client, launch_request, scope.env.clock)
    except Forbidden as error:
        scope.env.slots.cancel(scope.namespace, name)
        return _refused(scope, error)
    except ApiError:
        scope.env.slots.cancel(scope.namespace, name)
        raise
    if not isinstance(launched, Created | Adopted):
        scope.env.slots.cancel(scope.namespace, name)
        if scope.deleting and request.operation in ("destroy", "restore"):
            scope.observe(
                obstacles.not_started(
                    scope.subject, request.operation, launched.reason, abandonable=request.abandonable
                )
            )
        return Outcome(requeue_after=policies.LAG.delay())
    _started(scope, request, material, job_request, launched)
    return Outcome(requeue_after=policies.ACTIVE.delay())


def _attempt(request: StartRequest, material: Material, job: str) -> Attempt:
    """What the records say of this start: its files, their hash, the image and the identity."""
    identity = request.config.identity
    return Attempt(
        files=material.files,
        inputs_hash=material.inputs_hash,
        # The reference as it was written, never a digest: the records tell images apart by it.
        image=material.record.image if material.record is not None else material.image,
        identity=identity.name if identity is not None else "",
        identity_kind=(identity.kind or "") if identity is not None else "",
        job=job,
    )


def _record_attempt(scope: Scope, request: StartRequest, material: Material, job: Object) -> None:
    """Record an apply's inputs before its pod can run; no other operation changes what was applied."""
    if request.operation == "apply":
        attempt = _attempt(request, material, name_of(job))
        inputs_records.write_attempt(scope.client, Owner.of(scope.obj), attempt, request.books.records)


def _refused(scope: Scope, error: Forbidden) -> Stopped:
    """A create was refused: by a terminating namespace it is an obstacle, by anybody else an error."""
    if isinstance(error, NamespaceTerminating) or (scope.deleting and _namespace_terminates(scope)):
        return Stopped(RefusedObstacle(error.message), error)
    raise error


def _namespace_terminates(scope: Scope) -> bool:
    try:
        return is_deleting(scope.client.get(NAMESPACE, scope.namespace))
    except NotFound:
        return True


def _started(
    scope: Scope,
    request: StartRequest,
    material: Material,
    job_request: JobRequest,
    launched: Created | Adopted,
) -> None:
    view = launched.job
    scope.update(
        active_job=ActiveJob(
            name=view.name,
            operation=request.operation,
            attempt=job_request.attempt,
            start_time=view.started or scope.now.replace(microsecond=0),
        )
    )
    if isinstance(launched, Adopted):
        return
    related = view.reference
    note = (
        f"Created {request.operation} Job {view.name} (attempt {job_request.attempt}, image "
        f"{material.image}): {request.reason}"
    )
    scope.ctx.logger.info(
        "Job created", job=view.name, op=request.operation, attempt=job_request.attempt, reason=request.reason
    )
    report.emit(scope, PendingEvent("Normal", reasons.EVENT_JOB_CREATED, note, related))
    for type_, reason, text in _notes(scope, request, material, job_request):
        report.emit(scope, PendingEvent(type_, reason, text, related))


def _notes(
    scope: Scope, request: StartRequest, material: Material, job_request: JobRequest
) -> Iterator[tuple[EventType, str, str]]:
    name = job_request.name
    if material.mismatch:
        yield (
            "Warning",
            reasons.EVENT_DESTROY_INPUTS_MISMATCH,
            f"Job {name} renders recorded inputs that are not the state's: {material.mismatch}",
        )
    if material.unpinned and request.operation in {"destroy", "refresh", "drift", "restore"}:
        yield (
            "Warning",
            reasons.EVENT_DIGEST_UNKNOWN,
            f"Job {name} runs {material.image}: no digest of a successful apply is recorded",
        )
    if job_request.force_unlock and request.lock is not None:
        scope.env.metrics.force_unlock(scope.kind.kind)
        scope.ctx.logger.warning("stale state lock removed by the Job", job=name)
        yield (
            "Warning",
            reasons.EVENT_FORCE_UNLOCKED,
            f"Job {name} removes the stale state lock of {request.lock.info.who}, whose pod has ended",
        )
    dropped = request.config.jobs.dropped_env
    if dropped:
        yield (
            "Warning",
            reasons.EVENT_RESERVED_ENV_DROPPED,
            f"Job {name} runs without the reserved jobs.env entries {', '.join(dropped)}: remove them",
        )
    if request.operation == "apply" and request.reason == "DriftRemediation":
        yield ("Normal", reasons.EVENT_DRIFT_REMEDIATION_STARTED, f"Job {name} remediates drift")
