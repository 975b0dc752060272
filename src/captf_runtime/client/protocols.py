"""What code that only reads or only writes needs to know of a client."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol, TypeAlias

from captf_runtime.objects import Kind, Object

JsonPatch: TypeAlias = list[Object]
"""The operations of a JSON patch (RFC 6902)."""
PatchType = Literal["merge", "json", "apply", "strategic"]
PropagationPolicy = Literal["Background", "Foreground", "Orphan"]


class Reader(Protocol):
    """Reads that the uncached client and the cache's reader both offer."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return one object; raises `NotFound` when it does not exist."""
        ...

    def list(self, kind: Kind, namespace: str = "", *, label_selector: str = "") -> Collection[Object]:
        """Return the objects of a namespace ("" for all) that the selector matches."""
        ...


class Writer(Protocol):
    """Writes of a client, with or without a context."""

    def create(
        self,
        kind: Kind,
        obj: Object,
        namespace: str = "",
        *,
        dry_run: bool = False,
        field_manager: str | None = None,
        field_validation: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """Create an object."""
        ...

    def update(
        self,
        kind: Kind,
        obj: Object,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """Replace an object."""
        ...

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Object | JsonPatch,
        namespace: str = "",
        *,
        patch_type: PatchType = "merge",
        subresource: str = "",
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Object:
        """Change parts of an object."""
        ...

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        propagation_policy: PropagationPolicy,
        uid: str | None = None,
        resource_version: str | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Object:
        """Delete an object."""
        ...


class ReadWriter(Reader, Writer, Protocol):
    """Both."""


class CallContext(Protocol):
    """What a client bound to a reconcile asks of its context."""

    @property
    def stopping(self) -> bool:
        """True once the work should end."""
        ...

    def remaining(self) -> float | None:
        """Seconds until the deadline, None without one."""
        ...

    def check(self) -> None:
        """Raise when this work may not go on: stopped, out of time, or no longer the leader."""
        ...

    def sleep(self, seconds: float) -> object:
        """Pause; ends early when the work should end."""
        ...
