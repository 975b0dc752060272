"""Checks of the rules (`x-kubernetes-validations`) of a schema when a definition is written.

A rule that does not compile, that reads a field which its schema does not have, that uses `oldSelf` where no old value
can be told, or that may cost too much is refused then and not only when an object is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from captf_runtime.testing.apiserver.schema import cel
from captf_runtime.testing.apiserver.schema.causes import (
    Cause,
    Verbatim,
    forbidden,
    go_quote,
    go_scalar,
    invalid,
    not_supported,
    required,
)
from captf_runtime.testing.apiserver.schema.cel import analysis
from captf_runtime.testing.apiserver.schema.compiled import Node, build

Schema = Mapping[str, Any]

_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
_REASONS = ("FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate")


def rule_errors(schema: Schema, path: str) -> list[Cause]:
    """Everything that is wrong with the rules of a schema and of those below it."""
    check = _Check()
    causes = list(check.walk(build(schema), path, _Place(is_root=True)))
    if check.total > analysis.DEFINITION_LIMIT:
        factor = check.total / analysis.DEFINITION_LIMIT
        text = (
            "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by "
            f"factor of {_factor(factor)} {_ADVICE}"
        )
        causes.append(forbidden(path, text))
    return causes


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema stands: how many values of it an object may hold, and whether old ones can be told."""

    cardinality: float = 1.0
    correlatable: bool = True
    is_root: bool = False


class _Check:
    """One walk over the rules of a definition; `total` is their estimated cost."""

    def __init__(self) -> None:
        self.total = 0.0

    def walk(self, node: Node, path: str, place: _Place) -> Iterator[Cause]:
        for index, entry in enumerate(node.schema.get("x-kubernetes-validations") or ()):
            yield from self._rule(entry, node, f"{path}.x-kubernetes-validations[{index}]", place)
        for name, sub in node.properties.items():
            here = _Place(place.cardinality, place.correlatable)
            yield from self.walk(sub, f"{path}.properties[{name}]", here)
        size = analysis.info_of(node).size
        if node.additional is not None:
            inside = _Place(place.cardinality * size, place.correlatable)
            yield from self.walk(node.additional, f"{path}.additionalProperties", inside)
        if node.items is not None:
            inside = _Place(place.cardinality * size, place.correlatable and node.list_type == "map")
            yield from self.walk(node.items, f"{path}.items", inside)

    def _rule(self, rule: Mapping[str, Any], node: Node, path: str, place: _Place) -> Iterator[Cause]:
        source = str(rule.get("rule") or "")
        if not source.strip():
            yield required(f"{path}.rule", "rule is not specified")
            return
        yield from _texts(rule, source, path)
        own = analysis.info_of(node, is_root=place.is_root)
        old = analysis.Info("optional", own.size, own) if rule.get("optionalOldSelf") is True else own
        variables = {"self": own, "oldSelf": old}
        try:
            program = cel.compile_expression(source)
            info = analysis.analyse(program.expression, source, variables, "bool")
        except cel.CompileError as error:
            yield invalid(f"{path}.rule", _printed(rule), str(error))
            return
        if "oldSelf" in program.names and not place.correlatable:
            text = "oldSelf cannot be used on the uncorrelatable portion of the schema"
            yield invalid(f"{path}.rule", source, text)
        yield from self._cost(info.cost * place.cardinality, f"{path}.rule")
        if rule.get("messageExpression"):
            text = str(rule["messageExpression"])
            try:
                program = cel.compile_expression(text)
                info = analysis.analyse(program.expression, text, variables, "string")
            except cel.CompileError as error:
                yield invalid(f"{path}.messageExpression", _printed(rule), f"messageExpression {error}")
                return
            yield from self._cost(info.cost * place.cardinality, f"{path}.messageExpression")

    def _cost(self, cost: float, path: str) -> Iterator[Cause]:
        self.total += cost
        if cost > analysis.RULE_LIMIT:
            factor = _factor(cost / analysis.RULE_LIMIT)
            what = "messageExpression" if path.endswith("messageExpression") else "rule"
            yield forbidden(path, f"estimated {what} cost exceeds budget by factor of {factor} {_ADVICE}")


def _texts(rule: Mapping[str, Any], source: str, path: str) -> Iterator[Cause]:
    message = str(rule.get("message") or "")
    if rule.get("message") is not None and not message.strip():
        yield invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid(f"{path}.message", message, "message must not contain line breaks")
    elif "\n" in source.strip() and not message:
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    if rule.get("reason") is not None and rule["reason"] not in _REASONS:
        yield not_supported(f"{path}.reason", rule["reason"], _REASONS)


def _factor(factor: float) -> str:
    return "more than 100x" if factor > 100 else f"{factor:.1f}x"


def _printed(rule: Mapping[str, Any]) -> Verbatim:
    """The rule as the server prints it: its own struct."""
    reason = "(*apiextensions.FieldValueErrorReason)(nil)"
    if rule.get("reason"):
        reason = f"(*apiextensions.FieldValueErrorReason)({go_quote(rule['reason'])})"
    optional = (
        "(*bool)(nil)" if rule.get("optionalOldSelf") is None else go_scalar(bool(rule["optionalOldSelf"]))
    )
    return Verbatim(
        f"apiextensions.ValidationRule{{Rule:{go_quote(str(rule.get('rule') or ''))}, "
        f"Message:{go_quote(str(rule.get('message') or ''))}, "
        f"MessageExpression:{go_quote(str(rule.get('messageExpression') or ''))}, Reason:{reason}, "
        f"FieldPath:{go_quote(str(rule.get('fieldPath') or ''))}, OptionalOldSelf:{optional}}}"
    )
