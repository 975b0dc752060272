"""The webhook server as an API server sees it: over TLS, and called by the embedded one."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from captf_runtime import log
from captf_runtime.client import ApiError, Client, Invalid
from captf_runtime.metrics import Metrics
from captf_runtime.objects import CONFIG_MAP, VALIDATING_WEBHOOK_CONFIGURATION
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.webhook import AdmissionRequest, AdmissionResponse, Violation, WebhookServer

DEADLINE = 60.0
PATH = "/validate-configmaps"


class Running:
    """A webhook server with a certificate authority of its own."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.folder = folder
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.seen: list[AdmissionRequest] = []
        self.answer: AdmissionResponse | BaseException = AdmissionResponse.allow()
        self.issue()
        self.server = WebhookServer("127.0.0.1:0", folder, metrics=self.metrics, clock=self.clock)
        self.server.register(PATH, self._validate)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=lambda: self.server.run(self.stop), daemon=True)
        self.thread.start()
        assert self.server.ready.wait(DEADLINE)

    def issue(self) -> None:
        certificate = self.authority.issue_cert("localhost", "127.0.0.1")
        certificate.private_key_pem.write_to_path(str(self.folder / "tls.key"))
        certificate.cert_chain_pems[0].write_to_path(str(self.folder / "tls.crt"))

    def _validate(self, request: AdmissionRequest) -> AdmissionResponse:
        self.seen.append(request)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def connection(self) -> http.client.HTTPSConnection:
        port = urlsplit(self.server.url).port
        return http.client.HTTPSConnection("127.0.0.1", port, context=self.context(), timeout=DEADLINE)

    def ask(self, body: bytes, path: str = PATH, method: str = "POST") -> tuple[int, bytes]:
        connection = self.connection()
        try:
            connection.request(method, path, body=body, headers={"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def review(self, body: bytes) -> dict[str, Any]:
        status, answer = self.ask(body)
        assert status == 200
        response = json.loads(answer)["response"]
        assert isinstance(response, dict)
        return response

    def serial(self) -> str:
        host, port = "127.0.0.1", urlsplit(self.server.url).port
        with (
            socket.create_connection((host, port), timeout=DEADLINE) as raw,
            self.context().wrap_socket(raw, server_hostname="localhost") as wrapped,
        ):
            certificate = wrapped.getpeercert()
            assert certificate is not None
            return str(certificate["serialNumber"])

    def requests(self, code: str) -> float | None:
        name = "controller_runtime_webhook_requests_total"
        return self.metrics.registry.get_sample_value(name, {"webhook": PATH, "code": code})


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    running.stop.set()
    running.thread.join(DEADLINE)
    assert not running.thread.is_alive()


REVIEW = json.dumps({"request": {"uid": "u", "operation": "CREATE", "object": {}}}).encode()


def test_reviews_are_answered_with_their_uid_and_counted(webhook: Running) -> None:
    assert webhook.requests("200") == 0
    assert webhook.review(REVIEW) == {"uid": "u", "allowed": True}
    webhook.answer = AdmissionResponse.deny("no")
    assert webhook.review(REVIEW)["status"]["code"] == 403
    assert webhook.requests("200") == 2
    value = webhook.metrics.registry.get_sample_value
    assert value("controller_runtime_webhook_latency_seconds_count", {"webhook": PATH}) == 2
    assert value("controller_runtime_webhook_requests_in_flight", {"webhook": PATH}) == 0


@pytest.mark.parametrize("body", [b"", b"{", b"{}"])
def test_what_is_no_review_is_refused(webhook: Running, body: bytes) -> None:
    answer = webhook.review(body)
    assert answer["allowed"] is False
    assert answer["status"]["code"] == 400
    assert webhook.seen == []


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret value"),
        RecursionError(),
        SystemExit(3),
        None,
        True,
        AdmissionResponse.deny("half a character: \udce9"),
    ],
)
def test_a_validator_that_raises_or_returns_nonsense_refuses(webhook: Running, error: Any) -> None:
    webhook.answer = error
    answer = webhook.review(REVIEW)
    assert answer["uid"] == "u"
    assert answer["allowed"] is False
    assert answer["status"]["code"] == 500
    assert "secret" not in json.dumps(answer)
    webhook.answer = AdmissionResponse.allow()
    assert webhook.review(REVIEW)["allowed"] is True


def test_other_paths_and_methods(webhook: Running) -> None:
    assert webhook.ask(REVIEW, path="/other")[0] == 404
    assert webhook.ask(b"", method="GET")[0] == 405
    with pytest.raises(ValueError, match="has a validator already"):
        webhook.server.register(PATH, webhook._validate)


