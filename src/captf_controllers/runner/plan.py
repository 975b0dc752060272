"""Reading a plan: the document of `show -json`, its counts, its destructive changes, its fingerprint.

Numbers keep their literal text from the document to the fingerprint: 1.50 and 1.5 are different plans only
if the runtime wrote them differently, and no conversion of ours can make two plans look alike.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from captf_controllers.runner.text import encoded

EMPTY_PLAN_HASH = "p2:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

MOST_PLAN_RESOURCES = 50
MOST_DRIFT_RESOURCES = 20


class PlanError(Exception):
    """A plan document cannot be read. The text quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number by its literal text."""

    literal: str


class _Absent:
    """The value of a member that one side of a change does not have; not the same as null."""


_ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class Change:
    """One changed resource, or one changed output (named `output.<name>`)."""

    name: str
    actions: tuple[str, ...]
    previous_address: str
    details: dict[str, Any]

    @property
    def noop(self) -> bool:
        return self.actions in ((), ("no-op",))

    @property
    def imported(self) -> bool:
        return self.details.get("importing") is not None

    @property
    def moved(self) -> bool:
        return bool(self.previous_address)

    @property
    def replaced(self) -> bool:
        return "create" in self.actions and "delete" in self.actions

    @property
    def destructive(self) -> bool:
        """Whether applying it deletes a resource. Forgetting, importing and moving do not."""
        return "delete" in self.actions

    @property
    def labels(self) -> str:
        """What will happen, for a person: the action, then `import`, then `move`."""
        labels = []
        if not self.noop:
            labels.append("replace" if self.replaced else ",".join(self.actions))
        if self.imported:
            labels.append("import")
        if self.moved:
            labels.append("move")
        return ", ".join(labels)


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """What the result document says about a plan."""

    hash: str = EMPTY_PLAN_HASH
    create: int = 0
    update: int = 0
    replace: int = 0
    delete: int = 0
    imported: int = 0
    moved: int = 0
    forget: int = 0
    output_changes: int = 0
    resources: tuple[str, ...] = ()
    truncated: bool = False

    def with_resources(self, rewrite: Callable[[str], str]) -> PlanSummary:
        """This summary with every listed resource rewritten."""
        return replace(self, resources=tuple(map(rewrite, self.resources)))


@dataclass(frozen=True, slots=True)
class DriftSummary:
    """What the result document says about drift."""

    create: int = 0
    update: int = 0
    replace: int = 0
    delete: int = 0
    resources: tuple[str, ...] = ()

    def with_resources(self, rewrite: Callable[[str], str]) -> DriftSummary:
        """This summary with every listed resource rewritten."""
        return replace(self, resources=tuple(map(rewrite, self.resources)))

    @property
    def detected(self) -> bool:
        return self.create + self.update + self.replace + self.delete > 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A parsed plan: its document and the changes in it."""

    document: dict[str, Any]
    resources: tuple[Change, ...]
    outputs: tuple[Change, ...]

    def destructive_changes(self) -> list[tuple[str, str]]:
        """Address and `delete` or `replace` of every change that deletes something, in plan order."""
        return [
            (change.name, "replace" if change.replaced else "delete")
            for change in self.resources
            if change.destructive
        ]

    def summarise(self, key: bytes) -> PlanSummary:
        """The summary for review, with the fingerprint under `key`."""
        counts = _counts(self.resources)
        listed = sorted(
            (encoded(change.name), f"{change.name} ({change.labels})")
            for change in self.resources
            if change.labels
        )
        return PlanSummary(
            hash=fingerprint((*self.resources, *self.outputs), key),
            create=counts["create"],
            update=counts["update"],
            replace=counts["replace"],
            delete=counts["delete"],
            imported=sum(change.imported for change in self.resources),
            moved=sum(change.moved for change in self.resources),
            forget=counts["forget"],
            output_changes=sum(not change.noop for change in self.outputs),
            resources=tuple(text for _, text in listed[:MOST_PLAN_RESOURCES]),
            truncated=len(listed) > MOST_PLAN_RESOURCES,
        )

    def drift(self) -> DriftSummary:
        """The drift that the plan shows. Reads, imports, moves, forgets and outputs are none."""
        counts = _counts(self.resources)
        drifted = [change.name for change in self.resources if _kind(change) in _DRIFT_KINDS]
        return DriftSummary(
            create=counts["create"],
            update=counts["update"],
            replace=counts["replace"],
            delete=counts["delete"],
            resources=tuple(drifted[:MOST_DRIFT_RESOURCES]),
        )


