from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from captf_controllers.runner.process import Exit, Interruption, run_child


class Running:
    """Collects a child's output and lets a test act at a certain point of it."""

    def __init__(self, tmp_path: Path, when: Callable[[Running], None] | None = None) -> None:
        self.interruption = Interruption()
        self.stdout = b""
        self.stderr = b""
        self._directory = tmp_path
        self._when = when

    def run(self, script: str, *, stop_timeout: float = 30.0, **options: object) -> Exit:
        def on_stdout(data: bytes) -> None:
            self.stdout += data
            if self._when is not None and b"ready" in self.stdout:
                when, self._when = self._when, None
                when(self)

        def on_stderr(data: bytes) -> None:
            self.stderr += data

        return run_child(
            ["/bin/sh", "-c", script],
            cwd=str(self._directory),
            env={"PATH": os.environ["PATH"]},
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            interruption=self.interruption,
            stop_timeout=stop_timeout,
            **options,  # type: ignore[arg-type]
        )


def interrupt(running: Running) -> None:
    running.interruption.begin()


def test_output_and_exit_status(tmp_path: Path) -> None:
    running = Running(tmp_path)
    ended = running.run("echo out; echo err >&2; pwd; exit 3")
    assert running.stdout.decode().split() == ["out", str(tmp_path)]
    assert running.stderr == b"err\n"
    assert (ended.code, ended.killed_by, ended.start_error, ended.recorded) == (3, None, None, 3)


def test_large_output_is_complete(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.run("head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2")
    assert (len(running.stdout), len(running.stderr)) == (3_000_000, 2_000_000)


def test_a_child_that_cannot_start(tmp_path: Path) -> None:
    ended = run_child(
        [str(tmp_path / "gone")],
        cwd=str(tmp_path),
        env={},
        on_stdout=print,
        on_stderr=print,
        interruption=Interruption(),
        stop_timeout=1,
    )
    assert ended.start_error is not None
    assert ended.start_error.errno == errno.ENOENT
    assert (ended.code, ended.recorded) == (None, 1)


def test_an_interruption_sends_one_sigterm(tmp_path: Path) -> None:
    running = Running(tmp_path, interrupt)
    ended = running.run(
        "trap 'echo term; n=$((n+1)); [ $n -gt 1 ] && exit 9' TERM; echo ready;"
        # A second signal would come with the first, or right after it.
        "while [ ! $n ]; do sleep 0.05; done; for i in 1 2 3 4 5; do sleep 0.2; done; exit $((40 + n))"
    )
    assert running.stdout == b"ready\nterm\n"
    assert ended.code == 41


def test_plugins_get_no_sigterm(tmp_path: Path) -> None:
    running = Running(tmp_path, interrupt)
    ended = running.run(
        "trap 'wait; exit 0' TERM;"
        "sh -c 'trap \"echo plugin >&2\" TERM; echo ready; sleep 0.3; echo plugin-done' & wait"
    )
    assert running.stderr == b""
    assert b"plugin-done" in running.stdout
    assert ended.code == 0


def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    running = Running(tmp_path, interrupt)
    ended = running.run("trap '' TERM; echo ready; while :; do sleep 0.1; done", stop_timeout=0.3)
    assert ended.killed_by == signal.SIGKILL
    assert ended.recorded == 1
    assert 0.3 <= ended.seconds < 60


def test_a_sheltered_child_runs_on(tmp_path: Path) -> None:
    running = Running(tmp_path, interrupt)
    assert running.run("echo ready; sleep 0.2; exit 0", sheltered=True).code == 0


def test_a_limit_kills_in_any_case(tmp_path: Path) -> None:
    assert Running(tmp_path).run("sleep 30", limit=0.1).killed_by == signal.SIGKILL


def test_a_descendant_that_keeps_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    running = Running(tmp_path)
    ended = running.run("sleep 100 & echo $!; exit 0")
    os.kill(int(running.stdout), signal.SIGKILL)  # it still runs
    assert ended.code == 0


def test_a_child_dies_with_the_runner(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from captf_controllers.runner.process import Interruption, run_child\n"
        "forward = lambda data: (sys.stdout.buffer.write(data), sys.stdout.flush())\n"
        "run_child(['/bin/sh', '-c', 'echo $$; exec sleep 60'], cwd='/', env={}, on_stdout=forward,\n"
        "          on_stderr=forward, interruption=Interruption(), stop_timeout=1)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    with subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        child = int(runner.stdout.readline())
        runner.kill()
        runner.wait()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and _is_running(child):
        threading.Event().wait(0.01)
    assert not _is_running(child)


def _is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
