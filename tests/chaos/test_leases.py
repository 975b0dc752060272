"""Two managers that both believe to lead, over one API server: the leases alone keep their Jobs apart.

Each pass runs in a thread that stops ahead of every request and goes on when the story says so, so that the
managers interleave request by request. A manager may die between any two requests, or never learn that its
write was carried out. Its caches show the Jobs of the other one only when the story lets them catch up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.chaos.cloud import OP, OWNER_KIND, OWNER_NAME, RestlessClock, finished
from tests.chaos.profile import chaos_profile
from tests.world import RUNNER_IMAGE, TEAM, EventLog, FreshCache, World

from captf_controllers.jobs.slots import JobSlots
from captf_controllers.kinds.controllers import ADAPTERS
from captf_controllers.observability.metrics import Metrics
from captf_controllers.reconcile.environment import Environment, Options
from captf_controllers.reconcile.reconciler import WorkloadReconciler
from captf_controllers.state.cache import StateCache
from captf_runtime import log
from captf_runtime.client import Client
from captf_runtime.client.errors import ApiError, RequestTimeout
from captf_runtime.controller import Context, Request
from captf_runtime.election import Fence
from captf_runtime.objects import (
    JOB,
    POD,
    Object,
    creation_timestamp_of,
    is_deleting,
    labels_of,
    name_of,
    parse_time,
)
from captf_runtime.testing.apiserver import ApiServer

CLUSTER, MACHINE, POOL = (
    ("TerraformCluster", "prod"),
    ("TerraformMachine", "m1"),
    ("TerraformMachinePool", "p1"),
)
PLACES = (CLUSTER, MACHINE, POOL)
Place = tuple[str, str]
MUTATING = {"apply", "destroy", "restore"}
GRACE = timedelta(seconds=600)
"""How long a pod may outlive the end of its Job."""

T = TypeVar("T")


class Killed(BaseException):
    """The manager's process ended here."""


class Pass:
    """One pass in a thread of its own that moves only when told to."""

    def __init__(self, manager: Manager, place: Place) -> None:
        self.manager, self.place = manager, place
        self.done = False
        self.error: BaseException | None = None
        self.lose_answer = False
        self.lease_writes = 0
        self._killed = False
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()
        self._stopped.acquire()

    def _main(self) -> None:
        try:
            self.stop_here()
            self.manager.reconcile(self.place)
        except (Killed, ApiError, ExceptionGroup):
            pass  # a pass may die, and it may fail as the API server or another manager makes it
        except BaseException as error:  # noqa: BLE001 - shown in the story's own thread
            self.error = error
        finally:
            self.done = True
            self._stopped.release()

    def stop_here(self) -> None:
        """Called by the pass's thread ahead of every request."""
        self._stopped.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def step(self) -> None:
        """Let the pass go up to its next request, or to its end."""
        if not self.done:
            self._go.release()
            self._stopped.acquire()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        while not self.done:
            self.step()

    def kill(self) -> None:
        self._killed = True
        while not self.done:
            self._go.release()
            self._stopped.acquire()
        self.thread.join()


class SteppedClient(Client):
    """A client whose requests each wait for the story."""

    current: Callable[[], Pass | None]

    def _call(
        self,
        method: str,
        target: str,
        *,
        decode: Callable[[bytes], T],
        before_attempt: Callable[[], None] | None = None,
        **more: Any,
    ) -> T:
        running = self.current()

        def before() -> None:
            if running is not None:
                running.stop_here()
            if before_attempt is not None:
                before_attempt()

        answer = super()._call(method, target, decode=decode, before_attempt=before, **more)
        if running is not None and method != "GET" and "/leases" in target:
            running.lease_writes += 1
        if running is not None and running.lose_answer and method != "GET":
            running.lose_answer = False
            raise RequestTimeout("no answer", ambiguous=True, method=method, path=target)
        return answer


