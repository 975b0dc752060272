"""The promise under chaos: whatever users, clouds, crashes and faults do, nothing is left untracked.

A state machine over the embedded API server with real state Secrets. Every pass is witnessed (see
``witness.py``); at the end of every story some sequence of user actions must lead to each object's end.
"""

from __future__ import annotations

import base64
import gzip
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from tests.chaos.cloud import Effect, Site, finished
from tests.chaos.profile import chaos_profile
from tests.chaos.witness import Fault, Passed, WitnessedWorld
from tests.world import IDENTITY, OPERATOR, TEAM, Outcome, secret

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.kinds import CLUSTER, OWNER_KINDS, TERRAFORM_CLUSTER_IDENTITY
from captf_runtime.client.errors import AlreadyExists, Forbidden, Invalid, NotFound
from captf_runtime.objects import (
    JOB,
    NAMESPACE,
    POD,
    SECRET,
    Object,
    annotations_of,
    creation_timestamp_of,
    finalizers_of,
    is_deleting,
    labels_of,
    name_of,
    uid_of,
)
from captf_runtime.testing import faults

CLUSTER_SITE = Site("TerraformCluster", "prod")
MACHINE_SITE = Site("TerraformMachine", "m1")
POOL_SITE = Site("TerraformMachinePool", "p1")
SITES = (CLUSTER_SITE, MACHINE_SITE, POOL_SITE)
ROUNDS_TO_THE_END = 30

sites = st.sampled_from(SITES)
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        "succeeded",
        "succeeded",
        "failed",
        "no-result",
        "interrupted",
        "deadline",
        "image-layout",
        "pull-failed",
    ]
)
effects: st.SearchStrategy[Effect] = st.sampled_from(["nothing", "done", "done-unwritten"])
pieces = st.integers(1, 3)
fault_actions = st.sampled_from(
    [
        faults.conflict(),
        faults.conflict(after_commit=True),
        faults.internal_error(),
        faults.internal_error(after_commit=True),
        faults.too_many_requests(None),
        faults.too_many_requests(1),
        faults.unavailable(),
        faults.reset(),
        faults.reset(after_commit=True),
    ]
)
all_faults = st.one_of(
    st.builds(
        Fault,
        action=fault_actions,
        verb=st.just("create,update,patch,delete"),
        after=st.integers(0, 5),
        times=st.sampled_from([1, 1, 2, 6]),
    ),
    st.builds(Fault, action=fault_actions, after=st.integers(0, 20), times=st.sampled_from([1, 6])),
    st.builds(
        Fault,
        action=fault_actions,
        resource=st.sampled_from(["secrets", "leases", "jobs", "terraformmachines", "terraformclusters"]),
        after=st.integers(0, 3),
        times=st.sampled_from([1, 6]),
    ),
)


def actions(**given: st.SearchStrategy[Any] | tuple[st.SearchStrategy[Any], ...]) -> st.SearchStrategy[Any]:
    """Calls of methods: their names with strategies for the arguments."""
    return st.one_of(
        *(
            st.tuples(st.just(name), *(how if isinstance(how, tuple) else (how,)))
            for name, how in given.items()
        )
    )


numbers = st.integers(0, 2)
policies = st.sampled_from(["Retain", "Destroy", None])
cloud_actions = actions(
    end_job=(numbers, outcomes, effects, pieces),
    start_pod=numbers,
    delete_running_job=(numbers, effects, st.booleans()),
    lose_owner_of_job=numbers,
    hide_jobs=st.booleans(),
    advance=st.sampled_from([1, 6, 31, 61, 121, 601, 2000, 5000]),
    restart=(),
)
common_actions = actions(
    create=(st.sampled_from([None, None, "Retain", "Destroy"]), st.booleans()),
    delete=st.sampled_from(["Background", "Background", "Foreground", "Orphan"]),
    abandon=st.sampled_from(["uid", "uid", "yes", None]),
    ask_for_restore=st.sampled_from(["newest", "oldest", "seven", "999", None]),
    confirm=st.booleans(),
    set_policy=policies,
    set_default_policy=policies,
    set_adopt=st.booleans(),
    change_inputs=st.integers(1, 3),
    remove_secrets=st.sampled_from(["state", "a chunk", "backups", "inputs", "plan key"]),
    delete_finished_jobs=(),
)
rare_actions = actions(
    pause_object=st.booleans(),
    pause_cluster=st.booleans(),
    manage_externally=st.booleans(),
    spoil_state=st.sampled_from(["noise", "cut short", "encrypted", "no data", "another version", "a stray"]),
    spoil_backups=(),
    discard_retained=(),
    delete_owner=(),
    strip_finalizer=(),
    change_identity=st.sampled_from(["refuse", "no secret", "gone", "repair", "repair"]),
    collect_garbage=(),
    delete_namespace=st.sampled_from(["nothing", "done-unwritten"]),
    create_namespace=(),
)


