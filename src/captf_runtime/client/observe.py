"""What the client reports about its requests, for metrics.

The client counts nothing itself: whoever builds it passes an observer, such as `RequestMetrics`.
"""

from __future__ import annotations

from typing import Protocol

from captf_runtime.metrics import Metrics

NO_ANSWER = "<error>"
"""The `code` of a request that got no HTTP answer."""


class RequestObserver(Protocol):
    """Is told about every HTTP request. Implementations are thread-safe, quick, and never raise."""

    def request(self, *, method: str, verb: str, host: str, code: str, seconds: float) -> None:
        """One attempt has ended.

        Args:
            method: HTTP method.
            verb: what the client was asked for: get, list, watch, create, update, patch, delete, ...
            host: host and port of the server.
            code: HTTP code in decimal, or `<error>`.
            seconds: from sending to the answer's last byte; for a watch, to its headers.
        """
        ...

    def retry(self, *, verb: str, host: str, code: str) -> None:
        """An attempt that ended with `code` is about to be repeated."""
        ...


class SilentObserver:
    """Reports nothing."""

    __slots__ = ()

    def request(self, *, method: str, verb: str, host: str, code: str, seconds: float) -> None:
        """Nothing."""

    def retry(self, *, verb: str, host: str, code: str) -> None:
        """Nothing."""


SILENT = SilentObserver()


class RequestMetrics:
    """Counts requests in the series `rest_client_*`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def request(self, *, method: str, verb: str, host: str, code: str, seconds: float) -> None:
        """Count the attempt and observe its duration."""
        self._metrics.rest_requests.labels(code, method, host).inc()
        self._metrics.rest_duration.labels(verb, host).observe(seconds)

    def retry(self, *, verb: str, host: str, code: str) -> None:
        """Count the repetition."""
        self._metrics.rest_retries.labels(code, verb, host).inc()
