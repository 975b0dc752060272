"""A cloud that remembers what really exists, and the runs that change it.

Expected flow: a run reads its object's state when its pod starts, and takes a missing one for an empty one, as
Terraform does; ending the run changes the cloud and, as far as the outcome lets it, the state Secrets. The
cloud knows nothing of CAPTF: what exists is what applies created and no destroy removed.

A resource is *excused* once a user decided to leave it untracked, or made that so: abandon, Retain, external
management, a stripped finalizer, a restore of a state that does not know it, a wrong confirmation, or the
removal of every trace. The promise is about all the others.
"""

from __future__ import annotations

import base64
import copy
import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests import state_secrets
from tests.world import OUTPUTS, TEAM, Outcome, World

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_runtime.client.errors import AlreadyExists, Forbidden, NotFound
from captf_runtime.objects import (
    JOB,
    POD,
    SECRET,
    Kind,
    Object,
    annotations_of,
    labels_of,
    name_of,
    uid_of,
)
from captf_runtime.testing.clock import VirtualClock

OP = "captf.infrastructure.cluster.x-k8s.io/op"
OWNER_KIND = "captf.infrastructure.cluster.x-k8s.io/owner-kind"
OWNER_NAME = "captf.infrastructure.cluster.x-k8s.io/owner-name"
CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"

Effect = Literal["nothing", "done", "done-unwritten"]
"""How far a run came that did not succeed: what it changed, and whether the state says so."""


@dataclass(frozen=True)
class Site:
    """Where an object lives: what its Secrets are named after."""

    kind: str
    name: str

    @property
    def suffix(self) -> str:
        return names.state_suffix(TEAM, self.kind, self.name)

    @property
    def cluster(self) -> str:
        return self.name if self.kind == "TerraformCluster" else "prod"


@dataclass(frozen=True)
class Stored:
    """The state as it is kept: ``ids`` None when it does not read, and no Secrets when there is none."""

    ids: tuple[str, ...] | None = None
    serial: int = 0
    secrets: tuple[str, ...] = ()
    lineage: str = ""

    @property
    def missing(self) -> bool:
        return not self.secrets

    @property
    def readable(self) -> bool:
        return self.ids is not None


@dataclass
class Run:
    """What the cloud knows of a Job. ``lineage`` is the one that it insists on; ``refused``: it found another."""

    name: str
    op: str
    site: Site
    state: Stored
    backup: bytes | None = None
    lineage: str = ""
    started: bool = False
    refused: bool = False


@dataclass
class Cloud:
    """What exists, and where it belongs."""

    existing: dict[str, Site] = field(default_factory=dict)
    excused: dict[str, str] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    duplicates: list[str] = field(default_factory=list)
    made: int = 0

    def tracked(self, site: Site) -> list[str]:
        """What exists of an object and must not be forgotten."""
        return [name for name, owner in self.existing.items() if owner == site and name not in self.excused]

    def excuse(self, site: Site, why: str, *, except_for: Sequence[str] = ()) -> None:
        for resource in self.tracked(site):
            if resource not in except_for:
                self.excused[resource] = why

    def take_up(self, resources: Sequence[str]) -> None:
        """Somebody tracks these again."""
        for resource in resources:
            self.excused.pop(resource, None)

    def apply(self, run: Run) -> tuple[str, ...]:
        """Bring about what the configuration asks for: one resource, kept if the state knows it."""
        known = tuple(name for name in run.state.ids or () if name in self.existing)
        if known:
            self.take_up(known)
            return known
        already = self.tracked(run.site)
        if already:
            self.duplicates.append(f"Job {run.name} creates what exists already as {', '.join(already)}")
        self.made += 1
        resource = f"{run.site.name}-resource-{self.made}"
        self.existing[resource] = run.site
        return (resource,)

    def destroy(self, run: Run) -> None:
        for resource in run.state.ids or ():
            self.existing.pop(resource, None)
            self.excused.pop(resource, None)


