"""The runner and the real runtime with the `kubernetes` backend, as in a Job."""

from __future__ import annotations

import base64
import gzip
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.module_image import ModuleImage

from captf_runtime.client import Client
from captf_runtime.objects import LEASE, NAMESPACE, SECRET, Object
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.faults import Match, internal_error

pytestmark = pytest.mark.terraform

LABELS = {
    "captf.infrastructure.cluster.x-k8s.io/owner-kind": "TerraformCluster",
    "captf.infrastructure.cluster.x-k8s.io/owner-name": "my-cluster",
    "captf.io/managed": "true",
    "cluster.x-k8s.io/cluster-name": "prod",
    "clusterctl.cluster.x-k8s.io/move": "",
}
NAMESPACE_NAME = "team-a"
SUFFIX = "0123456789abcdef-c"
STATE = f"tfstate-default-{SUFFIX}"
LOCK = f"lock-{STATE}"


@dataclass(slots=True)
class Cluster:
    """An API server and a module image whose state is kept there."""

    server: ApiServer
    client: Client
    image: ModuleImage

    def secret(self) -> Object:
        return self.client.get(SECRET, STATE, NAMESPACE_NAME)

    def state(self) -> dict[str, Any]:
        data = base64.b64decode(self.secret()["data"]["tfstate"])
        state: dict[str, Any] = json.loads(gzip.decompress(data))
        return state

    def lock(self) -> Object:
        return self.client.get(LEASE, LOCK, NAMESPACE_NAME)

    @property
    def holder(self) -> str:
        holder: str | None = self.lock()["spec"].get("holderIdentity")
        return holder or ""

    def leave_a_lock(self) -> str:
        """Kills a run in the middle of its apply; returns the ID of the lock that it leaves."""
        self.image.configure(sleep_seconds=60)
        process = self.image.start("apply")
        assert process.stdout is not None
        for line in process.stdout:
            if "delay[0]: Creating" in line:
                break
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=180)
        self.image.configure()
        assert self.holder
        return self.holder


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ApiServer() as server:
        kubeconfig = str(server.kubeconfig())
        client = Client.from_config(kubeconfig=kubeconfig)
        try:
            client.create(NAMESPACE, {"metadata": {"name": NAMESPACE_NAME}})
            pairs = ",".join(f'"{key}"="{value}"' for key, value in sorted(LABELS.items()))
            image = ModuleImage(
                tmp_path,
                backend={"kubernetes": {}},
                backend_config=(
                    f"secret_suffix={SUFFIX}",
                    f"namespace={NAMESPACE_NAME}",
                    "in_cluster_config=true",
                    f"labels={{{pairs}}}",
                ),
                environ={"KUBECONFIG": kubeconfig, "KUBE_NAMESPACE": NAMESPACE_NAME},
            )
            yield Cluster(server, client, image)
        finally:
            client.close()


def test_state_and_lock_carry_the_labels(cluster: Cluster) -> None:
    applied = cluster.image.run("apply")
    assert applied.exit == 0, applied.log
    assert LABELS.items() <= cluster.secret()["metadata"]["labels"].items()
    assert LABELS.items() <= cluster.lock()["metadata"]["labels"].items()
    assert cluster.holder == "", "the lock must be free after a run"
    assert set(cluster.state()["outputs"]) >= {"exports", "health"}
    assert cluster.image.run("drift").result["drift"]["detected"] is False
    destroyed = cluster.image.run("destroy")
    assert destroyed.result["changes"] == {"add": 0, "change": 0, "destroy": 1}
    assert cluster.state()["resources"] == []


def test_a_stale_lock_is_released_by_its_id(cluster: Cluster) -> None:
    lock_id = cluster.leave_a_lock()
    applied = cluster.image.run("apply", f"--force-unlock={lock_id}", "--lock-timeout=1s")
    assert applied.exit == 0, applied.log
    assert applied.steps[:2] == [("init", 0), ("force-unlock", 0)]
    assert cluster.holder == ""


def test_a_lock_that_is_free_already_is_no_failure(cluster: Cluster) -> None:
    cluster.image.run("apply")
    again = cluster.image.run("refresh", "--force-unlock=11111111-2222-3333-4444-555555555555")
    assert (again.exit, again.steps[1]) == (0, ("force-unlock", 1))


def test_the_lock_of_somebody_else_is_respected(cluster: Cluster) -> None:
    lock_id = cluster.leave_a_lock()
    other = "11111111-2222-3333-4444-555555555555"
    failed = cluster.image.run("apply", f"--force-unlock={other}", "--lock-timeout=1s")
    assert failed.steps == [("init", 0), ("force-unlock", 1), ("validate", 0), ("apply", 1)]
    assert failed.error["step"] == "apply"
    assert "Error acquiring the state lock" in failed.error["tail"]
    assert cluster.holder == lock_id


def test_a_backup_is_restored(cluster: Cluster) -> None:
    cluster.image.run("apply")
    before = cluster.state()
    backup = gzip.compress(json.dumps(before).encode())
    assert cluster.image.run("destroy").exit == 0
    cluster.client.delete(SECRET, STATE, NAMESPACE_NAME, propagation_policy="Background")

    cluster.image.write_root({"terraform": {"backend": {"kubernetes": {}}}}, {})
    chunks = cluster.image.directory / "captf" / "config" / "restore"
    chunks.mkdir()
    (chunks / "0").write_bytes(backup[:200])
    (chunks / "1").write_bytes(backup[200:])
    restored = cluster.image.run("restore", "--restore-chunks=2", "--restore-resources=1")
    assert restored.exit == 0, restored.log
    assert restored.steps == [("init", 0), ("state-push", 0), ("state-list", 0)]
    after = cluster.state()
    assert (after["lineage"], after["resources"], after["outputs"]) == (
        before["lineage"],
        before["resources"],
        before["outputs"],
    )


def test_an_empty_backup_does_not_pass_for_a_full_one(cluster: Cluster) -> None:
    cluster.image.run("apply")
    cluster.image.run("destroy")
    chunks = cluster.image.directory / "captf" / "config" / "restore"
    chunks.mkdir()
    (chunks / "0").write_bytes(gzip.compress(json.dumps(cluster.state()).encode()))
    cluster.image.write_root({"terraform": {"backend": {"kubernetes": {}}}}, {})
    failed = cluster.image.run("restore", "--restore-chunks=1", "--restore-resources=1")
    assert (failed.exit, failed.error["step"]) == (1, "state-list")


def test_a_state_that_the_api_server_refused_is_pushed_after_all(cluster: Cluster) -> None:
    cluster.image.run("apply")
    cluster.image.configure(extra_resources=1)
    # The runtime writes a state that is there already once, at the end of the apply.
    cluster.server.faults.add(Match(verb="update,patch", resource="secrets"), internal_error(), times=1)
    failed = cluster.image.run("apply")
    assert failed.steps[-2:] == [("apply", 1), ("state-push", 0)], failed.log
    assert (failed.error["kind"], failed.error["step"]) == ("step", "apply")
    kinds = {resource["name"] for resource in cluster.state()["resources"]}
    assert "extra" in kinds, "what was built must be in the stored state"
