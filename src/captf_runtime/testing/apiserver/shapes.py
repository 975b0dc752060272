"""The shapes of the built-in kinds: fields, types and how their lists merge, as OpenAPI schemas.

Two things read them: server-side apply, to know which lists merge by key, and the OpenAPI documents, from
which clients explain and validate. Field types are written in a short notation:

    string int32 int64 bool time microtime bytes quantity intstr any     scalars; `any` is whatever JSON
    Name                 a nested object that is always there
    *Name                a nested object that may be absent
    []T                  a list that is replaced as a whole
    set[]T               a list whose items are their own keys
    key(a,b=X)[]T        a list merged by the fields a and b, the latter X when absent
    {}T                  a map from strings to T
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

_OBJECT_META = {
    "name": "string",
    "generateName": "string",
    "namespace": "string",
    "selfLink": "string",
    "uid": "string",
    "resourceVersion": "string",
    "generation": "int64",
    "creationTimestamp": "time",
    "deletionTimestamp": "time",
    "deletionGracePeriodSeconds": "int64",
    "labels": "{}string",
    "annotations": "{}string",
    "ownerReferences": "key(uid)[]OwnerReference",
    "finalizers": "set[]string",
    "managedFields": "[]ManagedFieldsEntry",
}

_POD_SPEC = {
    "volumes": "key(name)[]Volume",
    "initContainers": "key(name)[]Container",
    "containers": "key(name)[]Container",
    "ephemeralContainers": "key(name)[]Container",
    "restartPolicy": "string",
    "terminationGracePeriodSeconds": "int64",
    "activeDeadlineSeconds": "int64",
    "dnsPolicy": "string",
    "nodeSelector": "{}string",
    "serviceAccountName": "string",
    "serviceAccount": "string",
    "automountServiceAccountToken": "bool",
    "nodeName": "string",
    "hostNetwork": "bool",
    "hostPID": "bool",
    "hostIPC": "bool",
    "hostUsers": "bool",
    "shareProcessNamespace": "bool",
    "securityContext": "*PodSecurityContext",
    "imagePullSecrets": "key(name)[]LocalObjectReference",
    "hostname": "string",
    "subdomain": "string",
    "affinity": "*Affinity",
    "schedulerName": "string",
    "tolerations": "[]Toleration",
    "hostAliases": "key(ip)[]HostAlias",
    "priorityClassName": "string",
    "priority": "int32",
    "dnsConfig": "*PodDNSConfig",
    "readinessGates": "[]PodReadinessGate",
    "runtimeClassName": "string",
    "enableServiceLinks": "bool",
    "preemptionPolicy": "string",
    "overhead": "{}quantity",
    "topologySpreadConstraints": "key(topologyKey,whenUnsatisfiable)[]TopologySpreadConstraint",
    "setHostnameAsFQDN": "bool",
    "os": "*PodOS",
    "schedulingGates": "key(name)[]LocalObjectReference",
    "resourceClaims": "key(name)[]PodResourceClaim",
}

_CONTAINER = {
    "name": "string",
    "image": "string",
    "command": "[]string",
    "args": "[]string",
    "workingDir": "string",
    "ports": "key(containerPort,protocol=TCP)[]ContainerPort",
    "envFrom": "[]EnvFromSource",
    "env": "key(name)[]EnvVar",
    "resources": "ResourceRequirements",
    "volumeMounts": "key(mountPath)[]VolumeMount",
    "volumeDevices": "key(devicePath)[]VolumeDevice",
    "livenessProbe": "*Probe",
    "readinessProbe": "*Probe",
    "startupProbe": "*Probe",
    "lifecycle": "*Lifecycle",
    "restartPolicy": "string",
    "terminationMessagePath": "string",
    "terminationMessagePolicy": "string",
    "imagePullPolicy": "string",
    "securityContext": "*SecurityContext",
    "stdin": "bool",
    "stdinOnce": "bool",
    "tty": "bool",
}

_CONDITION = {
    "type": "string",
    "status": "string",
    "reason": "string",
    "message": "string",
    "lastTransitionTime": "time",
    "lastProbeTime": "time",
    "lastUpdateTime": "time",
    "observedGeneration": "int64",
}

_STRUCTS: dict[str, dict[str, str]] = {
    "ObjectMeta": _OBJECT_META,
    "OwnerReference": {
        "apiVersion": "string",
        "kind": "string",
        "name": "string",
        "uid": "string",
        "controller": "bool",
        "blockOwnerDeletion": "bool",
    },
    "ManagedFieldsEntry": {
        "manager": "string",
        "operation": "string",
        "apiVersion": "string",
        "time": "time",
        "fieldsType": "string",
        "fieldsV1": "any",
        "subresource": "string",
    },
    "LabelSelector": {"matchLabels": "{}string", "matchExpressions": "[]LabelSelectorRequirement"},
    "LabelSelectorRequirement": {"key": "string", "operator": "string", "values": "[]string"},
    "Condition": _CONDITION,
    "LocalObjectReference": {"name": "string"},
    "ObjectReference": {
        "kind": "string",
        "namespace": "string",
        "name": "string",
        "uid": "string",
        "apiVersion": "string",
        "resourceVersion": "string",
        "fieldPath": "string",
    },
    # Pods
    "PodTemplateSpec": {"metadata": "ObjectMeta", "spec": "PodSpec"},
    "PodSpec": _POD_SPEC,
    "Container": _CONTAINER,
    "ContainerPort": {
        "name": "string",
        "hostPort": "int32",
        "containerPort": "int32",
        "protocol": "string",
        "hostIP": "string",
    },
    "EnvFromSource": {
        "prefix": "string",
        "configMapRef": "*OptionalReference",
        "secretRef": "*OptionalReference",
    },
    "OptionalReference": {"name": "string", "optional": "bool"},
    "EnvVar": {"name": "string", "value": "string", "valueFrom": "*EnvVarSource"},
    "EnvVarSource": {
        "fieldRef": "*ObjectFieldSelector",
        "resourceFieldRef": "*ResourceFieldSelector",
        "configMapKeyRef": "*KeySelector",
        "secretKeyRef": "*KeySelector",
    },
    "ObjectFieldSelector": {"apiVersion": "string", "fieldPath": "string"},
    "ResourceFieldSelector": {"containerName": "string", "resource": "string", "divisor": "quantity"},
    "KeySelector": {"name": "string", "key": "string", "optional": "bool"},
    "ResourceRequirements": {
        "limits": "{}quantity",
        "requests": "{}quantity",
        "claims": "key(name)[]ResourceClaim",
    },
    "ResourceClaim": {"name": "string", "request": "string"},
    "VolumeMount": {
        "name": "string",
        "readOnly": "bool",
        "recursiveReadOnly": "string",
        "mountPath": "string",
        "subPath": "string",
        "mountPropagation": "string",
        "subPathExpr": "string",
    },
    "VolumeDevice": {"name": "string", "devicePath": "string"},
    "Probe": {
        "exec": "*ExecAction",
        "httpGet": "*HTTPGetAction",
        "tcpSocket": "*TCPSocketAction",
        "grpc": "any",
        "initialDelaySeconds": "int32",
        "timeoutSeconds": "int32",
        "periodSeconds": "int32",
        "successThreshold": "int32",
        "failureThreshold": "int32",
        "terminationGracePeriodSeconds": "int64",
    },
    "ExecAction": {"command": "[]string"},
    "HTTPGetAction": {
        "path": "string",
        "port": "intstr",
        "host": "string",
        "scheme": "string",
        "httpHeaders": "[]HTTPHeader",
    },
    "HTTPHeader": {"name": "string", "value": "string"},
    "TCPSocketAction": {"port": "intstr", "host": "string"},
    "Lifecycle": {"postStart": "*LifecycleHandler", "preStop": "*LifecycleHandler"},
    "LifecycleHandler": {
        "exec": "*ExecAction",
        "httpGet": "*HTTPGetAction",
        "tcpSocket": "*TCPSocketAction",
        "sleep": "any",
    },
    "SecurityContext": {
        "capabilities": "*Capabilities",
        "privileged": "bool",
        "seLinuxOptions": "any",
        "windowsOptions": "any",
        "runAsUser": "int64",
        "runAsGroup": "int64",
        "runAsNonRoot": "bool",
        "readOnlyRootFilesystem": "bool",
        "allowPrivilegeEscalation": "bool",
        "procMount": "string",
        "seccompProfile": "*SeccompProfile",
        "appArmorProfile": "any",
    },
    "Capabilities": {"add": "[]string", "drop": "[]string"},
    "SeccompProfile": {"type": "string", "localhostProfile": "string"},
    "PodSecurityContext": {
        "seLinuxOptions": "any",
        "windowsOptions": "any",
        "runAsUser": "int64",
        "runAsGroup": "int64",
        "runAsNonRoot": "bool",
        "supplementalGroups": "[]int64",
        "supplementalGroupsPolicy": "string",
        "fsGroup": "int64",
        "sysctls": "[]NameValue",
        "fsGroupChangePolicy": "string",
        "seccompProfile": "*SeccompProfile",
        "appArmorProfile": "any",
    },
    "NameValue": {"name": "string", "value": "string"},
    "Affinity": {"nodeAffinity": "any", "podAffinity": "any", "podAntiAffinity": "any"},
    "Toleration": {
        "key": "string",
        "operator": "string",
        "value": "string",
        "effect": "string",
        "tolerationSeconds": "int64",
    },
    "HostAlias": {"ip": "string", "hostnames": "[]string"},
    "PodDNSConfig": {"nameservers": "[]string", "searches": "[]string", "options": "[]NameValue"},
    "PodReadinessGate": {"conditionType": "string"},
    "PodOS": {"name": "string"},
    "PodResourceClaim": {
        "name": "string",
        "resourceClaimName": "string",
        "resourceClaimTemplateName": "string",
    },
    "TopologySpreadConstraint": {
        "maxSkew": "int32",
        "topologyKey": "string",
        "whenUnsatisfiable": "string",
        "labelSelector": "*LabelSelector",
        "minDomains": "int32",
        "nodeAffinityPolicy": "string",
        "nodeTaintsPolicy": "string",
        "matchLabelKeys": "[]string",
    },
    "Volume": {
        "name": "string",
        "emptyDir": "*EmptyDirVolumeSource",
        "secret": "*SecretVolumeSource",
        "configMap": "*ConfigMapVolumeSource",
        "projected": "*ProjectedVolumeSource",
        "downwardAPI": "*DownwardAPIVolumeSource",
        "hostPath": "*HostPathVolumeSource",
        "persistentVolumeClaim": "*PersistentVolumeClaimVolumeSource",
        "image": "*ImageVolumeSource",
        **dict.fromkeys(
            ("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "ephemeral", "fc"),
            "any",
        ),
        **dict.fromkeys(
            ("flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "iscsi", "nfs"), "any"
        ),
        **dict.fromkeys(
            ("photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos"), "any"
        ),
        "vsphereVolume": "any",
    },
    "EmptyDirVolumeSource": {"medium": "string", "sizeLimit": "quantity"},
    "SecretVolumeSource": {
        "secretName": "string",
        "items": "[]KeyToPath",
        "defaultMode": "int32",
        "optional": "bool",
    },
    "ConfigMapVolumeSource": {
        "name": "string",
        "items": "[]KeyToPath",
        "defaultMode": "int32",
        "optional": "bool",
    },
    "KeyToPath": {"key": "string", "path": "string", "mode": "int32"},
    "ProjectedVolumeSource": {"sources": "[]VolumeProjection", "defaultMode": "int32"},
    "VolumeProjection": {
        "secret": "*SecretProjection",
        "downwardAPI": "*DownwardAPIVolumeSource",
        "configMap": "*SecretProjection",
        "serviceAccountToken": "*ServiceAccountTokenProjection",
        "clusterTrustBundle": "any",
    },
    "SecretProjection": {"name": "string", "items": "[]KeyToPath", "optional": "bool"},
    "ServiceAccountTokenProjection": {"audience": "string", "expirationSeconds": "int64", "path": "string"},
    "DownwardAPIVolumeSource": {"items": "[]DownwardAPIVolumeFile", "defaultMode": "int32"},
    "DownwardAPIVolumeFile": {
        "path": "string",
        "fieldRef": "*ObjectFieldSelector",
        "resourceFieldRef": "*ResourceFieldSelector",
        "mode": "int32",
    },
    "HostPathVolumeSource": {"path": "string", "type": "string"},
    "PersistentVolumeClaimVolumeSource": {"claimName": "string", "readOnly": "bool"},
    "ImageVolumeSource": {"reference": "string", "pullPolicy": "string"},
    "PodStatus": {
        "phase": "string",
        "conditions": "key(type)[]Condition",
        "message": "string",
        "reason": "string",
        "nominatedNodeName": "string",
        "hostIP": "string",
        "hostIPs": "[]PodIP",
        "podIP": "string",
        "podIPs": "key(ip)[]PodIP",
        "startTime": "time",
        "initContainerStatuses": "[]ContainerStatus",
        "containerStatuses": "[]ContainerStatus",
        "ephemeralContainerStatuses": "[]ContainerStatus",
        "qosClass": "string",
    },
    "PodIP": {"ip": "string"},
    "ContainerStatus": {
        "name": "string",
        "state": "ContainerState",
        "lastState": "ContainerState",
        "ready": "bool",
        "restartCount": "int32",
        "image": "string",
        "imageID": "string",
        "containerID": "string",
        "started": "bool",
    },
    "ContainerState": {
        "waiting": "*ContainerStateWaiting",
        "running": "*ContainerStateRunning",
        "terminated": "*ContainerStateTerminated",
    },
    "ContainerStateWaiting": {"reason": "string", "message": "string"},
    "ContainerStateRunning": {"startedAt": "time"},
    "ContainerStateTerminated": {
        "exitCode": "int32",
        "signal": "int32",
        "reason": "string",
        "message": "string",
        "startedAt": "time",
        "finishedAt": "time",
        "containerID": "string",
    },
    # Namespaces
    "NamespaceSpec": {"finalizers": "[]string"},
    "NamespaceStatus": {"phase": "string", "conditions": "key(type)[]Condition"},
    # Jobs, Deployments, Leases
    "JobSpec": {
        "parallelism": "int32",
        "completions": "int32",
        "activeDeadlineSeconds": "int64",
        "podFailurePolicy": "any",
        "successPolicy": "any",
        "backoffLimit": "int32",
        "backoffLimitPerIndex": "int32",
        "maxFailedIndexes": "int32",
        "selector": "*LabelSelector",
        "manualSelector": "bool",
        "template": "PodTemplateSpec",
        "ttlSecondsAfterFinished": "int32",
        "completionMode": "string",
        "suspend": "bool",
        "podReplacementPolicy": "string",
        "managedBy": "string",
    },
    "JobStatus": {
        "conditions": "[]Condition",
        "startTime": "time",
        "completionTime": "time",
        "active": "int32",
        "succeeded": "int32",
        "failed": "int32",
        "terminating": "int32",
        "completedIndexes": "string",
        "failedIndexes": "string",
        "uncountedTerminatedPods": "*UncountedTerminatedPods",
        "ready": "int32",
    },
    "UncountedTerminatedPods": {"succeeded": "set[]string", "failed": "set[]string"},
    "DeploymentSpec": {
        "replicas": "int32",
        "selector": "*LabelSelector",
        "template": "PodTemplateSpec",
        "strategy": "DeploymentStrategy",
        "minReadySeconds": "int32",
        "revisionHistoryLimit": "int32",
        "paused": "bool",
        "progressDeadlineSeconds": "int32",
    },
    "DeploymentStrategy": {"type": "string", "rollingUpdate": "*RollingUpdateDeployment"},
    "RollingUpdateDeployment": {"maxUnavailable": "intstr", "maxSurge": "intstr"},
    "DeploymentStatus": {
        "observedGeneration": "int64",
        "replicas": "int32",
        "updatedReplicas": "int32",
        "readyReplicas": "int32",
        "availableReplicas": "int32",
        "unavailableReplicas": "int32",
        "conditions": "key(type)[]Condition",
        "collisionCount": "int32",
    },
    "LeaseSpec": {
        "holderIdentity": "string",
        "leaseDurationSeconds": "int32",
        "acquireTime": "microtime",
        "renewTime": "microtime",
        "leaseTransitions": "int32",
        "strategy": "string",
        "preferredHolder": "string",
    },
    # Events
    "EventSource": {"component": "string", "host": "string"},
    "EventSeries": {"count": "int32", "lastObservedTime": "microtime"},
    # RBAC
    "PolicyRule": {
        "verbs": "[]string",
        "apiGroups": "[]string",
        "resources": "[]string",
        "resourceNames": "[]string",
        "nonResourceURLs": "[]string",
    },
    "Subject": {"kind": "string", "apiGroup": "string", "name": "string", "namespace": "string"},
    "RoleRef": {"apiGroup": "string", "kind": "string", "name": "string"},
    "AggregationRule": {"clusterRoleSelectors": "[]LabelSelector"},
    # Custom resource definitions
    "CustomResourceDefinitionSpec": {
        "group": "string",
        "names": "CustomResourceDefinitionNames",
        "scope": "string",
        "versions": "[]CustomResourceDefinitionVersion",
        "conversion": "*CustomResourceConversion",
        "preserveUnknownFields": "bool",
    },
    "CustomResourceDefinitionNames": {
        "plural": "string",
        "singular": "string",
        "shortNames": "[]string",
        "kind": "string",
        "listKind": "string",
        "categories": "[]string",
    },
    "CustomResourceDefinitionVersion": {
        "name": "string",
        "served": "bool",
        "storage": "bool",
        "deprecated": "bool",
        "deprecationWarning": "string",
        "schema": "*CustomResourceValidation",
        "subresources": "any",
        "additionalPrinterColumns": "[]CustomResourceColumnDefinition",
        "selectableFields": "[]any",
    },
    "CustomResourceValidation": {"openAPIV3Schema": "any"},
    "CustomResourceColumnDefinition": {
        "name": "string",
        "type": "string",
        "format": "string",
        "description": "string",
        "priority": "int32",
        "jsonPath": "string",
    },
    "CustomResourceConversion": {"strategy": "string", "webhook": "any"},
    "CustomResourceDefinitionStatus": {
        "conditions": "key(type)[]Condition",
        "acceptedNames": "CustomResourceDefinitionNames",
        "storedVersions": "[]string",
        "observedGeneration": "int64",
    },
    # Admission
    "ValidatingWebhook": {
        "name": "string",
        "clientConfig": "WebhookClientConfig",
        "rules": "[]RuleWithOperations",
        "failurePolicy": "string",
        "matchPolicy": "string",
        "namespaceSelector": "*LabelSelector",
        "objectSelector": "*LabelSelector",
        "sideEffects": "string",
        "timeoutSeconds": "int32",
        "admissionReviewVersions": "[]string",
        "matchConditions": "key(name)[]MatchCondition",
        "reinvocationPolicy": "string",
    },
    "WebhookClientConfig": {"url": "string", "service": "*ServiceReference", "caBundle": "bytes"},
    "ServiceReference": {"namespace": "string", "name": "string", "path": "string", "port": "int32"},
    "RuleWithOperations": {
        "operations": "[]string",
        "apiGroups": "[]string",
        "apiVersions": "[]string",
        "resources": "[]string",
        "scope": "string",
    },
    "MatchCondition": {"name": "string", "expression": "string"},
    # Reviews
    "TokenReviewSpec": {"token": "string", "audiences": "[]string"},
    "TokenReviewStatus": {
        "authenticated": "bool",
        "user": "UserInfo",
        "audiences": "[]string",
        "error": "string",
    },
    "UserInfo": {"username": "string", "uid": "string", "groups": "[]string", "extra": "{}any"},
    "SubjectAccessReviewSpec": {
        "resourceAttributes": "*ResourceAttributes",
        "nonResourceAttributes": "*NonResourceAttributes",
        "user": "string",
        "groups": "[]string",
        "extra": "{}any",
        "uid": "string",
    },
    "SelfSubjectAccessReviewSpec": {
        "resourceAttributes": "*ResourceAttributes",
        "nonResourceAttributes": "*NonResourceAttributes",
    },
    "SelfSubjectRulesReviewSpec": {"namespace": "string"},
    "ResourceAttributes": {
        "namespace": "string",
        "verb": "string",
        "group": "string",
        "version": "string",
        "resource": "string",
        "subresource": "string",
        "name": "string",
    },
    "NonResourceAttributes": {"path": "string", "verb": "string"},
    "SubjectAccessReviewStatus": {
        "allowed": "bool",
        "denied": "bool",
        "reason": "string",
        "evaluationError": "string",
    },
    "SubjectRulesReviewStatus": {
        "resourceRules": "[]PolicyRule",
        "nonResourceRules": "[]PolicyRule",
        "incomplete": "bool",
        "evaluationError": "string",
    },
    "TokenRequestSpec": {
        "audiences": "[]string",
        "expirationSeconds": "int64",
        "boundObjectRef": "*ObjectReference",
    },
    "TokenRequestStatus": {"token": "string", "expirationTimestamp": "time"},
}

_RBAC = "rbac.authorization.k8s.io/v1"
_AUTHORIZATION = "authorization.k8s.io/v1"
_REVIEW = {"spec": "SubjectAccessReviewSpec", "status": "SubjectAccessReviewStatus"}
_EVENT_TAIL = {
    "type": "string",
    "eventTime": "microtime",
    "series": "*EventSeries",
    "action": "string",
    "related": "*ObjectReference",
}

KINDS: dict[tuple[str, str], dict[str, str]] = {
    ("v1", "Namespace"): {"spec": "NamespaceSpec", "status": "NamespaceStatus"},
    ("v1", "Secret"): {
        "immutable": "bool",
        "data": "{}bytes",
        "stringData": "{}string",
        "type": "string",
    },
    ("v1", "ConfigMap"): {"immutable": "bool", "data": "{}string", "binaryData": "{}bytes"},
    ("v1", "Pod"): {"spec": "PodSpec", "status": "PodStatus"},
    ("v1", "ServiceAccount"): {
        "secrets": "key(name)[]ObjectReference",
        "imagePullSecrets": "[]LocalObjectReference",
        "automountServiceAccountToken": "bool",
    },
    ("v1", "Event"): {
        "involvedObject": "ObjectReference",
        "reason": "string",
        "message": "string",
        "source": "EventSource",
        "firstTimestamp": "time",
        "lastTimestamp": "time",
        "count": "int32",
        **_EVENT_TAIL,
        "reportingComponent": "string",
        "reportingInstance": "string",
    },
    ("events.k8s.io/v1", "Event"): {
        "regarding": "ObjectReference",
        "reason": "string",
        "note": "string",
        "deprecatedSource": "EventSource",
        "deprecatedFirstTimestamp": "time",
        "deprecatedLastTimestamp": "time",
        "deprecatedCount": "int32",
        **_EVENT_TAIL,
        "reportingController": "string",
        "reportingInstance": "string",
    },
    ("coordination.k8s.io/v1", "Lease"): {"spec": "LeaseSpec"},
    ("batch/v1", "Job"): {"spec": "JobSpec", "status": "JobStatus"},
    ("apps/v1", "Deployment"): {"spec": "DeploymentSpec", "status": "DeploymentStatus"},
    (_RBAC, "Role"): {"rules": "[]PolicyRule"},
    (_RBAC, "ClusterRole"): {"rules": "[]PolicyRule", "aggregationRule": "*AggregationRule"},
    (_RBAC, "RoleBinding"): {"subjects": "[]Subject", "roleRef": "RoleRef"},
    (_RBAC, "ClusterRoleBinding"): {"subjects": "[]Subject", "roleRef": "RoleRef"},
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): {
        "spec": "CustomResourceDefinitionSpec",
        "status": "CustomResourceDefinitionStatus",
    },
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): {
        "webhooks": "key(name)[]ValidatingWebhook"
    },
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"): {
        "webhooks": "key(name)[]ValidatingWebhook"
    },
    ("authentication.k8s.io/v1", "TokenReview"): {"spec": "TokenReviewSpec", "status": "TokenReviewStatus"},
    ("authentication.k8s.io/v1", "TokenRequest"): {
        "spec": "TokenRequestSpec",
        "status": "TokenRequestStatus",
    },
    (_AUTHORIZATION, "SubjectAccessReview"): _REVIEW,
    (_AUTHORIZATION, "LocalSubjectAccessReview"): _REVIEW,
    (_AUTHORIZATION, "SelfSubjectAccessReview"): {
        "spec": "SelfSubjectAccessReviewSpec",
        "status": "SubjectAccessReviewStatus",
    },
    (_AUTHORIZATION, "SelfSubjectRulesReview"): {
        "spec": "SelfSubjectRulesReviewSpec",
        "status": "SubjectRulesReviewStatus",
    },
}
"""(apiVersion, kind) → field → type, beside `apiVersion`, `kind` and `metadata` that all kinds have."""

_DESCRIPTIONS = {
    "apiVersion": "APIVersion names the group and version of this representation of an object.",
    "kind": "Kind names the REST resource that this object represents.",
    "metadata": "Standard metadata of an object.",
    "spec": "The state that is wanted.",
    "status": "The state that was last observed; written by the system.",
}

_SCALARS: dict[str, Schema] = {
    "string": {"type": "string"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "bool": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    "quantity": {"x-kubernetes-int-or-string": True},
    "intstr": {"x-kubernetes-int-or-string": True},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_KEYED = re.compile(r"key\(([^)]*)\)\[\](.*)")

ALWAYS = "x-always-present"
"""Marks a nested object that the server's own structs always hold, so that no one ever owns it as such."""


