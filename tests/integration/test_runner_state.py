"""What the runner itself does about the state: it puts a backup in the place of one that no runtime can read, and
every other run counts only on the state that it was started for."""

from __future__ import annotations

import base64
import gzip
import json
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.unit.fake_runtime import FakeImage

from captf_runtime.client import Client
from captf_runtime.objects import LEASE, NAMESPACE, SECRET, Object, annotations_of, labels_of, name_of
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.faults import Match, forbidden, internal_error
from captf_runtime.testing.waiting import eventually

TEAM = "team-a"
SUFFIX = "70ab80533a3bae34-m"
BASE = f"tfstate-default-{SUFFIX}"
OWN_LABELS = {"captf.io/managed": "true", "clusterctl.cluster.x-k8s.io/move": ""}
BACKEND_LABELS = {"tfstate": "true", "tfstateSecretSuffix": SUFFIX, "tfstateWorkspace": "default"}
CONFIG = (
    f"--backend-config=secret_suffix={SUFFIX}",
    f"--backend-config=namespace={TEAM}",
    "--backend-config=in_cluster_config=true",
    '--backend-config=labels={"captf.io/managed"="true","clusterctl.cluster.x-k8s.io/move"=""}',
)
LINEAGE = "6e1f0c5a-1f0b-4f0a-8f8e-2f6f0a1b9c3d"
STATE = gzip.compress(json.dumps({"version": 4, "serial": 7, "resources": []}).encode())


