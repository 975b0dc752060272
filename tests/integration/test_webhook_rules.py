"""Every admission rule on an API server that calls the webhooks: what passes, and what is refused with its path.

The rules as functions, with all their edges, are in `tests/unit/test_webhook_rules.py`. Here each is met by a
request of a user, so the configuration, the server, the decoding and the answer take part. Where the definition
of a kind refuses the same by itself, an API server that evaluates such rules is the one that answers.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from hack.tour.stage import CLUSTER_API, documents
from tests.captf_api import EMBEDDED_AND_REAL, define

from captf_controllers.api.kinds import (
    API_VERSION,
    CLUSTER,
    GROUP,
    MACHINE,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_CLUSTER_TEMPLATE,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
    TERRAFORM_MACHINE_POOL_TEMPLATE,
    TERRAFORM_MACHINE_TEMPLATE,
    TERRAFORM_PLAN,
)
from captf_controllers.webhooks import validators
from captf_controllers.webhooks.configuration import TIMEOUT_SECONDS, webhook_configuration
from captf_controllers.webhooks.paths import path_of
from captf_controllers.webhooks.validators import register_all
from captf_runtime import log
from captf_runtime.client import Client
from captf_runtime.client.config import ClientConfig
from captf_runtime.client.errors import Conflict, Invalid, NotFound
from captf_runtime.client.transport import READ_TIMEOUT
from captf_runtime.clock import SYSTEM_CLOCK
from captf_runtime.objects import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    Kind,
    Object,
    name_of,
)
from captf_runtime.testing.apiserver.server import ApiServer
from captf_runtime.testing.real_control_plane import RealControlPlane, TokenUser, assets_directory
from captf_runtime.webhook import AdmissionRequest, UserInfo, Validator, WebhookServer

IMAGE = "example.com/modules/x:v1"
MANAGER = "system:serviceaccount:captf-system:captf-controller-manager"
ALICE = "alice"
MASTERS = "system:masters"
DEFAULT = "default"
KEEP = "tests.example.com/keep"

WORKLOADS = {
    "cluster": TERRAFORM_CLUSTER,
    "machine": TERRAFORM_MACHINE,
    "machinepool": TERRAFORM_MACHINE_POOL,
}
TEMPLATES = {
    "cluster": TERRAFORM_CLUSTER_TEMPLATE,
    "machine": TERRAFORM_MACHINE_TEMPLATE,
    "machinepool": TERRAFORM_MACHINE_POOL_TEMPLATE,
}


@dataclass
class Refusal:
    """Why a request was refused. `by_definition`: the kind's own definition did, before any webhook."""

    paths: list[str]
    message: str
    by_definition: bool


@dataclass
class Door:
    """An API server with the webhooks, and clients of the users that knock."""

    admin: Client
    users: dict[str, Client]
    embedded: bool
    number: int = field(default=0)

    def name(self) -> str:
        self.number += 1
        return f"x{self.number}"

    def create(
        self,
        kind: Kind,
        spec: Object,
        *,
        user: str = "",
        name: str = "",
        dry_run: bool = False,
        status: Object | None = None,
        **metadata: Any,
    ) -> Object:
        client = self.users[user] if user else self.admin
        obj = {
            "apiVersion": API_VERSION if kind.group == GROUP else kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name or self.name(), **metadata},
            "spec": spec,
        }
        namespace = DEFAULT if kind.namespaced else ""
        made = client.create(kind, copy.deepcopy(obj), namespace, dry_run=dry_run)
        if status is not None:
            self.admin.patch(kind, name_of(made), {"status": status}, namespace, subresource="status")
        return made

    def update(
        self, kind: Kind, name: str, *, user: str = "", dry_run: bool = False, **fields: Any
    ) -> Object:
        """Replace parts of the object: `spec` as a whole, metadata by its fields."""
        client = self.users[user] if user else self.admin
        namespace = DEFAULT if kind.namespaced else ""
        while True:
            obj = self.admin.get(kind, name, namespace)
            if "spec" in fields:
                obj["spec"] = copy.deepcopy(fields["spec"])
            obj["metadata"] |= copy.deepcopy(fields.get("metadata", {}))
            try:
                return client.update(kind, obj, dry_run=dry_run)
            except Conflict:
                continue

    def refusal(self, act: Any) -> Refusal:
        with pytest.raises(Invalid) as caught:
            act()
        error = caught.value
        return Refusal(
            [str(cause.field) for cause in error.causes],
            error.message,
            by_definition="denied the request" not in error.message,
        )

    def expect(self, act: Any, *paths: str, by_definition: bool = False) -> Refusal:
        """The act is refused for these paths; by the definition only where that is expected as well."""
        refusal = self.refusal(act)
        if by_definition and refusal.by_definition:
            # Such a rule stands at the field or at what holds it; a schema's `oneOf` only says it in words.
            assert refusal.paths, refusal.message
            near = any(path.startswith(found.rstrip("[]")) for found in refusal.paths for path in paths)
            assert near or any(path.partition("[")[0] in refusal.message for path in paths), refusal.message
        else:
            assert refusal.paths == list(paths), refusal.message
        return refusal


@contextmanager
def embedded(folder: Path) -> Iterator[dict[str, Path]]:
    with ApiServer(tls=True, rbac=True, controllers=False) as server:
        groups = {"admin": [MASTERS], MANAGER: [MASTERS], ALICE: ["team"]}
        yield {
            user: server.kubeconfig(folder / f"{index}", user=user, groups=given)
            for index, (user, given) in enumerate(groups.items())
        }


