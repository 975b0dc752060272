"""One request on its way through the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.access import User
from captf_runtime.testing.apiserver.http_server import Exchange, Response, Stream
from captf_runtime.testing.apiserver.requests import RequestInfo
from captf_runtime.testing.apiserver.views import MediaType, negotiate, to_yaml

SendLine = Callable[[str, bytes], bool]


@dataclass(slots=True)
class Call:
    """One request on its way through the server."""

    exchange: Exchange
    info: RequestInfo
    user: User
    warnings: list[str] = field(default_factory=list)
    stream_sender: Callable[[Stream], SendLine] | None = None
    """Fault injection's hold on a watch; None writes every line as it is."""

    @property
    def manager(self) -> str:
        """The field manager when none is named: the user agent up to its first slash."""
        agent = self.exchange.request.headers.get("user-agent", "")
        return agent.partition("/")[0][:128] or "unknown"

    def header_pairs(self) -> list[tuple[str, str]]:
        """Warning headers."""
        return [("Warning", f"299 - {status.quote(text)}") for text in self.warnings]

    def media(self) -> MediaType:
        """What the client accepts; raises 406."""
        return negotiate(self.exchange.request.headers.get("accept", ""))

    def answer(self, code: int, body: bytes, media: MediaType) -> None:
        """Send a JSON body in the serialisation that the client accepts, with the warnings collected so far."""
        if media.yaml:
            body = to_yaml(body)
        self.exchange.respond(Response(code, body, media.content_type, self.header_pairs()))
