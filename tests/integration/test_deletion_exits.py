"""Ways out of a deletion that waits: abandon and restore where no acceptance row looks."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from tests.deletion_case import Case
from tests.world import DIGEST, IDENTITY, OPERATOR, OUTPUTS, TEAM, World

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.api.annotations import PAUSED
from captf_controllers.api.kinds import CLUSTER, TERRAFORM_CLUSTER_IDENTITY
from captf_runtime.client.errors import ApiError
from captf_runtime.objects import JOB, SECRET, Kind, Object, annotations_of, name_of
from captf_runtime.testing.faults import Match, conflict, forbidden, internal_error


def lose(case: Case) -> None:
    case.remove_secrets(case.states())


def hold(case: Case) -> None:
    case.provision()
    lose(case)
    case.delete()
    assert case.reconcile() == 60


def vanish(case: Case) -> str:
    """The first apply starts, and its Job disappears; the Job's name."""
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    case.world.client.delete(JOB, job, TEAM, propagation_policy="Background")
    case.world.step()
    case.advance(61)
    return job


# What is no cause for an abandon


def wait_for_slot(case: Case) -> None:
    case.world.restart(max_active_jobs=1)
    case.world.take_slot("somebody-elses")


def wait_for_lease(case: Case) -> None:
    case.world.add_job("somebody-elses")
    case.world.hold_run_lease(case.kind, case.name, "somebody-elses")


def wait_for_gate(case: Case) -> None:
    case.world.add_job("captf-c-prod-apply-a2-abcdef")
    case.world.hold_write_lease("prod", "captf-c-prod-apply-a2-abcdef")


def pause(case: Case) -> None:
    case.patch({"metadata": {"annotations": {PAUSED: ""}}})


def pause_cluster(case: Case) -> None:
    case.world.client.patch(CLUSTER, case.cluster, {"spec": {"paused": True}}, TEAM)


@pytest.mark.parametrize("wait", [wait_for_slot, wait_for_lease, wait_for_gate, pause, pause_cluster])
def test_waits_are_no_causes(machine_case: Case, wait: Callable[[Case], None]) -> None:
    case = machine_case
    case.provision()
    wait(case)
    case.abandon()
    case.delete()
    for _ in range(3):
        case.reconcile()
        case.advance(5)
    assert not case.released
    assert case.jobs("destroy") == []
    assert "InfrastructureAbandoned" not in case.reasons()


@pytest.mark.parametrize("wait", [wait_for_slot, wait_for_gate])
def test_a_wait_after_a_failed_destroy_names_the_abandon_that_acts(
    machine_case: Case, wait: Callable[[Case], None]
) -> None:
    """What the wait says takes the place of what the failure said, and the failure is a cause all the same."""
    case = machine_case
    case.destroying()
    case.advance(case.fail()[0])
    wait(case)
    case.reconcile()
    waiting = case.message("ApplyJobSucceeded")
    assert case.says("ApplyJobSucceeded").startswith("Unknown/WaitingFor")
    assert f"captf.io/abandon-infrastructure={case.uid}" in waiting
    assert "spec.deletionPolicy: Retain" in waiting
    case.reconcile()
    assert case.message("ApplyJobSucceeded") == waiting
    case.abandon()
    assert case.reconcile() == 0
    assert case.released
    assert (
        "(the last destroy failed: ApplyJobSucceeded DestroyFailed)"
        in case.notes("InfrastructureAbandoned")[0]
    )


def test_a_used_up_quota_after_a_failed_destroy_names_the_abandon_that_acts(case: Case) -> None:
    case.destroying()
    case.advance(case.fail()[0])
    case.world.server.faults.add(Match(verb="create", resource="jobs"), forbidden())
    with pytest.raises(ApiError):
        case.reconcile()
    assert f"captf.io/abandon-infrastructure={case.uid}" in case.message("Deleting")
    case.abandon()
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("HD23")
def test_an_abandon_that_is_taken_back_at_the_last_moment_does_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache still shows the annotation; the server does not."""
    case.destroying()
    case.world.write_state(case.kind, case.name, payload=b"broken", cluster=case.cluster)
    case.end("failed")
    case.abandon()
    trailing = case.object
    case.annotate(abandon_infrastructure=None)
    see(case, trailing, monkeypatch)
    assert case.reconcile() == 5
    assert not case.released
    assert len(case.states()) == 1
    assert all(case.has_secret(name) for name in case.inputs_secrets)
    monkeypatch.undo()
    assert case.reconcile() == 60
    assert case.says("StateReadable") == "False/StateCorrupt"


def test_a_retain_that_is_set_at_the_last_moment_beats_an_abandon(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.destroying()
    case.end("failed")
    case.abandon()
    trailing = case.object
    case.spec(deletionPolicy="Retain")
    see(case, trailing, monkeypatch)
    assert case.reconcile() == 5
    assert len(case.states()) == 1
    monkeypatch.undo()
    assert case.reconcile() == 0
    assert case.notes("InfrastructureAbandoned") == []
    assert case.notes("InfrastructureRetained")


def see(case: Case, obj: Object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cache show this version of the object, until ``monkeypatch`` is undone."""
    cache = case.world.cache
    fresh = cache.get

    def get(kind: Kind, name: str, namespace: str = "") -> Object:
        mine = kind.kind == case.kind and name == case.name
        return copy.deepcopy(obj) if mine else fresh(kind, name, namespace)

    monkeypatch.setattr(cache, "get", get)


