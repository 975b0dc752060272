"""The functions and methods that rules may call: the standard ones and the server's libraries of lists,
text, sets.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from urllib.parse import parse_qs, urlsplit

from captf_runtime.testing.apiserver.schema.causes import go_float
from captf_runtime.testing.apiserver.schema.cel.syntax import Call, Expression, Identifier
from captf_runtime.testing.apiserver.schema.cel.values import (
    Duration,
    EvaluationError,
    ListValue,
    Optional,
    Timestamp,
    Unsigned,
    Value,
    duration,
    equals,
    is_number,
    joined,
    timestamp,
    type_name,
)
from captf_runtime.testing.apiserver.schema.regular_expressions import PatternError, compile_pattern

__all__ = ["TypeValue", "call_function", "call_method", "call_namespaced", "exists", "is_namespace", "joined"]

_NO_OVERLOAD = "no such overload"


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value, as in `type(x) == int`."""

    name: str


def _overload(condition: bool) -> None:
    if not condition:
        raise EvaluationError(_NO_OVERLOAD)


def _size(value: Value) -> int:
    _overload(isinstance(value, str | bytes | list | dict))
    return len(value)


def _to_string(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, Timestamp):
        text = value.astimezone(UTC).isoformat()
        return text.replace("+00:00", "Z")
    if isinstance(value, Duration):
        return f"{go_float(value.total_seconds())}s"
    _overload(isinstance(value, str | int))
    return str(value)


def _to_int(value: Value) -> int:
    if isinstance(value, Timestamp):
        return int(value.timestamp())
    _overload(isinstance(value, str | int | float) and not isinstance(value, bool))
    try:
        number = int(value, 10) if isinstance(value, str) else int(value)
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"error converting {value!r} to int") from error
    if not -(2**63) <= number < 2**63:
        raise EvaluationError("integer overflow")
    return number


def _to_unsigned(value: Value) -> Unsigned:
    number = _to_int(value) if not isinstance(value, Unsigned) else value
    if number < 0:
        raise EvaluationError("unsigned integer overflow")
    return Unsigned(number)


def _to_double(value: Value) -> float:
    _overload(isinstance(value, str | int | float) and not isinstance(value, bool))
    try:
        return float(value)
    except ValueError as error:
        raise EvaluationError(f"error converting {value!r} to double") from error


def _to_bool(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("1", "t", "true", "TRUE", "True"):
        return True
    if value in ("0", "f", "false", "FALSE", "False"):
        return False
    raise EvaluationError(f"error converting {value!r} to bool")


def _to_bytes(value: Value) -> bytes:
    _overload(isinstance(value, str | bytes))
    return value.encode() if isinstance(value, str) else bytes(value)


def _type(value: Value) -> TypeValue:
    return TypeValue("type" if isinstance(value, TypeValue) else type_name(value))


def _is_url(value: Value) -> bool:
    _overload(isinstance(value, str))
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path.startswith("/"))) or value.startswith("/")


