"""Sets of fields: the paths inside an object that someone owns, and their wire form `FieldsV1`.

A path is a tuple of elements in wire notation: `f:name` for a field, `k:{"name":"a"}` for an item of a
keyed list, `v:"a"` for an item of a set. A set holds every path that is a member itself; in the wire form a
member with members below it shows as `.`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from captf_runtime.testing.apiserver.schema.json_values import compact, same_json
from captf_runtime.testing.apiserver.topology import Topology

Path = tuple[str, ...]
FieldSet = frozenset[Path]
Value = Any


class TypedError(ValueError):
    """A value that does not fit its schema, so that no fields can be told; the text is the server's."""


def encode(fields: Iterable[Path]) -> dict[str, Any]:
    """The `FieldsV1` form of a set."""
    root: dict[str, Any] = {}
    for path in sorted(fields):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    _drop_lone_dots(root)
    return root


def _drop_lone_dots(node: dict[str, Any]) -> None:
    for child in node.values():
        if list(child) == ["."]:
            del child["."]
        else:
            _drop_lone_dots(child)


def decode(fields: object) -> FieldSet:
    """Read a `FieldsV1` form."""
    found: set[Path] = set()

    def walk(node: object, path: Path) -> None:
        if not isinstance(node, dict) or not node:
            if path:
                found.add(path)
            return
        for element, child in node.items():
            if element == ".":
                found.add(path)
            else:
                walk(child, (*path, element))

    walk(fields, ())
    return frozenset(found)


def below(fields: Iterable[Path], prefix: Path) -> FieldSet:
    """The members under a path, relative to it; without the path itself."""
    length = len(prefix)
    return frozenset(path[length:] for path in fields if len(path) > length and path[:length] == prefix)


def shown(path: Path) -> str:
    """A path as messages write it: `.spec.ports[name="a"].port`."""
    out = []
    for element in path:
        kind, _, text = element.partition(":")
        if kind == "f":
            out.append(f".{text}")
        elif kind == "k":
            keys = json.loads(text)
            out.append("[" + ",".join(f"{key}={compact(keys[key])}" for key in sorted(keys)) + "]")
        elif kind == "v":
            out.append(f"[={text}]")
        else:
            out.append(f"[{text}]")
    return "".join(out)


# -- the parts of a value --------------------------------------------------------------------------


def is_taken_apart(topology: Topology, value: Value) -> bool:
    """Whether the parts of a value can have owners of their own."""
    if topology.form == "deduced":
        return isinstance(value, dict)
    if topology.form in ("struct", "map"):
        return isinstance(value, dict)
    return topology.form in ("set", "keyed") and isinstance(value, list)


def parts(topology: Topology, value: Value) -> Iterator[tuple[str, Value, Topology]]:
    """The parts of a value that is taken apart: path element, value, topology."""
    if isinstance(value, dict):
        for name, item in value.items():
            child = child_topology(topology, name)
            if child is not None:
                yield f"f:{name}", item, child
    elif isinstance(value, list):
        element = topology.element or Topology("scalar")
        for item in value:
            yield item_element(topology, item), item, element


def child_topology(topology: Topology, name: str) -> Topology | None:
    """The topology of a field; None when the schema does not declare it."""
    if topology.form == "deduced":
        return topology
    if name in topology.fields:
        return topology.fields[name]
    return topology.element


def item_element(topology: Topology, item: Value) -> str:
    """The path element of an item of a set or a keyed list."""
    if topology.form == "set":
        return f"v:{compact(item)}"
    keys = {}
    for key in topology.keys:
        if isinstance(item, dict) and key in item:
            keys[key] = item[key]
        elif key in topology.defaults:
            keys[key] = topology.defaults[key]
    return f"k:{compact(keys)}"


def fields_of(topology: Topology, value: Value, *, empty_maps: bool = True) -> FieldSet:
    """The fields that somebody owns who applies `value`.

    Args:
        empty_maps: whether an empty object in a declared field is owned (since 1.21).
    """
    found: set[Path] = set()

    def walk(node: Topology, item: Value, path: Path) -> None:
        if not is_taken_apart(node, item):
            if path:
                found.add(path)
            return
        for element, part, child in parts(node, item):
            here = (*path, element)
            declared = isinstance(item, dict) and node.form == "struct" and element[2:] in node.fields
            if not declared or part is None or (empty_maps and part == {}):
                found.add(here)
            walk(child, part, here)

    walk(topology, value, ())
    return frozenset(found)


