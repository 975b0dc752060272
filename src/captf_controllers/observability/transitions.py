"""Which events the changes of one pass's conditions make. Pure.

At most one event per condition type and pass, and only on a transition: the conditions that the pass found
are compared with those that it leaves. A Job's outcome is reported by the pass that reads the Job first,
never by a later one that shows the same condition again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.workspace import Condition
from captf_controllers.observability.conditions import (
    MAX_NOTE_BYTES,
    Conditions,
    changed,
    clamp,
    job_in_message,
    without_next_attempt,
)

EventType = Literal["Normal", "Warning"]

_NEVER: Final = frozenset({types.PAUSED, types.INPUTS_APPLIED})
_JOB_TYPES: Final = frozenset({types.APPLY_JOB_SUCCEEDED, types.DRIFT_JOB_SUCCEEDED})
_PLAN_WAITS: Final = frozenset({reasons.PLAN_AWAITING_APPROVAL, reasons.PLAN_CHANGED})
_UNHEALTHY: Final = frozenset(
    {"InstanceUnhealthy", "InstanceDegraded", "InstanceStopped", "InstanceTerminated"}
)
_BAD_WHILE_UNKNOWN: Final = frozenset({"IdentityCheckFailed", "HealthUnknown", "DurableInputsMissing"})
_INFORMATIONAL: Final = reasons.WAITS | {
    "ReadyUnknown",
    "WaitingForOwner",
    "WaitingForOwnerMachine",
    "WaitingForOwnerMachinePool",
    "WaitingForClusterInfrastructure",
    "WaitingForClusterExports",
    "WaitingForBootstrapData",
    "MirrorPending",
    "NoApplyYet",
    "StateNotFound",
    "OutputsPending",
    "Provisioning",
    "InstancePending",
    "WaitingForProvisioning",
    "DriftNotChecked",
    "DriftJobRunning",
    "NotBlocked",
    "PlanAwaitingApproval",
    "PlanChanged",
    "AutoscalingDisabled",
    "NotDeleting",
    "Deleting",
}


@dataclass(frozen=True, slots=True)
class EventSpec:
    """An event to emit; ``job`` names the Job it is related to, if any."""

    type: EventType
    reason: str
    note: str
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A finished Job that this pass knows, as far as events tell of it.

    ``newly``: finished and not bookkept before, so this pass is the one that reports it. ``changes`` counts
    what an apply or destroy did. ``retry_note`` says when the next attempt may start.
    """

    name: str
    op: str
    newly: bool
    interrupted: bool = False
    duration: timedelta | None = None
    changes: Mapping[str, int] = field(default_factory=dict)
    retry_note: str = ""
    approval_hash: str = ""
    plan_note: str = ""


def transition_events(
    before: Conditions, after: Conditions, jobs: Mapping[str, JobReport]
) -> list[EventSpec]:
    """The events of every type whose change speaks, in the order of the conditions."""
    events = []
    for condition in after:
        if condition.type not in types.OWNED_TYPES or condition.type in _NEVER:
            continue
        event = _event(before.get(condition.type), condition, jobs)
        if event is not None:
            events.append(event)
    return events


def is_bad(condition: Condition, before: Condition | None) -> bool:
    """Whether a change to ``condition`` deserves a Warning."""
    if condition.type == types.READY and condition.reason not in {"SecretNotFound", "CredentialsIncomplete"}:
        return before is not None and before.status == types.TRUE and condition.status != types.TRUE
    if condition.reason in _INFORMATIONAL:
        return False
    if condition.status == types.UNKNOWN:
        return condition.reason in _BAD_WHILE_UNKNOWN
    negative = condition.type in types.NEGATIVE_POLARITY
    return negative if condition.status == types.TRUE else not negative


def condition_note(condition: Condition) -> str:
    """The note of a plain condition event."""
    head = f"{condition.type}: {condition.status}/{condition.reason}"
    return f"{head}: {condition.message}" if condition.message else head


def interrupted_event(job: JobReport) -> EventSpec:
    """The event of a Job that was stopped from outside."""
    return EventSpec(
        "Warning",
        reasons.EVENT_JOB_INTERRUPTED,
        f"{job.op} Job {job.name} was stopped from outside; it is retried without backoff",
        job.name,
    )


def _event(before: Condition | None, now: Condition, jobs: Mapping[str, JobReport]) -> EventSpec | None:
    if now.type == types.RESTORE_JOB_SUCCEEDED:
        return _restore(before, now)
    if now.type in _JOB_TYPES:
        return _job_condition(before, now, jobs)
    if now.type == types.DELETING:
        if now.status == types.TRUE and (before is None or before.status != types.TRUE):
            return EventSpec("Normal", reasons.EVENT_DELETION_STARTED, condition_note(now))
        return None
    if now.type == types.DRIFT_DETECTED:
        return _drift(before, now)
    if now.type == types.INFRASTRUCTURE_HEALTHY:
        return _health(before, now)
    if now.type in _FALSE_EVENTS and now.status == types.FALSE:
        same = (
            before is not None
            and before.status == types.FALSE
            and (before.reason, before.message) == (now.reason, now.message)
        )
        return None if same else EventSpec("Warning", _false_reason(now), condition_note(now))
    return _default(before, now)


_FALSE_EVENTS: Final = frozenset({types.STATE_READABLE, types.OUTPUTS_VALID, types.IDENTITY_ALLOWED})


def _false_reason(condition: Condition) -> str:
    if condition.type == types.OUTPUTS_VALID:
        return "OutputsInvalid"
    if condition.type == types.IDENTITY_ALLOWED:
        return "IdentityNotAllowed"
    return {
        "StateLost": "StateLost",
        "ApplyOutcomeUnknown": "StateLost",
        "StateLocked": "StateLocked",
        "RetainedStateFound": "RetainedStateFound",
    }.get(condition.reason, reasons.EVENT_STATE_UNREADABLE)


