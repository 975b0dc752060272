"""What the API server told of Jobs and pods, from the first moment on, and whether two of them overlapped."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Self
from uuid import uuid4

from captf_controllers.jobs.operations import MUTATING
from captf_controllers.jobs.views import JobView, view_job
from captf_runtime.client import Client
from captf_runtime.client.watch import WatchStream
from captf_runtime.objects import JOB, POD, Kind, Object, labels_of, name_of, resource_version_of, uid_of

_CONTAINER = {"name": "none", "image": "example.com/none:v1"}
#: Things that nobody runs, by which the end of the history so far is known.
_MARKS: dict[Kind, Object] = {
    JOB: {"parallelism": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}}},
    POD: {
        "nodeName": "no-such-node",
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [_CONTAINER],
    },
}
_MARK = "history-so-far-"
_PATIENCE = 120.0
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
    """A Job and the time in which it, or a pod of it, was there and had not ended.

    ``ran``: the container of a pod of it was started. A Job whose manager was killed before it made the per-run
    Secret cannot start; it is deleted after a minute and another takes its place.
    """

    job: JobView
    span: Span
    ran: bool

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
        self._ran: set[str] = set()
        self._marks: set[str] = set()
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.catch_up()
        finally:
            self._close()

    def _close(self) -> None:
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
                    kind, self._namespace, resource_version=version, timeout_seconds=10, read_timeout=120.0
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
                with self._changed:
                    self._failures.append(error)
                    self._changed.notify_all()

    def _note(self, kind: Kind, type_: str, obj: Object) -> None:
        uid, version = uid_of(obj), int(resource_version_of(obj))
        with self._changed:
            if name_of(obj).startswith(_MARK):
                self._marks.add(uid)
                self._changed.notify_all()
                return
            self.count += 1
            span = self._spans.setdefault((kind.kind, uid), Span(version))
            if kind == JOB:
                self._jobs[uid] = view_job(obj)
                ended = self._jobs[uid].is_finished
            else:
                self._owners[uid] = labels_of(obj).get("controller-uid") or labels_of(obj).get(
                    "batch.kubernetes.io/controller-uid", ""
                )
                status = obj.get("status") or {}
                ended = status.get("phase") in _ENDED
                states = [item.get("state") or {} for item in status.get("containerStatuses") or []]
                if any("running" in state or "terminated" in state for state in states):
                    self._ran.add(self._owners[uid])
            if (ended or type_ == "DELETED") and span.end == _NEVER:
                span.end = version
            self._changed.notify_all()

    def catch_up(self) -> None:
        """Until everything that has happened so far is recorded: events arrive some time after what they tell of.

        Those of a kind come in order, so that all are here once a thing made now is.
        """
        for kind, spec in _MARKS.items():
            name = f"{_MARK}{uuid4().hex[:8]}"
            made = self._client.create(kind, {"metadata": {"name": name}, "spec": spec}, self._namespace)
            uid = uid_of(made)
            with self._changed:
                while uid not in self._marks and not self._failures:
                    assert self._changed.wait(_PATIENCE), f"nothing is told of {kind.plural} any more"
            self._client.delete(
                kind, name, self._namespace, propagation_policy="Background", grace_period_seconds=0
            )

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
                found.append(Operation(view, whole, uid in self._ran))
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
