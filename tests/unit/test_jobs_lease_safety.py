"""The leases' promises, over every interleaving and crash that hypothesis can think of.

Three managers start operations of one cluster and its machines; their passes are stopped at every request and
go on in an order, and at times, that the test draws. A manager may die ahead of any request, see a timeout of
a write that took effect, find that its start was paused once it has the leases, or have the create refused.
Nothing but the leases keeps the managers apart: no pass looks at a list of Jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.job_objects import NOON, job_object, pod_object
from tests.unit.memory_api import MemoryApi

from captf_controllers.api import annotations as keys
from captf_controllers.jobs.launch import CREATE_TIMEOUT_SECONDS, Created, LaunchRequest, launch
from captf_controllers.jobs.lease_memory import LeaseMemory
from captf_controllers.jobs.leases import (
    Acquired,
    LeaseOwner,
    LeaseRequest,
    Wait,
    acquire_leases,
    give_back_if_no_job,
    release_finished,
)
from captf_controllers.jobs.outcomes import classify
from captf_controllers.jobs.pods import pod_facts
from captf_controllers.jobs.views import view_job
from captf_runtime.client import ApiError, Forbidden, RequestTimeout
from captf_runtime.objects import JOB, LEASE, POD, Kind, Object, name_of
from captf_runtime.testing.clock import VirtualClock

CLUSTER = LeaseOwner("ns", "TerraformCluster", "prod", "prod")
MACHINE = LeaseOwner("ns", "TerraformMachine", "web", "prod")
POOL = LeaseOwner("ns", "TerraformMachinePool", "pool", "prod")
OWNERS = (CLUSTER, MACHINE, POOL)
MUTATING = ("apply", "destroy")
MANAGERS = 3


def nothing(created: Object) -> None:
    """Neither a record nor a per-run Secret: they come after all that is tested here."""


class Crash(BaseException):
    """The manager's process ended here."""


class Pass:
    """One pass in a thread of its own that moves only when told to.

    ``manager`` and ``owner`` say whose it is: a manager has one pass of an object at a time.
    """

    def __init__(self, run: Callable[[], object], manager: int, owner: LeaseOwner) -> None:
        self.manager, self.owner = manager, owner
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self.done = False
        self.crash = self.lose_answer = self.time_out = self.refuse = False
        self.waits_to_create = False
        self.create_ends: datetime | None = None
        self.thread = threading.Thread(target=self._main, args=(run,), daemon=True)
        self.thread.start()
        self._stopped.acquire()

    def _main(self, run: Callable[[], object]) -> None:
        try:
            self.wait()
            run()
        except (Crash, ApiError):
            pass
        finally:
            self.done = True
            self._stopped.release()

    def wait(self, creates_job: bool = False) -> None:
        """Called by the pass ahead of every request."""
        self.waits_to_create = creates_job
        self._stopped.release()
        self._go.acquire()
        self.waits_to_create = False
        if self.crash:
            raise Crash
        if self.time_out:
            self.time_out = False
            raise RequestTimeout("the time for this call is used up", ambiguous=False)
        if creates_job and self.refuse:
            self.refuse = False
            raise Forbidden("exceeded quota", code=403)

    def step(self) -> None:
        """Let the pass run up to its next request, or to its end."""
        self._go.release()
        self._stopped.acquire()

    def kill(self) -> None:
        while not self.done:
            self.crash = True
            self.step()


