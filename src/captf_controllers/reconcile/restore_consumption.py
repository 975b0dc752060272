"""A finished restore is consumed once: its serial is remembered, and after a success its annotation goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from captf_controllers.api import annotations as keys
from captf_controllers.api.owner import Owner
from captf_controllers.inputs import records as inputs_records
from captf_controllers.reconcile import early_writes
from captf_controllers.reconcile.scope import Scope
from captf_controllers.state.restore import requested_serial

if TYPE_CHECKING:
    from captf_controllers.reconcile.bookkeeping import Books


def consume(scope: Scope, books: Books) -> None:
    """Take note of the newest restore while it is not bookkept yet.

    ``status.lastRestoredSerial`` takes its serial whether it succeeded or not, so it never runs twice for
    one request. A success also clears what the records say about applies that the restored state replaces,
    and removes the annotation if it still names that serial: with a lock on the version that was read, so
    a new request that came meanwhile stays.
    """
    restore = books.newest("restore")
    if restore is None or not restore.newly:
        return
    serial = requested_serial(restore.job.annotations.get(keys.RESTORE_SERIAL, ""))
    scope.update(last_restored_serial=serial)
    if not restore.succeeded:
        return
    owner = Owner.of(scope.obj)
    inputs_records.clear_after_restore(scope.client, owner)
    scope.annotate(keys.UNCONFIRMED_APPLY, None)
    books.records = inputs_records.read_records(scope.client, owner)
    if serial is None or requested_serial(scope.annotation(keys.RESTORE_STATE) or "") != serial:
        return
    consumed = early_writes.consume_annotation(scope, keys.RESTORE_STATE)
    if not consumed:
        books.suppress_marks = True
        books.requeue_lag = True
