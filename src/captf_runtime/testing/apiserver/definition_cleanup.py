"""Deletes the custom resources of a definition that is being deleted, and then lets the definition go."""

from __future__ import annotations

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver.backend import Backend
from captf_runtime.testing.apiserver.customresources import FINALIZER, TABLE, is_terminating, set_terminating
from captf_runtime.testing.apiserver.requests import DeleteOptions
from captf_runtime.testing.apiserver.status import ApiStatus
from captf_runtime.testing.apiserver.storage import Change
from captf_runtime.testing.controllers.stepping import SteppedController


class DefinitionCleanup(SteppedController):
    """The finalizer of CustomResourceDefinitions."""

    def __init__(self, backend: Backend) -> None:
        super().__init__("definition-cleanup")
        self._backend = backend
        self._pending: set[str] = set()
        backend.store.observe(self._observe)

    def _observe(self, table: str, change: Change) -> None:
        # Set operations are atomic, and this runs under the store's lock.
        if table == TABLE:
            if change.type != "DELETED" and is_terminating(change.record.object):
                self._pending.add(change.record.name)
                self.wake()
        elif table in self._pending:
            self.wake()

    def step(self) -> bool:
        """Delete what is left of each ending definition; true when anything was done."""
        turns = [self._attend(name) for name in sorted(self._pending)]
        return any(turns)

    def _attend(self, name: str) -> bool:
        store = self._backend.store
        record = store.get(TABLE, "", name)
        if record is None or not is_terminating(record.object):
            self._pending.discard(name)
            return False
        worked = False
        resource = next((r for r in self._backend.registry.stored() if r.storage == name), None)
        for instance in store.list(name):
            if resource is not None and not instance.object["metadata"].get("deletionTimestamp"):
                worked = True
                try:
                    self._backend.delete(
                        resource, instance.namespace, instance.name, DeleteOptions(propagation="Background")
                    )
                except ApiStatus as failure:
                    if failure.code != 404:
                        raise
        if FINALIZER not in (record.object["metadata"].get("finalizers") or []):
            self._pending.discard(name)
            return worked
        remaining = store.list(name)
        if remaining:
            return self._report(name) or worked
        definitions = self._backend.registry.of_table(TABLE)
        if definitions is None:
            return worked

        def release(obj: Object) -> Object:
            metadata = obj["metadata"]
            metadata["finalizers"] = [f for f in metadata.get("finalizers") or [] if f != FINALIZER]
            message = "removed all instances"
            set_terminating(obj, "InstanceDeletionCompleted", message, self._backend.clock.now())
            return obj

        self._backend.update_unchecked(definitions, "", name, release)
        return True

    def _report(self, name: str) -> bool:
        """Say in the definition that its instances are being deleted; false when it says so already."""
        record = self._backend.store.get(TABLE, "", name)
        definitions = self._backend.registry.of_table(TABLE)
        if record is None or definitions is None:
            return False
        conditions = (record.object.get("status") or {}).get("conditions") or []
        if any(c.get("reason") == "InstanceDeletionInProgress" for c in conditions):
            return False

        def report(obj: Object) -> Object:
            message = "CustomResource deletion is in progress"
            set_terminating(obj, "InstanceDeletionInProgress", message, self._backend.clock.now())
            return obj

        self._backend.update_unchecked(definitions, "", name, report)
        return True
