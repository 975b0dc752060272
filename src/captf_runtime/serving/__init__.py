"""HTTP servers for probes, metrics and webhooks: threaded, with TLS whose certificate may change on disk."""

from .certificates import CertificateFiles
from .server import HttpServer, parse_bind_address

__all__ = ["CertificateFiles", "HttpServer", "parse_bind_address"]
