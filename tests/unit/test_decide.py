"""The operation decision of a live object, rule by rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from captf_controllers.decide import (
    Approval,
    Decision,
    LivePlan,
    Remediation,
    RestoreTarget,
    Schedule,
    Snapshot,
    decide,
    pending_refresh_delay,
)
from captf_runtime.queue import policies

NOW = datetime(2026, 9, 25, 12, 0, tzinfo=UTC)
CREATED = NOW - timedelta(hours=1)


def snapshot(**changes: object) -> Snapshot:
    base: dict[str, object] = {
        "now": NOW,
        "uid": "uid-1",
        "created": CREATED,
        "mutable": True,
        "has_state": True,
        "state_hash": "h2:a",
        "current_hash": "h2:a",
    }
    return Snapshot(**{**base, **changes})  # type: ignore[arg-type]


RULES = [
    ("an active Job outranks all", {"job_active": True, "held": True}, None, "JobActive", 60.0),
    (
        "a restore outranks a hold and every backoff",
        {"restore": RestoreTarget(7, "set"), "held": True, "backoff": {"restore": 500.0}},
        "restore",
        "RestoreRequested",
        0.0,
    ),
    ("a held object waits and never applies", {"held": True, "has_state": False}, None, "StateHeld", 60.0),
    ("no state applies", {"has_state": False, "state_hash": ""}, "apply", "NoState", 0.0),
    ("a state without a hash applies", {"state_hash": ""}, "apply", "StateWithoutInputsHash", 0.0),
    (
        "a machine's state without a hash applies too",
        {"state_hash": "", "mutable": False},
        "apply",
        "StateWithoutInputsHash",
        0.0,
    ),
    ("changed inputs apply", {"current_hash": "h2:b"}, "apply", "InputsChanged", 0.0),
    ("a machine's inputs never change", {"current_hash": "h2:b", "mutable": False}, None, "UpToDate", 0.0),
    ("gated inputs look unchanged", {"current_hash": None}, None, "UpToDate", 0.0),
    ("a failed apply is repeated", {"last_apply_failed": True}, "apply", "LastApplyFailed", 0.0),
    (
        "a machine does not repeat through LastApplyFailed",
        {"last_apply_failed": True, "mutable": False},
        None,
        "UpToDate",
        0.0,
    ),
    (
        "drift is remediated",
        {"remediation": Remediation(enabled=True, drift_detected=True)},
        "apply",
        "DriftRemediation",
        0.0,
    ),
    (
        "not at the cap",
        {"remediation": Remediation(enabled=True, drift_detected=True, failures=3)},
        None,
        "UpToDate",
        0.0,
    ),
    (
        "a limit of 0 counts as 1",
        {"remediation": Remediation(enabled=True, drift_detected=True, failures=1, limit=0)},
        None,
        "UpToDate",
        0.0,
    ),
    (
        "an apply in backoff waits and stops the evaluation",
        {
            "current_hash": "h2:b",
            "backoff": {"apply": 42.0},
            "schedule": Schedule(refresh_after_apply=True),
        },
        None,
        "InputsChangedBackoff",
        42.0,
    ),
    (
        "the first apply backs off under its own reason",
        {"has_state": False, "state_hash": "", "backoff": {"apply": 60.0}},
        None,
        "NoStateBackoff",
        60.0,
    ),
]


@pytest.mark.parametrize(
    ("changes", "operation", "reason", "requeue"),
    [rule[1:] for rule in RULES],
    ids=[rule[0] for rule in RULES],
)
def test_rules(changes: dict[str, object], operation: str | None, reason: str, requeue: float) -> None:
    decision = decide(snapshot(**changes))
    assert (decision.operation, decision.reason, decision.requeue_after) == (operation, reason, requeue)


def plan(**changes: object) -> LivePlan:
    base: dict[str, object] = {
        "name": "c1-1",
        "reason": "Manual",
        "plan_hash": "p2:x",
        "inputs_hash": "h2:b",
        "approved": False,
    }
    return LivePlan(**{**base, **changes})  # type: ignore[arg-type]


class TestManual:
    """``applyPolicy: Manual``: every apply but the first needs an approved plan."""

    def manual(self, **changes: object) -> Decision:
        approval = Approval(policy="Manual", wanted_hash="h2:b", **changes)  # type: ignore[arg-type]
        return decide(snapshot(current_hash="h2:b", approval=approval))

    def test_the_first_apply_needs_none(self) -> None:
        approval = Approval(policy="Manual", wanted_hash="h2:b")
        decision = decide(snapshot(has_state=False, state_hash="", approval=approval))
        assert (decision.operation, decision.reason) == ("apply", "NoState")

    def test_without_a_plan_one_is_made(self) -> None:
        assert self.manual().operation == "plan"

    def test_an_unapproved_plan_waits_and_pauses_the_schedule(self) -> None:
        decision = decide(
            snapshot(
                current_hash="h2:b",
                approval=Approval(policy="Manual", wanted_hash="h2:b", plan=plan()),
                schedule=Schedule(refresh_after_apply=True),
            )
        )
        assert decision == Decision(
            reason="PlanAwaitingApproval", requeue_after=600.0, waiting_reason="PlanAwaitingApproval"
        )

    def test_an_approved_plan_applies_exactly_itself(self) -> None:
        decision = self.manual(plan=plan(approved=True))
        assert (decision.operation, decision.expect_plan, decision.plan) == ("apply", "p2:x", "c1-1")

    def test_a_plan_of_other_inputs_does_not_count(self) -> None:
        assert self.manual(plan=plan(inputs_hash="h2:old", approved=True)).operation == "plan"

    def test_an_empty_plan_applies_without_approval(self) -> None:
        decision = self.manual(empty_plan_hash="p2:empty")
        assert (decision.operation, decision.expect_plan) == ("apply", "p2:empty")


class TestGuard:
    """``Automatic``: the destructive guard waits for a person only before deletes."""

    def automatic(self, **changes: object) -> Decision:
        approval = Approval(wanted_hash="h2:b", **changes)  # type: ignore[arg-type]
        return decide(snapshot(current_hash="h2:b", approval=approval))

    def test_a_blocked_plan_waits(self) -> None:
        decision = self.automatic(plan=plan(reason="Destructive"))
        assert (decision.operation, decision.reason) == (None, "DestructivePlanBlocked")
        assert decision.requeue_after == 600.0

    def test_an_approved_destructive_plan_is_expected_exactly(self) -> None:
        decision = self.automatic(plan=plan(reason="Destructive", approved=True))
        assert (decision.operation, decision.expect_plan) == ("apply", "p2:x")

    def test_an_approved_exports_change_allows_deletes(self) -> None:
        decision = self.automatic(plan=plan(reason="ExportsChange", approved=True))
        assert (decision.operation, decision.expect_plan, decision.allow_deletes) == ("apply", None, True)

    def test_a_block_without_a_plan_is_tried_again_after_ten_minutes(self) -> None:
        early = self.automatic(blocked_hash="h2:b", blocked_at=NOW - timedelta(seconds=100))
        late = self.automatic(blocked_hash="h2:b", blocked_at=NOW - timedelta(seconds=600))
        assert (early.operation, early.requeue_after) == (None, 500.0)
        assert late.operation == "apply"

    def test_new_inputs_start_at_once(self) -> None:
        assert self.automatic(blocked_hash="h2:old", blocked_at=NOW).operation == "apply"

    def test_a_waiting_remediation_keeps_the_schedule(self) -> None:
        decision = decide(
            snapshot(
                remediation=Remediation(enabled=True, drift_detected=True),
                approval=Approval(wanted_hash="h2:a", plan=plan(reason="Destructive", inputs_hash="h2:a")),
                schedule=Schedule(refresh_after_apply=True),
            )
        )
        assert (decision.operation, decision.waiting_reason) == ("refresh", "DestructivePlanBlocked")


class TestSchedule:
    """Refresh and drift: the first that is due, else the soonest deadline."""

    def test_refresh_after_an_apply_comes_first(self) -> None:
        schedule = Schedule(refresh_after_apply=True, drift_interval=1.0)
        assert decide(snapshot(schedule=schedule)).reason == "RefreshAfterApply"

    def test_converging_replaces_pending(self) -> None:
        schedule = Schedule(converging=True, health_pending=True)
        assert decide(snapshot(schedule=schedule)).reason == "MembershipConverging"

    @pytest.mark.parametrize(
        ("count", "seconds"), [(0, 30), (1, 30), (2, 60), (3, 120), (4, 240), (5, 300), (6, 300), (999, 300)]
    )
    def test_pending_refreshes_space_out(self, count: int, seconds: float) -> None:
        assert pending_refresh_delay(count) == seconds
        schedule = Schedule(health_pending=True, pending_refreshes=count, last_refresh=NOW)
        assert decide(snapshot(schedule=schedule)).requeue_after == seconds

    def test_drift_is_due_after_interval_and_jitter(self) -> None:
        jitter = policies.jitter_ns("uid-1", 1800 * 10**9) / 1e9
        last = NOW - timedelta(seconds=1800)
        waiting = decide(snapshot(schedule=Schedule(drift_interval=1800.0, last_drift_check=last)))
        assert waiting.operation is None
        assert waiting.requeue_after == pytest.approx(jitter, abs=1.0)
        due = last - timedelta(seconds=jitter)
        decision = decide(snapshot(schedule=Schedule(drift_interval=1800.0, last_drift_check=due)))
        assert (decision.operation, decision.reason) == ("drift", "DriftDue")

    def test_the_base_is_the_last_apply_then_the_creation(self) -> None:
        applied = Schedule(drift_interval=7200.0, newest_successful_apply=NOW)
        created = Schedule(drift_interval=7200.0)
        assert decide(snapshot(schedule=applied)).requeue_after > 7199
        assert 3599 < decide(snapshot(schedule=created)).requeue_after < 3600 + 720

    def test_a_check_in_backoff_does_not_hide_the_next(self) -> None:
        schedule = Schedule(health_pending=True, drift_interval=60.0)
        decision = decide(snapshot(schedule=schedule, backoff={"refresh": 300.0}))
        assert decision.operation == "drift"

    def test_all_in_backoff_waits_for_the_earliest(self) -> None:
        schedule = Schedule(health_pending=True, drift_interval=60.0)
        decision = decide(snapshot(schedule=schedule, backoff={"refresh": 300.0, "drift": 120.0}))
        assert (decision.reason, decision.requeue_after) == ("HealthPendingBackoff", 120.0)

    def test_nothing_to_check_waits_for_events(self) -> None:
        assert decide(snapshot()) == Decision(reason="UpToDate")
