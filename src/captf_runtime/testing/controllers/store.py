"""What the in-process controllers ask of the embedded API server's store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from captf_runtime.objects import Kind, Object

__all__ = ["ChangeHandler", "ObjectStore"]

ChangeHandler = Callable[[Kind, Object | None, Object | None], None]
"""Told of each committed change: the kind, the object before (None: created) and after (None: gone)."""


class ObjectStore(Protocol):
    """The store of an API server, as garbage collection and namespace lifecycle see it.

    Implementations are thread-safe. Objects that `get` and `items` return may be shared with the store, so
    callers never change them.
    """

    def kinds(self) -> Sequence[Kind]:
        """Every kind that is served, each in one version; those of CustomResourceDefinitions too."""
        ...

    def find(self, api_version: str, kind: str) -> Kind | None:
        """The kind that an owner reference names by apiVersion (any served one) and kind."""
        ...

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, None when there is none."""
        ...

    def items(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """All objects of the kind, or those of one namespace."""
        ...

    def delete(self, kind: Kind, namespace: str, name: str, *, uid: str, propagation_policy: str) -> None:
        """Delete as the API does (finalizers, grace of pods). Nothing happens when the uid is another."""
        ...

    def update(
        self, kind: Kind, namespace: str, name: str, change: Callable[[Object], bool]
    ) -> Object | None:
        """Let `change` edit a private copy and commit it when that returns True.

        The commit takes a new resourceVersion and is seen by watches. It is not subject to admission. An
        object that is being deleted disappears with its last finalizer (a Namespace: of `metadata` and
        `spec`). Returns the object as committed; None when it is absent or gone.
        """
        ...

    def subscribe(self, on_change: ChangeHandler) -> Callable[[], None]:
        """Call `on_change` after each commit, in order; it must not block. Returns what unsubscribes."""
        ...
