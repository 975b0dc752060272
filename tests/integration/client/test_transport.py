"""Connections, timeouts, credentials and repetitions, against servers that misbehave."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client.endings import timed_out
from tests.integration.scripted_server import Received, Reply, Script, ScriptedServer, status

from captf_runtime.client import (
    ApiError,
    Cancellation,
    Client,
    ClientConfig,
    ConnectionFailed,
    InternalError,
    RequestMetrics,
    RequestTimeout,
    ServiceUnavailable,
    Stopped,
    TokenFile,
    TransportError,
    Unauthorized,
    WatchStream,
)
from captf_runtime.client import transport as transport_module
from captf_runtime.client.credentials import PluginCredentials
from captf_runtime.metrics import Metrics
from captf_runtime.objects import CONFIG_MAP, SECRET, Object
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.testing.waiting import eventually

MAP: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "t"}}


class PromptClock(VirtualClock):
    """A clock on which every pause is over at once; notes how long they would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> bool:
        self.pauses.append(seconds)
        self.advance(seconds)
        return stop is not None and stop.is_set()


def sequence(*answers: tuple[int, object] | Script) -> Script:
    """Give the answers in turn, the last one for ever."""
    left = list(answers)
    lock = threading.Lock()

    def script(request: Received, reply: Reply) -> None:
        with lock:
            answer = left.pop(0) if len(left) > 1 else left[0]
        if callable(answer):
            answer(request, reply)
        else:
            reply.send(*answer)

    return script


def cut(_: Received, reply: Reply) -> None:
    reply.cut()


def retry_after(code: int, seconds: int) -> Script:
    return lambda request, reply: reply.send(code, status(code), {"Retry-After": str(seconds)})


@pytest.mark.requirement("CL15")
@pytest.mark.parametrize(
    "failure",
    [
        cut,
        (429, status(429, "TooManyRequests")),
        (500, status(500, "InternalError")),
        (502, b"bad gateway"),
        (503, status(503)),
        (504, status(504, "Timeout")),
        (200, b'{"metadata": {"na'),
        lambda request, reply: (reply.head(200, {"Content-Length": "100"}), reply.write(b"{}"), reply.cut()),
    ],
)
def test_a_read_is_repeated(failure: tuple[int, object] | Script) -> None:
    clock = PromptClock()
    with (
        ScriptedServer(sequence(failure, failure, (200, MAP))) as server,
        server.client(clock=clock) as client,
    ):
        assert client.get(CONFIG_MAP, "a", "t") == MAP
        assert len(server.requests) == 3
        assert len(clock.pauses) == 2


@pytest.mark.requirement("CL15")
def test_a_read_gives_up_after_five_tries() -> None:
    clock = PromptClock()
    with (
        ScriptedServer(sequence((500, status(500, message="broken")))) as server,
        server.client(clock=clock) as client,
    ):
        with pytest.raises(InternalError, match="broken"):
            client.get(CONFIG_MAP, "a", "t")
        assert len(server.requests) == 5


@pytest.mark.requirement("CL15")
@pytest.mark.parametrize(
    "answer", [(500, status(500)), (503, status(503)), (504, status(504)), cut, (200, b"{")]
)
def test_an_ambiguous_write_is_raised(answer: tuple[int, object] | Script) -> None:
    with ScriptedServer(sequence(answer)) as server, server.client(clock=PromptClock()) as client:
        for write in writes(client):
            before = len(server.requests)
            with pytest.raises(ApiError) as raised:
                write()
            assert len(server.requests) == before + 1
            if isinstance(raised.value, TransportError):
                assert raised.value.ambiguous


def writes(client: Client) -> list[Callable[[], object]]:
    return [
        lambda: client.create(CONFIG_MAP, MAP),
        lambda: client.update(CONFIG_MAP, MAP),
        lambda: client.patch(CONFIG_MAP, "a", {"data": {}}, "t"),
        lambda: client.delete(CONFIG_MAP, "a", "t", propagation_policy="Background"),
    ]


@pytest.mark.requirement("CL15")
@pytest.mark.parametrize("code", [429, 503])
def test_a_write_that_was_shed_is_repeated_after_the_time_named(code: int) -> None:
    clock = PromptClock()
    script = sequence(retry_after(code, 7), (201, MAP))
    with ScriptedServer(script) as server, server.client(clock=clock) as client:
        assert client.create(CONFIG_MAP, MAP) == MAP
        assert len(server.requests) == 2
        assert clock.pauses == [7.0]


