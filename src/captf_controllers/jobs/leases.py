"""The run lease, the cluster write lease and the operation gate: who may run a Job now.

Invariants, which hold over crashes between any two requests and with two managers at work:

* At most one Job of an object runs: a Job is created only under the object's run lease, held in the Job's
  name.
* While a mutating Job of a TerraformCluster runs, no mutating Job of its machines and pools does, and the
  other way round: the cluster writes its write lease before it looks at the run leases, a machine writes
  its run lease before it looks at the write lease, so one of two that start at once sees the other.
* Nothing waits for ever: a lease frees itself once its holder's Job and pods are over, once a holder that
  never created its Job has had 60 seconds, and in any case after the holder's deadline plus fifteen
  minutes. A lease that says it was taken in the future is as old as this process has seen it unchanged: that is
  never more than its true age, and it comes to an end.

A lease names a Job that is *about to be* created. Everything is read past the caches, and a write comes
before the read that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names, reasons
from captf_controllers.api.kinds import TERRAFORM_CLUSTER
from captf_controllers.jobs.lease_memory import LeaseMemory
from captf_controllers.jobs.operations import MUTATING
from captf_controllers.jobs.outcomes import FinishedJob
from captf_controllers.jobs.pods import list_pods
from captf_controllers.jobs.views import owner_selector, view_job
from captf_runtime.client.deletes import delete_as_read
from captf_runtime.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.clock import Clock
from captf_runtime.log import get_logger
from captf_runtime.objects import (
    JOB,
    LEASE,
    Object,
    annotations_of,
    creation_timestamp_of,
    format_micro_time,
    labels_of,
    name_of,
    parse_time,
    resource_version_of,
    uid_of,
)

__all__ = [
    "FRESH",
    "GRACE",
    "Acquired",
    "LeaseOwner",
    "LeaseRequest",
    "LiveLease",
    "Wait",
    "acquire_leases",
    "delete_leases",
    "give_back",
    "give_back_if_no_job",
    "holder_of",
    "is_free",
    "live_run_lease",
    "release",
    "release_finished",
    "release_leases",
    "run_lease_fresh",
]

logger = get_logger(__name__)

GRACE: Final = timedelta(seconds=60)
"""How long a holder whose Job does not exist keeps a lease: it may be about to create the Job."""

FRESH: Final = timedelta(seconds=30)
"""How old a lease may be when its Job is created. Half the grace, so nobody takes it over meanwhile."""

_GRACE_OF_POD_SECONDS: Final = 600
_MARGIN_SECONDS: Final = 300
_DEFAULT_BACKSTOP_SECONDS: Final = 3600 + _GRACE_OF_POD_SECONDS + _MARGIN_SECONDS

_MAX_SECONDS: Final = 2**31 - 1
"""What the API takes as a Lease's duration."""

