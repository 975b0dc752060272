"""Who sends a request, and whether they may: asked of the API server, answers remembered for a while."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from cachetools import TTLCache

from ..clock import SYSTEM_CLOCK, Clock
from ..objects import SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW, Kind, Object

__all__ = ["AccessReviews", "Decision", "Reviewer"]

REVIEW_TIMEOUT: Final = 10.0
AUTHENTICATION_TTL: Final = 60.0
ALLOW_TTL: Final = 300.0
DENY_TTL: Final = 30.0
_REMEMBERED: Final = 1024
_ANONYMOUS: Final = "system:anonymous"
_UNAUTHENTICATED: Final = "system:unauthenticated"


class Decision(Enum):
    """What becomes of a request."""

    ALLOWED = "allowed"
    UNKNOWN_USER = "unknown user"
    FORBIDDEN = "forbidden"


class Reviewer(Protocol):
    """Creates reviews; a client is one."""

    def create(
        self, kind: Kind, obj: Object, namespace: str = "", *, timeout: float | None = None
    ) -> Object: ...


@dataclass(frozen=True, slots=True)
class _User:
    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]


class AccessReviews:
    """Decides on requests by TokenReview and SubjectAccessReview.

    Guarantees: without a token that the API server knows nothing is allowed; anonymous never is. Tokens are
    kept as hashes only. An authentication counts for a minute, a permission for five, a refusal for half a
    minute; what the API server could not answer is not remembered. Thread-safe.
    """

    def __init__(self, reviewer: Reviewer, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._reviewer = reviewer
        self._lock = threading.Lock()
        timer = clock.monotonic
        self._users: TTLCache[bytes, _User] = TTLCache(_REMEMBERED, AUTHENTICATION_TTL, timer)
        self._allowed: TTLCache[tuple[_User, str, str], bool] = TTLCache(_REMEMBERED, ALLOW_TTL, timer)
        self._denied: TTLCache[tuple[_User, str, str], bool] = TTLCache(_REMEMBERED, DENY_TTL, timer)

    def decide(self, authorization: str, method: str, path: str) -> Decision:
        """Decide on a request.

        Args:
            authorization: value of the header of that name; empty when there is none.
            method: HTTP method.
            path: of the request, without query.

        Raises:
            ApiError, TransportError: a review could not be made.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return Decision.UNKNOWN_USER
        user = self._user_of(token)
        if user is None:
            return Decision.UNKNOWN_USER
        return Decision.ALLOWED if self._may(user, method.lower(), path) else Decision.FORBIDDEN

    def _user_of(self, token: str) -> _User | None:
        key = hashlib.sha256(token.encode()).digest()
        with self._lock:
            known = self._users.get(key)
        if known is not None:
            return known
        answer = self._create(TOKEN_REVIEW, {"token": token})
        found = answer.get("user") or {}
        user = _User(
            str(found.get("username") or ""),
            str(found.get("uid") or ""),
            tuple(found.get("groups") or ()),
            tuple(sorted((name, tuple(values)) for name, values in (found.get("extra") or {}).items())),
        )
        if (
            not answer.get("authenticated")
            or user.name in ("", _ANONYMOUS)
            or _UNAUTHENTICATED in user.groups
        ):
            return None
        with self._lock:
            self._users[key] = user
        return user

    def _may(self, user: _User, verb: str, path: str) -> bool:
        key = (user, verb, path)
        with self._lock:
            if key in self._allowed:
                return True
            if key in self._denied:
                return False
        spec: Object = {
            "user": user.name,
            "groups": list(user.groups),
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {name: list(values) for name, values in user.extra}
        answer = self._create(SUBJECT_ACCESS_REVIEW, spec)
        allowed = answer.get("allowed") is True and answer.get("denied") is not True
        with self._lock:
            (self._allowed if allowed else self._denied)[key] = True
        return allowed

    def _create(self, kind: Kind, spec: Object) -> Object:
        review = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}
        status: Object = self._reviewer.create(kind, review, timeout=REVIEW_TIMEOUT).get("status") or {}
        return status
