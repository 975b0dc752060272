"""Evaluation of a parsed expression.

Logical operators and the walking macros are commutative about errors, as the language asks: `false &&
error` and `error && false` are both false; only an operand that decides nothing lets the error through.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from captf_runtime.testing.apiserver.schema.cel import functions
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
    parse,
)
from captf_runtime.testing.apiserver.schema.cel.values import (
    EvaluationError,
    ListValue,
    Optional,
    Unsigned,
    Value,
    equals,
    is_number,
    type_name,
)

_NO_OVERLOAD = "no such overload"
_TYPE_NAMES = frozenset(
    {"bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type"}
)
VARIABLES = frozenset({"self", "oldSelf"})


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression; immutable and safe for several threads.

    Args:
        source: the text.
        expression: the tree.
        names: the free variables that it reads.
    """

    source: str
    expression: Expression
    names: frozenset[str]

    def evaluate(self, variables: Mapping[str, Value]) -> Value:
        """The value of the expression.

        Raises:
            EvaluationError: it has none, for example `no such key: x`.
        """
        return _evaluate(self.expression, variables)


@functools.lru_cache(maxsize=2048)
def compile_expression(source: str, variables: frozenset[str] = VARIABLES) -> Program:
    """Compile an expression.

    Args:
        source: the text.
        variables: the names that may be used freely.

    Raises:
        CompileError: bad syntax, or a name or function that does not exist.
    """
    expression = parse(source)
    names: set[str] = set()
    _check_names(expression, source, variables, names)
    return Program(source, expression, frozenset(names & variables))


def _check_names(node: Expression, source: str, known: frozenset[str], used: set[str]) -> None:
    match node:
        case Identifier(name=name):
            if name not in known and name not in _TYPE_NAMES:
                raise CompileError(f"undeclared reference to '{name}' (in container '')", source, node.offset)
            used.add(name)
        case Select():
            _check_names(node.operand, source, known, used)
        case Call():
            if node.target is not None and not functions.is_namespace(node.target, node.function):
                _check_names(node.target, source, known, used)
            if not functions.exists(node):
                raise CompileError(
                    f"undeclared reference to '{node.function}' (in container '')", source, node.offset
                )
            for argument in node.arguments:
                _check_names(argument, source, known, used)
        case ListLiteral():
            for item in node.items:
                _check_names(item, source, known, used)
        case MapLiteral():
            for key, value in node.entries:
                _check_names(key, source, known, used)
                _check_names(value, source, known, used)
        case Comprehension():
            _check_names(node.range, source, known, used)
            inner = known | {node.variable, node.second_variable} - {""}
            for part in (node.condition, node.result):
                if part is not None:
                    _check_names(part, source, inner, used)
        case Literal():
            pass


def _evaluate(node: Expression, scope: Mapping[str, Value]) -> Value:
    match node:
        case Literal():
            return Unsigned(node.value) if node.unsigned and isinstance(node.value, int) else node.value
        case Identifier(name=name):
            if name in scope:
                return scope[name]
            return functions.TypeValue(name)
        case Select():
            return _select(node, scope)
        case ListLiteral():
            return ListValue([_evaluate(item, scope) for item in node.items])
        case MapLiteral():
            return {_evaluate(key, scope): _evaluate(value, scope) for key, value in node.entries}
        case Comprehension():
            return _comprehension(node, scope)
        case Call():
            return _call(node, scope)


def _select(node: Select, scope: Mapping[str, Value]) -> Value:
    operand = _evaluate(node.operand, scope)
    if isinstance(operand, Optional):
        if not operand.present:
            return False if node.test_only else Optional()
        found = operand.value
        present = isinstance(found, dict) and node.field in found
        if node.test_only:
            return present
        return Optional(found[node.field]) if present else Optional()
    if not isinstance(operand, dict):
        raise EvaluationError(_NO_OVERLOAD if operand is not None else f"no such key: {node.field}")
    if node.test_only:
        return node.field in operand
    if node.optional:
        return Optional(operand[node.field]) if node.field in operand else Optional()
    if node.field not in operand:
        raise EvaluationError(f"no such key: {node.field}")
    return operand[node.field]


def _call(node: Call, scope: Mapping[str, Value]) -> Value:
    function, arguments = node.function, node.arguments
    if function in ("_&&_", "_||_"):
        return _logical(arguments, scope, decisive=function == "_||_")
    if function == "_?_:_":
        condition = _evaluate(arguments[0], scope)
        if not isinstance(condition, bool):
            raise EvaluationError(_NO_OVERLOAD)
        return _evaluate(arguments[1 if condition else 2], scope)
    if node.target is not None and functions.is_namespace(node.target, function):
        assert isinstance(node.target, Identifier)
        values = [_evaluate(argument, scope) for argument in arguments]
        return functions.call_namespaced(node.target.name, function, values)
    if node.target is not None:
        target = _evaluate(node.target, scope)
        if function == "or" or function == "orValue":
            if isinstance(target, Optional) and target.present:
                return target if function == "or" else target.value
            return _evaluate(arguments[0], scope)
        return functions.call_method(target, function, [_evaluate(argument, scope) for argument in arguments])
    values = [_evaluate(argument, scope) for argument in arguments]
    if function in _OPERATORS:
        return _operator(function, values)
    return functions.call_function(function, values)


