"""A serving certificate that is read again when its files change."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..clock import SYSTEM_CLOCK, Clock
from ..log import get_logger

__all__ = ["CertificateFiles"]

_LOOK_EVERY: Final = 1.0
_LOG_EVERY: Final = 60.0
_logger = get_logger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


class CertificateFiles:
    """The TLS context of a server, made from a certificate and a key file.

    Guarantees: a connection made one second or more after both files have changed gets the new certificate; a
    pair that cannot be loaded (half written, not matching) leaves the last good one in use and is reported
    once a minute. Connections that exist are not touched. Thread-safe.

    Args:
        certificate: PEM file with the certificate and its chain.
        key: PEM file with the private key.
        configure: called with every new context, for versions, ciphers and curves.
        minimum_version: oldest TLS version to speak.

    Raises:
        OSError, ssl.SSLError: from the constructor, when the pair cannot be loaded at start.
    """

    def __init__(
        self,
        certificate: str | os.PathLike[str],
        key: str | os.PathLike[str],
        *,
        minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        configure: Callable[[ssl.SSLContext], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._paths = (Path(certificate), Path(key))
        self._minimum_version = minimum_version
        self._configure = configure
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp = self._read_stamp()
        self._context = self._load()
        self._looked = clock.monotonic()
        self._logged: float | None = None

    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._looked >= _LOOK_EVERY:
                self._looked = now
                self._reload(now)
            return self._context

    def _reload(self, now: float) -> None:
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return
            # A context in use is never changed: handshakes may be reading it.
            self._context = self._load()
            self._stamp = stamp
            self._logged = None
            _logger.info("the serving certificate was renewed", certificate=str(self._paths[0]))
        except (OSError, ssl.SSLError, ValueError) as error:
            if self._logged is None or now - self._logged >= _LOG_EVERY:
                self._logged = now
                _logger.error(
                    "the new serving certificate cannot be loaded, the last one stays in use",
                    certificate=str(self._paths[0]),
                    err=error,
                )

    def _read_stamp(self) -> _Stamp:
        stats = [path.stat() for path in self._paths]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum_version
        if self._configure is not None:
            self._configure(context)
        certificate, key = self._paths
        context.load_cert_chain(certificate, key)
        return context
