"""Who uses an identity: what keeps it from being deleted, and what `status.namespaces` lists.

Read from the stored objects as they are, not through the typed specs: an object that this version cannot read
still uses its identity. A machine or pool finds its TerraformCluster in two ways, and either counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from captf_controllers.api import labels
from captf_controllers.api.kinds import (
    CLUSTER,
    TERRAFORM_CLUSTER,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
)
from captf_controllers.api.references import infrastructure_reference, reference_group
from captf_runtime.client import NotFound, Reader
from captf_runtime.objects import Object, labels_of, name_of, namespace_of

__all__ = ["Users", "find_users", "users_in"]


@dataclass(frozen=True, slots=True)
class Users:
    """The objects of some namespaces that may use an identity. `clusters` are Cluster API's."""

    terraform_clusters: Sequence[Object]
    machines: Sequence[Object]
    pools: Sequence[Object]
    clusters: Sequence[Object] = ()


def find_users(reader: Reader, namespace: str = "") -> Users:
    """Read what may use an identity in a namespace, "" for all.

    Raises:
        ApiError: a list failed. That Cluster API's Cluster is not served is no failure: nothing refers by it.
    """
    try:
        clusters = list(reader.list(CLUSTER, namespace))
    except NotFound:
        clusters = []
    return Users(
        terraform_clusters=list(reader.list(TERRAFORM_CLUSTER, namespace)),
        machines=list(reader.list(TERRAFORM_MACHINE, namespace)),
        pools=list(reader.list(TERRAFORM_MACHINE_POOL, namespace)),
        clusters=clusters,
    )


def users_in(users: Users, identity: str) -> Iterator[Object]:
    """The objects that use the identity: clusters first, then machines, then pools. Pure.

    Deleting objects count: their destroy needs the credentials. A reference of kind Secret never does, even
    when that Secret shares the identity's name.
    """
    for cluster in users.terraform_clusters:
        if _identity_name(_reference(cluster)) == identity:
            yield cluster
    lookup = _Lookup.of(users)
    for obj in (*users.machines, *users.pools):
        if identity in _names_of(obj, lookup):
            yield obj


@dataclass(frozen=True, slots=True)
class _Lookup:
    """The clusters by namespace and the name that finds them: a search of each for every machine would let one
    namespace with thousands of both keep the manager busy.
    """

    by_label: Mapping[tuple[str, str], Object]
    by_name: Mapping[tuple[str, str], Object]
    clusters: Mapping[tuple[str, str], Object]

    @classmethod
    def of(cls, users: Users) -> _Lookup:
        by_label: dict[tuple[str, str], Object] = {}
        # Of several with the same label the one with the lowest name counts, so it is entered last.
        for cluster in sorted(users.terraform_clusters, key=name_of, reverse=True):
            by_label[namespace_of(cluster), labels_of(cluster).get(labels.CLUSTER_NAME, "")] = cluster
        return cls(
            by_label,
            {(namespace_of(cluster), name_of(cluster)): cluster for cluster in users.terraform_clusters},
            {(namespace_of(cluster), name_of(cluster)): cluster for cluster in users.clusters},
        )


def _names_of(obj: Object, lookup: _Lookup) -> set[str]:
    own = _reference(obj)
    if _is_set(own):
        return {_identity_name(own)}
    found: set[str] = set()
    for cluster in (_by_label(obj, lookup), _by_reference(obj, lookup)):
        if cluster is None:
            continue
        spec = _mapping(cluster.get("spec"))
        inherited = _mapping(_mapping(spec.get("defaults")).get("identityRef"))
        found.add(_identity_name(inherited if _is_set(inherited) else _reference(cluster)))
    return found


def _by_label(obj: Object, lookup: _Lookup) -> Object | None:
    label = labels_of(obj).get(labels.CLUSTER_NAME)
    return lookup.by_label.get((namespace_of(obj), label)) if label else None


def _by_reference(obj: Object, lookup: _Lookup) -> Object | None:
    label = labels_of(obj).get(labels.CLUSTER_NAME)
    cluster = lookup.clusters.get((namespace_of(obj), label)) if label else None
    if cluster is None:
        return None
    reference = infrastructure_reference(cluster, CLUSTER)
    if (
        reference_group(reference) != TERRAFORM_CLUSTER.group
        or reference.get("kind") != TERRAFORM_CLUSTER.kind
    ):
        return None
    return lookup.by_name.get((namespace_of(obj), str(reference.get("name"))))


def _reference(obj: Object) -> Mapping[str, Any]:
    return _mapping(_mapping(obj.get("spec")).get("identityRef"))


def _is_set(reference: Mapping[str, Any]) -> bool:
    return bool(reference.get("name"))


def _identity_name(reference: Mapping[str, Any]) -> str:
    if reference.get("kind") == "Secret":
        return ""
    return str(reference.get("name") or "")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