def check_types(topology: Topology, value: Value) -> None:
    """Check that a value fits its schema as far as merging needs it.

    Raises:
        TypedError: for example `.spec.zone: field not declared in schema`.
    """
    problems: list[str] = []
    _check(topology, value, (), problems)
    if problems:
        text = (
            problems[0] if len(problems) == 1 else "errors:\n" + "\n".join(f"  {line}" for line in problems)
        )
        raise TypedError(text)


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
}


def _check(topology: Topology, value: Value, path: Path, problems: list[str]) -> None:
    if value is None or topology.form == "deduced":
        return
    if topology.form in ("struct", "map") or (topology.form == "atomic" and topology.kind == "object"):
        if not isinstance(value, dict):
            problems.append(f"{shown(path)}: expected map, got &{{{_plain(value)}}}")
            return
        for name, item in value.items():
            child = child_topology(topology, name)
            here = (*path, f"f:{name}")
            if child is not None:
                _check(child, item, here, problems)
            elif topology.form != "atomic":
                problems.append(f"{shown(here)}: field not declared in schema")
        return
    if topology.kind == "array":
        if not isinstance(value, list):
            problems.append(f"{shown(path)}: expected list, got &{{{_plain(value)}}}")
            return
        _check_items(topology, value, path, problems)
        return
    wanted = _JSON_TYPES.get(topology.kind)
    if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and topology.kind != "boolean")):
        name = {"integer": "numeric (int or float)", "number": "numeric (int or float)"}
        expected = name.get(topology.kind, topology.kind)
        problems.append(f"{shown(path)}: expected {expected}, got {_printed(value)}")


def _check_items(topology: Topology, value: list[Value], path: Path, problems: list[str]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = f"i:{index}"
        if topology.form in ("set", "keyed"):
            if topology.form == "keyed" and not isinstance(item, dict):
                problems.append(
                    f"{shown(path)}: element {index}: associative list with keys has an element that"
                )
                continue
            missing = [
                key
                for key in topology.keys
                if isinstance(item, dict) and key not in item and key not in topology.defaults
            ]
            if missing:
                text = f"associative list with keys has an element that omits key field {compact(missing[0])}"
                problems.append(f"{shown(path)}: element {index}: {text} (and doesn't have default value)")
                continue
            element = item_element(topology, item)
            if element in seen:
                problems.append(f"{shown(path)}: duplicate entries for key {shown((element,))}")
                continue
            seen.add(element)
        if topology.element is not None:
            _check(topology.element, item, (*path, element), problems)


def _printed(value: Value) -> str:
    return f"&value.valueUnstructured{{Value:{compact(value)}}}"


def _plain(value: Value) -> str:
    """A value as the server's language prints it plainly: maps and lists by their items with spaces
    between.
    """
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_plain(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_plain(item) for item in value) + "]"
    return value if isinstance(value, str) else compact(value)


# -- comparison ------------------------------------------------------------------------------------


class Comparison:
    """What changed between two values: the paths added, removed and modified."""

    def __init__(self, topology: Topology, before: Value, after: Value) -> None:
        self.added: set[Path] = set()
        self.removed: set[Path] = set()
        self.modified: set[Path] = set()
        self._walk(topology, before, after, ())

    def _walk(self, node: Topology, before: Value, after: Value, path: Path) -> None:
        if before is None or after is None:
            if before is not after:
                self._whole(node, before if after is None else after, path, added=before is None)
            return
        apart = is_taken_apart(node, before) and is_taken_apart(node, after)
        if not apart or (not before and not after):
            if path and not same_json(before, after):
                self.modified.add(path)
            return
        old = {element: (item, child) for element, item, child in parts(node, before)}
        new = {element: (item, child) for element, item, child in parts(node, after)}
        for element in list(old) + [element for element in new if element not in old]:
            child = (new.get(element) or old[element])[1]
            old_item = old[element][0] if element in old else None
            new_item = new[element][0] if element in new else None
            self._walk(child, old_item, new_item, (*path, element))

    def _whole(self, node: Topology, value: Value, path: Path, *, added: bool) -> None:
        target = self.added if added else self.removed
        apart = is_taken_apart(node, value)
        # An object that is always there neither comes nor goes; only what is in it does.
        if path and not (apart and node.always):
            target.add(path)
        if apart:
            for element, item, child in parts(node, value):
                self._whole(child, item, (*path, element), added=added)
