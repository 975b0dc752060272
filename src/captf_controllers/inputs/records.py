"""The Secrets that remember what Jobs ran: the attempt, the last success, and each run.

The durable Secret describes the newest apply that was started and carries the marks of the object's
history; the applied one describes the newest apply that succeeded; a per-run Secret holds one Job's files
and never changes. A destroy runs what these say, not what the spec says now.

Contents are clear text and secret: nothing here logs or raises any of them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.canonical import Json, JsonError, parse
from captf_controllers.api.owner import Owner
from captf_runtime.client.errors import AlreadyExists, Conflict, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import (
    JOB,
    SECRET,
    Object,
    OwnerReference,
    annotations_of,
    name_of,
    namespace_of,
    owner_references,
    resource_version_of,
    uid_of,
)

from .rendering import MAIN_FILE, MAX_INPUTS_BYTES, TFVARS_FILE, Files

EXPORTS_FILE: Final = "applied-cluster-outputs.json"
"""Data key of a pool's durable Secret: the exports of its last successful apply."""

MAX_UNPULLABLE: Final = 20
_CONFLICT_RETRIES: Final = 5


# Reading -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """What a record says of one apply.

    Args:
        files: the files; empty when the Secret does not hold both.
        inputs_hash: their hash.
        image: the image reference.
        image_digest: digest that a successful apply pinned, "" for none.
        identity: name of the identity.
        identity_kind: `Secret`, or "" for the identity kind.
        job: the Job that the record describes.
        secret: metadata of the Secret.
        data_keys: every data key of the Secret.
    """

    files: Files
    inputs_hash: str
    image: str
    image_digest: str
    identity: str
    identity_kind: str
    job: str
    secret: Object = field(repr=False)
    data_keys: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether both files are there."""
        return bool(self.files.main) and bool(self.files.tfvars)

    def tfvars(self) -> Mapping[str, Json] | None:
        """Return the recorded variables, None when they cannot be read."""
        try:
            found = parse(self.files.tfvars)
        except JsonError:
            return None
        return found if isinstance(found, Mapping) else None


@dataclass(frozen=True, slots=True)
class PendingExports:
    """A change of a cluster's exports that a pool could not apply without an approval."""

    exports_hash: str
    approval_hash: str
    job: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class PartialExports:
    """A change of a cluster's exports that may be applied in part; unparsable content counts as well."""

    exports_hash: str
    job: str


@dataclass(frozen=True, slots=True)
class DurableRecord(Record):
    """The attempt record with the marks of the object's history.

    Args:
        applied_marker: whether an apply or restore ever succeeded.
        may_have_applied: whether the attempt may have changed resources.
        unconfirmed_apply: an apply Job of which nobody knows what it did, "" for none.
        unpullable_images: images that could not be pulled, oldest first.
        pending_exports: see `PendingExports`.
        partial_exports: see `PartialExports`.
        applied_exports: compact exports of a pool's last successful apply, None when they are not kept.
        applied_exports_hash: their hash, which stays when they are dropped for size.
    """

    applied_marker: bool = False
    may_have_applied: bool = False
    unconfirmed_apply: str = ""
    unpullable_images: tuple[str, ...] = ()
    pending_exports: PendingExports | None = None
    partial_exports: PartialExports | None = None
    applied_exports: bytes | None = field(default=None, repr=False)
    applied_exports_hash: str = ""


@dataclass(frozen=True, slots=True)
class Records:
    """Both records of an object; None for one that does not exist."""

    durable: DurableRecord | None = None
    applied: Record | None = None

    @property
    def any(self) -> bool:
        """Whether there is a record at all, so that an apply was started before."""
        return self.durable is not None or self.applied is not None

    @property
    def to_apply_again(self) -> Record | None:
        """The record that an object whose inputs count no more applies again: the applied one, else the attempt."""
        return next(
            (record for record in (self.applied, self.durable) if record is not None and record.usable), None
        )

    @property
    def secrets(self) -> tuple[Object, ...]:
        """Metadata of the Secrets that exist."""
        return tuple(record.secret for record in (self.durable, self.applied) if record is not None)

    @property
    def pinned_digest(self) -> str:
        """The digest that Jobs run, "" when none is pinned."""
        return self.applied.image_digest if self.applied is not None else ""

    @property
    def any_digest(self) -> str:
        """A digest on either Secret: a sign that an apply succeeded."""
        durable = self.durable.image_digest if self.durable is not None else ""
        return self.pinned_digest or durable

    @property
    def ever_applied_marker(self) -> bool:
        """Whether the durable Secret says that an apply or restore ever succeeded."""
        return self.durable is not None and self.durable.applied_marker

    @property
    def unconfirmed_apply(self) -> str:
        """The apply Job of which nobody knows what it did, "" for none."""
        return self.durable.unconfirmed_apply if self.durable is not None else ""

    @property
    def unpullable_images(self) -> tuple[str, ...]:
        """Images that could not be pulled, oldest first."""
        return self.durable.unpullable_images if self.durable is not None else ()


