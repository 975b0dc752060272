"""The immutable facts that a deletion is decided from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from captf_controllers.api.workspace import Operation

DeletionPolicy = Literal["Destroy", "Retain"]
HoldReason = Literal[
    "StateLost", "StateCorrupt", "StateEncrypted", "StateInconsistent", "ApplyOutcomeUnknown"
]


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that is being deleted, as far as messages and commands name it.

    ``resource`` is what kubectl takes (``terraformmachine``); ``finalizer`` is CAPTF's own.
    """

    kind: str
    resource: str
    namespace: str
    name: str
    uid: str
    finalizer: str

    def command(self, verb: str, change: str) -> str:
        """A kubectl command on this object that a reader can paste."""
        return f"kubectl {verb} {self.resource} -n {self.namespace} {self.name} {change}"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why no destroy may run: the reason of ``StateReadable`` and what was found.

    ``cause`` names Secrets, chunks, limits and Jobs, never content. ``job`` is the apply Job whose outcome
    is unknown, set with ``ApplyOutcomeUnknown`` alone.
    """

    reason: HoldReason
    cause: str
    job: str = ""


@dataclass(frozen=True, slots=True)
class Dependent:
    """A machine or pool that a TerraformCluster waits for."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class RetainedFinding:
    """Labels ``captf.io/retained-from-uid`` found on the object's Secrets.

    ``foreign_uid`` is the first UID of another object, empty when there is none; ``own`` says that the
    object's own UID was found (a Retain cut short).
    """

    foreign_uid: str = ""
    own: bool = False


@dataclass(frozen=True, slots=True)
class RestoreFinding:
    """What the restore annotation of a held object asks for.

    ``absent``: no annotation. ``not-found``: not a serial, or no complete backup of it. ``consumed``: that
    serial was restored (or failed) already. ``startable``: a restore Job may start. ``message`` says what is
    wrong with a request that was not found.
    """

    state: Literal["absent", "not-found", "consumed", "startable"] = "absent"
    value: str = ""
    serial: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyFacts:
    """What the pass knows before it reads the state.

    ``destroy_succeeded``: the newest finished apply or destroy is a succeeded destroy, or none is retained
    and ``ApplyJobSucceeded`` already says so (a cleanup whose finalizer patch was lost).
    ``cluster_name`` and ``dependents`` matter for a TerraformCluster alone.
    """

    subject: Subject
    destroy_succeeded: bool = False
    cluster_name: str = ""
    dependents: Sequence[Dependent] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that decides what a deleting object does next.

    Preconditions, tested by the pass before it gathers these: CAPTF's finalizer is on the object, it is not
    paused, no Job of it is active, and the caches do not lag.

    ``last_destroy_failure`` is the reason of ``ApplyJobSucceeded`` when the last destroy failed, else empty.
    ``last_destroy_message`` is that condition's message about the Job. ``destroy_backoff`` is the number of
    seconds until the next destroy may start and ``next_attempt`` that time in RFC 3339.
    """

    early: EarlyFacts
    policy: DeletionPolicy = "Destroy"
    adopt_retained: bool = False
    retained: RetainedFinding = RetainedFinding()
    has_state: bool = False
    hold: Hold | None = None
    abandon: str | None = None
    restore: RestoreFinding = RestoreFinding()
    last_destroy_failure: str = ""
    last_destroy_message: str = ""
    destroy_backoff: float = 0.0
    next_attempt: str = ""

    @property
    def subject(self) -> Subject:
        return self.early.subject

    @property
    def abandon_requested(self) -> bool:
        """The annotation equals the UID byte for byte."""
        return self.abandon is not None and self.abandon == self.subject.uid


@dataclass(frozen=True, slots=True)
class CredentialsObstacle:
    """The first of the credential conditions that is not True, when a Job was about to start."""

    condition: str
    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class RefusedObstacle:
    """The API server refused a create because the namespace terminates."""

    rejection: str


@dataclass(frozen=True, slots=True)
class NoInputsObstacle:
    """Neither inputs record exists and nothing renders in its place."""

    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TooLargeObstacle:
    """What would be rendered does not fit a Secret."""

    detail: str


@dataclass(frozen=True, slots=True)
class WaitObstacle:
    """A Job slot, a lease or the operation gate; ``requeue_after`` in seconds."""

    reason: str
    message: str
    requeue_after: float


Obstacle = CredentialsObstacle | RefusedObstacle | NoInputsObstacle | TooLargeObstacle | WaitObstacle

__all__ = [
    "CredentialsObstacle",
    "DeletionPolicy",
    "Dependent",
    "EarlyFacts",
    "Facts",
    "Hold",
    "HoldReason",
    "NoInputsObstacle",
    "Obstacle",
    "Operation",
    "RefusedObstacle",
    "RestoreFinding",
    "RetainedFinding",
    "Subject",
    "TooLargeObstacle",
    "WaitObstacle",
]
