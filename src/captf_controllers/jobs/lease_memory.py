"""Which leases this process took for Jobs that it never tried to create.

Invariant: a lease is in here only from the moment this process wrote it until right before it sends the create
of the holder's Job. One process handles an object in one pass at a time, so a lease in here can be handed to
another Job of the same object at once: nobody is about to create the first one. A lease of another process is
never in here and waits out its grace.
"""

from __future__ import annotations

import threading

from cachetools import LRUCache

__all__ = ["LeaseMemory"]


class LeaseMemory:
    """Remembers the holder that this process last wrote into each lease. Thread-safe, bounded."""

    def __init__(self, size: int = 16384) -> None:
        self._lock = threading.Lock()
        self._holders: LRUCache[tuple[str, str], str] = LRUCache(size)

    def took(self, namespace: str, lease: str, holder: str) -> None:
        """This process wrote the lease in the holder's name."""
        with self._lock:
            self._holders[namespace, lease] = holder

    def creating(self, namespace: str, *leases: str) -> None:
        """The holder's Job is about to be created: from here on it may exist."""
        with self._lock:
            for lease in leases:
                self._holders.pop((namespace, lease), None)

    def never_started(self, namespace: str, lease: str, holder: str) -> bool:
        """Whether this process took the lease for that holder and never tried to create its Job."""
        with self._lock:
            return self._holders.get((namespace, lease)) == holder
