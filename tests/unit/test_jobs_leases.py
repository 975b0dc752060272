"""Leases and the operation gate."""

from __future__ import annotations

import pytest
from tests.unit.job_objects import NOON, job, job_object, pod, pod_object
from tests.unit.memory_api import MemoryApi

from captf_controllers.api import annotations, labels, names
from captf_controllers.jobs.launch import Adopted, Created, Deferred, LaunchRequest, launch
from captf_controllers.jobs.lease_memory import LeaseMemory
from captf_controllers.jobs.leases import (
    Acquired,
    LeaseOwner,
    LeaseRequest,
    Wait,
    acquire_leases,
    delete_leases,
    give_back_if_no_job,
    is_free,
    live_run_lease,
    release,
    release_finished,
)
from captf_controllers.jobs.outcomes import classify
from captf_runtime.client import Conflict, Forbidden, InternalError, NotFound, RequestTimeout
from captf_runtime.objects import JOB, LEASE, POD
from captf_runtime.testing.clock import VirtualClock

CLUSTER = LeaseOwner("team-a", "TerraformCluster", "prod", "prod")
MACHINE = LeaseOwner("team-a", "TerraformMachine", "web", "prod")
OTHER_MACHINE = LeaseOwner("team-a", "TerraformMachine", "db", "prod")
POOL = LeaseOwner("team-a", "TerraformMachinePool", "pool", "prod")


@pytest.fixture
def clock():
    return VirtualClock(NOON)


@pytest.fixture
def api(clock):
    return MemoryApi(clock)


def request(owner=MACHINE, op="apply", job_name="job-1", **more):
    return LeaseRequest(owner, op, job_name, 3600, **more)


def lease_of(api, owner, which="run"):
    return api.find(LEASE, owner.run_lease if which == "run" else owner.write_lease, owner.namespace)


def holder(api, owner, which="run"):
    lease = lease_of(api, owner, which)
    return lease["spec"]["holderIdentity"] if lease else None


def put_job(api, name, owner=MACHINE, outcome="", uid=""):
    obj = job_object(
        name, outcome=outcome, namespace=owner.namespace, kind=owner.kind, owner=owner.name, uid=uid
    )
    return api.put(JOB, obj)


def put_pod(api, job_name, phase="Running", suffix="x7k2p"):
    obj = pod_object(job_name, phase=phase, suffix=suffix)
    obj["metadata"]["namespace"] = "team-a"
    return api.put(POD, obj)


def test_names_of_the_leases():
    assert CLUSTER.write_lease == "captf-cluster-687e6377eb6e7c06"
    assert MACHINE.run_lease.startswith("captf-run-")
    assert MACHINE.run_lease.endswith("-m")


def test_a_lease_says_who_what_when_and_for_how_long_at_most(api, clock):
    acquire_leases(api, request(), clock)
    lease = lease_of(api, MACHINE)
    assert lease["metadata"]["labels"] == {
        labels.LEASE: "run",
        labels.MANAGED: "true",
        labels.OWNER_KIND: "TerraformMachine",
        labels.OWNER_NAME: "web",
        labels.CLUSTER_NAME: "prod",
    }
    assert lease["metadata"]["annotations"] == {
        annotations.LEASE_OP: "apply",
        annotations.LEASE_OWNER: "web",
        annotations.LEASE_ACQUIRED_AT: "2026-09-25T12:00:00.000000Z",
    }
    assert lease["spec"] == {
        "holderIdentity": "job-1",
        "acquireTime": "2026-09-25T12:00:00.000000Z",
        "leaseDurationSeconds": 4500,
    }
    assert "ownerReferences" not in lease["metadata"]


