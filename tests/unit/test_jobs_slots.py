"""Job slots."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.job_objects import job_object

from captf_controllers.api import labels
from captf_controllers.jobs.slots import JobOwner, JobSlots, slot_wait
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


def owner(name="web", kind="TerraformMachine", uid=None):
    return JobOwner("ns", kind, name, uid or f"uid-of-{name}")


def running(name, cluster="prod", op="apply", outcome="", of="", **more):
    """A Job of the object `of`, which is called like the Job unless told otherwise."""
    of = of or name
    obj = job_object(name, op=op, outcome=outcome, owner=of, owner_uid=f"uid-of-{of}", **more)
    obj["metadata"]["labels"][labels.CLUSTER_NAME] = cluster
    return obj


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def slots(clock):
    """Slots that know the objects a, b and c."""
    made = JobSlots(clock)
    for name in "abc":
        made.owner_seen(owner(name))
    return made


def starts(slots, cluster="prod", limit=0, cluster_limit=0, op="apply"):
    return slots.check(op, "ns", cluster, limit=limit, cluster_limit=cluster_limit) is None


def taken(slots):
    """How many slots are taken, told by the limits that let a Job start."""
    return next(count for count in range(100) if starts(slots, limit=count + 1))


class TestCounting:
    def test_counts_unfinished_jobs_and_those_of_a_cluster(self, slots):
        slots.job_seen(running("a"))
        slots.job_seen(running("b", cluster="other"))
        slots.job_seen(running("c", outcome="Complete"))
        assert starts(slots, limit=3)
        assert not starts(slots, limit=2)
        assert not starts(slots, cluster_limit=1)
        assert starts(slots, cluster="third", cluster_limit=1)

    def test_a_finished_or_deleted_job_frees_its_slot(self, slots):
        slots.job_seen(running("a"))
        slots.job_seen(running("b"))
        slots.job_seen(running("a", outcome="Failed"))
        slots.job_gone("ns", "b")
        assert starts(slots, limit=1, cluster_limit=1)

    def test_a_job_just_created_counts_before_the_watch_shows_it_and_once_after(self, slots):
        slots.reserve("ns", "a", "prod")
        assert not starts(slots, cluster_limit=1)
        slots.job_seen(running("a"))
        assert starts(slots, cluster_limit=2, limit=2)
        slots.reserve("ns", "a", "prod")
        assert starts(slots, cluster_limit=2, limit=2)

    def test_a_reservation_is_given_back_or_runs_out(self, slots, clock):
        slots.reserve("ns", "a", "prod")
        slots.cancel("ns", "a")
        assert starts(slots, limit=1)
        slots.reserve("ns", "b", "prod")
        clock.advance(61)
        assert starts(slots, limit=1)

    def test_active_by_kind_and_op(self, slots):
        slots.job_seen(running("a"))
        slots.job_seen(running("b", op="drift"))
        slots.job_seen(running("c", op="bogus"))
        slots.job_seen(running("forged"))
        assert slots.active() == Counter({("TerraformMachine", "apply"): 1, ("TerraformMachine", "drift"): 1})


def forged_group(job):
    job["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    return job


def forged_kind(job):
    job["metadata"]["ownerReferences"][0]["kind"] = "TerraformClusterTemplate"
    return job


def not_the_controller(job):
    del job["metadata"]["ownerReferences"][0]["controller"]
    return job


def without_uid(job):
    job["metadata"]["ownerReferences"][0]["uid"] = ""
    return job


def without_owner(job):
    del job["metadata"]["ownerReferences"]
    return job


class TestForgedJobs:
    """Whoever may create Jobs in a namespace may label them as CAPTF's; that takes no slot."""

    @pytest.mark.parametrize(
        "forged",
        [
            without_owner(running("x", of="a")),
            not_the_controller(running("x", of="a")),
            forged_group(running("x", of="a")),
            forged_kind(running("x", of="a")),
            without_uid(running("x", of="a")),
            running("x", of="no-such-object"),
            running("x", of="a", kind="TerraformCluster"),
            running("x", of="a", namespace="elsewhere"),
            job_object("x", owner="a", owner_uid="uid-of-an-earlier-a"),
        ],
        ids=[
            "no owner",
            "no controller",
            "group",
            "kind",
            "no uid",
            "nobody",
            "another kind",
            "another namespace",
            "an earlier object",
        ],
    )
    def test_takes_no_slot(self, slots, forged):
        slots.job_seen(forged)
        assert taken(slots) == 0
        assert slots.active() == Counter()
        slots.job_gone(forged["metadata"]["namespace"], "x")
        assert taken(slots) == 0

    def test_thousands_cost_one_slot_when_they_name_an_object_that_is_there(self, slots):
        for index in range(5000):
            slots.job_seen(running(f"forged-{index}", of="a"))
            slots.job_seen(running(f"stray-{index}", of="nobody"))
        assert taken(slots) == 1
        assert starts(slots, cluster_limit=2)
        slots.job_seen(running("b"))
        assert taken(slots) == 2
        for index in range(5000):
            slots.job_gone("ns", f"forged-{index}")
        assert taken(slots) == 1

    def test_the_informers_may_tell_in_any_order(self, clock):
        slots = JobSlots(clock)
        slots.job_seen(running("b"))
        slots.job_seen(running("a"))
        slots.job_seen(running("a", outcome="Complete"))
        assert taken(slots) == 0
        for name in "ab":
            slots.owner_seen(owner(name))
        assert taken(slots) == 1

    def test_a_job_keeps_its_slot_when_its_object_goes_first(self, slots):
        slots.job_seen(running("a"))
        slots.owner_seen(owner("a"))  # an update, such as the deletion timestamp
        slots.owner_gone("ns", "TerraformMachine", "a")
        assert taken(slots) == 1
        slots.job_seen(running("a"))
        slots.job_seen(without_owner(running("a")))
        assert taken(slots) == 1
        slots.job_seen(running("late", of="a"))
        slots.job_seen(running("a", outcome="Complete"))
        assert taken(slots) == 0, "a Job that appears when its object is gone takes none"

    def test_the_next_object_of_a_name_has_a_slot_of_its_own(self, slots):
        slots.job_seen(running("a"))
        slots.owner_gone("ns", "TerraformMachine", "a")
        slots.owner_seen(owner("a", uid="uid-of-another-a"))
        slots.job_seen(job_object("second", owner="a", owner_uid="uid-of-another-a"))
        assert taken(slots) == 2

    def test_another_job_of_the_name_inherits_no_slot(self, slots):
        slots.job_seen(running("a"))
        slots.job_seen(without_owner(running("a", uid="another")))
        assert taken(slots) == 0

    def test_what_this_process_created_counts_although_its_object_is_not_seen(self, clock):
        slots = JobSlots(clock)
        slots.reserve("ns", "a", "prod")
        slots.job_seen(running("a"))
        assert taken(slots) == 1
        clock.advance(120)
        assert taken(slots) == 1
