"""Every annotation that CAPTF sets or reads."""

from __future__ import annotations

from typing import Final

# Set by people on workload objects.
RESTORE_STATE: Final = "captf.io/restore-state"
ABANDON_INFRASTRUCTURE: Final = "captf.io/abandon-infrastructure"
CONFIRM_NO_RESOURCES: Final = "captf.io/confirm-no-resources"
PAUSED: Final = "cluster.x-k8s.io/paused"
MANAGED_BY: Final = "cluster.x-k8s.io/managed-by"

# Set by people on a MachinePool.
AUTOSCALER_MIN_SIZE: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
AUTOSCALER_MAX_SIZE: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"

# Set by CAPTF on API objects.
APPLIED_AS: Final = "captf.io/applied-as"
ENDPOINT_SOURCE: Final = "captf.io/endpoint-source"
BLOCK_MOVE: Final = "clusterctl.cluster.x-k8s.io/block-move"
REMEDIATE_MACHINE: Final = "cluster.x-k8s.io/remediate-machine"
REMEDIATION_REQUESTED: Final = "captf.io/remediation-requested"
REPLICAS_MANAGED_BY: Final = "cluster.x-k8s.io/replicas-managed-by"

# On Secrets.
INPUTS_HASH: Final = "captf.io/inputs-hash"
STATE_BACKUP_SERIAL: Final = "captf.io/state-backup-serial"
STATE_BACKUP_LINEAGE: Final = "captf.io/state-backup-lineage"
STATE_BACKUP_TAKEN_AT: Final = "captf.io/state-backup-taken-at"
STATE_BACKUP_SOURCE_JOB: Final = "captf.io/state-backup-source-job"
STATE_BACKUP_DIGEST: Final = "captf.io/state-backup-digest"
STATE_BACKUP_RESOURCES: Final = "captf.io/state-backup-resources"
STATE_BACKUP_SET: Final = "captf.io/state-backup-set"
STATE_BACKUP_CHUNK: Final = "captf.io/state-backup-chunk"
STATE_BACKUP_CHUNKS: Final = "captf.io/state-backup-chunks"
IMAGE: Final = "captf.io/image"
IMAGE_DIGEST: Final = "captf.io/image-digest"
IDENTITY: Final = "captf.io/identity"
IDENTITY_KIND: Final = "captf.io/identity-kind"
JOB: Final = "captf.io/job"
APPLIED: Final = "captf.io/applied"
UNCONFIRMED_APPLY: Final = "captf.io/unconfirmed-apply"
MAY_HAVE_APPLIED: Final = "captf.io/may-have-applied"
UNPULLABLE_IMAGES: Final = "captf.io/unpullable-images"
PENDING_CLUSTER_OUTPUTS: Final = "captf.io/pending-cluster-outputs"
PARTIAL_CLUSTER_OUTPUTS: Final = "captf.io/partial-cluster-outputs"
APPLIED_CLUSTER_OUTPUTS_HASH: Final = "captf.io/applied-cluster-outputs-hash"
SOURCE_HASH: Final = "captf.io/source-hash"

# On Leases.
LEASE_OP: Final = "captf.io/lease-op"
LEASE_OWNER: Final = "captf.io/lease-owner"
LEASE_ACQUIRED_AT: Final = "captf.io/lease-acquired-at"
LOCK_INFO: Final = "app.terraform.io/lock-info"

# On Jobs.
BOOKKEPT: Final = "captf.io/bookkept"
INTERRUPTED: Final = "captf.io/interrupted"
DRIFT_REMEDIATION: Final = "captf.io/drift-remediation"
DESTRUCTIVE_PLAN_BLOCKED: Final = "captf.io/destructive-plan-blocked"
PLAN_CHANGED: Final = "captf.io/plan-changed"
PLAN_UNREADABLE: Final = "captf.io/plan-unreadable"
PLAN: Final = "captf.io/plan"
PLAN_HASH: Final = "captf.io/plan-hash"
APPROVED_PLAN: Final = "captf.io/approved-plan"
AFTER_FAILED_APPLY: Final = "captf.io/after-failed-apply"
AFTER_INTERRUPTED_APPLY: Final = "captf.io/after-interrupted-apply"
RESTORE_SERIAL: Final = "captf.io/restore-serial"
IMAGE_FALLBACKS: Final = "captf.io/image-fallbacks"
APPROVAL_HASH: Final = "captf.io/approval-hash"
CLUSTER_OUTPUTS_HASH: Final = "captf.io/cluster-outputs-hash"
HELD_CLUSTER_OUTPUTS: Final = "captf.io/held-cluster-outputs"
STATE_LOCK_VERSION: Final = "captf.io/state-lock-version"
STATE_LINEAGE: Final = "captf.io/state-lineage"

# Read only.
CLONED_FROM_NAME: Final = "cluster.x-k8s.io/cloned-from-name"
DELETE_FOR_MOVE: Final = "clusterctl.cluster.x-k8s.io/delete-for-move"
TOPOLOGY_DRY_RUN: Final = "topology.cluster.x-k8s.io/dry-run"

TRUE: Final = "true"
REPLICAS_MANAGED_BY_CAPTF: Final = "captf"
"""The value of `REPLICAS_MANAGED_BY` that CAPTF writes, and the only one it removes."""
