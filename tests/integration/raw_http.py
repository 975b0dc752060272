"""Raw HTTP against an API server: no client of ours between the test and the answer."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from captf_runtime.testing.apiserver import ApiServer

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


class Answer:
    """One response; indexing reads the JSON body."""

    def __init__(self, code: int, headers: http.client.HTTPMessage, body: bytes) -> None:
        self.code = code
        self.headers = headers
        self.raw = body

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    def __getitem__(self, key: str) -> Any:
        return self.json[key]

    @property
    def message(self) -> str:
        return str(self.json["message"])

    @property
    def reason(self) -> str:
        return str(self.json.get("reason", ""))

    @property
    def version(self) -> str:
        return str(self.json["metadata"]["resourceVersion"])

    def causes(self) -> list[tuple[str, str, str]]:
        return [(c["reason"], c["field"], c["message"]) for c in self.json["details"]["causes"]]


class Raw:
    """A connection of one user (None: nobody)."""

    def __init__(self, server: ApiServer, user: str | None = "admin", *, token: str | None = None) -> None:
        self.token = token if token is not None else server.token(user) if user is not None else None
        self.extra: dict[str, str] = {}
        parts = urlsplit(server.url)
        host, port = str(parts.hostname), parts.port or 0
        if parts.scheme == "https":
            authority = server.certificate_authority
            assert authority is not None
            context = ssl.create_default_context(cadata=authority.decode())
            self._make: Callable[[], http.client.HTTPConnection] = lambda: http.client.HTTPSConnection(
                host, port, timeout=20, context=context
            )
        else:
            self._make = lambda: http.client.HTTPConnection(host, port, timeout=20)
        self._connection = self._make()

    def close(self) -> None:
        self._connection.close()

    def headers(self, accept: str | None = None, content_type: str | None = None) -> dict[str, str]:
        found = {"User-Agent": "raw/1.0", **self.extra}
        if self.token is not None:
            found["Authorization"] = f"Bearer {self.token}"
        if accept is not None:
            found["Accept"] = accept
        if content_type is not None:
            found["Content-Type"] = content_type
        return found

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        type: str = "application/json",
        *,
        accept: str | None = None,
    ) -> Answer:
        data = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else None
        if body is not None and data is None:
            data = json.dumps(body).encode()
        self._connection.request(method, path, data, self.headers(accept, type if data is not None else None))
        response = self._connection.getresponse()
        return Answer(response.status, response.headers, response.read())

    def get(self, path: str, accept: str | None = None) -> Answer:
        return self("GET", path, accept=accept)

    def create(self, path: str, body: Any) -> Answer:
        return self("POST", path, body)

    def patch(self, path: str, body: Any, type: str = MERGE) -> Answer:
        return self("PATCH", path, body, type)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self("DELETE", path, body)

    def watch(self, path: str, *, accept: str | None = None) -> Watch:
        return Watch(self._make(), path, self.headers(accept))


class Watch:
    """A running watch; iterating reads events until the stream ends."""

    def __init__(self, connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> None:
        self._connection = connection
        connection.request("GET", path, headers=headers)
        self.response = connection.getresponse()
        self.code = self.response.status

    def line(self) -> bytes:
        return self.response.readline()

    def event(self) -> Any:
        line = self.line()
        assert line, "the watch has ended"
        return json.loads(line)

    def __iter__(self) -> Iterator[Any]:
        while line := self.line():
            yield json.loads(line)

    def events(self, count: int) -> list[tuple[str, str]]:
        found = []
        for _ in range(count):
            event = self.event()
            found.append((event["type"], event["object"]["metadata"].get("name", "")))
        return found

    def close(self) -> None:
        self._connection.close()
