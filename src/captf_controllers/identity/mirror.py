"""The credential mirror: a copy of an identity's Secret in the namespace of the objects that use it.

A Job never reads the operator's Secret. The mirror is owned, without control, by every object that uses it,
so that Kubernetes collects it when the last of them is gone even if nobody cleaned up.

A Secret of the mirror's name that is not the mirror of that identity (somebody else's, or a tenant's
attempt at one) is never overwritten, owned or deleted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.owner import Owner
from captf_runtime.client import AlreadyExists, Conflict, NotFound, retry_on_conflict
from captf_runtime.client.deletes import delete_as_read
from captf_runtime.client.verbs import Verbs
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.objects import (
    SECRET,
    Object,
    annotations_of,
    labels_of,
    owner_references,
    resource_version_of,
    uid_of,
)

__all__ = [
    "EnsuredMirror",
    "MirrorConflict",
    "MirrorResult",
    "drop_mirror_owner",
    "ensure_mirror",
    "is_mirror_of",
    "mirror_change",
    "mirrored_identity",
    "remove_mirror",
    "secret_bytes",
    "source_hash",
]


class MirrorConflict(Exception):
    """A Secret of the mirror's name exists and is not the mirror. A retry cannot mend it."""


class MirrorResult(Enum):
    """What became of the mirror when an object stopped using it."""

    KEPT = "not touched: it is absent, not a mirror, or the object was no owner"
    DROPPED = "other objects still own it"
    DELETED = "the object was its last owner"
    CONFLICT = "somebody changed it meanwhile: look again"


@dataclass(frozen=True, slots=True)
class EnsuredMirror:
    """The mirror is as it should be. `repaired`: an earlier object's reference was replaced."""

    name: str
    created: bool = False
    repaired: bool = False


def source_hash(data: Mapping[str, bytes]) -> str:
    """Hash of a Secret's data that tells when a mirror is out of date.

    Lower-case hex SHA-256 over the keys in ascending byte order; for each: the key's length in 8 bytes
    big-endian, the key, the value's length likewise, the value.
    """
    digest = sha256()
    for key, value in sorted((key.encode(), value) for key, value in data.items()):
        for part in (key, value):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