def test_a_body_that_is_too_large_is_not_read(webhook: Running) -> None:
    connection = webhook.connection()
    connection.putrequest("POST", PATH)
    connection.putheader("Content-Length", str(10**9))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_renewed_certificate_is_served_without_a_restart(webhook: Running) -> None:
    first = webhook.serial()
    webhook.issue()
    assert webhook.serial() == first  # files are looked at once a second at most
    webhook.clock.advance(1)
    second = webhook.serial()
    assert second != first
    (webhook.folder / "tls.crt").write_text("half written")
    webhook.clock.advance(1)
    assert webhook.serial() == second
    (webhook.folder / "tls.key").unlink()
    webhook.clock.advance(1)
    assert webhook.serial() == second
    webhook.issue()
    webhook.clock.advance(1)
    assert webhook.serial() not in (first, second)


def test_a_missing_certificate_is_an_error_at_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"tls\.crt"):
        WebhookServer("127.0.0.1:0", tmp_path)


def test_old_protocol_versions_are_refused(webhook: Running) -> None:
    server = WebhookServer("127.0.0.1:0", webhook.folder, minimum_version=ssl.TLSVersion.TLSv1_3)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: server.run(stop), daemon=True)
    thread.start()
    assert server.ready.wait(DEADLINE)
    context = webhook.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    address = ("127.0.0.1", urlsplit(server.url).port)
    with socket.create_connection(address) as raw, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(raw, server_hostname="localhost")
    server.check_serving()
    stop.set()
    thread.join(DEADLINE)
    assert not thread.is_alive()


def test_clients_that_never_finish_a_handshake_hold_up_nobody(webhook: Running) -> None:
    port = urlsplit(webhook.server.url).port
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
    plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert webhook.review(REVIEW)["allowed"] is True
    assert not plain.recv(100).startswith(b"HTTP/1.1 2")
    for connection in (*silent, plain):
        connection.close()


def test_the_readiness_check_dials_the_own_listener(webhook: Running, tmp_path: Path) -> None:
    webhook.server.check_serving()
    idle = WebhookServer("127.0.0.1:0", tmp_path)
    with pytest.raises(RuntimeError, match="does not listen yet"):
        idle.check_serving()


def test_denials_are_logged_without_values(webhook: Running, capsys: pytest.CaptureFixture[str]) -> None:
    level = log.get_level()
    log.configure("info", "text")
    try:
        violation = Violation("FieldValueInvalid", "spec.variables[0]", "(value omitted)")
        request = {"uid": "u", "kind": {"kind": "Machine"}, "name": "m", "userInfo": {"username": "jane"}}
        webhook.answer = AdmissionResponse(
            allowed=False, code=422, reason="Invalid", message="m", violations=(violation,)
        )
        body = {"request": {**request, "object": {"spec": {"variables": ["hunter2"]}}}}
        webhook.review(json.dumps(body).encode())
    finally:
        log.configure(level, "text")
    text = capsys.readouterr().err
    assert "admission denied" in text
    assert "spec.variables[0] (FieldValueInvalid)" in text
    assert "jane" in text
    assert "hunter2" not in text


def test_the_embedded_api_server_asks_it(webhook: Running) -> None:
    configuration = {
        "metadata": {"name": "configmaps"},
        "webhooks": [
            {
                "name": "configmaps.example.test",
                "clientConfig": {
                    "url": f"{webhook.server.url}{PATH}",
                    "caBundle": _base64(webhook.authority.cert_pem.bytes()),
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
            }
        ],
    }
    with ApiServer() as server, Client.from_config(kubeconfig=str(server.kubeconfig())) as client:
        client.create(VALIDATING_WEBHOOK_CONFIGURATION, configuration)
        client.create(CONFIG_MAP, {"metadata": {"name": "good"}, "data": {"a": "b"}}, "default")
        assert webhook.seen[-1].object is not None
        assert webhook.seen[-1].object["data"] == {"a": "b"}
        violations = [Violation("FieldValueInvalid", "data.a", "must be c")]
        webhook.answer = AdmissionResponse.invalid(webhook.seen[-1], violations)
        with pytest.raises(Invalid) as caught:
            client.create(CONFIG_MAP, {"metadata": {"name": "bad"}}, "default")
        assert "data.a: must be c" in caught.value.message
        webhook.answer = ValueError("broken")
        with pytest.raises(ApiError) as failed:
            client.create(CONFIG_MAP, {"metadata": {"name": "unlucky"}}, "default")
        assert failed.value.code == 500


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
