"""The result document: the one piece of JSON that a run leaves in its container's termination message.

It comes from inside the module's pod, so every value is untrusted: numbers are bounded by the schema, strings
are stripped of control characters and cut when they are read, and a document that breaks the schema is no
result at all. A missing result is a failed run without details, never a success.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from captf_controllers.api.workspace import RunErrorKind
from captf_controllers.observability.conditions import legible

__all__ = [
    "EMPTY_PLAN_HASH",
    "ERROR_KINDS",
    "MAX_RESULT_BYTES",
    "STEP_NAMES",
    "Changes",
    "DriftFound",
    "PlanSummary",
    "RunError",
    "RunResult",
    "Step",
    "parse_result",
]

MAX_RESULT_BYTES: Final = 4096
"""What a kubelet keeps of a termination message; a longer text was not written by a runner."""

EMPTY_PLAN_HASH: Final = "p2:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""Hash of the plan that changes nothing: SHA-256 of no lines (runner result, section 7)."""

ERROR_KINDS: Final[tuple[RunErrorKind, ...]] = (
    "image-layout",
    "step",
    "interrupted",
    "blocked",
    "plan-changed",
)
STEP_NAMES: Final = (
    "init",
    "force-unlock",
    "validate",
    "apply",
    "destroy",
    "apply-refresh-only",
    "plan",
    "show-json",
    "state-push",
    "state-list",
    "prepare",
)

_MAX_STEPS: Final = 16
_MAX_ERROR_RESOURCES: Final = 10
_MAX_DRIFT_RESOURCES: Final = 20
_MAX_PLAN_RESOURCES: Final = 50
_MAX_PLAN_RESOURCE_CHARACTERS: Final = 600

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
PlanHash = Annotated[str, msgspec.Meta(pattern=r"^p[0-9]+:[0-9a-f]+$", max_length=128)]


class Step(msgspec.Struct, frozen=True):
    """One command of the run: its name, exit code and duration in seconds."""

    name: str
    exit: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """The name as a metric label: one of `STEP_NAMES`, else "other"."""
        return self.name if self.name in STEP_NAMES else "other"


class DriftFound(msgspec.Struct, frozen=True):
    """What a drift check found: counts by action and at most 20 addresses."""

    detected: bool
    create: Count = 0
    update: Count = 0
    replace: Count = 0
    delete: Count = 0
    resources: tuple[str, ...] = ()


class RunError(msgspec.Struct, frozen=True):
    """Why the run failed. `tail` is the runner's own summary, at most 512 bytes."""

    kind: str
    step: str | None = None
    tail: str = ""
    resources: tuple[str, ...] = ()

    @property
    def known_kind(self) -> RunErrorKind:
        """The kind, with one that this version does not know read as a failed step."""
        return next((kind for kind in ERROR_KINDS if kind == self.kind), "step")


class Changes(msgspec.Struct, frozen=True):
    """The final summary line of an apply or destroy, in resources."""

    add: Count = 0
    change: Count = 0
    destroy: Count = 0
    imported: Count = msgspec.field(default=0, name="import")


class PlanSummary(msgspec.Struct, frozen=True):
    """A plan: its fingerprint, counts by action and at most 50 lines `<address> (<labels>)`."""

    hash: PlanHash
    create: Count = 0
    update: Count = 0
    replace: Count = 0
    delete: Count = 0
    imported: Count = msgspec.field(default=0, name="import")
    move: Count = 0
    forget: Count = 0
    output_changes: Count = msgspec.field(default=0, name="outputChanges")
    resources: tuple[str, ...] = ()
    truncated: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the plan changes nothing."""
        return self.hash == EMPTY_PLAN_HASH


class _Image(msgspec.Struct, frozen=True):
    ref: str = ""


class _Runtime(msgspec.Struct, frozen=True):
    version: str = ""


class _Document(msgspec.Struct, frozen=True):
    version: int
    op: str = ""
    image: _Image = _Image()
    runtime: _Runtime = _Runtime()
    steps: tuple[Step, ...] = ()
    drift: DriftFound | None = None
    error: RunError | None = None
    changes: Changes | None = None
    plan: PlanSummary | None = None


class RunResult(msgspec.Struct, frozen=True):
    """A result document that was understood, every string already bounded."""

    op: str
    image: str
    runtime_version: str
    steps: tuple[Step, ...]
    drift: DriftFound | None
    error: RunError | None
    changes: Changes | None
    plan: PlanSummary | None

    def reached(self, step: str) -> bool:
        """Whether the run got as far as starting the step."""
        return any(done.name == step for done in self.steps)


_decoder = msgspec.json.Decoder(_Document)


def parse_result(text: str) -> RunResult | None:
    """Read a termination message.

    Returns None, "no result", when the text is empty, longer than a kubelet keeps, no JSON (also because it
    was cut), breaks the schema or is of another version.
    """
    data = text.encode("utf-8", "surrogatepass")
    if not data or len(data) > MAX_RESULT_BYTES:
        return None
    try:
        document = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if document.version != 1:
        return None
    error, drift, plan = document.error, document.drift, document.plan
    return RunResult(
        op=_clean(document.op, 64),
        image=_clean(document.image.ref, 512),
        runtime_version=_clean(document.runtime.version, 64),
        steps=tuple(
            Step(name=_clean(step.name, 64), exit=step.exit, seconds=step.seconds)
            for step in document.steps[:_MAX_STEPS]
            if step.name
        ),
        drift=None
        if drift is None
        else DriftFound(
            detected=drift.detected,
            create=drift.create,
            update=drift.update,
            replace=drift.replace,
            delete=drift.delete,
            # A cut address would name another resource: one that is too long is left out.
            resources=tuple(
                _clean(address, 512)
                for address in drift.resources[:_MAX_DRIFT_RESOURCES]
                if address and len(address.encode()) <= 512
            ),
        ),
        error=None
        if error is None
        else RunError(
            kind=_clean(error.kind, 64),
            step=_clean(error.step, 64) if error.step else None,
            tail=_clean(error.tail, 512),
            resources=tuple(_clean(line, 512) for line in error.resources[:_MAX_ERROR_RESOURCES] if line),
        ),
        changes=document.changes,
        plan=None
        if plan is None
        else msgspec.structs.replace(
            plan,
            resources=_plan_resources(plan.resources),
            truncated=plan.truncated or len(_plan_resources(plan.resources)) < len(plan.resources),
        ),
    )


def _plan_resources(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines that can be shown whole: a cut address would name another resource to who approves it."""
    return tuple(
        _clean(line, 4 * _MAX_PLAN_RESOURCE_CHARACTERS)
        for line in lines[:_MAX_PLAN_RESOURCES]
        if line and len(line) <= _MAX_PLAN_RESOURCE_CHARACTERS
    )


def _clean(text: str, limit: int) -> str:
    return legible(text, limit)
