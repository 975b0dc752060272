"""The CustomResourceDefinitions, as an API server judges them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hack import crds

from captf_controllers.api.kinds import ALL_KINDS
from captf_runtime.testing.apiserver.schema.compiled import CompiledSchema, compile_schema
from captf_runtime.testing.apiserver.schema.definition import default_crd, validate_crd

BY_KIND = {definition["spec"]["names"]["kind"]: definition for definition in crds.definitions()}


def schema_of(kind: str) -> CompiledSchema:
    return compile_schema(BY_KIND[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def problems(kind: str, spec: Any, old: Any = None, *, status: Any = None) -> list[str]:
    """Return the fields and messages that the API server answers for a spec, made or changed."""

    def whole(part: Any) -> dict[str, Any]:
        built = {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "a"}, "spec": copy.deepcopy(part)}
        return {**built, "status": status} if status is not None else built

    causes = schema_of(kind).validate(whole(spec), whole(old) if old is not None else None)
    return [f"{cause.field}: {cause.message}" for cause in causes]


def test_the_checked_in_files_are_the_generated_ones() -> None:
    assert crds.main(["--check"]) == 0


def test_check_sees_a_difference_and_a_stale_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crds, "DIRECTORY", tmp_path)
    assert crds.main([]) == 0
    assert crds.main(["--check"]) == 0
    next(iter(tmp_path.glob("*terraformplans.yaml"))).write_text("kind: x\n", encoding="utf-8")
    (tmp_path / "old.yaml").write_text("kind: x\n", encoding="utf-8")
    assert crds.main(["--check"]) == 1
    told = capsys.readouterr().err
    assert "terraformplans.yaml" in told
    assert "old.yaml" in told
    assert crds.main([]) == 0
    assert crds.main(["--check"]) == 0
    assert not (tmp_path / "old.yaml").exists()
    listed = yaml.safe_load((tmp_path / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert len(listed) == 8


@pytest.mark.parametrize("mode", ["modern", "1.20"])
@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_an_api_server_takes_the_definition(kind: str, mode: Any) -> None:
    definition = copy.deepcopy(BY_KIND[kind])
    default_crd(definition)
    assert [str(cause) for cause in validate_crd(definition, mode=mode)] == []


@pytest.mark.parametrize(
    ("kind", "plural", "short", "scope", "status"),
    [
        ("TerraformCluster", "terraformclusters", "tfc", "Namespaced", True),
        ("TerraformMachine", "terraformmachines", "tfm", "Namespaced", True),
        ("TerraformMachinePool", "terraformmachinepools", "tfmp", "Namespaced", True),
        ("TerraformClusterTemplate", "terraformclustertemplates", "tfct", "Namespaced", False),
        ("TerraformMachineTemplate", "terraformmachinetemplates", "tfmt", "Namespaced", True),
        ("TerraformMachinePoolTemplate", "terraformmachinepooltemplates", "tfmpt", "Namespaced", False),
        ("TerraformClusterIdentity", "terraformclusteridentities", "tfci", "Cluster", True),
        ("TerraformPlan", "terraformplans", "tfplan", "Namespaced", True),
    ],
)
def test_names_scope_and_labels(kind: str, plural: str, short: str, scope: str, status: bool) -> None:
    definition = BY_KIND[kind]
    names = definition["spec"]["names"]
    assert (names["plural"], names["shortNames"], names["categories"]) == (plural, [short], ["cluster-api"])
    assert definition["spec"]["scope"] == scope
    version = definition["spec"]["versions"][0]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert ("subresources" in version) is status
    assert ("status" in version["schema"]["openAPIV3Schema"]["properties"]) is status
    labels = definition["metadata"]["labels"]
    assert labels["cluster.x-k8s.io/v1beta2"] == "v1alpha1"
    assert ("clusterctl.cluster.x-k8s.io/move-hierarchy" in labels) is (kind == "TerraformClusterIdentity")


def test_every_kind_has_a_definition() -> None:
    assert sorted(BY_KIND) == sorted(kind.kind for kind in ALL_KINDS)


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("TerraformCluster", "Cluster Ready Provisioned Endpoint Image* InputsApplied* Age"),
        ("TerraformMachine", "Cluster Machine Ready Provisioned ProviderID Image* InputsApplied* Age"),
        ("TerraformMachinePool", "Cluster MachinePool Replicas Ready InputsApplied* Age"),
        ("TerraformClusterTemplate", "Image Age"),
        ("TerraformMachineTemplate", "Image Age"),
        ("TerraformMachinePoolTemplate", "Image Age"),
        ("TerraformClusterIdentity", "Secret Namespace Ready Age"),
        ("TerraformPlan", "Target Reason Phase Create Update Replace Delete Approved Age"),
    ],
)
def test_printer_columns(kind: str, columns: str) -> None:
    found = BY_KIND[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert " ".join(column["name"] + "*" * column.get("priority", 0) for column in found) == columns


def test_no_schema_sets_a_default() -> None:
    assert "'default'" not in repr(crds.definitions())


def test_every_field_of_a_spec_is_described() -> None:
    def undescribed(schema: dict[str, Any], path: str) -> list[str]:
        found = [] if "description" in schema else [path]
        for name, part in schema.get("properties", {}).items():
            found += undescribed(part, f"{path}.{name}")
        if "properties" in schema.get("items", {}):
            found += undescribed(schema["items"], f"{path}[]")
        return found

    for kind, definition in BY_KIND.items():
        properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        for part in ("spec", "status"):
            if part in properties:
                assert undescribed(properties[part], f"{kind}.{part}") == []


SOURCE = {"image": "registry.example.com/m:v1"}
CLUSTER = {"source": SOURCE, "identityRef": {"name": "aws"}}
MACHINE = {"source": SOURCE}


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("TerraformCluster", {"identityRef": {"name": "a"}}, "spec.source"),
        ("TerraformCluster", {**CLUSTER, "source": {"image": ""}}, "spec.source.image"),
        ("TerraformCluster", {**CLUSTER, "source": {"image": "x" * 513}}, "spec.source.image"),
        ("TerraformCluster", {**CLUSTER, "source": {**SOURCE, "imagePullPolicy": "Soon"}}, "imagePullPolicy"),
        ("TerraformCluster", {**CLUSTER, "identityRef": {"name": "a", "kind": "X"}}, "identityRef.kind"),
        ("TerraformCluster", {**CLUSTER, "variables": {}}, "spec.variables"),
        ("TerraformCluster", {**CLUSTER, "variables": [1]}, "spec.variables"),
        ("TerraformCluster", {**CLUSTER, "variables": {f"v{i}": 1 for i in range(257)}}, "spec.variables"),
        ("TerraformCluster", {**CLUSTER, "variablesFrom": [{}]}, "variablesFrom"),
        (
            "TerraformCluster",
            {**CLUSTER, "variablesFrom": [{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]},
            "variablesFrom",
        ),
        ("TerraformCluster", {**CLUSTER, "variablesFrom": [{"secretRef": {"name": "A_B"}}]}, "variablesFrom"),
        ("TerraformCluster", {**CLUSTER, "variablesFrom": []}, "variablesFrom"),
        ("TerraformCluster", {**CLUSTER, "jobs": {"activeDeadlineSeconds": 0}}, "activeDeadlineSeconds"),
        ("TerraformCluster", {**CLUSTER, "jobs": {"lockTimeoutSeconds": 3601}}, "lockTimeoutSeconds"),
        ("TerraformCluster", {**CLUSTER, "jobs": {"env": [{"name": "A"}, {"name": "A"}]}}, "jobs.env"),
        ("TerraformCluster", {**CLUSTER, "jobs": {"env": [{"value": "A"}]}}, "jobs.env"),
        ("TerraformCluster", {**CLUSTER, "jobs": {"resources": {"limits": {"cpu": "x"}}}}, "limits"),
        ("TerraformCluster", {**CLUSTER, "deletionPolicy": "Keep"}, "deletionPolicy"),
        ("TerraformCluster", {**CLUSTER, "maxActiveJobs": 0}, "maxActiveJobs"),
        ("TerraformCluster", {**CLUSTER, "controlPlaneEndpoint": {"host": "h", "port": 65536}}, "port"),
        ("TerraformCluster", {**CLUSTER, "drift": {"intervalSeconds": -1}}, "intervalSeconds"),
        ("TerraformMachinePool", {**MACHINE, "drift": {"intervalSeconds": 0}}, "intervalSeconds"),
        ("TerraformMachinePool", {**MACHINE, "membershipRefreshIntervalSeconds": 14}, "membershipRefresh"),
        ("TerraformMachine", {**MACHINE, "remediation": {"healthCheckIntervalSeconds": 59}}, "healthCheck"),
        ("TerraformClusterIdentity", {"type": "Vault"}, "spec.type"),
        ("TerraformClusterIdentity", {"secretRef": {"name": "a"}}, "spec.secretRef.namespace"),
        ("TerraformMachineTemplate", {"template": {}}, "template"),
        ("TerraformMachineTemplate", {"template": {"spec": MACHINE}, "capacity": {"cpu": "x"}}, "capacity"),
    ],
)
def test_what_a_schema_refuses(kind: str, spec: Any, field: str) -> None:
    found = problems(kind, spec)
    assert any(field in problem for problem in found), found


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("TerraformCluster", {**CLUSTER, "jobs": {"lockTimeoutSeconds": 0, "failedJobsHistoryLimit": 0}}),
        ("TerraformCluster", {**CLUSTER, "drift": {"intervalSeconds": 0, "action": "Remediate"}}),
        ("TerraformCluster", {**CLUSTER, "controlPlaneEndpoint": {"host": "h"}}),
        ("TerraformCluster", {**CLUSTER, "variables": {"a": None, "b": {"c": [1.5, "x"]}}}),
        (
            "TerraformCluster",
            {**CLUSTER, "defaults": {"deletionPolicy": "Retain", "remediation": {"annotateMachine": True}}},
        ),
        ("TerraformMachine", {**MACHINE, "providerID": "p"}),
        ("TerraformMachinePool", {**MACHINE, "providerIDList": []}),
        (
            "TerraformMachineTemplate",
            {"template": {"spec": MACHINE}, "capacity": {"cpu": 2, "memory": "4Gi"}},
        ),
        ("TerraformClusterTemplate", {"template": {"spec": MACHINE}}),
        (
            "TerraformClusterIdentity",
            {"secretRef": {"name": "a", "namespace": "b"}, "allowedNamespaces": {"selector": {}}},
        ),
    ],
)
def test_what_a_schema_takes(kind: str, spec: Any) -> None:
    assert problems(kind, spec) == []


def test_a_cluster_needs_an_identity_and_is_told_why() -> None:
    (problem,) = problems("TerraformCluster", MACHINE)
    assert "spec.defaults.identityRef applies to machines" in problem


ENDPOINT = {"host": "h", "port": 6443}


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        (None, ENDPOINT, False),
        ({"host": "h"}, ENDPOINT, False),
        ({"host": "h"}, {"host": "h"}, False),
        ({"host": "h"}, None, False),
        (ENDPOINT, ENDPOINT, False),
        (ENDPOINT, None, True),
        (ENDPOINT, {"host": "h"}, True),
        (ENDPOINT, {"host": "h", "port": 443}, True),
        (ENDPOINT, {"host": "other", "port": 6443}, True),
    ],
)
def test_a_complete_endpoint_is_immutable(old: Any, new: Any, refused: bool) -> None:
    def spec(endpoint: Any) -> Any:
        return CLUSTER if endpoint is None else {**CLUSTER, "controlPlaneEndpoint": endpoint}

    assert bool(problems("TerraformCluster", spec(new), spec(old))) is refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source", {"image": "other"}),
        ("source", {**SOURCE, "imagePullPolicy": "Always"}),
        ("identityRef", {"name": "other"}),
        ("identityRef", None),
        ("variables", None),
        ("variablesFrom", [{"secretRef": {"name": "other"}}]),
        ("variablesFrom", None),
        ("providerID", "other"),
        ("providerID", None),
    ],
)
def test_immutable_fields_of_a_machine(name: str, value: Any) -> None:
    old = {
        "source": SOURCE,
        "identityRef": {"name": "aws"},
        "variables": {"a": 1},
        "variablesFrom": [{"secretRef": {"name": "x"}}],
        "providerID": "p",
    }
    new = {key: item for key, item in {**old, name: value}.items() if item is not None}
    assert any(name in problem for problem in problems("TerraformMachine", new, old))
    assert problems("TerraformMachine", old, old) == []


@pytest.mark.parametrize("name", ["identityRef", "variables", "variablesFrom"])
def test_unset_fields_of_a_machine_stay_unset(name: str) -> None:
    value: Any = {
        "identityRef": {"name": "a"},
        "variables": {"a": 1},
        "variablesFrom": [{"secretRef": {"name": "x"}}],
    }[name]
    assert any(name in problem for problem in problems("TerraformMachine", {**MACHINE, name: value}, MACHINE))


def test_what_a_machine_may_change() -> None:
    changed = {
        **MACHINE,
        "providerID": "p",
        "jobs": {"lockTimeoutSeconds": 1},
        "drift": {"intervalSeconds": 5},
        "deletionPolicy": "Retain",
        "adoptRetainedState": True,
        "remediation": {"unhealthyThreshold": 1},
    }
    assert problems("TerraformMachine", changed, MACHINE) == []


PLAN = {
    "targetRef": {"kind": "TerraformCluster", "name": "demo"},
    "planHash": "p1:x",
    "inputsHash": "h2:x",
    "reason": "Manual",
    "summary": {"create": 1, "import": 2},
}
APPROVED = {**PLAN, "approved": True, "approvedBy": "jane"}


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        (PLAN, APPROVED, False),
        (PLAN, {**PLAN, "approved": True}, True),
        (PLAN, {**PLAN, "approvedBy": "jane"}, True),
        (PLAN, {**PLAN, "approved": False}, False),
        (APPROVED, PLAN, True),
        (APPROVED, {**APPROVED, "approvedBy": "joe"}, True),
        (APPROVED, {**PLAN, "approved": False}, True),
        (PLAN, {**PLAN, "planHash": "p1:y"}, True),
        (PLAN, {**PLAN, "inputsHash": "h2:y"}, True),
        (PLAN, {**PLAN, "reason": "Destructive"}, True),
        (PLAN, {**PLAN, "summary": {"create": 2}}, True),
        (PLAN, {**PLAN, "targetRef": {"kind": "TerraformMachinePool", "name": "demo"}}, True),
    ],
)
def test_a_plan_changes_by_one_approval_only(old: Any, new: Any, refused: bool) -> None:
    assert bool(problems("TerraformPlan", new, old)) is refused


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"secretRef": {"name": "a", "namespace": "b"}}, False),
        ({"type": "Secret"}, True),
        ({"requiredKeys": ["a"]}, True),
        ({"secretRef": {"name": "a", "namespace": "b"}, "allowedNamespaces": {}}, True),
        ({"secretRef": {"name": "a", "namespace": "b"}, "allowedNamespaces": {"list": ["x"]}}, False),
    ],
)
def test_an_identity_names_a_secret_and_someone(spec: Any, refused: bool) -> None:
    assert bool(problems("TerraformClusterIdentity", spec)) is refused


def test_a_condition_without_a_message_is_taken() -> None:
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    assert problems("TerraformMachine", MACHINE, status={"conditions": [condition]}) == []
    assert problems("TerraformMachine", MACHINE, status={"conditions": [{**condition, "reason": ""}]})
    assert problems("TerraformMachine", MACHINE, status={"conditions": [condition, condition]})


@pytest.mark.parametrize("exports", [{}, {"a": [1, None]}, "x", 1, True, []])
def test_exports_may_be_anything(exports: Any) -> None:
    assert problems("TerraformCluster", CLUSTER, status={"exports": exports}) == []


def test_unknown_fields_are_pruned_but_not_in_variables() -> None:
    obj = {
        "apiVersion": "x/v1",
        "kind": "TerraformCluster",
        "metadata": {},
        "spec": {**copy.deepcopy(CLUSTER), "typo": 1, "variables": {"a": {"b": 1}}},
        "status": {"exports": {"x": {"y": 1}}},
    }
    assert schema_of("TerraformCluster").prune(obj) == ["spec.typo"]
    assert obj["spec"]["variables"] == {"a": {"b": 1}}  # type: ignore[index]
    assert obj["status"] == {"exports": {"x": {"y": 1}}}
