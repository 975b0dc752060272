"""Who may do what: tokens, RBAC, reviews, escalation."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.expectations import config_map, failed, widget
from tests.conformance.target import USERS, Case

pytestmark = pytest.mark.requirement("AS27")

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(autouse=True)
def _users_are_known(k: Case) -> None:
    if not all(k.server.knows(user) for user in USERS):
        pytest.skip("the cluster's kubeconfig has no users of the cases")


def denied(user: str, verb: str, resource: str, namespace: str = "", name: str = "", group: str = "") -> str:
    """The message of a 403."""
    plural = resource.partition("/")[0]
    qualified = f"{plural}.{group}" if group else plural
    shown = f'{qualified} "{name}"' if name else qualified
    where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    return f'{shown} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{group}"{where}'


def grant(k: Case, *rules: dict[str, Any], user: str = "viewer", kind: str = "User") -> None:
    """A Role with the rules, bound to a user or group in the namespace of the case, in effect."""
    role = {"metadata": {"name": "r"}, "rules": list(rules)}
    assert k.post(k.path(f"roles.{RBAC}"), role, record=False).code == 201
    subject = {"kind": kind, "name": user, "apiGroup": RBAC}
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"},
        "subjects": [subject],
    }
    assert k.post(k.path(f"rolebindings.{RBAC}"), binding, record=False).code == 201


def rule(
    *verbs: str, resources: tuple[str, ...] = ("configmaps",), group: str = "", **more: Any
) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs), **more}


def allowed(
    k: Case, method: str, path: str, body: object = None, user: str = "viewer", **options: Any
) -> None:
    """Wait until the real server's authorizer has seen the grant."""
    k.eventually(
        lambda: k.call(method, path, body, user=user, record=False, **options).code != 403,
        "the grant to be in effect",
    )


def test_unknown_token(k: Case) -> None:
    answer = k.get(k.path("configmaps"), user="not-a-token")
    failed(answer, 401, "Unauthorized", "Unauthorized")


def test_no_token(k: Case) -> None:
    answer = k.get(k.path("configmaps"), user=None)
    text = denied("system:anonymous", "list", "configmaps", k.namespace)
    failed(answer, 403, "Forbidden", text, {"kind": "configmaps"})


@pytest.mark.parametrize(
    ("method", "rest", "verb", "name"),
    [
        ("GET", ("a",), "get", "a"),
        ("GET", (), "list", ""),
        ("POST", (), "create", ""),
        ("PUT", ("a",), "update", "a"),
        ("PATCH", ("a",), "patch", "a"),
        ("DELETE", ("a",), "delete", "a"),
        ("DELETE", (), "deletecollection", ""),
    ],
    ids=["get", "list", "create", "update", "patch", "delete", "deletecollection"],
)
def test_denied(k: Case, method: str, rest: tuple[str, ...], verb: str, name: str) -> None:
    body = config_map("a") if method in ("POST", "PUT", "PATCH") else None
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = k.call(method, k.path("configmaps", *rest), body, user="viewer", content_type=media)
    details = ({"name": name} if name else {}) | {"kind": "configmaps"}
    failed(answer, 403, "Forbidden", denied("viewer", verb, "configmaps", k.namespace, name), details)


def test_denied_watch(k: Case) -> None:
    answer = k.get(k.path("configmaps") + "?watch=true", user="viewer")
    failed(
        answer, 403, "Forbidden", denied("viewer", "watch", "configmaps", k.namespace), {"kind": "configmaps"}
    )


def test_denied_at_the_cluster_scope(k: Case) -> None:
    answer = k.get("/api/v1/namespaces", user="viewer")
    failed(answer, 403, "Forbidden", denied("viewer", "list", "namespaces"), {"kind": "namespaces"})


def test_denied_across_namespaces(k: Case) -> None:
    answer = k.get(k.path("secrets", namespace=None), user="viewer")
    failed(answer, 403, "Forbidden", denied("viewer", "list", "secrets"), {"kind": "secrets"})


@pytest.mark.usefixtures("custom_resources")
def test_denied_custom_resource(k: Case) -> None:
    answer = k.get(k.path(f"widgets.{GROUP}", "a"), user="viewer")
    text = denied("viewer", "get", "widgets", k.namespace, "a", GROUP)
    failed(answer, 403, "Forbidden", text, {"name": "a", "group": GROUP, "kind": "widgets"})


