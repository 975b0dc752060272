"""What CAPTF and Terraform's backend keep for one object, and how tests make it complete."""

from __future__ import annotations

import base64

from tests import state_secrets
from tests.deletion_case import Case
from tests.world import IDENTITY, TEAM, World

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_runtime.client.errors import AlreadyExists, NotFound
from captf_runtime.objects import (
    JOB,
    LEASE,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
    Object,
    format_time,
    labels_of,
    name_of,
    owner_references,
)
from captf_runtime.testing.apiserver.request_log import LoggedRequest

RUNNER = "captf-runner"
MIRROR = names.credential_mirror(IDENTITY)


def cut_state(case: Case, pieces: int = 3) -> list[str]:
    """Store the object's state in so many Secrets, as a state above one MiB is; their names in order."""
    world = case.world
    base = world.client.get(SECRET, names.state_secret(case.suffix), TEAM)
    payload = base64.b64decode(base["data"]["tfstate"])
    size = -(-len(payload) // pieces)
    cut = state_secrets.chunks_of(payload, size)
    for index, piece in enumerate(cut):
        data = {"tfstate": base64.b64encode(piece).decode()}
        if index == 0:
            world.client.patch(SECRET, name_of(base), {"data": data}, TEAM)
            continue
        meta = base["metadata"]
        world.create(
            SECRET,
            {
                "metadata": {
                    "name": names.state_chunk(case.suffix, index),
                    "labels": meta["labels"],
                    "annotations": {"encoding": "gzip"},
                    "ownerReferences": meta["ownerReferences"],
                },
                "data": data,
            },
            TEAM,
        )
    return [names.state_chunk(case.suffix, index) for index in range(len(cut))]


def spoil_state(case: Case) -> None:
    """Make the state unreadable: a payload that nothing decodes."""
    data = {"tfstate": base64.b64encode(b"no gzip at all").decode()}
    case.world.client.patch(SECRET, names.state_secret(case.suffix), {"data": data}, TEAM)


def lose_state(case: Case) -> None:
    """Delete every state Secret by hand."""
    case.remove_secrets(case.states())


def complete(case: Case) -> None:
    """Add what an ordinary run leaves only sometimes: the backend's lock Lease, free again, and a plan key."""
    world = case.world
    lock = {
        "metadata": {
            "name": names.state_lock_lease(case.suffix),
            "labels": names.state_labels(case.kind, case.name, case.cluster),
        },
        "spec": {},
    }
    _ensure(world, LEASE, lock)
    key = {
        "metadata": {
            "name": names.plan_key_secret(case.kind, case.name),
            "labels": {labels.MANAGED: "true", **names.owner_labels(case.kind, case.name)},
            "ownerReferences": [reference_to(case)],
        },
        "data": {"key": base64.b64encode(b"k" * 32).decode()},
    }
    _ensure(world, SECRET, key)


def reference_to(case: Case) -> Object:
    """An owner reference to the object, as CAPTF writes it."""
    obj = case.object
    return {
        "apiVersion": obj["apiVersion"],
        "kind": case.kind,
        "name": case.name,
        "uid": obj["metadata"]["uid"],
    }


def hold_lease(case: Case, name: str, holder: str, *, which: str = "run", **owner: str) -> None:
    """A lease of CAPTF's in somebody's name, acquired now, under the object's labels or the given ones."""
    kind, named = owner.get("kind", case.kind), owner.get("named", case.name)
    lease = {
        "metadata": {
            "name": name,
            "labels": {labels.LEASE: which, labels.MANAGED: "true", **names.owner_labels(kind, named)},
            "annotations": {
                keys.LEASE_OP: "destroy",
                keys.LEASE_OWNER: named,
                keys.LEASE_ACQUIRED_AT: format_time(case.world.clock.now()),
            },
        },
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 4500},
    }
    case.world.create(LEASE, lease, TEAM)


def linger(case: Case, job: Object) -> None:
    """A Job that has ended, by its condition, while its pod still runs: the run lease stays live."""
    case.world.start_pod(job)
    case.world.end_job(job, succeeded=True)


def end_pod(case: Case, job: Object, phase: str = "Succeeded") -> None:
    """The pod of a Job ends."""
    case.world.client.patch(
        POD, f"{name_of(job)}-x7k2p", {"status": {"phase": phase}}, TEAM, subresource="status"
    )


def stored(world: World, kind: Kind, namespace: str = TEAM) -> set[str]:
    return {name_of(item) for item in world.client.list(kind, namespace).items}


def kept_for(case: Case) -> set[str]:
    """Everything in the namespace that is this object's alone, as ``kind/name``."""
    short = f"-{case.short}-{case.name}"
    found = set()
    for kind in (SECRET, LEASE, JOB, POD):
        for item in case.world.client.list(kind, TEAM).items:
            named = name_of(item)
            own_label = labels_of(item).get(labels.OWNER_NAME) == case.name and (
                labels_of(item).get(labels.OWNER_KIND) == case.kind
            )
            if case.suffix in named or short in named or own_label:
                found.add(f"{kind.kind}/{named}")
    return found


def mirror_owners(world: World) -> list[str] | None:
    """The names of the mirror's owners, None without a mirror."""
    try:
        mirror = world.client.get(SECRET, MIRROR, TEAM)
    except NotFound:
        return None
    return sorted(reference.name for reference in owner_references(mirror))


def runner_objects(world: World) -> set[str]:
    """What lets Jobs run in the namespace."""
    accounts = {f"ServiceAccount/{name}" for name in stored(world, SERVICE_ACCOUNT)}
    bindings = {f"RoleBinding/{name}" for name in stored(world, ROLE_BINDING)}
    return accounts | bindings


def requests(world: World, **wanted: object) -> list[LoggedRequest]:
    """The manager's requests with these attributes."""
    found = world.server.requests.select(**wanted)  # type: ignore[arg-type]
    return [entry for entry in found if entry.user_agent.startswith("captf-manager")]


def deleted(world: World, resource: str = "secrets") -> list[str]:
    """What the manager deleted of a resource, in order."""
    return [entry.name for entry in requests(world, verb="delete", resource=resource) if entry.code == 200]


def force_gone(case: Case) -> None:
    """Strip every finalizer by hand, as `clusterctl move` and impatient people do."""
    case.patch({"metadata": {"finalizers": None}})


def _ensure(world: World, kind: Kind, obj: Object) -> None:
    try:
        world.create(kind, obj, TEAM)
    except AlreadyExists:
        return