@contextmanager
def real(folder: Path) -> Iterator[dict[str, Path]]:
    if assets_directory() is None:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    users = [
        TokenUser(MANAGER, secrets.token_hex(16), (MASTERS,)),
        TokenUser(ALICE, secrets.token_hex(16), ("team",)),
    ]
    with RealControlPlane(controllers=False, users=users) as plane:
        given = yaml.safe_load(plane.kubeconfig.read_text())
        found = {}
        for index, user in enumerate(("admin", MANAGER, ALICE)):
            found[user] = folder / f"{index}"
            found[user].write_text(yaml.safe_dump({**given, "current-context": user}))
        yield found


@pytest.fixture(scope="module", params=EMBEDDED_AND_REAL)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, Client], bool]]:
    """Clients of a server that knows the kinds and calls no webhook yet."""
    folder = tmp_path_factory.mktemp("users")
    with (embedded if request.param == "embedded" else real)(folder) as kubeconfigs:
        define(str(kubeconfigs["admin"]))
        clients = {user: Client.from_config(kubeconfig=path) for user, path in kubeconfigs.items()}
        try:
            for document in documents(CLUSTER_API):
                clients["admin"].create(CUSTOM_RESOURCE_DEFINITION, document)
            _grant(clients["admin"])
            _until_served(clients["admin"], MACHINE)
            _until_served(clients["admin"], CLUSTER)
            yield clients, request.param == "embedded"
        finally:
            for client in clients.values():
                client.close()


#: What was stored before there was a rule against it.
OLD_SPEC: Object = {
    "source": {"image": "NOT VALID"},
    "identityRef": {"name": "i"},
    "jobs": {"securityContext": {"privileged": True}},
    "variables": {"captf_x": 1},
}


