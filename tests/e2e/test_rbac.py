"""The manager and the runner under the accounts and roles that ship: nothing refused, nothing granted in vain.

The embedded API server tells from its request log what was asked for, a real one from its audit log.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from hack import manifests as shipped
from hack.tour import manifests as tour
from hack.tour.stage import ACCESS_KINDS, MANAGER, Stage, find_runtime
from tests.e2e.cloud import Cloud
from tests.e2e.scene import Scene, Subject
from tests.manifests import needs_kubectl, rendered

from captf_controllers.api import labels, names
from captf_controllers.api.kinds import (
    CLUSTER,
    MACHINE_POOL,
    TERRAFORM_MACHINE_POOL,
    TERRAFORM_MACHINE_TEMPLATE,
    TERRAFORM_PLAN,
)
from captf_controllers.jobs.leases import GRACE
from captf_runtime.objects import (
    CONFIG_MAP,
    LEASE,
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
    Object,
    format_micro_time,
    name_of,
)
from captf_runtime.testing.real_control_plane import ControlPlaneError, RealControlPlane

pytestmark = [pytest.mark.terraform, pytest.mark.slow]

RBAC = "rbac.authorization.k8s.io"
USER = f"system:serviceaccount:{shipped.NAMESPACE}:{MANAGER}"
RUNNER = ":captf-runner"
FLAGS = (
    "--leader-elect",
    f"--leader-elect-namespace={shipped.NAMESPACE}",
    "--diagnostics-address=127.0.0.1:0",
    "--insecure-diagnostics=false",
)
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}

_OWN, _CAPI = TERRAFORM_PLAN.group, CLUSTER.group
#: What the role grants, as its specification does, and this life does not come to.
NOT_LIVED: dict[tuple[str, str, str], str] = {
    ("", "pods", "get"): "the pod that a state lock names",
    **{("", "events", verb): "Events of API servers before events.k8s.io/v1" for verb in ("create", "patch")},
    ("events.k8s.io", "events", "patch"): "an event that is told again, if it comes to that",
    ("batch", "jobs", "delete"): "the history limits and Jobs that are stuck",
    (RBAC, "clusterroles", "bind"): "asked by the API server itself, when the runner's binding is made",
    **{(_CAPI, "machines", verb): "remediation" for verb in ("get", "patch")},
    (_CAPI, "machinepools", "patch"): "replicas that the module decides on",
    (_CAPI, "machinepools", "get"): "the same, when somebody writes the MachinePool meanwhile",
    **{(_OWN, "terraformplans", verb): "plans that were superseded" for verb in ("get", "delete")},
}

Grant = tuple[str, str, str]
"""API group, resource with subresource, verb."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came to the API server."""

    user: str
    group: str
    resource: str
    verb: str
    code: int

    @property
    def grant(self) -> Grant:
        return (self.group, self.resource, self.verb)


@dataclass(frozen=True, slots=True)
class Watched:
    """A stage and the requests that its API server has answered so far."""

    stage: Stage
    asked: Callable[[], list[Asked]]


