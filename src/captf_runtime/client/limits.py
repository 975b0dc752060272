"""How long the request of a thread may still take, for all that it waits on.

A request waits in many places: for a name to be looked up, for an address to answer, for a handshake, for each
piece of an answer, for a plugin to hand out a token. The transport says once how much time is left
(`limited`), and every such place asks (`seconds_left`): so no number of short waits adds up to a long one.
"""

from __future__ import annotations

import itertools
import math
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from captf_runtime.clock import SYSTEM_CLOCK
from captf_runtime.threads import ManagedThread

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["BoundedSocket", "BoundedTlsSocket", "Errand", "countdown", "limited", "seconds_left"]

T = TypeVar("T")

# A wait that no socket wakes looks at the time left, and so at the stop signal, this often, in seconds.
_SLICE: Final = 0.5

_numbers = itertools.count()


class _Limit(threading.local):
    left: Callable[[], float] | None = None


_limit = _Limit()


@contextmanager
def limited(left: Callable[[], float]) -> Iterator[None]:
    """Within the block this thread's waits keep to `left`: seconds that remain, 0 or less when it is over."""
    before, _limit.left = _limit.left, left
    try:
        yield
    finally:
        _limit.left = before


def countdown(seconds: float) -> Callable[[], float]:
    """What is left of `seconds` from now on. In real time, as the timeouts of sockets are."""
    end = SYSTEM_CLOCK.monotonic() + seconds
    return lambda: end - SYSTEM_CLOCK.monotonic()


def seconds_left() -> float:
    """Seconds that the request of this thread may still take; infinite outside of one."""
    return math.inf if _limit.left is None else _limit.left()


def _bound(sock: socket.socket) -> None:
    left = seconds_left()
    if left == math.inf:
        return
    if left <= 0:
        raise TimeoutError("the time for this call is used up")
    timeout = sock.gettimeout()
    if timeout is None or timeout > left:
        sock.settimeout(left)


class BoundedSocket(socket.socket):
    """A socket of which no operation outlasts the request: its own timeout alone begins anew with each byte."""

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """Receive, within the time left."""
        _bound(self)
        return super().recv_into(buffer, nbytes, flags)

    def sendall(self, data: ReadableBuffer, flags: int = 0) -> None:
        """Send everything, within the time left."""
        _bound(self)
        super().sendall(data, flags)


class BoundedTlsSocket(ssl.SSLSocket):
    """The same over TLS, with the handshake."""

    def do_handshake(self, block: bool = False) -> None:
        """Shake hands, within the time left and the socket's timeout.

        Nobody else knows this socket yet who could cut it: it looks itself whether there is still time.
        """
        timeout = self.gettimeout()
        left = countdown(math.inf if timeout is None else timeout)
        while True:
            self.settimeout(min(left(), _SLICE))
            _bound(self)
            try:
                super().do_handshake(block)
                break
            except TimeoutError:
                if left() <= 0:
                    raise
        self.settimeout(timeout)

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        """Receive, within the time left."""
        _bound(self)
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """Send some bytes, within the time left; `sendall` is made of this."""
        _bound(self)
        return super().send(data, flags)


class Errand(Generic[T]):
    """A call that nothing can interrupt, made on a thread of its own, so that whoever wants its outcome need not
    wait for it to the end. Any number of threads may wait for the same errand.

    The thread ends when the call does: what is called has to have a limit of its own.

    Args:
        component: the thread is named `<component>-<n>`.
        what: what the call is, for the error of who has waited too long.
    """

    def __init__(self, call: Callable[[], T], component: str, what: str) -> None:
        self._call = call
        self._what = what
        self._outcome: list[T] = []
        self._failure: Exception | None = None
        self._thread = ManagedThread(self._run, f"{component}-{next(_numbers)}")
        self._thread.start()

    def outcome(self) -> T:
        """Wait for the outcome as long as the request of this thread may take.

        Raises:
            TimeoutError: there was none in time.
            Whatever the call raised.
        """
        while not self._thread.ended.wait(min(max(seconds_left(), 0.0), _SLICE)):
            if seconds_left() <= 0:
                raise TimeoutError(f"{self._what} takes too long")
        if self._failure is not None:
            raise self._failure
        return self._outcome[0]

    def _run(self) -> None:
        try:
            self._outcome.append(self._call())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._failure = error
