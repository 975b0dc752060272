"""What can go wrong between this process and the API server, as one family of exceptions.

The class is chosen by the HTTP code and by `Status.reason`, never by message text, so that callers can
tell conflicts, absences and refusals apart without parsing prose. An error never carries a request body,
a token or a header of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

ConflictKind = Literal["resource-version", "precondition", "apply", "other"]

_MESSAGE_LIMIT = 256
_TERMINATING = "NamespaceTerminating"
_TOO_LARGE = "ResourceVersionTooLarge"


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `Status.details.causes`."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ApiError(Exception):
    """A request that did not succeed.

    Args:
        message: what the server said, or what happened.
        code: HTTP code; 0 when there was no answer.
        reason: `Status.reason`, "" when the answer was no `Status`.
        details: `Status.details` as decoded.
        causes: `Status.details.causes`.
        method: HTTP method of the request.
        path: path of the request, without query.
        retry_after: whole seconds that the server asked to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        causes: tuple[Cause, ...] = (),
        method: str = "",
        path: str = "",
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}
        self.causes = causes
        self.method = method
        self.path = path
        self.retry_after = retry_after

    def __str__(self) -> str:
        what = " ".join(part for part in (str(self.code) if self.code else "", self.reason) if part)
        where = f"{self.method} {self.path}".strip()
        return ": ".join(part for part in (where, what, self.message) if part)


class BadRequest(ApiError):
    """400: the server could not make sense of the request."""


class Unauthorized(ApiError):
    """401: the credentials were not accepted, also after reading them again."""


class Forbidden(ApiError):
    """403: the user may not do this, or an admission step refused it."""


class NamespaceTerminating(Forbidden):
    """403: nothing can be created in a namespace that is being deleted."""


class NotFound(ApiError):
    """404: the object, its kind or its group does not exist."""


class MethodNotAllowed(ApiError):
    """405: the resource does not know this verb."""


class NotAcceptable(ApiError):
    """406: the server has none of the forms asked for."""


class AlreadyExists(ApiError):
    """409: an object of this name exists."""


class Conflict(ApiError):
    """409: the object is not in the state that the request assumed; `kind` says in which respect.

    `resource-version`: it was changed since it was read. `precondition`: another uid or version than the
    deletion named. `apply`: another manager owns a field. `other`: anything else.
    """

    @property
    def kind(self) -> ConflictKind:
        if any(cause.reason == "FieldManagerConflict" for cause in self.causes):
            return "apply"
        # The server gives no machine-readable difference between these; the verb does: only a deletion
        # carries preconditions, and only an update or patch carries the version it was made from.
        if self.method == "DELETE":
            return "precondition"
        if self.method in ("PUT", "PATCH") and self.reason == "Conflict":
            return "resource-version"
        return "other"


