from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captf_controllers.runner.diagnostics import (
    Changes,
    Diagnostic,
    UiReader,
    changes_of_text,
    parse_diagnostic,
    resources_of,
    strip_ansi,
    tail_of,
    validate_diagnostics,
)


def unchanged(text: str) -> str:
    return text


def error(summary: str = "It failed", detail: str = "", address: str = "", block: str = "") -> Diagnostic:
    return Diagnostic("error", summary, detail, address, block)


def ui(*messages: dict[str, Any] | str) -> tuple[UiReader, list[tuple[str, str]]]:
    reader = UiReader(lambda text: text.replace("hunter2", "(sensitive)"))
    printed: list[tuple[str, str]] = []
    for message in messages:
        printed += reader.read(message if isinstance(message, str) else json.dumps(message))
    return reader, printed


def test_messages_are_rendered_back_to_text() -> None:
    _, printed = ui(
        {"@message": "Terraform 1.11.4", "type": "version"},
        "no JSON with hunter2",
        "[1]",
        {"type": "silent"},
        {"@message": "a.b: hunter2", "type": "apply_start"},
    )
    assert printed == [
        ("stdout", "Terraform 1.11.4"),
        ("stdout", "no JSON with (sensitive)"),
        ("stdout", "[1]"),
        ("stdout", "a.b: (sensitive)"),
    ]


def test_errors_go_to_stderr_without_their_snippet() -> None:
    diagnostic = {
        "severity": "error",
        "summary": "Bad hunter2",
        "detail": "It is\nvery bad.",
        "address": "a.b",
        "snippet": {
            "context": 'resource "a" "b"',
            "code": "password = hunter2",
            "values": [{"statement": "x"}],
        },
    }
    reader, printed = ui({"@message": "Error: Bad", "type": "diagnostic", "diagnostic": diagnostic})
    assert printed == [("stderr", "Error: Bad (sensitive)\n  with a.b\nIt is\nvery bad.")]
    assert reader.diagnostics[0].block == "a.b"


def test_warnings_go_to_stdout() -> None:
    diagnostic = {"severity": "warning", "summary": "Old", "detail": ""}
    _, printed = ui({"type": "diagnostic", "diagnostic": diagnostic})
    assert printed == [("stdout", "Warning: Old")]


def test_the_summary_of_the_plan_phase_is_not_the_outcome() -> None:
    planned = {"type": "change_summary", "changes": {"add": 5, "change": 0, "remove": 0, "operation": "plan"}}
    done = {
        "type": "change_summary",
        "changes": {"add": 1, "change": 2, "remove": 3, "import": 4, "operation": "apply"},
    }
    assert ui(planned)[0].changes is None
    assert ui(planned, done)[0].changes == Changes(1, 2, 3, 4)
    assert (
        ui({"type": "change_summary", "changes": {"operation": "destroy", "remove": "x"}})[0].changes
        == Changes()
    )


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("Apply complete! Resources: 1 added, 2 changed, 3 destroyed.", Changes(1, 2, 3)),
        ("Apply complete! Resources: 4 imported, 1 added, 2 changed, 3 destroyed.", Changes(1, 2, 3, 4)),
        ("\x1b[1m\x1b[32mDestroy complete! Resources: 7 destroyed.\x1b[0m", Changes(destroy=7)),
        ("Apply complete! Resources: 1 added, 2 changed, 3 destroyed, 4 forgotten.", Changes(1, 2, 3)),
        ("Plan: 1 to add, 0 to change, 0 to destroy.", None),
        ("Apply complete! Resources: 1 added, 2 changed, 3 destroyed." + "x" * 500, None),
    ],
)
def test_text_summaries(line: str, changes: Changes | None) -> None:
    assert changes_of_text(line) == changes
    assert ui(line)[0].changes == changes


def test_ansi_sequences_are_removed() -> None:
    assert strip_ansi("\x1b[31mError: \x1b[0m\x1b[1mx\x1b[K") == "Error: x"


