"""A tenant who may do everything with Secrets, Jobs, Leases and CAPTF's objects in one namespace.

Whatever it writes there: the manager touches no other namespace on its behalf, another tenant's objects and
credentials stay as they are, nothing confidential shows, and a pass ends instead of failing for ever.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from tests.belongings import MIRROR, requests
from tests.world import (
    FOREIGN_FINALIZER,
    IDENTITY,
    IMAGE,
    KINDS,
    OPERATOR,
    OUTPUTS,
    TEAM,
    World,
    secret,
)

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.kinds import (
    API_VERSION,
    CLUSTER,
    MACHINE,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE,
    TERRAFORM_PLAN,
    WORKLOAD_KINDS,
)
from captf_controllers.identity.usage import Users, users_in
from captf_runtime.client.errors import Invalid
from captf_runtime.objects import (
    JOB,
    LEASE,
    NAMESPACE,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
    annotations_of,
    format_time,
    labels_of,
    name_of,
    owner_references,
    uid_of,
)

VICTIM = "team-b"
FORBIDDEN = "for-others"
SECRET_VALUE = "hunter2-hunter2"
ESCAPE = "\x1b[2J\x9b31m\x07"
CREDENTIALS = base64.b64encode(b"t0p-s3cret").decode()


@pytest.fixture
def shared(world: World) -> World:
    """Two tenants: team-b has a machine that was applied, and an identity that only it may use."""

    def build() -> None:
        world.create(NAMESPACE, {"metadata": {"name": VICTIM}})
        world.add_identity(FORBIDDEN, allowedNamespaces={"list": [VICTIM]})
        for kind, name in (("TerraformCluster", "prod"), ("TerraformMachine", "m1")):
            world.add(kind, name, namespace=VICTIM)
            world.settle(kind, name, VICTIM)
            (job,) = world.jobs(name, op="apply", namespace=VICTIM)
            world.finish_job(job)
            world.settle(kind, name, VICTIM)
        world.ensure_cluster()

    world.stage("two tenants", build)
    return world


def content(world: World, *namespaces: str) -> dict[str, Object]:
    """Everything that the tenant must not reach, with its version."""
    kinds = (SECRET, JOB, LEASE, POD, SERVICE_ACCOUNT, ROLE_BINDING, CLUSTER, MACHINE, *WORKLOAD_KINDS)
    return {
        f"{namespace}/{kind.kind}/{name_of(item)}": item
        for namespace in namespaces or (VICTIM, OPERATOR)
        for kind in kinds
        for item in world.client.list(kind, namespace).items
    }


def outside(world: World) -> set[str]:
    """What the manager asked for outside of the tenant's namespace, but for what every pass must read."""
    world.writes()  # waits until the log is complete
    return {
        f"{entry.verb} {entry.namespace}/{entry.resource}/{entry.name}"
        for entry in requests(world)
        if entry.namespace != TEAM
        and not (entry.verb == "get" and entry.resource == "terraformclusteridentities")
        and not (entry.verb == "get" and entry.resource == "namespaces" and entry.name in (TEAM, OPERATOR))
        and not (
            entry.verb == "get"
            and entry.resource == "secrets"
            and (entry.namespace, entry.name) == (OPERATOR, f"{IDENTITY}-credentials")
        )
    }


def said(world: World, kind: str, name: str) -> str:
    """Everything that the manager told about an object: its status and every event."""
    obj = world.find(kind, name) or {}
    return json.dumps(
        [obj.get("status"), obj.get("metadata", {}).get("annotations"), world.events.events],
        ensure_ascii=False,
        default=str,
    )


def raw_said(world: World, kind: str, name: str) -> str:
    """The same with every text as it is, so that a control character is one."""
    texts: list[str] = []

    def gather(value: Any) -> None:
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            for item in value.values():
                gather(item)
        elif isinstance(value, list):
            for item in value:
                gather(item)

    gather((world.find(kind, name) or {}).get("status"))
    gather(world.events.events)
    return "\n".join(texts)


def run(world: World, kind: str, name: str, *, passes: int = 2) -> None:
    """Passes over time; none may raise."""
    for _ in range(passes):
        world.settle(kind, name)
        world.advance(61)


def applied(shared: World) -> Object:
    """The tenant's machine m9, applied and Ready."""
    shared.stage("two tenants and m9", lambda: shared.provisioned("TerraformMachine", "m9"))
    return shared.get("TerraformMachine", "m9")


def edit(world: World, kind: Any, name: str, patch: Object) -> None:
    world.client.patch(kind, name, patch, TEAM)


# Owners ----------------------------------------------------------------------------------------------


def victim_of(world: World, kind: Any, name: str) -> str:
    return uid_of(world.client.get(kind, name, VICTIM))


OWNERS = {
    "a machine of another namespace": lambda world: ("cluster.x-k8s.io/v1beta2", MACHINE, "m1", True),
    "a cluster of another namespace": lambda world: ("cluster.x-k8s.io/v1beta2", CLUSTER, "prod", None),
    "another version": lambda world: ("cluster.x-k8s.io/v9", MACHINE, "m1", True),
    "another group": lambda world: ("example.com/v1", MACHINE, "m1", True),
    "an infrastructure object": lambda world: (API_VERSION, TERRAFORM_MACHINE, "m1", True),
    "a name with its namespace": lambda world: ("cluster.x-k8s.io/v1beta2", MACHINE, f"{VICTIM}.m1", None),
}


