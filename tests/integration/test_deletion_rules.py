"""Rules of deletion beside the acceptance rows: order, pause, foreground deletion, external management."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.belongings import (
    complete,
    cut_state,
    end_pod,
    hold_lease,
    linger,
    lose_state,
    requests,
    spoil_state,
    stored,
)
from tests.deletion_case import Case
from tests.situations import found_retained
from tests.world import IDENTITY, TEAM, Outcome, World

from captf_controllers.api import labels, names
from captf_controllers.api.kinds import CLUSTER
from captf_runtime.client.errors import ApiError
from captf_runtime.objects import (
    JOB,
    LEASE,
    ROLE_BINDING,
    SECRET,
    format_time,
    labels_of,
    name_of,
    owner_references,
)
from captf_runtime.testing.faults import Action, Match, conflict, forbidden, internal_error

FOREGROUND = "foregroundDeletion"
MANAGED_BY = "cluster.x-k8s.io/managed-by"


def counting(world: World, kind: str, *names_: str) -> None:
    """Objects of cluster c1 that have come no further than their creation."""
    for name in names_:
        world.add(kind, name, cluster="c1")


# A cluster goes last


@pytest.mark.parametrize(
    ("machines", "pools", "said"),
    [
        (["m2", "m1"], [], "2 TerraformMachine (m1, m2) of Cluster c1"),
        ([], ["p1"], "1 TerraformMachinePool (p1) of Cluster c1"),
        (
            ["m4", "m1", "m5", "m3", "m2"],
            ["p2", "p1"],
            "5 TerraformMachine (m1, m2, m3 and 2 more) and 2 TerraformMachinePool (p1, p2) of Cluster c1",
        ),
    ],
)
def test_a_cluster_names_what_it_waits_for(
    cluster_case: Case, machines: list[str], pools: list[str], said: str
) -> None:
    case = cluster_case
    case.provision()
    counting(case.world, "TerraformMachine", *machines)
    counting(case.world, "TerraformMachinePool", *pools)
    case.delete()
    assert case.reconcile() == 30
    assert case.says("DeletionBlocked") == "True/DependentsExist"
    assert case.message("DeletionBlocked").startswith(said)
    assert case.jobs("destroy") == []


def test_only_the_beginning_of_the_wait_is_an_event(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    counting(case.world, "TerraformMachine", "m1", "m2")
    case.delete()
    case.reconcile()
    blocked = [note for note in case.notes("ConditionChanged") if note.startswith("DeletionBlocked")]
    assert len(blocked) == 1
    case.world.delete("TerraformMachine", "m1")
    case.world.settle("TerraformMachine", "m1")
    assert case.reconcile() == 30
    assert "1 TerraformMachine (m2)" in case.message("DeletionBlocked")
    assert len([note for note in case.notes("ConditionChanged") if note.startswith("DeletionBlocked")]) == 1
    case.world.delete("TerraformMachine", "m2")
    case.world.settle("TerraformMachine", "m2")
    assert case.reconcile() == 60
    assert case.says("DeletionBlocked") == "False/NotBlocked"


def test_dependents_of_other_managers_and_deleting_ones_count(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    counting(case.world, "TerraformMachine", "m1")
    case.world.patch("TerraformMachine", "m1", {"metadata": {"labels": {labels.WATCH_FILTER: "theirs"}}})
    case.world.keep("TerraformMachine", "m1")
    case.world.delete("TerraformMachine", "m1")
    case.delete()
    assert case.reconcile() == 30
    case.abandon()
    case.spec(deletionPolicy="Retain")
    assert case.reconcile() == 30, "neither Retain nor abandon goes before the machines"


def test_the_name_of_a_cluster_that_is_gone_still_counts(cluster_case: Case) -> None:
    """Without its label the owner reference alone says which machines belong to it."""
    case = cluster_case
    case.provision()
    counting(case.world, "TerraformMachine", "m1")
    case.patch({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": None}}})
    case.delete()
    case.remove_owner()
    assert case.reconcile() == 30
    assert case.says("DeletionBlocked") == "True/DependentsExist"
    assert "of Cluster c1" in case.message("DeletionBlocked")
    assert case.jobs("destroy") == []


def test_machines_of_another_cluster_do_not_count(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    case.world.ensure_cluster("prod")
    case.world.add("TerraformMachine", "m1", cluster="prod")
    case.world.add("TerraformMachinePool", "p1", cluster="prod")
    case.delete()
    assert case.reconcile() == 60
    assert case.says("DeletionBlocked") == "False/NotBlocked"
    assert len(case.jobs("destroy")) == 1


def test_only_a_cluster_has_dependents(case: Case) -> None:
    case.provision()
    case.delete()
    case.reconcile()
    expected = "False/NotBlocked" if case.kind == "TerraformCluster" else ""
    assert case.says("DeletionBlocked") == expected


# Names


class LongNamed(Case):
    """An object whose name fits no label."""

    @property
    def name(self) -> str:
        return f"{self.short}{'-long' * 20}"

    @property
    def cluster(self) -> str:
        return "prod"


@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformMachinePool"])
@pytest.mark.parametrize("end", ["destroyed", "retained"])
def test_an_object_of_a_long_name_goes_as_any_other(world: World, kind: str, end: str) -> None:
    case = LongNamed(world, kind)
    case.add()
    world.settle(kind, case.name)
    (job,) = world.client.list(
        JOB, TEAM, label_selector=f"{labels.OWNER_NAME}={names.label_value(case.name)}"
    )
    world.finish_job(job)
    world.settle(kind, case.name)
    cut_state(case, 2)
    complete(case)
    kept = {name_of(item) for item in [*case.states(), *case.backups()]} | set(case.inputs_secrets)
    if end == "retained":
        case.spec(deletionPolicy="Retain")
    case.delete()
    if end == "destroyed":
        for outcome, wait in (("failed", 60), ("succeeded", 0)):
            assert case.reconcile() == 60
            running = world.client.get(JOB, case.status["activeJob"]["name"], TEAM)
            assert case.holder() == name_of(running)
            world.finish_job(running, outcome)
            assert case.reconcile() == wait
            case.advance(wait)
    else:
        assert case.reconcile() == 0
    assert case.released
    left = {name for name in kept if case.has_secret(name)}
    backups = {name_of(item) for item in case.backups()}
    assert left == (kept if end == "retained" else backups)
    assert not case.has_secret(names.plan_key_secret(kind, case.name))
    assert names.run_lease(case.suffix) not in world.leases()
    assert names.state_lock_lease(case.suffix) not in world.leases()


# No owner


def without_owner(case: Case) -> None:
    case.patch({"metadata": {"ownerReferences": None}})


def test_an_object_that_nobody_took_up_goes_at_once(case: Case) -> None:
    case.add()
    case.reconcile()
    without_owner(case)
    case.delete()
    assert case.reconcile() == 0
    assert case.released
    assert case.reasons()[-1] == "FinalizerRemoved"
    assert "no owner" in case.notes("FinalizerRemoved")[0]
    swept = [entry.verb for entry in requests(case.world) if entry.resource == "rolebindings"]
    assert swept, "the namespace is swept"
    assert f'name="{case.name}"' not in case.world.scrape()


def test_a_paused_object_without_owner_goes_at_once(case: Case) -> None:
    case.add()
    case.reconcile()
    without_owner(case)
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    case.delete()
    case.reconcile()
    assert case.released


def test_a_failed_read_of_the_state_counts_as_a_state(case: Case) -> None:
    case.add()
    case.reconcile()
    without_owner(case)
    case.delete()
    fault = case.world.server.faults.add(Match(verb="list", resource="secrets"), forbidden())
    with pytest.raises(ApiError):
        case.reconcile()
    assert not case.released
    fault.remove()
    case.reconcile()
    assert case.released


def test_an_object_without_owner_that_has_state_is_destroyed(case: Case) -> None:
    case.provision()
    without_owner(case)
    case.delete()
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 1


@pytest.mark.acceptance("HD9")
def test_an_apply_that_vanished_speaks_against_a_release(case: Case) -> None:
    """Only the status still names the Job: its Secret tells nothing, its lease is free, no state was written."""
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    without_owner(case)
    case.delete()
    case.world.client.delete(JOB, job, TEAM, propagation_policy="Background")
    case.world.step()
    case.advance(61)
    assert case.reconcile() == 60
    assert not case.released
    assert case.says("StateReadable") == "False/ApplyOutcomeUnknown"
    assert job in case.message("StateReadable")


@pytest.mark.acceptance("HD9")
def test_a_job_that_runs_speaks_against_a_release(case: Case) -> None:
    """Nothing but the Job itself tells of it: neither the status nor a lease."""
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    case.world.client.delete(LEASE, names.run_lease(case.suffix), TEAM, propagation_policy="Background")
    case.patch({"status": {"activeJob": None}}, subresource="status")
    without_owner(case)
    case.delete()
    assert case.reconcile() == 60
    assert not case.released
    assert job in case.message("Deleting")


@pytest.mark.acceptance("HD9")
def test_a_state_that_does_not_read_speaks_against_a_release(case: Case) -> None:
    """Nothing says that the object applied, and nobody can say what such a state describes."""
    case.add()
    case.reconcile()
    case.world.write_state(case.kind, case.name, payload=b"no gzip at all", cluster=case.cluster)
    without_owner(case)
    case.delete()
    assert case.reconcile() == 60
    assert not case.released
    assert case.says("StateReadable") == "False/StateCorrupt"


@pytest.mark.acceptance("HD9")
def test_a_lease_that_is_held_speaks_against_a_release(case: Case) -> None:
    """A Job that is about to be created, and of which nothing else tells yet."""
    case.add()
    case.reconcile()
    hold_lease(case, names.run_lease(case.suffix), f"captf-{case.short}-{case.name}-apply-a1-0a1b2c")
    without_owner(case)
    case.delete()
    assert case.reconcile() == 5
    assert not case.released


def test_a_cluster_without_owner_still_waits_for_its_machines(cluster_case: Case) -> None:
    case = cluster_case
    case.add()
    case.reconcile()
    counting(case.world, "TerraformMachine", "m1")
    without_owner(case)
    case.delete()
    assert case.reconcile() == 30
    assert case.says("DeletionBlocked") == "True/DependentsExist"
    blocked = [note for note in case.notes("ConditionChanged") if note.startswith("DeletionBlocked")]
    assert len(blocked) == 1, "looking at it twice must not lose the transition"


def test_an_owner_that_is_gone_or_forged_is_no_missing_owner(case: Case) -> None:
    case.provision()
    reference = case.object["metadata"]["ownerReferences"][0]
    case.patch({"metadata": {"ownerReferences": [{**reference, "uid": "forged"}]}})
    case.delete()
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 1


# Finalizers


def test_a_deleting_object_without_our_finalizer_is_left_alone(case: Case) -> None:
    case.provision()
    case.delete()
    case.patch({"metadata": {"finalizers": ["tests.example.com/keep"]}})
    case.world.server.requests.clear()
    assert case.reconcile() == 0
    assert requests(case.world, writes=True) == []
    assert f'name="{case.name}"' not in case.world.scrape()


def test_foreground_deletion_becomes_background(case: Case) -> None:
    case.provision()
    case.delete(policy="Foreground")
    assert FOREGROUND in case.object["metadata"]["finalizers"]
    assert case.reconcile() == 60
    assert FOREGROUND not in case.object["metadata"]["finalizers"]
    assert case.finalizer in case.object["metadata"]["finalizers"]
    assert len(case.jobs("destroy")) == 1, "the same pass goes on"
    case.reconcile()
    assert len(case.notes("ForegroundDeletionConverted")) == 1
    assert case.states()


def test_foreground_deletion_of_a_paused_object_is_converted_too(case: Case) -> None:
    case.provision()
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    case.settle()
    case.delete(policy="Foreground")
    assert case.reconcile() == 0
    assert FOREGROUND not in case.object["metadata"]["finalizers"]
    assert case.message("Deleting").startswith("Deletion waits until the object is unpaused")


def test_a_conflict_on_the_conversion_is_a_second(case: Case) -> None:
    case.provision()
    case.delete(policy="Foreground")
    resource = f"{case.kind.lower()}s"
    case.world.server.faults.add(Match(verb="patch", resource=resource, name=case.name), conflict(), times=1)
    assert case.reconcile() == 1
    assert case.notes("ForegroundDeletionConverted") == []
    assert case.reconcile() == 60
    assert len(case.notes("ForegroundDeletionConverted")) == 1


def test_what_the_collector_took_before_the_conversion_is_a_hold(case: Case) -> None:
    case.provision()
    case.delete(policy="Foreground")
    case.world.step()
    assert case.states() == [], "owned Secrets go at once in the foreground"
    assert case.reconcile() == 60
    assert not case.released
    assert case.says("StateReadable") == "False/StateLost"


def test_a_lost_race_for_the_finalizer_is_repeated(case: Case) -> None:
    case.destroying()
    case.end()
    resource = f"{case.kind.lower()}s"
    match = Match(verb="patch", resource=resource, name=case.name, subresource="")
    case.world.server.faults.add(match, conflict(), times=1)
    assert case.reconcile() == 1
    assert not case.released
    assert "Destroyed" not in case.reasons()
    assert case.reconcile() == 0
    assert case.released
    assert case.reasons()[-2:] == ["Destroyed", "FinalizerRemoved"]
    assert case.reasons().count("JobSucceeded") == 1


def test_a_change_that_comes_meanwhile_is_looked_at_before_the_finalizer_goes(case: Case) -> None:
    case.destroying()
    case.end()
    case.world.write_watch.watch(lambda write: case.annotate(note="late") if write == 1 else None)
    assert case.reconcile() == 1
    case.world.write_watch.watch(None)
    assert not case.released
    assert case.reconcile() == 0
    assert case.released
    assert case.annotations["captf.io/note"] == "late"


# External management


def managed_elsewhere(case: Case) -> None:
    case.patch({"metadata": {"annotations": {MANAGED_BY: "somebody"}}})


@pytest.mark.parametrize("policy", ["Destroy", "Retain"])
@pytest.mark.parametrize("state", ["readable", "lost", "unreadable"])
def test_an_externally_managed_object_is_released_with_everything_kept(
    case: Case, policy: str, state: str
) -> None:
    case.provision(deletionPolicy=policy)
    cut_state(case, 2)
    complete(case)
    {"readable": lambda _: None, "lost": lose_state, "unreadable": spoil_state}[state](case)
    managed_elsewhere(case)
    kept = {name_of(item) for item in [*case.states(), *case.backups()]} | set(case.inputs_secrets)
    jobs, uid, conditions = case.created_jobs(), case.uid, case.status["conditions"]
    case.delete()
    assert case.reconcile() == 0
    assert case.released
    assert case.created_jobs() == jobs
    for name in kept:
        secret = case.world.client.get(SECRET, name, TEAM)
        assert labels_of(secret)[labels.RETAINED_FROM_UID] == uid
        assert owner_references(secret) == []
    assert not case.has_secret(names.plan_key_secret(case.kind, case.name))
    assert case.own_leases() == []
    states = 0 if state == "lost" else 2
    (note,) = case.notes("ExternallyManagedReleased")
    assert f"kept {states} state, 1 backup and 2 inputs Secrets" in note
    assert f"captf.io/retained-from-uid={uid}" in note
    assert case.status["conditions"] == conditions, "no condition changes"
    assert not {"Destroyed", "FinalizerRemoved", "InfrastructureRetained"} & set(case.reasons())


def test_an_external_release_claims_nothing_that_an_earlier_object_retained(case: Case) -> None:
    found_retained(case)
    earlier = {labels_of(secret)["captf.io/retained-from-uid"] for secret in case.states()}
    managed_elsewhere(case)
    case.delete()
    assert case.reconcile() == 0
    assert case.released
    (note,) = case.notes("ExternallyManagedReleased")
    assert "kept 0 state, 0 backup and 0 inputs Secrets" in note
    assert {labels_of(secret)["captf.io/retained-from-uid"] for secret in case.states()} == earlier


def test_an_externally_managed_object_waits_for_its_job(case: Case) -> None:
    case.provision()
    case.delete()
    case.reconcile()
    job = case.job()
    managed_elsewhere(case)
    for _ in range(2):
        assert case.reconcile() == 30
        assert name_of(job) in case.message("Deleting")
        case.advance(30)
    case.world.cache.hidden.add(name_of(job))
    assert case.reconcile() == 30, "a Job that the cache has not shown counts too"
    assert name_of(job) in case.message("Deleting")
    case.world.cache.hidden.clear()
    linger(case, job)
    assert case.reconcile() == 30
    assert name_of(job) in case.message("Deleting")
    end_pod(case, job)
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.parametrize("shown", [True, False])
def test_an_external_release_waits_for_a_job_without_a_lease(case: Case, shown: bool) -> None:
    """Also for one that the cache has not shown, and that nothing but the status names."""
    job = name_of(case.destroying())
    managed_elsewhere(case)
    if shown:
        case.patch({"status": {"activeJob": None}}, subresource="status")
    else:
        case.world.cache.hidden.add(job)
    case.world.client.delete(LEASE, names.run_lease(case.suffix), TEAM, propagation_policy="Background")
    assert case.reconcile() == 30
    assert not case.released
    assert job in case.message("Deleting")


def test_a_conflict_on_an_external_release_is_a_second(case: Case) -> None:
    case.provision()
    managed_elsewhere(case)
    case.delete()
    resource = f"{case.kind.lower()}s"
    case.world.server.faults.add(Match(verb="patch", resource=resource, name=case.name), conflict(), times=1)
    assert case.reconcile() == 1
    assert case.notes("ExternallyManagedReleased") == []
    assert case.reconcile() == 0
    assert len(case.notes("ExternallyManagedReleased")) == 1


def test_an_external_release_sweeps_the_namespace(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    managed_elsewhere(case)
    case.delete(keep=False)
    case.reconcile()
    assert case.world.find(case.kind, case.name) is None
    assert "captf-runner" not in stored(case.world, ROLE_BINDING)


def test_a_live_externally_managed_object_is_not_touched(case: Case) -> None:
    case.provision()
    managed_elsewhere(case)
    case.world.server.requests.clear()
    assert case.reconcile() == 0
    assert requests(case.world, writes=True) == []


# Pause


def pause(case: Case, by: str) -> None:
    if by == "annotation":
        case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    else:
        case.world.client.patch(CLUSTER, case.cluster, {"spec": {"paused": True}}, TEAM)


@pytest.mark.parametrize("by", ["annotation", "Cluster"])
def test_a_pause_right_before_the_create_stops_it(case: Case, by: str) -> None:
    case.provision()
    case.delete()
    jobs = case.created_jobs()
    writes = 3 if case.kind == "TerraformCluster" else 2
    case.world.write_watch.watch(lambda write: pause(case, by) if write == writes else None)
    assert case.reconcile() == 5
    case.world.write_watch.watch(None)
    assert case.created_jobs() == jobs
    assert "clusterctl.cluster.x-k8s.io/block-move" not in case.annotations
    assert case.own_leases() == []
    assert case.reconcile() == 0
    assert case.message("Deleting").startswith("Deletion waits until the object is unpaused")


def test_a_paused_deletion_still_counts_its_job(case: Case) -> None:
    case.destroying()
    job = case.job()
    pause(case, "annotation")
    assert case.reconcile() == 0
    assert case.status["activeJob"]["name"] == name_of(job)
    assert "clusterctl.cluster.x-k8s.io/block-move" in case.annotations
    case.end()
    assert case.reconcile() == 0
    assert not case.released
    assert case.says("ApplyJobSucceeded") == "True/DestroySucceeded"
    assert "clusterctl.cluster.x-k8s.io/block-move" not in case.annotations
    assert "activeJob" not in case.status
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}})
    case.reconcile()
    case.reconcile()
    assert case.released


# What a failed destroy says


@pytest.mark.parametrize(
    ("outcome", "reason"), [("deadline", "JobDeadlineExceeded"), ("failed", "JobFailed")]
)
def test_the_event_of_a_failed_destroy_names_the_next_attempt_once(
    case: Case, outcome: Outcome, reason: str
) -> None:
    case.destroying()
    case.end(outcome)
    case.reconcile()
    (note,) = case.notes(reason)
    assert "retried not before " in note
    assert note.count(format_time(case.world.clock.now() + timedelta(seconds=60))) == 1
    assert "Next attempt" in case.message("ApplyJobSucceeded")


# A step that fails


@pytest.mark.parametrize("answer", [forbidden("policy says no"), internal_error()])
def test_a_step_that_is_refused_again_and_again_is_told(case: Case, answer: Action) -> None:
    """The destroy has succeeded; what is left of the deletion must not fail in silence."""
    case.destroying()
    case.end()
    case.world.server.faults.add(
        Match(verb="delete", resource="secrets", name=case.states()[0]["metadata"]["name"]), answer
    )
    for _ in range(2):
        with pytest.raises(ApiError):
            case.reconcile()
        assert case.message("Deleting").startswith("The deletion failed at a step and is tried again: ")
        assert str(answer.message) in case.message("Deleting")
        assert not case.released
    case.world.server.faults.clear()
    case.reconcile()
    assert case.released


def test_a_refused_step_takes_no_way_out_back(case: Case) -> None:
    case.provision()
    lose_state(case)
    case.delete()
    case.reconcile()
    case.world.server.faults.add(Match(verb="list", resource="secrets"), forbidden())
    with pytest.raises(ApiError):
        case.reconcile()
    assert "Ways out: " in case.message("StateReadable")


# Lag


def test_a_job_that_the_cache_has_not_shown_is_waited_for(case: Case) -> None:
    job = case.destroying()
    case.world.cache.hidden.add(name_of(job))
    for _ in range(2):
        assert case.reconcile() == 5
        case.advance(5)
    assert "clusterctl.cluster.x-k8s.io/block-move" in case.annotations
    assert case.status["activeJob"]["name"] == name_of(job)
    assert len(case.jobs("destroy")) == 1


def test_a_move_waits_for_the_job_though_somebody_let_it_go(case: Case) -> None:
    case.destroying()
    block_move = "clusterctl.cluster.x-k8s.io/block-move"
    case.patch({"metadata": {"annotations": {block_move: None}}})
    assert case.reconcile() == 60
    assert block_move in case.annotations


@pytest.mark.parametrize("deleting", [True, False])
def test_a_paused_object_lets_no_move_begin_while_the_cache_lags(case: Case, deleting: bool) -> None:
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    if deleting:
        case.delete()
    case.world.cache.hidden.add(job)
    assert case.reconcile() == 5
    assert "clusterctl.cluster.x-k8s.io/block-move" in case.annotations
    assert case.status["activeJob"]["name"] == job


def test_an_orphaning_deletion_leaves_no_credentials_behind(case: Case) -> None:
    """The collector takes the last owner off the mirror; a Retain, which needs no Job, never puts it back."""
    case.provision(deletionPolicy="Retain")
    mirror = names.credential_mirror(IDENTITY)
    if case.kind != "TerraformCluster":
        case.world.client.patch(SECRET, mirror, {"metadata": {"ownerReferences": None}}, TEAM)
    case.delete(policy="Orphan")
    case.world.step()
    assert case.has_secret(mirror)
    case.reconcile()
    assert case.released
    assert not case.has_secret(mirror)
    assert len(case.notes("MirrorRemoved")) == 1


@pytest.mark.acceptance("CG13")
@pytest.mark.parametrize("early", [True, False])
def test_an_orphaning_deletion_leaves_no_backups_behind(case: Case, early: bool) -> None:
    """Left behind they would make a new object of the name look like one that lost its state."""
    case.provision()
    case.delete(keep=False, policy="Orphan")
    if early:
        case.world.step()
    case.reconcile()
    case.world.step()
    case.reconcile()
    case.end()
    for _ in range(3):
        if case.world.find(case.kind, case.name) is not None:
            case.reconcile()
    assert case.world.find(case.kind, case.name) is None
    case.world.step()
    assert case.backups() == []
    case.world.add(case.kind, case.name, cluster=case.cluster)
    case.settle()
    assert case.says("StateReadable") == "Unknown/StateNotFound"


def lose_owner(case: Case, op: str) -> str:
    """The Job that runs is the object's no more, as after ``kubectl delete --cascade=orphan``; its name."""
    job = name_of(case.job(op))
    case.world.client.patch(JOB, job, {"metadata": {"ownerReferences": None}}, TEAM)
    return job


