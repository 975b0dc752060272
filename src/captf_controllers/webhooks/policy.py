"""The rules that the kinds share: source, Job policy, variables. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from captf_controllers.api.images import is_image_reference
from captf_controllers.api.kinds import Role
from captf_controllers.api.workspace import DEFAULT_ACTIVE_DEADLINE_SECONDS, DEFAULT_LOCK_TIMEOUT_SECONDS
from captf_controllers.inputs.variables import variable_name_problem
from captf_controllers.jobs.policy import is_reserved_env
from captf_runtime.objects import Object
from captf_runtime.webhook import Violation

MAX_VARIABLES = 256
SAFE_SELINUX_TYPES = frozenset(
    {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
)
SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    }
)
_HOLDS = "the Job's {what} holds cloud credentials"
RESERVED = "reserved are the prefixes TF_, KUBE_ and KUBERNETES_, and HOME, TMPDIR and CHECKPOINT_DISABLE"


def required(path: str, message: str) -> Violation:
    return Violation("FieldValueRequired", path, message)


def invalid(path: str, message: str) -> Violation:
    return Violation("FieldValueInvalid", path, message)


def forbidden(path: str, message: str) -> Violation:
    return Violation("FieldValueForbidden", path, message)


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. Python's own comparison takes true for 1 and false for 0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def check_source(spec: Object, path: str) -> Iterator[Violation]:
    """The module image: required, and a valid reference. Registry and content are nobody's business here."""
    image = (spec.get("source") or {}).get("image")
    if not image:
        yield required(f"{path}.source.image", "name the module image")
    elif not is_image_reference(str(image)):
        yield invalid(f"{path}.source.image", "is not a valid image reference, such as example.com/module:v1")


def check_jobs(jobs: Object | None, path: str) -> Iterator[Violation]:
    """One Job policy: security contexts, reserved environment, lock timeout against deadline."""
    if not jobs:
        return
    yield from _check_container(jobs.get("securityContext") or {}, f"{path}.securityContext")
    yield from _check_pod(jobs.get("podSecurityContext") or {}, f"{path}.podSecurityContext")
    for index, entry in enumerate(jobs.get("env") or []):
        name = str((entry or {}).get("name", ""))
        if is_reserved_env(name):
            yield forbidden(f"{path}.env[{index}].name", f"{name} is the Job's own to set; {RESERVED}")
    yield from _check_times(jobs, path)


def _check_times(jobs: Object, path: str) -> Iterator[Violation]:
    lock, deadline = jobs.get("lockTimeoutSeconds"), jobs.get("activeDeadlineSeconds") or None
    if lock is not None and deadline is not None and lock >= deadline:
        yield invalid(f"{path}.lockTimeoutSeconds", f"must be below activeDeadlineSeconds ({deadline})")
    elif lock is None and deadline is not None and deadline <= DEFAULT_LOCK_TIMEOUT_SECONDS:
        yield invalid(
            f"{path}.activeDeadlineSeconds",
            f"must be above the default lockTimeoutSeconds of {DEFAULT_LOCK_TIMEOUT_SECONDS}",
        )
    elif lock is not None and deadline is None and lock >= DEFAULT_ACTIVE_DEADLINE_SECONDS:
        yield invalid(
            f"{path}.lockTimeoutSeconds",
            f"must be below the default activeDeadlineSeconds of {DEFAULT_ACTIVE_DEADLINE_SECONDS}",
        )


def _check_container(context: Object, path: str) -> Iterator[Violation]:
    holds = _HOLDS.format(what="container")
    if context.get("privileged") is True:
        yield forbidden(f"{path}.privileged", f"{holds} and must not be privileged")
    if context.get("allowPrivilegeEscalation") is True:
        yield forbidden(f"{path}.allowPrivilegeEscalation", f"{holds} and must not escalate its privileges")
    if (context.get("capabilities") or {}).get("add"):
        yield forbidden(f"{path}.capabilities.add", f"{holds} and must not add capabilities")
    if context.get("readOnlyRootFilesystem") is False:
        yield forbidden(
            f"{path}.readOnlyRootFilesystem", f"{holds} and must not write to its root file system"
        )
    if context.get("procMount") == "Unmasked":
        yield forbidden(f"{path}.procMount", f"{holds} and must not see an unmasked /proc")
    yield from _check_both(context, path, holds)


def _check_pod(context: Object, path: str) -> Iterator[Violation]:
    holds = _HOLDS.format(what="pod")
    for index, sysctl in enumerate(context.get("sysctls") or []):
        if (sysctl or {}).get("name") not in SAFE_SYSCTLS:
            yield forbidden(f"{path}.sysctls[{index}].name", f"{holds} and may set only the safe sysctls")
    yield from _check_both(context, path, holds)


def _check_both(context: Object, path: str, holds: str) -> Iterator[Violation]:
    if context.get("runAsNonRoot") is False:
        yield forbidden(f"{path}.runAsNonRoot", f"{holds} and must not be allowed to run as root")
    if context.get("runAsUser") == 0:
        yield forbidden(f"{path}.runAsUser", f"{holds} and must not run as root")
    for profile in ("seccompProfile", "appArmorProfile"):
        if (context.get(profile) or {}).get("type") == "Unconfined":
            yield forbidden(f"{path}.{profile}.type", f"{holds} and must not run unconfined")
    selinux: dict[str, Any] = context.get("seLinuxOptions") or {}
    if selinux.get("type", "") not in SAFE_SELINUX_TYPES:
        yield forbidden(f"{path}.seLinuxOptions.type", f"{holds} and must keep a container type")
    for name in ("user", "role"):
        if selinux.get(name):
            yield forbidden(f"{path}.seLinuxOptions.{name}", f"{holds} and must not set it")
    if (context.get("windowsOptions") or {}).get("hostProcess") is True:
        yield forbidden(f"{path}.windowsOptions.hostProcess", f"{holds} and must not be a host process")


def check_variables(spec: Object, path: str, role: Role) -> Iterator[Violation]:
    """Inline variables and their sources. Messages name variables, never values."""
    variables = spec.get("variables")
    if variables is not None and not isinstance(variables, dict):
        yield invalid(f"{path}.variables", "must be a JSON object (value omitted)")
    elif variables:
        if len(variables) > MAX_VARIABLES:
            yield Violation(
                "FieldValueTooMany", f"{path}.variables", f"must have at most {MAX_VARIABLES} keys"
            )
        for name in sorted(variables):
            problem = variable_name_problem(role, name)
            if problem is not None:
                yield invalid(f"{path}.variables[{name}]", f"{name} {problem}")
    for index, source in enumerate(spec.get("variablesFrom") or []):
        named = [bool(((source or {}).get(ref) or {}).get("name")) for ref in ("configMapRef", "secretRef")]
        if sum(named) != 1:
            message = "must name exactly one of configMapRef.name and secretRef.name"
            yield invalid(f"{path}.variablesFrom[{index}]", message)
