"""What tells the six operations apart when a Job of theirs wants to start."""

from __future__ import annotations

from typing import Final

from captf_controllers.api.workspace import Operation

__all__ = ["BACKGROUND", "FALLBACK_OPS", "MUTATING", "UNCHECKED_POLICY", "condition_type"]

MUTATING: Final[frozenset[str]] = frozenset({"apply", "destroy", "restore"})
"""Operations that take part in the operation gate."""

BACKGROUND: Final[frozenset[str]] = frozenset({"refresh", "drift"})
"""Operations that leave a part of the Job slots to the others."""

FALLBACK_OPS: Final[frozenset[str]] = frozenset({"destroy", "refresh", "drift", "restore"})
"""Operations that run a recorded image, and another known one when that cannot be pulled."""

UNCHECKED_POLICY: Final[frozenset[str]] = frozenset({"destroy", "restore"})
"""Operations that start even when the merged Job policy contradicts itself."""

_CONDITIONS: Final[dict[Operation, str]] = {
    "apply": "ApplyJobSucceeded",
    "destroy": "ApplyJobSucceeded",
    "plan": "ApplyJobSucceeded",
    "refresh": "DriftJobSucceeded",
    "drift": "DriftJobSucceeded",
    "restore": "RestoreJobSucceeded",
}


def condition_type(op: Operation) -> str:
    """The condition that reports the operation's Jobs, and what the next one waits for."""
    return _CONDITIONS[op]
