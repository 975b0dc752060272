"""What the Job controller makes of a Job's end: the embedded one in its 1.20 mode, and that of Kubernetes 1.20."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from captf_runtime.client import Client, NotFound
from captf_runtime.objects import JOB, NAMESPACE, POD, SERVICE_ACCOUNT, Object, labels_of
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.controllers.jobs import JobController
from captf_runtime.testing.kubelet import Image, Kubelet

WAIT = 120.0
IMAGE = "registry.example/app:1"
TIMES = ("startTime", "completionTime", "lastProbeTime", "lastTransitionTime")


@dataclass(slots=True)
class Place:
    client: Client
    namespace: str

    def start(self, script: str, **spec: object) -> None:
        """Create the Job."""
        container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
        job = {"metadata": {"name": "job"}, "spec": {"template": {"spec": pod}, **spec}}
        self.client.create(JOB, job, self.namespace)

    def reported(self, field: str) -> Object:
        """Wait until the Job's status has a field, and return the Job."""
        deadline = time.monotonic() + WAIT
        pause = threading.Event()
        while True:
            found = self.client.get(JOB, "job", self.namespace)
            status = found.get("status") or {}
            if status.get(field):
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"the Job never had {field}: {status}")
            pause.wait(0.02)

    def end_of(self, script: str, **spec: object) -> Object:
        """Run a Job to its end and return it."""
        self.start(script, **spec)
        return self.reported("conditions")


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_apiserver)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        if request.param == "embedded":
            kubeconfig = stack.enter_context(ApiServer(mode="1.20")).kubeconfig()
        else:
            kubeconfig = request.getfixturevalue("real_control_plane").kubeconfig
        client = stack.enter_context(Client.from_config(kubeconfig=kubeconfig))
        namespace = f"jobs-{uuid.uuid4().hex[:8]}"
        client.create(NAMESPACE, {"metadata": {"name": namespace}})
        if request.param == "embedded":
            stack.enter_context(JobController(client, modern=False))
        else:
            _wait_for_account(client, namespace)
        kubelet = Kubelet(
            client,
            images={IMAGE: Image(None, "sha256:" + "0" * 64)},
            root=tmp_path,
            node_name=f"node-{uuid.uuid4().hex[:8]}",
        )
        stack.enter_context(kubelet)
        yield Place(client, namespace)
        client.delete(NAMESPACE, namespace, propagation_policy="Background")


def _wait_for_account(client: Client, namespace: str) -> None:
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        with contextlib.suppress(NotFound):
            if client.get(SERVICE_ACCOUNT, "default", namespace).get("secrets"):
                return
        threading.Event().wait(0.05)
    raise AssertionError("no token for the default ServiceAccount")


def without_times(value: object) -> object:
    if isinstance(value, dict):
        return {key: "time" if key in TIMES else without_times(item) for key, item in value.items()}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def condition(kind: str, **fields: str) -> Object:
    return {"type": kind, "status": "True", "lastProbeTime": "time", "lastTransitionTime": "time", **fields}


def test_success(place: Place) -> None:
    job = place.end_of("true", backoffLimit=0)
    assert without_times(job["status"]) == {
        "conditions": [condition("Complete")],
        "startTime": "time",
        "completionTime": "time",
        "succeeded": 1,
    }


def test_failure(place: Place) -> None:
    job = place.end_of("exit 3", backoffLimit=0)
    reason = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
    assert without_times(job["status"]) == {
        "conditions": [condition("Failed", **reason)],
        "startTime": "time",
        "failed": 1,
    }


def test_deadline(place: Place) -> None:
    # A deadline that passes before the controller has seen its pod counts no failed one, so it is set after that. With
    # no retries left, a controller whose write of the deadline is in conflict would name the failed pod for the reason.
    place.start("exec sleep 60", backoffLimit=6)
    place.reported("active")
    place.client.patch(JOB, "job", {"spec": {"activeDeadlineSeconds": 1}}, place.namespace)
    job = place.reported("conditions")
    reason = {"reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}
    assert without_times(job["status"]) == {
        "conditions": [condition("Failed", **reason)],
        "startTime": "time",
        "failed": 1,
    }


def test_pods(place: Place) -> None:
    job = place.end_of("true", backoffLimit=0)
    (pod,) = place.client.list(POD, place.namespace).items
    uid = job["metadata"]["uid"]
    assert labels_of(pod) == {"controller-uid": uid, "job-name": "job"}
    assert pod["metadata"]["generateName"] == "job-"
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "job",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert pod["spec"]["restartPolicy"] == "Never"