def test_a_dependents_wait_is_no_cause(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    lose(case)
    case.world.add("TerraformMachine", "m9", cluster="c1")
    case.abandon()
    case.delete()
    for _ in range(2):
        assert case.reconcile() == 30
    assert not case.released
    assert case.says("DeletionBlocked") == "True/DependentsExist"


@pytest.mark.parametrize("held", [True, False])
def test_a_running_job_is_waited_for(case: Case, held: bool) -> None:
    case.destroying()
    if held:
        lose(case)
    case.abandon()
    for _ in range(2):
        assert case.reconcile() == 60
    assert not case.released
    case.end("failed")
    assert case.reconcile() == 0
    assert case.released


def test_a_paused_hold_waits_for_the_unpause(case: Case) -> None:
    hold(case)
    pause(case)
    case.abandon()
    for _ in range(2):
        assert case.reconcile() == 0
    assert not case.released
    case.patch({"metadata": {"annotations": {PAUSED: None}}})
    case.reconcile()
    case.settle()
    assert case.released


# What beats what


def test_retain_beats_abandon(case: Case) -> None:
    hold(case)
    case.abandon()
    case.spec(deletionPolicy="Retain")
    assert case.reconcile() == 0
    assert case.released
    assert "InfrastructureRetained" in case.reasons()
    assert "InfrastructureAbandoned" not in case.reasons()
    assert case.backups()
    assert case.has_secret(case.inputs_secrets[0])


def test_a_foreign_retained_state_beats_abandon(case: Case) -> None:
    case.provision()
    labels: Object = {"metadata": {"labels": {"captf.io/retained-from-uid": "another"}}}
    for secret in case.states():
        case.world.client.patch(SECRET, name_of(secret), labels, TEAM)
    case.abandon()
    case.delete()
    assert case.reconcile() == 0
    assert case.released
    assert len(case.states()) == 1
    assert "InfrastructureAbandoned" not in case.reasons()


def test_abandon_beats_a_restore_that_could_start(case: Case) -> None:
    hold(case)
    case.restore(1)
    case.abandon()
    assert case.reconcile() == 0
    assert case.jobs("restore") == []
    assert case.notes("InfrastructureAbandoned")[0].count("StateReadable StateLost") == 1


def test_a_wrong_value_leaves_a_restore_alone(case: Case) -> None:
    hold(case)
    case.restore(1)
    case.abandon("yes")
    assert case.reconcile() == 60
    assert case.job("restore")


def test_a_wrong_value_is_ignored_everywhere(case: Case) -> None:
    case.destroying()
    assert case.fail(1) == [60]
    case.abandon("yes")
    assert case.reconcile() == 60
    assert not case.released
    case.advance(60)
    assert case.reconcile() == 60
    assert case.job("destroy")


def test_abandon_does_not_wait_for_the_backoff(case: Case) -> None:
    case.destroying()
    assert case.fail(3)[-1] == 600
    case.abandon()
    assert case.reconcile() == 0
    assert case.released


# The note


def test_a_long_cause_is_cut_and_the_tail_stays(case: Case) -> None:
    case.provision()
    wanted = [f"REQUIRED_KEY_NUMBER_{index}" for index in range(40)]
    case.world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, {"spec": {"requiredKeys": wanted}})
    case.abandon()
    case.delete()
    assert case.reconcile() == 0
    (note,) = case.notes("InfrastructureAbandoned")
    assert len(note.encode()) <= 512
    assert "IdentityAllowed is False (CredentialsIncomplete)" in note
    assert note.endswith("and is no longer managed; the state backups go with the object")


def test_credentials_conditions_hold_no_secret(case: Case) -> None:
    hold(case)
    case.restore(1)
    case.world.client.delete(SECRET, f"{IDENTITY}-credentials", OPERATOR, propagation_policy="Background")
    case.reconcile()
    everything = str(case.object) + str(case.world.events.events)
    assert "t0p-s3cret" not in everything


