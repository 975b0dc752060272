"""What the tests with the real runtime share: a stage for each module, a scene for each test."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hack.tour.stage import MODULES, Stage, find_runtime
from tests.e2e import scene as scenes
from tests.e2e.cloud import Cloud
from tests.e2e.scene import Scene

from captf_runtime.testing.real_control_plane import RealControlPlane

ADDITIONS = Path(__file__).with_name("modules")
QUICK_RUNTIME = Path(__file__).with_name("quick_runtime.py")
LARGE_CLUSTER = "example.com/tests/large-cluster:v1"
LEAKING_MACHINE = "example.com/tests/leaking-machine:v1"
#: Modules with a runtime that only writes the state, in a tenth of the time that a real one takes.
QUICK_CLUSTER = "example.com/tests/quick-cluster:v1"
QUICK_MACHINE = "example.com/tests/quick-machine:v1"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a runtime, tests marked `terraform` are skipped, visibly; in CI they fail."""
    if item.get_closest_marker("terraform") is None or shutil.which("terraform") or shutil.which("tofu"):
        return
    if os.environ.get("CI"):
        pytest.fail("needs terraform or tofu on the PATH, which must be there in CI")
    pytest.skip("needs terraform or tofu on the PATH")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Module folders by image reference: the example modules with additions."""
    built: dict[str, Path] = {}
    for reference, role, additions in (
        (scenes.CLOUD_CLUSTER, "cluster", ["servers.tf"]),
        (scenes.CLOUD_MACHINE, "machine", ["servers.tf"]),
        (LARGE_CLUSTER, "cluster", ["ballast.tf", "exports_override.tf"]),
        (LEAKING_MACHINE, "machine", ["leak.tf"]),
        (QUICK_CLUSTER, "cluster", []),
        (QUICK_MACHINE, "machine", []),
    ):
        folder = tmp_path_factory.mktemp("images") / role
        shutil.copytree(MODULES / role, folder)
        for name in additions:
            shutil.copy(ADDITIONS / name, folder)
        built[reference] = folder
    return built


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runtimes of images that have one of their own."""
    quick = tmp_path_factory.mktemp("runtimes") / "quick"
    quick.write_text(f"#!{sys.executable} -IS\n" + QUICK_RUNTIME.read_text())
    quick.chmod(0o755)
    return {QUICK_CLUSTER: quick, QUICK_MACHINE: quick}


@pytest.fixture(scope="module")
def embedded_stage(images: dict[str, Path], runtimes: dict[str, Path]) -> Iterator[Stage]:
    """A stage on an embedded API server, shared by a module; no manager runs unless a test starts one."""
    with Stage(runtime=find_runtime(), modules=images, runtimes=runtimes) as stage:
        yield stage
        assert refused(stage) == []


def refused(stage: Stage) -> list[str]:
    """What the manager's role did not allow, as its log tells; a namespace that is going refuses otherwise."""
    return [line for line in stage.manager_log().splitlines() if 'is forbidden: User "' in line]


@pytest.fixture(scope="module")
def real_stage(
    images: dict[str, Path], runtimes: dict[str, Path], real_control_plane: RealControlPlane
) -> Iterator[Stage]:
    """The same on a real API server."""
    with Stage(
        runtime=find_runtime(), modules=images, runtimes=runtimes, kubeconfig=real_control_plane.kubeconfig
    ) as stage:
        yield stage
        assert refused(stage) == []


@pytest.fixture
def embedded(embedded_stage: Stage) -> Stage:
    """The stage on the embedded API server."""
    return embedded_stage


@pytest.fixture(params=["embedded_stage", pytest.param("real_stage", marks=pytest.mark.real_apiserver)])
def stage(request: pytest.FixtureRequest) -> Stage:
    """A stage on each API server in turn."""
    found: Stage = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def scene(stage: Stage, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A namespace and a cloud of its own on each API server, with a manager that runs."""
    yield from open_scene(stage, tmp_path, request)


@pytest.fixture
def local_scene(embedded: Stage, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A namespace and a cloud of its own on the embedded API server, with a manager that runs."""
    yield from open_scene(embedded, tmp_path, request)


def open_scene(stage: Stage, folder: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Start the manager if none runs and make the namespace, called like the test."""
    if stage.manager is None:
        stage.start_manager()
    title = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:40]
    namespace = f"{title}-{sha256(request.node.nodeid.encode()).hexdigest()[:6]}"
    scene = Scene(stage, namespace, Cloud(folder / "cloud"))
    scene.prepare()
    yield scene
    stage.check_manager()
    scene.clear()
