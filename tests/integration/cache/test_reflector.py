"""The list-and-watch loop against servers that misbehave in every way it is built for."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.scripted_server import Received, Reply, Script, ScriptedServer, status

from captf_runtime.cache import Added, Cache, Deleted, Event, Informer
from captf_runtime.cache import reflector as reflector_module
from captf_runtime.client import Client
from captf_runtime.metrics import Metrics
from captf_runtime.objects import CONFIG_MAP, SECRET, Object, ObjectKey
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.testing.waiting import eventually

DEADLINE = 60.0


class PromptClock(VirtualClock):
    """A clock on which every pause is over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> bool:
        self.pauses.append(seconds)
        self.advance(seconds)
        return stop is not None and stop.is_set()


def item(name: str, version: int, *, uid: str = "", **fields: Any) -> Object:
    meta = {"name": name, "namespace": "t", "uid": uid or f"u-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, **fields}


def listing(*items: Object, version: int, token: str = "") -> Object:
    meta = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": meta, "items": list(items)}


def bookmark(version: int, *, end: bool = False) -> Object:
    meta: Object = {"resourceVersion": str(version)}
    if end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta}


def is_watch(request: Received) -> bool:
    return request.query.get("watch") == "true"


def stay_silent(reply: Reply) -> None:
    reply.start_stream()
    reply.hang()


class Steps:
    """Answers lists and watches from two lists of answers; the last of each is given for ever."""

    def __init__(self, lists: list[Any], watches: list[Callable[[Reply], None]]) -> None:
        self._answers = {False: lists, True: watches}
        self._counts = {False: 0, True: 0}
        self._lock = threading.Lock()

    def __call__(self, request: Received, reply: Reply) -> None:
        with self._lock:
            answers = self._answers[is_watch(request)]
            answer = answers[min(self._counts[is_watch(request)], len(answers) - 1)]
            self._counts[is_watch(request)] += 1
        if callable(answer):
            answer(reply)
        elif isinstance(answer, tuple):
            reply.send(*answer)
        else:
            reply.send(200, answer)


class Running:
    """An informer that runs, with everything that a test looks at."""

    def __init__(self, server: ScriptedServer, cache: Cache, informer: Informer, metrics: Metrics) -> None:
        self.server = server
        self.cache = cache
        self.informer = informer
        self.metrics = metrics
        self.events: list[Event] = []
        self.changed = threading.Condition()
        informer.add_handler(self._note, name="test")

    def _note(self, event: Event) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def wait_for_events(self, count: int) -> list[Event]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.events) >= count, DEADLINE), self.events
            return list(self.events)

    def wait_for_event_of(self, name: str) -> None:
        """Wait until something is told of an object. Those of different keys are told in any order."""
        with self.changed:
            assert self.changed.wait_for(
                lambda: any(event.obj.header.name == name for event in self.events), DEADLINE
            ), self.events

    @property
    def lists(self) -> list[dict[str, str]]:
        return [request.query for request in self.server.requests if not is_watch(request)]

    @property
    def watches(self) -> list[dict[str, str]]:
        return [request.query for request in self.server.requests if is_watch(request)]

    def wait_for_requests(self, *, lists: int = 0, watches: int = 0) -> None:
        self.server.wait_for(lambda: len(self.lists) >= lists and len(self.watches) >= watches, DEADLINE)

    def count(self, series: str) -> float:
        return self.metrics.registry.get_sample_value(series, {"kind": self.informer.scope.kind.kind}) or 0.0


@contextmanager
def running(
    script: Script,
    *,
    clock: VirtualClock | None = None,
    streaming: bool = False,
    start: bool = True,
    draw: Callable[[float, float], float] = lambda low, high: low,
    **options: Any,
) -> Iterator[Running]:
    metrics = Metrics()
    stop = threading.Event()
    clock = clock or PromptClock()
    with ScriptedServer(script) as server, server.client() as client:
        cache = Cache(
            client, clock=clock, metrics=metrics, resync_period=0, streaming_lists=streaming, draw=draw
        )
        found = Running(server, cache, cache.informer(options.pop("kind", CONFIG_MAP), **options), metrics)
        try:
            if start:
                cache.start(stop)
            yield found
        finally:
            stop.set()
            cache.shutdown(DEADLINE)


