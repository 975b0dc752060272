"""Creating a Job: adopt, never duplicate.

The order of the writes, each of which a crash may be the last of:

1. the Job, under fresh leases held in its name;
2. whatever must be recorded before the run (the attempt record of an apply);
3. the per-run Secret, owned by the Job. The pod waits for that volume, so nothing runs before step 2.

Every step finds what an earlier pass left: the name is derived from the inputs, so the same start meets its
own Job again, and the Secret is recognised by its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from captf_controllers.jobs.leases import (
    FRESH,
    Acquired,
    LeaseRequest,
    Wait,
    acquire_leases,
    give_back,
    give_back_if_no_job,
    run_lease_fresh,
)
from captf_controllers.jobs.views import JobView, view_job
from captf_runtime.client.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RequestTooLarge,
    Unauthorized,
)
from captf_runtime.client.verbs import Verbs
from captf_runtime.clock import Clock
from captf_runtime.objects import JOB, Object, name_of, namespace_of

__all__ = ["Adopted", "Created", "Deferred", "LaunchRequest", "create_or_adopt", "is_rejection", "launch"]

CREATE_TIMEOUT_SECONDS: Final = 20.0
"""Bound of the create with its repetitions: a fresh lease is under 30 s old and safe for 60 s."""

_REJECTIONS: Final = (Invalid, Forbidden, Unauthorized, BadRequest, RequestTooLarge, NotFound)


@dataclass(frozen=True, slots=True)
class Created:
    """This call created the Job."""

    job: JobView


@dataclass(frozen=True, slots=True)
class Adopted:
    """The Job was there already, this object's and running: it is the active Job now."""

    job: JobView


@dataclass(frozen=True, slots=True)
class Deferred:
    """No Job was created and nothing failed: try again after the cache-lag delay.

    The leases that the start took are given back, but where a Job of the name exists: then they are that Job's
    to free.
    """

    reason: str


Launched: TypeAlias = Created | Adopted | Deferred


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A Job to create and what must follow it.

    Args:
        job: the Job, as `build_job` made it.
        owner_uid: UID of the object; only a Job that it controls is adopted.
        leases: the request under which the leases were acquired.
        acquired: what `acquire_leases` answered to it.
        record: called with the Job once it exists, before the per-run Secret: writes the attempt record of an
            apply. Not called for a start that did not happen. Must be repeatable.
        create_run_secret: called with the Job last: creates the per-run Secret. Must be repeatable.
    """

    job: Object
    owner_uid: str
    leases: LeaseRequest
    acquired: Acquired
    record: Callable[[Object], None]
    create_run_secret: Callable[[Object], None]


def launch(client: Verbs, request: LaunchRequest, clock: Clock) -> Launched:
    """Carry a start out, once its leases are held.

    Guarantees: at most one Job comes of it, whatever is repeated; the attempt record is never overwritten for
    a start that did not happen; leases are given back only when it is proven that no such Job exists, and only
    as this start wrote them: another manager may be creating the same Job under them.

    Raises:
        ApiError: a request failed. After a rejected create (the server refused this very call, so it created
            nothing) the leases are back unless a live read finds such a Job; after any other error they are
            kept, because the Job may exist.
    """
    acquired = _ensure_fresh(client, request.leases, request.acquired, clock)
    if isinstance(acquired, Deferred):
        return acquired
    held = request.leases.owner
    request.leases.memory.forget(held.namespace, held.run_lease, held.write_lease)
    try:
        launched = create_or_adopt(client, request.job, request.owner_uid)
    except ApiError as error:
        if is_rejection(error):
            give_back_if_no_job(client, request.leases, acquired.leases)
        raise
    if isinstance(launched, Deferred):
        give_back_if_no_job(client, request.leases, acquired.leases)
        return launched
    job = _as_owner(request.job, launched.job)
    request.record(job)
    request.create_run_secret(job)
    return launched


def create_or_adopt(client: Verbs, job: Object, owner_uid: str) -> Launched:
    """Create the Job, or find the one of its name.

    A Job of this object that runs is adopted. One that has finished defers the start: the cache will show it,
    and its outcome must be counted first. One of another UID (an earlier object of the same name) defers it
    too and is deleted once it has finished. One of an object of another name is left alone: the Jobs of a long
    name bear its hash, which that object may have for a name, and what came of it is that object's to count.

    Raises:
        ApiError: the create failed otherwise. `NotFound` also when the Job was there and is gone again.
    """
    name, namespace = name_of(job), namespace_of(job)
    try:
        return Created(view_job(client.create(JOB, job, namespace, timeout=CREATE_TIMEOUT_SECONDS)))
    except AlreadyExists as error:
        try:
            found = view_job(client.get(JOB, name, namespace))
        except NotFound:
            # Nothing is known about how it went; the answer to the create says what happened.
            raise error from None
    if found.owner_uid == owner_uid:
        if found.is_finished:
            return Deferred(f"Job {name} has already finished and was not counted yet")
        return Adopted(found)
    wanted = view_job(job).controller
    if found.of_workload and (wanted is None or not found.is_of(wanted.kind, wanted.name)):
        return Deferred(
            f"Job {name} belongs to another object, whose name is the hash of this one's or the like"
        )
    if not found.is_finished:
        return Deferred(f"Job {name} of an earlier object of this name still runs")
    try:
        client.delete(JOB, name, namespace, propagation_policy="Background", uid=found.uid)
    except (NotFound, Conflict):
        pass
    return Deferred(f"Job {name} of an earlier object of this name was deleted")


def is_rejection(error: ApiError) -> bool:
    """Whether the server refused the call itself, so that this call created nothing.

    It proves nothing about an earlier one: a quota, for example, answers before the name is looked up.
    """
    return isinstance(error, _REJECTIONS)


def _ensure_fresh(
    client: Verbs, request: LeaseRequest, acquired: Acquired, clock: Clock
) -> Acquired | Deferred:
    """The leases, held and so young that nobody may take them over during the create: as they were acquired,
    or acquired anew."""
    fresh = run_lease_fresh(client, request, clock)
    if fresh is True:
        return acquired
    if isinstance(fresh, str):
        give_back(client, request, acquired.leases)
        return Deferred(f"the run lease is held by Job {fresh} meanwhile")
    started = clock.monotonic()
    renewed = acquire_leases(client, request, clock)
    if isinstance(renewed, Wait):
        give_back_if_no_job(client, request, renewed.leases)
        return Deferred(renewed.message)
    if clock.monotonic() - started >= FRESH.total_seconds():
        give_back_if_no_job(client, request, renewed.leases)
        return Deferred("taking the leases again took too long")
    return renewed


def _as_owner(job: Object, view: JobView) -> Object:
    """The Job with what a reference to it needs, whether it was created or adopted."""
    known: Mapping[str, object] = {"uid": view.uid, "resourceVersion": view.resource_version}
    return {**job, "metadata": {**job["metadata"], **known}}