_RUN: Final = "run"
_CLUSTER: Final = "cluster"


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """The object on whose behalf leases are held.

    `cluster_name` is the object's cluster-name label, else the owning Cluster's name, "" when unknown: then
    nothing takes part in the operation gate.
    """

    namespace: str
    kind: str
    name: str
    cluster_name: str

    @property
    def run_lease(self) -> str:
        """Name of the object's run lease."""
        return names.run_lease(names.state_suffix(self.namespace, self.kind, self.name))

    @property
    def write_lease(self) -> str:
        """Name of the write lease of the object's cluster."""
        return names.cluster_lease(self.namespace, self.cluster_name)

    @property
    def is_cluster(self) -> bool:
        """Whether the object is a TerraformCluster, which takes the write lease."""
        return self.kind == TERRAFORM_CLUSTER.kind


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What a start needs leases for.

    Args:
        owner: the object.
        op: the operation.
        job_name: name of the Job about to be created; it is the holder.
        deadline_seconds: the Job's effective deadline, from which the backstop of the lease follows.
        operation_gate: whether cluster operations and machine operations exclude each other.
        memory: the leases that this process took for Jobs it never tried to create; by default none.
    """

    owner: LeaseOwner
    op: str
    job_name: str
    deadline_seconds: int
    operation_gate: bool = True
    memory: LeaseMemory = field(default_factory=LeaseMemory, compare=False, repr=False)

    @property
    def gated(self) -> bool:
        """Whether the start takes part in the operation gate."""
        return self.operation_gate and self.op in MUTATING and self.owner.cluster_name != ""


@dataclass(frozen=True, slots=True)
class Taken:
    """A lease as a call of `acquire_leases` wrote it.

    Args:
        written: the Lease, with the version that the API server gave it.
        shared: it was in the Job's name before, and not as this process left it: a start of another manager,
            or an earlier one of this process, may be about to create that Job under it. It is never given back.
        took_over_from: the previous holder, "" when the lease was new or already the Job's.
    """

    written: Object
    shared: bool = False
    took_over_from: str = ""


@dataclass(frozen=True, slots=True)
class Acquired:
    """Every lease that the start needs is held.

    Args:
        leases: the leases, as this call wrote them: what `give_back` may delete again.
    """

    leases: tuple[Taken, ...] = ()

    @property
    def took_over_from(self) -> tuple[str, ...]:
        """Names of the previous holders, for the log."""
        return tuple(lease.took_over_from for lease in self.leases if lease.took_over_from)


@dataclass(frozen=True, slots=True)
class Wait:
    """The start has to wait: the condition's reason and message, and the holder when it is known.

    The message holds no number that changes on every pass but the count of the operations waited for.
    `leases` are those that a cluster keeps while it waits for machine operations.
    """

    reason: str
    message: str
    holder: str = ""
    leases: tuple[Taken, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LiveLease:
    """A lease that exists and is not free."""

    holder: str
    op: str


def holder_of(lease: Mapping[str, Any]) -> str:
    """Name of the Job that holds the lease; "" when nobody does."""
    spec = lease.get("spec")
    holder = spec.get("holderIdentity") if isinstance(spec, dict) else None
    return holder if isinstance(holder, str) else ""


def is_free(client: Verbs, lease: Object, now: datetime, memory: LeaseMemory | None = None) -> bool:
    """Say whether nothing runs, or is about to run, under the lease.

    In this order: nobody holds it; it is older than its backstop; else it is held while its Job runs,
    or does not exist and the grace is not over; and while any pod of the holder has not ended, a terminating
    one included.

    Args:
        memory: since when this process has known the lease, which is the age of one that was taken in the future.
            Without it, such a lease counts as just taken.

    Raises:
        ApiError: a read failed. A lease that cannot be judged is never free.
    """
    holder = holder_of(lease)
    if not holder:
        return True
    age = now - _held_since(lease, now, memory)
    if age > _backstop(lease):
        return True
    if not names.may_name_job(holder):
        # Somebody wrote this by hand. To ask for such a Job could only fail, in every pass anew.
        return age > GRACE
    namespace = str(lease["metadata"].get("namespace") or "")
    try:
        job = view_job(client.get(JOB, holder, namespace))
    except NotFound:
        if age <= GRACE:
            return False
    else:
        if not job.is_finished:
            return False
    return all(pod.ended for pod in list_pods(client, namespace, holder))


def live_run_lease(
    client: Verbs, owner: LeaseOwner, now: datetime, memory: LeaseMemory | None = None
) -> LiveLease | None:
    """The object's run lease as it is on the API server, None when it is absent or free (see `is_free`)."""
    return _live(client, owner.namespace, owner.run_lease, now, memory)


def acquire_leases(client: Verbs, request: LeaseRequest, clock: Clock) -> Acquired | Wait:
    """Take the leases that a start needs, once, without a retry.

    Expected flow: call it right before a start, and again on every pass while it answers `Wait`; each call of
    a waiting cluster refreshes the leases that it keeps, so that new machine operations queue behind it.

    Guarantees: after `Acquired` the run lease, and for a gated cluster operation the write lease, are held in
    the Job's name and were written by this call. After `Wait`, and after an error of the gate, what this call
    took is given back, but by a cluster that waits for machine operations. A shared lease is not (see `Taken`):
    it frees itself.

    Raises:
        ApiError: a request failed.
    """
    owner = request.owner
    run = _acquire(client, owner.run_lease, _RUN, request, clock, gate=not owner.is_cluster and request.gated)
    if isinstance(run, Wait):
        return run
    if isinstance(run, _Busy):
        return Wait(
            reasons.WAITING_FOR_RUN_LEASE, _wait_message(request, "this object", run.holder), run.holder
        )
    if not request.gated:
        return Acquired((run,))
    taken = [run]
    try:
        return _pass_gate(client, request, clock, taken)
    except Exception:
        give_back(client, request, taken)
        raise