@pytest.mark.parametrize("forged", OWNERS)
def test_a_forged_owner_reaches_no_other_namespace(shared: World, forged: str) -> None:
    version, kind, name, controller = OWNERS[forged](shared)
    before = content(shared)
    uid = victim_of(shared, kind, name) if kind != MACHINE or name == "m1" else "x"
    reference = {"apiVersion": version, "kind": kind.kind, "name": name, "uid": uid, "controller": controller}
    if controller is None:
        del reference["controller"]
    shared.create(
        TERRAFORM_MACHINE,
        {
            "metadata": {
                "name": "m1",
                "labels": {labels.CLUSTER_NAME: "prod"},
                "ownerReferences": [reference],
            },
            "spec": {"source": {"image": IMAGE}},
        },
        TEAM,
    )
    shared.forget_requests()
    run(shared, "TerraformMachine", "m1")
    assert shared.jobs("m1") == []
    shared.delete("TerraformMachine", "m1")
    shared.settle("TerraformMachine", "m1")
    assert shared.find("TerraformMachine", "m1") is None, "what never ran goes at once"
    assert outside(shared) == set()
    assert content(shared) == before


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_owner_that_does_not_point_back_gives_nothing(shared: World, kind: str) -> None:
    obj = shared.add("TerraformMachine", "real")
    other = shared.add(kind, "other", cluster="other" if kind == "TerraformCluster" else "prod")
    reference = owner_references(obj if kind == "TerraformMachine" else other)[0].to_dict()
    shared.delete(kind, "other")
    made = {
        "metadata": {
            "name": "other",
            "labels": {labels.CLUSTER_NAME: "prod"},
            "ownerReferences": [{**reference, "uid": "forged"}],
        },
        "spec": {"source": {"image": IMAGE}}
        | ({"identityRef": {"name": IDENTITY}} if kind == "TerraformCluster" else {}),
    }
    shared.create(KINDS[kind], made, TEAM)
    run(shared, kind, "other")
    assert shared.jobs("other") == []
    assert "Owner" in shared.says(kind, "other", "DependenciesReady")


def test_a_label_with_another_namespaces_cluster_finds_none(shared: World) -> None:
    shared.create(CLUSTER, {"metadata": {"name": "only-b"}, "spec": {}}, VICTIM)
    shared.add("TerraformMachine", "m9")
    edit(shared, TERRAFORM_MACHINE, "m9", {"metadata": {"labels": {labels.CLUSTER_NAME: "only-b"}}})
    shared.forget_requests()
    run(shared, "TerraformMachine", "m9")
    assert shared.jobs("m9") == []
    assert outside(shared) == set()


# Identities ------------------------------------------------------------------------------------------


def forge_mirror(world: World, identity: str, **metadata: Any) -> Object:
    made = secret(names.credential_mirror(identity), {"TOKEN": "forged"})
    made["metadata"] |= {
        "labels": {labels.MIRRORED: "true", labels.MANAGED: "true"},
        "annotations": {keys.IDENTITY: identity, keys.SOURCE_HASH: "f" * 64},
    } | metadata
    return world.create(SECRET, made, TEAM)


def readable(world: World) -> str:
    """All that the tenant can read in its namespace."""
    return json.dumps([world.client.list(kind, TEAM).items for kind in (SECRET, JOB, POD, *WORKLOAD_KINDS)])


@pytest.mark.parametrize("prepared", ["nothing", "a mirror", "a mirror that stays"])
@pytest.mark.parametrize("by", ["own reference", "defaults of the cluster"])
def test_an_identity_that_excludes_the_namespace_gives_nothing(shared: World, prepared: str, by: str) -> None:
    source = shared.client.get(SECRET, f"{FORBIDDEN}-credentials", OPERATOR)
    shared.client.patch(
        SECRET,
        name_of(source),
        {"data": {"TOKEN": base64.b64encode(SECRET_VALUE.encode()).decode()}},
        OPERATOR,
    )
    if prepared != "nothing":
        kept = {"finalizers": [FOREIGN_FINALIZER]} if prepared.endswith("stays") else {}
        forge_mirror(shared, FORBIDDEN, **kept)
    before = content(shared)
    if by == "own reference":
        shared.add("TerraformMachine", "thief", identityRef={"name": FORBIDDEN})
    else:
        patch = {"spec": {"defaults": {"identityRef": {"name": FORBIDDEN}}}}
        edit(shared, TERRAFORM_CLUSTER, "prod", patch)
        shared.add("TerraformMachine", "thief")
    shared.forget_requests()
    run(shared, "TerraformMachine", "thief")
    assert shared.says("TerraformMachine", "thief", "IdentityAllowed") == "False/NamespaceNotAllowed"
    assert shared.jobs("thief") == []
    assert outside(shared) == set(), "the source is not even read"
    assert SECRET_VALUE not in readable(shared)
    assert base64.b64encode(SECRET_VALUE.encode()).decode() not in readable(shared)
    assert content(shared) == before
    if prepared == "a mirror":
        assert not shared.exists(SECRET, names.credential_mirror(FORBIDDEN))


