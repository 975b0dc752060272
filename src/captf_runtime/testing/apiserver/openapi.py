"""OpenAPI v3: the index and one document for each group and version.

Clients read from them what the fields of a kind mean (`kubectl explain`), how lists merge (`kubectl
apply`), and which patches and query parameters an endpoint takes. Custom resources appear with the schema
of their definition, built-in kinds with the one in `shapes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver.customresources import CustomResourceStrategy
from captf_runtime.testing.apiserver.http_server import HttpRequest, Response
from captf_runtime.testing.apiserver.resources import Registry, Resource
from captf_runtime.testing.apiserver.shapes import ALWAYS, kind_schema, object_meta

Schema = dict[str, Any]

_MEDIA = "application/json"
_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_GO_PACKAGES = {"": "core", "apps": "apps", "batch": "batch"}
_INT_OR_STRING: Schema = {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
_OPERATIONS = {"get": "read", "put": "replace", "patch": "patch", "delete": "delete", "post": "create"}


class OpenApiPaths:
    """Answers `/openapi/v3` and what lies below it, from what the registry serves at the moment."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __call__(self, path: str, request: HttpRequest) -> Response | None:
        """The answer, or None for a path that is not ours."""
        parts = path.strip("/").split("/")
        if parts[:2] != ["openapi", "v3"]:
            return None
        match parts[2:]:
            case []:
                content: Object | None = index(self._registry)
            case ["api", version]:
                content = document(self._registry, "", version)
            case ["apis", group, version]:
                content = document(self._registry, group, version)
            case _:
                content = None
        if content is None:
            return None
        return Response(200, msgspec.json.encode(content), "application/json")


def group_versions(registry: Registry) -> list[tuple[str, str]]:
    """The groups and versions that have a document."""
    return [(group, version) for group, versions in registry.groups().items() for version in versions]


def index(registry: Registry) -> Object:
    """The content of `/openapi/v3`: the place of each document, with a hash that changes when it does."""
    paths: Object = {}
    for group, version in group_versions(registry):
        path = _path(group, version)
        digest = hashlib.sha256(json.dumps(document(registry, group, version), sort_keys=True).encode())
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest.hexdigest()[:32].upper()}"}
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Object | None:
    """The document of a group and version, or None when it is not served."""
    resources = registry.of_version(group, version)
    if not resources:
        return None
    schemas: dict[str, Schema] = {f"{_META}.ObjectMeta": _published(object_meta())}
    paths: Object = {}
    for resource in resources:
        name = schema_name(resource)
        schemas[name] = _kind(resource)
        schemas[f"{name}List"] = _list(resource, name)
        paths.update(_paths(resource, name))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def schema_name(resource: Resource) -> str:
    """The name of a kind's schema: `io.k8s.api.core.v1.Secret`, or the group backwards for custom
    resources.
    """
    if resource.custom:
        return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    package = _GO_PACKAGES.get(resource.group, resource.group.split(".")[0])
    return f"io.k8s.api.{package}.{resource.version}.{resource.kind}"


def _kind(resource: Resource) -> Schema:
    schema: Schema
    if isinstance(resource.strategy, CustomResourceStrategy):
        declared = resource.strategy.schema
        schema = _published(declared.openapi_schema) if declared is not None else {"type": "object"}
        properties = dict(schema.get("properties") or {})
        properties.setdefault("apiVersion", {"type": "string"})
        properties.setdefault("kind", {"type": "string"})
        properties["metadata"] = _reference(f"{_META}.ObjectMeta")
        schema = {**schema, "properties": properties}
    else:
        known = kind_schema(resource.api_version, resource.kind)
        schema = _published(known) if known is not None else {"type": "object"}
        if "properties" in schema:
            schema["properties"]["metadata"] = _reference(f"{_META}.ObjectMeta")
    schema.setdefault("description", f"{resource.kind} is a kind of {resource.api_version}.")
    schema["x-kubernetes-group-version-kind"] = [_gvk(resource)]
    return schema


