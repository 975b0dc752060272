"""Delivery of changes to handlers, apart from the thread that reads the watch.

Invariants:

* a handler sees the changes of one key in order; a change that it has not seen yet may be merged into a
  later one, but a deletion is never dropped;
* so per handler and key there are at most one addition or update and one deletion per uid waiting;
* handlers of one informer run on one thread; what a handler does delays no reading of the watch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from captf_runtime.cache.store import Change
from captf_runtime.cache.stored import StoredObject
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.objects import ObjectKey


@dataclass(frozen=True, slots=True)
class Added:
    """An object is in the store that was not there before. `initial`: it was in the handler's first list."""

    obj: StoredObject
    initial: bool = False


@dataclass(frozen=True, slots=True)
class Updated:
    """An object has changed. With `resync` it has not: old and new are the same."""

    old: StoredObject
    new: StoredObject
    resync: bool = False

    @property
    def obj(self) -> StoredObject:
        """The object now."""
        return self.new


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object is gone. `final_unknown`: the deletion itself was missed, and `obj` may be an older state."""

    obj: StoredObject
    final_unknown: bool = False


Event: TypeAlias = Added | Updated | Deleted
Handler: TypeAlias = Callable[[Event], None]


@dataclass(slots=True)
class _Waiting:
    """What waits for one key of one handler."""

    deletions: list[Deleted] = field(default_factory=list)
    change: Added | Updated | None = None
    initial: bool = False


class HandlerRegistration:
    """A handler of an informer. Made by `Informer.add_handler`."""

    def __init__(self, handler: Handler, name: str, delivery: Delivery) -> None:
        self.name = name
        self._handler = handler
        self._delivery = delivery
        # The first list, in its order; small, because it may be long. What changes meanwhile moves over.
        self._initial: dict[StoredObject, None] = {}
        self._waiting: dict[ObjectKey, _Waiting] = {}
        self._resync: deque[ObjectKey] = deque()
        self._initial_left = 0
        self._listed = False
        self._removed = False

    @property
    def has_synced(self) -> bool:
        """True once the handler has handled everything that was in the store when it first could."""
        return self._listed and self._initial_left == 0

    def remove(self) -> None:
        """End the delivery; a call that is running is not waited for."""
        self._delivery.remove(self)


class Delivery:
    """Keeps what waits for the handlers of one informer and calls them, on the thread that calls `run`.

    Args:
        lookup: returns what the store holds now, for resyncs.
        on_failure: is told a handler's name and the exception that it raised.
        on_synced: is called when a handler has handled its first list.
    """

    def __init__(
        self,
        *,
        lookup: Callable[[ObjectKey], StoredObject | None],
        on_failure: Callable[[str, BaseException], None],
        on_synced: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._lookup = lookup
        self._on_failure = on_failure
        self._on_synced = on_synced
        self._clock = clock
        self._ready = threading.Condition(threading.Lock())
        self._registrations: list[HandlerRegistration] = []
        self._order: deque[tuple[HandlerRegistration, ObjectKey]] = deque()
        self._stopped = False

    def registrations_locked(self) -> list[HandlerRegistration]:
        """The handlers, for a `change` function of `publish`, which already holds the lock."""
        return list(self._registrations)

    @property
    def pending(self) -> int:
        """How many (handler, key) pairs have something waiting, resyncs apart."""
        with self._ready:
            return sum(len(item._initial) + len(item._waiting) for item in self._registrations)

    def add(
        self, handler: Handler, name: str, first: Callable[[], Iterable[StoredObject] | None]
    ) -> HandlerRegistration:
        """Add a handler.

        Args:
            first: returns what it shall first see as additions, None when the first list is yet to come.
                Called while no change can be published.
        """
        with self._ready:
            registration = HandlerRegistration(handler, name, self)
            self._registrations.append(registration)
            objects = first()
            if objects is not None:
                self._first_list(registration, objects)
            return registration

    def remove(self, registration: HandlerRegistration) -> None:
        """Remove a handler and what waits for it."""
        with self._ready:
            registration._removed = True
            registration._initial.clear()
            registration._waiting.clear()
            registration._resync.clear()
            if registration in self._registrations:
                self._registrations.remove(registration)

    def publish(self, change: Callable[[], list[Change]], *, final_unknown: bool = False) -> list[Change]:
        """Change the store and hand the changes to the handlers, as one step for handlers being added.

        Args:
            change: changes the store and says how.
            final_unknown: deletions among the changes were missed when they happened.
        """
        with self._ready:
            changes = change()
            for registration in self._registrations:
                if registration._listed:
                    for item in changes:
                        self._enqueue(registration, item, final_unknown)
            if changes:
                self._ready.notify()
            return changes

    def publish_first(self, change: Callable[[], list[Change]]) -> list[Change]:
        """Like `publish`, for the first complete list: it ends when the handlers have handled it."""
        with self._ready:
            changes = change()
            for registration in self._registrations:
                if not registration._listed:
                    self._first_list(registration, [item.new for item in changes if item.new is not None])
            return changes

    def resync(self, objects: Iterable[StoredObject]) -> bool:
        """Deliver each object as an update to itself, behind everything else.

        Handlers that are still busy with the last resync are left out. False when all of them were.
        """
        keys = [obj.header.key for obj in objects]
        with self._ready:
            taken = [item for item in self._registrations if item._listed and not item._resync]
            for registration in taken:
                registration._resync.extend(keys)
            self._ready.notify()
            return bool(taken) or not self._registrations

    def run(self, wake_at: Callable[[], float | None], on_wake: Callable[[], None]) -> None:
        """Call handlers until `stop`.

        Args:
            wake_at: moment on the monotonic clock at which `on_wake` is due, None for never.
            on_wake: called on this thread at that moment.
        """
        while True:
            due = wake_at()
            if due is not None and self._clock.monotonic() >= due:
                on_wake()
                continue
            with self._ready:
                if self._stopped:
                    return
                taken = self._take()
                if taken is None:
                    self._clock.wait_condition(
                        self._ready, None if due is None else due - self._clock.monotonic()
                    )
                    continue
            registration, events, initial = taken
            for event in events:
                self._call(registration, event)
            if initial:
                self._handled_initial(registration)

    def stop(self) -> None:
        """Make `run` return after the call that is running; what waits is not delivered."""
        with self._ready:
            self._stopped = True
            self._ready.notify_all()

    # Under the lock ---------------------------------------------------------------------------------

    def _first_list(self, registration: HandlerRegistration, objects: Iterable[StoredObject]) -> None:
        registration._listed = True
        registration._initial = dict.fromkeys(reversed(list(objects)))  # taken from the end, which is quick
        registration._initial_left = len(registration._initial)
        if registration._initial_left == 0:
            self._on_synced()
        self._ready.notify()

    def _waiting(self, registration: HandlerRegistration, key: ObjectKey) -> _Waiting:
        waiting = registration._waiting.get(key)
        if waiting is None:
            waiting = registration._waiting[key] = _Waiting()
            self._order.append((registration, key))
        return waiting

    def _enqueue(self, registration: HandlerRegistration, change: Change, final_unknown: bool) -> None:
        old, new = change.old, change.new
        waiting = self._waiting(registration, change.key)
        if old is not None and old in registration._initial:
            del registration._initial[old]
            waiting.change, waiting.initial = Added(old, initial=True), True
        if old is not None and (new is None or new.header.uid != old.header.uid):
            # Replaced under the same name: the old one's end was not reported as such.
            waiting.deletions.append(Deleted(change.last or old, final_unknown or new is not None))
            waiting.change = None
            old = None
        if new is None:
            return
        pending = waiting.change
        if isinstance(pending, Added):
            waiting.change = Added(new, pending.initial)
        elif isinstance(pending, Updated):
            waiting.change = Updated(pending.old, new)
        elif old is None:
            waiting.change = Added(new)
        else:
            waiting.change = Updated(old, new)

    def _take(self) -> tuple[HandlerRegistration, list[Event], bool] | None:
        for registration in self._registrations:
            if registration._initial:
                obj, _ = registration._initial.popitem()
                return registration, [Added(obj, initial=True)], True
        while self._order:
            registration, key = self._order.popleft()
            waiting = registration._waiting.pop(key, None)
            if waiting is None:
                continue  # the handler was removed
            events: list[Event] = [*waiting.deletions]
            if waiting.change is not None:
                events.append(waiting.change)
            return registration, events, waiting.initial
        for registration in self._registrations:
            while registration._resync:
                key = registration._resync.popleft()
                now = self._lookup(key)
                if now is not None:
                    return registration, [Updated(now, now, resync=True)], False
        return None

    # Outside the lock -------------------------------------------------------------------------------

    def _call(self, registration: HandlerRegistration, event: Event) -> None:
        if registration._removed:
            return
        try:
            registration._handler(event)
        except BaseException as error:  # noqa: BLE001 - one handler's failure must not reach the others
            self._on_failure(registration.name, error)

    def _handled_initial(self, registration: HandlerRegistration) -> None:
        with self._ready:
            registration._initial_left -= 1
            synced = registration._initial_left == 0
        if synced:
            self._on_synced()
