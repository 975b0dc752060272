"""Server-side apply, and the owners of fields (`metadata.managedFields`).

An object's fields belong to managers: those that applied it (`Apply`) and those that wrote it otherwise
(`Update`). Applying merges the given fields into the live object, removes fields that the manager applied
before, does not apply any more and nobody else owns, and refuses to change what another manager owns unless
forced. Any other write makes its manager the owner of what it changed.

Everything here is pure; objects that are given are never changed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from captf_runtime.objects import Object, format_time, parse_time
from captf_runtime.testing.apiserver.field_sets import (
    Comparison,
    FieldSet,
    Path,
    TypedError,
    below,
    check_types,
    decode,
    encode,
    fields_of,
    is_taken_apart,
    item_element,
    parts,
    shown,
)
from captf_runtime.testing.apiserver.topology import DEDUCED, Topology

__all__ = ["Conflict", "TypedError", "apply", "conflict_causes", "conflict_message", "track_update"]

Mode = Literal["modern", "1.20"]

_BEFORE_FIRST_APPLY = "before-first-apply"
_ANCIENT = "ancient-changes"
_UPDATERS_LIMIT = 10

_STRIPPED: FieldSet = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    }
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who owns fields: one manager has separate sets for applying and updating, and for each subresource."""

    manager: str
    operation: Literal["Apply", "Update"]
    api_version: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two entries the same owner: who applies is the same whatever the version."""
        version = "" if self.operation == "Apply" else self.api_version
        return self.manager, self.operation, version, self.subresource

    def __str__(self) -> str:
        text = json.dumps(self.manager)
        if self.subresource:
            text += f" with subresource {json.dumps(self.subresource)}"
        return text if self.operation == "Apply" else f"{text} using {self.api_version}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A field that another manager owns and that an apply wanted to change.

    Args:
        owner: the other manager, printed as messages do: `"m1"`, or `"up" using v1`.
        field: the path, `.data.x`.
    """

    owner: str
    field: str


@dataclass(slots=True)
class _Entry:
    identity: Identity
    fields: FieldSet
    time: datetime | None = None


@dataclass(slots=True)
class _Managers:
    """The owners of one object, by the key of their identity."""

    entries: dict[tuple[str, str, str, str], _Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, managed_fields: object) -> _Managers:
        managers = cls()
        for raw in managed_fields if isinstance(managed_fields, list) else ():
            if not isinstance(raw, dict) or not raw.get("operation"):
                continue
            operation: Literal["Apply", "Update"] = "Apply" if raw["operation"] == "Apply" else "Update"
            identity = Identity(
                str(raw.get("manager") or ""),
                operation,
                str(raw.get("apiVersion") or ""),
                str(raw.get("subresource") or ""),
            )
            time = parse_time(str(raw["time"])) if raw.get("time") else None
            managers.entries[identity.key] = _Entry(identity, decode(raw.get("fieldsV1")), time)
        return managers

    def copy(self) -> _Managers:
        return _Managers({key: replace(entry) for key, entry in self.entries.items()})

    def sets(self) -> dict[tuple[str, str, str, str], FieldSet]:
        return {key: entry.fields for key, entry in self.entries.items()}

    def drop_empty(self) -> None:
        for key in [key for key, entry in self.entries.items() if not entry.fields]:
            del self.entries[key]

    def write(self) -> list[Object]:
        ordered = sorted(
            self.entries.values(),
            key=lambda entry: (
                entry.identity.operation,
                int(entry.time.timestamp()) if entry.time else 0,
                entry.identity.manager,
                entry.identity.api_version,
                entry.identity.subresource,
            ),
        )
        return [_wire(entry) for entry in ordered]


def _wire(entry: _Entry) -> Object:
    wire: Object = {
        "manager": entry.identity.manager,
        "operation": entry.identity.operation,
        "apiVersion": entry.identity.api_version,
    }
    if entry.time is not None:
        wire["time"] = format_time(entry.time)
    wire["fieldsType"] = "FieldsV1"
    wire["fieldsV1"] = encode(entry.fields)
    if entry.identity.subresource:
        wire["subresource"] = entry.identity.subresource
    return wire


