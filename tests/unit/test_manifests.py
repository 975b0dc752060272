"""What config/ renders to: the installation, its roles, and what may be put on top."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from hack import manifests
from tests.manifests import ROOT, needs_kubectl, of_kind, rendered

from captf_controllers.api.kinds import ALL_KINDS
from captf_controllers.cli.manager import main as manager_command
from captf_controllers.webhooks.configuration import webhook_configuration
from captf_runtime.objects import Object
from captf_runtime.testing.apiserver.schema.cel.evaluation import compile_expression

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LABEL = ("cluster.x-k8s.io/provider", "infrastructure-terraform")
CLUSTER_SCOPED = {
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@pytest.fixture
def install() -> list[Object]:
    return rendered("default")


@pytest.fixture
def deployment(install: list[Object]) -> Object:
    return of_kind(install, "Deployment")


@pytest.fixture
def container(deployment: Object) -> Object:
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def test_the_checked_in_files_are_the_generated_ones() -> None:
    assert manifests.main(["--check"]) == 0


def test_check_sees_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("rbac", "webhook"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(manifests, "ROOT", tmp_path)
    assert manifests.main([]) == 0
    assert manifests.main(["--check"]) == 0
    (tmp_path / "rbac" / "manager_role.yaml").write_text("rules: all\n")
    assert manifests.main(["--check"]) == 1
    assert "manager_role.yaml" in capsys.readouterr().err


# The manager's role, against the table of the specification ------------------------------------------------

TABLE = """
core | configmaps, namespaces | get, list, watch
core | pods | get, list
core | secrets | create, delete, get, list, patch, update, watch
core | serviceaccounts | create, delete, get, list
authentication.k8s.io | tokenreviews | create
authorization.k8s.io | subjectaccessreviews | create
batch | jobs | create, delete, get, list, patch, watch
cluster.x-k8s.io | clusters | get, list, watch
cluster.x-k8s.io | machines, machinepools | get, list, patch, watch
coordination.k8s.io | leases | create, delete, get, list, update
events.k8s.io | events | create, patch
core | events | create, patch
infrastructure.cluster.x-k8s.io | terraformclusters, terraformmachines, terraformmachinepools | get, list, patch, watch
infrastructure.cluster.x-k8s.io | terraformplans | create, delete, get, list, patch, watch
infrastructure.cluster.x-k8s.io | terraformmachinetemplates, terraformclusteridentities | get, list, watch
infrastructure.cluster.x-k8s.io | terraformclusters/status, terraformmachines/status | patch
infrastructure.cluster.x-k8s.io | terraformmachinepools/status, terraformmachinetemplates/status | patch
infrastructure.cluster.x-k8s.io | terraformclusteridentities/status, terraformplans/status | patch
rbac.authorization.k8s.io | clusterroles | bind
rbac.authorization.k8s.io | rolebindings | create, delete, get, list, update
"""


def grants(role: Object) -> set[tuple[str, str, str]]:
    """Group, resource and verb of everything that a role allows."""
    return {
        (group or "core", resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@needs_kubectl
def test_the_manager_may_do_what_the_table_says_and_nothing_else(install: list[Object]) -> None:
    expected = {
        (group, resource.strip(), verb.strip())
        for group, resources, verbs in (line.split(" | ") for line in TABLE.strip().splitlines())
        for resource in resources.split(",")
        for verb in verbs.split(",")
    }
    role = of_kind(install, "ClusterRole", "captf-manager-role")
    assert grants(role) == expected
    assert not any(key.endswith("aggregate") or "aggregate-to" in key for key in role["metadata"]["labels"])
    (bind,) = [rule for rule in role["rules"] if "bind" in rule["verbs"]]
    assert bind["resourceNames"] == ["captf-runner"]
    binding = of_kind(install, "ClusterRoleBinding", "captf-manager-rolebinding")
    assert binding["roleRef"]["name"] == "captf-manager-role"
    account = {"kind": "ServiceAccount", "name": "captf-controller-manager", "namespace": "captf-system"}
    assert binding["subjects"] == [account]


@needs_kubectl
def test_no_role_has_a_wildcard_or_deletes_collections(install: list[Object]) -> None:
    for role in (obj for obj in install if obj["kind"] in ("Role", "ClusterRole")):
        flat = {part for grant in grants(role) for part in grant}
        assert not flat & {"*", "deletecollection", "escalate", "impersonate"}, role["metadata"]["name"]


@needs_kubectl
def test_the_other_roles(install: list[Object]) -> None:
    runner = of_kind(install, "ClusterRole", "captf-runner")
    assert grants(runner) == {
        *(("core", "secrets", verb) for verb in ("get", "list", "create", "update", "delete")),
        *(("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")),
        ("events.k8s.io", "events", "create"),
    }
    election = of_kind(install, "Role", "captf-leader-election-role")
    assert election["metadata"]["namespace"] == "captf-system"
    assert {verb for _, resource, verb in grants(election) if resource == "leases"} == {
        "get",
        "create",
        "update",
    }
    viewer = of_kind(install, "ClusterRole", "captf-viewer-role")
    assert {resource for _, resource, verb in grants(viewer) if verb == "watch"} == {
        kind.plural for kind in ALL_KINDS
    }
    assert not {verb for _, _, verb in grants(viewer)} - {"get", "list", "watch"}
    editor = of_kind(install, "ClusterRole", "captf-editor-role")
    assert not {resource for _, resource, _ in grants(editor)} & {
        "terraformplans",
        "terraformclusteridentities",
    }
    approver = of_kind(install, "ClusterRole", "captf-plan-approver-role")
    assert {resource for _, resource, _ in grants(approver)} == {"terraformplans"}
    assert {verb for _, _, verb in grants(approver)} == {"get", "list", "watch", "update", "patch"}

    def aggregated(role: Object) -> set[str]:
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        return {key.removeprefix(prefix) for key in role["metadata"]["labels"] if key.startswith(prefix)}

    assert aggregated(viewer) == {"view", "edit", "admin"}
    assert aggregated(editor) == {"edit", "admin"}
    assert aggregated(approver) == aggregated(runner) == set()


@needs_kubectl
def test_what_tests_install_is_what_is_shipped(install: list[Object]) -> None:
    """The roles that the end-to-end tests run under are the ones of the installation."""
    shipped = {(obj["kind"], obj["metadata"]["name"]): obj for obj in install}
    for obj in manifests.installed():
        found = shipped[obj["kind"], obj["metadata"]["name"]]
        labels = {**obj["metadata"].get("labels", {}), LABEL[0]: LABEL[1]}
        assert found == {**obj, "metadata": {**obj["metadata"], "labels": labels}}


# The installation -----------------------------------------------------------------------------------------


@needs_kubectl
def test_every_object_is_named_and_labelled_for_clusterctl(install: list[Object]) -> None:
    for obj in install:
        metadata = obj["metadata"]
        assert metadata["labels"][LABEL[0]] == LABEL[1], obj
        if obj["kind"] in CLUSTER_SCOPED:
            assert "namespace" not in metadata, obj
        else:
            assert metadata["namespace"] == "captf-system", obj
        if obj["kind"] != "CustomResourceDefinition":
            assert metadata["name"].startswith("captf-"), obj
            assert not metadata["name"].startswith("captf-captf-"), obj
    definitions = [obj for obj in install if obj["kind"] == "CustomResourceDefinition"]
    assert {obj["spec"]["names"]["kind"] for obj in definitions} == {kind.kind for kind in ALL_KINDS}
    assert all(obj["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"] == "v1alpha1" for obj in definitions)


@needs_kubectl
def test_the_manager_runs_twice_restricted_and_drainable(
    install: list[Object], deployment: Object, container: Object
) -> None:
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert pod["serviceAccountName"] == "captf-controller-manager"
    assert pod["terminationGracePeriodSeconds"] == 30
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
    }
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    budget = of_kind(install, "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    labels = spec["template"]["metadata"]["labels"]
    selectors = [spec["selector"]["matchLabels"], budget["spec"]["selector"]["matchLabels"]]
    selectors += [of_kind(install, "Service")["spec"]["selector"], spread["labelSelector"]["matchLabels"]]
    for selector in selectors:
        assert selector == labels
        assert selector[LABEL[0]] == LABEL[1]


@needs_kubectl
def test_the_probes_and_ports_are_the_managers(container: Object) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    defaults = {param.name: param.default for param in manager_command.params}
    assert ports == {
        "webhook-server": defaults["webhook_port"],
        "metrics": int(defaults["diagnostics_address"].removeprefix(":")),
        "healthz": int(defaults["health_addr"].removeprefix(":")),
    }
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "healthz"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "healthz"}


@needs_kubectl
def test_the_arguments_are_flags_of_the_manager(container: Object) -> None:
    assert container["command"] == ["captf-manager"]
    context = manager_command.make_context("captf-manager", list(container["args"]), resilient_parsing=False)
    assert context.params["leader_elect"] is True
    assert context.params["insecure_diagnostics"] is False


@needs_kubectl
def test_the_runner_comes_from_the_managers_own_image(container: Object) -> None:
    environment = {item["name"]: item for item in container["env"]}
    assert environment["CAPTF_MANAGER_IMAGE"]["value"] == container["image"]
    assert container["image"].endswith(f":v{VERSION}")
    fields = {
        name: item["valueFrom"]["fieldRef"]["fieldPath"]
        for name, item in environment.items()
        if "valueFrom" in item
    }
    assert fields == {
        "POD_NAMESPACE": "metadata.namespace",
        "SERVICE_ACCOUNT_NAME": "spec.serviceAccountName",
    }


@needs_kubectl
def test_the_certificate_is_for_the_service_that_the_webhooks_name(
    install: list[Object], deployment: Object, container: Object
) -> None:
    configuration = of_kind(install, "ValidatingWebhookConfiguration")
    service, certificate = of_kind(install, "Service"), of_kind(install, "Certificate")
    assert service["spec"]["ports"][0]["port"] == 443
    name = service["metadata"]["name"]
    assert name == "captf-webhook-service"
    expected = webhook_configuration({"service": {"namespace": "captf-system", "name": name}})
    assert configuration["webhooks"] == expected["webhooks"]
    assert configuration["metadata"]["name"] == expected["metadata"]["name"]
    assert configuration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "captf-system/captf-serving-cert"
    }
    assert certificate["metadata"]["name"] == "captf-serving-cert"
    assert certificate["spec"]["issuerRef"]["name"] == of_kind(install, "Issuer")["metadata"]["name"]
    assert certificate["spec"]["dnsNames"] == [
        "captf-webhook-service.captf-system.svc",
        "captf-webhook-service.captf-system.svc.cluster.local",
    ]
    (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert "optional" not in volume["secret"]
    (mount,) = container["volumeMounts"]
    defaults = {param.name: param.default for param in manager_command.params}
    assert mount["mountPath"] == defaults["webhook_cert_dir"].rstrip("/")


@needs_kubectl
def test_the_admission_policy_keeps_approvals_in_ones_own_name(install: list[Object]) -> None:
    policy = of_kind(install, "ValidatingAdmissionPolicy")
    binding = of_kind(install, "ValidatingAdmissionPolicyBinding")
    assert policy["metadata"]["name"] == binding["spec"]["policyName"] == "captf-plan-approval"
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert policy["spec"]["failurePolicy"] == "Fail"


APPROVALS = [
    # before, after, whether jane may do that
    ({}, {"approved": True, "approvedBy": "jane"}, True),
    ({"approved": False}, {"approved": True, "approvedBy": "jane"}, True),
    ({}, {"approved": True, "approvedBy": "mallory"}, False),
    ({}, {"approved": True}, False),
    ({"approved": True, "approvedBy": "joe"}, {"approved": True, "approvedBy": "joe"}, True),
    ({}, {}, True),
    ({}, {"approved": False}, True),
]


@needs_kubectl
@pytest.mark.parametrize(("before", "after", "allowed"), APPROVALS)
def test_the_admission_policy_decides(
    install: list[Object], before: Object, after: Object, allowed: bool
) -> None:
    spec = of_kind(install, "ValidatingAdmissionPolicy")["spec"]
    variables = {
        "object": {"spec": after},
        "oldObject": {"spec": before},
        "request": {"userInfo": {"username": "jane"}},
    }

    def evaluate(expression: str) -> bool:
        return bool(compile_expression(expression, frozenset(variables)).evaluate(variables))

    concerned = all(evaluate(condition["expression"]) for condition in spec["matchConditions"])
    passes = all(evaluate(validation["expression"]) for validation in spec["validations"])
    assert (passes or not concerned) is allowed


@needs_kubectl
def test_prometheus_finds_the_manager_and_may_read_it(deployment: Object, container: Object) -> None:
    """The opt-in component: built alone, under its final names, for the pods that the installation makes."""
    component = rendered("prometheus")
    assert {(obj["kind"], obj["metadata"]["name"]) for obj in component} == {
        ("Service", "captf-controller-manager-metrics"),
        ("ServiceMonitor", "captf-controller-manager"),
        ("ClusterRole", "captf-metrics-reader"),
        ("ClusterRoleBinding", "captf-metrics-reader"),
        ("PrometheusRule", "captf-alerts"),
    }
    service = of_kind(component, "Service")
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"]) == ("metrics", 8443)
    assert port["targetPort"] in {item["name"] for item in container["ports"]}
    monitor = of_kind(component, "ServiceMonitor")
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"] == "captf-system"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["scheme"]) == ("metrics", "/metrics", "https")
    assert endpoint["tlsConfig"]["insecureSkipVerify"] is True
    role, binding = of_kind(component, "ClusterRole"), of_kind(component, "ClusterRoleBinding")
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "monitoring"}
    ]
    shipped = {(obj["kind"], obj["metadata"]["name"]) for obj in rendered("default")}
    opt_in = {("ServiceMonitor", "captf-controller-manager"), ("PrometheusRule", "captf-alerts")}
    assert shipped.isdisjoint(opt_in), "no part of the release manifest"


@needs_kubectl
def test_the_network_policy_selects_the_manager_and_opens_its_ports(
    deployment: Object, container: Object
) -> None:
    policy = of_kind(rendered("network-policy"), "NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == deployment["spec"]["selector"]["matchLabels"]
    (ingress,) = policy["spec"]["ingress"]
    assert {port["port"] for port in ingress["ports"]} == {
        port["containerPort"] for port in container["ports"]
    }
    outside = {
        (port["port"], port["protocol"]) for rule in policy["spec"]["egress"] for port in rule["ports"]
    }
    assert outside == {(53, "UDP"), (53, "TCP"), (6443, "TCP"), (443, "TCP")}


def test_the_release_metadata_knows_this_version_and_the_contract() -> None:
    metadata = yaml.safe_load((ROOT / "metadata.yaml").read_text())
    assert metadata["apiVersion"] == "clusterctl.cluster.x-k8s.io/v1alpha3"
    assert metadata["releaseSeries"][0] == {"major": 0, "minor": 1, "contract": "v1beta2"}
    major, minor = re.match(r"(\d+)\.(\d+)", VERSION).groups()  # type: ignore[union-attr]
    series = {(entry["major"], entry["minor"]) for entry in metadata["releaseSeries"]}
    assert (int(major), int(minor)) in series
