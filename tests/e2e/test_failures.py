"""What fails, is stopped or is killed: what the user is told, and how it goes on."""

from __future__ import annotations

import base64
import http.client
import json
import re

import pytest
from hack.tour import manifests
from hack.tour.stage import Stage
from tests.e2e.conftest import LEAKING_MACHINE
from tests.e2e.scene import Scene, Subject

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.kinds import API_VERSION, TERRAFORM_CLUSTER_IDENTITY, WORKLOAD_KINDS
from captf_runtime.objects import (
    CONFIG_MAP,
    EVENTS_V1,
    JOB,
    LEASE,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    annotations_of,
    name_of,
)

pytestmark = [pytest.mark.terraform, pytest.mark.slow]

TOKEN = "marker-of-the-token-4f1c"
NOTE = "marker-of-the-variable-9a2e"
BOOTSTRAP = "marker-of-the-bootstrap-data-77b0"


def serve_metrics(stage: Stage) -> None:
    """Start the manager anew with its metrics on a port."""
    stage.stop_manager()
    stage.start_manager("--diagnostics-address=127.0.0.1:0")


def read_metrics(stage: Stage) -> str:
    assert stage.manager is not None
    listening = re.search(r'listening component="metrics" address="([^"]+)"', stage.manager.log.read_text())
    assert listening is not None
    connection = http.client.HTTPConnection(listening.group(1), timeout=60)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_a_failing_module_is_quoted_without_any_secret(scene: Scene) -> None:
    """Markers in credentials, bootstrap data and a variable's Secret, printed by the module itself."""
    serve_metrics(scene.stage)
    namespace = scene.namespace
    scene.ensure(SECRET, manifests.secret(namespace, manifests.OPERATOR, {"DEMO_TOKEN": TOKEN}))
    identity = {
        "apiVersion": API_VERSION,
        "kind": TERRAFORM_CLUSTER_IDENTITY.kind,
        "metadata": {"name": namespace},
        "spec": {
            "secretRef": {"name": namespace, "namespace": manifests.OPERATOR},
            "allowedNamespaces": {"selector": {}},
        },
    }
    scene.ensure(TERRAFORM_CLUSTER_IDENTITY, identity)
    note = manifests.secret("note", namespace, {"note": NOTE})
    note["metadata"]["labels"] = {labels.VARIABLES: "true"}
    scene.ensure(SECRET, note)
    scene.cluster(image=manifests.CLUSTER_IMAGE, identityRef={"name": namespace}).wait_ready()
    scene.report_infrastructure()
    machine = scene.machine(
        "m1",
        image=LEAKING_MACHINE,
        bootstrap=f"{BOOTSTRAP}\n",
        variablesFrom=[{"secretRef": {"name": "note"}}],
    )
    message = machine.wait_says("ApplyJobSucceeded", "False/ApplyFailed")["message"]
    assert "step apply failed: module.role.terraform_data.leak" in message
    assert "Error: local-exec provisioner error" in message
    assert "(sensitive)" in message, "what it said is quoted, less what it may not say"
    (job,) = machine.jobs("apply")
    log = scene.log_of(job.name)
    assert "refused: " in log
    scene.wait(lambda: scene.events("m1", "JobFailed"), "the event of the failure")

    said = [scene.stage.manager_log(), log, read_metrics(scene.stage)]
    for kind in (*WORKLOAD_KINDS, JOB, POD, LEASE, CONFIG_MAP, SERVICE_ACCOUNT, ROLE_BINDING, EVENTS_V1):
        said += [json.dumps(obj) for obj in scene.client.list(kind, namespace).items]
    everything = "\n".join(said)
    assert "captf_jobs_total" in everything
    for marker in (TOKEN, NOTE, BOOTSTRAP):
        assert marker not in everything
        assert base64.b64encode(marker.encode()).decode().rstrip("=")[:-1] not in everything


def test_a_failed_apply_is_quoted_and_not_retried_at_once(local_scene: Scene) -> None:
    scene = local_scene
    cluster = scene.cluster(variables={"broken": "the moon is full"})
    message = cluster.wait_says("ApplyJobSucceeded", "False/ApplyFailed")["message"]
    assert "The module is broken: the moon is full." in message
    cluster.annotate(keys.PAUSED, "")
    cluster.wait_says("Paused", "True/Paused")
    cluster.annotate(keys.PAUSED, None)
    cluster.wait_says("Paused", "False/NotPaused")
    assert len(cluster.jobs("apply")) == 1
    cluster.let_pass(60)
    second = cluster.wait_job("apply", 2, finished=True)
    cluster.wait_message("ApplyJobSucceeded", second.name)
    cluster.let_pass(120)
    cluster.wait_job("apply", 3)


def destroying(scene: Scene, **spec: object) -> Subject:
    """A cluster whose destroy runs and waits for the cloud."""
    cluster = scene.cluster(**spec)
    cluster.wait_ready()
    scene.cloud.hold("destroy")
    cluster.delete()
    scene.wait(lambda: len(scene.cloud.calls("destroy")) == 2, "the destroy has reached the cloud")
    return cluster


