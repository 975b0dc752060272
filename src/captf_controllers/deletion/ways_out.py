"""The ways out of a deletion that waits, with the commands to paste.

One place, so that conditions, events, ``captf why`` and the docs name the same exits in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from captf_controllers.api.annotations import ABANDON_INFRASTRUCTURE, CONFIRM_NO_RESOURCES, RESTORE_STATE
from captf_controllers.deletion.facts import Subject

#: What stands in a restore command for the serial, where the reader has to choose one.
SERIAL = "<serial>"

#: What the ways out stand behind in a message.
HEADING = "Ways out: "

WayName = Literal["retain", "abandon", "restore", "confirm"]


@dataclass(frozen=True, slots=True)
class Way:
    """One way out: its name, the command to paste, and the phrase of a message that holds the command."""

    name: WayName
    command: str
    phrase: str


def retain(subject: Subject) -> Way:
    """Keep what CAPTF knows and let the object go."""
    command = subject.command("patch", """--type merge -p '{"spec":{"deletionPolicy":"Retain"}}'""")
    phrase = (
        "to let the object go without a destroy and keep its state for a later object, set "
        f"spec.deletionPolicy: Retain ({command})"
    )
    return Way("retain", command, phrase)


def abandon(subject: Subject) -> Way:
    """Give the infrastructure up."""
    command = subject.command("annotate", f"{ABANDON_INFRASTRUCTURE}={subject.uid} --overwrite")
    return Way("abandon", command, f"to leave the infrastructure running and untracked, {command}")


def restore(subject: Subject, serial: str = SERIAL) -> Way:
    """Bring a backup back."""
    command = subject.command("annotate", f"{RESTORE_STATE}={serial} --overwrite")
    return Way("restore", command, f"to restore a backup, name a serial of status.stateBackups: {command}")


def confirm(subject: Subject, job: str) -> Way:
    """Say that an apply of unknown outcome created nothing."""
    command = subject.command("annotate", f"{CONFIRM_NO_RESOURCES}={job} --overwrite")
    return Way(
        "confirm", command, f"after checking at the provider that Job {job} created nothing, {command}"
    )


def listed(*ways: Way) -> str:
    """The ways as the end of a message."""
    return HEADING + "; ".join(way.phrase for way in ways)
