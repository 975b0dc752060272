"""Objects as a tenant may forge them: no pass breaks on one, reads elsewhere, or takes long.

A tenant may write whatever the API server accepts in its own namespace: annotations, owner references, Jobs,
pods, leases and Secrets that carry CAPTF's names and labels. What the manager makes of them may be an error of
the API or a condition, but never an exception that nobody expected, and never a request to another namespace.
"""

from __future__ import annotations

import base64
import copy
import gzip
import json
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import state_secrets
from tests.deletion_case import NAMES
from tests.world import DIGEST, IDENTITY, IMAGE, KINDS, OPERATOR, OUTPUTS, TEAM, World, secret

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.kinds import CLUSTER, GROUP, MACHINE, MACHINE_POOL, OWNER_KINDS
from captf_controllers.state.reading import MAX_STATE_BYTES
from captf_runtime.client.errors import ApiError, BadRequest, Invalid, RequestTooLarge
from captf_runtime.objects import JOB, LEASE, NAMESPACE, POD, SECRET, Kind, Object, name_of, uid_of

SECONDS_FOR_A_PASS = 10.0
"""Processor time that a pass may take, whatever it meets; a slow machine included."""

ELSEWHERE = "team-b"
ANNOTATION_LIMIT = 256 * 1024

kinds = st.sampled_from(sorted(KINDS))
oddities = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "",
            " ",
            "0",
            "-1",
            "7",
            "٣",
            "1e9",
            "9" * 19,
            "9" * 5000,
            "-" + "9" * 5000,
            "true",
            "null",
            "[]",
            "{}",
            "[1,2]",
            '["a", null, {"b": []}]',
            '{"ID": 5, "Who": [], "Operation": {}}',
            '{"ID": "x", "Who": "a@b@c", "Created": "yesterday"}',
            "[" * 2000,
            "{" * 2000,
            "2026-13-45T99:99:99Z",
            "0000-00-00T00:00:00Z",
            "9999-12-31T23:59:59.999999999+14:00",
            "2026-01-01T00:00:00",
            "../../team-b/secret",
            f"{ELSEWHERE}/secret",
            "h2:" + "f" * 64,
            "\u0000",
            "𝕏" * 100,
            "%s%n{0}",
            "x" * 10_000,
        ]
    ),
)
OBJECT_KEYS = (
    keys.RESTORE_STATE,
    keys.ABANDON_INFRASTRUCTURE,
    keys.CONFIRM_NO_RESOURCES,
    keys.APPLIED_AS,
    keys.BLOCK_MOVE,
    keys.ENDPOINT_SOURCE,
    keys.AUTOSCALER_MIN_SIZE,
    keys.AUTOSCALER_MAX_SIZE,
    keys.REMEDIATION_REQUESTED,
    keys.REPLICAS_MANAGED_BY,
    keys.DELETE_FOR_MOVE,
)
JOB_KEYS = (
    keys.RESTORE_SERIAL,
    keys.IMAGE_FALLBACKS,
    keys.STATE_LOCK_VERSION,
    keys.INPUTS_HASH,
    keys.BOOKKEPT,
    keys.INTERRUPTED,
    keys.PLAN,
    keys.PLAN_HASH,
    keys.APPROVED_PLAN,
    keys.APPROVAL_HASH,
    keys.DRIFT_REMEDIATION,
    keys.AFTER_INTERRUPTED_APPLY,
    keys.CLUSTER_OUTPUTS_HASH,
)
SECRET_KEYS = (
    keys.INPUTS_HASH,
    keys.STATE_BACKUP_SERIAL,
    keys.STATE_BACKUP_LINEAGE,
    keys.STATE_BACKUP_TAKEN_AT,
    keys.STATE_BACKUP_DIGEST,
    keys.STATE_BACKUP_RESOURCES,
    keys.STATE_BACKUP_SET,
    keys.STATE_BACKUP_CHUNK,
    keys.STATE_BACKUP_CHUNKS,
    keys.IMAGE,
    keys.IMAGE_DIGEST,
    keys.IDENTITY,
    keys.IDENTITY_KIND,
    keys.JOB,
    keys.APPLIED,
    keys.UNCONFIRMED_APPLY,
    keys.MAY_HAVE_APPLIED,
    keys.UNPULLABLE_IMAGES,
    keys.PENDING_CLUSTER_OUTPUTS,
    keys.PARTIAL_CLUSTER_OUTPUTS,
)
LEASE_KEYS = (keys.LEASE_OP, keys.LEASE_ACQUIRED_AT, keys.LOCK_INFO)


