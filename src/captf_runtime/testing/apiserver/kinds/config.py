"""Secret and ConfigMap."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import ClassVar

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import names
from captf_runtime.testing.apiserver.decoding import json_problem, shape
from captf_runtime.testing.apiserver.kinds.base import Strategy, WriteContext, immutable, text_map
from captf_runtime.testing.apiserver.status import (
    Cause,
    bad_request,
    forbidden_value,
    invalid_value,
    required,
    too_long,
)

DATA_LIMIT = 1_048_576
_IMMUTABLE = "field is immutable when `immutable` is set"


def _texts(obj: Object, field: str, kind: str) -> None:
    found = obj.get(field)
    if found is None:
        obj.pop(field, None)
        return
    if not isinstance(found, dict):
        raise bad_request(
            f'{kind} in version "v1" cannot be handled as a {kind}: json: cannot unmarshal into Go struct field '
            f"{kind}.{field} of type map[string]string"
        )
    for key, value in found.items():
        if value is None:
            found[key] = ""
        elif not isinstance(value, str):
            shape = {bool: "bool", dict: "object", list: "array"}.get(type(value), "number")
            raise bad_request(
                f'{kind} in version "v1" cannot be handled as a {kind}: json: cannot unmarshal {shape} into Go '
                f"struct field {kind}.{field} of type string"
            )


def decoded_size(text: str) -> int:
    """Bytes that a base64 text stands for."""
    return len(text) * 3 // 4 - (len(text) - len(text.rstrip("=")))


def _check_base64(data: Mapping[str, str], kind: str) -> None:
    for value in data.values():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as problem:
            alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
            position = next(
                (i for i, c in enumerate(value) if c not in alphabet), len(value) - len(value) % 4
            )
            raise bad_request(
                f'{kind} in version "v1" cannot be handled as a {kind}: illegal base64 data at input byte {position}'
            ) from problem


def _keys(data: Mapping[str, str], path: str) -> list[Cause]:
    return [
        invalid_value(f"{path}[{key}]", key, message)
        for key in sorted(data)
        for message in names.config_key(key)
    ]


class SecretStrategy(Strategy):
    """Secrets: stringData is folded into data, the type never changes, `immutable` freezes the data."""

    _TYPED_KEYS: ClassVar[dict[str, tuple[str, ...]]] = {
        "kubernetes.io/dockercfg": (".dockercfg",),
        "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
        "kubernetes.io/tls": ("tls.crt", "tls.key"),
    }

    def decode(self, obj: Object) -> None:
        _texts(obj, "data", "Secret")
        _texts(obj, "stringData", "Secret")
        _check_base64(text_map(obj, "data"), "Secret")
        given = obj.pop("stringData", None)
        if given:
            data = obj.setdefault("data", {})
            for key, value in given.items():
                data[key] = base64.b64encode(value.encode()).decode()
        if not obj.get("data"):
            obj.pop("data", None)

    def default(self, obj: Object, context: WriteContext) -> None:
        obj["type"] = obj.get("type") or "Opaque"

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        data = text_map(obj, "data")
        causes = _keys(data, "data")
        if sum(decoded_size(value) for value in data.values()) > DATA_LIMIT:
            causes.append(too_long("data", DATA_LIMIT))
        for key in self._TYPED_KEYS.get(obj.get("type", ""), ()):
            if key not in data:
                causes.append(required(f"data[{key}]"))
        causes += self._typed(str(obj.get("type")), data)
        if obj.get("type") == "kubernetes.io/service-account-token":
            annotations = obj["metadata"].get("annotations") or {}
            if not annotations.get("kubernetes.io/service-account.name"):
                causes.append(required("metadata.annotations[kubernetes.io/service-account.name]"))
        return causes

    @staticmethod
    def _typed(kind: str, data: Mapping[str, str]) -> list[Cause]:
        # The odd field names are those of the real server, which never fills in its format.
        if kind == "kubernetes.io/ssh-auth" and not data.get("ssh-privatekey"):
            return [required("data[%s][ssh-privatekey]")]
        if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
            return [required("data[%s][username]"), required("data[%s][password]")]
        for config in ("dockerconfigjson", "dockercfg"):
            if kind == f"kubernetes.io/{config}" and f".{config}" in data:
                content = base64.b64decode(data[f".{config}"])
                try:
                    decoded = json.loads(content)
                    detail = (
                        ""
                        if isinstance(decoded, dict | None)
                        else f"json: cannot unmarshal {shape(decoded)} into Go value of type map[string]interface {{}}"
                    )
                except ValueError:
                    detail = json_problem(content)
                if detail:
                    return [invalid_value(f"data[.{config}]", "<secret contents redacted>", detail)]
        return []

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        causes = immutable("type", obj.get("type"), old.get("type"))
        if old.get("immutable"):
            if not obj.get("immutable"):
                causes.append(forbidden_value("immutable", _IMMUTABLE))
            if (obj.get("data") or {}) != (old.get("data") or {}):
                causes.append(forbidden_value("data", _IMMUTABLE))
        return causes

    def fields(self, obj: Object) -> dict[str, str]:
        return {"type": str(obj.get("type") or "")}

    def field_names(self) -> tuple[str, ...]:
        return ("type",)

    def unknown_field(self, field: str) -> str:
        return f"field label not supported: {field}"


class ConfigMapStrategy(Strategy):
    """ConfigMaps: data and binaryData share their keys and their limit."""

    def decode(self, obj: Object) -> None:
        _texts(obj, "data", "ConfigMap")
        _texts(obj, "binaryData", "ConfigMap")
        _check_base64(text_map(obj, "binaryData"), "ConfigMap")
        for field in ("data", "binaryData"):
            if not obj.get(field):
                obj.pop(field, None)

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        data, binary = text_map(obj, "data"), text_map(obj, "binaryData")
        causes = _keys(data, "data")
        for key in sorted(data):
            if key in binary:
                causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        causes += _keys(binary, "binaryData")
        size = sum(len(value.encode()) for value in data.values())
        if size + sum(decoded_size(value) for value in binary.values()) > DATA_LIMIT:
            causes.append(Cause("FieldValueTooLong", f"Too long: must have at most {DATA_LIMIT} bytes", "[]"))
        return causes

    def validate_update(self, obj: Object, old: Object, context: WriteContext) -> list[Cause]:
        if not old.get("immutable"):
            return []
        causes = [] if obj.get("immutable") else [forbidden_value("immutable", _IMMUTABLE)]
        for field in ("data", "binaryData"):
            if (obj.get(field) or {}) != (old.get(field) or {}):
                causes.append(forbidden_value(field, _IMMUTABLE))
        return causes
