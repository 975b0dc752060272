"""What a request asks for: its verb, resource and options, read from method, path and query."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver.http_server import HttpRequest
from captf_runtime.testing.apiserver.status import (
    Cause,
    bad_request,
    forbidden_value,
    invalid,
    invalid_value,
    plain_internal,
    required,
    too_long,
    unsupported_value,
)

_VERBS = {
    "POST": "create",
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


def flag(request: HttpRequest, name: str) -> bool:
    """A boolean of the query: present, and neither "false" nor "0"."""
    values = request.parameters(name)
    return bool(values) and values[0] not in ("false", "0")


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The attributes that authorization, admission, faults and the request log see."""

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    parts: tuple[str, ...] = ()
    selected_name: str = ""
    """The name that a field selector of a list or watch fixes: roles with resource names look at it."""


def describe(request: HttpRequest) -> RequestInfo:
    """Split a path such as /apis/<group>/<version>/namespaces/<ns>/<resource>/<name>/<subresource>."""
    verb = _VERBS.get(request.method, request.method.lower())
    # An empty part inside stays: clients write "namespaces//pods" for the pods of all namespaces.
    parts = request.path.strip("/").split("/")
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(request.method.lower(), request.path)
    watching = rest[0] == "watch" and len(rest) > 1
    if watching:
        rest = rest[1:]
    namespace = ""
    # "namespaces/<n>/<subresource>" is about the namespace itself, anything else below it is inside.
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    resource = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if not name:
        if verb == "get":
            watching = watching or flag(request, "watch")
            verb = "watch" if watching else "list"
        elif verb == "delete":
            verb = "deletecollection"
    elif watching:
        verb = "watch"
    selected = ""
    if not name and request.parameter("fieldSelector"):
        found = re.search(r"(?:^|,)metadata\.name==?([^,=!]+)", request.parameter("fieldSelector"))
        selected = found[1] if found else ""
    return RequestInfo(
        verb,
        request.path,
        True,
        group,
        version,
        resource,
        subresource,
        namespace,
        name,
        tuple(rest),
        selected,
    )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of create, update and patch, checked."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: Literal["Ignore", "Warn", "Strict"] = "Ignore"
    force: bool = False


def write_options(
    request: HttpRequest, kind: Literal["CreateOptions", "UpdateOptions", "PatchOptions"], *, modern: bool
) -> WriteOptions:
    """Read and check the query of a write; raises the 422 that names the option."""
    causes = _dry_run_causes(request.parameters("dryRun"))
    manager = request.parameter("fieldManager")
    apply = request.headers.get("content-type", "").startswith("application/apply-patch+")
    force = request.parameter("force")
    if kind == "PatchOptions":
        if apply and not manager:
            causes.append(required("fieldManager", "is required for apply patch"))
        if not apply and force:
            causes.append(forbidden_value("force", "may not be specified for non-apply patch"))
    if len(manager) > 128:
        causes.append(too_long("fieldManager", 128, modern=modern))
    for position, character in enumerate(manager):
        if not character.isprintable():
            detail = f"invalid character U+{ord(character):04X} (at position {position})"
            causes.append(invalid_value("fieldManager", manager, detail))
    validation: Literal["Ignore", "Warn", "Strict"] = "Ignore"
    if modern:
        match request.parameter("fieldValidation"):
            case "":
                validation = "Warn"
            case "Ignore" | "Warn" | "Strict" as chosen:
                validation = chosen
            case other:
                causes.append(unsupported_value("fieldValidation", other, ("Ignore", "Strict", "Warn")))
    if causes:
        raise invalid(kind, "meta.k8s.io", "", causes)
    return WriteOptions(bool(request.parameters("dryRun")), manager, validation, flag(request, "force"))


def _dry_run_causes(values: Sequence[str]) -> list[Cause]:
    if all(value == "All" for value in values):
        return []
    shown = ", ".join(f'"{value}"' for value in values)
    message = f'Unsupported value: []string{{{shown}}}: supported values: "All"'
    return [Cause("FieldValueNotSupported", message, "dryRun")]


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of delete and deletecollection, checked. `grace` is in seconds."""

    dry_run: bool = False
    propagation: Literal["", "Foreground", "Background", "Orphan"] = ""
    uid: str | None = None
    resource_version: str | None = None
    grace: int | None = None


_DELETE_OPTION_TYPES: Mapping[str, type] = {
    "gracePeriodSeconds": int,
    "orphanDependents": bool,
    "propagationPolicy": str,
    "preconditions": dict,
    "dryRun": list,
}


def _check_types(body: Object) -> None:
    """Refuse options of a wrong type, as the real server does: 500 without a reason."""
    values: list[tuple[str, object, type]] = [
        (name, body.get(name), wanted) for name, wanted in _DELETE_OPTION_TYPES.items()
    ]
    preconditions = body.get("preconditions")
    if isinstance(preconditions, dict):
        values += [
            (f"preconditions.{name}", preconditions.get(name), str) for name in ("uid", "resourceVersion")
        ]
    if isinstance(body.get("dryRun"), list):
        values += [("dryRun", value, str) for value in body["dryRun"]]
    for name, value, wanted in values:
        if value is not None and type(value) is not wanted:
            raise plain_internal(f"v1.DeleteOptions: {name}: not of its type")


def delete_options(request: HttpRequest, body: Object | None) -> DeleteOptions:
    """Options from the body, or from the query when there is no body; raises the 422 that names the option."""
    if body:
        _check_types(body)
        dry_run = [str(value) for value in body.get("dryRun") or []]
        propagation = body.get("propagationPolicy")
        orphan = body.get("orphanDependents")
        grace = body.get("gracePeriodSeconds")
        preconditions = body.get("preconditions") or {}
    else:
        dry_run = request.parameters("dryRun")
        propagation = request.parameter("propagationPolicy") or None
        orphan = flag(request, "orphanDependents") if request.parameters("orphanDependents") else None
        text = request.parameter("gracePeriodSeconds")
        if text and not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        grace = int(text) if text else None
        preconditions = {}
    causes: list[Cause] = []
    if propagation is not None and orphan is not None:
        causes.append(
            invalid_value(
                "propagationPolicy",
                propagation,
                "orphanDependents and deletionPropagation cannot be both set",
            )
        )
    elif propagation not in (None, "Foreground", "Background", "Orphan"):
        choices = ("Foreground", "Background", "Orphan", "nil")
        causes.append(unsupported_value("propagationPolicy", propagation, choices))
    causes += _dry_run_causes(dry_run)
    if causes:
        raise invalid("DeleteOptions", "meta.k8s.io", "", causes)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    return DeleteOptions(
        bool(dry_run),
        propagation or "",
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        grace,
    )
