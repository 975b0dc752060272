"""The part of the refresh and drift schedule that the kinds share."""

from __future__ import annotations

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.decide import Schedule
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.scope import Scope


def base_schedule(
    scope: Scope,
    config: EffectiveConfig,
    books: Books,
    *,
    refresh_after_apply: bool = False,
    converging: bool = False,
) -> Schedule:
    """The schedule of an object.

    ``refresh_after_apply`` says that the kind wants one refresh after each apply whose own reading was not
    definite; ``converging`` that a pool's membership has not settled.
    """
    apply = books.newest_success("apply")
    finished = apply.finished_at if apply is not None else None
    last_refresh = scope.status.last_refresh
    due = refresh_after_apply and finished is not None and (last_refresh is None or last_refresh < finished)
    pending = scope.provisioned and (
        scope.conditions.reason(types.INFRASTRUCTURE_HEALTHY) == reasons.INSTANCE_PENDING
    )
    return Schedule(
        refresh_after_apply=due,
        converging=converging,
        health_pending=pending or _pending_before_provisioning(scope),
        pending_refreshes=scope.status.pending_refreshes or 0,
        membership_interval=config.membership_refresh_interval,
        health_interval=config.health_check_interval if scope.provisioned else 0.0,
        drift_interval=config.drift_interval,
        last_refresh=last_refresh,
        last_drift_check=scope.status.last_drift_check,
        newest_successful_apply=finished,
    )


def _pending_before_provisioning(scope: Scope) -> bool:
    """An applied object that is not provisioned yet waits for its outputs: refresh until they come."""
    return not scope.provisioned and scope.conditions.is_true(types.STATE_READABLE)
