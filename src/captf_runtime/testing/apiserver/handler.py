"""The way of a request through the server: faults, identity, permission, dispatch, answer, log."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from captf_runtime.clock import Clock
from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import discovery, status
from captf_runtime.testing.apiserver.access import ANONYMOUS, Authenticator, User, impersonated
from captf_runtime.testing.apiserver.calls import Call
from captf_runtime.testing.apiserver.fault_injection import Attempt, subject_of
from captf_runtime.testing.apiserver.http_server import Exchange, HttpRequest, Response, Stream
from captf_runtime.testing.apiserver.request_log import LoggedRequest, RequestLog
from captf_runtime.testing.apiserver.requests import RequestInfo, describe
from captf_runtime.testing.apiserver.resources import Registry, Resource
from captf_runtime.testing.apiserver.rest import Endpoints
from captf_runtime.testing.apiserver.status import ApiStatus
from captf_runtime.testing.apiserver.views import MediaType, negotiate, to_yaml
from captf_runtime.testing.faults import Faults

_log = logging.getLogger(__name__)


_HEALTH = re.compile(r"/(healthz|livez|readyz)(/(ping|log|etcd))?")


class Authorizer(Protocol):
    """Decides whether a user may do what a request asks; raises 403."""

    def authorize(self, user: User, info: RequestInfo, request: HttpRequest) -> None: ...
    def may_impersonate(self, user: User, resource: str, namespace: str, name: str) -> bool: ...


class SubresourceHandler(Protocol):
    """Answers one special subresource, or a whole virtual resource."""

    def __call__(self, call: Call, resource: Resource) -> None: ...


class PathHandler(Protocol):
    """Answers a path outside the resources, such as an OpenAPI document."""

    def __call__(self, path: str, request: HttpRequest) -> Response | None: ...


class _Recorded:
    """An exchange that notes how it is answered, and lets faults take the answer away.

    It is noted before the first byte of an answer is sent, so that whoever has the answer finds the request in the
    log; a stream is noted when it has ended.
    """

    def __init__(self, inner: Exchange, note: Callable[[int], None]) -> None:
        self._inner = inner
        self._note = note
        self._noted = False
        self.request = inner.request
        self.code = 0
        self.withheld: Response | None = None
        self.hold = False

    def respond(self, response: Response) -> None:
        if self.hold:
            self.withheld = response
            return
        self.code = response.status
        self.note()
        self._inner.respond(response)

    def stream(self, content_type: str, headers: Mapping[str, str]) -> Stream:
        self.code = 200
        return self._inner.stream(content_type, headers)

    def respond_partly(self, response: Response, keep: int) -> None:
        self.code = response.status
        self.note()
        self._inner.respond_partly(response, keep)

    def reset(self) -> None:
        self.code = 0
        self.note()
        self._inner.reset()

    def note(self) -> None:
        """Note the request, if it has not been noted."""
        if not self._noted:
            self._noted = True
            self._note(self.code)


def _in_scope(resource: Resource, info: RequestInfo) -> bool:
    """Whether a path with or without a namespace can lead to the resource at all."""
    if resource.namespaced:
        if info.namespace:
            return True
        return not info.name and (not resource.custom or info.verb in ("list", "watch"))
    # The path of a namespace reads as if the namespace were inside of itself.
    return not info.namespace or (resource.storage == "namespaces" and info.name == info.namespace)


class Handler:
    """Handles every exchange of the server."""

    def __init__(
        self,
        registry: Registry,
        endpoints: Endpoints,
        authenticator: Authenticator,
        faults: Faults,
        log: RequestLog,
        clock: Clock,
        *,
        mode: str,
        aggregated_discovery: bool,
        stopping: threading.Event,
        compact: Callable[[], object],
    ) -> None:
        self._registry = registry
        self._endpoints = endpoints
        self._authenticator = authenticator
        self._faults = faults
        self._requests = log
        self._clock = clock
        self._mode = mode
        self._aggregated = aggregated_discovery
        self._stopping = stopping
        self._compact = compact
        self.authorizer: Authorizer | None = None
        self.special: dict[tuple[str, str], SubresourceHandler] = {}
        self.paths: list[PathHandler] = []
        self.address = ""

    def __call__(self, exchange: Exchange) -> None:
        started = time.monotonic()
        request = exchange.request
        info = describe(request)
        user = ANONYMOUS

        def note(code: int) -> None:
            self._record(request, code, info, user, time.monotonic() - started)

        recorded = _Recorded(exchange, note)
        try:
            user = self._acting(request)
            call = Call(recorded, info, user)
            actions = self._faults.strike(subject_of(info, user.name)) if len(self._faults) else []
            if actions:
                self._with_faults(call, recorded, Attempt(actions, info, self._stopping, self._compact))
            else:
                self._route(call)
        except ApiStatus as failure:
            self._fail(recorded, failure)
        except OSError:
            # The client is gone; there is nobody to answer.
            recorded.reset()
        except Exception:  # noqa: BLE001 - a client must get an answer, whatever went wrong here
            _log.exception("%s %s failed", request.method, request.path)
            if not recorded.code:
                self._fail(recorded, status.internal("the embedded server failed; its log says why"))
        finally:
            recorded.note()

    def _acting(self, request: HttpRequest) -> User:
        """Who the request comes from, or as whom it acts."""
        user = self._authenticator.authenticate(request.headers.get("authorization", ""))
        authorizer = self.authorizer

        def allowed(resource: str, namespace: str, name: str) -> bool:
            return authorizer is None or authorizer.may_impersonate(user, resource, namespace, name)

        return impersonated(user, request.headers, allowed)

    def _with_faults(self, call: Call, exchange: _Recorded, attempt: Attempt) -> None:
        attempt.delay()
        early = attempt.early()
        if early is not None:
            if early.kind == "reset":
                exchange.reset()
                return
            raise attempt.failure(early)
        call.stream_sender = attempt.sender
        late = attempt.late()
        exchange.hold = late is not None
        try:
            self._route(call)
        except ApiStatus as failure:
            # The client cannot tell a refused request from a lost answer: the fault decides what it sees.
            self._fail(exchange, failure)
        exchange.hold = False
        held = exchange.withheld
        if late is None or held is None:
            return
        if late.kind == "truncate":
            exchange.respond_partly(held, late.keep)
            return
        spoiled = attempt.spoil(late, held)
        if spoiled is None:
            exchange.reset()
        else:
            exchange.respond(spoiled)

    def _record(self, request: HttpRequest, code: int, info: RequestInfo, user: User, seconds: float) -> None:
        self._requests.add(
            LoggedRequest(
                self._clock.now(),
                request.method,
                request.path,
                tuple(request.query),
                info.verb,
                info.group,
                info.resource,
                info.subresource,
                info.namespace,
                info.name,
                user.name,
                request.headers.get("user-agent", ""),
                request.headers.get("content-type", ""),
                code,
                seconds,
            )
        )

    def _fail(self, exchange: Exchange, failure: ApiStatus) -> None:
        headers = list(failure.headers.items())
        if failure.text is not None:
            exchange.respond(
                Response(failure.code, failure.text.encode(), "text/plain; charset=utf-8", headers)
            )
            return
        body = msgspec.json.encode(failure.to_object())
        exchange.respond(Response(failure.code, body, "application/json", headers))

    def _route(self, call: Call) -> None:
        request, info = call.exchange.request, call.info
        if request.body_too_large:
            raise status.too_large()
        if self.authorizer is not None:
            self.authorizer.authorize(call.user, info, request)
        if not info.is_resource:
            self._non_resource(call)
            return
        resource = self._registry.find(info.group, info.version, info.resource)
        if resource is None:
            if self._registry.is_built_in(info.group):
                raise status.unknown_resource()
            raise status.unknown_path()
        if not _in_scope(resource, info):
            raise status.unknown_path() if resource.custom else status.unknown_resource()
        special = self.special.get((resource.storage, info.subresource)) or self.special.get(
            ("", info.subresource)
        )
        if special is not None and (info.subresource or resource.virtual):
            special(call, resource)
            return
        self._endpoints.handle(call, resource)

    def _non_resource(self, call: Call) -> None:
        request = call.exchange.request
        path = request.path.rstrip("/") or "/"
        for handler in self.paths:
            answered = handler(path, request)
            if answered is not None:
                call.exchange.respond(answered)
                return
        if _HEALTH.fullmatch(path):
            self._health(call, path)
            return
        content = self._discovery(path, request.headers.get("accept", ""))
        if content is None and not path.startswith(("/api/", "/apis/")):
            body = msgspec.json.encode({"paths": self._known_paths()})
            call.exchange.respond(Response(404, body))
            return
        if content is None:
            raise status.unknown_path()
        if request.method not in ("GET", "HEAD"):
            raise status.method_not_allowed()
        document, media, content_type = content
        body = msgspec.json.encode(document)
        if media.yaml:
            body = to_yaml(body)
        call.exchange.respond(Response(200, body, content_type))

    def _health(self, call: Call, path: str) -> None:
        body = b"ok"
        if any(key == "verbose" for key, _ in call.exchange.request.query):
            body = f"[+]ping ok\n[+]etcd ok\n{path.split('/')[1]} check passed\n".encode()
        call.exchange.respond(Response(200, body, "text/plain; charset=utf-8"))

    def _discovery(self, path: str, accept: str) -> tuple[Object, MediaType, str] | None:
        parts = path.strip("/").split("/") if path != "/" else []
        if path in ("/api", "/apis") and self._aggregated and discovery.AGGREGATED in accept:
            for version in ("v2", "v2beta1"):
                if f"v={version};" in accept or accept.rstrip().endswith(f"v={version}"):
                    document = discovery.aggregated(self._registry, core=path == "/api")
                    document["apiVersion"] = f"apidiscovery.k8s.io/{version}"
                    wanted = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
                    return document, MediaType(), wanted
        plain_document = self._document(parts)
        if plain_document is None:
            return None
        plain = ",".join(entry for entry in accept.split(",") if "as=" not in entry)
        media = negotiate(plain, transforms=False)
        return plain_document, media, media.content_type

    def _document(self, parts: list[str]) -> Object | None:
        match parts:
            case []:
                return {"paths": self._known_paths()}
            case ["version"]:
                return discovery.version_info(self._mode)
            case ["api"]:
                return discovery.core_versions(self.address)
            case ["apis"]:
                return discovery.group_list(self._registry)
            case ["api", version]:
                return discovery.resource_list(self._registry, "", version)
            case ["apis", group]:
                return discovery.group(self._registry, group)
            case ["apis", group, version]:
                return discovery.resource_list(self._registry, group, version)
        return None

    def _known_paths(self) -> list[str]:
        paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
        for group, versions in self._registry.groups().items():
            if group:
                paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
        return sorted(paths)
