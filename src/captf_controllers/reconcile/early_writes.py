"""The writes to the object that cannot wait for the pass's last patch, and no others.

Each leaves the in-memory object's base alone, so that the last patch still compares with what the pass read.
"""

from __future__ import annotations

from captf_controllers.api.annotations import BLOCK_MOVE
from captf_controllers.reconcile.scope import Scope
from captf_runtime.client.errors import Conflict
from captf_runtime.objects import Object, annotations_of, resource_version_of


def consume_annotation(scope: Scope, key: str) -> bool:
    """Remove a one-shot annotation from the object on the server; False on a conflict.

    Locked to the version that was read (or left by the previous removal of this pass): without the lock a
    value that the user wrote meanwhile would be deleted. In memory the annotation stays, so the last patch
    says nothing about it, but the rest of the pass reads it as absent.
    """
    patch: Object = {
        "metadata": {"resourceVersion": scope.locked_version, "annotations": {key: None}},
    }
    try:
        stored = scope.client.patch(scope.kind, scope.name, patch, scope.namespace)
    except Conflict:
        return False
    scope.locked_version = resource_version_of(stored)
    scope.consumed_annotations.add(key)
    return True


def set_block_move(scope: Scope) -> None:
    """Persist block-move before a Job is created: a crash right after must not leave the Job movable."""
    if BLOCK_MOVE not in annotations_of(scope.before):
        _patch_block_move(scope, "")
        scope.before["metadata"].setdefault("annotations", {})[BLOCK_MOVE] = ""
    scope.annotate(BLOCK_MOVE, "")


def clear_block_move(scope: Scope) -> None:
    """Take block-move back at once, because the object was paused while the start was prepared."""
    _patch_block_move(scope, None)
    annotations = scope.before["metadata"].get("annotations") or {}
    annotations.pop(BLOCK_MOVE, None)
    scope.annotate(BLOCK_MOVE, None)


def _patch_block_move(scope: Scope, value: str | None) -> None:
    patch: Object = {"metadata": {"annotations": {BLOCK_MOVE: value}}}
    stored = scope.client.patch(scope.kind, scope.name, patch, scope.namespace)
    scope.moved_version(stored)
