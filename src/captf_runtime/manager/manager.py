"""The manager: starts everything in order, keeps it running, and stops it in the opposite order.

Invariants:

* A group starts when everything in the groups before it runs (and is ready, and caches are synced).
* The leader's group runs only while this process is the leader, and has ended before the Lease is released.
* Caches answer until the leader's group has ended.
* One grace period covers the whole stop. When it is over, the process ends without releasing the Lease:
  something of the leader's may still be running.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from wsgiref.types import StartResponse

from prometheus_client import CollectorRegistry

from ..clock import SYSTEM_CLOCK, Clock
from ..controller import Controller
from ..election import ElectionTimes, Fence, LeaderElector, LeadershipLost, LeaseClient, default_identity
from ..events import Recorder
from ..log import get_logger
from ..metrics import CONTENT_TYPE, Metrics
from ..objects import Object
from ..serving import HttpServer, parse_bind_address
from ..serving.server import text_answer
from ..threads import ManagedThread, stack_of, start_thread
from .probes import Check, Probes
from .runnables import Group, Runnable, Running

__all__ = ["GRACE_PERIOD", "LeaderElectionConfig", "Manager"]

GRACE_PERIOD: Final = 20.0
CACHE_SYNC_TIMEOUT: Final = 120.0
_READY_POLL: Final = 0.02
_ELECTION_CONNECTIONS: Final = 2
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_logger = get_logger(__name__)


class CacheRunnable(Protocol):
    """A cache, as far as a manager is concerned."""

    def start(self, stop: threading.Event) -> None:
        """Begin to fill; returns at once."""
        ...

    def wait_for_sync(self, timeout: float) -> None:
        """Block until everything that exists is in it; raises when that takes too long."""
        ...


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """How this manager takes part in the election.

    Args:
        namespace, name: of the Lease.
        client: with a connection pool of its own; None: the manager's server, over connections of its own.
        identity: of this process; empty: made from the host name.
        times: durations, see `ElectionTimes`.
    """

    namespace: str
    name: str
    client: LeaseClient | None = None
    identity: str = ""
    times: ElectionTimes = field(default_factory=ElectionTimes)


class Manager:
    """Runs the parts of a program together.

    Expected flow: make one, `add` controllers and other runnables, call `run` in the main thread; its return
    value is the exit status of the process.

    Args:
        client: used for the election when that names none; also at hand for whoever builds on the manager.
        caches: by name, or one after another.
        leader_election: None: no election, the leader's group starts after the others.
        metrics_bind_address: where to serve `/metrics` in the clear; empty: nowhere.
        health_probe_bind_address: where to serve `/healthz` and `/readyz`; empty: nowhere.
        grace_period: seconds for everything to stop.
        cache_sync_timeout: seconds for the caches to fill.
        registry: where series are registered; None: a registry of this manager's own.
        metrics: the series themselves, when they have been made before; excludes `registry`.
        recorder: run by the manager, which also reports through it that leadership was won or lost.
    """

    def __init__(
        self,
        *,
        client: Any = None,
        caches: Mapping[str, CacheRunnable] | Iterable[CacheRunnable] = (),
        leader_election: LeaderElectionConfig | None = None,
        metrics_bind_address: str = "",
        health_probe_bind_address: str = "",
        grace_period: float = GRACE_PERIOD,
        cache_sync_timeout: float = CACHE_SYNC_TIMEOUT,
        registry: CollectorRegistry | None = None,
        metrics: Metrics | None = None,
        recorder: Recorder | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if metrics is not None and registry is not None:
            raise ValueError("metrics, registry: give one of the two")
        if callable(getattr(caches, "wait_for_sync", None)):
            raise TypeError("caches: must be several caches, such as [cache], or caches by name")
        self.client = client
        self.caches: Final[dict[str, CacheRunnable]] = (
            dict(caches)
            if isinstance(caches, Mapping)
            else {f"cache-{number}": cache for number, cache in enumerate(caches)}
        )
        self.metrics: Final = metrics if metrics is not None else Metrics(registry, process=registry is None)
        self.identity: Final = (
            leader_election.identity if leader_election is not None else ""
        ) or default_identity()
        self.probes: Final = Probes(metrics=self.metrics, clock=clock)
        self.health_server: HttpServer | None = None
        self.metrics_server: HttpServer | None = None
        self._clock = clock
        self._grace_period = grace_period
        self._sync_timeout = cache_sync_timeout
        self._recorder = recorder
        self._lock = threading.RLock()
        self._waiting: dict[Group, list[tuple[str, Runnable]]] = {group: [] for group in Group}
        self._running: list[Running] = []
        self._started: set[Group] = set()
        self._stopping = False
        self._ran = False
        self._names: set[str] = set()
        self._cache_stop = threading.Event()
        self._wake = threading.Event()  # stop asked for, or something failed
        self._failures: list[tuple[str, BaseException]] = []
        self._hard_exit: Callable[[int], object] | None = None
        self._elector: LeaderElector | None = None
        self._elector_thread: ManagedThread | None = None
        self._elector_stop = threading.Event()
        self._election = leader_election
        self._close_connections: Callable[[], object] | None = None
        self._work_ended = threading.Event()
        self.fence: Final[Fence] = Fence.open() if leader_election is None else self._make_elector().fence
        if parse_bind_address(health_probe_bind_address) is not None:
            self.health_server = HttpServer(
                self.probes, health_probe_bind_address, component="health", metrics=self.metrics
            )
            self.add(self.health_server, group=Group.HTTP, name="health")
        if parse_bind_address(metrics_bind_address) is not None:
            self.metrics_server = HttpServer(
                self.serve_metrics, metrics_bind_address, component="metrics", metrics=self.metrics
            )
            self.add(self.metrics_server, group=Group.HTTP, name="metrics")
        if recorder is not None:
            self.add(recorder, group=Group.OTHERS, name="event-recorder")

    # Building

    def add(
        self,
        runnable: Runnable,
        *,
        group: Group | None = None,
        needs_leader: bool | None = None,
        name: str = "",
    ) -> None:
        """Have something run with the manager; once the manager runs, at once (when its group does).

        Args:
            runnable: see `Runnable`.
            group: when it starts and stops; default LEADERS when it needs leadership, else OTHERS.
            needs_leader: default: what the runnable's own `needs_leader` says, else False.
            name: for logs and errors; default: the runnable's own name, else its class's.

        Raises:
            RuntimeError: the manager is stopping.
            ValueError: a controller whose name is taken.
            TypeError: not a runnable.
        """
        if isinstance(runnable, type) or not callable(getattr(runnable, "run", None)):
            raise TypeError(f"runnable: must be an object with a method run(stop), got {runnable!r}")
        if needs_leader is None:
            needs_leader = bool(getattr(runnable, "needs_leader", False))
        if group is None:
            group = Group.LEADERS if needs_leader else Group.OTHERS
        with self._lock:
            if self._stopping:
                raise RuntimeError("the manager is stopping, nothing can be added any more")
            if isinstance(runnable, Controller):
                runnable.attach(
                    metrics=self.metrics, fence=self.fence if group is Group.LEADERS else Fence.open()
                )
            name = self._unique(name or getattr(runnable, "name", "") or type(runnable).__name__)
            if group in self._started:
                self._start_one(name, runnable, group)
            else:
                self._waiting[group].append((name, runnable))

    def add_health_check(self, name: str, check: Check) -> None:
        """Add a check to `/healthz`; it must not call the API server."""
        self.probes.add_health(name, check)

    def add_ready_check(self, name: str, check: Check) -> None:
        """Add a check to `/readyz`."""
        self.probes.add_ready(name, check)

    @property
    def failures(self) -> list[tuple[str, BaseException]]:
        """What stopped the manager, by the name of the runnable; empty after a clean stop."""
        return list(self._failures)

    @property
    def is_leader(self) -> bool:
        """Whether this manager may act as the leader; always true without election."""
        return self.fence.is_open

    # Running

    def run(
        self, stop: threading.Event | None = None, *, hard_exit: Callable[[int], object] | None = None
    ) -> int:
        """Start everything, wait for the end, stop everything.

        Args:
            stop: ends the manager when set. None: SIGTERM and SIGINT do, which needs the main thread, and a
                second signal exits at once.
            hard_exit: ends the process on a second signal, and when leadership is lost and the process is
                still there shortly before another may take over. Default: `os._exit` with signals, nothing
                without.

        Returns:
            0 after a clean stop, else 1; the reason has been logged, see also `failures`.

        Raises:
            RuntimeError: it has run before, or signals are asked for outside the main thread.
        """
        with self._lock:
            if self._ran:
                raise RuntimeError("a manager runs only once")
            self._ran = True
        self._hard_exit = hard_exit
        if stop is None:
            if hard_exit is None:
                self._hard_exit = os._exit
            stop = threading.Event()
            with _Signals(stop, self._second_signal, self.metrics):
                return self._run(stop)
        return self._run(stop)

    def _run(self, stop: threading.Event) -> int:
        waiter = start_thread("manager-stop", lambda: self._pass_on(stop), metrics=self.metrics)
        try:
            self._start()
            self._clock.wait(self._wake, None)
        except Exception as failure:
            _logger.exception("the manager could not start")
            self._failed("start", failure)
        if any(isinstance(error, LeadershipLost) for _, error in self._failures):
            clean = False
            self._tell_everyone()
        else:
            clean = self._shut_down()
        self._wake.set()
        waiter.join()
        if self._close_connections is not None:
            self._close_connections()
        for name, error in self._failures:
            if isinstance(error, LeadershipLost):
                _logger.error("leader election lost")
            else:
                _logger.error("the manager was stopped by a failure", runnable=name, err=error)
        if clean and not self._failures:
            _logger.info("the manager has stopped")
            return 0
        return 1

    def _pass_on(self, stop: threading.Event) -> None:
        # Two things end the manager, its stop event and failures; this makes them one.
        while not (stop.wait(0.5) or self._wake.is_set()):
            continue
        self._wake.set()

    def _second_signal(self) -> None:
        _logger.error("second signal, exiting at once")
        if self._hard_exit is not None:
            self._hard_exit(1)

    def _start(self) -> None:
        for group in (Group.HTTP, Group.WEBHOOKS):
            if not self._start_group(group):
                return
        if not self._start_caches() or not self._start_group(Group.CACHES):
            return
        if not self._start_group(Group.OTHERS):
            return
        if self._elector is None:
            self._start_group(Group.LEADERS)
            return
        self._elector_thread = start_thread(
            "leader-election",
            self._elect,
            metrics=self.metrics,
            clock=self._clock,
            on_failure=lambda error: self._failed("leader-election", error),
        )

    def _start_group(self, group: Group) -> bool:
        """Start a group and wait until it is ready; False when the manager is to stop instead."""
        with self._lock:
            if self._stopping or self._wake.is_set():
                return False
            self._started.add(group)
            waiting, self._waiting[group] = self._waiting[group], []
            started = [self._start_one(name, runnable, group) for name, runnable in waiting]
        while not all(running.is_ready for running in started):
            if self._wake.wait(_READY_POLL):
                return False
        return not self._wake.is_set()

    def _start_one(self, name: str, runnable: Runnable, group: Group) -> Running:
        running = Running(
            runnable, name, group, metrics=self.metrics, clock=self._clock, on_failure=self._failed
        )
        self._running.append(running)
        return running

    def _start_caches(self) -> bool:
        for cache in self.caches.values():
            cache.start(self._cache_stop)
        finished = threading.Event()

        def sync() -> None:
            for name, cache in self.caches.items():
                try:
                    cache.wait_for_sync(self._sync_timeout)
                except Exception as error:
                    if not self._cache_stop.is_set():
                        self._failed(name, error)
                        _logger.exception("a cache did not fill", cache=name)
                    break
            finished.set()

        if not self.caches:
            return True
        start_thread("cache-sync", sync, metrics=self.metrics, clock=self._clock)
        while not finished.wait(_READY_POLL):
            if self._wake.is_set():
                return False
        return not self._wake.is_set()

    def _failed(self, name: str, error: BaseException) -> None:
        with self._lock:
            self._failures.append((name, error))
        self._wake.set()

    # The leader's part

    def _make_elector(self) -> LeaderElector:
        config = self._election
        assert config is not None
        client = config.client if config.client is not None else self.client
        if client is None:
            raise ValueError("leader_election: needs a client, its own or the manager's")
        if config.client is None and hasattr(client, "dedicated"):
            # Workers that use up all connections must not cost the leadership.
            client = client.dedicated(pool_size=_ELECTION_CONNECTIONS, suffix="leader-election")
            self._close_connections = client.close
        self._elector = LeaderElector(
            client,
            namespace=config.namespace,
            name=config.name,
            identity=self.identity,
            times=config.times,
            on_started=self._lead,
            on_lost=self._leadership_lost,
            announce=self._announce,
            hard_exit=lambda code: self._hard_exit(code) if self._hard_exit is not None else None,
            metrics=self.metrics,
            clock=self._clock,
        )
        return self._elector

    def _elect(self) -> None:
        assert self._elector is not None
        try:
            self._elector.run(self._elector_stop)
        except LeadershipLost:
            return  # reported by on_lost already

    def _lead(self, stop: threading.Event) -> None:
        # Runs while this process is the leader. It returns only when everything of the manager has ended, so
        # that the Lease is released after all else.
        self._start_group(Group.LEADERS)
        self._clock.wait(self._work_ended, None)

    def _leadership_lost(self) -> None:
        self._failed("leader-election", LeadershipLost("leader election lost"))

    def _announce(self, lease: Object, note: str) -> None:
        if self._recorder is not None:
            self._recorder.emit(lease, "Normal", "LeaderElection", "LeaderElection", note)

    # Stopping

    def _shut_down(self) -> bool:
        """Stop everything in order within the grace period; whether it all ended."""
        with self._lock:
            self._stopping = True
        deadline = self._clock.monotonic() + self._grace_period
        _logger.info("stopping", grace_period=self._grace_period)
        ended = self._stop_group(Group.LEADERS, deadline)
        led = self._elector is not None and self._elector.is_leader
        if ended and led and self._elector is not None:
            self._elector.announce_end()
        for group in (Group.OTHERS, Group.CACHES):
            ended = self._stop_group(group, deadline) and ended
        self._cache_stop.set()
        for name, cache in self.caches.items():
            # The stop event alone would leave its threads behind for a moment, after this has returned.
            shutdown = getattr(cache, "shutdown", None)
            if shutdown is not None:
                late = shutdown(max(0.0, deadline - self._clock.monotonic()))
                for thread in late or ():
                    ended = False
                    _logger.error(
                        "did not end within the grace period", runnable=name, stack=stack_of(thread)
                    )
        for group in (Group.WEBHOOKS, Group.HTTP):
            ended = self._stop_group(group, deadline) and ended
        if self._elector is not None:
            if not ended:
                self._elector.abandon()
            self._elector_stop.set()
            self._work_ended.set()
            if ended and self._elector_thread is not None:
                left = max(0.0, deadline - self._clock.monotonic())
                if not self._clock.wait(self._elector_thread.ended, left) and led:
                    _logger.error("the Lease was not released within the grace period")
                    ended = False
        return ended

    def _tell_everyone(self) -> None:
        """Ask everything to stop, and wait for nothing: this process has to be gone before the next leader."""
        with self._lock:
            self._stopping = True
            for running in self._running:
                running.stop.set()
        self._cache_stop.set()
        self._elector_stop.set()
        self._work_ended.set()

    def _stop_group(self, group: Group, deadline: float) -> bool:
        with self._lock:
            members = [running for running in self._running if running.group is group]
        for running in members:
            running.stop.set()
        ended = True
        for running in members:
            left = max(0.0, deadline - self._clock.monotonic())
            if not self._clock.wait(running.thread.ended, left):
                ended = False
                _logger.error(
                    "did not end within the grace period", runnable=running.name, stack=running.stacks()
                )
        return ended

    def _unique(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self._names:
            candidate, number = f"{name}-{number}", number + 1
        self._names.add(candidate)
        return candidate

    def serve_metrics(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer `/metrics` (WSGI), for a server that decides itself who may read it."""
        if environ.get("PATH_INFO") != "/metrics":
            return text_answer(start_response, "404 Not Found", b"not found\n")
        return text_answer(start_response, "200 OK", self.metrics.exposition(), CONTENT_TYPE)


class _Signals:
    """Turns SIGTERM and SIGINT into an event while the block lasts; the second one exits at once.

    A handler in Python runs only when the main thread gets to it, and one that is just falling asleep in a lock
    does not until it wakes. So the signal's number goes through a socket to a thread that waits for nothing else.
    """

    def __init__(self, stop: threading.Event, on_second: Callable[[], None], metrics: Metrics) -> None:
        self._stop = stop
        self._on_second = on_second
        self._metrics = metrics
        self._old: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals are handled in the main thread only: pass a stop event elsewhere")
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._thread = start_thread("manager-signals", self._read, metrics=self._metrics)
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            self._old[number] = signal.signal(number, lambda *_: None)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._writer.close()
        self._thread.join()
        self._reader.close()

    def _read(self) -> None:
        while numbers := self._reader.recv(16):
            for number in numbers:
                if number not in _SIGNALS:
                    continue
                if self._stop.is_set():
                    self._on_second()
                self._stop.set()
