"""Stand-ins that deliver at once and keep everything in memory."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from captf_runtime.cache import Event, Form, StoredObject, store_object
from captf_runtime.client.errors import AlreadyExists, Conflict, NotFound
from captf_runtime.objects import Kind, Object, ObjectKey, key_of

DEADLINE = 30.0


def eventually(condition: Callable[[], bool], what: str | Callable[[], str] = "the condition") -> None:
    """Wait (for real, and no longer than needed) until a condition holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            missing = what() if callable(what) else what
            raise AssertionError(f"{missing} did not come true within {DEADLINE:g} s")
        threading.Event().wait(0.002)


def stored(kind: Kind, obj: Object) -> StoredObject:
    return store_object({"apiVersion": kind.api_version, "kind": kind.kind, **obj}, Form(kind))


class FakeRegistration:
    def __init__(self, handler: Callable[[Event], None], synced: bool) -> None:
        self.handler = handler
        self.asked = False
        self.removed = False
        self._synced = synced

    @property
    def has_synced(self) -> bool:
        self.asked = True
        return self._synced

    @has_synced.setter
    def has_synced(self, synced: bool) -> None:
        self._synced = synced

    def remove(self) -> None:
        self.removed = True


class FakeInformer:
    """An informer whose events are delivered by the test, in the test's thread."""

    def __init__(self, kind: Kind, synced: bool) -> None:
        self.scope = SimpleNamespace(kind=kind)
        self.last_error: Any = None
        self.synced = synced
        self.registrations: list[FakeRegistration] = []

    def add_handler(self, handler: Callable[[Event], None], *, name: str) -> FakeRegistration:
        registration = FakeRegistration(handler, self.synced)
        self.registrations.append(registration)
        return registration

    def deliver(self, event: Event) -> None:
        for registration in self.registrations:
            registration.handler(event)


class FakeCache:
    def __init__(self, *, synced: bool = True) -> None:
        self.synced = synced
        self.by_kind: dict[Kind, FakeInformer] = {}
        self.options: dict[Kind, dict[str, Any]] = {}

    @property
    def informers(self) -> list[FakeInformer]:
        return list(self.by_kind.values())

    def informer(self, kind: Kind, **options: Any) -> FakeInformer:
        self.options[kind] = options
        return self.by_kind.setdefault(kind, FakeInformer(kind, self.synced))


class MemoryClient:
    """The verbs that election and events need, on a dictionary, with versions checked as the server does.

    `before` is called with verb and kind before each request and may raise; `after` likewise once it is done.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind, ObjectKey], Object] = {}
        self._requests: list[tuple[str, Kind, str]] = []
        self.before: Callable[[str, Kind], None] = lambda verb, kind: None
        self.after: Callable[[str, Kind], None] = lambda verb, kind: None
        self._lock = threading.Lock()
        self._version = 0

    @property
    def requests(self) -> list[tuple[str, Kind, str]]:
        """The requests so far: of each that is listed, what it did to the objects can be seen."""
        with self._lock:
            return list(self._requests)

    def forget_requests(self) -> None:
        with self._lock:
            self._requests.clear()

    def _stamp(self, obj: Object) -> Object:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        return obj

    def get(self, kind: Kind, name: str, namespace: str = "", *, timeout: float | None = None) -> Object:
        self.before("get", kind)
        with self._lock:
            self._requests.append(("get", kind, name))
            found = self.objects.get((kind, ObjectKey(namespace, name)))
            if found is None:
                raise NotFound(f"{name} not found", code=404, reason="NotFound", method="GET")
            result = copy.deepcopy(found)
        self.after("get", kind)
        return result

    def create(self, kind: Kind, obj: Object, namespace: str = "", *, timeout: float | None = None) -> Object:
        self.before("create", kind)
        with self._lock:
            self._requests.append(("create", kind, obj["metadata"]["name"]))
            key = (kind, key_of(obj))
            if key in self.objects:
                raise AlreadyExists("exists", code=409, reason="AlreadyExists", method="POST")
            self.objects[key] = self._stamp(copy.deepcopy(obj))
            result = copy.deepcopy(self.objects[key])
        self.after("create", kind)
        return result

    def update(self, kind: Kind, obj: Object, *, timeout: float | None = None) -> Object:
        self.before("update", kind)
        with self._lock:
            self._requests.append(("update", kind, obj["metadata"]["name"]))
            key = (kind, key_of(obj))
            found = self.objects.get(key)
            if found is None:
                raise NotFound("not found", code=404, reason="NotFound", method="PUT")
            if found["metadata"]["resourceVersion"] != obj["metadata"].get("resourceVersion"):
                raise Conflict("changed", code=409, reason="Conflict", method="PUT")
            self.objects[key] = self._stamp(copy.deepcopy(obj))
            result = copy.deepcopy(self.objects[key])
        self.after("update", kind)
        return result

    def patch(
        self, kind: Kind, name: str, patch: Object, namespace: str = "", *, timeout: float | None = None
    ) -> Object:
        self.before("patch", kind)
        with self._lock:
            self._requests.append(("patch", kind, name))
            found = self.objects.get((kind, ObjectKey(namespace, name)))
            if found is None:
                raise NotFound("not found", code=404, reason="NotFound", method="PATCH")
            found.update(copy.deepcopy(patch))
            result = copy.deepcopy(self._stamp(found))
        self.after("patch", kind)
        return result
