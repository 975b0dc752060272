"""Kubernetes objects as plain dictionaries: kinds, keys, metadata accessors, times, label selectors.

An object is the `dict` that the JSON decoder returned, so a field that this library does not know
survives a read-modify-write unchanged. Everything here is pure: no function keeps, changes or fetches
an object. Accessors are tolerant of absent fields (an object straight from a manifest has no uid) and
return an empty value for them; they never invent one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, cast

Object: TypeAlias = dict[str, Any]
"""An unstructured Kubernetes object, exactly as decoded from JSON."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A registered kind: what is needed to address its objects over HTTP.

    Args:
        group: API group, "" for the core group.
        version: version within the group, such as "v1".
        kind: the name in CamelCase, such as "Secret".
        plural: the resource name in paths and RBAC rules, such as "secrets".
        namespaced: False for cluster-scoped kinds.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of an object's `apiVersion`: "v1" or "group/version"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path_prefix(self) -> str:
        """The path of the group version: "/api/v1" or "/apis/group/version"."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def resource(self) -> str:
        """The resource with its group, as error messages and kubectl write it: "secrets", "jobs.batch"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of a collection, an object or a subresource.

        A namespaced kind with no namespace gives the path over all namespaces, which only serves
        reads of collections; the caller decides whether that is allowed. A namespace given for a
        cluster-scoped kind is ignored.
        """
        parts = [self.path_prefix]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
            if subresource:
                parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return self.resource


def check_kind(kind: object) -> None:
    """Refuse whatever is no `Kind`.

    Raises:
        TypeError: with what to give instead.
    """
    if not isinstance(kind, Kind):
        raise TypeError(
            f"kind: must be a Kind, got {kind!r}: take a constant such as captf_runtime.objects.CONFIG_MAP, make "
            'one with Kind(group, version, kind, plural), or ask client.kind("v1", "ConfigMap")'
        )


class ObjectKey(NamedTuple):
    """Namespace and name of an object of a known kind; the namespace is "" for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """One entry of `metadata.ownerReferences`."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False

    @property
    def group(self) -> str:
        """The API group of the owner, "" for the core group."""
        return group_of(self.api_version)

    def to_dict(self) -> Object:
        """Return the reference as the API writes it; false flags are left out."""
        reference: Object = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
        }
        if self.controller:
            reference["controller"] = True
        if self.block_owner_deletion:
            reference["blockOwnerDeletion"] = True
        return reference

    @classmethod
    def from_dict(cls, reference: Mapping[str, Any]) -> OwnerReference:
        """Read a reference from an object; absent fields become empty."""
        return cls(
            api_version=_text(reference.get("apiVersion")),
            kind=_text(reference.get("kind")),
            name=_text(reference.get("name")),
            uid=_text(reference.get("uid")),
            controller=reference.get("controller") is True,
            block_owner_deletion=reference.get("blockOwnerDeletion") is True,
        )


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
SECRET = Kind("", "v1", "Secret", "secrets")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
POD = Kind("", "v1", "Pod", "pods")
SERVICE = Kind("", "v1", "Service", "services")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
EVENT = Kind("", "v1", "Event", "events")
EVENTS_V1 = Kind("events.k8s.io", "v1", "Event", "events")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
JOB = Kind("batch", "v1", "Job", "jobs")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
VALIDATING_WEBHOOK_CONFIGURATION = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
SELF_SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
SELF_SUBJECT_RULES_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False
)
LOCAL_SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews"
)

WELL_KNOWN_KINDS: tuple[Kind, ...] = (
    NAMESPACE,
    NODE,
    SECRET,
    CONFIG_MAP,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    EVENT,
    EVENTS_V1,
    LEASE,
    JOB,
    DEPLOYMENT,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    TOKEN_REVIEW,
    SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
)


def group_of(api_version: str) -> str:
    """Return the group of an `apiVersion`: "batch" of "batch/v1", "" of "v1"."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _string_map(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {key: text for key, text in value.items() if isinstance(key, str) and isinstance(text, str)}


def metadata(obj: Mapping[str, Any]) -> Object:
    """Return the object's own `metadata` dictionary, or a fresh empty one when there is none.

    A change to the result changes the object only when the object has a `metadata`.
    """
    found = obj.get("metadata")
    return cast(Object, found) if isinstance(found, dict) else {}