@pytest.mark.parametrize(
    ("prepared", "status"),
    [
        ({"labels": {}}, "False/MirrorFailed"),
        ({"labels": {labels.MIRRORED: "yes"}}, "False/MirrorFailed"),
        ({"annotations": {}}, "False/MirrorFailed"),
        ({"annotations": {keys.IDENTITY: FORBIDDEN}}, "False/MirrorFailed"),
        ({"annotations": {keys.IDENTITY: f"{IDENTITY}\n"}}, "False/MirrorFailed"),
        ({"annotations": {keys.IDENTITY: IDENTITY}}, "True/Mirrored"),
        ({"annotations": {keys.IDENTITY: IDENTITY, keys.SOURCE_HASH: "x" * 9000}}, "True/Mirrored"),
    ],
)
def test_a_secret_prepared_under_the_mirrors_name(
    shared: World, prepared: dict[str, Any], status: str
) -> None:
    shared.client.delete(SECRET, MIRROR, TEAM, propagation_policy="Background")
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "0-1", "controller": True}
    made = forge_mirror(shared, IDENTITY, **{"ownerReferences": [stranger], **prepared})
    obj = shared.add("TerraformMachine", "m9")
    run(shared, "TerraformMachine", "m9")
    assert shared.says("TerraformMachine", "m9", "CredentialsMirrored") == status
    found = shared.client.get(SECRET, MIRROR, TEAM)
    if status.startswith("False"):
        assert found == made, "never overwritten, never owned"
        assert shared.jobs("m9") == []
        assert CREDENTIALS not in json.dumps(found)
    else:
        assert found["data"] == {"TOKEN": CREDENTIALS}
        owners = owner_references(found)
        assert [(owner.uid, owner.controller) for owner in owners] == [("0-1", True), (uid_of(obj), False)]


@pytest.mark.parametrize(
    "identity", ["../../team-b/secrets/x", "..", "a/b", f"x{ESCAPE}", "x" * 5000, FORBIDDEN, "cloud,x=y"]
)
def test_a_forged_mirror_of_an_odd_identity_stops_no_pass(shared: World, identity: str) -> None:
    obj = shared.add("TerraformMachine", "m9")
    reference = {
        "apiVersion": API_VERSION,
        "kind": "TerraformMachine",
        "name": "m9",
        "uid": uid_of(obj),
    }
    forge_mirror(shared, "odd", annotations={keys.IDENTITY: identity}, ownerReferences=[reference])
    before = content(shared)
    shared.forget_requests()
    run(shared, "TerraformMachine", "m9")
    assert len(shared.jobs("m9", op="apply")) == 1
    assert shared.exists(SECRET, names.credential_mirror("odd"))
    assert outside(shared) == set()
    assert content(shared) == before


@pytest.mark.parametrize("name", ["../../team-b/secrets/m1", "..", "a/b", "x,y", "%2e%2e%2fx", "x y"])
@pytest.mark.parametrize("field", ["local secret", "identity", "account", "variables"])
def test_names_that_lead_elsewhere_are_refused_or_not_found(shared: World, field: str, name: str) -> None:
    spec: dict[str, Any] = {
        "local secret": {"identityRef": {"kind": "Secret", "name": name}},
        "identity": {"identityRef": {"name": name}},
        "account": {"jobs": {"serviceAccountName": name}},
        "variables": {"variablesFrom": [{"secretRef": {"name": name}}]},
    }[field]
    shared.forget_requests()
    try:
        shared.add("TerraformMachine", "m9", **spec)
    except Invalid:
        return
    run(shared, "TerraformMachine", "m9")
    assert shared.jobs("m9") == []
    assert outside(shared) == set()


def test_who_uses_an_identity_is_found_in_linear_time() -> None:
    class Counted(dict[str, Any]):
        reads = 0

        def get(self, key: str, default: Any = None) -> Any:
            Counted.reads += 1
            return super().get(key, default)

    def reads(count: int) -> int:
        def made(name: str) -> Object:
            meta = {"name": name, "namespace": TEAM, "labels": {labels.CLUSTER_NAME: name}}
            return Counted(metadata=meta, spec={})

        Counted.reads = 0
        own = [made(f"x{index}") for index in range(count)]
        assert list(users_in(Users(own, own, own, own), IDENTITY)) == []
        return Counted.reads

    assert reads(400) <= 4 * reads(100) + 100


# Leases ----------------------------------------------------------------------------------------------

HOLDERS = {
    "no name": "no job of mine",
    "a path": "../../team-b/jobs/x",
    "dots": "..",
    "a selector": "x,captf.io/managed=true",
    "long": "x" * 300,
    "huge": "x" * 100_000,
    "control characters": f"x{ESCAPE}",
}


def forge_lease(world: World, holder: str, acquired: str = "") -> None:
    world.hold_run_lease("TerraformMachine", "m9", holder, op="apply")
    lease = names.run_lease(names.state_suffix(TEAM, "TerraformMachine", "m9"))
    if acquired:
        world.client.patch(
            LEASE, lease, {"metadata": {"annotations": {keys.LEASE_ACQUIRED_AT: acquired}}}, TEAM
        )


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_forged_holder_waits_out_its_grace_and_no_more(shared: World, holder: str) -> None:
    forge_lease(shared, HOLDERS[holder])
    shared.add("TerraformMachine", "m9")
    shared.forget_requests()
    shared.settle("TerraformMachine", "m9")
    assert shared.jobs("m9") == []
    assert ESCAPE[0] not in raw_said(shared, "TerraformMachine", "m9")
    shared.advance(61)
    shared.settle("TerraformMachine", "m9")
    assert len(shared.jobs("m9", op="apply")) == 1
    assert outside(shared) == set()


@pytest.mark.parametrize(
    "acquired",
    [
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "yesterday",
        "2026-02-31T00:00:00Z",
        "9" * 5000,
    ],
)
def test_a_forged_time_of_a_lease_stops_no_pass(shared: World, acquired: str) -> None:
    forge_lease(shared, "captf-tfm-m9-apply-a1-000000", acquired)
    shared.add("TerraformMachine", "m9")
    shared.settle("TerraformMachine", "m9")
    shared.advance(2 * 86_400)
    shared.settle("TerraformMachine", "m9")
    assert len(shared.jobs("m9", op="apply")) == 1


