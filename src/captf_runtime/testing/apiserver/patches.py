"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902) on decoded JSON."""

from __future__ import annotations

import copy

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.schema.json_values import same_json

OPERATIONS_LIMIT = 10_000


def merge(target: object, patch: object) -> object:
    """`target` with a merge patch applied: maps merge, null deletes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


class Rejected(Exception):
    """An operation of a JSON patch that cannot be applied, a failed test included."""


def check_operations(operations: object) -> list[object]:
    """The operations of a JSON patch; raises 400 when it is no list, 413 when it is too long."""
    if not isinstance(operations, list):
        shape = {dict: "object", str: "string", bool: "bool"}.get(type(operations), "number")
        raise status.bad_request(f"json: cannot unmarshal {shape} into Go value of type jsonpatch.Patch")
    if len(operations) > OPERATIONS_LIMIT:
        raise status.ApiStatus(
            413,
            f"Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, "
            f"got {len(operations)}",
            "RequestEntityTooLarge",
        )
    return operations


def apply_json_patch(document: Object, operations: object, *, lenient: bool = False) -> Object:
    """`document` with the operations applied in order; all or none.

    With `lenient`, as 1.20 does, a key that is not there can be replaced, and copied as null. Raises
    `ApiStatus`: 400 when it is no list of operations, 413 with over 10,000 of them, 422 when a test fails
    or a path is missing.
    """
    operations = check_operations(operations)
    result: object = copy.deepcopy(document)
    try:
        for operation in operations:
            if not isinstance(operation, dict):
                raise Rejected("an operation is an object")
            result = _operate(result, operation, lenient=lenient)
    except Rejected as problem:
        raise status.patch_rejected() from problem
    if not isinstance(result, dict):
        raise status.patch_rejected()
    return result


def _pointer(text: object) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise Rejected(f"no JSON pointer: {text}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(array: list[object], part: str, *, end: bool) -> int:
    if part == "-" and end:
        return len(array)
    if not part.lstrip("-").isdigit() or (part.startswith("0") and part != "0"):
        raise Rejected(f"no index: {part}")
    index = int(part)
    limit = len(array) + (1 if end else 0)
    if not 0 <= index < limit:
        raise Rejected(f"index out of bounds: {part}")
    return index


def _get(document: object, path: list[str]) -> object:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(document, part, end=False)]
        else:
            raise Rejected(f"missing path: {part}")
    return document


def _put(document: object, path: list[str], value: object, *, replace: bool) -> object:
    if not path:
        return value
    parent = _get(document, path[:-1])
    last = path[-1]
    if isinstance(parent, dict):
        if replace and last not in parent:
            raise Rejected(f"missing path: {last}")
        parent[last] = value
    elif isinstance(parent, list):
        if replace:
            parent[_index(parent, last, end=False)] = value
        else:
            parent.insert(_index(parent, last, end=True), value)
    else:
        raise Rejected(f"missing path: {last}")
    return document


def _remove(document: object, path: list[str]) -> object:
    if not path:
        raise Rejected("the whole document cannot be removed")
    parent = _get(document, path[:-1])
    last = path[-1]
    if isinstance(parent, dict) and last in parent:
        del parent[last]
    elif isinstance(parent, list):
        del parent[_index(parent, last, end=False)]
    else:
        raise Rejected(f"missing path: {last}")
    return document


def _operate(document: object, operation: Object, *, lenient: bool) -> object:
    path = _pointer(operation.get("path"))
    match operation.get("op"):
        case "add" if "value" in operation:
            return _put(document, path, operation["value"], replace=False)
        case "replace" if "value" in operation:
            return _put(
                document, path, operation["value"], replace=not lenient or not _in_map(document, path)
            )
        case "remove":
            return _remove(document, path)
        case "test":
            if not same_json(_get_or_null(document, path), operation.get("value")):
                raise Rejected(f"test failed: {operation.get('path')}")
            return document
        case "move":
            origin = _pointer(operation.get("from"))
            value = _get(document, origin)
            return _put(_remove(document, origin), path, value, replace=False)
        case "copy":
            origin = _pointer(operation.get("from"))
            found = _get_or_null(document, origin) if lenient else _get(document, origin)
            value = copy.deepcopy(found)
            return _put(document, path, value, replace=False)
    raise Rejected(f"unexpected operation: {operation.get('op')}")


def _in_map(document: object, path: list[str]) -> bool:
    return bool(path) and isinstance(_get(document, path[:-1]), dict)


def _get_or_null(document: object, path: list[str]) -> object:
    # A test against null succeeds on an absent member: that is how "not there yet" is asked for.
    parent = _get(document, path[:-1]) if path else document
    if path and isinstance(parent, dict):
        return parent.get(path[-1])
    return _get(document, path)