def name_of(obj: Mapping[str, Any]) -> str:
    """Return `metadata.name`, "" when absent."""
    return _text(metadata(obj).get("name"))


def namespace_of(obj: Mapping[str, Any]) -> str:
    """Return `metadata.namespace`, "" when absent."""
    return _text(metadata(obj).get("namespace"))


def key_of(obj: Mapping[str, Any]) -> ObjectKey:
    """Return namespace and name of the object."""
    return ObjectKey(namespace_of(obj), name_of(obj))


def uid_of(obj: Mapping[str, Any]) -> str:
    """Return `metadata.uid`, "" when absent."""
    return _text(metadata(obj).get("uid"))


def kind_name_of(obj: Mapping[str, Any]) -> str:
    """Return the object's `kind`, "" when absent."""
    return _text(obj.get("kind"))


def api_version_of(obj: Mapping[str, Any]) -> str:
    """Return the object's `apiVersion`, "" when absent."""
    return _text(obj.get("apiVersion"))


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return a copy of the labels."""
    return _string_map(metadata(obj).get("labels"))


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return a copy of the annotations."""
    return _string_map(metadata(obj).get("annotations"))


def resource_version_of(obj: Mapping[str, Any]) -> str:
    """Return `metadata.resourceVersion`, "" when absent."""
    return _text(metadata(obj).get("resourceVersion"))


def generation_of(obj: Mapping[str, Any]) -> int:
    """Return `metadata.generation`, 0 for kinds that have none."""
    generation = metadata(obj).get("generation")
    return generation if isinstance(generation, int) else 0


def finalizers_of(obj: Mapping[str, Any]) -> list[str]:
    """Return a copy of the finalizers, in their order."""
    found = metadata(obj).get("finalizers")
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def has_finalizer(obj: Mapping[str, Any], finalizer: str) -> bool:
    """Say whether the object bears the finalizer."""
    return finalizer in finalizers_of(obj)


def owner_references(obj: Mapping[str, Any]) -> list[OwnerReference]:
    """Return the owner references, in their order."""
    found = metadata(obj).get("ownerReferences")
    if not isinstance(found, list):
        return []
    return [OwnerReference.from_dict(reference) for reference in found if isinstance(reference, dict)]


def controller_of(obj: Mapping[str, Any]) -> OwnerReference | None:
    """Return the owner reference whose `controller` is true, if there is one."""
    return next((reference for reference in owner_references(obj) if reference.controller), None)


