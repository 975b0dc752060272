"""Removing what CAPTF keeps for an object, in its one order.

Every step tolerates what is gone already and any other error ends the pass with the finalizer kept, so the
whole can be repeated after a crash at any point. Secrets go one at a time: the manager's role has no
``deletecollection``. State backups are left to garbage collection on purpose: they are the last way back.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from captf_controllers.api import names
from captf_controllers.api.kinds import GROUP
from captf_controllers.api.owner import Owner
from captf_controllers.deletion import retain
from captf_controllers.deletion.decision import CleanupMode
from captf_controllers.deletion.secrets import ObjectNames, find_kept, list_states
from captf_controllers.identity.mirror import MirrorResult, drop_mirror_owner
from captf_controllers.jobs.lease_memory import LeaseMemory
from captf_controllers.jobs.leases import LeaseOwner, LiveLease, delete_leases, live_run_lease
from captf_controllers.state.ownership import repair_owners
from captf_runtime.client.errors import NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import LEASE, SECRET, Kind, Object, name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The object that is cleaned up after.

    ``cluster_name`` is the name of its Cluster as far as it is known, which a TerraformCluster's write lease is
    found by. ``identity`` is the TerraformClusterIdentity that the object's Jobs run with (a machine's recorded one),
    empty when there is none or when it is a Secret of the namespace.
    """

    names: ObjectNames
    uid: str
    cluster_name: str = ""
    identity: str = ""

    @property
    def lease_owner(self) -> LeaseOwner:
        """The object as its leases know it."""
        return LeaseOwner(self.names.namespace, self.names.kind, self.names.name, self.cluster_name)


@dataclass(frozen=True, slots=True)
class Kept:
    """How many Secrets a Retain keeps, all of them and not only those patched in this pass."""

    states: int = 0
    backups: int = 0
    inputs: int = 0


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Every step is done; the finalizer may come off."""

    kept: Kept = Kept()
    mirror_removed: bool = False


@dataclass(frozen=True, slots=True)
class RunLeaseLive:
    """A Job may still write: nothing was touched. Come back in five seconds."""

    lease: LiveLease


@dataclass(frozen=True, slots=True)
class MirrorConflict:
    """The mirror changed under the last step: quietly come back in five seconds."""


CleanupResult = Cleaned | RunLeaseLive | MirrorConflict


def clean_up(
    client: Verbs, target: Target, mode: CleanupMode, now: datetime, memory: LeaseMemory | None = None
) -> CleanupResult:
    """Run every step of ``mode`` but the finalizer's removal, which belongs to the pass's last patch.

    Before the first step the run lease is read live; while a Job of the object may still run, no step does. For
    ``memory`` see ``jobs.leases.is_free``. Raises what a step raises, apart from objects that are gone and a
    conflict on the credential mirror.
    """
    lease = live_run_lease(client, target.lease_owner, now, memory)
    if lease is not None:
        return RunLeaseLive(lease)
    kept = Kept()
    if mode == "retained":
        kept = keep_secrets(client, target)
        _delete_state_lock(client, target.names)
    elif mode != "released":
        delete_state(client, target)
        _delete_inputs(client, target.names)
    _delete_secret(client, target.names, names.plan_key_secret(target.names.kind, target.names.name))
    delete_leases(client, target.lease_owner)
    return _leave_mirror(client, target, kept)


def delete_state(client: Verbs, target: Target) -> None:
    """Delete every state chunk one by one, then the backend's lock Lease.

    Neither Terraform nor OpenTofu ever deletes its own state: a destroy empties it. Chunks that lost their owner tell
    of a deletion with ``--cascade=orphan``; then the backups get theirs back, or they would stay behind and a new
    object of the name would look like one that lost its state.
    """
    states = list_states(client, target.names)
    owner = Owner(target.names.kind, target.names.namespace, target.names.name, target.uid)
    repair_owners(client, owner, states=states, others=(), skip_states=True)
    for secret in states:
        _delete(client, SECRET, target.names.namespace, name_of(secret))
    _delete_state_lock(client, target.names)


def keep_secrets(client: Verbs, target: Target) -> Kept:
    """Take the object's references off everything it keeps and label it with the object's UID.

    Each Secret is one metadata patch locked to the version that was read; nothing to change means no write. What an
    earlier object retained is left as it is and not counted.
    """
    kept = find_kept(client, target.names).without(lambda secret: _retained_by_another(secret, target.uid))
    for secret in (*kept.states, *kept.backups, *kept.inputs):
        patch = retain.retain_patch(
            secret,
            group=GROUP,
            kind=target.names.kind,
            name=target.names.name,
            uid=target.uid,
            moves=secret in kept.inputs,
        )
        if patch is not None:
            _patch(client, target.names.namespace, name_of(secret), patch)
    return Kept(len(kept.states), len(kept.backups), len(kept.inputs))


def _retained_by_another(secret: Object, uid: str) -> bool:
    return bool(retain.retained_finding([secret], uid).foreign_uid)


def adopt_secrets(client: Verbs, target: ObjectNames) -> int:
    """Take the retained label off every Secret of the object; how many Secrets the object has then.

    What the next pass looks at first comes last, so an adoption cut short is found and finished. The number
    counts every Secret, also those that an adoption cut short had already freed.
    """
    kept = find_kept(client, target)
    ordered = retain.order_for_adoption(dict(kept.by_adoption_step(names.state_secret(target.suffix))))
    for secret in ordered:
        patch = retain.unlabel_patch(secret)
        if patch is not None:
            client.patch(SECRET, name_of(secret), patch, target.namespace)
    return len(ordered)


def _delete_state_lock(client: Verbs, target: ObjectNames) -> None:
    _delete(client, LEASE, target.namespace, names.state_lock_lease(target.suffix))


def _delete_inputs(client: Verbs, target: ObjectNames) -> None:
    _delete_secret(client, target, names.durable_inputs_secret(target.kind, target.name))
    _delete_secret(client, target, names.applied_inputs_secret(target.kind, target.name))


def _delete_secret(client: Verbs, target: ObjectNames, name: str) -> None:
    _delete(client, SECRET, target.namespace, name)


def _delete(client: Verbs, kind: Kind, namespace: str, name: str) -> None:
    with suppress(NotFound):
        client.delete(kind, name, namespace, propagation_policy="Background")


def _leave_mirror(client: Verbs, target: Target, kept: Kept) -> CleanupResult:
    if not target.identity:
        return Cleaned(kept)
    result = drop_mirror_owner(client, target.names.namespace, target.uid, target.identity)
    if result is MirrorResult.CONFLICT:
        return MirrorConflict()
    return Cleaned(kept, mirror_removed=result is MirrorResult.DELETED)


def _patch(client: Verbs, namespace: str, name: str, patch: Object) -> None:
    with suppress(NotFound):
        client.patch(SECRET, name, patch, namespace)
