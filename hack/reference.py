"""Write docs/reference from the code: flags, conditions, events, metrics, annotations and labels.

`python -m hack.reference` writes the pages; with `--check` it writes nothing and exits with status 1 when a page is
out of date. Either way it fails when the code has a name that hack/reference_texts.py says nothing about, or the
other way around.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions, finalizers, labels, reasons
from captf_controllers.api.kinds import WORKLOAD_KINDS
from captf_controllers.cli.manager import SECTIONS, SectionedOption
from captf_controllers.cli.manager import main as manager_command
from captf_controllers.observability import metrics
from captf_runtime import metrics as runtime_metrics
from hack import reference_texts as texts

DIRECTORY: Final = Path(__file__).resolve().parent.parent / "docs" / "reference"
#: Constants of these modules that are values, not keys.
VALUES: Final = frozenset({"TRUE", "REPLICAS_MANAGED_BY_CAPTF"})


class MissingText(Exception):
    """The code and the texts do not name the same things."""


def constants(module: ModuleType) -> list[tuple[str, list[tuple[str, str]]]]:
    """The text constants of a module in groups: the comment above a group, and (name, value) of each."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    lines = source.splitlines()
    groups: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    last = 0
    for node in ast.parse(source).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        comments = [line[1:].strip() for line in lines[last : node.lineno - 1] if line.startswith("# ")]
        last = node.end_lineno or node.lineno
        if comments:
            groups.append((comments[-1].rstrip("."), []))
        value = getattr(module, node.target.id)
        if isinstance(value, str) and node.target.id not in VALUES:
            groups[-1][1].append((node.target.id, value))
    return [group for group in groups if group[1]]


def same_names(what: str, code: Iterable[str], known: Iterable[str]) -> None:
    """Raises MissingText when one side has a name that the other has not."""
    in_code, in_texts = set(code), set(known)
    missing, stale = sorted(in_code - in_texts), sorted(in_texts - in_code)
    if missing or stale:
        raise MissingText(f"{what}: hack/reference_texts.py lacks {missing}, and the code lacks {stale}")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        + "\n"
    )


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def flags() -> str:
    """The page of the manager's flags."""
    parts = [
        "# Flags of `captf-manager`\n\n"
        "A name may be written with underscores, a value after `=` or a space. Durations are like `90s`, `1h30m`.\n"
    ]
    for section in SECTIONS:
        rows = []
        for param in manager_command.params:
            if not isinstance(param, SectionedOption) or param.section != section:
                continue
            default = param.default if isinstance(param.default, str) else _plain(param.default)
            rows.append([_code(param.opts[0]), param.type.name, _code(default), param.help or ""])
        parts.append(f"## {section.capitalize()}\n\n" + table(["Flag", "Type", "Default", ""], rows))
    return "\n".join(parts)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else ""


def condition_page() -> str:
    """The page of conditions and reasons."""
    same_names("conditions", conditions.OWNED_TYPES, texts.CONDITIONS)
    groups = [(title, items) for title, items in constants(reasons) if not title.startswith("Events")]
    same_names("reasons", (value for _, items in groups for _, value in items), texts.REASONS)
    types = [value for _, items in constants(conditions) for _, value in items if value in texts.CONDITIONS]
    parts = [
        "# Conditions\n\n"
        "A condition that is Unknown waits, nothing failed. Of three types True is the bad state; they are marked.\n",
        table(["Type", "On", "True means"], ([_code(name), *texts.CONDITIONS[name]] for name in types)),
        "## Reasons\n",
    ]
    for title, items in groups:
        rows = ([_code(value), texts.REASONS[value]] for _, value in items)
        parts.append(f"### {title}\n\n" + table(["Reason", "When"], rows))
    return "\n".join(parts)


def event_page() -> str:
    """The page of events."""
    code = {getattr(reasons, name) for name in dir(reasons) if name.startswith("EVENT_")} | reasons.WAITS
    missing = sorted(code - set(texts.EVENTS))
    known = {value for _, items in constants(reasons) for _, value in items}
    unknown = sorted(set(texts.EVENTS) - known)
    if missing or unknown:
        raise MissingText(f"events: hack/reference_texts.py lacks {missing}, and the code lacks {unknown}")
    workload = ", ".join(kind.kind for kind in WORKLOAD_KINDS)
    rows = ([_code(name), type_, on, when] for name, (type_, on, when) in sorted(texts.EVENTS.items()))
    runner = ([_code(name), type_, when] for name, (type_, when) in texts.RUNNER_EVENTS.items())
    return (
        f"# Events\n\n“workload” is each of {workload}. Each is posted once, when something "
        "happens, not on every pass.\n\n"
        + table(["Reason", "Type", "On", "When"], rows)
        + "\n## Of the runner\n\nOn the same object while a Job runs, unless `--runner-events=false`.\n\n"
        + table(["Reason", "Type", "When"], runner)
    )


def metric_page() -> str:
    """The page of metrics."""

    def rows(series: Iterable[runtime_metrics.Series]) -> Iterable[Sequence[str]]:
        for item in series:
            named = ", ".join(map(_code, item.labels))
            yield [_code(item.name), item.type, named, item.help.removeprefix("[ALPHA] ")]

    head = ["Series", "Type", "Labels", ""]
    objects = ", ".join(map(_code, metrics.PER_OBJECT))
    return (
        "# Metrics\n\nServed at `/metrics` of the diagnostics endpoint. Seconds, bytes, Unix seconds. Only the "
        "leader's reconcile series move.\n\n## CAPTF\n\n"
        + table(head, rows(metrics.SERIES))
        + f"\nThese name an object, and end with it: {objects}.\n\n## Controller library\n\n"
        + table(head, rows(runtime_metrics.SERIES))
    )


def key_page() -> str:
    """The page of annotations, labels and finalizers."""
    pages = {"Annotations": constants(keys), "Labels": constants(labels)}
    named = {value for groups in pages.values() for _, items in groups for _, value in items}
    same_names("annotations and labels", named, texts.KEYS)
    parts = ["# Annotations, labels and finalizers\n"]
    for title, groups in pages.items():
        parts.append(f"## {title}\n")
        for comment, items in groups:
            rows = ([_code(value), texts.KEYS[value]] for _, value in items)
            heading = f"### {comment}\n\n" if comment else ""
            parts.append(heading + table(["Key", "Says"], rows))
    rows = ([kind.kind, _code(finalizers.finalizer_of(kind.kind))] for kind in WORKLOAD_KINDS)
    parts.append("## Finalizers\n\n" + table(["Kind", "Finalizer"], rows))
    return "\n".join(parts)


def pages() -> Mapping[Path, str]:
    """The content of every page by its path."""
    written = {
        "flags": flags(),
        "conditions": condition_page(),
        "events": event_page(),
        "metrics": metric_page(),
        "annotations": key_page(),
    }
    note = "\n<!-- Written by `python -m hack.reference`. -->\n"
    return {DIRECTORY / f"{name}.md": text + note for name, text in written.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page differs")
    check = parser.parse_args(arguments).check
    try:
        expected = pages()
    except MissingText as error:
        print(error, file=sys.stderr)
        return 1
    differing = [path for path, text in expected.items() if not path.is_file() or path.read_text() != text]
    for path in differing:
        if check:
            print(f"{path}: is out of date: run `python -m hack.reference`", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(expected[path])
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
