"""Replacing objects: versions, conflicts, generation, and the status subresource."""

from __future__ import annotations

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import cause, config_map, failed, not_found, refused, widget
from tests.conformance.target import Answer, Case

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
LEASES = "leases.coordination.k8s.io"


def stale(answer: Answer, resource: str, name: str, group: str = "") -> None:
    qualified = f"{resource}.{group}" if group else resource
    details = {"name": name, "kind": resource} | ({"group": group} if group else {})
    text = f'Operation cannot be fulfilled on {qualified} "{name}": {MODIFIED}'
    failed(answer, 409, "Conflict", text, details)


@pytest.mark.requirement("AS6", "AS11")
def test_change_takes_a_new_version(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    answer = k.put(k.path("configmaps", "a"), {**first.body, "data": {"a": "2"}})
    assert answer.code == 200
    assert int(answer.metadata["resourceVersion"]) > int(first.metadata["resourceVersion"])
    assert answer.metadata["uid"] == first.metadata["uid"]
    assert answer.metadata["creationTimestamp"] == first.metadata["creationTimestamp"]
    assert k.get(k.path("configmaps", "a")).body == answer.body


@pytest.mark.requirement("AS6")
def test_no_change_keeps_the_version(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    answer = k.put(k.path("configmaps", "a"), first.body)
    assert answer.code == 200
    assert answer.metadata["resourceVersion"] == first.metadata["resourceVersion"]


@pytest.mark.requirement("AS6")
@pytest.mark.usefixtures("custom_resources")
def test_no_change_of_a_custom_resource_keeps_the_version(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    first = k.post(path, widget(GROUP, "a"))
    answer = k.put(f"{path}/a", first.body)
    assert answer.code == 200
    assert answer.metadata["resourceVersion"] == first.metadata["resourceVersion"]


@pytest.mark.requirement("AS11")
def test_stale_version(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    second = k.put(k.path("configmaps", "a"), {**first.body, "data": {"a": "2"}})
    answer = k.put(k.path("configmaps", "a"), {**first.body, "data": {"a": "3"}})
    stale(answer, "configmaps", "a")
    assert k.get(k.path("configmaps", "a")).body == second.body


@pytest.mark.requirement("AS11")
@pytest.mark.usefixtures("custom_resources")
def test_stale_version_of_a_custom_resource(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    first = k.post(path, widget(GROUP, "a"))
    k.put(f"{path}/a", {**first.body, "spec": {"size": 2}})
    stale(k.put(f"{path}/a", {**first.body, "spec": {"size": 3}}), "widgets", "a", GROUP)
    assert k.get(f"{path}/a").body["spec"] == {"size": 2}


@pytest.mark.requirement("AS11")
def test_no_version_is_fine_for_a_config_map(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.put(k.path("configmaps", "a"), config_map("a", {"b": "2"}))
    assert answer.code == 200
    assert answer.body["data"] == {"b": "2"}


@pytest.mark.requirement("AS11")
@pytest.mark.usefixtures("custom_resources")
def test_no_version_of_a_custom_resource(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a"))
    answer = k.put(f"{path}/a", widget(GROUP, "a", {"size": 5}))
    text = "Invalid value: 0x0: must be specified for an update"
    refused(answer, "widgets", "a", [cause("metadata.resourceVersion", text)], GROUP)
    assert k.get(f"{path}/a").body["spec"] == {"color": "red", "size": 1}


@pytest.mark.requirement("AS11", "AS18")
def test_no_version_of_a_lease(k: Case) -> None:
    path = k.path(LEASES)
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "x"}}
    k.post(path, lease)
    answer = k.put(f"{path}/a", lease)
    text = "Invalid value: 0x0: must be specified for an update"
    refused(answer, "leases", "a", [cause("metadata.resourceVersion", text)], "coordination.k8s.io")


@pytest.mark.requirement("AS11")
def test_put_of_an_absent_lease_creates(k: Case) -> None:
    path = k.path(LEASES)
    answer = k.put(f"{path}/new", {"metadata": {"name": "new"}, "spec": {"holderIdentity": "x"}})
    assert answer.code == 201
    assert k.get(f"{path}/new").body["spec"] == {"holderIdentity": "x"}


@pytest.mark.requirement("AS11")
def test_put_of_an_absent_config_map(k: Case) -> None:
    answer = k.put(k.path("configmaps", "a"), config_map("a"))
    not_found(answer, "configmaps", "a")


@pytest.mark.requirement("AS11")
@pytest.mark.usefixtures("custom_resources")
def test_put_of_an_absent_custom_resource(k: Case) -> None:
    answer = k.put(k.path(f"widgets.{GROUP}", "a"), widget(GROUP, "a"))
    not_found(answer, "widgets", "a", GROUP)


@pytest.mark.requirement("AS11")
def test_another_uid(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    other = "11111111-2222-4333-8444-555555555555"
    answer = k.put(k.path("configmaps", "a"), config_map("a", uid=other))
    text = (
        'Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, Key: '
        f"/registry/configmaps/{k.namespace}/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        f"UID in precondition: {other}, UID in object meta: {first.metadata['uid']}"
    )
    failed(answer, 409, "Conflict", text, {"name": "a", "kind": "configmaps"})


@pytest.mark.requirement("AS9")
def test_another_name(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.put(k.path("configmaps", "a"), config_map("b"))
    text = "the name of the object (b) does not match the name on the URL (a)"
    failed(answer, 400, "BadRequest", text)


@pytest.mark.requirement("AS9")
def test_another_namespace(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.put(k.path("configmaps", "a"), config_map("a", namespace="other"))
    text = f"the namespace of the object (other) does not match the namespace on the request ({k.namespace})"
    failed(answer, 400, "BadRequest", text)


@pytest.mark.requirement("AS10")
@pytest.mark.usefixtures("custom_resources")
def test_generation_counts_changes_of_the_spec(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    first = k.post(path, widget(GROUP, "a"))
    labelled = k.patch(f"{path}/a", {"metadata": {"labels": {"x": "y"}}})
    assert labelled.metadata["generation"] == 1
    changed = k.patch(f"{path}/a", {"spec": {"size": 4}})
    assert changed.metadata["generation"] == 2
    forged = k.put(f"{path}/a", {**changed.body, "metadata": {**changed.metadata, "generation": 9}})
    assert forged.metadata["generation"] == 2
    assert first.metadata["generation"] == 1


@pytest.mark.requirement("AS10")
@pytest.mark.usefixtures("custom_resources")
def test_generation_does_not_count_status(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a"))
    answer = k.patch(f"{path}/a/status", {"status": {"phase": "Ready"}})
    assert answer.metadata["generation"] == 1


@pytest.mark.requirement("AS10")
@pytest.mark.usefixtures("custom_resources")
def test_generation_counts_status_without_a_subresource(k: Case) -> None:
    path = k.path(f"bares.{GROUP}")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Bare", "metadata": {"name": "a"}}
    k.post(path, body)
    answer = k.patch(f"{path}/a", {"status": {"phase": "Ready"}})
    assert answer.code == 200
    assert answer.metadata["generation"] == 2
    assert answer.body["status"] == {"phase": "Ready"}


@pytest.mark.requirement("AS10", "AS19")
@pytest.mark.usefixtures("custom_resources")
def test_generation_counts_the_begin_of_deletion(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a", finalizers=["example.com/x"]))
    answer = k.delete(f"{path}/a")
    assert answer.code == 200
    assert answer.metadata["generation"] == 2


@pytest.mark.requirement("AS12")
@pytest.mark.usefixtures("custom_resources")
def test_status_changes_status_only(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    first = k.post(path, widget(GROUP, "a", labels={"x": "y"}))
    body = {
        **first.body,
        "spec": {"size": 9},
        "status": {"phase": "Ready"},
        "metadata": {
            **first.metadata,
            "labels": {"x": "z"},
            "annotations": {"b": "c"},
            "finalizers": ["example.com/x"],
        },
    }
    answer = k.put(f"{path}/a/status", body)
    assert answer.code == 200
    assert answer.body["status"] == {"phase": "Ready"}
    assert answer.body["spec"] == first.body["spec"]
    assert answer.metadata["labels"] == {"x": "y"}
    assert not {"annotations", "finalizers"} & set(answer.metadata)
    assert k.get(f"{path}/a").body == answer.body


@pytest.mark.requirement("AS12")
@pytest.mark.usefixtures("custom_resources")
def test_main_resource_ignores_status(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a"))
    k.patch(f"{path}/a/status", {"status": {"phase": "Ready"}})
    answer = k.patch(f"{path}/a", {"spec": {"size": 3}, "status": {"phase": "Lost", "count": 3}})
    assert answer.code == 200
    assert answer.body["status"] == {"phase": "Ready"}
    removed = k.patch(f"{path}/a", {"status": None})
    assert removed.body["status"] == {"phase": "Ready"}


@pytest.mark.requirement("AS12")
@pytest.mark.usefixtures("custom_resources")
def test_status_can_be_removed(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a"))
    k.patch(f"{path}/a/status", {"status": {"phase": "Ready"}})
    answer = k.patch(f"{path}/a/status", {"status": None})
    assert answer.code == 200
    assert "status" not in answer.body


@pytest.mark.requirement("AS12")
@pytest.mark.usefixtures("custom_resources")
def test_stale_version_of_a_status(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    first = k.post(path, widget(GROUP, "a"))
    k.patch(f"{path}/a", {"spec": {"size": 3}})
    answer = k.put(f"{path}/a/status", {**first.body, "status": {"phase": "Ready"}})
    stale(answer, "widgets", "a", GROUP)


@pytest.mark.requirement("AS12")
@pytest.mark.usefixtures("custom_resources")
def test_get_of_a_status(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    first = k.post(path, widget(GROUP, "a"))
    assert k.get(f"{path}/a/status").body == first.body


@pytest.mark.requirement("AS12")
@pytest.mark.usefixtures("custom_resources")
def test_status_that_is_not_served(k: Case) -> None:
    path = k.path(f"bares.{GROUP}")
    k.post(path, {"apiVersion": f"{GROUP}/v1", "kind": "Bare", "metadata": {"name": "a"}})
    answer = k.patch(f"{path}/a/status", {"status": {"phase": "Ready"}})
    assert answer.code == 404


@pytest.mark.requirement("AS12")
def test_status_of_a_job(k: Case) -> None:
    path = k.path("jobs.batch")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
    k.post(path, {"metadata": {"name": "a"}, "spec": {"parallelism": 0, "template": template}}, record=False)
    answer = k.patch(
        f"{path}/a/status", {"spec": {"parallelism": 3}, "status": {"succeeded": 1}}, record=False
    )
    assert answer.code == 200
    assert answer.body["status"]["succeeded"] == 1
    assert answer.body["spec"]["parallelism"] == 0


@pytest.mark.requirement("AS17")
def test_dry_run_changes_nothing(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    answer = k.put(k.path("configmaps", "a") + "?dryRun=All", config_map("a", {"b": "2"}))
    assert answer.code == 200
    assert answer.body["data"] == {"b": "2"}
    assert k.get(k.path("configmaps", "a")).body == first.body


@pytest.mark.requirement("AS11")
def test_put_to_a_collection(k: Case) -> None:
    answer = k.put(k.path("configmaps"), config_map("a"))
    text = "the server does not allow this method on the requested resource"
    failed(answer, 405, "MethodNotAllowed", text, {})
