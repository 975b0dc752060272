"""Validation by the embedded API server: definitions, custom resources, metadata, built-in kinds, options."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.raw_http import JSON, Raw
from tests.integration.widgets import DEFINITION, DEFINITIONS, NAME, RESOURCE, definition, widget

from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.waiting import eventually

CONFIG_MAPS = "/api/v1/namespaces/t/configmaps"
SECRETS = "/api/v1/namespaces/t/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/t/leases"
EVENTS = "/apis/events.k8s.io/v1/namespaces/t/events"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=[DEFINITION]) as running:
        Raw(running).create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        yield running


@pytest.fixture
def raw(server: ApiServer) -> Raw:
    return Raw(server)


@pytest.fixture
def name() -> str:
    return f"o{next(_numbers)}"


@pytest.mark.requirement("AS15")
def test_an_accepted_definition_is_established(raw: Raw) -> None:
    conditions = {
        c["type"]: (c["status"], c["reason"])
        for c in raw.get(f"{DEFINITIONS}/{NAME}")["status"]["conditions"]
    }
    assert conditions["NamesAccepted"] == ("True", "NoConflicts")
    assert conditions["Established"] == ("True", "InitialNamesAccepted")


@pytest.mark.requirement("AS15")
@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ({"versions": []}, "spec.versions"),
        ({"scope": "Everywhere"}, "spec.scope"),
        ({"group": "other.io"}, "metadata.name"),
        (
            {"versions": [{"name": "v1", "served": True, "storage": True}]},
            "spec.versions[0].schema.openAPIV3Schema",
        ),
    ],
)
def test_broken_definitions(raw: Raw, broken: dict[str, Any], field: str) -> None:
    answer = raw.create(DEFINITIONS, definition(**broken))
    assert answer.code == 422
    assert field in [cause[1] for cause in answer.causes()]


@pytest.mark.requirement("AS15")
def test_the_schema_must_be_structural(raw: Raw) -> None:
    broken = definition()
    del broken["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"]
    assert raw.create(DEFINITIONS, broken).code == 422


@pytest.mark.requirement("AS15")
def test_deleting_a_definition_deletes_its_objects() -> None:
    with ApiServer(crds=[DEFINITION]) as server:
        raw = Raw(server)
        raw.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        held = widget("held")
        held["metadata"]["finalizers"] = ["example.io/hold"]
        raw.create(RESOURCE, widget("free"))
        raw.create(RESOURCE, held)
        raw.delete(f"{DEFINITIONS}/{NAME}")
        eventually(lambda: raw.get(f"{RESOURCE}/free").code == 404)
        assert raw.create(RESOURCE, widget("late")).code == 405
        assert raw.get(f"{RESOURCE}/held")["metadata"]["deletionTimestamp"]
        raw.patch(f"{RESOURCE}/held", {"metadata": {"finalizers": None}})
        eventually(lambda: raw.get(f"{DEFINITIONS}/{NAME}").code == 404)
        assert raw.get(RESOURCE).code == 404


@pytest.mark.requirement("AS16")
def test_pruned_and_defaulted(raw: Raw, name: str) -> None:
    sent = widget(name, 1, unknown=1, ports=[{"name": "a"}], free={"any": {"thing": 1}}, mode=None)
    spec = raw.create(RESOURCE, sent)["spec"]
    assert spec == {
        "size": 1, "mode": "A", "ports": [{"name": "a", "port": 80}], "free": {"any": {"thing": 1}},
    }  # fmt: skip


@pytest.mark.requirement("AS16")
def test_defaults_that_a_schema_gains_are_seen_on_read() -> None:
    with ApiServer(crds=[DEFINITION]) as server:
        raw = Raw(server)
        raw.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        raw.create(RESOURCE, widget("old"))
        newer = definition()
        properties = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
            "properties"
        ]
        properties["color"] = {"type": "string", "default": "red"}
        server.apply_definition(newer)
        assert raw.get(f"{RESOURCE}/old")["spec"]["color"] == "red"
        assert raw.get(RESOURCE)["items"][0]["spec"]["color"] == "red"


@pytest.mark.requirement("AS16")
@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (
            {"size": 11},
            "spec.size",
            "Invalid value: 11: spec.size in body should be less than or equal to 10",
        ),
        ({"size": 1, "mode": "C"}, "spec.mode", 'Unsupported value: "C": supported values: "A", "B"'),
        ({}, "spec.size", "Required value"),
        ({"size": "x"}, "spec.size", 'spec.size in body must be of type integer: "string"'),
        (
            {"size": 1, "ports": [{"name": "a"}, {"name": "a"}]},
            "spec.ports[1]",
            'Duplicate value: map[string]interface {}{"name":"a"}',
        ),
    ],
)
def test_one_cause_for_each_error(
    raw: Raw, name: str, spec: dict[str, Any], field: str, message: str
) -> None:
    body = widget(name)
    body["spec"] = spec
    answer = raw.create(RESOURCE, body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.message.startswith(f'Widget.example.io "{name}" is invalid: ')
    found = {cause[1]: cause[2] for cause in answer.causes()}
    assert message in found[field]


@pytest.mark.requirement("AS16")
def test_rules_see_the_old_object(raw: Raw, name: str) -> None:
    raw.create(RESOURCE, widget(name, 1, fixed="a"))
    changed = raw.patch(f"{RESOURCE}/{name}", {"spec": {"fixed": "b"}})
    assert changed.code == 422
    assert "fixed is immutable" in changed.message
    assert raw.patch(f"{RESOURCE}/{name}", {"spec": {"size": 2}}).code == 200


@pytest.mark.requirement("AS16")
def test_field_validation(raw: Raw, name: str) -> None:
    strict = raw.create(f"{RESOURCE}?fieldValidation=Strict", widget(name, 1, extra=1))
    assert (strict.code, strict.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.extra"' in strict.message
    double = (
        '{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"d"},"spec":{"size":1,"size":2}}'
    )
    assert 'duplicate field "spec.size"' in raw("POST", f"{RESOURCE}?fieldValidation=Strict", double).message
    warned = raw.create(f"{RESOURCE}?fieldValidation=Warn", widget(name, 1, extra=1))
    assert warned.code == 201
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.extra\\""'
    built_in = raw.create(f"{CONFIG_MAPS}?fieldValidation=Strict", {"metadata": {"name": name}, "extra": 1})
    assert built_in.code == 400
    assert raw.create(f"{RESOURCE}?fieldValidation=Maybe", widget("x")).code == 422


@pytest.mark.requirement("AS17")
@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "Upper_"}, "metadata.name"),
        ({"labels": {"a b": "c"}}, "metadata.labels"),
        ({"labels": {"a": "c d"}}, "metadata.labels"),
        ({"annotations": {"a b": "c"}}, "metadata.annotations"),
        ({"annotations": {"a": "c" * 262_144}}, "metadata.annotations"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "b", "uid": ""}]},
            "metadata.ownerReferences.uid",
        ),
        (
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": n, "uid": n, "controller": True} for n in "ab"
                ]
            },
            "metadata.ownerReferences",
        ),
        ({"finalizers": ["foo"]}, "metadata.finalizers[0]"),
    ],
)
def test_metadata(raw: Raw, name: str, metadata: dict[str, Any], field: str) -> None:
    answer = raw.create(CONFIG_MAPS, {"metadata": {"name": name, **metadata}})
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert field in [cause[1] for cause in answer.causes()]


@pytest.mark.requirement("AS17")
def test_bodies_over_three_mebibytes_are_refused(raw: Raw) -> None:
    answer = raw.create(CONFIG_MAPS, b'{"metadata":{"name":"big"}}' + b" " * 3_145_728)
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
    assert answer.message == "Request entity too large: limit is 3145728"


@pytest.mark.requirement("AS17")
def test_dry_run_runs_everything_and_stores_nothing(raw: Raw, name: str) -> None:
    created = raw.create(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": name}})
    assert created.code == 201
    assert created["metadata"]["uid"]
    assert raw.get(f"{CONFIG_MAPS}/{name}").code == 404
    assert raw.create(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "B_"}}).code == 422
    stored = raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    assert raw.patch(f"{CONFIG_MAPS}/{name}?dryRun=All", {"data": {"a": "b"}})["data"] == {"a": "b"}
    assert raw.delete(f"{CONFIG_MAPS}/{name}?dryRun=All").code == 200
    assert raw.get(f"{CONFIG_MAPS}/{name}").version == stored.version
    assert raw.create(f"{CONFIG_MAPS}?dryRun=Some", {"metadata": {"name": name}}).code == 422


@pytest.mark.requirement("AS18")
def test_secrets(raw: Raw, name: str) -> None:
    body = {"metadata": {"name": name}, "data": {"a": "Yg=="}, "stringData": {"a": "c", "d": "e"}}
    created = raw.create(SECRETS, body)
    assert "stringData" not in created.json
    assert created["data"] == {"a": "Yw==", "d": "ZQ=="}
    assert created["type"] == "Opaque"
    path = f"{SECRETS}/{name}"
    assert raw.create(SECRETS, {"metadata": {"name": "x"}, "data": {"a": "!"}}).code == 400
    assert (
        raw.create(SECRETS, {"metadata": {"name": "x"}, "data": {"a b": "Yg=="}}).causes()[0][1]
        == "data[a b]"
    )
    assert "field is immutable" in raw.patch(path, {"type": "other"}).message
    large = base64.b64encode(b"x" * 1_048_577).decode()
    assert "1048576 bytes" in raw.create(SECRETS, {"metadata": {"name": "x"}, "data": {"a": large}}).message


@pytest.mark.requirement("AS18")
def test_an_immutable_secret_keeps_its_data_and_takes_labels(raw: Raw, name: str) -> None:
    path = f"{SECRETS}/{name}"
    raw.create(SECRETS, {"metadata": {"name": name}, "immutable": True, "data": {"a": "Yg=="}})
    assert raw.patch(path, {"data": {"a": "Yw=="}}).code == 422
    assert raw.patch(path, {"immutable": False}).code == 422
    assert raw.patch(path, {"metadata": {"labels": {"a": "b"}}}).code == 200


@pytest.mark.requirement("AS18")
def test_leases(raw: Raw, name: str) -> None:
    def lease(**spec: object) -> dict[str, object]:
        return {"metadata": {"name": name}, "spec": spec}

    assert raw.create(LEASES, lease(leaseDurationSeconds=0)).code == 422
    for time in ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123Z"):
        assert raw.create(LEASES, lease(renewTime=time)).code == 400
    answer = raw.create(LEASES, lease(renewTime="2026-01-01T00:00:00.123456Z", holderIdentity=""))
    assert (answer.code, answer["spec"]["holderIdentity"]) == (201, "")


GOOD_EVENT = {
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "example.io/c",
    "reportingInstance": "i",
    "action": "A",
    "reason": "R",
    "type": "Normal",
    "note": "n",
    "regarding": {"kind": "Widget", "name": "w", "namespace": "t"},
}


@pytest.mark.requirement("AS18")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"eventTime": None}, "eventTime"),
        ({"reportingController": ""}, "reportingController"),
        ({"reportingInstance": "x" * 129}, "reportingInstance"),
        ({"action": ""}, "action"),
        ({"reason": "x" * 129}, "reason"),
        ({"note": "x" * 1025}, "message"),
        ({"type": "Loud"}, "type"),
        ({"series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}, "series.count"),
        ({"regarding": {"kind": "Node", "name": "n"}}, "involvedObject.namespace"),
    ],
)
def test_events(raw: Raw, name: str, change: dict[str, Any], field: str) -> None:
    answer = raw.create(EVENTS, {"metadata": {"name": name}, **GOOD_EVENT, **change})
    assert answer.code == 422
    assert field in [cause[1] for cause in answer.causes()]


@pytest.mark.requirement("AS18")
def test_events_of_cluster_scoped_objects_live_in_default(raw: Raw, name: str) -> None:
    body = {"metadata": {"name": name}, **GOOD_EVENT, "regarding": {"kind": "Node", "name": "n"}}
    assert raw.create("/apis/events.k8s.io/v1/namespaces/default/events", body).code == 201


@pytest.mark.requirement("AS16")
def test_a_json_patch_is_judged_by_its_result(raw: Raw, name: str) -> None:
    raw.create(RESOURCE, widget(name))
    answer = raw.patch(f"{RESOURCE}/{name}", [{"op": "replace", "path": "/spec/size", "value": 99}], JSON)
    assert answer.code == 422
    assert raw.get(f"{RESOURCE}/{name}")["spec"]["size"] == 1
