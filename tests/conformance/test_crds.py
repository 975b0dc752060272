"""The CustomResourceDefinitions on a real API server and on the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.captf_api import EMBEDDED_AND_REAL, captf_api

from captf_controllers.api.kinds import (
    API_VERSION,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE_TEMPLATE,
    TERRAFORM_PLAN,
)
from captf_runtime.client import Client, Invalid
from captf_runtime.objects import Kind, Object


@pytest.fixture(scope="module", params=EMBEDDED_AND_REAL)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with captf_api(request.param) as kubeconfig, Client.from_config(kubeconfig=kubeconfig) as made:
        yield made


def create(client: Client, kind: Kind, name: str, spec: Any) -> Object:
    namespace = "default" if kind.namespaced else ""
    made = {
        "apiVersion": API_VERSION,
        "kind": kind.kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }
    return client.create(kind, made, namespace)


CLUSTER = {"source": {"image": "registry.example.com/m:v1"}, "identityRef": {"name": "aws"}}


def test_a_cluster_is_stored_as_it_was_written(client: Client) -> None:
    spec = {
        **CLUSTER,
        "variables": {"a": 1, "b": {"c": [1.5, None, "x"]}},
        "variablesFrom": [{"secretRef": {"name": "x"}, "format": "JSON"}],
        "jobs": {
            "lockTimeoutSeconds": 0,
            "env": [{"name": "A", "value": "b"}],
            "resources": {"limits": {"cpu": 1}},
        },
        "drift": {"intervalSeconds": 0},
    }
    assert create(client, TERRAFORM_CLUSTER, "whole", {**spec, "typo": 1})["spec"] == spec


def test_a_status_is_written_beside_the_spec(client: Client) -> None:
    create(client, TERRAFORM_CLUSTER, "status", CLUSTER)
    status = {
        "conditions": [
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "ReadyUnknown",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "exports": {"a": [1, {"b": 2}], "c": {}},
        "initialization": {"provisioned": True},
        "failureDomains": [{"name": "a", "controlPlane": True}],
    }
    written = client.patch(TERRAFORM_CLUSTER, "status", {"status": status}, "default", subresource="status")
    assert written["status"] == status


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"variablesFrom": [{}]}, "spec.variablesFrom"),
        ({"variables": [1]}, "spec.variables"),
        ({"deletionPolicy": "Keep"}, "spec.deletionPolicy"),
        ({"maxActiveJobs": 0}, "spec.maxActiveJobs"),
        ({"jobs": {"env": [{"name": "A"}, {"name": "A"}]}}, "spec.jobs.env"),
        ({"source": {"image": "x" * 513}}, "spec.source.image"),
        ({"drift": {"intervalSeconds": -1}}, "spec.drift.intervalSeconds"),
    ],
)
def test_what_is_refused(client: Client, change: Any, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        create(client, TERRAFORM_CLUSTER, "refused", {**CLUSTER, **change})
    assert field in str(caught.value)


def test_the_other_kinds(client: Client) -> None:
    create(
        client,
        TERRAFORM_CLUSTER_IDENTITY,
        "aws",
        {"secretRef": {"name": "s", "namespace": "default"}, "allowedNamespaces": {"selector": {}}},
    )
    with pytest.raises(Invalid):
        create(
            client,
            TERRAFORM_CLUSTER_IDENTITY,
            "nobody",
            {"secretRef": {"name": "s", "namespace": "default"}, "allowedNamespaces": {}},
        )
    template = {"template": {"spec": CLUSTER}, "capacity": {"cpu": 2, "memory": "4Gi"}}
    assert create(client, TERRAFORM_MACHINE_TEMPLATE, "t", template)["spec"] == template
    plan = {
        "targetRef": {"kind": "TerraformCluster", "name": "demo"},
        "planHash": "p1:x",
        "inputsHash": "h2:x",
        "reason": "Manual",
        "summary": {"create": 1, "import": 2},
    }
    assert create(client, TERRAFORM_PLAN, "p", plan)["spec"] == plan
