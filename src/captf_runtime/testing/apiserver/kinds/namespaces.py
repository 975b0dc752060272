"""Namespace."""

from __future__ import annotations

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import names
from captf_runtime.testing.apiserver.kinds.base import Strategy, WriteContext
from captf_runtime.testing.apiserver.status import Cause

METADATA_LABEL = "kubernetes.io/metadata.name"


class NamespaceStrategy(Strategy):
    """Namespaces carry the finalizer `kubernetes` in their spec until their content is gone."""

    def validate_name(self, name: str) -> list[str]:
        return names.label(name)

    def prepare_create(self, obj: Object, context: WriteContext) -> None:
        obj["status"] = {"phase": "Active"}
        spec = obj["spec"] = dict(obj.get("spec") or {})
        finalizers = list(spec.get("finalizers") or [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        spec["finalizers"] = finalizers

    def prepare_update(self, obj: Object, old: Object, context: WriteContext) -> None:
        # spec.finalizers change through the finalize subresource only.
        obj["spec"] = {
            **(obj.get("spec") or {}),
            "finalizers": (old.get("spec") or {}).get("finalizers") or [],
        }
        if not obj["spec"]["finalizers"]:
            obj["spec"] = {}
        obj["status"] = obj.get("status") or old.get("status") or {"phase": "Active"}

    def default(self, obj: Object, context: WriteContext) -> None:
        if context.mode == "modern":
            metadata = obj["metadata"]
            labels = metadata["labels"] = dict(metadata.get("labels") or {})
            if metadata.get("name"):
                labels[METADATA_LABEL] = metadata["name"]

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        return [
            cause
            for finalizer in finalizers
            for cause in names.validate_namespace_finalizer(str(finalizer), "spec.finalizers")
        ]

    def fields(self, obj: Object) -> dict[str, str]:
        phase = str((obj.get("status") or {}).get("phase") or "Active")
        return {"status.phase": phase, "name": str(obj["metadata"].get("name") or "")}

    def field_names(self) -> tuple[str, ...]:
        return ("status.phase", "name")

    def unknown_field(self, field: str) -> str:
        return f"field label not supported: {field}"
