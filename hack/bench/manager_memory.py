"""Measure the manager's memory: ``captf-manager`` with thousands of objects and hundreds of running Jobs.

A ``captf-manager`` process works against the embedded API server, which runs in this process. Jobs end the
moment that they are seen, as their runner would end them, with a state of ``--state-kib`` KiB each; the last
``--running`` ones do not end. Then the manager gets SIGTERM, and the time until it is gone is taken.

Prints one JSON line: ``{"objects": …, "running_jobs": …, "apply_seconds": …, "rss_peak_mib": …,
"rss_end_mib": …, "stop_seconds": …}``. Linux only: the figures come from ``/proc``.

Usage: ``python -m hack.bench.manager_memory [--objects 2000] [--running 200] [--limit-mib 512]``; exits 1 when
the peak is at or above the limit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click
from tests.world import OUTPUTS, RUNNER_IMAGE, TEAM, World

from captf_runtime.client.errors import NotFound
from captf_runtime.objects import JOB, Object, labels_of, name_of

ROOT = Path(__file__).resolve().parents[2]
KIND = "TerraformMachine"
OWNER_NAME = "captf.infrastructure.cluster.x-k8s.io/owner-name"


class Node:
    """Ends every Job of the namespace, until only ``keep`` are left to run."""

    def __init__(self, world: World, ballast: str) -> None:
        self._world = world
        self._ballast = ballast
        self._seen: set[str] = set()
        self.finished: set[str] = set()
        self.kept: set[str] = set()
        self.keep = False

    def work(self) -> int:
        """End the Jobs that are there; the number of those that are new."""
        self._world.clock.set(datetime.now(UTC))
        new = 0
        for job in self._world.client.list(JOB, TEAM).items:
            if name_of(job) in self._seen:
                continue
            self._seen.add(name_of(job))
            new += 1
            if self.keep:
                self._world.start_pod(job)
                self.kept.add(labels_of(job)[OWNER_NAME])
            else:
                self._finish(job)
        return new

    def _finish(self, job: Object) -> None:
        owner = labels_of(job)[OWNER_NAME]
        outputs = dict(OUTPUTS[KIND if owner != "prod" else "TerraformCluster"])
        if owner != "prod":
            outputs |= {"provider_id": f"noop:///{owner}", "ballast": self._ballast}
        with suppress(NotFound):
            self._world.finish_job(job, state=outputs)
        self.finished.add(owner)


def memory(pid: int, key: str) -> float:
    """A field of ``/proc/PID/status``, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise click.ClickException(f"the manager ended: no {key} of process {pid}")


def start(world: World, log: Path, flags: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Start ``captf-manager`` on the world's API server."""
    kubeconfig = log.with_suffix(".kubeconfig")
    world.server.kubeconfig(kubeconfig)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "POD_NAMESPACE": "captf-system",
        "SERVICE_ACCOUNT_NAME": "captf-controller-manager",
    }
    command = [
        *(sys.executable, "-m", "captf_controllers.cli.manager", f"--kubeconfig={kubeconfig}"),
        *(f"--runner-image={RUNNER_IMAGE}", "--health-addr=", "--diagnostics-address=", "--webhook-port=0"),
        *("--insecure-diagnostics=true", "--log-format=json"),
        *flags,
    ]
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def until(node: Node, done: int, what: str, process: subprocess.Popen[bytes], seconds: float) -> None:
    """Let the node work until it has ended (or, with ``keep``, kept) the Jobs of ``done`` objects."""
    deadline = time.monotonic() + seconds
    idle = threading.Event()
    while len(node.kept if node.keep else node.finished) < done:
        if process.poll() is not None or time.monotonic() > deadline:
            raise click.ClickException(f"{what}: {len(node.finished)} ended, {len(node.kept)} run")
        if not node.work():
            idle.wait(0.2)


@click.command()
@click.option("--objects", default=2000, help="TerraformMachines of one cluster.")
@click.option("--running", default=200, help="Jobs that run at the end.")
@click.option("--state-kib", default=16, help="Incompressible content of each state.")
@click.option("--limit-mib", default=512, help="The memory limit of the shipped Deployment.")
@click.option("--seconds", default=1800.0, help="When to give up.")
@click.option("--log", default="/tmp/captf-manager-memory.log", type=click.Path(path_type=Path))
def main(objects: int, running: int, state_kib: int, limit_mib: int, seconds: float, log: Path) -> None:
    """Measure the memory of captf-manager."""
    ballast = os.urandom(state_kib * 512).hex()
    with World(controllers=True) as world:
        world.clock.set(datetime.now(UTC))
        world.add("TerraformCluster", "prod")
        settled = objects - running
        for number in range(settled):
            world.add(KIND, f"m{number}")
        node = Node(world, ballast)
        begun = time.monotonic()
        process = start(world, log, (f"--max-active-jobs={max(running, 200)}", "--cluster-max-active-jobs=0"))
        try:
            until(node, settled + 1, "applies", process, seconds)
            applied = time.monotonic() - begun
            node.keep = True
            for number in range(settled, objects):
                world.add(KIND, f"m{number}")
            until(node, running, "running Jobs", process, seconds)
            peak, end = memory(process.pid, "VmHWM"), memory(process.pid, "VmRSS")
            begun = time.monotonic()
            process.terminate()
            status = process.wait(timeout=60)
            stopped = time.monotonic() - begun
        finally:
            process.kill()
            process.wait()
    figures = {
        "objects": objects,
        "running_jobs": running,
        "apply_seconds": round(applied, 1),
        "rss_peak_mib": round(peak, 1),
        "rss_end_mib": round(end, 1),
        "stop_seconds": round(stopped, 2),
    }
    click.echo(json.dumps(figures))
    if status != 0:
        raise click.ClickException(f"the manager ended with status {status} after SIGTERM; its log: {log}")
    if peak >= limit_mib:
        raise click.ClickException(f"the peak of {peak:.0f} MiB is not below {limit_mib} MiB")


if __name__ == "__main__":
    main()
