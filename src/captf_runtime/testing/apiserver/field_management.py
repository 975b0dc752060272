"""Ownership of fields in the server: which topology a resource has, and the answers of an apply."""

from __future__ import annotations

from captf_runtime.clock import Clock
from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import apply, status
from captf_runtime.testing.apiserver.customresources import CustomResourceStrategy
from captf_runtime.testing.apiserver.kinds.base import Mode
from captf_runtime.testing.apiserver.resources import Resource
from captf_runtime.testing.apiserver.topology import (
    DEDUCED,
    Topology,
    builtin_topology,
    schema_topology,
)


class FieldManagement:
    """Keeps `managedFields` and applies configurations, for every resource of the server. Thread-safe."""

    def __init__(self, clock: Clock, *, mode: Mode = "modern") -> None:
        self._clock = clock
        self._mode = mode
        # A definition that changes brings a new strategy, which takes the place of the one before it.
        self._custom: dict[tuple[str, str], tuple[CustomResourceStrategy, Topology]] = {}

    def track(
        self, before: Object | None, after: Object, resource: Resource, manager: str, subresource: str
    ) -> Object:
        """Note who owns what a write other than an apply changed; returns the new object."""
        tracked = apply.track_update(
            None if before is None else _headed(before, resource),
            _headed(after, resource),
            manager,
            subresource,
            self._clock.now(),
            schema=self._topology(resource),
            mode=self._mode,
        )
        return {key: value for key, value in tracked.items() if key in after or key == "metadata"}

    def apply(
        self,
        resource: Resource,
        live: Object | None,
        applied: Object,
        manager: str,
        *,
        force: bool,
        subresource: str,
    ) -> Object:
        """The object that results from an apply.

        Raises:
            ApiStatus: 409 with the conflicts, 500 when the configuration does not fit the schema.
        """
        try:
            result, conflicts = apply.apply(
                None if live is None else _headed(live, resource),
                applied,
                manager,
                force=force,
                subresource=subresource,
                schema=self._topology(resource),
                now=self._clock.now(),
                mode=self._mode,
            )
        except apply.TypedError as problem:
            raise status.plain_internal(self._typed_text(resource, applied, str(problem))) from problem
        if conflicts:
            raise status.ApiStatus(
                409,
                apply.conflict_message(conflicts),
                "Conflict",
                {"causes": apply.conflict_causes(conflicts)},
            )
        return result

    def _typed_text(self, resource: Resource, applied: Object, problem: str) -> str:
        if self._mode == "1.20":
            return f"failed to create typed patch object: {problem}"
        metadata = applied.get("metadata") or {}
        where = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
        kind = f"{resource.api_version}, Kind={resource.kind}"
        return f"failed to create typed patch object ({where}; {kind}): {problem}"

    def _topology(self, resource: Resource) -> Topology:
        strategy = resource.strategy
        if not isinstance(strategy, CustomResourceStrategy):
            return builtin_topology(resource.api_version, resource.kind)
        if strategy.schema is None:
            return DEDUCED
        place = (resource.storage, resource.version)
        known = self._custom.get(place)
        if known is None or known[0] is not strategy:
            topology = schema_topology(strategy.schema.openapi_schema, legacy=self._mode == "1.20")
            known = self._custom[place] = (strategy, topology)
        return known[1]


def _headed(obj: Object, resource: Resource) -> Object:
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
