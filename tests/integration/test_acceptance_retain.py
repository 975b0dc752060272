"""The acceptance rows of Retain and adoption, each as a user would see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.belongings import (
    MIRROR,
    complete,
    cut_state,
    end_pod,
    force_gone,
    hold_lease,
    lose_state,
    mirror_owners,
    reference_to,
    requests,
    spoil_state,
    stored,
)
from tests.deletion_case import Case, image_of
from tests.world import DIGEST, IDENTITY, OPERATOR, TEAM, World

from captf_controllers.api import labels, names
from captf_controllers.api.kinds import (
    CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
)
from captf_runtime.client.errors import ApiError, Invalid
from captf_runtime.objects import (
    JOB,
    NAMESPACE,
    SECRET,
    Object,
    labels_of,
    name_of,
    owner_references,
    resource_version_of,
)
from captf_runtime.testing.faults import Match, error, internal_error

OTHER_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "bystander", "uid": "11111111-0000"}


def kept_secrets(case: Case) -> list[Object]:
    """The Secrets that Retain keeps: state, backups, both inputs."""
    by_name = {name_of(item): item for item in case.world.client.list(SECRET, TEAM).items}
    inputs = [by_name[name] for name in case.inputs_secrets if name in by_name]
    return [*case.states(), *case.backups(), *inputs]


def retained_uids(case: Case) -> set[str]:
    return {labels_of(item).get(labels.RETAINED_FROM_UID, "") for item in kept_secrets(case)}


def versions(case: Case) -> dict[str, str]:
    return {name_of(item): resource_version_of(item) for item in kept_secrets(case)}


def retain(case: Case, **spec: Any) -> str:
    """Provision, delete with Retain, and let the collector run; the UID of the object that was."""
    case.provision(**spec)
    return retain_now(case)


def retain_now(case: Case) -> str:
    uid = case.uid
    case.spec(deletionPolicy="Retain")
    case.delete(keep=False)
    assert case.reconcile() == 0
    assert case.world.find(case.kind, case.name) is None
    case.world.step()
    return uid


def recreate(case: Case, **spec: Any) -> None:
    """A new object of the same name."""
    case.world.add(case.kind, case.name, cluster=case.cluster, **spec)


def at_the_first_write(case: Case, change: Callable[[], object]) -> None:
    """Change the world right after the next write of the manager: too late for the caches of that pass."""

    def once(_: int) -> None:
        case.world.write_watch.watch(None)
        change()

    case.world.write_watch.watch(once)


def created_since(case: Case, before: list[str]) -> list[str]:
    return case.created_jobs()[len(before) :]


# The policy


@pytest.mark.acceptance("RA1", "RA13")
def test_infrastructure_outlives_its_object_and_is_managed_again(case: Case) -> None:
    case.provision()
    provider = case.object["spec"].get("providerID")
    jobs = case.created_jobs()
    retain_now(case)
    recreate(case, adoptRetainedState=True)
    case.settle()
    case.settle()
    assert case.says("StateReadable") == "True/StateRead"
    assert case.status["initialization"]["provisioned"] is True
    assert case.object["spec"].get("providerID") == provider
    assert created_since(case, jobs) == [], "no Job touched the infrastructure meanwhile"
    assert not [name for name in case.created_jobs() if "-destroy-" in name]


@pytest.mark.acceptance("RA2", "RA15")
def test_a_policy_that_is_set_at_the_last_moment_stops_the_destroy(case: Case) -> None:
    """The pass read the old one; Retain is set once the destroy has its lease."""
    case.provision()
    case.delete()
    at_the_first_write(case, lambda: case.spec(deletionPolicy="Retain"))
    assert case.reconcile() == 5
    assert case.jobs("destroy") == []
    assert case.own_leases() == []
    assert case.reconcile() == 0
    assert case.released
    assert case.created_jobs()[1:] == []


@pytest.mark.acceptance("RA15")
def test_a_policy_that_is_set_at_the_last_moment_stops_a_restore(case: Case) -> None:
    case.provision()
    lose_state(case)
    case.delete()
    assert case.reconcile() == 60
    case.restore(1)
    at_the_first_write(case, lambda: case.spec(deletionPolicy="Retain"))
    assert case.reconcile() == 5
    assert case.jobs("restore") == []
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("RA3", "RA5")
@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformMachinePool"])
@pytest.mark.parametrize("spec", [{"deletionPolicy": "Retain"}, {"defaults": {"deletionPolicy": "Retain"}}])
def test_a_policy_that_its_cluster_gets_at_the_last_moment_stops_the_destroy(
    world: World, kind: str, spec: dict[str, Any]
) -> None:
    """The cache of the clusters trails that of the machines: one may be seen to go first."""
    case = Case(world, kind)
    case.provision()
    case.delete()
    at_the_first_write(case, lambda: world.patch("TerraformCluster", "prod", {"spec": spec}))
    assert case.reconcile() == 5
    assert case.jobs("destroy") == []
    assert case.reconcile() == 0
    assert case.released
    assert case.notes("InfrastructureRetained")


@pytest.mark.acceptance("RA3")
@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformMachinePool"])
def test_a_policy_of_its_own_is_not_stopped_by_its_clusters(world: World, kind: str) -> None:
    case = Case(world, kind)
    case.provision(deletionPolicy="Destroy")
    case.delete()
    retain_all = {"spec": {"deletionPolicy": "Retain"}}
    at_the_first_write(case, lambda: world.patch("TerraformCluster", "prod", retain_all))
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 1


@pytest.mark.acceptance("RA2")
def test_the_policy_can_be_changed_at_any_time(case: Case) -> None:
    case.provision()
    with pytest.raises(Invalid, match="deletionPolicy"):
        case.spec(deletionPolicy="Keep")
    for policy in ("Retain", "Destroy", None, "Retain"):
        case.spec(deletionPolicy=policy)
    case.delete()
    for policy in ("Destroy", None, "Retain"):
        case.spec(deletionPolicy=policy)
    with pytest.raises(Invalid, match="deletionPolicy"):
        case.spec(deletionPolicy="retain")


@pytest.mark.acceptance("RA3")
@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformMachinePool"])
@pytest.mark.parametrize(
    ("own", "default", "of_cluster", "retained"),
    [
        (None, None, None, False),
        (None, None, "Retain", True),
        (None, "Retain", None, True),
        (None, "Destroy", "Retain", False),
        (None, "Retain", "Destroy", True),
        ("Destroy", "Retain", "Retain", False),
        ("Retain", "Destroy", "Destroy", True),
    ],
)
def test_an_unset_policy_is_inherited(
    world: World, kind: str, own: str | None, default: str | None, of_cluster: str | None, retained: bool
) -> None:
    case = Case(world, kind)
    case.provision()
    world.patch(
        "TerraformCluster",
        "prod",
        {"spec": {"deletionPolicy": of_cluster, "defaults": {"deletionPolicy": default}}},
    )
    case.spec(deletionPolicy=own)
    case.delete()
    assert case.reconcile() == (0 if retained else 60)
    assert case.released is retained
    assert len(case.jobs("destroy")) == (0 if retained else 1)
    assert case.status["effectiveDeletionPolicy"] == ("Retain" if retained else "Destroy")


@pytest.mark.acceptance("RA3")
@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformMachinePool"])
@pytest.mark.parametrize("remembered", ["Retain", "Destroy", None])
def test_the_last_policy_counts_when_the_cluster_is_gone(
    world: World, kind: str, remembered: str | None
) -> None:
    case = Case(world, kind)
    case.provision()
    world.patch("TerraformCluster", "prod", {"spec": {"deletionPolicy": remembered}})
    case.settle()
    world.patch("TerraformCluster", "prod", {"metadata": {"finalizers": None}})
    world.delete("TerraformCluster", "prod")
    case.delete()
    case.reconcile()
    assert case.released is (remembered == "Retain")
    assert case.status["effectiveDeletionPolicy"] == (remembered or "Destroy")


@pytest.mark.acceptance("RA3")
@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformMachinePool"])
def test_a_cluster_that_is_left_is_inherited_from_though_its_owner_went_by_force(
    world: World, kind: str
) -> None:
    """The Cluster is gone; its TerraformCluster is there, waits for the object, and is set to Retain only now."""
    case = Case(world, kind)
    case.provision()
    world.client.delete(CLUSTER, "prod", TEAM, propagation_policy="Background")
    case.delete()
    world.patch("TerraformCluster", "prod", {"spec": {"deletionPolicy": "Retain"}})
    assert case.reconcile() == 0
    assert case.released
    assert case.jobs("destroy") == []
    assert case.status["effectiveDeletionPolicy"] == "Retain"


@pytest.mark.acceptance("RA4")
def test_a_cluster_ignores_its_own_defaults(cluster_case: Case) -> None:
    case = cluster_case
    case.provision(defaults={"deletionPolicy": "Retain"})
    case.delete()
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 1


@pytest.mark.acceptance("RA5")
def test_the_clusters_policy_reaches_machines_that_exist(machine_case: Case) -> None:
    case = machine_case
    case.provision()
    uid = case.uid
    case.world.patch("TerraformCluster", "prod", {"spec": {"deletionPolicy": "Retain"}})
    case.delete()
    assert case.reconcile() == 0
    assert case.released
    assert case.uid == uid
    assert retained_uids(case) == {uid}


# What it does


@pytest.mark.acceptance("RA6")
@pytest.mark.parametrize("running", ["apply", "destroy"])
def test_retain_waits_for_a_running_job(case: Case, running: str) -> None:
    case.provision()
    if running == "destroy":
        case.delete()
        case.reconcile()
    elif case.kind == "TerraformMachine":
        case.advance(2000)
        case.settle()
        case.delete()
    else:
        case.spec(source={"image": "example.com/modules/x:v2"})
        case.settle()
        case.delete()
    job = case.job()
    case.spec(deletionPolicy="Retain")
    for _ in range(2):
        assert case.reconcile() == 60
        assert name_of(job) in case.message("Deleting")
        assert retained_uids(case) == {""}
        case.advance(60)
    jobs = case.created_jobs()
    case.end("failed")
    assert case.reconcile() == 0
    assert case.released
    assert case.created_jobs() == jobs
    assert retained_uids(case) == {case.uid}


@pytest.mark.acceptance("RA6")
def test_retain_waits_for_a_live_run_lease(case: Case) -> None:
    case.provision()
    case.delete()
    case.reconcile()
    job = case.job()
    case.world.start_pod(job)
    case.world.end_job(job, succeeded=False)
    case.spec(deletionPolicy="Retain")
    for _ in range(2):
        assert case.reconcile() == 5
        assert name_of(job) in case.message("Deleting")
        assert retained_uids(case) == {""}
        case.advance(5)
    end_pod(case, job, "Failed")
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("RA7", "RA10", "RA11", "RA18")
def test_everything_that_describes_the_infrastructure_is_kept(case: Case) -> None:
    case.provision()
    chunks = cut_state(case)
    backups = {name_of(item) for item in case.backups()}
    assert backups
    before = {name_of(item): item for item in kept_secrets(case)}
    uid = retain_now(case)
    kept = {name_of(item): item for item in kept_secrets(case)}
    assert set(kept) == {*chunks, *backups, *case.inputs_secrets}
    for name, secret in kept.items():
        assert owner_references(secret) == [], name
        assert labels_of(secret)[labels.RETAINED_FROM_UID] == uid
        assert labels_of(secret)[labels.MOVE] == ""
        assert secret.get("data") == before[name].get("data")
        expected = {**labels_of(before[name]), labels.RETAINED_FROM_UID: uid, labels.MOVE: ""}
        assert labels_of(secret) == expected


@pytest.mark.acceptance("RA8")
def test_leases_and_plan_key_go(case: Case) -> None:
    case.provision()
    complete(case)
    hold_lease(case, names.run_lease(case.suffix), "captf-dead")
    if case.kind == "TerraformCluster":
        hold_lease(case, names.cluster_lease(TEAM, case.cluster), "captf-dead", which="cluster")
    case.advance(61)
    retain_now(case)
    assert case.own_leases() == []
    assert names.state_lock_lease(case.suffix) not in case.world.leases()
    assert not case.has_secret(names.plan_key_secret(case.kind, case.name))


@pytest.mark.acceptance("RA9")
def test_the_mirror_loses_the_object(case: Case) -> None:
    case.provision()
    retain_now(case)
    alone = case.kind == "TerraformCluster"
    assert mirror_owners(case.world) == (None if alone else ["prod"])
    removed = case.notes("MirrorRemoved")
    assert len(removed) == (1 if alone else 0)
    assert all(MIRROR in note for note in removed)


@pytest.mark.acceptance("RA10")
def test_references_of_others_stay(case: Case) -> None:
    case.provision()
    for secret in kept_secrets(case):
        references = [*secret["metadata"]["ownerReferences"], OTHER_OWNER]
        patch = {"metadata": {"ownerReferences": references}}
        case.world.client.patch(SECRET, name_of(secret), patch, TEAM)
    uid = case.uid
    case.spec(deletionPolicy="Retain")
    case.delete()
    case.reconcile()
    for secret in kept_secrets(case):
        assert [reference.name for reference in owner_references(secret)] == ["bystander"]
        assert labels_of(secret)[labels.RETAINED_FROM_UID] == uid


@pytest.mark.acceptance("RA10")
def test_a_reference_that_is_missing_is_not_put_back(case: Case) -> None:
    """A Retain takes the references off; one that somebody else took off is no more in its way."""
    case.provision(deletionPolicy="Retain")
    for secret in case.states():
        case.world.client.patch(SECRET, name_of(secret), {"metadata": {"ownerReferences": None}}, TEAM)
    case.delete()
    assert case.reconcile() == 0
    assert case.released
    assert "OwnerReferencesRepaired" not in case.reasons()
    assert retained_uids(case) == {case.uid}


@pytest.mark.acceptance("RA12")
def test_the_event_counts_what_was_kept(case: Case) -> None:
    case.provision()
    cut_state(case, 2)
    uid = retain_now(case)
    (note,) = case.notes("InfrastructureRetained")
    assert "kept 2 state, 1 backup and 2 inputs Secrets" in note
    assert case.finalizer in note
    assert "deletionPolicy Retain" in note
    assert f"captf.io/retained-from-uid={uid}" in note
    assert "spec.adoptRetainedState: true" in note
    assert not {"Destroyed", "FinalizerRemoved", "InfrastructureAbandoned"} & set(case.reasons())
    assert case.world.events.of("InfrastructureRetained", case.name)[0]["type"] == "Normal"


@pytest.mark.acceptance("RA12")
def test_the_event_says_that_a_terminating_namespace_keeps_nothing(case: Case) -> None:
    case.provision()
    case.spec(deletionPolicy="Retain")
    case.world.client.delete(NAMESPACE, TEAM, propagation_policy="Background")
    case.delete()
    assert case.reconcile() == 0
    (note,) = case.notes("InfrastructureRetained")
    assert "the namespace terminates and takes them with it" in note


@pytest.mark.acceptance("RA14")
def test_every_write_may_fail_once(case: Case) -> None:
    def prepare() -> None:
        case.provision()
        cut_state(case, 2)
        complete(case)
        case.spec(deletionPolicy="Retain")
        case.delete()

    prepare()
    start = case.world.checkpoint()
    case.world.write_watch.watch(None)
    case.reconcile()
    writes = [
        (entry.verb, entry.resource, entry.name, entry.subresource)
        for entry in requests(case.world, writes=True)
        if entry.code < 300
    ]
    end, note = _end(case), case.notes("InfrastructureRetained")
    assert len(writes) > 8
    for verb, resource, name, subresource in writes:
        case.world.rewind(start)
        match = Match(verb=verb, resource=resource, name=name, subresource=subresource)
        case.world.server.faults.add(match, internal_error(), times=1)
        try:
            case.reconcile()
        except ApiError:
            pass
        case.settle()
        assert _end(case) == end, (verb, resource, name)
        assert case.released
        assert case.notes("InfrastructureRetained") == note, "once, with the full counts"


@pytest.mark.acceptance("RA15")
@pytest.mark.parametrize("waiting", ["restore", "backoff", "lease"])
def test_retain_is_decided_before_any_restore_or_destroy(case: Case, waiting: str) -> None:
    case.provision()
    jobs = case.created_jobs()
    if waiting == "restore":
        lose_state(case)
        case.restore(1)
        case.delete()
    elif waiting == "backoff":
        case.delete()
        case.reconcile()
        case.end("failed")
        assert case.reconcile() == 60
        jobs = case.created_jobs()
    else:
        _busy_other_job(case)
        case.delete()
        assert case.reconcile() == 30
        assert case.says("ApplyJobSucceeded") == "Unknown/WaitingForRunLease"
        _end_other_job(case)
    case.spec(deletionPolicy="Retain")
    assert case.reconcile() == 0
    assert case.released
    assert case.created_jobs() == jobs


STUCK = [
    "lost",
    "unreadable",
    "outcome unknown",
    "destroy failed",
    "inputs gone",
    "identity refused",
    "identity gone",
    "credentials",
]


def stick(case: Case, why: str) -> None:
    """Bring a deletion to a stop; the object is deleting and says why."""
    world = case.world
    if why == "outcome unknown":
        case.add()
        case.settle()
        world.client.delete(JOB, name_of(case.job()), TEAM, propagation_policy="Background")
        case.advance(61)
        case.delete()
    else:
        case.provision()
    if why == "lost":
        lose_state(case)
    elif why == "unreadable":
        spoil_state(case)
    elif why == "inputs gone":
        case.remove_inputs()
        if case.kind != "TerraformMachine":
            # A cluster or pool renders its current inputs instead, unless a gate is closed.
            case.patch({"spec": {"variablesFrom": [{"secretRef": {"name": "missing"}}]}})
    elif why == "identity refused":
        allowed = {"spec": {"allowedNamespaces": {"selector": None, "list": ["elsewhere"]}}}
        world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, allowed)
    elif why == "identity gone":
        world.client.delete(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, propagation_policy="Background")
    elif why == "credentials":
        world.client.delete(SECRET, f"{IDENTITY}-credentials", OPERATOR, propagation_policy="Background")
    if why != "outcome unknown":
        case.delete()
    case.reconcile()
    if why == "destroy failed":
        case.end("failed")
        case.reconcile()


@pytest.mark.acceptance("RA16")
@pytest.mark.parametrize("why", STUCK)
def test_retain_releases_whatever_holds_a_deletion(case: Case, why: str) -> None:
    stick(case, why)
    assert not case.released
    jobs = case.created_jobs()
    case.spec(deletionPolicy="Retain")
    assert case.reconcile() == 0
    assert case.released
    assert case.created_jobs() == jobs
    assert case.reasons()[-1] == "InfrastructureRetained"


@pytest.mark.acceptance("RA17")
@pytest.mark.parametrize(
    ("why", "type_", "says"),
    [
        ("lost", "StateReadable", "False/StateLost"),
        ("unreadable", "StateReadable", "False/StateCorrupt"),
        ("outcome unknown", "StateReadable", "False/ApplyOutcomeUnknown"),
        ("destroy failed", "ApplyJobSucceeded", "False/DestroyFailed"),
        ("inputs gone", "ApplyJobSucceeded", "False/DestroyFailed"),
        ("identity refused", "ApplyJobSucceeded", "False/IdentityNotAllowed"),
        ("identity gone", "ApplyJobSucceeded", "False/IdentityNotAllowed"),
        ("credentials", "Deleting", "True/Deleting"),
    ],
)
def test_each_stop_names_retain(case: Case, why: str, type_: str, says: str) -> None:
    stick(case, why)
    assert case.says(type_) == says
    assert "spec.deletionPolicy: Retain" in case.message(type_)


@pytest.mark.acceptance("RA17")
@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("deadline", "JobDeadlineExceeded"),
        ("image-layout", "ImageInvalid"),
        ("pull-failed", "ImagePullFailed"),
    ],
)
def test_each_failed_destroy_names_retain(case: Case, outcome: str, reason: str) -> None:
    case.destroying()
    case.end(outcome)  # type: ignore[arg-type]
    case.reconcile()
    assert case.says("ApplyJobSucceeded") == f"False/{reason}"
    assert "spec.deletionPolicy: Retain" in case.message("ApplyJobSucceeded")


@pytest.mark.acceptance("RA18")
def test_a_retained_broken_state_can_be_adopted_and_restored(case: Case) -> None:
    case.provision()
    spoil_state(case)
    jobs = case.created_jobs()
    retain_now(case)
    recreate(case, adoptRetainedState=True)
    case.settle()
    assert case.says("StateReadable") == "False/StateCorrupt"
    case.restore(1)
    case.settle()
    assert ["-restore-" in name for name in created_since(case, jobs)] == [True]
    case.end()
    case.settle()
    assert case.says("StateReadable") == "True/StateRead"
    assert case.status["initialization"]["provisioned"] is True


@pytest.mark.acceptance("RA19")
def test_retain_never_destroys_though_the_adopting_object_may(case: Case) -> None:
    retain(case)
    recreate(case, adoptRetainedState=True)
    case.settle()
    case.settle()
    assert [name for name in case.created_jobs() if "-destroy-" in name] == []
    case.delete()
    case.reconcile()
    case.end()
    case.reconcile()
    assert case.released
    assert case.reasons()[-2:] == ["Destroyed", "FinalizerRemoved"]


@pytest.mark.acceptance("RA19")
def test_a_destroy_that_succeeded_is_not_turned_into_a_retain(case: Case) -> None:
    case.destroying()
    case.end()
    case.spec(deletionPolicy="Retain")
    assert case.reconcile() == 0
    assert case.released
    assert case.states() == []
    assert case.reasons()[-2:] == ["Destroyed", "FinalizerRemoved"]
    assert case.notes("InfrastructureRetained") == []


@pytest.mark.acceptance("RA20")
@pytest.mark.parametrize("by", ["annotation", "Cluster"])
@pytest.mark.parametrize("policy", ["Retain", "Destroy"])
def test_a_paused_object_neither_retains_nor_destroys(case: Case, by: str, policy: str) -> None:
    case.provision()
    jobs = case.created_jobs()
    _pause(case, by, paused=True)
    case.spec(deletionPolicy=policy)
    case.delete()
    before = versions(case)
    for _ in range(3):
        assert case.reconcile() == 0
    assert not case.released
    assert versions(case) == before
    assert case.created_jobs() == jobs
    assert case.message("Deleting").startswith("Deletion waits until the object is unpaused")
    assert "spec.paused" in case.message("Deleting")
    assert "cluster.x-k8s.io/paused" in case.message("Deleting")
    _pause(case, by, paused=False)
    case.reconcile()
    case.reconcile()
    if policy == "Retain":
        assert case.released
        assert retained_uids(case) == {case.uid}
    else:
        assert len(created_since(case, jobs)) == 1


@pytest.mark.acceptance("RA21")
def test_a_cluster_waits_for_its_machines_and_pools(world: World) -> None:
    for kind, name in (("TerraformMachine", "m1"), ("TerraformMachinePool", "p1")):
        world.provisioned(kind, name)
    case = _Prod(world, "TerraformCluster")
    case.spec(deletionPolicy="Retain")
    case.delete()
    assert case.reconcile() == 30
    assert case.says("DeletionBlocked") == "True/DependentsExist"
    message = case.message("DeletionBlocked")
    assert "1 TerraformMachine (m1) and 1 TerraformMachinePool (p1)" in message
    assert retained_uids(case) == {""}
    for kind, name in (("TerraformMachine", "m1"), ("TerraformMachinePool", "p1")):
        world.delete(kind, name)
        assert world.reconcile(kind, name) == 0, "both inherit the policy"
    assert case.reconcile() == 0
    assert case.released
    assert case.says("DeletionBlocked") == "False/NotBlocked"


# A later object of the name


@pytest.mark.acceptance("RA22", "RA23", "RA24")
def test_a_recreated_object_holds_and_touches_nothing(case: Case) -> None:
    uid = retain(case)
    before = versions(case)
    jobs = case.created_jobs()
    recreate(case)
    case.settle()
    for _ in range(3):
        assert case.reconcile() == 60
        case.advance(60)
    assert versions(case) == before
    assert case.says("StateReadable") == "False/RetainedStateFound"
    message = case.message("StateReadable")
    assert f"captf.io/retained-from-uid={uid}" in message
    assert created_since(case, jobs) == []
    assert [event["type"] for event in case.world.events.of("RetainedStateFound", case.name)] == ["Warning"]
    status = case.status
    for field in (
        "observedStateSerial",
        "addresses",
        "exports",
        "providerIDList",
        "stateBackups",
        "instances",
    ):
        assert field not in status, field
    assert not (status.get("initialization") or {}).get("provisioned")
    assert "imageDigest" not in (status.get("source") or {})
    assert "providerID" not in case.object["spec"]
    assert "captf.io/applied-as" not in case.annotations
    for secret in kept_secrets(case):
        assert owner_references(secret) == []


@pytest.mark.acceptance("RA23")
@pytest.mark.parametrize("state", ["lost", "unreadable"])
def test_retained_secrets_are_found_though_their_state_does_not_read(case: Case, state: str) -> None:
    case.provision()
    (lose_state if state == "lost" else spoil_state)(case)
    uid = retain_now(case)
    if state == "lost":
        case.remove_inputs()
    recreate(case)
    case.settle()
    assert case.says("StateReadable") == "False/RetainedStateFound"
    assert uid in case.message("StateReadable")


@pytest.mark.acceptance("RA22")
@pytest.mark.parametrize("left", ["inputs", "backups", "state"])
def test_what_is_left_of_retained_secrets_is_found(case: Case, left: str) -> None:
    """Somebody deleted the others; each of them alone says whose infrastructure this is."""
    uid = retain(case)
    inputs = [item for item in kept_secrets(case) if name_of(item) in case.inputs_secrets]
    groups = {"inputs": inputs, "backups": case.backups(), "state": case.states()}
    for group, secrets in groups.items():
        assert secrets
        if group != left:
            case.remove_secrets(secrets)
    before = versions(case)
    jobs = case.created_jobs()
    recreate(case)
    assert case.settle() == 60
    assert case.says("StateReadable") == "False/RetainedStateFound"
    assert uid in case.message("StateReadable")
    case.delete()
    assert case.reconcile() == 0
    assert case.released
    assert versions(case) == before
    assert created_since(case, jobs) == []


@pytest.mark.acceptance("RA14")
def test_a_secret_that_goes_meanwhile_is_nothing_to_keep(case: Case) -> None:
    case.provision(deletionPolicy="Retain")
    case.delete()
    match = Match(verb="patch", resource="secrets", name=case.inputs_secrets[0])
    case.world.server.faults.add(match, error(404, "NotFound"), times=1)
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("RA25")
def test_the_message_names_both_exits(case: Case) -> None:
    uid = retain(case)
    recreate(case)
    case.settle()
    message = case.message("StateReadable")
    assert "spec.adoptRetainedState: true" in message
    assert f"kubectl delete secrets -n {TEAM} -l captf.io/retained-from-uid={uid}" in message


@pytest.mark.acceptance("RA25", "RA26")
@pytest.mark.parametrize("set_when", ["created", "held"])
def test_adoption_frees_the_secrets_and_then_owns_them(case: Case, set_when: str) -> None:
    earlier = retain(case)
    count = len(kept_secrets(case))
    if set_when == "created":
        recreate(case, adoptRetainedState=True)
        case.reconcile()
    else:
        recreate(case)
        case.settle()
        case.spec(adoptRetainedState=True)
    assert case.reconcile() == 5
    assert retained_uids(case) == {""}
    (note,) = case.notes("RetainedStateAdopted")
    assert earlier in note
    assert f"{count} Secrets" in note
    for secret in kept_secrets(case):
        assert owner_references(secret) == [], "the next pass owns them"
    case.reconcile()
    assert case.says("StateReadable") == "True/StateRead"
    for secret in kept_secrets(case):
        assert [reference.uid for reference in owner_references(secret)] == [case.uid]
    assert case.notes("OwnerReferencesRepaired") != []


@pytest.mark.acceptance("RA26")
def test_an_adoption_cut_short_is_finished(case: Case) -> None:
    case.provision()
    cut_state(case, 2)
    earlier = retain_now(case)
    recreate(case)
    case.settle()
    case.spec(adoptRetainedState=True)
    start = case.world.checkpoint()
    total = len(kept_secrets(case))
    for secret in [name_of(item) for item in kept_secrets(case)]:
        case.world.rewind(start)
        match = Match(verb="patch", resource="secrets", name=secret)
        case.world.server.faults.add(match, internal_error(), times=1)
        with pytest.raises(ApiError):
            case.reconcile()
        assert case.notes("RetainedStateAdopted") == []
        assert case.reconcile() == 5
        assert retained_uids(case) == {""}
        (note,) = case.notes("RetainedStateAdopted")
        assert earlier in note
        assert f"{total} Secrets" in note
        case.settle()
        for kept in kept_secrets(case):
            assert [reference.uid for reference in owner_references(kept)] == [case.uid]


@pytest.mark.acceptance("RA27")
def test_an_adopting_machine_is_provisioned_without_an_apply(machine_case: Case) -> None:
    case = machine_case
    case.provision()
    jobs = case.created_jobs()
    retain_now(case)
    recreate(case, adoptRetainedState=True)
    case.settle()
    case.settle()
    assert case.status["initialization"]["provisioned"] is True
    assert case.object["spec"]["providerID"] == "noop:///m1"
    assert created_since(case, jobs) == []
    assert case.notes("Provisioned") != []


@pytest.mark.acceptance("RA28")
def test_an_adopting_mutable_object_applies_only_a_difference(mutable_case: Case) -> None:
    case = mutable_case
    case.provision()
    jobs = case.created_jobs()
    retain_now(case)
    recreate(case, adoptRetainedState=True)
    case.settle()
    case.settle()
    assert created_since(case, jobs) == []
    assert case.says("InputsApplied") == "True/InputsApplied"
    case.spec(source={"image": "example.com/modules/x:v2"}, variables={"size": "l"})
    case.settle()
    (job,) = created_since(case, jobs)
    assert "-apply-" in job


@pytest.mark.acceptance("RA28")
def test_an_adopted_clusters_replacement_is_guarded(cluster_case: Case) -> None:
    case = cluster_case
    retain(case)
    recreate(case, adoptRetainedState=True, variables={"size": "l"})
    case.settle()
    case.settle()
    job = case.job("apply")
    arguments = " ".join(job["spec"]["template"]["spec"]["containers"][0]["args"])
    assert "guard" in arguments
    case.end("blocked")
    case.settle()
    assert case.says("ApplyJobSucceeded") == "False/DestructivePlanBlocked"


@pytest.mark.acceptance("RA29")
def test_a_machine_keeps_the_adopted_records_image_and_identity(machine_case: Case) -> None:
    case = machine_case
    case.provision()
    retain_now(case)
    case.world.add_identity("other")
    recreate(
        case,
        adoptRetainedState=True,
        source={"image": "example.com/modules/other:v9"},
        identityRef={"name": "other"},
    )
    case.settle()
    case.settle()
    case.advance(2000)
    case.settle()
    for op in ("drift", "destroy"):
        if op == "destroy":
            case.end()
            case.delete()
            case.reconcile()
        job = case.job()
        assert image_of(job) == f"example.com/modules/x@{DIGEST}"
        assert MIRROR in str(job["spec"]["template"]["spec"])
        assert names.credential_mirror("other") not in str(job["spec"]["template"]["spec"])


@pytest.mark.acceptance("RA30")
def test_the_field_is_never_inherited_and_stays(case: Case) -> None:
    retain(case)
    recreate(case)
    case.settle()
    cluster = "prod" if case.kind != "TerraformCluster" else case.name
    ignored = {"spec": {"defaults": {"adoptRetainedState": True}}}
    stored_cluster = case.world.patch("TerraformCluster", cluster, ignored)
    assert "adoptRetainedState" not in (stored_cluster["spec"].get("defaults") or {})
    assert case.reconcile() == 60
    assert case.says("StateReadable") == "False/RetainedStateFound"
    case.spec(adoptRetainedState=True)
    case.settle()
    case.settle()
    assert case.object["spec"]["adoptRetainedState"] is True
    assert case.says("StateReadable") == "True/StateRead"
    jobs = case.created_jobs()
    case.spec(adoptRetainedState=None)
    case.settle()
    assert case.says("StateReadable") == "True/StateRead"
    assert case.created_jobs() == jobs


@pytest.mark.acceptance("RA31")
@pytest.mark.parametrize("order", ["before", "after"])
def test_discarding_starts_afresh(case: Case, order: str) -> None:
    case.provision()
    jobs = case.created_jobs()
    retain_now(case)
    if order == "before":
        case.remove_secrets(kept_secrets(case))
        recreate(case)
        case.settle()
    else:
        recreate(case)
        case.settle()
        case.remove_secrets(kept_secrets(case))
        assert case.reconcile() == 60
    (job,) = created_since(case, jobs)
    assert "-apply-a1-" in job
    assert case.says("StateReadable") == "Unknown/StateNotFound"
    case.end()
    case.settle()
    assert case.status["initialization"]["provisioned"] is True


@pytest.mark.acceptance("RA32")
@pytest.mark.parametrize("policy", [None, "Destroy", "Retain"])
@pytest.mark.parametrize("abandon", [False, True])
@pytest.mark.parametrize("seen", ["held", "never reconciled"])
def test_a_holding_object_goes_at_once_and_touches_nothing(
    case: Case, policy: str | None, abandon: bool, seen: str
) -> None:
    uid = retain(case)
    before = versions(case)
    jobs = case.created_jobs()
    recreate(case, **({"deletionPolicy": policy} if policy else {}))
    case.reconcile()
    if seen == "held":
        case.settle()
    already = len(case.reasons())
    case.delete()
    if abandon:
        case.abandon()
    assert case.reconcile() == 0
    assert case.released
    assert versions(case) == before
    assert created_since(case, jobs) == []
    released = [
        reason
        for reason in case.reasons()[already:]
        if reason in ("FinalizerRemoved", "InfrastructureRetained", "InfrastructureAbandoned", "Destroyed")
    ]
    assert released == ["FinalizerRemoved"]
    assert f"captf.io/retained-from-uid={uid}" in case.notes("FinalizerRemoved")[-1]
    force_gone(case)
    case.world.step()
    assert versions(case) == before


@pytest.mark.acceptance("RA32")
def test_a_holding_object_without_an_owner_says_whose_inputs_it_found(case: Case) -> None:
    """Inputs of an apply that changed nothing are all that is left: no sign that anything was applied."""
    case.add()
    case.settle()
    case.end("failed", steps=("init",))
    case.settle()
    uid = retain_now(case)
    before = versions(case)
    assert len(before) == 1
    recreate(case)
    case.settle()
    case.patch({"metadata": {"ownerReferences": None}})
    case.delete()
    assert case.reconcile() == 0
    assert case.released
    assert versions(case) == before
    (note,) = case.notes("FinalizerRemoved")
    assert f"captf.io/retained-from-uid={uid}" in note


@pytest.mark.acceptance("RA32")
def test_a_holding_object_takes_what_is_its_own_along(case: Case) -> None:
    """Its plan key, its leases and its place among the mirror's owners; the earlier object's Secrets stay."""
    retain(case)
    before = versions(case)
    recreate(case)
    case.settle()
    complete(case)
    hold_lease(case, names.run_lease(case.suffix), "captf-dead")
    case.advance(61)
    if mirror_owners(case.world) is not None:
        owners = case.world.client.get(SECRET, MIRROR, TEAM)["metadata"]["ownerReferences"]
        owners = {"metadata": {"ownerReferences": [*owners, reference_to(case)]}}
        case.world.client.patch(SECRET, MIRROR, owners, TEAM)
    case.delete()
    assert case.reconcile() == 0
    assert case.released
    assert not case.has_secret(names.plan_key_secret(case.kind, case.name))
    assert names.run_lease(case.suffix) not in case.world.leases()
    assert case.name not in (mirror_owners(case.world) or [])
    assert versions(case) == before


@pytest.mark.acceptance("RA32")
def test_a_deleting_object_that_adopts_destroys_what_it_adopted(case: Case) -> None:
    retain(case)
    recreate(case)
    case.settle()
    case.spec(adoptRetainedState=True)
    case.delete()
    assert case.reconcile() == 5
    assert retained_uids(case) == {""}
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 1


def retain_backups_alone(case: Case) -> None:
    """The state and the inputs were lost before the object went with Retain: all that it kept are backups."""
    case.provision()
    lose_state(case)
    case.remove_inputs()
    retain_now(case)
    assert kept_secrets(case) == case.backups() != []


@pytest.mark.acceptance("RA26")
def test_adopted_backups_are_owned_though_nothing_else_is_left(case: Case) -> None:
    retain_backups_alone(case)
    recreate(case, adoptRetainedState=True)
    case.settle()
    case.settle()
    assert case.says("StateReadable") == "False/StateLost"
    for backup in case.backups():
        assert [reference.uid for reference in owner_references(backup)] == [case.uid]
    before = versions(case)
    case.reconcile()
    assert versions(case) == before


@pytest.mark.acceptance("RA26", "HD32")
def test_adopted_backups_go_with_an_abandoned_object(case: Case) -> None:
    retain_backups_alone(case)
    recreate(case)
    case.settle()
    case.spec(adoptRetainedState=True)
    case.delete(keep=False)
    case.abandon()
    assert case.reconcile() == 5
    assert case.reconcile() == 0
    assert case.world.find(case.kind, case.name) is None
    case.world.step()
    assert case.backups() == []


def test_backups_of_an_earlier_object_are_left_to_the_collector(case: Case) -> None:
    """Owned by a new object of the name, they would hold it for ever."""
    case.provision()
    earlier = case.uid
    lose_state(case)
    case.remove_inputs()
    case.delete(keep=False)
    case.abandon()
    case.reconcile()
    recreate(case)
    case.settle()
    for backup in case.backups():
        assert [reference.uid for reference in owner_references(backup)] == [earlier]
    case.world.step()
    assert case.backups() == []
    case.settle()
    assert len(case.jobs("apply")) == 1


@pytest.mark.acceptance("RA14")
def test_a_retain_cut_short_leaves_what_is_done(case: Case) -> None:
    """The next pass finds the Secrets labelled and writes none of them again, not even for a moment."""
    case.provision()
    case.spec(deletionPolicy="Retain")
    case.delete()
    resource = f"{case.kind.lower()}s"
    case.world.server.faults.add(
        Match(verb="patch", resource=resource, name=case.name, subresource=""), internal_error(), times=1
    )
    with pytest.raises(ApiError):
        case.reconcile()
    before = versions(case)
    assert case.reconcile() == 0
    assert case.released
    assert versions(case) == before


@pytest.mark.acceptance("RA14")
def test_a_retain_cut_short_and_taken_back_is_undone(case: Case) -> None:
    case.provision()
    case.spec(deletionPolicy="Retain")
    case.delete()
    resource = f"{case.kind.lower()}s"
    case.world.server.faults.add(
        Match(verb="patch", resource=resource, name=case.name, subresource=""), internal_error(), times=1
    )
    with pytest.raises(ApiError):
        case.reconcile()
    assert retained_uids(case) == {case.uid}
    case.spec(deletionPolicy="Destroy")
    assert case.reconcile() == 60
    assert retained_uids(case) == {""}
    assert len(case.jobs("destroy")) == 1
    for secret in kept_secrets(case):
        assert [reference.uid for reference in owner_references(secret)] == [case.uid]


class _Prod(Case):
    """The TerraformCluster that machines and pools of a test belong to."""

    @property
    def name(self) -> str:
        return "prod"


def _end(case: Case) -> dict[str, Any]:
    """What a Retain leaves, without what differs from run to run."""
    obj = case.object
    return {
        "secrets": {name_of(item): (labels_of(item), owner_references(item)) for item in kept_secrets(case)},
        "all": sorted(stored(case.world, SECRET)),
        "leases": case.world.leases(),
        "finalizers": obj["metadata"]["finalizers"],
        "conditions": {
            item["type"]: (item["status"], item["reason"]) for item in obj["status"]["conditions"]
        },
    }


def _pause(case: Case, by: str, *, paused: bool) -> None:
    if by == "annotation":
        value = "" if paused else None
        case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}})
    else:
        case.world.client.patch(CLUSTER, case.cluster, {"spec": {"paused": paused}}, TEAM)


def _busy_other_job(case: Case) -> None:
    """Another object's running Job holds the run lease."""
    job: Object = {
        "metadata": {"name": "captf-other", "labels": names.owner_labels(case.kind, "other")},
        "spec": {
            "template": {
                "metadata": {"labels": {}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "source", "image": "x"}]},
            }
        },
    }
    case.world.create(JOB, job, TEAM)
    hold_lease(case, names.run_lease(case.suffix), "captf-other")


def _end_other_job(case: Case) -> None:
    job = case.world.client.get(JOB, "captf-other", TEAM)
    case.world.end_job(job, succeeded=True)
