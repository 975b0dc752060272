"""Outputs of a module become fields of an object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captf_controllers.api.canonical import compact
from captf_controllers.api.cluster import Endpoint
from captf_controllers.state.outputs import (
    Health,
    OutputFacts,
    OutputsResult,
    health_observation,
    map_outputs,
    read_domain_names,
    read_exports,
)
from captf_controllers.state.reading import Output

RUNNING = {"state": "running", "healthy": True}
CLUSTER = {
    "control_plane_endpoint": {"host": "api.example.com", "port": 6443},
    "failure_domains": [{"name": "b", "control_plane": False, "attributes": {"k": "v"}}, {"name": "a"}],
    "exports": {"network_id": "net-1"},
    "health": RUNNING,
}
MACHINE = {
    "provider_id": "noop:///ns/m1",
    "addresses": [
        {"type": "Hostname", "address": "h"},
        {"type": "InternalIP", "address": "10.0.0.2"},
        {"type": "ExternalIP", "address": "1.2.3.4"},
        {"type": "InternalIP", "address": "10.0.0.1"},
    ],
    "failure_domain": "fd1",
    "interruptible": True,
    "health": RUNNING,
}
POOL = {
    "provider_id": "group",
    "provider_id_list": ["b", "a", "b"],
    "replicas": 0,
    "instances": [{"provider_id": "a", "instance_id": "i-1", "state": "running"}, {"provider_id": "b"}],
    "health": RUNNING,
}


def outputs(values: dict[str, Any]) -> dict[str, Output]:
    """Return root outputs; as the runtime does, without those that are null."""
    return {
        name: Output(json.dumps(value).encode(), b'"dynamic"', True)
        for name, value in values.items()
        if value is not None
    }


def mapped(kind: str, values: dict[str, Any], **facts: Any) -> OutputsResult:
    return map_outputs(kind, outputs(values), OutputFacts(**facts))


def test_cluster() -> None:
    result = mapped("TerraformCluster", CLUSTER)
    assert result.condition[:3] == ("OutputsValid", "True", "OutputsValid")
    assert result.provisions
    cluster = result.cluster
    assert cluster is not None
    assert cluster.endpoint == Endpoint(host="api.example.com", port=6443)
    assert cluster.failure_domains is not None
    assert [(d.name, d.control_plane, d.attributes) for d in cluster.failure_domains] == [
        ("b", False, {"k": "v"}),
        ("a", True, None),
    ]
    assert cluster.exports == {"network_id": "net-1"}
    assert cluster.exports_valid
    assert not cluster.exports_too_large


def test_outputs_of_a_cluster_that_may_be_null_for_ever() -> None:
    result = mapped("TerraformCluster", {"health": RUNNING})
    assert result.condition.reason == "OutputsValid"
    assert result.cluster is not None
    assert result.cluster.endpoint is None
    assert result.cluster.failure_domains == ()
    assert result.cluster.exports == {}
    explicit = map_outputs(
        "TerraformCluster",
        {**outputs({"health": RUNNING}), "exports": Output(b"null", b'"dynamic"', False)},
        OutputFacts(),
    )
    assert explicit == result


@pytest.mark.parametrize(
    "endpoint",
    [
        {"host": "h"},
        {"port": 1},
        {"host": "", "port": 1},
        {"host": "h", "port": 0},
        {"host": "h", "port": 65536},
        "h:1",
        [],
    ],
)
def test_a_half_set_endpoint_breaks_the_contract(endpoint: Any) -> None:
    result = mapped("TerraformCluster", {**CLUSTER, "control_plane_endpoint": endpoint})
    assert result.condition.reason == "OutputsInvalid"
    assert "control_plane_endpoint" in result.condition.message
    assert not result.provisions
    assert result.cluster is not None
    assert result.cluster.endpoint is None
    assert result.cluster.failure_domains is not None  # the other fields follow their outputs


@pytest.mark.parametrize(
    "domains",
    [
        [{"name": "a"}, {"name": "a"}],
        [{"name": ""}],
        [{}],
        [{"name": "a", "control_plane": "yes"}],
        [{"name": "a", "attributes": {"k": 1}}],
        [{"name": f"d{i}"} for i in range(101)],
        {"name": "a"},
    ],
)
def test_broken_failure_domains_keep_the_previous_ones(domains: Any) -> None:
    result = mapped("TerraformCluster", {**CLUSTER, "failure_domains": domains})
    assert result.condition.reason == "OutputsInvalid"
    assert result.cluster is not None
    assert result.cluster.failure_domains is None


def test_exports_above_the_limit_are_not_published() -> None:
    limit = mapped("TerraformCluster", {**CLUSTER, "exports": "x" * 65534}).cluster
    assert limit is not None
    assert (limit.exports_size, limit.exports_too_large) == (65536, False)
    assert limit.exports == "x" * 65534
    over = mapped("TerraformCluster", {**CLUSTER, "exports": "x" * 65535}).cluster
    assert over is not None
    assert over.exports_too_large
    assert over.exports_valid
    assert over.exports is None


def test_exports_that_cannot_be_hashed_break_the_contract() -> None:
    result = mapped("TerraformCluster", {**CLUSTER, "exports": {"x": 1.5}})
    assert result.condition.reason == "OutputsInvalid"
    assert "fraction" in result.condition.message
    assert result.cluster is not None
    assert not result.cluster.exports_valid


def test_published_exports_have_no_null_members() -> None:
    exports = {"a": None, "b": [None, {"c": None, "d": 1}], "e": {"f": None}}
    cluster = mapped("TerraformCluster", {**CLUSTER, "exports": exports}).cluster
    assert cluster is not None
    assert cluster.exports == {"b": [None, {"d": 1}], "e": {}}


def test_exports_keep_what_was_written() -> None:
    exports = {"exports": Output(b'{"b":123456789012345678901234567890,"a":"x"}', b"", True)}
    assert compact(read_exports(exports)) == '{"b":123456789012345678901234567890,"a":"x"}'
    assert read_exports({}) == {}
    assert read_domain_names(outputs({"failure_domains": [{"name": "b"}, {"name": "a"}]})) == ("a", "b")
    assert read_domain_names({}) == ()


def test_machine() -> None:
    result = mapped("TerraformMachine", MACHINE)
    assert result.condition.status == "True"
    assert result.provisions
    machine = result.machine
    assert machine is not None
    assert machine.addresses is not None
    assert [(item.type, item.address) for item in machine.addresses] == [
        ("InternalIP", "10.0.0.1"),
        ("InternalIP", "10.0.0.2"),
        ("ExternalIP", "1.2.3.4"),
        ("Hostname", "h"),
    ]
    assert (machine.provider_id, machine.failure_domain, machine.interruptible) == (
        "noop:///ns/m1",
        "fd1",
        True,
    )


@pytest.mark.parametrize("provider_id", [None, ""])
def test_a_provider_id_that_is_not_known_yet_is_waited_for(provider_id: str | None) -> None:
    result = mapped("TerraformMachine", {**MACHINE, "provider_id": provider_id, "interruptible": None})
    assert result.condition[1:3] == ("Unknown", "OutputsPending")
    assert not result.provisions
    assert result.contract_kept
    assert result.machine is not None
    assert result.machine.provider_id == ""
    assert result.machine.interruptible is False


def test_the_provider_id_stays_once_it_is_set() -> None:
    result = mapped("TerraformMachine", MACHINE, provider_id="noop:///ns/other")
    assert result.condition[1:3] == ("False", "ProviderIDChanged")
    assert mapped("TerraformMachine", MACHINE, provider_id="noop:///ns/m1").condition.reason == "OutputsValid"


@pytest.mark.parametrize("found", ["fd2", None])
def test_a_machine_in_another_failure_domain_than_asked_for(found: str | None) -> None:
    result = mapped("TerraformMachine", {**MACHINE, "failure_domain": found}, failure_domain="fd1")
    assert result.condition[1:3] == ("False", "FailureDomainMismatch")
    assert mapped("TerraformMachine", {**MACHINE, "failure_domain": found}).condition.status == "True"


def test_every_problem_is_listed_and_the_first_kind_is_the_reason() -> None:
    values = {
        **MACHINE,
        "addresses": None,
        "interruptible": "no",
        "failure_domain": "fd2",
        "provider_id": None,
    }
    result = mapped("TerraformMachine", values, failure_domain="fd1")
    assert result.condition.reason == "OutputsMissing"
    problems = result.condition.message.split("; ")
    assert [name for problem in problems for name in MACHINE if name in problem] == [
        "addresses",
        "interruptible",
        "failure_domain",
        "provider_id",
    ]


@pytest.mark.parametrize("missing", ["addresses", "health"])
def test_an_output_that_must_not_be_null_is_missing_when_absent(missing: str) -> None:
    result = mapped("TerraformMachine", {**MACHINE, missing: None})
    assert result.condition[1:3] == ("False", "OutputsMissing")
    assert missing in result.condition.message
    assert not result.provisions


@pytest.mark.parametrize(
    "addresses",
    [
        [{"type": "IP", "address": "x"}],
        [{"type": "Hostname"}],
        [{"type": "Hostname", "address": "x" * 257}],
        ["x"],
    ],
)
def test_broken_addresses_keep_the_previous_ones(addresses: Any) -> None:
    result = mapped("TerraformMachine", {**MACHINE, "addresses": addresses})
    assert result.condition.reason == "OutputsInvalid"
    assert result.machine is not None
    assert result.machine.addresses is None


def test_an_empty_list_is_a_value() -> None:
    machine = mapped("TerraformMachine", {**MACHINE, "addresses": []}).machine
    assert machine is not None
    assert machine.addresses == ()


def test_pool() -> None:
    result = mapped("TerraformMachinePool", POOL)
    assert result.provisions
    pool = result.pool
    assert pool is not None
    assert pool.provider_id_list == ("a", "b")
    assert pool.replicas == 0
    assert pool.instances is not None
    assert [(item.provider_id, item.instance_id, item.state) for item in pool.instances] == [
        ("a", "i-1", "running"),
        ("b", None, None),
    ]


def test_a_pool_scaled_to_zero_is_valid() -> None:
    values = {**POOL, "provider_id": None, "provider_id_list": [], "instances": []}
    result = mapped("TerraformMachinePool", values)
    assert result.provisions
    assert result.pool is not None
    assert result.pool.provider_id == ""


def test_a_thousand_instances_are_listed() -> None:
    values = {**POOL, "instances": [{"provider_id": str(index)} for index in range(1001)]}
    result = mapped("TerraformMachinePool", values)
    assert result.condition[1:3] == ("True", "InstancesTruncated")
    assert result.provisions
    assert result.pool is not None
    assert result.pool.instances is not None
    assert len(result.pool.instances) == 1000
    assert "1001" in result.condition.message


@pytest.mark.parametrize(
    ("replicas", "valid"), [(3, True), (3.0, True), (-1, False), (1.5, False), ("3", False), (True, False)]
)
def test_replicas(replicas: Any, valid: bool) -> None:
    result = mapped("TerraformMachinePool", {**POOL, "replicas": replicas})
    assert (result.condition.status == "True") is valid


def test_the_empty_state_before_the_first_apply_is_pending() -> None:
    result = mapped("TerraformMachine", {}, applied=False)
    assert result.condition[1:3] == ("Unknown", "OutputsPending")
    assert not result.provisions
    assert mapped("TerraformMachine", {}, applied=True).condition.reason == "OutputsMissing"


@pytest.mark.parametrize("state", ["pending", "booting"])
def test_health_can_keep_an_object_from_being_provisioned(state: str) -> None:
    result = mapped("TerraformCluster", {**CLUSTER, "health": {"state": state, "healthy": True}})
    assert not result.provisions
    assert (result.condition.reason == "OutputsInvalid") is (state == "booting")


def test_an_unknown_health_does_not_keep_an_object_from_being_provisioned() -> None:
    assert mapped(
        "TerraformCluster", {**CLUSTER, "health": {"state": "unknown", "healthy": False}}
    ).provisions


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        (None, ("Unknown", "HealthUnknown", "HealthUnknown")),
        (Health("running", True), ("True", "Healthy", "Healthy")),
        (Health("running", False, "no"), ("False", "InstanceUnhealthy", "no")),
        (Health("pending", True, "", ("a", "b")), ("False", "InstancePending", "reasons: a, b")),
        (Health("degraded", True, "x", ("a",)), ("False", "InstanceDegraded", "x; reasons: a")),
        (Health("stopped", False), ("False", "InstanceStopped", "InstanceStopped")),
        (Health("terminated", True), ("False", "InstanceTerminated", "InstanceTerminated")),
        (Health("unknown", True, "?"), ("Unknown", "HealthUnknown", "?")),
    ],
)
def test_health_as_a_condition(health: Health | None, expected: tuple[str, str, str]) -> None:
    assert health_observation(health) == ("InfrastructureHealthy", *expected)


@pytest.mark.parametrize(
    "health",
    [
        {"state": "running"},
        {"healthy": True},
        {"state": "running", "healthy": "yes"},
        {"state": "running", "healthy": True, "reasons": "x"},
        [],
    ],
)
def test_a_broken_health_is_unknown(health: Any) -> None:
    result = mapped("TerraformCluster", {**CLUSTER, "health": health})
    assert result.condition.reason == "OutputsInvalid"
    assert result.health is None


def test_health_defaults() -> None:
    result = mapped(
        "TerraformCluster", {**CLUSTER, "health": {**RUNNING, "message": None, "reasons": None, "extra": 1}}
    )
    assert result.health == Health("running", True)


def test_no_message_quotes_a_value() -> None:
    secret = {"nested": ["s3cret", {"s3cret-key": "s3cret"}]}
    for kind, values in (
        ("TerraformCluster", CLUSTER),
        ("TerraformMachine", MACHINE),
        ("TerraformMachinePool", POOL),
    ):
        for name in values:
            for bad in ("s3cret", secret, ["s3cret"], [secret]):
                result = mapped(kind, {**values, name: bad}, provider_id="p", failure_domain="f")
                assert "s3cret" not in result.condition.message.replace("s3cret-key", "")


def test_only_workload_kinds_have_outputs() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        mapped("TerraformPlan", CLUSTER)


values_of_any_shape = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "type", "address", "state", "healthy", "host", "port"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(
    kind=st.sampled_from(["TerraformCluster", "TerraformMachine", "TerraformMachinePool"]),
    values=st.dictionaries(st.sampled_from(sorted({*CLUSTER, *MACHINE, *POOL})), values_of_any_shape),
)
@settings(max_examples=200, deadline=None)
def test_outputs_of_any_shape_have_an_answer(kind: str, values: dict[str, Any]) -> None:
    result = map_outputs(
        kind,
        {name: Output(json.dumps(value).encode(), b"", True) for name, value in values.items()},
        OutputFacts(),
    )
    assert result.condition.status in ("True", "False", "Unknown")
    assert result.condition.status == "True" or result.condition.message
