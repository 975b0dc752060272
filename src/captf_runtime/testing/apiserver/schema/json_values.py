"""Decoded JSON: types as the validator names them, equality, and one compact text for each value."""

from __future__ import annotations

import json
from typing import Any

Json = Any  # null, bool, int, float, str, list or dict of the same


def compact(value: Json) -> str:
    """A value as JSON without spaces, keys sorted: equal values have equal texts."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def json_type(value: Json) -> str:
    """The JSON type of a value as the validator names it; whole numbers are `integer` unless they do not
    fit.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -(2**63) <= value < 2**63 else "number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def same_json(left: Json, right: Json) -> bool:
    """Equality of JSON values: true is not 1, but 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and len(left) == len(right)
            and all(key in right and same_json(item, right[key]) for key, item in left.items())
        )
    if isinstance(left, list):
        return (
            isinstance(right, list)
            and len(left) == len(right)
            and all(same_json(a, b) for a, b in zip(left, right, strict=True))
        )
    return (type(left) is type(right) and bool(left == right)) or (
        isinstance(left, int | float) and isinstance(right, int | float) and left == right
    )
