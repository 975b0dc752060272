"""The suite itself: what it covers, what it compares, and what it keeps."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hack import conformance
from tests.conformance import transcripts
from tests.conformance.conftest import KEPT_VERSION, TARGETS
from tests.conformance.target import Case, Exchange, Server
from tests.conformance.versions import DIFFERENCES, RESULTS

DIRECTORY = Path(__file__).parent


def exchange(body: object, code: int = 200) -> dict[str, object]:
    return {"request": "GET /x", "code": code, "body": body}


def case() -> Case:
    return Case(Server("none", "1.20", "http://127.0.0.1:1", {}), "case-1", secrets={"hidden": "<secret>"})


@pytest.mark.requirement("CF1")
def test_cases_use_no_client_of_ours() -> None:
    for path in DIRECTORY.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            # One file beside the cases is about our own definitions.
            if path.name != "test_crds.py":
                assert not [name for name in names if name.startswith("captf_runtime.client")], path


@pytest.mark.requirement("CF1")
def test_targets_are_two_embedded_servers_and_the_real_one() -> None:
    assert TARGETS == ("embedded-1.20", "embedded-modern", "real")


@pytest.mark.requirement("CF2")
def test_every_clause_has_a_case() -> None:
    named = {
        identity
        for proof in conformance.proofs(DIRECTORY)
        for identity in proof.requirements
        if proof.file.startswith("tests/conformance/")
    }
    wanted = {f"AS{number}" for number in range(2, 29)} - {"AS23"}
    assert wanted <= named, sorted(wanted - named)


@pytest.mark.requirement("CF2")
def test_there_are_enough_cases() -> None:
    assert len(transcripts.load(KEPT_VERSION)) >= 200


@pytest.mark.requirement("CF2")
def test_version_dependent_results_are_of_known_versions() -> None:
    assert {version for values in RESULTS.values() for version in values} == {"1.20", "1.32"}


@pytest.mark.requirement("CF3")
def test_meant_differences_are_of_existing_cases_and_say_why() -> None:
    assert set(DIFFERENCES) <= set(transcripts.load(KEPT_VERSION))
    assert all(len(reason) > 20 for reason in DIFFERENCES.values())


@pytest.mark.requirement("CF3")
def test_what_differs_from_run_to_run_is_replaced() -> None:
    body = {
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "namespace": "case-1",
            "uid": "11111111-2222-4333-8444-555555555555",
            "resourceVersion": "17",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{}],
        },
        "message": "no 11111111-2222-4333-8444-555555555555 in case-1 at 2026-01-02T03:04:05Z, hidden",
    }
    assert transcripts.normalised(body, case()) == {
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "namespace": "<ns>",
            "uid": "<uid>",
            "resourceVersion": "<resourceVersion>",
            "creationTimestamp": "<time>",
        },
        "message": "no <uid> in <ns> at <time>, <secret>",
    }


@pytest.mark.requirement("CF3")
def test_causes_are_sorted_and_so_is_their_message() -> None:
    def status(first: str, second: str) -> dict[str, object]:
        causes = [
            {"field": each, "message": "bad", "reason": "FieldValueInvalid"} for each in (first, second)
        ]
        message = f'X "a" is invalid: [{first}: bad, {second}: bad]'
        return {"kind": "Status", "message": message, "details": {"causes": causes}}

    left, right = (
        transcripts.normalised(status("a", "b"), case()),
        transcripts.normalised(status("b", "a"), case()),
    )
    assert left == right
    assert left["message"] == 'X "a" is invalid: [a: bad, b: bad]'


@pytest.mark.requirement("CF3")
def test_field_managers_come_in_the_order_of_one_second() -> None:
    def body(*managers: tuple[str, str, int]) -> dict[str, Any]:
        entries = [
            {"operation": operation, "manager": manager, "time": f"2026-01-02T03:04:0{second}Z"}
            for operation, manager, second in managers
        ]
        return {"metadata": {"managedFields": entries}}

    keeping = case()
    keeping.keep_managed_fields = True
    at_once = body(("Apply", "m0", 5), ("Apply", "m1", 5), ("Update", "k", 5))
    over_time = body(("Apply", "m1", 5), ("Apply", "m0", 6), ("Update", "k", 5))
    left, right = transcripts.normalised(at_once, keeping), transcripts.normalised(over_time, keeping)
    assert left == right
    assert [entry["manager"] for entry in left["metadata"]["managedFields"]] == ["m0", "m1", "k"]


@pytest.mark.requirement("CF3")
@pytest.mark.parametrize(
    ("kept", "now", "shown"),
    [
        ([exchange({"a": 1})], [exchange({"a": 1})], ""),
        ([exchange({"a": 1})], [exchange({"a": 2})], ".body.a: the real server has 1, this one has 2"),
        ([exchange({"a": 1})], [exchange({})], ".body.a: the real server has 1, this one has nothing"),
        ([exchange({})], [exchange({}, 404)], ".code: the real server has 200, this one has 404"),
        ([exchange({})], [], "asked 1 times, this one 0 times"),
        ([exchange([1, 2])], [exchange([1, 3])], ".body[1]: the real server has 2, this one has 3"),
    ],
    ids=["equal", "value", "absent", "code", "count", "item"],
)
def test_the_first_difference_is_named(
    kept: list[dict[str, object]], now: list[dict[str, object]], shown: str
) -> None:
    difference = transcripts.first_difference(kept, now)
    assert shown in difference
    assert bool(difference) == bool(shown)


@pytest.mark.requirement("CF3")
def test_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "ANSWERS", tmp_path)
    assert transcripts.load("9.9") == {}
    kept = {"area/case": transcripts.as_json([Exchange("GET /x", 200, {"ä": [1, None]})])}
    assert transcripts.save("9.9", kept).name == "9.9.json"
    assert transcripts.load("9.9") == kept


@pytest.mark.requirement("CF3")
def test_the_page_tells_all() -> None:
    found = conformance.proofs(conformance.ROOT / "tests")
    page = conformance.page(found)
    for requirements in conformance.REQUIREMENTS.values():
        assert all(f"| {identity} |" in page for identity in requirements)
    assert all(name in page for name in DIFFERENCES)
    assert all(f"| {key} |" in page for key in RESULTS)


@pytest.mark.requirement("CF2")
def test_a_requirement_without_a_test_is_a_problem() -> None:
    proof = conformance.Proof("tests/test_x.py", "test_x", ("AS1", "XX9"))
    problems = conformance.problems([proof])
    assert "AS2 has no test" in problems
    assert "AS1 has no test" not in problems
    assert "tests/test_x.py: test_x names XX9, which does not exist" in problems


@pytest.mark.requirement("CF4")
def test_the_library_is_tested_on_a_real_server_too() -> None:
    integration = conformance.ROOT / "tests" / "integration"
    targets = ast.parse((integration / "targets.py").read_text())
    assert "real_apiserver" in ast.unparse(targets)
    for area in ("client", "cache", "runtime"):
        sources = [path.read_text() for path in (integration / area).glob("*.py")]
        assert any("target" in source for source in sources), area
