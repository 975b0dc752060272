"""How the parts of an object merge: which maps and lists are taken apart and which are one value.

A `Topology` tree is built once from a schema, of a custom resource or a built-in kind, and says for every
value whether its fields or items can have owners of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from captf_runtime.testing.apiserver.shapes import ALWAYS, kind_schema, object_meta

Form = Literal["scalar", "struct", "map", "set", "keyed", "atomic", "deduced"]


@dataclass(frozen=True, slots=True)
class Topology:
    """The way one value merges.

    Args:
        form: `struct` has the `fields` that it declares and no others unless `element` says what they are;
        `map`
            has any fields, all like `element`; `set` is a list whose items are their own keys; `keyed` a list
            whose items are objects known by `keys`; `atomic` and `scalar` are one value; `deduced` follows
            the value: maps are taken apart, lists are not.
        always: the value is there even when nobody wrote it, so that nobody owns it as such.
        defaults: values of keys that an item leaves out.
    """

    form: Form
    fields: Mapping[str, Topology] = field(default_factory=dict)
    element: Topology | None = None
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, object] = field(default_factory=dict)
    always: bool = False
    kind: str = ""


DEDUCED = Topology("deduced")
ATOMIC = Topology("atomic")


@functools.cache
def builtin_topology(api_version: str, kind: str) -> Topology:
    """The topology of a built-in kind; of one that is not known, the deduced one."""
    schema = kind_schema(api_version, kind)
    return DEDUCED if schema is None else _from_schema(schema, untyped=DEDUCED)


def schema_topology(openapi_schema: Mapping[str, Any], *, legacy: bool = False) -> Topology:
    """The topology of a custom resource.

    Args:
        openapi_schema: the schema of the version.
        legacy: as 1.20 does: unknown fields that are kept are values as a whole, and a schema with
            int-or-string anywhere counts for nothing at all.
    """
    if legacy and _mentions(openapi_schema, "x-kubernetes-int-or-string"):
        return DEDUCED
    whole = dict(openapi_schema)
    properties = dict(whole.get("properties") or {})
    properties.update(
        apiVersion={"type": "string"}, kind={"type": "string"}, metadata={**object_meta(), ALWAYS: True}
    )
    whole["properties"] = properties
    return _from_schema(whole, untyped=ATOMIC if legacy else DEDUCED)


def _mentions(schema: object, keyword: str) -> bool:
    if isinstance(schema, Mapping):
        return schema.get(keyword) is True or any(_mentions(value, keyword) for value in schema.values())
    return isinstance(schema, list) and any(_mentions(value, keyword) for value in schema)


def _from_schema(schema: Mapping[str, Any], *, untyped: Topology) -> Topology:
    kind = str(schema.get("type") or "")
    always = schema.get(ALWAYS) is True
    preserve = schema.get("x-kubernetes-preserve-unknown-fields") is True
    if schema.get("x-kubernetes-map-type") == "atomic":
        return Topology("atomic", kind=kind)
    properties = schema.get("properties")
    additional = schema.get("additionalProperties")
    if kind == "array":
        return _list(schema, untyped=untyped)
    if isinstance(additional, Mapping):
        return Topology("map", element=_from_schema(additional, untyped=untyped), kind=kind)
    if properties or (kind == "object" and not preserve and additional is None):
        fields = {name: _from_schema(sub, untyped=untyped) for name, sub in (properties or {}).items()}
        element = untyped if preserve or additional else None
        return Topology("struct", fields=fields, element=element, always=always, kind=kind)
    if preserve or kind == "object":
        if kind == "object":
            return Topology("map", element=untyped, kind=kind)
        return untyped
    return Topology("scalar", kind=kind)


def _list(schema: Mapping[str, Any], *, untyped: Topology) -> Topology:
    items = schema.get("items") or {}
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "set":
        return Topology("set", element=_from_schema(items, untyped=untyped), kind="array")
    if list_type == "map":
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        properties = items.get("properties") or {}
        defaults = {
            key: properties[key]["default"]
            for key in keys
            if properties.get(key, {}).get("default") is not None
        }
        element = _from_schema(items, untyped=untyped)
        return Topology("keyed", element=element, keys=keys, defaults=defaults, kind="array")
    # The item type is kept for the check of types.
    return Topology("atomic", element=_from_schema(items, untyped=untyped) if items else None, kind="array")
