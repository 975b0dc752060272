"""The controller of machine templates: what scaling from zero can read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.job_objects import at
from tests.unit.memory_api import MemoryApi
from tests.unit.test_identity_credentials import Sink

from captf_controllers.api.kinds import TERRAFORM_MACHINE_TEMPLATE
from captf_controllers.api.labels import WATCH_FILTER
from captf_controllers.kinds.machine_template import MachineTemplateReconciler
from captf_runtime.controller import Request
from captf_runtime.objects import Object
from captf_runtime.testing.clock import VirtualClock

CAPACITY = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": 1}


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(VirtualClock(at(0)))


@pytest.fixture
def sink() -> Sink:
    return Sink()


def put(api: MemoryApi, capacity: Object | None, **metadata: Any) -> None:
    spec: Object = {"template": {"spec": {"source": {"image": "registry.example/m:1"}}}}
    if capacity is not None:
        spec["capacity"] = capacity
    found = api.find(TERRAFORM_MACHINE_TEMPLATE, "workers", "ns") or {}
    meta = {"name": "workers", "namespace": "ns", "generation": 2, **metadata}
    api.put(TERRAFORM_MACHINE_TEMPLATE, {**found, "metadata": meta, "spec": spec})


def reconcile(api: MemoryApi, sink: Sink | None = None, watch_filter: str = "") -> Object:
    """The status after a pass."""
    reconciler = MachineTemplateReconciler(lambda ctx: api, sink, api.clock, watch_filter=watch_filter)  # type: ignore[arg-type,return-value]
    assert reconciler.reconcile(None, Request("ns", "workers")) is None  # type: ignore[arg-type]
    found = api.find(TERRAFORM_MACHINE_TEMPLATE, "workers", "ns") or {}
    status: Object = found.get("status") or {}
    return status


def said(status: Object) -> str:
    (condition,) = status["conditions"]
    assert condition["type"] == "CapacityResolved"
    return f"{condition['status']}/{condition['reason']}"


def test_what_the_spec_declares_is_published(api: MemoryApi, sink: Sink) -> None:
    put(api, CAPACITY)
    status = reconcile(api, sink)
    assert status["capacity"] == CAPACITY
    assert status["capacitySource"] == {"source": "Spec"}
    assert said(status) == "True/CapacityResolved"
    assert status["conditions"][0]["observedGeneration"] == 2
    assert "nodeInfo" not in status
    assert sink.reasons == ["CapacityResolved"]


def test_a_template_that_declares_none_says_so(api: MemoryApi, sink: Sink) -> None:
    put(api, None)
    status = reconcile(api, sink)
    assert said(status) == "True/CapacityNotDeclared"
    assert "spec.capacity" in status["conditions"][0]["message"]
    assert "capacity" not in status
    assert "capacitySource" not in status
    assert sink == []


def test_a_change_replaces_the_capacity_as_a_whole(api: MemoryApi, sink: Sink) -> None:
    put(api, CAPACITY)
    reconcile(api, sink)
    put(api, {"cpu": "8"})
    assert reconcile(api, sink)["capacity"] == {"cpu": "8"}
    put(api, None)
    status = reconcile(api, sink)
    assert "capacity" not in status
    assert "capacitySource" not in status
    assert said(status) == "True/CapacityNotDeclared"
    assert sink.reasons == ["CapacityResolved"] * 3


def test_a_second_pass_writes_nothing(api: MemoryApi, sink: Sink) -> None:
    put(api, CAPACITY)
    reconcile(api, sink)
    api.clock.advance(600)  # type: ignore[attr-defined]
    before = len(api.writes)
    reconcile(api, sink)
    assert len(api.writes) == before
    assert sink.reasons == ["CapacityResolved"]


def test_what_is_gone_going_or_not_watched_is_left_alone(api: MemoryApi) -> None:
    assert reconcile(api) == {}
    put(api, CAPACITY, deletionTimestamp="2026-01-01T00:00:00Z")
    assert reconcile(api) == {}
    put(api, CAPACITY, labels={WATCH_FILTER: "others"})
    assert reconcile(api, watch_filter="mine") == {}
    assert reconcile(api, watch_filter="others")["capacity"] == CAPACITY
