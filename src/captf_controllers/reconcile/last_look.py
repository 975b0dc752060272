"""The last look at the API server before what cannot be taken back: a Job, and an abandon's cleanup.

A pass decides from caches, which trail the server and each other. What somebody has changed meanwhile (a pause, a
deletion, another policy, a word taken back) is known to the next pass; this one only has to stop in time.
"""

from __future__ import annotations

from captf_controllers.api.annotations import ABANDON_INFRASTRUCTURE, PAUSED
from captf_controllers.api.cluster import TerraformClusterSpec
from captf_controllers.api.kinds import CLUSTER, TERRAFORM_CLUSTER
from captf_controllers.api.typed import spec_of
from captf_controllers.reconcile import config as configuration
from captf_controllers.reconcile.scope import Scope
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import Object, annotations_of, is_deleting, name_of, uid_of


def start_unwanted(scope: Scope) -> bool:
    """Whether a Job that is about to be created is not wanted any more.

    Because the object was paused or deleted, is another one of its name, or is to be retained and not to be destroyed,
    nor restored for that.
    """
    live = scope.client.get(scope.kind, scope.name, scope.namespace, metadata_only=not scope.deleting)
    if uid_of(live) != scope.uid or is_deleting(live) != scope.deleting:
        return True
    return _paused(scope, live) or (scope.deleting and _retained(scope, live))


def abandon_unwanted(scope: Scope) -> bool:
    """Whether the abandon was taken back, or Retain was set, which beats it."""
    live = scope.client.get(scope.kind, scope.name, scope.namespace)
    return annotations_of(live).get(ABANDON_INFRASTRUCTURE) != scope.uid or _retained(scope, live)


def _paused(scope: Scope, live: Object) -> bool:
    """Whether the object is paused.

    clusterctl writes the pause and then reads block-move; here block-move is written and then the pause is
    read: one side sees the other. A Cluster that does not exist counts as unpaused.
    """
    if PAUSED in annotations_of(live):
        return True
    cluster = scope.lease_owner.cluster_name
    if not cluster:
        return False
    try:
        found = scope.client.get(CLUSTER, cluster, scope.namespace)
    except NotFound:
        return False
    return (found.get("spec") or {}).get("paused") is True


def _retained(scope: Scope, live: Object) -> bool:
    """Whether the policy is Retain by now: set on the object, or on the TerraformCluster that it inherits from.

    The two come from different watches: a machine may be seen to go before its cluster is seen to have changed.
    """
    own = spec_of(live, type(scope.spec)).deletion_policy
    inherited = scope.owners.terraform_cluster if scope.kind != TERRAFORM_CLUSTER else None
    if own is not None or inherited is None:
        return own == "Retain"
    try:
        cluster = scope.client.get(TERRAFORM_CLUSTER, name_of(inherited), scope.namespace)
    except NotFound:
        return False
    return configuration.inherited_policy(spec_of(cluster, TerraformClusterSpec)) == "Retain"
