"""Who a request comes from: users, their tokens, and the tokens of service accounts."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from captf_runtime.clock import Clock
from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.storage import Store

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
ISSUER = "https://kubernetes.default.svc"
DEFAULT_AUDIENCE = ISSUER
SHORTEST_TOKEN = 600
"""Seconds; a TokenRequest may not ask for less."""


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, list[str]] = field(default_factory=dict)

    def to_object(self) -> Object:
        """As it stands in reviews and admission requests."""
        body: Object = {"username": self.name}
        if self.uid:
            body["uid"] = self.uid
        body["groups"] = list(self.groups)
        if self.extra:
            body["extra"] = dict(self.extra)
        return body


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


def service_account_user(
    namespace: str, name: str, uid: str = "", extra: dict[str, list[str]] | None = None
) -> User:
    """The identity of a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra or {})


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unbase64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


_HEADER = _base64(b'{"alg":"HS256","typ":"JWT"}')


def impersonated(user: User, headers: Mapping[str, str], allowed: Callable[[str, str, str], bool]) -> User:
    """The user that a request acts as, by its Impersonate headers (lower-case names); `user` without any.

    `allowed(resource, namespace, name)` says whether `user` may impersonate the user, group or service account
    of that name; raises 403 when it may not, and 400 for groups without a user.
    """
    name = headers.get("impersonate-user", "")
    groups = [group.strip() for group in headers.get("impersonate-group", "").split(",") if group.strip()]
    if not name:
        if groups:
            raise status.plain_internal(f"requested {groups} without impersonating a user")
        return user
    parts = name.split(":")
    account = parts[2:] if name.startswith("system:serviceaccount:") and len(parts) == 4 else []
    wanted = [("serviceaccounts", account[0], account[1])] if account else [("users", "", name)]
    wanted += [("groups", "", group) for group in groups]
    for resource, namespace, target in wanted:
        if not allowed(resource, namespace, target):
            place = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            message = f'User {status.quote(user.name)} cannot impersonate resource "{resource}" in API group "" {place}'
            raise status.forbidden(resource, "", target, message)
    if account and not groups:
        return service_account_user(account[0], account[1])
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


class Authenticator:
    """Maps bearer tokens to users. Tokens are held in memory and never logged.

    A service account's token is signed, bound to the account's uid (and to a pod or secret when asked), and
    worthless once the account is gone or its time is over on the server's clock.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: dict[str, User] = {}
        self._by_user: dict[str, str] = {}
        self._key = secrets.token_bytes(32)

    def add(self, name: str, groups: tuple[str, ...] = (), *, token: str | None = None, uid: str = "") -> str:
        """A token for a user; the same user gets the same token unless one is given."""
        with self._lock:
            if token is None:
                token = self._by_user.get(name) or secrets.token_urlsafe(24)
            self._by_user[name] = token
            known = self._tokens.get(token)
            if known is None or groups:
                self._tokens[token] = User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))), uid)
            return token

    def revoke(self, token: str) -> None:
        """Forget a token: requests with it are answered with 401."""
        with self._lock:
            self._tokens.pop(token, None)
            self._by_user = {name: held for name, held in self._by_user.items() if held != token}

    def authenticate(self, authorization: str) -> User:
        """The user of an Authorization header; raises 401 for a token that nobody knows."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return ANONYMOUS
        found = self.user_of(token.strip())
        if found is None:
            raise status.unauthorized()
        return found

    def user_of(self, token: str, audiences: list[str] | None = None) -> User | None:
        """The user of a token, or None."""
        with self._lock:
            found = self._tokens.get(token)
        return (
            found if found is not None else self._service_account_of(token, audiences or [DEFAULT_AUDIENCE])
        )

    def issue(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        seconds: int,
        audiences: list[str],
        bound: Object | None = None,
    ) -> tuple[str, int]:
        """A token for a service account and the Unix time at which it expires."""
        now = int(self._clock.now().timestamp())
        expires = now + seconds
        private: Object = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
        if bound:
            private[str(bound.get("kind", "")).lower()] = {"name": bound.get("name"), "uid": bound.get("uid")}
        claims = {
            "aud": audiences,
            "exp": expires,
            "iat": now,
            "iss": ISSUER,
            "jti": secrets.token_hex(8),
            "kubernetes.io": private,
            "nbf": now,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        content = f"{_HEADER}.{_base64(msgspec.json.encode(claims))}"
        return f"{content}.{_base64(self._sign(content))}", expires

    def _sign(self, content: str) -> bytes:
        return hmac.new(self._key, content.encode(), hashlib.sha256).digest()

    def _service_account_of(self, token: str, audiences: list[str]) -> User | None:
        content, _, signature = token.rpartition(".")
        if content.count(".") != 1:
            return None
        try:
            given = _unbase64(signature)
            claims = msgspec.json.decode(_unbase64(content.partition(".")[2]))
        except (binascii.Error, ValueError, msgspec.DecodeError):
            return None
        if not hmac.compare_digest(given, self._sign(content)):
            return None
        now = self._clock.now().timestamp()
        if claims["exp"] <= now or not set(claims["aud"]) & set(audiences):
            return None
        private = claims["kubernetes.io"]
        namespace, account = private["namespace"], private["serviceaccount"]
        record = self._store.get("serviceaccounts", namespace, account["name"])
        if record is None or record.object["metadata"].get("uid") != account["uid"]:
            return None
        extra: dict[str, list[str]] = {}
        for kind, table in (("pod", "pods"), ("secret", "secrets")):
            bound = private.get(kind)
            if bound:
                held = self._store.get(table, namespace, bound["name"])
                if held is None or (bound.get("uid") and held.object["metadata"].get("uid") != bound["uid"]):
                    return None
                if kind == "pod":
                    extra["authentication.kubernetes.io/pod-name"] = [str(bound["name"])]
                    extra["authentication.kubernetes.io/pod-uid"] = [str(held.object["metadata"].get("uid"))]
        return service_account_user(namespace, account["name"], account["uid"], extra)
