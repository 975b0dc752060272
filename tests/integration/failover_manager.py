"""A manager in a process of its own, whose work shows on the API server who did it and when.

The work is one reconcile after another over a single ConfigMap, the fencing record: each writes `begin` and then
`end` into it, together with the identity of the manager. Every write carries the version that was read, so that
what a manager writes is accepted only while nobody else has written in between.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

from captf_runtime import Cache, Client, Context, Controller, LeaderElectionConfig, Manager, Request, Result
from captf_runtime.clock import SystemClock
from captf_runtime.manager import ElectionTimes
from captf_runtime.objects import CONFIG_MAP

RECORD = "fencing-record"
LEASE_NAME = "failover"
TIMES = ElectionTimes(lease_duration=2.0, renew_deadline=1.4, retry_period=0.2)
PAUSE = 0.01


class ShiftedClock(SystemClock):
    """A system clock whose wall time is wrong; its monotonic time is right, as on a machine with a bad clock.

    Args:
        seconds: how far it is ahead.
    """

    def __init__(self, seconds: float) -> None:
        self._shift = timedelta(seconds=seconds)

    def now(self) -> datetime:
        """The wrong time."""
        return super().now() + self._shift


class Work:
    """Marks the beginning and the end of each reconcile in the record."""

    def __init__(self, client: Client, identity: str) -> None:
        self._client = client
        self._identity = identity

    def reconcile(self, ctx: Context, request: Request) -> Result:
        """One piece of work."""
        api = self._client.bind(ctx)
        record = api.get(CONFIG_MAP, request.name, request.namespace)
        for phase in ("begin", "end"):
            record["data"] = {"manager": self._identity, "phase": phase}
            record = api.update(CONFIG_MAP, record)
            ctx.sleep(PAUSE)
        return Result(requeue_after=PAUSE)


def run(kubeconfig: str, namespace: str, identity: str, shift: float) -> None:
    """Run the manager until it is stopped or loses leadership; ends the process with its status.

    Args:
        shift: seconds by which the clock of this process is ahead.
    """
    clock = ShiftedClock(shift)
    with Client.from_config(kubeconfig=kubeconfig, user_agent="failover", clock=clock) as client:
        cache = Cache(client, clock=clock)
        cache.informer(CONFIG_MAP, namespace=namespace)
        election = LeaderElectionConfig(namespace, LEASE_NAME, identity=identity, times=TIMES)
        manager = Manager(client=client, caches=[cache], leader_election=election, clock=clock)
        work = Work(client, identity)
        manager.add(Controller("failover", for_=CONFIG_MAP, reconciler=work, cache=cache, clock=clock))
        status = manager.run()
    sys.exit(status)
