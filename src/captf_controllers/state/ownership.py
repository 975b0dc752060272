"""Owner references of the Secrets that CAPTF keeps for an object.

The backend writes state without an owner, and a move or an object made again under its old name leaves
references with an earlier uid. A Secret without the right reference is not collected with its object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from captf_controllers.api import labels, names
from captf_controllers.api.owner import Owner
from captf_runtime.client.errors import ApiError, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.log import get_logger
from captf_runtime.objects import (
    SECRET,
    Object,
    OwnerReference,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
)

_log = get_logger(__name__)


def misowned(secret: Mapping[str, Any], owner: Owner) -> bool:
    """Say whether a Secret lacks a reference to the object, or names an earlier uid of it."""
    own = [
        reference
        for reference in (OwnerReference.from_dict(item) for item in _references(secret))
        if owner.is_named_by(reference)
    ]
    return len(own) != 1 or own[0].uid != owner.uid


def unowned(secret: Mapping[str, Any], owner: Owner) -> bool:
    """Say whether no reference of a Secret names the object, under whatever uid."""
    return not any(owner.is_named_by(OwnerReference.from_dict(item)) for item in _references(secret))


def owned_references(secret: Mapping[str, Any], owner: Owner) -> list[Object]:
    """Return the Secret's owner references with exactly one to the object; those to others stay."""
    placed = False
    references: list[Object] = []
    for item in _references(secret):
        if not owner.is_named_by(OwnerReference.from_dict(item)):
            references.append(item)
        elif not placed:
            references.append(owner.reference().to_dict())
            placed = True
    if not placed:
        references.append(owner.reference().to_dict())
    return references


def _references(secret: Mapping[str, Any]) -> list[Object]:
    found = metadata(secret).get("ownerReferences")
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class Repaired:
    """How many Secrets of each sort got their owner reference, and which did not."""

    states: int = 0
    backups: int = 0
    inputs: int = 0
    plan_keys: int = 0
    failures: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Secrets that were changed."""
        return self.states + self.backups + self.inputs + self.plan_keys

    def describe(self) -> str:
        """Return the counts for an event: `2 state Secrets, 1 inputs Secret`."""
        counted = (
            (self.states, "state"),
            (self.backups, "backup"),
            (self.inputs, "inputs"),
            (self.plan_keys, "plan key"),
        )
        return ", ".join(
            f"{count} {what} Secret{'s' if count > 1 else ''}" for count, what in counted if count
        )


def repair_owners(
    client: Verbs,
    owner: Owner,
    *,
    states: Sequence[Object],
    others: Sequence[Object],
    backups: Sequence[Object] = (),
    skip_states: bool = False,
) -> Repaired:
    """Give every Secret of the object the right owner reference.

    The caller makes sure that no Job runs, that the object is not held on retained state and that no
    retention is in progress. The backups and the plan key cost requests and are looked at only when another
    Secret of the object turns out misowned, or without any owner: what makes one misowned makes all so. Where the
    caller has listed the backups anyway, because nothing else may be left, those that no object owns are repaired
    too; one that names an earlier uid is not: it is about to be collected. A failure is logged and left for the
    next pass.

    Args:
        client: a live client.
        owner: the object.
        states: metadata of the state chunks as read in this pass.
        others: metadata of the inputs records as read in this pass; the plan key may be among them.
        backups: metadata of the state backups, as far as this pass has listed them.
        skip_states: whether the chunks were patched in this pass already.
    """
    plan_key = names.plan_key_secret(owner.kind, owner.name)
    wrong_states = [secret for secret in states if misowned(secret, owner)]
    wrong_others = [secret for secret in others if misowned(secret, owner)]
    failures: list[str] = []
    wrong_backups = [secret for secret in backups if unowned(secret, owner)]
    if wrong_states or wrong_others:
        try:
            more = _costly(client, owner, plan_key, known={name_of(secret) for secret in others})
        except ApiError as error:
            _log.warning("cannot read the state backups and the plan key to repair their owners", err=error)
            failures.append("the state backups and the plan key")
        else:
            misplaced = [secret for secret in more if misowned(secret, owner)]
            wrong_backups = [secret for secret in misplaced if name_of(secret) != plan_key]
            wrong_others += [secret for secret in misplaced if name_of(secret) == plan_key]

    def repair(secrets: Sequence[Object]) -> int:
        return sum(_repair(client, secret, owner, failures) for secret in secrets)

    return Repaired(
        states=0 if skip_states else repair(wrong_states),
        backups=repair(wrong_backups),
        inputs=repair([secret for secret in wrong_others if name_of(secret) != plan_key]),
        plan_keys=repair([secret for secret in wrong_others if name_of(secret) == plan_key]),
        failures=tuple(failures),
    )


def _costly(client: Verbs, owner: Owner, plan_key: str, known: set[str]) -> list[Object]:
    listed = client.list(
        SECRET, owner.namespace, label_selector=names.backup_selector(owner.suffix), metadata_only=True
    ).items
    if plan_key in known:
        return listed
    try:
        return [*listed, client.get(SECRET, plan_key, owner.namespace, metadata_only=True)]
    except NotFound:
        return listed


def _repair(client: Verbs, secret: Object, owner: Owner, failures: list[str]) -> int:
    if labels.RETAINED_FROM_UID in labels_of(secret):
        # Retained Secrets belong to nobody until they are adopted, whatever the caller checked before.
        return 0
    patch: Object = {
        "metadata": {
            "resourceVersion": resource_version_of(secret),
            "ownerReferences": owned_references(secret, owner),
        }
    }
    try:
        client.patch(SECRET, name_of(secret), patch, namespace_of(secret) or owner.namespace)
    except ApiError as error:
        _log.warning("cannot repair the owner reference", secret=name_of(secret), err=error)
        failures.append(f"Secret {name_of(secret)}")
        return 0
    return 1
