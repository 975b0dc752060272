"""Discovery: which groups, versions and resources there are."""

from __future__ import annotations

import base64
import hashlib

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.resources import Registry, Resource

AGGREGATED = "as=APIGroupDiscoveryList"


# The real server lists the verbs of custom resources in an order of its own.
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


def version_info(mode: str) -> Object:
    """The content of /version."""
    number = "v1.32.0" if mode == "modern" else "v1.20.2"
    major, minor = ("1", number.split(".")[1])
    return {
        "major": major,
        "minor": minor,
        "gitVersion": number,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    }


def core_versions(address: str) -> Object:
    """The content of /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def _group(name: str, versions: tuple[str, ...]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(registry: Registry) -> Object:
    """The content of /apis."""
    groups = [_group(name, versions) for name, versions in registry.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Object:
    """The content of /apis/<group>; raises 404."""
    versions = registry.groups().get(name)
    if not name or versions is None:
        raise status.unknown_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _storage_hash(resource: Resource) -> str:
    digest = hashlib.sha256(f"{resource.group}/{resource.version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _entry(resource: Resource) -> Object:
    entry: Object = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs if not resource.custom else _CUSTOM_VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if not resource.virtual:
        entry["storageVersionHash"] = _storage_hash(resource)
    return entry


def resource_list(registry: Registry, group_name: str, version: str) -> Object:
    """The content of /api/v1 or /apis/<group>/<version>; raises 404."""
    found = registry.of_version(group_name, version)
    if not found:
        raise status.unknown_path() if group_name not in registry.groups() else status.unknown_resource()
    entries: list[Object] = []
    for resource in found:
        entries.append(_entry(resource))
        for sub in sorted(resource.subresources, key=lambda sub: sub.name):
            entry: Object = {
                "name": f"{resource.plural}/{sub.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind or resource.kind,
                "verbs": list(sub.verbs),
            }
            if sub.group:
                entry |= {"group": sub.group, "version": sub.version}
            entries.append(entry)
    name = f"{group_name}/{version}" if group_name else version
    head: Object = {"kind": "APIResourceList"}
    if group_name:
        head["apiVersion"] = "v1"
    return {**head, "groupVersion": name, "resources": entries}


def aggregated(registry: Registry, *, core: bool) -> Object:
    """APIGroupDiscoveryList: everything of /api (core) or /apis in one document."""
    items: list[Object] = []
    for name, versions in registry.groups().items():
        if bool(name) == core:
            continue
        listed = [
            {
                "version": version,
                "resources": [_aggregated_entry(r) for r in registry.of_version(name, version)],
                "freshness": "Current",
            }
            for version in versions
        ]
        metadata: Object = {"creationTimestamp": None}
        if name:
            metadata = {"name": name, **metadata}
        items.append({"metadata": metadata, "versions": listed})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_entry(resource: Resource) -> Object:
    def kind(group_name: str, version: str, name: str) -> Object:
        return {"group": group_name, "version": version, "kind": name}

    entry: Object = {
        "resource": resource.plural,
        "responseKind": kind(resource.group, resource.version, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular or resource.kind.lower(),
        "verbs": list(resource.verbs if not resource.custom else _CUSTOM_VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": kind(
                    sub.group or resource.group, sub.version or resource.version, sub.kind or resource.kind
                ),
                "verbs": list(sub.verbs),
            }
            for sub in resource.subresources
        ]
    return entry
