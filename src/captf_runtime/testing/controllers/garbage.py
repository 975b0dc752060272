"""Garbage collection: dependents go with their owners, by the propagation policy of the deletion.

The rules are those of Kubernetes' collector:

- A dependent is deleted when none of its owners exists any more. While one lives, references to absent ones
  are removed from it.
- `Foreground`: the owner bears the finalizer `foregroundDeletion` until no dependent with
  `blockOwnerDeletion` is left; its dependents are deleted meanwhile.
- `Orphan`: the owner bears the finalizer `orphan` until its dependents no longer refer to it.
- An owner is looked up by kind, the dependent's namespace and name, and exists only when the uid is the one
  referred to. A reference to an unknown kind proves nothing and protects the dependent, and so does a
  namespaced owner of a cluster-scoped dependent.

Invariants of the indexes: `_owners[item]` holds the owner uids of the item's last seen version;
`_dependents[uid]` holds exactly the items whose `_owners` contain that uid; `_located[uid]` is where the
object of that uid was last seen, and `_uids` is the other direction of it. `_touched` holds the places whose
present object may differ from what the indexes say; of what happened there meanwhile nothing is kept, so that a
collector that never steps does not hold every object that ever was.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from captf_runtime.objects import (
    Kind,
    Object,
    OwnerReference,
    finalizers_of,
    is_deleting,
    metadata,
    name_of,
    namespace_of,
    owner_references,
    uid_of,
)

from .stepping import SteppedController
from .store import ObjectStore

__all__ = ["FOREGROUND_FINALIZER", "ORPHAN_FINALIZER", "GarbageCollector"]

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"

_IGNORED = frozenset({"events", "events.events.k8s.io"})
"""Events expire by themselves; the collector never looks at them."""


class _Item(NamedTuple):
    """Where an object is. The kind stands by its resource: its versions are views of the same objects."""

    resource: str
    namespace: str
    name: str


def _item(kind: Kind, obj: Object) -> _Item:
    return _Item(kind.resource, namespace_of(obj) if kind.namespaced else "", name_of(obj))


def _is_foreground(obj: Object) -> bool:
    return is_deleting(obj) and FOREGROUND_FINALIZER in finalizers_of(obj)


class GarbageCollector(SteppedController):
    """Collects the dependents of deleted owners in the store of an embedded API server.

    Args:
        store: the store to watch and to act upon. Objects already in it are considered too.

    Guarantees: after `step()` returns nothing is left to collect until the store changes again.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__("garbage-collector")
        self._store = store
        self._stepping = threading.Lock()
        self._noting = threading.Lock()
        self._touched: OrderedDict[_Item, Kind] = OrderedDict()
        #: What a step took last, and may be putting into the indexes at this moment.
        self._indexing: _Item | None = None
        self._kinds: dict[str, Kind] = {}
        self._owners: dict[_Item, frozenset[str]] = {}
        self._dependents: dict[str, set[_Item]] = {}
        self._located: dict[str, _Item] = {}
        self._uids: dict[_Item, str] = {}
        # A dictionary for its order: work is done in the order in which it became due.
        self._due: dict[_Item, None] = {}
        self._unsubscribe = store.subscribe(self._on_change)
        self.rescan()

    def rescan(self) -> None:
        """Forget what was seen and read the whole store anew, as needed when it was exchanged."""
        with self._stepping:
            self._owners.clear()
            self._dependents.clear()
            self._located.clear()
            self._uids.clear()
            self._due.clear()
            for kind in self._store.kinds():
                for obj in self._store.items(kind):
                    self._on_change(kind, None, obj)
        self.wake()

    def step(self) -> bool:
        """Collect until nothing is due. True when anything was changed."""
        acted = False
        with self._stepping:
            while True:
                while (touched := self._next_touched()) is not None:
                    self._index(*touched)
                item = next(iter(self._due), None)
                if item is None:
                    return acted
                # Off the list only when done: a failure leaves it due for the next step.
                acted = self._attend(item) or acted
                self._due.pop(item, None)

    # Index ------------------------------------------------------------------------------------------

    def _on_change(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        obj = after if after is not None else before
        if obj is None or kind.resource in _IGNORED:
            return
        item = _item(kind, obj)
        with self._noting:
            unseen = item in self._touched and item not in self._uids and item != self._indexing
            if after is None and unseen:
                # It came and went between two steps: no index knows it, and it leaves nothing behind.
                del self._touched[item]
                return
            self._touched[item] = kind
            # The last change counts: an owner that goes is looked at after the dependents that it has by then.
            self._touched.move_to_end(item)
        self.wake()

    def _next_touched(self) -> tuple[_Item, Kind] | None:
        # Taken before the object is read: a change from then on touches it again.
        with self._noting:
            if not self._touched:
                return None
            touched = self._touched.popitem(last=False)
            self._indexing = touched[0]
            return touched

    def _index(self, item: _Item, kind: Kind) -> None:
        self._kinds[kind.resource] = kind
        obj = self._fetch(item)
        known = self._uids.get(item)
        if known is not None and (obj is None or uid_of(obj) != known):
            self._forget(item, known)
        if obj is not None:
            self._remember(item, obj)

    def _forget(self, item: _Item, uid: str) -> None:
        del self._uids[item]
        if self._located.get(uid) == item:
            del self._located[uid]
        self._set_owners(item, frozenset())
        self._due.pop(item, None)
        for dependent in self._dependents.get(uid, ()):
            self._due[dependent] = None

    def _remember(self, item: _Item, obj: Object) -> None:
        uid = uid_of(obj)
        self._located[uid] = item
        self._uids[item] = uid
        references = owner_references(obj)
        self._set_owners(item, frozenset(reference.uid for reference in references))
        for reference in references:
            # A change of blockOwnerDeletion may let a foreground deletion go on.
            self._consider_owner(reference.uid)
        if _is_foreground(obj):
            # The dependents first: an owner that none of them blocks is let go as soon as it is looked at.
            for dependent in self._dependents.get(uid, ()):
                self._due[dependent] = None
            self._due.pop(item, None)
        if references or is_deleting(obj):
            self._due[item] = None

    def _set_owners(self, item: _Item, owners: frozenset[str]) -> None:
        former = self._owners.pop(item, frozenset())
        if owners:
            self._owners[item] = owners
        for uid in owners - former:
            self._dependents.setdefault(uid, set()).add(item)
        for uid in former - owners:
            items = self._dependents[uid]
            items.discard(item)
            if not items:
                del self._dependents[uid]
            self._consider_owner(uid)

    def _consider_owner(self, uid: str) -> None:
        owner = self._located.get(uid)
        if owner is not None:
            obj = self._fetch(owner)
            if obj is not None and is_deleting(obj):
                self._due[owner] = None

    def _fetch(self, item: _Item) -> Object | None:
        return self._store.get(self._kinds[item.resource], item.namespace, item.name)

    # Decisions --------------------------------------------------------------------------------------

    def _attend(self, item: _Item) -> bool:
        obj = self._fetch(item)
        if obj is None:
            return False
        if is_deleting(obj):
            finalizers = finalizers_of(obj)
            if ORPHAN_FINALIZER in finalizers:
                return self._orphan_dependents(item, obj)
            if FOREGROUND_FINALIZER in finalizers:
                return self._delete_in_foreground(item, obj)
            return False
        return self._delete_when_unowned(item, obj)

    def _orphan_dependents(self, item: _Item, obj: Object) -> bool:
        uid = uid_of(obj)
        for dependent in sorted(self._dependents.get(uid, ())):
            self._drop_references(dependent, frozenset({uid}))
        self._remove_finalizer(item, uid, ORPHAN_FINALIZER)
        return True

    def _delete_in_foreground(self, item: _Item, obj: Object) -> bool:
        uid = uid_of(obj)
        for dependent in self._dependents.get(uid, ()):
            found = self._fetch(dependent)
            if found is not None and any(
                reference.uid == uid and reference.block_owner_deletion
                for reference in owner_references(found)
            ):
                return False  # looked at again when that one changes or goes
        self._remove_finalizer(item, uid, FOREGROUND_FINALIZER)
        return True

    def _delete_when_unowned(self, item: _Item, obj: Object) -> bool:
        kind = self._kinds[item.resource]
        absent: set[str] = set()
        waiting: set[str] = set()
        living = False
        for reference in owner_references(obj):
            owner_kind = self._store.find(reference.api_version, reference.kind)
            if owner_kind is None or (owner_kind.namespaced and not kind.namespaced):
                return False
            owner = self._owner(reference, owner_kind, item.namespace)
            if owner is None:
                absent.add(reference.uid)
            elif _is_foreground(owner):
                waiting.add(reference.uid)
            else:
                living = True
        if living:
            return self._drop_references(item, frozenset(absent | waiting))
        if not absent and not waiting:
            return False
        uid = uid_of(obj)
        policy = "Background"
        if waiting and self._dependents.get(uid):
            # The owner must also wait for the dependents of this one, unless they wait for each other.
            if self._has_deleting_dependent(uid):
                self._unblock_owners(item)
            policy = "Foreground"
        elif ORPHAN_FINALIZER in finalizers_of(obj):
            policy = "Orphan"
        elif FOREGROUND_FINALIZER in finalizers_of(obj):
            policy = "Foreground"
        self._store.delete(kind, item.namespace, item.name, uid=uid, propagation_policy=policy)
        return True

    def _owner(self, reference: OwnerReference, kind: Kind, namespace: str) -> Object | None:
        owner = self._store.get(kind, namespace if kind.namespaced else "", reference.name)
        return owner if owner is not None and uid_of(owner) == reference.uid else None

    def _has_deleting_dependent(self, uid: str) -> bool:
        found = (self._fetch(dependent) for dependent in self._dependents.get(uid, ()))
        return any(obj is not None and _is_foreground(obj) for obj in found)

    # Actions ----------------------------------------------------------------------------------------

    def _drop_references(self, item: _Item, owners: frozenset[str]) -> bool:
        if not owners:
            return False
        changed = False

        def drop(obj: Object) -> bool:
            nonlocal changed
            found = metadata(obj).get("ownerReferences") or []
            kept = [reference for reference in found if reference.get("uid") not in owners]
            changed = len(kept) != len(found)
            if kept:
                metadata(obj)["ownerReferences"] = kept
            else:
                metadata(obj).pop("ownerReferences", None)
            return changed

        self._store.update(self._kinds[item.resource], item.namespace, item.name, drop)
        return changed

    def _unblock_owners(self, item: _Item) -> None:
        def unblock(obj: Object) -> bool:
            changed = False
            for reference in metadata(obj).get("ownerReferences") or []:
                if reference.get("blockOwnerDeletion"):
                    reference["blockOwnerDeletion"] = False
                    changed = True
            return changed

        self._store.update(self._kinds[item.resource], item.namespace, item.name, unblock)

    def _remove_finalizer(self, item: _Item, uid: str, finalizer: str) -> None:
        def remove(obj: Object) -> bool:
            finalizers = finalizers_of(obj)
            if uid_of(obj) != uid or finalizer not in finalizers:
                return False
            finalizers.remove(finalizer)
            metadata(obj)["finalizers"] = finalizers
            return True

        self._store.update(self._kinds[item.resource], item.namespace, item.name, remove)