class World:
    """The API, the managers' passes and what each remembers, and the Jobs that run."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.api = MemoryApi(self.clock)
        self.api.before = self._before
        self.passes: list[Pass] = []
        self.memories = [LeaseMemory() for _ in range(MANAGERS)]
        self._create = self.api.create
        self.api.create = self._create_maybe_unanswered

    def _current(self) -> Pass | None:
        return next((item for item in self.passes if item.thread is threading.current_thread()), None)

    def _before(self, verb: str, kind: Kind, name: str) -> None:
        current = self._current()
        if current is not None:
            current.wait(creates_job=(verb, kind) == ("create", JOB))

    def _create_maybe_unanswered(
        self, kind: Kind, obj: Object, namespace: str = "", **options: object
    ) -> Object:
        stored = self._create(kind, obj, namespace, **options)
        if kind == JOB:
            # A Job's pod exists from now on, whatever the creator learns of it.
            pod = pod_object(name_of(stored), phase="Running", job_uid=stored["metadata"]["uid"])
            self.api.put(POD, pod)
        current = self._current()
        if current is not None and current.lose_answer:
            current.lose_answer = False
            raise RequestTimeout("no answer", ambiguous=True)
        return stored

    # What may happen ---------------------------------------------------------------------------------

    def active(self) -> list[Pass]:
        return [item for item in self.passes if not item.done]

    def idle(self, owner: LeaseOwner) -> list[int]:
        """The managers that have no pass of the object under way."""
        busy = {item.manager for item in self.active() if item.owner == owner}
        return [manager for manager in range(MANAGERS) if manager not in busy]

    def start(
        self, owner: LeaseOwner, op: str, number: int, manager: int = 0, *, paused: bool = False
    ) -> None:
        """A pass that starts a Job; ``paused``: it learns that it must not once it has the leases."""
        name = f"captf-{owner.name}-{op}-a{number}"
        leases = LeaseRequest(owner, op, name, 3600, memory=self.memories[manager])

        def run() -> None:
            acquired = acquire_leases(self.api, leases, self.clock)
            if not isinstance(acquired, Acquired):
                return
            if paused:
                give_back_if_no_job(self.api, leases, acquired.leases)
                return
            obj = job_object(name, op=op, kind=owner.kind, owner=owner.name)
            del obj["metadata"]["uid"], obj["metadata"]["creationTimestamp"]
            obj["status"] = {}
            launch(self.api, LaunchRequest(obj, "owner-uid", leases, acquired, nothing, nothing), self.clock)

        self._begin(run, manager, owner)

    def count(self, job_name: str, owner: LeaseOwner, manager: int = 0) -> None:
        job = self.api.find(JOB, job_name, "ns")
        pods = [
            pod_facts(pod) for pod in self.api.all(POD) if pod["metadata"]["labels"]["job-name"] == job_name
        ]
        finished = classify(view_job(job), pods)
        self._begin(lambda: release_finished(self.api, owner, finished), manager, owner)

    def crash(self, manager: int) -> None:
        """The manager's process ends, and with it all its passes and what it remembered."""
        for item in self.active():
            if item.manager == manager:
                item.kill()
        self.memories[manager] = LeaseMemory()

    def _begin(self, run: Callable[[], object], manager: int, owner: LeaseOwner) -> None:
        ready = threading.Event()

        def main() -> None:
            ready.wait()
            run()

        started = Pass(main, manager, owner)
        self.passes.append(started)
        ready.set()

    def pass_time(self, seconds: float) -> None:
        """Time passes. A pass may be slow anywhere, but the create of a Job is bounded."""
        then = self.clock.now() + timedelta(seconds=seconds)
        for item in self.passes:
            if not item.waits_to_create:
                item.create_ends = None
            elif item.create_ends is None:
                item.create_ends = self.clock.now() + timedelta(seconds=CREATE_TIMEOUT_SECONDS)
            if item.create_ends is not None and then > item.create_ends:
                item.time_out = True
                item.step()
        self.clock.advance(seconds)

    def move_into_the_future(self, lease: Object) -> None:
        """The lease says that it was taken next year, as if the clock of whoever took it were ahead."""
        lease["metadata"]["annotations"][keys.LEASE_ACQUIRED_AT] = "2027-09-25T12:00:00Z"
        lease["spec"]["acquireTime"] = "2027-09-25T12:00:00Z"
        self.api.put(LEASE, lease)

    def finish(self, job: Object) -> None:
        job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
        self.api.put(JOB, job)

    def end_pod(self, pod: Object) -> None:
        pod["status"]["phase"] = "Failed"
        self.api.put(POD, pod)

    # What must hold ----------------------------------------------------------------------------------

    def running(self) -> dict[str, tuple[str, str]]:
        """Jobs that run or whose pod does: name to (owner's name, op)."""
        found: dict[str, tuple[str, str]] = {}
        pods = {pod["metadata"]["labels"]["job-name"]: pod["status"]["phase"] for pod in self.api.all(POD)}
        for job in self.api.all(JOB):
            view = view_job(job)
            if not view.is_finished or pods.get(view.name) == "Running":
                found[view.name] = (view.owner_name, view.op)
        return found

    def check(self) -> None:
        running = self.running()
        owners = [owner for owner, _ in running.values()]
        assert len(owners) == len(set(owners)), f"two Jobs of one object run: {running}"
        mutating = {owner for owner, op in running.values() if op in MUTATING}
        assert not ("prod" in mutating and len(mutating) > 1), (
            f"cluster and machines change at once: {running}"
        )

    def close(self) -> None:
        for item in self.passes:
            item.kill()


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_never_two_jobs_of_an_object_nor_cluster_and_machine_changes_at_once(data):
    world = World()
    try:
        for _ in range(data.draw(st.integers(10, 40), label="steps")):
            _happen(world, data)
            world.check()
    finally:
        world.close()


