"""A certificate that a server makes for itself, for clients that do not check whose it is."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["SelfSigned"]

_LIFE: Final = timedelta(days=365)
_BACKDATED: Final = timedelta(hours=1)


class SelfSigned:
    """The TLS context of a server with a key pair and certificate of its own, made once and never stored.

    The connection is encrypted; who serves it is proven to nobody.

    Args:
        host: name in the certificate.
        minimum_version: oldest TLS version to speak.
        configure: called with the context, for ciphers and groups.
    """

    def __init__(
        self,
        host: str,
        *,
        minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        configure: Callable[[ssl.SSLContext], None] | None = None,
    ) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = minimum_version
        if configure is not None:
            configure(self._context)
        _load(self._context, _certificate(host))

    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        return self._context


def _certificate(host: str) -> bytes:
    """A private key and a certificate for it, PEM."""
    # Imported here: only a server without certificate files needs it.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    # A common name holds 64 characters; the host itself stands in the alternative name.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    # `ssl` reads certificates from files only. One in memory needs no writable folder, and leaves nothing.
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate")
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
