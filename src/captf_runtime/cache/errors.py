"""Why the cache cannot answer."""

from __future__ import annotations


class CacheError(Exception):
    """The cache cannot answer; another try may help only where the subclass says so."""


class NotCached(CacheError):
    """Nobody asked the cache to follow this kind: request an informer for it at start."""


class NotSynced(CacheError):
    """The first list is not complete yet; wait with `wait_for_sync`."""


class SyncTimeout(CacheError):
    """Informers were not synced in time; the message names each with its last error."""
