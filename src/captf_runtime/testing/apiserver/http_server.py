"""A threaded HTTP/1.1 server: one thread per connection, keep-alive, chunked streams.

Guarantees: a response without a stream leaves in one send; `stop` closes every socket, so that no thread that
serves a connection outlives it by more than the given time; a stream notices within its wait that the client
went away.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qsl, unquote

_log = logging.getLogger(__name__)

HEAD_LIMIT = 1_048_576
BODY_LIMIT = 3_145_728
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class _Closed(Exception):
    """The client closed the connection between requests, or broke off."""


class _Malformed(Exception):
    """The bytes are not an HTTP request."""


@dataclass(slots=True)
class HttpRequest:
    """One request: `path` is percent-decoded, `headers` have lower-case names, `query` keeps order and repeats."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes = b""
    body_too_large: bool = False

    def parameter(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        for key, value in self.query:
            if key == name:
                return value
        return default

    def parameters(self, name: str) -> list[str]:
        """All values of a query parameter."""
        return [value for key, value in self.query if key == name]


@dataclass(slots=True)
class Response:
    """A complete response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)


class Exchange(Protocol):
    """One request and the ways to answer it."""

    request: HttpRequest

    def respond(self, response: Response) -> None: ...
    def respond_partly(self, response: Response, keep: int) -> None: ...
    def stream(self, content_type: str, headers: Mapping[str, str]) -> Stream: ...
    def reset(self) -> None: ...


class Waker:
    """Lets other threads interrupt a wait on a socket."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._lock = threading.Lock()
        self._set = False

    def wake(self) -> None:
        """End the present or the next wait; never blocks for long."""
        with self._lock:
            if not self._set:
                self._set = True
                with contextlib.suppress(OSError):
                    self._writer.send(b"\0")

    def clear(self) -> None:
        """Forget earlier wakes; whatever they announced must be looked at afterwards."""
        # Under the lock the flag is set exactly while a byte waits to be read; otherwise wakes get lost.
        with self._lock:
            with contextlib.suppress(OSError):
                self._reader.recv(4096)
            self._set = False

    def fileno(self) -> int:
        """For poll."""
        return self._reader.fileno()

    def close(self) -> None:
        """Release the sockets."""
        self._reader.close()
        self._writer.close()


class Stream:
    """A chunked response that is written piece by piece."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.waker = Waker()
        self.closed = False

    def send(self, data: bytes) -> bool:
        """Write one piece; false when the client is gone."""
        return self.send_raw(b"%x\r\n%b\r\n" % (len(data), data)) if data else not self.closed

    def send_raw(self, data: bytes) -> bool:
        """Write bytes as they are, chunk framing included."""
        if self.closed:
            return False
        try:
            self._connection.socket.sendall(data)
        except (OSError, ValueError):
            self.closed = True
        return not self.closed

    def wait(self, timeout: float) -> bool:
        """Wait until woken or `timeout` seconds; false when the client went away."""
        if self.closed or self._connection.server.stopping.is_set():
            return False
        poll = select.poll()
        poll.register(self.waker.fileno(), select.POLLIN)
        poll.register(self._connection.socket.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        for descriptor, _ in poll.poll(max(0.0, timeout) * 1000):
            if descriptor == self.waker.fileno():
                self.waker.clear()
            else:
                # Nothing may follow a streamed request, so anything readable means the end.
                self.closed = True
        return not self.closed and not self._connection.server.stopping.is_set()

    def alive(self) -> bool:
        """Whether the client still listens and the server still serves."""
        return self.wait(0.0)

    def abort(self) -> None:
        """Cut the connection without ending the response; may be called from any thread."""
        self.closed = True
        self._connection.shutdown()
        self.waker.wake()

    def finish(self) -> None:
        """End the response properly; the connection then serves further requests."""
        if self.send_raw(b"0\r\n\r\n"):
            self._connection.stream_finished()


class _Connection:
    """Serves the requests of one socket, one after the other."""

    def __init__(self, server: HttpServer, raw: socket.socket) -> None:
        self.server = server
        self.socket = raw
        self.request = HttpRequest("", "", [], {})
        self._buffer = bytearray()
        self._answered = False
        self._keep = True
        self._hard = False
        self._stream: Stream | None = None

    def run(self) -> None:
        """Until the client closes, an error, or the server stops."""
        try:
            if self.server.tls is not None:
                self.socket.settimeout(10)
                self.socket = self.server.tls.wrap_socket(self.socket, server_side=True)
                self.socket.settimeout(None)
            while self._keep and not self.server.stopping.is_set():
                self.request = self._read()
                self._answered = False
                self.server.handler(self)
                if not self._answered:
                    break
        except (_Closed, OSError):
            return
        except _Malformed:
            with contextlib.suppress(OSError):
                self.socket.sendall(
                    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    b"Connection: close\r\n\r\n400 Bad Request"
                )
        except Exception:  # noqa: BLE001 - one broken request must not take the server down
            _log.exception("request failed", extra={"method": self.request.method})
        finally:
            if not self._hard:
                self.shutdown()
            self.socket.close()
            if self._stream is not None:
                self._stream.waker.close()

    def shutdown(self) -> None:
        """End reads and writes on the socket, from any thread."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def respond(self, response: Response) -> None:
        """Send a whole response in one piece."""
        self.socket.sendall(self._head(response) + (b"" if self.request.method == "HEAD" else response.body))
        self._answered = True

    def respond_partly(self, response: Response, keep: int) -> None:
        """Announce the whole response, send `keep` bytes of its body, and close."""
        self.socket.sendall(self._head(response) + response.body[:keep])
        self._keep = False
        self._answered = True

    def _head(self, response: Response) -> bytes:
        close = self.request.headers.get("connection", "").lower() == "close"
        head = [
            f"HTTP/1.1 {response.status} {_PHRASES.get(response.status, 'Unknown')}",
            "Cache-Control: no-cache, private",
            f"Content-Type: {response.content_type}",
            f"Date: {self.server.date()}",
            f"Content-Length: {len(response.body)}",
        ]
        head += [f"{name}: {value}" for name, value in response.headers]
        if close or self.request.body_too_large:
            head.append("Connection: close")
            self._keep = False
        return "\r\n".join([*head, "", ""]).encode()

    def stream(self, content_type: str, headers: Mapping[str, str]) -> Stream:
        """Send the head of a chunked response; unless it is finished properly the connection closes after it."""
        head = [
            "HTTP/1.1 200 OK",
            "Cache-Control: no-cache, private",
            f"Content-Type: {content_type}",
            f"Date: {self.server.date()}",
            "Transfer-Encoding: chunked",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self.socket.sendall("\r\n".join([*head, "", ""]).encode())
        self._keep = False
        self._answered = True
        self._stream = Stream(self)
        return self._stream

    def stream_finished(self) -> None:
        """Go on with the next request after a stream that ended properly."""
        if self._stream is not None:
            self._stream.waker.close()
            self._stream = None
        self._keep = self.request.headers.get("connection", "").lower() != "close"

    def reset(self) -> None:
        """Close at once with a TCP reset and without an answer."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self._keep = False
        self._answered = True
        self._hard = True

    def _fill(self) -> None:
        data = self.socket.recv(65_536)
        if not data:
            raise _Closed
        self._buffer += data

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise _Malformed
            self._fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _read(self) -> HttpRequest:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise _Malformed
            self._fill()
        head = bytes(self._buffer[:end]).decode("latin-1")
        del self._buffer[: end + 4]
        lines = head.split("\r\n")
        parts = lines[0].split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            raise _Malformed
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise _Malformed
            name = name.lower()
            value = value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        path, _, query = parts[1].partition("?")
        request = HttpRequest(
            parts[0], unquote(path), parse_qsl(query, keep_blank_values=True) if query else [], headers
        )
        if parts[2] == "HTTP/1.0":
            headers["connection"] = "close"
        self._read_body(request)
        return request

    def _read_body(self, request: HttpRequest) -> None:
        if "chunked" in request.headers.get("transfer-encoding", "").lower():
            self._continue(request)
            body = bytearray()
            while size := self._size():
                body += self._take(size)
                self._line()
                if len(body) > BODY_LIMIT:
                    request.body_too_large = True
                    return
            while self._line():
                pass
            request.body = bytes(body)
            return
        length = request.headers.get("content-length", "0")
        if not length.isdigit():
            raise _Malformed
        if int(length) > BODY_LIMIT:
            request.body_too_large = True
            # Read on: a client that is cut off while it writes would never see the answer.
            if int(length) <= 10 * BODY_LIMIT and "expect" not in request.headers:
                self._take(int(length))
            return
        if int(length):
            self._continue(request)
            request.body = self._take(int(length))

    def _continue(self, request: HttpRequest) -> None:
        if request.headers.get("expect", "").lower() == "100-continue":
            self.socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _size(self) -> int:
        try:
            return int(self._line().split(b";")[0], 16)
        except ValueError as problem:
            raise _Malformed from problem


class HttpServer:
    """Accepts connections and calls `handler` with each exchange, on the connection's thread."""

    def __init__(
        self,
        handler: Callable[[Exchange], None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.handler = handler
        self.tls = tls
        self.stopping = threading.Event()
        self._host = host
        self._port = port
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._connections: dict[_Connection, threading.Thread] = {}
        self._numbers = itertools.count(1)
        self._date = (0, "")

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    def date(self) -> str:
        """The Date header, made once a second."""
        now = int(time.time())
        if self._date[0] != now:
            self._date = (now, formatdate(now, usegmt=True))
        return self._date[1]

    def start(self) -> None:
        """Listen and serve; the port is known when this returns."""
        listener = socket.create_server((self._host, self._port), backlog=512)
        self._listener = listener
        self._port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="apiserver-accept", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Close everything and wait up to `timeout` seconds for the threads; a second call does nothing."""
        self.stopping.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        if self._thread is not None:
            self._thread.join(timeout)
        deadline = time.monotonic() + timeout
        with self._lock:
            open_connections = list(self._connections.items())
        for connection, _ in open_connections:
            connection.shutdown()
        for _, thread in open_connections:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def drop_connections(self) -> None:
        """Cut every open connection, as a restart of the server would."""
        with self._lock:
            open_connections = list(self._connections)
        for connection in open_connections:
            connection.shutdown()

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return len(self._connections)

    def _accept(self) -> None:
        listener = self._listener
        while listener is not None and not self.stopping.is_set():
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(self, accepted)
            thread = threading.Thread(
                target=self._serve, args=(connection,), name=f"apiserver-{next(self._numbers)}", daemon=True
            )
            with self._lock:
                self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: _Connection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                self._connections.pop(connection, None)
