"""Events from inside the process: anything that can name an object can wake its controller."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .reconciler import Request, check_request

__all__ = ["Channel"]


class Channel:
    """Carries requests from elsewhere in the process to the controllers that listen.

    Expected flow: make one, give it to one or more controllers, and call `send` from any thread. Sending
    never blocks. Requests sent before a controller listens are not kept: it sees every object when it
    starts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Request, int], None]] = []

    def send(self, request: Request, *, priority: int = 0) -> None:
        """Have the object reconciled by every controller that listens.

        Raises:
            TypeError: not a Request.
        """
        check_request(request)
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(request, priority)

    def listen(self, listener: Callable[[Request, int], None]) -> Callable[[], None]:
        """Call `listener` with every request and its priority, until the function that this returns is called."""
        with self._lock:
            self._listeners.append(listener)

        def end() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return end
