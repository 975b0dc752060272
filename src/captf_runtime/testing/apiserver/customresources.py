"""CustomResourceDefinitions: their own rules, and the resources that they make the server serve."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable
from datetime import datetime

from captf_runtime.objects import Object, format_time
from captf_runtime.testing.apiserver import tables
from captf_runtime.testing.apiserver.kinds.base import Mode, Strategy, WriteContext
from captf_runtime.testing.apiserver.resources import STATUS, Column, Registry, Resource
from captf_runtime.testing.apiserver.schema import CompiledSchema, compile_schema, default_crd, validate_crd
from captf_runtime.testing.apiserver.status import Cause, quote

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
TABLE = "customresourcedefinitions.apiextensions.k8s.io"


_step = re.compile(r"""\.((?:\\.|[^.\[\]\\])+)|\[(\d+)\]""")
_quoted = re.compile(r"""\[['"]([^'"]+)['"]\]""")


def path_value(obj: Object, path: str) -> object:
    r"""The value at a simple JSON path such as .status.phase, .metadata.labels['a'] or .items[0]; None if absent.

    As for kubectl, ['a'] is another way to write .a: a dot that belongs to the name is written \. in both.
    """
    found: object = obj
    for name, index in _step.findall(_quoted.sub(r".\1", path)):
        if index:
            if not isinstance(found, list) or int(index) >= len(found):
                return None
            found = found[int(index)]
            continue
        key = re.sub(r"\\(.)", r"\1", name)
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


_filter = re.compile(r"(?P<head>.*)\[\?\(@\.(?P<key>\w+)\s*==\s*['\"](?P<value>[^'\"]*)['\"]\)\](?P<rest>.*)")


def column_value(obj: Object, path: str) -> object:
    """As `path_value`, with one filter such as .status.conditions[?(@.type=="Ready")].status."""
    found = _filter.fullmatch(path)
    if found is None:
        return path_value(obj, path)
    entries = path_value(obj, found["head"])
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get(found["key"]) == found["value"]:
            return path_value(entry, found["rest"]) if found["rest"] else entry
    return None


def _cell(path: str, kind: str) -> Callable[[Object, datetime], object]:
    def read(obj: Object, now: datetime) -> object:
        value = column_value(obj, path)
        if value is None:
            return None
        if kind == "date":
            return tables.since(value, now) if isinstance(value, str) else "<unknown>"
        if kind == "string" and not isinstance(value, str):
            return str(value).lower() if isinstance(value, bool) else str(value)
        return value

    return read


def columns_of(version: Object) -> tuple[Column, ...]:
    """The columns of a CRD version: the name, its printer columns or the age."""
    defined = version.get("additionalPrinterColumns") or []
    if not defined:
        return (tables.NAME, tables.CUSTOM_AGE)
    return (
        tables.NAME,
        *(
            Column(
                str(column.get("name", "")),
                str(column.get("type", "string")),
                _cell(str(column.get("jsonPath", "")), str(column.get("type", "string"))),
                str(column.get("format", "")),
                int(column.get("priority") or 0),
                str(
                    column.get("description")
                    or f"Custom resource definition column (in JSONPath format): {column.get('jsonPath', '')}"
                ),
            )
            for column in defined
        ),
    )


_serials = itertools.count(1)


class CustomResourceStrategy(Strategy):
    """Custom resources of one version: pruned, defaulted and validated by its schema, when it has one."""

    generation_modes: tuple[Mode, ...] = ("modern", "1.20")
    unconditional_update = False

    def __init__(self, definition: Object, version: Object, schema: CompiledSchema | None) -> None:
        self.serial = next(_serials)
        self.schema = schema
        self.status = bool((version.get("subresources") or {}).get("status") is not None)
        self.selectable = tuple(
            str(entry.get("jsonPath", "")).removeprefix(".")
            for entry in version.get("selectableFields") or []
        )
        names_of = definition["spec"]["names"]
        self.head: Object = {
            "apiVersion": f"{definition['spec']['group']}/{version['name']}",
            "kind": names_of["kind"],
        }

    def _with_head(self, obj: Object) -> Object:
        return {**self.head, **obj}

    def decode(self, obj: Object) -> None:
        if self.schema is not None:
            whole = self._with_head(obj)
            self.schema.prune(whole)
            _take_back(obj, whole)

    def default(self, obj: Object, context: WriteContext) -> None:
        if self.schema is not None:
            whole = self._with_head(obj)
            self.schema.apply_defaults(whole)
            _take_back(obj, whole)

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        # Changes are validated with the old object beside them, see validate_update.
        if self.schema is None or (obj["metadata"].get("resourceVersion") or "") != "":
            return []
        return self.schema.validate(self._with_head(obj))

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        if self.schema is None:
            return []
        return self.schema.validate(self._with_head(obj), self._with_head(old))

    def validate_status(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        return self.validate_update(obj, old, context)

    def view(self, obj: Object) -> Object:
        if self.schema is None:
            return obj
        # Defaults that a schema gained later are seen on read, too.
        whole = self._with_head(copy.deepcopy(obj))
        self.schema.apply_defaults(whole)
        return (
            obj if whole == {**self.head, **obj} else {k: v for k, v in whole.items() if k not in self.head}
        )

    def fields(self, obj: Object) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in self.selectable:
            value = path_value(obj, f".{path}")
            found[path] = (
                "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            )
        return found

    def field_names(self) -> tuple[str, ...]:
        return self.selectable

    def unknown_field(self, field: str) -> str:
        return f"field label not supported: {field}"


def _take_back(obj: Object, whole: Object) -> None:
    obj.clear()
    obj.update({key: value for key, value in whole.items() if key not in ("apiVersion", "kind")})


_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""In the order in which discovery names them for custom resources."""