# List ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("RF1", "RF3")
def test_the_first_list_may_be_old_and_the_watch_starts_where_it_ends() -> None:
    script = Steps([listing(item("a", 3), version=7)], [stay_silent])
    with running(script, draw=lambda low, high: (low + high) / 2) as run:
        run.wait_for_requests(watches=1)
        assert run.lists == [{"resourceVersion": "0"}]
        assert run.watches == [
            {
                "watch": "true",
                "resourceVersion": "7",
                "timeoutSeconds": "450",
                "allowWatchBookmarks": "true",
            }
        ]
        assert run.cache.list(CONFIG_MAP) == [{**item("a", 3), "kind": "ConfigMap", "apiVersion": "v1"}]


@pytest.mark.requirement("RF5", "RF1", "IN4")
@pytest.mark.parametrize(
    "gone",
    [
        lambda reply: reply.send(410, status(410, "Expired")),
        lambda reply: (reply.start_stream(), reply.event("ERROR", status(410, "Expired")), reply.hang()),
        lambda reply: (reply.start_stream(), reply.event("ERROR", status(410, "Gone")), reply.end_stream()),
        lambda reply: reply.send(200, {"type": "ERROR", "object": status(410, "Expired")}),
    ],
    ids=["status", "event", "event-gone", "not-chunked"],
)
def test_410_in_any_form_leads_to_one_immediate_relist_without_a_version(
    gone: Callable[[Reply], None],
) -> None:
    clock = PromptClock()
    lists = [
        listing(item("a", 1), item("b", 2), version=5),
        listing(item("b", 2), item("c", 8), version=9),
    ]
    told = threading.Event()

    def then(reply: Reply) -> None:
        told.wait(DEADLINE)
        gone(reply)

    with running(Steps(lists, [then, stay_silent]), clock=clock) as run:
        run.wait_for_events(2)  # what a handler was not told of yet would be left out when it goes
        told.set()
        run.wait_for_requests(lists=2, watches=2)
        assert run.lists[1] == {"limit": "500"}
        assert clock.pauses == []
        assert run.watches[1]["resourceVersion"] == "9"
        events = run.wait_for_events(4)
        assert [type(event) for event in events] == [Added, Added, Deleted, Added]
        deleted = events[2]
        assert isinstance(deleted, Deleted)
        assert deleted.final_unknown
        assert deleted.obj.header.name == "a"
        assert len(run.lists) == 2
        assert run.count("captf_runtime_informer_relists_total") == 1


@pytest.mark.requirement("RF1")
def test_a_version_too_large_leads_to_an_immediate_list_without_one() -> None:
    clock = PromptClock()
    too_large = status(504, "Timeout", details={"causes": [{"reason": "ResourceVersionTooLarge"}]})
    script = Steps([(504, too_large, {"Retry-After": "1"}), listing(version=3)], [stay_silent])
    with running(script, clock=clock) as run:
        run.wait_for_requests(watches=1)
        assert run.lists == [{"resourceVersion": "0"}, {"limit": "500"}]
        assert clock.pauses == []


@pytest.mark.requirement("RF1", "CL12")
def test_pages_are_taken_one_by_one_and_an_expired_one_starts_anew() -> None:
    lists = [
        listing(item("a", 1), version=5),
        listing(item("a", 1), version=9, token="more"),
        (410, status(410, "Expired")),
        listing(item("x", 8), item("y", 9), version=20),
    ]
    watches = [lambda reply: reply.send(410, status(410, "Expired")), stay_silent]
    with running(Steps(lists, watches)) as run:
        run.wait_for_requests(watches=2)
        assert run.lists[1:] == [{"limit": "500"}, {"continue": "more", "limit": "500"}, {}]
        assert [header.name for header in run.cache.headers(CONFIG_MAP)] == ["x", "y"]
        assert run.watches[1]["resourceVersion"] == "20"


@pytest.mark.requirement("RF1", "IN4")
def test_a_relist_uses_the_last_seen_version_and_tells_nothing_of_what_is_the_same() -> None:
    def three_bad_lines(reply: Reply) -> None:
        reply.start_stream()
        reply.chunk(b"no json\n")
        reply.end_stream()

    lists = [listing(item("a", 1), version=5), listing(item("a", 1), item("b", 6), version=7)]
    with running(Steps(lists, [three_bad_lines, three_bad_lines, three_bad_lines, stay_silent])) as run:
        run.wait_for_requests(lists=2, watches=4)
        assert run.lists[1] == {"limit": "500", "resourceVersion": "5"}
        first = run.cache.informer(CONFIG_MAP).store.get("t", "a")
        assert [event.obj.header.name for event in run.wait_for_events(2)] == ["a", "b"]
        assert run.events[0].obj is first