def test_denied_subresource(k: Case) -> None:
    answer = k.get(k.path("jobs.batch", "a", "status"), user="viewer")
    text = denied("viewer", "get", "jobs/status", k.namespace, "a", "batch")
    assert (answer.code, answer.message) == (403, text)


def test_denied_path(k: Case) -> None:
    answer = k.get("/metrics", user="viewer")
    text = 'forbidden: User "viewer" cannot get path "/metrics"'
    failed(answer, 403, "Forbidden", text, {})


def test_discovery_is_for_everybody_known(k: Case) -> None:
    assert k.get("/apis", user="nobody", record=False).code == 200
    assert k.get("/version", user=None, record=False).code == 200
    assert k.get("/healthz", user=None, record=False).code == 200


def test_role(k: Case) -> None:
    k.post(k.path("configmaps"), config_map("a"))
    grant(k, rule("get"))
    path = k.path("configmaps", "a")
    allowed(k, "GET", path)
    assert k.get(path, user="viewer").code == 200
    assert k.get(k.path("configmaps"), user="viewer").code == 403
    assert k.get(path, user="nobody").code == 403
    assert k.get(k.path("secrets", "a"), user="viewer").code == 403
    assert k.get(k.path("configmaps", "a", namespace="default"), user="viewer").code == 403


def test_group(k: Case) -> None:
    grant(k, rule("list"), user="editors", kind="Group")
    allowed(k, "GET", k.path("configmaps"), user="editor")
    assert k.get(k.path("configmaps"), user="viewer").code == 403


def test_everything(k: Case) -> None:
    grant(k, rule("*", resources=("*",), group="*"))
    allowed(k, "POST", k.path("configmaps"), config_map("a"))
    assert k.delete(k.path("configmaps", "a"), user="viewer").code == 200
    assert k.get("/api/v1/namespaces", user="viewer").code == 403


def test_resource_names(k: Case) -> None:
    for name in ("a", "b"):
        k.post(k.path("configmaps"), config_map(name))
    grant(k, rule("get", "list", "watch", "create", resourceNames=["a"]))
    allowed(k, "GET", k.path("configmaps", "a"))
    assert k.get(k.path("configmaps", "a"), user="viewer").code == 200
    assert k.get(k.path("configmaps", "b"), user="viewer").code == 403
    assert k.get(k.path("configmaps"), user="viewer").code == 403
    listed = k.get(k.path("configmaps") + "?fieldSelector=metadata.name%3Da", user="viewer")
    assert listed.code == 200
    # A name is not known before the object is.
    assert k.post(k.path("configmaps"), config_map("a"), user="viewer").code == 403


@pytest.mark.usefixtures("custom_resources")
def test_subresource_apart(k: Case) -> None:
    path = k.path(f"widgets.{GROUP}")
    k.post(path, widget(GROUP, "a"))
    grant(k, rule("patch", resources=("widgets/status",), group=GROUP))
    media = "application/merge-patch+json"
    patch = {"status": {"phase": "Ready"}}
    allowed(k, "PATCH", f"{path}/a/status", patch, content_type=media)
    assert k.patch(f"{path}/a/status", patch, user="viewer").code == 200
    assert k.patch(f"{path}/a", {"spec": {"size": 3}}, user="viewer").code == 403


def test_cluster_role_in_a_namespace(k: Case) -> None:
    name = f"{k.namespace}-reader"
    role = {"metadata": {"name": name}, "rules": [rule("list")]}
    assert k.post(k.path(f"clusterroles.{RBAC}", namespace=None), role, record=False).code == 201
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": "viewer", "apiGroup": RBAC}],
    }
    k.post(k.path(f"rolebindings.{RBAC}"), binding, record=False)
    allowed(k, "GET", k.path("configmaps"))
    assert k.get(k.path("configmaps", namespace="default"), user="viewer").code == 403
    k.delete(k.path(f"clusterroles.{RBAC}", name, namespace=None), record=False)


