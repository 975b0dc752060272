"""TokenReview and the access reviews: questions that are answered and never stored."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.access import DEFAULT_AUDIENCE, Authenticator, User
from captf_runtime.testing.apiserver.calls import Call
from captf_runtime.testing.apiserver.http_server import Response
from captf_runtime.testing.apiserver.rbac import Question, Rbac, Rule
from captf_runtime.testing.apiserver.resources import Resource

ReadBody = Callable[[Call, Resource], Object]
_EVERYTHING = Rule(("*",), ("*",), ("*",))


class Reviews:
    """Answers all virtual resources. Without `rbac` everything is allowed."""

    def __init__(self, authenticator: Authenticator, rbac: Rbac | None, read: ReadBody) -> None:
        self._authenticator = authenticator
        self._rbac = rbac
        self._read = read

    def __call__(self, call: Call, resource: Resource) -> None:
        if call.exchange.request.method != "POST" or call.info.name:
            raise status.method_not_allowed()
        body = self._read(call, resource)
        spec = body.get("spec") or {}
        match resource.kind:
            case "TokenReview":
                state = self._token(spec)
            case "SelfSubjectReview":
                state = {"userInfo": call.user.to_object()}
            case "SelfSubjectRulesReview":
                state = self._rules(call.user, str(spec.get("namespace") or ""))
            case "SelfSubjectAccessReview":
                state = self._access(resource, call.user, spec)
            case _:
                state = self._access_of_other(call, resource, spec)
        metadata = {"creationTimestamp": None, **(body.get("metadata") or {})}
        answer: Object = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": metadata,
        }
        if resource.kind != "SelfSubjectReview":
            answer["spec"] = spec
        answer["status"] = state
        call.exchange.respond(Response(201, msgspec.json.encode(answer)))

    def _token(self, spec: Object) -> Object:
        audiences = [str(audience) for audience in spec.get("audiences") or []]
        user = self._authenticator.user_of(str(spec.get("token") or ""), audiences)
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user.to_object(), "audiences": audiences or [DEFAULT_AUDIENCE]}

    def _invalid(self, field: str, value: object, detail: str) -> status.ApiStatus:
        failure = status.invalid("", "", "", [status.invalid_value(field, value, detail)])
        failure.message = failure.message.replace(' ""', '.authorization.k8s.io ""', 1)
        failure.details = {"group": "authorization.k8s.io", **(failure.details or {})}
        return failure

    def _access_of_other(self, call: Call, resource: Resource, spec: Object) -> Object:
        attributes = spec.get("resourceAttributes") or {}
        if not spec.get("user") and not spec.get("groups"):
            raise self._invalid("spec.user", "", "at least one of user or group must be specified")
        if resource.namespaced and attributes.get("namespace") != call.info.namespace:
            detail = "must match metadata.namespace"
            raise self._invalid(
                "spec.resourceAttributes.namespace", attributes.get("namespace") or "", detail
            )
        user = User(
            str(spec.get("user") or ""),
            tuple(str(g) for g in spec.get("groups") or ()),
            str(spec.get("uid") or ""),
        )
        return self._access(resource, user, spec)

    def _access(self, resource: Resource, user: User, spec: Object) -> Object:
        asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (asked is None) == (path is None):
            detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            if asked is not None:
                detail = "cannot be specified in combination with resourceAttributes"
                raise self._invalid("spec.nonResourceAttributes", "null", detail)
            raise self._invalid("spec.resourceAttributes", "null", detail)
        if path is not None:
            question = Question(str(path.get("verb") or ""), False, path=str(path.get("path") or ""))
        else:
            attributes = asked or {}

            def text(field: str) -> str:
                return str(attributes.get(field) or "")

            question = Question(
                text("verb"),
                True,
                text("group"),
                text("resource"),
                text("subresource"),
                text("name"),
                text("namespace"),
            )
        if self._rbac is None:
            return {"allowed": True}
        reason = self._rbac.decide(user, question)
        if reason is None:
            return {"allowed": False}
        return {"allowed": True, "reason": reason} if reason else {"allowed": True}

    def _rules(self, user: User, namespace: str) -> Object:
        if self._rbac is None or "system:masters" in user.groups:
            rules = [_EVERYTHING, Rule(("*",), urls=("*",))]
        else:
            rules = [rule for grant in self._rbac.grants(user, namespace) for rule in grant.rules]
        return {
            "resourceRules": [rule.to_object() for rule in rules if not rule.urls],
            "nonResourceRules": [rule.to_object() for rule in rules if rule.urls],
            "incomplete": False,
        }
