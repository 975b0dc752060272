"""Strategic merge patch: a merge patch that knows by which key the lists of a built-in kind merge.

Lists whose schema names map keys merge by the first of them, lists that are sets by their values, all
others are replaced. Directives: `$patch` (replace, delete, merge) in objects and list items,
`$deleteFromPrimitiveList/<f>`, `$setElementOrder/<f>` and `$retainKeys`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import status

_DIRECTIVE = "$patch"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"

Schema = Mapping[str, Any]


def merge(schema: Schema, current: Object, patch: Object) -> Object:
    """`current` with the patch applied; neither is changed. Raises a 400 `ApiStatus` for a bad directive."""
    merged = _merge_map(schema, copy.deepcopy(current), copy.deepcopy(patch))
    return merged if merged is not None else {}


def _field_schema(schema: Schema, name: str) -> Schema:
    properties = schema.get("properties") or {}
    if name in properties:
        found: Schema = properties[name]
        return found
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, Mapping) else {}


def _merge_map(schema: Schema, current: Object, patch: Object) -> Object | None:
    directive = patch.pop(_DIRECTIVE, None)
    if directive == "replace":
        return patch
    if directive == "delete":
        return None
    if directive not in (None, "merge"):
        raise status.plain_internal(f"unknown patch type: {directive} in map: map[$patch:{directive}]")
    retained = patch.pop(_RETAIN, None)
    if isinstance(retained, list):
        current = {key: value for key, value in current.items() if key in retained}
    orders = {key.removeprefix(_ORDER): patch.pop(key) for key in [k for k in patch if k.startswith(_ORDER)]}
    removals = {
        key.removeprefix(_DELETE_PRIMITIVES): patch.pop(key)
        for key in [k for k in patch if k.startswith(_DELETE_PRIMITIVES)]
    }
    live = {name: list(items) for name, items in current.items() if isinstance(items, list)}
    for name, gone in removals.items():
        if isinstance(current.get(name), list):
            current[name] = [item for item in current[name] if item not in gone]
    for name, value in patch.items():
        _merge_field(_field_schema(schema, name), current, name, value)
    for name, order in orders.items():
        if isinstance(current.get(name), list) and isinstance(order, list):
            server = live.get(name, [])
            current[name] = _ordered(_field_schema(schema, name), current[name], order, server)
    return current


def _merge_field(schema: Schema, current: Object, name: str, value: object) -> None:
    present = current.get(name)
    if value is None:
        current.pop(name, None)
    elif isinstance(value, dict):
        merged = _merge_map(schema, present if isinstance(present, dict) else {}, value)
        if merged is None:
            current.pop(name, None)
        else:
            current[name] = merged
    elif isinstance(value, list):
        current[name] = _merge_list(schema, present if isinstance(present, list) else [], value)
    else:
        current[name] = value


def _merge_list(schema: Schema, current: list[Any], patch: list[Any]) -> list[Any]:
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        merged = _merge_keyed(schema.get("items") or {}, str(keys[0]), current, patch)
        return _ordered(schema, merged, patch, current)
    if schema.get("x-kubernetes-list-type") == "set":
        merged = [*current, *(item for item in patch if item not in current)]
        return _ordered(schema, merged, patch, current)
    return [_strip(item) for item in patch]


def _merge_keyed(items: Schema, key: str, current: list[Any], patch: list[Any]) -> list[Any]:
    replaced = any(item == {_DIRECTIVE: "replace"} for item in patch)
    result: list[Any] = [] if replaced else list(current)
    for item in patch:
        if not isinstance(item, dict):
            raise status.bad_request(f"expected an object in a list that merges by {key}")
        if item == {_DIRECTIVE: "replace"}:
            continue
        if key not in item:
            raise status.plain_internal(f"map: {item} does not contain declared merge key: {key}")
        position = next((i for i, p in enumerate(result) if _key_of(p, key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            result = [present for present in result if _key_of(present, key) != item[key]]
        elif position is None:
            result.append(_strip(item))
        else:
            merged = _merge_map(items, result[position], dict(item))
            if merged is not None:
                result[position] = merged
    return result


def _key_of(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else None


def _strip(value: Any) -> Any:
    """A value that is new as a whole, without the directives and nulls inside."""
    if isinstance(value, dict):
        return {
            name: _strip(inner)
            for name, inner in value.items()
            if inner is not None and not name.startswith("$")
        }
    return [_strip(inner) for inner in value] if isinstance(value, list) else value


def _ordered(schema: Schema, items: list[Any], order: list[Any], server: list[Any]) -> list[Any]:
    """Items in the order that the patch names them; the server's others keep their places among them.

    An item that the server did not have before comes as early as the order allows.
    """
    keys = schema.get("x-kubernetes-list-map-keys")

    def identity(item: Any) -> Any:
        return _key_of(item, str(keys[0])) if keys else item

    wanted = [identity(entry) for entry in order]
    before = [identity(entry) for entry in server]
    named = sorted((i for i in items if identity(i) in wanted), key=lambda i: wanted.index(identity(i)))
    others = [i for i in items if identity(i) not in wanted]
    result: list[Any] = []
    while named and others:
        left, right = identity(others[0]), identity(named[0])
        earlier = left in before and right in before and before.index(left) < before.index(right)
        result.append((others if earlier else named).pop(0))
    return [*result, *others, *named]
