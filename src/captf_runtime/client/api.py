"""The client: the verbs over real connections, alone or bound to a reconcile's context."""

from __future__ import annotations

import importlib.metadata
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from captf_runtime.client.config import ClientConfig, load_config
from captf_runtime.client.discovery import Discovery
from captf_runtime.client.errors import ApiError, RequestTimeout, TransportError, error_from_answer
from captf_runtime.client.observe import NO_ANSWER, SILENT, RequestObserver
from captf_runtime.client.protocols import CallContext
from captf_runtime.client.retry import repeat as repeat_attempts
from captf_runtime.client.transport import (
    READ_TIMEOUT,
    Answer,
    Cancellation,
    Pool,
    PoolSize,
    Transport,
    user_agent,
)
from captf_runtime.client.verbs import Verbs, collection_path, watch_headers, watch_target
from captf_runtime.client.watch import WatchStream
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.metrics import Metrics
from captf_runtime.objects import Kind
from captf_runtime.threads import start_thread

T = TypeVar("T")

POOL_SIZE = 52
"""Connections of the API pool by default: 44 workers and eight to spare."""

_WATCH_CONNECTIONS = 1024
_STOP_PERIOD = 0.5


class Client(Verbs):
    """A thread-safe client of one API server. See `Verbs` for what it can do.

    Flow: build one per process with `from_config`, share it between threads, `close` it at the end. Parts
    that must not wait for busy API connections get their own with `dedicated`.

    Guarantees: every request has a timeout; a pause before a repetition ends with the stop signal; after
    `close`, or two seconds after the stop signal at the latest, no thread is blocked in a request.

    Args:
        config: where the server is and how to authenticate.
        program, version: the parts of the `User-Agent`.
        pool_size: the most connections for API calls. Watches have connections of their own.
        stop: ends all waits when set. Give the signal that comes *after* the graceful stop: requests that
            run while it is set fail with `Stopped`.
        observer: is told about every request, for metrics.
        clock: source of time.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        program: str = "captf",
        version: str | None = None,
        pool_size: int = POOL_SIZE,
        stop: threading.Event | None = None,
        observer: RequestObserver = SILENT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        agent = user_agent(program, version or _package_version())
        self._setup(config, agent, pool_size, stop, observer, clock)

    @classmethod
    def from_config(
        cls,
        *,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        user_agent: str = "captf",
        version: str | None = None,
        pool_size: int = POOL_SIZE,
        clock: Clock = SYSTEM_CLOCK,
        stop: threading.Event | None = None,
        observer: RequestObserver = SILENT,
    ) -> Client:
        """Find the configuration (see `load_config`) and build a client from it.

        Args:
            user_agent: name of the program.

        Raises:
            ConfigError: there is no usable configuration.
        """
        config = load_config(kubeconfig=kubeconfig, context=context, clock=clock)
        return cls(
            config,
            program=user_agent,
            version=version,
            pool_size=pool_size,
            stop=stop,
            observer=observer,
            clock=clock,
        )

    def dedicated(self, *, pool_size: int, suffix: str = "") -> Client:
        """Return a client of the same server with connections of its own. It is closed with this one.

        Args:
            pool_size: the most connections.
            suffix: appended to the `User-Agent`, such as "leader-election".
        """
        agent = f"{self._transport.agent} {suffix}" if suffix else self._transport.agent
        client = Client.__new__(Client)
        client._setup(self.config, agent, pool_size, self._stop, self._transport.observer, self._clock)
        self._dedicated.add(client)
        return client

    def _setup(
        self,
        config: ClientConfig,
        agent: str,
        pool_size: int,
        stop: threading.Event | None,
        observer: RequestObserver,
        clock: Clock,
    ) -> None:
        self.config = config
        self._clock = clock
        self._stop = stop
        self._closed = threading.Event()
        self._dedicated: weakref.WeakSet[Client] = weakref.WeakSet()
        self._transport = Transport(config, agent=agent, stop=self._closed, observer=observer, clock=clock)
        self._pool = Pool(config, PoolSize(pool_size), clock=clock)
        self._watch_pool = Pool(config, PoolSize(_WATCH_CONNECTIONS, bounded=False), clock=clock)
        self._discovery = Discovery(self.raw, clock=clock)
        if stop is not None:
            start_thread("client", lambda: self._close_on(stop), metrics=Metrics(), clock=clock)

    def _close_on(self, stop: threading.Event) -> None:
        while not stop.wait(_STOP_PERIOD):
            if self._closed.is_set():
                return
        self.close()

    @property
    def host(self) -> str:
        """Host and port of the server."""
        return self._transport.host

    @property
    def clock(self) -> Clock:
        """The clock that the client was built with."""
        return self._clock

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context or of the pod, "" when unknown."""
        return self.config.namespace

    @property
    def stopped(self) -> bool:
        """True once the client was closed, by hand or by the stop signal."""
        return self._closed.is_set()

    def close(self) -> None:
        """End every request and watch that is running and close all connections. May be called twice."""
        self._closed.set()
        self._transport.abort()
        self._pool.close()
        self._watch_pool.close()
        for client in list(self._dedicated):
            client.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def bind(self, ctx: CallContext) -> ContextClient:
        """Return the same verbs for one reconcile: see `ContextClient`."""
        return ContextClient(self, ctx)

    def kind(self, api_version: str, kind: str) -> Kind:
        """Return a kind by its `apiVersion` and name: registered, or asked of the server.

        What the server said is remembered for ten minutes.

        Raises:
            NotFound: the server does not serve it.
        """
        return self._discovery.kind(api_version, kind)

    def register(self, *kinds: Kind) -> None:
        """Make kinds known, so that `kind` need not ask the server for them."""
        self._discovery.register(*kinds)

    def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None,
        timeout_seconds: int,
        allow_bookmarks: bool = True,
        metadata_only: bool = False,
        send_initial_events: bool = False,
        read_timeout: float,
        cancellation: Cancellation | None = None,
    ) -> WatchStream:
        """Open a watch. It is not repeated when it fails or ends: that is the reflector's work.

        Args:
            resource_version: events after this version; None starts with an ADDED event per object.
            timeout_seconds: after how long the server ends the watch.
            send_initial_events: ask for all objects, ended by a marked bookmark, before the changes.
            read_timeout: seconds of silence after which the iteration raises `RequestTimeout`.
            cancellation: lets another thread end the watch, also while it is being opened.

        Raises:
            ApiError: the server refused.
        """
        target = watch_target(
            kind,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            allow_bookmarks=allow_bookmarks,
            send_initial_events=send_initial_events,
        )
        stream = self._transport.stream(
            self._watch_pool,
            target,
            verb="watch",
            headers=watch_headers(metadata_only),
            read_timeout=read_timeout,
            cancellation=cancellation,
        )
        path = collection_path(kind, namespace)
        if stream.status == 200:
            return WatchStream(stream, kind, path, metadata_only=metadata_only)
        try:
            body = stream.read_all()
        finally:
            stream.close()
        raise error_from_answer(
            stream.status, body, retry_after=stream.headers.get("Retry-After"), method="GET", path=path
        )

    def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send one request as it is and return the answer whatever its code; nothing is repeated.

        Args:
            path: absolute path, quoted.
            timeout: seconds, default 30.

        Raises:
            TransportError: there was no answer.
        """
        return self._transport.send(
            self._pool,
            method,
            f"{path}?{urlencode(query)}" if query else path,
            verb=method.lower(),
            body=body,
            headers=headers,
            read_timeout=READ_TIMEOUT if timeout is None else timeout,
            deadline=None if timeout is None else self._clock.monotonic() + timeout,
        )

    def _monotonic(self) -> float:
        return self._clock.monotonic()

    def _call(
        self,
        method: str,
        target: str,
        *,
        verb: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        attempt_timeout: float = READ_TIMEOUT,
        repeat: bool = True,
        cancellation: Cancellation | None = None,
        decode: Callable[[bytes], T],
        pause: Callable[[float], bool] | None = None,
        before_attempt: Callable[[], None] | None = None,
    ) -> T:
        path = target.partition("?")[0]
        deadline = None if timeout is None else self._clock.monotonic() + timeout

        def remaining() -> float | None:
            return None if deadline is None else deadline - self._clock.monotonic()

        def attempt() -> T:
            if before_attempt is not None:
                before_attempt()
            left = remaining()
            if left is not None and left <= 0:
                raise RequestTimeout(
                    "the time for this call is used up", ambiguous=False, method=method, path=path
                )
            answer = self._transport.send(
                self._pool,
                method,
                target,
                verb=verb,
                body=body,
                headers=headers,
                read_timeout=attempt_timeout if left is None else min(attempt_timeout, left),
                deadline=deadline,
                cancellation=cancellation,
                # Asked again: a free connection, or new credentials, may have been long in coming.
                before_sending=before_attempt,
            )
            if not 200 <= answer.status < 300:
                raise error_from_answer(
                    answer.status,
                    answer.data,
                    retry_after=answer.headers.get("Retry-After"),
                    method=method,
                    path=path,
                )
            try:
                return decode(answer.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise TransportError(
                    "the answer is not the JSON that was asked for", ambiguous=True, method=method, path=path
                ) from error

        if not repeat:
            return attempt()

        def before_retry(error: ApiError) -> None:
            self._transport.observer.retry(
                verb=verb, host=self.host, code=str(error.code) if error.code else NO_ANSWER
            )

        return repeat_attempts(
            attempt,
            write=method != "GET",
            pause=pause or self._pause,
            remaining=remaining,
            before_retry=before_retry,
        )

    def _pause(self, seconds: float) -> bool:
        return self._clock.sleep(seconds, self._closed)


class ContextClient(Verbs):
    """The client's verbs, bound to the context of one reconcile.

    Guarantees: no call outlives the context's deadline; every write first asks the context whether it may
    still happen, so a process that lost its leadership writes nothing; pauses end when the work should end.

    Raises:
        Whatever `ctx.check()` raises, and what `Verbs` raises.
    """

    def __init__(self, client: Client, ctx: CallContext) -> None:
        self._client = client
        self._ctx = ctx

    def _monotonic(self) -> float:
        return self._client._monotonic()

    def _call(
        self,
        method: str,
        target: str,
        *,
        verb: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        attempt_timeout: float = READ_TIMEOUT,
        repeat: bool = True,
        cancellation: Cancellation | None = None,
        decode: Callable[[bytes], T],
    ) -> T:
        left = self._ctx.remaining()
        if left is not None:
            timeout = left if timeout is None else min(timeout, left)
        return self._client._call(
            method,
            target,
            verb=verb,
            body=body,
            headers=headers,
            timeout=timeout,
            attempt_timeout=attempt_timeout,
            repeat=repeat,
            cancellation=cancellation,
            decode=decode,
            pause=self._pause,
            before_attempt=self._ctx.check,
        )

    def _pause(self, seconds: float) -> bool:
        self._ctx.sleep(seconds)
        return self._ctx.stopping


def _package_version() -> str:
    try:
        return importlib.metadata.version("captf")
    except importlib.metadata.PackageNotFoundError:
        return "dev"
