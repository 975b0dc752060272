"""The acceptance rows of namespaces that terminate, each as a user would see it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.belongings import (
    MIRROR,
    RUNNER,
    complete,
    force_gone,
    hold_lease,
    kept_for,
    lose_state,
    requests,
    spoil_state,
    stored,
)
from tests.deletion_case import Case
from tests.world import IDENTITY, KINDS, OPERATOR, RUNNER_IMAGE, TEAM, World

from captf_controllers.api import names
from captf_controllers.api.kinds import TERRAFORM_CLUSTER_IDENTITY, WORKLOAD_KINDS
from captf_controllers.jobs.slots import JobSlots
from captf_controllers.kinds.controllers import Caches, workload_controllers
from captf_controllers.observability.metrics import Metrics
from captf_controllers.reconcile.environment import Environment, Options
from captf_controllers.state.cache import StateCache
from captf_runtime.cache import Cache
from captf_runtime.client import Client
from captf_runtime.client.errors import Forbidden, NotFound
from captf_runtime.clock import SYSTEM_CLOCK
from captf_runtime.controller import Request
from captf_runtime.manager import Group
from captf_runtime.objects import (
    JOB,
    LEASE,
    NAMESPACE,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
    name_of,
)
from captf_runtime.queue import WorkQueue
from captf_runtime.testing.faults import Match, forbidden
from captf_runtime.testing.running_manager import RunningManager
from captf_runtime.testing.waiting import eventually

DOCS = Path(__file__).resolve().parents[2] / "docs"


def terminate(world: World) -> None:
    """Delete the namespace; its controller has not come to its content yet."""
    world.client.delete(NAMESPACE, TEAM, propagation_policy="Background")


def creates(world: World) -> list[str]:
    """What the manager tried to create."""
    return [entry.resource for entry in requests(world, verb="create")]


def remove_runner(world: World) -> None:
    world.client.delete(ROLE_BINDING, RUNNER, TEAM, propagation_policy="Background")
    world.client.delete(SERVICE_ACCOUNT, RUNNER, TEAM, propagation_policy="Background")


def remove_mirror(world: World) -> None:
    world.client.delete(SECRET, MIRROR, TEAM, propagation_policy="Background")


def free_lease(case: Case, name: str, which: str = "run") -> None:
    """A lease that exists and that nobody holds: taking it needs no create."""
    hold_lease(case, name, "", which=which)


def terminate_after_leases(case: Case) -> None:
    """The namespace begins to terminate when the object's leases are taken, right before its Job."""
    leases = 2 if case.kind == "TerraformCluster" else 1
    case.world.write_watch.watch(lambda write: terminate(case.world) if write == leases else None)


def phase(world: World) -> str:
    return str(world.client.get(NAMESPACE, TEAM)["status"]["phase"])


@pytest.mark.acceptance("TN1")
def test_the_namespace_takes_objects_and_secrets_but_no_infrastructure(case: Case) -> None:
    case.provision()
    complete(case)
    jobs = case.created_jobs()
    terminate(case.world)
    case.world.step()
    assert case.object["metadata"]["deletionTimestamp"]
    assert stored(case.world, SECRET) == set()
    case.reconcile()
    assert case.created_jobs() == jobs, "nothing destroys what the module created"
    assert phase(case.world) == "Terminating"


@pytest.mark.acceptance("TN2")
def test_deletions_are_sorted_by_whether_they_need_a_job(world: World) -> None:
    for name in ("held", "given-up", "ready"):
        world.provisioned("TerraformMachine", name)
    world.add("TerraformMachine", "fresh")
    world.reconcile("TerraformMachine", "fresh")
    for name in ("held", "given-up"):
        state = names.state_secret(names.state_suffix(TEAM, "TerraformMachine", name))
        world.client.delete(SECRET, state, TEAM, propagation_policy="Background")
    uid = world.get("TerraformMachine", "given-up")["metadata"]["uid"]
    world.annotate("TerraformMachine", "given-up", abandon_infrastructure=uid)
    remove_mirror(world)
    remove_runner(world)
    terminate(world)
    for name in ("held", "given-up", "ready", "fresh"):
        world.delete("TerraformMachine", name)
    world.server.requests.clear()
    assert world.reconcile("TerraformMachine", "fresh") == 0
    assert world.reconcile("TerraformMachine", "held") == 60
    assert world.reconcile("TerraformMachine", "given-up") == 0
    assert creates(world) == []
    assert world.reconcile("TerraformMachine", "ready") == 30
    assert creates(world) != []
    gone = [
        name for name in ("fresh", "held", "given-up", "ready") if world.released("TerraformMachine", name)
    ]
    assert gone == ["fresh", "given-up"]
    assert world.says("TerraformMachine", "held", "StateReadable") == "False/StateLost"
    assert world.says("TerraformMachine", "ready", "StateReadable") == "True/StateRead"


