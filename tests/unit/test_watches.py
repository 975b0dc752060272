"""Which objects an event of another one wakes, and what finding them costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from captf_controllers.api import labels
from captf_controllers.api.kinds import (
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
)
from captf_controllers.kinds import watches
from captf_runtime.cache import Added, Deleted, Form, Header, StoredObject, Updated, store_raw
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import CONFIG_MAP, SECRET, Kind, Object


class Shelf:
    """Stored objects of one namespace that counts what is decoded."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], bytes] = {}
        self.decoded = 0
        self.version = 0

    def put(self, kind: Kind, name: str, metadata: Object | None = None, **fields: Any) -> None:
        self.version += 1
        meta = {"name": name, "namespace": "t", "resourceVersion": str(self.version), **(metadata or {})}
        self.stored[kind.kind, name] = json.dumps({"metadata": meta, **fields}).encode()

    def drop(self, kind: Kind, name: str) -> None:
        del self.stored[kind.kind, name]

    def headers(self, kind: Kind, namespace: str = "") -> list[Header]:
        found = [data for (stored, _), data in sorted(self.stored.items()) if stored == kind.kind]
        return [store_raw(data, Form(kind)).header for data in found]

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        self.decoded += 1
        try:
            return store_raw(self.stored[kind.kind, name], Form(kind)).decode()
        except KeyError:
            raise NotFound(name) from None

    def list(self, kind: Kind, namespace: str = "", *, label_selector: str = "") -> list[Object]:
        return [self.get(kind, header.name) for header in self.headers(kind)]


def uses(*names: str, kind: str = "secretRef") -> Object:
    return {"variablesFrom": [{kind: {"name": name}} for name in names]}


def event_of(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "t"}}


def woken(mapping: watches.Mapping, obj: Object) -> list[str]:
    return [request.name for request in mapping(obj)]


@pytest.mark.parametrize("kind", [TERRAFORM_CLUSTER, TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL])
def test_a_source_wakes_who_names_it(kind: Kind) -> None:
    shelf = Shelf()
    shelf.put(kind, "both", spec=uses("a", "b"))
    shelf.put(kind, "map", spec=uses("a", kind="configMapRef"))
    shelf.put(kind, "none", spec={})
    provisioned = {"initialization": {"provisioned": True}}
    shelf.put(kind, "provisioned", spec=uses("a"), status=provisioned)
    still = [] if kind == TERRAFORM_MACHINE else ["provisioned"]
    secrets = watches.users_of_source(shelf, kind, SECRET)
    assert woken(secrets, event_of("a")) == ["both", *still]
    assert woken(watches.users_of_source(shelf, kind, CONFIG_MAP), event_of("a")) == ["map"]
    shelf.put(kind, "none", spec=uses("a"))
    shelf.put(kind, "both", spec=uses("b"))
    assert woken(secrets, event_of("a")) == ["none", *still]
    shelf.drop(kind, "none")
    assert woken(secrets, event_of("a")) == still
    assert woken(secrets, event_of("b")) == ["both"]


def test_thousands_of_sources_and_users_are_no_square() -> None:
    shelf = Shelf()
    for index in range(200):
        shelf.put(TERRAFORM_MACHINE, f"m{index}", spec=uses(f"s{index}"))
    secrets = watches.users_of_source(shelf, TERRAFORM_MACHINE, SECRET)
    for index in range(20):
        assert woken(secrets, event_of(f"s{index}")) == [f"m{index}"]
    assert shelf.decoded == 200, "each object is read once for each of its versions"


def test_a_member_that_goes_wakes_its_cluster_by_label_or_owner() -> None:
    shelf = Shelf()
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "prod", "uid": "u"}
    shelf.put(TERRAFORM_CLUSTER, "labelled", {"labels": {labels.CLUSTER_NAME: "prod"}})
    shelf.put(
        TERRAFORM_CLUSTER, "other", {"labels": {labels.CLUSTER_NAME: "dev"}, "ownerReferences": [owner]}
    )
    shelf.put(TERRAFORM_CLUSTER, "owned", {"ownerReferences": [owner]})
    shelf.put(TERRAFORM_CLUSTER, "stray")
    mapping = watches.cluster_of_member(shelf)
    member = event_of("m1")
    assert woken(mapping, member) == []
    member["metadata"]["labels"] = {labels.CLUSTER_NAME: "prod"}
    assert woken(mapping, member) == ["labelled", "owned"]
    assert shelf.decoded == 0


def identity(ready: str = "True", reason: str = "SecretFound", **metadata: Any) -> StoredObject:
    condition = {"type": "Ready", "status": ready, "reason": reason}
    meta = {"name": "aws", "resourceVersion": "1", "generation": 1, **metadata}
    stored = {
        "metadata": meta,
        "status": {"conditions": [condition], "namespaces": [metadata.get("uid", "")]},
    }
    return store_raw(json.dumps(stored).encode(), Form(TERRAFORM_CLUSTER_IDENTITY))


@pytest.mark.parametrize(
    ("new", "wakes"),
    [
        (identity(uid="only-the-namespaces-differ"), False),
        (identity("False", "SecretNotFound"), True),
        (identity("True", "CredentialsIncomplete"), True),
        (identity(generation=2), True),
        (identity(deletionTimestamp="2026-01-01T00:00:00Z"), True),
    ],
)
def test_an_identity_wakes_its_users_when_its_spec_or_readiness_changes(
    new: StoredObject, wakes: bool
) -> None:
    assert watches.identity_changed(Updated(identity(), new)) is wakes
    assert not watches.identity_changed(Updated(identity(), new, resync=True))
    assert watches.identity_changed(Added(new))
    assert watches.identity_changed(Deleted(new))
