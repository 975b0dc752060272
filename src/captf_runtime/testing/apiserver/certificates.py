"""A certificate authority for the server's own TLS, made once for each process."""

from __future__ import annotations

import functools
import os
import ssl
import tempfile
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The server's TLS context and the PEM of the authority that signed its certificate."""

    context: ssl.SSLContext
    authority: bytes


@functools.cache
def local_identity() -> ServerIdentity:
    """A certificate for localhost; no private key stays on disk."""
    import trustme

    authority = trustme.CA(organization_name="captf embedded API server")
    certificate = authority.issue_cert("localhost", "127.0.0.1", "::1", "kubernetes.default.svc")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "server.pem")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate.private_key_and_cert_chain_pem.bytes())
        context.load_cert_chain(path)
    return ServerIdentity(context, authority.cert_pem.bytes())
