"""Pods of a Job: which ones they are, and the facts about them that decide anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from captf_controllers.jobs.views import SOURCE_CONTAINER
from captf_runtime.client import Reader
from captf_runtime.objects import (
    POD,
    controller_of,
    creation_timestamp_of,
    name_of,
    parse_time,
    uid_of,
)

__all__ = ["PodFacts", "WaitingContainer", "list_pods", "newest_pod", "pod_facts"]

PULL_FAILURES: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName"})
"""Reasons of a container that waits because its image cannot be had."""

CONFIG_FAILURES: Final = frozenset({"CreateContainerConfigError"})
"""Reasons of a container that waits because something that it needs cannot be mounted or read."""

# Reasons with which a cluster takes a pod away for its own purposes. "TerminationByKubelet" is left out on
# purpose: it also covers a pod evicted for the memory or disk that it used itself, and to retry that without
# a backoff would only fill the next node.
_OUTSIDE_DISRUPTIONS: Final = frozenset(
    {"PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC"}
)

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class WaitingContainer:
    """A container that has not started: its name, the kubelet's reason and message."""

    name: str
    init: bool
    reason: str
    message: str
    image: str


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod. Times are aware UTC; `source` is the container with the module image."""

    name: str
    uid: str
    phase: str
    created: datetime
    job_uid: str
    ready: bool
    waiting: tuple[WaitingContainer, ...]
    source_started: datetime | None
    source_ever_started: bool
    source_image_id: str
    termination_message: str
    disrupted: bool

    @property
    def ended(self) -> bool:
        """Whether no container of the pod runs or will run. A terminating pod still runs."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def pull_failure(self) -> WaitingContainer | None:
        """The first container, init containers included, whose image cannot be had."""
        return next((item for item in self.waiting if item.reason in PULL_FAILURES), None)


def list_pods(client: Reader, namespace: str, job_name: str) -> list[PodFacts]:
    """The pods of the Job of that name, read from the API server.

    The selector is the label `job-name`, which every Job controller sets. The newer
    `batch.kubernetes.io/job-name` is missing before Kubernetes 1.27, and a selector on it would answer "no
    pod" there while pods run, which would free a lease under a running apply.
    """
    found = client.list(POD, namespace, label_selector=f"job-name={job_name}")
    return [pod_facts(pod) for pod in found]


def newest_pod(pods: Iterable[PodFacts]) -> PodFacts | None:
    """The pod created last; equal times by name, the last one."""
    return max(pods, key=lambda pod: (pod.created, pod.name), default=None)


def pod_facts(pod: Mapping[str, Any]) -> PodFacts:
    """Read a pod. Never raises for what a pod may hold."""
    status = pod.get("status")
    status = status if isinstance(status, dict) else {}
    source: Mapping[str, Any] = {}
    for entry in _dicts(status.get("containerStatuses")):
        if entry.get("name") == SOURCE_CONTAINER:
            source = entry
    state, last = _states(source)
    controller = controller_of(pod)
    terminated = _dict(state.get("terminated")) or _dict(last.get("terminated"))
    started = (
        _time(_dict(state.get("running")).get("startedAt"))
        or _time(_dict(state.get("terminated")).get("startedAt"))
        or _time(_dict(last.get("terminated")).get("startedAt"))
    )
    phase = str(status.get("phase") or "")
    if source:
        ever_started = bool(state.get("running")) or started is not None or _has_run(state) or _has_run(last)
    else:
        # A node that is lost, or a pod that was evicted, may never report the container that it had started.
        ever_started = phase not in ("", "Pending")
    return PodFacts(
        name=name_of(pod),
        uid=uid_of(pod),
        phase=phase,
        created=creation_timestamp_of(pod) or _EPOCH,
        job_uid=controller.uid if controller is not None else "",
        ready=any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in _dicts(status.get("conditions"))
        ),
        waiting=(
            *_waiting(_dicts(status.get("initContainerStatuses")), init=True),
            *_waiting(_dicts(status.get("containerStatuses")), init=False),
        ),
        source_started=started,
        source_ever_started=ever_started,
        source_image_id=str(source.get("imageID") or ""),
        termination_message=str(terminated.get("message") or ""),
        disrupted=any(
            condition.get("type") == "DisruptionTarget"
            and condition.get("status") == "True"
            and condition.get("reason") in _OUTSIDE_DISRUPTIONS
            for condition in _dicts(status.get("conditions"))
        ),
    )


def _states(container: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return _dict(container.get("state")), _dict(container.get("lastState"))


def _has_run(state: Mapping[str, Any]) -> bool:
    terminated = state.get("terminated")
    if not isinstance(terminated, dict):
        return False
    # Unless it is known that the process never existed, it did: what cannot be known is not assumed away.
    return terminated.get("reason") not in ("StartError", "ContainerCannotRun")


def _waiting(statuses: Iterable[Mapping[str, Any]], *, init: bool) -> Iterable[WaitingContainer]:
    for entry in statuses:
        waiting = _dict(_dict(entry.get("state")).get("waiting"))
        if waiting:
            yield WaitingContainer(
                name=str(entry.get("name") or ""),
                init=init,
                reason=str(waiting.get("reason") or ""),
                message=str(waiting.get("message") or ""),
                image=str(entry.get("image") or ""),
            )


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _time(value: object) -> datetime | None:
    if not isinstance(value, str) or not value:
        return None
    try:
        time = parse_time(value)
    except ValueError:
        return None
    # A container that never started is reported as started at the beginning of the epoch.
    return time if time > _EPOCH else None