@pytest.mark.acceptance("TN3", "TN7")
@pytest.mark.parametrize("identity", ["there", "gone"])
def test_what_never_applied_goes_at_once(case: Case, identity: str) -> None:
    case.add()
    case.reconcile()
    if identity == "gone":
        case.world.client.delete(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, propagation_policy="Background")
    terminate(case.world)
    case.delete()
    case.world.server.requests.clear()
    assert case.reconcile() == 0
    assert case.released
    assert creates(case.world) == []


@pytest.mark.acceptance("TN4", "TN7")
@pytest.mark.parametrize("state", ["lost", "unreadable"])
def test_a_held_deletion_stays_held_and_abandon_releases_it(case: Case, state: str) -> None:
    case.provision()
    (lose_state if state == "lost" else spoil_state)(case)
    case.world.client.delete(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, propagation_policy="Background")
    remove_mirror(case.world)
    terminate(case.world)
    case.delete()
    case.world.server.requests.clear()
    for _ in range(3):
        assert case.reconcile() == 60
        assert not case.released
        case.advance(60)
    assert case.says("StateReadable") == ("False/StateLost" if state == "lost" else "False/StateCorrupt")
    case.abandon()
    assert case.reconcile() == 0
    assert case.released
    assert creates(case.world) == []


@pytest.mark.acceptance("TN5", "TN7")
def test_an_abandoned_object_goes_at_once(case: Case) -> None:
    case.provision()
    lose_state(case)
    remove_mirror(case.world)
    remove_runner(case.world)
    terminate(case.world)
    case.delete()
    case.abandon()
    case.world.server.requests.clear()
    assert case.reconcile() == 0
    assert case.released
    assert creates(case.world) == []


@pytest.mark.acceptance("TN6")
@pytest.mark.parametrize("need", ["destroy", "restore"])
def test_what_needs_a_job_waits(case: Case, need: str) -> None:
    case.provision()
    if need == "restore":
        lose_state(case)
        case.restore(1)
    remove_mirror(case.world)
    terminate(case.world)
    case.delete(keep=False)
    jobs = case.created_jobs()
    for _ in range(2):
        assert case.reconcile() == 30
        case.advance(30)
    assert case.created_jobs() == jobs
    assert not case.released
    case.world.step()
    namespace = case.world.client.get(NAMESPACE, TEAM)
    assert namespace["status"]["phase"] == "Terminating"
    remaining = {item["type"]: item for item in namespace["status"]["conditions"]}[
        "NamespaceFinalizersRemaining"
    ]
    assert remaining["status"] == "True"
    assert case.finalizer in remaining["message"]


@pytest.mark.acceptance("TN8")
def test_a_credential_failure_is_a_condition_and_no_error(case: Case) -> None:
    case.provision()
    remove_mirror(case.world)
    terminate(case.world)
    case.delete()
    assert case.reconcile() == 30, "no error"
    assert case.says("CredentialsMirrored") == "False/MirrorFailed"
    assert "being terminated" in case.message("CredentialsMirrored")


@pytest.mark.acceptance("TN8")
def test_a_refused_binding_is_a_condition_and_no_error(case: Case) -> None:
    case.provision()
    remove_runner(case.world)
    terminate(case.world)
    case.delete()
    assert case.reconcile() == 30, "no error"
    assert case.says("CredentialsMirrored") == "True/Mirrored"
    assert case.says("RunnerRBACReady") == "False/RBACFailed"
    assert "being terminated" in case.message("RunnerRBACReady")


