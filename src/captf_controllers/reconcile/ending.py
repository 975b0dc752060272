"""The deleting branch of the pass: gather the facts, decide, carry the one step out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import labels, names, reasons
from captf_controllers.api.kinds import TERRAFORM_CLUSTER
from captf_controllers.deletion import abandon, cleanup, destroys, progress, retain
from captf_controllers.deletion.cleanup import Cleaned, Kept, MirrorConflict, RunLeaseLive, Target
from captf_controllers.deletion.decision import (
    AdoptRetained,
    Cleanup,
    CleanupMode,
    Start,
    Step,
    Wait,
    at_obstacle,
    before_state,
    decide,
)
from captf_controllers.deletion.facts import CredentialsObstacle, EarlyFacts, Facts, RestoreFinding
from captf_controllers.deletion.secrets import list_backups
from captf_controllers.inputs.build import Inputs
from captf_controllers.inputs.records import choose_record
from captf_controllers.observability.conditions import job_message
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile import config as configuration
from captf_controllers.reconcile import credentials as credential_step
from captf_controllers.reconcile import last_look, material, ownership, report, restoring, state_step
from captf_controllers.reconcile import outputs as outputs_step
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.scope import Outcome, PendingEvent, Scope
from captf_controllers.reconcile.start import StartRequest, Stopped, live_credentials_obstacle, start
from captf_controllers.reconcile.state_step import StateView
from captf_controllers.state.reader import fetch_state
from captf_controllers.state.reading import classify
from captf_controllers.state.restore import RestoreEvaluation
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import NAMESPACE, is_deleting
from captf_runtime.queue import policies

if TYPE_CHECKING:
    from captf_controllers.reconcile.passes import Gathered


#: What the metric of decisions calls the steps.
_START_REASONS: Mapping[str, str] = {"destroy": "Deleting", "restore": "RestoreRequested"}
_CLEANUP_REASONS: Mapping[CleanupMode, str] = {
    "destroyed": "Destroyed",
    "no-state": "NoState",
    "abandoned": "Abandoned",
    "retained": "Retained",
    "released": "RetainedElsewhere",
}


def run(scope: Scope, gathered: Gathered) -> Outcome:
    """One pass of a deleting object without an active Job."""
    early = _early_facts(scope, gathered.books)
    step = before_state(early)
    if step is not None:
        _count(scope, step)
        return _carry_out(scope, gathered, step)
    view = state_step.read(scope, gathered.books)
    if view.retained.foreign_uid:
        facts = Facts(
            early=early,
            retained=view.retained,
            adopt_retained=bool(scope.spec.adopt_retained_state),
        )
        step = decide(facts)
        _count(scope, step)
        return _carry_out(scope, gathered, step)
    retaining = gathered.config.deletion_policy == "Retain"
    if view.retained.own and not retaining:
        view = state_step.undo_own_retain(scope, gathered.books)
    state_step.classify(scope, gathered.books, view)
    state_step.follow_up(scope, gathered.books, view)
    outputs_step.map_state(scope, gathered.books, view)
    if not retaining:
        ownership.repair(scope, gathered.books, view)
    ownership.show_foreign_lock(scope, view, gathered.lock)
    restore = restoring.evaluate(scope, gathered.books, view, gathered.config)
    facts = _facts(scope, gathered, early, view, restore)
    step = decide(facts)
    if isinstance(step, Start):
        return _start(scope, gathered, facts, view, restore, step)
    _count(scope, step)
    return _carry_out(scope, gathered, step)


def _early_facts(scope: Scope, books: Books) -> EarlyFacts:
    """Whether a destroy succeeded, and what a cluster still waits for.

    Dependents are listed only when they can matter: live, past the watch filter, and for a cluster alone.
    """
    succeeded = destroys.succeeded(books.finished, scope.conditions) and not _another_state(scope, books)
    if succeeded or scope.kind != TERRAFORM_CLUSTER:
        return EarlyFacts(subject=scope.subject, destroy_succeeded=succeeded)
    dependents = tuple(scope.adapter.dependents(scope))
    if not dependents:
        scope.observe(Observation(types.DELETION_BLOCKED, types.FALSE, reasons.NOT_BLOCKED))
    return EarlyFacts(
        subject=scope.subject, dependents=dependents, cluster_name=scope.lease_owner.cluster_name
    )


def _another_state(scope: Scope, books: Books) -> bool:
    """Whether the destroy that succeeded ran on another state than it was started for."""
    destroy = books.newest("apply", "destroy")
    if destroy is None or not destroy.job.annotations.get(keys.STATE_LINEAGE, ""):
        return False
    suffix = scope.names.suffix
    state = classify(suffix, fetch_state(scope.client, scope.namespace, suffix)).state
    if destroys.ran_on_another_state(books.finished, state) is None:
        return False
    books.destroyed_nothing = destroy.name
    scope.observe(
        Observation(
            types.APPLY_JOB_SUCCEEDED,
            types.FALSE,
            reasons.DESTROY_FAILED,
            job_message(destroy.name, "it did not run on the state that is there now"),
        )
    )
    return True


def _facts(
    scope: Scope,
    gathered: Gathered,
    early: EarlyFacts,
    view: StateView,
    restore: RestoreEvaluation | None,
) -> Facts:
    last = destroys.last_destroy(
        scope.kind.kind,
        scope.name,
        finished=gathered.books.finished,
        conditions=scope.conditions,
        last_run=scope.status.last_run,
        failed_limit=gathered.config.jobs.failed_limit,
        now=scope.now,
    )
    return Facts(
        early=early,
        policy=gathered.config.deletion_policy,
        has_state=view.state is not None,
        hold=view.hold,
        abandon=scope.annotation(keys.ABANDON_INFRASTRUCTURE),
        restore=_restore_finding(scope, restore),
        last_destroy_failure=last.failure,
        last_destroy_message=last.message,
        destroy_backoff=last.backoff,
        next_attempt=last.next_attempt,
    )


def _restore_finding(scope: Scope, evaluation: RestoreEvaluation | None) -> RestoreFinding:
    value = (scope.annotation(keys.RESTORE_STATE) or "").strip()
    if evaluation is None or not value:
        return RestoreFinding()
    if evaluation.start is not None:
        return RestoreFinding("startable", value, evaluation.start.serial)
    if evaluation.not_found:
        return RestoreFinding("not-found", value, message=evaluation.not_found)
    return RestoreFinding("consumed", value)


def _start(
    scope: Scope,
    gathered: Gathered,
    facts: Facts,
    view: StateView,
    restore: RestoreEvaluation | None,
    step: Start,
) -> Outcome:
    """A Job is about to start: prepare the credentials now, and only now."""
    scope.observe(*step.conditions)
    choice = choose_record(gathered.books.records, view.inputs_hash)
    if choice is not None:
        gathered.config = configuration.as_recorded(
            gathered.config, choice.record, mutable=scope.mutable, deleting=True
        )
    prepared = credential_step.prepare(scope, gathered.config)
    obstacle = live_credentials_obstacle(prepared)
    if obstacle is None and not prepared.ready:
        obstacle = CredentialsObstacle(types.IDENTITY_ALLOWED, types.UNKNOWN, reasons.IDENTITY_CHECK_FAILED)
    if obstacle is not None:
        return _stopped(scope, gathered, step, at_obstacle(facts, step.operation, obstacle))
    backup = restore.start.backup if restore is not None and restore.start is not None else None
    chosen = material.choose(
        scope,
        step.operation,
        gathered.books.records,
        view,
        inputs=_current_inputs(scope, gathered, view) if step.operation == "destroy" else None,
        backup=backup,
    )
    request = StartRequest(
        operation=step.operation,
        reason=_START_REASONS[step.operation],
        books=gathered.books,
        config=gathered.config,
        credentials=prepared,
        lock=gathered.lock,
        state_lineage=view.state.lineage if view.state is not None else "",
        abandonable=abandon.acts_up_front(facts),
    )
    ended = start(scope, request, chosen)
    if not isinstance(ended, Stopped):
        _count(scope, step)
        active = scope.status.active_job
        if active is not None:
            scope.observe(progress.job_runs(active.operation, active.name))
        return ended
    if ended.error is not None:
        scope.deferred_error = ended.error
    following = at_obstacle(facts, step.operation, ended.obstacle)
    if isinstance(following, Cleanup):
        scope.deferred_error = None
    return _stopped(scope, gathered, step, following)


def _stopped(scope: Scope, gathered: Gathered, step: Start, following: Step) -> Outcome:
    """The start met an obstacle: it is what was wanted, unless the finalizer goes instead."""
    _count(scope, following if isinstance(following, Cleanup) else step)
    return _carry_out(scope, gathered, following)


def _count(scope: Scope, step: Step) -> None:
    """Count the decision of this pass, once."""
    match step:
        case Start(operation):
            wanted, reason = str(operation), _START_REASONS[operation]
        case Cleanup(mode):
            wanted, reason = "finalizer", _CLEANUP_REASONS[mode]
        case AdoptRetained():
            wanted, reason = "none", "AdoptRetained"
        case Wait(waiting):
            wanted, reason = "none", waiting
    scope.env.metrics.decision(scope.kind.kind, wanted, reason)


def _current_inputs(scope: Scope, gathered: Gathered, view: StateView) -> Inputs | None:
    """The inputs as the spec makes them now: the last resort of a cluster or pool without a record."""
    records = gathered.books.records
    if not scope.mutable or choose_record(records, view.inputs_hash) is not None:
        return None
    return material.build_inputs(scope, records)


def _carry_out(scope: Scope, gathered: Gathered, step: Step) -> Outcome:
    match step:
        case Wait(_, requeue_after, conditions):
            scope.observe(*conditions)
            return Outcome(requeue_after=requeue_after)
        case AdoptRetained(uid):
            state_step.adopt_retained(scope, uid)
            return Outcome(requeue_after=policies.LAG.delay())
        case Cleanup():
            return _clean_up(scope, gathered, step)
        case Start(operation):
            raise AssertionError(f"a start of {operation} is carried out where it was decided")


def _clean_up(scope: Scope, gathered: Gathered, step: Cleanup) -> Outcome:
    """Run the cleanup; when every step is done the finalizer goes with the pass's last patch."""
    identity = gathered.config.identity
    mirrored = identity is not None and identity.kind != "Secret"
    target = Target(
        names=scope.names,
        uid=scope.uid,
        cluster_name=scope.lease_owner.cluster_name,
        identity=identity.name if mirrored and identity is not None else "",
    )
    if step.mode == "abandoned":
        if last_look.abandon_unwanted(scope):
            return Outcome(requeue_after=policies.LAG.delay())
        _warn_of_lost_backups(scope)
    result = cleanup.clean_up(scope.client, target, step.mode, scope.now, scope.env.lease_memory)
    match result:
        case RunLeaseLive(lease):
            scope.observe(progress.run_lease_held(lease.holder))
            return Outcome(requeue_after=policies.LAG.delay())
        case MirrorConflict():
            return Outcome(requeue_after=policies.LAG.delay())
        case Cleaned(kept, mirror_removed):
            # Before the finalizer: what fails here must leave it on, or nothing would tell of the release.
            if mirror_removed:
                # At once: a later pass finds no mirror and would have nothing to tell.
                report.emit(scope, _mirror_removed(target.identity))
            events = _release_events(scope, step, kept)
            scope.remove_finalizer()
            scope.terminal_events += events
            irreversible = step.mode in {"abandoned", "retained"}
            say = scope.ctx.logger.warning if irreversible else scope.ctx.logger.info
            say("object released", mode=step.mode, cause=step.cause)
            return Outcome(release=True)


