"""Spec and status of a TerraformMachine."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from .schema import Wire, doc, integer, items, text
from .workspace import DriftReporting, RemediationPolicy, WorkspaceSpec, WorkspaceStatus

AddressType: TypeAlias = Literal["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"]

DEFAULT_UNHEALTHY_THRESHOLD = 3
DEFAULT_HEALTH_CHECK_INTERVAL_SECONDS = 300


class TerraformMachineSpec(WorkspaceSpec, frozen=True):
    """The desired infrastructure of a machine."""

    provider_id: Annotated[
        str | None, text("Identifier of the instance; written once by the controller.", 1, 512)
    ] = None
    drift: Annotated[DriftReporting | None, doc("Drift checks of the machine, which only report.")] = None
    remediation: Annotated[
        RemediationPolicy | None, doc("Whether an unhealthy instance asks for its replacement.")
    ] = None


class MachineAddress(Wire, frozen=True):
    """An address of the instance."""

    type: Annotated[AddressType, doc("Kind of the address.")]
    address: Annotated[str, text("The address.", 1, 256)]


class TerraformMachineStatus(WorkspaceStatus, frozen=True):
    """The observed infrastructure of a machine."""

    addresses: Annotated[tuple[MachineAddress, ...] | None, items("Addresses of the instance.", 1, 256)] = (
        None
    )
    failure_domain: Annotated[str | None, text("Where the instance was placed.", 1, 256)] = None
    interruptible: Annotated[bool | None, doc("Whether the provider may stop the instance at any time.")] = (
        None
    )
    unhealthy_samples: Annotated[
        int | None, integer("Consecutive unhealthy samples; absent while healthy.", 1)
    ] = None
