"""The objects of the tour, as Cluster API and a user would write them."""

from __future__ import annotations

import base64

from captf_controllers.api.kinds import (
    API_VERSION,
    CAPI_GROUP,
    CLUSTER,
    GROUP,
    MACHINE,
    MACHINE_POOL,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
)
from captf_runtime.objects import NAMESPACE, SECRET, Kind, Object, name_of, uid_of

TEAM = "tour"
OPERATOR = "captf-system"
CLUSTER_NAME = "demo"
IDENTITY = "demo-cloud"
CLUSTER_IMAGE = "example.com/captf/cluster:v1"
MACHINE_IMAGE = "example.com/captf/machine:v1"
POOL_IMAGE = "example.com/captf/machinepool:v1"
RUNNER_IMAGE = "example.com/captf/manager:tour"


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": name}}


def secret(name: str, namespace: str, data: dict[str, str]) -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": SECRET.kind,
        "metadata": {"name": name, "namespace": namespace},
        "type": "Opaque",
        "data": encoded,
    }


def identity(*, secret_name: str = "cloud-credentials") -> Object:
    """The operator's credentials, shared with every namespace of the tour."""
    return {
        "apiVersion": API_VERSION,
        "kind": TERRAFORM_CLUSTER_IDENTITY.kind,
        "metadata": {"name": IDENTITY},
        "spec": {
            "secretRef": {"name": secret_name, "namespace": OPERATOR},
            "allowedNamespaces": {"selector": {}},
        },
    }


def cluster(name: str = CLUSTER_NAME, namespace: str = TEAM) -> Object:
    """The Cluster that a user writes; Cluster API's controllers would reconcile it."""
    return {
        "apiVersion": CLUSTER.api_version,
        "kind": CLUSTER.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "infrastructureRef": {"apiGroup": GROUP, "kind": TERRAFORM_CLUSTER.kind, "name": name},
            "controlPlaneRef": {
                "apiGroup": f"controlplane.{CAPI_GROUP}",
                "kind": "KubeadmControlPlane",
                "name": f"{name}-control-plane",
            },
        },
    }


def terraform_cluster(owner: Object, namespace: str = TEAM, **spec: object) -> Object:
    """The TerraformCluster, with the owner reference that Cluster API sets."""
    return {
        "apiVersion": API_VERSION,
        "kind": TERRAFORM_CLUSTER.kind,
        "metadata": _owned(name_of(owner), namespace, owner, CLUSTER, name_of(owner)),
        "spec": {"source": {"image": CLUSTER_IMAGE}, "identityRef": {"name": IDENTITY}, **spec},
    }


def machine(
    name: str, *, cluster_name: str = CLUSTER_NAME, namespace: str = TEAM, version: str = "v1.34.2"
) -> Object:
    """The Machine that a MachineDeployment would make."""
    return {
        "apiVersion": MACHINE.api_version,
        "kind": MACHINE.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"cluster.x-k8s.io/cluster-name": cluster_name},
        },
        "spec": {
            "clusterName": cluster_name,
            "version": version,
            "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
            "infrastructureRef": {"apiGroup": GROUP, "kind": TERRAFORM_MACHINE.kind, "name": name},
        },
    }


def terraform_machine(
    owner: Object, *, cluster_name: str = CLUSTER_NAME, namespace: str = TEAM, **spec: object
) -> Object:
    """The TerraformMachine, with the owner reference that Cluster API sets."""
    return {
        "apiVersion": API_VERSION,
        "kind": TERRAFORM_MACHINE.kind,
        "metadata": _owned(name_of(owner), namespace, owner, MACHINE, cluster_name),
        "spec": {"source": {"image": MACHINE_IMAGE}, **spec},
    }


def machine_pool(
    name: str, *, replicas: int = 2, cluster_name: str = CLUSTER_NAME, namespace: str = TEAM
) -> Object:
    """A MachinePool with the template of its machines."""
    template = machine(name, cluster_name=cluster_name, namespace=namespace)["spec"]
    template["infrastructureRef"] = {
        "apiGroup": GROUP,
        "kind": TERRAFORM_MACHINE_POOL.kind,
        "name": name,
    }
    return {
        "apiVersion": MACHINE_POOL.api_version,
        "kind": MACHINE_POOL.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"cluster.x-k8s.io/cluster-name": cluster_name},
        },
        "spec": {"clusterName": cluster_name, "replicas": replicas, "template": {"spec": template}},
    }


def terraform_machine_pool(
    owner: Object, *, cluster_name: str = CLUSTER_NAME, namespace: str = TEAM, **spec: object
) -> Object:
    """The TerraformMachinePool, with the owner reference that Cluster API sets."""
    return {
        "apiVersion": API_VERSION,
        "kind": TERRAFORM_MACHINE_POOL.kind,
        "metadata": _owned(name_of(owner), namespace, owner, MACHINE_POOL, cluster_name),
        "spec": {"source": {"image": POOL_IMAGE}, **spec},
    }


def _owned(name: str, namespace: str, owner: Object, kind: Kind, cluster_name: str) -> Object:
    return {
        "name": name,
        "namespace": namespace,
        "labels": {"cluster.x-k8s.io/cluster-name": cluster_name},
        "ownerReferences": [
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": name_of(owner),
                "uid": uid_of(owner),
            }
        ],
    }