@pytest.mark.requirement("CL15")
def test_a_refused_connection_is_no_request_and_may_be_repeated_for_writes_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    clock = PromptClock()
    with Client(ClientConfig(f"http://127.0.0.1:{port}"), clock=clock) as client:
        with pytest.raises(ConnectionFailed) as raised:
            client.create(CONFIG_MAP, MAP)
        assert raised.value.refused
        assert not raised.value.ambiguous
        assert len(clock.pauses) == 4


@pytest.mark.requirement("CL15")
def test_the_caller_s_time_bounds_all_tries_and_pauses() -> None:
    clock = PromptClock()
    with ScriptedServer(sequence(retry_after(503, 10))) as server, server.client(clock=clock) as client:
        with pytest.raises(ServiceUnavailable):
            client.get(CONFIG_MAP, "a", "t", timeout=25)
        assert clock.pauses == [10.0, 10.0]
        with pytest.raises(RequestTimeout) as raised:
            client.create(CONFIG_MAP, MAP, timeout=0)
        assert not raised.value.ambiguous
        assert len(server.requests) == 3


@pytest.mark.requirement("CL15")
def test_the_stop_signal_ends_a_pause_and_raises_what_happened() -> None:
    stop = threading.Event()

    def script(request: Received, reply: Reply) -> None:
        reply.send(503, status(503), {"Retry-After": "30"})

    with ScriptedServer(script) as server, server.client(stop=stop) as client, ThreadPoolExecutor() as pool:
        running = pool.submit(client.get, CONFIG_MAP, "a", "t")
        server.wait_for(lambda: len(server.requests) == 1)
        started = time.monotonic()
        stop.set()
        with pytest.raises((ServiceUnavailable, Stopped)):
            running.result(25)
        assert time.monotonic() - started < 25  # not the 30 s that the server asks for
        with pytest.raises(Stopped):
            client.get(CONFIG_MAP, "a", "t")


@pytest.mark.requirement("CL3")
def test_a_silent_server_times_out() -> None:
    with ScriptedServer(lambda request, reply: reply.hang()) as server, server.client() as client:
        timed_out(lambda timeout: client.create(CONFIG_MAP, MAP, timeout=timeout))


@pytest.mark.requirement("CL3")
def test_default_timeouts_and_keepalive() -> None:
    assert (
        transport_module.CONNECT_TIMEOUT,
        transport_module.READ_TIMEOUT,
        transport_module.LIST_TIMEOUT,
    ) == (
        5.0,
        30.0,
        60.0,
    )
    seen: list[socket.socket] = []
    with ScriptedServer(lambda request, reply: reply.hang()) as server, server.client() as client:
        thread = threading.Thread(target=lambda: _ignore(lambda: client.get(CONFIG_MAP, "a", "t")))
        thread.start()
        server.wait_for(lambda: len(server.requests) == 1)
        seen = list(client._transport._sockets._sockets)
        assert len(seen) == 1
        live = seen[0]
        # The read timeout takes the place of the one for connecting once the request is written.
        deadline = time.monotonic() + 30
        while live.gettimeout() != 30.0 and time.monotonic() < deadline:
            threading.Event().wait(0.005)
        assert live.gettimeout() == 30.0
        assert live.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        assert live.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert live.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 15
        assert live.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 9
        client.close()
        thread.join(30)
        assert not thread.is_alive()


def _ignore(call: Callable[[], object]) -> None:
    try:
        call()
    except ApiError:
        pass


@pytest.mark.requirement("CL2")
def test_at_full_load_no_more_sockets_than_the_pool_has(recwarn: pytest.WarningsRecorder) -> None:
    gate = threading.Event()

    def script(request: Received, reply: Reply) -> None:
        gate.wait(30)
        reply.send(200, MAP)

    with (
        ScriptedServer(script) as server,
        server.client(pool_size=4) as client,
        ThreadPoolExecutor(20) as pool,
    ):
        running = [pool.submit(client.get, CONFIG_MAP, "a", "t") for _ in range(40)]
        server.wait_for(lambda: len(server.requests) == 4)
        gate.set()
        assert [item.result(30)["kind"] for item in running] == ["ConfigMap"] * 40
        assert server.most_open == 4
        assert not [w for w in recwarn if "pool" in str(w.message)]


