"""Gates: why an object's inputs cannot be built yet."""

from __future__ import annotations

from typing import NamedTuple

from captf_controllers.api import conditions as types
from captf_controllers.observability.observation import Observation


class Gate(NamedTuple):
    """A closed gate, as `DependenciesReady` shows it. The message never holds a value of a variable."""

    status: types.Status
    reason: str
    message: str = ""

    def observation(self) -> Observation:
        """Return what `DependenciesReady` says."""
        return Observation(types.DEPENDENCIES_READY, self.status, self.reason, self.message or self.reason)
