"""HTTP servers for probes, metrics and webhooks: threaded, with TLS whose certificate may change on disk."""

from .certificates import CertificateFiles
from .self_signed import SelfSigned
from .server import ContextSource, HttpServer, parse_bind_address
from .tls_options import TlsOptions

__all__ = [
    "CertificateFiles",
    "ContextSource",
    "HttpServer",
    "SelfSigned",
    "TlsOptions",
    "parse_bind_address",
]
