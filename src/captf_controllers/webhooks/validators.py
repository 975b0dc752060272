"""The validators that the webhook server calls: which rules a request meets, and the lookups of some.

Order: structural rules, immutability and requester rules, and only when none of them found anything the
lookups that leave the process. A lookup that fails refuses with code 500, never as if it were policy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from captf_controllers.api import labels
from captf_controllers.api.kinds import (
    CLUSTER,
    MACHINE,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_CLUSTER_TEMPLATE,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
    TERRAFORM_MACHINE_POOL_TEMPLATE,
    TERRAFORM_MACHINE_TEMPLATE,
    TERRAFORM_PLAN,
    Role,
)
from captf_controllers.identity.usage import find_users, users_in
from captf_controllers.webhooks import guard
from captf_controllers.webhooks.identity import check_identity, read_check_due
from captf_controllers.webhooks.paths import path_of
from captf_controllers.webhooks.plan import check_plan
from captf_controllers.webhooks.templates import check_template
from captf_controllers.webhooks.workload import check_workload
from captf_runtime.client import Client
from captf_runtime.client.errors import ApiError, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.clock import SYSTEM_CLOCK
from captf_runtime.controller import Context, ReconcileTimeout
from captf_runtime.election import Fence
from captf_runtime.log import get_logger
from captf_runtime.objects import SUBJECT_ACCESS_REVIEW, Kind, Object, labels_of, name_of, namespace_of
from captf_runtime.webhook import AdmissionRequest, AdmissionResponse, Validator, Violation

logger = get_logger(__name__)

LOOKUP_SECONDS = 8.0
"""For all that one review has to look up: the API server waits ten for the answer."""

WORKLOADS: dict[Kind, Role] = {
    TERRAFORM_CLUSTER: "cluster",
    TERRAFORM_MACHINE: "machine",
    TERRAFORM_MACHINE_POOL: "machinepool",
}
TEMPLATES: dict[Kind, Role] = {
    TERRAFORM_CLUSTER_TEMPLATE: "cluster",
    TERRAFORM_MACHINE_TEMPLATE: "machine",
    TERRAFORM_MACHINE_POOL_TEMPLATE: "machinepool",
}


class Registry(Protocol):
    """Where validators are registered: the webhook server."""

    def register(self, path: str, validator: Validator) -> None: ...


def register_all(server: Registry, client: Client, manager_username: str) -> None:
    """Register the validators of all eight kinds.

    ``manager_username`` is the manager's own user name, empty when it is unknown: then nobody is the manager.
    """
    for kind, role in WORKLOADS.items():
        server.register(path_of(kind), _workload(kind, role, client, manager_username))
    for kind, role in TEMPLATES.items():
        server.register(path_of(kind), _template(role))
    server.register(path_of(TERRAFORM_CLUSTER_IDENTITY), _identity(client))
    server.register(path_of(TERRAFORM_PLAN), _plan(manager_username))


def _workload(kind: Kind, role: Role, client: Client, manager_username: str) -> Validator:
    def validate(request: AdmissionRequest) -> AdmissionResponse:
        if request.operation == "DELETE":
            return (
                _delete_machine(request, client) if kind == TERRAFORM_MACHINE else AdmissionResponse.allow()
            )
        by_manager = bool(manager_username) and request.user.username == manager_username
        new = request.object or {}
        return _answer(request, check_workload(role, new, request.old_object, by_manager=by_manager))

    return validate


def _template(role: Role) -> Validator:
    def validate(request: AdmissionRequest) -> AdmissionResponse:
        if request.operation == "DELETE":
            return AdmissionResponse.allow()
        found, warnings = check_template(
            role, request.object or {}, request.old_object, dry_run=request.dry_run
        )
        return _answer(request, found, warnings)

    return validate


def _plan(manager_username: str) -> Validator:
    def validate(request: AdmissionRequest) -> AdmissionResponse:
        if request.operation == "DELETE":
            return AdmissionResponse.allow()
        requester = request.user.username
        if not requester:
            return AdmissionResponse.failed("the review does not say who asks")
        by_manager = bool(manager_username) and requester == manager_username
        new = request.object or {}
        found = check_plan(new, request.old_object, requester=requester, by_manager=by_manager)
        return _answer(request, found)

    return validate


def _identity(client: Client) -> Validator:
    def validate(request: AdmissionRequest) -> AdmissionResponse:
        if request.operation == "DELETE":
            return _looked_up(client, lambda bound: _delete_identity(request, bound))
        new = request.object or {}
        found = check_identity(new)
        if found or not read_check_due(new, request.old_object):
            return _answer(request, found)
        return _looked_up(client, lambda bound: _answer(request, _may_read(bound, request, new)))

    return validate


def _may_read(client: Verbs, request: AdmissionRequest, identity: Object) -> list[Violation]:
    """The requester shares a Secret, so he must be allowed to read it himself."""
    reference = identity["spec"]["secretRef"]
    user = request.user
    review: Object = {
        "apiVersion": SUBJECT_ACCESS_REVIEW.api_version,
        "kind": SUBJECT_ACCESS_REVIEW.kind,
        "spec": {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": {
                "verb": "get",
                "resource": "secrets",
                "namespace": reference["namespace"],
                "name": reference["name"],
            },
        },
    }
    answer = client.create(SUBJECT_ACCESS_REVIEW, review)
    status = answer.get("status") or {}
    if status.get("allowed") is True:
        return []
    named = f"{reference['namespace']}/{reference['name']}"
    logger.info(
        "the requester may not read the Secret of an identity",
        user=user.username,
        subject=named,
        reason=status.get("reason") or "",
    )
    message = f"user {user.username} may not read Secret {named}, so may not share it"
    return [Violation("FieldValueForbidden", "spec.secretRef", message)]


def _delete_identity(request: AdmissionRequest, client: Verbs) -> AdmissionResponse:
    """An identity in use stays: objects that use it need it for their destroy."""
    identity = request.old_object or {}
    name = request.name or name_of(identity)
    user = next(iter(users_in(find_users(client), name)), None)
    if user is not None:
        kind = user.get("kind") or "object"
        message = f"{kind} {namespace_of(user)}/{name_of(user)} uses the identity"
        return _answer(request, [Violation("FieldValueForbidden", "metadata", message)])
    mirrored = (identity.get("status") or {}).get("namespaces") or []
    if mirrored:
        message = f"its credentials are mirrored into {', '.join(mirrored)}"
        return _answer(request, [Violation("FieldValueForbidden", "status.namespaces", message)])
    return AdmissionResponse.allow()


def _delete_machine(request: AdmissionRequest, client: Client) -> AdmissionResponse:
    machine = request.old_object or {}

    def decide(client: Verbs) -> AdmissionResponse:
        if guard.announces_move(machine) and guard.moving(machine, _cluster_of(client, machine)):
            return AdmissionResponse.allow()
        machines = client.list(MACHINE, request.namespace or namespace_of(machine)).items
        refusal = guard.refusal(machine, machines)
        if refusal is None:
            return AdmissionResponse.allow()
        return _answer(request, [Violation("FieldValueForbidden", "metadata", refusal)])

    return _looked_up(client, decide)


def _cluster_of(client: Verbs, machine: Object) -> Object | None:
    name = labels_of(machine).get(labels.CLUSTER_NAME, "")
    if not name:
        return None
    try:
        return client.get(CLUSTER, name, namespace_of(machine))
    except NotFound:
        return None


def _looked_up(client: Client, answer: Callable[[Verbs], AdmissionResponse]) -> AdmissionResponse:
    """Answer with a client whose requests end before the API server gives this review up."""
    bounded = Context(
        stop=threading.Event(),
        fence=Fence.open(),
        clock=SYSTEM_CLOCK,
        logger=logger,
        timeout=LOOKUP_SECONDS,
    )
    try:
        return answer(client.bind(bounded))
    except ReconcileTimeout:
        return AdmissionResponse.failed(f"a lookup failed: no answer within {LOOKUP_SECONDS:g} seconds")
    except ApiError as error:
        return AdmissionResponse.failed(f"a lookup failed: {error.reason or error.code}")


def _answer(
    request: AdmissionRequest, found: Sequence[Violation], warnings: Sequence[str] = ()
) -> AdmissionResponse:
    if found:
        return AdmissionResponse.invalid(request, found, warnings=warnings)
    return AdmissionResponse.allow(warnings=warnings)
