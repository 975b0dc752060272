"""Job slots."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.job_objects import job_object

from captf_controllers.api import labels
from captf_controllers.jobs.slots import JobSlots, slot_wait
from captf_runtime.testing.clock import VirtualClock


def wait(op, active=0, limit=0, cluster_active=0, cluster_limit=0, cluster_name="prod"):
    return slot_wait(
        op,
        active=active,
        limit=limit,
        cluster_active=cluster_active,
        cluster_limit=cluster_limit,
        cluster_name=cluster_name,
    )


@pytest.mark.parametrize(
    ("op", "active", "limit", "starts"),
    [
        ("apply", 199, 200, True),
        ("apply", 200, 200, False),
        ("destroy", 5, 0, True),
        ("refresh", 159, 200, True),
        ("refresh", 160, 200, False),
        ("drift", 15, 20, True),
        ("drift", 16, 20, False),
        ("plan", 19, 20, True),
        ("restore", 20, 20, False),
        ("refresh", 0, 1, True),
        ("refresh", 1, 1, False),
        ("apply", 0, 1, True),
    ],
)
def test_limits(op, active, limit, starts):
    assert (wait(op, active=active, limit=limit) is None) is starts
    assert (wait(op, cluster_active=active, cluster_limit=limit) is None) is starts


def test_a_cluster_that_is_unknown_has_no_limit():
    assert wait("apply", cluster_active=99, cluster_limit=1, cluster_name="") is None


def test_the_global_limit_is_named_first_and_no_message_holds_the_count():
    both = wait("apply", active=201, limit=200, cluster_active=21, cluster_limit=20)
    assert "--max-active-jobs" in both.message
    assert "200" in both.message
    assert "201" not in both.message
    cluster = wait("apply", cluster_active=21, cluster_limit=20)
    assert "prod" in cluster.message
    assert "20" in cluster.message
    assert "21" not in cluster.message
    background = wait("drift", active=190, limit=200)
    assert "80 %" in background.message
    assert "200" in background.message


def running(name, cluster="prod", op="apply", outcome=""):
    obj = job_object(name, op=op, outcome=outcome)
    obj["metadata"]["labels"][labels.CLUSTER_NAME] = cluster
    return obj


class TestCounting:
    @pytest.fixture
    def clock(self):
        return VirtualClock()

    @pytest.fixture
    def slots(self, clock):
        return JobSlots(clock)

    def starts(self, slots, cluster="prod", limit=0, cluster_limit=0, op="apply"):
        return slots.check(op, "ns", cluster, limit=limit, cluster_limit=cluster_limit) is None

    def test_counts_unfinished_jobs_and_those_of_a_cluster(self, slots):
        slots.job_seen(running("a"))
        slots.job_seen(running("b", cluster="other"))
        slots.job_seen(running("c", outcome="Complete"))
        assert self.starts(slots, limit=3)
        assert not self.starts(slots, limit=2)
        assert not self.starts(slots, cluster_limit=1)
        assert self.starts(slots, cluster="third", cluster_limit=1)

    def test_a_finished_or_deleted_job_frees_its_slot(self, slots):
        slots.job_seen(running("a"))
        slots.job_seen(running("b"))
        slots.job_seen(running("a", outcome="Failed"))
        slots.job_gone("ns", "b")
        assert self.starts(slots, limit=1, cluster_limit=1)

    def test_a_job_just_created_counts_before_the_watch_shows_it_and_once_after(self, slots):
        slots.reserve("ns", "a", "prod")
        assert not self.starts(slots, cluster_limit=1)
        slots.job_seen(running("a"))
        assert self.starts(slots, cluster_limit=2, limit=2)
        slots.reserve("ns", "a", "prod")
        assert self.starts(slots, cluster_limit=2, limit=2)

    def test_a_reservation_is_given_back_or_runs_out(self, slots, clock):
        slots.reserve("ns", "a", "prod")
        slots.cancel("ns", "a")
        assert self.starts(slots, limit=1)
        slots.reserve("ns", "b", "prod")
        clock.advance(61)
        assert self.starts(slots, limit=1)

    def test_active_by_kind_and_op(self, slots):
        slots.job_seen(running("a"))
        slots.job_seen(running("b", op="drift"))
        slots.job_seen(running("c", op="bogus"))
        assert slots.active() == Counter({("TerraformMachine", "apply"): 1, ("TerraformMachine", "drift"): 1})
