"""The condition types that CAPTF owns, and their reasons.

What each means, when it is set and which event it makes is in `captf_controllers.observability`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Status: TypeAlias = Literal["True", "False", "Unknown"]

TRUE: Final[Status] = "True"
FALSE: Final[Status] = "False"
UNKNOWN: Final[Status] = "Unknown"

# Types of the workload kinds.
READY: Final = "Ready"
DEPENDENCIES_READY: Final = "DependenciesReady"
IDENTITY_ALLOWED: Final = "IdentityAllowed"
CREDENTIALS_MIRRORED: Final = "CredentialsMirrored"
RUNNER_RBAC_READY: Final = "RunnerRBACReady"
APPLY_JOB_SUCCEEDED: Final = "ApplyJobSucceeded"
STATE_READABLE: Final = "StateReadable"
RESTORE_JOB_SUCCEEDED: Final = "RestoreJobSucceeded"
OUTPUTS_VALID: Final = "OutputsValid"
INFRASTRUCTURE_HEALTHY: Final = "InfrastructureHealthy"
INPUTS_APPLIED: Final = "InputsApplied"
DRIFT_JOB_SUCCEEDED: Final = "DriftJobSucceeded"
DRIFT_DETECTED: Final = "DriftDetected"
PAUSED: Final = "Paused"
DELETING: Final = "Deleting"
# TerraformCluster only.
DELETION_BLOCKED: Final = "DeletionBlocked"
ENDPOINT_AVAILABLE: Final = "EndpointAvailable"
# TerraformMachinePool only.
AUTOSCALING_ACTIVE: Final = "AutoscalingActive"
# TerraformMachineTemplate only.
CAPACITY_RESOLVED: Final = "CapacityResolved"
VARIABLES_VALID: Final = "VariablesValid"
# TerraformPlan only.
APPROVED: Final = "Approved"

NEGATIVE_POLARITY: Final = frozenset({DELETING, DRIFT_DETECTED, DELETION_BLOCKED})
"""Types of which True is the bad state."""

OWNED_TYPES: Final = frozenset(
    {
        READY,
        DEPENDENCIES_READY,
        IDENTITY_ALLOWED,
        CREDENTIALS_MIRRORED,
        RUNNER_RBAC_READY,
        APPLY_JOB_SUCCEEDED,
        STATE_READABLE,
        RESTORE_JOB_SUCCEEDED,
        OUTPUTS_VALID,
        INFRASTRUCTURE_HEALTHY,
        INPUTS_APPLIED,
        DRIFT_JOB_SUCCEEDED,
        DRIFT_DETECTED,
        PAUSED,
        DELETING,
        DELETION_BLOCKED,
        ENDPOINT_AVAILABLE,
        AUTOSCALING_ACTIVE,
        CAPACITY_RESOLVED,
        VARIABLES_VALID,
        APPROVED,
    }
)
"""Every type that CAPTF writes; conditions of other types are left as they are."""
