"""The work of `reconcile.py` with the official client: its informer, an index, a queue and threads.

Run as a file, in an environment that has `kubernetes`. The official client has an informer but no work queue
and no index: those here are the simplest that do the work.
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kubernetes import client, config
from kubernetes.informer import SharedInformer
from measurement import Measurement, resident_mib

LIMIT = 600.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--expect", type=int, required=True)
    parser.add_argument("--workers", type=int, default=10)
    options = parser.parse_args()
    config.load_kube_config(options.kubeconfig)
    api = client.CoreV1Api()
    requests = 0
    send = api.api_client.rest_client.request

    def counted(*arguments: object, **named: object) -> object:
        nonlocal requests
        requests += 1
        return send(*arguments, **named)

    api.api_client.rest_client.request = counted
    index: dict[str, set[str]] = defaultdict(set)
    work: queue.Queue[str | None] = queue.Queue()
    complete = threading.Event()

    def on_added(secret: client.V1Secret) -> None:
        key = f"{secret.metadata.namespace}/{secret.metadata.name}"
        names = index[secret.metadata.namespace]
        names.add(key)
        work.put(key)
        if len(names) >= options.expect:
            complete.set()

    memory = resident_mib()
    start = time.perf_counter()
    informer = SharedInformer(api.list_namespaced_secret, namespace=options.namespace)
    informer.add_event_handler("ADDED", on_added)
    informer.start()
    if not complete.wait(LIMIT):
        raise TimeoutError("the cache did not fill")
    synced = time.perf_counter()
    done: set[str] = set()
    finished = threading.Event()

    def reconcile() -> None:
        while (key := work.get()) is not None:
            secret = informer.cache.get_by_key(key)
            if secret is not None and secret.metadata.name:
                done.add(key)
                if len(done) >= options.expect:
                    finished.set()

    threads = [threading.Thread(target=reconcile, daemon=True) for _ in range(options.workers)]
    for thread in threads:
        thread.start()
    if not finished.wait(LIMIT):
        raise TimeoutError("not all objects were reconciled")
    end = time.perf_counter()
    measured = Measurement(
        objects=len(informer.cache.list_keys()),
        sync_seconds=synced - start,
        reconcile_seconds=end - synced,
        total_seconds=end - start,
        rss_mib_start=memory,
        rss_mib_end=resident_mib(),
        requests=requests,
    )
    print(measured.line(), flush=True)
    for _ in threads:
        work.put(None)
    return 0


if __name__ == "__main__":
    main()
    # The informer's thread is in the middle of a read, for which its stop would wait.
    sys.stdout.flush()
    import os

    os._exit(0)
