"""How answers look: durations, types of outputs, the forms for people and for scripts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_controllers.cli.diagnosis import Diagnosis, Exit, Finding, age, as_json, as_text
from captf_controllers.cli.output_types import type_expression

NOW = datetime(2026, 9, 25, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (3600, "1h"),
        (3660, "1h1m"),
        (90000, "1d1h"),
        (86400 * 400, "400d"),
    ],
)
def test_ages(seconds: float, expected: str) -> None:
    assert age(timedelta(seconds=seconds)) == expected


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (b'"string"', "string"),
        (b'["list","string"]', "list(string)"),
        (b'["map",["set","number"]]', "map(set(number))"),
        (b'["tuple",["string","bool"]]', "tuple([string, bool])"),
        (b'["object",{"port":"number","host":"string"}]', "object({host=string, port=number})"),
        (b'["object",{"a":"string"},["a"]]', "object({a=string})"),
        (b'["list",["list",["list",["list",["list","string"]]]]]', "list(list(list(list(…))))"),
        (b"{}", "unknown"),
        (b"nonsense", "unknown"),
        (b"null", "unknown"),
    ],
)
def test_types_read_as_their_author_wrote_them(encoded: bytes, expected: str) -> None:
    assert type_expression(encoded) == expected


@given(st.binary())
def test_any_type_is_answered(encoded: bytes) -> None:
    assert type_expression(encoded).isprintable()


def diagnosis(*findings: Finding, **more: object) -> Diagnosis:
    given_fields: dict[str, object] = {
        "kind": "TerraformMachine",
        "namespace": "team-a",
        "name": "m1",
        "uid": "u",
        "now": NOW,
        "deleting_since": None,
        "summary": findings[0].title if findings else "nothing is wrong",
        **more,
    }
    return Diagnosis(findings=findings, **given_fields)  # type: ignore[arg-type]


FINDING = Finding(
    "StateLost",
    "the deletion is held",
    "The Secret is missing.\nSecond line.",
    since=NOW - timedelta(minutes=5),
    ends="the state reads",
    next_look=NOW + timedelta(seconds=30),
    exits=(Exit("restore a backup", ("kubectl annotate a b",)), Exit("ask the provider")),
)


def test_the_answer_for_people() -> None:
    text = as_text(diagnosis(FINDING, deleting_since=NOW - timedelta(minutes=6), not_read=("list secrets",)))
    assert text == (
        "TerraformMachine team-a/m1, being deleted since 2026-09-25T11:54:00Z (6m)\n"
        "\n"
        "the deletion is held, since 2026-09-25T11:55:00Z (5m)\n"
        "  The Secret is missing.\n"
        "  Second line.\n"
        "  Ends when: the state reads\n"
        "  Next attempt: 2026-09-25T12:00:30Z (in 30s)\n"
        "  To restore a backup:\n"
        "    kubectl annotate a b\n"
        "  You can ask the provider\n"
        "\n"
        "Not looked at, for lack of a permission (the answer rests on the conditions instead):\n"
        "  list secrets\n"
    )


def test_nothing_wrong_is_one_line() -> None:
    assert as_text(diagnosis()) == "TerraformMachine team-a/m1: nothing is wrong\n"


def test_the_answer_for_scripts() -> None:
    answer = json.loads(as_json(diagnosis(FINDING)))
    assert (answer["healthy"], answer["summary"]) == (False, "the deletion is held")
    assert answer["findings"][0] == {
        "code": "StateLost",
        "title": "the deletion is held",
        "message": "The Secret is missing.\nSecond line.",
        "since": "2026-09-25T11:55:00Z",
        "ends": "the state reads",
        "nextLook": "2026-09-25T12:00:30Z",
        "exits": [
            {"purpose": "restore a backup", "commands": ["kubectl annotate a b"]},
            {"purpose": "ask the provider", "commands": []},
        ],
    }
    assert json.loads(as_json(diagnosis()))["healthy"] is True


def test_a_message_of_a_module_cannot_drive_a_terminal() -> None:
    shown = as_text(diagnosis(Finding("X", "t\x1b[2J", "m\x1b[2J")))
    assert "\x1b" not in shown
