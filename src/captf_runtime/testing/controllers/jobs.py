"""The Job controller: runs the pods of a `batch/v1` Job and keeps its status.

Speaks HTTP only. It serves the embedded API server; a real cluster has its own. Where Kubernetes versions
differ, `modern=True` behaves as 1.31 and later do (a failing Job bears the condition `FailureTarget` until
its pods have ended, pods bear the prefixed labels too) and `modern=False` as 1.20 does.

Not covered, since nothing here needs it: indexed completion, pod failure policies, suspension with running
pods, the tracking finalizer on pods (a pod that vanishes is counted as failed from memory instead), and
`ttlSecondsAfterFinished`.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from captf_runtime.client import Client
from captf_runtime.client.errors import ApiError, Conflict, NotFound
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.log import get_logger
from captf_runtime.objects import (
    EVENT,
    JOB,
    POD,
    SERVICE_ACCOUNT,
    Object,
    ObjectKey,
    controller_of,
    format_time,
    is_deleting,
    key_of,
    metadata,
    name_of,
    namespace_of,
    owner_reference_to,
    parse_time,
    uid_of,
)

from .mirror import Mirror

__all__ = ["JobController", "JobDecision", "PodCounts", "decide_job", "is_finished", "pod_for"]

_DEFAULT_BACKOFF_LIMIT = 6
_FIRST_BACKOFF, _LONGEST_BACKOFF = 10.0, 600.0
_RETRY_SECONDS = 1.0
_SYNC_POLL = 0.05
_LONGEST_RETRY = 30.0

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PodCounts:
    """How the pods of a Job stand; `failed` includes pods that vanished and those being deleted."""

    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    last_failure: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobDecision:
    """What to do for a Job: its next status, pods to create, whether to delete the active ones."""

    status: Object
    create: int = 0
    delete_active: bool = False
    look_again_after: float | None = None
    """Seconds until time alone may change the decision; None when it cannot."""


def is_finished(job: Object) -> bool:
    """Say whether the Job has the condition Complete or Failed."""
    return any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in (job.get("status") or {}).get("conditions") or ()
    )


def decide_job(job: Object, counts: PodCounts, now: datetime, *, modern: bool = True) -> JobDecision:
    """Decide the next step of a Job that is neither finished nor being deleted."""
    spec = job.get("spec") or {}
    status: Object = dict(job.get("status") or {})
    conditions: list[Object] = list(status.get("conditions") or ())
    start_text = status.setdefault("startTime", format_time(now))
    parallelism = int(spec.get("parallelism", 1))
    completions = int(spec.get("completions", 1))
    create, delete_active, look_again = 0, False, None
    active, failed = counts.active, counts.failed

    def add(kind: str, reason: str, message: str) -> None:
        conditions.append(_condition(kind, reason, message, now))

    failure = _failure(spec, conditions, parse_time(start_text), counts, now)
    if failure is not None:
        reason, message = failure
        delete_active = active > 0
        if not modern:
            failed, active = failed + active, 0
            add("Failed", reason, message)
        else:
            if not any(condition.get("type") == "FailureTarget" for condition in conditions):
                add("FailureTarget", reason, message)
            if active == 0 and counts.terminating == 0:
                add("Failed", reason, message)
    elif counts.succeeded >= completions:
        delete_active = active > 0
        if active == 0 and (counts.terminating == 0 or not modern):
            reached = (
                ("CompletionsReached", "Reached expected number of succeeded pods") if modern else ("", "")
            )
            if modern:
                add("SuccessCriteriaMet", *reached)
            add("Complete", *reached)
            status["completionTime"] = format_time(now)
    else:
        missing = min(parallelism, completions - counts.succeeded) - active
        if missing > 0 and not spec.get("suspend"):
            wait = _backoff(counts, now)
            if wait > 0:
                look_again = wait
            else:
                create = missing
                active += missing
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None:
            left = (parse_time(start_text) + timedelta(seconds=int(deadline)) - now).total_seconds()
            look_again = left if look_again is None else min(left, look_again)

    for name, count in (("active", active), ("succeeded", counts.succeeded), ("failed", failed)):
        if count:
            status[name] = count
        else:
            status.pop(name, None)
    if modern:
        status.update(ready=counts.ready, terminating=counts.terminating, uncountedTerminatedPods={})
    if conditions:
        status["conditions"] = conditions
    return JobDecision(status, create, delete_active, look_again)


def _condition(kind: str, reason: str, message: str, now: datetime) -> Object:
    condition: Object = {
        "type": kind,
        "status": "True",
        "lastProbeTime": format_time(now),
        "lastTransitionTime": format_time(now),
    }
    if reason:
        condition.update(reason=reason, message=message)
    return condition


def _failure(
    spec: Object, conditions: list[Object], start: datetime, counts: PodCounts, now: datetime
) -> tuple[str, str] | None:
    for condition in conditions:
        if condition.get("type") == "FailureTarget" and condition.get("status") == "True":
            return condition.get("reason", ""), condition.get("message", "")
    limit = spec.get("backoffLimit")
    if counts.failed > (_DEFAULT_BACKOFF_LIMIT if limit is None else int(limit)):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and now >= start + timedelta(seconds=int(deadline)):
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    return None


def _backoff(counts: PodCounts, now: datetime) -> float:
    """Seconds until a failed pod may be replaced: 10 s, doubled with each failure, at most 10 min."""
    if counts.failed == 0 or counts.last_failure is None:
        return 0.0
    delay = min(_FIRST_BACKOFF * 2.0 ** min(counts.failed - 1, 10), _LONGEST_BACKOFF)
    return max(0.0, delay - (now - counts.last_failure).total_seconds())


def pod_for(job: Object, *, modern: bool = True) -> Object:
    """Return the pod to create for a Job: its template, labelled with and controlled by the Job."""
    template = (job.get("spec") or {}).get("template") or {}
    template_metadata = template.get("metadata") or {}
    labels = dict(template_metadata.get("labels") or {})
    owned = {"controller-uid": uid_of(job), "job-name": name_of(job)}
    labels.update(owned)
    if modern:
        labels.update({f"batch.kubernetes.io/{key}": value for key, value in owned.items()})
    reference = owner_reference_to(job, controller=True, block_owner_deletion=True)
    pod_metadata: Object = {
        "generateName": f"{name_of(job)}-",
        "namespace": namespace_of(job),
        "labels": labels,
        "ownerReferences": [reference.to_dict()],
    }
    for field_name in ("annotations", "finalizers"):
        if template_metadata.get(field_name):
            pod_metadata[field_name] = template_metadata[field_name]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata, "spec": template.get("spec") or {}}


@dataclass(slots=True)
class _Ledger:
    """What is remembered of a Job's pods, whose objects may be gone."""

    known: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    last_failure: datetime | None = None

    def count(self, pods: Iterable[Object], now: datetime) -> PodCounts:
        active = ready = terminating = 0
        living: set[str] = set()
        for pod in pods:
            uid = uid_of(pod)
            living.add(uid)
            status = pod.get("status") or {}
            phase = status.get("phase")
            if phase == "Succeeded":
                self.succeeded.add(uid)
                self.failed.discard(uid)
            elif phase == "Failed":
                self._fail(uid, now)
            elif is_deleting(pod):
                terminating += 1
                self._fail(uid, now)
            else:
                active += 1
                ready += any(
                    condition.get("type") == "Ready" and condition.get("status") == "True"
                    for condition in status.get("conditions") or ()
                )
        for uid in self.known - living - self.succeeded:
            self._fail(uid, now)
        self.known |= living
        return PodCounts(active, ready, terminating, len(self.succeeded), len(self.failed), self.last_failure)

    def _fail(self, uid: str, now: datetime) -> None:
        if uid not in self.failed and uid not in self.succeeded:
            self.failed.add(uid)
            self.last_failure = now