def _default(before: Condition | None, now: Condition) -> EventSpec | None:
    bad = is_bad(now, before)
    if not changed(before, now) or (before is None and not bad):
        return None
    return EventSpec("Warning" if bad else "Normal", reasons.EVENT_CONDITION_CHANGED, condition_note(now))


def _restore(before: Condition | None, now: Condition) -> EventSpec | None:
    if now.reason in reasons.WAITS:
        return _wait(before, now)
    if job_in_message(now.message) is not None:
        return None
    return _default(before, now)


def _wait(before: Condition | None, now: Condition) -> EventSpec | None:
    if before is not None and before.reason == now.reason:
        return None
    return EventSpec("Normal", now.reason, condition_note(now))


def _job_condition(
    before: Condition | None, now: Condition, jobs: Mapping[str, JobReport]
) -> EventSpec | None:
    if now.reason in reasons.WAITS:
        return _wait(before, now)
    if now.reason in _PLAN_WAITS or now.reason == "DriftJobRunning":
        return None
    name = job_in_message(now.message)
    job = jobs.get(name) if name else None
    if now.type == types.DRIFT_JOB_SUCCEEDED and now.reason == "ImagePullFailed" and job is None:
        return None
    failed_without_job = name is None and now.type == types.APPLY_JOB_SUCCEEDED and now.status == types.FALSE
    waited = before is not None and (before.reason in reasons.WAITS or before.reason in _PLAN_WAITS)
    if waited:
        if job is not None:
            return _outcome(now, job) if job.newly else None
        return _without_job(now) if failed_without_job else None
    if name is not None:
        if now.reason == "DestructivePlanBlocked":
            named = before is not None and job_in_message(before.message) == name and not changed(before, now)
            return _outcome(now, job) if job is not None and job.newly and not named else None
        if job is not None and not job.newly:
            # Told when it was read; it is the newest again because a newer one was deleted.
            return None
        if changed(before, now) or (before is not None and before.message != now.message):
            return _outcome(now, job or JobReport(name=name, op="", newly=False))
        return None
    if now.reason == "DestructivePlanBlocked":
        return None
    if failed_without_job:
        same = before is not None and not changed(before, now) and before.message == now.message
        return None if same else _without_job(now)
    return _default(before, now)


def _without_job(now: Condition) -> EventSpec:
    return EventSpec("Warning", reasons.EVENT_JOB_FAILED, condition_note(now))


def _outcome(now: Condition, job: JobReport) -> EventSpec:
    """The event of a finished Job."""
    prefix = f"{job.op} " if job.op else ""
    if now.status == types.TRUE:
        note = f"{prefix}Job {job.name} succeeded"
        if job.duration is not None:
            note += f" in {round(job.duration.total_seconds())}s"
        counts = [f"{count} {verb}" for verb, count in job.changes.items()]
        if counts:
            note += f": {', '.join(counts)}"
        return EventSpec("Normal", reasons.EVENT_JOB_SUCCEEDED, note, job.name)
    if now.reason == "DestructivePlanBlocked":
        note = f"Job {job.name} stopped before a plan that deletes or replaces resources; nothing was applied"
        if job.approval_hash:
            note += "; the apply was guarded for the cluster's exports"
        if job.plan_note:
            note += f"; {job.plan_note}"
        return EventSpec("Warning", "DestructivePlanBlocked", note, job.name)
    if now.reason in {"JobDeadlineExceeded", "DriftJobDeadlineExceeded"}:
        return EventSpec("Warning", "JobDeadlineExceeded", _with_retry(now, job), job.name)
    if job.interrupted:
        return interrupted_event(job)
    return EventSpec("Warning", reasons.EVENT_JOB_FAILED, _with_retry(now, job), job.name)


def _with_retry(now: Condition, job: JobReport) -> str:
    """The condition, then when the next attempt is due; a long condition is cut so that this fits."""
    note = condition_note(now)
    if not job.retry_note:
        return note
    note = without_next_attempt(note)
    # What a runtime said ends as it likes: with a full stop, a colon, or nothing.
    tail = f"; {job.retry_note}"
    return clamp(note.rstrip(".:; "), MAX_NOTE_BYTES - len(tail.encode())) + tail


def _drift(before: Condition | None, now: Condition) -> EventSpec | None:
    if now.status == types.TRUE:
        known = (
            before is not None
            and before.status == types.TRUE
            and drift_summary(before.message) == drift_summary(now.message)
        )
        return None if known else EventSpec("Warning", reasons.EVENT_DRIFT_DETECTED, condition_note(now))
    if before is not None and before.status == types.TRUE and now.status == types.FALSE:
        return EventSpec("Normal", reasons.EVENT_DRIFT_RESOLVED, condition_note(now))
    return _default(before, now)


def drift_summary(message: str) -> str:
    """The part of a drift message that says what was found, without what its remediation does."""
    return message.partition("; remediation ")[0]


def _health(before: Condition | None, now: Condition) -> EventSpec | None:
    bad = is_bad(now, before)
    if (before is not None and not changed(before, now)) or (before is None and not bad):
        return None
    if now.status == types.TRUE:
        return EventSpec("Normal", reasons.EVENT_INSTANCE_HEALTHY, condition_note(now))
    if now.status == types.FALSE and now.reason in _UNHEALTHY:
        return EventSpec("Warning", "InstanceUnhealthy", condition_note(now))
    return _default(before, now)
