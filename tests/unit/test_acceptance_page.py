"""The page of acceptance rows: what counts as a test of a row, and what is a problem."""

from __future__ import annotations

from pathlib import Path

import pytest
from hack import acceptance

ROWS = "# a comment\n\n[CG] Cleanup\nCG1 first things\nCG2 second things\n[DJ] Jobs\nDJ1 a Job\n"

TESTS = """
import pytest
from pytest import mark

pytestmark = [pytest.mark.slow, pytest.mark.acceptance("DJ1")]

@pytest.mark.acceptance("CG1", "CG9")
@pytest.mark.parametrize("x", [1])
def test_one(x): ...

@mark.acceptance("CG1")
class TestMore:
    def test_two(self): ...
    def helper(self): ...

def no_test(): ...
"""


@pytest.fixture
def proofs(tmp_path: Path) -> dict[str, list[acceptance.Proof]]:
    folder = tmp_path / "tests" / "deep"
    folder.mkdir(parents=True)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "world.py").write_text(TESTS)
    return acceptance.find_proofs(tmp_path / "tests", tmp_path)


def test_markers_are_read_from_tests_classes_and_modules(proofs: dict[str, list[acceptance.Proof]]) -> None:
    named = {row: [proof.test for proof in found] for row, found in proofs.items()}
    assert named == {
        "DJ1": ["test_one", "TestMore.test_two"],
        "CG1": ["test_one", "TestMore.test_two"],
        "CG9": ["test_one"],
    }


def test_a_row_without_a_test_and_a_test_without_a_row_are_problems(
    proofs: dict[str, list[acceptance.Proof]],
) -> None:
    found = acceptance.problems(acceptance.read_rows(ROWS), proofs)
    assert len(found) == 2
    assert found[0].startswith("CG2: no test")
    assert "tests/deep/test_it.py" in found[1]
    assert "CG9" in found[1]


def test_the_page_lists_every_row(proofs: dict[str, list[acceptance.Proof]]) -> None:
    page = acceptance.render(acceptance.read_rows(ROWS), proofs)
    assert "## Cleanup\n" in page
    assert "| CG2 | second things |  |" in page
    assert "[TestMore.test_two](../tests/deep/test_it.py)" in page


@pytest.mark.parametrize("line", ["CG1 once more", "XX1 of another section", "CGx no number", "CG3"])
def test_a_broken_row_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no new row"):
        acceptance.read_rows("[CG] Cleanup\nCG1 first things\n" + line)


def test_the_rows_of_the_repository_are_complete() -> None:
    sections = acceptance.read_rows(acceptance.ROWS.read_text())
    counts = {next(iter(section.rows))[:2]: len(section.rows) for section in sections}
    assert counts == {"CG": 28, "DJ": 28, "HD": 35, "TN": 17, "RA": 32}
