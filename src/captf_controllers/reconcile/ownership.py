"""Keeping the object's own Secrets its own, and telling of a lock that is not."""

from __future__ import annotations

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.owner import Owner
from captf_controllers.inputs.records import read_records
from captf_controllers.jobs.leases import live_run_lease
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.scope import Scope
from captf_controllers.reconcile.state_step import StateView
from captf_controllers.state.lock import Lock
from captf_controllers.state.ownership import misowned, repair_owners
from captf_controllers.state.reading import MAX_SECRETS
from captf_runtime.client.errors import ApiError


def repair(scope: Scope, books: Books, view: StateView) -> None:
    """Give every Secret of the object exactly the right owner reference again. Never fails the pass.

    Chunks beyond the number that the reader takes are left alone: no backend wrote them, and whoever floods a
    namespace with Secrets of that name shall not keep the manager busy. So are all while somebody holds the run
    lease: a Job that this cache does not show yet may be about to write them, and a runtime whose state changed
    under its hands cannot store what it made.
    """
    owner = Owner.of(scope.obj)
    chunks = view.chunks if len(view.chunks) <= MAX_SECRETS else ()
    if not view.adopted_now and any(misowned(chunk, owner) for chunk in chunks) and _run_lease_held(scope):
        chunks = ()
    repaired = repair_owners(
        scope.client,
        owner,
        states=chunks,
        others=books.records.secrets,
        backups=view.backups,
        skip_states=view.adopted_now,
    )
    for failure in repaired.failures:
        scope.ctx.logger.warning("owner reference not repaired", why=failure)
    if repaired.inputs:
        # A start in this pass writes the attempt record, locked to the version that was read.
        books.records = read_records(scope.client, owner)
    if repaired.total:
        scope.say(
            "Normal",
            reasons.EVENT_OWNER_REFERENCES_REPAIRED,
            f"The object owns its Secrets again: {repaired.describe()}",
        )


def _run_lease_held(scope: Scope) -> bool:
    try:
        held = live_run_lease(scope.client, scope.lease_owner, scope.now, scope.env.lease_memory)
    except ApiError as error:
        scope.ctx.logger.warning("run lease not read; state chunks keep their owners", err=error)
        return True
    return held is not None


def show_foreign_lock(scope: Scope, view: StateView, lock: Lock | None) -> None:
    """A state that reads but is locked by somebody else: Jobs start, wait for the lock and fail."""
    if view.state is None or lock is None or lock.kind != "foreign":
        return
    scope.observe(Observation(types.STATE_READABLE, types.FALSE, reasons.STATE_LOCKED, lock.message))
