"""Reading an object at least as new as this process last wrote it.

A pass that follows its own write at once could otherwise start from the version before it, compute its patch
against the wrong ground and decide on conditions that are no longer there.
"""

from __future__ import annotations

import threading
from typing import Protocol

from cachetools import LRUCache

from captf_runtime.objects import Kind, Object, ObjectKey, key_of, resource_version_of

#: How long a pass waits for its own write to come back through the watch, in seconds.
PATIENCE = 2.0


class WaitingCache(Protocol):
    """The part of the cache that knows how far its watch has come."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object: ...

    def wait_for(self, kind: Kind, key: ObjectKey, resource_version: str, timeout: float) -> bool: ...


class OwnWrites:
    """Remembers the version of the last write of each object of one kind. Thread-safe, bounded."""

    def __init__(self, cache: WaitingCache, kind: Kind, *, size: int = 8192) -> None:
        self._cache = cache
        self._kind = kind
        self._lock = threading.Lock()
        self._versions: LRUCache[ObjectKey, str] = LRUCache(size)

    def latest(self, namespace: str, name: str) -> Object:
        """The cached object, once it has caught up with the last write or the patience is over.

        Raises NotFound when the cache does not know the object.
        """
        key = ObjectKey(namespace, name)
        with self._lock:
            version = self._versions.get(key)
        if version is not None:
            self._cache.wait_for(self._kind, key, version, PATIENCE)
            with self._lock:
                self._versions.pop(key, None)
        return self._cache.get(self._kind, name, namespace)

    def wrote(self, stored: Object | None) -> None:
        """Remember what the API server answered to a write."""
        version = resource_version_of(stored) if stored is not None else ""
        if stored is not None and version:
            with self._lock:
                self._versions[key_of(stored)] = version
