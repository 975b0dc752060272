"""Write docs/acceptance.md: which tests prove each row of tests/acceptance_rows.txt.

`python -m hack.acceptance` writes the page; with `--check` it writes nothing and exits with status 1 when the page
is out of date. Either way it exits with status 1 when a row has no test, or a test names a row that there is not.
The tests are read, not run: a row is named by the marker `acceptance` on a test, a class or a module.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "tests" / "acceptance_rows.txt"
PAGE = ROOT / "docs" / "acceptance.md"
MARKER = "acceptance"
HEADER = """\
# What deleting an object promises, and the tests that prove it

<!-- Written by `python -m hack.acceptance` from tests/acceptance_rows.txt and the markers of the tests. -->
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A group of rows: its title, and the promise of each row by its id, in order."""

    title: str
    rows: dict[str, str]


@dataclass(frozen=True, slots=True, order=True)
class Proof:
    """A test that names a row. `file` is relative to the root of the repository, `line` that of the test."""

    file: str
    line: int
    test: str


def read_rows(text: str) -> list[Section]:
    """The sections of a file of rows.

    Raises:
        ValueError: a line is neither a heading, a comment nor a row of its section, or an id comes twice.
    """
    sections: list[Section] = []
    seen: set[str] = set()
    prefix = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            prefix, _, title = line[1:].partition("] ")
            sections.append(Section(title, {}))
            continue
        row, _, promise = line.partition(" ")
        if not sections or not row.removeprefix(prefix).isdecimal() or not promise or row in seen:
            raise ValueError(f"line {number} is no new row of its section: {line!r}")
        seen.add(row)
        sections[-1].rows[row] = promise
    return sections


def find_proofs(directory: Path, root: Path) -> dict[str, list[Proof]]:
    """The tests under a directory by the rows that they name, each list sorted."""
    found: dict[str, list[Proof]] = {}
    for path in sorted(directory.rglob("test_*.py")):
        file = path.relative_to(root).as_posix()
        for row, proof in _proofs_of(ast.parse(path.read_text(), file), file):
            found.setdefault(row, []).append(proof)
    return {row: sorted(set(proofs)) for row, proofs in found.items()}


def render(sections: Sequence[Section], proofs: Mapping[str, Sequence[Proof]]) -> str:
    """The page."""
    parts = [HEADER]
    for section in sections:
        parts.append(f"\n## {section.title}\n\n| Row | Promise | Tests |\n| --- | --- | --- |\n")
        for row, promise in section.rows.items():
            tests = "<br>".join(
                f"[{proof.test}](../{proof.file}) ({Path(proof.file).stem})" for proof in proofs.get(row, ())
            )
            parts.append(f"| {row} | {promise} | {tests} |\n")
    return "".join(parts)


def problems(sections: Sequence[Section], proofs: Mapping[str, Sequence[Proof]]) -> list[str]:
    """Rows without a test, and rows that a test names and that there are not."""
    rows = [row for section in sections for row in section.rows]
    missing = [f"{row}: no test bears @pytest.mark.{MARKER}({row!r})" for row in rows if row not in proofs]
    unknown = [
        f"{proof.file}:{proof.line}: {proof.test} names {row}, which tests/{ROWS.name} does not have"
        for row in sorted(set(proofs) - set(rows))
        for proof in proofs[row]
    ]
    return missing + unknown


def _proofs_of(module: ast.Module, file: str) -> Iterator[tuple[str, Proof]]:
    whole = [row for statement in module.body for row in _rows_of_module_mark(statement)]
    yield from _walk(module.body, file, whole, "")


def _walk(body: Sequence[ast.stmt], file: str, above: list[str], prefix: str) -> Iterator[tuple[str, Proof]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _walk(node.body, file, above + _rows_of(node.decorator_list), f"{node.name}.")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for row in above + _rows_of(node.decorator_list):
                yield row, Proof(file, node.lineno, prefix + node.name)


def _rows_of_module_mark(statement: ast.stmt) -> list[str]:
    if not isinstance(statement, ast.Assign):
        return []
    if not any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in statement.targets):
        return []
    marks = statement.value.elts if isinstance(statement.value, ast.List | ast.Tuple) else [statement.value]
    return _rows_of(marks)


def _rows_of(decorators: Sequence[ast.expr]) -> list[str]:
    """The ids in `pytest.mark.acceptance("CG1", ...)`."""
    rows = []
    for decorator in decorators:
        if not (isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute)):
            continue
        if decorator.func.attr != MARKER:
            continue
        rows += [
            argument.value
            for argument in decorator.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--check", action="store_true", help="write nothing, fail when the page is out of date"
    )
    options = parser.parse_args(arguments)
    sections = read_rows(ROWS.read_text())
    proofs = find_proofs(ROOT / "tests", ROOT)
    page = render(sections, proofs)
    found = problems(sections, proofs)
    if options.check:
        if not PAGE.exists() or PAGE.read_text() != page:
            found.append(f"{PAGE.relative_to(ROOT)} is out of date: run python -m hack.acceptance")
    else:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
