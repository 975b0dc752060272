"""A local copy of all objects of a kind, kept by list and watch over HTTP.

Deliberately independent of `captf_runtime.cache`: these controllers stand in for the cluster against which
that cache is judged.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from captf_runtime.client import Client, WatchStream
from captf_runtime.client.errors import ApiError
from captf_runtime.log import get_logger
from captf_runtime.objects import Kind, Object, ObjectKey, compare_resource_versions, key_of, uid_of
from captf_runtime.objects import resource_version_of as version_of

__all__ = ["Mirror"]

_WATCH_SECONDS = 300
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_REMEMBERED_DELETIONS = 4096

_logger = get_logger(__name__)


class Mirror:
    """All objects of a kind in all namespaces, as last seen.

    Args:
        client: how to reach the API server.
        kind: the kind to copy.
        on_change: called with the key of each object that appeared, changed or went, and for all objects
            after each list. Runs in the mirror's thread and must not block.

    The objects handed out are shared: do not change them.
    """

    def __init__(self, client: Client, kind: Kind, on_change: Callable[[ObjectKey], None]) -> None:
        self._client = client
        self._kind = kind
        self._on_change = on_change
        self._lock = threading.Lock()
        self._objects: dict[ObjectKey, Object] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._stop = threading.Event()
        self._synced = threading.Event()
        self._stream: WatchStream | None = None
        self._thread = threading.Thread(target=self._run, name=f"mirror-{kind.resource}", daemon=True)

    def start(self) -> None:
        """Begin to copy, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stop.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()
        if self._thread.is_alive():
            self._thread.join()

    def wait_for_sync(self, timeout: float) -> bool:
        """Wait until the first list has been read; False after `timeout` seconds."""
        return self._synced.wait(timeout)

    def get(self, key: ObjectKey) -> Object | None:
        """The object as last seen, None when there is none."""
        with self._lock:
            return self._objects.get(key)

    def items(self) -> list[Object]:
        """All objects as last seen."""
        with self._lock:
            return list(self._objects.values())

    def observe(self, obj: Object) -> None:
        """Take in the answer to an own write, so that the next look does not miss it."""
        with self._lock:
            if uid_of(obj) in self._gone:
                return
            known = self._objects.get(key_of(obj))
            if known is None or (compare_resource_versions(version_of(obj), version_of(known)) or 0) > 0:
                self._objects[key_of(obj)] = obj

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            try:
                version = self._list()
                pause = _FIRST_PAUSE
                while version and not self._stop.is_set():
                    version = self._watch(version)
            except ApiError as error:
                if not self._stop.is_set():
                    _logger.debug("list or watch ended", kind=str(self._kind), err=error)
            self._stop.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _list(self) -> str:
        found = self._client.list(self._kind)
        objects = {key_of(obj): obj for obj in found.items}
        with self._lock:
            for key, obj in self._objects.items():
                if key not in objects:
                    self._bury(obj)
            touched = [*objects, *(key for key in self._objects if key not in objects)]
            self._objects = objects
        self._synced.set()
        for key in touched:
            self._on_change(key)
        return found.resource_version

    def _watch(self, version: str) -> str:
        """Follow the changes after `version`; return where to go on, "" when a new list is needed."""
        stream = self._client.watch(
            self._kind,
            resource_version=version,
            timeout_seconds=_WATCH_SECONDS,
            read_timeout=_WATCH_SECONDS + 30.0,
        )
        with self._lock:
            self._stream = stream
        try:
            if self._stop.is_set():
                return ""
            for event in stream:
                obj = event.decode()
                version = version_of(obj)
                if event.type != "BOOKMARK":
                    self._take(event.type, obj)
        finally:
            with self._lock:
                self._stream = None
            stream.close()
        return version

    def _take(self, event_type: str, obj: Object) -> None:
        key = key_of(obj)
        with self._lock:
            if event_type == "DELETED":
                known = self._objects.get(key)
                if known is not None and uid_of(known) == uid_of(obj):
                    del self._objects[key]
                self._bury(obj)
            else:
                self._objects[key] = obj
        self._on_change(key)

    def _bury(self, obj: Object) -> None:
        self._gone[uid_of(obj)] = None
        while len(self._gone) > _REMEMBERED_DELETIONS:
            self._gone.popitem(last=False)
