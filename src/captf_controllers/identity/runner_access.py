"""The account that Jobs run as, and its binding to the ClusterRole `captf-runner` in the namespace.

The managed label on the binding says who may edit it; the label `captf.io/runner=true` on a ServiceAccount is
that account's consent to be bound. Subjects that have neither reason to be there are dropped whenever the
binding is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from captf_controllers.api import labels, names
from captf_controllers.api.workspace import DEFAULT_SERVICE_ACCOUNT_NAME
from captf_runtime.client import AlreadyExists, Conflict, NotFound, retry_on_conflict
from captf_runtime.client.deletes import delete_as_read
from captf_runtime.client.verbs import Verbs
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.objects import (
    CLUSTER_ROLE,
    JOB,
    POD,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Object,
    labels_of,
)

__all__ = [
    "BINDING",
    "ForeignBinding",
    "NotOptedIn",
    "accounts_of_runs",
    "ensure_runner_access",
    "subjects_after",
]

BINDING: Final = "captf-runner"
"""Name of the RoleBinding, of the ClusterRole that it refers to, and of the default account."""

_MANAGED: Final = f"{labels.MANAGED}={labels.TRUE}"
_CREATE_TRIES: Final = 5


class ForeignBinding(Exception):
    """A RoleBinding of the name exists that CAPTF did not make, and so never touches."""


@dataclass(frozen=True, slots=True)
class NotOptedIn:
    """The account that the policy names may not be used. `message` is the condition's."""

    message: str


def ensure_runner_access(
    client: Verbs,
    namespace: str,
    account: str,
    *,
    job_running: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> NotOptedIn | None:
    """Make sure that Jobs of the namespace can run as the account; None when they can.

    Args:
        account: effective name; "" or `captf-runner` is the default account, which is created when missing.
            Any other must exist and bear the label; it is never created or labelled.
        job_running: whether a Job of the object runs, from which nothing may be taken away.

    Raises:
        ForeignBinding: the RoleBinding is not managed by CAPTF.
        ApiError: a request failed; a conflict only after a few tries.
    """
    account = account or DEFAULT_SERVICE_ACCOUNT_NAME
    if account == DEFAULT_SERVICE_ACCOUNT_NAME:
        _ensure_default_account(client, namespace)
    elif not _opted_in(client, namespace, account):
        if not job_running and account not in accounts_of_runs(client, namespace):
            retry_on_conflict(lambda: _unbind(client, namespace, account), clock=clock)
        return NotOptedIn(
            f"ServiceAccount {namespace}/{account} does not exist or lacks the label {labels.RUNNER}=true"
        )
    retry_on_conflict(lambda: _bind(client, namespace, account, job_running), clock=clock)
    return None


def subjects_after(
    present: Sequence[Any],
    namespace: str,
    account: str,
    may_stay: Callable[[str], bool],
) -> list[Object]:
    """The subjects of the binding with the account among them. Pure.

    ServiceAccounts of the namespace stay, in order and once each, while `may_stay` says so; users, groups and
    other namespaces' accounts do not. `account` is appended when it is absent; "" appends nothing.
    """
    kept: list[str] = []
    for subject in present:
        name = _account_of(subject, namespace)
        if name and name not in kept and (name == account or may_stay(name)):
            kept.append(name)
    if account and account not in kept:
        kept.append(account)
    return [{"kind": SERVICE_ACCOUNT.kind, "name": name, "namespace": namespace} for name in kept]


def accounts_of_runs(client: Verbs, namespace: str) -> set[str]:
    """Accounts as which a managed Job or pod of the namespace runs now: a failed Job's pod may still write.

    Raises:
        ApiError: a list failed.
    """
    found: set[str] = set()
    for job in client.list(JOB, namespace, label_selector=_MANAGED):
        if not _is_finished(job):
            found.add(_account_of_pod(((job.get("spec") or {}).get("template")) or {}))
    for pod in client.list(POD, namespace, label_selector=_MANAGED):
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            found.add(_account_of_pod(pod))
    found.discard("")
    return found


def _is_finished(job: Object) -> bool:
    return any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in (job.get("status") or {}).get("conditions") or ()
    )


def _account_of_pod(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("serviceAccountName") or "")


