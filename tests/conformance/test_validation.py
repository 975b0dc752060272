"""What metadata and the built-in kinds refuse."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import cause, config_map, failed, refused, widget
from tests.conformance.target import Case
from tests.conformance.versions import RESULTS

MISSING = "FieldValueRequired"
LEASES = "leases.coordination.k8s.io"
EVENTS = "events.events.k8s.io"

pytestmark = pytest.mark.requirement("AS17")


def owner(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u1", **changes}


METADATA: dict[str, tuple[dict[str, Any], set[str]]] = {
    "name": ({"name": "A_b"}, {"metadata.name"}),
    "name-too-long": ({"name": "a" * 254}, {"metadata.name"}),
    "label-key": ({"labels": {"a b": "x"}}, {"metadata.labels"}),
    "label-prefix": ({"labels": {"/x": "x"}}, {"metadata.labels"}),
    "label-value": ({"labels": {"a": "b c"}}, {"metadata.labels"}),
    "label-value-too-long": ({"labels": {"a": "b" * 64}}, {"metadata.labels"}),
    "annotation-key": ({"annotations": {"a b": "x"}}, {"metadata.annotations"}),
    "annotations-too-large": ({"annotations": {"a": "x" * 262144}}, {"metadata.annotations"}),
    "two-controllers": (
        {"ownerReferences": [owner(controller=True), owner(name="p", uid="u2", controller=True)]},
        {"metadata.ownerReferences"},
    ),
    "owner-without-uid": ({"ownerReferences": [owner(uid="")]}, {"metadata.ownerReferences.uid"}),
    "owner-without-name": ({"ownerReferences": [owner(name="")]}, {"metadata.ownerReferences.name"}),
    "owner-without-kind": ({"ownerReferences": [owner(kind="")]}, {"metadata.ownerReferences.kind"}),
    "owner-without-version": (
        {"ownerReferences": [owner(apiVersion="")]},
        {"metadata.ownerReferences.apiVersion"},
    ),
    "owner-event": ({"ownerReferences": [owner(kind="Event")]}, {"metadata.ownerReferences"}),
    "finalizer-without-slash": ({"finalizers": ["guard"]}, {"metadata.finalizers[0]"}),
    "finalizer-syntax": ({"finalizers": ["example.com/a b"]}, {"metadata.finalizers"}),
    "orphan-and-foreground": (
        {"finalizers": ["orphan", "foregroundDeletion"]},
        {"metadata.finalizers"},
    ),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata(k: Case, name: str) -> None:
    metadata, fields = METADATA[name]
    answer = k.post(k.path("configmaps"), {"metadata": {"name": "a", **metadata}, "data": {}})
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    assert {each["field"] for each in answer.causes} == fields
    assert k.get(k.path("configmaps", "a")).code == 404


@pytest.mark.usefixtures("custom_resources")
@pytest.mark.parametrize(
    "name",
    ["name", "label-value", "annotation-key", "two-controllers", "owner-without-uid", "finalizer-syntax"],
)
def test_metadata_of_a_custom_resource(k: Case, name: str) -> None:
    metadata, fields = METADATA[name]
    body = widget(GROUP, "a")
    body["metadata"].update(metadata)
    answer = k.post(k.path(f"widgets.{GROUP}"), body)
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    assert {each["field"] for each in answer.causes} == fields


def test_metadata_that_is_accepted(k: Case) -> None:
    metadata = {
        "labels": {"a": "", "example.com/b": "B.c_d-e", "A1": "x" * 63},
        "annotations": {"Some.Thing/Else": "x" * 1000, "b": ""},
        "finalizers": ["example.com/a", "kubernetes"],
        "ownerReferences": [owner(controller=True), owner(name="p", uid="u2")],
    }
    answer = k.post(k.path("configmaps") + "?dryRun=All", {"metadata": {"name": "a.b-c", **metadata}})
    assert answer.code == 201
    assert {key: answer.metadata[key] for key in metadata} == metadata


def test_body_over_the_limit(k: Case) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"a":"' + b"x" * 3145728 + b'"}}'
    answer = k.post(k.path("configmaps"), body, record=False)
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
    assert answer.message == "Request entity too large: limit is 3145728"


@pytest.mark.requirement("AS18")
def test_config_map_keys(k: Case) -> None:
    answer = k.post(k.path("configmaps"), config_map("a", {"a/b": "1"}))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert [each["field"] for each in answer.causes] == ["data[a/b]"]


@pytest.mark.requirement("AS18")
def test_config_map_size(k: Case) -> None:
    answer = k.post(k.path("configmaps"), config_map("a", {"a": "x" * 1048577}))
    text = "Too long: must have at most 1048576 bytes"
    assert answer.code == 422
    assert answer.causes[0]["reason"] == "FieldValueTooLong"
    assert answer.causes[0]["message"].startswith("Too long: ") or answer.causes[0]["message"] == text


@pytest.mark.requirement("AS18")
def test_immutable_config_map(k: Case) -> None:
    k.post(k.path("configmaps"), {**config_map("a"), "immutable": True})
    path = k.path("configmaps", "a")
    answer = k.patch(path, {"data": {"a": "2"}})
    text = "Forbidden: field is immutable when `immutable` is set"
    refused(answer, "ConfigMap", "a", [cause("data", text, "FieldValueForbidden")])
    unset = k.patch(path, {"immutable": None})
    refused(unset, "ConfigMap", "a", [cause("immutable", text, "FieldValueForbidden")])
    assert k.patch(path, {"metadata": {"labels": {"x": "y"}}}).code == 200


@pytest.mark.requirement("AS18")
class TestSecrets:
    """Secrets."""

    def test_string_data_wins(self, k: Case) -> None:
        body = {"metadata": {"name": "a"}, "data": {"x": "MQ==", "y": "Mg=="}, "stringData": {"x": "three"}}
        answer = k.post(k.path("secrets"), body)
        assert answer.code == 201
        assert answer.body["data"] == {"x": base64.b64encode(b"three").decode(), "y": "Mg=="}
        assert "stringData" not in answer.body
        assert answer.body["type"] == "Opaque"

    def test_string_data_of_a_patch(self, k: Case) -> None:
        k.post(k.path("secrets"), {"metadata": {"name": "a"}, "data": {"x": "MQ=="}})
        answer = k.patch(k.path("secrets", "a"), {"stringData": {"y": "2"}})
        assert answer.body["data"] == {"x": "MQ==", "y": "Mg=="}

    def test_bad_base64(self, k: Case) -> None:
        answer = k.post(k.path("secrets"), {"metadata": {"name": "a"}, "data": {"x": "!"}}, record=False)
        assert (answer.code, answer.reason) == (400, "BadRequest")
        assert answer.message.startswith('Secret in version "v1" cannot be handled as a Secret: ')
        assert "illegal base64 data at input byte 0" in answer.message

    def test_keys(self, k: Case) -> None:
        answer = k.post(k.path("secrets"), {"metadata": {"name": "a"}, "data": {"a/b": "MQ=="}})
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert [each["field"] for each in answer.causes] == ["data[a/b]"]

    def test_type_is_immutable(self, k: Case) -> None:
        k.post(k.path("secrets"), {"metadata": {"name": "a"}, "type": "example.com/x"})
        answer = k.patch(k.path("secrets", "a"), {"type": "example.com/y"})
        text = 'Invalid value: "example.com/y": field is immutable'
        refused(answer, "Secret", "a", [cause("type", text)])

    def test_size(self, k: Case) -> None:
        value = base64.b64encode(b"x" * 1048577).decode()
        answer = k.post(k.path("secrets"), {"metadata": {"name": "a"}, "data": {"a": value}})
        assert answer.code == 422
        assert (answer.causes[0]["field"], answer.causes[0]["reason"]) == ("data", "FieldValueTooLong")

    def test_immutable(self, k: Case) -> None:
        body = {"metadata": {"name": "a"}, "data": {"x": "MQ=="}, "immutable": True}
        k.post(k.path("secrets"), body)
        path = k.path("secrets", "a")
        answer = k.patch(path, {"data": {"x": "Mg=="}})
        text = "Forbidden: field is immutable when `immutable` is set"
        refused(answer, "Secret", "a", [cause("data", text, "FieldValueForbidden")])
        assert k.patch(path, {"metadata": {"labels": {"x": "y"}}}).code == 200
        assert k.delete(path).code == 200

    def test_type_needs_its_keys(self, k: Case) -> None:
        answer = k.post(k.path("secrets"), {"metadata": {"name": "a"}, "type": "kubernetes.io/tls"})
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert {each["field"] for each in answer.causes} == {"data[tls.crt]", "data[tls.key]"}


@pytest.mark.requirement("AS18")
class TestLeases:
    """Leases."""

    def lease(self, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": "a"}, "spec": spec}

    def test_times(self, k: Case) -> None:
        spec = {
            "holderIdentity": "x",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-02T03:04:05.123456Z",
            "renewTime": "2026-01-02T03:04:05.000000Z",
            "leaseTransitions": 0,
        }
        answer = k.post(k.path(LEASES), self.lease(**spec))
        assert answer.code == 201
        assert {key: value for key, value in answer.body["spec"].items() if not key.endswith("Time")} == {
            key: value for key, value in spec.items() if not key.endswith("Time")
        }

    @pytest.mark.parametrize("time", ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123Z", "soon"])
    def test_time_without_six_digits(self, k: Case, time: str) -> None:
        answer = k.post(k.path(LEASES), self.lease(renewTime=time), record=False)
        assert (answer.code, answer.reason) == (400, "BadRequest")

    def test_empty_holder(self, k: Case) -> None:
        answer = k.post(k.path(LEASES), self.lease(holderIdentity="", leaseDurationSeconds=1))
        assert answer.code == 201
        assert answer.body["spec"] == {"holderIdentity": "", "leaseDurationSeconds": 1}

    @pytest.mark.parametrize("seconds", [0, -1])
    def test_duration(self, k: Case, seconds: int) -> None:
        answer = k.post(k.path(LEASES), self.lease(leaseDurationSeconds=seconds))
        text = f"Invalid value: {seconds}: must be greater than 0"
        refused(answer, "Lease", "a", [cause("spec.leaseDurationSeconds", text)], "coordination.k8s.io")

    def test_transitions(self, k: Case) -> None:
        answer = k.post(k.path(LEASES), self.lease(leaseTransitions=-1))
        text = "Invalid value: -1: must to be greater or equal than 0"
        assert answer.code == 422
        assert answer.causes[0]["field"] == "spec.leaseTransitions", text


@pytest.mark.requirement("AS18")
class TestEvents:
    """Events of `events.k8s.io`, and the same ones in the core group."""

    def event(self, k: Case, **changes: Any) -> dict[str, Any]:
        body = {
            "metadata": {"name": "e"},
            "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": k.namespace, "name": "x"},
            "eventTime": "2026-01-02T03:04:05.123456Z",
            "reportingController": "example.com/c",
            "reportingInstance": "i",
            "action": "Test",
            "reason": "Test",
            "note": "A note.",
            "type": "Normal",
        }
        return {key: value for key, value in (body | changes).items() if value is not None}

    def test_both_groups(self, k: Case) -> None:
        answer = k.post(k.path(EVENTS), self.event(k))
        assert answer.code == 201
        core = k.get(k.path("events", "e"))
        assert core.code == 200
        assert core.body["message"] == "A note."
        assert core.body["involvedObject"]["name"] == "x"
        assert core.body["reportingComponent"] == "example.com/c"

    def test_core_event(self, k: Case) -> None:
        body = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "ConfigMap", "namespace": k.namespace, "name": "x"},
            "reason": "Test",
            "message": "A note.",
            "type": "Warning",
            "source": {"component": "c"},
        }
        assert k.post(k.path("events"), body).code == 201
        answer = k.get(k.path(EVENTS, "e"))
        assert (answer.body["note"], answer.body["deprecatedSource"]) == ("A note.", {"component": "c"})

    def test_namespace_of_its_object(self, k: Case) -> None:
        body = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "ConfigMap", "namespace": "other", "name": "x"},
            "reason": "Test",
        }
        answer = k.post(k.path("events"), body)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert {each["field"] for each in answer.causes} == {"involvedObject.namespace"}

    def test_cluster_scoped_object_of_a_core_event(self, k: Case) -> None:
        body = {
            "metadata": {"name": k.namespace},
            "involvedObject": {"kind": "Namespace", "name": k.namespace},
            "reason": "Test",
        }
        assert k.post(k.path("events"), body).code == 422
        path = k.path("events", namespace="default")
        assert k.post(path, body).code == 201
        k.delete(f"{path}/{k.namespace}", record=False)

    def test_cluster_scoped_object(self, k: Case) -> None:
        regarding = {"apiVersion": "v1", "kind": "Namespace", "name": k.namespace}
        answer = k.post(k.path(EVENTS), self.event(k, regarding=regarding))
        assert (answer.code, answer.reason) == (422, "Invalid")
        name = {"name": k.namespace}
        path = k.path(EVENTS, namespace=RESULTS["event/cluster-scoped-namespace"][k.server.version])
        assert k.post(path, self.event(k, regarding=regarding, metadata=name)).code == 201
        k.delete(f"{path}/{k.namespace}", record=False)

    @pytest.mark.parametrize(
        "field", ["action", "reason", "reportingController", "reportingInstance", "eventTime", "type"]
    )
    def test_required(self, k: Case, field: str) -> None:
        answer = k.post(k.path(EVENTS), self.event(k, **{field: None}))
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert {each["field"] for each in answer.causes} == {field}

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("action", "x" * 129),
            ("reason", "x" * 129),
            ("reportingInstance", "x" * 129),
            ("note", "x" * 1025),
            ("type", "Odd"),
            ("reportingController", "a b"),
        ],
        ids=["action", "reason", "instance", "note", "type", "controller"],
    )
    def test_limits(self, k: Case, field: str, value: str) -> None:
        answer = k.post(k.path(EVENTS), self.event(k, **{field: value}))
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert {each["field"] for each in answer.causes} == {field if field != "note" else "message"} or {
            each["field"] for each in answer.causes
        } == {field}

    def test_series(self, k: Case) -> None:
        series = {"count": 1, "lastObservedTime": "2026-01-02T03:04:05.123456Z"}
        answer = k.post(k.path(EVENTS), self.event(k, series=series))
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert [each["field"] for each in answer.causes] == ["series.count"]
        good = k.post(k.path(EVENTS), self.event(k, series={**series, "count": 2}))
        assert good.code == 201

    def test_series_of_a_patch(self, k: Case) -> None:
        k.post(k.path(EVENTS), self.event(k))
        series = {"count": 3, "lastObservedTime": "2026-01-02T03:05:05.123456Z"}
        answer = k.patch(k.path(EVENTS, "e"), {"series": series})
        assert answer.code == 200
        assert answer.body["series"] == series

    def test_event_is_immutable(self, k: Case) -> None:
        k.post(k.path(EVENTS), self.event(k))
        answer = k.patch(k.path(EVENTS, "e"), {"reason": "Other"})
        assert answer.code == RESULTS["event/immutable"][k.server.version]
        if answer.code == 422:
            assert [each["field"] for each in answer.causes] == ["reason"]


@pytest.mark.requirement("AS18")
class TestJobs:
    """Jobs, as far as CAPTF relies on what the server does with them."""

    def job(self, **spec: Any) -> dict[str, Any]:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
        return {"metadata": {"name": "a"}, "spec": {"parallelism": 0, "template": template, **spec}}

    def test_selector_is_generated(self, k: Case) -> None:
        answer = k.post(k.path("jobs.batch"), self.job())
        assert answer.code == 201
        labels = answer.body["spec"]["template"]["metadata"]["labels"]
        assert labels["controller-uid"] == answer.metadata["uid"]
        assert labels["job-name"] == "a"
        assert answer.body["spec"]["backoffLimit"] == 6

    def test_template_is_immutable(self, k: Case) -> None:
        first = k.post(k.path("jobs.batch"), self.job())
        body = first.body
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
        # Without a version, as the job controller may write in between.
        del body["metadata"]["resourceVersion"]
        answer = k.put(k.path("jobs.batch", "a"), body, record=False)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert [each["field"] for each in answer.causes] == ["spec.template"]
        assert answer.causes[0]["message"].endswith(": field is immutable")

    def test_parallelism_can_change(self, k: Case) -> None:
        k.post(k.path("jobs.batch"), self.job())
        answer = k.patch(
            k.path("jobs.batch", "a"), {"spec": {"parallelism": 0, "activeDeadlineSeconds": 9}}, record=False
        )
        assert answer.code == 200

    def test_restart_policy(self, k: Case) -> None:
        template = {"spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "none"}]}}
        answer = k.post(k.path("jobs.batch"), self.job(template=template))
        assert answer.code == 422
        assert {each["field"] for each in answer.causes} == {"spec.template.spec.restartPolicy"}

    def test_no_containers(self, k: Case) -> None:
        answer = k.post(k.path("jobs.batch"), self.job(template={"spec": {"restartPolicy": "Never"}}))
        assert answer.code == 422
        assert [each["field"] for each in answer.causes] == ["spec.template.spec.containers"]

    def test_name_is_a_label(self, k: Case) -> None:
        body = self.job()
        body["metadata"]["name"] = "a" * 64
        answer = k.post(k.path("jobs.batch"), body)
        assert answer.code == 422
        assert answer.causes


@pytest.mark.requirement("AS27")
def test_role_ref_is_immutable(k: Case) -> None:
    group = "rbac.authorization.k8s.io"
    path = k.path(f"rolebindings.{group}")
    reference = {"apiGroup": group, "kind": "Role", "name": "r"}
    k.post(path, {"metadata": {"name": "a"}, "roleRef": reference})
    answer = k.patch(f"{path}/a", {"roleRef": {"name": "s"}})
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert [each["field"] for each in answer.causes] == ["roleRef"]
    assert answer.causes[0]["message"].endswith(": cannot change roleRef")


@pytest.mark.requirement("AS27")
def test_rule_without_verbs(k: Case) -> None:
    path = k.path("roles.rbac.authorization.k8s.io")
    body = {"metadata": {"name": "a"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]}
    answer = k.post(path, body)
    text = "Required value: verbs must contain at least one value"
    refused(answer, "Role", "a", [cause("rules[0].verbs", text, MISSING)], "rbac.authorization.k8s.io")


@pytest.mark.requirement("AS11")
def test_version_that_is_no_number(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    answer = k.put(k.path("configmaps", "a"), config_map("a", resourceVersion="abc"), record=False)
    assert answer.code in (400, 422, 500)
    assert k.get(k.path("configmaps", "a")).body["data"] == {"a": "1"}


@pytest.mark.requirement("AS9")
def test_wrong_verb(k: Case) -> None:
    answer = k.call("PROPFIND", k.path("configmaps"), record=False)
    text = "the server does not allow this method on the requested resource"
    assert answer.code in (404, 405), text
    if answer.code == 405:
        failed(answer, 405, "MethodNotAllowed", text, answer.body.get("details"))


@pytest.mark.requirement("AS18")
@pytest.mark.parametrize("content", ["[]", "1", '"x"', "true", "x", "null", "{}"])
@pytest.mark.parametrize("form", ["dockercfg", "dockerconfigjson"])
def test_registry_credentials_are_an_object(k: Case, form: str, content: str) -> None:
    data = {f".{form}": base64.b64encode(content.encode()).decode()}
    secret = {"metadata": {"name": "a"}, "type": f"kubernetes.io/{form}", "data": data}
    answer = k.post(k.path("secrets"), secret)
    if content in ("null", "{}"):
        assert answer.code == 201
        return
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert [each["field"] for each in answer.causes] == [f"data[.{form}]"]


@pytest.mark.requirement("AS12")
@pytest.mark.parametrize("count", ["active", "succeeded", "failed"])
def test_counts_of_a_job_are_not_negative(k: Case, count: str) -> None:
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"metadata": {"name": "a"}, "spec": {"parallelism": 0, "template": pod}}
    assert k.call("POST", k.path("jobs.batch"), job, record=False).code == 201
    answer = k.patch(k.path("jobs.batch", "a", "status"), {"status": {count: -1}})
    assert answer.causes == [
        cause(f"status.{count}", "Invalid value: -1: must be greater than or equal to 0")
    ]
