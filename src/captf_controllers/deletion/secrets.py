"""The Secrets that CAPTF keeps for one object, found the way a deletion must find them.

State and backups by the selector of the suffix, the inputs records and the plan key by name: never by owner
reference, which a move, a restore by hand or a crash may have left wrong. Metadata only: a deletion never
needs a payload here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from captf_controllers.api import names
from captf_controllers.deletion.retain import AdoptionStep
from captf_runtime.client.errors import NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import SECRET, Object, name_of


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """The identity of the object that Secret names derive from."""

    kind: str
    namespace: str
    name: str

    @property
    def suffix(self) -> str:
        return names.state_suffix(self.namespace, self.kind, self.name)

    @property
    def state_selector(self) -> str:
        return names.state_selector(self.suffix)

    @property
    def backup_selector(self) -> str:
        return names.backup_selector(self.suffix)


@dataclass(frozen=True, slots=True)
class KeptSecrets:
    """The metadata of everything that Retain keeps."""

    states: tuple[Object, ...]
    backups: tuple[Object, ...]
    durable: tuple[Object, ...]
    applied: tuple[Object, ...]

    @property
    def inputs(self) -> tuple[Object, ...]:
        return self.durable + self.applied

    def without(self, left_out: Callable[[Object], bool]) -> KeptSecrets:
        """The same but for some of them."""
        parts = (self.states, self.backups, self.durable, self.applied)
        return KeptSecrets(*(tuple(secret for secret in part if not left_out(secret)) for part in parts))

    def by_adoption_step(self, base: str) -> dict[AdoptionStep, tuple[Object, ...]]:
        return {
            "backups": self.backups,
            "applied": self.applied,
            "durable": self.durable,
            "chunks": tuple(secret for secret in self.states if name_of(secret) != base),
            "base": tuple(secret for secret in self.states if name_of(secret) == base),
        }


def list_states(client: Verbs, target: ObjectNames) -> list[Object]:
    """The metadata of every state chunk, in the order of the API server (by name)."""
    listed = client.list(SECRET, target.namespace, label_selector=target.state_selector, metadata_only=True)
    return listed.items


def list_backups(client: Verbs, target: ObjectNames) -> list[Object]:
    """The metadata of every backup chunk, complete sets or not."""
    listed = client.list(SECRET, target.namespace, label_selector=target.backup_selector, metadata_only=True)
    return listed.items


def find_kept(client: Verbs, target: ObjectNames) -> KeptSecrets:
    """Everything that Retain keeps and adoption takes over."""
    return KeptSecrets(
        states=tuple(list_states(client, target)),
        backups=tuple(list_backups(client, target)),
        durable=_by_name(client, target.namespace, names.durable_inputs_secret(target.kind, target.name)),
        applied=_by_name(client, target.namespace, names.applied_inputs_secret(target.kind, target.name)),
    )


def _by_name(client: Verbs, namespace: str, name: str) -> tuple[Object, ...]:
    try:
        return (client.get(SECRET, name, namespace, metadata_only=True),)
    except NotFound:
        return ()
