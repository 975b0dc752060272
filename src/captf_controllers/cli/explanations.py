"""What each reason of a condition that is not good means for the person who asks: a title, the end, the exits.

Texts only; the decisions are the manager's. A reason that is not listed here is answered with the condition as
it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from captf_controllers.api import reasons
from captf_controllers.cli import exits
from captf_controllers.cli.diagnosis import Exit
from captf_controllers.cli.examination import Examination

Exits = Callable[[Examination], tuple[Exit, ...]]


def _none(_found: Examination) -> tuple[Exit, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """``title`` says what is the case, ``ends`` completes "Ends when: …", ``exits`` gives the commands."""

    title: str
    ends: str
    exits: Exits = _none


def _restores(found: Examination) -> tuple[Exit, ...]:
    return exits.restore_or_give_up(found)


def _restores_or_confirms(found: Examination) -> tuple[Exit, ...]:
    return exits.confirm(found)


_STATE = "a state can be read again (looked at every minute); no Job runs until then"

EXPLANATIONS: Final[Mapping[str, Explanation]] = MappingProxyType(
    {
        # What is needed before anything is rendered.
        reasons.WAITING_FOR_OWNER: Explanation(
            "it waits for its owner", "Cluster API sets the owner reference", exits.show_owner
        ),
        reasons.WAITING_FOR_OWNER_MACHINE: Explanation(
            "it waits for its Machine", "Cluster API sets the owner reference to a Machine", exits.show_owner
        ),
        reasons.WAITING_FOR_OWNER_MACHINE_POOL: Explanation(
            "it waits for its MachinePool",
            "Cluster API sets the owner reference to a MachinePool",
            exits.show_owner,
        ),
        reasons.OWNER_NOT_FOUND: Explanation(
            "its owner is gone",
            "the object is deleted, which Kubernetes does for an object whose owner is gone",
            exits.show_owner,
        ),
        reasons.OWNER_MISMATCH: Explanation(
            "its owner does not point back at it",
            "the infrastructureRef and the Cluster name of the owner agree with this object",
            exits.show_owner,
        ),
        reasons.CLUSTER_NOT_TERRAFORM: Explanation(
            "its Cluster has other infrastructure than a TerraformCluster",
            "the Cluster's infrastructureRef is a TerraformCluster",
        ),
        reasons.WAITING_FOR_CLUSTER_INFRASTRUCTURE: Explanation(
            "it waits for the infrastructure of its Cluster",
            "the Cluster's status.initialization.infrastructureProvisioned is true",
            exits.why_cluster,
        ),
        reasons.WAITING_FOR_CLUSTER_EXPORTS: Explanation(
            "it waits for the exports of its TerraformCluster",
            "the state of the TerraformCluster reads and holds them",
            exits.why_cluster,
        ),
        reasons.WAITING_FOR_BOOTSTRAP_DATA: Explanation(
            "it waits for its bootstrap data",
            "the bootstrap provider has written the Secret that the owner names",
            exits.show_owner,
        ),
        reasons.VARIABLES_SOURCE_NOT_FOUND: Explanation(
            "a source of its variables is missing",
            "the ConfigMap or Secret exists and bears the label captf.io/variables=true",
            exits.variables_source,
        ),
        reasons.VARIABLES_INVALID: Explanation(
            "its variables are not usable", "the named variable or key is corrected"
        ),
        # Credentials.
        reasons.IDENTITY_NOT_FOUND: Explanation(
            "the identity does not exist",
            "a TerraformClusterIdentity of that name exists",
            exits.show_identity,
        ),
        reasons.NAMESPACE_NOT_ALLOWED: Explanation(
            "the identity does not allow this namespace",
            "its spec.allowedNamespaces takes this namespace in",
            exits.show_identity,
        ),
        reasons.SECRET_NOT_FOUND: Explanation(
            "the Secret with the credentials is missing", "that Secret exists", exits.show_identity
        ),
        reasons.CREDENTIALS_INCOMPLETE: Explanation(
            "the credentials lack a key",
            "the Secret holds every key of spec.requiredKeys",
            exits.show_identity,
        ),
        reasons.IDENTITY_CHECK_FAILED: Explanation(
            "the identity could not be checked", "the manager can read it again", exits.show_identity
        ),
        reasons.MIRROR_FAILED: Explanation(
            "the credentials cannot be mirrored into this namespace", "the cause in the message is gone"
        ),
        reasons.RBAC_FAILED: Explanation(
            "the runner's access cannot be set up", "the cause in the message is gone"
        ),
        reasons.SERVICE_ACCOUNT_NOT_OPTED_IN: Explanation(
            "the ServiceAccount of the Jobs is missing or not meant for them",
            "it exists and bears the label captf.io/runner=true",
            exits.opt_in_service_account,
        ),
        # Applies and destroys.
        reasons.NO_APPLY_YET: Explanation("its first apply is due", "an apply Job has finished"),
        reasons.APPLY_FAILED: Explanation(
            "the last apply failed", "an apply succeeds; it is tried again without end", exits.logs_of_apply
        ),
        reasons.DESTROY_FAILED: Explanation(
            "the last destroy failed",
            "a destroy succeeds; it is tried again without end",
            exits.logs_of_destroy,
        ),
        reasons.JOB_DEADLINE_EXCEEDED: Explanation(
            "the last Job was stopped at its deadline",
            "a Job succeeds within spec.jobs.activeDeadlineSeconds; it is tried again without end",
            exits.logs_of_change,
        ),
        reasons.IMAGE_PULL_FAILED: Explanation(
            "the module image cannot be pulled",
            "a node can pull it: correct the reference, the pull Secret or the registry",
        ),
        reasons.IMAGE_INVALID: Explanation(
            "the module image does not keep the module contract", "spec.source.image names one that does"
        ),
        reasons.IDENTITY_NOT_ALLOWED: Explanation(
            "the destroy waits for its identity",
            "the identity exists and allows this namespace again",
            exits.show_identity,
        ),
        reasons.INPUTS_TOO_LARGE: Explanation(
            "what the module is given does not fit a Secret", "the variables are smaller"
        ),
        reasons.JOB_POLICY_INVALID: Explanation(
            "its Job policy contradicts itself",
            "the effective lockTimeoutSeconds is below activeDeadlineSeconds",
        ),
        reasons.JOB_CANNOT_START: Explanation(
            "the API server refuses its Job, or what the Job needs to run",
            "what refuses it lets it through; it is tried again without end",
        ),
        reasons.PLAN_AWAITING_APPROVAL: Explanation(
            "a plan waits for approval", "somebody approves it, or the inputs change", exits.approve
        ),
        reasons.DESTRUCTIVE_PLAN_BLOCKED: Explanation(
            "an apply would delete or replace resources and waits for approval",
            "somebody approves the plan, or the inputs change",
            exits.approve,
        ),
        reasons.PLAN_CHANGED: Explanation(
            "the approved plan is no longer what would happen",
            "the new plan is approved, or the inputs change",
            exits.approve,
        ),
        reasons.WAITING_FOR_RUN_LEASE: Explanation(
            "the next Job waits for another one", "that Job has ended", exits.show_lease
        ),
        reasons.WAITING_FOR_CLUSTER_OPERATION: Explanation(
            "the next Job waits for one of its TerraformCluster", "that Job has ended", exits.why_cluster
        ),
        reasons.WAITING_FOR_MACHINE_OPERATIONS: Explanation(
            "the next Job waits for Jobs of machines and pools", "those Jobs have ended"
        ),
        reasons.WAITING_FOR_JOB_SLOT: Explanation(
            "the next Job waits for a Job slot", "fewer Jobs run (looked at every 15 seconds)"
        ),
        # The state.
        reasons.STATE_LOST: Explanation("its state is lost", _STATE, _restores),
        reasons.STATE_CORRUPT: Explanation("its state cannot be decoded", _STATE, _restores),
        reasons.STATE_ENCRYPTED: Explanation(
            "its state is encrypted by OpenTofu and cannot be read", _STATE, _restores
        ),
        reasons.STATE_INCONSISTENT: Explanation("its state is not complete", _STATE, _restores),
        reasons.APPLY_OUTCOME_UNKNOWN: Explanation(
            "nobody knows what its first apply created",
            "somebody confirms that it created nothing, or a state shows what it did; no Job runs until then",
            _restores_or_confirms,
        ),
        reasons.STATE_LOCKED: Explanation(
            "its state is locked by somebody else",
            "the holder releases the lock; Jobs start, wait for it and fail meanwhile",
            exits.unlock,
        ),
        reasons.RETAINED_STATE_FOUND: Explanation(
            "it found the state of an earlier object of its name",
            "the state is adopted or its Secrets are deleted (looked at every minute)",
            exits.adopt_or_discard,
        ),
        # Restores.
        reasons.RESTORE_FAILED: Explanation(
            "the requested restore failed",
            "another serial is restored, or the request is withdrawn; the same serial is not tried again",
            exits.restore_again,
        ),
        reasons.RESTORE_BACKUP_NOT_FOUND: Explanation(
            "the requested backup does not exist or is damaged",
            "captf.io/restore-state names a complete backup, or is removed",
            exits.restore_again,
        ),
        # What the module reports.
        reasons.OUTPUTS_MISSING: Explanation(
            "the module leaves outputs out", "the module writes every output of its contract"
        ),
        reasons.OUTPUTS_INVALID: Explanation(
            "outputs of the module do not keep the contract", "the module writes them as the contract says"
        ),
        reasons.FAILURE_DOMAIN_MISMATCH: Explanation(
            "the machine is in another failure domain than asked for", "the module places it as asked"
        ),
        reasons.PROVIDER_ID_CHANGED: Explanation(
            "the module reports another provider ID than the one that is set",
            "the module reports that one again; otherwise replace the Machine",
        ),
        reasons.OUTPUTS_PENDING: Explanation("its outputs are not there yet", "the first apply has finished"),
        reasons.PROVISIONING: Explanation("it is being provisioned", "the module reports it as running"),
        reasons.INSTANCE_PENDING: Explanation(
            "the instance is not up yet", "the module reports it as running"
        ),
        reasons.INSTANCE_DEGRADED: Explanation(
            "the instance is degraded", "the module reports it as healthy"
        ),
        reasons.INSTANCE_STOPPED: Explanation("the instance is stopped", "the instance runs again"),
        reasons.INSTANCE_TERMINATED: Explanation("the instance is gone", "the Machine is replaced"),
        reasons.INSTANCE_UNHEALTHY: Explanation(
            "the instance is unhealthy", "the module reports it as healthy"
        ),
        reasons.WAITING_FOR_PROVISIONING: Explanation(
            "it is not provisioned yet", "its first apply has finished"
        ),
        reasons.HEALTH_UNKNOWN: Explanation(
            "its health is not known", "the module reports a health state that is known"
        ),
        reasons.PROVIDER_ID_MISSING: Explanation(
            "the module reports no provider ID any more", "the next sample decides"
        ),
        # Drift.
        reasons.DRIFT_JOB_FAILED: Explanation(
            "the last drift check or refresh failed", "one succeeds; it is tried again", exits.logs_of_check
        ),
        reasons.DRIFT_JOB_DEADLINE_EXCEEDED: Explanation(
            "the last drift check or refresh was stopped at its deadline",
            "one succeeds; it is tried again",
            exits.logs_of_check,
        ),
        reasons.DURABLE_INPUTS_MISSING: Explanation(
            "drift checks have nothing to render", "an apply records its inputs again"
        ),
        reasons.DRIFT_REPORTED: Explanation(
            "the infrastructure differs from its configuration",
            "a drift check finds none, or an apply has run since",
            exits.drift,
        ),
        reasons.DRIFT_PENDING: Explanation(
            "the infrastructure differs and an apply to correct it is due", "that apply succeeds"
        ),
        reasons.DRIFT_REMEDIATING: Explanation("drift is being corrected", "the apply that runs has ended"),
        # Single kinds.
        reasons.WAITING_FOR_ENDPOINT: Explanation(
            "the control plane has no endpoint",
            "the TerraformCluster, the Cluster or the module's output gives one",
        ),
        reasons.AUTOSCALING_ANNOTATIONS_INVALID: Explanation(
            "the autoscaler's annotations of its MachinePool are not usable",
            "both hold numbers, min at most max",
        ),
        # Deletion.
        reasons.DEPENDENTS_EXIST: Explanation(
            "it waits for its machines and pools",
            "they are gone (looked at every 30 seconds)",
            exits.delete_dependents,
        ),
    }
)
