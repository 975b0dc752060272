"""How a Job ended: from the Job, its newest pod and the result document, or from its marks once counted.

A finished Job's pod is read once, by the pass that counts the Job. What a later pass needs to know lives on
as annotations of the Job, so that a Job that is already counted costs no request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.jobs.pods import PodFacts, list_pods, newest_pod
from captf_controllers.jobs.result import RunResult, parse_result
from captf_controllers.jobs.views import JobPhase, JobView
from captf_controllers.observability.metrics import JobResult
from captf_runtime.client.errors import Conflict, Invalid, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import JOB, SECRET, owner_references, uid_of

__all__ = [
    "FinishedJob",
    "classify",
    "collect_finished",
    "delete_run_secret",
    "from_marks",
    "marks_of",
    "newest_finished",
    "pinned_digest",
    "write_marks",
]


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A finished Job with its outcome.

    `succeeded` is CAPTF's answer: a plan Job that left no readable plan failed, whatever Kubernetes says. The
    flags below it never hold together with it, and at most one of `interrupted`, `blocked` and `plan_changed`
    does. `result` and `pod` are None on a Job that an earlier pass counted. `pods_running` says whether some
    pod of the Job had not ended when the pods were read.
    """

    job: JobView
    succeeded: bool
    interrupted: bool = False
    blocked: bool = False
    plan_changed: bool = False
    plan_unreadable: bool = False
    pull_failed: bool = False
    image_invalid: bool = False
    result: RunResult | None = None
    pod: PodFacts | None = None
    pods_running: bool = False
    stopped_late: bool = False

    @property
    def name(self) -> str:
        """Name of the Job."""
        return self.job.name

    @property
    def op(self) -> str:
        """The operation that it ran."""
        return self.job.op

    @property
    def newly(self) -> bool:
        """Whether no pass has counted the Job yet."""
        return not self.job.bookkept

    @property
    def deadline(self) -> bool:
        """Whether it was killed at its deadline.

        A Job controller whose write of that was in conflict looks again, finds the pod that it had stopped failed,
        and names that for the reason. So a run that was stopped no sooner than the deadline was stopped at it.
        """
        return self.job.deadline_exceeded or self.stopped_late

    @property
    def finished_at(self) -> datetime:
        """When its terminal condition was set."""
        return self.job.finished or self.job.created

    @property
    def order(self) -> tuple[datetime, datetime]:
        """By this, Jobs of one object compare in the order in which they ran.

        They run one after the other, so of two that finished in the same second, which is as much as Kubernetes
        records, the one that was created later ran later.
        """
        return self.finished_at, self.job.created

    @property
    def counts_as_failure(self) -> bool:
        """Whether it counts toward the backoff of its operation.

        A kill at the deadline does, even when the runner says that it was interrupted. Being stopped from
        outside does not, nor does a plan that waits for a person.
        """
        return not (self.succeeded or self.interrupted or self.blocked or self.plan_changed)

    @property
    def waits_for_approval(self) -> bool:
        """Whether it stopped because a person had to approve what it planned."""
        return self.blocked or self.plan_changed

    @property
    def result_label(self) -> JobResult:
        """The outcome as the `result` label of the Job metrics."""
        if self.succeeded:
            return "succeeded"
        if self.blocked:
            return "blocked"
        if self.plan_changed:
            return "plan_changed"
        if self.deadline:
            return "deadline"
        return "interrupted" if self.interrupted else "failed"

    @property
    def plan_hash(self) -> str:
        """Fingerprint of the plan that it made, "" when it made none."""
        if self.result is not None and self.result.plan is not None:
            return self.result.plan.hash
        return self.job.annotations.get(keys.PLAN_HASH, "")

    @property
    def image_id(self) -> str:
        """What the runtime says it ran, such as `registry/x@sha256:…`; "" when unknown."""
        return self.pod.source_image_id if self.pod is not None else ""


def classify(job: JobView, pods: Sequence[PodFacts]) -> FinishedJob:
    """Tell how a finished Job ended, from the Job and its pods.

    The result is the termination message of the newest pod. A pod that the cluster took away for its own
    purposes (a drain, a taint, a preemption) and that left no result was interrupted as well.
    """
    # Pods of an earlier Job of this name may await collection beside this one's.
    pod = newest_pod(item for item in pods if item.job_uid in ("", job.uid))
    result = parse_result(pod.termination_message) if pod is not None else None
    running = any(not item.ended for item in pods)
    if job.phase is JobPhase.SUCCEEDED:
        unreadable = job.op == "plan" and (result is None or result.plan is None)
        return FinishedJob(
            job=job,
            succeeded=not unreadable,
            plan_unreadable=unreadable,
            result=result,
            pod=pod,
            pods_running=running,
        )
    kind = result.error.known_kind if result is not None and result.error is not None else ""
    stopped = kind == "interrupted" or (result is None and pod is not None and pod.disrupted)
    at_deadline = job.deadline_exceeded or job.overran
    return FinishedJob(
        job=job,
        succeeded=False,
        interrupted=stopped and not at_deadline,
        stopped_late=stopped and job.overran,
        blocked=kind == "blocked" and job.op == "apply",
        plan_changed=kind == "plan-changed" and job.op == "apply",
        pull_failed=pod is not None and pod.pull_failure is not None,
        image_invalid=kind == "image-layout",
        result=result,
        pod=pod,
        pods_running=running,
    )


