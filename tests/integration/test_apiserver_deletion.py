"""Deletion in the embedded API server: finalizers, policies, garbage collection, namespaces."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.integration.raw_http import APPLY, Raw
from tests.integration.widgets import DEFINITION, RESOURCE, widget

from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.testing.waiting import eventually

CONFIG_MAPS = "/api/v1/namespaces/t/configmaps"
JOBS = "/apis/batch/v1/namespaces/t/jobs"
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


def owned(name: str, *owners: dict[str, Any], block: bool = False) -> dict[str, Any]:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"],
         "blockOwnerDeletion": block}
        for o in owners
    ]  # fmt: skip
    return {"metadata": {"name": name, "ownerReferences": references}}


@pytest.mark.requirement("AS19")
def test_without_finalizers_an_object_goes_at_once(raw: Raw, name: str) -> None:
    created = raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    answer = raw.delete(f"{CONFIG_MAPS}/{name}")
    assert answer.code == 200
    assert answer.json == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": name, "kind": "configmaps", "uid": created["metadata"]["uid"]},
    }  # fmt: skip
    missing = raw.delete(f"{CONFIG_MAPS}/{name}")
    assert (missing.code, missing.message) == (404, f'configmaps "{name}" not found')


@pytest.mark.requirement("AS19")
def test_with_finalizers_it_waits_for_the_last_one(raw: Raw, name: str) -> None:
    path = f"{CONFIG_MAPS}/{name}"
    raw.create(CONFIG_MAPS, {"metadata": {"name": name, "finalizers": ["example.io/a", "example.io/b"]}})
    first = raw.delete(path)
    metadata = first["metadata"]
    assert (first.code, metadata["deletionGracePeriodSeconds"]) == (200, 0)
    assert raw.delete(path)["metadata"] == metadata
    cleared = raw.patch(path, {"metadata": {"deletionTimestamp": None}})
    assert cleared["metadata"]["deletionTimestamp"] == metadata["deletionTimestamp"]
    more = raw.patch(path, {"metadata": {"finalizers": ["example.io/a", "example.io/b", "example.io/c"]}})
    assert more.code == 422
    assert "no new finalizers can be added if the object is being deleted" in more.message
    assert raw.patch(path, {"data": {"a": "b"}}).code == 200
    raw.patch(path, {"metadata": {"finalizers": ["example.io/b"]}})
    last = raw.patch(path, {"metadata": {"finalizers": None}})
    assert (last.code, last["data"]) == (200, {"a": "b"})
    assert raw.get(path).code == 404


@pytest.mark.requirement("AS19")
def test_a_client_cannot_set_the_deletion_timestamp(raw: Raw, name: str) -> None:
    raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    answer = raw.patch(f"{CONFIG_MAPS}/{name}", {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})
    assert answer.code == 422
    assert raw.get(f"{CONFIG_MAPS}/{name}").code == 200


@pytest.mark.requirement("AS19")
def test_deleted_events_carry_a_new_version(raw: Raw, name: str) -> None:
    created = raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    with_watch = raw.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion={created.version}")
    raw.delete(f"{CONFIG_MAPS}/{name}")
    event = with_watch.event()
    with_watch.close()
    assert event["type"] == "DELETED"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(created.version)


@pytest.mark.requirement("AS20")
def test_preconditions_and_policies(raw: Raw, name: str) -> None:
    path = f"{CONFIG_MAPS}/{name}"
    raw.create(CONFIG_MAPS, {"metadata": {"name": name}})
    for precondition in ({"uid": "zz"}, {"resourceVersion": "1"}):
        answer = raw.delete(path, {"preconditions": precondition})
        assert (answer.code, answer.reason) == (409, "Conflict")
    assert raw.delete(f"{path}?propagationPolicy=Someday").causes() == [
        (
            "FieldValueNotSupported",
            "propagationPolicy",
            'Unsupported value: "Someday": supported values: "Foreground", "Background", "Orphan", "nil"',
        )
    ]
    assert raw.delete(f"{path}?propagationPolicy=Orphan&orphanDependents=true").code == 422
    assert raw.get(path).code == 200


@pytest.mark.requirement("AS20")
def test_a_collection_returns_the_list(raw: Raw, name: str) -> None:
    for index in range(3):
        raw.create(CONFIG_MAPS, {"metadata": {"name": f"{name}-{index}", "labels": {"set": name}}})
    answer = raw.delete(f"{CONFIG_MAPS}?labelSelector=set%3D{name}")
    assert (answer.code, answer["kind"], len(answer["items"])) == (200, "ConfigMapList", 3)
    assert raw.get(f"{CONFIG_MAPS}?labelSelector=set%3D{name}")["items"] == []


@pytest.mark.requirement("AS21")
def test_a_dependent_goes_when_all_its_owners_are_gone(raw: Raw, name: str) -> None:
    owners = [raw.create(CONFIG_MAPS, {"metadata": {"name": f"{name}-{i}"}}).json for i in range(2)]
    child = f"{CONFIG_MAPS}/{name}"
    raw.create(CONFIG_MAPS, owned(name, *owners))
    raw.delete(f"{CONFIG_MAPS}/{name}-0?propagationPolicy=Background")
    eventually(lambda: len(raw.get(child)["metadata"].get("ownerReferences", [])) == 1)
    raw.delete(f"{CONFIG_MAPS}/{name}-1?propagationPolicy=Background")
    eventually(lambda: raw.get(child).code == 404)


@pytest.mark.requirement("AS21")
def test_foreground_waits_for_dependents_that_block(raw: Raw, name: str) -> None:
    owner = raw.create(CONFIG_MAPS, {"metadata": {"name": name}}).json
    child = owned(f"{name}-child", owner, block=True)
    child["metadata"]["finalizers"] = ["example.io/hold"]
    raw.create(CONFIG_MAPS, child)
    answer = raw.delete(f"{CONFIG_MAPS}/{name}?propagationPolicy=Foreground")
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    eventually(lambda: raw.get(f"{CONFIG_MAPS}/{name}-child")["metadata"].get("deletionTimestamp"))
    assert raw.get(f"{CONFIG_MAPS}/{name}").code == 200
    raw.patch(f"{CONFIG_MAPS}/{name}-child", {"metadata": {"finalizers": None}})
    eventually(lambda: raw.get(f"{CONFIG_MAPS}/{name}").code == 404)


@pytest.mark.requirement("AS21")
def test_orphans_keep_living_without_the_reference_and_jobs_orphan_by_default(raw: Raw, name: str) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = raw.create(JOBS, {"metadata": {"name": name}, "spec": {"template": template}}).json
    child = owned(name, job)
    child["metadata"]["ownerReferences"][0] |= {"apiVersion": "batch/v1", "kind": "Job"}
    raw.create(CONFIG_MAPS, child)
    assert "orphan" in raw.delete(f"{JOBS}/{name}")["metadata"]["finalizers"]
    eventually(lambda: raw.get(f"{JOBS}/{name}").code == 404)
    assert "ownerReferences" not in raw.get(f"{CONFIG_MAPS}/{name}")["metadata"]


@pytest.mark.requirement("AS21")
def test_a_cluster_scoped_child_of_a_namespaced_owner_is_left_alone(
    raw: Raw, server: ApiServer, name: str
) -> None:
    owner = raw.create(CONFIG_MAPS, {"metadata": {"name": name}}).json
    raw.create("/api/v1/namespaces", owned(name, owner))
    raw.delete(f"{CONFIG_MAPS}/{name}?propagationPolicy=Background")
    server.step()
    assert raw.get(f"/api/v1/namespaces/{name}")["status"]["phase"] == "Active"


@pytest.mark.requirement("AS22")
def test_a_terminating_namespace(raw: Raw, name: str) -> None:
    namespace = f"/api/v1/namespaces/{name}"
    maps = f"{namespace}/configmaps"
    widgets = RESOURCE.replace("/t/", f"/{name}/")
    raw.create("/api/v1/namespaces", {"metadata": {"name": name}})
    raw.create(maps, {"metadata": {"name": "held", "finalizers": ["example.io/hold"]}})
    raw.create(maps, {"metadata": {"name": "free"}})
    raw.create(widgets, widget("w"))
    assert raw.delete(namespace)["status"]["phase"] == "Terminating"
    late = raw.create(maps, {"metadata": {"name": "late"}})
    assert (late.code, late.reason) == (403, "Forbidden")
    assert late.message == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {name} because it is being '
        "terminated"
    )
    assert late.causes() == [
        ("NamespaceTerminating", "metadata.namespace", f"namespace {name} is being terminated")
    ]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}}
    assert raw.patch(f"{maps}/late?fieldManager=m", body, APPLY).code == 403
    assert raw.create(widgets, widget("late")).code == 403
    event = {"metadata": {"name": "late"}, "involvedObject": {"namespace": name}}
    assert raw.create(f"{namespace}/events", event).code == 403
    eventually(lambda: raw.get(f"{maps}/free").code == 404)
    eventually(lambda: raw.get(f"{widgets}/w").code == 404)
    assert raw.patch(f"{maps}/held", {"data": {"a": "b"}}).code == 200
    conditions = eventually(lambda: raw.get(namespace)["status"].get("conditions"))
    found = {c["type"]: c for c in conditions}
    assert len([kind for kind in found if kind.startswith("Namespace")]) == 5
    assert found["NamespaceContentRemaining"]["reason"] == "SomeResourcesRemain"
    assert "configmaps. has 1 resource instances" in found["NamespaceContentRemaining"]["message"]
    assert found["NamespaceFinalizersRemaining"]["reason"] == "SomeFinalizersRemain"
    assert "example.io/hold in 1 resource instances" in found["NamespaceFinalizersRemaining"]["message"]
    raw.patch(f"{maps}/held", {"metadata": {"finalizers": None}})
    eventually(lambda: raw.get(namespace).code == 404)


@pytest.mark.requirement("AS22")
def test_finalize_and_the_namespaces_that_never_end(raw: Raw, name: str) -> None:
    raw.create("/api/v1/namespaces", {"metadata": {"name": name}, "spec": {"finalizers": ["example.io/ns"]}})
    path = f"/api/v1/namespaces/{name}"
    assert raw.patch(path, {"spec": {"finalizers": []}})["spec"]["finalizers"] == [
        "example.io/ns",
        "kubernetes",
    ]
    raw.delete(path)
    eventually(lambda: raw.get(path)["spec"]["finalizers"] == ["example.io/ns"])
    assert raw("PUT", f"{path}/finalize", {"metadata": {"name": name}, "spec": {}}).code == 200
    assert raw.get(path).code == 404
    for immortal in ("default", "kube-system"):
        answer = raw.delete(f"/api/v1/namespaces/{immortal}")
        assert answer.code == 403
        assert answer.message == f'namespaces "{immortal}" is forbidden: this namespace may not be deleted'


@pytest.mark.requirement("AS23")
def test_controllers_work_by_step_and_on_the_injected_clock() -> None:
    clock = VirtualClock()
    with ApiServer(controllers=False, clock=clock) as server:
        raw = Raw(server)
        raw.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        owner = raw.create(CONFIG_MAPS, {"metadata": {"name": "owner"}}).json
        raw.create(CONFIG_MAPS, owned("child", owner))
        raw.delete(f"{CONFIG_MAPS}/owner?propagationPolicy=Background")
        assert raw.get(f"{CONFIG_MAPS}/child").code == 200
        assert server.step() is True
        assert raw.get(f"{CONFIG_MAPS}/child").code == 404
        clock.set(datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC))
        raw.create(CONFIG_MAPS, {"metadata": {"name": "held", "finalizers": ["example.io/x"]}})
        assert raw.delete("/api/v1/namespaces/t")["metadata"]["deletionTimestamp"] == "2031-05-04T03:02:01Z"
        server.step()
        conditions = raw.get("/api/v1/namespaces/t")["status"]["conditions"]
        assert {c["lastTransitionTime"] for c in conditions} == {"2031-05-04T03:02:01Z"}


@pytest.mark.requirement("AS23")
def test_in_background_they_act_at_once(raw: Raw, name: str) -> None:
    owner = raw.create(CONFIG_MAPS, {"metadata": {"name": name}}).json
    raw.create(CONFIG_MAPS, owned(f"{name}-child", owner))
    raw.delete(f"{CONFIG_MAPS}/{name}?propagationPolicy=Background")
    eventually(lambda: raw.get(f"{CONFIG_MAPS}/{name}-child").code == 404)


@pytest.mark.requirement("AS20")
@pytest.mark.parametrize(
    "options",
    [
        {"gracePeriodSeconds": "soon"},
        {"gracePeriodSeconds": True},
        {"orphanDependents": "no"},
        {"propagationPolicy": 5},
        {"preconditions": []},
        {"preconditions": {"uid": 5}},
        {"dryRun": "All"},
        {"dryRun": [True]},
    ],
)
def test_options_of_a_wrong_type_delete_nothing(raw: Raw, name: str, options: dict[str, Any]) -> None:
    raw.create(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"only": name}}})
    for path in (f"{CONFIG_MAPS}/{name}", f"{CONFIG_MAPS}?labelSelector=only%3D{name}"):
        assert raw.delete(path, options).code == 500
    assert raw.get(f"{CONFIG_MAPS}/{name}").code == 200