class TestFree:
    def free(self, api, clock):
        return is_free(api, lease_of(api, MACHINE), clock.now())

    @pytest.fixture(autouse=True)
    def taken(self, api, clock):
        acquire_leases(api, request(), clock)

    def test_an_absent_job_holds_it_for_the_grace(self, api, clock):
        clock.advance(60)
        assert not self.free(api, clock)
        clock.advance(1)
        assert self.free(api, clock)

    def test_a_running_job_holds_it_beyond_the_grace(self, api, clock):
        put_job(api, "job-1")
        clock.advance(4000)
        assert not self.free(api, clock)

    def test_nothing_holds_it_beyond_the_backstop(self, api, clock):
        put_job(api, "job-1")
        put_pod(api, "job-1")
        clock.advance(4500)
        assert not self.free(api, clock)
        clock.advance(1)
        assert self.free(api, clock)

    @pytest.mark.parametrize("outcome", ["Complete", "Failed"])
    def test_a_finished_job_frees_it_at_once(self, api, clock, outcome):
        put_job(api, "job-1", outcome=outcome)
        assert self.free(api, clock)

    @pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
    def test_a_pod_that_has_not_ended_holds_it_after_its_job(self, api, clock, phase):
        put_job(api, "job-1", outcome="Failed")
        put_pod(api, "job-1", phase)
        assert not self.free(api, clock)

    def test_so_does_the_pod_of_a_job_that_is_gone(self, api, clock):
        put_pod(api, "job-1")
        clock.advance(61)
        assert not self.free(api, clock)
        put_pod(api, "job-1", "Failed")
        assert self.free(api, clock)

    def test_pods_are_found_by_the_label_that_every_kubernetes_sets(self, api, clock):
        put_job(api, "job-1", outcome="Failed")
        stored = put_pod(api, "job-1")
        assert stored["metadata"]["labels"] == {"job-name": "job-1"}
        assert not self.free(api, clock)

    def test_a_failed_read_is_never_free(self, api, clock):
        put_job(api, "job-1", outcome="Failed")
        lease = lease_of(api, MACHINE)

        def fail(verb, kind, name):
            if kind == POD:
                raise InternalError("boom", code=500)

        api.before = fail
        with pytest.raises(InternalError):
            is_free(api, lease, clock.now())

    def test_no_holder_is_free_without_a_read(self, api, clock):
        lease = lease_of(api, MACHINE)
        lease["spec"]["holderIdentity"] = ""
        api.requests.clear()
        assert is_free(api, lease, clock.now())
        assert api.requests == []

    def test_age_falls_back_to_acquire_time_and_creation(self, api, clock):
        lease = lease_of(api, MACHINE)
        lease["metadata"]["annotations"].clear()
        clock.advance(61)
        assert is_free(api, lease, clock.now())
        lease["spec"].pop("acquireTime")
        assert is_free(api, lease, clock.now())
        lease["spec"].pop("leaseDurationSeconds")
        put_job(api, "job-1")
        clock.advance(4400)
        assert not is_free(api, lease, clock.now())
        clock.advance(100)
        assert is_free(api, lease, clock.now())


class TestTakenInTheFuture:
    """By a machine whose clock was ahead, or by hand: the lease is as old as it was seen unchanged."""

    @pytest.fixture(autouse=True)
    def taken(self, api, clock):
        self.api, self.clock, self.memory = api, clock, LeaseMemory()
        acquire_leases(api, request(job_name="job-0"), clock)
        clock.advance(3600)
        self.rewrite()

    def rewrite(self):
        """Job 1 is about to be created under the lease, which was there before."""
        lease = lease_of(self.api, MACHINE)
        ahead = "2027-09-25T12:00:00.000000Z"
        lease["metadata"]["annotations"][annotations.LEASE_ACQUIRED_AT] = ahead
        lease["spec"] |= {"acquireTime": ahead, "holderIdentity": "job-1"}
        self.api.put(LEASE, lease)

    def held(self):
        return live_run_lease(self.api, MACHINE, self.clock.now(), self.memory) is not None

    def test_an_absent_job_holds_it_for_the_grace_from_when_it_was_seen(self):
        self.clock.advance(600)
        assert self.held()
        self.clock.advance(60)
        assert self.held()
        self.clock.advance(1)
        assert not self.held()

    def test_nothing_holds_it_beyond_the_backstop(self):
        put_job(self.api, "job-1")
        assert self.held()
        self.clock.advance(4500)
        assert self.held()
        self.clock.advance(1)
        assert not self.held()

    def test_a_write_begins_it_anew(self):
        assert self.held()
        self.clock.advance(50)
        self.rewrite()
        self.clock.advance(50)
        assert self.held()
        self.clock.advance(61)
        assert not self.held()

    def test_who_remembers_nothing_finds_it_held(self):
        self.clock.advance(100_000)
        assert live_run_lease(self.api, MACHINE, self.clock.now()) is not None

    def test_it_is_taken_over_and_then_tells_the_time(self):
        assert isinstance(
            acquire_leases(self.api, request(job_name="job-2", memory=self.memory), self.clock), Wait
        )
        self.clock.advance(61)
        acquired = acquire_leases(self.api, request(job_name="job-2", memory=self.memory), self.clock)
        assert isinstance(acquired, Acquired)
        assert acquired.took_over_from == ("job-1",)
        self.clock.advance(61)
        assert live_run_lease(self.api, MACHINE, self.clock.now()) is None

    def test_the_write_lease_of_a_cluster_is_no_different(self):
        acquire_leases(self.api, request(CLUSTER, job_name="job-3"), self.clock)
        lease = lease_of(self.api, CLUSTER, "cluster")
        lease["metadata"]["annotations"][annotations.LEASE_ACQUIRED_AT] = "2027-09-25T12:00:00Z"
        self.api.put(LEASE, lease)
        mine = request(OTHER_MACHINE, job_name="job-4", memory=self.memory)
        assert isinstance(acquire_leases(self.api, mine, self.clock), Wait)
        self.clock.advance(61)
        assert isinstance(acquire_leases(self.api, mine, self.clock), Acquired)


