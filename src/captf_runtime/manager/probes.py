"""Health probes over HTTP: `/healthz`, `/readyz`, one sub-path per check."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs
from wsgiref.types import StartResponse

from ..clock import SYSTEM_CLOCK, Clock
from ..log import get_logger
from ..metrics import Metrics
from ..serving.server import text_answer
from ..threads import start_thread

__all__ = ["CHECK_TIMEOUT", "Check", "Probes"]

Check = Callable[[], None]
"""Returns when all is well, raises when it is not."""

CHECK_TIMEOUT: Final = 10.0
_logger = get_logger(__name__)


class _CheckTimeout(Exception):
    """A check took too long."""


@dataclass(slots=True)
class _CheckRun:
    """A check that runs, since the monotonic second `started`, and its end."""

    check: Check
    started: float
    ended: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Probes:
    """The checks of a manager and the application that answers for them.

    A failed check is answered without its reason, which goes to the log: probes are open to everyone.
    """

    def __init__(self, *, metrics: Metrics | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._health: dict[str, Check] = {"ping": _ping}
        self._ready: dict[str, Check] = {}
        self._metrics = metrics if metrics is not None else Metrics()
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, _CheckRun] = {}

    def add_health(self, name: str, check: Check) -> None:
        """Add a check to `/healthz`. It must not call the API server: a restart would not mend that."""
        _add(self._health, name, check)

    def add_ready(self, name: str, check: Check) -> None:
        """Add a check to `/readyz`."""
        _add(self._ready, name, check)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request (WSGI)."""
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return text_answer(start_response, "405 Method Not Allowed", b"method not allowed\n")
        root, _, name = str(environ.get("PATH_INFO", "")).strip("/").partition("/")
        checks = {"healthz": self._health, "readyz": self._ready}.get(root)
        if checks is None or (name and name not in checks):
            return text_answer(start_response, "404 Not Found", b"not found\n")
        query = parse_qs(str(environ.get("QUERY_STRING", "")), keep_blank_values=True)
        excluded = {part for value in query.get("exclude", ()) for part in value.split(",")}
        chosen: Mapping[str, Check] = (
            {name: checks[name]}
            if name
            else {key: check for key, check in checks.items() if key not in excluded}
        )
        failed = {key for key, check in chosen.items() if not self._passes(root, key, check)}
        lines = [f"[-]{key} failed: reason withheld" if key in failed else f"[+]{key} ok" for key in chosen]
        if failed:
            lines.append(f"{root} check failed")
            return text_answer(start_response, "500 Internal Server Error", _text(lines))
        if "verbose" in query:
            lines.append(f"{root} check passed")
            return text_answer(start_response, "200 OK", _text(lines))
        return text_answer(start_response, "200 OK", b"ok")

    def _passes(self, root: str, name: str, check: Check) -> bool:
        key = f"{root}/{name}"
        with self._lock:
            # Whoever asks while it runs gets the answer of that run. One that hangs has used up its time: another
            # thread for it would not do better.
            run = self._runs.get(key)
            if run is None:
                run = self._runs[key] = _CheckRun(check, self._clock.monotonic())
                start_thread(
                    "probe-check", partial(self._check, key, run), metrics=self._metrics, clock=self._clock
                )
        left = run.started + CHECK_TIMEOUT - self._clock.monotonic()
        if self._clock.wait(run.ended, max(0.0, left)):
            error = run.error
        else:
            error = _CheckTimeout(f"did not answer within {CHECK_TIMEOUT:g} s")
        if error is not None:
            _logger.warning("health check failed", check=key, err=error)
        return error is None

    def _check(self, key: str, run: _CheckRun) -> None:
        try:
            run.check()
        except BaseException as error:  # noqa: BLE001 - whatever a check raises, it has failed
            run.error = error
        finally:
            with self._lock:
                del self._runs[key]
            run.ended.set()


def _ping() -> None:
    """Succeeds as long as the process answers at all."""


def _add(checks: dict[str, Check], name: str, check: Check) -> None:
    if not name or "/" in name:
        raise ValueError(f"name: a check needs a name without slashes, got {name!r}")
    if name in checks:
        raise ValueError(f"name: a check named {name!r} exists")
    checks[name] = check


def _text(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
