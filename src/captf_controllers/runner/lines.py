"""Cutting a stream of bytes into lines of bounded length."""

from __future__ import annotations

from collections.abc import Callable

MAX_LINE = 1 << 20


class LineSplitter:
    """Feeds complete lines of a byte stream to a function.

    A line longer than the limit is dropped up to its newline and reported once, so a stream without
    newlines cannot fill the memory. Bytes that are no UTF-8 are replaced.

    Args:
        on_line: receives each line without its line end.
        on_dropped: called once for each line that was too long.
        limit: the longest line in bytes.
    """

    def __init__(
        self, on_line: Callable[[str], None], on_dropped: Callable[[], None], limit: int = MAX_LINE
    ) -> None:
        self._on_line = on_line
        self._on_dropped = on_dropped
        self._limit = limit
        self._pending = bytearray()
        self._dropping = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the stream."""
        self._pending += data
        start = 0
        while (end := self._pending.find(b"\n", start)) >= 0:
            self._finish(bytes(self._pending[start:end]))
            start = end + 1
        if start:
            del self._pending[:start]
        if len(self._pending) > self._limit:
            self._dropping = True
            self._pending.clear()

    def close(self) -> None:
        """The stream has ended: delivers what came after the last newline."""
        if self._pending or self._dropping:
            self._finish(bytes(self._pending))
            self._pending.clear()

    def _finish(self, line: bytes) -> None:
        if self._dropping or len(line) > self._limit:
            self._dropping = False
            self._on_dropped()
        else:
            self._on_line(line.decode("utf-8", "replace").removesuffix("\r"))


class Tail:
    """The last bytes of a stream, as whole lines."""

    def __init__(self, limit: int = 64 << 10) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._cut = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the stream."""
        self._kept += data
        if len(self._kept) > self._limit:
            del self._kept[: -self._limit]
            self._cut = True

    def text(self) -> str:
        """What was kept. A first line that lost its beginning is left out: it may hold half a secret."""
        kept = bytes(self._kept)
        if self._cut:
            kept = kept.partition(b"\n")[2]
        return kept.decode("utf-8", "replace")


class Capture:
    """The whole of a stream up to a limit; `overflowed` tells that it was longer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.overflowed = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the stream; drops everything once the limit is passed."""
        if self.overflowed:
            return
        self._kept += data
        if len(self._kept) > self._limit:
            self.overflowed = True
            self._kept.clear()

    def take(self) -> bytes:
        """What was captured; the buffer is given up, so that a large document is held only once."""
        kept = bytes(self._kept)
        self._kept.clear()
        return kept
