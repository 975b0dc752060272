"""Admission: namespaces that must exist and live, escalation of privileges, and validating webhooks."""

from __future__ import annotations

import base64
import http.client
import re
import ssl
import uuid
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from captf_runtime.objects import Object, selector_from
from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.backend import Attributes, full
from captf_runtime.testing.apiserver.customresources import TABLE as DEFINITIONS
from captf_runtime.testing.apiserver.customresources import is_terminating
from captf_runtime.testing.apiserver.kinds.rbac import GROUP as RBAC_GROUP
from captf_runtime.testing.apiserver.rbac import EscalationGate
from captf_runtime.testing.apiserver.resources import Registry, Resource
from captf_runtime.testing.apiserver.status import Cause
from captf_runtime.testing.apiserver.storage import Store

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
WEBHOOKS = "validatingwebhookconfigurations.admissionregistration.k8s.io"


class NamespaceGate:
    """Nothing is created in a namespace that is missing or ending; some namespaces never end."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, attributes: Attributes) -> None:
        """Raise 404 or 403."""
        resource = attributes.resource
        if resource.storage == "namespaces":
            if attributes.operation == "DELETE" and attributes.name in IMMORTAL:
                raise status.forbidden("namespaces", "", attributes.name, "this namespace may not be deleted")
            return
        if attributes.operation != "CREATE" or not resource.namespaced:
            return
        namespace = attributes.namespace
        record = self._store.get("namespaces", "", namespace)
        if record is None:
            raise status.not_found("namespaces", "", namespace)
        if (record.object.get("status") or {}).get("phase") == "Terminating":
            cause = Cause(
                "NamespaceTerminating",
                f"namespace {namespace} is being terminated",
                "metadata.namespace",
            )
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise status.forbidden(resource.plural, resource.group, attributes.name, message, [cause])


class ServiceAccountGate:
    """A pod needs its service account; `default` counts as there, whether anybody made it or not."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, attributes: Attributes) -> None:
        """Raise 403."""
        new = attributes.new
        if attributes.resource.storage != "pods" or attributes.operation != "CREATE" or new is None:
            return
        name = str((new.get("spec") or {}).get("serviceAccountName") or "default")
        if name == "default" or self._store.get("serviceaccounts", attributes.namespace, name) is not None:
            return
        message = (
            f"error looking up service account {attributes.namespace}/{name}: "
            f'serviceaccount "{name}" not found'
        )
        raise status.forbidden("pods", "", attributes.name, message)