@pytest.fixture(scope="module")
def door(server: tuple[dict[str, Client], bool], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    clients, is_embedded = server
    made = Door(clients["admin"], clients, is_embedded)
    for role, kind in WORKLOADS.items():
        made.create(kind, OLD_SPEC, name=f"old-{role}", finalizers=[KEEP])
    for role, kind in TEMPLATES.items():
        made.create(kind, {"template": {"spec": OLD_SPEC}}, name=f"old-{role}", finalizers=[KEEP])
    folder = tmp_path_factory.mktemp("certificate")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(folder / "tls.key"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    webhooks = WebhookServer("127.0.0.1:0", folder)
    register_all(webhooks, clients["admin"], MANAGER)
    stop = threading.Event()
    thread = threading.Thread(target=webhooks.run, args=(stop,), daemon=True)
    thread.start()
    try:
        assert webhooks.ready.wait(60)
        bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
        configuration = webhook_configuration({"url": webhooks.url, "caBundle": bundle})
        clients["admin"].create(VALIDATING_WEBHOOK_CONFIGURATION, configuration)
        _until_called(made)
        yield made
    finally:
        stop.set()
        thread.join(timeout=60)


def _grant(admin: Client) -> None:
    """Alice may do everything with CAPTF's objects, and nothing with Secrets."""
    rule = {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}
    admin.create(CLUSTER_ROLE, {"metadata": {"name": "team"}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "team"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team"}
    admin.create(
        CLUSTER_ROLE_BINDING, {"metadata": {"name": "team"}, "roleRef": reference, "subjects": [subject]}
    )


def _until_served(admin: Client, kind: Kind) -> None:
    deadline = SYSTEM_CLOCK.monotonic() + 120
    while True:
        try:
            admin.list(kind, DEFAULT)
            return
        except NotFound:
            assert SYSTEM_CLOCK.monotonic() < deadline
            SYSTEM_CLOCK.sleep(0.1)


def _until_called(door: Door) -> None:
    """An API server takes a moment to notice a configuration; Alice may write nothing before every kind is."""
    deadline = SYSTEM_CLOCK.monotonic() + 120
    for kind in (*WORKLOADS.values(), *TEMPLATES.values()):
        spec = {"source": {"image": "NOT VALID"}, "identityRef": {"name": "i"}}
        body = spec if kind in WORKLOADS.values() else {"template": {"spec": spec}}
        while True:
            try:
                door.create(kind, body, dry_run=True)
            except Invalid as error:
                if "denied the request" in error.message:
                    break
            assert SYSTEM_CLOCK.monotonic() < deadline, "the webhooks are not called"
            SYSTEM_CLOCK.sleep(0.05)


def spec(**more: Any) -> Object:
    return {"source": {"image": IMAGE}, "identityRef": {"name": "i"}, **more}


# The rules that kinds share ---------------------------------------------------------------------------

#: Where a workload spec stands: kind, path of the spec, how to wrap one.
PLACES = [
    *(pytest.param(kind, "spec", id=kind.kind) for kind in WORKLOADS.values()),
    *(pytest.param(kind, "spec.template.spec", id=kind.kind) for kind in TEMPLATES.values()),
]
#: Where a Job policy stands.
POLICIES = [
    *(pytest.param(kind, "spec.jobs", id=f"{kind.kind}-jobs") for kind in WORKLOADS.values()),
    pytest.param(TERRAFORM_CLUSTER, "spec.defaults.jobs", id="TerraformCluster-defaults"),
    *(pytest.param(kind, "spec.template.spec.jobs", id=f"{kind.kind}-jobs") for kind in TEMPLATES.values()),
    pytest.param(
        TERRAFORM_CLUSTER_TEMPLATE, "spec.template.spec.defaults.jobs", id="TerraformClusterTemplate-defaults"
    ),
]


def wrapped(kind: Kind, body: Object) -> Object:
    return {"template": {"spec": body}} if kind in TEMPLATES.values() else body


def with_policy(kind: Kind, path: str, policy: Object) -> Object:
    body = spec(defaults={"jobs": policy}) if "defaults" in path else spec(jobs=policy)
    return wrapped(kind, body)


@pytest.mark.parametrize(("kind", "path"), PLACES)
def test_the_image(door: Door, kind: Kind, path: str) -> None:
    door.create(kind, wrapped(kind, spec(source={"image": "localhost:5000/a/b:v1"})), dry_run=True)
    for image in ("example.com/UPPER:v1", "x:", " x", "a" * 64):
        body = wrapped(kind, spec(source={"image": image}))
        door.expect(lambda body=body: door.create(kind, body, dry_run=True), f"{path}.source.image")
    for source in ({"image": ""}, {}):
        body = wrapped(kind, spec(source=source))
        act = lambda body=body: door.create(kind, body, dry_run=True)  # noqa: E731
        door.expect(act, f"{path}.source.image", by_definition=True)


#: Field of a security context, a value that is refused, one that passes; of the container, the pod, or both.
_CONTAINER: list[tuple[str, Any, Any]] = [
    ("privileged", True, False),
    ("allowPrivilegeEscalation", True, False),
    ("capabilities.add", ["NET_ADMIN"], []),
    ("readOnlyRootFilesystem", False, True),
    ("procMount", "Unmasked", "Default"),
]
_BOTH: list[tuple[str, Any, Any]] = [
    ("runAsNonRoot", False, True),
    ("runAsUser", 0, 1000),
    ("seccompProfile.type", "Unconfined", "RuntimeDefault"),
    ("appArmorProfile.type", "Unconfined", "RuntimeDefault"),
    ("seLinuxOptions.type", "spc_t", "container_t"),
    ("seLinuxOptions.user", "system_u", None),
    ("seLinuxOptions.role", "system_r", None),
    ("windowsOptions.hostProcess", True, False),
]
CONTEXTS = [
    *(("securityContext", *row) for row in (*_CONTAINER, *_BOTH)),
    *(("podSecurityContext", *row) for row in _BOTH),
]


def nested(path: str, value: Any) -> Object:
    first, _, rest = path.partition(".")
    inner = nested(rest, value) if rest else value
    return {} if inner is None or inner == {} else {first: inner}


@pytest.mark.parametrize(("kind", "path"), POLICIES)
def test_security_contexts(door: Door, kind: Kind, path: str) -> None:
    for context, name, bad, good in CONTEXTS:
        body = with_policy(kind, path, {context: nested(name, bad)})
        refusal = door.expect(
            lambda body=body: door.create(kind, body, dry_run=True), f"{path}.{context}.{name}"
        )
        assert "holds cloud credentials" in refusal.message
        kept = nested(name, good)
        policy = {context: kept} if kept else {"failedJobsHistoryLimit": 1}
        door.create(kind, with_policy(kind, path, policy), dry_run=True)
    sysctls = [{"name": "net.ipv4.tcp_syncookies", "value": "1"}, {"name": "kernel.msgmax", "value": "1"}]
    body = with_policy(kind, path, {"podSecurityContext": {"sysctls": sysctls}})
    door.expect(lambda: door.create(kind, body, dry_run=True), f"{path}.podSecurityContext.sysctls[1].name")
    safe = with_policy(kind, path, {"podSecurityContext": {"sysctls": sysctls[:1]}})
    door.create(kind, safe, dry_run=True)


@pytest.mark.parametrize(("kind", "path"), POLICIES)
def test_reserved_environment_and_times(door: Door, kind: Kind, path: str) -> None:
    for name in ("TF_LOG", "KUBE_TOKEN", "KUBERNETES_X", "HOME", "TMPDIR", "CHECKPOINT_DISABLE"):
        policy = {"env": [{"name": "FINE", "value": "1"}, {"name": name, "value": "1"}]}
        body = with_policy(kind, path, policy)
        refusal = door.expect(lambda body=body: door.create(kind, body, dry_run=True), f"{path}.env[1].name")
        assert "TF_, KUBE_ and KUBERNETES_" in refusal.message
    for name in ("HTTPS_PROXY", "HOMEPAGE", "TFX"):
        fine = with_policy(kind, path, {"env": [{"name": name, "value": "1"}]})
        door.create(kind, fine, dry_run=True)
    refused: list[tuple[Object, str]] = [
        ({"lockTimeoutSeconds": 600, "activeDeadlineSeconds": 600}, "lockTimeoutSeconds"),
        ({"activeDeadlineSeconds": 300}, "activeDeadlineSeconds"),
        ({"lockTimeoutSeconds": 3600}, "lockTimeoutSeconds"),
    ]
    for policy, name in refused:
        body = with_policy(kind, path, policy)
        door.expect(lambda body=body: door.create(kind, body, dry_run=True), f"{path}.{name}")
    passing: list[Object] = [
        {"lockTimeoutSeconds": 0, "activeDeadlineSeconds": 300},
        {"activeDeadlineSeconds": 301},
        {"lockTimeoutSeconds": 3599},
    ]
    for policy in passing:
        door.create(kind, with_policy(kind, path, policy), dry_run=True)


#: An input of the contract for each role.
INPUTS = {"cluster": "cluster_network", "machine": "bootstrap_data", "machinepool": "replicas"}


@pytest.mark.parametrize(("kind", "path"), PLACES)
def test_variables(door: Door, kind: Kind, path: str) -> None:
    door.create(
        kind, wrapped(kind, spec(variables={"zone": "a", "tags": {"x": [1, True, None]}})), dry_run=True
    )
    role = next(role for role, kinds in _kinds_of_roles().items() if kind in kinds)
    hidden = "hidden-value"
    bad = {"9x": hidden, "captf_x": hidden, "count": hidden, INPUTS[role]: hidden, "a.b": hidden}
    body = wrapped(kind, spec(variables={**bad, "fine": hidden}))
    refusal = door.expect(
        lambda: door.create(kind, body, dry_run=True), *(f"{path}.variables[{name}]" for name in sorted(bad))
    )
    assert hidden not in refusal.message
    many = wrapped(kind, spec(variables={f"v{index}": 1 for index in range(257)}))
    door.expect(lambda: door.create(kind, many, dry_run=True), f"{path}.variables", by_definition=True)
    listed = wrapped(kind, spec(variables=[1]))
    door.expect(lambda: door.create(kind, listed, dry_run=True), f"{path}.variables", by_definition=True)
    one: Object = {"configMapRef": {"name": "a"}}
    door.create(kind, wrapped(kind, spec(variablesFrom=[one, {"secretRef": {"name": "b"}}])), dry_run=True)
    for other in ({**one, "secretRef": {"name": "b"}}, {}):
        body = wrapped(kind, spec(variablesFrom=[one, other]))
        act = lambda body=body: door.create(kind, body, dry_run=True)  # noqa: E731
        door.expect(act, f"{path}.variablesFrom[1]", by_definition=True)


def _kinds_of_roles() -> dict[str, list[Kind]]:
    return {role: [kind, TEMPLATES[role]] for role, kind in WORKLOADS.items()}


@pytest.mark.parametrize("role", WORKLOADS)
def test_what_was_stored_before_a_rule_blocks_nothing_else(door: Door, role: str) -> None:
    """Finalizers, labels and annotations of an old object can be written; its content is judged once it changes."""
    kind, template = WORKLOADS[role], TEMPLATES[role]
    old = f"old-{role}"
    for each in (kind, template):
        door.update(each, old, metadata={"annotations": {"tests.example.com/x": "1"}, "labels": {"a": "b"}})
    labelled: Object = {"template": {"spec": OLD_SPEC, "metadata": {"labels": {"a": "b"}}}}
    door.update(template, old, spec=labelled)
    if role != "machine":
        changed = {**OLD_SPEC, "source": {"image": "STILL NOT VALID"}}
        door.expect(
            lambda: door.update(kind, old, spec=changed, dry_run=True),
            "spec.source.image",
            "spec.variables[captf_x]",
        )
    for each in (kind, template):
        door.admin.delete(each, old, DEFAULT, propagation_policy="Background")
    if role != "machine":
        door.update(kind, old, spec={**OLD_SPEC, "deletionPolicy": "Retain"})
    for each in (kind, template):
        door.update(each, old, metadata={"finalizers": []})
        with pytest.raises(NotFound):
            door.admin.get(each, old, DEFAULT)


# TerraformCluster -------------------------------------------------------------------------------------


def test_a_cluster_needs_its_own_identity(door: Door) -> None:
    body = {"source": {"image": IMAGE}, "defaults": {"identityRef": {"name": "i"}}}
    act = lambda: door.create(TERRAFORM_CLUSTER, body, dry_run=True)  # noqa: E731
    refusal = door.expect(act, "spec.identityRef", by_definition=True)
    assert refusal.by_definition or "spec.defaults.identityRef" in refusal.message
    door.create(TERRAFORM_CLUSTER, {**body, "identityRef": {"name": "not-there"}}, dry_run=True)


FULL, HALF = {"host": "a.example.com", "port": 6443}, {"host": "a.example.com"}
ENDPOINTS: list[tuple[Object | None, Object | None, bool]] = [
    (FULL, FULL, True),
    (FULL, {**FULL, "port": 443}, False),
    (FULL, HALF, False),
    (FULL, None, False),
    (None, FULL, True),
    (None, HALF, False),
    (None, {"port": 6443}, False),
    (None, None, True),
]


@pytest.mark.parametrize(("before", "now", "passes"), ENDPOINTS)
def test_the_endpoint_is_set_once(
    door: Door, before: Object | None, now: Object | None, passes: bool
) -> None:
    def body(endpoint: Object | None) -> Object:
        return spec() if endpoint is None else spec(controlPlaneEndpoint=endpoint)

    name = name_of(door.create(TERRAFORM_CLUSTER, body(before)))
    act = lambda: door.update(TERRAFORM_CLUSTER, name, spec=body(now))  # noqa: E731
    if passes:
        act()
    else:
        door.expect(act, "spec.controlPlaneEndpoint", by_definition=True)
    if before is None and now is not None:
        act = lambda: door.create(TERRAFORM_CLUSTER, body(now), dry_run=True)  # noqa: E731
        if passes:
            act()
        else:
            door.expect(act, "spec.controlPlaneEndpoint", by_definition=True)


def test_a_cluster_changes_its_image_and_policies(door: Door) -> None:
    name = name_of(door.create(TERRAFORM_CLUSTER, spec(), finalizers=[KEEP]))
    changed = spec(
        source={"image": "example.com/modules/x:v2"}, deletionPolicy="Retain", adoptRetainedState=True
    )
    door.update(TERRAFORM_CLUSTER, name, spec=changed)
    door.admin.delete(TERRAFORM_CLUSTER, name, DEFAULT, propagation_policy="Background")
    door.update(TERRAFORM_CLUSTER, name, spec={**changed, "deletionPolicy": "Destroy"})
    door.update(TERRAFORM_CLUSTER, name, metadata={"finalizers": []})


# TerraformMachine -------------------------------------------------------------------------------------

_VARIABLES = {"variables": {"a": 1, "b": [{"c": 0}]}}
_SOURCES = {"variablesFrom": [{"secretRef": {"name": "s"}}]}
MACHINE_CHANGES: list[tuple[str, Object, Object]] = [
    ("source", spec(), spec(source={"image": "example.com/modules/x:v2"})),
    ("identityRef", spec(), spec(identityRef={"name": "other"})),
    ("identityRef", spec(), {"source": {"image": IMAGE}}),
    ("identityRef", {"source": {"image": IMAGE}}, spec()),
    ("variables", spec(), spec(**_VARIABLES)),
    ("variables", spec(**_VARIABLES), spec()),
    ("variables", spec(**_VARIABLES), spec(variables={"a": 2, "b": [{"c": 0}]})),
    ("variables", spec(**_VARIABLES), spec(variables={"a": True, "b": [{"c": 0}]})),
    ("variables", spec(**_VARIABLES), spec(variables={"a": 1, "b": [{"c": False}]})),
    ("variablesFrom", spec(), spec(**_SOURCES)),
    ("variablesFrom", spec(**_SOURCES), spec()),
    ("variablesFrom", spec(**_SOURCES), spec(variablesFrom=[{"secretRef": {"name": "t"}}])),
]


@pytest.mark.parametrize(("name", "before", "now"), MACHINE_CHANGES)
def test_a_machine_keeps_what_it_was_made_from(door: Door, name: str, before: Object, now: Object) -> None:
    made = name_of(door.create(TERRAFORM_MACHINE, before))
    for user in (MANAGER, ALICE):
        act = lambda user=user: door.update(TERRAFORM_MACHINE, made, spec=now, user=user)  # noqa: E731
        refusal = door.expect(act, f"spec.{name}", by_definition=True)
        assert "is immutable" in refusal.message
        assert "create a new" in refusal.message


def test_a_machine_changes_what_is_not_its_making(door: Door) -> None:
    made = name_of(door.create(TERRAFORM_MACHINE, spec(**_VARIABLES)))
    reordered = {"b": [{"c": 0}], "a": 1}
    changed = spec(variables=reordered, jobs={"failedJobsHistoryLimit": 1}, deletionPolicy="Retain")
    door.update(TERRAFORM_MACHINE, made, spec={**changed, "adoptRetainedState": True}, user=ALICE)
    door.update(
        TERRAFORM_MACHINE, made, metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}}, user=ALICE
    )


def test_only_the_manager_sets_a_provider_id_and_only_once(door: Door) -> None:
    with_id = spec(providerID="noop:///1")
    door.create(TERRAFORM_MACHINE, with_id, user=ALICE, dry_run=True)
    made = name_of(door.create(TERRAFORM_MACHINE, spec()))
    act = lambda: door.update(TERRAFORM_MACHINE, made, spec=with_id, user=ALICE)  # noqa: E731
    refusal = door.expect(act, "spec.providerID")
    assert "only the provider's controller may set it on an existing TerraformMachine" in refusal.message
    door.update(TERRAFORM_MACHINE, made, spec=with_id, user=MANAGER)
    for other in (spec(), spec(providerID="noop:///2")):
        act = lambda other=other: door.update(TERRAFORM_MACHINE, made, spec=other, user=MANAGER)  # noqa: E731
        refusal = door.expect(act, "spec.providerID", by_definition=True)
        assert "can only be set once, from empty to non-empty" in refusal.message


def machine_of(target: str, **reference: str) -> Object:
    given = {"apiGroup": GROUP, "kind": "TerraformMachine", "name": target, **reference}
    return {"clusterName": "prod", "bootstrap": {}, "infrastructureRef": given}


def delete(door: Door, kind: Kind, name: str) -> None:
    door.admin.delete(kind, name, DEFAULT if kind.namespaced else "", propagation_policy="Background")


def test_a_machine_goes_with_its_owner_only(door: Door) -> None:
    made = name_of(door.create(TERRAFORM_MACHINE, spec()))
    door.create(MACHINE, machine_of(made), name="its-machine", finalizers=[KEEP])
    refusal = door.expect(lambda: delete(door, TERRAFORM_MACHINE, made), "metadata")
    assert "delete the Machine its-machine instead" in refusal.message
    delete(door, MACHINE, "its-machine")  # it is going, held by its finalizer
    delete(door, TERRAFORM_MACHINE, made)
    door.update(MACHINE, "its-machine", metadata={"finalizers": []})
    for number, reference in enumerate(({"name": "another"}, {"kind": "Else"}, {"apiGroup": "example.com"})):
        free = name_of(door.create(TERRAFORM_MACHINE, spec()))
        door.create(MACHINE, machine_of(free, **reference), name=f"stranger-{number}")
        delete(door, TERRAFORM_MACHINE, free)


def test_a_machine_goes_for_a_move_while_its_cluster_is_paused(door: Door) -> None:
    announced = {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
    labelled = {"cluster.x-k8s.io/cluster-name": "moved"}
    made = name_of(door.create(TERRAFORM_MACHINE, spec(), annotations=announced, labels=labelled))
    door.create(MACHINE, machine_of(made), name="moved-machine")
    door.expect(lambda: delete(door, TERRAFORM_MACHINE, made), "metadata")
    door.create(CLUSTER, {"paused": False}, name="moved")
    door.expect(lambda: delete(door, TERRAFORM_MACHINE, made), "metadata")
    door.update(CLUSTER, "moved", spec={"paused": True})
    door.update(TERRAFORM_MACHINE, made, metadata={"labels": {}})
    door.expect(lambda: delete(door, TERRAFORM_MACHINE, made), "metadata")
    door.update(TERRAFORM_MACHINE, made, metadata={"labels": labelled, "annotations": {}})
    door.expect(lambda: delete(door, TERRAFORM_MACHINE, made), "metadata")
    door.update(TERRAFORM_MACHINE, made, metadata={"annotations": announced})
    delete(door, TERRAFORM_MACHINE, made)


# TerraformMachinePool ---------------------------------------------------------------------------------


def test_nothing_of_a_pool_is_immutable(door: Door) -> None:
    made = name_of(door.create(TERRAFORM_MACHINE_POOL, spec(providerID="a", providerIDList=["a"])))
    changed = {
        "source": {"image": "example.com/modules/x:v2"},
        "identityRef": {"name": "other"},
        "variables": {"a": 1},
        "variablesFrom": [{"secretRef": {"name": "s"}}],
        "providerID": "b",
        "providerIDList": ["b"],
    }
    door.update(TERRAFORM_MACHINE_POOL, made, spec=changed, user=ALICE)
    door.update(TERRAFORM_MACHINE_POOL, made, spec=spec(), user=ALICE)
    delete(door, TERRAFORM_MACHINE_POOL, made)


# Templates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TEMPLATES.values(), ids=lambda kind: kind.kind)
def test_a_template_never_changes_but_its_metadata_may(door: Door, kind: Kind) -> None:
    made = name_of(door.create(kind, {"template": {"spec": spec()}}))
    changed = {"template": {"spec": spec(deletionPolicy="Retain")}}
    dry = {"topology.cluster.x-k8s.io/dry-run": ""}
    door.expect(lambda: door.update(kind, made, spec=changed), "spec.template.spec")
    door.expect(lambda: door.update(kind, made, spec=changed, dry_run=True), "spec.template.spec")
    door.expect(
        lambda: door.update(kind, made, spec=changed, metadata={"annotations": dry}), "spec.template.spec"
    )
    door.update(kind, made, spec=changed, metadata={"annotations": dry}, dry_run=True)
    metadata = {"labels": {"example.com/a": "b"}, "annotations": {"example.com/Note": "any text"}}
    door.update(kind, made, spec={"template": {"spec": spec(), "metadata": metadata}})
    bad = {"labels": {"bad key": "v", "a": "bad value"}, "annotations": {"no/such/key": "v"}}
    for act in (
        lambda: door.update(kind, made, spec={"template": {"spec": spec(), "metadata": bad}}),
        lambda: door.create(kind, {"template": {"spec": spec(), "metadata": bad}}, dry_run=True),
    ):
        door.expect(
            act,
            "spec.template.metadata.labels[a]",
            "spec.template.metadata.labels[bad key]",
            "spec.template.metadata.annotations[no/such/key]",
        )
    delete(door, kind, made)


def test_a_machine_template_has_no_provider_id_and_a_cluster_template_may_lack_an_identity(
    door: Door,
) -> None:
    with_id = {"template": {"spec": spec(providerID="noop:///1")}}
    act = lambda: door.create(TERRAFORM_MACHINE_TEMPLATE, with_id, dry_run=True)  # noqa: E731
    door.expect(act, "spec.template.spec.providerID")
    door.create(TERRAFORM_MACHINE_POOL_TEMPLATE, with_id, dry_run=True)
    door.create(
        TERRAFORM_CLUSTER_TEMPLATE, {"template": {"spec": {"source": {"image": IMAGE}}}}, dry_run=True
    )


# TerraformClusterIdentity -----------------------------------------------------------------------------


def shared(**more: Any) -> Object:
    return {"secretRef": {"name": "keys", "namespace": "captf-system"}, **more}


def test_the_shape_of_an_identity(door: Door) -> None:
    kind = TERRAFORM_CLUSTER_IDENTITY
    for allowed in ({"list": ["a"]}, {"selector": {}}, {"selector": {"matchLabels": {"a": "b"}}}):
        door.create(kind, shared(allowedNamespaces=allowed), dry_run=True)
    door.create(kind, shared(), dry_run=True)
    named = ("spec.secretRef.name", "spec.secretRef.namespace")
    door.expect(lambda: door.create(kind, {"type": "Secret"}, dry_run=True), *named, by_definition=True)
    refused: list[tuple[Object, str, bool]] = [
        ({}, "spec.allowedNamespaces", True),
        ({"list": ["fine", "Bad_Name"]}, "spec.allowedNamespaces.list[1]", True),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.allowedNamespaces.selector",
            False,
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            "spec.allowedNamespaces.selector",
            False,
        ),
        ({"selector": {"matchLabels": {"bad key": "b"}}}, "spec.allowedNamespaces.selector", False),
        ({"selector": {"matchLabels": {"a": "bad value"}}}, "spec.allowedNamespaces.selector", False),
    ]
    for allowed, path, by_definition in refused:
        body = shared(allowedNamespaces=allowed)
        act = lambda body=body: door.create(kind, body, dry_run=True)  # noqa: E731
        door.expect(act, path, by_definition=by_definition)


def test_who_shares_a_secret_may_read_it(door: Door) -> None:
    kind = TERRAFORM_CLUSTER_IDENTITY
    body = shared(allowedNamespaces={"list": ["a", "b"]})
    refusal = door.expect(lambda: door.create(kind, body, user=ALICE, dry_run=True), "spec.secretRef")
    assert "alice" in refusal.message
    assert "captf-system/keys" in refusal.message
    made = name_of(door.create(kind, body))
    for change in (
        shared(allowedNamespaces={"list": ["a"]}),
        shared(allowedNamespaces={"list": ["a", "b", "c"]}),
        {**body, "secretRef": {"name": "others", "namespace": "captf-system"}},
    ):
        act = lambda change=change: door.update(kind, made, spec=change, user=ALICE)  # noqa: E731
        door.expect(act, "spec.secretRef")
    door.update(kind, made, spec={**body, "requiredKeys": ["K"]}, user=ALICE)
    door.update(kind, made, metadata={"labels": {"a": "b"}}, user=ALICE)
    door.update(kind, made, spec=shared(allowedNamespaces={"list": ["a"]}))
    door.admin.create(
        CLUSTER_ROLE,
        {
            "metadata": {"name": "reader"},
            "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["keys"], "verbs": ["get"]}
            ],
        },
    )
    rbac = "rbac.authorization.k8s.io"
    door.admin.create(
        CLUSTER_ROLE_BINDING,
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": ALICE}],
        },
    )
    deadline = SYSTEM_CLOCK.monotonic() + 120
    while True:  # the authorizer takes a moment to know the binding
        try:
            door.create(kind, body, user=ALICE, dry_run=True)
            break
        except Invalid:
            assert SYSTEM_CLOCK.monotonic() < deadline
            SYSTEM_CLOCK.sleep(0.1)


