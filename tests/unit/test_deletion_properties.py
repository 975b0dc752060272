"""The promise over every snapshot: nothing untracked, nothing destroyed unread, always a way out."""

from __future__ import annotations

import copy
import dataclasses
import string
from datetime import UTC, datetime, timedelta
from typing import Literal

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from captf_controllers import decide as live
from captf_controllers.deletion import decision
from captf_controllers.deletion.decision import AdoptRetained, Cleanup, Start, Step, Wait
from captf_controllers.deletion.facts import (
    CredentialsObstacle,
    Dependent,
    EarlyFacts,
    Facts,
    Hold,
    NoInputsObstacle,
    Obstacle,
    RefusedObstacle,
    RestoreFinding,
    RetainedFinding,
    Subject,
    TooLargeObstacle,
    WaitObstacle,
)

UID = "5f1d3c2a-0000-4000-8000-00000000000a"
RETAIN = "spec.deletionPolicy: Retain"
ABANDON = f"captf.io/abandon-infrastructure={UID}"
STEPS_TO_THE_END = 6
"""Decisions that any way out may take: dependents go, a restore ends, a backoff, a destroy, the release."""

subjects = st.sampled_from(
    [
        Subject(
            kind=kind,
            resource=kind.lower(),
            namespace="team-a",
            name=name,
            uid=UID,
            finalizer=f"{kind.lower()}.infrastructure.cluster.x-k8s.io",
        )
        for kind in ("TerraformCluster", "TerraformMachine", "TerraformMachinePool")
        for name in ("m1", "n" * 253)
    ]
)
texts = st.text(max_size=60)
names = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=20)
dependents = st.builds(Dependent, st.sampled_from(("TerraformMachine", "TerraformMachinePool")), names)
unreadable = st.builds(
    Hold,
    st.sampled_from(("StateLost", "StateCorrupt", "StateEncrypted", "StateInconsistent")),  # type: ignore[arg-type]
    texts,
)
unknown_outcome = st.builds(Hold, st.just("ApplyOutcomeUnknown"), texts, names)  # type: ignore[arg-type]
abandons = st.one_of(st.none(), st.just(UID), st.sampled_from((UID.upper(), f" {UID}", "")), texts)
restores = st.one_of(
    st.just(RestoreFinding()),
    st.builds(RestoreFinding, st.just("not-found"), texts, message=texts),  # type: ignore[arg-type]
    st.builds(RestoreFinding, st.just("consumed"), texts),  # type: ignore[arg-type]
    st.integers(1, 2**63 - 1).map(lambda serial: RestoreFinding("startable", str(serial), serial)),
)
failures = st.sampled_from(("", "DestroyFailed", "JobDeadlineExceeded", "ImagePullFailed", "ImageInvalid"))
obstacles = st.one_of(
    st.builds(
        CredentialsObstacle,
        st.sampled_from(("IdentityAllowed", "CredentialsMirrored", "RunnerRBACReady")),
        st.sampled_from(("False", "Unknown")),
        st.sampled_from(("NamespaceNotAllowed", "IdentityNotFound", "SecretNotFound", "MirrorFailed")),
        texts,
    ),
    st.builds(RefusedObstacle, texts),
    st.builds(NoInputsObstacle, st.tuples(names, names)),
    st.builds(TooLargeObstacle, texts),
    st.builds(
        WaitObstacle,
        st.sampled_from(("WaitingForJobSlot", "WaitingForRunLease", "WaitingForClusterOperation")),
        texts,
        st.floats(1, 60),
    ),
)


@st.composite
def all_facts(draw: st.DrawFn) -> Facts:
    """Every snapshot that a pass may gather: a state that reads, one that is held, or none at all."""
    early = EarlyFacts(
        subject=draw(subjects),
        destroy_succeeded=draw(st.integers(0, 9)) == 0,
        cluster_name=draw(names),
        dependents=tuple(draw(st.one_of(st.just([]), st.lists(dependents, max_size=6)))),
    )
    kind = draw(st.sampled_from(("readable", "held", "unknown", "none")))
    hold = draw(unreadable) if kind == "held" else draw(unknown_outcome) if kind == "unknown" else None
    foreign = draw(st.sampled_from(("", "", "", "another-uid")))
    failure = draw(failures)
    backoff = draw(st.one_of(st.just(0.0), st.floats(0.001, 600))) if failure else 0.0
    return Facts(
        early=early,
        policy=draw(st.sampled_from(("Destroy", "Destroy", "Retain"))),
        adopt_retained=draw(st.booleans()),
        retained=RetainedFinding(foreign_uid=foreign, own=draw(st.booleans())),
        has_state=kind == "readable",
        hold=hold,
        abandon=draw(abandons),
        restore=draw(restores),
        last_destroy_failure=failure,
        last_destroy_message=draw(texts),
        destroy_backoff=backoff,
        next_attempt=draw(st.sampled_from(("", "2026-09-25T12:01:00Z"))),
    )


