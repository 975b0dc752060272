"""Leader election by a Lease: at most one process acts as the leader at a time.

What holds at every moment:

* This process acts as the leader only while its `Fence` is open, and the fence is open up to `renew_deadline`
  seconds after the moment *before* the last successful renewal was sent. Another process can take over at the
  earliest `lease_duration` seconds after the record changed, which was later. As long as
  `renew_deadline < lease_duration`, and monotonic clocks run at the same speed, no two fences are open at
  once.
* Every write carries the version that was read: of two candidates only one succeeds.
* Leadership that is lost is lost for good: the process is expected to end.
"""

from __future__ import annotations

import random
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ..client.errors import AlreadyExists, ApiError, Conflict, NotFound
from ..clock import SYSTEM_CLOCK, Clock
from ..log import get_logger
from ..metrics import Metrics
from ..objects import LEASE, Kind, Object
from ..threads import ManagedThread, start_thread
from .fence import Fence
from .record import Observation, holder_of, new_lease, released, renewed, taken_over

__all__ = ["ElectionTimes", "LeaderElector", "LeadershipLost", "LeaseClient", "default_identity"]

_TRY_SPREAD: Final = (0.6, 0.9)
_logger = get_logger(__name__)


class LeaseClient(Protocol):
    """What an elector needs of a client."""

    def get(self, kind: Kind, name: str, namespace: str = "", *, timeout: float | None = None) -> Object: ...

    def create(
        self, kind: Kind, obj: Object, namespace: str = "", *, timeout: float | None = None
    ) -> Object: ...

    def update(self, kind: Kind, obj: Object, *, timeout: float | None = None) -> Object: ...


class LeadershipLost(Exception):
    """This process was the leader and is not any more; it must end without doing anything further."""


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """The durations of an election, in seconds.

    Args:
        lease_duration: how long a record stays good without renewal; written in whole seconds.
        renew_deadline: how long a leader acts on one renewal.
        retry_period: time between renewals, and the longest between a candidate's tries.

    Raises:
        ValueError: unless lease_duration > renew_deadline > 1.2 * retry_period > 0; names the pair.
    """

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if self.retry_period <= 0:
            raise ValueError(f"retry_period: must be greater than 0 seconds, got {self.retry_period:g}")
        if self.renew_deadline <= 1.2 * self.retry_period:
            raise ValueError(
                f"renew_deadline, retry_period: the renew deadline ({self.renew_deadline:g} s) must be "
                f"more than 1.2 times the retry period ({self.retry_period:g} s)"
            )
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(
                f"lease_duration, renew_deadline: the lease duration ({self.lease_duration:g} s) must be "
                f"longer than the renew deadline ({self.renew_deadline:g} s)"
            )


