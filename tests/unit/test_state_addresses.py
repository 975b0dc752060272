"""Addresses of resources, as ``terraform state list`` writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import state_secrets

from captf_controllers.api import names
from captf_controllers.state.addresses import managed_addresses
from captf_controllers.state.reading import StateUnreadable

BASE = names.state_secret(state_secrets.SUFFIX)


def addresses(*resources: dict[str, Any], size: int = 1 << 20) -> tuple[str, ...]:
    content = json.dumps({"version": 4, "resources": list(resources)}).encode()
    pieces = state_secrets.chunks_of(state_secrets.payload(content), size)
    return managed_addresses(BASE, state_secrets.state_secrets(pieces))


def resource(name: str, *instances: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"mode": "managed", "type": "x_y", "name": name, "instances": list(instances), **more}


@pytest.mark.parametrize(
    ("given_resource", "expected"),
    [
        (resource("a", {}), ("x_y.a",)),
        (resource("a", {"index_key": 0}, {"index_key": 1}), ("x_y.a[0]", "x_y.a[1]")),
        (resource("a", {"index_key": "k"}), ('x_y.a["k"]',)),
        (resource("a", {"index_key": 'q"\\'}), ('x_y.a["q\\"\\\\"]',)),
        (resource("a", {}, module='module.m["z"].module.n[2]'), ('module.m["z"].module.n[2].x_y.a',)),
        (resource("a", {"deposed": "1f2e3d4c"}), ("x_y.a (deposed 1f2e3d4c)",)),
        (resource("a"), ()),
        (resource("a", {}, mode="data"), ()),
    ],
)
def test_addresses(given_resource: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert addresses(given_resource) == expected


def test_a_state_in_chunks_is_put_together() -> None:
    assert addresses(resource("a", {}), resource("b", {}), size=40) == ("x_y.a", "x_y.b")


def test_no_attribute_comes_out() -> None:
    listed = addresses(resource("a", {"attributes": {"password": "s3cret"}, "private": "s3cret"}))
    assert "s3cret" not in repr(listed)


def test_no_secrets_no_addresses() -> None:
    assert managed_addresses(BASE, []) == ()


def test_resources_of_another_shape_are_an_error_without_content() -> None:
    with pytest.raises(StateUnreadable) as caught:
        addresses({"mode": "managed", "type": ["s3cret"]})
    assert "s3cret" not in str(caught.value)
    assert BASE in str(caught.value)


@given(name=st.text(), key=st.text(), module=st.text())
def test_an_address_never_drives_a_terminal(name: str, key: str, module: str) -> None:
    for address in addresses(resource(name, {"index_key": key}, module=module)):
        assert address.isprintable()