def from_marks(job: JobView) -> FinishedJob:
    """Tell how a Job ended that an earlier pass counted, from its annotations alone."""
    unreadable = job.marked(keys.PLAN_UNREADABLE) and job.op == "plan"
    succeeded = job.phase is JobPhase.SUCCEEDED and not unreadable
    failed = job.phase is JobPhase.FAILED
    return FinishedJob(
        job=job,
        succeeded=succeeded,
        interrupted=failed and job.marked(keys.INTERRUPTED) and not job.deadline_exceeded,
        blocked=failed and job.marked(keys.DESTRUCTIVE_PLAN_BLOCKED),
        plan_changed=failed and job.marked(keys.PLAN_CHANGED),
        plan_unreadable=unreadable,
    )


def newest_finished(finished: Iterable[FinishedJob]) -> list[FinishedJob]:
    """Sort by finish time, newest first; equal times by creation, then by name, descending."""
    return sorted(finished, key=lambda item: (item.order, item.name), reverse=True)


def collect_finished(client: Verbs, views: Iterable[JobView]) -> list[FinishedJob]:
    """Read the outcome of every finished Job of an object, newest first.

    One live list of pods for each Job that no pass has counted, none for the others.

    Raises:
        ApiError: a list of pods failed. Nothing is guessed from a read that did not happen.
    """
    return newest_finished(
        from_marks(view) if view.bookkept else classify(view, list_pods(client, view.namespace, view.name))
        for view in views
        if view.is_finished
    )


_MARKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        keys.INTERRUPTED: "interrupted",
        keys.DESTRUCTIVE_PLAN_BLOCKED: "blocked",
        keys.PLAN_CHANGED: "plan_changed",
        keys.PLAN_UNREADABLE: "plan_unreadable",
    }
)


def marks_of(finished: FinishedJob) -> dict[str, str]:
    """The annotations that say, once the Job is counted, how it ended."""
    marks = {keys.BOOKKEPT: keys.TRUE}
    for annotation, flag in _MARKS.items():
        if getattr(finished, flag):
            marks[annotation] = keys.TRUE
    if finished.plan_hash:
        marks[keys.PLAN_HASH] = finished.plan_hash
    return marks


def write_marks(client: Verbs, finished: FinishedJob) -> bool:
    """Mark the Job as counted. To be called only after the pass's status patch succeeded.

    Returns False when the Job is gone, or another of its name stands in its place: nothing is left to mark.
    """
    patch = {"metadata": {"uid": finished.job.uid, "annotations": marks_of(finished)}}
    try:
        client.patch(JOB, finished.name, patch, finished.job.namespace)
    except (NotFound, Conflict, Invalid):  # a uid that differs is refused as a change of an immutable field
        return False
    return True


def delete_run_secret(client: Verbs, job: JobView) -> bool:
    """Delete the Job's per-run Secret; True only for the one call that removed it.

    That call *counts* the Job: metrics, outcome event and lease release happen there and nowhere else, over
    all passes, restarts and replicas. A Secret of that name that belongs to another Job (a later one of the
    same name, or the Secret of an earlier one) is left alone and counts nothing.
    """
    name = names.per_run_secret(job.name)
    try:
        secret = client.get(SECRET, name, job.namespace, metadata_only=True)
        if all(reference.uid != job.uid for reference in owner_references(secret)):
            return False
        client.delete(SECRET, name, job.namespace, propagation_policy="Background", uid=uid_of(secret))
    except (NotFound, Conflict):
        return False
    return True


_DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}$")


def pinned_digest(spec_image: str, image_id: str) -> str:
    """The digest that a pod ran, in the repository that the spec names; "" when the pod gave none.

    `docker-pullable://mirror.example/x@sha256:…` of the spec image `registry.example/x:1` pins
    `registry.example/x@sha256:…`: the node may have pulled through a mirror that later Jobs cannot reach.
    """
    reference = image_id.partition("://")[2] or image_id
    match = _DIGEST.search(reference)
    if match is None or not spec_image:
        return ""
    repository = spec_image.partition("@")[0]
    path, slash, last = repository.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}{match.group()}"