def resources_of(definition: Object, mode: Mode) -> list[Resource]:
    """The resources that an accepted definition serves, one for each served version."""
    spec = definition["spec"]
    accepted = (definition.get("status") or {}).get("acceptedNames") or spec["names"]
    found: list[Resource] = []
    for version in spec.get("versions") or []:
        if not version.get("served"):
            continue
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        compiled = compile_schema(schema, mode=mode) if schema else None
        subresources = version.get("subresources") or {}
        found.append(
            Resource(
                spec["group"],
                version["name"],
                accepted["plural"],
                accepted["kind"],
                CustomResourceStrategy(definition, version, compiled),
                namespaced=spec.get("scope") == "Namespaced",
                singular=accepted.get("singular") or accepted["kind"].lower(),
                short_names=tuple(accepted.get("shortNames") or ()),
                categories=tuple(accepted.get("categories") or ()),
                subresources=(STATUS,) if "status" in subresources else (),
                list_kind=accepted.get("listKind") or f"{accepted['kind']}List",
                custom=True,
                columns=columns_of(version),
                verbs=_VERBS,
            )
        )
    return found


class DefinitionStrategy(Strategy):
    """CRDs: names are accepted and established at once, as the controllers of the real server soon do."""

    generation_modes: tuple[Mode, ...] = ("modern", "1.20")
    unconditional_update = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def prepare_create(self, obj: Object, context: WriteContext) -> None:
        obj["status"] = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}}
        default_crd(obj)
        self._accept(obj, context)

    def prepare_update(self, obj: Object, old: Object, context: WriteContext) -> None:
        default_crd(obj)
        state = obj["status"] = copy.deepcopy(old.get("status") or {})
        stored = list(state.get("storedVersions") or [])
        for version in (obj.get("spec") or {}).get("versions") or []:
            if version.get("storage") and version.get("name") not in stored:
                stored.append(version.get("name"))
        state["storedVersions"] = stored
        self._accept(obj, context)

    def _accept(self, obj: Object, context: WriteContext) -> None:
        spec, state = obj.get("spec") or {}, obj["status"]
        wanted = spec.get("names") or {}
        clash = self._clash(spec, wanted)
        now = format_time(context.now)
        if clash:
            accepted = ("NamesAccepted", "False", *clash)
            established = ("Established", "False", "NotAccepted", "not all names are accepted")
        else:
            accepted = ("NamesAccepted", "True", "NoConflicts", "no conflicts found")
            established = (
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            )
            state["acceptedNames"] = {
                key: value
                for key, value in (
                    ("plural", wanted.get("plural")),
                    ("singular", wanted.get("singular")),
                    ("shortNames", wanted.get("shortNames")),
                    ("kind", wanted.get("kind")),
                    ("listKind", wanted.get("listKind")),
                    ("categories", wanted.get("categories")),
                )
                if value
            }
        state["conditions"] = [
            _condition(state, *accepted, now=now),
            _condition(state, *established, now=now),
            *(
                c
                for c in state.get("conditions") or []
                if c.get("type") not in ("NamesAccepted", "Established")
            ),
        ]

    def _clash(self, spec: Object, wanted: Object) -> tuple[str, str] | None:
        table = f"{wanted.get('plural')}.{spec.get('group')}"
        for version in self._registry.groups().get(str(spec.get("group")), ()):
            for other in self._registry.of_version(str(spec.get("group")), version):
                if other.storage == table:
                    continue
                if other.kind == wanted.get("kind"):
                    return ("KindConflict", f"{quote(str(wanted.get('kind')))} is already in use")
                if other.list_kind == wanted.get("listKind"):
                    return ("ListKindConflict", f"{quote(str(wanted.get('listKind')))} is already in use")
                taken = set(other.short_names) & set(wanted.get("shortNames") or ())
                if taken:
                    return ("ShortNamesConflict", f"{quote(sorted(taken)[0])} is already in use")
        return None

    def begin_delete(self, obj: Object, now: datetime) -> None:
        metadata = obj["metadata"]
        metadata["finalizers"] = [*(metadata.get("finalizers") or []), FINALIZER]
        set_terminating(
            obj,
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            now,
        )

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        # Changes are judged with the old definition beside them, see validate_update.
        return [] if obj["metadata"].get("resourceVersion") else validate_crd(obj, mode=context.mode)

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        return validate_crd(obj, old, mode=context.mode)


def _condition(state: Object, kind: str, value: str, reason: str, message: str, *, now: str) -> Object:
    for present in state.get("conditions") or []:
        if present.get("type") == kind and present.get("status") == value and present.get("reason") == reason:
            kept: Object = dict(present)
            return kept
    return {"type": kind, "status": value, "lastTransitionTime": now, "reason": reason, "message": message}


def set_terminating(definition: Object, reason: str, message: str, now: datetime) -> None:
    """Set the condition that tells how far the deletion of a definition is."""
    state = definition["status"] = dict(definition.get("status") or {})
    others = [c for c in state.get("conditions") or [] if c.get("type") != "Terminating"]
    condition = _condition(state, "Terminating", "True", reason, message, now=format_time(now))
    state["conditions"] = [*others, condition]


def is_terminating(definition: Object) -> bool:
    """Whether the definition is being deleted: nothing new of its kind is accepted then."""
    return bool(definition["metadata"].get("deletionTimestamp"))


def is_established(definition: Object) -> bool:
    """Whether the definition's resources are served."""
    return any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in (definition.get("status") or {}).get("conditions") or []
    )
