"""``captf state``: reading the state of an object and its backups, and restoring one.

No value of a resource is ever read. The value of an output is printed only when it is asked for by the flag
that says what that means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import labels, names, reasons
from captf_controllers.api.kinds import workload_kind
from captf_controllers.api.owner import Owner
from captf_controllers.api.workspace import Condition
from captf_controllers.cli import inventory
from captf_controllers.cli.connection import Connection, one_line
from captf_controllers.cli.diagnosis import age
from captf_controllers.cli.examination import Examination, examine
from captf_controllers.cli.following import Follower, Pause
from captf_controllers.cli.output_types import type_expression
from captf_controllers.cli.release_commands import Wish, ask
from captf_controllers.cli.target import Target
from captf_controllers.jobs.views import JobPhase
from captf_controllers.observability.conditions import job_in_message
from captf_controllers.state.addresses import managed_addresses
from captf_controllers.state.backups import BackupSet, list_backups, verify_backup
from captf_controllers.state.lock import Lock, LockKind, read_lock
from captf_controllers.state.reader import fetch_state
from captf_controllers.state.reading import State, StateUnreadable, classify
from captf_runtime.objects import Object, annotations_of, format_time, labels_of, name_of

#: How many addresses of a difference are printed; the rest is counted.
SHOWN = 20


# Reading -------------------------------------------------------------------------------------------


def list_addresses(connection: Connection, target: Target, *, as_json: bool) -> None:
    """Print the address of every managed resource in the object's state."""
    owner = Owner.of(connection.get(target))
    _, addresses, _ = _read(connection, owner)
    if as_json:
        click.echo(json.dumps(list(addresses), indent=2, ensure_ascii=False))
        return
    for address in addresses:
        click.echo(address)


def show(connection: Connection, target: Target, *, as_json: bool, show_sensitive: bool) -> None:
    """Print what the state is, its resources by number and its outputs by name and type."""
    owner = Owner.of(connection.get(target))
    state, addresses, retained_from = _read(connection, owner)
    lock = read_lock(connection.client, owner)
    document = _document(state, addresses, lock, show_sensitive=show_sensitive)
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    for line in _shown(document, retained_from):
        click.echo(line)


def backups(connection: Connection, target: Target, *, as_json: bool) -> None:
    """Print the backups of the state, newest first, each checked against the digest it was taken with."""
    obj = connection.get(target)
    owner = Owner.of(obj)
    found = list_backups(connection.client, owner.namespace, owner.suffix)
    checked = [(item, _check(connection, owner.namespace, item)) for item in found]
    requested = annotations_of(obj).get(keys.RESTORE_STATE, "")
    if as_json:
        click.echo(json.dumps([_backup(item, check) for item, check in checked], indent=2))
        return
    if not checked:
        click.echo(f"{target.resource} {target.name} has no backup of its state.")
        return
    now = connection.clock.now()
    rows = [("SERIAL", "TAKEN", "AGE", "BYTES", "RESOURCES", "CHECK", "NAME")]
    for item, check in checked:
        rows.append(
            (
                str(item.serial),
                format_time(item.taken_at),
                age(now - item.taken_at),
                str(item.bytes),
                str(item.resources),
                check,
                item.name,
            )
        )
    for line in _table(rows):
        click.echo(line)
    if requested:
        click.echo(f"{keys.RESTORE_STATE}={one_line(requested)} is set on the object.")


def _read(connection: Connection, owner: Owner) -> tuple[State, tuple[str, ...], str]:
    """The state, its addresses, and the UID of the earlier object that it was retained from, if any.

    Raises:
        click.ClickException: there is no state, or it cannot be read.
    """
    secrets = fetch_state(connection.client, owner.namespace, owner.suffix)
    base = names.state_secret(owner.suffix)
    if not secrets:
        raise click.ClickException(
            f"{owner.kind} {owner.namespace}/{owner.name} has no state: there is no Secret {base}"
        )
    reading = classify(owner.suffix, secrets)
    if reading.state is None:
        raise click.ClickException(
            f"the state cannot be read ({reading.reason}): {one_line(reading.message)}"
        )
    try:
        addresses = managed_addresses(base, secrets)
    except StateUnreadable as error:
        raise click.ClickException(
            f"the state cannot be read ({error.problem.reason}): {error.message}"
        ) from None
    retained = {labels_of(secret).get(labels.RETAINED_FROM_UID, "") for secret in reading.state.secrets}
    return reading.state, addresses, next((uid for uid in sorted(retained) if uid and uid != owner.uid), "")


