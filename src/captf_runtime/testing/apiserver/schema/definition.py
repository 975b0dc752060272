"""CustomResourceDefinition objects as a whole: defaulting and validation (`apiextensions.k8s.io/v1`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from captf_runtime.testing.apiserver.schema.causes import (
    Cause,
    Verbatim,
    go_quote,
    go_scalar,
    invalid,
    not_supported,
    required,
)
from captf_runtime.testing.apiserver.schema.compiled import DNS1035_TEXT, CompiledSchema, Mode
from captf_runtime.testing.apiserver.schema.json_values import same_json

Crd = dict[str, Any]

_DNS1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_MIXED_CASE = "may have mixed case, but should otherwise match: "
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_PROTECTED_GROUP = re.compile(r"(^|.*\.)(k8s\.io|kubernetes\.io)")
_APPROVAL = "api-approved.kubernetes.io"


def default_crd(crd: Crd) -> None:
    """Fill in what a definition leaves out, in place: singular and list kind, conversion, stored versions."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind")
    if kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    status = crd.setdefault("status", {})
    if not status.get("storedVersions"):
        status["storedVersions"] = [
            version["name"]
            for version in spec.get("versions") or ()
            if version.get("storage") and "name" in version
        ]


def validate_crd(crd: Crd, old: Crd | None = None, *, mode: Mode = "modern") -> list[Cause]:
    """Judge a definition after defaulting.

    Args:
        crd: the new definition.
        old: the stored one on an update, whose scope, group and names of resource and kind are then fixed.
        mode: whose texts and features to follow.
    """
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    group, plural = str(spec.get("group") or ""), str(names.get("plural") or "")
    causes: list[Cause] = []
    name = str((crd.get("metadata") or {}).get("name") or "")
    if name != f"{plural}.{group}":
        causes.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    causes += _group(crd, group)
    scope = spec.get("scope") or ""
    if not scope:
        causes.append(required("spec.scope"))
    elif scope not in ("Cluster", "Namespaced"):
        causes.append(not_supported("spec.scope", scope, ("Cluster", "Namespaced")))
    if spec.get("preserveUnknownFields") is True:
        text = "cannot set to true, set x-preserve-unknown-fields to true in spec.versions[*].schema instead"
        causes.append(invalid("spec.preserveUnknownFields", True, text))
    causes += _versions(spec, mode)
    causes += _names(names)
    causes += _conversion(spec.get("conversion") or {})
    causes += _stored_versions(crd)
    if old is not None:
        causes += _immutable(spec, old.get("spec") or {}, old)
    return causes


