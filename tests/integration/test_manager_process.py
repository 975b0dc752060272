"""``captf-manager`` as a process: what it serves, how it starts, how it ends."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import trustme
from hack.tour import manifests as tour
from hack.tour.stage import MODULES, Stage
from hack.tour.waiting import wait_until

from captf_controllers.api import labels, names
from captf_controllers.api.kinds import (
    CLUSTER,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE_TEMPLATE,
)
from captf_runtime.client.errors import AlreadyExists, NotFound
from captf_runtime.objects import JOB, LEASE, SECRET, Kind, Object, labels_of, name_of
from captf_runtime.objects import NAMESPACE as KUBERNETES_NAMESPACE
from captf_runtime.testing.real_control_plane import reserved_port

NAMESPACE = "captf-system"


#: A module whose Jobs run until the test run ends.
ENDLESS = "example.com/tests/endless:v1"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """An API server with everything installed; no Job gets anywhere here, so no Terraform is needed."""
    endless = tmp_path_factory.mktemp("runtimes") / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 3600\n")
    endless.chmod(0o755)
    with Stage(
        runtime=Path("/bin/true"), modules={ENDLESS: MODULES / "cluster"}, runtimes={ENDLESS: endless}
    ) as found:
        yield found


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    return tmp_path


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the webhooks."""
    with reserved_port() as found:
        yield found


def address_of(stage: Stage, component: str) -> str:
    """Where a server of the newest manager listens, as its log says."""

    def find() -> str:
        assert stage.manager is not None
        found = re.search(
            rf'listening component="{component}" address="([^"]+)"', stage.manager.log.read_text()
        )
        stage.check_manager()
        return found.group(1) if found else ""

    return wait_until(find, f"{component} listens", seconds=120)


