"""Spec and status of a TerraformCluster."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from .schema import Wire, doc, free_json, integer, items, text
from .workspace import (
    DeletionPolicy,
    DriftPolicy,
    IdentityRef,
    JobPolicy,
    ObjectName,
    RemediationPolicy,
    WorkspaceSpec,
    WorkspaceStatus,
)

ApplyPolicy: TypeAlias = Literal["Automatic", "Manual"]
DEFAULT_APPLY_POLICY: ApplyPolicy = "Automatic"

MAX_EXPORTS_BYTES = 65536
"""Largest compact JSON that `status.exports` holds."""


class Endpoint(Wire, frozen=True):
    """Where the workload cluster's API server is reached."""

    host: Annotated[str | None, text("Host name or address.", 1, 512)] = None
    port: Annotated[int | None, integer("Port.", 1, 65535)] = None

    @property
    def complete(self) -> bool:
        """Whether both host and port are set."""
        return bool(self.host) and bool(self.port)


class ClusterDefaults(Wire, frozen=True):
    """Policy for the cluster's machines and pools that set none of their own."""

    identity_ref: Annotated[IdentityRef | None, doc("Credentials of their Jobs.")] = None
    jobs: Annotated[JobPolicy | None, doc("How their Jobs run.")] = None
    drift: Annotated[DriftPolicy | None, doc("Their drift checks; machines only report.")] = None
    remediation: Annotated[RemediationPolicy | None, doc("Remediation of machines.")] = None
    membership_refresh_interval_seconds: Annotated[
        int | None, integer("Seconds between membership refreshes of pools.", 15, 86400)
    ] = None
    deletion_policy: Annotated[
        DeletionPolicy | None, doc("What a deletion does with their infrastructure.")
    ] = None


class TerraformClusterSpec(WorkspaceSpec, frozen=True):
    """The desired infrastructure of a cluster."""

    control_plane_endpoint: Annotated[
        Endpoint | None,
        doc(
            "Endpoint of the workload cluster: set one that the module does not own, else the module's "
            "output is written here once. Immutable when complete.",
            minProperties=1,
        ),
    ] = None
    drift: Annotated[
        DriftPolicy | None,
        doc("Drift checks of the cluster, and of machines and pools for which nothing else is set."),
    ] = None
    apply_policy: Annotated[
        ApplyPolicy | None,
        doc("Automatic (also when unset), or Manual to approve every change after the first apply."),
    ] = None
    max_active_jobs: Annotated[
        int | None,
        integer(
            "How many Jobs of the cluster, its machines and its pools run at once; the manager's default "
            "when unset.",
            1,
        ),
    ] = None
    defaults: Annotated[
        ClusterDefaults | None, doc("Policy for machines and pools that set none of their own.")
    ] = None


class FailureDomain(Wire, frozen=True):
    """A failure domain that the module offers."""

    name: Annotated[str, text("Name of the domain.", 1, 256)]
    control_plane: Annotated[bool | None, doc("Whether control-plane machines may use it.")] = None
    attributes: Annotated[dict[str, str] | None, doc("Free attributes.")] = None


class TerraformClusterStatus(WorkspaceStatus, frozen=True):
    """The observed infrastructure of a cluster."""

    failure_domains: Annotated[
        tuple[FailureDomain, ...] | None,
        items("Failure domains that the module offers.", 1, 100, keys=("name",)),
    ] = None
    exports: Annotated[
        Any,
        free_json("The module's exports output, for readers outside; absent above 65536 bytes."),
    ] = None
    pending_plan_ref: Annotated[ObjectName | None, doc("The plan that waits for approval.")] = None
