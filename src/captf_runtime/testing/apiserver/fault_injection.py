"""Carries out the faults that strike a request."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.http_server import Response, Stream
from captf_runtime.testing.apiserver.requests import RequestInfo
from captf_runtime.testing.apiserver.status import ApiStatus
from captf_runtime.testing.apiserver.watch import error_line
from captf_runtime.testing.faults import Action, Subject

SendLine = Callable[[str, bytes], bool]


def subject_of(info: RequestInfo, user: str) -> Subject:
    """What faults are matched against."""
    return Subject(info.verb, info.group, info.resource, info.subresource, info.namespace, info.name, user)


class Attempt:
    """The faults of one request."""

    def __init__(
        self,
        actions: list[Action],
        info: RequestInfo,
        stopping: threading.Event,
        compact: Callable[[], object],
    ) -> None:
        self._actions = actions
        self._info = info
        self._stopping = stopping
        self._compact = compact

    def delay(self) -> None:
        """Wait for as long as the latencies add up to, or until the server stops."""
        seconds = sum(action.seconds for action in self._actions if action.kind == "latency")
        if seconds > 0:
            self._stopping.wait(seconds)

    def early(self) -> Action | None:
        """What keeps the request from being carried out."""
        for action in self._actions:
            if action.kind in ("answer", "reset") and not action.after_commit:
                return action
        return None

    def late(self) -> Action | None:
        """What spoils the answer."""
        for action in self._actions:
            if action.after_commit:
                return action
        return None

    def failure(self, action: Action) -> ApiStatus:
        """The Status of an `answer`."""
        headers = {} if action.retry_after is None else {"Retry-After": str(action.retry_after)}
        info = self._info
        if action.code == 409 and not action.message:
            built = status.conflict(info.resource, info.group, info.name)
        elif action.code == 403:
            built = status.forbidden(info.resource, info.group, info.name, action.message)
        else:
            details = {"retryAfterSeconds": action.retry_after} if action.retry_after is not None else None
            built = ApiStatus(action.code, action.message, action.reason, details)
        built.headers.update(headers)
        return built

    def spoil(self, action: Action, response: Response) -> Response | None:
        """The answer under a late fault; None cuts the connection instead."""
        match action.kind:
            case "answer":
                failure = self.failure(action)
                body = msgspec.json.encode(failure.to_object())
                return Response(failure.code, body, headers=list(failure.headers.items()))
            case "invalid-json":
                return Response(200, b'{"kind": nonsense', headers=response.headers)
        return None

    def sender(self, stream: Stream) -> SendLine:
        """The function that writes the lines of a watch under its faults."""
        actions = [action for action in self._actions if action.on_watch]
        return _FaultyStream(stream, actions, self._compact).send


class _FaultyStream:
    def __init__(self, stream: Stream, actions: list[Action], compact: Callable[[], object]) -> None:
        self._stream = stream
        self._actions = actions
        self._compact = compact
        self._events = 0

    def send(self, kind: str, line: bytes) -> bool:
        if kind == "BOOKMARK" and self._has("no-bookmarks"):
            return True
        if kind == "END" and self._has("no-end-marker"):
            return True
        for action in self._actions:
            if (
                action.kind in ("drop", "silence", "watch-error", "compaction")
                and self._events >= action.events
            ):
                return self._end(action, line)
        self._events += 1
        if not self._stream.send(line):
            return False
        return self._stream.send(line) if self._has("duplicates") else True

    def _has(self, kind: str) -> bool:
        return any(action.kind == kind for action in self._actions)

    def _end(self, action: Action, line: bytes) -> bool:
        match action.kind:
            case "silence":
                return True
            case "drop":
                if action.mid_line:
                    self._stream.send(line[: len(line) // 2])
                self._stream.abort()
                return False
            case "compaction":
                self._compact()
                failure = status.expired("The resourceVersion for the provided watch is too old.")
            case _:
                failure = ApiStatus(action.code, action.message, action.reason)
        self._stream.send(error_line(failure))
        self._stream.finish()
        return False
