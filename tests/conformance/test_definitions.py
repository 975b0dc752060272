"""Custom resource definitions: what is accepted, refused, established, changed and deleted."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.conformance.definitions import NUMBER, TEXT, definition, object_of
from tests.conformance.expectations import cause, refused
from tests.conformance.target import Case
from tests.conformance.versions import RESULTS

pytestmark = pytest.mark.requirement("AS15")

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "refused.example.com"
ROOT = "spec.validation.openAPIV3Schema"
FIELD = f"{ROOT}.properties[spec].properties[x]"
MISSING = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"
UNSUPPORTED = "FieldValueNotSupported"
TYPES = '"array", "boolean", "integer", "number", "object", "string"'
NOT_STRUCTURAL = "Forbidden: must be empty to be structural"
LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def at(rest: str, message: str, reason: str = "FieldValueInvalid") -> dict[str, str]:
    return cause(FIELD + rest, message, reason)


def not_a_regexp(pattern: str, detail: str) -> dict[str, str]:
    text = f'Invalid value: "{pattern}": must be a valid regular expression, but isn\'t: error parsing regexp: {detail}'
    return at(".pattern", text)


KEYED: dict[str, Any] = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["a"],
}

FIELDS: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "no-type": ({}, [at(".type", "Required value: must not be empty for specified object fields", MISSING)]),
    "no-items": ({"type": "array"}, [at(".items", "Required value: must be specified", MISSING)]),
    "items-without-type": (
        {"type": "array", "items": {}},
        [at(".items.type", "Required value: must not be empty for specified array items", MISSING)],
    ),
    "values-without-type": (
        {"type": "object", "additionalProperties": {}},
        [
            at(
                ".additionalProperties.type",
                "Required value: must not be empty for specified object fields",
                MISSING,
            )
        ],
    ),
    "properties-and-values": (
        {**object_of(a=TEXT), "additionalProperties": TEXT},
        [
            at(
                ".additionalProperties",
                "Forbidden: additionalProperties and properties are mutual exclusive",
                FORBIDDEN,
            )
        ],
    ),
    "unknown-type": (
        {"type": "strung"},
        [at(".type", f'Unsupported value: "strung": supported values: {TYPES}', UNSUPPORTED)],
    ),
    "null-type": (
        {"type": "null"},
        [
            at(".type", f'Unsupported value: "null": supported values: {TYPES}', UNSUPPORTED),
            at(".type", "Forbidden: type cannot be set to null, use nullable as an alternative", FORBIDDEN),
        ],
    ),
    "default-of-another-type": (
        {"type": "integer", "default": "a"},
        [at(".default", 'Invalid value: "string":  in body must be of type integer: "string"')],
    ),
    "default-outside-the-enum": (
        {"type": "string", "enum": ["a"], "default": "b"},
        [at(".default", 'Unsupported value: "b": supported values: "a"', UNSUPPORTED)],
    ),
    "default-with-unknown-field": (
        {"type": "object", "default": {"a": 1}},
        [at(".default", 'Invalid value: map[string]interface {}{"a":1}: must not have unknown fields')],
    ),
    "default-without-required-field": (
        {**object_of(q=TEXT), "required": ["q"], "default": {}},
        [at(".default.q", "Required value", MISSING)],
    ),
    "pattern-bracket": ({"type": "string", "pattern": "(["}, [not_a_regexp("([", "missing closing ]: `[`")]),
    "pattern-parenthesis": (
        {"type": "string", "pattern": "(a"},
        [not_a_regexp("(a", "missing closing ): `(a`")],
    ),
    "pattern-closing": ({"type": "string", "pattern": "a)"}, [not_a_regexp("a)", "unexpected ): `a)`")]),
    "pattern-repeat": (
        {"type": "string", "pattern": "*a"},
        [not_a_regexp("*a", "missing argument to repetition operator: `*`")],
    ),
    "pattern-repeat-count": (
        {"type": "string", "pattern": "a{2000}"},
        [not_a_regexp("a{2000}", "invalid repeat count: `{2000}`")],
    ),
    "pattern-look-ahead": (
        {"type": "string", "pattern": "a(?=b)"},
        [not_a_regexp("a(?=b)", "invalid or unsupported Perl syntax: `(?=`")],
    ),
    "nested-type": (
        {**object_of(), "oneOf": [{"type": "object"}]},
        [at(".oneOf[0].type", NOT_STRUCTURAL, FORBIDDEN)],
    ),
    "nested-description": (
        {"type": "string", "not": {"description": "a"}},
        [at(".not.description", NOT_STRUCTURAL, FORBIDDEN)],
    ),
    "nested-title": (
        {"type": "string", "allOf": [{"title": "a"}]},
        [at(".allOf[0].title", NOT_STRUCTURAL, FORBIDDEN)],
    ),
    "nested-default": (
        {**object_of(a=TEXT), "anyOf": [{"properties": {"a": {"default": "a"}}}]},
        [at(".anyOf[0].properties[a].default", "Forbidden: must be undefined to be structural", FORBIDDEN)],
    ),
    "nested-values": (
        {
            "type": "object",
            "additionalProperties": TEXT,
            "oneOf": [{"additionalProperties": {"minLength": 1}}],
        },
        [at(".oneOf[0].additionalProperties", "Forbidden: must be undefined to be structural", FORBIDDEN)],
    ),
    "nested-nullable": (
        {"type": "string", "oneOf": [{"nullable": True}]},
        [at(".oneOf[0].nullable", "Forbidden: must be false to be structural", FORBIDDEN)],
    ),
    "nested-preserve": (
        {"type": "object", "oneOf": [{"x-kubernetes-preserve-unknown-fields": True}]},
        [
            at(
                ".oneOf[0].x-kubernetes-preserve-unknown-fields",
                "Forbidden: must be false to be structural",
                FORBIDDEN,
            )
        ],
    ),
    "preserve-is-false": (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
        [at(".x-kubernetes-preserve-unknown-fields", "Invalid value: false: must be true or undefined")],
    ),
    "unique-items": (
        {"type": "array", "items": TEXT, "uniqueItems": True},
        [
            at(
                ".uniqueItems",
                "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
                FORBIDDEN,
            )
        ],
    ),
    "reference": ({"$ref": "#/x"}, [at(".$ref", "Forbidden: $ref is not supported", FORBIDDEN)]),
    "items-list": (
        {"type": "array", "items": [TEXT]},
        [at(".items", "Forbidden: items must be a schema object and not an array", FORBIDDEN)],
    ),
    "embedded-without-properties": (
        {"type": "object", "x-kubernetes-embedded-resource": True},
        [
            at(
                ".properties",
                "Required value: must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields",
                MISSING,
            )
        ],
    ),
    "embedded-kind": (
        {**object_of(kind=NUMBER, metadata=TEXT), "x-kubernetes-embedded-resource": True},
        [
            at(".properties[kind].type", 'Invalid value: "integer": must be string'),
            at(".properties[metadata].type", 'Invalid value: "string": must be object'),
        ],
    ),
    "list-type": (
        {"type": "array", "items": TEXT, "x-kubernetes-list-type": "foo"},
        [
            at(
                ".x-kubernetes-list-type",
                'Unsupported value: "foo": supported values: "atomic", "set", "map"',
                UNSUPPORTED,
            )
        ],
    ),
    "list-type-of-text": (
        {"type": "string", "x-kubernetes-list-type": "set"},
        [at(".type", 'Invalid value: "string": must be array if x-kubernetes-list-type is specified')],
    ),
    "keyed-without-keys": (
        {"type": "array", "items": object_of(), "x-kubernetes-list-type": "map"},
        [
            at(
                ".x-kubernetes-list-map-keys",
                "Required value: must not be empty if x-kubernetes-list-type is map",
                MISSING,
            )
        ],
    ),
    "keyed-of-texts": (
        {**KEYED, "items": TEXT},
        [
            at(
                ".items.type",
                'Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type is map',
            )
        ],
    ),
    "keyed-by-unknown": (
        {**KEYED, "items": object_of(b=TEXT)},
        [
            at(
                ".x-kubernetes-list-map-keys",
                'Invalid value: []string{"a"}: entries must all be names of item properties',
            )
        ],
    ),
    "keyed-by-optional": (
        {**KEYED, "items": object_of(a=TEXT)},
        [
            at(
                ".items.properties[a].default",
                "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a "
                "required property",
                MISSING,
            )
        ],
    ),
    "keyed-by-object": (
        {**KEYED, "items": {**object_of(a={"type": "object"}), "required": ["a"]}},
        [
            at(
                ".items.properties[a].type",
                'Invalid value: "object": must be a scalar type if parent array\'s x-kubernetes-list-type is map',
            )
        ],
    ),
    "keys-of-a-set": (
        {
            "type": "array",
            "items": TEXT,
            "x-kubernetes-list-type": "set",
            "x-kubernetes-list-map-keys": ["a"],
        },
        [
            at(
                ".x-kubernetes-list-type",
                'Invalid value: "set": must be map if x-kubernetes-list-map-keys is non-empty',
            )
        ],
    ),
    "set-of-objects": (
        {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"},
        [
            at(
                ".items.x-kubernetes-map-type",
                'Invalid value: "null": must be atomic as item of a list with x-kubernetes-list-type=set',
            )
        ],
    ),
    "map-type": (
        {"type": "object", "x-kubernetes-map-type": "foo"},
        [
            at(
                ".x-kubernetes-map-type",
                'Unsupported value: "foo": supported values: "atomic", "granular"',
                UNSUPPORTED,
            )
        ],
    ),
    "several": (
        object_of(a={}, b={"type": "array"}, c={"type": "strung"}),
        [
            at(".properties[c].type", f'Unsupported value: "strung": supported values: {TYPES}', UNSUPPORTED),
            at(
                ".properties[a].type",
                "Required value: must not be empty for specified object fields",
                MISSING,
            ),
            at(".properties[b].items", "Required value: must be specified", MISSING),
        ],
    ),
}


@pytest.mark.parametrize("name", FIELDS)
def test_schema(k: Case, name: str) -> None:
    schema, expected = FIELDS[name]
    body = definition(GROUP, "Refused", object_of(spec=object_of(x=schema)))
    answer = k.post(DEFINITIONS, body)
    if k.server.version != "1.20":
        expected = RESULTS.get(f"definitions/{name}", {}).get(k.server.version, expected)
    refused(answer, "CustomResourceDefinition", f"refuseds.{GROUP}", expected, "apiextensions.k8s.io")
    assert k.get(f"{DEFINITIONS}/refuseds.{GROUP}").code == 404


ROOTS: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "no-type": (
        {"properties": {"spec": {"type": "object"}}},
        [cause(f"{ROOT}.type", "Required value: must not be empty at the root", MISSING)],
    ),
    "text": (
        {"type": "string"},
        [cause(f"{ROOT}.type", 'Invalid value: "string": must be object at the root')],
    ),
    "nullable": (
        {"type": "object", "nullable": True},
        [cause(f"{ROOT}.nullable", "Forbidden: nullable cannot be true at the root", FORBIDDEN)],
    ),
    "metadata": (
        object_of(metadata=object_of(labels={"type": "object"})),
        [
            cause(
                f"{ROOT}.properties[metadata]",
                "Forbidden: must not specify anything other than name and generateName, but metadata is implicitly "
                "specified",
                FORBIDDEN,
            )
        ],
    ),
    "metadata-default": (
        object_of(metadata=object_of(name={"type": "string", "default": "x"})),
        [
            cause(
                f"{ROOT}.properties[metadata].properties[name].default",
                "Forbidden: must not be set in top-level metadata",
                FORBIDDEN,
            )
        ],
    ),
    "api-version": (
        object_of(apiVersion=NUMBER),
        [cause(f"{ROOT}.properties[apiVersion].type", 'Invalid value: "integer": must be string')],
    ),
    "empty": ({}, [cause(f"{ROOT}.type", "Required value: must not be empty at the root", MISSING)]),
}


@pytest.mark.parametrize("name", ROOTS)
def test_root(k: Case, name: str) -> None:
    schema, expected = ROOTS[name]
    answer = k.post(DEFINITIONS, definition(GROUP, "Refused", schema, status=False))
    refused(answer, "CustomResourceDefinition", f"refuseds.{GROUP}", expected, "apiextensions.k8s.io")


def test_root_type_with_status(k: Case) -> None:
    answer = k.post(DEFINITIONS, definition(GROUP, "Refused", {"type": "string"}))
    text = (
        'Invalid value: "string": only "object" is allowed as the type at the root of the schema if the status '
        "subresource is enabled"
    )
    causes = [
        cause(f"{ROOT}.type", text),
        cause(f"{ROOT}.type", 'Invalid value: "string": must be object at the root'),
    ]
    refused(answer, "CustomResourceDefinition", f"refuseds.{GROUP}", causes, "apiextensions.k8s.io")


def changed(**spec: Any) -> dict[str, Any]:
    body = definition(GROUP, "Refused", object_of(spec={"type": "object"}))
    body["spec"].update(spec)
    return body


def test_no_schema(k: Case) -> None:
    body = definition(GROUP, "Refused", {})
    del body["spec"]["versions"][0]["schema"]
    answer = k.post(DEFINITIONS, body)
    text = "Required value: schemas are required"
    causes = [cause("spec.versions[0].schema.openAPIV3Schema", text, MISSING)]
    refused(answer, "CustomResourceDefinition", f"refuseds.{GROUP}", causes, "apiextensions.k8s.io")


def with_name(name: str) -> dict[str, Any]:
    body = changed()
    body["metadata"]["name"] = name
    return body


def with_names(**names: Any) -> dict[str, Any]:
    body = changed()
    body["spec"]["names"].update(names)
    return body


def with_version(**version: Any) -> dict[str, Any]:
    body = changed()
    body["spec"]["versions"][0].update(version)
    return body


BODIES: dict[str, tuple[dict[str, Any], str, list[dict[str, str]]]] = {
    "name": (
        with_name(f"foos.{GROUP}"),
        f"foos.{GROUP}",
        [
            cause(
                "metadata.name",
                f'Invalid value: "foos.{GROUP}": must be spec.names.plural+"."+spec.group',
            )
        ],
    ),
    "scope": (
        changed(scope="Foo"),
        f"refuseds.{GROUP}",
        [
            cause(
                "spec.scope",
                'Unsupported value: "Foo": supported values: "Cluster", "Namespaced"',
                UNSUPPORTED,
            )
        ],
    ),
    "no-scope": (changed(scope=""), f"refuseds.{GROUP}", [cause("spec.scope", "Required value", MISSING)]),
    "preserve": (
        changed(preserveUnknownFields=True),
        f"refuseds.{GROUP}",
        [
            cause(
                "spec.preserveUnknownFields",
                "Invalid value: true: cannot set to true, set x-preserve-unknown-fields to true in "
                "spec.versions[*].schema instead",
            )
        ],
    ),
    "list-kind": (
        with_names(listKind="Refused"),
        f"refuseds.{GROUP}",
        [cause("spec.names.listKind", 'Invalid value: "Refused": kind and listKind may not be the same')],
    ),
    "short-name": (
        with_names(shortNames=["A_"]),
        f"refuseds.{GROUP}",
        [cause("spec.names.shortNames[0]", f'Invalid value: "A_": {LABEL}')],
    ),
    "kind": (
        with_names(kind="te_st"),
        f"refuseds.{GROUP}",
        [
            cause(
                "spec.names.kind",
                f'Invalid value: "te_st": may have mixed case, but should otherwise match: {LABEL}',
            )
        ],
    ),
    "columns": (
        with_version(
            additionalPrinterColumns=[
                {"name": "a", "type": "strng", "jsonPath": "spec.x"},
                {"name": "b", "type": "string"},
            ]
        ),
        f"refuseds.{GROUP}",
        [
            cause(
                "spec.additionalPrinterColumns[0].type",
                'Invalid value: "strng": must be one of boolean,date,integer,number,string',
            ),
            cause(
                "spec.additionalPrinterColumns[0].JSONPath",
                'Invalid value: "spec.x": must be a simple json path starting with .',
            ),
            cause("spec.additionalPrinterColumns[1].JSONPath", "Required value", MISSING),
        ],
    ),
    "scale": (
        with_version(subresources={"scale": {"specReplicasPath": ".foo", "statusReplicasPath": ".status.x"}}),
        f"refuseds.{GROUP}",
        [
            cause(
                "spec.subresources.scale.specReplicasPath",
                'Invalid value: ".foo": should be a json path under .spec',
            )
        ],
    ),
    "conversion": (
        changed(conversion={"strategy": "Foo"}),
        f"refuseds.{GROUP}",
        [
            cause(
                "spec.conversion.strategy",
                'Unsupported value: "Foo": supported values: "None", "Webhook"',
                UNSUPPORTED,
            )
        ],
    ),
    "webhook-conversion": (
        changed(conversion={"strategy": "Webhook"}),
        f"refuseds.{GROUP}",
        [
            cause(
                "spec.conversion.webhookClientConfig",
                "Required value: required when strategy is set to Webhook",
                MISSING,
            ),
            cause("spec.conversion.conversionReviewVersions", "Required value", MISSING),
        ],
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_definition(k: Case, name: str) -> None:
    body, object_name, expected = BODIES[name]
    refused(
        k.post(DEFINITIONS, body), "CustomResourceDefinition", object_name, expected, "apiextensions.k8s.io"
    )


def test_protected_group(k: Case) -> None:
    group = "refused.k8s.io"
    answer = k.post(DEFINITIONS, definition(group, "Refused", object_of()))
    text = (
        'Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see '
        "https://github.com/kubernetes/enhancements/pull/1111"
    )
    causes = [cause("metadata.annotations[api-approved.kubernetes.io]", text, MISSING)]
    refused(answer, "CustomResourceDefinition", f"refuseds.{group}", causes, "apiextensions.k8s.io")


def conditions(body: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in body["status"]["conditions"] or ()
    }


def established(k: Case, body: dict[str, Any]) -> dict[str, Any]:
    path = f"{DEFINITIONS}/{body['metadata']['name']}"

    def check() -> dict[str, Any] | None:
        found = k.peek(path).body
        return found if conditions(found).get("Established", ("",))[0] == "True" else None

    found: dict[str, Any] = k.eventually(check, "the definition to be established")
    return found


def unique(k: Case) -> str:
    """A group that no other case uses."""
    return f"{k.namespace}.example.com"


def test_established(k: Case) -> None:
    body = definition(unique(k), "Thing", object_of(spec=object_of(a=TEXT)))
    del body["spec"]["names"]["singular"], body["spec"]["names"]["listKind"]
    created = k.post(DEFINITIONS, body, record=False)
    assert created.code == 201
    assert created.body["spec"]["names"] == {
        "plural": "things",
        "singular": "thing",
        "kind": "Thing",
        "listKind": "ThingList",
    }
    assert created.body["spec"]["conversion"] == {"strategy": "None"}
    found = established(k, body)
    assert conditions(found) == {
        "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
        "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
    }
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["status"]["acceptedNames"] == created.body["spec"]["names"]
    k.delete(f"{DEFINITIONS}/{body['metadata']['name']}", record=False)


def test_served_after_a_while(k: Case) -> None:
    group = unique(k)
    body = definition(group, "Thing", object_of(spec=object_of(a=TEXT)))
    k.post(DEFINITIONS, body, record=False)
    k.eventually(lambda: k.peek(k.path(f"things.{group}")).code == 200, "the resource to be served")
    # The real server describes a resource in a step of its own.
    k.eventually(lambda: k.peek(f"/apis/{group}/v1").code == 200, "the resource to be described")
    answer = k.get(f"/apis/{group}/v1")
    assert answer.code == 200
    assert [each["name"] for each in answer.body["resources"]] == ["things", "things/status"]
    k.delete(f"{DEFINITIONS}/{body['metadata']['name']}", record=False)


def test_deletion_deletes_the_objects(k: Case) -> None:
    group = unique(k)
    body = definition(group, "Thing", object_of(spec=object_of(a=TEXT)))
    k.post(DEFINITIONS, body, record=False)
    path = k.path(f"things.{group}")
    k.eventually(lambda: k.peek(path).code == 200, "the resource to be served")
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a"}}
    k.eventually(
        lambda: k.call("POST", path, thing, record=False).code in (201, 409), "the object to be created"
    )
    definition_path = f"{DEFINITIONS}/{body['metadata']['name']}"
    deleted = k.delete(definition_path, record=False)
    assert deleted.code == 200
    k.eventually(lambda: k.peek(definition_path).code == 404, "the definition to be gone")
    k.eventually(lambda: k.peek(path).code == 404, "the resource to be gone")


def test_update_of_the_schema(k: Case) -> None:
    group = unique(k)
    body = definition(group, "Thing", object_of(spec=object_of(a=TEXT)))
    k.post(DEFINITIONS, body, record=False)
    established(k, body)
    path = f"{DEFINITIONS}/{body['metadata']['name']}"
    current = k.peek(path).body
    broken = copy.deepcopy(current)
    broken["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "string"}
    answer = k.put(path, broken, record=False)
    assert answer.code == 422
    text = 'Invalid value: "string": must be object at the root'
    assert cause(f"{ROOT}.type", text) in answer.causes
    better = copy.deepcopy(current)
    properties = better["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"]["properties"]["b"] = {"type": "string", "default": "new"}
    assert k.put(path, better, record=False).code == 200
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {}}

    def check() -> bool:
        made = k.call("POST", k.path(f"things.{group}") + "?dryRun=All", thing, record=False)
        return made.code == 201 and made.body["spec"] == {"b": "new"}

    k.eventually(check, "the new schema to be used")
    k.delete(path, record=False)


def test_default_is_seen_on_read(k: Case) -> None:
    group = unique(k)
    body = definition(group, "Thing", object_of(spec=object_of(a=TEXT)))
    k.post(DEFINITIONS, body, record=False)
    things = k.path(f"things.{group}")
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {}}
    k.eventually(
        lambda: k.call("POST", things, thing, record=False).code in (201, 409), "the object to be created"
    )
    path = f"{DEFINITIONS}/{body['metadata']['name']}"

    def change() -> bool:
        better = k.peek(path).body
        properties = better["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        properties["spec"]["properties"]["b"] = {"type": "string", "default": "new"}
        return k.call("PUT", path, better, record=False).code == 200

    k.eventually(change, "the definition to be changed")
    k.eventually(lambda: k.peek(f"{things}/a").body.get("spec") == {"b": "new"}, "the default to be seen")
    k.delete(path, record=False)


def test_versions(k: Case) -> None:
    group = unique(k)
    body = definition(group, "Thing", object_of(spec=object_of(a=TEXT)))
    second = copy.deepcopy(body["spec"]["versions"][0]) | {"name": "v1beta1", "storage": False}
    third = copy.deepcopy(body["spec"]["versions"][0]) | {"name": "v2", "storage": False, "served": False}
    body["spec"]["versions"] += [second, third]
    k.post(DEFINITIONS, body, record=False)
    k.eventually(lambda: k.peek(k.path(f"things.{group}")).code == 200, "the resource to be served")
    thing = {"apiVersion": f"{group}/v1beta1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": "x"}}
    old = k.path(f"things.{group}/v1beta1")
    k.eventually(
        lambda: k.call("POST", old, thing, record=False).code in (201, 409), "the object to be created"
    )
    assert k.get(f"{old}/a").body["apiVersion"] == f"{group}/v1beta1"
    assert k.get(k.path(f"things.{group}", "a")).body["apiVersion"] == f"{group}/v1"
    assert k.get(k.path(f"things.{group}/v2", "a")).code == 404
    k.eventually(lambda: k.peek(f"/apis/{group}").code == 200, "the group to be described")
    answer = k.get(f"/apis/{group}")
    assert [each["version"] for each in answer.body["versions"]] == ["v1", "v1beta1"]
    assert answer.body["preferredVersion"]["version"] == "v1"
    k.delete(f"{DEFINITIONS}/{body['metadata']['name']}", record=False)
