"""Objects become typed specs and statuses, and statuses objects again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from captf_controllers.api import kinds
from captf_controllers.api.cluster import Endpoint, TerraformClusterSpec, TerraformClusterStatus
from captf_controllers.api.finalizers import finalizer_of
from captf_controllers.api.machinepool import TerraformMachinePoolSpec, TerraformMachinePoolStatus
from captf_controllers.api.owner import Owner
from captf_controllers.api.plan import PlanSummary
from captf_controllers.api.schema import wire_name
from captf_controllers.api.typed import (
    SPEC_TYPES,
    STATUS_TYPES,
    ObjectShapeError,
    spec_of,
    status_of,
    to_object,
)
from captf_controllers.api.workspace import ActiveJob, Initialization, SourceStatus, StateBackup
from captf_runtime.objects import OwnerReference


@pytest.mark.parametrize(
    ("field", "wire"),
    [
        ("provider_id", "providerID"),
        ("provider_id_list", "providerIDList"),
        ("instance_id", "instanceID"),
        ("image_digest", "imageDigest"),
        ("import_", "import"),
        ("identity_ref", "identityRef"),
        ("type", "type"),
    ],
)
def test_wire_names(field: str, wire: str) -> None:
    assert wire_name(field) == wire


def test_a_spec_is_read() -> None:
    spec = spec_of(
        {
            "spec": {
                "source": {"image": "x", "imagePullPolicy": "Always"},
                "jobs": {"lockTimeoutSeconds": 0, "env": [{"name": "A"}]},
                "variables": {"a": {"b": 1}},
                "controlPlaneEndpoint": {"host": "h"},
                "unknown": 1,
            }
        },
        TerraformClusterSpec,
    )
    assert spec.source.image_pull_policy == "Always"
    assert spec.jobs is not None
    assert spec.jobs.lock_timeout_seconds == 0
    assert spec.jobs.active_deadline_seconds is None
    assert spec.jobs.env == ({"name": "A"},)
    assert spec.variables == {"a": {"b": 1}}
    assert spec.control_plane_endpoint == Endpoint(host="h")
    assert not spec.control_plane_endpoint.complete


def test_limits_of_the_schema_do_not_make_a_stored_object_unreadable() -> None:
    spec = spec_of(
        {
            "spec": {
                "source": {"image": ""},
                "jobs": {"activeDeadlineSeconds": 0},
                "drift": {"intervalSeconds": 0},
            }
        },
        TerraformMachinePoolSpec,
    )
    assert spec.jobs is not None
    assert spec.jobs.active_deadline_seconds == 0


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"source": {"image": "x"}, "jobs": {"activeDeadlineSeconds": "s3cret"}},
            "spec.jobs.activeDeadlineSeconds",
        ),
        ({"source": {"image": "x"}, "deletionPolicy": "s3cret"}, "spec.deletionPolicy"),
        ({}, "spec lacks the required field source"),
        ({"source": {}}, "spec.source lacks the required field image"),
    ],
)
def test_a_wrong_shape_names_object_and_field_and_no_value(spec: object, problem: str) -> None:
    obj = {"kind": "TerraformCluster", "metadata": {"name": "a", "namespace": "ns"}, "spec": spec}
    with pytest.raises(ObjectShapeError) as caught:
        spec_of(obj, TerraformClusterSpec)
    assert f"TerraformCluster ns/a: {problem}" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_status_goes_out_without_what_is_unset_or_empty() -> None:
    status = TerraformClusterStatus(
        conditions=(),
        initialization=Initialization(),
        source=SourceStatus(),
        exports={},
        state_backups=(StateBackup(serial=1, taken_at=datetime(2026, 1, 2, tzinfo=UTC), bytes=5),),
        active_job=ActiveJob(name="j", operation="apply", attempt=1),
    )
    assert to_object(status) == {
        "exports": {},
        "stateBackups": [{"serial": 1, "takenAt": "2026-01-02T00:00:00Z", "bytes": 5}],
        "activeJob": {"name": "j", "operation": "apply", "attempt": 1},
    }


def test_zero_and_false_are_values() -> None:
    status = TerraformMachinePoolStatus(replicas=0, ready=False)
    assert to_object(status) == {"replicas": 0, "ready": False}


def test_a_status_survives_the_way_there_and_back() -> None:
    stored = {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "observedGeneration": 3,
        "lastRun": {
            "job": "j",
            "operation": "drift",
            "steps": [{"name": "init", "exitCode": 0}],
            "drift": {"create": 0, "update": 1, "replace": 0, "delete": 0, "resources": ["a"]},
        },
        "exports": {"b": [1, None], "a": 1.5},
        "failureDomains": [{"name": "a", "controlPlane": True}],
    }
    status = status_of({"status": stored}, TerraformClusterStatus)
    assert to_object(status) == stored


def test_an_object_without_status_has_the_empty_one() -> None:
    assert status_of({}, TerraformClusterStatus) == TerraformClusterStatus()


def test_plan_summary_wire_names() -> None:
    assert to_object(PlanSummary(import_=1, output_changes=2)) == {"import": 1, "outputChanges": 2}


def test_every_kind_has_types() -> None:
    assert set(SPEC_TYPES) == set(STATUS_TYPES) == {kind.kind for kind in kinds.ALL_KINDS}


def test_finalizers_and_roles() -> None:
    assert finalizer_of("TerraformMachine") == "terraformmachine.infrastructure.cluster.x-k8s.io"
    assert kinds.role_of("TerraformMachinePool") == "machinepool"
    assert kinds.workload_kind("TerraformCluster") is kinds.TERRAFORM_CLUSTER
    assert kinds.is_mutable("TerraformMachinePool")
    assert not kinds.is_mutable("TerraformMachine")
    for ask in (finalizer_of, kinds.role_of, kinds.kind_short, kinds.workload_kind):
        with pytest.raises(ValueError, match="unknown kind"):
            ask("TerraformPlan")


def test_owner() -> None:
    obj = {
        "kind": "TerraformMachine",
        "metadata": {"name": "m1", "namespace": "team-a", "uid": "u-1"},
    }
    owner = Owner.of(obj)
    assert owner.suffix == "70ab80533a3bae34-m"
    assert owner.reference().to_dict() == {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "TerraformMachine",
        "name": "m1",
        "uid": "u-1",
    }
    assert owner.is_named_by(
        OwnerReference("infrastructure.cluster.x-k8s.io/v1beta1", "TerraformMachine", "m1", "another")
    )
    assert not owner.is_named_by(OwnerReference("v1", "TerraformMachine", "m1", "u-1"))
    with pytest.raises(ValueError, match=r"metadata\.uid"):
        Owner.of({"kind": "TerraformMachine", "metadata": {"name": "m1", "namespace": "team-a"}})
    with pytest.raises(ValueError, match="unknown kind"):
        Owner.of({"kind": "TerraformPlan", "metadata": {"name": "m1", "namespace": "n", "uid": "u"}})