def ask(url: str, *, method: str = "GET") -> tuple[int, str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urlopen(Request(url, method=method), context=context, timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def holder(stage: Stage) -> str:
    lease = stage.client.get(LEASE, names.ELECTION_LEASE, NAMESPACE)
    return str(lease["spec"].get("holderIdentity") or "")


def test_a_replica_serves_probes_webhooks_metrics_and_leaves_in_order(
    stage: Stage, certificates: Path, port: int
) -> None:
    stage.start_manager(
        "--leader-elect",
        f"--leader-elect-namespace={NAMESPACE}",
        "--health-addr=127.0.0.1:0",
        "--diagnostics-address=127.0.0.1:0",
        "--profiler-address=127.0.0.1:0",
        f"--webhook-port={port}",
        f"--webhook-cert-dir={certificates}",
        "--tls-min-version=VersionTLS13",
    )
    health = f"http://{address_of(stage, 'health')}"
    wait_until(lambda: ask(f"{health}/readyz")[0] == 200, "is ready", seconds=120)
    assert ask(f"{health}/healthz") == (200, "ok")
    assert "[+]webhook ok" in ask(f"{health}/readyz?verbose")[1]
    assert ask(f"{health}/readyz/webhook")[0] == 200
    assert ask(f"{health}/metrics")[0] == 404

    assert ask(f"https://127.0.0.1:{port}/nothing")[0] == 404
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, pytest.raises(ssl.SSLError):
        old.wrap_socket(connection)

    # In the clear: metrics, and nothing else.
    metrics = f"http://{address_of(stage, 'metrics')}"
    wait_until(
        lambda: (
            'leader_election_master_status{name="controller-leader-election-captf"} 1.0'
            in ask(f"{metrics}/metrics")[1]
        ),
        "leads",
        seconds=60,
    )
    for path in ("/debug/pprof/", "/debug/log-level", "/"):
        assert ask(metrics + path)[0] == 404
    profiler = f"http://{address_of(stage, 'profiler')}"
    assert "MainThread" in ask(f"{profiler}/debug/pprof/goroutine")[1]

    assert holder(stage)
    assert stage.stop_manager() == 0
    assert holder(stage) == "", "the Lease is released for the next one"


def test_without_the_certificate_of_the_webhooks_there_is_no_start(
    stage: Stage, tmp_path: Path, port: int
) -> None:
    manager = stage.start_manager(f"--webhook-port={port}", f"--webhook-cert-dir={tmp_path}")
    assert manager.process.wait(timeout=180) == 1
    log = manager.log.read_text()
    assert "the webhook server has no usable certificate" in log
    assert str(tmp_path) in log
    stage.stop_manager()


def test_wrong_flags_end_it_with_status_2(stage: Stage) -> None:
    manager = stage.start_manager("--max-active-jobs=-1", "--tls-min-version=nothing")
    assert manager.process.wait(timeout=180) == 2
    log = manager.log.read_text()
    assert "--max-active-jobs=-1" in log
    assert "--tls-min-version=nothing" in log
    stage.stop_manager()


def ensure_team(stage: Stage, namespace: str = tour.TEAM, **spec: object) -> None:
    """A namespace with a TerraformCluster, and the credentials that it uses."""
    client = stage.client

    def ensure(kind: Kind, obj: Object) -> Object:
        namespace = obj["metadata"].get("namespace", "")
        try:
            return client.create(kind, obj, namespace)
        except AlreadyExists:
            return client.get(kind, name_of(obj), namespace)

    ensure(KUBERNETES_NAMESPACE, tour.namespace(namespace))
    ensure(SECRET, tour.secret("cloud-credentials", tour.OPERATOR, {"TOKEN": "x"}))
    ensure(TERRAFORM_CLUSTER_IDENTITY, tour.identity())
    owner = ensure(CLUSTER, tour.cluster(namespace=namespace))
    ensure(TERRAFORM_CLUSTER, tour.terraform_cluster(owner, namespace, **spec))


def test_jobs_that_only_look_like_captfs_take_no_slot(stage: Stage) -> None:
    """A tenant who may create Jobs in one namespace must not stop those of all others."""
    client, mallory = stage.client, "mallory"
    client.create(KUBERNETES_NAMESPACE, tour.namespace(mallory))
    pod = {"restartPolicy": "Never", "containers": [{"name": "source", "image": "example.com/idle:v1"}]}
    forged = {
        labels.MANAGED: "true",
        labels.OWNER_KIND: "TerraformMachine",
        labels.OWNER_NAME: "m1",
        labels.OP: "apply",
        labels.CLUSTER_NAME: tour.CLUSTER_NAME,
    }
    for index in range(5):
        metadata = {"name": f"forged-{index}", "labels": forged}
        client.create(
            JOB, {"metadata": metadata, "spec": {"suspend": True, "template": {"spec": pod}}}, mallory
        )
    stage.start_manager("--max-active-jobs=1", "--diagnostics-address=127.0.0.1:0")
    own = tour.identity()
    own["metadata"]["name"] = "slots"
    client.create(TERRAFORM_CLUSTER_IDENTITY, own)
    ensure_team(stage, "slots", source={"image": ENDLESS}, identityRef={"name": "slots"})
    found = wait_until(lambda: client.list(JOB, "slots").items, "the apply Job starts", seconds=120)
    assert labels_of(found[0])[labels.OP] == "apply"
    metrics = f"http://{address_of(stage, 'metrics')}/metrics"
    wait_until(
        lambda: 'captf_jobs_active{kind="TerraformCluster",op="apply"} 1.0' in ask(metrics)[1],
        "the gauge shows the one Job",
        seconds=30,
    )
    assert 'captf_jobs_active{kind="TerraformMachine"' not in ask(metrics)[1]
    assert stage.stop_manager() == 0


def mirror_value(stage: Stage) -> str:
    """What the mirror of the namespace holds, decoded; empty while there is none."""
    try:
        found = stage.client.get(SECRET, names.credential_mirror(tour.IDENTITY), tour.TEAM)
    except NotFound:
        return ""
    return base64.b64decode((found.get("data") or {}).get("TOKEN", "")).decode()


def test_a_new_key_arrives_in_seconds(stage: Stage) -> None:
    """Long before the resync, which comes after ten minutes: the source Secret is watched."""
    client = stage.client
    ensure_team(stage)
    stage.start_manager()
    wait_until(lambda: mirror_value(stage) == "x", "the credentials are mirrored", seconds=120)

    def allowed() -> str:
        status = client.get(TERRAFORM_CLUSTER, tour.CLUSTER_NAME, tour.TEAM).get("status") or {}
        found = [item for item in status.get("conditions") or [] if item["type"] == "IdentityAllowed"]
        return f"{found[0]['status']}/{found[0]['reason']}" if found else ""

    encoded = {"TOKEN": base64.b64encode(b"rotated").decode()}
    client.patch(SECRET, "cloud-credentials", {"data": encoded}, tour.OPERATOR)
    wait_until(lambda: mirror_value(stage) == "rotated", "the new key is mirrored", seconds=120)
    client.delete(SECRET, "cloud-credentials", tour.OPERATOR, propagation_policy="Background")
    wait_until(lambda: allowed() == "False/SecretNotFound", "the missing Secret is told", seconds=120)
    client.create(SECRET, tour.secret("cloud-credentials", tour.OPERATOR, {"TOKEN": "third"}), tour.OPERATOR)
    wait_until(lambda: mirror_value(stage) == "third", "the Secret that is back is mirrored", seconds=120)
    wait_until(lambda: allowed() == "True/IdentityAllowed", "it is allowed again", seconds=120)
    # Another Secret: the old one is watched no more, the new one is.
    client.create(SECRET, tour.secret("other", tour.OPERATOR, {"TOKEN": "other"}), tour.OPERATOR)
    named = {"spec": {"secretRef": {"name": "other"}}}
    client.patch(TERRAFORM_CLUSTER_IDENTITY, tour.IDENTITY, named)
    wait_until(lambda: mirror_value(stage) == "other", "the other Secret is mirrored", seconds=120)
    client.patch(SECRET, "other", {"data": encoded}, tour.OPERATOR)
    wait_until(lambda: mirror_value(stage) == "rotated", "and followed", seconds=120)
    client.patch(
        TERRAFORM_CLUSTER_IDENTITY, tour.IDENTITY, {"spec": {"secretRef": {"name": "cloud-credentials"}}}
    )
    assert stage.stop_manager() == 0


def test_the_capacity_of_a_machine_template_is_published(stage: Stage) -> None:
    ensure_team(stage)
    spec = {
        "capacity": {"cpu": "4", "memory": "16Gi"},
        "template": {"spec": {"source": {"image": tour.MACHINE_IMAGE}}},
    }
    stage.client.create(
        TERRAFORM_MACHINE_TEMPLATE, {"metadata": {"name": "workers"}, "spec": spec}, tour.TEAM
    )
    stage.start_manager("--terraformmachinetemplate-concurrency=1", "--diagnostics-address=127.0.0.1:0")

    def status() -> Object:
        found = stage.client.get(TERRAFORM_MACHINE_TEMPLATE, "workers", tour.TEAM).get("status")
        return found or {}

    wait_until(lambda: "capacity" in status(), "the capacity is published", seconds=120)
    assert status()["capacity"] == {"cpu": "4", "memory": "16Gi"}
    assert status()["capacitySource"] == {"source": "Spec"}
    metrics = ask(f"http://{address_of(stage, 'metrics')}/metrics")[1]
    assert (
        'controller_runtime_max_concurrent_reconciles{controller="terraformmachinetemplate"} 1.0' in metrics
    )
    assert stage.stop_manager() == 0


#: Makes every file system read-only for one process tree, then proves it and goes on.
READ_ONLY = """
mount --make-rprivate / || exit 77
while read -r _ target _; do mount -o remount,bind,ro "$target" 2>/dev/null; done </proc/self/mounts
for folder in / /tmp /var/tmp "$PWD"; do
    if touch "$folder/captf-probe" 2>/dev/null; then rm "$folder/captf-probe"; exit 77; fi
done
exec "$@"
"""


def test_it_needs_no_writable_file_system(stage: Stage) -> None:
    """As the container runs it: the certificate of the diagnostics is made in memory, nothing is unpacked."""
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh"]
    tried = subprocess.run([*command, "true"], capture_output=True, timeout=60, check=False)
    if tried.returncode != 0:
        pytest.skip("this user cannot make file systems read-only for a process")
    stage.start_manager(
        "--health-addr=127.0.0.1:0",
        "--diagnostics-address=127.0.0.1:0",
        "--insecure-diagnostics=false",
        under=command,
    )
    health = f"http://{address_of(stage, 'health')}"
    wait_until(lambda: ask(f"{health}/healthz")[0] == 200, "it is alive", seconds=120)
    assert ask(f"https://{address_of(stage, 'diagnostics')}/metrics")[0] == 401
    ensure_team(stage)
    wait_until(lambda: mirror_value(stage) != "", "it reconciles", seconds=120)
    assert stage.stop_manager() == 0


def test_switching_the_identity_takes_the_old_credentials_out_of_the_namespace(stage: Stage) -> None:
    client = stage.client
    ensure_team(stage)
    stage.start_manager()
    wait_until(lambda: mirror_value(stage) != "", "the credentials are mirrored", seconds=120)
    other = tour.identity(secret_name="second-credentials")
    other["metadata"]["name"] = "second"
    client.create(SECRET, tour.secret("second-credentials", tour.OPERATOR, {"TOKEN": "2"}), tour.OPERATOR)
    client.create(TERRAFORM_CLUSTER_IDENTITY, other)
    client.create(SECRET, tour.secret("local", tour.TEAM, {"TOKEN": "local"}), tour.TEAM)

    def mirrors() -> list[str]:
        found = client.list(SECRET, tour.TEAM, label_selector=f"{labels.MIRRORED}=true").items
        return [name_of(secret) for secret in found]

    def users(identity: str) -> list[str]:
        status = client.get(TERRAFORM_CLUSTER_IDENTITY, identity).get("status") or {}
        return list(status.get("namespaces") or [])

    def switch(**reference: str) -> None:
        patch = {"spec": {"identityRef": {"kind": None, **reference}}}
        client.patch(TERRAFORM_CLUSTER, tour.CLUSTER_NAME, patch, tour.TEAM)

    wait_until(lambda: users(tour.IDENTITY) == [tour.TEAM], "the identity tells who uses it", seconds=120)
    switch(name="second")
    only_second = [names.credential_mirror("second")]
    wait_until(lambda: mirrors() == only_second, "only the new mirror is there", seconds=120)
    wait_until(lambda: users("second") == [tour.TEAM], "the new identity tells who uses it", seconds=120)
    wait_until(lambda: users(tour.IDENTITY) == [], "the old identity is free to go", seconds=120)
    switch(name="local", kind="Secret")
    wait_until(lambda: mirrors() == [], "a Secret of the namespace needs no mirror", seconds=120)
    assert client.get(SECRET, "local", tour.TEAM)["metadata"].get("ownerReferences") is None
    switch(name=tour.IDENTITY)
    wait_until(lambda: mirrors() == [names.credential_mirror(tour.IDENTITY)], "it is back", seconds=120)
    assert stage.stop_manager() == 0
