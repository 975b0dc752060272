"""Jobs as CAPTF reads them: an immutable view of the fields that decide anything.

Everything here is pure but `list_jobs`, which reads the cache it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Literal

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.kinds import GROUP, WORKLOAD_KINDS
from captf_controllers.api.workspace import OPERATIONS, Operation
from captf_runtime.client import Reader
from captf_runtime.objects import (
    JOB,
    Object,
    OwnerReference,
    annotations_of,
    controller_of,
    creation_timestamp_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    parse_time,
    resource_version_of,
    uid_of,
)

__all__ = [
    "SOURCE_CONTAINER",
    "JobPhase",
    "JobView",
    "active_job",
    "list_jobs",
    "newest_created_first",
    "next_attempt",
    "owner_selector",
    "view_job",
]

SOURCE_CONTAINER: Final = "source"
"""Name of the container that runs the module image."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class JobPhase(Enum):
    """Where a Job stands; anything that is not surely over is running."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class JobView:
    """One Job of a Terraform object.

    `op` is "" and `attempt` None where the label is missing or makes no sense. Times are aware UTC; `started`
    is when the Job controller began with it and `finished` when its terminal condition was set. `overran`: it failed
    no sooner than its deadline, whatever the reason of its condition. `had_pods`: the Job controller counts a pod of
    it, or has counted one.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    op: Operation | Literal[""]
    attempt: int | None
    created: datetime
    started: datetime | None
    phase: JobPhase
    finished: datetime | None
    deadline_exceeded: bool
    overran: bool
    had_pods: bool
    deleting: bool
    controller: OwnerReference | None
    owner_kind: str
    owner_name: str
    cluster_name: str
    image: str
    service_account: str
    annotations: Mapping[str, str]

    @property
    def owner_uid(self) -> str:
        """UID of what controls the Job, "" when nothing does."""
        return self.controller.uid if self.controller is not None else ""

    @property
    def of_workload(self) -> bool:
        """Whether an object of the three kinds controls the Job."""
        return (
            self.controller is not None
            and self.controller.group == GROUP
            and any(kind.kind == self.controller.kind for kind in WORKLOAD_KINDS)
        )

    def is_of(self, kind: str, name: str) -> bool:
        """Whether it is a Job of the object of that kind and name, under whatever uid.

        The controller tells, by its whole name: the label of a long name is a hash, which another object may have
        for a name. Only a Job that lost its controller is told by its labels.
        """
        if self.controller is None:
            return (self.owner_kind, self.owner_name) == (kind, names.label_value(name))
        return self.of_workload and (self.controller.kind, self.controller.name) == (kind, name)

    @property
    def is_finished(self) -> bool:
        """Whether the Job has its terminal condition."""
        return self.phase is not JobPhase.RUNNING

    @property
    def bookkept(self) -> bool:
        """Whether an earlier pass counted this Job and wrote its marks."""
        return self.marked(keys.BOOKKEPT)

    def marked(self, annotation: str) -> bool:
        """Whether the annotation says "true"."""
        return self.annotations.get(annotation) == "true"

    @property
    def inputs_hash(self) -> str:
        """The inputs hash it was created for; "" on destroy, refresh and drift Jobs."""
        return self.annotations.get(keys.INPUTS_HASH, "")

    @property
    def reference(self) -> Object:
        """What an event needs to name the Job as its related object."""
        return {
            "apiVersion": JOB.api_version,
            "kind": JOB.kind,
            "metadata": {"namespace": self.namespace, "name": self.name, "uid": self.uid},
        }


