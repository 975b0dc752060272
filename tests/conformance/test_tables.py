"""Tables, partial metadata, and what can be accepted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import config_map, widget
from tests.conformance.target import Case

pytestmark = pytest.mark.requirement("AS3")

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def names(table: dict[str, Any], wide: bool = False) -> list[str]:
    return [column["name"] for column in table["columnDefinitions"] if wide or not column["priority"]]


def shown(table: dict[str, Any]) -> list[list[Any]]:
    """Cells of the columns that are shown without `-o wide`."""
    chosen = [index for index, column in enumerate(table["columnDefinitions"]) if not column["priority"]]
    return [[row["cells"][index] for index in chosen] for row in table["rows"]]


def test_config_maps(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a", {"x": "1", "y": "2"}, labels={"t": "1"}))
    k.post(k.path("configmaps"), {"metadata": {"name": "b", "labels": {"t": "1"}}})
    answer = k.get(k.path("configmaps") + "?labelSelector=t", accept=TABLE)
    assert answer.code == 200
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert names(answer.body) == ["Name", "Data", "Age"]
    assert [row["cells"][:2] for row in answer.body["rows"]] == [["a", 2], ["b", 0]]
    row = answer.body["rows"][0]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["apiVersion"] == "meta.k8s.io/v1"
    assert row["object"]["metadata"]["name"] == "a"
    assert "data" not in row["object"]


def test_one_object(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.get(k.path("configmaps", "a"), accept=TABLE)
    assert answer.code == 200
    assert answer.body["kind"] == "Table"
    assert [row["cells"][0] for row in answer.body["rows"]] == ["a"]


def test_secrets(k: Case) -> None:
    k.post(k.path("secrets"), {"metadata": {"name": "a"}, "stringData": {"x": "1"}})
    answer = k.get(k.path("secrets", "a"), accept=TABLE)
    assert names(answer.body) == ["Name", "Type", "Data", "Age"]
    assert answer.body["rows"][0]["cells"][:3] == ["a", "Opaque", 1]


def test_namespaces(k: Case) -> None:
    answer = k.get(f"/api/v1/namespaces/{k.namespace}", accept=TABLE)
    assert names(answer.body) == ["Name", "Status", "Age"]
    assert answer.body["rows"][0]["cells"][:2] == [k.namespace, "Active"]


def test_leases(k: Case) -> None:
    path = k.path("leases.coordination.k8s.io")
    k.post(path, {"metadata": {"name": "a"}, "spec": {"holderIdentity": "x"}})
    answer = k.get(f"{path}/a", accept=TABLE)
    assert names(answer.body) == ["Name", "Holder", "Age"]
    assert answer.body["rows"][0]["cells"][:2] == ["a", "x"]


def test_jobs(k: Case) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
    body = {"metadata": {"name": "a"}, "spec": {"parallelism": 0, "completions": 3, "template": template}}
    k.post(k.path("jobs.batch"), body, record=False)
    answer = k.get(k.path("jobs.batch", "a"), accept=TABLE, record=False)
    columns = names(answer.body)
    assert {"Name", "Completions", "Duration", "Age"} <= set(columns)
    cells = dict(zip(columns, shown(answer.body)[0], strict=True))
    assert (cells["Name"], cells["Completions"]) == ("a", "0/3")


@pytest.mark.usefixtures("custom_resources")
def test_custom_resource(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a", {"size": 7, "color": "red"}))
    k.post(path, widget(GROUP, "b", {}))
    k.patch(f"{path}/a/status", {"status": {"phase": "Ready"}})
    answer = k.get(path, accept=TABLE)
    assert names(answer.body, wide=True) == ["Name", "Size", "Color", "Phase", "Age"]
    size, color = answer.body["columnDefinitions"][1:3]
    assert (size["type"], size["description"], size["priority"]) == ("integer", "How big", 0)
    assert color["priority"] == 1
    rows = [row["cells"][:4] for row in answer.body["rows"]]
    assert rows == [["a", 7, "red", "Ready"], ["b", 1, None, None]]


@pytest.mark.usefixtures("custom_resources")
def test_custom_resource_without_columns(k: Case) -> None:
    path = k.path(f"bares.{GROUP}")
    k.post(path, {"apiVersion": f"{GROUP}/v1", "kind": "Bare", "metadata": {"name": "a"}})
    answer = k.get(path, accept=TABLE)
    assert names(answer.body) == ["Name", "Age"]


def test_whole_objects(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.get(k.path("configmaps", "a") + "?includeObject=Object", accept=TABLE)
    row = answer.body["rows"][0]
    assert (row["object"]["kind"], row["object"]["data"]) == ("ConfigMap", {"a": "1"})


def test_no_objects(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.get(k.path("configmaps", "a") + "?includeObject=None", accept=TABLE)
    assert answer.body["rows"][0]["object"] is None


def test_partial_metadata(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a", labels={"x": "y"}))
    answer = k.get(k.path("configmaps", "a"), accept=PARTIAL)
    assert answer.code == 200
    assert answer.body == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": first.metadata,
    }


@pytest.mark.usefixtures("custom_resources")
def test_partial_metadata_of_a_list(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a"))
    answer = k.get(path, accept=PARTIAL_LIST)
    assert answer.code == 200
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert answer.body["metadata"]["resourceVersion"]
    [item] = answer.body["items"]
    assert item["metadata"]["name"] == "a"
    assert "spec" not in item


def test_first_acceptable_form(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.get(k.path("configmaps", "a"), accept=f"application/json;as=Nonsense,{TABLE},application/json")
    assert answer.code == 200
    assert answer.body["kind"] == "Table"


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Nonsense;v=v1;g=meta.k8s.io"])
def test_nothing_acceptable(k: Case, accept: str) -> None:
    answer = k.get(k.path("configmaps"), accept=accept)
    assert answer.code == 406
    assert answer.reason == "NotAcceptable"


def test_yaml(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.get(k.path("configmaps", "a"), accept="application/yaml", record=False)
    assert answer.code == 200
    assert "kind: ConfigMap\n" in answer.body
    assert answer.headers["content-type"] == "application/yaml"


def test_watch_of_tables(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    version = first.metadata["resourceVersion"]
    with k.watch(k.path("configmaps"), accept=TABLE, resourceVersion=version) as stream:
        k.post(k.path("configmaps"), config_map("b"))
        k.post(k.path("configmaps"), config_map("c"))
        one, two = stream.take(2)
    assert (one["type"], one["object"]["kind"]) == ("ADDED", "Table")
    assert one["object"]["rows"][0]["cells"][:2] == ["b", 1]
    # Columns are told once.
    assert [each["name"] for each in one["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert not two["object"]["columnDefinitions"]


def test_watch_of_partial_metadata(k: Case) -> None:
    first = k.post(k.path("configmaps"), config_map("a"))
    version = first.metadata["resourceVersion"]
    with k.watch(k.path("configmaps"), accept=PARTIAL, resourceVersion=version) as stream:
        k.post(k.path("configmaps"), config_map("b", labels={"x": "y"}))
        [event] = stream.take(1)
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert event["object"]["metadata"]["labels"] == {"x": "y"}
    assert "data" not in event["object"]
