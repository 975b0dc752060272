"""kubectl and Terraform against the embedded API server, unchanged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.raw_http import Raw
from tests.integration.widgets import DEFINITION, widget

from captf_runtime.testing.apiserver import ApiServer

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=[DEFINITION], tls=True, rbac=True) as running:
        Raw(running).create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        yield running


@pytest.fixture
def environment(server: ApiServer, tmp_path: Path) -> dict[str, str]:
    """The environment of kubectl in namespace t."""
    return {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(server.kubeconfig(namespace="t")),
    }


@pytest.fixture
def program() -> str:
    """The path of kubectl."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("kubectl is not on the PATH")
    return found


@pytest.fixture
def start_kubectl(program: str, environment: dict[str, str]) -> Start:
    """Starts kubectl in namespace t, for a test that reads its output while it runs."""

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True, env=environment)

    return start


@pytest.fixture
def kubectl(program: str, environment: dict[str, str]) -> Run:
    """Runs kubectl in namespace t; an exit status other than 0 fails the test unless `check` is false."""

    def run(
        *arguments: str, input: str = "", check: bool = True, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [program, *arguments],
            input=input,
            capture_output=True,
            text=True,
            timeout=120,
            env={**environment, **extra},
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: a, image: one, env: [{name: A, value: "1"}, {name: B, value: "2"}]}
"""


@pytest.mark.requirement("AS4")
def test_get_and_describe(kubectl: Run) -> None:
    kubectl("create", "configmap", "seen", "--from-literal=key=value")
    table = kubectl("get", "configmaps").stdout
    assert table.splitlines()[0].split() == ["NAME", "DATA", "AGE"]
    assert any(line.split()[:2] == ["seen", "1"] for line in table.splitlines())
    assert json.loads(kubectl("get", "cm", "seen", "-o", "json").stdout)["data"] == {"key": "value"}
    assert kubectl("get", "cm/seen", "-o", "jsonpath={.data.key}").stdout == "value"
    described = kubectl("describe", "configmap", "seen").stdout
    assert "Name:         seen" in described
    assert "Events:  <none>" in described
    assert "namespace/t" in kubectl("get", "namespaces", "-o", "name").stdout
    assert "widgets" in kubectl("api-resources").stdout
    missing = kubectl("get", "cm", "nope", check=False)
    assert missing.stderr.strip() == 'Error from server (NotFound): configmaps "nope" not found'


@pytest.mark.requirement("AS4")
def test_create_in_all_its_forms(kubectl: Run) -> None:
    kubectl("create", "namespace", "made")
    kubectl("create", "secret", "generic", "made", "--from-literal=a=b")
    assert kubectl("get", "secret", "made", "-o", "jsonpath={.data.a} {.type}").stdout == "Yg== Opaque"
    kubectl("create", "serviceaccount", "made")
    assert kubectl("create", "token", "made").stdout.count(".") == 2
    kubectl("create", "role", "made", "--verb=get", "--resource=pods")
    kubectl("create", "rolebinding", "made", "--role=made", "--serviceaccount=t:made")
    kubectl("create", "clusterrole", "made", "--verb=get", "--resource=nodes")
    kubectl("create", "clusterrolebinding", "made", "--clusterrole=made", "--user=joe")
    kubectl("create", "job", "made", "--image=busybox", "--", "echo", "hi")
    kubectl("create", "deployment", "made", "--image=nginx")
    job = json.loads(kubectl("get", "job", "made", "-o", "json").stdout)
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["echo", "hi"]
    kubectl("create", "-f", "-", input=json.dumps(widget("made", 2)))
    wide = kubectl("get", "widgets", "-o", "wide").stdout.splitlines()
    assert wide[0].split() == ["NAME", "SIZE", "AGE"]
    refused = kubectl("create", "-f", "-", input=json.dumps(widget("bad", 20)), check=False)
    assert "spec.size in body should be less than or equal to 10" in refused.stderr


@pytest.mark.requirement("AS4")
def test_client_side_apply(kubectl: Run) -> None:
    assert "created" in kubectl("apply", "-f", "-", input=DEPLOYMENT).stdout
    assert "unchanged" in kubectl("apply", "-f", "-", input=DEPLOYMENT).stdout
    changed = DEPLOYMENT.replace('{name: B, value: "2"}', '{name: C, value: "3"}')
    difference = kubectl("diff", "-f", "-", input=changed, check=False)
    assert difference.returncode == 1
    assert "configured" in kubectl("apply", "-f", "-", input=changed).stdout
    names = kubectl(
        "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].env[*].name}"
    )
    assert names.stdout.split() == ["A", "C"]


@pytest.mark.requirement("AS4")
def test_server_side_apply(kubectl: Run) -> None:
    manifest = json.dumps(widget("applied", 1))
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", input=manifest).stdout
    other = json.dumps(widget("applied", 2))
    conflict = kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", input=other, check=False)
    assert 'conflict with "kubectl": .spec.size' in conflict.stderr
    kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", input=other)
    assert kubectl("get", "widget", "applied", "-o", "jsonpath={.spec.size}").stdout == "2"


@pytest.mark.requirement("AS4")
def test_patch_annotate_label_and_edit(kubectl: Run) -> None:
    kubectl("create", "configmap", "changed", "--from-literal=key=value")
    kubectl("patch", "configmap", "changed", "-p", '{"data":{"b":"2"}}')
    kubectl("patch", "configmap", "changed", "--type=merge", "-p", '{"data":{"c":"3"}}')
    kubectl("patch", "configmap", "changed", "--type=json", "-p", '[{"op":"remove","path":"/data/b"}]')
    kubectl("annotate", "configmap", "changed", "note=yes")
    kubectl("label", "configmap", "changed", "kind=test")
    kubectl("edit", "configmap", "changed", EDITOR="sed -i s/value/edited/")
    found = json.loads(kubectl("get", "configmap", "changed", "-o", "json").stdout)
    assert found["data"] == {"key": "edited", "c": "3"}
    assert found["metadata"]["annotations"] == {"note": "yes"}
    assert found["metadata"]["labels"] == {"kind": "test"}
    warned = kubectl("patch", "widget", "absent", "--type=merge", "-p", "{}", check=False)
    assert 'widgets.example.io "absent" not found' in warned.stderr


@pytest.mark.requirement("AS4")
def test_wait_watch_and_delete(kubectl: Run, start_kubectl: Start) -> None:
    kubectl("create", "configmap", "brief", "--from-literal=key=value")
    kubectl("wait", "--for=jsonpath={.data.key}=value", "configmap/brief", "--timeout=60s")
    with start_kubectl("get", "configmaps", "--watch") as watching:
        assert watching.stdout is not None
        assert any(line.startswith("brief ") for line in watching.stdout)
        watching.kill()
    assert 'configmap "brief" deleted' in kubectl("delete", "configmap", "brief").stdout
    kubectl("wait", "--for=delete", "configmap/brief", "--timeout=60s")
    kubectl("create", "configmap", "held")
    kubectl("patch", "configmap", "held", "-p", '{"metadata":{"finalizers":["example.io/hold"]}}')
    kubectl("delete", "configmap", "held", "--wait=false")
    assert kubectl("get", "configmap", "held", "-o", "jsonpath={.metadata.deletionTimestamp}").stdout
    kubectl("delete", "configmaps", "-l", "absent=yes")


@pytest.mark.requirement("AS4")
def test_auth_explain_and_logs(kubectl: Run, server: ApiServer) -> None:
    assert kubectl("auth", "can-i", "delete", "pods").stdout.strip() == "yes"
    joe = str(server.kubeconfig(user="joe"))
    refused = kubectl("auth", "can-i", "delete", "pods", KUBECONFIG=joe, check=False)
    assert (refused.returncode, refused.stdout.strip()) == (1, "no")
    assert "selfsubjectaccessreviews" in kubectl("auth", "can-i", "--list", KUBECONFIG=joe).stdout
    assert "joe" in kubectl("auth", "whoami", KUBECONFIG=joe).stdout
    assert "size" in kubectl("explain", "widgets.spec").stdout
    kubectl("explain", "pods.spec.containers")
    server.register_log_provider(lambda namespace, pod, options: iter([f"log of {pod}\n".encode()]))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "talks"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }
    kubectl("create", "-f", "-", input=json.dumps(pod))
    assert kubectl("logs", "talks").stdout == "log of talks\n"


@pytest.mark.requirement("AS4")
def test_events(kubectl: Run, server: ApiServer) -> None:
    kubectl("create", "configmap", "told")
    uid = kubectl("get", "configmap", "told", "-o", "jsonpath={.metadata.uid}").stdout
    event = {
        "metadata": {"name": "told.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.io/test",
        "reportingInstance": "i",
        "action": "Tell",
        "reason": "Told",
        "type": "Normal",
        "note": "a tale",
        "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "told", "namespace": "t", "uid": uid},
    }
    assert Raw(server).create("/apis/events.k8s.io/v1/namespaces/t/events", event).code == 201
    described = kubectl("describe", "configmap", "told").stdout
    assert "Told" in described
    assert "a tale" in described
    assert "a tale" in kubectl("get", "events").stdout
    assert "a tale" in kubectl("events").stdout


BACKEND = """
terraform {
  backend "kubernetes" {
    secret_suffix = "demo"
    namespace     = "t"
  }
}
resource "terraform_data" "a" { input = "1" }
output "o" { value = terraform_data.a.output }
"""


@pytest.mark.terraform
@pytest.mark.requirement("AS1", "AS4")
def test_the_kubernetes_backend_of_terraform(server: ApiServer, tmp_path: Path) -> None:
    program = shutil.which("terraform") or shutil.which("tofu")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("terraform is not on the PATH")
        pytest.skip("terraform is not on the PATH")
    (tmp_path / "main.tf").write_text(BACKEND)
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "KUBE_CONFIG_PATH": str(server.kubeconfig()),
        "CHECKPOINT_DISABLE": "1",
    }

    def terraform(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments, "-no-color"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert terraform("init").returncode == 0
    done = terraform("apply", "-auto-approve")
    assert 'o = "1"' in done.stdout, done.stderr
    raw = Raw(server)
    secret = raw.get("/api/v1/namespaces/t/secrets/tfstate-default-demo")
    assert secret["metadata"]["labels"]["tfstate"] == "true"
    lease = "/apis/coordination.k8s.io/v1/namespaces/t/leases/lock-tfstate-default-demo"
    free = raw.get(lease)
    assert not free["spec"].get("holderIdentity")
    raw.patch(
        lease,
        {
            "spec": {"holderIdentity": "someone"},
            "metadata": {"annotations": {"app.terraform.io/lock-info": '{"ID":"someone"}'}},
        },
    )
    locked = terraform("apply", "-auto-approve")
    assert locked.returncode == 1
    assert "Error acquiring the state lock" in locked.stderr
    raw.patch(lease, {"spec": {"holderIdentity": None}})
    assert terraform("destroy", "-auto-approve").returncode == 0