# Streamed list ---------------------------------------------------------------------------------------


def initial(*objects: Object, version: int, then: Callable[[Reply], None]) -> Callable[[Reply], None]:
    def answer(reply: Reply) -> None:
        reply.start_stream()
        for obj in objects:
            reply.event("ADDED", obj)
        reply.event("BOOKMARK", bookmark(1))
        reply.event("BOOKMARK", bookmark(version, end=True))
        then(reply)

    return answer


@pytest.mark.requirement("RF2", "RF4")
def test_a_streamed_list_is_complete_at_its_marker_and_goes_on_as_a_watch() -> None:
    def then(reply: Reply) -> None:
        reply.event("MODIFIED", item("a", 31))
        reply.hang()

    script = Steps([(500, status(500))], [initial(item("b", 30), item("a", 12), version=30, then=then)])
    with running(script, streaming=True) as run:
        assert run.cache.wait_for(CONFIG_MAP, ObjectKey("t", "a"), "31", DEADLINE)
        assert run.watches == [
            {
                "watch": "true",
                "timeoutSeconds": "600",
                "allowWatchBookmarks": "true",
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
            }
        ]
        assert run.lists == []
        assert run.informer.version == "31"
        assert {event.obj.header.name for event in run.wait_for_events(2)} == {"a", "b"}
        assert run.count("captf_runtime_informer_reconnects_total") == 0


@pytest.mark.requirement("RF2", "IN5")
def test_nothing_is_seen_before_the_marker() -> None:
    def no_marker(reply: Reply) -> None:
        reply.start_stream()
        reply.event("ADDED", item("a", 1))
        reply.event("BOOKMARK", bookmark(5))
        reply.hang()

    with running(Steps([(500, status(500))], [no_marker]), streaming=True) as run:
        run.wait_for_requests(watches=1)
        assert not run.informer.has_listed
        assert run.events == []


@pytest.mark.requirement("RF2")
@pytest.mark.parametrize("code", [400, 422])
def test_a_server_without_streamed_lists_is_listed_from_then_on(code: int) -> None:
    watches: list[Callable[[Reply], None]] = [
        lambda reply: reply.send(code, status(code)),
        lambda reply: reply.send(410, status(410, "Expired")),
        stay_silent,
    ]
    with running(Steps([listing(version=5)], watches), streaming=True) as run:
        run.wait_for_requests(lists=2, watches=3)
        assert ["sendInitialEvents" in watch for watch in run.watches] == [True, False, False]


@pytest.mark.requirement("RF2")
def test_two_streams_that_end_early_are_enough() -> None:
    def early(reply: Reply) -> None:
        reply.start_stream()
        reply.event("ADDED", item("a", 1))
        reply.end_stream()

    watches = [early, lambda reply: reply.send(410, status(410)), early, stay_silent]
    with running(Steps([listing(version=5)], watches), streaming=True) as run:
        run.wait_for_requests(lists=2, watches=4)
        assert ["sendInitialEvents" in watch for watch in run.watches] == [True, False, True, False]


@pytest.mark.requirement("RF2")
def test_a_missing_marker_ends_in_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "STREAM_SILENCE", 0.2)

    def no_marker(reply: Reply) -> None:
        reply.start_stream()
        reply.event("ADDED", item("a", 1))
        reply.hang()

    with running(Steps([listing(item("b", 2), version=5)], [no_marker, stay_silent]), streaming=True) as run:
        run.wait_for_requests(lists=1, watches=2)
        assert [event.obj.header.name for event in run.wait_for_events(1)] == ["b"]


@pytest.mark.requirement("RF2")
def test_a_marker_that_is_late_for_five_minutes_is_not_waited_for() -> None:
    clock = PromptClock()

    def slow(reply: Reply) -> None:
        reply.start_stream()
        for n in range(9):
            reply.event("ADDED", item(f"a{n}", n + 1))
            clock.advance(50)
        reply.hang()

    with running(Steps([listing(version=5)], [slow, stay_silent]), streaming=True, clock=clock) as run:
        run.wait_for_requests(lists=1, watches=2)


