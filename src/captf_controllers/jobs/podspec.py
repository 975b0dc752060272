"""The Job of an operation: a pure function from a request to the object to create.

Two containers. The init container copies the runner out of the manager's image into a shared volume,
because a module image may hold no interpreter, shell or libc; the main container is the module image with
the runner as its command. Everything that is the same for every Job is a constant here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.kinds import API_VERSION, kind_short
from captf_controllers.api.workspace import (
    DEFAULT_IMAGE_PULL_POLICY,
    OPERATIONS,
    ImagePullPolicy,
    Operation,
)
from captf_controllers.jobs.images import render_image_list
from captf_controllers.jobs.operations import MUTATING
from captf_controllers.jobs.policy import EffectivePolicy
from captf_controllers.jobs.views import SOURCE_CONTAINER
from captf_runtime.objects import JOB, Object

__all__ = [
    "TERMINATION_GRACE_SECONDS",
    "Approval",
    "Guard",
    "JobRequest",
    "JobTarget",
    "Restore",
    "build_job",
    "controller_reference",
    "runner_arguments",
]

TERMINATION_GRACE_SECONDS: Final = 600
STOP_TIMEOUT_SECONDS: Final = TERMINATION_GRACE_SECONDS - 30
"""What the runner allows the runtime to stop in: the pod's grace less the time to write the result."""

RUNNER_UID: Final = 65532
_SECRET_MODE: Final = 0o440

_BIN: Final = "/captf/bin"
_WORK: Final = "/captf/work"
_TMP: Final = "/tmp"
_CONFIG: Final = "/captf/config"
_CREDENTIALS: Final = "/var/run/captf/credentials"
_PLAN_KEY: Final = "/captf/plan-key"

_LINEAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)

INIT_RESOURCES: Final[Mapping[str, Mapping[str, str]]] = {
    "requests": {"cpu": "10m", "memory": "32Mi"},
    "limits": {"cpu": "100m", "memory": "64Mi"},
}
# No CPU limit: a throttled provider runs into its own timeouts.
DEFAULT_RESOURCES: Final[Mapping[str, Mapping[str, str]]] = {
    "requests": {"cpu": "250m", "memory": "512Mi"},
    "limits": {"memory": "2Gi"},
}


@dataclass(frozen=True, slots=True)
class JobTarget:
    """The object that the Job works for. `cluster_name` is its Cluster's, "" when unknown."""

    kind: str
    namespace: str
    name: str
    uid: str
    cluster_name: str


@dataclass(frozen=True, slots=True)
class Guard:
    """An apply that must stop before it deletes something that nobody approved.

    Args:
        hash: what an approval has to name: the inputs hash of a cluster, the approval hash of a pool.
        approval_hash: a pool's approval hash, recorded on the Job; "" for a cluster.
        allow_deletes_hash: the hash whose deletions were approved (pools); "" when nothing was.
        plan: the TerraformPlan that approved them, recorded on the Job; "" without `allow_deletes_hash`.
    """

    hash: str
    approval_hash: str = ""
    allow_deletes_hash: str = ""
    plan: str = ""


@dataclass(frozen=True, slots=True)
class Approval:
    """An apply that must plan exactly what was approved: the plan's hash and the TerraformPlan's name.

    The name is "" when the approval is that of a plan without changes, for which no TerraformPlan exists.
    """

    plan_hash: str
    plan: str = ""


