"""The stream of changes that the server sends: lines of JSON, cut out of whatever pieces arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import msgspec

from captf_runtime.client.errors import WatchDecodeError, error_from_answer
from captf_runtime.client.lists import fill_kind
from captf_runtime.client.nesting import cut
from captf_runtime.client.transport import Stream
from captf_runtime.objects import Kind, Object


class _Envelope(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Skeleton(msgspec.Struct):
    type: str = ""
    object: int = 0


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_skeleton = msgspec.json.Decoder(_Skeleton).decode
_decode_object = msgspec.json.Decoder(dict).decode


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change.

    Args:
        type: ADDED, MODIFIED, DELETED or BOOKMARK.
        raw: the object's JSON as the server sent it.
        kind: the kind that was watched.
        metadata_only: the object came as `PartialObjectMetadata`.
    """

    type: str
    raw: bytes = field(repr=False)
    kind: Kind
    metadata_only: bool = False

    def decode(self) -> Object:
        """Return a fresh copy of the object, with the real kind."""
        return fill_kind(cast(Object, _decode_object(self.raw)), self.kind, metadata_only=self.metadata_only)


class LineBuffer:
    """Cuts a stream of bytes at newlines, wherever the pieces end, also inside a character.

    There is no limit to the length of a line, and a long one costs no more than its length.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next piece and return the lines that it completes, without empty ones."""
        if b"\n" not in data:
            if data:
                self._parts.append(data)
            return []
        first, *lines = data.split(b"\n")
        self._parts.append(first)
        complete = [b"".join(self._parts), *lines[:-1]]
        self._parts = [lines[-1]] if lines[-1] else []
        return [line for line in complete if line.strip()]

    def rest(self) -> bytes:
        """Return and forget what came after the last newline."""
        data, self._parts = b"".join(self._parts), []
        return data


class WatchStream:
    """The events of one watch request, in the order of the server.

    Flow: iterate in one thread; call `close` from any. The iteration ends when the server ends the watch
    and when the stream is closed.

    Raises while iterating:
        Gone: the version asked for is no longer kept, also when told inside the stream.
        ApiError: any other ERROR event.
        WatchDecodeError: a line is not an event; the stream is closed then.
        RequestTimeout: nothing arrived within the read timeout.
        TransportError: the connection broke.
    """

    def __init__(self, stream: Stream, kind: Kind, path: str, *, metadata_only: bool = False) -> None:
        self._stream = stream
        self._kind = kind
        self._path = path
        self._metadata_only = metadata_only
        self._buffer = LineBuffer()
        self._lines: Iterator[bytes] = iter(())
        self._ended = False

    def __iter__(self) -> Iterator[WatchEvent]:
        return self

    def __next__(self) -> WatchEvent:
        return self._event(self._next_line())

    def set_read_timeout(self, seconds: float) -> None:
        """Change how long the stream may be silent. To be called by the thread that iterates."""
        self._stream.set_read_timeout(seconds)

    def close(self) -> None:
        """End the watch now; a blocked iteration returns. Any thread may call it, more than once."""
        self._stream.close()

    def __enter__(self) -> WatchStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_line(self) -> bytes:
        while True:
            if self._stream.closed:
                raise StopIteration
            line = next(self._lines, None)
            if line is not None:
                return line
            if self._ended:
                self.close()
                raise StopIteration
            data = self._stream.read_some()
            if data:
                self._lines = iter(self._buffer.feed(data))
                continue
            # The end. A last line without its newline is still an event, if it is complete.
            self._ended = True
            rest = self._buffer.rest()
            self._lines = iter([rest] if rest.strip() else [])

    def _event(self, line: bytes) -> WatchEvent:
        try:
            type_, raw = _open_envelope(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._undecodable("a line is not valid JSON") from error
        if not type_ or not raw.startswith(b"{"):
            raise self._undecodable("an event has no type or no object")
        if type_ == "ERROR":
            self.close()
            raise error_from_answer(0, raw, method="GET", path=self._path)
        return WatchEvent(type_, raw, self._kind, self._metadata_only)

    def _undecodable(self, message: str) -> WatchDecodeError:
        self.close()
        return WatchDecodeError(message, method="GET", path=self._path)


def _open_envelope(line: bytes) -> tuple[str, bytes]:
    """The type of an event and its object, however deep that is nested."""
    try:
        envelope = _decode_envelope(line)
    except RecursionError:
        text, parts = cut(line, 1)
        skeleton = _decode_skeleton(text)
        return skeleton.type, parts[skeleton.object] if parts else b""
    return envelope.type, bytes(envelope.object)
