"""Shapes of the built-in kinds, and the OpenAPI documents made of them."""

from __future__ import annotations

from typing import Any

import pytest

from captf_runtime.testing.apiserver.kinds.catalog import built_in
from captf_runtime.testing.apiserver.openapi import document, group_versions, index
from captf_runtime.testing.apiserver.resources import Registry
from captf_runtime.testing.apiserver.shapes import KINDS, kind_schema
from captf_runtime.testing.apiserver.topology import builtin_topology


@pytest.mark.requirement("AS5")
@pytest.mark.parametrize(("api_version", "kind"), KINDS)
def test_every_kind_has_a_shape(api_version: str, kind: str) -> None:
    schema = kind_schema(api_version, kind)
    assert schema is not None
    assert {"apiVersion", "kind", "metadata"} <= set(schema["properties"])
    assert builtin_topology(api_version, kind).form == "struct"


@pytest.mark.requirement("AS14")
@pytest.mark.parametrize(
    ("path", "form", "keys"),
    [
        (("spec", "template", "spec", "containers"), "keyed", ("name",)),
        (("spec", "template", "spec", "tolerations"), "atomic", ()),
        (("metadata", "ownerReferences"), "keyed", ("uid",)),
        (("metadata", "finalizers"), "set", ()),
        (("metadata", "labels"), "map", ()),
    ],
)
def test_how_lists_merge(path: tuple[str, ...], form: str, keys: tuple[str, ...]) -> None:
    node = builtin_topology("batch/v1", "Job")
    for part in path:
        node = node.fields[part]
    assert (node.form, node.keys) == (form, keys)


@pytest.mark.requirement("AS2")
def test_documents_of_everything_served() -> None:
    registry = Registry(built_in())
    paths = index(registry)["paths"]
    assert len(paths) == len(group_versions(registry))
    for group, version in group_versions(registry):
        found = document(registry, group, version)
        assert found is not None
        _references_resolve(found, found["components"]["schemas"])
    assert document(registry, "apps", "v9") is None


def _references_resolve(value: Any, schemas: dict[str, Any]) -> None:
    if isinstance(value, dict):
        if "$ref" in value:
            assert value["$ref"].removeprefix("#/components/schemas/") in schemas
        for item in value.values():
            _references_resolve(item, schemas)
    elif isinstance(value, list):
        for item in value:
            _references_resolve(item, schemas)
