"""The reference pages, and the links between all pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hack import reference, reference_texts
from tests.manifests import ROOT

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_the_pages_are_up_to_date() -> None:
    assert reference.main(["--check"]) == 0


def test_a_name_without_a_text_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fewer = {name: text for name, text in reference_texts.REASONS.items() if name != "StateLost"}
    monkeypatch.setattr(reference_texts, "REASONS", fewer)
    assert reference.main(["--check"]) == 1
    assert "StateLost" in capsys.readouterr().err


def test_a_text_without_a_name_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference_texts, "KEYS", {**reference_texts.KEYS, "captf.io/gone": "nothing"})
    assert reference.main(["--check"]) == 1
    assert "captf.io/gone" in capsys.readouterr().err


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = []
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            dead.append(target)
    assert dead == []
