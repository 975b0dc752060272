"""Faults that the embedded API server injects."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator

import pytest
from tests.integration.raw_http import Raw

from captf_runtime.testing import faults
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.faults import Match
from captf_runtime.testing.waiting import eventually

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
BROKEN = (http.client.HTTPException, ConnectionError)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(bookmark_interval=0.1) as running:
        yield running


@pytest.fixture
def raw(server: ApiServer) -> Raw:
    return Raw(server)


def body(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}}


@pytest.mark.requirement("AS29")
def test_matched_by_verb_resource_name_and_user(server: ApiServer, raw: Raw) -> None:
    match = Match(verb="get", resource="configmaps", name="a", user="admin")
    fault = server.faults.add(match, faults.internal_error())
    raw.create(CONFIG_MAPS, body("a"))
    raw.create(CONFIG_MAPS, body("b"))
    assert raw.get(f"{CONFIG_MAPS}/b").code == 200
    assert raw.get("/api/v1/namespaces/default/secrets/a").code == 404
    assert Raw(server, "joe").get(f"{CONFIG_MAPS}/a").code == 200
    assert raw.get(f"{CONFIG_MAPS}/a").code == 500
    assert fault.hits == 1
    fault.remove()
    assert raw.get(f"{CONFIG_MAPS}/a").code == 200


@pytest.mark.requirement("AS29")
def test_counted_by_times_and_after(server: ApiServer, raw: Raw) -> None:
    server.faults.add(Match(verb="list"), faults.unavailable(), times=2, after=1)
    assert [raw.get(CONFIG_MAPS).code for _ in range(4)] == [200, 503, 503, 200]


@pytest.mark.requirement("AS29")
def test_probability_is_seeded(server: ApiServer, raw: Raw) -> None:
    def drawn() -> list[int]:
        server.faults.seed(7)
        return [raw.get(CONFIG_MAPS).code for _ in range(30)]

    server.faults.add(Match(verb="list"), faults.unavailable(), probability=0.5)
    first = drawn()
    assert set(first) == {200, 503}
    assert drawn() == first


@pytest.mark.requirement("AS29")
@pytest.mark.parametrize(
    ("action", "code", "reason"),
    [
        (faults.conflict(), 409, "Conflict"),
        (faults.forbidden(), 403, "Forbidden"),
        (faults.too_many_requests(3), 429, "TooManyRequests"),
        (faults.internal_error(), 500, "InternalError"),
        (faults.unavailable(), 503, "ServiceUnavailable"),
        (faults.error(418, "Teapot"), 418, "Teapot"),
    ],
)
def test_failures_before_the_commit(
    server: ApiServer, raw: Raw, action: faults.Action, code: int, reason: str
) -> None:
    server.faults.add(Match(verb="create"), action, times=1)
    answer = raw.create(CONFIG_MAPS, body("a"))
    assert (answer.code, answer.reason) == (code, reason)
    if code == 429:
        assert answer.headers["Retry-After"] == "3"
    assert raw.get(f"{CONFIG_MAPS}/a").code == 404


@pytest.mark.requirement("AS29")
def test_failures_after_the_commit(server: ApiServer, raw: Raw) -> None:
    server.faults.add(Match(verb="create"), faults.conflict(after_commit=True), times=1)
    assert raw.create(CONFIG_MAPS, body("a")).code == 409
    assert raw.get(f"{CONFIG_MAPS}/a").code == 200


@pytest.mark.requirement("AS29")
@pytest.mark.parametrize(("after", "code"), [(False, 404), (True, 200)])
def test_resets_before_and_after_the_commit(server: ApiServer, raw: Raw, after: bool, code: int) -> None:
    server.faults.add(Match(verb="create"), faults.reset(after_commit=after), times=1)
    with pytest.raises(BROKEN):
        raw.create(CONFIG_MAPS, body("a"))
    assert Raw(server).get(f"{CONFIG_MAPS}/a").code == code


@pytest.mark.requirement("AS29")
def test_latency(server: ApiServer, raw: Raw) -> None:
    server.faults.add(Match(verb="get"), faults.latency(0.15), times=1)
    started = time.monotonic()
    raw.get(f"{CONFIG_MAPS}/a")
    assert time.monotonic() - started >= 0.15


@pytest.mark.requirement("AS29")
def test_truncated_and_invalid_bodies(server: ApiServer, raw: Raw) -> None:
    raw.create(CONFIG_MAPS, body("a"))
    server.faults.add(Match(verb="get"), faults.truncate(10), times=1)
    with pytest.raises(http.client.IncompleteRead):
        raw.get(f"{CONFIG_MAPS}/a")
    server.faults.add(Match(verb="get"), faults.invalid_json(), times=1)
    with pytest.raises(json.JSONDecodeError):
        _ = Raw(server).get(f"{CONFIG_MAPS}/a").json


def watched(raw: Raw, query: str = "", seconds: int = 60) -> str:
    """The path of a watch from now on, which lasts longer than a test unless something else ends it."""
    version = raw.get(CONFIG_MAPS).version
    return f"{CONFIG_MAPS}?watch=1&timeoutSeconds={seconds}&resourceVersion={version}{query}"


@pytest.mark.requirement("AS29")
def test_a_watch_is_dropped_after_some_events(server: ApiServer, raw: Raw) -> None:
    server.faults.add(Match(verb="watch"), faults.drop_watch(1))
    watch = raw.watch(watched(raw))
    for name in "ab":
        raw.create(CONFIG_MAPS, body(name))
    assert watch.events(1) == [("ADDED", "a")]
    assert watch.line() == b""


@pytest.mark.requirement("AS29")
def test_a_watch_is_dropped_in_the_middle_of_a_line(server: ApiServer, raw: Raw) -> None:
    server.faults.add(Match(verb="watch"), faults.drop_watch(mid_line=True))
    watch = raw.watch(watched(raw))
    raw.create(CONFIG_MAPS, body("a"))
    line = watch.response.read1(10_000)
    assert line.startswith(b'{"type":"ADDED"')
    assert not line.endswith(b"\n")


@pytest.mark.requirement("AS29")
def test_a_silent_watch_keeps_its_connection(server: ApiServer, raw: Raw) -> None:
    server.faults.add(Match(verb="watch"), faults.silence())
    watch = raw.watch(watched(raw, "&allowWatchBookmarks=1", seconds=1))
    raw.create(CONFIG_MAPS, body("a"))
    assert server.open_connections == 2
    assert list(watch) == []


@pytest.mark.requirement("AS29")
def test_bookmarks_and_end_markers_are_left_out(server: ApiServer, raw: Raw) -> None:
    server.faults.add(Match(verb="watch"), faults.no_bookmarks(), times=1)
    assert list(raw.watch(watched(raw, "&allowWatchBookmarks=1", seconds=1))) == []
    server.faults.add(Match(verb="watch"), faults.no_end_marker(), times=1)
    query = (
        "watch=1&timeoutSeconds=1&sendInitialEvents=1&allowWatchBookmarks=1&resourceVersionMatch=NotOlderThan"
    )
    events = list(raw.watch(f"{CONFIG_MAPS}?{query}"))
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert not any("annotations" in event["object"]["metadata"] for event in events)


@pytest.mark.requirement("AS29")
def test_events_come_twice(server: ApiServer, raw: Raw) -> None:
    server.faults.add(Match(verb="watch"), faults.duplicate_events())
    watch = raw.watch(watched(raw))
    raw.create(CONFIG_MAPS, body("a"))
    assert watch.events(2) == [("ADDED", "a"), ("ADDED", "a")]
    watch.close()


@pytest.mark.requirement("AS29")
@pytest.mark.parametrize("code", [410, 500])
def test_a_watch_ends_with_an_error(server: ApiServer, raw: Raw, code: int) -> None:
    server.faults.add(Match(verb="watch"), faults.watch_error(code, "Because", after_events=1))
    watch = raw.watch(watched(raw))
    for name in "ab":
        raw.create(CONFIG_MAPS, body(name))
    events = list(watch)
    assert [event["type"] for event in events] == ["ADDED", "ERROR"]
    assert events[1]["object"]["code"] == code


@pytest.mark.requirement("AS29")
def test_compaction_ends_a_watch_and_forgets_history(server: ApiServer, raw: Raw) -> None:
    old = raw.get(CONFIG_MAPS).version
    server.faults.add(Match(verb="watch"), faults.compaction(), times=1)
    watch = raw.watch(watched(raw))
    raw.create(CONFIG_MAPS, body("a"))
    assert [event["object"]["code"] for event in watch] == [410]
    again = list(raw.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion={old}"))
    assert again[0]["object"]["reason"] == "Expired"


@pytest.mark.requirement("AS29")
def test_bad_arguments_are_refused(server: ApiServer) -> None:
    for wrong in ({"probability": 2.0}, {"times": 0}, {"after": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            server.faults.add(Match(), faults.reset(), **wrong)  # type: ignore[arg-type]
    assert len(server.faults) == 0
    server.faults.add(Match(), faults.reset())
    server.faults.clear()
    eventually(lambda: Raw(server).get("/version").code == 200)
