"""Reasons of conditions and of events.

One name serves both where a condition and its event say the same thing.
"""

from __future__ import annotations

from typing import Final

# Ready
READY: Final = "Ready"
NOT_READY: Final = "NotReady"
READY_UNKNOWN: Final = "ReadyUnknown"
NOT_YET_REPORTED: Final = "NotYetReported"

# DependenciesReady
DEPENDENCIES_READY: Final = "DependenciesReady"
WAITING_FOR_OWNER: Final = "WaitingForOwner"
WAITING_FOR_OWNER_MACHINE: Final = "WaitingForOwnerMachine"
WAITING_FOR_OWNER_MACHINE_POOL: Final = "WaitingForOwnerMachinePool"
OWNER_NOT_FOUND: Final = "OwnerNotFound"
OWNER_MISMATCH: Final = "OwnerMismatch"
CLUSTER_NOT_TERRAFORM: Final = "ClusterNotTerraform"
WAITING_FOR_CLUSTER_INFRASTRUCTURE: Final = "WaitingForClusterInfrastructure"
WAITING_FOR_CLUSTER_EXPORTS: Final = "WaitingForClusterExports"
WAITING_FOR_BOOTSTRAP_DATA: Final = "WaitingForBootstrapData"
VARIABLES_SOURCE_NOT_FOUND: Final = "VariablesSourceNotFound"
VARIABLES_INVALID: Final = "VariablesInvalid"

# IdentityAllowed and the Ready condition of an identity
IDENTITY_ALLOWED: Final = "IdentityAllowed"
LOCAL_SECRET: Final = "LocalSecret"
IDENTITY_NOT_FOUND: Final = "IdentityNotFound"
NAMESPACE_NOT_ALLOWED: Final = "NamespaceNotAllowed"
SECRET_FOUND: Final = "SecretFound"
SECRET_NOT_FOUND: Final = "SecretNotFound"
CREDENTIALS_INCOMPLETE: Final = "CredentialsIncomplete"
IDENTITY_CHECK_FAILED: Final = "IdentityCheckFailed"

# CredentialsMirrored
MIRRORED: Final = "Mirrored"
MIRROR_FAILED: Final = "MirrorFailed"
MIRROR_PENDING: Final = "MirrorPending"

# RunnerRBACReady
RBAC_READY: Final = "RBACReady"
RBAC_FAILED: Final = "RBACFailed"
SERVICE_ACCOUNT_NOT_OPTED_IN: Final = "ServiceAccountNotOptedIn"

# ApplyJobSucceeded
APPLY_SUCCEEDED: Final = "ApplySucceeded"
DESTROY_SUCCEEDED: Final = "DestroySucceeded"
NO_APPLY_YET: Final = "NoApplyYet"
APPLY_FAILED: Final = "ApplyFailed"
DESTROY_FAILED: Final = "DestroyFailed"
JOB_DEADLINE_EXCEEDED: Final = "JobDeadlineExceeded"
IMAGE_PULL_FAILED: Final = "ImagePullFailed"
IMAGE_INVALID: Final = "ImageInvalid"
IDENTITY_NOT_ALLOWED: Final = "IdentityNotAllowed"
INPUTS_TOO_LARGE: Final = "InputsTooLarge"
JOB_POLICY_INVALID: Final = "JobPolicyInvalid"
JOB_CANNOT_START: Final = "JobCannotStart"
"""Of DriftJobSucceeded and RestoreJobSucceeded as well."""
DESTRUCTIVE_PLAN_BLOCKED: Final = "DestructivePlanBlocked"
PLAN_AWAITING_APPROVAL: Final = "PlanAwaitingApproval"
PLAN_CHANGED: Final = "PlanChanged"
WAITING_FOR_RUN_LEASE: Final = "WaitingForRunLease"
WAITING_FOR_CLUSTER_OPERATION: Final = "WaitingForClusterOperation"
WAITING_FOR_MACHINE_OPERATIONS: Final = "WaitingForMachineOperations"
WAITING_FOR_JOB_SLOT: Final = "WaitingForJobSlot"

WAITS: Final = frozenset(
    {
        WAITING_FOR_RUN_LEASE,
        WAITING_FOR_CLUSTER_OPERATION,
        WAITING_FOR_MACHINE_OPERATIONS,
        WAITING_FOR_JOB_SLOT,
    }
)
"""A Job waits for a lease or a slot: nothing failed, and nothing counts toward a backoff."""

STOPPED_STARTS: Final = frozenset(
    {IDENTITY_NOT_ALLOWED, DESTROY_FAILED, INPUTS_TOO_LARGE, JOB_POLICY_INVALID, JOB_CANNOT_START}
)
"""What stopped the start of a Job, where the message of the condition names no Job."""

APPROVAL_WAITS: Final = frozenset({DESTRUCTIVE_PLAN_BLOCKED, PLAN_AWAITING_APPROVAL, PLAN_CHANGED})
"""An apply waits for a person to approve what it would do."""