def read_records(client: Verbs, owner: Owner) -> Records:
    """Read both records of an object from the API server.

    Raises:
        ApiError: the API server did not answer; a record that does not exist is None.
    """
    durable = _get(client, owner.namespace, names.durable_inputs_secret(owner.kind, owner.name))
    applied = _get(client, owner.namespace, names.applied_inputs_secret(owner.kind, owner.name))
    return Records(
        durable=durable_record(durable) if durable is not None else None,
        applied=record_of(applied) if applied is not None else None,
    )


def _get(client: Verbs, namespace: str, name: str) -> Object | None:
    try:
        return client.get(SECRET, name, namespace)
    except NotFound:
        return None


def record_of(secret: Mapping[str, Any]) -> Record:
    """Return what a Secret says of an apply. Pure."""
    notes = annotations_of(secret)
    return Record(
        files=Files(_data(secret, MAIN_FILE), _data(secret, TFVARS_FILE)),
        inputs_hash=notes.get(keys.INPUTS_HASH, ""),
        image=notes.get(keys.IMAGE, ""),
        image_digest=notes.get(keys.IMAGE_DIGEST, ""),
        identity=notes.get(keys.IDENTITY, ""),
        identity_kind=notes.get(keys.IDENTITY_KIND, ""),
        job=notes.get(keys.JOB, ""),
        secret=_metadata_of(secret),
        data_keys=tuple(data) if isinstance(data := secret.get("data"), Mapping) else (),
    )


def durable_record(secret: Mapping[str, Any]) -> DurableRecord:
    """Return what the durable Secret says. Pure."""
    base = record_of(secret)
    notes = annotations_of(secret)
    data = secret.get("data")
    kept = isinstance(data, Mapping) and EXPORTS_FILE in data
    return DurableRecord(
        files=base.files,
        inputs_hash=base.inputs_hash,
        image=base.image,
        image_digest=base.image_digest,
        identity=base.identity,
        identity_kind=base.identity_kind,
        job=base.job,
        secret=base.secret,
        data_keys=base.data_keys,
        applied_marker=notes.get(keys.APPLIED) == keys.TRUE,
        may_have_applied=notes.get(keys.MAY_HAVE_APPLIED) == keys.TRUE,
        unconfirmed_apply=notes.get(keys.UNCONFIRMED_APPLY, ""),
        unpullable_images=_images(notes.get(keys.UNPULLABLE_IMAGES)),
        pending_exports=_pending(notes.get(keys.PENDING_CLUSTER_OUTPUTS)),
        partial_exports=_partial(notes.get(keys.PARTIAL_CLUSTER_OUTPUTS)),
        applied_exports=_data(secret, EXPORTS_FILE) if kept else None,
        applied_exports_hash=notes.get(keys.APPLIED_CLUSTER_OUTPUTS_HASH, ""),
    )


def _data(secret: Mapping[str, Any], key: str) -> bytes:
    data = secret.get("data")
    encoded = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(encoded, str):
        return b""
    try:
        return base64.b64decode(encoded)
    except binascii.Error:
        return b""


def _metadata_of(secret: Mapping[str, Any]) -> Object:
    found = secret.get("metadata")
    metadata = {key: value for key, value in found.items() if key != "managedFields"} if found else {}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


class _WirePending(msgspec.Struct, rename="camel"):
    exports_hash: str = ""
    approval_hash: str = ""
    job: str = ""
    summary: str = ""


class _WirePartial(msgspec.Struct, rename="camel"):
    exports_hash: str = ""
    job: str = ""


def _pending(text: str | None) -> PendingExports | None:
    if not text:
        return None
    try:
        found = msgspec.json.decode(text, type=_WirePending)
    except (msgspec.DecodeError, RecursionError):
        return None
    return PendingExports(found.exports_hash, found.approval_hash, found.job, found.summary)


