"""The spec and status blocks that TerraformCluster, TerraformMachine and TerraformMachinePool share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal, TypeAlias

from captf_runtime.objects import Object

from .schema import DNS_SUBDOMAIN, Wire, core, doc, free_json, integer, items, text

DeletionPolicy: TypeAlias = Literal["Destroy", "Retain"]
DriftAction: TypeAlias = Literal["Report", "Remediate"]
ImagePullPolicy: TypeAlias = Literal["IfNotPresent", "Always", "Never"]
IdentityKind: TypeAlias = Literal["TerraformClusterIdentity", "Secret"]
VariablesFormat: TypeAlias = Literal["String", "JSON"]
Operation: TypeAlias = Literal["apply", "destroy", "drift", "refresh", "restore", "plan"]
RunErrorKind: TypeAlias = Literal["image-layout", "step", "interrupted", "blocked", "plan-changed"]

OPERATIONS: tuple[Operation, ...] = ("apply", "destroy", "drift", "refresh", "restore", "plan")

DEFAULT_IMAGE_PULL_POLICY: ImagePullPolicy = "IfNotPresent"
DEFAULT_DRIFT_ACTION: DriftAction = "Report"
DEFAULT_JOBS_HISTORY_LIMIT = 3
DEFAULT_ACTIVE_DEADLINE_SECONDS = 3600
DEFAULT_LOCK_TIMEOUT_SECONDS = 300
DEFAULT_SERVICE_ACCOUNT_NAME = "captf-runner"


# Spec ----------------------------------------------------------------------------------------------


class ModuleSource(Wire, frozen=True):
    """The OCI image that holds the module and its runtime."""

    image: Annotated[
        str, text("Reference of the module image, by tag or digest. The tag is the module's version.", 1, 512)
    ]
    image_pull_policy: Annotated[
        ImagePullPolicy | None, doc("When a node pulls the image; IfNotPresent when unset.")
    ] = None


class IdentityRef(Wire, frozen=True):
    """The credentials that the object's Jobs run with."""

    name: Annotated[str, text("Name of the TerraformClusterIdentity or Secret.", 1, 253)]
    kind: Annotated[
        IdentityKind | None,
        doc(
            "TerraformClusterIdentity (also when unset), or Secret for a Secret of that name in the "
            "object's own namespace."
        ),
    ] = None


class LocalReference(Wire, frozen=True):
    """A reference to an object of the same namespace."""

    name: Annotated[str, text("Name of the object.", 1, 253)]


class JobPolicy(Wire, frozen=True):
    """How the object's Jobs run; every field is inherited on its own."""

    successful_jobs_history_limit: Annotated[
        int | None, integer("How many succeeded Jobs of each operation are kept; 3 when unset.", 0, 100)
    ] = None
    failed_jobs_history_limit: Annotated[
        int | None, integer("How many failed Jobs of each operation are kept; 3 when unset.", 0, 100)
    ] = None
    active_deadline_seconds: Annotated[
        int | None, integer("Seconds after which a running Job is stopped; 3600 when unset.", 1, 86400)
    ] = None
    lock_timeout_seconds: Annotated[
        int | None,
        integer(
            "Seconds that a Job waits for the state lock, below the deadline; 300 when unset, 0 is no wait.",
            0,
            3600,
        ),
    ] = None
    service_account_name: Annotated[
        str | None,
        text(
            "ServiceAccount of the Jobs; captf-runner when unset. Any other needs the label "
            "captf.io/runner=true.",
            1,
            253,
        ),
    ] = None
    image_pull_secrets: Annotated[
        tuple[LocalReference, ...] | None, items("Secrets that pull the module image.", 1, 10)
    ] = None
    resources: Annotated[
        Object | None, core("Resources of the Job's main container.", "ResourceRequirements")
    ] = None
    env: Annotated[
        tuple[Annotated[Object, core("An environment variable.", "EnvVar")], ...] | None,
        items(
            "Environment of the Job's main container. Names with the prefix TF_, KUBE_ or KUBERNETES_, and "
            "HOME, TMPDIR and CHECKPOINT_DISABLE, are reserved.",
            1,
            64,
            keys=("name",),
        ),
    ] = None
    security_context: Annotated[
        Object | None,
        core("Security context of the Job's containers; replaces the restricted default.", "SecurityContext"),
    ] = None
    pod_security_context: Annotated[
        Object | None,
        core("Security context of the Job's pod; replaces the restricted default.", "PodSecurityContext"),
    ] = None


class SourceReference(Wire, frozen=True):
    """A reference to a ConfigMap or Secret that holds variables."""

    name: Annotated[
        str,
        text(
            "Name of the object; it needs the label captf.io/variables=true.", 1, 253, pattern=DNS_SUBDOMAIN
        ),
    ]


