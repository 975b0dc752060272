"""What differs between the three kinds, as the shared pass asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from captf_controllers.api.workspace import WorkspaceSpec, WorkspaceStatus
from captf_controllers.decide import Schedule
from captf_controllers.deletion.facts import Dependent
from captf_controllers.observability.observation import Observation
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.scope import Scope
from captf_controllers.reconcile.state_step import StateView
from captf_controllers.state.outputs import OutputFacts, OutputsResult
from captf_runtime.objects import Kind


class Adapter(Protocol):
    """One kind's part of the pass. An adapter holds no state: everything is in the scope."""

    kind: Kind
    spec_type: type[WorkspaceSpec]
    status_type: type[WorkspaceStatus]

    def output_facts(self, scope: Scope, *, applied: bool) -> OutputFacts:
        """What the mapping of outputs needs to know about the object."""

    def publish(self, scope: Scope, outputs: OutputsResult, view: StateView) -> None:
        """Write valid outputs into status and spec, in memory, and say what changed."""

    def provisioned(self, scope: Scope) -> None:
        """The object became provisioned in this pass."""

    def health(self, scope: Scope, outputs: OutputsResult) -> Observation:
        """What ``InfrastructureHealthy`` says about the outputs of a provisioned object."""

    def sampled(self, scope: Scope, health: Observation) -> None:
        """A new reading of the health was taken."""

    def dependents(self, scope: Scope) -> Sequence[Dependent]:
        """What must go before a deleting object, read past the cache and the watch filter."""

    def schedule(self, scope: Scope, config: EffectiveConfig, books: Books) -> Schedule:
        """The facts of refresh and drift."""

    def after(self, scope: Scope, config: EffectiveConfig) -> None:
        """What follows an unpaused pass of a live object whose status was written."""
