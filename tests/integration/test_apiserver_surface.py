"""The surface of the embedded API server: addresses, discovery, forms of answers, kinds."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest
import yaml
from tests.integration.raw_http import PARTIAL, PARTIAL_LIST, TABLE, Raw
from tests.integration.widgets import DEFINITION, RESOURCE, widget

from captf_runtime.testing.apiserver import ApiServer

NAMESPACE = "/api/v1/namespaces/t"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=[DEFINITION]) as running:
        Raw(running).create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        yield running


@pytest.fixture
def raw(server: ApiServer) -> Raw:
    return Raw(server)


@pytest.mark.requirement("AS1")
def test_tls_with_a_generated_authority_that_the_kubeconfig_embeds() -> None:
    with ApiServer(tls=True) as server:
        config = yaml.safe_load(server.kubeconfig().read_text())
        cluster = config["clusters"][0]["cluster"]
        assert cluster["server"] == server.url
        assert cluster["server"].startswith("https://127.0.0.1:")
        assert "insecure-skip-tls-verify" not in cluster
        assert "BEGIN CERTIFICATE" in ssl.DER_cert_to_PEM_cert(
            ssl.PEM_cert_to_DER_cert(server.certificate_authority.decode())  # type: ignore[union-attr]
        )
        assert Raw(server).get("/version").code == 200


@pytest.mark.requirement("AS1")
def test_a_kubeconfig_names_the_user_and_is_private(server: ApiServer) -> None:
    path = server.kubeconfig(user="joe", namespace="t")
    assert path.stat().st_mode & 0o077 == 0
    config = yaml.safe_load(path.read_text())
    assert config["contexts"][0]["context"]["namespace"] == "t"
    token = config["users"][0]["user"]["token"]
    review = Raw(server, token=token).create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert review["status"]["userInfo"]["username"] == "joe"


@pytest.mark.requirement("AS2")
def test_version_and_health(raw: Raw) -> None:
    assert raw.get("/version")["gitVersion"].startswith("v1.")
    for path in ("/healthz", "/livez", "/readyz"):
        answer = raw.get(path)
        assert (answer.code, answer.raw) == (200, b"ok")
        assert answer.headers["Content-Type"].startswith("text/plain")


@pytest.mark.requirement("AS2")
def test_discovery_names_verbs_short_names_and_subresources(raw: Raw) -> None:
    assert raw.get("/api")["versions"] == ["v1"]
    groups = {group["name"]: group["preferredVersion"]["version"] for group in raw.get("/apis")["groups"]}
    assert groups["batch"] == "v1"
    assert groups["example.io"] == "v1"
    core = {r["name"]: r for r in raw.get("/api/v1")["resources"]}
    assert core["configmaps"]["shortNames"] == ["cm"]
    assert "deletecollection" in core["configmaps"]["verbs"]
    assert "deletecollection" not in core["namespaces"]["verbs"]
    assert core["serviceaccounts/token"]["kind"] == "TokenRequest"
    custom = {r["name"]: r for r in raw.get("/apis/example.io/v1")["resources"]}
    assert custom["widgets"]["shortNames"] == ["wd"]
    assert custom["widgets"]["categories"] == ["things"]
    assert custom["widgets/status"]["verbs"] == ["get", "patch", "update"]
    assert raw.get("/apis/example.io")["preferredVersion"] == {
        "groupVersion": "example.io/v1",
        "version": "v1",
    }


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@pytest.mark.requirement("AS2")
def test_aggregated_discovery_only_when_switched_on(raw: Raw) -> None:
    answer = raw.get("/apis", AGGREGATED)
    assert answer["kind"] == "APIGroupDiscoveryList"
    names = [item["metadata"]["name"] for item in answer["items"]]
    assert "example.io" in names
    with ApiServer(aggregated_discovery=False) as plain:
        assert Raw(plain).get("/apis", AGGREGATED)["kind"] == "APIGroupList"


@pytest.mark.requirement("AS2")
def test_openapi_v3_has_a_document_for_each_group_version_custom_ones_too(raw: Raw) -> None:
    paths = raw.get("/openapi/v3")["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/example.io/v1"} <= paths.keys()
    url = paths["apis/example.io/v1"]["serverRelativeURL"]
    document = raw.get(url).json
    assert any(name.endswith("Widget") for name in document["components"]["schemas"])


@pytest.mark.requirement("AS3")
def test_tables_have_printer_columns_and_the_asked_amount_of_object(raw: Raw) -> None:
    raw.create(RESOURCE, widget("w", 3))
    table = raw.get(RESOURCE, TABLE).json
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Size", "Age"]
    assert table["rows"][0]["cells"][:2] == ["w", 3]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert raw.get(f"{RESOURCE}?includeObject=None", TABLE)["rows"][0]["object"] is None
    assert raw.get(f"{RESOURCE}?includeObject=Object", TABLE)["rows"][0]["object"]["spec"]["size"] == 3


@pytest.mark.requirement("AS3")
@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/api/v1/secrets", ["Name", "Type", "Data", "Age"]),
        ("/api/v1/configmaps", ["Name", "Data", "Age"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
        ("/apis/batch/v1/jobs", ["Name", "Completions", "Duration", "Age"]),
    ],
)
def test_columns_of_built_in_kinds(raw: Raw, path: str, columns: list[str]) -> None:
    shown = [c["name"] for c in raw.get(path, TABLE)["columnDefinitions"] if c["priority"] == 0]
    assert shown == columns


@pytest.mark.requirement("AS3")
def test_a_watch_may_be_a_table_and_sends_its_columns_once(raw: Raw) -> None:
    for name in ("x", "y"):
        raw.create(f"{NAMESPACE}/configmaps", {"metadata": {"name": f"table-{name}"}})
    path = f"{NAMESPACE}/configmaps?watch=1&timeoutSeconds=1"
    events = list(raw.watch(path, accept=TABLE))
    assert all(event["object"]["kind"] == "Table" for event in events)
    assert events[0]["object"]["columnDefinitions"]
    assert events[1]["object"]["columnDefinitions"] is None


@pytest.mark.requirement("AS3")
def test_metadata_only_forms_carry_no_content(raw: Raw) -> None:
    raw.create(f"{NAMESPACE}/secrets", {"metadata": {"name": "hidden"}, "data": {"a": "Yg=="}})
    one = raw.get(f"{NAMESPACE}/secrets/hidden", PARTIAL).json
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert one.keys() == {"kind", "apiVersion", "metadata"}
    many = raw.get(f"{NAMESPACE}/secrets", PARTIAL_LIST).json
    assert many["kind"] == "PartialObjectMetadataList"
    assert all(item.keys() == {"kind", "apiVersion", "metadata"} for item in many["items"])


@pytest.mark.requirement("AS3")
def test_nothing_acceptable_is_406(raw: Raw) -> None:
    answer = raw.get(f"{NAMESPACE}/configmaps", "text/html")
    assert (answer.code, answer.reason) == (406, "NotAcceptable")


@pytest.mark.requirement("AS5")
def test_list_items_of_built_in_kinds_do_not_say_what_they_are(raw: Raw) -> None:
    raw.create(f"{NAMESPACE}/configmaps", {"metadata": {"name": "bare"}})
    raw.create(RESOURCE, widget("typed"))
    assert "kind" not in raw.get(f"{NAMESPACE}/configmaps")["items"][0]
    assert raw.get(RESOURCE)["items"][0]["kind"] == "Widget"


@pytest.mark.requirement("AS5")
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces", "/api/v1/secrets", "/api/v1/configmaps", "/api/v1/pods", "/api/v1/serviceaccounts",
        "/api/v1/events", "/apis/events.k8s.io/v1/events", "/apis/coordination.k8s.io/v1/leases",
        "/apis/batch/v1/jobs", "/apis/apps/v1/deployments", "/apis/rbac.authorization.k8s.io/v1/roles",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    ],
)  # fmt: skip
def test_every_kind_is_served(raw: Raw, path: str) -> None:
    answer = raw.get(path)
    assert answer.code == 200
    assert answer["kind"].endswith("List")


@pytest.mark.requirement("AS5")
def test_both_groups_of_events_share_one_storage(raw: Raw) -> None:
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.io/test",
        "reportingInstance": "i",
        "action": "Test",
        "reason": "Tested",
        "type": "Normal",
        "note": "hello",
        "regarding": {"kind": "Widget", "name": "w", "namespace": "t"},
    }
    assert raw.create("/apis/events.k8s.io/v1/namespaces/t/events", event).code == 201
    core = raw.get(f"{NAMESPACE}/events/e").json
    assert (core["message"], core["involvedObject"]["name"]) == ("hello", "w")
    assert core["reportingComponent"] == "example.io/test"
    raw.delete(f"{NAMESPACE}/events/e")
    assert raw.get("/apis/events.k8s.io/v1/namespaces/t/events/e").code == 404


@pytest.mark.requirement("AS5")
def test_unknown_resources_and_groups(raw: Raw) -> None:
    resource = raw.get("/apis/batch/v1/foos")
    assert (resource.code, resource["details"]) == (404, {})
    assert resource.message == "the server could not find the requested resource"
    group = raw.get("/apis/nowhere.io/v1/foos")
    assert (group.code, group.raw) == (404, b"404 page not found\n")
    assert group.headers["Content-Type"].startswith("text/plain")