@pytest.mark.acceptance("TN9")
@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ({"mirror"}, "CredentialsMirrored is False (MirrorFailed)"),
        ({"runner"}, "RunnerRBACReady is False (RBACFailed)"),
        ({"mirror", "runner"}, "CredentialsMirrored is False (MirrorFailed)"),
        ({"source", "mirror", "runner"}, "IdentityAllowed is False (SecretNotFound)"),
    ],
)
@pytest.mark.parametrize("op", ["destroy", "restore"])
def test_the_deletion_says_what_its_job_waits_for(case: Case, op: str, broken: set[str], named: str) -> None:
    case.provision()
    if op == "restore":
        lose_state(case)
        case.restore(1)
    if "source" in broken:
        case.world.client.delete(SECRET, f"{IDENTITY}-credentials", OPERATOR, propagation_policy="Background")
    if "mirror" in broken:
        remove_mirror(case.world)
    if "runner" in broken:
        remove_runner(case.world)
    terminate(case.world)
    case.delete()
    jobs = case.created_jobs()
    for _ in range(2):
        assert case.reconcile() == 30
        message = case.message("Deleting")
        assert message.startswith(f"The {op} Job waits for its credentials: {named}")
        assert "spec.deletionPolicy: Retain" in message
        assert f"captf.io/abandon-infrastructure={case.uid}" in message
        case.advance(30)
    assert case.created_jobs() == jobs
    assert case.says("StateReadable") == ("False/StateLost" if op == "restore" else "True/StateRead")


@pytest.mark.acceptance("TN10")
@pytest.mark.parametrize("refused", ["lease", "job"])
def test_a_refused_create_is_the_passs_error(case: Case, refused: str) -> None:
    case.provision()
    case.delete()
    jobs = case.created_jobs()
    if refused == "job":
        terminate_after_leases(case)
    else:
        terminate(case.world)
    with pytest.raises(Forbidden, match="being terminated"):
        case.reconcile()
    assert creates(case.world)[-1] == ("jobs" if refused == "job" else "leases")
    assert case.created_jobs() == jobs
    message = case.message("Deleting")
    assert "being terminated" in message
    assert "spec.deletionPolicy: Retain" in message
    assert f"captf.io/abandon-infrastructure={case.uid}" in message
    with pytest.raises(Forbidden):
        case.reconcile()


