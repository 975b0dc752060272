"""User variables: names that may be used, and how inline values and sources merge. Pure.

Invariants:
- no message holds a value: it names the variable, the source and the key;
- equal values give equal results, whatever the order of keys in a source.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from captf_controllers.api import conditions as types
from captf_controllers.api import labels, reasons
from captf_controllers.api.canonical import Json, JsonError, canonical_any_number, parse
from captf_controllers.api.kinds import Role
from captf_controllers.api.workspace import VariablesSource
from captf_runtime.objects import labels_of

from .contract import CONTRACT_INPUTS
from .gate import Gate

META_ARGUMENTS: Final = (
    "source",
    "version",
    "providers",
    "count",
    "for_each",
    "depends_on",
    "lifecycle",
    "locals",
)
"""Names that mean something else in a module call."""

RESERVED_PREFIX: Final = "captf_"
MAX_VARIABLES: Final = 256
NAME_PATTERN: Final = "^[a-zA-Z_][a-zA-Z0-9_-]*$"

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]*", re.ASCII)
_SHOWN = 128


def variable_name_problem(role: Role, name: str) -> str | None:
    """Return what is wrong with the name of a user variable, None when it may be used.

    The message is written to follow the name.
    """
    if not _NAME.fullmatch(name):
        return f"must match {NAME_PATTERN}"
    if name.startswith(RESERVED_PREFIX):
        return f"must not start with {RESERVED_PREFIX}, which is reserved"
    if name in META_ARGUMENTS:
        return "is a meta-argument of a module call"
    if name in CONTRACT_INPUTS[role]:
        return f"is an input of the module contract for the role {role}"
    return None


def shown_name(name: str) -> str:
    """Return a variable's name as a message shows it: quoted, printable and bounded."""
    text = "".join(char if char.isprintable() else "\ufffd" for char in name[:_SHOWN])
    return f'"{text}…"' if len(name) > _SHOWN else f'"{text}"'


@dataclass(frozen=True, slots=True)
class Variables:
    """Merged user variables.

    Args:
        values: value by name; empty when the object has no variables.
        sensitive: names of those whose value came from a Secret.
    """

    values: Mapping[str, Json] = field(default_factory=dict, repr=False)
    sensitive: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SourceRef:
    """What an entry of `variablesFrom` refers to."""

    index: int
    kind: str
    name: str
    optional: bool
    json: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.name} (spec.variablesFrom[{self.index}])"


def source_refs(sources: Sequence[VariablesSource] | None) -> tuple[SourceRef, ...]:
    """Return what the entries of `variablesFrom` refer to.

    Raises:
        ValueError: an entry names not exactly one source, which admission refuses.
    """
    found: list[SourceRef] = []
    for index, source in enumerate(sources or ()):
        refs = [
            (kind, ref)
            for kind, ref in (("ConfigMap", source.config_map_ref), ("Secret", source.secret_ref))
            if ref is not None
        ]
        if len(refs) != 1:
            raise ValueError(
                f"spec.variablesFrom[{index}] must name exactly one of configMapRef and secretRef"
            )
        kind, ref = refs[0]
        found.append(SourceRef(index, kind, ref.name, bool(source.optional), source.format == "JSON"))
    return tuple(found)


def merge_variables(
    role: Role,
    inline: Any,
    sources: Sequence[tuple[SourceRef, Mapping[str, Any] | None]],
) -> Variables | Gate:
    """Merge sources in their order, then the inline variables over them.

    Args:
        role: the module's role.
        inline: `spec.variables` as stored, `msgspec.UNSET` when it is absent.
        sources: each source with the object that it refers to, None when that does not exist.

    Returns:
        The variables, or the gate that the first problem closes.
    """
    values: dict[str, Json] = {}
    sensitive: set[str] = set()
    for ref, found in sources:
        if found is None or labels_of(found).get(labels.VARIABLES) != labels.TRUE:
            if ref.optional:
                continue
            why = "does not exist" if found is None else f"lacks the label {labels.VARIABLES}=true"
            return Gate(types.FALSE, reasons.VARIABLES_SOURCE_NOT_FOUND, f"{ref} {why}")
        for name, raw in _entries(ref, found):
            problem = variable_name_problem(role, name)
            if problem is not None:
                return _invalid(f"key {shown_name(name)} of {ref} {problem}")
            try:
                values[name] = _value(raw, ref.json)
            except JsonError as error:
                return _invalid(f"key {shown_name(name)} of {ref} is {error}")
            if ref.kind == "Secret":
                sensitive.add(name)
            else:
                sensitive.discard(name)
    if inline is not msgspec.UNSET:
        if not isinstance(inline, Mapping):
            return _invalid("spec.variables must be a JSON object")
        for name in sorted(inline, key=str):
            problem = variable_name_problem(role, name) if isinstance(name, str) else "must be a string"
            if problem is not None:
                return _invalid(f"variable {shown_name(str(name))} of spec.variables {problem}")
            try:
                canonical_any_number(inline[name])
            except JsonError as error:
                return _invalid(f"variable {shown_name(name)} of spec.variables is {error}")
            values[name] = inline[name]
            sensitive.discard(name)
    return Variables(dict(sorted(values.items())), frozenset(sensitive))


def _invalid(message: str) -> Gate:
    return Gate(types.FALSE, reasons.VARIABLES_INVALID, message)


def _entries(ref: SourceRef, found: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    """Return the keys of a source with their bytes, in sorted order."""
    entries: dict[str, bytes] = {}
    data = found.get("data")
    if isinstance(data, Mapping):
        for name, text in data.items():
            if isinstance(text, str):
                entries[name] = (
                    _decoded(text) if ref.kind == "Secret" else text.encode("utf-8", "surrogatepass")
                )
    binary = found.get("binaryData")
    if ref.kind == "ConfigMap" and isinstance(binary, Mapping):
        for name, text in binary.items():
            if isinstance(text, str):
                entries[name] = _decoded(text)
    return sorted(entries.items())


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        # The API server stores nothing but base64; bytes that are no UTF-8 are reported by their key.
        return b"\xff"


def _value(raw: bytes, json: bool) -> Json:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise JsonError("not valid UTF-8") from None
    return parse(text) if json else text