class LaggingCache(FreshCache):
    """A cache that has not shown the Jobs made since it last caught up."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.server = server
        self.catch_up()

    def catch_up(self) -> None:
        self.seen = {name_of(job) for job in self.server.objects.items(JOB, TEAM)}

    def list(self, kind: Any, namespace: str = "", *, label_selector: str = "") -> list[Object]:
        items = super().list(kind, namespace, label_selector=label_selector)
        return [item for item in items if kind != JOB or name_of(item) in self.seen]


class Manager:
    """One manager process."""

    def __init__(self, story: Story, number: int) -> None:
        self.story = story
        self.client = story.clients[number]
        self.cache = LaggingCache(story.world.server)
        self.passes: list[Pass] = []
        env = Environment(
            api=self.client,
            cache=self.cache,
            recorder=EventLog(),  # type: ignore[arg-type]
            metrics=Metrics(),
            clock=story.world.clock,
            options=Options(runner_image=RUNNER_IMAGE),
            slots=JobSlots(story.world.clock),
            states=StateCache(),
        )
        self._reconcilers = {
            kind.kind: WorkloadReconciler(env, adapter()) for kind, adapter in ADAPTERS.items()
        }

    def reconcile(self, place: Place) -> None:
        ctx = Context(
            stop=threading.Event(),
            fence=Fence.open(),
            clock=self.story.world.clock,
            logger=log.get_logger("tests.leases"),
        )
        self._reconcilers[place[0]].reconcile(ctx, Request(TEAM, place[1]))


class Story:
    """The server, two managers and what they have under way."""

    def __init__(self, world: World, clients: list[SteppedClient]) -> None:
        self.world = world
        self.clients = clients
        for client in clients:
            client.current = self._current
        self.managers = [Manager(self, number) for number in range(len(clients))]
        self.ended: dict[str, Any] = {}

    def _current(self) -> Pass | None:
        thread = threading.current_thread()
        return next((item for item in self.passes if item.thread is thread), None)

    @property
    def passes(self) -> list[Pass]:
        return [item for manager in self.managers for item in manager.passes]

    def active(self) -> list[Pass]:
        return [item for item in self.passes if not item.done]

    def jobs(self) -> list[Object]:
        return self.world.server.objects.items(JOB, TEAM)

    def pods(self) -> list[Object]:
        return [
            pod
            for pod in self.world.server.objects.items(POD, TEAM)
            if (pod.get("status") or {}).get("phase") == "Running"
        ]

    # What may happen

    def begin(self, number: int, place: Place) -> None:
        """A pass begins; one manager never runs two of one object at once."""
        manager = self.managers[number]
        manager.passes = [item for item in manager.passes if not item.done]
        if all(item.place != place for item in manager.passes):
            manager.passes.append(Pass(manager, place))

    def die(self, number: int) -> None:
        for item in self.managers[number].passes:
            item.kill()
        self.managers[number] = Manager(self, number)

    def start_pods(self) -> None:
        """A Job's pod runs from the moment that the Job exists."""
        known = {labels_of(pod)["job-name"] for pod in self.world.server.objects.items(POD, TEAM)}
        for job in self.jobs():
            if name_of(job) not in known and not finished(job):
                self.world.start_pod(self.world.client.get(JOB, name_of(job), TEAM))

    def end(self, job: Object, *, succeeded: bool, lingers: bool) -> None:
        if lingers:
            self.world.end_job(job, succeeded=succeeded)
        else:
            self.world.finish_job(
                self.world.client.get(JOB, name_of(job), TEAM), "succeeded" if succeeded else "failed"
            )

    def end_pod(self, pod: Object) -> None:
        status = {"status": {"phase": "Failed"}}
        self.world.client.patch(POD, name_of(pod), status, TEAM, subresource="status")

    def pass_time(self, seconds: float) -> None:
        """Time passes; the Job controller ends what is over its deadline, the kubelet what outlived it."""
        self.world.advance(seconds)
        now = self.world.clock.now()
        for job in self.jobs():
            created = creation_timestamp_of(job)
            assert created is not None
            if not finished(job) and (now - created).total_seconds() > job["spec"]["activeDeadlineSeconds"]:
                self.world.end_job(job, succeeded=False, deadline=True)
        over = {name_of(job): ended_at(job) for job in self.jobs() if finished(job)}
        for pod in self.pods():
            job = labels_of(pod)["job-name"]
            if job in over and now - over[job] > GRACE:
                self.end_pod(pod)

    # What must hold

    def check(self) -> None:
        self.start_pods()
        running: dict[str, Object] = {name_of(job): job for job in self.jobs() if not finished(job)}
        for pod in self.pods():
            running.setdefault(labels_of(pod)["job-name"], pod)
        owners = [(labels_of(item)[OWNER_KIND], labels_of(item)[OWNER_NAME]) for item in running.values()]
        assert len(owners) == len(set(owners)), f"two Jobs of one object run: {sorted(running)}"
        changing = {
            labels_of(item)[OWNER_KIND]: name
            for name, item in running.items()
            if labels_of(item)[OP] in MUTATING
        }
        assert not (CLUSTER[0] in changing and len(changing) > 1), f"cluster and machine change: {changing}"

    def close(self) -> None:
        for item in self.passes:
            item.kill()


def ended_at(job: Object) -> Any:
    return parse_time(job["status"]["conditions"][0]["lastTransitionTime"])


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(clock=RestlessClock(), seed=1) as made:
        yield made


