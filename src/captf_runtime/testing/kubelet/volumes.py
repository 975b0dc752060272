"""The content of volumes: what files a Secret, ConfigMap or projected volume holds, and how they are written.

`volume_files` decides, given the objects; `write_files` lays the files out as a node does: a hidden directory
with the content, `..data` pointing to it, and a link per top-level name.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from captf_runtime.objects import Object, annotations_of, labels_of, name_of, namespace_of, uid_of

__all__ = [
    "NotReady",
    "TokenSource",
    "VolumeFile",
    "VolumeReader",
    "field_value",
    "volume_files",
    "write_files",
]

_DEFAULT_MODE = 0o644


class NotReady(Exception):
    """Something that the pod needs is not there yet; the message is what Kubernetes says in this case."""


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """A file of a volume."""

    content: bytes
    mode: int = _DEFAULT_MODE


class VolumeReader(Protocol):
    """Fetches what volumes are made of, from the pod's namespace."""

    def secret(self, name: str) -> Object | None:
        """The Secret, None when there is none."""
        ...

    def config_map(self, name: str) -> Object | None:
        """The ConfigMap, None when there is none."""
        ...


TokenSource = Callable[[str, int], str]
"""Issues a token of the pod's ServiceAccount: for an audience ("": the API server's), for so many seconds."""


def volume_files(
    volume: Object, pod: Object, reader: VolumeReader, token: TokenSource
) -> dict[str, VolumeFile] | None:
    """Return the files of a volume by relative path; None for a volume that starts empty.

    Raises:
        NotReady: an object or key is missing, or the kind of volume is not supported here.
    """
    if "emptyDir" in volume:
        return None
    if (source := volume.get("secret")) is not None:
        return _secret_files({**source, "name": source.get("secretName", "")}, reader, _mode(source))
    if (source := volume.get("configMap")) is not None:
        return _config_map_files(source, reader, _mode(source))
    if (source := volume.get("downwardAPI")) is not None:
        return _downward_files(source, pod, _mode(source))
    if (source := volume.get("projected")) is not None:
        return _projected_files(source, pod, reader, token)
    kind = next((key for key in volume if key != "name"), "none")
    raise NotReady(f"the local kubelet does not support volumes of kind {kind}")


def _mode(source: Object) -> int:
    mode = source.get("defaultMode")
    return _DEFAULT_MODE if mode is None else int(mode)


def _projected_files(
    source: Object, pod: Object, reader: VolumeReader, token: TokenSource
) -> dict[str, VolumeFile]:
    mode = _mode(source)
    files: dict[str, VolumeFile] = {}
    for part in source.get("sources") or ():
        if (inner := part.get("secret")) is not None:
            files.update(_secret_files(inner, reader, mode))
        elif (inner := part.get("configMap")) is not None:
            files.update(_config_map_files(inner, reader, mode))
        elif (inner := part.get("downwardAPI")) is not None:
            files.update(_downward_files(inner, pod, mode))
        elif (inner := part.get("serviceAccountToken")) is not None:
            text = token(inner.get("audience", ""), int(inner.get("expirationSeconds") or 3600))
            files[_relative(inner.get("path", "token"))] = VolumeFile(text.encode(), mode)
        else:
            kind = next(iter(part), "none")
            raise NotReady(f"the local kubelet does not support projected sources of kind {kind}")
    return files


def _secret_files(source: Object, reader: VolumeReader, mode: int) -> dict[str, VolumeFile]:
    name = source.get("name", "")
    secret = reader.secret(name)
    if secret is None:
        if source.get("optional"):
            return {}
        raise NotReady(f'secret "{name}" not found')
    data = {key: decode_base64(value) for key, value in (secret.get("data") or {}).items()}
    return _chosen(data, source, mode, "secret")


