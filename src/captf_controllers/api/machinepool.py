"""Spec and status of a TerraformMachinePool."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from .machine import MachineAddress
from .schema import Wire, doc, integer, items, text
from .workspace import ObjectName, PoolDriftPolicy, WorkspaceSpec, WorkspaceStatus

InstanceState: TypeAlias = Literal["pending", "running", "degraded", "stopped", "terminated", "unknown"]

DEFAULT_MEMBERSHIP_REFRESH_INTERVAL_SECONDS = 60
MAX_INSTANCES = 1000
"""How many members `status.instances` lists."""

MAX_PROVIDER_IDS = 10000


class TerraformMachinePoolSpec(WorkspaceSpec, frozen=True):
    """The desired infrastructure of a machine pool."""

    provider_id: Annotated[
        str | None, text("Identifier of the group; written by the controller.", 1, 512)
    ] = None
    provider_id_list: Annotated[
        tuple[Annotated[str, text("Identifier of a member.", 1, 512)], ...] | None,
        items("Identifiers of the members, sorted; written by the controller.", None, MAX_PROVIDER_IDS),
    ] = None
    drift: Annotated[PoolDriftPolicy | None, doc("Drift checks of the pool.")] = None
    membership_refresh_interval_seconds: Annotated[
        int | None, integer("Seconds between membership refreshes; 60 when unset.", 15, 86400)
    ] = None


class PoolInstance(Wire, frozen=True):
    """A member of the pool."""

    provider_id: Annotated[str, text("Identifier of the member.", 1, 512)]
    instance_id: Annotated[str | None, text("The provider's own name of the member.", 1, 256)] = None
    addresses: Annotated[tuple[MachineAddress, ...] | None, items("Addresses of the member.", 1, 256)] = None
    failure_domain: Annotated[str | None, text("Where the member was placed.", 1, 256)] = None
    state: Annotated[InstanceState | None, doc("State of the member.")] = None


class TerraformMachinePoolStatus(WorkspaceStatus, frozen=True):
    """The observed infrastructure of a machine pool."""

    ready: Annotated[
        bool | None, doc("Whether the pool is provisioned, as Cluster API's v1beta1 contract reads it.")
    ] = None
    replicas: Annotated[int | None, integer("Replicas that the module observed.", 0)] = None
    instances: Annotated[
        tuple[PoolInstance, ...] | None, items("Members of the pool, the first 1000.", 1, MAX_INSTANCES)
    ] = None
    pending_plan_ref: Annotated[ObjectName | None, doc("The plan that waits for approval.")] = None
