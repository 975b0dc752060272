"""The controllers of a cluster that the embedded API server needs: garbage collection, namespaces, Jobs.

`GarbageCollector` and `NamespaceLifecycle` work in the server's process on its store. The `JobController` of
`captf_runtime.testing.controllers.jobs` speaks HTTP, as the kubelet does.
"""

from .garbage import GarbageCollector
from .namespaces import NamespaceLifecycle
from .store import ObjectStore

__all__ = ["GarbageCollector", "NamespaceLifecycle", "ObjectStore"]
