"""The log of requests that tests read to see what a client did."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One answered request. `code` is 0 when the connection was cut without an answer.

    `seconds` is the time until the answer was ready, and until its end for a stream.
    """

    time: datetime
    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    user_agent: str
    content_type: str
    code: int
    seconds: float

    @property
    def is_write(self) -> bool:
        """Whether the verb changes something."""
        return self.verb in ("create", "update", "patch", "delete", "deletecollection")


class RequestLog:
    """A bounded log in the order of answers. Thread-safe; bodies and tokens are never in it.

    A request is in it before its answer is sent, a stream when it has ended.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._lock = threading.Condition()
        self._entries: deque[LoggedRequest] = deque(maxlen=limit)
        self._total = 0

    def add(self, entry: LoggedRequest) -> None:
        """Append an entry."""
        with self._lock:
            self._entries.append(entry)
            self._total += 1
            self._lock.notify_all()

    def __iter__(self) -> Iterator[LoggedRequest]:
        with self._lock:
            return iter(list(self._entries))

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    @property
    def total(self) -> int:
        """Requests ever logged, whatever was cleared."""
        with self._lock:
            return self._total

    def clear(self) -> None:
        """Forget the entries."""
        with self._lock:
            self._entries.clear()

    def select(
        self,
        *,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        user: str | None = None,
        code: int | None = None,
        writes: bool | None = None,
    ) -> list[LoggedRequest]:
        """The entries that have all the given attributes."""
        wanted = {
            "verb": verb,
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
            "name": name,
            "user": user,
            "code": code,
            "is_write": writes,
        }
        conditions = {field: value for field, value in wanted.items() if value is not None}
        return [entry for entry in self if all(getattr(entry, f) == v for f, v in conditions.items())]

    def counts(self) -> Counter[tuple[str, str]]:
        """How often each (verb, resource) was asked for; a subresource is written resource/subresource."""
        found: Counter[tuple[str, str]] = Counter()
        for entry in self:
            target = f"{entry.resource}/{entry.subresource}" if entry.subresource else entry.resource
            found[entry.verb, target or entry.path] += 1
        return found
