"""Whether an object ever applied, which decides what a missing state means.

Not applied: there is nothing to destroy and the finalizer comes off at once. Applied: the state was lost
and the deletion is held. The signals are asked in the order of their cost and the first that holds decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from captf_controllers.deletion.facts import Hold
from captf_controllers.state.reading import State

Signal = Literal["provisioned", "marker", "digest", "applied-as", "backup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The signals that cost no list.

    ``applied_as`` is the annotation ``captf.io/applied-as`` of the object; it counts on a deleting object
    only, and only when it equals the object's own state suffix. ``apply_succeeded`` says that the newest finished
    apply did.
    """

    provisioned: bool
    marker: bool
    digest: bool
    deleting: bool
    applied_as: str
    suffix: str
    unconfirmed_job: str = ""
    apply_succeeded: bool = False

    @property
    def applied(self) -> bool:
        """Whether an apply succeeded, by what cannot be of an earlier state.

        Backups and the annotation can: of the very state that a failed apply filled and a destroy emptied since.
        """
        return self.provisioned or self.marker or self.digest


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


def empty_state(
    signals: Signals,
    base_secret: str,
    state: State,
    known_lineages: Callable[[], Collection[str]],
    destroyed_by: str = "",
) -> Hold | None:
    """What a state means that lists no resources and that no apply is recorded on: a hold, else None.

    Backends write one without outputs when they are initialised, and a refresh one with outputs. So it says no
    more than a missing one: about an apply that was killed, since the runtimes store what they created only from
    time to time, and about an object that applied before, whose own state went missing while a Job was about to
    read it. A destroy on it would remove nothing, and the infrastructure would pass for destroyed. What an apply
    wrote keeps its inputs hash even when a destroy has emptied it.

    Args:
        known_lineages: lineages of the object's states, as backups and the Jobs that were started for one tell
            them; called only when it matters.
        destroyed_by: a destroy Job that ran on this state and not on the one that it was started for.
    """
    if destroyed_by or (signals.applied and not _of_last_apply(signals, state.lineage, known_lineages())):
        if not state.untouched:
            cause = (
                f"the state Secret {base_secret} lists no resources and is not the state of the last apply: that "
                "one is gone, and a Job that found none has made this one"
            )
        else:
            cause = f"the state Secret {base_secret} describes nothing although the object applied before"
        if destroyed_by:
            cause += f"; destroy Job {destroyed_by} found nothing to destroy in it"
        return Hold("StateLost", cause)
    return _unknown_outcome(signals, "nothing in the state tells") if state.untouched else None


def _of_last_apply(signals: Signals, lineage: str, known: Collection[str]) -> bool:
    """Whether a state that lists nothing is what the last apply left: that of a module without resources.

    A Job that made one where the state was gone had been started for that state and tells of its lineage. Where no
    lineage is told of, the apply was the first, found none and has made this one.
    """
    return lineage in known or (signals.apply_succeeded and not known)


def _unknown_outcome(signals: Signals, untold: str) -> Hold | None:
    job = signals.unconfirmed_job
    if not job:
        return None
    return Hold(
        "ApplyOutcomeUnknown", f"{untold} what Job {job} did, and it may have created resources", job=job
    )
