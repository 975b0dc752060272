"""Request bodies: from bytes to JSON values, with the server's words for what cannot be read."""

from __future__ import annotations

import json

import msgspec
import yaml

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import protobuf, status


def decode_object(body: bytes, kind: str) -> Object:
    """The JSON object of a create or update of `kind`; raises 400."""
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError as problem:
        detail = json_problem(body)
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
            f"json parse error: {detail} ({_summary(body)})"
        ) from problem
    if not isinstance(decoded, dict):
        found = shape(decoded)
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
            f"json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string "
            '"json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } '
            f"({_summary(body)})"
        )
    return decoded


def shape(value: object) -> str:
    """The JSON type of a value, as errors name it."""
    return {list: "array", str: "string", bool: "bool", dict: "object"}.get(type(value), "number")


def _summary(body: bytes) -> str:
    """The beginning of a body as errors show it: text of an object, else hexadecimal."""
    if not body:
        return "<empty>"
    shown = body[:30].decode(errors="replace") if body.startswith(b"{") else body[:30].hex()
    return f"{shown} ..." if len(body) > 30 else shown


def json_problem(body: bytes) -> str:
    """What is wrong with a body that is no JSON, in the server's words."""
    text = body.decode(errors="replace").strip()
    if not text:
        return "unexpected end of JSON input"
    if text.startswith("{") and len(text) > 1 and text[1:].lstrip()[:1] not in ('"', "}", ""):
        return f"invalid character '{text[1:].lstrip()[0]}' looking for beginning of object key string"
    try:
        _, end = json.JSONDecoder().raw_decode(text)
        return f"invalid character '{text[end:].lstrip()[0]}' after top-level value"
    except ValueError:
        pass
    if text[0] not in '{["tfn-0123456789':
        return f"invalid character '{text[0]}' looking for beginning of value"
    return "unexpected end of JSON input"


def decode_protobuf(body: bytes) -> Object:
    """The object of a protobuf body; raises 415 for what the tables do not know."""
    try:
        return protobuf.decode(body)
    except ValueError as problem:
        message = f"the body of the request cannot be read as protobuf: {problem}"
        raise status.unsupported_media_type(message) from problem


def decode_yaml(body: bytes) -> Object:
    """The object of a YAML (or JSON) body; raises 400."""
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError:
        try:
            decoded = yaml.safe_load(body)
        except yaml.YAMLError as problem:
            raise status.bad_request(f"error decoding YAML: {problem}") from problem
    if not isinstance(decoded, dict):
        detail = f"json: cannot unmarshal {shape(decoded)} into Go value of type map[string]interface {{}}"
        raise status.bad_request(
            f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {detail}"
        )
    return decoded


def decode_patch(body: bytes) -> object:
    """The JSON of a patch; raises 400."""
    try:
        decoded: object = msgspec.json.decode(body)
    except msgspec.DecodeError as problem:
        raise status.bad_request(json_problem(body)) from problem
    return decoded
