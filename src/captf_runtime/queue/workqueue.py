"""The work queue: keys that wait for a worker, each at most once, never with two workers at a time.

Invariants, all under one lock:

* A key is in exactly the states that its owners put it in: *ready* (waits for a worker), *in process* (a
  worker has it), *marked* (in process, and to be ready again when given back), *delayed* (ready at a later
  time). Ready excludes in process and marked; ready and marked exclude delayed.
* So a key has at most one hand-out pending, and it is at the earliest time that anyone asked for.
* Every key that becomes ready wakes one sleeping `get`, if there is one. A thread that is not asleep looks at
  the ready keys before it falls asleep. So no key is ready while a worker sleeps.
* Of the sleeping threads at most one keeps the time of the next delayed key; when it goes to work, another is
  woken to take the watch over. There is no timer thread, and an idle queue never wakes.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from math import isnan
from typing import Final, Generic, NamedTuple, TypeVar

from ..clock import SYSTEM_CLOCK, Clock
from ..metrics import QUEUE_DURATION_BUCKETS, DurationCounts, QueueStats
from .lock import YieldingLock
from .ratelimit import RateLimiter, RateLimits

__all__ = ["AGING_SECONDS", "DEFAULT", "LOW", "Item", "WorkQueue"]

DEFAULT: Final = 0
"""The priority of an ordinary add."""

LOW: Final = -100
"""The priority of what nobody waits for: the initial list, resyncs, updates that changed nothing."""

AGING_SECONDS: Final = 60.0
"""An item that has been ready for longer is served as if it had the default priority."""

K = TypeVar("K", bound=Hashable)


class Item(NamedTuple, Generic[K]):
    """A key handed to a worker, with the priority of this run."""

    key: K
    priority: int


class _Ready(Generic[K]):
    """A ready key: its priority, the level it is served from, since when it is ready, whether it is gone."""

    __slots__ = ("gone", "key", "level", "priority", "since")

    level: int

    def __init__(self, key: K, priority: int, since: float) -> None:
        self.key = key
        self.priority = priority
        self.since = since
        self.gone = False


class _Running(NamedTuple):
    """A key in process: since when, in which thread, with which priority."""

    since: float
    thread: int
    priority: int


class _Durations:
    """A histogram kept under the queue's lock; cheaper than a metric with a lock of its own."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(QUEUE_DURATION_BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(QUEUE_DURATION_BUCKETS, seconds)] += 1
        self.total += seconds

    def read(self) -> DurationCounts:
        return DurationCounts(tuple(self.counts), self.total)


