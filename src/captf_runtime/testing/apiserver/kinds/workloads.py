"""Pod, Job and Deployment: defaults and the rules on what may change."""

from __future__ import annotations

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import names
from captf_runtime.testing.apiserver.kinds.base import Mode, Strategy, WriteContext, immutable
from captf_runtime.testing.apiserver.schema.causes import Verbatim
from captf_runtime.testing.apiserver.status import (
    Cause,
    forbidden_value,
    invalid_value,
    quote,
    required,
    unsupported_value,
)


def default_pod_spec(spec: Object) -> None:
    """The defaults of a pod's spec, its containers, volumes and probes included."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        _default_container(container)
    for volume in spec.get("volumes") or []:
        for source in ("secret", "configMap", "projected", "downwardAPI"):
            if isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", 0o644)
        if len(volume) == 1:
            volume["emptyDir"] = {}


def labels_shown(labels: Object | None) -> Verbatim:
    """Labels as the server prints them in an error."""
    if not labels:
        return Verbatim("map[string]string(nil)")
    pairs = ", ".join(f"{quote(key)}:{quote(str(labels[key]))}" for key in sorted(labels))
    return Verbatim(f"map[string]string{{{pairs}}}")


def selector_shown(selector: Object | None) -> Verbatim:
    """A selector as the server prints it in an error."""
    matched = (selector or {}).get("matchLabels")
    return Verbatim(
        f"v1.LabelSelector{{MatchLabels:{labels_shown(matched).text}, "
        "MatchExpressions:[]v1.LabelSelectorRequirement(nil)}"
    )


def _default_requests(spec: Object) -> None:
    """What a container is limited to, it also requests, unless it says otherwise: of pods, not of templates."""
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        for name, amount in (container["resources"].get("limits") or {}).items():
            container["resources"].setdefault("requests", {}).setdefault(name, amount)


def _default_container(container: Object) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = str(container.get("image") or "")
    tag = image.rpartition("/")[2].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or []:
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if isinstance(reference, dict):
            reference.setdefault("apiVersion", "v1")
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(kind)
        if isinstance(probe, dict):
            probe.setdefault("timeoutSeconds", 1)
            probe.setdefault("periodSeconds", 10)
            probe.setdefault("successThreshold", 1)
            probe.setdefault("failureThreshold", 3)
            if isinstance(probe.get("httpGet"), dict):
                probe["httpGet"].setdefault("scheme", "HTTP")


def validate_pod_spec(spec: Object, path: str) -> list[Cause]:
    """The rules of a pod's spec that a module author is likely to break."""
    causes: list[Cause] = []
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or []):
        name = str(volume.get("name") or "")
        if not name:
            causes.append(required(f"{path}.volumes[{index}].name"))
        if name in volumes:
            causes.append(
                Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.volumes[{index}].name")
            )
        volumes.add(name)
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    seen: set[str] = set()
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part) or []):
            causes += _validate_container(container, f"{path}.{part}[{index}]", volumes, seen)
    policy = spec.get("restartPolicy")
    if policy not in ("Always", "OnFailure", "Never"):
        causes.append(
            unsupported_value(f"{path}.restartPolicy", policy or "", ("Always", "OnFailure", "Never"))
        )
    return causes