class VariablesSource(Wire, frozen=True):
    """One source of variables: every key of it is a variable."""

    config_map_ref: Annotated[
        SourceReference | None, doc("The ConfigMap to read, in the object's namespace.")
    ] = None
    secret_ref: Annotated[
        SourceReference | None,
        doc("The Secret to read, in the object's namespace; its variables are sensitive."),
    ] = None
    optional: Annotated[
        bool | None, doc("Whether a missing or unlabelled source contributes nothing instead of waiting.")
    ] = None
    format: Annotated[
        VariablesFormat | None,
        doc("String (also when unset) passes each value as text; JSON parses each value."),
    ] = None

    schema_extra: ClassVar[Object] = {
        "oneOf": [{"required": ["configMapRef"]}, {"required": ["secretRef"]}],
        "x-kubernetes-validations": [
            {
                "rule": "has(self.configMapRef) != has(self.secretRef)",
                "message": "exactly one of configMapRef and secretRef must be set",
            }
        ],
    }


class WorkspaceSpec(Wire, frozen=True):
    """What a module run needs, the same for every workload kind."""

    source: Annotated[ModuleSource, doc("The module.")]
    identity_ref: Annotated[
        IdentityRef | None,
        doc(
            "Credentials of the Jobs. A machine or pool without one uses the TerraformCluster's "
            "spec.defaults.identityRef, else its spec.identityRef."
        ),
    ] = None
    jobs: Annotated[JobPolicy | None, doc("How the object's Jobs run.")] = None
    variables: Annotated[
        Object | None,
        free_json(
            "Variables of the module, as a JSON object.", type="object", minProperties=1, maxProperties=256
        ),
    ] = None
    variables_from: Annotated[
        tuple[VariablesSource, ...] | None,
        items(
            "ConfigMaps and Secrets that hold variables. A later one wins over an earlier one, "
            "spec.variables over all.",
            1,
            16,
        ),
    ] = None
    deletion_policy: Annotated[
        DeletionPolicy | None,
        doc(
            "What a deletion does with the infrastructure: Destroy, or Retain to keep it with its state for "
            "adoption. May change while the object is being deleted."
        ),
    ] = None
    adopt_retained_state: Annotated[
        bool | None, doc("Whether to take over state that an earlier object of this name retained.")
    ] = None


class DriftReporting(Wire, frozen=True):
    """How often the infrastructure is compared with its configuration."""

    interval_seconds: Annotated[
        int | None,
        integer("Seconds between drift checks; 0 disables them; the manager's default when unset.", 0),
    ] = None


class DriftPolicy(Wire, frozen=True):
    """How often the infrastructure is compared with its configuration, and what follows."""

    interval_seconds: Annotated[
        int | None,
        integer("Seconds between drift checks; 0 disables them; the manager's default when unset.", 0),
    ] = None
    action: Annotated[
        DriftAction | None, doc("Report drift (also when unset), or Remediate it by an apply.")
    ] = None


class PoolDriftPolicy(Wire, frozen=True):
    """How often a pool is compared with its configuration, and what follows."""

    interval_seconds: Annotated[
        int | None, integer("Seconds between drift checks; the manager's default when unset.", 1)
    ] = None
    action: Annotated[
        DriftAction | None, doc("Report drift (also when unset), or Remediate it by an apply.")
    ] = None


class RemediationPolicy(Wire, frozen=True):
    """Whether an unhealthy instance asks for its Machine to be replaced."""

    annotate_machine: Annotated[
        bool | None, doc("Whether to request remediation of the owning Machine; false when unset.")
    ] = None
    unhealthy_threshold: Annotated[
        int | None, integer("Consecutive unhealthy samples that make a request; 3 when unset.", 1, 100)
    ] = None
    health_check_interval_seconds: Annotated[
        int | None,
        integer("Seconds between health samples while annotateMachine is true; 300 when unset.", 60, 86400),
    ] = None


# Status --------------------------------------------------------------------------------------------


