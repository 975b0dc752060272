"""Structured logs: one pipeline for the library and for whoever builds on it.

Expected flow: a program calls `configure` once; modules hold `logger = get_logger(__name__)` and log an event
with key-value pairs; a worker wraps the work on one object in `bound(...)`, and every line logged inside, by
whatever module, carries those pairs. `set_level` changes the level of a running process.

Guarantees: a line below the level costs one comparison; a value under a key that names a secret is replaced
before it is rendered; other libraries' records come through only from warning on, because some of them log
request bodies at debug level. Without `configure` the pipeline writes text from warning on to stderr.

The pipeline is this module's own: the global configuration of structlog, which belongs to the program, is
neither used nor changed.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextvars import ContextVar, Token
from datetime import datetime
from typing import Any, Final, Literal, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

__all__ = ["LEVELS", "Format", "Logger", "bound", "configure", "get_level", "get_logger", "set_level"]

Format = Literal["text", "json"]

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""The names of the levels, from the most to the least talkative."""

_SECRET_KEYS: Final = frozenset(
    {"token", "password", "authorization", "body", "data", "stringdata", "secret", "kubeconfig"}
)
_REDACTED: Final = "[redacted]"
_OWN_KEYS: Final = frozenset({"event", "level", "logger", "caller", "err", "stack"})


class _Threshold:
    """The current level, shared by every logger ever handed out."""

    number: int = logging.WARNING
    name: str = "warning"


_threshold = _Threshold()


