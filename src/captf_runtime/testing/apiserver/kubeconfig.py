"""Kubeconfig files for the server's users."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import msgspec

from captf_runtime.objects import Object


def content(
    url: str, token: str, *, authority: bytes | None = None, user: str = "admin", namespace: str = "default"
) -> Object:
    """A kubeconfig with one context; the authority's PEM is embedded, never skipped."""
    cluster: Object = {"server": url}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "embedded", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {"name": "embedded", "context": {"cluster": "embedded", "user": user, "namespace": namespace}}
        ],
        "current-context": "embedded",
    }


def write(path: Path, config: Object) -> None:
    """Write the file as JSON, which is YAML, readable by its owner only."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(config), indent=2))
