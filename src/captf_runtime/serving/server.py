"""A threaded WSGI server as a runnable."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol
from wsgiref.types import WSGIApplication

from ..log import get_logger
from ..metrics import Metrics
from ..threads import start_thread

if TYPE_CHECKING:
    from cheroot.wsgi import Server

__all__ = ["ContextSource", "HttpServer", "parse_bind_address"]

MAX_HEADER_BYTES: Final = 64 * 1024
_logger = get_logger(__name__)


class ContextSource(Protocol):
    """Gives the TLS context for a new connection."""

    def context(self) -> ssl.SSLContext: ...


def parse_bind_address(text: str) -> tuple[str, int] | None:
    """Read an address to listen on: ":8080" (every interface), "127.0.0.1:0" (a free port), "[::1]:8080".

    Returns:
        Host and port; None for "" and "0", which mean not to listen.

    Raises:
        ValueError: the text is no such address.
    """
    if text in ("", "0"):
        return None
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"bind address: need host:port, such as :8080 or 127.0.0.1:0, got {text!r}")
    return (host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))


class HttpServer:
    """Serves a WSGI application over HTTP, or over TLS; a runnable of the manager.

    Handshakes happen in the worker threads, so that a client that never finishes one does not keep others
    from being accepted.

    Args:
        app: the application.
        bind_address: see `parse_bind_address`.
        component: names threads and log lines.
        tls: where the certificate comes from; None for plain HTTP.
        threads: connections that are served at once.
        timeout: seconds that a client may take to send a request or to take an answer.
        max_body: longest request body taken, bytes; longer ones are answered with 413.
        stop_timeout: seconds that requests being answered at the stop signal may still take.
    """

    def __init__(
        self,
        app: WSGIApplication,
        bind_address: str,
        *,
        component: str,
        tls: ContextSource | None = None,
        threads: int = 4,
        timeout: float = 10.0,
        max_body: int = 8 * 1024 * 1024,
        stop_timeout: float = 1.5,
        metrics: Metrics | None = None,
    ) -> None:
        address = parse_bind_address(bind_address)
        if address is None:
            raise ValueError(f"bind_address: {bind_address!r} means not to listen; make no server then")
        self._app = app
        self._bind = address
        self._component = component
        self._tls = tls
        self._threads = threads
        self._timeout = timeout
        self._max_body = max_body
        self._stop_timeout = stop_timeout
        self._metrics = metrics if metrics is not None else Metrics()
        self._server: Server | None = None
        self.ready: Final = threading.Event()
        self.failure: BaseException | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on, the port as the system chose it.

        Raises:
            RuntimeError: it does not listen (yet).
        """
        if self._server is None or not self.ready.is_set():
            raise RuntimeError(f"{self._component} does not listen yet")
        host, port = self._server.bind_addr[:2]
        return (str(host), int(port))

    @property
    def url(self) -> str:
        """The address as a URL, with a host that a client on this machine can reach."""
        host, port = self.address
        if host in ("0.0.0.0", "::"):
            host = "127.0.0.1"
        return f"{'http' if self._tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self, stop: threading.Event) -> None:
        """Listen and serve until `stop` is set.

        Raises:
            OSError: the address cannot be listened on.
        """
        # The server's own threads are daemons because they are made in one.
        serving = start_thread(self._component, self._serve, metrics=self._metrics, on_failure=self._failed)
        while not (self.ready.wait(0.02) or serving.ended.is_set()):
            continue
        while not (stop.wait(1.0) or serving.ended.is_set()):
            continue
        if self._server is not None and self.failure is None:
            self._stop(self._server)
        serving.join()
        if self.failure is not None:
            raise self.failure

    def _stop(self, server: Server) -> None:
        # The server notices that it is to stop when its wait for connections ends, a quarter of a second later or
        # with the next one: so give it one. A successor waits for all servers of this process to have stopped.
        address = server.bind_addr[:2]
        stopping = start_thread(f"{self._component}-stop", server.stop, metrics=self._metrics)
        while not stopping.ended.wait(0.02):
            try:
                socket.create_connection(address, timeout=0.1).close()
            except OSError:
                break
        stopping.join()

    def _failed(self, error: BaseException) -> None:
        self.failure = error

    def _serve(self) -> None:
        self._server = _make_server(
            self._app,
            self._bind,
            tls=self._tls,
            component=self._component,
            threads=self._threads,
            timeout=self._timeout,
            max_body=self._max_body,
            stop_timeout=self._stop_timeout,
        )
        self._server.prepare()
        self.ready.set()
        _logger.info("listening", component=self._component, address="{}:{}".format(*self.address))
        self._server.serve()


