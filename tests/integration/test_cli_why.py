"""``captf why`` says what the manager says and does, names the ways out, and touches nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.command_line import CommandLine
from tests.deletion_case import KINDS, Case
from tests.situations import DELETIONS, LIVE, LOCK_HOLDER, dependents, lock, paused_deletion, refuse_identity
from tests.world import IDENTITY, TEAM, World

from captf_controllers.api import reasons
from captf_controllers.api.kinds import CLUSTER, MACHINE, TERRAFORM_CLUSTER_IDENTITY, TERRAFORM_PLAN
from captf_controllers.cli.connection import Place, connect
from captf_controllers.cli.diagnosis import OWN_CODES
from captf_controllers.cli.examination import Examination, examine
from captf_controllers.cli.why import next_step
from captf_controllers.deletion.decision import AdoptRetained, Cleanup, Start, Wait
from captf_runtime.client.errors import ApiError
from captf_runtime.objects import LEASE, NAMESPACE, POD, SECRET, format_time, labels_of, name_of
from captf_runtime.testing.faults import Match, forbidden


@pytest.fixture
def captf(world: World, tmp_path: Path) -> CommandLine:
    return CommandLine(world, world.server.kubeconfig(tmp_path / "config"))


def look(captf: CommandLine, case: Case) -> Examination:
    """The examination that the command makes."""
    with connect(Place(str(captf.kubeconfig), "", TEAM), case.world.clock) as connection:
        return examine(connection, case.object)


def first(captf: CommandLine, case: Case) -> dict[str, Any]:
    findings: list[dict[str, Any]] = captf.why(case)["findings"]
    return findings[0]


def purposes(finding: dict[str, Any]) -> str:
    return " | ".join(way["purpose"] for way in finding["exits"])


def commands(finding: dict[str, Any]) -> list[str]:
    return [command for way in finding["exits"] for command in way["commands"]]


def missing_ways(step: Wait, found: Examination, answer: list[str]) -> list[str]:
    """The ways of a wait that are no command of the answer. A restore needs a backup, and names its serial."""
    missing = []
    for way in step.ways:
        if way.name == "restore":
            restorable = bool(found.complete_serials)
            if restorable != any("captf.io/restore-state=" in command for command in answer):
                missing.append(way.name)
        elif way.command not in answer:
            missing.append(way.name)
    return missing


class TestAgreement:
    """Whatever why says of a deletion, the manager's next pass does and says."""

    @pytest.mark.parametrize("situation", DELETIONS)
    def test_the_step_is_the_one_that_the_pass_takes_and_its_ways_are_commands(
        self, captf: CommandLine, case: Case, situation: str
    ) -> None:
        DELETIONS[situation](case)
        known = OWN_CODES | {text for text in vars(reasons).values() if isinstance(text, str)}
        assert {finding["code"] for finding in captf.why(case)["findings"]} <= known
        found = look(captf, case)
        if found.active is not None:
            assert first(captf, case)["code"] == "JobRunning"
            assert case.reconcile() == 60
            return
        assert found.facts is not None
        step = next_step(found, found.facts)
        answer = captf.commands(case)
        requeue = case.reconcile()
        match step:
            case Wait():
                assert missing_ways(step, found, answer) == []
                assert requeue == pytest.approx(step.requeue_after, abs=20)
                for seen in step.conditions:
                    assert case.says(seen.type) == f"{seen.status}/{seen.reason}"
                    assert case.message(seen.type) == seen.message
            case Start(operation):
                assert case.job(operation)
            case Cleanup():
                assert case.released
            case AdoptRetained():
                assert requeue == 5
                assert not any("captf.io/retained-from-uid" in labels_of(item) for item in case.states())

    def test_a_wait_names_when_it_began(self, captf: CommandLine, case: Case) -> None:
        began = format_time(case.world.clock.now())
        DELETIONS["state lost"](case)
        case.advance(3600)
        case.reconcile()
        answer = captf.why(case)
        assert answer["findings"][0]["since"] == began
        assert answer["deletingSince"] == began


