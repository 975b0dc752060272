"""Following the source Secrets of identities, so that a new key reaches its mirrors in seconds.

The informer of managed Secrets does not see the Secrets that operators keep their credentials in. So each
Secret that an identity names is watched by itself, and only its metadata: that it changed is all that has to
be known, what it holds is read when a pass copies it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from captf_controllers.api import names
from captf_controllers.api.identity import TerraformClusterIdentitySpec
from captf_controllers.api.typed import spec_of
from captf_runtime.cache import Deleted, Event, Informer, Scope, Updated
from captf_runtime.client import Client
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.log import get_logger
from captf_runtime.metrics import Metrics
from captf_runtime.objects import SECRET, Object

__all__ = ["QUIET_SECONDS", "Source", "SourceWatches", "source_of"]

logger = get_logger(__name__)

QUIET_SECONDS: Final = 5.0
"""How long an identity's users are left alone after they were woken, however often its Secret changes."""

_POLL_SECONDS: Final = 0.5
_JOIN_SECONDS: Final = 5.0


class Source(NamedTuple):
    """A Secret that an identity names."""

    namespace: str
    name: str


def source_of(identity: Object) -> Source | None:
    """The Secret that the identity names, None when it names none that can exist."""
    reference = spec_of(identity, TerraformClusterIdentitySpec).secret_ref
    if reference is None or not reference.namespace:
        return None
    if not (names.may_name_object(reference.name) and names.may_name_object(reference.namespace)):
        return None
    return Source(reference.namespace, reference.name)


class SourceWatches:
    """One metadata watch for each Secret that identities name.

    Expected flow: it is a handler of the identity informer and a runnable of the leader. A Secret that
    appears, changes or goes wakes the users of every identity that names it, at most once in `QUIET_SECONDS`
    for each identity. The resync of the controllers stays the safety net.

    Args:
        client: for the watches, which have connections of their own.
        wake: has everything reconciled that an identity's credentials concern; gets the identity's name.
    """

    needs_leader = True

    def __init__(self, client: Client, wake: Callable[[str], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._wake = wake
        self._clock = clock
        # Not the manager's series: these informers would write over those of the managed Secrets.
        self._metrics = Metrics()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._sources: dict[str, Source] = {}
        self._informers: dict[Source, Informer] = {}
        self._due: set[str] = set()
        self._woken: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Take note of what an identity names now."""
        name = event.obj.header.name
        source = None if isinstance(event, Deleted) else source_of(event.obj.decode())
        with self._lock:
            if self._sources.get(name) == source:
                return
            if source is None:
                del self._sources[name]
            else:
                self._sources[name] = source
        self._changed.set()

    def run(self, stop: threading.Event) -> None:
        """Watch, and wake, until `stop` is set."""
        try:
            while not stop.is_set():
                self._changed.clear()
                self._adjust()
                for identity in self._take_due():
                    self._wake(identity)
                self._clock.wait(self._changed, _POLL_SECONDS)
        finally:
            self._end(list(self._informers))

    def _adjust(self) -> None:
        with self._lock:
            wanted = set(self._sources.values())
        self._end([source for source in self._informers if source not in wanted])
        for source in wanted - self._informers.keys():
            scope = Scope(
                SECRET, source.namespace, field_selector=f"metadata.name={source.name}", metadata_only=True
            )
            informer = Informer(
                self._client, scope, resync_period=0, metrics=self._metrics, clock=self._clock
            )
            informer.add_handler(self._note(source), name="identity-source")
            self._informers[source] = informer
            informer.start()

    def _end(self, sources: list[Source]) -> None:
        ending = [self._informers.pop(source) for source in sources]
        for informer in ending:
            informer.stop()
        for informer in ending:
            if informer.join(_JOIN_SECONDS):
                logger.warning("the watch of a source Secret did not end in time", scope=str(informer.scope))

    def _note(self, source: Source) -> Callable[[Event], None]:
        def note(event: Event) -> None:
            if isinstance(event, Updated) and event.resync:
                return
            with self._lock:
                self._due.update(name for name, named in self._sources.items() if named == source)
            self._changed.set()

        return note

    def _take_due(self) -> list[str]:
        now = self._clock.monotonic()
        with self._lock:
            taken = sorted(
                name for name in self._due if now - self._woken.get(name, -QUIET_SECONDS) >= QUIET_SECONDS
            )
            self._due.difference_update(taken)
            self._woken = {name: at for name, at in self._woken.items() if now - at < QUIET_SECONDS}
            self._woken.update(dict.fromkeys(taken, now))
        return taken
