"""Every verb against a server that keeps objects, and the exact requests against one that is scripted."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from tests.integration.scripted_server import Received, Reply, ScriptedServer, status
from tests.integration.targets import WIDGET, Target

from captf_runtime.client import (
    AlreadyExists,
    BadRequest,
    Client,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    RequestTimeout,
    UnsupportedMediaType,
)
from captf_runtime.objects import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
    Object,
    is_deleting,
    labels_of,
    name_of,
    resource_version_of,
    uid_of,
)
from captf_runtime.testing.clock import VirtualClock


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


@pytest.mark.requirement("CL7")
def test_create_get_update_delete(client: Client, namespace: str) -> None:
    given = {"metadata": {"name": "a", "resourceVersion": "5"}, "data": {"x": "1"}}
    kept = copy.deepcopy(given)
    created = client.create(CONFIG_MAP, given, namespace, field_manager="me")
    assert given == kept
    assert (created["kind"], created["apiVersion"], created["data"]) == ("ConfigMap", "v1", {"x": "1"})
    assert created["metadata"]["managedFields"][0]["manager"] == "me"
    with pytest.raises(AlreadyExists):
        client.create(CONFIG_MAP, given, namespace)
    assert client.get(CONFIG_MAP, "a", namespace) == created
    updated = client.update(CONFIG_MAP, {**created, "data": {"x": "2"}})
    assert client.get(CONFIG_MAP, "a", namespace)["data"] == {"x": "2"}
    with pytest.raises(Conflict) as raised:
        client.update(CONFIG_MAP, created)
    assert raised.value.kind == "resource-version"
    assert resource_version_of(updated) != resource_version_of(created)
    client.delete(CONFIG_MAP, "a", namespace, propagation_policy="Background")
    with pytest.raises(NotFound):
        client.get(CONFIG_MAP, "a", namespace)


@pytest.mark.requirement("CL7")
def test_dry_runs_store_nothing(client: Client, namespace: str) -> None:
    assert uid_of(client.create(CONFIG_MAP, config_map("a"), namespace, dry_run=True))
    with pytest.raises(NotFound):
        client.get(CONFIG_MAP, "a", namespace)
    stored = client.create(CONFIG_MAP, config_map("a", x="1"), namespace)
    assert client.update(CONFIG_MAP, {**stored, "data": {}}, dry_run=True).get("data", {}) == {}
    client.patch(CONFIG_MAP, "a", {"data": {"x": "2"}}, namespace, dry_run=True)
    client.delete(CONFIG_MAP, "a", namespace, propagation_policy="Background", dry_run=True)
    client.delete_collection(CONFIG_MAP, namespace, propagation_policy="Background", dry_run=True)
    assert client.get(CONFIG_MAP, "a", namespace) == stored


@pytest.mark.requirement("CL7")
def test_field_validation_is_passed_on(target: Target, client: Client, namespace: str) -> None:
    assert target.embedded.url  # 1.20 has no field validation
    bad = {"metadata": {"name": "a"}, "data": {}, "unknown": 1}
    with pytest.raises(BadRequest):
        client.create(CONFIG_MAP, bad, namespace, field_validation="Strict")
    client.create(CONFIG_MAP, bad, namespace, field_validation="Ignore")


@pytest.mark.requirement("CL7")
def test_subresources(client: Client, namespace: str) -> None:
    widget = client.create(
        WIDGET, {"metadata": {"name": "w"}, "spec": {"a": 1}, "status": {"b": 2}}, namespace
    )
    assert "status" not in widget
    stored = client.update(WIDGET, {**widget, "spec": {"a": 9}, "status": {"b": 3}}, subresource="status")
    assert (stored["spec"], stored["status"]) == ({"a": 1}, {"b": 3})
    patched = client.patch(WIDGET, "w", {"status": {"c": 4}}, namespace, subresource="status")
    assert patched["status"] == {"b": 3, "c": 4}
    assert client.get(WIDGET, "w", namespace, subresource="status")["status"] == {"b": 3, "c": 4}
    client.create(SERVICE_ACCOUNT, {"metadata": {"name": "sa"}}, namespace)
    token = client.create_subresource(
        SERVICE_ACCOUNT, "sa", "token", {"spec": {"expirationSeconds": 600}}, namespace
    )
    assert token["status"]["token"]


@pytest.mark.requirement("CL7")
def test_finalize(client: Client, namespace: str) -> None:
    found = client.get(NAMESPACE, namespace)
    changed = {**found, "spec": {"finalizers": [*found["spec"]["finalizers"], "example.test/hold"]}}
    stored = client.update(NAMESPACE, changed, subresource="finalize")
    assert "example.test/hold" in stored["spec"]["finalizers"]
    client.update(NAMESPACE, {**stored, "spec": found["spec"]}, subresource="finalize")


@pytest.mark.requirement("CL8")
def test_patch_types(client: Client, namespace: str) -> None:
    client.create(CONFIG_MAP, config_map("a", x="1", y="2"), namespace)
    merged = client.patch(CONFIG_MAP, "a", {"data": {"x": None, "z": "3"}}, namespace)
    assert merged["data"] == {"y": "2", "z": "3"}
    operations: list[Object] = [
        {"op": "test", "path": "/data/y", "value": "2"},
        {"op": "remove", "path": "/data/y"},
    ]
    assert client.patch(CONFIG_MAP, "a", operations, namespace, patch_type="json")["data"] == {"z": "3"}
    with pytest.raises(Invalid) as raised:
        client.patch(CONFIG_MAP, "a", operations, namespace, patch_type="json")
    assert raised.value.causes == ()
    client.patch(CONFIG_MAP, "a", {"data": {"s": "1"}}, namespace, patch_type="strategic")
    applied = client.patch(
        CONFIG_MAP, "a", {"data": {"w": "4"}}, namespace, patch_type="apply", field_manager="one"
    )
    assert applied["data"] == {"z": "3", "s": "1", "w": "4"}
    with pytest.raises(Conflict) as conflict:
        client.patch(
            CONFIG_MAP, "a", {"data": {"w": "5"}}, namespace, patch_type="apply", field_manager="two"
        )
    assert conflict.value.kind == "apply"
    assert conflict.value.causes[0].field == ".data.w"
    forced = client.patch(
        CONFIG_MAP,
        "a",
        {"data": {"w": "5"}},
        namespace,
        patch_type="apply",
        field_manager="two",
        force=True,
    )
    assert forced["data"]["w"] == "5"
    client.create(WIDGET, {"metadata": {"name": "w"}}, namespace)
    with pytest.raises(UnsupportedMediaType):
        client.patch(WIDGET, "w", {"spec": {}}, namespace, patch_type="strategic")


@pytest.mark.requirement("CL11")
def test_deletions_name_their_policy_and_their_preconditions(client: Client, namespace: str) -> None:
    created = client.create(CONFIG_MAP, config_map("a"), namespace)
    for precondition in ({"uid": "other"}, {"resource_version": "1"}):
        with pytest.raises(Conflict) as raised:
            client.delete(CONFIG_MAP, "a", namespace, propagation_policy="Background", **precondition)
        assert raised.value.kind == "precondition"
    answer = client.delete(
        CONFIG_MAP,
        "a",
        namespace,
        propagation_policy="Background",
        uid=uid_of(created),
        resource_version=resource_version_of(created),
    )
    assert answer["kind"] == "Status"
    with pytest.raises(TypeError, match="propagation_policy"):
        client.delete(CONFIG_MAP, "a", namespace)  # type: ignore[call-arg]


@pytest.mark.requirement("CL11")
def test_a_deletion_that_waits_returns_the_object(client: Client, namespace: str) -> None:
    held = {"metadata": {"name": "a", "finalizers": ["example.test/hold"]}}
    client.create(CONFIG_MAP, held, namespace)
    answer = client.delete(CONFIG_MAP, "a", namespace, propagation_policy="Background")
    assert is_deleting(answer)
    client.patch(CONFIG_MAP, "a", {"metadata": {"finalizers": None}}, namespace)


@pytest.mark.requirement("CL7")
def test_a_collection_is_deleted_by_selector(client: Client, namespace: str) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        client.create(CONFIG_MAP, {"metadata": {"name": name, "labels": {"l": label}}}, namespace)
    client.delete_collection(CONFIG_MAP, namespace, propagation_policy="Background", label_selector="l=x")
    left = client.list(CONFIG_MAP, namespace, label_selector="l")
    assert [name_of(item) for item in left] == ["c"]


@pytest.mark.requirement("CL12", "CL13")
def test_lists_are_paged_filled_and_of_one_version(client: Client, namespace: str) -> None:
    for n in range(7):
        client.create(
            CONFIG_MAP, {"metadata": {"name": f"m{n}", "labels": {"even": str(n % 2 == 0)}}}, namespace
        )
    pages = list(client.pages(CONFIG_MAP, namespace, limit=3, label_selector="even"))
    assert [len(page) for page in pages] == [3, 3, 1]
    assert len({page.resource_version for page in pages}) == 1
    for page in pages:
        assert {(item["kind"], item["apiVersion"]) for item in page} == {("ConfigMap", "v1")}
    listed = client.list(CONFIG_MAP, namespace, limit=3, label_selector="even=True")
    assert [name_of(item) for item in listed] == ["m0", "m2", "m4", "m6"]
    one = client.list(CONFIG_MAP, namespace, field_selector="metadata.name=m3", limit=0)
    assert [name_of(item) for item in one] == ["m3"]
    assert listed.resource_version
    assert client.list(WIDGET, namespace).items == []
    assert list(client.list(CLUSTER_ROLE))[:1] != [None]


@pytest.mark.requirement("RF12")
def test_metadata_only_reads(client: Client, namespace: str) -> None:
    client.create(SECRET, {"metadata": {"name": "s"}, "stringData": {"p": "x"}}, namespace)
    got = client.get(SECRET, "s", namespace, metadata_only=True)
    listed = client.list(SECRET, namespace, metadata_only=True, field_selector="metadata.name=s").items
    for found in (got, *listed):
        assert sorted(found) == ["apiVersion", "kind", "metadata"]
        assert (found["kind"], found["apiVersion"], name_of(found)) == ("Secret", "v1", "s")
    stream = client.watch(
        SECRET,
        namespace,
        resource_version=None,
        timeout_seconds=30,
        read_timeout=30,
        metadata_only=True,
        field_selector="metadata.name=s",
    )
    with stream:
        event = next(stream)
    assert sorted(event.decode()) == ["apiVersion", "kind", "metadata"]
    assert event.decode()["kind"] == "Secret"


def test_watching_shows_changes_in_order(client: Client, namespace: str) -> None:
    version = client.list(CONFIG_MAP, namespace).resource_version
    stream = client.watch(
        CONFIG_MAP,
        namespace,
        resource_version=version,
        timeout_seconds=30,
        read_timeout=30,
        field_selector="metadata.name=a",
    )
    with stream:
        client.create(CONFIG_MAP, config_map("a"), namespace)
        client.patch(CONFIG_MAP, "a", {"metadata": {"labels": {"l": "1"}}}, namespace)
        client.delete(CONFIG_MAP, "a", namespace, propagation_policy="Background")
        seen = [next(stream) for _ in range(3)]
    assert [event.type for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert labels_of(seen[1].decode()) == {"l": "1"}
    assert list(stream) == []


@pytest.mark.requirement("CL7")
def test_kinds_are_registered_or_discovered_and_remembered(target: Target, namespace: str) -> None:
    clock = VirtualClock()
    with Client.from_config(kubeconfig=target.kubeconfig, clock=clock) as client:
        assert client.kind("batch/v1", "Job") is JOB
        assert client.kind("things.example.test/v1", "Widget") == WIDGET
        found = client.kind("rbac.authorization.k8s.io/v1", "ClusterRole")
        assert found == CLUSTER_ROLE
        for missing in (("things.example.test/v1", "Gadget"), ("none.example.test/v1", "X")):
            with pytest.raises(NotFound):
                client.kind(*missing)
        mine = Kind("mine.example.test", "v1", "Mine", "mines")
        client.register(mine)
        assert client.kind("mine.example.test/v1", "Mine") is mine


@pytest.mark.requirement("CL7")
def test_discovery_is_asked_again_after_ten_minutes() -> None:
    def script(request: Received, reply: Reply) -> None:
        resources = [
            {"name": "things", "kind": "Thing", "namespaced": True},
            {"name": "things/status", "kind": "Thing", "namespaced": False},
        ]
        reply.send(200, {"resources": resources})

    clock = VirtualClock()
    with ScriptedServer(script) as server, server.client(clock=clock) as client:
        for _ in range(3):
            assert client.kind("x.test/v1", "Thing") == Kind("x.test", "v1", "Thing", "things")
        clock.advance(599)
        client.kind("x.test/v1", "Thing")
        assert len(server.requests) == 1
        clock.advance(2)
        client.kind("x.test/v1", "Thing")
        assert len(server.requests) == 2


# What exactly is sent ------------------------------------------------------------------------------


def listing(names: list[str], *, version: str = "10", token: str = "") -> Object:
    meta: Object = {"resourceVersion": version}
    if token:
        meta["continue"] = token
    return {"kind": "ConfigMapList", "metadata": meta, "items": [{"metadata": {"name": n}} for n in names]}


@pytest.mark.requirement("CL12")
def test_limit_is_not_combined_with_version_zero() -> None:
    with (
        ScriptedServer(lambda request, reply: reply.send(200, listing(["a"]))) as server,
        server.client() as client,
    ):
        client.list(CONFIG_MAP, "t", resource_version="0")
        client.list(CONFIG_MAP, "t", resource_version="7")
        assert [request.query for request in server.requests] == [
            {"resourceVersion": "0"},
            {"limit": "500", "resourceVersion": "7"},
        ]


@pytest.mark.requirement("CL12")
def test_an_expired_page_restarts_the_list_in_one_request() -> None:
    def script(request: Received, reply: Reply) -> None:
        query = request.query
        if query.get("continue"):
            assert "resourceVersion" not in query
            reply.send(410, status(410, "Expired", metadata={"continue": "inconsistent"}))
        elif "limit" in query:
            reply.send(200, listing(["old"], version="10", token="next"))
        else:
            reply.send(200, listing(["new1", "new2"], version="20"))

    with ScriptedServer(script) as server, server.client() as client:
        found = client.list(CONFIG_MAP, "t", limit=1)
        assert [name_of(item) for item in found] == ["new1", "new2"]
        assert found.resource_version == "20"
        assert server.requests[-1].query == {}
        pages = list(client.pages(CONFIG_MAP, "t", limit=1))
        assert [page.restarted for page in pages] == [False, True]


@pytest.mark.requirement("CL12")
def test_an_expired_restart_is_raised() -> None:
    def script(request: Received, reply: Reply) -> None:
        if "limit" in request.query and "continue" not in request.query:
            reply.send(200, listing(["old"], token="next"))
        else:
            reply.send(410, status(410, "Expired", metadata={"continue": "later"}))

    with ScriptedServer(script) as server, server.client() as client:
        with pytest.raises(Gone) as raised:
            client.list(CONFIG_MAP, "t", limit=1)
        assert raised.value.continue_token == "later"
        assert len(server.requests) == 3


@pytest.mark.requirement("CL12")
def test_the_caller_s_time_bounds_all_pages() -> None:
    clock = VirtualClock()

    def script(request: Received, reply: Reply) -> None:
        clock.advance(10)
        reply.send(200, listing(["a"], token="next"))

    with ScriptedServer(script) as server, server.client(clock=clock) as client:
        with pytest.raises(RequestTimeout):
            client.list(CONFIG_MAP, "t", timeout=25)
        assert len(server.requests) == 3


@pytest.mark.requirement("CL7", "CL8", "CL11")
def test_what_writes_send() -> None:
    obj: Object = {"metadata": {"name": "a", "namespace": "t", "resourceVersion": "3", "uid": "u"}, "x": 1}
    with ScriptedServer(lambda request, reply: reply.send(200, obj)) as server, server.client() as client:
        client.create(CONFIG_MAP, obj, dry_run=True, field_manager="m", field_validation="Warn")
        client.update(CONFIG_MAP, obj, subresource="status")
        client.patch(CONFIG_MAP, "a", {"x": 2}, "t", patch_type="apply", field_manager="m", force=True)
        client.patch(CONFIG_MAP, "a", [], "t", patch_type="json", subresource="status")
        client.delete(
            CONFIG_MAP, "a", "t", propagation_policy="Foreground", uid="u", resource_version="3", dry_run=True
        )
        create, update, apply, operations, delete = server.requests
        assert create.query == {"dryRun": "All", "fieldManager": "m", "fieldValidation": "Warn"}
        assert create.json == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "t", "uid": "u"},
            "x": 1,
        }
        assert (update.method, update.path) == ("PUT", "/api/v1/namespaces/t/configmaps/a/status")
        assert update.json["metadata"]["resourceVersion"] == "3"
        assert apply.headers["content-type"] == "application/apply-patch+yaml"
        assert apply.query == {"fieldManager": "m", "force": "true"}
        assert apply.json == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "x": 2}
        assert operations.headers["content-type"] == "application/json-patch+json"
        assert delete.json == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": "u", "resourceVersion": "3"},
            "dryRun": ["All"],
        }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.get(CONFIG_MAP, "", "t"), "name of the object is empty"),
        (lambda c: c.get(CONFIG_MAP, "a"), "namespace is empty"),
        (lambda c: c.get(CONFIG_MAP, "..", "t"), "not a valid name"),
        (lambda c: c.get(CONFIG_MAP, "a/status", "t"), "not a valid name"),
        (lambda c: c.create(CONFIG_MAP, {"metadata": {"name": "a"}}), "namespace is empty"),
        (lambda c: c.delete(CONFIG_MAP, "", "t", propagation_policy="Background"), "name of the object"),
        (lambda c: c.delete_collection(CONFIG_MAP, propagation_policy="Background"), "one namespace"),
        (lambda c: c.patch(CONFIG_MAP, "a", {}, "t", patch_type="json"), "list of operations"),
        (lambda c: c.patch(CONFIG_MAP, "a", [], "t"), "list of operations"),
        (lambda c: c.patch(CONFIG_MAP, "a", {}, "t", patch_type="apply"), "field_manager"),
        (lambda c: c.patch(CONFIG_MAP, "a", {}, "t", force=True), "force"),
        (lambda c: c.create_subresource(SERVICE_ACCOUNT, "a", "", {}, "t"), "subresource is empty"),
    ],
)
def test_wrong_arguments_send_nothing(call: Any, message: str) -> None:
    with ScriptedServer(lambda request, reply: reply.send(200, {})) as server, server.client() as client:
        with pytest.raises(ValueError, match=message):
            call(client)
        assert server.requests == []


def test_names_are_quoted() -> None:
    with ScriptedServer(lambda request, reply: reply.send(200, {})) as server, server.client() as client:
        client.get(CLUSTER_ROLE, "system:a%?b")
        assert server.requests[0].target.endswith("/clusterroles/system%3Aa%25%3Fb")


@pytest.mark.requirement("G1")
def test_unknown_fields_survive_a_round_trip() -> None:
    strange = {"metadata": {"name": "d", "namespace": "t"}, "future": {"a": [1, 2.5, None, True, 10**18]}}

    def script(request: Received, reply: Reply) -> None:
        reply.send(200, request.body if request.method == "PUT" else strange)

    with ScriptedServer(script) as server, server.client() as client:
        started = time.monotonic()
        found = client.get(DEPLOYMENT, "d", "t")
        assert client.update(DEPLOYMENT, found)["future"] == strange["future"]
        assert time.monotonic() - started < 25