@pytest.mark.acceptance("TN10")
def test_a_refused_create_is_retried_with_growing_gaps(
    cluster_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = cluster_case
    case.provision()
    terminate(case.world)
    case.delete()
    refused = Refused()
    with Client.from_config(kubeconfig=case.world.server.kubeconfig(), observer=refused) as client:
        errors = _attempt(case, client, refused, monkeypatch)
    gaps = [later - earlier for earlier, later in pairwise(refused.times)][: ATTEMPTS - 1]
    assert errors >= ATTEMPTS - 2
    assert refused.delays[: ATTEMPTS - 1] == pytest.approx([0.005 * 2**k for k in range(ATTEMPTS - 1)])
    # A slow machine makes gaps longer, never shorter; but the write of the first pass may cut one short, at worst the
    # longest.
    assert sum(gaps) >= 0.005 * (2 ** (ATTEMPTS - 2) - 1), gaps


ATTEMPTS = 8


class Refused:
    """When a client was told that it may not create something, and the delays before another attempt."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.delays: list[float] = []

    def follow(self, queue: WorkQueue[Request], monkeypatch: pytest.MonkeyPatch) -> None:
        """Take note of the delays of a queue."""
        add = queue.add_rate_limited

        def noting(key: Request, **more: Any) -> float:
            delay = add(key, **more)
            self.delays.append(delay)
            return delay

        monkeypatch.setattr(queue, "add_rate_limited", noting)

    def request(self, *, method: str, verb: str, host: str, code: str, seconds: float) -> None:
        """An answer has arrived."""
        if (method, code) == ("POST", "403"):
            self.times.append(SYSTEM_CLOCK.monotonic())

    def retry(self, *, verb: str, host: str, code: str) -> None:
        """No answer."""


def _attempt(case: Case, client: Client, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run real controllers until so many creates were refused; the errors that they counted."""
    with RunningManager(client) as manager:
        metrics = Metrics(manager.manager.metrics.registry)
        env = Environment(
            api=client,
            cache=manager.cache,
            recorder=case.world.events,  # type: ignore[arg-type]
            metrics=metrics,
            clock=SYSTEM_CLOCK,
            options=Options(runner_image=RUNNER_IMAGE),
            slots=JobSlots(SYSTEM_CLOCK),
            states=StateCache(),
        )
        variables = Cache(client)
        manager.manager.add(variables, group=Group.CACHES)
        caches = Caches(main=manager.cache, variables=variables, namespace="")
        for controller in workload_controllers(env, caches, dict.fromkeys(WORKLOAD_KINDS, 1)):
            refused.follow(controller.queue, monkeypatch)
            manager.manager.add(controller)
        manager.start()
        eventually(lambda: len(refused.times) >= ATTEMPTS)
        log = case.world.server.requests.select(verb="create", code=403)
        assert {entry.resource for entry in log} == {"leases"}
        registry = manager.manager.metrics.registry
        errors = registry.get_sample_value(
            "controller_runtime_reconcile_errors_total", {"controller": "terraformcluster"}
        )
    return int(errors or 0)


@pytest.mark.acceptance("TN11")
def test_a_refused_create_gives_the_leases_back(case: Case) -> None:
    case.provision()
    case.delete()
    terminate_after_leases(case)
    with pytest.raises(Forbidden):
        case.reconcile()
    assert creates(case.world)[-1] == "jobs"
    holders = {
        (item.get("spec") or {}).get("holderIdentity") for item in case.world.client.list(LEASE, TEAM).items
    }
    assert not {holder for holder in holders if holder}


@pytest.mark.acceptance("TN11")
def test_another_objects_operation_proceeds_after_a_refused_create(world: World) -> None:
    world.provisioned("TerraformCluster", "c1")
    world.add("TerraformMachine", "m1", cluster="c1")
    world.provision("TerraformMachine", "m1")
    world.delete("TerraformMachine", "m1")
    world.server.faults.add(Match(verb="create", resource="jobs"), forbidden("no Jobs here"), times=1)
    world.patch("TerraformCluster", "c1", {"spec": {"source": {"image": "example.com/modules/x:v2"}}})
    with pytest.raises(Forbidden, match="no Jobs here"):
        world.reconcile("TerraformCluster", "c1")
    assert world.reconcile("TerraformMachine", "m1") == 60
    assert len(world.jobs("m1", op="destroy")) == 1


@pytest.mark.acceptance("TN12")
@pytest.mark.parametrize("annotated", ["before", "after"])
@pytest.mark.parametrize("wait", ["credentials", "lease create", "another refusal", "Job create"])
def test_abandon_releases_either_wait(case: Case, wait: str, annotated: str) -> None:
    case.provision()
    if wait == "credentials":
        remove_mirror(case.world)
    case.delete()
    if wait == "Job create":
        terminate_after_leases(case)
    else:
        terminate(case.world)
    if wait == "another refusal":  # a policy may answer first, and does not say what the namespace would
        case.world.server.faults.add(Match(verb="create", resource="leases"), forbidden("policy says no"))
    if annotated == "after":
        if wait == "credentials":
            assert case.reconcile() == 30
        else:
            with pytest.raises(Forbidden):
                case.reconcile()
        assert not case.released
    case.abandon()
    assert case.reconcile() == 0
    assert case.released
    (note,) = case.notes("InfrastructureAbandoned")
    assert "(the destroy cannot start: it waits for its credentials: " in note
    assert note.endswith("the state backups go with the object")
    assert len(note.encode()) <= 512
    assert case.own_leases() == []
    assert case.states() == []


@pytest.mark.acceptance("TN12")
def test_a_policy_that_denies_the_mirror_is_the_same_wait_in_a_living_namespace(case: Case) -> None:
    case.provision()
    remove_mirror(case.world)
    case.world.server.faults.add(Match(verb="create", resource="secrets"), forbidden("policy says no"))
    case.delete()
    assert case.reconcile() == 30
    case.abandon()
    assert case.reconcile() == 0
    (note,) = case.notes("InfrastructureAbandoned")
    cause = (
        "the destroy cannot start: it waits for its credentials: CredentialsMirrored is False (MirrorFailed)"
    )
    assert cause in note


@pytest.mark.acceptance("TN13")
@pytest.mark.parametrize("gone", ["by hand", "with the namespace"])
def test_a_state_that_the_namespace_took_is_lost_and_held(case: Case, gone: str) -> None:
    case.provision()
    terminate(case.world)
    if gone == "by hand":
        lose_state(case)
        case.remove_inputs()
        case.remove_secrets(case.backups())
        case.delete()
    else:
        case.world.step()
    case.annotate(applied_as=None)
    assert case.reconcile() == 60
    assert not case.released
    assert case.says("StateReadable") == "False/StateLost"
    assert "Deletion is held" in case.message("StateReadable")
    assert case.reasons().count("StateLost") == 1


@pytest.mark.acceptance("TN13")
@pytest.mark.parametrize("seen", ["by a pass", "by none"])
def test_a_first_apply_that_failed_half_way_is_held_when_its_namespace_goes(case: Case, seen: str) -> None:
    """Its state listed resources; nothing of an apply that succeeded says so, and every Secret is gone."""
    case.add()
    case.settle()
    case.world.write_state(case.kind, case.name, cluster=case.cluster, resources=3)
    case.end("failed")
    if seen == "by a pass":
        case.settle()
    case.delete()
    terminate(case.world)
    case.remove_secrets(case.world.client.list(SECRET, TEAM).items)
    assert case.reconcile() == 60
    assert not case.released
    assert "Deletion is held" in case.message("StateReadable")
    assert case.reasons().count("StateLost") == 1


@pytest.mark.acceptance("TN13")
def test_an_unknown_outcome_is_not_forgotten_with_its_namespace(case: Case) -> None:
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    case.world.start_pod(case.job("apply"))
    case.end("no-result")
    case.settle()
    assert case.says("StateReadable") == "False/ApplyOutcomeUnknown"
    case.delete()
    terminate(case.world)
    case.remove_secrets(case.world.client.list(SECRET, TEAM).items)
    case.world.client.delete(JOB, job, TEAM, propagation_policy="Background")
    assert case.reconcile() == 60
    assert case.says("StateReadable") == "False/ApplyOutcomeUnknown"
    case.annotate(confirm_no_resources=job)
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("TN13")
def test_an_unknown_outcome_of_another_object_is_not_taken_over(case: Case) -> None:
    """A manifest that was copied to another name brings the annotations of the first along."""
    case.add()
    case.annotate(unconfirmed_apply=names.job_name(case.kind, "another", "apply", 1, "h2:" + "0" * 64, ""))
    case.settle()
    assert case.job("apply")


@pytest.mark.acceptance("TN16")
def test_the_annotation_comes_back_as_long_as_the_mark_on_the_inputs_is_there(case: Case) -> None:
    """A replaced manifest took it off, and the state is not there to say that it was applied."""
    moved = _moved(case)
    moved["metadata"]["annotations"].pop("captf.io/applied-as")
    case.world.create(KINDS[case.kind], moved, TEAM)
    owner = moved["metadata"]["ownerReferences"][0]
    assert owner
    durable = case.inputs_secrets[0]
    marked = {"metadata": {"name": durable, "annotations": {"captf.io/applied": "true"}}}
    case.world.create(SECRET, marked, TEAM)
    case.settle()
    assert case.says("StateReadable") == "False/StateLost"
    assert case.annotations["captf.io/applied-as"] == case.suffix
    case.remove_secret(durable)
    case.delete()
    assert case.reconcile() == 60
    assert not case.released


@pytest.mark.acceptance("TN14")
def test_everything_in_the_namespace_is_gone_before_the_last_object(case: Case) -> None:
    case.provision()
    complete(case)
    case.delete()
    case.reconcile()
    case.world.start_pod(case.job())
    if case.kind == "TerraformCluster":
        free_lease(case, names.cluster_lease(TEAM, "elsewhere"), "cluster")
    assert {item.partition("/")[0] for item in kept_for(case)} == {"Secret", "Lease", "Job", "Pod"}
    terminate(case.world)
    case.world.step()
    _end_pods(case.world)
    case.world.step()
    for kind in (SECRET, LEASE, JOB, POD, SERVICE_ACCOUNT, ROLE_BINDING):
        assert stored(case.world, kind) == set(), kind.kind
    assert not case.released
    assert case.reconcile() == 60
    case.abandon()
    case.reconcile()
    assert case.released
    force_gone(case)
    cluster = case.world.find("TerraformCluster", "prod")
    if cluster is not None:
        uid = cluster["metadata"]["uid"]
        case.world.annotate("TerraformCluster", "prod", abandon_infrastructure=uid)
        case.world.settle("TerraformCluster", "prod")
    case.world.step()
    with pytest.raises(NotFound):
        case.world.client.get(NAMESPACE, TEAM)


@pytest.mark.acceptance("TN15")
def test_identity_and_source_stay(case: Case) -> None:
    case.provision()
    source = case.world.client.get(SECRET, f"{IDENTITY}-credentials", OPERATOR)
    identity = case.world.client.get(TERRAFORM_CLUSTER_IDENTITY, IDENTITY)
    terminate(case.world)
    case.world.step()
    case.reconcile()
    case.abandon()
    case.settle()
    case.world.step()
    assert case.world.client.get(SECRET, f"{IDENTITY}-credentials", OPERATOR) == source
    assert case.world.client.get(TERRAFORM_CLUSTER_IDENTITY, IDENTITY) == identity


@pytest.mark.acceptance("TN16")
@pytest.mark.parametrize("owner", ["with an owner", "without an owner"])
@pytest.mark.parametrize("annotation", ["its own", "another's", "absent"])
def test_a_moved_object_is_held_by_its_annotation_alone(case: Case, annotation: str, owner: str) -> None:
    moved = _moved(case)
    value = {"its own": case.suffix, "another's": "0123456789abcdef-m", "absent": None}[annotation]
    if value is None:
        moved["metadata"]["annotations"].pop("captf.io/applied-as")
    else:
        moved["metadata"]["annotations"]["captf.io/applied-as"] = value
    if owner == "without an owner":
        moved["metadata"].pop("ownerReferences")
    case.world.create(KINDS[case.kind], moved, TEAM)
    terminate(case.world)
    case.delete()
    jobs = case.created_jobs()
    requeue = case.reconcile()
    if annotation == "its own":
        assert requeue == 60
        assert not case.released
        assert case.says("StateReadable") == "False/StateLost"
        assert "captf.io/applied-as" in case.message("StateReadable")
    else:
        assert requeue == 0
        assert case.released
        assert case.reasons()[-1] == "FinalizerRemoved"
    assert case.created_jobs() == jobs, "nothing is destroyed either way"


@pytest.mark.acceptance("TN16")
def test_the_annotation_is_there_after_the_first_success(case: Case) -> None:
    case.provision()
    assert case.annotations["captf.io/applied-as"] == case.suffix


@pytest.mark.acceptance("TN17")
def test_the_operator_docs_say_to_move_first() -> None:
    pages = {path: path.read_text() for path in DOCS.rglob("*.md")}
    saying = [
        path
        for path, text in pages.items()
        if "clusterctl move" in text and "source namespace" in text and "has taken over" in text
    ]
    assert saying, "no page of docs/ says to delete the source namespace only after the target took over"


def _moved(case: Case) -> Object:
    """What a mover copies of the object: everything but its status and what the API server sets."""
    case.provision()
    obj = case.object
    meta = obj["metadata"]
    copied = {
        key: meta[key]
        for key in ("name", "labels", "annotations", "ownerReferences", "finalizers")
        if key in meta
    }
    force_gone(case)
    case.world.delete(case.kind, case.name)
    for secret in case.world.client.list(SECRET, TEAM).items:
        if case.suffix in name_of(secret) or name_of(secret) in case.inputs_secrets:
            case.remove_secret(name_of(secret))
    return {"metadata": copied, "spec": obj["spec"]}


def _end_pods(world: World) -> None:
    """What a kubelet does with pods that are being deleted."""
    for pod in world.client.list(POD, TEAM).items:
        world.client.raw(
            "DELETE", f"/api/v1/namespaces/{TEAM}/pods/{name_of(pod)}", body={"gracePeriodSeconds": 0}
        )
