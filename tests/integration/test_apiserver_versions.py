"""Where versions differ: modes of the embedded API server, versions and scopes of custom resources."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.raw_http import Raw
from tests.integration.widgets import DEFINITION, DEFINITIONS, NAME, RESOURCE, definition, widget

from captf_runtime.testing.apiserver import ApiServer, reading
from captf_runtime.testing.apiserver import watch as watching
from captf_runtime.testing.waiting import eventually

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def old() -> Iterator[Raw]:
    with ApiServer(mode="1.20", crds=[DEFINITION]) as running:
        raw = Raw(running)
        raw.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        yield raw


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=[DEFINITION]) as running:
        Raw(running).create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        yield running


@pytest.fixture
def raw(server: ApiServer) -> Raw:
    return Raw(server)


@pytest.mark.requirement("AS2", "AS26")
def test_the_old_server_has_no_aggregated_discovery_and_no_streaming_lists(old: Raw) -> None:
    assert old.get("/version")["gitVersion"] == "v1.20.2"
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    assert old.get("/apis", aggregated)["kind"] == "APIGroupList"
    query = "watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true"
    answer = old.get(f"{CONFIG_MAPS}?{query}&resourceVersionMatch=NotOlderThan")
    assert (answer.code, answer.reason) == (422, "Invalid")


@pytest.mark.requirement("AS16")
def test_the_old_server_prunes_in_silence(old: Raw) -> None:
    answer = old.create(f"{RESOURCE}?fieldValidation=Strict", widget("w", 1, unknown=1))
    assert answer.code == 201
    assert answer.headers["Warning"] is None
    assert "unknown" not in answer["spec"]


@pytest.mark.requirement("AS10")
def test_jobs_count_generations_in_modern_mode_only(old: Raw, raw: Raw) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "j"}, "spec": {"template": template}}
    assert "generation" not in old.create("/apis/batch/v1/namespaces/default/jobs", body)["metadata"]
    assert raw.create("/apis/batch/v1/namespaces/default/jobs", body)["metadata"]["generation"] == 1


@pytest.mark.requirement("AS15")
def test_every_served_version_shows_the_same_object(server: ApiServer, raw: Raw) -> None:
    raw.create(RESOURCE, widget("w", 3))
    both = definition()
    newer = copy.deepcopy(both["spec"]["versions"][0])
    newer |= {"name": "v2", "storage": False}
    both["spec"]["versions"].append(newer)
    server.apply_definition(both)
    path = RESOURCE.replace("/v1/", "/v2/")
    found = raw.get(f"{path}/w").json
    assert (found["apiVersion"], found["spec"]["size"]) == ("example.io/v2", 3)
    raw.patch(f"{path}/w", {"spec": {"size": 4}})
    assert raw.get(f"{RESOURCE}/w")["spec"]["size"] == 4
    assert raw.get("/apis/example.io")["preferredVersion"]["version"] == "v2"
    both["spec"]["versions"][1]["served"] = False
    server.apply_definition(both)
    assert raw.get(f"{path}/w").code == 404
    assert raw.get(f"{RESOURCE}/w").code == 200


@pytest.mark.requirement("AS15")
def test_a_name_that_is_taken_is_not_accepted(raw: Raw) -> None:
    other = definition(names={"plural": "gadgets", "kind": "Widget"})
    other["metadata"] = {"name": "gadgets.example.io"}
    conditions = {c["type"]: c for c in raw.create(DEFINITIONS, other)["status"]["conditions"]}
    assert (conditions["NamesAccepted"]["status"], conditions["NamesAccepted"]["reason"]) == (
        "False",
        "KindConflict",
    )
    assert conditions["Established"]["status"] == "False"
    assert raw.get("/apis/example.io/v1/namespaces/t/gadgets").code == 404


@pytest.mark.requirement("AS15")
def test_cluster_scoped_custom_resources(raw: Raw) -> None:
    scoped = definition(scope="Cluster", names={"plural": "globes", "kind": "Globe"})
    scoped["metadata"] = {"name": "globes.example.io"}
    raw.create(DEFINITIONS, scoped)
    globe = {**widget("g", 2), "kind": "Globe"}
    answer = raw.create("/apis/example.io/v1/globes", globe)
    assert answer.code == 201
    assert "namespace" not in answer["metadata"]
    assert raw.get("/apis/example.io/v1/globes/g")["spec"]["size"] == 2
    assert raw.get("/apis/example.io/v1/namespaces/t/globes").code == 404


@pytest.mark.requirement("AS26")
def test_watches_end_when_their_kind_is_defined_anew(server: ApiServer, raw: Raw) -> None:
    watch = raw.watch(f"{RESOURCE}?watch=1&timeoutSeconds=60&resourceVersion={raw.get(RESOURCE).version}")
    raw.create(RESOURCE, widget("w"))
    changed = definition()
    changed["spec"]["versions"][0]["additionalPrinterColumns"] = []
    server.apply_definition(changed)
    assert [event["type"] for event in watch] == ["ADDED"]
    again = raw.watch(f"{RESOURCE}?watch=1&timeoutSeconds=60&resourceVersion={raw.get(RESOURCE).version}")
    raw.delete(f"{DEFINITIONS}/{NAME}")
    assert [event["type"] for event in again][-1] == "DELETED"
    eventually(lambda: raw.get(RESOURCE).code == 404)


@pytest.mark.requirement("AS15", "AS26")
def test_a_watch_that_was_being_opened_while_its_kind_went_ends(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()

    def late(*arguments: Any) -> None:
        assert gone.wait(60)
        watching.serve(*arguments)

    monkeypatch.setattr(reading, "serve", late)
    watch = raw.watch(f"{RESOURCE}?watch=1&timeoutSeconds=60")
    raw.delete(f"{DEFINITIONS}/{NAME}")
    eventually(lambda: raw.get(RESOURCE).code == 404)
    gone.set()
    assert list(watch) == []


@pytest.mark.requirement("AS5")
def test_bindings_give_a_pod_its_node(raw: Raw) -> None:
    pods = "/api/v1/namespaces/t/pods"
    raw.create(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})

    def bind(pod: str = "p", **target: str) -> tuple[int, str]:
        answer = raw.create(f"{pods}/p/binding", {"metadata": {"name": pod}, "target": target})
        return answer.code, answer.json.get("message", "")

    assert bind("other", kind="Node", name="n") == (400, "name in URL does not match name in Binding object")
    unsupported = 'target.kind: Unsupported value: "Foo": supported values: "Node", "<empty>"'
    assert bind(kind="Foo", name="n") == (500, unsupported)
    assert bind(kind="Node") == (500, "target.name: Required value")
    assert bind(kind="Node", name="n") == (201, "")
    assert raw.get(f"{pods}/p")["spec"]["nodeName"] == "n"
    assert "already assigned to node" in bind(kind="Node", name="m")[1]
    graceful = raw.delete(f"{pods}/p?gracePeriodSeconds=7")
    assert graceful["metadata"]["deletionGracePeriodSeconds"] == 7
    assert raw.get(f"{pods}/p").code == 200
    raw.delete(f"{pods}/p", {"gracePeriodSeconds": 0})
    assert raw.get(f"{pods}/p").code == 404
