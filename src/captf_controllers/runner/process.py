"""Running one command of the runtime, and stopping it.

Invariants:

- The child runs in a process group of its own, so a Ctrl-C at a terminal reaches it only through the runner.
- The child gets at most one SIGTERM in its life, to its own pid and never to its plugins: a second one makes
  the runtime abort without saving its state.
- The child does not outlive the runner: the kernel kills it when the runner dies, and a child that ignores
  its SIGTERM is killed with its whole group.
- One thread: signals, output and the end of the child all wake the same loop.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_PR_SET_PDEATHSIG = 1
_CHUNK = 1 << 16
_LONGEST_WAIT = 1.0


class Interruption:
    """The one interruption of a run: when the first SIGTERM or SIGINT came. Further ones are swallowed."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._wakeup: int | None = None

    def __bool__(self) -> bool:
        return self.since is not None

    def begin(self) -> None:
        """Marks the run interrupted, as the first signal does."""
        if self.since is None:
            self.since = time.monotonic()

    def install(self) -> None:
        """Takes over SIGTERM and SIGINT, and lets every signal wake `run_child`. For the main thread only.

        Signals that were blocked until now arrive at once.
        """
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = reader
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, self._on_child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*STOP_SIGNALS, signal.SIGCHLD})

    @property
    def wakeup(self) -> int | None:
        """The descriptor that becomes readable after a signal, once installed."""
        return self._wakeup

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.begin()

    def _on_child(self, _number: int, _frame: FrameType | None) -> None:
        """Nothing to do: the wake-up descriptor tells the loop."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child ended.

    Attributes:
        code: its exit status; None when it could not start or was killed by a signal.
        killed_by: the signal that killed it.
        start_error: why it could not start.
        seconds: how long it ran.
    """

    code: int | None
    killed_by: int | None
    start_error: OSError | None
    seconds: float

    @property
    def recorded(self) -> int:
        """The exit status for the result: 1 for a child that has none."""
        return 1 if self.code is None else self.code


def run_child(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    interruption: Interruption,
    stop_timeout: float,
    sheltered: bool = False,
    limit: float | None = None,
) -> Exit:
    """Runs one command to its end.

    Args:
        argv: the command and its arguments; no shell is involved.
        cwd: the child's working directory.
        env: the child's whole environment.
        on_stdout: receives the child's standard output in pieces, as it comes.
        on_stderr: receives its standard error.
        interruption: the run's interruption; its beginning sends the child one SIGTERM.
        stop_timeout: seconds from the interruption until the child is killed.
        sheltered: True for a command that an interruption must not stop (the rescue of an errored state);
            it is still killed `stop_timeout` seconds after the interruption.
        limit: seconds after which the child is killed in any case.

    Returns:
        How it ended. Output that the child's own children write after its end is not waited for.
    """
    started = time.monotonic()
    # An empty pipe, since an image may have no /dev/null.
    stdin, nothing = os.pipe2(os.O_CLOEXEC)
    os.close(nothing)
    try:
        child = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            preexec_fn=_die_with_parent,  # safe: the runner has one thread
        )
    except OSError as error:
        return Exit(None, None, error, time.monotonic() - started)
    except ValueError as error:  # a NUL byte in an argument or in the environment
        return Exit(None, None, OSError(0, str(error)), time.monotonic() - started)
    finally:
        os.close(stdin)
    with child, selectors.DefaultSelector() as selector:
        assert child.stdout is not None
        assert child.stderr is not None
        for stream, sink in ((child.stdout, on_stdout), (child.stderr, on_stderr)):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, sink)
        if interruption.wakeup is not None:
            selector.register(interruption.wakeup, selectors.EVENT_READ, None)
        terminated = killed = False
        while child.poll() is None:
            now = time.monotonic()
            kill_at = started + limit if limit is not None else None
            if interruption.since is not None:
                if not terminated and not sheltered:
                    child.send_signal(signal.SIGTERM)
                    terminated = True
                stop_at = interruption.since + stop_timeout
                kill_at = stop_at if kill_at is None else min(kill_at, stop_at)
            wait = _LONGEST_WAIT
            if kill_at is not None and not killed:
                wait = min(wait, max(kill_at - now, 0.0))
                if kill_at <= now:
                    _kill_group(child)
                    killed = True
                    wait = _LONGEST_WAIT
            for key, _events in selector.select(wait):
                if key.data is None:
                    _drain(key.fd)
                elif not _forward(key.fd, key.data):
                    selector.unregister(key.fileobj)
        for key in list(selector.get_map().values()):
            while key.data is not None and _forward(key.fd, key.data, at_end=True):
                pass
    seconds = time.monotonic() - started
    code = child.returncode
    return Exit(code if code >= 0 else None, -code if code < 0 else None, None, seconds)


def _die_with_parent() -> None:
    """Asks the kernel to kill this process when the runner dies; without prctl the pod's end does it."""
    prctl = getattr(_LIBC, "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()


def _forward(descriptor: int, sink: Callable[[bytes], None], *, at_end: bool = False) -> bool:
    """Passes on what can be read. False when nothing more will come: the stream has ended, or, after the end
    of the child, holds nothing now."""
    try:
        data = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return not at_end
    if data:
        sink(data)
    return bool(data)


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, _CHUNK):
            pass
    except BlockingIOError:
        return


try:
    _LIBC: ctypes.CDLL | None = ctypes.CDLL(None, use_errno=True)
except OSError:  # a statically linked interpreter has no library to open
    _LIBC = None