class TestAcquire:
    def test_mine_again_is_refreshed(self, api, clock):
        acquire_leases(api, request(), clock)
        clock.advance(40)
        acquired = acquire_leases(api, request(), clock)
        assert isinstance(acquired, Acquired)
        assert acquired.took_over_from == ()
        clock.advance(40)
        assert live_run_lease(api, MACHINE, clock.now()) is not None

    def test_held_by_another_names_the_holder(self, api, clock):
        acquire_leases(api, request(job_name="job-1"), clock)
        wait = acquire_leases(api, request(job_name="job-2"), clock)
        assert isinstance(wait, Wait)
        assert (wait.reason, wait.holder) == ("WaitingForRunLease", "job-1")
        assert "job-1" in wait.message
        assert holder(api, MACHINE) == "job-1"

    def test_a_free_one_is_taken_over_and_the_previous_holder_reported(self, api, clock):
        acquire_leases(api, request(job_name="job-1"), clock)
        put_job(api, "job-1", outcome="Failed")
        acquired = acquire_leases(api, request(job_name="job-2"), clock)
        assert isinstance(acquired, Acquired)
        assert acquired.took_over_from == ("job-1",)
        assert holder(api, MACHINE) == "job-2"

    def test_a_lost_race_names_nobody(self, api, clock):
        acquire_leases(api, request(job_name="job-1"), clock)
        clock.advance(61)

        def race(verb, kind, name):
            if verb == "update":
                raise Conflict("the object has been modified", code=409)

        api.before = race
        wait = acquire_leases(api, request(job_name="job-2"), clock)
        assert (wait.reason, wait.holder) == ("WaitingForRunLease", "")
        assert "another manager" in wait.message

    def test_released_between_create_and_get_names_nobody(self, api, clock):
        acquire_leases(api, request(job_name="job-1"), clock)

        def vanish(verb, kind, name):
            if verb == "get" and kind == LEASE:
                api.objects.clear()

        api.before = vanish
        wait = acquire_leases(api, request(job_name="job-2"), clock)
        assert (wait.reason, wait.holder) == ("WaitingForRunLease", "")


