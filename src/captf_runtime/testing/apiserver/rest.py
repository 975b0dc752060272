"""The verbs on resources over HTTP: reading bodies and options, calling the backend, rendering the answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import pagination, patches, protobuf, requests, status, strategic, typed
from captf_runtime.testing.apiserver.access import User
from captf_runtime.testing.apiserver.backend import Backend, Outcome, Write
from captf_runtime.testing.apiserver.customresources import CustomResourceStrategy
from captf_runtime.testing.apiserver.http_server import Exchange, Response, Stream
from captf_runtime.testing.apiserver.kinds.base import Strategy
from captf_runtime.testing.apiserver.requests import RequestInfo, flag
from captf_runtime.testing.apiserver.resources import Resource
from captf_runtime.testing.apiserver.selectors import parse_fields, parse_labels
from captf_runtime.testing.apiserver.shapes import kind_schema, object_meta
from captf_runtime.testing.apiserver.storage import Record
from captf_runtime.testing.apiserver.views import MediaType, View, negotiate, to_yaml
from captf_runtime.testing.apiserver.watch import Selection, WatchOptions, error_line, serve

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


@dataclass(slots=True)
class ReadLimits:
    """How watches behave; times in seconds."""

    bookmark_interval: float = 60.0
    default_watch_timeout: float = 1800.0
    watch_buffer: int = 10_000


class Endpoints:
    """Answers requests on resources. One instance serves all threads."""

    def __init__(self, backend: Backend, limits: ReadLimits) -> None:
        self.backend = backend
        self.limits = limits
        self.applier: Applier | None = None

    # Dispatch

    def handle(self, call: Call, resource: Resource) -> None:
        """Answer a request without a special subresource; raises `ApiStatus`."""
        info = call.info
        if info.subresource and resource.subresource(info.subresource) is None:
            if resource.custom:
                raise status.not_found(resource.plural, resource.group, info.name)
            raise status.unknown_resource()
        allowed = resource.verbs
        if info.subresource:
            found = resource.subresource(info.subresource)
            allowed = found.verbs if found is not None else ()
        method = call.exchange.request.method
        if (
            info.verb not in allowed
            or len(info.parts) > 3
            or (method == "POST" and info.name and not info.subresource)
        ):
            if len(info.parts) > 3:
                raise status.unknown_resource()
            if resource.custom:
                raise status.verb_not_supported(resource.plural, resource.group, info.verb)
            raise status.method_not_allowed()
        if info.verb in ("create", "update", "patch") and resource.namespaced and not info.namespace:
            raise status.method_not_allowed()
        if info.verb in ("update", "patch") and not info.name:
            raise status.method_not_allowed()
        {
            "get": self.get,
            "list": self.list,
            "watch": self.watch,
            "create": self.create,
            "update": self.update,
            "patch": self.patch,
            "delete": self.delete,
            "deletecollection": self.delete_collection,
        }[info.verb](call, resource)

    def _view(self, call: Call, resource: Resource, media: MediaType) -> View:
        include = call.exchange.request.parameter("includeObject")
        return View(resource, media, include_object=include, now=self.backend.clock.now)

    def _media(self, call: Call) -> MediaType:
        return negotiate(call.exchange.request.headers.get("accept", ""))

    def _answer(self, call: Call, code: int, body: bytes, media: MediaType) -> None:
        if media.yaml:
            body = to_yaml(body)
        call.exchange.respond(Response(code, body, media.content_type, call.header_pairs()))

    # Reads

    def get(self, call: Call, resource: Resource) -> None:
        """One object."""
        media = self._media(call)
        asked = call.exchange.request.parameter("resourceVersion")
        if asked:
            self._version(asked)
        record = self.backend.store.get(
            resource.storage, call.info.namespace if resource.namespaced else "", call.info.name
        )
        if record is None:
            raise status.not_found(resource.plural, resource.group, call.info.name)
        self._answer(call, 200, self._view(call, resource, media).one(record), media)

    def _version(self, text: str) -> int:
        asked, current = self._number_version(text), self.backend.store.revision
        if asked > current:
            raise status.version_too_large(asked, current)
        return asked

    def selection(self, call: Call, resource: Resource) -> Selection:
        """The records that the request's selectors choose; raises 400."""
        request = call.exchange.request
        labels = parse_labels(request.parameter("labelSelector"), legacy=self.backend.mode == "1.20")
        fields = parse_fields(request.parameter("fieldSelector"))
        strategy = resource.strategy
        known = ("metadata.name", "metadata.namespace", *strategy.field_names())
        for name in fields.fields():
            if name not in known:
                raise status.bad_request(strategy.unknown_field(name))

        def values(record: Record) -> dict[str, str]:
            found = strategy.fields(strategy.view(record.object))
            return {**found, "metadata.name": record.name, "metadata.namespace": record.namespace}

        return Selection(call.info.namespace if resource.namespaced else "", labels, fields, values)

    def _check_list_options(self, call: Call, *, watching: bool) -> None:
        request = call.exchange.request
        version, match = request.parameter("resourceVersion"), request.parameter("resourceVersionMatch")
        initial = request.parameter("sendInitialEvents")
        causes: list[status.Cause] = []
        modern = self.backend.mode == "modern"
        path = "resourceVersionMatch"
        if initial and modern:
            if not watching:
                causes.append(
                    status.forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list")
                )
            elif match != "NotOlderThan":
                detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                causes.append(status.forbidden_value(path, detail))
            if not flag(request, "allowWatchBookmarks") and watching and flag(request, "sendInitialEvents"):
                detail = "sendInitialEvents requires setting allowWatchBookmarks to true"
                causes.append(status.forbidden_value("sendInitialEvents", detail))
        elif match:
            if watching:
                causes.append(status.forbidden_value(path, "resourceVersionMatch is forbidden for watch"))
            elif not version:
                detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
                causes.append(status.forbidden_value(path, detail))
            elif request.parameter("continue"):
                detail = "resourceVersionMatch is forbidden when continue is provided"
                causes.append(status.forbidden_value(path, detail))
            elif match not in ("Exact", "NotOlderThan"):
                causes.append(status.unsupported_value(path, match, ("Exact", "NotOlderThan", "")))
            elif match == "Exact" and version == "0":
                detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                causes.append(status.forbidden_value(path, detail))
        if causes:
            raise status.invalid("ListOptions", "meta.k8s.io", "", causes)

    def list(self, call: Call, resource: Resource) -> None:
        """A list or one page of it."""
        media = self._media(call)
        request = call.exchange.request
        limit = _number(request.parameter("limit"))
        _number(request.parameter("timeoutSeconds"))
        self._check_list_options(call, watching=False)
        selection = self.selection(call, resource)
        records, metadata = pagination.page(
            self.backend.store,
            resource.storage,
            selection,
            limit=limit,
            token=request.parameter("continue"),
            resource_version=request.parameter("resourceVersion"),
            version_match=request.parameter("resourceVersionMatch"),
        )
        self._answer(call, 200, self._view(call, resource, media).many(records, metadata), media)

    def watch(self, call: Call, resource: Resource) -> None:
        """A stream of changes."""
        request = call.exchange.request
        media = self._media(call)
        if media.yaml:
            raise status.ApiStatus(406, "406: Not Acceptable", "NotAcceptable", {})
        self._check_list_options(call, watching=True)
        selection = self.selection(call, resource)
        if call.info.name:
            named = parse_fields(f"metadata.name={call.info.name}")
            selection = Selection(selection.namespace, selection.labels, named, selection.values)
        version = request.parameter("resourceVersion")
        start: int | None = None
        if version not in ("", "0"):
            start = self._number_version(version)
        initial = flag(request, "sendInitialEvents") and self.backend.mode == "modern"
        if initial:
            if start is not None and start > self.backend.store.revision:
                raise status.version_too_large(start, self.backend.store.revision)
            start = None
        timeout = _number(request.parameter("timeoutSeconds"))
        # As the real server does, spread the ends of watches that name none.
        seconds = float(timeout) or self.limits.default_watch_timeout * (1 + random.random())
        options = WatchOptions(
            seconds,
            flag(request, "allowWatchBookmarks"),
            self.limits.bookmark_interval,
            initial,
            self.limits.watch_buffer,
        )
        stream = call.exchange.stream(media.content_type, dict(call.header_pairs()))
        send: SendLine = lambda _, line: stream.send(line)  # noqa: E731 - the plain case of a callback
        if call.stream_sender is not None:
            send = call.stream_sender(stream)
        view = self._view(call, resource, media)
        try:
            serve(self.backend.store, resource.storage, view, selection, start, options, stream, send)
        except status.ApiStatus as failure:
            send("ERROR", error_line(failure))
            stream.finish()

    def _number_version(self, text: str) -> int:
        if not text.isdigit():
            detail = f'strconv.ParseUint: parsing "{text}": invalid syntax'
            raise status.plain_internal(f'resourceVersion: Invalid value: "{text}": {detail}')
        return int(text)

    # Writes

    def _write(self, call: Call, options: requests.WriteOptions, *, applied: bool = False) -> Write:
        return Write(
            user=call.user,
            manager=options.field_manager or call.manager,
            dry_run=options.dry_run,
            applied=applied,
        )

    def _respond_with(self, call: Call, resource: Resource, media: MediaType, outcome: Outcome) -> None:
        body = self._view(call, resource, media).one(outcome.record)
        self._answer(call, 201 if outcome.created else 200, body, media)

    def create(self, call: Call, resource: Resource) -> None:
        """POST of an object."""
        media = self._media(call)
        options = requests.write_options(
            call.exchange.request, "CreateOptions", modern=self.backend.mode == "modern"
        )
        obj = self._body(call, resource)
        self._check_namespace(call, resource, obj, "create")
        self._validate_fields(call, resource, obj, options)
        outcome = self.backend.create(resource, call.info.namespace, obj, self._write(call, options))
        self._respond_with(call, resource, media, outcome)

    def update(self, call: Call, resource: Resource) -> None:
        """PUT of an object or a subresource."""
        media = self._media(call)
        options = requests.write_options(
            call.exchange.request, "UpdateOptions", modern=self.backend.mode == "modern"
        )
        obj = self._body(call, resource)
        self._check_name(call, obj)
        self._check_namespace(call, resource, obj, "update")
        self._validate_fields(call, resource, obj, options)
        write = self._write(call, options)
        namespace, name = call.info.namespace, call.info.name
        if resource.strategy.create_on_update and not call.info.subresource:
            key_namespace = namespace if resource.namespaced else ""
            if self.backend.store.get(resource.storage, key_namespace, name) is None:
                uid = obj["metadata"].get("uid")
                if uid:
                    key = f"/registry/{resource.plural}/{namespace}/{name}"
                    raise status.conflict(
                        resource.plural,
                        resource.group,
                        name,
                        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, "
                        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: ",
                    )
                obj["metadata"].pop("resourceVersion", None)
                outcome = self.backend.create(resource, namespace, obj, write)
                self._respond_with(call, resource, media, outcome)
                return
        outcome = self.backend.update(
            resource,
            namespace,
            name,
            lambda _: msgspec.json.decode(msgspec.json.encode(obj)),
            write,
            subresource=call.info.subresource,
            require_version=True,
        )
        self._respond_with(call, resource, media, outcome)

    def patch(self, call: Call, resource: Resource) -> None:
        """PATCH with any of the four patch types."""
        media = self._media(call)
        content_type = call.exchange.request.headers.get("content-type", "").partition(";")[0].strip()
        custom = resource.custom
        served = {
            "application/json-patch+json": self._json_patch,
            "application/merge-patch+json": self._merge_patch,
            "application/strategic-merge-patch+json": None if custom else self._strategic_patch,
        }
        if content_type == "application/apply-patch+yaml" and self.applier is not None:
            self._apply(call, resource, media)
            return
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
            call.exchange.request, "PatchOptions", modern=self.backend.mode == "modern"
        )
        prepare = change(call, resource)

        def patched(current: Object) -> Object:
            result = prepare(current)
            try:
                self._check_type(resource, result, patched=True)
                self._validate_fields(call, resource, result, options)
                resource.strategy.decode(result)
            except status.ApiStatus as failure:
                raise _as_patch_failure(failure, result) from failure
            self._check_name(call, result)
            self._check_namespace(call, resource, result, "update")
            return result

        outcome = self.backend.update(
            resource,
            call.info.namespace,
            call.info.name,
            patched,
            self._write(call, options),
            subresource=call.info.subresource,
        )
        self._respond_with(call, resource, media, outcome)

    def _json_patch(self, call: Call, resource: Resource) -> Callable[[Object], Object]:
        operations = _decode_patch(call.exchange.request.body)
        patches.check_operations(operations)
        lenient = self.backend.mode == "1.20"
        return lambda current: patches.apply_json_patch(current, operations, lenient=lenient)

    def _merge_patch(self, call: Call, resource: Resource) -> Callable[[Object], Object]:
        try:
            patch: object = msgspec.json.decode(call.exchange.request.body)
        except msgspec.DecodeError as problem:
            raise status.plain_internal("Invalid JSON Patch") from problem
        if isinstance(patch, list):
            raise _patch_not_object(patch, modern=self.backend.mode == "modern")
        if not isinstance(patch, dict):
            raise status.plain_internal("Invalid JSON Patch")

        def merged(current: Object) -> Object:
            result = patches.merge(current, patch)
            return result if isinstance(result, dict) else {}

        return merged

    def _strategic_patch(self, call: Call, resource: Resource) -> Callable[[Object], Object]:
        patch = _decode_patch(call.exchange.request.body)
        if not isinstance(patch, dict):
            shape = _shape(patch)
            raise status.bad_request(
                f"json: cannot unmarshal {shape} into Go value of type map[string]interface {{}}"
            )
        schema = kind_schema(resource.api_version, resource.kind) or {}
        return lambda current: strategic.merge(schema, current, patch)

    def _apply(self, call: Call, resource: Resource, media: MediaType) -> None:
        applier = self.applier
        if applier is None:
            raise status.ApiStatus(415, "415: Unsupported Media Type", "UnsupportedMediaType", {})
        request = call.exchange.request
        options = requests.write_options(request, "PatchOptions", modern=self.backend.mode == "modern")
        applied = _decode_yaml(request.body)
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
        self._check_name(call, applied)
        if resource.namespaced:
            metadata.setdefault("namespace", call.info.namespace)
        self._check_namespace(call, resource, applied, "update")
        write = self._write(call, options, applied=True)
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
            self._validate_fields(call, resource, result, options)
            return result

        if (
            self.backend.store.get(resource.storage, key_namespace, call.info.name) is None
            and not subresource
        ):
            if metadata.get("uid"):
                message = (
                    f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing "
                    "object was found"
                )
                raise status.conflict(resource.plural, resource.group, call.info.name, message)
            outcome = self.backend.create(resource, call.info.namespace, change(None), write)
        else:
            outcome = self.backend.update(
                resource, call.info.namespace, call.info.name, change, write, subresource=subresource
            )
        self._respond_with(call, resource, media, outcome)

    def delete(self, call: Call, resource: Resource) -> None:
        """DELETE of one object."""
        media = self._media(call)
        options = requests.delete_options(call.exchange.request, self._delete_body(call))
        write = Write(user=call.user, dry_run=options.dry_run)
        outcome = self.backend.delete(resource, call.info.namespace, call.info.name, options, write)
        if not outcome.deleted or resource.returns_deleted:
            self._respond_with(call, resource, media, outcome)
            return
        metadata = outcome.record.object["metadata"]
        details: Object = {"name": outcome.record.name}
        if resource.group:
            details["group"] = resource.group
        details |= {"kind": resource.plural, "uid": metadata.get("uid", "")}
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        self._answer(call, 200, msgspec.json.encode(body), MediaType(yaml=media.yaml))

    def delete_collection(self, call: Call, resource: Resource) -> None:
        """DELETE of everything that the selectors choose."""
        media = self._media(call)
        options = requests.delete_options(call.exchange.request, self._delete_body(call))
        if resource.namespaced and not call.info.namespace:
            raise status.method_not_allowed()
        selection = self.selection(call, resource)
        store = self.backend.store
        listed = [r for r in store.list(resource.storage, selection.namespace) if selection.holds(r)]
        write = Write(user=call.user, dry_run=options.dry_run)
        for record in listed:
            try:
                self.backend.delete(resource, record.namespace, record.name, options, write)
            except status.ApiStatus as failure:
                # Somebody else was faster: what should go is gone.
                if failure.code != 404:
                    raise
        metadata = {"resourceVersion": str(store.revision)}
        self._answer(call, 200, self._view(call, resource, media).many(listed, metadata), media)

    # Bodies

    def _delete_body(self, call: Call) -> Object | None:
        body = call.exchange.request.body
        if not body:
            return None
        content_type = call.exchange.request.headers.get("content-type", "")
        binary = content_type.startswith(protobuf.CONTENT_TYPE)
        if binary:
            return _decode_protobuf(body)
        try:
            options: object = msgspec.json.decode(body)
        except msgspec.DecodeError as problem:
            detail = f"couldn't get version/kind; json parse error: {_json_problem(body)}"
            raise status.plain_internal(detail) from problem
        if not isinstance(options, dict):
            raise status.plain_internal(f"couldn't get version/kind; json parse error: {_shape(options)}")
        kind = options.get("kind") or "DeleteOptions"
        if kind != "DeleteOptions":
            version = options.get("apiVersion") or "meta.k8s.io/v1"
            raise status.plain_internal(
                f'no kind "{kind}" is registered for version "{version}" in scheme '
                '"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"'
            )
        return options

    def read_body(self, call: Call, kind: str, group: str, version: str) -> Object:
        """A body of another kind than the resource's own, as subresources take."""
        resource = Resource(group, version, "", kind, Strategy())
        return self._body(call, resource)

    def respond_with(self, call: Call, resource: Resource, outcome: Outcome) -> None:
        """Answer with the object of an outcome."""
        self._respond_with(call, resource, self._media(call), outcome)

    def _body(self, call: Call, resource: Resource) -> Object:
        request = call.exchange.request
        content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip()
        if content_type == "application/yaml":
            obj = _decode_yaml(request.body)
        elif content_type == protobuf.CONTENT_TYPE and not resource.custom:
            obj = _decode_protobuf(request.body)
        elif content_type in ("application/json", "*/*", ""):
            obj = _decode_object(request.body, resource)
        else:
            media = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            if resource.custom:
                media = "application/json, application/yaml"
            raise status.unsupported_media_type(
                f"the body of the request was in an unknown format - accepted media types include: {media}"
            )
        if resource.custom:
            self._check_head(resource, obj)
        self._check_type(resource, obj)
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

    def _check_type(self, resource: Resource, obj: Object, *, patched: bool = False) -> None:
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
        other = self.backend.registry.of_kind(group, version, str(kind))
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

    def _check_name(self, call: Call, obj: Object) -> None:
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

    def _check_namespace(self, call: Call, resource: Resource, obj: Object, verb: str) -> None:
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

    def _validate_fields(
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


def _number(text: str) -> int:
    if not text:
        return 0
    try:
        return int(text)
    except ValueError as problem:
        message = f"strconv.ParseInt: parsing {status.quote(text)}: invalid syntax"
        raise status.bad_request(message) from problem


def _decode_object(body: bytes, resource: Resource) -> Object:
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError as problem:
        detail = _json_problem(body)
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get version/kind; "
            f"json parse error: {detail} ({_summary(body)})"
        ) from problem
    if not isinstance(decoded, dict):
        shape = _shape(decoded)
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get version/kind; "
            f"json parse error: json: cannot unmarshal {shape} into Go value of type struct {{ APIVersion string "
            '"json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } '
            f"({_summary(body)})"
        )
    return decoded


