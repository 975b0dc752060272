"""From an event to the requests it asks for.

On an update a handler looks at the old and the new object, so that an object that changes hands wakes both
its owners; on a delete it looks at the last known one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ..cache import Event, StoredObject, Updated
from ..objects import Kind, Object
from .reconciler import Request

__all__ = ["EventHandler", "enqueue_mapped", "enqueue_own", "enqueue_owner"]

EventHandler: TypeAlias = Callable[[Event], Iterable[Request]]
"""Maps an event to requests. One that raises is logged and counted, and maps to nothing."""


def objects_in(event: Event) -> tuple[StoredObject, ...]:
    """The objects that an event tells of: old and new on an update, else the one."""
    if isinstance(event, Updated):
        return (event.old, event.new)
    return (event.obj,)


def enqueue_own() -> EventHandler:
    """The object itself."""

    def handle(event: Event) -> Iterable[Request]:
        header = objects_in(event)[-1].header
        return (Request(header.namespace, header.name),)

    return handle


def enqueue_owner(kind: Kind, *, controller_only: bool = True) -> EventHandler:
    """The owners of the object that are of a kind.

    Args:
        kind: compared by group and kind; the version in the owner reference may be any.
        controller_only: only the owner that is marked as the controller.
    """

    def handle(event: Event) -> Iterable[Request]:
        requests: dict[Request, None] = {}
        for stored in objects_in(event):
            header = stored.header
            for owner in header.owner_references:
                if owner.kind != kind.kind or owner.group != kind.group:
                    continue
                if controller_only and not owner.controller:
                    continue
                requests[Request(header.namespace if kind.namespaced else "", owner.name)] = None
        return requests

    return handle


def enqueue_mapped(mapping: Callable[[Object], Iterable[Request]]) -> EventHandler:
    """Whatever a function says; requests that it gives for both old and new object count once."""

    def handle(event: Event) -> Iterable[Request]:
        requests: dict[Request, None] = {}
        for stored in objects_in(event):
            requests.update(dict.fromkeys(mapping(stored.decode())))
        return requests

    return handle
