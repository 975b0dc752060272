"""Authorization from stored roles and bindings, and the checks that keep users from granting what they lack."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.access import MASTERS, User
from captf_runtime.testing.apiserver.http_server import HttpRequest
from captf_runtime.testing.apiserver.kinds.rbac import GROUP
from captf_runtime.testing.apiserver.requests import RequestInfo
from captf_runtime.testing.apiserver.storage import Change, Store

ROLES = f"roles.{GROUP}"
CLUSTER_ROLES = f"clusterroles.{GROUP}"
ROLE_BINDINGS = f"rolebindings.{GROUP}"
CLUSTER_ROLE_BINDINGS = f"clusterrolebindings.{GROUP}"
_TABLES = frozenset({ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS})


@dataclass(frozen=True, slots=True)
class Rule:
    """One PolicyRule."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: Object) -> Rule:
        """From its stored form."""

        def texts(field: str) -> tuple[str, ...]:
            return tuple(str(value) for value in rule.get(field) or ())

        return cls(
            texts("verbs"),
            texts("apiGroups"),
            texts("resources"),
            texts("resourceNames"),
            texts("nonResourceURLs"),
        )

    def allows(self, question: Question) -> bool:
        """Whether the rule grants what is asked."""
        if not _has(self.verbs, question.verb):
            return False
        if not question.is_resource:
            return any(_url_matches(url, question.path) for url in self.urls)
        if not _has(self.groups, question.group):
            return False
        if self.names and question.name not in self.names:
            return False
        return any(_resource_matches(pattern, question) for pattern in self.resources)

    def to_object(self) -> Object:
        """As it stands in a rules review."""
        found: Object = {"verbs": list(self.verbs)}
        for field, values in (
            ("apiGroups", self.groups),
            ("resources", self.resources),
            ("resourceNames", self.names),
            ("nonResourceURLs", self.urls),
        ):
            if values:
                found[field] = list(values)
        return found

    def compact(self) -> str:
        """As the refusal of an escalation shows it."""
        parts = [
            f"{label}:[{' '.join(status.quote(value) for value in values)}]"
            for label, values in (
                ("APIGroups", self.groups),
                ("Resources", self.resources),
                ("ResourceNames", self.names),
                ("NonResourceURLs", self.urls),
                ("Verbs", self.verbs),
            )
            if values
        ]
        return "{" + ", ".join(parts) + "}"


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that somebody wants to do."""

    verb: str
    is_resource: bool = True
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    @property
    def combined(self) -> str:
        """`pods/log`, or the resource alone."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def _has(values: Sequence[str], wanted: str) -> bool:
    return "*" in values or wanted in values


def _url_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def _resource_matches(pattern: str, question: Question) -> bool:
    if pattern in ("*", question.combined):
        return True
    return bool(question.subresource) and pattern == f"*/{question.subresource}"


@dataclass(frozen=True, slots=True)
class Grant:
    """Rules that somebody holds, and the sentence that tells why."""

    rules: tuple[Rule, ...]
    reason: str


