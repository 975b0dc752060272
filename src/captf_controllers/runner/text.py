"""Cutting text to the byte limits of the result document and of events."""

from __future__ import annotations


def encoded(text: str) -> bytes:
    """UTF-8 of a text; a lone surrogate, which UTF-8 cannot hold, becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def cut(text: str, limit: int) -> str:
    """The longest prefix of `text` that takes at most `limit` bytes of UTF-8 and splits no character."""
    return encoded(text)[: max(limit, 0)].decode("utf-8", "ignore")


def first_line(text: str) -> str:
    """The first line of a text, without surrounding white space."""
    return text.strip().split("\n", 1)[0].strip()
