from __future__ import annotations

import gc
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cache.objects import FORM, raw

from captf_runtime.cache import Form, store_object, store_raw
from captf_runtime.objects import SECRET, ObjectKey, OwnerReference

MANAGED = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {".": {}, "f:a": {}}}}]

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.just("managedFields"), st.text(max_size=4)), inner, max_size=3),
    ),
    max_leaves=10,
)


@pytest.mark.requirement("IN3")
def test_the_header_holds_what_selectors_and_predicates_need() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "namespace": "t",
            "uid": "u",
            "resourceVersion": "12",
            "generation": 3,
            "labels": {"l": "1"},
            "deletionTimestamp": "2026-09-25T12:00:00Z",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Set", "name": "s", "uid": "o", "controller": True}
            ],
            "managedFields": MANAGED,
        },
        "data": {"a": "1"},
    }
    found = store_raw(raw(obj), FORM)
    header = found.header
    owner = OwnerReference("v1", "Set", "s", "o", controller=True)
    assert (header.key, header.uid, header.resource_version, header.generation) == (
        ObjectKey("t", "a"),
        "u",
        "12",
        3,
    )
    assert header.labels == {"l": "1"}
    assert header.owner_references == (owner,)
    assert header.controller == owner
    assert header.is_deleting
    del obj["metadata"]["managedFields"]  # type: ignore[attr-defined]
    assert found.decode() == obj


@pytest.mark.requirement("IN3")
def test_every_decode_is_a_fresh_copy() -> None:
    found = store_object({"metadata": {"name": "a"}, "data": {"x": "1"}}, FORM)
    found.decode()["data"]["x"] = "spoilt"
    assert found.decode()["data"] == {"x": "1"}


@pytest.mark.requirement("CL13", "IN3")
def test_the_kind_is_filled_on_decode_and_always_the_real_one() -> None:
    found = store_raw(b'{"metadata":{"name":"a"}}', FORM)
    assert found.data == b'{"metadata":{"name":"a"}}'
    assert (found.decode()["kind"], found.decode()["apiVersion"]) == ("ConfigMap", "v1")
    partial = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}'
    assert store_raw(partial, Form(SECRET, metadata_only=True)).decode()["kind"] == "Secret"


@pytest.mark.requirement("IN3", "RF11")
@given(
    before=st.dictionaries(st.text(max_size=4), json_values, max_size=2),
    after=st.dictionaries(st.text(max_size=4), json_values, max_size=2),
    managed=st.one_of(json_values, st.just(MANAGED)),
    spec=st.one_of(
        json_values, st.just({"managedFields": MANAGED}), st.just(json.dumps({"managedFields": MANAGED}))
    ),
    spaced=st.booleans(),
)
def test_managed_fields_are_cut_out_and_nothing_else(
    before: dict[str, Any], after: dict[str, Any], managed: Any, spec: Any, spaced: bool
) -> None:
    typed = {"name", "namespace", "uid", "labels", "generation", "managedFields"}
    meta = {key: value for key, value in before.items() if key not in typed}
    meta["managedFields"] = managed
    meta["name"] = "a"
    meta |= {key: value for key, value in after.items() if key not in typed}
    obj = {"metadata": meta, "spec": spec}
    text = json.dumps(obj, separators=None if spaced else (",", ":"), ensure_ascii=False).encode()
    found = store_raw(text, FORM)
    expected = json.loads(text)
    del expected["metadata"]["managedFields"]
    assert msgspec.json.decode(found.data) == expected


@pytest.mark.requirement("IN3")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b'{"metadata":{"name":"a"}}', b'{"metadata":{"name":"a"}}'),
        (b'{"metadata":{"name":"a","managedFields":[{}]}}', b'{"metadata":{"name":"a"}}'),
        (b'{"metadata":{"managedFields":[{}],"name":"a"}}', b'{"metadata":{"name":"a"}}'),
        (b'{"metadata":{"name":"a","managedFields":[{}],"uid":"u"}}', b'{"metadata":{"name":"a","uid":"u"}}'),
    ],
)
def test_the_bytes_stay_as_the_server_sent_them(text: bytes, kept: bytes) -> None:
    assert store_raw(text, FORM).data == kept


@pytest.mark.requirement("IN3", "RF1")
def test_a_stored_object_keeps_nothing_of_its_page_and_is_no_work_for_the_collector() -> None:
    found = store_raw(raw({"metadata": {"name": "a", "labels": {"l": "1"}}}), FORM)
    assert type(found.data) is bytes
    assert not gc.is_tracked(found)
    assert not gc.is_tracked(found.header)


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b"{}", b'{"metadata":{}}', b'{"metadata":{"name":7}}', b"\xff"]
)
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        store_raw(text, FORM)
