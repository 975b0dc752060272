"""What an informer covers."""

from __future__ import annotations

from dataclasses import dataclass

from captf_runtime.cache.stored import Form
from captf_runtime.objects import Kind


@dataclass(frozen=True, slots=True)
class Scope:
    """A kind, where and which of it, and in which form.

    Args:
        namespace: "" for all namespaces.
        label_selector, field_selector: as in the API; "" for everything.
        metadata_only: fetch and keep nothing but metadata.
    """

    kind: Kind
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    metadata_only: bool = False

    @property
    def form(self) -> Form:
        """The form of the objects."""
        return Form(self.kind, self.metadata_only)

    def __str__(self) -> str:
        parts = [self.kind.resource]
        if self.namespace:
            parts.append(f"in namespace {self.namespace}")
        if self.label_selector:
            parts.append(f"with labels {self.label_selector}")
        if self.field_selector:
            parts.append(f"with fields {self.field_selector}")
        if self.metadata_only:
            parts.append("(metadata only)")
        return " ".join(parts)
