"""Namespaces: their phase, what their termination forbids, empties and reports.

The real server looks at a terminating namespace five seconds late, so all that the cases need are deleted at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import config_map, failed, widget
from tests.conformance.target import APPLY, Answer, Case, Server

pytestmark = [pytest.mark.requirement("AS22"), pytest.mark.usefixtures("custom_resources")]

FINALIZER = "example.com/guard"
CASES = ("empty", "content", "custom", "held", "counted", "finalized")

Doomed = dict[str, str]


def path(name: str) -> str:
    return f"/api/v1/namespaces/{name}"


def conditions(answer: Answer) -> dict[str, dict[str, str]]:
    return {each["type"]: each for each in answer.body["status"].get("conditions") or []}


@pytest.fixture(scope="session")
def doomed(server: Server, custom_resources: dict[str, str]) -> Iterator[Doomed]:
    """Namespaces that were deleted with different content, by case."""
    names = {case: f"doomed-{case}-{uuid.uuid4().hex[:8]}" for case in CASES}

    def create(case: str, resource: str, body: object) -> None:
        group = f"/apis/{GROUP}/v1" if resource == "widgets" else "/api/v1"
        answer = server.call("POST", f"{group}/namespaces/{names[case]}/{resource}", body)
        assert answer.code == 201, answer.body

    for name in names.values():
        assert server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    create("content", "configmaps", config_map("a"))
    create("content", "secrets", {"metadata": {"name": "a"}})
    create("custom", "widgets", widget(GROUP, "a"))
    create("held", "configmaps", config_map("held", finalizers=[FINALIZER]))
    create("counted", "configmaps", config_map("a", finalizers=[FINALIZER]))
    create("counted", "configmaps", config_map("b", finalizers=[FINALIZER, "example.com/other"]))
    final = server.call("GET", path(names["finalized"])).body
    final["spec"]["finalizers"] = ["kubernetes", "example.com/mine"]
    assert server.call("PUT", path(names["finalized"]) + "/finalize", final).code == 200
    for name in names.values():
        assert server.call("DELETE", path(name)).code == 200
    yield names
    for case, objects in (("held", ("held",)), ("counted", ("a", "b"))):
        for each in objects:
            server.call(
                "PATCH",
                f"{path(names[case])}/configmaps/{each}",
                {"metadata": {"finalizers": None}},
                content_type="application/merge-patch+json",
            )


@pytest.fixture
def held(k: Case, doomed: Doomed) -> str:
    """A terminating namespace that a finalizer of its ConfigMap `held` keeps."""
    k.secrets[doomed["held"]] = "<held>"
    return doomed["held"]


def goes(k: Case, name: str) -> None:
    k.eventually(lambda: k.peek(path(name)).code == 404, "the namespace to be gone", 120)


def test_new_one_is_active(k: Case) -> None:
    answer = k.get(path(k.namespace))
    assert answer.body["status"] == {"phase": "Active"}
    assert answer.body["spec"] == {"finalizers": ["kubernetes"]}


def test_deletion_begins(k: Case) -> None:
    answer = k.delete(path(k.namespace), record=False)
    assert answer.code == 200
    assert answer.body["kind"] == "Namespace"
    assert answer.body["status"]["phase"] == "Terminating"
    assert answer.metadata["deletionTimestamp"]


def test_empty_one_goes(k: Case, doomed: Doomed) -> None:
    goes(k, doomed["empty"])


def test_content_goes_first(k: Case, doomed: Doomed) -> None:
    goes(k, doomed["content"])
    assert k.peek(k.path("configmaps", "a", namespace=doomed["content"])).code == 404
    assert k.peek(k.path("secrets", "a", namespace=doomed["content"])).code == 404


def test_custom_resources_go_too(k: Case, doomed: Doomed) -> None:
    goes(k, doomed["custom"])
    assert k.peek(k.path(f"widgets.{GROUP}", "a", namespace=doomed["custom"])).code == 404


def forbidden(answer: Answer, namespace: str, resource: str, name: str, group: str = "") -> None:
    qualified = f"{resource}.{group}" if group else resource
    text = (
        f'{qualified} "{name}" is forbidden: unable to create new content in namespace {namespace} because it is '
        "being terminated"
    )
    details = {"name": name, "kind": resource} | ({"group": group} if group else {})
    causes = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    failed(answer, 403, "Forbidden", text, {**details, "causes": causes})


def test_create_is_forbidden(k: Case, held: str) -> None:
    forbidden(k.post(k.path("configmaps", namespace=held), config_map("a")), held, "configmaps", "a")


def test_create_of_a_custom_resource_is_forbidden(k: Case, held: str) -> None:
    answer = k.post(k.path(f"widgets.{GROUP}", namespace=held), widget(GROUP, "a"))
    forbidden(answer, held, "widgets", "a", GROUP)


def test_apply_of_something_new_is_forbidden(k: Case, held: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    answer = k.patch(k.path("configmaps", "a", namespace=held) + "?fieldManager=m", body, APPLY)
    forbidden(answer, held, "configmaps", "a")


def test_events_are_forbidden(k: Case, held: str) -> None:
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "ConfigMap", "namespace": held, "name": "held"},
        "eventTime": "2026-01-02T03:04:05.123456Z",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "Test",
        "reason": "Test",
        "type": "Normal",
    }
    answer = k.post(k.path("events.events.k8s.io", namespace=held), event)
    forbidden(answer, held, "events", "e", "events.k8s.io")


def test_create_by_dry_run_is_forbidden(k: Case, held: str) -> None:
    answer = k.post(k.path("configmaps", namespace=held) + "?dryRun=All", config_map("a"))
    forbidden(answer, held, "configmaps", "a")


def test_put_that_would_create_is_forbidden(k: Case, held: str) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}
    answer = k.put(k.path("leases.coordination.k8s.io", "l", namespace=held), lease)
    forbidden(answer, held, "leases", "l", "coordination.k8s.io")


def test_duplicate_is_forbidden_too(k: Case, held: str) -> None:
    answer = k.post(k.path("configmaps", namespace=held), config_map("held"), record=False)
    assert (answer.code, answer.reason) == (403, "Forbidden")


def test_updates_pass(k: Case, held: str) -> None:
    where = k.path("configmaps", "held", namespace=held)
    answer = k.patch(where, {"metadata": {"labels": {"x": k.server.name}}}, record=False)
    assert answer.code == 200
    assert answer.metadata["labels"] == {"x": k.server.name}
    assert k.patch(where, {"metadata": {"labels": None}}, record=False).code == 200


def test_conditions(k: Case, held: str) -> None:
    def check() -> bool:
        return conditions(k.peek(path(held))).get("NamespaceFinalizersRemaining", {}).get("status") == "True"

    k.eventually(check, "the namespace to report what remains", 120)
    answer = k.peek(path(held))
    assert answer.body["status"]["phase"] == "Terminating"
    found = {
        name: (each["status"], each["reason"], each["message"]) for name, each in conditions(answer).items()
    }
    assert found == {
        "NamespaceDeletionDiscoveryFailure": (
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": (
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {FINALIZER} in 1 resource instances",
        ),
    }


def test_conditions_count(k: Case, doomed: Doomed) -> None:
    def check() -> bool:
        return (
            conditions(k.peek(path(doomed["counted"]))).get("NamespaceFinalizersRemaining", {}).get("status")
            == "True"
        )

    k.eventually(check, "the namespace to report what remains", 120)
    found = conditions(k.peek(path(doomed["counted"])))
    assert found["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: configmaps. has 2 resource instances"
    )
    assert found["NamespaceFinalizersRemaining"]["message"] == (
        f"Some content in the namespace has finalizers remaining: {FINALIZER} in 2 resource instances, "
        "example.com/other in 1 resource instances"
    )


def test_its_own_finalizer_stays(k: Case, doomed: Doomed) -> None:
    where = path(doomed["finalized"])
    k.eventually(
        lambda: k.peek(where).body["spec"].get("finalizers") == ["example.com/mine"],
        "the namespace controller to be done",
        120,
    )
    current = k.peek(where).body
    current["spec"]["finalizers"] = []
    answer = k.put(where + "/finalize", current, record=False)
    assert answer.code == 200
    goes(k, doomed["finalized"])


@pytest.mark.parametrize("name", ["default", "kube-system"])
def test_immortal(k: Case, name: str) -> None:
    answer = k.delete(path(name))
    text = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    failed(answer, 403, "Forbidden", text, {"name": name, "kind": "namespaces"})


def test_finalize(k: Case) -> None:
    body = k.get(path(k.namespace)).body
    body["spec"]["finalizers"] = ["kubernetes", "example.com/mine"]
    answer = k.put(path(k.namespace) + "/finalize", body)
    assert answer.code == 200
    assert answer.body["spec"] == {"finalizers": ["kubernetes", "example.com/mine"]}


def test_update_cannot_change_finalizers(k: Case) -> None:
    body = k.get(path(k.namespace)).body
    body["spec"] = {"finalizers": []}
    answer = k.put(path(k.namespace), body)
    assert answer.code == 200
    assert answer.body["spec"] == {"finalizers": ["kubernetes"]}


def test_name(k: Case) -> None:
    answer = k.post("/api/v1/namespaces", {"metadata": {"name": "Not_A_Label"}})
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert [each["field"] for each in answer.causes] == ["metadata.name"]


@pytest.mark.requirement("AS22")
@pytest.mark.parametrize("finalizer", ["mine", "a b/c"])
def test_finalizer_of_no_kind(k: Case, finalizer: str) -> None:
    namespace = {"metadata": {"name": f"{k.namespace}-more"}, "spec": {"finalizers": [finalizer]}}
    answer = k.post("/api/v1/namespaces", namespace)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert {each["field"] for each in answer.causes} == {"spec.finalizers"}
    body = k.get(path(k.namespace)).body
    body["spec"]["finalizers"] = ["kubernetes", finalizer]
    answer = k.put(path(k.namespace) + "/finalize", body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert {each["field"] for each in answer.causes} == {"spec.finalizers[1]"}
    assert k.get(path(k.namespace)).body["spec"] == {"finalizers": ["kubernetes"]}
