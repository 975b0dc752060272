"""What the API server told of Jobs and pods, from the first moment on, and whether two of them overlapped."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Self

from captf_controllers.jobs.operations import MUTATING
from captf_controllers.jobs.views import JobView, view_job
from captf_runtime.client import Client
from captf_runtime.client.watch import WatchStream
from captf_runtime.objects import JOB, POD, Kind, Object, labels_of, resource_version_of, uid_of

_ENDED = {"Succeeded", "Failed"}
_NEVER = float("inf")


@dataclass
class Span:
    """From the version at which something began to the one at which it had ended."""

    start: int
    end: float = _NEVER

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class Operation:
    """A Job and the time in which it, or a pod of it, was there and had not ended."""

    job: JobView
    span: Span

    def __str__(self) -> str:
        return f"{self.job.name} {self.span.start}-{self.span.end:g}"


class History:
    """Records every Job and pod of a namespace while it is open.

    Time is the API server's own: the resource version, of which each write of whatever kind takes the next.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._spans: dict[tuple[str, str], Span] = {}
        self._jobs: dict[str, JobView] = {}
        self._owners: dict[str, str] = {}
        self._threads: list[threading.Thread] = []
        self._streams: dict[str, WatchStream] = {}
        self._failures: list[Exception] = []
        self.count = 0

    def __enter__(self) -> Self:
        for kind in (JOB, POD):
            begin = self._client.list(kind, self._namespace)
            assert not begin.items, "the history begins before the first Job"
            thread = threading.Thread(
                target=self._record, args=(kind, begin.resource_version), name=f"history-{kind.plural}"
            )
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for stream in list(self._streams.values()):
            stream.close()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _record(self, kind: Kind, version: str) -> None:
        try:
            while not self._stop.is_set():
                stream = self._client.watch(
                    kind, self._namespace, resource_version=version, timeout_seconds=10, read_timeout=30.0
                )
                self._streams[kind.plural] = stream
                with stream:
                    for event in stream:
                        obj = event.decode()
                        version = resource_version_of(obj)
                        if event.type != "BOOKMARK":
                            self._note(kind, event.type, obj)
        except Exception as error:  # noqa: BLE001 - told by `operations`, in the thread of the test
            if not self._stop.is_set():
                self._failures.append(error)

    def _note(self, kind: Kind, type_: str, obj: Object) -> None:
        uid, version = uid_of(obj), int(resource_version_of(obj))
        with self._changed:
            self.count += 1
            span = self._spans.setdefault((kind.kind, uid), Span(version))
            if kind == JOB:
                self._jobs[uid] = view_job(obj)
                ended = self._jobs[uid].is_finished
            else:
                self._owners[uid] = labels_of(obj).get("controller-uid") or labels_of(obj).get(
                    "batch.kubernetes.io/controller-uid", ""
                )
                ended = (obj.get("status") or {}).get("phase") in _ENDED
            if (ended or type_ == "DELETED") and span.end == _NEVER:
                span.end = version
            self._changed.notify_all()

    def wait_count(self, count: int, timeout: float) -> bool:
        """Until so many events came."""
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, timeout)

    def operations(self) -> list[Operation]:
        """Every Job so far, over its own time and that of its pods."""
        if self._failures:
            raise AssertionError("the history is not complete") from self._failures[0]
        with self._changed:
            found = []
            for uid, view in self._jobs.items():
                spans = [self._spans[JOB.kind, uid]]
                spans += [self._spans[POD.kind, pod] for pod, job in self._owners.items() if job == uid]
                whole = Span(min(span.start for span in spans), max(span.end for span in spans))
                found.append(Operation(view, whole))
            return sorted(found, key=lambda operation: operation.span.start)

    def violations(self) -> list[str]:
        """Pairs of Jobs that may never run together and did."""
        return [f"{first} and {second}" for first, second in _overlapping(self.operations())]


def _overlapping(operations: Iterable[Operation]) -> Iterator[tuple[Operation, Operation]]:
    for first, second in combinations(operations, 2):
        if first.span.overlaps(second.span) and _exclude_each_other(first.job, second.job):
            yield first, second


def _exclude_each_other(first: JobView, second: JobView) -> bool:
    if (first.owner_kind, first.owner_name) == (second.owner_kind, second.owner_name):
        return True
    of_cluster = {view.owner_kind == "TerraformCluster" for view in (first, second)}
    return of_cluster == {True, False} and first.op in MUTATING and second.op in MUTATING