class RestlessClock(VirtualClock):
    """A clock on which whoever sleeps moves time, so that a lone pass can wait."""

    def sleep(self, seconds: float, stop: Any = None) -> bool:
        self.advance(seconds)
        return bool(stop is not None and stop.is_set())


class ChaosWorld(World):
    """A world whose Jobs change a cloud. The manager has its shipped role alone, and faults strike it alone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(clock=RestlessClock(), shipped_role=True, seed=1, **options)
        self.cloud = Cloud()
        self._clouds: dict[str, Cloud] = {}
        #: Whether runners look whether the state is the one that a destroy was started for.
        self.runners_look = True

    def stage_cloud(self, name: str, build: Any) -> None:
        """`stage`, with the cloud."""

        def build_both() -> None:
            self.cloud = Cloud()
            build()
            self._clouds[name] = copy.deepcopy(self.cloud)

        self.stage(name, build_both)
        self.cloud = copy.deepcopy(self._clouds[name])

    # What is there, read past HTTP

    def stored(self, kind: Kind, namespace: str = TEAM) -> list[Object]:
        """All objects of a kind; not to be changed."""
        return self.server.objects.items(kind, namespace)

    def look(self, kind: Kind, name: str, namespace: str = TEAM) -> Object | None:
        return self.server.objects.get(kind, namespace, name)

    def state_of(self, site: Site) -> Stored:
        """The state as Terraform would read it, decoded by the test's own hand."""
        chunks = {
            name_of(secret): secret
            for secret in self.stored(SECRET)
            if labels_of(secret).get("tfstateSecretSuffix") == site.suffix
            and labels_of(secret).get("tfstate") == "true"
            and labels_of(secret).get("tfstateWorkspace") == "default"
        }
        if not chunks:
            return Stored()
        found = tuple(sorted(chunks))
        ordered = [names.state_chunk(site.suffix, index) for index in range(len(chunks))]
        if sorted(ordered) != sorted(chunks):
            return Stored(secrets=found)
        try:
            payload = b"".join(base64.b64decode(chunks[name]["data"]["tfstate"]) for name in ordered)
            stream = zlib.decompressobj(wbits=31)
            document = json.loads(stream.decompress(payload))
            if not stream.eof or document["version"] != 4:
                return Stored(secrets=found)
            return Stored(ids_of(document), document["serial"], found, str(document.get("lineage")))
        except (KeyError, ValueError, zlib.error, TypeError):
            return Stored(secrets=found)

    # Runs

    def site_of(self, job: Object) -> Site:
        return Site(labels_of(job)[OWNER_KIND], labels_of(job)[OWNER_NAME])

    def note_jobs(self) -> list[Run]:
        """Take note of the Jobs that are new."""
        new = []
        for job in self.stored(JOB):
            if uid_of(job) in self.cloud.runs or OP not in labels_of(job):
                continue
            site = self.site_of(job)
            lineage = annotations_of(job).get(keys.STATE_LINEAGE, "")
            run = Run(
                name_of(job), labels_of(job)[OP], site, self.state_of(site), self._backup_of(job), lineage
            )
            self.cloud.runs[uid_of(job)] = run
            new.append(run)
        return new

    def run_of(self, job: Object) -> Run:
        self.note_jobs()
        return self.cloud.runs[uid_of(job)]

    def unfinished(self, site: Site | None = None) -> list[Object]:
        return [
            job
            for job in self.stored(JOB)
            if OP in labels_of(job) and not finished(job) and (site is None or self.site_of(job) == site)
        ]

    def begin(self, job: Object) -> None:
        """The pod of a Job runs."""
        run = self.run_of(job)
        if self._has_pod(job):
            self._read(run)

    def _has_pod(self, job: Object) -> bool:
        """Whether the pod could be made: not where its ServiceAccount was swept, as of a stripped object."""
        if self.look(POD, f"{name_of(job)}-x7k2p") is None:
            try:
                self.start_pod(self.client.get(JOB, name_of(job), TEAM))
            except Forbidden:
                return False
        return True

    def _read(self, run: Run) -> None:
        """The run has initialised its backend: it knows the state, and made one where there was none."""
        if run.started:
            return
        run.started, run.state = True, self.state_of(run.site)
        if self._another(run):
            run.refused = True
            return
        if run.state.missing and self._stored(run, (), {}, 1):
            run.state = self.state_of(run.site)

    def _another(self, run: Run) -> bool:
        """Whether the state is not the one that the run insists on."""
        return self.runners_look and run.lineage not in ("", self.state_of(run.site).lineage)

    def finish(self, job: Object, outcome: Outcome, effect: Effect = "nothing", pieces: int = 1) -> None:
        """End a Job. ``effect`` says how far one came that did not succeed."""
        run = self.run_of(job)
        if not self._has_pod(job):
            self.end_job(job, succeeded=False)
            return
        if outcome in ("image-layout", "pull-failed", "blocked"):
            effect = "nothing"
        else:
            self._read(run)
        if outcome not in ("no-result",) and effect == "done-unwritten":
            effect = "done"
        if outcome == "succeeded" and not self.change(run, "done", pieces, complete=True):
            outcome, effect = "failed", "nothing"
        elif outcome != "succeeded" and not self.change(run, effect, pieces, complete=False):
            outcome = "no-result"
        reached = effect != "nothing"
        steps = ("init", "validate", "apply") if reached or outcome == "succeeded" else ("init", "validate")
        self.finish_job(self.client.get(JOB, name_of(job), TEAM), outcome, steps=steps)

    def kill(self, job: Object, effect: Effect, *, pod_stays: bool = False) -> None:
        """Delete a Job while it runs, by hand or with its namespace."""
        run = self.run_of(job)
        if run.started:
            self.change(run, effect, 1, complete=False)
        try:
            self.client.delete(JOB, name_of(job), TEAM, propagation_policy="Background")
            if not pod_stays:
                self.client.delete(POD, f"{name_of(job)}-x7k2p", TEAM, propagation_policy="Background")
        except NotFound:
            return

    def change(self, run: Run, effect: Effect, pieces: int, *, complete: bool) -> bool:
        """Do to cloud and state what a run does. False when the run could not have done that."""
        if effect == "nothing":
            return True
        if run.refused:
            return False
        if run.state.secrets and not run.state.readable and run.op != "restore":
            return False
        match run.op:
            case "apply":
                ids = self.cloud.apply(run)
                outputs = {**OUTPUTS[run.site.kind], **self.extra_outputs(run.site.kind)} if complete else {}
                if effect == "done-unwritten":
                    return True
                try:
                    self.store(run, ids, outputs, pieces)
                except Forbidden:
                    return False
                return True
            case "destroy":
                # What the runtime destroys is what it reads, and that may have gone since the run began.
                run.state = self.state_of(run.site)
                self.cloud.destroy(run)
                if effect == "done-unwritten":
                    return True
                return self._stored(run, (), {}, pieces) and not self._another(run)
            case "restore":
                return self._push(run, pieces)
            case "refresh" | "drift":
                # Over a state that lists nothing, what a refresh stores is the outputs that need no resource.
                run.state = self.state_of(run.site)
                if run.state.ids:
                    return True
                return self._stored(run, (), OUTPUTS[run.site.kind], pieces) and not self._another(run)
            case _:
                return True

    def extra_outputs(self, kind: str) -> dict[str, Any]:
        return {}

    def store(self, run: Run, ids: Sequence[str], outputs: dict[str, Any], pieces: int) -> None:
        """Write a state as the backend does: a new serial of the lineage that was read, and its chunks."""
        site = run.site
        serial = max(self.state_of(site).serial, 0) + 1
        document = json.loads(state_secrets.document(serial=serial, outputs=outputs, resources=0))
        document["lineage"] = run.state.lineage or self._new_lineage()
        document["resources"] = [
            {
                "mode": "managed",
                "type": "x",
                "name": "r",
                "instances": [{"attributes": {"id": name, "key": STATE_MARKER}}],
            }
            for name in ids
        ]
        self._write(site, json.dumps(document).encode(), pieces)

    def _new_lineage(self) -> str:
        self.cloud.made += 1
        return f"lineage-{self.cloud.made}"

    def _stored(self, run: Run, ids: Sequence[str], outputs: dict[str, Any], pieces: int) -> bool:
        try:
            self.store(run, ids, outputs, pieces)
        except Forbidden:
            return False
        return True

    def _write(self, site: Site, document: bytes, pieces: int) -> None:
        payload = state_secrets.payload(document)
        parts = state_secrets.chunks_of(payload, -(-len(payload) // pieces))
        made = state_secrets.state_secrets(
            parts,
            suffix=site.suffix,
            namespace=TEAM,
            labels=names.state_labels(site.kind, site.name, site.cluster),
        )
        before = self.state_of(site).secrets
        for secret in made:
            try:
                self.client.create(SECRET, secret, TEAM)
            except AlreadyExists:
                self.client.patch(SECRET, name_of(secret), {"data": secret["data"]}, TEAM)
        for surplus in set(before) - {name_of(secret) for secret in made}:
            self.remove(SECRET, surplus)

    def remove(self, kind: Kind, name: str) -> None:
        try:
            self.client.delete(kind, name, TEAM, propagation_policy="Background")
        except NotFound:
            return

    def _push(self, run: Run, pieces: int) -> bool:
        if run.backup is None:
            return False
        try:
            document = json.loads(gzip.decompress(run.backup))
        except (OSError, EOFError, ValueError):
            return False
        # A forced push stores the pushed serial plus one.
        document["serial"] = int(document["serial"]) + 1
        try:
            self._write(run.site, json.dumps(document).encode(), pieces)
        except Forbidden:
            return False
        known = [name for name in ids_of(document) if name in self.cloud.existing]
        self.cloud.take_up(known)
        self.cloud.excuse(run.site, "a state was restored that does not know it", except_for=known)
        return True

    def _backup_of(self, job: Object) -> bytes | None:
        """The payload that a restore Job mounts."""
        if keys.RESTORE_SERIAL not in annotations_of(job):
            return None
        volumes = job["spec"]["template"]["spec"]["volumes"]
        sources = next(volume for volume in volumes if volume["name"] == "config")["projected"]["sources"]
        pieces: dict[int, bytes] = {}
        for source in sources:
            for item in source["secret"].get("items") or ():
                if not item["path"].startswith("restore/"):
                    continue
                secret = self.look(SECRET, source["secret"]["name"])
                if secret is None:
                    return None
                pieces[int(item["path"].removeprefix("restore/"))] = base64.b64decode(
                    secret["data"]["tfstate"]
                )
        return b"".join(pieces[index] for index in sorted(pieces))

    def _write_state(self, job: Object, op: str, outputs: Any, resources: int, serial: int | None) -> None:
        """Nothing: the cloud has written it."""

    def provision(self, kind: str, name: str) -> None:
        self.settle(kind, name)
        self.finish(self.running_job(name, op="apply"), "succeeded")
        self.settle(kind, name)


STATE_MARKER = "st4te-s3cret"


def ids_of(document: Any) -> tuple[str, ...]:
    return tuple(
        str(instance["attributes"]["id"])
        for resource in document["resources"]
        for instance in resource["instances"]
        if resource["mode"] == "managed"
    )


def finished(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(item["type"] in ("Complete", "Failed") and item["status"] == "True" for item in conditions)


__all__ = ["ChaosWorld", "Cloud", "Effect", "Run", "Site", "Stored", "finished"]