def _make_server(
    app: WSGIApplication,
    bind: tuple[str, int],
    *,
    tls: ContextSource | None,
    component: str,
    threads: int,
    timeout: float,
    max_body: int,
    stop_timeout: float,
) -> Server:
    # Imported here: a program without servers does not pay for them.
    from cheroot import wsgi
    from cheroot.errors import FatalSSLAlert
    from cheroot.makefile import MakeFile
    from cheroot.server import HTTPConnection
    from cheroot.ssl import Adapter

    class Connection(HTTPConnection):
        shaken = False

        def communicate(self) -> bool:
            if tls is not None and not self.shaken:
                try:
                    self.socket.do_handshake()
                except (ssl.SSLError, OSError) as error:
                    _logger.debug("TLS handshake failed", component=component, err=error)
                    return False
                self.shaken = True
            return bool(super().communicate())  # type: ignore[no-untyped-call]

    class LazyHandshake(Adapter):
        def __init__(self, source: ContextSource) -> None:
            self.source = source

        def bind(self, sock: socket.socket) -> socket.socket:
            return sock

        def wrap(self, sock: socket.socket) -> tuple[ssl.SSLSocket, dict[str, str]]:
            try:
                wrapped = self.source.context().wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False
                )
            except (ssl.SSLError, OSError) as error:
                raise FatalSSLAlert(*error.args) from error
            return wrapped, self.get_environ()

        def get_environ(self) -> dict[str, str]:
            return {"wsgi.url_scheme": "https", "HTTPS": "on"}

        def makefile(self, sock: ssl.SSLSocket, mode: str = "r", bufsize: int = -1) -> Any:
            return MakeFile(sock, mode, bufsize if bufsize > 0 else 8192)

    class LoggingServer(wsgi.Server):
        ConnectionClass = Connection

        def prepare(self) -> None:
            super().prepare()
            for number, thread in enumerate(getattr(self.requests, "_threads", ())):
                thread.name = f"{component}-worker-{number}"

        def clear_stats(self) -> None:
            super().clear_stats()  # type: ignore[no-untyped-call]
            # They would be kept for the life of the process, and with them the server, the application and all
            # that belongs to it, such as a manager with its caches.
            statistics: dict[str, object] = getattr(logging, "statistics", {})
            for name in [name for name, kept in statistics.items() if kept is self.stats]:
                del statistics[name]

        def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
            if level >= logging.ERROR and traceback:
                _logger.exception(msg, component=component)
            elif level >= logging.WARNING:
                _logger.warning(msg, component=component)
            else:
                _logger.debug(msg, component=component)

    server = LoggingServer(
        bind,
        app,
        numthreads=threads,
        server_name="captf",
        request_queue_size=128,
    )
    # Set here: the stubs of the constructor know whole seconds only.
    server.timeout = timeout
    server.shutdown_timeout = stop_timeout
    server.max_request_header_size = MAX_HEADER_BYTES
    server.max_request_body_size = max_body
    server.expiration_interval = 0.25
    if tls is not None:
        server.ssl_adapter = LazyHandshake(tls)
    return server


def text_answer(
    start_response: Callable[..., object],
    status: str,
    body: bytes,
    content_type: str = "text/plain; charset=utf-8",
    headers: Iterable[tuple[str, str]] = (),
) -> list[bytes]:
    """Answer a request with a body that is at hand."""
    start_response(
        status,
        [
            ("Content-Type", content_type),
            ("Content-Length", str(len(body))),
            ("X-Content-Type-Options", "nosniff"),
            *headers,
        ],
    )
    return [body]