def _config_map_files(source: Object, reader: VolumeReader, mode: int) -> dict[str, VolumeFile]:
    name = source.get("name", "")
    config_map = reader.config_map(name)
    if config_map is None:
        if source.get("optional"):
            return {}
        raise NotReady(f'configmap "{name}" not found')
    data = {key: value.encode() for key, value in (config_map.get("data") or {}).items()}
    data.update({key: decode_base64(value) for key, value in (config_map.get("binaryData") or {}).items()})
    return _chosen(data, source, mode, "config")


def _chosen(data: Mapping[str, bytes], source: Object, mode: int, what: str) -> dict[str, VolumeFile]:
    items = source.get("items")
    if not items:
        return {key: VolumeFile(content, mode) for key, content in data.items()}
    files: dict[str, VolumeFile] = {}
    for item in items:
        key = item.get("key", "")
        if key not in data:
            if source.get("optional"):
                continue
            raise NotReady(f"references non-existent {what} key: {key}")
        item_mode = item.get("mode")
        files[_relative(item.get("path", key))] = VolumeFile(
            data[key], mode if item_mode is None else int(item_mode)
        )
    return files


def _downward_files(source: Object, pod: Object, mode: int) -> dict[str, VolumeFile]:
    files: dict[str, VolumeFile] = {}
    for item in source.get("items") or ():
        path = (item.get("fieldRef") or {}).get("fieldPath", "")
        item_mode = item.get("mode")
        files[_relative(item.get("path", ""))] = VolumeFile(
            field_value(pod, path).encode(), mode if item_mode is None else int(item_mode)
        )
    return files


def _relative(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or not path:
        raise NotReady(f"the path {path!r} of a volume item must be relative and may not contain ..")
    return os.path.normpath(path)


def decode_base64(text: str) -> bytes:
    """Decode a value of a Secret's `data`.

    Raises:
        NotReady: the value is not base64 (an API server stores no such value).
    """
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise NotReady("a value is not base64") from error


def field_value(pod: Object, path: str) -> str:
    """Return the value of a `fieldRef` of the pod.

    Raises:
        NotReady: the field is not one that Kubernetes offers.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    simple = {
        "metadata.name": name_of(pod),
        "metadata.namespace": namespace_of(pod),
        "metadata.uid": uid_of(pod),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": status.get("hostIP", "127.0.0.1"),
        "status.podIP": status.get("podIP", "127.0.0.1"),
        "status.podIPs": status.get("podIP", "127.0.0.1"),
    }
    if path in simple:
        return str(simple[path])
    for prefix, values in (
        ("metadata.labels", labels_of(pod)),
        ("metadata.annotations", annotations_of(pod)),
    ):
        if path == prefix:
            return "\n".join(f"{key}={json.dumps(value)}" for key, value in sorted(values.items()))
        if path.startswith(prefix + "['") and path.endswith("']"):
            return values.get(path[len(prefix) + 2 : -2], "")
    raise NotReady(f"unsupported fieldPath: {path}")


def write_files(directory: Path, files: Mapping[str, VolumeFile]) -> None:
    """Write the content of a volume, replacing what a former call wrote at once as far as readers can see.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / "..data"
    former = os.readlink(link) if link.is_symlink() else None
    serial = int(former.rpartition("_")[2]) + 1 if former else 1
    content = directory / f"..content_{serial}"
    content.mkdir()
    for path, file in files.items():
        target = content / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # Created for the owner alone before the content is in it: it may be secret.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
        target.chmod(file.mode)
    fresh = directory / "..data_new"
    fresh.symlink_to(content.name)
    os.replace(fresh, link)
    names = {path.partition("/")[0] for path in files}
    for name in names:
        visible = directory / name
        if not os.path.lexists(visible):
            visible.symlink_to(f"..data/{name}")
    if former is not None:
        for visible in directory.iterdir():
            if visible.is_symlink() and not visible.name.startswith("..") and visible.name not in names:
                visible.unlink()
        _remove_tree(directory / former)


def _remove_tree(directory: Path) -> None:
    for parent, directories, names in os.walk(directory, topdown=False):
        for name in names:
            os.unlink(os.path.join(parent, name))
        for name in directories:
            os.rmdir(os.path.join(parent, name))
    directory.rmdir()
