"""The Dockerfile, as far as it can be judged without building it."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from pathlib import Path

import pytest
from tests.manifests import ROOT, needs_kubectl, of_kind, rendered

TEXT = (ROOT / "Dockerfile").read_text()
INSTRUCTIONS = [
    line
    for line in re.sub(r"\s*\\\n\s*", " ", TEXT).splitlines()
    if line.strip() and not line.lstrip().startswith("#")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions(word: str) -> list[str]:
    return [line.removeprefix(f"{word} ") for line in INSTRUCTIONS if line.startswith(f"{word} ")]


def last_stage() -> list[str]:
    starts = [number for number, line in enumerate(INSTRUCTIONS) if line.startswith("FROM ")]
    return INSTRUCTIONS[starts[-1] :]


def in_context(path: str) -> bool:
    """Whether .dockerignore lets a path into the build; the last pattern that matches decides."""
    found = True
    for pattern in (ROOT / ".dockerignore").read_text().split():
        allowed = pattern.startswith("!")
        name = pattern.removeprefix("!")
        if fnmatch.fnmatch(path, name) or path.startswith(f"{name}/"):
            found = allowed
    return found


SOURCES = [
    source for line in instructions("COPY") if not line.startswith("--from=") for source in line.split()[:-1]
]


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_copied_exists_and_is_let_in(source: str) -> None:
    assert (ROOT / source).exists()
    assert in_context(source)


@pytest.mark.parametrize(
    "path", [".git/config", "tests/world.py", "config/crd/kustomization.yaml", ".venv/bin/python"]
)
def test_what_the_build_does_not_need_stays_out(path: str) -> None:
    assert not in_context(path)


def test_stages_that_are_copied_from_exist() -> None:
    stages = {line.split(" AS ")[1] for line in instructions("FROM") if " AS " in line}
    used = {match.group(1) for line in instructions("COPY") if (match := re.match(r"--from=(\S+)", line))}
    assert used <= stages
    assert used == {"runner", "manager"}


def test_every_base_image_has_a_version() -> None:
    for line in instructions("FROM"):
        image = line.split()[0]
        assert not image.endswith(":latest")
        assert ":" in image, image


def test_every_installed_package_is_hashed_or_local() -> None:
    installs = re.findall(r"pip install[^&]*", " ".join(INSTRUCTIONS))
    assert installs
    for install in installs:
        assert "--require-hashes" in install or "--no-index" in install, install


def test_the_image_runs_the_manager_as_an_ordinary_user_and_holds_the_runner() -> None:
    stage = last_stage()
    assert "USER 65532:65532" in stage
    assert 'ENTRYPOINT ["captf-manager"]' in stage
    assert "captf-manager" in PROJECT["scripts"]
    assert any(line.startswith("COPY --from=runner") and line.split()[-1] == "/runner" for line in stage)
    assert not [line for line in stage if line.startswith("RUN ")], "the last stage only copies"


@needs_kubectl
def test_the_user_is_the_one_of_the_deployment() -> None:
    pod = of_kind(rendered("default"), "Deployment")["spec"]["template"]["spec"]
    assert (
        f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" in last_stage()
    )


def test_the_locked_versions_are_those_of_the_tests_and_cover_what_the_manager_needs() -> None:
    def locked(path: Path) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", path.read_text(), re.MULTILINE))

    everything, manager = (
        locked(ROOT / "requirements.txt"),
        locked(ROOT / "hack" / "manager-requirements.txt"),
    )
    assert manager.items() <= everything.items()
    assert {re.split(r"[>=]", need)[0] for need in PROJECT["dependencies"]} <= set(manager)
    assert not {"pytest", "trustme", "mypy"} & set(manager)
