"""The work of `reconcile.py` with kopf: a handler that indexes its object and reads it from there.

Run as a file, in an environment that has `kopf`. This is kopf at its fastest: a handler of events writes nothing
to the objects, neither annotations nor finalizers; posting of events, peering and logging are off; and the index
is a dictionary of ours, because the time that kopf's own (`@kopf.index`) takes grows with the square of the
number of objects.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp
import kopf
from measurement import Measurement, resident_mib

LIMIT = 600.0


class Progress:
    """What the handlers have seen."""

    def __init__(self, expect: int) -> None:
        self.expect = expect
        self.index: dict[str, dict[str, kopf.Body]] = defaultdict(dict)
        self.done: set[str] = set()
        self.requests = 0
        self.synced = 0.0
        self.end = 0.0
        self.finished = asyncio.Event()


def register(progress: Progress, registry: kopf.OperatorRegistry) -> None:
    """Make the handlers known."""

    @kopf.on.login(registry=registry)
    def login(**named: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**named)

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.peering.standalone = True

    @kopf.on.event("", "v1", "secrets", registry=registry)
    async def reconcile(name: str, namespace: str, body: kopf.Body, **_: Any) -> None:
        progress.index[namespace][name] = body
        if len(progress.index[namespace]) >= progress.expect and not progress.synced:
            progress.synced = time.perf_counter()
        if progress.index[namespace][name]["metadata"]["name"] == name:
            progress.done.add(name)
        if len(progress.done) >= progress.expect and not progress.finished.is_set():
            progress.end = time.perf_counter()
            progress.finished.set()


async def measure(namespace: str, expect: int) -> Measurement:
    progress = Progress(expect)
    registry = kopf.OperatorRegistry()
    register(progress, registry)
    send = aiohttp.ClientSession._request

    async def counted(*arguments: Any, **named: Any) -> Any:
        progress.requests += 1
        return await send(*arguments, **named)

    aiohttp.ClientSession._request = counted  # type: ignore[method-assign]
    memory = resident_mib()
    start = time.perf_counter()
    stop = asyncio.Event()
    operator = asyncio.create_task(kopf.operator(registry=registry, namespaces=[namespace], stop_flag=stop))
    finished = asyncio.create_task(progress.finished.wait())
    await asyncio.wait({operator, finished}, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
    if operator.done():
        await operator
    if not progress.finished.is_set():
        raise TimeoutError(f"only {len(progress.done)} of {expect} objects were reconciled")
    return Measurement(
        objects=len(progress.index[namespace]),
        sync_seconds=progress.synced - start,
        reconcile_seconds=progress.end - progress.synced,
        total_seconds=progress.end - start,
        rss_mib_start=memory,
        rss_mib_end=resident_mib(),
        requests=progress.requests,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--expect", type=int, required=True)
    options = parser.parse_args()
    os.environ["KUBECONFIG"] = options.kubeconfig
    logging.disable(logging.WARNING)

    async def run() -> None:
        measured = await measure(options.namespace, options.expect)
        print(measured.line(), flush=True)
        # Thousands of tasks would be wound up now, which is nobody's figure.
        sys.stdout.flush()
        os._exit(0)

    asyncio.run(run())


if __name__ == "__main__":
    main()
