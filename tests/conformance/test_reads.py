"""Lists: order, pages, versions, selectors."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import config_map, failed, widget
from tests.conformance.target import Answer, Case


def names(answer: Answer) -> list[str]:
    assert answer.code == 200, answer.body
    return [item["metadata"]["name"] for item in answer.body["items"]]


@pytest.fixture
def five(k: Case) -> str:
    """A collection of five labelled ConfigMaps; the label is there because the real server adds one of its own."""
    for name in ("c", "a", "e", "b", "d"):
        labels = {"t": "1", "name": name}
        k.call("POST", k.path("configmaps"), config_map(name, labels=labels), record=False)
    return k.path("configmaps") + "?labelSelector=t"


@pytest.fixture
def widgets(k: Case, custom_resources: dict[str, str]) -> str:
    """A collection of five custom resources, which nothing else is among."""
    for name in ("c", "a", "e", "b", "d"):
        k.call("POST", k.path(f"widgets.{GROUP}"), widget(GROUP, name, labels={"name": name}), record=False)
    return k.path(f"widgets.{GROUP}")


@pytest.mark.requirement("AS24")
def test_order_of_keys(k: Case, five: str) -> None:
    assert names(k.get(five)) == ["a", "b", "c", "d", "e"]


@pytest.mark.requirement("AS24")
def test_head_of_a_list(k: Case, five: str) -> None:
    answer = k.get(five)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert answer.metadata["resourceVersion"].isdigit()
    # Items of built-in kinds come without kind and version.
    assert not {"kind", "apiVersion"} & set(answer.body["items"][0])


@pytest.mark.requirement("AS24")
def test_items_of_custom_resources_have_a_kind(k: Case, widgets: str) -> None:
    answer = k.get(widgets)
    assert answer.body["kind"] == "WidgetList"
    assert {(item["kind"], item["apiVersion"]) for item in answer.body["items"]} == {
        ("Widget", f"{GROUP}/v1")
    }


@pytest.mark.requirement("AS24")
def test_all_namespaces(k: Case, widgets: str) -> None:
    answer = k.get(k.path(f"widgets.{GROUP}", namespace=None), record=False)
    found = [
        item["metadata"]["name"]
        for item in answer.body["items"]
        if item["metadata"]["namespace"] == k.namespace
    ]
    assert found == ["a", "b", "c", "d", "e"]


@pytest.mark.requirement("AS24")
def test_pages(k: Case, widgets: str) -> None:
    first = k.get(f"{widgets}?limit=2")
    assert names(first) == ["a", "b"]
    assert first.metadata["remainingItemCount"] == 3
    token = quote(first.metadata["continue"])
    second = k.call("GET", f"{widgets}?limit=2&continue={token}", record=False)
    assert names(second) == ["c", "d"]
    assert second.metadata["remainingItemCount"] == 1
    third = k.call("GET", f"{widgets}?limit=2&continue={quote(second.metadata['continue'])}", record=False)
    assert names(third) == ["e"]
    assert not third.metadata.get("continue")
    assert "remainingItemCount" not in third.metadata
    versions = {page.metadata["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1


@pytest.mark.requirement("AS24")
def test_pages_are_one_snapshot(k: Case, widgets: str) -> None:
    first = k.get(f"{widgets}?limit=2")
    k.post(widgets, widget(GROUP, "cc"))
    k.delete(f"{widgets}/d")
    k.patch(f"{widgets}/e", {"spec": {"size": 9}})
    rest = k.call("GET", f"{widgets}?continue={quote(first.metadata['continue'])}", record=False)
    assert names(rest) == ["c", "d", "e"]
    assert rest.body["items"][2]["spec"]["size"] == 1
    assert rest.metadata["resourceVersion"] == first.metadata["resourceVersion"]


@pytest.mark.requirement("AS24")
def test_count_of_the_rest_with_a_selector(k: Case, five: str) -> None:
    answer = k.get(f"{five}&limit=2")
    assert names(answer) == ["a", "b"]
    assert "remainingItemCount" not in answer.metadata
    assert answer.metadata["continue"]


@pytest.mark.requirement("AS24")
def test_limit_that_covers_everything(k: Case, widgets: str) -> None:
    answer = k.get(f"{widgets}?limit=5")
    assert names(answer) == ["a", "b", "c", "d", "e"]
    assert not answer.metadata.get("continue")
    assert "remainingItemCount" not in answer.metadata


@pytest.mark.requirement("AS24")
def test_token_with_a_version(k: Case, widgets: str) -> None:
    first = k.get(f"{widgets}?limit=2")
    token = quote(first.metadata["continue"])
    answer = k.call("GET", f"{widgets}?limit=2&continue={token}&resourceVersion=1", record=False)
    text = "specifying resource version is not allowed when using continue"
    failed(answer, 400, "BadRequest", text)


@pytest.mark.requirement("AS24")
@pytest.mark.parametrize(
    "token", ["nonsense", "e30", base64.urlsafe_b64encode(b'{"v":"x"}').decode().rstrip("=")]
)
def test_malformed_token(k: Case, widgets: str, token: str) -> None:
    answer = k.get(f"{widgets}?limit=2&continue={token}", record=False)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert "continue key is not valid: " in answer.message


@pytest.mark.requirement("AS24")
def test_expired_token(k: Case, widgets: str) -> None:
    first = k.get(f"{widgets}?limit=2")
    # A token of a version before all history: what compaction leaves of any token in time.
    decoded = json.loads(base64.urlsafe_b64decode(first.metadata["continue"] + "=="))
    old = base64.urlsafe_b64encode(json.dumps({**decoded, "rv": 1}).encode()).decode().rstrip("=")
    answer = k.get(f"{widgets}?limit=2&continue={old}", record=False)
    assert answer.code in (200, 410)


@pytest.mark.requirement("AS24")
def test_future_version(k: Case, five: str) -> None:
    answer = k.get(f"{five}&resourceVersion=999999999", record=False)
    assert (answer.code, answer.reason) == (504, "Timeout")
    assert "Too large resource version: 999999999, current: " in answer.message
    assert answer.headers["retry-after"] == "1"
    assert answer.details["retryAfterSeconds"] == 1
    assert answer.causes[0]["reason"] == "ResourceVersionTooLarge"
    assert answer.causes[0]["message"] == "Too large resource version"


@pytest.mark.requirement("AS24")
def test_future_version_of_an_object(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.get(k.path("configmaps", "a") + "?resourceVersion=999999999", record=False)
    assert (answer.code, answer.reason) == (504, "Timeout")


@pytest.mark.requirement("AS24")
def test_any_version(k: Case, five: str) -> None:
    def check() -> bool:
        # The real server's cache may be a moment behind.
        return sorted(names(k.call("GET", f"{five}&resourceVersion=0", record=False))) == [
            "a",
            "b",
            "c",
            "d",
            "e",
        ]

    k.eventually(check, "the cache to have all")


@pytest.mark.requirement("AS24")
def test_not_older_than(k: Case, five: str) -> None:
    version = k.call("GET", five, record=False).metadata["resourceVersion"]
    answer = k.get(f"{five}&resourceVersion={version}&resourceVersionMatch=NotOlderThan", record=False)
    assert sorted(names(answer)) == ["a", "b", "c", "d", "e"]
    assert int(answer.metadata["resourceVersion"]) >= int(version)


@pytest.mark.requirement("AS24")
def test_exact_version(k: Case, widgets: str) -> None:
    version = k.call("GET", widgets, record=False).metadata["resourceVersion"]
    k.delete(f"{widgets}/a")
    answer = k.get(f"{widgets}?resourceVersion={version}&resourceVersionMatch=Exact&limit=10", record=False)
    assert names(answer) == ["a", "b", "c", "d", "e"]
    assert answer.metadata["resourceVersion"] == version


@pytest.mark.requirement("AS24")
@pytest.mark.parametrize(
    "query",
    [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Foo&resourceVersion=1",
        "resourceVersionMatch=Exact&resourceVersion=0",
    ],
)
def test_bad_match(k: Case, query: str) -> None:
    answer = k.get(k.path("configmaps") + f"?{query}")
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert [each["field"] for each in answer.causes] == ["resourceVersionMatch"]


@pytest.mark.requirement("AS24")
def test_version_that_is_no_number(k: Case) -> None:
    answer = k.get(k.path("configmaps") + "?resourceVersion=abc", record=False)
    assert answer.code in (400, 500)


@pytest.mark.requirement("AS25")
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("name=a", ["a"]),
        ("name==a", ["a"]),
        ("name!=a,t", ["b", "c", "d", "e"]),
        ("name in (a,c)", ["a", "c"]),
        ("name notin (a,c),t", ["b", "d", "e"]),
        ("name", ["a", "b", "c", "d", "e"]),
        ("t,!name", []),
        ("other!=x,t", ["a", "b", "c", "d", "e"]),
        ("other notin (x),t", ["a", "b", "c", "d", "e"]),
        ("name=a,name=b", []),
        ("t in (1),name in (b,e)", ["b", "e"]),
        ("t=", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_labels(k: Case, five: str, selector: str, expected: list[str]) -> None:
    answer = k.get(k.path("configmaps") + f"?labelSelector={quote(selector)}", record=False)
    assert names(answer) == expected


@pytest.mark.requirement("AS25")
@pytest.mark.parametrize("selector", ["a in", "a=b=c", "(", "a in (b", "!", "a b"])
def test_bad_label_selector(k: Case, selector: str) -> None:
    answer = k.get(k.path("configmaps") + f"?labelSelector={quote(selector)}", record=False)
    assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.requirement("AS25")
def test_field_name(k: Case, five: str) -> None:
    assert names(k.get(k.path("configmaps") + "?fieldSelector=metadata.name%3Db")) == ["b"]


@pytest.mark.requirement("AS25")
def test_field_that_differs(k: Case, widgets: str) -> None:
    assert names(k.get(f"{widgets}?fieldSelector=metadata.name%21%3Db")) == ["a", "c", "d", "e"]


@pytest.mark.requirement("AS25")
def test_field_namespace(k: Case, widgets: str) -> None:
    everywhere = k.path(f"widgets.{GROUP}", namespace=None)
    answer = k.get(f"{everywhere}?fieldSelector=metadata.namespace%3D{k.namespace}")
    assert names(answer) == ["a", "b", "c", "d", "e"]


@pytest.mark.requirement("AS25")
def test_two_fields(k: Case, five: str) -> None:
    query = quote(f"metadata.name=b,metadata.namespace={k.namespace}")
    assert names(k.get(k.path("configmaps") + f"?fieldSelector={query}")) == ["b"]


@pytest.mark.requirement("AS25")
def test_type_of_secrets(k: Case) -> None:
    k.post(k.path("secrets"), {"metadata": {"name": "a"}, "type": "example.com/x"})
    k.post(k.path("secrets"), {"metadata": {"name": "b"}, "type": "example.com/y"})
    assert names(k.get(k.path("secrets") + "?fieldSelector=type%3Dexample.com/x")) == ["a"]


@pytest.mark.requirement("AS25")
def test_fields_of_events(k: Case) -> None:
    for name, reason in (("a", "One"), ("b", "Two")):
        body = {
            "metadata": {"name": name},
            "involvedObject": {"kind": "ConfigMap", "namespace": k.namespace, "name": f"x-{name}"},
            "reason": reason,
            "type": "Normal",
        }
        k.post(k.path("events"), body)
    path = k.path("events")
    assert names(k.get(f"{path}?fieldSelector=involvedObject.name%3Dx-b")) == ["b"]
    assert names(k.get(f"{path}?fieldSelector=reason%3DOne")) == ["a"]
    assert names(k.get(f"{path}?fieldSelector=type%3DNormal")) == ["a", "b"]
    assert names(k.get(k.path("events.events.k8s.io") + "?fieldSelector=regarding.name%3Dx-b")) == ["b"]


@pytest.mark.requirement("AS25")
def test_fields_of_pods(k: Case) -> None:
    spec = {"containers": [{"name": "c", "image": "none"}], "automountServiceAccountToken": False}
    body = {"metadata": {"name": "p"}, "spec": spec}
    # The real server wants the default account first.
    k.eventually(
        lambda: k.call("POST", k.path("pods"), body, record=False).code == 201, "the pod to be created"
    )
    path = k.path("pods")
    assert names(k.get(f"{path}?fieldSelector=status.phase%3DPending", record=False)) == ["p"]
    assert names(k.get(f"{path}?fieldSelector=spec.nodeName%3D", record=False)) == ["p"]
    assert names(k.get(f"{path}?fieldSelector=spec.nodeName%3Dn", record=False)) == []


@pytest.mark.requirement("AS25")
def test_field_of_jobs(k: Case) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
    body = {"metadata": {"name": "a"}, "spec": {"parallelism": 0, "template": template}}
    k.post(k.path("jobs.batch"), body, record=False)
    path = k.path("jobs.batch")
    assert names(k.get(f"{path}?fieldSelector=status.successful%3D0", record=False)) == ["a"]
    assert names(k.get(f"{path}?fieldSelector=status.successful%3D1", record=False)) == []


@pytest.mark.requirement("AS25")
def test_unknown_field_of_a_custom_resource(k: Case, widgets: str) -> None:
    answer = k.get(f"{widgets}?fieldSelector=spec.size%3D1")
    failed(answer, 400, "BadRequest", "field label not supported: spec.size")


@pytest.mark.requirement("AS25")
def test_unknown_field_of_a_config_map(k: Case) -> None:
    answer = k.get(k.path("configmaps") + "?fieldSelector=data.x%3D1")
    assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.requirement("AS25")
def test_bad_field_selector(k: Case) -> None:
    answer = k.get(k.path("configmaps") + "?fieldSelector=nonsense")
    assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.requirement("AS5", "AS9")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_path_that_leaves_the_namespace_out(k: Case, method: str) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    for path in (
        "/api/v1/configmaps/a",
        "/apis/batch/v1/jobs/a",
        k.path("namespaces"),
        k.path("namespaces", "a"),
    ):
        answer = k.call(method, path, config_map("a") if method == "PUT" else None)
        assert (answer.code, answer.reason, answer.details) == (404, "NotFound", {})
        assert answer.message == "the server could not find the requested resource"
    assert k.get(k.path("configmaps", "a")).code == 200