def some(names_: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(names_), oddities, max_size=4)


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    with World() as world:
        yield world


def at_stage(world: World, kind: str) -> World:
    """The world with a provisioned object of a kind, and a namespace that nobody may touch."""

    def build() -> None:
        world.create(NAMESPACE, {"metadata": {"name": ELSEWHERE}})
        world.create(SECRET, secret("secret", {"value": "theirs"}), ELSEWHERE)
        world.provisioned(kind, NAMES[kind])

    world.stage("the beginning", lambda: None)
    world.stage(f"beside {ELSEWHERE}: {kind}", build)
    return world


def attempt(action: Callable[[], object]) -> bool:
    """What a tenant tries; the API server may refuse it."""
    try:
        action()
    except (BadRequest, Invalid, RequestTooLarge):
        return False
    return True


def survive(world: World, kind: str, name: str, *, passes: int = 3, delete: bool = True) -> None:
    """Passes over a live and then a deleting object, none of which breaks, strays or takes long."""
    world.server.requests.clear()
    run_passes(world, kind, name, passes)
    if delete and world.find(kind, name) is not None:
        world.delete(kind, name)
        run_passes(world, kind, name, passes)
    for entry in world.server.requests:
        if not entry.user_agent.startswith("captf-manager"):
            continue
        source = entry.namespace == OPERATOR and entry.verb == "get"
        assert entry.namespace in (TEAM, "") or source, f"{entry.verb} {entry.path}"
    assert world.exists(SECRET, "secret", ELSEWHERE)


def run_passes(world: World, kind: str, name: str, passes: int) -> None:
    for _ in range(passes):
        started = time.process_time()
        try:
            requeue = world.reconcile(kind, name)
            assert 0 <= requeue <= 3600
        except* ApiError:
            pass  # of the pass and of its status patch; anything else goes on
        assert time.process_time() - started < SECONDS_FOR_A_PASS
        world.advance(31)


quick = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


# What hangs on the object itself ------------------------------------------------------------------


@quick
@given(kind=kinds, notes=some(OBJECT_KEYS), held=st.booleans())
def test_annotations_of_an_object(shared: World, kind: str, notes: dict[str, str], held: bool) -> None:
    world, name = at_stage(shared, kind), NAMES[kind]
    if held:
        base = names.state_secret(names.state_suffix(TEAM, kind, name))
        world.client.delete(SECRET, base, TEAM, propagation_policy="Background")
    for key, value in notes.items():
        attempt(
            lambda key=key, value=value: world.patch(kind, name, {"metadata": {"annotations": {key: value}}})
        )
    survive(world, kind, name)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("key", OBJECT_KEYS)
def test_an_annotation_as_long_as_the_api_server_takes(shared: World, kind: str, key: str) -> None:
    world, name = at_stage(shared, kind), NAMES[kind]
    value = "9" * (ANNOTATION_LIMIT - 2000)
    assert attempt(lambda: world.patch(kind, name, {"metadata": {"annotations": {key: value}}}))
    survive(world, kind, name, passes=2)


@quick
@given(
    kind=kinds,
    references=st.lists(
        st.fixed_dictionaries(
            {
                "apiVersion": st.sampled_from(
                    ["v1", "cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1", "a/b", f"{GROUP}/v1alpha1"]
                ),
                "kind": st.sampled_from(["Cluster", "Machine", "MachinePool", "Secret", "TerraformMachine"]),
                "name": st.sampled_from(["prod", "m1", "secret", "x" * 253, "..", "a/b", "ä"]),
                "uid": st.sampled_from(["1", "real", "ä" * 100]),
            }
        ),
        max_size=3,
    ),
    label=st.sampled_from([None, "", "prod", "other", "x" * 63]),
)
def test_owner_references_and_the_cluster_name(
    shared: World, kind: str, references: list[dict[str, str]], label: str | None
) -> None:
    world, name = at_stage(shared, kind), NAMES[kind]
    owner = world.get(kind, name)["metadata"]["ownerReferences"][0]
    made = [{**item, "uid": owner["uid"] if item["uid"] == "real" else item["uid"]} for item in references]
    change = {"ownerReferences": made, "labels": {"cluster.x-k8s.io/cluster-name": label}}
    attempt(lambda: world.patch(kind, name, {"metadata": change}))
    survive(world, kind, name)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", ["n" * 253, ".".join(["a" * 63] * 3) + ".b", "1", "a.b-c.d"])
