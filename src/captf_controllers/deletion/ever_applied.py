"""Whether an object ever applied, which decides what a missing state means.

Not applied: there is nothing to destroy and the finalizer comes off at once. Applied: the state was lost
and the deletion is held. The signals are asked in the order of their cost and the first that holds decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Literal

from captf_controllers.deletion.facts import Hold

Signal = Literal["provisioned", "marker", "digest", "applied-as", "backup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The signals that cost no list.

    ``applied_as`` is the annotation ``captf.io/applied-as`` of the object; it counts on a deleting object
    only, and only when it equals the object's own state suffix.
    """

    provisioned: bool
    marker: bool
    digest: bool
    deleting: bool
    applied_as: str
    suffix: str
    unconfirmed_job: str = ""


def ever_applied(signals: Signals, backup_exists: Callable[[], bool]) -> Signal | None:
    """The first signal that holds, or None for an object that never applied.

    ``backup_exists`` lists the state backups of the suffix (complete or not) and is called only when every
    other signal is false. Its errors pass through: a failed list never means "never applied".
    """
    if signals.provisioned:
        return "provisioned"
    if signals.marker:
        return "marker"
    if signals.digest:
        return "digest"
    if signals.deleting and signals.applied_as and signals.applied_as == signals.suffix:
        return "applied-as"
    if backup_exists():
        return "backup"
    return None


def missing_state(signals: Signals, signal: Signal | None, base_secret: str) -> Hold | None:
    """What a state that does not exist means: a hold, or None when there is nothing to destroy."""
    if signal is not None:
        cause = f"the state Secret {base_secret} is missing although the object applied before"
        if signal == "applied-as":
            cause += (
                "; the only sign of that left is the annotation captf.io/applied-as on the object "
                "(remove it by hand when the object is a re-applied manifest that never applied here)"
            )
        return Hold("StateLost", cause)
    return _unknown_outcome(signals, "no state tells")


def untouched_state(signals: Signals, base_secret: str, destroyed_by: str = "") -> Hold | None:
    """What a state means that nothing was ever written to: a hold, or None for a state like any other.

    Backends write such a state when they are initialised, so it says no more than a missing one: about an
    apply that was killed, since the runtimes store what they created only from time to time, and about an
    object that applied before, whose own state went missing while a Job was about to read it. What an apply
    wrote keeps its inputs hash even when a destroy has emptied it. Backups and the annotation do not count as
    signals here: they may be of that very state, which a failed apply filled and a destroy emptied since.

    Args:
        destroyed_by: a destroy Job that ran on this state and not on the one that it was started for.
    """
    applied = ever_applied(replace(signals, applied_as=""), lambda: False)
    if destroyed_by or applied is not None:
        cause = f"the state Secret {base_secret} describes nothing although the object applied before"
        if destroyed_by:
            cause += f"; destroy Job {destroyed_by} found nothing to destroy in it"
        return Hold("StateLost", cause)
    return _unknown_outcome(signals, "nothing in the state tells")


def replaced_state(
    signals: Signals, base_secret: str, lineage: str, known: Callable[[], Collection[str]]
) -> Hold | None:
    """What a state with outputs means that lists no resources and that no apply is recorded on, else None.

    Of an object that applied before it is no state that the object knows: a Job that no longer found that one
    has made it. Nothing may be destroyed on it, or the infrastructure would pass for destroyed.

    Args:
        lineage: of that state.
        known: lineages of the object's states, of backups and of Jobs that were started for one; called only
            when it matters. A module without resources has such a state, restored from a backup.
    """
    if ever_applied(replace(signals, applied_as=""), lambda: False) is None or lineage in known():
        return None
    return Hold(
        "StateLost",
        f"the state Secret {base_secret} lists no resources and is not the state of the last apply: that one is "
        "gone, and a Job that found none has made this one",
    )


def _unknown_outcome(signals: Signals, untold: str) -> Hold | None:
    job = signals.unconfirmed_job
    if not job:
        return None
    return Hold(
        "ApplyOutcomeUnknown", f"{untold} what Job {job} did, and it may have created resources", job=job
    )
