"""Names of generated objects."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_controllers.api import names
from captf_controllers.api.workspace import OPERATIONS

KINDS = ("TerraformCluster", "TerraformMachine", "TerraformMachinePool")
object_names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("namespace", "kind", "name", "suffix"),
    [
        ("team-a", "TerraformCluster", "demo", "6d0be5af00180804-c"),
        ("team-a", "TerraformCluster", "prod", "f66792f9106e7299-c"),
        ("team-a", "TerraformMachine", "m1", "70ab80533a3bae34-m"),
        ("team-a", "TerraformMachinePool", "workers", "995e93ddc66624bb-mp"),
    ],
)
def test_state_suffix(namespace: str, kind: str, name: str, suffix: str) -> None:
    assert names.state_suffix(namespace, kind, name) == suffix
    assert names.state_secret(suffix) == f"tfstate-default-{suffix}"
    assert names.state_chunk(suffix, 0) == f"tfstate-default-{suffix}"
    assert names.state_chunk(suffix, 3) == f"tfstate-default-{suffix}-part-3"
    assert names.state_lock_lease(suffix) == f"lock-tfstate-default-{suffix}"
    assert names.run_lease(suffix) == f"captf-run-{suffix}"
    assert names.state_backup(suffix, 7) == f"captf-state-backup-{suffix}-7"
    assert (
        names.state_backup_with_digest(suffix, 7, "0123456789abcdef")
        == f"captf-state-backup-{suffix}-7-01234567"
    )


@pytest.mark.parametrize("kind", ["TerraformPlan", "terraformcluster", ""])
def test_only_workload_kinds_keep_state(kind: str) -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        names.state_suffix("team-a", kind, "demo")


def test_label_value_is_the_name_up_to_63_bytes_then_a_hash() -> None:
    assert names.label_value("n" * 63) == "n" * 63
    assert names.label_value("n" * 64) == "ce068a195ab380a8"


def test_bounded_names_keep_a_prefix_and_a_hash() -> None:
    assert names.durable_inputs_secret("TerraformCluster", "demo") == "captf-inputs-c-demo"
    assert names.applied_inputs_secret("TerraformMachine", "m1") == "captf-applied-m-m1"
    assert names.plan_key_secret("TerraformMachinePool", "w") == "captf-plankey-mp-w"
    fits = "n" * (253 - len("captf-inputs-c-"))
    assert names.durable_inputs_secret("TerraformCluster", fits) == f"captf-inputs-c-{fits}"
    long = names.durable_inputs_secret("TerraformCluster", f"{fits}n")
    assert len(long) == 253
    assert long == f"captf-inputs-c-{fits}"[:236] + "-" + names.digest(f"{fits}n")[:16]


@pytest.mark.parametrize(
    "secret", [names.durable_inputs_secret, names.applied_inputs_secret, names.plan_key_secret]
)
def test_no_name_makes_the_shortened_name_of_another(secret: Callable[[str, str], str]) -> None:
    """Whoever may choose a name must not share the Secrets of an object with a longer one."""
    for name in ("n" * 253, "n" * 210 + "-" * 20 + "n" * 23):
        shortened = secret("TerraformMachine", name)
        chosen = shortened.partition("-m-")[2]
        assert secret("TerraformMachine", chosen) != shortened


def test_a_shortened_prefix_never_ends_in_a_separator() -> None:
    head = "n" * (235 - len("captf-inputs-c-"))
    name = f"{head}.{'m' * 40}"
    shortened = names.durable_inputs_secret("TerraformCluster", name)
    assert shortened == f"captf-inputs-c-{head}-{names.digest(name)[:16]}"


def test_cluster_lease_and_mirror() -> None:
    assert names.cluster_lease("team-a", "prod") == "captf-cluster-687e6377eb6e7c06"
    assert names.credential_mirror("aws") == "captf-creds-aws"
    assert names.credential_mirror("a" * 253) == f"captf-creds-{names.digest('a' * 253)[:16]}"
    assert names.credential_mirror("a" * 241) == f"captf-creds-{'a' * 241}"


def test_job_name_vector() -> None:
    assert (
        names.job_name("TerraformCluster", "demo", "apply", 1, "h2:" + "0" * 64)
        == "captf-c-demo-apply-a1-37ab48"
    )


def test_job_name_hashes_a_long_object_name() -> None:
    name = "a-very-long-name-of-a-machine-that-does-not-fit"
    job = names.job_name("TerraformMachine", name, "refresh", 12, "h2:x", "tick")
    assert job.startswith(f"captf-m-{names.digest(name)[:16]}-refresh-a12-")
    assert len(job) <= 57
    assert names.per_run_secret(job) == f"captf-run-{job}"


@given(
    kind=st.sampled_from(KINDS),
    name=object_names,
    op=st.sampled_from(OPERATIONS),
    attempt=st.integers(1, 2**31 - 1),
    tick=st.text(max_size=10),
)
def test_a_pod_is_recognised_by_its_own_object_only(
    kind: str, name: str, op: str, attempt: int, tick: str
) -> None:
    job = names.job_name(kind, name, op, attempt, "h2:x", tick)
    assert len(job) <= 57
    assert names.job_of_pod(kind, name, f"{job}-x7k2p") == job
    assert names.job_of_pod(kind, f"{name}x", f"{job}-x7k2p") is None
    for other in KINDS:
        if other != kind:
            assert names.job_of_pod(other, name, f"{job}-x7k2p") is None


@pytest.mark.parametrize(
    ("pod", "own"),
    [
        ("captf-m-web-apply-a1-abc123-x7k2p", True),
        ("captf-m-web-plan-a1-abc123-x7k2p", True),
        ("captf-m-web-restore-a2-abc123-x7k2p", True),
        ("captf-c-web-apply-a1-abc123-x7k2p", False),
        ("captf-m-web-1-apply-a1-abc123-x7k2p", False),
        ("captf-m-web-apply-a1-abc123", False),
        ("captf-m-web-bogus-a1-abc123-x7k2p", False),
        ("captf-m-web-apply-1-abc123-x7k2p", False),
        ("captf-m-web-apply-ax-abc123-x7k2p", False),
        ("captf-m-web-apply-a0-abc123-x7k2p", False),
        ("captf-m-web-apply-a2147483648-abc123-x7k2p", False),
        ("captf-m-web-apply-a1-abc123-x7k2", False),
        ("captf-m-web-apply-a1-ABC123-x7k2p", False),
        ("laptop", False),
        ("", False),
    ],
)
def test_which_pods_belong_to_machine_web(pod: str, own: bool) -> None:
    assert (names.job_of_pod("TerraformMachine", "web", pod) is not None) is own


def test_an_object_named_like_an_operation_keeps_its_pods() -> None:
    job = names.job_name("TerraformMachine", "x-apply-a1", "apply", 3, "h2:x")
    assert names.job_of_pod("TerraformMachine", "x-apply-a1", f"{job}-x7k2p") == job
    assert names.job_of_pod("TerraformMachine", "x", f"{job}-x7k2p") is None


def test_plan_name_is_cut_before_its_hash() -> None:
    tail = names.digest("job\np1:x")[:10]
    assert names.plan_name("demo", "job", "p1:x") == f"demo-{tail}"
    assert names.plan_name("d" * 241 + "-x", "job", "p1:x") == f"{'d' * 241}-{tail}"
    assert len(names.plan_name("d" * 253, "job", "p1:x")) == 253


def test_the_backend_label_map_is_fixed() -> None:
    assert names.state_labels("TerraformMachine", "m" * 64, "prod") == {
        "captf.infrastructure.cluster.x-k8s.io/owner-kind": "TerraformMachine",
        "captf.infrastructure.cluster.x-k8s.io/owner-name": names.digest("m" * 64)[:16],
        "cluster.x-k8s.io/cluster-name": "prod",
        "captf.io/managed": "true",
        "clusterctl.cluster.x-k8s.io/move": "",
    }
    assert names.state_selector("s-c") == "tfstate=true,tfstateSecretSuffix=s-c,tfstateWorkspace=default"
    assert names.backup_selector("s-c") == "captf.io/state-backup=true,captf.io/state-backup-suffix=s-c"