# Jobs and their results ------------------------------------------------------------------------------

RESULTS = {
    "empty": "",
    "no JSON": "\x00\x01 {",
    "no object": "[1]",
    "huge": json.dumps({"version": 1, "op": "x" * 500_000}),
    "deep": '{"version":1,"x":' + "[" * 3_900,
    "deep and whole": '{"version":1,"x":' + "[" * 1_900 + "]" * 1_900 + "}",
    "a huge number": '{"version":1' + "0" * 4_000 + "}",
    "no number": '{"version":1,"steps":[{"name":"apply","exit":0,"seconds":1e400}]}',
    "negative": '{"version":1,"steps":[{"name":"apply","exit":-1,"seconds":-1e308}]}',
    "control characters": json.dumps(
        {
            "version": 1,
            "op": ESCAPE,
            "image": {"ref": ESCAPE},
            "runtime": {"version": ESCAPE},
            "steps": [{"name": ESCAPE, "exit": 1}],
            "error": {"kind": "step", "step": ESCAPE, "tail": f"a{ESCAPE}b", "resources": [ESCAPE]},
        }
    ),
    "another image": json.dumps(
        {"version": 1, "op": "apply", "image": {"ref": "evil.example.com/x@sha256:" + "e" * 64}}
    ),
    "a plan": json.dumps(
        {"version": 1, "op": "plan", "plan": {"hash": "p2:" + "0" * 64, "resources": [ESCAPE] * 60}}
    ),
}


@pytest.mark.parametrize("succeeded", [True, False])
@pytest.mark.parametrize("result", RESULTS)
def test_whatever_a_module_leaves_as_its_result(shared: World, result: str, succeeded: bool) -> None:
    def build() -> None:
        shared.add("TerraformMachine", "m9")
        shared.settle("TerraformMachine", "m9")
        shared.start_pod(shared.running_job("m9", op="apply"))

    shared.stage("two tenants and a first apply of m9", build)
    job = shared.running_job("m9", op="apply")
    pod = shared.client.get(POD, f"{name_of(job)}-x7k2p", TEAM)
    status = pod["status"]["containerStatuses"][0]
    status["imageID"] = "docker-pullable://evil.example.com/y@sha256:" + "e" * 64
    now = format_time(shared.clock.now())
    status["state"] = {
        "terminated": {
            "exitCode": 0 if succeeded else 1,
            "message": RESULTS[result],
            "startedAt": now,
            "finishedAt": now,
        }
    }
    phase = "Succeeded" if succeeded else "Failed"
    shared.client.patch(
        POD,
        name_of(pod),
        {"status": {"phase": phase, "containerStatuses": [status]}},
        TEAM,
        subresource="status",
    )
    shared.end_job(job, succeeded=succeeded)
    before = content(shared)
    shared.forget_requests()
    shared.settle("TerraformMachine", "m9")
    assert annotations_of(shared.client.get(JOB, name_of(job), TEAM))[keys.BOOKKEPT] == "true"
    told = raw_said(shared, "TerraformMachine", "m9")
    assert not set(ESCAPE) & set(told) - set("[2J31m")
    assert len(told) < 50_000
    assert "evil.example.com" not in told
    assert outside(shared) == set()
    assert content(shared) == before
    shared.delete("TerraformMachine", "m9")
    run(shared, "TerraformMachine", "m9")


def forge_job(world: World, name: str, owner: Object, op: str, *, controller: Object | None = None) -> None:
    by = controller or owner
    world.add_job(
        name,
        **{
            labels.OWNER_KIND: owner["kind"],
            labels.OWNER_NAME: name_of(owner),
            labels.OP: op,
            labels.ATTEMPT: "9" * 40,
            labels.MANAGED: "true",
        },
    )
    reference = {
        "apiVersion": API_VERSION,
        "kind": by["kind"],
        "name": name_of(by),
        "uid": uid_of(by),
        "controller": True,
    }
    patch = {"metadata": {"ownerReferences": [reference], "annotations": {keys.RESTORE_SERIAL: "9" * 6000}}}
    world.client.patch(JOB, name, patch, TEAM)
    world.end_job(world.client.get(JOB, name, TEAM), succeeded=True)


@pytest.mark.parametrize("op", ["apply", "destroy", "refresh", "drift", "plan", "restore", "nonsense"])
@pytest.mark.parametrize("deleting", [False, True])
def test_a_job_of_another_object_says_nothing(shared: World, op: str, deleting: bool) -> None:
    """Its labels name m9; what controls it is the tenant's own machine, or one of another namespace."""
    obj = applied(shared)
    own = shared.add("TerraformMachine", "decoy")
    forge_job(shared, "forged-1", obj, op, controller=own)
    forge_job(shared, "forged-2", obj, op, controller=shared.get("TerraformMachine", "m1", VICTIM))
    state = names.state_secret(names.state_suffix(TEAM, "TerraformMachine", "m9"))
    if deleting:
        shared.delete("TerraformMachine", "m9")
    before = content(shared)
    shared.forget_requests()
    shared.settle("TerraformMachine", "m9")
    assert shared.exists(SECRET, state), "what was applied is still tracked"
    assert not shared.released("TerraformMachine", "m9")
    assert len(shared.jobs("m9", op="destroy")) == (2 if op == "destroy" else 0) + (1 if deleting else 0)
    assert outside(shared) == set()
    assert content(shared) == before


