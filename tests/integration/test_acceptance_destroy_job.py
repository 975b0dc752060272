"""The acceptance rows of the destroy Job, each as a user would see it."""

from __future__ import annotations

import re

import pytest
from tests.deletion_case import KINDS, Case, arguments_of, image_of
from tests.world import DIGEST, IDENTITY, OPERATOR, OUTPUTS, TEAM, Outcome, World, secret

from captf_controllers.api import names
from captf_controllers.api.kinds import TERRAFORM_CLUSTER_IDENTITY, TERRAFORM_PLAN
from captf_runtime.client.errors import ApiError
from captf_runtime.objects import (
    CONFIG_MAP,
    JOB,
    LEASE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
    name_of,
    uid_of,
)
from captf_runtime.testing.faults import Match, internal_error

MIRROR = names.credential_mirror(IDENTITY)
BINDING = ACCOUNT = "captf-runner"
REFUSED = "Destroy waits until the identity allows this namespace again"
RETAIN = "spec.deletionPolicy: Retain"


def delete_identity(world: World) -> None:
    world.client.delete(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, propagation_policy="Background")


def narrow_identity(world: World) -> None:
    patch: Object = {"spec": {"allowedNamespaces": {"list": ["elsewhere"], "selector": None}}}
    world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, patch)


def widen_identity(world: World) -> None:
    patch: Object = {"spec": {"allowedNamespaces": {"list": [TEAM]}}}
    world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, patch)


def delete_source_secret(world: World) -> None:
    world.client.delete(SECRET, f"{IDENTITY}-credentials", OPERATOR, propagation_policy="Background")


def restore_source_secret(world: World) -> None:
    world.create(SECRET, secret(f"{IDENTITY}-credentials", {"TOKEN": "t"}), OPERATOR)


def occupy_mirror(world: World) -> None:
    """Put somebody else's Secret where the mirror is."""
    world.client.delete(SECRET, MIRROR, TEAM, propagation_policy="Background")
    world.create(SECRET, secret(MIRROR, {"mine": "yes"}), TEAM)


def free_mirror(world: World) -> None:
    world.client.delete(SECRET, MIRROR, TEAM, propagation_policy="Background")


def occupy_binding(world: World) -> None:
    """Put somebody else's RoleBinding where the runner's is."""
    world.client.delete(ROLE_BINDING, BINDING, TEAM, propagation_policy="Background")
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    world.create(ROLE_BINDING, {"metadata": {"name": BINDING}, "roleRef": reference, "subjects": []}, TEAM)


def free_binding(world: World) -> None:
    world.client.delete(ROLE_BINDING, BINDING, TEAM, propagation_policy="Background")


