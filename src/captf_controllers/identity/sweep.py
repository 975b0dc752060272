"""The namespace sweep: what CAPTF set up in a namespace goes when nothing there uses it any more.

All reads are live, whatever watch filter the manager runs with: another instance's object keeps a namespace
as well. It runs for one namespace after a finalizer came off, and for all of them periodically, which also
clears what a move leaves behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from captf_controllers.api import labels
from captf_controllers.api.kinds import (
    TERRAFORM_CLUSTER,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
    WORKLOAD_KINDS,
)
from captf_controllers.api.workspace import DEFAULT_SERVICE_ACCOUNT_NAME
from captf_controllers.identity.runner_access import (
    BINDING,
    accounts_of_runs,
    delete_binding,
    subjects_after,
)
from captf_runtime.client import ApiError, Conflict, NotFound
from captf_runtime.client.deletes import delete_as_read
from captf_runtime.client.verbs import Verbs
from captf_runtime.log import get_logger
from captf_runtime.objects import (
    LEASE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Kind,
    Object,
    labels_of,
    name_of,
    namespace_of,
)

__all__ = ["accounts_in_use", "sweep_all", "sweep_namespace"]

logger = get_logger(__name__)

_SWEPT: Final = (SERVICE_ACCOUNT, ROLE_BINDING, LEASE)
_MANAGED: Final = f"{labels.MANAGED}={labels.TRUE}"


def sweep_all(client: Verbs, namespace: str = "") -> None:
    """Sweep every namespace that holds something of CAPTF's, or only the one given.

    One namespace that fails does not stop the others.

    Raises:
        ApiError: the namespaces could not be listed.
        ExceptionGroup: sweeps of single namespaces failed.
    """
    if namespace:
        namespaces = {namespace}
    else:
        namespaces = {
            namespace_of(obj)
            for kind in _SWEPT
            for obj in client.list(kind, label_selector=_MANAGED, metadata_only=True)
        }
    errors: list[Exception] = []
    for name in sorted(namespaces):
        try:
            sweep_namespace(client, name)
        except (ApiError, ExceptionGroup) as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("namespaces that could not be swept", errors)


def sweep_namespace(client: Verbs, namespace: str) -> list[str]:
    """Delete what CAPTF set up in a namespace without objects, else take accounts off that nobody uses.

    Returns what was deleted, as `<kind>/<name>`.

    Raises:
        ApiError: a read failed, and nothing was deleted after it.
        ExceptionGroup: deletions failed.
    """
    if _has_objects(client, namespace):
        _prune(client, namespace)
        return []
    found = [
        (kind, obj)
        for kind in _SWEPT
        for obj in client.list(kind, namespace, label_selector=_MANAGED, metadata_only=True)
    ]
    if not found or _has_objects(client, namespace):
        # An object may have appeared between the first look and the lists.
        return []
    deleted, errors = _delete(client, namespace, found)
    if deleted:
        logger.warning("namespace swept", namespace=namespace, deleted=deleted)
    if errors:
        raise ExceptionGroup(f"sweep of namespace {namespace}", errors)
    return deleted


def accounts_in_use(
    clusters: Iterable[Object], machines_and_pools: Iterable[Object], running: Iterable[str]
) -> set[str]:
    """The accounts that the objects of a namespace run as, and those of `running`. Pure.

    While a machine or pool without an account of its own has no TerraformCluster to inherit from, every
    cluster's default and the built-in account count: a delay in resolving must not take the binding away.
    """
    clusters = list(clusters)
    used = set(running)
    for cluster in clusters:
        used.add(_account(cluster) or DEFAULT_SERVICE_ACCOUNT_NAME)
    by_label: dict[str, list[Object]] = {}
    for cluster in clusters:
        by_label.setdefault(labels_of(cluster).get(labels.CLUSTER_NAME, ""), []).append(cluster)
    for obj in machines_and_pools:
        own = _account(obj)
        if own:
            used.add(own)
            continue
        label = labels_of(obj).get(labels.CLUSTER_NAME, "")
        # Of two TerraformClusters of one Cluster, one replacing the other, either may be the machine's.
        candidates = by_label.get(label, ()) if label else ()
        for cluster in candidates:
            used.add(_default_account(cluster) or _account(cluster) or DEFAULT_SERVICE_ACCOUNT_NAME)
        if not candidates:
            used.add(DEFAULT_SERVICE_ACCOUNT_NAME)
            used.update(name for name in map(_default_account, clusters) if name)
    return used


def _has_objects(client: Verbs, namespace: str) -> bool:
    return any(len(page) > 0 for kind in WORKLOAD_KINDS for page in _first_page(client, kind, namespace))


def _first_page(client: Verbs, kind: Kind, namespace: str) -> Iterable[Any]:
    for page in client.pages(kind, namespace, limit=1, metadata_only=True):
        yield page
        return


def _prune(client: Verbs, namespace: str) -> None:
    # The binding is read before the objects: an account bound after that read changes its version.
    try:
        binding = client.get(ROLE_BINDING, BINDING, namespace)
    except NotFound:
        return
    if labels_of(binding).get(labels.MANAGED) != labels.TRUE:
        return
    present = binding.get("subjects") or []
    used = accounts_in_use(
        client.list(TERRAFORM_CLUSTER, namespace),
        [*client.list(TERRAFORM_MACHINE, namespace), *client.list(TERRAFORM_MACHINE_POOL, namespace)],
        accounts_of_runs(client, namespace),
    )
    left = subjects_after(present, namespace, "", lambda name: name in used)
    if len(left) == len(present):
        return
    try:
        if left:
            client.update(ROLE_BINDING, {**binding, "subjects": left})
        else:
            delete_binding(client, namespace, binding)
    except (NotFound, Conflict):
        # Somebody is at it; the next sweep looks again.
        return


def _delete(
    client: Verbs, namespace: str, found: Iterable[tuple[Kind, Object]]
) -> tuple[list[str], list[Exception]]:
    deleted: list[str] = []
    errors: list[Exception] = []
    for kind, obj in found:
        try:
            delete_as_read(client, kind, obj, namespace)
        except (NotFound, Conflict):
            continue
        except ApiError as error:
            errors.append(error)
            continue
        deleted.append(f"{kind.kind}/{name_of(obj)}")
    return deleted, errors


def _account(obj: Object) -> str:
    return _account_in(_mapping(obj.get("spec")))


def _default_account(cluster: Object) -> str:
    return _account_in(_mapping(_mapping(cluster.get("spec")).get("defaults")))


def _account_in(level: Mapping[str, Any]) -> str:
    return str(_mapping(level.get("jobs")).get("serviceAccountName") or "")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