class TestGate:
    @pytest.mark.parametrize("op", ["refresh", "drift", "plan"])
    def test_what_changes_nothing_is_not_gated(self, api, clock, op):
        acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
        assert isinstance(acquire_leases(api, request(MACHINE, op, "job-1"), clock), Acquired)
        assert acquire_leases(api, request(OTHER_MACHINE, "apply", "job-2", operation_gate=False), clock)

    @pytest.mark.parametrize("owner", [MACHINE, POOL])
    def test_a_machine_waits_for_its_cluster_and_gives_its_lease_back(self, api, clock, owner):
        acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
        wait = acquire_leases(api, request(owner, job_name="job-1"), clock)
        assert (wait.reason, wait.holder) == ("WaitingForClusterOperation", "cluster-job")
        assert holder(api, owner) is None

    def test_a_cluster_waits_for_machines_and_keeps_both_leases(self, api, clock):
        acquire_leases(api, request(MACHINE, job_name="job-m"), clock)
        acquire_leases(api, request(POOL, "destroy", "job-p"), clock)
        wait = acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
        assert wait.reason == "WaitingForMachineOperations"
        assert "2 " in wait.message
        assert "job-m, job-p" in wait.message
        assert holder(api, CLUSTER) == holder(api, CLUSTER, "cluster") == "cluster-job"
        queued = acquire_leases(api, request(OTHER_MACHINE, job_name="job-new"), clock)
        assert queued.reason == "WaitingForClusterOperation"

    def test_at_most_five_jobs_are_named(self, api, clock):
        for i in range(7):
            acquire_leases(
                api,
                request(LeaseOwner("team-a", "TerraformMachine", f"m{i}", "prod"), job_name=f"j{i}"),
                clock,
            )
        wait = acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
        assert "7 " in wait.message
        assert "j0, j1, j2, j3, j4" in wait.message
        assert "j5" not in wait.message

    def test_a_waiting_cluster_refreshes_its_leases(self, api, clock):
        acquire_leases(api, request(MACHINE, job_name="job-m"), clock)
        put_job(api, "job-m")
        for _ in range(5):
            acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
            clock.advance(30)
        assert acquire_leases(api, request(OTHER_MACHINE, job_name="new"), clock).reason == (
            "WaitingForClusterOperation"
        )
        put_job(api, "job-m", outcome="Complete")
        assert isinstance(acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock), Acquired)

    def test_refreshes_and_other_clusters_do_not_hold_a_cluster_up(self, api, clock):
        acquire_leases(api, request(MACHINE, "refresh", "job-m"), clock)
        elsewhere = LeaseOwner("team-a", "TerraformMachine", "x", "staging")
        acquire_leases(api, request(elsewhere, "apply", "job-x"), clock)
        assert isinstance(acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock), Acquired)

    def test_without_a_cluster_name_there_is_no_gate(self, api, clock):
        alone = LeaseOwner("team-a", "TerraformCluster", "prod", "")
        assert isinstance(acquire_leases(api, request(alone), clock), Acquired)
        assert len(api.all(LEASE)) == 1

    def test_a_write_lease_held_by_another_gives_the_run_lease_back(self, api, clock):
        twin = LeaseOwner("team-a", "TerraformCluster", "twin", "prod")
        acquire_leases(api, request(twin, job_name="twin-job"), clock)
        wait = acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
        assert (wait.reason, wait.holder) == ("WaitingForRunLease", "twin-job")
        assert holder(api, CLUSTER) is None

    @pytest.mark.parametrize("owner", [CLUSTER, MACHINE])
    def test_an_error_in_the_gate_gives_everything_back(self, api, clock, owner):
        def fail(verb, kind, name):
            if (verb, kind) == ("list", LEASE) or (verb, name) == ("get", owner.write_lease):
                raise InternalError("boom", code=500)

        api.before = fail
        with pytest.raises(InternalError):
            acquire_leases(api, request(owner), clock)
        api.before = lambda *_: None
        assert holder(api, owner) is None

    def test_a_leftover_write_lease_is_ignored_with_the_gate_off(self, api, clock):
        acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
        assert isinstance(acquire_leases(api, request(MACHINE, operation_gate=False), clock), Acquired)


