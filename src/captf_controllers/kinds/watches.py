"""What wakes a pass: the mappings from events of other objects to the workload objects they concern.

Mappings read informers only. One that fails is logged by the runtime and maps to nothing; the resync is the
safety net.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as LabelMapping
from typing import Any, Protocol

from captf_controllers.api import labels, names
from captf_controllers.api.conditions import READY
from captf_controllers.api.kinds import (
    CLUSTER,
    GROUP,
    MACHINE,
    MACHINE_POOL,
    TERRAFORM_CLUSTER,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
    WORKLOAD_KINDS,
)
from captf_controllers.api.references import infrastructure_reference, reference_group
from captf_runtime.cache import Event, Header, Updated
from captf_runtime.client.errors import NotFound
from captf_runtime.controller import Request
from captf_runtime.objects import (
    Kind,
    Object,
    OwnerReference,
    group_of,
    labels_of,
    name_of,
    namespace_of,
    owner_references,
    resource_version_of,
)

Mapping = Callable[[Object], Iterable[Request]]


class Lister(Protocol):
    """The side of the cache that is read."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object: ...

    def headers(self, kind: Kind, namespace: str = "") -> list[Header]: ...

    def list(self, kind: Kind, namespace: str = "", *, label_selector: str = "") -> list[Object]: ...


def owned_secret(kind: Kind) -> Mapping:
    """A managed Secret wakes its owner: by owner reference, else by the owner labels."""

    def requests(secret: Object) -> Iterator[Request]:
        owners = [
            reference.name
            for reference in owner_references(secret)
            if group_of(reference.api_version) == GROUP and reference.kind == kind.kind
        ]
        if not owners and labels_of(secret).get(labels.OWNER_KIND) == kind.kind:
            # A clamped label value names no object; the resync covers those.
            owners = [labels_of(secret).get(labels.OWNER_NAME, "")]
        for name in owners:
            if name:
                yield Request(namespace_of(secret), name)

    return requests


def referenced_infrastructure(owner: Kind, kind: Kind) -> Mapping:
    """A Cluster, Machine or MachinePool wakes the object that its infrastructureRef names."""

    def requests(obj: Object) -> Iterator[Request]:
        reference = infrastructure_reference(obj, owner)
        name = reference.get("name")
        if name and reference_group(reference) == GROUP and reference.get("kind") == kind.kind:
            yield Request(namespace_of(obj), str(name))

    return requests


def members_of_cluster(reader: Lister, kind: Kind) -> Mapping:
    """A Cluster wakes its machines or pools, by their cluster-name label."""

    def requests(cluster: Object) -> Iterator[Request]:
        yield from _labelled(reader, kind, namespace_of(cluster), name_of(cluster))

    return requests


def members_of_terraform_cluster(reader: Lister, kind: Kind) -> Mapping:
    """A TerraformCluster wakes its machines or pools, found through the Cluster that owns it."""

    def requests(cluster: Object) -> Iterator[Request]:
        name = _cluster_name(cluster)
        if name:
            yield from _labelled(reader, kind, namespace_of(cluster), name)

    return requests


def cluster_state(reader: Lister, kind: Kind) -> Mapping:
    """The base state Secret of a TerraformCluster wakes all pools and the machines not provisioned yet.

    They read its exports. Chunks are ignored: the base Secret changes with every state.
    """

    def requests(secret: Object) -> Iterator[Request]:
        found = labels_of(secret)
        if found.get(labels.OWNER_KIND) != TERRAFORM_CLUSTER.kind:
            return
        suffix = found.get(labels.TFSTATE_SECRET_SUFFIX, "")
        if name_of(secret) != names.state_secret(suffix):
            return
        cluster = found.get(labels.CLUSTER_NAME, "")
        for obj in _members(reader, kind, namespace_of(secret), cluster):
            if kind == TERRAFORM_MACHINE and _provisioned(obj):
                continue
            yield Request(namespace_of(obj), name_of(obj))

    return requests


def cluster_of_member(reader: Lister) -> Mapping:
    """A machine or pool that goes wakes its TerraformCluster, which waits for it."""

    def requests(member: Object) -> Iterator[Request]:
        label = labels_of(member).get(labels.CLUSTER_NAME, "")
        if not label:
            return
        for cluster in reader.headers(TERRAFORM_CLUSTER, namespace_of(member)):
            if names.label_value(_named_cluster(cluster.labels, cluster.owner_references)) == label:
                yield Request(cluster.namespace, cluster.name)

    return requests


def users_of_identity(reader: Lister, kind: Kind) -> Mapping:
    """A TerraformClusterIdentity wakes every object that names it or may inherit it."""

    def requests(identity: Object) -> Iterator[Request]:
        wanted = name_of(identity)
        inheriting: set[tuple[str, str]] = set()
        for cluster in reader.list(TERRAFORM_CLUSTER):
            spec = cluster.get("spec") or {}
            named = {_identity(spec), _identity(spec.get("defaults") or {})}
            if wanted in named:
                inheriting.add((namespace_of(cluster), names.label_value(_cluster_name(cluster))))
        for obj in reader.list(kind):
            own = _identity(obj.get("spec") or {})
            label = labels_of(obj).get(labels.CLUSTER_NAME, "")
            inherits = kind != TERRAFORM_CLUSTER and not own and (namespace_of(obj), label) in inheriting
            if own == wanted or inherits:
                yield Request(namespace_of(obj), name_of(obj))

    return requests