def test_names_up_to_the_limit_live_and_go(shared: World, kind: str, name: str) -> None:
    world = at_stage(shared, "TerraformCluster")
    cluster = name if kind == "TerraformCluster" else NAMES["TerraformCluster"]
    owner_kind = OWNER_KINDS[kind]
    world._ensure(SECRET, secret("bootstrap", {"value": "x"}), TEAM)
    infra = {"apiGroup": GROUP, "kind": kind, "name": name}
    claim = {"clusterName": cluster, "bootstrap": {"dataSecretName": "bootstrap"}, "infrastructureRef": infra}
    spec: dict[Kind, Any] = {
        CLUSTER: {"infrastructureRef": infra},
        MACHINE: claim,
        MACHINE_POOL: {"clusterName": cluster, "template": {"spec": claim}},
    }
    owner = world._ensure(owner_kind, {"metadata": {"name": name}, "spec": spec[owner_kind]}, TEAM)
    reference = {
        "apiVersion": owner_kind.api_version,
        "kind": owner_kind.kind,
        "name": name,
        "uid": uid_of(owner),
    }
    # A label holds 63 characters; a longer Cluster name cannot be in one.
    by_label = {"cluster.x-k8s.io/cluster-name": cluster} if len(cluster) <= 63 else {}
    more = {"identityRef": {"name": IDENTITY}} if kind == "TerraformCluster" else {}
    world.create(
        KINDS[kind],
        {
            "metadata": {"name": name, "labels": by_label, "ownerReferences": [reference]},
            "spec": {"source": {"image": IMAGE}, **more},
        },
        TEAM,
    )
    world.settle(kind, name)
    running = [job for job in world.jobs() if names.job_op(kind, name, name_of(job)) and unfinished(job)]
    assert [names.job_op(kind, name, name_of(job)) for job in running] == ["apply"]
    end(world, running[0], kind, name, OUTPUTS[kind])
    world.settle(kind, name)
    assert world.says(kind, name, "StateReadable") == "True/StateRead"
    world.delete(kind, name)
    world.settle(kind, name)
    destroy = [job for job in world.jobs() if names.job_op(kind, name, name_of(job)) and unfinished(job)]
    assert [names.job_op(kind, name, name_of(job)) for job in destroy] == ["destroy"]
    end(world, destroy[0], kind, name, {})
    world.settle(kind, name)
    assert world.find(kind, name) is None


def unfinished(job: Object) -> bool:
    return not (job.get("status") or {}).get("conditions")


def end(world: World, job: Object, kind: str, name: str, outputs: dict[str, Any]) -> None:
    """A Job's success with its state; the label of a long name does not hold the name."""
    world.write_state(kind, name, outputs=outputs, resources=1 if outputs else 0)
    world.start_pod(job, phase="Succeeded")
    world.end_job(job, succeeded=True)


# Jobs, pods and leases ----------------------------------------------------------------------------


@quick
@given(
    kind=kinds,
    notes=some(JOB_KEYS),
    op=st.sampled_from(["apply", "destroy", "refresh", "drift", "plan", "restore", "bogus", ""]),
    number=st.sampled_from(["1", "-1", "999999999999999999999", "x", "", "1.5"]),
    owner=st.sampled_from(["ours", "another", "none"]),
    ended=st.sampled_from(["", "Complete", "Failed", "FailureTarget", "Odd"]),
    result=oddities,
    reason=oddities,
)
def test_forged_jobs_and_pods(
    shared: World,
    kind: str,
    notes: dict[str, str],
    op: str,
    number: str,
    owner: str,
    ended: str,
    result: str,
    reason: str,
) -> None:
    world, name = at_stage(shared, kind), NAMES[kind]
    reference = {"apiVersion": "v1", "kind": kind, "name": name, "controller": True}
    uid = {"ours": uid_of(world.get(kind, name)), "another": "another"}.get(owner)
    meta = {
        "name": f"captf-{names.kind_short(kind)}-{name}-destroy-a1-abcdef",
        "labels": {
            **names.owner_labels(kind, name),
            labels.MANAGED: "true",
            "captf.infrastructure.cluster.x-k8s.io/op": op,
            "captf.infrastructure.cluster.x-k8s.io/attempt": number,
        },
        "annotations": notes,
        "ownerReferences": [{**reference, "uid": uid}] if uid else [],
    }
    template = {
        "metadata": {"labels": meta["labels"]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "source", "image": "example.com/x"}]},
    }
    if not attempt(lambda: world.create(JOB, {"metadata": meta, "spec": {"template": template}}, TEAM)):
        return
    job = world.client.get(JOB, str(meta["name"]), TEAM)
    world.start_pod(job)
    pod = f"{meta['name']}-x7k2p"
    terminated = {"exitCode": 1, "reason": reason, "message": result}
    status = {
        "phase": "Failed" if ended else "Running",
        "containerStatuses": [
            {"name": "source", "image": "", "imageID": reason, "ready": False, "restartCount": 0}
            | {"state": {"terminated": terminated} if ended else {"waiting": {"reason": reason}}}
        ],
    }
    attempt(lambda: world.client.patch(POD, pod, {"status": status}, TEAM, subresource="status"))
    if ended:
        condition = {"type": ended, "status": "True", "reason": reason, "message": result}
        change = {"status": {"conditions": [condition]}}
        attempt(lambda: world.client.patch(JOB, name_of(job), change, TEAM, subresource="status"))
    survive(world, kind, name)


results = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "op",
                    "steps",
                    "error",
                    "kind",
                    "step",
                    "tail",
                    "resources",
                    "changes",
                    "drift",
                    "plan",
                    "image",
                    "runtime",
                    "name",
                    "seconds",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@quick
@given(kind=kinds, document=results, succeeded=st.booleans(), op=st.sampled_from(["destroy", "drift"]))
def test_the_result_of_a_real_job(shared: World, kind: str, document: Any, succeeded: bool, op: str) -> None:
    """A module image may write whatever it likes where the runner's result is read from."""
    world, name = at_stage(shared, kind), NAMES[kind]
    if op == "destroy":
        world.delete(kind, name)
    else:
        world.advance(2000)
    world.reconcile(kind, name)
    job = world.running_job(name)
    world.start_pod(job)
    content = {"version": 1, "op": op, **document} if isinstance(document, dict) else document
    message = json.dumps(content)[:4096]
    status = {
        "phase": "Succeeded" if succeeded else "Failed",
        "containerStatuses": [
            {"name": "source", "image": "x", "imageID": f"x@{DIGEST}", "ready": False, "restartCount": 0}
            | {"state": {"terminated": {"exitCode": 0 if succeeded else 1, "message": message}}}
        ],
    }
    pod = f"{name_of(job)}-x7k2p"
    attempt(lambda: world.client.patch(POD, pod, {"status": status}, TEAM, subresource="status"))
    world.end_job(job, succeeded=succeeded)
    survive(world, kind, name, passes=2, delete=op != "destroy")