def credentials_of(job: Object) -> str:
    """The Secret that a Job takes its credentials from."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    return str(container["envFrom"][0]["secretRef"]["name"])


# What is decided, and what is not in the way


@pytest.mark.acceptance("DJ1")
def test_a_destroy_job_is_decided(case: Case) -> None:
    case.provision()
    case.delete()
    assert case.reconcile() == 60
    job = case.job()
    assert re.fullmatch(rf"captf-{case.short}-{case.name}-destroy-a1-[0-9a-f]{{6}}", name_of(job))
    assert case.status["activeJob"]["name"] == name_of(job)
    assert case.created_jobs() == [name_of(job)]
    assert f"destroy Job {name_of(job)}" in case.message("Deleting")


@pytest.mark.acceptance("DJ1")
def test_no_destroy_while_another_job_runs(case: Case) -> None:
    case.add()
    case.settle()
    apply = case.job("apply")
    case.delete()
    for _ in range(3):
        assert case.reconcile() == 60
    assert case.jobs() == [case.job("apply")]
    assert f"apply Job {name_of(apply)}" in case.message("Deleting")
    case.end()
    assert case.reconcile() == 60
    assert case.job("destroy")


@pytest.mark.acceptance("DJ1")
def test_a_cluster_is_destroyed_after_its_machines(world: World) -> None:
    machine = Case(world, "TerraformMachine")
    machine.provision()
    world.keep("TerraformCluster", "prod")
    world.delete("TerraformCluster", "prod")
    assert world.reconcile("TerraformCluster", "prod") == 30
    assert world.says("TerraformCluster", "prod", "DeletionBlocked") == "True/DependentsExist"
    message = world.condition("TerraformCluster", "prod", "DeletionBlocked")["message"]
    assert message.startswith("1 TerraformMachine (m1) of Cluster prod")
    assert world.jobs("prod", op="destroy") == []
    machine.delete(keep=False)
    machine.reconcile()
    machine.end()
    machine.reconcile()
    assert world.find("TerraformMachine", "m1") is None
    assert world.reconcile("TerraformCluster", "prod") == 60
    assert world.says("TerraformCluster", "prod", "DeletionBlocked") == "False/NotBlocked"
    assert world.running_job("prod", op="destroy")


@pytest.mark.acceptance("DJ2")
def test_nothing_but_destroys_while_deleting(case: Case) -> None:
    case.provision(drift={"intervalSeconds": 300})
    case.delete()
    case.world.events.events.clear()
    if case.kind != "TerraformCluster":
        exports = {**OUTPUTS["TerraformCluster"], "exports": {"network_id": "net-2"}}
        case.world.write_state("TerraformCluster", "prod", outputs=exports)
    case.reconcile()
    for round_ in range(4):
        if case.kind != "TerraformMachine":
            case.spec(variables={"round": round_})
        for _ in range(3):
            case.reconcile()
        case.end("failed")
        case.reconcile()
        case.advance(3 * 3600)
        assert case.reconcile() == 60
    created = case.created_jobs()
    assert len(created) == 5
    assert all("-destroy-a" in name for name in created)


@pytest.mark.acceptance("DJ3")
def test_a_pending_plan_of_a_manual_cluster_is_not_in_the_way(cluster_case: Case) -> None:
    case = cluster_case
    case.provision(applyPolicy="Manual")
    case.spec(variables={"size": 2})
    plan = case.world.create(
        TERRAFORM_PLAN,
        {
            "metadata": {
                "name": "c1-plan",
                "labels": names.owner_labels(case.kind, case.name),
                "ownerReferences": [
                    {
                        "apiVersion": case.object["apiVersion"],
                        "kind": case.kind,
                        "name": case.name,
                        "uid": case.uid,
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "reason": "Manual",
                "targetRef": {"kind": case.kind, "name": case.name},
                "inputsHash": "h2:" + "1" * 64,
                "planHash": "h1:" + "2" * 64,
                "summary": {"create": 1},
            },
        },
        TEAM,
    )
    case.delete()
    assert case.reconcile() == 60
    assert_unguarded(case.job("destroy"))
    left = case.world.client.get(TERRAFORM_PLAN, "c1-plan", TEAM)
    assert left["spec"] == plan["spec"]
    assert left["metadata"]["resourceVersion"] == plan["metadata"]["resourceVersion"]
    assert "spec.approved" not in case.message("ApplyJobSucceeded")


@pytest.mark.acceptance("DJ3")
def test_a_blocked_apply_is_not_in_the_way(mutable_case: Case) -> None:
    case = mutable_case
    case.provision()
    case.spec(variables={"size": 2})
    case.reconcile()
    case.end("blocked")
    case.reconcile()
    assert case.says("ApplyJobSucceeded") == "False/DestructivePlanBlocked"
    case.delete()
    assert case.reconcile() == 60
    assert_unguarded(case.job("destroy"))
    assert case.says("ApplyJobSucceeded") == "False/DestructivePlanBlocked"
    assert "no approval is needed" in case.message("ApplyJobSucceeded")


@pytest.mark.acceptance("DJ3")
def test_no_destroy_is_ever_guarded(case: Case) -> None:
    assert_unguarded(case.destroying())


def assert_unguarded(job: Object) -> None:
    arguments = arguments_of(job)
    assert "--op=destroy" in arguments
    for flag in ("--guard-deletes", "--expect-plan", "--allow-deletes-hash", "--plan-key-file"):
        assert not any(argument.startswith(flag) for argument in arguments)
    assert not any(volume["name"] == "plan-key" for volume in job["spec"]["template"]["spec"]["volumes"])


@pytest.mark.acceptance("DJ4")
def test_the_policy_check_is_skipped(case: Case) -> None:
    case.provision()
    case.spec(jobs={"activeDeadlineSeconds": 300, "lockTimeoutSeconds": 300})
    if case.kind != "TerraformMachine":
        case.spec(variables={"size": 2})
        assert case.reconcile() == 600
        assert case.says("ApplyJobSucceeded") == "False/JobPolicyInvalid"
    case.delete()
    assert case.reconcile() == 60
    job = case.job("destroy")
    assert job["spec"]["activeDeadlineSeconds"] == 300
    assert "--lock-timeout=300s" in arguments_of(job)


@pytest.mark.acceptance("DJ4")
def test_the_policy_check_stops_a_live_apply(case: Case) -> None:
    case.add(jobs={"activeDeadlineSeconds": 60, "lockTimeoutSeconds": 120})
    assert case.settle() == 600
    assert case.says("ApplyJobSucceeded") == "False/JobPolicyInvalid"


@pytest.mark.acceptance("DJ5")
def test_no_input_gate_stops_a_destroy(case: Case) -> None:
    source = {"metadata": {"name": "extra", "labels": {"captf.io/variables": "true"}}, "data": {"a": "1"}}
    case.add(variablesFrom=[{"configMapRef": {"name": "extra"}}])
    case.world.create(CONFIG_MAP, source, TEAM)
    case.world.provision(case.kind, case.name)
    before = case.world.condition(case.kind, case.name, "DependenciesReady")
    case.world.client.delete(CONFIG_MAP, "extra", TEAM, propagation_policy="Background")
    if case.kind != "TerraformCluster":
        case.remove_secret(f"{case.name}-bootstrap")
    case.remove_owner()
    case.delete()
    assert case.reconcile() == 60
    assert case.job("destroy")
    after = case.world.condition(case.kind, case.name, "DependenciesReady")
    assert (after["status"], after["reason"]) == (before["status"], before["reason"])
    assert after["lastTransitionTime"] == before["lastTransitionTime"]


# What it renders


def applied_files(case: Case, **spec: object) -> dict[str, bytes]:
    """Provision the object; the files that its apply ran with."""
    case.add(**spec)
    case.settle()
    files = case.run_files(case.job("apply"))
    case.end()
    case.settle()
    return files


@pytest.mark.acceptance("DJ6")
def test_a_destroy_renders_what_was_applied(case: Case) -> None:
    files = applied_files(case)
    case.delete()
    case.reconcile()
    assert case.run_files(case.job("destroy")) == files
    assert set(files) == {"main.tf.json", "terraform.tfvars.json"}


@pytest.mark.acceptance("DJ6")
@pytest.mark.parametrize("change", ["not applied", "blocked", "failed validation"])
def test_what_never_changed_resources_is_not_rendered(mutable_case: Case, change: str) -> None:
    case = mutable_case
    files = applied_files(case)
    case.spec(variables={"size": 2})
    if change != "not applied":
        case.reconcile()
        assert case.run_files(case.job("apply")) != files
        if change == "blocked":
            case.end("blocked")
        else:
            case.end("failed", steps=("init", "validate"))
        case.reconcile()
    case.delete()
    case.reconcile()
    assert case.run_files(case.job("destroy")) == files


@pytest.mark.acceptance("DJ6")
def test_an_attempt_that_may_have_changed_resources_is_replayed(mutable_case: Case) -> None:
    case = mutable_case
    files = applied_files(case)
    case.spec(variables={"size": 2})
    case.reconcile()
    attempt = case.run_files(case.job("apply"))
    assert attempt != files
    case.end("failed")
    case.reconcile()
    case.delete()
    case.reconcile()
    assert case.run_files(case.job("destroy")) == attempt
    assert len(case.notes("DestroyInputsMismatch")) == 1


@pytest.mark.acceptance("DJ6")
def test_the_applied_record_serves_when_the_durable_secret_is_gone(case: Case) -> None:
    files = applied_files(case)
    case.remove_secret(names.durable_inputs_secret(case.kind, case.name))
    case.delete()
    case.reconcile()
    assert case.run_files(case.job("destroy")) == files


@pytest.mark.acceptance("DJ7")
def test_current_inputs_stand_in_for_lost_records(mutable_case: Case) -> None:
    case = mutable_case
    files = applied_files(case)
    case.remove_inputs()
    case.spec(variables={"size": 2})
    case.delete()
    assert case.reconcile() == 60
    rendered = case.run_files(case.job("destroy"))
    assert rendered != files
    assert b'"size":2' in rendered["main.tf.json"].replace(b" ", b"") + rendered[
        "terraform.tfvars.json"
    ].replace(b" ", b"")


@pytest.mark.acceptance("DJ7")
def test_a_closed_gate_leaves_nothing_to_render(mutable_case: Case) -> None:
    case = mutable_case
    applied_files(case)
    case.remove_inputs()
    case.spec(variablesFrom=[{"configMapRef": {"name": "missing"}}])
    case.delete()
    assert_nothing_to_render(case)


@pytest.mark.acceptance("DJ8")
def test_a_machine_never_falls_back(machine_case: Case) -> None:
    machine_case.provision()
    machine_case.remove_inputs()
    machine_case.delete()
    assert_nothing_to_render(machine_case)


def assert_nothing_to_render(case: Case) -> None:
    case.world.events.events.clear()
    for _ in range(3):
        assert case.reconcile() == 600
        case.advance(600)
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"
    message = case.message("ApplyJobSucceeded")
    assert "the durable inputs Secret is missing" in message
    assert RETAIN in message
    assert f"captf.io/abandon-infrastructure={case.uid}" in message
    assert case.created_jobs() == []
    assert len(case.notes("JobFailed")) == 1
    assert not case.released


@pytest.fixture
def recorded(world: World) -> Case:
    """A machine applied with identity ``old`` and image v1, whose cluster names identity ``new`` since."""
    world.add_identity("old")
    world.add_identity("new")
    world.add("TerraformCluster", "prod", defaults={"identityRef": {"name": "old"}})
    world.provision("TerraformCluster", "prod")
    world.add("TerraformMachine", "m1")
    world.provision("TerraformMachine", "m1")
    world.patch("TerraformCluster", "prod", {"spec": {"defaults": {"identityRef": {"name": "new"}}}})
    return Case(world, "TerraformMachine")


def assert_torn_down_as_recorded(case: Case) -> None:
    case.delete()
    assert case.reconcile() == 60
    job = case.job("destroy")
    assert image_of(job) == f"example.com/modules/x@{DIGEST}"
    assert credentials_of(job) == "captf-creds-old"
    case.end()
    case.reconcile()
    assert case.released
    assert not case.has_secret("captf-creds-old")


@pytest.mark.acceptance("DJ9")
def test_a_machine_is_torn_down_as_recorded(recorded: Case) -> None:
    assert_torn_down_as_recorded(recorded)


@pytest.mark.acceptance("DJ9")
def test_a_machine_made_again_with_another_image_is_torn_down_as_recorded(recorded: Case) -> None:
    case = recorded
    case.patch({"metadata": {"finalizers": None}})
    case.world.delete(case.kind, case.name)
    case.world.add(case.kind, case.name, source={"image": "example.com/modules/x:v2"})
    case.settle()
    assert case.status["initialization"]["provisioned"] is True
    assert_torn_down_as_recorded(case)


# Leases


@pytest.mark.acceptance("DJ10")
def test_one_job_at_a_time(case: Case) -> None:
    case.provision()
    case.world.add_job("somebody-elses")
    case.world.hold_run_lease(case.kind, case.name, "somebody-elses")
    case.delete()
    assert case.reconcile() == 30
    assert case.says("ApplyJobSucceeded") == "Unknown/WaitingForRunLease"
    assert "somebody-elses" in case.message("ApplyJobSucceeded")
    assert RETAIN in case.message("ApplyJobSucceeded")
    assert case.holder() == "somebody-elses"
    assert case.jobs("destroy") == []
    case.world.client.delete(JOB, "somebody-elses", TEAM, propagation_policy="Background")
    case.advance(61)
    assert case.reconcile() == 60
    assert case.holder() == name_of(case.job("destroy"))


@pytest.mark.acceptance("DJ10")
def test_the_run_lease_names_the_destroy_job(case: Case) -> None:
    job = case.destroying()
    assert case.holder() == name_of(job)
    case.end("failed")
    case.reconcile()
    assert case.own_leases() == []


@pytest.mark.acceptance("DJ11")
def test_a_cluster_waits_for_machine_operations(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    case.world.add_job("captf-m-m9-destroy-a1-abcdef")
    case.world.hold_run_lease("TerraformMachine", "m9", "captf-m-m9-destroy-a1-abcdef", cluster="c1")
    case.delete()
    assert case.reconcile() == 30
    assert case.says("ApplyJobSucceeded") == "Unknown/WaitingForMachineOperations"
    assert "captf-m-m9-destroy-a1-abcdef" in case.message("ApplyJobSucceeded")
    holder = case.holder()
    assert "-destroy-a1-" in holder
    assert case.holder_of(names.cluster_lease(TEAM, "c1")) == holder
    assert case.jobs("destroy") == []
    assert case.reconcile() == 30
    case.world.client.delete(
        LEASE,
        names.run_lease(names.state_suffix(TEAM, "TerraformMachine", "m9")),
        TEAM,
        propagation_policy="Background",
    )
    assert case.reconcile() == 60
    assert name_of(case.job("destroy")) == holder


@pytest.mark.acceptance("DJ11")
def test_no_gate_no_wait(cluster_case: Case) -> None:
    case = cluster_case
    case.provision()
    case.world.add_job("captf-m-m9-destroy-a1-abcdef")
    case.world.hold_run_lease("TerraformMachine", "m9", "captf-m-m9-destroy-a1-abcdef", cluster="c1")
    case.world.restart(cluster_operation_gate=False)
    case.delete()
    assert case.reconcile() == 60
    assert case.job("destroy")


@pytest.mark.acceptance("DJ12")
@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformMachinePool"])
def test_a_machine_waits_for_a_cluster_operation(world: World, kind: str) -> None:
    case = Case(world, kind)
    case.provision()
    world.add_job("captf-c-prod-apply-a2-abcdef")
    world.hold_write_lease("prod", "captf-c-prod-apply-a2-abcdef")
    case.delete()
    assert case.reconcile() == 30
    assert case.says("ApplyJobSucceeded") == "Unknown/WaitingForClusterOperation"
    assert "captf-c-prod-apply-a2-abcdef" in case.message("ApplyJobSucceeded")
    assert case.own_leases() == []
    assert case.jobs("destroy") == []


@pytest.mark.acceptance("DJ13")
def test_a_wait_is_no_failure(case: Case) -> None:
    case.provision()
    case.world.add_job("somebody-elses")
    case.world.hold_run_lease(case.kind, case.name, "somebody-elses")
    case.delete()
    case.world.events.events.clear()
    for _ in range(4):
        assert case.reconcile() == 30
        assert case.says("ApplyJobSucceeded") == "Unknown/WaitingForRunLease"
        case.advance(30)
    assert case.reasons().count("WaitingForRunLease") == 1
    events = case.world.events.of("WaitingForRunLease", case.name)
    assert [event["type"] for event in events] == ["Normal"]
    case.world.client.delete(JOB, "somebody-elses", TEAM, propagation_policy="Background")
    assert case.reconcile() == 60
    case.end("failed")
    assert case.reconcile() == 60
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"


@pytest.mark.acceptance("DJ13")
def test_an_unchanged_wait_writes_nothing_on_the_object(case: Case) -> None:
    case.provision()
    case.world.add_job("somebody-elses")
    case.world.hold_run_lease(case.kind, case.name, "somebody-elses")
    case.delete()
    case.reconcile()
    version = case.object["metadata"]["resourceVersion"]
    case.advance(30)
    case.reconcile()
    assert case.object["metadata"]["resourceVersion"] == version


# Credentials


@pytest.mark.acceptance("DJ14")
def test_a_live_object_prepares_credentials_on_every_pass(case: Case) -> None:
    case.provision()
    things = ((SECRET, MIRROR), (SERVICE_ACCOUNT, ACCOUNT), (ROLE_BINDING, BINDING))
    for kind, name in things:
        case.world.client.delete(kind, name, TEAM, propagation_policy="Background")
    case.reconcile()
    for kind, name in things:
        assert case.world.exists(kind, name), name
    jobs = len(case.jobs())
    narrow_identity(case.world)
    case.reconcile()
    assert case.says("IdentityAllowed") == "False/NamespaceNotAllowed"
    assert len(case.jobs()) == jobs


@pytest.mark.acceptance("DJ14")
def test_a_live_object_checks_credentials_while_a_job_runs(case: Case) -> None:
    case.add()
    case.settle()
    assert case.job("apply")
    narrow_identity(case.world)
    assert case.reconcile() == 60
    assert case.says("IdentityAllowed") == "False/NamespaceNotAllowed"


def created_access(world: World) -> list[str]:
    """Which parts of the credentials somebody tried to create."""
    return [entry for part in ("secrets", "serviceaccounts", "rolebindings") for entry in world.created(part)]


@pytest.mark.acceptance("DJ15")
def test_what_never_applied_does_not_wait_for_credentials(case: Case) -> None:
    case.add()
    delete_identity(case.world)
    case.reconcile()
    case.reconcile()
    assert case.says("IdentityAllowed") == "False/IdentityNotFound"
    case.delete(keep=False)
    case.world.forget_requests()
    case.world.events.events.clear()
    assert case.reconcile() == 0
    assert case.world.find(case.kind, case.name) is None
    assert created_access(case.world) == []
    assert case.reasons()[-1] == "FinalizerRemoved"


@pytest.mark.acceptance("DJ15")
def test_an_abandon_does_not_wait_for_credentials(case: Case) -> None:
    case.provision()
    delete_identity(case.world)
    for kind, name in ((SECRET, MIRROR), (SERVICE_ACCOUNT, ACCOUNT), (ROLE_BINDING, BINDING)):
        case.world.client.delete(kind, name, TEAM, propagation_policy="Background")
    case.remove_secrets(case.states())
    case.abandon()
    case.delete(keep=False)
    case.world.forget_requests()
    assert case.reconcile() == 0
    assert case.world.find(case.kind, case.name) is None
    assert created_access(case.world) == []


@pytest.mark.acceptance("DJ16")
@pytest.mark.parametrize("refuse", [narrow_identity, delete_identity])
def test_a_refused_identity(case: Case, refuse: object) -> None:
    case.provision()
    case.delete()
    refuse(case.world)  # type: ignore[operator]
    assert case.reconcile() == 30
    assert case.says("ApplyJobSucceeded") == "False/IdentityNotAllowed"
    message = case.message("ApplyJobSucceeded")
    assert message.startswith(REFUSED)
    assert RETAIN in message
    assert f"captf.io/abandon-infrastructure={case.uid}" in message
    assert case.says("IdentityAllowed").startswith("False/")
    assert case.jobs("destroy") == []
    assert len(case.notes("IdentityNotAllowed")) == 1
    assert len(case.notes("JobFailed")) == 1


CREDENTIALS = {
    "source Secret": (
        delete_source_secret,
        restore_source_secret,
        "IdentityAllowed is False (SecretNotFound)",
    ),
    "mirror": (occupy_mirror, free_mirror, "CredentialsMirrored is False (MirrorFailed)"),
    "binding": (occupy_binding, free_binding, "RunnerRBACReady is False (RBACFailed)"),
}


@pytest.mark.acceptance("DJ17")
@pytest.mark.parametrize("obstacle", sorted(CREDENTIALS))
def test_credentials_that_cannot_be_prepared(case: Case, obstacle: str) -> None:
    put, _, text = CREDENTIALS[obstacle]
    case.provision()
    case.delete()
    put(case.world)
    assert case.reconcile() == 30
    message = case.message("Deleting")
    assert message.startswith(f"The destroy Job waits for its credentials: {text}")
    assert RETAIN in message
    assert f"captf.io/abandon-infrastructure={case.uid}" in message
    assert case.says("Deleting") == "True/Deleting"
    assert case.says("ApplyJobSucceeded") == "True/ApplySucceeded"
    assert case.jobs("destroy") == []


WAITS = {
    **{name: (put, repair) for name, (put, repair, _) in CREDENTIALS.items()},
    "refusal": (narrow_identity, widen_identity),
}


@pytest.mark.acceptance("DJ18")
@pytest.mark.parametrize("way", ["abandon", "repair"])
@pytest.mark.parametrize(
    ("kind", "obstacle"),
    [(kind, "refusal") for kind in sorted(KINDS)]
    + [("TerraformMachine", name) for name in sorted(CREDENTIALS)],
)
def test_credential_waits_end(world: World, kind: str, obstacle: str, way: str) -> None:
    case = Case(world, kind)
    put, repair = WAITS[obstacle]
    case.provision()
    case.delete()
    put(case.world)
    for _ in range(3):
        assert case.reconcile() == 30
        case.advance(30)
    if way == "abandon":
        case.abandon()
        assert case.reconcile() == 0
        assert case.released
        assert "InfrastructureAbandoned" in case.reasons()
        assert case.jobs("destroy") == []
    else:
        repair(case.world)
        assert case.reconcile() == 60
        assert case.job("destroy")


# Results and retries


@pytest.mark.acceptance("DJ19")
def test_success_cleans_up_in_the_same_pass(case: Case) -> None:
    job = case.destroying()
    case.world.events.events.clear()
    case.end()
    assert case.reconcile() == 0
    assert case.released
    assert case.says("ApplyJobSucceeded") == "True/DestroySucceeded"
    assert case.states() == []
    assert not any(case.has_secret(name) for name in case.inputs_secrets)
    assert not case.has_secret(names.plan_key_secret(case.kind, case.name))
    assert not case.has_secret(names.per_run_secret(name_of(job)))
    assert case.own_leases() == []
    assert not case.world.exists(LEASE, names.state_lock_lease(case.suffix))
    assert case.reasons()[-2:] == ["Destroyed", "FinalizerRemoved"]
    assert "JobSucceeded" in case.reasons()
    assert case.notes("Destroyed") == ["Infrastructure destroyed; state and inputs removed"]
    assert case.backups()


@pytest.mark.acceptance("DJ19")
def test_after_success_the_object_is_gone(case: Case) -> None:
    case.provision()
    case.delete(keep=False)
    case.reconcile()
    case.end()
    case.reconcile()
    assert case.world.find(case.kind, case.name) is None


@pytest.mark.acceptance("DJ20")
def test_failures_are_retried_for_ever(case: Case) -> None:
    case.destroying()
    assert case.fail(5) == [60, 120, 600, 600, 600]
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"
    message = case.message("ApplyJobSucceeded")
    assert "Error: boom" in message
    assert RETAIN in message
    assert f"captf.io/abandon-infrastructure={case.uid}" in message
    attempts = [name.rpartition("-")[0].rpartition("-")[2] for name in case.created_jobs()]
    assert attempts[-5:] == ["a1", "a2", "a3", "a4", "a5"]
    assert not case.released
    assert len(case.states()) == 1
    assert len(case.notes("JobFailed")) == 5
    assert case.notes("JobInterrupted") == []
    note = case.notes("JobFailed")[0]
    assert len(note.encode()) <= 512
    assert "a backoff of 60 s after 1 failure" in note


@pytest.mark.acceptance("DJ20", "DJ24")
def test_nothing_starts_within_the_backoff(case: Case) -> None:
    case.destroying()
    case.end("failed")
    assert case.reconcile() == 60
    case.advance(45)
    assert case.reconcile() == 15
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"
    version = case.object["metadata"]["resourceVersion"]
    case.advance(14)
    assert case.reconcile() == 1
    assert case.object["metadata"]["resourceVersion"] == version
    assert len(case.jobs("destroy")) == 1
    case.advance(1)
    assert case.reconcile() == 60
    assert len(case.jobs("destroy")) == 2


@pytest.mark.acceptance("DJ21")
def test_a_killed_destroy_counts_although_it_says_interrupted(case: Case) -> None:
    case.destroying()
    assert case.fail(4, "deadline") == [60, 120, 600, 600]
    assert case.says("ApplyJobSucceeded") == "False/JobDeadlineExceeded"
    assert RETAIN in case.message("ApplyJobSucceeded")
    assert len(case.notes("JobDeadlineExceeded")) == 4
    assert "JobInterrupted" not in case.reasons()
    assert not case.released


@pytest.mark.acceptance("DJ22")
@pytest.mark.parametrize(
    ("outcome", "reason"), [("pull-failed", "ImagePullFailed"), ("image-layout", "ImageInvalid")]
)
def test_images_that_do_not_serve(case: Case, outcome: Outcome, reason: str) -> None:
    case.destroying()
    assert case.fail(3, outcome) == [60, 120, 600]
    assert case.says("ApplyJobSucceeded") == f"False/{reason}"
    assert RETAIN in case.message("ApplyJobSucceeded")
    assert not case.released


@pytest.mark.acceptance("DJ23")
def test_an_evicted_destroy_is_retried_at_once(case: Case) -> None:
    job = case.destroying()
    before = case.world.condition(case.kind, case.name, "ApplyJobSucceeded")
    case.end("interrupted")
    assert case.reconcile() == 60
    assert case.notes("JobInterrupted") == [
        f"destroy Job {name_of(job)} was stopped from outside; it is retried without backoff"
    ]
    assert case.world.events.of("JobInterrupted", case.name)[0]["type"] == "Warning"
    again = case.job("destroy")
    assert name_of(again) != name_of(job)
    assert case.world.condition(case.kind, case.name, "ApplyJobSucceeded") == before
    case.reconcile()
    assert len(case.notes("JobInterrupted")) == 1


@pytest.mark.acceptance("DJ23")
def test_an_interruption_is_told_once_though_the_pass_is_repeated(case: Case) -> None:
    case.destroying()
    case.end("interrupted")
    match = Match(verb="patch", resource=f"{case.kind.lower()}s", name=case.name)
    case.world.server.faults.add(match, internal_error(), times=1)
    with pytest.raises(ApiError):
        case.reconcile()
    case.settle()
    assert len(case.notes("JobInterrupted")) == 1


@pytest.mark.acceptance("DJ23")
def test_a_deleted_destroy_job_is_retried_at_once(case: Case) -> None:
    job = case.destroying()
    before = case.world.condition(case.kind, case.name, "ApplyJobSucceeded")
    case.world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
    case.world.step()
    assert case.reconcile() == 60
    assert len(case.notes("JobInterrupted")) == 1
    assert name_of(job) in case.notes("JobInterrupted")[0]
    assert uid_of(case.job("destroy")) != uid_of(job)
    assert case.world.condition(case.kind, case.name, "ApplyJobSucceeded") == before
    case.reconcile()
    assert len(case.notes("JobInterrupted")) == 1


@pytest.mark.acceptance("DJ23")
def test_an_interruption_neither_counts_nor_ends_a_count(case: Case) -> None:
    case.destroying()
    assert case.fail(1) == [60]
    case.advance(60)
    case.reconcile()
    case.end("interrupted")
    assert case.reconcile() == 60
    assert case.job("destroy")
    assert case.fail(1) == [120]


@pytest.mark.acceptance("DJ23", "HD25")
def test_an_interruption_leaves_what_an_earlier_failure_says(case: Case) -> None:
    """Also when the Job that failed is gone, and with it all that could tell of the failure again."""
    failed = case.destroying()
    assert case.fail(1) == [60]
    told = case.message("ApplyJobSucceeded")
    assert name_of(failed) in told
    case.advance(60)
    assert case.reconcile() == 60
    case.world.client.delete(JOB, name_of(failed), TEAM, propagation_policy="Background")
    case.world.step()
    case.end("interrupted")
    assert case.reconcile() == 60
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"
    assert name_of(failed) in case.message("ApplyJobSucceeded")


@pytest.mark.acceptance("DJ24")
def test_the_backoff_doubles_up_to_ten_minutes(case: Case) -> None:
    case.destroying(jobs={"failedJobsHistoryLimit": 10})
    assert case.fail(6) == [60, 120, 240, 480, 600, 600]


@pytest.mark.acceptance("DJ24")
def test_the_backoff_counts_from_the_finish(case: Case) -> None:
    case.destroying()
    case.end("failed")
    case.advance(25)
    assert case.reconcile() == 35


@pytest.mark.acceptance("DJ25")
@pytest.mark.parametrize(
    ("limit", "waits"), [(None, [60, 120, 600]), (0, [600, 600]), (1, [600, 600]), (2, [60, 600])]
)
def test_the_cap_applies_from_the_retained_failures_on(
    case: Case, limit: int | None, waits: list[int]
) -> None:
    case.destroying(**({} if limit is None else {"jobs": {"failedJobsHistoryLimit": limit}}))
    assert case.fail(len(waits)) == waits


@pytest.mark.acceptance("DJ26")
def test_no_retry_limit(case: Case) -> None:
    case.destroying()
    assert case.fail(20)[-1] == 600
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"
    assert case.says("Ready") == "False/NotReady"
    assert not case.released
    counted = re.search(
        rf'captf_jobs_total{{kind="{case.kind}",op="destroy",result="failed"}} (\S+)', case.world.scrape()
    )
    assert counted is not None
    assert float(counted[1]) == 20


@pytest.mark.acceptance("DJ27")
@pytest.mark.parametrize("way", ["fixed", "abandoned", "stripped"])
def test_ways_out_of_a_failing_destroy(case: Case, way: str) -> None:
    case.provision()
    case.delete(keep=False)
    case.reconcile()
    case.fail(3)
    if way == "fixed":
        case.advance(600)
        case.reconcile()
        case.end()
        case.reconcile()
    elif way == "abandoned":
        case.abandon()
        case.reconcile()
    else:
        case.patch({"metadata": {"finalizers": None}})
        assert case.reconcile() == 0
    assert case.world.find(case.kind, case.name) is None


@pytest.mark.acceptance("DJ28")
def test_the_next_attempt_goes_on_from_the_state_it_finds(case: Case) -> None:
    first = case.destroying()
    case.world.write_state(case.kind, case.name, resources=1, cluster=case.cluster)
    left = case.files_of(names.state_secret(case.suffix))
    serial = case.world.serial(case.kind, case.name)
    assert case.fail(1) == [60]
    assert case.files_of(names.state_secret(case.suffix)) == left
    assert case.status["observedStateSerial"] == serial
    case.advance(60)
    assert case.reconcile() == 60
    second = case.job("destroy")
    assert name_of(second) != name_of(first)
    backend = [item for item in arguments_of(second) if item.startswith("--backend-config")]
    assert backend == [item for item in arguments_of(first) if item.startswith("--backend-config")]
    case.end()
    case.reconcile()
    assert case.released


def test_outputs_that_a_destroy_took_away_are_not_held_against_the_module(case: Case) -> None:
    case.destroying()
    before = case.says("OutputsValid"), case.says("InfrastructureHealthy")
    case.world.write_state(case.kind, case.name, resources=1, cluster=case.cluster)
    case.end("failed")
    assert case.reconcile() == 60
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"
    assert (case.says("OutputsValid"), case.says("InfrastructureHealthy")) == before
    assert "OutputsInvalid" not in case.reasons()
