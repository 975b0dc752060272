"""Measure the manager's memory: ``captf-manager`` with thousands of objects and hundreds of running Jobs.

A ``captf-manager`` process works against the embedded API server, which runs in this process. The objects are
the machines of one cluster in each of ``--namespaces`` namespaces. Jobs end the moment that they are seen, as
their runner would end them, with a state of ``--state-kib`` KiB each; the last ``--running`` ones do not end.
Then the manager gets SIGTERM: it must end within its grace period, leave the election lease to the next one and
let the Jobs run on.

Prints one JSON line: ``{"objects": …, "running_jobs": …, "apply_seconds": …, "rss_peak_mib": …,
"rss_end_mib": …, "stop_seconds": …, "lease_released": …, "jobs_run_on": …}``. Linux only: the figures come from
``/proc``.

Usage: ``python -m hack.bench.manager_memory [--objects 2000] [--running 200] [--limit-mib 512]``; exits 1 when
the peak is at or above the limit, or when the stop is not as above.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import click
from tests.world import OPERATOR, OUTPUTS, RUNNER_IMAGE, TEAM, World

from captf_runtime.cache import Cache
from captf_runtime.client.errors import NotFound
from captf_runtime.controller import Context, Controller, Request
from captf_runtime.objects import JOB, LEASE, NAMESPACE, Object, ObjectKey, labels_of, uid_of
from captf_runtime.testing.running_manager import RunningManager

ROOT = Path(__file__).resolve().parents[2]
KIND = "TerraformMachine"
OWNER_NAME = "captf.infrastructure.cluster.x-k8s.io/owner-name"
OWNER_KIND = "captf.infrastructure.cluster.x-k8s.io/owner-kind"
CLUSTER = "prod"
TICK_SECONDS = 0.2
GRACE_SECONDS = 30.0  # terminationGracePeriodSeconds of the shipped Deployment


class Node:
    """Ends every Job once, until only ``keep`` are left to run; a reconciler, so that it need not list them."""

    def __init__(self, world: World, cache: Cache, ballast: str) -> None:
        self._world = world
        self._cache = cache
        self._ballast = ballast
        self._seen: set[str] = set()
        self.finished: set[ObjectKey] = set()
        self.kept: set[ObjectKey] = set()
        self.keep = False

    def reconcile(self, ctx: Context, request: Request) -> None:
        """Look at one Job."""
        try:
            job = self._cache.get(JOB, request.name, request.namespace)
        except NotFound:
            return
        if uid_of(job) in self._seen:
            return
        owner = ObjectKey(request.namespace, labels_of(job)[OWNER_NAME])
        if self.keep:
            self._world.start_pod(job)
            self.kept.add(owner)
        else:
            with suppress(NotFound):
                self._world.finish_job(job, state=self._outputs(owner.name, labels_of(job)[OWNER_KIND]))
            self.finished.add(owner)
        self._seen.add(uid_of(job))

    def _outputs(self, name: str, kind: str) -> Object:
        if kind != KIND:
            return dict(OUTPUTS[kind])
        return {**OUTPUTS[kind], "provider_id": f"noop:///{name}", "ballast": self._ballast}


def memory(pid: int, key: str) -> float:
    """A field of ``/proc/PID/status``, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise click.ClickException(f"the manager ended: no {key} of process {pid}")


def start(world: World, folder: Path, log: Path, flags: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Start ``captf-manager`` on the world's API server."""
    kubeconfig = folder / "manager.kubeconfig"
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
        *("--insecure-diagnostics=true", "--log-format=json", "--leader-elect=true"),
        *flags,
    ]
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def until(
    world: World,
    found: set[ObjectKey],
    done: int,
    what: str,
    process: subprocess.Popen[bytes],
    seconds: float,
) -> None:
    """Wait until ``found`` has ``done`` owners; the world's time goes on meanwhile."""
    deadline = time.monotonic() + seconds
    idle = threading.Event()
    while len(found) < done:
        if process.poll() is not None or time.monotonic() > deadline:
            raise click.ClickException(f"{what}: {len(found)} of {done}")
        world.clock.set(datetime.now(UTC))
        idle.wait(TICK_SECONDS)