class DefinitionGate:
    """Nothing is created of a custom kind whose definition is being deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, attributes: Attributes) -> None:
        """Raise 405."""
        resource = attributes.resource
        if not resource.custom or attributes.operation != "CREATE":
            return
        record = self._store.get(DEFINITIONS, "", resource.storage)
        if record is not None and is_terminating(record.object):
            message = "create not allowed while custom resource definition is terminating"
            details = {"group": resource.group, "kind": resource.plural}
            raise status.ApiStatus(405, message, "MethodNotAllowed", details)


class RoleGate:
    """Refuses roles and bindings that grant more than their writer holds."""

    def __init__(self, escalation: EscalationGate) -> None:
        self._escalation = escalation

    def admit(self, attributes: Attributes) -> None:
        """Raise 403."""
        if attributes.resource.group != RBAC_GROUP or attributes.new is None:
            return
        self._escalation.check(
            attributes.user, attributes.resource.plural, attributes.namespace, attributes.new, attributes.old
        )


class ValidatingWebhooks:
    """Calls the webhooks of stored ValidatingWebhookConfigurations.

    `services` maps (namespace, name) of a Service to the host and port that stands for it.
    """

    def __init__(self, store: Store, registry: Registry, services: Mapping[tuple[str, str], str]) -> None:
        self._store = store
        self._registry = registry
        self.services = dict(services)

    def admit(self, attributes: Attributes) -> None:
        """Raise what a webhook answers, or 500 when one that must answer does not."""
        if attributes.resource.group == "admissionregistration.k8s.io":
            return
        for record in self._store.list(WEBHOOKS):
            for webhook in record.object.get("webhooks") or []:
                matched = self._matched(webhook, attributes)
                if matched is not None and self._selected(webhook, attributes):
                    self._call(webhook, attributes, matched)

    def _matched(self, webhook: Object, attributes: Attributes) -> Resource | None:
        """The version of the resource that the webhook wants to see, None when it is not concerned."""
        own = attributes.resource
        versions = [own]
        if webhook.get("matchPolicy", "Equivalent") == "Equivalent":
            versions += [r for r in self._registry.versions_of(own.storage) if r is not own]
        for resource in versions:
            if any(_rule_matches(rule, attributes, resource) for rule in webhook.get("rules") or []):
                return resource
        return None

    def _selected(self, webhook: Object, attributes: Attributes) -> bool:
        selector = webhook.get("namespaceSelector") or {}
        if selector and attributes.namespace:
            record = self._store.get("namespaces", "", attributes.namespace)
            labels = record.object["metadata"].get("labels") or {} if record is not None else {}
            if not selector_from(selector).matches(labels):
                return False
        elif (
            selector
            and attributes.resource.storage == "namespaces"
            and not _labels_match(selector, attributes)
        ):
            return False
        wanted = webhook.get("objectSelector") or {}
        return not wanted or _labels_match(wanted, attributes)

    def _call(self, webhook: Object, attributes: Attributes, matched: Resource) -> None:
        name = str(webhook.get("name"))
        if attributes.dry_run and webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise status.bad_request(f"admission webhook {status.quote(name)} does not support dry run")
        review = _review(attributes, matched)
        try:
            answer = self._post(webhook, review)
            response = answer["response"]
            if response.get("uid") != review["request"]["uid"]:
                raise ValueError("expected response.uid to be that of the request")
            allowed = bool(response["allowed"])
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException) as problem:
            if webhook.get("failurePolicy", "Fail") == "Ignore":
                return
            detail = f"failed calling webhook {status.quote(name)}: {problem}"
            raise status.internal(detail) from problem
        attributes.warnings.extend(str(text) for text in response.get("warnings") or [])
        if allowed:
            return
        result = response.get("status") or {}
        code = int(result.get("code") or 400)
        message = result.get("message") or result.get("reason")
        text = f"admission webhook {status.quote(name)} denied the request"
        text += f": {message}" if message else " without explanation"
        raise status.ApiStatus(code, text, str(result.get("reason") or ""), result.get("details"))

    def _post(self, webhook: Object, review: Object) -> Object:
        config = webhook.get("clientConfig") or {}
        url = config.get("url")
        server_name = None
        if not url:
            service = config.get("service") or {}
            key = (str(service.get("namespace")), str(service.get("name")))
            host = self.services.get(key)
            if host is None:
                raise OSError(f'service "{key[1]}" not found')
            url = f"https://{host}{service.get('path') or '/'}"
            server_name = f"{key[1]}.{key[0]}.svc"
        parts = urlsplit(str(url))
        timeout = float(webhook.get("timeoutSeconds") or 10)
        path = parts.path or "/"
        query = f"?{parts.query}&" if parts.query else "?"
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            bundle = config.get("caBundle")
            if bundle:
                context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
            connection = _NamedConnection(
                str(parts.hostname),
                parts.port or 443,
                timeout=timeout,
                context=context,
                server_name=server_name,
            )
        else:
            connection = http.client.HTTPConnection(str(parts.hostname), parts.port or 80, timeout=timeout)
        try:
            connection.request(
                "POST",
                f"{path}{query}timeout={int(timeout)}s",
                msgspec.json.encode(review),
                {"Content-Type": "application/json", "Accept": "application/json"},
            )
            answered = connection.getresponse()
            body = answered.read()
            if answered.status != 200:
                raise OSError(f"the server answered with status {answered.status}")
            decoded: Object = msgspec.json.decode(body)
            return decoded
        finally:
            connection.close()


class _NamedConnection(http.client.HTTPSConnection):
    """HTTPS to one address under another server name."""

    def __init__(
        self, host: str, port: int, *, timeout: float, context: ssl.SSLContext, server_name: str | None
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._tls = context
        self._server_name = server_name or host

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _rule_matches(rule: Object, attributes: Attributes, resource: Resource) -> bool:
    def holds(field: str, value: str) -> bool:
        values = rule.get(field) or []
        return "*" in values or value in values

    if not holds("operations", attributes.operation):
        return False
    if not holds("apiGroups", resource.group) or not holds("apiVersions", resource.version):
        return False
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") != resource.namespaced:
        return False
    target = f"{resource.plural}/{attributes.subresource}" if attributes.subresource else resource.plural
    for pattern in rule.get("resources") or []:
        expression = re.escape(str(pattern)).replace(r"\*", "[^/]*")
        if pattern == "*/*" or re.fullmatch(expression, target):
            return True
    return False


def _labels_match(selector: Object, attributes: Attributes) -> bool:
    matcher = selector_from(selector)
    for obj in (attributes.new, attributes.old):
        if obj is not None and matcher.matches(obj["metadata"].get("labels") or {}):
            return True
    return False


def _review(attributes: Attributes, matched: Resource) -> Object:
    def kind(resource: Resource) -> Object:
        return {"group": resource.group, "version": resource.version, "kind": resource.kind}

    def target(resource: Resource) -> Object:
        return {"group": resource.group, "version": resource.version, "resource": resource.plural}

    def shown(obj: Object | None) -> Object | None:
        if obj is None or matched is attributes.resource:
            return obj
        stored = attributes.resource.strategy.store({k: v for k, v in obj.items() if k not in _HEAD})
        return full(matched, matched.strategy.view(stored))

    request: Object = {
        "uid": str(uuid.uuid4()),
        "kind": kind(matched),
        "resource": target(matched),
        "requestKind": kind(attributes.resource),
        "requestResource": target(attributes.resource),
        "name": attributes.name,
        "operation": attributes.operation,
        "userInfo": attributes.user.to_object(),
        "object": shown(attributes.new),
        "oldObject": shown(attributes.old),
        "dryRun": attributes.dry_run,
        "options": attributes.options
        or {"kind": f"{attributes.operation.title()}Options", "apiVersion": "meta.k8s.io/v1"},
    }
    if attributes.subresource:
        request |= {"subResource": attributes.subresource, "requestSubResource": attributes.subresource}
    if attributes.namespace:
        request["namespace"] = attributes.namespace
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


_HEAD = ("kind", "apiVersion")
