"""Every label that CAPTF sets or reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from captf_runtime.objects import labels_of

MANAGED: Final = "captf.io/managed"
"""Value `true`; selects everything of CAPTF's for its caches and sweeps."""

OWNER_KIND: Final = "captf.infrastructure.cluster.x-k8s.io/owner-kind"
OWNER_NAME: Final = "captf.infrastructure.cluster.x-k8s.io/owner-name"
OP: Final = "captf.infrastructure.cluster.x-k8s.io/op"
ATTEMPT: Final = "captf.infrastructure.cluster.x-k8s.io/attempt"

CLUSTER_NAME: Final = "cluster.x-k8s.io/cluster-name"
CONTROL_PLANE: Final = "cluster.x-k8s.io/control-plane"
WATCH_FILTER: Final = "cluster.x-k8s.io/watch-filter"

MOVE: Final = "clusterctl.cluster.x-k8s.io/move"
MOVE_HIERARCHY: Final = "clusterctl.cluster.x-k8s.io/move-hierarchy"

TFSTATE: Final = "tfstate"
TFSTATE_SECRET_SUFFIX: Final = "tfstateSecretSuffix"
TFSTATE_WORKSPACE: Final = "tfstateWorkspace"

STATE_BACKUP: Final = "captf.io/state-backup"
STATE_BACKUP_SUFFIX: Final = "captf.io/state-backup-suffix"
RETAINED_FROM_UID: Final = "captf.io/retained-from-uid"

VARIABLES: Final = "captf.io/variables"
"""Value `true` on a ConfigMap or Secret lets `variablesFrom` read it."""

RUNNER: Final = "captf.io/runner"
"""Value `true` on a ServiceAccount lets Jobs run as it."""

MIRRORED: Final = "captf.io/mirrored"
LEASE: Final = "captf.io/lease"

PLAN_DESTRUCTIVE: Final = "captf.io/destructive"
PLAN_PHASE: Final = "captf.io/plan-phase"
PLAN_REASON: Final = "captf.io/plan-reason"

CONTRACT_VERSION: Final = "cluster.x-k8s.io/v1beta2"
"""On each CRD: which version serves the v1beta2 contract of Cluster API."""

TRUE: Final = "true"


def is_watched(obj: Mapping[str, Any], watch_filter: str) -> bool:
    """Say whether an object is one of those that a manager with this watch filter looks after, "" for all."""
    return not watch_filter or labels_of(obj).get(WATCH_FILTER) == watch_filter
