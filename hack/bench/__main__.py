"""Measure the library and its peers over one real API server and print the figures: `make bench`.

    make bench ARGS="--objects 10000 --rounds 3 --client-go /path/to/binary"

The server comes from `KUBEBUILDER_ASSETS` (etcd and kube-apiserver). The peers, kopf and the official client,
are installed into an environment of their own. With `go` and client-go at hand the Go program beside this one
is built and measured too, or give its binary. The programs take turns, and of each the fastest run counts: what
else the machine does only ever makes a run slower.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from captf_runtime import Client
from captf_runtime.testing.real_control_plane import ControlPlaneError, RealControlPlane
from hack.bench.measurement import Measurement
from hack.bench.server import NAME, fill

FOLDER = Path(__file__).parent
LIMIT = 900.0
"""Seconds that one run of one program may take."""

KOPF_FACTOR = 8.0
CLIENT_GO_FACTOR = 1.0
CLIENT_GO_MEMORY = 0.4


@dataclass
class Program:
    """A program of the benchmark and what it has measured."""

    name: str
    command: list[str]
    runs: list[Measurement] = field(default_factory=list)

    @property
    def best(self) -> Measurement:
        """The fastest run."""
        return min(self.runs, key=lambda run: run.total_seconds)


class Unavailable(Exception):
    """A peer cannot be measured here; the text says why."""


def run(program: Program, kubeconfig: Path, count: int) -> None:
    """Run a program once.

    Raises:
        Unavailable: it failed; the text is the end of what it wrote.
    """
    command = [*program.command, "--kubeconfig", str(kubeconfig), "--namespace", NAME, "--expect", str(count)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{program.name} did not end within {LIMIT:g} s") from None
    if done.returncode != 0:
        raise Unavailable(f"{program.name} failed: {done.stderr.strip()[-400:]}")
    program.runs.append(Measurement.of_line(done.stdout.strip().splitlines()[-1]))


def python_peers(folder: Path) -> list[Program]:
    """Install the peers that are Python packages.

    Raises:
        Unavailable: they cannot be installed.
    """
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    say("installing kopf and kubernetes")
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "kopf", "kubernetes"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"pip could not install kopf and kubernetes: {done.stderr.strip()[-400:]}")
    return [
        Program(
            f"kopf {_version(python, 'kopf')}",
            [python, str(FOLDER / "peers" / "with_kopf.py")],
        ),
        Program(
            f"official client {_version(python, 'kubernetes')}",
            [python, str(FOLDER / "peers" / "official.py")],
        ),
    ]


def _version(python: str, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def go_peer(folder: Path, binary: str) -> list[Program]:
    """Find or build the program on client-go.

    Raises:
        Unavailable: there is no Go here, or no client-go for it.
    """
    if binary:
        return [Program("client-go", [binary])]
    go = shutil.which("go")
    if go is None:
        raise Unavailable("client-go is not measured: no `go` on the PATH, and no binary given (--client-go)")
    say("building the program on client-go")
    shutil.copytree(FOLDER / "clientgo", folder)
    target = folder / "clientgo"
    for step in (["mod", "init", "bench"], ["mod", "tidy"], ["build", "-o", str(target), "."]):
        done = subprocess.run([go, *step], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:]
            raise Unavailable(f"client-go is not measured: go {step[0]} failed: {''.join(last)[:200]}")
    return [Program("client-go", [str(target)])]


def table(programs: Sequence[Program]) -> str:
    """The figures as Markdown."""
    ours = programs[0].best
    lines = [
        "| | sync s | reconcile s | total s | times ours | growth MiB | times ours | requests |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for program in programs:
        best = program.best
        lines.append(
            f"| {program.name} | {best.sync_seconds:.2f} | {best.reconcile_seconds:.2f} "
            f"| {best.total_seconds:.2f} | {best.total_seconds / ours.total_seconds:.1f} "
            f"| {best.rss_mib_growth:.0f} | {best.rss_mib_growth / ours.rss_mib_growth:.1f} "
            f"| {'' if best.requests is None else best.requests} |"
        )
    return "\n".join(lines)


def verdicts(programs: Sequence[Program]) -> list[tuple[bool, str]]:
    """The figures to hold (DESIGN, section 6), for the peers that were measured."""
    ours = programs[0].best
    found: list[tuple[bool, str]] = []
    for program in programs[1:]:
        ratio = program.best.total_seconds / ours.total_seconds
        if program.name.startswith("kopf"):
            found.append(
                (ratio >= KOPF_FACTOR, f"{ratio:.1f} times faster than kopf, to hold: {KOPF_FACTOR:g}")
            )
        elif program.name == "client-go":
            growth = ours.rss_mib_growth / program.best.rss_mib_growth
            found += [
                (
                    ratio >= CLIENT_GO_FACTOR,
                    f"{ratio:.2f} times as fast as client-go, to hold: {CLIENT_GO_FACTOR:g}",
                ),
                (
                    growth <= CLIENT_GO_MEMORY,
                    f"{growth:.2f} of client-go's growth of memory, to hold: at most {CLIENT_GO_MEMORY:g}",
                ),
            ]
    return found


def queue_figures() -> list[str]:
    """The figures of the work queue."""
    from tests.bench import workqueue

    rate = max(workqueue.throughput() for _ in range(3))
    delays = min((workqueue.hand_off() for _ in range(3)), key=lambda found: found[len(found) * 99 // 100])
    slow = delays[len(delays) * 99 // 100] * 1000
    return [
        f"add, get, done with {workqueue.THREADS} threads: {rate:,.0f} a second, to hold: 50,000",
        f"hand-off, 99th percentile: {slow:.2f} ms, to hold: 5 ms",
    ]


def machine() -> str:
    """What this was measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in _lines(Path("/proc/cpuinfo"))
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} cores {model}, Python {platform.python_version()}, load {load}"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def say(text: str) -> None:
    """Report progress, apart from the result."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Measure and print; the status is 1 when a figure is not held, 2 when nothing could be measured."""
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--objects", type=int, default=10_000, help="Secrets (%(default)s)")
    parser.add_argument("--size", type=int, default=2048, help="bytes in each (%(default)s)")
    parser.add_argument("--rounds", type=int, default=6, help="runs of each program (%(default)s)")
    parser.add_argument("--client-go", default="", help="a binary of hack/bench/clientgo")
    parser.add_argument("--no-peers", action="store_true", help="measure the library only")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        ours = Program("captf_runtime", [sys.executable, str(FOLDER / "reconcile.py")])
        programs = [ours]
        if not options.no_peers:
            programs += _found(partial(python_peers, folder / "peers"))
            programs += _found(partial(go_peer, folder / "go", options.client_go))
        try:
            plane = RealControlPlane(controllers=False)
        except ControlPlaneError as error:
            say(str(error))
            return 2
        with plane:
            with Client.from_config(kubeconfig=plane.kubeconfig) as client:
                say(f"filling the server with {options.objects} Secrets")
                fill(client, options.objects, options.size)
            for number in range(options.rounds):
                say(f"round {number + 1} of {options.rounds}")
                for program in list(programs):
                    try:
                        run(program, plane.kubeconfig, options.objects)
                    except Unavailable as error:
                        say(str(error))
                        programs.remove(program)
    if ours not in programs:
        return 2
    print(f"{datetime.now(UTC):%Y-%m-%d}, {machine()}")
    print(f"{options.objects} Secrets of {options.size} bytes, the fastest of {options.rounds} runs each:\n")
    print(table(programs))
    print()
    found = verdicts(programs)
    for held, text in found:
        print(f"{'holds' if held else 'MISSED'}: {text}")
    for text in queue_figures():
        print(text)
    return 0 if all(held for held, _ in found) else 1


def _found(find: Callable[[], list[Program]]) -> list[Program]:
    """Find peers; say why when there are none."""
    try:
        return find()
    except Unavailable as error:
        say(str(error))
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
