"""The embedded API server with a node: Jobs run, logs are read, everything ends with the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.processes import is_alive

from captf_runtime.client import Client
from captf_runtime.objects import EVENT, JOB, POD, SERVICE_ACCOUNT, Object, name_of, uid_of
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.testing.controllers.jobs import JobController
from captf_runtime.testing.faults import Match, conflict, internal_error, reset
from captf_runtime.testing.kubelet import Image, LocalNode

DIGEST = "sha256:" + "0" * 64
IMAGE = "registry.example/app:1"


def job(script: str, name: str = "job", **spec: object) -> Object:
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
    pod_spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    whole = {"backoffLimit": 0, "template": {"spec": pod_spec}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": whole}


def until(probe: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    pause = threading.Event()
    while not probe():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in time: {what}")
        pause.wait(0.01)


def conditions(client: Client, name: str = "job") -> dict[str, str]:
    status = client.get(JOB, name, "default").get("status") or {}
    return {c["type"]: c.get("reason", "") for c in status.get("conditions") or () if c["status"] == "True"}


@pytest.fixture
def node(api_server: ApiServer) -> LocalNode:
    node = LocalNode(images={IMAGE: Image(None, DIGEST)})
    api_server.add_driver(node)
    return node


@pytest.mark.requirement("AS30")
@pytest.mark.usefixtures("node")
def test_a_job_runs_and_its_log_is_read_through_the_server(client: Client) -> None:
    client.create(JOB, job("echo one; echo two"), "default")
    until(lambda: "Complete" in conditions(client), "the Job's completion")
    (pod,) = client.list(POD, "default").items
    path = f"/api/v1/namespaces/default/pods/{name_of(pod)}/log"
    assert client.raw("GET", path).data == b"one\ntwo\n"
    assert client.raw("GET", path, query={"tailLines": "1"}).data == b"two\n"


@pytest.mark.usefixtures("node")
def test_a_log_is_followed_to_its_end(api_server: ApiServer, client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo up; until [ -e {go} ]; do sleep 0.02; done; echo down"
    client.create(JOB, job(script), "default")
    until(lambda: client.list(POD, "default").items, "the pod")
    (pod,) = client.list(POD, "default").items
    path = f"/api/v1/namespaces/default/pods/{name_of(pod)}/log"
    until(lambda: client.raw("GET", path).data == b"up\n", "the first line")
    with urlopen(f"{api_server.url}{path}?follow=true", timeout=120) as followed:
        assert followed.readline() == b"up\n"
        go.touch()
        assert followed.read() == b"down\n"


@pytest.mark.usefixtures("node")
def test_deleting_a_job_in_background_ends_its_process(client: Client) -> None:
    client.create(JOB, job("echo $$$$; exec sleep 60"), "default")
    path = ""

    def started() -> bool:
        nonlocal path
        for pod in client.list(POD, "default").items:
            path = f"/api/v1/namespaces/default/pods/{name_of(pod)}/log"
            return client.raw("GET", path).data.endswith(b"\n")
        return False

    until(started, "the start")
    process = int(client.raw("GET", path).data)
    client.delete(JOB, "job", "default", propagation_policy="Background")
    until(lambda: not client.list(POD, "default").items, "the end of the pod")
    assert not is_alive(process)


def test_the_node_ends_with_the_server() -> None:
    before = {thread.name for thread in threading.enumerate()}
    node = LocalNode(images={IMAGE: Image(None, DIGEST)})
    with ApiServer() as server:
        server.add_driver(node)
        with Client.from_config(kubeconfig=server.kubeconfig()) as client:
            client.create(JOB, job("trap '' TERM; echo $$$$; while :; do sleep 0.05; done"), "default")
            log = node.kubelet.log_directory

            def started() -> list[int]:
                return [int(file.read_text()) for file in log.glob("*/*/0.log") if file.read_text()]

            until(started, "the start")
            (process,) = started()
            node.kubelet.stop(grace=0.1)
    assert not is_alive(process)
    assert not log.parent.exists()
    assert {thread.name for thread in threading.enumerate()} <= before
    with pytest.raises(RuntimeError):
        _ = node.kubelet


@pytest.mark.usefixtures("node")
def test_jobs_run_in_spite_of_faults(api_server: ApiServer, client: Client) -> None:
    for fault in (conflict(), internal_error(), reset(after_commit=True)):
        api_server.faults.add(Match(resource="jobs", subresource="status"), fault, probability=0.2)
        api_server.faults.add(Match(resource="pods"), fault, probability=0.1)
    for index in range(8):
        client.create(JOB, job("exit 0", f"job-{index}"), "default")
    for index in range(8):
        until(lambda name=f"job-{index}": conditions(client, name), f"the end of job-{index}")
    ended = {index: conditions(client, f"job-{index}") for index in range(8)}
    assert all("Complete" in found for found in ended.values()), ended


def test_deadlines_follow_the_clock_of_the_server() -> None:
    clock = VirtualClock()
    with ApiServer(clock=clock) as server:
        server.add_driver(LocalNode(images={IMAGE: Image(None, DIGEST)}))
        with Client.from_config(kubeconfig=server.kubeconfig()) as client:
            client.create(JOB, job("echo up; exec sleep 60", activeDeadlineSeconds=3600), "default")
            until(
                lambda: [
                    pod
                    for pod in client.list(POD, "default").items
                    if (pod.get("status") or {}).get("phase") == "Running"
                ],
                "the start",
            )
            clock.advance(3599)
            assert conditions(client) == {}
            clock.advance(1)
            until(lambda: "Failed" in conditions(client), "the deadline")
            assert conditions(client)["Failed"] == "DeadlineExceeded"
            assert conditions(client)["FailureTarget"] == "DeadlineExceeded"


@pytest.mark.parametrize("modern", [True, False])
def test_a_pod_that_vanishes_fails_the_job(client: Client, modern: bool) -> None:
    with JobController(client, modern=modern):
        client.create(JOB, job("true"), "default")
        until(lambda: client.list(POD, "default").items, "the pod")
        (pod,) = client.list(POD, "default").items
        client.delete(POD, name_of(pod), "default", propagation_policy="Background")
        until(lambda: "Failed" in conditions(client), "the Job's failure")
        assert client.list(POD, "default").items == []
        assert client.get(JOB, "job", "default")["status"]["failed"] == 1


def test_a_missing_service_account_is_reported_and_waited_for(client: Client) -> None:
    wanted = job("true")
    wanted["spec"]["template"]["spec"]["serviceAccountName"] = "runner"
    with JobController(client):
        client.create(JOB, wanted, "default")

        def reported() -> bool:
            events = client.list(EVENT, "default").items
            return any(
                event["reason"] == "FailedCreate" and 'serviceaccount "runner" not found' in event["message"]
                for event in events
            )

        until(reported, "the event FailedCreate")
        assert client.list(POD, "default").items == []
        client.create(SERVICE_ACCOUNT, {"metadata": {"name": "runner"}}, "default")
        until(lambda: client.list(POD, "default").items, "the pod")


def test_a_job_of_the_same_name_starts_anew(client: Client) -> None:
    with JobController(client):
        first = client.create(JOB, job("true"), "default")
        until(lambda: client.list(POD, "default").items, "the first pod")
        client.delete(JOB, "job", "default", propagation_policy="Background")
        second = client.create(JOB, job("true"), "default")

        def owners() -> set[str]:
            pods = client.list(POD, "default").items
            return {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods}

        until(lambda: owners() == {uid_of(second)}, "the second Job's pod alone")
        assert uid_of(first) != uid_of(second)
