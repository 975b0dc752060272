"""Retain, adopt, discard: the decisions and the metadata changes they make.

Retain lets an object go and keeps what CAPTF knows about its infrastructure: every kept Secret loses its
reference to the object and is labelled with the object's UID. Adoption takes that label off again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from captf_controllers.api.labels import MOVE, RETAINED_FROM_UID
from captf_controllers.deletion.facts import DeletionPolicy, RetainedFinding
from captf_runtime.objects import Object, labels_of, metadata

#: The order in which adoption takes the labels off: what the next pass looks at first comes last, so that
#: an adoption cut short is found again.
AdoptionStep = Literal["backups", "applied", "durable", "chunks", "base"]
ADOPTION_ORDER: tuple[AdoptionStep, ...] = ("backups", "applied", "durable", "chunks", "base")


def effective_policy(
    *,
    own: DeletionPolicy | None,
    inherits: bool,
    cluster_exists: bool,
    cluster_default: DeletionPolicy | None = None,
    cluster_own: DeletionPolicy | None = None,
    remembered: DeletionPolicy | None = None,
) -> tuple[DeletionPolicy, bool]:
    """The deletion policy in force, and whether ``status.effectiveDeletionPolicy`` is to remember it.

    ``inherits`` is true for machines and pools; a TerraformCluster uses its own value or ``Destroy``. A
    machine or pool without an own value takes its TerraformCluster's ``spec.defaults.deletionPolicy``, then
    that cluster's own. Only when that cluster does not exist does the remembered value count, and then it
    is left as it is. A cluster that exists and sets nothing means ``Destroy``, whatever was remembered.
    """
    if own is not None:
        return own, True
    if not inherits:
        return "Destroy", True
    if cluster_exists:
        return cluster_default or cluster_own or "Destroy", True
    return remembered or "Destroy", False


def retained_finding(secrets: Iterable[Object], uid: str) -> RetainedFinding:
    """What the label says on the object's Secrets (metadata is enough). Foreign beats own."""
    foreign, own = "", False
    for secret in secrets:
        value = labels_of(secret).get(RETAINED_FROM_UID, "")
        if not value:
            continue
        if value == uid:
            own = True
        elif not foreign:
            foreign = value
    return RetainedFinding(foreign_uid=foreign, own=own)


def retain_patch(secret: Object, *, group: str, kind: str, name: str, uid: str, moves: bool) -> Object | None:
    """The merge patch that keeps one Secret, or None when there is nothing to change.

    Every owner reference that names the object (group, kind, name; whatever UID) goes, others stay. A
    Secret retained from another UID is left alone. ``moves`` adds the clusterctl move label, for Secrets
    that had moved by their owner reference. The patch is locked to the resourceVersion that was read.
    """
    labels = labels_of(secret)
    retained_from = labels.get(RETAINED_FROM_UID, "")
    if retained_from and retained_from != uid:
        return None
    references = metadata(secret).get("ownerReferences") or []
    kept = [ref for ref in references if not _names(ref, group, kind, name)]
    changed_labels: dict[str, str] = {}
    if retained_from != uid:
        changed_labels[RETAINED_FROM_UID] = uid
    if moves and MOVE not in labels:
        changed_labels[MOVE] = ""
    if len(kept) == len(references) and not changed_labels:
        return None
    patch: Object = {"resourceVersion": metadata(secret)["resourceVersion"]}
    if len(kept) != len(references):
        patch["ownerReferences"] = kept or None
    if changed_labels:
        patch["labels"] = changed_labels
    return {"metadata": patch}


def unlabel_patch(secret: Object) -> Object | None:
    """The merge patch that takes the retained label off one Secret, or None without the label."""
    if RETAINED_FROM_UID not in labels_of(secret):
        return None
    return {
        "metadata": {
            "resourceVersion": metadata(secret)["resourceVersion"],
            "labels": {RETAINED_FROM_UID: None},
        }
    }


def hold_message(retaining_uid: str, *, namespace: str) -> str:
    """What ``StateReadable=False/RetainedStateFound`` says on a live object."""
    return (
        f"The state found under this object's name was kept by an earlier object "
        f"({RETAINED_FROM_UID}={retaining_uid}) and is not touched. To manage that infrastructure with this "
        "object set spec.adoptRetainedState: true; to start afresh delete the Secrets: kubectl delete secrets "
        f"-n {namespace} -l {RETAINED_FROM_UID}={retaining_uid}"
    )


def retained_note(
    finalizer: str, uid: str, *, states: int, backups: int, inputs: int, terminating: bool
) -> str:
    """The note of ``InfrastructureRetained``: what was kept, and how a later object takes it over."""
    note = (
        f"Removed finalizer {finalizer} (deletionPolicy Retain) without a destroy: kept {states} state, "
        f"{backups} backup and {inputs} inputs Secrets, labelled {RETAINED_FROM_UID}={uid}; a new object of "
        "this name takes them over with spec.adoptRetainedState: true"
    )
    if terminating:
        note += "; the namespace terminates and takes them with it"
    return note


def order_for_adoption(groups: dict[AdoptionStep, Sequence[Object]]) -> list[Object]:
    """The Secrets in the order in which adoption takes their labels off."""
    return [secret for step in ADOPTION_ORDER for secret in groups.get(step, ())]


def _names(reference: Object, group: str, kind: str, name: str) -> bool:
    api_group = str(reference.get("apiVersion", "")).rpartition("/")[0]
    return api_group == group and reference.get("kind") == kind and reference.get("name") == name


__all__ = [
    "ADOPTION_ORDER",
    "AdoptionStep",
    "effective_policy",
    "hold_message",
    "order_for_adoption",
    "retain_patch",
    "retained_finding",
    "retained_note",
    "unlabel_patch",
]
