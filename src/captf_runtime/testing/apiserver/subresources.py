"""The subresources with ways of their own: tokens of service accounts, logs of pods, the end of namespaces."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from captf_runtime.objects import Object, format_time
from captf_runtime.testing.apiserver import names, requests, status
from captf_runtime.testing.apiserver.access import DEFAULT_AUDIENCE, SHORTEST_TOKEN, Authenticator
from captf_runtime.testing.apiserver.backend import Backend
from captf_runtime.testing.apiserver.calls import Call
from captf_runtime.testing.apiserver.http_server import Response
from captf_runtime.testing.apiserver.requests import flag
from captf_runtime.testing.apiserver.resources import Resource
from captf_runtime.testing.apiserver.rest import Endpoints


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What of a container's log is wanted; None means no limit."""

    container: str
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None


LogProvider = Callable[[str, str, LogOptions], Iterator[bytes] | None]
"""Gives the log of (namespace, pod, options) in pieces, None when it has none."""

LONGEST_TOKEN = 1 << 32


class Tokens:
    """serviceaccounts/token."""

    def __init__(self, backend: Backend, endpoints: Endpoints, authenticator: Authenticator) -> None:
        self._backend = backend
        self._endpoints = endpoints
        self._authenticator = authenticator

    def __call__(self, call: Call, resource: Resource) -> None:
        if call.exchange.request.method != "POST":
            raise status.method_not_allowed()
        body = self._endpoints.bodies.read_as(call, "TokenRequest", "authentication.k8s.io", "v1")
        namespace, name = call.info.namespace, call.info.name
        record = self._backend.store.get(resource.storage, namespace, name)
        if record is None:
            raise status.not_found("serviceaccounts", "", name)
        spec = dict(body.get("spec") or {})
        seconds = int(spec.get("expirationSeconds") or 3600)
        if seconds < SHORTEST_TOKEN or seconds > LONGEST_TOKEN:
            detail = "may not specify a duration less than 10 minutes"
            if seconds > LONGEST_TOKEN:
                detail = "may not specify a duration larger than 2^32 seconds"
            cause = status.invalid_value("spec.expirationSeconds", seconds, detail)
            raise status.invalid("TokenRequest", "authentication.k8s.io", "", [cause])
        audiences = [str(audience) for audience in spec.get("audiences") or []] or [DEFAULT_AUDIENCE]
        bound = self._bound(namespace, spec.get("boundObjectRef"))
        token, expires = self._authenticator.issue(
            namespace,
            name,
            record.object["metadata"]["uid"],
            seconds=seconds,
            audiences=audiences,
            bound=bound,
        )
        answer = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "creationTimestamp": format_time(self._backend.clock.now()),
            },
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
            "status": {
                "token": token,
                "expirationTimestamp": format_time(datetime.fromtimestamp(expires, UTC)),
            },
        }
        call.exchange.respond(Response(201, msgspec.json.encode(answer)))

    def _bound(self, namespace: str, reference: object) -> Object | None:
        if not isinstance(reference, dict):
            return None
        kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
        if (kind, reference.get("apiVersion")) not in (("Pod", "v1"), ("Secret", "v1")):
            raise status.bad_request(f"cannot bind token to object of type /v1, Kind={kind}")
        plural = f"{kind.lower()}s"
        record = self._backend.store.get(plural, namespace, name)
        if record is None:
            raise status.not_found(plural, "", name)
        uid = record.object["metadata"]["uid"]
        wanted = reference.get("uid")
        if wanted and wanted != uid:
            message = (
                f"the UID in the bound object reference ({wanted}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise status.conflict(plural, "", name, message)
        return {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}


# What the finalizing of a namespace never changes; the rest of metadata is that of the request.
_KEPT = (
    "name",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
    "managedFields",
)


class Finalize:
    """namespaces/finalize: the only way in which spec.finalizers change."""

    def __init__(self, backend: Backend, endpoints: Endpoints) -> None:
        self._backend = backend
        self._endpoints = endpoints

    def __call__(self, call: Call, resource: Resource) -> None:
        if call.exchange.request.method != "PUT":
            raise status.method_not_allowed()
        options = requests.write_options(
            call.exchange.request, "UpdateOptions", modern=self._backend.mode == "modern"
        )
        body = self._endpoints.bodies.read_as(call, resource.kind, resource.group, resource.version)
        name = (body.get("metadata") or {}).get("name")
        if name != call.info.name:
            raise status.bad_request(
                f"the name of the object ({name or ''}) does not match the name on the URL ({call.info.name})"
            )
        finalizers = list((body.get("spec") or {}).get("finalizers") or [])
        causes = [
            cause
            for index, finalizer in enumerate(finalizers)
            for cause in names.validate_namespace_finalizer(str(finalizer), f"spec.finalizers[{index}]")
        ]
        if causes:
            raise status.invalid(resource.kind, resource.group, call.info.name, causes)
        version = str((body.get("metadata") or {}).get("resourceVersion") or "")

        def change(current: Object) -> Object:
            if version and version != current["metadata"]["resourceVersion"]:
                raise status.conflict(resource.plural, resource.group, call.info.name)
            kept = {part: current["metadata"][part] for part in _KEPT if part in current["metadata"]}
            current["metadata"] = {**(body.get("metadata") or {}), **kept}
            current["spec"] = {"finalizers": finalizers} if finalizers else {}
            return current

        outcome = self._backend.update_unchecked(
            resource, "", call.info.name, change, dry_run=options.dry_run
        )
        self._endpoints.respond_with(call, resource, outcome)


class Bindings:
    """pods/binding: the only way in which a pod gets its node."""

    def __init__(self, backend: Backend, endpoints: Endpoints) -> None:
        self._backend = backend
        self._endpoints = endpoints

    def __call__(self, call: Call, resource: Resource) -> None:
        if call.exchange.request.method != "POST":
            raise status.method_not_allowed()
        options = requests.write_options(
            call.exchange.request, "CreateOptions", modern=self._backend.mode == "modern"
        )
        body = self._endpoints.bodies.read_as(call, "Binding", "", "v1")
        namespace, name = call.info.namespace, call.info.name
        given, target = body.get("metadata") or {}, body.get("target") or {}
        if given.get("name") != name:
            raise status.bad_request("name in URL does not match name in Binding object")
        kind, node = str(target.get("kind") or ""), str(target.get("name") or "")
        if kind not in ("", "Node"):
            problem = status.unsupported_value("target.kind", kind, ("Node", "<empty>"))
            raise status.plain_internal(str(problem))
        if not node:
            raise status.plain_internal(str(status.required("target.name")))
        # Older servers do not look at the uid.
        wanted = given.get("uid") if self._backend.mode == "modern" else None

        def change(pod: Object) -> Object:
            metadata, spec = pod["metadata"], pod["spec"]
            problem = ""
            if wanted and wanted != metadata["uid"]:
                uid = metadata["uid"]
                problem = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
            elif metadata.get("deletionTimestamp"):
                problem = f"pod {name} is being deleted, cannot be assigned to a host"
            elif spec.get("nodeName"):
                problem = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
            if problem:
                raise status.conflict("pods/binding", "", name, problem)
            spec["nodeName"] = node
            scheduled = {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": format_time(self._backend.clock.now()),
            }
            found = pod.setdefault("status", {})
            others = [each for each in found.get("conditions") or [] if each.get("type") != "PodScheduled"]
            found["conditions"] = [*others, scheduled]
            return pod

        self._backend.update_unchecked(resource, namespace, name, change, dry_run=options.dry_run)
        done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        call.exchange.respond(Response(201, msgspec.json.encode(done)))


class Logs:
    """pods/log, from the providers that kubelets register."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.providers: list[LogProvider] = []

    def __call__(self, call: Call, resource: Resource) -> None:
        request = call.exchange.request
        if request.method != "GET":
            raise status.method_not_allowed()
        namespace, name = call.info.namespace, call.info.name
        record = self._backend.store.get(resource.storage, namespace, name)
        if record is None:
            raise status.not_found("pods", "", name)
        if not (record.object.get("spec") or {}).get("nodeName"):
            # Nobody runs it yet, so there is nobody to ask.
            call.exchange.respond(Response(204, b"", "text/plain"))
            return
        container = self._container(record.object, name, request.parameter("container"))
        options = LogOptions(
            container,
            flag(request, "follow"),
            flag(request, "previous"),
            _optional_number(request.parameter("tailLines")),
            _optional_number(request.parameter("limitBytes")),
        )
        pieces = self._find(namespace, name, options)
        if pieces is None:
            raise self._waiting(record.object, name, options)
        stream = call.exchange.stream("text/plain", {})
        try:
            for piece in pieces:
                if not stream.send(piece) or not stream.alive():
                    return
        finally:
            if isinstance(pieces, Generator):
                pieces.close()
        stream.finish()

    def _container(self, pod: Object, name: str, wanted: str) -> str:
        spec = pod.get("spec") or {}
        containers = [str(c.get("name")) for c in spec.get("containers") or []]
        init = [str(c.get("name")) for c in spec.get("initContainers") or []]
        if wanted:
            if wanted not in (*containers, *init):
                raise status.bad_request(f"container {wanted} is not valid for pod {name}")
            return wanted
        if len(containers) == 1:
            return containers[0]
        message = (
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]"
        )
        if init:
            message += f" or one of the init containers: [{' '.join(init)}]"
        raise status.bad_request(message)

    def _find(self, namespace: str, name: str, options: LogOptions) -> Iterator[bytes] | None:
        for provider in list(self.providers):
            pieces = provider(namespace, name, options)
            if pieces is not None:
                return pieces
        return None

    def _waiting(self, pod: Object, name: str, options: LogOptions) -> status.ApiStatus:
        if options.previous:
            return status.bad_request(
                f'previous terminated container "{options.container}" in pod "{name}" not found'
            )
        state = pod.get("status") or {}
        reason = "ContainerCreating"
        for entry in [*(state.get("containerStatuses") or []), *(state.get("initContainerStatuses") or [])]:
            waiting = (entry.get("state") or {}).get("waiting") or {}
            if entry.get("name") == options.container and waiting.get("reason"):
                reason = waiting["reason"]
        return status.bad_request(
            f'container "{options.container}" in pod "{name}" is waiting to start: {reason}'
        )


def _optional_number(text: str) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError as problem:
        raise status.bad_request(
            f"strconv.ParseInt: parsing {status.quote(text)}: invalid syntax"
        ) from problem
