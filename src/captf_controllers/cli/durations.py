"""Durations in the form that Kubernetes tools use on their command lines: ``90s``, ``1h30m``, ``0``."""

from __future__ import annotations

import re

import click

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> float:
    """The seconds of a duration such as ``2m0.5s``.

    A sequence of ``<decimal><unit>`` with an optional leading sign; ``0`` needs no unit. Raises ValueError
    for anything else, with the forms that work.
    """
    sign = -1.0 if text.startswith("-") else 1.0
    body = text[1:] if text[:1] in {"-", "+"} else text
    if body == "0":
        return 0.0
    seconds, position = 0.0, 0
    for match in _PART.finditer(body):
        if match.start() != position:
            break
        seconds += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not body or position != len(body):
        raise ValueError(f"{text!r} is not a duration: write it like 90s, 1h30m or 0")
    return sign * seconds


def format_duration(seconds: float) -> str:
    """A duration as people write it: ``10m``, ``1h30m``, ``1.5s``."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds == 0:
        return "0s"
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{int(hours)}h"] if hours else []
    parts += [f"{int(minutes)}m"] if minutes else []
    parts += [f"{rest:g}s"] if rest else []
    return "".join(parts)


class Duration(click.ParamType[float]):
    """A click type for durations; its values are seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()