class JobController:
    """Runs the Jobs of an API server that has no Job controller of its own.

    Args:
        client: how to reach the API server; needs all verbs on pods, get/list/watch on jobs, update of
            jobs/status, get on serviceaccounts, create on events.
        clock: measures deadlines and pauses before retries, gives the times written into statuses.
        modern: the behaviour of Kubernetes 1.31 and later, else that of 1.20.

    A context manager: started on entry, stopped on exit.
    """

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK, modern: bool = True) -> None:
        self._client = client
        self._clock = clock
        self._modern = modern
        self._condition = threading.Condition()
        # When each Job is due, and the heap of those times; an entry that differs from _due is stale.
        self._due: dict[ObjectKey, float] = {}
        self._heap: list[tuple[float, ObjectKey]] = []
        self._failures: dict[ObjectKey, int] = {}
        self._reported: dict[str, str] = {}
        self._ledgers: dict[str, _Ledger] = {}
        self._stopping = False
        self._jobs = Mirror(client, JOB, self._job_changed)
        self._pods = Mirror(client, POD, self._pod_changed)
        self._job_of_pod: dict[ObjectKey, ObjectKey] = {}
        self._pods_of_job: dict[ObjectKey, set[ObjectKey]] = {}
        self._thread = threading.Thread(target=self._run, name="job-controller", daemon=True)

    def __enter__(self) -> JobController:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to run Jobs, in background."""
        self._pods.start()
        self._jobs.start()
        self._thread.start()

    def stop(self) -> None:
        """End all threads. Pods run on; whoever runs them ends them."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        for part in (self._jobs, self._pods):
            part.stop()
        if self._thread.is_alive():
            self._thread.join()

    # Sources ----------------------------------------------------------------------------------------

    def _job_changed(self, key: ObjectKey) -> None:
        self._look_at(key, 0.0)

    def _pod_changed(self, key: ObjectKey) -> None:
        pod = self._pods.get(key)
        if pod is not None:
            controller = controller_of(pod)
            if controller is None or controller.kind != JOB.kind or controller.group != JOB.group:
                return
            job = ObjectKey(key.namespace, controller.name)
            self._link(key, job)
        else:
            gone = self._unlink(key)
            if gone is None:
                return
            job = gone
        self._look_at(job, 0.0)

    def _link(self, pod: ObjectKey, job: ObjectKey) -> None:
        with self._condition:
            self._job_of_pod[pod] = job
            self._pods_of_job.setdefault(job, set()).add(pod)

    def _unlink(self, pod: ObjectKey) -> ObjectKey | None:
        with self._condition:
            job = self._job_of_pod.pop(pod, None)
            if job is not None:
                pods = self._pods_of_job[job]
                pods.discard(pod)
                if not pods:
                    del self._pods_of_job[job]
            return job

    def _pods_of(self, job: Object) -> list[Object]:
        with self._condition:
            keys = sorted(self._pods_of_job.get(key_of(job), ()))
        found = (self._pods.get(key) for key in keys)
        return [pod for pod in found if pod is not None and _is_pod_of(pod, job)]

    def _look_at(self, key: ObjectKey, delay: float) -> None:
        with self._condition:
            at = self._clock.monotonic() + delay
            if at < self._due.get(key, float("inf")):
                self._due[key] = at
                heapq.heappush(self._heap, (at, key))
                self._condition.notify_all()

    # Work -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        # A Job whose pods are not known yet would get another one.
        while not (self._pods.wait_for_sync(_SYNC_POLL) and self._jobs.wait_for_sync(_SYNC_POLL)):
            if self._stopping:
                return
        while (key := self._next()) is not None:
            try:
                self._reconcile(key)
                self._failures.pop(key, None)
            except Conflict:
                self._refresh(key)
            except ApiError as error:
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                _logger.debug("the Job will be tried again", job=str(key), err=error)
                self._look_at(key, min(_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), _LONGEST_RETRY))

    def _next(self) -> ObjectKey | None:
        with self._condition:
            while not self._stopping:
                wait = None
                while self._heap:
                    at, key = self._heap[0]
                    if self._due.get(key) != at:
                        heapq.heappop(self._heap)
                        continue
                    wait = at - self._clock.monotonic()
                    if wait > 0:
                        break
                    heapq.heappop(self._heap)
                    del self._due[key]
                    return key
                self._clock.wait_condition(self._condition, wait)
        return None

    def _reconcile(self, key: ObjectKey) -> None:
        job = self._jobs.get(key)
        if job is None:
            self._forget_absent()
            return
        if is_deleting(job) or is_finished(job):
            return
        ledger = self._ledgers.setdefault(uid_of(job), _Ledger())
        now = self._clock.now()
        pods = self._pods_of(job)
        decision = decide_job(job, ledger.count(pods, now), now, modern=self._modern)
        if decision.delete_active:
            for pod in pods:
                if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed") and not is_deleting(
                    pod
                ):
                    self._delete_pod(pod)
        for _ in range(decision.create):
            created = self._create_pod(job)
            self._pods.observe(created)
            self._link(key_of(created), key)
            ledger.known.add(uid_of(created))
        if decision.status != job.get("status"):
            updated = self._client.update(JOB, {**job, "status": decision.status}, subresource="status")
            self._jobs.observe(updated)
        if decision.look_again_after is not None:
            self._look_at(key, max(decision.look_again_after, 0.0))

    def _refresh(self, key: ObjectKey) -> None:
        """Read a Job that has changed since it was seen, and look at it again."""
        try:
            self._jobs.observe(self._client.get(JOB, key.name, key.namespace))
        except ApiError as error:
            _logger.debug("the Job was not read", job=str(key), err=error)
            self._look_at(key, _RETRY_SECONDS)
            return
        self._look_at(key, 0.0)

    def _forget_absent(self) -> None:
        living = {uid_of(job) for job in self._jobs.items()}
        for uid in [uid for uid in self._ledgers if uid not in living]:
            del self._ledgers[uid]
            self._reported.pop(uid, None)

    def _delete_pod(self, pod: Object) -> None:
        try:
            self._client.delete(
                POD, name_of(pod), namespace_of(pod), propagation_policy="Background", uid=uid_of(pod)
            )
        except NotFound:
            pass

    def _create_pod(self, job: Object) -> Object:
        pod = pod_for(job, modern=self._modern)
        account = pod["spec"].get("serviceAccountName") or "default"
        if account != "default":
            # What the admission of a full API server does; the pod must not start without its identity.
            try:
                self._client.get(SERVICE_ACCOUNT, account, namespace_of(job))
            except NotFound as error:
                prefix = metadata(pod)["generateName"]
                self._report(
                    job,
                    f'Error creating: pods "{prefix}" is forbidden: error looking up service account '
                    f'{namespace_of(job)}/{account}: serviceaccount "{account}" not found',
                )
                raise error
        try:
            return self._client.create(POD, pod, namespace_of(job))
        except ApiError as error:
            self._report(job, f"Error creating: {error.message}")
            raise

    def _report(self, job: Object, message: str) -> None:
        """Write the event FailedCreate, once per message; best effort."""
        if self._reported.get(uid_of(job)) == message:
            return
        self._reported[uid_of(job)] = message
        now = self._clock.now()
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name_of(job)[:200]}.", "namespace": namespace_of(job)},
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": namespace_of(job),
                "name": name_of(job),
                "uid": uid_of(job),
            },
            "type": "Warning",
            "reason": "FailedCreate",
            "message": message[:1024],
            "source": {"component": "job-controller"},
            "firstTimestamp": format_time(now),
            "lastTimestamp": format_time(now),
            "count": 1,
        }
        try:
            self._client.create(EVENT, event, namespace_of(job))
        except ApiError as error:
            _logger.debug("an event of the Job was not written", job=str(key_of(job)), err=error)


def _is_pod_of(pod: Object, job: Object) -> bool:
    controller = controller_of(pod)
    return controller is not None and controller.uid == uid_of(job)
