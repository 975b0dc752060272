"""Backups of a state: copies of its Secrets, taken when its serial changed, restored on request.

A backup is a set of Secrets, one per chunk, with the payload byte for byte. It never bears a `tfstate*`
label, or the backend would read it as state.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.owner import Owner
from captf_controllers.api.workspace import StateBackup
from captf_runtime.client.errors import AlreadyExists, ApiError, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.log import get_logger
from captf_runtime.objects import (
    SECRET,
    Object,
    annotations_of,
    creation_timestamp_of,
    format_time,
    labels_of,
    name_of,
    parse_time,
    uid_of,
)

from .reader import fetch_state
from .reading import (
    DATA_KEY,
    MAX_SECRETS,
    Payload,
    StateUnreadable,
    assemble,
    metadata_of,
    parse_payload,
)

_log = get_logger(__name__)

MAX_LISTED: Final = 16
"""How many backups `status.stateBackups` lists."""

_MAX_RESOURCES: Final = 999_999_999
"""What the runner takes as the number of a backup's resources."""

_PAGE: Final = 8
"""Secrets fetched at a time while sizes are counted: each may hold a mebibyte."""


@dataclass(frozen=True, slots=True)
class BackupSet:
    """The Secrets of one backup.

    Args:
        name: name of the set, which is the name of its first Secret.
        serial: serial of the state, 0 when it is not known.
        lineage: lineage of the state.
        taken_at: when it was taken.
        digest: SHA-256 of the concatenated compressed payload, "" when it is not known.
        resources: managed resources of the state.
        inputs_hash: hash that the state was adopted with, "" when there was none.
        source_job: newest Job at that time, "" when it is not known.
        chunks: names of the Secrets in chunk order, without strays.
        bytes: compressed size over the chunks.
        complete: whether every chunk is there and nothing else.
        secrets: metadata of all Secrets of the group, strays included.
    """

    name: str
    serial: int
    lineage: str
    taken_at: datetime
    digest: str
    resources: int
    inputs_hash: str
    source_job: str
    chunks: tuple[str, ...]
    bytes: int
    complete: bool
    secrets: tuple[Object, ...] = field(repr=False)

    @property
    def retained(self) -> bool:
        """Whether any of its Secrets is kept for an object that went with Retain."""
        return any(labels.RETAINED_FROM_UID in labels_of(secret) for secret in self.secrets)


# Listing -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Member:
    secret: Object
    index: int | None
    size: int


def list_backups(client: Verbs, namespace: str, suffix: str) -> tuple[BackupSet, ...]:
    """Return the backups of a state, newest first, incomplete ones included.

    Raises:
        ApiError: the API server did not answer.
    """
    members: list[tuple[Object, int]] = []
    for page in client.pages(SECRET, namespace, label_selector=names.backup_selector(suffix), limit=_PAGE):
        if page.restarted:
            members = []
        members.extend((metadata_of(secret), payload_size(secret)) for secret in page)
    return _group(members)


def group_backups(secrets: Sequence[Object]) -> tuple[BackupSet, ...]:
    """Group the Secrets of backups into sets, newest first. Pure; sizes need the Secrets' data."""
    return _group([(metadata_of(secret), payload_size(secret)) for secret in secrets])


def payload_size(secret: Mapping[str, Any]) -> int:
    """Return the size of a chunk's payload without decoding it."""
    data = secret.get("data")
    encoded = data.get(DATA_KEY) if isinstance(data, dict) else None
    if not isinstance(encoded, str) or not encoded:
        return 0
    return len(encoded) // 4 * 3 - encoded[-2:].count("=")


def _group(members: Sequence[tuple[Object, int]]) -> tuple[BackupSet, ...]:
    groups: dict[str, list[_Member]] = {}
    for secret, size in members:
        set_name = annotations_of(secret).get(keys.STATE_BACKUP_SET) or name_of(secret)
        index = _decimal(annotations_of(secret).get(keys.STATE_BACKUP_CHUNK, ""))
        if index is not None and (
            index >= MAX_SECRETS or name_of(secret) != names.chunk_name(set_name, index)
        ):
            index = None
        groups.setdefault(set_name, []).append(_Member(secret, index, size))
    return newest_first([_set(name, group) for name, group in groups.items()])