@pytest.mark.requirement("RF2")
def test_bookmarks_alone_do_not_keep_a_list_without_its_marker_going() -> None:
    clock = PromptClock()

    def bookmarks(reply: Reply) -> None:
        reply.start_stream()
        clock.advance(61)
        reply.event("BOOKMARK", bookmark(3))
        reply.hang()

    with running(Steps([listing(version=5)], [bookmarks, stay_silent]), streaming=True, clock=clock) as run:
        run.wait_for_requests(lists=1, watches=2)


# Watch -----------------------------------------------------------------------------------------------


def events_then(*events: tuple[str, Object], then: Callable[[Reply], None]) -> Callable[[Reply], None]:
    def answer(reply: Reply) -> None:
        reply.start_stream()
        for type_, obj in events:
            reply.event(type_, obj)
        then(reply)

    return answer


def after(clock: VirtualClock, seconds: float) -> Callable[[Reply], None]:
    def end(reply: Reply) -> None:
        clock.advance(seconds)
        reply.end_stream()

    return end


@pytest.mark.requirement("RF3", "RF4")
def test_a_clean_end_is_watched_on_from_the_last_version_without_a_list() -> None:
    clock = PromptClock()
    told = threading.Event()

    def deleted(reply: Reply) -> None:
        told.wait(DEADLINE)
        events_then(("DELETED", item("a", 41)), then=after(clock, 300))(reply)

    watches = [
        events_then(("ADDED", item("a", 6)), then=after(clock, 300)),
        events_then(("BOOKMARK", bookmark(40)), then=after(clock, 300)),
        deleted,
        stay_silent,
    ]
    with running(Steps([listing(version=5)], watches), clock=clock) as run:
        run.wait_for_events(1)  # else the handler might be told of the deletion alone
        told.set()
        run.wait_for_requests(watches=4)
        assert [watch["resourceVersion"] for watch in run.watches] == ["5", "6", "40", "41"]
        assert len(run.lists) == 1
        assert clock.pauses == []
        assert run.count("captf_runtime_informer_reconnects_total") == 3
        assert [type(event) for event in run.wait_for_events(2)] == [Added, Deleted]


@pytest.mark.requirement("RF4")
def test_replayed_additions_never_advance_the_version() -> None:
    clock = PromptClock()
    unversioned = {"kind": "ConfigMapList", "metadata": {}, "items": []}
    watches = [
        events_then(("ADDED", item("a", 90)), ("ADDED", item("b", 10)), then=after(clock, 300)),
        events_then(("ADDED", item("a", 90)), ("MODIFIED", item("b", 91)), then=after(clock, 300)),
        stay_silent,
    ]
    with running(Steps([unversioned], watches), clock=clock) as run:
        run.wait_for_requests(watches=3)
        assert [watch.get("resourceVersion") for watch in run.watches] == [None, None, "91"]
        assert not [request for request in run.server.requests if "None" in request.target]


@pytest.mark.requirement("RF4", "IN9")
def test_repeated_and_older_events_change_nothing() -> None:
    def twice(reply: Reply) -> None:
        reply.start_stream()
        for type_, obj in (
            ("ADDED", item("a", 6)),
            ("MODIFIED", item("a", 7)),
            ("ADDED", item("a", 6)),
            ("MODIFIED", item("a", 7)),
            ("ADDED", item("end", 8)),
        ):
            reply.event(type_, obj)
        reply.hang()

    with running(Steps([listing(version=5)], [twice])) as run:
        run.wait_for_event_of("end")
        found = run.informer.store.get("t", "a")
        assert found is not None
        assert found.header.resource_version == "7"
        assert run.informer.version == "8"


@pytest.mark.requirement("RF5", "RF6", "RF7")
@pytest.mark.parametrize(
    "failure",
    [
        lambda reply: reply.send(500, status(500)),
        lambda reply: reply.send(403, status(403, "Forbidden")),
        lambda reply: reply.send(404, status(404, "NotFound")),
        lambda reply: reply.cut(),
        lambda reply: (
            reply.start_stream(),
            reply.event("ERROR", status(500, "InternalError")),
            reply.hang(),
        ),
        lambda reply: (reply.start_stream(), reply.chunk(b'{"type":"ADDED","obj'), reply.cut()),
        lambda reply: (reply.start_stream(), reply.end_stream()),
    ],
    ids=["500", "403", "404", "cut", "error-event", "mid-line", "at-once"],
)
def test_other_failures_back_off_and_watch_on_without_a_list(failure: Callable[[Reply], None]) -> None:
    clock = PromptClock()
    script = Steps([listing(version=5)], [failure, failure, failure, stay_silent])
    with running(script, clock=clock) as run:
        run.wait_for_requests(watches=4)
        assert {watch["resourceVersion"] for watch in run.watches} == {"5"}
        assert len(run.lists) == 1
        assert clock.pauses == pytest.approx([0.8, 1.6, 3.2])


