"""Reading the object's state, and everything that follows from what was read.

In order: retained state of another object; the class of what was read; adoption of a new state; the
ever-applied marks; a backup of a new serial; the outputs. Nothing is adopted, backed up or mapped before it
is certain that the Secrets are the object's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import names, reasons
from captf_controllers.api.owner import Owner
from captf_controllers.api.workspace import StateBackup
from captf_controllers.deletion import retain, ways_out
from captf_controllers.deletion.cleanup import adopt_secrets
from captf_controllers.deletion.ever_applied import (
    Signals,
    empty_state,
    ever_applied,
    missing_state,
)
from captf_controllers.deletion.facts import Hold, HoldReason, RetainedFinding
from captf_controllers.deletion.secrets import list_backups as list_backup_chunks
from captf_controllers.deletion.secrets import list_states
from captf_controllers.inputs import records as inputs_records
from captf_controllers.inputs.records import Records
from captf_controllers.jobs.outcomes import FinishedJob
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile import early_writes, report, unconfirmed_apply
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.scope import PendingEvent, Scope
from captf_controllers.state.adoption import AdoptionSource, adopt, adoption_due, adoption_source
from captf_controllers.state.backups import BackupSet, list_backups, status_backups, take_backup
from captf_controllers.state.reader import read_state
from captf_controllers.state.reading import State, StateReading
from captf_controllers.state.restore import pending_serial
from captf_runtime.objects import SECRET, Object

_HOLD_REASONS: dict[str, HoldReason] = {
    "StateCorrupt": "StateCorrupt",
    "StateEncrypted": "StateEncrypted",
    "StateInconsistent": "StateInconsistent",
}


@dataclass(slots=True)
class StateView:
    """What the rest of the pass knows about the state.

    ``hold`` is set when nothing may run on it; ``adopted_now`` when this pass took ownership of the chunks.
    ``chunks`` is the metadata of the state Secrets, readable or not; ``backups`` that of the backup Secrets,
    listed only when the state does not read.
    """

    reading: StateReading
    retained: RetainedFinding = field(default_factory=RetainedFinding)
    hold: Hold | None = None
    adopted_now: bool = False
    new_serial: bool = False
    chunks: tuple[Object, ...] = ()
    backups: tuple[Object, ...] = ()

    @property
    def state(self) -> State | None:
        return self.reading.state

    @property
    def inputs_hash(self) -> str:
        return self.reading.state.inputs_hash if self.reading.state is not None else ""


def read(scope: Scope, books: Books) -> StateView:
    """Read the state and look for retained labels; nothing is written.

    The inputs Secrets and the state chunks were read anyway; other lists are made only when the state is
    missing (backups) or unreadable (chunks and backups), so an ordinary pass makes no request for the labels.
    """
    reading = read_state(scope.client, scope.namespace, scope.names.suffix, scope.env.states)
    secrets: list[Object] = list(books.records.secrets)
    backups: tuple[Object, ...] = ()
    chunks: tuple[Object, ...] = reading.state.secrets if reading.state is not None else ()
    if reading.state is None:
        backups = tuple(list_backup_chunks(scope.client, scope.names))
        if not reading.no_state:
            chunks = tuple(list_states(scope.client, scope.names))
    retained = retain.retained_finding([*secrets, *chunks, *backups], scope.uid)
    return StateView(reading=reading, retained=retained, chunks=chunks, backups=backups)


def adopt_retained(scope: Scope, retaining_uid: str) -> None:
    """Take an earlier object's Secrets over; the next pass owns them and reads them as its own."""
    count = adopt_secrets(scope.client, scope.names)
    report.emit(
        scope,
        PendingEvent(
            "Normal",
            reasons.EVENT_RETAINED_STATE_ADOPTED,
            f"Took over {count} Secrets that an earlier object of this name retained "
            f"(uid {retaining_uid}): spec.adoptRetainedState is true",
        ),
    )


def undo_own_retain(scope: Scope, books: Books) -> StateView:
    """A Retain was cut short and taken back: take the object's own label off, and read everything anew."""
    adopt_secrets(scope.client, scope.names)
    books.records = inputs_records.read_records(scope.client, Owner.of(scope.obj))
    return read(scope, books)


def hold_on_retained(scope: Scope, retaining_uid: str) -> None:
    """A live object never takes retained state over unasked, nor does anything else with it."""
    message = retain.hold_message(retaining_uid, namespace=scope.namespace)
    scope.observe(Observation(types.STATE_READABLE, types.FALSE, reasons.RETAINED_STATE_FOUND, message))


