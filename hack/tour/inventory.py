"""What is left of CAPTF in a namespace: asked of the API server, not assumed."""

from __future__ import annotations

from captf_controllers.api.kinds import WORKLOAD_KINDS
from captf_runtime.client import Client
from captf_runtime.objects import JOB, LEASE, POD, ROLE_BINDING, SECRET, SERVICE_ACCOUNT, labels_of, name_of

KINDS = (*WORKLOAD_KINDS, JOB, POD, SECRET, LEASE, SERVICE_ACCOUNT, ROLE_BINDING)
PREFIXES = ("captf-", "tfstate-", "lock-tfstate-")


def leftovers(client: Client, namespace: str) -> list[str]:
    """Everything of CAPTF in the namespace, as ``Kind/name``, by label or by name."""
    found: list[str] = []
    for kind in KINDS:
        for item in client.list(kind, namespace).items:
            managed = labels_of(item).get("captf.io/managed") == "true"
            if kind in WORKLOAD_KINDS or managed or name_of(item).startswith(PREFIXES):
                found.append(f"{kind.kind}/{name_of(item)}")
    return found
