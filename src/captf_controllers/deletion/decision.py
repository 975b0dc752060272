"""What a deleting object does next: pure functions over gathered facts.

The order of the tests is the promise of the product, so it stands in one place: a destroy that succeeded
ends in cleanup before anything else is asked; a cluster waits for its machines; retained state of another
object is never run over; Retain beats abandon, abandon beats a restore or a destroy; unreadable state is
held; and only then a destroy starts. :func:`decide` covers everything up to a start, :func:`at_obstacle`
what happens when that start stops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from captf_controllers.deletion import abandon, dependents, holds, obstacles, ways_out
from captf_controllers.deletion.facts import EarlyFacts, Facts, Obstacle, Subject
from captf_controllers.deletion.ways_out import Way
from captf_controllers.observability.conditions import before_next_attempt, next_attempt
from captf_controllers.observability.observation import Observation
from captf_runtime.queue import policies

CleanupMode = Literal["destroyed", "no-state", "abandoned", "retained", "released"]


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Remove what CAPTF keeps for the object, as ``mode`` says, then the finalizer.

    ``cause`` explains an abandon; ``retaining_uid`` names the owner of the Secrets that a ``released``
    object leaves untouched.
    """

    mode: CleanupMode
    cause: str = ""
    retaining_uid: str = ""


@dataclass(frozen=True, slots=True)
class AdoptRetained:
    """Take the retained label off the Secrets that an earlier object left; the next pass owns them."""

    retaining_uid: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for ``requeue_after`` seconds; ``conditions`` say what for and how to leave.

    ``ways`` are the ways out that their messages name.
    """

    reason: str
    requeue_after: float
    conditions: tuple[Observation, ...] = ()
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """A Job of ``operation`` is due. ``conditions`` hold even if the start stops at an obstacle."""

    operation: Literal["destroy", "restore"]
    conditions: tuple[Observation, ...] = ()


Step = Cleanup | AdoptRetained | Wait | Start


def before_state(facts: EarlyFacts) -> Step | None:
    """What is decided before the state is read, or None when the state decides.

    A destroy that succeeded is never turned into anything else, not even a Retain. A TerraformCluster waits
    for its machines and pools before anything of its own is looked at.
    """
    if facts.destroy_succeeded:
        return Cleanup("destroyed")
    if facts.dependents:
        message = dependents.message(facts.dependents, facts.cluster_name)
        blocked = Observation("DeletionBlocked", "True", "DependentsExist", message)
        return Wait("DependentsExist", policies.GATE.delay(), (blocked,))
    return None


def decide(facts: Facts) -> Step:
    """The next step of a deletion whose state was read."""
    early = before_state(facts.early)
    if early is not None:
        return early
    foreign = facts.retained.foreign_uid
    if foreign:
        if facts.adopt_retained:
            return AdoptRetained(foreign)
        return Cleanup("released", retaining_uid=foreign)
    if facts.policy == "Retain":
        return Cleanup("retained")
    cause = abandon.up_front_cause(facts)
    if cause is not None:
        return Cleanup("abandoned", cause=cause)
    if facts.hold is not None:
        return _held(facts)
    if not facts.has_state:
        return Cleanup("no-state")
    if facts.destroy_backoff > 0:
        ways = _ways_of_failed_destroy(facts.subject)
        return Wait("DeletingBackoff", facts.destroy_backoff, (failed_destroy(facts),), ways)
    return Start("destroy")


def at_obstacle(facts: Facts, operation: Literal["destroy", "restore"], obstacle: Obstacle) -> Step:
    """What follows when a start of ``operation`` stopped at ``obstacle`` in this pass.

    Tested where the start stops and never up front: an obstacle that has gone since means a destroy.
    """
    cause = abandon.cause_of_obstacle(facts, obstacle)
    if cause is not None:
        return Cleanup("abandoned", cause=cause)
    wait = obstacles.wait(facts.subject, operation, obstacle, abandonable=abandon.acts_up_front(facts))
    return Wait(wait.reason, wait.requeue_after, wait.conditions, wait.ways)


def failed_destroy(facts: Facts) -> Observation:
    """``ApplyJobSucceeded`` of a destroy in backoff: what failed, when the next attempt is due, the exits."""
    exits = ways_out.listed(*_ways_of_failed_destroy(facts.subject))
    message = facts.last_destroy_message or "the last destroy failed"
    message = before_next_attempt(message).rstrip(".:; ")
    return Observation(
        "ApplyJobSucceeded",
        "False",
        facts.last_destroy_failure or "DestroyFailed",
        f"{message}.{next_attempt(facts.next_attempt)} {exits}.",
    )


def _ways_of_failed_destroy(subject: Subject) -> tuple[Way, ...]:
    return (ways_out.abandon(subject), ways_out.retain(subject))


def _held(facts: Facts) -> Step:
    hold = facts.hold
    assert hold is not None
    conditions = [Observation("StateReadable", "False", hold.reason, holds.message(facts, hold))]
    if facts.restore.state == "startable":
        return Start("restore", tuple(conditions))
    if facts.restore.state == "not-found":
        conditions.append(
            Observation("RestoreJobSucceeded", "False", "RestoreBackupNotFound", facts.restore.message)
        )
    return Wait("DeletionHeld", policies.STATE.delay(), tuple(conditions), holds.ways(facts.subject, hold))