def classify(scope: Scope, books: Books, view: StateView) -> None:
    """Decide what the reading means and set ``StateReadable``.

    A missing state is a loss when the object ever applied, an unknown outcome when its first apply was never
    confirmed, and nothing to speak of otherwise; one that nothing was written to is an unknown outcome, too.
    A confirmation that names the recorded Job is consumed here.
    """
    reading = view.reading
    known = signals(scope, books.records, books.newest("apply"))
    if reading.problem is not None:
        view.hold = Hold(_HOLD_REASONS[reading.problem.reason], reading.message)
    elif reading.state is None:
        signal = ever_applied(known, lambda: bool(view.backups))
        missing = missing_state(known, signal, names.state_secret(scope.names.suffix))
        view.hold = _unless_confirmed(scope, books, missing)
    elif reading.state.tells_nothing:
        empty = empty_state(
            known,
            names.state_secret(scope.names.suffix),
            reading.state,
            lambda: known_lineages(
                list_backups(scope.client, scope.namespace, scope.names.suffix), books.finished
            ),
            books.destroyed_nothing,
        )
        view.hold = _unless_confirmed(scope, books, empty)
    _note_on_object(scope, books, view.hold)
    _list_for_restore(scope, view)
    if view.hold is None and reading.state is not None:
        scope.observe(Observation(types.STATE_READABLE, types.TRUE, reasons.STATE_READ))
        return
    if view.hold is None:
        scope.observe(
            Observation(types.STATE_READABLE, types.UNKNOWN, reasons.STATE_NOT_FOUND, "No state yet")
        )
        return
    scope.observe(
        Observation(types.STATE_READABLE, types.FALSE, view.hold.reason, _live_message(scope, view.hold))
    )


def _note_on_object(scope: Scope, books: Books, hold: Hold | None) -> None:
    """Copy what only the inputs Secret says to the object, which outlives every Secret of its namespace."""
    if books.records.ever_applied_marker:
        scope.annotate(keys.APPLIED_AS, scope.names.suffix)
    if hold is not None and hold.job:
        scope.annotate(keys.UNCONFIRMED_APPLY, hold.job)


def _list_for_restore(scope: Scope, view: StateView) -> None:
    """A hold sends its reader to ``status.stateBackups``, which a move and an adoption leave empty."""
    if view.hold is None or scope.status.state_backups or not (view.backups or view.state):
        return
    show_backups(scope, status_backups(list_backups(scope.client, scope.namespace, scope.names.suffix)))


def known_lineages(backups: Iterable[BackupSet], finished: Iterable[FinishedJob]) -> frozenset[str]:
    """The lineages of the object's states, as its backups and the Jobs that were started for one tell them."""
    started_for = (job.job.annotations.get(keys.STATE_LINEAGE, "") for job in finished)
    return frozenset({*(item.lineage for item in backups), *started_for} - {""})


def signals(scope: Scope, records: Records, newest_apply: FinishedJob | None = None) -> Signals:
    """The ever-applied signals that cost no list."""
    return Signals(
        provisioned=scope.provisioned,
        marker=records.ever_applied_marker,
        digest=bool(records.any_digest),
        deleting=scope.deleting,
        applied_as=scope.annotation(keys.APPLIED_AS) or "",
        suffix=scope.names.suffix,
        unconfirmed_job=unconfirmed_apply.recorded(scope, records),
        apply_succeeded=newest_apply is not None and newest_apply.succeeded,
    )


def _unless_confirmed(scope: Scope, books: Books, hold: Hold | None) -> Hold | None:
    if hold is None or hold.reason != "ApplyOutcomeUnknown":
        return hold
    confirmed = scope.annotation(keys.CONFIRM_NO_RESOURCES)
    if confirmed != hold.job:
        if confirmed:
            scope.ctx.logger.warning(
                "the confirmation that no resources exist names another Job and is ignored", job=hold.job
            )
        return hold
    # Consumed first: one that stayed would confirm a later Job of the same name unasked.
    if not early_writes.consume_annotation(scope, keys.CONFIRM_NO_RESOURCES):
        books.suppress_marks = True
        books.requeue_lag = True
        return hold
    unconfirmed_apply.clear(scope)
    books.records = inputs_records.read_records(scope.client, Owner.of(scope.obj))
    return None


def backup_exists(scope: Scope) -> bool:
    selector = names.backup_selector(scope.names.suffix)
    listed = scope.client.list(SECRET, scope.namespace, label_selector=selector, metadata_only=True, limit=1)
    return bool(listed.items)