def newest_first(sets: Sequence[BackupSet]) -> tuple[BackupSet, ...]:
    """Return the sets by time taken, then serial, both descending, then by name."""
    by_name = sorted(sets, key=lambda item: item.name)
    return tuple(sorted(by_name, key=lambda item: (item.taken_at, item.serial), reverse=True))


def _set(name: str, members: Sequence[_Member]) -> BackupSet:
    chunks = {member.index: member for member in members if member.index is not None}
    described = chunks.get(0, members[0])
    notes = annotations_of(described.secret)
    count = _decimal(notes.get(keys.STATE_BACKUP_CHUNKS, "")) or 0
    serial = _decimal(notes.get(keys.STATE_BACKUP_SERIAL, "")) or 0
    return BackupSet(
        name=name,
        serial=serial,
        lineage=notes.get(keys.STATE_BACKUP_LINEAGE, ""),
        taken_at=_taken_at(described.secret),
        digest=notes.get(keys.STATE_BACKUP_DIGEST, ""),
        resources=_decimal(notes.get(keys.STATE_BACKUP_RESOURCES, ""), _MAX_RESOURCES) or 0,
        inputs_hash=notes.get(keys.INPUTS_HASH, ""),
        source_job=notes.get(keys.STATE_BACKUP_SOURCE_JOB, ""),
        chunks=tuple(name_of(chunks[index].secret) for index in sorted(chunks)),
        bytes=sum(member.size for member in chunks.values()),
        complete=(
            1 <= count <= MAX_SECRETS
            and len(members) == count
            and set(chunks) == set(range(count))
            and serial >= 1
        ),
        secrets=tuple(member.secret for member in members),
    )


_LONG_AGO = parse_time("1970-01-01T00:00:00Z")


def _taken_at(secret: Object) -> datetime:
    try:
        return parse_time(annotations_of(secret).get(keys.STATE_BACKUP_TAKEN_AT, ""))
    except ValueError:
        return creation_timestamp_of(secret) or _LONG_AGO


def _decimal(text: str, most: int = 2**63 - 1) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    return number if (number := int(text)) <= most else None


def status_backups(sets: Sequence[BackupSet]) -> tuple[StateBackup, ...]:
    """Return what `status.stateBackups` lists of the sets in the order of `list_backups`."""
    return tuple(
        StateBackup(serial=item.serial, taken_at=item.taken_at.replace(microsecond=0), bytes=item.bytes)
        for item in sets
        if item.complete and item.bytes > 0
    )[:MAX_LISTED]


def verify_backup(client: Verbs, namespace: str, backup: BackupSet) -> bool:
    """Say whether the payload of a set still has the digest that it was taken with.

    A set without a recorded digest cannot be checked and passes.

    Raises:
        ApiError: the API server did not answer, other than that a Secret is gone.
    """
    if not backup.digest:
        return True
    digest = sha256()
    for chunk in backup.chunks:
        try:
            secret = client.get(SECRET, chunk, namespace)
        except NotFound:
            return False
        encoded = (secret.get("data") or {}).get(DATA_KEY, "")
        try:
            digest.update(binascii.a2b_base64(encoded))
        except binascii.Error:
            return False
    return digest.hexdigest() == backup.digest


# Pruning -------------------------------------------------------------------------------------------


