"""Deleting an object exactly as it was read."""

from __future__ import annotations

from captf_runtime.client.protocols import Writer
from captf_runtime.objects import Kind, Object, name_of, namespace_of, resource_version_of, uid_of


def delete_as_read(client: Writer, kind: Kind, obj: Object, namespace: str = "") -> None:
    """Delete an object, with what it owns in the background, if it is still the very version that was read.

    Args:
        client: a live client.
        kind: its kind.
        obj: the object as it was read, or its metadata alone.
        namespace: where it is, by default what its metadata say.

    Raises:
        NotFound, Conflict: it is gone, or was changed or made anew since.
        ApiError: the deletion failed otherwise.
    """
    client.delete(
        kind,
        name_of(obj),
        namespace or namespace_of(obj),
        propagation_policy="Background",
        uid=uid_of(obj),
        resource_version=resource_version_of(obj),
    )
