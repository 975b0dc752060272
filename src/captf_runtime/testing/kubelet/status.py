"""The status of a pod as a node reports it: container states, conditions, phase. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from captf_runtime.objects import Object, format_time

__all__ = ["ContainerRecord", "pod_phase", "pod_status", "running", "terminated", "waiting"]


@dataclass(slots=True)
class ContainerRecord:
    """What is known of one container of a pod."""

    name: str
    image: str
    state: Object
    last_state: Object = field(default_factory=dict)
    image_id: str = ""
    container_id: str = ""
    restart_count: int = 0

    @property
    def is_running(self) -> bool:
        """True while the main process runs."""
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """Exit code of the finished container, None while it has not ended."""
        ended = self.state.get("terminated")
        return int(ended["exitCode"]) if ended else None

    def to_status(self, *, init: bool) -> Object:
        """Return the entry of `containerStatuses` or `initContainerStatuses`."""
        status: Object = {
            "name": self.name,
            "state": self.state,
            "lastState": self.last_state,
            "ready": self.exit_code == 0 if init else self.is_running,
            "restartCount": self.restart_count,
            "image": self.image,
            "imageID": self.image_id,
        }
        if self.container_id:
            status["containerID"] = self.container_id
        if not init:
            status["started"] = self.is_running
        return status


def waiting(reason: str, message: str = "") -> Object:
    """Return a waiting state."""
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def running(started: datetime) -> Object:
    """Return a running state."""
    return {"running": {"startedAt": format_time(started)}}


def terminated(
    exit_code: int,
    *,
    started: datetime,
    finished: datetime,
    container_id: str = "",
    message: str = "",
    reason: str = "",
) -> Object:
    """Return a terminated state; the reason is Completed or Error unless another is given."""
    state: Object = {
        "exitCode": exit_code,
        "reason": reason or ("Completed" if exit_code == 0 else "Error"),
        "startedAt": format_time(started),
        "finishedAt": format_time(finished),
    }
    if message:
        state["message"] = message
    if container_id:
        state["containerID"] = container_id
    return {"terminated": state}


def pod_phase(
    init: Sequence[ContainerRecord], containers: Sequence[ContainerRecord], restart_policy: str
) -> str:
    """Return the phase that the states of the containers amount to."""
    for record in init:
        if record.exit_code is None:
            return "Pending"
        if record.exit_code != 0:
            return "Failed" if restart_policy == "Never" else "Pending"
    codes = [record.exit_code for record in containers]
    if any(code is None for code in codes):
        started = any(
            record.is_running or record.exit_code is not None or record.last_state for record in containers
        )
        return "Running" if started else "Pending"
    if restart_policy == "Always":
        return "Running"
    if all(code == 0 for code in codes):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" else "Running"


def pod_status(
    former: Object,
    init: Sequence[ContainerRecord],
    containers: Sequence[ContainerRecord],
    *,
    restart_policy: str,
    started: datetime,
    now: datetime,
    phase: str = "",
    reason: str = "",
    message: str = "",
) -> Object:
    """Return the `status` of a pod.

    Args:
        former: the status so far; conditions keep their transition times and foreign types.
        init, containers: the containers in the order of the spec.
        restart_policy: of the pod.
        started: when this node took the pod on.
        now: the time of transitions.
        phase, reason, message: override what the containers amount to, as for an exceeded deadline.
    """
    phase = phase or pod_phase(init, containers, restart_policy)
    status: Object = {
        "phase": phase,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": format_time(started),
        "conditions": _conditions(former.get("conditions") or [], phase, init, containers, now),
        "containerStatuses": [record.to_status(init=False) for record in containers],
    }
    if init:
        status["initContainerStatuses"] = [record.to_status(init=True) for record in init]
    if reason:
        status["reason"] = reason
    if message:
        status["message"] = message
    return status


def _conditions(
    former: list[Object],
    phase: str,
    init: Sequence[ContainerRecord],
    containers: Sequence[ContainerRecord],
    now: datetime,
) -> list[Object]:
    incomplete = [record.name for record in init if record.exit_code != 0]
    unready = [record.name for record in containers if not record.is_running]
    wanted: dict[str, tuple[str, str, str]] = {"PodScheduled": ("True", "", "")}
    if incomplete:
        message = f"containers with incomplete status: [{' '.join(incomplete)}]"
        wanted["Initialized"] = ("False", "ContainersNotInitialized", message)
    else:
        wanted["Initialized"] = ("True", "PodCompleted" if phase == "Succeeded" else "", "")
    if phase == "Succeeded":
        ready = ("False", "PodCompleted", "")
    elif phase == "Failed":
        ready = ("False", "PodFailed", "")
    elif unready:
        ready = ("False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    else:
        ready = ("True", "", "")
    wanted["Ready"] = wanted["ContainersReady"] = ready
    known = {condition.get("type"): condition for condition in former}
    conditions: list[Object] = []
    for kind, (state, reason, message) in wanted.items():
        before = known.pop(kind, None)
        kept = before.get("lastTransitionTime") if before and before.get("status") == state else None
        condition: Object = {
            "type": kind,
            "status": state,
            "lastProbeTime": None,
            "lastTransitionTime": kept or format_time(now),
        }
        if reason:
            condition["reason"] = reason
        if message:
            condition["message"] = message
        conditions.append(condition)
    return [*known.values(), *conditions]