def test_cluster_role_binding(k: Case) -> None:
    name = f"{k.namespace}-reader"
    rules = [rule("list", resources=("namespaces",)), {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    k.post(
        k.path(f"clusterroles.{RBAC}", namespace=None),
        {"metadata": {"name": name}, "rules": rules},
        record=False,
    )
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": "nobody", "apiGroup": RBAC}],
    }
    k.post(k.path(f"clusterrolebindings.{RBAC}", namespace=None), binding, record=False)
    allowed(k, "GET", "/api/v1/namespaces", user="nobody")
    assert k.get("/metrics", user="nobody", record=False).code != 403
    for resource in ("clusterrolebindings", "clusterroles"):
        k.delete(k.path(f"{resource}.{RBAC}", name, namespace=None), record=False)
    k.eventually(
        lambda: k.call("GET", "/api/v1/namespaces", user="nobody", record=False).code == 403,
        "the grant to be gone",
    )


def test_escalation(k: Case) -> None:
    grant(k, rule("create", "update", "patch", resources=("roles", "rolebindings"), group=RBAC))
    path = k.path(f"roles.{RBAC}")
    role = {"metadata": {"name": "mine"}, "rules": [rule("get", resources=("secrets",))]}
    k.eventually(
        lambda: "attempting to grant" in k.call("POST", path, role, user="viewer", record=False).message,
        "the grant to be in effect",
    )
    answer = k.post(path, role, user="viewer")
    text = (
        f'roles.{RBAC} "mine" is forbidden: user "viewer" (groups=["system:authenticated"]) is attempting to grant '
        'RBAC permissions not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    failed(answer, 403, "Forbidden", text, {"name": "mine", "group": RBAC, "kind": "roles"})


def test_own_rights_can_be_given(k: Case) -> None:
    grant(k, rule("create", resources=("roles",), group=RBAC), rule("get", resources=("secrets",)))
    role = {"metadata": {"name": "mine"}, "rules": [rule("get", resources=("secrets",))]}
    allowed(k, "POST", k.path(f"roles.{RBAC}"), role)
    assert k.get(k.path(f"roles.{RBAC}", "mine")).code == 200


def test_binding_needs_the_rights(k: Case) -> None:
    grant(k, rule("create", resources=("rolebindings",), group=RBAC))
    role = {"metadata": {"name": "strong"}, "rules": [rule("get", resources=("secrets",))]}
    k.post(k.path(f"roles.{RBAC}"), role, record=False)
    binding = {
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "strong"},
        "subjects": [{"kind": "User", "name": "viewer", "apiGroup": RBAC}],
    }
    path = k.path(f"rolebindings.{RBAC}")
    k.eventually(
        lambda: "attempting to grant" in k.call("POST", path, binding, user="viewer", record=False).message,
        "the grant to be in effect",
    )
    assert k.get(k.path(f"rolebindings.{RBAC}", "mine")).code == 404


def test_bind_verb(k: Case) -> None:
    grant(
        k,
        rule("create", resources=("rolebindings",), group=RBAC),
        rule("bind", resources=("roles",), group=RBAC, resourceNames=["strong"]),
    )
    role = {"metadata": {"name": "strong"}, "rules": [rule("get", resources=("secrets",))]}
    k.post(k.path(f"roles.{RBAC}"), role, record=False)
    binding = {
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "strong"},
        "subjects": [{"kind": "User", "name": "viewer", "apiGroup": RBAC}],
    }
    allowed(k, "POST", k.path(f"rolebindings.{RBAC}"), binding)
    assert k.get(k.path(f"rolebindings.{RBAC}", "mine")).code == 200


