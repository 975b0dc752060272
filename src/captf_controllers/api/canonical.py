"""JSON read with its number literals intact, and written in the forms that are hashed and rendered.

A number is kept as the text that was written: `1.50` stays `1.50`, and an integer of forty digits stays
exact. Everything else becomes the plain Python value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn, TypeAlias, Union

MAX_DEPTH = 200
"""Deepest nesting that is read or written; deeper values are refused, not recursed into."""


class Number:
    """A JSON number by its literal."""

    __slots__ = ("literal",)

    def __init__(self, literal: str) -> None:
        self.literal = literal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and other.literal == self.literal

    def __hash__(self) -> int:
        return hash(self.literal)

    def __repr__(self) -> str:
        return f"Number({self.literal!r})"


Json: TypeAlias = Union[bool, int, float, str, Number, Sequence["Json"], Mapping[str, "Json"], None]  # noqa: UP007


class JsonError(ValueError):
    """A value is not JSON, or not JSON of the form asked for. The message never quotes the value."""


_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_UNSAFE = re.compile('[\x00-\x1f"\\\\\u2028\u2029\ud800-\udfff]')
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{\]}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def parse(text: str | bytes) -> Json:
    """Read one JSON value; of duplicate keys the last wins.

    Raises:
        JsonError: the text is not UTF-8, not JSON (NaN and Infinity are not), or nested deeper than
            `MAX_DEPTH`.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            raise JsonError("not valid UTF-8") from None
    _check_depth(text)
    try:
        value: Json = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_no_constant)
    except JsonError:
        raise
    except ValueError as error:
        # The decoder's own message quotes nothing but a position.
        position = getattr(error, "pos", None)
        where = f" (at character {position})" if isinstance(position, int) else ""
        raise JsonError(f"not valid JSON{where}") from None
    except RecursionError:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels") from None
    return value


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"not valid JSON: {name} is not a number")


def _check_depth(text: str) -> None:
    depth = 0
    for match in _BRACKETS.finditer(text):
        match text[match.start()]:
            case "[" | "{":
                depth += 1
                if depth > MAX_DEPTH:
                    raise JsonError(f"nested deeper than {MAX_DEPTH} levels")
            case "]" | "}":
                depth -= 1
            case _:
                pass


def quote(text: str) -> str:
    """Return the text as a JSON string with minimal escapes; lone surrogates become U+FFFD."""
    return f'"{_UNSAFE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if "\ud800" <= char <= "\udfff":
        return "\ufffd"
    return _SHORT_ESCAPES.get(char) or f"\\u{ord(char):04x}"


def canonical(value: Json) -> str:
    """Return the canonical form: no whitespace, keys sorted by their bytes, integers only.

    Raises:
        JsonError: a number has a fraction or an exponent, or the value is not JSON.
    """
    return "".join(_write(value, sort=True, integers=True, indent="", depth=0))


def canonical_any_number(value: Json) -> str:
    """Return the canonical form with every number's literal unchanged (`1.5` and `1.50` differ).

    Raises:
        JsonError: the value is not JSON.
    """
    return "".join(_write(value, sort=True, integers=False, indent="", depth=0))


def compact(value: Json) -> str:
    """Return the value without whitespace, keys in their order and number literals unchanged.

    Raises:
        JsonError: the value is not JSON.
    """
    return "".join(_write(value, sort=False, integers=False, indent="", depth=0))


def indented(value: Json) -> str:
    """Return the value in two-space indentation with a final newline, keys in their order.

    Raises:
        JsonError: the value is not JSON.
    """
    return "".join(_write(value, sort=False, integers=False, indent="  ", depth=0)) + "\n"


def _write(value: Json, *, sort: bool, integers: bool, indent: str, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels")
    if value is None:
        yield "null"
    elif value is True:
        yield "true"
    elif value is False:
        yield "false"
    elif isinstance(value, str):
        yield quote(value)
    elif isinstance(value, int | float | Number):
        yield _number(value, integers)
    elif isinstance(value, Mapping):
        yield from _write_members(value, sort, integers, indent, depth)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        if not value:
            yield "[]"
            return
        separator, end = _layout(indent, depth)
        yield "["
        for index, item in enumerate(value):
            yield ("," if index else "") + separator
            yield from _write(item, sort=sort, integers=integers, indent=indent, depth=depth + 1)
        yield end + "]"
    else:
        raise JsonError(f"a {type(value).__name__} is not JSON")


def _write_members(
    value: Mapping[str, Json], sort: bool, integers: bool, indent: str, depth: int
) -> Iterator[str]:
    if not value:
        yield "{}"
        return
    separator, end = _layout(indent, depth)
    keys = sorted(value, key=_key_bytes) if sort else list(value)
    yield "{"
    for index, key in enumerate(keys):
        yield ("," if index else "") + separator + quote(key) + (": " if indent else ":")
        yield from _write(value[key], sort=sort, integers=integers, indent=indent, depth=depth + 1)
    yield end + "}"


def _layout(indent: str, depth: int) -> tuple[str, str]:
    return ("\n" + indent * (depth + 1), "\n" + indent * depth) if indent else ("", "")


def _key_bytes(key: object) -> bytes:
    if not isinstance(key, str):
        raise JsonError("a key is not a string")
    return _SURROGATE.sub("\ufffd", key).encode()


def _number(value: int | float | Number, integers: bool) -> str:
    if isinstance(value, Number):
        literal = value.literal
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise JsonError("a number that is not finite is not JSON")
        literal = repr(value)
    else:
        literal = str(value)
    if integers and not _INTEGER.fullmatch(literal):
        raise JsonError("a number has a fraction or an exponent, which cannot be hashed")
    if not _NUMBER.fullmatch(literal):
        raise JsonError("a number literal is not JSON")
    return literal
