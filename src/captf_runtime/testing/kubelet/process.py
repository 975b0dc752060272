"""The processes of a container: started, signalled and, in the end, gone for certain.

A container's main process leads a session of its own. Its descendants may leave the session or the process
group, so every process also carries a mark in its environment, by which it is found where the system shows
the environments of processes (Linux). Where it does not, the process group is what is killed. On Linux the
main process is also killed by the kernel when this process ends without having stopped it.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["MARK", "ContainerProcess", "StartError", "find_executable"]

MARK = "LOCAL_KUBELET_CONTAINER"
"""Environment variable whose value is unique to one run of one container."""

# Runs as the container's process until it becomes the container's program: asks the kernel to kill it when its
# parent, the thread that waits for it, is gone, and takes the pod's name where it has a name of its own.
_ENTER = """
import os, signal, sys
name, executable, *arguments = sys.argv[1:]
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
except (ImportError, OSError, AttributeError):
    pass
try:
    if name:
        import socket
        socket.sethostname(name)
    os.execve(executable, arguments, os.environ)
except OSError as error:
    sys.exit(f"exec: {executable}: {error.strerror}")
"""
_PROBED_NAME = "local-kubelet-probe"
_KILL_SECONDS = 5.0
_PROC = Path("/proc")
_LINUX = sys.platform.startswith("linux")


class StartError(Exception):
    """The main process could not be started; the message says why, in terms of the container."""


def find_executable(command: str, search_path: str, directory: Path) -> str | None:
    """Return the file that a command names: a path (from `directory`), or a name on the search path."""
    if "/" in command:
        candidate = directory / command
        return str(candidate) if candidate.is_file() and os.access(candidate, os.X_OK) else None
    return shutil.which(command, path=search_path)


def _enter() -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _ENTER]


@functools.cache
def _separate_name() -> tuple[str, ...] | None:
    """The command that gives what it runs a host name of its own; None where that is not permitted."""
    unshare = shutil.which("unshare")
    if unshare is None or not _LINUX:
        return None
    show = [sys.executable, sys.executable, "-c", "import socket; print(socket.gethostname())"]
    for options in (["--uts"], ["--user", "--map-root-user", "--uts"]):
        prefix = (unshare, *options, "--")
        try:
            probe = subprocess.run(
                [*prefix, *_enter(), _PROBED_NAME, *show],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if probe.returncode == 0 and probe.stdout.strip() == _PROBED_NAME:
            return prefix
    return None


def _command(executable: str, arguments: Sequence[str], host_name: str) -> list[str]:
    """What to start so that it becomes the program, prepared as far as this machine allows."""
    if not _LINUX:
        return list(arguments)
    prefix = _separate_name()
    name = host_name if prefix is not None else ""
    return [*(prefix or ()), *_enter(), name, executable, *arguments]


class ContainerProcess:
    """One run of a container.

    Args:
        arguments: the argument vector, all paths local; the first is found on the PATH of `environment` when
            it has no slash.
        environment: the whole environment.
        directory: working directory.
        log_file: receives standard output and error; its directory exists.
        mark: unique to this run.
        host_name: what the process should see as its host name, where this machine permits it.
        on_exit: called once, from a thread of its own, when the main process has ended.

    Raises:
        StartError: the command does not exist or cannot be executed.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        directory: Path,
        log_file: Path,
        mark: str,
        host_name: str,
        on_exit: Callable[[], None],
    ) -> None:
        if not arguments:
            raise StartError("no command specified")
        executable = find_executable(arguments[0], environment.get("PATH", ""), directory)
        if executable is None:
            raise StartError(f'exec: "{arguments[0]}": no executable of this name')
        self._mark = mark
        self._on_exit = on_exit
        command = _command(executable, arguments, host_name)
        with open(log_file, "ab") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    executable=None if _LINUX else executable,
                    env={**environment, MARK: mark},
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                # ValueError: a NUL in an argument. Neither message holds a value of the environment.
                raise StartError(f'exec: "{arguments[0]}": {error}') from error
        self._waiter = threading.Thread(target=self._wait, name=f"container-{self._process.pid}", daemon=True)
        self._waiter.start()

    @property
    def pid(self) -> int:
        """Process id of the main process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the main process runs; 128 + n when signal n ended it."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def terminate(self) -> None:
        """Send SIGTERM to the main process alone, as a container runtime does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every process of the container at once and wait until none is left (at most some seconds)."""
        deadline = time.monotonic() + _KILL_SECONDS
        while True:
            self._signal_group()
            rest = _marked(self._mark)
            for pid in rest:
                _kill(pid)
            if self._process.poll() is not None and not rest:
                break
            if time.monotonic() > deadline:
                break
            try:
                self._process.wait(0.02)
            except subprocess.TimeoutExpired:
                pass
            else:
                if rest:
                    time.sleep(0.01)  # the killed ones vanish when their parent or init collects them
        self._waiter.join(_KILL_SECONDS)

    def _signal_group(self) -> None:
        if self._process.poll() is not None and _PROC.is_dir():
            return  # the group's id may have been given to another by now; the marks find what is left
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def _wait(self) -> None:
        self._process.wait()
        self._on_exit()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _marked(mark: str) -> list[int]:
    """Return the processes (zombies excepted) that bear the mark; empty where environments are not shown."""
    wanted = f"{MARK}={mark}".encode()
    found: list[int] = []
    if not _PROC.is_dir():
        return found
    own = os.getpid()
    for entry in os.scandir(_PROC):
        if not entry.name.isdigit() or int(entry.name) == own:
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as stream:
                environment = stream.read()
        except OSError:
            continue  # ended meanwhile, or of another user
        if wanted in environment.split(b"\0"):
            found.append(int(entry.name))
    return found
