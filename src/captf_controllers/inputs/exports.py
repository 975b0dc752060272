"""A cluster's exports on their way to machines and pools, and a pool's guard against destructive ones."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import names, reasons
from captf_controllers.api.canonical import Json, JsonError, canonical, compact, parse
from captf_controllers.api.hashes import exports_hash
from captf_controllers.api.kinds import TERRAFORM_CLUSTER
from captf_controllers.api.owner import Owner
from captf_controllers.state.cache import StateCache
from captf_controllers.state.outputs import ContractBroken, read_domain_names, read_exports
from captf_controllers.state.reader import read_state
from captf_runtime.client.errors import NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import SECRET, Object, annotations_of, name_of, namespace_of

from .contract import at
from .gate import Gate
from .records import EXPORTS_FILE, DurableRecord, Record, Records
from .rendering import MAX_INPUTS_BYTES

_MAX_SUMMARY: Final = 4096


@dataclass(frozen=True, slots=True)
class ClusterExports:
    """What machines and pools take from their cluster.

    Args:
        exports: the exports with their number literals.
        failure_domains: sorted names of the failure domains; empty for a machine, which takes none.
    """

    exports: Json = field(repr=False)
    failure_domains: tuple[str, ...] = ()


def read_cluster_exports(
    client: Verbs,
    terraform_cluster: Mapping[str, Any],
    cache: StateCache | None,
    *,
    with_domains: bool,
) -> ClusterExports | Gate:
    """Read the exports from the state of a TerraformCluster, never from its status.

    What is not there yet, or is being written, is waited for.

    Args:
        client: a live client.
        terraform_cluster: the TerraformCluster.
        cache: parsed states.
        with_domains: whether the failure domains are wanted as well.

    Raises:
        ApiError: the API server did not answer.
    """
    if keys.MANAGED_BY in annotations_of(terraform_cluster):
        return ClusterExports({}, _status_domains(terraform_cluster) if with_domains else ())
    namespace, name = namespace_of(terraform_cluster), name_of(terraform_cluster)
    suffix = names.state_suffix(namespace, TERRAFORM_CLUSTER.kind, name)
    reading = read_state(client, namespace, suffix, cache)
    if reading.state is None:
        why = reading.message or "it has no state yet"
        return _wait(f"the state of TerraformCluster {name} cannot be read: {why}")
    outputs = reading.state.outputs
    if not outputs:
        return _wait(f"the state of TerraformCluster {name} holds no outputs yet")
    try:
        exports = read_exports(outputs)
    except ContractBroken as error:
        return _wait(f"output exports of TerraformCluster {name} {error}")
    if not with_domains:
        return ClusterExports(exports)
    try:
        return ClusterExports(exports, read_domain_names(outputs))
    except ContractBroken as error:
        return _wait(f"TerraformCluster {name}: {error}")


def _wait(message: str) -> Gate:
    return Gate(types.UNKNOWN, reasons.WAITING_FOR_CLUSTER_EXPORTS, message[:1].upper() + message[1:])


def _status_domains(terraform_cluster: Mapping[str, Any]) -> tuple[str, ...]:
    listed = at(terraform_cluster, "status", "failureDomains")
    found = {
        item["name"]
        for item in (listed if isinstance(listed, list) else ())
        if isinstance(item, Mapping) and isinstance(item.get("name"), str)
    }
    return tuple(sorted(found))


# A pool's guard ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportsDecision:
    """Which exports a pool renders.

    Args:
        exports: the exports to render.
        held: whether these are the recorded ones in place of the cluster's own.
        guarded: whether an apply must stop before a destructive plan.
    """

    exports: Json = field(repr=False)
    held: bool = False
    guarded: bool = False


def decide_exports(
    records: Records,
    current: Json,
    *,
    approval_hash: str,
    ever_applied: bool,
    approved_hashes: Collection[str] = (),
    planned_hashes: Collection[str] | None = None,
) -> ExportsDecision:
    """Decide which exports a pool renders, and whether its apply is guarded. Pure.

    Args:
        records: the pool's records.
        current: the cluster's exports.
        approval_hash: approval hash of the pool's inputs with these exports.
        ever_applied: whether the pool ever applied (marker, digest or provisioned).
        approved_hashes: approval hashes that live, approved plans name.
        planned_hashes: approval hashes that live plans name, approved or not; None to leave them out. A change
            that no plan names is not held: nobody could approve it.
    """
    if not records.any:
        return ExportsDecision(current)
    durable = records.durable
    recorded = _recorded_exports(durable)
    applied = recorded_exports_hash(durable)
    wanted = exports_hash(current)
    pending = durable.pending_exports if durable is not None else None
    partial = durable is not None and durable.partial_exports is not None
    settled = applied == wanted or (not applied and pending is None)
    unknown = not applied and ever_applied
    if settled and not partial and not unknown:
        return ExportsDecision(current)
    if (
        pending is not None
        and pending.exports_hash == wanted
        and not partial
        and recorded is not None
        and approval_hash not in approved_hashes
        and (planned_hashes is None or approval_hash in planned_hashes)
    ):
        return ExportsDecision(recorded.value, held=True)
    return ExportsDecision(current, guarded=True)


@dataclass(frozen=True, slots=True)
class _Recorded:
    value: Json = field(repr=False)


def _recorded_exports(durable: DurableRecord | None) -> _Recorded | None:
    """Return the recorded exports, None when they are missing or not those of the recorded hash."""
    if durable is None or durable.applied_exports is None:
        return None
    try:
        value = parse(durable.applied_exports)
        canonical(value)  # what cannot be hashed as an input cannot be rendered
        found = exports_hash(value)
    except JsonError:
        return None
    if durable.applied_exports_hash and durable.applied_exports_hash != found:
        return None
    return _Recorded(value)


def recorded_exports_hash(durable: DurableRecord | None) -> str:
    """Return the hash of the exports that a pool applied last, "" when it is not known."""
    if durable is None:
        return ""
    if durable.applied_exports_hash:
        return durable.applied_exports_hash
    recorded = _recorded_exports(durable)
    return exports_hash(recorded.value) if recorded is not None else ""


# Bookkeeping of a pool's applies -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PoolApply:
    """A newly finished apply of a pool.

    Args:
        job: its name.
        succeeded: whether it succeeded.
        blocked: whether it stopped before a destructive plan.
        may_have_applied: whether its apply step may have run.
        exports_hash: its `captf.io/cluster-outputs-hash`.
        approval_hash: its `captf.io/approval-hash`, "" when it was not guarded.
        held: whether it rendered the recorded exports in place of the cluster's own.
        summary: addresses and actions of the blocked plan, never a value.
    """

    job: str
    succeeded: bool
    blocked: bool
    may_have_applied: bool
    exports_hash: str
    approval_hash: str
    held: bool
    summary: str = ""


def exports_of_record(record: Record | None) -> Json | None:
    """Return the exports that a record's files render, None when they cannot be read."""
    variables = record.tfvars() if record is not None else None
    return variables.get("captf_cluster_outputs") if variables is not None else None


