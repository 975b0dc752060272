"""A look into a running process: stacks of its threads, what is allocated, where the time goes."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final
from urllib.parse import parse_qs
from wsgiref.types import StartResponse

from ..serving.server import text_answer
from ..threads import stack_of

__all__ = ["Profiler"]

PREFIX: Final = "/debug/pprof/"
INTERVAL: Final = 0.01
DEFAULT_SECONDS: Final = 30.0
MAX_SECONDS: Final = 300.0
_LISTED: Final = 50
_INDEX: Final = f"""\
{PREFIX}goroutine           stacks of all threads (also {PREFIX}threads)
{PREFIX}heap                objects by type; ?seconds=N: what was allocated in N seconds and is still there
{PREFIX}profile?seconds=N   where the threads were in N seconds (default {DEFAULT_SECONDS:g}), as folded stacks
"""


class _BadQuery(Exception):
    """A query that cannot be answered."""


class Profiler:
    """Answers under `/debug/pprof/` (WSGI). One measurement runs at a time; `stop` ends it early."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop if stop is not None else threading.Event()
        self._measuring = threading.Lock()

    def stop(self) -> None:
        """End a measurement that is running."""
        self._stop.set()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return text_answer(
                start_response, "405 Method Not Allowed", b"only GET\n", headers=[("Allow", "GET")]
            )
        path = str(environ.get("PATH_INFO", ""))
        query = parse_qs(str(environ.get("QUERY_STRING", "")))
        text: str | None
        try:
            match path.removeprefix(PREFIX):
                case "" | "/debug/pprof":
                    text = _INDEX
                case "goroutine" | "threads":
                    text = _stacks()
                case "heap" if "seconds" in query:
                    text = self._alone(lambda: self._growth(_seconds(query)))
                case "heap":
                    text = _objects()
                case "profile":
                    text = self._alone(lambda: self._profile(_seconds(query)))
                case _:
                    return text_answer(start_response, "404 Not Found", b"no such profile\n")
        except _BadQuery as error:
            return text_answer(start_response, "400 Bad Request", f"{error}\n".encode())
        if text is None:
            return text_answer(start_response, "409 Conflict", b"another measurement is running\n")
        return text_answer(start_response, "200 OK", text.encode())

    def _alone(self, measure: Callable[[], str]) -> str | None:
        if not self._measuring.acquire(blocking=False):
            return None
        try:
            return measure()
        finally:
            self._measuring.release()

    def _profile(self, seconds: float) -> str:
        samples: Counter[str] = Counter()
        own = threading.get_ident()
        for _ in range(max(1, round(seconds / INTERVAL))):
            if self._stop.wait(INTERVAL):
                break
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if ident != own:
                    samples[f"{names.get(ident, 'unknown')};{_folded(frame)}"] += 1
        return "".join(f"{stack} {count}\n" for stack, count in samples.most_common())

    def _growth(self, seconds: float) -> str:
        started = not tracemalloc.is_tracing()
        if started:
            tracemalloc.start()
        try:
            before = tracemalloc.take_snapshot()
            self._stop.wait(seconds)
            differences = tracemalloc.take_snapshot().compare_to(before, "lineno")
        finally:
            if started:
                tracemalloc.stop()
        return "".join(f"{difference}\n" for difference in differences[:_LISTED])


def _seconds(query: dict[str, list[str]]) -> float:
    text = query.get("seconds", [f"{DEFAULT_SECONDS:g}"])[-1]
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_SECONDS:
        raise _BadQuery(f"seconds: must be a number above 0 and at most {MAX_SECONDS:g}")
    return seconds


def _stacks() -> str:
    parts = []
    for thread in sorted(threading.enumerate(), key=lambda thread: thread.name):
        parts.append(f"{thread.name} (daemon: {thread.daemon})\n{stack_of(thread)}\n")
    return "\n".join(parts)


def _folded(frame: FrameType | None) -> str:
    calls: list[str] = []
    while frame is not None:
        code = frame.f_code
        calls.append(f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})")
        frame = frame.f_back
    return ";".join(reversed(calls))


def _objects() -> str:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for obj in gc.get_objects():
        name = f"{type(obj).__module__}.{type(obj).__qualname__}"
        counts[name] += 1
        sizes[name] += sys.getsizeof(obj, 0)
    lines = [
        f"memory blocks: {sys.getallocatedblocks()}",
        f"objects: {sum(counts.values())}, their own size: {sum(sizes.values())} bytes",
        "",
        f"{'bytes':>12} {'count':>9}  type",
    ]
    lines += [f"{size:>12} {counts[name]:>9}  {name}" for name, size in sizes.most_common(_LISTED)]
    return "\n".join(lines) + "\n"
