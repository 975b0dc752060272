"""Taking note of finished Jobs, once each, before anything is decided.

A finished Job's pod is read by the first pass that sees it. What follows from its outcome is written in an
order that a crash anywhere only repeats: the applied inputs are promoted before the per-run Secret goes,
and the Job is marked only after the pass's status patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.kinds import TERRAFORM_MACHINE_POOL
from captf_controllers.api.owner import Owner
from captf_controllers.api.workspace import Condition, Operation, SourceStatus
from captf_controllers.approvals.plans import PlanView
from captf_controllers.inputs import records as inputs_records
from captf_controllers.inputs.exports import PoolApply, record_pool_apply
from captf_controllers.inputs.records import Promotion, Records
from captf_controllers.jobs import history, reporting
from captf_controllers.jobs.failures import Failures, count_failures, retry_note
from captf_controllers.jobs.leases import release_finished
from captf_controllers.jobs.measures import sample_of
from captf_controllers.jobs.operations import condition_type
from captf_controllers.jobs.outcomes import (
    FinishedJob,
    collect_finished,
    delete_run_secret,
    pinned_digest,
)
from captf_controllers.jobs.reporting import last_run
from captf_controllers.jobs.unconfirmed import crashed, may_have_applied_now
from captf_controllers.jobs.views import JobView, active_job
from captf_controllers.observability.conditions import job_in_message
from captf_controllers.observability.observation import Observation
from captf_controllers.observability.transitions import JobReport, interrupted_event
from captf_controllers.reconcile import refused_starts, report, restore_consumption, unconfirmed_apply
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.scope import PendingEvent, Scope
from captf_runtime.client.errors import BadRequest, Forbidden, Invalid, RequestTooLarge

#: What the API server answers when it refuses a write for good: repeating it changes nothing.
REFUSED = (Invalid, Forbidden, BadRequest, RequestTooLarge)

DESTROY_OR_APPLY = frozenset({"apply", "destroy"})


@dataclass(slots=True)
class Books:
    """What bookkeeping learned, for the rest of the pass.

    ``finished`` is newest first. ``counted`` are the Jobs that this very pass counted: metrics, outcome
    event and lease release belong to it alone. ``marks`` are written after the status patch.
    ``suppress_marks`` keeps them back when an annotation could not be consumed.
    """

    views: list[JobView]
    finished: list[FinishedJob]
    records: Records
    plans: list[PlanView] = field(default_factory=list)
    active: JobView | None = None
    counted: list[FinishedJob] = field(default_factory=list)
    suppress_marks: bool = False
    requeue_lag: bool = False
    vanished: str = ""
    destroyed_nothing: str = ""

    def newest(self, *ops: str) -> FinishedJob | None:
        """The newest finished Job of one of the operations."""
        return next((job for job in self.finished if job.op in ops), None)

    def newest_success(self, op: str) -> FinishedJob | None:
        return next((job for job in self.finished if job.op == op and job.succeeded), None)

    def failures(self, op: str) -> Failures:
        return count_failures(self.finished, op)

    @property
    def last_apply_failed(self) -> bool:
        """An apply of the current inputs stays due although nothing else says so."""
        if self.records.unconfirmed_apply:
            return True
        newest = self.newest("apply")
        if newest is None or newest.succeeded:
            return False
        if newest.job.marked(keys.DRIFT_REMEDIATION):
            return False
        if newest.blocked or newest.plan_changed:
            return newest.job.marked(keys.AFTER_FAILED_APPLY)
        return True

    @property
    def exports_partly_applied(self) -> bool:
        """A change of its cluster's exports may have reached a pool in part."""
        return self.records.durable is not None and self.records.durable.partial_exports is not None

    def reports(self, limit: int) -> dict[str, JobReport]:
        """What events may say about each finished Job, by name."""
        return {job.name: _report(self, job, limit) for job in self.finished}


def keep_books(scope: Scope, views: list[JobView], records: Records, config: EffectiveConfig) -> Books:
    """Do the bookkeeping of one pass.

    Raises what reading or writing raises; nothing is deleted before the writes that depend on it are done.
    """
    books = Books(
        views=views,
        finished=collect_finished(scope.client, views),
        records=records,
        active=active_job(views),
    )
    _promote(scope, books)
    _record_failed_apply(scope, books)
    _record_pool_exports(scope, books)
    _count(scope, books, config)
    _set_conditions(scope, books)
    _move_stamps(scope, books)
    _copy_last_run(scope, books)
    _prune(scope, books, config)
    restore_consumption.consume(scope, books)
    return books


def _owner(scope: Scope) -> Owner:
    return Owner.of(scope.obj)