def _mirror_removed(identity: str) -> PendingEvent:
    return PendingEvent(
        "Normal",
        reasons.EVENT_MIRROR_REMOVED,
        f"Removed Secret {names.credential_mirror(identity)}, the mirror of identity {identity}: the last object "
        "of the namespace that used it is gone",
    )


def _warn_of_lost_backups(scope: Scope) -> None:
    """Backups go with the object: after an abandon nothing is left to restore from."""
    backups = list_backups(scope.client, scope.names)
    if backups:
        scope.ctx.logger.warning(
            "the object is abandoned and its state backups go with it: no restore is possible afterwards",
            backups=len(backups),
        )


def _release_events(scope: Scope, step: Cleanup, kept: Kept) -> list[PendingEvent]:
    removed = f"Removed finalizer {scope.finalizer}"
    match step.mode:
        case "destroyed":
            return [
                PendingEvent(
                    "Normal",
                    reasons.EVENT_DESTROYED,
                    "Infrastructure destroyed; state and inputs removed",
                ),
                PendingEvent("Normal", reasons.EVENT_FINALIZER_REMOVED, f"{removed} after the destroy"),
            ]
        case "no-state":
            return [
                PendingEvent(
                    "Normal", reasons.EVENT_FINALIZER_REMOVED, f"{removed}: there was nothing to destroy"
                )
            ]
        case "abandoned":
            note = abandon.note(scope.subject, step.cause)
            return [PendingEvent("Warning", reasons.EVENT_INFRASTRUCTURE_ABANDONED, note)]
        case "retained":
            note = retain.retained_note(
                scope.finalizer,
                scope.uid,
                states=kept.states,
                backups=kept.backups,
                inputs=kept.inputs,
                terminating=_terminating(scope),
            )
            return [PendingEvent("Normal", reasons.EVENT_INFRASTRUCTURE_RETAINED, note)]
        case "released":
            note = (
                f"{removed}: the state belongs to an earlier object "
                f"({labels.RETAINED_FROM_UID}={step.retaining_uid}) and was left as it was"
            )
            return [PendingEvent("Normal", reasons.EVENT_FINALIZER_REMOVED, note)]


def _terminating(scope: Scope) -> bool:
    try:
        return is_deleting(scope.client.get(NAMESPACE, scope.namespace, metadata_only=True))
    except NotFound:
        return True
