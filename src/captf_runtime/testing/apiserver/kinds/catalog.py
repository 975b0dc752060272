"""The built-in resources that the server serves from its start."""

from __future__ import annotations

from captf_runtime.testing.apiserver.customresources import DefinitionStrategy
from captf_runtime.testing.apiserver.kinds.base import Strategy
from captf_runtime.testing.apiserver.kinds.config import ConfigMapStrategy, SecretStrategy
from captf_runtime.testing.apiserver.kinds.events import CoreEventStrategy, EventStrategy
from captf_runtime.testing.apiserver.kinds.leases import LeaseStrategy
from captf_runtime.testing.apiserver.kinds.namespaces import NamespaceStrategy
from captf_runtime.testing.apiserver.kinds.rbac import GROUP as RBAC_GROUP
from captf_runtime.testing.apiserver.kinds.rbac import BindingStrategy, RoleStrategy
from captf_runtime.testing.apiserver.kinds.webhooks import WebhookConfigurationStrategy
from captf_runtime.testing.apiserver.kinds.workloads import DeploymentStrategy, JobStrategy, PodStrategy
from captf_runtime.testing.apiserver.resources import STATUS, Registry, Resource, Subresource

AUTHENTICATION_GROUP = "authentication.k8s.io"
AUTHORIZATION_GROUP = "authorization.k8s.io"
EXTENSIONS_GROUP = "apiextensions.k8s.io"
ADMISSION_GROUP = "admissionregistration.k8s.io"


class NodeStrategy(Strategy):
    """Nodes: kubelets register themselves and report their status."""

    def unknown_field(self, field: str) -> str:
        return f"field label not supported: {field}"


def built_in() -> list[Resource]:
    """Fresh resources, in the order of AS5."""
    no_collection = ("create", "delete", "get", "list", "patch", "update", "watch")
    create = ("create",)
    return [
        Resource(
            "", "v1", "namespaces", "Namespace", NamespaceStrategy(), namespaced=False, short_names=("ns",),
            verbs=no_collection, subresources=(Subresource("finalize", ("update",)), STATUS),
        ),
        Resource(
            "", "v1", "nodes", "Node", NodeStrategy(), namespaced=False, short_names=("no",), subresources=(STATUS,)
        ),
        Resource("", "v1", "secrets", "Secret", SecretStrategy()),
        Resource("", "v1", "configmaps", "ConfigMap", ConfigMapStrategy(), short_names=("cm",)),
        Resource(
            "", "v1", "pods", "Pod", PodStrategy(), short_names=("po",), categories=("all",),
            subresources=(
                Subresource("binding", create, "Binding", "", "v1"), Subresource("log", ("get",)), STATUS,
            ),
            returns_deleted=True,
        ),
        Resource(
            "", "v1", "serviceaccounts", "ServiceAccount", Strategy(), short_names=("sa",),
            subresources=(Subresource("token", create, "TokenRequest", AUTHENTICATION_GROUP, "v1"),),
            returns_deleted=True,
        ),
        Resource("", "v1", "events", "Event", CoreEventStrategy(), short_names=("ev",), table="events"),
        Resource(
            "events.k8s.io", "v1", "events", "Event", EventStrategy(), short_names=("ev",), table="events"
        ),
        Resource("coordination.k8s.io", "v1", "leases", "Lease", LeaseStrategy()),
        Resource("batch", "v1", "jobs", "Job", JobStrategy(), categories=("all",), subresources=(STATUS,)),
        Resource(
            "apps", "v1", "deployments", "Deployment", DeploymentStrategy(), short_names=("deploy",),
            categories=("all",), subresources=(STATUS,),
        ),
        Resource(RBAC_GROUP, "v1", "roles", "Role", RoleStrategy(namespaced=True)),
        Resource(RBAC_GROUP, "v1", "rolebindings", "RoleBinding", BindingStrategy(namespaced=True)),
        Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", RoleStrategy(namespaced=False), namespaced=False),
        Resource(
            RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", BindingStrategy(namespaced=False),
            namespaced=False,
        ),
        Resource(
            ADMISSION_GROUP, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration",
            WebhookConfigurationStrategy(), namespaced=False, categories=("api-extensions",),
        ),
        Resource(
            AUTHENTICATION_GROUP, "v1", "tokenreviews", "TokenReview", Strategy(), namespaced=False, verbs=create,
            virtual=True,
        ),
        Resource(
            AUTHENTICATION_GROUP, "v1", "selfsubjectreviews", "SelfSubjectReview", Strategy(), namespaced=False,
            verbs=create, virtual=True,
        ),
        *(
            Resource(
                AUTHORIZATION_GROUP, "v1", f"{kind.lower()}s", kind, Strategy(), namespaced=kind.startswith("Local"),
                verbs=create, virtual=True,
            )
            for kind in (
                "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview",
            )
        ),
    ]  # fmt: skip


def definition_resource(registry: Registry) -> Resource:
    """CustomResourceDefinitions, which look at the other resources before they accept a name."""
    return Resource(
        EXTENSIONS_GROUP, "v1", "customresourcedefinitions", "CustomResourceDefinition",
        DefinitionStrategy(registry), namespaced=False, short_names=("crd", "crds"),
        categories=("api-extensions",), subresources=(STATUS,),
    )  # fmt: skip
