"""Targets of the conformance cases, their records, and the report.

The embedded server runs twice: as 1.20, record for record against the kept answers of a real 1.20, and as a
modern one. The real server runs when `KUBEBUILDER_ASSETS` names binaries or `CAPTF_CONFORMANCE_KUBECONFIG`
a cluster. `CAPTF_CONFORMANCE_RECORD=1` keeps the answers of the cases of a real run, `=all` nothing but
them.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.conformance import transcripts
from tests.conformance.definitions import definitions
from tests.conformance.target import USERS, Case, Server, server_of_kubeconfig
from tests.conformance.versions import DIFFERENCES

from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.real_control_plane import (
    ASSETS_VARIABLE,
    RealControlPlane,
    TokenUser,
    assets_directory,
)

KUBECONFIG_VARIABLE = "CAPTF_CONFORMANCE_KUBECONFIG"
RECORD_VARIABLE = "CAPTF_CONFORMANCE_RECORD"
KEPT_VERSION = "1.20"
TARGETS = ("embedded-1.20", "embedded-modern", "real")


@dataclass
class Report:
    """What the run found, by area (the file of the cases) and target."""

    passed: Counter[tuple[str, str]] = field(default_factory=Counter)
    total: Counter[tuple[str, str]] = field(default_factory=Counter)
    compared: dict[str, bool] = field(default_factory=dict)
    recorded: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


REPORT = pytest.StashKey[Report]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[REPORT] = Report()


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(name, marks=pytest.mark.real_apiserver) if name == "real" else name for name in TARGETS
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server under test."""
    name: str = request.param
    if name == "real":
        yield from _real()
        return
    modern = name == "embedded-modern"
    # With TLS, because kubectl sends no token without it.
    with ApiServer(tls=True, rbac=True, mode="modern" if modern else "1.20") as embedded:
        tokens = {user: embedded.token(user, groups) for user, groups in USERS.items()}
        authority = (embedded.certificate_authority or b"").decode()
        target = Server(name, "1.32" if modern else "1.20", embedded.url, tokens, authority)
        yield target
        target.close()


def _real() -> Iterator[Server]:
    kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
    if kubeconfig:
        yield server_of_kubeconfig(kubeconfig, "real")
        return
    if assets_directory() is None:
        pytest.skip(f"no real server: set {ASSETS_VARIABLE} or {KUBECONFIG_VARIABLE}")
    users = [TokenUser(name, uuid.uuid4().hex, groups) for name, groups in USERS.items() if name != "admin"]
    with RealControlPlane(users=users) as cluster:
        target = server_of_kubeconfig(cluster.kubeconfig, "real")
        yield target
        target.close()


GROUP = "cases.example.com"
"""The group of the custom resources that the cases share."""


@pytest.fixture(scope="session")
def custom_resources(server: Server) -> Iterator[dict[str, str]]:
    """The definitions that the cases share, served; and children in `namespace` whose owners are deleted already."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for definition in definitions(GROUP):
        created = server.call("POST", path, definition)
        assert created.code == 201, created.body
    for definition in definitions(GROUP):
        names, version = definition["spec"]["names"], definition["spec"]["versions"][0]["name"]
        scope = "namespaces/default/" if definition["spec"]["scope"] == "Namespaced" else ""
        served = f"/apis/{GROUP}/{version}/{scope}{names['plural']}"
        deadline = time.monotonic() + 90
        while server.call("GET", served).code != 200 or names["plural"] not in _discovered(server, version):
            assert time.monotonic() < deadline, f"{served} is not served"
            threading.Event().wait(0.05)
    namespace = f"owned-{uuid.uuid4().hex[:12]}"
    _leave_children(server, namespace)
    yield {"namespace": namespace}
    for definition in definitions(GROUP):
        server.call("DELETE", f"{path}/{definition['metadata']['name']}")


def _discovered(server: Server, version: str) -> set[str]:
    """The resources of the cases' group that clients can find; the real server tells of them a moment later."""
    answer = server.call("GET", f"/apis/{GROUP}/{version}")
    return {each["name"] for each in answer.body["resources"]} if answer.code == 200 else set()


