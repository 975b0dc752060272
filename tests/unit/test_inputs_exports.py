"""A pool's guard against destructive changes of its cluster's exports."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from captf_controllers.api.canonical import Number
from captf_controllers.api.hashes import exports_hash
from captf_controllers.inputs.exports import decide_exports, exports_of_record, recorded_exports_hash
from captf_controllers.inputs.records import Records, durable_record

OLD: Any = {"network": "old"}
NEW: Any = {"network": "new"}
APPROVAL = "h2:approval"


def durable(
    *,
    data: Any = None,
    hashed: Any = None,
    pending: Any = None,
    partial: str | None = None,
    marker: bool = False,
) -> Records:
    notes = {"captf.io/inputs-hash": "h2:x"}
    if hashed is not None:
        notes["captf.io/applied-cluster-outputs-hash"] = exports_hash(hashed)
    if pending is not None:
        notes["captf.io/pending-cluster-outputs"] = json.dumps(
            {"exportsHash": exports_hash(pending), "approvalHash": APPROVAL, "job": "j"}
        )
    if partial is not None:
        notes["captf.io/partial-cluster-outputs"] = partial
    if marker:
        notes["captf.io/applied"] = "true"
    stored = (
        {}
        if data is None
        else {"applied-cluster-outputs.json": base64.b64encode(json.dumps(data).encode()).decode()}
    )
    return Records(durable=durable_record({"metadata": {"name": "x", "annotations": notes}, "data": stored}))


def decide(
    records: Records,
    current: Any = NEW,
    *,
    ever: bool = True,
    approved: tuple[str, ...] = (),
    planned: tuple[str, ...] | None = None,
) -> tuple[Any, bool, bool]:
    found = decide_exports(
        records,
        current,
        approval_hash=APPROVAL,
        ever_applied=ever,
        approved_hashes=approved,
        planned_hashes=planned,
    )
    return found.exports, found.held, found.guarded


def test_a_first_apply_is_never_guarded() -> None:
    assert decide(Records(), ever=False) == (NEW, False, False)


def test_the_exports_applied_last_are_not_guarded() -> None:
    assert decide(durable(data=NEW, hashed=NEW)) == (NEW, False, False)
    assert decide(durable(hashed=NEW)) == (NEW, False, False)


def test_without_a_recorded_change_before_the_first_success_nothing_is_guarded() -> None:
    assert decide(durable(), ever=False) == (NEW, False, False)


def test_a_pool_that_applied_unknown_exports_is_guarded() -> None:
    assert decide(durable(), ever=True) == (NEW, False, True)


def test_changed_exports_are_guarded() -> None:
    assert decide(durable(data=OLD, hashed=OLD)) == (NEW, False, True)


def test_a_blocked_change_is_held_until_approved() -> None:
    blocked = durable(data=OLD, hashed=OLD, pending=NEW)
    assert decide(blocked) == (OLD, True, False)
    assert decide(blocked, approved=(APPROVAL,)) == (NEW, False, True)
    assert decide(blocked, approved=("h2:other",)) == (OLD, True, False)


def test_a_blocked_change_that_no_plan_names_is_guarded_anew() -> None:
    blocked = durable(data=OLD, hashed=OLD, pending=NEW)
    assert decide(blocked, planned=(APPROVAL,)) == (OLD, True, False)
    assert decide(blocked, planned=("h2:other",)) == (NEW, False, True)
    assert decide(blocked, planned=()) == (NEW, False, True)


def test_another_change_than_the_blocked_one_is_guarded_anew() -> None:
    assert decide(durable(data=OLD, hashed=OLD, pending={"network": "newer"})) == (NEW, False, True)


def test_exports_that_return_to_the_applied_ones_ignore_the_blocked_change() -> None:
    assert decide(durable(data=OLD, hashed=OLD, pending=NEW), current=OLD) == (OLD, False, False)


@pytest.mark.parametrize("partial", ['{"exportsHash":"x","job":"j"}', "not json", ""])
def test_a_change_that_may_be_half_applied_is_not_held(partial: str) -> None:
    assert decide(durable(data=OLD, hashed=OLD, pending=NEW, partial=partial)) == (NEW, False, True)
    assert decide(durable(data=NEW, hashed=NEW, partial=partial)) == (NEW, False, True)


def test_recorded_exports_that_are_gone_or_wrong_cannot_be_held() -> None:
    assert decide(durable(hashed=OLD, pending=NEW)) == (NEW, False, True)
    assert decide(durable(data={"network": "tampered"}, hashed=OLD, pending=NEW)) == (NEW, False, True)
    assert decide(durable(data={"x": 1.5}, pending=NEW)) == (NEW, False, True)


def test_the_hash_of_the_data_stands_in_for_a_missing_annotation() -> None:
    found = durable(data=OLD).durable
    assert recorded_exports_hash(found) == exports_hash(OLD)
    assert decide(durable(data=NEW)) == (NEW, False, False)
    assert recorded_exports_hash(None) == ""


def test_exports_of_a_record() -> None:
    tfvars = base64.b64encode(b'{"captf_cluster_outputs": {"a": 1.50}}').decode()
    record = durable_record({"metadata": {"name": "x"}, "data": {"terraform.tfvars.json": tfvars}})
    assert exports_of_record(record) == {"a": Number("1.50")}
    assert exports_of_record(None) is None
    assert exports_of_record(durable_record({"metadata": {"name": "x"}, "data": {}})) is None
