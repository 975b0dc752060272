"""States that Terraform itself wrote: large ones, older ones, broken ones."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest
from tests.e2e.conftest import LARGE_CLUSTER
from tests.e2e.scene import Scene, Subject

from captf_controllers.api import names
from captf_runtime.objects import SECRET, Object, annotations_of, name_of

pytestmark = [pytest.mark.terraform, pytest.mark.slow]

CHUNKS = 12
#: Random text that the state holds three times; more would be over what a state may be when decompressed.
BALLAST_BYTES = 5_300_000


def payloads(secrets: list[Object]) -> dict[str, str]:
    """The part of the name that tells the chunk, and what it holds."""
    return {name_of(secret).partition("-part-")[2]: secret["data"]["tfstate"] for secret in secrets}


def newest_backup(subject: Subject) -> int:
    return int(subject.status["stateBackups"][0]["serial"])


def test_a_state_of_twelve_chunks_is_kept_lost_restored_and_destroyed(scene: Scene, tmp_path: Path) -> None:
    ballast = tmp_path / "ballast"
    noise = random.Random(0).randbytes(BALLAST_BYTES * 3 // 4)
    ballast.write_bytes(base64.b64encode(noise))
    cluster = scene.cluster(image=LARGE_CLUSTER, variables={"ballast": str(ballast)})
    cluster.wait_ready()
    written = payloads(cluster.state_secrets())
    assert sorted(written) == sorted(["", *(str(index) for index in range(1, CHUNKS))])
    serial = newest_backup(cluster)
    assert payloads(cluster.backups()[serial]) == written
    assert "exports" not in cluster.status
    cluster.wait_event("ExportsNotPublished")

    cluster.delete_state()
    cluster.touch()
    cluster.wait_says("StateReadable", "False/StateLost")
    cluster.restore(serial)
    cluster.wait_says("RestoreJobSucceeded", "True/StateRestored")
    cluster.wait_ready()
    assert payloads(cluster.state_secrets()) == written
    assert len(cluster.jobs("apply")) == 1, "what was restored is what was applied"

    last = names.state_chunk(cluster.suffix, CHUNKS - 1)
    scene.client.delete(SECRET, last, scene.namespace, propagation_policy="Background")
    cluster.delete()
    cluster.wait_says("StateReadable", "False/StateInconsistent")
    cluster.restore(newest_backup(cluster))
    cluster.wait_gone()
    cluster.wait_event("Destroyed")
    scene.wait_clean()


def test_an_older_backup_replaces_a_state_and_the_present_spec_is_applied_again(local_scene: Scene) -> None:
    scene = local_scene
    cluster = scene.cluster(variables={"servers": 1})
    cluster.wait_ready()
    first = newest_backup(cluster)
    cluster.set_variables(servers=2)
    cluster.wait_applied()
    assert len(scene.cloud.servers()) == 2
    assert newest_backup(cluster) > first

    # The older state does not know the second server: the next apply makes it, and fails no more than that.
    (scene.cloud.folder / "servers" / scene.cloud.servers()[1]).unlink()
    second = cluster.condition("ApplyJobSucceeded")["message"]
    cluster.restore(first)
    cluster.wait_event("StateRestored")
    cluster.wait_says("ApplyJobSucceeded", "True/ApplySucceeded", beyond=second)
    assert len(scene.cloud.servers()) == 2
    assert "captf.io/restore-state" not in annotations_of(cluster.object)
    cluster.delete()
    cluster.wait_gone()
    assert scene.cloud.servers() == []


def test_a_damaged_backup_restores_nothing_and_a_good_one_still_does(local_scene: Scene) -> None:
    """Its digest tells before a Job starts; the hold stays and says so."""
    scene = local_scene
    cluster = scene.cluster()
    cluster.wait_ready()
    good = newest_backup(cluster)
    cluster.set_variables(generation=1)
    cluster.wait_applied()
    bad = newest_backup(cluster)
    assert bad > good
    (secret,) = cluster.backups()[bad]
    noise = base64.b64encode(b"noise").decode()
    scene.client.patch(SECRET, name_of(secret), {"data": {"tfstate": noise}}, scene.namespace)
    cluster.delete_state()
    cluster.delete()
    cluster.wait_says("StateReadable", "False/StateLost")
    cluster.restore(bad)
    message = cluster.wait_says("RestoreJobSucceeded", "False/RestoreBackupNotFound")["message"]
    assert str(bad) in message
    cluster.touch()
    assert cluster.jobs("restore") == []
    cluster.restore(good)
    cluster.wait_gone()
    assert scene.cloud.servers() == []
