"""Texts of field errors, as the server's language prints values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_runtime.testing.apiserver.schema import causes
from captf_runtime.testing.apiserver.schema.causes import Cause, aggregate, go_float, go_literal, go_quote

pytestmark = pytest.mark.requirement("AS16")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (2.5, "2.5"),
        (0.1, "0.1"),
        (123456.5, "123456.5"),
        (1234567.5, "1.2345675e+06"),
        (1e6, "1e+06"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1e-6, "1e-06"),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
    ],
)
def test_floats(value: float, shown: str) -> None:
    assert go_float(value) == shown


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_read_back_the_same(value: float) -> None:
    assert float(go_float(value)) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", '"a"'),
        ('"\\', '"\\"\\\\"'),
        ("a\nb\tc\r", '"a\\nb\\tc\\r"'),
        ("\x01\x7f", '"\\x01\\x7f"'),
        ("äöü→", '"äöü→"'),
        ("\u200b", '"\\u200b"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_quoted_texts(text: str, shown: str) -> None:
    assert go_quote(text) == shown


def test_literals() -> None:
    value = {"b": [1, "x", None], "a": True, "c": {}}
    assert go_literal(value) == (
        'map[string]interface {}{"a":true, "b":[]interface {}{1, "x", interface {}(nil)}, '
        '"c":map[string]interface {}{}}'
    )


@pytest.mark.parametrize(
    ("cause", "reason", "message"),
    [
        (causes.invalid("f", 3, "no"), "FieldValueInvalid", "Invalid value: 3: no"),
        (causes.invalid("f", None, "no"), "FieldValueInvalid", 'Invalid value: "null": no'),
        (causes.type_invalid("f", "string", "no"), "FieldValueTypeInvalid", 'Invalid value: "string": no'),
        (causes.required("f"), "FieldValueRequired", "Required value"),
        (causes.required("f", "say it"), "FieldValueRequired", "Required value: say it"),
        (causes.forbidden("f", "never"), "FieldValueForbidden", "Forbidden: never"),
        (causes.duplicate("f", "a"), "FieldValueDuplicate", 'Duplicate value: "a"'),
        (
            causes.not_supported("f", "c", ["a", "b"]),
            "FieldValueNotSupported",
            'Unsupported value: "c": supported values: "a", "b"',
        ),
        (causes.too_long("f", 4), "FieldValueTooLong", "Too long: may not be more than 4 bytes"),
        (causes.too_long("f", 1), "FieldValueTooLong", "Too long: may not be more than 1 byte"),
        (causes.too_many("f", 3, 2), "FieldValueTooMany", "Too many: 3: must have at most 2 items"),
        (causes.too_many("f", 2, 1), "FieldValueTooMany", "Too many: 2: must have at most 1 item"),
    ],
)
def test_causes(cause: Cause, reason: str, message: str) -> None:
    assert (cause.reason, cause.message, cause.field) == (reason, message, "f")
    assert cause.as_dict() == {"reason": reason, "message": message, "field": "f"}


def test_aggregate() -> None:
    one, two = causes.required("a"), causes.required("b")
    assert aggregate([one]) == "a: Required value"
    assert aggregate([one, two]) == "[a: Required value, b: Required value]"
    assert aggregate([one, one]) == "a: Required value"
