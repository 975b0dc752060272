"""The writes of the API server on stored objects, without HTTP: what create, update and delete do to them.

Everything that changes the store goes through a `Backend`: requests over HTTP, and the controllers inside the
process. So generation, finalizers, deletion and versions follow the same rules for all of them.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Protocol

import msgspec

from captf_runtime.clock import Clock
from captf_runtime.objects import Object, format_time, parse_time
from captf_runtime.testing.apiserver import names, status
from captf_runtime.testing.apiserver.access import MASTERS, User
from captf_runtime.testing.apiserver.kinds.base import Mode, WriteContext
from captf_runtime.testing.apiserver.requests import DeleteOptions
from captf_runtime.testing.apiserver.resources import Registry, Resource
from captf_runtime.testing.apiserver.schema.compiled import OBJECT_META_FIELDS
from captf_runtime.testing.apiserver.status import ApiStatus, Cause
from captf_runtime.testing.apiserver.storage import Exists, Missing, Record, Stale, Store

_ATTEMPTS = 50
ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class Attributes:
    """What admission sees of one write; objects carry kind and apiVersion and may not be changed."""

    operation: Operation
    resource: Resource
    subresource: str
    namespace: str
    name: str
    new: Object | None
    old: Object | None
    dry_run: bool
    user: User
    options: Object | None = None
    warnings: list[str] = field(default_factory=list)
    """What admission wants to tell the writer; it may add to them."""


INTERNAL_USER = User("system:apiserver", (MASTERS,))


class Admission(Protocol):
    """Decides about a write; raises `ApiStatus` to refuse it."""

    def admit(self, attributes: Attributes) -> None: ...


class OwnershipTracker(Protocol):
    """Keeps metadata.managedFields of a write that is not an apply."""

    def track(
        self, before: Object | None, after: Object, resource: Resource, manager: str, subresource: str
    ) -> Object: ...


@dataclass(frozen=True, slots=True)
class Write:
    """Who writes and how: `manager` owns the fields, an empty one leaves ownership alone."""

    user: User = INTERNAL_USER
    manager: str = ""
    dry_run: bool = False
    admission: bool = True
    applied: bool = False
    """The object already carries the managedFields of a server-side apply."""
    warnings: list[str] = field(default_factory=list)
    """What the writer is told besides the answer."""


INTERNAL = Write(admission=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The object after a write, in the stored form; `deleted` when the write removed it from the store."""

    record: Record
    created: bool = False
    deleted: bool = False


def full(resource: Resource, obj: Object) -> Object:
    """A shallow copy that begins with the kind and apiVersion of `resource`."""
    return {"kind": resource.kind, "apiVersion": resource.api_version, **obj}