def unfinished(world: World) -> int:
    """How many Jobs run."""
    jobs = world.client.list(JOB).items
    return sum(not (job.get("status") or {}).get("conditions") for job in jobs)


@click.command()
@click.option("--objects", default=2000, help="TerraformMachines.")
@click.option("--running", default=200, help="Jobs that run at the end.")
@click.option("--namespaces", default=10, help="Over which the objects are spread, with one cluster in each.")
@click.option("--state-kib", default=16, help="Incompressible content of each state.")
@click.option("--limit-mib", default=512, help="The memory limit of the shipped Deployment.")
@click.option("--seconds", default=1800.0, help="When to give up.")
@click.option(
    "--log", type=click.Path(path_type=Path), help="The manager's log; without it, a temporary file."
)
def main(
    objects: int,
    running: int,
    namespaces: int,
    state_kib: int,
    limit_mib: int,
    seconds: float,
    log: Path | None,
) -> None:
    """Measure the memory of captf-manager."""
    ballast = os.urandom(state_kib * 512).hex()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="captf-manager-memory-")))
        world = stack.enter_context(World(controllers=True))
        world.clock.set(datetime.now(UTC))
        teams = [f"{TEAM}-{number}" for number in range(namespaces)]
        for team in teams:
            world.create(NAMESPACE, {"metadata": {"name": team}})
            world.add("TerraformCluster", CLUSTER, namespace=team)
        settled = objects - running
        for number in range(settled):
            world.add(KIND, f"m{number}", namespace=teams[number % namespaces])
        jobs = stack.enter_context(RunningManager(world.client))
        node = Node(world, jobs.cache, ballast)
        jobs.add(Controller("node", for_=JOB, reconciler=node, cache=jobs.cache, concurrency=2))
        jobs.start()
        begun = time.monotonic()
        flags = (f"--max-active-jobs={max(running, 200)}", "--cluster-max-active-jobs=0")
        process = start(world, folder, log or folder / "manager.log", flags)
        try:
            until(world, node.finished, settled + namespaces, "applies", process, seconds)
            applied = time.monotonic() - begun
            node.keep = True
            for number in range(settled, objects):
                world.add(KIND, f"m{number}", namespace=teams[number % namespaces])
            until(world, node.kept, running, "running Jobs", process, seconds)
            peak, end = memory(process.pid, "VmHWM"), memory(process.pid, "VmRSS")
            begun = time.monotonic()
            process.terminate()
            status = process.wait(timeout=60)
            stopped = time.monotonic() - begun
        finally:
            process.kill()
            process.wait()
        holders = [lease["spec"].get("holderIdentity") for lease in world.client.list(LEASE, OPERATOR).items]
        run_on = unfinished(world)
    figures = {
        "objects": objects,
        "running_jobs": running,
        "apply_seconds": round(applied, 1),
        "rss_peak_mib": round(peak, 1),
        "rss_end_mib": round(end, 1),
        "stop_seconds": round(stopped, 2),
        "lease_released": len(holders) == 1 and not holders[0],
        "jobs_run_on": run_on,
    }
    click.echo(json.dumps(figures))
    if status != 0:
        raise click.ClickException(
            f"the manager ended with status {status} after SIGTERM; --log keeps its log"
        )
    if stopped > GRACE_SECONDS:
        raise click.ClickException(f"the manager took {stopped:.1f} s to end, more than {GRACE_SECONDS:.0f}")
    if not figures["lease_released"]:
        raise click.ClickException(f"the election lease was not released: held by {holders}")
    if run_on < running:
        raise click.ClickException(f"{run_on} Jobs run on, not {running}")
    if peak >= limit_mib:
        raise click.ClickException(f"the peak of {peak:.0f} MiB is not below {limit_mib} MiB")


if __name__ == "__main__":
    main()
