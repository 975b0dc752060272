"""Requests to the API server as the pod's ServiceAccount."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
FOLDER_VARIABLE = "CAPTF_SERVICE_ACCOUNT_DIR"


class Unusable(Exception):
    """The pod has no usable in-cluster configuration. The text says what is missing."""


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """Where the API server is and who asks. Build it with `of`."""

    host: str
    port: int
    folder: Path
    tls: ssl.SSLContext

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ServiceAccount:
        """What the pod was given.

        Raises:
            Unusable: the address or the certificate of the API server is missing.
        """
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
        if not host or not port.isdecimal():
            raise Unusable("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        folder = Path(environ.get(FOLDER_VARIABLE) or FOLDER)
        try:
            tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "strerror", None) or "no certificate in it"
            raise Unusable(f"the service account's ca.crt cannot be used: {reason}") from None
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
        return cls(host, int(port), folder, tls)

    def request(self, method: str, path: str, body: bytes = b"", *, timeout: float) -> tuple[int, bytes]:
        """One request on a connection of its own.

        Args:
            path: with its query.
            body: JSON, or nothing.
            timeout: seconds for each wait for the server, and until the answer begins.

        Returns:
            The status and the body of the answer.

        Raises:
            OSError, http.client.HTTPException, ValueError: there was no answer, or the token is unreadable.
        """
        # The token is read for every request: the kubelet renews it during a long run.
        token = (self.folder / "token").read_text(encoding="ascii").strip()
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)
        deadline = time.monotonic() + timeout
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if body:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body or None, headers)
            if connection.sock is not None:
                connection.sock.settimeout(max(deadline - time.monotonic(), 0.01))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