@pytest.mark.parametrize("op", ["apply", "refresh", "drift", "plan", "restore", "nonsense"])
def test_a_forged_job_of_the_object_itself_stops_no_pass(shared: World, op: str) -> None:
    obj = applied(shared)
    forge_job(shared, "x" * 63, obj, op)
    forge_job(shared, "captf-tfm-m9-apply-a2147483647-ffffff", obj, op)
    before = content(shared)
    shared.forget_requests()
    run(shared, "TerraformMachine", "m9")
    shared.delete("TerraformMachine", "m9")
    shared.settle("TerraformMachine", "m9")
    shared.finish_job(shared.running_job("m9", op="destroy"))
    shared.settle("TerraformMachine", "m9")
    assert shared.find("TerraformMachine", "m9") is None
    assert outside(shared) == set()
    assert content(shared) == before


STATUSES = {
    "a path as the active Job": {"activeJob": {"name": "../../team-b/jobs/x", "op": "apply"}},
    "dots as the active Job": {"activeJob": {"name": "..", "op": "apply"}},
    "a selector as the active Job": {"activeJob": {"name": "x,y", "op": "destroy"}},
    "the victim's active Job": {"activeJob": {"name": "captf-tfm-m1-apply-a1-000000", "op": "apply"}},
    "a serial": {"observedStateSerial": 2**62, "lastRestoredSerial": 2**62},
    "provisioned": {"initialization": {"provisioned": True}},
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("deleting", [False, True])
def test_a_forged_status_stops_no_pass(shared: World, status: str, deleting: bool) -> None:
    applied(shared)
    try:
        shared.patch("TerraformMachine", "m9", {"status": STATUSES[status]}, subresource="status")
    except Invalid:
        return
    before = content(shared)
    shared.forget_requests()
    run(shared, "TerraformMachine", "m9")
    if deleting:
        shared.delete("TerraformMachine", "m9")
        run(shared, "TerraformMachine", "m9")
        assert len(shared.jobs("m9", op="destroy")) == 1
    assert outside(shared) == set()
    assert content(shared) == before


RECORDED = {keys.IDENTITY: "../../team-b/secrets/x", keys.UNCONFIRMED_APPLY: "../../team-b/jobs/x"}


@pytest.mark.parametrize("note", RECORDED)
@pytest.mark.parametrize("deleting", [False, True])
def test_a_forged_note_on_the_records_stops_no_pass(shared: World, note: str, deleting: bool) -> None:
    applied(shared)
    for named in (names.durable_inputs_secret, names.applied_inputs_secret):
        patch = {"metadata": {"annotations": {note: RECORDED[note]}}}
        edit(shared, SECRET, named("TerraformMachine", "m9"), patch)
    before = content(shared)
    shared.forget_requests()
    run(shared, "TerraformMachine", "m9")
    if deleting:
        shared.delete("TerraformMachine", "m9")
        run(shared, "TerraformMachine", "m9")
        shared.annotate(
            "TerraformMachine", "m9", abandon_infrastructure=uid_of(shared.get("TerraformMachine", "m9"))
        )
        for job in shared.jobs("m9", op="destroy"):
            shared.finish_job(job)
        run(shared, "TerraformMachine", "m9")
        assert shared.find("TerraformMachine", "m9") is None
    assert outside(shared) == set()
    assert content(shared) == before


# Secrets that look like CAPTF's ----------------------------------------------------------------------


def disguised(world: World, name: str, given: dict[str, str], payload: bytes, **notes: str) -> None:
    world.create(
        SECRET,
        {
            "metadata": {"name": name, "labels": given, "annotations": notes},
            "data": {"tfstate": base64.b64encode(payload).decode()},
        },
        TEAM,
    )


STATES = {
    "no gzip": b"{}",
    "a bomb": gzip.compress(b"0" * 200_000_000, 1),
    "deep": gzip.compress(b"[" * 1_000_000),
    "a secret": gzip.compress(json.dumps({"version": 4, "serial": SECRET_VALUE}).encode()),
    "huge serial": gzip.compress(b'{"version":4,"serial":' + b"9" * 5000 + b"}"),
    "huge version": gzip.compress(b'{"version":' + b"4" * 100_000 + b"}"),
}


@pytest.mark.parametrize("state", STATES)
def test_a_state_that_was_tampered_with_holds_its_object_and_no_other(shared: World, state: str) -> None:
    applied(shared)
    base = names.state_secret(names.state_suffix(TEAM, "TerraformMachine", "m9"))
    edit(shared, SECRET, base, {"data": {"tfstate": base64.b64encode(STATES[state]).decode()}})
    before = content(shared)
    shared.forget_requests()
    run(shared, "TerraformMachine", "m9")
    shared.delete("TerraformMachine", "m9")
    run(shared, "TerraformMachine", "m9")
    assert shared.says("TerraformMachine", "m9", "StateReadable") == "False/StateCorrupt"
    assert not shared.released("TerraformMachine", "m9")
    assert SECRET_VALUE not in said(shared, "TerraformMachine", "m9")
    assert outside(shared) == set()
    assert content(shared) == before


@pytest.mark.parametrize("deleting", [False, True])
def test_a_state_with_a_serial_that_no_runtime_writes_stops_no_pass(shared: World, deleting: bool) -> None:
    obj = applied(shared)
    shared.write_state("TerraformMachine", "m9", outputs=OUTPUTS["TerraformMachine"], serial=-5)
    if deleting:
        shared.delete("TerraformMachine", "m9")
    run(shared, "TerraformMachine", "m9")
    assert "observedStateSerial" not in shared.get("TerraformMachine", "m9")["status"]
    assert shared.says("TerraformMachine", "m9", "StateReadable") == "True/StateRead"
    assert shared.exists(SECRET, names.state_backup(shared_suffix(obj), 1)), "the backup of before stays"


def shared_suffix(obj: Object) -> str:
    return names.state_suffix(TEAM, obj["kind"], name_of(obj))


@pytest.mark.parametrize("stray", ["state of another name", "a chunk too many", "forty chunks"])
def test_a_stray_chunk_holds_and_is_kept(shared: World, stray: str) -> None:
    applied(shared)
    suffix = names.state_suffix(TEAM, "TerraformMachine", "m9")
    base = shared.client.get(SECRET, names.state_secret(suffix), TEAM)
    strays = {
        "state of another name": ["my-own-secret"],
        "a chunk too many": [names.state_chunk(suffix, 7)],
        "forty chunks": [names.state_chunk(suffix, index) for index in range(1, 41)],
    }[stray]
    for name in strays:
        disguised(shared, name, labels_of(base), b"x")
    shared.delete("TerraformMachine", "m9")
    run(shared, "TerraformMachine", "m9")
    assert shared.says("TerraformMachine", "m9", "StateReadable").startswith("False/State")
    assert shared.exists(SECRET, name_of(base))
    assert all(shared.exists(SECRET, name) for name in strays)


@pytest.mark.parametrize("serial", ["9223372036854775807", "9223372036854775808", "9999999999999999999"])
def test_a_forged_backup_that_looks_whole_stops_no_pass(shared: World, serial: str) -> None:
    obj = applied(shared)
    suffix = shared_suffix(obj)
    made = shared.client.get(SECRET, names.state_backup(suffix, 1), TEAM)
    name = f"forged-{serial}"
    notes = {
        **annotations_of(made),
        keys.STATE_BACKUP_SERIAL: serial,
        keys.STATE_BACKUP_SET: name,
        keys.STATE_BACKUP_RESOURCES: "9" * 15,
    }
    forged = {
        "metadata": {"name": name, "labels": labels_of(made), "annotations": notes},
        "data": made["data"],
    }
    shared.create(SECRET, forged, TEAM)
    shared.annotate("TerraformMachine", "m9", restore_state=serial)
    shared.settle("TerraformMachine", "m9")
    listed = [item["serial"] for item in shared.get("TerraformMachine", "m9")["status"]["stateBackups"]]
    known = int(serial) < 2**63
    assert listed == ([int(serial), 1] if known else [1])
    started = shared.jobs("m9", op="restore")
    assert len(started) == known
    for job in started:
        arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
        assert "--restore-resources=0" in arguments, "the runner takes nine digits"


@pytest.mark.parametrize("taken", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "", "9" * 5000])
def test_forged_backups_stop_no_backup_and_take_nothing_along(shared: World, taken: str) -> None:
    obj = applied(shared)
    suffix = names.state_suffix(TEAM, "TerraformMachine", "m9")
    given = {labels.STATE_BACKUP: "true", labels.STATE_BACKUP_SUFFIX: suffix}
    target = names.state_secret(names.state_suffix(TEAM, "TerraformCluster", "prod"))
    for index in range(8):
        disguised(
            shared,
            f"forged-{index}",
            given,
            b"x",
            **{
                keys.STATE_BACKUP_SET: target,
                keys.STATE_BACKUP_CHUNK: str(index) * 12,
                keys.STATE_BACKUP_CHUNKS: "9" * 5000,
                keys.STATE_BACKUP_SERIAL: "9" * 5000,
                keys.STATE_BACKUP_TAKEN_AT: taken,
            },
        )
    shared.write_state("TerraformMachine", "m9", outputs=obj.get("status", {}).get("outputs", {}), serial=50)
    before = content(shared)
    shared.forget_requests()
    run(shared, "TerraformMachine", "m9")
    assert shared.exists(SECRET, names.state_backup(suffix, 50))
    assert shared.exists(SECRET, target), "the set that the forged ones name is not theirs to prune"
    assert outside(shared) == set()
    assert content(shared) == before