def objects_in_namespace(reader: Lister, kind: Kind) -> Mapping:
    """A Namespace whose labels changed wakes the objects in it: an identity may allow it now."""

    def requests(namespace: Object) -> Iterator[Request]:
        for obj in reader.list(kind, name_of(namespace)):
            yield Request(namespace_of(obj), name_of(obj))

    return requests


def users_of_source(reader: Lister, kind: Kind, source: Kind) -> Mapping:
    """A labelled ConfigMap or Secret wakes the objects whose ``variablesFrom`` names it.

    A provisioned machine reads its sources no more. What an object names is remembered for its version: to
    decode all objects of a namespace for each of its sources would let one namespace keep the manager busy.
    """
    field = "secretRef" if source.kind == "Secret" else "configMapRef"
    remembered: dict[str, dict[str, tuple[str, frozenset[str]]]] = {}

    def named(user: Object) -> frozenset[str]:
        if kind == TERRAFORM_MACHINE and _provisioned(user):
            return frozenset()
        sources = (user.get("spec") or {}).get("variablesFrom") or []
        return frozenset(str((entry.get(field) or {}).get("name") or "") for entry in sources)

    def requests(obj: Object) -> Iterator[Request]:
        namespace, wanted = namespace_of(obj), name_of(obj)
        known = remembered.pop(namespace, {})
        fresh: dict[str, tuple[str, frozenset[str]]] = {}
        for header in reader.headers(kind, namespace):
            found = known.get(header.name)
            if found is None or found[0] != header.resource_version:
                try:
                    user = reader.get(kind, header.name, namespace)
                except NotFound:
                    continue
                found = (resource_version_of(user), named(user))
            fresh[header.name] = found
            if wanted in found[1]:
                yield Request(namespace, header.name)
        if fresh:
            remembered[namespace] = fresh

    return requests


def cluster_changed(event: Event) -> bool:
    """Only the fields of a Cluster that a pass reads count; it is updated all the time."""
    if not isinstance(event, Updated) or event.resync:
        return not isinstance(event, Updated)
    return _read_of_cluster(event.old.decode()) != _read_of_cluster(event.new.decode())


def identity_changed(event: Event) -> bool:
    """Only what an identity says and whether its Secret is there count; its status lists namespaces too."""
    if not isinstance(event, Updated) or event.resync:
        return not isinstance(event, Updated)
    old, new = event.old.header, event.new.header
    if old.generation != new.generation or old.is_deleting != new.is_deleting:
        return True
    return _ready_of(event.old.decode()) != _ready_of(event.new.decode())


def inherited_changed(event: Event) -> bool:
    """Only the fields of a TerraformCluster that its machines and pools inherit count."""
    if not isinstance(event, Updated) or event.resync:
        return not isinstance(event, Updated)
    return _inherited(event.old.decode()) != _inherited(event.new.decode())


def deleted(event: Event) -> bool:
    """Only that an object is gone counts."""
    return type(event).__name__ == "Deleted"


def _read_of_cluster(cluster: Object) -> tuple[Any, ...]:
    spec, status = cluster.get("spec") or {}, cluster.get("status") or {}
    initialization = status.get("initialization") or {}
    return (
        spec.get("paused"),
        spec.get("controlPlaneEndpoint"),
        spec.get("clusterNetwork"),
        (spec.get("topology") or {}).get("version"),
        spec.get("infrastructureRef"),
        initialization.get("infrastructureProvisioned"),
        initialization.get("controlPlaneInitialized"),
    )


def _ready_of(identity: Object) -> tuple[Any, ...]:
    conditions = (identity.get("status") or {}).get("conditions") or []
    found: Object = next((item for item in conditions if item.get("type") == READY), {})
    return found.get("status"), found.get("reason")


def _inherited(cluster: Object) -> tuple[Any, ...]:
    spec = cluster.get("spec") or {}
    return tuple(spec.get(name) for name in ("defaults", "identityRef", "jobs", "drift", "deletionPolicy"))


def _members(reader: Lister, kind: Kind, namespace: str, cluster_label: str) -> list[Object]:
    if not cluster_label:
        return []
    return reader.list(kind, namespace, label_selector=f"{labels.CLUSTER_NAME}={cluster_label}")


def _labelled(reader: Lister, kind: Kind, namespace: str, cluster: str) -> Iterator[Request]:
    for obj in _members(reader, kind, namespace, names.label_value(cluster)):
        yield Request(namespace_of(obj), name_of(obj))


def _cluster_name(cluster: Object) -> str:
    """The Cluster of a TerraformCluster: its label, else the owner reference."""
    return _named_cluster(labels_of(cluster), owner_references(cluster))


def _named_cluster(found: LabelMapping[str, str], owners: Iterable[OwnerReference]) -> str:
    label = found.get(labels.CLUSTER_NAME, "")
    return label or next((owner.name for owner in owners if owner.kind == CLUSTER.kind), "")


def _provisioned(obj: Object) -> bool:
    return bool((((obj.get("status") or {}).get("initialization")) or {}).get("provisioned"))


def _identity(spec: Object) -> str:
    reference = spec.get("identityRef") or {}
    return "" if reference.get("kind") == "Secret" else str(reference.get("name") or "")


OWNER_OF: dict[Kind, Kind] = {
    TERRAFORM_CLUSTER: CLUSTER,
    TERRAFORM_MACHINE: MACHINE,
    TERRAFORM_MACHINE_POOL: MACHINE_POOL,
}
assert set(OWNER_OF) == set(WORKLOAD_KINDS)
