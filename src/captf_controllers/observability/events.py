"""Emitting CAPTF's events: one door, so that all have the same shape and length.

The reasons are `captf_controllers.api.reasons`; which transitions of conditions make an event is decided in
`captf_controllers.observability.transitions`. An event is emitted once per transition or occurrence, never
per pass, and a failed emission never fails a pass.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol

from captf_controllers.observability.conditions import MAX_NOTE_BYTES, legible
from captf_runtime.objects import Object

__all__ = ["CONTROLLER", "DELETE", "RECONCILE", "EventSink", "EventType", "Events"]

CONTROLLER: Final = "captf-manager"
"""What reports the manager's events; the runner's come from `captf.io/runner`."""

RECONCILE: Final = "Reconcile"
DELETE: Final = "Delete"
"""Action of an event about the removal of a finalizer; every other event's is `Reconcile`."""

EventType = Literal["Normal", "Warning"]
Action = Literal["Reconcile", "Delete"]


class EventSink(Protocol):
    """Where events go: `captf_runtime.events.Recorder`, or a list in a test."""

    def emit(
        self,
        obj: Object,
        type: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        related: Object | None = None,
        important: bool = False,
    ) -> None:
        """Record an event; returns at once and never raises."""
        ...


class Events:
    """The events of one object in one pass.

    Args:
        sink: where they go; None drops them.
        obj: the object that they are about.
    """

    __slots__ = ("_obj", "_sink")

    def __init__(self, sink: EventSink | None, obj: Object) -> None:
        self._sink = sink
        self._obj = obj

    def normal(
        self, reason: str, note: str, *, job: Object | None = None, action: Action = RECONCILE
    ) -> None:
        """Something happened as it should. `job` is the Job that it is related to."""
        self.emit("Normal", reason, note, job=job, action=action)

    def warning(
        self, reason: str, note: str, *, job: Object | None = None, action: Action = RECONCILE
    ) -> None:
        """Something happened that someone should look at."""
        self.emit("Warning", reason, note, job=job, action=action)

    def emit(
        self,
        type_: EventType,
        reason: str,
        note: str,
        *,
        job: Object | None = None,
        action: Action = RECONCILE,
    ) -> None:
        """Emit an event; its note is cut to what a reader of `kubectl describe` can use."""
        if self._sink is None:
            return
        self._sink.emit(
            self._obj,
            type_,
            reason,
            action,
            legible(note, MAX_NOTE_BYTES),
            related=job,
            # The end of an object's life is told once, and nothing repeats it.
            important=action == DELETE or type_ == "Warning",
        )
