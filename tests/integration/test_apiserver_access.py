"""Who may do what on the embedded API server: tokens, roles, reviews, webhooks."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import trustme
from tests.integration.raw_http import Raw
from tests.integration.widgets import RESOURCE, definition, widget

from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.clock import VirtualClock
from captf_runtime.testing.waiting import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/t/roles"
BINDINGS = f"{RBAC}/namespaces/t/rolebindings"
CONFIG_MAPS = "/api/v1/namespaces/t/configmaps"
SECRETS = "/api/v1/namespaces/t/secrets"
REVIEWS = "/apis/authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"


def rule(verbs: str, resources: str, group: str = "", names: str = "") -> dict[str, Any]:
    found = {"verbs": verbs.split(","), "apiGroups": [group], "resources": resources.split(",")}
    return {**found, "resourceNames": names.split(",")} if names else found


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(rbac=True) as running:
        Raw(running).create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        yield running


@pytest.fixture
def admin(server: ApiServer) -> Raw:
    return Raw(server)


@pytest.fixture
def grant(admin: Raw) -> Callable[..., None]:
    """Gives a user rules in namespace t."""

    def give(user: str, *rules: dict[str, Any]) -> None:
        assert admin.create(ROLES, {"metadata": {"name": user}, "rules": list(rules)}).code == 201
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
        }
        assert admin.create(BINDINGS, binding).code == 201

    return give


@pytest.mark.requirement("AS27")
def test_tokens_map_to_users_and_unknown_ones_to_nobody(server: ApiServer) -> None:
    unknown = Raw(server, token="made-up").get(CONFIG_MAPS)
    assert (unknown.code, unknown.reason, unknown.message) == (401, "Unauthorized", "Unauthorized")
    nobody = Raw(server, None).get(CONFIG_MAPS)
    assert nobody.code == 403
    assert 'User "system:anonymous" cannot list resource "configmaps"' in nobody.message
    me = Raw(server, token=server.token("joe", ["painters"])).create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}
    )
    assert me["status"]["userInfo"]["username"] == "joe"
    assert me["status"]["userInfo"]["groups"] == ["painters", "system:authenticated"]


@pytest.mark.requirement("AS27")
def test_a_revoked_token_counts_for_nothing(server: ApiServer) -> None:
    token = server.token("joe")
    joe = Raw(server, token=token)
    assert joe.get("/version").code == 200
    server.revoke(token)
    assert joe.get("/version").code == 401
    renewed = server.token("joe")
    assert renewed != token
    assert Raw(server, token=renewed).get("/version").code == 200


@pytest.mark.requirement("AS27")
def test_without_rbac_everybody_may_do_everything() -> None:
    with ApiServer() as server:
        assert Raw(server, None).create("/api/v1/namespaces", {"metadata": {"name": "t"}}).code == 201


@pytest.mark.requirement("AS27")
def test_denials_say_who_what_and_where(server: ApiServer) -> None:
    viewer = Raw(server, "viewer")
    one = viewer.get(f"{CONFIG_MAPS}/a")
    assert (one.code, one.reason, one["details"]) == (403, "Forbidden", {"name": "a", "kind": "configmaps"})
    assert one.message == (
        'configmaps "a" is forbidden: User "viewer" cannot get resource "configmaps" in API group "" '
        'in the namespace "t"'
    )
    assert viewer.get("/apis/batch/v1/namespaces/t/jobs/x").message == (
        'jobs.batch "x" is forbidden: User "viewer" cannot get resource "jobs" in API group "batch" '
        'in the namespace "t"'
    )
    assert viewer.get("/api/v1/namespaces").message == (
        'namespaces is forbidden: User "viewer" cannot list resource "namespaces" in API group "" '
        "at the cluster scope"
    )
    assert viewer.get("/metrics").message == 'forbidden: User "viewer" cannot get path "/metrics"'
    assert viewer.get("/version").code == 200


@pytest.mark.requirement("AS27")
def test_roles_grant_at_once_and_are_taken_back_at_once(server: ApiServer, admin: Raw, grant: Any) -> None:
    joe = Raw(server, "joe")
    assert joe.get(CONFIG_MAPS).code == 403
    grant("joe", rule("list,create", "configmaps"))
    assert joe.get(CONFIG_MAPS).code == 200
    assert joe.create(CONFIG_MAPS, {"metadata": {"name": "a"}}).code == 201
    assert joe.delete(f"{CONFIG_MAPS}/a").code == 403
    assert joe.get("/api/v1/namespaces/default/configmaps").code == 403
    admin.delete(f"{BINDINGS}/joe")
    assert joe.get(CONFIG_MAPS).code == 403


@pytest.mark.requirement("AS27")
def test_resource_names_reach_lists_only_with_a_name_selector(server: ApiServer, grant: Any) -> None:
    grant("joe", rule("get,list,watch", "secrets", names="a"))
    joe = Raw(server, "joe")
    assert joe.get(f"{SECRETS}/a").code == 404
    assert joe.get(f"{SECRETS}/b").code == 403
    assert joe.get(SECRETS).code == 403
    assert joe.get(f"{SECRETS}?fieldSelector=metadata.name%3Da").code == 200
    assert joe.get(f"{SECRETS}?fieldSelector=metadata.name%3Db").code == 403
    assert joe.get(f"{SECRETS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da").code == 200


@pytest.mark.requirement("AS27")
def test_subresources_are_granted_apart(server: ApiServer, grant: Any) -> None:
    grant("joe", rule("get", "pods/log"))
    joe = Raw(server, "joe")
    assert joe.get("/api/v1/namespaces/t/pods/x/log").code == 404
    denied = joe.get("/api/v1/namespaces/t/pods/x")
    assert denied.code == 403


@pytest.mark.requirement("AS27")
def test_nobody_grants_what_they_lack(server: ApiServer, admin: Raw, grant: Any) -> None:
    verbs = "get,create,update,patch"
    grant("joe", rule(verbs, "roles,rolebindings", GROUP), rule("get", "configmaps"))
    joe = Raw(server, "joe")
    held = {"metadata": {"name": "held"}, "rules": [rule("get", "configmaps")]}
    more = {"metadata": {"name": "more"}, "rules": [rule("get,list", "secrets")]}
    assert joe.create(ROLES, held).code == 201
    denied = joe.create(ROLES, more)
    assert denied.code == 403
    assert denied.message == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "joe" (groups=["system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )
    assert joe.patch(f"{ROLES}/held", {"rules": more["rules"]}).code == 403
    admin.create(ROLES, more)

    def binding(role: str) -> dict[str, Any]:
        reference = {"apiGroup": GROUP, "kind": "Role", "name": role}
        return {
            "metadata": {"name": role},
            "roleRef": reference,
            "subjects": [{"kind": "User", "name": "eve"}],
        }

    assert joe.create(BINDINGS, binding("held")).code == 201
    assert joe.create(BINDINGS, binding("more")).code == 403
    assert joe.create(BINDINGS, binding("absent")).code == 404


@pytest.mark.requirement("AS27")
def test_the_verbs_escalate_and_bind_lift_the_check(server: ApiServer, admin: Raw, grant: Any) -> None:
    grant("joe", rule("create,escalate,bind", "roles,rolebindings", GROUP))
    joe = Raw(server, "joe")
    more = {"metadata": {"name": "more"}, "rules": [rule("get", "secrets")]}
    assert joe.create(ROLES, more).code == 201
    reference = {"apiGroup": GROUP, "kind": "Role", "name": "more"}
    assert joe.create(BINDINGS, {"metadata": {"name": "b"}, "roleRef": reference}).code == 201


@pytest.mark.requirement("AS27")
def test_the_role_of_a_binding_never_changes(admin: Raw, grant: Any) -> None:
    grant("joe", rule("get", "configmaps"))
    answer = admin.patch(f"{BINDINGS}/joe", {"roleRef": {"name": "other"}})
    assert answer.code == 422
    assert "cannot change roleRef" in answer.message


@pytest.mark.requirement("AS27")
def test_cluster_roles_bindings_groups_and_aggregation(server: ApiServer, admin: Raw) -> None:
    part = {"metadata": {"name": "part", "labels": {"add": "to-sum"}}, "rules": [rule("list", "secrets")]}
    total = {
        "metadata": {"name": "sum"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"add": "to-sum"}}]},
    }
    admin.create(f"{RBAC}/clusterroles", part)
    admin.create(f"{RBAC}/clusterroles", total)
    binding = {
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "sum"},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": "readers"}],
    }
    admin.create(f"{RBAC}/clusterrolebindings", binding)
    reader = Raw(server, token=server.token("rita", ["readers"]))
    assert reader.get("/api/v1/secrets").code == 200
    assert reader.get("/api/v1/configmaps").code == 403


@pytest.mark.requirement("AS27")
def test_reviews(server: ApiServer, admin: Raw, grant: Any) -> None:
    grant("joe", rule("get", "secrets"))
    asked = {"resourceAttributes": {"namespace": "t", "verb": "get", "resource": "secrets"}}
    mine = Raw(server, "joe").create(f"{REVIEWS}/selfsubjectaccessreviews", {"spec": asked})
    assert mine["status"] == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "joe/t" of Role "joe" to User "joe"',
    }
    other = admin.create(f"{REVIEWS}/subjectaccessreviews", {"spec": {**asked, "user": "eve"}})
    assert other["status"] == {"allowed": False}
    local = {"metadata": {"namespace": "t"}, "spec": {**asked, "user": "joe"}}
    assert admin.create(f"{REVIEWS}/namespaces/t/localsubjectaccessreviews", local)["status"]["allowed"]
    rules = Raw(server, "joe").create(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "t"}})
    assert {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]} in rules["status"]["resourceRules"]
    bad = admin.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "bad"}})
    assert bad["status"] == {"user": {}, "error": "invalid bearer token"}


@pytest.mark.requirement("AS27")
def test_requested_tokens_work_and_expire() -> None:
    clock = VirtualClock()
    with ApiServer(rbac=True, clock=clock) as server:
        admin = Raw(server)
        admin.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        accounts = "/api/v1/namespaces/t/serviceaccounts"
        admin.create(accounts, {"metadata": {"name": "s"}})
        short = admin.create(f"{accounts}/s/token", {"spec": {"expirationSeconds": 60}})
        assert short.message.endswith("may not specify a duration less than 10 minutes")
        issued = admin.create(f"{accounts}/s/token", {"spec": {"expirationSeconds": 600}})
        assert issued.code == 201
        user = Raw(server, token=issued["status"]["token"])
        assert 'User "system:serviceaccount:t:s" cannot' in user.get(CONFIG_MAPS).message
        clock.advance(599)
        assert user.get(CONFIG_MAPS).code == 403
        clock.advance(2)
        assert user.get(CONFIG_MAPS).code == 401
        again = admin.create(f"{accounts}/s/token", {"spec": {}})["status"]["token"]
        admin.delete(f"{accounts}/s")
        admin.create(accounts, {"metadata": {"name": "s"}})
        assert Raw(server, token=again).get(CONFIG_MAPS).code == 401


@pytest.mark.requirement("AS27")
def test_a_token_bound_to_a_pod_dies_with_it(server: ApiServer, admin: Raw) -> None:
    accounts = "/api/v1/namespaces/t/serviceaccounts"
    admin.create(accounts, {"metadata": {"name": "s"}})
    bound = {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}}
    assert admin.create(f"{accounts}/s/token", bound).code == 404
    pod = {
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "s", "containers": [{"name": "c", "image": "i"}]},
    }
    admin.create("/api/v1/namespaces/t/pods", pod)
    token = admin.create(f"{accounts}/s/token", bound)["status"]["token"]
    assert Raw(server, token=token).get("/version").code == 200
    admin.delete("/api/v1/namespaces/t/pods/p")
    assert Raw(server, token=token).get("/version").code == 401


class Hook:
    """A webhook server that answers as told and remembers what it was asked."""

    def __init__(self, *, authority: trustme.CA | None = None) -> None:
        self.reviews: list[Any] = []
        self.answer: Callable[[Any], Any] = lambda request: {"allowed": True}
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.reviews.append(body["request"])
                response = {"uid": body["request"]["uid"], **hook.answer(body["request"])}
                review = {"apiVersion": body["apiVersion"], "kind": body["kind"], "response": response}
                data = json.dumps(review).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if authority is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("hook.t.svc").configure_cert(context)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    running = Hook()
    yield running
    running.stop()


HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def configuration(client: dict[str, Any], **changes: Any) -> dict[str, Any]:
    webhook = {
        "name": "check.example.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "clientConfig": client,
        "rules": [
            {
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["configmaps"],
            }
        ],
        **changes,
    }
    return {"metadata": {"name": "check"}, "webhooks": [webhook]}


@pytest.mark.requirement("AS28")
def test_webhooks_see_the_write_and_may_deny_it(admin: Raw, hook: Hook) -> None:
    admin.create(HOOKS, configuration({"url": f"http://{hook.address}/validate"}))
    assert admin.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "y"}}).code == 201
    request = hook.reviews[0]
    assert (request["operation"], request["name"], request["namespace"]) == ("CREATE", "a", "t")
    assert request["object"]["data"] == {"x": "y"}
    assert (request["kind"]["kind"], request["userInfo"]["username"]) == ("ConfigMap", "admin")
    hook.answer = lambda _: {"allowed": False, "status": {"message": "too small"}}
    denied = admin.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "z"}})
    assert denied.code == 400
    assert denied.message == 'admission webhook "check.example.io" denied the request: too small'
    assert hook.reviews[1]["oldObject"]["data"] == {"x": "y"}
    hook.answer = lambda _: {
        "allowed": False,
        "status": {"code": 403, "message": "no", "reason": "Forbidden"},
    }
    assert admin.delete(f"{CONFIG_MAPS}/a").code == 403
    assert (hook.reviews[2]["operation"], hook.reviews[2]["object"]) == ("DELETE", None)
    assert admin.get(f"{CONFIG_MAPS}/a")["data"] == {"x": "y"}
    assert admin.create(SECRETS, {"metadata": {"name": "s"}}).code == 201


@pytest.mark.requirement("AS28")
def test_selectors_choose_namespaces_and_objects(admin: Raw, hook: Hook) -> None:
    hook.answer = lambda _: {"allowed": False}
    changes = {
        "namespaceSelector": {"matchLabels": {"checked": "yes"}},
        "objectSelector": {"matchLabels": {"important": "yes"}},
    }
    admin.create(HOOKS, configuration({"url": f"http://{hook.address}/"}, **changes))
    marked = {"metadata": {"name": "a", "labels": {"important": "yes"}}}
    assert admin.create(CONFIG_MAPS, marked).code == 201
    admin.patch("/api/v1/namespaces/t", {"metadata": {"labels": {"checked": "yes"}}})
    assert admin.create(CONFIG_MAPS, {"metadata": {"name": "b"}}).code == 201
    marked["metadata"]["name"] = "c"
    denied = admin.create(CONFIG_MAPS, marked)
    assert denied.message == 'admission webhook "check.example.io" denied the request without explanation'


@pytest.mark.requirement("AS28")
def test_a_webhook_sees_the_version_that_its_rule_names(server: ApiServer, admin: Raw, hook: Hook) -> None:
    both = definition()
    both["spec"]["versions"].append({**both["spec"]["versions"][0], "name": "v2", "storage": False})
    server.apply_definition(both)
    rules = [
        {"operations": ["*"], "apiGroups": ["example.io"], "apiVersions": ["v2"], "resources": ["widgets"]}
    ]
    admin.create(HOOKS, configuration({"url": f"http://{hook.address}/"}, rules=rules))
    assert admin.create(RESOURCE, widget("w")).code == 201
    request = hook.reviews[0]
    assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v2", "v1")
    assert request["object"]["apiVersion"] == "example.io/v2"
    admin.delete(f"{HOOKS}/check")
    exact = configuration({"url": f"http://{hook.address}/"}, rules=rules, matchPolicy="Exact")
    admin.create(HOOKS, exact)
    assert admin.patch(f"{RESOURCE}/w", {"spec": {"size": 2}}).code == 200
    assert len(hook.reviews) == 1


@pytest.mark.requirement("AS28")
def test_an_unreachable_webhook_fails_or_is_ignored(admin: Raw, hook: Hook) -> None:
    client = {"url": "http://127.0.0.1:1/"}
    admin.create(HOOKS, configuration(client))
    answer = admin.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert answer.message.startswith('Internal error occurred: failed calling webhook "check.example.io": ')
    admin.delete(f"{HOOKS}/check")
    admin.create(HOOKS, configuration(client, failurePolicy="Ignore"))
    assert admin.create(CONFIG_MAPS, {"metadata": {"name": "a"}}).code == 201


@pytest.mark.requirement("AS28")
def test_a_webhook_that_takes_too_long(admin: Raw, hook: Hook) -> None:
    release = threading.Event()
    hook.answer = lambda _: {"allowed": release.wait(60)}
    admin.create(HOOKS, configuration({"url": f"http://{hook.address}/"}))
    assert admin.create(CONFIG_MAPS, {"metadata": {"name": "a"}}).code == 500
    release.set()


@pytest.mark.requirement("AS28")
def test_dry_run_reaches_only_webhooks_without_side_effects(admin: Raw, hook: Hook) -> None:
    admin.create(HOOKS, configuration({"url": f"http://{hook.address}/"}))
    assert admin.create(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "a"}}).code == 201
    assert hook.reviews[0]["dryRun"] is True
    refused = admin.create(HOOKS, configuration({"url": f"http://{hook.address}/"}, sideEffects="Some"))
    assert (refused.code, refused["details"]["causes"][0]["field"]) == (422, "webhooks[0].sideEffects")


@pytest.mark.requirement("AS28")
def test_a_service_is_reached_over_tls_under_its_name() -> None:
    authority = trustme.CA()
    hook = Hook(authority=authority)
    try:
        with ApiServer(webhook_services={("t", "hook"): hook.address}) as server:
            admin = Raw(server)
            admin.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
            bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
            client = {"caBundle": bundle, "service": {"namespace": "t", "name": "hook", "path": "/x"}}
            admin.create(HOOKS, configuration(client))
            assert admin.create(CONFIG_MAPS, {"metadata": {"name": "a"}}).code == 201
            eventually(lambda: hook.reviews)
    finally:
        hook.stop()


@pytest.mark.requirement("AS27")
def test_impersonation_needs_its_verb(server: ApiServer, admin: Raw, grant: Any) -> None:
    def whoami(raw: Raw, **headers: str) -> tuple[int, Any]:
        raw.extra = {f"Impersonate-{key.title()}": value for key, value in headers.items()}
        answer = raw.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        raw.extra = {}
        return answer.code, answer.json

    code, me = whoami(admin, user="joe", group="painters")
    assert (code, me["status"]["userInfo"]["username"]) == (201, "joe")
    assert me["status"]["userInfo"]["groups"] == ["painters", "system:authenticated"]
    code, me = whoami(admin, user="system:serviceaccount:t:s")
    assert "system:serviceaccounts:t" in me["status"]["userInfo"]["groups"]
    joe = Raw(server, "joe")
    code, denied = whoami(joe, user="admin")
    assert code == 403
    assert denied["message"] == (
        'users "admin" is forbidden: User "joe" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )
    grant("joe", rule("impersonate", "serviceaccounts"))
    assert whoami(joe, user="system:serviceaccount:t:s")[0] == 201
    assert whoami(joe, user="system:serviceaccount:other:s")[0] == 403