@pytest.mark.requirement("RF6")
def test_pauses_are_drawn_between_once_and_twice_double_and_start_anew_after_two_good_minutes() -> None:
    clock = PromptClock()
    bad = (500, status(500))
    watches = [lambda reply: reply.send(*bad), events_then(("BOOKMARK", bookmark(8)), then=after(clock, 130))]
    script = Steps([bad] * 8 + [listing(version=5)], [*watches, *watches, stay_silent])
    with running(script, clock=clock, draw=lambda low, high: high) as run:
        run.wait_for_requests(watches=5)
        assert clock.pauses == pytest.approx([1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60, 60, 1.6])


@pytest.mark.requirement("RF6")
def test_changes_between_failures_keep_the_pauses_short() -> None:
    clock = PromptClock()

    def broken_after(version: int) -> Callable[[Reply], None]:
        return events_then(("ADDED", item("a", version)), then=lambda reply: reply.cut())

    def bad(reply: Reply) -> None:
        reply.send(500, status(500))

    script = Steps([listing(version=5)], [bad, bad, broken_after(6), broken_after(7), bad, bad, stay_silent])
    with running(script, clock=clock) as run:
        run.wait_for_requests(watches=7)
        assert [watch["resourceVersion"] for watch in run.watches] == ["5", "5", "5", "6", "7", "7", "7"]
        assert clock.pauses == pytest.approx([0.8, 1.6, 0.8, 0.8])
        assert len(run.lists) == 1


@pytest.mark.requirement("RF1", "RF5")
def test_a_server_that_forgets_quickly_is_listed_at_once_each_time() -> None:
    clock = PromptClock()
    expired = ("ERROR", status(410, "Expired"))
    forgotten = events_then(("ADDED", item("b", 6)), expired, then=lambda reply: reply.end_stream())
    forgotten_again = events_then(("ADDED", item("b", 8)), expired, then=lambda reply: reply.end_stream())
    lists = [listing(version=5), listing(version=7), listing(version=9)]
    with running(Steps(lists, [forgotten, forgotten_again, stay_silent]), clock=clock) as run:
        run.wait_for_requests(watches=3, lists=3)
        assert clock.pauses == [1.0]  # no backoff, but the sixth request waits for its second


@pytest.mark.requirement("RF6")
def test_429_is_waited_out_and_watched_on_without_a_list() -> None:
    clock = PromptClock()

    def shed(reply: Reply) -> None:
        reply.send(429, status(429, "TooManyRequests"), {"Retry-After": "17"})

    with running(Steps([listing(version=5)], [shed, stay_silent]), clock=clock) as run:
        run.wait_for_requests(watches=2)
        assert clock.pauses == [17.0]
        assert len(run.lists) == 1


def endless_pages(reply: Reply) -> None:
    reply.send(200, listing(version=5, token="more"))


@pytest.mark.requirement("RF6")
@pytest.mark.parametrize(
    ("lists", "watch"),
    [
        ([listing(version=5)], lambda reply: reply.send(410, status(410, "Expired"))),
        (
            [listing(version=5)],
            events_then(("ERROR", status(410, "Expired")), then=lambda reply: reply.end_stream()),
        ),
        (
            [listing(version=5)],
            events_then(
                ("BOOKMARK", bookmark(6)), ("ERROR", status(410)), then=lambda reply: reply.end_stream()
            ),
        ),
        ([listing(version=5)], events_then(("BOOKMARK", bookmark(6)), then=lambda reply: reply.end_stream())),
        ([listing(version=5)], events_then(("ADDED", item("a", 6)), then=lambda reply: reply.cut())),
        ([listing(version=5)], lambda reply: (reply.start_stream(), reply.end_stream())),
        ([listing(version=5)], lambda reply: (reply.start_stream(), reply.chunk(b"x\n"), reply.end_stream())),
        ([listing(version=5)], lambda reply: reply.send(429, status(429), {"Retry-After": "0"})),
        ([endless_pages], stay_silent),
        ([(410, status(410, "Expired"))], stay_silent),
        ([(200, b"{")], stay_silent),
        ([(401, status(401))], stay_silent),
    ],
)
def test_no_answers_cause_more_than_five_requests_in_a_second(
    lists: list[Any], watch: Callable[[Reply], None]
) -> None:
    clock = PromptClock()
    times: list[float] = []
    steps = Steps(lists, [watch])

    def script(request: Received, reply: Reply) -> None:
        times.append(clock.monotonic())
        steps(request, reply)

    with running(script, clock=clock) as run:
        run.server.wait_for(lambda: len(times) >= 40, DEADLINE)
    assert all(later - earlier >= 1.0 for earlier, later in zip(times, times[5:], strict=False)), times


