"""The rules of TerraformClusterIdentity. Pure."""

from __future__ import annotations

import re

from captf_controllers.webhooks.policy import invalid, required
from captf_runtime.objects import Object, selector_from
from captf_runtime.webhook import Violation

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def check_identity(new: Object) -> list[Violation]:
    """The structural rules of a create or update."""
    spec = new.get("spec") or {}
    reference = spec.get("secretRef") or {}
    found = [
        required(f"spec.secretRef.{name}", "is required when the type is Secret")
        for name in ("name", "namespace")
        if not reference.get(name)
    ]
    allowed = spec.get("allowedNamespaces")
    if allowed is None:
        return found
    if "list" not in allowed and "selector" not in allowed:
        found.append(
            invalid("spec.allowedNamespaces", "set list or selector; selector: {} allows every namespace")
        )
    for index, name in enumerate(allowed.get("list") or []):
        if not _LABEL.fullmatch(str(name)):
            found.append(invalid(f"spec.allowedNamespaces.list[{index}]", "is not a namespace name"))
    selector = allowed.get("selector")
    if selector is not None and not _parses(selector):
        found.append(invalid("spec.allowedNamespaces.selector", "is not a label selector"))
    return found


def read_check_due(new: Object, old: Object | None) -> bool:
    """Whether the requester must prove that he may read the Secret: on create, and when what is shared changes.

    In either direction: whoever narrows the namespaces also decides about the credentials.
    """
    if old is None:
        return True
    now, before = new.get("spec") or {}, old.get("spec") or {}
    return any(now.get(name) != before.get(name) for name in ("secretRef", "allowedNamespaces"))


def _parses(selector: Object) -> bool:
    try:
        selector_from(selector)
    except (ValueError, TypeError, AttributeError):
        return False
    return True
