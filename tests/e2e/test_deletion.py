"""Deletion with real Terraform, on resources that really exist and can be counted."""

from __future__ import annotations

import base64

import pytest
from hack.tour.story import condition
from tests.e2e.scene import Scene, Subject

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels
from captf_controllers.api.finalizers import finalizer_of
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import NAMESPACE, SECRET, labels_of, name_of, owner_references

pytestmark = [pytest.mark.terraform, pytest.mark.slow]


#: Each kind on the embedded API server, the machine, which needs a cluster besides, on a real one.
EACH_KIND = pytest.mark.parametrize(
    ("stage", "kind"),
    [
        ("embedded_stage", "TerraformCluster"),
        ("embedded_stage", "TerraformMachine"),
        pytest.param("real_stage", "TerraformMachine", marks=pytest.mark.real_apiserver),
    ],
    indirect=["stage"],
)


def provision(scene: Scene, kind: str, **spec: object) -> Subject:
    """A cluster, or a machine of one, with two servers."""
    if kind == "TerraformCluster":
        subject = scene.cluster(**spec)
    else:
        ensure_cluster(scene)
        subject = scene.machine("m1", **spec)
    subject.wait_ready()
    assert len(scene.cloud.servers(subject.name)) == 2
    return subject


def ensure_cluster(scene: Scene) -> Subject:
    """A cluster that has no servers of its own and that Cluster API knows as provisioned."""
    cluster = scene.cluster(variables={"servers": 0})
    cluster.wait_ready()
    scene.report_infrastructure()
    return cluster


def hold_on_lost_state(subject: Subject) -> None:
    """Lose the state of a subject and delete it."""
    subject.delete_state()
    subject.delete()
    subject.wait_message("StateReadable", "Deletion is held")
    assert subject.condition("StateReadable")["reason"] == "StateLost"


def reasons(subject: Subject) -> list[str]:
    return [event["reason"] for event in subject.scene.events(subject.name)]


@EACH_KIND
def test_a_destroy_removes_what_the_module_built(scene: Scene, kind: str) -> None:
    subject = provision(scene, kind)
    subject.delete()
    subject.wait_gone()
    assert scene.cloud.servers() == []
    assert len(scene.cloud.calls("destroy")) == 2
    subject.wait_event("Destroyed")
    subject.wait_event("FinalizerRemoved")
    if kind == "TerraformCluster":
        scene.wait_clean()


@EACH_KIND
def test_an_abandoned_object_leaves_its_servers_and_says_so(scene: Scene, kind: str) -> None:
    subject = provision(scene, kind)
    hold_on_lost_state(subject)
    message = subject.condition("StateReadable")["message"]
    assert message.startswith("Deletion is held")
    assert f"{keys.ABANDON_INFRASTRUCTURE}={subject.uid}" in message
    assert subject.jobs("destroy") == []
    subject.abandon()
    subject.wait_gone()
    assert subject.wait_event("InfrastructureAbandoned") == (
        f"Removed finalizer {finalizer_of(kind)} without a destroy (StateReadable StateLost): "
        "captf.io/abandon-infrastructure names this object's uid. Whatever the module created keeps running "
        "and is no longer managed; the state backups go with the object"
    )
    assert not {"Destroyed", "FinalizerRemoved"} & set(reasons(subject))
    assert len(scene.cloud.servers(subject.name)) == 2


@EACH_KIND
def test_retained_state_is_adopted_by_a_later_object_and_destroyed(scene: Scene, kind: str) -> None:
    subject = provision(scene, kind)
    uid = subject.uid
    subject.patch({"spec": {"deletionPolicy": "Retain"}})
    subject.delete()
    subject.wait_gone()
    note = subject.wait_event("InfrastructureRetained")
    assert f"{labels.RETAINED_FROM_UID}={uid}" in note
    assert "spec.adoptRetainedState: true" in note
    kept = subject.belongings()
    assert {labels_of(secret).get(labels.RETAINED_FROM_UID) for secret in kept} == {uid}
    assert len(kept) == 4, "a state, a backup, two inputs"
    assert not any(owner_references(secret) for secret in kept)
    assert len(scene.cloud.servers(subject.name)) == 2

    if kind == "TerraformCluster":
        subject = scene.cluster(adoptRetainedState=True)
    else:
        subject = scene.machine("m1", adoptRetainedState=True)
    subject.wait_ready()
    assert subject.uid != uid
    assert str(uid) in subject.wait_event("RetainedStateAdopted")
    assert subject.jobs("apply") == []
    for secret in subject.belongings():
        assert labels.RETAINED_FROM_UID not in labels_of(secret)
        assert [owner.uid for owner in owner_references(secret)] == [subject.uid]
    assert len(scene.cloud.calls("create")) == 2, "nothing was built twice"

    subject.delete()
    subject.wait_gone()
    assert scene.cloud.servers() == []


