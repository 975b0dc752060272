"""Syntax of names, labels and annotations, and the validation of `metadata` on every write."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from captf_runtime.objects import Object, parse_time
from captf_runtime.testing.apiserver.schema.causes import Verbatim
from captf_runtime.testing.apiserver.status import (
    Cause,
    forbidden_value,
    invalid_value,
    quote,
    required,
)

ANNOTATIONS_LIMIT = 262_144
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_BASE = 58

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_label = re.compile(_LABEL)
_subdomain = re.compile(_SUBDOMAIN)
_qualified = re.compile(_QUALIFIED)
_config_key = re.compile(r"[-._a-zA-Z0-9]+")

SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN}')"
)
LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
    f"end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
QUALIFIED_MESSAGE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_label_value = re.compile(_LABEL_VALUE)
LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    f"validation is '{_LABEL_VALUE}')"
)
CONFIG_KEY_MESSAGE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)

NameRule = Callable[[str], list[str]]
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def _longer(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} characters"] if len(text) > limit else []


def subdomain(name: str) -> list[str]:
    """Problems of `name` as an RFC 1123 subdomain, the rule for most names."""
    return _longer(name, 253) + ([] if _subdomain.fullmatch(name) else [SUBDOMAIN_MESSAGE])


def label(name: str) -> list[str]:
    """Problems of `name` as an RFC 1123 label, the rule for namespaces."""
    return _longer(name, 63) + ([] if _label.fullmatch(name) else [LABEL_MESSAGE])


def path_segment(name: str) -> list[str]:
    """Problems of `name` as one segment of a URL path, the rule for RBAC names."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in name]


def qualified_name(text: str) -> list[str]:
    """Problems of a label key, annotation key or finalizer: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    problems: list[str] = []
    if slash:
        if "/" in prefix:
            return [
                f"a qualified name {QUALIFIED_MESSAGE} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ]
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {message}" for message in subdomain(prefix)]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 characters")
    if not _qualified.fullmatch(name):
        problems.append(f"name part {QUALIFIED_MESSAGE}")
    return problems


def label_value(text: str) -> list[str]:
    """Problems of a label's value."""
    return _longer(text, 63) + ([] if _label_value.fullmatch(text) else [LABEL_VALUE_MESSAGE])


