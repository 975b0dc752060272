"""The client inside a reconcile: deadline, fence and stop."""

from __future__ import annotations

import threading
import time

import pytest
from tests.integration.scripted_server import Received, Reply, ScriptedServer, status

from captf_runtime.client import RequestTimeout, ServiceUnavailable
from captf_runtime.objects import CONFIG_MAP

MAP = {"metadata": {"name": "a", "namespace": "t"}}


class NotAllowed(Exception):
    """What the context raises."""


class Context:
    def __init__(self) -> None:
        self.stop = threading.Event()
        self.left: float | None = None
        self.fenced = False

    @property
    def stopping(self) -> bool:
        return self.stop.is_set()

    def remaining(self) -> float | None:
        return self.left

    def check(self) -> None:
        if self.fenced:
            raise NotAllowed

    def sleep(self, seconds: float) -> bool:
        return self.stop.wait(seconds)


@pytest.mark.requirement("LE7", "CL15")
def test_nothing_is_written_once_the_context_says_no() -> None:
    with ScriptedServer(lambda request, reply: reply.send(200, MAP)) as server, server.client() as client:
        context = Context()
        bound = client.bind(context)
        bound.create(CONFIG_MAP, MAP)
        context.fenced = True
        for write in (
            lambda: bound.create(CONFIG_MAP, MAP),
            lambda: bound.update(CONFIG_MAP, MAP),
            lambda: bound.patch(CONFIG_MAP, "a", {"x": 1}, "t"),
            lambda: bound.delete(CONFIG_MAP, "a", "t", propagation_policy="Background"),
        ):
            with pytest.raises(NotAllowed):
                write()
        assert len(server.requests) == 1


@pytest.mark.requirement("LE7")
def test_a_repetition_asks_the_context_again() -> None:
    context = Context()

    def script(request: Received, reply: Reply) -> None:
        context.fenced = True
        reply.send(503, status(503), {"Retry-After": "0"})

    with ScriptedServer(script) as server, server.client() as client:
        with pytest.raises(NotAllowed):
            client.bind(context).update(CONFIG_MAP, MAP)
        assert len(server.requests) == 1


@pytest.mark.requirement("LE7", "CL2")
def test_a_write_that_waited_for_a_connection_asks_the_context_once_more() -> None:
    release = threading.Event()

    def script(request: Received, reply: Reply) -> None:
        release.wait(30)
        reply.send(200, MAP)

    with ScriptedServer(script) as server, server.client(pool_size=1) as client:
        holder = threading.Thread(target=lambda: client.get(CONFIG_MAP, "a", "t"))
        holder.start()
        server.wait_for(lambda: len(server.requests) == 1)
        context = Context()
        asked = threading.Event()
        raised: list[Exception] = []

        def check() -> None:
            asked.set()
            Context.check(context)

        context.check = check  # type: ignore[method-assign]

        def write() -> None:
            try:
                client.bind(context).update(CONFIG_MAP, MAP)
            except NotAllowed as error:
                raised.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        assert asked.wait(30)
        context.fenced = True
        release.set()
        for thread in (writer, holder):
            thread.join(30)
        assert len(raised) == 1
        assert [request.method for request in server.requests] == ["GET"]
        context.fenced = False
        assert client.bind(context).update(CONFIG_MAP, MAP)


@pytest.mark.requirement("CT7")
def test_calls_end_with_the_context_s_deadline() -> None:
    with ScriptedServer(lambda request, reply: reply.hang()) as server, server.client() as client:
        context = Context()
        context.left = 0.2
        bound = client.bind(context)
        started = time.monotonic()
        for call in (
            lambda: bound.get(CONFIG_MAP, "a", "t"),
            lambda: bound.create(CONFIG_MAP, MAP, timeout=9),
        ):
            with pytest.raises(RequestTimeout):
                call()
        assert time.monotonic() - started < 25  # not the 30 s of a read
        context.left = 0
        with pytest.raises(RequestTimeout, match="used up"):
            bound.get(CONFIG_MAP, "a", "t")
        assert len(server.requests) <= 12


@pytest.mark.requirement("CL15")
def test_a_stopping_context_ends_a_pause() -> None:
    context = Context()

    def script(request: Received, reply: Reply) -> None:
        context.stop.set()
        reply.send(503, status(503), {"Retry-After": "30"})

    with ScriptedServer(script) as server, server.client() as client:
        started = time.monotonic()
        with pytest.raises(ServiceUnavailable):
            client.bind(context).get(CONFIG_MAP, "a", "t")
        assert time.monotonic() - started < 25  # not the 30 s that the server asks for


@pytest.mark.requirement("LE7")
def test_a_request_is_asked_about_before_it_is_written_and_not_in_the_middle() -> None:
    class Counting(Context):
        checks = 0

        def check(self) -> None:
            self.checks += 1

    with ScriptedServer(lambda request, reply: reply.send(200, MAP)) as server, server.client() as client:
        context = Counting()
        client.bind(context).update(CONFIG_MAP, {**MAP, "data": {"a": "x" * 100_000}})
        assert context.checks == 2  # before it waits for a connection, and on the connection