@dataclass(frozen=True, slots=True)
class Restore:
    """The backup that a restore pushes: its serial, its Secrets in chunk order, its managed resources."""

    serial: int
    chunk_secrets: tuple[str, ...]
    resources: int


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Everything that a Job depends on.

    Args:
        target: the object.
        op, attempt, inputs_hash, tick: what the Job's name is made of; `inputs_hash` is also recorded on
            apply, plan and restore Jobs.
        policy: the effective Job policy.
        image: the module image to run, by tag or digest.
        image_pull_policy: of the module image.
        runner_image: the image that holds the runner.
        credentials_secret: the mirror, or the namespace-local Secret.
        service_account: the account that was bound, whatever the policy names.
        force_unlock: ID of a stale state lock to remove, "" for none.
        guard, approval, restore: as far as the op has them.
        runner_events: whether the runner reports its progress as events.
        image_fallbacks: images to try after this one; destroy, refresh, drift and restore.
        drift_remediation, after_failed_apply, after_interrupted_apply: why an apply starts; the last is the
            name of the vanished or crashed Job.
        cluster_outputs_hash, held_cluster_outputs: of a pool's apply.
        state_lock_version: the state lock's version now, for an apply.
        state_lineage: the lineage of the state that the Job is started for, "" when it has none.
    """

    target: JobTarget
    op: Operation
    attempt: int
    inputs_hash: str
    tick: str
    policy: EffectivePolicy
    image: str
    runner_image: str
    credentials_secret: str
    service_account: str
    image_pull_policy: ImagePullPolicy | None = None
    force_unlock: str = ""
    guard: Guard | None = None
    approval: Approval | None = None
    restore: Restore | None = None
    runner_events: bool = True
    image_fallbacks: tuple[str, ...] = field(default=())
    drift_remediation: bool = False
    after_failed_apply: bool = False
    after_interrupted_apply: str = ""
    cluster_outputs_hash: str = ""
    held_cluster_outputs: bool = False
    state_lock_version: str = ""
    state_lineage: str = ""

    @property
    def name(self) -> str:
        """Name of the Job."""
        return names.job_name(
            self.target.kind, self.target.name, self.op, self.attempt, self.inputs_hash, self.tick
        )

    @property
    def lineage(self) -> str:
        """The lineage that the run must find before it begins and after it, "" for a restore, which brings one.

        One that no runtime wrote, but somebody by hand in another form, is not held to: it would have to pass
        through an annotation and a command line.
        """
        return self.state_lineage if self.op != "restore" and _LINEAGE.fullmatch(self.state_lineage) else ""

    @property
    def needs_plan_key(self) -> bool:
        """Whether the run computes a plan's fingerprint, and so mounts the plan key."""
        return self.op == "plan" or (
            self.op == "apply" and (self.guard is not None or self.approval is not None)
        )


def build_job(request: JobRequest) -> Object:
    """Build the Job.

    Guarantees: deterministic; the result shares nothing with the request's objects.

    Raises:
        ValueError: the request contradicts itself; the message names the field.
    """
    _check(request)
    target = request.target
    job_labels = {
        labels.OWNER_KIND: target.kind,
        labels.OWNER_NAME: names.label_value(target.name),
        labels.OP: request.op,
        labels.ATTEMPT: str(request.attempt),
        labels.MANAGED: labels.TRUE,
    }
    if target.cluster_name:
        job_labels[labels.CLUSTER_NAME] = names.label_value(target.cluster_name)
    metadata: Object = {
        "name": request.name,
        "namespace": target.namespace,
        "labels": job_labels,
        "ownerReferences": [controller_reference(target.kind, target.name, target.uid)],
    }
    job_annotations = _annotations(request)
    if job_annotations:
        metadata["annotations"] = job_annotations
    pod_metadata: Object = {"labels": dict(job_labels)}
    if request.op in MUTATING:
        # A cluster autoscaler that drains the node would stop a change half-way.
        pod_metadata["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": metadata,
        "spec": {
            # Retries are the controller's: a second pod would run a mutation twice.
            "backoffLimit": 0,
            "activeDeadlineSeconds": request.policy.deadline_seconds,
            "template": {"metadata": pod_metadata, "spec": _pod_spec(request)},
        },
    }


def controller_reference(kind: str, name: str, uid: str) -> Object:
    """The owner reference of a Job: its object controls it, and it never delays the object's deletion."""
    return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid, "controller": True}


def _check(request: JobRequest) -> None:
    if request.op not in OPERATIONS:
        raise ValueError(f"op: {request.op!r} is not one of {', '.join(OPERATIONS)}")
    for name in ("image", "runner_image", "credentials_secret", "service_account"):
        if not getattr(request, name):
            raise ValueError(f"{name}: a Job needs one")
    if request.op != "apply" and (request.guard is not None or request.approval is not None):
        raise ValueError(f"guard, approval: only an apply has them, not a {request.op}")
    if (request.op == "restore") != (request.restore is not None):
        raise ValueError("restore: set for a restore and for nothing else")
    if request.guard is not None and not request.guard.hash:
        raise ValueError("guard.hash: an empty hash would be approved by nothing")
    kind_short(request.target.kind)


