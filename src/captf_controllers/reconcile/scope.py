"""One pass over one object: what it knows, what it changed in memory, what it will say.

The object is changed in memory and written once at the end. ``before`` is what the API server holds as far
as the pass knows (the base of that last patch), ``obj`` is what it will hold.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from captf_controllers.api import finalizers
from captf_controllers.api.annotations import BLOCK_MOVE
from captf_controllers.api.kinds import MUTABLE_KINDS
from captf_controllers.api.labels import CLUSTER_NAME
from captf_controllers.api.typed import spec_of, status_of, to_object
from captf_controllers.api.workspace import WorkspaceSpec, WorkspaceStatus
from captf_controllers.deletion.facts import Subject
from captf_controllers.deletion.secrets import ObjectNames
from captf_controllers.jobs.leases import LeaseOwner
from captf_controllers.observability.conditions import Conditions
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile.environment import Environment
from captf_controllers.reconcile.owners import Owners
from captf_runtime.objects import (
    Kind,
    Object,
    annotations_of,
    creation_timestamp_of,
    finalizers_of,
    generation_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)

if TYPE_CHECKING:
    from captf_controllers.reconcile.adapter import Adapter
    from captf_controllers.reconcile.config import EffectiveConfig
    from captf_runtime.client import ContextClient
    from captf_runtime.controller import Context

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event that is emitted once the pass's patch is on the server."""

    type: EventType
    reason: str
    note: str
    related: Object | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pass ends: when to come back (seconds, 0 = on the next event) and whether the finalizer goes."""

    requeue_after: float = 0.0
    release: bool = False


@dataclass(slots=True)
class Scope:
    """The working state of one pass. ``client`` obeys the pass's deadline and the leader fence.

    ``spec`` and ``status`` are the typed forms of ``obj``; changes of the status go through
    :meth:`update` and :meth:`observe` and reach ``obj`` in :meth:`render`.
    """

    env: Environment
    ctx: Context
    client: ContextClient
    adapter: Adapter
    obj: Object
    now: datetime
    spec: WorkspaceSpec
    status: WorkspaceStatus
    owners: Owners = field(default_factory=Owners)
    before: Object = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    events: list[PendingEvent] = field(default_factory=list)
    terminal_events: list[PendingEvent] = field(default_factory=list)
    consumed_annotations: set[str] = field(default_factory=set)
    stored_last_refresh: datetime | None = None
    locked_version: str = ""
    deferred_error: Exception | None = None
    state_resources: int | None = None
    state_bytes: int | None = None
    inputs_bytes: int | None = None
    failed_jobs_limit: int = 3
    config: EffectiveConfig | None = None
    written: Object | None = None

    def __post_init__(self) -> None:
        self.rebase(self.obj)

    @property
    def kind(self) -> Kind:
        return self.adapter.kind

    @property
    def namespace(self) -> str:
        return namespace_of(self.obj)

    @property
    def name(self) -> str:
        return name_of(self.obj)

    @property
    def uid(self) -> str:
        return uid_of(self.obj)

    @property
    def names(self) -> ObjectNames:
        return ObjectNames(self.kind.kind, self.namespace, self.name)

    @property
    def lease_owner(self) -> LeaseOwner:
        """The object as leases know it, with its Cluster's name: its own label, else its owner's name."""
        label = labels_of(self.obj).get(CLUSTER_NAME, "")
        return LeaseOwner(self.namespace, self.kind.kind, self.name, label or self.owners.cluster_name)

    @property
    def mutable(self) -> bool:
        """A changed spec is applied again (cluster, pool); a machine is never."""
        return self.kind.kind in MUTABLE_KINDS

    @property
    def deleting(self) -> bool:
        return is_deleting(self.obj)

    @property
    def finalizer(self) -> str:
        return finalizers.finalizer_of(self.kind.kind)

    @property
    def created(self) -> datetime:
        return creation_timestamp_of(self.obj) or self.now

    @property
    def provisioned(self) -> bool:
        return bool(self.status.initialization and self.status.initialization.provisioned)

    @property
    def subject(self) -> Subject:
        return Subject(
            kind=self.kind.kind,
            resource=self.kind.kind.lower(),
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            finalizer=self.finalizer,
        )

    def annotation(self, key: str) -> str | None:
        """An annotation of the object; one that this pass consumed counts as absent."""
        if key in self.consumed_annotations:
            return None
        return annotations_of(self.obj).get(key)

    def annotate(self, key: str, value: str | None) -> None:
        """Set (or with None remove) an annotation in memory, for the end patch."""
        annotations: dict[str, str] = self.obj["metadata"].setdefault("annotations", {})
        if value is None:
            annotations.pop(key, None)
        else:
            annotations[key] = value
        if not annotations:
            del self.obj["metadata"]["annotations"]

    def remove_finalizer(self) -> None:
        """Take CAPTF's finalizer off in memory; the end patch does it on the server, under a lock."""
        kept = [name for name in finalizers_of(self.obj) if name != self.finalizer]
        self.obj["metadata"]["finalizers"] = kept

    def say(self, type_: EventType, reason: str, note: str, related: Object | None = None) -> None:
        """Queue an event of a change in memory; it goes out once the pass's patch is on the server."""
        self.events.append(PendingEvent(type_, reason, note, related))

    def update(self, **fields: object) -> None:
        """Change fields of the status in memory."""
        self.status = msgspec.structs.replace(self.status, **fields)

    def observe(self, *observations: Observation) -> None:
        """Set conditions in memory."""
        for seen in observations:
            self.conditions = self.conditions.set(
                seen.type,
                seen.status,
                seen.reason,
                seen.message,
                now=self.now,
                generation=generation_of(self.obj),
            )

    def render(self) -> Object:
        """The object as it is to be written: ``obj`` with the typed status in it."""
        generation = generation_of(self.obj)
        conditions = self.conditions.observed(generation).clamped().sorted()
        status = msgspec.structs.replace(
            self.status, conditions=conditions.items or None, observed_generation=generation or None
        )
        return {**self.obj, "status": to_object(status)}

    def rebase(self, stored: Object) -> None:
        """Take what the API server returned for an early write of the preamble as the new ground.

        The typed spec and status follow; the server may have more to say than the cache had.
        """
        self.obj = stored
        self.before = copy.deepcopy(stored)
        self.spec = spec_of(stored, type(self.spec))
        self.status = status_of(stored, type(self.status))
        self.conditions = Conditions.of(self.status.conditions)
        self.stored_last_refresh = self.status.last_refresh
        self.locked_version = resource_version_of(stored)

    def moved_version(self, stored: Object) -> None:
        """An early write of this pass moved the object's version: lock later writes to the new one.

        Only when nobody else wrote in between; else the old version stays and a locked write conflicts.
        """
        if _apart_from_bookmarks(stored) == _apart_from_bookmarks(self.before):
            self.locked_version = resource_version_of(stored)


def _apart_from_bookmarks(obj: Object) -> Object:
    """What two versions of an object must share for a write between them to have been our own."""
    metadata = {
        key: value
        for key, value in obj.get("metadata", {}).items()
        if key not in {"resourceVersion", "managedFields", "annotations"}
    }
    annotations = {key: value for key, value in annotations_of(obj).items() if key != BLOCK_MOVE}
    return {
        "metadata": metadata,
        "annotations": annotations,
        "spec": obj.get("spec"),
        "status": obj.get("status") or {},
    }
