"""The strategy of a kind: what its writes prepare, default and validate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import names
from captf_runtime.testing.apiserver.status import Cause, invalid_value

Mode = Literal["modern", "1.20"]


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What a strategy may know about a write: the server's mode, the time, and the user's name."""

    mode: Mode
    now: datetime
    user: str = ""


class Strategy:
    """Rules of one kind. This base fits kinds without any of their own, such as RBAC roles.

    The order on a write is: `decode` (type errors, 400), `prepare_*`, `default`, `validate_name` and `validate`,
    then `validate_update` on changes. Methods change the object they are given and never keep it.
    """

    serial = 0
    """Tells strategies of the same resource apart: a changed definition brings another number."""
    unconditional_update = True
    """Whether a PUT may leave out metadata.resourceVersion."""
    create_on_update = False
    """Whether a PUT of an absent object creates it."""
    generation_modes: tuple[Mode, ...] = ()
    """The modes in which metadata.generation counts the changes outside metadata and status."""
    default_propagation: str = "Background"
    """What a delete without a propagation policy does to dependents."""

    def decode(self, obj: Object) -> None:
        """Raise a 400 `ApiStatus` for values that the kind's types cannot hold; drop unknown fields."""

    def prepare_create(self, obj: Object, context: WriteContext) -> None:
        """Set what only the server sets, before defaults."""

    def prepare_update(self, obj: Object, old: Object, context: WriteContext) -> None:
        """Carry over what an update may not change silently."""

    def default(self, obj: Object, context: WriteContext) -> None:
        """Fill in default values."""

    def validate_name(self, name: str) -> list[str]:
        """Problems of the object's name."""
        return names.subdomain(name)

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        """Errors of the object by itself."""
        return []

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        """Errors of the change from `old`."""
        return []

    def validate_status(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        """Errors of a change through the status subresource."""
        return []

    def begin_delete(self, obj: Object, now: datetime) -> None:
        """Change the object as its deletion begins, for example by a finalizer of the server's own."""

    def fields(self, obj: Object) -> dict[str, str]:
        """Values that field selectors may name, besides metadata.name and metadata.namespace."""
        return {}

    def field_names(self) -> tuple[str, ...]:
        """The names in `fields`."""
        return ()

    def unknown_field(self, field: str) -> str:
        """The text for a field that cannot be selected by."""
        known = ", ".join(
            f'"{name}"' for name in ("metadata.name", "metadata.namespace", *self.field_names())
        )
        return f'"{field}" is not a known field selector: only {known}'

    def view(self, obj: Object) -> Object:
        """The stored object in the form of this resource's version; may return `obj` itself."""
        return obj

    def store(self, obj: Object) -> Object:
        """The inverse of `view`: the form that is stored."""
        return obj


def text_map(obj: Object, field: str) -> Mapping[str, str]:
    """A map of strings inside an object, empty when absent or null."""
    found = obj.get(field)
    return found if isinstance(found, dict) else {}


def immutable(path: str, new: object, old: object) -> list[Cause]:
    """An error when a field that may not change did."""
    return [] if new == old else [invalid_value(path, new, "field is immutable")]