def test_an_apply_that_was_orphaned_by_the_deletion_is_counted_and_destroyed(case: Case) -> None:
    """Garbage collection takes the references off; what the apply made must not be forgotten."""
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    case.delete(policy="Orphan")
    case.world.step()
    assert owner_references(case.job("apply")) == []
    assert case.reconcile() == 5
    assert case.message("Deleting") == f"The deletion waits for apply Job {job} to end"
    assert [ref.uid for ref in owner_references(case.job("apply"))] == [case.uid]
    assert case.reconcile() == 60
    case.end()
    assert case.reconcile() == 60
    case.end()
    case.reconcile()
    assert case.released
    assert case.reasons()[-2:] == ["Destroyed", "FinalizerRemoved"]
    assert case.created_jobs()[0] == job
    assert len(case.created_jobs()) == 2


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("lost", ["owner", "label"])
def test_a_job_that_no_list_shows_is_taken_back(case: Case, ended: bool, lost: str) -> None:
    job = name_of(case.destroying())
    if ended:
        case.end()
    patch = {"ownerReferences": None} if lost == "owner" else {"labels": {labels.OWNER_NAME: None}}
    case.world.client.patch(JOB, job, {"metadata": patch}, TEAM)
    assert case.reconcile() == 5
    assert job in case.message("Deleting")
    assert case.notes("OwnerReferencesRepaired") == [f"The object owns its Job {job} again"]
    if not ended:
        assert case.reconcile() == 60
        case.end()
    case.reconcile()
    assert case.released
    assert case.created_jobs() == [job]