def _shape(value: object) -> str:
    return {list: "array", str: "string", bool: "bool", dict: "object"}.get(type(value), "number")


def _summary(body: bytes) -> str:
    """The beginning of a body as errors show it: text of an object, else hexadecimal."""
    if not body:
        return "<empty>"
    shown = body[:30].decode(errors="replace") if body.startswith(b"{") else body[:30].hex()
    return f"{shown} ..." if len(body) > 30 else shown


def _json_problem(body: bytes) -> str:
    text = body.decode(errors="replace").strip()
    if not text:
        return "unexpected end of JSON input"
    if text.startswith("{") and len(text) > 1 and text[1:].lstrip()[:1] not in ('"', "}", ""):
        return f"invalid character '{text[1:].lstrip()[0]}' looking for beginning of object key string"
    if text[0] not in '{["tfn-0123456789':
        return f"invalid character '{text[0]}' looking for beginning of value"
    return "unexpected end of JSON input"


def _decode_protobuf(body: bytes) -> Object:
    try:
        return protobuf.decode(body)
    except ValueError as problem:
        message = f"the body of the request cannot be read as protobuf: {problem}"
        raise status.unsupported_media_type(message) from problem


def _decode_yaml(body: bytes) -> Object:
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError:
        import yaml

        try:
            decoded = yaml.safe_load(body)
        except yaml.YAMLError as problem:
            raise status.bad_request(f"error decoding YAML: {problem}") from problem
    if not isinstance(decoded, dict):
        detail = f"json: cannot unmarshal {_shape(decoded)} into Go value of type map[string]interface {{}}"
        raise status.bad_request(
            f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {detail}"
        )
    return decoded


def _decode_patch(body: bytes) -> object:
    try:
        decoded: object = msgspec.json.decode(body)
    except msgspec.DecodeError as problem:
        raise status.bad_request(_json_problem(body)) from problem
    return decoded


def _patch_not_object(patch: object, *, modern: bool) -> status.ApiStatus:
    shape = _shape(patch)
    if modern:
        return status.bad_request(
            f"error decoding patch: json: cannot unmarshal {shape} into Go value of type map[string]interface {{}}"
        )
    shown = msgspec.json.encode(patch).decode()
    detail = f"couldn't get version/kind; json parse error: json: cannot unmarshal {shape} into Go value of type struct "
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