def test_an_identity_in_use_stays(door: Door) -> None:
    kind = TERRAFORM_CLUSTER_IDENTITY
    made = name_of(door.create(kind, shared()))
    user = name_of(door.create(TERRAFORM_CLUSTER, spec(identityRef={"name": made}), finalizers=[KEEP]))
    delete(door, TERRAFORM_CLUSTER, user)  # it is going: its destroy needs the credentials
    refusal = door.expect(lambda: delete(door, kind, made), "metadata")
    assert f"TerraformCluster {DEFAULT}/{user}" in refusal.message
    door.update(TERRAFORM_CLUSTER, user, metadata={"finalizers": []})
    local = {"name": made, "kind": "Secret"}
    machine = name_of(door.create(TERRAFORM_MACHINE, spec(identityRef=local)))
    delete(door, kind, made)
    delete(door, TERRAFORM_MACHINE, machine)
    mirrored = name_of(door.create(kind, shared(), status={"namespaces": ["team-a", "team-b"]}))
    refusal = door.expect(lambda: delete(door, kind, mirrored), "status.namespaces")
    assert "team-a, team-b" in refusal.message


# TerraformPlan ----------------------------------------------------------------------------------------

PHASE = "captf.io/plan-phase"
PHASE_PATH = f"metadata.labels[{PHASE}]"


