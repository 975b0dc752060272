"""From the shared types of the pass to those of one kind."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def narrow(value: object, expected: type[T]) -> T:
    """The value as the type that the adapter's kind has. Raises TypeError for the scope of another kind."""
    if not isinstance(value, expected):
        raise TypeError(f"expected a {expected.__name__}, got a {type(value).__name__}")
    return value
