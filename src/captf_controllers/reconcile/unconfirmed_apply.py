"""Remembering an apply of which nobody knows what it did.

The record belongs on the durable inputs Secret, beside what that apply rendered. Where there is none (its
namespace is being deleted, or somebody removed it) the object itself carries it, under the same key: what
cannot be known is not assumed just because there is nowhere to write it down.
"""

from __future__ import annotations

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.api.owner import Owner
from captf_controllers.inputs import records as inputs_records
from captf_controllers.inputs.records import Records
from captf_controllers.reconcile.scope import Scope


def recorded(scope: Scope, records: Records) -> str:
    """The Job of unknown outcome, empty without one.

    What the object itself says counts only when it is the name of an apply Job of the object: a manifest that is
    copied to another name brings the annotations of the first along.
    """
    noted = scope.annotation(keys.UNCONFIRMED_APPLY) or ""
    if names.job_op(scope.kind.kind, scope.name, noted) != "apply":
        noted = ""
    return records.unconfirmed_apply or noted


def record(scope: Scope, records: Records, job: str) -> None:
    """Record the Job; the first record stays until it is cleared."""
    if recorded(scope, records):
        return
    if not inputs_records.record_unconfirmed(scope.client, Owner.of(scope.obj), job):
        scope.annotate(keys.UNCONFIRMED_APPLY, job)


def clear(scope: Scope) -> None:
    """Forget it, wherever it is."""
    inputs_records.clear_unconfirmed(scope.client, Owner.of(scope.obj))
    scope.annotate(keys.UNCONFIRMED_APPLY, None)
