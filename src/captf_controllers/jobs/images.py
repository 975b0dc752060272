"""Which image a destroy, refresh, drift or restore Job runs, and which ones are tried after it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from captf_controllers.api import annotations as keys
from captf_controllers.jobs.views import JobView

__all__ = [
    "ImageChoice",
    "choose_image",
    "fallbacks_of",
    "next_image",
    "parse_image_list",
    "render_image_list",
]


@dataclass(frozen=True, slots=True)
class ImageChoice:
    """The image to run now and the ones to try next, in order, without duplicates."""

    image: str
    fallbacks: tuple[str, ...]


def choose_image(
    pinned: str, record_image: str, spec_image: str, unpullable: Iterable[str] = ()
) -> ImageChoice | None:
    """Choose what a Job of recorded inputs runs; None when no image is known at all.

    Args:
        pinned: the digest that the last successful apply ran, "" when none is pinned.
        record_image: the reference in the inputs record, "" when there is none.
        spec_image: the present spec reference of a cluster or pool; "" for a machine, which never runs an
            image that its record does not name.
        unpullable: images that an earlier Job could not pull. When all are listed, the first runs anyway:
            a registry may have come back.
    """
    known = list(dict.fromkeys(image for image in (pinned, record_image, spec_image) if image))
    if not known:
        return None
    failed = set(unpullable)
    left = [image for image in known if image not in failed] or known[:1]
    return ImageChoice(left[0], tuple(left[1:]))


def next_image(job: JobView, spec_image: str, unpullable: Iterable[str]) -> str:
    """The image to try after the one that the Job cannot pull; "" when none is left.

    The fallbacks recorded on the Job first, then the present spec image ("" for a machine), without those
    that could not be pulled before.
    """
    failed = {*unpullable, job.image}
    candidates = (*fallbacks_of(job), spec_image)
    return next((image for image in candidates if image and image not in failed), "")


def fallbacks_of(job: JobView) -> tuple[str, ...]:
    """The images that the Job's annotation names as the next to try."""
    return parse_image_list(job.annotations.get(keys.IMAGE_FALLBACKS, ""))


def parse_image_list(text: str) -> tuple[str, ...]:
    """Read a JSON array of image references; what is not one counts as empty."""
    try:
        return msgspec.json.decode(text, type=tuple[str, ...]) if text else ()
    except (msgspec.DecodeError, RecursionError):
        return ()


def render_image_list(images: Iterable[str]) -> str:
    """Write image references as the JSON array that `parse_image_list` reads."""
    return json.dumps(list(images), separators=(",", ":"))