def _list(resource: Resource, name: str) -> Schema:
    kind = resource.list_kind or f"{resource.kind}List"
    return {
        "type": "object",
        "description": f"{kind} is a list of {resource.kind}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "items": {"type": "array", "items": _reference(name)},
        },
        "x-kubernetes-group-version-kind": [{**_gvk(resource), "kind": kind}],
    }


def _reference(name: str) -> Schema:
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}}


def _gvk(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _published(schema: Mapping[str, Any]) -> Schema:
    """A schema as documents show it: merge keys by the older keywords too, int-or-string spelled out."""
    hidden = (ALWAYS, "x-kubernetes-validations")
    out: Schema = {key: value for key, value in schema.items() if key not in hidden}
    if out.get("x-kubernetes-int-or-string") is True:
        described = {"description": out["description"]} if "description" in out else {}
        return {**_INT_OR_STRING, "x-kubernetes-int-or-string": True, **described}
    if isinstance(out.get("properties"), Mapping):
        out["properties"] = {name: _published(sub) for name, sub in out["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(out.get(keyword), Mapping):
            out[keyword] = _published(out[keyword])
    if out.get("x-kubernetes-list-type") == "map":
        out["x-kubernetes-patch-strategy"] = "merge"
        out["x-kubernetes-patch-merge-key"] = out["x-kubernetes-list-map-keys"][0]
    elif out.get("x-kubernetes-list-type") == "set":
        out["x-kubernetes-patch-strategy"] = "merge"
    return out


# -- paths -----------------------------------------------------------------------------------------


def _paths(resource: Resource, name: str) -> Object:
    base = f"/{_path(resource.group, resource.version)}"
    scope = f"{base}/namespaces/{{namespace}}" if resource.namespaced else base
    collection = f"{scope}/{resource.plural}"
    one = f"{collection}/{{name}}"
    paths: Object = {collection: _item(resource, name, ("get", "post"), collection)}
    if not resource.virtual:
        paths[one] = _item(resource, name, ("get", "put", "patch", "delete"), one)
        for sub in resource.subresources:
            if sub.name == "status":
                path = f"{one}/status"
                paths[path] = _item(resource, name, ("get", "put", "patch"), path)
    return paths


def _item(resource: Resource, name: str, methods: Sequence[str], path: str) -> Object:
    parameters = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string"}}
        for part in ("name", "namespace")
        if f"{{{part}}}" in path
    ]
    item: Object = {method: _operation(resource, name, method, path) for method in methods}
    if parameters:
        item["parameters"] = parameters
    return item


def _operation(resource: Resource, name: str, method: str, path: str) -> Object:
    verb = "list" if method == "get" and not path.split("/status")[0].endswith("}") else _OPERATIONS[method]
    scope = "Namespaced" if resource.namespaced else ""
    tail = "Status" if path.endswith("/status") else ""
    group = "".join(part.capitalize() for part in (resource.group or "core").split("."))
    operation: Object = {
        "operationId": f"{verb}{group}{resource.version.capitalize()}{scope}{resource.kind}{tail}",
        "tags": [f"{resource.group or 'core'}_{resource.version}"],
        "responses": {"200": {"description": "OK", "content": {_MEDIA: {"schema": _reference(name)}}}},
        "x-kubernetes-action": "list" if verb == "list" else method,
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
    if method in ("post", "put"):
        operation["requestBody"] = {"content": {_MEDIA: {"schema": _reference(name)}}, "required": True}
    elif method == "patch":
        media = _PATCHES if resource.custom else (*_PATCHES, _STRATEGIC)
        operation["requestBody"] = {"content": _bodies(media), "required": True}
    if method in ("post", "put", "patch"):
        names = ["dryRun", "fieldManager", "fieldValidation", *(["force"] if method == "patch" else [])]
        operation["parameters"] = [
            {"name": each, "in": "query", "schema": {"type": "boolean" if each == "force" else "string"}}
            for each in names
        ]
    return operation


def _bodies(media: Iterable[str]) -> Object:
    return {each: {"schema": {"type": "object"}} for each in media}
