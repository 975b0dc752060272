"""The servers that the cases run against, and the raw HTTP they are asked with.

No client of ours is used: a case must see what is on the wire.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

USERS: dict[str, tuple[str, ...]] = {
    "admin": ("system:masters",),
    "viewer": (),
    "editor": ("editors",),
    "nobody": (),
}
"""The users of the cases with their groups; none but `admin` has rights from the start."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One response."""

    code: int
    body: Any
    headers: dict[str, str]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason") or "") if isinstance(self.body, dict) else ""

    @property
    def message(self) -> str:
        return str(self.body.get("message") or "") if isinstance(self.body, dict) else ""

    @property
    def details(self) -> dict[str, Any]:
        return dict(self.body.get("details") or {}) if isinstance(self.body, dict) else {}

    @property
    def causes(self) -> list[dict[str, str]]:
        """The causes, sorted: the real server walks maps in random order."""
        return sorted(self.details.get("causes") or [], key=lambda cause: json.dumps(cause, sort_keys=True))

    @property
    def metadata(self) -> dict[str, Any]:
        return dict(self.body["metadata"])


class Server:
    """A server under test.

    Args:
        name: the target's name in test ids.
        version: `1.20` or `1.32`: which column of the table of version-dependent results holds.
        url: its address.
        tokens: bearer token of each user.
        authority: the certificate authority in PEM, for https.
    """

    def __init__(
        self, name: str, version: str, url: str, tokens: dict[str, str], authority: str = ""
    ) -> None:
        self.name = name
        self.version = version
        self._parts = urlsplit(url)
        self._tokens = tokens
        self._url = url
        self._authority = authority
        self._context = ssl.create_default_context(cadata=authority) if authority else None
        self._local = threading.local()

    @property
    def is_real(self) -> bool:
        return self.name == "real"

    def knows(self, user: str) -> bool:
        """Whether there is a token for a user."""
        return user in self._tokens

    def token(self, user: str) -> str:
        return self._tokens[user]

    def kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig for the admin, for programs that want one."""
        cluster: dict[str, Any] = {"server": self._url}
        if self._authority:
            cluster["certificate-authority-data"] = base64.b64encode(self._authority.encode()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": self._tokens["admin"]}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }

    def connect(self, timeout: float = 90.0) -> http.client.HTTPConnection:
        """A new connection."""
        host, port = str(self._parts.hostname), self._parts.port
        if self._context is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def headers(self, user: str | None, accept: str, content_type: str | None) -> dict[str, str]:
        headers = {"Accept": accept, "User-Agent": "conformance/1.0"}
        if user is not None:
            # A token that is not one of ours is sent as it is.
            headers["Authorization"] = f"Bearer {self._tokens.get(user, user)}"
        if content_type is not None:
            headers["Content-Type"] = content_type
        return headers

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str | None = "admin",
        content_type: str = JSON,
        accept: str = JSON,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send one request on this thread's connection."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = self.headers(user, accept, content_type if data is not None else None) | (headers or {})
        for attempt in (1, 2):
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = self.connect()
            try:
                connection.request(method, path, data, sent)
                response = connection.getresponse()
                raw = response.read()
            except (http.client.HTTPException, OSError):
                # A kept connection may have been closed by the other side meanwhile.
                connection.close()
                self._local.connection = None
                if attempt == 2:
                    raise
                continue
            found = {key.lower(): value for key, value in response.getheaders()}
            return Answer(response.status, _decoded(raw), found)
        raise AssertionError("unreachable")

    def close(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")


def server_of_kubeconfig(path: str | Path, name: str) -> Server:
    """A server that a kubeconfig describes: the tokens of its users, that of the current context as `admin`."""
    config = yaml.safe_load(Path(path).read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    tokens = {entry["name"]: entry["user"]["token"] for entry in config["users"] if "token" in entry["user"]}
    tokens.setdefault("admin", tokens.get(context["user"], ""))
    authority = base64.b64decode(cluster.get("certificate-authority-data") or "").decode()
    server = Server(name, "", cluster["server"], tokens, authority)
    version = server.call("GET", "/version").body["gitVersion"].lstrip("v").split(".")
    server.version = "1.20" if int(version[1]) < 22 else "1.32"
    return server


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


@dataclass(slots=True)
class Exchange:
    """One request of a case with what was answered, in the form that is compared and kept."""

    request: str
    code: int
    body: Any


@dataclass(slots=True)
class Case:
    """What a case works with: a server, a namespace of its own, and the record of what was answered."""

    server: Server
    namespace: str
    transcript: list[Exchange] = field(default_factory=list)
    keep_managed_fields: bool = False
    secrets: dict[str, str] = field(default_factory=dict)

    # -- requests --------------------------------------------------------------------------------------------

    def call(
        self, method: str, path: str, body: object = None, *, record: bool = True, **options: Any
    ) -> Answer:
        """Send a request and note the answer."""
        answer = self.server.call(method, path, body, **options)
        if record:
            from tests.conformance.transcripts import normalised

            shown = normalised(path, self)
            content = normalised(copy.deepcopy(answer.body), self)
            self.transcript.append(Exchange(f"{method} {shown}", answer.code, content))
        return answer

    def get(self, path: str, **options: Any) -> Answer:
        return self.call("GET", path, **options)

    def post(self, path: str, body: object, **options: Any) -> Answer:
        return self.call("POST", path, body, **options)

    def put(self, path: str, body: object, **options: Any) -> Answer:
        return self.call("PUT", path, body, **options)

    def patch(self, path: str, body: object, content_type: str = MERGE, **options: Any) -> Answer:
        return self.call("PATCH", path, body, content_type=content_type, **options)

    def delete(self, path: str, body: object = None, **options: Any) -> Answer:
        return self.call("DELETE", path, body, **options)

    def apply(
        self, path: str, body: object, manager: str, *, force: bool = False, query: str = "", **options: Any
    ) -> Answer:
        """Server-side apply."""
        more = ("&force=true" if force else "") + (f"&{query}" if query else "")
        return self.patch(f"{path}?fieldManager={manager}{more}", body, APPLY, **options)

    def peek(self, path: str) -> Answer:
        """GET without a note of it, for waiting."""
        return self.call("GET", path, record=False)

    def eventually(self, check: Callable[[], object], what: str, seconds: float = 60.0) -> Any:
        """Wait for a condition that something else brings about; returns its value."""
        deadline = time.monotonic() + seconds
        pause = threading.Event()
        while True:
            value = check()
            if value:
                return value
            assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
            pause.wait(0.02)

    # -- paths -----------------------------------------------------------------------------------------------

    def path(
        self, resource: str, *rest: str, namespace: str | None = "", group: str = "", **query: str
    ) -> str:
        """The path of a collection or object.

        Args:
            resource: `configmaps`, or `jobs.batch/v1` for another group.
            rest: name and subresource.
            namespace: empty for the namespace of the case, None for a cluster-scoped one or all namespaces.
        """
        plural, _, group_version = resource.partition(".")
        parts = ["apis", *group_version.split("/")] if group_version else ["api", "v1"]
        if group_version and "/" not in group_version:
            parts = ["apis", group_version, "v1"]
        if namespace is not None:
            parts += ["namespaces", namespace or self.namespace]
        text = "/" + "/".join([*parts, plural, *(quote(part) for part in rest)])
        return text + ("?" + urlencode(query) if query else "")

    # -- watches ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watch(self, path: str, *, accept: str = JSON, **query: str) -> Iterator[Watch]:
        """Watch a collection; the events are read by the case."""
        parameters = urlencode({"watch": "true", "timeoutSeconds": "60", **query})
        connection = self.server.connect(timeout=90.0)
        try:
            connection.request(
                "GET", f"{path}?{parameters}", headers=self.server.headers("admin", accept, None)
            )
            yield Watch(connection.getresponse(), self)
        finally:
            connection.close()


class Watch:
    """A watch stream."""

    def __init__(self, response: http.client.HTTPResponse, case: Case) -> None:
        self._response = response
        self._case = case
        self.code = response.status

    def body(self) -> Any:
        """All of an answer that is no stream."""
        return _decoded(self._response.read())

    def next(self, *, record: bool = True) -> dict[str, Any] | None:
        """The next event, or None at the end of the stream."""
        line = self._response.readline()
        if not line:
            return None
        event: dict[str, Any] = json.loads(line)
        if record:
            from tests.conformance.transcripts import normalised

            content = normalised(copy.deepcopy(event["object"]), self._case)
            self._case.transcript.append(Exchange(f"EVENT {event['type']}", 0, content))
        return event

    def take(self, count: int) -> list[dict[str, Any]]:
        """The next events."""
        events: list[dict[str, Any]] = []
        for _ in range(count):
            event = self.next()
            assert event is not None, f"the stream ended after {len(events)} of {count} events"
            events.append(event)
        return events

    def rest(self) -> list[dict[str, Any]]:
        """All events to the end of the stream."""
        events: list[dict[str, Any]] = []
        while (event := self.next(record=False)) is not None:
            events.append(event)
        return events
