"""Reading a state from its pieces: a backup to put together, what a state is, and what a list of it holds."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

MOST_CHUNKS = 32
MOST_BYTES = 16 << 20

_GZIP = 16 + zlib.MAX_WBITS
# One `module.<name>` step of an address; its key may hold dots, brackets and escaped quotes in quotes.
_MODULE_STEP = re.compile(r'module\.[^.\[\]]+(?:\[(?:"(?:[^"\\]|\\.)*"|[^\]"]*)\])?\.')


class RestoreError(Exception):
    """A backup cannot be used. The text quotes nothing of it."""


def assemble(config: Path, chunks: int) -> bytes:
    """The state document of a backup.

    Args:
        config: directory whose `restore/0` to `restore/<chunks - 1>` hold the compressed pieces.
        chunks: number of pieces, 1 to 32.

    Returns:
        The decompressed first gzip member, valid JSON of at most 16 MiB.

    Raises:
        RestoreError: a wrong number, a piece that cannot be read, damaged compression, too much, or no JSON.
    """
    state = _decompress(pieces(config, chunks))
    _parse(state)
    return state


def pieces(config: Path, chunks: int) -> list[bytes]:
    """The compressed pieces of a backup, in order.

    Raises:
        RestoreError: a wrong number, or a piece that cannot be read.
    """
    if not 1 <= chunks <= MOST_CHUNKS:
        raise RestoreError(f"--restore-chunks is {chunks}, want 1 to {MOST_CHUNKS}")
    found: list[bytes] = []
    for index in range(chunks):
        try:
            found.append((config / "restore" / str(index)).read_bytes())
        except OSError as error:
            raise RestoreError(f"piece {index} of the backup cannot be read: {error.strerror}") from None
    return found


def lineage_of(compressed: Sequence[bytes]) -> str | None:
    """The lineage of the state that compressed pieces hold, in this order.

    None when they hold no state that a runtime without encryption can read.
    """
    try:
        document = _parse(_decompress(compressed))
    except RestoreError:
        return None
    if not isinstance(document, dict) or document.get("version") != 4 or "encryption_version" in document:
        return None
    return str(document.get("lineage", ""))


def _decompress(compressed: Sequence[bytes]) -> bytes:
    decompressor = zlib.decompressobj(_GZIP)
    state = bytearray()
    for index, piece in enumerate(compressed):
        if decompressor.eof:
            break
        try:
            state += decompressor.decompress(piece, MOST_BYTES + 1 - len(state))
        except zlib.error:
            raise RestoreError(f"piece {index} of the backup is no valid gzip data") from None
        if len(state) > MOST_BYTES:
            raise RestoreError(f"the backup holds more than {MOST_BYTES} bytes when decompressed")
    if not decompressor.eof:
        raise RestoreError(f"the backup ends in the middle of its gzip data after {len(compressed)} pieces")
    return bytes(state)


def _parse(state: bytes) -> object:
    try:
        return json.loads(state)
    except (ValueError, RecursionError):
        raise RestoreError("the backup does not hold valid JSON") from None


def managed_count(listing: str) -> int:
    """How many addresses of managed resources the output of `state list` holds."""
    return sum(_is_managed(line.strip()) for line in listing.splitlines() if line.strip())


def _is_managed(address: str) -> bool:
    at = 0
    while step := _MODULE_STEP.match(address, at):
        at = step.end()
    return not address.startswith("data.", at)