def _document(state: State, addresses: Sequence[str], lock: Lock, *, show_sensitive: bool) -> dict[str, Any]:
    outputs = []
    for name in sorted(state.outputs):
        output = state.outputs[name]
        entry: dict[str, Any] = {
            "name": one_line(name),
            "type": type_expression(output.type),
            "sensitive": True,
        }
        if show_sensitive:
            entry["value"] = msgspec.json.decode(output.value)
        outputs.append(entry)
    return {
        "serial": state.serial,
        "lineage": one_line(state.lineage),
        "terraformVersion": one_line(state.terraform_version),
        "managedResources": state.managed_resources,
        "resourceInstances": len(addresses),
        "secrets": [name_of(secret) for secret in state.secrets],
        "bytes": state.bytes,
        "inputsHash": state.inputs_hash,
        "lock": {
            "state": lock.kind.value,
            "holder": lock.info.who,
            "operation": lock.info.operation,
            "created": lock.info.created,
        },
        "outputs": outputs,
    }


def _shown(document: dict[str, Any], retained_from: str) -> Iterator[str]:
    rows = [
        ("Serial", document["serial"]),
        ("Lineage", document["lineage"]),
        ("Terraform version", document["terraformVersion"]),
        ("Managed resources", f"{document['managedResources']} ({document['resourceInstances']} instances)"),
        ("Secrets", ", ".join(document["secrets"])),
        ("Compressed bytes", document["bytes"]),
        ("Inputs hash", document["inputsHash"] or "none: no apply succeeded on this state"),
        ("Lock", _lock_text(document["lock"])),
    ]
    if retained_from:
        rows.append(("Retained", f"from an earlier object of this name, UID {retained_from}"))
    yield from (f"{name + ':':<19}{one_line(str(value))}" for name, value in rows)
    if not document["outputs"]:
        yield "Outputs:           none"
        return
    yield "Outputs:"
    for output in document["outputs"]:
        line = f"  {output['name']}: {output['type']}"
        if "value" in output:
            line += f" = {one_line(json.dumps(output['value'], ensure_ascii=False))}"
        yield line


def _lock_text(lock: dict[str, str]) -> str:
    if lock["state"] == LockKind.FREE:
        return "free"
    whose = {
        LockKind.ALIVE: "held by a running Job of the object",
        LockKind.STALE: "left behind by a Job that is gone; the next Job releases it",
        LockKind.FOREIGN: "held by somebody else",
    }[LockKind(lock["state"])]
    return f"{whose} ({lock['holder'] or 'unknown'}, {lock['operation'] or 'unknown operation'})"


def _check(connection: Connection, namespace: str, item: BackupSet) -> str:
    if not item.complete:
        return "incomplete"
    if not item.digest:
        return "no-digest"
    return "ok" if verify_backup(connection.client, namespace, item) else "damaged"


def _backup(item: BackupSet, check: str) -> dict[str, Any]:
    return {
        "serial": item.serial,
        "takenAt": format_time(item.taken_at),
        "bytes": item.bytes,
        "resources": item.resources,
        "complete": item.complete,
        "check": check,
        "lineage": item.lineage,
        "digest": item.digest,
        "sourceJob": item.source_job,
        "name": item.name,
        "secrets": list(item.chunks),
    }


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


# Restoring -----------------------------------------------------------------------------------------


def restore(connection: Connection, target: Target, serial: int, wish: Wish, pause: Pause) -> None:
    """Ask for the restore of a backup, follow it, and say what came of it.

    Raises:
        click.ClickException: the restore cannot start, failed, or took too long.
        click.Abort: the answer was no.
    """
    found = examine(connection, connection.get(target))
    backup = _chosen(connection, found, serial)
    _refuse(found)
    for line in _preview(connection, found, backup):
        click.echo(line)
    ask(wish.yes, f"Restore serial {serial}?")
    follower = Follower(connection, target, found.subject.uid, wish.timeout, pause)
    if found.status.last_restored_serial == serial:
        _forget(connection, found, follower)
    earlier = frozenset(view.name for view in found.views if view.op == "restore")
    before = found.conditions.get(types.RESTORE_JOB_SUCCEEDED)
    _annotate(connection, found, str(serial))
    click.echo(f"{keys.RESTORE_STATE}={serial} is set.")
    if not wish.wait:
        return
    answer = follower.until(lambda now: _outcome(now, serial, earlier, before))
    if answer is None:
        click.echo("The object is gone: it was deleted, which follows a restore during a deletion.")
    elif answer:
        raise click.ClickException(answer)
    else:
        click.echo(f"Serial {serial} is restored.")
        if found.deleting:
            click.echo("The destroy follows; captf why says how it goes.")


def _chosen(connection: Connection, found: Examination, serial: int) -> BackupSet:
    sets = found.backups
    if sets is None:
        raise click.ClickException(f"you may not {', '.join(found.not_read)}, which a restore needs")
    listed = ", ".join(map(str, found.complete_serials)) or "none"
    same = [item for item in sets if item.serial == serial]
    complete = [item for item in same if item.complete]
    if not complete:
        why = "the backup of that serial is not complete" if same else "there is no backup of that serial"
        raise click.ClickException(f"serial {serial}: {why}; complete backups: {listed}")
    for item in complete:
        if verify_backup(connection.client, found.subject.namespace, item):
            return item
    raise click.ClickException(
        f"serial {serial}: the backup does not have the digest that it was taken with; complete backups: {listed}"
    )


