"""What is wrong with one field of an object, worded as the API server words it.

A `Cause` is one entry of `Status.details.causes`. The constructors below build the message from the kind of
error, the offending value and a detail; values are printed in the notation of the server's own language,
because clients and people match on these texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Reason = Literal[
    "FieldValueInvalid",
    "FieldValueTypeInvalid",
    "FieldValueRequired",
    "FieldValueNotSupported",
    "FieldValueForbidden",
    "FieldValueDuplicate",
    "FieldValueNotFound",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "NamespaceTerminating",
]

_LABELS: dict[Reason, str] = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueRequired": "Required value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotFound": "Not found",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
}

NO_FIELD = "<nil>"
"""The field of a cause that belongs to no field: the server prints its null path like this."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A value whose printed form is already known, for values that no JSON value stands for."""

    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One field error.

    Args:
        reason: the machine-readable kind, as in `Status.details.causes[].reason`.
        message: the text without the field, for example `Required value`.
        field: the path, for example `spec.ports[0].name`.
    """

    reason: Reason
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def as_dict(self) -> dict[str, str]:
        """The cause as it appears in a Status."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def aggregate(causes: Iterable[Cause]) -> str:
    """Join causes as the message of an `Invalid` status does: one bare, several in brackets, repeats
    dropped.
    """
    texts = list(dict.fromkeys(str(cause) for cause in causes))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def invalid(field: str, value: object, detail: str) -> Cause:
    """A value that is not acceptable, with the reason."""
    return _with_value("FieldValueInvalid", field, value, detail)


def type_invalid(field: str, value: object, detail: str) -> Cause:
    """A value of the wrong type (servers from 1.23 on; older ones say `FieldValueInvalid`)."""
    return _with_value("FieldValueTypeInvalid", field, value, detail)


def required(field: str, detail: str = "") -> Cause:
    """A value that is missing."""
    return _without_value("FieldValueRequired", field, detail)


def forbidden(field: str, detail: str) -> Cause:
    """A value that must not be there."""
    return _without_value("FieldValueForbidden", field, detail)


def duplicate(field: str, value: object) -> Cause:
    """A second value with the same key."""
    return _with_value("FieldValueDuplicate", field, value, "")


def not_supported(field: str, value: object, supported: Sequence[str]) -> Cause:
    """A value outside an enumeration."""
    detail = "supported values: " + ", ".join(go_quote(text) for text in supported) if supported else ""
    return _with_value("FieldValueNotSupported", field, value, detail)


def too_long(field: str, limit: int) -> Cause:
    """A text over its length, in bytes as the message says although the limit counts characters."""
    unit = "byte" if limit == 1 else "bytes"
    return _without_value("FieldValueTooLong", field, f"may not be more than {limit} {unit}")


def too_many(field: str, actual: int, limit: int) -> Cause:
    """A list over its length."""
    unit = "item" if limit == 1 else "items"
    return _with_value("FieldValueTooMany", field, actual, f"must have at most {limit} {unit}")


def _with_value(reason: Reason, field: str, value: object, detail: str) -> Cause:
    message = f"{_LABELS[reason]}: {go_value(value)}"
    return Cause(reason, f"{message}: {detail}" if detail else message, field)


def _without_value(reason: Reason, field: str, detail: str) -> Cause:
    message = _LABELS[reason]
    return Cause(reason, f"{message}: {detail}" if detail else message, field)


def go_value(value: object) -> str:
    """Print a bad value: scalars plainly, texts quoted, everything else as a literal."""
    if isinstance(value, Verbatim):
        return value.text
    if value is None:
        return '"null"'
    if isinstance(value, bool | int | float):
        return go_scalar(value)
    if isinstance(value, str):
        return go_quote(value)
    return go_literal(value)


def go_literal(value: object) -> str:
    """Print a JSON value as a literal with its types, as the server does for objects and lists."""
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, dict):
        inner = ", ".join(f"{go_quote(key)}:{go_literal(value[key])}" for key in sorted(value))
        return "map[string]interface {}{" + inner + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(go_literal(item) for item in value) + "}"
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, bool | int | float):
        return go_scalar(value)
    return str(value)


def go_scalar(value: bool | int | float) -> str:
    """Print a boolean or number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return go_float(value)


def go_float(value: float) -> str:
    """Print a float with the shortest digits that read back the same, in exponent form below 1e-04 and from
    1e+06.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    digits, _, exponent_text = _shortest_exponent(abs(value)).partition("e")
    exponent = int(exponent_text)
    if exponent < -4 or exponent >= 6:
        return f"{sign}{digits}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    return f"{sign}{abs(value):.{max(0, len(digits.replace('.', '')) - 1 - exponent)}f}"


def _shortest_exponent(value: float) -> str:
    """`d.ddde±x` with the digits of the shortest representation."""
    for precision in range(17):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            return text
    return f"{value:.17e}"


_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def go_quote(text: str) -> str:
    """Quote a text with double quotes; control and unprintable characters are escaped."""
    out = ['"']
    for character in text:
        if character in _ESCAPES:
            out.append(_ESCAPES[character])
        elif character == " " or character.isprintable():
            out.append(character)
        else:
            code = ord(character)
            if code < 0x80:
                out.append(f"\\x{code:02x}")
            elif code < 0x10000:
                out.append(f"\\u{code:04x}")
            else:
                out.append(f"\\U{code:08x}")
    out.append('"')
    return "".join(out)