def secret_bytes(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """The decoded data of a Secret."""
    data = secret.get("data")
    found: dict[str, bytes] = {}
    for key, value in data.items() if isinstance(data, dict) else ():
        try:
            found[key] = base64.b64decode(value or "")
        except (binascii.Error, ValueError, TypeError):
            # The API server only stores what decodes; anything else still has to hash to something.
            found[key] = str(value).encode()
    return found


def mirrored_identity(secret: Mapping[str, Any]) -> str:
    """The identity that a Secret mirrors, "" when it is not labelled as a mirror."""
    if labels_of(secret).get(labels.MIRRORED) != labels.TRUE:
        return ""
    return annotations_of(secret).get(keys.IDENTITY, "")


def is_mirror_of(secret: Mapping[str, Any], identity: str) -> bool:
    """Whether a Secret is the mirror of this identity."""
    return identity != "" and mirrored_identity(secret) == identity


def mirror_change(mirror: Object, source: Object, owner: Owner) -> tuple[Object | None, bool]:
    """The mirror as it should be, None when it is; and whether a stale owner reference was replaced. Pure.

    Only what differs changes. References of other objects are never touched; one to the same group, kind and
    name under another uid (a restored management cluster leaves those) is replaced in its place.
    """
    wanted: Object = {**mirror, "metadata": {**mirror["metadata"]}}
    meta = wanted["metadata"]
    changed = False
    source_data, wanted_hash = source.get("data") or {}, source_hash(secret_bytes(source))
    if (
        annotations_of(mirror).get(keys.SOURCE_HASH) != wanted_hash
        or source_hash(secret_bytes(mirror)) != wanted_hash
    ):
        wanted["data"] = dict(source_data)
        meta["annotations"] = {**annotations_of(mirror), keys.SOURCE_HASH: wanted_hash}
        changed = True
    if labels_of(mirror).get(labels.MANAGED) != labels.TRUE:
        meta["labels"] = {**labels_of(mirror), labels.MANAGED: labels.TRUE}
        changed = True
    references = owner_references(mirror)
    repaired = False
    if all(reference.uid != owner.uid for reference in references):
        stale = next((i for i, reference in enumerate(references) if owner.is_named_by(reference)), None)
        raw = list(meta.get("ownerReferences") or [])
        if stale is None:
            raw.append(owner.reference().to_dict())
        else:
            raw[stale] = owner.reference().to_dict()
            repaired = True
        meta["ownerReferences"] = raw
        changed = True
    return (wanted if changed else None), repaired


def ensure_mirror(
    client: Verbs, identity: str, source: Object, owner: Owner, clock: Clock = SYSTEM_CLOCK
) -> EnsuredMirror:
    """Make sure that the namespace has the mirror, up to date, with this object among its owners.

    Raises:
        MirrorConflict: a Secret of that name is not the mirror of this identity.
        ApiError: a request failed; a conflict only after a few tries.
    """
    name = names.credential_mirror(identity)

    def ensure() -> EnsuredMirror:
        try:
            mirror = client.get(SECRET, name, owner.namespace)
        except NotFound:
            try:
                client.create(SECRET, _new_mirror(name, identity, source, owner), owner.namespace)
            except AlreadyExists:
                mirror = client.get(SECRET, name, owner.namespace)
            else:
                return EnsuredMirror(name, created=True)
        if not is_mirror_of(mirror, identity):
            raise MirrorConflict(
                f"Secret {owner.namespace}/{name} exists and is not the mirror of this identity (label "
                f"{labels.MIRRORED}=true and annotation {keys.IDENTITY}={identity} are what tells); it is "
                "never overwritten: remove or rename it"
            )
        wanted, repaired = mirror_change(mirror, source, owner)
        if wanted is not None:
            client.update(SECRET, wanted)
        return EnsuredMirror(name, repaired=repaired)

    return retry_on_conflict(ensure, clock=clock)


def remove_mirror(client: Verbs, namespace: str, identity: str) -> bool:
    """Delete the mirror of an identity that may not be used here any more, whoever owns it.

    Returns True for the one call that deleted it. A missing Secret, or one that is not the mirror, is left.

    Raises:
        ApiError: a request failed.
    """
    name = names.credential_mirror(identity)
    if not names.may_name_object(name):
        return False
    try:
        mirror = client.get(SECRET, name, namespace, metadata_only=True)
        if not is_mirror_of(mirror, identity):
            return False
        delete_as_read(client, SECRET, mirror, namespace)
    except (NotFound, Conflict):
        return False
    return True


def drop_mirror_owner(client: Verbs, namespace: str, uid: str, identity: str) -> MirrorResult:
    """Take the object off the owners of the mirror; the last one out deletes it.

    `CONFLICT` means that another object added itself meanwhile: nothing was deleted, the finalizer stays, and
    the pass looks again after the cache-lag delay. It is no error.

    Raises:
        ApiError: a request failed.
    """
    name = names.credential_mirror(identity)
    if not names.may_name_object(name):
        # An annotation that anybody may write named the identity.
        return MirrorResult.KEPT
    try:
        mirror = client.get(SECRET, name, namespace, metadata_only=True)
    except NotFound:
        return MirrorResult.KEPT
    if not is_mirror_of(mirror, identity):
        return MirrorResult.KEPT
    raw = list(mirror["metadata"].get("ownerReferences") or [])
    left = [reference for reference in raw if reference.get("uid") != uid]
    if left and len(left) == len(raw):
        return MirrorResult.KEPT
    try:
        if not left:
            # Also one without any owner, as an orphaning deletion leaves it: nothing else would ever remove it.
            delete_as_read(client, SECRET, mirror, namespace)
            return MirrorResult.DELETED
        patch: Object = {
            "metadata": {
                "uid": uid_of(mirror),
                "resourceVersion": resource_version_of(mirror),
                "ownerReferences": left,
            }
        }
        client.patch(SECRET, name, patch, namespace)
    except NotFound:
        return MirrorResult.KEPT
    except Conflict:
        return MirrorResult.CONFLICT
    return MirrorResult.DROPPED


def _new_mirror(name: str, identity: str, source: Object, owner: Owner) -> Object:
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": {labels.MIRRORED: labels.TRUE, labels.MANAGED: labels.TRUE},
            "annotations": {
                keys.IDENTITY: identity,
                keys.SOURCE_HASH: source_hash(secret_bytes(source)),
            },
            "ownerReferences": [owner.reference().to_dict()],
        },
        # Whatever the source's type: a typed Secret would be refused for keys that its type asks for.
        "type": "Opaque",
        "data": dict(source.get("data") or {}),
    }