def _bare(obj: Object) -> Object:
    """The object without its managedFields; the rest is shared."""
    metadata = obj.get("metadata") or {}
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _with_managers(obj: Object, managed_fields: list[Object]) -> Object:
    bare = _bare(obj)
    if managed_fields:
        bare["metadata"]["managedFields"] = managed_fields
    return bare


def _owned(fields: Iterable[Path], subresource: str, mode: Mode) -> FieldSet:
    """The fields that can have an owner in a write to `subresource`."""
    kept = frozenset(path for path in fields if path not in _STRIPPED)
    if mode == "1.20":
        return kept
    if subresource == "status":
        return frozenset(path for path in kept if path[0] == "f:status")
    return frozenset(path for path in kept if path[0] != "f:status") if subresource == "" else kept


# -- other writes ----------------------------------------------------------------------------------


def track_update(
    before: Object | None,
    after: Object,
    manager: str,
    subresource: str,
    now: datetime,
    *,
    schema: Topology = DEDUCED,
    mode: Mode = "modern",
) -> Object:
    """Note the owner of what a write other than an apply changed.

    Args:
        before: the stored object; None on a create.
        after: the object as it will be stored, with the `managedFields` that the client sent, if any: a
        list of
            one empty entry resets ownership, no list at all keeps the stored one.
        manager: the field manager of the request.
        subresource: `status` or the like; empty for the main resource.
        now: the time of the write.
        schema: the topology of the kind.
        mode: `1.20` knows no owners by subresource.

    Returns:
        a shallow copy of `after` with the right `managedFields`.
    """
    sent = (after.get("metadata") or {}).get("managedFields")
    stored = (before.get("metadata") or {}).get("managedFields") if before is not None else None
    if sent == [{}]:
        return _with_managers(after, [])
    managers = _Managers.read(sent)
    if not managers.entries:
        managers = _Managers.read(stored)
    if before is not None and not managers.entries:
        return _with_managers(after, [])
    former = managers.sets()
    old = _bare(before) if before is not None else _empty(after)
    identity = Identity(manager, "Update", str(after.get("apiVersion") or ""), _visible(subresource, mode))
    _update(managers, identity, Comparison(schema, old, _bare(after)), now, subresource, mode)
    if managers.sets() == former and sent in (None, [], stored):
        return _with_managers(after, list(stored or []))
    _cap(managers)
    return _with_managers(after, managers.write())


def _visible(subresource: str, mode: Mode) -> str:
    return "" if mode == "1.20" else subresource


def _empty(like: Object) -> Object:
    return {"apiVersion": like.get("apiVersion"), "kind": like.get("kind"), "metadata": {}}


def _update(
    managers: _Managers, identity: Identity, change: Comparison, now: datetime, subresource: str, mode: Mode
) -> None:
    """Give what changed to `identity` and take it, and what is gone, from everyone else."""
    written = frozenset(change.modified | change.added)
    removed = frozenset(change.removed)
    for key, entry in managers.entries.items():
        if key != identity.key:
            entry.fields = entry.fields - written - removed
    present = managers.entries.get(identity.key)
    owned = present.fields if present is not None else frozenset()
    fields = (owned | _owned(written, subresource, mode)) - removed
    if fields != owned or (present is None and fields):
        managers.entries[identity.key] = _Entry(identity, fields, now)
    managers.drop_empty()


def _cap(managers: _Managers) -> None:
    """Merge the oldest updaters into one, for a list of owners that cannot grow without end."""
    updaters = [entry for entry in managers.entries.values() if entry.identity.operation == "Update"]
    if len(updaters) <= _UPDATERS_LIMIT:
        return
    updaters.sort(key=lambda entry: (entry.time.timestamp() if entry.time else 0.0, entry.identity.manager))
    for entry in updaters[: len(updaters) - _UPDATERS_LIMIT + 1]:
        bucket = Identity(_ANCIENT, "Update", entry.identity.api_version)
        del managers.entries[entry.identity.key]
        merged = managers.entries.get(bucket.key)
        fields = entry.fields | (merged.fields if merged is not None else frozenset())
        managers.entries[bucket.key] = _Entry(bucket, fields, entry.time)


