"""Schemas of the core Kubernetes structures that a Job policy or an identity takes over unchanged."""

from __future__ import annotations

from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

_DECIMAL = r"([0-9]+(\.[0-9]*)?)|(\.[0-9]+)"
QUANTITY = rf"^(\+|-)?({_DECIMAL})(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?({_DECIMAL})))?$"


def _string(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _boolean(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def _integer(description: str, bits: int = 64) -> Schema:
    return {"type": "integer", "format": f"int{bits}", "description": description}


def _object(description: str, required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "description": description, "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def _strings(description: str) -> Schema:
    return {
        "type": "array",
        "description": description,
        "items": {"type": "string"},
        "x-kubernetes-list-type": "atomic",
    }


def quantities(description: str) -> Schema:
    """Return the schema of a map from resource names to quantities."""
    return {
        "type": "object",
        "description": description,
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": True,
        },
    }


def _key_of(kind: str) -> Schema:
    return {
        **_object(
            f"A key of a {kind} of the namespace.",
            ("key",),
            name=_string(f"Name of the {kind}."),
            key=_string("The key."),
            optional=_boolean(f"Whether the {kind} or its key may be missing."),
        ),
        "x-kubernetes-map-type": "atomic",
    }


def _env_var() -> Schema:
    field = _object(
        "A field of the pod.",
        ("fieldPath",),
        apiVersion=_string("Version of the schema that the path is written in; v1 when unset."),
        fieldPath=_string("Path of the field."),
    )
    resource = _object(
        "A resource of a container.",
        ("resource",),
        containerName=_string("Name of the container."),
        resource=_string("The resource, such as limits.cpu."),
        divisor={
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "description": "Unit of the value; 1 when unset.",
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": True,
        },
    )
    return _object(
        "An environment variable.",
        ("name",),
        name=_string("Name of the variable.", minLength=1),
        value=_string("Value of the variable."),
        valueFrom=_object(
            "Where the value comes from, in place of value.",
            configMapKeyRef=_key_of("ConfigMap"),
            secretKeyRef=_key_of("Secret"),
            fieldRef={**field, "x-kubernetes-map-type": "atomic"},
            resourceFieldRef={**resource, "x-kubernetes-map-type": "atomic"},
        ),
    )


def _resource_requirements() -> Schema:
    return _object(
        "Resources of a container.",
        claims={
            "type": "array",
            "description": "Names of resource claims that the container uses.",
            "items": _object(
                "A resource claim.",
                ("name",),
                name=_string("Name of the claim in the pod."),
                request=_string("Name of a request within the claim."),
            ),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        limits=quantities("The most that the container may use."),
        requests=quantities("What the scheduler sets aside."),
    )


def _profile(what: str, types: tuple[str, ...]) -> Schema:
    return _object(
        f"{what} profile.",
        ("type",),
        type=_string(f"Kind of the profile: {', '.join(types)}."),
        localhostProfile=_string("Profile of the node, with type Localhost."),
    )


def _selinux() -> Schema:
    return _object(
        "SELinux context.",
        user=_string("User label."),
        role=_string("Role label."),
        type=_string("Type label."),
        level=_string("Level label."),
    )


def _windows() -> Schema:
    return _object(
        "Settings of Windows nodes.",
        gmsaCredentialSpecName=_string("Name of the credential spec."),
        gmsaCredentialSpec=_string("Content of the credential spec."),
        runAsUserName=_string("User that the entrypoint runs as."),
        hostProcess=_boolean("Whether to run as a process of the host."),
    )


_PROFILE_TYPES = ("RuntimeDefault", "Localhost", "Unconfined")


def _security_context() -> Schema:
    return _object(
        "Security context of a container.",
        allowPrivilegeEscalation=_boolean("Whether a process may gain more privileges than its parent."),
        appArmorProfile=_profile("AppArmor", _PROFILE_TYPES),
        capabilities=_object(
            "POSIX capabilities.", add=_strings("Added capabilities."), drop=_strings("Removed capabilities.")
        ),
        privileged=_boolean("Whether the container is privileged."),
        procMount=_string("Kind of the proc mount."),
        readOnlyRootFilesystem=_boolean("Whether the root file system is read-only."),
        runAsGroup=_integer("Group id of the entrypoint."),
        runAsNonRoot=_boolean("Whether the container must run as another user than root."),
        runAsUser=_integer("User id of the entrypoint."),
        seLinuxOptions=_selinux(),
        seccompProfile=_profile("Seccomp", _PROFILE_TYPES),
        windowsOptions=_windows(),
    )


def _pod_security_context() -> Schema:
    return _object(
        "Security context of a pod.",
        appArmorProfile=_profile("AppArmor", _PROFILE_TYPES),
        fsGroup=_integer("Group id that owns volumes."),
        fsGroupChangePolicy=_string("When the ownership of volumes is changed."),
        runAsGroup=_integer("Group id of the entrypoints."),
        runAsNonRoot=_boolean("Whether containers must run as another user than root."),
        runAsUser=_integer("User id of the entrypoints."),
        seLinuxChangePolicy=_string("How volumes are labelled for SELinux."),
        seLinuxOptions=_selinux(),
        seccompProfile=_profile("Seccomp", _PROFILE_TYPES),
        supplementalGroups={
            "type": "array",
            "description": "Further group ids of the processes.",
            "items": {"type": "integer", "format": "int64"},
            "x-kubernetes-list-type": "atomic",
        },
        supplementalGroupsPolicy=_string("How the further group ids are worked out."),
        sysctls={
            "type": "array",
            "description": "Kernel parameters of the pod.",
            "items": _object(
                "A kernel parameter.",
                ("name", "value"),
                name=_string("Name of the parameter."),
                value=_string("Value of the parameter."),
            ),
            "x-kubernetes-list-type": "atomic",
        },
        windowsOptions=_windows(),
    )


def _label_selector() -> Schema:
    return {
        **_object(
            "A label selector; all of its conditions must hold.",
            matchLabels={
                "type": "object",
                "description": "Labels with their values.",
                "additionalProperties": {"type": "string"},
            },
            matchExpressions={
                "type": "array",
                "description": "Conditions on labels.",
                "items": _object(
                    "A condition on a label.",
                    ("key", "operator"),
                    key=_string("Key of the label."),
                    operator=_string("In, NotIn, Exists or DoesNotExist."),
                    values=_strings("Values, with In and NotIn."),
                ),
                "x-kubernetes-list-type": "atomic",
            },
        ),
        "x-kubernetes-map-type": "atomic",
    }


def core_schema(name: str) -> Schema:
    """Return a fresh copy of the schema of a core structure.

    Raises:
        ValueError: no such structure is known here.
    """
    match name:
        case "EnvVar":
            return _env_var()
        case "ResourceRequirements":
            return _resource_requirements()
        case "SecurityContext":
            return _security_context()
        case "PodSecurityContext":
            return _pod_security_context()
        case "LabelSelector":
            return _label_selector()
        case "ResourceList":
            return quantities("Resource names with their quantities.")
        case _:
            raise ValueError(f"no schema of the core structure {name!r}: add it to hack/core_schemas.py")
