"""Jobs and pods from creation to end, run as local processes, on the embedded and on a real API server."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.processes import is_alive

from captf_runtime.client import Client
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import (
    CONFIG_MAP,
    EVENT,
    JOB,
    NAMESPACE,
    POD,
    SECRET,
    SERVICE_ACCOUNT,
    TOKEN_REVIEW,
    Object,
    is_deleting,
    labels_of,
    name_of,
    uid_of,
)
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.controllers.jobs import JobController
from captf_runtime.testing.kubelet import Image, Kubelet

DIGEST = "sha256:" + "0123456789abcdef" * 4
IMAGE = "registry.example/team/app:1.0"
WAIT = 60.0


@dataclass(slots=True)
class Cluster:
    """An API server, a namespace of the test's own in it, and a kubelet."""

    client: Client
    namespace: str
    kubelet: Kubelet
    images: dict[str, Image]
    directory: Path
    real: bool

    def until(self, probe: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT
        pause = threading.Event()
        while not probe():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {WAIT} s: {what}; pods: {self.pods()}")
            pause.wait(0.02)

    def pods(self) -> list[Object]:
        return list(self.client.list(POD, self.namespace).items)

    def pod(self, name: str) -> Object:
        return self.client.get(POD, name, self.namespace)

    def exists(self, name: str) -> bool:
        try:
            self.pod(name)
        except NotFound:
            return False
        return True

    def phase(self, name: str) -> str:
        return str((self.pod(name).get("status") or {}).get("phase"))

    def log(self, name: str, container: str = "main") -> str:
        return b"".join(self.kubelet.log(self.namespace, name, container) or ()).decode()

    def run(self, script: str, name: str = "pod", **spec: object) -> None:
        self.client.create(POD, pod(script, name, **spec), self.namespace)

    @contextlib.contextmanager
    def watched(self) -> Iterator[Iterator[Object]]:
        """Each version of the pods from now on: a state that soon passes is not missed."""
        version = self.client.list(POD, self.namespace).resource_version
        with self.client.watch(
            POD, self.namespace, resource_version=version, timeout_seconds=120, read_timeout=120
        ) as stream:
            yield (event.decode() for event in stream)

    def finished(self, name: str = "pod") -> Object:
        self.until(lambda: self.phase(name) in ("Succeeded", "Failed"), f"end of {name}")
        return self.pod(name)

    def waiting(self, name: str = "pod") -> dict[str, str]:
        return waiting_of(self.pod(name))


def waiting_of(found: Object) -> dict[str, str]:
    """Why the first container of a pod waits."""
    statuses = (found.get("status") or {}).get("containerStatuses") or [{}]
    return dict((statuses[0].get("state") or {}).get("waiting") or {})


def pod(script: str, name: str = "pod", **spec: object) -> Object:
    container: Object = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
    for field in ("env", "envFrom", "volumeMounts", "image", "command", "args", "terminationMessagePolicy"):
        if field in spec:
            container[field] = spec.pop(field)
    whole: Object = {"restartPolicy": "Never", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def job(script: str, **spec: object) -> Object:
    template = pod(script, **spec)["spec"]
    whole: Object = {"backoffLimit": 0, "template": {"spec": template}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": whole}


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_apiserver)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    kubeconfig: Path
    server: ApiServer | None = None
    if request.param == "embedded":
        server = request.getfixturevalue("api_server")
        kubeconfig = server.kubeconfig()
    else:
        kubeconfig = request.getfixturevalue("real_control_plane").kubeconfig
    images = {IMAGE: Image(None, DIGEST)}
    namespace = f"kubelet-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client.from_config(kubeconfig=kubeconfig))
        client.create(NAMESPACE, {"metadata": {"name": namespace}})
        if server is not None:
            stack.enter_context(JobController(client))
        else:
            wait_for_account(client, namespace, "default")
            stack.callback(client.delete, NAMESPACE, namespace, propagation_policy="Background")
        node = kubelet(client, images, tmp_path)
        stack.callback(node.stop, grace=0.2)
        node.start()
        yield Cluster(client, namespace, node, images, tmp_path, real=server is None)


def kubelet(client: Client, images: dict[str, Image], directory: Path) -> Kubelet:
    return Kubelet(client, images=images.get, root=directory / "k", node_name=f"node-{uuid.uuid4().hex[:8]}")


def wait_for_account(client: Client, namespace: str, name: str) -> None:
    """Wait until the control plane has made a token for the account, without which it admits no pod."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        try:
            if client.get(SERVICE_ACCOUNT, name, namespace).get("secrets"):
                return
        except NotFound:
            pass
        threading.Event().wait(0.05)
    raise AssertionError(f"no token for the ServiceAccount {name}")


def test_a_job_that_succeeds(cluster: Cluster) -> None:
    cluster.client.create(JOB, job("echo hello; printf done > /dev/termination-log"), cluster.namespace)

    def complete() -> bool:
        status = cluster.client.get(JOB, "job", cluster.namespace).get("status") or {}
        return any(c["type"] == "Complete" and c["status"] == "True" for c in status.get("conditions") or ())

    cluster.until(complete, "the Job's completion")
    status = cluster.client.get(JOB, "job", cluster.namespace)["status"]
    assert status["succeeded"] == 1
    assert status["startTime"] <= status["completionTime"]
    (found,) = cluster.pods()
    assert name_of(found).startswith("job-")
    assert len(name_of(found)) == len("job-") + 5
    assert labels_of(found)["job-name"] == "job"
    owner = found["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "job", True)
    (container,) = found["status"]["containerStatuses"]
    assert container["imageID"] == f"registry.example/team/app@{DIGEST}"
    ended = container["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "done")
    assert ended["startedAt"] <= ended["finishedAt"]
    assert cluster.log(name_of(found)) == "hello\n"


def test_a_job_whose_pod_fails_is_failed_without_a_second_try(cluster: Cluster) -> None:
    cluster.client.create(JOB, job("echo broken > /dev/termination-log; exit 3"), cluster.namespace)

    def failure() -> Object | None:
        status = cluster.client.get(JOB, "job", cluster.namespace).get("status") or {}
        return next((c for c in status.get("conditions") or () if c["type"] == "Failed"), None)

    cluster.until(failure, "the Job's failure")
    condition = failure()
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "BackoffLimitExceeded")
    (found,) = cluster.pods()
    ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "broken\n")
    assert cluster.client.get(JOB, "job", cluster.namespace)["status"]["failed"] == 1


def test_the_deadline_of_a_job_ends_its_pod(cluster: Cluster) -> None:
    script = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    cluster.client.create(JOB, job(script, terminationGracePeriodSeconds=60), cluster.namespace)
    cluster.until(lambda: any("up" in cluster.log(name_of(pod)) for pod in cluster.pods()), "the start")
    name = name_of(cluster.pods()[0])
    # Only now: a deadline that passes sooner may end the pod before it can say that it was asked.
    cluster.client.patch(JOB, "job", {"spec": {"activeDeadlineSeconds": 1}}, cluster.namespace)
    cluster.until(lambda: not cluster.pods(), "the end of the pod")

    def failure() -> Object | None:
        status = cluster.client.get(JOB, "job", cluster.namespace).get("status") or {}
        return next((c for c in status.get("conditions") or () if c["type"] == "Failed"), None)

    cluster.until(failure, "the Job's failure")
    condition = failure()
    assert condition is not None
    assert condition["reason"] == "DeadlineExceeded"
    assert "asked" in cluster.log(name)


def test_init_containers_run_in_order_and_share_volumes(cluster: Cluster) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]

    def init(name: str, script: str) -> Object:
        command = ["sh", "-c", script]
        return {"name": name, "image": IMAGE, "command": command, "volumeMounts": mounts}

    cluster.run(
        "cat /shared/order; ls -d /shared",
        initContainers=[init("one", "echo 1 >> /shared/order"), init("two", "echo 2 >> /shared/order")],
        volumes=[{"name": "shared", "emptyDir": {}}],
        volumeMounts=mounts,
    )
    found = cluster.finished()
    assert found["status"]["phase"] == "Succeeded"
    assert cluster.log("pod").startswith("1\n2\n")
    codes = [s["state"]["terminated"]["exitCode"] for s in found["status"]["initContainerStatuses"]]
    assert codes == [0, 0]


def test_a_failed_init_container_fails_the_pod(cluster: Cluster) -> None:
    init = {"name": "init", "image": IMAGE, "command": ["sh", "-c", "exit 4"]}
    cluster.run("echo never", initContainers=[init])
    found = cluster.finished()
    assert found["status"]["phase"] == "Failed"
    assert found["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
    assert cluster.log("pod") == ""


def test_a_pod_waits_for_the_secret_that_it_mounts(cluster: Cluster) -> None:
    cluster.run(
        "cat /config/nested/a; stat -L -c %a /config/nested/a || stat -L -f %Lp /config/nested/a",
        volumes=[
            {
                "name": "config",
                "secret": {
                    "secretName": "late",
                    "defaultMode": 0o440,
                    "items": [{"key": "a", "path": "nested/a"}],
                },
            }
        ],
        volumeMounts=[{"name": "config", "mountPath": "/config", "readOnly": True}],
    )
    message = 'MountVolume.SetUp failed for volume "config" : secret "late" not found'
    cluster.until(lambda: cluster.waiting().get("message") == message, "the reason for waiting")
    assert cluster.waiting()["reason"] == "ContainerCreating"
    assert cluster.phase("pod") == "Pending"
    cluster.until(
        lambda: any(
            event["reason"] == "FailedMount" and event["message"] == message
            for event in cluster.client.list(EVENT, cluster.namespace).items
        ),
        "the event FailedMount",
    )
    cluster.client.create(
        SECRET, {"metadata": {"name": "late"}, "stringData": {"a": "here\n"}}, cluster.namespace
    )
    assert cluster.finished()["status"]["phase"] == "Succeeded"
    assert cluster.log("pod") == "here\n440\n"


def test_environment_and_paths_of_the_container(cluster: Cluster) -> None:
    namespace = cluster.namespace
    cluster.client.create(SECRET, {"metadata": {"name": "s"}, "stringData": {"TOKEN": "t0"}}, namespace)
    cluster.client.create(CONFIG_MAP, {"metadata": {"name": "c"}, "data": {"file": "content"}}, namespace)
    cluster.run(
        "",
        command=["sh"],
        args=[
            "-c",
            'echo "$TOKEN $WHO $FROM $1"; cat "${1#--file=}"; pwd -P; cd "$HOME"; pwd -P',
            "x",
            "--file=/c/file",
        ],
        env=[
            {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "FROM", "value": "of-$(WHO)"},
            {"name": "HOME", "value": "/home"},
        ],
        envFrom=[{"secretRef": {"name": "s"}}],
        volumes=[{"name": "c", "configMap": {"name": "c"}}, {"name": "home", "emptyDir": {}}],
        volumeMounts=[{"name": "c", "mountPath": "/c"}, {"name": "home", "mountPath": "/home"}],
    )
    assert cluster.finished()["status"]["phase"] == "Succeeded"
    first, rest = cluster.log("pod").split("\n", 1)
    words = first.split(" ")
    assert words[:3] == ["t0", "pod", "of-pod"]
    assert words[3].startswith(f"--file={cluster.directory}/")
    assert words[3].endswith("/c/file")
    content, home, _ = rest.split("\n")
    assert home == content.removeprefix("content") + "/home", "the directories are neighbours"


def test_a_missing_secret_of_the_environment_is_a_config_error(cluster: Cluster) -> None:
    cluster.run("echo $TOKEN", envFrom=[{"secretRef": {"name": "later"}}])
    cluster.until(
        lambda: cluster.waiting().get("reason") == "CreateContainerConfigError", "the waiting state"
    )
    assert cluster.waiting()["message"] == 'secret "later" not found'
    cluster.client.create(
        SECRET, {"metadata": {"name": "later"}, "stringData": {"TOKEN": "t1"}}, cluster.namespace
    )
    cluster.finished()
    assert cluster.log("pod") == "t1\n"


def test_an_image_that_cannot_be_pulled_is_tried_again(cluster: Cluster) -> None:
    missing = "registry.example/team/missing:2"
    with cluster.watched() as versions:
        cluster.run("echo pulled", image=missing)
        reasons = [waiting_of(next(version for version in versions if waiting_of(version)))["reason"]]
        for version in versions:
            reasons.append(waiting_of(version).get("reason", ""))
            if reasons[-1] == "ImagePullBackOff":
                break
    assert "ErrImagePull" in reasons
    assert missing in cluster.waiting()["message"]
    assert cluster.phase("pod") == "Pending"
    cluster.images[missing] = Image(None, DIGEST)
    assert cluster.finished()["status"]["phase"] == "Succeeded"
    assert cluster.log("pod") == "pulled\n"


def test_an_invalid_image_reference(cluster: Cluster) -> None:
    cluster.run("true", image="registry.example/UPPER:1")
    cluster.until(lambda: cluster.waiting().get("reason") == "InvalidImageName", "the waiting state")


def test_a_command_that_does_not_exist(cluster: Cluster) -> None:
    cluster.run("", command=["/no/such/program"])
    ended = cluster.finished()["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "/no/such/program" in ended["message"]


def test_deletion_asks_first_and_the_object_stays_until_the_end(cluster: Cluster) -> None:
    script = (
        "trap 'echo asked; while [ ! -e /shared/go ]; do sleep 0.02; done;"
        " printf last > /dev/termination-log; exit 5' TERM; echo $PWD; while :; do sleep 0.02; done"
    )
    cluster.run(
        script,
        terminationGracePeriodSeconds=30,
        volumes=[{"name": "shared", "emptyDir": {}}],
        volumeMounts=[{"name": "shared", "mountPath": "/shared"}],
    )
    cluster.until(lambda: cluster.log("pod").endswith("\n"), "the start")
    shared = Path(cluster.log("pod").strip()) / "shared"
    seen: list[Object] = []
    with cluster.client.watch(
        POD,
        cluster.namespace,
        resource_version=cluster.pod("pod")["metadata"]["resourceVersion"],
        timeout_seconds=60,
        read_timeout=60,
    ) as stream:
        cluster.client.delete(POD, "pod", cluster.namespace, propagation_policy="Background")
        cluster.until(lambda: "asked" in cluster.log("pod"), "SIGTERM")
        assert is_deleting(cluster.pod("pod"))
        assert cluster.phase("pod") == "Running", "it runs on within its grace period"
        (shared / "go").write_text("")
        for event in stream:
            seen.append(event.decode())
            if event.type == "DELETED":
                break
    messages = [
        status["state"].get("terminated", {}).get("message")
        for found in seen
        for status in found["status"]["containerStatuses"]
    ]
    assert "last" in messages, "the end is reported before the object goes"
    assert not shared.exists()


def test_the_grace_period_ends_with_a_kill_of_everything(cluster: Cluster) -> None:
    script = (
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$$$; while :; do sleep 0.05; done' & wait; wait"
    )
    cluster.run(script, terminationGracePeriodSeconds=1)
    cluster.until(lambda: cluster.log("pod").endswith("\n"), "the start")
    child = int(cluster.log("pod"))
    cluster.client.delete(POD, "pod", cluster.namespace, propagation_policy="Background")
    cluster.until(lambda: not cluster.exists("pod"), "the end")
    assert not is_alive(child)


def test_a_pod_deleted_while_it_waits_goes(cluster: Cluster) -> None:
    cluster.run("true", image="registry.example/team/missing:2", terminationGracePeriodSeconds=30)
    cluster.until(lambda: cluster.waiting().get("reason"), "a waiting state")
    cluster.client.delete(POD, "pod", cluster.namespace, propagation_policy="Background")
    cluster.until(lambda: not cluster.exists("pod"), "the end")


def test_the_deadline_of_a_pod(cluster: Cluster) -> None:
    cluster.run("exec sleep 60", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
    found = cluster.finished()
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "DeadlineExceeded")


def test_the_identity_of_the_pod_leads_to_the_api_server(cluster: Cluster) -> None:
    cluster.client.create(SERVICE_ACCOUNT, {"metadata": {"name": "runner"}}, cluster.namespace)
    if cluster.real:
        wait_for_account(cluster.client, cluster.namespace, "runner")
    cluster.run(
        'cat "$KUBECONFIG"; test "$HOSTNAME" = pod && test -n "$KUBERNETES_SERVICE_HOST"'
        " && cat /var/run/secrets/kubernetes.io/serviceaccount/namespace;"
        " while [ ! -e /s/end ]; do sleep 0.05; done",
        serviceAccountName="runner",
        volumes=[{"name": "s", "emptyDir": {}}],
        volumeMounts=[{"name": "s", "mountPath": "/s"}],
    )
    cluster.until(lambda: cluster.log("pod").endswith(cluster.namespace), "the start")
    config = cluster.log("pod").removesuffix(cluster.namespace)
    path = cluster.directory / "pod.kubeconfig"
    path.write_text(config)
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token_of(config)},
    }
    answer = cluster.client.create(TOKEN_REVIEW, review)
    assert answer["status"]["user"]["username"] == f"system:serviceaccount:{cluster.namespace}:runner"
    with Client.from_config(kubeconfig=path) as as_pod:
        assert as_pod.raw("GET", "/version").status == 200


def token_of(config: str) -> str:
    found = json.loads(config)
    return Path(found["users"][0]["user"]["tokenFile"]).read_text()


def test_a_restart_of_the_kubelet_reports_its_pods_lost(cluster: Cluster, tmp_path: Path) -> None:
    node = Kubelet(cluster.client, images=cluster.images, root=tmp_path / "other", node_name="restarted")
    cluster.kubelet.stop()
    node.start()
    cluster.run("echo up; exec sleep 60")
    cluster.until(lambda: b"".join(node.log(cluster.namespace, "pod") or ()) == b"up\n", "the start")
    node.stop(grace=0)
    assert cluster.phase("pod") == "Running"
    assert list((tmp_path / "other").iterdir()) == [], "nothing is left of the first"
    with Kubelet(cluster.client, images=cluster.images, root=tmp_path / "other", node_name="restarted"):
        found = cluster.finished()
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "NodeLost")
    ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["reason"] == "ContainerStatusUnknown"


def test_restarts_with_back_off(cluster: Cluster) -> None:
    with cluster.watched() as versions:
        cluster.run("exit 1", restartPolicy="OnFailure")
        found = next(found for found in versions if waiting_of(found).get("reason") == "CrashLoopBackOff")
    (status,) = found["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert found["status"]["phase"] == "Running"


def test_a_pod_of_another_node_is_left_alone(cluster: Cluster) -> None:
    found = pod("true")
    found["spec"]["nodeName"] = "elsewhere"
    cluster.client.create(POD, found, cluster.namespace)
    cluster.run("true", name="own")
    cluster.finished("own")
    assert not (cluster.pod("pod").get("status") or {}).get("startTime")


def test_more_pods_than_fit_wait_their_turn(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kubelet.stop()
    with Kubelet(cluster.client, images=cluster.images, root=tmp_path / "m", node_name="small", max_pods=2):
        for index in range(6):
            cluster.run("true", name=f"p{index}")
        for index in range(6):
            assert cluster.finished(f"p{index}")["status"]["phase"] == "Succeeded"


def test_a_secret_value_that_is_binary_reaches_the_process(cluster: Cluster) -> None:
    content = bytes(range(1, 256))
    encoded = base64.b64encode(content).decode()
    cluster.client.create(SECRET, {"metadata": {"name": "b"}, "data": {"B": encoded}}, cluster.namespace)
    cluster.run(
        'printf %s "$B" | od -An -tx1 | tr -d " \\n"; cat /b/B | od -An -tx1 | tr -d " \\n"',
        envFrom=[{"secretRef": {"name": "b"}}],
        volumes=[{"name": "b", "secret": {"secretName": "b"}}],
        volumeMounts=[{"name": "b", "mountPath": "/b"}],
    )
    cluster.finished()
    assert cluster.log("pod") == content.hex() * 2


def test_nothing_is_left_after_the_stop(cluster: Cluster) -> None:
    cluster.run("echo $$$$; trap '' TERM; while :; do sleep 0.05; done")
    cluster.until(lambda: cluster.log("pod").endswith("\n"), "the start")
    process = int(cluster.log("pod"))
    before = uid_of(cluster.pod("pod"))
    cluster.kubelet.stop(grace=0.2)
    assert not is_alive(process)
    assert list((cluster.directory / "k").iterdir()) == []
    assert uid_of(cluster.pod("pod")) == before, "the object is left as it was"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("kubelet", "pod-"))]