# -- apply -----------------------------------------------------------------------------------------


def apply(
    live: Object | None,
    applied: Object,
    manager: str,
    *,
    force: bool,
    subresource: str,
    schema: Topology,
    now: datetime,
    mode: Mode = "modern",
) -> tuple[Object, list[Conflict]]:
    """Apply a configuration.

    Args:
        live: the stored object, or None to create it.
        applied: what the manager wants to own; without `managedFields`.
        manager: the field manager.
        force: take over fields of others instead of refusing.
        subresource: `status` or the like; empty for the main resource.
        schema: the topology of the kind.
        now: the time of the write.
        mode: `1.20` knows no owners by subresource and adds new items after the live ones.

    Returns:
        the new object with its `managedFields`, equal to `live` when nothing changes; and the conflicts, in
        which case the object must not be stored.

    Raises:
        TypedError: the configuration does not fit the schema.
    """
    check_types(schema, _bare(applied))
    config = _bare(applied) if mode == "1.20" else _in_scope(_bare(applied), subresource)
    old = _bare(live) if live is not None else _empty(applied)
    managers = _Managers.read((live.get("metadata") or {}).get("managedFields") if live is not None else None)
    identity = Identity(manager, "Apply", str(applied.get("apiVersion") or ""), _visible(subresource, mode))
    if live is not None and not managers.entries:
        earlier = Identity(_BEFORE_FIRST_APPLY, "Update", str(live.get("apiVersion") or ""))
        _update(managers, earlier, Comparison(schema, _empty(live), old), now, "", mode)
    former = managers.copy()
    last = managers.entries.get(identity.key)
    merged = _merge(schema, old, config, mode)
    fields = _owned(fields_of(schema, config, empty_maps=mode == "modern"), subresource, mode)
    if mode == "modern":
        # Empty objects that are always there are nobody's.
        fields = frozenset(path for path in fields if not _always(schema, path))
    managers.entries[identity.key] = _Entry(identity, fields, last.time if last is not None else now)
    if last is not None and last.fields:
        merged = _without_abandoned(schema, merged, managers, last.fields)
    change = Comparison(schema, old, merged)
    written = frozenset(change.modified | change.added)
    conflicts: list[Conflict] = []
    for key, entry in managers.entries.items():
        if key == identity.key:
            continue
        disputed = entry.fields & written
        if disputed and not force:
            conflicts += [Conflict(str(entry.identity), shown(path)) for path in _in_order(disputed)]
        entry.fields = entry.fields - written - frozenset(change.removed)
    if conflicts:
        return (live if live is not None else merged), conflicts
    managers.drop_empty()
    changed = live is None or bool(written or change.removed)
    if not changed and managers.sets() == former.sets():
        return copy.deepcopy(live or {}), []
    if identity.key in managers.entries:
        managers.entries[identity.key].time = now
    return _with_managers(merged, managers.write()), []


def _in_scope(config: Object, subresource: str) -> Object:
    """The part of a configuration that a write to `subresource` can change."""
    if subresource == "status":
        return {
            key: value for key, value in config.items() if key in ("apiVersion", "kind", "metadata", "status")
        }
    return {key: value for key, value in config.items() if key != "status"}


def _always(schema: Topology, path: Path) -> bool:
    node: Topology | None = schema
    for element in path:
        if node is None:
            return False
        node = node.fields.get(element[2:], node.element) if element.startswith("f:") else node.element
    return node is not None and node.always


def _merge(node: Topology, live: Any, config: Any, mode: Mode) -> Any:
    """`live` with `config` laid over it."""
    if live is None or config is None or not (is_taken_apart(node, live) and is_taken_apart(node, config)):
        return copy.deepcopy(config)
    children = {element: child for element, _, child in (*parts(node, live), *parts(node, config))}
    if isinstance(live, dict):
        result = dict(live)
        for name, value in config.items():
            child = children.get(f"f:{name}", DEDUCED)
            result[name] = _merge(child, live[name], value, mode) if name in live else copy.deepcopy(value)
        return result
    ours = {item_element(node, item): item for item in live}
    theirs = {item_element(node, item): item for item in config}
    order = list(_legacy_order(ours, theirs) if mode == "1.20" else _interleaved(list(ours), list(theirs)))
    return [
        _merge(children[element], ours[element], theirs[element], mode)
        if element in ours and element in theirs
        else copy.deepcopy(theirs[element] if element in theirs else ours[element])
        for element in order
    ]


def _legacy_order(ours: Iterable[str], theirs: Iterable[str]) -> Iterator[str]:
    """The live items in their order, then the new ones."""
    return iter(dict.fromkeys([*ours, *theirs]))


def _interleaved(ours: list[str], theirs: list[str]) -> Iterator[str]:
    """The applied items in their order, the others where they stood among the shared ones."""
    wanted, present = set(theirs), set(ours)
    done: set[str] = set()
    left = right = 0
    while left < len(ours) or right < len(theirs):
        if left < len(ours) and (ours[left] not in wanted or ours[left] in done):
            if ours[left] not in done:
                yield ours[left]
            left += 1
            continue
        if right >= len(theirs):
            left += 1
            continue
        element = theirs[right]
        right += 1
        done.add(element)
        if element in present and left < len(ours) and ours[left] == element:
            left += 1
        yield element


def _without_abandoned(schema: Topology, merged: Object, managers: _Managers, last: FieldSet) -> Object:
    """Remove what the manager owned and does not apply any more, but nothing that anybody owns now."""
    everything = fields_of(schema, merged)
    pruned = _remove(schema, merged, last)
    owned = frozenset[Path]().union(*managers.sets().values())
    # Items of others inside what was removed come back, and so does what was never this manager's.
    pruned = _remove(schema, merged, (everything - fields_of(schema, pruned)) - owned)
    gone = (everything - fields_of(schema, pruned)) & last
    result: Object = _remove(schema, merged, gone, keep=owned)
    return result


def _remove(node: Topology, value: Any, fields: FieldSet, *, keep: FieldSet | None = None) -> Any:
    """The value without some of its parts.

    What this empties becomes null; with `keep` it stays empty when it is one of those fields, and goes otherwise.
    """
    if not fields or not is_taken_apart(node, value):
        return value
    kept_map: dict[str, Any] = {}
    kept_list: list[Any] = []
    for element, item, child in parts(node, value):
        if (element,) in fields:
            continue
        inner = below(fields, (element,))
        kept = below(keep, (element,)) if keep is not None else None
        new = _remove(child, item, inner, keep=kept) if inner else item
        if inner and item and not new:
            if keep is None:
                new = None
            elif (element,) not in keep:
                continue
        if isinstance(value, dict):
            kept_map[element[2:]] = new
        else:
            kept_list.append(new)
    return kept_map if isinstance(value, dict) else kept_list


# -- conflicts -------------------------------------------------------------------------------------


def _in_order(fields: Iterable[Path], prefix: Path = ()) -> list[Path]:
    """Members of a level before what lies deeper, both in the order of their elements."""
    members = list(fields)
    here = sorted(path for path in members if len(path) == 1)
    ordered = [(*prefix, *path) for path in here]
    for element in sorted({path[0] for path in members if len(path) > 1}):
        ordered += _in_order(below(members, (element,)), (*prefix, element))
    return ordered


def conflict_message(conflicts: list[Conflict]) -> str:
    """The message of the 409 that answers an apply with conflicts."""
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {conflicts[0].owner}: {conflicts[0].field}"
    by_owner: dict[str, list[str]] = {}
    for conflict in conflicts:
        by_owner.setdefault(conflict.owner, []).append(conflict.field)
    lines: list[str] = []
    for owner in sorted(by_owner):
        lines.append(f"conflicts with {owner}:")
        lines += [f"- {path}" for path in by_owner[owner]]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def conflict_causes(conflicts: list[Conflict]) -> list[dict[str, str]]:
    """The causes of that answer."""
    return [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {conflict.owner}",
            "field": conflict.field,
        }
        for conflict in conflicts
    ]
