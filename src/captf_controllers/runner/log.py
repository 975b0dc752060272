"""The runner's own log lines, in text or JSON, on standard error."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


class Log:
    """Writes leveled lines with named fields.

    A line that cannot be written (the reader of the stream has gone) is dropped: logging never ends a run.
    Callers pass names and numbers, never values of variables or credentials.
    """

    def __init__(self, level: str = "info", form: str = "text", stream: TextIO | None = None) -> None:
        self._threshold = LEVELS.index(level)
        self._form = form
        self._stream = stream if stream is not None else sys.stderr

    @staticmethod
    def default_format(stream: TextIO) -> str:
        """`text` on a terminal, else `json`."""
        return "text" if stream.isatty() else "json"

    def debug(self, message: str, **fields: object) -> None:
        self._write("debug", message, fields)

    def info(self, message: str, **fields: object) -> None:
        self._write("info", message, fields)

    def warning(self, message: str, **fields: object) -> None:
        self._write("warning", message, fields)

    def error(self, message: str, **fields: object) -> None:
        self._write("error", message, fields)

    def _write(self, level: str, message: str, fields: dict[str, object]) -> None:
        if LEVELS.index(level) < self._threshold:
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._form == "json":
            line = json.dumps(
                {"time": time, "level": level, "logger": "runner", "message": message, **fields}
            )
        else:
            tail = "".join(f" {name}={json.dumps(value)}" for name, value in fields.items())
            line = f"{time} {level.upper():<7} {message}{tail}"
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:
            return
