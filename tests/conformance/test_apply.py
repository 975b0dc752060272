"""Server-side apply and the owners of fields."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import cause, config_map, failed
from tests.conformance.target import APPLY, Answer, Case
from tests.conformance.versions import RESULTS

pytestmark = pytest.mark.requirement("AS14")


def configuration(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return body | ({"data": data} if data is not None else {})


def thing(name: str, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    metadata = more.pop("metadata", {})
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name, **metadata}, **more}
    return body | ({"spec": spec} if spec is not None else {})


def owners(answer: Answer) -> dict[tuple[str, str], Any]:
    """Fields by manager and operation; with the subresource, where the server tells it."""
    found = {}
    for entry in answer.metadata.get("managedFields", []):
        manager = entry["manager"] + (f"/{entry['subresource']}" if entry.get("subresource") else "")
        found[manager, entry["operation"]] = entry["fieldsV1"]
    return found


def conflict(owner: str, field: str) -> dict[str, str]:
    return {"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": field}


@pytest.fixture(autouse=True)
def _owners_are_compared(k: Case) -> None:
    k.keep_managed_fields = True


def test_creates(k: Case) -> None:
    answer = k.apply(k.path("configmaps", "a"), configuration("a", {"x": "1"}, labels={"l": "1"}), "m1")
    assert answer.code == 201
    assert answer.body["data"] == {"x": "1"}
    assert owners(answer) == {
        ("m1", "Apply"): {"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}
    }
    entry = answer.metadata["managedFields"][0]
    assert entry["apiVersion"] == "v1"
    assert entry["fieldsType"] == "FieldsV1"
    assert entry["time"] == answer.metadata["creationTimestamp"]


def test_again_changes_nothing(k: Case) -> None:
    path = k.path("configmaps", "a")
    first = k.apply(path, configuration("a", {"x": "1"}), "m1")
    answer = k.apply(path, configuration("a", {"x": "1"}), "m1")
    assert answer.code == 200
    assert answer.body == first.body


def test_yaml(k: Case) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: '1'\n"
    answer = k.patch(k.path("configmaps", "a") + "?fieldManager=m1", body, APPLY)
    assert answer.code == 201
    assert answer.body["data"] == {"x": "1"}


def test_conflict(k: Case) -> None:
    path = k.path("configmaps", "a")
    first = k.apply(path, configuration("a", {"x": "1"}), "m1")
    answer = k.apply(path, configuration("a", {"x": "2"}), "m2")
    text = 'Apply failed with 1 conflict: conflict with "m1": .data.x'
    failed(answer, 409, "Conflict", text, {"causes": [conflict('"m1"', ".data.x")]})
    assert k.get(path).body == first.body


def test_several_conflicts(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.apply(path, configuration("a", {"x": "1", "y": "1"}), "m1")
    k.apply(path, configuration("a", {"z": "1"}), "m0")
    answer = k.apply(path, configuration("a", {"x": "2", "y": "2", "z": "2"}), "m2")
    text = (
        'Apply failed with 3 conflicts: conflicts with "m0":\n- .data.z\n'
        'conflicts with "m1":\n- .data.x\n- .data.y'
    )
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.message == text
    assert {each["field"] for each in answer.causes} == {".data.x", ".data.y", ".data.z"}


def test_force_takes_over(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.apply(path, configuration("a", {"x": "1", "y": "1"}), "m1")
    answer = k.apply(path, configuration("a", {"x": "2"}), "m2", force=True)
    assert answer.code == 200
    assert answer.body["data"] == {"x": "2", "y": "1"}
    assert owners(answer) == {
        ("m1", "Apply"): {"f:data": {"f:y": {}}},
        ("m2", "Apply"): {"f:data": {"f:x": {}}},
    }


def test_the_same_value_is_owned_together(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.apply(path, configuration("a", {"x": "1"}), "m1")
    answer = k.apply(path, configuration("a", {"x": "1"}), "m2")
    assert answer.code == 200
    assert owners(answer) == {
        ("m1", "Apply"): {"f:data": {"f:x": {}}},
        ("m2", "Apply"): {"f:data": {"f:x": {}}},
    }
    kept = k.apply(path, configuration("a"), "m1")
    assert kept.body["data"] == {"x": "1"}
    gone = k.apply(path, configuration("a"), "m2")
    assert "data" not in gone.body


def test_a_field_left_out_is_removed(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.apply(path, configuration("a", {"x": "1", "y": "2"}, labels={"l": "1", "m": "1"}), "m1")
    answer = k.apply(path, configuration("a", {"y": "2"}, labels={"m": "1"}), "m1")
    assert answer.code == 200
    assert answer.body["data"] == {"y": "2"}
    assert answer.metadata["labels"] == {"m": "1"}


def test_a_field_of_an_updater_stays(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.post(k.path("configmaps") + "?fieldManager=maker", config_map("a", {"x": "1"}))
    k.apply(path, configuration("a", {"x": "1", "y": "2"}), "m1")
    answer = k.apply(path, configuration("a", {"y": "2"}), "m1")
    assert answer.body["data"] == {"x": "1", "y": "2"}


def test_conflict_with_an_updater(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.post(k.path("configmaps") + "?fieldManager=maker", config_map("a", {"x": "1"}))
    answer = k.apply(path, configuration("a", {"x": "2"}), "m1")
    text = 'Apply failed with 1 conflict: conflict with "maker" using v1: .data.x'
    failed(answer, 409, "Conflict", text, {"causes": [conflict('"maker" using v1', ".data.x")]})


def test_an_update_takes_over(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.apply(path, configuration("a", {"x": "1", "y": "1"}), "m1")
    answer = k.patch(path + "?fieldManager=hand", {"data": {"x": "2", "n": "1"}})
    assert owners(answer) == {
        ("m1", "Apply"): {"f:data": {"f:y": {}}},
        ("hand", "Update"): {"f:data": {"f:n": {}, "f:x": {}}},
    }


def test_an_update_is_owned_by_the_agent(k: Case) -> None:
    answer = k.post(k.path("configmaps"), config_map("a", {"x": "1"}, labels={"l": "1"}))
    assert owners(answer) == {
        ("conformance", "Update"): {
            "f:data": {".": {}, "f:x": {}},
            "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
        }
    }


def test_an_update_without_effect_owns_nothing(k: Case) -> None:
    path = k.path("configmaps", "a")
    first = k.post(k.path("configmaps") + "?fieldManager=maker", config_map("a", {"x": "1"}))
    answer = k.patch(path + "?fieldManager=hand", {"data": {"x": "1"}})
    assert answer.body == first.body


def test_a_removed_field_has_no_owner(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.apply(path, configuration("a", {"x": "1", "y": "1"}), "m1")
    answer = k.patch(path + "?fieldManager=hand", {"data": {"x": None}})
    assert owners(answer) == {("m1", "Apply"): {"f:data": {"f:y": {}}}}


def test_owners_can_be_reset(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.apply(path, configuration("a", {"x": "1"}), "m1")
    body = config_map("a", {"x": "2"}, managedFields=[{}])
    cleared = k.put(path, body)
    assert "managedFields" not in cleared.metadata
    untracked = k.patch(path, {"data": {"x": "3"}})
    assert "managedFields" not in untracked.metadata
    answer = k.apply(path, configuration("a", {"x": "4"}), "m1")
    text = 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.x'
    causes = [conflict('"before-first-apply" using v1', ".data.x")]
    failed(answer, 409, "Conflict", text, {"causes": causes})


def test_owners_survive_a_put_without_them(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.apply(path, configuration("a", {"x": "1", "y": "1"}), "m1")
    answer = k.put(path + "?fieldManager=hand", config_map("a", {"x": "1", "y": "2"}))
    assert owners(answer) == {
        ("m1", "Apply"): {"f:data": {"f:x": {}}},
        ("hand", "Update"): {"f:data": {"f:y": {}}},
    }


def test_owner_references_by_uid(k: Case) -> None:
    path = k.path("configmaps", "a")
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": n, "uid": n} for n in ("u1", "u2")]
    guard = {"finalizers": ["example.com/guard"]}
    k.apply(path, configuration("a", ownerReferences=references[:1], **guard), "m1", query="dryRun=All")
    answer = k.apply(path, configuration("a", **guard), "m1")
    assert answer.code == 201
    both = k.apply(path, configuration("a", ownerReferences=references[1:]), "m2", query="dryRun=All")
    assert both.metadata["ownerReferences"] == references[1:]


def test_finalizers_are_a_set(k: Case) -> None:
    path = k.path("configmaps", "a")
    k.apply(path, configuration("a", finalizers=["example.com/a"]), "m1")
    answer = k.apply(path, configuration("a", finalizers=["example.com/b"]), "m2")
    assert answer.code == 200
    assert answer.metadata["finalizers"] == ["example.com/a", "example.com/b"]
    removed = k.apply(path, configuration("a"), "m1")
    assert removed.metadata["finalizers"] == ["example.com/b"]


def test_no_manager(k: Case) -> None:
    answer = k.patch(k.path("configmaps", "a"), configuration("a"), APPLY)
    text = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    causes = [cause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")]
    failed(answer, 422, "Invalid", text, {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": causes})


def test_manager_that_is_too_long(k: Case) -> None:
    answer = k.apply(k.path("configmaps", "a"), configuration("a"), "m" * 129)
    text = RESULTS["apply/long-manager"][k.server.version]
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes == [cause("fieldManager", text, "FieldValueTooLong")]


def test_managed_fields_given(k: Case) -> None:
    body = configuration("a", managedFields=[{"manager": "x"}])
    answer = k.apply(k.path("configmaps", "a"), body, "m1")
    failed(answer, 400, "BadRequest", "metadata.managedFields must be nil")


def test_force_without_apply(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.patch(k.path("configmaps", "a") + "?force=true", {"data": {}})
    text = "Forbidden: may not be specified for non-apply patch"
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes == [cause("force", text, "FieldValueForbidden")]


def test_stale_version(k: Case) -> None:
    path = k.path("configmaps", "a")
    first = k.apply(path, configuration("a", {"x": "1"}), "m1")
    k.apply(path, configuration("a", {"x": "2"}), "m1")
    version = first.metadata["resourceVersion"]
    answer = k.apply(path, configuration("a", {"x": "3"}, resourceVersion=version), "m1")
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.message.endswith("please apply your changes to the latest version and try again")


def test_another_name(k: Case) -> None:
    answer = k.apply(k.path("configmaps", "a"), configuration("b"), "m1")
    text = "the name of the object (b) does not match the name on the URL (a)"
    failed(answer, 400, "BadRequest", text)


def test_another_namespace(k: Case) -> None:
    answer = k.apply(k.path("configmaps", "a"), configuration("a", namespace="other"), "m1")
    text = f"the namespace of the object (other) does not match the namespace on the request ({k.namespace})"
    failed(answer, 400, "BadRequest", text)


def test_another_version(k: Case) -> None:
    answer = k.apply(k.path("configmaps", "a"), {**configuration("a"), "apiVersion": "v2"}, "m1")
    text = "Incorrect version specified in apply patch. Specified patch version: v2, expected: v1"
    failed(answer, 400, "BadRequest", text)


def test_unknown_field(k: Case) -> None:
    answer = k.apply(k.path("configmaps", "a"), {**configuration("a"), "dota": {}}, "m1")
    assert answer.code == 500
    assert answer.message.endswith(".dota: field not declared in schema")


def test_dry_run(k: Case) -> None:
    answer = k.apply(k.path("configmaps", "a"), configuration("a", {"x": "1"}), "m1", query="dryRun=All")
    assert answer.code == 201
    assert k.get(k.path("configmaps", "a")).code == 404


def test_job_template_merges_by_key(k: Case) -> None:
    path = k.path("deployments.apps", "a")

    def body(*containers: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "a"},
            "spec": {"template": {"spec": {"containers": list(containers)}}},
        }

    whole = body({"name": "c", "image": "one", "env": [{"name": "A", "value": "1"}]})
    whole["spec"] |= {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}}
    whole["spec"]["template"]["metadata"] = {"labels": {"app": "a"}}
    assert k.apply(path, whole, "m1", record=False).code == 201
    answer = k.apply(path, body({"name": "c", "env": [{"name": "B", "value": "2"}]}), "m2", record=False)
    assert answer.code == 200
    [container] = answer.body["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "one"
    assert container["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    env = {'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}}}
    item = {'k:{"name":"c"}': {".": {}, "f:env": env, "f:name": {}}}
    assert owners(answer)["m2", "Apply"] == {"f:spec": {"f:template": {"f:spec": {"f:containers": item}}}}


@pytest.mark.usefixtures("custom_resources")
class TestCustomResources:
    """Applying custom resources, by the topology of their schema."""

    def test_lists_by_type(self, k: Case) -> None:
        path = k.path(f"widgets.{GROUP}", "a")
        spec = {"tags": ["a"], "ports": [{"name": "x", "port": 1}], "plain": ["p"], "whole": {"x": "1"}}
        created = k.apply(path, thing("a", spec), "m1")
        assert created.code == 201
        more = {"tags": ["b"], "ports": [{"name": "y", "port": 2}]}
        answer = k.apply(path, thing("a", more), "m2")
        assert answer.code == 200
        assert answer.body["spec"] == {
            "size": 1,
            "tags": ["a", "b"],
            "ports": [{"name": "x", "port": 1}, {"name": "y", "port": 2}],
            "plain": ["p"],
            "whole": {"x": "1"},
        }
        assert owners(answer)["m2", "Apply"] == {
            "f:spec": {
                "f:ports": {'k:{"name":"y"}': {".": {}, "f:name": {}, "f:port": {}}},
                "f:tags": {'v:"b"': {}},
            }
        }
        removed = k.apply(path, thing("a", {}), "m1")
        assert removed.body["spec"] == {"size": 1, "tags": ["b"], "ports": [{"name": "y", "port": 2}]}

    def test_atomic_parts_conflict_as_a_whole(self, k: Case) -> None:
        path = k.path(f"widgets.{GROUP}", "a")
        k.apply(path, thing("a", {"plain": ["p"], "whole": {"x": "1"}}), "m1")
        answer = k.apply(path, thing("a", {"plain": ["q"], "whole": {"x": "2"}}), "m2")
        assert answer.code == 409
        assert {each["field"] for each in answer.causes} == {".spec.plain", ".spec.whole"}

    def test_conflict_inside_a_keyed_list(self, k: Case) -> None:
        path = k.path(f"widgets.{GROUP}", "a")
        k.apply(path, thing("a", {"ports": [{"name": "x", "port": 1}]}), "m1")
        answer = k.apply(path, thing("a", {"ports": [{"name": "x", "port": 2}]}), "m2")
        text = 'Apply failed with 1 conflict: conflict with "m1": .spec.ports[name="x"].port'
        failed(
            answer,
            409,
            "Conflict",
            text,
            {"causes": [conflict('"m1"', '.spec.ports[name="x"].port')]},
        )

    def test_result_is_validated(self, k: Case) -> None:
        answer = k.apply(k.path(f"widgets.{GROUP}", "a"), thing("a", {"size": 11}), "m1")
        assert (answer.code, answer.reason) == (422, "Invalid")
        text = "Invalid value: 11: spec.size in body should be less than or equal to 10"
        assert answer.causes == [cause("spec.size", text)]

    def test_wrong_type(self, k: Case) -> None:
        answer = k.apply(k.path(f"widgets.{GROUP}", "a"), thing("a", {"options": "x"}), "m1")
        assert answer.code == 500
        assert ".spec.options: expected map, got " in answer.message

    def test_repeated_key(self, k: Case) -> None:
        ports = [{"name": "x"}, {"name": "x"}]
        answer = k.apply(k.path(f"widgets.{GROUP}", "a"), thing("a", {"ports": ports}), "m1")
        assert answer.code == 500
        assert '.spec.ports: duplicate entries for key [name="x"]' in answer.message

    def test_item_without_key(self, k: Case) -> None:
        answer = k.apply(k.path(f"widgets.{GROUP}", "a"), thing("a", {"ports": [{"port": 1}]}), "m1")
        assert answer.code == 500
        text = ".spec.ports: element 0: associative list with keys has an element that omits key"
        assert text in answer.message

    def test_status_has_its_own_owners(self, k: Case) -> None:
        path = k.path(f"widgets.{GROUP}", "a")
        k.apply(path, thing("a", {"size": 2}), "m1")
        answer = k.apply(f"{path}/status", thing("a", status={"phase": "Ready"}), "m1", record=False)
        assert answer.code == 200
        assert answer.body["status"] == {"phase": "Ready"}
        again = k.apply(path, thing("a", {"size": 2}), "m1", record=False)
        assert again.body["status"] == {"phase": "Ready"}
        assert set(owners(again)) == set(RESULTS["apply/status-owners"][k.server.version])

    def test_status_of_an_absent_object(self, k: Case) -> None:
        answer = k.apply(k.path(f"widgets.{GROUP}", "a") + "/status", thing("a", status={}), "m1")
        assert (answer.code, answer.reason) == (404, "NotFound")

    def test_default_is_not_owned(self, k: Case) -> None:
        answer = k.apply(k.path(f"widgets.{GROUP}", "a"), thing("a", {"color": "red"}), "m1")
        assert answer.body["spec"] == {"color": "red", "size": 1}
        assert owners(answer) == {("m1", "Apply"): {"f:spec": {"f:color": {}}}}