class Gone(ApiError):
    """410: the version asked for is no longer kept; `continue_token` resumes a list, where there is one."""

    def __init__(self, message: str, *, continue_token: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.continue_token = continue_token


class RequestTooLarge(ApiError):
    """413: the body is larger than the server takes."""


class UnsupportedMediaType(ApiError):
    """415: the server does not take this form of body, such as a strategic patch of a custom resource."""


class Invalid(ApiError):
    """422: the object breaks a rule of its schema or of an immutable field; `causes` may be empty."""


class TooManyRequests(ApiError):
    """429: the server sheds load, or an eviction would break a budget."""


class InternalError(ApiError):
    """500: the server failed."""


class ServerTimeout(InternalError):
    """500 with reason `ServerTimeout`: the server gave up in time to say so."""


class ServiceUnavailable(ApiError):
    """502 or 503: no server behind the address can answer now."""


class Timeout(ApiError):
    """504: the server did not finish in its own time; a write may have been executed."""


class ResourceVersionTooLarge(Timeout):
    """504: the server has not yet seen the version asked for."""


class TransportError(ApiError):
    """There was no HTTP answer, or a broken one.

    `ambiguous` says whether the request may have been executed. It is False only when the request certainly
    never reached the server.
    """

    def __init__(self, message: str, *, ambiguous: bool, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.ambiguous = ambiguous


class ConnectionFailed(TransportError):
    """No connection came about (refused, unreachable, TLS or name failure): the request was not sent."""

    def __init__(self, message: str, *, refused: bool = False, **fields: Any) -> None:
        super().__init__(message, ambiguous=False, **fields)
        self.refused = refused


class RequestTimeout(TransportError):
    """No answer within the time that the client allows."""


class Stopped(TransportError):
    """The client was stopped or closed before or while the request was made."""


class WatchDecodeError(ApiError):
    """A watch sent a line that is no event."""


class _StatusCause(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _StatusDetails(msgspec.Struct, rename="camel"):
    causes: list[_StatusCause] | None = None
    retry_after_seconds: int | None = None


class _StatusMeta(msgspec.Struct):
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Status(msgspec.Struct):
    kind: str | None = None
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None
    metadata: _StatusMeta | None = None


class _RawDetails(msgspec.Struct):
    details: dict[str, Any] | None = None


_decode_status = msgspec.json.Decoder(_Status).decode
_decode_details = msgspec.json.Decoder(_RawDetails).decode

_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: NotAcceptable,
    409: Conflict,
    410: Gone,
    413: RequestTooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    502: ServiceUnavailable,
    503: ServiceUnavailable,
    504: Timeout,
}


def error_from_answer(
    code: int, body: bytes, *, retry_after: str | None = None, method: str = "", path: str = ""
) -> ApiError:
    """Build the exception for an answer that is not a success.

    Args:
        code: HTTP code. For an ERROR event of a watch pass 0: the code then comes from the `Status`.
        body: the answer's body; anything that is not a `Status` becomes a message of at most 256
            characters.
        retry_after: value of the `Retry-After` header, if the answer had one.
    """
    status = _status(body)
    if status is None:
        message = " ".join(body[: 4 * _MESSAGE_LIMIT].decode("utf-8", "replace").split())[:_MESSAGE_LIMIT]
        return _build(
            _BY_CODE.get(code, ApiError),
            message or f"the server answered {code}",
            code=code,
            retry_after=_whole_seconds(retry_after),
            method=method,
            path=path,
        )
    code = code or status.code or 0
    details = status.details or _StatusDetails()
    causes = tuple(
        Cause(cause.reason or "", cause.message or "", cause.field or "") for cause in details.causes or ()
    )
    seconds = _whole_seconds(retry_after)
    if seconds is None and details.retry_after_seconds is not None and details.retry_after_seconds > 0:
        seconds = details.retry_after_seconds
    error = _build(
        _class_of(code, status.reason or "", causes),
        status.message or f"the server answered {code}",
        code=code,
        reason=status.reason or "",
        details=_details(body),
        causes=causes,
        retry_after=seconds,
        method=method,
        path=path,
    )
    if isinstance(error, Gone) and status.metadata is not None:
        error.continue_token = status.metadata.continue_ or ""
    return error


def _build(cls: type[ApiError], message: str, **fields: Any) -> ApiError:
    return cls(message, **fields)


def _status(body: bytes) -> _Status | None:
    try:
        status = _decode_status(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return status if status.kind == "Status" else None


def _details(body: bytes) -> dict[str, Any] | None:
    try:
        return _decode_details(body).details
    except RecursionError:
        return None  # nested deeper than anything that a server has to say


def _class_of(code: int, reason: str, causes: tuple[Cause, ...]) -> type[ApiError]:
    def has_cause(name: str) -> bool:
        return any(cause.reason == name for cause in causes)

    if code == 403 and has_cause(_TERMINATING):
        return NamespaceTerminating
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if code == 410 or reason in ("Expired", "Gone"):
        return Gone
    if code == 500 and reason == "ServerTimeout":
        return ServerTimeout
    if code == 504 and has_cause(_TOO_LARGE):
        return ResourceVersionTooLarge
    return _BY_CODE.get(code, ApiError)


def _whole_seconds(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()):
        return None
    return int(text[:9])
