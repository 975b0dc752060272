"""Rules in custom resource definitions: what is refused when they are written, and what they do to objects."""

from __future__ import annotations

from typing import Any

import pytest

from captf_runtime.testing.apiserver.schema import Cause, compile_schema

pytestmark = pytest.mark.requirement("AS15", "AS16")

PATH = "spec.validation.openAPIV3Schema"


def schema(rules: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """A definition's schema whose `spec` has the rules."""
    return {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "low": {"type": "integer"},
                    "high": {"type": "integer"},
                    "name": {"type": "string", "maxLength": 10},
                    "items": {
                        "type": "array",
                        "maxItems": 5,
                        "items": {"type": "object", "properties": {"v": {"type": "string", "maxLength": 9}}},
                    },
                    **spec,
                },
                "x-kubernetes-validations": rules,
            }
        },
    }


def errors(rules: list[dict[str, Any]], **spec: Any) -> list[Cause]:
    return compile_schema(schema(rules, **spec)).structural_errors()


def test_sound_rules() -> None:
    rules = [
        {"rule": "self.low <= self.high", "message": "low is over high"},
        {"rule": "self.name == oldSelf.name", "reason": "FieldValueForbidden", "fieldPath": ".name"},
        {"rule": "has(self.name)", "messageExpression": "'no name, low is ' + string(self.low)"},
        {"rule": "!oldSelf.hasValue() || self.low > 1", "optionalOldSelf": True},
    ]
    assert errors(rules) == []


@pytest.mark.parametrize(
    ("rule", "field", "message"),
    [
        ({"rule": " "}, ".rule", "Required value: rule is not specified"),
        (
            {"rule": "true", "message": " "},
            ".message",
            'Invalid value: " ": message must be non-empty if specified',
        ),
        (
            {"rule": "true", "message": "a\nb"},
            ".message",
            'Invalid value: "a\\nb": message must not contain line breaks',
        ),
        (
            {"rule": "true &&\ntrue"},
            ".message",
            "Required value: message must be specified if rule contains line breaks",
        ),
        (
            {"rule": "true", "reason": "Odd"},
            ".reason",
            'Unsupported value: "Odd": supported values: "FieldValueRequired", "FieldValueForbidden", '
            '"FieldValueInvalid", "FieldValueDuplicate"',
        ),
    ],
)
def test_refused(rule: dict[str, Any], field: str, message: str) -> None:
    causes = errors([rule])
    place = f"{PATH}.properties[spec].x-kubernetes-validations[0]"
    assert [(cause.field, cause.message) for cause in causes] == [(place + field, message)]


def test_rule_that_does_not_compile() -> None:
    [cause] = errors([{"rule": "self.middle == 1"}])
    assert cause.field == f"{PATH}.properties[spec].x-kubernetes-validations[0].rule"
    assert cause.message.startswith(
        'Invalid value: apiextensions.ValidationRule{Rule:"self.middle == 1", Message:""'
    )
    assert "compilation failed: ERROR: <input>:1:5: undefined field 'middle'" in cause.message


def test_message_that_is_no_text() -> None:
    [cause] = errors([{"rule": "true", "messageExpression": "self.low"}])
    assert cause.field.endswith(".messageExpression")
    assert "must evaluate to a string" in cause.message


def test_old_values_of_uncorrelatable_items() -> None:
    items = {
        "type": "array",
        "maxItems": 3,
        "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
    }
    [cause] = errors([], tags=items)
    assert cause.message.endswith("oldSelf cannot be used on the uncorrelatable portion of the schema")


def test_rule_that_may_cost_too_much() -> None:
    endless = {"type": "array", "items": {"type": "string"}}
    cause, total = errors([{"rule": "self.tags.all(x, self.tags.all(y, x != y))"}], tags=endless)
    assert total.field == PATH
    assert cause.reason == "FieldValueForbidden"
    assert cause.message.startswith(
        "Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try "
    )


def test_many_items_multiply_the_cost() -> None:
    rule = [{"rule": "self.matches('^(a|b)+$')"}]
    text = {"type": "string", "maxLength": 1000, "x-kubernetes-validations": rule}
    assert errors([], tags={"type": "array", "maxItems": 100, "items": text}) == []
    assert errors([], tags={"type": "array", "items": text})