def _pass_gate(client: Verbs, request: LeaseRequest, clock: Clock, taken: list[Taken]) -> Acquired | Wait:
    owner, run = request.owner, taken[0]
    if not owner.is_cluster:
        closed = _closed_gate(client, request, clock)
        if closed is None:
            return Acquired((run,))
        give_back(client, request, taken)
        return closed
    write = _acquire(client, owner.write_lease, _CLUSTER, request, clock)
    if isinstance(write, Taken):
        taken.append(write)
    else:
        give_back(client, request, taken)
        if isinstance(write, Wait):
            return write
        what = f"the TerraformCluster of cluster {owner.cluster_name}"
        return Wait(reasons.WAITING_FOR_RUN_LEASE, _wait_message(request, what, write.holder), write.holder)
    busy = _machine_operations(client, owner, clock.now(), request.memory)
    if not busy:
        return Acquired(tuple(taken))
    listed = ", ".join(busy[:5]) + (", …" if len(busy) > 5 else "")
    noun = "operation" if len(busy) == 1 else "operations"
    message = (
        f"The {request.op} Job waits for {len(busy)} machine and machine pool {noun} of cluster {owner.cluster_name} "
        f"(Jobs {listed}); new ones wait until this one is done"
    )
    return Wait(reasons.WAITING_FOR_MACHINE_OPERATIONS, message, leases=tuple(taken))


def _closed_gate(client: Verbs, request: LeaseRequest, clock: Clock) -> Wait | None:
    """The wait of a machine or pool for an operation of its cluster, None while there is none."""
    owner = request.owner
    live = _live(client, owner.namespace, owner.write_lease, clock.now(), request.memory)
    if live is None:
        return None
    message = _wait_message(request, f"the TerraformCluster of cluster {owner.cluster_name}", live.holder)
    return Wait(reasons.WAITING_FOR_CLUSTER_OPERATION, message, live.holder)


def give_back(client: Verbs, request: LeaseRequest, leases: Sequence[Taken]) -> None:
    """Delete leases that a start took and does not need, each only as it was written then.

    A shared one, and one that somebody wrote since, stays and frees itself: another manager may be creating the
    Job under it. Failures are only logged.
    """
    namespace = request.owner.namespace
    for lease in reversed(leases):
        if lease.shared:
            continue
        try:
            _delete_version(client, namespace, lease.written)
        except ApiError as error:
            _warn_not_released(namespace, name_of(lease.written), request.job_name, error)


def run_lease_fresh(client: Verbs, request: LeaseRequest, clock: Clock) -> bool | str:
    """Whether the run lease is still this start's and young enough to create the Job under it.

    Returns:
        True when it is; False when it must be taken again (too old, or gone); the holder's name when another
        Job holds it.
    """
    try:
        lease = client.get(LEASE, request.owner.run_lease, request.owner.namespace)
    except NotFound:
        return False
    holder = holder_of(lease)
    if holder != request.job_name:
        return holder or False
    now = clock.now()
    return timedelta(0) <= now - _acquired_at(lease, now) < FRESH


def release(client: Verbs, namespace: str, name: str, holder: str) -> bool:
    """Delete the lease if `holder` holds it. False when it does not, or somebody else was faster.

    Raises:
        ApiError: another failure than a lost race.
    """
    try:
        lease = client.get(LEASE, name, namespace)
    except NotFound:
        return False
    return holder_of(lease) == holder and _delete_version(client, namespace, lease)


def release_leases(client: Verbs, owner: LeaseOwner, job_name: str) -> None:
    """Give back what the Job of that name holds of the object's leases. Failures are only logged.

    A lease that stays behind frees itself (see `is_free`), so a failure costs time and nothing else.
    """
    held = [owner.run_lease]
    if owner.is_cluster and owner.cluster_name:
        held.insert(0, owner.write_lease)
    for name in held:
        try:
            release(client, owner.namespace, name, job_name)
        except ApiError as error:
            _warn_not_released(owner.namespace, name, job_name, error)


