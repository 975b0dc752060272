"""The acceptance rows of cleanup and garbage collection, each as a user would see it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.belongings import (
    MIRROR,
    RUNNER,
    complete,
    cut_state,
    deleted,
    end_pod,
    force_gone,
    hold_lease,
    kept_for,
    linger,
    lose_state,
    mirror_owners,
    requests,
    runner_objects,
    stored,
)
from tests.deletion_case import Case
from tests.world import IDENTITY, KINDS, OPERATOR, TEAM, World, secret

from captf_controllers.api import labels, names
from captf_controllers.api.kinds import CLUSTER, TERRAFORM_CLUSTER_IDENTITY, TERRAFORM_MACHINE_TEMPLATE
from captf_controllers.cli.sweeper import Sweeper
from captf_controllers.identity.sweep import sweep_all
from captf_runtime.client import Client
from captf_runtime.client.errors import ApiError
from captf_runtime.election import ElectionTimes
from captf_runtime.manager import LeaderElectionConfig, Manager
from captf_runtime.objects import (
    CONFIG_MAP,
    JOB,
    LEASE,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
    Object,
    labels_of,
    name_of,
    owner_references,
)
from captf_runtime.testing.faults import Match, conflict, error, forbidden, internal_error
from captf_runtime.testing.waiting import eventually

RELEASES = {
    "Destroyed",
    "FinalizerRemoved",
    "InfrastructureAbandoned",
    "InfrastructureRetained",
    "MirrorRemoved",
}


def end_by_destroy(case: Case) -> None:
    """Delete the provisioned object and let its destroy succeed; cleanup is due."""
    case.delete()
    assert case.reconcile() == 60
    complete(case)
    case.end()


def end_by_abandon(case: Case) -> None:
    """Delete the provisioned object without its state and abandon it; cleanup is due."""
    complete(case)
    lose_state(case)
    case.delete()
    assert case.reconcile() == 60
    case.abandon()


def never_applied(case: Case) -> None:
    """An object whose first apply stopped before it changed anything; it has inputs, a plan key, no state."""
    case.add()
    case.settle()
    case.end("failed", steps=("init",))
    case.settle()
    complete(case)


def releases(case: Case) -> list[str]:
    """The release events of the object, in order."""
    return [reason for reason in case.reasons() if reason in RELEASES]


def records(case: Case) -> set[str]:
    return {*case.inputs_secrets, names.plan_key_secret(case.kind, case.name)}


# Who removes what


@pytest.mark.acceptance("CG1")
def test_after_a_destroy_only_collected_things_are_left(case: Case) -> None:
    case.provision()
    complete(case)
    end_by_destroy(case)
    assert case.reconcile() == 0
    left = kept_for(case)
    assert {item.partition("/")[0] for item in left} == {"Secret", "Job", "Pod"}
    secrets = {item for item in left if item.startswith("Secret/")}
    assert secrets == {f"Secret/{name_of(backup)}" for backup in case.backups()} != set()
    force_gone(case)
    case.world.step()
    assert kept_for(case) == set()


@pytest.mark.acceptance("CG1")
def test_a_stripped_finalizer_leaves_the_rest_to_the_collector(case: Case) -> None:
    case.provision()
    complete(case)
    hold_lease(case, names.run_lease(case.suffix), "captf-x")
    case.delete(keep=False)
    force_gone(case)
    case.world.step()
    assert kept_for(case) == {
        f"Lease/{names.run_lease(case.suffix)}",
        f"Lease/{names.state_lock_lease(case.suffix)}",
    }
    assert {"ServiceAccount/captf-runner", "RoleBinding/captf-runner"} <= runner_objects(case.world)
    assert deleted(case.world) == deleted(case.world, "leases") == []


@pytest.mark.acceptance("CG1")
def test_the_last_object_of_a_namespace_takes_everything_with_it(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    case.delete(keep=False)
    case.reconcile()
    complete(case)
    case.end()
    case.reconcile()
    assert case.world.find(case.kind, case.name) is None
    case.world.step()
    sweep_all(case.world.manager_client)
    assert kept_for(case) == set()
    assert mirror_owners(case.world) is None
    assert {f"ServiceAccount/{RUNNER}", f"RoleBinding/{RUNNER}"}.isdisjoint(runner_objects(case.world))


@pytest.mark.acceptance("CG2")
@pytest.mark.parametrize("end", ["destroyed", "nothing to destroy", "abandoned"])
def test_cleanup_runs_after_a_destroy_with_nothing_to_destroy_and_on_abandon(case: Case, end: str) -> None:
    if end == "nothing to destroy":
        never_applied(case)
        case.delete()
    else:
        case.provision()
        (end_by_destroy if end == "destroyed" else end_by_abandon)(case)
    assert case.name in (mirror_owners(case.world) or [])
    if end != "destroyed":
        hold_lease(case, names.run_lease(case.suffix), "captf-dead")
        case.advance(61)
    case.reconcile()
    assert case.released
    assert case.states() == []
    assert not records(case) & stored(case.world, SECRET)
    assert case.own_leases() == []
    assert names.state_lock_lease(case.suffix) not in case.world.leases()
    assert case.name not in (mirror_owners(case.world) or [])


@pytest.mark.acceptance("CG2")
def test_every_other_end_keeps_the_state(case: Case) -> None:
    case.provision()
    complete(case)
    case.delete()
    case.reconcile()
    case.end("failed")
    case.reconcile()
    case.spec(deletionPolicy="Retain")
    case.reconcile()
    assert case.released
    assert len(case.states()) == 1
    assert not [name for name in deleted(case.world) if name.startswith("tfstate-")]
    # A later object of the name finds the retained Secrets and leaves them on its own way out.
    force_gone(case)
    case.world.step()
    case.world.add(case.kind, case.name, cluster=case.cluster)
    case.settle()
    case.delete()
    case.reconcile()
    assert case.released
    assert len(case.states()) == 1
    assert not [name for name in deleted(case.world) if name.startswith("tfstate-")]


@pytest.mark.acceptance("CG3")
def test_a_failed_destroy_leaves_every_chunk(case: Case) -> None:
    case.provision()
    chunks = cut_state(case)
    case.delete()
    assert case.reconcile() == 60
    case.end("failed")
    assert case.reconcile() == 60
    assert [name_of(item) for item in case.states()] == chunks
    assert not case.released


@pytest.mark.acceptance("CG3")
def test_a_state_without_resources_is_destroyed_like_any_other(case: Case) -> None:
    case.provision()
    case.world.write_state(case.kind, case.name, resources=0, cluster=case.cluster)
    case.delete()
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 1
    assert case.has_secret(names.state_secret(case.suffix))
    case.end()
    case.reconcile()
    assert case.released


@pytest.mark.acceptance("CG4")
def test_cleanup_waits_for_a_live_run_lease(case: Case) -> None:
    case.provision()
    complete(case)
    case.delete()
    case.reconcile()
    job = case.job()
    linger(case, job)
    case.world.write_state(case.kind, case.name, resources=0, cluster=case.cluster)
    case.world.server.requests.clear()
    for _ in range(3):
        assert case.reconcile() == 5
        assert name_of(job) in case.message("Deleting")
        assert not case.released
        case.advance(5)
    assert set(deleted(case.world)) <= {names.per_run_secret(name_of(job))}
    assert names.state_lock_lease(case.suffix) not in deleted(case.world, "leases")
    end_pod(case, job)
    assert case.reconcile() == 0
    assert case.released
    assert "Lease" not in {item.partition("/")[0] for item in kept_for(case)}


# The steps


@pytest.mark.acceptance("CG5")
def test_state_goes_chunk_by_chunk_and_then_the_lock(case: Case) -> None:
    case.provision()
    chunks = cut_state(case)
    end_by_destroy(case)
    # The destroy emptied the base Secret; what it could not delete of the old chunks is still there.
    assert [name_of(item) for item in case.states()] == chunks
    case.world.server.requests.clear()
    case.reconcile()
    writes = [
        entry.name
        for entry in requests(case.world, verb="delete")
        if entry.name in {*chunks, names.state_lock_lease(case.suffix)}
    ]
    assert writes == [*chunks, names.state_lock_lease(case.suffix)]
    assert requests(case.world, verb="deletecollection") == []


@pytest.fixture(scope="module")
def restricted_world() -> Iterator[World]:
    """A world whose manager may do what the shipped ClusterRole allows, and nothing else."""
    with World(shipped_role=True) as made:
        yield made


@pytest.mark.acceptance("CG5")
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("end", ["destroyed", "abandoned", "retained", "adopted and destroyed"])
def test_the_shipped_role_suffices_for_every_end(restricted_world: World, kind: str, end: str) -> None:
    restricted_world.stage("the beginning", lambda: None)
    case = Case(restricted_world, kind)
    case.provision()
    cut_state(case)
    complete(case)
    if end == "destroyed":
        end_by_destroy(case)
    elif end == "abandoned":
        end_by_abandon(case)
    else:
        case.spec(deletionPolicy="Retain")
        case.delete(keep=False)
    case.reconcile()
    if end == "adopted and destroyed":
        case.world.add(case.kind, case.name, cluster=case.cluster, adoptRetainedState=True)
        case.settle()
        case.settle()
        end_by_destroy(case)
        case.reconcile()
    assert case.released
    refused = [entry for entry in case.world.server.requests if entry.code == 403]
    assert refused == []
    assert requests(case.world, verb="deletecollection") == []


@pytest.mark.acceptance("CG6")
def test_a_destroy_only_empties_the_state(case: Case) -> None:
    case.provision()
    end_by_destroy(case)
    case.world.restart()
    base = names.state_secret(case.suffix)
    assert case.has_secret(base)
    assert case.world.serial(case.kind, case.name) == 2
    case.reconcile()
    assert not case.has_secret(base)


@pytest.mark.acceptance("CG7")
def test_inputs_and_plan_key_go_while_the_object_is_still_there(case: Case) -> None:
    case.provision()
    complete(case)
    assert records(case) <= stored(case.world, SECRET)
    end_by_destroy(case)
    case.world.server.requests.clear()
    case.reconcile()
    assert case.object
    assert not records(case) & stored(case.world, SECRET)
    order = [name for name in deleted(case.world) if name in records(case)]
    assert order == [*case.inputs_secrets, names.plan_key_secret(case.kind, case.name)]


@pytest.mark.acceptance("CG8")
def test_leases_under_the_owner_labels_go_whoever_holds_them(case: Case) -> None:
    case.provision()
    other = names.run_lease("0000000000000000-m")
    hold_lease(case, other, "captf-m-other-apply-a1-000000", kind="TerraformMachine", named="other")
    end_by_destroy(case)
    case.reconcile()
    assert case.released
    assert case.own_leases() == []
    assert other in case.world.leases()


@pytest.mark.acceptance("CG8")
def test_leases_of_a_dead_holder_go_with_the_cluster(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    end_by_destroy(case)
    case.world.client.delete(LEASE, names.run_lease(case.suffix), TEAM, propagation_policy="Background")
    case.world.client.delete(
        LEASE, names.cluster_lease(TEAM, case.cluster), TEAM, propagation_policy="Background"
    )
    hold_lease(case, names.run_lease(case.suffix), "captf-c-c1-destroy-a9-dead00")
    hold_lease(case, names.cluster_lease(TEAM, case.cluster), "captf-c-c1-apply-a9-dead00", which="cluster")
    case.advance(61)
    case.reconcile()
    assert case.released
    assert case.own_leases() == []


@pytest.mark.acceptance("CG10")
@pytest.mark.parametrize("step", ["state", "lock", "inputs", "run lease"])
def test_what_goes_meanwhile_stops_no_step(case: Case, step: str) -> None:
    case.provision()
    end_by_abandon(case)
    case.world.write_state(case.kind, case.name, payload=b"broken", cluster=case.cluster)
    hold_lease(case, names.run_lease(case.suffix), "captf-dead")
    case.advance(61)
    resource, name = {
        "state": ("secrets", names.state_secret(case.suffix)),
        "lock": ("leases", names.state_lock_lease(case.suffix)),
        "inputs": ("secrets", case.inputs_secrets[0]),
        "run lease": ("leases", names.run_lease(case.suffix)),
    }[step]
    case.world.server.faults.add(
        Match(verb="delete", resource=resource, name=name), error(404, "NotFound"), times=1
    )
    assert case.reconcile() == 0
    assert case.released
    assert releases(case)[-1] == "InfrastructureAbandoned"


class Namesake(Case):
    """An object that is called as its TerraformCluster is."""

    @property
    def name(self) -> str:
        return "prod"


def everything_of_others(case: Case) -> dict[str, str]:
    """What is in the namespace and not this object's, with its versions; the mirror is everybody's."""
    own = {*kept_for(case), f"Secret/{MIRROR}"}
    found = {}
    for kind in (SECRET, LEASE, JOB):
        for item in case.world.client.list(kind, TEAM).items:
            if f"{kind.kind}/{name_of(item)}" not in own:
                found[f"{kind.kind}/{name_of(item)}"] = item["metadata"]["resourceVersion"]
    return found


@pytest.mark.acceptance("CG8")
@pytest.mark.parametrize("end", ["destroyed", "abandoned", "retained"])
@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformMachinePool"])
def test_objects_of_its_name_and_of_another_kind_keep_everything(world: World, kind: str, end: str) -> None:
    every = [Namesake(world, each) for each in sorted(KINDS)]
    for each in every:
        world.provisioned(each.kind, each.name)
        complete(each)
        hold_lease(each, names.run_lease(each.suffix), "captf-dead")
    world.advance(61)
    case = Namesake(world, kind)
    before = everything_of_others(case)
    assert len({name for name in before if name.startswith("Lease/")}) == 4, "the others' locks and leases"
    if end == "retained":
        case.spec(deletionPolicy="Retain")
        case.delete()
    else:
        (end_by_destroy if end == "destroyed" else end_by_abandon)(case)
    assert case.reconcile() == 0
    assert case.released
    assert case.own_leases() == []
    assert everything_of_others(case) == before


@pytest.mark.acceptance("CG9")
def test_the_last_user_of_the_mirror_takes_it_along(world: World) -> None:
    for name in ("m1", "m2"):
        world.provisioned("TerraformMachine", name)
    world.delete("TerraformMachine", "m1")
    _destroy(world, "TerraformMachine", "m1")
    assert mirror_owners(world) == ["m2", "prod"]
    world.delete("TerraformMachine", "m2")
    _destroy(world, "TerraformMachine", "m2")
    assert mirror_owners(world) == ["prod"]
    assert world.events.of("MirrorRemoved") == []
    world.delete("TerraformCluster", "prod")
    _destroy(world, "TerraformCluster", "prod")
    assert mirror_owners(world) is None
    removed = world.events.of("MirrorRemoved")
    assert [(event["name"], event["type"]) for event in removed] == [("prod", "Normal")]
    assert MIRROR in removed[0]["note"]
    assert world.events.reasons("prod")[-4:] == [
        "MirrorRemoved",
        "JobSucceeded",
        "Destroyed",
        "FinalizerRemoved",
    ]


@pytest.mark.acceptance("CG9")
def test_the_end_of_the_mirror_is_told_though_the_finalizer_stays(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    end_by_destroy(case)
    for verb in ("patch", "update"):
        case.world.server.faults.add(
            Match(verb=verb, resource="terraformclusters", name=case.name), internal_error(), times=2
        )
    for _ in range(2):
        with pytest.raises((ApiError, ExceptionGroup)):
            case.reconcile()
    assert not case.released
    assert mirror_owners(case.world) is None
    case.world.server.faults.clear()
    case.reconcile()
    assert case.released
    assert len(case.notes("MirrorRemoved")) == 1
    assert releases(case)[-2:] == ["Destroyed", "FinalizerRemoved"]


@pytest.mark.acceptance("CG9")
def test_a_conflict_on_the_mirror_is_a_quiet_wait(case: Case) -> None:
    case.provision()
    end_by_destroy(case)
    case.world.server.faults.add(
        Match(verb="patch,delete", resource="secrets", name=MIRROR), conflict(), times=1
    )
    assert case.reconcile() == 5
    assert not case.released
    assert releases(case) == []
    case.reconcile()
    assert case.released


STEPS = ["chunk", "lock", "durable", "applied", "plan key", "run lease", "mirror", "finalizer"]


@pytest.mark.acceptance("CG10")
@pytest.mark.parametrize("step", STEPS)
def test_a_refused_step_stops_the_later_ones_until_it_works(case: Case, step: str) -> None:
    case.provision()
    end_by_abandon(case)
    case.world.write_state(case.kind, case.name, payload=b"broken", cluster=case.cluster)
    hold_lease(case, names.run_lease(case.suffix), "captf-dead")
    case.advance(61)
    targets: dict[str, tuple[str, str, str]] = {
        "chunk": ("delete", "secrets", names.state_secret(case.suffix)),
        "lock": ("delete", "leases", names.state_lock_lease(case.suffix)),
        "durable": ("delete", "secrets", case.inputs_secrets[0]),
        "applied": ("delete", "secrets", case.inputs_secrets[1]),
        "plan key": ("delete", "secrets", names.plan_key_secret(case.kind, case.name)),
        "run lease": ("delete", "leases", names.run_lease(case.suffix)),
        "mirror": ("patch,delete", "secrets", MIRROR),
        "finalizer": ("patch", f"{case.kind.lower()}s", case.name),
    }
    verb, resource, name = targets[step]
    case.world.server.faults.add(
        Match(verb=verb, resource=resource, name=name, subresource=""), forbidden(), times=1
    )
    with pytest.raises(ApiError):
        case.reconcile()
    assert not case.released
    done = {key: name not in _all_names(case) for key, (_, _, name) in targets.items() if key in STEPS[:6]}
    for later in STEPS[: STEPS.index(step)]:
        assert done.get(later, True), later
    for later in STEPS[STEPS.index(step) : 6]:
        assert not done[later], later
    assert (case.name in (mirror_owners(case.world) or [])) == (step != "finalizer")
    assert set(releases(case)) <= {"MirrorRemoved"}, "which has happened, whatever becomes of the finalizer"
    case.reconcile()
    assert case.released
    assert all(name not in _all_names(case) for key, (_, _, name) in targets.items() if key in STEPS[:6])
    assert [reason for reason in releases(case) if reason != "MirrorRemoved"] == ["InfrastructureAbandoned"]


@pytest.mark.acceptance("CG10")
def test_the_finalizer_goes_in_the_pass_that_writes_the_last_conditions(case: Case) -> None:
    case.provision()
    end_by_destroy(case)
    case.world.server.requests.clear()
    case.reconcile()
    assert case.released
    assert case.says("ApplyJobSucceeded") == "True/DestroySucceeded"
    assert case.says("Deleting") == "True/Deleting"
    resource = f"{case.kind.lower()}s"
    own = [entry for entry in requests(case.world, writes=True) if entry.resource == resource]
    assert [entry.subresource for entry in own] == ["status", ""], "a pass cut short is repeated"


# What is said and measured


@pytest.mark.acceptance("CG11")
@pytest.mark.parametrize("lost_patch", [False, True])
@pytest.mark.parametrize("end", ["destroyed", "nothing to destroy", "abandoned"])
def test_each_end_reports_exactly_its_own_events(case: Case, end: str, lost_patch: bool) -> None:
    if end == "nothing to destroy":
        never_applied(case)
        case.delete()
    else:
        case.provision()
        (end_by_destroy if end == "destroyed" else end_by_abandon)(case)
    if lost_patch:
        resource = f"{case.kind.lower()}s"
        case.world.server.faults.add(
            Match(verb="patch", resource=resource, name=case.name, subresource=""), internal_error(), times=1
        )
        with pytest.raises(ApiError):
            case.reconcile()
        assert not case.released
        assert set(releases(case)) <= {"MirrorRemoved"}
    case.reconcile()
    case.reconcile()
    assert case.released
    expected = {
        "destroyed": ["Destroyed", "FinalizerRemoved"],
        "nothing to destroy": ["FinalizerRemoved"],
        "abandoned": ["InfrastructureAbandoned"],
    }[end]
    assert [reason for reason in releases(case) if reason != "MirrorRemoved"] == expected
    if end == "destroyed":
        assert case.notes("Destroyed") == ["Infrastructure destroyed; state and inputs removed"]
    if end == "abandoned":
        assert case.world.events.of("InfrastructureAbandoned", case.name)[0]["type"] == "Warning"
    for reason in expected[-1:]:
        assert case.finalizer in case.notes(reason)[0]


@pytest.mark.acceptance("CG12")
@pytest.mark.parametrize("end", ["destroyed", "abandoned", "retained", "gone"])
def test_the_objects_series_end_with_the_finalizer(case: Case, end: str) -> None:
    case.provision()
    case.settle()
    mine = f'name="{case.name}"'
    assert mine in case.world.scrape()
    if end == "gone":
        case.delete(keep=False)
        force_gone(case)
    elif end == "retained":
        case.spec(deletionPolicy="Retain")
        case.delete()
    else:
        (end_by_destroy if end == "destroyed" else end_by_abandon)(case)
    case.reconcile()
    assert mine not in case.world.scrape()
    case.reconcile()
    assert mine not in case.world.scrape()


# Garbage collection


@pytest.mark.acceptance("CG13")
@pytest.mark.parametrize("end", ["destroyed", "abandoned"])
def test_backups_are_left_to_the_collector(case: Case, end: str) -> None:
    case.provision()
    backups = [name_of(backup) for backup in case.backups()]
    assert backups
    for backup in case.backups():
        (reference,) = owner_references(backup)
        assert (reference.name, reference.uid, reference.controller) == (case.name, case.uid, False)
    (end_by_destroy if end == "destroyed" else end_by_abandon)(case)
    assert [name_of(backup) for backup in case.backups()] == backups, "a hold keeps them"
    case.reconcile()
    assert case.released
    case.world.step()
    assert [name_of(backup) for backup in case.backups()] == backups
    assert not set(deleted(case.world)) & set(backups)
    force_gone(case)
    case.world.step()
    assert case.backups() == []


@pytest.mark.acceptance("CG13")
def test_no_backup_is_taken_or_pruned_while_deleting(case: Case) -> None:
    """A destroy that stopped half-way wrote the state; what was there before it is the way back."""
    case.provision()
    backups = {name_of(backup): backup["metadata"]["resourceVersion"] for backup in case.backups()}
    case.delete()
    assert case.reconcile() == 60
    case.world.write_state(case.kind, case.name, resources=1, cluster=case.cluster)
    case.end("failed")
    assert case.reconcile() == 60
    assert {name_of(item): item["metadata"]["resourceVersion"] for item in case.backups()} == backups


@pytest.mark.acceptance("CG14")
def test_jobs_go_with_the_object_and_earlier_by_the_history_limits(cluster_case: Case) -> None:
    case = cluster_case
    limits = {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}
    case.provision(jobs=limits)
    for image in ("v2", "v3"):
        case.spec(source={"image": f"example.com/modules/x:{image}"})
        case.settle()
        case.end("failed")
        case.settle()
        case.advance(601)
        case.settle()
        case.end()
        case.settle()
    finished = case.jobs("apply")
    assert len(finished) == 2
    for job in finished:
        (reference,) = owner_references(job)
        assert (reference.uid, reference.controller) == (case.uid, True)
    case.spec(deletionPolicy="Retain")
    case.delete(keep=False)
    case.reconcile()
    case.world.step()
    assert case.world.find(case.kind, case.name) is None
    assert case.jobs() == []
    assert stored(case.world, POD) == set()


@pytest.mark.acceptance("CG15")
def test_a_per_run_secret_is_its_jobs_and_goes_when_that_is_counted(case: Case) -> None:
    case.provision()
    case.delete()
    case.reconcile()
    job = case.job()
    name = names.per_run_secret(name_of(job))
    run = case.world.client.get(SECRET, name, TEAM)
    (reference,) = owner_references(run)
    assert (reference.kind, reference.name, reference.uid) == ("Job", name_of(job), job["metadata"]["uid"])
    case.end("failed")
    assert case.has_secret(name)
    case.reconcile()
    marked = case.world.client.get(JOB, name_of(job), TEAM)
    assert marked["metadata"]["annotations"]["captf.io/bookkept"] == "true"
    assert not case.has_secret(name)


@pytest.mark.acceptance("CG15")
def test_a_per_run_secret_that_was_never_counted_goes_with_its_job(case: Case) -> None:
    case.provision()
    case.delete(keep=False)
    case.reconcile()
    name = names.per_run_secret(name_of(case.job()))
    force_gone(case)
    case.world.step()
    assert not case.has_secret(name)
    assert name not in deleted(case.world)


@pytest.mark.acceptance("CG16")
def test_leftovers_are_collected_after_a_stripped_finalizer(case: Case) -> None:
    case.provision()
    cut_state(case)
    complete(case)
    case.delete(keep=False)
    force_gone(case)
    case.world.server.requests.clear()
    assert case.reconcile() == 0
    assert case.states()
    case.world.step()
    assert case.states() == []
    assert not records(case) & stored(case.world, SECRET)
    assert deleted(case.world) == []
    assert releases(case) == []


@pytest.mark.acceptance("CG17")
def test_references_never_delay_the_owner(case: Case) -> None:
    case.provision()
    complete(case)
    case.delete(keep=False)
    case.reconcile()
    for kind in (SECRET, JOB, LEASE, POD):
        for item in case.world.client.list(kind, TEAM).items:
            for reference in owner_references(item):
                if reference.kind.startswith("Terraform") or item["kind"] == "Secret":
                    assert reference.block_owner_deletion is not True, name_of(item)
    case.end()
    case.reconcile()
    assert case.world.find(case.kind, case.name) is None
    assert case.backups(), "the object is gone before what it owns"


@pytest.mark.acceptance("CG18")
@pytest.mark.parametrize("end", ["abandoned", "stripped"])
def test_no_job_touches_the_infrastructure_after_an_abandon_or_a_stripped_finalizer(
    case: Case, end: str
) -> None:
    case.provision()
    jobs = case.created_jobs()
    if end == "abandoned":
        end_by_abandon(case)
        case.reconcile()
    else:
        case.delete(keep=False)
        force_gone(case)
        case.reconcile()
    assert case.released
    assert case.created_jobs() == jobs


@pytest.mark.acceptance("CG19")
@pytest.mark.parametrize("end", ["destroyed", "abandoned", "retained", "nothing to destroy", "stripped"])
def test_what_is_not_captfs_is_never_touched(case: Case, end: str) -> None:
    world = case.world
    sources = [
        (SECRET, f"{IDENTITY}-credentials", OPERATOR),
        (TERRAFORM_CLUSTER_IDENTITY, IDENTITY, ""),
        (SECRET, "tuning", TEAM),
        (CONFIG_MAP, "sizes", TEAM),
        (CLUSTER, case.cluster, TEAM),
    ]
    marked = {"captf.io/variables": "true"}
    if case.kind != "TerraformCluster":
        world.stage("a cluster", world.ensure_cluster)
    tuning = secret("tuning", {"size": "s"})
    tuning["metadata"]["labels"] = marked
    world.create(SECRET, tuning, TEAM)
    world.create(CONFIG_MAP, {"metadata": {"name": "sizes", "labels": marked}, "data": {"zone": "a"}}, TEAM)
    variables = [{"secretRef": {"name": "tuning"}}, {"configMapRef": {"name": "sizes"}}]
    world.add(case.kind, case.name, cluster=case.cluster, variablesFrom=variables)
    versions = [_version(world, *source) for source in sources]
    if end == "nothing to destroy":
        case.settle()
        case.end("failed", steps=("init",))
        case.settle()
        case.delete()
    else:
        world.provision(case.kind, case.name)
        if end == "destroyed":
            end_by_destroy(case)
        elif end == "abandoned":
            end_by_abandon(case)
        elif end == "retained":
            case.spec(deletionPolicy="Retain")
            case.delete()
        else:
            case.delete(keep=False)
    if end == "stripped":
        force_gone(case)
    case.reconcile()
    assert case.released
    if world.find(case.kind, case.name) is not None:
        force_gone(case)
    world.step()
    sweep_all(world.manager_client)
    assert [_version(world, *source) for source in sources] == versions


# The sweep


@pytest.mark.acceptance("CG20")
def test_what_others_use_stays(world: World) -> None:
    for name in ("m1", "m2"):
        world.provisioned("TerraformMachine", name)
    world.delete("TerraformMachine", "m1")
    _destroy(world, "TerraformMachine", "m1")
    assert world.find("TerraformMachine", "m1") is None
    sweep_all(world.manager_client)
    assert {f"ServiceAccount/{RUNNER}", f"RoleBinding/{RUNNER}"} <= runner_objects(world)
    assert mirror_owners(world) == ["m2", "prod"]


@pytest.mark.acceptance("CG21")
def test_a_sweep_follows_the_removal_of_a_finalizer(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    case.delete(keep=False)
    case.reconcile()
    case.end()
    case.world.server.requests.clear()
    case.reconcile()
    log = requests(case.world)
    removal = next(
        index
        for index, entry in enumerate(log)
        if (entry.verb, entry.resource, entry.subresource) == ("patch", "terraformclusters", "")
    )
    swept = [(entry.verb, entry.resource) for entry in log[removal + 1 :]]
    for resource in ("terraformclusters", "terraformmachines", "terraformmachinepools"):
        assert ("list", resource) in swept
    assert ("list", "rolebindings") in swept
    assert {f"ServiceAccount/{RUNNER}", f"RoleBinding/{RUNNER}"}.isdisjoint(runner_objects(case.world))


@pytest.mark.acceptance("CG22")
def test_an_empty_namespace_loses_what_is_managed_and_nothing_else(world: World) -> None:
    managed = {labels.MANAGED: "true"}
    for name, kind_labels in (("ours", managed), ("theirs", {}), ("half", {labels.MANAGED: "false"})):
        world.create(SERVICE_ACCOUNT, {"metadata": {"name": name, "labels": kind_labels}}, TEAM)
        world.create(ROLE_BINDING, _binding(name, kind_labels, []), TEAM)
        world.create(LEASE, {"metadata": {"name": name, "labels": kind_labels}, "spec": {}}, TEAM)
    template = {
        "metadata": {"name": "template"},
        "spec": {"template": {"spec": {"source": {"image": "example.com/modules/x:v1"}}}},
    }
    world.create(TERRAFORM_MACHINE_TEMPLATE, template, TEAM)
    sweep_all(world.manager_client)
    for kind in (SERVICE_ACCOUNT, ROLE_BINDING, LEASE):
        names_left = stored(world, kind)
        assert "ours" not in names_left
        assert {"theirs", "half"} <= names_left
    # A cluster, machine or pool keeps what the template did not.
    world.create(SERVICE_ACCOUNT, {"metadata": {"name": "ours", "labels": managed}}, TEAM)
    world.add("TerraformMachine", "m1")
    sweep_all(world.manager_client)
    assert "ours" in stored(world, SERVICE_ACCOUNT)


@pytest.mark.acceptance("CG23")
def test_a_used_namespace_loses_only_the_accounts_that_nobody_runs_as(world: World) -> None:
    for name in ("sa-old", "sa-new"):
        account = {"metadata": {"name": name, "labels": {"captf.io/runner": "true"}}}
        world.create(SERVICE_ACCOUNT, account, TEAM)
    world.add("TerraformCluster", "prod", jobs={"serviceAccountName": "sa-old"})
    world.settle("TerraformCluster", "prod")
    job = world.running_job("prod")
    world.patch("TerraformCluster", "prod", {"spec": {"jobs": {"serviceAccountName": "sa-new"}}})
    binding = world.client.get(ROLE_BINDING, RUNNER, TEAM)
    subjects = [
        *(
            {"kind": "ServiceAccount", "name": name, "namespace": TEAM}
            for name in (RUNNER, "sa-old", "sa-new")
        ),
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "somebody"},
    ]
    world.client.patch(ROLE_BINDING, RUNNER, {"subjects": subjects}, TEAM)
    sweep_all(world.manager_client)
    assert _subjects(world) == ["sa-old", "sa-new"], "a Job still runs as sa-old"
    world.start_pod(job)
    world.end_job(job, succeeded=False)
    sweep_all(world.manager_client)
    assert _subjects(world) == ["sa-old", "sa-new"], "its pod still runs"
    world.client.patch(
        POD, f"{name_of(job)}-x7k2p", {"status": {"phase": "Failed"}}, TEAM, subresource="status"
    )
    sweep_all(world.manager_client)
    assert _subjects(world) == ["sa-new"]
    before = world.client.get(ROLE_BINDING, RUNNER, TEAM)["metadata"]["resourceVersion"]
    sweep_all(world.manager_client)
    after = world.client.get(ROLE_BINDING, RUNNER, TEAM)["metadata"]["resourceVersion"]
    assert after == before != binding["metadata"]["resourceVersion"]
    assert {"sa-old", "sa-new", RUNNER} - stored(world, SERVICE_ACCOUNT) <= {RUNNER}


@pytest.mark.acceptance("CG24")
def test_a_going_object_counts_until_it_is_gone(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    end_by_destroy(case)
    case.reconcile()
    assert case.released
    present = {f"ServiceAccount/{RUNNER}", f"RoleBinding/{RUNNER}"}
    sweep_all(case.world.manager_client)
    assert f"ServiceAccount/{RUNNER}" in runner_objects(case.world)
    force_gone(case)
    sweep_all(case.world.manager_client)
    assert present.isdisjoint(runner_objects(case.world))


@pytest.mark.acceptance("CG25")
def test_the_periodic_sweep_runs_at_once_and_then_every_period(world: World) -> None:
    sweeper = Sweeper(world.manager_client, 20.0, "", world.clock)
    assert sweeper.needs_leader
    stop = threading.Event()
    _orphan(world)
    thread = threading.Thread(target=sweeper.run, args=(stop,), name="sweeper")
    thread.start()
    try:
        world.clock.wait_for_waiters(1)
        assert "orphan" not in stored(world, LEASE), "swept when the manager starts"
        _orphan(world)
        world.clock.advance(19.9)
        world.clock.wait_for_waiters(1)
        assert "orphan" in stored(world, LEASE), "not before the period"
        world.server.requests.clear()
        world.clock.advance(2.2)
        eventually(lambda: "orphan" not in stored(world, LEASE))
    finally:
        stop.set()
        world.clock.advance(30)
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.acceptance("CG25")
def test_a_standby_never_sweeps(world: World) -> None:
    """Two managers, one Lease: the requests of a sweep come from the leader alone, and from the next one."""
    managers = {name: _Replica(world, name) for name in ("first", "second")}
    try:
        for replica in managers.values():
            replica.start()
        # No time passes: whoever leads goes on leading, however long this takes.
        eventually(lambda: any(replica.leads for replica in managers.values()))
        leader = next(name for name, replica in managers.items() if replica.leads)
        standby = next(name for name in managers if name != leader)
        eventually(lambda: managers[leader].sweeps() > 0 and managers[standby].asks() > 0)
        assert managers[standby].sweeps() == 0
        managers[leader].stop()

        def taken_over() -> bool:
            if not managers[standby].leads:
                world.clock.advance(0.2)
            return managers[standby].sweeps() > 0

        eventually(taken_over)
    finally:
        for replica in managers.values():
            replica.stop()


class _Replica:
    """A manager with leader election and the sweep, and nothing else, on the clock of the world."""

    def __init__(self, world: World, name: str) -> None:
        self._agent = f"captf-{name}"
        self._world = world
        self._client = Client.from_config(
            kubeconfig=world.server.kubeconfig(), user_agent=self._agent, clock=world.clock
        )
        self._manager = Manager(
            client=self._client,
            caches=[],
            leader_election=LeaderElectionConfig(
                namespace=OPERATOR,
                name="leader",
                identity=name,
                client=self._client.dedicated(pool_size=1, suffix="leader-election"),
                times=ElectionTimes(lease_duration=3.0, renew_deadline=2.0, retry_period=0.2),
            ),
            clock=world.clock,
        )
        self._manager.add(Sweeper(self._client, 0.2, "", world.clock), name="orphan-sweep")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._manager.run, args=(self._stop,), name=name)

    @property
    def leads(self) -> bool:
        return self._manager.is_leader

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(60)
        self._client.close()

    def asks(self) -> int:
        """How often it asked who leads."""
        return self._requests("get", "leases")

    def sweeps(self) -> int:
        """How often it looked for what nobody needs any more."""
        return self._requests("list", "rolebindings")

    def _requests(self, verb: str, resource: str) -> int:
        log = self._world.server.requests.select(verb=verb, resource=resource)
        return sum(entry.user_agent.startswith(self._agent) for entry in log)


@pytest.mark.acceptance("CG26")
def test_an_object_of_another_manager_keeps_the_namespace(world: World) -> None:
    world.restart(watch_filter="mine")
    _orphan(world)
    world.add("TerraformMachine", "m1")
    world.patch("TerraformMachine", "m1", {"metadata": {"labels": {labels.WATCH_FILTER: "theirs"}}})
    assert world.reconcile("TerraformMachine", "m1") == 0
    sweep_all(world.manager_client)
    assert "orphan" in stored(world, LEASE)


@pytest.mark.acceptance("CG27")
def test_a_failed_sweep_after_a_release_is_no_error(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    case.delete(keep=False)
    case.reconcile()
    case.end()
    case.world.server.faults.add(Match(verb="delete", resource="rolebindings"), forbidden(), times=1)
    assert case.reconcile() == 0
    assert case.world.find(case.kind, case.name) is None
    assert releases(case)[-1] == "FinalizerRemoved"
    assert RUNNER in stored(case.world, ROLE_BINDING)
    assert RUNNER not in stored(case.world, SERVICE_ACCOUNT), "the rest went on"
    sweep_all(case.world.manager_client)
    assert RUNNER not in stored(case.world, ROLE_BINDING)


@pytest.mark.acceptance("CG27")
def test_the_periodic_sweep_survives_a_failed_run(world: World) -> None:
    stop = threading.Event()
    world.create(ROLE_BINDING, _binding(RUNNER, {labels.MANAGED: "true"}, []), TEAM)
    world.server.faults.add(Match(verb="delete", resource="rolebindings"), forbidden(), times=1)
    thread = threading.Thread(
        target=Sweeper(world.manager_client, 20.0, "", world.clock).run, args=(stop,), name="sweeper"
    )
    thread.start()
    try:
        world.clock.wait_for_waiters(1)
        assert RUNNER in stored(world, ROLE_BINDING)
        world.clock.advance(22.1)
        eventually(lambda: RUNNER not in stored(world, ROLE_BINDING))
    finally:
        stop.set()
        world.clock.advance(30)
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.acceptance("CG28")
def test_the_sweep_clears_the_source_of_a_move(world: World) -> None:
    for name in ("m1", "m2"):
        world.provisioned("TerraformMachine", name)
    hold = Case(world, "TerraformMachine")
    hold_lease(hold, names.run_lease(hold.suffix), "captf-dead")
    moved = [("TerraformMachine", "m1"), ("TerraformMachine", "m2"), ("TerraformCluster", "prod")]
    for kind, name in moved:
        world.patch(
            kind,
            name,
            {
                "metadata": {
                    "finalizers": None,
                    "annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""},
                }
            },
        )
        world.delete(kind, name)
        world.reconcile(kind, name)
    world.step()
    sweep_all(world.manager_client)
    assert {f"ServiceAccount/{RUNNER}", f"RoleBinding/{RUNNER}"}.isdisjoint(runner_objects(world))
    managed = [item for item in world.client.list(LEASE, TEAM).items if labels_of(item).get(labels.MANAGED)]
    assert managed == []


@pytest.mark.acceptance("CG28")
def test_a_finalizer_that_the_mover_stripped_stays_off(case: Case) -> None:
    """A pass between the mover's two requests must not leave the source's object behind."""
    case.provision()
    case.world.client.patch(CLUSTER, case.cluster, {"spec": {"paused": True}}, TEAM)
    case.settle()
    announced = {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
    case.patch({"metadata": {"finalizers": None, "annotations": announced}})
    case.reconcile()
    case.world.delete(case.kind, case.name)
    assert case.world.find(case.kind, case.name) is None


def test_what_was_announced_for_a_move_is_taken_up_when_nothing_moves(case: Case) -> None:
    """The announcement is anybody's to write: without a pause it takes no protection away."""
    case.provision()
    announced = {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
    case.patch({"metadata": {"finalizers": None, "annotations": announced}})
    case.reconcile()
    assert case.object["metadata"]["finalizers"] == [case.finalizer]


def _destroy(world: World, kind: str, name: str) -> None:
    """One pass starts the destroy of a deleting object, which succeeds; the next cleans up."""
    world.reconcile(kind, name)
    world.finish_job(world.running_job(name))
    world.reconcile(kind, name)


def _all_names(case: Case) -> set[str]:
    return stored(case.world, SECRET) | stored(case.world, LEASE)


def _version(world: World, kind: Kind, name: str, namespace: str) -> str:
    found: Object = world.client.get(kind, name, namespace)
    return str(found["metadata"]["resourceVersion"])


def _binding(name: str, its_labels: dict[str, str], subjects: list[Object]) -> Object:
    return {
        "metadata": {"name": name, "labels": its_labels},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": RUNNER},
        "subjects": subjects,
    }


def _subjects(world: World) -> list[str]:
    binding = world.client.get(ROLE_BINDING, RUNNER, TEAM)
    return [subject["name"] for subject in binding.get("subjects") or []]


def _orphan(world: World) -> None:
    world.create(
        LEASE, {"metadata": {"name": "orphan", "labels": {labels.MANAGED: "true"}}, "spec": {}}, TEAM
    )
