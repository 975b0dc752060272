"""One object of one kind on its way out, in the words that deletion tests are written in."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.world import FOREIGN_FINALIZER, KINDS, TEAM, Outcome, World

from captf_controllers.api import labels, names
from captf_controllers.api.finalizers import finalizer_of
from captf_controllers.api.kinds import OWNER_KINDS
from captf_runtime.objects import LEASE, SECRET, Object, labels_of, name_of, uid_of

NAMES = {"TerraformCluster": "c1", "TerraformMachine": "m1", "TerraformMachinePool": "p1"}


@dataclass
class Case:
    """An object under test, called c1, m1 or p1 by its kind, in a world of its own.

    Expected flow::

        case.provision()
        case.delete()
        assert case.reconcile() == 60
        case.end("failed")
        assert case.says("ApplyJobSucceeded") == "False/DestroyFailed"

    ``delete`` puts a foreign finalizer on first, so that the conditions of the last pass can be read.
    """

    world: World
    kind: str

    @property
    def name(self) -> str:
        return NAMES[self.kind]

    @property
    def cluster(self) -> str:
        """The name of the Cluster that the object belongs to."""
        return self.name if self.kind == "TerraformCluster" else "prod"

    @property
    def short(self) -> str:
        return names.kind_short(self.kind)

    @property
    def suffix(self) -> str:
        return names.state_suffix(TEAM, self.kind, self.name)

    @property
    def finalizer(self) -> str:
        return finalizer_of(self.kind)

    # Life

    def add(self, **spec: Any) -> Object:
        """Create the object; nothing has reconciled it yet."""
        if self.kind != "TerraformCluster":
            self.world.stage("a cluster", self.world.ensure_cluster)
        return self.world.add(self.kind, self.name, cluster=self.cluster, **spec)

    def provision(self, **spec: Any) -> None:
        """Create the object and apply it; Ready afterwards."""

        def build() -> None:
            self.add(**spec)
            self.world.provision(self.kind, self.name)

        self.world.stage(f"{self.kind} {spec}", build)

    def delete(self, *, keep: bool = True, policy: str = "Background") -> None:
        if keep:
            self.world.keep(self.kind, self.name)
        self.world.delete(self.kind, self.name, policy=policy)

    def destroying(self, **spec: Any) -> Object:
        """Provision and delete it; the destroy Job that the first pass starts."""
        self.provision(**spec)
        self.delete()
        assert self.reconcile() == 60
        return self.job("destroy")

    def reconcile(self) -> float:
        """One pass; the seconds until the next."""
        return self.world.reconcile(self.kind, self.name)

    def settle(self) -> float:
        return self.world.settle(self.kind, self.name)

    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    # Jobs

    def job(self, op: str = "") -> Object:
        """The one Job of the object that runs."""
        return self.world.running_job(self.name, op=op or None)

    def jobs(self, op: str = "") -> list[Object]:
        """The Jobs of the object that there are, oldest first."""
        return self.world.jobs(self.name, op=op or None)

    def created_jobs(self) -> list[str]:
        """The names of every Job that was ever created for the object, in order."""
        return [event["related"] for event in self.world.events.of("JobCreated", self.name)]

    def end(self, outcome: Outcome = "succeeded", **more: Any) -> None:
        """End the Job that runs."""
        self.world.finish_job(self.job(), outcome, **more)

    def fail(self, times: int = 1, outcome: Outcome = "failed") -> list[float]:
        """Let the destroy that runs fail, wait its backoff out, and so on; the waits in seconds.

        The last failure is taken note of and its backoff has just begun.
        """
        waits: list[float] = []
        for _ in range(times):
            if waits:
                self.advance(waits[-1])
                assert self.reconcile() == 60
            self.end(outcome)
            waits.append(self.reconcile())
        return waits

    # What there is

    @property
    def object(self) -> Object:
        return self.world.get(self.kind, self.name)

    @property
    def uid(self) -> str:
        return uid_of(self.object)

    @property
    def status(self) -> Object:
        status: Object = self.object.get("status") or {}
        return status

    @property
    def released(self) -> bool:
        """CAPTF's finalizer is off."""
        return self.world.released(self.kind, self.name)

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.object["metadata"].get("annotations") or {})

    def says(self, type_: str) -> str:
        """A condition as ``Status/Reason``, empty when it is absent."""
        return self.world.says(self.kind, self.name, type_)

    def message(self, type_: str) -> str:
        return str(self.world.condition(self.kind, self.name, type_).get("message", ""))

    def reasons(self) -> list[str]:
        """The reasons of the events about the object, in order."""
        return self.world.events.reasons(self.name)

    def notes(self, reason: str) -> list[str]:
        """The notes of the events of one reason."""
        return [event["note"] for event in self.world.events.of(reason, self.name)]

    def states(self) -> list[Object]:
        return self.world.state_secrets(self.kind, self.name)

    def backups(self) -> list[Object]:
        return self.world.backups(self.kind, self.name)

    def has_secret(self, name: str) -> bool:
        return self.world.exists(SECRET, name)

    @property
    def inputs_secrets(self) -> tuple[str, str]:
        """The names of the durable and the applied inputs Secret."""
        return (
            names.durable_inputs_secret(self.kind, self.name),
            names.applied_inputs_secret(self.kind, self.name),
        )

    def own_leases(self) -> list[str]:
        """The names of CAPTF's leases of the object."""
        return [
            name_of(lease)
            for lease in self.world.client.list(LEASE, TEAM).items
            if labels_of(lease).get(labels.OWNER_NAME) == self.name
            and labels_of(lease).get(labels.OWNER_KIND) == self.kind
        ]

    def holder(self) -> str:
        """Who holds the object's run lease."""
        return self.holder_of(names.run_lease(self.suffix))

    def holder_of(self, lease: str) -> str:
        found = self.world.client.get(LEASE, lease, TEAM)
        return str((found.get("spec") or {}).get("holderIdentity") or "")

    # What somebody does

    def patch(self, patch: Object, **more: Any) -> None:
        self.world.patch(self.kind, self.name, patch, **more)

    def annotate(self, **annotations: str | None) -> None:
        self.world.annotate(self.kind, self.name, **annotations)

    def abandon(self, value: str | None = None) -> None:
        """Annotate with the UID, or with another value."""
        self.annotate(abandon_infrastructure=self.uid if value is None else value)

    def restore(self, serial: object) -> None:
        self.annotate(restore_state=str(serial))

    def spec(self, **changes: Any) -> None:
        self.patch({"spec": changes})

    def remove_secrets(self, found: Iterable[Object]) -> None:
        """Delete Secrets by hand."""
        for secret in found:
            self.remove_secret(name_of(secret))

    def remove_secret(self, name: str) -> None:
        self.world.client.delete(SECRET, name, TEAM, propagation_policy="Background")

    def remove_inputs(self) -> None:
        """Delete both inputs Secrets by hand."""
        for name in self.inputs_secrets:
            self.remove_secret(name)

    def remove_owner(self) -> None:
        """Delete the Machine, MachinePool or Cluster that owns the object."""
        name = name_of_owner(self.object)
        self.world.client.delete(OWNER_KINDS[self.kind], name, TEAM, propagation_policy="Background")

    def files_of(self, secret: str) -> dict[str, bytes]:
        """The decoded content of a Secret."""
        found = self.world.client.get(SECRET, secret, TEAM)
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}

    def run_files(self, job: Object) -> dict[str, bytes]:
        """What a Job renders: the content of its own Secret."""
        return self.files_of(names.per_run_secret(name_of(job)))


def name_of_owner(obj: Object) -> str:
    return str(obj["metadata"]["ownerReferences"][0]["name"])


def arguments_of(job: Object) -> list[str]:
    """What the runner of a Job is started with."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    return [*(container.get("command") or []), *(container.get("args") or [])]


def image_of(job: Object) -> str:
    return str(job["spec"]["template"]["spec"]["containers"][0]["image"])


__all__ = ["FOREIGN_FINALIZER", "KINDS", "NAMES", "Case", "arguments_of", "image_of", "name_of_owner"]