class Chaos(RuleBasedStateMachine):
    """Users, clouds and managers at work on a cluster, a machine and a pool."""

    world: WitnessedWorld

    # How a story begins ------------------------------------------------------------------------------

    @initialize(stage=st.sampled_from(["nothing", "cluster", "machine", "all", "all", "deleting"]))
    def begin(self, stage: str) -> None:
        self.world.stage_cloud("the beginning", lambda: None)
        self.world.stage_cloud(f"chaos {stage}", lambda: self._build(stage))
        self.world.log.seek(0)
        self.world.log.truncate()

    def _build(self, stage: str) -> None:
        world = self.world
        built = {"nothing": (), "cluster": SITES[:1], "machine": SITES[:2]}.get(stage, SITES)
        for site in built:
            world.add(site.kind, site.name)
            world.provision(site.kind, site.name)
        if stage == "deleting":
            for site in built:
                world.delete(site.kind, site.name)
            for site in reversed(built):
                world.settle(site.kind, site.name)
        world.note_jobs()

    # What may happen. Few rules, so that no story goes without passes, crashes and faults. ------------

    @rule(site=sites, count=st.integers(1, 3))
    def passes(self, site: Site, count: int) -> None:
        for _ in range(count):
            self.world.witness(self._present(site))

    @rule(site=sites, after=st.integers(1, 6), count=st.integers(1, 3), end=st.booleans())
    def crashes(self, site: Site, after: int, count: int, end: bool) -> None:
        """The manager dies after one of its writes, perhaps of a pass that has a Job to take note of."""
        site = self._present(site)
        for number in range(count):
            if end:
                self._end_jobs(site)
            self.world.witness(site, crash_after=after + number)

    @rule(site=sites, fault=all_faults, end=st.booleans())
    def suffers(self, site: Site, fault: Fault, end: bool) -> None:
        site = self._present(site)
        if end:
            self._end_jobs(site)
        self.world.witness(site, fault=fault)

    @rule(site=sites, everybody=st.booleans(), seconds=st.sampled_from([31, 61, 601]))
    def goes_on(self, site: Site, everybody: bool, seconds: int) -> None:
        """What happens when nothing goes wrong: Jobs succeed, time passes, passes follow."""
        for place in SITES if everybody else (self._present(site),):
            if self.world.object_at(place) is None:
                continue
            self._end_jobs(place)
            self.advance(seconds)
            for _ in range(3):
                self.world.witness(place)

    @rule(action=cloud_actions)
    def cloud(self, action: tuple[Any, ...]) -> None:
        getattr(self, action[0])(*action[1:])

    @rule(site=sites, action=common_actions, passes=st.integers(0, 2))
    def user(self, site: Site, action: tuple[Any, ...], passes: int) -> None:
        self._act(site, action, passes)

    @rule(site=sites, action=rare_actions, passes=st.integers(0, 2))
    def trouble(self, site: Site, action: tuple[Any, ...], passes: int) -> None:
        self._act(site, action, passes)

    def _act(self, site: Site, action: tuple[Any, ...], passes: int) -> None:
        getattr(self, action[0])(site, *action[1:])
        for _ in range(passes):
            self.world.witness(self._present(site))

    def _present(self, site: Site) -> Site:
        """The site, or another one where an object is: a pass over nothing tells little."""
        others = [other for other in (site, *SITES) if self.world.object_at(other) is not None]
        return others[0] if others else site

    def _one_of_the_running(self, number: int) -> list[Object]:
        jobs = self.world.unfinished()
        return [jobs[number % len(jobs)]] if jobs else []

    def _end_jobs(self, site: Site) -> None:
        for job in self.world.unfinished(site):
            self.world.finish(job, "succeeded")

    def restart(self) -> None:
        self.world.restart()

    def advance(self, seconds: int) -> None:
        """Time passes; a Job over its deadline is ended by the Job controller."""
        self.world.advance(seconds)
        for job in self.world.unfinished():
            created = creation_timestamp_of(job)
            assert created is not None
            age = (self.world.clock.now() - created).total_seconds()
            if age > job["spec"]["activeDeadlineSeconds"]:
                self.world.finish(job, "deadline")

    def hide_jobs(self, hidden: bool) -> None:
        """The Job cache has not shown the Jobs that run."""
        shown = {name_of(job) for job in self.world.unfinished()}
        self.world.cache.hidden = shown if hidden else set()

    # Clouds ------------------------------------------------------------------------------------------

    def end_job(self, number: int, outcome: Outcome, effect: Effect, pieces: int) -> None:
        for job in self._one_of_the_running(number):
            self.world.finish(job, outcome, effect, pieces)

    def start_pod(self, number: int) -> None:
        for job in self._one_of_the_running(number):
            self.world.begin(job)

    # Users -------------------------------------------------------------------------------------------

    def create(self, site: Site, policy: str | None, adopt: bool) -> None:
        if self.world.object_at(site) is not None or self.world.terminating():
            return
        more = ({"deletionPolicy": policy} if policy else {}) | (
            {"adoptRetainedState": True} if adopt else {}
        )
        self.world.add(site.kind, site.name, **more)

    def delete(self, site: Site, policy: str) -> None:
        if self.world.object_at(site) is not None:
            self.world.delete(site.kind, site.name, policy=policy)
            if policy == "Orphan":
                # Nobody but the collector takes the finalizer off that such a deletion puts on.
                self.world.step()
            self._forget()

    def abandon(self, site: Site, value: str | None) -> None:
        obj = self.world.object_at(site)
        if obj is not None:
            text = uid_of(obj) if value == "uid" else value
            self._annotate(site, keys.ABANDON_INFRASTRUCTURE, text)

    def ask_for_restore(self, site: Site, which: str | None) -> None:
        serials = sorted(
            int(annotations_of(found)[keys.STATE_BACKUP_SERIAL])
            for found in self.world.secrets_of(site)
            if keys.STATE_BACKUP_SERIAL in annotations_of(found)
        )
        if which in ("newest", "oldest") and serials:
            which = str(serials[-1 if which == "newest" else 0])
        self._annotate(site, keys.RESTORE_STATE, which)

    def confirm(self, site: Site, right: bool) -> None:
        """Somebody says that the Job of unknown outcome created nothing, be it true or not."""
        recorded = self._unconfirmed(site)
        if right and recorded:
            self.world.cloud.excuse(site, "somebody said that there is nothing")
        self._annotate(site, keys.CONFIRM_NO_RESOURCES, recorded if right else "another-job")

    def _unconfirmed(self, site: Site) -> str | None:
        for found in self.world.secrets_of(site):
            recorded = annotations_of(found).get(keys.UNCONFIRMED_APPLY)
            if recorded:
                return recorded
        return None

    def pause_object(self, site: Site, paused: bool) -> None:
        self._annotate(site, keys.PAUSED, "" if paused else None)

    def pause_cluster(self, site: Site, paused: bool) -> None:
        self._patch_cluster({"spec": {"paused": paused}})

    def manage_externally(self, site: Site, managed: bool) -> None:
        self._annotate(site, keys.MANAGED_BY, "somebody" if managed else None)

    def set_policy(self, site: Site, policy: str | None) -> None:
        self._patch(site, {"spec": {"deletionPolicy": policy}})

    def set_default_policy(self, site: Site, policy: str | None) -> None:
        self._patch(CLUSTER_SITE, {"spec": {"defaults": {"deletionPolicy": policy}}})

    def set_adopt(self, site: Site, adopt: bool) -> None:
        self._patch(site, {"spec": {"adoptRetainedState": adopt}})

    def change_inputs(self, site: Site, size: int) -> None:
        self._patch(site, {"spec": {"variables": {"size": size}}})

    def remove_secrets(self, site: Site, what: str) -> None:
        found = self.world.secrets_of(site)
        match what:
            case "state":
                gone = [name_of(item) for item in found if labels_of(item).get("tfstate")]
            case "a chunk":
                gone = [name_of(item) for item in found if labels_of(item).get("tfstate")][-1:]
            case "backups":
                gone = [name_of(item) for item in found if "captf.io/state-backup" in labels_of(item)]
            case "inputs":
                gone = [
                    name_of(item)
                    for item in found
                    if "-inputs-" in name_of(item) or "-applied-" in name_of(item)
                ]
            case _:
                gone = [names.plan_key_secret(site.kind, site.name)]
        for name in gone:
            self.world.remove(SECRET, name)
        self._forget()

    def spoil_state(self, site: Site, what: str) -> None:
        base = names.state_secret(site.suffix)
        found = self.world.look(SECRET, base)
        if found is None:
            return
        payload = base64.b64decode((found.get("data") or {}).get("tfstate", ""))
        if what == "a stray":
            name = f"{base}-part-x"
            meta = {"name": name, "labels": labels_of(found)}
            self._try(lambda: self.world.create(SECRET, {"metadata": meta, "data": found.get("data")}, TEAM))
            return
        content = {
            "noise": b"no gzip at all",
            "cut short": payload[: len(payload) // 2],
            "encrypted": gzip.compress(b'{"meta":{},"encrypted_data":"x","encryption_version":"v0"}'),
            "another version": gzip.compress(b'{"version":3,"serial":9,"resources":[]}'),
        }.get(what)
        data = {"tfstate": base64.b64encode(content).decode() if content is not None else None}
        self.world.client.patch(SECRET, base, {"data": data}, TEAM)

    def spoil_backups(self, site: Site) -> None:
        for found in self.world.secrets_of(site):
            if "captf.io/state-backup" in labels_of(found):
                data = {"tfstate": base64.b64encode(b"spoilt").decode()}
                self.world.client.patch(SECRET, name_of(found), {"data": data}, TEAM)

    def discard_retained(self, site: Site) -> None:
        """Delete what an earlier object retained, so that the next one starts afresh."""
        for found in self.world.secrets_of(site):
            if labels.RETAINED_FROM_UID in labels_of(found):
                self.world.remove(SECRET, name_of(found))

    def delete_running_job(self, number: int, effect: Effect, pod_stays: bool) -> None:
        for job in self._one_of_the_running(number):
            self.world.kill(job, effect, pod_stays=pod_stays)
        self._forget()

    def lose_owner_of_job(self, number: int) -> None:
        """What the collector does to the Job of an object that is deleted with ``--cascade=orphan``."""
        for job in self._one_of_the_running(number):
            self.world.client.patch(JOB, name_of(job), {"metadata": {"ownerReferences": None}}, TEAM)

    def delete_finished_jobs(self, site: Site) -> None:
        for job in self.world.stored(JOB):
            if finished(job) and self.world.site_of(job) == site:
                self.world.remove(JOB, name_of(job))
        self._forget()

    def delete_owner(self, site: Site) -> None:
        """Cluster API deletes the Machine, the MachinePool or the Cluster."""
        owner = site.cluster if site.kind == "TerraformCluster" else site.name
        self.world.remove(OWNER_KINDS[site.kind], owner)

    def strip_finalizer(self, site: Site) -> None:
        obj = self.world.object_at(site)
        if obj is None or not is_deleting(obj) or not finalizers_of(obj):
            return
        self._patch(site, {"metadata": {"finalizers": None}})
        self.world.cloud.excuse(site, "the finalizer was stripped")

    def change_identity(self, site: Site, change: str) -> None:
        match change:
            case "refuse":
                spec = {"spec": {"allowedNamespaces": {"selector": None, "list": ["elsewhere"]}}}
                self._try(lambda: self.world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, spec))
            case "no secret":
                self._try(
                    lambda: self.world.client.delete(
                        SECRET, f"{IDENTITY}-credentials", OPERATOR, propagation_policy="Background"
                    )
                )
            case "gone":
                self._try(
                    lambda: self.world.client.delete(
                        TERRAFORM_CLUSTER_IDENTITY, IDENTITY, propagation_policy="Background"
                    )
                )
            case _:
                self._repair_identity()

    def collect_garbage(self, site: Site) -> None:
        self.world.step()
        self._forget()

    def delete_namespace(self, site: Site, effect: Effect) -> None:
        """The namespace goes, and with it every Secret and Job; what runs may have done its work."""
        if self.world.terminating():
            return
        self.world.client.delete(NAMESPACE, TEAM, propagation_policy="Background")
        for job in self.world.unfinished():
            self.world.kill(job, effect)
        self.world.step()
        self._forget()

    def create_namespace(self, site: Site) -> None:
        if self.world.look(NAMESPACE, TEAM, "") is None:
            self.world.create(NAMESPACE, {"metadata": {"name": TEAM}})

    # How a story ends --------------------------------------------------------------------------------

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:
            return  # the story has failed already
        self._lead_all_to_their_end()
        self.world.check_outputs()

    def _lead_all_to_their_end(self) -> None:
        self.world.cache.hidden.clear()
        self._patch_cluster({"spec": {"paused": False}})
        for site in (MACHINE_SITE, POOL_SITE, CLUSTER_SITE):
            if self.world.object_at(site) is None:
                continue
            for key in (keys.PAUSED, keys.MANAGED_BY):
                self._annotate(site, key, None)
            if not is_deleting(self.world.object_at(site) or {}):
                self.world.delete(site.kind, site.name)
                self._forget()
            way = uid_of(self.world.object_at(site) or {})[:1] < "8"
            self._lead_to_its_end(site, "Retain" if way else "abandon")

    def _lead_to_its_end(self, site: Site, way: str) -> None:
        """First what the product is for, a destroy; then the way out that the messages name."""
        self._repair_identity()
        passed = self._follow(site, 10, "succeeded")
        if not self.world.guarded(site):
            return
        if way == "abandon":
            obj = self.world.object_at(site)
            assert obj is not None
            self._annotate(site, keys.ABANDON_INFRASTRUCTURE, uid_of(obj))
            passed = self._follow(site, 10, "failed")
        if self.world.guarded(site):
            self._patch(site, {"spec": {"deletionPolicy": "Retain"}})
            passed = self._follow(site, 10, "failed")
        assert not self.world.guarded(site), (
            f"nothing leads {site} to its end: {passed}, "
            f"{self.world.conditions_of(self.world.object_at(site) or {})}"
        )

    def _follow(self, site: Site, rounds: int, outcome: Outcome) -> Passed:
        passed = Passed()
        for _ in range(rounds):
            if not self.world.guarded(site):
                break
            for job in self.world.unfinished(site):
                self.world.finish(job, outcome)
            self._end_pods(site)
            passed = self.world.witness(site)
            self.world.advance(max(passed.requeue, 1))
        return passed

    def _end_pods(self, site: Site) -> None:
        """Pods whose Job is gone end."""
        jobs = {name_of(job) for job in self.world.stored(JOB)}
        for pod in self.world.stored(POD):
            if labels_of(pod).get("job-name") not in jobs:
                self.world.remove(POD, name_of(pod))

    # Small hands -------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self.world.forget_traces()

    def _patch(self, site: Site, patch: Object) -> None:
        if self.world.object_at(site) is not None:
            self._try(lambda: self.world.patch(site.kind, site.name, patch))

    def _annotate(self, site: Site, key: str, value: str | None) -> None:
        self._patch(site, {"metadata": {"annotations": {key: value}}})

    def _patch_cluster(self, patch: Object) -> None:
        if self.world.look(CLUSTER, "prod") is not None:
            self.world.client.patch(CLUSTER, "prod", patch, TEAM)

    def _repair_identity(self) -> None:
        spec = {"spec": {"allowedNamespaces": {"selector": {}, "list": None}}}
        self._try(lambda: self.world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, spec))
        credentials = secret(f"{IDENTITY}-credentials", {"TOKEN": "t0p-s3cret"})
        self._try(lambda: self.world.create(SECRET, credentials, OPERATOR))
        self._try(self.world.add_identity)

    def _try(self, action: Any) -> None:
        """What a user may try in vain."""
        try:
            action()
        except (AlreadyExists, Forbidden, Invalid, NotFound):
            return


@pytest.fixture(scope="module")
def chaos_world() -> Iterator[WitnessedWorld]:
    with WitnessedWorld() as world:
        yield world


@pytest.mark.timeout(3600)
def test_nothing_is_left_untracked_whatever_happens(chaos_world: WitnessedWorld) -> None:
    class Story(Chaos):
        world = chaos_world

    run_state_machine_as_test(Story, settings=chaos_profile(20))
