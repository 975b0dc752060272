"""What `kubectl get` shows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from captf_runtime.testing.apiserver.customresources import column_value
from captf_runtime.testing.apiserver.tables import built_in_columns, duration, since

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.requirement("AS3")
@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (599, "9m59s"), (600, "10m"),
        (179 * 60, "179m"), (180 * 60, "3h"), (190 * 60, "3h10m"), (8 * 3600, "8h"), (47 * 3600, "47h"),
        (48 * 3600, "2d"), (50 * 3600, "2d2h"), (8 * 86_400, "8d"), (729 * 86_400, "729d"),
        (730 * 86_400, "2y"), (800 * 86_400, "2y70d"), (10 * 365 * 86_400, "10y"),
    ],
)  # fmt: skip
def test_durations(seconds: int, shown: str) -> None:
    assert duration(seconds) == shown


def test_ages() -> None:
    assert since("2026-01-01T00:00:00Z", NOW) == "24h"
    assert since(None, NOW) == "<unknown>"


def row(storage: str, obj: dict[str, Any]) -> dict[str, object]:
    obj.setdefault("metadata", {"name": "o", "creationTimestamp": "2026-01-01T00:00:00Z"})
    return {column.name: column.cell(obj, NOW) for column in built_in_columns(storage)}


def pod(*states: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **status: Any) -> dict[str, Any]:
    containers = [{"name": f"c{i}", "state": state, "restartCount": i} for i, state in enumerate(states)]
    return {
        "spec": {
            "containers": [{"name": c["name"]} for c in containers],
            "initContainers": [{"name": f"i{i}"} for i in range(len(init))],
        },
        "status": {
            "containerStatuses": containers,
            "initContainerStatuses": [{"name": f"i{i}", "state": state} for i, state in enumerate(init)],
            **status,
        },
    }


DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
RUNNING: dict[str, Any] = {"running": {}}


@pytest.mark.requirement("AS3")
@pytest.mark.parametrize(
    ("obj", "shown"),
    [
        (pod(phase="Pending"), "Pending"),
        (pod(RUNNING, phase="Running"), "Running"),
        (pod({"waiting": {"reason": "ImagePullBackOff"}}, phase="Pending"), "ImagePullBackOff"),
        (pod({"terminated": {"exitCode": 3}}, phase="Failed"), "ExitCode:3"),
        (pod({"terminated": {"signal": 9}}, phase="Failed"), "Signal:9"),
        (pod(DONE, phase="Succeeded"), "Completed"),
        (pod(phase="Pending", init=(RUNNING,)), "Init:0/1"),
        (pod(phase="Pending", init=(DONE, {"waiting": {"reason": "ErrImagePull"}})), "Init:ErrImagePull"),
        (pod(phase="Failed", reason="Evicted"), "Evicted"),
    ],
)
def test_the_status_of_pods(obj: dict[str, Any], shown: str) -> None:
    assert row("pods", obj)["Status"] == shown


@pytest.mark.requirement("AS3")
def test_rows_of_jobs_and_bindings() -> None:
    job = {
        "spec": {"completions": 3},
        "status": {
            "succeeded": 2,
            "startTime": "2026-01-01T23:59:00Z",
        },
    }
    shown = row("jobs.batch", job)
    assert (shown["Completions"], shown["Duration"], shown["Age"]) == ("2/3", "60s", "24h")
    assert row("jobs.batch", {"spec": {"parallelism": 2}})["Completions"] == "0/1 of 2"
    binding = {
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [
            {"kind": "User", "name": "u"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
        ],
    }
    shown = row("rolebindings.rbac.authorization.k8s.io", binding)
    assert (shown["Role"], shown["Users"], shown["ServiceAccounts"]) == ("Role/r", "u", "n/s")


@pytest.mark.requirement("AS3")
def test_paths_of_printer_columns() -> None:
    obj = {
        "metadata": {"labels": {"a.b/c": "x"}},
        "status": {
            "conditions": [{"type": "Other"}, {"type": "Ready", "status": "True"}],
            "items": ["p", "q"],
        },
    }
    assert column_value(obj, '.status.conditions[?(@.type=="Ready")].status') == "True"
    assert column_value(obj, ".status.conditions[?(@.type=='Absent')].status") is None
    assert column_value(obj, r".metadata.labels['a\.b/c']") == "x"
    assert column_value(obj, ".metadata.labels['a.b/c']") is None
    assert column_value(obj, r".metadata.labels.a\.b/c") == "x"
    assert column_value(obj, ".status.items[1]") == "q"
    assert column_value(obj, ".status.items[7]") is None
    assert column_value(obj, ".spec.absent") is None
