"""Job slots: how many Jobs may run at once, over the whole manager and for each cluster.

The limits are soft. They are counted without a lock around the decision and the create that follows it, so
passes that run at the same time may overshoot by a few; a pass that sees a limit reached starts nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from captf_controllers.api import names
from captf_controllers.api.kinds import GROUP, WORKLOAD_KINDS
from captf_controllers.jobs.operations import BACKGROUND
from captf_controllers.jobs.views import view_job
from captf_runtime.clock import Clock
from captf_runtime.objects import Object, ObjectKey, controller_of, group_of

__all__ = ["BACKGROUND_SHARE_PERCENT", "JobOwner", "JobSlots", "SlotWait", "slot_wait"]

BACKGROUND_SHARE_PERCENT: Final = 80
"""How full a limit may be for a refresh or drift check to start; the rest is for what people wait for."""

_RESERVATION_SECONDS: Final = 60.0

_OWNER_KINDS: Final = frozenset(kind.kind for kind in WORKLOAD_KINDS)


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


class JobOwner(NamedTuple):
    """The object that runs a Job, as the Job's controller reference names it."""

    namespace: str
    kind: str
    name: str
    uid: str

    @classmethod
    def of(cls, job: Object) -> JobOwner | None:
        """The workload object that controls the Job; None when something else or nothing does."""
        controller = controller_of(job)
        if controller is None or not controller.uid:
            return None
        if group_of(controller.api_version) != GROUP or controller.kind not in _OWNER_KINDS:
            return None
        namespace = job["metadata"].get("namespace", "")
        return cls(namespace, controller.kind, controller.name, controller.uid)


@dataclass(frozen=True, slots=True)
class _Unfinished:
    uid: str
    kind: str
    op: str
    cluster_label: str
    owner: JobOwner


class JobSlots:
    """Counts the objects with an unfinished Job that the informers know, and the Jobs just created.

    Anybody who may create Jobs in a namespace can label one as CAPTF's. So a Job takes a slot only while its
    controller is a workload object that exists (or this process created the Job), and all Jobs of one object
    take one slot: the run lease lets an object run one Job at a time, so a second one is not the manager's. A
    Job that took a slot keeps it until it ends or is gone, also when its object goes first: its pod still runs.

    Handlers of the informers tell of every Job and of every workload object, in any order. Between the create
    of a Job and its event a reservation stands for it, else Jobs created in the same second would not see each
    other.

    Thread-safe; every method is constant time but the counts of one cluster, which are linear in the
    objects of its namespace that run a Job.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str, str], str] = {}  # namespace, kind, name: uid
        self._taken: dict[JobOwner, dict[ObjectKey, _Unfinished]] = {}
        self._strangers: dict[JobOwner, dict[ObjectKey, _Unfinished]] = {}
        self._owner_of: dict[ObjectKey, JobOwner] = {}
        self._running_in: dict[str, set[JobOwner]] = {}
        self._reserved: dict[ObjectKey, tuple[str, float]] = {}

    # What the informers tell ------------------------------------------------------------------------

    def owner_seen(self, owner: JobOwner) -> None:
        """A workload object appeared or changed; being deleted is no difference."""
        with self._lock:
            self._objects[owner[:3]] = owner.uid
            for key, job in self._strangers.pop(owner, {}).items():
                self._take(key, job)

    def owner_gone(self, namespace: str, kind: str, name: str) -> None:
        """A workload object is gone. Its Jobs that run keep their slot."""
        with self._lock:
            self._objects.pop((namespace, kind, name), None)

    def job_seen(self, job: Object) -> None:
        """A Job appeared or changed."""
        view = view_job(job)
        key = ObjectKey(view.namespace, view.name)
        owner = JobOwner.of(job)
        with self._lock:
            reserved = self._reserved.pop(key, None) is not None
            before = self._forget(key)
            if view.is_finished:
                return
            known = owner is not None and self._objects.get(owner[:3]) == owner.uid
            if not known and before is not None and before.uid == view.uid:
                # It took its slot when its object was there; what its reference says by now changes nothing.
                self._take(key, before)
            elif owner is not None:
                unfinished = _Unfinished(view.uid, view.owner_kind, view.op, view.cluster_name, owner)
                if known or reserved:
                    self._take(key, unfinished)
                else:
                    self._strangers.setdefault(owner, {})[key] = unfinished
                    self._owner_of[key] = owner

    def job_gone(self, namespace: str, name: str) -> None:
        """A Job was deleted."""
        key = ObjectKey(namespace, name)
        with self._lock:
            self._reserved.pop(key, None)
            self._forget(key)

    def _take(self, key: ObjectKey, job: _Unfinished) -> None:
        self._taken.setdefault(job.owner, {})[key] = job
        self._owner_of[key] = job.owner
        self._running_in.setdefault(key.namespace, set()).add(job.owner)

    def _forget(self, key: ObjectKey) -> _Unfinished | None:
        """Drop a Job; what is returned is what was known of it if it held a slot."""
        owner = self._owner_of.pop(key, None)
        if owner is None:
            return None
        for held in (self._taken, self._strangers):
            jobs = held.get(owner, {})
            job = jobs.pop(key, None)
            if job is None:
                continue
            if not jobs:
                del held[owner]
            if held is self._strangers:
                return None
            if not jobs:
                running = self._running_in[key.namespace]
                running.discard(owner)
                if not running:
                    del self._running_in[key.namespace]
            return job
        return None

    # Decisions ------------------------------------------------------------------------------------

    def check(
        self, op: str, namespace: str, cluster_name: str, *, limit: int, cluster_limit: int
    ) -> SlotWait | None:
        """Decide whether a Job of the op may start now (see `slot_wait`)."""
        label = names.label_value(cluster_name) if cluster_name else ""
        with self._lock:
            self._expire()
            active = len(self._taken) + len(self._reserved)
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
            owner = self._owner_of.get(key)
            if owner is None or key not in self._taken.get(owner, ()):
                self._reserved[key] = (label, self._clock.monotonic() + _RESERVATION_SECONDS)

    def cancel(self, namespace: str, name: str) -> None:
        """No such Job was created after all."""
        with self._lock:
            self._reserved.pop(ObjectKey(namespace, name), None)

    def active(self) -> Counter[tuple[str, str]]:
        """Unfinished Jobs of objects that the informers know, by owner kind and op, as the gauge reports them."""
        with self._lock:
            return Counter(
                (job.kind, job.op)
                for jobs in self._taken.values()
                for job in jobs.values()
                if job.kind and job.op
            )

    def _count_cluster(self, namespace: str, label: str) -> int:
        return sum(
            any(job.cluster_label == label for job in self._taken[owner].values())
            for owner in self._running_in.get(namespace, ())
        ) + sum(
            key.namespace == namespace and reserved == label for key, (reserved, _) in self._reserved.items()
        )

    def _expire(self) -> None:
        # A Job that was deleted before the watch showed it would otherwise hold its slot for ever.
        now = self._clock.monotonic()
        for key in [key for key, (_, until) in self._reserved.items() if until <= now]:
            del self._reserved[key]
