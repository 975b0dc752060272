"""The state Secrets themselves, for what the runtime cannot do.

No runtime initialises against a state that it cannot read, and one that initialises where there is none
leaves an empty state, which a run that ends there would leave for a state like any other. A restore over a
missing or unreadable state therefore writes the backup's payload into the Secrets first, where the runtime
then finds it; and every other run asks here whether the state is still the one that it was started for.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from captf_controllers.runner.restoration import lineage_of
from captf_controllers.runner.service_account import ServiceAccount

_TIMEOUT = 30.0
_LABEL = re.compile(r'"((?:[^"\\]|\\.)*)"="((?:[^"\\]|\\.)*)"')
_LOCK_INFO = "app.terraform.io/lock-info"


class StateSecretsError(Exception):
    """The Secrets could not be read or written. The text quotes nothing of them."""


@dataclass(frozen=True, slots=True)
class StateSecrets:
    """The Secrets that one state is kept in.

    Args:
        account: who asks.
        namespace: where they are.
        suffix: the backend's `secret_suffix`.
        labels: the backend's label map.
    """

    account: ServiceAccount
    namespace: str
    suffix: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, account: ServiceAccount, backend_config: Sequence[str]) -> StateSecrets | None:
        """What the backend is configured to use; None when that is no state in this cluster."""
        values = dict(item.split("=", 1) for item in backend_config if "=" in item)
        if values.get("in_cluster_config") != "true" or not values.get("secret_suffix"):
            return None
        labels = dict(_LABEL.findall(values.get("labels", "")))
        return cls(account, values.get("namespace") or "default", values["secret_suffix"], labels)

    @property
    def base(self) -> str:
        return f"tfstate-default-{self.suffix}"

    def present(self) -> list[dict[str, Any]]:
        """Every Secret with the backend's labels for this state.

        Raises:
            StateSecretsError: they could not be listed.
        """
        selector = f"tfstate=true,tfstateSecretSuffix={self.suffix},tfstateWorkspace=default"
        found = self._ask("GET", f"{self._secrets}?labelSelector={quote(selector, safe='')}", "listed")
        items: list[dict[str, Any]] = (found or {}).get("items") or []
        return items

    def lineage(self, secrets: Sequence[Mapping[str, Any]]) -> str | None:
        """Lineage of the one state that the Secrets hold in their order; None when no runtime could read one."""
        pieces: dict[int, bytes] = {}
        for secret in secrets:
            index = self._index(secret["metadata"]["name"])
            data = (secret.get("data") or {}).get("tfstate")
            if index is None or data is None:
                return None
            pieces[index] = base64.b64decode(data)
        if sorted(pieces) != list(range(len(secrets))):
            return None
        return lineage_of([pieces[index] for index in sorted(pieces)])

    def lock_holder(self) -> str:
        """The ID of the lock on the state; empty when it is free.

        Raises:
            StateSecretsError: the lock could not be read.
        """
        path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(self.namespace, safe='')}/leases"
        lease = self._ask("GET", f"{path}/lock-{self.base}", "read", missing_ok=True) or {}
        holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
        if not holder:
            return ""
        try:
            info = json.loads((lease["metadata"].get("annotations") or {})[_LOCK_INFO])
            return str(info["ID"]) or holder
        except (KeyError, ValueError, TypeError):
            return holder

    def replace(self, secrets: Sequence[Mapping[str, Any]], pieces: Sequence[bytes]) -> None:
        """Make the Secrets hold these pieces and nothing else.

        The base comes last: until then the state reads as incomplete, never as another one.

        Raises:
            StateSecretsError: a write failed; what was written stays, and reads as incomplete.
        """
        present = {str(secret["metadata"]["name"]): secret for secret in secrets}
        names = [self.base, *(f"{self.base}-part-{index}" for index in range(1, len(pieces)))]
        for name in sorted(present.keys() - set(names)):
            self._ask("DELETE", f"{self._secrets}/{quote(name, safe='')}", "deleted", missing_ok=True)
        for name, piece in reversed(list(zip(names, pieces, strict=True))):
            data = {"tfstate": base64.b64encode(piece).decode()}
            if name in present:
                body = {**present[name], "apiVersion": "v1", "kind": "Secret", "data": data}
                self._ask("PUT", f"{self._secrets}/{name}", "written", body)
            else:
                self._ask("POST", self._secrets, "written", self._secret(name, data))

    @property
    def _secrets(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/secrets"

    def _secret(self, name: str, data: Mapping[str, str]) -> dict[str, Any]:
        """A Secret as the backend makes it."""
        own = {
            "tfstate": "true",
            "tfstateSecretSuffix": self.suffix,
            "tfstateWorkspace": "default",
            "app.kubernetes.io/managed-by": "terraform",
        }
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {**self.labels, **own},
                "annotations": {"encoding": "gzip"},
            },
            "type": "Opaque",
            "data": data,
        }

    def _index(self, name: str) -> int | None:
        if name == self.base:
            return 0
        found = re.fullmatch(re.escape(self.base) + r"-part-([1-9]\d{0,3})", name, re.ASCII)
        return int(found[1]) if found else None

    def _ask(
        self, method: str, path: str, what: str, body: object = None, *, missing_ok: bool = False
    ) -> dict[str, Any] | None:
        try:
            sent = json.dumps(body).encode() if body is not None else b""
            status, answer = self.account.request(method, path, sent, timeout=_TIMEOUT)
            if 200 <= status < 300:
                document: dict[str, Any] = json.loads(answer)
                return document
        except (OSError, http.client.HTTPException, ValueError) as error:
            name = type(error).__name__
            raise StateSecretsError(f"the state's Secrets could not be {what}: {name}") from None
        if status == http.HTTPStatus.NOT_FOUND and missing_ok:
            return None
        raise StateSecretsError(f"the state's Secrets could not be {what}: the API server answered {status}")
