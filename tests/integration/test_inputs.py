"""Inputs on an API server: gates, building, and the records of what Jobs ran."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.captf_api import EMBEDDED_AND_REAL, captf_api
from tests.state_secrets import document, payload, state_secrets

from captf_controllers.api import names
from captf_controllers.api.hashes import exports_hash
from captf_controllers.api.kinds import (
    API_VERSION,
    TERRAFORM_MACHINE_POOL,
    workload_kind,
)
from captf_controllers.api.owner import Owner
from captf_controllers.api.typed import SPEC_TYPES, spec_of
from captf_controllers.api.workspace import WorkspaceSpec
from captf_controllers.inputs import records as inputs_records
from captf_controllers.inputs.build import Inputs, InputsRequest, InputsResult, gather
from captf_controllers.inputs.exports import PoolApply, record_pool_apply
from captf_controllers.inputs.gate import Gate
from captf_controllers.inputs.plan_key import ensure_plan_key
from captf_controllers.inputs.records import (
    Attempt,
    Records,
    choose_record,
    create_per_run,
    promote,
    read_records,
    write_attempt,
)
from captf_controllers.inputs.rendering import MAX_INPUTS_BYTES, Files, render
from captf_controllers.state.cache import StateCache
from captf_runtime.client import Client, Conflict
from captf_runtime.objects import (
    CONFIG_MAP,
    JOB,
    NAMESPACE,
    SECRET,
    Object,
    annotations_of,
    labels_of,
    owner_references,
    uid_of,
)

IMAGE = "registry.example.com/m:v1"
DIGEST = "registry.example.com/m@sha256:" + "0" * 64
_numbers = itertools.count()


@pytest.fixture(scope="module", params=EMBEDDED_AND_REAL)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with captf_api(request.param) as kubeconfig, Client.from_config(kubeconfig=kubeconfig) as made:
        yield made


@pytest.fixture
def namespace(client: Client) -> str:
    name = f"inputs-{next(_numbers)}"
    client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def create(client: Client, namespace: str, kind: str, name: str, **more: Any) -> Object:
    annotations = more.pop("annotations", {})
    spec = {"source": {"image": IMAGE}, **more.pop("spec", {})}
    if kind == "TerraformCluster":
        spec.setdefault("identityRef", {"name": "aws"})
    made: Object = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
            "annotations": annotations,
        },
        "spec": spec,
    }
    return client.create(workload_kind(kind), made, namespace)


def create_secret(
    client: Client, namespace: str, name: str, data: dict[str, bytes], **metadata: Any
) -> Object:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return client.create(
        SECRET,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "data": encoded,
        },
        namespace,
    )


def capi_cluster(namespace: str, *, provisioned: bool = True, **spec: Any) -> Object:
    return {
        "kind": "Cluster",
        "metadata": {"name": "prod", "namespace": namespace},
        "spec": spec,
        "status": {"initialization": {"infrastructureProvisioned": provisioned}},
    }


def request(obj: Object, **more: Any) -> InputsRequest:
    spec = spec_of(obj, SPEC_TYPES[obj["kind"]])
    assert isinstance(spec, WorkspaceSpec)
    given: dict[str, Any] = {
        "cluster": capi_cluster(obj["metadata"]["namespace"]),
        "owner_object": None,
        "terraform_cluster": None,
        "owner_gate": None,
        "records": Records(),
    }
    return InputsRequest(obj=obj, spec=spec, **{**given, **more})


def built(inputs: Inputs) -> InputsResult:
    assert inputs.gate is None, inputs.gate
    assert inputs.result is not None
    assert inputs.dependencies()[1:3] == ("True", "DependenciesReady")
    return inputs.result


def gate(inputs: Inputs) -> tuple[str, str]:
    assert inputs.gate is not None
    assert inputs.result is None
    assert inputs.dependencies()[:3] == ("DependenciesReady", *inputs.gate[:2])
    return inputs.gate.status, inputs.gate.reason


# Gates and building --------------------------------------------------------------------------------


def test_a_cluster_builds_with_nothing_but_its_cluster(client: Client, namespace: str) -> None:
    obj = create(client, namespace, "TerraformCluster", "prod")
    result = built(gather(client, request(obj)))
    assert result.role == "cluster"
    assert result.hash == result.approval_hash
    assert result.exports_hash == ""
    assert result.endpoint_record == ""
    assert result.size == len(result.files.main) + len(result.files.tfvars)
    again = built(gather(client, request(obj)))
    assert (again.hash, again.files) == (result.hash, result.files)


def test_a_cluster_records_where_its_endpoint_comes_from_only_when_it_builds(
    client: Client, namespace: str
) -> None:
    endpoint = {"host": "api", "port": 6443}
    obj = create(client, namespace, "TerraformCluster", "prod", spec={"controlPlaneEndpoint": endpoint})
    result = built(gather(client, request(obj)))
    assert result.endpoint_record == "user"
    assert result.inputs["control_plane_endpoint"] == endpoint
    waiting = create(
        client,
        namespace,
        "TerraformCluster",
        "other",
        spec={"controlPlaneEndpoint": endpoint, "variablesFrom": [{"secretRef": {"name": "x"}}]},
    )
    assert gate(gather(client, request(waiting))) == ("False", "VariablesSourceNotFound")


def test_owner_gates_come_first(client: Client, namespace: str) -> None:
    obj = create(client, namespace, "TerraformMachine", "m1")
    closed = Gate("False", "OwnerMismatch", "not mine")
    assert gate(gather(client, request(obj, owner_gate=closed))) == ("False", "OwnerMismatch")
    assert gate(gather(client, request(obj))) == ("False", "OwnerNotFound")
    machine = {"metadata": {"name": "m1", "namespace": namespace}}
    assert gate(gather(client, request(obj, owner_object=machine, cluster=None))) == (
        "Unknown",
        "WaitingForOwner",
    )


@pytest.fixture
def machine(client: Client, namespace: str) -> Object:
    return create(client, namespace, "TerraformMachine", "m1")


def capi_machine(namespace: str, **spec: Any) -> Object:
    return {"metadata": {"name": "m1-x", "namespace": namespace}, "spec": {"version": "v1.31.0", **spec}}


def store_cluster_state(client: Client, namespace: str, outputs: dict[str, Any]) -> None:
    suffix = names.state_suffix(namespace, "TerraformCluster", "prod")
    text = document(outputs=outputs)
    for item in state_secrets([payload(text)], suffix=suffix, namespace=namespace):
        client.create(SECRET, item, namespace)


def test_the_gates_of_a_machine_open_one_by_one(client: Client, namespace: str, machine: Object) -> None:
    cache = StateCache()
    owner_object = capi_machine(namespace)

    def ask(**more: Any) -> Inputs:
        return gather(client, request(machine, **{"owner_object": owner_object, **more}), cache)

    assert gate(ask(cluster=capi_cluster(namespace, provisioned=False))) == (
        "Unknown",
        "WaitingForClusterInfrastructure",
    )
    assert gate(ask()) == ("Unknown", "WaitingForClusterInfrastructure")
    terraform_cluster = create(client, namespace, "TerraformCluster", "prod")
    assert gate(ask(terraform_cluster=terraform_cluster)) == ("Unknown", "WaitingForClusterExports")
    store_cluster_state(client, namespace, {"exports": {"network": "n1"}, "health": {"state": "running"}})
    assert gate(ask(terraform_cluster=terraform_cluster)) == ("Unknown", "WaitingForBootstrapData")
    owner_object["spec"]["bootstrap"] = {"dataSecretName": ""}
    assert gate(ask(terraform_cluster=terraform_cluster)) == ("Unknown", "WaitingForBootstrapData")
    owner_object["spec"]["bootstrap"] = {"dataSecretName": "boot"}
    assert gate(ask(terraform_cluster=terraform_cluster)) == ("Unknown", "WaitingForBootstrapData")
    create_secret(client, namespace, "boot", {"value": b""})
    assert gate(ask(terraform_cluster=terraform_cluster)) == ("Unknown", "WaitingForBootstrapData")
    client.patch(SECRET, "boot", {"data": {"value": "I2Nsb3VkLWNvbmZpZwo="}}, namespace)
    result = built(ask(terraform_cluster=terraform_cluster))
    assert result.inputs["captf_cluster_outputs"] == {"network": "n1"}
    assert result.inputs["bootstrap_data"] == "I2Nsb3VkLWNvbmZpZwo="
    assert result.exports_hash == exports_hash({"network": "n1"})


@pytest.mark.parametrize(
    "content",
    [
        b"damaged",
        payload(b'{"encryption_version":"v0"}'),
        payload(document(version=5)),
        payload(document()),
        payload(document(outputs={"exports": {"ratio": 1.5}})),
    ],
    ids=["corrupt", "encrypted", "version", "no outputs", "fraction"],
)
def test_exports_that_cannot_be_read_are_waited_for(
    client: Client, namespace: str, machine: Object, content: bytes
) -> None:
    terraform_cluster = create(client, namespace, "TerraformCluster", "prod")
    suffix = names.state_suffix(namespace, "TerraformCluster", "prod")
    (item,) = state_secrets([content], suffix=suffix, namespace=namespace)
    client.create(SECRET, item, namespace)
    asked = request(machine, owner_object=capi_machine(namespace), terraform_cluster=terraform_cluster)
    assert gate(gather(client, asked)) == ("Unknown", "WaitingForClusterExports")


def test_an_externally_managed_cluster_has_no_state(client: Client, namespace: str) -> None:
    obj = create(client, namespace, "TerraformMachinePool", "workers")
    terraform_cluster = create(
        client, namespace, "TerraformCluster", "prod", annotations={"cluster.x-k8s.io/managed-by": "other"}
    )
    terraform_cluster["status"] = {"failureDomains": [{"name": "b"}, {"name": "a"}]}
    create_secret(client, namespace, "boot", {"value": b"x"})
    pool = {
        "metadata": {"name": "workers", "namespace": namespace},
        "spec": {"template": {"spec": {"bootstrap": {"dataSecretName": "boot"}}}},
    }
    found = gather(client, request(obj, owner_object=pool, terraform_cluster=terraform_cluster))
    result = built(found)
    assert result.inputs["captf_cluster_outputs"] == {}
    assert result.inputs["cluster_failure_domains"] == ["a", "b"]
    assert found.autoscaling is not None
    assert found.autoscaling.reason == "AutoscalingDisabled"


def test_variables_are_read_live_from_their_sources(client: Client, namespace: str) -> None:
    sources = [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}, "format": "JSON"}]
    obj = create(
        client, namespace, "TerraformCluster", "prod", spec={"variables": {"z": 1}, "variablesFrom": sources}
    )
    opted_in = {"captf.io/variables": "true"}
    client.create(
        CONFIG_MAP,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c", "labels": opted_in},
            "data": {"a": "x"},
        },
        namespace,
    )
    create_secret(client, namespace, "s", {"b": b'{"n":1.50}'})
    assert gate(gather(client, request(obj))) == ("False", "VariablesSourceNotFound")
    client.patch(SECRET, "s", {"metadata": {"labels": opted_in}}, namespace)
    result = built(gather(client, request(obj)))
    assert list(result.variables) == ["a", "b", "z"]
    assert result.sensitive == {"b"}
    assert b'"n": 1.50' in result.files.tfvars
    before = result.hash
    client.patch(CONFIG_MAP, "c", {"data": {"a": "y"}}, namespace)
    assert built(gather(client, request(obj))).hash != before
    client.patch(CONFIG_MAP, "c", {"data": {"captf_x": "y"}}, namespace)
    assert gate(gather(client, request(obj))) == ("False", "VariablesInvalid")


def test_control_plane_initialized_is_latched_by_the_records(client: Client, namespace: str) -> None:
    obj = create(client, namespace, "TerraformCluster", "prod")
    owner = Owner.of(obj)
    up = {"status": {"initialization": {"controlPlaneInitialized": True}}}
    first = built(gather(client, request(obj, cluster={**capi_cluster(namespace), **up})))
    write_attempt(client, owner, attempt(first.files, "job-1", first.hash), Records())
    records = read_records(client, owner)
    latched = built(gather(client, request(obj, records=records)))
    assert latched.inputs["control_plane_initialized"] is True
    assert latched.hash == first.hash
    broken = client.patch(
        SECRET,
        names.durable_inputs_secret(owner.kind, owner.name),
        {"data": {"terraform.tfvars.json": base64.b64encode(b"broken").decode()}},
        namespace,
    )
    assert broken
    applied = Records(read_records(client, owner).durable, records.durable)
    assert built(gather(client, request(obj, records=applied))).inputs["control_plane_initialized"] is True


# Records -------------------------------------------------------------------------------------------


def attempt(
    files: Files | None = None, job: str = "job-1", inputs_hash: str = "h2:a", **more: Any
) -> Attempt:
    given: dict[str, Any] = {"image": IMAGE, "identity": "aws", "identity_kind": ""}
    return Attempt(files or Files(b"main\n", b"{}\n"), inputs_hash, job=job, **{**given, **more})


@pytest.fixture
def owner(machine: Object) -> Owner:
    return Owner.of(machine)


def durable(client: Client, owner: Owner) -> Object:
    return client.get(SECRET, names.durable_inputs_secret(owner.kind, owner.name), owner.namespace)


def applied(client: Client, owner: Owner) -> Object:
    return client.get(SECRET, names.applied_inputs_secret(owner.kind, owner.name), owner.namespace)


def job(client: Client, owner: Owner, name: str) -> Object:
    container = {"name": "c", "image": "x"}
    return client.create(
        JOB,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": owner.namespace},
            "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
        },
        owner.namespace,
    )


def test_no_records(client: Client, owner: Owner) -> None:
    records = read_records(client, owner)
    assert records == Records()
    assert not records.any
    assert records.secrets == ()
    assert (records.pinned_digest, records.any_digest, records.unconfirmed_apply) == ("", "", "")
    assert choose_record(records, "h2:a") is None


def test_an_attempt_is_recorded(client: Client, owner: Owner) -> None:
    write_attempt(client, owner, attempt(identity_kind="Secret"), Records())
    made = durable(client, owner)
    assert made["type"] == "Opaque"
    assert labels_of(made) == {
        "captf.io/managed": "true",
        "captf.infrastructure.cluster.x-k8s.io/owner-kind": "TerraformMachine",
        "captf.infrastructure.cluster.x-k8s.io/owner-name": "m1",
    }
    assert owner_references(made) == [owner.reference()]
    assert annotations_of(made) == {
        "captf.io/image": IMAGE,
        "captf.io/identity": "aws",
        "captf.io/identity-kind": "Secret",
        "captf.io/inputs-hash": "h2:a",
        "captf.io/job": "job-1",
    }
    assert set(made["data"]) == {"main.tf.json", "terraform.tfvars.json"}
    record = read_records(client, owner).durable
    assert record is not None
    assert (record.files, record.inputs_hash, record.job) == (Files(b"main\n", b"{}\n"), "h2:a", "job-1")
    assert record.usable


def test_the_next_attempt_keeps_the_marks_and_drops_what_is_not_its_own(client: Client, owner: Owner) -> None:
    write_attempt(client, owner, attempt(identity_kind="Secret"), Records())
    inputs_records.mark_applied(client, owner)
    inputs_records.mark_may_have_applied(client, owner)
    inputs_records.record_unconfirmed(client, owner, "job-0")
    inputs_records.add_unpullable(client, owner, "image-a")
    other = {**owner.reference().to_dict(), "uid": "u-earlier"}
    client.patch(
        SECRET,
        names.durable_inputs_secret(owner.kind, owner.name),
        {
            "metadata": {"annotations": {"captf.io/image-digest": DIGEST}, "ownerReferences": [other]},
            "data": {"stray": "eA=="},
        },
        owner.namespace,
    )
    write_attempt(client, owner, attempt(job="job-2", inputs_hash="h2:b"), read_records(client, owner))
    made = durable(client, owner)
    assert set(made["data"]) == {"main.tf.json", "terraform.tfvars.json"}
    assert owner_references(made) == [owner.reference()]
    assert annotations_of(made) == {
        "captf.io/image": IMAGE,
        "captf.io/identity": "aws",
        "captf.io/inputs-hash": "h2:b",
        "captf.io/job": "job-2",
        "captf.io/applied": "true",
        "captf.io/may-have-applied": "true",
        "captf.io/unconfirmed-apply": "job-0",
        "captf.io/unpullable-images": '["image-a"]',
        "captf.io/image-digest": DIGEST,
    }
    write_attempt(client, owner, attempt(job="job-3", image="other:v2"), read_records(client, owner))
    assert "captf.io/image-digest" not in annotations_of(durable(client, owner))


def test_an_attempt_does_not_overwrite_what_changed_since_it_was_read(client: Client, owner: Owner) -> None:
    write_attempt(client, owner, attempt(), Records())
    stale = read_records(client, owner)
    inputs_records.mark_applied(client, owner)
    with pytest.raises(Conflict):
        write_attempt(client, owner, attempt(job="job-2"), stale)


def test_recorded_exports_are_dropped_when_the_secret_would_be_too_large(
    client: Client, owner: Owner
) -> None:
    name = names.durable_inputs_secret(owner.kind, owner.name)
    write_attempt(client, owner, attempt(), Records())
    exports = base64.b64encode(b"x" * 1000).decode()
    client.patch(SECRET, name, {"data": {"applied-cluster-outputs.json": exports}}, owner.namespace)
    big = Files(b"x" * (MAX_INPUTS_BYTES - 1000 - 3), b"{}\n")
    write_attempt(client, owner, attempt(big, "job-2"), read_records(client, owner))
    assert "applied-cluster-outputs.json" in durable(client, owner)["data"]
    bigger = Files(big.main + b"x", b"{}\n")
    write_attempt(client, owner, attempt(bigger, "job-3"), read_records(client, owner))
    assert "applied-cluster-outputs.json" not in durable(client, owner)["data"]


def test_marks_without_a_durable_secret_do_nothing(client: Client, owner: Owner) -> None:
    assert not inputs_records.mark_applied(client, owner)
    assert not inputs_records.mark_may_have_applied(client, owner)
    assert not inputs_records.record_unconfirmed(client, owner, "j")
    assert not inputs_records.clear_unconfirmed(client, owner)
    assert not inputs_records.add_unpullable(client, owner, "i")
    assert read_records(client, owner) == Records()


def test_a_restore_clears_what_the_replaced_state_was_about(client: Client, owner: Owner) -> None:
    write_attempt(client, owner, attempt(), Records())
    inputs_records.mark_may_have_applied(client, owner)
    inputs_records.record_unconfirmed(client, owner, "job-1")
    records = read_records(client, owner)
    assert records.durable is not None
    assert records.durable.may_have_applied
    assert records.unconfirmed_apply == "job-1"
    assert inputs_records.clear_after_restore(client, owner)
    records = read_records(client, owner)
    assert records.durable is not None
    assert not records.durable.may_have_applied
    assert records.unconfirmed_apply == ""
    assert records.ever_applied_marker


def test_unpullable_images_are_remembered_oldest_first(client: Client, owner: Owner) -> None:
    write_attempt(client, owner, attempt(), Records())
    for image in ("a", "b", "a"):
        assert inputs_records.add_unpullable(client, owner, image)
    assert read_records(client, owner).unpullable_images == ("a", "b")


# Per-run Secrets -----------------------------------------------------------------------------------


def test_a_per_run_secret_belongs_to_its_job(client: Client, owner: Owner) -> None:
    made = job(client, owner, "captf-m-m1-apply-a1-abc123")
    create_per_run(client, made, attempt(identity_kind="Secret"))
    found = client.get(SECRET, "captf-run-captf-m-m1-apply-a1-abc123", owner.namespace)
    assert labels_of(found) == {"captf.io/managed": "true"}
    assert annotations_of(found) == {
        "captf.io/image": IMAGE,
        "captf.io/identity": "aws",
        "captf.io/identity-kind": "Secret",
        "captf.io/inputs-hash": "h2:a",
    }
    (reference,) = owner_references(found)
    assert (reference.kind, reference.uid, reference.controller) == ("Job", uid_of(made), False)
    create_per_run(client, made, attempt(Files(b"other", b"other")))
    assert (
        client.get(SECRET, "captf-run-captf-m-m1-apply-a1-abc123", owner.namespace)["data"] == found["data"]
    )


def test_the_per_run_secret_of_an_earlier_job_is_replaced(client: Client, owner: Owner) -> None:
    made = job(client, owner, "captf-m-m1-apply-a1-abc123")
    earlier = {"apiVersion": "batch/v1", "kind": "Job", "name": made["metadata"]["name"], "uid": "u-earlier"}
    create_secret(
        client,
        owner.namespace,
        "captf-run-captf-m-m1-apply-a1-abc123",
        {"main.tf.json": b"old"},
        ownerReferences=[earlier],
    )
    create_per_run(client, made, attempt())
    found = client.get(SECRET, "captf-run-captf-m-m1-apply-a1-abc123", owner.namespace)
    assert base64.b64decode(found["data"]["main.tf.json"]) == b"main\n"
    assert owner_references(found)[0].uid == uid_of(made)


# Promotion -----------------------------------------------------------------------------------------


def start(client: Client, owner: Owner, name: str, **more: Any) -> Attempt:
    """Record an attempt and its per-run Secret, as starting an apply does."""
    made = job(client, owner, name)
    begun = attempt(Files(f"main of {name}\n".encode(), b"{}\n"), name, f"h2:{name}", **more)
    write_attempt(client, owner, begun, read_records(client, owner))
    create_per_run(client, made, begun)
    return begun


def test_a_success_is_promoted_with_its_digest(client: Client, owner: Owner) -> None:
    begun = start(client, owner, "job-1", identity_kind="Secret")
    inputs_records.mark_may_have_applied(client, owner)
    inputs_records.add_unpullable(client, owner, "x")
    found = promote(client, owner, "job-1", DIGEST, read_records(client, owner))
    assert (found.outcome, found.digest, found.pinned, found.digest_unknown) == (
        "promoted",
        DIGEST,
        True,
        False,
    )
    made = applied(client, owner)
    assert annotations_of(made) == {
        "captf.io/image": IMAGE,
        "captf.io/identity": "aws",
        "captf.io/identity-kind": "Secret",
        "captf.io/inputs-hash": "h2:job-1",
        "captf.io/job": "job-1",
        "captf.io/image-digest": DIGEST,
    }
    assert owner_references(made) == [owner.reference()]
    records = read_records(client, owner)
    assert records.applied is not None
    assert records.applied.files == begun.files
    assert records.pinned_digest == DIGEST
    assert records.durable is not None
    assert records.durable.image_digest == DIGEST
    assert not records.durable.may_have_applied
    assert records.unpullable_images == ()
    again = promote(client, owner, "job-1", DIGEST, records)
    assert (again.outcome, again.pinned) == ("already", False)
    assert applied(client, owner) == made


def test_the_per_run_secret_is_promoted_and_not_a_later_attempt(client: Client, owner: Owner) -> None:
    start(client, owner, "job-1")
    start(client, owner, "job-2", image="other:v2")
    inputs_records.mark_may_have_applied(client, owner)
    promote(client, owner, "job-1", DIGEST, read_records(client, owner))
    records = read_records(client, owner)
    assert records.applied is not None
    assert records.applied.files.main == b"main of job-1\n"
    assert records.durable is not None
    assert records.durable.may_have_applied  # the later attempt's mark
    assert records.durable.image_digest == ""  # it runs another image


def test_the_attempt_stands_in_for_a_per_run_secret_that_is_gone(client: Client, owner: Owner) -> None:
    start(client, owner, "job-1")
    client.delete(SECRET, "captf-run-job-1", owner.namespace, propagation_policy="Background")
    assert promote(client, owner, "job-1", DIGEST, read_records(client, owner)).outcome == "promoted"
    start(client, owner, "job-2")
    client.delete(SECRET, "captf-run-job-2", owner.namespace, propagation_policy="Background")
    start(client, owner, "job-3")
    records = read_records(client, owner)
    lost = promote(client, owner, "job-2", DIGEST, records)
    assert (lost.outcome, lost.digest) == ("unknown", DIGEST)
    assert records.applied == read_records(client, owner).applied


@pytest.mark.parametrize(("image", "kept"), [(IMAGE, True), ("other:v2", False)])
def test_an_unknown_digest_keeps_the_one_of_the_same_image(
    client: Client, owner: Owner, image: str, kept: bool
) -> None:
    start(client, owner, "job-1")
    promote(client, owner, "job-1", DIGEST, read_records(client, owner))
    start(client, owner, "job-2", image=image)
    found = promote(client, owner, "job-2", "", read_records(client, owner))
    assert (found.digest, found.pinned, found.digest_unknown) == (DIGEST if kept else "", False, not kept)
    assert read_records(client, owner).pinned_digest == (DIGEST if kept else "")


def test_the_digest_that_only_the_durable_secret_has_counts_as_a_sign(client: Client, owner: Owner) -> None:
    start(client, owner, "job-1")
    promote(client, owner, "job-1", DIGEST, read_records(client, owner))
    name = names.applied_inputs_secret(owner.kind, owner.name)
    client.delete(SECRET, name, owner.namespace, propagation_policy="Background")
    records = read_records(client, owner)
    assert (records.pinned_digest, records.any_digest) == ("", DIGEST)


# Choosing ------------------------------------------------------------------------------------------


def test_a_destroy_runs_what_was_applied(client: Client, owner: Owner) -> None:
    start(client, owner, "job-1")
    promote(client, owner, "job-1", DIGEST, read_records(client, owner))
    start(client, owner, "job-2")

    def chosen(state_hash: str) -> tuple[str, bool]:
        choice = choose_record(read_records(client, owner), state_hash)
        assert choice is not None
        assert choice.why
        return choice.record.job, choice.mismatch

    assert chosen("h2:job-1") == ("job-1", False)
    assert chosen("h2:job-2") == ("job-2", False)
    assert chosen("h2:another") == ("job-1", True)
    assert chosen("") == ("job-1", False)
    inputs_records.mark_may_have_applied(client, owner)
    assert chosen("h2:job-1") == ("job-2", True)
    assert chosen("") == ("job-2", False)


def test_the_attempt_is_used_when_nothing_ever_succeeded(client: Client, owner: Owner) -> None:
    start(client, owner, "job-1")
    choice = choose_record(read_records(client, owner), "h2:x")
    assert choice is not None
    assert (choice.record.job, choice.mismatch) == ("job-1", True)


def test_a_mark_on_the_applied_attempt_itself_changes_nothing(client: Client, owner: Owner) -> None:
    start(client, owner, "job-1")
    promote(client, owner, "job-1", DIGEST, read_records(client, owner))
    inputs_records.mark_may_have_applied(client, owner)
    choice = choose_record(read_records(client, owner), "h2:job-1")
    assert choice is not None
    assert choice.why == "the last successful apply made the state"


def test_a_record_without_files_is_not_run(client: Client, owner: Owner) -> None:
    start(client, owner, "job-1")
    client.patch(
        SECRET,
        names.durable_inputs_secret(owner.kind, owner.name),
        {"data": {"main.tf.json": None}},
        owner.namespace,
    )
    records = read_records(client, owner)
    assert records.any
    assert choose_record(records, "h2:job-1") is None


# Plan key ------------------------------------------------------------------------------------------


def test_the_plan_key_is_made_once(client: Client, owner: Owner) -> None:
    name = ensure_plan_key(client, owner)
    assert name == "captf-plankey-m-m1"
    made = client.get(SECRET, name, owner.namespace)
    assert len(base64.b64decode(made["data"]["key"])) == 32
    assert owner_references(made) == [owner.reference()]
    assert labels_of(made)["captf.io/managed"] == "true"
    ensure_plan_key(client, owner)
    assert client.get(SECRET, name, owner.namespace) == made


@pytest.mark.parametrize("data", [{}, {"key": b"short"}, {"other": b"x" * 32}])
def test_a_plan_key_that_is_no_key_is_replaced(client: Client, owner: Owner, data: dict[str, bytes]) -> None:
    create_secret(client, owner.namespace, "captf-plankey-m-m1", data)
    ensure_plan_key(client, owner)
    made = client.get(SECRET, "captf-plankey-m-m1", owner.namespace)
    assert len(base64.b64decode(made["data"]["key"])) == 32


# Exports of a pool ---------------------------------------------------------------------------------


@pytest.fixture
def pool(client: Client, namespace: str) -> Owner:
    return Owner.of(create(client, namespace, "TerraformMachinePool", "workers"))


def pool_attempt(client: Client, owner: Owner, name: str, exports: Any) -> None:
    tfvars = json.dumps({"captf_cluster_outputs": exports}).encode()
    begun = attempt(Files(b"main\n", tfvars), name, f"h2:{name}")
    write_attempt(client, owner, begun, read_records(client, owner))


def outcome(name: str, exports: Any, **more: Any) -> PoolApply:
    given: dict[str, Any] = {
        "succeeded": False,
        "blocked": False,
        "may_have_applied": False,
        "approval_hash": "h2:approval",
        "held": False,
    }
    return PoolApply(name, exports_hash=exports_hash(exports), **{**given, **more})


def test_the_life_of_a_pools_exports(client: Client, pool: Owner) -> None:
    old, new = {"n": "old"}, {"n": "new"}
    pool_attempt(client, pool, "job-1", old)
    assert record_pool_apply(
        client, pool, read_records(client, pool), outcome("job-1", old, succeeded=True, approval_hash="")
    )
    record = read_records(client, pool).durable
    assert record is not None
    assert record.applied_exports == b'{"n":"old"}'
    assert record.applied_exports_hash == exports_hash(old)

    pool_attempt(client, pool, "job-2", new)
    blocked = outcome("job-2", new, blocked=True, summary="delete x")
    assert record_pool_apply(client, pool, read_records(client, pool), blocked)
    record = read_records(client, pool).durable
    assert record is not None
    assert record.pending_exports is not None
    assert (record.pending_exports.exports_hash, record.pending_exports.job) == (exports_hash(new), "job-2")
    assert record.pending_exports.approval_hash == "h2:approval"
    assert record.pending_exports.summary == "delete x"
    assert record.applied_exports == b'{"n":"old"}'

    held = outcome("job-3", old, succeeded=True, held=True, approval_hash="")
    assert not record_pool_apply(client, pool, read_records(client, pool), held)

    failed = outcome("job-4", new, may_have_applied=True)
    assert record_pool_apply(client, pool, read_records(client, pool), failed)
    assert not record_pool_apply(
        client, pool, read_records(client, pool), outcome("job-5", old, may_have_applied=True)
    )
    record = read_records(client, pool).durable
    assert record is not None
    assert record.partial_exports is not None
    assert record.partial_exports.job == "job-4"

    pool_attempt(client, pool, "job-6", new)
    assert record_pool_apply(client, pool, read_records(client, pool), outcome("job-6", new, succeeded=True))
    record = read_records(client, pool).durable
    assert record is not None
    assert record.applied_exports == b'{"n":"new"}'
    assert record.pending_exports is None
    assert record.partial_exports is None


@pytest.mark.parametrize(
    "apply",
    [
        outcome("job-2", {"n": "old"}, blocked=True),
        outcome("job-2", {"n": "new"}, blocked=True, approval_hash=""),
        outcome("job-2", {"n": "new"}),
        outcome("job-2", {"n": "new"}, may_have_applied=True, approval_hash=""),
    ],
    ids=[
        "blocked on the applied exports",
        "not guarded",
        "failed before its apply step",
        "failed, not guarded",
    ],
)
def test_what_leaves_a_pools_exports_alone(client: Client, pool: Owner, apply: PoolApply) -> None:
    pool_attempt(client, pool, "job-1", {"n": "old"})
    success = outcome("job-1", {"n": "old"}, succeeded=True, approval_hash="")
    record_pool_apply(client, pool, read_records(client, pool), success)
    before = read_records(client, pool)
    assert not record_pool_apply(client, pool, before, apply)
    assert read_records(client, pool) == before


def test_a_pool_holds_a_blocked_change_of_exports(client: Client, namespace: str, pool: Owner) -> None:
    old, new = {"n": "old"}, {"n": "new"}
    pool_attempt(client, pool, "job-1", old)
    record_pool_apply(
        client, pool, read_records(client, pool), outcome("job-1", old, succeeded=True, approval_hash="")
    )
    terraform_cluster = create(client, namespace, "TerraformCluster", "prod")
    store_cluster_state(client, namespace, {"exports": new, "failure_domains": [{"name": "a"}], "health": 1})
    create_secret(client, namespace, "boot", {"value": b"x"})
    owner_object = {
        "metadata": {"name": "workers", "namespace": namespace},
        "spec": {"replicas": 3, "template": {"spec": {"bootstrap": {"dataSecretName": "boot"}}}},
    }
    obj = client.get(TERRAFORM_MACHINE_POOL, "workers", namespace)

    def build(**more: Any) -> InputsResult:
        asked = request(
            obj,
            owner_object=owner_object,
            terraform_cluster=terraform_cluster,
            records=read_records(client, pool),
            provisioned=True,
            **more,
        )
        return built(gather(client, asked))

    guarded = build()
    assert (guarded.guarded, guarded.held_exports) == (True, False)
    assert guarded.inputs["captf_cluster_outputs"] == new
    assert guarded.approval_hash != guarded.hash
    record_pool_apply(
        client,
        pool,
        read_records(client, pool),
        outcome("job-2", new, blocked=True, approval_hash=guarded.approval_hash),
    )
    held = build()
    assert (held.guarded, held.held_exports) == (False, True)
    assert held.inputs["captf_cluster_outputs"] == old
    assert held.approval_hash == guarded.approval_hash
    assert held.exports_hash == exports_hash(old)
    approved = build(approved_hashes=(guarded.approval_hash,))
    assert (approved.guarded, approved.held_exports) == (True, False)
    assert approved.hash == guarded.hash
    client.patch(SECRET, "boot", {"data": {"value": "eQ=="}}, namespace)
    rotated = build()
    assert rotated.approval_hash == guarded.approval_hash
    assert rotated.hash != held.hash


def test_rendering_of_a_real_build_is_the_renderers(client: Client, namespace: str) -> None:
    obj = create(client, namespace, "TerraformCluster", "prod", spec={"variables": {"a": 1}})
    result = built(gather(client, request(obj)))
    assert result.files == render("cluster", result.inputs, result.variables, result.sensitive)