def plan(**more: Any) -> Object:
    return {
        "targetRef": {"kind": "TerraformCluster", "name": "prod"},
        "planHash": "p2:" + "0" * 64,
        "inputsHash": "h2:" + "0" * 64,
        "reason": "Manual",
        "summary": {"create": 1},
        **more,
    }


def by(user: str) -> Object:
    return {"approved": True, "approvedBy": user}


PLAN_CREATES: list[tuple[str, str, Object, tuple[str, ...], bool]] = [
    (ALICE, "", {}, (), False),
    (ALICE, "Pending", {}, (), False),
    (ALICE, "Pending", by(ALICE), (), False),
    (ALICE, "Approved", by(ALICE), (), False),
    (ALICE, "Applied", by("bob"), (), False),
    (ALICE, "Superseded", {}, (), False),
    (ALICE, "Failed", {}, (), False),
    (ALICE, "Pending", by("bob"), ("spec.approvedBy",), False),
    (ALICE, "Approved", {}, (PHASE_PATH,), False),
    (ALICE, "Unheard", {}, (PHASE_PATH,), False),
    (ALICE, "", {"approved": True}, ("spec.approvedBy", "spec.approvedBy"), True),
    (ALICE, "", {"approvedBy": ALICE}, ("spec.approvedBy",), True),
    (MANAGER, "Approved", {}, (), False),
    (MANAGER, "Pending", by("bob"), (), False),
    (MANAGER, "", {"approvedBy": ALICE}, ("spec.approvedBy",), True),
]


