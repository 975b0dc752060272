"""The verbs on resources over HTTP: which one a request is, and the writes among them."""

from __future__ import annotations

import msgspec

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import requests, status
from captf_runtime.testing.apiserver.backend import Backend, Outcome, Write
from captf_runtime.testing.apiserver.bodies import Bodies
from captf_runtime.testing.apiserver.calls import Call
from captf_runtime.testing.apiserver.patching import Patching, write_of
from captf_runtime.testing.apiserver.reading import Reading, ReadLimits
from captf_runtime.testing.apiserver.resources import Resource
from captf_runtime.testing.apiserver.views import MediaType


class Endpoints:
    """Answers requests on resources. One instance serves all threads."""

    def __init__(self, backend: Backend, limits: ReadLimits) -> None:
        self.backend = backend
        self.bodies = Bodies(backend.registry)
        self.patching = Patching(backend, self.bodies)
        self.reading = Reading(backend, limits)

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
            "get": self.reading.get,
            "list": self.reading.list,
            "watch": self.reading.watch,
            "create": self.create,
            "update": self.update,
            "patch": self.patch,
            "delete": self.delete,
            "deletecollection": self.delete_collection,
        }[info.verb](call, resource)

    def _respond_with(self, call: Call, resource: Resource, media: MediaType, outcome: Outcome) -> None:
        body = self.reading.view(call, resource, media).one(outcome.record)
        call.answer(201 if outcome.created else 200, body, media)

    def create(self, call: Call, resource: Resource) -> None:
        """POST of an object."""
        media = call.media()
        options = requests.write_options(
            call.exchange.request, "CreateOptions", modern=self.backend.mode == "modern"
        )
        obj = self.bodies.read(call, resource)
        self.bodies.check_namespace(call, resource, obj, "create")
        self.bodies.validate_fields(call, resource, obj, options)
        outcome = self.backend.create(resource, call.info.namespace, obj, write_of(call, options))
        self._respond_with(call, resource, media, outcome)

    def update(self, call: Call, resource: Resource) -> None:
        """PUT of an object or a subresource."""
        media = call.media()
        options = requests.write_options(
            call.exchange.request, "UpdateOptions", modern=self.backend.mode == "modern"
        )
        obj = self.bodies.read(call, resource)
        self.bodies.check_name(call, obj)
        self.bodies.check_namespace(call, resource, obj, "update")
        self.bodies.validate_fields(call, resource, obj, options)
        write = write_of(call, options)
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
        media = call.media()
        self._respond_with(call, resource, media, self.patching.patch(call, resource))

    def respond_with(self, call: Call, resource: Resource, outcome: Outcome) -> None:
        """Answer with the object of an outcome."""
        self._respond_with(call, resource, call.media(), outcome)

    def delete(self, call: Call, resource: Resource) -> None:
        """DELETE of one object."""
        media = call.media()
        options = requests.delete_options(call.exchange.request, self.bodies.delete_options(call))
        write = Write(user=call.user, dry_run=options.dry_run, warnings=call.warnings)
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
        call.answer(200, msgspec.json.encode(body), MediaType(yaml=media.yaml))

    def delete_collection(self, call: Call, resource: Resource) -> None:
        """DELETE of everything that the selectors choose."""
        media = call.media()
        options = requests.delete_options(call.exchange.request, self.bodies.delete_options(call))
        if resource.namespaced and not call.info.namespace:
            raise status.method_not_allowed()
        selection = self.reading.selection(call, resource)
        store = self.backend.store
        listed = [r for r in store.list(resource.storage, selection.namespace) if selection.holds(r)]
        write = Write(user=call.user, dry_run=options.dry_run, warnings=call.warnings)
        for record in listed:
            try:
                self.backend.delete(resource, record.namespace, record.name, options, write)
            except status.ApiStatus as failure:
                # Somebody else was faster: what should go is gone.
                if failure.code != 404:
                    raise
        metadata = {"resourceVersion": str(store.revision)}
        call.answer(200, self.reading.view(call, resource, media).many(listed, metadata), media)
