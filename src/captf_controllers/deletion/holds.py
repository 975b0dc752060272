"""The message of a held deletion."""

from __future__ import annotations

from captf_controllers.api.annotations import ABANDON_INFRASTRUCTURE
from captf_controllers.deletion import ways_out
from captf_controllers.deletion.facts import Facts, Hold, Subject
from captf_controllers.deletion.ways_out import Way


def ways(subject: Subject, hold: Hold) -> tuple[Way, ...]:
    """The ways out of a hold; an apply of unknown outcome has nothing to restore."""
    first = ways_out.confirm(subject, hold.job) if hold.job else ways_out.restore(subject)
    return (first, ways_out.abandon(subject), ways_out.retain(subject))


def message(facts: Facts, hold: Hold) -> str:
    """What ``StateReadable`` says while a deletion is held: the cause and every way out.

    An abandon annotation with another value than the UID is answered here, because it is ignored
    everywhere else.
    """
    subject = facts.subject
    parts = [f"Deletion is held: {hold.cause}.", ways_out.listed(*ways(subject, hold)) + "."]
    if facts.abandon is not None and not facts.abandon_requested:
        parts.append(
            f"The present value {quoted(facts.abandon)} of {ABANDON_INFRASTRUCTURE} is ignored: "
            f"it is not this object's UID {subject.uid}."
        )
    return " ".join(parts)


def quoted(value: str, limit: int = 64) -> str:
    """A user's annotation value, quoted and cut so that it cannot drown the message."""
    return f'"{value[:limit]}…"' if len(value) > limit else f'"{value}"'
