"""``captf why``: what an object waits for, since when, what ends it, and the commands that do.

A deletion is decided here from the same facts and by the same function as in the manager's pass; only that
nothing is carried out. What a live object waits for is what its conditions say, with what the Jobs, leases
and the lock add to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Literal

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import labels, names, reasons
from captf_controllers.api.conditions import FALSE, NEGATIVE_POLARITY, TRUE
from captf_controllers.api.workspace import Condition
from captf_controllers.cli import exits
from captf_controllers.cli.connection import Connection
from captf_controllers.cli.diagnosis import Diagnosis, Exit, Finding, age, when
from captf_controllers.cli.examination import Examination, ManagerLease, examine, manager_leases
from captf_controllers.cli.explanations import EXPLANATIONS, Explanation
from captf_controllers.cli.target import Target
from captf_controllers.deletion import abandon, holds, obstacles, progress, ways_out
from captf_controllers.deletion.decision import AdoptRetained, Cleanup, Start, Step, Wait, at_obstacle, decide
from captf_controllers.deletion.facts import (
    CredentialsObstacle,
    Facts,
    Hold,
    NoInputsObstacle,
    Obstacle,
    RefusedObstacle,
    TooLargeObstacle,
    WaitObstacle,
)
from captf_controllers.deletion.ways_out import Way
from captf_controllers.jobs.failures import count_failures, retry_delay
from captf_controllers.jobs.operations import condition_type
from captf_controllers.jobs.reporting import RETAIN_HINT
from captf_controllers.observability.observation import Observation
from captf_controllers.state.lock import LockKind
from captf_runtime.objects import (
    annotations_of,
    creation_timestamp_of,
    deletion_timestamp_of,
    finalizers_of,
    format_time,
    generation_of,
    labels_of,
    parse_time,
)

Managers = Callable[[], "tuple[ManagerLease, ...] | None"]

#: How long after its deletion, or its creation, an object that nobody looked at counts as unattended.
ATTENTION = timedelta(seconds=30)
#: How long something that is due at once may take before a manager is suspected not to run.
PATIENCE = timedelta(minutes=3)
#: How old the renewal of an election Lease may be while its holder lives.
LEASE_AGE = timedelta(seconds=30)

#: The conditions of a live object in the order in which they stop it.
_SCANNED = (
    types.DEPENDENCIES_READY,
    types.IDENTITY_ALLOWED,
    types.CREDENTIALS_MIRRORED,
    types.RUNNER_RBAC_READY,
    types.STATE_READABLE,
    types.RESTORE_JOB_SUCCEEDED,
    types.APPLY_JOB_SUCCEEDED,
    types.OUTPUTS_VALID,
    types.INFRASTRUCTURE_HEALTHY,
    types.DRIFT_JOB_SUCCEEDED,
    types.DRIFT_DETECTED,
    types.ENDPOINT_AVAILABLE,
    types.AUTOSCALING_ACTIVE,
)
_CREDENTIALS = (types.IDENTITY_ALLOWED, types.CREDENTIALS_MIRRORED, types.RUNNER_RBAC_READY)
#: Reasons that are no problem at all.
_HARMLESS = frozenset(
    {
        reasons.STATE_NOT_FOUND,
        reasons.MIRROR_PENDING,
        reasons.DRIFT_NOT_CHECKED,
        reasons.DRIFT_JOB_RUNNING,
        reasons.AUTOSCALING_DISABLED,
        reasons.REPLICAS_MANAGED_EXTERNALLY,
    }
)
#: Reasons that follow from others: worth a word only when nothing else is wrong.
_CONSEQUENCES = frozenset(
    {
        reasons.NO_APPLY_YET,
        reasons.OUTPUTS_PENDING,
        reasons.PROVISIONING,
        reasons.WAITING_FOR_PROVISIONING,
    }
)
#: Operations whose running Job is what an object waits for; the others run beside.
_AWAITED = frozenset({"apply", "plan", "destroy", "restore"})
_RETRIED: dict[str, tuple[str, ...]] = {
    types.APPLY_JOB_SUCCEEDED: ("apply", "plan", "destroy"),
    types.DRIFT_JOB_SUCCEEDED: ("drift", "refresh"),
}
_WAYS_MARK = " Ways out: "


def ask(connection: Connection, target: Target) -> Diagnosis:
    """Examine one object and say what it waits for. Only reads."""
    found = examine(connection, connection.get(target))
    return diagnose(found, lambda: manager_leases(connection.client))


def diagnose(found: Examination, managers: Managers) -> Diagnosis:
    """What an examined object waits for. ``managers`` is asked only when nobody seems to look at the object."""
    findings = list(_deleting(found) if found.deleting else _live(found))
    unattended = _unattended(found, findings, managers)
    if unattended is not None:
        findings = [unattended, *(item for item in findings if item.code != unattended.code)]
    return Diagnosis(
        kind=found.subject.kind,
        namespace=found.subject.namespace,
        name=found.subject.name,
        uid=found.subject.uid,
        now=found.now,
        deleting_since=_deletion_requested(found),
        summary=findings[0].title if findings else _all_well(found),
        findings=tuple(findings),
        notes=tuple(_notes(found)),
        not_read=found.not_read,
    )


# A deletion ----------------------------------------------------------------------------------------


def _deleting(found: Examination) -> Iterator[Finding]:
    if not found.held_by_captf:
        left = ", ".join(finalizers_of(found.obj)) or "none"
        yield Finding(
            "OtherFinalizers",
            "CAPTF has let it go, others have not",
            f"Finalizers that are left: {left}. None of them is CAPTF's.",
            ends="their controllers take them off",
            exits=exits.remaining_finalizers(found.subject),
        )
        return
    if found.paused_by and keys.MANAGED_BY not in annotations_of(found.obj):
        yield _paused(found)
        if found.active is not None:
            yield _job_running(found)
        return
    if found.active is not None:
        yield _job_running(found)
        yield from _kept_from_running(found)
        return
    if keys.MANAGED_BY in annotations_of(found.obj):
        yield _external_release(found)
        return
    if found.facts is None:
        yield from _deletion_from_conditions(found)
        return
    yield from _decided(found, found.facts)
    yield from _refused_step(found)
    yield from _foreign_lock(found)


def next_step(found: Examination, facts: Facts) -> Step:
    """What the next pass does, as far as can be told without doing it.

    A start is followed to the obstacle that stopped it last or that is seen to stand there now.
    """
    step = decide(facts)
    if isinstance(step, Start):
        obstacle = _obstacle(found, step.operation)
        if obstacle is not None:
            return at_obstacle(facts, step.operation, obstacle)
    return step


def _decided(found: Examination, facts: Facts) -> Iterator[Finding]:
    step = next_step(found, facts)
    match step:
        case Cleanup():
            yield _cleanup(found, step)
        case AdoptRetained(uid):
            yield Finding(
                "AdoptRetained",
                "it takes over the state of an earlier object of its name",
                f"spec.adoptRetainedState is true; the earlier object's UID is {uid}.",
                ends="the next pass has taken the Secrets over",
            )
        case Start(operation):
            yield Finding(
                f"{operation.capitalize()}Due",
                f"a {operation} Job is due",
                _not_started(found, operation) or (_last_failure(facts) if operation == "destroy" else ""),
                ends="the next pass starts it",
                exits=exits.of_ways(found, _ways_before_start(found, facts)),
            )
        case Wait():
            yield from _waiting(found, facts, step)


def _ways_before_start(found: Examination, facts: Facts) -> tuple[Way, ...]:
    retain = ways_out.retain(found.subject)
    return (ways_out.abandon(found.subject), retain) if abandon.acts_up_front(facts) else (retain,)


def _not_started(found: Examination, operation: str) -> str:
    """What the last pass said of a start that ended in an error; empty when it said nothing of the kind."""
    deleting = found.conditions.get(types.DELETING)
    text = deleting.message if deleting is not None else ""
    if not text.startswith(obstacles.cannot_start(operation, "")):
        return ""
    return text.partition(_WAYS_MARK)[0]


def _refused_step(found: Examination) -> Iterator[Finding]:
    """A step that the API server refuses the manager again and again."""
    deleting = found.conditions.get(types.DELETING)
    if deleting is not None and deleting.message.startswith(progress.FAILED):
        ends = "what the message names is repaired; every pass tries again"
        yield Finding("Deleting", "a step of the deletion fails", deleting.message, ends=ends)


def _waiting(found: Examination, facts: Facts, step: Wait) -> Iterator[Finding]:
    first, *others = step.conditions
    explained = EXPLANATIONS.get(first.reason)
    title = explained.title if explained is not None else f"{first.type} is {first.status} ({first.reason})"
    ends = explained.ends if explained is not None else ""
    message = _without_ways(first.message, step.ways)
    more: tuple[Exit, ...] = explained.exits(found) if explained is not None else ()
    if step.reason == "DeletionHeld":
        title = f"the deletion is held: {title}"
        ends = "a state can be read again (looked at every minute), or one of these ways is taken"
        more = ()
        if facts.restore.state == "consumed":
            message += (
                f" {keys.RESTORE_STATE} names serial {facts.restore.value}, which was restored or failed "
                "already and is not tried again while it is named."
            )
    elif step.reason == "WaitingForCredentials":
        title, ends = "the Job waits for its credentials", "they are ready (looked at every 30 seconds)"
        more = exits.show_identity(found)
    elif step.reason == "NamespaceTerminating":
        title = "the Job cannot be created: the namespace is being deleted"
        ends = "one of these ways is taken; a namespace that is being deleted takes no new object"
    elif step.reason == "DestroyFailed":
        title, ends = "the destroy has nothing to render", "one of the inputs Secrets is there again"
        more = ()
    due = parse_time(facts.next_attempt) if step.reason == "DeletingBackoff" and facts.next_attempt else None
    yield Finding(
        first.reason,
        title,
        message,
        since=_since(found, first),
        ends=ends,
        next_look=due,
        exits=(*more, *exits.of_ways(found, step.ways)),
    )
    for other in others:
        yield _explained(found, other, _since(found, other))


def _cleanup(found: Examination, step: Cleanup) -> Finding:
    titles = {
        "destroyed": "the destroy succeeded; what CAPTF keeps of it is removed",
        "no-state": "there is nothing to destroy; its finalizer comes off",
        "abandoned": "it is abandoned: let go without a destroy",
        "retained": "it is retained: let go without a destroy, its state kept",
        "released": "it is let go; the state of an earlier object is left as it is",
    }
    messages = {
        "abandoned": f"Cause: {step.cause}.",
        "retained": "spec.deletionPolicy is Retain, its own or inherited.",
        "released": f"The Secrets bear {labels.RETAINED_FROM_UID}={step.retaining_uid}.",
    }
    message = messages.get(step.mode, "")
    if found.lease is not None:
        message = f"{message} Job {found.lease.holder} still holds its run lease.".strip()
        ends = "that Job and its pods have ended, and the next pass after that"
        return Finding("RunLeaseLive", titles[step.mode], message, ends=ends, exits=exits.show_lease(found))
    code = step.mode.title().replace("-", "")
    return Finding(code, titles[step.mode], message, ends="the next pass takes the finalizer off")


def _obstacle(found: Examination, operation: Literal["destroy", "restore"]) -> Obstacle | None:
    """What stands in the way of a start: what is seen now, else what stopped the last pass."""
    type_ = obstacles.JOB_CONDITION[operation]
    said = found.conditions.get(type_)
    missing = _credentials_obstacle(found, operation)
    if missing is not None:
        return missing
    if said is not None and said.reason == reasons.WAITING_FOR_JOB_SLOT:
        return _wait_obstacle(said)
    if operation == "destroy":
        unrendered = _inputs_obstacle(found, said)
        if unrendered is not None:
            return unrendered
    if found.lease is not None:
        if said is not None and said.reason in reasons.WAITS and found.lease.holder in said.message:
            return _wait_obstacle(said)
        text = f"The {operation} Job waits for Job {found.lease.holder} of this object; {RETAIN_HINT}"
        return WaitObstacle(reasons.WAITING_FOR_RUN_LEASE, text, 30.0)
    if said is not None and said.reason in reasons.WAITS - {reasons.WAITING_FOR_RUN_LEASE}:
        return _wait_obstacle(said)
    if found.namespace_terminating:
        return RefusedObstacle(
            f"namespace {found.subject.namespace} is being deleted and takes no new object"
        )
    return None


def _credentials_obstacle(
    found: Examination, operation: Literal["destroy", "restore"]
) -> CredentialsObstacle | RefusedObstacle | None:
    prefix = f"The {operation} Job waits for its credentials: "
    deleting = found.conditions.get(types.DELETING)
    text = deleting.message if deleting is not None else ""
    refused = found.conditions.reason(types.APPLY_JOB_SUCCEEDED) == reasons.IDENTITY_NOT_ALLOWED
    if not text.startswith(prefix) and not (refused and operation == "destroy"):
        return None
    for type_ in _CREDENTIALS:
        condition = found.conditions.get(type_)
        if condition is not None and condition.status != TRUE:
            return CredentialsObstacle(type_, condition.status, condition.reason, condition.message)
    if found.namespace_terminating and text:
        return RefusedObstacle(text.removeprefix(prefix).partition(_WAYS_MARK)[0].rstrip("."))
    return None


def _inputs_obstacle(
    found: Examination, said: Condition | None
) -> NoInputsObstacle | TooLargeObstacle | None:
    if said is not None and said.reason == reasons.INPUTS_TOO_LARGE:
        return TooLargeObstacle(said.message.partition(_WAYS_MARK)[0].rstrip("."))
    if found.records is None or found.records.any:
        return None
    told = said is not None and said.reason == reasons.DESTROY_FAILED and not said.message.startswith("Job ")
    if found.mutable and not told:
        return None
    kind, name = found.subject.kind, found.subject.name
    return NoInputsObstacle(
        (names.durable_inputs_secret(kind, name), names.applied_inputs_secret(kind, name))
    )


def _wait_obstacle(said: Condition) -> WaitObstacle:
    return WaitObstacle(said.reason, said.message.partition(_WAYS_MARK)[0].rstrip("."), 30.0)


def _external_release(found: Examination) -> Finding:
    message = f"The annotation {keys.MANAGED_BY} is set: nothing is destroyed, its state is kept."
    if found.lease is not None:
        message += f" Job {found.lease.holder} still holds its run lease."
    return Finding(
        "ExternallyManaged",
        "it is externally managed and let go without a destroy",
        message,
        ends="the next pass takes the finalizer off" if found.lease is None else "that Job has ended",
    )


def _deletion_from_conditions(found: Examination) -> Iterator[Finding]:
    """What the conditions say about a deletion whose facts the user may not read."""
    conditions, subject = found.conditions, found.subject
    state = conditions.get(types.STATE_READABLE)
    apply = conditions.get(types.APPLY_JOB_SUCCEEDED)
    blocked = conditions.get(types.DELETION_BLOCKED)
    deleting = conditions.get(types.DELETING)
    both = (ways_out.abandon(subject), ways_out.retain(subject))
    said = False
    if blocked is not None and blocked.status == TRUE:
        yield _explained(found, _observed(blocked), blocked.last_transition_time)
        return
    if state is not None and state.reason in reasons.STATE_HOLDS:
        hold = Hold(state.reason, "")  # type: ignore[arg-type]
        ways = both if state.reason == reasons.APPLY_OUTCOME_UNKNOWN else holds.ways(subject, hold)
        yield _from_condition(found, state, ways)
        return
    if deleting is not None and deleting.message:
        yield Finding("Deleting", "the deletion waits", deleting.message, since=deleting.last_transition_time)
        said = True
    if apply is not None and (apply.status == FALSE or apply.reason in reasons.WAITS):
        abandonable = apply.status == FALSE or keys.ABANDON_INFRASTRUCTURE in apply.message
        ways = both if abandonable else (ways_out.retain(subject),)
        yield _from_condition(found, apply, ways)
        said = True
    if not said:
        yield Finding("Deleting", "the deletion goes on", ends="the manager's next pass")


def _from_condition(found: Examination, condition: Condition, ways: tuple[Way, ...]) -> Finding:
    explained = EXPLANATIONS.get(condition.reason)
    return Finding(
        condition.reason,
        explained.title if explained is not None else condition.reason,
        _without_ways(condition.message, ways),
        since=condition.last_transition_time,
        ends=explained.ends if explained is not None else "",
        exits=exits.of_ways(found, ways),
    )


# A live object -------------------------------------------------------------------------------------


def _live(found: Examination) -> Iterator[Finding]:
    if keys.MANAGED_BY in annotations_of(found.obj):
        yield Finding(
            "ExternallyManaged",
            "CAPTF leaves it alone: somebody else manages it",
            f"The annotation {keys.MANAGED_BY} is set.",
            ends="that annotation is removed",
            exits=(Exit("hand it to CAPTF", (found.subject.command("annotate", f"{keys.MANAGED_BY}-"),)),),
        )
        return
    if found.paused_by:
        yield _paused(found)
    if found.active is not None and found.active.op in _AWAITED:
        yield _job_running(found)
    causes = list(_scan(found))
    plain = [item for item in causes if item.code not in _CONSEQUENCES]
    yield from plain
    nothing_else = not plain and not found.paused_by and found.active is None
    if not nothing_else:
        return
    if causes:
        yield causes[0]
        return
    applied = found.conditions.get(types.INPUTS_APPLIED)
    if applied is not None and applied.reason == reasons.APPLY_PENDING:
        yield Finding(
            applied.reason,
            "an apply of the changed inputs is due",
            applied.message,
            since=applied.last_transition_time,
            ends="the next pass starts it",
        )


def _scan(found: Examination) -> Iterator[Finding]:
    for type_ in _SCANNED:
        condition = found.conditions.get(type_)
        if condition is None or condition.reason in _HARMLESS:
            continue
        good = FALSE if type_ in NEGATIVE_POLARITY else TRUE
        if condition.status == good or _applied_elsewhere(found, condition):
            continue
        yield _explained(found, _observed(condition), condition.last_transition_time)


def _applied_elsewhere(found: Examination, condition: Condition) -> bool:
    """No Job of this object applied, and none is due: its state was adopted, or came with a move."""
    return condition.reason == reasons.NO_APPLY_YET and found.conditions.is_true(types.INPUTS_APPLIED)


def _explained(found: Examination, seen: Observation, since: datetime | None) -> Finding:
    fallback = Explanation(f"{seen.type} is {seen.status} ({seen.reason})", "")
    explained = EXPLANATIONS.get(seen.reason, fallback)
    message = seen.message
    if seen.reason == reasons.WAITING_FOR_RUN_LEASE and found.lease is None:
        message = f"{message} (the lease is free now: the next pass takes it)".strip()
    return Finding(
        seen.reason,
        explained.title,
        message,
        since=since,
        ends=explained.ends,
        next_look=_next_attempt(found, seen),
        exits=explained.exits(found),
    )


def _next_attempt(found: Examination, seen: Observation) -> datetime | None:
    """When a failed operation is tried again: the end of its backoff, None when there is none."""
    if seen.status != FALSE or found.active is not None or seen.reason == reasons.JOB_CANNOT_START:
        return None
    if not found.deleting and found.conditions.reason(types.STATE_READABLE) in reasons.STATE_HOLDS:
        return None
    for op in _RETRIED.get(seen.type, ()):
        failures = count_failures(found.finished, op)
        if failures.newest_finish is not None:
            delay = retry_delay(failures.n, found.config.jobs.failed_limit)
            return failures.newest_finish + timedelta(seconds=delay)
    return None


# Both ----------------------------------------------------------------------------------------------


def _kept_from_running(found: Examination) -> Iterator[Finding]:
    """What keeps the Job that is there from running, as far as a pass has told it."""
    job = found.active
    told = found.conditions.get(condition_type(job.op)) if job is not None and job.op else None
    if told is not None and told.reason == reasons.JOB_CANNOT_START:
        yield _explained(found, _observed(told), told.last_transition_time)


def _paused(found: Examination) -> Finding:
    paused = found.conditions.get(types.PAUSED)
    sources = {
        "cluster": f"Cluster {found.owners.pausing_cluster_name} has spec.paused: true",
        "annotation": f"the annotation {keys.PAUSED} is set",
    }
    said = " and ".join(sources[source] for source in found.paused_by)
    what = "the deletion waits: it is paused" if found.deleting else "it is paused"
    return Finding(
        reasons.PAUSED,
        what,
        f"{said[:1].upper()}{said[1:]}. A paused object starts no Job"
        + (" and is neither destroyed, retained nor abandoned." if found.deleting else "."),
        since=paused.last_transition_time if paused is not None and paused.status == TRUE else None,
        ends="it is unpaused",
        exits=exits.unpause(found),
    )


def _job_running(found: Examination) -> Finding:
    job = found.active
    assert job is not None
    started = job.started or job.created
    deadline = started + timedelta(seconds=found.config.jobs.deadline_seconds)
    message = f"Job {job.name} (attempt {job.attempt or 1})"
    if found.pod is None:
        message += " has no pod yet."
    else:
        message += f", pod {found.pod.name} is {found.pod.phase}."
        for container in found.pod.waiting:
            detail = f": {container.message}" if container.message else ""
            message += f" Container {container.name} waits: {container.reason}{detail}."
    if found.lock is not None and found.lock.kind is LockKind.FOREIGN:
        message += f" The state is locked by {found.lock.holder}, and the Job waits for that lock."
    if found.deleting:
        message += " Retain and abandon act when it has ended."
    return Finding(
        "JobRunning",
        f"its {job.op} Job runs",
        message,
        since=started,
        ends=f"the Job ends; it is stopped at {format_time(deadline)} at the latest",
        exits=exits.follow_job(found),
    )


def _foreign_lock(found: Examination) -> Iterator[Finding]:
    lock, reading = found.lock, found.reading
    if lock is None or lock.kind is not LockKind.FOREIGN or reading is None or reading.state is None:
        return
    seen = Observation(types.STATE_READABLE, FALSE, reasons.STATE_LOCKED, lock.message)
    yield _explained(found, seen, _since(found, seen))


def _unattended(found: Examination, findings: list[Finding], managers: Managers) -> Finding | None:
    """The finding that no manager looks at the object, when everything speaks for it."""
    if keys.MANAGED_BY in annotations_of(found.obj) or (found.deleting and not found.held_by_captf):
        return None
    deleted = _deletion_requested(found)
    if deleted is not None:
        taken_up = found.conditions.is_true(types.DELETING)
        due = bool(findings) and findings[0].ends.startswith("the next pass")
        if taken_up and (not due or found.now - _due_since(found, deleted) < PATIENCE):
            return None
        if not taken_up and found.now - deleted < ATTENTION:
            return None
        what = "no manager has looked at the deletion" if not taken_up else "what is due does not happen"
    elif not found.conditions.items:
        if found.now - (creation_timestamp_of(found.obj) or found.now) < ATTENTION:
            return None
        what = "no manager has looked at it"
    elif generation_of(found.obj) > (found.status.observed_generation or 0):
        what = "no manager has looked at its newest spec"
    else:
        return None
    wanted = labels_of(found.obj).get(labels.WATCH_FILTER)
    label = f"{labels.WATCH_FILTER}={wanted}" if wanted else f"no label {labels.WATCH_FILTER}"
    message = (
        f"{_manager_state(managers(), found.now)} A manager that was started with --watch-filter looks only at "
        f"objects with that value, one with --namespace only at that namespace; this object has {label}."
    )
    return Finding(
        "NotReconciled", what, message, ends="a manager looks at it", exits=exits.find_manager(found)
    )


def _due_since(found: Examination, deleted: datetime) -> datetime:
    """Since when a step of a deletion may be due: the last thing that could have made it so.

    That is the deletion, a later write to the object (a person's request, a condition of the manager), the
    end of a Job, or the end of the backoff after it.
    """
    fields = (found.obj.get("metadata") or {}).get("managedFields") or []
    times = [deleted, *(parse_time(entry["time"]) for entry in fields if entry.get("time"))]
    times += [job.finished_at for job in found.finished]
    failures = count_failures(found.finished, "destroy")
    if failures.newest_finish is not None:
        delay = retry_delay(failures.n, found.config.jobs.failed_limit)
        times.append(failures.newest_finish + timedelta(seconds=delay))
    return max(times)


def _manager_state(leases: tuple[ManagerLease, ...] | None, now: datetime) -> str:
    if leases is None:
        return "Whether a manager runs could not be looked at."
    if not leases:
        return "No manager with leader election was found."
    told = []
    for lease in leases:
        if not lease.holder:
            told.append(f"the one in namespace {lease.namespace} has no leader")
        elif lease.renewed is None or now - lease.renewed > LEASE_AGE:
            silent = f" for {age(now - lease.renewed)}" if lease.renewed is not None else ""
            told.append(f"{lease.holder} in namespace {lease.namespace} has been silent{silent}")
        else:
            told.append(f"{lease.holder} leads in namespace {lease.namespace}")
    return f"Managers: {'; '.join(told)}."


def _notes(found: Examination) -> Iterator[str]:
    abandon = annotations_of(found.obj).get(keys.ABANDON_INFRASTRUCTURE)
    held = found.facts is not None and found.facts.hold is not None
    if abandon == found.subject.uid and not found.deleting:
        yield (
            f"{keys.ABANDON_INFRASTRUCTURE} is set: a deletion of this object that is held, or whose destroy "
            "fails, leaves the infrastructure running"
        )
    elif abandon == found.subject.uid and found.facts is not None and found.active is None:
        if isinstance(next_step(found, found.facts), Start):
            yield f"{keys.ABANDON_INFRASTRUCTURE} is set and acts only once a destroy failed or cannot start"
    elif abandon is not None and abandon != found.subject.uid and not held:
        yield f"{keys.ABANDON_INFRASTRUCTURE} is ignored: its value is not this object's UID {found.subject.uid}"
    if not found.deleting and found.config.deletion_policy == "Retain":
        yield "a deletion keeps the infrastructure and its state: the effective deletionPolicy is Retain"
    restore = annotations_of(found.obj).get(keys.RESTORE_STATE)
    if restore and found.deleting and found.facts is not None and not held:
        yield f"{keys.RESTORE_STATE} is ignored while the object is deleted and its deletion is not held"
    if found.active is not None and found.active.op not in _AWAITED:
        since = when(found.active.started or found.active.created, found.now)
        yield f"{found.active.op} Job {found.active.name} runs since {since}"


def _all_well(found: Examination) -> str:
    ready = found.conditions.get(types.READY)
    if ready is None:
        return "it is new, and no manager has looked at it yet"
    if ready.status == TRUE:
        return f"nothing is wrong; it is Ready since {when(ready.last_transition_time, found.now)}"
    return f"nothing is wrong that is known; Ready is {ready.status} ({ready.reason})"


def _deletion_requested(found: Examination) -> datetime | None:
    return deletion_timestamp_of(found.obj)


def _last_failure(facts: Facts) -> str:
    if not facts.last_destroy_failure:
        return ""
    return f"The last one failed ({facts.last_destroy_failure}); its backoff is over."


def _since(found: Examination, seen: Observation) -> datetime | None:
    """Since when the manager says so; None when it says something else, or nothing, yet."""
    stored = found.conditions.get(seen.type)
    if stored is None or stored.status != seen.status or stored.reason != seen.reason:
        return None
    return stored.last_transition_time


def _observed(condition: Condition) -> Observation:
    return Observation(condition.type, condition.status, condition.reason, condition.message)


def _without_ways(message: str, ways: tuple[Way, ...]) -> str:
    """The message without what it says of the ways out, which are shown as commands."""
    if not ways:
        return message
    return message.replace(f" {ways_out.listed(*ways)}.", "").replace(f"; {RETAIN_HINT}", "")