@pytest.mark.parametrize(("user", "phase", "approval", "paths", "by_definition"), PLAN_CREATES)
def test_creating_plans(
    door: Door, user: str, phase: str, approval: Object, paths: tuple[str, ...], by_definition: bool
) -> None:
    labels = {PHASE: phase} if phase else {}

    def act() -> None:
        door.create(TERRAFORM_PLAN, plan(**approval), user=user, labels=labels, dry_run=True)

    if paths:
        door.expect(act, *paths, by_definition=by_definition)
    else:
        act()


#: Stored phase and approval; user, new phase and changes; the paths that it is refused for.
PLAN_UPDATES: list[tuple[str, Object, str, str, Object, tuple[str, ...], bool]] = [
    ("Pending", {}, ALICE, "Pending", by(ALICE), (), False),
    ("", {}, ALICE, "", by(ALICE), (), False),
    ("Pending", {}, ALICE, "Pending", by("bob"), ("spec.approvedBy",), False),
    ("Superseded", {}, ALICE, "Superseded", by(ALICE), ("spec.approved",), False),
    ("Pending", {}, ALICE, "Approved", {}, (PHASE_PATH,), False),
    ("Pending", {}, ALICE, "", {}, (PHASE_PATH,), False),
    ("", {}, ALICE, "Pending", {}, (PHASE_PATH,), False),
    ("Pending", {}, MANAGER, "Superseded", {}, (), False),
    ("Approved", by(ALICE), ALICE, "Approved", {}, ("spec.approved",), True),
    ("Approved", by(ALICE), MANAGER, "Approved", by("bob"), ("spec.approved",), True),
    ("Approved", by(ALICE), MANAGER, "Applied", by(ALICE), (), False),
    *(
        ("Pending", {}, MANAGER, "Pending", {name: value}, (f"spec.{name}",), True)
        for name, value in {
            "targetRef": {"kind": "TerraformCluster", "name": "other"},
            "planHash": "p2:" + "1" * 64,
            "inputsHash": "h2:" + "1" * 64,
            "reason": "Destructive",
            "summary": {"create": 2},
        }.items()
    ),
]


