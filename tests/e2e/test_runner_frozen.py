"""The self-contained runner in a tree that holds nothing but it, /proc, a writable /tmp and the runtime.

Build it with `make runner`; `CAPTF_RUNNER` names another file. Set `CAPTF_REQUIRE_RUNNER` to fail instead of
skipping where it is missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.e2e.module_image import EXAMPLES, REPOSITORY, contract_inputs, render
from tests.unit.fake_runtime import FakeImage

RUNNER = Path(os.environ.get("CAPTF_RUNNER", REPOSITORY / "dist" / "captf-runner"))
COPY_MEMORY = 64 << 20


def unavailable(reason: str) -> NoReturn:
    if os.environ.get("CAPTF_REQUIRE_RUNNER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def runner() -> Path:
    if not RUNNER.exists():
        unavailable(f"no self-contained runner at {RUNNER}: build it with make runner")
    return RUNNER


@dataclass(frozen=True, slots=True)
class Tree:
    """A root directory as a module image without a system has it."""

    root: Path

    @property
    def result(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.root / "tmp" / "result").read_bytes())
        return document

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts the runner with this tree as its root directory, as process 1 of its own, without rights."""
        command = 'mount -t proc proc "$0/proc" && exec chroot --userspec=65532:65532 "$0" "$@"'
        return subprocess.Popen(
            [
                *("unshare", "--mount", "--pid", "--fork", "sh", "-c", command, str(self.root)),
                *("/captf/bin/runner", "--log-format=text", *arguments),
            ],
            env={"PATH": os.environ["PATH"], "TMPDIR": "/tmp", "HOME": "/captf/work", "TF_INPUT": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        stdout, stderr = process.communicate(timeout=180)
        return process.returncode, stdout, stderr


@pytest.fixture
def tree(tmp_path: Path, runner: Path) -> Tree:
    if os.geteuid() != 0:
        unavailable("changing the root directory needs root")
    if subprocess.run(["unshare", "--mount", "--pid", "true"], check=False, capture_output=True).returncode:
        unavailable("this machine does not allow new mount and process namespaces")
    terraform = shutil.which("terraform") or shutil.which("tofu")
    assert terraform is not None
    for name in ("captf/bin", "captf/module", "captf/config", "captf/work", "proc", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(runner, tmp_path / "captf" / "bin" / "runner")
    shutil.copy(terraform, tmp_path / "captf" / "runtime")
    shutil.copy(EXAMPLES / "cluster" / "main.tf", tmp_path / "captf" / "module")
    values = contract_inputs("cluster")
    main = render("cluster", values, {"local": {"path": "/tmp/state"}})
    (tmp_path / "captf" / "config" / "main.tf.json").write_text(json.dumps(main))
    (tmp_path / "captf" / "config" / "terraform.tfvars.json").write_text(json.dumps(values))
    tmp_path.chmod(0o755)
    for name in ("captf/work", "tmp"):
        os.chown(tmp_path / name, 65532, 65532)
    return Tree(tmp_path)


@pytest.mark.terraform
def test_it_needs_nothing_of_the_image(tree: Tree) -> None:
    for op in ("apply", "refresh", "drift", "destroy"):
        exit, _, stderr = tree.run("run", f"--op={op}", "--result=/tmp/result")
        assert (exit, tree.result["error"]) == (0, None), stderr
    assert tree.result["changes"] == {"add": 0, "change": 0, "destroy": 1}
    left = sorted(path.name for path in (tree.root / "tmp").iterdir() if not path.name.startswith("state"))
    assert left == ["result"], "what it unpacked must be gone"


@pytest.mark.terraform
def test_as_process_1_it_passes_a_signal_on_once(tree: Tree) -> None:
    state = tree.root / "tmp" / "state"
    assert tree.run("run", "--op=apply", "--result=/tmp/result")[0] == 0
    # The runtime waits for the lock of the state, so the signal arrives in the middle of a step; it waits only for one
    # who says who it is.
    (tree.root / "tmp" / ".state.lock.info").write_text(json.dumps({"ID": "1", "Who": "the test"}))
    with state.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        process = tree.start("run", "--op=destroy", "--result=/tmp/result", "--lock-timeout=60s")
        assert process.stderr is not None
        for line in process.stderr:
            if 'step started step="destroy"' in line:
                break
        wait_until(lambda: waits_for(process.pid, state))
        os.kill(child_of(process.pid), signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
        fcntl.lockf(file, fcntl.LOCK_UN)
    assert tree.result["error"]["kind"] == "interrupted", stderr
    assert tree.result["steps"][-1] == {"name": "destroy", "exit": 1, "seconds": pytest.approx(0, abs=50)}


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def descendants(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def waits_for(pid: int, state: Path) -> bool:
    """Whether a process beneath another has the state open, whose lock it tries to get again and again."""
    found = []
    for process in descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += [entry.stat() for entry in Path(f"/proc/{process}/fd").iterdir()]
    return any((entry.st_dev, entry.st_ino) == (state.stat().st_dev, state.stat().st_ino) for entry in found)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_it_copies_itself_within_the_memory_of_the_init_container(tmp_path: Path, runner: Path) -> None:
    copy = tmp_path / "runner"
    # A small process starts it, since what a process held before it became another program counts, too.
    measured = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )
    command = [sys.executable, "-S", "-c", measured, str(runner), "copy", str(copy)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(process.stdout) < COPY_MEMORY
    assert copy.read_bytes() == runner.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o755
    assert subprocess.run([copy, "version"], check=True, capture_output=True, text=True).stdout.startswith(
        "captf"
    )


def test_the_runtime_sees_no_trace_of_the_bootstrap(tmp_path: Path, runner: Path) -> None:
    image = FakeImage(tmp_path)
    arguments = [str(runner), *image.arguments("refresh")[3:]]
    environ = {**image.environ, "LD_LIBRARY_PATH": "/mine", "A": "1"}
    subprocess.run(arguments, env=environ, check=True, capture_output=True)
    seen = image.environment_of("init")
    assert set(seen) - {"PWD", "SHLVL", "_", "OLDPWD"} == {*environ, "HOME", "TF_DATA_DIR", "TMPDIR"}
    assert seen["LD_LIBRARY_PATH"] == "/mine"
