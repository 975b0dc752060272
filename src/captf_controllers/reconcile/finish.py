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
from captf_runtime.objects import finalizers_of, generation_of
from captf_runtime.queue import policies


def finish(scope: Scope, before: Conditions, books: Books | None, outcome: Outcome) -> Outcome:
    """Write what the pass changed, then mark Jobs, emit events and (after a release) sweep.

    At most one request outside the status and one to it, each only when something changed. A finalizer comes
    off under a lock on the version that the pass knows; losing that race ends the pass quietly and the next
    one repeats it. Raises the error of the patch; then nothing that follows it happens.
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
    locked = finalizers_of(ground) != finalizers_of(after)
    try:
        stored = patch_object(scope.client, scope.kind, ground, after, optimistic_lock=locked)
    except Conflict:
        if not locked:
            raise
        return Outcome(requeue_after=policies.SHORT.delay())
    except NotFound:
        if not outcome.release:
            raise
        stored = after
    scope.written = stored
    _after_patch(scope, before, books, outcome)
    return outcome


def _after_patch(scope: Scope, before: Conditions, books: Books | None, outcome: Outcome) -> None:
    jobs = books.reports(scope.failed_jobs_limit) if books is not None else {}
    report.transitions(scope, before, jobs)
    for event in scope.events:
        report.emit(scope, event)
    if books is not None and not books.suppress_marks:
        for job in books.finished:
            if job.newly:
                _mark(scope, job)
    if outcome.release:
        release.after_removal(scope, scope.terminal_events)


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
            unhealthy_samples=samples,
        ),
    )