@dataclass(slots=True)
class Pod:
    """A pod with a fake runtime, a backup, and an API server that it reaches."""

    server: ApiServer
    client: Client
    image: FakeImage

    def restore(self, *pieces: bytes, flags: tuple[str, ...] = ()) -> Any:
        folder = self.image.config / "restore"
        folder.mkdir()
        for index, piece in enumerate(pieces):
            (folder / str(index)).write_bytes(piece)
        return self.image.run("restore", *CONFIG, f"--restore-chunks={len(pieces)}", *flags)

    def put(self, name: str, payload: bytes | None) -> Object:
        data = {} if payload is None else {"tfstate": base64.b64encode(payload).decode()}
        metadata = {"name": name, "labels": BACKEND_LABELS, "annotations": {"captf.io/inputs-hash": "h2:a"}}
        return self.client.create(SECRET, {"metadata": metadata, "data": data}, TEAM)

    def stored(self) -> dict[str, bytes]:
        return {
            name_of(secret): base64.b64decode((secret.get("data") or {}).get("tfstate", ""))
            for secret in self.client.list(SECRET, TEAM).items
        }

    def lock(self, holder: str) -> None:
        self.client.create(
            LEASE, {"metadata": {"name": f"lock-{BASE}"}, "spec": {"holderIdentity": holder}}, TEAM
        )

    def called(self) -> list[str]:
        path = self.image.directory / "fake" / "calls"
        return [line.split("\x1f")[0] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with ApiServer(tls=True) as server, Client.from_config(kubeconfig=server.kubeconfig()) as client:
        client.create(NAMESPACE, {"metadata": {"name": TEAM}})
        account = tmp_path / "account"
        account.mkdir()
        (account / "token").write_text(server.token() + "\n")
        (account / "ca.crt").write_bytes(server.certificate_authority or b"")
        (tmp_path / "image").mkdir()
        image = FakeImage(tmp_path / "image")
        address = urlsplit(server.url)
        image.environ |= {
            "KUBERNETES_SERVICE_HOST": str(address.hostname),
            "KUBERNETES_SERVICE_PORT": str(address.port),
            "CAPTF_SERVICE_ACCOUNT_DIR": str(account),
        }
        yield Pod(server, client, image)


def test_a_missing_state_is_written_as_the_backend_would(pod: Pod) -> None:
    assert pod.restore(STATE).exit == 0
    (secret,) = pod.client.list(SECRET, TEAM).items
    assert name_of(secret) == BASE
    assert pod.stored() == {BASE: STATE}
    assert labels_of(secret) == {
        **OWN_LABELS,
        **BACKEND_LABELS,
        "app.kubernetes.io/managed-by": "terraform",
    }
    assert annotations_of(secret) == {"encoding": "gzip"}
    assert pod.called() == ["version", "init", "state", "state"], "the runtime pushes and lists all the same"


@pytest.mark.parametrize(
    "present",
    [
        {BASE: b"noise"},
        {BASE: b""},
        {BASE: None},
        {f"{BASE}-part-1": STATE},
        {BASE: STATE, f"{BASE}-part-2": b"x"},
        {BASE: STATE[:20], f"{BASE}-part-1": STATE[20:30]},
        {BASE: gzip.compress(b'{"encryption_version":"v0","encrypted_data":"x"}')},
        {BASE: gzip.compress(b'{"version": 3}')},
        {BASE: STATE, f"{BASE}-stray": b"x"},
    ],
)
def test_an_unreadable_state_gives_way_to_the_backup(pod: Pod, present: dict[str, bytes | None]) -> None:
    for name, payload in present.items():
        pod.put(name, payload)
    assert pod.restore(STATE).exit == 0
    assert pod.stored() == {BASE: STATE}
    if BASE in present:
        kept = pod.client.get(SECRET, BASE, TEAM)
        assert annotations_of(kept) == {"captf.io/inputs-hash": "h2:a"}, "it is the Secret that was there"


def test_the_base_of_a_large_state_is_written_last(pod: Pod) -> None:
    noise = base64.b64encode(random.Random(1).randbytes(3000)).decode()
    large = gzip.compress(json.dumps({"version": 4, "noise": noise}).encode())
    pieces = [large[:1000], large[1000:2000], large[2000:]]
    pod.server.requests.clear()
    assert pod.restore(*pieces).exit == 0
    assert pod.stored() == {
        BASE: pieces[0],
        f"{BASE}-part-1": pieces[1],
        f"{BASE}-part-2": pieces[2],
    }
    made = pod.client.list(SECRET, TEAM).items
    order = sorted(made, key=lambda secret: int(secret["metadata"]["resourceVersion"]))
    assert name_of(order[-1]) == BASE


def test_a_state_that_reads_is_left_to_the_runtime(pod: Pod) -> None:
    current = gzip.compress(json.dumps({"version": 4, "serial": 9}).encode())
    pod.put(BASE, current)
    assert pod.restore(STATE).exit == 0
    assert pod.stored() == {BASE: current}


def test_nothing_is_written_under_the_lock_of_somebody_else(pod: Pod) -> None:
    pod.put(BASE, b"noise")
    pod.lock("of-alice")
    outcome = pod.restore(STATE)
    assert outcome.exit == 1
    assert "locked by of-alice" in outcome.error["tail"]
    assert pod.stored() == {BASE: b"noise"}
    assert pod.called() == ["version"]


def test_the_lock_that_is_to_be_released_is_not_in_the_way(pod: Pod) -> None:
    pod.put(BASE, b"noise")
    pod.lock("of-a-dead-pod")
    assert pod.restore(STATE, flags=("--force-unlock=of-a-dead-pod",)).exit == 0
    assert pod.stored() == {BASE: STATE}


def test_a_refused_write_fails_the_run_without_quoting_anything(pod: Pod) -> None:
    pod.server.faults.add(Match(verb="create", resource="secrets"), forbidden())
    outcome = pod.restore(STATE)
    assert outcome.exit == 1
    assert (outcome.error["step"], outcome.error["tail"]) == (
        "prepare",
        "the state's Secrets could not be written: the API server answered 403",
    )


def test_a_damaged_backup_touches_nothing(pod: Pod) -> None:
    pod.put(BASE, b"noise")
    assert pod.restore(STATE[:-9]).exit == 1
    assert pod.stored() == {BASE: b"noise"}


def state(serial: int = 7, lineage: str = LINEAGE) -> bytes:
    document = {"version": 4, "serial": serial, "lineage": lineage, "resources": []}
    return gzip.compress(json.dumps(document).encode())


def destroy(pod: Pod, lineage: str = LINEAGE) -> Any:
    return pod.image.run("destroy", *CONFIG, f"--state-lineage={lineage}")


#: What a run of each operation has not done that did not begin.
NOT_DONE = {
    "apply": "applied",
    "plan": "planned",
    "refresh": "refreshed",
    "drift": "checked",
    "destroy": "destroyed",
}


def test_a_destroy_of_the_state_that_it_was_started_for_counts(pod: Pod) -> None:
    first, second = state()[:40], state()[40:]
    pod.put(BASE, first)
    pod.put(f"{BASE}-part-1", second)
    ran = destroy(pod)
    assert (ran.exit, ran.steps) == (0, [("init", 0), ("destroy", 0)])


@pytest.mark.parametrize(
    ("present", "found"),
    [
        ({}, "it is missing"),
        ({BASE: state(lineage="of-somebody-else")}, "another one is in its place"),
        ({BASE: gzip.compress(b'{"version": 4, "serial": 7}')}, "another one is in its place"),
        ({BASE: b"noise"}, "it cannot be read"),
        ({BASE: state(), f"{BASE}-part-2": b"x"}, "it cannot be read"),
    ],
)
@pytest.mark.parametrize("op", NOT_DONE)
def test_a_run_on_any_other_state_does_not_begin(
    pod: Pod, op: str, present: dict[str, bytes], found: str
) -> None:
    for name, payload in present.items():
        pod.put(name, payload)
    ran = pod.image.run(op, *CONFIG, f"--state-lineage={LINEAGE}")
    assert (ran.exit, ran.error["kind"], ran.error["step"]) == (1, "step", op)
    assert ran.error["tail"] == (
        f"the state is not the one that the {'drift check' if op == 'drift' else op} was started for: "
        f"{found}; nothing was {NOT_DONE[op]}"
    )
    assert pod.called() == ["version"], "the runtime's init would make an empty state of a missing one"
    assert pod.stored() == present


@pytest.mark.parametrize("op", NOT_DONE)
def test_a_run_whose_state_cannot_be_looked_at_does_not_begin(pod: Pod, op: str) -> None:
    pod.put(BASE, state())
    pod.server.faults.add(Match(verb="list", resource="secrets"), internal_error())
    ran = pod.image.run(op, *CONFIG, f"--state-lineage={LINEAGE}")
    assert (ran.exit, ran.error["step"]) == (1, op)
    assert "could not be listed" in ran.error["tail"]
    assert pod.called() == ["version"]


#: The command of each operation during which its state may go, and what its failure then ends with.
AFTERWARDS = {
    "apply": ("apply", "what there was before the apply, it did not find, and may have made a second time"),
    "refresh": ("apply-refresh-only", "what the refresh found says nothing"),
    "drift": ("apply-refresh-only", "what the check found says nothing"),
    "destroy": ("destroy", "what the destroy removed is not known"),
}


@pytest.mark.parametrize("left", [None, state(1, "made-by-init")], ids=["nothing left", "another one left"])
@pytest.mark.parametrize("op", AFTERWARDS)
def test_a_run_whose_state_went_meanwhile_does_not_count(pod: Pod, op: str, left: bytes | None) -> None:
    command, told = AFTERWARDS[op]
    pod.put(BASE, state())
    process = _started(pod, op, command)
    pod.client.delete(SECRET, BASE, TEAM, propagation_policy="Background")
    if left is not None:
        pod.put(BASE, left)
    error = _ended(pod, process)["error"]
    assert process.returncode == 1
    assert error["step"] == op
    assert error["tail"].endswith(told)


@pytest.mark.parametrize("op", AFTERWARDS)
def test_only_a_destroy_fails_when_nobody_can_look_afterwards(pod: Pod, op: str) -> None:
    """It alone takes its finding for the end of the object."""
    pod.put(BASE, state())
    process = _started(pod, op, AFTERWARDS[op][0])
    pod.server.faults.add(Match(verb="list", resource="secrets"), internal_error())
    result = _ended(pod, process)
    assert (process.returncode, bool(result.get("error"))) == ((1, True) if op == "destroy" else (0, False))


def _started(pod: Pod, op: str, command: str) -> subprocess.Popen[str]:
    """A run that waits within a command of the runtime."""
    pod.image.script(command, 'touch "$FAKE/began"; until [ -e "$FAKE/go" ]; do sleep 0.02; done')
    process = pod.image.start(op, *CONFIG, f"--state-lineage={LINEAGE}")
    eventually((pod.image.directory / "fake" / "began").exists)
    return process


def _ended(pod: Pod, process: subprocess.Popen[str]) -> Any:
    (pod.image.directory / "fake" / "go").touch()
    process.communicate(timeout=180)
    return json.loads(pod.image.result_path.read_bytes())


def test_a_destroy_without_a_lineage_looks_at_nothing(pod: Pod) -> None:
    """One that a hand wrote, or none at all: the runtime deals with what it finds."""
    pod.server.requests.clear()
    assert destroy(pod, "").exit == 0
    assert not [request for request in pod.server.requests if request.resource == "secrets"]