def _annotations(request: JobRequest) -> dict[str, str]:
    found: dict[str, str] = {}
    if request.op in ("apply", "plan", "restore"):
        found[keys.INPUTS_HASH] = request.inputs_hash
    if request.restore is not None:
        found[keys.RESTORE_SERIAL] = str(request.restore.serial)
    if request.image_fallbacks and request.op not in ("apply", "plan"):
        found[keys.IMAGE_FALLBACKS] = render_image_list(request.image_fallbacks)
    if request.lineage:
        found[keys.STATE_LINEAGE] = request.lineage
    if request.op != "apply":
        return found
    if request.drift_remediation:
        found[keys.DRIFT_REMEDIATION] = keys.TRUE
    if request.approval is not None:
        found[keys.APPROVED_PLAN] = request.approval.plan_hash
        if request.approval.plan:
            found[keys.PLAN] = request.approval.plan
    if request.guard is not None and request.guard.approval_hash:
        found[keys.APPROVAL_HASH] = request.guard.approval_hash
    if request.guard is not None and request.guard.plan:
        found[keys.PLAN] = request.guard.plan
    if request.cluster_outputs_hash:
        found[keys.CLUSTER_OUTPUTS_HASH] = request.cluster_outputs_hash
    if request.held_cluster_outputs:
        found[keys.HELD_CLUSTER_OUTPUTS] = keys.TRUE
    if request.after_failed_apply:
        found[keys.AFTER_FAILED_APPLY] = keys.TRUE
    if request.after_interrupted_apply:
        found[keys.AFTER_INTERRUPTED_APPLY] = request.after_interrupted_apply
    if request.state_lock_version:
        found[keys.STATE_LOCK_VERSION] = request.state_lock_version
    return found


def _pod_spec(request: JobRequest) -> Object:
    policy = request.policy
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS,
        "serviceAccountName": request.service_account,
        "securityContext": _pod_security_context(policy.pod_security_context),
        "initContainers": [_init_container(request)],
        "containers": [_source_container(request)],
        "volumes": _volumes(request),
    }
    if policy.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in policy.image_pull_secrets]
    return spec


def _pod_security_context(configured: Object | None) -> Object:
    context: Object = copy.deepcopy(configured or {})
    context.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    # Makes the 0440 files of Secret volumes readable for whatever user the image runs as.
    context.setdefault("fsGroup", RUNNER_UID)
    return context


def _container_security_context(configured: Object | None) -> Object:
    context: Object = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        **copy.deepcopy(configured or {}),
    }
    capabilities = context["capabilities"] = dict(context.get("capabilities") or {})
    drop = list(capabilities.get("drop") or [])
    capabilities["drop"] = drop if "ALL" in drop else ["ALL", *drop]
    return context


def _init_container(request: JobRequest) -> Object:
    return {
        "name": "runner",
        "image": request.runner_image,
        "command": ["/runner", "copy", f"{_BIN}/runner"],
        "resources": _plain(INIT_RESOURCES),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": RUNNER_UID,
        },
        # The runner unpacks itself into /tmp before it can copy; nothing else of the container is writable.
        "volumeMounts": [{"name": "runner", "mountPath": _BIN}, {"name": "tmp", "mountPath": _TMP}],
    }


def _source_container(request: JobRequest) -> Object:
    policy = request.policy
    mounts: list[Object] = [
        {"name": "runner", "mountPath": _BIN, "readOnly": True},
        {"name": "work", "mountPath": _WORK},
        {"name": "tmp", "mountPath": _TMP},
        {"name": "config", "mountPath": _CONFIG, "readOnly": True},
        {"name": "creds", "mountPath": _CREDENTIALS, "readOnly": True},
    ]
    if request.needs_plan_key:
        mounts.append({"name": "plan-key", "mountPath": _PLAN_KEY, "readOnly": True})
    env: list[Object] = [
        {"name": "TF_IN_AUTOMATION", "value": "1"},
        {"name": "TF_INPUT", "value": "0"},
        {"name": "HOME", "value": _WORK},
        {"name": "TMPDIR", "value": _TMP},
        {"name": "KUBE_NAMESPACE", "value": request.target.namespace},
        {"name": "CHECKPOINT_DISABLE", "value": "1"},
        *(copy.deepcopy(entry) for entry in policy.env),
    ]
    return {
        "name": SOURCE_CONTAINER,
        "image": request.image,
        "imagePullPolicy": request.image_pull_policy or DEFAULT_IMAGE_PULL_POLICY,
        "command": [f"{_BIN}/runner", "run"],
        "args": runner_arguments(request),
        "terminationMessagePolicy": "File",
        "envFrom": [{"secretRef": {"name": request.credentials_secret}}],
        "env": env,
        "resources": copy.deepcopy(policy.resources)
        if policy.resources is not None
        else _plain(DEFAULT_RESOURCES),
        "securityContext": _container_security_context(policy.security_context),
        "volumeMounts": mounts,
    }