def describes_resources(facts: Facts) -> bool:
    """A state may describe live resources: one that reads, one that does not, one that was lost."""
    return facts.has_state or facts.hold is not None


def all_steps(facts: Facts, obstacle: Obstacle | None) -> list[Step]:
    """The decision, and what an obstacle makes of a start."""
    step = decision.decide(facts)
    if isinstance(step, Start) and obstacle is not None:
        return [step, decision.at_obstacle(facts, step.operation, obstacle)]
    return [step]


def stopped(facts: Facts, obstacle: Obstacle | None) -> Step:
    return all_steps(facts, obstacle)[-1]


def message(facts: Facts, obstacle: Obstacle | None) -> str:
    """All that the conditions say; those of a start stand also when it stops."""
    steps = [step for step in all_steps(facts, obstacle) if isinstance(step, Wait | Start)]
    return " ".join(condition.message for step in steps for condition in step.conditions)


class TestSafety:
    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_the_finalizer_stays_while_a_state_may_describe_resources(self, facts, obstacle):
        for step in all_steps(facts, obstacle):
            if not isinstance(step, Cleanup):
                continue
            match step.mode:
                case "destroyed":
                    assert facts.early.destroy_succeeded
                case "no-state":
                    assert not describes_resources(facts)
                    assert not facts.retained.foreign_uid
                case "retained":
                    assert facts.policy == "Retain"
                case "abandoned":
                    assert facts.abandon == UID
                    assert facts.policy != "Retain"
                    assert step.cause
                case "released":
                    assert step.retaining_uid == facts.retained.foreign_uid != ""
                    assert not facts.adopt_retained

    @given(all_facts())
    def test_no_destroy_starts_on_a_state_that_does_not_read(self, facts):
        step = decision.decide(facts)
        if step == Start("destroy", getattr(step, "conditions", ())):
            assert facts.has_state
            assert facts.hold is None
            assert not facts.retained.foreign_uid
            assert facts.policy == "Destroy"
        if isinstance(step, Start) and step.operation == "restore":
            assert facts.hold is not None
            assert facts.restore.state == "startable"

    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_retain_beats_abandon_backoff_holds_and_restores(self, facts, obstacle):
        facts = dataclasses.replace(facts, policy="Retain", retained=RetainedFinding())
        assume(not facts.early.destroy_succeeded and not facts.early.dependents)
        assert stopped(facts, obstacle) == Cleanup("retained")

    @given(all_facts())
    def test_a_destroy_that_succeeded_beats_everything(self, facts):
        early = dataclasses.replace(facts.early, destroy_succeeded=True)
        assert decision.decide(dataclasses.replace(facts, early=early)) == Cleanup("destroyed")

    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_a_cluster_never_goes_before_its_machines(self, facts, obstacle):
        assume(facts.early.dependents and not facts.early.destroy_succeeded)
        step = stopped(facts, obstacle)
        assert isinstance(step, Wait)
        assert step.requeue_after == 30

    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_retained_secrets_of_another_object_are_never_run_over(self, facts, obstacle):
        facts = dataclasses.replace(facts, retained=RetainedFinding(foreign_uid="another-uid"))
        assume(not facts.early.destroy_succeeded and not facts.early.dependents)
        step = stopped(facts, obstacle)
        expected = AdoptRetained if facts.adopt_retained else Cleanup
        assert isinstance(step, expected)
        if isinstance(step, Cleanup):
            assert step.mode == "released"

    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_another_value_than_the_uid_never_abandons(self, facts, obstacle):
        assume(facts.abandon != UID)
        without = dataclasses.replace(facts, abandon=None)
        step, other = stopped(facts, obstacle), stopped(without, obstacle)
        assert not (isinstance(step, Cleanup) and step.mode == "abandoned")
        assert type(step) is type(other)

    @given(all_facts(), obstacles)
    def test_an_abandoned_destroy_could_not_have_started(self, facts, obstacle):
        """With a state that reads and no failure so far, only this very pass's obstacle makes the cause."""
        facts = dataclasses.replace(facts, last_destroy_failure="", abandon=UID)
        step = decision.decide(facts)
        if facts.has_state:
            assert not (isinstance(step, Cleanup) and step.mode == "abandoned")
        if isinstance(step, Start):
            ended = decision.at_obstacle(facts, step.operation, obstacle)
            cause = isinstance(obstacle, CredentialsObstacle | RefusedObstacle | NoInputsObstacle)
            assert isinstance(ended, Cleanup if cause else Wait)