class Backend:
    """Objects and the rules of their life. Thread-safe.

    `find`, `all`, `create`, `update` and `delete` take a `Resource` of `registry`; objects that they return
    are fresh copies with kind and apiVersion unless they are `Record`s, whose object is read only.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        *,
        mode: Mode = "modern",
        seed: int | None = None,
    ) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.mode: Mode = mode
        self.gates: list[Admission] = []
        """Asked before a write is validated."""
        self.admission: list[Admission] = []
        """Asked after it is, with the object as it would be stored."""
        self.ownership: OwnershipTracker | None = None
        self._random = random.Random(seed)

    # Reads

    def random_state(self) -> tuple[object, ...]:
        """Where the sequence of uids and generated names stands; for `go_on_from`."""
        return self._random.getstate()

    def go_on_from(self, state: tuple[object, ...]) -> None:
        """Make uids and generated names as they were made after `random_state` gave this."""
        self._random.setstate(state)

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """A fresh copy of an object, or None."""
        record = self.store.get(resource.storage, namespace, name)
        return None if record is None else full(resource, resource.strategy.view(record.copy()))

    def all(self, resource: Resource, namespace: str = "") -> list[Object]:
        """Fresh copies of the objects of one namespace, or of all."""
        return [
            full(resource, resource.strategy.view(record.copy()))
            for record in self.store.list(resource.storage, namespace)
        ]

    # Writes

    def create(self, resource: Resource, namespace: str, obj: Object, write: Write = INTERNAL) -> Outcome:
        """Store a new object. `obj` is used up; kind and apiVersion in it are ignored."""
        context = self._context(write)
        strategy = resource.strategy
        obj = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
        metadata = obj["metadata"] = dict(obj.get("metadata") or {})
        if resource.namespaced:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        version = metadata.pop("resourceVersion", "")
        strategy.decode(obj)
        for part in ("uid", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(part, None)
        metadata["creationTimestamp"] = format_time(context.now)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        if self.mode in strategy.generation_modes:
            metadata["generation"] = 1
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = names.generate(metadata["generateName"], self._random.choice)
        if resource.has_status:
            obj.pop("status", None)
        # Defaults come with decoding, so before what the server itself adds.
        strategy.default(obj, context)
        owners = self._owners_of_new(resource, obj, write)
        strategy.prepare_create(obj, context)
        _tidy(metadata)
        if owners:
            metadata["managedFields"] = owners
        name = metadata.get("name") or ""
        attributes = Attributes(
            "CREATE",
            resource,
            "",
            namespace,
            name,
            full(resource, obj),
            None,
            write.dry_run,
            write.user,
            warnings=write.warnings,
        )
        self._admit(self.gates, attributes, write)
        causes = self._validate_metadata(resource, metadata) + strategy.validate(obj, context)
        if causes:
            raise status.invalid(resource.kind, resource.error_group, name, causes)
        self._admit(self.admission, attributes, write)
        if version not in ("", "0"):
            raise status.plain_internal("resourceVersion should not be set on objects to be created")
        # And once more, as when the stored object is decoded.
        strategy.default(obj, context)
        stored = strategy.store(obj)
        if write.dry_run:
            present = self.store.get(resource.storage, namespace, name)
            if present is not None:
                raise self._exists(resource, present)
            return Outcome(_unstored(namespace, name, stored), created=True)
        try:
            record = self.store.create(
                resource.storage, namespace if resource.namespaced else "", name, stored
            )
        except Exists as taken:
            raise self._exists(resource, taken.record) from taken
        return Outcome(record, created=True)

    def _owners_of_new(self, resource: Resource, obj: Object, write: Write) -> list[Object] | None:
        """The managedFields of a new object: its writer owns what it sent and defaults, not what the server
        adds.
        """
        if self.ownership is None or not write.manager or write.applied:
            return None
        tracked = self.ownership.track(None, obj, resource, write.manager, "")
        owners: list[Object] = tracked["metadata"].get("managedFields") or []
        return owners

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        write: Write = INTERNAL,
        *,
        subresource: str = "",
        require_version: bool = False,
    ) -> Outcome:
        """Replace an object by `change(current)`.

        `change` gets a fresh copy in the version of `resource` (kind and apiVersion included) and returns the
        new state; it runs again when another write came between, and a resourceVersion that its result names
        must then be the one stored meanwhile. `require_version` refuses a result without one. Raises `ApiStatus`.
        """
        for _ in range(_ATTEMPTS):
            record = self.store.get(resource.storage, namespace if resource.namespaced else "", name)
            if record is None:
                raise status.not_found(resource.plural, resource.group, name)
            old = resource.strategy.view(record.copy())
            new = dict(change(full(resource, resource.strategy.view(record.copy()))))
            self._check_version(resource, record, new, require_version)
            obj = self._prepare_update(resource, old, new, subresource, write)
            try:
                return self._commit_update(resource, record, obj, write)
            except (Stale, Missing):
                continue
        raise status.conflict(resource.plural, resource.group, name)

    def update_unchecked(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        *,
        dry_run: bool = False,
    ) -> Outcome:
        """Replace the stored form of an object by `change(current)` as it is, for controllers of the server.

        Nothing is validated, but a deletion whose last finalizer goes is finished. Raises 404.
        """
        write = Write(dry_run=dry_run, admission=False)
        for _ in range(_ATTEMPTS):
            record = self.store.get(resource.storage, namespace if resource.namespaced else "", name)
            if record is None:
                raise status.not_found(resource.plural, resource.group, name)
            obj = change(full(resource, record.copy()))
            obj = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
            _tidy(obj["metadata"])
            try:
                return self._commit_stored(resource, record, obj, write)
            except Stale:
                continue
            except Missing as gone:
                raise status.not_found(resource.plural, resource.group, name) from gone
        raise status.conflict(resource.plural, resource.group, name)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        options: DeleteOptions | None = None,
        write: Write = INTERNAL,
    ) -> Outcome:
        """Begin or finish the deletion of an object; `Outcome.deleted` tells which."""
        options = options or DeleteOptions()
        for _ in range(_ATTEMPTS):
            record = self.store.get(resource.storage, namespace if resource.namespaced else "", name)
            if record is None:
                raise status.not_found(resource.plural, resource.group, name)
            attributes = Attributes(
                "DELETE",
                resource,
                "",
                namespace,
                name,
                None,
                full(resource, resource.strategy.view(record.copy())),
                write.dry_run,
                write.user,
                warnings=write.warnings,
            )
            self._admit(self.gates, attributes, write)
            self._check_preconditions(resource, record, options)
            self._admit(self.admission, attributes, write)
            try:
                return self._delete_once(resource, record, options, write)
            except Missing as gone:
                raise status.not_found(resource.plural, resource.group, name) from gone
            except Stale:
                continue
        raise status.conflict(resource.plural, resource.group, name)

    # Parts of a write

    def _context(self, write: Write) -> WriteContext:
        return WriteContext(self.mode, self.clock.now(), write.user.name)

    def _admit(self, steps: list[Admission], attributes: Attributes, write: Write) -> None:
        if write.admission:
            for step in steps:
                step.admit(attributes)

    def _exists(self, resource: Resource, record: Record) -> ApiStatus:
        failure = status.already_exists(resource.plural, resource.group, record.name)
        if record.object["metadata"].get("deletionTimestamp"):
            failure.message = f"object is being deleted: {failure.message}"
        return failure

    def _validate_metadata(self, resource: Resource, metadata: Object) -> list[Cause]:
        return names.validate_metadata(
            metadata,
            namespaced=resource.namespaced,
            rule=resource.strategy.validate_name,
            builtin=not resource.custom,
        )

    def _check_version(self, resource: Resource, record: Record, new: Object, require: bool) -> None:
        metadata = new["metadata"] = dict(new.get("metadata") or {})
        uid = metadata.get("uid")
        stored = record.object["metadata"]
        if require and uid and uid != stored.get("uid"):
            key = f"/registry/{resource.storage}/{record.key}"
            raise status.conflict(
                resource.plural,
                resource.group,
                record.name,
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.get('uid')}",
            )
        version = str(metadata.get("resourceVersion") or "")
        if version in ("", "0"):
            if require and not resource.strategy.unconditional_update:
                cause = status.Cause(
                    "FieldValueInvalid",
                    "Invalid value: 0x0: must be specified for an update",
                    "metadata.resourceVersion",
                )
                raise status.invalid(resource.plural, resource.group, record.name, [cause])
            return
        if not version.isdigit():
            raise status.plain_internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if int(version) != record.version:
            raise status.conflict(resource.plural, resource.group, record.name)

    def _prepare_update(
        self, resource: Resource, old: Object, new: Object, subresource: str, write: Write
    ) -> Object:
        context = self._context(write)
        strategy = resource.strategy
        obj = {key: value for key, value in new.items() if key not in ("kind", "apiVersion")}
        strategy.decode(obj)
        metadata, before = obj["metadata"], old["metadata"]
        if subresource == "status":
            if resource.custom:
                # Custom resources take nothing but status here; built-in kinds also take metadata.
                metadata = {**before, "managedFields": metadata.get("managedFields")}
            obj = {**old, "metadata": metadata}
            if "status" in new:
                obj["status"] = new["status"]
            else:
                obj.pop("status", None)
        elif resource.has_status and not subresource:
            if "status" in old:
                obj["status"] = old["status"]
            else:
                obj.pop("status", None)
        metadata.setdefault("uid", before.get("uid"))
        metadata["creationTimestamp"] = before.get("creationTimestamp")
        metadata.setdefault("name", before.get("name"))
        if resource.namespaced:
            metadata.setdefault("namespace", before.get("namespace"))
        for part in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            if part in before:
                metadata[part] = before[part]
            elif part == "generation" or metadata.get(part) is None:
                metadata.pop(part, None)
        metadata.pop("selfLink", None)
        strategy.prepare_update(obj, old, context)
        strategy.default(obj, context)
        _tidy(metadata)
        if self.ownership is not None and write.manager and not write.applied:
            obj = self.ownership.track(old, obj, resource, write.manager, subresource)
            metadata = obj["metadata"]
            _tidy(metadata)
        if self.mode in strategy.generation_modes and _outside(obj, resource) != _outside(old, resource):
            metadata["generation"] = (before.get("generation") or 0) + 1
        name = before.get("name") or ""
        attributes = Attributes(
            "UPDATE",
            resource,
            subresource,
            before.get("namespace") or "",
            name,
            full(resource, obj),
            full(resource, old),
            write.dry_run,
            write.user,
            warnings=write.warnings,
        )
        self._admit(self.gates, attributes, write)
        causes = self._validate_metadata(resource, metadata)
        # The real server judges metadata of an update twice, so that each of its errors shows twice.
        causes += 2 * names.validate_metadata_update(metadata, before)
        if subresource == "status":
            causes += strategy.validate_status(obj, old, context)
        else:
            causes += strategy.validate(obj, context) + strategy.validate_update(obj, old, context)
        if causes:
            raise status.invalid(resource.kind, resource.error_group, name, causes)
        self._admit(self.admission, attributes, write)
        return obj

    def _commit_update(self, resource: Resource, record: Record, obj: Object, write: Write) -> Outcome:
        return self._commit_stored(resource, record, resource.strategy.store(obj), write)

    def _commit_stored(self, resource: Resource, record: Record, stored: Object, write: Write) -> Outcome:
        metadata = stored["metadata"]
        finished = (
            bool(metadata.get("deletionTimestamp"))
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
            and not held_open(resource, stored)
        )
        if write.dry_run:
            metadata["resourceVersion"] = str(record.version)
            return Outcome(_unstored(record.namespace, record.name, stored), deleted=finished)
        if finished:
            # Watchers see the object as it was stored last, the writer as it wrote it.
            removed = self.store.remove(resource.storage, record)
            metadata["resourceVersion"] = str(removed.version)
            return Outcome(_unstored(record.namespace, record.name, stored), deleted=True)
        return Outcome(self.store.replace(resource.storage, record, stored))

    def _check_preconditions(self, resource: Resource, record: Record, options: DeleteOptions) -> None:
        metadata = record.object["metadata"]
        if options.uid is not None and options.uid != metadata.get("uid"):
            raise status.conflict(
                resource.kind,
                resource.group,
                record.name,
                f"the UID in the precondition ({options.uid}) does not match the UID in record "
                f"({metadata.get('uid')}). The object might have been deleted and then recreated",
            )
        if options.resource_version is not None and options.resource_version != str(record.version):
            raise status.conflict(
                resource.kind,
                resource.group,
                record.name,
                f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
                f"ResourceVersion in record ({record.version}). The object might have been modified",
            )

    def _delete_once(
        self, resource: Resource, record: Record, options: DeleteOptions, write: Write
    ) -> Outcome:
        obj = record.copy()
        metadata = obj["metadata"]
        if not metadata.get("deletionTimestamp"):
            resource.strategy.begin_delete(obj, self.clock.now())
        finalizers = _finalizers_for(resource, list(metadata.get("finalizers") or []), options.propagation)
        grace = grace_period(resource, obj, options)
        open_for = held_open(resource, obj)
        if not finalizers and not grace and not open_for:
            if write.dry_run:
                return Outcome(record, deleted=True)
            if resource.storage == "pods":
                # The end of a pod is always graceful, if only for no time at all.
                self._mark(metadata, 0, self.clock.now())
            return Outcome(self.store.remove(resource.storage, record, obj), deleted=True)
        if finalizers != list(metadata.get("finalizers") or []):
            metadata["finalizers"] = finalizers
            if not finalizers:
                del metadata["finalizers"]
        self._mark(metadata, grace, self.clock.now())
        if open_for:
            metadata.pop("deletionGracePeriodSeconds", None)
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        if write.dry_run:
            return Outcome(_unstored(record.namespace, record.name, obj))
        return Outcome(self.store.replace(resource.storage, record, obj))

    def _mark(self, metadata: Object, grace: int, now: datetime) -> None:
        present = metadata.get("deletionTimestamp")
        if present:
            # A later delete may only shorten the grace period.
            earlier = metadata.get("deletionGracePeriodSeconds") or 0
            if grace >= earlier:
                return
            asked = parse_time(present) - timedelta(seconds=earlier)
            metadata["deletionTimestamp"] = format_time(asked + timedelta(seconds=grace))
            metadata["deletionGracePeriodSeconds"] = grace
            return
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if metadata.get("generation"):
            metadata["generation"] += 1


def grace_period(resource: Resource, obj: Object, options: DeleteOptions) -> int:
    """Seconds that a pod has for its end; zero for every other kind, and for pods that run nowhere."""
    if resource.storage != "pods":
        return 0
    spec = obj.get("spec") or {}
    phase = (obj.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    if options.grace is not None:
        return max(0, options.grace)
    default = spec.get("terminationGracePeriodSeconds")
    return 30 if default is None else int(default)


def held_open(resource: Resource, obj: Object) -> bool:
    """Whether spec.finalizers, which only namespaces have, keep the object."""
    return resource.storage == "namespaces" and bool((obj.get("spec") or {}).get("finalizers"))


def _finalizers_for(resource: Resource, finalizers: list[str], propagation: str) -> list[str]:
    """Finalizers after a delete with that policy: each policy's own is set, that of the others taken off."""
    if propagation == "":
        if ORPHAN in finalizers or FOREGROUND in finalizers:
            return finalizers
        propagation = resource.strategy.default_propagation
    kept = [finalizer for finalizer in finalizers if finalizer not in (ORPHAN, FOREGROUND)]
    if propagation == "Orphan":
        kept.append(ORPHAN)
    elif propagation == "Foreground":
        kept.append(FOREGROUND)
    return finalizers if sorted(kept) == sorted(finalizers) else kept


def _tidy(metadata: Object) -> None:
    """Drop what metadata does not have, and its empty parts, as the typed metadata of the real server does."""
    for part in [part for part in metadata if part not in OBJECT_META_FIELDS]:
        del metadata[part]
    for part in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields", "generateName"):
        if part in metadata and not metadata[part]:
            del metadata[part]


def _outside(obj: Object, resource: Resource) -> Object:
    skipped = ("metadata", "status") if resource.has_status else ("metadata",)
    return {key: value for key, value in obj.items() if key not in skipped}


def _unstored(namespace: str, name: str, obj: Object) -> Record:
    """The record of a dry run, which is never stored."""
    return Record(f"{namespace}/{name}", namespace, name, 0, obj, msgspec.json.encode(obj))