@pytest.mark.parametrize(
    ("stored", "approval", "user", "phase", "changes", "paths", "by_definition"), PLAN_UPDATES
)
def test_updating_plans(
    door: Door,
    stored: str,
    approval: Object,
    user: str,
    phase: str,
    changes: Object,
    paths: tuple[str, ...],
    by_definition: bool,
) -> None:
    made = door.create(
        TERRAFORM_PLAN, plan(**approval), user=MANAGER, labels={PHASE: stored} if stored else {}
    )
    metadata = {"labels": {"free": "label", **({PHASE: phase} if phase else {})}}

    def act() -> None:
        door.update(TERRAFORM_PLAN, name_of(made), spec=plan(**changes), metadata=metadata, user=user)

    if paths:
        door.expect(act, *paths, by_definition=by_definition)
    else:
        act()
    delete(door, TERRAFORM_PLAN, name_of(made))


# Lookups ----------------------------------------------------------------------------------------------


class Desk(dict[str, Validator]):
    """The validators by their path, to be asked without a server."""

    def register(self, path: str, validator: Validator) -> None:
        self[path] = validator


def asked(kind: Kind, operation: str, obj: Object) -> AdmissionRequest:
    return AdmissionRequest(
        uid="1",
        operation=operation,
        group=kind.group,
        version=kind.version,
        kind=kind.kind,
        resource=kind.plural,
        subresource="",
        namespace=DEFAULT if kind.namespaced else "",
        name="x",
        object=None if operation == "DELETE" else obj,
        old_object=obj if operation == "DELETE" else None,
        user=UserInfo(username=ALICE),
        dry_run=False,
    )