class TestTotality:
    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_the_same_facts_give_the_same_step_and_are_left_alone(self, facts, obstacle):
        before = copy.deepcopy(facts)
        assert all_steps(facts, obstacle) == all_steps(copy.deepcopy(facts), copy.deepcopy(obstacle))
        assert facts == before

    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_a_wait_is_finite_and_never_busy(self, facts, obstacle):
        for step in all_steps(facts, obstacle):
            if isinstance(step, Wait) and step.reason != "DeletingBackoff":
                assert 1 <= step.requeue_after <= 600

    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_the_order_of_dependents_changes_nothing(self, facts, obstacle):
        early = dataclasses.replace(facts.early, dependents=facts.early.dependents[::-1])
        turned = dataclasses.replace(facts, early=early)
        assert stopped(turned, obstacle) == stopped(facts, obstacle)


class TestWaysOut:
    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_every_wait_names_its_ways_out(self, facts, obstacle):
        step = stopped(facts, obstacle)
        if not isinstance(step, Wait):
            return
        said = message(facts, obstacle)
        if step.reason == "DependentsExist":
            for kind in {dependent.kind for dependent in facts.early.dependents}:
                assert kind in said
            return
        assert RETAIN in said
        if facts.hold is not None and step.reason == "DeletionHeld":
            way = "captf.io/confirm-no-resources" if facts.hold.job else "captf.io/restore-state"
            assert way in said

    @settings(max_examples=600)
    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_a_way_out_is_named_exactly_where_it_works(self, facts, obstacle):
        step = stopped(facts, obstacle)
        if not isinstance(step, Wait) or step.reason == "DependentsExist":
            return
        said = message(facts, obstacle)
        retained = stopped(dataclasses.replace(facts, policy="Retain"), obstacle)
        assert retained == Cleanup("retained")
        abandoned = stopped(dataclasses.replace(facts, abandon=UID), obstacle)
        assert (ABANDON in said) == isinstance(abandoned, Cleanup)

    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_retain_leads_to_the_end(self, facts, obstacle):
        path = walk(facts, obstacle, "retain")
        assert isinstance(path[-1], Cleanup), path

    @given(all_facts(), st.one_of(st.none(), obstacles))
    def test_abandon_leads_to_the_end_once_a_destroy_failed_or_cannot_start(self, facts, obstacle):
        assume(not isinstance(obstacle, WaitObstacle | TooLargeObstacle))
        path = walk(facts, obstacle, "abandon")
        assert isinstance(path[-1], Cleanup), path

    @given(all_facts(), unreadable)
    def test_a_restore_leads_a_held_object_to_its_destroy(self, facts, hold):
        facts = dataclasses.replace(facts, hold=hold, has_state=False, policy="Destroy", abandon=None)
        path = walk(facts, None, "restore")
        assert path[-1] in (Cleanup("destroyed"), Cleanup("released", retaining_uid="another-uid")), path

    @given(all_facts(), unknown_outcome)
    def test_a_confirmation_ends_an_unknown_outcome(self, facts, hold):
        facts = dataclasses.replace(facts, hold=hold, has_state=False, policy="Destroy", abandon=None)
        path = walk(facts, None, "confirm")
        assert isinstance(path[-1], Cleanup), path
        assert path[-1].mode in {"no-state", "destroyed", "released"}


Way = Literal["retain", "abandon", "restore", "confirm"]


def walk(facts: Facts, obstacle: Obstacle | None, way: Way) -> list[Step]:
    """The decisions that follow one action of a user, as the pass's own effects change the facts.

    A destroy fails on the way of abandon and succeeds on the others; a wait for dependents ends because they
    are deleted; what was retained is adopted where that was asked for.
    """
    facts = _act(facts, way)
    path: list[Step] = []
    for _ in range(STEPS_TO_THE_END):
        step = stopped(facts, obstacle)
        path.append(step)
        match step:
            case Cleanup():
                return path
            case AdoptRetained():
                facts = dataclasses.replace(facts, retained=RetainedFinding())
            case Wait("DependentsExist"):
                early = dataclasses.replace(facts.early, dependents=())
                facts = dataclasses.replace(facts, early=early)
            case Wait("DeletingBackoff"):
                facts = dataclasses.replace(facts, destroy_backoff=0.0)
            case Start("restore"):
                facts = dataclasses.replace(facts, hold=None, has_state=True, restore=RestoreFinding())
            case Start("destroy") if way == "abandon":
                facts = dataclasses.replace(facts, last_destroy_failure="DestroyFailed", destroy_backoff=60.0)
            case Start("destroy"):
                early = dataclasses.replace(facts.early, destroy_succeeded=True)
                facts = dataclasses.replace(facts, early=early)
            case _:
                return path
    return path


