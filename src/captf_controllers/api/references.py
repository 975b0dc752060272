"""References between Cluster API's objects and ours, in both shapes that Cluster API has used."""

from __future__ import annotations

from captf_controllers.api.kinds import MACHINE_POOL
from captf_runtime.objects import Kind, Object, group_of


def infrastructure_reference(owner: Object, kind: Kind) -> Object:
    """The infrastructureRef of a Cluster, Machine or MachinePool; empty when unset."""
    spec = owner.get("spec") or {}
    if kind == MACHINE_POOL:
        spec = ((spec.get("template") or {}).get("spec")) or {}
    reference = spec.get("infrastructureRef")
    return reference if isinstance(reference, dict) else {}


def reference_group(reference: Object) -> str:
    """The API group that a reference names: ``apiGroup``, or the group of the older ``apiVersion``."""
    return str(reference.get("apiGroup") or group_of(str(reference.get("apiVersion", ""))))
