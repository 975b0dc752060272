"""Contract inputs of each role."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from captf_controllers.api.owner import Owner
from captf_controllers.inputs.contract import (
    CONTRACT_INPUTS,
    CONTRACT_OUTPUTS,
    Bootstrap,
    autoscaling_of,
    bootstrap_of,
    cluster_inputs,
    endpoint_input,
    machine_inputs,
    pool_inputs,
    pool_replicas,
)

MIN = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
MAX = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
BOOTSTRAP = Bootstrap("I2Nsb3VkLWNvbmZpZwo=", "cloud-config")


def obj(kind: str, name: str, **more: Any) -> dict[str, Any]:
    annotations = more.pop("annotations", {})
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "team-a", "uid": "u", "annotations": annotations},
        **more,
    }


def cluster(**more: Any) -> dict[str, Any]:
    return obj("Cluster", "prod", **more)


def test_common_inputs_hold_identity_and_nothing_that_changes() -> None:
    made = obj(
        "TerraformCluster",
        "prod",
        annotations={"cluster.x-k8s.io/cloned-from-name": "base", "other": "x"},
        spec={"providerID": "p"},
    )
    inputs = cluster_inputs(Owner.of(made), made, cluster(), endpoint=None, was_initialized=False)
    assert list(inputs) == list(CONTRACT_INPUTS["cluster"])
    assert inputs["captf_contract"] == "v1alpha1"
    assert inputs["captf_cluster"] == {"name": "prod", "namespace": "team-a"}
    assert inputs["captf_object"] == {"kind": "TerraformCluster", "name": "prod", "namespace": "team-a"}
    assert inputs["captf_tags"] == {
        "captf.io/cluster": "prod",
        "captf.io/kind": "TerraformCluster",
        "captf.io/managed-by": "captf",
        "captf.io/name": "prod",
        "captf.io/namespace": "team-a",
        "captf.io/template": "base",
    }


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (None, None),
        ({}, None),
        ({"pods": {"cidrBlocks": []}, "serviceDomain": "", "apiServerPort": 0}, None),
        (
            {"pods": {"cidrBlocks": ["10.0.0.0/8"]}},
            {"pods": ["10.0.0.0/8"], "services": [], "service_domain": None, "api_server_port": None},
        ),
        (
            {"services": {"cidrBlocks": ["10.1.0.0/16"]}, "serviceDomain": "x.local", "apiServerPort": 6443},
            {"pods": [], "services": ["10.1.0.0/16"], "service_domain": "x.local", "api_server_port": 6443},
        ),
    ],
)
def test_cluster_network(network: Any, expected: Any) -> None:
    made = obj("TerraformCluster", "prod")
    inputs = cluster_inputs(
        Owner.of(made), made, cluster(spec={"clusterNetwork": network}), endpoint=None, was_initialized=False
    )
    assert inputs["cluster_network"] == expected


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [(True, False, True), (False, True, True), (None, False, False), (True, True, True)],
)
def test_control_plane_initialized_never_goes_back(now: bool | None, before: bool, expected: bool) -> None:
    made = obj("TerraformCluster", "prod")
    status = {"initialization": {"controlPlaneInitialized": now}} if now is not None else {}
    inputs = cluster_inputs(
        Owner.of(made), made, cluster(status=status), endpoint=None, was_initialized=before
    )
    assert inputs["control_plane_initialized"] is expected


def test_versions_are_null_when_empty_and_verbatim_otherwise() -> None:
    made = obj("TerraformCluster", "prod")
    for version, expected in (("", None), ("v1.31.0+rke2r1", "v1.31.0+rke2r1")):
        inputs = cluster_inputs(
            Owner.of(made),
            made,
            cluster(spec={"topology": {"version": version}}),
            endpoint=None,
            was_initialized=False,
        )
        assert inputs["kubernetes_version"] == expected


ENDPOINT = {"host": "api", "port": 6443}
SOURCE = "captf.io/endpoint-source"


@pytest.mark.parametrize(
    ("source", "of_cluster", "own", "recorded", "value", "record"),
    [
        ("", None, None, False, None, ""),
        ("", ENDPOINT, None, False, ENDPOINT, "user"),
        ("", None, ENDPOINT, False, ENDPOINT, "user"),
        ("", {"host": "other", "port": 1}, ENDPOINT, False, {"host": "other", "port": 1}, "user"),
        ("", {"host": "half"}, ENDPOINT, False, ENDPOINT, "user"),
        ("", {"host": "", "port": 0}, None, False, None, ""),
        ("", ENDPOINT, None, True, ENDPOINT, ""),
        ("user", ENDPOINT, None, False, ENDPOINT, ""),
        ("user", None, None, False, None, "remove"),
        ("user", None, None, True, None, ""),
        ("module", ENDPOINT, ENDPOINT, True, None, ""),
        ("module", ENDPOINT, ENDPOINT, False, None, ""),
    ],
)
def test_where_the_endpoint_comes_from(
    source: str, of_cluster: Any, own: Any, recorded: bool, value: Any, record: str
) -> None:
    made = obj(
        "TerraformCluster",
        "prod",
        annotations={SOURCE: source} if source else {},
        spec={"controlPlaneEndpoint": own} if own else {},
    )
    found = endpoint_input(made, cluster(spec={"controlPlaneEndpoint": of_cluster}), recorded=recorded)
    assert (found.value, found.record) == (value, record)


def secret(**data: bytes) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(value).decode() for key, value in data.items()}}


def test_bootstrap_data_is_encoded_whatever_it_is() -> None:
    assert bootstrap_of(secret(value=b"#cloud-config\n")) == BOOTSTRAP
    assert bootstrap_of(secret(value=b"\x00\xff", format=b"ignition")) == Bootstrap("AP8=", "ignition")
    assert bootstrap_of(secret(value=b"x", format=b"")) == Bootstrap("eA==", "cloud-config")
    assert bootstrap_of(secret(value=b"")) is None
    assert bootstrap_of(secret(format=b"ignition")) is None
    assert bootstrap_of({}) is None


def test_machine_inputs() -> None:
    made = obj("TerraformMachine", "m1")
    machine = {
        "metadata": {"name": "m1-x", "labels": {"cluster.x-k8s.io/control-plane": ""}},
        "spec": {"failureDomain": "fd1", "version": "v1.31.0"},
    }
    inputs = machine_inputs(Owner.of(made), made, cluster(), machine, exports={"a": 1}, bootstrap=BOOTSTRAP)
    assert list(inputs) == list(CONTRACT_INPUTS["machine"])
    assert inputs["machine_name"] == "m1-x"
    assert inputs["failure_domain"] == "fd1"
    assert inputs["control_plane"] is True
    assert inputs["captf_cluster_outputs"] == {"a": 1}
    plain = machine_inputs(
        Owner.of(made), made, cluster(), {"metadata": {"name": "m"}}, exports={}, bootstrap=BOOTSTRAP
    )
    assert (plain["failure_domain"], plain["kubernetes_version"], plain["control_plane"]) == (
        None,
        None,
        False,
    )


@pytest.mark.parametrize(
    ("annotations", "expected", "reason"),
    [
        ({}, (False, 0, 0), "AutoscalingDisabled"),
        ({MIN: "1"}, (False, 0, 0), "AutoscalingAnnotationsInvalid"),
        ({MAX: "1"}, (False, 0, 0), "AutoscalingAnnotationsInvalid"),
        ({MIN: "x", MAX: "y"}, (False, 0, 0), "AutoscalingAnnotationsInvalid"),
        ({MIN: "1", MAX: "1.5"}, (False, 0, 0), "AutoscalingAnnotationsInvalid"),
        ({MIN: "-1", MAX: "1"}, (False, 0, 0), "AutoscalingAnnotationsInvalid"),
        ({MIN: "0", MAX: "2147483648"}, (False, 0, 0), "AutoscalingAnnotationsInvalid"),
        ({MIN: " 1", MAX: "2"}, (False, 0, 0), "AutoscalingAnnotationsInvalid"),
        ({MIN: "3", MAX: "2"}, (False, 0, 0), "AutoscalingAnnotationsInvalid"),
        ({MIN: "0", MAX: "0"}, (True, 0, 0), "ReplicasManagedByModule"),
        ({MIN: "1", MAX: "2147483647"}, (True, 1, 2147483647), "ReplicasManagedByModule"),
    ],
)
def test_autoscaling(annotations: dict[str, str], expected: tuple[bool, int, int], reason: str) -> None:
    found = autoscaling_of({"metadata": {"annotations": annotations}})
    assert (found.enabled, found.min, found.max) == expected
    assert found.observation.reason == reason
    assert found.observation.status == ("True" if found.enabled else "False")


def test_the_broken_autoscaling_annotation_is_named_min_first() -> None:
    assert MIN in autoscaling_of({"metadata": {"annotations": {MIN: "x", MAX: "y"}}}).observation.message
    assert (
        f"{MIN} of the MachinePool is missing"
        in autoscaling_of({"metadata": {"annotations": {MAX: "1"}}}).observation.message
    )
    assert MAX in autoscaling_of({"metadata": {"annotations": {MIN: "1", MAX: "y"}}}).observation.message


@pytest.mark.parametrize(
    ("manager", "reason"),
    [
        ("captf", "ReplicasManagedByModule"),
        ("other", "ReplicasManagedExternally"),
        ("", "ReplicasManagedExternally"),
    ],
)
def test_a_foreign_replica_manager(manager: str, reason: str) -> None:
    annotations = {MIN: "1", MAX: "5", "cluster.x-k8s.io/replicas-managed-by": manager}
    found = autoscaling_of({"metadata": {"annotations": annotations}})
    assert found.enabled
    assert found.observation.reason == reason


@pytest.mark.parametrize(
    ("wanted", "observed", "limits", "replicas"),
    [
        (3, None, None, 3),
        (None, None, None, 1),
        (0, 7, None, 0),
        (3, None, (1, 5), 3),
        (3, 0, (0, 5), 0),
        (3, 0, (1, 5), 1),
        (3, 9, (1, 5), 5),
        (None, None, (2, 5), 2),
    ],
)
def test_replicas(
    wanted: int | None, observed: int | None, limits: tuple[int, int] | None, replicas: int
) -> None:
    annotations = {MIN: str(limits[0]), MAX: str(limits[1])} if limits else {}
    pool = {"metadata": {"annotations": annotations}, "spec": {} if wanted is None else {"replicas": wanted}}
    own = {"status": {} if observed is None else {"replicas": observed}}
    assert pool_replicas(own, pool, autoscaling_of(pool)) == replicas


def test_pool_inputs() -> None:
    made = obj("TerraformMachinePool", "workers")
    pool = {
        "metadata": {"name": "workers"},
        "spec": {
            "replicas": 2,
            "failureDomains": ["b", "a"],
            "template": {"metadata": {"labels": {"z": "1", "a": "2"}}, "spec": {"version": "v1.31.0"}},
        },
    }
    inputs = pool_inputs(
        Owner.of(made),
        made,
        cluster(),
        pool,
        exports={},
        cluster_domains=["b", "a"],
        bootstrap=BOOTSTRAP,
        autoscaling=autoscaling_of(pool),
    )
    assert list(inputs) == list(CONTRACT_INPUTS["machinepool"])
    assert inputs["failure_domains"] == ["b", "a"]
    assert inputs["cluster_failure_domains"] == ["a", "b"]
    assert list(inputs["node_labels"]) == ["a", "z"]  # type: ignore[arg-type]
    assert inputs["autoscaling"] == {"enabled": False, "min": 0, "max": 0}


def test_the_cluster_role_has_no_cluster_outputs() -> None:
    assert "captf_cluster_outputs" not in CONTRACT_INPUTS["cluster"]
    assert set(CONTRACT_OUTPUTS) == set(CONTRACT_INPUTS)
