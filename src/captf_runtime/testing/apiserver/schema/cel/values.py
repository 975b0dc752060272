"""Values of expressions, and how values of an object become them under a schema.

Booleans, text, bytes, `int` and `float` stand for themselves (a schema's `number` is always a `float`, as a
double is another type than an integer); maps and objects are `dict`, lists are `ListValue`. Unsigned
integers are `Unsigned`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from captf_runtime.testing.apiserver.schema.cel.syntax import RESERVED

if TYPE_CHECKING:
    from captf_runtime.testing.apiserver.schema.compiled import Node

# bool, int, float, str, bytes, None, dict, ListValue, Timestamp, Duration, Optional or Unsigned
Value = Any


class EvaluationError(ValueError):
    """An expression that has no value, for example because a field is absent."""


class Unsigned(int):
    """An unsigned integer."""


class ListValue(list[Value]):
    """A list; as a set or a map of the schema it compares without regard to order and joins without
    repeats.
    """

    def __init__(
        self, items: Sequence[Value] = (), *, list_type: str = "", keys: tuple[str, ...] = ()
    ) -> None:
        super().__init__(items)
        self.list_type = list_type
        self.keys = keys


class Timestamp(datetime):
    """A point in time."""


class Duration(timedelta):
    """A length of time."""


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent; `...` stands for absence because null is a value."""

    value: Value = ...

    @property
    def present(self) -> bool:
        return self.value is not ...


# Property names that are no identifiers, or are words of the language, are written escaped in rules.
_RESERVED = RESERVED | {"true", "false", "null", "in"}


def escape_property(name: str) -> str | None:
    """The identifier under which a rule reaches a property, or None when there is none."""
    if name in _RESERVED:
        return f"__{name}__"
    if not re.fullmatch(r"[A-Za-z_.\-/$][A-Za-z0-9_.\-/]*", name) or "$" in name:
        return None
    escaped = name.replace("__", "__underscores__")
    return escaped.replace(".", "__dot__").replace("-", "__dash__").replace("/", "__slash__")


def typed(value: Any, node: Node | None, *, is_root: bool = False) -> Value:
    """A value of an object as a rule sees it.

    Args:
        value: the JSON value.
        node: its schema; without one the value is taken as it is.
        is_root: whether it is the whole object, whose `apiVersion`, `kind`, `metadata.name` and
            `metadata.generateName` are always there to be read.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return _typed_object(value, node, is_root=is_root)
    if isinstance(value, list):
        items = node.items if node is not None else None
        list_type = node.list_type if node is not None else ""
        keys = node.list_keys if node is not None else ()
        return ListValue([typed(item, items) for item in value], list_type=list_type, keys=keys)
    if node is None:
        return value
    if node.type == "number" and isinstance(value, int):
        return float(value)
    if node.type == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return _typed_text(value, str(node.schema.get("format") or ""))
    return value


def _typed_object(value: dict[str, Any], node: Node | None, *, is_root: bool) -> dict[str, Value]:
    if node is None:
        return {key: typed(item, None) for key, item in value.items()}
    if node.additional is not None or (node.additional_allowed and not node.properties):
        return {key: typed(item, node.additional) for key, item in value.items()}
    out: dict[str, Value] = {}
    for name, sub in node.properties.items():
        escaped = escape_property(name)
        if name in value and escaped is not None:
            out[escaped] = typed(value[name], sub)
    if is_root or node.embedded:
        for name in ("apiVersion", "kind"):
            if name in value:
                out[name] = value[name]
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            out["metadata"] = {key: metadata[key] for key in ("name", "generateName") if key in metadata}
    return out


def _typed_text(value: str, format_name: str) -> Value:
    if format_name in ("date-time", "datetime", "date"):
        return timestamp(value if format_name != "date" else f"{value}T00:00:00Z")
    if format_name == "duration":
        return duration(value)
    if format_name == "byte":
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise EvaluationError(f"error converting value to bytes: {error}") from error
    return value


def timestamp(text: str) -> Timestamp:
    """Read an RFC 3339 time."""
    try:
        parsed = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
    except ValueError as error:
        raise EvaluationError(f"invalid timestamp {text!r}") from error
    if parsed.tzinfo is None:
        raise EvaluationError(f"invalid timestamp {text!r}")
    moment = parsed.astimezone(UTC)
    return Timestamp(
        moment.year,
        moment.month,
        moment.day,
        moment.hour,
        moment.minute,
        moment.second,
        moment.microsecond,
        UTC,
    )


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|us|µs|ns|h|m|s)")


def duration(text: str) -> Duration:
    """Read a duration such as `1h30m`."""
    body = text.lstrip("+-")
    if body == "0":
        return Duration()
    parts = _DURATION.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise EvaluationError(f"invalid duration {text!r}")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return Duration(seconds=-seconds if text.startswith("-") else seconds)


def type_name(value: Value) -> str:
    """The name of a value's type, for messages."""
    for kind, name in (
        (bool, "bool"),
        (Unsigned, "uint"),
        (int, "int"),
        (float, "double"),
        (str, "string"),
        (bytes, "bytes"),
        (list, "list"),
        (dict, "map"),
        (Timestamp, "timestamp"),
        (Duration, "duration"),
        (Optional, "optional_type"),
    ):
        if isinstance(value, kind):
            return name
    return "null_type"


def is_number(value: Value) -> bool:
    """Whether a value is an integer or a double."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def equals(left: Value, right: Value) -> bool:
    """Equality: numbers by value whatever their type, sets without regard to order, else same type and
    content.
    """
    if is_number(left) and is_number(right):
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return _lists_equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(key in right and equals(left[key], right[key]) for key in left)
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left.present == right.present and (not left.present or equals(left.value, right.value))
    return type_name(left) == type_name(right) and bool(left == right)


def _lists_equal(left: list[Value], right: list[Value]) -> bool:
    if len(left) != len(right):
        return False
    if isinstance(left, ListValue) and left.list_type in ("set", "map"):
        return all(any(equals(a, b) for b in right) for a in left)
    return all(equals(a, b) for a, b in zip(left, right, strict=True))


def joined(left: list[Value], right: list[Value]) -> ListValue:
    """`left + right`: sets drop repeats, maps let entries of the right replace those of the same key."""
    list_type = left.list_type if isinstance(left, ListValue) else ""
    keys = left.keys if isinstance(left, ListValue) else ()
    result = ListValue(left, list_type=list_type, keys=keys)
    for item in right:
        if list_type == "set" and any(equals(item, present) for present in result):
            continue
        if list_type == "map" and isinstance(item, dict):
            same = [
                index
                for index, present in enumerate(result)
                if isinstance(present, dict) and all(equals(present.get(key), item.get(key)) for key in keys)
            ]
            if same:
                result[same[0]] = item
                continue
        result.append(item)
    return result
