"""The diagnostics of a manager over HTTPS: metrics, profiler, log level; for those who may.

Every request is authenticated and authorized by the API server first, whatever its path: see `access`. The
right is one on a non-resource URL, for example `get` on `/metrics`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication

from ..client.errors import ApiError, TransportError
from ..clock import SYSTEM_CLOCK, Clock
from ..log import LEVELS, get_logger, set_level
from ..metrics import Metrics
from ..serving import CertificateFiles, ContextSource, HttpServer, SelfSigned, TlsOptions
from ..serving.server import text_answer
from .access import AccessReviews, Decision, Reviewer
from .profiler import PREFIX, Profiler

__all__ = ["Diagnostics", "serving_certificate"]

_MAX_LEVEL_BYTES: Final = 64
_logger = get_logger(__name__)


def serving_certificate(
    directory: Path, host: str, tls: TlsOptions, *, clock: Clock = SYSTEM_CLOCK
) -> ContextSource:
    """Return the certificate `tls.crt` with `tls.key` of a directory when both are there, else one made now.

    Raises:
        OSError, ssl.SSLError: the files are there and cannot be used.
    """
    certificate, key = directory / "tls.crt", directory / "tls.key"
    if certificate.exists() and key.exists():
        return CertificateFiles(
            certificate, key, minimum_version=tls.minimum_version, configure=tls.configure, clock=clock
        )
    return SelfSigned(host, minimum_version=tls.minimum_version, configure=tls.configure)


class Diagnostics:
    """Serves diagnostics; a runnable of the manager, on every replica.

    | Path | Method | |
    | --- | --- | --- |
    | `/metrics` | GET | what `metrics` answers |
    | `/debug/pprof/...` | GET | see `Profiler` |
    | `/debug/log-level` | PUT | the body is the level from now on |

    Args:
        bind_address: such as ":8443".
        reviewer: asks the API server who a caller is and what they may.
        metrics_app: answers `/metrics`.
        certificate: what it serves with.
    """

    def __init__(
        self,
        bind_address: str,
        *,
        reviewer: Reviewer,
        metrics_app: WSGIApplication,
        certificate: ContextSource,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._reviews = AccessReviews(reviewer, clock=clock)
        self._metrics_app = metrics_app
        self._profiler = Profiler()
        self._server = HttpServer(
            self, bind_address, component="diagnostics", tls=certificate, metrics=metrics
        )
        self.ready: Final = self._server.ready

    @property
    def url(self) -> str:
        """Where it listens, as a client on this machine reaches it."""
        return self._server.url

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set."""
        try:
            self._server.run(stop)
        finally:
            self._profiler.stop()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request (WSGI)."""
        method, path = str(environ.get("REQUEST_METHOD", "")), str(environ.get("PATH_INFO", ""))
        try:
            decision = self._reviews.decide(str(environ.get("HTTP_AUTHORIZATION", "")), method, path)
        except (ApiError, TransportError) as error:
            _logger.warning("a request for diagnostics could not be reviewed", path=path, err=error)
            return text_answer(
                start_response, "500 Internal Server Error", b"the request could not be reviewed\n"
            )
        if decision is Decision.UNKNOWN_USER:
            return text_answer(
                start_response,
                "401 Unauthorized",
                b"unauthorized\n",
                headers=[("WWW-Authenticate", "Bearer")],
            )
        if decision is Decision.FORBIDDEN:
            return text_answer(start_response, "403 Forbidden", b"forbidden\n")
        if path == "/metrics":
            if method not in ("GET", "HEAD"):
                return _wrong_method(start_response, "GET")
            return self._metrics_app(environ, start_response)
        if path == "/debug/log-level":
            return _change_level(environ, start_response)
        if path.startswith(PREFIX) or path == PREFIX.rstrip("/"):
            return self._profiler(environ, start_response)
        return text_answer(start_response, "404 Not Found", b"not found\n")


def _change_level(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    if environ.get("REQUEST_METHOD") != "PUT":
        return _wrong_method(start_response, "PUT")
    level = environ["wsgi.input"].read(_MAX_LEVEL_BYTES).decode(errors="replace").strip()
    if level not in LEVELS:
        known = ", ".join(LEVELS)
        return text_answer(start_response, "400 Bad Request", f"the body must be one of {known}\n".encode())
    set_level(level)
    _logger.warning("the log level was changed", level_now=level)
    return text_answer(start_response, "200 OK", f"log level is {level}\n".encode())


def _wrong_method(start_response: StartResponse, allowed: str) -> Iterable[bytes]:
    return text_answer(
        start_response,
        "405 Method Not Allowed",
        f"only {allowed}\n".encode(),
        headers=[("Allow", allowed)],
    )
