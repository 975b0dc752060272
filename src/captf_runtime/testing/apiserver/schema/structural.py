"""Whether the schema of a custom resource definition is acceptable: keywords, structural form, defaults.

Three passes give their errors in this order: keywords and extensions at their place in the schema; the
structural form (types everywhere, nothing but value rules inside `allOf`, `anyOf`, `oneOf` and `not`),
sorted by field; and, when those are clean, lists of type set and map and the defaults.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from captf_runtime.testing.apiserver.schema.causes import (
    Cause,
    Verbatim,
    forbidden,
    go_quote,
    invalid,
    not_supported,
    required,
)
from captf_runtime.testing.apiserver.schema.compiled import CompiledSchema, Mode
from captf_runtime.testing.apiserver.schema.json_values import same_json
from captf_runtime.testing.apiserver.schema.regular_expressions import PatternError, compile_pattern
from captf_runtime.testing.apiserver.schema.rules import rule_errors

Schema = Mapping[str, Any]
Level = Literal["root", "item", "field"]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SCALARS = frozenset({"boolean", "integer", "number", "string"})
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_MISSING_TYPE: dict[Level, str] = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


_NO_FORM = ("is not supported", "items must be a schema object and not an array")
"""Ends of the texts after which a schema has no structural form that could be judged."""


def structural_errors(schema: Schema, path: str, *, mode: Mode = "modern") -> list[Cause]:
    """Everything that is wrong with a schema.

    Args:
        schema: the `openAPIV3Schema`.
        path: its place in the definition, with which every field of the errors begins.
        mode: whether rules in CEL are known.
    """
    causes = list(_keywords(schema, path, is_root=True))
    if any(cause.message.endswith(_NO_FORM) for cause in causes):
        return causes
    causes += sorted(_form(schema, path, "root"), key=lambda cause: cause.field)
    if causes:
        return causes
    causes = list(_list_invariants(schema, path))
    causes += _defaults(schema, path, mode, is_root=True)
    if mode == "modern" and not causes:
        causes += rule_errors(schema, path)
    return causes


def _below(schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
    """The schemas directly below one, with their places."""
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield schema["additionalProperties"], f"{path}.additionalProperties"
    yield from _structure(schema, path)
    if isinstance(schema.get("not"), Mapping):
        yield schema["not"], f"{path}.not"
    for keyword in ("allOf", "oneOf", "anyOf"):
        for index, sub in enumerate(schema.get(keyword) or ()):
            yield sub, f"{path}.{keyword}[{index}]"


def _structure(schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
    """The schemas of properties and items."""
    for name, sub in (schema.get("properties") or {}).items():
        if isinstance(sub, Mapping):
            yield sub, f"{path}.properties[{name}]"
    if isinstance(schema.get("items"), Mapping):
        yield schema["items"], f"{path}.items"


# -- keywords --------------------------------------------------------------------------------------


def _keywords(schema: Schema, path: str, *, is_root: bool = False) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    if schema.get("uniqueItems") is True:
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", text)
    if is_root and schema.get("nullable") is True:
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    additional = schema.get("additionalProperties")
    if schema.get("properties") and (additional is False or isinstance(additional, Mapping)):
        yield forbidden(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    for keyword in _UNSUPPORTED:
        if schema.get(keyword):
            yield forbidden(f"{path}.{keyword}", f"{keyword} is not supported")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if schema.get("pattern"):
        try:
            compile_pattern(str(schema["pattern"]))
        except PatternError as error:
            text = f"must be a valid regular expression, but isn't: {error}"
            yield invalid(f"{path}.pattern", schema["pattern"], text)
    for sub, sub_path in _below(schema, path):
        yield from _keywords(sub, sub_path)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    yield from _map_type(schema, kind, path)
    yield from _list_type(schema, kind, path)


def _map_type(schema: Schema, kind: str, path: str) -> Iterator[Cause]:
    map_type = schema.get("x-kubernetes-map-type")
    if map_type is None:
        return
    if kind != "object":
        yield _must_be(f"{path}.type", kind, "must be object if x-kubernetes-map-type is specified")
    if map_type not in ("atomic", "granular"):
        yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))


def _must_be(field: str, value: str, text: str) -> Cause:
    return invalid(field, value, text) if value else required(field, text)


def _list_type(schema: Schema, kind: str, path: str) -> Iterator[Cause]:
    list_type = schema.get("x-kubernetes-list-type")
    keys = list(schema.get("x-kubernetes-list-map-keys") or ())
    if list_type is not None:
        if kind != "array":
            yield _must_be(f"{path}.type", kind, "must be array if x-kubernetes-list-type is specified")
        elif list_type not in ("atomic", "set", "map"):
            yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield _must_be(f"{path}.x-kubernetes-list-type", list_type or "", text)
    if list_type != "map":
        return
    keys_path = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield required(keys_path, "must not be empty if x-kubernetes-list-type is map")
    items = schema.get("items")
    if not isinstance(items, Mapping):
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", text)
        return
    printed = Verbatim("[]string{" + ", ".join(go_quote(key) for key in keys) + "}")
    properties = items.get("properties") or {}
    for key in keys:
        if key not in properties:
            yield invalid(keys_path, printed, "entries must all be names of item properties")
        elif properties[key].get("type") not in _SCALARS:
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", properties[key].get("type") or "", text)
    if len(set(keys)) != len(keys):
        yield invalid(keys_path, printed, "must not contain duplicate entries")


# -- structural form -------------------------------------------------------------------------------


def _form(schema: Schema, path: str, level: Level) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    if isinstance(schema.get("items"), Mapping):
        yield from _form(schema["items"], f"{path}.items", "item")
    elif kind == "array":
        yield required(f"{path}.items", "must be specified")
    for name, sub in (schema.get("properties") or {}).items():
        yield from _form(sub, f"{path}.properties[{name}]", "field")
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        yield from _form(additional, f"{path}.additionalProperties", "field")
    yield from _value_rules(schema, path)
    embedded = schema.get("x-kubernetes-embedded-resource") is True
    preserve = schema.get("x-kubernetes-preserve-unknown-fields") is True
    if embedded:
        if kind != "object":
            yield _must_be(f"{path}.type", kind, "must be object if x-kubernetes-embedded-resource is true")
        if additional is not None:
            text = "must not be used if x-kubernetes-embedded-resource is set"
            yield forbidden(f"{path}.additionalProperties", text)
        if not preserve and not schema.get("properties"):
            text = "must not be empty if x-kubernetes-embedded-resource is true without "
            yield required(f"{path}.properties", text + "x-kubernetes-preserve-unknown-fields")
    elif not kind and not preserve and schema.get("x-kubernetes-int-or-string") is not True:
        yield required(f"{path}.type", _MISSING_TYPE[level])
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")
    if level == "root" or embedded:
        yield from _object_fields(schema, path, level)


def _object_fields(schema: Schema, path: str, level: Level) -> Iterator[Cause]:
    properties = schema.get("properties") or {}
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if name in properties and properties[name].get("type") != wanted:
            field, value = f"{path}.properties[{name}].type", properties[name].get("type") or ""
            yield invalid(field, value, f"must be {wanted}")
            if name == "metadata":
                return
    metadata = properties.get("metadata")
    if metadata is None or level != "root":
        return
    allowed = {"type", "properties", "description"}
    if set(metadata) - allowed or set(metadata.get("properties") or {}) - {"name", "generateName"}:
        text = (
            "must not specify anything other than name and generateName, but metadata is implicitly specified"
        )
        yield forbidden(f"{path}.properties[metadata]", text)


_NESTED_EMPTY = ("description", "title", "type", "x-kubernetes-list-map-keys")
_NESTED_UNDEFINED = ("default", "additionalProperties", "x-kubernetes-list-type", "x-kubernetes-map-type")
_NESTED_FALSE = (
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
)
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def _value_rules(schema: Schema, path: str) -> Iterator[Cause]:
    int_or_string = schema.get("x-kubernetes-int-or-string") is True
    for keyword in ("allOf", "anyOf", "oneOf"):
        subs = schema.get(keyword) or ()
        if keyword == "anyOf" and int_or_string and _is_int_or_string(subs):
            continue
        for index, sub in enumerate(subs):
            # The pattern of int-or-string may stand in the first entry of allOf, and its types with it.
            skip = (
                keyword == "allOf"
                and index == 0
                and int_or_string
                and _is_int_or_string(sub.get("anyOf") or ())
            )
            yield from _nested(sub, f"{path}.{keyword}[{index}]", skip_any_of=skip)
    if isinstance(schema.get("not"), Mapping):
        yield from _nested(schema["not"], f"{path}.not")


def _is_int_or_string(subs: Any) -> bool:
    return list(subs) == _INT_OR_STRING


def _nested(schema: Schema, path: str, *, skip_any_of: bool = False) -> Iterator[Cause]:
    for keyword in _NESTED_EMPTY:
        if schema.get(keyword):
            yield forbidden(f"{path}.{keyword}", "must be empty to be structural")
    for keyword in _NESTED_FALSE:
        if schema.get(keyword) is True:
            yield forbidden(f"{path}.{keyword}", "must be false to be structural")
    for keyword in _NESTED_UNDEFINED:
        if schema.get(keyword) is not None:
            yield forbidden(f"{path}.{keyword}", "must be undefined to be structural")
    for sub, sub_path in _structure(schema, path):
        yield from _nested(sub, sub_path)
    for keyword in ("allOf", "anyOf", "oneOf"):
        if keyword == "anyOf" and skip_any_of:
            continue
        for index, sub in enumerate(schema.get(keyword) or ()):
            yield from _nested(sub, f"{path}.{keyword}[{index}]")
    if isinstance(schema.get("not"), Mapping):
        yield from _nested(schema["not"], f"{path}.not")


# -- lists of type set and map ---------------------------------------------------------------------


def _list_invariants(schema: Schema, path: str) -> Iterator[Cause]:
    list_type, items = schema.get("x-kubernetes-list-type"), schema.get("items")
    if list_type in ("set", "map") and isinstance(items, Mapping):
        if items.get("nullable") is True:
            text = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
            yield forbidden(f"{path}.items.nullable", text)
        if list_type == "map":
            yield from _map_keys(schema, items, path)
        else:
            for kind, keyword, default in (
                ("object", "x-kubernetes-map-type", "granular"),
                ("array", "x-kubernetes-list-type", "atomic"),
            ):
                value = items.get(keyword)
                if items.get("type") == kind and (value or default) != "atomic":
                    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
                    yield invalid(f"{path}.items.{keyword}", value, text)
    for sub, sub_path in _structure(schema, path):
        yield from _list_invariants(sub, sub_path)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _list_invariants(schema["additionalProperties"], f"{path}.additionalProperties")


_MAP_KEY = "this property is in x-kubernetes-list-map-keys, so it "


def _map_keys(schema: Schema, items: Schema, path: str) -> Iterator[Cause]:
    needed = set(items.get("required") or ())
    for key in schema.get("x-kubernetes-list-map-keys") or ():
        prop = items["properties"][key]
        field = f"{path}.items.properties[{key}]"
        if prop.get("default") is None and key not in needed:
            text = _MAP_KEY + "must have a default or be a required property"
            yield required(f"{field}.default", text)
        if prop.get("nullable") is True:
            text = _MAP_KEY + "cannot be nullable"
            yield forbidden(f"{field}.nullable", text)


# -- defaults --------------------------------------------------------------------------------------


def _defaults(schema: Schema, path: str, mode: Mode, *, is_root: bool = False) -> list[Cause]:
    causes: list[Cause] = []
    default = schema.get("default")
    if default is not None:
        causes += _default(schema, default, f"{path}.default", mode, is_root=is_root)
    for sub, sub_path in _structure(schema, path):
        if is_root and sub_path.endswith(".properties[metadata]"):
            causes += [
                forbidden(f"{nested_path}.default", "must not be set in top-level metadata")
                for nested, nested_path in _structure(sub, sub_path)
                if nested.get("default") is not None
            ]
            continue
        causes += _defaults(sub, sub_path, mode)
    if isinstance(schema.get("additionalProperties"), Mapping):
        causes += _defaults(schema["additionalProperties"], f"{path}.additionalProperties", mode)
    return causes


def _default(schema: Schema, default: Any, path: str, mode: Mode, *, is_root: bool) -> list[Cause]:
    # The default of the root must be a whole object, with version and kind.
    whole = {**schema, "x-kubernetes-embedded-resource": True} if is_root else schema
    compiled = CompiledSchema(whole, mode=mode)
    pruned = copy.deepcopy(default)
    unknown = compiled.prune_value(pruned)
    causes: list[Cause] = []
    if unknown or not same_json(pruned, default):
        causes.append(invalid(path, default, "must not have unknown fields"))
        if compiled.root.int_or_string:
            return causes
    for cause in compiled.validate_value(pruned):
        field = path if cause.field in ("<nil>", "") else f"{path}.{cause.field}"
        causes.append(Cause(cause.reason, cause.message, field))
    return causes
