from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captf_controllers.runner.diagnostics import Changes
from captf_controllers.runner.document import Failure, Result, Step, render, tenths, write
from captf_controllers.runner.plan import DriftSummary, PlanSummary

HASH = "p2:" + "a" * 64


def rendered(result: Result) -> dict[str, Any]:
    data = render(result)
    assert len(data) <= 4096
    document: dict[str, Any] = json.loads(data)
    return document


def test_the_whole_document() -> None:
    result = Result(
        op="apply",
        image="registry/x:1",
        providers_mirror=True,
        command=["/captf/runtime"],
        runtime_version="1.11.4",
        steps=[Step("init", 0, 1.249)],
        changes=Changes(1, 0, 0, 1),
        plan=PlanSummary(HASH, 1, 0, 0, 0, 1, 1, 1, 1, ("a.b (create)",), True),
    )
    assert list(rendered(result)) == [
        "version", "op", "image", "runtime", "steps", "drift", "error", "changes", "plan",
    ]  # fmt: skip
    assert rendered(result) == {
        "version": 1,
        "op": "apply",
        "image": {"ref": "registry/x:1", "providersMirror": True},
        "runtime": {"command": ["/captf/runtime"], "version": "1.11.4"},
        "steps": [{"name": "init", "exit": 0, "seconds": 1.2}],
        "drift": None,
        "error": None,
        "changes": {"add": 1, "change": 0, "destroy": 0, "import": 1},
        "plan": {
            "hash": HASH,
            "create": 1,
            "update": 0,
            "replace": 0,
            "delete": 0,
            "import": 1,
            "move": 1,
            "forget": 1,
            "outputChanges": 1,
            "resources": ["a.b (create)"],
            "truncated": True,
        },
    }


def test_what_is_zero_or_unknown_is_left_out() -> None:
    document = rendered(
        Result(op="drift", drift=DriftSummary(update=1, resources=("a",)), changes=Changes(1))
    )
    assert document["drift"] == {
        "detected": True, "create": 0, "update": 1, "replace": 0, "delete": 0, "resources": ["a"],
    }  # fmt: skip
    assert document["changes"] == {"add": 1, "change": 0, "destroy": 0}
    assert "plan" not in document
    assert rendered(Result(op="plan", plan=PlanSummary()))["plan"] == {
        "hash": PlanSummary().hash, "create": 0, "update": 0, "replace": 0, "delete": 0,
    }  # fmt: skip
    assert rendered(Result(error=Failure("blocked", None, "t")))["error"] == {
        "kind": "blocked", "step": None, "tail": "t",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, 0.0), (0.05, 0.1), (1.25, 1.3), (1.349, 1.3), (0.25, 0.3)]
)
def test_seconds_are_rounded_half_up(seconds: float, shown: float) -> None:
    assert tenths(seconds) == shown


def big(**overrides: Any) -> Result:
    values: dict[str, Any] = {
        "op": "apply",
        "changes": Changes(1),
        "error": Failure("blocked", None, "t" * 512, tuple("r" * 500 + str(i) for i in range(4))),
        "plan": PlanSummary(HASH, 3, delete=1, resources=tuple(f"{i}" + "p" * 40 for i in range(40))),
    }
    return Result(**(values | overrides))


def test_changes_go_first_then_the_error_resources() -> None:
    document = rendered(big())
    assert "changes" not in document
    assert "resources" not in document["error"]
    assert document["error"]["tail"] == "t" * 512
    assert len(document["plan"]["resources"]) == 40


def test_the_tail_goes_before_plan_resources_and_keeps_its_head() -> None:
    tail = "head" + "t" * 508
    plan = PlanSummary(HASH, resources=tuple("p" * 75 + f"{i:02}" for i in range(45)))
    document = rendered(big(error=Failure("blocked", None, tail), plan=plan))
    assert document["error"]["tail"]
    assert tail.startswith(document["error"]["tail"])
    assert len(document["plan"]["resources"]) == 45


def test_plan_resources_are_halved_and_marked() -> None:
    plan = PlanSummary(HASH, 50, resources=tuple("p" * 300 + str(i) for i in range(50)))
    document = rendered(big(plan=plan))
    assert document["error"]["tail"] == ""
    assert len(document["plan"]["resources"]) == 12
    assert document["plan"]["truncated"] is True
    assert document["plan"]["create"] == 50


def test_drift_addresses_then_middle_steps_go() -> None:
    drift = DriftSummary(update=20, resources=tuple("d" * 300 for _ in range(20)))
    document = rendered(Result(op="drift", drift=drift, steps=[Step("init", 0, 1)]))
    assert document["drift"]["resources"] == []
    assert document["drift"]["update"] == 20
    steps = [Step("first", 0, 1), *(Step("m" * 300, 0, 1) for _ in range(20)), Step("last", 1, 1)]
    kept = [step["name"] for step in rendered(Result(op="drift", steps=steps))["steps"]]
    assert (kept[0], kept[-1]) == ("first", "last")
    assert len(kept) < len(steps)


def test_the_smallest_document_keeps_kind_hash_and_counts() -> None:
    document = rendered(big(image="i" * 5000))
    assert document == {
        "version": 1,
        "op": "apply",
        "error": {"kind": "blocked"},
        "plan": {"hash": HASH, "create": 3, "update": 0, "replace": 0, "delete": 1, "truncated": True},
    }


@settings(deadline=None)
@given(
    st.text(max_size=600),
    st.lists(st.text(max_size=600), max_size=10),
    st.lists(st.text(max_size=600), max_size=50),
    st.text(max_size=6000),
)
def test_it_always_fits_and_never_loses_the_hash(
    tail: str, resources: list[str], planned: list[str], image: str
) -> None:
    result = Result(
        op="apply",
        image=image,
        error=Failure("blocked", None, tail, tuple(resources)),
        plan=PlanSummary(HASH, create=9, resources=tuple(planned)),
    )
    document = rendered(result)
    assert document["error"]["kind"] == "blocked"
    assert (document["plan"]["hash"], document["plan"]["create"]) == (HASH, 9)
    if len(document["plan"].get("resources", [])) < len(planned):
        assert document["plan"]["truncated"] is True


def test_text_that_utf8_cannot_hold_is_replaced() -> None:
    assert rendered(Result(image="a\ud800b"))["image"]["ref"] == "a\ufffdb"


def test_the_file_is_private_and_overwritten_in_place(tmp_path: Path) -> None:
    path = tmp_path / "result"
    write(str(path), b"longer than the next")
    assert path.stat().st_mode & 0o777 == 0o600
    inode = path.stat().st_ino
    write(str(path), b"next")
    assert path.read_bytes() == b"next"
    assert path.stat().st_ino == inode
