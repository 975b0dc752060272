"""Spec and status of a TerraformClusterIdentity."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from captf_runtime.objects import Object

from .schema import DNS_LABEL, DNS_SUBDOMAIN, Wire, core, doc, items, text
from .workspace import Condition

IdentityType: TypeAlias = Literal["Secret"]


class SecretReference(Wire, frozen=True):
    """The Secret that holds the credentials, in any namespace."""

    name: Annotated[str, text("Name of the Secret.", 1, 253, pattern=DNS_SUBDOMAIN)]
    namespace: Annotated[str, text("Namespace of the Secret.", 1, 63, pattern=DNS_LABEL)]


class AllowedNamespaces(Wire, frozen=True):
    """Which namespaces may use the identity."""

    list: Annotated[
        tuple[Annotated[str, text("Name of a namespace.", 1, 63, pattern=DNS_LABEL)], ...] | None,
        items("Names of namespaces.", 1, 100, kind="set"),
    ] = None
    selector: Annotated[
        Object | None, core("Selects namespaces by label; {} selects every one.", "LabelSelector")
    ] = None

    schema_extra: ClassVar[Object] = {
        "x-kubernetes-validations": [
            {
                "rule": "has(self.list) || has(self.selector)",
                "message": "set list or selector; selector: {} allows every namespace",
            }
        ]
    }


class TerraformClusterIdentitySpec(Wire, frozen=True):
    """Credentials, and who may use them."""

    type: Annotated[IdentityType | None, doc("Kind of the credentials; Secret when unset.")] = None
    secret_ref: Annotated[SecretReference | None, doc("The Secret that holds the credentials.")] = None
    required_keys: Annotated[
        tuple[Annotated[str, text("A key.", 1, 253, pattern="^[-._a-zA-Z0-9]+$")], ...] | None,
        items("Keys that the Secret must have.", None, 64, kind="set"),
    ] = None
    allowed_namespaces: Annotated[
        AllowedNamespaces | None,
        doc("Which namespaces may use the identity; none when unset.", minProperties=1),
    ] = None


class TerraformClusterIdentityStatus(Wire, frozen=True):
    """What is observed of an identity."""

    conditions: Annotated[
        tuple[Condition, ...] | None, items("What is observed of the identity.", None, 32, keys=("type",))
    ] = None
    namespaces: Annotated[
        tuple[Annotated[str, text("Name of a namespace.", 1, 63)], ...] | None,
        items("Namespaces that hold a copy of the credentials in use.", None, 1000, kind="set"),
    ] = None
