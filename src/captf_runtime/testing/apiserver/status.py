"""Failures of the API server: `Status` objects and the exception that carries one.

The texts are those that a real API server answers with; clients match on code and reason, people on the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver.schema.causes import (
    Cause,
    aggregate,
    duplicate,
    go_quote,
    go_value,
)
from captf_runtime.testing.apiserver.schema.causes import forbidden as forbidden_value
from captf_runtime.testing.apiserver.schema.causes import invalid as invalid_value
from captf_runtime.testing.apiserver.schema.causes import not_supported as unsupported_value
from captf_runtime.testing.apiserver.schema.causes import required as required

__all__ = [
    "ApiStatus",
    "Cause",
    "already_exists",
    "bad_request",
    "conflict",
    "duplicate",
    "expired",
    "forbidden",
    "forbidden_value",
    "go_value",
    "internal",
    "invalid",
    "invalid_value",
    "method_not_allowed",
    "not_acceptable",
    "not_found",
    "patch_rejected",
    "plain_internal",
    "qualified",
    "quote",
    "required",
    "too_large",
    "too_long",
    "unauthorized",
    "unknown_path",
    "unknown_resource",
    "unsupported_media_type",
    "unsupported_value",
    "verb_not_supported",
    "version_too_large",
]  # fmt: skip

quote = go_quote


class ApiStatus(Exception):
    """A request that ends with a failure `Status`.

    Arguments: HTTP `code`, `message`, machine `reason` ("" leaves it out, as the server does for plain 500s),
    `details` (None leaves it out), extra HTTP `headers`, `metadata` (list metadata of the Status), and `text`,
    which replaces the Status by a text/plain body.
    """

    def __init__(
        self,
        code: int,
        message: str,
        reason: str = "",
        details: Object | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        metadata: Object | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.details = details
        self.headers = dict(headers or {})
        self.metadata = metadata or {}
        self.text = text

    def to_object(self) -> Object:
        """The `Status` object as it goes over the wire."""
        body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def qualified(plural: str, group: str) -> str:
    """`secrets` or `jobs.batch`, as messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str, causes: Iterable[Cause] = (), **more: Any) -> Object:
    details: Object = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    listed = [cause_object(cause) for cause in causes]
    if listed:
        details["causes"] = listed
    details.update(more)
    return details


def cause_object(cause: Cause) -> Object:
    """A cause as it stands in `details.causes`; empty parts are left out."""
    entry = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {key: value for key, value in entry.items() if value}


def bad_request(message: str) -> ApiStatus:
    """400 BadRequest."""
    return ApiStatus(400, message, "BadRequest")


def unauthorized() -> ApiStatus:
    """401 for a token that nobody knows."""
    return ApiStatus(401, "Unauthorized", "Unauthorized")


def forbidden(
    plural: str, group: str, name: str, message: str, causes: Iterable[Cause] = (), *, code: int = 403
) -> ApiStatus:
    """403 for one object: `configmaps "a" is forbidden: <message>`."""
    if name:
        text = f"{qualified(plural, group)} {quote(name)} is forbidden: {message}"
    else:
        text = f"{qualified(plural, group)} is forbidden: {message}" if plural else f"forbidden: {message}"
    return ApiStatus(code, text, "Forbidden", _details(name, group, plural, causes))


def not_found(plural: str, group: str, name: str) -> ApiStatus:
    """404 for an object that does not exist."""
    message = f"{qualified(plural, group)} {quote(name)} not found"
    return ApiStatus(404, message, "NotFound", _details(name, group, plural))


def unknown_resource() -> ApiStatus:
    """404 for a resource that a known group does not serve."""
    return ApiStatus(404, "the server could not find the requested resource", "NotFound", {})


def unknown_path() -> ApiStatus:
    """404 in plain text, for paths and groups that are not served at all."""
    return ApiStatus(404, "404 page not found", text="404 page not found\n")


def method_not_allowed() -> ApiStatus:
    """405 for a verb that a resource does not have."""
    message = "the server does not allow this method on the requested resource"
    return ApiStatus(405, message, "MethodNotAllowed", {})


def verb_not_supported(plural: str, group: str, verb: str) -> ApiStatus:
    """405 as custom resources word it."""
    message = f'{verb} is not supported on resources of kind "{qualified(plural, group)}"'
    return ApiStatus(405, message, "MethodNotAllowed", _details("", group, plural))


def not_acceptable(accepted: Iterable[str]) -> ApiStatus:
    """406 when no media type of the Accept header can be served."""
    types = ", ".join(accepted)
    return ApiStatus(406, f"only the following media types are accepted: {types}", "NotAcceptable")


def already_exists(plural: str, group: str, name: str) -> ApiStatus:
    """409 AlreadyExists."""
    message = f"{qualified(plural, group)} {quote(name)} already exists"
    return ApiStatus(409, message, "AlreadyExists", _details(name, group, plural))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(plural: str, group: str, name: str, message: str = MODIFIED) -> ApiStatus:
    """409 Conflict; without `message` the one for a stale resourceVersion."""
    text = f"Operation cannot be fulfilled on {qualified(plural, group)} {quote(name)}: {message}"
    return ApiStatus(409, text, "Conflict", _details(name, group, plural))


def expired(message: str, *, continue_token: str = "") -> ApiStatus:
    """410 Expired, for a version or continue token that history no longer holds."""
    metadata: Object = {"continue": continue_token} if continue_token else {}
    return ApiStatus(410, message, "Expired", metadata=metadata)


def too_large() -> ApiStatus:
    """413 for a request body over the limit of 3 MiB."""
    return ApiStatus(413, "Request entity too large: limit is 3145728", "RequestEntityTooLarge")


def unsupported_media_type(message: str) -> ApiStatus:
    """415 for a content type that the verb does not read."""
    return ApiStatus(415, message, "UnsupportedMediaType")


def invalid(kind: str, group: str, name: str, causes: Iterable[Cause]) -> ApiStatus:
    """422 Invalid with one cause for each field error."""
    listed = list(causes)
    text = aggregate(listed)
    message = f"{qualified(kind, group)} {quote(name)} is invalid: {text}"
    return ApiStatus(422, message, "Invalid", _details(name, group, kind, listed))


def patch_rejected() -> ApiStatus:
    """422 for a JSON patch whose test fails or whose path is missing."""
    return ApiStatus(422, "the server rejected our request due to an error in our request", "Invalid", {})


def internal(message: str) -> ApiStatus:
    """500 with reason InternalError."""
    return ApiStatus(
        500,
        f"Internal error occurred: {message}",
        "InternalError",
        {"causes": [{"message": message}]},
    )


def plain_internal(message: str) -> ApiStatus:
    """500 without a reason: an error that the real server does not classify."""
    return ApiStatus(500, message)


def version_too_large(requested: int, current: int) -> ApiStatus:
    """504 for a resourceVersion that lies in the future."""
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiStatus(504, message, "Timeout", details, headers={"Retry-After": "1"})


def too_long(field: str, limit: int, *, modern: bool = False) -> Cause:
    """A text or map with too many bytes."""
    words = "may not be more than" if modern else "must have at most"
    return Cause("FieldValueTooLong", f"Too long: {words} {limit} bytes", field)