@pytest.fixture(scope="module")
def clients(world: World) -> Iterator[list[SteppedClient]]:
    config = str(world.server.kubeconfig())
    made = [
        SteppedClient.from_config(kubeconfig=config, user_agent=f"manager-{number}", clock=world.clock)
        for number in range(2)
    ]
    yield [client for client in made if isinstance(client, SteppedClient)]
    for client in made:
        client.close()


def begin(world: World, clients: list[SteppedClient]) -> Story:
    def build() -> None:
        for kind, name in PLACES:
            world.provisioned(kind, name) if kind != CLUSTER[0] else world.ensure_cluster()

    for client in clients:
        client.current = lambda: None
    world.stage("the beginning", lambda: None)
    world.stage("all", build)
    return Story(world, clients)


def change(story: Story, place: Place, what: str, size: int) -> None:
    """Make an operation due."""
    obj = story.world.find(*place)
    if obj is None:
        return
    if what == "delete":
        if not is_deleting(obj):
            story.world.delete(*place)
    elif place != MACHINE:
        story.world.patch(*place, {"spec": {"variables": {"size": size}}})


Draw = Callable[..., Any]
WAITS = (1, 19, 29, 31, 59, 61, 300, 3601)


def happen(story: Story, draw: Draw) -> None:
    active, jobs, pods = story.active(), story.jobs(), story.pods()
    running = [job for job in jobs if not finished(job)]
    over = {name_of(job) for job in jobs if finished(job)}
    lingering = [pod for pod in pods if labels_of(pod)["job-name"] in over]
    choices = ["change", "begin", "begin", "time", "catch up"]
    choices += ["step", "step", "run", "run", "to a write", "die", "lose"] if active else []
    choices += ["end", "end"] if running else []
    choices += ["end pod"] if lingering else []
    match draw(st.sampled_from(choices), "what"):
        case "change":
            place = draw(st.sampled_from(PLACES), "place")
            change(
                story, place, draw(st.sampled_from(["inputs", "delete"]), "change"), draw(st.integers(1, 9))
            )
        case "begin":
            story.begin(draw(st.integers(0, 1), "manager"), draw(st.sampled_from(PLACES), "place"))
        case "time":
            story.pass_time(draw(st.sampled_from(WAITS), "seconds"))
        case "catch up":
            story.managers[draw(st.integers(0, 1), "manager")].cache.catch_up()
        case "step":
            item = draw(st.sampled_from(active), "pass")
            for _ in range(draw(st.integers(1, 12), "requests")):
                item.step()
                story.check()
        case "run":
            draw(st.sampled_from(active), "pass").run()
        case "to a write":
            # Between a lease and the Job is where it matters: stop there.
            item = draw(st.sampled_from(active), "pass")
            written = item.lease_writes
            while not item.done and item.lease_writes == written:
                item.step()
        case "die":
            story.die(draw(st.integers(0, 1), "manager"))
        case "lose":
            draw(st.sampled_from(active), "pass").lose_answer = True
        case "end":
            job = draw(st.sampled_from(running), "job")
            story.end(job, succeeded=draw(st.booleans(), "succeeded"), lingers=draw(st.booleans(), "lingers"))
        case "end pod":
            story.end_pod(draw(st.sampled_from(lingering), "pod"))


@chaos_profile(20)
@given(data=st.data())
def test_never_two_jobs_of_an_object_nor_a_cluster_change_beside_a_machines(
    world: World, clients: list[SteppedClient], data: st.DataObject
) -> None:
    story = begin(world, clients)

    def draw(strategy: st.SearchStrategy[Any], label: str = "") -> Any:
        return data.draw(strategy, label=label)

    try:
        for _ in range(draw(st.integers(20, 60), "steps")):
            happen(story, draw)
            story.check()
    finally:
        story.close()
    _everything_ends(story)


def _everything_ends(story: Story) -> None:
    """Whatever was left behind, one manager alone brings every object to its end."""
    for client in story.clients:
        client.current = lambda: None
    world = story.world
    manager = Manager(story, 0)
    for place in (MACHINE, POOL, CLUSTER):
        change(story, place, "delete", 0)
        for _ in range(16):
            story.check()
            for job in story.jobs():
                if not finished(job):
                    story.end(job, succeeded=True, lingers=False)
            for pod in story.pods():
                story.end_pod(pod)
            manager.cache.catch_up()
            manager.reconcile(place)
            world.advance(61)
            if world.find(*place) is None:
                break
        left = world.find(*place)
        assert left is None, (place, left.get("status"))