def apply_stays_due(scope: Scope, books: Books) -> bool:
    """Whether an apply of the current inputs is due although these equal what the state was made of."""
    pool = scope.kind == TERRAFORM_MACHINE_POOL
    return books.last_apply_failed or (pool and books.exports_partly_applied)


def _promote(scope: Scope, books: Books) -> None:
    """A newly finished successful apply becomes the applied record, with the digest that it ran."""
    apply = books.newest_success("apply")
    if apply is None or not apply.newly:
        return
    owner = _owner(scope)
    image = scope.spec.source.image
    digest = pinned_digest(apply.job.image or image, apply.image_id)
    try:
        promotion = inputs_records.promote(scope.client, owner, apply.name, digest, books.records)
    except REFUSED as error:
        _applied_inputs_unknown(scope, apply, f"the API server refused to record them: {error.reason}")
    else:
        _tell_promotion(scope, apply, promotion)
    _remember_success(scope, books, apply)


def _tell_promotion(scope: Scope, apply: FinishedJob, promotion: Promotion) -> None:
    if promotion.outcome == "unknown":
        _applied_inputs_unknown(scope, apply, "neither its Secret nor the attempt record holds them any more")
    if promotion.pinned:
        report.emit(
            scope,
            PendingEvent(
                "Normal",
                reasons.EVENT_DIGEST_PINNED,
                f"Job {apply.name} pinned {promotion.digest}; destroy, refresh, drift and restore run it",
                apply.job.reference,
            ),
        )
    if promotion.digest_unknown:
        report.emit(
            scope,
            PendingEvent(
                "Warning",
                reasons.EVENT_DIGEST_UNKNOWN,
                f"The pod of Job {apply.name} gave no image digest; later Jobs run the reference as written",
                apply.job.reference,
            ),
        )


def _remember_success(scope: Scope, books: Books, apply: FinishedJob) -> None:
    """Remember that the object applied, whatever became of its inputs.

    A terminating namespace refuses new Secrets and loses those there are: then the object alone remembers it, and
    without that its deletion would leave the infrastructure behind.
    """
    owner = _owner(scope)
    scope.annotate(keys.APPLIED_AS, scope.names.suffix)
    unknown = unconfirmed_apply.recorded(scope, books.records)
    try:
        if unknown and apply.job.annotations.get(keys.AFTER_INTERRUPTED_APPLY) == unknown:
            unconfirmed_apply.clear(scope)
        inputs_records.mark_applied(scope.client, owner)
    except REFUSED as error:
        scope.ctx.logger.warning("the inputs record cannot be marked as applied", job=apply.name, err=error)
    books.records = inputs_records.read_records(scope.client, owner)


def _applied_inputs_unknown(scope: Scope, apply: FinishedJob, why: str) -> None:
    report.emit(
        scope,
        PendingEvent(
            "Warning",
            reasons.EVENT_APPLIED_INPUTS_UNKNOWN,
            f"The inputs of Job {apply.name} are not recorded: {why}",
            apply.job.reference,
        ),
    )


def _record_failed_apply(scope: Scope, books: Books) -> None:
    """A newly finished failed apply may have changed resources: remember what a destroy would need."""
    apply = books.newest("apply")
    if apply is None or not apply.newly or apply.succeeded or apply.blocked or apply.plan_changed:
        return
    owner, suffix = _owner(scope), scope.names.suffix
    changed = False
    may_have_applied = may_have_applied_now(scope.client, apply, suffix)
    if may_have_applied and _is_attempt(books.records, apply):
        inputs_records.mark_may_have_applied(scope.client, owner)
        changed = True
    # With the record of the attempt gone, the state that it wrote may be gone as well.
    if crashed(scope.client, apply, suffix) or (may_have_applied and not books.records.any):
        unconfirmed_apply.record(scope, books.records, apply.name)
        changed = True
    if changed:
        books.records = inputs_records.read_records(scope.client, owner)


def _record_pool_exports(scope: Scope, books: Books) -> None:
    """What a newly finished apply of a pool means for the cluster's exports that it rendered."""
    apply = books.newest("apply")
    if scope.kind != TERRAFORM_MACHINE_POOL or apply is None or not apply.newly:
        return
    applied = PoolApply(
        job=apply.name,
        succeeded=apply.succeeded,
        blocked=apply.blocked,
        may_have_applied=may_have_applied_now(scope.client, apply, scope.names.suffix),
        held=apply.job.marked(keys.HELD_CLUSTER_OUTPUTS),
        exports_hash=apply.job.annotations.get(keys.CLUSTER_OUTPUTS_HASH, ""),
        approval_hash=apply.job.annotations.get(keys.APPROVAL_HASH, ""),
        summary=_plan_summary(apply),
    )
    if record_pool_apply(scope.client, _owner(scope), books.records, applied):
        books.records = inputs_records.read_records(scope.client, _owner(scope))