def _happen(world: World, data: st.DataObject) -> None:
    active = world.active()
    jobs = world.api.all(JOB)
    unfinished = [job for job in jobs if not view_job(job).is_finished]
    finished = [job for job in jobs if view_job(job).is_finished]
    pods = [pod for pod in world.api.all(POD) if pod["status"]["phase"] == "Running"]
    ending = [
        pod for pod in pods if pod["metadata"]["labels"]["job-name"] in {name_of(job) for job in finished}
    ]
    choices = []
    if len(active) < 3:
        choices.append("start")
    if active:
        # Moving on is what happens most: weight it.
        choices += ["step", "to create", "to create", "run", "run", "crash", "lose", "refuse"]
    choices.append("time")
    if world.api.all(LEASE):
        choices.append("future")
    if unfinished:
        choices.append("finish")
    if ending:
        choices.append("end pod")
    if finished:
        choices.append("count")
    if finished and not ending:
        choices.append("prune")
    match data.draw(st.sampled_from(choices), label="what"):
        case "start":
            owner = data.draw(st.sampled_from(OWNERS), label="owner")
            world.start(
                owner,
                data.draw(st.sampled_from(("apply", "destroy", "refresh")), label="op"),
                data.draw(st.integers(1, 3), label="number"),
                # One of three is always idle: at most two passes are under way here.
                data.draw(st.sampled_from(world.idle(owner)), label="manager"),
                paused=data.draw(st.integers(0, 3), label="paused") == 3,
            )
        case "step":
            item = data.draw(st.sampled_from(active), label="pass")
            for _ in range(data.draw(st.integers(1, 8), label="requests")):
                if not item.done:
                    item.step()
                    world.check()
        case "to create":
            item = data.draw(st.sampled_from(active), label="pass")
            while not (item.done or item.waits_to_create):
                item.step()
        case "run":
            item = data.draw(st.sampled_from(active), label="pass")
            while not item.done:
                item.step()
        case "crash":
            world.crash(data.draw(st.sampled_from(active), label="pass").manager)
        case "lose":
            data.draw(st.sampled_from(active), label="pass").lose_answer = True
        case "refuse":
            data.draw(st.sampled_from(active), label="pass").refuse = True
        case "time":
            seconds = data.draw(st.sampled_from((1, 19, 29, 31, 61, 300)), label="seconds")
            world.pass_time(seconds)
        case "future":
            world.move_into_the_future(data.draw(st.sampled_from(world.api.all(LEASE)), label="lease"))
        case "finish":
            world.finish(data.draw(st.sampled_from(unfinished), label="job"))
        case "end pod":
            world.end_pod(data.draw(st.sampled_from(ending), label="pod"))
        case "count":
            job = data.draw(st.sampled_from(finished), label="job")
            owner = next(item for item in OWNERS if item.name == view_job(job).owner_name)
            if idle := world.idle(owner):
                world.count(name_of(job), owner, data.draw(st.sampled_from(idle), label="manager"))
        case "prune":
            job = data.draw(st.sampled_from(finished), label="job")
            del world.api.objects[(JOB, "ns", name_of(job))]


