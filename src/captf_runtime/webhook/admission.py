"""Admission reviews: the request as a validator sees it, and the answer that it gives.

Reading and rendering are pure; `server` puts them on the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from ..objects import Object

__all__ = [
    "API_VERSION",
    "AdmissionRequest",
    "AdmissionResponse",
    "ReviewError",
    "Validator",
    "Violation",
    "ViolationType",
    "read_review",
    "render_review",
]

API_VERSION: Final = "admission.k8s.io/v1"

ViolationType = Literal[
    "FieldValueRequired",
    "FieldValueInvalid",
    "FieldValueForbidden",
    "FieldValueTooMany",
    "FieldValueNotSupported",
    "FieldValueDuplicate",
    "FieldValueNotFound",
    "InternalError",
]


class ReviewError(Exception):
    """The body is not a review that can be answered by a validator; the message is safe to send back."""

    def __init__(self, message: str, uid: str = "") -> None:
        super().__init__(message)
        self.uid = uid


@dataclass(frozen=True, slots=True)
class UserInfo:
    """Who asks."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What someone wants to do to an object.

    Args:
        uid: identity of the review.
        operation: CREATE, UPDATE, DELETE or CONNECT.
        group, version, kind: of the object, as registered for the webhook.
        resource, subresource: what is written to.
        namespace, name: of the object; the name may be empty on CREATE.
        object: as it would be; None on DELETE.
        old_object: as it is; None on CREATE.
        user: who asks.
        dry_run: nothing will be stored.
    """

    uid: str
    operation: str
    group: str
    version: str
    kind: str
    resource: str
    subresource: str
    namespace: str
    name: str
    object: Object | None
    old_object: Object | None
    user: UserInfo
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong with an object.

    Args:
        type: machine-readable kind of violation.
        field: path of the field, such as "spec.jobs.env[0].name".
        message: for people; must not contain secret values.
    """

    type: ViolationType
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """The answer to a review.

    Args:
        allowed: whether the request may go on.
        code: HTTP code that the requester sees when it may not.
        reason: machine-readable reason, such as "Invalid" or "Forbidden".
        message: for people.
        violations: every single thing that is wrong.
        warnings: shown to the requester, whether allowed or not; without a line break, 256 characters at
            most.
    """

    allowed: bool
    code: int = 200
    reason: str = ""
    message: str = ""
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def allow(cls, *, warnings: Sequence[str] = ()) -> AdmissionResponse:
        """Let the request go on."""
        return cls(allowed=True, warnings=tuple(warnings))

    @classmethod
    def deny(
        cls, message: str, *, code: int = 403, reason: str = "Forbidden", warnings: Sequence[str] = ()
    ) -> AdmissionResponse:
        """Refuse it, by default as a matter of policy."""
        return cls(allowed=False, code=code, reason=reason, message=message, warnings=tuple(warnings))

    @classmethod
    def invalid(
        cls, request: AdmissionRequest, violations: Sequence[Violation], *, warnings: Sequence[str] = ()
    ) -> AdmissionResponse:
        """Refuse an object that breaks rules: 422, one cause for each, all of them in the message."""
        subject = f"{request.kind}.{request.group}" if request.group else request.kind
        listed = [
            f"{violation.field}: {violation.message}" if violation.field else violation.message
            for violation in violations
        ]
        joined = listed[0] if len(listed) == 1 else "[" + ", ".join(listed) + "]"
        return cls(
            allowed=False,
            code=422,
            reason="Invalid",
            message=f'{subject} "{request.name}" is invalid: {joined}',
            violations=tuple(violations),
            warnings=tuple(warnings),
        )

    @classmethod
    def failed(cls, message: str) -> AdmissionResponse:
        """Refuse because the check itself could not be made."""
        return cls(allowed=False, code=500, reason="InternalError", message=message)


Validator: TypeAlias = Callable[[AdmissionRequest], AdmissionResponse]
"""Answers a request. One that raises refuses the request with code 500: nothing is allowed by accident."""


def read_review(body: bytes) -> AdmissionRequest:
    """Read the request out of a review.

    Raises:
        ReviewError: the body is empty, not JSON, or has no request, or an object in it is not one.
    """
    if not body:
        raise ReviewError("the request has no body")
    try:
        review = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ReviewError("the body is not JSON") from None
    except RecursionError:
        raise ReviewError("the body is nested too deeply") from None
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict):
        raise ReviewError("the body is not an AdmissionReview with a request")
    uid = _text(request.get("uid"))
    for name in ("object", "oldObject"):
        if not isinstance(request.get(name), (dict, type(None))):
            raise ReviewError(f"request.{name} is not an object", uid)
    kind, resource, user = (_fields(request.get(name)) for name in ("kind", "resource", "userInfo"))
    extra = _fields(user.get("extra"))
    return AdmissionRequest(
        uid=uid,
        operation=_text(request.get("operation")),
        group=_text(kind.get("group")),
        version=_text(kind.get("version")),
        kind=_text(kind.get("kind")),
        resource=_text(resource.get("resource")),
        subresource=_text(request.get("subResource")),
        namespace=_text(request.get("namespace")),
        name=_text(request.get("name")),
        object=request.get("object"),
        old_object=request.get("oldObject"),
        user=UserInfo(
            username=_text(user.get("username")),
            uid=_text(user.get("uid")),
            groups=_texts(user.get("groups")),
            extra=tuple((name, _texts(values)) for name, values in extra.items()),
        ),
        dry_run=request.get("dryRun") is True,
    )


def render_review(response: AdmissionResponse, uid: str, request: AdmissionRequest | None = None) -> bytes:
    """The body of the answer to a review."""
    answer: dict[str, Any] = {"uid": uid, "allowed": response.allowed}
    if response.warnings:
        answer["warnings"] = [" ".join(warning.split())[:256] for warning in response.warnings]
    if not response.allowed:
        status: dict[str, Any] = {
            "status": "Failure",
            "code": response.code,
            "reason": response.reason,
            "message": response.message,
        }
        if request is not None and response.violations:
            status["details"] = {
                "group": request.group,
                "kind": request.kind,
                "name": request.name,
                "causes": [
                    {"reason": violation.type, "message": violation.message, "field": violation.field}
                    for violation in response.violations
                ],
            }
        answer["status"] = status
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": answer})


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
