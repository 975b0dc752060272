"""Passes under observation: what each of them did, held against the promise."""

from __future__ import annotations

import copy
import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.chaos.cloud import CLUSTER_NAME, OP, OWNER_KIND, OWNER_NAME, STATE_MARKER, ChaosWorld, Site, Stored
from tests.world import KINDS, TEAM, Crash, secret

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.finalizers import finalizer_of
from captf_controllers.api.kinds import CLUSTER, TERRAFORM_CLUSTER
from captf_runtime import log
from captf_runtime.client.errors import ApiError, Forbidden
from captf_runtime.objects import (
    JOB,
    NAMESPACE,
    POD,
    SECRET,
    Object,
    annotations_of,
    has_finalizer,
    is_deleting,
    labels_of,
    name_of,
    owner_references,
    uid_of,
)
from captf_runtime.testing.faults import Action, Match

BOOTSTRAP_MARKER = "b00tstrap-s3cret"
VARIABLE_MARKER = "v4riable-s3cret"
OUTPUT_MARKER = "0utput-s3cret"
CREDENTIALS_MARKER = "t0p-s3cret"
MARKERS = (BOOTSTRAP_MARKER, VARIABLE_MARKER, OUTPUT_MARKER, CREDENTIALS_MARKER, STATE_MARKER)

TERMINAL = {
    "Destroyed",
    "FinalizerRemoved",
    "InfrastructureAbandoned",
    "InfrastructureRetained",
    "ExternallyManagedReleased",
}
ONCE_PER_JOB = {
    "JobCreated",
    "JobSucceeded",
    "JobFailed",
    "JobInterrupted",
    "JobDeadlineExceeded",
    "StateRestored",
    "StateRestoreFailed",
}
MUTATING = {"apply", "destroy", "restore"}
LAG, SHORT = 5, 1


@dataclass(frozen=True)
class Passed:
    """How a pass ended; ``disturbed`` when a crash or a fault struck it."""

    requeue: float = 0.0
    error: BaseException | None = None
    crashed: bool = False
    disturbed: bool = False
    progress: bool = True


@dataclass(frozen=True)
class Fault:
    """A fault of the API server during one pass."""

    action: Action
    verb: str | None = None
    resource: str | None = None
    after: int = 0
    times: int = 1