@quick
@given(
    kind=kinds,
    which=st.sampled_from(["run", "cluster", "lock"]),
    holder=st.one_of(st.none(), oddities),
    seconds=st.sampled_from([None, 0, -1, 1, 2**31 - 1]),
    notes=some(LEASE_KEYS),
    marked=st.booleans(),
)
def test_forged_leases(
    shared: World,
    kind: str,
    which: str,
    holder: str | None,
    seconds: int | None,
    notes: dict[str, str],
    marked: bool,
) -> None:
    world, name = at_stage(shared, kind), NAMES[kind]
    suffix = names.state_suffix(TEAM, kind, name)
    cluster = name if kind == "TerraformCluster" else "prod"
    lease = {
        "run": names.run_lease(suffix),
        "cluster": names.cluster_lease(TEAM, cluster),
        "lock": names.state_lock_lease(suffix),
    }[which]
    owned = {labels.LEASE: which, labels.MANAGED: "true", **names.owner_labels(kind, name)} if marked else {}
    spec: Object = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    obj = {
        "metadata": {"name": lease, "labels": owned, "annotations": notes},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
    attempt(lambda: world.create(LEASE, obj, TEAM))
    world.patch(kind, name, {"metadata": {"annotations": {keys.BLOCK_MOVE: ""}}})
    survive(world, kind, name)


# Secrets ------------------------------------------------------------------------------------------


@quick
@given(
    kind=kinds,
    which=st.sampled_from(["state", "durable", "applied", "backup", "plan key", "mirror"]),
    notes=some(SECRET_KEYS),
    data=st.one_of(st.none(), st.dictionaries(st.sampled_from(["tfstate", "key", "main.tf.json"]), oddities)),
    lost=st.booleans(),
    retained=st.sampled_from([None, "another-uid", "", "x" * 63]),
)
def test_forged_secrets(
    shared: World,
    kind: str,
    which: str,
    notes: dict[str, str],
    data: dict[str, str] | None,
    lost: bool,
    retained: str | None,
) -> None:
    world, name = at_stage(shared, kind), NAMES[kind]
    suffix = names.state_suffix(TEAM, kind, name)
    target = {
        "state": names.state_secret(suffix),
        "durable": names.durable_inputs_secret(kind, name),
        "applied": names.applied_inputs_secret(kind, name),
        "backup": names.state_backup(suffix, 1),
        "plan key": names.plan_key_secret(kind, name),
        "mirror": names.credential_mirror(IDENTITY),
    }[which]
    world._ensure(SECRET, {"metadata": {"name": target}}, TEAM)
    change: Object = {"metadata": {"annotations": notes, "labels": {labels.RETAINED_FROM_UID: retained}}}
    if data is not None:
        change["data"] = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    attempt(lambda: world.client.patch(SECRET, target, change, TEAM))
    if lost and which != "state":
        world.client.delete(SECRET, names.state_secret(suffix), TEAM, propagation_policy="Background")
    world.annotate(kind, name, restore_state="1")
    survive(world, kind, name)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_zip_bomb_is_corrupt_and_takes_no_memory(shared: World, kind: str) -> None:
    world, name = at_stage(shared, kind), NAMES[kind]
    bomb = bombed(MAX_STATE_BYTES * 16)
    assert len(bomb) < 1024 * 1024
    world.write_state(kind, name, payload=bomb)
    world.delete(kind, name)
    tracemalloc.start()
    try:
        run_passes(world, kind, name, 2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * MAX_STATE_BYTES, f"{peak / 2**20:.0f} MiB"
    assert world.says(kind, name, "StateReadable") == "False/StateCorrupt"


def bombed(size: int) -> bytes:
    """A gzip stream of so many zeros, made without holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b"0" * (1 << 20)
    parts = [packer.compress(block) for _ in range(size >> 20)]
    return b"".join([*parts, packer.flush()])


@pytest.mark.slow
def test_ten_thousand_chunks_are_corrupt_and_not_decoded(shared: World) -> None:
    kind, name = "TerraformMachine", "m1"
    world = at_stage(shared, kind)
    suffix = names.state_suffix(TEAM, kind, name)
    first = world.client.get(SECRET, names.state_secret(suffix), TEAM)
    backend = world.server.backend
    secrets = backend.registry.of_kind(SECRET.group, SECRET.version, SECRET.kind)
    assert secrets is not None
    for index in range(1, 10_000):
        chunk = copy.deepcopy(first)
        chunk["metadata"] = {
            "name": names.state_chunk(suffix, index),
            "namespace": TEAM,
            "labels": first["metadata"]["labels"],
        }
        # As the API does it, without ten thousand requests.
        backend.create(secrets, TEAM, chunk)
    world.delete(kind, name)
    world.server.requests.clear()
    survive(world, kind, name, passes=1, delete=False)
    assert world.says(kind, name, "StateReadable") == "False/StateCorrupt"
    patches = [entry for entry in world.server.requests if entry.verb == "patch"]
    assert all(entry.resource != "secrets" for entry in patches), "a tenant's flood made the manager write"


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b"[]",
        b'{"version": 4}',
        b'{"version": 4, "serial": -1}',
        b'{"version": 4, "serial": 1e400}',
        b'{"version": 4, "serial": 99999999999999999999999}',
        b'{"version": true, "serial": 1}',
        b'{"version": 4, "serial": 1, "resources": {}}',
        b'{"version": 4, "serial": 1, "resources": [null]}',
        b'{"version": 4, "serial": 1, "outputs": []}',
        b'{"version": 4, "serial": 1, "outputs": {"health": {"value": ' + b"[" * 500 + b"]" * 500 + b"}}}",
        b'{"version": 4, "serial": 1, "outputs": {"provider_id": {"value": 7}}}',
        b'{"version": 4, "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"version": 4, "serial": 1, "outputs": {"\\ud800": {"value": "\\ud800"}}}',
        b"\xff\xfe\x00",
    ],
)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_documents_that_no_terraform_writes(shared: World, kind: str, document: bytes) -> None:
    world, name = at_stage(shared, kind), NAMES[kind]
    world.write_state(kind, name, payload=gzip.compress(document))
    survive(world, kind, name)


@quick
@given(kind=kinds, outputs=st.dictionaries(st.sampled_from(sorted(OUTPUTS["TerraformMachine"])), results))
def test_outputs_of_any_shape(shared: World, kind: str, outputs: dict[str, Any]) -> None:
    world, name = at_stage(shared, kind), NAMES[kind]
    document = state_secrets.document(serial=9, outputs={**OUTPUTS[kind], **outputs})
    world.write_state(kind, name, payload=state_secrets.payload(document))
    survive(world, kind, name)
