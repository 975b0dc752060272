"""A store with the deletion rules of an API server, for tests of the in-process controllers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from captf_runtime.objects import NAMESPACE, WELL_KNOWN_KINDS, Kind, Object, metadata, uid_of
from captf_runtime.testing.controllers.store import ChangeHandler

NOW = "2026-01-01T00:00:00Z"


class MemoryStore:
    def __init__(self, *extra_kinds: Kind) -> None:
        self._kinds = [*WELL_KNOWN_KINDS, *extra_kinds]
        self._objects: dict[tuple[Kind, str, str], Object] = {}
        self._handlers: list[ChangeHandler] = []
        self._serial = 0

    def add(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        owners: Sequence[Object] = (),
        finalizers: Sequence[str] = (),
        block: bool = False,
        **fields: object,
    ) -> Object:
        self._serial += 1
        meta: Object = {"name": name, "uid": f"uid-{self._serial}", "finalizers": list(finalizers)}
        if kind.namespaced:
            meta["namespace"] = namespace
        if owners:
            meta["ownerReferences"] = [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": owner["metadata"]["name"],
                    "uid": uid_of(owner),
                    "blockOwnerDeletion": block,
                }
                for owner in owners
            ]
        obj: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **fields}
        self._commit((kind, meta.get("namespace", ""), name), obj)
        return obj

    def remove(self, kind: Kind, name: str, namespace: str = "", *, policy: str = "Background") -> None:
        obj = self._objects[(kind, namespace, name)]
        self.delete(kind, namespace, name, uid=uid_of(obj), propagation_policy=policy)

    def names(self, kind: Kind) -> list[str]:
        return sorted(name for found, _, name in self._objects if found == kind)

    def _commit(self, key: tuple[Kind, str, str], obj: Object | None) -> None:
        before = self._objects.pop(key, None)
        if obj is not None:
            meta = obj["metadata"]
            finalizers = meta.get("finalizers") or (obj.get("spec") or {}).get("finalizers")
            if meta.get("deletionTimestamp") and not finalizers:
                obj = None
            else:
                self._objects[key] = obj
        for handler in list(self._handlers):
            handler(key[0], before, obj)

    # ObjectStore

    def kinds(self) -> Sequence[Kind]:
        return self._kinds

    def find(self, api_version: str, kind: str) -> Kind | None:
        return next((k for k in self._kinds if k.api_version == api_version and k.kind == kind), None)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._objects.get((kind, namespace, name))

    def items(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        return [
            obj
            for (found, ns, _), obj in self._objects.items()
            if found == kind and (namespace is None or ns == namespace)
        ]

    def delete(self, kind: Kind, namespace: str, name: str, *, uid: str, propagation_policy: str) -> None:
        key = (kind, namespace, name)
        found = self._objects.get(key)
        if found is None or uid_of(found) != uid:
            return
        obj = copy.deepcopy(found)
        finalizer = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(propagation_policy)
        if finalizer:
            metadata(obj)["finalizers"].append(finalizer)
        metadata(obj).setdefault("deletionTimestamp", NOW)
        if kind == NAMESPACE:
            obj.setdefault("status", {})["phase"] = "Terminating"
        self._commit(key, obj)

    def update(
        self, kind: Kind, namespace: str, name: str, change: Callable[[Object], bool]
    ) -> Object | None:
        key = (kind, namespace, name)
        found = self._objects.get(key)
        if found is None:
            return None
        obj = copy.deepcopy(found)
        if change(obj):
            self._commit(key, obj)
        return self._objects.get(key)

    def subscribe(self, on_change: ChangeHandler) -> Callable[[], None]:
        self._handlers.append(on_change)
        return lambda: self._handlers.remove(on_change)