def record_pool_apply(client: Verbs, owner: Owner, records: Records, apply: PoolApply) -> bool:
    """Remember what a finished apply of a pool means for its exports; say whether anything was written.

    Run after the promotion, with the records read again.

    Raises:
        ApiError: the write failed.
    """
    durable = records.durable
    if durable is None:
        return False
    if apply.succeeded:
        if apply.held:
            return False
        return _record_applied(client, owner, records, apply)
    if not apply.approval_hash:
        return False
    if apply.blocked:
        if apply.exports_hash == recorded_exports_hash(durable):
            return False
        pending = {
            "exportsHash": apply.exports_hash,
            "approvalHash": apply.approval_hash,
            "job": apply.job,
        }
        if apply.summary:
            pending["summary"] = apply.summary[:_MAX_SUMMARY]
        return _patch(client, owner, {keys.PENDING_CLUSTER_OUTPUTS: _json(pending)})
    if apply.may_have_applied and durable.partial_exports is None:
        partial = {"exportsHash": apply.exports_hash, "job": apply.job}
        return _patch(client, owner, {keys.PARTIAL_CLUSTER_OUTPUTS: _json(partial)})
    return False


def record_vanished_pool_apply(
    client: Verbs, owner: Owner, records: Records, job: str, *, ever_applied: bool
) -> bool:
    """Remember that a guarded apply of a pool that vanished may have applied a change of its exports in part.

    The Job is gone, so the attempt record tells what it rendered. Exports that nobody can read any more count as
    changed.

    Args:
        client: a live client.
        owner: the pool.
        records: its records.
        job: the Job that vanished.
        ever_applied: whether the pool ever applied; a first apply changes nothing that was there.

    Returns:
        Whether anything was written.

    Raises:
        ApiError: the write failed.
    """
    durable = records.durable
    if durable is None or durable.job != job or durable.partial_exports is not None:
        return False
    exports, applied = exports_of_record(durable), recorded_exports_hash(durable)
    rendered = exports_hash(exports) if exports is not None else ""
    if not (applied or ever_applied) or (rendered and rendered == applied):
        return False
    partial = {"exportsHash": rendered, "job": job}
    return _patch(client, owner, {keys.PARTIAL_CLUSTER_OUTPUTS: _json(partial)})


def _record_applied(client: Verbs, owner: Owner, records: Records, apply: PoolApply) -> bool:
    durable = records.durable
    source = records.applied if records.applied is not None and records.applied.job == apply.job else None
    if source is None and durable is not None and durable.job == apply.job:
        source = durable
    exports = exports_of_record(source)
    notes: dict[str, str | None] = {
        keys.PENDING_CLUSTER_OUTPUTS: None,
        keys.PARTIAL_CLUSTER_OUTPUTS: None,
        keys.APPLIED_CLUSTER_OUTPUTS_HASH: apply.exports_hash or None,
    }
    data: dict[str, str | None] = {EXPORTS_FILE: None}
    if exports is not None and durable is not None:
        notes[keys.APPLIED_CLUSTER_OUTPUTS_HASH] = exports_hash(exports)
        text = compact(exports).encode()
        if durable.files.size + len(text) <= MAX_INPUTS_BYTES:
            data[EXPORTS_FILE] = base64.b64encode(text).decode()
    return _patch(client, owner, notes, data)


def _json(value: Mapping[str, str]) -> str:
    return msgspec.json.encode(value).decode()


def _patch(
    client: Verbs,
    owner: Owner,
    notes: Mapping[str, str | None],
    data: Mapping[str, str | None] | None = None,
) -> bool:
    patch: Object = {"metadata": {"annotations": dict(notes)}}
    if data is not None:
        patch["data"] = dict(data)
    try:
        client.patch(SECRET, names.durable_inputs_secret(owner.kind, owner.name), patch, owner.namespace)
    except NotFound:
        return False
    return True
