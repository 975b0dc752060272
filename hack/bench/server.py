"""The server under the benchmark: a real control plane, filled with Secrets."""

from __future__ import annotations

import base64
import random
import threading
from concurrent.futures import ThreadPoolExecutor

from captf_runtime import Client, Object
from captf_runtime.objects import NAMESPACE, SECRET

NAME = "bench"
WRITERS = 8
SEED = 2026


def fill(client: Client, count: int, size: int) -> None:
    """Make a namespace with Secrets that look like those of a real cluster: few labels, one large value.

    Args:
        count: how many.
        size: bytes of payload in each.
    """
    client.create(NAMESPACE, {"metadata": {"name": NAME}})
    local = threading.local()

    def write(number: int) -> None:
        if not hasattr(local, "random"):
            local.random = random.Random(SEED + number)
        client.create(SECRET, secret(number, local.random.randbytes(size)), NAME)

    with ThreadPoolExecutor(WRITERS, thread_name_prefix="fill") as pool:
        for _ in pool.map(write, range(count)):
            continue


def secret(number: int, payload: bytes) -> Object:
    """One of the Secrets."""
    return {
        "metadata": {
            "name": f"item-{number:05d}",
            "labels": {"app.kubernetes.io/name": "bench", "bench.example.com/shard": str(number % 16)},
            "annotations": {"bench.example.com/number": str(number)},
        },
        "type": "Opaque",
        "data": {"payload": base64.b64encode(payload).decode()},
    }
