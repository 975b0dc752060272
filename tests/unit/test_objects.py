from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_runtime import objects
from captf_runtime.objects import (
    CLUSTER_ROLE,
    JOB,
    SECRET,
    ObjectKey,
    OwnerReference,
    compare_resource_versions,
    format_micro_time,
    format_time,
    parse_label_selector,
    parse_time,
    selector_for,
    selector_from,
)

MACHINE = {
    "apiVersion": "example.io/v1",
    "kind": "Machine",
    "metadata": {
        "name": "a",
        "namespace": "t",
        "uid": "u-1",
        "resourceVersion": "12",
        "generation": 3,
        "labels": {"x": "1"},
        "annotations": {"note": "hello"},
        "finalizers": ["example.io/x"],
        "creationTimestamp": "2026-09-25T12:00:00Z",
        "deletionTimestamp": "2026-09-25T12:30:00Z",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u-2"},
            {
                "apiVersion": "example.io/v1",
                "kind": "Set",
                "name": "s",
                "uid": "u-3",
                "controller": True,
                "blockOwnerDeletion": True,
            },
        ],
    },
}


def test_paths_follow_group_scope_and_subresource() -> None:
    assert SECRET.path("t") == "/api/v1/namespaces/t/secrets"
    assert SECRET.path() == "/api/v1/secrets"
    assert JOB.path("t", "j", "status") == "/apis/batch/v1/namespaces/t/jobs/j/status"
    assert CLUSTER_ROLE.path("ignored", "r") == "/apis/rbac.authorization.k8s.io/v1/clusterroles/r"
    assert (JOB.api_version, JOB.resource, str(SECRET)) == ("batch/v1", "jobs.batch", "secrets")


def test_accessors_read_every_metadata_field() -> None:
    assert objects.key_of(MACHINE) == ObjectKey("t", "a")
    assert str(objects.key_of(MACHINE)) == "t/a"
    assert str(ObjectKey("", "a")) == "a"
    assert objects.uid_of(MACHINE) == "u-1"
    assert objects.labels_of(MACHINE) == {"x": "1"}
    assert objects.annotations_of(MACHINE) == {"note": "hello"}
    assert objects.resource_version_of(MACHINE) == "12"
    assert objects.generation_of(MACHINE) == 3
    assert objects.has_finalizer(MACHINE, "example.io/x")
    assert objects.is_deleting(MACHINE)
    assert objects.deletion_timestamp_of(MACHINE) == datetime(2026, 9, 25, 12, 30, tzinfo=UTC)
    assert objects.creation_timestamp_of(MACHINE) == datetime(2026, 9, 25, 12, tzinfo=UTC)
    controller = objects.controller_of(MACHINE)
    assert controller == OwnerReference("example.io/v1", "Set", "s", "u-3", True, True)
    assert controller is not None
    assert controller.group == "example.io"
    assert [reference.to_dict() for reference in objects.owner_references(MACHINE)] == MACHINE["metadata"][
        "ownerReferences"
    ]
    assert objects.is_controlled_by(MACHINE, {"metadata": {"uid": "u-3"}})
    assert not objects.is_controlled_by(MACHINE, {"metadata": {"uid": "u-2"}})


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"labels": None, "finalizers": None}}])
def test_accessors_are_empty_on_bare_objects(obj: objects.Object) -> None:
    assert objects.key_of(obj) == ObjectKey("", "")
    assert objects.labels_of(obj) == {}
    assert objects.finalizers_of(obj) == []
    assert objects.owner_references(obj) == []
    assert objects.controller_of(obj) is None
    assert objects.deletion_timestamp_of(obj) is None
    assert not objects.is_deleting(obj)
    assert not objects.is_controlled_by(obj, obj)


def test_label_accessors_return_copies() -> None:
    objects.labels_of(MACHINE)["x"] = "2"
    assert objects.labels_of(MACHINE) == {"x": "1"}


def test_owner_reference_names_the_missing_field() -> None:
    assert objects.owner_reference_to(MACHINE, controller=True).controller
    with pytest.raises(ValueError, match=r"metadata\.uid"):
        objects.owner_reference_to({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}})


def test_times_are_utc_and_exact() -> None:
    time = datetime(2026, 9, 25, 14, 0, 1, 42, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(time) == "2026-09-25T12:00:01Z"
    assert format_micro_time(time) == "2026-09-25T12:00:01.000042Z"
    assert parse_time("2026-09-25T12:00:01.000042Z") == time
    assert parse_time("2026-09-25T14:00:01.000042999+02:00") == time
    for bad in ("", "2026-09-25", "2026-09-25T12:00:00", "2026-13-25T12:00:00Z", "yesterday"):
        with pytest.raises(ValueError):
            parse_time(bad)
    with pytest.raises(ValueError, match="time zone"):
        format_time(datetime(2026, 1, 1))


@given(st.datetimes(timezones=st.just(UTC), min_value=datetime(1000, 1, 1)))
def test_micro_time_round_trips(time: datetime) -> None:
    assert parse_time(format_micro_time(time)) == time


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("! a", {"a": "1"}, False),
        ("a=b", {"a": "b"}, True),
        ("a == b", {"a": "c"}, False),
        ("a=", {"a": ""}, True),
        ("a=,b", {"a": "", "b": "1"}, True),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("a in (,c)", {"a": ""}, True),
        ("a notin (b,c)", {"a": "d"}, True),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("example.io/n in (x),b!=2 , !c", {"example.io/n": "x"}, True),
        ("in in (in)", {"in": "in"}, True),
        ("n>3", {"n": "10"}, True),
        ("n<3", {"n": "10"}, False),
        ("n>3", {"n": "x"}, False),
    ],
)
def test_label_selectors(text: str, labels: dict[str, str], expected: bool) -> None:
    selector = parse_label_selector(text)
    assert selector.matches(labels) is expected
    assert parse_label_selector(str(selector)) == selector


@pytest.mark.parametrize(
    "text", [",", "a,", "a b", "a in b", "a in (b", "a in ()x", "=b", "a=b=c", "-a", "a=b/c", "a>b", "x/y/z"]
)
def test_bad_label_selectors_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="label selector"):
        parse_label_selector(text)


def test_selector_structures() -> None:
    selector = selector_from(
        {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["x"]}]}
    )
    assert str(selector) == "a=1,b!=x"
    assert selector_from(None).matches({})
    assert selector_for({"b": "2", "a": "1"}) == parse_label_selector("a=1,b=2")
    with pytest.raises(ValueError, match=r"matchExpressions\[0\]\.operator"):
        selector_from({"matchExpressions": [{"key": "a", "operator": "Near"}]})


@pytest.mark.requirement("RD4")
def test_resource_versions_compare_as_integers_of_any_size() -> None:
    assert compare_resource_versions("9", "10") == -1
    assert compare_resource_versions("0010", "10") == 0
    assert compare_resource_versions("9" * 5000, "9" * 4999) == 1
    for unknown in ("", "None", "1a", "-1", "²"):
        assert compare_resource_versions(unknown, "10") is None