def _leave_children(server: Server, namespace: str) -> None:
    """ConfigMaps in a namespace of their own that were owned by custom resources."""
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    scoped = f"/apis/{GROUP}/v1/namespaces/{namespace}/widgets"
    for kind, path in (("Widget", scoped), ("Realm", f"/apis/{GROUP}/v1/realms")):
        body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": namespace}}
        owner = server.call("POST", path, body)
        assert owner.code == 201, owner.body
        reference = {
            **{key: body[key] for key in ("apiVersion", "kind")},
            "name": namespace,
            "uid": owner.metadata["uid"],
        }
        child = {"metadata": {"name": kind.lower(), "ownerReferences": [reference]}}
        assert server.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", child).code == 201
        assert server.call("DELETE", f"{path}/{namespace}").code == 200


def case_id(node: pytest.Item) -> str:
    """The name of a case, the same on every target."""
    name = node.name
    for target in TARGETS:
        for mark in (f"[{target}-", f"-{target}]", f"[{target}]"):
            replacement = (
                "[" if mark.startswith("[") and mark.endswith("-") else "]" if mark.endswith("]") else ""
            )
            if mark in name:
                name = name.replace(mark, "" if mark == f"[{target}]" else replacement)
    return f"{node.path.stem.removeprefix('test_')}/{name.removeprefix('test_')}"


@pytest.fixture
def k(server: Server, request: pytest.FixtureRequest) -> Iterator[Case]:
    """A case: a server and a fresh namespace; afterwards its record is compared with the kept answers."""
    namespace = f"case-{uuid.uuid4().hex[:12]}"
    created = server.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert created.code == 201, created.body
    case = Case(server, namespace)
    yield case
    _compare(case, request)


def _compare(case: Case, request: pytest.FixtureRequest) -> None:
    report, identity = request.config.stash[REPORT], case_id(request.node)
    failed = getattr(request.node, "case_failed", False)
    now = transcripts.as_json(case.transcript)
    if case.server.version != KEPT_VERSION or failed:
        return
    if case.server.is_real and os.environ.get(RECORD_VARIABLE):
        report.recorded[identity] = now
        return
    kept = _kept().get(identity)
    if kept is None:
        pytest.fail(
            f"no answers kept for {identity}: run it against the real server with {RECORD_VARIABLE}=1"
        )
    difference = transcripts.first_difference(kept, now)
    if not case.server.is_real:
        report.compared[identity] = not difference
        if identity in DIFFERENCES:
            return
    if difference:
        pytest.fail(f"{identity}: {difference}")


_answers: dict[str, dict[str, list[dict[str, Any]]]] = {}


def _kept() -> dict[str, list[dict[str, Any]]]:
    if KEPT_VERSION not in _answers:
        _answers[KEPT_VERSION] = transcripts.load(KEPT_VERSION)
    return _answers[KEPT_VERSION]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call" and "k" in getattr(item, "fixturenames", ()):
        item.case_failed = report.failed  # type: ignore[attr-defined]
        target = next((name for name in TARGETS if name in item.name), "")
        found = item.config.stash[REPORT]
        area = item.path.stem.removeprefix("test_")
        found.total[area, target] += 1
        found.passed[area, target] += report.passed
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    report = session.config.stash[REPORT]
    if report.recorded:
        kept = {} if os.environ.get(RECORD_VARIABLE) == "all" else transcripts.load(KEPT_VERSION)
        transcripts.save(KEPT_VERSION, kept | report.recorded)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    report = config.stash[REPORT]
    if not report.total:
        return
    terminalreporter.section("conformance")
    areas = sorted({area for area, _ in report.total})
    for area in areas:
        figures = [
            f"{target} {report.passed[area, target]}/{report.total[area, target]}"
            for target in TARGETS
            if report.total[area, target]
        ]
        terminalreporter.write_line(f"{area:24}" + "  ".join(figures))
    if report.compared:
        equal = sum(report.compared.values())
        share = equal / len(report.compared)
        terminalreporter.write_line(
            f"fidelity {share:.3f} ({equal} of {len(report.compared)} cases answered equally)"
        )
        for name in sorted(
            name for name, same in report.compared.items() if not same and name in DIFFERENCES
        ):
            terminalreporter.write_line(f"  differs: {name}: {DIFFERENCES[name]}")
