"""The rendered root module."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.test_api_hashes import CLUSTER, MACHINE, POOL

from captf_controllers.api.canonical import parse
from captf_controllers.inputs.contract import CONTRACT_INPUTS, CONTRACT_OUTPUTS
from captf_controllers.inputs.rendering import (
    BACKEND_ONLY,
    MAX_INPUTS_BYTES,
    Files,
    RenderError,
    render,
    too_large,
)

ROLES: dict[Any, dict[str, Any]] = {"cluster": CLUSTER, "machine": MACHINE, "machinepool": POOL}


@pytest.mark.parametrize("role", ROLES)
def test_the_root_declares_calls_and_returns_the_contract(role: Any) -> None:
    files = render(role, ROLES[role])
    root = json.loads(files.main)
    assert list(root) == ["terraform", "variable", "module", "output"]
    assert root["terraform"] == {"backend": {"kubernetes": {}}}
    assert list(root["variable"]) == sorted(CONTRACT_INPUTS[role])
    assert root["module"] == {
        "role": {"source": "../../module", **{name: f"${{var.{name}}}" for name in CONTRACT_INPUTS[role]}}
    }
    assert list(root["module"]["role"]) == sorted(root["module"]["role"])
    assert root["output"] == {
        name: {"value": f"${{module.role.{name}}}", "sensitive": True} for name in CONTRACT_OUTPUTS[role]
    }
    assert list(root["output"]) == sorted(root["output"])
    assert files.main.endswith(b"}\n")
    assert json.loads(files.tfvars) == ROLES[role]
    assert list(json.loads(files.tfvars)) == list(CONTRACT_INPUTS[role])


def test_declarations() -> None:
    variables = json.loads(render("machine", MACHINE).main)["variable"]
    assert variables["bootstrap_data"] == {"type": "string", "sensitive": True}
    assert variables["failure_domain"] == {"type": "string", "default": None}
    assert list(variables["failure_domain"]) == ["type", "default"]
    assert variables["captf_cluster_outputs"] == {"type": "any"}
    cluster = json.loads(render("cluster", CLUSTER).main)["variable"]
    assert cluster["control_plane_endpoint"] == {
        "type": "object({host=string, port=number})",
        "default": None,
    }
    assert cluster["cluster_network"]["type"] == (
        "object({pods=list(string), services=list(string), service_domain=string, api_server_port=number})"
    )
    pool = json.loads(render("machinepool", POOL).main)["variable"]
    assert pool["autoscaling"] == {"type": "object({enabled=bool, min=number, max=number})"}
    assert pool["replicas"] == {"type": "number"}
    assert pool["node_labels"] == {"type": "map(string)"}


def test_user_variables_are_untyped_and_sorted_in() -> None:
    files = render("cluster", CLUSTER, {"zone": "z", "alpha": parse("1.50")}, ["alpha"])
    root = json.loads(files.main)
    assert root["variable"]["alpha"] == {"sensitive": True}
    assert root["variable"]["zone"] == {}
    assert root["module"]["role"]["zone"] == "${var.zone}"
    keys = [line.split('"')[1] for line in files.tfvars.decode().splitlines() if line.startswith('  "')]
    assert keys == sorted(keys)
    assert b'"alpha": 1.50,' in files.tfvars


def test_the_files_byte_for_byte() -> None:
    inputs = {**CLUSTER, "cluster_network": None}
    assert render("cluster", inputs, {"note": "a<b & c>d\u2028"}).tfvars.decode() == (
        "{\n"
        '  "captf_cluster": {\n    "name": "prod",\n    "namespace": "team-a"\n  },\n'
        '  "captf_contract": "v1alpha1",\n'
        '  "captf_object": {\n    "kind": "TerraformCluster",\n    "name": "prod",\n'
        '    "namespace": "team-a"\n  },\n'
        '  "captf_tags": {\n    "captf.io/cluster": "prod",\n    "captf.io/namespace": "team-a",\n'
        '    "captf.io/kind": "TerraformCluster",\n    "captf.io/name": "prod",\n'
        '    "captf.io/managed-by": "captf",\n    "captf.io/template": ""\n  },\n'
        '  "cluster_network": null,\n'
        '  "control_plane_endpoint": null,\n'
        '  "control_plane_initialized": false,\n'
        '  "kubernetes_version": null,\n'
        '  "note": "a<b & c>d\\u2028"\n'
        "}\n"
    )


def test_exports_keep_literals_and_order() -> None:
    exports = parse('{"z":1.50,"a":[],"s":"\\u003c"}')
    text = render("machine", {**MACHINE, "captf_cluster_outputs": exports}).tfvars.decode()
    assert '"captf_cluster_outputs": {\n    "z": 1.50,\n    "a": [],\n    "s": "<"\n  }' in text


def test_the_root_depends_on_names_and_sensitivity_only() -> None:
    one = render("machine", MACHINE, {"a": "s3cret"}, ["a"])
    other = render("machine", {**MACHINE, "machine_name": "x"}, {"a": {"b": 1}}, ["a"])
    assert one.main == other.main
    assert one.tfvars != other.tfvars


def test_equal_inputs_give_equal_bytes() -> None:
    shuffled = dict(reversed(POOL.items()))
    assert render("machinepool", shuffled, {"b": 1, "a": 2}) == render("machinepool", POOL, {"a": 2, "b": 1})


def test_the_backend_only_root() -> None:
    assert BACKEND_ONLY.main == (
        b'{\n  "terraform": {\n    "backend": {\n      "kubernetes": {}\n    }\n  }\n}\n'
    )
    assert BACKEND_ONLY.tfvars == b"{}\n"


@pytest.mark.parametrize(
    ("inputs", "variables", "problem"),
    [
        ({k: v for k, v in MACHINE.items() if k != "control_plane"}, None, "control_plane"),
        ({**MACHINE, "replicas": 1}, None, "replicas"),
        (MACHINE, {"captf_x": 1}, "captf_x"),
        (MACHINE, {"machine_name": 1}, "machine_name"),
        ({**MACHINE, "bootstrap_data": "not base64!"}, None, "bootstrap_data"),
        ({**MACHINE, "bootstrap_data": "YQ"}, None, "bootstrap_data"),
        ({**MACHINE, "bootstrap_data": "YQ==\n"}, None, "bootstrap_data"),
        ({**MACHINE, "bootstrap_data": None}, None, "bootstrap_data"),
    ],
)
def test_what_does_not_keep_the_contract_is_not_rendered(inputs: Any, variables: Any, problem: str) -> None:
    with pytest.raises(RenderError, match=problem):
        render("machine", inputs, variables)


def test_the_size_limit_is_inclusive() -> None:
    assert not too_large(Files(b"x" * (MAX_INPUTS_BYTES - 1), b"y"))
    assert too_large(Files(b"x" * MAX_INPUTS_BYTES, b"y"))


def test_files_do_not_show_when_printed() -> None:
    assert "prod" not in repr(render("cluster", CLUSTER))
