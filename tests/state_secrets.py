"""State Secrets as the backend writes them, for tests."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

from captf_controllers.api import names
from captf_runtime.objects import Object

NAMESPACE = "team-a"
SUFFIX = names.state_suffix(NAMESPACE, "TerraformMachine", "m1")


def document(
    *, serial: int = 1, outputs: Mapping[str, Any] | None = None, resources: int = 1, **more: Any
) -> bytes:
    """Return a state document; outputs map names to plain values."""
    return json.dumps(
        {
            "version": 4,
            "terraform_version": "1.11.4",
            "serial": serial,
            "lineage": "6e1f0c5a",
            "outputs": {
                name: {"value": value, "type": "dynamic", "sensitive": True}
                for name, value in (outputs or {}).items()
            },
            "resources": [
                {"mode": "data", "type": "x", "name": "d", "instances": []},
                *(
                    {"mode": "managed", "type": "x", "name": f"r{index}", "instances": [{"secret": "s3cret"}]}
                    for index in range(resources)
                ),
            ],
            **more,
        }
    ).encode()


def payload(content: bytes) -> bytes:
    """Return the content as the backend compresses it."""
    return gzip.compress(content, mtime=0)


def chunks_of(data: bytes, size: int) -> list[bytes]:
    """Cut a payload as Terraform does, into pieces of `size` bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def secret(
    name: str,
    data: bytes | None,
    *,
    suffix: str = SUFFIX,
    namespace: str = NAMESPACE,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """Return one state Secret; `data` None leaves the data key out."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                "tfstate": "true",
                "tfstateSecretSuffix": suffix,
                "tfstateWorkspace": "default",
                "app.kubernetes.io/managed-by": "terraform",
                **(labels or {}),
            },
            "annotations": {"encoding": "gzip", **(annotations or {})},
        },
        "type": "Opaque",
        "data": {} if data is None else {"tfstate": base64.b64encode(data).decode()},
    }


def state_secrets(
    pieces: Sequence[bytes],
    *,
    suffix: str = SUFFIX,
    namespace: str = NAMESPACE,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[Object]:
    """Return the Secrets of a state in chunk order; annotations go on the base one."""
    return [
        secret(
            names.state_chunk(suffix, index),
            piece,
            suffix=suffix,
            namespace=namespace,
            annotations=annotations if index == 0 else None,
            labels=labels,
        )
        for index, piece in enumerate(pieces)
    ]
