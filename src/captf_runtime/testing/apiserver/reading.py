"""get, list and watch."""

from __future__ import annotations

import random
from dataclasses import dataclass

from captf_runtime.testing.apiserver import pagination, status
from captf_runtime.testing.apiserver.backend import Backend
from captf_runtime.testing.apiserver.calls import Call, SendLine
from captf_runtime.testing.apiserver.requests import flag
from captf_runtime.testing.apiserver.resources import Resource
from captf_runtime.testing.apiserver.selectors import parse_fields, parse_labels
from captf_runtime.testing.apiserver.storage import Record
from captf_runtime.testing.apiserver.views import MediaType, View
from captf_runtime.testing.apiserver.watch import Selection, WatchOptions, error_line, serve


@dataclass(slots=True)
class ReadLimits:
    """How watches behave; times in seconds."""

    bookmark_interval: float = 60.0
    default_watch_timeout: float = 1800.0
    watch_buffer: int = 10_000


class Reading:
    """Answers reads."""

    def __init__(self, backend: Backend, limits: ReadLimits) -> None:
        self._backend = backend
        self._limits = limits

    def view(self, call: Call, resource: Resource, media: MediaType) -> View:
        """Renders the records of a resource as the request wants them."""
        include = call.exchange.request.parameter("includeObject")
        return View(resource, media, include_object=include, now=self._backend.clock.now)

    def get(self, call: Call, resource: Resource) -> None:
        """One object."""
        media = call.media()
        asked = call.exchange.request.parameter("resourceVersion")
        if asked:
            self._version(asked)
        record = self._backend.store.get(
            resource.storage, call.info.namespace if resource.namespaced else "", call.info.name
        )
        if record is None:
            raise status.not_found(resource.plural, resource.group, call.info.name)
        call.answer(200, self.view(call, resource, media).one(record), media)

    def _version(self, text: str) -> int:
        asked, current = self._number_version(text), self._backend.store.revision
        if asked > current:
            raise status.version_too_large(asked, current)
        return asked

    def selection(self, call: Call, resource: Resource) -> Selection:
        """The records that the request's selectors choose; raises 400."""
        request = call.exchange.request
        labels = parse_labels(request.parameter("labelSelector"), legacy=self._backend.mode == "1.20")
        fields = parse_fields(request.parameter("fieldSelector"))
        strategy = resource.strategy
        known = ("metadata.name", "metadata.namespace", *strategy.field_names())
        for name in fields.fields():
            if name not in known:
                raise status.bad_request(strategy.unknown_field(name))

        def values(record: Record) -> dict[str, str]:
            found = strategy.fields(strategy.view(record.object) if resource.custom else record.object)
            return {**found, "metadata.name": record.name, "metadata.namespace": record.namespace}

        return Selection(call.info.namespace if resource.namespaced else "", labels, fields, values)

    def _check_list_options(self, call: Call, *, watching: bool) -> None:
        request = call.exchange.request
        version, match = request.parameter("resourceVersion"), request.parameter("resourceVersionMatch")
        initial = request.parameter("sendInitialEvents")
        causes: list[status.Cause] = []
        modern = self._backend.mode == "modern"
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
        media = call.media()
        request = call.exchange.request
        if media.form == "partial" and not media.of_list:
            package = (resource.group.split(".")[0] or "core") if not resource.custom else "unstructured"
            listed = f"{resource.kind}List" if not resource.custom else "UnstructuredList"
            raise status.ApiStatus(
                406,
                f"you requested PartialObjectMetadata, but the requested object is a list (*{package}.{listed})",
                "NotAcceptable",
            )
        limit = _number(request.parameter("limit"))
        _number(request.parameter("timeoutSeconds"))
        self._check_list_options(call, watching=False)
        selection = self.selection(call, resource)
        records, metadata = pagination.page(
            self._backend.store,
            resource.storage,
            selection,
            limit=limit,
            token=request.parameter("continue"),
            resource_version=request.parameter("resourceVersion"),
            version_match=request.parameter("resourceVersionMatch"),
        )
        call.answer(200, self.view(call, resource, media).many(records, metadata), media)

    def watch(self, call: Call, resource: Resource) -> None:
        """A stream of changes."""
        request = call.exchange.request
        media = call.media()
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
        initial = flag(request, "sendInitialEvents") and self._backend.mode == "modern"
        if initial:
            if start is not None and start > self._backend.store.revision:
                raise status.version_too_large(start, self._backend.store.revision)
            start = None
        timeout = _number(request.parameter("timeoutSeconds"))
        # As the real server does, spread the ends of watches that name none.
        seconds = float(timeout) or self._limits.default_watch_timeout * (1 + random.random())
        options = WatchOptions(
            seconds,
            flag(request, "allowWatchBookmarks"),
            self._limits.bookmark_interval,
            initial,
            self._limits.watch_buffer,
            self._backend.store.dismissals(resource.storage),
        )
        stream = call.exchange.stream(media.content_type, dict(call.header_pairs()))

        def plain(_: str, line: bytes) -> bool:
            return stream.send(line)

        send: SendLine = plain if call.stream_sender is None else call.stream_sender(stream)
        view = self.view(call, resource, media)
        try:
            serve(self._backend.store, resource.storage, view, selection, start, options, stream, send)
        except status.ApiStatus as failure:
            send("ERROR", error_line(failure))
            stream.finish()

    def _number_version(self, text: str) -> int:
        if not text.isdigit():
            detail = f'strconv.ParseUint: parsing "{text}": invalid syntax'
            raise status.plain_internal(f'resourceVersion: Invalid value: "{text}": {detail}')
        return int(text)


def _number(text: str) -> int:
    if not text:
        return 0
    try:
        return int(text)
    except ValueError as problem:
        message = f"strconv.ParseInt: parsing {status.quote(text)}: invalid syntax"
        raise status.bad_request(message) from problem
