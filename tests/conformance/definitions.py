"""The custom resource definitions that cases share, and the making of others."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def object_of(**properties: Schema) -> Schema:
    """An object schema."""
    return {"type": "object", "properties": properties}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}

FIELDS: dict[str, Schema] = {
    "integer": {"type": "integer", "minimum": 1, "maximum": 10},
    "exclusive": {
        "type": "integer",
        "minimum": 1,
        "exclusiveMinimum": True,
        "maximum": 10,
        "exclusiveMaximum": True,
    },
    "long": {"type": "integer", "format": "int64"},
    "multiple": {"type": "integer", "multipleOf": 3},
    "number": {"type": "number", "minimum": 0.5, "maximum": 2.5},
    "text": {"type": "string", "minLength": 2, "maxLength": 4},
    "pattern": {"type": "string", "pattern": "^[a-z]+$"},
    "choice": {"type": "string", "enum": ["A", "B"]},
    "numbers": {"type": "integer", "enum": [1, 2]},
    "boolean": {"type": "boolean"},
    "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": TEXT},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    "keyed": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {**object_of(name=TEXT, value=NUMBER), "required": ["name"]},
    },
    "twoKeys": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name", "port"],
        "items": {**object_of(name=TEXT, port={"type": "integer", "default": 80}), "required": ["name"]},
    },
    "object": {
        **object_of(x=TEXT, y=TEXT, z=TEXT),
        "required": ["x", "y"],
        "minProperties": 1,
        "maxProperties": 2,
    },
    "map": {
        "type": "object",
        "additionalProperties": NUMBER,
        "minProperties": 1,
        "maxProperties": 2,
    },
    "patternMap": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^x"}},
    "closed": {"type": "object", "additionalProperties": False},
    "open": {"type": "object", "additionalProperties": True},
    "intOrString": {"x-kubernetes-int-or-string": True},
    "percent": {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+%$"},
    "nullable": {"type": "string", "nullable": True},
    "dateTime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "email": {"type": "string", "format": "email"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "ipv6": {"type": "string", "format": "ipv6"},
    "cidr": {"type": "string", "format": "cidr"},
    "uri": {"type": "string", "format": "uri"},
    "hostname": {"type": "string", "format": "hostname"},
    "byte": {"type": "string", "format": "byte"},
    "uuid": {"type": "string", "format": "uuid"},
    "duration": {"type": "string", "format": "duration"},
    "mac": {"type": "string", "format": "mac"},
    "unknownFormat": {"type": "string", "format": "wibble"},
    "oneOf": {**object_of(a=TEXT, b=TEXT), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "anyOf": {
        **object_of(a=TEXT, b=TEXT, c=NUMBER),
        "anyOf": [
            {"required": ["a"]},
            {"required": ["b"]},
            {"properties": {"c": {"minimum": 3}}, "required": ["c"]},
        ],
    },
    "allOf": {"type": "integer", "allOf": [{"minimum": 3}, {"multipleOf": 2}]},
    "not": {**object_of(a=TEXT), "not": {"required": ["a"]}},
    "notPattern": {"type": "string", "not": {"pattern": "^x"}},
    "defaults": {
        **object_of(k={"type": "string", "default": "v"}, n={"type": "integer", "default": 3}),
        "default": {},
    },
    "defaultText": {"type": "string", "default": "q"},
    "defaultNullable": {"type": "string", "default": "q", "nullable": True},
    "defaultItems": {"type": "array", "items": object_of(k={"type": "string", "default": "v"})},
    "defaultMap": {"type": "object", "additionalProperties": object_of(k={"type": "string", "default": "v"})},
    "preserve": {**object_of(inner=object_of(a=TEXT)), "x-kubernetes-preserve-unknown-fields": True},
    "anything": {"x-kubernetes-preserve-unknown-fields": True},
    "embedded": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "required": {**object_of(p=NUMBER, q=NUMBER), "required": ["p", "q"]},
    "objectChoice": {"type": "object", "enum": [{"a": 1}], "x-kubernetes-preserve-unknown-fields": True},
    "items": {
        "type": "array",
        "items": {**object_of(x=TEXT, y={"type": "integer", "maximum": 3}), "required": ["x"]},
    },
}
"""The fields of `Sample`, one for each feature of a schema."""

_WIDGET = object_of(
    spec={
        **object_of(
            size={"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
            color={"type": "string", "enum": ["red", "blue"]},
            options={"type": "object", "additionalProperties": TEXT},
            tags={"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
            ports={
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {**object_of(name=TEXT, port=NUMBER), "required": ["name"]},
            },
            plain={"type": "array", "items": TEXT},
            whole={**object_of(x=TEXT), "x-kubernetes-map-type": "atomic"},
        )
    },
    status=object_of(phase=TEXT, count=NUMBER),
)


def definition(
    group: str,
    kind: str,
    schema: Schema,
    *,
    scope: str = "Namespaced",
    status: bool = True,
    **version: Any,
) -> dict[str, Any]:
    """A definition with one version, `v1`."""
    plural = f"{kind.lower()}s"
    served: dict[str, Any] = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **version,
    }
    if status:
        served["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [served],
        },
    }


def definitions(group: str) -> list[dict[str, Any]]:
    """The shared ones: `Sample` for schemas, `Widget` for everything else, `Realm` cluster-scoped, `Bare`."""
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    widget = definition(group, "Widget", _WIDGET, additionalPrinterColumns=columns)
    widget["spec"]["names"]["shortNames"] = ["wd"]
    widget["spec"]["names"]["categories"] = ["toys"]
    return [
        definition(group, "Sample", object_of(spec=object_of(**FIELDS), status=object_of(phase=TEXT))),
        widget,
        definition(group, "Realm", _WIDGET, scope="Cluster"),
        definition(
            group, "Bare", object_of(spec=object_of(a=TEXT), status=object_of(phase=TEXT)), status=False
        ),
    ]
