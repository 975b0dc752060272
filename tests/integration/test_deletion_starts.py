"""Starting the Job of a deletion: what is prepared when, in which order, and what a stop leaves behind."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.deletion_case import Case, image_of
from tests.world import DIGEST, IDENTITY, IMAGE, RUNNER_IMAGE, TEAM, Outcome, World, secret

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.api.annotations import BLOCK_MOVE, PAUSED
from captf_controllers.api.kinds import CLUSTER, TERRAFORM_CLUSTER_IDENTITY
from captf_controllers.inputs.rendering import MAX_INPUTS_BYTES
from captf_runtime.client.errors import ApiError
from captf_runtime.objects import (
    CONFIG_MAP,
    JOB,
    LEASE,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
    annotations_of,
    format_time,
    name_of,
    uid_of,
)
from captf_runtime.testing.faults import Action, Match, error, forbidden, internal_error

MIRROR = names.credential_mirror(IDENTITY)
PINNED = f"example.com/modules/x@{DIGEST}"


def narrow_identity(world: World) -> None:
    patch: Object = {"spec": {"allowedNamespaces": {"list": ["elsewhere"], "selector": None}}}
    world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, patch)


def remove_access(world: World) -> None:
    for kind, name in ((SECRET, MIRROR), (SERVICE_ACCOUNT, "captf-runner"), (ROLE_BINDING, "captf-runner")):
        world.client.delete(kind, name, TEAM, propagation_policy="Background")


def access_created(world: World) -> list[str]:
    return [item for part in ("serviceaccounts", "rolebindings") for item in world.created(part)]


# Images


def test_a_destroy_runs_the_pinned_digest(case: Case) -> None:
    job = case.destroying()
    assert image_of(job) == PINNED
    assert job["spec"]["template"]["spec"]["initContainers"][0]["image"] == RUNNER_IMAGE
    assert "DigestUnknown" not in case.reasons()


def test_without_a_digest_the_reference_runs_and_is_told(case: Case) -> None:
    case.provision()
    for name in case.inputs_secrets:
        patch: Object = {"metadata": {"annotations": {keys.IMAGE_DIGEST: None}}}
        case.world.client.patch(SECRET, name, patch, TEAM)
    if case.kind != "TerraformMachine":
        case.spec(source={"image": "example.com/modules/x:v2"})
    case.delete()
    assert case.reconcile() == 60
    job = case.job("destroy")
    assert image_of(job) == IMAGE
    assert len(case.notes("DigestUnknown")) == 1


def waiting_for_image(case: Case, job: Object) -> None:
    """The pod of a Job waits for an image that cannot be pulled, and has done so past the grace."""
    pod = case.world.start_pod(job, phase="Pending")
    status = {
        "phase": "Pending",
        "containerStatuses": [
            {
                "name": "source",
                "image": image_of(job),
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
            }
        ],
    }
    case.world.client.patch(POD, name_of(pod), {"status": status}, TEAM, subresource="status")
    case.advance(121)


def test_an_image_that_cannot_be_pulled_gives_way_to_the_next(case: Case) -> None:
    job = case.destroying()
    waiting_for_image(case, job)
    assert case.reconcile() == 1
    assert "ImagePullFallback" in case.reasons()
    note = case.notes("ImagePullFallback")[0]
    assert PINNED in note
    assert IMAGE in note
    case.world.step()
    assert case.reconcile() == 60
    again = case.job("destroy")
    assert uid_of(again) != uid_of(job)
    assert image_of(again) == IMAGE
    assert "JobInterrupted" not in case.reasons()


def test_the_last_image_is_left_to_the_deadline_and_reported_at_once(case: Case) -> None:
    job = case.destroying()
    waiting_for_image(case, job)
    case.reconcile()
    case.world.step()
    case.reconcile()
    waiting_for_image(case, case.job("destroy"))
    assert case.reconcile() == 60
    assert case.says("ApplyJobSucceeded") == "False/ImagePullFailed"
    message = case.message("ApplyJobSucceeded")
    assert IMAGE in message
    assert "spec.deletionPolicy: Retain" in message
    assert case.job("destroy")
    assert "InfrastructureAbandoned" not in case.reasons()


# Jobs that never start


def test_a_job_without_its_secret_is_deleted_and_started_again(case: Case) -> None:
    job = case.destroying()
    case.remove_secret(names.per_run_secret(name_of(job)))
    case.advance(59)
    assert case.reconcile() == 60
    case.advance(2)
    assert case.reconcile() == 1
    assert len(case.notes("StuckJobDeleted")) == 1
    assert "activeJob" not in case.status
    case.world.step()
    assert case.reconcile() == 60
    assert uid_of(case.job("destroy")) != uid_of(job)
    assert "JobInterrupted" not in case.reasons()


def test_a_paused_object_loses_a_job_that_can_never_start_and_starts_none(case: Case) -> None:
    job = case.destroying()
    case.remove_secret(names.per_run_secret(name_of(job)))
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    case.advance(61)
    case.settle()
    assert len(case.notes("StuckJobDeleted")) == 1
    case.world.step()
    case.settle()
    assert case.jobs("destroy") == []
    assert "activeJob" not in case.status
    assert "clusterctl.cluster.x-k8s.io/block-move" not in case.annotations


# Credentials only when needed


@pytest.mark.parametrize("wait", ["held", "backoff", "dependents", "paused", "job runs"])
def test_a_pass_that_starts_nothing_prepares_nothing(world: World, wait: str) -> None:
    case = Case(world, "TerraformCluster" if wait == "dependents" else "TerraformMachine")
    case.provision()
    if wait == "held":
        case.remove_secrets(case.states())
    elif wait == "dependents":
        world.add("TerraformMachine", "m9", cluster="c1")
    elif wait == "paused":
        case.patch({"metadata": {"annotations": {PAUSED: ""}}})
    case.delete()
    if wait in ("backoff", "job runs"):
        case.reconcile()
    if wait == "backoff":
        case.end("failed")
    remove_access(world)
    narrow_identity(world)
    for _ in range(2):
        case.reconcile()
    assert access_created(world) == []
    assert not case.has_secret(MIRROR)
    assert case.says("IdentityAllowed") == "True/IdentityAllowed"
    assert "IdentityNotAllowed" not in case.reasons()


def test_a_start_prepares_everything(case: Case) -> None:
    case.provision()
    remove_access(case.world)
    case.delete()
    assert case.reconcile() == 60
    assert case.has_secret(MIRROR)
    assert case.world.exists(SERVICE_ACCOUNT, "captf-runner")
    assert case.world.exists(ROLE_BINDING, "captf-runner")


def test_a_failed_check_is_a_wait_and_no_error(case: Case) -> None:
    case.provision()
    case.delete()
    case.world.server.faults.add(
        Match(verb="get", resource="terraformclusteridentities"), error(500, "InternalError")
    )
    assert case.reconcile() == 30
    assert case.message("Deleting").startswith(
        "The destroy Job waits for its credentials: IdentityAllowed is Unknown (IdentityCheckFailed)"
    )
    case.world.server.faults.clear()
    assert case.reconcile() == 60


def test_a_local_secret_has_no_mirror_and_no_namespace_check(case: Case) -> None:
    case.add(identityRef={"kind": "Secret", "name": "mine"})
    case.world.create(SECRET, secret("mine", {"TOKEN": "t"}), TEAM)
    case.world.provision(case.kind, case.name)
    narrow_identity(case.world)
    case.delete()
    assert case.reconcile() == 60
    container = case.job("destroy")["spec"]["template"]["spec"]["containers"][0]
    assert container["envFrom"] == [{"secretRef": {"name": "mine"}}]
    case.end()
    assert case.reconcile() == 0
    assert case.released
    assert case.has_secret("mine")


def test_a_local_secret_that_is_gone(case: Case) -> None:
    case.add(identityRef={"kind": "Secret", "name": "mine"})
    case.world.create(SECRET, secret("mine", {"TOKEN": "t"}), TEAM)
    case.world.provision(case.kind, case.name)
    case.remove_secret("mine")
    case.delete()
    assert case.reconcile() == 30
    assert case.message("Deleting").startswith(
        "The destroy Job waits for its credentials: IdentityAllowed is False (SecretNotFound)"
    )
    assert case.says("ApplyJobSucceeded") == "True/ApplySucceeded"


# The order of the checks


def fill_slots(case: Case) -> None:
    case.world.restart(max_active_jobs=1)
    case.world.take_slot("somebody-elses")


def hold_lease(case: Case) -> None:
    case.world.add_job("a-holder")
    case.world.hold_run_lease(case.kind, case.name, "a-holder")


def test_a_job_slot_is_waited_for_before_anything_is_taken(case: Case) -> None:
    case.provision()
    fill_slots(case)
    case.delete()
    for _ in range(3):
        assert 15 <= case.reconcile() < 16.5
        case.advance(16)
    assert case.says("ApplyJobSucceeded") == "Unknown/WaitingForJobSlot"
    assert "spec.deletionPolicy: Retain" in case.message("ApplyJobSucceeded")
    assert len(case.notes("WaitingForJobSlot")) == 1
    assert case.own_leases() == []
    assert case.jobs("destroy") == []
    case.world.env.slots.job_gone(TEAM, "somebody-elses")
    assert case.reconcile() == 60


@pytest.mark.parametrize(
    ("first", "obstacles", "requeue", "condition"),
    [
        ("credentials", (narrow_identity,), 30, "False/IdentityNotAllowed"),
        ("slot", (), 15, "Unknown/WaitingForJobSlot"),
        ("inputs", (), 600, "False/DestroyFailed"),
    ],
)
def test_each_check_comes_before_the_next(
    machine_case: Case,
    first: str,
    obstacles: tuple[Callable[[World], None], ...],
    requeue: int,
    condition: str,
) -> None:
    case = machine_case
    case.provision()
    case.remove_inputs()
    if first != "inputs":
        fill_slots(case)
    hold_lease(case)
    for put in obstacles:
        put(case.world)
    case.delete()
    assert requeue <= case.reconcile() < requeue * 1.1 + 1
    assert case.says("ApplyJobSucceeded") == condition
    assert case.holder() == "a-holder"


def test_inputs_that_fit_no_secret(mutable_case: Case) -> None:
    case = mutable_case
    case.provision()
    case.remove_inputs()
    for part in ("a", "b"):
        data = {f"{part}{index}": "x" * 100_000 for index in range(6)}
        labels = {"captf.io/variables": "true"}
        case.world.create(CONFIG_MAP, {"metadata": {"name": part, "labels": labels}, "data": data}, TEAM)
    case.spec(variablesFrom=[{"configMapRef": {"name": part}} for part in ("a", "b")])
    case.abandon()
    case.delete()
    for _ in range(2):
        assert case.reconcile() == 600
    assert case.says("ApplyJobSucceeded") == "False/InputsTooLarge"
    message = case.message("ApplyJobSucceeded")
    assert str(MAX_INPUTS_BYTES) in message
    assert "spec.deletionPolicy: Retain" in message
    assert case.jobs("destroy") == []
    assert not case.released


def forget_jobs(case: Case) -> None:
    """As after a move: no Job of the object is left."""
    for job in case.jobs():
        case.world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
    case.settle()


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_stopped_a_destroy_is_not_told_while_it_runs(case: Case, interrupted: bool) -> None:
    case.provision()
    forget_jobs(case)
    narrow_identity(case.world)
    case.delete()
    assert case.reconcile() == 30
    told = case.reasons()
    assert case.reconcile() == 30
    assert case.says("ApplyJobSucceeded") == "False/IdentityNotAllowed"
    assert case.reasons() == told, "each pass says the same anew and makes no event of it"
    patch: Object = {"spec": {"allowedNamespaces": {"list": None, "selector": {}}}}
    case.world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, patch)
    assert case.reconcile() == 60
    assert case.says("ApplyJobSucceeded") == "Unknown/NoApplyYet"
    if interrupted:
        case.end("interrupted")
        assert case.reconcile() == 60
        assert case.says("ApplyJobSucceeded") == "Unknown/NoApplyYet"
    case.end()
    case.reconcile()
    assert case.released


def test_what_stopped_a_first_apply_is_not_told_while_it_runs(case: Case) -> None:
    case.add(jobs={"lockTimeoutSeconds": 3600, "activeDeadlineSeconds": 3600})
    case.settle()
    assert case.says("ApplyJobSucceeded") == "False/JobPolicyInvalid"
    case.spec(jobs={"lockTimeoutSeconds": 300})
    case.settle()
    case.job("apply")
    assert case.says("ApplyJobSucceeded") == "Unknown/NoApplyYet"


# Creating the Job


def test_block_move_is_there_before_the_job(case: Case) -> None:
    case.provision()
    assert BLOCK_MOVE not in case.annotations
    case.delete()
    seen: list[bool] = []

    def look(_: int) -> None:
        if case.jobs("destroy"):
            seen.append(BLOCK_MOVE in case.annotations)

    case.world.write_watch.watch(look)
    case.reconcile()
    case.world.write_watch.watch(None)
    assert seen
    assert all(seen)
    case.end()
    case.reconcile()
    assert BLOCK_MOVE not in case.annotations


def pause_object(case: Case) -> None:
    case.patch({"metadata": {"annotations": {PAUSED: ""}}})


def pause_cluster(case: Case) -> None:
    case.world.client.patch(CLUSTER, case.cluster, {"spec": {"paused": True}}, TEAM)


@pytest.mark.parametrize("pause", [pause_object, pause_cluster])
def test_a_pause_at_the_last_moment_stops_the_start(case: Case, pause: Callable[[Case], None]) -> None:
    """The pass read the object unpaused; it is paused once block-move is written."""
    case.provision()
    case.delete()

    def once_marked(_: int) -> None:
        if BLOCK_MOVE in case.annotations:
            case.world.write_watch.watch(None)
            pause(case)

    case.world.write_watch.watch(once_marked)
    assert case.reconcile() == 5
    assert case.jobs("destroy") == []
    assert case.own_leases() == []
    assert BLOCK_MOVE not in case.annotations
    assert "activeJob" not in case.status
    assert case.reconcile() == 0
    assert "Deletion waits until the object is unpaused" in case.message("Deleting")


@pytest.mark.acceptance("DJ2")
def test_a_deletion_at_the_last_moment_stops_an_apply(case: Case) -> None:
    """The pass read the object alive; it is deleted once block-move is written."""
    case.add()
    case.reconcile()

    def once_marked(_: int) -> None:
        if BLOCK_MOVE in case.annotations:
            case.world.write_watch.watch(None)
            case.delete()

    case.world.write_watch.watch(once_marked)
    assert case.reconcile() == 5
    assert case.jobs() == []
    assert case.own_leases() == []
    assert BLOCK_MOVE not in case.annotations
    assert case.reconcile() == 0
    assert case.released


def test_another_object_of_the_name_is_not_started_for_the_first(case: Case) -> None:
    """Its finalizer was stripped and it was made again while a pass was about to start its destroy."""
    case.provision()
    case.delete(keep=False)
    first = case.uid

    def once_marked(_: int) -> None:
        if BLOCK_MOVE in case.annotations:
            case.world.write_watch.watch(None)
            case.patch({"metadata": {"finalizers": None}})
            case.world.add(case.kind, case.name, cluster=case.cluster)

    case.world.write_watch.watch(once_marked)
    case.reconcile()
    assert case.uid != first
    assert case.jobs("destroy") == []
    assert case.own_leases() == []
    assert BLOCK_MOVE not in case.annotations


def next_destroy(case: Case) -> str:
    """The name that the destroy Job about to be created will have."""
    checkpoint = case.world.checkpoint()
    case.reconcile()
    name = name_of(case.job("destroy"))
    case.world.rewind(checkpoint)
    return name


def plant_job(case: Case, name: str, uid: str, *, finished: bool) -> Object:
    """A Job of that name, controlled by the object of that UID, which the caches have not shown yet."""
    labels = {
        **names.owner_labels(case.kind, case.name),
        "captf.infrastructure.cluster.x-k8s.io/op": "destroy",
    }
    job = case.world.add_job(name, **labels)
    owner = {
        "apiVersion": case.object["apiVersion"],
        "kind": case.kind,
        "name": case.name,
        "uid": uid,
        "controller": True,
    }
    case.world.client.patch(JOB, name, {"metadata": {"ownerReferences": [owner]}}, TEAM)
    if finished:
        case.world.end_job(job, succeeded=False)
    return case.world.client.get(JOB, name, TEAM)


def test_the_objects_own_running_job_is_taken(case: Case) -> None:
    case.provision()
    case.delete()
    name = next_destroy(case)
    planted = plant_job(case, name, case.uid, finished=False)
    case.world.cache.hidden.add(name)
    assert case.reconcile() == 60
    assert uid_of(case.world.client.get(JOB, name, TEAM)) == uid_of(planted)
    assert case.status["activeJob"]["name"] == name
    assert case.has_secret(names.per_run_secret(name))
    assert case.holder() == name


def test_the_objects_own_finished_job_defers_the_start(case: Case) -> None:
    case.provision()
    case.delete()
    name = next_destroy(case)
    planted = plant_job(case, name, case.uid, finished=True)
    case.world.cache.hidden.add(name)
    assert case.reconcile() == 5
    assert uid_of(case.world.client.get(JOB, name, TEAM)) == uid_of(planted)
    assert "activeJob" not in case.status


@pytest.mark.parametrize("finished", [True, False])
def test_an_earlier_objects_job_of_the_name_defers_the_start(case: Case, finished: bool) -> None:
    case.provision()
    case.delete()
    name = next_destroy(case)
    plant_job(case, name, "11111111-2222-4333-8444-555555555555", finished=finished)
    case.world.cache.hidden.add(name)
    assert case.reconcile() == 5
    assert case.world.exists(JOB, name) is not finished
    assert "activeJob" not in case.status
    assert f"The destroy Job cannot be started: Job {name} of an earlier object" in case.message("Deleting")
    assert "spec.deletionPolicy: Retain" in case.message("Deleting")
    if finished:
        case.world.cache.hidden.clear()
        assert case.reconcile() == 60
        assert case.job("destroy")


REFUSALS: list[Action] = [
    forbidden(),
    error(422, "Invalid"),
    error(400, "BadRequest"),
    error(413, "RequestEntityTooLarge"),
    error(404, "NotFound"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda action: str(action.code))
def test_a_refused_create_gives_the_leases_back(cluster_case: Case, refusal: Action) -> None:
    case = cluster_case
    case.provision()
    case.delete()
    case.world.server.faults.add(Match(verb="create", resource="jobs"), refusal)
    with pytest.raises((ApiError, ExceptionGroup)):
        case.reconcile()
    assert case.jobs("destroy") == []
    assert case.own_leases() == []
    assert not case.released
    case.world.server.faults.clear()
    assert case.reconcile() == 60


@pytest.mark.parametrize("resource", ["jobs", "leases"])
def test_a_quota_that_is_used_up_is_told_with_the_way_out(case: Case, resource: str) -> None:
    """The namespace lives, so abandon is no way out; Retain always is, and nothing waits in silence."""
    case.provision()
    case.delete()
    case.world.server.faults.add(Match(verb="create", resource=resource), forbidden("exceeded quota: team"))
    for _ in range(2):
        with pytest.raises(ApiError):
            case.reconcile()
        message = case.message("Deleting")
        assert message.startswith("The destroy Job cannot be started: ")
        assert "exceeded quota: team" in message
        assert '{"spec":{"deletionPolicy":"Retain"}}' in message
        assert "abandon" not in message
    case.spec(deletionPolicy="Retain")
    case.reconcile()
    assert case.released


def test_what_kept_a_destroy_from_starting_is_not_told_while_it_runs(case: Case) -> None:
    case.provision()
    case.delete()
    case.world.server.faults.add(Match(verb="create", resource="jobs"), forbidden("exceeded quota"), times=1)
    with pytest.raises(ApiError):
        case.reconcile()
    assert case.reconcile() == 60
    assert case.message("Deleting").startswith("The deletion waits for destroy Job ")


@pytest.mark.parametrize("committed", [True, False])
def test_a_create_of_unknown_outcome_keeps_the_leases(cluster_case: Case, committed: bool) -> None:
    case = cluster_case
    case.provision()
    case.delete()
    case.world.server.faults.add(
        Match(verb="create", resource="jobs"), internal_error(after_commit=committed), times=1
    )
    with pytest.raises((ApiError, ExceptionGroup)):
        case.reconcile()
    assert len(case.own_leases()) == 2
    assert len(case.jobs("destroy")) == committed
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 1


def test_a_refusal_with_such_a_job_about_keeps_the_leases(cluster_case: Case) -> None:
    """A quota answers before the name is looked up: the Job of an earlier try may be there."""
    case = cluster_case
    case.provision()
    case.delete()
    name = next_destroy(case)
    plant_job(case, name, case.uid, finished=False)
    case.world.cache.hidden.add(name)
    case.world.server.faults.add(Match(verb="create", resource="jobs"), forbidden("exceeded quota"))
    with pytest.raises((ApiError, ExceptionGroup)):
        case.reconcile()
    assert case.holder() == name


def test_a_job_whose_secret_was_refused_is_not_released_over(case: Case) -> None:
    """The Job exists by then: an abandon waits until it is known that it never runs."""
    case.provision()
    case.abandon()
    case.delete()
    per_run = Match(verb="create", resource="secrets")
    case.world.server.faults.add(per_run, forbidden("refused"))
    with pytest.raises((ApiError, ExceptionGroup)):
        case.reconcile()
    assert len(case.jobs("destroy")) == 1
    assert not case.released
    case.world.server.faults.clear()
    assert case.reconcile() == 60
    case.advance(61)
    assert case.reconcile() == 1
    assert len(case.notes("StuckJobDeleted")) == 1
    case.world.step()
    assert case.reconcile() == 60
    assert case.job("destroy")


def test_a_lease_that_grew_old_is_taken_again(case: Case) -> None:
    """The create comes so late that another manager could have taken the lease meanwhile."""
    case.provision()
    case.delete()

    def dawdle(_: int) -> None:
        if BLOCK_MOVE in case.annotations:
            case.world.write_watch.watch(None)
            case.advance(31)

    case.world.write_watch.watch(dawdle)
    assert case.reconcile() == 60
    lease = case.world.client.get(LEASE, names.run_lease(case.suffix), TEAM)
    taken = annotations_of(lease)[keys.LEASE_ACQUIRED_AT]
    assert taken[:19] == format_time(case.world.clock.now())[:19]


def test_a_stale_lock_is_released_by_the_destroy(case: Case) -> None:
    case.provision()
    pod = f"{names.job_name(case.kind, case.name, 'apply', 1, 'h', '')}-x7k2p"
    info = f'{{"ID":"4711","Who":"root@{pod}","Operation":"OperationTypeApply"}}'
    case.world.create(
        LEASE,
        {
            "metadata": {
                "name": names.state_lock_lease(case.suffix),
                "annotations": {"app.terraform.io/lock-info": info},
            },
            "spec": {"holderIdentity": "4711"},
        },
        TEAM,
    )
    case.delete()
    assert case.reconcile() == 60
    arguments = case.job("destroy")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--force-unlock=4711" in arguments
    assert len(case.notes("ForceUnlocked")) == 1
    assert case.says("StateReadable") == "True/StateRead"


def test_the_backstop_of_the_lease_follows_from_the_deadline(case: Case) -> None:
    case.destroying(jobs={"activeDeadlineSeconds": 1000})
    lease = case.world.client.get(LEASE, names.run_lease(case.suffix), TEAM)
    assert lease["spec"]["leaseDurationSeconds"] == 1900
    assert lease["metadata"]["labels"]["captf.io/lease"] == "run"


# Caches that lag


def test_a_job_that_the_cache_has_not_shown_is_waited_for(case: Case) -> None:
    job = case.destroying()
    case.world.cache.hidden.add(name_of(job))
    for _ in range(2):
        assert case.reconcile() == 5
    assert case.status["activeJob"]["name"] == name_of(job)
    assert BLOCK_MOVE in case.annotations
    assert case.jobs("destroy") == [case.job("destroy")]


def test_a_lease_tells_of_a_job_that_neither_cache_nor_status_know(case: Case) -> None:
    job = case.destroying()
    case.world.cache.hidden.add(name_of(job))
    case.patch({"status": {"activeJob": None}}, subresource="status")
    assert case.reconcile() == 5
    assert not case.released


# What follows


@pytest.mark.parametrize("outcome", ["failed", "deadline", "interrupted", "pull-failed"])
def test_a_restart_between_attempts_changes_nothing(case: Case, outcome: Outcome) -> None:
    case.destroying()
    case.end(outcome)
    first = case.reconcile()
    events = len(case.reasons())
    case.world.restart()
    assert case.reconcile() == first
    assert len(case.reasons()) == events
    assert len(case.jobs("destroy")) == (2 if outcome == "interrupted" else 1)


def test_the_metrics_of_a_failed_destroy_count_once(case: Case) -> None:
    case.destroying()
    case.end("failed")
    for _ in range(3):
        case.reconcile()
    counted = re.search(
        rf'captf_jobs_total{{kind="{case.kind}",op="destroy",result="failed"}} (\S+)', case.world.scrape()
    )
    assert counted is not None
    assert float(counted[1]) == 1
