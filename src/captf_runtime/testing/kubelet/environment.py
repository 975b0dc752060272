"""The environment of a container, composed as a node composes it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from captf_runtime.objects import Object, namespace_of

from .volumes import NotReady, VolumeReader, decode_base64, field_value

__all__ = ["container_environment", "expand"]

_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value; an unknown name stays as it is, `$$` becomes `$`."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return values.get(name, match.group())

    return _REFERENCE.sub(value, text)


def container_environment(container: Object, pod: Object, reader: VolumeReader) -> dict[str, str]:
    """Return what `envFrom` and `env` of a container say; later entries win, `env` over `envFrom`.

    Raises:
        NotReady: a Secret, ConfigMap or key that is not optional is missing.
    """
    values: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        for key, value in _source_values(source, reader).items():
            if _NAME.fullmatch(prefix + key):
                values[prefix + key] = value
    for entry in container.get("env") or ():
        name = entry.get("name", "")
        if "valueFrom" in entry:
            found = _value_from(entry["valueFrom"], pod, reader)
            if found is not None:
                values[name] = found
        else:
            values[name] = expand(entry.get("value") or "", values)
    return values


def _source_values(source: Object, reader: VolumeReader) -> dict[str, str]:
    if (reference := source.get("secretRef")) is not None:
        secret = reader.secret(reference.get("name", ""))
        if secret is not None:
            return _secret_values(secret)
        if reference.get("optional"):
            return {}
        raise NotReady(f'secret "{reference.get("name", "")}" not found')
    if (reference := source.get("configMapRef")) is not None:
        config_map = reader.config_map(reference.get("name", ""))
        if config_map is not None:
            return dict(config_map.get("data") or {})
        if reference.get("optional"):
            return {}
        raise NotReady(f'configmap "{reference.get("name", "")}" not found')
    return {}


def _secret_values(secret: Object) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, encoded in (secret.get("data") or {}).items():
        content = decode_base64(encoded)
        # An environment holds no NUL; bytes that are no text travel as they are.
        if b"\0" not in content:
            values[key] = content.decode("utf-8", "surrogateescape")
    return values


def _value_from(source: Object, pod: Object, reader: VolumeReader) -> str | None:
    if (reference := source.get("fieldRef")) is not None:
        return field_value(pod, reference.get("fieldPath", ""))
    if (reference := source.get("secretKeyRef")) is not None:
        return _key(reference, reader.secret(reference.get("name", "")), "secret", pod)
    if (reference := source.get("configMapKeyRef")) is not None:
        return _key(reference, reader.config_map(reference.get("name", "")), "configmap", pod)
    raise NotReady(f"the local kubelet does not support valueFrom {next(iter(source), 'without a source')}")


def _key(reference: Object, obj: Object | None, what: str, pod: Object) -> str | None:
    name, key = reference.get("name", ""), reference.get("key", "")
    if obj is None:
        if reference.get("optional"):
            return None
        raise NotReady(f'{what} "{name}" not found')
    values = _secret_values(obj) if what == "secret" else dict(obj.get("data") or {})
    if key not in values:
        if reference.get("optional"):
            return None
        title = "Secret" if what == "secret" else "ConfigMap"
        raise NotReady(f"couldn't find key {key} in {title} {namespace_of(pod)}/{name}")
    return str(values[key])
