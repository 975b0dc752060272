"""The lock that the backend takes on a state, and whether whoever holds it still lives."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import msgspec

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.api.owner import Owner
from captf_runtime.client.errors import NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import LEASE, POD, Object, annotations_of, resource_version_of

NO_LEASE: Final = "none"
"""What stands for the version of a lock Lease that does not exist."""

_UNKNOWN: Final = "unknown"
_LOCK_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
"""The backends make UUIDs; an ID becomes an argument of `force-unlock`."""

_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_MAX_SHOWN: Final = 256


class LockKind(StrEnum):
    """Who holds the lock."""

    FREE = "free"
    STALE = "stale"
    ALIVE = "alive"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class LockInfo:
    """What the backend recorded about the holder; "" where nothing is known."""

    id: str = ""
    who: str = ""
    operation: str = ""
    created: str = ""

    @property
    def host(self) -> str:
        """The host of the holder, "" when it is not known."""
        _, at, host = self.who.rpartition("@")
        return host if at else ""


@dataclass(frozen=True, slots=True)
class Lock:
    """The state lock as it was read.

    Args:
        kind: free; stale (held by a pod of the object that is gone or finished, to be released by the next
            Job); alive (held by a running pod of the object); foreign (held by anything else, never
            released by CAPTF).
        id: what `force-unlock` takes.
        info: what is known about the holder.
        lease: name of the Lease.
    """

    kind: LockKind
    id: str = ""
    info: LockInfo = LockInfo()
    lease: str = ""

    @property
    def holder(self) -> str:
        """The holder for people."""
        return self.info.who or _UNKNOWN

    @property
    def message(self) -> str:
        """The message of `StateReadable=False/StateLocked`."""
        return (
            f"The state is locked by {self.holder} for {self.info.operation or 'an unknown operation'} since "
            f"{self.info.created or 'an unknown time'}, which is no Job of this object. Jobs start and wait "
            "for the lock; when its holder is gone, release it with terraform force-unlock "
            f"{self.id or '<id>'} or clear spec.holderIdentity of the Lease {self.lease}"
        )


FREE: Final = Lock(LockKind.FREE)


class _WireInfo(msgspec.Struct, rename="pascal"):
    id: str = msgspec.field(default="", name="ID")
    who: str = ""
    operation: str = ""
    created: str = ""


def parse_lock_info(text: str | None) -> LockInfo:
    """Read the annotation of the lock Lease; what cannot be read is not known. Pure."""
    if not text:
        return LockInfo()
    try:
        info = msgspec.json.decode(text, type=_WireInfo)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return LockInfo()
    return LockInfo(_shown(info.id), _shown(info.who), _shown(info.operation), _shown(info.created))


def _shown(text: str) -> str:
    return "".join(char for char in text[:_MAX_SHOWN] if char.isprintable())


def holder_pod(lease: Object, owner: Owner) -> tuple[Lock, str]:
    """Return the lock as far as the Lease alone tells, and the pod to look at. Pure.

    The pod is "" when there is none to look at; otherwise the lock is provisionally alive. A lock whose ID no backend
    makes is foreign whoever seems to hold it, and the ID is not passed on: neither to a Job, which could not start
    with it, nor to a person who would copy it to a command line.
    """
    spec = lease.get("spec")
    identity = spec.get("holderIdentity") if isinstance(spec, dict) else None
    if not isinstance(identity, str) or not identity:
        return FREE, ""
    info = parse_lock_info(annotations_of(lease).get(keys.LOCK_INFO))
    lock_id = info.id or _shown(identity)
    if not _LOCK_ID.fullmatch(lock_id):
        lock_id, info = "", replace(info, id="")
    name = names.state_lock_lease(owner.suffix)
    if lock_id and info.host and names.job_of_pod(owner.kind, owner.name, info.host) is not None:
        return Lock(LockKind.ALIVE, lock_id, info, name), info.host
    return Lock(LockKind.FOREIGN, lock_id, info, name), ""


def read_lock(client: Verbs, owner: Owner) -> Lock:
    """Read the lock of an object's state. Run with no Job of the object active.

    Raises:
        ApiError: the API server did not answer; a lock is never taken for stale on that.
    """
    try:
        lease = client.get(LEASE, names.state_lock_lease(owner.suffix), owner.namespace)
    except NotFound:
        return FREE
    lock, pod_name = holder_pod(lease, owner)
    if not pod_name:
        return lock
    try:
        pod = client.get(POD, pod_name, owner.namespace)
    except NotFound:
        return Lock(LockKind.STALE, lock.id, lock.info, lock.lease)
    status = pod.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    kind = LockKind.STALE if phase in _FINISHED else LockKind.ALIVE
    return Lock(kind, lock.id, lock.info, lock.lease)


def lock_version(client: Verbs, namespace: str, suffix: str) -> str:
    """Return the version of the lock Lease, `none` without one, as an apply Job records it.

    Raises:
        ApiError: the API server did not answer.
    """
    try:
        lease = client.get(LEASE, names.state_lock_lease(suffix), namespace, metadata_only=True)
    except NotFound:
        return NO_LEASE
    return resource_version_of(lease)


def lock_unchanged(recorded: str, current: str) -> bool:
    """Say whether nothing took or released the lock between two versions. Pure.

    Both runtimes lock the state before they change anything, and both lock and unlock write the Lease; so
    an unchanged Lease proves that an apply changed nothing. Without a recorded version nothing is proven.
    """
    return bool(recorded) and recorded == current
