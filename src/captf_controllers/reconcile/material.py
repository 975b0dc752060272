"""What a Job runs: which files, under which hash, in which image.

An apply runs what the spec says now. A destroy runs what was applied, as recorded, so that neither an edited
spec nor a template change can alter the teardown. Refresh and drift of a mutable object look at the current
inputs when these build; a machine's are always the recorded ones.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from captf_controllers.api import names
from captf_controllers.api.workspace import Operation
from captf_controllers.deletion.facts import NoInputsObstacle
from captf_controllers.inputs.build import Inputs, InputsRequest, gather
from captf_controllers.inputs.gate import Gate
from captf_controllers.inputs.records import Record, Records, choose_record
from captf_controllers.inputs.rendering import BACKEND_ONLY, Files
from captf_controllers.jobs.images import choose_image
from captf_controllers.reconcile.scope import Scope
from captf_controllers.reconcile.state_step import StateView
from captf_controllers.state.backups import BackupSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The content of one Job.

    ``inputs_hash`` is what its name and its annotation carry. ``mismatch`` explains a destroy whose recorded
    inputs are not those of the state. ``unpinned`` says that the image had to be taken by its reference.
    """

    files: Files
    inputs_hash: str
    image: str
    fallbacks: tuple[str, ...] = ()
    mismatch: str = ""
    unpinned: bool = False
    inputs: Inputs | None = None
    record: Record | None = None
    backup: BackupSet | None = None


def build_inputs(
    scope: Scope,
    records: Records,
    *,
    owner_gate: Gate | None = None,
    provisioned: bool = False,
    approved_hashes: Collection[str] = (),
    planned_hashes: Collection[str] | None = None,
) -> Inputs:
    """Build the inputs as the object and its owners make them now.

    The keyword arguments are those of ``InputsRequest``; by default the inputs build whatever gate is closed.
    """
    request = InputsRequest(
        obj=scope.obj,
        spec=scope.spec,
        cluster=scope.owners.cluster,
        owner_object=scope.owners.owner,
        terraform_cluster=scope.owners.terraform_cluster,
        owner_gate=owner_gate,
        records=records,
        provisioned=provisioned,
        approved_hashes=approved_hashes,
        planned_hashes=planned_hashes,
    )
    return gather(scope.client, request, scope.env.states)


def choose(
    scope: Scope,
    operation: Operation,
    records: Records,
    view: StateView,
    *,
    inputs: Inputs | None,
    backup: BackupSet | None = None,
) -> Material | NoInputsObstacle:
    """The material of ``operation``, or what is missing.

    ``inputs`` are the current inputs as far as the pass built them. ``backup`` belongs to a restore.
    """
    if operation == "restore":
        assert backup is not None
        return _recorded_image(scope, records, BACKEND_ONLY, backup.inputs_hash, backup=backup, record=None)
    if operation in ("apply", "plan"):
        return _apply(scope, records, inputs)
    built = inputs is not None and inputs.result is not None
    if operation in ("refresh", "drift") and scope.mutable and built:
        return _from_inputs(scope, records, view, inputs)
    choice = choose_record(records, view.inputs_hash)
    if choice is not None:
        return _recorded_image(
            scope,
            records,
            choice.record.files,
            view.inputs_hash,
            mismatch=choice.why if choice.mismatch else "",
            record=choice.record,
        )
    if scope.mutable and built:
        return _from_inputs(scope, records, view, inputs)
    return missing(scope)


def missing(scope: Scope) -> NoInputsObstacle:
    """Neither record exists and nothing renders in its place."""
    return NoInputsObstacle(
        (
            names.durable_inputs_secret(scope.kind.kind, scope.name),
            names.applied_inputs_secret(scope.kind.kind, scope.name),
        )
    )


def _apply(scope: Scope, records: Records, inputs: Inputs | None) -> Material | NoInputsObstacle:
    if inputs is not None and inputs.result is not None:
        result = inputs.result
        return Material(
            files=result.files, inputs_hash=result.hash, image=scope.spec.source.image, inputs=inputs
        )
    record = records.to_apply_again
    if record is None:
        return missing(scope)
    image = records.pinned_digest or record.image or scope.spec.source.image
    return Material(files=record.files, inputs_hash=record.inputs_hash, image=image, record=record)


def _from_inputs(
    scope: Scope, records: Records, view: StateView, inputs: Inputs | None
) -> Material | NoInputsObstacle:
    assert inputs is not None
    assert inputs.result is not None
    return _recorded_image(scope, records, inputs.result.files, view.inputs_hash, inputs=inputs, record=None)


def _recorded_image(
    scope: Scope,
    records: Records,
    files: Files,
    inputs_hash: str,
    *,
    record: Record | None,
    mismatch: str = "",
    inputs: Inputs | None = None,
    backup: BackupSet | None = None,
) -> Material | NoInputsObstacle:
    """The pinned digest, else the record's reference, else (never for a machine) the spec's."""
    known = record or records.applied or records.durable
    spec_image = scope.spec.source.image if scope.mutable or known is None else ""
    choice = choose_image(
        records.pinned_digest,
        known.image if known is not None else "",
        spec_image,
        records.unpullable_images,
    )
    if choice is None:
        return missing(scope)
    return Material(
        files=files,
        inputs_hash=inputs_hash,
        image=choice.image,
        fallbacks=choice.fallbacks,
        mismatch=mismatch,
        unpinned=not records.pinned_digest,
        inputs=inputs,
        record=record,
        backup=backup,
    )