def _partial(text: str | None) -> PartialExports | None:
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=_WirePartial)
    except (msgspec.DecodeError, RecursionError):
        return PartialExports("", "")
    return PartialExports(found.exports_hash, found.job)


def _images(text: str | None) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return tuple(msgspec.json.decode(text, type=list[str]))
    except (msgspec.DecodeError, RecursionError):
        return ()


# Choosing ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordChoice:
    """The record that a destroy, or a refresh and drift from a record, runs.

    Args:
        record: the record.
        why: why this one.
        mismatch: whether its hash is not that of the state.
    """

    record: Record
    why: str
    mismatch: bool


def choose_record(records: Records, state_hash: str) -> RecordChoice | None:
    """Choose the record whose files describe what exists. Pure.

    Normally that is the last successful apply. An attempt counts instead only when it may have changed
    resources; so one that was blocked, or failed before its apply step, never changes what is destroyed.

    Args:
        records: the object's records.
        state_hash: the inputs hash of the state, "" when it has none.
    """
    durable = records.durable if records.durable is not None and records.durable.usable else None
    applied = records.applied if records.applied is not None and records.applied.usable else None
    if (
        durable is not None
        and records.durable is not None
        and records.durable.may_have_applied
        and (applied is None or durable.job != applied.job)
    ):
        return _choice(durable, state_hash, f"the attempt of Job {durable.job} may have changed resources")
    if state_hash:
        if applied is not None and applied.inputs_hash == state_hash:
            return _choice(applied, state_hash, "the last successful apply made the state")
        if durable is not None and durable.inputs_hash == state_hash:
            return _choice(durable, state_hash, "the newest attempt made the state")
    if applied is not None:
        return _choice(
            applied, state_hash, "no record has the state's hash; the last successful apply is used"
        )
    if durable is not None:
        return _choice(durable, state_hash, "no successful apply is recorded; the newest attempt is used")
    return None


def _choice(record: Record, state_hash: str, why: str) -> RecordChoice:
    return RecordChoice(record, why, bool(state_hash) and record.inputs_hash != state_hash)


