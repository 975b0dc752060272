"""How the typed specs carry what the CRD schema says beyond their Python type.

The limits are for the API server, which enforces them on every write. Reading does not enforce them
again: an object stored under an earlier schema must stay readable, above all to be deleted.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Meta

from captf_runtime.objects import Object

INT32 = {"format": "int32"}
INT64 = {"format": "int64"}

DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def wire_name(field: str) -> str:
    """Return the camelCase name of a field on the wire; the part `id` becomes `ID`, as in `providerID`."""
    first, *rest = field.split("_")
    return first + "".join("ID" if part == "id" else part.capitalize() for part in rest)


class Wire(msgspec.Struct, frozen=True, omit_defaults=True, rename=wire_name):
    """A part of a spec or status: immutable, camelCase on the wire, unset fields left out."""

    schema_extra: ClassVar[Object] = {}
    """Keys added to the object's schema, such as CEL rules."""


def doc(description: str, **schema: Any) -> Meta:
    """Describe a field; `schema` is merged into its schema as it stands."""
    return Meta(description=description, extra_json_schema=schema)


def text(description: str, shortest: int, longest: int, **schema: Any) -> Meta:
    """Describe a string of `shortest` to `longest` characters."""
    return Meta(
        description=description, extra_json_schema={"minLength": shortest, "maxLength": longest, **schema}
    )


def integer(
    description: str, lowest: int | None = None, highest: int | None = None, *, bits: int = 32
) -> Meta:
    """Describe a whole number of `bits` bits between the limits, both included."""
    schema: Object = {"format": f"int{bits}"}
    if lowest is not None:
        schema["minimum"] = lowest
    if highest is not None:
        schema["maximum"] = highest
    return Meta(description=description, extra_json_schema=schema)


def items(
    description: str, fewest: int | None, most: int, *, keys: tuple[str, ...] = (), kind: str = "atomic"
) -> Meta:
    """Describe a list; `keys` make it a map keyed by these fields of its entries.

    Args:
        description: what the list holds.
        fewest: least number of entries, None when an empty list is allowed.
        most: greatest number of entries.
        keys: key fields of a list that is merged by entry.
        kind: `atomic` (replaced as a whole) or `set`, when there are no keys.
    """
    schema: Object = {"maxItems": most, "x-kubernetes-list-type": "map" if keys else kind}
    if fewest is not None:
        schema["minItems"] = fewest
    if keys:
        schema["x-kubernetes-list-map-keys"] = list(keys)
    return Meta(description=description, extra_json_schema=schema)


def core(description: str, name: str) -> Meta:
    """Describe a structure of the Kubernetes core API; it stays an unstructured object in Python."""
    return Meta(description=description, extra={"core": name})


def free_json(description: str, **schema: Any) -> Meta:
    """Describe a value of any JSON shape, kept as it is."""
    return Meta(
        description=description,
        extra={"free": True},
        extra_json_schema={"x-kubernetes-preserve-unknown-fields": True, **schema},
    )