class WitnessedWorld(ChaosWorld):
    """A chaos world whose passes are checked. Secrets hold markers that must never be seen again."""

    def __enter__(self) -> WitnessedWorld:
        self.log = io.StringIO()
        log.configure("debug", "json", self.log)
        super().__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        log.configure("warning", "text")

    def extra_outputs(self, kind: str) -> dict[str, Any]:
        return {"exports": {"network_id": OUTPUT_MARKER}} if kind == "TerraformCluster" else {}

    def add(
        self, kind: str, name: str, *, cluster: str = "prod", namespace: str = TEAM, **spec: Any
    ) -> Object:
        self._ensure(SECRET, secret(f"{name}-bootstrap", {"value": BOOTSTRAP_MARKER}), namespace)
        source = secret("variables", {"password": VARIABLE_MARKER})
        source["metadata"]["labels"] = {"captf.io/variables": "true"}
        self._ensure(SECRET, source, namespace)
        spec.setdefault("variablesFrom", [{"secretRef": {"name": "variables"}}])
        return super().add(kind, name, cluster=cluster, namespace=namespace, **spec)

    # Looking

    def object_at(self, site: Site) -> Object | None:
        return self.look(KINDS[site.kind], site.name)

    def guarded(self, site: Site) -> bool:
        """CAPTF's finalizer is on."""
        obj = self.object_at(site)
        return obj is not None and has_finalizer(obj, finalizer_of(site.kind))

    def secrets_of(self, site: Site) -> list[Object]:
        """Everything that is kept for the object under its names."""
        records = {
            names.durable_inputs_secret(site.kind, site.name),
            names.applied_inputs_secret(site.kind, site.name),
        }
        return [
            found
            for found in self.stored(SECRET)
            if name_of(found) in records
            or labels_of(found).get("tfstateSecretSuffix") == site.suffix
            or labels_of(found).get("captf.io/state-backup-suffix") == site.suffix
        ]

    def retained_from(self, site: Site, uid: str) -> list[Object]:
        """The Secrets under the object's names that another object retained."""
        return [
            found
            for found in self.secrets_of(site)
            if labels_of(found).get(labels.RETAINED_FROM_UID, uid) != uid
        ]

    def paused(self, obj: Object) -> bool:
        cluster = self.look(CLUSTER, labels_of(obj).get(CLUSTER_NAME, ""))
        by_cluster = cluster is not None and (cluster.get("spec") or {}).get("paused") is True
        return by_cluster or keys.PAUSED in annotations_of(obj)

    def retains(self, obj: Object) -> bool:
        """Whether anything that an effective policy may come from says Retain."""
        own = obj["spec"].get("deletionPolicy")
        if own is not None or obj["kind"] == "TerraformCluster":
            return bool(own == "Retain")
        cluster = self.look(TERRAFORM_CLUSTER, "prod")
        spec = cluster["spec"] if cluster is not None else {}
        inherited = (spec.get("defaults") or {}).get("deletionPolicy") or spec.get("deletionPolicy")
        remembered = (obj.get("status") or {}).get("effectiveDeletionPolicy")
        return "Retain" in (inherited, remembered)

    def terminating(self) -> bool:
        namespace = self.look(NAMESPACE, TEAM, "")
        return namespace is None or is_deleting(namespace)

    def conditions_of(self, obj: Object) -> dict[str, Object]:
        return {item["type"]: item for item in (obj.get("status") or {}).get("conditions") or ()}

    # Users make up for what they removed

    def forget_traces(self) -> None:
        """What exists of an object of which a user removed every trace is nobody's to know of."""
        for site in set(self.cloud.existing.values()):
            if not self.traces(site):
                self.cloud.excuse(site, "every trace was removed")

    def traces(self, site: Site) -> bool:
        """Whether anything tells that the object ever applied, or may have."""
        if self.state_of(site).secrets:
            return True
        for found in self.secrets_of(site):
            notes = annotations_of(found)
            if "captf.io/state-backup-suffix" in labels_of(found):
                return True
            if {keys.APPLIED, keys.IMAGE_DIGEST, keys.UNCONFIRMED_APPLY} & set(notes):
                return True
        obj = self.object_at(site)
        if obj is not None:
            status = obj.get("status") or {}
            if (status.get("initialization") or {}).get("provisioned"):
                return True
            if (status.get("activeJob") or {}).get("operation") == "apply":
                return True
            if is_deleting(obj) and annotations_of(obj).get(keys.APPLIED_AS) == site.suffix:
                return True
            if keys.UNCONFIRMED_APPLY in annotations_of(obj):
                return True
        return any(run.op == "apply" and run.site == site for run in self._standing_runs())

    def _standing_runs(self) -> Iterator[Any]:
        for job in self.stored(JOB):
            if uid_of(job) in self.cloud.runs:
                yield self.cloud.runs[uid_of(job)]

    # Passes

    def witness(self, site: Site, *, crash_after: int | None = None, fault: Fault | None = None) -> Passed:
        """One pass of the object, and everything that must hold about it."""
        before = copy.deepcopy(self.object_at(site))
        state = self.state_of(site)
        kept = self._retained_copies(site, before)
        known = {uid_of(job) for job in self.stored(JOB)}
        said = len(self.events.events)
        passed = self._run(site, crash_after, fault)
        after = self.object_at(site)
        new = [run for run in self.note_jobs() if run.site == site]
        events = self.events.events[said:]

        self._check_error(passed)
        self._check_release(site, before, after, events, passed)
        for run in new:
            self._check_start(run.op, before, state)
        self._check_retained(site, before, kept)
        self._check_overlap()
        self._check_events()
        self._check_secrecy(after)
        assert not self.cloud.duplicates, self.cloud.duplicates
        self._take_up_owned(site, after)
        progress = _version(before) != _version(after) or bool(
            {uid_of(job) for job in self.stored(JOB)} ^ known
        )
        passed = Passed(passed.requeue, passed.error, passed.crashed, passed.disturbed, progress)
        self._check_way_out(site, after, passed)
        if passed.crashed:
            self.restart()
        return passed

    def _run(self, site: Site, crash_after: int | None, fault: Fault | None) -> Passed:
        def die(number: int) -> None:
            if number == crash_after:
                raise Crash

        with self._faulty(fault) as struck:
            self.write_watch.watch(die if crash_after is not None else None)
            try:
                requeue, error, crashed = self.reconcile(site.kind, site.name), None, False
            except Crash as crash:
                requeue, error, crashed = 0.0, crash, True
            except (ApiError, ExceptionGroup) as failure:
                requeue, error, crashed = 0.0, failure, False
            finally:
                self.write_watch.watch(None)
            disturbed = crashed or struck()
        return Passed(requeue, error, crashed, disturbed)

    @contextmanager
    def _faulty(self, fault: Fault | None) -> Iterator[Callable[[], bool]]:
        if fault is None:
            yield lambda: False
            return
        match = Match(verb=fault.verb, resource=fault.resource, user=self.manager_user)
        added = self.server.faults.add(match, fault.action, times=fault.times, after=fault.after)
        try:
            yield lambda: added.hits > 0
        finally:
            added.remove()

    # What must hold

    def _check_error(self, passed: Passed) -> None:
        if passed.disturbed or passed.error is None:
            return
        for error in _leaves(passed.error):
            refused = isinstance(error, Forbidden) and self.terminating()
            assert refused, f"an undisturbed pass failed: {type(error).__name__}: {error}"

    def _check_release(
        self, site: Site, before: Object | None, after: Object | None, events: list[Any], passed: Passed
    ) -> None:
        terminal = [event for event in events if event["reason"] in TERMINAL]
        had = before is not None and has_finalizer(before, finalizer_of(site.kind))
        has = after is not None and has_finalizer(after, finalizer_of(site.kind))
        if has:
            assert not terminal, f"a terminal event while the finalizer is on: {terminal}"
        if not had or has or before is None:
            return
        assert is_deleting(before), "the finalizer came off an object that nobody deletes"
        reasons = [event["reason"] for event in terminal]
        if not passed.disturbed:
            assert reasons in (
                ["Destroyed", "FinalizerRemoved"],
                ["FinalizerRemoved"],
                ["InfrastructureAbandoned"],
                ["InfrastructureRetained"],
                ["ExternallyManagedReleased"],
            ), reasons
            series = f'name="{site.name}"'
            left = [line for line in self.scrape().splitlines() if series in line and site.kind in line]
            assert not left, left
        running = [name_of(job) for job in self.unfinished(site)]
        assert not running, f"the finalizer came off while {running} run"
        notes = annotations_of(before)
        external = keys.MANAGED_BY in notes
        retained = self.retains(before)
        abandoned = notes.get(keys.ABANDON_INFRASTRUCTURE) == uid_of(before)
        if not external:
            assert not self.paused(before), "a paused object was released"
        left = self.cloud.tracked(site)
        if not left:
            return
        assert external or retained or abandoned, (
            f"the finalizer of {site} came off ({reasons}) while {left} exist and nobody gave them up"
        )
        if external or retained:
            state = self.state_of(site)
            # A state that lists nothing is held as lost; Retain lets go of that, as the message says.
            if not self.terminating() and state.ids:
                assert set(left) <= set(state.ids), "what was retained is not in the retained state"
        if abandoned and not (retained or external) and not passed.disturbed:
            assert reasons == ["InfrastructureAbandoned"], reasons
        self.cloud.excuse(site, "given up by a user")

    def _check_start(self, op: str, before: Object | None, state: Stored) -> None:
        assert before is not None
        if op == "destroy":
            assert is_deleting(before), "a live object is destroyed"
            assert state.readable, f"a destroy starts on a state that does not read: {state}"
        elif op != "restore":
            assert not is_deleting(before), f"a deleting object starts a {op}"
        assert not self.paused(before), f"a {op} of a paused object starts"

    def _retained_copies(self, site: Site, obj: Object | None) -> dict[str, Object]:
        if obj is None:
            return {}
        return {name_of(found): copy.deepcopy(found) for found in self.retained_from(site, uid_of(obj))}

    def _check_retained(self, site: Site, obj: Object | None, kept: dict[str, Object]) -> None:
        if obj is None or not kept:
            return
        adopting = bool(obj["spec"].get("adoptRetainedState"))
        for name, then in kept.items():
            now = self.look(SECRET, name)
            assert now is not None, f"retained Secret {name} was deleted"
            assert now.get("data") == then.get("data"), f"retained Secret {name} was changed"
            assert owner_references(now) == owner_references(then), f"retained Secret {name} was owned"
            if not adopting:
                assert labels_of(now) == labels_of(then), f"retained Secret {name} was relabelled"

    def _check_overlap(self) -> None:
        """Never two Jobs of an object, nor a cluster's beside a machine's, by Jobs and by pods."""
        running: dict[Site, set[str]] = {}
        changing: dict[str, set[str]] = {}
        for job in self.unfinished():
            running.setdefault(self.site_of(job), set()).add(name_of(job))
            if labels_of(job)[OP] in MUTATING:
                changing.setdefault(labels_of(job)[OWNER_KIND], set()).add(name_of(job))
        for pod in self.stored(POD):
            if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or OP not in labels_of(pod):
                continue
            owner = Site(labels_of(pod)[OWNER_KIND], labels_of(pod)[OWNER_NAME])
            running.setdefault(owner, set()).add(labels_of(pod)["job-name"])
        for site, jobs in running.items():
            assert len(jobs) <= 1, f"two Jobs of {site} run: {sorted(jobs)}"
        assert not (changing.get("TerraformCluster") and len(changing) > 1), f"changes overlap: {changing}"

    def _check_events(self) -> None:
        terminal = Counter(
            (event["uid"], event["reason"]) for event in self.events.events if event["reason"] in TERMINAL
        )
        named = Counter(run.name for run in self.cloud.runs.values())
        per_job = Counter(
            (event["uid"], event["reason"], event["related"])
            for event in self.events.events
            if event["reason"] in ONCE_PER_JOB and event["related"]
        )
        twice = [key for key, count in terminal.items() if count > 1]
        # A Job that was deleted by hand may leave its name to the next one.
        twice += [key for key, count in per_job.items() if count > max(named[key[2]], 1)]
        assert not twice, f"said twice: {twice}"

    def _check_secrecy(self, obj: Object | None) -> None:
        texts = [str(self.conditions_of(obj))] if obj is not None else []
        texts += [str(event) for event in self.events.events]
        assert_secret(" ".join(texts), "conditions and events")

    def check_outputs(self) -> None:
        """Neither the log nor the metrics say anything secret."""
        assert_secret(self.log.getvalue(), "the log")
        assert_secret(self.scrape(), "the metrics")

    def _take_up_owned(self, site: Site, obj: Object | None) -> None:
        """What a state lists that a guarded object owns is tracked (again)."""
        state = self.state_of(site)
        if obj is None or not state.readable or not has_finalizer(obj, finalizer_of(site.kind)):
            return
        for name in state.secrets:
            found = self.look(SECRET, name)
            if found is None or labels.RETAINED_FROM_UID in labels_of(found):
                return
            if uid_of(obj) not in {reference.uid for reference in owner_references(found)}:
                return
        self.cloud.take_up(state.ids or ())

    def _check_way_out(self, site: Site, obj: Object | None, passed: Passed) -> None:
        """A deleting object that waits says what for and how to leave."""
        if obj is None or not is_deleting(obj) or not has_finalizer(obj, finalizer_of(site.kind)):
            return
        if passed.disturbed or passed.progress or self.cache.hidden or passed.requeue == SHORT:
            return
        conditions = self.conditions_of(obj)
        said = {type_: str(item.get("message", "")) for type_, item in conditions.items()}
        deleting = said.get("Deleting", "")
        if keys.MANAGED_BY in annotations_of(obj) or passed.requeue == LAG or self.unfinished(site):
            named = "waits for" in deleting or "unpaused" in deleting
        elif self.paused(obj):
            named = "until the object is unpaused" in deleting
        elif conditions.get("DeletionBlocked", {}).get("status") == "True":
            named = "must go first" in said["DeletionBlocked"]
        else:
            waiting = [
                said.get(type_, "")
                for type_ in ("Deleting", "StateReadable", "ApplyJobSucceeded", "RestoreJobSucceeded")
            ]
            named = any("Ways out: " in text for text in waiting)
        assert named, f"{site} waits {passed.requeue} s and names no way out: {said} ({passed.error})"


def assert_secret(text: str, where: str) -> None:
    """No marker is in the text."""
    for marker in MARKERS:
        at = text.find(marker)
        assert at < 0, f"{marker} is in {where}: …{text[max(0, at - 200) : at + 50]}…"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _version(obj: Object | None) -> str:
    return str(obj["metadata"]["resourceVersion"]) if obj is not None else ""
