"""What stands for a container image on this machine, and which image references are valid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

__all__ = ["Image", "ImageResolver", "is_valid_reference", "repository_of", "resolver_for"]

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Grammar of the distribution project: [domain[:port]/]path[:tag][@digest].
_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REFERENCE = re.compile(
    rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*(?::[0-9]+)?/)?"
    rf"{_PATH_PART}(?:/{_PATH_PART})*"
    r"(?::[\w][\w.-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image as a directory.

    Args:
        root: directory laid out like the image's root file system; None for an image without files. Its
            files appear in containers as links, so containers should treat them as read-only. A symbolic link
            with an absolute target means the file of the image when it has one there, else that of this
            machine.
        digest: "sha256:" and 64 hexadecimal digits; what the pod's status reports.
        executables: programs by their path in the container, each an argument vector of this machine that the
            container's arguments are appended to. They shadow files of `root`.
        command: what runs when the container names no command.

    Raises:
        ValueError: a digest of another form, or a relative path among `executables`.
    """

    root: Path | None
    digest: str
    executables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    command: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.digest):
            raise ValueError(f"digest: expected sha256: and 64 hexadecimal digits, got {self.digest!r}")
        for path in self.executables:
            if not path.startswith("/"):
                raise ValueError(f"executables: the path in the container must be absolute, got {path!r}")


ImageResolver: TypeAlias = Callable[[str], Image | None]
"""Returns the image that a reference stands for, None when it cannot be pulled."""


def resolver_for(images: Mapping[str, Image] | ImageResolver) -> ImageResolver:
    """Return a resolver; a mapping is asked for the whole reference, without digest, for the repository."""
    if not isinstance(images, Mapping):
        return images

    def resolve(reference: str) -> Image | None:
        tagged = reference.partition("@")[0]
        for candidate in (reference, tagged, repository_of(reference)):
            image = images.get(candidate)
            if image is not None:
                digest = reference.partition("@")[2]
                # A digest that is not this image's is another image, which is not here.
                return image if not digest or digest == image.digest else None
        return None

    return resolve


def is_valid_reference(reference: str) -> bool:
    """Say whether the text is a well-formed image reference."""
    return _REFERENCE.fullmatch(reference) is not None


def repository_of(reference: str) -> str:
    """Return the reference without tag and digest."""
    name = reference.partition("@")[0]
    head, slash, tail = name.rpartition("/")
    return head + slash + tail.partition(":")[0]