LOOKUPS = [
    (TERRAFORM_MACHINE, "DELETE", {"metadata": {"name": "x", "namespace": DEFAULT}}),
    (TERRAFORM_CLUSTER_IDENTITY, "DELETE", {"metadata": {"name": "x"}}),
    (TERRAFORM_CLUSTER_IDENTITY, "CREATE", {"metadata": {"name": "x"}, "spec": shared()}),
]


@pytest.mark.parametrize(("kind", "operation", "obj"), LOOKUPS)
def test_a_lookup_that_fails_is_an_error_and_no_policy(
    door: Door, kind: Kind, operation: str, obj: Object
) -> None:
    desk = Desk()
    register_all(desk, door.users[ALICE], MANAGER)  # she may neither list Machines nor review access
    answer = desk[path_of(kind)](asked(kind, operation, obj))
    assert (answer.allowed, answer.code, answer.reason) == (False, 500, "InternalError")


@pytest.mark.parametrize(("kind", "operation", "obj"), LOOKUPS)
def test_a_lookup_ends_before_the_review_is_given_up(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, operation: str, obj: Object
) -> None:
    """An API server that takes connections and says nothing."""
    assert validators.LOOKUP_SECONDS < TIMEOUT_SECONDS
    monkeypatch.setattr(validators, "LOOKUP_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = ClientConfig(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with Client(config) as client:
            desk = Desk()
            register_all(desk, client, MANAGER)
            before = SYSTEM_CLOCK.monotonic()
            answer = desk[path_of(kind)](asked(kind, operation, obj))
            took = SYSTEM_CLOCK.monotonic() - before
    assert took < READ_TIMEOUT - 5, "a client with no limit of its own waits longer on any machine"
    assert (answer.allowed, answer.code, answer.reason) == (False, 500, "InternalError")


def test_why_a_requester_may_not_share_a_secret_is_logged(door: Door) -> None:
    written = io.StringIO()
    desk = Desk()
    register_all(desk, door.admin, MANAGER)
    reference = {"name": "not-hers", "namespace": "kube-system"}
    review = asked(
        TERRAFORM_CLUSTER_IDENTITY, "CREATE", {"metadata": {"name": "x"}, "spec": {"secretRef": reference}}
    )
    log.configure("info", "json", written)
    try:
        assert desk[path_of(TERRAFORM_CLUSTER_IDENTITY)](review).code == 422
    finally:
        log.configure("warning", "text")
    (line,) = [json.loads(line) for line in written.getvalue().splitlines() if "not-hers" in line]
    assert (line["level"], line["user"], line["subject"]) == ("info", ALICE, "kube-system/not-hers")
    assert "reason" in line
