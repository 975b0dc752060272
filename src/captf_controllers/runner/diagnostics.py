"""Reading what the runtime prints: its machine-readable UI, its diagnostics, its summary lines.

Everything here works on untrusted text. Diagnostics are shortened by `tail_of` and `resources_of`; neither
ever uses a diagnostic's snippet of source code except for the address of the block that it names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from captf_controllers.runner.text import cut, first_line

TAIL_LIMIT = 512
RESOURCE_LIMIT = 512
MOST_RESOURCES = 10
_LONGEST_SUMMARY_LINE = 512

Stream = Literal["stdout", "stderr"]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BLOCK = re.compile(r'^(resource|data) "([^"]+)" "([^"]+)"')
_APPLY_COMPLETE = re.compile(
    r"Apply complete! Resources: (?:(\d+) imported, )?(\d+) added, (\d+) changed, (\d+) destroyed"
)
_DESTROY_COMPLETE = re.compile(r"Destroy complete! Resources: (\d+) destroyed")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem that the runtime reported, already redacted.

    Attributes:
        severity: `error` or `warning`.
        summary: what is wrong, in a line.
        detail: more about it, possibly many lines, possibly empty.
        address: the resource that it concerns, empty when the runtime named none.
        block: the address of the block of source code that it points at, empty when that is no resource.
    """

    severity: str
    summary: str
    detail: str
    address: str
    block: str

    @property
    def headline(self) -> str:
        """`Error: <summary>[: <first line of detail>]`."""
        detail = first_line(self.detail)
        return f"Error: {first_line(self.summary)}" + (f": {detail}" if detail else "")


@dataclass(frozen=True, slots=True)
class Changes:
    """How many resources an apply or destroy has changed."""

    add: int = 0
    change: int = 0
    destroy: int = 0
    imported: int = 0


def strip_ansi(text: str) -> str:
    """`text` without colour and cursor sequences."""
    return _ANSI.sub("", text)


def parse_diagnostic(value: object, redact: Callable[[str], str]) -> Diagnostic | None:
    """A diagnostic of the runtime's JSON, redacted; None when the value is none."""
    if not isinstance(value, dict):
        return None
    snippet = value.get("snippet")
    found = _BLOCK.match(_text(snippet.get("context"))) if isinstance(snippet, dict) else None
    block = ""
    if found is not None:
        block = ("data." if found[1] == "data" else "") + f"{found[2]}.{found[3]}"
    return Diagnostic(
        severity=_text(value.get("severity")),
        summary=redact(_text(value.get("summary"))),
        detail=redact(_text(value.get("detail"))),
        address=redact(_text(value.get("address"))),
        block=redact(block),
    )


def render_diagnostic(diagnostic: Diagnostic) -> tuple[Stream, str]:
    """A diagnostic as text for the log, and the stream it belongs to: errors to stderr."""
    is_error = diagnostic.severity == "error"
    lines = [f"{'Error' if is_error else 'Warning'}: {diagnostic.summary}"]
    if diagnostic.address:
        lines.append(f"  with {diagnostic.address}")
    if diagnostic.detail:
        lines.append(diagnostic.detail)
    return ("stderr" if is_error else "stdout"), "\n".join(lines)