def test_an_interrupted_destroy_goes_on_at_once(scene: Scene) -> None:
    """A node is drained: no failure, no backoff, no cause for an abandon."""
    cluster = destroying(scene)
    (job,) = cluster.jobs("destroy")
    (pod,) = scene.pods(job.name)
    # The pass that started the Job writes the status last, maybe long after the Job runs.
    cluster.wait(lambda obj: obj["status"].get("activeJob", {}).get("name") == job.name, "tells of its Job")
    before = cluster.condition("ApplyJobSucceeded")
    # Newer Job controllers keep a pod with a finalizer until it is counted, so that its end can be read.
    kept = {"metadata": {"finalizers": ["tests.example.com/counted"]}}
    scene.client.patch(POD, name_of(pod), kept, scene.namespace)
    scene.client.delete(POD, name_of(pod), scene.namespace, propagation_policy="Background")
    scene.wait(lambda: len(scene.cloud.calls("destroy")) == 4, "another run has reached the cloud")
    scene.client.patch(POD, name_of(pod), {"metadata": {"finalizers": None}}, scene.namespace)
    assert cluster.condition("ApplyJobSucceeded") == before
    if len(cluster.jobs("destroy")) == 2:  # older Job controllers start another pod of the same Job instead
        cluster.wait_event("JobInterrupted")
    scene.cloud.release("destroy")
    cluster.wait_gone()
    assert scene.cloud.servers() == []
    assert scene.events("demo", "JobFailed") == []


def test_a_destroy_that_exceeds_its_deadline_is_retried_after_a_minute(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.wait_ready()
    cluster.patch({"spec": {"jobs": {"activeDeadlineSeconds": 5, "lockTimeoutSeconds": 1}}})
    scene.cloud.hold("destroy")
    cluster.delete()
    message = cluster.wait_says("ApplyJobSucceeded", "False/JobDeadlineExceeded")["message"]
    assert "activeDeadlineSeconds" in message
    assert "spec.deletionPolicy: Retain" in message
    assert len(cluster.jobs("destroy")) == 1
    scene.cloud.release("destroy")
    cluster.patch({"spec": {"jobs": {"activeDeadlineSeconds": 600}}})
    cluster.wait_seen()
    cluster.let_pass(60)
    cluster.wait_gone()
    assert scene.cloud.servers() == []
    scene.wait_clean()


def test_a_foreign_lock_is_reported_and_left(scene: Scene) -> None:
    cluster = scene.cluster(jobs={"lockTimeoutSeconds": 0})
    cluster.wait_ready()
    lock = names.state_lock_lease(cluster.suffix)
    info = {"ID": "8f1f", "Operation": "OperationTypeApply", "Who": "alice@laptop", "Version": "1.11.4"}
    patch = {
        "metadata": {"annotations": {keys.LOCK_INFO: json.dumps(info)}},
        "spec": {"holderIdentity": "8f1f"},
    }
    scene.client.patch(LEASE, lock, patch, scene.namespace)
    cluster.delete()
    message = cluster.wait_says("StateReadable", "False/StateLocked")["message"]
    assert "alice@laptop" in message
    cluster.wait_says("ApplyJobSucceeded", "False/DestroyFailed")
    assert scene.client.get(LEASE, lock, scene.namespace)["spec"]["holderIdentity"] == "8f1f"
    assert scene.events("demo", "ForceUnlocked") == []
    assert len(scene.cloud.servers()) == 2
    (job,) = cluster.jobs("destroy")
    assert not any("force-unlock" in argument for argument in scene.arguments_of(job.name))

    released = {"metadata": {"annotations": {keys.LOCK_INFO: None}}, "spec": {"holderIdentity": None}}
    scene.client.patch(LEASE, lock, released, scene.namespace)
    cluster.let_pass(60)
    cluster.wait_gone()
    assert scene.cloud.servers() == []


def test_the_lock_of_a_killed_destroy_is_released_by_the_next(scene: Scene) -> None:
    cluster = destroying(scene)
    (job,) = cluster.jobs("destroy")
    scene.kill_pods(job.name)
    cluster.wait_says("ApplyJobSucceeded", "False/DestroyFailed")
    lock = scene.client.get(LEASE, names.state_lock_lease(cluster.suffix), scene.namespace)
    assert lock["spec"]["holderIdentity"]
    assert job.name in annotations_of(lock)[keys.LOCK_INFO]
    scene.cloud.release("destroy")
    cluster.let_pass(60)
    cluster.wait_gone()
    assert scene.cloud.servers() == []
    assert cluster.wait_event("ForceUnlocked")
    scene.wait_clean()


def test_a_killed_first_apply_holds_until_somebody_looked(local_scene: Scene) -> None:
    """It may have built servers and left a state that knows of none: no second apply, no silent release."""
    scene = local_scene
    scene.cloud.hold("create")
    cluster = scene.cluster()
    scene.wait(lambda: len(scene.cloud.calls("create")) == 2, "the apply has reached the cloud")
    (job,) = cluster.jobs("apply")
    scene.kill_pods(job.name)
    message = cluster.wait_says("StateReadable", "False/ApplyOutcomeUnknown")["message"]
    assert job.name in message
    assert len(cluster.jobs("apply")) == 1
    cluster.delete()
    message = cluster.wait_message("StateReadable", "Deletion is held")
    assert f"{keys.CONFIRM_NO_RESOURCES}={job.name}" in message
    cluster.annotate(keys.CONFIRM_NO_RESOURCES, job.name)
    cluster.wait_gone()
    assert len(scene.cloud.calls("create")) == 2
