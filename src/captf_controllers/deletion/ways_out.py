"""The ways out of a deletion that waits, with the commands to paste.

One place, so that conditions, events, ``captf why`` and the docs name the same exits in the same words.
"""

from __future__ import annotations

from captf_controllers.api.annotations import ABANDON_INFRASTRUCTURE, CONFIRM_NO_RESOURCES, RESTORE_STATE
from captf_controllers.deletion.facts import Subject


def retain(subject: Subject) -> str:
    """Keep what CAPTF knows and let the object go."""
    command = subject.command("patch", """--type merge -p '{"spec":{"deletionPolicy":"Retain"}}'""")
    return (
        "to let the object go without a destroy and keep its state for a later object, set "
        f"spec.deletionPolicy: Retain ({command})"
    )


def abandon(subject: Subject) -> str:
    """Give the infrastructure up."""
    command = subject.command("annotate", f"{ABANDON_INFRASTRUCTURE}={subject.uid} --overwrite")
    return f"to leave the infrastructure running and untracked, {command}"


def restore(subject: Subject) -> str:
    """Bring a backup back."""
    command = subject.command("annotate", f"{RESTORE_STATE}=<serial> --overwrite")
    return f"to restore a backup, name a serial of status.stateBackups: {command}"


def confirm(subject: Subject, job: str) -> str:
    """Say that an apply of unknown outcome created nothing."""
    command = subject.command("annotate", f"{CONFIRM_NO_RESOURCES}={job} --overwrite")
    return f"after checking at the provider that Job {job} created nothing, {command}"


def listed(*ways: str) -> str:
    """The ways as the end of a message."""
    return "Ways out: " + "; ".join(ways)
