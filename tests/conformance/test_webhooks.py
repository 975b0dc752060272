"""Validating webhooks: when they are called, with what, and what their answers do."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import config_map, failed, widget
from tests.conformance.target import Case

pytestmark = pytest.mark.requirement("AS28")

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Hook:
    """A webhook server on loopback that answers as it is told and keeps what it was asked."""

    def __init__(self, directory: Path) -> None:
        self.requests: list[dict[str, Any]] = []
        self.response: dict[str, Any] = {"allowed": True}
        self.status = 200
        self.raw: bytes | None = None
        self.hold = threading.Event()
        self.hold.set()
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        self.bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}/validate"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.requests.append(review["request"])
                hook.hold.wait(60)
                answer = {
                    "apiVersion": "admission.k8s.io/v1",
                    "kind": "AdmissionReview",
                    "response": {"uid": review["request"]["uid"], **hook.response},
                }
                body = hook.raw if hook.raw is not None else json.dumps(answer).encode()
                self.send_response(hook.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Requests are kept, not logged."""

        return Handler

    def close(self) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Hook]:
    server = Hook(tmp_path)
    yield server
    server.close()


@pytest.fixture
def install(k: Case, hook: Hook, custom_resources: dict[str, str]) -> Iterator[Any]:
    """Install the hook for ConfigMaps and Widgets of the case's namespace."""
    name = k.namespace
    path = f"/api/v1/namespaces/{k.namespace}"
    labelled = k.call(
        "PATCH",
        path,
        {"metadata": {"labels": {"case": k.namespace}}},
        content_type="application/merge-patch+json",
        record=False,
    )
    assert labelled.code == 200

    def put(**changes: Any) -> None:
        webhook = {
            "name": "check.example.com",
            "clientConfig": {"url": hook.url, "caBundle": hook.bundle},
            "rules": [
                {
                    "operations": ["*"],
                    "apiGroups": ["", GROUP],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps", "widgets", "widgets/status"],
                }
            ],
            "namespaceSelector": {"matchLabels": {"case": k.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": 30,
            **changes,
        }
        body = {"metadata": {"name": name}, "webhooks": [webhook]}
        assert k.call("POST", CONFIGURATIONS, body, record=False).code == 201

    yield put
    k.call("DELETE", f"{CONFIGURATIONS}/{name}", record=False)


def called(k: Case, hook: Hook) -> None:
    """Wait until the real server has seen the configuration."""

    def check() -> bool:
        k.call("POST", k.path("configmaps") + "?dryRun=All", config_map("probe"), record=False)
        return bool(hook.requests)

    k.eventually(check, "the webhook to be called")
    hook.requests.clear()


def test_allows(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    assert k.post(k.path("configmaps"), config_map("a")).code == 201
    [request] = hook.requests
    assert request["operation"] == "CREATE"
    assert request["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (request["namespace"], request["name"], request["dryRun"]) == (k.namespace, "a", False)
    assert request["object"]["data"] == {"a": "1"}
    assert request["oldObject"] is None
    assert request["userInfo"]["username"] == "admin"
    assert "system:masters" in request["userInfo"]["groups"]


def test_denies(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    hook.response = {"allowed": False, "status": {"message": "not today"}}
    answer = k.post(k.path("configmaps"), config_map("a"))
    text = 'admission webhook "check.example.com" denied the request: not today'
    failed(answer, 400, "", text)
    assert k.get(k.path("configmaps", "a")).code == 404


def test_denies_with_a_code(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    status = {"code": 403, "reason": "Forbidden", "message": "never"}
    hook.response = {"allowed": False, "status": status}
    answer = k.post(k.path("configmaps"), config_map("a"))
    text = 'admission webhook "check.example.com" denied the request: never'
    failed(answer, 403, "Forbidden", text)


def test_denies_with_causes(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    causes = [{"reason": "FieldValueInvalid", "message": "Invalid value: 3: too odd", "field": "data.a"}]
    details = {"name": "a", "kind": "ConfigMap", "causes": causes}
    status = {"code": 422, "reason": "Invalid", "message": "ConfigMap is invalid", "details": details}
    hook.response = {"allowed": False, "status": status}
    answer = k.post(k.path("configmaps"), config_map("a"))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.message == 'admission webhook "check.example.com" denied the request: ConfigMap is invalid'
    assert answer.causes == causes


def test_denies_without_a_message(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    hook.response = {"allowed": False}
    answer = k.post(k.path("configmaps"), config_map("a"))
    failed(answer, 400, "", 'admission webhook "check.example.com" denied the request without explanation')


def test_warnings(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    hook.response = {"allowed": True, "warnings": ["mind the gap"]}
    answer = k.post(k.path("configmaps"), config_map("a"))
    assert answer.code == 201
    assert answer.headers["warning"] == '299 - "mind the gap"'


def test_update_and_delete(k: Case, hook: Hook, install: Any) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    install()
    called(k, hook)
    k.patch(k.path("configmaps", "a"), {"data": {"a": "2"}})
    k.delete(k.path("configmaps", "a"))
    update, delete = hook.requests
    assert (update["operation"], delete["operation"]) == ("UPDATE", "DELETE")
    assert update["object"]["data"] == {"a": "2"}
    assert update["oldObject"]["data"] == {"a": "1"}
    assert delete["object"] is None
    assert delete["oldObject"]["data"] == {"a": "2"}
    assert delete["options"]["kind"] == "DeleteOptions"


def test_denied_delete(k: Case, hook: Hook, install: Any) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    install()
    called(k, hook)
    hook.response = {"allowed": False, "status": {"message": "it stays"}}
    answer = k.delete(k.path("configmaps", "a"))
    failed(answer, 400, "", 'admission webhook "check.example.com" denied the request: it stays')
    assert k.get(k.path("configmaps", "a")).code == 200


def test_operations(k: Case, hook: Hook, install: Any) -> None:
    rules = [
        {"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    ]
    install(rules=rules)
    k.post(k.path("configmaps"), config_map("a"))
    hook.response = {"allowed": False}

    def check() -> bool:
        patch = {"data": {"a": "2"}}
        media = "application/merge-patch+json"
        path = k.path("configmaps", "a") + "?dryRun=All"
        return k.call("PATCH", path, patch, content_type=media, record=False).code == 400

    k.eventually(check, "the webhook to be called")
    assert k.post(k.path("configmaps"), config_map("b")).code == 201
    assert {request["operation"] for request in hook.requests} == {"UPDATE"}


def test_custom_resource_and_status(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a"))
    k.patch(f"{path}/a/status", {"status": {"phase": "Ready"}})
    create, status = hook.requests
    assert create["kind"] == {"group": GROUP, "version": "v1", "kind": "Widget"}
    assert create["object"]["spec"] == {"color": "red", "size": 1}
    assert (create.get("subResource"), status.get("subResource")) == (None, "status")
    assert status["object"]["status"] == {"phase": "Ready"}


def test_other_resources_are_left_alone(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    hook.response = {"allowed": False}
    assert k.post(k.path("secrets"), {"metadata": {"name": "a"}}).code == 201
    assert not hook.requests


def test_other_namespaces_are_left_alone(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    hook.response = {"allowed": False}
    answer = k.post(k.path("configmaps", namespace="default") + "?dryRun=All", config_map("a"))
    assert answer.code == 201


def test_object_selector(k: Case, hook: Hook, install: Any) -> None:
    install(objectSelector={"matchLabels": {"checked": "yes"}})
    hook.response = {"allowed": False}

    def check() -> bool:
        body = config_map("probe", labels={"checked": "yes"})
        return k.call("POST", k.path("configmaps") + "?dryRun=All", body, record=False).code == 400

    k.eventually(check, "the webhook to be called")
    assert k.post(k.path("configmaps"), config_map("a")).code == 201


def test_dry_run(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    assert k.post(k.path("configmaps") + "?dryRun=All", config_map("a")).code == 201
    assert [request["dryRun"] for request in hook.requests] == [True]


def test_unreachable_and_fail(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    hook.status, hook.raw = 500, b"broken"
    answer = k.post(k.path("configmaps"), config_map("a"), record=False)
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert answer.message.startswith('Internal error occurred: failed calling webhook "check.example.com": ')
    assert k.get(k.path("configmaps", "a")).code == 404


def test_unreachable_and_ignore(k: Case, hook: Hook, install: Any) -> None:
    install(failurePolicy="Ignore")
    called(k, hook)
    hook.status, hook.raw = 500, b"broken"
    assert k.post(k.path("configmaps"), config_map("a")).code == 201
    assert hook.requests


def test_timeout(k: Case, hook: Hook, install: Any) -> None:
    install(timeoutSeconds=1)
    called(k, hook)
    hook.hold.clear()
    begun = datetime.datetime.now(datetime.UTC)
    answer = k.post(k.path("configmaps"), config_map("a"), record=False)
    elapsed = (datetime.datetime.now(datetime.UTC) - begun).total_seconds()
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert 0.5 < elapsed < 25  # not the 30 seconds that are the most


def test_answer_without_a_response(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    hook.raw = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}'
    answer = k.post(k.path("configmaps"), config_map("a"), record=False)
    assert (answer.code, answer.reason) == (500, "InternalError")


def test_validation_comes_first(k: Case, hook: Hook, install: Any) -> None:
    install()
    called(k, hook)
    hook.response = {"allowed": False, "status": {"message": "not today"}}
    answer = k.post(k.path(f"widgets.{GROUP}"), widget(GROUP, "a", {"size": 99}))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert not hook.requests


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"sideEffects": None}, "webhooks[0].sideEffects"),
        ({"admissionReviewVersions": []}, "webhooks[0].admissionReviewVersions"),
        ({"name": "short"}, "webhooks[0].name"),
        ({"failurePolicy": "Odd"}, "webhooks[0].failurePolicy"),
        ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds"),
        ({"clientConfig": {}}, "webhooks[0].clientConfig"),
    ],
    ids=["side-effects", "versions", "name", "policy", "timeout", "client"],
)
def test_configuration_is_validated(k: Case, changes: dict[str, Any], field: str) -> None:
    webhook = {
        "name": "check.example.com",
        "clientConfig": {"url": "https://x/y"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **changes,
    }
    body = {
        "metadata": {"name": k.namespace},
        "webhooks": [{a: b for a, b in webhook.items() if b is not None}],
    }
    answer = k.post(CONFIGURATIONS + "?dryRun=All", body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert field in {each["field"] for each in answer.causes}