def test_a_paused_object_takes_its_job_back_too(case: Case) -> None:
    """Else block-move would stay for ever, and ``clusterctl move`` would wait for it."""
    case.destroying()
    lose_owner(case, "destroy")
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    assert case.reconcile() == 5
    case.end()
    assert case.reconcile() == 0
    assert "clusterctl.cluster.x-k8s.io/block-move" not in case.annotations
    assert "activeJob" not in case.status


def test_an_external_release_takes_the_job_back_that_it_waits_for(case: Case) -> None:
    case.destroying()
    job = lose_owner(case, "destroy")
    managed_elsewhere(case)
    assert case.reconcile() == 30
    assert job in case.message("Deleting")
    case.end()
    assert case.reconcile() == 0
    assert case.released


def test_a_job_of_another_object_that_the_status_names_is_not_waited_for(case: Case) -> None:
    """A status from a backup of the whole cluster may name a Job that an earlier object of the name ran."""
    case.provision()
    job = name_of(case.jobs("apply")[0])
    mine = case.world.client.get(JOB, job, TEAM)["metadata"]["ownerReferences"]
    earlier = [{**mine[0], "uid": "00000000-0000-4000-8000-000000000000"}]
    case.world.client.patch(JOB, job, {"metadata": {"ownerReferences": earlier}}, TEAM)
    active = {"name": job, "operation": "apply", "attempt": 1}
    case.patch({"status": {"activeJob": active}}, subresource="status")
    case.delete()
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 1


def test_a_finished_cleanup_is_resumed_when_its_job_is_gone(case: Case) -> None:
    case.destroying()
    case.end()
    match = Match(verb="patch", resource=f"{case.kind.lower()}s", name=case.name, subresource="")
    case.world.server.faults.add(match, internal_error(), times=1)
    with pytest.raises(ApiError):
        case.reconcile()
    assert case.states() == []
    for job in case.jobs():
        case.world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
    case.advance(61)
    case.reconcile()
    assert case.released
    assert case.reasons()[-2:] == ["Destroyed", "FinalizerRemoved"]


def test_a_lease_of_an_object_that_is_gone_holds_nothing_back(case: Case) -> None:
    """A stripped object's run lease is taken over once its holder is proven gone."""
    case.provision()
    hold_lease(case, names.run_lease(case.suffix), "captf-gone-destroy-a1-000000")
    case.delete()
    assert case.reconcile() == 30
    assert case.says("ApplyJobSucceeded") == "Unknown/WaitingForRunLease"
    case.advance(61)
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 1
