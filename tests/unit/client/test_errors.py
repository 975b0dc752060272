from __future__ import annotations

import json
from typing import Any

import pytest

from captf_runtime.client import errors
from captf_runtime.client.errors import ApiError, Cause, Conflict, Gone, error_from_answer


def status(code: int, reason: str = "", **fields: Any) -> bytes:
    return json.dumps(
        {"kind": "Status", "code": code, "reason": reason, "message": "told so", **fields}
    ).encode()


def causes(*reasons: str) -> dict[str, Any]:
    return {"causes": [{"reason": reason, "message": "m", "field": "f"} for reason in reasons]}


@pytest.mark.requirement("CL14")
@pytest.mark.parametrize(
    ("code", "reason", "details", "expected"),
    [
        (400, "BadRequest", {}, errors.BadRequest),
        (401, "Unauthorized", {}, errors.Unauthorized),
        (403, "Forbidden", {}, errors.Forbidden),
        (403, "Forbidden", causes("NamespaceTerminating"), errors.NamespaceTerminating),
        (404, "NotFound", {}, errors.NotFound),
        (405, "MethodNotAllowed", {}, errors.MethodNotAllowed),
        (406, "NotAcceptable", {}, errors.NotAcceptable),
        (409, "AlreadyExists", {}, errors.AlreadyExists),
        (409, "Conflict", {}, errors.Conflict),
        (410, "Expired", {}, errors.Gone),
        (410, "Gone", {}, errors.Gone),
        (413, "RequestEntityTooLarge", {}, errors.RequestTooLarge),
        (415, "UnsupportedMediaType", {}, errors.UnsupportedMediaType),
        (422, "Invalid", {}, errors.Invalid),
        (429, "TooManyRequests", {}, errors.TooManyRequests),
        (500, "InternalError", {}, errors.InternalError),
        (500, "ServerTimeout", {}, errors.ServerTimeout),
        (502, "", {}, errors.ServiceUnavailable),
        (503, "ServiceUnavailable", {}, errors.ServiceUnavailable),
        (504, "Timeout", {}, errors.Timeout),
        (504, "Timeout", causes("ResourceVersionTooLarge"), errors.ResourceVersionTooLarge),
        (418, "Teapot", {}, errors.ApiError),
    ],
)
def test_class_follows_code_reason_and_causes(
    code: int, reason: str, details: dict[str, Any], expected: type[ApiError]
) -> None:
    error = error_from_answer(code, status(code, reason, details=details), method="GET", path="/api/v1/x")
    assert type(error) is expected
    assert (error.code, error.reason, error.message) == (code, reason, "told so")
    assert (error.method, error.path) == ("GET", "/api/v1/x")
    assert error.causes == tuple(Cause(cause["reason"], "m", "f") for cause in details.get("causes", []))


@pytest.mark.requirement("CL14")
def test_namespace_terminating_is_never_read_from_the_message() -> None:
    body = status(403, "Forbidden", message="forbidden: NamespaceTerminating because it is being terminated")
    assert type(error_from_answer(403, body)) is errors.Forbidden


@pytest.mark.requirement("CL14")
def test_a_body_that_is_no_status_gives_the_class_of_its_code_and_a_short_message() -> None:
    error = error_from_answer(404, b"404 page not found\n")
    assert type(error) is errors.NotFound
    assert error.message == "404 page not found"
    long = error_from_answer(503, ("upstream is gone, " * 100).encode())
    assert type(long) is errors.ServiceUnavailable
    assert len(long.message) == 256
    assert error_from_answer(500, b'{"kind": "Other"}').message == '{"kind": "Other"}'
    assert error_from_answer(500, b"").message == "the server answered 500"
    assert type(error_from_answer(409, b"\xff\xfe")) is errors.Conflict


def test_retry_after_is_whole_seconds_or_none() -> None:
    assert error_from_answer(429, b"", retry_after="7").retry_after == 7
    assert error_from_answer(429, b"", retry_after="Wed, 21 Oct 2026 07:28:00 GMT").retry_after is None
    assert error_from_answer(429, b"").retry_after is None
    assert error_from_answer(429, status(429, details={"retryAfterSeconds": 3})).retry_after == 3


@pytest.mark.parametrize(
    ("method", "reason", "details", "kind"),
    [
        ("PUT", "Conflict", {}, "resource-version"),
        ("PATCH", "Conflict", {}, "resource-version"),
        ("PATCH", "Conflict", causes("FieldManagerConflict"), "apply"),
        ("DELETE", "Conflict", {}, "precondition"),
        ("POST", "Conflict", {}, "other"),
        ("PUT", "", {}, "other"),
    ],
)
def test_conflicts_are_told_apart(method: str, reason: str, details: dict[str, Any], kind: str) -> None:
    error = error_from_answer(409, status(409, reason, details=details), method=method)
    assert isinstance(error, Conflict)
    assert error.kind == kind


def test_gone_carries_the_continue_token() -> None:
    error = error_from_answer(410, status(410, "Expired", metadata={"continue": "token"}))
    assert isinstance(error, Gone)
    assert error.continue_token == "token"
    assert isinstance(error_from_answer(0, status(410, "Gone")), Gone)
    assert isinstance(error_from_answer(0, status(0, "Expired")), Gone)


def test_details_survive_and_null_fields_are_tolerated() -> None:
    body = status(404, "NotFound", details={"name": "a", "kind": "secrets", "causes": None})
    assert error_from_answer(404, body).details == {"name": "a", "kind": "secrets", "causes": None}
    assert error_from_answer(404, b'{"kind":"Status","reason":null,"details":null}').causes == ()


def test_text_names_request_code_and_reason() -> None:
    error = error_from_answer(404, status(404, "NotFound"), method="GET", path="/api/v1/secrets/a")
    assert str(error) == "GET /api/v1/secrets/a: 404 NotFound: told so"


@pytest.mark.requirement("CL14")
def test_an_answer_that_is_nested_too_deeply_is_an_error_of_its_code() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    beside = error_from_answer(503, b'{"kind": "Status", "message": "told so", "more": ' + deep + b"}")
    assert type(beside) is errors.ServiceUnavailable
    inside = error_from_answer(
        404, b'{"kind": "Status", "message": "told so", "details": {"name": ' + deep + b"}}"
    )
    assert type(inside) is errors.NotFound
