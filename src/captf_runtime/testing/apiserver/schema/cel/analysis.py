"""What can be told of an expression before it runs: types, fields that do not exist, and how costly it may become.

The estimate follows the server's way: every step has a price, strings and lists are taken as long as their schema
lets them be (or as a request could make them), and a loop costs its body once for every item there may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from captf_runtime.testing.apiserver.schema.cel.syntax import (
    Call,
    CompileError,
    Comprehension,
    Expression,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    Select,
)
from captf_runtime.testing.apiserver.schema.cel.values import escape_property

if TYPE_CHECKING:
    from captf_runtime.testing.apiserver.schema.compiled import Node

REQUEST_LIMIT = 3 * 1024 * 1024
RULE_LIMIT = 10_000_000
"""The estimated cost that one rule may have."""
DEFINITION_LIMIT = 100_000_000
"""The estimated cost that all rules of a definition may have together."""

_TRAVERSAL, _REGEXP = 0.1, 0.25
_LIST_COST, _MAP_COST, _UNBOUNDED = 10, 30, REQUEST_LIMIT - 2
_MINIMAL_BYTES = {"string": 2, "boolean": 4, "integer": 1, "number": 1, "object": 2, "array": 2}
_NUMBERS = frozenset({"int", "uint", "double"})


@dataclass(frozen=True, slots=True)
class Info:
    """What is known of a value.

    Args:
        type: `string`, `int`, `list`, `map`, `object` and so on; `dyn` when nothing is known.
        size: how long a text, list or map can be; 1 for everything else.
        element: what the items of a list or the values of a map are.
        fields: the fields of an object, under their escaped names.
        cost: what it costs to compute the value, at most.
    """

    type: str
    size: int = 1
    element: Info | None = None
    fields: Mapping[str, Info] = field(default_factory=dict)
    cost: float = 0.0

    def costing(self, cost: float) -> Info:
        """The same value at another cost."""
        return replace(self, cost=cost)


_DYN = Info("dyn", _UNBOUNDED)
_BOOL = Info("bool")


def info_of(node: Node | None, *, is_root: bool = False) -> Info:
    """What the schema says of a value."""
    if node is None or node.int_or_string or not node.type:
        return _DYN
    schema = node.schema
    if node.type == "string":
        return _text_info(schema)
    if node.type == "array":
        item = _minimal_bytes(node.items)
        limit = schema.get("maxItems")
        size = int(limit) if limit is not None else _UNBOUNDED // (item + 1)
        return Info("list", size, info_of(node.items))
    if node.type == "object":
        return _object_info(node, is_root=is_root)
    return Info({"integer": "int", "number": "double", "boolean": "bool"}[node.type])


def _text_info(schema: Mapping[str, Any]) -> Info:
    special = {"date-time": "timestamp", "date": "timestamp", "duration": "duration", "byte": "bytes"}
    kind = special.get(str(schema.get("format") or ""), "string")
    if schema.get("maxLength") is not None:
        return Info(kind, int(schema["maxLength"]) * 4)
    if schema.get("enum"):
        return Info(kind, max(len(str(each)) for each in schema["enum"]))
    return Info(kind, _UNBOUNDED if kind in ("string", "bytes") else 1)


def _object_info(node: Node, *, is_root: bool) -> Info:
    if node.additional is not None or (node.additional_allowed and not node.properties):
        limit = node.schema.get("maxProperties")
        value = _minimal_bytes(node.additional)
        size = int(limit) if limit is not None else _UNBOUNDED // (value + 6)
        return Info("map", size, info_of(node.additional) if node.additional is not None else _DYN)
    fields: dict[str, Info] = {}
    for name, sub in node.properties.items():
        escaped = escape_property(name)
        if escaped is not None:
            fields[escaped] = info_of(sub)
    if is_root or node.embedded:
        text = Info("string", 253)
        fields |= {
            "apiVersion": text,
            "kind": text,
            "metadata": Info("object", fields={"name": text, "generateName": text}),
        }
    return Info("object", len(fields), fields=fields)


def _minimal_bytes(node: Node | None) -> int:
    """The least that a value takes in a request."""
    if node is None or not node.type:
        return 1
    size = _MINIMAL_BYTES[node.type]
    if node.type == "object":
        size += sum(len(name) + 4 + _minimal_bytes(node.properties.get(name)) for name in node.required)
    return size


def analyse(expression: Expression, source: str, variables: Mapping[str, Info], wanted: str) -> Info:
    """Check an expression and estimate it.

    Args:
        expression: the tree.
        source: its text, for messages.
        variables: what is known of `self` and `oldSelf`.
        wanted: the type that it must have.

    Raises:
        CompileError: a field that does not exist, operands that do not fit, or a result of another type.
    """
    info = _Walk(source).infer(expression, variables)
    if info.type not in (wanted, "dyn"):
        raise CompileError(f"must evaluate to a {wanted}", source, 0)
    return info


_RESULTS = {
    "size": "int",
    "string": "string",
    "int": "int",
    "uint": "uint",
    "double": "double",
    "bool": "bool",
    "bytes": "bytes",
    "duration": "duration",
    "timestamp": "timestamp",
    "type": "type",
    "isURL": "bool",
    "isIP": "bool",
    "isCIDR": "bool",
    "startsWith": "bool",
    "endsWith": "bool",
    "contains": "bool",
    "matches": "bool",
    "isSorted": "bool",
    "hasValue": "bool",
    "indexOf": "int",
    "lastIndexOf": "int",
    "join": "string",
    "format": "string",
    "lowerAscii": "string",
    "upperAscii": "string",
    "replace": "string",
    "substring": "string",
    "trim": "string",
    "charAt": "string",
    "find": "string",
}
_PASS_THROUGH = frozenset(
    {"lowerAscii", "upperAscii", "replace", "substring", "trim", "charAt", "find", "string"}
)


@dataclass(slots=True)
class _Walk:
    source: str

    def infer(self, node: Expression, scope: Mapping[str, Info]) -> Info:
        match node:
            case Literal():
                return _literal(node)
            case Identifier(name=name):
                return scope.get(name, Info("type")).costing(1)
            case Select():
                return self._select(node, scope)
            case ListLiteral():
                items = [self.infer(item, scope) for item in node.items]
                cost = _LIST_COST + sum(item.cost for item in items)
                return Info("list", len(items), items[0] if items else _DYN, cost=cost)
            case MapLiteral():
                pairs = [(self.infer(key, scope), self.infer(value, scope)) for key, value in node.entries]
                cost = _MAP_COST + sum(key.cost + value.cost for key, value in pairs)
                return Info("map", len(pairs), pairs[0][1] if pairs else _DYN, cost=cost)
            case Comprehension():
                return self._comprehension(node, scope)
            case Call():
                return self._call(node, scope)

    def _fail(self, node: Expression, text: str) -> CompileError:
        return CompileError(text, self.source, node.offset)

    def _select(self, node: Select, scope: Mapping[str, Info]) -> Info:
        operand = self.infer(node.operand, scope)
        cost = operand.cost + 1
        if operand.type == "object":
            if node.field not in operand.fields:
                raise self._fail(node, f"undefined field '{node.field}'")
            found = operand.fields[node.field]
        elif operand.type == "map":
            found = operand.element or _DYN
        elif operand.type in ("dyn", "optional"):
            found = _DYN
        else:
            raise self._fail(node, f"type '{operand.type}' does not support field selection")
        if node.test_only:
            return _BOOL.costing(cost)
        return Info("optional", found.size, found, cost=cost) if node.optional else found.costing(cost)

    def _comprehension(self, node: Comprehension, scope: Mapping[str, Info]) -> Info:
        source = self.infer(node.range, scope)
        if source.type not in ("list", "map", "dyn", "optional", "object"):
            raise self._fail(node, f"expression of type '{source.type}' cannot be range of a comprehension")
        element = source.element or _DYN
        item = Info("string", 256) if source.type == "map" else element
        inner = {**scope, node.variable: item}
        if node.second_variable:
            inner |= {
                node.variable: Info("string" if source.type == "map" else "int"),
                node.second_variable: element,
            }
        body = 0.0
        if node.condition is not None:
            condition = self.infer(node.condition, inner)
            if condition.type not in ("bool", "dyn"):
                raise self._fail(node.condition, "expected type 'bool'")
            body += condition.cost
        result = self.infer(node.result, inner) if node.result is not None else item
        body += result.cost if node.result is not None else 0.0
        rounds = 1 if node.macro == "optMap" else source.size
        cost = source.cost + rounds * (body + 3) + 2
        if node.macro in ("all", "exists", "exists_one"):
            return _BOOL.costing(cost)
        if node.macro == "optMap":
            return Info("optional", result.size, result, cost=cost)
        return Info("list", source.size, result.costing(0), cost=cost + _LIST_COST * rounds)

    def _call(self, node: Call, scope: Mapping[str, Info]) -> Info:
        arguments = [self.infer(argument, scope) for argument in node.arguments]
        target = None
        if node.target is not None and not _is_library(node.target, scope):
            target = self.infer(node.target, scope)
        cost = 1 + sum(argument.cost for argument in arguments) + (target.cost if target is not None else 0)
        if node.target is None and node.function[:1] in "_!-":
            return self._operator(node, arguments, cost)
        operands = [target, *arguments] if target is not None else arguments
        cost += _price(node.function, operands)
        if node.function in ("value", "orValue", "or", "dyn", "sum", "min", "max"):
            first = operands[0]
            return (first.element or _DYN).costing(cost) if node.function != "dyn" else _DYN.costing(cost)
        size = operands[0].size if node.function in _PASS_THROUGH and operands else 1
        kind = _RESULTS.get(node.function, "dyn")
        return Info(kind, size, cost=cost) if kind != "dyn" else _DYN.costing(cost)

    def _operator(self, node: Call, operands: list[Info], cost: float) -> Info:
        function = node.function
        types = [operand.type for operand in operands]
        if function in ("_&&_", "_||_", "!_"):
            if any(kind not in ("bool", "dyn") for kind in types):
                raise self._mismatch(node, types)
            return _BOOL.costing(cost - 1)
        if function == "_?_:_":
            if types[0] not in ("bool", "dyn"):
                raise self._mismatch(node, types)
            cost = operands[0].cost + max(operands[1].cost, operands[2].cost)
            chosen = operands[1] if operands[1].size >= operands[2].size else operands[2]
            return chosen.costing(cost)
        if function in ("_==_", "_!=_"):
            if not _comparable(*types):
                raise self._mismatch(node, types)
            return _BOOL.costing(cost + min(operand.size for operand in operands) * _TRAVERSAL)
        if function == "_in_":
            if types[1] not in ("list", "map", "dyn"):
                raise self._mismatch(node, types)
            return _BOOL.costing(cost + (operands[1].size if types[1] == "list" else 1))
        if function in ("_[_]", "_[?_]"):
            if types[0] not in ("list", "map", "dyn", "optional"):
                raise self._mismatch(node, types)
            return (operands[0].element or _DYN).costing(cost)
        if function in ("_<_", "_<=_", "_>_", "_>=_"):
            if not _comparable(*types) or types[0] in ("list", "map", "object"):
                raise self._mismatch(node, types)
            return _BOOL.costing(cost + min(operand.size for operand in operands) * _TRAVERSAL)
        return self._arithmetic(node, operands, types, cost)

    def _arithmetic(self, node: Call, operands: list[Info], types: list[str], cost: float) -> Info:
        if len(operands) == 1:
            if types[0] not in (*_NUMBERS, "dyn"):
                raise self._mismatch(node, types)
            return operands[0].costing(cost)
        left, right = operands
        times = {"timestamp", "duration"}
        if "dyn" in types or (node.function in ("_+_", "_-_") and set(types) <= times):
            return (left if left.type != "dyn" else right).costing(cost)
        joined = node.function == "_+_" and left.type in ("string", "bytes", "list")
        if left.type != right.type or not (joined or left.type in _NUMBERS):
            raise self._mismatch(node, types)
        if joined:
            size = left.size + right.size
            return replace(left, size=size, cost=cost + size * _TRAVERSAL)
        return left.costing(cost)

    def _mismatch(self, node: Call, types: list[str]) -> CompileError:
        shown = ", ".join(types)
        return self._fail(node, f"found no matching overload for '{node.function}' applied to '({shown})'")


def _literal(node: Literal) -> Info:
    value = node.value
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, str | bytes):
        return Info("string" if isinstance(value, str) else "bytes", len(value))
    if isinstance(value, int):
        return Info("uint" if node.unsigned else "int")
    return Info("double" if isinstance(value, float) else "null")


def _is_library(target: Expression, scope: Mapping[str, Info]) -> bool:
    return (
        isinstance(target, Identifier)
        and target.name in ("optional", "sets", "math")
        and target.name not in scope
    )


def _comparable(left: str, right: str) -> bool:
    if "dyn" in (left, right) or left == right or "null" in (left, right):
        return True
    return {left, right} <= _NUMBERS


def _price(function: str, operands: list[Info]) -> float:
    """What a function costs besides its operands."""
    sizes = [operand.size for operand in operands] or [1]
    if function == "matches":
        return (1 + sizes[0] * _TRAVERSAL) * (1 + sizes[-1] * _REGEXP)
    if function == "contains":
        return sizes[0] * _TRAVERSAL * max(1.0, sizes[-1] * _TRAVERSAL)
    if function in ("startsWith", "endsWith"):
        return sizes[-1] * _TRAVERSAL
    if function in ("size", "hasValue", "value", "or", "orValue", "type", "dyn", "int", "double", "bool"):
        return 0.0
    return sizes[0] * _TRAVERSAL
