"""Operations on the list of conditions, and how `Ready` is summed up. Pure.

Invariants:
- the transition time changes only when a condition's status changes;
- a message fits the API's limit, so one long message never refuses a whole status write;
- conditions of types that CAPTF does not own are kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.conditions import FALSE, TRUE, UNKNOWN, Status
from captf_controllers.api.workspace import Condition

MAX_MESSAGE_BYTES: Final = 32768
MAX_NOTE_BYTES: Final = 512
"""Longest note of an event of the manager."""

_ELLIPSIS: Final = "…"

# Line feeds and tabs shape a message; every other control character could only disturb a terminal.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clamp(text: str, limit: int = MAX_MESSAGE_BYTES) -> str:
    """Cut a text to `limit` bytes of UTF-8, on a character boundary; a cut text ends in an ellipsis."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return text
    mark = _ELLIPSIS if limit >= 8 else ""
    kept = encoded[: limit - len(mark.encode())]
    return kept.decode(errors="ignore") + mark


def legible(text: str, limit: int = MAX_MESSAGE_BYTES) -> str:
    """Cut a text like `clamp`, with a blank for every control character but line feed and tab.

    Messages quote what others may write freely: holders of leases, annotations, a container's last words.
    """
    return clamp(_CONTROL.sub(" ", text), limit)


@dataclass(frozen=True, slots=True)
class Conditions:
    """An immutable list of conditions, at most one of each type.

    Every change returns a new list. `Conditions(status.conditions)` wraps what was read and
    `.items` is what goes into the status.
    """

    items: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, items: Iterable[Condition] | None) -> Conditions:
        """Wrap the conditions of a status, of which None is the empty list."""
        return cls(tuple(items or ()))

    def __iter__(self) -> Iterator[Condition]:
        return iter(self.items)

    def get(self, type_: str) -> Condition | None:
        """Return the condition of a type, None when it is not determined yet."""
        return next((item for item in self.items if item.type == type_), None)

    def status(self, type_: str) -> str | None:
        """Return the status of a type, None when it is not determined yet."""
        found = self.get(type_)
        return found.status if found else None

    def reason(self, type_: str) -> str:
        """Return the reason of a type, "" when it is not determined yet."""
        found = self.get(type_)
        return found.reason if found else ""

    def is_true(self, type_: str) -> bool:
        """Say whether the condition of a type is True."""
        return self.status(type_) == TRUE

    def set(
        self,
        type_: str,
        status: Status,
        reason: str,
        message: str = "",
        *,
        now: datetime,
        generation: int | None = None,
    ) -> Conditions:
        """Return the list with the condition of a type set.

        Args:
            type_: the condition type.
            status: True, False or Unknown.
            reason: one CamelCase word, never empty.
            message: details for people; made legible and cut to the API's limit.
            now: the time of a transition; fractions of a second are cut.
            generation: the object's generation that was looked at, None to leave it out.

        Raises:
            ValueError: the reason is empty.
        """
        if not reason:
            raise ValueError(f"condition {type_} needs a reason")
        before = self.get(type_)
        unchanged = before is not None and before.status == status
        since = (
            before.last_transition_time if before is not None and unchanged else now.replace(microsecond=0)
        )
        return self.put(
            Condition(
                type=type_,
                status=status,
                reason=reason,
                message=legible(message),
                last_transition_time=since,
                observed_generation=generation or None,
            )
        )

    def put(self, condition: Condition) -> Conditions:
        """Return the list with this very condition in place of one of its type."""
        if self.get(condition.type) is None:
            return Conditions((*self.items, condition))
        return Conditions(tuple(condition if item.type == condition.type else item for item in self.items))

    def without(self, type_: str) -> Conditions:
        """Return the list without the condition of a type."""
        return Conditions(tuple(item for item in self.items if item.type != type_))

    def timed_by(self, before: Conditions) -> Conditions:
        """Return the list with the transition times of `before` wherever the status came out the same.

        A pass may set a condition more than once on its way; only what it ends with is a transition.
        """
        return Conditions(tuple(_timed_by(item, before.get(item.type)) for item in self.items))

    def clamped(self) -> Conditions:
        """Return the list with every message cut to the API's limit."""
        return Conditions(
            tuple(
                item
                if len(item.message.encode(errors="replace")) <= MAX_MESSAGE_BYTES
                else msgspec.structs.replace(item, message=clamp(item.message))
                for item in self.items
            )
        )

    def observed(self, generation: int) -> Conditions:
        """Return the list with the generation set on every condition that CAPTF owns."""
        return Conditions(
            tuple(
                msgspec.structs.replace(item, observed_generation=generation or None)
                if item.type in types.OWNED_TYPES
                else item
                for item in self.items
            )
        )

    def sorted(self) -> Conditions:
        """Return the list in the order in which it is written: Ready, the rest by name, Paused, Deleting."""
        return Conditions(tuple(sorted(self.items, key=lambda item: (_rank(item.type), item.type))))


