"""The grammar of image references."""

from __future__ import annotations

import re

_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?"
_REFERENCE = re.compile(
    rf"(?:{_HOST}/)?{_COMPONENT}(?:/{_COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)
_BARE_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_image_reference(text: str) -> bool:
    """Whether a text is an image reference: optional host, lower-case path, optional tag, optional digest."""
    return bool(_REFERENCE.fullmatch(text)) and not _BARE_DIGEST.fullmatch(text)