@pytest.mark.requirement("CL2")
def test_a_full_pool_is_waited_for_within_the_caller_s_time() -> None:
    with ScriptedServer(lambda request, reply: reply.hang()) as server, server.client(pool_size=1) as client:
        thread = threading.Thread(target=lambda: _ignore(lambda: client.get(CONFIG_MAP, "a", "t")))
        thread.start()
        server.wait_for(lambda: len(server.requests) == 1)
        with pytest.raises(RequestTimeout) as raised:
            client.create(CONFIG_MAP, MAP, timeout=0.3)
        assert not raised.value.ambiguous
        client.close()
        thread.join(30)


@pytest.mark.requirement("CL2", "CL4")
def test_purposes_have_pools_and_agents_of_their_own() -> None:
    gate = threading.Event()

    def script(request: Received, reply: Reply) -> None:
        if request.path.endswith("/busy"):
            gate.wait(30)
        reply.send(200, MAP)

    with ScriptedServer(script) as server, server.client(pool_size=1, program="x", version="1") as client:
        thread = threading.Thread(target=lambda: client.get(CONFIG_MAP, "busy", "t"))
        thread.start()
        server.wait_for(lambda: len(server.requests) == 1)
        with client.dedicated(pool_size=1, suffix="leader-election") as election:
            election.get(CONFIG_MAP, "a", "t")
        other = client.dedicated(pool_size=1)
        gate.set()
        thread.join(30)
        plain, leading = (request.headers["user-agent"] for request in server.requests)
        assert plain.startswith("x/1 (")
        assert leading == f"{plain} leader-election"
        client.close()
        assert other.stopped


@pytest.mark.requirement("CL4")
def test_the_transport_itself_never_repeats() -> None:
    with ScriptedServer(cut) as server, server.client() as client:
        with pytest.raises(TransportError):
            client.raw("DELETE", "/api/v1/namespaces/t/configmaps/a")
        assert len(server.requests) == 1


@pytest.mark.requirement("CL6")
def test_redirects_are_not_followed() -> None:
    def script(request: Received, reply: Reply) -> None:
        reply.send(302, b"elsewhere", {"Location": "/elsewhere"})

    with ScriptedServer(script) as server, server.client() as client:
        with pytest.raises(ApiError) as raised:
            client.get(CONFIG_MAP, "a", "t")
        assert raised.value.code == 302
        assert [request.path for request in server.requests] == ["/api/v1/namespaces/t/configmaps/a"]


def token_script(request: Received, reply: Reply) -> None:
    if request.headers.get("authorization") == "Bearer new":
        reply.send(200, MAP)
    else:
        reply.send(401, status(401, "Unauthorized"))


@pytest.mark.requirement("CL5", "RF7")
def test_401_reloads_the_token_and_repeats_any_verb_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    with ScriptedServer(token_script) as server:
        with Client(ClientConfig(server.url, credentials=TokenFile(file))) as client:
            with pytest.raises(Unauthorized):
                client.get(CONFIG_MAP, "a", "t")
            assert len(server.requests) == 2
            file.write_text("new\n")
            client.delete(CONFIG_MAP, "a", "t", propagation_policy="Background")
            tokens = [request.headers["authorization"] for request in server.requests]
            assert tokens == ["Bearer old", "Bearer old", "Bearer old", "Bearer new"]
            file.write_text("old")
        with Client(ClientConfig(server.url, credentials=TokenFile(file))) as client:
            client.config.credentials.authorization()
            file.write_text("new")
            _watch_once(client)
            assert [request.headers["authorization"] for request in server.requests[-2:]] == [
                "Bearer old",
                "Bearer new",
            ]


def _watch_once(client: Client) -> None:
    client.watch(CONFIG_MAP, "t", resource_version="1", timeout_seconds=1, read_timeout=60).close()


