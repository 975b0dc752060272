"""Types of Terraform outputs, as a module's author writes them. Pure."""

from __future__ import annotations

import msgspec

from captf_controllers.cli.connection import one_line

#: Deeper than this a type is not spelled out.
_DEPTH = 4


def type_expression(encoded: bytes) -> str:
    """The type of an output: ``string``, ``list(string)``, ``object({host=string, port=number})``.

    ``encoded`` is the type as the state holds it. What makes no sense reads ``unknown``.
    """
    try:
        return one_line(_expression(msgspec.json.decode(encoded), _DEPTH))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "unknown"


def _expression(node: object, depth: int) -> str:
    if isinstance(node, str):
        return node
    if depth == 0:
        return "…"
    match node:
        case [("list" | "set" | "map") as collection, element]:
            return f"{collection}({_expression(element, depth - 1)})"
        case ["tuple", [*elements]]:
            return f"tuple([{', '.join(_expression(element, depth - 1) for element in elements)}])"
        case ["object", dict() as attributes, *_]:
            inner = ", ".join(
                f"{name}={_expression(attributes[name], depth - 1)}" for name in sorted(attributes)
            )
            return f"object({{{inner}}})"
        case _:
            return "unknown"