def sets_to_prune(
    sets: Sequence[BackupSet], keep: int, spared_serial: int | None = None
) -> tuple[BackupSet, ...]:
    """Return the sets to delete. Pure.

    What an earlier object retained is nobody's to prune, even where a state that somebody wrote by hand lets this
    one go on beside it.

    Args:
        sets: all sets, newest first.
        keep: how many complete sets stay; with 0 or less nothing is deleted.
        spared_serial: serial of a pending restore; its sets stay and take no slot.
    """
    if keep <= 0:
        return ()
    walked = [
        item for item in sets if not item.retained and (spared_serial is None or item.serial != spared_serial)
    ]
    doomed: list[BackupSet] = []
    complete = 0
    for position, item in enumerate(walked):
        if item.complete:
            complete += 1
            if complete > keep:
                doomed.append(item)
        elif position > 0:
            # The newest one may be in the making.
            doomed.append(item)
    return tuple(doomed)


def _prune(client: Verbs, namespace: str, sets: Sequence[BackupSet]) -> int:
    for item in sets:
        for secret in item.secrets:
            try:
                client.delete(
                    SECRET,
                    name_of(secret),
                    namespace,
                    propagation_policy="Background",
                    uid=uid_of(secret) or None,
                )
            except NotFound:
                continue
    return len(sets)


# Taking --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BackupOutcome:
    """What an attempt to back up a state came to.

    Args:
        taken: the set that was created; None when there was nothing to create or it did not work.
        skipped: why none was taken although one was due, "" otherwise.
        retry: whether `status.observedStateSerial` must stay as it was, so that the next pass tries again.
        pruned: how many sets were deleted.
        backups: the new `status.stateBackups`, None to leave it.
    """

    taken: BackupSet | None = None
    skipped: str = ""
    retry: bool = False
    pruned: int = 0
    backups: tuple[StateBackup, ...] | None = None

    @property
    def note(self) -> str:
        """The note of the event `StateBackedUp`, "" when none was taken."""
        if self.taken is None:
            return ""
        count = len(self.taken.chunks)
        return (
            f"Backed up the state of serial {self.taken.serial} ({self.taken.bytes} bytes in {count} "
            f"Secret{'s' if count != 1 else ''}) as {self.taken.name}; restore it with "
            f"{keys.RESTORE_STATE}={self.taken.serial}"
        )


class _NameTaken(Exception):
    """A Secret that is not ours has the name of the backup."""


def take_backup(
    client: Verbs,
    owner: Owner,
    *,
    keep: int,
    cluster_name: str,
    source_job: str,
    pending_restore: int | None,
    now: datetime,
) -> BackupOutcome:
    """Back up the state as it is now, delete surplus backups and list what there is.

    The caller makes sure that the serial is new, the object is not being deleted and no Job runs. Nothing
    here raises for a failed request: a backup must never stop a reconcile.

    Args:
        client: a live client.
        owner: the object.
        keep: how many complete backups stay (`--state-backups`); with 0 or less nothing is done.
        cluster_name: name of the Cluster, for the labels.
        source_job: newest Job of the object, "" when there is none.
        pending_restore: serial that `captf.io/restore-state` names, None without one.
        now: the time that the backup bears.
    """
    if keep <= 0:
        return BackupOutcome()
    try:
        secrets = fetch_state(client, owner.namespace, owner.suffix)
        if not secrets:
            return BackupOutcome()
        payload = assemble(names.state_secret(owner.suffix), secrets)
        state = parse_payload(payload)
        if state.serial < 1:
            return _skip(owner, f"the state has serial {state.serial}, which no backup can be named after")
        taken = _create(
            client,
            owner,
            payload,
            state.serial,
            state.lineage,
            state.managed_resources,
            cluster_name=cluster_name,
            source_job=source_job,
            now=now,
        )
    except StateUnreadable as error:
        return _skip(owner, error.message)
    except _NameTaken as error:
        return _skip(owner, str(error))
    except ApiError as error:
        _log.warning("cannot back up the state; the next pass tries again", owner=owner.name, err=error)
        return BackupOutcome(skipped="the API server refused a request", retry=True)
    pruned, backups = _tidy(client, owner, keep, pending_restore)
    return BackupOutcome(taken=taken, pruned=pruned, backups=backups)


def _skip(owner: Owner, why: str) -> BackupOutcome:
    _log.warning("no backup of the state is taken", owner=owner.name, cause=why)
    return BackupOutcome(skipped=why)


