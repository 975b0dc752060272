"""List, index and reconcile once, without effect, N objects; prints one line of JSON (see `measurement`).

    python -m hack.bench.reconcile --kubeconfig FILE --resource v1/secrets --namespace NS --expect N

A reconcile reads its object from the cache. Run it against a server that holds exactly the N objects.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: find this folder's package and the library beside it
    repository = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(repository), str(repository / "src")]

from captf_runtime import Cache, Client, Context, Controller, Kind, Request
from captf_runtime.cache import Header
from captf_runtime.client import NotFound
from hack.bench.measurement import Measurement, resident_mib

LIMIT = 600.0
"""Seconds after which the run is given up."""


class Requests:
    """Counts HTTP requests; an observer of the client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def request(self, *, method: str, verb: str, host: str, code: str, seconds: float) -> None:
        """One more."""
        with self._lock:
            self.count += 1

    def retry(self, *, verb: str, host: str, code: str) -> None:
        """The repetition itself counts as a request."""


class Reconciler:
    """Reads each object from the cache; says when so many different ones have been read."""

    def __init__(self, cache: Cache, kind: Kind, expect: int) -> None:
        self._cache = cache
        self._kind = kind
        self._left = expect
        self._seen: set[Request] = set()
        self.finished = threading.Event()
        self.end = 0.0

    def reconcile(self, ctx: Context, request: Request) -> None:
        """Do nothing, as to an object that is as it should be."""
        obj = self._cache.get(self._kind, request.name, request.namespace)
        if obj["metadata"]["name"] != request.name:
            raise AssertionError("the cache has returned another object")
        self._seen.add(request)
        if len(self._seen) >= self._left and not self.finished.is_set():
            self.end = time.perf_counter()
            self.finished.set()


def measure(kubeconfig: str, resource: str, namespace: str, expect: int, workers: int) -> Measurement:
    """Run once.

    Args:
        resource: `v1/secrets`, or `group/version/plural`.
        namespace: whose objects to read; empty: of all.
        expect: how many objects there are.

    Raises:
        NotFound: the server has no such resource.
        TimeoutError: not all objects were reconciled in time.
    """
    requests = Requests()
    with Client.from_config(kubeconfig=kubeconfig, user_agent="bench", observer=requests) as client:
        kind = _kind_of(client, resource)
        memory = resident_mib()
        start = time.perf_counter()
        cache = Cache(client)
        cache.informer(kind, namespace=namespace, indexes={"namespace": _namespace})
        stop = threading.Event()
        cache.start(stop)
        cache.wait_for_sync(LIMIT)
        synced = time.perf_counter()
        reconciler = Reconciler(cache, kind, expect)
        controller = Controller("bench", for_=kind, reconciler=reconciler, cache=cache, concurrency=workers)
        thread = threading.Thread(target=controller.run, args=(stop,), name="bench")
        thread.start()
        finished = reconciler.finished.wait(LIMIT)
        resident, objects = resident_mib(), cache.count(kind)
        stop.set()
        thread.join()
        cache.shutdown()
        if not finished:
            raise TimeoutError(f"not all of the {expect} objects were reconciled: the cache holds {objects}")
    return Measurement(
        objects=objects,
        sync_seconds=synced - start,
        reconcile_seconds=reconciler.end - synced,
        total_seconds=reconciler.end - start,
        rss_mib_start=memory,
        rss_mib_end=resident,
        requests=requests.count,
    )


def _namespace(header: Header) -> tuple[str]:
    return (header.namespace,)


def _kind_of(client: Client, resource: str) -> Kind:
    api_version, _, plural = resource.rpartition("/")
    group, _, version = api_version.rpartition("/")
    if not version or not plural:
        raise ValueError(f"--resource: give version/plural or group/version/plural, not {resource!r}")
    path = f"/apis/{api_version}" if group else f"/api/{version}"
    answer = client.raw("GET", path)
    found = _resources(answer.data) if answer.status == 200 else {}
    if plural not in found:
        raise NotFound(f"--resource: the server does not serve {resource}", code=404)
    kind, namespaced = found[plural]
    return Kind(group, version, kind, plural, namespaced)


def _resources(data: bytes) -> dict[str, tuple[str, bool]]:
    import json

    return {item["name"]: (item["kind"], bool(item["namespaced"])) for item in json.loads(data)["resources"]}


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="hack/bench/reconcile.py", description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", required=True, help="where the API server is")
    parser.add_argument("--resource", default="v1/secrets", help="version/plural or group/version/plural")
    parser.add_argument("--namespace", default="", help="whose objects to read; default: of all")
    parser.add_argument("--expect", type=int, required=True, help="how many objects there are")
    parser.add_argument("--workers", type=int, default=10, help="threads that reconcile (%(default)s)")
    options = parser.parse_args(arguments)
    measured = measure(
        options.kubeconfig, options.resource, options.namespace, options.expect, options.workers
    )
    print(measured.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
