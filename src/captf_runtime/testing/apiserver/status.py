"""Failures of the API server: `Status` objects and the exception that carries one.

The texts are those that a real API server answers with; clients match on code and reason, people on the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from captf_runtime.objects import Object

__all__ = ["ApiStatus", "Cause", "Object"]


@dataclass(frozen=True, slots=True)
class Cause:
    """One field error: `reason` is a machine word such as FieldValueInvalid, `field` a path such as spec.size."""

    reason: str
    message: str
    field: str


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
        text = f'{qualified(plural, group)} "{name}" is forbidden: {message}'
    else:
        text = f"{qualified(plural, group)} is forbidden: {message}" if plural else f"forbidden: {message}"
    return ApiStatus(code, text, "Forbidden", _details(name, group, plural, causes))


def not_found(plural: str, group: str, name: str) -> ApiStatus:
    """404 for an object that does not exist."""
    message = f'{qualified(plural, group)} "{name}" not found'
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


def not_acceptable(accepted: Iterable[str]) -> ApiStatus:
    """406 when no media type of the Accept header can be served."""
    types = ", ".join(accepted)
    return ApiStatus(406, f"only the following media types are accepted: {types}", "NotAcceptable")


def already_exists(plural: str, group: str, name: str) -> ApiStatus:
    """409 AlreadyExists."""
    message = f'{qualified(plural, group)} "{name}" already exists'
    return ApiStatus(409, message, "AlreadyExists", _details(name, group, plural))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(plural: str, group: str, name: str, message: str = MODIFIED) -> ApiStatus:
    """409 Conflict; without `message` the one for a stale resourceVersion."""
    text = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {message}'
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
    errors = [f"{cause.field}: {cause.message}" for cause in listed]
    # The real server's aggregate prints a repeated error once.
    unique = list(dict.fromkeys(errors))
    text = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
    if not unique:
        text = "null"
    message = f'{qualified(kind, group)} "{name}" is invalid: {text}'
    return ApiStatus(422, message, "Invalid", _details(name, group, kind, listed))


def patch_rejected() -> ApiStatus:
    """422 for a JSON patch whose test fails or whose path is missing."""
    return ApiStatus(
        422, "the server rejected our request due to an error in our request", "Invalid", {}
    )


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


def quote(text: str) -> str:
    """A string as the server quotes it inside messages (Go's %q)."""
    return json.dumps(text, ensure_ascii=False)


def required(field: str, detail: str = "") -> Cause:
    """A missing value."""
    return Cause("FieldValueRequired", "Required value" + (f": {detail}" if detail else ""), field)


def invalid_value(field: str, value: object, detail: str) -> Cause:
    """A value that breaks a rule; strings are quoted, other values shown as they are."""
    return Cause("FieldValueInvalid", f"Invalid value: {render(value)}: {detail}", field)


def forbidden_value(field: str, detail: str) -> Cause:
    """A field that may not be set here."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def unsupported_value(field: str, value: object, supported: Iterable[str]) -> Cause:
    """A value outside a fixed set."""
    choices = ", ".join(quote(choice) for choice in supported)
    return Cause(
        "FieldValueNotSupported", f"Unsupported value: {render(value)}: supported values: {choices}", field
    )


def too_long(field: str, limit: int) -> Cause:
    """A text or map with too many bytes."""
    return Cause("FieldValueTooLong", f"Too long: must have at most {limit} bytes", field)


def duplicate(field: str, value: object) -> Cause:
    """A second entry with the same key."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {render(value)}", field)


def render(value: object) -> str:
    """A value inside a message: strings quoted, booleans and numbers bare, the rest as JSON."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return str(value)
    return json.dumps(value, separators=(",", ":"))