def _create(
    client: Verbs,
    owner: Owner,
    payload: Payload,
    serial: int,
    lineage: str,
    resources: int,
    *,
    cluster_name: str,
    source_job: str,
    now: datetime,
) -> BackupSet | None:
    hasher = sha256()
    for chunk in payload.chunks:
        hasher.update(chunk)
    digest = hasher.hexdigest()
    sets = list_backups(client, owner.namespace, owner.suffix)
    if any(item.complete and item.serial == serial and item.digest == digest for item in sets):
        return None
    plain = names.state_backup(owner.suffix, serial)
    hashed = names.state_backup_with_digest(owner.suffix, serial, digest)
    taken_by_other = any(item.name == plain and item.digest != digest for item in sets)
    candidates = (hashed,) if taken_by_other else (plain, hashed)
    for base in candidates:
        secrets = [
            _chunk(
                owner, payload, index, base, digest, serial, lineage, resources, cluster_name, source_job, now
            )
            for index in range(len(payload.chunks))
        ]
        try:
            for secret in secrets:
                _create_chunk(client, secret, digest)
        except _NameTaken:
            if base == candidates[-1]:
                raise
            continue
        (made,) = group_backups(secrets)
        return made
    return None


def _create_chunk(client: Verbs, secret: Object, digest: str) -> None:
    namespace = secret["metadata"]["namespace"]
    try:
        client.create(SECRET, secret, namespace)
    except AlreadyExists:
        found = client.get(SECRET, name_of(secret), namespace, metadata_only=True)
        if annotations_of(found).get(keys.STATE_BACKUP_DIGEST) != digest:
            raise _NameTaken(
                f"Secret {name_of(secret)} exists and is no backup of this state: delete or rename it"
            ) from None


def _chunk(
    owner: Owner,
    payload: Payload,
    index: int,
    base: str,
    digest: str,
    serial: int,
    lineage: str,
    resources: int,
    cluster_name: str,
    source_job: str,
    now: datetime,
) -> Object:
    source = payload.secrets[index]
    notes = {
        keys.STATE_BACKUP_SERIAL: str(serial),
        keys.STATE_BACKUP_LINEAGE: lineage,
        keys.STATE_BACKUP_TAKEN_AT: format_time(now),
        keys.STATE_BACKUP_DIGEST: digest,
        keys.STATE_BACKUP_RESOURCES: str(resources),
        keys.STATE_BACKUP_SET: base,
        keys.STATE_BACKUP_CHUNK: str(index),
        keys.STATE_BACKUP_CHUNKS: str(len(payload.chunks)),
    }
    if source_job:
        notes[keys.STATE_BACKUP_SOURCE_JOB] = source_job
    inputs_hash = annotations_of(source).get(keys.INPUTS_HASH, "")
    if index == 0 and inputs_hash:
        notes[keys.INPUTS_HASH] = inputs_hash
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.chunk_name(base, index),
            "namespace": owner.namespace,
            "labels": {
                **names.state_labels(owner.kind, owner.name, cluster_name),
                labels.STATE_BACKUP: labels.TRUE,
                labels.STATE_BACKUP_SUFFIX: owner.suffix,
            },
            "annotations": notes,
            "ownerReferences": [owner.reference().to_dict()],
        },
        "type": "Opaque",
        "data": dict(source["data"]),
    }


def _tidy(
    client: Verbs, owner: Owner, keep: int, pending_restore: int | None
) -> tuple[int, tuple[StateBackup, ...] | None]:
    pruned = 0
    try:
        sets = list_backups(client, owner.namespace, owner.suffix)
        doomed = sets_to_prune(sets, keep, pending_restore)
        for item in doomed:
            pruned += _prune(client, owner.namespace, (item,))
        gone = {item.name for item in doomed}
        return pruned, status_backups([item for item in sets if item.name not in gone])
    except ApiError as error:
        _log.warning("cannot delete surplus backups of the state", owner=owner.name, err=error)
        return pruned, None
