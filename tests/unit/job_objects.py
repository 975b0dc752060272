"""Jobs, pods and result documents as tests need them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from captf_controllers.api import annotations, labels
from captf_controllers.jobs.outcomes import FinishedJob, classify
from captf_controllers.jobs.pods import PodFacts, pod_facts
from captf_controllers.jobs.views import JobView, view_job
from captf_runtime.objects import Object, format_time

NOON = datetime(2026, 9, 25, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def job_object(
    name: str = "captf-m-web-apply-a1-abc123",
    *,
    op: str = "apply",
    attempt: str = "1",
    created: float = 0,
    outcome: str = "",
    finished: float | None = None,
    reason: str = "",
    uid: str = "",
    owner_uid: str = "owner-uid",
    kind: str = "TerraformMachine",
    owner: str = "web",
    namespace: str = "ns",
    image: str = "registry.example/m:1",
    marks: dict[str, str] | None = None,
) -> Object:
    status: Object = {"startTime": format_time(at(created))}
    if outcome:
        condition = {"type": outcome, "status": "True", "reason": reason}
        if finished is not None:
            condition["lastTransitionTime"] = format_time(at(finished))
        status["conditions"] = [condition]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-of-{name}",
            "creationTimestamp": format_time(at(created)),
            "labels": {
                labels.OP: op,
                labels.ATTEMPT: attempt,
                labels.OWNER_KIND: kind,
                labels.OWNER_NAME: owner,
            },
            "annotations": dict(marks or {}),
            "ownerReferences": [
                {
                    "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
                    "kind": kind,
                    "name": owner,
                    "uid": owner_uid,
                    "controller": True,
                }
            ],
        },
        "spec": {"template": {"spec": {"containers": [{"name": "source", "image": image}]}}},
        "status": status,
    }


def job(name: str = "captf-m-web-apply-a1-abc123", **fields: object) -> JobView:
    return view_job(job_object(name, **fields))


def pod_object(
    job_name: str = "captf-m-web-apply-a1-abc123",
    *,
    phase: str = "Failed",
    message: str = "",
    created: float = 0,
    started: float | None = 5,
    waiting: str = "",
    waiting_in: str = "source",
    job_uid: str = "",
    image_id: str = "",
    suffix: str = "x7k2p",
    disruption: str = "",
    namespace: str = "ns",
) -> Object:
    source: Object = {"name": "source", "image": "registry.example/m:1", "imageID": image_id}
    status: Object = {"phase": phase, "containerStatuses": [source]}
    if waiting:
        state = {"waiting": {"reason": waiting, "message": f"{waiting}: details"}}
        if waiting_in == "source":
            source["state"] = state
        else:
            status["initContainerStatuses"] = [{"name": waiting_in, "state": state}]
            source["state"] = {"waiting": {"reason": "PodInitializing"}}
    elif phase in ("Succeeded", "Failed"):
        source["state"] = {
            "terminated": {
                "exitCode": 0 if phase == "Succeeded" else 1,
                "message": message,
                "startedAt": format_time(at(started)) if started is not None else None,
            }
        }
    elif phase == "Running":
        source["state"] = {"running": {"startedAt": format_time(at(started or 0))}}
    if disruption:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": disruption}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job_name}-{suffix}",
            "namespace": namespace,
            "uid": f"uid-of-{job_name}-{suffix}",
            "creationTimestamp": format_time(at(created)),
            "labels": {"job-name": job_name},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job_name,
                    "uid": job_uid or f"uid-of-{job_name}",
                    "controller": True,
                }
            ],
        },
        "status": status,
    }


def pod(job_name: str = "captf-m-web-apply-a1-abc123", **fields: object) -> PodFacts:
    return pod_facts(pod_object(job_name, **fields))


def result(
    *, op: str = "apply", kind: str = "", step: str | None = None, steps: tuple[str, ...] = (), **more: object
) -> str:
    document: Object = {
        "version": 1,
        "op": op,
        "image": {"ref": "registry.example/m:1", "providersMirror": False},
        "runtime": {"command": ["/captf/runtime"], "version": "1.11.4"},
        "steps": [{"name": name, "exit": 0, "seconds": 1.2} for name in steps],
        "drift": None,
        "error": None,
        **more,
    }
    if kind:
        document["error"] = {"kind": kind, "step": step, "tail": "Error: boom", "resources": []}
    return json.dumps(document)


def finished(
    name: str,
    outcome: str,
    at_second: float,
    *,
    op: str = "apply",
    error: str = "",
    **fields: object,
) -> FinishedJob:
    """A finished Job with its pod. `outcome` is "ok" or "failed"; `error` the kind in its result."""
    view = job(
        name,
        op=op,
        created=at_second - 10,
        outcome="Complete" if outcome == "ok" else "Failed",
        finished=at_second,
        **fields,
    )
    message = result(op=op, kind=error, steps=("init", "apply")) if outcome == "ok" or error else ""
    return classify(view, [pod(name, phase="Succeeded" if outcome == "ok" else "Failed", message=message)])


BOOKKEPT = {annotations.BOOKKEPT: "true"}
