"""The configuration in force for one object: its own values, then what it inherits, then built-ins.

Per field: own value, the TerraformCluster's ``spec.defaults``, that cluster's own field where it has one,
built-in. ``defaults`` never applies to the cluster itself. Nothing resolved is stored, except the deletion
policy, which must outlive the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from captf_controllers.api.cluster import DEFAULT_APPLY_POLICY, ApplyPolicy, TerraformClusterSpec
from captf_controllers.api.machine import TerraformMachineSpec
from captf_controllers.api.machinepool import TerraformMachinePoolSpec
from captf_controllers.api.workspace import (
    DEFAULT_DRIFT_ACTION,
    DeletionPolicy,
    DriftAction,
    IdentityKind,
    IdentityRef,
    JobPolicy,
    RemediationPolicy,
    WorkspaceSpec,
)
from captf_controllers.deletion.retain import effective_policy
from captf_controllers.identity.reference import effective_reference
from captf_controllers.inputs.records import Record
from captf_controllers.jobs.policy import EffectivePolicy, merge_policies

DEFAULT_UNHEALTHY_THRESHOLD = 3
DEFAULT_HEALTH_CHECK_SECONDS = 300
DEFAULT_MEMBERSHIP_REFRESH_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Remediation:
    """The merged remediation policy of a machine."""

    annotate_machine: bool = False
    unhealthy_threshold: int = DEFAULT_UNHEALTHY_THRESHOLD
    health_check_seconds: int = DEFAULT_HEALTH_CHECK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfig:
    """What a pass works with. Intervals are seconds and 0 means off.

    ``remember_policy`` says whether ``status.effectiveDeletionPolicy`` takes ``deletion_policy`` over.
    ``max_active_jobs`` is the cluster's limit as its spec sets it; None leaves it to the manager's flag.
    """

    identity: IdentityRef | None
    jobs: EffectivePolicy
    deletion_policy: DeletionPolicy
    remember_policy: bool
    drift_interval: float
    drift_action: DriftAction
    apply_policy: ApplyPolicy = DEFAULT_APPLY_POLICY
    remediation: Remediation = Remediation()
    membership_refresh_interval: float = 0.0
    health_check_interval: float = 0.0
    max_active_jobs: int | None = None


def resolve(
    spec: WorkspaceSpec,
    cluster: TerraformClusterSpec | None,
    *,
    remembered_policy: DeletionPolicy | None,
    drift_default_seconds: float,
) -> EffectiveConfig:
    """The configuration of an object whose TerraformCluster has the spec ``cluster`` (None: no such cluster).

    For a TerraformCluster ``cluster`` is ignored: it uses its own values alone.
    """
    match spec:
        case TerraformClusterSpec():
            return _cluster(spec, drift_default_seconds)
        case TerraformMachineSpec():
            return _machine(spec, cluster, remembered_policy, drift_default_seconds)
        case TerraformMachinePoolSpec():
            return _pool(spec, cluster, remembered_policy, drift_default_seconds)
        case _:
            raise TypeError(f"{type(spec).__name__} is the spec of no workload kind")


def identity_of(spec: WorkspaceSpec, cluster: TerraformClusterSpec | None) -> IdentityRef | None:
    """The identity that an object resolves to, taken as one unit."""
    return effective_reference(spec.identity_ref, None if isinstance(spec, TerraformClusterSpec) else cluster)


def _cluster(spec: TerraformClusterSpec, drift_default: float) -> EffectiveConfig:
    policy, remember = effective_policy(own=spec.deletion_policy, inherits=False, cluster_exists=True)
    drift = spec.drift
    interval = drift.interval_seconds if drift else None
    return EffectiveConfig(
        identity=identity_of(spec, None),
        jobs=merge_policies(spec.jobs),
        deletion_policy=policy,
        remember_policy=remember,
        drift_interval=drift_default if interval is None else float(interval),
        drift_action=(drift.action if drift else None) or DEFAULT_DRIFT_ACTION,
        apply_policy=spec.apply_policy or DEFAULT_APPLY_POLICY,
        max_active_jobs=spec.max_active_jobs or None,
    )


def _machine(
    spec: TerraformMachineSpec,
    cluster: TerraformClusterSpec | None,
    remembered: DeletionPolicy | None,
    drift_default: float,
) -> EffectiveConfig:
    policy, remember = _policy(spec.deletion_policy, cluster, remembered)
    own_interval = spec.drift.interval_seconds if spec.drift else None
    remediation = _remediation(spec.remediation, cluster)
    interval = own_interval if own_interval is not None else _inherited_interval(cluster)
    return EffectiveConfig(
        identity=identity_of(spec, cluster),
        jobs=_jobs(spec.jobs, cluster),
        deletion_policy=policy,
        remember_policy=remember,
        drift_interval=drift_default if interval is None else float(interval),
        drift_action="Report",
        remediation=remediation,
        health_check_interval=float(remediation.health_check_seconds)
        if remediation.annotate_machine
        else 0.0,
        max_active_jobs=cluster.max_active_jobs or None if cluster else None,
    )


def _pool(
    spec: TerraformMachinePoolSpec,
    cluster: TerraformClusterSpec | None,
    remembered: DeletionPolicy | None,
    drift_default: float,
) -> EffectiveConfig:
    policy, remember = _policy(spec.deletion_policy, cluster, remembered)
    defaults = cluster.defaults if cluster else None
    own_interval = (spec.drift.interval_seconds if spec.drift else None) or None
    actions = (
        spec.drift.action if spec.drift else None,
        defaults.drift.action if defaults and defaults.drift else None,
        cluster.drift.action if cluster and cluster.drift else None,
    )
    membership = (
        spec.membership_refresh_interval_seconds
        or (defaults.membership_refresh_interval_seconds if defaults else None)
        or DEFAULT_MEMBERSHIP_REFRESH_SECONDS
    )
    return EffectiveConfig(
        identity=identity_of(spec, cluster),
        jobs=_jobs(spec.jobs, cluster),
        deletion_policy=policy,
        remember_policy=remember,
        drift_interval=float(own_interval or _inherited_interval(cluster) or drift_default),
        drift_action=next((action for action in actions if action), DEFAULT_DRIFT_ACTION),
        membership_refresh_interval=float(membership),
        max_active_jobs=cluster.max_active_jobs or None if cluster else None,
    )


def _policy(
    own: DeletionPolicy | None, cluster: TerraformClusterSpec | None, remembered: DeletionPolicy | None
) -> tuple[DeletionPolicy, bool]:
    defaults = cluster.defaults if cluster else None
    return effective_policy(
        own=own,
        inherits=True,
        cluster_exists=cluster is not None,
        cluster_default=defaults.deletion_policy if defaults else None,
        cluster_own=cluster.deletion_policy if cluster else None,
        remembered=remembered,
    )


def inherited_policy(cluster: TerraformClusterSpec) -> DeletionPolicy:
    """The deletion policy of a machine or pool that sets none and whose TerraformCluster has this spec."""
    return _policy(None, cluster, None)[0]


def _jobs(own: JobPolicy | None, cluster: TerraformClusterSpec | None) -> EffectivePolicy:
    defaults = cluster.defaults if cluster else None
    return merge_policies(own, defaults.jobs if defaults else None, cluster.jobs if cluster else None)


def _inherited_interval(cluster: TerraformClusterSpec | None) -> int | None:
    if cluster is None:
        return None
    if cluster.defaults and cluster.defaults.drift and cluster.defaults.drift.interval_seconds is not None:
        return cluster.defaults.drift.interval_seconds
    return cluster.drift.interval_seconds if cluster.drift else None


def _remediation(own: RemediationPolicy | None, cluster: TerraformClusterSpec | None) -> Remediation:
    defaults = cluster.defaults.remediation if cluster and cluster.defaults else None
    levels = [level for level in (own, defaults) if level is not None]
    annotate = next((level.annotate_machine for level in levels if level.annotate_machine is not None), False)
    threshold = next((level.unhealthy_threshold for level in levels if level.unhealthy_threshold), None)
    seconds = next(
        (level.health_check_interval_seconds for level in levels if level.health_check_interval_seconds), None
    )
    return Remediation(
        annotate_machine=bool(annotate),
        unhealthy_threshold=threshold or DEFAULT_UNHEALTHY_THRESHOLD,
        health_check_seconds=seconds or DEFAULT_HEALTH_CHECK_SECONDS,
    )


def as_recorded(config: EffectiveConfig, record: Record, *, mutable: bool, deleting: bool) -> EffectiveConfig:
    """The same configuration with the identity that the object's record names, where that one counts.

    For a machine it always does. A pool that goes after its TerraformCluster has nobody left to inherit one
    from; it is torn down with the identity that it was applied with.
    """
    if not record.identity or (mutable and not (deleting and config.identity is None)):
        return config
    kind: IdentityKind | None = "Secret" if record.identity_kind == "Secret" else None
    return replace(config, identity=IdentityRef(name=record.identity, kind=kind))
