"""A way to the API server that can be cut: what a manager sees when the network or the server is gone."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class Gateway:
    """Forwards TCP connections to one address, until ``cut``; then it refuses and ends all of them.

    Expected flow::

        with Gateway(kubeconfig) as gateway:
            start_manager(f"--kubeconfig={gateway.kubeconfig(folder)}")
            with gateway.cut():
                ...   # the manager reaches nobody
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
        url = urlsplit(self._config["clusters"][0]["cluster"]["server"])
        self._scheme = url.scheme
        self._target = (url.hostname or "127.0.0.1", url.port or 443)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop = threading.Event()
        self._down = threading.Event()
        self._threads = [threading.Thread(target=self._accept, name="gateway")]
        self._forwarding = 0
        self._changed = threading.Condition()
        #: Connections that were refused.
        self.refused = 0

    def __enter__(self) -> Gateway:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)
        self._listener.close()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig that goes through here."""
        config = {**self._config}
        port = self._listener.getsockname()[1]
        cluster = {**config["clusters"][0]["cluster"], "server": f"{self._scheme}://127.0.0.1:{port}"}
        config["clusters"] = [{**config["clusters"][0], "cluster": cluster}]
        path = folder / "gateway.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """No connection lives or comes about meanwhile; nothing of the block passes through one from before."""
        try:
            with self._changed:
                self._down.set()
                assert self._changed.wait_for(lambda: not self._forwarding, 60), "a connection lives on"
            yield
        finally:
            self._down.clear()

    def _accept(self) -> None:
        self._listener.settimeout(0.1)
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                inner, _ = self._listener.accept()
                with self._changed:
                    refuse = self._down.is_set()
                    self._forwarding += not refuse
                if refuse:
                    self.refused += 1
                    inner.close()
                    continue
                thread = threading.Thread(target=self._forward, args=(inner,), name="gateway-connection")
                self._threads.append(thread)
                thread.start()

    def _forward(self, inner: socket.socket) -> None:
        try:
            self._pass_on(inner)
        finally:
            with self._changed:
                self._forwarding -= 1
                self._changed.notify_all()

    def _pass_on(self, inner: socket.socket) -> None:
        with inner, contextlib.suppress(OSError), socket.create_connection(self._target) as outer:
            inner.settimeout(30)
            outer.settimeout(30)
            other = {inner: outer, outer: inner}
            while not self._stop.is_set() and not self._down.is_set():
                ready, _, _ = select.select(list(other), [], [], 0.1)
                for end in ready:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    other[end].sendall(data)
