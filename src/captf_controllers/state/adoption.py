"""Adopting a state after the Job that wrote it succeeded: owner references and the inputs hash."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.api.owner import Owner
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import SECRET, Object, annotations_of, metadata, name_of, resource_version_of

from .ownership import owned_references
from .reading import MAX_SECRETS, StateProblem, StateUnreadable, too_many


class StateVanished(Exception):
    """There is no state to adopt although it was read in this pass; the next pass sees what is there."""


@dataclass(frozen=True, slots=True)
class AdoptionSource:
    """A succeeded Job that wrote the state.

    Args:
        job: its name.
        order: when it finished and when it was created, by which such Jobs compare in the order they ran in.
        inputs_hash: its `captf.io/inputs-hash`, None when it bears no such annotation.
        restore: whether it restored a backup rather than applied.
    """

    job: str
    order: tuple[datetime, datetime]
    inputs_hash: str | None
    restore: bool


def adoption_source(apply: AdoptionSource | None, restore: AdoptionSource | None) -> AdoptionSource | None:
    """Return the newer source; at equal times the apply.

    Args:
        apply: the newest finished apply, None when there is none or it did not succeed.
        restore: the newest finished restore, likewise.
    """
    if apply is None or restore is None:
        return apply or restore
    return restore if restore.order > apply.order else apply


def adoption_due(source: AdoptionSource | None, state_hash: str) -> bool:
    """Say whether the state's hash has to be set to the source's.

    A restore of a backup without a hash clears a newer hash that is still on the base Secret: otherwise
    the restored, older content would pass for what the newer apply made.
    """
    if source is None or source.inputs_hash is None or source.inputs_hash == state_hash:
        return False
    return bool(source.inputs_hash) or source.restore


def adopt(client: Verbs, owner: Owner, inputs_hash: str) -> tuple[str, ...]:
    """Own every chunk of the state and record the inputs hash on the base Secret.

    The base Secret comes last: its hash says that all is done, so an adoption cut short is repeated.
    Repeating one that is complete writes nothing.

    Args:
        client: a live client; no Job of the object may run.
        owner: the object.
        inputs_hash: the hash, "" to remove the present one.

    Returns:
        The names of the Secrets that were changed.

    Raises:
        StateVanished: no chunk exists.
        StateUnreadable: there are more Secrets than a state may have.
        ApiError: reading or writing failed, a conflict included; the next pass adopts again.
    """
    base = names.state_secret(owner.suffix)
    listed = client.list(
        SECRET, owner.namespace, label_selector=names.state_selector(owner.suffix), metadata_only=True
    ).items
    if not listed:
        raise StateVanished(f"there is no state Secret {base} to adopt")
    if len(listed) > MAX_SECRETS:
        raise too_many(len(listed))
    patched: list[str] = []
    for secret in sorted(listed, key=lambda item: name_of(item) == base):
        patch = _patch(secret, owner, inputs_hash if name_of(secret) == base else None)
        if patch is not None:
            client.patch(SECRET, name_of(secret), patch, owner.namespace)
            patched.append(name_of(secret))
    if all(name_of(secret) != base for secret in listed):
        raise StateUnreadable(StateProblem.INCONSISTENT, f"chunk 0 of the state is missing: Secret {base}")
    return tuple(patched)


def _patch(secret: Object, owner: Owner, inputs_hash: str | None) -> Object | None:
    changes: Object = {}
    references = owned_references(secret, owner)
    if references != (metadata(secret).get("ownerReferences") or []):
        changes["ownerReferences"] = references
    if inputs_hash is not None:
        present = annotations_of(secret).get(keys.INPUTS_HASH, "")
        if present != inputs_hash or (keys.INPUTS_HASH in annotations_of(secret)) != bool(inputs_hash):
            changes["annotations"] = {keys.INPUTS_HASH: inputs_hash or None}
    if not changes:
        return None
    return {"metadata": {"resourceVersion": resource_version_of(secret), **changes}}
