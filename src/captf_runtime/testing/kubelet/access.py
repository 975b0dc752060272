"""A pod's way to the API server: ServiceAccount tokens and the kubeconfig that stands for in-cluster access.

Programs that use in-cluster configuration read `/var/run/secrets/kubernetes.io/serviceaccount`, a path that a
process of this machine cannot have for itself. Every container therefore also gets the variable `KUBECONFIG`
with a file that leads to the same server with the same identity.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from captf_runtime.client import Client
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import SERVICE_ACCOUNT, Object, name_of, namespace_of, uid_of

from .volumes import NotReady

__all__ = ["SERVICE_ACCOUNT_PATH", "TOKEN_SECONDS", "ApiServerAddress", "kubeconfig", "request_token"]

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3600
"""Validity asked for; tokens are renewed when four fifths of it have passed."""


@dataclass(frozen=True, slots=True)
class ApiServerAddress:
    """Where pods reach the API server.

    Args:
        server: its URL.
        ca_data: certificate authorities in PEM, None for those of the system.
        verify: False switches off the check of its certificate.
        tls_server_name: name to check the certificate against, "" for the host of the URL.
    """

    server: str
    ca_data: str | None = field(default=None, repr=False)
    verify: bool = True
    tls_server_name: str = ""

    def environment(self) -> dict[str, str]:
        """Return the variables that lead a pod to the API server."""
        url = urlsplit(self.server)
        port = url.port or (443 if url.scheme == "https" else 80)
        return {"KUBERNETES_SERVICE_HOST": url.hostname or "", "KUBERNETES_SERVICE_PORT": str(port)}


def kubeconfig(address: ApiServerAddress, namespace: str, token_file: Path) -> str:
    """Return a kubeconfig with the identity of a token file, as JSON (which YAML readers accept)."""
    cluster: Object = {"server": address.server}
    if address.ca_data is not None:
        cluster["certificate-authority-data"] = base64.b64encode(address.ca_data.encode()).decode()
    if not address.verify:
        cluster["insecure-skip-tls-verify"] = True
    if address.tls_server_name:
        cluster["tls-server-name"] = address.tls_server_name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "pod", "user": {"tokenFile": str(token_file)}}],
        "contexts": [
            {"name": "pod", "context": {"cluster": "cluster", "user": "pod", "namespace": namespace}}
        ],
        "current-context": "pod",
    }
    return json.dumps(document, indent=2)


def request_token(client: Client, pod: Object, audience: str = "", seconds: int = TOKEN_SECONDS) -> str:
    """Ask the API server for a token of the pod's ServiceAccount, bound to the pod.

    Raises:
        NotReady: the ServiceAccount does not exist.
        ApiError: any other answer.
    """
    account = (pod.get("spec") or {}).get("serviceAccountName") or "default"
    spec: Object = {
        "expirationSeconds": max(seconds, 600),
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": uid_of(pod)},
    }
    if audience:
        spec["audiences"] = [audience]
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    try:
        answer = client.create_subresource(SERVICE_ACCOUNT, account, "token", request, namespace_of(pod))
    except NotFound as error:
        raise NotReady(f'serviceaccount "{account}" not found') from error
    return str((answer.get("status") or {}).get("token", ""))
