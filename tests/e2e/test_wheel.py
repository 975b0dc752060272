"""The package as its users get it: built, installed without the extras, run from outside the repository."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from captf_runtime import Client
from captf_runtime.objects import CONFIG_MAP, NAMESPACE
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.waiting import eventually

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
MIRROR = REPOSITORY / "examples" / "embed" / "mirror.py"
EXTRAS = ("aiohttp", "jsonpatch", "rich", "trustme", "cryptography", "pytest", "hypothesis", "mypy")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the build backend of this environment where it has one."""
    folder = tmp_path_factory.mktemp("wheel")
    isolation = ["--no-build-isolation"] if find_spec("hatchling") is not None else []
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "-w", str(folder)]
    done = subprocess.run([*command, str(REPOSITORY)], capture_output=True, text=True, check=False)
    if done.returncode != 0 and not isolation and not os.environ.get("CI"):
        pytest.skip("hatchling is not installed here, and pip could not fetch it")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("captf-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fresh environment with the wheel and what it needs, and nothing of the extras.

    What it needs is taken from this environment, by links, so that nothing is fetched.
    """
    folder = tmp_path_factory.mktemp("fresh") / "environment"
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in needed(wheel):
        for entry in top_entries(name):
            link = packages / entry.name
            if not link.exists():
                link.symlink_to(entry)
    command = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--no-index", str(wheel)], check=True)
    return str(interpreter)


def needed(wheel: Path) -> set[str]:
    """The names of the distributions that the wheel needs without any extra, and those that they need."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA")]
        header = metadata.PathDistribution(zipfile.Path(archive, name.removesuffix("METADATA")))
        waiting = [Requirement(text) for text in header.requires or []]
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name in found:
            continue
        found.add(requirement.name)
        waiting += [Requirement(text) for text in metadata.requires(requirement.name) or []]
    return found


def top_entries(name: str) -> set[Path]:
    """The files and folders of an installed distribution, as they lie in its site-packages."""
    distribution = metadata.distribution(name)
    tops = {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}
    return {Path(str(distribution.locate_file(top))) for top in tops}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder in which nothing of the repository can be found."""
    return tmp_path


def run(python: str, program: str, folder: Path) -> str:
    """Run a program in the environment; returns what it prints."""
    done = subprocess.run(
        [python, "-I", "-c", program], cwd=folder, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"captf_runtime/py.typed", "captf_runtime/__init__.py", "captf_controllers/__init__.py"} <= set(
        names
    )
    folders = {name.split("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {
        "captf_runtime",
        "captf_controllers",
    }
    assert not [name for name in names if "__pycache__" in name]


def test_nothing_of_the_extras_is_needed(python: str, outside: Path) -> None:
    program = f"""
import importlib, pkgutil, sys
import captf_runtime
for name in captf_runtime.__all__:
    getattr(captf_runtime, name)
for module in pkgutil.walk_packages(captf_runtime.__path__, "captf_runtime."):
    if not module.name.startswith("captf_runtime.testing"):
        importlib.import_module(module.name)
print([name for name in {EXTRAS!r} if name in sys.modules])
print(captf_runtime.__file__)
"""
    used, file = run(python, program, outside).splitlines()
    assert used == "[]"
    assert not file.startswith(str(REPOSITORY))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as made:
        yield made


def test_a_controller_runs_on_it(python: str, outside: Path, server: ApiServer) -> None:
    environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(server.kubeconfig())}
    process = subprocess.Popen([python, "-I", str(MIRROR)], cwd=outside, env=environment)
    try:
        with Client.from_config(kubeconfig=server.kubeconfig()) as client:
            labels = {"mirror.example.com/target": "true"}
            client.create(NAMESPACE, {"metadata": {"name": "blue", "labels": labels}})
            source = {"name": "settings", "labels": {"mirror.example.com/role": "source"}}
            client.create(CONFIG_MAP, {"metadata": source, "data": {"color": "red"}}, "default")
            copy = eventually(lambda: client.get(CONFIG_MAP, "settings", "blue"), timeout=120)
            assert copy["data"] == {"color": "red"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("command", ["captf-manager", "captf"])
def test_the_commands_start(python: str, outside: Path, command: str) -> None:
    program = Path(python).with_name(command)
    done = subprocess.run([str(program), "--help"], cwd=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout
