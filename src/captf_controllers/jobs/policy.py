"""The effective Job policy: what an object's Jobs run under once inheritance and built-ins are applied.

Pure. Nothing merged is stored anywhere: a changed default reaches existing objects with their next Job.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from captf_controllers.api.workspace import (
    DEFAULT_ACTIVE_DEADLINE_SECONDS,
    DEFAULT_JOBS_HISTORY_LIMIT,
    DEFAULT_LOCK_TIMEOUT_SECONDS,
    DEFAULT_SERVICE_ACCOUNT_NAME,
    JobPolicy,
)
from captf_runtime.objects import Object

__all__ = ["RESERVED_ENV", "EffectivePolicy", "is_reserved_env", "merge_policies", "policy_problem"]

RESERVED_ENV: Final = frozenset({"HOME", "TMPDIR", "CHECKPOINT_DISABLE"})
_RESERVED_ENV_PREFIXES: Final = ("TF_", "KUBE_", "KUBERNETES_")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policy that a Job runs under.

    Durations in whole seconds. `deadline_configured` and `lock_timeout_configured` say whether somebody set
    the value or it is the built-in one. `env` holds no reserved name; `dropped_env` names, sorted, the ones
    that a policy stored before they were refused still holds.
    """

    deadline_seconds: int
    deadline_configured: bool
    lock_timeout_seconds: int
    lock_timeout_configured: bool
    successful_limit: int
    failed_limit: int
    service_account: str
    image_pull_secrets: tuple[str, ...]
    resources: Object | None
    security_context: Object | None
    pod_security_context: Object | None
    env: tuple[Object, ...]
    dropped_env: tuple[str, ...]


def is_reserved_env(name: str) -> bool:
    """Whether an environment variable of that name is the Job's own to set."""
    return name in RESERVED_ENV or name.startswith(_RESERVED_ENV_PREFIXES)


def merge_policies(*levels: JobPolicy | None) -> EffectivePolicy:
    """Merge the policies that apply to an object, the nearest level first, and fill in the built-ins.

    A TerraformCluster has one level, its own `spec.jobs`. A machine or pool has its own, then its cluster's
    `spec.defaults.jobs`, then that cluster's `spec.jobs`. Scalars: the nearest level that sets one; a
    deadline of 0 and an empty account name count as unset, a lock timeout or history limit of 0 as set.
    `resources` and both security contexts are taken as a whole. `env` is merged by name, `imagePullSecrets`
    as a union, the nearer level's entries first.
    """
    present = [level for level in levels if level is not None]
    deadline = _first(present, lambda level: level.active_deadline_seconds or None)
    lock = _first(present, lambda level: level.lock_timeout_seconds)
    successful = _first(present, lambda level: level.successful_jobs_history_limit)
    failed = _first(present, lambda level: level.failed_jobs_history_limit)
    env = _merge_env(present)
    return EffectivePolicy(
        deadline_seconds=DEFAULT_ACTIVE_DEADLINE_SECONDS if deadline is None else deadline,
        deadline_configured=deadline is not None,
        lock_timeout_seconds=DEFAULT_LOCK_TIMEOUT_SECONDS if lock is None else lock,
        lock_timeout_configured=lock is not None,
        successful_limit=DEFAULT_JOBS_HISTORY_LIMIT if successful is None else successful,
        failed_limit=DEFAULT_JOBS_HISTORY_LIMIT if failed is None else failed,
        service_account=_first(present, lambda level: level.service_account_name or None)
        or DEFAULT_SERVICE_ACCOUNT_NAME,
        image_pull_secrets=tuple(
            dict.fromkeys(
                secret.name for level in present for secret in level.image_pull_secrets or () if secret.name
            )
        ),
        resources=copy.deepcopy(_first(present, lambda level: level.resources)),
        security_context=copy.deepcopy(_first(present, lambda level: level.security_context)),
        pod_security_context=copy.deepcopy(_first(present, lambda level: level.pod_security_context)),
        env=tuple(copy.deepcopy(entry) for name, entry in env.items() if not is_reserved_env(name)),
        dropped_env=tuple(sorted(name for name in env if is_reserved_env(name))),
    )


def policy_problem(policy: EffectivePolicy) -> str | None:
    """What is wrong with the merged policy, as a condition message; None when nothing is.

    A Job that may wait for the state lock as long as it may live can never do anything after the wait. Not
    asked for a destroy or a restore.
    """
    if policy.lock_timeout_seconds < policy.deadline_seconds:
        return None
    lock = _origin(policy.lock_timeout_configured)
    deadline = _origin(policy.deadline_configured)
    return (
        f"the effective jobs.lockTimeoutSeconds of {policy.lock_timeout_seconds} ({lock}) must be below the "
        f"effective jobs.activeDeadlineSeconds of {policy.deadline_seconds} ({deadline}): set a shorter lock "
        "timeout or a longer deadline, on the object or on the TerraformCluster that it inherits them from"
    )


def _origin(configured: bool) -> str:
    return "configured" if configured else "built-in default"


def _first(levels: Iterable[JobPolicy], read: Callable[[JobPolicy], _T | None]) -> _T | None:
    return next((value for level in levels if (value := read(level)) is not None), None)


def _merge_env(levels: Iterable[JobPolicy]) -> dict[str, Object]:
    merged: dict[str, Object] = {}
    for level in levels:
        for entry in level.env or ():
            merged.setdefault(str(entry.get("name") or ""), entry)
    merged.pop("", None)
    return merged
