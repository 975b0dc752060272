"""Results that depend on the version of the server, and differences between the two servers that are meant.

`RESULTS` is the one table of what a case may expect differently by version: key → version → value.
`DIFFERENCES` names the cases whose whole record may differ from the real server's, each with the reason; a
difference that is not listed fails.
"""

from __future__ import annotations

from typing import Any

TYPE_INVALID = "FieldValueTypeInvalid"


def _cause(field: str, message: str, reason: str = "FieldValueInvalid") -> dict[str, str]:
    return {"field": field, "message": message, "reason": reason}


def _type(field: str, wanted: str, actual: str) -> dict[str, str]:
    text = f'Invalid value: "{actual}": spec.{field} in body must be of type {wanted}: "{actual}"'
    return _cause(f"spec.{field}", text, TYPE_INVALID)


# From 1.23 on a wrong type has a reason of its own, items are named with their index, and texts, lists and
# objects that are too long have their own reasons and texts.
_SCHEMA: dict[str, list[dict[str, str]]] = {
    "integer-is-string": [_type("integer", "integer", "string")],
    "integer-is-fraction": [_type("integer", "integer", "number")],
    "integer-is-boolean": [_type("integer", "integer", "boolean")],
    "integer-is-object": [_type("integer", "integer", "object")],
    "integer-is-array": [_type("integer", "integer", "array")],
    "integer-over-64-bits": [_type("long", "integer", "number")],
    "number-is-string": [_type("number", "number", "string")],
    "text-long": [_cause("spec.text", "Too long: may not be more than 4 bytes", "FieldValueTooLong")],
    "text-long-counts-characters": [
        _cause("spec.text", "Too long: may not be more than 4 bytes", "FieldValueTooLong")
    ],
    "text-is-integer": [_type("text", "string", "integer")],
    "text-is-array": [_type("text", "string", "array")],
    "text-is-object": [_type("text", "string", "object")],
    "enum-and-type": [
        _type("choice", "string", "integer"),
        _cause("spec.choice", 'Unsupported value: 3: supported values: "A", "B"', "FieldValueNotSupported"),
    ],
    "boolean-is-string": [_type("boolean", "boolean", "string")],
    "boolean-is-integer": [_type("boolean", "boolean", "integer")],
    "list-long": [_cause("spec.list", "Too many: 3: must have at most 2 items", "FieldValueTooMany")],
    "list-item-type": [_type("list[0]", "string", "integer")],
    "list-is-string": [_type("list", "array", "string")],
    "list-is-object": [_type("list", "array", "object")],
    "list-item-null": [_type("list[0]", "string", "null")],
    "list-of-objects": [
        _cause(
            "spec.items[1].y", "Invalid value: 9: spec.items[1].y in body should be less than or equal to 3"
        ),
        _cause("spec.items[1].x", "Required value", "FieldValueRequired"),
        _cause("spec.items[2].x", "Required value", "FieldValueRequired"),
    ],
    "keyed-without-key": [_cause("spec.keyed[0].name", "Required value", "FieldValueRequired")],
    "object-too-many": [_cause("spec.object", "Too many: 3: must have at most 2 items", "FieldValueTooMany")],
    "object-property-type": [_type("object.x", "string", "integer")],
    "object-is-string": [_type("object", "object", "string")],
    "object-is-array": [_type("object", "object", "array")],
    "required-and-type": [
        _type("required.p", "integer", "string"),
        _cause("spec.required.q", "Required value", "FieldValueRequired"),
    ],
    "map-too-many": [_cause("spec.map", "Too many: 3: must have at most 2 items", "FieldValueTooMany")],
    "map-value-type": [_type("map.a.b/c", "integer", "string")],
    "int-or-string-is-fraction": [_type("intOrString", "integer,string", "number")],
    "int-or-string-is-boolean": [_type("intOrString", "integer,string", "boolean")],
    "int-or-string-is-object": [_type("intOrString", "integer,string", "object")],
    "nullable-type": [_type("nullable", "string", "integer")],
}

RESULTS: dict[str, dict[str, Any]] = {
    **{f"schema/{name}": {"1.32": causes} for name, causes in _SCHEMA.items()},
    "definitions/default-of-another-type": {
        "1.32": [
            _cause(
                "spec.validation.openAPIV3Schema.properties[spec].properties[x].default",
                'Invalid value: "string":  in body must be of type integer: "string"',
                TYPE_INVALID,
            )
        ]
    },
    # Aggregated discovery came with 1.26, OpenAPI v3 with 1.24; the embedded server serves the latter always.
    "discovery/aggregated": {
        "1.20": {"/api": "APIVersions", "/apis": "APIGroupList"},
        "1.32": {"/api": "APIGroupDiscoveryList", "/apis": "APIGroupDiscoveryList"},
    },
    "discovery/openapi-v3": {"1.20": False, "1.32": True},
    # An event with an eventTime about a cluster-scoped object.
    "event/cluster-scoped-namespace": {"1.20": "kube-system", "1.32": "default"},
    "event/immutable": {"1.20": 200, "1.32": 422},
    # Streaming lists came with 1.27; before, their parameters are not known.
    "watch/initial-events": {"1.20": 422, "1.32": 200},
    "watch/initial-events-alone": {"1.20": 200, "1.32": 422},
    # Strict field validation came with 1.25; before, the parameter is not looked at.
    "strict-validation": {"1.20": 201, "1.32": 400},
    "apply/long-manager": {
        "1.20": "Too long: must have at most 128 bytes",
        "1.32": "Too long: may not be more than 128 bytes",
    },
    # Owners by subresource came with 1.22; before, the status that one manager applies replaces its other
    # fields.
    "apply/status-owners": {"1.20": [("m1", "Apply")], "1.32": [("m1", "Apply"), ("m1/status", "Apply")]},
    # A JSON patch of 1.20 replaces and copies from keys of maps that are not there.
    "patch/json-replace": {"1.20": 200},
    "patch/json-copy": {"1.20": 200},
    "patch/no-object": {"1.20": 422, "1.32": 400},
    "schema/type-reason": {"1.20": "FieldValueInvalid", "1.32": TYPE_INVALID},
}

DIFFERENCES: dict[str, str] = {}
