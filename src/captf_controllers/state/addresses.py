"""The addresses of the resources in a state, as ``terraform state list`` writes them. Pure.

Nothing of a resource but its address is decoded: attributes never come into being here.

Invariants:
- one address for each instance, in the order of the state, which the runtimes keep sorted;
- an address holds no control character, whatever the state holds: it may go to a terminal as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from captf_runtime.objects import Object, name_of

from .reading import StateProblem, StateUnreadable, assemble, decompress


class _Instance(msgspec.Struct):
    index_key: int | float | str | None = None
    deposed: str = ""


class _Resource(msgspec.Struct):
    mode: str = ""
    type: str = ""
    name: str = ""
    module: str = ""
    instances: list[_Instance] = []


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


_decode = msgspec.json.Decoder(_Resources).decode


def managed_addresses(base: str, secrets: Sequence[Object]) -> tuple[str, ...]:
    """Return the address of every instance of a managed resource; data sources are left out.

    An instance that waits to be destroyed after its replacement came is marked as deposed.

    Args:
        base: name of the first Secret of the set, of a state or of a backup.
        secrets: every Secret of the set, with data.

    Raises:
        StateUnreadable: the Secrets are no state.
    """
    if not secrets:
        return ()
    payload = assemble(base, secrets)
    try:
        document = _decode(decompress(payload))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The decoder's own message may quote a value.
        raise StateUnreadable(
            StateProblem.CORRUPT,
            f"the resources of the state in Secret {name_of(payload.secrets[0])} are not as a state has them",
        ) from None
    return tuple(
        address
        for resource in document.resources or ()
        if resource.mode == "managed"
        for address in _addresses(resource)
    )


def _addresses(resource: _Resource) -> list[str]:
    head = f"{resource.module}." if resource.module else ""
    base = _printable(f"{head}{resource.type}.{resource.name}")
    return [base + _key(instance.index_key) + _deposed(instance) for instance in resource.instances]


def _key(key: float | str | None) -> str:
    if key is None:
        return ""
    if isinstance(key, str):
        return f"[{_printable(json.dumps(key, ensure_ascii=False))}]"
    return f"[{key:g}]" if isinstance(key, float) else f"[{key}]"


def _deposed(instance: _Instance) -> str:
    return f" (deposed {_printable(instance.deposed)})" if instance.deposed else ""


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
