"""The TLS context of a client: whom it trusts, and the client certificate inside it."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from captf_runtime.client.config import ClientCertificate, ClientConfig, ConfigError, read_text
from captf_runtime.client.limits import BoundedTlsSocket

Fingerprint = tuple[object, ...]
"""Changes when a new connection should trust other authorities or present another client certificate."""

Pair = tuple[str, str]
"""A client certificate and its key in PEM, as a plugin gives them."""


def fingerprint(config: ClientConfig, given: Pair | None) -> Fingerprint:
    """Describe what connections are made with now: the state of the files, and what the plugin gave."""
    files = [config.ca_file]
    if given is None and config.certificate is not None:
        files += [config.certificate.certificate_file, config.certificate.key_file]
    return (given, *(None if file is None else _state(file) for file in files))


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def build_context(config: ClientConfig, given: Pair | None) -> ssl.SSLContext:
    """Build the context for new connections.

    Args:
        given: the client certificate of a plugin, which goes before a configured one.

    Raises:
        ConfigError: a certificate or key cannot be read.
    """
    authorities = config.ca_data if config.ca_file is None else read_text(config.ca_file, config.source)
    if authorities is not None:
        # PEM is ASCII; what else there is are comments, which OpenSSL passes over and Python does not.
        authorities = authorities.encode("ascii", "ignore").decode("ascii")
    try:
        context = ssl.create_default_context(cadata=authorities)
    except ssl.SSLError as error:
        raise ConfigError(f"{config.source}: the certificate authority is not valid PEM") from error
    context.sslsocket_class = BoundedTlsSocket
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = (
        ClientCertificate(certificate_data=given[0].encode(), key_data=given[1].encode())
        if given is not None
        else config.certificate
    )
    if certificate is not None:
        _load_certificate(context, certificate, config.source)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: ClientCertificate, source: str) -> None:
    try:
        if certificate.certificate_file is not None and certificate.key_file is not None:
            context.load_cert_chain(certificate.certificate_file, certificate.key_file)
            return
        with ExitStack() as stack:
            chain = stack.enter_context(_readable(certificate.certificate_data))
            key = stack.enter_context(_readable(certificate.key_data))
            context.load_cert_chain(chain, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{source}: the client certificate or its key cannot be used") from error


@contextmanager
def _readable(data: bytes) -> Iterator[str]:
    """Give the data a path for OpenSSL, which only reads files.

    On Linux the file lives in memory alone and ends with the process; elsewhere it is a private file that is
    removed at once.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        yield path
    finally:
        os.unlink(path)