@pytest.mark.parametrize(
    "value", ["9" * 5000, "٣", "²", "-1", "+1", "1e3", "", " ", "../1", f"1{ESCAPE}", "4" * 19]
)
@pytest.mark.parametrize("deleting", [False, True])
def test_an_odd_request_to_restore_stops_no_pass(shared: World, value: str, deleting: bool) -> None:
    applied(shared)
    shared.annotate("TerraformMachine", "m9", restore_state=value)
    shared.write_state("TerraformMachine", "m9", outputs={"provider_id": "noop:///m1"}, serial=50)
    if deleting:
        state = names.state_secret(names.state_suffix(TEAM, "TerraformMachine", "m9"))
        shared.client.delete(SECRET, state, TEAM, propagation_policy="Background")
        shared.keep("TerraformMachine", "m9")
        shared.delete("TerraformMachine", "m9")
    run(shared, "TerraformMachine", "m9")
    assert ESCAPE[0] not in raw_said(shared, "TerraformMachine", "m9")
    assert len(shared.jobs("m9", op="restore")) == (1 if value == "+1" else 0)


def test_a_backup_of_another_object_is_not_restored(shared: World) -> None:
    shared.provisioned("TerraformMachine", "m8")
    shared.write_state("TerraformMachine", "m8", outputs={"provider_id": "noop:///m1"}, serial=77)
    shared.settle("TerraformMachine", "m8")
    assert shared.backups("TerraformMachine", "m8")
    shared.provisioned("TerraformMachine", "m9")
    shared.annotate("TerraformMachine", "m9", restore_state="77")
    run(shared, "TerraformMachine", "m9")
    assert shared.jobs("m9", op="restore") == []
    assert shared.says("TerraformMachine", "m9", "RestoreJobSucceeded") == "False/RestoreBackupNotFound"