def _logical(arguments: tuple[Expression, ...], scope: Mapping[str, Value], *, decisive: bool) -> bool:
    failure: EvaluationError | None = None
    for argument in arguments:
        try:
            value = _evaluate(argument, scope)
        except EvaluationError as error:
            failure = failure or error
            continue
        if not isinstance(value, bool):
            failure = failure or EvaluationError(_NO_OVERLOAD)
        elif value is decisive:
            return decisive
    if failure is not None:
        raise failure
    return not decisive


def _elements(value: Value) -> list[tuple[Value, Value]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return list(enumerate(value))
    raise EvaluationError(_NO_OVERLOAD)


def _comprehension(node: Comprehension, scope: Mapping[str, Value]) -> Value:
    source = _evaluate(node.range, scope)
    if node.macro == "optMap":
        if not isinstance(source, Optional):
            raise EvaluationError(_NO_OVERLOAD)
        if not source.present or node.result is None:
            return Optional()
        return Optional(_evaluate(node.result, {**scope, node.variable: source.value}))
    is_map = isinstance(source, dict)
    out: list[Value] = []
    count = 0
    failure: EvaluationError | None = None
    for key, item in _elements(source):
        if node.second_variable:
            inner = {**scope, node.variable: key, node.second_variable: item}
        else:
            inner = {**scope, node.variable: key if is_map else item}
        chosen = True
        if node.condition is not None:
            try:
                chosen = _evaluate(node.condition, inner)
            except EvaluationError as error:
                if node.macro not in ("all", "exists"):
                    raise
                failure = failure or error
                continue
            if not isinstance(chosen, bool):
                raise EvaluationError(_NO_OVERLOAD)
        if node.macro == "all":
            if not chosen:
                return False
        elif node.macro == "exists":
            if chosen:
                return True
        elif node.macro == "exists_one":
            count += chosen
        elif chosen:
            out.append(_evaluate(node.result, inner) if node.result is not None else inner[node.variable])
    if failure is not None:
        raise failure
    if node.macro == "all":
        return True
    if node.macro == "exists":
        return False
    return count == 1 if node.macro == "exists_one" else ListValue(out)


# -- operators -------------------------------------------------------------------------------------

#: Those that take the values of all operands; the logical ones decide themselves which they need.
_OPERATORS = functions.OPERATOR_NAMES - {"_&&_", "_||_", "_?_:_"}


def _operator(function: str, values: list[Value]) -> Value:
    if function == "!_":
        if not isinstance(values[0], bool):
            raise EvaluationError(_NO_OVERLOAD)
        return not values[0]
    if function == "-_":
        if not is_number(values[0]):
            raise EvaluationError(_NO_OVERLOAD)
        return _bounded(-values[0])
    left, right = values
    if function == "_==_":
        return equals(left, right)
    if function == "_!=_":
        return not equals(left, right)
    if function == "_in_":
        return _contains(left, right)
    if function in ("_[_]", "_[?_]"):
        return _index(left, right, optional=function == "_[?_]")
    if function in ("_<_", "_<=_", "_>_", "_>=_"):
        return _compare(function[1:-1], left, right)
    return _arithmetic(function[1], left, right)


def _contains(item: Value, container: Value) -> bool:
    if isinstance(container, dict):
        return any(equals(item, key) for key in container)
    if isinstance(container, list):
        return any(equals(item, present) for present in container)
    raise EvaluationError(_NO_OVERLOAD)


def _index(container: Value, index: Value, *, optional: bool) -> Value:
    if isinstance(container, Optional):
        return _index(container.value, index, optional=True) if container.present else Optional()
    if isinstance(container, dict):
        for key, value in container.items():
            if equals(key, index):
                return Optional(value) if optional else value
        if optional:
            return Optional()
        raise EvaluationError(f"no such key: {index}")
    if isinstance(container, list) and is_number(index) and int(index) == index:
        if 0 <= index < len(container):
            return Optional(container[int(index)]) if optional else container[int(index)]
        if optional:
            return Optional()
        raise EvaluationError(f"index out of bounds: {int(index)}")
    raise EvaluationError(_NO_OVERLOAD)


def _compare(operator: str, left: Value, right: Value) -> bool:
    comparable = (is_number(left) and is_number(right)) or (
        type_name(left) == type_name(right) and not isinstance(left, list | dict) and left is not None
    )
    if not comparable:
        raise EvaluationError(_NO_OVERLOAD)
    if operator == "<":
        return bool(left < right)
    if operator == "<=":
        return bool(left <= right)
    return bool(left > right) if operator == ">" else bool(left >= right)


def _bounded(value: Value) -> Value:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise EvaluationError("integer overflow")
    return value


def _arithmetic(operator: str, left: Value, right: Value) -> Value:
    if is_number(left) and is_number(right) and type_name(left) == type_name(right):
        return _bounded(_numeric(operator, left, right))
    if operator == "+":
        if isinstance(left, list) and isinstance(right, list):
            return functions.joined(left, right)
        if type_name(left) == type_name(right) and isinstance(left, str | bytes):
            return left + right
    moment = functions.time_arithmetic(operator, left, right)
    if moment is not None:
        return moment
    raise EvaluationError(_NO_OVERLOAD)


def _numeric(operator: str, left: Value, right: Value) -> Value:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    whole = isinstance(left, int)
    if right == 0:
        if whole:
            raise EvaluationError("division by zero" if operator == "/" else "modulus by zero")
        return float("nan") if left == 0 else float("inf") * (1 if left > 0 else -1)
    if operator == "/":
        if not whole:
            return left / right
        quotient = abs(left) // abs(right)  # integer division rounds towards zero
        return quotient if (left < 0) == (right < 0) else -quotient
    if not whole:
        raise EvaluationError(_NO_OVERLOAD)
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder
