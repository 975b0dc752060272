"""Events, stored once in the form of the core group and served in both groups."""

from __future__ import annotations

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import names
from captf_runtime.testing.apiserver.kinds.base import Strategy, WriteContext
from captf_runtime.testing.apiserver.kinds.leases import check_micro_time
from captf_runtime.testing.apiserver.status import Cause, invalid_value, required

NOTE_LIMIT = 1024
TEXT_LIMIT = 128

# Field in events.k8s.io/v1 -> field in the core group, where the two differ.
_RENAMED = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _RENAMED.items()}
_ALWAYS = ("involvedObject", "source", "firstTimestamp", "lastTimestamp", "eventTime", "reportingComponent")


def _limited(obj: Object, field: str, path: str, limit: int = TEXT_LIMIT) -> list[Cause]:
    value = str(obj.get(field) or "")
    if not value:
        return [required(path)]
    if len(value) > limit:
        return [invalid_value(path, "", f"can have at most {limit} characters")]
    return []


class CoreEventStrategy(Strategy):
    """Events of the core group. Without an eventTime they follow the old, lenient rules."""

    create_on_update = True
    controller_field = "reportingController"

    def decode(self, obj: Object) -> None:
        check_micro_time(obj, "eventTime", "Event", "v1")
        series = obj.get("series")
        if isinstance(series, dict):
            check_micro_time(series, "lastObservedTime", "Event", "v1")
        elif series is None:
            obj.pop("series", None)

    def default(self, obj: Object, context: WriteContext) -> None:
        obj.setdefault("involvedObject", {})
        obj.setdefault("source", {})
        obj.setdefault("firstTimestamp", None)
        obj.setdefault("lastTimestamp", None)
        obj.setdefault("eventTime", None)
        obj["reportingComponent"] = obj.get("reportingComponent") or ""
        obj["reportingInstance"] = obj.get("reportingInstance") or ""

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        return self._legacy(self.store(obj), context)

    def _legacy(self, event: Object, context: WriteContext) -> list[Cause]:
        causes: list[Cause] = []
        namespace = event["metadata"].get("namespace") or ""
        regarding = (event.get("involvedObject") or {}).get("namespace") or ""
        mismatch = invalid_value("involvedObject.namespace", regarding, "does not match event.namespace")
        if not event.get("eventTime"):
            if (not regarding and namespace not in ("", "default")) or (regarding and namespace != regarding):
                causes.append(mismatch)
            return causes
        homes = ("kube-system",) if context.mode == "1.20" else ("default", "kube-system")
        if not regarding and namespace not in homes:
            causes.append(mismatch)
        controller = str(event.get("reportingComponent") or "")
        if not controller:
            causes.append(required(self.controller_field))
        causes += [
            invalid_value(self.controller_field, controller, message)
            for message in names.qualified_name(controller)
        ]
        for field in ("reportingInstance", "action", "reason"):
            causes += _limited(event, field, field)
        if len(str(event.get("message") or "")) > NOTE_LIMIT:
            causes.append(invalid_value("message", "", f"can have at most {NOTE_LIMIT} characters"))
        return causes

    def fields(self, obj: Object) -> dict[str, str]:
        event = self.store(obj)
        involved = event.get("involvedObject") or {}
        found = {
            f"involvedObject.{part}": str(involved.get(part) or "")
            for part in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        }
        source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
        return {
            **found,
            "reason": str(event.get("reason") or ""),
            "reportingComponent": str(event.get("reportingComponent") or ""),
            "source": str(source),
            "type": str(event.get("type") or ""),
        }

    def field_names(self) -> tuple[str, ...]:
        parts = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        return (
            *(f"involvedObject.{part}" for part in parts),
            "reason",
            "reportingComponent",
            "source",
            "type",
        )

    def unknown_field(self, field: str) -> str:
        return f"field label not supported: {field}"


class EventStrategy(CoreEventStrategy):
    """Events of events.k8s.io/v1, which demand everything that a reader needs."""

    def default(self, obj: Object, context: WriteContext) -> None:
        for field in ("regarding", "deprecatedSource"):
            obj.setdefault(field, {})
        for field in ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime"):
            obj.setdefault(field, None)

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        event = self.store(obj)
        causes = self._legacy(event, context)
        if not event.get("eventTime"):
            causes.append(required("eventTime"))
        series = event.get("series")
        if isinstance(series, dict):
            if (series.get("count") or 0) < 2:
                causes.append(invalid_value("series.count", "", "should be at least 2"))
            if not series.get("lastObservedTime"):
                causes.append(required("series.lastObservedTime"))
        if not event.get("eventTime"):
            controller = str(event.get("reportingComponent") or "")
            if not controller:
                causes.append(required("reportingController"))
            causes += [
                invalid_value("reportingController", controller, message)
                for message in names.qualified_name(controller)
            ]
            for field in ("reportingInstance", "action", "reason"):
                causes += _limited(event, field, field)
            if len(str(event.get("message") or "")) > NOTE_LIMIT:
                causes.append(invalid_value("message", "", f"can have at most {NOTE_LIMIT} characters"))
        if event.get("type") not in ("Normal", "Warning"):
            causes.append(invalid_value("type", "", f"has invalid value: {event.get('type') or ''}"))
        return list(dict.fromkeys(causes))

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        if context.mode == "1.20":
            return []
        new, before = self.store(obj), self.store(old)
        causes: list[Cause] = []
        for field in (
            "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count",
            "eventTime", "action", "related", "reportingComponent", "reportingInstance", "type",
        ):  # fmt: skip
            if (new.get(field) or None) != (before.get(field) or None):
                shown = "reportingController" if field == "reportingComponent" else field
                causes.append(invalid_value(shown, new.get(field) or "", "field is immutable"))
        return causes

    def view(self, obj: Object) -> Object:
        renamed = {_BACK.get(key, key): value for key, value in obj.items()}
        for field in ("reportingController", "reportingInstance"):
            if not renamed.get(field):
                renamed.pop(field, None)
        return renamed

    def store(self, obj: Object) -> Object:
        stored = {_RENAMED.get(key, key): value for key, value in obj.items()}
        for field in _ALWAYS:
            if field not in stored:
                stored[field] = {} if field in ("involvedObject", "source") else None
        stored["reportingComponent"] = stored.get("reportingComponent") or ""
        stored["reportingInstance"] = stored.get("reportingInstance") or ""
        return stored

    def fields(self, obj: Object) -> dict[str, str]:
        found = super().fields(obj)
        regarding = {
            name.replace("involvedObject", "regarding"): value
            for name, value in found.items()
            if name.startswith("involvedObject.")
        }
        return {
            **regarding,
            "reason": found["reason"],
            "reportingController": found["reportingComponent"],
            "type": found["type"],
        }

    def field_names(self) -> tuple[str, ...]:
        parts = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        return (*(f"regarding.{part}" for part in parts), "reason", "reportingController", "type")
