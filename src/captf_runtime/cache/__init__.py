"""Objects of the API server, kept in this process: informers, their store, and the reader over them.

Flow: `Cache(client)`, then `cache.informer(kind)` for each kind to follow, `cache.start(stop)`,
`cache.wait_for_sync(timeout)`; from then on `cache.get` and `cache.list` answer without a request.
"""

from __future__ import annotations

from captf_runtime.cache.delivery import Added, Deleted, Event, Handler, HandlerRegistration, Updated
from captf_runtime.cache.errors import CacheError, NotCached, NotSynced, SyncTimeout
from captf_runtime.cache.informer import RESYNC_PERIOD, Informer
from captf_runtime.cache.reflector import LastError, Transform
from captf_runtime.cache.registry import Cache
from captf_runtime.cache.scope import Scope
from captf_runtime.cache.store import IndexFunction, Store
from captf_runtime.cache.stored import Form, Header, StoredObject, store_object, store_raw

__all__ = [
    "RESYNC_PERIOD",
    "Added",
    "Cache",
    "CacheError",
    "Deleted",
    "Event",
    "Form",
    "Handler",
    "HandlerRegistration",
    "Header",
    "IndexFunction",
    "Informer",
    "LastError",
    "NotCached",
    "NotSynced",
    "Scope",
    "Store",
    "StoredObject",
    "SyncTimeout",
    "Transform",
    "Updated",
    "store_object",
    "store_raw",
]
