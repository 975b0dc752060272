"""Putting a backed-up state together, and counting what it holds after it was pushed."""

from __future__ import annotations

import json
import re
import zlib
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
    if not 1 <= chunks <= MOST_CHUNKS:
        raise RestoreError(f"--restore-chunks is {chunks}, want 1 to {MOST_CHUNKS}")
    decompressor = zlib.decompressobj(_GZIP)
    state = bytearray()
    for index in range(chunks):
        piece = config / "restore" / str(index)
        try:
            compressed = piece.read_bytes()
        except OSError as error:
            raise RestoreError(f"piece {index} of the backup cannot be read: {error.strerror}") from None
        if decompressor.eof:
            continue
        try:
            state += decompressor.decompress(compressed, MOST_BYTES + 1 - len(state))
        except zlib.error:
            raise RestoreError(f"piece {index} of the backup is no valid gzip data") from None
        if len(state) > MOST_BYTES:
            raise RestoreError(f"the backup holds more than {MOST_BYTES} bytes when decompressed")
    if not decompressor.eof:
        raise RestoreError(f"the backup ends in the middle of its gzip data after {chunks} pieces")
    try:
        json.loads(state)
    except (ValueError, RecursionError):
        raise RestoreError("the backup does not hold valid JSON") from None
    return bytes(state)


def managed_count(listing: str) -> int:
    """How many addresses of managed resources the output of `state list` holds."""
    return sum(_is_managed(line.strip()) for line in listing.splitlines() if line.strip())


def _is_managed(address: str) -> bool:
    at = 0
    while step := _MODULE_STEP.match(address, at):
        at = step.end()
    return not address.startswith("data.", at)