def test_an_abandon_is_repeated_when_its_last_patch_is_lost(case: Case) -> None:
    hold(case)
    case.abandon()
    resource = f"{case.kind.lower()}s"
    case.world.server.faults.add(Match(verb="patch", resource=resource, subresource=""), internal_error())
    for _ in range(2):
        with pytest.raises((ApiError, ExceptionGroup)):
            case.reconcile()
    assert not case.released
    assert "InfrastructureAbandoned" not in case.reasons()
    case.world.server.faults.clear()
    assert case.reconcile() == 0
    assert case.released
    assert len(case.notes("InfrastructureAbandoned")) == 1


def test_a_release_that_cannot_be_told_of_is_repeated(case: Case) -> None:
    """The event of a Retain says whether the namespace terminates; that read may fail."""
    case.provision(deletionPolicy="Retain")
    case.delete()
    case.world.server.faults.add(Match(verb="get", resource="namespaces"), internal_error())
    with pytest.raises((ApiError, ExceptionGroup)):
        case.reconcile()
    assert not case.released
    case.world.server.faults.clear()
    assert case.reconcile() == 0
    assert case.released
    assert len(case.notes("InfrastructureRetained")) == 1


# Restores in a hold


def test_retain_beats_a_restore(case: Case) -> None:
    hold(case)
    case.restore(1)
    case.spec(deletionPolicy="Retain")
    assert case.reconcile() == 0
    assert case.released
    assert case.jobs("restore") == []


def test_a_retain_set_during_a_restore_lets_the_object_go_when_it_ends(case: Case) -> None:
    hold(case)
    case.restore(1)
    case.reconcile()
    case.spec(deletionPolicy="Retain")
    assert case.reconcile() == 60
    case.end()
    assert case.reconcile() == 0
    assert case.released
    assert len(case.states()) == 1
    assert case.jobs("destroy") == []


def test_a_destroy_after_a_restore_respects_the_backoff(case: Case) -> None:
    case.destroying()
    assert case.fail(1) == [60]
    lose(case)
    case.restore(1)
    case.reconcile()
    case.advance(20)
    case.end()
    assert case.reconcile() == 40
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"
    case.advance(40)
    assert case.reconcile() == 60
    assert case.job("destroy")


def test_no_backoff_holds_a_restore_up(case: Case) -> None:
    case.destroying()
    assert case.fail(3)[-1] == 600
    lose(case)
    case.restore(1)
    assert case.reconcile() == 60
    assert case.job("restore")


def test_a_restore_needs_no_inputs(machine_case: Case) -> None:
    case = machine_case
    hold(case)
    case.remove_inputs()
    case.restore(1)
    assert case.reconcile() == 60
    assert case.job("restore")
    case.end()
    assert case.reconcile() == 600
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"


def test_a_restore_runs_the_recorded_image_and_identity(machine_case: Case) -> None:
    case = machine_case
    hold(case)
    case.restore(1)
    case.reconcile()
    container = case.job("restore")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"example.com/modules/x@{DIGEST}"
    assert container["envFrom"] == [{"secretRef": {"name": names.credential_mirror(IDENTITY)}}]


def test_another_serial_set_meanwhile_is_a_new_request(case: Case) -> None:
    case.provision()
    case.world.write_state(case.kind, case.name, outputs=OUTPUTS[case.kind], cluster=case.cluster, serial=5)
    case.reconcile()
    lose(case)
    case.delete()
    case.restore(1)
    case.reconcile()
    case.restore(5)
    case.end()
    lose(case)
    assert case.reconcile() == 60
    assert case.status["lastRestoredSerial"] == 1
    assert case.annotations["captf.io/restore-state"] == "5"
    assert annotations_of(case.job("restore"))[keys.RESTORE_SERIAL] == "5"


def test_a_lost_race_for_the_annotation_is_repeated(case: Case) -> None:
    hold(case)
    case.restore(1)
    case.reconcile()
    restore = case.job("restore")
    case.end()
    resource = f"{case.kind.lower()}s"
    case.world.server.faults.add(Match(verb="patch", resource=resource, subresource=""), conflict(), times=1)
    assert case.reconcile() == 5
    assert case.annotations["captf.io/restore-state"] == "1"
    assert case.jobs("destroy") == []
    assert keys.BOOKKEPT not in annotations_of(case.world.client.get(JOB, name_of(restore), TEAM))
    assert case.reconcile() == 60
    assert "captf.io/restore-state" not in case.annotations
    assert case.job("destroy")
    assert len(case.notes("StateRestored")) == 1


def test_a_lost_race_for_a_confirmation_releases_nothing(case: Case) -> None:
    job = vanish(case)
    case.delete()
    case.reconcile()
    case.annotate(confirm_no_resources=job)
    resource = f"{case.kind.lower()}s"
    case.world.server.faults.add(Match(verb="patch", resource=resource, subresource=""), conflict(), times=1)
    assert case.reconcile() == 5
    assert not case.released
    assert case.says("StateReadable") == "False/ApplyOutcomeUnknown"
    assert case.reconcile() == 0
    assert case.released


