"""Watches: what they begin with, what they deliver, and how they end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import widget
from tests.conformance.target import Case
from tests.conformance.versions import RESULTS

pytestmark = pytest.mark.requirement("AS26")


LEASES = "leases.coordination.k8s.io"
"""Of these the real server makes none by itself in a new namespace."""


def lease(name: str, holder: str = "1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"holderIdentity": holder}}


def shown(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def version_of(answer: Any) -> str:
    return str(answer.metadata["resourceVersion"])


def test_from_a_version(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    with k.watch(k.path(LEASES), resourceVersion=version_of(first)) as stream:
        k.post(k.path(LEASES), lease("b"))
        k.patch(k.path(LEASES, "a"), {"spec": {"holderIdentity": "2"}})
        k.delete(k.path(LEASES, "b"))
        events = stream.take(3)
    assert shown(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert events[0]["object"]["kind"] == "Lease"
    assert events[1]["object"]["spec"] == {"holderIdentity": "2"}


def test_of_the_past(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    k.patch(k.path(LEASES, "a"), {"spec": {"holderIdentity": "2"}})
    k.delete(k.path(LEASES, "a"))
    k.post(k.path(LEASES), lease("a", "3"))
    with k.watch(k.path(LEASES), resourceVersion=version_of(first)) as stream:
        events = stream.take(3)
    assert shown(events) == [("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    assert [event["object"]["spec"]["holderIdentity"] for event in events] == ["2", "2", "3"]


def test_deleted_carries_a_new_version(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    with k.watch(k.path(LEASES), resourceVersion=version_of(first)) as stream:
        k.delete(k.path(LEASES, "a"))
        [event] = stream.take(1)
    assert event["type"] == "DELETED"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(version_of(first))


@pytest.mark.parametrize("version", [None, "0"], ids=["none", "zero"])
def test_without_a_version(k: Case, version: str | None) -> None:
    for name in ("b", "a"):
        k.post(k.path(LEASES), lease(name, labels={"t": "1"}))
    query = {"labelSelector": "t"} | ({"resourceVersion": version} if version else {})
    path = k.path(LEASES)
    listed = path + "?labelSelector=t&resourceVersion=0"
    k.eventually(lambda: len(k.peek(listed).body["items"]) == 2, "the cache to have both")
    with k.watch(path, **query) as stream:
        # The real server replays them in no certain order.
        initial = [stream.next(record=False), stream.next(record=False)]
        assert sorted(shown([event for event in initial if event])) == [("ADDED", "a"), ("ADDED", "b")]
        k.post(path, lease("c", labels={"t": "1"}))
        assert shown(stream.take(1)) == [("ADDED", "c")]


def test_no_change_gives_no_event(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    with k.watch(k.path(LEASES), resourceVersion=version_of(first)) as stream:
        k.patch(k.path(LEASES, "a"), {"spec": {"holderIdentity": "1"}})
        k.post(k.path(LEASES), lease("b"))
        assert shown(stream.take(1)) == [("ADDED", "b")]


@pytest.mark.usefixtures("custom_resources")
def test_custom_resource(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    first = k.post(path, widget(GROUP, "a"))
    with k.watch(path, resourceVersion=version_of(first)) as stream:
        k.patch(f"{path}/a/status", {"status": {"phase": "Ready"}})
        k.patch(f"{path}/a", {"metadata": {"finalizers": ["example.com/x"]}})
        k.delete(f"{path}/a")
        k.patch(f"{path}/a", {"metadata": {"finalizers": None}})
        events = stream.take(4)
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
    assert events[0]["object"]["status"] == {"phase": "Ready"}
    assert events[2]["object"]["metadata"]["deletionTimestamp"]


def test_entering_and_leaving_a_selector(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    path = k.path(LEASES, "a")
    with k.watch(k.path(LEASES), resourceVersion=version_of(first), labelSelector="t=1") as stream:
        k.patch(path, {"metadata": {"labels": {"t": "1"}}})
        k.patch(path, {"spec": {"holderIdentity": "2"}})
        left = k.patch(path, {"metadata": {"labels": {"t": "2"}}})
        k.patch(path, {"spec": {"holderIdentity": "3"}})
        k.patch(path, {"metadata": {"labels": {"t": "1"}}})
        events = stream.take(4)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    gone = events[2]["object"]
    assert gone["metadata"]["resourceVersion"] == version_of(left)
    assert gone["metadata"]["labels"] == {"t": "1"}


def test_one_object(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    query = {"fieldSelector": "metadata.name=a", "resourceVersion": version_of(first)}
    with k.watch(k.path(LEASES), **query) as stream:
        k.post(k.path(LEASES), lease("b"))
        k.patch(k.path(LEASES, "a"), {"spec": {"holderIdentity": "2"}})
        assert shown(stream.take(1)) == [("MODIFIED", "a")]


def test_all_namespaces(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    query = {"resourceVersion": version_of(first), "fieldSelector": f"metadata.namespace={k.namespace}"}
    with k.watch(k.path(LEASES, namespace=None), **query) as stream:
        k.post(k.path(LEASES), lease("b"))
        assert shown(stream.take(1)) == [("ADDED", "b")]


def test_end_by_timeout(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    begun = time.monotonic()
    with k.watch(k.path(LEASES), resourceVersion=version_of(first), timeoutSeconds="1") as stream:
        assert stream.rest() == []
    assert 0.5 < time.monotonic() - begun < 50  # not the minute that watches of these cases last


@pytest.mark.usefixtures("custom_resources")
def test_bookmarks_before_the_end(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    first = k.post(path, widget(GROUP, "a"))
    query = {"resourceVersion": version_of(first), "allowWatchBookmarks": "true"}
    for seconds in ("3", "30"):  # longer if the change, or the server with its bookmark, came too late
        with k.watch(path, timeoutSeconds=seconds, **query) as stream:
            # While it is watched: the real server sends no bookmark of a version that the watch began with.
            changed = k.patch(f"{path}/a", {"spec": {"size": int(seconds)}}, record=seconds == "3")
            events = stream.rest()
        bookmarks = [event["object"] for event in events if event["type"] == "BOOKMARK"]
        if bookmarks and int(bookmarks[-1]["metadata"]["resourceVersion"]) >= int(version_of(changed)):
            break
    assert events[0]["type"] == "MODIFIED"
    assert bookmarks
    assert int(bookmarks[-1]["metadata"]["resourceVersion"]) >= int(version_of(changed))
    assert (bookmarks[-1]["kind"], bookmarks[-1]["apiVersion"]) == ("Widget", f"{GROUP}/v1")


def test_no_bookmarks_unasked(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    with k.watch(k.path(LEASES), resourceVersion=version_of(first), timeoutSeconds="2") as stream:
        assert [event["type"] for event in stream.rest()] == []


def test_version_before_history(k: Case) -> None:
    # The real server's history begins with its start, ours with the last compaction.
    k.post(k.path(LEASES), lease("a"))
    with k.watch(k.path(LEASES), resourceVersion="1") as stream:
        assert stream.code == 200
        event = stream.next(record=False)
        assert event is not None
        if event["type"] == "ERROR":
            assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
            assert event["object"]["message"].startswith("too old resource version: 1 (")
            assert stream.next(record=False) is None


def test_version_that_is_no_number(k: Case) -> None:
    with k.watch(k.path(LEASES), resourceVersion="abc") as stream:
        assert stream.code in (200, 400, 500)
        assert stream.body()


def test_initial_events(k: Case) -> None:
    k.post(k.path(LEASES), lease("a", labels={"t": "1"}))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "labelSelector": "t",
    }
    with k.watch(k.path(LEASES), **query) as stream:
        assert stream.code == RESULTS["watch/initial-events"][k.server.version]
        if stream.code != 200:
            body = stream.body()
            assert (body["reason"], body["details"]["kind"]) == ("Invalid", "ListOptions")
            return
        added, mark = stream.take(2)
    assert shown([added]) == [("ADDED", "a")]
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_initial_events_without_match(k: Case) -> None:
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "1"}
    with k.watch(k.path(LEASES), **query) as stream:
        assert stream.code == RESULTS["watch/initial-events-alone"][k.server.version]


def test_match_without_initial_events(k: Case) -> None:
    with k.watch(k.path(LEASES), resourceVersionMatch="NotOlderThan", resourceVersion="1") as stream:
        assert stream.code == 422
        body = stream.body()
    assert body["details"]["causes"][0]["field"] == "resourceVersionMatch"


def test_several_watchers_see_the_same(k: Case) -> None:
    first = k.post(k.path(LEASES), lease("a"))
    path, query = k.path(LEASES), {"resourceVersion": version_of(first)}
    with k.watch(path, **query) as one, k.watch(path, **query) as two:
        for name in ("b", "c"):
            k.post(path, lease(name))
        left, right = one.take(2), two.take(2)
    assert left == right
    assert shown(left) == [("ADDED", "b"), ("ADDED", "c")]