class TestReading:
    """Nothing is changed, and what may not be read is named."""

    @pytest.mark.parametrize("situation", ["state lost", "destroy failed", "deleted"])
    def test_only_reads(self, captf: CommandLine, case: Case, situation: str) -> None:
        DELETIONS[situation](case)
        captf.why(case)
        mine = [entry for entry in case.world.server.requests if "captf-cli" in entry.user_agent]
        assert {entry.verb for entry in mine} == {"get", "list"}

    def test_without_a_permission_the_conditions_answer(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        case.world.server.faults.add(Match(resource="secrets"), forbidden())
        answer = captf.why(case)
        assert f"list secrets in namespace {TEAM}" in answer["notRead"]
        (finding,) = answer["findings"]
        assert finding["code"] == "StateLost"
        assert f"captf.io/abandon-infrastructure={case.uid}" in " ".join(commands(finding))
        assert "captf.io/restore-state=<serial>" in " ".join(commands(finding))

    @pytest.mark.parametrize(
        ("situation", "code"),
        [
            ("destroy failed", "DestroyFailed"),
            ("identity refused", "IdentityNotAllowed"),
            ("run lease held", "WaitingForRunLease"),
            ("credentials missing", "Deleting"),
        ],
    )
    def test_other_waits_without_a_permission(
        self, captf: CommandLine, case: Case, situation: str, code: str
    ) -> None:
        DELETIONS[situation](case)
        case.world.server.faults.add(Match(resource="secrets"), forbidden())
        assert code in [finding["code"] for finding in captf.why(case)["findings"]]

    def test_the_object_itself_may_not_be_read(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.world.server.faults.add(Match(resource=KINDS[case.kind].plural), forbidden())
        answer = captf.run("why", case.kind, case.name)
        assert answer.code == 1
        assert answer.text.count("\n") == 1
        assert f"you may not get {KINDS[case.kind].resource} {case.name} in namespace {TEAM}" in answer.text

    def test_an_object_that_is_not_there(self, captf: CommandLine) -> None:
        answer = captf.run("why", "tfm", "nobody")
        assert answer.code == 1
        assert answer.text == f'Error: terraformmachine "nobody" not found in namespace {TEAM}\n'

    def test_no_value_of_a_state_comes_out(self, captf: CommandLine, case: Case) -> None:
        for situation in ("state lost", "destroy failed"):
            case.world.stage("the beginning", lambda: None)
            DELETIONS[situation](case)
            assert "s3cret" not in str(captf.why(case))


class TestDeletion:
    """Single waits in their own words."""

    def test_a_restore_names_the_newest_complete_backup(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        finding = first(captf, case)
        assert finding["title"] == "the deletion is held: its state is lost"
        assert "complete ones: 1" in purposes(finding)
        resource = case.kind.lower()
        assert commands(finding)[0] == (
            f"kubectl annotate {resource} -n {TEAM} {case.name} captf.io/restore-state=1 --overwrite"
        )

    def test_without_a_backup_no_restore_is_offered(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost, no backup"](case)
        finding = first(captf, case)
        assert "no complete backup exists" in purposes(finding)
        assert "restore-state" not in " ".join(commands(finding))

    def test_a_failed_destroy_says_when_the_next_one_is_due(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["destroy failed"](case)
        finding = first(captf, case)
        assert finding["code"] == "DestroyFailed"
        assert finding["nextLook"] == format_time(case.world.clock.now().replace(minute=1, second=0))
        assert "boom" in finding["message"]
        assert "Ways out" not in finding["message"]

    def test_dependents_are_named(self, captf: CommandLine, cluster_case: Case) -> None:
        dependents(cluster_case)
        finding = first(captf, cluster_case)
        assert finding["code"] == "DependentsExist"
        assert "2 TerraformMachine (a, b)" in finding["message"]

    def test_a_run_lease_names_its_holder(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["run lease held"](case)
        finding = first(captf, case)
        assert finding["code"] == "WaitingForRunLease"
        assert "captf-of-another" in finding["message"]

    def test_a_job_that_runs(self, captf: CommandLine, case: Case) -> None:
        job = case.destroying()
        case.world.start_pod(job)
        finding = first(captf, case)
        assert finding["code"] == "JobRunning"
        assert finding["title"] == "its destroy Job runs"
        assert name_of(job) in finding["message"]
        assert f"kubectl logs -n {TEAM} job/{name_of(job)} -c source --follow" in commands(finding)

    def test_a_job_that_waits_for_the_lock_of_somebody_else(self, captf: CommandLine, case: Case) -> None:
        job = case.destroying()
        case.world.start_pod(job)
        lock(case)
        finding = first(captf, case)
        assert f"The state is locked by {LOCK_HOLDER}, and the Job waits for that lock." in finding["message"]
        assert "release the lock" in purposes(finding)

    def test_what_retain_keeps_goes_with_a_namespace_that_is_being_deleted(
        self, captf: CommandLine, case: Case
    ) -> None:
        DELETIONS["state lost"](case)
        assert "keep its state for a later object" in purposes(first(captf, case))
        case.world.client.delete(NAMESPACE, TEAM, propagation_policy="Background")
        assert "takes it along" in purposes(first(captf, case))

    def test_a_pod_that_cannot_pull_its_image(self, captf: CommandLine, case: Case) -> None:
        job = case.destroying()
        pod = case.world.start_pod(job, phase="Pending")
        status = {
            "containerStatuses": [
                {
                    **pod["status"]["containerStatuses"][0],
                    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}},
                }
            ]
        }
        case.world.client.patch(POD, name_of(pod), {"status": status}, TEAM, subresource="status")
        message = first(captf, case)["message"]
        assert "Container source waits: ImagePullBackOff: no such tag." in message

    def test_a_foreign_lock_is_told_beside_the_destroy(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state locked"](case)
        codes = [finding["code"] for finding in captf.why(case)["findings"]]
        assert codes == ["DestroyDue", "StateLocked"]

    def test_the_lock_that_a_destroy_waits_for(self, captf: CommandLine, case: Case) -> None:
        case.destroying()
        lock(case)
        assert LOCK_HOLDER in first(captf, case)["message"]

    def test_pause_comes_first(self, captf: CommandLine, case: Case) -> None:
        paused_deletion(case)
        finding = first(captf, case)
        assert finding["title"] == "the deletion waits: it is paused"
        assert commands(finding) == [
            f"kubectl annotate {case.kind.lower()} -n {TEAM} {case.name} cluster.x-k8s.io/paused-"
        ]

    def test_the_cluster_of_the_label_pauses_an_object_without_owner(
        self, captf: CommandLine, case: Case
    ) -> None:
        case.provision()
        case.delete()
        if case.kind != "TerraformCluster":
            case.remove_owner()
        case.world.client.patch(CLUSTER, case.cluster, {"spec": {"paused": True}}, TEAM)
        assert case.reconcile() == 0
        assert case.says("Paused") == "True/Paused"
        finding = first(captf, case)
        assert finding["title"] == "the deletion waits: it is paused"
        assert f"Cluster {case.cluster} has spec.paused" in finding["message"]
        assert [command.split(" --type")[0] for command in commands(finding)] == [
            f"kubectl patch clusters.cluster.x-k8s.io -n {TEAM} {case.cluster}"
        ]

    def test_the_identity_is_the_one_that_the_jobs_run_with(
        self, captf: CommandLine, machine_case: Case
    ) -> None:
        """A machine's is recorded; what its cluster names since is another."""
        case = machine_case
        case.provision()
        case.world.add_identity("another")
        case.world.patch("TerraformCluster", "prod", {"spec": {"identityRef": {"name": "another"}}})
        refuse_identity(case.world)
        case.delete()
        assert case.reconcile() == 30
        assert f"TerraformClusterIdentity {IDENTITY}" in case.message("ApplyJobSucceeded")
        assert f"kubectl get terraformclusteridentity {IDENTITY} -o yaml" in commands(first(captf, case))

    def test_only_other_finalizers_are_left(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["never applied"](case)
        case.reconcile()
        finding = first(captf, case)
        assert finding["code"] == "OtherFinalizers"
        assert "tests.example.com/keep" in finding["message"]

    def test_a_value_that_is_ignored(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["wrong abandon"](case)
        assert f"is not this object's UID {case.uid}" in first(captf, case)["message"]

    def test_a_restore_that_was_consumed(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["restore failed"](case)
        finding = first(captf, case)
        assert finding["code"] == "StateLost"
        assert "names serial 1, which was restored or failed already" in finding["message"]

    def test_a_restore_beside_a_state_that_reads_is_ignored(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["destroy failed"](case)
        case.restore(1)
        assert "captf.io/restore-state is ignored" in captf.why(case)["notes"][0]

    def test_an_abandon_that_does_not_act(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["abandoned too early"](case)
        answer = captf.why(case)
        assert answer["findings"][0]["code"] == "DestroyDue"
        assert answer["notes"] == [
            "captf.io/abandon-infrastructure is set and acts only once a destroy failed or cannot start"
        ]

    def test_a_terminating_namespace(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["namespace terminating"](case)
        finding = first(captf, case)
        assert "captf.io/abandon-infrastructure" in " ".join(commands(finding))
        assert '"deletionPolicy":"Retain"' in " ".join(commands(finding))

    def test_a_quota_that_is_used_up(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["deleted"](case)
        case.world.server.faults.add(Match(verb="create", resource="jobs"), forbidden("exceeded quota: team"))
        with pytest.raises(ApiError):
            case.reconcile()
        finding = first(captf, case)
        assert finding["code"] == "DestroyDue"
        assert "exceeded quota: team" in finding["message"]
        assert '"deletionPolicy":"Retain"' in " ".join(commands(finding))

    def test_a_step_that_is_refused(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["destroyed"](case)
        fault = forbidden("policy says no")
        state = name_of(case.states()[0])
        added = case.world.server.faults.add(Match(verb="delete", resource="secrets", name=state), fault)
        with pytest.raises(ApiError):
            case.reconcile()
        added.remove()
        codes = {finding["code"]: finding for finding in captf.why(case)["findings"]}
        assert list(codes) == ["Destroyed", "Deleting"]
        assert "policy says no" in codes["Deleting"]["message"]

    def test_an_externally_managed_object(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": "else"}}})
        case.delete()
        assert first(captf, case)["code"] == "ExternallyManaged"


class TestUnattended:
    """Nobody looks at the object, and why says so instead of promising a pass."""

    def test_no_manager_took_the_deletion_up(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["deleted"](case)
        assert first(captf, case)["code"] == "DestroyDue"
        case.advance(31)
        finding = first(captf, case)
        assert finding["code"] == "NotReconciled"
        assert finding["title"] == "no manager has looked at the deletion"
        assert "No manager with leader election was found" in finding["message"]
        assert "this object has no label cluster.x-k8s.io/watch-filter" in finding["message"]

    def test_what_is_due_does_not_happen(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["abandoned"](case)
        assert first(captf, case)["code"] == "Abandoned"
        case.advance(181)
        codes = [finding["code"] for finding in captf.why(case)["findings"]]
        assert codes == ["NotReconciled", "Abandoned"]

    def test_what_a_person_has_just_asked_for_is_not_late(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        case.advance(600)
        case.abandon()
        assert first(captf, case)["code"] == "Abandoned"
        case.advance(181)
        assert first(captf, case)["code"] == "NotReconciled"

    def test_a_destroy_whose_backoff_has_just_ended_is_not_late(self, captf: CommandLine, case: Case) -> None:
        case.destroying()
        waits = case.fail(4)
        case.advance(waits[-1])
        assert first(captf, case)["code"] == "DestroyDue"
        case.advance(181)
        assert first(captf, case)["code"] == "NotReconciled"

    def test_a_new_object_that_nobody_looks_at(self, captf: CommandLine, case: Case) -> None:
        case.add()
        assert captf.why(case)["summary"] == "it is new, and no manager has looked at it yet"
        case.advance(31)
        assert first(captf, case)["title"] == "no manager has looked at it"

    def test_a_new_spec_that_nobody_looks_at(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.spec(deletionPolicy="Retain")
        assert first(captf, case)["title"] == "no manager has looked at its newest spec"

    @pytest.mark.parametrize(
        ("age", "expected"),
        [(5, "one_1 leads in namespace"), (120, "one_1 in namespace captf-system has been")],
    )
    def test_the_managers_lease_is_looked_at(
        self, captf: CommandLine, case: Case, age: int, expected: str
    ) -> None:
        case.add()
        case.patch({"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "blue"}}})
        case.world.create(
            LEASE,
            {
                "metadata": {"name": "controller-leader-election-captf"},
                "spec": {"holderIdentity": "one_1", "renewTime": "2026-01-01T00:00:00.000000Z"},
            },
            "captf-system",
        )
        case.advance(31)
        if age == 5:
            patch = {"spec": {"renewTime": "2026-01-01T00:00:26.000000Z"}}
            case.world.client.patch(LEASE, "controller-leader-election-captf", patch, "captf-system")
        else:
            case.advance(120)
        message = first(captf, case)["message"]
        assert expected in message
        assert "cluster.x-k8s.io/watch-filter=blue" in message


class TestLive:
    """Live objects: what stops them, and nothing when nothing does."""

    def test_nothing_is_wrong(self, captf: CommandLine, case: Case) -> None:
        LIVE["healthy"](case)
        answer = captf.why(case)
        assert answer["healthy"] is True
        assert answer["findings"] == []
        assert answer["summary"].startswith("nothing is wrong; it is Ready since 2026-01-01T00:00:00Z")

    @pytest.mark.parametrize(
        ("situation", "code", "says"),
        [
            ("found retained", "RetainedStateFound", "the state of an earlier object"),
            ("held", "StateLost", "its state is lost"),
            ("unconfirmed", "ApplyOutcomeUnknown", "nobody knows what its first apply created"),
            ("first apply failed", "ApplyFailed", "the last apply failed"),
            ("paused by annotation", "Paused", "it is paused"),
            ("paused by cluster", "Paused", "it is paused"),
            ("locked", "StateLocked", "its state is locked by somebody else"),
            ("identity refused", "NamespaceNotAllowed", "the identity does not allow this namespace"),
            ("restore failed", "RestoreFailed", "the requested restore failed"),
            (
                "restore not found",
                "RestoreBackupNotFound",
                "the requested backup does not exist or is damaged",
            ),
        ],
    )
    def test_what_stops_it(
        self, captf: CommandLine, case: Case, situation: str, code: str, says: str
    ) -> None:
        LIVE[situation](case)
        answer = captf.why(case)
        finding = next(item for item in answer["findings"] if item["code"] == code)
        assert answer["healthy"] is False
        assert says in finding["title"]
        assert finding["since"] is not None
        assert finding["ends"]

    def test_an_adopted_object_waits_for_no_first_apply(self, captf: CommandLine, machine_case: Case) -> None:
        case = machine_case
        LIVE["found retained"](case)
        case.spec(adoptRetainedState=True)
        case.settle()
        assert case.says("ApplyJobSucceeded") == "Unknown/NoApplyYet"
        assert captf.why(case)["summary"].startswith("nothing is wrong; it is Ready since")

    def test_a_lost_state_without_a_backup_leaves_a_way_out(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.remove_secrets([*case.states(), *case.backups()])
        case.settle()
        assert "delete it; the deletion is held until you choose" in purposes(first(captf, case))
        assert "if none is left, delete the object" in case.message("StateReadable")

    def test_no_attempt_is_promised_while_nobody_knows_what_was_created(
        self, captf: CommandLine, case: Case
    ) -> None:
        LIVE["unconfirmed"](case)
        unknown, *others = captf.why(case)["findings"]
        assert unknown["ends"].startswith("somebody confirms that it created nothing")
        assert [finding["nextLook"] for finding in others] == [None]

    def test_an_identity_that_is_gone_is_not_to_be_looked_at(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.world.client.delete(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, propagation_policy="Background")
        case.settle()
        finding = first(captf, case)
        assert finding["code"] == "IdentityNotFound"
        assert commands(finding) == ["kubectl get terraformclusteridentities"]

    def test_a_damaged_backup_is_not_offered(self, captf: CommandLine, case: Case) -> None:
        DELETIONS["state lost"](case)
        assert "restore a backup of the state (complete ones: 1)" in purposes(first(captf, case))
        (backup,) = case.backups()
        case.world.client.patch(SECRET, name_of(backup), {"data": {"tfstate": "Z2FyYmFnZQ=="}}, TEAM)
        offered = purposes(first(captf, case))
        assert "complete ones" not in offered
        assert "no complete backup exists here, and what there is of backups is damaged" in offered

    def test_a_backoff_names_the_next_attempt(self, captf: CommandLine, case: Case) -> None:
        LIVE["first apply failed"](case)
        assert first(captf, case)["nextLook"] == "2026-01-01T00:01:00Z"

    def test_a_gate_is_the_cause_and_not_what_follows_from_it(
        self, captf: CommandLine, machine_case: Case
    ) -> None:
        case = machine_case
        case.add()
        case.world.client.delete(SECRET, "m1-bootstrap", TEAM, propagation_policy="Background")
        case.settle()
        assert [finding["code"] for finding in captf.why(case)["findings"]] == ["WaitingForBootstrapData"]

    def test_a_machine_sends_the_reader_to_its_cluster(self, captf: CommandLine, machine_case: Case) -> None:
        case = machine_case
        case.add()
        case.world.client.patch(
            CLUSTER, "prod", {"status": {"initialization": None}}, TEAM, subresource="status"
        )
        case.settle()
        finding = first(captf, case)
        assert finding["code"] == "WaitingForClusterInfrastructure"
        assert commands(finding) == [f"captf why terraformcluster prod -n {TEAM}"]

    def test_an_object_without_an_owner(self, captf: CommandLine, machine_case: Case) -> None:
        case = machine_case
        case.add()
        case.patch({"metadata": {"ownerReferences": None}})
        case.reconcile()
        assert first(captf, case)["code"] == "WaitingForOwner"

    def test_a_job_that_runs(self, captf: CommandLine, case: Case) -> None:
        case.add()
        case.settle()
        assert first(captf, case)["title"] == "its apply Job runs"

    def test_a_slot_that_is_waited_for(self, captf: CommandLine, case: Case) -> None:
        case.add()
        case.world.restart(max_active_jobs=1)
        case.world.env.slots.reserve("elsewhere", "captf-other", "")
        case.settle()
        finding = first(captf, case)
        assert finding["code"] == "WaitingForJobSlot"
        assert "--max-active-jobs" in finding["message"]

    def test_a_lease_that_is_waited_for(self, captf: CommandLine, case: Case) -> None:
        case.add()
        case.world.hold_run_lease(case.kind, case.name, "captf-of-another")
        case.settle()
        finding = first(captf, case)
        assert finding["code"] == "WaitingForRunLease"
        assert "captf-of-another" in finding["message"]
        case.advance(3600)
        assert "the lease is free now" in first(captf, case)["message"]

    def test_an_externally_managed_object_is_left_alone(self, captf: CommandLine, case: Case) -> None:
        case.provision()
        case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": "else"}}})
        finding = first(captf, case)
        assert finding["code"] == "ExternallyManaged"
        assert finding["title"] == "CAPTF leaves it alone: somebody else manages it"

    def test_what_is_worth_a_note(self, captf: CommandLine, case: Case) -> None:
        case.provision(deletionPolicy="Retain")
        case.abandon()
        answer = captf.why(case)
        assert answer["healthy"] is True
        assert "captf.io/abandon-infrastructure is set" in answer["notes"][0]
        assert "the effective deletionPolicy is Retain" in answer["notes"][1]

    def test_an_approval_names_its_plan(self, captf: CommandLine, cluster_case: Case) -> None:
        case = cluster_case
        case.provision()
        case.spec(source={"image": "example.com/modules/x:v2"})
        case.settle()
        plan = {
            "hash": "p2:" + "1" * 64,
            "create": 0,
            "update": 0,
            "replace": 1,
            "delete": 0,
            "resources": ["terraform_data.network (replace)"],
        }
        case.end("blocked", plan=plan)
        case.settle()
        finding = first(captf, case)
        assert finding["code"] == "DestructivePlanBlocked"
        (plan_object,) = case.world.client.list(TERRAFORM_PLAN, TEAM)
        where = f"-n {TEAM} {name_of(plan_object)}"
        assert commands(finding)[0] == f"kubectl get terraformplan {where} -o yaml"
        assert commands(finding)[1].startswith(f"kubectl patch terraformplan {where} --type merge")

    def test_an_owner_that_is_gone(self, captf: CommandLine, machine_case: Case) -> None:
        case = machine_case
        case.add()
        case.reconcile()
        case.world.client.delete(MACHINE, "m1", TEAM, propagation_policy="Background")
        case.settle()
        assert first(captf, case)["code"] == "OwnerNotFound"
