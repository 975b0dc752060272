"""An HTTP server whose answers a test writes itself, for faults that no well-behaved server shows."""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from captf_runtime.client import Client, ClientConfig

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply:
    """Writes the answer to one request."""

    def __init__(self, connection: socket.socket, stopped: threading.Event) -> None:
        self._connection = connection
        self.stopped = stopped
        self.open = True

    def write(self, data: bytes) -> None:
        self._connection.sendall(data)

    def head(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        lines = [f"HTTP/1.1 {status} Scripted"]
        lines += [f"{name}: {value}" for name, value in {**JSON, **(headers or {})}.items()]
        self.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    def send(self, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        self.head(status, {"Content-Length": str(len(data)), **(headers or {})})
        self.write(data)

    def start_stream(self) -> None:
        self.head(200, {"Transfer-Encoding": "chunked"})

    def chunk(self, data: bytes) -> None:
        self.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def event(self, type_: str, obj: Any) -> None:
        self.chunk(json.dumps({"type": type_, "object": obj}).encode() + b"\n")

    def end_stream(self) -> None:
        self.write(b"0\r\n\r\n")

    def hang(self) -> None:
        """Keep the connection open and silent until the client closes it or the server stops."""
        while not self.stopped.is_set():
            readable, _, _ = select.select([self._connection], [], [], 0.05)
            if readable and socket.socket.recv(self._connection, 1, socket.MSG_PEEK) == b"":
                break
        self.open = False

    def cut(self) -> None:
        """Close the connection without another word."""
        self.open = False


def status(code: int, reason: str = "", message: str = "scripted", **fields: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        **fields,
    }


Script = Callable[[Received, Reply], None]


@dataclass
class ScriptedServer:
    """Serves each connection on a thread of its own; `requests` is what arrived, in order."""

    script: Script
    tls: ssl.SSLContext | None = None
    requests: list[Received] = field(default_factory=list)

    def __enter__(self) -> ScriptedServer:
        self.stopped = threading.Event()
        self.changed = threading.Condition()
        self.connections = 0
        self.most_open = 0
        self._open: dict[int, socket.socket] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        # shutdown wakes the accepting thread, which close alone does not
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join(5)

    @property
    def url(self) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def open_connections(self) -> int:
        with self.changed:
            return len(self._open)

    def client(self, **options: Any) -> Client:
        return Client(ClientConfig(self.url), **options)

    def cut_all(self) -> None:
        with self.changed:
            connections = list(self._open.values())
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def wait_for(self, predicate: Callable[[], bool], timeout: float = 30.0) -> None:
        with self.changed:
            assert self.changed.wait_for(predicate, timeout), [request.target for request in self.requests]

    def _accept(self) -> None:
        while not self.stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with self.changed:
            self.connections += 1
            number = self.connections
            self._open[number] = connection
            self.most_open = max(self.most_open, len(self._open))
            self.changed.notify_all()
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as reader:
                while not self.stopped.is_set():
                    request = self._read(reader, number)
                    if request is None:
                        return
                    with self.changed:
                        self.requests.append(request)
                        self.changed.notify_all()
                    reply = Reply(connection, self.stopped)
                    self.script(request, reply)
                    if not reply.open or request.headers.get("connection") == "close":
                        return
        except OSError:
            return
        finally:
            connection.close()
            with self.changed:
                del self._open[number]
                self.changed.notify_all()

    def _read(self, reader: Any, number: int) -> Received | None:
        first = reader.readline()
        if not first.strip():
            return None
        method, target, _ = first.decode().split(" ", 2)
        headers: dict[str, str] = {}
        while (line := reader.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = reader.read(int(headers.get("content-length", "0")))
        return Received(method, target, headers, body, number)
