"""Role, ClusterRole and their bindings."""

from __future__ import annotations

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import names
from captf_runtime.testing.apiserver.kinds.base import Strategy, WriteContext
from captf_runtime.testing.apiserver.schema.causes import Verbatim
from captf_runtime.testing.apiserver.status import (
    Cause,
    invalid_value,
    quote,
    required,
    unsupported_value,
)

GROUP = "rbac.authorization.k8s.io"


class RoleStrategy(Strategy):
    """Roles of both scopes; `namespaced` forbids rules on URLs."""

    create_on_update = True

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def validate_name(self, name: str) -> list[str]:
        return names.path_segment(name)

    def default(self, obj: Object, context: WriteContext) -> None:
        obj.setdefault("rules", None)

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        causes: list[Cause] = []
        for index, rule in enumerate(obj.get("rules") or []):
            path = f"rules[{index}]"
            if not rule.get("verbs"):
                causes.append(required(f"{path}.verbs", "verbs must contain at least one value"))
            urls = rule.get("nonResourceURLs")
            if urls:
                if self._namespaced:
                    causes.append(
                        invalid_value(
                            f"{path}.nonResourceURLs",
                            Verbatim(f"[]string{{{', '.join(quote(str(url)) for url in urls)}}}"),
                            "namespaced rules cannot apply to non-resource URLs",
                        )
                    )
                if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                    causes.append(
                        invalid_value(
                            f"{path}.nonResourceURLs",
                            urls,
                            "rules cannot apply to both regular resources and non-resource URLs",
                        )
                    )
                continue
            if not rule.get("apiGroups"):
                causes.append(
                    required(f"{path}.apiGroups", "resource rules must supply at least one api group")
                )
            if not rule.get("resources"):
                causes.append(
                    required(f"{path}.resources", "resource rules must supply at least one resource")
                )
        return causes


class BindingStrategy(Strategy):
    """Bindings of both scopes; the role that they grant never changes."""

    create_on_update = True

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def validate_name(self, name: str) -> list[str]:
        return names.path_segment(name)

    def default(self, obj: Object, context: WriteContext) -> None:
        reference = obj.setdefault("roleRef", {})
        if not reference.get("apiGroup"):
            reference["apiGroup"] = GROUP
        for subject in obj.get("subjects") or []:
            if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
                subject["apiGroup"] = GROUP

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        causes: list[Cause] = []
        reference = obj.get("roleRef") or {}
        if reference.get("apiGroup") != GROUP:
            causes.append(unsupported_value("roleRef.apiGroup", reference.get("apiGroup") or "", (GROUP,)))
        kinds = ("Role", "ClusterRole") if self._namespaced else ("ClusterRole",)
        if reference.get("kind") not in kinds:
            causes.append(unsupported_value("roleRef.kind", reference.get("kind") or "", kinds))
        if not reference.get("name"):
            causes.append(required("roleRef.name"))
        for index, subject in enumerate(obj.get("subjects") or []):
            causes += self._subject(subject, f"subjects[{index}]")
        return causes

    def _subject(self, subject: Object, path: str) -> list[Cause]:
        causes: list[Cause] = []
        if not subject.get("name"):
            causes.append(required(f"{path}.name"))
        match subject.get("kind"):
            case "ServiceAccount":
                name = str(subject.get("name") or "")
                if name:
                    causes += [invalid_value(f"{path}.name", name, m) for m in names.subdomain(name)]
                if subject.get("apiGroup"):
                    causes.append(unsupported_value(f"{path}.apiGroup", subject["apiGroup"], ("",)))
                if not self._namespaced and not subject.get("namespace"):
                    causes.append(required(f"{path}.namespace"))
            case "User" | "Group":
                if subject.get("apiGroup") != GROUP:
                    causes.append(
                        unsupported_value(f"{path}.apiGroup", subject.get("apiGroup") or "", (GROUP,))
                    )
            case other:
                causes.append(
                    unsupported_value(f"{path}.kind", other or "", ("ServiceAccount", "User", "Group"))
                )
        return causes

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        if obj.get("roleRef") == old.get("roleRef"):
            return []
        reference = obj.get("roleRef") or {}
        group, kind, name = (quote(str(reference.get(part) or "")) for part in ("apiGroup", "kind", "name"))
        shown = Verbatim(f"rbac.RoleRef{{APIGroup:{group}, Kind:{kind}, Name:{name}}}")
        return [invalid_value("roleRef", shown, "cannot change roleRef")]
