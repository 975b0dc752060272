"""Bodies of built-in kinds against their types: wrong types are refused, unknown fields dropped and reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from captf_runtime.objects import Object, format_time, parse_time
from captf_runtime.testing.apiserver import status

Schema = Mapping[str, Any]

_SHAPES = {bool: "bool", dict: "object", list: "array", str: "string", int: "number", float: "number"}
_GO_TYPES = {"string": "string", "integer": "int32", "boolean": "bool", "object": "map", "array": "slice"}

# Times that are always there, null while they are zero.
_WRITTEN_AS_NULL = frozenset({"creationTimestamp", "eventTime", "firstTimestamp", "lastTimestamp"})


def check(schema: Schema, obj: Object, kind: str, version: str) -> list[str]:
    """Drop the fields of `obj` that the schema does not know, and nulls; returns the paths that were dropped.

    Raises a 400 `ApiStatus` for a value that the type of its field cannot hold.
    """
    unknown: list[str] = []
    _object(schema, obj, "", unknown, f'{kind} in version "{version}" cannot be handled as a {kind}')
    return unknown


def check_part(schema: Schema, part: Object, path: str, prefix: str) -> list[str]:
    """As `check`, for one part of an object such as its metadata; `prefix` begins the message of a refusal."""
    unknown: list[str] = []
    _object(schema, part, path, unknown, prefix)
    return unknown


def _object(schema: Schema, obj: Object, path: str, unknown: list[str], prefix: str) -> None:
    properties = schema.get("properties")
    additional = schema.get("additionalProperties")
    for name in list(obj):
        where = f"{path}.{name}" if path else name
        field: Schema
        if properties is not None and name in properties:
            field = properties[name]
        elif isinstance(additional, Mapping):
            field = additional
        elif properties is None or additional:
            continue
        else:
            del obj[name]
            unknown.append(where)
            continue
        if obj[name] is None and properties is not None and name not in _WRITTEN_AS_NULL:
            del obj[name]
            continue
        obj[name] = _value(field, obj[name], where, unknown, prefix)


def _value(schema: Schema, value: Any, path: str, unknown: list[str], prefix: str) -> Any:
    kind = schema.get("type")
    if value is None or kind is None or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if kind == "object":
        if not isinstance(value, dict):
            raise _wrong(value, path, kind, prefix)
        _object(schema, value, path, unknown, prefix)
    elif kind == "array":
        if not isinstance(value, list):
            raise _wrong(value, path, kind, prefix)
        items = schema.get("items") or {}
        for index, item in enumerate(value):
            value[index] = _value(items, item, f"{path}[{index}]", unknown, prefix)
    elif kind == "string":
        if not isinstance(value, str):
            raise _wrong(value, path, kind, prefix)
        if schema.get("format") == "date-time":
            return _time(value, prefix)
    elif kind == "boolean":
        if not isinstance(value, bool):
            raise _wrong(value, path, kind, prefix)
    elif kind == "integer":
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(value, path, kind, prefix)
    return value


def _time(value: str, prefix: str) -> str:
    """The time in UTC, as it is stored; fractions are left to the kinds that know them."""
    try:
        parsed = parse_time(value)
        return value if value.endswith("Z") or "." in value else format_time(parsed)
    except ValueError as problem:
        layout = "2006-01-02T15:04:05Z07:00"
        detail = f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
        raise status.bad_request(f"{prefix}: {detail}") from problem


def _wrong(value: Any, path: str, kind: str, prefix: str) -> status.ApiStatus:
    plain = "".join(part.split("]")[-1] for part in path.split("["))
    shape = _SHAPES.get(type(value), "number")
    if shape == "number" and kind == "integer":
        shape = f"number {value}"
    return status.bad_request(
        f"{prefix}: json: cannot unmarshal {shape} into Go struct field {plain} of type {_GO_TYPES[kind]}"
    )


def duplicate_fields(body: bytes) -> list[str]:
    """Paths of members that occur twice in one object of a JSON document; empty when it is none."""

    class Members(list[tuple[str, Any]]):
        """The members of one object, repeats included."""

    try:
        document = json.loads(body, object_pairs_hook=Members)
    except ValueError:
        return []
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Members):
            seen: set[str] = set()
            for name, inner in value:
                where = f"{path}.{name}" if path else name
                if name in seen and where not in found:
                    found.append(where)
                seen.add(name)
                walk(inner, where)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                walk(inner, f"{path}[{index}]")

    walk(document, "")
    return found
