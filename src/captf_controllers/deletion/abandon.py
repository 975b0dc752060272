"""When the abandon annotation releases a deletion, with the exact cause.

The annotation only acts where a destroy cannot do the work: the deletion is held, the last destroy failed,
or a destroy that was about to start stopped at an obstacle. A destroy that can start is started.
"""

from __future__ import annotations

from captf_controllers.api.annotations import ABANDON_INFRASTRUCTURE
from captf_controllers.deletion.facts import (
    CredentialsObstacle,
    Facts,
    NoInputsObstacle,
    Obstacle,
    RefusedObstacle,
    Subject,
)

#: Notes of events are cut at this many bytes; the tail of the abandon note must survive.
NOTE_LIMIT_BYTES = 512


def up_front_cause(facts: Facts) -> str | None:
    """The cause known before a start is tried, or None: held on the state, else the last destroy failed."""
    return _up_front(facts) if facts.abandon_requested else None


def acts_up_front(facts: Facts) -> bool:
    """Whether the annotation releases the object in the next pass, however far a start would come."""
    return _up_front(facts) is not None


def _up_front(facts: Facts) -> str | None:
    if facts.hold is not None:
        return f"StateReadable {facts.hold.reason}"
    if facts.last_destroy_failure:
        return f"the last destroy failed: ApplyJobSucceeded {facts.last_destroy_failure}"
    return None


def cause_of_obstacle(facts: Facts, obstacle: Obstacle) -> str | None:
    """The cause when a start stopped at ``obstacle`` in this very pass, or None when it is no cause.

    A slot, a lease, the gate and inputs that are too large are waits, not causes.
    """
    if not facts.abandon_requested:
        return None
    match obstacle:
        case CredentialsObstacle(condition, status, reason, message):
            detail = f"{condition} is {status} ({reason})" + (f": {message}" if message else "")
            return f"the destroy cannot start: it waits for its credentials: {detail}"
        case RefusedObstacle(rejection):
            return f"the destroy cannot start: it waits for its credentials: {rejection}"
        case NoInputsObstacle():
            return "the destroy cannot start: the durable inputs Secret is missing"
        case _:
            return None


def note(subject: Subject, cause: str) -> str:
    """The note of ``InfrastructureAbandoned``. Too long, it is cut inside the cause so that the tail stays."""
    head = f"Removed finalizer {subject.finalizer} without a destroy ("
    tail = (
        f"): {ABANDON_INFRASTRUCTURE} names this object's uid. Whatever the module created keeps running "
        "and is no longer managed; the state backups go with the object"
    )
    room = NOTE_LIMIT_BYTES - len(head.encode()) - len(tail.encode())
    encoded = cause.encode()
    if len(encoded) > room:
        cause = encoded[: room - 3].decode(errors="ignore") + "…"
    return head + cause + tail
