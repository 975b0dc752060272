"""The objects that requests carry: of the right kind, under the right name, with known fields only."""

from __future__ import annotations

import msgspec

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import protobuf, requests, status, typed
from captf_runtime.testing.apiserver.calls import Call
from captf_runtime.testing.apiserver.customresources import CustomResourceStrategy
from captf_runtime.testing.apiserver.decoding import (
    decode_object,
    decode_protobuf,
    decode_yaml,
    json_problem,
    shape,
)
from captf_runtime.testing.apiserver.kinds.base import Strategy
from captf_runtime.testing.apiserver.resources import Registry, Resource
from captf_runtime.testing.apiserver.shapes import kind_schema, object_meta


class Bodies:
    """Reads and checks bodies. Stateless but for the registry, which names other kinds in errors."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def delete_options(self, call: Call) -> Object | None:
        """The DeleteOptions of a request, None without a body."""
        body = call.exchange.request.body
        if not body:
            return None
        content_type = call.exchange.request.headers.get("content-type", "")
        binary = content_type.startswith(protobuf.CONTENT_TYPE)
        if binary:
            return decode_protobuf(body)
        try:
            options: object = msgspec.json.decode(body)
        except msgspec.DecodeError as problem:
            detail = f"couldn't get version/kind; json parse error: {json_problem(body)}"
            raise status.plain_internal(detail) from problem
        if not isinstance(options, dict):
            raise status.plain_internal(f"couldn't get version/kind; json parse error: {shape(options)}")
        kind = options.get("kind") or "DeleteOptions"
        if kind != "DeleteOptions":
            version = options.get("apiVersion") or "meta.k8s.io/v1"
            raise status.plain_internal(
                f'no kind "{kind}" is registered for version "{version}" in scheme '
                '"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"'
            )
        return options

    def read_as(self, call: Call, kind: str, group: str, version: str) -> Object:
        """A body of another kind than the resource's own, as subresources take."""
        return self.read(call, Resource(group, version, "", kind, Strategy()))

    def read(self, call: Call, resource: Resource) -> Object:
        """The object of a create or update, of the resource's kind and version; raises 400 or 415."""
        request = call.exchange.request
        content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip()
        if content_type == "application/yaml":
            obj = decode_yaml(request.body)
        elif content_type == protobuf.CONTENT_TYPE and not resource.custom:
            obj = decode_protobuf(request.body)
        elif content_type in ("application/json", "*/*", ""):
            obj = decode_object(request.body, resource.kind)
        else:
            media = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            if resource.custom:
                media = "application/json, application/yaml"
            raise status.unsupported_media_type(
                f"the body of the request was in an unknown format - accepted media types include: {media}"
            )
        if resource.custom:
            self._check_head(resource, obj)
        self.check_type(resource, obj)
        return obj

    def _check_head(self, resource: Resource, obj: Object) -> None:
        """Custom resources must say what they are."""
        kind = resource.kind
        if not obj.get("kind"):
            shown = msgspec.json.encode(obj).decode()
            raise status.bad_request(
                f'{kind} in version "{resource.version}" cannot be handled as a {kind}: unmarshalerDecoder: '
                f"Object 'Kind' is missing in '{shown}'"
            )
        if not obj.get("apiVersion"):
            raise status.internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")

    def check_type(self, resource: Resource, obj: Object, *, patched: bool = False) -> None:
        """Raise 400 (422 for the result of a patch) unless kind and apiVersion are those of the resource."""
        kind = obj.get("kind") or resource.kind
        api_version = obj.get("apiVersion") or resource.api_version
        if (kind, api_version) == (resource.kind, resource.api_version):
            if not isinstance(obj.get("metadata") or {}, dict):
                raise status.bad_request(
                    f'{kind} in version "{resource.version}" cannot be handled as a {kind}: json: cannot unmarshal '
                    f"into Go struct field {kind}.metadata of type v1.ObjectMeta"
                )
            return
        group, _, version = str(api_version).rpartition("/")
        if resource.custom:
            if api_version != resource.api_version and not patched:
                raise status.bad_request(
                    f"the API version in the data ({api_version}) does not match the expected API version "
                    f"({resource.api_version})"
                )
            causes = []
            if api_version != resource.api_version:
                causes.append(
                    status.invalid_value("apiVersion", str(api_version), f"must be {resource.api_version}")
                )
            if kind != resource.kind:
                causes.append(status.invalid_value("kind", str(kind), f"must be {resource.kind}"))
            name = str((obj.get("metadata") or {}).get("name") or "")
            raise status.invalid(str(kind), group, name, causes)
        other = self._registry.of_kind(group, version, str(kind))
        if other is None:
            detail = (
                f'no kind "{kind}" is registered for version "{api_version}" in scheme '
                '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"'
            )
        else:
            name = group.split(".")[0] or "core"
            wanted = resource.group.split(".")[0] or "core"
            detail = f"converting (v1.{kind}) to ({wanted}.{resource.kind}): unknown conversion"
            if name != "core":
                detail = f"converting ({version}.{kind}) to ({wanted}.{resource.kind}): unknown conversion"
        raise status.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {detail}'
        )

    def check_name(self, call: Call, obj: Object) -> None:
        """Raise 400 unless the object bears the name of the URL."""
        name = (obj.get("metadata") or {}).get("name") or ""
        if name == call.info.name:
            return
        if not name:
            raise status.bad_request(
                f"the name of the object ({call.info.name} based on URL) was undeterminable: name must be provided"
            )
        raise status.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.info.name})"
        )

    def check_namespace(self, call: Call, resource: Resource, obj: Object, verb: str) -> None:
        """Raise 400 when the object names another namespace than the URL."""
        found = (obj.get("metadata") or {}).get("namespace") or ""
        expected = call.info.namespace if resource.namespaced else ""
        if not found or found == expected or not resource.namespaced:
            return
        if verb == "create":
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        raise status.bad_request(
            f"the namespace of the object ({found}) does not match the namespace on the request ({expected})"
        )

    def validate_fields(
        self, call: Call, resource: Resource, obj: Object, options: requests.WriteOptions
    ) -> None:
        """Drop unknown fields, and refuse or report them as the request's fieldValidation says."""
        kind, version = resource.kind, resource.version
        if resource.custom:
            strategy = resource.strategy
            schema = strategy.schema if isinstance(strategy, CustomResourceStrategy) else None
            unknown = schema.prune(obj) if schema is not None else []
            if isinstance(obj.get("metadata"), dict):
                head = f'{kind} in version "{version}" cannot be handled as a {kind}'
                unknown += typed.check_part(object_meta(), obj["metadata"], "metadata", head)
        else:
            types = kind_schema(resource.api_version, resource.kind)
            unknown = typed.check(types, obj, kind, version) if types is not None else []
        if options.field_validation == "Ignore":
            return
        problems = [f'unknown field "{path}"' for path in unknown]
        if call.exchange.request.method != "PATCH":
            duplicates = typed.duplicate_fields(call.exchange.request.body)
            problems += [f'duplicate field "{path}"' for path in duplicates]
        if not problems:
            return
        if options.field_validation == "Strict":
            detail = ", ".join(problems)
            raise status.bad_request(
                f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {detail}'
            )
        call.warnings += [problem for problem in problems if problem not in call.warnings]