def test_the_tail_prefers_structured_errors() -> None:
    found = [error("One", "first\nsecond"), Diagnostic("warning", "No", "", "", ""), error("Two\nlines", "")]
    assert tail_of(found, "Error: raw", "nothing") == "Error: One: first\nError: Two"


def test_the_tail_takes_error_lines_of_stderr() -> None:
    stderr = "noise\n\x1b[31mError: \x1b[0mone\n\n  on main.tf line 1:\n  Error: two\nWarning: three\n\nx\n"
    assert tail_of([], stderr, "nothing") == "Error: one\nError: two"
    assert tail_of([], "noise", "init failed with exit code 1") == "init failed with exit code 1"


def test_the_tail_takes_the_first_line_of_an_errors_detail_and_none_of_its_source() -> None:
    stderr = (
        'Error: Precondition failed\n\n  on main.tf line 5, in resource "a" "b":\n   5:   condition = false\n'
        "    │ var.x is 1\n\nThe module is broken.\nIn more words.\n\nError: Other\n\nWhy.\n"
    )
    assert tail_of([], stderr, "") == "Error: Precondition failed: The module is broken.\nError: Other: Why."


def test_the_tail_keeps_its_head() -> None:
    tail = tail_of([error("é" * 600)], "", "")
    assert tail.startswith("Error: é")
    assert 511 <= len(tail.encode()) <= 512


def test_resources_are_found_in_three_ways() -> None:
    found = [
        error("own", address="a.own"),
        error("failed"),
        error("named", address="a.named"),
        error("source", block="data.x.y"),
        error("nowhere"),
        Diagnostic("warning", "not me", "", "a.warning", ""),
    ]
    assert resources_of(found, ["a.named", "a.first"]) == [
        "a.own: own",
        "a.first: failed",
        "a.named: named",
        "data.x.y: source",
    ]


def test_resources_are_bounded_and_unique() -> None:
    same = [error("x", address="a")] * 3
    assert resources_of(same, []) == ["a: x"]
    many = [error("x", address=f"a{i}") for i in range(12)]
    assert len(resources_of(many, [])) == 10
    assert len(resources_of([error("x" * 600, address="a")], [])[0]) == 512


@pytest.mark.parametrize(
    ("context", "block"),
    [
        ('resource "aws_instance" "web"', "aws_instance.web"),
        ('data "aws_ami" "base"', "data.aws_ami.base"),
        ('module "role"', ""),
        (None, ""),
    ],
)
def test_the_block_of_a_snippet(context: str | None, block: str) -> None:
    parsed = parse_diagnostic({"severity": "error", "snippet": {"context": context}}, unchanged)
    assert parsed is not None
    assert parsed.block == block


def test_diagnostics_of_validate() -> None:
    text = json.dumps({"valid": False, "diagnostics": [{"severity": "error", "summary": "Unsupported"}, 7]})
    found = validate_diagnostics(text.encode(), unchanged)
    assert found is not None
    assert [diagnostic.headline for diagnostic in found] == ["Error: Unsupported"]
    assert validate_diagnostics(b"no JSON", unchanged) is None
    assert validate_diagnostics(b"{}", unchanged) == []


NAMES = [
    "type",
    "diagnostic",
    "hook",
    "resource",
    "addr",
    "changes",
    "operation",
    "add",
    "@message",
    "severity",
]
NAMES += ["summary", "detail", "address", "snippet", "context", "diagnostics"]
WORDS = ["diagnostic", "apply_errored", "change_summary", "error", "apply", 'resource "a" "b"', "", "\ud800"]
MESSAGES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=15,
)


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=5))
def test_no_message_breaks_the_reader(messages: list[Any]) -> None:
    reader = UiReader(unchanged)
    for message in messages:
        reader.read(json.dumps(message))
    tail_of(reader.diagnostics, "", "none")
    resources_of(reader.diagnostics, reader.errored)


@settings(deadline=None)
@given(MESSAGES)
def test_no_document_breaks_validate(document: Any) -> None:
    validate_diagnostics(json.dumps(document).encode(), unchanged)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_line_breaks_the_reader(line: str) -> None:
    UiReader(unchanged).read(line)
