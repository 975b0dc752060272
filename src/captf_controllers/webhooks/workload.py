"""The rules of TerraformCluster, TerraformMachine and TerraformMachinePool. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from captf_controllers.api.kinds import Role
from captf_controllers.webhooks import policy
from captf_controllers.webhooks.policy import forbidden, invalid, required
from captf_runtime.objects import Object, is_deleting
from captf_runtime.webhook import Violation

IMMUTABLE_OF_MACHINE = ("source", "identityRef", "variables", "variablesFrom")


def check_workload(role: Role, new: Object, old: Object | None, *, by_manager: bool) -> list[Violation]:
    """Every violation of a create (``old`` None) or an update.

    What an object was stored with never blocks it: an unchanged spec and a deleting object skip the rules
    about content, so that finalizers and annotations can always be written.
    """
    spec, stored = _spec(new), _spec(old) if old is not None else None
    found: list[Violation] = []
    if stored is None or (not policy.same_json(stored, spec) and not is_deleting(new)):
        found += policy.check_source(spec, "spec")
        found += _check_policies(role, spec, stored)
        found += policy.check_variables(spec, "spec", role)
        if role == "cluster":
            found += _check_cluster(spec)
    if role == "cluster":
        found += _check_endpoint(spec, stored)
    if role == "machine" and stored is not None:
        found += _check_machine(spec, stored, by_manager=by_manager)
    return found


def _check_policies(role: Role, spec: Object, stored: Object | None) -> Iterator[Violation]:
    before = stored or {}
    if spec.get("jobs") != before.get("jobs"):
        yield from policy.check_jobs(spec.get("jobs"), "spec.jobs")
    if role != "cluster":
        return
    jobs = (spec.get("defaults") or {}).get("jobs")
    if jobs != (before.get("defaults") or {}).get("jobs"):
        yield from policy.check_jobs(jobs, "spec.defaults.jobs")


def _check_cluster(spec: Object) -> Iterator[Violation]:
    if not (spec.get("identityRef") or {}).get("name"):
        yield required(
            "spec.identityRef",
            "set spec.identityRef: spec.defaults.identityRef applies to machines and pools only",
        )


def _check_endpoint(spec: Object, stored: Object | None) -> Iterator[Violation]:
    path = "spec.controlPlaneEndpoint"
    now = spec.get("controlPlaneEndpoint") or {}
    before = (stored or {}).get("controlPlaneEndpoint") or {}
    if _complete(before):
        if now != before:
            yield forbidden(path, "is immutable once it has a host and a port")
    elif now != before and bool(now.get("host")) != bool(now.get("port")):
        yield invalid(path, "needs both a host and a port, or neither")


def _check_machine(spec: Object, stored: Object, *, by_manager: bool) -> Iterator[Violation]:
    before, now = stored.get("providerID") or "", spec.get("providerID") or ""
    if before and now != before:
        yield forbidden("spec.providerID", "can only be set once, from empty to non-empty")
    elif not before and now and not by_manager:
        yield forbidden(
            "spec.providerID", "only the provider's controller may set it on an existing TerraformMachine"
        )
    for name in IMMUTABLE_OF_MACHINE:
        if not policy.same_json(spec.get(name), stored.get(name)):
            yield forbidden(
                f"spec.{name}",
                f"TerraformMachine spec.{name} is immutable; create a new one instead, through a new template",
            )


def _complete(endpoint: Object) -> bool:
    return bool(endpoint.get("host")) and bool(endpoint.get("port"))


def _spec(obj: Object | None) -> Object:
    spec = (obj or {}).get("spec")
    return spec if isinstance(spec, dict) else {}
