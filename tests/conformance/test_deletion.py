"""Deleting objects: finalizers, preconditions, collections, and garbage collection under every policy."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import cause, config_map, failed, not_found, refused, widget
from tests.conformance.target import JSON_PATCH, Answer, Case

FINALIZER = "example.com/guard"
NO_UID = "11111111-2222-4333-8444-555555555555"


def owner(answer: Answer, *, controller: bool | None = None, block: bool | None = None) -> dict[str, Any]:
    """A reference to an object."""
    reference = {
        "apiVersion": answer.body["apiVersion"],
        "kind": answer.body["kind"],
        "name": answer.metadata["name"],
        "uid": answer.metadata["uid"],
    }
    if controller is not None:
        reference["controller"] = controller
    if block is not None:
        reference["blockOwnerDeletion"] = block
    return reference


def gone(k: Case, name: str) -> None:
    k.eventually(lambda: k.peek(k.path("configmaps", name)).code == 404, f"{name} to be collected")


def known_to_the_collector(k: Case) -> None:
    """Wait until the collector has seen every ConfigMap written so far.

    The real one follows them by a watch and takes what it sees in order, so a later one that has no owner goes after
    the earlier ones are known. A dependent it does not know yet is neither orphaned nor waited for.
    """
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": NO_UID}
    k.post(k.path("configmaps"), config_map("probe", ownerReferences=[stranger]), record=False)
    gone(k, "probe")


@pytest.mark.requirement("AS19")
def test_without_finalizers(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    answer = k.delete(k.path("configmaps", "a"))
    assert answer.code == 200
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": first.metadata["uid"]},
    }
    not_found(k.get(k.path("configmaps", "a")), "configmaps", "a")


@pytest.mark.requirement("AS19")
@pytest.mark.usefixtures("custom_resources")
def test_custom_resource_without_finalizers(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    first = k.post(path, widget(GROUP, "a"))
    answer = k.delete(f"{path}/a")
    assert answer.code == 200
    details = {"name": "a", "group": GROUP, "kind": "widgets", "uid": first.metadata["uid"]}
    assert (answer.body["status"], answer.details) == ("Success", details)


@pytest.mark.requirement("AS19")
def test_absent(k: Case) -> None:
    not_found(k.delete(k.path("configmaps", "a")), "configmaps", "a")


@pytest.mark.requirement("AS19")
def test_with_a_finalizer(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a", finalizers=[FINALIZER]))
    answer = k.delete(k.path("configmaps", "a"))
    assert answer.code == 200
    assert answer.body["kind"] == "ConfigMap"
    assert answer.metadata["deletionTimestamp"]
    assert answer.metadata["deletionGracePeriodSeconds"] == 0
    assert answer.metadata["resourceVersion"] != first.metadata["resourceVersion"]
    assert k.get(k.path("configmaps", "a")).body == answer.body


@pytest.mark.requirement("AS19")
def test_again_changes_nothing(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=[FINALIZER]))
    first = k.delete(k.path("configmaps", "a"))
    answer = k.delete(k.path("configmaps", "a"))
    assert answer.code == 200
    assert answer.body == first.body


@pytest.mark.requirement("AS19")
def test_deletion_cannot_be_taken_back(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=[FINALIZER]))
    first = k.delete(k.path("configmaps", "a"))
    answer = k.patch(k.path("configmaps", "a"), {"metadata": {"deletionTimestamp": None}})
    assert answer.code == 200
    assert answer.metadata["deletionTimestamp"] == first.metadata["deletionTimestamp"]


@pytest.mark.requirement("AS19")
def test_no_new_finalizers(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=[FINALIZER]))
    k.delete(k.path("configmaps", "a"))
    answer = k.patch(k.path("configmaps", "a"), {"metadata": {"finalizers": [FINALIZER, "example.com/new"]}})
    text = (
        'Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"'
        'example.com/new"}'
    )
    refused(answer, "ConfigMap", "a", [cause("metadata.finalizers", text, "FieldValueForbidden")])
    assert k.get(k.path("configmaps", "a")).metadata["finalizers"] == [FINALIZER]


@pytest.mark.requirement("AS19")
def test_other_updates_pass(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=[FINALIZER]))
    k.delete(k.path("configmaps", "a"))
    answer = k.patch(k.path("configmaps", "a"), {"data": {"a": "2"}, "metadata": {"labels": {"x": "y"}}})
    assert answer.code == 200
    assert answer.body["data"] == {"a": "2"}


@pytest.mark.requirement("AS19")
def test_removing_the_last_finalizer(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=[FINALIZER]))
    first = k.delete(k.path("configmaps", "a"))
    answer = k.patch(k.path("configmaps", "a"), {"metadata": {"finalizers": None}})
    assert answer.code == 200
    assert answer.body["kind"] == "ConfigMap"
    assert "finalizers" not in answer.metadata
    assert answer.metadata["uid"] == first.metadata["uid"]
    not_found(k.get(k.path("configmaps", "a")), "configmaps", "a")


@pytest.mark.requirement("AS19")
def test_removing_one_of_two_finalizers(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=[FINALIZER, "example.com/other"]))
    k.delete(k.path("configmaps", "a"))
    operations = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    answer = k.patch(k.path("configmaps", "a"), operations, JSON_PATCH)
    assert answer.metadata["finalizers"] == ["example.com/other"]
    assert k.get(k.path("configmaps", "a")).code == 200


@pytest.mark.requirement("AS19")
@pytest.mark.usefixtures("custom_resources")
def test_finalizer_of_a_custom_resource(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a", finalizers=[FINALIZER]))
    k.delete(f"{path}/a")
    status = k.patch(f"{path}/a/status", {"status": {"phase": "Deleting"}})
    assert status.body["status"] == {"phase": "Deleting"}
    answer = k.patch(f"{path}/a", {"metadata": {"finalizers": []}})
    assert answer.code == 200
    not_found(k.get(f"{path}/a"), "widgets", "a", GROUP)


@pytest.mark.requirement("AS20")
def test_uid_precondition(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    other = NO_UID
    answer = k.delete(k.path("configmaps", "a"), {"preconditions": {"uid": other}})
    text = (
        f'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition ({other}) does not match the '
        f"UID in record ({first.metadata['uid']}). The object might have been deleted and then recreated"
    )
    failed(answer, 409, "Conflict", text, {"name": "a", "kind": "ConfigMap"})
    passed = k.delete(k.path("configmaps", "a"), {"preconditions": {"uid": first.metadata["uid"]}})
    assert passed.code == 200


@pytest.mark.requirement("AS20")
def test_version_precondition(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    version = first.metadata["resourceVersion"]
    k.patch(k.path("configmaps", "a"), {"data": {"a": "2"}})
    answer = k.delete(
        k.path("configmaps", "a"), {"preconditions": {"resourceVersion": version}}, record=False
    )
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.message.startswith(
        f'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition ({version}) does '
        "not match the ResourceVersion in record ("
    )
    assert answer.message.endswith("). The object might have been modified")
    assert k.get(k.path("configmaps", "a")).code == 200


@pytest.mark.requirement("AS20")
def test_unknown_policy(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.delete(k.path("configmaps", "a"), {"propagationPolicy": "Foo"})
    text = 'Unsupported value: "Foo": supported values: "Foreground", "Background", "Orphan", "nil"'
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes == [cause("propagationPolicy", text, "FieldValueNotSupported")]
    assert answer.details["kind"] == "DeleteOptions"


@pytest.mark.requirement("AS20")
def test_policy_with_orphan_dependents(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.delete(k.path("configmaps", "a"), {"propagationPolicy": "Orphan", "orphanDependents": True})
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert [each["field"] for each in answer.causes] == ["propagationPolicy"]
    assert k.get(k.path("configmaps", "a")).code == 200


@pytest.mark.requirement("AS20")
def test_policy_in_the_query(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=[FINALIZER]))
    answer = k.delete(k.path("configmaps", "a") + "?propagationPolicy=Foreground")
    assert answer.code == 200
    assert sorted(answer.metadata["finalizers"]) == [FINALIZER, "foregroundDeletion"]


@pytest.mark.requirement("AS17", "AS19")
def test_dry_run(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    answer = k.delete(k.path("configmaps", "a") + "?dryRun=All")
    assert answer.code == 200
    assert answer.body["status"] == "Success"
    assert k.get(k.path("configmaps", "a")).body == first.body


@pytest.mark.requirement("AS17", "AS19")
def test_dry_run_with_a_finalizer(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a", finalizers=[FINALIZER]))
    answer = k.delete(k.path("configmaps", "a"), {"dryRun": ["All"]})
    assert answer.code == 200
    assert k.get(k.path("configmaps", "a")).body == first.body


@pytest.mark.requirement("AS20")
def test_collection(k: Case) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        k.post(k.path("configmaps"), config_map(name, labels={"l": label}))
    answer = k.delete(k.path("configmaps") + "?labelSelector=l%3Dx")
    assert answer.code == 200
    assert answer.body["kind"] == "ConfigMapList"
    assert [each["metadata"]["name"] for each in answer.body["items"]] == ["a", "b"]
    left = k.get(k.path("configmaps") + "?labelSelector=l")
    assert [each["metadata"]["name"] for each in left.body["items"]] == ["c"]


@pytest.mark.requirement("AS20")
@pytest.mark.usefixtures("custom_resources")
def test_collection_of_custom_resources(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a"))
    k.post(path, widget(GROUP, "b", finalizers=[FINALIZER]))
    answer = k.delete(path)
    assert answer.code == 200
    assert answer.body["kind"] == "WidgetList"
    assert [each["metadata"]["name"] for each in answer.body["items"]] == ["a", "b"]
    left = k.get(path).body["items"]
    assert [each["metadata"]["name"] for each in left] == ["b"]
    assert left[0]["metadata"]["deletionTimestamp"]


@pytest.mark.requirement("AS20")
def test_collection_across_namespaces(k: Case) -> None:
    answer = k.delete(k.path("configmaps", namespace=None))
    text = "the server does not allow this method on the requested resource"
    failed(answer, 405, "MethodNotAllowed", text, {})


@pytest.mark.requirement("AS21")
def test_background_collects_dependents(k: Case) -> None:
    parent = k.post(k.path("configmaps"), config_map("parent"))
    k.post(k.path("configmaps"), config_map("child", ownerReferences=[owner(parent)]))
    answer = k.delete(k.path("configmaps", "parent"), {"propagationPolicy": "Background"})
    assert answer.code == 200
    assert answer.body["status"] == "Success"
    gone(k, "child")


@pytest.mark.requirement("AS21")
def test_background_is_the_default(k: Case) -> None:
    parent = k.post(k.path("configmaps"), config_map("parent"))
    k.post(k.path("configmaps"), config_map("child", ownerReferences=[owner(parent)]))
    k.delete(k.path("configmaps", "parent"))
    gone(k, "child")


@pytest.mark.requirement("AS21")
def test_grandchildren_go_too(k: Case) -> None:
    parent = k.post(k.path("configmaps"), config_map("parent"))
    child = k.post(k.path("configmaps"), config_map("child", ownerReferences=[owner(parent)]))
    k.post(k.path("configmaps"), config_map("grandchild", ownerReferences=[owner(child)]))
    k.delete(k.path("configmaps", "parent"))
    gone(k, "child")
    gone(k, "grandchild")


@pytest.mark.requirement("AS21")
def test_one_living_owner_is_enough(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("first"))
    second = k.post(k.path("configmaps"), config_map("second"))
    references = [owner(first), owner(second)]
    k.post(k.path("configmaps"), config_map("child", ownerReferences=references))
    k.delete(k.path("configmaps", "first"))
    path = k.path("configmaps", "child")
    k.eventually(
        lambda: k.peek(path).metadata.get("ownerReferences") == references[1:], "the dangling reference to go"
    )
    assert k.get(path).code == 200


@pytest.mark.requirement("AS21")
def test_owner_that_never_was(k: Case) -> None:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "none",
        "uid": NO_UID,
    }
    k.post(k.path("configmaps"), config_map("child", ownerReferences=[reference]))
    gone(k, "child")


@pytest.mark.requirement("AS21")
def test_owner_with_another_uid(k: Case) -> None:
    parent = k.post(k.path("configmaps"), config_map("parent"))
    reference = {**owner(parent), "uid": NO_UID}
    k.post(k.path("configmaps"), config_map("child", ownerReferences=[reference]))
    gone(k, "child")
    assert k.get(k.path("configmaps", "parent")).code == 200


@pytest.mark.requirement("AS21")
def test_orphan(k: Case) -> None:
    parent = k.post(k.path("configmaps"), config_map("parent"))
    k.post(k.path("configmaps"), config_map("child", ownerReferences=[owner(parent)]))
    known_to_the_collector(k)
    answer = k.delete(k.path("configmaps", "parent"), {"propagationPolicy": "Orphan"})
    assert answer.code == 200
    assert answer.metadata["finalizers"] == ["orphan"]
    gone(k, "parent")
    assert "ownerReferences" not in k.get(k.path("configmaps", "child")).metadata


@pytest.mark.requirement("AS21")
def test_orphan_dependents(k: Case) -> None:
    parent = k.post(k.path("configmaps"), config_map("parent"))
    k.post(k.path("configmaps"), config_map("child", ownerReferences=[owner(parent)]))
    known_to_the_collector(k)
    k.delete(k.path("configmaps", "parent"), {"orphanDependents": True})
    gone(k, "parent")
    assert "ownerReferences" not in k.get(k.path("configmaps", "child")).metadata


@pytest.mark.requirement("AS21")
def test_foreground_waits_for_blocking_dependents(k: Case) -> None:
    parent = k.post(k.path("configmaps"), config_map("parent"))
    child = config_map("child", ownerReferences=[owner(parent, block=True)], finalizers=[FINALIZER])
    k.post(k.path("configmaps"), child)
    known_to_the_collector(k)
    answer = k.delete(k.path("configmaps", "parent"), {"propagationPolicy": "Foreground"})
    assert answer.code == 200
    assert answer.metadata["finalizers"] == ["foregroundDeletion"]
    path = k.path("configmaps", "child")
    k.eventually(lambda: "deletionTimestamp" in k.peek(path).metadata, "the child to be deleting")
    assert k.get(k.path("configmaps", "parent")).code == 200
    k.patch(path, {"metadata": {"finalizers": None}})
    gone(k, "parent")
    gone(k, "child")


@pytest.mark.requirement("AS21")
def test_foreground_does_not_wait_for_others(k: Case) -> None:
    parent = k.post(k.path("configmaps"), config_map("parent"))
    child = config_map("child", ownerReferences=[owner(parent)], finalizers=[FINALIZER])
    k.post(k.path("configmaps"), child)
    known_to_the_collector(k)
    k.delete(k.path("configmaps", "parent"), {"propagationPolicy": "Foreground"})
    gone(k, "parent")
    path = k.path("configmaps", "child")
    k.eventually(lambda: "deletionTimestamp" in k.peek(path).metadata, "the child to be deleting")
    k.patch(path, {"metadata": {"finalizers": None}}, record=False)


@pytest.mark.requirement("AS21")
def test_foreground_without_dependents(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("parent"))
    answer = k.delete(k.path("configmaps", "parent"), {"propagationPolicy": "Foreground"})
    assert answer.code == 200
    assert answer.metadata["finalizers"] == ["foregroundDeletion"]
    gone(k, "parent")


@pytest.mark.requirement("AS21")
def test_jobs_are_orphaned_by_default(k: Case) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
    job = k.post(
        k.path("jobs.batch"),
        {"metadata": {"name": "j"}, "spec": {"parallelism": 0, "template": template}},
        record=False,
    )
    k.post(k.path("configmaps"), config_map("child", ownerReferences=[owner(job)]))
    known_to_the_collector(k)
    answer = k.delete(k.path("jobs.batch", "j"), record=False)
    assert answer.code == 200
    assert answer.metadata["finalizers"] == ["orphan"]
    k.eventually(lambda: k.peek(k.path("jobs.batch", "j")).code == 404, "the job to be gone")
    assert "ownerReferences" not in k.get(k.path("configmaps", "child")).metadata


@pytest.mark.requirement("AS21")
@pytest.mark.parametrize("owned_by", ["widget", "realm"])
def test_custom_resource_as_owner(k: Case, custom_resources: dict[str, str], owned_by: str) -> None:
    # The collector of the real server looks for new kinds of owners every half minute, so these were deleted early.
    path = k.path("configmaps", owned_by, namespace=custom_resources["namespace"])
    k.eventually(lambda: k.peek(path).code == 404, "the child to be collected", 120)


@pytest.mark.requirement("AS19")
def test_pod_without_node_is_gone_at_once(k: Case) -> None:
    spec = {"containers": [{"name": "c", "image": "none"}], "automountServiceAccountToken": False}
    body = {"metadata": {"name": "p"}, "spec": spec}
    # The real server wants the default account first.
    k.eventually(
        lambda: k.call("POST", k.path("pods"), body, record=False).code == 201, "the pod to be created"
    )
    answer = k.delete(k.path("pods", "p"), record=False)
    assert answer.code == 200
    k.eventually(lambda: k.peek(k.path("pods", "p")).code == 404, "the pod to be gone")


@pytest.mark.requirement("AS20")
@pytest.mark.parametrize("collection", [False, True])
def test_grace_period_that_is_no_number(k: Case, collection: bool) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    path = k.path("configmaps") if collection else k.path("configmaps", "a")
    answer = k.delete(path + "?gracePeriodSeconds=soon")
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message == 'strconv.ParseInt: parsing "soon": invalid syntax'
    assert k.get(k.path("configmaps", "a")).code == 200
