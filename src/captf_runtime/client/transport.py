"""HTTP to the API server: connection pools, timeouts, credentials, and what failed when there is no answer.

Invariants:

* one attempt sends at most one request; urllib3's own retries and redirects are off;
* every socket has a connect timeout and a read timeout, and TCP keepalive;
* every request ends by its deadline, and without one in five minutes, whatever the server does (`limits`);
* the API pool never opens more sockets than its size: further requests wait for one;
* whether a failed request may have reached the server is known, not guessed: the connection notes the
  moment it starts to write.
"""

from __future__ import annotations

import platform
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, cast
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    EmptyPoolError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from captf_runtime.client import tls, upstream
from captf_runtime.client.config import ClientConfig, ConfigError
from captf_runtime.client.credentials import fits_header
from captf_runtime.client.errors import ConnectionFailed, RequestTimeout, Stopped, TransportError
from captf_runtime.client.limits import BoundedSocket, Errand, countdown, limited, seconds_left
from captf_runtime.client.observe import NO_ANSWER, SILENT, RequestObserver
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.log import get_logger

logger = get_logger(__name__)

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0
LIST_TIMEOUT = 60.0
LONGEST_REQUEST = 300.0
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES = 30, 15, 9

_CERTIFICATE_PERIOD = 30.0
_BODY_PART = 1 << 20
_POOL_SLICE = 1.0  # a wait for a free connection looks at the stop signal this often


class Answer:
    """A complete HTTP answer. Header names are matched without regard to case."""

    __slots__ = ("data", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


class _Progress(threading.local):
    """How far the request of this thread has come."""

    connecting = False
    sending = False
    socket: socket.socket | None = None
    watchers: tuple[_OpenSockets, ...] = ()
    before_sending: Callable[[], None] | None = None


_progress = _Progress()


class _OpenSockets:
    """The sockets that some thread waits on, so that another thread can end the wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()

    def add(self, live: socket.socket) -> None:
        with self._lock:
            self._sockets.add(live)

    def discard(self, live: socket.socket | None) -> None:
        with self._lock:
            if live is not None:
                self._sockets.discard(live)

    def cut_all(self) -> None:
        """Cut the sockets that are here. One that comes later finds that no time is left: see `_time_left`."""
        with self._lock:
            found = list(self._sockets)
        for live in found:
            _cut(live)


class Cancellation:
    """Ends the requests of one owner from another thread: those that run, and those still to come."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._sockets = _OpenSockets()

    @property
    def cancelled(self) -> bool:
        """True after `cancel`."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Make running requests fail with `Stopped` at once, and later ones before they are sent."""
        self._cancelled.set()
        self._sockets.cut_all()


def _cut(live: socket.socket) -> None:
    """Shut a socket down, so that a thread that reads from it returns at once.

    The plain socket's method is called even under TLS: it acts on the descriptor alone and leaves the TLS
    state to the thread that is using it.
    """
    try:
        socket.socket.shutdown(live, socket.SHUT_RDWR)
    except OSError:
        pass  # not connected any more, which is what was wanted


class _Connection(HTTPConnection):
    """urllib3's connection; it tells the thread's progress when a request starts to be written."""

    _live: socket.socket | None = None

    def connect(self) -> None:
        _progress.connecting = True
        try:
            super().connect()
        finally:
            _progress.connecting = False
        self._live = self.sock if isinstance(self.sock, socket.socket) else None

    def send(self, data: Any) -> None:
        if not _progress.connecting:  # a CONNECT to a proxy is no request yet
            if self.sock is None:
                self.connect()
            if not _progress.sending:
                if _progress.before_sending is not None:
                    _progress.before_sending()
                _progress.sending = True
                _progress.socket = self._live
                if self._live is not None:
                    for sockets in _progress.watchers:
                        sockets.add(self._live)
        super().send(data)


class _DirectConnection(_Connection):
    """The same without a SOCKS proxy: here the connecting itself can be ended from another thread too."""

    def _new_conn(self) -> socket.socket:
        failure: OSError | None = None
        try:
            addresses = _addresses(self._dns_host.strip("[]"), self.port)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, str(error)) from error
        for number, (family, type_, protocol, _, address) in enumerate(addresses):
            sock = BoundedSocket(family, type_, protocol)
            for sockets in _progress.watchers:
                sockets.add(sock)
            try:
                for option in self.socket_options or ():
                    sock.setsockopt(*option)
                timeout = float(self.timeout) if isinstance(self.timeout, int | float) else CONNECT_TIMEOUT
                # One address that is silent must leave time for the next.
                sock.settimeout(max(0.001, min(timeout, seconds_left() / (len(addresses) - number))))
                sock.connect(address)
                sock.settimeout(timeout)
                return sock
            except OSError as error:
                sock.close()
                failure = error
            finally:
                for sockets in _progress.watchers:
                    sockets.discard(sock)
        if isinstance(failure, TimeoutError):
            raise ConnectTimeoutError(self, f"no connection to {self.host} in time") from failure
        raise NewConnectionError(self, f"no connection: {failure}") from failure


