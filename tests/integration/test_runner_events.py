"""Progress events of the runner, as they arrive at the API server."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.unit.fake_runtime import FakeImage, change

from captf_runtime.client import Client
from captf_runtime.objects import EVENTS_V1, NAMESPACE, Object
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.faults import Match, forbidden, internal_error

REFERENCE = "infrastructure.cluster.x-k8s.io/v1beta1/TerraformMachine/team-a/web/0000-1111"

#: Starts the runner with more patience for the API server, which a machine may keep from answering in two seconds.
PATIENT = """
import sys
from captf_controllers.runner import events
assert events._TIMEOUT <= 2
events._TIMEOUT = 120.0
from captf_controllers.runner.cli import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass(slots=True)
class Pod:
    """A fake module image whose pod can reach an API server."""

    server: ApiServer
    client: Client
    image: FakeImage

    def run(self, op: str, *flags: str, reference: str = REFERENCE) -> Any:
        return self.image.run(
            op, f"--event-object={reference}", "--job-name=captf-m-web-apply-a1-abc123", *flags
        )

    def events(self) -> list[Object]:
        """All events in the order in which they were made."""
        found: list[Object] = self.client.list(EVENTS_V1, "team-a").items
        return sorted(found, key=lambda event: str(event["metadata"]["name"]))

    def told(self) -> list[tuple[str, str, str]]:
        return [(event["type"], event["reason"], event["action"]) for event in self.events()]

    def note(self, reason: str) -> str:
        [note] = [event["note"] for event in self.events() if event["reason"] == reason]
        return str(note)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with ApiServer(tls=True) as server:
        client = Client.from_config(kubeconfig=str(server.kubeconfig()))
        try:
            client.create(NAMESPACE, {"metadata": {"name": "team-a"}})
            account = tmp_path / "account"
            account.mkdir()
            (account / "token").write_text(server.token() + "\n")
            authority = server.certificate_authority
            assert authority is not None
            (account / "ca.crt").write_bytes(authority)
            (tmp_path / "image").mkdir()
            image = FakeImage(tmp_path / "image", runner=(sys.executable, "-c", PATIENT))
            address = urlsplit(server.url)
            image.environ |= {
                "KUBERNETES_SERVICE_HOST": str(address.hostname),
                "KUBERNETES_SERVICE_PORT": str(address.port),
                "CAPTF_SERVICE_ACCOUNT_DIR": str(account),
                "HOSTNAME": "captf-m-web-apply-a1-abc123-x7k2p",
            }
            yield Pod(server, client, image)
        finally:
            client.close()


def test_a_successful_run_tells_every_step(pod: Pod) -> None:
    summary = '{"type":"change_summary","changes":{"add":1,"change":2,"remove":3,"operation":"apply"}}'
    pod.image.script("apply", f"echo '{summary}'")
    assert pod.run("apply", "--image=registry.invalid/m:1").exit == 0
    assert pod.told() == [
        ("Normal", "RunStarted", "apply"),
        ("Normal", "StepStarted", "init"),
        ("Normal", "StepSucceeded", "init"),
        ("Normal", "StepStarted", "validate"),
        ("Normal", "StepSucceeded", "validate"),
        ("Normal", "StepStarted", "apply"),
        ("Normal", "StepSucceeded", "apply"),
        ("Normal", "ResourcesChanged", "apply"),
        ("Normal", "RunFinished", "apply"),
    ]
    started = pod.note("RunStarted")
    assert all(part in started for part in ("apply", "registry.invalid/m:1", "1.99.0"))
    assert pod.note("ResourcesChanged") == "1 added, 2 changed, 3 destroyed, 0 imported"
    assert re.search(r"succeeded after \d+\.\d s with exit code 0", pod.note("RunFinished"))


def test_events_name_the_object_the_job_and_the_pod(pod: Pod) -> None:
    pod.run("refresh")
    event = pod.events()[0]
    assert event["regarding"] == {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "TerraformMachine",
        "namespace": "team-a",
        "name": "web",
        "uid": "0000-1111",
    }
    assert event["related"]["kind"] == "Job"
    assert event["related"]["name"] == "captf-m-web-apply-a1-abc123"
    assert event["reportingController"] == "captf.io/runner"
    assert event["reportingInstance"] == "captf-m-web-apply-a1-abc123-x7k2p"
    assert re.fullmatch(r"web\.[0-9a-f]+", event["metadata"]["name"])
    names = [found["metadata"]["name"] for found in pod.events()]
    assert len(set(names)) == len(names)


def test_an_unknown_version_is_said_to_be_unknown(pod: Pod) -> None:
    pod.image.script("version", "exit 1")
    pod.run("refresh")
    assert "unknown" in pod.note("RunStarted")


