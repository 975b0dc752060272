"""The webhook configuration, as an object: what ``config/webhook`` holds and tests register. Pure."""

from __future__ import annotations

from captf_controllers.api.kinds import (
    ALL_KINDS,
    GROUP,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE,
    VERSION,
)
from captf_controllers.webhooks.paths import path_of
from captf_runtime.objects import Kind, Object

NAME = "captf-validating-webhook-configuration"
TIMEOUT_SECONDS = 10
#: Kinds whose deletes are guarded. A guard must never keep a namespace from going, so it fails open.
GUARDED = (TERRAFORM_MACHINE, TERRAFORM_CLUSTER_IDENTITY)


def webhook_configuration(client_config: Object) -> Object:
    """The ValidatingWebhookConfiguration.

    ``client_config`` is how the API server reaches the manager: ``{"service": {"namespace", "name"}}`` or
    ``{"url": "https://host:port"}``, each with an optional ``caBundle``; the path is added for each kind.
    """
    writes = [_entry(kind, client_config, ["CREATE", "UPDATE"], "Fail") for kind in ALL_KINDS]
    deletes = [_entry(kind, client_config, ["DELETE"], "Ignore", prefix="delete.") for kind in GUARDED]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": writes + deletes,
    }


def _entry(
    kind: Kind, client_config: Object, operations: list[str], policy: str, *, prefix: str = ""
) -> Object:
    reached = dict(client_config)
    if "url" in reached:
        reached["url"] = reached["url"] + path_of(kind)
    else:
        reached["service"] = {**reached["service"], "path": path_of(kind)}
    return {
        "name": f"{prefix}validation.{kind.kind.lower()}.{GROUP}",
        "admissionReviewVersions": ["v1"],
        "clientConfig": reached,
        "failurePolicy": policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "rules": [
            {
                "apiGroups": [GROUP],
                "apiVersions": [VERSION],
                "operations": operations,
                "resources": [kind.plural],
            }
        ],
    }