@pytest.mark.requirement("CL5")
def test_secrets_reach_no_error_and_no_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    token = "hush-hush"
    secret: Object = {"metadata": {"name": "s", "namespace": "t"}, "stringData": {"p": "never-tell"}}
    from captf_runtime import log
    from captf_runtime.client import StaticCredentials

    log.configure("debug", "text")
    try:
        with ScriptedServer(sequence((500, b"oops"), cut, (401, b""))) as server:
            config = ClientConfig(server.url, credentials=StaticCredentials.bearer(token))
            with Client(config, clock=PromptClock()) as client:
                told = []
                for _ in range(3):
                    with pytest.raises(ApiError) as raised:
                        client.create(SECRET, secret)
                    told.append(f"{raised.value!r} {raised.value} {raised.value.__dict__}")
    finally:
        log.set_level("warning")
    captured = capfd.readouterr()
    for text in (*told, captured.out, captured.err, repr(client.config)):
        assert token not in text
        assert "never-tell" not in text


@pytest.mark.requirement("CL15")
def test_closing_ends_a_connect_that_nobody_answers() -> None:
    with socket.socket() as listener, ThreadPoolExecutor() as pool:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        # Nobody accepts: once the queue is full, the kernel leaves further connects without an answer.
        waiting = [socket.socket() for _ in range(3)]
        for item in waiting:
            item.setblocking(False)
            item.connect_ex(address)
        client = Client(ClientConfig(f"http://127.0.0.1:{address[1]}"))
        running = pool.submit(client.get, CONFIG_MAP, "a", "t")
        deadline = time.monotonic() + 30
        while not client._transport._sockets._sockets and time.monotonic() < deadline:
            threading.Event().wait(0.005)
        started = time.monotonic()
        client.close()
        with pytest.raises(Stopped):
            running.result(30)
        assert time.monotonic() - started < 30
        for item in waiting:
            item.close()


@pytest.mark.requirement("CL15")
def test_closing_ends_running_requests_and_watches() -> None:
    def script(request: Received, reply: Reply) -> None:
        if "watch" in request.query:
            reply.start_stream()
        reply.hang()

    with ScriptedServer(script) as server, server.client() as client, ThreadPoolExecutor() as pool:
        running = [pool.submit(client.get, CONFIG_MAP, "a", "t"), pool.submit(client.list, CONFIG_MAP)]
        stream = client.watch(CONFIG_MAP, resource_version="1", timeout_seconds=300, read_timeout=300)
        reading = pool.submit(list, stream)
        server.wait_for(lambda: len(server.requests) == 3)
        started = time.monotonic()
        client.close()
        for item in running:
            with pytest.raises(Stopped):
                item.result(25)
        with pytest.raises(TransportError):
            reading.result(25)
        assert time.monotonic() - started < 25  # not the 30 s of a read
        client.close()


@pytest.mark.requirement("MX3")
def test_requests_are_observed() -> None:
    metrics = Metrics()
    script = sequence((500, status(500)), (200, MAP))
    with (
        ScriptedServer(script) as server,
        server.client(clock=PromptClock(), observer=RequestMetrics(metrics)) as client,
    ):
        client.get(CONFIG_MAP, "a", "t")
        host = server.url.removeprefix("http://")
        value = metrics.registry.get_sample_value
        for code in ("500", "200"):
            labels = {"code": code, "method": "GET", "host": host}
            assert value("rest_client_requests_total", labels) == 1
        assert value("rest_client_request_retries_total", {"code": "500", "verb": "get", "host": host}) == 1
        assert value("rest_client_request_duration_seconds_count", {"verb": "get", "host": host}) == 2
    with pytest.raises(TransportError):
        client.raw("GET", "/version")


@pytest.mark.requirement("CL15")
def test_no_descriptor_is_left_behind() -> None:
    def script(request: Received, reply: Reply) -> None:
        if "watch" in request.query:
            reply.start_stream()
            reply.event("ADDED", MAP)
            reply.hang()
        reply.send(200, MAP)

    with ScriptedServer(script) as server:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            with server.client() as client:
                client.get(CONFIG_MAP, "a", "t")
                stream = client.watch(CONFIG_MAP, resource_version="1", timeout_seconds=300, read_timeout=300)
                assert next(stream).type == "ADDED"
                stream.close()
        server.wait_for(lambda: not server._open)
        assert len(os.listdir("/proc/self/fd")) <= before + 1


class Told:
    """Credentials that say what they are told to."""

    def __init__(self, header: str | Exception) -> None:
        self.header = header

    def authorization(self) -> str | None:
        if isinstance(self.header, Exception):
            raise self.header
        return self.header

    def reload(self, refused: str | None) -> bool:
        return False

    def certificate(self) -> tuple[str, str] | None:
        return None


