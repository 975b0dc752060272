"""Asking for a Machine to be replaced while its instance is unhealthy, and withdrawing the request. Pure.

CAPTF only asks: MachineHealthCheck and the Machine's owner replace. A request that somebody else made is never
touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from captf_controllers.api import annotations as keys
from captf_controllers.api import reasons
from captf_controllers.reconcile.config import Remediation
from captf_runtime.objects import Object, annotations_of, is_deleting

_UNHEALTHY = frozenset({reasons.INSTANCE_UNHEALTHY, reasons.INSTANCE_DEGRADED, reasons.INSTANCE_STOPPED})


@dataclass(frozen=True, slots=True)
class Request:
    """Set both annotations; ``why`` is the value of CAPTF's own."""

    why: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove both annotations: the instance is healthy again."""


def decide(
    machine: Object, policy: Remediation, *, reason: str, unhealthy_samples: int
) -> Request | Withdraw | None:
    """What to do on the owning Machine, from the reason of ``InfrastructureHealthy``; None for nothing."""
    if not policy.annotate_machine:
        return None
    present = annotations_of(machine)
    ours = keys.REMEDIATION_REQUESTED in present
    if reason == reasons.HEALTHY:
        return Withdraw() if ours and not is_deleting(machine) else None
    if keys.REMEDIATE_MACHINE in present:
        return None
    if reason == reasons.INSTANCE_TERMINATED:
        return Request("the instance is terminated")
    if reason in _UNHEALTHY and unhealthy_samples >= policy.unhealthy_threshold:
        return Request(f"{reason} for {unhealthy_samples} consecutive samples")
    return None


def patch_of(action: Request | Withdraw, resource_version: str) -> Object:
    """The merge patch of the Machine, locked to the version that was looked at."""
    values: dict[str, str | None] = {keys.REMEDIATE_MACHINE: None, keys.REMEDIATION_REQUESTED: None}
    if isinstance(action, Request):
        values = {keys.REMEDIATE_MACHINE: "", keys.REMEDIATION_REQUESTED: action.why}
    return {"metadata": {"resourceVersion": resource_version, "annotations": values}}
