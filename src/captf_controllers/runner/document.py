"""The result document: what a run tells the manager through the pod's termination message."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from captf_controllers.runner.diagnostics import Changes
from captf_controllers.runner.plan import DriftSummary, PlanSummary
from captf_controllers.runner.text import cut, encoded

VERSION = 1
MOST_BYTES = 4096

_SHORT_TAIL = 16
_LONGEST_HASH = 128


@dataclass(frozen=True, slots=True)
class Step:
    """One command that ran, or that would have been next when the run was interrupted."""

    name: str
    exit: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run did not succeed.

    Attributes:
        kind: `image-layout`, `step`, `interrupted`, `blocked` or `plan-changed`.
        step: the step that failed; None for kinds that concern no step.
        tail: text for a person, redacted, at most 512 bytes.
        resources: `<address>: <summary>` of what failed, at most ten.
    """

    kind: str
    step: str | None
    tail: str
    resources: tuple[str, ...] = ()


@dataclass(slots=True)
class Result:
    """What one run has to tell; filled while it runs."""

    op: str = ""
    image: str = ""
    providers_mirror: bool = False
    command: list[str] = field(default_factory=list)
    runtime_version: str = ""
    steps: list[Step] = field(default_factory=list)
    drift: DriftSummary | None = None
    error: Failure | None = None
    changes: Changes | None = None
    plan: PlanSummary | None = None


def tenths(seconds: float) -> float:
    """Seconds rounded half up to a tenth."""
    return math.floor(seconds * 10 + 0.5) / 10


def render(result: Result) -> bytes:
    """The document, at most 4096 bytes. What does not fit is left out in a fixed order (`_shrink`); the
    kind of an error and a plan's hash and counts always fit."""
    document = _document(result)
    for smaller in _shrink(document):
        if len(data := _encode(smaller)) <= MOST_BYTES:
            return data
    return _encode(_minimal(document))


def write(path: str, data: bytes) -> None:
    """Writes the document where the kubelet reads it.

    The file may be one that the kubelet has put there, so it is neither replaced nor renamed over.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _document(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = {
        "version": VERSION,
        "op": result.op,
        "image": {"ref": result.image, "providersMirror": result.providers_mirror},
        "runtime": {"command": result.command, "version": result.runtime_version},
        "steps": [
            {"name": step.name, "exit": step.exit, "seconds": tenths(step.seconds)} for step in result.steps
        ],
        "drift": None,
        "error": None,
    }
    if (drift := result.drift) is not None:
        document["drift"] = {
            "detected": drift.detected,
            "create": drift.create,
            "update": drift.update,
            "replace": drift.replace,
            "delete": drift.delete,
            "resources": list(drift.resources),
        }
    if (failure := result.error) is not None:
        error: dict[str, Any] = {"kind": failure.kind, "step": failure.step, "tail": failure.tail}
        if failure.resources:
            error["resources"] = list(failure.resources)
        document["error"] = error
    if (changes := result.changes) is not None:
        counts = {"add": changes.add, "change": changes.change, "destroy": changes.destroy}
        document["changes"] = counts | ({"import": changes.imported} if changes.imported else {})
    if (plan := result.plan) is not None:
        document["plan"] = _plan(plan)
    return document


def _plan(plan: PlanSummary) -> dict[str, Any]:
    rendered: dict[str, Any] = {
        "hash": plan.hash,
        "create": plan.create,
        "update": plan.update,
        "replace": plan.replace,
        "delete": plan.delete,
    }
    for name, count in (
        ("import", plan.imported),
        ("move", plan.moved),
        ("forget", plan.forget),
        ("outputChanges", plan.output_changes),
    ):
        if count:
            rendered[name] = count
    if plan.resources:
        rendered["resources"] = list(plan.resources)
    if plan.truncated:
        rendered["truncated"] = True
    return rendered


def _shrink(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The document itself, then ever smaller ones."""
    shrinking = copy.deepcopy(document)
    yield shrinking
    shrinking.pop("changes", None)
    yield shrinking
    error = shrinking["error"]
    if error is not None:
        error.pop("resources", None)
        yield shrinking
        while error["tail"]:
            half = len(encoded(error["tail"])) // 2
            error["tail"] = cut(error["tail"], half) if half >= _SHORT_TAIL else ""
            yield shrinking
    plan = shrinking.get("plan")
    while plan is not None and plan.get("resources"):
        kept = plan["resources"][: len(plan["resources"]) // 2]
        plan["resources"] = kept
        plan["truncated"] = True
        if not kept:
            del plan["resources"]
        yield shrinking
    if shrinking["drift"] is not None:
        shrinking["drift"]["resources"] = []
        yield shrinking
    steps = shrinking["steps"]
    while len(steps) > 2:
        del steps[-2]
        yield shrinking


def _minimal(document: dict[str, Any]) -> dict[str, Any]:
    minimal: dict[str, Any] = {"version": document["version"], "op": cut(document["op"], _LONGEST_HASH)}
    if document["error"] is not None:
        minimal["error"] = {"kind": document["error"]["kind"]}
    if (plan := document.get("plan")) is not None:
        minimal["plan"] = {name: value for name, value in plan.items() if name != "resources"}
        if plan.get("resources"):
            minimal["plan"]["truncated"] = True
    return minimal


def _encode(document: dict[str, Any]) -> bytes:
    return encoded(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