def _is_ip(value: Value) -> bool:
    _overload(isinstance(value, str))
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _is_cidr(value: Value) -> bool:
    _overload(isinstance(value, str))
    try:
        ipaddress.ip_interface(value)
    except ValueError:
        return False
    return "/" in value


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL."""

    text: str

    def part(self, name: str) -> Value:
        parts = urlsplit(self.text)
        if name == "getScheme":
            return parts.scheme
        if name == "getHost":
            return parts.netloc.rpartition("@")[2]
        if name == "getHostname":
            return parts.hostname or ""
        if name == "getPort":
            return str(parts.port) if parts.port is not None else ""
        if name == "getEscapedPath":
            return parts.path
        return {key: ListValue(values) for key, values in parse_qs(parts.query).items()}


_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "size": _size,
    "string": _to_string,
    "int": _to_int,
    "uint": _to_unsigned,
    "double": _to_double,
    "bool": _to_bool,
    "bytes": _to_bytes,
    "dyn": lambda value: value,
    "type": _type,
    "duration": lambda value: value if isinstance(value, Duration) else duration(str(value)),
    "timestamp": lambda value: value if isinstance(value, Timestamp) else timestamp(str(value)),
    "isURL": _is_url,
    "url": lambda value: Url(value),
    "isIP": _is_ip,
    "isCIDR": _is_cidr,
}


def _matches(text: Value, pattern: Value) -> bool:
    _overload(isinstance(text, str) and isinstance(pattern, str))
    try:
        return compile_pattern(pattern).search(text) is not None
    except PatternError as error:
        raise EvaluationError(str(error)) from error


def _text(method: Callable[..., Value], *kinds: type) -> Callable[..., Value]:
    """Check receiver and arguments of a method of text before calling it."""

    def call(target: Value, *arguments: Value) -> Value:
        _overload(isinstance(target, str) and len(arguments) <= len(kinds))
        for argument, kind in zip(arguments, kinds, strict=False):
            _overload(isinstance(argument, kind) and not isinstance(argument, bool))
        return method(target, *arguments)

    return call


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    if not start <= stop <= len(text):
        raise EvaluationError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


def _ascii_case(text: str, *, upper: bool) -> str:
    return "".join((c.upper() if upper else c.lower()) if c.isascii() else c for c in text)


def _split(text: str, separator: str, limit: int = -1) -> ListValue:
    if limit == 0:
        return ListValue()
    if separator == "":
        parts = list(text)
        if 0 < limit < len(parts):
            parts = [*parts[: limit - 1], "".join(parts[limit - 1 :])]
        return ListValue(parts)
    return ListValue(text.split(separator, limit - 1 if limit > 0 else -1))


def _find(text: str, pattern: str) -> str:
    match = compile_pattern(pattern).search(text)
    return match.group() if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> ListValue:
    found = [match.group() for match in compile_pattern(pattern).finditer(text)]
    return ListValue(found if limit < 0 else found[:limit])


def _format(template: str, values: list[Value]) -> str:
    remaining = list(values)

    def replace(match: re.Match[str]) -> str:
        if match.group(2) == "%":
            return "%"
        if not remaining:
            raise EvaluationError("index out of range: format clause has no argument")
        value = remaining.pop(0)
        clause, precision = match.group(2), match.group(1)
        if clause == "d" and isinstance(value, int):
            return str(int(value))
        if clause in "fe" and is_number(value):
            return f"{float(value):{precision or '.6'}{clause}}"
        if clause in "bxXo" and isinstance(value, int):
            return f"{int(value):{clause}}"
        if clause == "s":
            return _shown(value)
        raise EvaluationError(f"could not parse formatting clause: %{clause} does not fit {type_name(value)}")

    return re.sub(r"%(\.\d+)?([dfesbxXo%])", replace, template)


def _shown(value: Value) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_quoted(item) for item in value) + "]"
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_quoted(key)}: {_quoted(value[key])}" for key in sorted(value, key=str)) + "}"
        )
    return "null" if value is None else _to_string(value)


def _quoted(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) else _shown(value)


def _list_sum(items: list[Value]) -> Value:
    if not items:
        return 0
    total = items[0]
    for item in items[1:]:
        total = total + item
    return total


def _is_sorted(items: list[Value]) -> bool:
    return all(left <= right for left, right in itertools.pairwise(items))


def _extreme(items: list[Value], *, largest: bool) -> Value:
    if not items:
        raise EvaluationError(f"{'max' if largest else 'min'} called on empty list")
    return max(items) if largest else min(items)


def _position(items: Value, item: Value, *, last: bool) -> int:
    order = range(len(items) - 1, -1, -1) if last else range(len(items))
    return next((index for index in order if equals(items[index], item)), -1)


def _index_of(target: Value, *arguments: Value, last: bool = False) -> Value:
    if isinstance(target, list):
        _overload(len(arguments) == 1)
        return _position(target, arguments[0], last=last)
    _overload(isinstance(target, str) and isinstance(arguments[0], str))
    offset = arguments[1] if len(arguments) > 1 else None
    if last:
        return int(
            target.rfind(arguments[0], 0, len(target) if offset is None else offset + len(arguments[0]))
        )
    return int(target.find(arguments[0], offset or 0))


def _list(method: Callable[..., Value]) -> Callable[..., Value]:
    def call(target: Value, *arguments: Value) -> Value:
        _overload(isinstance(target, list))
        try:
            return method(target, *arguments)
        except TypeError as error:
            raise EvaluationError(_NO_OVERLOAD) from error

    return call


def _join(items: list[Value], separator: str = "") -> str:
    _overload(all(isinstance(item, str) for item in items))
    return separator.join(items)


def _time_part(name: str) -> Callable[..., Value]:
    def call(target: Value, *zone: Value) -> int:
        if isinstance(target, Duration):
            seconds = target.total_seconds()
            scale = {"getHours": 3600, "getMinutes": 60, "getSeconds": 1}.get(name)
            if name == "getMilliseconds":
                return int(seconds * 1000) % 1000
            _overload(scale is not None)
            return int(seconds // (scale or 1))
        _overload(isinstance(target, Timestamp))
        parts: dict[str, int] = {
            "getFullYear": target.year,
            "getMonth": target.month - 1,
            "getDate": target.day,
            "getDayOfMonth": target.day - 1,
            "getDayOfWeek": (target.weekday() + 1) % 7,
            "getDayOfYear": target.timetuple().tm_yday - 1,
            "getHours": target.hour,
            "getMinutes": target.minute,
            "getSeconds": target.second,
            "getMilliseconds": target.microsecond // 1000,
        }
        return parts[name]

    return call


def _optional(method: Callable[[Optional], Value]) -> Callable[..., Value]:
    def call(target: Value) -> Value:
        _overload(isinstance(target, Optional))
        return method(target)

    return call


def _optional_value(target: Optional) -> Value:
    if not target.present:
        raise EvaluationError("optional.none() dereference")
    return target.value


def _url_part(name: str) -> Callable[..., Value]:
    def call(target: Value) -> Value:
        _overload(isinstance(target, Url))
        return target.part(name)

    return call


_METHODS: dict[str, Callable[..., Value]] = {
    "size": lambda target: _size(target),
    "startsWith": _text(str.startswith, str),
    "endsWith": _text(str.endswith, str),
    "contains": _text(lambda text, part: part in text, str),
    "matches": _matches,
    "charAt": _text(_char_at, int),
    "substring": _text(_substring, int, int),
    "lowerAscii": _text(lambda text: _ascii_case(text, upper=False)),
    "upperAscii": _text(lambda text: _ascii_case(text, upper=True)),
    "trim": _text(str.strip),
    "replace": _text(str.replace, str, str, int),
    "split": _text(_split, str, int),
    "reverse": _text(lambda text: text[::-1]),
    "find": _text(_find, str),
    "findAll": _text(_find_all, str, int),
    "format": _text(_format, list),
    "indexOf": lambda target, *arguments: _index_of(target, *arguments),
    "lastIndexOf": lambda target, *arguments: _index_of(target, *arguments, last=True),
    "join": _list(_join),
    "sum": _list(_list_sum),
    "min": _list(lambda items: _extreme(items, largest=False)),
    "max": _list(lambda items: _extreme(items, largest=True)),
    "isSorted": _list(_is_sorted),
    "hasValue": _optional(lambda target: target.present),
    "value": _optional(_optional_value),
    "or": lambda target, other: other,
    "orValue": lambda target, other: other,
    **{
        name: _time_part(name)
        for name in (
            "getFullYear",
            "getMonth",
            "getDate",
            "getDayOfMonth",
            "getDayOfWeek",
            "getDayOfYear",
            "getHours",
            "getMinutes",
            "getSeconds",
            "getMilliseconds",
        )
    },
    **{
        name: _url_part(name)
        for name in ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery")
    },
}


def _sets_contains(left: list[Value], right: list[Value]) -> bool:
    return all(any(equals(item, present) for present in left) for item in right)


_NAMESPACED: dict[tuple[str, str], Callable[..., Value]] = {
    ("optional", "of"): lambda value: Optional(value),
    ("optional", "none"): lambda: Optional(),
    ("optional", "ofNonZeroValue"): lambda value: Optional(value) if value else Optional(),
    ("sets", "contains"): _sets_contains,
    ("sets", "equivalent"): lambda left, right: _sets_contains(left, right) and _sets_contains(right, left),
    ("sets", "intersects"): lambda left, right: any(any(equals(a, b) for b in right) for a in left),
    ("math", "greatest"): lambda *values: max(values[0]) if isinstance(values[0], list) else max(values),
    ("math", "least"): lambda *values: min(values[0]) if isinstance(values[0], list) else min(values),
}

OPERATOR_NAMES = frozenset(
    {
        "_&&_",
        "_||_",
        "_?_:_",
        "_==_",
        "_!=_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "_in_",
        "_+_",
        "_-_",
        "_*_",
        "_/_",
    }
    | {"_%_", "!_", "-_", "_[_]", "_[?_]"}
)


def is_namespace(target: Expression, function: str) -> bool:
    """Whether `target.function(...)` is a function of a library and not a method, as `optional.of(x)` is."""
    return isinstance(target, Identifier) and (target.name, function) in _NAMESPACED


def exists(call: Call) -> bool:
    """Whether what a call names exists."""
    if call.target is None:
        return call.function in OPERATOR_NAMES or call.function in _FUNCTIONS or call.function == "matches"
    return is_namespace(call.target, call.function) or call.function in _METHODS


def call_function(name: str, arguments: list[Any]) -> Value:
    """Call a function by its name."""
    if name == "matches" and len(arguments) == 2:
        return _matches(*arguments)
    _overload(len(arguments) == 1)
    return _FUNCTIONS[name](arguments[0])


def call_method(target: Value, name: str, arguments: list[Any]) -> Value:
    """Call a method of a value."""
    try:
        return _METHODS[name](target, *arguments)
    except TypeError as error:
        raise EvaluationError(_NO_OVERLOAD) from error
    except PatternError as error:
        raise EvaluationError(str(error)) from error


def call_namespaced(namespace: str, name: str, arguments: list[Any]) -> Value:
    """Call a function of a library."""
    try:
        return _NAMESPACED[namespace, name](*arguments)
    except TypeError as error:
        raise EvaluationError(_NO_OVERLOAD) from error


def time_arithmetic(operator: str, left: Value, right: Value) -> Value:
    """Sums and differences of times and durations, or None when the operands are no such."""
    if isinstance(left, Timestamp) and isinstance(right, Duration):
        moved = left + right if operator == "+" else left - right if operator == "-" else None
        return None if moved is None else timestamp(moved.isoformat())
    if isinstance(left, Duration) and isinstance(right, Timestamp) and operator == "+":
        return timestamp((right + left).isoformat())
    if isinstance(left, Timestamp) and isinstance(right, Timestamp) and operator == "-":
        return Duration(seconds=(left - right).total_seconds())
    if isinstance(left, Duration) and isinstance(right, Duration) and operator in "+-":
        total = left.total_seconds() + (1 if operator == "+" else -1) * right.total_seconds()
        return Duration(seconds=total)
    return None