@pytest.mark.requirement("CL5", "G5")
@pytest.mark.parametrize("header", ["Bearer hush\nhush", "Bearer hush€", ValueError("no time at all")])
def test_credentials_that_cannot_be_sent_fail_the_request_without_being_told(
    header: str | Exception,
) -> None:
    with (
        ScriptedServer(sequence((200, MAP))) as server,
        Client(ClientConfig(server.url, credentials=Told(header)), clock=PromptClock()) as client,
    ):
        with pytest.raises(ConnectionFailed) as raised:
            client.get(CONFIG_MAP, "a", "t")
        assert "hush" not in str(raised.value)
        assert not server.requests


@pytest.mark.requirement("CL3", "CT7")
@pytest.mark.parametrize("chunked", [False, True])
def test_a_server_that_sends_a_byte_now_and_then_does_not_outlast_the_time_of_a_call(chunked: bool) -> None:
    def trickle(_: Received, reply: Reply) -> None:
        reply.start_stream() if chunked else reply.head(200, {"Content-Length": "1000"})
        while not reply.stopped.wait(0.02):
            reply.chunk(b" ") if chunked else reply.write(b" ")

    with ScriptedServer(trickle) as server, server.client() as client:
        timed_out(lambda timeout: client.update(CONFIG_MAP, MAP, timeout=timeout))
        timed_out(lambda timeout: client.raw("GET", "/version", timeout=timeout))


def test_an_answer_that_comes_in_pieces_is_read_to_its_end() -> None:
    def pieces(_: Received, reply: Reply) -> None:
        reply.start_stream()
        for byte in json.dumps(MAP).encode():
            reply.chunk(bytes([byte]))
        reply.end_stream()

    with ScriptedServer(pieces) as server, server.client() as client:
        for _ in range(2):
            assert client.get(CONFIG_MAP, "a", "t", timeout=60) == MAP
        assert server.connections == 1


def dribble_head(_: Received, reply: Reply) -> None:
    reply.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not reply.stopped.wait(0.02):
        reply.write(b"x")


def in_time(call: Callable[[], object], error: type[ApiError], limit: float = 25.0) -> ApiError:
    """Assert that a call fails like this and long before any time but its own is over; return the error."""
    started = time.monotonic()
    with pytest.raises(error) as raised:
        call()
    assert time.monotonic() - started < limit
    return raised.value


@pytest.mark.requirement("CL3", "CT7")
def test_a_header_that_comes_byte_by_byte_does_not_outlast_the_time_of_a_call() -> None:
    with ScriptedServer(dribble_head) as server, server.client() as client:
        timed_out(lambda timeout: client.update(CONFIG_MAP, MAP, timeout=timeout))
        in_time(
            lambda: client.watch(CONFIG_MAP, resource_version="1", timeout_seconds=300, read_timeout=0.15),
            RequestTimeout,
        )


@pytest.mark.requirement("CL3")
def test_a_call_without_a_time_of_its_own_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def dribble_body(_: Received, reply: Reply) -> None:
        reply.head(200, {"Content-Length": "1000"})
        while not reply.stopped.wait(0.02):
            reply.write(b" ")

    def refuse_slowly(_: Received, reply: Reply) -> None:
        reply.head(403, {"Content-Length": "1000"})
        while not reply.stopped.wait(0.02):
            reply.write(b" ")

    assert transport_module.LONGEST_REQUEST == 300.0

    def update(client: Client, longest: float) -> None:
        monkeypatch.setattr(transport_module, "LONGEST_REQUEST", longest)
        monkeypatch.setattr(transport_module, "READ_TIMEOUT", longest)
        client.update(CONFIG_MAP, MAP)

    for script in (dribble_head, dribble_body):
        with ScriptedServer(script) as server, server.client() as client:
            timed_out(partial(update, client))
    with ScriptedServer(refuse_slowly) as server, server.client() as client:
        in_time(
            lambda: client.watch(CONFIG_MAP, resource_version="1", timeout_seconds=300, read_timeout=300),
            TransportError,
        )


