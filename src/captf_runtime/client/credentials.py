"""Where the `Authorization` header comes from, and when it is read again."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from captf_runtime.client.limits import Errand
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.log import get_logger
from captf_runtime.objects import parse_time

logger = get_logger(__name__)

_FILE_PERIOD = 30.0  # half of the minute within which a changed token file must be noticed
_FAILURE_LOG_PERIOD = 60.0
_EXPIRY_MARGIN = 60.0


def fits_header(text: str) -> bool:
    """Say whether a text can be sent in the `Authorization` header: printable ASCII on one line."""
    return text.isascii() and text.isprintable()


class Credentials(Protocol):
    """A source of the `Authorization` header. Implementations are thread-safe."""

    def authorization(self) -> str | None:
        """The value for the next request, None to send none."""
        ...

    def reload(self, refused: str | None) -> bool:
        """Fetch the value anew because the server refused `refused`; False when there is nothing to fetch.

        When another thread has replaced the refused value already, nothing is fetched.
        """
        ...

    def certificate(self) -> tuple[str, str] | None:
        """A client certificate and its key in PEM that the source provides, if it does."""
        ...


class StaticCredentials:
    """A header value that never changes; None stands for anonymous requests."""

    def __init__(self, authorization: str | None) -> None:
        self._authorization = authorization

    def authorization(self) -> str | None:
        """The value given at construction."""
        return self._authorization

    def reload(self, refused: str | None) -> bool:
        """Nothing to fetch."""
        return False

    def certificate(self) -> tuple[str, str] | None:
        """None: certificates of a kubeconfig are configured apart."""
        return None

    @classmethod
    def bearer(cls, token: str) -> StaticCredentials:
        """A fixed bearer token; surrounding whitespace is trimmed."""
        return cls(f"Bearer {token.strip()}")

    @classmethod
    def basic(cls, username: str, password: str) -> StaticCredentials:
        """HTTP basic authentication."""
        encoded = base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
        return cls(f"Basic {encoded}")


class TokenFile:
    """A bearer token in a file that something else rewrites, such as a projected ServiceAccount token.

    Guarantees: a changed file is noticed within a minute; surrounding whitespace is trimmed; while the file
    cannot be read, is empty or holds no token the last good one stays in use, which is logged once a minute.
    """

    def __init__(self, path: str | Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._read_at = float("-inf")
        self._logged_at = float("-inf")

    def authorization(self) -> str | None:
        """The bearer header with the current token; None as long as no token was ever read."""
        with self._lock:
            if self._clock.monotonic() - self._read_at >= _FILE_PERIOD:
                self._read()
            return self._header()

    def reload(self, refused: str | None) -> bool:
        """Read the file now, unless the refused token was replaced already."""
        with self._lock:
            if refused == self._header():
                self._read()
            return True

    def certificate(self) -> tuple[str, str] | None:
        """None."""
        return None

    def _header(self) -> str | None:
        return f"Bearer {self._token}" if self._token else None

    def _read(self) -> None:
        now = self._clock.monotonic()
        self._read_at = now
        try:
            token = self._path.read_text(encoding="utf-8").strip()
            problem = "" if token else "it is empty"
            if token and not fits_header(token):
                token, problem = "", "it holds something else than one token"
        except (OSError, UnicodeDecodeError) as error:
            token, problem = "", type(error).__name__
        if token:
            self._token = token
        elif now - self._logged_at >= _FAILURE_LOG_PERIOD:
            self._logged_at = now
            logger.warning(
                "cannot read the token file: keeping the last token", path=str(self._path), problem=problem
            )


class PluginCredentials:
    """Credentials that a command or an identity provider hands out, with or without an expiry.

    Args:
        fetch: returns the `status` of an ExecCredential: `token` and/or `clientCertificateData` with
            `clientKeyData`, and optionally `expirationTimestamp`.

    Guarantees: fetched again before the expiry (a minute, or a tenth of the lifetime if that is less); one
    fetch at a time; nobody waits for it longer than the request may take, while the fetch goes on.

    Raises:
        TimeoutError: the fetch was not over in time.
        Whatever `fetch` raises.
    """

    def __init__(self, fetch: Callable[[], Mapping[str, Any]], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._fetching: Errand[None] | None = None
        self._fetched = False
        self._token: str | None = None
        self._certificate: tuple[str, str] | None = None
        self._renew_at: float | None = None

    def authorization(self) -> str | None:
        """The bearer header, fetched first when there is none yet or it is about to expire."""
        self._ensure()
        with self._lock:
            return self._header()

    def reload(self, refused: str | None) -> bool:
        """Fetch now, unless the refused token was replaced already."""
        with self._lock:
            if refused != self._header():
                return True
            fetching = self._begin()
        fetching.outcome()
        return True

    def certificate(self) -> tuple[str, str] | None:
        """The certificate and key that the plugin gave."""
        self._ensure()
        with self._lock:
            return self._certificate

    def _header(self) -> str | None:
        return f"Bearer {self._token}" if self._token else None

    def _ensure(self) -> None:
        with self._lock:
            due = self._renew_at is not None and self._clock.monotonic() >= self._renew_at
            if self._fetched and not due:
                return
            fetching = self._begin()
        fetching.outcome()

    def _begin(self) -> Errand[None]:
        if self._fetching is None:
            self._fetching = Errand(self._refresh, "credential-plugin", "the credential plugin")
        return self._fetching

    def _refresh(self) -> None:
        status: Mapping[str, Any] | None = None
        try:
            status = self._fetch()
        finally:
            with self._lock:
                self._fetching = None
                if status is not None:
                    self._take(status)

    def _take(self, status: Mapping[str, Any]) -> None:
        token = status.get("token")
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        self._token = token.strip() if isinstance(token, str) else None
        self._certificate = (
            (certificate, key) if isinstance(certificate, str) and isinstance(key, str) else None
        )
        self._renew_at = None
        expiry = status.get("expirationTimestamp")
        if isinstance(expiry, str) and expiry:
            lifetime = (parse_time(expiry) - self._clock.now()).total_seconds()
            margin = min(_EXPIRY_MARGIN, max(lifetime, 0.0) / 10)
            self._renew_at = self._clock.monotonic() + max(lifetime - margin, 0.0)
        self._fetched = True
