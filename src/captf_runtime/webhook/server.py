"""The server that answers admission reviews, over TLS with a certificate that is renewed on disk."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from wsgiref.types import StartResponse

from ..clock import SYSTEM_CLOCK, Clock
from ..log import bound, get_logger
from ..metrics import Metrics
from ..serving import CertificateFiles, HttpServer
from ..serving.server import text_answer
from .admission import AdmissionRequest, AdmissionResponse, ReviewError, Validator, read_review, render_review

__all__ = ["WebhookServer"]

MAX_BODY: Final = 7 * 1024 * 1024
"""Bytes: an object of the largest size that the API server takes, twice, and the rest of a review."""

_DIAL_TIMEOUT: Final = 10.0
_CODES: Final = ("200", "404", "405", "413")
_logger = get_logger(__name__)


class WebhookServer:
    """Serves validators, each at its path; a runnable of the manager, on every replica.

    Expected flow: `register` the validators, add the server to the manager in the group of webhooks, and its
    `check_serving` to the readiness checks.

    Guarantees: the answer bears the uid of the review; a validator that raises, or a body that cannot be
    read, refuses the request. Denials are logged with user, object and the paths of what is wrong, never
    with values.

    Args:
        bind_address: such as ":9443".
        certificate_directory: where the serving certificate and key are.
        certificate_name, key_name: their file names there.
        minimum_version: oldest TLS version to speak.
        configure: called with every new TLS context, for ciphers and curves.
        threads: reviews that are answered at once.

    Raises:
        OSError, ssl.SSLError: there is no usable certificate.
    """

    def __init__(
        self,
        bind_address: str,
        certificate_directory: str | os.PathLike[str],
        *,
        certificate_name: str = "tls.crt",
        key_name: str = "tls.key",
        minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        configure: Callable[[ssl.SSLContext], None] | None = None,
        threads: int = 16,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        directory = Path(certificate_directory)
        self._metrics = metrics if metrics is not None else Metrics()
        self._clock = clock
        self._validators: dict[str, Validator] = {}
        self._server = HttpServer(
            self._answer,
            bind_address,
            component="webhook",
            tls=CertificateFiles(
                directory / certificate_name,
                directory / key_name,
                minimum_version=minimum_version,
                configure=configure,
                clock=clock,
            ),
            threads=threads,
            max_body=MAX_BODY,
            metrics=self._metrics,
        )
        self.ready: Final = self._server.ready

    def register(self, path: str, validator: Validator) -> None:
        """Serve a validator at a path.

        Raises:
            ValueError: the path is taken or does not begin with a slash.
        """
        if not path.startswith("/"):
            raise ValueError(f"path: must begin with a slash, got {path!r}")
        if path in self._validators:
            raise ValueError(f"path: {path!r} has a validator already")
        self._validators[path] = validator
        for code in _CODES:
            self._metrics.webhook_requests.labels(path, code)
        self._metrics.webhook_latency.labels(path)
        self._metrics.webhook_in_flight.labels(path).set(0)

    @property
    def url(self) -> str:
        """Where it listens, as a client on this machine reaches it."""
        return self._server.url

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set."""
        self._server.run(stop)

    def check_serving(self) -> None:
        """A readiness check: a TLS connection to the own listener comes about.

        Raises:
            RuntimeError, OSError: it does not.
        """
        host, port = self._server.address
        # What is tested is that this very process serves, so whose name is in the certificate does not
        # matter.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        with (
            socket.create_connection((host, port), timeout=_DIAL_TIMEOUT) as connection,
            context.wrap_socket(connection),
        ):
            return

    def _answer(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO", ""))
        validator = self._validators.get(path)
        if validator is None:
            return text_answer(start_response, "404 Not Found", b"no webhook at this path\n")
        if environ.get("REQUEST_METHOD") != "POST":
            self._metrics.webhook_requests.labels(path, "405").inc()
            return text_answer(
                start_response, "405 Method Not Allowed", b"only POST\n", headers=[("Allow", "POST")]
            )
        start = self._clock.monotonic()
        in_flight = self._metrics.webhook_in_flight.labels(path)
        in_flight.inc()
        try:
            body = _read(environ)
            if body is None:
                self._metrics.webhook_requests.labels(path, "413").inc()
                return text_answer(start_response, "413 Content Too Large", b"the body is too large\n")
            answer = self._review(path, validator, body)
            self._metrics.webhook_requests.labels(path, "200").inc()
            return text_answer(start_response, "200 OK", answer, "application/json")
        finally:
            in_flight.dec()
            self._metrics.webhook_latency.labels(path).observe(self._clock.monotonic() - start)

    def _review(self, path: str, validator: Validator, body: bytes) -> bytes:
        try:
            request = read_review(body)
        except ReviewError as error:
            _logger.info("a review could not be read", webhook=path, err=error)
            return render_review(AdmissionResponse.deny(str(error), code=400, reason="BadRequest"), error.uid)
        with bound(webhook=path, kind=request.kind, namespace=request.namespace, name=request.name):
            try:
                response = validator(request)
                if not isinstance(response, AdmissionResponse):
                    raise TypeError(f"a validator must return an AdmissionResponse, got {response!r}")
                answer = render_review(response, request.uid, request)
            except BaseException:  # logged; whatever a validator raises, the server goes on
                _logger.exception("a validator failed", operation=request.operation)
                response = AdmissionResponse.failed("the check failed, see the log of the webhook server")
                answer = render_review(response, request.uid, request)
            if not response.allowed:
                _log_denial(request, response)
        return answer


def _log_denial(request: AdmissionRequest, response: AdmissionResponse) -> None:
    _logger.info(
        "admission denied",
        operation=request.operation,
        user=request.user.username,
        code=response.code,
        reason=response.reason,
        violations=[f"{violation.field} ({violation.type})" for violation in response.violations],
    )


def _read(environ: dict[str, Any]) -> bytes | None:
    """The body of a request; None when it is longer than `MAX_BODY`."""
    length = str(environ.get("CONTENT_LENGTH") or "")
    stream = environ["wsgi.input"]
    if length.isdigit():
        return None if int(length) > MAX_BODY else bytes(stream.read(int(length)))
    # A chunked body has no length; one byte more than allowed tells whether it is too long.
    body = bytes(stream.read(MAX_BODY + 1))
    return None if len(body) > MAX_BODY else body