# StateReadable
STATE_READ: Final = "StateRead"
STATE_NOT_FOUND: Final = "StateNotFound"
STATE_LOST: Final = "StateLost"
STATE_CORRUPT: Final = "StateCorrupt"
STATE_ENCRYPTED: Final = "StateEncrypted"
STATE_INCONSISTENT: Final = "StateInconsistent"
STATE_LOCKED: Final = "StateLocked"
APPLY_OUTCOME_UNKNOWN: Final = "ApplyOutcomeUnknown"
RETAINED_STATE_FOUND: Final = "RetainedStateFound"

STATE_HOLDS: Final = frozenset(
    {STATE_LOST, STATE_CORRUPT, STATE_ENCRYPTED, STATE_INCONSISTENT, APPLY_OUTCOME_UNKNOWN}
)
"""Reasons of StateReadable with which no Job but a restore starts, and a deletion is held."""

# RestoreJobSucceeded
STATE_RESTORED: Final = "StateRestored"
RESTORE_FAILED: Final = "RestoreFailed"
RESTORE_BACKUP_NOT_FOUND: Final = "RestoreBackupNotFound"

# OutputsValid
OUTPUTS_VALID: Final = "OutputsValid"
OUTPUTS_MISSING: Final = "OutputsMissing"
OUTPUTS_INVALID: Final = "OutputsInvalid"
FAILURE_DOMAIN_MISMATCH: Final = "FailureDomainMismatch"
PROVIDER_ID_CHANGED: Final = "ProviderIDChanged"
OUTPUTS_PENDING: Final = "OutputsPending"
INSTANCES_TRUNCATED: Final = "InstancesTruncated"

# InfrastructureHealthy
HEALTHY: Final = "Healthy"
PROVISIONING: Final = "Provisioning"
INSTANCE_PENDING: Final = "InstancePending"
INSTANCE_DEGRADED: Final = "InstanceDegraded"
INSTANCE_STOPPED: Final = "InstanceStopped"
INSTANCE_TERMINATED: Final = "InstanceTerminated"
INSTANCE_UNHEALTHY: Final = "InstanceUnhealthy"
WAITING_FOR_PROVISIONING: Final = "WaitingForProvisioning"
HEALTH_UNKNOWN: Final = "HealthUnknown"
PROVIDER_ID_MISSING: Final = "ProviderIDMissing"

# InputsApplied
INPUTS_APPLIED: Final = "InputsApplied"
APPLY_RUNNING: Final = "ApplyRunning"
INPUTS_UNAVAILABLE: Final = "InputsUnavailable"
AWAITING_APPROVAL: Final = "AwaitingApproval"
INPUTS_APPLY_FAILED: Final = "InputsApplyFailed"
APPLY_PENDING: Final = "ApplyPending"

# DriftJobSucceeded
DRIFT_CHECKED: Final = "DriftChecked"
DRIFT_JOB_FAILED: Final = "DriftJobFailed"
DRIFT_JOB_DEADLINE_EXCEEDED: Final = "DriftJobDeadlineExceeded"
DRIFT_JOB_RUNNING: Final = "DriftJobRunning"
DRIFT_NOT_CHECKED: Final = "DriftNotChecked"
DURABLE_INPUTS_MISSING: Final = "DurableInputsMissing"

# DriftDetected
DRIFT_REPORTED: Final = "DriftReported"
DRIFT_PENDING: Final = "DriftPending"
DRIFT_REMEDIATING: Final = "DriftRemediating"
NO_DRIFT: Final = "NoDrift"

# DeletionBlocked
DEPENDENTS_EXIST: Final = "DependentsExist"
NOT_BLOCKED: Final = "NotBlocked"

# EndpointAvailable
ENDPOINT_AVAILABLE: Final = "EndpointAvailable"
WAITING_FOR_ENDPOINT: Final = "WaitingForEndpoint"

# AutoscalingActive
REPLICAS_MANAGED_BY_MODULE: Final = "ReplicasManagedByModule"
AUTOSCALING_DISABLED: Final = "AutoscalingDisabled"
AUTOSCALING_ANNOTATIONS_INVALID: Final = "AutoscalingAnnotationsInvalid"
REPLICAS_MANAGED_EXTERNALLY: Final = "ReplicasManagedExternally"

# Paused
PAUSED: Final = "Paused"
NOT_PAUSED: Final = "NotPaused"

# Deleting
DELETING: Final = "Deleting"
NOT_DELETING: Final = "NotDeleting"

# CapacityResolved, VariablesValid
CAPACITY_RESOLVED: Final = "CapacityResolved"
CAPACITY_NOT_DECLARED: Final = "CapacityNotDeclared"
CAPACITY_LABEL_INVALID: Final = "CapacityLabelInvalid"
IMAGE_INSPECT_FAILED: Final = "ImageInspectFailed"
VARIABLES_VALID: Final = "VariablesValid"
VARIABLES_SCHEMA_NOT_DECLARED: Final = "VariablesSchemaNotDeclared"
VARIABLES_REJECTED: Final = "VariablesRejected"
VARIABLES_SOURCE_PENDING: Final = "VariablesSourcePending"
VARIABLES_SCHEMA_UNAVAILABLE: Final = "VariablesSchemaUnavailable"