class Rbac:
    """The authorizer. Thread-safe; what it reads from the store is kept until a role or binding changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._grants: dict[tuple[str, tuple[str, ...], str], list[Grant]] = {}
        self._version = 0
        store.observe(self._observe)

    def _observe(self, table: str, change: Change) -> None:
        if table in _TABLES:
            with self._lock:
                self._version += 1
                self._grants.clear()

    def authorize(self, user: User, info: RequestInfo, request: HttpRequest) -> None:
        """Raise 403 unless the user may do what the request asks."""
        question = question_of(info)
        if self.decide(user, question) is None:
            raise denied(user, question)

    def may_impersonate(self, user: User, resource: str, namespace: str, name: str) -> bool:
        """Whether the user may act as a user, group or service account."""
        question = Question("impersonate", True, "", resource, "", name, namespace)
        return self.decide(user, question) is not None

    def decide(self, user: User, question: Question) -> str | None:
        """The reason why it is allowed, None when it is not."""
        if MASTERS in user.groups:
            return ""
        for grant in self.grants(user, question.namespace):
            if any(rule.allows(question) for rule in grant.rules):
                return grant.reason
        return None

    def grants(self, user: User, namespace: str) -> list[Grant]:
        """What the user holds, cluster-wide and in the namespace."""
        key = (user.name, user.groups, namespace)
        with self._lock:
            found = self._grants.get(key)
            version = self._version
        if found is None:
            found = list(self._collect(user, namespace))
            with self._lock:
                if version == self._version:
                    self._grants[key] = found
        return found

    def _collect(self, user: User, namespace: str) -> Iterator[Grant]:
        for record in self._store.list(CLUSTER_ROLE_BINDINGS):
            yield from self._binding(user, record.object, "ClusterRoleBinding", record.name, "")
        if namespace:
            for record in self._store.list(ROLE_BINDINGS, namespace):
                label = f"{record.name}/{namespace}"
                yield from self._binding(user, record.object, "RoleBinding", label, namespace)

    def _binding(self, user: User, binding: Object, kind: str, label: str, namespace: str) -> Iterator[Grant]:
        for subject in binding.get("subjects") or []:
            if _is_subject(user, subject, namespace):
                reference = binding.get("roleRef") or {}
                rules = self.rules_of(reference, namespace)
                shown = str(subject.get("name"))
                if subject.get("kind") == "ServiceAccount":
                    shown = f"{shown}/{subject.get('namespace') or namespace}"
                reason = (
                    f"RBAC: allowed by {kind} {status.quote(label)} of {reference.get('kind')} "
                    f"{status.quote(str(reference.get('name')))} to {subject.get('kind')} {status.quote(shown)}"
                )
                yield Grant(tuple(rules or ()), reason)
                return

    def rules_of(self, reference: Object, namespace: str) -> list[Rule] | None:
        """The rules behind a roleRef; None when the role does not exist."""
        name = str(reference.get("name"))
        if reference.get("kind") == "Role":
            record = self._store.get(ROLES, namespace, name)
        else:
            record = self._store.get(CLUSTER_ROLES, "", name)
        if record is None:
            return None
        rules = [Rule.of(rule) for rule in record.object.get("rules") or []]
        for selector in (record.object.get("aggregationRule") or {}).get("clusterRoleSelectors") or []:
            wanted = selector.get("matchLabels") or {}
            for other in self._store.list(CLUSTER_ROLES):
                labels = other.object["metadata"].get("labels") or {}
                if wanted and other.name != name and wanted.items() <= labels.items():
                    rules += [Rule.of(rule) for rule in other.object.get("rules") or []]
        return rules


def _is_subject(user: User, subject: Object, namespace: str) -> bool:
    name = subject.get("name")
    match subject.get("kind"):
        case "User":
            return name in ("*", user.name)
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return False


def question_of(info: RequestInfo) -> Question:
    """What a request asks for."""
    if not info.is_resource:
        return Question(info.verb, False, path=info.path)
    return Question(
        info.verb,
        True,
        info.group,
        info.resource,
        info.subresource,
        info.name or info.selected_name,
        info.namespace,
    )


def denied(user: User, question: Question) -> status.ApiStatus:
    """403 as the server words it."""
    if not question.is_resource:
        message = f"User {status.quote(user.name)} cannot {question.verb} path {status.quote(question.path)}"
        return status.ApiStatus(403, f"forbidden: {message}", "Forbidden", {})
    place = (
        f"in the namespace {status.quote(question.namespace)}"
        if question.namespace
        else "at the cluster scope"
    )
    message = (
        f"User {status.quote(user.name)} cannot {question.verb} resource {status.quote(question.combined)} "
        f"in API group {status.quote(question.group)} {place}"
    )
    return status.forbidden(question.resource, question.group, question.name, message)


# Escalation


def _atoms(rule: Rule) -> Iterator[Rule]:
    for verb in rule.verbs:
        for url in rule.urls:
            yield Rule((verb,), urls=(url,))
        for group, resource in product(rule.groups, rule.resources):
            for name in rule.names or ("",):
                yield Rule((verb,), (group,), (resource,), (name,) if name else ())


def _covers(owned: Rule, wanted: Rule) -> bool:
    """Whether one held rule grants one atom."""
    if not _has(owned.verbs, wanted.verbs[0]):
        return False
    if wanted.urls:
        return any(
            pattern in ("*", wanted.urls[0])
            or (pattern.endswith("*") and wanted.urls[0].startswith(pattern.rstrip("*")))
            for pattern in owned.urls
        )
    if not _has(owned.groups, wanted.groups[0]):
        return False
    resource = wanted.resources[0]
    subresource = resource.partition("/")[2]
    known = resource in owned.resources or "*" in owned.resources
    if not known and not (subresource and f"*/{subresource}" in owned.resources):
        return False
    return not owned.names or (bool(wanted.names) and wanted.names[0] in owned.names)


def missing(owned: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The wanted rules that are not held, verbs on the same thing joined."""
    held = list(owned)
    lacking: dict[Rule, list[str]] = {}
    for rule in wanted:
        for atom in _atoms(rule):
            if not any(_covers(candidate, atom) for candidate in held):
                target = Rule((), atom.groups, atom.resources, atom.names, atom.urls)
                verbs = lacking.setdefault(target, [])
                if atom.verbs[0] not in verbs:
                    verbs.append(atom.verbs[0])
    return [
        Rule(tuple(verbs), target.groups, target.resources, target.names, target.urls)
        for target, verbs in lacking.items()
    ]


class EscalationGate:
    """Keeps users from writing roles and bindings that grant more than they hold themselves."""

    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    def check(self, user: User, resource: str, namespace: str, new: Object, old: Object | None) -> None:
        """Raise 403 when the write would escalate; `resource` is the plural of the written kind."""
        if MASTERS in user.groups:
            return
        name = str(new["metadata"].get("name") or "")
        if resource in ("roles", "clusterroles"):
            if old is not None and old.get("rules") == new.get("rules"):
                return
            question = Question("escalate", True, GROUP, resource, "", name, namespace)
            rules = [Rule.of(rule) for rule in new.get("rules") or []]
        else:
            reference = new.get("roleRef") or {}
            if old is not None and (old.get("subjects"), old.get("roleRef")) == (
                new.get("subjects"),
                reference,
            ):
                return
            plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
            role = str(reference.get("name") or "")
            question = Question("bind", True, GROUP, plural, "", role, namespace)
            found = self._rbac.rules_of(reference, namespace)
            if found is None:
                if self._rbac.decide(user, question) is not None:
                    return
                raise status.not_found(plural, GROUP, role)
            rules = found
        if self._rbac.decide(user, question) is not None:
            return
        held = [rule for grant in self._rbac.grants(user, namespace) for rule in grant.rules]
        lacking = missing(held, rules)
        if lacking:
            groups = " ".join(status.quote(group) for group in user.groups)
            message = (
                f"user {status.quote(user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions not "
                "currently held:\n" + "\n".join(sorted(rule.compact() for rule in lacking))
            )
            raise status.forbidden(resource, GROUP, name, message)
