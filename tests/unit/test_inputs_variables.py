"""User variables: names, sources, merging."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_controllers.api.canonical import Number
from captf_controllers.api.workspace import SourceReference, VariablesSource
from captf_controllers.inputs.contract import CONTRACT_INPUTS
from captf_controllers.inputs.gate import Gate
from captf_controllers.inputs.variables import (
    META_ARGUMENTS,
    SourceRef,
    Variables,
    merge_variables,
    source_refs,
    variable_name_problem,
)

OPTED_IN = {"captf.io/variables": "true"}


def config_map(
    data: dict[str, str], *, binary: dict[str, bytes] | None = None, labels: Any = OPTED_IN
) -> Any:
    return {
        "metadata": {"labels": labels},
        "data": data,
        "binaryData": {key: base64.b64encode(value).decode() for key, value in (binary or {}).items()},
    }


def secret(data: dict[str, bytes], labels: Any = OPTED_IN) -> Any:
    return {
        "metadata": {"labels": labels},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def ref(kind: str = "ConfigMap", index: int = 0, *, optional: bool = False, json: bool = False) -> SourceRef:
    return SourceRef(index, kind, f"source-{index}", optional, json)


def merged(inline: Any, *sources: tuple[SourceRef, Any], role: Any = "cluster") -> Variables:
    found = merge_variables(role, inline, sources)
    assert isinstance(found, Variables)
    return found


def refused(inline: Any, *sources: tuple[SourceRef, Any], role: Any = "cluster") -> Gate:
    found = merge_variables(role, inline, sources)
    assert isinstance(found, Gate)
    return found


@pytest.mark.parametrize("name", ["a", "_", "A-b_9", "machine_name", "captf", "x" * 500])
def test_names_that_a_cluster_may_use(name: str) -> None:
    assert variable_name_problem("cluster", name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "must match"),
        ("9a", "must match"),
        ("a.b", "must match"),
        ("a\n", "must match"),
        ("é", "must match"),
        ("captf_x", "reserved"),
        ("captf_contract", "reserved"),
        ("cluster_network", "module contract"),
        ("kubernetes_version", "module contract"),
        *((name, "meta-argument") for name in META_ARGUMENTS),
    ],
)
def test_names_that_a_cluster_may_not_use(name: str, problem: str) -> None:
    assert problem in (variable_name_problem("cluster", name) or "")


def test_contract_inputs_are_reserved_for_their_own_role() -> None:
    assert variable_name_problem("machine", "machine_name") is not None
    assert variable_name_problem("machinepool", "machine_name") is None
    for role, inputs in CONTRACT_INPUTS.items():
        assert all(variable_name_problem(role, name) for name in inputs)


def test_later_sources_and_inline_variables_win_with_their_sensitivity() -> None:
    found = merged(
        {"d": {"x": [1]}, "c": "inline"},
        (ref("Secret", 0), secret({"a": b"1", "b": b"s", "c": b"s"})),
        (ref("ConfigMap", 1), config_map({"a": "2"})),
        (ref("Secret", 2), secret({"e": b"s"})),
    )
    assert found.values == {"a": "2", "b": "s", "c": "inline", "d": {"x": [1]}, "e": "s"}
    assert found.sensitive == {"b", "e"}
    assert list(found.values) == sorted(found.values)


def test_formats() -> None:
    found = merged(
        msgspec.UNSET,
        (ref("ConfigMap", 0), config_map({"text": "1.50"}, binary={"more": b"x"})),
        (ref("Secret", 1, json=True), secret({"number": b" 1.50 ", "object": b'{"b":1,"a":null}'})),
    )
    assert found.values == {
        "text": "1.50",
        "more": "x",
        "number": Number("1.50"),
        "object": {"b": Number("1"), "a": None},
    }
    assert list(found.values["object"]) == ["b", "a"]  # type: ignore[arg-type]


def test_no_variables_at_all() -> None:
    assert merged(msgspec.UNSET) == Variables({}, frozenset())


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "does not exist"),
        (config_map({"a": "1"}, labels={}), "lacks the label"),
        (config_map({}, labels={"captf.io/variables": "yes"}), "lacks the label"),
    ],
)
def test_a_source_that_is_missing_or_not_opted_in(found: Any, why: str) -> None:
    gate = refused(msgspec.UNSET, (ref("ConfigMap", 3), found))
    assert (gate.status, gate.reason) == ("False", "VariablesSourceNotFound")
    assert "ConfigMap source-3 (spec.variablesFrom[3])" in gate.message
    assert why in gate.message
    assert merged({"x": 1}, (ref("ConfigMap", 3, optional=True), found)).values == {"x": 1}


@pytest.mark.parametrize(
    ("source", "ask", "key"),
    [
        (config_map({"captf_x": "s3cret"}), ref(), "captf_x"),
        (secret({"bad.name": b"s3cret"}), ref("Secret"), "bad.name"),
        (secret({"a": b"s3cret\xff"}), ref("Secret"), '"a"'),
        (secret({"a": b"{s3cret"}), ref("Secret", json=True), '"a"'),
        (secret({"a": b"NaN"}), ref("Secret", json=True), '"a"'),
        (secret({"a": b"[" * 500}), ref("Secret", json=True), '"a"'),
        (config_map({}, binary={"a": b"\xff"}), ref(), '"a"'),
    ],
)
def test_a_bad_key_or_value_names_the_key_and_never_the_value(source: Any, ask: SourceRef, key: str) -> None:
    gate = refused(msgspec.UNSET, (ask, source))
    assert (gate.status, gate.reason) == ("False", "VariablesInvalid")
    assert key in gate.message
    assert "source-0" in gate.message
    assert "s3cret" not in gate.message


@pytest.mark.parametrize("inline", [None, [], "x", 1])
def test_inline_variables_must_be_an_object(inline: Any) -> None:
    assert refused(inline).reason == "VariablesInvalid"


def test_a_bad_inline_name_is_named() -> None:
    gate = refused({"ok": 1, "bad name": "s3cret"})
    assert '"bad name" of spec.variables' in gate.message
    assert "s3cret" not in gate.message


def test_the_first_source_with_a_problem_decides() -> None:
    gate = refused(
        {"bad name": 1}, (ref("ConfigMap", 0), config_map({"captf_x": ""})), (ref("ConfigMap", 1), None)
    )
    assert gate.reason == "VariablesInvalid"
    assert "spec.variablesFrom[0]" in gate.message


def test_names_in_messages_are_bounded_and_printable() -> None:
    gate = refused({"\n" + "x" * 1000: 1})
    assert "\n" not in gate.message
    assert len(gate.message) < 300


def test_source_refs() -> None:
    sources = (
        VariablesSource(config_map_ref=SourceReference(name="a"), optional=True),
        VariablesSource(secret_ref=SourceReference(name="b"), format="JSON"),
        VariablesSource(secret_ref=SourceReference(name="b")),
    )
    assert source_refs(sources) == (
        SourceRef(0, "ConfigMap", "a", True, False),
        SourceRef(1, "Secret", "b", False, True),
        SourceRef(2, "Secret", "b", False, False),
    )
    assert source_refs(None) == ()
    with pytest.raises(ValueError, match=r"variablesFrom\[0\]"):
        source_refs((VariablesSource(),))


@given(
    st.dictionaries(st.from_regex(r"v[a-z]{0,3}", fullmatch=True), st.text(max_size=5), max_size=6),
    st.randoms(),
)
def test_the_order_of_keys_in_a_source_does_not_matter(data: dict[str, str], random: Any) -> None:
    keys = list(data)
    random.shuffle(keys)
    one = merged(msgspec.UNSET, (ref(), config_map(data)))
    other = merged(msgspec.UNSET, (ref(), config_map({key: data[key] for key in keys})))
    assert list(one.values.items()) == list(other.values.items())
