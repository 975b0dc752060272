"""The two forms in which a cluster takes events; the same content in both."""

from __future__ import annotations

from typing import Final

from ..objects import EVENT, EVENTS_V1, Object, format_micro_time, format_time
from .correlation import Reference, Series

__all__ = [
    "MAX_NOTE_BYTES",
    "core_event",
    "cut",
    "event_name",
    "events_v1_event",
    "series_of",
]

MAX_NOTE_BYTES: Final = 1024
_MAX_NAME: Final = 253


def cut(text: str, limit: int) -> str:
    """The longest beginning of a text of at most `limit` bytes of UTF-8 that ends with a whole character.

    Half a character (a surrogate, as in the names of some files) becomes a question mark: it cannot be sent.
    """
    encoded = text.encode("utf-8", "replace")
    return encoded[:limit].decode("utf-8", "ignore")


def event_name(regarding: str, token: str) -> str:
    """The name of an Event object: the object's name, as far as there is room, and something unique."""
    return f"{regarding[: _MAX_NAME - len(token) - 1].rstrip('.-')}.{token}"


def series_of(series: Series) -> Object:
    """The field `series` for the present count."""
    return {"count": series.count, "lastObservedTime": format_micro_time(series.last)}


def events_v1_event(series: Series) -> Object:
    """The Event as `events.k8s.io/v1` has it."""
    occurrence = series.occurrence
    event: Object = {
        "apiVersion": EVENTS_V1.api_version,
        "kind": EVENTS_V1.kind,
        "metadata": {"name": series.name, "namespace": series.namespace},
        "eventTime": format_micro_time(occurrence.time),
        "reportingController": occurrence.controller,
        "reportingInstance": occurrence.instance,
        "action": occurrence.action,
        "reason": occurrence.reason,
        "type": occurrence.type,
        "note": cut(occurrence.note, MAX_NOTE_BYTES),
        "regarding": _reference(occurrence.regarding),
    }
    if occurrence.related is not None:
        event["related"] = _reference(occurrence.related)
    if series.count > 1:
        event["series"] = series_of(series)
    return event


def core_event(series: Series) -> Object:
    """The Event as core `v1` has it, for servers that know no other."""
    occurrence = series.occurrence
    event: Object = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": series.name, "namespace": series.namespace},
        "eventTime": format_micro_time(occurrence.time),
        "firstTimestamp": format_time(occurrence.time),
        "lastTimestamp": format_time(series.last),
        "reportingComponent": occurrence.controller,
        "reportingInstance": occurrence.instance,
        "source": {"component": occurrence.controller},
        "action": occurrence.action,
        "reason": occurrence.reason,
        "type": occurrence.type,
        "message": cut(occurrence.note, MAX_NOTE_BYTES),
        "involvedObject": _reference(occurrence.regarding),
    }
    if occurrence.related is not None:
        event["related"] = _reference(occurrence.related)
    if series.count > 1:
        event["series"] = series_of(series)
    return event


def _reference(reference: Reference) -> Object:
    fields = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
    }
    return {name: value for name, value in fields.items() if value}