def _delete_version(client: Verbs, namespace: str, lease: Object) -> bool:
    """Delete the lease if it is still this very version. False when somebody else was faster.

    Raises:
        ApiError: another failure than a lost race.
    """
    try:
        delete_as_read(client, LEASE, lease, namespace)
    except (NotFound, Conflict):
        return False
    return True


def _warn_not_released(namespace: str, lease: str, job: str, error: ApiError) -> None:
    logger.warning("lease not released", namespace=namespace, lease=lease, job=job, err=error)


def release_finished(client: Verbs, owner: LeaseOwner, job: FinishedJob) -> None:
    """Give the leases of a counted Job back, unless a pod of it still runs: then they free themselves later.

    Some Job controllers report a failure while the pod is still terminating, and it may still write.
    """
    if not job.pods_running:
        release_leases(client, owner, job.name)


def give_back_if_no_job(client: Verbs, request: LeaseRequest, leases: Sequence[Taken]) -> bool:
    """Give the leases back when the API server itself says that no such Job exists; any other answer keeps
    them.

    A create that was answered with an error may still have created the Job.
    """
    namespace = request.owner.namespace
    try:
        client.get(JOB, request.job_name, namespace, metadata_only=True)
    except NotFound:
        give_back(client, request, leases)
        return True
    except ApiError as error:
        logger.warning("leases kept", namespace=namespace, job=request.job_name, err=error)
    return False


def delete_leases(client: Verbs, owner: LeaseOwner) -> None:
    """Delete every CAPTF lease of the object, whoever holds it: part of cleanup.

    The state lock is not one of them: it bears no `captf.io/lease` label. Nor is a lease under the same owner labels
    whose object only has the name that stands there for a long one.

    Raises:
        ApiError: a request failed; the call can be repeated.
    """
    selector = f"{labels.LEASE},{owner_selector(owner.kind, owner.name)}"
    for lease in client.list(LEASE, owner.namespace, label_selector=selector):
        if not _is_of(lease, owner):
            continue
        try:
            client.delete(
                LEASE, name_of(lease), owner.namespace, propagation_policy="Background", uid=uid_of(lease)
            )
        except (NotFound, Conflict):
            continue


def _is_of(lease: Object, owner: LeaseOwner) -> bool:
    """Whether a lease under the object's owner labels is its own: by the lease's name, or by the whole name in it."""
    own = {owner.run_lease}
    if owner.is_cluster and owner.cluster_name:
        own.add(owner.write_lease)
    return name_of(lease) in own or annotations_of(lease).get(keys.LEASE_OWNER) == owner.name


@dataclass(frozen=True, slots=True)
class _Busy:
    holder: str


def _acquire(
    client: Verbs, name: str, which: str, request: LeaseRequest, clock: Clock, *, gate: bool = False
) -> Taken | _Busy | Wait:
    """Take one lease. With `gate`, a shared one is left alone while the gate is closed: refreshed in every pass
    that waits, it would never free itself, and the cluster would wait for ever."""
    namespace = request.owner.namespace
    try:
        created = client.create(LEASE, _lease(name, which, request, clock.now()), namespace)
    except AlreadyExists:
        pass
    else:
        request.memory.wrote(namespace, name, resource_version_of(created))
        return Taken(created)
    try:
        lease = client.get(LEASE, name, namespace)
    except NotFound:
        return _Busy("")
    holder = holder_of(lease)
    if holder != request.job_name and not _may_take(client, lease, request, clock.now()):
        return _Busy(holder)
    again = holder == request.job_name
    shared = again and not request.memory.untouched(namespace, name, resource_version_of(lease))
    if shared and gate:
        closed = _closed_gate(client, request, clock)
        if closed is not None:
            return closed
    wanted = _lease(name, which, request, clock.now())
    wanted["metadata"]["uid"] = uid_of(lease)
    wanted["metadata"]["resourceVersion"] = resource_version_of(lease)
    try:
        written = client.update(LEASE, wanted)
    except (Conflict, NotFound):
        return _Busy("")
    if shared:
        request.memory.forget(namespace, name)
    else:
        request.memory.wrote(namespace, name, resource_version_of(written))
    return Taken(written, shared, "" if again else holder)


