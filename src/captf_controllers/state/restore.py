"""Requests to restore a state: when one starts a Job, and when it must not.

A request is the annotation `captf.io/restore-state` with the serial of a complete backup. It starts one
Job and no more, whatever the cache lags behind, the manager restarts or the Job is deleted later: the
serial that a Job consumed is remembered in the status and read live before a Job starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from captf_controllers.api import annotations as keys
from captf_controllers.api.kinds import workload_kind
from captf_controllers.api.owner import Owner
from captf_controllers.api.workspace import StateBackup
from captf_runtime.client.errors import NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import annotations_of, uid_of

from .backups import BackupSet, list_backups, status_backups, verify_backup

_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RestoreFacts:
    """What decides whether a restore is looked for.

    Args:
        annotation: the annotation's text in the object of this pass, None when it is absent.
        last_restored_serial: `status.lastRestoredSerial`, 0 when absent.
        removed_now: whether this pass removed the annotation after a restore succeeded.
        deleting: whether the object is being deleted.
        held: whether the state is lost or unreadable.
        retain: whether the effective deletion policy is Retain.
    """

    annotation: str | None
    last_restored_serial: int = 0
    removed_now: bool = False
    deleting: bool = False
    held: bool = False
    retain: bool = False


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A restore that may start.

    Args:
        serial: the serial that the annotation names.
        backup: the set to restore.
    """

    serial: int
    backup: BackupSet

    @property
    def tick(self) -> str:
        """What tells the Job apart from one that restores another set of the same serial."""
        return f"restore/{self.backup.name}"


@dataclass(frozen=True, slots=True)
class RestoreEvaluation:
    """What the request comes to in this pass.

    Args:
        start: the restore to start, None when none starts.
        not_found: message of `RestoreJobSucceeded=False/RestoreBackupNotFound`, "" when there is none.
        backups: the new `status.stateBackups`, None to leave it.
        forget: whether there is no request: drop `RestoreJobSucceeded` with the reason
            `RestoreBackupNotFound`, and set `status.lastRestoredSerial` to 0 unless `keep_serial`.
        keep_serial: whether `status.lastRestoredSerial` stays although there is no request.
        consumed: whether the request was carried out, or failed, already.
    """

    start: RestoreRequest | None = None
    not_found: str = ""
    backups: tuple[StateBackup, ...] | None = None
    forget: bool = False
    keep_serial: bool = False
    consumed: bool = False


def requested_serial(text: str) -> int | None:
    """Return the serial that the annotation names, None when it is not one."""
    trimmed = text.strip()
    digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
        return None
    serial = int(trimmed)
    return serial if 1 <= serial <= _MAX_INT64 else None


def pending_serial(annotation: str | None) -> int | None:
    """Return the serial that a pending request names, which pruning spares; None without one."""
    return requested_serial(annotation) if annotation else None


def not_found_message(value: str) -> str:
    """Return the message for a request that names no complete backup."""
    shown = value.strip()
    quoted = f'"{shown[:64]}…"' if len(shown) > 64 else f'"{shown}"'
    return (
        f"{keys.RESTORE_STATE} names {quoted}, and there is no complete and undamaged backup of that serial: "
        "set another serial that status.stateBackups lists, or remove the annotation"
    )


def evaluate_restore(client: Verbs, owner: Owner, facts: RestoreFacts) -> RestoreEvaluation:
    """Look for a requested restore. Run once in a pass, after the state was read, with no Job active.

    Raises:
        ApiError: the API server did not answer.
    """
    if not facts.annotation:
        return RestoreEvaluation(forget=True, keep_serial=facts.removed_now)
    if facts.deleting and (facts.retain or not facts.held):
        return RestoreEvaluation()
    serial = requested_serial(facts.annotation)
    if serial is None:
        return RestoreEvaluation(not_found=not_found_message(facts.annotation))
    if serial == facts.last_restored_serial:
        return RestoreEvaluation(consumed=True)
    sets = list_backups(client, owner.namespace, owner.suffix)
    backup = next(
        (
            item
            for item in sets
            if item.complete and item.serial == serial and verify_backup(client, owner.namespace, item)
        ),
        None,
    )
    listed = status_backups(sets)
    if backup is None:
        return RestoreEvaluation(not_found=not_found_message(facts.annotation), backups=listed)
    try:
        live = client.get(workload_kind(owner.kind), owner.name, owner.namespace)
    except NotFound:
        return RestoreEvaluation(backups=listed)
    if not still_requested(live, owner, facts.annotation, serial):
        return RestoreEvaluation(backups=listed)
    return RestoreEvaluation(start=RestoreRequest(serial, backup), backups=listed)


def still_requested(live: Mapping[str, Any], owner: Owner, annotation: str, serial: int) -> bool:
    """Say whether the object as the API server has it still asks for this very restore. Pure."""
    status = live.get("status")
    consumed = status.get("lastRestoredSerial") if isinstance(status, dict) else None
    return (
        uid_of(live) == owner.uid
        and annotations_of(live).get(keys.RESTORE_STATE) == annotation
        and consumed != serial
    )
