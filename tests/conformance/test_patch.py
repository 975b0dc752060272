"""The four kinds of patches (apply has cases of its own)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import config_map, failed, not_found, widget
from tests.conformance.target import JSON_PATCH, MERGE, STRATEGIC, Case
from tests.conformance.versions import RESULTS

pytestmark = pytest.mark.requirement("AS13")

REJECTED = "the server rejected our request due to an error in our request"


def pod_template(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "one", "env": [{"name": "A", "value": "1"}]}]
    return {"spec": {"restartPolicy": "Never", "containers": containers, **spec}}


def deployment(name: str) -> dict[str, Any]:
    template = pod_template()
    template["spec"]["restartPolicy"] = "Always"
    template["metadata"] = {"labels": {"app": "a"}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template},
    }


def test_merge(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.post(k.path("configmaps"), config_map("a", {"a": "1", "b": "2"}, labels={"x": "y"}))
    answer = k.patch(path, {"data": {"a": None, "c": "3"}, "metadata": {"labels": None}})
    assert answer.code == 200
    assert answer.body["data"] == {"b": "2", "c": "3"}
    assert "labels" not in answer.metadata
    assert k.get(path).body == answer.body


def test_merge_replaces_lists(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=["example.com/a", "example.com/b"]))
    answer = k.patch(k.path("configmaps", "a"), {"metadata": {"finalizers": ["example.com/b"]}})
    assert answer.metadata["finalizers"] == ["example.com/b"]


def test_merge_without_effect(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    answer = k.patch(k.path("configmaps", "a"), {"data": {"a": "1"}})
    assert answer.code == 200
    assert answer.metadata["resourceVersion"] == first.metadata["resourceVersion"]


def test_merge_with_the_right_version(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    version = first.metadata["resourceVersion"]
    answer = k.patch(
        k.path("configmaps", "a"), {"metadata": {"resourceVersion": version}, "data": {"a": "2"}}
    )
    assert answer.code == 200
    assert answer.metadata["resourceVersion"] != version


def test_merge_with_a_stale_version(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    version = first.metadata["resourceVersion"]
    k.patch(k.path("configmaps", "a"), {"data": {"a": "2"}})
    answer = k.patch(
        k.path("configmaps", "a"), {"metadata": {"resourceVersion": version}, "data": {"a": "3"}}
    )
    text = (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your '
        "changes to the latest version and try again"
    )
    failed(answer, 409, "Conflict", text, {"name": "a", "kind": "configmaps"})
    assert k.get(k.path("configmaps", "a")).body["data"] == {"a": "2"}


def test_merge_of_a_custom_resource(k: Case, custom_resources: dict[str, str]) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a", {"color": "red", "options": {"a": "1", "b": "2"}}))
    answer = k.patch(f"{path}/a", {"spec": {"color": None, "options": {"a": None}}})
    assert answer.code == 200
    assert answer.body["spec"] == {"options": {"b": "2"}, "size": 1}


def test_merge_cannot_rename(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.patch(k.path("configmaps", "a"), {"metadata": {"name": "b"}})
    text = "the name of the object (b) does not match the name on the URL (a)"
    failed(answer, 400, "BadRequest", text)


def test_merge_that_is_no_object(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.patch(k.path("configmaps", "a"), b"[1]", MERGE, record=False)
    assert answer.code == RESULTS["patch/no-object"][k.server.version]


def test_merge_of_a_wrong_type(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.patch(k.path("configmaps", "a"), {"data": "x"}, record=False)
    assert answer.code in (400, 422)
    assert k.get(k.path("configmaps", "a")).body["data"] == {"a": "1"}


def test_absent(k: Case) -> None:
    not_found(k.patch(k.path("configmaps", "a"), {"data": {}}), "configmaps", "a")


def test_json_patch(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", {"a": "1", "b/c~d": "2"}))
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "9"},
        {"op": "add", "path": "/data/n", "value": "3"},
        {"op": "copy", "from": "/data/a", "path": "/data/copy"},
        {"op": "move", "from": "/data/n", "path": "/data/moved"},
        {"op": "remove", "path": "/data/b~1c~0d"},
    ]
    # The key with a slash is no valid key of a ConfigMap, so it goes in the same breath.
    answer = k.patch(k.path("configmaps", "a"), operations, JSON_PATCH)
    assert answer.code in (200, 404)


def test_json_patch_of_lists(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=["example.com/a", "example.com/c"]))
    operations = [
        {"op": "add", "path": "/metadata/finalizers/1", "value": "example.com/b"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/d"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    answer = k.patch(k.path("configmaps", "a"), operations, JSON_PATCH)
    assert answer.code == 200
    assert answer.metadata["finalizers"] == ["example.com/b", "example.com/c", "example.com/d"]


def test_json_patch_replaces_an_item(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=["example.com/a", "example.com/c"]))
    operations = [
        {"op": "test", "path": "/metadata/finalizers/1", "value": "example.com/c"},
        {"op": "replace", "path": "/metadata/finalizers/1", "value": "example.com/d"},
    ]
    answer = k.patch(k.path("configmaps", "a"), operations, JSON_PATCH)
    assert answer.metadata["finalizers"] == ["example.com/a", "example.com/d"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "replace", "path": "/data/none", "value": "2"},
        {"op": "remove", "path": "/data/none"},
        {"op": "add", "path": "/none/none", "value": "2"},
        {"op": "copy", "from": "/data/none", "path": "/data/x"},
        {"op": "move", "from": "/data/none", "path": "/data/x"},
    ],
    ids=["test", "replace", "remove", "add", "copy", "move"],
)
def test_json_patch_that_fails(k: Case, operation: dict[str, str]) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    operations = [{"op": "add", "path": "/data/z", "value": "1"}, operation]
    answer = k.patch(k.path("configmaps", "a"), operations, JSON_PATCH)
    if RESULTS.get(f"patch/json-{operation['op']}", {}).get(k.server.version) == 200:
        assert answer.code == 200
        return
    failed(answer, 422, "Invalid", REJECTED, {})
    assert k.get(k.path("configmaps", "a")).body == first.body


def test_json_patch_that_is_no_list(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.patch(k.path("configmaps", "a"), {"op": "remove", "path": "/data"}, JSON_PATCH)
    failed(answer, 400, "BadRequest", "json: cannot unmarshal object into Go value of type jsonpatch.Patch")


def test_json_patch_with_too_many_operations(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    operations = [{"op": "add", "path": "/data/z", "value": "1"}] * 10001
    answer = k.patch(k.path("configmaps", "a"), json.dumps(operations).encode(), JSON_PATCH)
    text = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    failed(answer, 413, "RequestEntityTooLarge", text)


def test_json_patch_of_a_custom_resource(k: Case, custom_resources: dict[str, str]) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a", {"plain": ["a", "b"]}))
    operations = [
        {"op": "test", "path": "/spec/plain/0", "value": "a"},
        {"op": "remove", "path": "/spec/plain/0"},
    ]
    answer = k.patch(f"{path}/a", operations, JSON_PATCH)
    assert answer.code == 200
    assert answer.body["spec"] == {"plain": ["b"], "size": 1}


def test_strategic_merges_by_key(k: Case) -> None:
    path = k.path("deployments.apps")
    k.post(path, deployment("a"), record=False)
    patch = {
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {"name": "c", "env": [{"name": "B", "value": "2"}]},
                        {"name": "d", "image": "two"},
                    ]
                }
            }
        }
    }
    answer = k.patch(f"{path}/a", patch, STRATEGIC, record=False)
    assert answer.code == 200
    containers = {each["name"]: each for each in answer.body["spec"]["template"]["spec"]["containers"]}
    assert list(containers) == ["d", "c"] or list(containers) == ["c", "d"]
    assert containers["c"]["image"] == "one"
    assert sorted(each["name"] for each in containers["c"]["env"]) == ["A", "B"]
    assert containers["d"]["image"] == "two"


def test_strategic_order_of_new_items(k: Case) -> None:
    path = k.path("deployments.apps")
    k.post(path, deployment("a"), record=False)
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "two"}]}}}}
    answer = k.patch(f"{path}/a", patch, STRATEGIC, record=False)
    names = [each["name"] for each in answer.body["spec"]["template"]["spec"]["containers"]]
    assert names == ["d", "c"]


def test_strategic_deletes_an_item(k: Case) -> None:
    path = k.path("deployments.apps")
    k.post(path, deployment("a"), record=False)
    containers = [{"name": "c", "$patch": "delete"}, {"name": "d", "image": "two"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    answer = k.patch(f"{path}/a", patch, STRATEGIC, record=False)
    assert answer.code == 200
    names = [each["name"] for each in answer.body["spec"]["template"]["spec"]["containers"]]
    assert names == ["d"]


def test_strategic_replaces_a_list(k: Case) -> None:
    path = k.path("deployments.apps")
    k.post(path, deployment("a"), record=False)
    containers = [{"$patch": "replace"}, {"name": "d", "image": "two"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    answer = k.patch(f"{path}/a", patch, STRATEGIC, record=False)
    assert answer.code == 200
    names = [each["name"] for each in answer.body["spec"]["template"]["spec"]["containers"]]
    assert names == ["d"]


def test_strategic_replaces_a_map(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", {"a": "1", "b": "2"}))
    answer = k.patch(k.path("configmaps", "a"), {"data": {"$patch": "replace", "c": "3"}}, STRATEGIC)
    assert answer.code == 200
    assert answer.body["data"] == {"c": "3"}


def test_strategic_of_finalizers(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=["example.com/a"]))
    path = k.path("configmaps", "a")
    added = k.patch(path, {"metadata": {"finalizers": ["example.com/b"]}}, STRATEGIC)
    assert sorted(added.metadata["finalizers"]) == ["example.com/a", "example.com/b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    removed = k.patch(path, patch, STRATEGIC)
    assert removed.code == 200
    assert removed.metadata["finalizers"] == ["example.com/b"]


def test_strategic_of_owner_references(k: Case) -> None:
    uid = k.post(k.path("configmaps"), config_map("o")).metadata["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid}
    k.post(k.path("configmaps"), config_map("a", ownerReferences=[owner]))
    path = k.path("configmaps", "a")
    patch = {"metadata": {"ownerReferences": [{"uid": uid, "controller": True}]}}
    answer = k.patch(path, patch, STRATEGIC)
    assert answer.code == 200
    assert answer.metadata["ownerReferences"] == [{**owner, "controller": True}]
    patch = {"metadata": {"ownerReferences": [{"uid": uid, "$patch": "delete"}]}}
    removed = k.patch(path, patch, STRATEGIC)
    assert removed.code == 200
    assert "ownerReferences" not in removed.metadata


def test_strategic_null_deletes(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", {"a": "1", "b": "2"}))
    answer = k.patch(k.path("configmaps", "a"), {"data": {"a": None}}, STRATEGIC)
    assert answer.body["data"] == {"b": "2"}


def test_strategic_of_a_custom_resource(k: Case, custom_resources: dict[str, str]) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a"))
    answer = k.patch(f"{path}/a", {"spec": {"size": 3}}, STRATEGIC)
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in answer.message


def test_plain_json_is_no_patch(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.patch(k.path("configmaps", "a"), {"data": {"a": "2"}}, "application/json")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
    assert k.get(k.path("configmaps", "a")).body["data"] == {"a": "1"}


def test_patch_of_a_collection(k: Case) -> None:
    answer = k.patch(k.path("configmaps"), {"data": {}})
    text = "the server does not allow this method on the requested resource"
    failed(answer, 405, "MethodNotAllowed", text, {})


def test_dry_run(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    answer = k.patch(k.path("configmaps", "a") + "?dryRun=All", {"data": {"a": "2"}})
    assert answer.code == 200
    assert answer.body["data"] == {"a": "2"}
    assert k.get(k.path("configmaps", "a")).body == first.body