def _validate_container(container: Object, path: str, volumes: set[str], seen: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = str(container.get("name") or "")
    if not name:
        causes.append(required(f"{path}.name"))
    else:
        causes += [invalid_value(f"{path}.name", name, message) for message in names.label(name)]
    if name in seen:
        causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name"))
    seen.add(name)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            causes.append(
                Cause(
                    "FieldValueNotFound",
                    f'Not found: "{mount.get("name") or ""}"',
                    f"{path}.volumeMounts[{index}].name",
                )
            )
        if not mount.get("mountPath"):
            causes.append(required(f"{path}.volumeMounts[{index}].mountPath"))
    return causes


class PodStrategy(Strategy):
    """Pods begin Pending; of their spec little may change."""

    def prepare_create(self, obj: Object, context: WriteContext) -> None:
        obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}

    def default(self, obj: Object, context: WriteContext) -> None:
        spec = obj.setdefault("spec", {})
        default_pod_spec(spec)
        _default_requests(spec)
        spec.setdefault("enableServiceLinks", True)
        spec.setdefault("serviceAccountName", "default")
        spec["serviceAccount"] = spec["serviceAccountName"]
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        if "tolerations" not in spec:
            spec["tolerations"] = [
                {
                    "key": f"node.kubernetes.io/{state}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for state in ("not-ready", "unreachable")
            ]

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        return validate_pod_spec(obj.get("spec") or {}, "spec")

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        def fixed(pod: Object) -> Object:
            spec = {
                key: value
                for key, value in (pod.get("spec") or {}).items()
                if key not in ("activeDeadlineSeconds", "tolerations")
            }
            for part in ("containers", "initContainers"):
                if part in spec:
                    spec[part] = [{k: v for k, v in c.items() if k != "image"} for c in spec[part] or []]
            return spec

        if fixed(obj) == fixed(old):
            return []
        return [
            forbidden_value(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`, "
                "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds` or `spec.tolerations` "
                "(only additions to existing tolerations)",
            )
        ]

    def fields(self, obj: Object) -> dict[str, str]:
        spec, state = obj.get("spec") or {}, obj.get("status") or {}
        return {
            "spec.nodeName": str(spec.get("nodeName") or ""),
            "spec.restartPolicy": str(spec.get("restartPolicy") or ""),
            "spec.schedulerName": str(spec.get("schedulerName") or ""),
            "spec.serviceAccountName": str(spec.get("serviceAccountName") or ""),
            "status.phase": str(state.get("phase") or ""),
            "status.podIP": str(state.get("podIP") or ""),
            "status.nominatedNodeName": str(state.get("nominatedNodeName") or ""),
        }

    def field_names(self) -> tuple[str, ...]:
        return tuple(self.fields({}))

    def unknown_field(self, field: str) -> str:
        return f"field label not supported: {field}"


_UID = "controller-uid"
_PREFIXED_UID = "batch.kubernetes.io/controller-uid"


class JobStrategy(Strategy):
    """Jobs select their pods by a uid label that the server makes; the template never changes."""

    generation_modes: tuple[Mode, ...] = ("modern",)
    default_propagation = "Orphan"

    def validate_status(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        counts = obj.get("status") or {}
        return [
            invalid_value(f"status.{field}", counts[field], "must be greater than or equal to 0")
            for field in ("active", "succeeded", "failed")
            if (counts.get(field) or 0) < 0
        ]

    def prepare_create(self, obj: Object, context: WriteContext) -> None:
        obj["status"] = {}
        spec = obj.setdefault("spec", {})
        if spec.get("manualSelector"):
            return
        uid, name = obj["metadata"]["uid"], obj["metadata"].get("name") or ""
        own = {_UID: uid, "job-name": name}
        matched = {_UID: uid}
        if context.mode == "modern":
            own |= {_PREFIXED_UID: uid, "batch.kubernetes.io/job-name": name}
            matched = {_PREFIXED_UID: uid}
        template = spec.setdefault("template", {})
        metadata = template["metadata"] = dict(template.get("metadata") or {})
        metadata["labels"] = {**(metadata.get("labels") or {}), **own}
        metadata.setdefault("creationTimestamp", None)
        given = spec.get("selector") or {}
        spec["selector"] = {**given, "matchLabels": {**(given.get("matchLabels") or {}), **matched}}

    def default(self, obj: Object, context: WriteContext) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 6)
        if context.mode == "modern":
            spec.setdefault("completionMode", "NonIndexed")
            spec.setdefault("suspend", False)
            spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
        else:
            # These came with later versions.
            for field in ("ttlSecondsAfterFinished", "completionMode", "suspend", "podReplacementPolicy"):
                spec.pop(field, None)
        default_pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))
        labels = (spec["template"].get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        spec = obj.get("spec") or {}
        causes: list[Cause] = []
        for field in (
            "parallelism",
            "completions",
            "activeDeadlineSeconds",
            "backoffLimit",
            "ttlSecondsAfterFinished",
        ):
            value = spec.get(field)
            if isinstance(value, int) and value < 0:
                causes.append(invalid_value(f"spec.{field}", value, "must be greater than or equal to 0"))
        causes += self._validate_selector(obj)
        metadata = (spec.get("template") or {}).get("metadata") or {}
        causes += names.validate_labels(metadata.get("labels") or {}, "spec.template.labels")
        template = (spec.get("template") or {}).get("spec") or {}
        causes += validate_pod_spec(template, "spec.template.spec")
        if template.get("restartPolicy") == "Always":
            causes.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
        return causes

    def _validate_selector(self, obj: Object) -> list[Cause]:
        spec = obj.get("spec") or {}
        selector = spec.get("selector")
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        matched = (selector or {}).get("matchLabels") or {}
        causes: list[Cause] = []
        if not selector:
            causes.append(required("spec.selector"))
        elif not spec.get("manualSelector") and set(matched) - {_UID, _PREFIXED_UID}:
            causes.append(
                invalid_value("spec.selector", selector_shown(selector), "`selector` not auto-generated")
            )
        if not matched or not matched.items() <= labels.items():
            detail = "`selector` does not match template `labels`"
            causes.append(invalid_value("spec.template.metadata.labels", labels_shown(labels), detail))
        return causes

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        causes: list[Cause] = []
        for field in ("completions", "selector", "template", "completionMode"):
            causes += immutable(f"spec.{field}", new.get(field), before.get(field))
        return causes

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded") or 0)}

    def field_names(self) -> tuple[str, ...]:
        return ("status.successful",)

    def unknown_field(self, field: str) -> str:
        return f'field label "{field}" not supported for batchv1.Job'


class DeploymentStrategy(Strategy):
    """Deployments: stored and defaulted; nothing here rolls them out."""

    generation_modes: tuple[Mode, ...] = ("modern", "1.20")

    def prepare_create(self, obj: Object, context: WriteContext) -> None:
        obj["status"] = {}

    def default(self, obj: Object, context: WriteContext) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        template = spec.setdefault("template", {})
        template.setdefault("metadata", {}).setdefault("creationTimestamp", None)
        default_pod_spec(template.setdefault("spec", {}))

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        spec = obj.get("spec") or {}
        causes: list[Cause] = []
        selector = (spec.get("selector") or {}).get("matchLabels") or {}
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if not spec.get("selector"):
            causes.append(required("spec.selector"))
        if not selector or not selector.items() <= labels.items():
            detail = "`selector` does not match template `labels`"
            causes.append(invalid_value("spec.template.metadata.labels", labels_shown(labels), detail))
        return causes + validate_pod_spec(
            (spec.get("template") or {}).get("spec") or {}, "spec.template.spec"
        )

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        new, before = (obj.get("spec") or {}).get("selector"), (old.get("spec") or {}).get("selector")
        if new == before:
            return []
        return [invalid_value("spec.selector", selector_shown(new), "field is immutable")]
