"""Creating objects: what the server sets, refuses and generates."""

from __future__ import annotations

import re

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import cause, config_map, failed, not_found, refused, widget
from tests.conformance.target import Case
from tests.conformance.versions import RESULTS

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.mark.requirement("AS7")
def test_sets_what_belongs_to_the_server(k: Case) -> None:
    answer = k.post(k.path("configmaps"), config_map("a", labels={"x": "y"}))
    assert answer.code == 201
    metadata = answer.metadata
    assert re.fullmatch(UUID, metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["resourceVersion"].isdigit()
    assert (metadata["namespace"], metadata["labels"]) == (k.namespace, {"x": "y"})
    assert answer.body["kind"] == "ConfigMap"
    assert k.get(k.path("configmaps", "a")).body == answer.body


@pytest.mark.requirement("AS7", "AS10")
@pytest.mark.usefixtures("custom_resources")
def test_generation_of_a_custom_resource_begins_at_one(k: Case) -> None:
    answer = k.post(k.path(f"widgets.{GROUP}"), widget(GROUP, "a", generation=7))
    assert answer.code == 201
    assert answer.metadata["generation"] == 1


@pytest.mark.requirement("AS7")
def test_config_map_has_no_generation(k: Case) -> None:
    assert "generation" not in k.post(k.path("configmaps"), config_map("a")).metadata


@pytest.mark.requirement("AS7")
def test_client_values_of_server_fields_are_dropped(k: Case) -> None:
    body = config_map(
        "a",
        uid="mine",
        creationTimestamp="2001-01-01T00:00:00Z",
        deletionTimestamp="2001-01-01T00:00:00Z",
        deletionGracePeriodSeconds=5,
        selfLink="/x",
    )
    answer = k.post(k.path("configmaps"), body)
    assert answer.code == 201
    assert answer.metadata["uid"] != "mine"
    assert not answer.metadata["creationTimestamp"].startswith("2001")
    assert not {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} & set(answer.metadata)


@pytest.mark.requirement("AS7")
def test_resource_version_in_the_body(k: Case) -> None:
    answer = k.post(k.path("configmaps"), config_map("a", resourceVersion="7"))
    failed(answer, 500, "", "resourceVersion should not be set on objects to be created")
    not_found(k.get(k.path("configmaps", "a")), "configmaps", "a")


@pytest.mark.requirement("AS7")
def test_duplicate(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    answer = k.post(k.path("configmaps"), config_map("a", {"b": "2"}))
    failed(
        answer,
        409,
        "AlreadyExists",
        'configmaps "a" already exists',
        {"name": "a", "kind": "configmaps"},
    )
    assert k.get(k.path("configmaps", "a")).body == first.body


@pytest.mark.requirement("AS7")
def test_duplicate_of_a_deleting_object(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", finalizers=["example.com/x"]))
    k.delete(k.path("configmaps", "a"))
    answer = k.post(k.path("configmaps"), config_map("a"))
    failed(
        answer,
        409,
        "AlreadyExists",
        'object is being deleted: configmaps "a" already exists',
        {"name": "a", "kind": "configmaps"},
    )


@pytest.mark.requirement("AS7")
@pytest.mark.usefixtures("custom_resources")
def test_duplicate_of_a_custom_resource(k: Case) -> None:
    k.post(k.path(f"widgets.{GROUP}"), widget(GROUP, "a"))
    answer = k.post(k.path(f"widgets.{GROUP}"), widget(GROUP, "a"))
    text = f'widgets.{GROUP} "a" already exists'
    failed(answer, 409, "AlreadyExists", text, {"name": "a", "group": GROUP, "kind": "widgets"})


@pytest.mark.requirement("AS8")
def test_generated_name(k: Case) -> None:
    body = {"metadata": {"generateName": "base-"}, "data": {}}
    answer = k.post(k.path("configmaps"), body, record=False)
    assert answer.code == 201
    assert re.fullmatch(r"base-[bcdfghjklmnpqrstvwxz2456789]{5}", answer.metadata["name"])
    assert answer.metadata["generateName"] == "base-"


@pytest.mark.requirement("AS8")
def test_generated_name_is_cut(k: Case) -> None:
    body = {"metadata": {"generateName": "x" * 80}, "data": {}}
    answer = k.post(k.path("configmaps"), body, record=False)
    assert answer.code == 201
    assert re.fullmatch(r"x{58}[bcdfghjklmnpqrstvwxz2456789]{5}", answer.metadata["name"])


@pytest.mark.requirement("AS8")
def test_name_beats_generated_name(k: Case) -> None:
    answer = k.post(k.path("configmaps"), {"metadata": {"name": "a", "generateName": "base-"}})
    assert answer.code == 201
    assert answer.metadata["name"] == "a"


@pytest.mark.requirement("AS8")
def test_no_name(k: Case) -> None:
    answer = k.post(k.path("configmaps"), {"data": {}})
    text = "Required value: name or generateName is required"
    refused(answer, "ConfigMap", "", [cause("metadata.name", text, "FieldValueRequired")])


@pytest.mark.requirement("AS9")
def test_missing_namespace(k: Case) -> None:
    answer = k.post(k.path("configmaps", namespace="nope"), config_map("a"))
    not_found(answer, "namespaces", "nope")


@pytest.mark.requirement("AS9")
def test_list_in_a_missing_namespace(k: Case) -> None:
    answer = k.get(k.path("configmaps", namespace="nope"))
    assert answer.code == 200
    assert answer.body["kind"] == "ConfigMapList"
    assert not answer.body["items"]


@pytest.mark.requirement("AS9")
def test_another_namespace_in_the_body(k: Case) -> None:
    answer = k.post(k.path("configmaps"), config_map("a", namespace="other"))
    text = "the namespace of the provided object does not match the namespace sent on the request"
    failed(answer, 400, "BadRequest", text)


@pytest.mark.requirement("AS9")
def test_post_to_an_object(k: Case) -> None:
    answer = k.post(k.path("configmaps", "a"), config_map("a"))
    text = "the server does not allow this method on the requested resource"
    failed(answer, 405, "MethodNotAllowed", text, {})


@pytest.mark.requirement("AS7")
def test_create_without_a_namespace(k: Case) -> None:
    answer = k.post(k.path("configmaps", namespace=None), config_map("a"))
    text = "the server does not allow this method on the requested resource"
    failed(answer, 405, "MethodNotAllowed", text, {})


@pytest.mark.requirement("AS7")
def test_body_that_is_no_json(k: Case) -> None:
    answer = k.post(k.path("configmaps"), b"{nope", record=False)
    assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.requirement("AS7")
def test_empty_body(k: Case) -> None:
    answer = k.post(k.path("configmaps"), b"", record=False)
    assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.requirement("AS7")
def test_another_kind_in_the_body(k: Case) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    answer = k.post(k.path("configmaps"), body)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith('Secret in version "v1" cannot be handled as a ConfigMap: ')


@pytest.mark.requirement("AS7")
@pytest.mark.usefixtures("custom_resources")
def test_another_kind_of_custom_resource(k: Case) -> None:
    answer = k.post(k.path(f"widgets.{GROUP}"), {**widget(GROUP, "a"), "kind": "Gadget"})
    refused(answer, "Gadget", "a", [cause("kind", 'Invalid value: "Gadget": must be Widget')], GROUP)


@pytest.mark.requirement("AS7")
@pytest.mark.usefixtures("custom_resources")
def test_another_version_of_custom_resource(k: Case) -> None:
    answer = k.post(k.path(f"widgets.{GROUP}"), {**widget(GROUP, "a"), "apiVersion": f"{GROUP}/v2"})
    text = f"the API version in the data ({GROUP}/v2) does not match the expected API version ({GROUP}/v1)"
    failed(answer, 400, "BadRequest", text)


@pytest.mark.requirement("AS7")
@pytest.mark.usefixtures("custom_resources")
def test_custom_resource_without_a_kind(k: Case) -> None:
    answer = k.post(k.path(f"widgets.{GROUP}"), {"metadata": {"name": "a"}}, record=False)
    assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.requirement("AS7")
def test_unsupported_media_type(k: Case) -> None:
    answer = k.post(k.path("configmaps"), config_map("a"), content_type="text/plain")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
    assert answer.message.startswith(
        "the body of the request was in an unknown format - accepted media types include: application/json"
    )


@pytest.mark.requirement("AS7")
def test_yaml_body(k: Case) -> None:
    body = b"metadata: {name: a}\ndata:\n  x: '1'\n"
    answer = k.post(k.path("configmaps"), body, content_type="application/yaml")
    assert answer.code == 201
    assert answer.body["data"] == {"x": "1"}


@pytest.mark.requirement("AS12")
@pytest.mark.usefixtures("custom_resources")
def test_status_is_dropped(k: Case) -> None:
    answer = k.post(k.path(f"widgets.{GROUP}"), {**widget(GROUP, "a"), "status": {"phase": "Ready"}})
    assert answer.code == 201
    assert "status" not in answer.body


@pytest.mark.requirement("AS12")
@pytest.mark.usefixtures("custom_resources")
def test_status_without_a_subresource_is_kept(k: Case) -> None:
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Bare",
        "metadata": {"name": "a"},
        "status": {"phase": "Ready"},
    }
    answer = k.post(k.path(f"bares.{GROUP}"), body)
    assert answer.code == 201
    assert answer.body["status"] == {"phase": "Ready"}


@pytest.mark.requirement("AS17")
def test_dry_run_stores_nothing(k: Case) -> None:
    answer = k.post(k.path("configmaps") + "?dryRun=All", config_map("a"))
    assert answer.code == 201
    assert "resourceVersion" not in answer.metadata
    assert answer.metadata["uid"]
    not_found(k.get(k.path("configmaps", "a")), "configmaps", "a")


@pytest.mark.requirement("AS17")
def test_dry_run_finds_errors(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.post(k.path("configmaps") + "?dryRun=All", config_map("a"))
    assert (answer.code, answer.reason) == (409, "AlreadyExists")


@pytest.mark.requirement("AS17")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_dry_run_of_another_value(k: Case, method: str) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    kind = {"POST": "Create", "PUT": "Update", "PATCH": "Patch", "DELETE": "Delete"}[method]
    path = k.path("configmaps") if method == "POST" else k.path("configmaps", "a")
    body = None if method == "DELETE" else config_map("a")
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = k.call(method, f"{path}?dryRun=Some", body, content_type=media)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.message == (
        f'{kind}Options.meta.k8s.io "" is invalid: dryRun: Unsupported value: []string{{"Some"}}: '
        'supported values: "All"'
    )
    assert answer.details["kind"] == f"{kind}Options"
    assert k.get(k.path("configmaps", "a")).code == 200


@pytest.mark.requirement("AS16")
@pytest.mark.usefixtures("custom_resources")
def test_strict_field_validation(k: Case) -> None:
    body = widget(GROUP, "a", {"color": "red", "colour": "red"})
    answer = k.post(k.path(f"widgets.{GROUP}") + "?fieldValidation=Strict", body)
    assert answer.code == RESULTS["strict-validation"][k.server.version]
    if answer.code == 400:
        assert answer.reason == "BadRequest"
        assert 'strict decoding error: unknown field "spec.colour"' in answer.message


@pytest.mark.requirement("AS16")
@pytest.mark.usefixtures("custom_resources")
def test_warning_field_validation(k: Case) -> None:
    body = widget(GROUP, "a", {"color": "red", "colour": "red"})
    answer = k.post(k.path(f"widgets.{GROUP}") + "?fieldValidation=Warn", body)
    assert answer.code == 201
    assert answer.body["spec"] == {"color": "red", "size": 1}
    if RESULTS["strict-validation"][k.server.version] == 400:
        assert answer.headers["warning"] == '299 - "unknown field \\"spec.colour\\""'


@pytest.mark.requirement("AS16")
def test_strict_field_validation_of_a_built_in_kind(k: Case) -> None:
    body = {**config_map("a"), "dota": {}}
    answer = k.post(k.path("configmaps") + "?fieldValidation=Strict", body)
    assert answer.code == RESULTS["strict-validation"][k.server.version]


@pytest.mark.requirement("AS16")
@pytest.mark.usefixtures("custom_resources")
def test_strict_field_validation_of_duplicates(k: Case) -> None:
    body = (
        f'{{"apiVersion":"{GROUP}/v1","kind":"Widget","metadata":{{"name":"a"}},'
        '"spec":{"size":2,"size":3}}'
    ).encode()
    answer = k.post(k.path(f"widgets.{GROUP}") + "?fieldValidation=Strict", body)
    assert answer.code == RESULTS["strict-validation"][k.server.version]
    if answer.code == 400:
        assert 'duplicate field "spec.size"' in answer.message
