"""Kinds by name: those registered, and those that the server says it serves."""

from __future__ import annotations

import threading
from typing import Protocol

import msgspec
from cachetools import TTLCache

from captf_runtime.client.errors import NotFound, TransportError, error_from_answer
from captf_runtime.client.transport import Answer
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.objects import WELL_KNOWN_KINDS, Kind

LIFETIME = 600.0
_GROUP_VERSIONS = 256


class _Get(Protocol):
    def __call__(self, method: str, path: str, /) -> Answer: ...


class _Resource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] | None = None


_decode = msgspec.json.Decoder(_ResourceList).decode


class Discovery:
    """Answers which resource a kind is. Thread-safe.

    Args:
        get: sends a request and returns its answer.
        clock: decides when an answer is too old (after ten minutes).
    """

    def __init__(self, get: _Get, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._get = get
        self._lock = threading.Lock()
        self._registered = {(kind.api_version, kind.kind): kind for kind in WELL_KNOWN_KINDS}
        self._served: TTLCache[str, dict[str, Kind]] = TTLCache(
            _GROUP_VERSIONS, LIFETIME, timer=clock.monotonic
        )

    def register(self, *kinds: Kind) -> None:
        """Make kinds known."""
        with self._lock:
            self._registered.update({(kind.api_version, kind.kind): kind for kind in kinds})

    def kind(self, api_version: str, kind: str) -> Kind:
        """Return a kind by `apiVersion` and name.

        Raises:
            NotFound: the server does not serve it.
            ApiError: the server could not be asked.
        """
        with self._lock:
            known = self._registered.get((api_version, kind))
            served = self._served.get(api_version)
        if known is not None:
            return known
        if served is None:
            served = self._ask(api_version)
            with self._lock:
                self._served[api_version] = served
        found = served.get(kind)
        if found is None:
            raise NotFound(f"the server does not serve the kind {kind} in {api_version}", code=404)
        return found

    def _ask(self, api_version: str) -> dict[str, Kind]:
        group, slash, version = api_version.rpartition("/")
        path = f"/apis/{group}/{version}" if slash else f"/api/{version}"
        answer = self._get("GET", path)
        if answer.status != 200:
            raise error_from_answer(answer.status, answer.data, method="GET", path=path)
        try:
            resources = _decode(answer.data).resources or []
        except msgspec.DecodeError as error:
            raise TransportError(
                "the answer is not a list of resources", ambiguous=True, method="GET", path=path
            ) from error
        # Subresources bear kinds of their own ("pods/eviction" is an Eviction) and are no collections.
        return {
            resource.kind: Kind(group, version, resource.kind, resource.name, resource.namespaced)
            for resource in resources
            if "/" not in resource.name
        }