def _refuse(found: Examination) -> None:
    subject = found.subject
    name = f"{subject.resource} {subject.name}"
    if keys.MANAGED_BY in annotations_of(found.obj):
        raise click.ClickException(f"{name} is externally managed ({keys.MANAGED_BY}): no restore starts")
    if found.paused_by:
        raise click.ClickException(f"{name} is paused: no restore starts until it is unpaused")
    facts = found.facts
    if facts is None:
        return
    if facts.retained.foreign_uid:
        raise click.ClickException(
            f"{name} found the state of an earlier object: adopt it with spec.adoptRetainedState: true, or "
            "delete its Secrets, before anything is restored"
        )
    if not found.deleting:
        return
    if not found.held_by_captf:
        raise click.ClickException(f"CAPTF has let {name} go already: nothing is restored any more")
    if facts.policy == "Retain":
        raise click.ClickException(f"{name} is let go with deletionPolicy Retain: nothing is restored")
    if facts.hold is None:
        raise click.ClickException(
            f"{name} is being deleted and its deletion is not held: a restore would be ignored"
        )
    if facts.abandon_requested:
        raise click.ClickException(
            f"{name} is about to be abandoned: remove the annotation {keys.ABANDON_INFRASTRUCTURE} first"
        )


def _preview(connection: Connection, found: Examination, backup: BackupSet) -> Iterator[str]:
    subject, reading = found.subject, found.reading
    name = f"{subject.kind} {subject.namespace}/{subject.name}"
    taken = f"{format_time(backup.taken_at)} ({age(found.now - backup.taken_at)})"
    yield f"{name}: its state becomes the backup of serial {backup.serial}, taken {taken}."
    now = inventory.of_state(connection.client, found) if reading is not None and reading.state else None
    then = inventory.of_backup(connection.client, subject.namespace, backup)
    if reading is not None and reading.state is None:
        yield "There is no state that reads now." if reading.no_state else "The state does not read now."
    if now is not None and then is not None:
        yield f"Now it is {now.source}. Of the resources in it,"
        yield from _difference("no longer known after the restore", set(now.addresses) - set(then))
        yield from _difference("known again after the restore", set(then) - set(now.addresses))
    elif then is not None:
        yield from _difference("known after the restore", set(then))
    if found.deleting:
        yield "The deletion is held; when the state reads again the destroy follows."
    elif found.mutable:
        yield "An apply follows when the inputs are not those of the restored state."


def _difference(what: str, addresses: set[str]) -> Iterator[str]:
    ordered = sorted(addresses)
    yield f"  {what}: {len(ordered) or 'none'}"
    yield from (f"    {address}" for address in ordered[:SHOWN])
    if len(ordered) > SHOWN:
        yield f"    … and {len(ordered) - SHOWN} more"


def _forget(connection: Connection, found: Examination, follower: Follower) -> None:
    """A serial is restored once for each request: withdraw the old one, so that a new one counts."""
    click.echo("That serial was restored, or failed, on an earlier request: that request is withdrawn first.")
    _annotate(connection, found, None)
    if follower.until(lambda now: None if now.status.last_restored_serial else "forgotten") is None:
        raise click.ClickException("the object is gone")


def _annotate(connection: Connection, found: Examination, value: str | None) -> None:
    patch: Object = {"metadata": {"uid": found.subject.uid, "annotations": {keys.RESTORE_STATE: value}}}
    connection.client.patch(
        workload_kind(found.subject.kind), found.subject.name, patch, found.subject.namespace
    )


def _outcome(now: Examination, serial: int, earlier: frozenset[str], before: Condition | None) -> str | None:
    """What came of the request: "" for a success, the failure, or None while it is under way.

    The Job of this request is the one that was not there before; when it is pruned already the condition
    still names it. The condition that was there ``before`` is about an earlier request.
    """
    said = now.conditions.get(types.RESTORE_JOB_SUCCEEDED)
    for view in now.views:
        if view.op != "restore" or view.name in earlier or not view.is_finished:
            continue
        if view.annotations.get(keys.RESTORE_SERIAL) != str(serial):
            continue
        if view.phase is JobPhase.SUCCEEDED:
            return ""
        # The manager's next pass says on the condition why it failed.
        told = said is not None and said != before and job_in_message(said.message) == view.name
        return one_line(said.message) if said is not None and told else None
    if said is None or said == before:
        return None
    if said.reason == reasons.RESTORE_BACKUP_NOT_FOUND:
        return one_line(said.message)
    job = job_in_message(said.message)
    if job is None or job in earlier or any(view.name == job for view in now.views):
        return None
    return "" if said.status == types.TRUE else one_line(said.message)
