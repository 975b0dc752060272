"""What a deleting object reports when the Job it needs cannot start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from captf_controllers.deletion import ways_out
from captf_controllers.deletion.facts import (
    CredentialsObstacle,
    NoInputsObstacle,
    Obstacle,
    RefusedObstacle,
    Subject,
    TooLargeObstacle,
    WaitObstacle,
)
from captf_controllers.deletion.ways_out import Way
from captf_controllers.observability.conditions import MAX_NOTE_BYTES, legible
from captf_controllers.observability.observation import Observation
from captf_runtime.queue import policies

#: Reasons of ``IdentityAllowed`` that mean a refusal; any other one is something to repair.
REFUSALS = frozenset({"NamespaceNotAllowed", "IdentityNotFound"})

#: Where the wait for a Job of each operation shows.
JOB_CONDITION: dict[Literal["destroy", "restore"], str] = {
    "destroy": "ApplyJobSucceeded",
    "restore": "RestoreJobSucceeded",
}


@dataclass(frozen=True, slots=True)
class ObstacleWait:
    """How long to wait, what to say meanwhile, and the ways out that it names."""

    reason: str
    requeue_after: float
    conditions: tuple[Observation, ...]
    ways: tuple[Way, ...]


def wait(
    subject: Subject,
    operation: Literal["destroy", "restore"],
    obstacle: Obstacle,
    *,
    abandonable: bool = False,
) -> ObstacleWait:
    """The wait for one obstacle, in the words and with the requeue that the deletion rules give it.

    ``abandonable`` says that an abandon acts whatever the obstacle is; one that is no cause itself, such as a lease,
    names that way out then as well.
    """
    ways = (ways_out.abandon(subject), ways_out.retain(subject))
    exits = ways_out.listed(*ways) + "."
    ways_of_wait = _ways_of_wait(subject, abandonable)
    exits_of_wait = ways_out.listed(*ways_of_wait) + "."
    match obstacle:
        case CredentialsObstacle(condition, _, reason, message) if (
            operation == "destroy" and condition == "IdentityAllowed" and reason in REFUSALS
        ):
            text = "Destroy waits until the identity allows this namespace again"
            text += f" ({message})" if message else ""
            refused = Observation("ApplyJobSucceeded", "False", "IdentityNotAllowed", f"{text}. {exits}")
            return ObstacleWait("IdentityNotAllowed", policies.GATE.delay(), (refused,), ways)
        case CredentialsObstacle(condition, status, reason, message):
            text = f"The {operation} Job waits for its credentials: {condition} is {status} ({reason})"
            text += f": {message}" if message else ""
            return ObstacleWait(
                "WaitingForCredentials", policies.GATE.delay(), (_deleting(text, exits),), ways
            )
        case RefusedObstacle(rejection):
            text = f"The {operation} Job waits for its credentials: {rejection}"
            return ObstacleWait(
                "NamespaceTerminating", policies.GATE.delay(), (_deleting(text, exits),), ways
            )
        case NoInputsObstacle(secrets):
            failed = Observation(
                "ApplyJobSucceeded",
                "False",
                "DestroyFailed",
                "The destroy cannot start: the durable inputs Secret is missing, and so is the applied one "
                f"({', '.join(secrets)}), and nothing else renders what was applied. {exits}",
            )
            return ObstacleWait("DestroyFailed", policies.RETRY.cap, (failed,), ways)
        case TooLargeObstacle(detail):
            large = Observation("ApplyJobSucceeded", "False", "InputsTooLarge", f"{detail}. {exits_of_wait}")
            return ObstacleWait("InputsTooLarge", policies.RETRY.cap, (large,), ways_of_wait)
        case WaitObstacle(reason, message, requeue_after):
            waiting = Observation(JOB_CONDITION[operation], "Unknown", reason, f"{message}. {exits_of_wait}")
            return ObstacleWait(reason, requeue_after, (waiting,), ways_of_wait)


def cannot_start(operation: str, why: str) -> str:
    """The beginning of what an object says when a start ended in an error, or was put off."""
    return f"The {operation} Job cannot be started: {why}"


def not_started(
    subject: Subject, operation: Literal["destroy", "restore"], why: str, *, abandonable: bool = False
) -> Observation:
    """What ``Deleting`` says when a start ended in an error, such as a quota that is used up, or was put off."""
    text = cannot_start(operation, legible(why, MAX_NOTE_BYTES).rstrip(". "))
    exits = ways_out.listed(*_ways_of_wait(subject, abandonable)) + "."
    return _deleting(f"{text}. It is tried again", exits)


def _ways_of_wait(subject: Subject, abandonable: bool) -> tuple[Way, ...]:
    retain = ways_out.retain(subject)
    return (ways_out.abandon(subject), retain) if abandonable else (retain,)


def _deleting(text: str, exits: str) -> Observation:
    return Observation("Deleting", "True", "Deleting", f"{text}. {exits}")