def _volumes(request: JobRequest) -> list[Object]:
    volumes: list[Object] = [
        {"name": "runner", "emptyDir": {}},
        {"name": "work", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "config", **_config_source(request)},
        {
            "name": "creds",
            "secret": {"secretName": request.credentials_secret, "defaultMode": _SECRET_MODE},
        },
    ]
    if request.needs_plan_key:
        secret = names.plan_key_secret(request.target.kind, request.target.name)
        volumes.append(
            {
                "name": "plan-key",
                "secret": {
                    "secretName": secret,
                    "items": [{"key": "key", "path": "key"}],
                    "defaultMode": _SECRET_MODE,
                },
            }
        )
    return volumes


def _config_source(request: JobRequest) -> Object:
    run_secret = names.per_run_secret(request.name)
    if request.restore is None:
        return {"secret": {"secretName": run_secret, "defaultMode": _SECRET_MODE}}
    chunks: list[Object] = [
        {"secret": {"name": chunk, "items": [{"key": "tfstate", "path": f"restore/{index}"}]}}
        for index, chunk in enumerate(request.restore.chunk_secrets)
    ]
    return {
        "projected": {"defaultMode": _SECRET_MODE, "sources": [{"secret": {"name": run_secret}}, *chunks]}
    }


def runner_arguments(request: JobRequest) -> list[str]:
    """The arguments of the runner, in the order that its contract fixes."""
    target = request.target
    suffix = names.state_suffix(target.namespace, target.kind, target.name)
    arguments = [
        f"--op={request.op}",
        "--bin=/captf/runtime",
        f"--image={request.image}",
        "--module=/captf/module",
        "--providers=/captf/providers",
        f"--workdir={_WORK}",
        f"--config={_CONFIG}",
        f"--lock-timeout={request.policy.lock_timeout_seconds}s",
        f"--stop-timeout={STOP_TIMEOUT_SECONDS}s",
        f"--backend-config=secret_suffix={suffix}",
        f"--backend-config=namespace={target.namespace}",
        "--backend-config=in_cluster_config=true",
        "--backend-config=labels="
        + _hcl_map(names.state_labels(target.kind, target.name, target.cluster_name)),
    ]
    if request.force_unlock:
        # The ID comes from an annotation that the namespace can write; "$(" would be expanded by the kubelet.
        arguments.append(f"--force-unlock={request.force_unlock.replace('$', '$$')}")
    if request.lineage:
        arguments.append(f"--state-lineage={request.lineage}")
    if request.guard is not None:
        arguments += ["--guard-deletes", f"--inputs-hash={request.guard.hash}"]
        if request.guard.allow_deletes_hash:
            arguments.append(f"--allow-deletes-hash={request.guard.allow_deletes_hash}")
    if request.approval is not None:
        arguments.append(f"--expect-plan={request.approval.plan_hash}")
    if request.restore is not None:
        arguments += [
            f"--restore-chunks={len(request.restore.chunk_secrets)}",
            f"--restore-resources={request.restore.resources}",
        ]
    if request.needs_plan_key:
        arguments.append(f"--plan-key-file={_PLAN_KEY}/key")
    if request.runner_events and target.uid:
        reference = f"{API_VERSION}/{target.kind}/{target.namespace}/{target.name}/{target.uid}"
        arguments += [f"--event-object={reference}", f"--job-name={request.name}"]
    return arguments


def _hcl_map(values: Mapping[str, str]) -> str:
    # Label keys and values hold nothing that HCL would need escaped.
    return "{" + ",".join(f'"{key}"="{values[key]}"' for key in sorted(values)) + "}"


def _plain(resources: Mapping[str, Mapping[str, Any]]) -> Object:
    return {name: dict(quantities) for name, quantities in resources.items()}