def test_a_restore_ends_an_unknown_outcome(case: Case) -> None:
    """No backup can exist then, unless somebody put one there by hand; the state turning up is enough."""
    vanish(case)
    case.delete()
    assert case.reconcile() == 60
    case.world.write_state(case.kind, case.name, outputs=OUTPUTS[case.kind], cluster=case.cluster)
    assert case.reconcile() == 60
    assert case.says("StateReadable") == "True/StateRead"
    assert case.job("destroy")


def test_a_state_that_turns_up_again_ends_the_hold(case: Case) -> None:
    case.provision()
    kept = case.states()
    lose(case)
    case.delete()
    assert case.reconcile() == 60
    for secret in kept:
        for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            secret["metadata"].pop(field, None)
        case.world.create(SECRET, secret, TEAM)
    assert case.reconcile() == 60
    assert case.job("destroy")


def test_a_vanished_apply_of_a_deleting_object_is_held(case: Case) -> None:
    """The object was deleted while its first apply ran, and the Job disappeared after that."""
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    case.delete()
    assert case.reconcile() == 60
    case.world.client.delete(JOB, job, TEAM, propagation_policy="Background")
    case.world.step()
    case.advance(61)
    assert case.reconcile() == 60
    assert case.says("StateReadable") == "False/ApplyOutcomeUnknown"
    assert job in case.message("StateReadable")


@pytest.mark.parametrize("deleting", [True, False])
def test_an_apply_that_vanished_from_a_paused_object_is_not_forgotten(case: Case, deleting: bool) -> None:
    """The paused pass is the last one that the status tells of the Job."""
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    pause(case)
    if deleting:
        case.delete()
    case.world.client.delete(JOB, job, TEAM, propagation_policy="Background")
    case.world.step()
    case.advance(61)
    case.settle()
    assert "activeJob" not in case.status
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}})
    if not deleting:
        case.delete()
    case.settle()
    assert not case.released
    assert case.says("StateReadable") == "False/ApplyOutcomeUnknown"
    assert job in case.message("StateReadable")


@pytest.mark.parametrize("outcome", ["failed", "no-result"])
def test_a_crashed_first_apply(case: Case, outcome: str) -> None:
    """One that left no result is of unknown outcome; one that says where it failed is not."""
    case.add()
    case.settle()
    case.end(outcome, steps=("init",))  # type: ignore[arg-type]
    case.delete()
    if outcome == "failed":
        assert case.reconcile() == 0
        assert case.released
    else:
        assert case.reconcile() == 60
        assert case.says("StateReadable") == "False/ApplyOutcomeUnknown"


def test_paused_no_restore_starts(case: Case) -> None:
    hold(case)
    pause(case)
    case.restore(1)
    for _ in range(2):
        assert case.reconcile() == 0
    assert case.jobs("restore") == []


def test_a_restore_that_ends_while_paused_is_consumed(case: Case) -> None:
    hold(case)
    case.restore(1)
    case.reconcile()
    pause(case)
    case.end()
    assert case.reconcile() == 0
    assert case.says("RestoreJobSucceeded") == "True/StateRestored"
    assert case.status["lastRestoredSerial"] == 1
    assert "captf.io/restore-state" not in case.annotations
    assert case.jobs("destroy") == []


def remove_cluster(case: Case) -> None:
    """The TerraformCluster is gone before the object, by force."""
    case.world.patch("TerraformCluster", "prod", {"metadata": {"finalizers": None}})
    case.world.delete("TerraformCluster", "prod")


def test_without_its_cluster_it_is_torn_down_with_the_recorded_identity(world: World) -> None:
    for kind in ("TerraformMachine", "TerraformMachinePool"):
        case = Case(world, kind)
        case.provision()
        remove_cluster(case)
        case.delete()
        assert case.reconcile() == 60
        container = case.job("destroy")["spec"]["template"]["spec"]["containers"][0]
        assert container["envFrom"] == [{"secretRef": {"name": names.credential_mirror(IDENTITY)}}]
        case.end()
        assert case.reconcile() == 0
        assert case.released
        mirror = world.client.get(SECRET, names.credential_mirror(IDENTITY), TEAM)
        assert case.uid not in [owner["uid"] for owner in mirror["metadata"]["ownerReferences"]]


def test_without_its_cluster_and_any_record_it_names_no_identity(world: World) -> None:
    case = Case(world, "TerraformMachinePool")
    case.provision()
    remove_cluster(case)
    case.remove_inputs()
    case.delete()
    assert case.reconcile() == 30
    assert case.says("ApplyJobSucceeded") == "False/IdentityNotAllowed"
    assert "names no identity" in case.message("ApplyJobSucceeded")
