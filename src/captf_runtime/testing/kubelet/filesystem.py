"""A container's file system as a directory: image files as links, mounts in their places, paths translated.

A process on this machine cannot be given another root without privileges, so each container gets a directory
that stands for `/`, and absolute container paths in its command, arguments and environment are rewritten to
lie below it. Programs that build paths from those stay inside; a path that a program has built in does not.

Relative paths that lead from one mount to a neighbour or into the image (`../../module`) work, since mounts
are real directories at their places. A volume that several containers mount lies in the root of the first of
them (ordinary containers before init containers); the others see it through a symbolic link.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from captf_runtime.objects import Object

from .images import Image

__all__ = ["ContainerPaths", "Mount", "build_root", "local_path", "mounts_of", "place_volumes"]

# Where a path may begin within a text: `--config=/etc/app`, `/a:/b`, `["/a"]`. Two slashes begin no path.
_PATH = re.compile(r"(?:(?<=[\s=:,;\"'(\[{])|^)/(?!/)[^\s=:,;\"'()\[\]{}]*")
_MACHINE_DIRECTORIES = frozenset({"/dev", "/proc", "/sys"})


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of a container: which volume (and part of it) appears at which path."""

    path: str
    volume: str
    sub_path: str = ""


def _normal(path: str) -> str:
    # PurePosixPath keeps ".." on purpose (links); for mount paths the text alone decides.
    return os.path.normpath("/" + path.lstrip("/"))


def mounts_of(container: Object) -> list[Mount]:
    """Return the mounts of a container, outer paths before inner ones."""
    mounts = [
        Mount(_normal(mount.get("mountPath", "/")), mount.get("name", ""), mount.get("subPath", ""))
        for mount in container.get("volumeMounts") or ()
    ]
    return sorted(mounts, key=lambda mount: mount.path)


def local_path(root: Path, path: str) -> Path:
    """Return where the absolute container path lies below `root`."""
    return root / _normal(path).lstrip("/")


def place_volumes(
    volumes: Iterable[str], containers: Iterable[Object], roots: Mapping[str, Path], spare: Path
) -> dict[str, Path]:
    """Choose the directory of each volume.

    Args:
        volumes: names of the pod's volumes.
        containers: the containers, those that should see real directories first.
        roots: root directory by container name.
        spare: parent of the volumes that no container mounts as a whole.
    """
    places: dict[str, Path] = {}
    for container in containers:
        for mount in mounts_of(container):
            if not mount.sub_path and mount.path != "/":
                places.setdefault(mount.volume, local_path(roots[container["name"]], mount.path))
    for volume in volumes:
        places.setdefault(volume, spare / volume)
    return places


@dataclass(frozen=True, slots=True)
class ContainerPaths:
    """Translates container paths to local ones in texts.

    Args:
        root: the directory that stands for `/`.
        mounted: container paths below which everything belongs to the container: mounts and special files.
    """

    root: Path
    mounted: frozenset[str]

    def translate(self, text: str) -> str:
        """Replace each absolute container path in the text; paths of the machine (`/usr/bin/env`) stay.

        A path belongs to the container when it is mounted, exists in the container's root, or its parent
        directory does (so that a file that the image lacks is not taken from the machine instead).
        """
        return _PATH.sub(lambda match: self._translate_path(match.group()), text)

    def _translate_path(self, path: str) -> str:
        normal = _normal(path)
        if not self._belongs(normal):
            return path
        local = str(local_path(self.root, normal))
        return local + "/" if path.endswith("/") and normal != "/" else local

    def _belongs(self, path: str) -> bool:
        parents = [str(parent) for parent in PurePosixPath(path).parents]
        if path in self.mounted or any(parent in self.mounted for parent in parents):
            return True
        if path == "/" or any(parent in _MACHINE_DIRECTORIES for parent in (path, *parents)):
            return False
        local = local_path(self.root, path)
        return os.path.lexists(local) or (local.parent != self.root and local.parent.is_dir())


def build_root(root: Path, image: Image, mounts: Iterable[Mount], places: Mapping[str, Path]) -> None:
    """Fill a container's root: links to the image's files, its executables, links to volumes elsewhere.

    The directories of volumes placed in this root exist already or are made here.

    Raises:
        OSError: the image's directory cannot be read or the root cannot be written.
    """
    mounted = list(mounts)
    root.mkdir(parents=True, exist_ok=True)
    for mount in mounted:
        _mount(local_path(root, mount.path), mount, places[mount.volume])
    shadowed = frozenset(mount.path for mount in mounted)
    for path, arguments in image.executables.items():
        if not _is_below(path, shadowed):
            _write_launcher(local_path(root, path), arguments)
    if image.root is not None:
        _link_tree(image.root, root, image.root.resolve(), root, "/", shadowed)


def _is_below(path: str, directories: frozenset[str]) -> bool:
    normal = _normal(path)
    return normal in directories or any(str(p) in directories for p in PurePosixPath(normal).parents)


def _mount(local: Path, mount: Mount, place: Path) -> None:
    target = place / mount.sub_path if mount.sub_path else place
    if local == target:
        local.mkdir(parents=True, exist_ok=True)
        return
    if not target.exists():
        target.mkdir(parents=True)
    local.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(local):
        local.symlink_to(target)


def _write_launcher(local: Path, arguments: Iterable[str]) -> None:
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_text(f'#!/bin/sh\nexec {shlex.join(arguments)} "$@"\n', encoding="utf-8")
    local.chmod(0o755)


def _link_tree(
    source: Path, target: Path, image_root: Path, root: Path, path: str, shadowed: frozenset[str]
) -> None:
    """Recreate the directory below `target`: real directories, so that new files stay out of the image."""
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda found: found.name):
            inner = f"{path.rstrip('/')}/{entry.name}"
            if inner in shadowed:
                continue
            local = target / entry.name
            if entry.is_symlink():
                if not os.path.lexists(local):
                    local.symlink_to(_link_target(os.readlink(entry.path), image_root, root))
            elif entry.is_dir():
                local.mkdir(exist_ok=True)
                _link_tree(Path(entry.path), local, image_root, root, inner, shadowed)
            elif not os.path.lexists(local):
                local.symlink_to(os.path.abspath(entry.path))


def _link_target(text: str, image_root: Path, root: Path) -> str:
    if text.startswith("/") and os.path.lexists(local_path(image_root, text)):
        return str(local_path(root, text))
    return text