# Writing -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one Job runs.

    Args:
        files: its files.
        inputs_hash: their hash.
        image: the image reference as the spec or the record writes it, never the digest that runs.
        identity: name of the identity.
        identity_kind: `Secret` for a local Secret; anything else is the identity kind.
        job: the Job.
    """

    files: Files
    inputs_hash: str
    image: str
    identity: str
    identity_kind: str
    job: str


def _notes(attempt: Attempt, *, job: bool) -> dict[str, str | None]:
    notes: dict[str, str | None] = {
        keys.IMAGE: attempt.image,
        keys.IDENTITY: attempt.identity,
        keys.IDENTITY_KIND: "Secret" if attempt.identity_kind == "Secret" else None,
        keys.INPUTS_HASH: attempt.inputs_hash,
    }
    if job:
        notes[keys.JOB] = attempt.job
    return notes


def _set_only(notes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in notes.items() if value is not None}


def record_labels(owner: Owner) -> dict[str, str]:
    """Return the labels of an inputs record and of the plan key."""
    return {labels.MANAGED: labels.TRUE, **names.owner_labels(owner.kind, owner.name)}


def write_attempt(client: Verbs, owner: Owner, attempt: Attempt, records: Records) -> None:
    """Record the apply that was just started, before its pod can run.

    The marks of the object's history stay as they are; a pinned digest goes when the image is another one.

    Args:
        client: a live client.
        owner: the object.
        attempt: what the Job runs.
        records: the records as last read.

    Raises:
        ApiError: the write failed. A conflict means that the record changed since `records` was read.
    """
    name = names.durable_inputs_secret(owner.kind, owner.name)
    present = records.durable
    if present is None:
        client.create(
            SECRET,
            record_secret(owner, name, attempt.files.secret_data(), _set_only(_notes(attempt, job=True))),
            owner.namespace,
        )
        return
    data: dict[str, str | None] = {**attempt.files.secret_data()}
    exports = present.applied_exports
    if exports is not None and attempt.files.size + len(exports) > MAX_INPUTS_BYTES:
        data[EXPORTS_FILE] = None
    notes = _notes(attempt, job=True)
    if present.image != attempt.image:
        notes[keys.IMAGE_DIGEST] = None
    _patch_record(client, owner, present, name, notes, data, keep=(EXPORTS_FILE,))


def record_secret(
    owner: Owner, name: str, data: Mapping[str, str], notes: Mapping[str, str] | None = None
) -> Object:
    """A Secret that belongs to the object and goes with it.

    Args:
        owner: the object.
        name: the Secret's name.
        data: encoded content by key.
        notes: its annotations, None for none.
    """
    metadata: Object = {
        "name": name,
        "namespace": owner.namespace,
        "labels": record_labels(owner),
        "ownerReferences": [owner.reference().to_dict()],
    }
    if notes is not None:
        metadata["annotations"] = dict(notes)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": dict(data),
    }


def _patch_record(
    client: Verbs,
    owner: Owner,
    present: Record,
    name: str,
    notes: Mapping[str, str | None],
    data: Mapping[str, str | None],
    *,
    keep: tuple[str, ...] = (),
) -> None:
    stale: dict[str, None] = {key: None for key in present.data_keys if key not in data and key not in keep}
    client.patch(
        SECRET,
        name,
        {
            "metadata": {
                "resourceVersion": resource_version_of(present.secret),
                "labels": record_labels(owner),
                "annotations": dict(notes),
                "ownerReferences": [owner.reference().to_dict()],
            },
            "data": {**stale, **data},
        },
        owner.namespace,
    )


def create_per_run(client: Verbs, job: Object, attempt: Attempt) -> None:
    """Create the Secret that a Job's pod mounts; the pod waits for it.

    A Secret of an earlier Job of that name, which is being collected, is deleted first.

    Args:
        client: a live client.
        job: the Job as the API server stored it.
        attempt: what it runs.

    Raises:
        ApiError: the create failed.
    """
    name = names.per_run_secret(name_of(job))
    namespace = namespace_of(job)
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {labels.MANAGED: labels.TRUE},
            "annotations": _set_only(_notes(attempt, job=False)),
            "ownerReferences": [
                OwnerReference(JOB.api_version, JOB.kind, name_of(job), uid_of(job)).to_dict()
            ],
        },
        "type": "Opaque",
        "data": dict(attempt.files.secret_data()),
    }
    try:
        client.create(SECRET, secret, namespace)
        return
    except AlreadyExists:
        pass
    try:
        present = client.get(SECRET, name, namespace, metadata_only=True)
        if any(reference.uid == uid_of(job) for reference in owner_references(present)):
            return
        client.delete(SECRET, name, namespace, propagation_policy="Background", uid=uid_of(present))
    except NotFound:
        pass
    client.create(SECRET, secret, namespace)


# Promotion -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promotion:
    """What became of the inputs of an apply that succeeded.

    Args:
        outcome: `promoted` to the applied record; `already` there; `unknown` because neither the per-run
            Secret nor the attempt record still holds them.
        digest: the pinned digest, "" for none.
        pinned: whether that digest is new.
        digest_unknown: whether none could be pinned.
    """

    outcome: Literal["promoted", "already", "unknown"]
    digest: str = ""
    pinned: bool = False
    digest_unknown: bool = False


def promote(client: Verbs, owner: Owner, job_name: str, image_digest: str, records: Records) -> Promotion:
    """Make the inputs of a succeeded apply the applied record. Repeating it changes nothing.

    Run before the Job's per-run Secret is deleted.

    Args:
        client: a live client.
        owner: the object.
        job_name: the apply Job.
        image_digest: `repository@sha256:…` that its pod ran, "" when it could not be read.
        records: the records as last read.

    Raises:
        ApiError: reading or writing failed; nothing may be deleted then.
    """
    applied = records.applied
    if applied is not None and applied.job == job_name:
        _settle_attempt(client, owner, job_name, applied.image, applied.image_digest, records)
        return Promotion("already", applied.image_digest)
    source = _promoted_source(client, owner, job_name, records)
    if source is None:
        return Promotion("unknown", applied.image_digest if applied is not None else "")
    previous = applied.image_digest if applied is not None else ""
    kept = previous if applied is not None and applied.image == source.image else ""
    digest = image_digest or kept
    attempt = Attempt(
        source.files, source.inputs_hash, source.image, source.identity, source.identity_kind, job_name
    )
    notes = {**_notes(attempt, job=True), keys.IMAGE_DIGEST: digest or None}
    name = names.applied_inputs_secret(owner.kind, owner.name)
    if applied is None:
        client.create(
            SECRET, record_secret(owner, name, attempt.files.secret_data(), _set_only(notes)), owner.namespace
        )
    else:
        _patch_record(client, owner, applied, name, notes, attempt.files.secret_data())
    _settle_attempt(client, owner, job_name, source.image, digest, records)
    return Promotion(
        "promoted",
        digest,
        pinned=bool(digest) and digest != previous,
        digest_unknown=not digest,
    )


def _promoted_source(client: Verbs, owner: Owner, job_name: str, records: Records) -> Record | None:
    found = _get(client, owner.namespace, names.per_run_secret(job_name))
    if found is not None:
        source = record_of(found)
        if source.usable:
            return source
    durable = records.durable
    return durable if durable is not None and durable.job == job_name and durable.usable else None


def _settle_attempt(
    client: Verbs, owner: Owner, job_name: str, image: str, digest: str, records: Records
) -> None:
    durable = records.durable
    if durable is None:
        return
    notes: dict[str, str | None] = {}
    # A later attempt's mark is not taken back by an earlier success.
    if durable.may_have_applied and durable.job == job_name:
        notes[keys.MAY_HAVE_APPLIED] = None
    if durable.unpullable_images:
        notes[keys.UNPULLABLE_IMAGES] = None
    if digest and durable.image == image and durable.image_digest != digest:
        notes[keys.IMAGE_DIGEST] = digest
    if notes:
        _annotate(client, owner, notes)


# Marks of the object's history ---------------------------------------------------------------------


def mark_applied(client: Verbs, owner: Owner) -> bool:
    """Record that an apply or restore of the object ever succeeded; False without a durable Secret."""
    return _annotate(client, owner, {keys.APPLIED: keys.TRUE})


def mark_may_have_applied(client: Verbs, owner: Owner) -> bool:
    """Record that the newest attempt may have changed resources; False without a durable Secret."""
    return _annotate(client, owner, {keys.MAY_HAVE_APPLIED: keys.TRUE})


def record_unconfirmed(client: Verbs, owner: Owner, job: str) -> bool:
    """Record an apply Job of which nobody knows what it did; False without a durable Secret."""
    return _annotate(client, owner, {keys.UNCONFIRMED_APPLY: job})


def clear_unconfirmed(client: Verbs, owner: Owner) -> bool:
    """Forget the unconfirmed apply; False without a durable Secret."""
    return _annotate(client, owner, {keys.UNCONFIRMED_APPLY: None})


def clear_after_restore(client: Verbs, owner: Owner) -> bool:
    """Record a successful restore: the state that the other marks were about is replaced."""
    return _annotate(
        client,
        owner,
        {keys.APPLIED: keys.TRUE, keys.MAY_HAVE_APPLIED: None, keys.UNCONFIRMED_APPLY: None},
    )


def _annotate(client: Verbs, owner: Owner, notes: Mapping[str, str | None]) -> bool:
    """Set and remove annotations of the durable Secret, whatever else changed on it."""
    try:
        client.patch(
            SECRET,
            names.durable_inputs_secret(owner.kind, owner.name),
            {"metadata": {"annotations": dict(notes)}},
            owner.namespace,
        )
    except NotFound:
        return False
    return True


def add_unpullable(client: Verbs, owner: Owner, image: str) -> bool:
    """Add an image that could not be pulled; False without a durable Secret.

    Raises:
        ApiError: the write failed, or conflicted again and again.
    """
    name = names.durable_inputs_secret(owner.kind, owner.name)
    for remaining in reversed(range(_CONFLICT_RETRIES)):
        try:
            secret = client.get(SECRET, name, owner.namespace, metadata_only=True)
            known = _images(annotations_of(secret).get(keys.UNPULLABLE_IMAGES))
            if image in known:
                return True
            listed = [*known, image][-MAX_UNPULLABLE:]
            client.patch(
                SECRET,
                name,
                {
                    "metadata": {
                        "resourceVersion": resource_version_of(secret),
                        "annotations": {keys.UNPULLABLE_IMAGES: msgspec.json.encode(listed).decode()},
                    }
                },
                owner.namespace,
            )
            return True
        except NotFound:
            return False
        except Conflict:
            if not remaining:
                raise
    return False
