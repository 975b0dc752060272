from __future__ import annotations

import json
from typing import Any

import pytest

from captf_runtime.webhook import AdmissionResponse, Violation
from captf_runtime.webhook.admission import ReviewError, read_review, render_review


def review(**request: Any) -> bytes:
    base: dict[str, Any] = {
        "uid": "review-1",
        "kind": {"group": "example.com", "version": "v1", "kind": "Machine"},
        "resource": {"group": "example.com", "version": "v1", "resource": "machines"},
        "name": "m",
        "namespace": "ns",
        "operation": "UPDATE",
        "userInfo": {"username": "jane", "uid": "7", "groups": ["a", "b"], "extra": {"scopes": ["x"]}},
        "object": {"metadata": {"name": "m"}, "unknown": 1},
        "oldObject": {"metadata": {"name": "m"}},
        "dryRun": True,
        "somethingNew": {"a": 1},
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**base, **request}}
    return json.dumps(body).encode()


def test_a_review_is_read() -> None:
    request = read_review(review())
    assert (request.uid, request.operation, request.kind, request.group) == (
        "review-1",
        "UPDATE",
        "Machine",
        "example.com",
    )
    assert (request.resource, request.subresource, request.namespace, request.name) == (
        "machines",
        "",
        "ns",
        "m",
    )
    assert request.object == {"metadata": {"name": "m"}, "unknown": 1}
    assert request.old_object == {"metadata": {"name": "m"}}
    assert request.user.username == "jane"
    assert request.user.groups == ("a", "b")
    assert request.user.extra == (("scopes", ("x",)),)
    assert request.dry_run


def test_what_is_absent_is_empty() -> None:
    request = read_review(b'{"request": {"uid": "u", "object": null}}')
    assert request.uid == "u"
    assert request.object is None
    assert request.user.username == ""
    assert not request.dry_run


@pytest.mark.parametrize(
    ("body", "message", "uid"),
    [
        (b"", "no body", ""),
        (b"not json", "not JSON", ""),
        (b"\xff\xfe", "not JSON", ""),
        (b"[]", "with a request", ""),
        (b"{}", "with a request", ""),
        (b'{"request": 1}', "with a request", ""),
        (b'{"request": {"uid": "u", "object": "text"}}', "request.object is not an object", "u"),
        (b'{"request": {"uid": "u", "oldObject": [1]}}', "request.oldObject is not an object", "u"),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes, message: str, uid: str) -> None:
    with pytest.raises(ReviewError, match=message) as caught:
        read_review(body)
    assert caught.value.uid == uid


def render(response: AdmissionResponse) -> dict[str, Any]:
    request = read_review(review())
    rendered = json.loads(render_review(response, request.uid, request))
    assert rendered["apiVersion"] == "admission.k8s.io/v1"
    assert rendered["kind"] == "AdmissionReview"
    answer = rendered["response"]
    assert isinstance(answer, dict)
    assert answer["uid"] == "review-1"
    return answer


def test_allowed() -> None:
    assert render(AdmissionResponse.allow()) == {"uid": "review-1", "allowed": True}
    answer = render(AdmissionResponse.allow(warnings=["mind\nthe gap", "x" * 300]))
    assert answer["warnings"] == ["mind the gap", "x" * 256]


def test_violations_are_all_listed() -> None:
    request = read_review(review())
    response = AdmissionResponse.invalid(
        request,
        [
            Violation("FieldValueRequired", "spec.image", "Required value"),
            Violation("FieldValueForbidden", "metadata.labels[x]", "Forbidden: not yours"),
        ],
    )
    answer = render(response)
    assert answer["allowed"] is False
    assert answer["status"] == {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": 'Machine.example.com "m" is invalid: '
        "[spec.image: Required value, metadata.labels[x]: Forbidden: not yours]",
        "details": {
            "group": "example.com",
            "kind": "Machine",
            "name": "m",
            "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.image"},
                {
                    "reason": "FieldValueForbidden",
                    "message": "Forbidden: not yours",
                    "field": "metadata.labels[x]",
                },
            ],
        },
    }


def test_policy_and_failures() -> None:
    denied = render(AdmissionResponse.deny("in use by 3 objects"))
    assert denied["status"] == {
        "status": "Failure",
        "code": 403,
        "reason": "Forbidden",
        "message": "in use by 3 objects",
    }
    failed = render(AdmissionResponse.failed("cannot list"))
    assert (failed["status"]["code"], failed["status"]["reason"]) == (500, "InternalError")