def is_controlled_by(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Say whether `owner` is the controller of `obj`, by uid. An owner without a uid controls nothing."""
    controller = controller_of(obj)
    return controller is not None and controller.uid != "" and controller.uid == uid_of(owner)


def deletion_timestamp_of(obj: Mapping[str, Any]) -> datetime | None:
    """Return `metadata.deletionTimestamp`, None when the object is not being deleted."""
    return _optional_time(metadata(obj).get("deletionTimestamp"))


def creation_timestamp_of(obj: Mapping[str, Any]) -> datetime | None:
    """Return `metadata.creationTimestamp`, None on an object that no server has stored."""
    return _optional_time(metadata(obj).get("creationTimestamp"))


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Say whether the object bears a deletionTimestamp."""
    return bool(metadata(obj).get("deletionTimestamp"))


def owner_reference_to(
    owner: Mapping[str, Any], *, controller: bool = False, block_owner_deletion: bool = False
) -> OwnerReference:
    """Return a reference to `owner`, which must come from a server.

    Raises:
        ValueError: `owner` lacks kind, apiVersion, name or uid, without which a reference is invalid.
    """
    reference = OwnerReference(
        api_version=api_version_of(owner),
        kind=kind_name_of(owner),
        name=name_of(owner),
        uid=uid_of(owner),
        controller=controller,
        block_owner_deletion=block_owner_deletion,
    )
    for field, value in (
        ("apiVersion", reference.api_version),
        ("kind", reference.kind),
        ("metadata.name", reference.name),
        ("metadata.uid", reference.uid),
    ):
        if not value:
            raise ValueError(f"an owner reference needs {field} of the owner: read the owner from the server")
    return reference


# Times ---------------------------------------------------------------------------------------------

_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(?:\.(\d{1,12}))?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 timestamp and return it in UTC.

    Digits past the microsecond are cut.

    Raises:
        ValueError: the text is not a timestamp with a time zone.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 timestamp such as 2026-09-25T12:00:00Z: {text[:64]!r}")
    day, time, fraction, zone = match.groups()
    micro = (fraction or "")[:6].ljust(6, "0")
    offset = "+00:00" if zone in ("Z", "z") else zone
    try:
        return datetime.fromisoformat(f"{day}T{time}.{micro}{offset}").astimezone(UTC)
    except OverflowError:
        # The first and the last day have no time in UTC for every offset.
        raise ValueError(f"a timestamp outside of the years 1 to 9999: {text[:64]!r}") from None


def format_time(time: datetime) -> str:
    """Write a time as Kubernetes' `Time`: UTC, whole seconds (fractions are cut), "2026-09-25T12:00:00Z".

    Raises:
        ValueError: the time has no time zone.
    """
    return _utc(time).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(time: datetime) -> str:
    """Write a time as Kubernetes' `MicroTime`: UTC with exactly six fractional digits and "Z".

    Raises:
        ValueError: the time has no time zone.
    """
    return _utc(time).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise ValueError("a time without a time zone is ambiguous: pass one in UTC")
    return time.astimezone(UTC)


def _optional_time(value: object) -> datetime | None:
    return parse_time(value) if isinstance(value, str) and value else None


# Label selectors -----------------------------------------------------------------------------------

_OPERATORS = frozenset({"exists", "absent", "in", "notin", "gt", "lt"})
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


def is_label_key(text: str) -> bool:
    """Say whether the text may be the key of a label: an optional DNS prefix and "/", then a name."""
    prefix, slash, name = text.rpartition("/")
    if slash and not _LABEL_PREFIX.fullmatch(prefix):
        return False
    return _LABEL_NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Say whether the text may be the value of a label: empty, or at most 63 name characters."""
    return text == "" or _LABEL_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition of a label selector.

    `operator` is one of `exists`, `absent`, `in`, `notin`, `gt`, `lt`. `notin` also matches objects
    without the label; `gt` and `lt` compare integers and match nothing else.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.operator not in _OPERATORS:
            raise ValueError(f"label selector: unknown operator {self.operator!r}")
        if not is_label_key(self.key):
            raise ValueError(f"label selector: {self.key[:300]!r} is not a label key")
        if self.operator in ("in", "notin") and not self.values:
            raise ValueError(
                f"label selector: operator {self.operator} on {self.key} needs at least one value"
            )
        for value in self.values:
            if not is_label_value(value):
                raise ValueError(f"label selector: {value[:100]!r} is not a label value (key {self.key})")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether an object with these labels meets the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case _:
                left, right = _integer(value), _integer(self.values[0])
                if left is None or right is None:
                    return False
                return left > right if self.operator == "gt" else left < right

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "absent":
                return f"!{self.key}"
            case "gt":
                return f"{self.key}>{self.values[0]}"
            case "lt":
                return f"{self.key}<{self.values[0]}"
            case _ if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator == 'in' else '!='}{self.values[0]}"
            case _:
                return f"{self.key} {self.operator} ({','.join(self.values)})"


def _integer(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII):
        return None
    return int(text)


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector: all requirements must hold; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether an object with these labels is selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING = Selector()

_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")


def parse_label_selector(text: str) -> Selector:
    """Read a label selector as query parameters and kubectl write it.

    Forms: `a`, `!a`, `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a>1`, `a<1`, joined by
    commas. The empty text selects everything.

    Raises:
        ValueError: the text is not a selector; the message names the part.
    """
    tokens = _tokens(text)
    if not tokens:
        return EVERYTHING
    requirements: list[Requirement] = []
    position = 0
    while True:
        requirement, position = _requirement(tokens, position, text)
        requirements.append(requirement)
        if position == len(tokens):
            return Selector(tuple(requirements))
        if tokens[position] != ",":
            raise ValueError(f"label selector {text!r}: expected ',' before {tokens[position]!r}")
        position += 1


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"label selector {text!r}: cannot read {text[position:]!r}")
        found.append(match.group(1))
        position = match.end()
    return found


def _requirement(tokens: list[str], position: int, text: str) -> tuple[Requirement, int]:
    def token(at: int) -> str:
        return tokens[at] if at < len(tokens) else ""

    if token(position) == "!":
        return Requirement(token(position + 1), "absent"), position + 2
    key, operator = token(position), token(position + 1)
    if operator in ("", ","):
        return Requirement(key, "exists"), position + 1
    if operator in ("=", "==", "!="):
        value = token(position + 2)
        name = "notin" if operator == "!=" else "in"
        if value in ("", ","):  # "a=" asks for the empty value
            return Requirement(key, name, ("",)), position + 2
        return Requirement(key, name, (value,)), position + 3
    if operator in ("<", ">"):
        value = token(position + 2)
        if _integer(value) is None:
            raise ValueError(f"label selector {text!r}: {operator} needs an integer, not {value!r}")
        return Requirement(key, "gt" if operator == ">" else "lt", (value,)), position + 3
    if operator in ("in", "notin"):
        values, position = _value_list(tokens, position + 2, text)
        return Requirement(key, operator, values), position
    raise ValueError(f"label selector {text!r}: unknown operator {operator!r} after {key!r}")


def _value_list(tokens: list[str], position: int, text: str) -> tuple[tuple[str, ...], int]:
    def token(at: int) -> str:
        return tokens[at] if at < len(tokens) else ""

    if token(position) != "(":
        raise ValueError(f"label selector {text!r}: expected '(' and a list of values")
    position += 1
    values: list[str] = []
    while True:
        value = token(position)
        if value in (",", ")"):
            values.append("")
        elif value == "":
            raise ValueError(f"label selector {text!r}: the list of values is not closed")
        else:
            values.append(value)
            position += 1
        separator = token(position)
        position += 1
        if separator == ")":
            return tuple(dict.fromkeys(values)), position
        if separator != ",":
            raise ValueError(f"label selector {text!r}: expected ',' or ')' in the list of values")


_EXPRESSION_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


def selector_from(label_selector: Mapping[str, Any] | None) -> Selector:
    """Read the `LabelSelector` structure of an object's spec (`matchLabels`, `matchExpressions`).

    An empty or absent structure selects everything; a caller for whom absent means "nothing" must ask
    first.

    Raises:
        ValueError: a field has the wrong shape; the message names it.
    """
    requirements: list[Requirement] = []
    structure = label_selector or {}
    labels = structure.get("matchLabels") or {}
    expressions = structure.get("matchExpressions") or []
    if not isinstance(labels, dict):
        raise ValueError("matchLabels must be a map of label keys to values")
    if not isinstance(expressions, list):
        raise ValueError("matchExpressions must be a list")
    for key, value in sorted(labels.items()):
        if not isinstance(value, str):
            raise ValueError(f"matchLabels[{key}] must be a string")
        requirements.append(Requirement(key, "in", (value,)))
    for index, expression in enumerate(expressions):
        if not isinstance(expression, dict):
            raise ValueError(f"matchExpressions[{index}] must be an object")
        operator = _EXPRESSION_OPERATORS.get(_text(expression.get("operator")))
        if operator is None:
            raise ValueError(
                f"matchExpressions[{index}].operator must be one of {', '.join(_EXPRESSION_OPERATORS)}"
            )
        values = tuple(_text(value) for value in expression.get("values") or ())
        if operator in ("exists", "absent") and values:
            raise ValueError(f"matchExpressions[{index}].values must be empty for this operator")
        requirements.append(Requirement(_text(expression.get("key")), operator, values))
    return Selector(tuple(requirements))


def selector_for(labels: Mapping[str, str] | Iterable[tuple[str, str]]) -> Selector:
    """Return the selector of objects that bear all of these labels."""
    pairs = sorted(labels.items()) if isinstance(labels, Mapping) else sorted(labels)
    return Selector(tuple(Requirement(key, "in", (value,)) for key, value in pairs))


# Versions ------------------------------------------------------------------------------------------


def compare_resource_versions(left: str, right: str) -> int | None:
    """Compare two resource versions: -1, 0 or 1, or None when one is not decimal.

    Versions compare as integers of any size; this holds for versions of one kind from one server.
    """
    if not (_is_decimal(left) and _is_decimal(right)):
        return None
    # Longer without leading zeros is larger: no conversion, so no limit on the number of digits.
    a, b = left.lstrip("0"), right.lstrip("0")
    if len(a) != len(b):
        return 1 if len(a) > len(b) else -1
    return (a > b) - (a < b)


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()
