"""What ``Deleting`` says while a deletion waits for something that ends by itself, or for an unpause."""

from __future__ import annotations

from captf_controllers.api.annotations import PAUSED
from captf_controllers.observability.conditions import MAX_NOTE_BYTES, legible
from captf_controllers.observability.observation import Observation

#: How the message of a deletion begins that fails at one of its steps.
FAILED = "The deletion failed at a step and is tried again: "


def job_runs(operation: str, job: str) -> Observation:
    """A Job of the object runs. Retain and abandon act when it has ended."""
    return _deleting(f"The deletion waits for {f'{operation} Job {job}'.lstrip()} to end")


def run_lease_held(holder: str) -> Observation:
    """Nothing is released while a Job may still write under the object's run lease."""
    return _deleting(f"The deletion waits for Job {holder}, which holds the object's run lease, to end")


def failed(why: str) -> Observation:
    """A step of the deletion was refused: somebody has to look at that, and nobody reads the manager's log."""
    return _deleting(f"{FAILED}{legible(why, MAX_NOTE_BYTES)}")


def paused() -> Observation:
    """A paused object is left as it is, whatever was asked of its deletion."""
    return _deleting(
        "Deletion waits until the object is unpaused (the Cluster's spec.paused and the annotation "
        f"{PAUSED}); a paused object never destroys, retains or abandons"
    )


def _deleting(message: str) -> Observation:
    return Observation("Deleting", "True", "Deleting", message)