def _ensure_default_account(client: Verbs, namespace: str) -> None:
    try:
        # One that exists is used as it is.
        client.get(SERVICE_ACCOUNT, DEFAULT_SERVICE_ACCOUNT_NAME, namespace, metadata_only=True)
    except NotFound:
        account: Object = {
            "apiVersion": SERVICE_ACCOUNT.api_version,
            "kind": SERVICE_ACCOUNT.kind,
            "metadata": {
                "name": DEFAULT_SERVICE_ACCOUNT_NAME,
                "namespace": namespace,
                "labels": {labels.MANAGED: labels.TRUE},
            },
        }
        try:
            client.create(SERVICE_ACCOUNT, account, namespace)
        except AlreadyExists:
            return


def _opted_in(client: Verbs, namespace: str, account: str) -> bool:
    if not names.may_name_object(account):
        return False
    try:
        found = client.get(SERVICE_ACCOUNT, account, namespace, metadata_only=True)
    except NotFound:
        return False
    return labels_of(found).get(labels.RUNNER) == labels.TRUE


def _bind(client: Verbs, namespace: str, account: str, job_running: bool) -> None:
    def may_stay(name: str) -> bool:
        if job_running or name == DEFAULT_SERVICE_ACCOUNT_NAME:
            return True
        return _opted_in(client, namespace, name)

    for _ in range(_CREATE_TRIES):
        try:
            binding = client.get(ROLE_BINDING, BINDING, namespace)
        except NotFound:
            fresh = _binding(namespace, subjects_after((), namespace, account, may_stay))
            try:
                client.create(ROLE_BINDING, fresh, namespace)
            except AlreadyExists:
                # Several objects use the namespace for the first time at once.
                continue
            return
        _require_managed(binding, namespace)
        present = binding.get("subjects") or []
        wanted = subjects_after(present, namespace, account, may_stay)
        if binding.get("roleRef") != _role_reference():
            try:
                # The reference to a role is immutable.
                delete_binding(client, namespace, binding)
                client.create(ROLE_BINDING, _binding(namespace, wanted), namespace)
            except (NotFound, Conflict, AlreadyExists):
                continue
            return
        if wanted != [_plain_subject(subject) for subject in present]:
            client.update(ROLE_BINDING, {**binding, "subjects": wanted})
        return
    raise Conflict(f"RoleBinding {namespace}/{BINDING} is created and deleted again and again")


def _unbind(client: Verbs, namespace: str, account: str) -> None:
    """Take an account that did not opt in off the managed binding; the last one takes the binding with it."""
    try:
        binding = client.get(ROLE_BINDING, BINDING, namespace)
        if labels_of(binding).get(labels.MANAGED) != labels.TRUE:
            return
        present = binding.get("subjects") or []
        left = [subject for subject in present if _account_of(subject, namespace) != account]
        if len(left) == len(present):
            return
        if left:
            client.update(ROLE_BINDING, {**binding, "subjects": left})
            return
    except NotFound:
        return
    try:
        delete_binding(client, namespace, binding)
    except (NotFound, Conflict):
        # Somebody was bound meanwhile; the next pass drops the subject from what is there then.
        return


def delete_binding(client: Verbs, namespace: str, binding: Object) -> None:
    """Delete the binding as it was read.

    Raises:
        NotFound, Conflict: it is gone or was changed meanwhile.
    """
    delete_as_read(client, ROLE_BINDING, binding, namespace)


def _require_managed(binding: Object, namespace: str) -> None:
    if labels_of(binding).get(labels.MANAGED) != labels.TRUE:
        raise ForeignBinding(
            f"RoleBinding {namespace}/{BINDING} exists without the label {labels.MANAGED}=true and is never "
            "changed: remove or rename it, or label it"
        )


def _binding(namespace: str, subjects: list[Object]) -> Object:
    return {
        "apiVersion": ROLE_BINDING.api_version,
        "kind": ROLE_BINDING.kind,
        "metadata": {"name": BINDING, "namespace": namespace, "labels": {labels.MANAGED: labels.TRUE}},
        "roleRef": _role_reference(),
        "subjects": subjects,
    }


def _role_reference() -> Object:
    return {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": BINDING}


def _account_of(subject: Any, namespace: str) -> str:
    if not isinstance(subject, dict) or subject.get("kind") != SERVICE_ACCOUNT.kind:
        return ""
    # The API server fills in "" as the group of a ServiceAccount; any other names something else.
    if subject.get("apiGroup") or subject.get("namespace") != namespace:
        return ""
    return str(subject.get("name") or "")


def _plain_subject(subject: Any) -> Any:
    if not isinstance(subject, dict):
        return subject
    return {key: value for key, value in subject.items() if not (key == "apiGroup" and value == "")}
