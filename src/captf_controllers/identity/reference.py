"""Which identity an object uses. Pure."""

from __future__ import annotations

from captf_controllers.api.cluster import TerraformClusterSpec
from captf_controllers.api.workspace import IdentityRef

__all__ = ["effective_reference", "is_local_secret"]


def effective_reference(
    own: IdentityRef | None, cluster: TerraformClusterSpec | None = None
) -> IdentityRef | None:
    """The reference that counts, None when there is none.

    The first with a name wins as a whole: the object's own; for a machine or pool then its cluster's
    `spec.defaults.identityRef`, then that cluster's `spec.identityRef`. One of kind Secret never falls
    through to a later one.

    Args:
        own: the object's own reference.
        cluster: the spec of a machine's or pool's TerraformCluster; None for a TerraformCluster itself, and
            where it does not exist.
    """
    levels = [own]
    if cluster is not None:
        levels += [cluster.defaults.identity_ref if cluster.defaults else None, cluster.identity_ref]
    return next((reference for reference in levels if reference is not None and reference.name), None)


def is_local_secret(reference: IdentityRef | None) -> bool:
    """Whether the reference names a Secret of the object's own namespace."""
    return reference is not None and reference.kind == "Secret"
