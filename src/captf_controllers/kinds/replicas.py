"""Writing the observed replica count back to a MachinePool whose module scales by itself. Pure.

The claim ``cluster.x-k8s.io/replicas-managed-by: captf`` says that CAPTF owns the field; a foreign claim stops
the write-back, ``"false"`` is none.
"""

from __future__ import annotations

from captf_controllers.api import annotations as keys
from captf_runtime.objects import Object, annotations_of, resource_version_of

OURS = "captf"


def write_back(pool: Object, *, autoscaling: bool, replicas: int | None) -> Object | None:
    """The one patch of the MachinePool, or None when nothing is to change.

    ``autoscaling`` says that both size annotations are valid; ``replicas`` is the observed count, None while
    unknown. The raw count is written, whatever the limits say.
    """
    claim = annotations_of(pool).get(keys.REPLICAS_MANAGED_BY)
    if not autoscaling:
        if claim != OURS:
            return None
        return _locked(pool, {"metadata": {"annotations": {keys.REPLICAS_MANAGED_BY: None}}})
    patch: Object = {}
    if claim in (None, "false"):
        patch["metadata"] = {"annotations": {keys.REPLICAS_MANAGED_BY: OURS}}
    elif claim != OURS:
        return None
    if replicas is not None and (pool.get("spec") or {}).get("replicas") != replicas:
        patch["spec"] = {"replicas": replicas}
    return _locked(pool, patch) if patch else None


def _locked(pool: Object, patch: Object) -> Object:
    metadata = {**patch.get("metadata", {}), "resourceVersion": resource_version_of(pool)}
    return {**patch, "metadata": metadata}