def test_a_failure_is_told_with_its_curated_summary(pod: Pod) -> None:
    pod.image.environ["DB_PASSWORD"] = "hunter2-password"
    pod.image.script("init", "echo raw noise >&2; echo 'Error: bad hunter2-password' >&2; exit 3")
    assert pod.run("apply").exit == 1
    assert pod.told()[-2:] == [("Warning", "StepFailed", "init"), ("Warning", "RunFinished", "apply")]
    note = pod.note("StepFailed")
    assert "exit code 3" in note
    assert "Error: bad (sensitive)" in note
    assert "noise" not in note


def test_a_plan_is_told_by_its_counts(pod: Pod) -> None:
    pod.image.plan(change("module.secret.name", "create", after={}), change("b", "delete", before={}))
    pod.run("plan")
    note = pod.note("PlanSummary")
    assert "1 to create" in note
    assert "1 to delete" in note
    assert "module.secret.name" not in note


def test_an_empty_plan_is_told(pod: Pod) -> None:
    pod.run("plan")
    assert "no changes" in pod.note("PlanSummary")


@pytest.mark.parametrize("body", ["not JSON", "{}"])
def test_an_unreadable_plan_fails_its_step_once(pod: Pod, body: str) -> None:
    pod.image.plan()
    pod.image.script("show-json", f"echo '{body}'")
    pod.run("plan")
    steps = [(reason, action) for _, reason, action in pod.told() if action == "show-json"]
    assert steps == [("StepStarted", "show-json"), ("StepFailed", "show-json")]


def test_the_end_is_told_on_every_path(pod: Pod) -> None:
    pod.image.runtime.chmod(0o644)
    pod.run("apply")
    assert pod.told() == [("Warning", "RunFinished", "apply")]
    assert "image-layout" in pod.note("RunFinished")


def test_even_after_a_usage_error(pod: Pod) -> None:
    assert pod.run("apply", "--lock-timeout=soon").exit == 2
    assert pod.told() == [("Warning", "RunFinished", "apply")]
    assert "--lock-timeout" in pod.note("RunFinished")


def test_failures_to_post_change_nothing(pod: Pod) -> None:
    fault = pod.server.faults.add(Match(verb="create", resource="events"), forbidden())
    ran = pod.run("apply")
    assert ran.exit == 0
    assert fault.hits == 3, "after three failures in a row there is no further attempt"
    assert ran.stderr.count("event could not be posted") == 1


def test_a_success_resets_the_count_of_failures(pod: Pod) -> None:
    for after in (0, 3):
        fault = pod.server.faults.add(
            Match(verb="create", resource="events"), internal_error(), times=2, after=after
        )
    pod.run("refresh")
    assert fault.hits == 2
    assert [reason for _, reason, _ in pod.told()] == ["StepSucceeded", "RunFinished"]


@pytest.mark.parametrize(
    "reference", ["web", "v1/Pod/ns/name", "/Pod/ns/name/uid", "v1/Pod//name/uid", "a//Pod/ns/name/uid"]
)
def test_an_unusable_reference_turns_events_off(pod: Pod, reference: str) -> None:
    ran = pod.run("refresh", reference=reference)
    assert ran.exit == 0
    assert ran.stderr.count("events are off") == 1
    assert pod.events() == []


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "ca.crt"])
def test_without_in_cluster_configuration_events_are_off(pod: Pod, missing: str) -> None:
    if missing == "ca.crt":
        Path(pod.image.environ["CAPTF_SERVICE_ACCOUNT_DIR"], missing).unlink()
    else:
        del pod.image.environ[missing]
    ran = pod.run("refresh")
    assert (ran.exit, ran.stderr.count("events are off")) == (0, 1)


def test_a_server_that_does_not_answer_costs_little(pod: Pod) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        pod.image.environ["KUBERNETES_SERVICE_PORT"] = str(silent.getsockname()[1])
        pod.image.runner = (
            sys.executable,
            "-m",
            "captf_controllers.runner",
        )  # with the patience of a real one
        ran = pod.run("refresh")
    assert ran.exit == 0
    assert "event could not be posted" in ran.stderr


def test_long_names_are_cut(pod: Pod) -> None:
    name = "n" * 199 + "." + "m" * 40
    pod.run("refresh", reference=f"v1/ConfigMap/team-a/{name}/uid")
    assert re.fullmatch(r"n{199}\.[0-9a-f]+", pod.events()[0]["metadata"]["name"])


def test_the_token_is_read_again_for_every_event(pod: Pod) -> None:
    token = Path(pod.image.environ["CAPTF_SERVICE_ACCOUNT_DIR"], "token")
    good = token.read_text()
    token.write_text("expired")
    pod.image.script("init", f"printf %s '{good.strip()}' >'{token}'")
    pod.run("refresh")
    assert ("Normal", "StepSucceeded", "init") in pod.told()