def granted(*names: str) -> set[Grant]:
    """What the roles of these names allow."""
    return {
        (group, resource, verb)
        for obj in shipped.installed()
        if obj["metadata"]["name"] in names and "rules" in obj
        for rule in obj["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.fixture(scope="module")
def on_embedded(images: dict[str, Path]) -> Iterator[Watched]:
    with Stage(runtime=find_runtime(), modules=images, manager_flags=FLAGS) as stage:
        server = stage.server
        assert server is not None

        def asked() -> list[Asked]:
            return [
                Asked(
                    entry.user,
                    entry.group,
                    entry.resource + (f"/{entry.subresource}" if entry.subresource else ""),
                    entry.verb,
                    entry.code,
                )
                for entry in server.requests
                if entry.resource
            ]

        yield Watched(stage, asked)


@pytest.fixture(scope="module")
def on_real(images: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("audit")
    policy, log = folder / "policy.json", folder / "audit.log"
    policy.write_text(json.dumps(AUDIT_POLICY))
    arguments = [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
    try:
        plane = RealControlPlane(arguments=arguments)
    except ControlPlaneError as error:
        pytest.skip(str(error))

    def asked() -> list[Asked]:
        found = []
        written, _, _ = log.read_text().rpartition("\n")  # others' requests are being logged
        for line in written.splitlines():
            event = json.loads(line)
            target = event.get("objectRef")
            if target is None or "resource" not in target:
                continue
            subresource = target.get("subresource")
            found.append(
                Asked(
                    event["user"].get("username", ""),
                    target.get("apiGroup", ""),
                    target["resource"] + (f"/{subresource}" if subresource else ""),
                    event["verb"],
                    event.get("responseStatus", {}).get("code", 0),
                )
            )
        return found

    with (
        plane,
        Stage(
            runtime=find_runtime(), modules=images, kubeconfig=plane.kubeconfig, manager_flags=FLAGS
        ) as stage,
    ):
        yield Watched(stage, asked)


@pytest.fixture(params=["on_embedded", pytest.param("on_real", marks=pytest.mark.real_apiserver)])
def watched(request: pytest.FixtureRequest) -> Watched:
    found: Watched = request.getfixturevalue(request.param)
    return found


def live(scene: Scene) -> None:
    """The whole life of objects: built, changed, planned and approved, retained, adopted, lost, restored,
    abandoned, destroyed.
    """
    cluster = scene.cluster()
    cluster.wait_ready()
    scene.report_infrastructure()
    first, second, third = (scene.machine(name) for name in ("m1", "m2", "m3"))
    for machine in (first, second, third):
        machine.wait_ready()
    retained_and_adopted(scene, first)
    restored(second)
    abandoned(third)
    approved(scene, cluster)
    pooled(scene)
    templated(scene)
    first = Subject(scene, first.kind, first.name)
    first.delete()
    first.wait_gone()
    cluster.delete()
    cluster.wait_gone()
    scene.wait_clean()


def retained_and_adopted(scene: Scene, machine: Subject) -> None:
    machine.patch({"spec": {"deletionPolicy": "Retain"}})
    machine.delete()
    machine.wait_gone()
    scene.machine(machine.name, adoptRetainedState=True).wait_ready()


def restored(machine: Subject) -> None:
    machine.delete_state()
    machine.delete()
    machine.wait_says("StateReadable", "False/StateLost")
    machine.restore(machine.status["stateBackups"][0]["serial"])
    machine.wait_gone()


def abandoned(machine: Subject) -> None:
    machine.delete_state()
    machine.delete()
    machine.wait_says("StateReadable", "False/StateLost")
    machine.abandon()
    machine.wait_gone()


def approved(scene: Scene, cluster: Subject) -> None:
    """A change that waits for an approval, and gets it."""
    cluster.patch({"spec": {"applyPolicy": "Manual"}})
    cluster.set_variables(servers=3)

    def plan() -> Object | None:
        plans = scene.client.list(TERRAFORM_PLAN, scene.namespace).items
        return plans[0] if plans else None

    found = scene.wait(plan, "a plan waits for approval")
    scene.client.patch(
        TERRAFORM_PLAN,
        name_of(found),
        {"spec": {"approved": True, "approvedBy": "admin"}},
        scene.namespace,
    )
    scene.wait(lambda: len(scene.cloud.servers(cluster.name)) == 3, "the approved change is applied")
    cluster.wait_ready()


def pooled(scene: Scene) -> None:
    """A pool with a variable from a ConfigMap, whose Jobs run as an account of the user's."""
    client, namespace = scene.client, scene.namespace
    client.create(
        CONFIG_MAP,
        {
            "metadata": {"name": "sizes", "labels": {labels.VARIABLES: "true"}},
            "data": {"health_message": "fine"},
        },
        namespace,
    )
    client.create(
        SERVICE_ACCOUNT, {"metadata": {"name": "builder", "labels": {labels.RUNNER: "true"}}}, namespace
    )
    secret = tour.secret("p1-bootstrap", namespace, {"value": "#cloud-config\n{}\n"})
    client.create(SECRET, secret, namespace)
    owner = client.create(MACHINE_POOL, tour.machine_pool("p1", namespace=namespace), namespace)
    left_lease(scene, TERRAFORM_MACHINE_POOL, "p1")
    pool = tour.terraform_machine_pool(
        owner,
        namespace=namespace,
        jobs={"serviceAccountName": "builder"},
        variablesFrom=[{"configMapRef": {"name": "sizes"}}],
    )
    client.create(TERRAFORM_MACHINE_POOL, pool, namespace)
    subject = Subject(scene, TERRAFORM_MACHINE_POOL, "p1")
    subject.wait_ready()
    subject.delete()
    subject.wait_gone()
    client.delete(MACHINE_POOL, "p1", namespace, propagation_policy="Background")


def templated(scene: Scene) -> None:
    """A machine template, for scaling from zero."""
    spec = {"capacity": {"cpu": "2"}, "template": {"spec": {"source": {"image": tour.MACHINE_IMAGE}}}}
    client, namespace = scene.client, scene.namespace
    client.create(TERRAFORM_MACHINE_TEMPLATE, {"metadata": {"name": "workers"}, "spec": spec}, namespace)

    def published() -> bool:
        found = client.get(TERRAFORM_MACHINE_TEMPLATE, "workers", namespace)
        return (found.get("status") or {}).get("capacity") == {"cpu": "2"}

    scene.wait(published, "the capacity is published")


def left_lease(scene: Scene, kind: Kind, name: str) -> None:
    """The run lease of a manager that ended before it created the Job: the next one asks for that Job."""
    suffix = names.state_suffix(scene.namespace, kind.kind, name)
    spec = {
        "holderIdentity": names.job_name(kind.kind, name, "apply", 1, "h2:left"),
        "acquireTime": format_micro_time(datetime.now(UTC) - 2 * GRACE),
        "leaseDurationSeconds": 3600,
    }
    scene.client.create(LEASE, {"metadata": {"name": names.run_lease(suffix)}, "spec": spec}, scene.namespace)


def read_metrics(stage: Stage) -> str:
    """What Prometheus reads from the diagnostics endpoint, with the role of config/prometheus."""
    for obj in rendered("prometheus"):
        if obj["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            stage.client.create(ACCESS_KINDS[obj["kind"]], obj)
    stage.client.create(NAMESPACE, {"metadata": {"name": "monitoring"}})
    stage.client.create(SERVICE_ACCOUNT, {"metadata": {"name": "prometheus-k8s"}}, "monitoring")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = stage.client.create_subresource(
        SERVICE_ACCOUNT, "prometheus-k8s", "token", request, "monitoring"
    )
    listening = re.search(r'listening component="diagnostics" address="([^"]+)"', stage.manager_log())
    assert listening is not None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    target = f"https://{listening.group(1)}/metrics"
    with pytest.raises(HTTPError, match="401"):
        urlopen(target, context=context, timeout=60)
    headers = {"Authorization": f"Bearer {answer['status']['token']}"}
    with urlopen(Request(target, headers=headers), context=context, timeout=60) as response:
        return str(response.read().decode())


@needs_kubectl
def test_nothing_is_refused_and_nothing_asked_for_beyond_the_roles(watched: Watched, tmp_path: Path) -> None:
    stage = watched.stage
    stage.start_manager()
    scene = Scene(stage, "under-the-role", Cloud(tmp_path / "cloud"))
    scene.prepare()
    live(scene)
    stage.check_manager()
    series = read_metrics(stage)
    assert 'captf_build_info{commit="unknown",contract="v1beta2"' in series
    assert 'captf_jobs_total{kind="TerraformCluster",op="destroy",result="succeeded"} 1.0' in series
    assert stage.stop_manager() == 0
    asked = watched.asked()
    manager = [entry for entry in asked if entry.user == USER]
    runner = [entry for entry in asked if entry.user.endswith(RUNNER)]
    assert manager, "no request of the manager was recorded"
    assert runner, "no request of a runner was recorded"
    may = granted("captf-manager-role") | granted("captf-leader-election-role")
    assert {entry.grant for entry in manager} - may == set()
    assert {entry.grant for entry in runner} - granted("captf-runner") == set()
    refused = [entry for entry in manager + runner if entry.code in (401, 403)]
    assert refused == []
    used = {entry.grant for entry in manager}
    unused = {grant for grant in granted("captf-manager-role") - used if grant not in NOT_LIVED}
    assert unused == set(), "granted in vain"
