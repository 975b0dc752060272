"""The diagnostics endpoint over HTTPS, with an API server that knows users and their rights."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from wsgiref.types import StartResponse

import pytest
import trustme

from captf_runtime import log
from captf_runtime.client import Client
from captf_runtime.manager import Diagnostics, serving_certificate
from captf_runtime.objects import CLUSTER_ROLE, CLUSTER_ROLE_BINDING
from captf_runtime.serving import TlsOptions
from captf_runtime.serving.server import text_answer
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.testing.faults import Match, internal_error


def metrics(environ: dict[str, object], start_response: StartResponse) -> list[bytes]:
    return text_answer(start_response, "200 OK", b"a_series 1\n")


class Serving:
    """Diagnostics that run in a thread, and a caller."""

    def __init__(self, server: ApiServer, directory: Path, tls: TlsOptions | None = None) -> None:
        self.server = server
        self.clock = VirtualClock()
        self.client = Client.from_config(kubeconfig=server.kubeconfig())
        self.diagnostics = Diagnostics(
            "127.0.0.1:0",
            reviewer=self.client,
            metrics_app=metrics,
            certificate=serving_certificate(directory, "manager-0", tls or TlsOptions()),
            clock=self.clock,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.diagnostics.run, args=(self._stop,), daemon=True)
        self._thread.start()
        assert self.diagnostics.ready.wait(60)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.client.close()

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPSConnection:
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        target = urlsplit(self.diagnostics.url)
        assert target.hostname is not None
        return http.client.HTTPSConnection(target.hostname, target.port, timeout=60, context=context)

    def ask(
        self, path: str, *, user: str = "", token: str = "", method: str = "GET", body: str | None = None
    ) -> tuple[int, str]:
        """Status and body of an answer; `user` gets a token of the API server."""
        token = self.server.token(user, ()) if user else token
        connection = self.connect()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def allow(self, user: str, verbs: Sequence[str], *urls: str) -> None:
        group = "rbac.authorization.k8s.io"
        name = f"{user}-{len(self.client.list(CLUSTER_ROLE).items)}"
        rules = [{"nonResourceURLs": list(urls), "verbs": list(verbs)}]
        self.client.create(CLUSTER_ROLE, {"metadata": {"name": name}, "rules": rules})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
        self.client.create(CLUSTER_ROLE_BINDING, binding)

    def reviews(self, resource: str) -> int:
        return len(self.server.requests.select(resource=resource, verb="create"))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer(rbac=True, controllers=False) as server:
        yield server


@pytest.fixture
def serving(api: ApiServer, tmp_path: Path) -> Iterator[Serving]:
    found = Serving(api, tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("path", ["/metrics", "/debug/pprof/", "/debug/log-level", "/nothing", "/"])
def test_nobody_gets_anything_without_a_token(serving: Serving, path: str) -> None:
    assert serving.ask(path)[0] == 401
    assert serving.ask(path, token="made-up")[0] == 401
    assert serving.ask(path, user="somebody")[0] == 403


def test_who_may_read_metrics_reads_metrics_and_nothing_else(serving: Serving) -> None:
    serving.allow("prometheus", ["get"], "/metrics")
    assert serving.ask("/metrics", user="prometheus") == (200, "a_series 1\n")
    assert serving.ask("/metrics?x=1", user="prometheus")[0] == 200
    assert serving.ask("/metrics", user="prometheus", method="POST")[0] == 403
    assert serving.ask("/debug/pprof/", user="prometheus")[0] == 403
    assert serving.ask("/debug/log-level", user="prometheus", method="PUT", body="debug")[0] == 403


def test_wrong_methods_and_paths_of_someone_who_may(serving: Serving) -> None:
    serving.allow("root", ["*"], "*")
    assert serving.ask("/metrics", user="root", method="PUT", body="x")[0] == 405
    assert serving.ask("/debug/pprof/heap", user="root", method="POST")[0] == 405
    assert serving.ask("/debug/log-level", user="root")[0] == 405
    assert serving.ask("/debug/log-level/", user="root")[0] == 404
    assert serving.ask("/nothing", user="root")[0] == 404


def test_the_log_level_changes_at_once(serving: Serving) -> None:
    serving.allow("operator", ["put"], "/debug/log-level")
    before = log.get_level()
    try:
        assert serving.ask("/debug/log-level", user="operator", method="PUT", body="debug\n") == (
            200,
            "log level is debug\n",
        )
        assert log.get_level() == "debug"
        for body in ("verbose", "", "debug" * 100):
            status, text = serving.ask("/debug/log-level", user="operator", method="PUT", body=body)
            assert (status, "debug, info, warning, error" in text) == (400, True)
        assert log.get_level() == "debug"
    finally:
        log.set_level(before)


def test_the_profiler_shows_threads_objects_and_time(serving: Serving) -> None:
    serving.allow("operator", ["get"], "/debug/pprof/*")
    assert "/debug/pprof/heap" in serving.ask("/debug/pprof/", user="operator")[1]
    stacks = serving.ask("/debug/pprof/goroutine", user="operator")[1]
    assert "MainThread" in stacks
    assert "test_diagnostics.py" in stacks
    assert "builtins.dict" in serving.ask("/debug/pprof/heap", user="operator")[1]
    profile = serving.ask("/debug/pprof/profile?seconds=0.2", user="operator")[1]
    assert any(line.startswith("MainThread;") for line in profile.splitlines())
    assert serving.ask("/debug/pprof/heap?seconds=0.1", user="operator")[0] == 200
    for seconds in ("0", "-1", "soon", "301"):
        status, text = serving.ask(f"/debug/pprof/profile?seconds={seconds}", user="operator")
        assert (status, "at most 300" in text) == (400, True)
    assert serving.ask("/debug/pprof/nothing", user="operator")[0] == 404


def test_answers_are_remembered_for_a_while(serving: Serving) -> None:
    """An authentication for a minute, a permission for five, a refusal for half a minute."""
    serving.allow("prometheus", ["get"], "/metrics")
    for _ in range(3):
        assert serving.ask("/metrics", user="prometheus")[0] == 200
    assert (serving.reviews("tokenreviews"), serving.reviews("subjectaccessreviews")) == (1, 1)
    serving.clock.advance(61)
    assert serving.ask("/metrics", user="prometheus")[0] == 200
    assert (serving.reviews("tokenreviews"), serving.reviews("subjectaccessreviews")) == (2, 1)
    serving.clock.advance(241)
    assert serving.ask("/metrics", user="prometheus")[0] == 200
    assert serving.reviews("subjectaccessreviews") == 2

    assert serving.ask("/metrics", user="late")[0] == 403
    serving.allow("late", ["get"], "/metrics")
    assert serving.ask("/metrics", user="late")[0] == 403
    serving.clock.advance(31)
    assert serving.ask("/metrics", user="late")[0] == 200


def test_a_review_that_fails_is_no_answer_and_not_remembered(serving: Serving) -> None:
    serving.allow("prometheus", ["get"], "/metrics")
    fault = serving.server.faults.add(Match(resource="tokenreviews"), internal_error())
    assert serving.ask("/metrics", user="prometheus")[0] == 500
    fault.remove()
    fault = serving.server.faults.add(Match(resource="subjectaccessreviews"), internal_error())
    assert serving.ask("/metrics", user="prometheus")[0] == 500
    fault.remove()
    assert serving.ask("/metrics", user="prometheus")[0] == 200


def test_the_certificate_of_the_folder_is_served(api: ApiServer, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    serving = Serving(api, tmp_path)
    try:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        connection = serving.connect(context)
        connection.request("GET", "/metrics")
        assert connection.getresponse().status == 401
        connection.close()
    finally:
        serving.close()


def test_the_versions_and_suites_asked_for_are_spoken(api: ApiServer, tmp_path: Path) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    serving = Serving(api, tmp_path, TlsOptions(cipher_suites=(suite,), groups=(24,)))
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        connection = serving.connect(context)
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        used = connection.sock.cipher()
        assert used is not None
        assert used[:2] == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")
        connection.close()
    finally:
        serving.close()
    serving = Serving(api, tmp_path, TlsOptions("VersionTLS13"))
    try:
        with pytest.raises(ssl.SSLError):
            serving.connect(context).connect()
    finally:
        serving.close()