@pytest.mark.parametrize(
    "annotation", ["abandon-infrastructure", "confirm-no-resources", "applied-as", "restore-state"]
)
def test_an_annotation_of_another_object_releases_nothing(shared: World, annotation: str) -> None:
    applied(shared)
    other = shared.get("TerraformMachine", "m1", VICTIM)
    state = names.state_secret(names.state_suffix(TEAM, "TerraformMachine", "m9"))
    shared.client.delete(SECRET, state, TEAM, propagation_policy="Background")
    value = (
        names.state_suffix(VICTIM, "TerraformMachine", "m1") if annotation == "applied-as" else uid_of(other)
    )
    shared.annotate("TerraformMachine", "m9", **{annotation.replace("-", "_"): value})
    shared.delete("TerraformMachine", "m9")
    before = content(shared)
    run(shared, "TerraformMachine", "m9")
    assert not shared.released("TerraformMachine", "m9")
    assert shared.says("TerraformMachine", "m9", "StateReadable") == "False/StateLost"
    assert content(shared) == before


@pytest.mark.parametrize("data", [b'{"a":' * 3000, SECRET_VALUE.encode(), b"\xff", b'{"a": NaN}', b"1e999"])
def test_a_variable_that_cannot_be_used_is_never_shown(shared: World, data: bytes) -> None:
    made = secret("vars", {})
    made["metadata"]["labels"] = {labels.VARIABLES: "true"}
    made["data"] = {"size": base64.b64encode(data).decode()}
    shared.create(SECRET, made, TEAM)
    shared.add("TerraformMachine", "m9", variablesFrom=[{"secretRef": {"name": "vars"}, "format": "JSON"}])
    run(shared, "TerraformMachine", "m9")
    told = said(shared, "TerraformMachine", "m9")
    assert SECRET_VALUE not in told
    assert len(told) < 50_000


def test_a_credential_mirror_is_no_source_of_variables(shared: World) -> None:
    shared.add("TerraformMachine", "m9", variablesFrom=[{"secretRef": {"name": MIRROR}}])
    run(shared, "TerraformMachine", "m9")
    says = shared.says("TerraformMachine", "m9", "DependenciesReady")
    assert says == "False/VariablesSourceNotFound"
    assert shared.jobs("m9") == []


@pytest.mark.parametrize("record", ["durable", "applied", "plan key", "run secret"])
def test_records_prepared_under_the_objects_names(shared: World, record: str) -> None:
    stranger = uid_of(shared.get("TerraformMachine", "m1", VICTIM))
    name = {
        "durable": names.durable_inputs_secret("TerraformMachine", "m9"),
        "applied": names.applied_inputs_secret("TerraformMachine", "m9"),
        "plan key": names.plan_key_secret("TerraformMachine", "m9"),
        "run secret": names.per_run_secret("captf-tfm-m9-apply-a1-000000"),
    }[record]
    junk = {"main.tf.json": "[" * 5000, "x" * 200: "y"}
    made = secret(name, junk)
    made["metadata"] |= {
        "labels": {labels.MANAGED: "true", labels.OWNER_KIND: "TerraformMachine", labels.OWNER_NAME: "m1"},
        "annotations": {
            keys.INPUTS_HASH: ESCAPE,
            keys.PENDING_CLUSTER_OUTPUTS: "[" * 9000,
            keys.PARTIAL_CLUSTER_OUTPUTS: "{" * 9000,
        },
        "ownerReferences": [
            {"apiVersion": API_VERSION, "kind": "TerraformMachine", "name": "m1", "uid": stranger}
        ],
    }
    shared.create(SECRET, made, TEAM)
    before = content(shared)
    shared.add("TerraformMachine", "m9")
    shared.forget_requests()
    run(shared, "TerraformMachine", "m9")
    shared.delete("TerraformMachine", "m9")
    run(shared, "TerraformMachine", "m9")
    assert ESCAPE[0] not in raw_said(shared, "TerraformMachine", "m9")
    assert outside(shared) == set()
    assert content(shared) == before


# Outputs of a module ---------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "huge": "x" * 400_000,
    "control characters": f"noop:///{ESCAPE}",
    "a number": 1e308,
    "many": [{"type": "InternalIP", "address": f"10.0.0.{index}"} for index in range(3_000)],
    "many names": [f"zone-{index}" for index in range(3_000)],
    "deep": json.loads('{"a":' * 150 + "1" + "}" * 150),
    "an object": {"host": f"x{ESCAPE}", "port": 2**70},
    "a wide object": {f"key{ESCAPE}{index}": "v" for index in range(2_000)},
    "health": {
        "state": ESCAPE,
        "healthy": False,
        "message": f"m{ESCAPE}" * 20_000,
        "reasons": [ESCAPE] * 300,
    },
    "domains": [
        {"name": f"z{index}", "control_plane": True, "attributes": {"a": ESCAPE}} for index in range(500)
    ],
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_a_module_puts_into_its_outputs(shared: World, kind: str, value: str) -> None:
    """All outputs at once, and one among sound ones: the passes end, and what they tell can be shown."""
    name = "c9" if kind == "TerraformCluster" else "m9"
    shared.provisioned(kind, name)
    before = content(shared)
    shared.forget_requests()
    for changed in (
        dict.fromkeys(OUTPUTS[kind], VALUES[value]),
        {"health": VALUES[value], "new": VALUES[value]},
    ):
        cluster = name if kind == "TerraformCluster" else "prod"
        shared.write_state(kind, name, outputs=OUTPUTS[kind] | changed, cluster=cluster)
        shared.settle(kind, name)
    obj = shared.get(kind, name)
    told = json.dumps([obj["status"].get("conditions"), shared.events.events], default=str)
    assert "\\u001b" not in told
    assert len(told) < 100_000
    assert outside(shared) == set()
    assert content(shared) == before