class Condition(Wire, frozen=True):
    """One observation of an object's state."""

    type: Annotated[
        str,
        text(
            "What is observed, in CamelCase.",
            1,
            316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    status: Annotated[Literal["True", "False", "Unknown"], doc("Whether it holds.")]
    reason: Annotated[
        str,
        text("Why, as one CamelCase word.", 1, 1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    last_transition_time: Annotated[datetime, doc("When the status last changed.")]
    message: Annotated[str, doc("Details for people; absent when there are none.", maxLength=32768)] = ""
    observed_generation: Annotated[
        int | None, integer("The generation of the spec that was looked at.", 0, bits=64)
    ] = None


class Initialization(Wire, frozen=True):
    """Progress of the first provisioning."""

    provisioned: Annotated[
        bool | None, doc("Whether the infrastructure is provisioned; once true it stays true.")
    ] = None


class ActiveJob(Wire, frozen=True):
    """The Job that runs for the object."""

    name: Annotated[str, text("Name of the Job.", 1, 63)]
    operation: Annotated[Operation, doc("What the Job does.")]
    attempt: Annotated[int, integer("Number of the attempt, from 1, as in the Job's name.", 1)]
    start_time: Annotated[datetime | None, doc("When the Job started.")] = None


class RunStep(Wire, frozen=True):
    """One step of a finished run."""

    name: Annotated[str, text("Name of the step.", 1, 64)]
    exit_code: Annotated[int, integer("Exit status of the step.")]
    duration_milliseconds: Annotated[int | None, integer("How long the step took.", 0, bits=64)] = None


class RunError(Wire, frozen=True):
    """Why a run failed."""

    kind: Annotated[RunErrorKind, doc("Class of the failure.")]
    step: Annotated[str | None, text("The step that failed.", 1, 64)] = None
    summary: Annotated[str | None, text("What the step reported, without secrets.", 1, 512)] = None
    resources: Annotated[
        tuple[Annotated[str, text("Address and summary.", 1, 512)], ...] | None,
        items("Resources that diagnostics named, as <address>: <summary>.", 1, 10),
    ] = None


class DriftCounts(Wire, frozen=True):
    """What a drift check found; a replacement counts as a replacement only."""

    create: Annotated[int, integer("Resources to create.", 0)]
    update: Annotated[int, integer("Resources to update.", 0)]
    replace: Annotated[int, integer("Resources to replace.", 0)]
    delete: Annotated[int, integer("Resources to delete.", 0)]
    resources: Annotated[
        tuple[Annotated[str, text("Address of a resource.", 1, 512)], ...] | None,
        items("Addresses of drifted resources.", 1, 20),
    ] = None


class LastRun(Wire, frozen=True):
    """The newest finished Job."""

    job: Annotated[str, text("Name of the Job.", 1, 63)]
    operation: Annotated[Operation, doc("What the Job did.")]
    steps: Annotated[tuple[RunStep, ...] | None, items("The steps that ran.", 1, 16)] = None
    error: Annotated[RunError | None, doc("Why the run failed; absent after a success.")] = None
    drift: Annotated[DriftCounts | None, doc("What a drift check found; absent without drift.")] = None


class StateBackup(Wire, frozen=True):
    """A complete backup of the state."""

    serial: Annotated[
        int, integer("Serial of the state; the value that captf.io/restore-state takes.", 1, bits=64)
    ]
    taken_at: Annotated[datetime, doc("When the backup was taken.")]
    bytes: Annotated[int, integer("Compressed size.", 1, bits=64)]


class SourceStatus(Wire, frozen=True):
    """What the Jobs run."""

    image: Annotated[str | None, text("Image reference that the last Job ran.", 1, 512)] = None
    image_digest: Annotated[
        str | None, text("Digest that the last successful apply pinned, as repository@sha256:….", 1, 512)
    ] = None
    runtime_version: Annotated[
        str | None, text("Version of Terraform or OpenTofu that the last Job ran.", 1, 64)
    ] = None


class ObjectName(Wire, frozen=True):
    """The name of a related object in the same namespace."""

    name: Annotated[str, text("Name of the object.", 1, 253)]


class WorkspaceStatus(Wire, frozen=True):
    """What is observed of a module run, the same for every workload kind."""

    conditions: Annotated[
        tuple[Condition, ...] | None, items("What is observed of the object.", None, 32, keys=("type",))
    ] = None
    observed_generation: Annotated[
        int | None, integer("Generation of the spec that the last pass looked at.", 1, bits=64)
    ] = None
    initialization: Annotated[Initialization | None, doc("Progress of the first provisioning.")] = None
    active_job: Annotated[ActiveJob | None, doc("The running Job; absent when none runs.")] = None
    last_run: Annotated[LastRun | None, doc("The newest finished Job.")] = None
    last_drift_check: Annotated[datetime | None, doc("When drift was last checked.")] = None
    last_refresh: Annotated[datetime | None, doc("When the state was last refreshed.")] = None
    pending_refreshes: Annotated[
        int | None, integer("Consecutive samples in which the infrastructure was pending.", 1)
    ] = None
    observed_state_serial: Annotated[
        int | None, integer("Serial of the state that was last read.", 1, bits=64)
    ] = None
    last_restored_serial: Annotated[
        int | None, integer("Serial that the last restore consumed, whether it succeeded or not.", 1, bits=64)
    ] = None
    state_secret_suffix: Annotated[
        str | None, text("Suffix of the state Secret's name, tfstate-default-<suffix>.", 1, 63)
    ] = None
    state_backups: Annotated[
        tuple[StateBackup, ...] | None, items("Complete backups of the state, newest first.", 1, 16)
    ] = None
    source: Annotated[SourceStatus | None, doc("What the Jobs run.")] = None
    effective_deletion_policy: Annotated[
        DeletionPolicy | None, doc("The deletion policy as it was last resolved.")
    ] = None