def _may_take(client: Verbs, lease: Object, request: LeaseRequest, now: datetime) -> bool:
    """Whether a lease in another Job's name may be taken over.

    A free one, and one that this very process took for another Job of the same object that it never tried to
    create (the inputs changed while a start waited), and that nobody wrote since: nothing can come of that one
    any more.
    """
    namespace, holder = request.owner.namespace, holder_of(lease)
    if request.memory.untouched(namespace, name_of(lease), resource_version_of(lease)):
        try:
            client.get(JOB, holder, namespace, metadata_only=True)
        except NotFound:
            return True
    return is_free(client, lease, now, request.memory)


def _lease(name: str, which: str, request: LeaseRequest, now: datetime) -> Object:
    owner = request.owner
    lease_labels = {
        labels.LEASE: which,
        labels.MANAGED: labels.TRUE,
        labels.OWNER_KIND: owner.kind,
        labels.OWNER_NAME: names.label_value(owner.name),
    }
    if owner.cluster_name:
        lease_labels[labels.CLUSTER_NAME] = names.label_value(owner.cluster_name)
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": lease_labels,
            "annotations": {
                keys.LEASE_OP: request.op,
                keys.LEASE_OWNER: owner.name,
                keys.LEASE_ACQUIRED_AT: format_micro_time(now),
            },
        },
        "spec": {
            "holderIdentity": request.job_name,
            "acquireTime": format_micro_time(now),
            "leaseDurationSeconds": request.deadline_seconds + _GRACE_OF_POD_SECONDS + _MARGIN_SECONDS,
        },
    }


def _live(
    client: Verbs, namespace: str, name: str, now: datetime, memory: LeaseMemory | None
) -> LiveLease | None:
    try:
        lease = client.get(LEASE, name, namespace)
    except NotFound:
        return None
    if is_free(client, lease, now, memory):
        return None
    return LiveLease(holder_of(lease), annotations_of(lease).get(keys.LEASE_OP, ""))


def _machine_operations(client: Verbs, owner: LeaseOwner, now: datetime, memory: LeaseMemory) -> list[str]:
    """Holders of the live run leases of the cluster's machines and pools under mutating ops, sorted."""
    selector = f"{labels.LEASE}={_RUN},{labels.CLUSTER_NAME}={names.label_value(owner.cluster_name)}"
    found = client.list(LEASE, owner.namespace, label_selector=selector)
    return sorted(
        holder_of(lease) for lease in _mutating_of_machines(found) if not is_free(client, lease, now, memory)
    )


def _mutating_of_machines(leases: Iterable[Object]) -> Iterable[Object]:
    for lease in leases:
        is_machine = labels_of(lease).get(labels.OWNER_KIND) != TERRAFORM_CLUSTER.kind
        if is_machine and annotations_of(lease).get(keys.LEASE_OP) in MUTATING:
            yield lease


def _held_since(lease: Object, now: datetime, memory: LeaseMemory | None) -> datetime:
    """From when on the lease counts as held.

    One that was taken in the future was written by a machine whose clock was ahead, or by hand. Its creation would
    be no answer: it may have been taken over since, just now.
    """
    acquired = _acquired_at(lease, now)
    if acquired <= now:
        return acquired
    if memory is None:
        return now
    namespace = str(lease["metadata"].get("namespace") or "")
    version = (uid_of(lease), resource_version_of(lease))
    return min(memory.first_seen(namespace, name_of(lease), version, now), now)


def _acquired_at(lease: Object, now: datetime) -> datetime:
    spec = lease.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    for text in (annotations_of(lease).get(keys.LEASE_ACQUIRED_AT), spec.get("acquireTime")):
        if isinstance(text, str) and text:
            try:
                return parse_time(text)
            except ValueError:
                continue
    return creation_timestamp_of(lease) or now


def _backstop(lease: Object) -> timedelta:
    spec = lease.get("spec")
    seconds = spec.get("leaseDurationSeconds") if isinstance(spec, dict) else None
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds <= 0:
        seconds = _DEFAULT_BACKSTOP_SECONDS
    return timedelta(seconds=min(seconds, _MAX_SECONDS))


def _wait_message(request: LeaseRequest, what: str, holder: str) -> str:
    if holder:
        message = f"The {request.op} Job waits for Job {holder} of {what}"
    else:
        message = f"The {request.op} Job waits: another manager took the lease of {what} first"
    return message
