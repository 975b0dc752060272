"""Merge patches: computed from two states of an object, and sent in as few requests as possible."""

from __future__ import annotations

from typing import Any

from captf_runtime.client.errors import NotFound
from captf_runtime.client.protocols import Writer
from captf_runtime.objects import (
    Kind,
    Object,
    finalizers_of,
    is_deleting,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
)


def merge_from(before: Object, after: Object, *, optimistic_lock: bool = False) -> Object:
    """Return the smallest JSON merge patch (RFC 7386) that turns `before` into `after`.

    A key that was removed and a value that became None both turn into `null`, which removes the key: a
    merge patch cannot express a stored null. Lists are replaced as wholes.

    Args:
        optimistic_lock: put `metadata.resourceVersion` of `before` into the patch, so that the server
            refuses it when the object has changed since.

    Returns:
        The patch, `{}` when nothing differs, also with the lock.
    """
    patch = _difference(before, after)
    patch_metadata = patch.get("metadata")
    if isinstance(patch_metadata, dict):
        # The version is the server's to say; a patch made of it would be a lock by accident.
        patch_metadata.pop("resourceVersion", None)
        if not patch_metadata:
            del patch["metadata"]
    if patch and optimistic_lock:
        _lock(patch, resource_version_of(before))
    return patch


def _difference(before: Object, after: Object) -> Object:
    patch: Object = {}
    for key in before.keys() - after.keys():
        if before[key] is not None:
            patch[key] = None
    for key, new in after.items():
        old = before.get(key)
        if _same(old, new):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            inner = _difference(old, new)
            if inner:
                patch[key] = inner
        else:
            patch[key] = _without_nulls(new) if isinstance(new, dict) else new
    return patch


def _same(old: Any, new: Any) -> bool:
    """Compare like JSON does: True is not 1, and 1 is 1.0 only where the server reads a number anyway."""
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    return bool(old == new)


def _without_nulls(value: Object) -> Object:
    """Drop nulls from a dictionary that is new: a merge patch would drop them too."""
    return {
        key: _without_nulls(inner) if isinstance(inner, dict) else inner
        for key, inner in value.items()
        if inner is not None
    }


def _lock(patch: Object, resource_version: str) -> None:
    if not resource_version:
        raise ValueError("an optimistic lock needs metadata.resourceVersion: read the object from the server")
    patch.setdefault("metadata", {})["resourceVersion"] = resource_version


def patch_object(
    client: Writer,
    kind: Kind,
    before: Object,
    after: Object,
    *,
    optimistic_lock: bool | None = None,
    field_manager: str | None = None,
) -> Object:
    """Write what a pass changed: at most one request for everything outside `status`, then one for `status`.

    Flow: keep a copy of the object as read (`before`), change another (`after`), call this once at the end.

    Args:
        optimistic_lock: True locks both requests, the second on the version that the first returned. False
            and None never lock, except that a change of the finalizers is always locked: the list is
            replaced as a whole, and a finalizer that another set meanwhile must not be lost.

    Returns:
        What the server stored last; `before` when nothing differs and so nothing was sent.

    Raises:
        ApiError: a request failed. `NotFound` of the second is success when the first removed the last
            finalizer of a deleting object: that ended it.
        ValueError: a lock is needed and `before` has no resourceVersion.
    """
    name, namespace = name_of(before), namespace_of(before)
    main_before, main_after = _outside_status(before), _outside_status(after)
    finalizers_changed = finalizers_of(before) != finalizers_of(after)
    main = merge_from(main_before, main_after, optimistic_lock=bool(optimistic_lock) or finalizers_changed)
    status = merge_from(
        {"status": before.get("status") or {}}, {"status": after.get("status") or {}}, optimistic_lock=False
    )
    stored = before
    if main:
        stored = client.patch(kind, name, main, namespace, field_manager=field_manager)
    if not status:
        return stored
    if optimistic_lock:
        _lock(status, resource_version_of(stored))
    try:
        return client.patch(kind, name, status, namespace, subresource="status", field_manager=field_manager)
    except NotFound:
        ended = is_deleting(before) and bool(finalizers_of(before)) and not finalizers_of(after)
        if main and ended:
            return stored
        raise


def _outside_status(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key != "status"}


def add_finalizer(client: Writer, kind: Kind, obj: Object, finalizer: str) -> Object:
    """Add a finalizer, unless the object bears it; returns the object as stored.

    Raises:
        Conflict: the object has changed since it was read.
        ApiError: anything else.
    """
    present = finalizers_of(obj)
    if finalizer in present:
        return obj
    return _set_finalizers(client, kind, obj, [*present, finalizer])


def remove_finalizer(client: Writer, kind: Kind, obj: Object, finalizer: str) -> Object:
    """Remove a finalizer, if the object bears it; returns the object as stored (or as last seen).

    Raises:
        Conflict: the object has changed since it was read.
        ApiError: anything else.
    """
    present = finalizers_of(obj)
    if finalizer not in present:
        return obj
    return _set_finalizers(client, kind, obj, [item for item in present if item != finalizer])


def _set_finalizers(client: Writer, kind: Kind, obj: Object, finalizers: list[str]) -> Object:
    patch: Object = {"metadata": {"finalizers": finalizers or None}}
    _lock(patch, str(metadata(obj).get("resourceVersion") or ""))
    return client.patch(kind, name_of(obj), patch, namespace_of(obj))
