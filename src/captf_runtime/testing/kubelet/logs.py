"""Logs of containers: where they are written and how they are read, also while they grow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["LogDirectory"]

_CHUNK = 64 * 1024
_POLL_SECONDS = 0.1


class LogDirectory:
    """The logs of all pods: `<namespace>_<pod>_<uid>/<container>/<restart>.log`, as on a node.

    Args:
        directory: made when it does not exist.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def file(self, namespace: str, pod: str, uid: str, container: str, restart: int) -> Path:
        """Return the file for one run of a container; its directory exists afterwards."""
        path = self.directory / f"{namespace}_{pod}_{uid}" / container / f"{restart}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def latest(
        self, namespace: str, pod: str, container: str | None, *, previous: bool = False
    ) -> Path | None:
        """Return the newest log of a pod's container (the only one when None), or the one before it."""
        # Names of namespaces hold no underscore, those of pods neither.
        found = list(self.directory.glob(f"{namespace}_{pod}_*/*/*.log"))
        if container is not None:
            found = [path for path in found if path.parent.name == container]
        found.sort(key=lambda path: (path.parent.parent.stat().st_mtime_ns, int(path.stem)))
        wanted = 2 if previous else 1
        return found[-wanted] if len(found) >= wanted else None

    @staticmethod
    def read(
        path: Path,
        *,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
        growing: Callable[[], bool] = lambda: False,
        stop: threading.Event | None = None,
    ) -> Iterator[bytes]:
        """Yield the log in pieces; while `growing()` is true wait for more at its end.

        Args:
            tail_lines: begin this many lines before the end.
            limit_bytes: end after this many bytes.
            stop: ends the waiting.
        """
        pause = stop or threading.Event()
        left = limit_bytes
        with open(path, "rb") as stream:
            if tail_lines is not None:
                stream.seek(_tail_offset(path, tail_lines))
            while left is None or left > 0:
                # Asked before the read: what was written before the end of growth is then read for certain.
                more = growing()
                piece = stream.read(_CHUNK if left is None else min(_CHUNK, left))
                if piece:
                    left = None if left is None else left - len(piece)
                    yield piece
                elif not more or pause.wait(_POLL_SECONDS):
                    return


def _tail_offset(path: Path, lines: int) -> int:
    size = path.stat().st_size
    if lines <= 0:
        return size
    with open(path, "rb") as stream:
        position, tail = size, b""
        while position > 0:
            step = min(_CHUNK, position)
            position -= step
            stream.seek(position)
            tail = stream.read(step) + tail
            # The last line may lack its end; one more line end than lines wanted bounds the first of them.
            ends = tail.count(b"\n") - (1 if tail.endswith(b"\n") else 0)
            if ends >= lines:
                break
    ended = tail.endswith(b"\n")
    kept = (tail[:-1] if ended else tail).split(b"\n")[-lines:]
    return size - sum(len(line) for line in kept) - (len(kept) - 1) - ended