class TestRelease:
    def test_only_what_the_job_holds(self, api, clock):
        acquire_leases(api, request(job_name="job-1"), clock)
        assert not release(api, "team-a", MACHINE.run_lease, "job-2")
        assert release(api, "team-a", MACHINE.run_lease, "job-1")
        assert not release(api, "team-a", MACHINE.run_lease, "job-1")

    def test_a_lease_taken_over_meanwhile_is_not_released(self, api, clock):
        acquire_leases(api, request(job_name="job-1"), clock)

        def take_over(verb, kind, name):
            if verb == "delete":
                api.put(LEASE, lease_of(api, MACHINE))

        api.before = take_over
        assert not release(api, "team-a", MACHINE.run_lease, "job-1")
        assert holder(api, MACHINE) == "job-1"

    def test_a_counted_job_gives_back_both(self, api, clock):
        acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
        release_finished(api, CLUSTER, classify(job("cluster-job", outcome="Complete"), []))
        assert api.all(LEASE) == []

    def test_unless_a_pod_of_it_still_runs(self, api, clock):
        acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
        still_running = classify(job("cluster-job", outcome="Failed"), [pod("cluster-job", phase="Running")])
        release_finished(api, CLUSTER, still_running)
        assert len(api.all(LEASE)) == 2

    @pytest.mark.parametrize("answer", ["there", "error"])
    def test_kept_while_the_job_may_exist(self, api, clock, answer):
        acquired = acquire_leases(api, request(), clock)
        if answer == "there":
            put_job(api, "job-1")
        else:

            def fail(verb, kind, name):
                if kind == JOB:
                    raise InternalError("boom", code=500)

            api.before = fail
        assert not give_back_if_no_job(api, request(), acquired.leases)
        assert holder(api, MACHINE) == "job-1"

    def test_cleanup_takes_every_lease_of_the_object_and_no_other(self, api, clock):
        acquire_leases(api, request(CLUSTER, job_name="dead"), clock)
        acquire_leases(api, request(MACHINE, "refresh", "job-1"), clock)
        state_lock = {
            "metadata": {
                "name": "lock-tfstate-default-x-c",
                "namespace": "team-a",
                "labels": {labels.OWNER_KIND: "TerraformCluster", labels.OWNER_NAME: "prod"},
            }
        }
        api.put(LEASE, state_lock)
        delete_leases(api, CLUSTER)
        assert {lease["metadata"]["name"] for lease in api.all(LEASE)} == {
            "lock-tfstate-default-x-c",
            MACHINE.run_lease,
        }

    @pytest.mark.parametrize("first", ["long", "short"])
    def test_cleanup_takes_no_lease_of_an_object_with_the_hash_for_a_name(self, api, clock, first):
        """The label of a long name is a hash, and that may be the name of another object."""
        long = "n" * 64
        owners = {
            "long": LeaseOwner("team-a", "TerraformCluster", long, "prod"),
            "short": LeaseOwner("team-a", "TerraformCluster", names.label_value(long), "other"),
        }
        for owner in owners.values():
            acquire_leases(api, request(owner, job_name=f"job-of-{owner.cluster_name}"), clock)
        mine = owners.pop(first)
        (other,) = owners.values()
        delete_leases(api, mine)
        assert {lease["metadata"]["name"] for lease in api.all(LEASE)} == {other.run_lease, other.write_lease}

    def test_cleanup_finds_a_write_lease_of_the_cluster_that_it_was_of(self, api, clock):
        acquire_leases(api, request(CLUSTER, job_name="dead"), clock)
        delete_leases(api, LeaseOwner("team-a", "TerraformCluster", "prod", ""))
        assert api.all(LEASE) == []