@dataclass(slots=True)
class UiReader:
    """Reads the machine-readable UI of `apply` and `destroy`, one JSON object a line.

    Attributes:
        redact: applied to every text that is kept or returned.
        diagnostics: what was reported, in order.
        errored: addresses of the resources whose change failed, in order.
        changes: the final summary; None as long as none was printed.
    """

    redact: Callable[[str], str]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    errored: list[str] = field(default_factory=list)
    changes: Changes | None = None
    _summarised: bool = False

    def read(self, line: str) -> list[tuple[Stream, str]]:
        """Takes one line and returns what to print for it. A line that is no JSON object passes through."""
        message = _object(line)
        if message is None:
            if not self._summarised:
                self.changes = changes_of_text(line) or self.changes
            return [("stdout", self.redact(line))]
        kind = message.get("type")
        if kind == "diagnostic":
            diagnostic = parse_diagnostic(message.get("diagnostic"), self.redact)
            if diagnostic is not None:
                self.diagnostics.append(diagnostic)
                return [render_diagnostic(diagnostic)]
        elif kind == "apply_errored":
            hook = message.get("hook")
            resource = hook.get("resource") if isinstance(hook, dict) else None
            if isinstance(resource, dict) and (address := _text(resource.get("addr"))):
                self.errored.append(self.redact(address))
        elif kind == "change_summary":
            self._summarise(message.get("changes"))
        text = _text(message.get("@message"))
        return [("stdout", self.redact(text))] if text else []

    def _summarise(self, counts: object) -> None:
        if isinstance(counts, dict) and counts.get("operation") in ("apply", "destroy"):
            self._summarised = True
            self.changes = Changes(
                add=_count(counts.get("add")),
                change=_count(counts.get("change")),
                destroy=_count(counts.get("remove")),
                imported=_count(counts.get("import")),
            )


def changes_of_text(line: str) -> Changes | None:
    """The counts of a human-readable summary line, None for any other line."""
    if len(line.encode("utf-8", "replace")) > _LONGEST_SUMMARY_LINE:
        return None
    plain = strip_ansi(line).strip()
    if found := _APPLY_COMPLETE.match(plain):
        return Changes(int(found[2]), int(found[3]), int(found[4]), int(found[1] or 0))
    if found := _DESTROY_COMPLETE.match(plain):
        return Changes(destroy=int(found[1]))
    return None


def validate_diagnostics(document: bytes, redact: Callable[[str], str]) -> list[Diagnostic] | None:
    """The diagnostics of `validate -json`; None when the document cannot be read."""
    parsed = _object(document.decode("utf-8", "replace"))
    if parsed is None:
        return None
    listed = parsed.get("diagnostics")
    found = [parse_diagnostic(item, redact) for item in listed] if isinstance(listed, list) else []
    return [diagnostic for diagnostic in found if diagnostic is not None]


def tail_of(diagnostics: Iterable[Diagnostic], stderr: str, otherwise: str) -> str:
    """The text that tells a person why a step failed, at most 512 bytes; its head is kept.

    Args:
        diagnostics: structured diagnostics of the step; its errors are preferred.
        stderr: the step's standard error, already redacted; without structured errors, its lines that start
            with `Error: ` are taken, each with the first line of its detail.
        otherwise: used when neither says anything.
    """
    lines = [diagnostic.headline for diagnostic in diagnostics if diagnostic.severity == "error"]
    if not lines:
        lines = _error_lines(stderr)
    return cut("\n".join(lines) or otherwise, TAIL_LIMIT)


def _error_lines(stderr: str) -> list[str]:
    """The errors among human-readable output, as `Diagnostic.headline` would put them.

    Between an error's line and its detail stands its source code, indented, which is left out.
    """
    lines: list[str] = []
    open_ended = False
    for line in map(strip_ansi, stderr.splitlines()):
        text = line.strip()
        if text.startswith(("Error: ", "Warning: ")):
            open_ended = text.startswith("Error: ")
            lines += [text] if open_ended else []
        elif open_ended and text and not line[0].isspace():
            lines[-1] += f": {text}"
            open_ended = False
    return lines


def resources_of(diagnostics: Sequence[Diagnostic], errored: Sequence[str]) -> list[str]:
    """`<address>: <first line of summary>` of each error, at most ten, without duplicates.

    The address is the diagnostic's own; else the next address of a failed change that no diagnostic names;
    else the block named by its source; else the error is left out.
    """
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    named = {diagnostic.address for diagnostic in errors}
    unnamed = [address for address in errored if address not in named]
    found: list[str] = []
    for diagnostic in errors:
        address = diagnostic.address or (unnamed.pop(0) if unnamed else diagnostic.block)
        if address:
            entry = cut(f"{address}: {first_line(diagnostic.summary)}", RESOURCE_LIMIT)
            if entry not in found:
                found.append(entry)
    return found[:MOST_RESOURCES]


def _object(line: str) -> dict[str, Any] | None:
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
