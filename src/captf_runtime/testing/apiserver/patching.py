"""PATCH in its four forms: JSON patch, merge patch, strategic merge patch, server-side apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import patches, requests, status, strategic
from captf_runtime.testing.apiserver.backend import Backend, Outcome, Write
from captf_runtime.testing.apiserver.bodies import Bodies
from captf_runtime.testing.apiserver.calls import Call
from captf_runtime.testing.apiserver.decoding import decode_patch, decode_yaml, shape
from captf_runtime.testing.apiserver.resources import Resource
from captf_runtime.testing.apiserver.shapes import kind_schema


class Applier(Protocol):
    """Server-side apply: the object that results from an applied configuration."""

    def apply(
        self,
        resource: Resource,
        live: Object | None,
        applied: Object,
        manager: str,
        *,
        force: bool,
        subresource: str,
    ) -> Object: ...


def write_of(call: Call, options: requests.WriteOptions, *, applied: bool = False) -> Write:
    """Who writes: the request's user, under the named field manager or that of the user agent."""
    return Write(
        user=call.user,
        manager=options.field_manager or call.manager,
        dry_run=options.dry_run,
        applied=applied,
        warnings=call.warnings,
    )


class Patching:
    """Carries out patches. Without an `applier` server-side apply is not served."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self.applier: Applier | None = None

    def patch(self, call: Call, resource: Resource) -> Outcome:
        """PATCH with any of the four patch types."""
        content_type = call.exchange.request.headers.get("content-type", "").partition(";")[0].strip()
        custom = resource.custom
        served = {
            "application/json-patch+json": self._json_patch,
            "application/merge-patch+json": self._merge_patch,
            "application/strategic-merge-patch+json": None if custom else self._strategic_patch,
        }
        if content_type == "application/apply-patch+yaml" and self.applier is not None:
            return self._apply(call, resource)
        change = served.get(content_type)
        if change is None and custom:
            media_types = ["application/json-patch+json", "application/merge-patch+json"]
            if self.applier is not None:
                media_types.append("application/apply-patch+yaml")
            raise status.unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: "
                + ", ".join(media_types)
            )
        if change is None:
            raise status.ApiStatus(415, "415: Unsupported Media Type", "UnsupportedMediaType", {})
        options = requests.write_options(
            call.exchange.request, "PatchOptions", modern=self._backend.mode == "modern"
        )
        prepare = change(call, resource)

        def patched(current: Object) -> Object:
            result = prepare(current)
            try:
                self._bodies.check_type(resource, result, patched=True)
                self._bodies.validate_fields(call, resource, result, options)
                resource.strategy.decode(result)
            except status.ApiStatus as failure:
                raise _as_patch_failure(failure, result) from failure
            self._bodies.check_name(call, result)
            self._bodies.check_namespace(call, resource, result, "update")
            return result

        outcome = self._backend.update(
            resource,
            call.info.namespace,
            call.info.name,
            patched,
            write_of(call, options),
            subresource=call.info.subresource,
        )
        return outcome

    def _json_patch(self, call: Call, resource: Resource) -> Callable[[Object], Object]:
        operations = decode_patch(call.exchange.request.body)
        patches.check_operations(operations)
        lenient = self._backend.mode == "1.20"
        return lambda current: patches.apply_json_patch(current, operations, lenient=lenient)

    def _merge_patch(self, call: Call, resource: Resource) -> Callable[[Object], Object]:
        try:
            patch: object = msgspec.json.decode(call.exchange.request.body)
        except msgspec.DecodeError as problem:
            raise status.plain_internal("Invalid JSON Patch") from problem
        if isinstance(patch, list):
            raise _patch_not_object(patch, modern=self._backend.mode == "modern")
        if not isinstance(patch, dict):
            raise status.plain_internal("Invalid JSON Patch")

        def merged(current: Object) -> Object:
            result = patches.merge(current, patch)
            return result if isinstance(result, dict) else {}

        return merged

    def _strategic_patch(self, call: Call, resource: Resource) -> Callable[[Object], Object]:
        patch = decode_patch(call.exchange.request.body)
        if not isinstance(patch, dict):
            found = shape(patch)
            raise status.bad_request(
                f"json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
            )
        schema = kind_schema(resource.api_version, resource.kind) or {}
        return lambda current: strategic.merge(schema, current, patch)

    def _apply(self, call: Call, resource: Resource) -> Outcome:
        applier = self.applier
        if applier is None:
            raise status.ApiStatus(415, "415: Unsupported Media Type", "UnsupportedMediaType", {})
        request = call.exchange.request
        options = requests.write_options(request, "PatchOptions", modern=self._backend.mode == "modern")
        applied = decode_yaml(request.body)
        api_version = str(applied.get("apiVersion") or "")
        if api_version != resource.api_version:
            raise status.bad_request(
                f"Incorrect version specified in apply patch. Specified patch version: {api_version}, "
                f"expected: {resource.api_version}"
            )
        kind = str(applied.get("kind") or "")
        if kind != resource.kind:
            detail = f"no corresponding type for {resource.group}/{resource.version}, Kind={kind}"
            raise status.plain_internal(f"failed to create typed patch object: {detail}")
        metadata = applied.setdefault("metadata", {})
        if metadata.get("managedFields") is not None:
            raise status.bad_request("metadata.managedFields must be nil")
        self._bodies.check_name(call, applied)
        if resource.namespaced:
            metadata.setdefault("namespace", call.info.namespace)
        self._bodies.check_namespace(call, resource, applied, "update")
        write = write_of(call, options, applied=True)
        key_namespace = call.info.namespace if resource.namespaced else ""
        subresource = call.info.subresource

        def change(current: Object | None) -> Object:
            result = applier.apply(
                resource,
                current,
                applied,
                options.field_manager,
                force=options.force,
                subresource=subresource,
            )
            self._bodies.validate_fields(call, resource, result, options)
            return result

        if (
            self._backend.store.get(resource.storage, key_namespace, call.info.name) is None
            and not subresource
        ):
            if metadata.get("uid"):
                message = (
                    f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing "
                    "object was found"
                )
                raise status.conflict(resource.plural, resource.group, call.info.name, message)
            outcome = self._backend.create(resource, call.info.namespace, change(None), write)
        else:
            outcome = self._backend.update(
                resource, call.info.namespace, call.info.name, change, write, subresource=subresource
            )
        return outcome


def _patch_not_object(patch: object, *, modern: bool) -> status.ApiStatus:
    found = shape(patch)
    if modern:
        return status.bad_request(
            f"error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )
    shown = msgspec.json.encode(patch).decode()
    detail = f"couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of "
    detail += "type struct "
    detail += (
        '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    )
    return status.invalid("", "", "", [status.invalid_value("patch", shown, detail)])


def _as_patch_failure(failure: status.ApiStatus, result: Object) -> status.ApiStatus:
    """A result that the kind's types cannot hold is the patch's fault, not the request's form."""
    if failure.code == 400 and "cannot be handled as a" in failure.message:
        detail = failure.message.partition(": ")[2]
        shown = msgspec.json.encode(dict(sorted(result.items()))).decode()
        return status.invalid("", "", "", [status.invalid_value("patch", shown, detail)])
    return failure