def config_key(key: str) -> list[str]:
    """Problems of a key inside a Secret's or ConfigMap's data."""
    problems = _longer(key, 253)
    if not _config_key.fullmatch(key):
        problems.append(CONFIG_KEY_MESSAGE)
    if key in (".", ".."):
        problems.append(f"must not be '{key}'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def generate(base: str, choose: Callable[[str], str]) -> str:
    """A name from `generateName`; `choose` draws one character of the alphabet it is given."""
    return base[:_GENERATED_BASE] + "".join(choose(_SUFFIX_ALPHABET) for _ in range(5))


def validate_labels(labels: Mapping[str, str], path: str) -> list[Cause]:
    """Label keys and values."""
    causes: list[Cause] = []
    for key in sorted(labels):
        causes += [invalid_value(path, key, message) for message in qualified_name(key)]
        causes += [invalid_value(path, labels[key], message) for message in label_value(labels[key])]
    return causes


def validate_annotations(annotations: Mapping[str, str], path: str) -> list[Cause]:
    """Annotation keys (case is ignored) and their size in bytes, keys included."""
    causes: list[Cause] = []
    total = 0
    for key in sorted(annotations):
        causes += [invalid_value(path, key, message) for message in qualified_name(key.lower())]
        total += len(key.encode()) + len(annotations[key].encode())
    if total > ANNOTATIONS_LIMIT:
        causes.append(
            Cause("FieldValueTooLong", f"Too long: must have at most {ANNOTATIONS_LIMIT} bytes", path)
        )
    return causes


def _owner_shown(reference: Object) -> str:
    """A reference as the server prints its own struct, with made-up addresses for what it points to."""

    def pointer(name: str) -> str:
        return "(*bool)(nil)" if reference.get(name) is None else "(*bool)(0xc000000000)"

    parts = ", ".join(
        f"{label}:{quote(str(reference.get(name) or ''))}"
        for label, name in (("APIVersion", "apiVersion"), ("Kind", "kind"), ("Name", "name"), ("UID", "uid"))
    )
    controller, block = pointer("controller"), pointer("blockOwnerDeletion")
    return f"v1.OwnerReference{{{parts}, Controller:{controller}, BlockOwnerDeletion:{block}}}"


def _validate_owners(references: list[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    controller = ""
    for reference in references:
        api_version = str(reference.get("apiVersion") or "")
        if not api_version.rpartition("/")[2]:
            causes.append(invalid_value(f"{path}.apiVersion", api_version, "version must not be empty"))
        for part in ("kind", "name", "uid"):
            if not reference.get(part):
                causes.append(invalid_value(f"{path}.{part}", "", f"{part} must not be empty"))
        if api_version == "v1" and reference.get("kind") == "Event":
            shown = Verbatim(_owner_shown(reference))
            causes.append(invalid_value(path, shown, "/v1, Kind=Event is disallowed from being an owner"))
        if reference.get("controller"):
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {reference.get('name')}"
                )
                listed = ", ".join(_owner_shown(each) for each in references)
                causes.append(invalid_value(path, Verbatim(f"[]v1.OwnerReference{{{listed}}}"), detail))
            controller = str(reference.get("name"))
    return causes


def validate_finalizers(finalizers: list[str], path: str, *, builtin: bool) -> list[Cause]:
    """Finalizers are qualified names; built-in kinds also demand a prefix on all but the standard ones."""
    causes: list[Cause] = []
    for finalizer in finalizers:
        causes += [invalid_value(path, finalizer, message) for message in qualified_name(finalizer)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        causes.append(
            invalid_value(
                path, _strings(finalizers), "finalizer orphan and foregroundDeletion cannot be both set"
            )
        )
    if builtin:
        for index, finalizer in enumerate(finalizers):
            if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
                causes.append(
                    invalid_value(
                        f"{path}[{index}]",
                        finalizer,
                        "name is neither a standard finalizer name nor is it fully qualified",
                    )
                )
    return causes


def validate_namespace_finalizer(finalizer: str, path: str) -> list[Cause]:
    """A finalizer in the spec of a namespace: a qualified name, with a prefix or a standard one."""
    causes = [invalid_value(path, finalizer, message) for message in qualified_name(finalizer)]
    if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        causes.append(invalid_value(path, finalizer, detail))
    return causes


def _strings(values: list[str]) -> Verbatim:
    return Verbatim(f"[]string{{{', '.join(quote(value) for value in values)}}}")


def validate_metadata(
    metadata: Object, *, namespaced: bool, rule: NameRule, builtin: bool, path: str = "metadata"
) -> list[Cause]:
    """All rules of `metadata` that hold for create and update alike."""
    causes: list[Cause] = []
    name = metadata.get("name") or ""
    base = metadata.get("generateName") or ""
    if base:
        # The base may end in what a whole name may not: a suffix always follows.
        causes += [
            invalid_value(f"{path}.generateName", base, message) for message in rule(base.rstrip("-.") or "a")
        ]
    if not name:
        causes.append(required(f"{path}.name", "name or generateName is required"))
    else:
        causes += [invalid_value(f"{path}.name", name, message) for message in rule(name)]
    namespace = metadata.get("namespace") or ""
    if namespaced:
        if not namespace:
            causes.append(required(f"{path}.namespace"))
        else:
            causes += [invalid_value(f"{path}.namespace", namespace, m) for m in label(namespace)]
    elif namespace:
        causes.append(forbidden_value(f"{path}.namespace", "not allowed on this type"))
    generation = metadata.get("generation") or 0
    if generation < 0:
        causes.append(invalid_value(f"{path}.generation", generation, "must be greater than or equal to 0"))
    causes += validate_labels(metadata.get("labels") or {}, f"{path}.labels")
    causes += validate_annotations(metadata.get("annotations") or {}, f"{path}.annotations")
    causes += _validate_owners(metadata.get("ownerReferences") or [], f"{path}.ownerReferences")
    causes += validate_finalizers(metadata.get("finalizers") or [], f"{path}.finalizers", builtin=builtin)
    return causes


_IMMUTABLE = "field is immutable"
_FIXED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_metadata_update(new: Object, old: Object, path: str = "metadata") -> list[Cause]:
    """Rules of `metadata` for a change; fields of the deletion were carried over before."""
    causes: list[Cause] = []
    if old.get("deletionTimestamp"):
        known = old.get("finalizers") or []
        added = sorted({f for f in new.get("finalizers") or [] if f not in known})
        if added:
            detail = "no new finalizers can be added if the object is being deleted"
            listed = _strings(added).text
            causes.append(forbidden_value(f"{path}.finalizers", f"{detail}, found new finalizers {listed}"))
    if (new.get("generation") or 0) < (old.get("generation") or 0):
        causes.append(invalid_value(f"{path}.generation", new.get("generation"), "must not be decremented"))
    for part in _FIXED:
        if (new.get(part) or None) != (old.get(part) or None):
            shown: object = new.get(part)
            if part.endswith("Timestamp") and isinstance(shown, str):
                shown = Verbatim(f"{parse_time(shown):%Y-%m-%d %H:%M:%S +0000 UTC}")
            causes.append(invalid_value(f"{path}.{part}", shown, _IMMUTABLE))
    return causes
