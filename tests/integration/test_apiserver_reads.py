"""Reads of the embedded API server: lists, pages, selectors, watches."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from tests.integration.raw_http import Raw
from tests.integration.widgets import DEFINITION, RESOURCE, widget

from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.apiserver.http_server import Stream
from captf_runtime.testing.waiting import eventually

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=[DEFINITION], bookmark_interval=0.2) as running:
        Raw(running).create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        yield running


@pytest.fixture
def raw(server: ApiServer) -> Raw:
    return Raw(server)


@pytest.fixture
def maps(raw: Raw) -> str:
    """The ConfigMaps of a namespace of its own."""
    namespace = f"n{next(_numbers)}"
    raw.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    return f"/api/v1/namespaces/{namespace}/configmaps"


def fill(raw: Raw, maps: str, *names: str, **labels: str) -> None:
    for name in names:
        assert raw.create(maps, {"metadata": {"name": name, "labels": labels}}).code == 201


def names_of(raw: Raw, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in raw.get(path)["items"]]


@pytest.mark.requirement("AS24")
def test_lists_come_in_key_order(raw: Raw, maps: str) -> None:
    fill(raw, maps, "b", "a-b", "a", "c.d", "a0")
    assert names_of(raw, maps) == ["a", "a-b", "a0", "b", "c.d"]


@pytest.mark.requirement("AS24")
def test_pages_show_one_snapshot(raw: Raw, maps: str) -> None:
    fill(raw, maps, "a", "b", "c", "d", "e")
    first = raw.get(f"{maps}?limit=2")
    metadata = first["metadata"]
    assert ([i["metadata"]["name"] for i in first["items"]], metadata["remainingItemCount"]) == (
        ["a", "b"],
        3,
    )
    raw.delete(f"{maps}/d")
    raw.patch(f"{maps}/c", {"data": {"new": "x"}})
    fill(raw, maps, "cc")
    second = raw.get(f"{maps}?limit=2&continue={metadata['continue']}")
    assert [i["metadata"]["name"] for i in second["items"]] == ["c", "d"]
    assert "data" not in second["items"][0]
    assert second.version == first.version
    third = raw.get(f"{maps}?limit=2&continue={second['metadata']['continue']}")
    assert [i["metadata"]["name"] for i in third["items"]] == ["e"]
    assert "continue" not in third["metadata"]


@pytest.mark.requirement("AS24")
def test_with_selectors_nobody_counts_the_rest(raw: Raw, maps: str) -> None:
    fill(raw, maps, "a", "b", "c", x="y")
    metadata = raw.get(f"{maps}?limit=1&labelSelector=x")["metadata"]
    assert metadata["continue"]
    assert "remainingItemCount" not in metadata


@pytest.mark.requirement("AS24")
def test_bad_and_expired_continue_tokens(raw: Raw, server: ApiServer, maps: str) -> None:
    fill(raw, maps, "a", "b", "c")
    assert raw.get(f"{maps}?limit=1&continue=abc").code == 400
    token = raw.get(f"{maps}?limit=1")["metadata"]["continue"]
    assert raw.get(f"{maps}?limit=1&resourceVersion=5&continue={token}").code == 400
    fill(raw, maps, "d")
    server.compact()
    gone = raw.get(f"{maps}?limit=1&continue={token}")
    assert (gone.code, gone.reason) == (410, "Expired")
    fresh = gone["metadata"]["continue"]
    assert names_of(raw, f"{maps}?continue={fresh}") == ["b", "c", "d"]


@pytest.mark.requirement("AS24")
def test_versions_of_lists(raw: Raw, maps: str) -> None:
    fill(raw, maps, "a")
    version = raw.get(maps).version
    fill(raw, maps, "b")
    assert names_of(raw, f"{maps}?resourceVersion={version}&resourceVersionMatch=Exact") == ["a"]
    assert names_of(raw, f"{maps}?resourceVersion={version}&resourceVersionMatch=NotOlderThan") == ["a", "b"]
    assert names_of(raw, f"{maps}?resourceVersion=0") == ["a", "b"]
    current = raw.get(maps).version
    future = raw.get(f"{maps}?resourceVersion=999999")
    assert (future.code, future.reason, future.headers["Retry-After"]) == (504, "Timeout", "1")
    assert future.message == f"Timeout: Too large resource version: 999999, current: {current}"
    assert [cause["reason"] for cause in future["details"]["causes"]] == ["ResourceVersionTooLarge"]
    assert raw.get(f"{maps}/a?resourceVersion=999999").code == 504


@pytest.mark.requirement("AS25")
@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("a", "xy"), ("!a", "z"), ("a=1", "x"), ("a==1", "x"), ("a!=1", "yz"), ("a in (1,2)", "xy"),
        ("a notin (1)", "yz"), ("a,b", "y"), ("a,!b", "x"), ("a>1", "y"), ("", "xyz"),
    ],
)  # fmt: skip
def test_label_selectors(raw: Raw, maps: str, selector: str, selected: str) -> None:
    fill(raw, maps, "x", a="1")
    fill(raw, maps, "y", a="2", b="q")
    fill(raw, maps, "z")
    assert "".join(names_of(raw, f"{maps}?labelSelector={quote(selector)}")) == selected


@pytest.mark.requirement("AS25")
def test_selectors_that_cannot_be_read(raw: Raw, maps: str) -> None:
    for selector in ("a in b", "a,", "=b", "-a", "a=b=c"):
        answer = raw.get(f"{maps}?labelSelector={quote(selector)}")
        assert (answer.code, answer.reason) == (400, "BadRequest"), selector
    answer = raw.get(f"{maps}?fieldSelector=spec.x%3D1")
    assert (
        answer.message == '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


@pytest.mark.requirement("AS25")
def test_field_selectors(raw: Raw, maps: str) -> None:
    namespace = maps.rsplit("/", 1)[0]
    name = namespace.rsplit("/", 1)[1]
    fill(raw, maps, "x", "y")
    assert names_of(raw, f"{maps}?fieldSelector=metadata.name%3Dx") == ["x"]
    assert names_of(raw, f"{maps}?fieldSelector=metadata.name!%3Dx,metadata.namespace%3D{name}") == ["y"]
    raw.create(f"{namespace}/secrets", {"metadata": {"name": "s"}})
    assert names_of(raw, f"{namespace}/secrets?fieldSelector=type%3DOpaque") == ["s"]
    raw.create(
        f"{namespace}/pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    )
    assert names_of(raw, f"{namespace}/pods?fieldSelector=status.phase%3DPending,spec.nodeName%3D") == ["p"]
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": name, "name": "w"}, "reason": "R"}
    raw.create(f"{namespace}/events", event)
    assert names_of(raw, f"{namespace}/events?fieldSelector=involvedObject.name%3Dw,reason%3DR") == ["e"]
    events = f"/apis/events.k8s.io/v1/namespaces/{name}/events"
    assert names_of(raw, f"{events}?fieldSelector=regarding.name%3Dw") == ["e"]
    jobs = f"/apis/batch/v1/namespaces/{name}/jobs"
    assert names_of(raw, f"{jobs}?fieldSelector=status.successful%3D1") == []


@pytest.mark.requirement("AS25")
def test_selectable_fields_of_definitions(raw: Raw) -> None:
    raw.create(RESOURCE, widget("in-a", mode="A"))
    raw.create(RESOURCE, widget("in-b", mode="B"))
    assert names_of(raw, f"{RESOURCE}?fieldSelector=spec.mode%3DB") == ["in-b"]
    assert raw.get(f"{RESOURCE}?fieldSelector=spec.size%3D1").code == 400


@pytest.mark.requirement("AS26")
@pytest.mark.parametrize("version", ["", "&resourceVersion=0"])
def test_without_a_version_a_watch_begins_with_everything(raw: Raw, maps: str, version: str) -> None:
    fill(raw, maps, "b", "a")
    watch = raw.watch(f"{maps}?watch=1&timeoutSeconds=10{version}")
    assert watch.events(2) == [("ADDED", "a"), ("ADDED", "b")]
    fill(raw, maps, "c")
    assert watch.events(1) == [("ADDED", "c")]
    watch.close()


@pytest.mark.requirement("AS26")
def test_from_a_version_exactly_the_later_events_come_in_order(raw: Raw, maps: str) -> None:
    fill(raw, maps, "a")
    version = raw.get(maps).version
    fill(raw, maps, "b")
    raw.patch(f"{maps}/a", {"data": {"x": "y"}})
    raw.delete(f"{maps}/b")
    watch = raw.watch(f"{maps}?watch=1&timeoutSeconds=10&resourceVersion={version}")
    assert watch.events(3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    fill(raw, maps, "c")
    assert watch.events(1) == [("ADDED", "c")]
    watch.close()


@pytest.mark.requirement("AS26")
def test_leaving_and_entering_a_selection(raw: Raw, maps: str) -> None:
    fill(raw, maps, "in", x="y")
    fill(raw, maps, "out")
    version = raw.get(maps).version
    left = raw.patch(f"{maps}/in", {"metadata": {"labels": {"x": None}}})
    raw.patch(f"{maps}/out", {"metadata": {"labels": {"x": "z"}}})
    raw.delete(f"{maps}/in")
    watch = raw.watch(f"{maps}?watch=1&timeoutSeconds=1&labelSelector=x&resourceVersion={version}")
    first, second = list(watch)
    assert (first["type"], first["object"]["metadata"]["name"]) == ("DELETED", "in")
    assert first["object"]["metadata"]["resourceVersion"] == left.version
    assert first["object"]["metadata"]["labels"] == {"x": "y"}
    assert (second["type"], second["object"]["metadata"]["name"]) == ("ADDED", "out")


@pytest.mark.requirement("AS26")
def test_older_than_history(raw: Raw, server: ApiServer, maps: str) -> None:
    version = raw.get(maps).version
    fill(raw, maps, "a")
    oldest = server.compact()
    watch = raw.watch(f"{maps}?watch=1&timeoutSeconds=10&resourceVersion={version}")
    events = list(watch)
    assert watch.code == 200
    assert [event["type"] for event in events] == ["ERROR"]
    failure = events[0]["object"]
    assert (failure["code"], failure["reason"]) == (410, "Expired")
    assert failure["message"] == f"too old resource version: {version} ({oldest})"


@pytest.mark.requirement("AS26")
def test_a_future_version_waits(raw: Raw, maps: str) -> None:
    current = int(raw.get(maps).version)
    watch = raw.watch(f"{maps}?watch=1&timeoutSeconds=10&resourceVersion={current + 1}")
    fill(raw, maps, "skipped", "seen")
    assert watch.events(1) == [("ADDED", "seen")]
    watch.close()


@pytest.mark.requirement("AS26")
def test_bookmarks_come_regularly_and_only_when_asked_for(raw: Raw, maps: str) -> None:
    fill(raw, maps, "a")
    version = raw.get(maps).version
    watch = raw.watch(f"{maps}?watch=1&timeoutSeconds=10&allowWatchBookmarks=true&resourceVersion={version}")
    event = watch.event()
    watch.close()
    assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
    assert int(event["object"]["metadata"]["resourceVersion"]) >= int(version)
    assert list(raw.watch(f"{maps}?watch=1&timeoutSeconds=1&resourceVersion={version}")) == []


@pytest.mark.requirement("AS26")
def test_a_bookmark_comes_before_a_timeout() -> None:
    with ApiServer() as server:
        raw = Raw(server)
        path = "/api/v1/namespaces?watch=1&timeoutSeconds=1&allowWatchBookmarks=1&resourceVersion="
        events = list(raw.watch(path + raw.get("/api/v1/namespaces").version))
        assert [event["type"] for event in events] == ["BOOKMARK"]


@pytest.mark.requirement("AS26")
def test_a_bookmark_comes_before_a_timeout_that_is_noticed_late(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Stream.wait
    monkeypatch.setattr(Stream, "wait", lambda self, timeout: wait(self, timeout + 0.5))  # a busy machine
    test_a_bookmark_comes_before_a_timeout()


@pytest.mark.requirement("AS26")
def test_streaming_lists(raw: Raw, maps: str) -> None:
    fill(raw, maps, "a", "b")
    query = "watch=1&timeoutSeconds=60&sendInitialEvents=true&allowWatchBookmarks=true"
    watch = raw.watch(f"{maps}?{query}&resourceVersionMatch=NotOlderThan")
    assert watch.events(2) == [("ADDED", "a"), ("ADDED", "b")]
    marker = watch.event()
    assert marker["type"] == "BOOKMARK"
    assert marker["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    fill(raw, maps, "c")
    eventually(lambda: ("ADDED", "c") in watch.events(1))
    watch.close()
    assert raw.get(f"{maps}?{query}").code == 422


@pytest.mark.requirement("AS26")
def test_history_is_bounded() -> None:
    with ApiServer(history_limit=10) as server:
        raw = Raw(server)
        maps = "/api/v1/namespaces/default/configmaps"
        version = raw.get(maps).version
        fill(raw, maps, *(f"c{i}" for i in range(11)))
        events = list(raw.watch(f"{maps}?watch=1&timeoutSeconds=5&resourceVersion={version}"))
        assert [event["type"] for event in events] == ["ERROR"]


@pytest.mark.requirement("AS26")
def test_a_slow_watcher_is_cut_and_blocks_no_write() -> None:
    with ApiServer(watch_buffer=20) as server:
        raw = Raw(server)
        maps = "/api/v1/namespaces/default/configmaps"
        watch = raw.watch(f"{maps}?watch=1&timeoutSeconds=60&resourceVersion={raw.get(maps).version}")
        # Nobody reads the watch; its socket fills up, then its buffer.
        writes = threading.Thread(
            target=lambda: [
                raw.create(maps, {"metadata": {"name": f"c{i}"}, "data": {"a": "x" * 500_000}})
                for i in range(60)
            ]
        )
        writes.start()
        writes.join(120)
        assert not writes.is_alive()
        assert len(names_of(raw, f"{maps}?limit=500")) == 60
        eventually(lambda: server.open_connections <= 1)
        watch.close()


@pytest.mark.requirement("AS26")
def test_a_watch_notices_that_its_client_went_away(raw: Raw, server: ApiServer, maps: str) -> None:
    before = server.open_connections
    watch = raw.watch(f"{maps}?watch=1&timeoutSeconds=600")
    eventually(lambda: server.open_connections == before + 1)
    watch.response.close()
    watch.close()
    eventually(lambda: server.open_connections == before)


@pytest.mark.requirement("AS26")
def test_a_connection_serves_on_after_a_watch_that_ended(raw: Raw, maps: str) -> None:
    connection = raw.watch(f"{maps}?watch=1&timeoutSeconds=1")
    assert list(connection) == []
    connection._connection.request("GET", "/version", headers=raw.headers())
    assert connection._connection.getresponse().status == 200
    connection.close()


@pytest.mark.requirement("AS26")
def test_many_watchers_see_the_same_events_while_many_write(raw: Raw, server: ApiServer, maps: str) -> None:
    start = raw.get(maps).version
    seen: list[list[str]] = []

    def follow() -> None:
        watch = raw.watch(f"{maps}?watch=1&timeoutSeconds=60&resourceVersion={start}")
        seen.append([watch.event()["object"]["metadata"]["resourceVersion"] for _ in range(200)])
        watch.close()

    def write(worker: int) -> None:
        fill(Raw(server), maps, *(f"w{worker}-{index}" for index in range(50)))

    watchers = [threading.Thread(target=follow) for _ in range(8)]
    writers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in [*watchers, *writers]:
        thread.start()
    for thread in [*writers, *watchers]:
        thread.join(120)
    assert len(seen) == 8
    assert all(versions == seen[0] for versions in seen)
    assert sorted(seen[0], key=int) == seen[0]
