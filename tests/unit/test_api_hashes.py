"""Hashes and canonical JSON."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_controllers.api.canonical import (
    JsonError,
    Number,
    canonical,
    canonical_any_number,
    compact,
    indented,
    parse,
)
from captf_controllers.api.hashes import EMPTY_EXPORTS_HASH, approval_hash, exports_hash, inputs_hash

IMAGE = "registry.example.com/m:v1"
BOOTSTRAP = base64.b64encode(b"#cloud-config\n").decode()


def common(kind: str, name: str) -> dict[str, Any]:
    return {
        "captf_contract": "v1alpha1",
        "captf_cluster": {"name": "prod", "namespace": "team-a"},
        "captf_object": {"kind": kind, "name": name, "namespace": "team-a"},
        "captf_tags": {
            "captf.io/cluster": "prod",
            "captf.io/namespace": "team-a",
            "captf.io/kind": kind,
            "captf.io/name": name,
            "captf.io/managed-by": "captf",
            "captf.io/template": "",
        },
    }


CLUSTER = {
    **common("TerraformCluster", "prod"),
    "control_plane_endpoint": None,
    "kubernetes_version": None,
    "control_plane_initialized": False,
    "cluster_network": None,
}
MACHINE = {
    **common("TerraformMachine", "m1"),
    "captf_cluster_outputs": {"network_id": "net-1", "note": "a<b & c>d"},
    "machine_name": "m1-x",
    "bootstrap_data": BOOTSTRAP,
    "bootstrap_format": "cloud-config",
    "failure_domain": None,
    "kubernetes_version": "v1.36.2",
    "control_plane": False,
}
POOL = {
    **common("TerraformMachinePool", "workers"),
    "captf_cluster_outputs": {},
    "machinepool_name": "workers",
    "replicas": 3,
    "bootstrap_data": BOOTSTRAP,
    "bootstrap_format": "cloud-config",
    "failure_domains": [],
    "cluster_failure_domains": ["a", "b"],
    "kubernetes_version": None,
    "node_labels": {},
    "autoscaling": {"enabled": False, "min": 0, "max": 0},
}


def test_cluster_vector() -> None:
    assert (
        inputs_hash("cluster", IMAGE, CLUSTER)
        == "h2:edf6d2514ec23974b4e2830389756264cf1a5acd5cf1dd52cb10e0811f912d56"
    )


def test_cluster_with_variables_vector() -> None:
    variables = {"ratio": parse("1.50"), "db_password": "s3cret"}
    assert (
        inputs_hash("cluster", IMAGE, CLUSTER, variables, ["db_password"])
        == "h2:b2a2b1d37c2563cc39bcc00aec854a837813ef8ecb3bde4b90d0630db4fbf4d1"
    )


def test_machine_vector() -> None:
    assert (
        inputs_hash("machine", IMAGE, MACHINE)
        == "h2:0b1a80d7d52378704e385cb5ee1cf7b3603ccf6981e646343482d433cc34b0a3"
    )


def test_pool_vectors() -> None:
    assert (
        inputs_hash("machinepool", IMAGE, POOL)
        == "h2:ece0ee4eca276c270fd7ccb0bcce1e5ac8ef3478cef5e2f7b4ee2b6a869d0fb5"
    )
    assert (
        approval_hash("machinepool", IMAGE, POOL)
        == "h2:8a58204a37c35dd96092fa83538c759e61926a070e8bf8cb584f1dc80614e779"
    )


@pytest.mark.parametrize("replicas", [0, 1, 5, 100])
def test_autoscaled_pool_hashes_alike_whatever_its_replicas(replicas: int) -> None:
    scaled = {**POOL, "replicas": replicas, "autoscaling": {"enabled": True, "min": 1, "max": 5}}
    assert (
        inputs_hash("machinepool", IMAGE, scaled)
        == "h2:75a6ed27e7ec5882c7a38b239907c2efa55a26b2fa1b0fbdf2d35576fb039ef8"
    )


def test_exports_vectors() -> None:
    assert exports_hash(None) == exports_hash({}) == EMPTY_EXPORTS_HASH
    assert (
        exports_hash(parse('{"b":[true,null],"a":1.50}'))
        == "h2:4d7a743dab21b6516ed5f3e681f637fbe15cb0d638131f8803eaa9b04fec167e"
    )


def test_only_a_pools_bootstrap_data_is_left_out_of_an_approval() -> None:
    assert approval_hash("machine", IMAGE, MACHINE) == inputs_hash("machine", IMAGE, MACHINE)
    rotated = {**POOL, "bootstrap_data": "AAAA"}
    assert approval_hash("machinepool", IMAGE, rotated) == approval_hash("machinepool", IMAGE, POOL)
    assert inputs_hash("machinepool", IMAGE, rotated) != inputs_hash("machinepool", IMAGE, POOL)


def test_the_first_variable_changes_the_hash_and_removing_the_last_restores_it() -> None:
    bare = inputs_hash("cluster", IMAGE, CLUSTER)
    assert inputs_hash("cluster", IMAGE, CLUSTER, {"a": "1"}) != bare
    assert inputs_hash("cluster", IMAGE, CLUSTER, {}) == bare
    assert inputs_hash("cluster", IMAGE, CLUSTER, None) == bare


def test_sensitivity_alone_changes_the_hash() -> None:
    assert inputs_hash("cluster", IMAGE, CLUSTER, {"a": "1"}, ["a"]) != inputs_hash(
        "cluster", IMAGE, CLUSTER, {"a": "1"}
    )


@pytest.mark.parametrize("literal", ["1.5", "1e3", "1E3", "-0.0", "1.0"])
def test_contract_inputs_take_integers_only(literal: str) -> None:
    with pytest.raises(JsonError, match="fraction or an exponent"):
        inputs_hash("machine", IMAGE, {**MACHINE, "captf_cluster_outputs": parse(f'{{"x":{literal}}}')})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"b":1,"a":2}', '{"a":2,"b":1}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        (' [ 1 , "x" ] ', '[1,"x"]'),
        ('"\\u0041\\u2028\\u2029\\/<>&\\u007f"', '"A\\u2028\\u2029/<>&\x7f"'),
        ('"\\u0000\\u001f\\b\\f\\n\\r\\t\\"\\\\"', '"\\u0000\\u001f\\b\\f\\n\\r\\t\\"\\\\"'),
        ('"\\ud800"', '"\ufffd"'),
        ('"\\ud83d\\ude00"', '"😀"'),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("-0", "-0"),
        ("{}", "{}"),
        ("[]", "[]"),
        ("null", "null"),
        ('{"z":{"b":[],"a":{}},"é":1,"e":2}', '{"e":2,"z":{"a":{},"b":[]},"é":1}'),
    ],
)
def test_canonical_form(text: str, expected: str) -> None:
    assert canonical(parse(text)) == expected


@pytest.mark.parametrize("literal", ["1.5", "1.50", "1E+2", "-0.0e-10", "0"])
def test_any_number_form_keeps_the_literal(literal: str) -> None:
    assert canonical_any_number(parse(literal)) == literal
    assert compact(parse(f'{{"b":{literal},"a":1}}')) == f'{{"b":{literal},"a":1}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "Infinity",
        "-Infinity",
        "01",
        "1.",
        "+1",
        "{'a':1}",
        "[1,]",
        "\ufeff1",
        b"\xff",
        "1 2",
        '"\n"',
    ],
)
def test_what_is_not_json(text: str | bytes) -> None:
    with pytest.raises(JsonError):
        parse(text)


def test_errors_do_not_quote_the_value() -> None:
    with pytest.raises(JsonError) as caught:
        parse('{"password": s3cret}')
    assert "s3cret" not in str(caught.value)
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"a":' * 300 + "1" + "}" * 300, "[" * 201 + "]" * 201])
def test_deep_nesting_is_refused_quickly(text: str) -> None:
    with pytest.raises(JsonError, match="nested deeper than 200 levels"):
        parse(text)


def test_brackets_in_strings_are_no_nesting() -> None:
    text = json.dumps(["[" * 1000, '\\"{' * 1000])
    assert parse(text) == json.loads(text)


def test_floats_that_are_not_finite_are_refused() -> None:
    with pytest.raises(JsonError, match="not finite"):
        canonical_any_number({"a": math.nan})


def test_indented_form_matches_the_renderers_layout() -> None:
    value = parse('{"b":{},"a":[1,{"x":[]}],"c":1.50}')
    assert indented(value) == (
        '{\n  "b": {},\n  "a": [\n    1,\n    {\n      "x": []\n    }\n  ],\n  "c": 1.50\n}\n'
    )


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(plain_json)
def test_every_form_reads_back_as_the_same_value(value: Any) -> None:
    replaced = json.loads(json.dumps(value))
    for form in (canonical_any_number, compact, indented):
        assert json.loads(form(value)) == replaced
    assert canonical_any_number(parse(canonical_any_number(value))) == canonical_any_number(value)


@given(st.dictionaries(st.text(), st.integers(), max_size=6), st.randoms())
def test_order_of_keys_does_not_matter(value: dict[str, int], random: Any) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert canonical({key: value[key] for key in keys}) == canonical(value)


def test_numbers_compare_by_literal() -> None:
    assert Number("1.5") == Number("1.5")
    assert Number("1.5") != Number("1.50")
    assert len({Number("1"), Number("1")}) == 1
