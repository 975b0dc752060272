"""What ``captf why`` answers with, and how the answer looks on a terminal and to a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from textwrap import indent
from typing import Any, Final

from captf_controllers.cli.connection import one_line
from captf_runtime.objects import format_time

OWN_CODES: Final = frozenset(
    {
        "Abandoned",
        "AdoptRetained",
        "Deleting",
        "DestroyDue",
        "Destroyed",
        "ExternallyManaged",
        "JobRunning",
        "NoState",
        "NotReconciled",
        "OtherFinalizers",
        "Released",
        "RestoreDue",
        "Retained",
        "RunLeaseLive",
    }
)
"""The codes of findings that are no reason of a condition."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Something that a person can do: the purpose and the commands, to be pasted one after the other."""

    purpose: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an object waits for or that is wrong with it.

    ``code`` is stable and for scripts: the reason of the condition, or one of ``OWN_CODES`` where no
    condition says it. ``title`` completes "<object>: …". ``message`` is what is known about it. ``ends`` says what ends
    it, ``next_look`` when the manager looks again or tries again.
    """

    code: str
    title: str
    message: str = ""
    since: datetime | None = None
    ends: str = ""
    next_look: datetime | None = None
    exits: tuple[Exit, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer about one object: what it waits for first, then whatever else there is to say.

    ``healthy`` means that nothing is wrong and nothing is waited for; then ``findings`` is empty and
    ``summary`` says what is. ``notes`` are worth knowing and nothing to wait for. ``not_read`` names the
    permissions without which a part was left out.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    now: datetime
    deleting_since: datetime | None
    summary: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        return not self.findings


def as_json(diagnosis: Diagnosis) -> str:
    """The answer for a script: one JSON document. Times are RFC 3339, absent ones null."""
    document: dict[str, Any] = {
        "kind": diagnosis.kind,
        "namespace": diagnosis.namespace,
        "name": diagnosis.name,
        "uid": diagnosis.uid,
        "healthy": diagnosis.healthy,
        "deletingSince": _stamp(diagnosis.deleting_since),
        "summary": diagnosis.summary,
        "findings": [
            {
                "code": finding.code,
                "title": finding.title,
                "message": finding.message,
                "since": _stamp(finding.since),
                "ends": finding.ends,
                "nextLook": _stamp(finding.next_look),
                "exits": [{"purpose": way.purpose, "commands": list(way.commands)} for way in finding.exits],
            }
            for finding in diagnosis.findings
        ],
        "notes": list(diagnosis.notes),
        "notRead": list(diagnosis.not_read),
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_text(diagnosis: Diagnosis) -> str:
    """The answer for a person. Commands stand alone on their lines, to be copied."""
    return "\n".join(_lines(diagnosis)).rstrip() + "\n"


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    name = f"{diagnosis.kind} {diagnosis.namespace}/{diagnosis.name}"
    if diagnosis.deleting_since is not None:
        name += f", being deleted since {when(diagnosis.deleting_since, diagnosis.now)}"
    yield f"{name}: {one_line(diagnosis.summary)}" if diagnosis.healthy else name
    for number, finding in enumerate(diagnosis.findings):
        yield ""
        since = f", since {when(finding.since, diagnosis.now)}" if finding.since is not None else ""
        yield f"{'Also: ' if number else ''}{one_line(finding.title)}{since}"
        yield from _finding(finding, diagnosis.now)
    if diagnosis.notes:
        yield ""
        yield from (f"Note: {one_line(note)}" for note in diagnosis.notes)
    if diagnosis.not_read:
        yield ""
        yield "Not looked at, for lack of a permission (the answer rests on the conditions instead):"
        yield from (f"  {permission}" for permission in diagnosis.not_read)


def _finding(finding: Finding, now: datetime) -> Iterator[str]:
    if finding.message:
        yield indent(_printable(finding.message), "  ")
    if finding.ends:
        yield f"  Ends when: {one_line(finding.ends)}"
    if finding.next_look is not None:
        ahead = finding.next_look - now
        left = f" (in {age(ahead)})" if ahead > timedelta() else ""
        yield f"  Next attempt: {format_time(finding.next_look)}{left}"
    for way in finding.exits:
        yield f"  {'To' if way.commands else 'You can'} {one_line(way.purpose)}{':' if way.commands else ''}"
        yield from (f"    {command}" for command in way.commands)


def when(time: datetime, now: datetime) -> str:
    """A point in time with how long ago it was: ``2026-09-25T12:00:00Z (5m)``."""
    return f"{format_time(time)} ({age(now - time)})"


def age(duration: timedelta) -> str:
    """A duration in its two largest units: ``4s``, ``3m``, ``2h5m``, ``4d3h``."""
    seconds = max(int(duration.total_seconds()), 0)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return f"{whole}{unit}" + (f"{rest // part}{smaller}" if rest >= part else "")
    return f"{seconds}s"


def _printable(text: str) -> str:
    """A text of several lines without anything that a terminal would take for a command to it."""
    return "\n".join(one_line(line) for line in text.splitlines())


def _stamp(time: datetime | None) -> str | None:
    return format_time(time) if time is not None else None
