"""What this process knows of leases beyond what they say themselves.

Which are still as this process wrote them, for Jobs that it never tried to create:

Invariant: a lease is in here from the moment this process wrote it, over one that nobody else may be using,
until right before it sends the create of the holder's Job; with the version of that write. One process handles
an object in one pass at a time, and every manager writes a lease before it creates a Job under it. So a lease
that is found in that version can be given back, or handed to another Job of the same object, at once: nobody is
about to create the first one. Any other lease waits out its grace.

And since when it has seen a lease unchanged, for those whose own word on that cannot be true.
"""

from __future__ import annotations

import threading
from datetime import datetime

from cachetools import LRUCache

__all__ = ["LeaseMemory"]


class LeaseMemory:
    """Remembers the version in which this process last left each lease, and saw some. Thread-safe, bounded."""

    def __init__(self, size: int = 16384) -> None:
        self._lock = threading.Lock()
        self._versions: LRUCache[tuple[str, str], str] = LRUCache(size)
        self._seen: LRUCache[tuple[str, str], tuple[tuple[str, str], datetime]] = LRUCache(size)

    def wrote(self, namespace: str, lease: str, version: str) -> None:
        """This process wrote the lease, for itself alone: `version` is the resourceVersion that came of it."""
        with self._lock:
            self._versions[namespace, lease] = version

    def forget(self, namespace: str, *leases: str) -> None:
        """A Job is about to be created under these leases, or another start may be: they are not ours alone."""
        with self._lock:
            for lease in leases:
                self._versions.pop((namespace, lease), None)

    def untouched(self, namespace: str, lease: str, version: str) -> bool:
        """Whether the lease of that version is as this process wrote it, and no create was tried since."""
        with self._lock:
            return self._versions.get((namespace, lease)) == version

    def first_seen(self, namespace: str, lease: str, version: tuple[str, str], now: datetime) -> datetime:
        """When this process first saw the lease in this version, which is `now` when it never did.

        Args:
            version: the lease's uid and resourceVersion: every write makes another one.
        """
        with self._lock:
            known = self._seen.get((namespace, lease))
            if known is None or known[0] != version:
                known = self._seen[namespace, lease] = (version, now)
            return known[1]
