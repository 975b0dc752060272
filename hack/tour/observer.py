"""Watching CAPTF work, as kubectl would show it: conditions, Jobs, what arrives in status."""

from __future__ import annotations

import threading
from typing import Any

from captf_controllers.api.kinds import WORKLOAD_KINDS
from captf_controllers.api.labels import MANAGED
from captf_controllers.jobs.views import JobPhase, view_job
from captf_runtime.client import Client
from captf_runtime.client.errors import ApiError
from captf_runtime.objects import JOB, Kind, Object, ObjectKey, is_deleting, key_of
from hack.tour.narrator import Narrator

#: Conditions whose every change is part of the story. The others would only repeat it.
TOLD = ("DependenciesReady", "ApplyJobSucceeded", "DeletionBlocked", "Deleting", "StateReadable", "Ready")
#: How much of a condition's message is told, in characters; enough for the error of a step that failed.
MESSAGE = 240


class Observer:
    """Polls the objects of a namespace and tells what changed since the last look."""

    def __init__(self, client: Client, namespace: str, narrator: Narrator, *, period: float = 0.2) -> None:
        self._client = client
        self._namespace = namespace
        self._narrator = narrator
        self._period = period
        self._stop = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tour-observer", daemon=True)
        self._seen: dict[tuple[str, ObjectKey], Object] = {}
        self._jobs: dict[str, JobPhase] = {}

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
        self.look()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            self.look()

    def look(self) -> None:
        """One look; an API server that does not answer is looked at again later.

        Whoever tells on after something that was waited for looks first, so that the story keeps its order.
        """
        with self._looking:
            try:
                self._look_at_jobs()
                for kind in WORKLOAD_KINDS:
                    self._look_at_objects(kind)
            except ApiError:
                return

    def _look_at_jobs(self) -> None:
        for item in self._client.list(JOB, self._namespace, label_selector=f"{MANAGED}=true").items:
            job = view_job(item)
            before = self._jobs.get(job.name)
            if before is job.phase:
                continue
            self._jobs[job.name] = job.phase
            if before is None:
                self._narrator.say(f"Job {job.name}: {job.op} started", style="cyan")
            if job.is_finished:
                took = (job.finished or job.created) - (job.started or job.created)
                good = job.phase is JobPhase.SUCCEEDED
                self._narrator.say(
                    f"Job {job.name}: {job.op} {'succeeded' if good else 'FAILED'} in "
                    f"{took.total_seconds():.0f}s",
                    style="green" if good else "red",
                )

    def _look_at_objects(self, kind: Kind) -> None:
        found = {key_of(item): item for item in self._client.list(kind, self._namespace).items}
        for key, item in found.items():
            before = self._seen.get((kind.kind, key), {})
            for line in changes(before, item):
                self._narrator.say(f"{kind.kind} {key.name}: {line}")
        for known, key in [entry for entry in self._seen if entry[0] == kind.kind]:
            if key not in found:
                self._narrator.say(f"{known} {key.name}: gone", style="green")
                del self._seen[known, key]
        self._seen.update({(kind.kind, key): item for key, item in found.items()})


def changes(before: Object, now: Object) -> list[str]:
    """What a reader wants to know about the difference between two states of an object."""
    lines: list[str] = []
    old, new = _conditions(before), _conditions(now)
    if is_deleting(now) and not is_deleting(before):
        lines.append("deletion requested")
    for type_ in TOLD:
        condition, previous = new.get(type_), old.get(type_, {})
        if condition is None:
            continue
        same = all(condition.get(field) == previous.get(field) for field in ("status", "reason"))
        told = condition.get("message", "") != previous.get("message", "") and type_ == "Deleting"
        if not same or (told and condition.get("message")):
            message = str(condition.get("message", "")).replace("\n", " ")
            shown = message if len(message) <= MESSAGE else f"{message[: MESSAGE - 1]}…"
            tail = f": {shown}" if shown else ""
            lines.append(f"{type_}={condition['status']}/{condition['reason']}{tail}")
    for path, label in (
        (("spec", "controlPlaneEndpoint"), "endpoint"),
        (("spec", "providerID"), "provider ID"),
    ):
        value = _at(now, path)
        if value and value != _at(before, path):
            shown = f"{value['host']}:{value['port']}" if isinstance(value, dict) else value
            lines.append(f"{label} {shown}")
    return lines


def _conditions(obj: Object) -> dict[str, dict[str, Any]]:
    return {item["type"]: item for item in (obj.get("status") or {}).get("conditions") or []}


def _at(obj: Object, path: tuple[str, ...]) -> Any:
    value: Any = obj
    for part in path:
        value = (value or {}).get(part)
    return value
