"""The periodic sweep of what no Terraform object needs any more: on the leader, at start and then on and on."""

from __future__ import annotations

import random
import threading

from captf_controllers.identity.sweep import sweep_all
from captf_runtime.client import Client
from captf_runtime.client.errors import ApiError
from captf_runtime.clock import Clock
from captf_runtime.log import get_logger

logger = get_logger(__name__)

JITTER = 0.1


class Sweeper:
    """Sweeps at once when it starts, then ``period`` seconds after each run ended, plus up to 10 %.

    A failed run is logged and never returned: it would stop the manager. The next one repeats it.
    """

    needs_leader = True

    def __init__(self, client: Client, period: float, namespace: str, clock: Clock) -> None:
        self._client = client
        self._period = period
        self._namespace = namespace
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Sweep until ``stop`` is set."""
        while not stop.is_set():
            try:
                sweep_all(self._client, self._namespace)
            except (ApiError, ExceptionGroup) as error:
                logger.warning("orphan sweep failed; the next one repeats it", err=error)
            if self._clock.sleep(self._period * (1 + random.random() * JITTER), stop):
                return