def _plan_summary(apply: FinishedJob) -> str:
    plan = apply.result.plan if apply.result is not None else None
    return ", ".join(plan.resources) if plan is not None else ""


def _is_attempt(records: Records, job: FinishedJob) -> bool:
    return records.durable is not None and records.durable.job == job.name


def _count(scope: Scope, books: Books, config: EffectiveConfig) -> None:
    """Delete the per-run Secrets of newly finished Jobs; the pass that removed one counts its Job."""
    for job in books.finished:
        if not job.newly or not delete_run_secret(scope.client, job.job):
            continue
        books.counted.append(job)
        release_finished(scope.client, scope.lease_owner, job)
        scope.env.metrics.job_finished(scope.kind.kind, sample_of(job, books.finished))
        if job.op == "destroy" and job.interrupted:
            spec = interrupted_event(_report(books, job, config.jobs.failed_limit))
            report.emit(scope, PendingEvent(spec.type, spec.reason, spec.note, job.job.reference))
        if job.op == "restore":
            _report_restore(scope, job)


def _report_restore(scope: Scope, job: FinishedJob) -> None:
    serial = job.job.annotations.get(keys.RESTORE_SERIAL, "?")
    if job.succeeded:
        event = PendingEvent(
            "Normal",
            reasons.STATE_RESTORED,
            f"Job {job.name} restored the backup of serial {serial}",
            job.job.reference,
        )
    else:
        event = PendingEvent(
            "Warning",
            reasons.EVENT_STATE_RESTORE_FAILED,
            reporting.restore_observation(job).message,
            job.job.reference,
        )
    report.emit(scope, event)
    scope.env.metrics.restore(scope.kind.kind, "succeeded" if job.succeeded else "failed")


def tell_outcomes_again(scope: Scope, books: Books, op: Operation) -> None:
    """Take back what the condition of an operation tells of a start that was stopped."""
    scope.conditions = scope.conditions.without(condition_type(op))
    _set_conditions(scope, books)


def _set_conditions(scope: Scope, books: Books) -> None:
    _apply_condition(scope, books)
    if scope.deleting:
        _ask_no_approval(scope)
    _drift_condition(scope, books)
    _restore_condition(scope, books)


def _drift_condition(scope: Scope, books: Books) -> None:
    present = scope.conditions.get(types.DRIFT_JOB_SUCCEEDED)
    if refused_starts.stands(present, books.active):
        return
    drift = books.newest("refresh", "drift")
    if drift is not None:
        if not _told(scope, types.DRIFT_JOB_SUCCEEDED, drift):
            scope.observe(reporting.drift_observation(drift))
    elif present is None or _left_over(present):
        scope.observe(
            Observation(types.DRIFT_JOB_SUCCEEDED, types.UNKNOWN, reasons.DRIFT_NOT_CHECKED, "No check yet")
        )


def _restore_condition(scope: Scope, books: Books) -> None:
    present = scope.conditions.get(types.RESTORE_JOB_SUCCEEDED)
    if refused_starts.stands(present, books.active):
        return
    restore = books.newest("restore")
    if restore is not None:
        if not _told(scope, types.RESTORE_JOB_SUCCEEDED, restore):
            scope.observe(reporting.restore_observation(restore))
    elif present is not None and _left_over(present):
        scope.conditions = scope.conditions.without(types.RESTORE_JOB_SUCCEEDED)


def _told(scope: Scope, type_: str, job: FinishedJob) -> bool:
    """An earlier pass, which still had the Job's result, has said what became of it."""
    present = scope.conditions.get(type_)
    return not job.newly and present is not None and job_in_message(present.message) == job.name


def _apply_condition(scope: Scope, books: Books) -> None:
    """``ApplyJobSucceeded`` from the newest apply or destroy, or from a plan that failed after them."""
    present = scope.conditions.get(types.APPLY_JOB_SUCCEEDED)
    if refused_starts.stands(present, books.active):
        return
    newest = books.newest("apply", "destroy")
    plan = books.newest("plan")
    if plan is not None and not plan.succeeded and (newest is None or plan.order > newest.order):
        newest = plan
    while newest is not None and newest.op == "destroy" and newest.interrupted:
        # A destroy that was stopped from outside says nothing about the infrastructure.
        if present is not None and not _left_over(present):
            return
        newest = _older(books.finished, newest)
    if newest is None:
        if present is None or _left_over(present):
            scope.observe(
                Observation(
                    types.APPLY_JOB_SUCCEEDED, types.UNKNOWN, reasons.NO_APPLY_YET, "No apply has finished"
                )
            )
        return
    if _told(scope, types.APPLY_JOB_SUCCEEDED, newest) or _wait_is_over(scope, books, newest):
        return
    observation = reporting.apply_observation(newest, deleting=scope.deleting)
    if observation is not None:
        scope.observe(observation)


