"""Feeding the Job slots from the Job informer."""

from __future__ import annotations

from captf_controllers.jobs.slots import JobSlots
from captf_runtime.cache import Deleted, Event


class JobCounter:
    """A handler of the Job informer that keeps the count of unfinished Jobs."""

    def __init__(self, slots: JobSlots) -> None:
        self._slots = slots

    def __call__(self, event: Event) -> None:
        """Count a Job that was seen, forget one that is gone."""
        header = event.obj.header
        if isinstance(event, Deleted):
            self._slots.job_gone(header.namespace, header.name)
        else:
            self._slots.job_seen(event.obj.decode())
