"""The controllers of a cluster that the embedded API server needs: garbage collection, namespaces, Jobs.

`GarbageCollector` and `NamespaceLifecycle` work in the server's process on its store. `JobController` speaks
HTTP, as the kubelet does. It is imported from `captf_runtime.testing.controllers.jobs`, since it needs the client library.
"""

from .garbage import GarbageCollector
from .namespaces import NamespaceLifecycle
from .store import ObjectStore

__all__ = ["GarbageCollector", "NamespaceLifecycle", "ObjectStore"]
