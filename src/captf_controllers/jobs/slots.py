"""Job slots: how many Jobs may run at once, over the whole manager and for each cluster.

The limits are soft. They are counted without a lock around the decision and the create that follows it, so
passes that run at the same time may overshoot by a few; a pass that sees a limit reached starts nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from captf_controllers.api import names
from captf_controllers.jobs.operations import BACKGROUND
from captf_controllers.jobs.views import view_job
from captf_runtime.clock import Clock
from captf_runtime.objects import Object, ObjectKey

__all__ = ["BACKGROUND_SHARE_PERCENT", "JobSlots", "SlotWait", "slot_wait"]

BACKGROUND_SHARE_PERCENT: Final = 80
"""How full a limit may be for a refresh or drift check to start; the rest is for what people wait for."""

_RESERVATION_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class SlotWait:
    """The start has to wait for a slot. The message names the limit, never the running count."""

    message: str


def slot_wait(
    op: str, *, active: int, limit: int, cluster_active: int, cluster_limit: int, cluster_name: str
) -> SlotWait | None:
    """Decide whether a Job of the op may start now. The global limit is looked at first.

    Args:
        active: unfinished Jobs known to this manager; `limit` 0 means no limit.
        cluster_active: those of the object's cluster; `cluster_limit` 0 means no limit.
        cluster_name: the cluster, "" when unknown: then its limit does not apply.
    """
    if _full(op, active, limit):
        return SlotWait(_message(op, f"all of this manager's {limit} Job slots (--max-active-jobs)"))
    if cluster_name and _full(op, cluster_active, cluster_limit):
        scope = (
            f"cluster {cluster_name}'s {cluster_limit} Job slots (spec.maxActiveJobs of its TerraformCluster)"
        )
        return SlotWait(_message(op, f"all of {scope}"))
    return None


def _full(op: str, active: int, limit: int) -> bool:
    if limit <= 0:
        return False
    if op in BACKGROUND:
        return active * 100 >= limit * BACKGROUND_SHARE_PERCENT
    return active >= limit


def _message(op: str, slots: str) -> str:
    if op in BACKGROUND:
        return (
            f"waits for a Job slot: a {op} starts only while less than {BACKGROUND_SHARE_PERCENT} % of "
            f"{slots.removeprefix('all of ')} are taken"
        )
    return f"waits for a Job slot: {slots} are taken"


@dataclass(frozen=True, slots=True)
class _Unfinished:
    uid: str
    kind: str
    op: str
    cluster_label: str


class JobSlots:
    """Counts the unfinished Jobs that the Job informer knows, and those just created that it does not yet.

    A handler of the Job informer tells it of every Job. Between the create of a Job and its event a
    reservation stands for it, else Jobs created in the same second would not see each other.

    Thread-safe; every method is constant time but the counts of one cluster, which are linear in the
    unfinished Jobs of its namespace.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._unfinished: dict[ObjectKey, _Unfinished] = {}
        self._by_namespace: dict[str, set[ObjectKey]] = {}
        self._reserved: dict[ObjectKey, tuple[str, float]] = {}

    # What the Job informer tells ------------------------------------------------------------------

    def job_seen(self, job: Object) -> None:
        """A Job appeared or changed."""
        view = view_job(job)
        key = ObjectKey(view.namespace, view.name)
        if view.is_finished:
            self._remove(key)
            return
        with self._lock:
            self._reserved.pop(key, None)
            self._unfinished[key] = _Unfinished(view.uid, view.owner_kind, view.op, view.cluster_name)
            self._by_namespace.setdefault(key.namespace, set()).add(key)

    def job_gone(self, namespace: str, name: str) -> None:
        """A Job was deleted."""
        self._remove(ObjectKey(namespace, name))

    def _remove(self, key: ObjectKey) -> None:
        with self._lock:
            self._reserved.pop(key, None)
            if self._unfinished.pop(key, None) is not None:
                keys = self._by_namespace[key.namespace]
                keys.discard(key)
                if not keys:
                    del self._by_namespace[key.namespace]

    # Decisions ------------------------------------------------------------------------------------

    def check(
        self, op: str, namespace: str, cluster_name: str, *, limit: int, cluster_limit: int
    ) -> SlotWait | None:
        """Decide whether a Job of the op may start now (see `slot_wait`)."""
        label = names.label_value(cluster_name) if cluster_name else ""
        with self._lock:
            self._expire()
            active = len(self._unfinished) + len(self._reserved)
            in_cluster = self._count_cluster(namespace, label) if label else 0
        return slot_wait(
            op,
            active=active,
            limit=limit,
            cluster_active=in_cluster,
            cluster_limit=cluster_limit,
            cluster_name=cluster_name,
        )

    def reserve(self, namespace: str, name: str, cluster_name: str) -> None:
        """A Job of that name is created, or is about to be: count it until the informer shows it."""
        key = ObjectKey(namespace, name)
        label = names.label_value(cluster_name) if cluster_name else ""
        with self._lock:
            if key not in self._unfinished:
                self._reserved[key] = (label, self._clock.monotonic() + _RESERVATION_SECONDS)

    def cancel(self, namespace: str, name: str) -> None:
        """No such Job was created after all."""
        with self._lock:
            self._reserved.pop(ObjectKey(namespace, name), None)

    def active(self) -> Counter[tuple[str, str]]:
        """Unfinished Jobs that the informer knows, by owner kind and op, as the gauge reports them."""
        with self._lock:
            return Counter((job.kind, job.op) for job in self._unfinished.values() if job.kind and job.op)

    def _count_cluster(self, namespace: str, label: str) -> int:
        known: Iterable[ObjectKey] = self._by_namespace.get(namespace, ())
        return sum(self._unfinished[key].cluster_label == label for key in known) + sum(
            key.namespace == namespace and reserved == label for key, (reserved, _) in self._reserved.items()
        )

    def _expire(self) -> None:
        # A Job that was deleted before the watch showed it would otherwise hold its slot for ever.
        now = self._clock.monotonic()
        for key in [key for key, (_, until) in self._reserved.items() if until <= now]:
            del self._reserved[key]