@pytest.mark.requirement("RF7")
def test_what_keeps_an_informer_from_working_is_told() -> None:
    clock = PromptClock()
    message = 'configmaps is forbidden: User "x" cannot list resource "configmaps"'
    forbidden = (403, status(403, "Forbidden", message))
    gate = threading.Event()

    def last(reply: Reply) -> None:
        gate.wait(DEADLINE)
        reply.send(200, listing(version=5))

    with running(Steps([forbidden] * 3 + [last], [stay_silent]), clock=clock) as run:
        run.wait_for_requests(lists=4)
        error = run.informer.last_error
        assert error is not None
        assert error.count == 3
        assert message in error.message
        assert error.time <= clock.now()
        gate.set()
        run.wait_for_requests(watches=1)
        assert run.informer.last_error is None


# Silence ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("RF8")
def test_a_silent_stream_is_opened_again_from_the_last_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "BOOKMARK_SILENCE", 0.2)
    watches = [events_then(("BOOKMARK", bookmark(9)), then=lambda reply: reply.hang()), stay_silent]
    with running(Steps([listing(version=5)], watches)) as run:
        run.wait_for_requests(watches=3)  # which wait less than a watch lasts
        assert [watch["resourceVersion"] for watch in run.watches[:3]] == ["5", "9", "9"]
        assert len(run.lists) == 1
        run.server.wait_for(lambda: run.count("captf_runtime_watch_idle_total") >= 2, DEADLINE)


@pytest.mark.requirement("RF8")
def test_before_the_first_bookmark_silence_may_last_as_long_as_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silences: list[float] = []
    original = Client.watch

    def watch(self: Client, *args: Any, **options: Any) -> Any:
        silences.append(options["read_timeout"])
        return original(self, *args, **options)

    monkeypatch.setattr(Client, "watch", watch)
    clock = PromptClock()
    watches = [
        events_then(("ADDED", item("a", 6)), then=after(clock, 300)),
        events_then(("BOOKMARK", bookmark(9)), then=after(clock, 300)),
        stay_silent,
    ]
    with running(Steps([listing(version=5)], watches), clock=clock) as run:
        run.wait_for_requests(watches=3)
        assert silences == [330.0, 330.0, 90.0]


# Decoding --------------------------------------------------------------------------------------------


@pytest.mark.requirement("RF9")
@pytest.mark.parametrize(
    "bad",
    [
        b"no json\n",
        b'{"type":"ADDED"}\n',
        b'{"object":{"metadata":{"name":"x"}}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":7}}}\n',
        b'{"type":"STRANGE","object":{"metadata":{"name":"x"}}}\n',
        b'{"type":"BOOKMARK","object":{}}\n',
        b"\xff\xfe\n",
    ],
)
def test_a_bad_line_is_counted_and_the_third_at_one_version_leads_to_a_list(bad: bytes) -> None:
    def good_then_bad(reply: Reply) -> None:
        reply.start_stream()
        reply.event("ADDED", item("a", 6))
        reply.chunk(bad)
        reply.hang()

    def only_bad(reply: Reply) -> None:
        reply.start_stream()
        reply.chunk(bad)
        reply.hang()

    watches = [good_then_bad, only_bad, only_bad, only_bad, stay_silent]
    lists = [listing(version=5), listing(item("a", 6), version=9)]
    with running(Steps(lists, watches)) as run:
        run.wait_for_requests(lists=2, watches=4)
        assert [watch["resourceVersion"] for watch in run.watches[:3]] == ["5", "6", "6"]
        assert run.lists[1]["resourceVersion"] == "6"
        assert run.count("captf_runtime_informer_decode_errors_total") >= 3


