"""Writes of the embedded API server: create, update, patches, apply, versions, generations."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from tests.integration.raw_http import APPLY, JSON, STRATEGIC, Raw
from tests.integration.widgets import DEFINITION, RESOURCE, widget

from captf_runtime.testing.apiserver import ApiServer

CONFIG_MAPS = "/api/v1/namespaces/t/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/t/leases"
DEPLOYMENTS = "/apis/apps/v1/namespaces/t/deployments"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=[DEFINITION]) as running:
        Raw(running).create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        yield running


@pytest.fixture
def raw(server: ApiServer) -> Raw:
    return Raw(server)


@pytest.fixture
def name() -> str:
    return f"o{next(_numbers)}"


@pytest.mark.requirement("AS6")
def test_every_change_takes_the_next_number_of_one_counter(raw: Raw, name: str) -> None:
    first = raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    second = raw.create(RESOURCE, widget(name))
    third = raw.patch(f"{CONFIG_MAPS}/{name}", {"data": {"a": "b"}})
    numbers = [int(answer.version) for answer in (first, second, third)]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


@pytest.mark.requirement("AS6")
def test_a_write_that_changes_nothing_keeps_the_version_and_emits_nothing(raw: Raw, name: str) -> None:
    before = raw.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"a": "b"}})
    same = raw.patch(f"{CONFIG_MAPS}/{name}", {"data": {"a": "b"}})
    again = raw("PUT", f"{CONFIG_MAPS}/{name}", same.json)
    assert same.version == again.version == before.version
    events = raw.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion={before.version}")
    assert list(events) == []


@pytest.mark.requirement("AS7")
def test_create_sets_what_belongs_to_the_server(raw: Raw, name: str) -> None:
    sent = widget(name)
    sent["metadata"] |= {
        "uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z", "selfLink": "x", "generation": 7,
        "deletionTimestamp": "2020-01-01T00:00:00Z",
    }  # fmt: skip
    answer = raw.create(RESOURCE, sent)
    metadata = answer["metadata"]
    assert answer.code == 201
    assert metadata["uid"] != "mine"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["creationTimestamp"] != "2020-01-01T00:00:00Z"
    assert metadata["generation"] == 1
    assert not {"selfLink", "deletionTimestamp"} & metadata.keys()


@pytest.mark.requirement("AS7")
def test_create_with_a_version_is_an_error_of_the_server(raw: Raw, name: str) -> None:
    answer = raw.create(CONFIG_MAPS, {"metadata": {"name": name, "resourceVersion": "5"}})
    assert (answer.code, answer.reason) == (500, "")
    assert answer.message == "resourceVersion should not be set on objects to be created"


@pytest.mark.requirement("AS7")
def test_duplicates(raw: Raw, name: str) -> None:
    raw.create(CONFIG_MAPS, {"metadata": {"name": name, "finalizers": ["example.io/hold"]}})
    answer = raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.message == f'configmaps "{name}" already exists'
    assert answer["details"] == {"name": name, "kind": "configmaps"}
    raw.delete(f"{CONFIG_MAPS}/{name}")
    ending = raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    assert ending.message == f'object is being deleted: configmaps "{name}" already exists'


@pytest.mark.requirement("AS8")
def test_generate_name(raw: Raw) -> None:
    answer = raw.create(CONFIG_MAPS, {"metadata": {"generateName": "g" * 70}})
    assert re.fullmatch("g{58}[bcdfghjklmnpqrstvwxz2456789]{5}", answer["metadata"]["name"])
    nameless = raw.create(CONFIG_MAPS, {})
    assert (nameless.code, nameless.reason) == (422, "Invalid")
    assert nameless.causes() == [
        ("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")
    ]


@pytest.mark.requirement("AS9")
def test_namespaces_of_requests(raw: Raw, name: str) -> None:
    absent = raw.create("/api/v1/namespaces/nope/configmaps", {"metadata": {"name": name}})
    assert (absent.code, absent.message) == (404, 'namespaces "nope" not found')
    assert raw.get("/api/v1/namespaces/nope/configmaps")["items"] == []
    other = raw.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "other"}})
    assert other.code == 400
    assert other.message == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )
    raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    renamed = raw("PUT", f"{CONFIG_MAPS}/{name}", {"metadata": {"name": "else"}})
    assert (renamed.code, renamed.reason) == (400, "BadRequest")


@pytest.mark.requirement("AS10")
def test_generation_counts_changes_of_the_spec_and_the_beginning_of_the_end(raw: Raw, name: str) -> None:
    path = f"{RESOURCE}/{name}"
    raw.create(RESOURCE, widget(name))
    assert raw.patch(path, {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1
    assert raw.patch(f"{path}/status", {"status": {"phase": "x"}})["metadata"]["generation"] == 1
    assert (
        raw.patch(path, {"spec": {"size": 2}, "metadata": {"generation": 99}})["metadata"]["generation"] == 2
    )
    raw.patch(path, {"metadata": {"finalizers": ["example.io/hold"]}})
    assert raw.delete(path)["metadata"]["generation"] == 3
    assert raw.delete(path)["metadata"]["generation"] == 3


@pytest.mark.requirement("AS11")
def test_stale_and_missing_versions(raw: Raw, name: str) -> None:
    raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    raw.create(RESOURCE, widget(name))
    raw.create(LEASES, {"metadata": {"name": name}})
    stale = raw("PUT", f"{CONFIG_MAPS}/{name}", {"metadata": {"name": name, "resourceVersion": "1"}})
    assert (stale.code, stale.reason) == (409, "Conflict")
    assert stale.message == (
        f'Operation cannot be fulfilled on configmaps "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert raw("PUT", f"{CONFIG_MAPS}/{name}", {"metadata": {"name": name}, "data": {"a": "b"}}).code == 200
    for path, body in ((RESOURCE, widget(name, 2)), (LEASES, {"metadata": {"name": name}})):
        answer = raw("PUT", f"{path}/{name}", body)
        assert answer.code == 422
        assert answer.message.endswith(
            "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
        )


@pytest.mark.requirement("AS11")
def test_another_uid_and_a_put_that_creates(raw: Raw, name: str) -> None:
    raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    other = raw("PUT", f"{CONFIG_MAPS}/{name}", {"metadata": {"name": name, "uid": "zz"}})
    assert other.code == 409
    assert "Precondition failed: UID in precondition: zz" in other.message
    assert raw("PUT", f"{LEASES}/{name}", {"metadata": {"name": name}}).code == 201
    assert raw("PUT", f"{CONFIG_MAPS}/absent", {"metadata": {"name": "absent"}}).code == 404


@pytest.mark.requirement("AS12")
def test_status_and_the_rest_do_not_touch_each_other(raw: Raw, name: str) -> None:
    path = f"{RESOURCE}/{name}"
    created = raw.create(RESOURCE, widget(name) | {"status": {"phase": "early"}})
    assert "status" not in created.json
    body = created.json
    body["status"] = {"phase": "good"}
    body["spec"]["size"] = 9
    body["metadata"] |= {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.io/x"]}
    after = raw("PUT", f"{path}/status", body)
    assert after["status"] == {"phase": "good"}
    assert after["spec"]["size"] == 1
    assert not {"labels", "annotations", "finalizers"} & after["metadata"].keys()
    main = raw.patch(path, {"status": {"phase": "bad"}, "spec": {"size": 4}})
    assert (main["status"], main["spec"]["size"]) == ({"phase": "good"}, 4)


@pytest.mark.requirement("AS13")
def test_merge_patch_deletes_with_null_and_locks_with_a_version(raw: Raw, name: str) -> None:
    path = f"{CONFIG_MAPS}/{name}"
    raw.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"a": "1", "b": "2"}})
    after = raw.patch(path, {"data": {"a": None, "c": "3"}})
    assert after["data"] == {"b": "2", "c": "3"}
    locked = raw.patch(path, {"metadata": {"resourceVersion": "1"}, "data": {"d": "4"}})
    assert (locked.code, locked.reason) == (409, "Conflict")
    assert raw.patch(path, {"metadata": {"resourceVersion": after.version}, "data": {"d": "4"}}).code == 200


@pytest.mark.requirement("AS13")
def test_json_patch(raw: Raw, name: str) -> None:
    path = f"{CONFIG_MAPS}/{name}"
    raw.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"a": "1"}})
    done = raw.patch(
        path,
        [
            {"op": "test", "path": "/data/a", "value": "1"},
            {"op": "add", "path": "/metadata/labels", "value": {}},
            {"op": "add", "path": "/metadata/labels/example.io~1c", "value": "2"},
            {"op": "copy", "from": "/data/a", "path": "/data/d"},
            {"op": "remove", "path": "/data/a"},
        ],
        JSON,
    )
    assert done["data"] == {"d": "1"}
    assert done["metadata"]["labels"] == {"example.io/c": "2"}
    for operations in (
        [{"op": "test", "path": "/data/a", "value": "other"}],
        [{"op": "remove", "path": "/data/absent"}],
        [{"op": "replace", "path": "/data/absent", "value": "x"}],
    ):
        failed = raw.patch(path, operations, JSON)
        assert (failed.code, failed.reason, failed["details"]) == (422, "Invalid", {})
        assert failed.message == "the server rejected our request due to an error in our request"
    assert raw.patch(path, {"op": "remove"}, JSON).code == 400
    assert raw.patch(path, [{"op": "test", "path": "/data", "value": 1}] * 10_001, JSON).code == 413


@pytest.mark.requirement("AS13")
def test_strategic_merge_patch_knows_the_keys_of_lists(raw: Raw, name: str) -> None:
    path = f"{DEPLOYMENTS}/{name}"
    container = {
        "name": "a",
        "image": "a",
        "env": [{"name": "X", "value": "1"}],
        "ports": [{"containerPort": 80}],
    }
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
    }
    raw.create(DEPLOYMENTS, {"metadata": {"name": name, "finalizers": ["example.io/a"]}, "spec": spec})

    def patch(containers: list[object], **metadata: object) -> dict[str, object]:
        body = {"metadata": metadata, "spec": {"template": {"spec": {"containers": containers}}}}
        return raw.patch(path, body, STRATEGIC).json  # type: ignore[no-any-return]

    found = patch(
        [
            {"name": "a", "env": [{"name": "Y", "value": "2"}], "ports": [{"containerPort": 81}]},
            {"name": "b", "image": "b"},
        ],
        finalizers=["example.io/b"],
    )
    containers = {c["name"]: c for c in found["spec"]["template"]["spec"]["containers"]}  # type: ignore[index]
    assert containers.keys() == {"a", "b"}
    assert {e["name"] for e in containers["a"]["env"]} == {"X", "Y"}
    assert {p["containerPort"] for p in containers["a"]["ports"]} == {80, 81}
    assert sorted(found["metadata"]["finalizers"]) == ["example.io/a", "example.io/b"]  # type: ignore[index]
    found = patch(
        [{"name": "b", "$patch": "delete"}], **{"$deleteFromPrimitiveList/finalizers": ["example.io/a"]}
    )
    assert [c["name"] for c in found["spec"]["template"]["spec"]["containers"]] == ["a"]  # type: ignore[index]
    assert found["metadata"]["finalizers"] == ["example.io/b"]  # type: ignore[index]


@pytest.mark.requirement("AS13")
def test_patches_of_the_wrong_type_or_place(raw: Raw, name: str) -> None:
    raw.create(RESOURCE, widget(name))
    assert raw.patch(f"{RESOURCE}/{name}", {}, STRATEGIC).code == 415
    assert raw.patch(f"{RESOURCE}/{name}", {}, "application/json").code == 415
    collection = raw.patch(CONFIG_MAPS, {})
    assert (collection.code, collection.reason) == (405, "MethodNotAllowed")


def applied(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.mark.requirement("AS14")
def test_apply_creates_owns_conflicts_and_forces(raw: Raw, name: str) -> None:
    path = f"{CONFIG_MAPS}/{name}"
    assert raw.patch(f"{path}?fieldManager=m1", applied(name, x="1", y="1"), APPLY).code == 201
    assert raw.patch(f"{path}?fieldManager=m1", applied(name, x="1", y="1"), APPLY).code == 200
    conflict = raw.patch(f"{path}?fieldManager=m2", applied(name, x="2"), APPLY)
    assert conflict.code == 409
    assert conflict.message == 'Apply failed with 1 conflict: conflict with "m1": .data.x'
    assert [cause[0] for cause in conflict.causes()] == ["FieldManagerConflict"]
    assert raw.patch(f"{path}?fieldManager=m2&force=true", applied(name, x="2"), APPLY)["data"]["x"] == "2"
    # m1 gives up y, which nobody else owns, and x, which m2 took.
    assert raw.patch(f"{path}?fieldManager=m1", applied(name), APPLY)["data"] == {"x": "2"}


@pytest.mark.requirement("AS14")
def test_apply_refusals(raw: Raw, name: str) -> None:
    path = f"{CONFIG_MAPS}/{name}"
    nobody = raw.patch(path, applied(name), APPLY)
    assert nobody.code == 422
    assert nobody.message.endswith("fieldManager: Required value: is required for apply patch")
    body = applied(name)
    body["metadata"] = {"name": name, "managedFields": [{"manager": "m"}]}
    given = raw.patch(f"{path}?fieldManager=m1", body, APPLY)
    assert (given.code, given.message) == (400, "metadata.managedFields must be nil")
    raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    assert raw.patch(f"{path}?force=true", {"data": {}}).code == 422


@pytest.mark.requirement("AS14")
def test_other_writes_own_as_updates_under_the_agent_or_the_named_manager(raw: Raw, name: str) -> None:
    raw.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"a": "1"}})
    raw.patch(f"{CONFIG_MAPS}/{name}?fieldManager=someone", {"data": {"b": "2"}})
    fields = raw.get(f"{CONFIG_MAPS}/{name}")["metadata"]["managedFields"]
    owners = {entry["manager"]: (entry["operation"], entry["fieldsV1"]) for entry in fields}
    assert owners["raw"][0] == owners["someone"][0] == "Update"
    assert "f:b" in owners["someone"][1]["f:data"]


@pytest.mark.requirement("AS14")
def test_status_is_applied_and_owned_apart(raw: Raw, name: str) -> None:
    raw.create(RESOURCE, widget(name))
    body = {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "status": {"phase": "x"},
    }
    answer = raw.patch(f"{RESOURCE}/{name}/status?fieldManager=m", body, APPLY)
    assert answer["status"] == {"phase": "x"}
    owner = next(entry for entry in answer["metadata"]["managedFields"] if entry["manager"] == "m")
    assert owner["subresource"] == "status"
