"""The store as the in-process controllers use it: by kind, with the API's rules, without HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from captf_runtime.objects import Kind, Object
from captf_runtime.testing.apiserver.backend import INTERNAL, Backend, full
from captf_runtime.testing.apiserver.requests import DeleteOptions
from captf_runtime.testing.apiserver.resources import Resource
from captf_runtime.testing.apiserver.status import ApiStatus
from captf_runtime.testing.apiserver.storage import Change
from captf_runtime.testing.controllers.store import ChangeHandler


class _Unchanged(Exception):
    """The caller left the object as it was."""


class BackendObjectStore:
    """`captf_runtime.testing.controllers.store.ObjectStore` on a `Backend`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._handlers: list[ChangeHandler] = []
        self._kinds: dict[str, tuple[Resource, Kind]] = {}
        self._generation = -1
        backend.store.observe(self._observe)

    def kinds(self) -> Sequence[Kind]:
        """Every stored kind, each in one version."""
        return [kind for _, kind in self._known().values()]

    def find(self, api_version: str, kind: str) -> Kind | None:
        """The kind of an owner reference; another version than the one of `kinds` leads to the same Kind."""
        group, _, version = api_version.rpartition("/")
        resource = self._backend.registry.of_kind(group, version, kind)
        if resource is None or resource.virtual:
            return None
        known = self._known().get(resource.storage)
        return known[1] if known is not None else None

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, None when there is none."""
        resource = self._resource(kind)
        if resource is None:
            return None
        record = self._backend.store.get(resource.storage, namespace if kind.namespaced else "", name)
        return None if record is None else full(resource, record.object)

    def items(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """All objects of the kind, or those of one namespace."""
        resource = self._resource(kind)
        if resource is None:
            return []
        return [full(resource, r.object) for r in self._backend.store.list(resource.storage, namespace or "")]

    def delete(self, kind: Kind, namespace: str, name: str, *, uid: str, propagation_policy: str) -> None:
        """Delete as the API does; nothing happens when the object is gone or has another uid."""
        resource = self._resource(kind)
        if resource is None:
            return
        match propagation_policy:
            case "Foreground" | "Background" | "Orphan" as policy:
                options = DeleteOptions(propagation=policy, uid=uid)
            case _:
                options = DeleteOptions(uid=uid)
        try:
            self._backend.delete(resource, namespace, name, options, INTERNAL)
        except ApiStatus as failure:
            if failure.code not in (404, 409):
                raise

    def update(
        self, kind: Kind, namespace: str, name: str, change: Callable[[Object], bool]
    ) -> Object | None:
        """Commit `change` of a private copy; None when the object is absent or gone by it."""
        resource = self._resource(kind)
        if resource is None:
            return None

        def apply(current: Object) -> Object:
            if not change(current):
                raise _Unchanged
            return current

        try:
            outcome = self._backend.update_unchecked(resource, namespace, name, apply)
        except _Unchanged:
            return self.get(kind, namespace, name)
        except ApiStatus as failure:
            if failure.code != 404:
                raise
            return None
        return None if outcome.deleted else full(resource, outcome.record.object)

    def subscribe(self, on_change: ChangeHandler) -> Callable[[], None]:
        """Call `on_change` after each commit, in order."""
        with self._lock:
            self._handlers = [*self._handlers, on_change]

        def unsubscribe() -> None:
            with self._lock:
                self._handlers = [handler for handler in self._handlers if handler is not on_change]

        return unsubscribe

    def _known(self) -> dict[str, tuple[Resource, Kind]]:
        registry = self._backend.registry
        if self._generation != registry.generation:
            generation = registry.generation
            self._kinds = {
                r.storage: (r, Kind(r.group, r.version, r.kind, r.plural, r.namespaced))
                for r in registry.stored()
            }
            self._generation = generation
        return self._kinds

    def _resource(self, kind: Kind) -> Resource | None:
        return self._backend.registry.find(kind.group, kind.version, kind.plural)

    def _observe(self, table: str, change: Change) -> None:
        handlers = self._handlers
        if not handlers:
            return
        known = self._known().get(table)
        if known is None:
            return
        resource, kind = known
        before = None if change.previous is None else full(resource, change.previous.object)
        after = None if change.type == "DELETED" else full(resource, change.record.object)
        for handler in handlers:
            handler(kind, before, after)