@pytest.mark.parametrize("owner", OWNERS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_nothing_waits_for_ever(owner, data):
    """Whatever crashed before, once all Jobs are over a start succeeds within the grace."""
    world = World()
    try:
        for _ in range(data.draw(st.integers(0, 25), label="steps")):
            _happen(world, data)
        world.close()
        for job in world.api.all(JOB):
            world.finish(job)
        for pod in world.api.all(POD):
            world.end_pod(pod)
        world.clock.advance(61)
        leases = LeaseRequest(owner, "apply", "captf-the-last-one", 3600, memory=LeaseMemory())
        acquired = acquire_leases(world.api, leases, world.clock)
        for _ in range(2):
            # A lease taken in the future waits out its grace from when it was seen: the run lease, then the gate's.
            if isinstance(acquired, Wait):
                world.clock.advance(61)
                acquired = acquire_leases(world.api, leases, world.clock)
        assert isinstance(acquired, Acquired)
        obj = job_object("captf-the-last-one", kind=owner.kind, owner=owner.name)
        launch_request = LaunchRequest(obj, "owner-uid", leases, acquired, nothing, nothing)
        assert isinstance(launch(world.api, launch_request, world.clock), Created)
    finally:
        world.close()


@pytest.mark.parametrize("stops", ["at the gate", "paused", "paused twice", "refused"])
def test_a_stopped_start_gives_back_no_lease_that_another_start_of_the_same_job_holds(stops):
    """Two managers start the same Job; the one that is stopped leaves the lease to the one that got by."""
    world = World()
    try:
        world.start(MACHINE, "apply", 1, 0)
        first = world.passes[-1]
        while not first.waits_to_create:
            first.step()
        if stops == "paused twice":
            world.start(MACHINE, "apply", 1, 1, paused=True)
            _run(world.passes[-1])
        world.start(MACHINE, "apply", 1, 1, paused="paused" in stops)
        second = world.passes[-1]
        second.refuse = stops == "refused"
        if stops == "at the gate":
            _steps(second, 2)  # It has read the lease; now the cluster closes the gate.
            world.start(CLUSTER, "destroy", 1, 2)
            _run(world.passes[-1])
        _run(second)
        world.start(CLUSTER, "destroy", 1, 2)
        _run(world.passes[-1])
        world.check()
        _run(first)
        world.check()
        assert set(world.running()) == {"captf-web-apply-a1"}
    finally:
        world.close()


def test_a_lease_that_another_manager_took_too_is_not_handed_to_the_next_job():
    """The inputs changed while a start waited; but its Job is about to be created by another manager."""
    world = World()
    try:
        world.start(CLUSTER, "apply", 1, 0)
        _run(world.passes[-1])
        world.finish(world.api.find(JOB, "captf-prod-apply-a1", "ns"))
        for pod in world.api.all(POD):
            world.end_pod(pod)
        world.start(MACHINE, "apply", 7, 0)
        machine = world.passes[-1]
        while not machine.waits_to_create:
            machine.step()
        world.start(CLUSTER, "apply", 2, 0)
        _run(world.passes[-1])  # Waits for the machine and keeps its leases, in the name of attempt 2.
        world.start(CLUSTER, "apply", 2, 1)
        other = world.passes[-1]
        _run(machine)
        world.finish(world.api.find(JOB, "captf-web-apply-a7", "ns"))
        for pod in world.api.all(POD):
            world.end_pod(pod)
        while not other.waits_to_create:
            other.step()
        world.start(CLUSTER, "apply", 3, 0)
        _run(world.passes[-1])
        world.check()
        _run(other)
        world.check()
        assert set(world.running()) == {"captf-prod-apply-a2"}
    finally:
        world.close()


@pytest.mark.parametrize("stops", ["paused", "refused"])
def test_a_stopped_start_gives_its_own_leases_back_at_once(stops):
    """Also those that it kept while it waited for the machines: nobody else may need them."""
    world = World()
    try:
        world.start(MACHINE, "apply", 1, 0)
        _run(world.passes[-1])
        world.start(CLUSTER, "apply", 1, 0)
        _run(world.passes[-1])
        assert len(world.api.all(LEASE)) == 3
        world.finish(world.api.find(JOB, "captf-web-apply-a1", "ns"))
        for pod in world.api.all(POD):
            world.end_pod(pod)
        world.count("captf-web-apply-a1", MACHINE)
        _run(world.passes[-1])
        world.start(CLUSTER, "apply", 1, 0, paused=stops == "paused")
        world.passes[-1].refuse = stops == "refused"
        _run(world.passes[-1])
        assert world.api.all(LEASE) == []
    finally:
        world.close()


def test_a_lease_in_the_own_name_frees_itself_while_the_gate_is_closed():
    """A start that was killed left its lease; waiting for the cluster must not keep it alive for ever."""
    world = World()
    try:
        world.start(MACHINE, "apply", 1)
        killed = world.passes[-1]
        while not killed.waits_to_create:
            killed.step()
        world.crash(killed.manager)
        for _ in range(4):
            for owner, op in ((CLUSTER, "apply"), (MACHINE, "apply")):
                world.start(owner, op, 1)
                _run(world.passes[-1])
            world.check()
            world.pass_time(31)
        assert "captf-prod-apply-a1" in world.running()
    finally:
        world.close()


def _steps(item: Pass, count: int) -> None:
    for _ in range(count):
        item.step()


def _run(item: Pass) -> None:
    while not item.done:
        item.step()