def _timed_by(condition: Condition, before: Condition | None) -> Condition:
    if before is None or before.status != condition.status:
        return condition
    return msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)


def _rank(type_: str) -> int:
    return {types.READY: 0, types.PAUSED: 2, types.DELETING: 3}.get(type_, 1)


def changed(before: Condition | None, after: Condition) -> bool:
    """Say whether status or reason differ; the message alone is no change."""
    return before is None or before.status != after.status or before.reason != after.reason


def first_visit(conditions: Conditions, kind: str, *, now: datetime, generation: int) -> Conditions:
    """Return the conditions with those set that every object has from its first pass on.

    Only missing ones are set, so calling it again changes nothing.
    """
    initial: list[tuple[str, Status, str, str]] = [
        (types.PAUSED, FALSE, reasons.NOT_PAUSED, ""),
        (types.DELETING, FALSE, reasons.NOT_DELETING, ""),
        (types.DRIFT_DETECTED, UNKNOWN, reasons.DRIFT_NOT_CHECKED, "No drift check has completed yet"),
    ]
    if kind == "TerraformCluster":
        initial.append((types.DELETION_BLOCKED, FALSE, reasons.NOT_BLOCKED, ""))
    for type_, status, reason, message in initial:
        if conditions.get(type_) is None:
            conditions = conditions.set(type_, status, reason, message, now=now, generation=generation)
    return conditions


# Messages about a Job ------------------------------------------------------------------------------


def job_message(job: str, detail: str = "") -> str:
    """Return the message of a condition that is about a Job: `Job <name>`, then `: <detail>`."""
    return f"Job {job}: {detail}" if detail else f"Job {job}"


# A runtime may speak of its own next attempt: the whole sentence is looked for.
_NEXT_ATTEMPT: Final = re.compile(r" Next attempt (?:not before [0-9TZ:.-]+|after the backoff)\.(?= |$)")


def next_attempt(at: str) -> str:
    """Return the sentence, with a space before it, that says when what failed is tried again; `at` is "" if unknown."""
    return f" Next attempt {f'not before {at}' if at else 'after the backoff'}."


def before_next_attempt(message: str) -> str:
    """Return what a message says before the sentence of `next_attempt`."""
    return _NEXT_ATTEMPT.split(message, maxsplit=1)[0]


def without_next_attempt(message: str) -> str:
    """Return a message without the sentence of `next_attempt`."""
    return _NEXT_ATTEMPT.sub("", message, count=1)


def job_in_message(message: str) -> str | None:
    """Return the Job that a message made by `job_message` is about, None when it is about none."""
    if not message.startswith("Job "):
        return None
    name = message[len("Job ") :].partition(":")[0]
    return name if name and " " not in name else None


# Ready ---------------------------------------------------------------------------------------------

_BEFORE_PROVISIONING: Final = (
    types.DEPENDENCIES_READY,
    types.IDENTITY_ALLOWED,
    types.CREDENTIALS_MIRRORED,
    types.RUNNER_RBAC_READY,
    types.APPLY_JOB_SUCCEEDED,
    types.STATE_READABLE,
    types.OUTPUTS_VALID,
    types.INFRASTRUCTURE_HEALTHY,
    types.DELETING,
)
_AFTER_PROVISIONING: Final = (types.INFRASTRUCTURE_HEALTHY, types.DELETING)
_POOL_AFTER_PROVISIONING: Final = (
    types.INFRASTRUCTURE_HEALTHY,
    types.APPLY_JOB_SUCCEEDED,
    types.DELETING,
)