class WorkQueue(Generic[K]):
    """A de-duplicating, delaying, rate-limiting priority queue of keys; thread-safe.

    Expected flow: event handlers call `add`; each worker loops over `process()` (or `get` and `done`);
    after a failure it calls `add_rate_limited`, after success `forget`, and `add_after` to come back
    later.

    Guarantees:
        * Adding a ready key does nothing, except that the higher priority wins and moves it to the end of
          that level. Adding a key that is in process marks it: it is ready again when given back.
        * No key is with two workers at once. No add is lost, except by shutdown.
        * First come, first served within a priority; higher priorities first; a key that has been ready for
          over `AGING_SECONDS` is served as if its priority were at least `DEFAULT`.
        * Two delayed adds of a key keep the earlier time, and an immediate add makes the delay void. A
          delayed key does not count in `len`.
        * The delay of one key never depends on that of another (unless an overall rate is set).

    Assumes: every key that `get` returned is given back by `done`, also after a failure.

    Args:
        limits: numbers of the rate limiter; the limiter itself is this queue's own.
        clock: where durations come from.
    """

    def __init__(self, *, limits: RateLimits | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._now = clock.monotonic
        self._lock = YieldingLock()
        self._limiter: RateLimiter[K] = RateLimiter(limits if limits is not None else RateLimits())
        self._ready: dict[K, _Ready[K]] = {}
        self._levels: dict[int, OrderedDict[K, _Ready[K]]] = {}
        self._order: list[int] = []  # the levels that hold something, ascending
        self._aging: list[tuple[float, int, _Ready[K]]] = []  # heap of what is below DEFAULT, oldest first
        self._running: dict[K, _Running] = {}
        self._marked: dict[K, int] = {}
        self._delayed: dict[K, tuple[float, int, int]] = {}  # due time, priority, ticket of the heap entry
        self._due: list[tuple[float, int, K]] = []  # heap; entries whose ticket is not current are void
        self._ticket = itertools.count()
        self._sleepers: deque[threading.Condition] = deque()
        self._watch: threading.Condition | None = None  # the sleeper that keeps the time
        self._drained = self._lock.condition()
        self._accepting = True
        self._serving = True
        self._adds = 0
        self._retries = 0
        self._queue_durations = _Durations()
        self._work_durations = _Durations()
        self._seen_priorities: set[int] = {DEFAULT, LOW}

    # Adding

    def add(self, key: K, *, priority: int = DEFAULT) -> None:
        """Make `key` ready (see the class for what happens when it waits or is in process)."""
        with self._lock:
            if self._accepting:
                self._add(key, priority, self._now())

    def add_after(self, key: K, seconds: float, *, priority: int = DEFAULT) -> None:
        """Make `key` ready in `seconds`; at once when that is 0 or less.

        Raises:
            ValueError: not a number, which nothing could be ordered by.
        """
        if isnan(seconds):
            raise ValueError(f"seconds: must be a number, got {seconds}")
        with self._lock:
            if not self._accepting:
                return
            now = self._now()
            if seconds <= 0:
                self._add(key, priority, now)
            else:
                self._delay(key, now + seconds, priority)

    def add_rate_limited(self, key: K, *, priority: int = DEFAULT) -> float:
        """Count a failure of `key` and make it ready after the delay that follows; returns the delay."""
        with self._lock:
            now = self._now()
            delay = self._limiter.when(key, now)
            if self._accepting:
                self._retries += 1
                self._delay(key, now + delay, priority)
            return delay

    def forget(self, key: K) -> None:
        """Forget the failures of `key`; what waits is not touched."""
        with self._lock:
            self._limiter.forget(key)

    def failures(self, key: K) -> int:
        """How often `add_rate_limited` has been called for `key` since it was last forgotten."""
        with self._lock:
            return self._limiter.failures(key, self._now())

    # Working

    def get(self) -> Item[K] | None:
        """Block until a key is ready and take it; None when the queue is shut down."""
        with self._lock:
            while True:
                now = self._now()
                if self._due:
                    self._promote(now)
                if self._ready and self._serving:
                    return self._take(now)
                if not self._accepting:
                    return None
                self._sleep(now)

    def done(self, key: K) -> None:
        """Give a key back; if it was added meanwhile it is ready again.

        Raises:
            ValueError: the key is not in process.
        """
        with self._lock:
            running = self._running.pop(key, None)
            if running is None:
                raise ValueError(f"key: {key!r} is not in process")
            now = self._now()
            self._work_durations.observe(now - running.since)
            if key in self._marked:
                priority = self._marked.pop(key)
                if self._serving:
                    self._make_ready(key, priority, now)
            if not self._accepting:
                self._drained.notify_all()

    @contextmanager
    def process(self) -> Iterator[Item[K] | None]:
        """`get` for a `with` block, and `done` at its end, however it ends."""
        item = self.get()
        try:
            yield item
        finally:
            if item is not None:
                self.done(item.key)

    # Stopping

    def shutdown(self) -> None:
        """Take no more adds, drop what waits, let every blocked `get` return None. May be called again."""
        with self._lock:
            self._close()

    def shutdown_with_drain(self, timeout: float) -> bool:
        """Take no more adds, drop delayed keys, hand out what is ready; return when all of it is done.

        A call from a worker does not wait for that worker's own keys.

        Args:
            timeout: seconds to wait at most; then what is still ready is dropped.

        Returns:
            True when everything was done in time.
        """
        me = threading.get_ident()
        with self._lock:
            self._accepting = False
            self._delayed.clear()
            self._due.clear()
            if not self._ready:
                self._wake_all()
            deadline = self._now() + timeout
            while self._serving and (
                self._ready or any(running.thread != me for running in self._running.values())
            ):
                left = deadline - self._now()
                if left <= 0:
                    break
                self._clock.wait_condition(self._drained, left)
            finished = not self._ready and all(running.thread == me for running in self._running.values())
            self._close()
            return finished

    @property
    def shutting_down(self) -> bool:
        """Whether the queue takes no more adds."""
        with self._lock:
            return not self._accepting

    # Looking

    def __len__(self) -> int:
        """How many keys are ready."""
        with self._lock:
            self._promote(self._now())
            return len(self._ready)

    def stats(self) -> QueueStats:
        """Everything there is to measure, at this moment."""
        with self._lock:
            now = self._now()
            self._promote(now)
            by_priority = dict.fromkeys(self._seen_priorities, 0)
            for entry in self._ready.values():
                by_priority[entry.priority] += 1
            ages = [now - running.since for running in self._running.values()]
            return QueueStats(
                depth=len(self._ready),
                depth_by_priority=by_priority,
                adds=self._adds,
                retries=self._retries,
                unfinished=sum(ages),
                longest_running=max(ages, default=0.0),
                queue_duration=self._queue_durations.read(),
                work_duration=self._work_durations.read(),
            )

    # Everything below runs under the lock.

    def _add(self, key: K, priority: int, since: float) -> None:
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            priority = max(priority, delayed[1])
        entry = self._ready.get(key)
        if entry is not None:
            if priority > entry.priority:
                self._raise(entry, priority)
        elif key in self._running:
            marked = self._marked.get(key)
            if marked is None:
                self._adds += 1
                self._marked[key] = priority
            elif priority > marked:
                self._marked[key] = priority
        else:
            self._adds += 1
            self._make_ready(key, priority, since)

    def _make_ready(self, key: K, priority: int, since: float) -> None:
        entry = _Ready(key, priority, since)
        self._ready[key] = entry
        self._seen_priorities.add(priority)
        self._enter(entry, priority)
        if priority < DEFAULT:
            heapq.heappush(self._aging, (since, next(self._ticket), entry))
        self._wake_one()

    def _enter(self, entry: _Ready[K], level: int) -> None:
        keys = self._levels.get(level)
        if keys is None:
            keys = self._levels[level] = OrderedDict()
        if not keys:
            insort(self._order, level)
        keys[entry.key] = entry
        entry.level = level

    def _leave(self, entry: _Ready[K]) -> None:
        keys = self._levels[entry.level]
        del keys[entry.key]
        if not keys:
            self._order.remove(entry.level)

    def _raise(self, entry: _Ready[K], priority: int) -> None:
        entry.priority = priority
        self._seen_priorities.add(priority)
        # One that has aged is served from a level above its priority already.
        if priority > entry.level:
            self._leave(entry)
            self._enter(entry, priority)

    def _take(self, now: float) -> Item[K]:
        while self._aging:
            since, _, entry = self._aging[0]
            if not (entry.gone or entry.level >= DEFAULT):
                if now - since <= AGING_SECONDS:
                    break
                self._leave(entry)
                self._enter(entry, DEFAULT)
            heapq.heappop(self._aging)
        level = self._order[-1]
        keys = self._levels[level]
        key, entry = keys.popitem(last=False)
        if not keys:
            self._order.pop()
        del self._ready[key]
        entry.gone = True
        self._running[key] = _Running(now, threading.get_ident(), entry.priority)
        self._queue_durations.observe(now - entry.since)
        if self._watch is None and self._delayed and self._sleepers:
            # Someone has to keep the time while this thread works.
            self._sleepers.popleft().notify()
        return Item(key, entry.priority)

    def _delay(self, key: K, due: float, priority: int) -> None:
        entry = self._ready.get(key)
        if entry is not None:
            if priority > entry.priority:
                self._raise(entry, priority)
            return
        if key in self._marked:
            self._marked[key] = max(priority, self._marked[key])
            return
        delayed = self._delayed.get(key)
        if delayed is not None:
            priority = max(priority, delayed[1])
            if delayed[0] <= due:
                self._delayed[key] = (delayed[0], priority, delayed[2])
                return
        ticket = next(self._ticket)
        self._delayed[key] = (due, priority, ticket)
        heapq.heappush(self._due, (due, ticket, key))
        if len(self._due) > 2 * len(self._delayed) + 64:
            # Void entries are dropped when their time comes; many long delays made void must not pile up.
            self._due = [(at, number, held) for held, (at, _, number) in self._delayed.items()]
            heapq.heapify(self._due)
        if self._due[0][1] == ticket:
            # The next moment to watch for has come nearer.
            if self._watch is not None:
                watch, self._watch = self._watch, None
                watch.notify()
            elif self._sleepers:
                self._sleepers.popleft().notify()

    def _promote(self, now: float) -> None:
        while self._due:
            due, ticket, key = self._due[0]
            delayed = self._delayed.get(key)
            current = delayed is not None and delayed[2] == ticket
            if current and due > now:
                return
            heapq.heappop(self._due)
            if delayed is not None and current:
                del self._delayed[key]
                self._add(key, delayed[1], due)

    def _sleep(self, now: float) -> None:
        condition = self._lock.condition()
        if self._due and self._watch is None:
            self._watch = condition
            self._clock.wait_condition(condition, self._due[0][0] - now)
            if self._watch is condition:
                self._watch = None
        else:
            self._sleepers.append(condition)
            self._clock.wait_condition(condition, None)
            # Whoever wakes a sleeper takes it off the list; a clock may also wake one on its own.
            if condition in self._sleepers:
                self._sleepers.remove(condition)

    def _wake_one(self) -> None:
        if self._sleepers:
            self._sleepers.popleft().notify()
        elif self._watch is not None:
            watch, self._watch = self._watch, None
            watch.notify()

    def _wake_all(self) -> None:
        while self._sleepers or self._watch is not None:
            self._wake_one()

    def _close(self) -> None:
        self._accepting = False
        self._serving = False
        self._ready.clear()
        self._levels.clear()
        self._order.clear()
        self._aging.clear()
        self._delayed.clear()
        self._due.clear()
        self._marked.clear()
        self._wake_all()
        self._drained.notify_all()