class _Sink:
    """Writes finished lines to a stream, whole lines at a time."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        # Re-entrant: a signal handler may log while this very thread is writing a line.
        self._lock = threading.RLock()

    def redirect(self, stream: TextIO | None) -> None:
        with self._lock:
            self._stream = stream

    def write(self, line: str) -> None:
        with self._lock:
            # Looked up late, so that a program (or a test) that replaces sys.stderr is obeyed.
            stream = self._stream if self._stream is not None else sys.stderr
            try:
                stream.write(line + "\n")
                stream.flush()
            except (OSError, ValueError, RuntimeError):
                # A stream that is closed, full or in the middle of a line must never end the work that logs.
                return

    debug = info = warning = error = write


class Logger(structlog.BoundLoggerBase):
    """A logger that carries key-value pairs; immutable, cheap to bind, safe in every thread.

    An exception to report is passed as `err=exception`; `exception(...)` also logs the current stack.
    """

    def bind(self, **pairs: Any) -> Logger:
        """A logger that adds these pairs to every line."""
        return Logger(self._logger, self._processors, type(self._context)(self._context, **pairs))

    def debug(self, message: str, **pairs: Any) -> None:
        """Log at debug: decisions, reads, single requests."""
        if _threshold.number <= logging.DEBUG:
            self._proxy_to_logger("debug", message, **pairs)

    def info(self, message: str, **pairs: Any) -> None:
        """Log at info: the normal flow."""
        if _threshold.number <= logging.INFO:
            self._proxy_to_logger("info", message, **pairs)

    def warning(self, message: str, **pairs: Any) -> None:
        """Log at warning: what someone should look at."""
        if _threshold.number <= logging.WARNING:
            self._proxy_to_logger("warning", message, **pairs)

    def error(self, message: str, **pairs: Any) -> None:
        """Log at error: something asked for did not happen."""
        if _threshold.number <= logging.ERROR:
            self._proxy_to_logger("error", message, **pairs)

    def exception(self, message: str, **pairs: Any) -> None:
        """Log at error, with the stack of `err`, by default the exception that is being handled."""
        current = pairs.setdefault("err", sys.exc_info()[1])
        if isinstance(current, BaseException):
            pairs.setdefault("stack", "".join(traceback.format_exception(current)).rstrip())
        self.error(message, **pairs)


# One variable for all pairs: a reconcile sets eight, and setting each on its own costs more than the log line.
_context: ContextVar[Mapping[str, Any]] = ContextVar("captf_runtime_log", default={})  # noqa: B039 - never changed


def _add_context(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {**_context.get(), **event}


def _add_level(_logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    event["level"] = method
    return event


def _add_caller(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if "caller" not in event:
        frame = sys._getframe(1)
        while frame.f_back is not None and (
            frame.f_globals.get("__name__") == __name__
            or str(frame.f_globals.get("__name__", "")).startswith("structlog")
        ):
            frame = frame.f_back
        event["caller"] = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    return event


def _render_error(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    error = event.get("err")
    if isinstance(error, BaseException):
        text = str(error)
        event["err"] = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return event


def _redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key in event:
        if key.lower() in _SECRET_KEYS:
            event[key] = _REDACTED
    return event


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    line: dict[str, Any] = {
        "ts": round(time.time() * 1000, 3),
        "level": event.pop("level"),
        "caller": event.pop("caller"),
        "msg": event.pop("event"),
    }
    line.update(event)
    return msgspec.json.encode(line, enc_hook=_plain).decode()


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _text_value(value: Any) -> str:
    if isinstance(value, Mapping) and set(value) == {"namespace", "name"}:
        value = f"{value['namespace']}/{value['name']}" if value["namespace"] else value["name"]
    elif isinstance(value, (dict, list, tuple)):
        value = msgspec.json.encode(value, enc_hook=_plain).decode()
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    # A multi-line value goes on lines of its own, indented, so that it can still be read.
    return '"' + text.replace("\n", "\n    ") + '"'


def _render_text(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    stamp = datetime.now().astimezone().isoformat(timespec="milliseconds")
    message = str(event["event"]).replace("\n", "\n    ")
    head = f"{stamp} {event['level'].upper():<7} {message}"
    pairs = [f"{key}={_text_value(value)}" for key, value in event.items() if key not in _OWN_KEYS]
    if "err" in event:
        pairs.append(f"err={_text_value(event['err'])}")
    text = " ".join([head, *pairs])
    if "stack" in event:
        text += "\n    " + str(event["stack"]).replace("\n", "\n    ")
    # Values come from anywhere, and this goes to a terminal.
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def _chain(render: Processor) -> list[Processor]:
    return [_add_context, _add_level, _add_caller, _render_error, _redact, render]


_sink = _Sink(None)
# Every logger holds this very list, so changing its content reconfigures them all.
_processors: list[Processor] = _chain(_render_text)


def get_logger(name: str = "", **pairs: Any) -> Logger:
    """A logger; `name` shows as `logger` in JSON lines."""
    context: dict[str, Any] = {"logger": name} if name else {}
    context.update(pairs)
    return Logger(_sink, _processors, context)


def configure(level: str = "info", format: Format = "json", stream: TextIO | None = None) -> None:
    """Set up the pipeline, and lead warnings of other libraries into it.

    Args:
        level: one of `LEVELS`.
        format: "json" for machines, one object per line; "text" for people.
        stream: where lines go; None: stdout for JSON, stderr for text.

    Raises:
        ValueError: an unknown level or format, naming the known ones.
    """
    if format not in ("text", "json"):
        raise ValueError(f"format: must be text or json, got {format!r}")
    set_level(level)
    _sink.redirect(stream if stream is not None else (sys.stdout if format == "json" else None))
    _processors[:] = _chain(_render_json if format == "json" else _render_text)
    root = logging.getLogger()
    if not any(isinstance(handler, _Bridge) for handler in root.handlers):
        root.addHandler(_Bridge(logging.WARNING))


def set_level(level: str) -> None:
    """Change the level of every logger, at once and for all threads.

    Raises:
        ValueError: an unknown level, naming the known ones.
    """
    if level not in LEVELS:
        raise ValueError(f"level: must be one of {', '.join(LEVELS)}, got {level!r}")
    _threshold.number, _threshold.name = LEVELS[level], level


def get_level() -> str:
    """The name of the current level."""
    return _threshold.name


class bound:
    """Add pairs to every line logged by this thread (or task) inside the `with` block."""

    __slots__ = ("_pairs", "_token")

    def __init__(self, **pairs: Any) -> None:
        self._pairs = pairs
        self._token: Token[Mapping[str, Any]] | None = None

    def __enter__(self) -> None:
        self._token = _context.set({**_context.get(), **self._pairs})

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _context.reset(self._token)


class _Bridge(logging.Handler):
    """Leads records of libraries that use the standard `logging` into the pipeline, from warning on."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = get_logger(record.name, caller=f"{record.filename}:{record.lineno}")
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            # The format string of another library does not fit its arguments: show it as it is.
            message = str(record.msg)
        pairs: dict[str, Any] = {}
        if record.exc_info and record.exc_info[1] is not None:
            pairs["err"] = record.exc_info[1]
        if record.levelno >= logging.ERROR:
            logger.error(message, **pairs)
        else:
            logger.warning(message, **pairs)
