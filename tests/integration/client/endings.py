"""How calls end whose time is over, on a machine that may be slow."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from captf_runtime.client import RequestTimeout, TransportError


def timed_out(
    call: Callable[[float], object], error: type[TransportError] = RequestTimeout
) -> TransportError:
    """Have a call run out of its time when a part of its request has been sent; return the error.

    The call is given a short time, and a longer one where that did not suffice to connect and to send.
    """
    for timeout in (0.2, 2.0, 20.0):
        started = time.monotonic()
        with pytest.raises(TransportError) as raised:
            call(timeout)
        assert time.monotonic() - started < timeout + 20
        if isinstance(raised.value, error) and raised.value.ambiguous:
            return raised.value
    raise AssertionError(f"the call did not time out after it was sent: {raised.value!r}")
