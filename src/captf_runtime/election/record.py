"""The record in a Lease, and what a candidate or a leader writes into it: pure functions."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..objects import LEASE, Object, format_micro_time

__all__ = ["Observation", "holder_of", "new_lease", "released", "renewed", "taken_over"]


def _spec(lease: Object) -> dict[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}


def holder_of(lease: Object) -> str:
    """The identity in the record, empty when nobody holds the Lease."""
    holder = _spec(lease).get("holderIdentity")
    return holder if isinstance(holder, str) else ""


def transitions_of(lease: Object) -> int:
    """How often the record says that the holder has changed."""
    transitions = _spec(lease).get("leaseTransitions")
    return transitions if isinstance(transitions, int) else 0


def new_lease(namespace: str, name: str, identity: str, lease_duration: float, now: datetime) -> Object:
    """The Lease that a candidate creates where there is none."""
    time = format_micro_time(now)
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": math.ceil(lease_duration),
            "acquireTime": time,
            "renewTime": time,
            "leaseTransitions": 0,
        },
    }


def taken_over(lease: Object, identity: str, lease_duration: float, now: datetime) -> Object:
    """The Lease as a candidate writes it when it becomes the holder, or comes back as the same one.

    Everything that is not part of taking over survives: unknown fields, labels, annotations.
    """
    time = format_micro_time(now)
    changed = copy.deepcopy(lease)
    spec = changed["spec"] = dict(_spec(changed))
    if holder_of(lease) != identity:
        spec["acquireTime"] = time
        spec["leaseTransitions"] = transitions_of(lease) + 1
    spec["holderIdentity"] = identity
    spec["leaseDurationSeconds"] = math.ceil(lease_duration)
    spec["renewTime"] = time
    return changed


def renewed(lease: Object, now: datetime) -> Object:
    """The Lease as its holder writes it to stay the holder: nothing but the time of renewal changes."""
    changed = copy.deepcopy(lease)
    changed["spec"] = {**_spec(changed), "renewTime": format_micro_time(now)}
    return changed


def released(lease: Object, now: datetime) -> Object:
    """The Lease as its holder leaves it for the next one to take at once."""
    time = format_micro_time(now)
    changed = copy.deepcopy(lease)
    changed["spec"] = {
        **_spec(changed),
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": time,
        "renewTime": time,
    }
    return changed


@dataclass(slots=True)
class Observation:
    """Since when, on this process's own clock, a record has been what it is.

    Clocks of two machines are never compared: what counts is how long this process has seen the record stay
    the same, and the duration that the record itself names. A holder whose clock is off by hours is neither
    robbed nor immortal.
    """

    spec: dict[str, Any] | None = None
    since: float = 0.0

    def see(self, lease: Object, now: float) -> None:
        """Take note of a record read at the monotonic second `now`."""
        spec = _spec(lease)
        if self.spec is None or spec != self.spec:
            self.spec = copy.deepcopy(spec)
            self.since = now

    def expires(self, default_duration: float) -> float:
        """The monotonic second at which the record has been the same for as long as it says.

        Args:
            default_duration: seconds, for a record that names no usable duration.
        """
        duration = (self.spec or {}).get("leaseDurationSeconds")
        if not isinstance(duration, (int, float)) or isinstance(duration, bool) or duration <= 0:
            duration = default_duration
        return self.since + duration
