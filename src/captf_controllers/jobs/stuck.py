"""Active Jobs that can never start: found, told apart and deleted. A pod that started is never touched.

`decide_stuck` is pure; `check_stuck` gathers what it needs with as few reads as the answer takes, and
`delete_stuck` carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, TypeAlias

from captf_controllers.api import names
from captf_controllers.jobs.images import next_image
from captf_controllers.jobs.operations import FALLBACK_OPS
from captf_controllers.jobs.pods import CONFIG_FAILURES, PULL_FAILURES, PodFacts, list_pods
from captf_controllers.jobs.views import SOURCE_CONTAINER, JobView
from captf_runtime.client.errors import Conflict, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import (
    JOB,
    SECRET,
    Kind,
    Object,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)

__all__ = [
    "CONTAINER_AGE",
    "STUCK_JOB_AGE",
    "KnownImages",
    "NoPod",
    "PullFailed",
    "StuckCause",
    "StuckJob",
    "check_stuck",
    "decide_stuck",
    "delete_stuck",
]

STUCK_JOB_AGE: Final = timedelta(seconds=60)
"""A younger Job is not looked at: its Secret may be about to be created."""

CONTAINER_AGE: Final = timedelta(seconds=120)
"""Age of Job and pod from which a container that cannot be created, or an image, counts as out of reach."""


class StuckCause(Enum):
    """Why the Job can never start."""

    RUN_SECRET_MISSING = "its Secret is missing"
    CONTAINER_NOT_CREATED = "a container cannot be created"
    IMAGE_NOT_PULLED = "its image cannot be pulled"


@dataclass(frozen=True, slots=True)
class KnownImages:
    """What is known about images beside the Job's own list.

    Args:
        spec_image: the present spec image of a cluster or pool; "" for a machine.
        unpullable: images recorded as not to be had; None when there is no Secret to record one in.
    """

    spec_image: str
    unpullable: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class StuckJob:
    """The Job is to be deleted. `detail` completes the event's note; `next_image` is set for a pull
    failure."""

    cause: StuckCause
    detail: str
    next_image: str = ""


@dataclass(frozen=True, slots=True)
class PullFailed:
    """The image cannot be had and nothing is left to replace it: the Job is left to its deadline.

    `message` is the condition's, which reports it at once.
    """

    image: str
    message: str


@dataclass(frozen=True, slots=True)
class NoPod:
    """The Job controller makes no pod of the Job, which is left to its deadline.

    A quota, a range of limits, a pod security level or a webhook may refuse the pod of a Job that they let through;
    only the Job's events say which. `detail` completes the condition's message, which reports it at once.
    """

    detail: str


Finding: TypeAlias = StuckJob | PullFailed | NoPod


def decide_stuck(
    job: JobView, pods: Sequence[PodFacts], now: datetime, *, run_secret_missing: bool, images: KnownImages
) -> Finding | None:
    """Tell whether a running Job can never start.

    Args:
        pods: every pod of the Job, read live.
        run_secret_missing: whether a live read said that the per-run Secret does not exist.
    """
    age = now - job.created
    if age < STUCK_JOB_AGE or any(pod.phase != "Pending" for pod in pods):
        return None
    if run_secret_missing:
        return StuckJob(
            StuckCause.RUN_SECRET_MISSING, f"Secret {names.per_run_secret(job.name)} does not exist"
        )
    if age < CONTAINER_AGE:
        return None
    if not pods and not job.had_pods:
        return NoPod(
            "no pod of it was made, which a quota, a policy or an admission webhook may refuse: the cause is among "
            f"the events of kubectl describe job -n {job.namespace} {job.name}; the Job waits until its deadline"
        )
    for pod in pods:
        if pod.job_uid != job.uid or now - pod.created < CONTAINER_AGE:
            continue
        for container in pod.waiting:
            if container.reason in CONFIG_FAILURES:
                detail = f"container {container.name} waits: {container.reason}"
                return StuckJob(
                    StuckCause.CONTAINER_NOT_CREATED,
                    f"{detail}: {container.message}" if container.message else detail,
                )
    return _pull_failure(job, pods, images)


def _pull_failure(
    job: JobView, pods: Sequence[PodFacts], images: KnownImages
) -> StuckJob | PullFailed | None:
    if job.op not in FALLBACK_OPS or any(pod.ready for pod in pods):
        return None
    waiting = next(
        (
            container
            for pod in pods
            for container in pod.waiting
            if container.name == SOURCE_CONTAINER and container.reason in PULL_FAILURES
        ),
        None,
    )
    if waiting is None:
        return None
    following = ""
    if images.unpullable is not None:
        following = next_image(job, images.spec_image, images.unpullable)
    if following:
        return StuckJob(StuckCause.IMAGE_NOT_PULLED, f"{waiting.reason} of {job.image}", following)
    return PullFailed(
        job.image,
        f"Job {job.name}: image {job.image} cannot be pulled ({waiting.reason}), and no other image is known "
        "to try; the Job waits for it until its deadline",
    )


def check_stuck(client: Verbs, job: JobView, now: datetime, images: KnownImages) -> Finding | None:
    """Look at the active Job. A young one costs no request, one whose pod runs a list of its pods.

    Raises:
        ApiError: a read failed.
    """
    if now - job.created < STUCK_JOB_AGE:
        return None
    pods = list_pods(client, job.namespace, job.name)
    if any(pod.phase != "Pending" for pod in pods):
        return None
    try:
        client.get(SECRET, names.per_run_secret(job.name), job.namespace, metadata_only=True)
        missing = False
    except NotFound:
        missing = True
    return decide_stuck(job, pods, now, run_secret_missing=missing, images=images)


def delete_stuck(client: Verbs, kind: Kind, obj: Object, job: JobView) -> None:
    """Delete a stuck Job, with its pods in the background.

    `status.activeJob` is cleared on the server first: if the pass's own status write were lost, the deleted
    Job would later look like an apply that vanished while it ran.

    Raises:
        ApiError: clearing failed, so nothing was deleted; or the deletion failed.
    """
    live = client.get(kind, name_of(obj), namespace_of(obj))
    status = live.get("status")
    active = status.get("activeJob") if isinstance(status, dict) else None
    if uid_of(live) == uid_of(obj) and isinstance(active, dict) and active.get("name") == job.name:
        patch: Object = {
            "metadata": {"resourceVersion": resource_version_of(live)},
            "status": {"activeJob": None},
        }
        client.patch(kind, name_of(obj), patch, namespace_of(obj), subresource="status")
    try:
        client.delete(JOB, job.name, job.namespace, propagation_policy="Background", uid=job.uid)
    except (NotFound, Conflict):
        return
