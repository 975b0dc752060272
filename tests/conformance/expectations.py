"""What cases expect of answers, said once."""

from __future__ import annotations

from typing import Any

from tests.conformance.target import Answer

Cause = dict[str, str]


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    """A ConfigMap without kind and version, which the path already tells."""
    return {"metadata": {"name": name, **metadata}, "data": data if data is not None else {"a": "1"}}


def widget(group: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A custom resource."""
    return {
        "apiVersion": f"{group}/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": spec if spec is not None else {"color": "red"},
    }


def cause(field: str, message: str, reason: str = "FieldValueInvalid") -> Cause:
    """One cause of an Invalid status."""
    return {"field": field, "message": message, "reason": reason}


def failed(
    answer: Answer, code: int, reason: str, message: str, details: dict[str, Any] | None = None
) -> None:
    """Assert a failure field by field; without `details` there must be none."""
    assert isinstance(answer.body, dict), answer.body
    assert answer.code == code, answer.body
    assert answer.body["kind"] == "Status"
    assert answer.body["apiVersion"] == "v1"
    assert answer.body["status"] == "Failure"
    assert answer.body["code"] == code
    assert (answer.reason, answer.message) == (reason, message), (answer.reason, answer.message)
    assert answer.body.get("details") == details


def refused(answer: Answer, kind: str, name: str, causes: list[Cause], group: str = "") -> None:
    """Assert a 422 with its causes, whatever their order; metadata is judged twice, so repeats count once."""
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    key = _key
    found = [each for index, each in enumerate(answer.causes) if each not in answer.causes[:index]]
    assert sorted(found, key=key) == sorted(causes, key=key)
    qualified = f"{kind}.{group}" if group else kind
    assert answer.message.startswith(f'{qualified} "{name}" is invalid: ')
    if len(causes) == 1:
        only = causes[0]
        assert answer.message == f'{qualified} "{name}" is invalid: {only["field"]}: {only["message"]}'
    expected = {"name": name, "kind": kind} | ({"group": group} if group else {})
    assert {key: value for key, value in answer.details.items() if key != "causes"} == {
        key: value for key, value in expected.items() if value
    }


def _key(item: Cause) -> tuple[str, str]:
    return item.get("field", ""), item["message"]


def not_found(answer: Answer, resource: str, name: str, group: str = "") -> None:
    """Assert a 404 of an object."""
    qualified = f"{resource}.{group}" if group else resource
    details = {"name": name, "kind": resource} | ({"group": group} if group else {})
    failed(answer, 404, "NotFound", f'{qualified} "{name}" not found', details)
