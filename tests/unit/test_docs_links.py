"""What the pages refer to is there: links, headings, files, make targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/modules/*.md"))
)
PACKAGES = ("captf_controllers", "captf_runtime")


def anchors(page: Path) -> set[str]:
    """The fragments by which the headings of a page are linked to."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
        if link.startswith("https://"):
            continue
        path, _, fragment = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^|\()make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE))
    assert named <= targets


def map_rows() -> list[str]:
    """The second column of the map: where to look."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("| To change or understand | Look in |\n")[2].partition("\n\n")[0]
    return [row.split(" | ")[1] for row in table.splitlines()[1:]]


def test_the_map_names_rooms_that_are_there() -> None:
    """The first path of a row starts at the root or in src; the next ones also beside it or in its package."""
    missing = []
    for row in map_rows():
        folders = [ROOT, ROOT / "src"]
        for name in re.findall(r"`([\w.]+[/.][\w./-]*)`", row):
            found = next((folder / name for folder in folders if (folder / name).exists()), None)
            if found is None:
                missing.append(name)
            elif found.is_relative_to(ROOT / "src"):
                package = found.relative_to(ROOT / "src").parts[0]
                folders += [found.parent, ROOT / "src" / package]
    assert missing == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_has_a_room_for_every_package(package: str) -> None:
    rows = "".join(map_rows())
    folders = sorted(path.parent.name for path in (ROOT / "src" / package).glob("*/__init__.py"))
    assert [name for name in folders if f"`{package}/{name}" not in rows] == []
