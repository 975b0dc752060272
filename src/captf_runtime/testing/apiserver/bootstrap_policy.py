"""The roles and bindings that exist from the start when access is controlled."""

from __future__ import annotations

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver.kinds.rbac import GROUP

_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _urls(*urls: str) -> Object:
    return {"nonResourceURLs": list(urls), "verbs": ["get"]}


_VIEWED = [
    _rule(
        [""],
        ["configmaps", "events", "namespaces", "pods", "pods/log", "pods/status", "serviceaccounts"],
        _READ,
    ),
    _rule(["apps"], ["deployments", "deployments/status"], _READ),
    _rule(["batch"], ["jobs", "jobs/status"], _READ),
]
_EDITED = [
    *_VIEWED,
    _rule([""], ["secrets"], [*_READ, *_WRITE]),
    _rule([""], ["configmaps", "events", "pods", "serviceaccounts"], _WRITE),
    _rule(["apps"], ["deployments"], _WRITE),
    _rule(["batch"], ["jobs"], _WRITE),
    _rule([""], ["serviceaccounts/token"], ["create"]),
    _rule(["coordination.k8s.io"], ["leases"], [*_READ, *_WRITE]),
]
_ADMINISTERED = [
    *_EDITED,
    _rule([GROUP], ["rolebindings", "roles"], [*_READ, *_WRITE]),
    _rule(["authorization.k8s.io"], ["localsubjectaccessreviews"], ["create"]),
]


def cluster_roles() -> list[Object]:
    """The ClusterRoles."""
    roles: dict[str, list[Object]] = {
        "cluster-admin": [_rule(["*"], ["*"], ["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}],
        "admin": _ADMINISTERED,
        "edit": _EDITED,
        "view": _VIEWED,
        "system:basic-user": [
            _rule(
                ["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]
            ),
            _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
        ],
        "system:discovery": [
            _urls(
                "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz",
                "/version", "/version/",
            )
        ],
        "system:public-info-viewer": [_urls("/healthz", "/livez", "/readyz", "/version", "/version/")],
        "system:auth-delegator": [
            _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
            _rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
        ],
    }  # fmt: skip
    return [
        {"metadata": {"name": name, "labels": dict(_LABELS)}, "rules": rules} for name, rules in roles.items()
    ]


def cluster_role_bindings() -> list[Object]:
    """The ClusterRoleBindings."""
    bound = {
        "cluster-admin": ("cluster-admin", ("system:masters",)),
        "system:basic-user": ("system:basic-user", ("system:authenticated",)),
        "system:discovery": ("system:discovery", ("system:authenticated",)),
        "system:public-info-viewer": (
            "system:public-info-viewer",
            ("system:authenticated", "system:unauthenticated"),
        ),
    }
    return [
        {
            "metadata": {"name": name, "labels": dict(_LABELS)},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
        }
        for name, (role, groups) in bound.items()
    ]