def _live_message(scope: Scope, hold: Hold) -> str:
    """What a live object says; a deleting one's message is written by the deletion decision."""
    cause = hold.cause[:1].upper() + hold.cause[1:]
    if hold.job:
        way = ways_out.confirm(scope.subject, hold.job)
        return f"{cause}. No Job runs until that is settled; {way.phrase}"
    way = ways_out.restore(scope.subject)
    give_up = "if none is left, delete the object: its deletion is held and names the ways to let it go"
    return f"{cause}. No Job runs until a state can be read; {way.phrase}; {give_up}"


def follow_up(scope: Scope, books: Books, view: StateView) -> None:
    """Adopt, mark as applied and back up a state that reads. Errors of adoption fail the pass."""
    state = view.state
    if state is None or view.hold is not None:
        return
    scope.state_resources, scope.state_bytes = state.managed_resources, state.bytes
    previous = scope.status.observed_state_serial or 0
    # No runtime writes a serial below 1; one that somebody else wrote is none to remember.
    serial = max(state.serial, 0)
    view.new_serial = serial != previous
    scope.update(observed_state_serial=serial or None)
    _adopt(scope, books, view)
    if view.inputs_hash or scope.provisioned:
        _mark_applied(scope, books)
    elif state.managed_resources:
        # A first apply that failed half-way: what it made must be asked for when every Secret is gone.
        scope.annotate(keys.APPLIED_AS, scope.names.suffix)
    if view.new_serial and not scope.deleting and scope.env.options.state_backups > 0:
        _back_up(scope, books, previous)


def _adopt(scope: Scope, books: Books, view: StateView) -> None:
    source = adoption_source(
        _source(books.newest("apply"), restore=False), _source(books.newest("restore"), restore=True)
    )
    if source is None or not adoption_due(source, view.inputs_hash):
        return
    owner = Owner.of(scope.obj)
    adopt(scope.client, owner, source.inputs_hash or "")
    view.adopted_now = True
    hash_text = f"inputs hash {source.inputs_hash}" if source.inputs_hash else "without an inputs hash"
    report.emit(
        scope,
        PendingEvent(
            "Normal",
            reasons.EVENT_STATE_ADOPTED,
            f"Adopted the state of Job {source.job}, {hash_text}",
            report.job_reference(scope.namespace, source.job),
        ),
    )
    # Not read again: a state that went meanwhile would look in this pass like one that never was.
    assert view.reading.state is not None
    view.reading = replace(
        view.reading, state=replace(view.reading.state, inputs_hash=source.inputs_hash or "")
    )


def _source(job: FinishedJob | None, *, restore: bool) -> AdoptionSource | None:
    if job is None or not job.succeeded:
        return None
    recorded = job.job.annotations.get(keys.INPUTS_HASH)
    return AdoptionSource(job.name, job.order, recorded, restore)


def _mark_applied(scope: Scope, books: Books) -> None:
    records = books.records
    if records.durable is not None and not records.ever_applied_marker:
        inputs_records.mark_applied(scope.client, Owner.of(scope.obj))
        books.records = inputs_records.read_records(scope.client, Owner.of(scope.obj))
    scope.annotate(keys.APPLIED_AS, scope.names.suffix)
    # What the object noted was about a state that nobody had; this one is applied.
    scope.annotate(keys.UNCONFIRMED_APPLY, None)


def _back_up(scope: Scope, books: Books, previous: int) -> None:
    newest = books.finished[0].name if books.finished else ""
    outcome = take_backup(
        scope.client,
        Owner.of(scope.obj),
        keep=scope.env.options.state_backups,
        cluster_name=scope.lease_owner.cluster_name,
        source_job=newest,
        pending_restore=pending_serial(scope.annotation(keys.RESTORE_STATE)),
        now=scope.now,
    )
    metrics, kind = scope.env.metrics, scope.kind.kind
    if outcome.retry:
        scope.update(observed_state_serial=previous or None)
    if outcome.skipped:
        metrics.backups(kind, "skipped")
        scope.ctx.logger.warning("state backup skipped", why=outcome.skipped)
    if outcome.pruned:
        metrics.backups(kind, "pruned", outcome.pruned)
    if outcome.backups is not None:
        show_backups(scope, outcome.backups)
    if outcome.taken is not None:
        metrics.backups(kind, "taken")
        report.emit(
            scope,
            PendingEvent(
                "Normal",
                reasons.EVENT_STATE_BACKED_UP,
                outcome.note,
            ),
        )


def show_backups(scope: Scope, backups: tuple[StateBackup, ...]) -> None:
    """Publish the complete backups, newest first; none leaves the field out."""
    scope.update(state_backups=backups or None)
