"""Structural schemas at work: pruning, defaulting, dropping nulls, and validation.

`compile_schema` turns the `openAPIV3Schema` of a CRD version into a tree of `Node`s once; everything after
that only walks the tree. A `CompiledSchema` is immutable and may be used from several threads; the objects
given to it are changed in place where a method says so.

The order of errors and the counting of matched rules (which decides whose errors an `anyOf` reports) follow
the validator that the API server uses.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from captf_runtime.testing.apiserver.schema import cel
from captf_runtime.testing.apiserver.schema.causes import (
    NO_FIELD,
    Cause,
    duplicate,
    go_float,
    go_quote,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)
from captf_runtime.testing.apiserver.schema.formats import FORMATS
from captf_runtime.testing.apiserver.schema.json_values import Json, compact, json_type, same_json
from captf_runtime.testing.apiserver.schema.regular_expressions import PatternError, compile_pattern

Mode = Literal["modern", "1.20"]

_ROOT_FIELDS = ("apiVersion", "kind", "metadata")
OBJECT_META_FIELDS = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "clusterName",
        "managedFields",
    }
)
"""The fields of `metadata`; others are dropped from every object."""


@dataclass(slots=True)
class Rule:
    """One entry of `x-kubernetes-validations`, compiled."""

    source: str
    program: cel.Program | None
    compile_error: str
    message: str
    message_expression: cel.Program | None
    reason: str
    field_path: str
    optional_old_self: bool

    @property
    def is_transition(self) -> bool:
        """Whether the rule speaks of `oldSelf` and so needs an old value."""
        return self.program is not None and "oldSelf" in self.program.names


@dataclass(slots=True)
class Node:
    """One schema of the tree; `None` of an optional keyword means that it is absent."""

    schema: Mapping[str, Json]
    type: str
    nullable: bool
    int_or_string: bool
    preserve_unknown: bool
    embedded: bool
    properties: dict[str, Node]
    additional: Node | None
    additional_allowed: bool | None
    items: Node | None
    required: tuple[str, ...]
    enum: list[Json] | None
    list_type: str
    list_keys: tuple[str, ...]
    pattern: re.Pattern[str] | None
    format: Callable[[str], bool] | None
    all_of: list[Node]
    any_of: list[Node]
    one_of: list[Node]
    not_: Node | None
    rules: list[Rule] = field(default_factory=list)

    @property
    def has_default(self) -> bool:
        """Whether the schema sets a default; a null default counts as none."""
        return self.schema.get("default") is not None

    def default(self) -> Json:
        """A fresh copy of the default."""
        return copy.deepcopy(self.schema["default"])


def build(schema: Mapping[str, Json]) -> Node:
    """Build the node of one schema and of everything below it. Malformed parts are left out: `structural`
    reports them.
    """
    properties = schema.get("properties")
    additional = schema.get("additionalProperties")
    items = schema.get("items")
    node_type = str(schema.get("type") or "")
    format_name = schema.get("format")
    pattern: re.Pattern[str] | None = None
    if isinstance(schema.get("pattern"), str) and schema["pattern"]:
        try:
            pattern = compile_pattern(schema["pattern"])
        except PatternError:
            pattern = None
    node = Node(
        schema=schema,
        type=node_type,
        nullable=schema.get("nullable") is True,
        int_or_string=schema.get("x-kubernetes-int-or-string") is True,
        preserve_unknown=schema.get("x-kubernetes-preserve-unknown-fields") is True,
        embedded=schema.get("x-kubernetes-embedded-resource") is True,
        properties={name: build(sub) for name, sub in properties.items() if isinstance(sub, Mapping)}
        if isinstance(properties, Mapping)
        else {},
        additional=build(additional) if isinstance(additional, Mapping) else None,
        additional_allowed=additional if isinstance(additional, bool) else None,
        items=build(items) if isinstance(items, Mapping) else None,
        required=tuple(schema.get("required") or ()),
        enum=list(schema["enum"]) if schema.get("enum") else None,
        list_type=str(schema.get("x-kubernetes-list-type") or ""),
        list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
        pattern=pattern,
        format=FORMATS.get(format_name) if isinstance(format_name, str) else None,
        all_of=[build(sub) for sub in schema.get("allOf") or ()],
        any_of=[build(sub) for sub in schema.get("anyOf") or ()],
        one_of=[build(sub) for sub in schema.get("oneOf") or ()],
        not_=build(schema["not"]) if isinstance(schema.get("not"), Mapping) else None,
    )
    node.rules = [_build_rule(entry) for entry in schema.get("x-kubernetes-validations") or ()]
    return node


def _build_rule(entry: Mapping[str, Json]) -> Rule:
    source = str(entry.get("rule") or "")
    program, compile_error = None, ""
    try:
        program = cel.compile_expression(source)
    except cel.CompileError as error:
        compile_error = str(error)
    message_expression = None
    if entry.get("messageExpression"):
        try:
            message_expression = cel.compile_expression(str(entry["messageExpression"]))
        except cel.CompileError as error:
            compile_error = compile_error or str(error)
    return Rule(
        source=source,
        program=program,
        compile_error=compile_error,
        message=str(entry.get("message") or ""),
        message_expression=message_expression,
        reason=str(entry.get("reason") or "FieldValueInvalid"),
        field_path=str(entry.get("fieldPath") or ""),
        optional_old_self=entry.get("optionalOldSelf") is True,
    )


class CompiledSchema:
    """The schema of one CRD version, ready to be applied to objects.

    Guarantees: `metadata`, `apiVersion` and `kind` of the root are never pruned, defaulted or judged here,
    except for `name` and `generateName` where the schema restricts them.
    """

    def __init__(self, openapi_schema: Mapping[str, Json], *, mode: Mode = "modern") -> None:
        self.mode = mode
        self.openapi_schema = openapi_schema
        self.root = build(openapi_schema)

    # -- pruning -----------------------------------------------------------------------------------

    def prune(self, obj: dict[str, Json]) -> list[str]:
        """Remove the fields that the schema does not know, in place.

        Returns:
            the paths of what was removed, sorted, for example `spec.ports[0].zone`.
        """
        pruned: list[str] = []
        _prune(obj, self.root, "", pruned, is_root=True)
        return sorted(pruned)

    # -- defaulting --------------------------------------------------------------------------------

    def apply_defaults(self, obj: dict[str, Json]) -> None:
        """Fill in defaults and drop nulls where null is not allowed, in place."""
        _apply_defaults(obj, self.root)
        _drop_nulls(obj, self.root)

    # -- validation --------------------------------------------------------------------------------

    def validate(self, obj: dict[str, Json], old: dict[str, Json] | None = None) -> list[Cause]:
        """Judge an object after pruning and defaulting.

        Args:
            obj: the new object.
            old: the stored object on an update. It is what `oldSelf` means, and in modern mode it forgives
            errors
                of values that did not change.

        Returns:
            every error found, in the order of the server; rules are evaluated only when the types are right.
        """
        walk = _Validation(self.mode)
        causes = list(dict.fromkeys(walk.root(obj, old, self.root)))
        causes += _list_types(obj, self.root, "")
        causes += _embedded(obj, self.root, "", is_root=True)
        if self.mode == "1.20":
            return causes
        if not _has_rules(self.root):
            return causes
        if any(cause.reason in _BLOCKING for cause in causes):
            causes.append(invalid(NO_FIELD, None, _BLOCKED))
            return causes
        causes += _evaluate_rules(obj, old, self.root, "", is_root=True)
        return causes

    # -- parts of objects --------------------------------------------------------------------------

    def prune_value(self, value: Json) -> list[str]:
        """Prune a value that is not a whole object, as a default is; otherwise like `prune`."""
        pruned: list[str] = []
        _prune(value, self.root, "", pruned)
        return sorted(pruned)

    def validate_value(self, value: Json) -> list[Cause]:
        """Judge a value that is not a whole object; fields are relative to it, and rules are left out."""
        causes = _Validation(self.mode).value(value, _UNSET, self.root, "").causes
        return causes + _list_types(value, self.root, "") + _embedded(value, self.root, "")

    # -- checks of the schema itself ---------------------------------------------------------------

    def structural_errors(self, path: str = "spec.validation.openAPIV3Schema") -> list[Cause]:
        """Everything that makes the schema unacceptable for a CRD; `path` is its place in the CRD."""
        # Imported here because that module compiles the schemas of defaults with this one.
        from captf_runtime.testing.apiserver.schema.structural import structural_errors

        return structural_errors(self.openapi_schema, path, mode=self.mode)


def compile_schema(openapi_schema: Mapping[str, Json], *, mode: Mode = "modern") -> CompiledSchema:
    """Compile the `openAPIV3Schema` of a CRD version.

    Args:
        openapi_schema: the schema as it stands in the CRD. It is kept, not copied: do not change it
        afterwards. mode: whose texts and features to follow; `1.20` knows no rules in CEL.
    """
    return CompiledSchema(openapi_schema, mode=mode)


_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_BLOCKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# -- pruning ---------------------------------------------------------------------------------------


def _prune(value: Json, node: Node | None, path: str, pruned: list[str], *, is_root: bool = False) -> None:
    preserve = node is not None and node.preserve_unknown
    if isinstance(value, dict):
        is_object = is_root or (node is not None and node.embedded)
        for key in list(value):
            child_path = _child(path, key)
            if is_object and key in _ROOT_FIELDS:
                if key == "metadata" and not is_root and isinstance(value[key], dict):
                    _prune_metadata(value[key], child_path, pruned)
                continue
            if node is not None and key in node.properties:
                _prune(value[key], node.properties[key], child_path, pruned)
            elif node is not None and (node.additional is not None or node.additional_allowed is not None):
                _prune(value[key], node.additional, child_path, pruned)
            elif not preserve:
                del value[key]
                pruned.append(child_path)
    elif isinstance(value, list):
        items = node.items if node is not None else None
        if preserve and items is None:
            return
        for index, item in enumerate(value):
            _prune(item, items, f"{path}[{index}]", pruned)


def _prune_metadata(metadata: dict[str, Json], path: str, pruned: list[str]) -> None:
    for key in [key for key in metadata if key not in OBJECT_META_FIELDS]:
        del metadata[key]
        pruned.append(_child(path, key))


# -- defaulting ------------------------------------------------------------------------------------


def _refused_null(value: Json, node: Node | None) -> bool:
    return value is None and node is not None and not node.nullable


def _apply_defaults(value: Json, node: Node) -> None:
    if isinstance(value, dict):
        for name, sub in node.properties.items():
            if sub.has_default and (name not in value or _refused_null(value[name], sub)):
                value[name] = sub.default()
        for name in value:
            child = node.properties.get(name, node.additional)
            if child is None:
                continue
            if name not in node.properties and child.has_default and _refused_null(value[name], child):
                value[name] = child.default()
            _apply_defaults(value[name], child)
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            if node.items.has_default and _refused_null(item, node.items):
                value[index] = node.items.default()
            _apply_defaults(value[index], node.items)


def _drop_nulls(value: Json, node: Node) -> None:
    if isinstance(value, dict):
        for name in list(value):
            child = node.properties.get(name, node.additional)
            if child is None:
                continue
            if _refused_null(value[name], child):
                del value[name]
            else:
                _drop_nulls(value[name], child)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            _drop_nulls(item, node.items)


# -- validation ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Outcome:
    """Errors of one schema against one value, and how many of its rules were looked at.

    The count decides which branch of an `anyOf` or `oneOf` looks most like what was meant.
    """

    causes: list[Cause] = field(default_factory=list)
    matches: int = 0

    def merge(self, other: _Outcome) -> None:
        self.causes.extend(other.causes)
        self.matches += other.matches


_UNSET = object()


class _Validation:
    """One walk over a value with its schema."""

    def __init__(self, mode: Mode) -> None:
        self._modern = mode == "modern"

    def root(self, obj: dict[str, Json], old: dict[str, Json] | None, node: Node) -> list[Cause]:
        """Validate a whole object; of metadata only what the schema restricts is looked at."""
        return self.value(obj, _UNSET if old is None else old, node, "").causes

    def value(self, value: Json, old: Json, node: Node, path: str) -> _Outcome:
        outcome = _Outcome()
        if self._modern and old is not _UNSET and path and same_json(value, old):
            outcome.matches += 1
            return outcome
        if value is None:
            self._type(value, node, path, outcome)
            self._enum(value, node, path, outcome)
            return outcome
        self._type(value, node, path, outcome)
        self._combinations(value, node, path, outcome)
        if isinstance(value, str):
            self._string(value, node, path, outcome)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self._number(value, node, path, outcome)
        elif isinstance(value, list):
            self._list(value, old, node, path, outcome)
        self._enum(value, node, path, outcome)
        if isinstance(value, dict):
            self._object(value, old, node, path, outcome)
        outcome.matches += 1
        return outcome

    def _type(self, value: Json, node: Node, path: str, outcome: _Outcome) -> None:
        if not node.type and not node.int_or_string:
            return
        types = ("integer", "string") if node.int_or_string and not node.type else (node.type,)
        actual = json_type(value)
        if actual == "null" and node.nullable:
            outcome.matches += 1
            return
        if actual in types or (actual == "integer" and "number" in types):
            outcome.matches += 1
            return
        if actual == "number" and "integer" in types and float(value).is_integer() and abs(value) < 2**63:
            outcome.matches += 1
            return
        make = type_invalid if self._modern else invalid
        detail = f'{path} in body must be of type {",".join(types)}: "{actual}"'
        outcome.causes.append(make(path or NO_FIELD, actual, detail))

    def _combinations(self, value: Json, node: Node, path: str, outcome: _Outcome) -> None:
        if node.any_of:
            best, passed = self._alternatives(value, node.any_of, path, stop_early=True)
            if not passed:
                outcome.causes.append(_combined(path, "must validate at least one schema (anyOf)"))
            outcome.merge(best)
        if node.one_of:
            best, passed = self._alternatives(value, node.one_of, path, stop_early=False)
            if passed != 1:
                found = "Found none valid" if passed == 0 else f"Found {passed} valid alternatives"
                outcome.causes.append(
                    _combined(path, f"must validate one and only one schema (oneOf). {found}")
                )
            if passed < 2:
                outcome.merge(best)
        if node.all_of:
            valid = 0
            for sub in node.all_of:
                result = self.value(value, _UNSET, sub, path)
                valid += not result.causes
                outcome.merge(result)
            if valid != len(node.all_of):
                tail = "" if valid else ". None validated"
                outcome.causes.append(_combined(path, f"must validate all the schemas (allOf){tail}"))
        if node.not_ is not None and not self.value(value, _UNSET, node.not_, path).causes:
            outcome.causes.append(_combined(path, "must not validate the schema (not)"))
        outcome.matches += 1

    def _alternatives(
        self, value: Json, nodes: list[Node], path: str, *, stop_early: bool
    ) -> tuple[_Outcome, int]:
        """The first success, or else the failure with most matches; and how many alternatives passed."""
        best: _Outcome | None = None
        first: _Outcome | None = None
        passed = 0
        for sub in nodes:
            result = self.value(value, _UNSET, sub, path)
            if not result.causes:
                passed += 1
                first = first or result
                if stop_early:
                    break
            elif best is None or result.matches > best.matches:
                best = result
        return first or best or _Outcome(), passed

    def _string(self, value: str, node: Node, path: str, outcome: _Outcome) -> None:
        schema = node.schema
        maximum, minimum = schema.get("maxLength"), schema.get("minLength")
        if maximum is not None and len(value) > maximum:
            if self._modern:
                outcome.causes.append(too_long(path, int(maximum)))
            else:
                outcome.causes.append(
                    invalid(path, value, f"{path} in body should be at most {maximum} chars long")
                )
        elif minimum is not None and len(value) < minimum:
            outcome.causes.append(
                invalid(path, value, f"{path} in body should be at least {minimum} chars long")
            )
        elif node.pattern is not None and node.pattern.search(value) is None:
            outcome.causes.append(invalid(path, value, f"{path} in body should match '{schema['pattern']}'"))
        outcome.matches += 1
        if node.format is not None and not node.format(value):
            name = str(schema["format"])
            outcome.causes.append(
                invalid(path, value, f"{path} in body must be of type {name}: {go_quote(value)}")
            )

    def _number(self, value: int | float, node: Node, path: str, outcome: _Outcome) -> None:
        schema = node.schema

        def bound(limit: int | float) -> tuple[int | float, str]:
            # A whole value is compared with the whole part of the bound.
            if isinstance(value, int):
                return int(limit), str(int(limit))
            return limit, go_float(float(limit))

        multiple = schema.get("multipleOf")
        if multiple:
            limit, text = bound(multiple)
            if isinstance(limit, int) and limit != 0 and isinstance(value, int):
                fits = value % limit == 0
            else:
                ratio = value / (multiple or 1)
                fits = abs(ratio - round(ratio)) < 1e-9
            if not fits:
                outcome.causes.append(invalid(path, value, f"{path} in body should be a multiple of {text}"))
        maximum = schema.get("maximum")
        if maximum is not None:
            limit, text = bound(maximum)
            exclusive = schema.get("exclusiveMaximum") is True
            if value > limit or (exclusive and value == limit):
                words = "less than" if exclusive else "less than or equal to"
                outcome.causes.append(invalid(path, value, f"{path} in body should be {words} {text}"))
        minimum = schema.get("minimum")
        if minimum is not None:
            limit, text = bound(minimum)
            exclusive = schema.get("exclusiveMinimum") is True
            if value < limit or (exclusive and value == limit):
                words = "greater than" if exclusive else "greater than or equal to"
                outcome.causes.append(invalid(path, value, f"{path} in body should be {words} {text}"))
        outcome.matches += 1

    def _list(self, value: list[Json], old: Json, node: Node, path: str, outcome: _Outcome) -> None:
        if node.items is not None:
            before = correlate_items(node, value, old)
            for index, item in enumerate(value):
                item_path = f"{path}[{index}]" if self._modern else path
                outcome.merge(self.value(item, before[index], node.items, item_path))
        minimum, maximum = node.schema.get("minItems"), node.schema.get("maxItems")
        if minimum is not None and len(value) < minimum:
            text = f"{path} in body should have at least {minimum} items"
            outcome.causes.append(invalid(path, len(value), text))
        if maximum is not None and len(value) > maximum:
            if self._modern:
                outcome.causes.append(too_many(path, len(value), int(maximum)))
            else:
                text = f"{path} in body should have at most {maximum} items"
                outcome.causes.append(invalid(path, len(value), text))
        outcome.matches += 1

    def _enum(self, value: Json, node: Node, path: str, outcome: _Outcome) -> None:
        if node.enum is None:
            return
        if any(same_json(value, allowed) for allowed in node.enum):
            return
        supported = [item if isinstance(item, str) else compact(item) for item in node.enum]
        outcome.causes.append(not_supported(path, value, supported))

    def _object(self, value: dict[str, Json], old: Json, node: Node, path: str, outcome: _Outcome) -> None:
        minimum, maximum = node.schema.get("minProperties"), node.schema.get("maxProperties")
        where = path or NO_FIELD
        if minimum is not None and len(value) < minimum:
            text = f"{path} in body should have at least {minimum} properties"
            outcome.causes.append(invalid(where, minimum, text))
            return
        if maximum is not None and len(value) > maximum:
            text = f"{path} in body should have at most {maximum} properties"
            if self._modern:
                outcome.causes.append(too_many(where, len(value), int(maximum)))
            else:
                outcome.causes.append(invalid(where, maximum, text))
            return
        before = old if isinstance(old, dict) else {}
        for name, item in value.items():
            if name in node.properties:
                continue
            if not path and name in _ROOT_FIELDS:
                continue
            if node.additional_allowed is False:
                text = f"{_child(path, name)} in body is a forbidden property"
                outcome.causes.append(invalid(where, name, text))
            elif node.additional is not None:
                outcome.merge(self.value(item, before.get(name, _UNSET), node.additional, _child(path, name)))
        for name, sub in node.properties.items():
            if name in value:
                outcome.merge(self.value(value[name], before.get(name, _UNSET), sub, _child(path, name)))
        for name in node.required:
            if name not in value:
                outcome.causes.append(required(_child(path, name)))
        outcome.matches += 1


def _combined(path: str, text: str) -> Cause:
    return invalid(NO_FIELD, "", f'"{path}" {text}')


def correlate_items(node: Node, value: list[Json], old: Json) -> list[Json]:
    """For each item the one it was before: by its keys in a list of type map, else unknown."""
    if node.list_type != "map" or not isinstance(old, list):
        return [_UNSET] * len(value)
    before = {_list_key(item, node): item for item in old if isinstance(item, dict)}
    return [before.get(_list_key(item, node), _UNSET) if isinstance(item, dict) else _UNSET for item in value]


def _list_key(item: dict[str, Json], node: Node) -> str:
    return compact({key: item.get(key) for key in node.list_keys})


# -- list types ------------------------------------------------------------------------------------


def _list_types(value: Json, node: Node | None, path: str) -> list[Cause]:
    """Items that repeat in lists of type set or map; each repeated value is reported once, at its first
    repeat.
    """
    if node is None:
        return []
    causes: list[Cause] = []
    if isinstance(value, list):
        if node.list_type in ("set", "map"):
            causes += _repeats(value, node, path)
        for index, item in enumerate(value):
            causes += _list_types(item, node.items, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in node.properties:
                causes += _list_types(item, node.properties[name], _child(path, name))
            elif node.additional is not None:
                causes += _list_types(item, node.additional, f"{path}[{name}]")
    return causes


def _repeats(value: list[Json], node: Node, path: str) -> list[Cause]:
    seen: dict[str, int] = {}
    causes = []
    for index, item in enumerate(value):
        if node.list_type == "map":
            if not isinstance(item, dict):
                continue
            shown: Json = {key: item[key] for key in node.list_keys if key in item}
        else:
            shown = item
        identity = compact(_unify_numbers(shown))
        seen[identity] = seen.get(identity, 0) + 1
        if seen[identity] == 2:
            causes.append(duplicate(f"{path}[{index}]", shown))
    return causes


def _unify_numbers(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _unify_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unify_numbers(item) for item in value]
    return value


# -- embedded objects ------------------------------------------------------------------------------

_DNS1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def _embedded(value: Json, node: Node | None, path: str, *, is_root: bool = False) -> list[Cause]:
    """Objects marked as embedded resources need an apiVersion and a kind of good form."""
    if node is None:
        return []
    causes: list[Cause] = []
    if isinstance(value, dict):
        if node.embedded and not is_root:
            causes += _type_meta(value, path)
        for name, item in value.items():
            child = node.properties.get(name, node.additional)
            causes += _embedded(item, child, _child(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            causes += _embedded(item, node.items, f"{path}[{index}]")
    return causes


def _type_meta(value: dict[str, Json], path: str) -> list[Cause]:
    causes: list[Cause] = []
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if not api_version:
        causes.append(required(_child(path, "apiVersion"), "must not be empty"))
    if not kind:
        causes.append(required(_child(path, "kind"), "must not be empty"))
    elif isinstance(kind, str) and _DNS1035.fullmatch(kind.lower()) is None:
        text = f"may have mixed case, but should otherwise match: {DNS1035_TEXT}"
        causes.append(invalid(_child(path, "kind"), kind, text))
    if isinstance(api_version, str) and api_version.count("/") > 1:
        causes.append(
            invalid(_child(path, "apiVersion"), api_version, f"unexpected GroupVersion string: {api_version}")
        )
    return causes


# -- rules in CEL ----------------------------------------------------------------------------------


def _has_rules(node: Node | None) -> bool:
    if node is None:
        return False
    return bool(
        node.rules
        or any(_has_rules(sub) for sub in node.properties.values())
        or _has_rules(node.additional)
        or _has_rules(node.items)
    )


def _evaluate_rules(
    value: Json, old: Json, node: Node | None, path: str, *, is_root: bool = False
) -> list[Cause]:
    if node is None or value is None:
        return []
    if old is None:
        old = _UNSET
    causes: list[Cause] = []
    for rule in node.rules:
        cause = _evaluate_rule(rule, value, old, node, path, is_root=is_root)
        if cause is not None:
            causes.append(cause)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, item in value.items():
            previous = before.get(name, _UNSET)
            if name in node.properties:
                causes += _evaluate_rules(item, previous, node.properties[name], _child(path, name))
            elif node.additional is not None:
                causes += _evaluate_rules(item, previous, node.additional, f"{path}[{name}]")
    elif isinstance(value, list):
        for index, (item, previous) in enumerate(zip(value, correlate_items(node, value, old), strict=True)):
            causes += _evaluate_rules(item, previous, node.items, f"{path}[{index}]")
    return causes


def _evaluate_rule(
    rule: Rule, value: Json, old: Json, node: Node, path: str, *, is_root: bool
) -> Cause | None:
    field_path = path or NO_FIELD
    shown = node.type or json_type(value)
    if rule.program is None:
        return invalid(field_path, shown, f"rule compile error: {rule.compile_error}")
    variables: dict[str, Json] = {"self": cel.typed(value, node, is_root=is_root)}
    if rule.is_transition:
        if rule.optional_old_self:
            variables["oldSelf"] = (
                cel.Optional() if old is _UNSET else cel.Optional(cel.typed(old, node, is_root=is_root))
            )
        elif old is _UNSET:
            return None
        else:
            variables["oldSelf"] = cel.typed(old, node, is_root=is_root)
    described = rule.message.strip() or rule.source.strip()
    try:
        passed = rule.program.evaluate(variables)
    except cel.EvaluationError as error:
        return invalid(field_path, shown, f"{error} evaluating rule: {described}")
    if passed is True:
        return None
    detail = rule.message.strip() or f"failed rule: {rule.source.strip()}"
    if rule.message_expression is not None:
        try:
            text = rule.message_expression.evaluate(variables)
        except cel.EvaluationError:
            text = None
        if isinstance(text, str) and text.strip() and "\n" not in text:
            detail = text
    if rule.field_path:
        field_path = f"{path}{rule.field_path}" if path else rule.field_path.lstrip(".")
    if rule.reason == "FieldValueRequired":
        return required(field_path, detail)
    if rule.reason == "FieldValueForbidden":
        return Cause("FieldValueForbidden", f"Forbidden: {detail}", field_path)
    if rule.reason == "FieldValueDuplicate":
        return Cause("FieldValueDuplicate", f'Duplicate value: "{shown}"', field_path)
    return invalid(field_path, shown, detail)