def test_found_retained_state_holds_a_new_object_until_it_is_adopted(local_scene: Scene) -> None:
    scene = local_scene
    cluster = provision(scene, "TerraformCluster", deletionPolicy="Retain")
    uid = cluster.uid
    cluster.delete()
    cluster.wait_gone()
    cluster = scene.cluster()
    message = cluster.wait_says("StateReadable", "False/RetainedStateFound")["message"]
    assert f"{labels.RETAINED_FROM_UID}={uid}" in message
    assert "spec.adoptRetainedState: true" in message
    assert cluster.jobs() == []
    cluster.delete()
    cluster.wait_gone()
    assert len(cluster.belongings()) == 4, "the deletion of a held object touches nothing retained"
    scene.cluster(adoptRetainedState=True).wait_ready()
    cluster.delete()
    cluster.wait_gone()
    assert scene.cloud.servers() == []
    scene.wait_clean()


@EACH_KIND
def test_a_lost_state_is_restored_from_a_backup_and_destroyed(scene: Scene, kind: str) -> None:
    subject = provision(scene, kind)
    hold_on_lost_state(subject)
    (serial,) = (backup["serial"] for backup in subject.status["stateBackups"])
    assert keys.RESTORE_STATE in subject.condition("StateReadable")["message"]
    assert len(scene.cloud.servers(subject.name)) == 2
    subject.restore(serial)
    subject.wait_gone()
    assert scene.cloud.servers() == []
    assert f"serial {serial}" in subject.wait_event("StateRestored")
    subject.wait_event("Destroyed")


def test_a_corrupt_state_holds_and_a_backup_releases_it(scene: Scene) -> None:
    cluster = provision(scene, "TerraformCluster")
    noise = base64.b64encode(b"not a state at all").decode()
    (secret,) = cluster.state_secrets()
    scene.client.patch(SECRET, name_of(secret), {"data": {"tfstate": noise}}, scene.namespace)
    cluster.delete()
    message = cluster.wait_message("StateReadable", "Deletion is held")
    assert cluster.condition("StateReadable")["reason"] == "StateCorrupt"
    assert name_of(secret) in message
    assert cluster.jobs("destroy") == []
    # The live object may have told of the noise before it was deleted; the hold is told all the same.
    scene.wait(
        lambda: [
            event for event in scene.events("demo", "StateUnreadable") if "Deletion is held" in event["note"]
        ],
        "the event of the hold",
    )
    cluster.restore(cluster.status["stateBackups"][0]["serial"])
    cluster.wait_gone()
    assert scene.cloud.servers() == []
    scene.wait_clean()


def test_a_namespace_deleted_first_holds_and_an_abandon_releases_it(scene: Scene) -> None:
    cluster = provision(scene, "TerraformCluster")
    scene.client.delete(NAMESPACE, scene.namespace, propagation_policy="Background")
    cluster.wait_says("StateReadable", "False/StateLost")
    scene.wait(lambda: not cluster.belongings(), "its Secrets have gone with the namespace")
    cluster.abandon()
    cluster.wait_gone()

    def gone() -> bool:
        try:
            scene.client.get(NAMESPACE, scene.namespace)
        except NotFound:
            return True
        return False

    scene.wait(gone, "the namespace is gone")
    assert len(scene.cloud.servers()) == 2


def test_a_failed_destroy_goes_on_where_it_stopped_after_a_minute(scene: Scene) -> None:
    cluster = provision(scene, "TerraformCluster", variables={"servers": 2})
    scene.cloud.refuse("destroy", 1, "the server is protected against deletion")
    cluster.delete()
    failed = cluster.wait_says("ApplyJobSucceeded", "False/DestroyFailed")["message"]
    assert "Error: local-exec provisioner error" in failed
    assert "the server is protected against deletion" in failed
    assert "terraform_data.server[1]" in failed
    assert "spec.deletionPolicy: Retain" in failed
    assert scene.cloud.servers() == [f"{scene.namespace}.demo.1"], "the rest of the destroy went on"

    scene.cloud.allow("destroy", 1)
    # A pass that has seen all this: it answers an annotation of its user.
    cluster.annotate(keys.PAUSED, "")
    cluster.wait_message("Deleting", "unpaused")
    cluster.annotate(keys.PAUSED, None)
    cluster.wait(lambda obj: "message" not in condition(obj, "Deleting"), "goes on")
    assert len(cluster.jobs("destroy")) == 1
    assert cluster.condition("ApplyJobSucceeded")["reason"] == "DestroyFailed"

    cluster.let_pass(60)
    cluster.wait_gone()
    assert scene.cloud.servers() == []
    destroyed = scene.cloud.calls("destroy")
    assert destroyed.count(f"{scene.namespace}.demo.0") == 1, "what was gone was not destroyed again"
    assert destroyed.count(f"{scene.namespace}.demo.1") == 2
    scene.wait_clean()
