"""The outputs side of the module contract: from the outputs in a state to fields of an object. Pure.

Output values may be secret: no message quotes one, it names the output and what is wrong with it.

Terraform and OpenTofu drop a root output that is null from the state. So an absent output that may be null
is null; an absent one that may not be null breaks the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.canonical import Json, JsonError, canonical, compact, parse
from captf_controllers.api.cluster import MAX_EXPORTS_BYTES, Endpoint, FailureDomain
from captf_controllers.api.machine import AddressType, MachineAddress
from captf_controllers.api.machinepool import MAX_INSTANCES, MAX_PROVIDER_IDS, InstanceState, PoolInstance
from captf_controllers.observability.observation import Observation

from .reading import Output

T = TypeVar("T")

HEALTH_STATES: Final[tuple[InstanceState, ...]] = (
    "pending",
    "running",
    "degraded",
    "stopped",
    "terminated",
    "unknown",
)
ADDRESS_ORDER: Final[tuple[AddressType, ...]] = (
    "InternalIP",
    "InternalDNS",
    "ExternalIP",
    "ExternalDNS",
    "Hostname",
)
MAX_FAILURE_DOMAINS: Final = 100
MAX_ADDRESSES: Final = 256


class ContractBroken(ValueError):
    """An output does not have the shape that the contract asks for; the message quotes no value."""


@dataclass(frozen=True, slots=True)
class Health:
    """The common output `health`."""

    state: InstanceState
    healthy: bool
    message: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """What the object says that its outputs are compared with.

    Args:
        provider_id: `spec.providerID` of a machine, "" while it is empty.
        failure_domain: the domain that the Machine asks for, "" for none.
        applied: whether the state bears an inputs hash, so that a module run wrote it whole.
    """

    provider_id: str = ""
    failure_domain: str = ""
    applied: bool = True


@dataclass(frozen=True, slots=True)
class ClusterOutputs:
    """Outputs of a cluster module; None where an output breaks the contract and the object keeps its own.

    Args:
        endpoint: the endpoint, None also when the output is null.
        failure_domains: the domains, empty when the output is null.
        exports: the exports for `status.exports`: builtin values, without null members; None when they are
            too large or broken (see `exports_size`).
        exports_size: bytes of the compact form; 0 when the output breaks the contract.
    """

    endpoint: Endpoint | None = None
    failure_domains: tuple[FailureDomain, ...] | None = None
    exports: Any = field(default=None, repr=False)
    exports_size: int = 0

    @property
    def exports_valid(self) -> bool:
        """Whether the output keeps the contract, so that `status.exports` follows it."""
        return self.exports_size > 0

    @property
    def exports_too_large(self) -> bool:
        """Whether `status.exports` is cleared because the exports exceed its limit."""
        return self.exports_size > MAX_EXPORTS_BYTES


@dataclass(frozen=True, slots=True)
class MachineOutputs:
    """Outputs of a machine module; None where an output breaks the contract and the object keeps its own.

    Args:
        provider_id: the identifier, "" when the output is null or empty.
        addresses: in canonical order.
        failure_domain: "" when the output is null.
        interruptible: False when the output is null.
    """

    provider_id: str | None = None
    addresses: tuple[MachineAddress, ...] | None = None
    failure_domain: str | None = None
    interruptible: bool | None = None


@dataclass(frozen=True, slots=True)
class PoolOutputs:
    """Outputs of a pool module; None where an output breaks the contract and the object keeps its own.

    Args:
        provider_id: the group's identifier, "" when the output is null.
        provider_id_list: sorted, without duplicates.
        replicas: the observed replicas.
        instances: the first thousand members.
        instance_count: how many members the module listed.
    """

    provider_id: str | None = None
    provider_id_list: tuple[str, ...] | None = None
    replicas: int | None = None
    instances: tuple[PoolInstance, ...] | None = None
    instance_count: int = 0


@dataclass(frozen=True, slots=True)
class OutputsResult:
    """What the outputs of a state come to.

    Args:
        condition: what `OutputsValid` says.
        health: the reported health, None when it is null, absent or broken.
        contract_kept: whether every output of the contract is there and has its shape.
        complete: whether what provisioning needs is non-null.
        cluster, machine, pool: the outputs of the object's role; the others are None.
    """

    condition: Observation
    health: Health | None
    contract_kept: bool
    complete: bool
    cluster: ClusterOutputs | None = None
    machine: MachineOutputs | None = None
    pool: PoolOutputs | None = None

    @property
    def provisions(self) -> bool:
        """Whether these outputs let the object become provisioned, given a state with an inputs hash."""
        return (
            self.contract_kept
            and self.complete
            and self.health is not None
            and self.health.state != "pending"
        )


class _Collector:
    """Reads outputs and collects what is wrong with them."""

    def __init__(self, outputs: Mapping[str, Output]) -> None:
        self._outputs = outputs
        self.missing: list[str] = []
        self.invalid: list[str] = []
        self.pending: list[str] = []

    def read(self, name: str, check: Callable[[Any], T], *, null: Callable[[], T] | None = None) -> T | None:
        """Return the checked value; `null` makes the value of a null output, without it null is broken."""
        output = self._outputs.get(name)
        if output is None and null is None:
            self.missing.append(f"output {name} is missing: the module must declare it with a value")
            return None
        try:
            value = None if output is None else decode(output.value)
            if value is None:
                if null is None:
                    raise ContractBroken("must not be null")
                return null()
            return check(value)
        except ContractBroken as error:
            self.invalid.append(f"output {name} {error}")
            return None

    @property
    def kept(self) -> bool:
        return not self.missing and not self.invalid


def decode(value: bytes) -> Any:
    """Return an output's value as builtin values.

    Raises:
        ContractBroken: it is nested too deeply.
    """
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ContractBroken("is not readable: it is nested too deeply or damaged") from None


def map_outputs(kind: str, outputs: Mapping[str, Output], facts: OutputFacts) -> OutputsResult:
    """Map the outputs of a state to the fields of an object.

    Args:
        kind: the object's kind.
        outputs: root outputs of the state.
        facts: what the object says.

    Raises:
        ValueError: the kind has no module role.
    """
    if not outputs and not facts.applied:
        # The backend may write an empty state before the first apply ends, and a destroy leaves one.
        condition = Observation(
            types.OUTPUTS_VALID, types.UNKNOWN, reasons.OUTPUTS_PENDING, "The state holds no outputs yet"
        )
        return OutputsResult(condition, None, contract_kept=False, complete=False)
    match kind:
        case "TerraformCluster":
            return _map_cluster(_Collector(outputs), outputs)
        case "TerraformMachine":
            return _map_machine(_Collector(outputs), facts)
        case "TerraformMachinePool":
            return _map_pool(_Collector(outputs))
        case _:
            raise ValueError(f"unknown kind {kind!r}: only the workload kinds have outputs")


def _condition(
    collector: _Collector,
    *,
    mismatch: str = "",
    changed: str = "",
    truncated: str = "",
) -> Observation:
    ranked = (
        (types.FALSE, reasons.OUTPUTS_MISSING, collector.missing),
        (types.FALSE, reasons.OUTPUTS_INVALID, collector.invalid),
        (types.FALSE, reasons.FAILURE_DOMAIN_MISMATCH, [mismatch] if mismatch else []),
        (types.FALSE, reasons.PROVIDER_ID_CHANGED, [changed] if changed else []),
        (types.UNKNOWN, reasons.OUTPUTS_PENDING, collector.pending),
        (types.TRUE, reasons.INSTANCES_TRUNCATED, [truncated] if truncated else []),
    )
    message = "; ".join(problem for _, _, problems in ranked for problem in problems)
    for status, reason, problems in ranked:
        if problems:
            return Observation(types.OUTPUTS_VALID, status, reason, message)
    return Observation(types.OUTPUTS_VALID, types.TRUE, reasons.OUTPUTS_VALID, "")


# Cluster -------------------------------------------------------------------------------------------


def _map_cluster(collector: _Collector, outputs: Mapping[str, Output]) -> OutputsResult:
    endpoint = collector.read("control_plane_endpoint", _endpoint, null=lambda: Endpoint())
    domains = collector.read("failure_domains", failure_domains, null=lambda: ())
    exports: Any = None
    size = 0
    try:
        value = read_exports(outputs)
        size = len(compact(value).encode())
        exports = _builtin(value) if size <= MAX_EXPORTS_BYTES else None
    except ContractBroken as error:
        collector.invalid.append(f"output exports {error}")
    health = collector.read("health", _health)
    return OutputsResult(
        _condition(collector),
        health,
        contract_kept=collector.kept,
        complete=True,
        cluster=ClusterOutputs(
            endpoint if endpoint is not None and endpoint.complete else None, domains, exports, size
        ),
    )


def read_exports(outputs: Mapping[str, Output]) -> Json:
    """Return the exports of a cluster's state with their number literals; null and absent are `{}`.

    Raises:
        ContractBroken: they are nested too deeply, or hold a number that cannot be hashed.
    """
    output = outputs.get("exports")
    if output is None:
        return {}
    try:
        value = parse(output.value)
        canonical(value)
    except JsonError as error:
        raise ContractBroken(
            f"cannot be passed on: {error}; write such a number as a string"
            if "fraction" in str(error)
            else f"cannot be passed on: {error}"
        ) from None
    return {} if value is None else value


def read_domain_names(outputs: Mapping[str, Output]) -> tuple[str, ...]:
    """Return the sorted names of the failure domains of a cluster's state.

    Raises:
        ContractBroken: the output does not have its shape.
    """
    output = outputs.get("failure_domains")
    value = None if output is None else decode(output.value)
    if value is None:
        return ()
    try:
        return tuple(sorted(domain.name for domain in failure_domains(value)))
    except ContractBroken as error:
        raise ContractBroken(f"output failure_domains {error}") from None


def _builtin(value: Json) -> Any:
    """Return exports as `status.exports` holds them: builtin values, without members that are null.

    A merge patch cannot write a null member: it would remove it, and every pass would try again.
    """
    return _without_nulls(msgspec.json.decode(compact(value)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _endpoint(value: Any) -> Endpoint:
    attributes = _object(value)
    return Endpoint(
        host=_text(attributes, "host", 512),
        port=_integer(_required(attributes, "port"), "attribute port", 1, 65535),
    )


def failure_domains(value: Any) -> tuple[FailureDomain, ...]:
    """Check the value of the output `failure_domains`.

    Raises:
        ContractBroken: it does not have its shape.
    """
    domains = tuple(_at(index, _failure_domain, item) for index, item in enumerate(_list(value)))
    if len(domains) > MAX_FAILURE_DOMAINS:
        raise ContractBroken(f"has {len(domains)} entries, more than {MAX_FAILURE_DOMAINS}")
    if len({domain.name for domain in domains}) != len(domains):
        raise ContractBroken("names a failure domain twice")
    return domains


def _failure_domain(value: Any) -> FailureDomain:
    attributes = _object(value)
    control_plane = attributes.get("control_plane")
    extra = attributes.get("attributes")
    if extra is not None:
        extra = {
            key: _plain_text(item, f"attribute attributes.{_shown(key)}")
            for key, item in _object(extra).items()
        }
    return FailureDomain(
        name=_text(attributes, "name", 256),
        control_plane=True if control_plane is None else _boolean(control_plane, "attribute control_plane"),
        attributes=extra or None,
    )


# Machine -------------------------------------------------------------------------------------------


def _map_machine(collector: _Collector, facts: OutputFacts) -> OutputsResult:
    provider_id = collector.read("provider_id", _provider_id, null=lambda: "")
    addresses = collector.read("addresses", _addresses)
    domain = collector.read("failure_domain", _domain_name, null=lambda: "")
    interruptible = collector.read("interruptible", lambda value: _boolean(value, "it"), null=lambda: False)
    health = collector.read("health", _health)
    changed = mismatch = ""
    if provider_id == "":
        collector.pending.append("output provider_id is not known yet")
    elif provider_id is not None and facts.provider_id and provider_id != facts.provider_id:
        changed = "output provider_id differs from spec.providerID, which is kept"
    if facts.failure_domain and domain is not None and domain != facts.failure_domain:
        found = "is null" if not domain else "is another one"
        mismatch = (
            f"the Machine asks for failure domain {facts.failure_domain}; output failure_domain {found}"
        )
    return OutputsResult(
        _condition(collector, mismatch=mismatch, changed=changed),
        health,
        contract_kept=collector.kept,
        complete=bool(provider_id),
        machine=MachineOutputs(provider_id, addresses, domain, interruptible),
    )


def _provider_id(value: Any) -> str:
    return _bounded(value, "it", 0, 512)


def _domain_name(value: Any) -> str:
    return _bounded(value, "it", 1, 256)


def _addresses(value: Any) -> tuple[MachineAddress, ...]:
    listed = _list(value)
    if len(listed) > MAX_ADDRESSES:
        raise ContractBroken(f"has {len(listed)} entries, more than {MAX_ADDRESSES}")
    found = [_at(index, _address, item) for index, item in enumerate(listed)]
    return tuple(sorted(found, key=lambda item: (ADDRESS_ORDER.index(item.type), item.address)))


def _address(value: Any) -> MachineAddress:
    attributes = _object(value)
    kind = _plain_text(_required(attributes, "type"), "attribute type")
    if kind not in ADDRESS_ORDER:
        raise ContractBroken(f"has an attribute type that is none of {', '.join(ADDRESS_ORDER)}")
    return MachineAddress(type=kind, address=_text(attributes, "address", 256))


# Pool ----------------------------------------------------------------------------------------------


def _map_pool(collector: _Collector) -> OutputsResult:
    provider_id = collector.read("provider_id", _provider_id, null=lambda: "")
    members = collector.read("provider_id_list", _provider_ids)
    replicas = collector.read("replicas", lambda value: _integer(value, "it", 0, 2**31 - 1))
    listed = collector.read("instances", _instances)
    health = collector.read("health", _health)
    count = len(listed) if listed is not None else 0
    truncated = (
        f"output instances has {count} entries; status.instances holds the first {MAX_INSTANCES}"
        if count > MAX_INSTANCES
        else ""
    )
    return OutputsResult(
        _condition(collector, truncated=truncated),
        health,
        contract_kept=collector.kept,
        complete=True,
        pool=PoolOutputs(
            provider_id,
            members,
            replicas,
            listed[:MAX_INSTANCES] if listed is not None else None,
            count,
        ),
    )


def _provider_ids(value: Any) -> tuple[str, ...]:
    listed = _list(value)
    found = {_at(index, lambda item: _bounded(item, "it", 1, 512), item) for index, item in enumerate(listed)}
    if len(found) > MAX_PROVIDER_IDS:
        raise ContractBroken(f"has {len(found)} entries, more than {MAX_PROVIDER_IDS}")
    return tuple(sorted(found))


def _instances(value: Any) -> tuple[PoolInstance, ...]:
    return tuple(_at(index, _instance, item) for index, item in enumerate(_list(value)))


def _instance(value: Any) -> PoolInstance:
    attributes = _object(value)
    state = attributes.get("state")
    if state is not None and state not in HEALTH_STATES:
        raise ContractBroken(f"has an attribute state that is none of {', '.join(HEALTH_STATES)}")
    addresses = attributes.get("addresses")
    return PoolInstance(
        provider_id=_text(attributes, "provider_id", 512),
        instance_id=_optional_text(attributes, "instance_id", 256),
        addresses=(_addresses(addresses) or None) if addresses is not None else None,
        failure_domain=_optional_text(attributes, "failure_domain", 256),
        state=state,
    )


# Health --------------------------------------------------------------------------------------------


def _health(value: Any) -> Health:
    attributes = _object(value)
    state = _plain_text(_required(attributes, "state"), "attribute state")
    if state not in HEALTH_STATES:
        raise ContractBroken(f"has an attribute state that is none of {', '.join(HEALTH_STATES)}")
    message = attributes.get("message")
    listed = attributes.get("reasons")
    return Health(
        state=state,
        healthy=_boolean(_required(attributes, "healthy"), "attribute healthy"),
        message="" if message is None else _plain_text(message, "attribute message"),
        reasons=()
        if listed is None
        else tuple(_plain_text(item, "an entry of attribute reasons") for item in _list(listed)),
    )


def health_observation(health: Health | None) -> Observation:
    """Return what `InfrastructureHealthy` says of a reported health; None is an unknown one."""
    if health is None:
        return _healthy(types.UNKNOWN, reasons.HEALTH_UNKNOWN, "")
    message = health.message
    if health.reasons:
        listed = f"reasons: {', '.join(health.reasons)}"
        message = f"{message}; {listed}" if message else listed
    match health.state:
        case "running" if health.healthy:
            return _healthy(types.TRUE, reasons.HEALTHY, message)
        case "running":
            return _healthy(types.FALSE, reasons.INSTANCE_UNHEALTHY, message)
        case "pending":
            return _healthy(types.FALSE, reasons.INSTANCE_PENDING, message)
        case "degraded":
            return _healthy(types.FALSE, reasons.INSTANCE_DEGRADED, message)
        case "stopped":
            return _healthy(types.FALSE, reasons.INSTANCE_STOPPED, message)
        case "terminated":
            return _healthy(types.FALSE, reasons.INSTANCE_TERMINATED, message)
        case _:
            return _healthy(types.UNKNOWN, reasons.HEALTH_UNKNOWN, message)


def _healthy(status: types.Status, reason: str, message: str) -> Observation:
    return Observation(types.INFRASTRUCTURE_HEALTHY, status, reason, message or reason)


# Shapes --------------------------------------------------------------------------------------------


def _at(index: int, check: Callable[[Any], T], value: Any) -> T:
    try:
        return check(value)
    except ContractBroken as error:
        raise ContractBroken(f"is broken at entry {index}: {error}") from None


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ContractBroken(f"must be an object, not {_named(value)}")
    return value


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ContractBroken(f"must be a list, not {_named(value)}")
    return value


def _required(attributes: Mapping[str, Any], name: str) -> Any:
    value = attributes.get(name)
    if value is None:
        raise ContractBroken(f"lacks the attribute {name}")
    return value


def _text(attributes: Mapping[str, Any], name: str, longest: int) -> str:
    return _bounded(_required(attributes, name), f"attribute {name}", 1, longest)


def _optional_text(attributes: Mapping[str, Any], name: str, longest: int) -> str | None:
    value = attributes.get(name)
    return None if value is None else _bounded(value, f"attribute {name}", 0, longest) or None


def _bounded(value: Any, what: str, shortest: int, longest: int) -> str:
    text = _plain_text(value, what)
    if not shortest <= len(text) <= longest:
        raise ContractBroken(
            f"must hold in {what} {shortest} to {longest} characters, not {len(text)}"
            if what != "it"
            else f"must have {shortest} to {longest} characters, not {len(text)}"
        )
    return text


def _plain_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ContractBroken(_wrong_type(what, "a string", value))
    return value


def _boolean(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise ContractBroken(_wrong_type(what, "true or false", value))
    return value


def _integer(value: Any, what: str, lowest: int, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ContractBroken(_wrong_type(what, "a whole number", value))
    if not lowest <= value <= highest:
        raise ContractBroken(
            f"must be between {lowest} and {highest}"
            if what == "it"
            else f"must hold in {what} a number between {lowest} and {highest}"
        )
    return int(value)


def _wrong_type(what: str, wanted: str, value: Any) -> str:
    found = _named(value)
    return f"must be {wanted}, not {found}" if what == "it" else f"must hold in {what} {wanted}, not {found}"


def _named(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int():
            return "a number"
        case float():
            return "a fraction" if value != value // 1 else "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def _shown(key: str) -> str:
    return key if key.isidentifier() and len(key) <= 64 else "…"