def _act(facts: Facts, way: Way) -> Facts:
    match way:
        case "retain":
            return dataclasses.replace(facts, policy="Retain")
        case "abandon":
            return dataclasses.replace(facts, abandon=UID)
        case "restore":
            return dataclasses.replace(facts, restore=RestoreFinding("startable", "7", 7))
        case "confirm":
            return dataclasses.replace(facts, hold=None)


NOW = datetime(2026, 9, 25, 12, 0, tzinfo=UTC)
moments = st.one_of(
    st.none(), st.integers(-(10**6), 10**4).map(lambda seconds: NOW + timedelta(seconds=seconds))
)
hashes = st.sampled_from(("h2:a", "h2:b", "h2:c"))
intervals = st.sampled_from((0.0, 60.0, 300.0, 1800.0))
snapshots = st.builds(
    live.Snapshot,
    now=st.just(NOW),
    uid=st.sampled_from(("", "uid-1", UID)),
    created=moments.map(lambda moment: moment or NOW),
    mutable=st.booleans(),
    job_active=st.integers(0, 9).map(lambda number: number == 0),
    held=st.booleans(),
    has_state=st.booleans(),
    state_hash=st.one_of(st.just(""), hashes),
    current_hash=st.one_of(st.none(), hashes),
    restore=st.one_of(st.none(), st.builds(live.RestoreTarget, st.integers(1, 99), st.just("set"))),
    last_apply_failed=st.booleans(),
    backoff=st.dictionaries(st.sampled_from(("apply", "plan", "refresh", "drift")), st.floats(0, 600)),
    approval=st.builds(
        live.Approval,
        policy=st.sampled_from(("Automatic", "Manual")),
        wanted_hash=st.one_of(st.none(), hashes),
        plan=st.one_of(
            st.none(),
            st.builds(
                live.LivePlan,
                name=st.just("plan-1"),
                reason=st.sampled_from(("Manual", "Destructive", "ExportsChange")),
                plan_hash=hashes,
                inputs_hash=hashes,
                approved=st.booleans(),
            ),
        ),
        blocked_hash=st.one_of(st.none(), hashes),
        blocked_at=moments,
        empty_plan_hash=st.one_of(st.none(), hashes),
    ),
    schedule=st.builds(
        live.Schedule,
        refresh_after_apply=st.booleans(),
        converging=st.booleans(),
        health_pending=st.booleans(),
        pending_refreshes=st.integers(-1, 10**6),
        membership_interval=intervals,
        health_interval=intervals,
        drift_interval=intervals,
        last_refresh=moments,
        last_drift_check=moments,
        newest_successful_apply=moments,
    ),
    remediation=st.builds(
        live.Remediation,
        enabled=st.booleans(),
        drift_detected=st.booleans(),
        failures=st.integers(0, 5),
        limit=st.integers(0, 4),
    ),
)


class TestLiveObjects:
    @settings(max_examples=300)
    @given(snapshots)
    def test_a_live_object_is_never_destroyed_and_a_held_one_never_applied(self, snapshot):
        decided = live.decide(snapshot)
        assert decided.operation != "destroy"
        if snapshot.job_active:
            assert decided.operation is None
        elif snapshot.held:
            assert decided.operation == ("restore" if snapshot.restore else None)
            assert decided.operation or decided.requeue_after == 60

    @settings(max_examples=300)
    @given(snapshots)
    def test_a_decision_is_total_and_comes_back_in_finite_time(self, snapshot):
        decided = live.decide(snapshot)
        assert decided == live.decide(copy.deepcopy(snapshot))
        assert 0 <= decided.requeue_after < 10**7
        if decided.operation is not None:
            assert decided.requeue_after == 0
            assert snapshot.restore is not None or not snapshot.backoff.get(decided.operation)

    @settings(max_examples=300)
    @given(snapshots)
    def test_nothing_that_needs_an_approval_runs_without_it(self, snapshot):
        decided = live.decide(snapshot)
        plan = snapshot.approval.plan
        if decided.plan is not None or decided.allow_deletes:
            assert plan is not None
            assert plan.approved
            assert plan.inputs_hash == snapshot.approval.wanted_hash
        if decided.operation == "apply" and snapshot.approval.policy == "Manual" and snapshot.has_state:
            assert decided.expect_plan is not None
