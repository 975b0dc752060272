"""Reads request bodies in `application/vnd.kubernetes.protobuf`, which kubectl's own commands send.

The wire format is a four-byte prefix and an envelope with kind, apiVersion and the encoded object. `_MESSAGES`
gives the fields of each message, in the order of their numbers (a number after @ skips ahead). Types:

    s  text          i  number, zero left out     i?  number that may be zero     b, b?  likewise for booleans
    B  bytes         t  time                       q  quantity                      I  number or text
    F  raw JSON      *X list of X                  {}X map from texts to X          Name  another message

Responses stay JSON, which every client that sends protobuf accepts. A field that the tables do not know refuses
the whole body: nothing is dropped in silence.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from captf_runtime.objects import Object, format_time

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
PREFIX = b"k8s\x00"


class Unreadable(ValueError):
    """The body is no protobuf of a known message."""


_REVIEW = "metadata:ObjectMeta spec:{spec} status:Ignored"
_MESSAGES: dict[str, str] = {
    "ObjectMeta": (
        "name:s generateName:s namespace:s selfLink:s uid:s resourceVersion:s generation:i creationTimestamp:t "
        "deletionTimestamp:t deletionGracePeriodSeconds:i? labels:{}s annotations:{}s "
        "ownerReferences:*OwnerReference finalizers:*s clusterName:s managedFields@17:*ManagedFieldsEntry"
    ),
    "OwnerReference": "kind:s name@3:s uid:s apiVersion:s controller:b? blockOwnerDeletion:b?",
    "ManagedFieldsEntry": (
        "manager:s operation:s apiVersion:s time:t fieldsType@6:s fieldsV1:F subresource:s"
    ),
    "ObjectReference": "kind:s namespace:s name:s uid:s apiVersion:s resourceVersion:s fieldPath:s",
    "LocalObjectReference": "name:s",
    "LabelSelector": "matchLabels:{}s matchExpressions:*LabelSelectorRequirement",
    "LabelSelectorRequirement": "key:s operator:s values:*s",
    "DeleteOptions": (
        "gracePeriodSeconds:i? preconditions:Preconditions orphanDependents:b? propagationPolicy:s dryRun:*s"
    ),
    "Preconditions": "uid:s resourceVersion:s",
    "v1/Namespace": "metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus",
    "NamespaceSpec": "finalizers:*s",
    "NamespaceStatus": "phase:s",
    "v1/ConfigMap": "metadata:ObjectMeta data:{}s binaryData:{}B immutable:b?",
    "v1/Secret": "metadata:ObjectMeta data:{}B type:s stringData:{}s immutable:b?",
    "v1/ServiceAccount": (
        "metadata:ObjectMeta secrets:*ObjectReference imagePullSecrets:*LocalObjectReference "
        "automountServiceAccountToken:b?"
    ),
    "v1/Pod": "metadata:ObjectMeta spec:PodSpec status:Ignored",
    "PodTemplateSpec": "metadata:ObjectMeta spec:PodSpec",
    "PodSpec": (
        "volumes:*Volume containers:*Container restartPolicy:s terminationGracePeriodSeconds:i? "
        "activeDeadlineSeconds:i? dnsPolicy:s nodeSelector:{}s serviceAccountName:s serviceAccount:s nodeName:s "
        "hostNetwork:b hostPID:b hostIPC:b securityContext:PodSecurityContext "
        "imagePullSecrets:*LocalObjectReference hostname:s subdomain:s schedulerName@19:s "
        "initContainers:*Container automountServiceAccountToken:b? tolerations:*Toleration "
        "priorityClassName@24:s priority:i? shareProcessNamespace@27:b? runtimeClassName@29:s "
        "enableServiceLinks:b? preemptionPolicy:s"
    ),
    "PodSecurityContext": ("runAsUser@2:i? runAsNonRoot:b? supplementalGroups:*i? fsGroup:i? runAsGroup:i?"),
    "Toleration": "key:s operator:s value:s effect:s tolerationSeconds:i?",
    "Container": (
        "name:s image:s command:*s args:*s workingDir:s ports:*ContainerPort env:*EnvVar "
        "resources:ResourceRequirements volumeMounts:*VolumeMount terminationMessagePath@13:s imagePullPolicy:s "
        "stdin@16:b stdinOnce:b tty:b envFrom:*EnvFromSource terminationMessagePolicy:s"
    ),
    "ContainerPort": "name:s hostPort:i containerPort:i protocol:s hostIP:s",
    "EnvVar": "name:s value:s valueFrom:EnvVarSource",
    "EnvVarSource": ("fieldRef:ObjectFieldSelector configMapKeyRef@3:KeySelector secretKeyRef:KeySelector"),
    "ObjectFieldSelector": "apiVersion:s fieldPath:s",
    "KeySelector": "localObjectReference:Inline.LocalObjectReference key:s optional:b?",
    "EnvFromSource": "prefix:s configMapRef:EnvFromReference secretRef:EnvFromReference",
    "EnvFromReference": "localObjectReference:Inline.LocalObjectReference optional:b?",
    "ResourceRequirements": "limits:{}q requests:{}q",
    "VolumeMount": "name:s readOnly:b mountPath:s subPath:s mountPropagation:s subPathExpr:s",
    "Volume": "name:s volumeSource:Inline.VolumeSource",
    "VolumeSource": (
        "hostPath:HostPathVolume emptyDir:EmptyDirVolume secret@6:SecretVolume configMap@19:ConfigMapVolume"
    ),
    "HostPathVolume": "path:s type:s",
    "EmptyDirVolume": "medium:s sizeLimit:q",
    "SecretVolume": "secretName:s items:*KeyToPath defaultMode:i? optional:b?",
    "ConfigMapVolume": (
        "localObjectReference:Inline.LocalObjectReference items:*KeyToPath defaultMode:i? optional:b?"
    ),
    "KeyToPath": "key:s path:s mode:i?",
    "batch/v1/Job": "metadata:ObjectMeta spec:JobSpec status:Ignored",
    "JobSpec": (
        "parallelism:i? completions:i? activeDeadlineSeconds:i? selector:LabelSelector manualSelector:b? "
        "template:PodTemplateSpec backoffLimit:i? ttlSecondsAfterFinished:i? completionMode:s suspend:b? "
        "podReplacementPolicy@14:s managedBy:s"
    ),
    "apps/v1/Deployment": "metadata:ObjectMeta spec:DeploymentSpec status:Ignored",
    "DeploymentSpec": (
        "replicas:i? selector:LabelSelector template:PodTemplateSpec strategy:DeploymentStrategy "
        "minReadySeconds:i revisionHistoryLimit:i? paused:b progressDeadlineSeconds@9:i?"
    ),
    "DeploymentStrategy": "type:s rollingUpdate:RollingUpdate",
    "RollingUpdate": "maxUnavailable:I maxSurge:I",
    "rbac.authorization.k8s.io/v1/Role": "metadata:ObjectMeta rules:*PolicyRule",
    "rbac.authorization.k8s.io/v1/ClusterRole": (
        "metadata:ObjectMeta rules:*PolicyRule aggregationRule:AggregationRule"
    ),
    "AggregationRule": "clusterRoleSelectors:*LabelSelector",
    "PolicyRule": "verbs:*s apiGroups:*s resources:*s resourceNames:*s nonResourceURLs:*s",
    "rbac.authorization.k8s.io/v1/RoleBinding": "metadata:ObjectMeta subjects:*Subject roleRef:RoleRef",
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": (
        "metadata:ObjectMeta subjects:*Subject roleRef:RoleRef"
    ),
    "Subject": "kind:s apiGroup:s name:s namespace:s",
    "RoleRef": "apiGroup:s kind:s name:s",
    "authentication.k8s.io/v1/TokenRequest": _REVIEW.format(spec="TokenRequestSpec"),
    "TokenRequestSpec": "audiences:*s boundObjectRef@3:BoundObjectReference expirationSeconds:i?",
    "BoundObjectReference": "kind:s apiVersion:s name:s uid:s",
    "authentication.k8s.io/v1/TokenReview": _REVIEW.format(spec="TokenReviewSpec"),
    "TokenReviewSpec": "token:s audiences:*s",
    "authentication.k8s.io/v1/SelfSubjectReview": "metadata:ObjectMeta status:Ignored",
    "authorization.k8s.io/v1/SelfSubjectAccessReview": _REVIEW.format(spec="SelfAccessSpec"),
    "SelfAccessSpec": "resourceAttributes:ResourceAttributes nonResourceAttributes:NonResourceAttributes",
    "authorization.k8s.io/v1/SubjectAccessReview": _REVIEW.format(spec="AccessSpec"),
    "authorization.k8s.io/v1/LocalSubjectAccessReview": _REVIEW.format(spec="AccessSpec"),
    "AccessSpec": (
        "resourceAttributes:ResourceAttributes nonResourceAttributes:NonResourceAttributes user:s groups:*s uid@6:s"
    ),
    "ResourceAttributes": "namespace:s verb:s group:s version:s resource:s subresource:s name:s",
    "NonResourceAttributes": "path:s verb:s",
    "authorization.k8s.io/v1/SelfSubjectRulesReview": _REVIEW.format(spec="RulesSpec"),
    "RulesSpec": "namespace:s",
    "Unknown": "typeMeta:TypeMeta raw:raw contentEncoding:s contentType:s",
    "TypeMeta": "apiVersion:s kind:s",
}


def _fields(notation: str) -> dict[int, tuple[str, str]]:
    found: dict[int, tuple[str, str]] = {}
    number = 0
    for part in notation.split():
        name, _, kind = part.partition(":")
        name, _, skip = name.partition("@")
        number = int(skip) if skip else number + 1
        found[number] = (name, kind)
    return found


_TABLES = {name: _fields(notation) for name, notation in _MESSAGES.items()}


def decode(body: bytes) -> Object:
    """The object of a request body, with kind and apiVersion; raises `Unreadable`."""
    if not body.startswith(PREFIX):
        raise Unreadable("the body does not begin with the prefix of the format")
    envelope = _message("Unknown", body[len(PREFIX) :])
    head = envelope.get("typeMeta") or {}
    kind, api_version = str(head.get("kind") or ""), str(head.get("apiVersion") or "")
    name = "DeleteOptions" if kind == "DeleteOptions" else f"{api_version}/{kind}"
    if name not in _TABLES:
        raise Unreadable(f"{kind} of {api_version} is not read from protobuf; send JSON")
    return {"kind": kind, "apiVersion": api_version, **_message(name, envelope.get("raw") or b"")}


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise Unreadable("the body ends inside a number")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def _entries(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
        elif wire == 2:
            size, position = _varint(data, position)
            if position + size > len(data):
                raise Unreadable("the body ends inside a field")
            yield number, data[position : position + size]
            position += size
        else:
            raise Unreadable(f"wire type {wire} is not used by this format")


def _message(name: str, data: bytes) -> Object:
    table = _TABLES[name]
    found: Object = {}
    for number, value in _entries(data):
        if number not in table:
            raise Unreadable(f"field {number} of {name} is not known; send JSON")
        field, kind = table[number]
        if kind == "Ignored":
            continue
        if kind.startswith("Inline."):
            found.update(_message(kind.removeprefix("Inline."), _bytes(value)))
        elif kind.startswith("*"):
            found.setdefault(field, []).append(_value(kind[1:], value))
        elif kind.startswith("{}"):
            key, entry = _map_entry(kind[2:], _bytes(value))
            found.setdefault(field, {})[key] = entry
        else:
            decoded = _value(kind, value)
            if decoded is not None and not (kind in ("s", "i", "b") and not decoded):
                found[field] = decoded
    return found


def _map_entry(kind: str, data: bytes) -> tuple[str, object]:
    key = ""
    entry: object = "" if kind in ("s", "B", "q") else None
    for number, value in _entries(data):
        if number == 1:
            key = _bytes(value).decode()
        else:
            entry = _value(kind, value)
    return key, entry


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise Unreadable("a number stands where a text is expected")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise Unreadable("a text stands where a number is expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _value(kind: str, value: int | bytes) -> object:
    match kind.rstrip("?"):
        case "s":
            return _bytes(value).decode()
        case "i":
            return _number(value)
        case "b":
            return bool(_number(value))
        case "B":
            return base64.b64encode(_bytes(value)).decode()
        case "raw":
            return _bytes(value)
        case "t":
            parts = {number: _number(part) for number, part in _entries(_bytes(value))}
            return format_time(datetime.fromtimestamp(parts[1], UTC)) if parts.get(1) else None
        case "q":
            texts = [_bytes(part).decode() for _, part in _entries(_bytes(value))]
            return texts[0] if texts else ""
        case "I":
            parsed = dict(_entries(_bytes(value)))
            return _number(parsed.get(2, 0)) if not parsed.get(1) else _bytes(parsed.get(3, b"")).decode()
        case "F":
            raw = [_bytes(part) for _, part in _entries(_bytes(value))]
            return msgspec.json.decode(raw[0]) if raw else {}
    return _message(kind, _bytes(value))
