"""Phase and conditions that container states amount to."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from captf_runtime.objects import Object
from captf_runtime.testing.kubelet.status import (
    ContainerRecord,
    pod_phase,
    pod_status,
    running,
    terminated,
    waiting,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAIT, RUN = waiting("ContainerCreating"), running(NOW)
OK, BAD = (terminated(code, started=NOW, finished=NOW) for code in (0, 1))


def records(*states: Object) -> list[ContainerRecord]:
    return [ContainerRecord(f"c{index}", "image", state) for index, state in enumerate(states)]


@pytest.mark.parametrize(
    ("init", "main", "policy", "phase"),
    [
        ([], [WAIT], "Never", "Pending"),
        ([RUN], [WAIT], "Never", "Pending"),
        ([OK], [WAIT], "Never", "Pending"),
        ([OK], [RUN], "Never", "Running"),
        ([BAD], [WAIT], "Never", "Failed"),
        ([BAD], [WAIT], "OnFailure", "Pending"),
        ([OK], [OK], "Never", "Succeeded"),
        ([OK], [BAD], "Never", "Failed"),
        ([], [BAD], "OnFailure", "Running"),
        ([], [OK], "Always", "Running"),
        ([], [OK, RUN], "Never", "Running"),
        ([], [OK, WAIT], "Never", "Running"),
        ([], [BAD, OK], "Never", "Failed"),
    ],
)
def test_phase(init: list[Object], main: list[Object], policy: str, phase: str) -> None:
    assert pod_phase(records(*init), records(*main), policy) == phase


def status(init: list[Object], main: list[Object], former: Object | None = None) -> Object:
    return pod_status(
        former or {}, records(*init), records(*main), restart_policy="Never", started=NOW, now=NOW
    )


def conditions(found: Object) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c.get("reason", "")) for c in found["conditions"]}


def test_conditions_follow_the_states() -> None:
    assert conditions(status([WAIT], [WAIT])) == {
        "PodScheduled": ("True", ""),
        "Initialized": ("False", "ContainersNotInitialized"),
        "Ready": ("False", "ContainersNotReady"),
        "ContainersReady": ("False", "ContainersNotReady"),
    }
    assert conditions(status([OK], [RUN]))["Ready"] == ("True", "")
    assert conditions(status([OK], [OK]))["Initialized"] == ("True", "PodCompleted")
    assert conditions(status([OK], [BAD]))["Ready"] == ("False", "PodFailed")


def test_a_condition_keeps_its_time_and_foreign_ones_stay() -> None:
    former = status([], [RUN])
    former["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    for condition in former["conditions"]:
        condition["lastTransitionTime"] = "2025-01-01T00:00:00Z"
    after = {c["type"]: c for c in status([], [BAD], former)["conditions"]}
    assert after["PodScheduled"]["lastTransitionTime"] == "2025-01-01T00:00:00Z"
    assert after["Ready"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert after["DisruptionTarget"]["status"] == "True"


def test_a_terminated_state_names_its_reason() -> None:
    assert OK["terminated"]["reason"] == "Completed"
    assert BAD["terminated"]["reason"] == "Error"
    entry = records(terminated(0, started=NOW, finished=NOW, message="result"))[0].to_status(init=False)
    assert entry["state"]["terminated"]["message"] == "result"
    assert (entry["ready"], entry["started"]) == (False, False)
    assert records(OK)[0].to_status(init=True)["ready"] is True
