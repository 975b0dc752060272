"""Waits that keep to the time of a request, each by itself."""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections.abc import Callable

import pytest
import trustme

from captf_runtime.client.limits import (
    BoundedSocket,
    BoundedTlsSocket,
    Errand,
    countdown,
    limited,
    seconds_left,
)

LONG = 60.0
"""The sockets' own timeouts: far longer than any of these waits may take."""


def pair() -> tuple[BoundedSocket, socket.socket]:
    """Two ends of a connection, of which nobody uses the second."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = BoundedSocket()
        near.settimeout(LONG)
        near.connect(listener.getsockname())
        return near, listener.accept()[0]


def gives_up(wait: Callable[[], object], left: float) -> None:
    started = time.monotonic()
    with limited(countdown(left)), pytest.raises(TimeoutError):
        wait()
    assert time.monotonic() - started < LONG / 2


@pytest.mark.requirement("CL3")
@pytest.mark.parametrize("left", [0.05, 0.0, -1.0])
def test_a_socket_waits_no_longer_than_the_request_may_take(left: float) -> None:
    near, far = pair()
    with near, far:
        gives_up(lambda: near.recv_into(bytearray(1)), left)
        near.settimeout(None)
        gives_up(lambda: near.recv_into(bytearray(1)), left)
        near.settimeout(LONG)
        gives_up(lambda: near.sendall(b"x" * 40_000_000), left)


@pytest.mark.requirement("CL3")
def test_outside_of_a_request_a_socket_keeps_its_own_timeout() -> None:
    near, far = pair()
    with near, far:
        far.sendall(b"abc")
        with limited(lambda: 100.0):
            assert seconds_left() == 100.0
            assert near.recv_into(bytearray(1)) == 1
        assert near.gettimeout() == LONG
        assert seconds_left() == math.inf
        near.settimeout(None)
        assert near.recv_into(bytearray(1)) == 1
        assert near.gettimeout() is None


@pytest.mark.requirement("CL3")
@pytest.mark.parametrize("left", [0.05, 0.0])
def test_a_socket_over_tls_waits_no_longer_than_the_request_may_take(left: float) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.sslsocket_class = BoundedTlsSocket
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    near, far = pair()
    with near, far:
        gives_up(lambda: context.wrap_socket(near, server_hostname="127.0.0.1"), left)
    near, far = pair()
    ends: list[ssl.SSLSocket] = []
    greeting = threading.Thread(target=lambda: ends.append(serving.wrap_socket(far, server_side=True)))
    greeting.start()
    with context.wrap_socket(near, server_hostname="127.0.0.1") as secure:
        greeting.join(LONG)
        assert secure.gettimeout() == LONG
        with ends[0]:
            gives_up(lambda: secure.recv_into(bytearray(1)), left)
            secure.settimeout(LONG)
            gives_up(lambda: secure.sendall(b"x" * 40_000_000), left)


@pytest.mark.requirement("CL3", "G4")
def test_an_errand_is_shared_and_left_behind() -> None:
    go_on = threading.Event()

    def call() -> str:
        go_on.wait(LONG)
        return "done"

    errand = Errand(call, "errand", "the errand")
    gives_up(errand.outcome, 0.05)
    gives_up(errand.outcome, 0.0)
    go_on.set()
    assert errand.outcome() == "done"
    with limited(lambda: LONG):
        assert errand.outcome() == "done"

    def fail() -> str:
        raise ValueError("it cannot be done")

    failing = Errand(fail, "errand", "the errand")
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be done"):
            failing.outcome()