class TestLaunch:
    JOB_NAME = "captf-m-web-apply-a1-abc123"

    def setup_method(self):
        self.memory = LeaseMemory()
        self.acquired = Acquired()

    def request(self):
        return request(MACHINE, "apply", self.JOB_NAME, memory=self.memory)

    def acquire(self, api, clock):
        self.acquired = acquire_leases(api, self.request(), clock)

    def start(self, api, clock, steps=None):
        steps = steps if steps is not None else []
        obj = job_object(self.JOB_NAME, namespace="team-a", kind=MACHINE.kind, owner=MACHINE.name)
        del obj["metadata"]["uid"], obj["status"], obj["metadata"]["creationTimestamp"]
        return launch(
            api,
            LaunchRequest(
                job=obj,
                owner_uid="owner-uid",
                leases=self.request(),
                acquired=self.acquired,
                record=lambda created: steps.append(("record", created["metadata"]["uid"])),
                create_run_secret=lambda created: steps.append(("secret", created["metadata"]["uid"])),
            ),
            clock,
        )

    def test_the_job_comes_first_then_the_record_then_the_secret(self, api, clock):
        self.acquire(api, clock)
        steps = []
        launched = self.start(api, clock, steps=steps)
        assert isinstance(launched, Created)
        assert steps == [("record", launched.job.uid), ("secret", launched.job.uid)]
        assert holder(api, MACHINE) == self.JOB_NAME

    def test_its_own_running_job_is_adopted(self, api, clock):
        self.acquire(api, clock)
        stored = put_job(api, self.JOB_NAME, uid="the-first")
        steps = []
        launched = self.start(api, clock, steps=steps)
        assert isinstance(launched, Adopted)
        assert launched.job.uid == stored["metadata"]["uid"]
        assert steps == [("record", "the-first"), ("secret", "the-first")]
        assert len(api.all(JOB)) == 1

    def test_its_own_finished_job_defers_the_start(self, api, clock):
        self.acquire(api, clock)
        put_job(api, self.JOB_NAME, outcome="Failed")
        steps = []
        assert isinstance(self.start(api, clock, steps=steps), Deferred)
        assert steps == []

    @pytest.mark.parametrize(("outcome", "left"), [("Complete", 0), ("", 1)])
    def test_the_job_of_an_earlier_object_defers_and_goes_once_finished(self, api, clock, outcome, left):
        self.acquire(api, clock)
        obj = job_object(self.JOB_NAME, namespace="team-a", owner_uid="earlier", outcome=outcome)
        api.put(JOB, obj)
        steps = []
        assert isinstance(self.start(api, clock, steps=steps), Deferred)
        assert len(api.all(JOB)) == left
        assert steps == []

    @pytest.mark.parametrize("outcome", ["Complete", ""])
    def test_the_job_of_an_object_of_another_name_is_left_alone(self, api, clock, outcome):
        """What came of it is that object's to count, however alike the labels are."""
        self.acquire(api, clock)
        obj = job_object(
            self.JOB_NAME, namespace="team-a", owner="another", owner_uid="other", outcome=outcome
        )
        obj["metadata"]["labels"][labels.OWNER_NAME] = MACHINE.name
        api.put(JOB, obj)
        launched = self.start(api, clock)
        assert isinstance(launched, Deferred)
        assert "belongs to another object" in launched.reason
        assert len(api.all(JOB)) == 1

    def test_gone_again_is_an_error_that_keeps_the_leases(self, api, clock):
        self.acquire(api, clock)
        put_job(api, self.JOB_NAME)

        def vanish(verb, kind, name):
            if (verb, kind) == ("get", JOB):
                raise NotFound("gone", code=404)

        api.before = vanish
        with pytest.raises(Exception, match="already exists"):
            self.start(api, clock)
        assert holder(api, MACHINE) == self.JOB_NAME

    def failing_create(self, api, error):
        def fail(verb, kind, name):
            if (verb, kind) == ("create", JOB):
                raise error

        api.before = fail

    def test_a_rejected_create_gives_the_leases_back(self, api, clock):
        self.acquire(api, clock)
        self.failing_create(api, Forbidden("namespace is being terminated", code=403))
        with pytest.raises(Forbidden):
            self.start(api, clock)
        assert api.all(LEASE) == []

    def test_unless_such_a_job_exists(self, api, clock):
        self.acquire(api, clock)
        put_job(api, self.JOB_NAME)
        self.failing_create(api, Forbidden("exceeded quota", code=403))
        with pytest.raises(Forbidden):
            self.start(api, clock)
        assert holder(api, MACHINE) == self.JOB_NAME

    @pytest.mark.parametrize(
        "error", [InternalError("boom", code=500), RequestTimeout("late", ambiguous=True)]
    )
    def test_an_error_that_proves_nothing_keeps_them(self, api, clock, error):
        self.acquire(api, clock)
        self.failing_create(api, error)
        with pytest.raises(type(error)):
            self.start(api, clock)
        assert holder(api, MACHINE) == self.JOB_NAME

    def test_a_lease_taken_by_another_meanwhile_defers_and_is_left(self, api, clock):
        self.acquire(api, clock)
        clock.advance(61)
        acquire_leases(api, request(MACHINE, "apply", "other-job"), clock)
        assert isinstance(self.start(api, clock), Deferred)
        assert holder(api, MACHINE) == "other-job"
        assert api.all(JOB) == []

    def test_an_old_lease_is_taken_again_with_the_gate(self, api, clock):
        self.acquire(api, clock)
        clock.advance(30)
        assert isinstance(self.start(api, clock), Created)
        assert lease_of(api, MACHINE)["spec"]["acquireTime"] == "2026-09-25T12:00:30.000000Z"

    def test_and_a_wait_there_defers_with_nothing_held(self, api, clock):
        self.acquire(api, clock)
        clock.advance(31)
        acquire_leases(api, request(CLUSTER, job_name="cluster-job"), clock)
        lease = lease_of(api, CLUSTER, "cluster")
        assert lease is not None
        assert isinstance(self.start(api, clock), Deferred)
        assert holder(api, MACHINE) is None
        assert api.all(JOB) == []

    def test_a_missing_lease_is_taken_first(self, api, clock):
        assert isinstance(self.start(api, clock), Created)
        assert holder(api, MACHINE) == self.JOB_NAME

    def test_taking_the_leases_again_must_not_take_too_long(self, api, clock):
        def slow(verb, kind, name):
            if (verb, kind) == ("create", LEASE):
                clock.advance(30)

        api.before = slow
        assert isinstance(self.start(api, clock), Deferred)
        assert api.all(LEASE) == []
        assert api.all(JOB) == []
