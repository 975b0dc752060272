"""The end of a pass: one patch, and what may only follow once it is on the server."""

from __future__ import annotations

import copy

from captf_controllers.api import conditions as types
from captf_controllers.jobs.measures import last_successes
from captf_controllers.jobs.outcomes import FinishedJob, write_marks
from captf_controllers.observability import conditions as condition_rules
from captf_controllers.observability.conditions import Conditions
from captf_controllers.observability.metrics import ObjectGauges
from captf_controllers.reconcile import release, report
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.scope import Outcome, Scope
from captf_runtime.client.errors import ApiError, Conflict, NotFound
from captf_runtime.client.patches import patch_object
from captf_runtime.objects import Object, generation_of, resource_version_of
from captf_runtime.queue import policies


def finish(scope: Scope, before: Conditions, books: Books | None, outcome: Outcome) -> Outcome:
    """Write what the pass changed, then mark Jobs, emit events and (after a release) sweep.

    At most one request outside the status and one to it, each only when something changed. A finalizer comes
    off after the last status, under a lock on the version that the pass knows; losing that race ends the pass
    quietly and the next one repeats it. Raises the error of the patch; then nothing that follows it happens.
    """
    scope.conditions = condition_rules.set_ready(
        scope.conditions,
        scope.kind.kind,
        provisioned=scope.provisioned,
        now=scope.now,
        generation=generation_of(scope.obj),
    ).timed_by(before)
    if not outcome.release:
        _record_gauges(scope, books)
    after = scope.render()
    ground = copy.copy(scope.before)
    ground["metadata"] = {**scope.before["metadata"], "resourceVersion": scope.locked_version}
    if outcome.release:
        return _release(scope, before, books, outcome, ground, after)
    scope.written = patch_object(scope.client, scope.kind, ground, after)
    _report(scope, before, books)
    _mark_jobs(scope, books)
    return outcome


def _release(
    scope: Scope, before: Conditions, books: Books | None, outcome: Outcome, ground: Object, after: Object
) -> Outcome:
    """Write the last status, then take the finalizer off, both locked to the version that the pass knows.

    In this order, because a pass that ends between the two is repeated by the next one, which finds the
    finalizer; the other way round the last conditions, the release's events and the sweep would be lost.
    """
    try:
        shown = {**ground, "status": after["status"]}
        stored = patch_object(scope.client, scope.kind, ground, shown, optimistic_lock=True)
        _report(scope, before, books)
        version = {**ground["metadata"], "resourceVersion": resource_version_of(stored)}
        scope.written = patch_object(
            scope.client, scope.kind, {**shown, "metadata": version}, after, optimistic_lock=True
        )
    except Conflict:
        return Outcome(requeue_after=policies.SHORT.delay())
    except NotFound:
        # Somebody stripped the finalizer meanwhile; what the cleanup removed is removed all the same.
        scope.written = after
    _mark_jobs(scope, books)
    release.after_removal(scope, scope.terminal_events)
    return outcome


def _report(scope: Scope, before: Conditions, books: Books | None) -> None:
    jobs = books.reports(scope.failed_jobs_limit) if books is not None else {}
    report.transitions(scope, before, jobs)
    for event in scope.events:
        report.emit(scope, event)


def _mark_jobs(scope: Scope, books: Books | None) -> None:
    if books is None or books.suppress_marks:
        return
    for job in books.finished:
        if job.newly:
            scope.ctx.logger.info("Job finished", job=job.name, op=job.op, succeeded=job.succeeded)
            _mark(scope, job)


def _mark(scope: Scope, job: FinishedJob) -> None:
    try:
        write_marks(scope.client, job)
    except ApiError as error:
        scope.ctx.logger.warning(
            "finished Job not marked; the next pass reads it again", job=job.name, err=error
        )


def _record_gauges(scope: Scope, books: Books | None) -> None:
    successes = last_successes(books.finished, scope.status.last_drift_check) if books is not None else {}
    samples = getattr(scope.status, "unhealthy_samples", None)
    scope.env.metrics.record_object(
        scope.kind.kind,
        scope.namespace,
        scope.name,
        ObjectGauges(
            ready=scope.conditions.status(types.READY) or "",
            healthy=scope.conditions.status(types.INFRASTRUCTURE_HEALTHY) or "",
            drift_detected=scope.conditions.is_true(types.DRIFT_DETECTED),
            state_resources=scope.state_resources,
            state_bytes=scope.state_bytes,
            inputs_bytes=scope.inputs_bytes,
            last_success=successes,
            unscheduled=_unscheduled(scope),
            unhealthy_samples=samples,
        ),
    )


def _unscheduled(scope: Scope) -> frozenset[str]:
    """The checks that nothing will run: an alert must not wait for their success."""
    if scope.deleting or scope.conditions.is_true(types.PAUSED):
        return frozenset({"drift", "refresh"})
    if scope.config is None:
        return frozenset()
    stopped = set()
    if scope.config.drift_interval <= 0:
        stopped.add("drift")
    if not scope.provisioned or scope.config.health_check_interval <= 0:
        stopped.add("refresh")
    return frozenset(stopped)