# TerraformPlan
PLAN_PENDING: Final = "Pending"
PLAN_APPROVED: Final = "Approved"
PLAN_APPLIED: Final = "Applied"
PLAN_FAILED: Final = "Failed"
PLAN_SUPERSEDED: Final = "Superseded"
PLAN_NOT_APPROVED: Final = "NotApproved"
PLAN_APPROVAL_IGNORED: Final = "ApprovalIgnored"

# Events that have no condition of the same name
EVENT_RESUMED: Final = "Resumed"
EVENT_PROVISIONED: Final = "Provisioned"
EVENT_INPUTS_CHANGED: Final = "InputsChanged"
EVENT_CONTROL_PLANE_ENDPOINT_SET: Final = "ControlPlaneEndpointSet"
EVENT_FAILURE_DOMAINS_CHANGED: Final = "FailureDomainsChanged"
EVENT_EXPORTS_NOT_PUBLISHED: Final = "ExportsNotPublished"
EVENT_PROVIDER_ID_SET: Final = "ProviderIDSet"
EVENT_CONDITION_CHANGED: Final = "ConditionChanged"
EVENT_DIGEST_PINNED: Final = "DigestPinned"
EVENT_DIGEST_UNKNOWN: Final = "DigestUnknown"
EVENT_APPLIED_INPUTS_UNKNOWN: Final = "AppliedInputsUnknown"
EVENT_DESTROY_INPUTS_MISMATCH: Final = "DestroyInputsMismatch"
EVENT_JOB_CREATED: Final = "JobCreated"
EVENT_JOB_SUCCEEDED: Final = "JobSucceeded"
EVENT_JOB_FAILED: Final = "JobFailed"
EVENT_JOB_INTERRUPTED: Final = "JobInterrupted"
EVENT_STUCK_JOB_DELETED: Final = "StuckJobDeleted"
EVENT_RESERVED_ENV_DROPPED: Final = "ReservedEnvDropped"
EVENT_IMAGE_PULL_FALLBACK: Final = "ImagePullFallback"
EVENT_PLAN_READY: Final = "PlanReady"
EVENT_PLAN_APPROVED: Final = "PlanApproved"
EVENT_PLAN_APPLIED: Final = "PlanApplied"
EVENT_PLAN_SUPERSEDED: Final = "PlanSuperseded"
EVENT_STATE_ADOPTED: Final = "StateAdopted"
EVENT_STATE_BACKED_UP: Final = "StateBackedUp"
EVENT_STATE_RESTORE_FAILED: Final = "StateRestoreFailed"
EVENT_STATE_UNREADABLE: Final = "StateUnreadable"
EVENT_FORCE_UNLOCKED: Final = "ForceUnlocked"
EVENT_OWNER_REFERENCES_REPAIRED: Final = "OwnerReferencesRepaired"
EVENT_DRIFT_DETECTED: Final = "DriftDetected"
EVENT_DRIFT_RESOLVED: Final = "DriftResolved"
EVENT_DRIFT_REMEDIATION_STARTED: Final = "DriftRemediationStarted"
EVENT_INSTANCE_HEALTHY: Final = "InstanceHealthy"
EVENT_REMEDIATION_REQUESTED: Final = "RemediationRequested"
EVENT_REMEDIATION_WITHDRAWN: Final = "RemediationWithdrawn"
EVENT_IDENTITY_SECRET_FOUND: Final = "IdentitySecretFound"
EVENT_CAPACITY_RESOLVED: Final = "CapacityResolved"
EVENT_IDENTITY_SECRET_NOT_FOUND: Final = "IdentitySecretNotFound"
EVENT_MIRROR_CREATED: Final = "MirrorCreated"
EVENT_MIRROR_REMOVED: Final = "MirrorRemoved"
EVENT_DELETION_STARTED: Final = "DeletionStarted"
EVENT_DESTROYED: Final = "Destroyed"
EVENT_FINALIZER_REMOVED: Final = "FinalizerRemoved"
EVENT_INFRASTRUCTURE_RETAINED: Final = "InfrastructureRetained"
EVENT_INFRASTRUCTURE_ABANDONED: Final = "InfrastructureAbandoned"
EVENT_RETAINED_STATE_ADOPTED: Final = "RetainedStateAdopted"
EVENT_EXTERNALLY_MANAGED_RELEASED: Final = "ExternallyManagedReleased"
EVENT_FOREGROUND_DELETION_CONVERTED: Final = "ForegroundDeletionConverted"
EVENT_REPLICAS_WRITTEN_BACK: Final = "ReplicasWrittenBack"