@pytest.mark.requirement("RF9")
def test_characters_and_lines_may_be_cut_anywhere() -> None:
    text = json.dumps(
        {"type": "ADDED", "object": item("a", 6, data={"x": "äß€😀"})}, ensure_ascii=False
    ).encode()

    def byte_by_byte(reply: Reply) -> None:
        reply.start_stream()
        for n in range(len(text)):
            reply.chunk(text[n : n + 1])
        reply.chunk(b"\n\n")
        reply.hang()

    with running(Steps([listing(version=5)], [byte_by_byte])) as run:
        assert run.wait_for_events(1)[0].obj.decode()["data"] == {"x": "äß€😀"}


# Transform and form ----------------------------------------------------------------------------------


@pytest.mark.requirement("RF11")
def test_the_transform_runs_before_storing_and_may_leave_objects_out() -> None:
    def transform(obj: Object) -> Object | None:
        name = obj["metadata"]["name"]
        if name == "bad":
            raise RuntimeError("bad")
        if obj.get("hidden"):
            return None
        return {"metadata": obj["metadata"], "kept": name}

    managed = {"managedFields": [{"manager": "x"}]}
    bad = item("bad", 3, secret=1)
    bad["metadata"] |= managed
    a = item("a", 1, secret=1)
    a["metadata"] |= managed

    def watch(reply: Reply) -> None:
        reply.start_stream()
        reply.event("MODIFIED", item("a", 6, hidden=True))
        reply.event("ADDED", item("b", 7, hidden=True))
        reply.event("ADDED", item("c", 8))
        reply.hang()

    script = Steps([listing(a, item("h", 2, hidden=True), bad, version=5)], [watch])
    with running(script, transform=transform) as run:
        run.wait_for_event_of("c")
        stored = {obj["metadata"]["name"]: obj for obj in run.cache.list(CONFIG_MAP)}
        assert set(stored) == {"bad", "c"}
        assert stored["c"]["kept"] == "c"
        assert stored["bad"]["secret"] == 1
        assert "managedFields" not in stored["bad"]["metadata"]
        assert run.count("captf_runtime_handler_failures_total") == 1
        assert run.informer.version == "8"


@pytest.mark.requirement("RF11", "G4")
def test_objects_that_no_transform_can_be_given_are_left_out() -> None:
    deep = json.dumps(item("deep", 2))[:-1] + ', "spec": ' + "[" * 5000 + "]" * 5000 + "}"
    nameless = json.dumps({"metadata": None})
    page = json.dumps(listing(item("a", 1), version=5)).replace(
        '"items": [', f'"items": [{deep}, {nameless}, '
    )

    def transform(obj: Object) -> Object:
        if obj["metadata"]["name"] == "b":
            raise SystemExit(3)
        return obj

    def watch(reply: Reply) -> None:
        reply.start_stream()
        reply.event("ADDED", item("b", 6))
        reply.hang()

    with running(Steps([(200, page.encode())], [watch]), transform=transform) as run:
        run.wait_for_events(2)
        assert [obj["metadata"]["name"] for obj in run.cache.list(CONFIG_MAP)] == ["a", "b"]
        assert run.count("captf_runtime_informer_decode_errors_total") == 2
        failures = "captf_runtime_thread_failures_total"
        assert run.metrics.registry.get_sample_value(failures, {"component": "reflector"}) == 0
        assert (len(run.lists), len(run.watches)) == (1, 1)


@pytest.mark.requirement("RF11")
def test_without_a_transform_managed_fields_are_dropped() -> None:
    full = item("a", 1, data={"x": "1"})
    full["metadata"]["managedFields"] = [{"manager": "x", "fieldsV1": {"f:data": {}}}]
    with running(Steps([listing(full, version=5)], [stay_silent])) as run:
        run.wait_for_requests(watches=1)
        (found,) = run.cache.list(CONFIG_MAP)
        assert found["data"] == {"x": "1"}
        assert "managedFields" not in found["metadata"]


