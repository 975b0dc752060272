"""Names of everything that CAPTF creates.

All names are functions of identity that outlives a move (namespace, kind, name), never of a uid: an
object that was moved, or made again under its old name, finds what belongs to that name.
"""

from __future__ import annotations

import re
from hashlib import sha256

from . import labels
from .kinds import KindShort, kind_short
from .workspace import OPERATIONS, Operation

MAX_LABEL_VALUE = 63
MAX_OBJECT_NAME = 253
MAX_JOB_NAME = 57
"""A pod is named `<job>-<5 characters>`, and its name must fit into a host name of 63 characters."""

POD_SUFFIX_LENGTH = 5
MAX_ATTEMPT = 2**31 - 1

_STATE_PREFIX = "tfstate-default-"
_HEAD_OF_BOUNDED = 236
_DROPPED = 32
"""More dashes and dots than a name has in a row where it is cut."""

_HASHED = re.compile(r"-[0-9a-f]{16}$", re.ASCII)
_JOB_TAIL = re.compile(r"-a([1-9][0-9]{0,9})-([0-9a-f]{6})", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_POD_SUFFIX = re.compile(r"[a-z0-9]{5}", re.ASCII)


def digest(text: str) -> str:
    """Return the lowercase hexadecimal SHA-256 of the text's UTF-8 bytes."""
    return sha256(text.encode()).hexdigest()


def state_suffix(namespace: str, kind: str, name: str) -> str:
    """Return the suffix that names an object's state, 18 or 19 characters, never ending in `-<digits>`.

    Raises:
        ValueError: the kind keeps no state.
    """
    return f"{digest(f'{namespace}/{kind}/{name}')[:16]}-{kind_short(kind)}"


def label_value(name: str) -> str:
    """Return the label value for a name: itself up to 63 bytes, else 16 characters of its hash."""
    return name if len(name.encode()) <= MAX_LABEL_VALUE else digest(name)[:16]


def bounded(prefix: str, short: KindShort, name: str) -> str:
    """Return `<prefix><short>-<name>`, shortened with a hash of the name when that exceeds 253 characters.

    So is a shorter one that ends as a shortened one does: else whoever may choose a name could choose one with which
    an object shares the Secrets of another.
    """
    full = f"{prefix}{short}-{name}"
    if len(full) <= MAX_OBJECT_NAME and not (
        len(full) > _HEAD_OF_BOUNDED - _DROPPED and _HASHED.search(full)
    ):
        return full
    return f"{full[:_HEAD_OF_BOUNDED].rstrip('-.')}-{digest(name)[:16]}"


# State ---------------------------------------------------------------------------------------------


def state_secret(suffix: str) -> str:
    """Return the name of the base state Secret."""
    return _STATE_PREFIX + suffix


def state_chunk(suffix: str, index: int) -> str:
    """Return the name of a state chunk; index 0 is the base Secret."""
    return chunk_name(state_secret(suffix), index)


def chunk_name(base: str, index: int) -> str:
    """Return the name of chunk `index` of the set whose first Secret is `base`."""
    return base if index == 0 else f"{base}-part-{index}"


def state_lock_lease(suffix: str) -> str:
    """Return the name of the Lease that the backend locks the state with."""
    return f"lock-{_STATE_PREFIX}{suffix}"


def state_backup(suffix: str, serial: int) -> str:
    """Return the name of the first Secret of a backup."""
    return f"captf-state-backup-{suffix}-{serial}"


def state_backup_with_digest(suffix: str, serial: int, payload_digest: str) -> str:
    """Return the name of a backup whose plain name holds other content."""
    return f"{state_backup(suffix, serial)}-{payload_digest[:8]}"


# Inputs --------------------------------------------------------------------------------------------


def durable_inputs_secret(kind: str, name: str) -> str:
    """Return the name of the Secret that records the newest attempt's inputs."""
    return bounded("captf-inputs-", kind_short(kind), name)


def applied_inputs_secret(kind: str, name: str) -> str:
    """Return the name of the Secret that records the inputs of the last successful apply."""
    return bounded("captf-applied-", kind_short(kind), name)


def plan_key_secret(kind: str, name: str) -> str:
    """Return the name of the Secret that holds the key of the object's plan hashes."""
    return bounded("captf-plankey-", kind_short(kind), name)


def per_run_secret(job: str) -> str:
    """Return the name of the Secret that holds one Job's files."""
    return f"captf-run-{job}"


# Credentials and leases ----------------------------------------------------------------------------


def credential_mirror(identity: str) -> str:
    """Return the name of the Secret that mirrors an identity's credentials into a namespace."""
    full = f"captf-creds-{identity}"
    return full if len(full) <= MAX_OBJECT_NAME else f"captf-creds-{digest(identity)[:16]}"


ELECTION_LEASE = "controller-leader-election-captf"
"""Name of the Lease by which the replicas of a manager agree on their leader."""


def run_lease(suffix: str) -> str:
    """Return the name of the Lease that lets one Job of an object run at a time."""
    return f"captf-run-{suffix}"


def cluster_lease(namespace: str, cluster: str) -> str:
    """Return the name of the Lease under which a TerraformCluster changes what machines build on."""
    return f"captf-cluster-{digest(f'{namespace}/{cluster}')[:16]}"


# Jobs and plans ------------------------------------------------------------------------------------


def job_hash(inputs_hash: str, op: str, attempt: int, drift_tick: str) -> str:
    """Return the six characters that tell apart the Jobs of one object, op and attempt."""
    return digest(f"{inputs_hash}\0{op}\0{attempt}\0{drift_tick}")[:6]


def job_name(kind: str, name: str, op: str, attempt: int, inputs_hash: str, drift_tick: str = "") -> str:
    """Return the name of a Job, at most 57 characters.

    Args:
        kind: the object's kind.
        name: the object's name.
        op: the operation.
        attempt: number of the attempt, from 1.
        inputs_hash: hash of the inputs that the Job renders.
        drift_tick: what tells apart Jobs that would otherwise be the same, "" for none.
    """
    return job_name_of_hash(kind, name, op, attempt, job_hash(inputs_hash, op, attempt, drift_tick))


def job_name_of_hash(kind: str, name: str, op: str, attempt: int, hash6: str) -> str:
    """Return the name of a Job from the parts that its name shows."""
    short = kind_short(kind)
    tail = f"{op}-a{attempt}-{hash6}"
    full = f"captf-{short}-{name}-{tail}"
    return full if len(full) <= MAX_JOB_NAME else f"captf-{short}-{digest(name)[:16]}-{tail}"


def job_of_pod(kind: str, name: str, pod: str) -> str | None:
    """Return the Job of this object that a pod name belongs to, None when it is not one of its pods.

    The Job's name is derived again from what the pod's name shows and must come out the same; so a pod of
    an object whose name merely begins alike never passes.
    """
    job, dash, suffix = pod.rpartition("-")
    if not dash or not _POD_SUFFIX.fullmatch(suffix) or job_op(kind, name, job) is None:
        return None
    return job


def job_op(kind: str, name: str, job: str) -> Operation | None:
    """Return the operation that a Job's name tells, None when it is not the name of a Job of this object."""
    for op in OPERATIONS:
        head, found, tail = job.rpartition(f"-{op}-a")
        match = _JOB_TAIL.fullmatch(f"-a{tail}") if found and head else None
        if match is None:
            continue
        attempt = int(match.group(1))
        if attempt <= MAX_ATTEMPT and job_name_of_hash(kind, name, op, attempt, match.group(2)) == job:
            return op
    return None


def may_name_object(text: str) -> bool:
    """Say whether an object can have this name. What cannot be a name is not even asked for."""
    return len(text) <= MAX_OBJECT_NAME and _SUBDOMAIN.fullmatch(text) is not None


def may_name_job(text: str) -> bool:
    """Say whether a Job can have this name: pods bear it as the value of a label."""
    return len(text) <= MAX_LABEL_VALUE and may_name_object(text)


def plan_name(target: str, job: str, plan_hash: str) -> str:
    """Return the name of the TerraformPlan that a Job made for a target."""
    head = target if len(target) <= 242 else target[:242].rstrip("-.")
    return f"{head}-{digest(job + chr(10) + plan_hash)[:10]}"


# Labels and selectors ------------------------------------------------------------------------------


def owner_labels(kind: str, name: str) -> dict[str, str]:
    """Return the labels by which CAPTF finds what belongs to an object."""
    return {labels.OWNER_KIND: kind, labels.OWNER_NAME: label_value(name)}


def state_labels(kind: str, name: str, cluster: str) -> dict[str, str]:
    """Return the labels that the backend stamps on an object's state.

    The backend selects a state by this whole map: a changed key or value makes existing state invisible,
    and the next apply would build everything a second time. It is a function of immutable identity only
    and must never change.
    """
    return {
        labels.OWNER_KIND: kind,
        labels.OWNER_NAME: label_value(name),
        labels.CLUSTER_NAME: label_value(cluster),
        labels.MANAGED: labels.TRUE,
        labels.MOVE: "",
    }


def state_selector(suffix: str) -> str:
    """Return the label selector of an object's state Secrets."""
    return f"tfstate=true,tfstateSecretSuffix={suffix},tfstateWorkspace=default"


def backup_selector(suffix: str) -> str:
    """Return the label selector of an object's state backups."""
    return f"captf.io/state-backup=true,captf.io/state-backup-suffix={suffix}"