def view_job(job: Mapping[str, Any]) -> JobView:
    """Read a Job. Never raises for what a Job may hold: unreadable times and labels count as absent."""
    job_labels = labels_of(job)
    status = _mapping(job.get("status"))
    phase, terminal = _phase(status)
    created = creation_timestamp_of(job) or _EPOCH
    finished: datetime | None = None
    if phase is not JobPhase.RUNNING:
        finished = _time(terminal.get("lastTransitionTime")) or _time(status.get("completionTime")) or created
    spec = _mapping(job.get("spec"))
    pod_spec = _mapping(_mapping(spec.get("template")).get("spec"))
    started = _time(status.get("startTime"))
    limit = spec.get("activeDeadlineSeconds")
    op = job_labels.get(labels.OP, "")
    return JobView(
        namespace=namespace_of(job),
        name=name_of(job),
        uid=uid_of(job),
        resource_version=resource_version_of(job),
        op=next((known for known in OPERATIONS if known == op), ""),
        attempt=_attempt(job_labels.get(labels.ATTEMPT, "")),
        created=created,
        started=started,
        phase=phase,
        finished=finished,
        deadline_exceeded=phase is JobPhase.FAILED and terminal.get("reason") == "DeadlineExceeded",
        overran=phase is JobPhase.FAILED
        and isinstance(limit, int)
        and started is not None
        and finished is not None
        and (finished - started).total_seconds() >= limit,
        had_pods=any(status.get(count) for count in ("active", "succeeded", "failed")),
        deleting=is_deleting(job),
        controller=controller_of(job),
        owner_kind=job_labels.get(labels.OWNER_KIND, ""),
        owner_name=job_labels.get(labels.OWNER_NAME, ""),
        cluster_name=job_labels.get(labels.CLUSTER_NAME, ""),
        image=_source_image(pod_spec),
        service_account=str(pod_spec.get("serviceAccountName") or ""),
        annotations=annotations_of(job),
    )


def owner_selector(kind: str, name: str) -> str:
    """The label selector of everything labelled as belonging to the object."""
    return f"{labels.OWNER_KIND}={kind},{labels.OWNER_NAME}={names.label_value(name)}"


def list_jobs(reader: Reader, namespace: str, kind: str, name: str, *, uid: str) -> list[JobView]:
    """The object's Jobs, newest created first (ties by name, ascending).

    Args:
        reader: the Job cache; it may trail the API server, which is what `jobs.lag` guards against.
        uid: the object's UID. Jobs of an earlier object of the same name that await collection are left
            out: their outcomes say nothing about this object.
    """
    found = reader.list(JOB, namespace, label_selector=owner_selector(kind, name))
    return newest_created_first(view for view in map(view_job, found) if view.owner_uid == uid)


def newest_created_first(views: Iterable[JobView]) -> list[JobView]:
    """Sort by creation time, newest first; equal times by name, ascending."""
    return sorted(sorted(views, key=lambda view: view.name), key=lambda view: view.created, reverse=True)


def active_job(views: Sequence[JobView]) -> JobView | None:
    """The newest unfinished Job by creation time, if any."""
    return next((view for view in newest_created_first(views) if not view.is_finished), None)


def next_attempt(views: Iterable[JobView], op: str) -> int:
    """One more than the highest attempt among the retained Jobs of the op, whatever their outcome.

    Never derived from a number of failures: pruning would make names repeat.
    """
    return 1 + max((view.attempt for view in views if view.op == op and view.attempt is not None), default=0)


def _phase(status: Mapping[str, Any]) -> tuple[JobPhase, Mapping[str, Any]]:
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else []:
        if isinstance(condition, dict) and condition.get("status") == "True":
            if condition.get("type") == "Complete":
                return JobPhase.SUCCEEDED, condition
            if condition.get("type") == "Failed":
                return JobPhase.FAILED, condition
    return JobPhase.RUNNING, {}


def _attempt(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        return None
    value = int(text)
    return value if 1 <= value <= 2**31 - 1 else None


def _source_image(pod_spec: Mapping[str, Any]) -> str:
    containers = pod_spec.get("containers")
    for container in containers if isinstance(containers, list) else []:
        if isinstance(container, dict) and container.get("name") == SOURCE_CONTAINER:
            return str(container.get("image") or "")
    return ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _time(value: object) -> datetime | None:
    if not isinstance(value, str) or not value:
        return None
    try:
        return parse_time(value)
    except ValueError:
        return None
