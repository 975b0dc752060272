"""docs/deletion.md says what the decision does."""

from __future__ import annotations

from pathlib import Path

from tests.decision_table import table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deletion.md"
BEGIN, END = "<!-- decision table: begin -->\n", "<!-- decision table: end -->"


def test_the_table_is_that_of_the_tested_rows() -> None:
    text = PAGE.read_text()
    written = text.partition(BEGIN)[2].partition(END)[0]
    assert written == table(), "python -m tests.decision_table prints the table as it must be"