def _left_over(present: Condition) -> bool:
    """A condition that tells of a start which stopped; this pass tells it anew when its start stops there again.

    Once that start gets through, nothing else would take the message back while the Job runs.
    """
    if present.reason in reasons.WAITS or present.reason == reasons.JOB_CANNOT_START:
        return True
    return present.reason in reasons.STOPPED_STARTS and job_in_message(present.message) is None


def _wait_is_over(scope: Scope, books: Books, newest: FinishedJob) -> bool:
    """An earlier pass found that nothing waits for an approval any more, and told of the apply before."""
    if newest.newly or not newest.waits_for_approval:
        return False
    present = scope.conditions.get(types.APPLY_JOB_SUCCEEDED)
    told = job_in_message(present.message) if present is not None else ""
    return any(job.name == told and not job.waits_for_approval for job in books.finished)


def _ask_no_approval(scope: Scope) -> None:
    """What waited for an approval keeps its reason, but must not ask for one: a destroy needs none."""
    for type_ in (types.APPLY_JOB_SUCCEEDED, types.INPUTS_APPLIED):
        present = scope.conditions.get(type_)
        if present is None or present.reason not in {*reasons.APPROVAL_WAITS, reasons.AWAITING_APPROVAL}:
            continue
        if "no approval is needed any more" in present.message:
            continue
        job = job_in_message(present.message)
        about = f"Job {job}: " if job else ""
        scope.observe(
            Observation(
                present.type,
                present.status,
                present.reason,
                f"{about}no approval is needed any more, as the object is being deleted; nothing was applied",
            )
        )


def _older(finished: Sequence[FinishedJob], job: FinishedJob) -> FinishedJob | None:
    older = finished[finished.index(job) + 1 :]
    return next((item for item in older if item.op in DESTROY_OR_APPLY), None)


def _move_stamps(scope: Scope, books: Books) -> None:
    refreshes = [job for job in books.finished if job.op in {"refresh", "drift"} and job.succeeded]
    if refreshes:
        scope.update(last_refresh=_later(scope.status.last_refresh, refreshes[0].finished_at))
    drifts = [job for job in refreshes if job.op == "drift"]
    if drifts:
        scope.update(last_drift_check=_later(scope.status.last_drift_check, drifts[0].finished_at))


def _later(stamp: datetime | None, finish: datetime) -> datetime:
    return finish if stamp is None or finish > stamp else stamp


def _copy_last_run(scope: Scope, books: Books) -> None:
    if not books.finished:
        return
    newest = books.finished[0]
    known = scope.status.last_run
    if not newest.newly and known is not None and known.job == newest.name:
        return
    if newest.result is None and known is not None and known.job == newest.name:
        return
    scope.update(last_run=last_run(newest))
    source = scope.status.source or SourceStatus()
    runtime = newest.result.runtime_version if newest.result is not None else None
    scope.update(
        source=SourceStatus(
            image=newest.job.image or source.image,
            image_digest=source.image_digest,
            runtime_version=runtime or source.runtime_version,
        )
    )


def _prune(scope: Scope, books: Books, config: EffectiveConfig) -> None:
    gone = history.prune_choice(
        [job.job for job in books.finished if not job.newly],
        config.jobs.successful_limit,
        config.jobs.failed_limit,
    )
    if not gone:
        return
    history.prune(scope.client, gone)
    names = {view.name for view in gone}
    books.views = [view for view in books.views if view.name not in names]


def _report(books: Books, job: FinishedJob, limit: int) -> JobReport:
    duration = job.finished_at - job.job.started if job.job.started is not None else None
    changes = {}
    if job.result is not None and job.result.changes is not None:
        counted = job.result.changes
        changes = {"added": counted.add, "changed": counted.change, "destroyed": counted.destroy}
        if counted.imported:
            changes["imported"] = counted.imported
    return JobReport(
        name=job.name,
        op=job.op if job.newly else "",
        newly=job.newly,
        interrupted=job.interrupted,
        duration=duration,
        changes=changes,
        retry_note=retry_note(books.failures(job.op), limit),
        approval_hash=job.job.annotations.get(keys.APPROVAL_HASH, ""),
    )
