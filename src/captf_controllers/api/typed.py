"""Conversion between unstructured objects and the typed specs and statuses.

A pass converts once: what it reads into structs, and the status it computed back into an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from captf_runtime.objects import Object, key_of, kind_name_of

from .cluster import TerraformClusterSpec, TerraformClusterStatus
from .identity import TerraformClusterIdentitySpec, TerraformClusterIdentityStatus
from .machine import TerraformMachineSpec, TerraformMachineStatus
from .machinepool import TerraformMachinePoolSpec, TerraformMachinePoolStatus
from .plan import TerraformPlanSpec, TerraformPlanStatus
from .schema import Wire
from .templates import (
    TerraformClusterTemplateSpec,
    TerraformMachinePoolTemplateSpec,
    TerraformMachineTemplateSpec,
    TerraformMachineTemplateStatus,
)

T = TypeVar("T", bound=Wire)

SPEC_TYPES: Mapping[str, type[Wire]] = {
    "TerraformCluster": TerraformClusterSpec,
    "TerraformMachine": TerraformMachineSpec,
    "TerraformMachinePool": TerraformMachinePoolSpec,
    "TerraformClusterTemplate": TerraformClusterTemplateSpec,
    "TerraformMachineTemplate": TerraformMachineTemplateSpec,
    "TerraformMachinePoolTemplate": TerraformMachinePoolTemplateSpec,
    "TerraformClusterIdentity": TerraformClusterIdentitySpec,
    "TerraformPlan": TerraformPlanSpec,
}
"""Type of `spec` by kind."""

STATUS_TYPES: Mapping[str, type[Wire] | None] = {
    "TerraformCluster": TerraformClusterStatus,
    "TerraformMachine": TerraformMachineStatus,
    "TerraformMachinePool": TerraformMachinePoolStatus,
    "TerraformClusterTemplate": None,
    "TerraformMachineTemplate": TerraformMachineTemplateStatus,
    "TerraformMachinePoolTemplate": None,
    "TerraformClusterIdentity": TerraformClusterIdentityStatus,
    "TerraformPlan": TerraformPlanStatus,
}
"""Type of `status` by kind, None for a kind without one."""

_PATH = re.compile(r"`\$([^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_OMITTED_WHEN_EMPTY = frozenset(
    {"activeJob", "lastRun", "source", "initialization", "identityRef", "pendingPlanRef", "conditions"}
)


class ObjectShapeError(ValueError):
    """A stored object does not have the shape of its kind; the message names object and field, no value."""


def spec_of(obj: Mapping[str, Any], spec_type: type[T]) -> T:
    """Convert an object's `spec`.

    Raises:
        ObjectShapeError: a field has another type than the kind declares, or a required one is missing.
    """
    return _convert(obj, "spec", spec_type)


def status_of(obj: Mapping[str, Any], status_type: type[T]) -> T:
    """Convert an object's `status`; an object without one has the empty status.

    Raises:
        ObjectShapeError: a field has another type than the kind declares.
    """
    return _convert(obj, "status", status_type)


def _convert(obj: Mapping[str, Any], part: str, wire_type: type[T]) -> T:
    try:
        return msgspec.convert(obj.get(part) or {}, wire_type)
    except msgspec.ValidationError as error:
        raise ObjectShapeError(f"{kind_name_of(obj)} {key_of(obj)}: {_problem(part, str(error))}") from None


def _problem(part: str, message: str) -> str:
    # The decoder's message may quote the value, so only the path and a field's name are taken from it.
    path = _PATH.search(message)
    where = f"{part}{path.group(1)}" if path else part
    missing = _MISSING.match(message)
    if missing:
        return f"{where} lacks the required field {missing.group(1)}"
    return f"{where} does not have the type that the kind declares"


def to_object(part: Wire) -> Object:
    """Return a spec or status as an unstructured object.

    Unset fields are left out, and so are the sub-objects that the API wants absent when empty.
    """
    # Through JSON, so that lists come out as lists and compare equal to what the API server sends.
    built: Object = msgspec.json.decode(msgspec.json.encode(part))
    for name in _OMITTED_WHEN_EMPTY:
        if name in built and not built[name]:
            del built[name]
    return built
