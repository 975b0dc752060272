"""The acceptance rows of held deletions, each as a user would see it."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import shlex
from collections.abc import Callable

import pytest
from tests import state_secrets
from tests.deletion_case import KINDS, Case, arguments_of
from tests.situations import destroyed_and_brought_back, destroyed_nothing
from tests.world import IDENTITY, OPERATOR, OUTPUTS, TEAM, Outcome, World

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.api.kinds import TERRAFORM_CLUSTER_IDENTITY
from captf_runtime.client.errors import ApiError
from captf_runtime.objects import JOB, LEASE, ROLE_BINDING, SECRET, Object, annotations_of, name_of
from captf_runtime.testing.faults import Match, internal_error

MIB = 1 << 20
RETAIN = "spec.deletionPolicy: Retain"
MOVED_UID = "0ddba11d-0000-4000-8000-000000000000"

# Ways to break a state


def lose(case: Case) -> None:
    case.remove_secrets(case.states())


def corrupt(case: Case) -> None:
    case.world.write_state(case.kind, case.name, payload=b"no gzip at all", cluster=case.cluster)


def encrypt(case: Case) -> None:
    envelope = {"meta": {}, "encrypted_data": "AAAA", "encryption_version": "v0"}
    content = state_secrets.payload(json.dumps(envelope).encode())
    case.world.write_state(case.kind, case.name, payload=content, cluster=case.cluster)


def scatter(case: Case) -> None:
    """Put a Secret among the chunks that is none."""
    stranger = state_secrets.secret(f"{names.state_secret(case.suffix)}-part-x", b"x", suffix=case.suffix)
    case.world.create(SECRET, stranger, TEAM)


BREAKS: dict[str, Callable[[Case], None]] = {
    "StateLost": lose,
    "StateCorrupt": corrupt,
    "StateEncrypted": encrypt,
    "StateInconsistent": scatter,
}
WARNINGS = {"StateLost": "StateLost"} | dict.fromkeys(
    ("StateCorrupt", "StateEncrypted", "StateInconsistent"), "StateUnreadable"
)


#: Every kind with the commonest reason, every other reason with one kind.
BROKEN = [(kind, "StateLost") for kind in sorted(KINDS)] + [
    ("TerraformCluster", "StateCorrupt"),
    ("TerraformMachine", "StateEncrypted"),
    ("TerraformMachinePool", "StateInconsistent"),
]


def one_of_each(*values: object) -> list[tuple[str, object]]:
    """Every kind with the first value, the other values with a machine."""
    return [(kind, values[0]) for kind in sorted(KINDS)] + [
        ("TerraformMachine", value) for value in values[1:]
    ]


def write_chunks(case: Case, pieces: list[bytes]) -> list[str]:
    """Replace the state by one of several chunks; their names in order."""
    case.remove_secrets(case.states())
    made = state_secrets.state_secrets(
        pieces, suffix=case.suffix, labels=names.state_labels(case.kind, case.name, case.cluster)
    )
    for secret in made:
        case.world.create(SECRET, secret, TEAM)
    return [name_of(secret) for secret in made]


def big_state(case: Case) -> list[str]:
    """A state of real pieces of one MiB: base, middle, last."""
    noise = base64.b64encode(random.Random(7).randbytes(2_600_000)).decode()
    content = state_secrets.document(serial=9, outputs={**OUTPUTS[case.kind], "blob": noise})
    return write_chunks(case, state_secrets.chunks_of(state_secrets.payload(content), MIB))


def hold(case: Case, reason: str) -> None:
    """An applied object whose state broke, deleted, and held by its first pass."""
    case.provision()
    BREAKS[reason](case)
    case.delete()
    assert case.reconcile() == 60
    assert case.says("StateReadable") == f"False/{reason}"


def assert_held(case: Case, reason: str, *, passes: int = 3) -> None:
    """Several passes a minute apart start nothing and let nothing go."""
    for _ in range(passes):
        assert case.reconcile() == 60
        case.advance(60)
    assert case.says("StateReadable") == f"False/{reason}"
    assert "Deletion is held" in case.message("StateReadable")
    assert case.jobs("destroy") == []
    assert not case.released


def assert_abandoned(case: Case, cause: str) -> None:
    assert case.released
    assert case.notes("InfrastructureAbandoned") == [abandon_note(case, cause)]
    assert "Destroyed" not in case.reasons()
    assert "FinalizerRemoved" not in case.reasons()


def abandon_note(case: Case, cause: str) -> str:
    return (
        f"Removed finalizer {case.finalizer} without a destroy ({cause}): captf.io/abandon-infrastructure "
        "names this object's uid. Whatever the module created keeps running and is no longer managed; the "
        "state backups go with the object"
    )


# What holds a deletion


@pytest.mark.acceptance("HD1", "HD16")
@pytest.mark.parametrize("reason", sorted(BREAKS))
def test_no_destroy_without_a_readable_state(case: Case, reason: str) -> None:
    hold(case, reason)
    assert_held(case, reason)
    assert case.backups()
    warnings = case.world.events.of(WARNINGS[reason], case.name)
    assert [event["type"] for event in warnings] == ["Warning"]


@pytest.mark.acceptance("HD16")
@pytest.mark.parametrize(("kind", "reason"), BROKEN)
def test_an_unchanged_held_pass_writes_nothing(world: World, kind: str, reason: str) -> None:
    case = Case(world, kind)
    hold(case, reason)
    case.advance(60)
    case.world.forget_requests()
    assert case.reconcile() == 60
    assert case.world.writes() == []


@pytest.mark.acceptance("HD2")
def test_what_never_applied_goes_at_once(case: Case) -> None:
    case.add()
    case.reconcile()
    case.delete(keep=False)
    case.world.events.events.clear()
    assert case.reconcile() == 0
    assert case.world.find(case.kind, case.name) is None
    assert [reason for reason in case.reasons() if reason != "DeletionStarted"] == ["FinalizerRemoved"]
    assert case.notes("FinalizerRemoved") == [
        f"Removed finalizer {case.finalizer}: there was nothing to destroy"
    ]


def vanish(case: Case) -> str:
    """The first apply starts, and its Job disappears without a trace of how it went; the Job's name."""
    case.add()
    case.settle()
    job = name_of(case.job("apply"))
    case.world.client.delete(JOB, job, TEAM, propagation_policy="Background")
    case.world.step()
    case.advance(61)
    return job


@pytest.mark.acceptance("HD2")
def test_a_first_apply_of_unknown_outcome_is_held(case: Case) -> None:
    job = vanish(case)
    case.delete()
    assert_held(case, "ApplyOutcomeUnknown")
    message = case.message("StateReadable")
    assert job in message
    assert "may have created resources" in message
    assert f"captf.io/confirm-no-resources={job}" in message
    assert f"captf.io/abandon-infrastructure={case.uid}" in message
    assert RETAIN in message
    assert "applied before" not in message
    assert len(case.notes("StateLost")) == 1


@pytest.mark.acceptance("HD2")
def test_a_confirmation_ends_an_unknown_outcome(case: Case) -> None:
    job = vanish(case)
    case.delete()
    assert case.reconcile() == 60
    case.annotate(confirm_no_resources="another-job")
    assert case.reconcile() == 60
    assert case.annotations["captf.io/confirm-no-resources"] == "another-job"
    case.annotate(confirm_no_resources=job)
    assert case.reconcile() == 0
    assert case.released
    assert case.reasons()[-1] == "FinalizerRemoved"
    assert "captf.io/confirm-no-resources" not in case.annotations


@pytest.mark.acceptance("HD2")
def test_a_state_that_no_apply_wrote_to_settles_no_unknown_outcome(case: Case) -> None:
    """Backends write such a state when they are initialised, before anything is created."""
    job = vanish(case)
    case.world.write_state(case.kind, case.name, resources=0, cluster=case.cluster)
    assert case.reconcile() == 60
    assert case.says("StateReadable") == "False/ApplyOutcomeUnknown"
    assert case.jobs() == []
    assert case.backups() == []
    case.delete()
    assert_held(case, "ApplyOutcomeUnknown")
    assert f"captf.io/confirm-no-resources={job}" in case.message("StateReadable")
    case.annotate(confirm_no_resources=job)
    assert case.reconcile() == 60
    assert case.says("StateReadable") == "True/StateRead"
    case.end()
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("HD2")
def test_what_was_confirmed_is_not_asked_again(case: Case) -> None:
    """The destroy that the confirmation let start failed; the state still describes nothing."""
    job = vanish(case)
    case.world.write_state(case.kind, case.name, resources=0, cluster=case.cluster)
    case.delete()
    assert case.reconcile() == 60
    case.annotate(confirm_no_resources=job)
    assert case.reconcile() == 60
    assert case.fail() == [60]
    assert case.says("StateReadable") == "True/StateRead"
    case.advance(60)
    assert case.reconcile() == 60
    assert case.job("destroy")


@pytest.mark.acceptance("HD2")
def test_a_state_that_an_apply_wrote_to_is_destroyed_although_its_end_is_unknown(case: Case) -> None:
    vanish(case)
    case.world.write_state(case.kind, case.name, resources=1, cluster=case.cluster)
    case.delete()
    assert case.reconcile() == 60
    assert case.job("destroy")


# Ever applied

SIGNALS = ("provisioned", "marker", "durable digest", "applied digest", "backup", "applied-as")


def leave_only(case: Case, signal: str) -> None:
    """Take away the state, and every sign that the object applied but one."""
    durable, applied = case.inputs_secrets
    lose(case)
    if signal != "provisioned":
        case.patch({"status": {"initialization": None}}, subresource="status")
    if signal != "backup":
        case.remove_secrets(case.backups())
    if signal != "applied-as":
        case.annotate(applied_as=None)
    marks: dict[str, dict[str, str | None]] = {
        durable: {keys.APPLIED: None, keys.IMAGE_DIGEST: None},
        applied: {keys.IMAGE_DIGEST: None},
    }
    if signal == "marker":
        del marks[durable][keys.APPLIED]
    elif signal == "durable digest":
        del marks[durable][keys.IMAGE_DIGEST]
    elif signal == "applied digest":
        del marks[applied]
    for name, removed in marks.items():
        case.world.client.patch(SECRET, name, {"metadata": {"annotations": removed}}, TEAM)


@pytest.mark.acceptance("HD2", "HD3", "HD4", "HD5", "HD6", "HD8")
@pytest.mark.parametrize("signal", SIGNALS)
def test_each_signal_alone_holds(case: Case, signal: str) -> None:
    case.provision()
    leave_only(case, signal)
    case.delete()
    assert_held(case, "StateLost")
    names_annotation = "captf.io/applied-as" in case.message("StateReadable")
    assert names_annotation == (signal == "applied-as")


@pytest.mark.acceptance("HD2")
def test_without_any_signal_it_never_applied(case: Case) -> None:
    case.provision()
    leave_only(case, "none")
    case.delete()
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("HD3")
def test_a_provisioned_object_is_held_without_any_secret(case: Case) -> None:
    case.provision()
    case.annotate(applied_as=None)
    case.remove_secrets(case.world.client.list(SECRET, TEAM).items)
    case.delete()
    assert_held(case, "StateLost")


def make_again(case: Case, *, annotations: bool) -> None:
    """Recreate the object without status, as a move (with its annotations) or a manifest does."""
    old = case.object
    case.patch({"metadata": {"finalizers": None}})
    case.world.delete(case.kind, case.name)
    metadata = {key: old["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
    if annotations:
        metadata["annotations"] = old["metadata"]["annotations"]
    case.world.create(KINDS[case.kind], {"metadata": metadata, "spec": old["spec"]}, TEAM)


@pytest.mark.acceptance("HD3")
def test_made_again_without_the_rest_it_never_applied(case: Case) -> None:
    case.provision()
    make_again(case, annotations=False)
    case.remove_inputs()
    case.remove_secrets([*case.states(), *case.backups()])
    case.world.reconcile(case.kind, case.name)
    case.delete()
    assert case.reconcile() == 0
    assert case.released


def durable_annotations(case: Case) -> dict[str, str]:
    return dict(annotations_of(case.world.client.get(SECRET, case.inputs_secrets[0], TEAM)))


@pytest.mark.acceptance("HD4")
def test_the_marker_comes_with_the_first_success_and_stays(mutable_case: Case) -> None:
    case = mutable_case
    case.add()
    case.settle()
    case.end("failed")
    case.reconcile()
    case.advance(60)
    case.reconcile()
    assert keys.APPLIED not in durable_annotations(case)
    case.end()
    case.settle()
    assert durable_annotations(case)[keys.APPLIED] == "true"
    case.spec(source={"image": "example.com/modules/x:v2"}, variables={"size": 2})
    case.reconcile()
    case.end("failed")
    case.settle()
    assert durable_annotations(case)[keys.APPLIED] == "true"
    case.restore(1)
    case.settle()
    case.end()
    case.reconcile()
    assert durable_annotations(case)[keys.APPLIED] == "true"


@pytest.mark.acceptance("HD4")
def test_the_marker_of_a_machine(machine_case: Case) -> None:
    case = machine_case
    case.add()
    case.settle()
    assert keys.APPLIED not in durable_annotations(case)
    case.end()
    case.settle()
    assert durable_annotations(case)[keys.APPLIED] == "true"


@pytest.mark.acceptance("HD5")
def test_the_digest_comes_with_success_and_goes_with_the_image(mutable_case: Case) -> None:
    case = mutable_case
    case.add()
    case.settle()
    assert keys.IMAGE_DIGEST not in durable_annotations(case)
    case.end()
    case.settle()
    assert "@sha256:" in durable_annotations(case)[keys.IMAGE_DIGEST]
    case.spec(variables={"size": 2})
    case.reconcile()
    assert "@sha256:" in durable_annotations(case)[keys.IMAGE_DIGEST]
    case.end()
    case.settle()
    case.spec(source={"image": "example.com/modules/x:v2"}, variables={"size": 3})
    case.reconcile()
    assert case.job("apply")
    assert keys.IMAGE_DIGEST not in durable_annotations(case)


@pytest.mark.acceptance("HD6")
def test_a_chunk_of_a_backup_is_enough(case: Case) -> None:
    case.provision()
    leave_only(case, "backup")
    for backup in case.backups():
        patch = {"metadata": {"annotations": {keys.STATE_BACKUP_CHUNKS: "2"}}}
        case.world.client.patch(SECRET, name_of(backup), patch, TEAM)
    case.delete()
    assert_held(case, "StateLost")


@pytest.mark.acceptance("HD6")
def test_a_failed_listing_never_means_never_applied(case: Case) -> None:
    case.provision()
    leave_only(case, "none")
    case.delete()
    case.world.server.faults.add(Match(verb="list", resource="secrets"), internal_error())
    with pytest.raises((ApiError, ExceptionGroup)):
        case.reconcile()
    assert not case.released


@pytest.mark.acceptance("HD6")
def test_a_failed_listing_of_backups_alone(case: Case) -> None:
    """The state's listing answers, the one of the backups does not."""
    case.provision()
    leave_only(case, "none")
    case.delete()
    case.world.server.faults.add(Match(verb="list", resource="secrets"), internal_error(), after=1)
    with pytest.raises((ApiError, ExceptionGroup)):
        case.reconcile()
    assert not case.released


@pytest.mark.acceptance("HD7")
def test_without_backups_the_other_signals_decide(case: Case) -> None:
    case.add()
    case.world.restart(state_backups=0)
    case.world.provision(case.kind, case.name)
    case.world.write_state(case.kind, case.name, outputs=OUTPUTS[case.kind], cluster=case.cluster)
    case.reconcile()
    assert case.backups() == []
    leave_only(case, "marker")
    case.delete()
    assert_held(case, "StateLost")


@pytest.mark.acceptance("HD8")
def test_a_moved_object_is_not_applied_again(case: Case) -> None:
    case.provision()
    make_again(case, annotations=True)
    lose(case)
    jobs = len(case.jobs())
    case.reconcile()
    case.settle()
    assert case.says("StateReadable") == "False/StateLost"
    assert len(case.jobs()) == jobs
    case.delete()
    assert_held(case, "StateLost")


@pytest.mark.acceptance("HD8")
def test_a_moved_object_whose_namespace_lost_everything_is_held(case: Case) -> None:
    case.provision()
    make_again(case, annotations=True)
    case.reconcile()
    case.remove_inputs()
    case.remove_secrets([*case.states(), *case.backups()])
    case.delete()
    assert_held(case, "StateLost")
    assert "captf.io/applied-as" in case.message("StateReadable")
    case.annotate(applied_as=None)
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("HD8")
def test_the_annotation_counts_for_its_own_object_alone(case: Case) -> None:
    case.add()
    case.annotate(applied_as=names.state_suffix("elsewhere", case.kind, case.name))
    case.reconcile()
    case.delete()
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("HD8")
@pytest.mark.parametrize("deleting", [False, True])
def test_a_moved_object_lists_the_backups_that_its_hold_sends_the_reader_to(
    case: Case, deleting: bool
) -> None:
    """A move brings the backups along and no status that names them."""
    case.provision()
    make_again(case, annotations=True)
    lose(case)
    if deleting:
        case.reconcile()
        case.delete()
    case.settle()
    assert "status.stateBackups" in case.message("StateReadable")
    (listed,) = case.status["stateBackups"]
    case.restore(listed["serial"])
    case.reconcile()
    assert case.job("restore")


@pytest.mark.acceptance("HD9")
def test_ownerless_and_never_applied(case: Case) -> None:
    case.add()
    case.reconcile()
    case.patch({"metadata": {"ownerReferences": None}})
    case.delete(keep=False)
    case.world.events.events.clear()
    assert case.reconcile() == 0
    assert case.world.find(case.kind, case.name) is None
    assert case.reasons() == ["FinalizerRemoved"]


@pytest.mark.acceptance("HD9")
@pytest.mark.parametrize("signal", SIGNALS)
def test_ownerless_but_applied(case: Case, signal: str) -> None:
    case.provision()
    leave_only(case, signal)
    case.patch({"metadata": {"ownerReferences": None}})
    case.delete()
    assert_held(case, "StateLost")


@pytest.mark.acceptance("HD9")
def test_ownerless_with_an_unknown_outcome(case: Case) -> None:
    vanish(case)
    case.reconcile()
    case.patch({"metadata": {"ownerReferences": None}})
    case.delete()
    assert_held(case, "ApplyOutcomeUnknown")


@pytest.mark.acceptance("HD9")
def test_ownerless_with_a_state_is_destroyed(case: Case) -> None:
    case.provision()
    case.patch({"metadata": {"ownerReferences": None}})
    case.delete()
    assert case.reconcile() == 60
    assert case.job("destroy")


# A destroy that succeeded on nothing


@pytest.mark.acceptance("HD1")
def test_a_destroy_of_another_state_destroyed_nothing(case: Case) -> None:
    destroyed_nothing(case)
    (job,) = case.jobs("destroy")
    assert case.reconcile() == 60
    assert not case.released
    assert case.says("StateReadable") == "False/StateLost"
    assert f"destroy Job {name_of(job)} found nothing to destroy in it" in case.message("StateReadable")
    assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"
    assert "Destroyed" not in case.reasons()
    assert case.backups() != []
    case.restore(1)
    assert case.reconcile() == 60
    assert case.job("restore")


@pytest.mark.acceptance("HD1")
def test_a_state_that_was_brought_back_is_destroyed(case: Case) -> None:
    destroyed_and_brought_back(case)
    assert case.reconcile() == 60
    assert not case.released
    assert len(case.jobs("destroy")) == 2


# Each reason


@pytest.mark.acceptance("HD10")
def test_a_lost_state(case: Case) -> None:
    hold(case, "StateLost")
    assert_held(case, "StateLost")
    assert len(case.notes("StateLost")) == 1
    assert names.state_secret(case.suffix) in case.message("StateReadable")


def many_chunks(case: Case) -> None:
    write_chunks(case, [b"x"] * 33)


def too_much(case: Case) -> None:
    write_chunks(case, [gzip.compress(b" " * (16 * MIB + 1))])


def old_version(case: Case) -> None:
    content = state_secrets.payload(state_secrets.document(version=3))
    write_chunks(case, [content])


@pytest.mark.acceptance("HD11")
@pytest.mark.parametrize("spoil", [corrupt, many_chunks, too_much, old_version])
def test_a_corrupt_state(case: Case, spoil: Callable[[Case], None]) -> None:
    case.provision()
    spoil(case)
    case.delete()
    assert_held(case, "StateCorrupt")
    assert len(case.notes("StateUnreadable")) == 1


@pytest.mark.acceptance("HD11", "HD18", "HD19")
def test_an_older_backup_repairs_a_corrupt_state(case: Case) -> None:
    hold(case, "StateCorrupt")
    case.restore(1)
    assert case.reconcile() == 60
    assert case.job("restore")
    case.end()
    assert case.reconcile() == 60
    assert case.says("StateReadable") == "True/StateRead"
    case.end()
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("HD12")
def test_an_encrypted_state_is_never_backed_up(case: Case) -> None:
    case.provision()
    backups = [name_of(backup) for backup in case.backups()]
    encrypt(case)
    case.reconcile()
    assert case.says("StateReadable") == "False/StateEncrypted"
    case.delete()
    assert_held(case, "StateEncrypted")
    assert [name_of(backup) for backup in case.backups()] == backups


@pytest.mark.acceptance("HD13")
@pytest.mark.parametrize(("kind", "chunk"), one_of_each("last", "base", "middle"))
def test_a_missing_chunk(world: World, kind: str, chunk: str) -> None:
    case = Case(world, kind)
    case.provision()
    chunks = big_state(case)
    assert len(chunks) == 3
    case.remove_secret(dict(zip(("base", "middle", "last"), chunks, strict=True))[chunk])
    case.delete()
    assert_held(case, "StateInconsistent", passes=1)


@pytest.mark.acceptance("HD13")
def test_a_large_state_is_destroyed(machine_case: Case) -> None:
    case = machine_case
    case.provision()
    big_state(case)
    case.delete()
    assert case.reconcile() == 60
    assert case.job("destroy")


@pytest.mark.acceptance("HD13")
@pytest.mark.parametrize(("kind", "stranger"), one_of_each("part-01", "part-0", "part-x", "another"))
def test_a_stranger_among_the_chunks(world: World, kind: str, stranger: str) -> None:
    case = Case(world, kind)
    case.provision()
    base = names.state_secret(case.suffix)
    name = stranger if stranger == "another" else f"{base}-{stranger}"
    case.world.create(SECRET, state_secrets.secret(name, b"x", suffix=case.suffix), TEAM)
    case.delete()
    assert_held(case, "StateInconsistent")


def command_in(message: str, key: str) -> list[str]:
    """The kubectl command of a message that sets an annotation."""
    found = re.search(rf"kubectl annotate [^;.]*{re.escape(key)}=\S+ --overwrite", message)
    assert found is not None, message
    return shlex.split(found[0])


def run(case: Case, command: list[str]) -> None:
    """Carry out a kubectl annotate command as it stands."""
    assert command[:2] == ["kubectl", "annotate"]
    resource, flag, namespace, name, change, overwrite = command[2:]
    assert (resource, flag, overwrite) == (case.kind.lower(), "-n", "--overwrite")
    key, _, value = change.partition("=")
    patch: Object = {"metadata": {"annotations": {key: value}}}
    case.world.client.patch(KINDS[case.kind], name, patch, namespace)


@pytest.mark.acceptance("HD14", "HD35")
@pytest.mark.parametrize(("kind", "reason"), BROKEN)
def test_the_message_says_how_to_leave(world: World, kind: str, reason: str) -> None:
    case = Case(world, kind)
    hold(case, reason)
    message = case.message("StateReadable")
    assert "captf.io/restore-state" in message
    assert "status.stateBackups" in message
    assert f"captf.io/abandon-infrastructure={case.uid}" in message
    assert RETAIN in message
    run(case, command_in(message, "captf.io/abandon-infrastructure"))
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("HD14")
def test_the_restore_command_works_as_printed(case: Case) -> None:
    hold(case, "StateLost")
    command = command_in(case.message("StateReadable"), "captf.io/restore-state")
    serial = case.status["stateBackups"][0]["serial"]
    run(case, [part.replace("<serial>", str(serial)) for part in command])
    assert case.reconcile() == 60
    assert case.job("restore")


# A foreign lock


def lock(case: Case) -> None:
    info = {"ID": "4711", "Operation": "OperationTypeApply", "Who": "ann@laptop", "Created": "2026-01-01"}
    case.world.create(
        LEASE,
        {
            "metadata": {
                "name": names.state_lock_lease(case.suffix),
                "annotations": {"app.terraform.io/lock-info": json.dumps(info)},
            },
            "spec": {"holderIdentity": "4711"},
        },
        TEAM,
    )


@pytest.mark.acceptance("HD15")
@pytest.mark.parametrize("freed", [True, False])
def test_a_foreign_lock_is_no_hold(case: Case, freed: bool) -> None:
    case.provision(jobs={"lockTimeoutSeconds": 120})
    lock(case)
    case.delete()
    assert case.reconcile() == 60
    assert case.says("StateReadable") == "False/StateLocked"
    assert "ann@laptop" in case.message("StateReadable")
    assert len(case.notes("StateLocked")) == 1
    job = case.job("destroy")
    assert "--lock-timeout=120s" in arguments_of(job)
    assert not any(argument.startswith("--force-unlock") for argument in arguments_of(job))
    if freed:
        case.world.client.delete(
            LEASE, names.state_lock_lease(case.suffix), TEAM, propagation_policy="Background"
        )
        case.end()
        assert case.reconcile() == 0
        assert case.released
    else:
        case.end("failed", steps=("init",), tail="Error acquiring the state lock")
        assert case.reconcile() == 60
        assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"
        assert case.says("StateReadable") == "False/StateLocked"
        assert not case.released


@pytest.mark.acceptance("HD15")
def test_a_foreign_lock_is_no_cause_for_an_abandon(case: Case) -> None:
    case.provision()
    lock(case)
    case.abandon()
    case.delete()
    assert case.reconcile() == 60
    assert case.job("destroy")
    assert "InfrastructureAbandoned" not in case.reasons()


# Restore


@pytest.mark.acceptance("HD17")
def test_a_restore_that_cannot_start_does_not_mask_an_abandon(case: Case) -> None:
    hold(case, "StateLost")
    case.restore(1)
    case.world.client.delete(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, propagation_policy="Background")
    assert case.reconcile() == 30
    message = case.message("Deleting")
    assert message.startswith(
        "The restore Job waits for its credentials: IdentityAllowed is False (IdentityNotFound)"
    )
    assert case.says("StateReadable") == "False/StateLost"
    assert "Deletion is held" in case.message("StateReadable")
    assert case.says("ApplyJobSucceeded") == "True/ApplySucceeded"
    created = case.created_jobs()
    case.abandon()
    assert case.reconcile() == 0
    assert_abandoned(case, "StateReadable StateLost")
    assert case.created_jobs() == created


@pytest.mark.acceptance("HD18")
@pytest.mark.parametrize(("kind", "reason"), BROKEN)
def test_a_restore_starts_during_a_hold(world: World, kind: str, reason: str) -> None:
    case = Case(world, kind)
    hold(case, reason)
    serial = case.status["stateBackups"][0]["serial"]
    case.restore(f" {serial} ")
    assert case.reconcile() == 60
    job = case.job("restore")
    assert annotations_of(job)["captf.io/restore-serial"] == str(serial)
    arguments = arguments_of(job)
    assert "--op=restore" in arguments
    assert "--restore-chunks=1" in arguments
    assert case.says("StateReadable") == f"False/{reason}"


@pytest.mark.acceptance("HD18")
@pytest.mark.parametrize(("kind", "value"), one_of_each("77", "abc", "0", "-1", "1.5", "9" * 50))
def test_a_restore_of_nothing(world: World, kind: str, value: str) -> None:
    case = Case(world, kind)
    hold(case, "StateLost")
    case.restore(value)
    assert_held(case, "StateLost")
    assert case.says("RestoreJobSucceeded") == "False/RestoreBackupNotFound"
    message = case.message("RestoreJobSucceeded")
    assert f'"{value}"' in message
    assert "status.stateBackups" in message
    assert case.jobs("restore") == []
    counted = re.search(
        rf'captf_state_restores_total{{kind="{case.kind}",result="not_found"}} (\S+)', case.world.scrape()
    )
    assert counted is not None
    assert float(counted[1]) == 1
    case.annotate(restore_state=None)
    assert case.reconcile() == 60
    assert case.says("RestoreJobSucceeded") == ""


@pytest.mark.acceptance("HD18")
def test_a_restore_of_an_incomplete_backup(case: Case) -> None:
    hold(case, "StateLost")
    for backup in case.backups():
        patch = {"metadata": {"annotations": {keys.STATE_BACKUP_CHUNKS: "2"}}}
        case.world.client.patch(SECRET, name_of(backup), patch, TEAM)
    case.restore(1)
    assert_held(case, "StateLost")
    assert case.says("RestoreJobSucceeded") == "False/RestoreBackupNotFound"


@pytest.mark.acceptance("HD19")
def test_the_destroy_follows_the_restore(case: Case) -> None:
    hold(case, "StateLost")
    case.restore(1)
    case.reconcile()
    case.end()
    assert case.reconcile() == 60
    assert case.says("RestoreJobSucceeded") == "True/StateRestored"
    assert case.says("StateReadable") == "True/StateRead"
    assert case.job("destroy")
    assert "captf.io/restore-state" not in case.annotations
    assert case.status["lastRestoredSerial"] == 1
    assert len(case.notes("StateRestored")) == 1
    case.end()
    assert case.reconcile() == 0
    assert case.released
    assert case.states() == []
    assert case.reasons()[-2:] == ["Destroyed", "FinalizerRemoved"]


@pytest.mark.acceptance("HD19")
def test_a_restored_state_that_does_not_read_is_held_again(case: Case) -> None:
    hold(case, "StateLost")
    case.restore(1)
    case.reconcile()
    case.end()
    corrupt(case)
    assert_held(case, "StateCorrupt")


@pytest.mark.acceptance("HD20")
@pytest.mark.parametrize("value", ["1", "abc"])
def test_a_restore_is_ignored_while_the_state_reads(case: Case, value: str) -> None:
    case.provision()
    case.restore(value)
    case.delete()
    assert case.reconcile() == 60
    assert case.job("destroy")
    assert case.jobs("restore") == []
    assert case.annotations["captf.io/restore-state"] == value
    assert case.says("RestoreJobSucceeded") == ""


@pytest.mark.acceptance("HD21")
@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformMachinePool"])
def test_a_restore_waits_for_a_cluster_operation(world: World, kind: str) -> None:
    case = Case(world, kind)
    hold(case, "StateLost")
    world.add_job("captf-c-prod-apply-a2-abcdef")
    world.hold_write_lease("prod", "captf-c-prod-apply-a2-abcdef")
    case.restore(1)
    for _ in range(2):
        assert case.reconcile() == 30
    assert case.says("RestoreJobSucceeded") == "Unknown/WaitingForClusterOperation"
    assert RETAIN in case.message("RestoreJobSucceeded")
    assert case.says("ApplyJobSucceeded") == "True/ApplySucceeded"
    assert len(case.notes("WaitingForClusterOperation")) == 1
    assert case.jobs("restore") == []
    world.client.delete(JOB, "captf-c-prod-apply-a2-abcdef", TEAM, propagation_policy="Background")
    case.advance(61)
    assert case.reconcile() == 60
    assert case.job("restore")


@pytest.mark.acceptance("HD21")
def test_a_restore_of_a_cluster_waits_for_machine_operations(cluster_case: Case) -> None:
    case = cluster_case
    hold(case, "StateLost")
    case.world.add_job("captf-m-m9-apply-a1-abcdef")
    case.world.hold_run_lease(
        "TerraformMachine", "m9", "captf-m-m9-apply-a1-abcdef", cluster="c1", op="apply"
    )
    case.restore(1)
    assert case.reconcile() == 30
    assert case.says("RestoreJobSucceeded") == "Unknown/WaitingForMachineOperations"


@pytest.mark.acceptance("HD21")
def test_a_restore_waits_for_the_run_lease(case: Case) -> None:
    hold(case, "StateLost")
    case.world.add_job("somebody-elses")
    case.world.hold_run_lease(case.kind, case.name, "somebody-elses")
    case.restore(1)
    assert case.reconcile() == 30
    assert case.says("RestoreJobSucceeded") == "Unknown/WaitingForRunLease"


@pytest.mark.acceptance("HD21")
def test_a_restore_is_never_gated(cluster_case: Case) -> None:
    case = cluster_case
    case.provision(applyPolicy="Manual")
    lose(case)
    case.delete()
    case.restore(1)
    assert case.reconcile() == 60
    assert case.job("restore")
    assert case.jobs("plan") == []


@pytest.mark.acceptance("HD22")
def test_a_failed_restore_is_not_retried_for_its_serial(case: Case) -> None:
    hold(case, "StateLost")
    case.restore(1)
    case.reconcile()
    case.end("failed", steps=("init", "restore"))
    for _ in range(3):
        assert case.reconcile() == 60
        case.advance(600)
    assert case.says("RestoreJobSucceeded") == "False/RestoreFailed"
    assert case.status["lastRestoredSerial"] == 1
    assert case.annotations["captf.io/restore-state"] == "1"
    assert len(case.notes("StateRestoreFailed")) == 1
    for job in case.jobs("restore"):
        case.world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
    case.world.step()
    assert_held(case, "StateLost")
    assert case.jobs("restore") == []


@pytest.mark.acceptance("HD22")
@pytest.mark.parametrize("way", ["set again", "another serial"])
def test_a_failed_restore_is_requested_anew(case: Case, way: str) -> None:
    case.provision()
    case.world.write_state(case.kind, case.name, outputs=OUTPUTS[case.kind], cluster=case.cluster, serial=5)
    case.reconcile()
    lose(case)
    case.delete()
    case.restore(5)
    case.reconcile()
    case.end("failed", steps=("init", "restore"))
    assert case.reconcile() == 60
    if way == "set again":
        case.annotate(restore_state=None)
        assert case.reconcile() == 60
        assert "lastRestoredSerial" not in case.status
        case.restore(5)
    else:
        case.restore(1)
    assert case.reconcile() == 60
    assert annotations_of(case.job("restore"))["captf.io/restore-serial"] == (
        "5" if way == "set again" else "1"
    )


# Abandon


@pytest.mark.acceptance("HD23")
@pytest.mark.parametrize(("kind", "value"), one_of_each("{uid} ", "yes", MOVED_UID, "", "{upper}"))
def test_another_value_is_ignored_and_told(world: World, kind: str, value: str) -> None:
    case = Case(world, kind)
    hold(case, "StateLost")
    other = value.format(uid=case.uid, upper=case.uid.upper())
    case.abandon(other)
    assert_held(case, "StateLost")
    message = case.message("StateReadable")
    assert f'"{other}"' in message
    assert "is ignored" in message
    assert case.uid in message
    run(case, command_in(message, "captf.io/abandon-infrastructure"))
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("HD24", "HD34")
@pytest.mark.parametrize(("kind", "reason"), BROKEN)
def test_held_on_the_state(world: World, kind: str, reason: str) -> None:
    case = Case(world, kind)
    hold(case, reason)
    case.abandon()
    assert case.reconcile() == 0
    assert_abandoned(case, f"StateReadable {reason}")
    assert case.world.events.of("InfrastructureAbandoned", case.name)[0]["type"] == "Warning"


@pytest.mark.acceptance("HD24")
def test_held_on_an_unknown_outcome(case: Case) -> None:
    vanish(case)
    case.delete()
    assert case.reconcile() == 60
    case.abandon()
    assert case.reconcile() == 0
    assert_abandoned(case, "StateReadable ApplyOutcomeUnknown")


@pytest.mark.acceptance("HD25")
@pytest.mark.parametrize(
    ("kind", "outcome"),
    one_of_each(
        ("failed", "DestroyFailed"), ("deadline", "JobDeadlineExceeded"), ("image-layout", "ImageInvalid")
    ),
)
@pytest.mark.parametrize("pruned", [False, True])
def test_the_last_destroy_failed(world: World, kind: str, outcome: tuple[Outcome, str], pruned: bool) -> None:
    case = Case(world, kind)
    ended, reason = outcome
    case.destroying()
    case.end(ended)
    assert case.reconcile() == 60
    if pruned:
        for job in case.jobs():
            case.world.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
        case.world.step()
    case.abandon()
    assert case.reconcile() == 0
    assert_abandoned(case, f"the last destroy failed: ApplyJobSucceeded {reason}")


@pytest.mark.acceptance("HD25")
def test_a_restore_since_does_not_take_the_case_away(case: Case) -> None:
    case.destroying()
    assert case.fail(1) == [60]
    lose(case)
    case.restore(1)
    assert case.reconcile() == 60
    case.end()
    assert case.reconcile() > 0
    assert case.says("StateReadable") == "True/StateRead"
    assert case.jobs("destroy")[-1]["metadata"]["name"] == case.created_jobs()[-2]
    case.abandon()
    assert case.reconcile() == 0
    assert_abandoned(case, "the last destroy failed: ApplyJobSucceeded DestroyFailed")


@pytest.mark.acceptance("HD25")
def test_an_interrupted_destroy_is_no_failed_one(case: Case) -> None:
    case.provision()
    case.spec(deletionPolicy="Destroy")
    case.abandon()
    case.delete()
    case.reconcile()
    case.end("interrupted")
    assert case.reconcile() == 60
    assert case.job("destroy")
    assert "InfrastructureAbandoned" not in case.reasons()


@pytest.mark.acceptance("HD25")
def test_a_failed_apply_before_an_interrupted_destroy_is_no_cause(mutable_case: Case) -> None:
    case = mutable_case
    case.provision()
    case.spec(variables={"size": 2})
    case.reconcile()
    case.end("failed")
    case.reconcile()
    assert case.says("ApplyJobSucceeded") == "False/ApplyFailed"
    case.delete()
    case.reconcile()
    case.end("interrupted")
    case.abandon()
    assert case.reconcile() == 60
    assert case.job("destroy")


@pytest.mark.acceptance("HD26")
@pytest.mark.parametrize("before", [True, False])
def test_the_durable_inputs_are_gone(machine_case: Case, before: bool) -> None:
    case = machine_case
    case.provision()
    case.remove_inputs()
    if before:
        case.abandon()
    case.delete()
    if not before:
        assert case.reconcile() == 600
        case.abandon()
    assert case.reconcile() == 0
    assert_abandoned(case, "the destroy cannot start: the durable inputs Secret is missing")


def narrow(world: World) -> None:
    patch: Object = {"spec": {"allowedNamespaces": {"list": ["elsewhere"], "selector": None}}}
    world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, patch)


def widen(world: World) -> None:
    patch: Object = {"spec": {"allowedNamespaces": {"list": [TEAM]}}}
    world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, patch)


@pytest.mark.acceptance("HD27")
@pytest.mark.parametrize("before", [True, False])
def test_the_identity_does_not_allow_the_namespace(case: Case, before: bool) -> None:
    case.provision()
    narrow(case.world)
    if before:
        case.abandon()
    case.delete()
    if not before:
        assert case.reconcile() == 30
        case.abandon()
    assert case.reconcile() == 0
    assert_abandoned(
        case,
        "the destroy cannot start: it waits for its credentials: IdentityAllowed is False "
        f"(NamespaceNotAllowed): TerraformClusterIdentity {IDENTITY} does not allow namespace {TEAM}",
    )


def lose_source(world: World) -> None:
    world.client.delete(SECRET, f"{IDENTITY}-credentials", OPERATOR, propagation_policy="Background")


def occupy_mirror(world: World) -> None:
    mirror = names.credential_mirror(IDENTITY)
    world.client.delete(SECRET, mirror, TEAM, propagation_policy="Background")
    world.create(SECRET, {"metadata": {"name": mirror}}, TEAM)


def occupy_binding(world: World) -> None:
    world.client.delete(ROLE_BINDING, "captf-runner", TEAM, propagation_policy="Background")
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    world.create(ROLE_BINDING, {"metadata": {"name": "captf-runner"}, "roleRef": reference}, TEAM)


@pytest.mark.acceptance("HD28", "HD34")
@pytest.mark.parametrize(
    ("obstacle", "detail"),
    [
        (lose_source, "IdentityAllowed is False (SecretNotFound)"),
        (occupy_mirror, "CredentialsMirrored is False (MirrorFailed)"),
        (occupy_binding, "RunnerRBACReady is False (RBACFailed)"),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_the_credentials_cannot_be_prepared(
    case: Case, obstacle: Callable[[World], None], detail: str, before: bool
) -> None:
    case.provision()
    obstacle(case.world)
    if before:
        case.abandon()
    case.delete()
    if not before:
        assert case.reconcile() == 30
        case.abandon()
    assert case.reconcile() == 0
    assert case.released
    (note,) = case.notes("InfrastructureAbandoned")
    assert f"(the destroy cannot start: it waits for its credentials: {detail}: " in note
    head, _, tail = abandon_note(case, "\0").partition("\0")
    assert note.startswith(head)
    assert note.endswith(tail)
    assert len(note.encode()) <= 512


@pytest.mark.acceptance("HD29")
@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_destroy_that_can_start_is_started(case: Case, outcome: Outcome) -> None:
    case.provision()
    case.abandon()
    case.delete()
    assert case.reconcile() == 60
    assert case.job("destroy")
    case.end(outcome)
    assert case.reconcile() == 0
    if outcome == "succeeded":
        assert case.reasons()[-2:] == ["Destroyed", "FinalizerRemoved"]
        assert "InfrastructureAbandoned" not in case.reasons()
    else:
        assert_abandoned(case, "the last destroy failed: ApplyJobSucceeded DestroyFailed")
    assert len([name for name in case.created_jobs() if "-destroy-" in name]) == 1


@pytest.mark.acceptance("HD30")
def test_an_obstacle_that_has_gone_is_no_cause(case: Case) -> None:
    case.provision()
    narrow(case.world)
    case.delete()
    assert case.reconcile() == 30
    assert case.says("ApplyJobSucceeded") == "False/IdentityNotAllowed"
    widen(case.world)
    case.abandon()
    assert case.reconcile() == 60
    assert case.job("destroy")
    assert "InfrastructureAbandoned" not in case.reasons()


@pytest.mark.acceptance("HD30")
def test_inputs_that_came_back_are_no_cause(machine_case: Case) -> None:
    case = machine_case
    case.provision()
    kept = [case.world.client.get(SECRET, name, TEAM) for name in case.inputs_secrets]
    case.remove_inputs()
    case.delete()
    assert case.reconcile() == 600
    for secret in kept:
        for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            secret["metadata"].pop(field, None)
        case.world.create(SECRET, secret, TEAM)
    case.abandon()
    assert case.reconcile() == 60
    assert case.job("destroy")


@pytest.mark.acceptance("HD31", "HD32")
@pytest.mark.parametrize(("kind", "reason"), BROKEN)
def test_an_abandon_cleans_up_as_a_destroy_does(world: World, kind: str, reason: str) -> None:
    case = Case(world, kind)
    hold(case, reason)
    backups = len(case.backups())
    case.abandon()
    assert case.reconcile() == 0
    assert case.released
    assert case.states() == []
    assert not any(case.has_secret(name) for name in case.inputs_secrets)
    assert not case.has_secret(names.plan_key_secret(case.kind, case.name))
    assert case.own_leases() == []
    assert not case.world.exists(LEASE, names.state_lock_lease(case.suffix))
    mirror_uids = {
        reference["uid"]
        for secret in case.world.client.list(SECRET, TEAM).items
        if name_of(secret) == names.credential_mirror(IDENTITY)
        for reference in secret["metadata"].get("ownerReferences", [])
    }
    assert case.uid not in mirror_uids
    assert case.jobs("destroy") == []
    assert len(case.backups()) == backups > 0


@pytest.mark.acceptance("HD32")
def test_backups_are_collected_with_the_object(case: Case) -> None:
    hold(case, "StateLost")
    case.abandon()
    case.reconcile()
    case.world.step()
    assert case.backups()
    case.patch({"metadata": {"finalizers": None}})
    assert case.world.find(case.kind, case.name) is None
    case.world.step()
    assert case.backups() == []


@pytest.mark.acceptance("HD33")
@pytest.mark.parametrize("release", ["abandon", "retain", "released"])
def test_a_release_waits_for_a_live_run_lease(case: Case, release: str) -> None:
    case.provision()
    if release == "abandon":
        lose(case)
        case.abandon()
    elif release == "retain":
        case.spec(deletionPolicy="Retain")
    else:
        for secret in case.states():
            patch = {"metadata": {"labels": {"captf.io/retained-from-uid": MOVED_UID}}}
            case.world.client.patch(SECRET, name_of(secret), patch, TEAM)
    case.world.add_job("somebody-elses")
    case.world.hold_run_lease(case.kind, case.name, "somebody-elses")
    case.delete()
    before = {name_of(item): item["metadata"] for item in case.world.client.list(SECRET, TEAM).items}
    for _ in range(3):
        assert case.reconcile() == 5
        case.advance(5)
    assert not case.released
    assert "somebody-elses" in case.message("Deleting")
    after = {name_of(item): item["metadata"] for item in case.world.client.list(SECRET, TEAM).items}
    assert after == before
    case.world.client.delete(JOB, "somebody-elses", TEAM, propagation_policy="Background")
    case.advance(61)
    assert case.reconcile() == 0
    assert case.released


@pytest.mark.acceptance("HD34")
@pytest.mark.parametrize("reason", [*sorted(BREAKS), "ApplyOutcomeUnknown"])
def test_the_note_fits(case: Case, reason: str) -> None:
    note = abandon_note(case, f"StateReadable {reason}")
    assert len(note.encode()) <= 512
