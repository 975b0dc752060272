"""What a decision says about one condition type, before it is written.

A stored condition also carries the time of its last transition and the generation; those belong to the
write, so that decisions stay pure and compare equal.
"""

from __future__ import annotations

from typing import NamedTuple

from captf_controllers.api.conditions import Status


class Observation(NamedTuple):
    """A condition type with the status, reason and message that it is to have."""

    type: str
    status: Status
    reason: str
    message: str = ""
