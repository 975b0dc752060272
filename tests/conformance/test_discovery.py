"""What a server tells about itself: version, health, groups, resources, OpenAPI."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import failed
from tests.conformance.target import Case
from tests.conformance.versions import RESULTS

pytestmark = [pytest.mark.requirement("AS2"), pytest.mark.usefixtures("custom_resources")]

UNKNOWN = "the server could not find the requested resource"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def resources(k: Case, path: str) -> dict[str, dict[str, Any]]:
    answer = k.call("GET", path, record=False)
    assert answer.code == 200
    assert answer.body["kind"] == "APIResourceList"
    return {each["name"]: each for each in answer.body["resources"]}


def test_version(k: Case) -> None:
    answer = k.get("/version", record=False)
    assert answer.code == 200
    assert answer.body["gitVersion"].startswith("v1.")
    assert {"major", "minor", "gitVersion", "gitCommit", "platform", "goVersion"} <= set(answer.body)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health(k: Case, path: str) -> None:
    answer = k.get(path)
    assert (answer.code, answer.body) == (200, "ok")
    assert answer.headers["content-type"].startswith("text/plain")


def test_verbose_health(k: Case) -> None:
    answer = k.get("/readyz?verbose", record=False)
    assert answer.code == 200
    assert "[+]ping ok" in answer.body
    assert answer.body.endswith("readyz check passed\n")


def test_core_versions(k: Case) -> None:
    answer = k.get("/api", record=False)
    assert answer.code == 200
    assert (answer.body["kind"], answer.body["versions"]) == ("APIVersions", ["v1"])


def test_groups(k: Case) -> None:
    answer = k.get("/apis", record=False)
    assert answer.code == 200
    assert answer.body["kind"] == "APIGroupList"
    groups = {group["name"]: group for group in answer.body["groups"]}
    assert {
        "apps",
        "batch",
        "coordination.k8s.io",
        "events.k8s.io",
        "rbac.authorization.k8s.io",
        "apiextensions.k8s.io",
        "authorization.k8s.io",
        "authentication.k8s.io",
        "admissionregistration.k8s.io",
        GROUP,
    } <= set(groups)
    version = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    assert groups[GROUP] == {"name": GROUP, "versions": [version], "preferredVersion": version}


def test_group(k: Case) -> None:
    answer = k.get(f"/apis/{GROUP}")
    version = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    assert answer.code == 200
    assert answer.body == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def test_custom_resources(k: Case) -> None:
    answer = k.get(f"/apis/{GROUP}/v1")
    assert answer.code == 200
    assert answer.body["groupVersion"] == f"{GROUP}/v1"
    found = {each["name"]: each for each in answer.body["resources"]}
    assert set(found) == {
        "bares",
        "realms",
        "realms/status",
        "samples",
        "samples/status",
        "widgets",
        "widgets/status",
    }
    widgets = found["widgets"]
    assert (widgets["kind"], widgets["singularName"], widgets["namespaced"]) == ("Widget", "widget", True)
    assert (widgets["shortNames"], widgets["categories"]) == (["wd"], ["toys"])
    assert found["realms"]["namespaced"] is False
    assert sorted(found["widgets/status"]["verbs"]) == ["get", "patch", "update"]


BUILT_IN: list[tuple[str, str, str, bool, list[str]]] = [
    ("/api/v1", "namespaces", "Namespace", False, ["ns"]),
    ("/api/v1", "secrets", "Secret", True, []),
    ("/api/v1", "configmaps", "ConfigMap", True, ["cm"]),
    ("/api/v1", "pods", "Pod", True, ["po"]),
    ("/api/v1", "serviceaccounts", "ServiceAccount", True, ["sa"]),
    ("/api/v1", "events", "Event", True, ["ev"]),
    ("/apis/events.k8s.io/v1", "events", "Event", True, ["ev"]),
    ("/apis/coordination.k8s.io/v1", "leases", "Lease", True, []),
    ("/apis/batch/v1", "jobs", "Job", True, []),
    ("/apis/apps/v1", "deployments", "Deployment", True, ["deploy"]),
    ("/apis/rbac.authorization.k8s.io/v1", "roles", "Role", True, []),
    ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", True, []),
    ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", False, []),
    ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", False, []),
    (
        "/apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        ["crd", "crds"],
    ),
    (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        False,
        [],
    ),
]


@pytest.mark.requirement("AS5")
@pytest.mark.parametrize(
    ("path", "plural", "kind", "namespaced", "short"),
    BUILT_IN,
    ids=[f"{entry[1]}-{entry[0].split('/')[-2]}" for entry in BUILT_IN],
)
def test_built_in(k: Case, path: str, plural: str, kind: str, namespaced: bool, short: list[str]) -> None:
    found = resources(k, path)[plural]
    assert (found["kind"], found["namespaced"], found.get("shortNames", [])) == (kind, namespaced, short)
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    expected = [verb for verb in verbs if (plural, verb) != ("namespaces", "deletecollection")]
    assert sorted(found["verbs"]) == expected


@pytest.mark.requirement("AS5")
@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("/apis/authentication.k8s.io/v1", "tokenreviews", "TokenReview"),
        ("/apis/authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview"),
        ("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("/apis/authorization.k8s.io/v1", "localsubjectaccessreviews", "LocalSubjectAccessReview"),
        ("/apis/authorization.k8s.io/v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ],
    ids=lambda value: str(value),
)
def test_reviews(k: Case, path: str, name: str, kind: str) -> None:
    found = resources(k, path)[name]
    assert (found["kind"], found["verbs"]) == (kind, ["create"])


@pytest.mark.requirement("AS5")
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1", "namespaces/status"),
        ("/api/v1", "namespaces/finalize"),
        ("/api/v1", "pods/status"),
        ("/api/v1", "serviceaccounts/token"),
        ("/apis/batch/v1", "jobs/status"),
        ("/apis/apps/v1", "deployments/status"),
        ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions/status"),
    ],
    ids=lambda value: str(value),
)
def test_subresources(k: Case, path: str, name: str) -> None:
    assert name in resources(k, path)


@pytest.mark.requirement("AS5")
def test_unknown_resource_of_a_group(k: Case) -> None:
    failed(k.get(k.path("gadgets")), 404, "NotFound", UNKNOWN, {})


@pytest.mark.requirement("AS5")
def test_unknown_resource_of_a_custom_group(k: Case) -> None:
    answer = k.get(k.path(f"gadgets.{GROUP}"))
    assert (answer.code, answer.body) == (404, "404 page not found\n")


@pytest.mark.requirement("AS5")
@pytest.mark.parametrize("path", ["/apis/nope.example.com", "/apis/nope.example.com/v1"])
def test_unknown_path(k: Case, path: str) -> None:
    answer = k.get(path)
    assert (answer.code, answer.body) == (404, "404 page not found\n")
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.requirement("AS5")
def test_resource_of_an_unknown_group(k: Case) -> None:
    answer = k.get(k.path("things.nope.example.com"))
    assert (answer.code, answer.body) == (404, "404 page not found\n")


@pytest.mark.requirement("AS5")
def test_unknown_version(k: Case) -> None:
    failed(k.get("/apis/apps/v9/deployments"), 404, "NotFound", UNKNOWN, {})


@pytest.mark.requirement("AS5")
def test_unknown_version_of_a_custom_group(k: Case) -> None:
    answer = k.get(f"/apis/{GROUP}/v9/widgets")
    assert (answer.code, answer.body) == (404, "404 page not found\n")


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated(k: Case, path: str) -> None:
    answer = k.get(path, accept=f"{AGGREGATED},application/json", record=False)
    assert answer.code == 200
    assert answer.body["kind"] == RESULTS["discovery/aggregated"][k.server.version][path]
    if answer.body["kind"] != "APIGroupDiscoveryList":
        return
    groups = {each["metadata"].get("name", ""): each for each in answer.body["items"]}
    if path == "/apis":
        version = groups[GROUP]["versions"][0]
        widgets = next(each for each in version["resources"] if each["resource"] == "widgets")
        assert widgets["responseKind"] == {"group": GROUP, "version": "v1", "kind": "Widget"}
        assert (widgets["scope"], widgets["shortNames"]) == ("Namespaced", ["wd"])
        assert [each["subresource"] for each in widgets["subresources"]] == ["status"]


def test_openapi(k: Case) -> None:
    if not RESULTS["discovery/openapi-v3"][k.server.version] and k.server.is_real:
        assert k.get("/openapi/v3", record=False).code == 404
        return
    index = k.get("/openapi/v3", record=False)
    assert index.code == 200
    for path in ("api/v1", f"apis/{GROUP}/v1", "apis/batch/v1"):
        place = index.body["paths"][path]["serverRelativeURL"]
        assert place.startswith(f"/openapi/v3/{path}?hash=")
        document = k.get(place, record=False)
        assert document.code == 200
        assert document.body["openapi"].startswith("3.0")
    schemas = k.get(f"/openapi/v3/apis/{GROUP}/v1", record=False).body["components"]["schemas"]
    widget = schemas["com.example.cases.v1.Widget"]
    assert widget["x-kubernetes-group-version-kind"] == [{"group": GROUP, "version": "v1", "kind": "Widget"}]
    assert widget["properties"]["spec"]["properties"]["color"]["enum"] == ["red", "blue"]
    core = k.get("/openapi/v3/api/v1", record=False).body["components"]["schemas"]
    assert (
        core["io.k8s.api.core.v1.ConfigMap"]["properties"]["data"]["additionalProperties"]["type"] == "string"
    )


def test_post_to_discovery(k: Case) -> None:
    answer = k.post("/api", {}, record=False)
    assert answer.code in (404, 405)


def test_root(k: Case) -> None:
    answer = k.get("/", record=False)
    assert answer.code == 200
    assert {"/api", "/api/v1", "/apis", f"/apis/{GROUP}/v1", "/version"} <= set(answer.body["paths"])