def _group(crd: Crd, group: str) -> Iterator[Cause]:
    if not group:
        yield required("spec.group")
        return
    if _SUBDOMAIN.fullmatch(group) is None:
        yield invalid("spec.group", group, _SUBDOMAIN_TEXT)
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    annotations = (crd.get("metadata") or {}).get("annotations") or {}
    if _PROTECTED_GROUP.fullmatch(group) and not annotations.get(_APPROVAL):
        text = (
            f'protected groups must have approval annotation "{_APPROVAL}", '
            "see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield required(f"metadata.annotations[{_APPROVAL}]", text)


def _versions(spec: Mapping[str, Any], mode: Mode) -> Iterator[Cause]:
    versions = list(spec.get("versions") or ())
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    # A schema that all versions share is reported once, under the name it has inside the server.
    shared = len(schemas) > 0 and all(
        schema is not None and same_json(schema, schemas[0]) for schema in schemas
    )
    columns = [version.get("additionalPrinterColumns") for version in versions]
    shared_columns = len(columns) > 0 and all(same_json(column, columns[0]) for column in columns)
    subresources = [version.get("subresources") for version in versions]
    shared_subresources = len(subresources) > 0 and all(
        same_json(entry, subresources[0]) for entry in subresources
    )
    for index, (version, schema) in enumerate(zip(versions, schemas, strict=True)):
        path = f"spec.versions[{index}]"
        name = str(version.get("name") or "")
        if _DNS1035.fullmatch(name) is None:
            yield invalid(f"{path}.name", name, DNS1035_TEXT)
            if index == 0:
                yield invalid("spec.version", name, DNS1035_TEXT)
        if schema is None:
            yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
        elif not shared:
            yield from CompiledSchema(schema, mode=mode).structural_errors(f"{path}.schema.openAPIV3Schema")
        if not shared_columns:
            yield from _columns(columns[index], f"{path}.additionalPrinterColumns")
        if not shared_subresources:
            yield from _scale(subresources[index], f"{path}.subresources")
    if len({version.get("name") for version in versions}) != len(versions):
        yield invalid("spec.versions", _printed_versions(versions), "must contain unique version names")
    if sum(version.get("storage") is True for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield invalid("spec.versions", _printed_versions(versions), text)
    if shared and schemas[0] is not None:
        kind = schemas[0].get("type") or ""
        has_status = shared_subresources and "status" in (subresources[0] or {})
        if has_status and kind != "object":
            text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            yield invalid("spec.validation.openAPIV3Schema.type", kind, text)
        yield from CompiledSchema(schemas[0], mode=mode).structural_errors("spec.validation.openAPIV3Schema")
    if shared_columns:
        yield from _columns(columns[0], "spec.additionalPrinterColumns")
    if shared_subresources:
        yield from _scale(subresources[0], "spec.subresources")


def _printed_versions(versions: list[Mapping[str, Any]]) -> Verbatim:
    """The versions as the server prints its own structs, in which what all versions share is missing."""
    printed = ", ".join(
        f"apiextensions.CustomResourceDefinitionVersion{{Name:{go_quote(str(version.get('name') or ''))}, "
        f"Served:{go_scalar(bool(version.get('served')))}, "
        f"Storage:{go_scalar(bool(version.get('storage')))}, "
        "Deprecated:false, DeprecationWarning:(*string)(nil), "
        "Schema:(*apiextensions.CustomResourceValidation)(nil), "
        "Subresources:(*apiextensions.CustomResourceSubresources)(nil), "
        "AdditionalPrinterColumns:[]apiextensions.CustomResourceColumnDefinition(nil)}"
        for version in versions
    )
    return Verbatim(f"[]apiextensions.CustomResourceDefinitionVersion{{{printed}}}")


def _columns(columns: Any, path: str) -> Iterator[Cause]:
    for index, column in enumerate(columns or ()):
        here = f"{path}[{index}]"
        if not column.get("name"):
            yield required(f"{here}.name")
        if not column.get("type"):
            yield required(f"{here}.type", "must be one of " + ",".join(_COLUMN_TYPES))
        elif column["type"] not in _COLUMN_TYPES:
            yield invalid(f"{here}.type", column["type"], "must be one of " + ",".join(_COLUMN_TYPES))
        if column.get("format") and column["format"] not in _COLUMN_FORMATS:
            yield invalid(f"{here}.format", column["format"], "must be one of " + ",".join(_COLUMN_FORMATS))
        if not column.get("jsonPath"):
            yield required(f"{here}.JSONPath")
        elif not column["jsonPath"].startswith("."):
            yield invalid(
                f"{here}.JSONPath", column["jsonPath"], "must be a simple json path starting with ."
            )


def _scale(subresources: Any, path: str) -> Iterator[Cause]:
    scale = (subresources or {}).get("scale")
    if scale is None:
        return
    for name, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value = scale.get(name) or ""
        if not value:
            yield required(f"{path}.scale.{name}")
        elif not value.startswith("."):
            yield invalid(f"{path}.scale.{name}", value, "must be a simple json path starting with .")
        elif not value.startswith(root):
            yield invalid(f"{path}.scale.{name}", value, f"should be a json path under {root.rstrip('.')}")
    selector = scale.get("labelSelectorPath")
    if selector and not selector.startswith("."):
        text = "must be a simple json path starting with ."
        yield invalid(f"{path}.scale.labelSelectorPath", selector, text)


def _names(names: Mapping[str, Any]) -> Iterator[Cause]:
    for key, mixed in (("plural", False), ("singular", False), ("kind", True), ("listKind", True)):
        value = str(names.get(key) or "")
        if not value:
            yield required(f"spec.names.{key}")
        elif _DNS1035.fullmatch(value.lower() if mixed else value) is None:
            yield invalid(f"spec.names.{key}", value, (_MIXED_CASE if mixed else "") + DNS1035_TEXT)
    for key in ("shortNames", "categories"):
        for index, value in enumerate(names.get(key) or ()):
            if _DNS1035.fullmatch(value) is None:
                yield invalid(f"spec.names.{key}[{index}]", value, DNS1035_TEXT)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _conversion(conversion: Mapping[str, Any]) -> Iterator[Cause]:
    strategy = conversion.get("strategy") or ""
    if not strategy:
        yield required("spec.conversion.strategy")
    elif strategy not in ("None", "Webhook"):
        yield not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    elif strategy == "Webhook":
        webhook = conversion.get("webhook") or {}
        if not webhook.get("clientConfig"):
            yield required("spec.conversion.webhookClientConfig", "required when strategy is set to Webhook")
        if not webhook.get("conversionReviewVersions"):
            yield required("spec.conversion.conversionReviewVersions")


def _stored_versions(crd: Crd) -> Iterator[Cause]:
    stored = list((crd.get("status") or {}).get("storedVersions") or ())
    if not stored:
        yield invalid(
            "status.storedVersions", Verbatim("[]string(nil)"), "must have at least one stored version"
        )
        return
    known = {version.get("name") for version in (crd.get("spec") or {}).get("versions") or ()}
    for index, name in enumerate(stored):
        if name not in known:
            yield invalid(f"status.storedVersions[{index}]", name, "must appear in spec.versions")


def _immutable(spec: Mapping[str, Any], before: Mapping[str, Any], old: Crd) -> Iterator[Cause]:
    """Once its names have been accepted, what identifies the resource cannot change."""
    conditions = (old.get("status") or {}).get("conditions") or ()
    established = any(
        entry.get("type") == "Established" and entry.get("status") == "True" for entry in conditions
    )
    if spec.get("group") != before.get("group"):
        yield invalid("spec.group", spec.get("group"), "field is immutable")
    names, names_before = spec.get("names") or {}, before.get("names") or {}
    if names.get("plural") != names_before.get("plural"):
        yield invalid("spec.names.plural", names.get("plural"), "field is immutable")
    if not established:
        return
    if spec.get("scope") != before.get("scope"):
        yield invalid("spec.scope", spec.get("scope"), "field is immutable")
    if names.get("kind") != names_before.get("kind"):
        yield invalid("spec.names.kind", names.get("kind"), "field is immutable")
