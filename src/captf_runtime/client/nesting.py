"""JSON that is nested deeper than any object of Kubernetes has a use for.

The decoder gives up some hundred levels down (how many depends on the stack above it), while an API server
stores ten thousand. Whoever may write one object of a watched kind could so stop the reading of all of them.
The functions here take a text apart without recursion: what is too deep concerns its own object alone.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = ["MAX_DEPTH", "TooDeep", "cut", "is_deep"]

MAX_DEPTH: Final = 200
"""Levels of nesting that an object may have: far below what the decoder takes on any stack."""

_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_TEXTS: Final = re.compile(_TEXT, re.DOTALL)
_TOKENS: Final = re.compile(_TEXT + rb"|[\[\]{}]", re.DOTALL)
_OPENING: Final = frozenset(b"[{")
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


class TooDeep(msgspec.DecodeError):
    """A JSON text is nested deeper than `MAX_DEPTH`."""


def is_deep(data: bytes, limit: int = MAX_DEPTH) -> bool:
    """Say whether a JSON text is nested deeper than the limit.

    Most objects have fewer brackets than that, which two counts tell.
    """
    if data.count(b"{") + data.count(b"[") <= limit:
        return False
    depth = 0
    for bracket in _TEXTS.sub(b"", data).translate(None, _NO_BRACKETS):
        depth += 1 if bracket in _OPENING else -1
        if depth > limit:
            return True
    return False


def cut(data: bytes, depth: int) -> tuple[bytes, list[bytes]]:
    """Return the text with every array and object below `depth` levels replaced by a number, and those parts.

    The number is the part's place in the list. Takes time linear in the text, and no stack.

    Raises:
        msgspec.DecodeError: the brackets do not match.
    """
    kept: list[bytes] = []
    parts: list[bytes] = []
    level = start = rest = 0
    for token in _TOKENS.finditer(data):
        first = data[token.start()]
        if first in _OPENING:
            level += 1
            if level == depth + 1:
                start = token.start()
                kept.append(data[rest:start])
        elif first != 0x22:
            if level == depth + 1:
                rest = token.end()
                kept.append(b"%d" % len(parts))
                parts.append(data[start:rest])
            level -= 1
            if level < 0:
                break
    if level != 0:
        raise msgspec.DecodeError("brackets that do not match")
    kept.append(data[rest:])
    return b"".join(kept), parts
