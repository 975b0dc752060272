"""Namespace lifecycle: a namespace that is being deleted is emptied, reports what is left, and goes.

The deletion itself (phase `Terminating`, refusing new content) is the API server's; this controller deletes
the content, keeps the five conditions up to date and removes the finalizer `kubernetes` from
`spec.finalizers` when nothing is left.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

from captf_runtime.clock import Clock
from captf_runtime.objects import (
    NAMESPACE,
    Kind,
    Object,
    finalizers_of,
    format_time,
    is_deleting,
    name_of,
    namespace_of,
    uid_of,
)

from .stepping import SteppedController
from .store import ObjectStore

__all__ = ["NAMESPACE_FINALIZER", "NamespaceLifecycle", "namespace_conditions"]

NAMESPACE_FINALIZER = "kubernetes"


def namespace_conditions(
    former: list[Object], remaining: Mapping[str, int], finalizers: Mapping[str, int], now: datetime
) -> list[Object]:
    """Return the conditions of a terminating namespace.

    Args:
        former: the conditions so far; one whose status stays keeps its lastTransitionTime.
        remaining: objects left by resource and group, "jobs.batch" ("secrets." in the core group).
        finalizers: objects left by the finalizer that they bear.
        now: the time of a transition.
    """
    left = ", ".join(
        f"{resource} has {count} resource instances" for resource, count in sorted(remaining.items())
    )
    borne = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            False,
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            False,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            False,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            (
                "NamespaceContentRemaining",
                True,
                "SomeResourcesRemain",
                f"Some resources are remaining: {left}",
            )
            if left
            else (
                "NamespaceContentRemaining",
                False,
                "ContentRemoved",
                "All content successfully removed",
            )
        ),
        (
            (
                "NamespaceFinalizersRemaining",
                True,
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {borne}",
            )
            if borne
            else (
                "NamespaceFinalizersRemaining",
                False,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            )
        ),
    ]
    known = {condition.get("type"): condition for condition in former}
    conditions: list[Object] = []
    for kind, true, reason, message in wanted:
        status = "True" if true else "False"
        before = known.pop(kind, None)
        since = before.get("lastTransitionTime") if before and before.get("status") == status else None
        conditions.append(
            {
                "type": kind,
                "status": status,
                "lastTransitionTime": since or format_time(now),
                "reason": reason,
                "message": message,
            }
        )
    return [*known.values(), *conditions]


class NamespaceLifecycle(SteppedController):
    """Empties and finalizes terminating namespaces in the store of an embedded API server.

    Args:
        store: the store to watch and to act upon.
        clock: gives the times in conditions.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        super().__init__("namespace-lifecycle")
        self._store = store
        self._clock = clock
        self._stepping = threading.Lock()
        self._noting = threading.Lock()
        # A dictionary for its order; each name once, however much happens before the next step.
        self._touched: dict[str, None] = {}
        self._unsubscribe = store.subscribe(self._on_change)
        self.rescan()

    def rescan(self) -> None:
        """Look at every namespace anew, as needed when the store was exchanged."""
        for obj in self._store.items(NAMESPACE):
            self._touch(name_of(obj))
        self.wake()

    def step(self) -> bool:
        """Bring every terminating namespace as far as it can come. True when anything was changed."""
        acted = False
        with self._stepping:
            while due := self._take_touched():
                for name in due:
                    try:
                        acted = self._attend(name) or acted
                    except BaseException:
                        self._touch(name)
                        raise
        return acted

    def _on_change(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        obj = after if after is not None else before
        if obj is None:
            return
        # Whether the namespace is terminating is asked later: here the store may hold its lock.
        self._touch(namespace_of(obj) if kind.namespaced else name_of(obj) if kind == NAMESPACE else "")
        self.wake()

    def _touch(self, name: str) -> None:
        with self._noting:
            self._touched[name] = None

    def _take_touched(self) -> dict[str, None]:
        with self._noting:
            taken, self._touched = self._touched, {}
        return taken

    def _attend(self, name: str) -> bool:
        namespace = self._store.get(NAMESPACE, "", name) if name else None
        if namespace is None or not is_deleting(namespace):
            return False
        if NAMESPACE_FINALIZER not in (namespace.get("spec") or {}).get("finalizers", ()):
            return False
        acted = False
        for kind, obj in list(self._content(name)):
            if not is_deleting(obj):
                self._store.delete(kind, name, name_of(obj), uid=uid_of(obj), propagation_policy="Background")
                acted = True
        remaining: Counter[str] = Counter()
        finalizers: Counter[str] = Counter()
        for kind, obj in self._content(name):
            remaining[f"{kind.plural}.{kind.group}"] += 1
            finalizers.update(finalizers_of(obj))
        return self._report(name, uid_of(namespace), remaining, finalizers) or acted

    def _content(self, namespace: str) -> Iterator[tuple[Kind, Object]]:
        seen: set[str] = set()
        for kind in self._store.kinds():
            if not kind.namespaced:
                continue
            for obj in self._store.items(kind, namespace):
                # Two kinds may be views of one storage, as the two groups of Event are.
                uid = uid_of(obj)
                if uid not in seen:
                    seen.add(uid)
                    yield kind, obj

    def _report(
        self, name: str, uid: str, remaining: Mapping[str, int], finalizers: Mapping[str, int]
    ) -> bool:
        changed = False

        def finish(obj: Object) -> bool:
            nonlocal changed
            if uid_of(obj) != uid:
                return False
            status = obj.setdefault("status", {})
            former = status.get("conditions") or []
            conditions = namespace_conditions(former, remaining, finalizers, self._clock.now())
            changed = conditions != former
            status["conditions"] = conditions
            if not remaining:
                spec = obj.setdefault("spec", {})
                spec["finalizers"] = [
                    finalizer for finalizer in spec.get("finalizers", ()) if finalizer != NAMESPACE_FINALIZER
                ]
                changed = True
            return changed

        self._store.update(NAMESPACE, "", name, finish)
        return changed
