"""Feeding the Job slots from the informers."""

from __future__ import annotations

from captf_controllers.api.kinds import WORKLOAD_KINDS
from captf_controllers.jobs.slots import JobOwner, JobSlots
from captf_controllers.kinds.controllers import JOB_SELECTOR
from captf_runtime.cache import Cache, Deleted, Event
from captf_runtime.objects import JOB, Kind

__all__ = ["count_jobs"]


def count_jobs(slots: JobSlots, cache: Cache, namespace: str) -> None:
    """Let the informers of Jobs and of the workload kinds tell the slots what they see.

    Args:
        namespace: the namespace restriction of the informers, "" for none.
    """
    cache.informer(JOB, namespace=namespace, label_selector=JOB_SELECTOR).add_handler(
        _JobCounter(slots), name="job-slots"
    )
    for kind in WORKLOAD_KINDS:
        cache.informer(kind, namespace=namespace).add_handler(
            _OwnerCounter(slots, kind), name="job-slot-owners"
        )


class _JobCounter:
    def __init__(self, slots: JobSlots) -> None:
        self._slots = slots

    def __call__(self, event: Event) -> None:
        header = event.obj.header
        if isinstance(event, Deleted):
            self._slots.job_gone(header.namespace, header.name)
        else:
            self._slots.job_seen(event.obj.decode())


class _OwnerCounter:
    def __init__(self, slots: JobSlots, kind: Kind) -> None:
        self._slots = slots
        self._kind = kind.kind

    def __call__(self, event: Event) -> None:
        header = event.obj.header
        if isinstance(event, Deleted):
            self._slots.owner_gone(header.namespace, self._kind, header.name)
        else:
            self._slots.owner_seen(JobOwner(header.namespace, self._kind, header.name, header.uid))