class TestReviews:
    """Reviews of access and tokens."""

    ACCESS = "/apis/authorization.k8s.io/v1"

    def attributes(self, k: Case, verb: str, resource: str = "configmaps", **more: str) -> dict[str, str]:
        return {"namespace": k.namespace, "verb": verb, "resource": resource, **more}

    def test_subject(self, k: Case) -> None:
        grant(k, rule("get"))
        allowed(k, "GET", k.path("configmaps", "a"))
        path = f"{self.ACCESS}/subjectaccessreviews"
        spec = {"user": "viewer", "resourceAttributes": self.attributes(k, "get")}
        answer = k.post(path, {"spec": spec})
        assert answer.code == 201
        assert answer.body["status"]["allowed"] is True
        assert answer.body["status"]["reason"].startswith("RBAC: allowed by RoleBinding")
        spec = {"user": "viewer", "resourceAttributes": self.attributes(k, "delete")}
        refused = k.post(path, {"spec": spec})
        assert refused.body["status"]["allowed"] is False

    def test_subject_by_group(self, k: Case) -> None:
        spec = {
            "user": "x",
            "groups": ["system:masters"],
            "resourceAttributes": self.attributes(k, "delete", "secrets"),
        }
        answer = k.post(f"{self.ACCESS}/subjectaccessreviews", {"spec": spec})
        assert answer.body["status"]["allowed"] is True

    def test_subject_without_a_user(self, k: Case) -> None:
        spec = {"resourceAttributes": self.attributes(k, "get")}
        answer = k.post(f"{self.ACCESS}/subjectaccessreviews", {"spec": spec})
        assert (answer.code, answer.reason) == (422, "Invalid")

    def test_self(self, k: Case) -> None:
        path = f"{self.ACCESS}/selfsubjectaccessreviews"
        body = {"spec": {"resourceAttributes": self.attributes(k, "get")}}
        assert k.post(path, body).body["status"]["allowed"] is True
        assert k.post(path, body, user="nobody").body["status"]["allowed"] is False

    def test_self_about_a_path(self, k: Case) -> None:
        path = f"{self.ACCESS}/selfsubjectaccessreviews"
        body = {"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}}
        # Which of several bindings allows it is not certain.
        assert k.post(path, body, user="nobody", record=False).body["status"]["allowed"] is True

    def test_review_is_not_for_everybody(self, k: Case) -> None:
        spec = {"user": "viewer", "resourceAttributes": self.attributes(k, "get")}
        answer = k.post(f"{self.ACCESS}/subjectaccessreviews", {"spec": spec}, user="nobody")
        assert (answer.code, answer.reason) == (403, "Forbidden")

    def test_token(self, k: Case) -> None:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        answer = k.post(path, {"spec": {"token": k.server.token("editor")}}, record=False)
        assert answer.code == 201
        status = answer.body["status"]
        assert status["authenticated"] is True
        assert status["user"]["username"] == "editor"
        assert {"editors", "system:authenticated"} <= set(status["user"]["groups"])

    def test_bad_token(self, k: Case) -> None:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        answer = k.post(path, {"spec": {"token": "nonsense"}}, record=False)
        assert answer.code == 201
        assert not answer.body["status"].get("authenticated")


class TestServiceAccountTokens:
    """Tokens of ServiceAccounts."""

    def account(self, k: Case) -> str:
        k.post(k.path("serviceaccounts"), {"metadata": {"name": "robot"}}, record=False)
        return k.path("serviceaccounts", "robot", "token")

    def test_request(self, k: Case) -> None:
        answer = k.post(self.account(k), {"spec": {"expirationSeconds": 600}}, record=False)
        assert answer.code == 201
        assert answer.body["kind"] == "TokenRequest"
        token = answer.body["status"]["token"]
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        assert claims["sub"] == f"system:serviceaccount:{k.namespace}:robot"
        assert claims["exp"] - claims["iat"] == 600
        assert answer.body["status"]["expirationTimestamp"]

    def test_use(self, k: Case) -> None:
        token = k.post(self.account(k), {"spec": {}}, record=False).body["status"]["token"]
        answer = k.get(k.path("configmaps"), user=token, record=False)
        user = f"system:serviceaccount:{k.namespace}:robot"
        failed(
            answer, 403, "Forbidden", denied(user, "list", "configmaps", k.namespace), {"kind": "configmaps"}
        )
        grant(k, rule("list"), user=f"system:serviceaccounts:{k.namespace}", kind="Group")
        allowed(k, "GET", k.path("configmaps"), user=token)

    def test_end_with_the_account(self, k: Case) -> None:
        token = k.post(self.account(k), {"spec": {}}, record=False).body["status"]["token"]
        k.delete(k.path("serviceaccounts", "robot"), record=False)
        k.eventually(
            lambda: k.call("GET", k.path("configmaps"), user=token, record=False).code == 401,
            "the token to end",
        )

    def test_too_short(self, k: Case) -> None:
        answer = k.post(self.account(k), {"spec": {"expirationSeconds": 60}}, record=False)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert [each["field"] for each in answer.causes] == ["spec.expirationSeconds"]

    def test_absent_account(self, k: Case) -> None:
        answer = k.post(k.path("serviceaccounts", "none", "token"), {"spec": {}})
        assert (answer.code, answer.reason) == (404, "NotFound")


def test_impersonation_is_not_for_everybody(k: Case) -> None:
    answer = k.get(k.path("configmaps"), user="viewer", headers={"Impersonate-User": "admin"}, record=False)
    assert answer.code == 403