def judge(rules: list[dict[str, Any]], new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    compiled = compile_schema(schema(rules))
    before = {"spec": old} if old is not None else None
    return [str(cause) for cause in compiled.validate({"spec": new}, before)]


@pytest.mark.parametrize(
    ("rule", "new", "old", "expected"),
    [
        ({"rule": "self.low <= self.high"}, {"low": 1, "high": 2}, None, []),
        (
            {"rule": "self.low <= self.high"},
            {"low": 3, "high": 2},
            None,
            ['spec: Invalid value: "object": failed rule: self.low <= self.high'],
        ),
        (
            {"rule": "self.low <= self.high", "message": " low is over high "},
            {"low": 3, "high": 2},
            None,
            ['spec: Invalid value: "object": low is over high'],
        ),
        (
            {"rule": "false", "messageExpression": "'low is %d'.format([self.low])"},
            {"low": 3},
            None,
            ['spec: Invalid value: "object": low is 3'],
        ),
        (
            {"rule": "false", "message": "fixed", "messageExpression": "string(self.high)"},
            {"low": 3},
            None,
            ['spec: Invalid value: "object": fixed'],
        ),
        (
            {"rule": "false", "reason": "FieldValueRequired", "fieldPath": ".name", "message": "say a name"},
            {},
            None,
            ["spec.name: Required value: say a name"],
        ),
        (
            {"rule": "false", "reason": "FieldValueForbidden", "message": "no"},
            {},
            None,
            ["spec: Forbidden: no"],
        ),
        (
            {"rule": "self.low <= self.high", "message": "m"},
            {"low": 3},
            None,
            ['spec: Invalid value: "object": no such key: high evaluating rule: m'],
        ),
        ({"rule": "self.low == oldSelf.low"}, {"low": 3}, None, []),
        ({"rule": "self.low == oldSelf.low"}, {"low": 3}, {"low": 3}, []),
        (
            {"rule": "self.low == oldSelf.low", "message": "immutable"},
            {"low": 3},
            {"low": 2},
            ['spec: Invalid value: "object": immutable'],
        ),
        ({"rule": "!oldSelf.hasValue() || self.low > 2", "optionalOldSelf": True}, {"low": 1}, None, []),
        (
            {"rule": "!oldSelf.hasValue() || self.low > 2", "optionalOldSelf": True, "message": "m"},
            {"low": 1},
            {"low": 0},
            ['spec: Invalid value: "object": m'],
        ),
    ],
)
def test_objects(
    rule: dict[str, Any], new: dict[str, Any], old: dict[str, Any] | None, expected: list[str]
) -> None:
    assert judge([rule], new, old) == expected


def test_rules_wait_for_right_types() -> None:
    found = judge([{"rule": "false"}], {"low": "x"})
    assert found == [
        'spec.low: Invalid value: "string": spec.low in body must be of type integer: "string"',
        '<nil>: Invalid value: "null": some validation rules were not checked because the object was invalid; correct '
        "the existing errors to complete validation",
    ]


def test_rules_run_beside_other_errors() -> None:
    rules = [{"rule": "self.v != 'x'", "message": "not x"}]
    item = {
        "type": "object",
        "x-kubernetes-validations": rules,
        "properties": {"v": {"type": "string", "pattern": "^[a-w]$"}},
    }
    compiled = compile_schema({"type": "object", "properties": {"spec": {"type": "array", "items": item}}})
    assert [str(cause) for cause in compiled.validate({"spec": [{"v": "a"}, {"v": "x"}]})] == [
        "spec[1].v: Invalid value: \"x\": spec[1].v in body should match '^[a-w]$'",
        'spec[1]: Invalid value: "object": not x',
    ]


def test_old_version_knows_no_rules() -> None:
    compiled = compile_schema(schema([{"rule": "false"}, {"rule": "nonsense("}]), mode="1.20")
    assert compiled.validate({"spec": {}}) == []
    assert compiled.structural_errors() == []
