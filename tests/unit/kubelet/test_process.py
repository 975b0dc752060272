"""Processes of containers: exit codes, signals, and that nothing survives a kill."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.processes import is_alive

from captf_runtime.testing.kubelet import process
from captf_runtime.testing.kubelet.logs import LogDirectory
from captf_runtime.testing.kubelet.process import ContainerProcess, StartError

WAIT = 60.0


class Started:
    def __init__(self, process: ContainerProcess, ended: threading.Event, log: Path) -> None:
        self.process, self.ended, self.log = process, ended, log


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    serial = iter(range(100))

    def run(*arguments: str, **environment: str) -> Started:
        number = next(serial)
        ended, log = threading.Event(), tmp_path / f"{number}.log"
        container = ContainerProcess(
            arguments,
            {"PATH": os.environ["PATH"], **environment},
            directory=tmp_path,
            log_file=log,
            mark=f"{tmp_path}-{number}",
            host_name="the-pod",
            on_exit=ended.set,
        )
        return Started(container, ended, log)

    return run


def shell(script: str) -> tuple[str, str, str]:
    return ("sh", "-c", script)


def wait_for(path: Path) -> str:
    """Wait until the file has a line, and return it."""
    deadline = threading.Event()
    for _ in range(6000):
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text().strip()
        deadline.wait(0.01)
    raise AssertionError(f"{path} was not written")


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_that_of_the_main_process(start: Start, code: int) -> None:
    started = start(*shell(f"echo out; echo err >&2; exit {code}"))
    assert started.ended.wait(WAIT)
    assert started.process.exit_code == code
    assert sorted(started.log.read_text().split()) == ["err", "out"]


def test_terminate_reaches_the_main_process_alone(start: Start, tmp_path: Path) -> None:
    started = start(
        *shell(
            "trap 'echo got; exit 7' TERM;"
            " sh -c 'trap \"echo child\" TERM; echo up; while :; do sleep 0.05; done' & wait"
        )
    )
    wait_for(started.log)
    started.process.terminate()
    assert started.ended.wait(WAIT)
    assert started.process.exit_code == 7
    started.process.kill()
    assert "child" not in started.log.read_text()
    assert "got" in started.log.read_text()


def test_a_signal_shows_as_128_and_its_number(start: Start) -> None:
    started = start(*shell("echo up; exec sleep 60"))
    wait_for(started.log)
    started.process.kill()
    assert started.process.exit_code == 137


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs a system that shows environments")
def test_a_kill_reaches_descendants_in_sessions_of_their_own(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    started = start(*shell(f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 60' & wait"))
    pid = int(wait_for(pid_file))
    started.process.kill()
    assert started.process.exit_code == 137
    assert not is_alive(pid)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs a system that shows environments")
def test_a_kill_after_the_end_ends_what_was_left_behind(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    started = start(*shell(f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 60' & exit 0"))
    pid = int(wait_for(pid_file))
    assert started.ended.wait(WAIT)
    started.process.kill()
    assert not is_alive(pid)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the kernel of Linux")
def test_the_main_process_does_not_outlive_a_killed_kubelet(tmp_path: Path) -> None:
    program = (
        "import os, sys, threading\n"
        "from pathlib import Path\n"
        "from captf_runtime.testing.kubelet.process import ContainerProcess\n"
        "directory = Path(sys.argv[1])\n"
        "process = ContainerProcess(['sh', '-c', 'echo $$; exec sleep 60'], {'PATH': os.environ['PATH']},"
        " directory=directory, log_file=directory / 'log', mark='m', host_name='h', on_exit=lambda: None)\n"
        "threading.Event().wait()\n"
    )
    source = Path(__file__).resolve().parents[3] / "src"
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), *sys.path])},
    )
    child = int(wait_for(tmp_path / "log"))
    parent.kill()
    parent.wait()
    pause = threading.Event()
    for _ in range(6000):
        if not is_alive(child):
            return
        pause.wait(0.01)
    raise AssertionError("the container's process runs on")


def test_a_machine_that_permits_no_host_names(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_separate_name", lambda: None)
    started = start(sys.executable, "-c", "import socket; print(socket.gethostname())")
    assert started.ended.wait(WAIT)
    assert started.process.exit_code == 0
    assert started.log.read_text().strip() == socket.gethostname()


def test_signals_have_their_default_meaning(start: Start) -> None:
    started = start(*shell("yes | head -n 1"))
    assert started.ended.wait(WAIT)
    assert started.log.read_text() == "y\n", "a writer into a closed pipe ends without a complaint"


def test_the_environment_is_only_what_was_given(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_TEST", "x")
    started = start("env", GIVEN="y")
    assert started.ended.wait(WAIT)
    names = {line.partition("=")[0] for line in started.log.read_text().splitlines()}
    assert "GIVEN" in names
    assert "SECRET_OF_THE_TEST" not in names


@pytest.mark.parametrize(
    "arguments", [(), ("no-such-program-anywhere",), ("./missing",), ("/",), ("sh", "nul\0nul")]
)
def test_what_cannot_start_says_so(start: Start, arguments: tuple[str, ...]) -> None:
    with pytest.raises(StartError):
        start(*arguments)


def test_a_program_is_found_on_the_path_given(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "program"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    started = start("program", PATH=f"{program.parent}:{os.environ['PATH']}")
    assert started.ended.wait(WAIT)
    assert started.log.read_text() == "found\n"


def test_logs_by_container_run_and_size(tmp_path: Path) -> None:
    logs = LogDirectory(tmp_path)
    first = logs.file("ns", "pod", "u1", "main", 0)
    first.write_bytes(b"one\ntwo\nthree\n")
    assert logs.latest("ns", "pod", "main") == first
    assert logs.latest("ns", "po", "main") is None
    assert logs.latest("ns", "pod", "main", previous=True) is None
    second = logs.file("ns", "pod", "u1", "main", 1)
    second.write_bytes(b"four")
    assert logs.latest("ns", "pod", None) == second
    assert logs.latest("ns", "pod", "main", previous=True) == first

    def read(path: Path, tail_lines: int | None = None, limit_bytes: int | None = None) -> bytes:
        return b"".join(logs.read(path, tail_lines=tail_lines, limit_bytes=limit_bytes))

    assert read(first) == b"one\ntwo\nthree\n"
    assert read(first, tail_lines=2) == b"two\nthree\n"
    assert read(first, tail_lines=9) == b"one\ntwo\nthree\n"
    assert read(first, tail_lines=0) == b""
    assert read(second, tail_lines=1) == b"four"
    assert read(first, limit_bytes=5) == b"one\nt"
    long = logs.file("ns", "long", "u2", "main", 0)
    long.write_bytes(b"".join(b"line %d\n" % number for number in range(30_000)))
    assert read(long, tail_lines=20_000).splitlines()[0] == b"line 10000"


def test_a_followed_log_goes_on_until_its_growth_ends(tmp_path: Path) -> None:
    path = LogDirectory(tmp_path).file("ns", "pod", "u1", "main", 0)
    path.write_bytes(b"first\n")
    asked = 0

    def growing() -> bool:
        nonlocal asked
        asked += 1
        if asked == 4:
            with path.open("ab") as stream:
                stream.write(b"last\n")
        return asked < 4

    assert b"".join(LogDirectory.read(path, growing=growing)) == b"first\nlast\n"
