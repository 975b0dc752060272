"""The workload object that state, inputs and backups belong to, by its identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from captf_runtime.objects import OwnerReference, kind_name_of, name_of, namespace_of, uid_of

from .kinds import API_VERSION, GROUP, KindShort, Role, kind_short, role_of
from .names import state_suffix


@dataclass(frozen=True, slots=True)
class Owner:
    """Identity of a TerraformCluster, TerraformMachine or TerraformMachinePool."""

    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Owner:
        """Return the identity of an object that a server has stored.

        Raises:
            ValueError: the object is of a kind that owns nothing of this, or lacks name, namespace or uid.
        """
        owner = cls(kind_name_of(obj), namespace_of(obj), name_of(obj), uid_of(obj))
        kind_short(owner.kind)
        for field, value in (("namespace", owner.namespace), ("name", owner.name), ("uid", owner.uid)):
            if not value:
                raise ValueError(f"{owner.kind} lacks metadata.{field}: read it from the server")
        return owner

    @property
    def suffix(self) -> str:
        """The state suffix."""
        return state_suffix(self.namespace, self.kind, self.name)

    @property
    def short(self) -> KindShort:
        """The kind's short code."""
        return kind_short(self.kind)

    @property
    def role(self) -> Role:
        """The module role."""
        return role_of(self.kind)

    def reference(self) -> OwnerReference:
        """Return the reference that Secrets carry: it neither controls nor delays the deletion."""
        return OwnerReference(api_version=API_VERSION, kind=self.kind, name=self.name, uid=self.uid)

    def is_named_by(self, reference: OwnerReference) -> bool:
        """Say whether a reference names this object, under whatever uid."""
        return reference.group == GROUP and reference.kind == self.kind and reference.name == self.name