@pytest.mark.requirement("CL3", "CL15", "G3")
def test_a_lookup_without_an_answer_outlasts_neither_the_time_of_a_call_nor_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()
    lookups: list[str] = []
    ask = socket.getaddrinfo

    def slow(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != "slow.example.test":
            return ask(host, *args, **kwargs)
        if kwargs.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not an address")
        lookups.append(host)
        answer.wait(60)
        return ask("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with ScriptedServer(sequence((200, MAP))) as server, ThreadPoolExecutor() as pool:
        config = ClientConfig(server.url.replace("127.0.0.1", "slow.example.test"))
        with Client(config) as client:
            error = in_time(lambda: client.update(CONFIG_MAP, MAP, timeout=0.15), ConnectionFailed)
            assert "slow.example.test" in str(error)
            # However many calls wait for a name, it is looked up once at a time.
            in_time(lambda: client.update(CONFIG_MAP, MAP, timeout=0.15), ConnectionFailed)
            eventually(lambda: lookups)
            assert len(lookups) == 1
            assert sum(thread.name.startswith("lookup-") for thread in threading.enumerate()) == 1
            running = pool.submit(client.get, CONFIG_MAP, "a", "t")
            in_time(lambda: (client.close(), running.result(25)), Stopped)
        with Client(config) as client:
            running = pool.submit(client.get, CONFIG_MAP, "a", "t")
            answer.set()
            assert running.result(25) == MAP
            client.close()
    assert len(lookups) in (1, 2)  # the second client may have come after the first lookup's end


@pytest.mark.requirement("CL3")
def test_silent_addresses_share_the_time_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody accepts at the first address: the second is reached within the time for both."""
    with ExitStack() as stack:
        # In this order: nobody else uses ports of the other address.
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.2", port))
        full.listen(0)
        for _ in range(3):
            item = stack.enter_context(socket.socket())
            item.setblocking(False)
            item.connect_ex(("127.0.0.2", port))
        ask = socket.getaddrinfo

        def several(host: str, *args: Any, **kwargs: Any) -> Any:
            if host != "several.example.test":
                return ask(host, *args, **kwargs)
            if kwargs.get("flags", 0) & socket.AI_NUMERICHOST:
                raise socket.gaierror(socket.EAI_NONAME, "not an address")
            return [entry for address in addresses for entry in ask(address, *args, **kwargs)]

        monkeypatch.setattr(socket, "getaddrinfo", several)
        with Client(ClientConfig(f"http://several.example.test:{port}")) as client:
            addresses = ["127.0.0.2"] * 60
            in_time(lambda: client.update(CONFIG_MAP, MAP, timeout=0.3), ConnectionFailed)
            addresses = ["127.0.0.2", "127.0.0.1"]

            def serve() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

            thread = threading.Thread(target=serve)
            thread.start()
            # With the whole time of a connect for each, nothing would be left for the second.
            try:
                found = client.raw("GET", "/version", timeout=4.0)
            except TransportError:  # on a machine that was held up
                monkeypatch.setattr(transport_module, "CONNECT_TIMEOUT", 50.0)
                found = client.raw("GET", "/version", timeout=40.0)
            assert found.data == b"{}"
            thread.join(30)


@pytest.mark.requirement("CL3", "CL5", "G3")
def test_a_plugin_that_hangs_outlasts_neither_the_time_of_a_call_nor_a_stop() -> None:
    token = threading.Event()
    runs: list[int] = []

    def plugin() -> dict[str, Any]:
        runs.append(1)
        token.wait(60)
        return {"token": "new"}

    with ScriptedServer(token_script) as server, ThreadPoolExecutor() as pool:
        config = ClientConfig(server.url, credentials=PluginCredentials(plugin))
        with Client(config) as client:
            error = in_time(lambda: client.update(CONFIG_MAP, MAP, timeout=0.15), ConnectionFailed)
            assert "plugin" in str(error)
            running = pool.submit(client.get, CONFIG_MAP, "a", "t")
            in_time(lambda: (client.close(), running.result(25)), Stopped)
        with Client(config) as client:
            running = pool.submit(client.get, CONFIG_MAP, "a", "t")
            token.set()
            assert running.result(25) == MAP
    assert len(runs) == 1
    assert len(server.requests) == 1


@pytest.mark.requirement("CL5", "RF7")
def test_401_runs_the_exec_plugin_again_and_repeats_any_request_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    runs = tmp_path / "runs"
    plugin = tmp_path / "plugin"
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s"}}'
    plugin.write_text(
        f"#!/bin/sh\necho run >> {runs}\ntest -s {token} || exit 1\nprintf '{credential}' \"$(cat {token})\"\n"
    )
    plugin.chmod(0o755)

    def count() -> int:
        return len(runs.read_text().splitlines())

    with ScriptedServer(token_script) as server:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                    "users": [
                        {
                            "name": "u",
                            "user": {
                                "exec": {
                                    "apiVersion": "client.authentication.k8s.io/v1",
                                    "command": str(plugin),
                                    "interactiveMode": "Never",
                                }
                            },
                        }
                    ],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        token.write_text("old")
        with Client.from_config(kubeconfig=kubeconfig) as client:
            with pytest.raises(Unauthorized):
                client.delete(CONFIG_MAP, "a", "t", propagation_policy="Background")
            assert count() == 2  # once to begin with, once more after the refusal, and then no more
            assert len(server.requests) == 2
            # A plugin that fails now leaves the server's word to the caller, and is asked again next time.
            token.write_text("")
            with pytest.raises(Unauthorized):
                client.delete(CONFIG_MAP, "a", "t", propagation_policy="Background")
            assert len(server.requests) == 3
            token.write_text("new")
            client.delete(CONFIG_MAP, "a", "t", propagation_policy="Background")
            client.get(CONFIG_MAP, "a", "t")
            assert count() == 4
            assert [request.headers["authorization"] for request in server.requests[3:]] == [
                "Bearer old",
                "Bearer new",
                "Bearer new",
            ]
        token.write_text("old")
        with Client.from_config(kubeconfig=kubeconfig) as client:
            client.config.credentials.authorization()
            token.write_text("new")
            _watch_once(client)
            assert [request.headers["authorization"] for request in server.requests[-2:]] == [
                "Bearer old",
                "Bearer new",
            ]


def closing(length: int | None = None) -> dict[str, str]:
    return {"Connection": "close"} | ({} if length is None else {"Content-Length": str(length)})


@pytest.mark.requirement("CL15", "G3", "RF10")
def test_a_stop_ends_answers_after_which_the_connection_would_close() -> None:
    """The connection has then already let go of its socket, which is still being read from."""
    half = threading.Semaphore(0)

    def script(request: Received, reply: Reply) -> None:
        reply.head(200, closing() if "watch" in request.query else closing(1000))
        reply.write(b"\n")
        half.release()
        reply.hang()

    with ScriptedServer(script) as server, ThreadPoolExecutor() as pool:
        for timeout in (None, 100.0):
            with server.client() as client:
                stream = client.watch(CONFIG_MAP, resource_version="1", timeout_seconds=300, read_timeout=300)
                reading = pool.submit(list, stream)
                running = pool.submit(client.get, CONFIG_MAP, "a", "t", timeout=timeout)
                assert half.acquire(timeout=30)
                assert half.acquire(timeout=30)
                in_time(lambda: (client.close(), running.result(20)), Stopped)  # noqa: B023
                assert reading.result(30) == []
        with server.client() as client:
            stream = client.watch(CONFIG_MAP, resource_version="1", timeout_seconds=300, read_timeout=300)
            assert half.acquire(timeout=30)
            reading = pool.submit(list, stream)
            stream.close()
            assert reading.result(25) == []
        server.wait_for(lambda: not server._open)
        with server.client() as client:
            timed_out(lambda timeout: client.update(CONFIG_MAP, MAP, timeout=timeout))


@pytest.mark.requirement("CL15", "RF10")
def test_closing_a_watch_ends_its_iteration_as_a_server_would() -> None:
    def script(_: Received, reply: Reply) -> None:
        reply.start_stream()
        reply.event("ADDED", MAP)
        reply.hang()

    with ScriptedServer(script) as server, server.client() as client, ThreadPoolExecutor() as pool:
        stream = client.watch(CONFIG_MAP, resource_version="1", timeout_seconds=300, read_timeout=300)
        assert next(stream).type == "ADDED"
        reading = pool.submit(list, stream)
        stream.close()
        assert reading.result(25) == []
        assert list(stream) == []
        stream.set_read_timeout(1.0)  # what is closed has no timeout, and does not mind


@pytest.mark.requirement("CL15")
def test_answers_after_which_the_connection_closes_are_as_good_as_others() -> None:
    def script(request: Received, reply: Reply) -> None:
        if "watch" in request.query:
            reply.head(200, closing())
            for name in ("a", "b"):
                event = {"type": "ADDED", "object": {"metadata": {"name": name}}}
                reply.write(json.dumps(event).encode() + b"\n")
        else:
            reply.send(200, MAP, closing())
        reply.cut()

    with ScriptedServer(script) as server, server.client(pool_size=1) as client:
        for number in range(1, 4):
            assert client.update(CONFIG_MAP, MAP) == MAP
            assert server.connections == number
        stream = client.watch(CONFIG_MAP, resource_version="1", timeout_seconds=1, read_timeout=60)
        assert [event.decode()["metadata"]["name"] for event in stream] == ["a", "b"]
        assert not client._transport._sockets._sockets


@pytest.mark.requirement("CL15")
def test_closing_a_watch_that_has_ended_cuts_no_other() -> None:
    def script(request: Received, reply: Reply) -> None:
        reply.start_stream()
        if request.query["resourceVersion"] == "2":
            reply.event("ADDED", MAP)
            go_on.wait(60)
            reply.event("MODIFIED", MAP)
        reply.end_stream()

    go_on = threading.Event()
    with ScriptedServer(script) as server, server.client() as client:

        def watch(version: str) -> WatchStream:
            return client.watch(CONFIG_MAP, resource_version=version, timeout_seconds=9, read_timeout=9)

        first = watch("1")
        assert list(first) == []
        second = watch("2")
        assert next(second).type == "ADDED"
        first.close()
        go_on.set()
        assert [event.type for event in second] == ["MODIFIED"]


@pytest.mark.requirement("CL15", "G3", "RF10")
def test_an_owner_ends_its_own_requests_and_no_others() -> None:
    def list_them(client: Client, owner: Cancellation) -> object:
        return list(client.raw_pages(CONFIG_MAP, cancellation=owner))

    def watch(client: Client, owner: Cancellation) -> object:
        return client.watch(
            CONFIG_MAP, resource_version="1", timeout_seconds=300, read_timeout=300, cancellation=owner
        )

    with (
        ScriptedServer(lambda request, reply: reply.hang()) as server,
        server.client() as client,
        ThreadPoolExecutor() as pool,
    ):
        owner = Cancellation()
        running = [pool.submit(call, client, owner) for call in (list_them, watch)]
        other = pool.submit(client.get, CONFIG_MAP, "a", "t")
        server.wait_for(lambda: len(server.requests) == 3)
        in_time(lambda: (owner.cancel(), running[0].result(20)), Stopped)
        in_time(lambda: running[1].result(20), Stopped)
        in_time(lambda: list_them(client, owner), Stopped)
        in_time(lambda: watch(client, owner), Stopped)
        assert len(server.requests) == 3
        assert not other.done()
        in_time(lambda: (client.close(), other.result(20)), Stopped)


@pytest.mark.requirement("CL15", "G3")
def test_a_stop_that_comes_while_a_request_is_being_written_ends_it() -> None:
    class Context:
        """Stops the client at the last moment before the request is written."""

        stopping = False
        checks = 0

        def check(self) -> None:
            self.checks += 1
            if self.checks == 2:
                client.close()

        def remaining(self) -> float | None:
            return None

        def sleep(self, seconds: float) -> None:
            raise AssertionError(f"no pause of {seconds} s: nothing is repeated after a stop")

    with ScriptedServer(lambda request, reply: reply.hang()) as server, server.client() as client:
        in_time(lambda: client.bind(Context()).get(CONFIG_MAP, "a", "t"), Stopped)


@pytest.mark.requirement("CL15")
def test_what_fails_at_a_proxy_was_not_sent() -> None:
    """The proxy is asked for a way through first, and that is no request to the server yet."""
    clock = PromptClock()
    with ScriptedServer(cut) as proxy:
        config = ClientConfig("https://api.example.test", proxy_url=proxy.url)
        with Client(config, clock=clock) as client:
            with pytest.raises(ConnectionFailed) as raised:
                client.create(CONFIG_MAP, MAP)
            assert not raised.value.ambiguous
            assert [request.method for request in proxy.requests] == ["CONNECT"] * 5