def default_identity() -> str:
    """`<hostname>_<uuid4>`: tells people where the leader runs, and is new for every process."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """Takes part in the election for one Lease, once.

    Expected flow: `run(stop)` waits until it is the leader, calls `on_started` in a thread of its own, and
    renews until that has returned (which it does because `stop` was set, or of its own accord); then it
    releases the Lease, and `run` returns. When leadership is lost instead, `on_lost` is called at once and
    `run` raises.

    Args:
        client: should have a connection pool of its own, so that a busy process still renews.
        namespace, name: of the Lease.
        identity: of this process; default `default_identity()`.
        times: see `ElectionTimes`.
        on_started: the leader's work; gets an event that is set when it should end.
        on_lost: called once, from a thread of the elector, as soon as leadership is lost.
        announce: called with the Lease and a sentence when leadership is won or lost.
        hard_exit: called with 1 shortly before another process may take over, when this one has not ended by
            then; None: never. `os._exit` in a program.
        draw: random number in [0, 1).
    """

    def __init__(
        self,
        client: LeaseClient,
        *,
        namespace: str,
        name: str,
        on_started: Callable[[threading.Event], None],
        identity: str = "",
        times: ElectionTimes | None = None,
        on_lost: Callable[[], None] | None = None,
        announce: Callable[[Object, str], None] | None = None,
        hard_exit: Callable[[int], object] | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if not namespace or not name:
            raise ValueError(f"namespace, name: a Lease needs both, got {namespace!r} and {name!r}")
        self._client = client
        self._namespace = namespace
        self._name = name
        self.identity: Final = identity or default_identity()
        self._times = times if times is not None else ElectionTimes()
        self._on_started = on_started
        self._on_lost = on_lost
        self._announce = announce
        self._hard_exit = hard_exit
        self._metrics = metrics if metrics is not None else Metrics()
        self._clock = clock
        self._draw = draw
        self.fence: Final = Fence(clock)
        self._lease: Object | None = None  # as last read or written
        self._observed = Observation()
        self._lock = threading.Lock()
        self._ran = False
        self._leading = False
        self._lost = threading.Event()
        self._over = threading.Event()
        self._deadline = 0.0
        self._expiry = 0.0
        self._reported_holder = ""
        self._metrics.leader.labels(name).set(0)

    @property
    def is_leader(self) -> bool:
        """Whether this process is the leader now."""
        return self._leading and self.fence.is_open

    @property
    def call_timeout(self) -> float:
        """Seconds that one request of the election may take."""
        return max(1.0, self._times.renew_deadline / 2)

    def run(self, stop: threading.Event) -> None:
        """Become the leader, lead, release. Returns early when `stop` is set before leadership is won.

        Raises:
            LeadershipLost: leadership was lost.
            RuntimeError: it has been run before; a process that lost does not stand again.
        """
        if self._ran:
            raise RuntimeError("an elector takes part only once")
        self._ran = True
        _logger.info("waiting for leadership", lease=self._where, identity=self.identity)
        if self._acquire(stop):
            self._lead(stop)

    def abandon(self) -> None:
        """Stop acting as the leader without releasing: something of the leader's may still be running."""
        with self._lock:
            self.fence.close()
            self._leading = False
            self._over.set()
        self._metrics.leader.labels(self._name).set(0)

    def announce_end(self) -> None:
        """Announce that this process stops leading; before the release, while announcements still get out."""
        self._tell(f"{self.identity} stopped leading")

    @property
    def _where(self) -> str:
        return f"{self._namespace}/{self._name}"

    # Becoming the leader

    def _acquire(self, stop: threading.Event) -> bool:
        while not stop.is_set():
            sent = self._clock.monotonic()
            try:
                acquired = self._try_to_acquire()
            except (AlreadyExists, Conflict):
                acquired = False  # another candidate was faster
            except Exception as error:  # noqa: BLE001 - any failure is one failed try
                acquired = False
                self._report_failure("cannot take part in the election", error)
            if acquired:
                self._won(sent)
                return True
            self._clock.sleep(self._pause(), stop)
        return False

    def _try_to_acquire(self) -> bool:
        timeout = self.call_timeout
        try:
            lease = self._client.get(LEASE, self._name, self._namespace, timeout=timeout)
        except NotFound:
            self._lease = self._client.create(LEASE, self._fresh(), self._namespace, timeout=timeout)
            return True
        now = self._clock.monotonic()
        self._observed.see(lease, now)
        holder = holder_of(lease)
        if holder not in ("", self.identity) and now < self._observed.expires(self._times.lease_duration):
            if holder != self._reported_holder:
                self._reported_holder = holder
                _logger.info("another process is the leader", lease=self._where, holder=holder)
            return False
        wanted = taken_over(lease, self.identity, self._times.lease_duration, self._clock.now())
        self._lease = self._client.update(LEASE, wanted, timeout=timeout)
        return True

    def _fresh(self) -> Object:
        return new_lease(
            self._namespace, self._name, self.identity, self._times.lease_duration, self._clock.now()
        )

    def _pause(self) -> float:
        low, high = _TRY_SPREAD
        pause = self._times.retry_period * (low + (high - low) * self._draw())
        if self._observed.spec is not None:
            # The next try is due when the record expires, if that is sooner: so a kill is noticed in time.
            left = self._observed.expires(self._times.lease_duration) - self._clock.monotonic()
            if left > 0:
                pause = min(pause, left)
        return pause

    def _won(self, sent: float) -> None:
        with self._lock:
            self._extend(sent)
            self._leading = True
        self._metrics.leader.labels(self._name).set(1)
        _logger.info("became the leader", lease=self._where, identity=self.identity)
        self._tell(f"{self.identity} became leader")

    def _extend(self, sent: float) -> None:
        self._expiry = sent + self._times.lease_duration
        self._deadline = sent + self._times.renew_deadline
        self.fence.extend(self._deadline)

    # Leading

    def _lead(self, stop: threading.Event) -> None:
        leader_stop = threading.Event()
        failures: list[BaseException] = []
        work = start_thread(
            "leader",
            lambda: self._on_started(leader_stop),
            metrics=self._metrics,
            on_failure=failures.append,
            clock=self._clock,
        )
        watchdog = start_thread(
            "leader-election-watchdog",
            self._watch_over,
            metrics=self._metrics,
            on_failure=lambda _: self._lose("the watch over the renewals failed"),
            clock=self._clock,
        )
        try:
            self._renew_until(work, stop, leader_stop)
            if self._lost.is_set():
                raise LeadershipLost("leader election lost")
            if self._over.is_set():
                return
            self._release()
        finally:
            leader_stop.set()
            self._over.set()
            if not self._lost.is_set():
                watchdog.join()
        if failures:
            raise failures[0]

    def _renew_until(self, work: ManagedThread, stop: threading.Event, leader_stop: threading.Event) -> None:
        due = self._clock.monotonic() + self._times.retry_period
        while not (self._lost.is_set() or self._over.is_set()):
            if stop.is_set():
                leader_stop.set()
            # Before the stop signal that is what to wait for; after it, the end of the leader's work.
            # Renewals go on until that end.
            awaited = work.ended if leader_stop.is_set() else stop
            self._clock.wait(awaited, max(0.0, due - self._clock.monotonic()))
            if work.ended.is_set():
                return
            if self._clock.monotonic() >= due and not self._lost.is_set():
                self._renew()
                due = self._clock.monotonic() + self._times.retry_period

    def _renew(self) -> None:
        sent = self._clock.monotonic()
        left = self.fence.leading_until - sent
        if left <= 0:
            return
        try:
            self._write_renewal(min(self.call_timeout, left))
        except LeadershipLost as error:
            self._lose(str(error))
        except Exception as error:  # noqa: BLE001 - any failure is one failed try
            self._report_failure("cannot renew leadership", error)
        else:
            with self._lock:
                # A renewal that comes back when it is over already changes nothing.
                if self._leading and sent + self._times.renew_deadline > self._clock.monotonic():
                    self._extend(sent)

    def _write_renewal(self, timeout: float) -> None:
        assert self._lease is not None
        try:
            self._lease = self._client.update(LEASE, renewed(self._lease, self._clock.now()), timeout=timeout)
        except NotFound:
            # Someone deleted the Lease. If another candidate has made a new one, this fails and is read next.
            self._lease = self._client.create(LEASE, self._fresh(), self._namespace, timeout=timeout)
        except Conflict:
            current = self._client.get(LEASE, self._name, self._namespace, timeout=timeout)
            if holder_of(current) != self.identity:
                raise LeadershipLost(f"the Lease is held by {holder_of(current) or 'nobody'}") from None
            self._lease = self._client.update(LEASE, renewed(current, self._clock.now()), timeout=timeout)

    def _watch_over(self) -> None:
        """Notice that the time is over, also while a renewal is stuck in a request."""
        while not self._over.is_set():
            left = self._deadline - self._clock.monotonic()
            if left <= 0:
                self._lose("no renewal succeeded within the renew deadline")
                break
            self._clock.wait(self._over, left)
        if self._lost.is_set() and self._hard_exit is not None:
            # Nothing of this process may outlive its claim. Nobody ends this wait: the process does, or this.
            self._clock.sleep(max(0.0, self._expiry - 1.0 - self._clock.monotonic()))
            self._hard_exit(1)

    def _lose(self, why: str) -> None:
        with self._lock:
            if self._lost.is_set() or self._over.is_set():
                return
            self.fence.close()
            self._leading = False
            self._lost.set()
        self._metrics.leader.labels(self._name).set(0)
        _logger.error("leader election lost", lease=self._where, identity=self.identity, reason=why)
        self._tell(f"{self.identity} stopped leading")
        if self._on_lost is not None:
            self._on_lost()

    # Releasing

    def _release(self) -> None:
        with self._lock:
            # Before the request: from the moment at which the server has it another may lead.
            self.fence.close()
            self._leading = False
        self._metrics.leader.labels(self._name).set(0)
        while not self._lost.is_set():
            left = self._deadline - self._clock.monotonic()
            if left <= 0:
                _logger.warning("the Lease was not released in time", lease=self._where)
                break
            timeout = min(self.call_timeout, left)
            try:
                current = self._client.get(LEASE, self._name, self._namespace, timeout=timeout)
                if holder_of(current) == self.identity:
                    self._client.update(LEASE, released(current, self._clock.now()), timeout=timeout)
            except NotFound:
                break
            except Conflict:
                continue
            except ApiError as error:
                self._report_failure("cannot release the Lease", error)
                self._clock.sleep(min(0.2, left), self._lost)
            else:
                _logger.info("released the Lease", lease=self._where)
                break

    def _tell(self, note: str) -> None:
        if self._announce is not None and self._lease is not None:
            self._announce(self._lease, note)

    def _report_failure(self, message: str, error: BaseException) -> None:
        _logger.warning(message, lease=self._where, err=error)
