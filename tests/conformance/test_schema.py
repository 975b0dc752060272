"""Custom resources under their schemas: pruning, defaults, nulls, and every kind of error with its exact
text.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.conftest import GROUP
from tests.conformance.target import Case
from tests.conformance.versions import RESULTS

pytestmark = [pytest.mark.requirement("AS16"), pytest.mark.usefixtures("custom_resources")]

INVALID = "FieldValueInvalid"
MISSING = "FieldValueRequired"
UNSUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"

ALWAYS = {"defaults": {"k": "v", "n": 3}, "defaultText": "q", "defaultNullable": "q"}
"""What defaults put into every sample."""


def invalid(field: str, message: str, reason: str = INVALID) -> dict[str, str]:
    return {"field": field, "message": message, "reason": reason}


def out_of_range(field: str, value: object, text: str) -> dict[str, str]:
    return invalid(f"spec.{field}", f"Invalid value: {value}: spec.{field} in body {text}")


def wrong_type(field: str, wanted: str, actual: str) -> dict[str, str]:
    text = f'Invalid value: "{actual}": spec.{field} in body must be of type {wanted}: "{actual}"'
    return invalid(f"spec.{field}", text)


def wrong_format(field: str, name: str, value: str) -> dict[str, str]:
    text = f'Invalid value: "{value}": spec.{field} in body must be of type {name}: "{value}"'
    return invalid(f"spec.{field}", text)


def missing(field: str, detail: str = "") -> dict[str, str]:
    return invalid(f"spec.{field}", "Required value" + detail, MISSING)


def combined(field: str, text: str) -> dict[str, str]:
    return invalid("<nil>", f'Invalid value: "": "spec.{field}" {text}')


REFUSED: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "minimum": ({"integer": 0}, [out_of_range("integer", 0, "should be greater than or equal to 1")]),
    "maximum": ({"integer": 11}, [out_of_range("integer", 11, "should be less than or equal to 10")]),
    "exclusive-minimum": ({"exclusive": 1}, [out_of_range("exclusive", 1, "should be greater than 1")]),
    "exclusive-maximum": ({"exclusive": 10}, [out_of_range("exclusive", 10, "should be less than 10")]),
    "integer-is-string": ({"integer": "x"}, [wrong_type("integer", "integer", "string")]),
    "integer-is-fraction": ({"integer": 1.5}, [wrong_type("integer", "integer", "number")]),
    "integer-is-boolean": ({"integer": True}, [wrong_type("integer", "integer", "boolean")]),
    "integer-is-object": ({"integer": {}}, [wrong_type("integer", "integer", "object")]),
    "integer-is-array": ({"integer": []}, [wrong_type("integer", "integer", "array")]),
    "integer-over-64-bits": ({"long": 2**70}, [wrong_type("long", "integer", "number")]),
    "multiple": ({"multiple": 4}, [out_of_range("multiple", 4, "should be a multiple of 3")]),
    "number-minimum": (
        {"number": 0.1},
        [out_of_range("number", 0.1, "should be greater than or equal to 0.5")],
    ),
    "number-maximum-whole": ({"number": 3}, [out_of_range("number", 3, "should be less than or equal to 2")]),
    "number-maximum": (
        {"number": 2.75},
        [out_of_range("number", 2.75, "should be less than or equal to 2.5")],
    ),
    "number-large": (
        {"number": 1234567.5},
        [out_of_range("number", "1.2345675e+06", "should be less than or equal to 2.5")],
    ),
    "number-is-string": ({"number": "x"}, [wrong_type("number", "number", "string")]),
    "text-short": ({"text": "a"}, [out_of_range("text", '"a"', "should be at least 2 chars long")]),
    "text-long": ({"text": "abcde"}, [out_of_range("text", '"abcde"', "should be at most 4 chars long")]),
    "text-long-counts-characters": (
        {"text": "äöüßé"},
        [out_of_range("text", '"äöüßé"', "should be at most 4 chars long")],
    ),
    "text-is-integer": ({"text": 1}, [wrong_type("text", "string", "integer")]),
    "text-is-array": ({"text": ["q"]}, [wrong_type("text", "string", "array")]),
    "text-is-object": ({"text": {"a": 1}}, [wrong_type("text", "string", "object")]),
    "pattern": ({"pattern": "A1"}, [out_of_range("pattern", '"A1"', "should match '^[a-z]+$'")]),
    "pattern-line-break": (
        {"pattern": "a\n"},
        [out_of_range("pattern", '"a\\n"', "should match '^[a-z]+$'")],
    ),
    "enum": (
        {"choice": "C"},
        [invalid("spec.choice", 'Unsupported value: "C": supported values: "A", "B"', UNSUPPORTED)],
    ),
    "enum-and-type": (
        {"choice": 3},
        [
            wrong_type("choice", "string", "integer"),
            invalid("spec.choice", 'Unsupported value: 3: supported values: "A", "B"', UNSUPPORTED),
        ],
    ),
    "enum-integer": (
        {"numbers": 3},
        [invalid("spec.numbers", 'Unsupported value: 3: supported values: "1", "2"', UNSUPPORTED)],
    ),
    "enum-object": (
        {"objectChoice": {"b": 1}},
        [
            invalid(
                "spec.objectChoice",
                'Unsupported value: map[string]interface {}{"b":1}: supported values: "{\\"a\\":1}"',
                UNSUPPORTED,
            )
        ],
    ),
    "boolean-is-string": ({"boolean": "x"}, [wrong_type("boolean", "boolean", "string")]),
    "boolean-is-integer": ({"boolean": 0}, [wrong_type("boolean", "boolean", "integer")]),
    "list-short": ({"list": []}, [out_of_range("list", 0, "should have at least 1 items")]),
    "list-long": ({"list": ["a", "b", "c"]}, [out_of_range("list", 3, "should have at most 2 items")]),
    "list-item-type": ({"list": [1]}, [wrong_type("list", "string", "integer")]),
    "list-is-string": ({"list": "x"}, [wrong_type("list", "array", "string")]),
    "list-is-object": ({"list": {"q": 1}}, [wrong_type("list", "array", "object")]),
    "list-item-null": ({"list": [None]}, [wrong_type("list", "string", "null")]),
    "list-of-objects": (
        {"items": [{"x": "a"}, {"y": 9, "zz": 3}, {"x": None}]},
        [out_of_range("items.y", 9, "should be less than or equal to 3"), missing("items.x")],
    ),
    "set-repeats-once": (
        {"set": ["a", "b", "a", "a"]},
        [invalid("spec.set[2]", 'Duplicate value: "a"', DUPLICATE)],
    ),
    "set-repeats-twice": (
        {"set": ["a", "b", "a", "b"]},
        [
            invalid("spec.set[2]", 'Duplicate value: "a"', DUPLICATE),
            invalid("spec.set[3]", 'Duplicate value: "b"', DUPLICATE),
        ],
    ),
    "keyed-repeats": (
        {"keyed": [{"name": "a"}, {"name": "a"}]},
        [invalid("spec.keyed[1]", 'Duplicate value: map[string]interface {}{"name":"a"}', DUPLICATE)],
    ),
    "keyed-without-key": ({"keyed": [{"value": 1}]}, [missing("keyed.name")]),
    "two-keys-by-default": (
        {"twoKeys": [{"name": "a"}, {"name": "a", "port": 80}]},
        [
            invalid(
                "spec.twoKeys[1]",
                'Duplicate value: map[string]interface {}{"name":"a", "port":80}',
                DUPLICATE,
            )
        ],
    ),
    "object-too-few": ({"object": {}}, [out_of_range("object", 1, "should have at least 1 properties")]),
    "object-too-many": (
        {"object": {"x": "a", "y": "b", "z": "c"}},
        [out_of_range("object", 2, "should have at most 2 properties")],
    ),
    "object-required": ({"object": {"x": "a"}}, [missing("object.y")]),
    "object-required-is-null": ({"object": {"x": None, "y": "b"}}, [missing("object.x")]),
    "object-property-type": ({"object": {"x": 1, "y": "b"}}, [wrong_type("object.x", "string", "integer")]),
    "object-is-string": ({"object": "q"}, [wrong_type("object", "object", "string")]),
    "object-is-array": ({"object": ["q"]}, [wrong_type("object", "object", "array")]),
    "required-all-missing": ({"required": {}}, [missing("required.p"), missing("required.q")]),
    "required-and-type": (
        {"required": {"p": "a"}},
        [wrong_type("required.p", "integer", "string"), missing("required.q")],
    ),
    "map-too-few": ({"map": {}}, [out_of_range("map", 1, "should have at least 1 properties")]),
    "map-too-many": (
        {"map": {"a": 1, "b": 2, "c": 3}},
        [out_of_range("map", 2, "should have at most 2 properties")],
    ),
    "map-value-type": ({"map": {"a.b/c": "x"}}, [wrong_type("map.a.b/c", "integer", "string")]),
    "map-value-pattern": (
        {"patternMap": {"k": "y"}},
        [out_of_range("patternMap.k", '"y"', "should match '^x'")],
    ),
    "closed-object": (
        {"closed": {"a": 1}},
        [invalid("spec.closed", 'Invalid value: "a": spec.closed.a in body is a forbidden property')],
    ),
    "int-or-string-is-fraction": (
        {"intOrString": 1.5},
        [wrong_type("intOrString", "integer,string", "number")],
    ),
    "int-or-string-is-boolean": (
        {"intOrString": True},
        [wrong_type("intOrString", "integer,string", "boolean")],
    ),
    "int-or-string-is-object": ({"intOrString": {}}, [wrong_type("intOrString", "integer,string", "object")]),
    "int-or-string-pattern": (
        {"percent": "a"},
        [out_of_range("percent", '"a"', "should match '^[0-9]+%$'")],
    ),
    "nullable-type": ({"nullable": 1}, [wrong_type("nullable", "string", "integer")]),
    "date-time": ({"dateTime": "2020-01-01"}, [wrong_format("dateTime", "date-time", "2020-01-01")]),
    "date": ({"date": "x"}, [wrong_format("date", "date", "x")]),
    "email": ({"email": "x"}, [wrong_format("email", "email", "x")]),
    "ipv4": ({"ipv4": "::1"}, [wrong_format("ipv4", "ipv4", "::1")]),
    "ipv6": ({"ipv6": "1.2.3.4"}, [wrong_format("ipv6", "ipv6", "1.2.3.4")]),
    "cidr": ({"cidr": "x"}, [wrong_format("cidr", "cidr", "x")]),
    "uri": ({"uri": "x"}, [wrong_format("uri", "uri", "x")]),
    "hostname": ({"hostname": "a_b"}, [wrong_format("hostname", "hostname", "a_b")]),
    "hostname-top-level": ({"hostname": "a.b"}, [wrong_format("hostname", "hostname", "a.b")]),
    "byte": ({"byte": "YQ"}, [wrong_format("byte", "byte", "YQ")]),
    "uuid": ({"uuid": "x"}, [wrong_format("uuid", "uuid", "x")]),
    "duration": ({"duration": "5"}, [wrong_format("duration", "duration", "5")]),
    "mac": ({"mac": "x"}, [wrong_format("mac", "mac", "x")]),
    "one-of-none": (
        {"oneOf": {}},
        [
            combined("oneOf", "must validate one and only one schema (oneOf). Found none valid"),
            missing("oneOf.a"),
        ],
    ),
    "one-of-both": (
        {"oneOf": {"a": "1", "b": "2"}},
        [combined("oneOf", "must validate one and only one schema (oneOf). Found 2 valid alternatives")],
    ),
    "any-of-none": (
        {"anyOf": {}},
        [combined("anyOf", "must validate at least one schema (anyOf)"), missing("anyOf.a")],
    ),
    "any-of-nearest": (
        {"anyOf": {"c": 1}},
        [
            combined("anyOf", "must validate at least one schema (anyOf)"),
            out_of_range("anyOf.c", 1, "should be greater than or equal to 3"),
        ],
    ),
    "all-of-none": (
        {"allOf": 1},
        [
            out_of_range("allOf", 1, "should be greater than or equal to 3"),
            out_of_range("allOf", 1, "should be a multiple of 2"),
            combined("allOf", "must validate all the schemas (allOf). None validated"),
        ],
    ),
    "all-of-one": (
        {"allOf": 2},
        [
            out_of_range("allOf", 2, "should be greater than or equal to 3"),
            combined("allOf", "must validate all the schemas (allOf)"),
        ],
    ),
    "not": ({"not": {"a": "1"}}, [combined("not", "must not validate the schema (not)")]),
    "not-pattern": ({"notPattern": "xx"}, [combined("notPattern", "must not validate the schema (not)")]),
    "embedded-empty": (
        {"embedded": {}},
        [
            missing("embedded.apiVersion", ": must not be empty"),
            missing("embedded.kind", ": must not be empty"),
        ],
    ),
    "embedded-version": (
        {"embedded": {"apiVersion": "a/b/c", "kind": "Pod"}},
        [
            invalid(
                "spec.embedded.apiVersion", 'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'
            )
        ],
    ),
    "several": (
        {"integer": 99, "choice": "C"},
        [
            out_of_range("integer", 99, "should be less than or equal to 10"),
            invalid("spec.choice", 'Unsupported value: "C": supported values: "A", "B"', UNSUPPORTED),
        ],
    ),
}

ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "whole-number": ({"integer": 2.0}, {"integer": 2}),
    "null-is-dropped": ({"integer": None}, {}),
    "null-is-kept": ({"nullable": None}, {"nullable": None}),
    "null-becomes-default": ({"defaultText": None}, {}),
    "null-beats-default": ({"defaultNullable": None}, {"defaultNullable": None}),
    "default-object-null": ({"defaults": None}, {}),
    "default-object-part": ({"defaults": {"n": 5}}, {"defaults": {"k": "v", "n": 5}}),
    "default-items": (
        {"defaultItems": [{}, {"k": None}, {"k": "z"}]},
        {"defaultItems": [{"k": "v"}, {"k": "v"}, {"k": "z"}]},
    ),
    "default-map": ({"defaultMap": {"a": {}, "b": None}}, {"defaultMap": {"a": {"k": "v"}}}),
    "default-key": (
        {"twoKeys": [{"name": "a"}, {"name": "a", "port": 81}]},
        {"twoKeys": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]},
    ),
    "unknown-is-pruned": (
        {"zzz": 1, "object": {"x": "a", "y": "b", "q": 1}},
        {"object": {"x": "a", "y": "b"}},
    ),
    "unknown-in-items": ({"items": [{"x": "a", "q": 1}]}, {"items": [{"x": "a"}]}),
    "open-object-is-shallow": (
        {"open": {"a": 1, "b": {"c": 1}, "d": [{"q": 1}]}},
        {"open": {"a": 1, "b": {}, "d": [{}]}},
    ),
    "preserve": (
        {"preserve": {"zz": {"deep": [1, None]}, "inner": {"a": "b", "q": 2}}},
        {"preserve": {"zz": {"deep": [1, None]}, "inner": {"a": "b"}}},
    ),
    "anything-scalar": ({"anything": 1}, {"anything": 1}),
    "anything-list": ({"anything": [{"a": {"b": 1}}]}, {"anything": [{"a": {"b": 1}}]}),
    "anything-null": ({"anything": None}, {}),
    "embedded": (
        {"embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "bogus": 1}, "foo": 1}},
        {"embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "foo": 1}},
    ),
    "int-or-string": ({"intOrString": 1, "percent": 3}, {"intOrString": 1, "percent": 3}),
    "int-or-string-text": ({"intOrString": "a", "percent": "3%"}, {"intOrString": "a", "percent": "3%"}),
    "bounds": (
        {"integer": 1, "exclusive": 9, "multiple": 6, "number": 2.5, "text": "äöüß", "list": ["a", "b"]},
        {"integer": 1, "exclusive": 9, "multiple": 6, "number": 2.5, "text": "äöüß", "list": ["a", "b"]},
    ),
    "formats": (
        {
            "dateTime": "2020-01-01T00:00:00.123+02:00",
            "date": "2020-01-01",
            "email": "a@b.c",
            "ipv4": "1.2.3.4",
            "ipv6": "::1",
            "cidr": "10.0.0.0/8",
            "uri": "http://a/b",
            "hostname": "x.io",
            "byte": "YQ==",
            "uuid": "123e4567-e89b-12d3-a456-426614174000",
            "duration": "1h30m",
            "mac": "01:23:45:67:89:ab",
            "unknownFormat": "anything",
        },
        {},
    ),
    "one-of": ({"oneOf": {"a": "1"}}, {"oneOf": {"a": "1"}}),
    "any-of": ({"anyOf": {"c": 3}}, {"anyOf": {"c": 3}}),
    "all-of": ({"allOf": 4}, {"allOf": 4}),
    "enum-object": ({"objectChoice": {"a": 1}}, {"objectChoice": {"a": 1}}),
}


def sample(spec: object) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Sample", "metadata": {"name": "s"}, "spec": spec}


def ordered(causes: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    return sorted((cause["field"], cause["reason"], cause["message"]) for cause in causes)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(k: Case, name: str) -> None:
    spec, expected = REFUSED[name]
    if k.server.version != "1.20":
        expected = RESULTS[f"schema/{name}"]["1.32"] if f"schema/{name}" in RESULTS else expected
    path = k.path(f"samples.{GROUP}")
    answer = k.post(path, sample(spec))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert ordered(answer.causes) == ordered(expected)
    assert answer.details | {"causes": 0} == {"name": "s", "group": GROUP, "kind": "Sample", "causes": 0}
    assert answer.message.startswith(f'Sample.{GROUP} "s" is invalid: ')
    if len(expected) == 1:
        only = expected[0]
        assert answer.message == f'Sample.{GROUP} "s" is invalid: {only["field"]}: {only["message"]}'
    assert k.get(f"{path}/s").code == 404


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(k: Case, name: str) -> None:
    spec, expected = ACCEPTED[name]
    path = k.path(f"samples.{GROUP}")
    answer = k.post(path, sample(spec))
    assert answer.code == 201, answer.message
    assert answer.body["spec"] == {**ALWAYS, **(expected or {key: spec[key] for key in spec if spec[key]})}
    assert k.get(f"{path}/s").body["spec"] == answer.body["spec"]


def test_empty_text(k: Case) -> None:
    answer = k.post(k.path(f"samples.{GROUP}"), sample({"defaultText": ""}), record=False)
    if k.server.is_real and answer.code == 422:
        # A server whose sources are older than the compiler that built it takes an empty text for null.
        text = 'Invalid value: "null": spec.defaultText in body must be of type string: "null"'
        assert answer.causes == [invalid("spec.defaultText", text)]
        return
    assert answer.code == 201
    assert answer.body["spec"]["defaultText"] == ""


def test_spec_of_another_type(k: Case) -> None:
    answer = k.post(k.path(f"samples.{GROUP}"), sample("x"))
    reason = RESULTS["schema/type-reason"][k.server.version]
    text = 'Invalid value: "string": spec in body must be of type object: "string"'
    assert answer.code == 422
    assert ordered(answer.causes) == [("spec", reason, text)]


def test_null_spec_is_dropped(k: Case) -> None:
    answer = k.post(k.path(f"samples.{GROUP}"), sample(None))
    assert answer.code == 201
    assert "spec" not in answer.body


def test_unknown_at_the_root_is_pruned(k: Case) -> None:
    answer = k.post(k.path(f"samples.{GROUP}"), {**sample({}), "extra": 1})
    assert answer.code == 201
    assert set(answer.body) == {"apiVersion", "kind", "metadata", "spec"}


def test_unknown_metadata_is_dropped(k: Case) -> None:
    body = sample({})
    body["metadata"]["bogus"] = "x"
    answer = k.post(k.path(f"samples.{GROUP}"), body)
    assert answer.code == 201
    assert "bogus" not in answer.metadata


def test_update_is_validated(k: Case) -> None:
    path = k.path(f"samples.{GROUP}")
    k.post(path, sample({"integer": 3}))
    answer = k.patch(f"{path}/s", {"spec": {"integer": 30}})
    assert answer.code == 422
    text = "Invalid value: 30: spec.integer in body should be less than or equal to 10"
    assert answer.causes == [invalid("spec.integer", text)]
    assert k.get(f"{path}/s").body["spec"]["integer"] == 3


def test_status_is_validated(k: Case) -> None:
    path = k.path(f"samples.{GROUP}")
    k.post(path, sample({}))
    answer = k.patch(f"{path}/s/status", {"status": {"phase": 3}})
    reason = RESULTS["schema/type-reason"][k.server.version]
    text = 'Invalid value: "integer": status.phase in body must be of type string: "integer"'
    assert answer.code == 422
    assert answer.causes == [invalid("status.phase", text, reason)]
    assert "status" not in k.get(f"{path}/s").body


def test_patch_adds_defaults(k: Case) -> None:
    path = k.path(f"samples.{GROUP}")
    k.post(path, sample({}))
    answer = k.patch(f"{path}/s", {"spec": {"defaults": None, "defaultItems": [{}]}})
    assert answer.code == 200
    assert answer.body["spec"] == {**ALWAYS, "defaultItems": [{"k": "v"}]}
