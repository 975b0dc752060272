"""Which events matter.

A predicate is a function from an event to a truth value. Those here that speak of a change let every add and
delete pass, because there is nothing to compare. A predicate that raises lets the event pass: an extra
reconcile is cheap, a missed one is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..cache import Event, Updated
from ..objects import annotations_of, parse_label_selector
from .handlers import objects_in

__all__ = [
    "Predicate",
    "all_of",
    "annotations_changed",
    "any_of",
    "deleting_changed",
    "generation_changed",
    "label_selector",
    "labels_changed",
    "negate",
    "resource_version_changed",
]

Predicate: TypeAlias = Callable[[Event], bool]
"""True: the event matters."""


def all_of(*predicates: Predicate) -> Predicate:
    """Passes what passes all of them."""
    return lambda event: all(predicate(event) for predicate in predicates)


def any_of(*predicates: Predicate) -> Predicate:
    """Passes what passes one of them."""
    return lambda event: any(predicate(event) for predicate in predicates)


def negate(predicate: Predicate) -> Predicate:
    """Passes what does not pass the other."""
    return lambda event: not predicate(event)


def resource_version_changed(*, resyncs: bool = False) -> Predicate:
    """Passes updates that changed the object; with `resyncs` also resyncs."""

    def passes(event: Event) -> bool:
        if not isinstance(event, Updated):
            return True
        if event.resync:
            return resyncs
        return event.old.header.resource_version != event.new.header.resource_version

    return passes


def generation_changed(*, resyncs: bool = False) -> Predicate:
    """Passes updates that changed the desired state, and the first sight of a deletion.

    Objects of kinds without a generation always pass. With `resyncs` resyncs pass too.
    """

    def passes(event: Event) -> bool:
        if not isinstance(event, Updated):
            return True
        if event.resync:
            return resyncs
        old, new = event.old.header, event.new.header
        if not new.generation or old.generation != new.generation:
            return True
        return new.is_deleting and not old.is_deleting

    return passes


def deleting_changed() -> Predicate:
    """Passes updates that mark the object as being deleted."""

    def passes(event: Event) -> bool:
        if not isinstance(event, Updated):
            return True
        return event.old.header.is_deleting != event.new.header.is_deleting

    return passes


def labels_changed() -> Predicate:
    """Passes updates that changed labels."""

    def passes(event: Event) -> bool:
        return not isinstance(event, Updated) or event.old.header.labels != event.new.header.labels

    return passes


def annotations_changed() -> Predicate:
    """Passes updates that changed annotations."""

    def passes(event: Event) -> bool:
        if not isinstance(event, Updated):
            return True
        if event.resync or event.old.header.resource_version == event.new.header.resource_version:
            return False
        return annotations_of(event.old.decode()) != annotations_of(event.new.decode())

    return passes


def label_selector(selector: str) -> Predicate:
    """Passes events of objects that a selector matches, on updates before or after the change.

    Args:
        selector: in the syntax of kubectl, such as "app=web,tier!=cache".

    Raises:
        ValueError: the selector cannot be read.
    """
    parsed = parse_label_selector(selector)
    return lambda event: any(parsed.matches(stored.header.labels) for stored in objects_in(event))