@pytest.mark.requirement("RF12")
def test_metadata_only_informers_ask_for_metadata_in_lists_and_watches() -> None:
    partial = item("s", 1) | {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    script = Steps([listing(partial, version=5)], [stay_silent])
    with running(script, kind=SECRET, metadata_only=True) as run:
        run.wait_for_requests(watches=1)
        accepted = [request.headers["accept"] for request in run.server.requests]
        assert accepted == [
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        ]
        (found,) = run.cache.list(SECRET)
        assert (found["kind"], found["apiVersion"]) == ("Secret", "v1")


# Stop ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("RF10")
@pytest.mark.parametrize("where", ["list", "watch", "watch-headers", "pause"])
def test_stop_ends_every_wait_at_once(where: str) -> None:
    lists: list[Any] = [listing(version=5)]
    watches: list[Callable[[Reply], None]] = [stay_silent]
    clock = VirtualClock()
    if where == "list":
        lists = [lambda reply: reply.hang()]
    elif where == "watch-headers":
        watches = [lambda reply: reply.hang()]
    elif where == "pause":
        watches = [lambda reply: reply.send(500, status(500))]
    with running(Steps(lists, watches), clock=clock) as run:
        run.wait_for_requests(lists=1, watches=0 if where == "list" else 1)
        if where == "pause":
            clock.wait_for_waiters(1)
        started = time.monotonic()
        run.informer.stop()
        assert run.informer.join(25) == []
        assert time.monotonic() - started < 25  # not the time of a request, a watch or a pause
        assert run.informer.last_error is None or where == "pause"


def raw(obj: Object, levels: int = 0) -> bytes:
    """The JSON of an object, with a value of so many levels in its data."""
    text = json.dumps(obj)
    return f'{text[:-1]}, "data": {"[" * levels}{"]" * levels}}}'.encode() if levels else text.encode()


@pytest.mark.requirement("RF9", "IN3")
@pytest.mark.parametrize("levels", [1_000, 1_500, 9_000])
def test_an_object_nested_too_deeply_is_left_out_and_disturbs_no_other(levels: int) -> None:
    first = json.dumps(listing(version=5)).encode()
    first = (
        first[:-2] + b", ".join([raw(item("a", 1)), raw(item("deep", 2), levels), raw(item("z", 3))]) + b"]}"
    )

    def changes(reply: Reply) -> None:
        reply.start_stream()
        for known, type_, obj in (
            (2, "MODIFIED", raw(item("a", 6), levels)),
            (3, "ADDED", raw(item("b", 7))),
            (3, "MODIFIED", raw(item("deep", 8), levels)),
            (3, "DELETED", raw(item("deep", 9), levels)),
            (3, "MODIFIED", raw(item("a", 10))),
        ):
            # Of what a handler was not told of yet it would be told the last alone.
            told[known].wait(DEADLINE)
            reply.chunk(b'{"type": "%s", "object": %s}\n' % (type_.encode(), obj))
        reply.hang()

    told = {count: threading.Event() for count in (2, 3)}
    script = Steps([lambda reply: reply.send(200, first)], [changes])
    with running(script) as run:
        for count, event in told.items():
            run.wait_for_events(count)
            event.set()
        seen = [(type(event).__name__, event.obj.header.name) for event in run.wait_for_events(5)]
        assert seen[:3] == [("Added", "a"), ("Added", "z"), ("Deleted", "a")]
        # Only the changes of one key are told in their order; these two are of different keys.
        assert sorted(seen[3:]) == [("Added", "a"), ("Added", "b")]
        assert [header.name for header in run.cache.headers(CONFIG_MAP)] == ["a", "b", "z"]
        assert (len(run.lists), len(run.watches)) == (1, 1), "nothing is asked for again"
        assert run.count("captf_runtime_informer_decode_errors_total") == 4


@pytest.mark.requirement("RF10")
def test_a_hundred_starts_and_stops_leave_nothing() -> None:
    def script(request: Received, reply: Reply) -> None:
        if is_watch(request):
            stay_silent(reply)
        else:
            reply.send(200, listing(item("a", 1), version=5))

    with ScriptedServer(script) as server, server.client() as client:
        threads, descriptors = threading.active_count(), 0
        for turn in range(101):
            cache = Cache(client, resync_period=0)
            cache.informer(CONFIG_MAP)
            stop = threading.Event()
            cache.start(stop)
            cache.wait_for_sync(DEADLINE)
            server.wait_for(lambda turn=turn: sum(map(is_watch, server.requests)) > turn)  # type: ignore[misc]
            stop.set()
            cache.shutdown(DEADLINE)
            server.wait_for(lambda: server.open_connections <= 1)
            if turn == 0:
                threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
        own = [
            thread.name
            for thread in threading.enumerate()
            if thread.name.startswith(("reflector", "informer", "cache"))
        ]
        assert own == []
        # Those of the server that answers end on their own.
        eventually(lambda: threading.active_count() <= threads + 1)
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 1)