# Names, images, plans --------------------------------------------------------------------------------


def test_two_long_names_that_begin_alike_share_nothing(shared: World) -> None:
    """243 characters with dots: every name that is cut keeps a hash of the whole."""
    first, second = "a." * 121 + "b", "a." * 121 + "c"
    for name in (first, second):
        shared.add("TerraformMachine", name)
        shared.settle("TerraformMachine", name)
    durable = [names.durable_inputs_secret("TerraformMachine", name) for name in (first, second)]
    runs = {
        name: {name_of(job) for job in shared.jobs(names.label_value(name), op="apply")}
        for name in (first, second)
    }
    assert [len(runs[name]) for name in runs] == [1, 1]
    assert runs[first] & runs[second] == set()
    assert len(set(durable)) == 2
    shared.delete("TerraformMachine", second)
    (job,) = shared.jobs(names.label_value(second))
    shared.end_job(job, succeeded=False)
    run(shared, "TerraformMachine", second)
    assert shared.exists(SECRET, durable[0])
    assert {name_of(job) for job in shared.jobs(names.label_value(first))} == runs[first]


@pytest.mark.parametrize(
    "image",
    [
        "x y",
        "-v",
        "x\n--privileged",
        "$(id)",
        "../x",
        "x@sha256:1",
        "http://169.254.169.254/x:y",
        ESCAPE,
        "x" * 2000,
    ],
)
def test_an_odd_image_is_refused_or_only_named(shared: World, image: str) -> None:
    try:
        shared.add("TerraformMachine", "m9", source={"image": image})
    except Invalid:
        return
    shared.forget_requests()
    run(shared, "TerraformMachine", "m9")
    assert ESCAPE[0] not in raw_said(shared, "TerraformMachine", "m9")
    for job in shared.jobs("m9"):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["image"] == image
        assert image not in container.get("args", [])
    assert outside(shared) == set()


def test_a_plan_that_another_object_controls_approves_nothing(shared: World) -> None:
    edit(shared, TERRAFORM_CLUSTER, "prod", {"spec": {"applyPolicy": "Manual", "variables": {"size": 2}}})
    shared.settle("TerraformCluster", "prod")
    job = shared.running_job("prod", op="plan")
    hashed = annotations_of(job)[keys.INPUTS_HASH]
    plan_hash = "p2:" + "0" * 64
    for index, by in enumerate(
        (shared.get("TerraformCluster", "prod", VICTIM), shared.get("TerraformMachine", "m1", VICTIM))
    ):
        shared.create(
            TERRAFORM_PLAN,
            {
                "metadata": {
                    "name": f"forged-{index}",
                    "ownerReferences": [
                        {
                            "apiVersion": API_VERSION,
                            "kind": by["kind"],
                            "name": "prod",
                            "uid": uid_of(by),
                            "controller": True,
                        }
                    ],
                },
                "spec": {
                    "targetRef": {"kind": "TerraformCluster", "name": "prod"},
                    "planHash": plan_hash,
                    "inputsHash": hashed,
                    "reason": "Manual",
                    "summary": {"create": 0, "update": 1, "replace": 0, "delete": 0},
                    "approved": True,
                    "approvedBy": "nobody",
                },
            },
            TEAM,
        )
    plan = {"hash": plan_hash, "create": 0, "update": 1, "replace": 0, "delete": 0, "resources": []}
    shared.finish_job(job, plan=plan)
    before = content(shared)
    applied = len(shared.jobs("prod", op="apply"))
    run(shared, "TerraformCluster", "prod")
    assert len(shared.jobs("prod", op="apply")) == applied, "nothing was approved"
    assert content(shared) == before


# The end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["TerraformMachine", "TerraformCluster"])
def test_the_whole_life_of_a_namesake_touches_no_other_namespace(shared: World, kind: str) -> None:
    """The same names in two namespaces: the end of one leaves the other's every byte as it was."""
    name = "m1" if kind == "TerraformMachine" else "prod"
    if kind == "TerraformMachine":
        shared.provisioned(kind, name)
    before = content(shared)
    shared.forget_requests()
    shared.delete(kind, name)
    shared.settle(kind, name)
    shared.finish_job(shared.running_job(name, op="destroy"))
    shared.settle(kind, name)
    assert shared.find(kind, name) is None
    assert outside(shared) == set()
    assert content(shared) == before


def test_a_revoked_identity_goes_from_the_namespace_of_the_pass_alone(shared: World) -> None:
    """The other tenant keeps its mirror until a pass of its own."""
    shared.client.delete(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, propagation_policy="Background")
    before = content(shared)
    shared.forget_requests()
    run(shared, "TerraformCluster", "prod")
    assert not shared.exists(SECRET, MIRROR)
    assert outside(shared) == set()
    assert content(shared) == before
