"""Checks of the rules (`x-kubernetes-validations`) of a schema when a definition is written.

A rule that does not compile, that reads a field which its schema does not have, or that uses `oldSelf`
where no old value can be told is refused then and not only when an object is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from captf_runtime.testing.apiserver.schema import cel
from captf_runtime.testing.apiserver.schema.causes import (
    Cause,
    Verbatim,
    go_quote,
    go_scalar,
    invalid,
    required,
)

Schema = Mapping[str, Any]


def rule_errors(schema: Schema, path: str) -> list[Cause]:
    """Everything that is wrong with the rules of a schema and of those below it."""
    return list(_walk(schema, path, is_root=True, correlatable=True))


def _walk(schema: Schema, path: str, *, is_root: bool, correlatable: bool) -> Iterator[Cause]:
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        yield from _rule(rule, f"{path}.x-kubernetes-validations[{index}]", correlatable=correlatable)
    for name, sub in (schema.get("properties") or {}).items():
        yield from _walk(sub, f"{path}.properties[{name}]", is_root=False, correlatable=correlatable)
    if isinstance(schema.get("additionalProperties"), Mapping):
        sub_path = f"{path}.additionalProperties"
        yield from _walk(schema["additionalProperties"], sub_path, is_root=False, correlatable=correlatable)
    if isinstance(schema.get("items"), Mapping):
        by_key = schema.get("x-kubernetes-list-type") == "map"
        yield from _walk(
            schema["items"], f"{path}.items", is_root=False, correlatable=correlatable and by_key
        )


def _rule(rule: Mapping[str, Any], path: str, *, correlatable: bool) -> Iterator[Cause]:
    source = str(rule.get("rule") or "")
    if not source.strip():
        yield required(f"{path}.rule", "rule is not specified")
        return
    message = str(rule.get("message") or "")
    if rule.get("message") is not None and not message.strip():
        yield invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif "\n" in message:
        yield invalid(f"{path}.message", message, "message must not contain line breaks")
    elif "\n" in source.strip() and not message:
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    try:
        program = cel.compile_expression(source)
    except cel.CompileError as error:
        yield invalid(f"{path}.rule", _printed(rule), str(error))
        return
    if "oldSelf" in program.names and not correlatable:
        text = "oldSelf cannot be used on the uncorrelatable portion of the schema"
        yield invalid(f"{path}.rule", source, text)
    if rule.get("messageExpression"):
        try:
            cel.compile_expression(str(rule["messageExpression"]))
        except cel.CompileError as error:
            yield invalid(f"{path}.messageExpression", _printed(rule), f"messageExpression {error}")


def _printed(rule: Mapping[str, Any]) -> Verbatim:
    """The rule as the server prints it: its own struct."""
    reason = (
        f"(*apiextensions.FieldValueErrorReason)({go_quote(rule['reason'])})"
        if rule.get("reason")
        else ("(*apiextensions.FieldValueErrorReason)(nil)")
    )
    optional = (
        "(*bool)(nil)" if rule.get("optionalOldSelf") is None else go_scalar(bool(rule["optionalOldSelf"]))
    )
    return Verbatim(
        f"apiextensions.ValidationRule{{Rule:{go_quote(str(rule.get('rule') or ''))}, "
        f"Message:{go_quote(str(rule.get('message') or ''))}, "
        f"MessageExpression:{go_quote(str(rule.get('messageExpression') or ''))}, Reason:{reason}, "
        f"FieldPath:{go_quote(str(rule.get('fieldPath') or ''))}, OptionalOldSelf:{optional}}}"
    )