_DRIFT_KINDS = ("create", "update", "replace", "delete")


def parse_plan(document: bytes) -> Plan:
    """Parses the document of `show -json`.

    Raises:
        PlanError: it is not JSON, or not shaped like a plan.
    """
    try:
        parsed = json.loads(document, parse_float=Number, parse_int=Number, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise PlanError("the plan document is not JSON") from None
    if not isinstance(parsed, dict) or "format_version" not in parsed:
        raise PlanError("the plan document is no JSON object with a format_version")
    resources = _or(parsed.get("resource_changes"), [])
    outputs = _or(parsed.get("output_changes"), {})
    if not isinstance(resources, list) or not isinstance(outputs, dict):
        raise PlanError("the plan document has no list of resource changes or no object of output changes")
    return Plan(
        document=parsed,
        resources=tuple(_resource_change(item) for item in resources),
        outputs=tuple(_change(f"output.{name}", "", details) for name, details in outputs.items()),
    )


def fingerprint(changes: Iterable[Change], key: bytes) -> str:
    """The plan hash `p2:`: what a plan will do, bound to a key so that it reveals no value.

    One line for each change that does something: its name, its actions and the HMAC-SHA256 of its canonical
    effect; the hash is the SHA-256 of the sorted lines.

    Args:
        changes: resource changes and output changes.
        key: the whole plan key.
    """
    lines = sorted(
        b"|".join(
            (
                encoded(change.name),
                encoded(",".join(change.actions)),
                hmac.new(key, canonical(effect(change)), hashlib.sha256).hexdigest().encode(),
            )
        )
        for change in changes
        if not change.noop or change.imported or change.moved
    )
    return "p2:" + hashlib.sha256(b"\n".join(lines)).hexdigest()


def effect(change: Change) -> dict[str, Any]:
    """What one change does, as the object that the fingerprint binds; members in their fixed order."""
    details = change.details
    bound: dict[str, Any] = {}
    if change.imported:
        bound["importing"] = details["importing"]
    if change.moved:
        bound["previous_address"] = change.previous_address
    if change.actions in (("create",), ("read",)):
        bound["after"] = details.get("after")
        bound["after_unknown"] = normalise_marker(details.get("after_unknown"))
        bound["after_sensitive"] = normalise_marker(details.get("after_sensitive"))
    elif change.actions not in (("delete",), ("forget",)):
        bound["paths"] = list(
            _leaf_differences(
                [],
                details.get("before"),
                details.get("after"),
                details.get("after_unknown"),
                details.get("before_sensitive"),
                details.get("after_sensitive"),
            )
        )
    return {name: value for name, value in bound.items() if value is not None and (name != "paths" or value)}


def normalise_marker(marker: object) -> Any:
    """A marker (of unknown or sensitive values) reduced to what it marks; None when it marks nothing.

    Objects keep only members that mark something, lists keep their length with null for the rest.
    """
    if marker is True:
        return True
    if isinstance(marker, dict):
        members = {name: normalise_marker(part) for name, part in marker.items()}
        return {name: part for name, part in members.items() if part is not None} or None
    if isinstance(marker, list):
        items = [normalise_marker(part) for part in marker]
        return items if any(item is not None for item in items) else None
    return None


def canonical(value: object) -> bytes:
    """Canonical JSON: no white space, keys of plain objects sorted, numbers by their literal, UTF-8.

    The effect object and its paths keep the order of their members, which is fixed (`effect`).
    """
    pieces: list[str] = []
    _write(value, pieces, ordered=True)
    return encoded("".join(pieces))


class _Ordered(dict[str, Any]):
    """An object whose members are written in their own order."""


def _leaf_differences(
    path: list[str | int],
    before: object,
    after: object,
    unknown: object,
    before_sensitive: object,
    after_sensitive: object,
) -> Iterator[_Ordered]:
    """The leaves at which two values differ, in knowledge, presence, value or sensitivity."""
    if unknown is True:
        yield _leaf(path, None, None, True, before_sensitive, after_sensitive)
        return
    if isinstance(before, dict) and isinstance(after, dict) and (before or after):
        keys = set(before) | set(after) | (set(unknown) if isinstance(unknown, dict) else set())
        for key in sorted(keys):
            yield from _leaf_differences(
                [*path, key],
                before.get(key, _ABSENT),
                after.get(key, _ABSENT),
                _beneath(unknown, key),
                _beneath(before_sensitive, key),
                _beneath(after_sensitive, key),
            )
        return
    if isinstance(before, list) and isinstance(after, list) and (before or after):
        longest = max(len(before), len(after), len(unknown) if isinstance(unknown, list) else 0)
        for index in range(longest):
            yield from _leaf_differences(
                [*path, index],
                before[index] if index < len(before) else _ABSENT,
                after[index] if index < len(after) else _ABSENT,
                _beneath(unknown, index),
                _beneath(before_sensitive, index),
                _beneath(after_sensitive, index),
            )
        return
    differs = (
        normalise_marker(unknown) is not None
        or (before is _ABSENT) != (after is _ABSENT)
        or not _same(before, after)
        or normalise_marker(before_sensitive) != normalise_marker(after_sensitive)
    )
    if differs:
        yield _leaf(path, before, after, normalise_marker(unknown), before_sensitive, after_sensitive)


def _leaf(
    path: list[str | int],
    before: object,
    after: object,
    unknown: object,
    before_sensitive: object,
    after_sensitive: object,
) -> _Ordered:
    leaf = _Ordered(path=[Number(str(part)) if isinstance(part, int) else part for part in path])
    leaf["before"] = None if before is _ABSENT else before
    leaf["after"] = None if after is _ABSENT else after
    if before is _ABSENT:
        leaf["before_absent"] = True
    if after is _ABSENT:
        leaf["after_absent"] = True
    for name, marker in (
        ("unknown", unknown),
        ("before_sensitive", normalise_marker(before_sensitive)),
        ("after_sensitive", normalise_marker(after_sensitive)),
    ):
        if marker is not None:
            leaf[name] = marker
    return leaf


def _beneath(marker: object, part: str | int) -> object:
    """The marker of a member: a boolean applies to everything beneath it."""
    if isinstance(marker, bool):
        return marker
    if isinstance(marker, dict) and isinstance(part, str):
        return marker.get(part)
    if isinstance(marker, list) and isinstance(part, int):
        return marker[part] if part < len(marker) else None
    return None


def _same(one: object, other: object) -> bool:
    """Equality that keeps a boolean apart from everything else."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


def _resource_change(item: object) -> Change:
    if not isinstance(item, dict) or not isinstance(item.get("address"), str):
        raise PlanError("the plan document has a resource change without an address")
    previous = item.get("previous_address")
    return _change(item["address"], previous if isinstance(previous, str) else "", item.get("change"))


def _change(name: str, previous_address: str, details: object) -> Change:
    if not isinstance(details, dict):
        raise PlanError("the plan document has a change without details")
    actions = _or(details.get("actions"), [])
    if not isinstance(actions, list) or not all(isinstance(action, str) for action in actions):
        raise PlanError("the plan document has a change without a list of actions")
    return Change(name, tuple(actions), previous_address, details)


def _kind(change: Change) -> str:
    """The one count that a change goes into, empty for those that are not counted."""
    if change.replaced:
        return "replace"
    if "update" in change.actions:
        return "update"
    if change.actions in (("create",), ("delete",), ("forget",)):
        return change.actions[0]
    return ""


def _counts(changes: Iterable[Change]) -> dict[str, int]:
    counts = {"create": 0, "update": 0, "replace": 0, "delete": 0, "forget": 0}
    for change in changes:
        if kind := _kind(change):
            counts[kind] += 1
    return counts


def _or(value: object, default: object) -> object:
    return default if value is None else value


def _refuse_constant(_text: str) -> NoReturn:
    raise ValueError("not a JSON number")


_UNPRINTED = re.compile('["\\\\<>&\u2028\u2029\x00-\x1f]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _write(value: object, pieces: list[str], *, ordered: bool = False) -> None:
    if value is None:
        pieces.append("null")
    elif isinstance(value, bool):
        pieces.append("true" if value else "false")
    elif isinstance(value, Number):
        pieces.append(value.literal)
    elif isinstance(value, str):
        pieces += ('"', _UNPRINTED.sub(_escape, value), '"')
    elif isinstance(value, list):
        pieces.append("[")
        for index, item in enumerate(value):
            if index:
                pieces.append(",")
            _write(item, pieces)
        pieces.append("]")
    elif isinstance(value, dict):
        pieces.append("{")
        names = value if ordered or isinstance(value, _Ordered) else sorted(value)
        for index, name in enumerate(names):
            if index:
                pieces.append(",")
            _write(name, pieces)
            pieces.append(":")
            _write(value[name], pieces)
        pieces.append("}")
    else:
        raise TypeError(f"{type(value).__name__} is no value of a plan")