def ready_inputs(kind: str, provisioned: bool) -> tuple[str, ...]:
    """Return the condition types that `Ready` sums up, in order.

    A provisioned cluster or machine stays ready through a failed apply, lost state or a revoked identity:
    otherwise every MachineHealthCheck of the cluster would be suspended by them.
    """
    if not provisioned:
        return _BEFORE_PROVISIONING
    return _POOL_AFTER_PROVISIONING if kind == "TerraformMachinePool" else _AFTER_PROVISIONING


@dataclass(frozen=True, slots=True)
class ReadySummary:
    """What `Ready` says."""

    status: Status
    reason: str
    message: str


def summarize_ready(conditions: Conditions, kind: str, *, provisioned: bool) -> ReadySummary:
    """Sum up the conditions of a workload object.

    Args:
        conditions: the conditions after this pass.
        kind: the object's kind.
        provisioned: `status.initialization.provisioned` after this pass.
    """
    issues: list[str] = []
    unknowns: list[str] = []
    bullets: list[tuple[str, str]] = []
    for type_ in ready_inputs(kind, provisioned):
        condition = conditions.get(type_)
        if condition is None:
            if type_ == types.DELETING:
                continue
            verdict, message = UNKNOWN, f"Condition {type_} is not yet reported"
        else:
            verdict = _verdict(condition)
            message = condition.message
            if verdict != TRUE:
                message = message or condition.reason
        if verdict == FALSE:
            issues.append(type_)
        elif verdict == UNKNOWN:
            unknowns.append(type_)
        bullets.append((verdict, _bullet(type_, message) if message else ""))
    if issues or unknowns:
        shown = [text for verdict, text in bullets if verdict != TRUE]
    else:
        shown = [text for _, text in bullets if text]
    message = "\n".join(shown)
    if issues:
        return ReadySummary(FALSE, reasons.NOT_READY, message)
    if unknowns:
        return ReadySummary(UNKNOWN, reasons.READY_UNKNOWN, message)
    return ReadySummary(TRUE, reasons.READY, message)


def _verdict(condition: Condition) -> Status:
    if condition.status == UNKNOWN:
        return UNKNOWN
    if condition.type in types.NEGATIVE_POLARITY:
        return FALSE if condition.status == TRUE else TRUE
    return condition.status


def _bullet(type_: str, message: str) -> str:
    if "\n" in message or message.startswith("* "):
        indented = "\n".join(f"  {line}" for line in message.split("\n"))
        return f"* {type_}:\n{indented}"
    return f"* {type_}: {message}"


def set_ready(
    conditions: Conditions, kind: str, *, provisioned: bool, now: datetime, generation: int
) -> Conditions:
    """Return the conditions with `Ready` set to their summary."""
    summary = summarize_ready(conditions, kind, provisioned=provisioned)
    return conditions.set(
        types.READY, summary.status, summary.reason, summary.message, now=now, generation=generation
    )


def set_gate_stop(
    conditions: Conditions,
    status: Status,
    reason: str,
    message: str,
    *,
    provisioned: bool,
    now: datetime,
    generation: int,
) -> Conditions:
    """Return the conditions of a live object whose pass an owner gate ends early.

    `DependenciesReady` takes the gate; `Ready` follows it only while the object is not provisioned, so
    that a provisioned one keeps what it had.
    """
    conditions = conditions.set(
        types.DEPENDENCIES_READY, status, reason, message or reason, now=now, generation=generation
    )
    if provisioned:
        return conditions
    ready: tuple[Status, str] = (
        (FALSE, reasons.NOT_READY) if status == FALSE else (UNKNOWN, reasons.READY_UNKNOWN)
    )
    return conditions.set(
        types.READY, *ready, f"{reason}: {message or reason}", now=now, generation=generation
    )
