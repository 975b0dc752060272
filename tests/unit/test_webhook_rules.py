"""Every admission rule: one object that passes and one that is refused, with the field's path."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from captf_controllers.webhooks.guard import moving, refusal
from captf_controllers.webhooks.identity import check_identity, read_check_due
from captf_controllers.webhooks.plan import check_plan
from captf_controllers.webhooks.templates import check_template
from captf_controllers.webhooks.workload import check_workload
from captf_runtime.objects import Object
from captf_runtime.webhook import Violation

IMAGE = "example.com/modules/x:v1"


def workload(**spec: Any) -> Object:
    return {
        "metadata": {"name": "x"},
        "spec": {"source": {"image": IMAGE}, "identityRef": {"name": "i"}, **spec},
    }


def found(violations: list[Violation]) -> list[tuple[str, str]]:
    return [(item.field, item.type.removeprefix("FieldValue")) for item in violations]


def create(role: str, obj: Object) -> list[tuple[str, str]]:
    return found(check_workload(role, obj, None, by_manager=False))  # type: ignore[arg-type]


def update(role: str, old: Object, new: Object, *, by_manager: bool = False) -> list[tuple[str, str]]:
    return found(check_workload(role, new, old, by_manager=by_manager))  # type: ignore[arg-type]


CONTAINER = [
    ({"privileged": True}, "privileged"),
    ({"allowPrivilegeEscalation": True}, "allowPrivilegeEscalation"),
    ({"capabilities": {"add": ["NET_ADMIN"]}}, "capabilities.add"),
    ({"readOnlyRootFilesystem": False}, "readOnlyRootFilesystem"),
    ({"procMount": "Unmasked"}, "procMount"),
]
BOTH = [
    ({"runAsNonRoot": False}, "runAsNonRoot"),
    ({"runAsUser": 0}, "runAsUser"),
    ({"seccompProfile": {"type": "Unconfined"}}, "seccompProfile.type"),
    ({"appArmorProfile": {"type": "Unconfined"}}, "appArmorProfile.type"),
    ({"seLinuxOptions": {"type": "spc_t"}}, "seLinuxOptions.type"),
    ({"seLinuxOptions": {"user": "system_u"}}, "seLinuxOptions.user"),
    ({"seLinuxOptions": {"role": "system_r"}}, "seLinuxOptions.role"),
    ({"windowsOptions": {"hostProcess": True}}, "windowsOptions.hostProcess"),
]
CONTEXTS = [
    *((("securityContext", context), path) for context, path in (*CONTAINER, *BOTH)),
    *((("podSecurityContext", context), path) for context, path in BOTH),
    (("podSecurityContext", {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}), "sysctls[0].name"),
]


@pytest.mark.parametrize(("context", "path"), CONTEXTS)
@pytest.mark.parametrize("where", ["spec.jobs", "spec.defaults.jobs"])
def test_security_contexts(context: tuple[str, Object], path: str, where: str) -> None:
    policy = {context[0]: context[1]}
    obj = workload(jobs=policy) if where == "spec.jobs" else workload(defaults={"jobs": policy})
    assert create("cluster", obj) == [(f"{where}.{context[0]}.{path}", "Forbidden")]


def test_a_strict_context_passes() -> None:
    context = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {**context, "sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}
    assert create("cluster", workload(jobs={"securityContext": context, "podSecurityContext": pod})) == []


@pytest.mark.parametrize(
    "name", ["TF_LOG", "KUBE_TOKEN", "KUBERNETES_X", "HOME", "TMPDIR", "CHECKPOINT_DISABLE"]
)
def test_reserved_environment(name: str) -> None:
    obj = workload(jobs={"env": [{"name": "FINE", "value": "1"}, {"name": name, "value": "1"}]})
    assert create("cluster", obj) == [("spec.jobs.env[1].name", "Forbidden")]


TIMES = [
    ({"lockTimeoutSeconds": 60, "activeDeadlineSeconds": 60}, "lockTimeoutSeconds"),
    ({"activeDeadlineSeconds": 300}, "activeDeadlineSeconds"),
    ({"lockTimeoutSeconds": 3600}, "lockTimeoutSeconds"),
    ({"lockTimeoutSeconds": 0, "activeDeadlineSeconds": 1}, None),
    ({"activeDeadlineSeconds": 301}, None),
    ({"lockTimeoutSeconds": 3599}, None),
    ({}, None),
]


@pytest.mark.parametrize(("jobs", "path"), TIMES)
def test_lock_timeout_below_the_deadline(jobs: Object, path: str | None) -> None:
    expected = [(f"spec.jobs.{path}", "Invalid")] if path else []
    assert create("cluster", workload(jobs=jobs or None)) == expected


SOURCES = [
    ("", "Required"),
    ("example.com/UPPER", "Invalid"),
    ("x:", "Invalid"),
    (" x", "Invalid"),
    ("a" * 64, "Invalid"),
    ("x@sha256:" + "0" * 64, None),
    ("localhost:5000/a/b:v1", None),
]


@pytest.mark.parametrize(("image", "type_"), SOURCES)
def test_images(image: str, type_: str | None) -> None:
    expected = [("spec.source.image", type_)] if type_ else []
    assert create("cluster", workload(source={"image": image})) == expected


def test_variables_name_every_bad_one_and_no_value() -> None:
    secret = "do-not-show"
    obj = workload(
        variables={"9x": secret, "captf_x": secret, "count": secret, "replicas": secret, "ok": secret}
    )
    violations = check_workload("machinepool", obj, None, by_manager=False)
    assert [item.field for item in violations] == [
        f"spec.variables[{name}]" for name in ("9x", "captf_x", "count", "replicas")
    ]
    assert all(secret not in item.message for item in violations)
    assert create("cluster", workload(variables={"replicas": 1})) == []


def test_variables_must_be_a_bounded_object() -> None:
    assert create("cluster", workload(variables=[1])) == [("spec.variables", "Invalid")]
    many = {f"v{index}": 1 for index in range(257)}
    assert create("cluster", workload(variables=many)) == [("spec.variables", "TooMany")]


def test_a_source_names_exactly_one_object() -> None:
    both = {"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}
    assert create("cluster", workload(variablesFrom=[{"secretRef": {"name": "b"}}, both, {}])) == [
        ("spec.variablesFrom[1]", "Invalid"),
        ("spec.variablesFrom[2]", "Invalid"),
    ]


def test_a_cluster_needs_its_own_identity() -> None:
    assert create("cluster", workload(identityRef=None)) == [("spec.identityRef", "Required")]
    assert create("machine", workload(identityRef=None)) == []


ENDPOINTS = [
    ({"host": "a", "port": 1}, {"host": "a", "port": 1}, None),
    ({"host": "a", "port": 1}, {"host": "b", "port": 1}, "Forbidden"),
    ({"host": "a", "port": 1}, {"host": "a"}, "Forbidden"),
    ({"host": "a", "port": 1}, None, "Forbidden"),
    ({"host": "a"}, {"host": "a"}, None),
    ({"host": "a"}, {"host": "a", "port": 1}, None),
    (None, {"host": "a", "port": 1}, None),
    (None, {"port": 1}, "Invalid"),
]


@pytest.mark.parametrize(("before", "now", "type_"), ENDPOINTS)
def test_the_endpoint_is_set_once(before: Object | None, now: Object | None, type_: str | None) -> None:
    old, new = workload(controlPlaneEndpoint=before), workload(controlPlaneEndpoint=now)
    assert update("cluster", old, new) == ([("spec.controlPlaneEndpoint", type_)] if type_ else [])


@pytest.mark.parametrize(
    "change",
    [
        {"source": {"image": "example.com/other:v1"}},
        {"identityRef": None},
        {"variables": {"a": 1}},
        {"variablesFrom": [{"secretRef": {"name": "s"}}]},
    ],
)
def test_a_machine_is_immutable(change: Object) -> None:
    path = f"spec.{next(iter(change))}"
    assert update("machine", workload(), workload(**change)) == [(path, "Forbidden")]
    allowed = workload(deletionPolicy="Retain", adoptRetainedState=True, jobs={"failedJobsHistoryLimit": 1})
    assert update("machine", workload(), allowed) == []


def test_equal_variables_are_no_change() -> None:
    assert (
        update("machine", workload(variables={"a": 1, "b": [1]}), workload(variables={"b": [1], "a": 1}))
        == []
    )


def test_only_the_manager_sets_the_provider_id_and_only_once() -> None:
    empty, set_ = workload(), workload(providerID="noop:///1")
    assert update("machine", empty, set_) == [("spec.providerID", "Forbidden")]
    assert update("machine", empty, set_, by_manager=True) == []
    for other in (empty, workload(providerID="noop:///2")):
        assert update("machine", set_, other, by_manager=True) == [("spec.providerID", "Forbidden")]
    assert create("machine", set_) == []


def test_what_was_stored_never_blocks_a_finalizer() -> None:
    bad = workload(source={"image": "BAD"}, jobs={"securityContext": {"privileged": True}})
    touched = copy.deepcopy(bad)
    touched["metadata"]["finalizers"] = []
    assert update("cluster", bad, touched) == []
    deleting = copy.deepcopy(bad)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    deleting["spec"]["deletionPolicy"] = "Retain"
    assert update("cluster", bad, deleting) == []


def template(**spec: Any) -> Object:
    return {"metadata": {"name": "t"}, "spec": {"template": {"spec": workload(**spec)["spec"]}}}


def test_templates() -> None:
    old = template()
    assert check_template("machine", old, None, dry_run=False) == ([], [])
    assert found(check_template("machine", template(providerID="x"), None, dry_run=False)[0]) == [
        ("spec.template.spec.providerID", "Forbidden")
    ]
    changed = template(deletionPolicy="Retain")
    assert found(check_template("machine", changed, old, dry_run=False)[0]) == [
        ("spec.template.spec", "Forbidden")
    ]
    changed["metadata"]["annotations"] = {"topology.cluster.x-k8s.io/dry-run": ""}
    assert found(check_template("machine", changed, old, dry_run=False)[0]) == [
        ("spec.template.spec", "Forbidden")
    ]
    assert check_template("machine", changed, old, dry_run=True)[0] == []
    _, warnings = check_template("cluster", template(identityRef=None), None, dry_run=False)
    assert len(warnings) == 1
    labelled = copy.deepcopy(old)
    labelled["spec"]["template"]["metadata"] = {
        "labels": {"ok/x": "y", "bad key": "z"},
        "annotations": {"/x": ""},
    }
    assert [item.field for item in check_template("machine", labelled, old, dry_run=False)[0]] == [
        "spec.template.metadata.labels[bad key]",
        "spec.template.metadata.annotations[/x]",
    ]


def identity(**spec: Any) -> Object:
    return {"metadata": {"name": "i"}, "spec": {"secretRef": {"name": "s", "namespace": "n"}, **spec}}


def test_identities() -> None:
    assert check_identity(identity()) == []
    assert found(check_identity({"spec": {}})) == [
        ("spec.secretRef.name", "Required"),
        ("spec.secretRef.namespace", "Required"),
    ]
    assert found(check_identity(identity(allowedNamespaces={}))) == [("spec.allowedNamespaces", "Invalid")]
    assert found(check_identity(identity(allowedNamespaces={"list": ["ok", "Bad_Name"]}))) == [
        ("spec.allowedNamespaces.list[1]", "Invalid")
    ]
    bad = {"matchExpressions": [{"key": "a", "operator": "In"}]}
    assert found(check_identity(identity(allowedNamespaces={"selector": bad}))) == [
        ("spec.allowedNamespaces.selector", "Invalid")
    ]
    assert check_identity(identity(allowedNamespaces={"selector": {}})) == []


def test_who_shares_a_secret_must_be_able_to_read_it() -> None:
    old = identity(allowedNamespaces={"list": ["a", "b"]})
    assert read_check_due(old, None)
    assert not read_check_due(identity(allowedNamespaces={"list": ["a", "b"]}, requiredKeys=["K"]), old)
    assert read_check_due(identity(allowedNamespaces={"list": ["a"]}), old)
    assert read_check_due(identity(allowedNamespaces={"list": ["a", "b", "c"]}), old)


PHASE = "captf.io/plan-phase"


def plan(phase: str = "", **spec: Any) -> Object:
    base = {"planHash": "p2:x", "inputsHash": "h2:x", "reason": "Manual", "targetRef": {}, "summary": {}}
    return {"metadata": {"labels": {PHASE: phase} if phase else {}}, "spec": {**base, **spec}}


CREATES = [
    (plan("Applied", approved=True, approvedBy="bob"), False, []),
    (plan("Approved", approved=True, approvedBy="alice"), False, []),
    (plan(approved=True, approvedBy="bob"), False, [("spec.approvedBy", "Forbidden")]),
    (plan("Pending"), False, []),
    (plan("Approved"), False, [(f"metadata.labels[{PHASE}]", "Forbidden")]),
    (plan("Strange"), False, [(f"metadata.labels[{PHASE}]", "Forbidden")]),
    (plan("Strange"), True, []),
    (plan(approved=True), False, [("spec.approvedBy", "Required"), ("spec.approvedBy", "Forbidden")]),
    (plan(approvedBy="alice"), False, [("spec.approvedBy", "Forbidden")]),
]


@pytest.mark.parametrize(("obj", "by_manager", "expected"), CREATES)
def test_creating_plans(obj: Object, by_manager: bool, expected: list[tuple[str, str]]) -> None:
    assert found(check_plan(obj, None, requester="alice", by_manager=by_manager)) == expected


UPDATES = [
    (plan("Pending"), plan("Pending", approved=True, approvedBy="alice"), False, []),
    (
        plan("Pending"),
        plan("Pending", approved=True, approvedBy="bob"),
        False,
        [("spec.approvedBy", "Forbidden")],
    ),
    (
        plan("Superseded"),
        plan("Superseded", approved=True, approvedBy="alice"),
        False,
        [("spec.approved", "Forbidden")],
    ),
    (plan("Pending"), plan("Pending", planHash="p2:y"), False, [("spec.planHash", "Forbidden")]),
    (plan("Pending"), plan("Approved"), False, [(f"metadata.labels[{PHASE}]", "Forbidden")]),
    (plan("Pending"), plan("Superseded"), True, []),
    (
        plan("Approved", approved=True, approvedBy="alice"),
        plan("Approved"),
        True,
        [("spec.approved", "Forbidden")],
    ),
]


@pytest.mark.parametrize(("old", "new", "by_manager", "expected"), UPDATES)
def test_updating_plans(old: Object, new: Object, by_manager: bool, expected: list[tuple[str, str]]) -> None:
    assert found(check_plan(new, old, requester="alice", by_manager=by_manager)) == expected


def test_the_machine_delete_guard() -> None:
    machine: Object = {"metadata": {"name": "m1", "namespace": "n", "annotations": {}}}
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "TerraformMachine", "name": "m1"}
    owner: Object = {"metadata": {"name": "m1-x"}, "spec": {"infrastructureRef": reference}}
    refused = refusal(machine, [owner])
    assert refused is not None
    assert "delete the Machine m1-x instead" in refused
    going = {**owner, "metadata": {"name": "m1-x", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    other = {**owner, "spec": {"infrastructureRef": {**reference, "name": "m2"}}}
    assert refusal(machine, [going, other]) is None
    paused: Object = {"spec": {"paused": True}}
    machine["metadata"]["annotations"] = {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
    assert moving(machine, paused)
    assert not moving(machine, None)
    assert not moving(machine, {"spec": {}})
