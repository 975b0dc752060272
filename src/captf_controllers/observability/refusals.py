"""What the API server refuses, in words that an object may show.

Conditions and events are read by everybody who may read the object, and an admission step may answer with what it was
shown. So what was said of a Secret is cut down to who refused it, and the paths of its fields that were wrong.
"""

from __future__ import annotations

import re
from typing import Final

from captf_controllers.observability.conditions import MAX_NOTE_BYTES, legible
from captf_runtime.client.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    InternalError,
    Invalid,
    RequestTooLarge,
    ServerTimeout,
)

__all__ = ["LET_THROUGH", "is_refusal", "words"]

LET_THROUGH: Final = "change what refuses it (a quota, a policy, an admission webhook, a permission)"
"""The way out of every refusal, as a part of a sentence."""

_REFUSALS: Final = (BadRequest, Forbidden, InternalError, Invalid, RequestTooLarge)

#: How an admission webhook and an admission policy end the part of their answer that says who they are.
_DENIED: Final = re.compile(r"\bdenied (?:the )?request\b")


def is_refusal(error: Exception) -> bool:
    """Whether the next pass gets the same answer, until somebody changes a permission, a policy or a webhook.

    A webhook that cannot be called is an internal error of the server; its own time-out is none.
    """
    return isinstance(error, _REFUSALS) and not isinstance(error, ServerTimeout)


def words(error: ApiError, limit: int = MAX_NOTE_BYTES) -> str:
    """What the API server said, as far as it may be shown, without a full stop at its end.

    Args:
        error: its answer.
        limit: most bytes of UTF-8.
    """
    text = error.message
    if "/secrets" in error.path:
        text = _of_secret(error)
    return legible(text, limit).rstrip(". \n")


def _of_secret(error: ApiError) -> str:
    denied = _DENIED.search(error.message)
    if denied is not None:
        return error.message[: denied.end()]
    if not isinstance(error, Invalid):
        return error.message
    fields = ", ".join(dict.fromkeys(cause.field for cause in error.causes if cause.field))
    return "the Secret is invalid" + (f" in {fields}" if fields else "")