_AddressInfos = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]]
_lookups: dict[tuple[str, int], Errand[_AddressInfos]] = {}
_lookups_lock = threading.Lock()


def _addresses(host: str, port: int) -> _AddressInfos:
    """Look a name up as long as the request may take.

    The resolver cannot be interrupted. So it runs on a thread of its own, one for each name at a time; its own
    configuration bounds how long that lives.
    """

    def look_up() -> _AddressInfos:
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        finally:
            with _lookups_lock:
                del _lookups[host, port]

    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # a name, not an address
    with _lookups_lock:
        lookup = _lookups.get((host, port))
        if lookup is None:
            lookup = _lookups[host, port] = Errand(look_up, "lookup", f"the lookup of {host}")
    return lookup.outcome()


def _tracked(pool_class: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """Return the pool class with connections that tell their progress, whatever proxy they go through."""
    below = cast(type[HTTPConnection], pool_class.ConnectionCls)
    through_socks = "socks" in below.__module__
    above: type[HTTPConnection] = _Connection if through_socks else _DirectConnection
    connection = type(f"Tracked{below.__name__}", (above, below), {})
    return cast(
        type[HTTPConnectionPool],
        type(f"Tracked{pool_class.__name__}", (pool_class,), {"ConnectionCls": connection}),
    )


def keepalive_options() -> list[tuple[int, int, int]]:
    """Socket options: no delay, and keepalive after 30 s idle, every 15 s, 9 probes."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def user_agent(program: str, version: str) -> str:
    """Return `<program>/<version> (<os>/<arch>)`."""
    return f"{program}/{version} ({platform.system().lower()}/{platform.machine().lower()})"


class _PoolOptions(TypedDict, total=False):
    maxsize: int
    block: bool
    socket_options: list[tuple[int, int, int]]
    ssl_context: Any
    server_hostname: str


@dataclass(frozen=True, slots=True)
class PoolSize:
    """How many connections a pool keeps. A bounded one never opens more; others wait."""

    connections: int
    bounded: bool = True


class Pool:
    """The connections of one purpose (API calls, watches, leader election, events)."""

    def __init__(self, config: ClientConfig, size: PoolSize, *, clock: Clock = SYSTEM_CLOCK) -> None:
        if size.connections < 1:
            raise ValueError(f"a pool needs at least one connection, not {size.connections}")
        self._config = config
        self._size = size
        self._clock = clock
        self._lock = threading.Lock()
        self._manager: urllib3.PoolManager | None = None
        self._fingerprint: tls.Fingerprint = ()
        self._given: tls.Pair | None = None
        self._checked_at = float("-inf")

    def manager(self) -> urllib3.PoolManager:
        """Return the pools to send through; fresh ones when authorities or client certificate have changed."""
        # Asked before the lock is taken: a plugin takes its time.
        given = self._config.credentials.certificate() if self._secure else None
        with self._lock:
            now = self._clock.monotonic()
            recent = given == self._given and now - self._checked_at < _CERTIFICATE_PERIOD
            if self._manager is not None and recent:
                return self._manager
            self._checked_at, self._given = now, given
            current = tls.fingerprint(self._config, given) if self._secure else ()
            if self._manager is not None and current == self._fingerprint:
                return self._manager
            try:
                manager = self._build(given)
            except ConfigError as error:
                if self._manager is None:
                    raise
                # Half of something new has been written: the old serves until the rest is there.
                logger.warning(
                    "what TLS needs has changed and cannot be used yet: keeping the old", err=error
                )
                return self._manager
            if self._manager is not None:
                self._manager.clear()
            self._manager, self._fingerprint = manager, current
            return manager

    def check_soon(self) -> None:
        """Look at authorities and client certificate again with the next request."""
        with self._lock:
            self._checked_at = float("-inf")

    def renew(self) -> bool:
        """Look at authorities and client certificate again; whether the next request is made with others.

        Raises:
            ConfigError, TimeoutError: a plugin did not hand out its certificate.
        """
        given = self._config.credentials.certificate() if self._secure else None
        self.check_soon()
        with self._lock:
            return self._secure and tls.fingerprint(self._config, given) != self._fingerprint

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            if self._manager is not None:
                self._manager.clear()

    @property
    def _secure(self) -> bool:
        return self._config.server.startswith("https://")

    def _build(self, given: tls.Pair | None) -> urllib3.PoolManager:
        config = self._config
        configuration = upstream.load("kubernetes.client.configuration").Configuration(host=config.server)
        if config.proxy_url:
            configuration.proxy = config.proxy_url
        configuration.verify_ssl = config.verify
        rest = upstream.load("kubernetes.client.rest").RESTClientObject(configuration)
        manager = cast(urllib3.PoolManager, rest.pool_manager)
        manager.pool_classes_by_scheme = {
            scheme: _tracked(pool_class) for scheme, pool_class in manager.pool_classes_by_scheme.items()
        }
        # The context below says all about trust; what comes beside it would be trusted in addition.
        for name in ("ca_certs", "ca_cert_data", "cert_file", "key_file"):
            manager.connection_pool_kw.pop(name, None)
        options: _PoolOptions = {
            "maxsize": self._size.connections,
            "block": self._size.bounded,
            "socket_options": keepalive_options(),
        }
        if self._secure:
            options["ssl_context"] = tls.build_context(config, given)
            if config.tls_server_name:
                options["server_hostname"] = config.tls_server_name
        manager.connection_pool_kw.update(options)
        return manager


class Stream:
    """An answer whose body is still arriving. One thread reads; any thread may close."""

    def __init__(
        self,
        response: urllib3.BaseHTTPResponse,
        live: socket.socket | None,
        watchers: tuple[_OpenSockets, ...],
    ) -> None:
        self._response = response
        self._socket = live
        self._watchers = watchers
        self._closed = False

    @property
    def status(self) -> int:
        """HTTP code."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the answer."""
        return self._response.headers

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    def read_some(self) -> bytes:
        """Block until bytes arrive and return them, b"" at the end of the body or after `close`.

        Raises:
            RequestTimeout: nothing arrived within the read timeout.
            TransportError: the connection broke.
        """
        try:
            data = self._response.read1(1 << 16)
        except ReadTimeoutError as error:
            if self._closed:
                return b""
            raise RequestTimeout("nothing arrived within the read timeout", ambiguous=True) from error
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # ValueError and AttributeError are what the reader trips over when `close` takes the file away.
            if self._closed:
                return b""
            raise TransportError(f"the stream broke: {type(error).__name__}", ambiguous=True) from error
        return b"" if self._closed else data

    def set_read_timeout(self, seconds: float) -> None:
        """Change the read timeout from now on. To be called by the thread that reads."""
        if self._socket is not None and not self._closed:
            try:
                self._socket.settimeout(seconds)
            except OSError:
                pass  # closed meanwhile; the next read ends

    def read_all(self) -> bytes:
        """Read the rest of the body, for the answer of a refused stream. Raises like `read_some`."""
        parts = []
        with limited(countdown(READ_TIMEOUT)):
            while part := self.read_some():
                parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Cut the connection; a blocked `read_some` returns at once. Closing twice is fine."""
        self._closed = True
        if self._socket is not None:
            _cut(self._socket)
            for sockets in self._watchers:
                sockets.discard(self._socket)
        try:
            self._response.close()
        except (HTTPError, OSError, ValueError):
            pass  # the reader saw the cut first and has closed it


class Transport:
    """Sends requests. Thread-safe.

    Args:
        config: where and with which credentials.
        agent: the `User-Agent`.
        stop: when set, waits end and no request is sent any more.
        observer: told about every attempt.
        clock: for credentials, certificates and durations.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        agent: str,
        stop: threading.Event | None = None,
        observer: RequestObserver = SILENT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config = config
        self.agent = agent
        self.observer = observer
        self.clock = clock
        self.host = urlsplit(config.server).netloc.rpartition("@")[2]
        self.stop = stop if stop is not None else threading.Event()
        self._sockets = _OpenSockets()

    def send(
        self,
        pool: Pool,
        method: str,
        target: str,
        *,
        verb: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout: float = READ_TIMEOUT,
        deadline: float | None = None,
        cancellation: Cancellation | None = None,
        before_sending: Callable[[], None] | None = None,
    ) -> Answer:
        """Send one request and read its answer; on 401 once more with reloaded credentials.

        Args:
            target: path with query, relative to the server's URL.
            verb: name of the operation, for the observer.
            read_timeout: seconds without a byte after which the request is given up.
            deadline: second on the monotonic clock at which it is given up whatever it waits for then, also
                although bytes still arrive: a server that sends one now and then would hold its caller for ever.
                Without one that is five minutes after the start.
            cancellation: lets another thread end the request.
            before_sending: called on the connection that the request is about to be written to, however long that
                took to get; what it raises ends the request unsent.

        Raises:
            ConnectionFailed: not sent.
            RequestTimeout, TransportError: no complete answer.
            Stopped: the stop signal was set, or the request was cancelled.
        """
        request = _Request(
            method,
            target,
            verb,
            body,
            dict(headers or {}),
            read_timeout,
            cancellation,
            deadline,
            before_sending,
        )
        with limited(self._time_left(request, LONGEST_REQUEST)):
            authorization = self._authorization(request)
            answer = self._attempt(pool, request, authorization)
            if answer.status == 401 and self._reload(authorization, pool):
                # Refused before anything was executed, so that any verb may be repeated.
                self.observer.retry(verb=verb, host=self.host, code="401")
                answer = self._attempt(pool, request, self._authorization(request))
            return answer

    def stream(
        self,
        pool: Pool,
        target: str,
        *,
        verb: str,
        headers: Mapping[str, str] | None = None,
        read_timeout: float,
        cancellation: Cancellation | None = None,
    ) -> Stream:
        """Open a GET whose body is read piece by piece, on a connection of its own. Raises like `send`.

        Args:
            read_timeout: seconds that the opening may take in all, and the stream may be silent afterwards.
        """
        # Without reuse, closing the stream can never cut the request of another.
        closing = {**(headers or {}), "Connection": "close"}
        request = _Request("GET", target, verb, None, closing, read_timeout, cancellation)
        with limited(self._time_left(request, read_timeout)):
            authorization = self._authorization(request)
            stream = self._open_stream(pool, request, authorization)
            if stream.status == 401 and self._reload(authorization, pool):
                stream.close()
                self.observer.retry(verb=verb, host=self.host, code="401")
                stream = self._open_stream(pool, request, self._authorization(request))
            return stream

    def abort(self) -> None:
        """Cut every connection that a request or a stream waits on. To be called when `stop` is set."""
        self._sockets.cut_all()

    def _attempt(self, pool: Pool, request: _Request, authorization: str | None) -> Answer:
        started = self.clock.monotonic()
        code = NO_ANSWER
        try:
            response = self._open(pool, request, authorization)
            try:
                data = self._body(response, request)
            except (HTTPError, OSError) as error:
                response.close()
                raise self._failure(error, request) from error
            code = str(response.status)
            return Answer(response.status, response.headers, data)
        finally:
            self._forget(request)
            self._observe(request, code, started)

    def _body(self, response: urllib3.BaseHTTPResponse, request: _Request) -> bytes:
        if request.deadline is None:
            return response.read(decode_content=False)
        parts: list[bytes] = []
        while True:
            if seconds_left() <= 0:  # behind a proxy with TLS the socket is none of ours
                raise TimeoutError
            part = response.read1(_BODY_PART, decode_content=False)
            if not part:
                return b"".join(parts)
            parts.append(part)

    def _open_stream(self, pool: Pool, request: _Request, authorization: str | None) -> Stream:
        started = self.clock.monotonic()
        code = NO_ANSWER
        try:
            response = self._open(pool, request, authorization)
            code = str(response.status)
            stream = Stream(response, _progress.socket, _progress.watchers)
            stream.set_read_timeout(request.read_timeout)  # the opening may have left less
            return stream
        finally:
            if code == NO_ANSWER:
                self._forget(request)
            self._observe(request, code, started)

    def _forget(self, request: _Request) -> None:
        for sockets in self._watching(request):
            sockets.discard(_progress.socket)

    def _watching(self, request: _Request) -> tuple[_OpenSockets, ...]:
        if request.cancellation is None:
            return (self._sockets,)
        return (self._sockets, request.cancellation._sockets)

    def _time_left(self, request: _Request, longest: float) -> Callable[[], float]:
        longest_left = countdown(longest)

        def left() -> float:
            if self._stopped(request):
                return 0.0
            if request.deadline is None:
                return longest_left()
            return min(longest_left(), request.deadline - self.clock.monotonic())

        return left

    def _stopped(self, request: _Request) -> bool:
        cancellation = request.cancellation
        return self.stop.is_set() or (cancellation is not None and cancellation.cancelled)

    def _stop_of(self, request: _Request) -> Stopped:
        return Stopped("the client is stopped", ambiguous=False, method=request.method, path=request.path)

    def _observe(self, request: _Request, code: str, started: float) -> None:
        self.observer.request(
            method=request.method,
            verb=request.verb,
            host=self.host,
            code=code,
            seconds=self.clock.monotonic() - started,
        )

    def _authorization(self, request: _Request) -> str | None:
        def failed(message: str) -> ConnectionFailed:
            return ConnectionFailed(message, method=request.method, path=request.path)

        try:
            authorization = self.config.credentials.authorization()
        except (ConfigError, TimeoutError, ValueError) as error:
            if self._stopped(request):
                raise self._stop_of(request) from error
            raise failed(str(error)) from error
        if authorization is not None and not fits_header(authorization):
            # Said here, because whoever writes headers would say it with the token.
            raise failed("the credentials hold characters that cannot be sent")
        return authorization

    def _reload(self, refused: str | None, pool: Pool) -> bool:
        try:
            reloaded = self.config.credentials.reload(refused)
            return pool.renew() or reloaded
        except (ConfigError, TimeoutError, ValueError) as error:
            logger.warning("cannot reload the credentials", err=error)
            return False

    def _open(self, pool: Pool, request: _Request, authorization: str | None) -> urllib3.BaseHTTPResponse:
        headers = {"User-Agent": self.agent, "Accept": "application/json", **request.headers}
        if authorization is not None:
            headers["Authorization"] = authorization
        try:
            manager = pool.manager()
        except (ConfigError, TimeoutError) as error:
            raise ConnectionFailed(str(error), method=request.method, path=request.path) from error
        left = request.read_timeout
        _progress.connecting, _progress.sending = False, False
        _progress.socket, _progress.watchers = None, self._watching(request)
        _progress.before_sending = request.before_sending
        while True:
            if self._stopped(request):
                raise self._stop_of(request)
            limit = min(request.read_timeout, seconds_left())
            if limit <= 0:
                raise RequestTimeout(
                    "the time for this call is used up",
                    ambiguous=False,
                    method=request.method,
                    path=request.path,
                )
            timeout = urllib3.Timeout(
                connect=min(CONNECT_TIMEOUT, limit),
                read=limit,
                total=None if request.deadline is None else limit,
            )
            try:
                return manager.urlopen(
                    request.method,
                    self.config.server + request.target,
                    body=request.body,
                    headers=headers,
                    retries=False,
                    redirect=False,
                    assert_same_host=False,
                    timeout=timeout,
                    pool_timeout=min(_POOL_SLICE, left, limit),
                    preload_content=False,
                    decode_content=False,
                )
            except EmptyPoolError as error:
                left -= _POOL_SLICE
                if left <= 0:
                    raise RequestTimeout(
                        f"no free connection within {request.read_timeout:.0f} s",
                        ambiguous=False,
                        method=request.method,
                        path=request.path,
                    ) from error
            except (HTTPError, OSError) as error:
                if isinstance(_root(error), ssl.SSLError):
                    pool.check_soon()  # perhaps an authority or a certificate has just been replaced
                raise self._failure(error, request) from error

    def _failure(self, error: Exception, request: _Request) -> TransportError:
        where = {"method": request.method, "path": request.path}
        if self._stopped(request):
            return Stopped("the client is stopped", ambiguous=_progress.sending, **where)
        cause = _root(error)
        if not _progress.sending:
            return ConnectionFailed(
                f"cannot connect to {self.host}: {_describe(error, cause)}",
                refused=isinstance(cause, ConnectionRefusedError),
                **where,
            )
        if isinstance(error, ReadTimeoutError) or isinstance(cause, TimeoutError):
            return RequestTimeout("no answer within the read timeout", ambiguous=True, **where)
        return TransportError(
            f"the connection to {self.host} broke: {_describe(error, cause)}", ambiguous=True, **where
        )


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    verb: str
    body: bytes | None
    headers: dict[str, str]
    read_timeout: float
    cancellation: Cancellation | None = None
    deadline: float | None = None
    before_sending: Callable[[], None] | None = None

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


def _root(error: BaseException) -> BaseException:
    """Follow the chain down to the operating system's or the TLS library's own error."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        below = error.__cause__ or error.__context__
        if below is None:
            reason = getattr(error, "reason", None)
            below = reason if isinstance(reason, BaseException) else None
        if below is None:
            return error
        error = below
    return error


def _describe(error: BaseException, cause: BaseException) -> str:
    # The cause comes first: to urllib3 a refused connection is a kind of connect timeout.
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    if isinstance(error, ConnectTimeoutError):
        return f"no connection within {CONNECT_TIMEOUT:.0f} s"
    if isinstance(error, SSLError | NewConnectionError | ProxyError):
        return f"{type(cause).__name__}: {cause}"[:256]
    return type(cause).__name__