@functools.cache
def kind_schema(api_version: str, kind: str) -> Schema | None:
    """The OpenAPI schema of a built-in kind, or None for one that is not known; do not change it."""
    fields = KINDS.get((api_version, kind))
    if fields is None:
        return None
    head = {"apiVersion": "string", "kind": "string", "metadata": "ObjectMeta"}
    return _struct({**head, **fields}, kind)


@functools.cache
def object_meta() -> Schema:
    """The schema of `metadata`; do not change it."""
    return _struct(_OBJECT_META, "metadata")


def _struct(fields: Mapping[str, str], name: str) -> Schema:
    properties = {}
    for field, notation in fields.items():
        schema = _schema(notation)
        text = _DESCRIPTIONS.get(field, f"{field} of the {name}.")
        properties[field] = {"description": text, **schema}
    return {"type": "object", "properties": properties}


@functools.cache
def _schema(notation: str) -> Schema:
    if notation in _SCALARS:
        return _SCALARS[notation]
    if notation.startswith("{}"):
        return {"type": "object", "additionalProperties": _schema(notation[2:])}
    if notation.startswith("[]"):
        return {"type": "array", "x-kubernetes-list-type": "atomic", "items": _schema(notation[2:])}
    if notation.startswith("set[]"):
        return {"type": "array", "x-kubernetes-list-type": "set", "items": _schema(notation[5:])}
    keyed = _KEYED.fullmatch(notation)
    if keyed:
        return _keyed_list(keyed.group(1).split(","), keyed.group(2))
    if notation.startswith("*"):
        return _struct(_STRUCTS[notation[1:]], notation[1:])
    return {**_struct(_STRUCTS[notation], notation), ALWAYS: True}


def _keyed_list(keys: list[str], item: str) -> Schema:
    names = [key.partition("=")[0] for key in keys]
    schema = _struct(_STRUCTS[item], item)
    for key in keys:
        name, has_default, default = key.partition("=")
        if has_default:
            schema["properties"][name] = {**schema["properties"][name], "default": default}
    schema["required"] = [key for key in keys if "=" not in key]
    return {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": names,
        "items": schema,
    }
