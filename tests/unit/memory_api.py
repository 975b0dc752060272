"""A Kubernetes API in memory: the client's verbs over a dictionary, for tests that open no socket.

It keeps what the code under test depends on: uids, versions that grow with every write, AlreadyExists,
Conflict on a stale version or another uid, label selectors, merge patches. `before` is called ahead of every
request and may raise; `writes` is what changed the store, in order.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator

from captf_runtime.client import AlreadyExists, Conflict, Invalid, NotFound, ObjectList
from captf_runtime.clock import Clock
from captf_runtime.objects import (
    Kind,
    Object,
    format_time,
    labels_of,
    name_of,
    namespace_of,
    parse_label_selector,
    resource_version_of,
    uid_of,
)


class MemoryApi:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.objects: dict[tuple[Kind, str, str], Object] = {}
        self.before: Callable[[str, Kind, str], None] = lambda verb, kind, name: None
        self.requests: list[tuple[str, str, str]] = []
        self._version = itertools.count(1)
        self._uid = itertools.count(1)

    # What tests set up and look at -----------------------------------------------------------------

    def put(self, kind: Kind, obj: Object) -> Object:
        """Store an object as it is, without a request."""
        stored = copy.deepcopy(obj)
        meta = stored.setdefault("metadata", {})
        stored["kind"], stored["apiVersion"] = kind.kind, kind.api_version
        meta.setdefault("uid", f"uid-{next(self._uid)}")
        meta.setdefault("creationTimestamp", format_time(self.clock.now()))
        meta["resourceVersion"] = str(next(self._version))
        self.objects[self._key(kind, meta.get("namespace", ""), meta["name"])] = stored
        return copy.deepcopy(stored)

    def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return copy.deepcopy(self.objects.get(self._key(kind, namespace, name)))

    def all(self, kind: Kind) -> list[Object]:
        return [copy.deepcopy(obj) for key, obj in sorted(self.objects.items(), key=str) if key[0] == kind]

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        return [request for request in self.requests if request[0] not in ("get", "list")]

    # The verbs ---------------------------------------------------------------------------------------

    def get(self, kind: Kind, name: str, namespace: str = "", **_: object) -> Object:
        self._request("get", kind, name)
        found = self.find(kind, name, namespace)
        if found is None:
            raise NotFound(f'{kind.resource} "{name}" not found', code=404)
        return found

    def list(self, kind: Kind, namespace: str = "", *, label_selector: str = "", **_: object) -> ObjectList:
        self._request("list", kind, "")
        selector = parse_label_selector(label_selector)
        items = [
            obj
            for obj in self.all(kind)
            if (not namespace or namespace_of(obj) == namespace) and selector.matches(labels_of(obj))
        ]
        return ObjectList(items, str(self._version))

    def pages(self, kind: Kind, namespace: str = "", **options: object) -> Iterator[ObjectList]:
        yield self.list(kind, namespace)

    def create(self, kind: Kind, obj: Object, namespace: str = "", **_: object) -> Object:
        self._request("create", kind, name_of(obj))
        if self._key(kind, namespace, name_of(obj)) in self.objects:
            raise AlreadyExists(f'{kind.resource} "{name_of(obj)}" already exists', code=409)
        stored = copy.deepcopy(obj)
        if kind.namespaced:
            stored["metadata"]["namespace"] = namespace
        return self.put(kind, stored)

    def update(self, kind: Kind, obj: Object, **_: object) -> Object:
        self._request("update", kind, name_of(obj))
        stored = self._existing(kind, name_of(obj), namespace_of(obj))
        self._check("PUT", stored, uid_of(obj) or None, resource_version_of(obj) or None)
        new = copy.deepcopy(obj)
        new["metadata"]["uid"] = uid_of(stored)
        new["metadata"]["creationTimestamp"] = stored["metadata"]["creationTimestamp"]
        return self.put(kind, new)

    def patch(self, kind: Kind, name: str, patch: Object, namespace: str = "", **_: object) -> Object:
        self._request("patch", kind, name)
        stored = self._existing(kind, name, namespace)
        meta = patch.get("metadata", {})
        if meta.get("uid") not in (None, uid_of(stored)):
            raise Invalid("metadata.uid: field is immutable", code=422)
        self._check("PATCH", stored, None, meta.get("resourceVersion"))
        return self.put(kind, _merge(stored, patch))

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        propagation_policy: str,
        uid: str | None = None,
        resource_version: str | None = None,
        **_: object,
    ) -> Object:
        self._request("delete", kind, name)
        stored = self._existing(kind, name, namespace)
        self._check("DELETE", stored, uid, resource_version)
        del self.objects[self._key(kind, namespace, name)]
        return stored

    def _request(self, verb: str, kind: Kind, name: str) -> None:
        self.before(verb, kind, name)
        self.requests.append((verb, kind.plural, name))

    def _existing(self, kind: Kind, name: str, namespace: str) -> Object:
        found = self.objects.get(self._key(kind, namespace, name))
        if found is None:
            raise NotFound(f'{kind.resource} "{name}" not found', code=404)
        return found

    @staticmethod
    def _check(method: str, stored: Object, uid: str | None, version: str | None) -> None:
        if uid is not None and uid != uid_of(stored):
            raise stale(method, "Precondition failed: UID in precondition")
        if version is not None and version != resource_version_of(stored):
            raise stale(method)

    @staticmethod
    def _key(kind: Kind, namespace: str, name: str) -> tuple[Kind, str, str]:
        return (kind, namespace if kind.namespaced else "", name)


def stale(method: str = "PUT", message: str = "the object has been modified") -> Conflict:
    """The conflict of a write that was made from an old read."""
    return Conflict(message, code=409, reason="Conflict", method=method)


def _merge(target: Object, patch: Object) -> Object:
    merged = copy.deepcopy(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            below = merged.get(key)
            merged[key] = _merge(below if isinstance(below, dict) else {}, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged
