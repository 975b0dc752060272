"""State on an API server: reading, adopting, owning, backing up, restoring, locks."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from tests.captf_api import EMBEDDED_AND_REAL, captf_api
from tests.state_secrets import chunks_of, document, payload, secret, state_secrets

from captf_controllers.api import names
from captf_controllers.api.kinds import API_VERSION, TERRAFORM_MACHINE
from captf_controllers.api.owner import Owner
from captf_controllers.state.adoption import (
    AdoptionSource,
    StateVanished,
    adopt,
    adoption_due,
    adoption_source,
)
from captf_controllers.state.backups import (
    BackupOutcome,
    BackupSet,
    group_backups,
    list_backups,
    sets_to_prune,
    status_backups,
    take_backup,
    verify_backup,
)
from captf_controllers.state.cache import StateCache
from captf_controllers.state.lock import LockKind, lock_unchanged, lock_version, parse_lock_info, read_lock
from captf_controllers.state.ownership import misowned, repair_owners
from captf_controllers.state.reader import read_state
from captf_controllers.state.reading import StateProblem, StateUnreadable, metadata_of
from captf_controllers.state.restore import (
    RestoreFacts,
    evaluate_restore,
    requested_serial,
)
from captf_runtime.client import ApiError, Client
from captf_runtime.client.observe import SilentObserver
from captf_runtime.objects import (
    LEASE,
    NAMESPACE,
    POD,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
    annotations_of,
    labels_of,
    name_of,
    owner_references,
    resource_version_of,
)
from captf_runtime.testing.apiserver.server import ApiServer

NOW = datetime(2026, 9, 25, 12, 0, 0, tzinfo=UTC)
_numbers = itertools.count()


class Requests(SilentObserver):
    """Counts the requests that the client sent."""

    def __init__(self) -> None:
        self.count = 0

    def request(self, **_: object) -> None:
        self.count += 1


@pytest.fixture(scope="module")
def requests() -> Requests:
    return Requests()


@pytest.fixture(scope="module", params=EMBEDDED_AND_REAL)
def client(request: pytest.FixtureRequest, requests: Requests) -> Iterator[Client]:
    with (
        captf_api(request.param) as kubeconfig,
        Client.from_config(kubeconfig=kubeconfig, observer=requests) as made,
    ):
        yield made


@pytest.fixture
def namespace(client: Client) -> str:
    name = f"state-{next(_numbers)}"
    client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def machine(client: Client, namespace: str) -> Object:
    return client.create(
        TERRAFORM_MACHINE,
        {
            "apiVersion": API_VERSION,
            "kind": "TerraformMachine",
            "metadata": {"name": "m1", "namespace": namespace},
            "spec": {"source": {"image": "registry.example.com/m:v1"}},
        },
        namespace,
    )


@pytest.fixture
def owner(machine: Object) -> Owner:
    return Owner.of(machine)


def store(
    client: Client, owner: Owner, *pieces: bytes, annotations: dict[str, str] | None = None
) -> list[Object]:
    made = state_secrets(pieces, suffix=owner.suffix, namespace=owner.namespace, annotations=annotations)
    return [client.create(SECRET, item, owner.namespace) for item in made]


def replace_payload(client: Client, owner: Owner, data: bytes) -> None:
    client.patch(
        SECRET,
        names.state_secret(owner.suffix),
        {"data": {"tfstate": base64.b64encode(data).decode()}},
        owner.namespace,
    )


def secret_named(client: Client, owner: Owner, name: str) -> Object:
    return client.get(SECRET, name, owner.namespace)


# Reading -------------------------------------------------------------------------------------------


def test_no_state(client: Client, owner: Owner) -> None:
    cache = StateCache()
    assert read_state(client, owner.namespace, owner.suffix, cache).no_state
    assert len(cache) == 0


def test_a_state_is_read_once_and_again_when_it_changed(
    requests: Requests, client: Client, owner: Owner
) -> None:
    cache = StateCache()
    store(client, owner, payload(document(serial=1, outputs={"a": "x"})))

    def payload_reads() -> int:
        before = requests.count
        reading = read_state(client, owner.namespace, owner.suffix, cache)
        assert reading.state is not None
        return requests.count - before - 1  # less the list of metadata

    assert payload_reads() == 1
    assert payload_reads() == 0
    assert cache.bytes == len("a") + len('"x"') + len('"dynamic"')
    replace_payload(client, owner, payload(document(serial=2)))
    assert payload_reads() == 1
    reading = read_state(client, owner.namespace, owner.suffix, cache)
    assert reading.state is not None
    assert reading.state.serial == 2
    client.delete(SECRET, names.state_secret(owner.suffix), owner.namespace, propagation_policy="Background")
    assert read_state(client, owner.namespace, owner.suffix, cache).no_state
    assert len(cache) == 0


def test_a_kept_state_cannot_be_changed_by_its_reader(client: Client, owner: Owner) -> None:
    cache = StateCache()
    store(client, owner, payload(document()))
    for _ in range(2):
        state = read_state(client, owner.namespace, owner.suffix, cache).state
        assert state is not None
        assert "stolen" not in labels_of(state.secrets[0])
        state.secrets[0]["metadata"]["labels"]["stolen"] = "yes"


def test_an_unreadable_state_is_not_kept(client: Client, owner: Owner) -> None:
    cache = StateCache()
    store(client, owner, payload(document()))
    assert read_state(client, owner.namespace, owner.suffix, cache).readable
    replace_payload(client, owner, b"damaged")
    assert read_state(client, owner.namespace, owner.suffix, cache).problem is StateProblem.CORRUPT
    assert len(cache) == 0


def test_chunks_and_foreign_secrets(client: Client, owner: Owner) -> None:
    data = payload(document(outputs={"x": random.Random(1).randbytes(9000).hex()}))
    store(client, owner, *chunks_of(data, 700))
    other = names.state_suffix(owner.namespace, owner.kind, "other")
    for item in state_secrets([payload(document(serial=99))], suffix=other, namespace=owner.namespace):
        client.create(SECRET, item, owner.namespace)
    state = read_state(client, owner.namespace, owner.suffix).state
    assert state is not None
    assert state.serial == 1
    assert len(state.secrets) > 10


def test_too_many_secrets_are_not_fetched(requests: Requests, client: Client, owner: Owner) -> None:
    base = names.state_secret(owner.suffix)
    for index in range(33):
        item = secret(f"{base}-part-x{index}", b"x", suffix=owner.suffix, namespace=owner.namespace)
        client.create(SECRET, item, owner.namespace)
    before = requests.count
    reading = read_state(client, owner.namespace, owner.suffix)
    assert reading.problem is StateProblem.CORRUPT
    assert "33" in reading.message
    assert requests.count - before == 1


def test_an_api_error_is_no_class_of_state(client: Client, owner: Owner) -> None:
    cache = StateCache()
    store(client, owner, payload(document()))
    assert read_state(client, owner.namespace, owner.suffix, cache).readable
    with ApiServer(controllers=False) as gone:
        lost = Client.from_config(kubeconfig=str(gone.kubeconfig()))
        lost.close()
        with pytest.raises(ApiError):
            read_state(lost, owner.namespace, owner.suffix, cache)
    assert len(cache) == 0


def test_the_cache_is_bounded(client: Client, namespace: str) -> None:
    cache = StateCache(max_states=2, max_bytes=2000)
    owners = [Owner("TerraformMachine", namespace, f"m{index}", "u") for index in range(3)]
    for item in owners:
        store(client, item, payload(document(outputs={"x": "y" * 300})))
        assert read_state(client, namespace, item.suffix, cache).readable
    assert len(cache) == 2
    big = Owner("TerraformMachine", namespace, "big", "u")
    store(client, big, payload(document(outputs={"x": "y" * 1500})))
    assert read_state(client, namespace, big.suffix, cache).readable
    assert cache.bytes <= 2000
    huge = Owner("TerraformMachine", namespace, "huge", "u")
    store(client, huge, payload(document(outputs={"x": "y" * 3000})))
    assert read_state(client, namespace, huge.suffix, cache).readable
    kept = len(cache)
    assert read_state(client, namespace, huge.suffix, cache).readable
    assert len(cache) == kept


# Adoption ------------------------------------------------------------------------------------------


def source(
    minutes: int, inputs_hash: str | None, *, restore: bool = False, created: int = -1
) -> AdoptionSource:
    order = NOW + timedelta(minutes=minutes), NOW + timedelta(minutes=created)
    return AdoptionSource("job", order, inputs_hash, restore)


def test_the_newer_job_is_the_source_and_an_apply_at_equal_times() -> None:
    apply, restore = source(1, "h2:a"), source(1, "h2:r", restore=True)
    assert adoption_source(apply, restore) is apply
    assert adoption_source(source(0, "h2:a"), restore) is restore
    assert adoption_source(None, restore) is restore
    assert adoption_source(apply, None) is apply
    later = source(1, "h2:r", restore=True, created=0)
    assert adoption_source(apply, later) is later, "it ran after the apply that finished in the same second"
    assert adoption_source(None, None) is None


@pytest.mark.parametrize(
    ("found", "state_hash", "due"),
    [
        (None, "", False),
        (source(0, None), "", False),
        (source(0, "h2:a"), "", True),
        (source(0, "h2:a"), "h2:b", True),
        (source(0, "h2:a"), "h2:a", False),
        (source(0, ""), "h2:a", False),
        (source(0, "", restore=True), "h2:a", True),
        (source(0, "", restore=True), "", False),
    ],
)
def test_when_an_adoption_is_due(found: AdoptionSource | None, state_hash: str, due: bool) -> None:
    assert adoption_due(found, state_hash) is due


def test_adoption_owns_every_chunk_and_records_the_hash_on_the_base(client: Client, owner: Owner) -> None:
    store(client, owner, payload(document()), b"stale")
    base = names.state_secret(owner.suffix)
    assert adopt(client, owner, "h2:a") == (f"{base}-part-1", base)
    first, second = (secret_named(client, owner, name) for name in (base, f"{base}-part-1"))
    assert annotations_of(first)["captf.io/inputs-hash"] == "h2:a"
    assert "captf.io/inputs-hash" not in annotations_of(second)
    for item in (first, second):
        assert owner_references(item) == [owner.reference()]
        assert item["metadata"]["ownerReferences"][0].keys() == {"apiVersion", "kind", "name", "uid"}
    assert labels_of(first)["tfstate"] == "true"
    assert adopt(client, owner, "h2:a") == ()
    assert resource_version_of(secret_named(client, owner, base)) == resource_version_of(first)


def test_adoption_replaces_an_earlier_uid_and_keeps_other_owners(client: Client, owner: Owner) -> None:
    (made,) = store(client, owner, payload(document()))
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-other", "controller": True}
    stale = {**owner.reference().to_dict(), "uid": "u-earlier", "blockOwnerDeletion": True}
    client.patch(SECRET, name_of(made), {"metadata": {"ownerReferences": [other, stale]}}, owner.namespace)
    adopt(client, owner, "h2:a")
    references = secret_named(client, owner, name_of(made))["metadata"]["ownerReferences"]
    assert references == [other, owner.reference().to_dict()]


def test_a_restore_without_a_hash_clears_the_one_of_a_newer_apply(client: Client, owner: Owner) -> None:
    (made,) = store(client, owner, payload(document()), annotations={"captf.io/inputs-hash": "h2:newer"})
    adopt(client, owner, "")
    assert "captf.io/inputs-hash" not in annotations_of(secret_named(client, owner, name_of(made)))


def test_nothing_to_adopt(client: Client, owner: Owner) -> None:
    with pytest.raises(StateVanished):
        adopt(client, owner, "h2:a")
    client.create(
        SECRET,
        secret(
            f"{names.state_secret(owner.suffix)}-part-1", b"x", suffix=owner.suffix, namespace=owner.namespace
        ),
        owner.namespace,
    )
    with pytest.raises(StateUnreadable, match="chunk 0"):
        adopt(client, owner, "h2:a")


# Ownership -----------------------------------------------------------------------------------------


def plain_secret(client: Client, owner: Owner, name: str, references: list[Object] | None = None) -> Object:
    made: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": owner.namespace, "ownerReferences": references or []},
    }
    return client.create(SECRET, made, owner.namespace)


def backed_up(client: Client, owner: Owner, now: datetime = NOW, **more: Any) -> BackupOutcome:
    asked: dict[str, Any] = {"keep": 5, "cluster_name": "prod", "source_job": "", "pending_restore": None}
    return take_backup(client, owner, now=now, **{**asked, **more})


def test_owner_repair(client: Client, owner: Owner) -> None:
    states = store(client, owner, payload(document()), b"stale")
    assert backed_up(client, owner).taken is not None
    right = owner.reference().to_dict()
    earlier = {**right, "uid": "u-earlier"}
    durable = plain_secret(client, owner, names.durable_inputs_secret(owner.kind, owner.name), [earlier])
    applied = plain_secret(client, owner, names.applied_inputs_secret(owner.kind, owner.name), [right])
    key = plain_secret(client, owner, names.plan_key_secret(owner.kind, owner.name))
    backup = names.state_backup(owner.suffix, 1)
    client.patch(SECRET, backup, {"metadata": {"ownerReferences": [earlier]}}, owner.namespace)
    repaired = repair_owners(client, owner, states=states, others=[durable, applied])
    assert (repaired.states, repaired.backups, repaired.inputs, repaired.plan_keys) == (2, 1, 1, 1)
    assert repaired.total == 5
    assert repaired.failures == ()
    assert repaired.describe() == "2 state Secrets, 1 backup Secret, 1 inputs Secret, 1 plan key Secret"
    for item in (*states, durable, applied, key):
        assert not misowned(secret_named(client, owner, name_of(item)), owner)
    assert not misowned(secret_named(client, owner, backup), owner)


def test_owner_repair_lists_no_backups_when_nothing_is_wrong(
    requests: Requests, client: Client, owner: Owner
) -> None:
    (made,) = store(client, owner, payload(document()))
    adopt(client, owner, "h2:a")
    states = [secret_named(client, owner, name_of(made))]
    before = requests.count
    assert repair_owners(client, owner, states=states, others=[]).total == 0
    assert requests.count == before


def test_chunks_that_were_just_adopted_are_skipped(client: Client, owner: Owner) -> None:
    (made,) = store(client, owner, payload(document()))
    adopt(client, owner, "h2:a")
    repaired = repair_owners(client, owner, states=[made], others=[], skip_states=True)
    assert (repaired.total, repaired.failures) == (0, ())


def test_a_repair_that_fails_is_left_for_the_next_pass(client: Client, owner: Owner) -> None:
    (made,) = store(client, owner, payload(document()))
    client.patch(SECRET, name_of(made), {"metadata": {"annotations": {"x": "y"}}}, owner.namespace)
    repaired = repair_owners(client, owner, states=[made], others=[])
    assert repaired.total == 0
    assert repaired.failures == (f"Secret {name_of(made)}",)


def test_retained_secrets_are_never_owned(client: Client, owner: Owner) -> None:
    made = state_secrets(
        [payload(document())],
        suffix=owner.suffix,
        namespace=owner.namespace,
        labels={"captf.io/retained-from-uid": "u-earlier"},
    )[0]
    created = client.create(SECRET, made, owner.namespace)
    assert repair_owners(client, owner, states=[created], others=[]).total == 0
    assert owner_references(secret_named(client, owner, name_of(created))) == []


# Backups -------------------------------------------------------------------------------------------


def backup_secrets(client: Client, owner: Owner) -> dict[str, Object]:
    listed = client.list(SECRET, owner.namespace, label_selector=names.backup_selector(owner.suffix))
    return {name_of(item): item for item in listed}


def test_a_backup_is_a_verbatim_copy_that_the_backend_does_not_see(client: Client, owner: Owner) -> None:
    data = payload(document(serial=7, resources=3, outputs={"x": random.Random(1).randbytes(800).hex()}))
    pieces = chunks_of(data, 500)
    states = store(client, owner, *pieces, annotations={"captf.io/inputs-hash": "h2:a"})
    outcome = backed_up(client, owner, source_job="captf-m-m1-apply-a1-abc123")
    taken = outcome.taken
    assert taken is not None
    base = f"captf-state-backup-{owner.suffix}-7"
    assert taken.name == base
    assert taken.chunks == (base, *(f"{base}-part-{i}" for i in range(1, len(pieces))))
    found = backup_secrets(client, owner)
    digest = sha256(data).hexdigest()
    for index, state in enumerate(states):
        copy = found[taken.chunks[index]]
        assert copy["data"] == state["data"]
        assert copy["type"] == "Opaque"
        assert owner_references(copy) == [owner.reference()]
        assert labels_of(copy) == {
            **names.state_labels(owner.kind, owner.name, "prod"),
            "captf.io/state-backup": "true",
            "captf.io/state-backup-suffix": owner.suffix,
        }
        expected = {
            "captf.io/state-backup-serial": "7",
            "captf.io/state-backup-lineage": "6e1f0c5a",
            "captf.io/state-backup-taken-at": "2026-09-25T12:00:00Z",
            "captf.io/state-backup-digest": digest,
            "captf.io/state-backup-resources": "3",
            "captf.io/state-backup-set": base,
            "captf.io/state-backup-chunk": str(index),
            "captf.io/state-backup-chunks": str(len(pieces)),
            "captf.io/state-backup-source-job": "captf-m-m1-apply-a1-abc123",
        }
        if index == 0:
            expected["captf.io/inputs-hash"] = "h2:a"
        assert annotations_of(copy) == expected
    assert outcome.backups is not None
    assert [(item.serial, item.taken_at, item.bytes) for item in outcome.backups] == [(7, NOW, len(data))]
    assert "captf.io/restore-state=7" in outcome.note
    assert not outcome.retry
    (listed,) = list_backups(client, owner.namespace, owner.suffix)
    assert listed.complete
    assert (listed.digest, listed.resources, listed.inputs_hash) == (digest, 3, "h2:a")
    state = read_state(client, owner.namespace, owner.suffix).state
    assert state is not None
    assert len(state.secrets) == len(pieces)


def test_the_same_content_is_backed_up_once(client: Client, owner: Owner) -> None:
    store(client, owner, payload(document(serial=1)))
    assert backed_up(client, owner).taken is not None
    again = backed_up(client, owner, NOW + timedelta(minutes=1))
    assert again.taken is None
    assert not again.skipped
    assert again.backups is not None
    assert len(backup_secrets(client, owner)) == 1
    assert again.note == ""


def test_other_content_of_the_same_serial_gets_a_name_with_its_digest(client: Client, owner: Owner) -> None:
    store(client, owner, payload(document(serial=1)))
    backed_up(client, owner)
    other = payload(document(serial=1, resources=9))
    replace_payload(client, owner, other)
    taken = backed_up(client, owner, NOW + timedelta(minutes=1)).taken
    assert taken is not None
    assert taken.name == f"captf-state-backup-{owner.suffix}-1-{sha256(other).hexdigest()[:8]}"
    sets = list_backups(client, owner.namespace, owner.suffix)
    assert [item.name for item in sets] == [taken.name, names.state_backup(owner.suffix, 1)]


def test_a_foreign_secret_of_the_backups_name_is_left_alone(client: Client, owner: Owner) -> None:
    data = payload(document(serial=1))
    store(client, owner, data)
    plain = names.state_backup(owner.suffix, 1)
    plain_secret(client, owner, plain)
    outcome = backed_up(client, owner)
    assert outcome.taken is not None
    assert outcome.taken.name == f"{plain}-{sha256(data).hexdigest()[:8]}"
    assert "data" not in secret_named(client, owner, plain)


def test_when_both_names_are_taken_the_backup_is_given_up(client: Client, owner: Owner) -> None:
    data = payload(document(serial=1))
    store(client, owner, data)
    plain = names.state_backup(owner.suffix, 1)
    plain_secret(client, owner, plain)
    plain_secret(client, owner, f"{plain}-{sha256(data).hexdigest()[:8]}")
    outcome = backed_up(client, owner)
    assert outcome.taken is None
    assert "is no backup of this state" in outcome.skipped
    assert not outcome.retry


def test_a_backup_that_was_cut_short_is_completed(client: Client, owner: Owner) -> None:
    data = payload(document(serial=1, outputs={"x": random.Random(2).randbytes(900).hex()}))
    store(client, owner, *chunks_of(data, 400))
    first = backed_up(client, owner).taken
    assert first is not None
    client.delete(SECRET, first.chunks[-1], owner.namespace, propagation_policy="Background")
    assert not list_backups(client, owner.namespace, owner.suffix)[0].complete
    again = backed_up(client, owner, NOW + timedelta(minutes=1)).taken
    assert again is not None
    assert again.name == first.name
    (listed,) = list_backups(client, owner.namespace, owner.suffix)
    assert listed.complete


@pytest.mark.parametrize(
    "data",
    [
        b"damaged",
        payload(b'{"encryption_version":"v0"}'),
        payload(document(version=5)),
        payload(document(serial=0)),
    ],
    ids=["corrupt", "encrypted", "version", "serial"],
)
def test_what_cannot_be_read_is_not_backed_up(client: Client, owner: Owner, data: bytes) -> None:
    store(client, owner, data)
    outcome = backed_up(client, owner)
    assert outcome.skipped
    assert not outcome.retry
    assert outcome.taken is None
    assert backup_secrets(client, owner) == {}


def test_no_state_and_no_wish_for_backups(client: Client, owner: Owner) -> None:
    assert backed_up(client, owner) == BackupOutcome()
    store(client, owner, payload(document()))
    assert backed_up(client, owner, keep=0) == BackupOutcome()
    assert backed_up(client, owner, keep=-1) == BackupOutcome()
    assert backup_secrets(client, owner) == {}


def test_a_refused_request_is_tried_again(client: Client, owner: Owner) -> None:
    store(client, owner, payload(document()))
    with ApiServer(controllers=False) as gone:
        lost = Client.from_config(kubeconfig=str(gone.kubeconfig()))
        lost.close()
        outcome = backed_up(lost, owner)
    assert outcome.retry
    assert outcome.skipped
    assert outcome.backups is None


def test_surplus_backups_go_and_the_one_to_restore_stays(client: Client, owner: Owner) -> None:
    store(client, owner, payload(document(serial=1)))
    pruned = 0
    for serial in range(1, 6):
        replace_payload(client, owner, payload(document(serial=serial)))
        outcome = backed_up(client, owner, NOW + timedelta(minutes=serial), keep=2, pending_restore=1)
        pruned += outcome.pruned
    assert outcome.backups is not None
    assert [item.serial for item in outcome.backups] == [5, 4, 1]
    assert pruned == 2
    assert sorted(backup_secrets(client, owner)) == [names.state_backup(owner.suffix, s) for s in (1, 4, 5)]


def made_set(name: str, minutes: int, *, serial: int = 1, complete: bool = True) -> BackupSet:
    return BackupSet(
        name=name,
        serial=serial,
        lineage="",
        taken_at=NOW + timedelta(minutes=minutes),
        digest="",
        resources=0,
        inputs_hash="",
        source_job="",
        chunks=(name,),
        bytes=1,
        complete=complete,
        secrets=(),
    )


def test_pruning_walks_from_the_newest() -> None:
    sets = [
        made_set("in-flight", 9, complete=False),
        made_set("a", 8),
        made_set("broken", 7, complete=False),
        made_set("b", 6),
        made_set("c", 5),
        made_set("spared", 4, serial=42),
    ]
    assert [item.name for item in sets_to_prune(sets, 2, 42)] == ["broken", "c"]
    assert [item.name for item in sets_to_prune(sets, 2)] == ["broken", "c", "spared"]
    assert sets_to_prune(sets, 0) == ()
    assert sets_to_prune([], 5) == ()


def test_pruning_leaves_what_an_earlier_object_retained() -> None:
    kept = {"metadata": {"name": "kept", "labels": {"captf.io/retained-from-uid": "of-an-earlier-one"}}}
    retained = [dataclasses.replace(made_set("kept", minutes), secrets=(kept,)) for minutes in (9, 1)]
    sets = [retained[0], made_set("a", 8), made_set("b", 7), retained[1]]
    assert [item.name for item in sets_to_prune(sets, 1)] == ["b"]


def test_sixteen_backups_are_listed() -> None:
    sets = [made_set(str(index), -index, serial=index + 1) for index in range(20)]
    listed = status_backups([made_set("x", 1, complete=False), *sets])
    assert [item.serial for item in listed] == list(range(1, 17))


def chunk(set_name: str, index: int, count: int, **notes: str) -> Object:
    made = secret(names.chunk_name(set_name, index), b"x")
    made["metadata"]["annotations"] = {
        "captf.io/state-backup-set": set_name,
        "captf.io/state-backup-serial": "3",
        "captf.io/state-backup-chunk": str(index),
        "captf.io/state-backup-chunks": str(count),
        **{f"captf.io/state-backup-{key}": value for key, value in notes.items()},
    }
    return made


@pytest.mark.parametrize(
    ("secrets", "complete"),
    [
        ([chunk("s", 0, 1)], True),
        ([chunk("s", 1, 2), chunk("s", 0, 2)], True),
        ([chunk("s", 0, 2)], False),
        ([chunk("s", 1, 2)], False),
        ([chunk("s", 0, 1, serial="0")], False),
        ([chunk("s", 0, 1, serial="x")], False),
        ([chunk("s", 0, 1, chunks="0")], False),
        ([chunk("s", 0, 1, chunks="33")], False),
        ([chunk("s", 0, 1, chunk="x")], False),
        (
            [
                chunk("s", 0, 1),
                {**chunk("s", 0, 1), "metadata": {**chunk("s", 0, 1)["metadata"], "name": "stray"}},
            ],
            False,
        ),
    ],
)
def test_a_set_is_complete_when_every_chunk_is_there_and_nothing_else(
    secrets: list[Object], complete: bool
) -> None:
    (found,) = group_backups(secrets)
    assert found.name == "s"
    assert found.complete is complete


def test_a_backup_made_by_hand_is_its_own_set() -> None:
    bare = secret("mine", b"x")
    bare["metadata"]["annotations"] = {}
    bare["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    (found,) = group_backups([bare])
    assert (found.name, found.complete) == ("mine", False)
    assert found.taken_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


# Restore -------------------------------------------------------------------------------------------


def request_restore(client: Client, owner: Owner, value: str) -> Object:
    return client.patch(
        TERRAFORM_MACHINE,
        owner.name,
        {"metadata": {"annotations": {"captf.io/restore-state": value}}},
        owner.namespace,
    )


@pytest.mark.parametrize(
    ("text", "serial"),
    [
        ("7", 7),
        (" 7\n", 7),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("0", None),
        ("-1", None),
        ("7.0", None),
        ("x", None),
        ("", None),
        ("٧", None),
    ],
)
def test_what_a_request_names(text: str, serial: int | None) -> None:
    assert requested_serial(text) == serial


def test_a_requested_restore_starts(client: Client, owner: Owner) -> None:
    pieces = chunks_of(payload(document(serial=7, outputs={"x": random.Random(3).randbytes(500).hex()})), 300)
    store(client, owner, *pieces, annotations={"captf.io/inputs-hash": "h2:a"})
    backed_up(client, owner)
    request_restore(client, owner, " 7 ")
    found = evaluate_restore(client, owner, RestoreFacts(" 7 "))
    assert found.start is not None
    assert found.start.serial == 7
    assert found.start.tick == f"restore/{names.state_backup(owner.suffix, 7)}"
    assert found.start.backup.inputs_hash == "h2:a"
    assert found.backups is not None
    assert [item.serial for item in found.backups] == [7]


@pytest.mark.parametrize("value", ["8", "x", "0"])
def test_a_request_that_names_no_complete_backup(client: Client, owner: Owner, value: str) -> None:
    store(client, owner, payload(document(serial=7)))
    backed_up(client, owner)
    request_restore(client, owner, value)
    found = evaluate_restore(client, owner, RestoreFacts(value))
    assert found.start is None
    assert f'"{value}"' in found.not_found
    assert "status.stateBackups" in found.not_found
    assert (found.backups is not None) is (value == "8")


def test_a_consumed_serial_is_not_restored_again(client: Client, owner: Owner) -> None:
    store(client, owner, payload(document(serial=7)))
    backed_up(client, owner)
    request_restore(client, owner, "7")
    assert evaluate_restore(client, owner, RestoreFacts("7", last_restored_serial=7)).consumed
    client.patch(
        TERRAFORM_MACHINE,
        owner.name,
        {"status": {"lastRestoredSerial": 7}},
        owner.namespace,
        subresource="status",
    )
    lagging = evaluate_restore(client, owner, RestoreFacts("7", last_restored_serial=0))
    assert lagging.start is None
    assert not lagging.not_found


def test_a_request_that_changed_meanwhile_does_not_start(client: Client, owner: Owner) -> None:
    store(client, owner, payload(document(serial=7)))
    backed_up(client, owner)
    request_restore(client, owner, "9")
    assert evaluate_restore(client, owner, RestoreFacts("7")).start is None


def test_no_request_forgets_what_was_consumed(client: Client, owner: Owner) -> None:
    for absent in (None, ""):
        found = evaluate_restore(client, owner, RestoreFacts(absent))
        assert found.forget
        assert not found.keep_serial
    assert evaluate_restore(client, owner, RestoreFacts(None, removed_now=True)).keep_serial


@pytest.mark.parametrize(
    ("held", "retain", "looked_for"), [(False, False, False), (True, True, False), (True, False, True)]
)
def test_a_deleting_object_restores_only_while_held_and_not_retaining(
    client: Client, owner: Owner, held: bool, retain: bool, looked_for: bool
) -> None:
    found = evaluate_restore(client, owner, RestoreFacts("5", deleting=True, held=held, retain=retain))
    assert bool(found.not_found) is looked_for


def test_a_backup_that_was_tampered_with_is_not_restored(client: Client, owner: Owner) -> None:
    store(client, owner, payload(document(serial=7)))
    taken = backed_up(client, owner).taken
    assert taken is not None
    assert verify_backup(client, owner.namespace, taken)
    client.patch(
        SECRET,
        taken.name,
        {"data": {"tfstate": base64.b64encode(payload(document(serial=7, resources=0))).decode()}},
        owner.namespace,
    )
    request_restore(client, owner, "7")
    assert not verify_backup(client, owner.namespace, taken)
    assert evaluate_restore(client, owner, RestoreFacts("7")).not_found


# Locks ---------------------------------------------------------------------------------------------

OWN_POD = "captf-m-m1-apply-a1-abc123-x7k2p"


def lock(
    client: Client, owner: Owner, who: str | None, holder: str | None = "lock-id", **info: str
) -> Object:
    notes = {}
    if who is not None:
        notes["app.terraform.io/lock-info"] = json.dumps(
            {"ID": "lock-id", "Operation": "OperationTypeApply", "Who": who, "Created": "2026-01-01", **info}
        )
    return client.create(
        LEASE,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": names.state_lock_lease(owner.suffix),
                "namespace": owner.namespace,
                "annotations": notes,
            },
            "spec": {"holderIdentity": holder} if holder is not None else {},
        },
        owner.namespace,
    )


def pod(client: Client, owner: Owner, phase: str) -> None:
    # No controller runs that would make the namespace's default account, and a real server wants it.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    client.create(SERVICE_ACCOUNT, account, owner.namespace)
    client.create(
        POD,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": OWN_POD, "namespace": owner.namespace},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "x"}],
            },
        },
        owner.namespace,
    )
    client.patch(POD, OWN_POD, {"status": {"phase": phase}}, owner.namespace, subresource="status")


def test_no_lease_is_no_lock(client: Client, owner: Owner) -> None:
    assert read_lock(client, owner).kind is LockKind.FREE
    assert lock_version(client, owner.namespace, owner.suffix) == "none"


@pytest.mark.parametrize("holder", [None, ""])
def test_a_lease_without_a_holder_is_free(client: Client, owner: Owner, holder: str | None) -> None:
    made = lock(client, owner, f"root@{OWN_POD}", holder)
    assert read_lock(client, owner).kind is LockKind.FREE
    assert lock_version(client, owner.namespace, owner.suffix) == resource_version_of(made)


@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        (None, "stale"),
        ("Succeeded", "stale"),
        ("Failed", "stale"),
        ("Running", "alive"),
        ("Pending", "alive"),
    ],
)
def test_a_pod_of_the_object_holds_the_lock(
    client: Client, owner: Owner, phase: str | None, kind: str
) -> None:
    lock(client, owner, f"me@home@{OWN_POD}")
    if phase is not None:
        pod(client, owner, phase)
    found = read_lock(client, owner)
    assert found.kind == kind
    assert found.id == "lock-id"


@pytest.mark.parametrize(
    "who",
    [
        "jane@laptop",
        "jane",
        "",
        f"root@{OWN_POD}x",
        "root@captf-c-m1-apply-a1-abc123-x7k2p",
        "root@captf-m-m1-bogus-a1-abc123-x7k2p",
        None,
    ],
)
def test_anything_else_is_foreign(client: Client, owner: Owner, who: str | None) -> None:
    lock(client, owner, who)
    found = read_lock(client, owner)
    assert found.kind is LockKind.FOREIGN
    assert (who or "unknown") in found.message
    if who is not None:
        assert "OperationTypeApply" in found.message
        assert "2026-01-01" in found.message


def test_the_holder_identity_stands_in_for_a_missing_lock_id(client: Client, owner: Owner) -> None:
    lock(client, owner, "jane@laptop", "identity", ID="")
    assert read_lock(client, owner).id == "identity"


@pytest.mark.parametrize("odd", ["-state=other", "$(HOME)", "a b", "`id`", "x" * 129])
def test_an_id_that_no_backend_makes_is_no_argument_of_anything(
    client: Client, owner: Owner, odd: str
) -> None:
    lock(client, owner, f"root@{OWN_POD}", "identity", ID=odd)
    found = read_lock(client, owner)
    assert (found.kind, found.id, found.info.id) == (LockKind.FOREIGN, "", "")
    assert odd not in found.message
    assert "terraform force-unlock <id>" in found.message


@pytest.mark.parametrize("text", [None, "", "x", "[]", '{"ID":1}', "[" * 5000])
def test_lock_info_that_cannot_be_read_is_unknown(text: str | None) -> None:
    assert parse_lock_info(text).who == ""


def test_lock_info_is_shown_bounded_and_printable() -> None:
    info = parse_lock_info(json.dumps({"Who": "a\nb" * 500, "ID": "x"}))
    assert "\n" not in info.who
    assert len(info.who) <= 256


def test_an_unchanged_lock_is_evidence_only_when_it_was_recorded() -> None:
    assert lock_unchanged("none", "none")
    assert lock_unchanged("12", "12")
    assert not lock_unchanged("12", "13")
    assert not lock_unchanged("none", "12")
    assert not lock_unchanged("", "")


def test_metadata_keeps_no_data() -> None:
    assert metadata_of(secret("a", b"s3cret")).keys() == {"apiVersion", "kind", "metadata"}
