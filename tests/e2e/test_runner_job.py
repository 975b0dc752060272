"""The Jobs that the manager builds, run by the embedded Job controller and kubelet with the real runtime."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from tests.e2e.module_image import EXAMPLES, REPOSITORY, contract_inputs

from captf_controllers.api import names
from captf_controllers.api.workspace import JobPolicy, Operation
from captf_controllers.inputs.contract import Role
from captf_controllers.inputs.rendering import BACKEND_ONLY, Files, render
from captf_controllers.jobs.outcomes import FinishedJob, classify
from captf_controllers.jobs.pods import list_pods
from captf_controllers.jobs.podspec import Guard, JobRequest, JobTarget, Restore, build_job
from captf_controllers.jobs.policy import merge_policies
from captf_controllers.jobs.views import view_job
from captf_runtime.client import Client
from captf_runtime.objects import (
    EVENTS_V1,
    JOB,
    LEASE,
    NAMESPACE,
    POD,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
    name_of,
)
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.controllers.jobs import JobController, is_finished
from captf_runtime.testing.kubelet import Image, Kubelet
from captf_runtime.testing.waiting import eventually

pytestmark = pytest.mark.terraform

TEAM = "team-a"
KINDS = {"cluster": "TerraformCluster", "machine": "TerraformMachine", "machinepool": "TerraformMachinePool"}
MODULE_IMAGE = "registry.invalid/module:1"
RUNNER_IMAGE = "registry.invalid/manager:1"
SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(slots=True)
class Node:
    """An API server with a Job controller and a kubelet, and one object to run Jobs for."""

    client: Client
    kubelet: Kubelet
    target: JobTarget
    attempts: int = 0

    def secret(self, name: str, data: dict[str, bytes]) -> Object:
        return self.client.create(
            SECRET,
            {
                "metadata": {"name": name, "namespace": TEAM},
                "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
            },
        )

    def start(self, op: Operation, files: Files, policy: JobPolicy | None = None, **details: Any) -> str:
        """Creates a Job and its Secret; returns its name."""
        self.attempts += 1
        request = JobRequest(
            target=self.target,
            op=op,
            attempt=self.attempts,
            inputs_hash="h1:abc",
            tick="",
            policy=merge_policies(policy),
            image=MODULE_IMAGE,
            runner_image=RUNNER_IMAGE,
            credentials_secret="credentials",
            service_account="captf-runner",
            **details,
        )
        self.client.create(JOB, build_job(request))
        self.client.create(
            SECRET,
            {
                "metadata": {"name": names.per_run_secret(request.name), "namespace": TEAM},
                "data": files.secret_data(),
            },
        )
        return request.name

    def finished(self, job: str) -> FinishedJob:
        """Waits for a Job to end; returns what the manager makes of it."""
        deadline = time.monotonic() + 180
        while not is_finished(found := self.client.get(JOB, job, TEAM)):
            assert time.monotonic() < deadline, self.log(job)
            threading.Event().wait(0.05)
        return classify(view_job(found), list_pods(self.client, TEAM, job))

    def run(
        self, op: Operation, files: Files, policy: JobPolicy | None = None, **details: Any
    ) -> FinishedJob:
        return self.finished(self.start(op, files, policy, **details))

    def log(self, job: str) -> str:
        pods = [pod for pod in self.client.list(POD, TEAM).items if name_of(pod).startswith(job)]
        logs = [self.kubelet.log(TEAM, name_of(pod), "source") or () for pod in pods]
        statuses = [json.dumps(pod.get("status")) for pod in pods]
        return "\n".join([*(piece.decode() for log in logs for piece in log), *statuses])

    def state(self) -> bytes:
        suffix = names.state_suffix(TEAM, self.target.kind, self.target.name)
        secret = self.client.get(SECRET, f"tfstate-default-{suffix}", TEAM)
        return base64.b64decode(secret["data"]["tfstate"])


@pytest.fixture(params=["cluster", "machine", "machinepool"])
def role(request: pytest.FixtureRequest) -> Role:
    return cast(Role, request.param)


@pytest.fixture
def node(tmp_path: Path, role: Role) -> Iterator[Node]:
    image = tmp_path / "image"
    shutil.copytree(EXAMPLES / role, image / "captf" / "module")
    shutil.copy(EXAMPLES / "local-runtime", image / "captf" / "runtime")
    runner = [
        "/usr/bin/env",
        f"PYTHONPATH={REPOSITORY / 'src'}",
        sys.executable,
        "-m",
        "captf_controllers.runner",
    ]
    images = {
        MODULE_IMAGE: Image(image, f"sha256:{'1' * 64}"),
        RUNNER_IMAGE: Image(None, f"sha256:{'2' * 64}", executables={"/runner": runner}),
    }
    environment = {
        "CAPTF_SERVICE_ACCOUNT_DIR": SERVICE_ACCOUNT_DIR,
        "CAPTF_RESULT": "/dev/termination-log",
    }
    with ApiServer(tls=True) as server:
        client = Client.from_config(kubeconfig=str(server.kubeconfig()))
        try:
            client.create(NAMESPACE, {"metadata": {"name": TEAM}})
            client.create(SERVICE_ACCOUNT, {"metadata": {"name": "captf-runner", "namespace": TEAM}})
            target = JobTarget(KINDS[role], TEAM, f"my-{role}", "0000-1111", "prod")
            with JobController(client), Kubelet(client, images=images, environment=environment) as kubelet:
                made = Node(client, kubelet, target)
                made.secret("credentials", {"CLOUD_TOKEN": b"hunter2-token"})
                made.secret(names.plan_key_secret(target.kind, target.name), {"key": bytes(range(32))})
                yield made
        finally:
            client.close()


def test_the_jobs_of_an_object(node: Node, role: Role) -> None:
    files = render(role, contract_inputs(role))
    planned = node.run("plan", files)
    assert planned.result is not None
    assert planned.result.plan is not None
    assert planned.result.plan.create == 1

    job = node.start("apply", files, guard=Guard(hash="h1:abc"))
    applied = node.finished(job)
    assert applied.succeeded, node.log(job)
    assert applied.result is not None
    assert [step.name for step in applied.result.steps] == ["init", "validate", "plan", "show-json", "apply"]
    assert applied.result.changes is not None
    assert applied.result.changes.add == 1
    assert "hunter2-token" not in node.log(job)
    backup = node.state()

    drift = node.run("drift", files)
    assert drift.result is not None
    assert drift.result.drift is not None
    assert not drift.result.drift.detected
    assert node.run("refresh", files).succeeded

    destroyed = node.run("destroy", files)
    assert destroyed.result is not None
    assert destroyed.result.changes is not None
    assert destroyed.result.changes.destroy == 1

    node.secret("backup-0", {"tfstate": backup})
    restored = node.run("restore", BACKEND_ONLY, restore=Restore(1, ("backup-0",), 1))
    assert restored.succeeded
    assert json.loads(gzip.decompress(node.state()))["resources"]

    reasons = {event["reason"] for event in node.client.list(EVENTS_V1, TEAM).items}
    assert {"RunStarted", "StepSucceeded", "PlanSummary", "ResourcesChanged", "RunFinished"} <= reasons


@pytest.mark.parametrize("role", ["cluster"], indirect=True)
def test_a_replacement_is_blocked(node: Node, role: Role) -> None:
    assert node.run("apply", render(role, contract_inputs(role)), guard=Guard(hash="h1:abc")).succeeded
    replacing = render(role, contract_inputs(role), {"replace_when_changed": "now"})
    blocked = node.run("apply", replacing, guard=Guard(hash="h1:abc"))
    assert blocked.blocked
    assert blocked.result is not None
    assert blocked.result.plan is not None
    assert blocked.result.plan.replace == 1


@pytest.mark.parametrize("role", ["cluster"], indirect=True)
def test_a_job_at_its_deadline_saves_its_state_and_frees_the_lock(node: Node, role: Role) -> None:
    files = render(role, contract_inputs(role), {"sleep_seconds": 60})
    started = node.start("apply", files, JobPolicy(lock_timeout_seconds=1))
    # A deadline set from the beginning might pass before anything is built.
    eventually(lambda: "delay[0]: Creating" in node.log(started), timeout=180)
    node.client.patch(JOB, started, {"spec": {"activeDeadlineSeconds": 1}}, TEAM)
    job = node.finished(started)
    assert job.deadline
    assert not job.interrupted, "a deadline counts as a failure"
    suffix = names.state_suffix(TEAM, node.target.kind, node.target.name)
    lock = f"lock-tfstate-default-{suffix}"
    eventually(lambda: not node.client.get(LEASE, lock, TEAM)["spec"].get("holderIdentity"))
    built = {resource["name"] for resource in json.loads(gzip.decompress(node.state()))["resources"]}
    assert "load_balancer" in built
